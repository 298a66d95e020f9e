//! Responses from bytes (RFC 9112), as they arrive.

/// Most bytes of a head, and of a body.
const MAX_HEAD: usize = 64 << 10;
const MAX_BODY: usize = 16 << 20;
const MAX_FIELDS: usize = 100;

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code, 200 to 999.
    pub status: u16,
    /// The body without transfer coding.
    pub body: Vec<u8>,
    /// Whether the connection can be used for another request.
    pub keep_alive: bool,
}

/// Why bytes are no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of the body are missing.
    Length(usize),
    /// Before the size of a chunk.
    ChunkSize,
    /// So many bytes of a chunk are missing, and the line end after it.
    Chunk(usize),
    /// After the last chunk.
    Trailers,
    /// The body ends with the connection.
    UntilClose,
}

/// Parses one response.
#[derive(Clone, Debug)]
pub struct Parser {
    /// Bytes not yet taken.
    buffer: Vec<u8>,
    state: State,
    /// Whether the request was a HEAD.
    head_only: bool,
    status: u16,
    keep_alive: bool,
    body: Vec<u8>,
}

impl Parser {
    /// A parser for the response to a request with `method`.
    pub fn new(method: &str) -> Parser {
        Parser {
            buffer: Vec::new(),
            state: State::Head,
            head_only: method == "HEAD",
            status: 0,
            keep_alive: false,
            body: Vec::new(),
        }
    }

    /// Whether anything has arrived.
    pub fn has_begun(&self) -> bool {
        self.state != State::Head || !self.buffer.is_empty()
    }

    /// Takes bytes that arrived. The response, once it is complete; what follows it makes the connection unusable.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<Response>, Malformed> {
        self.buffer.extend_from_slice(bytes);
        loop {
            let before = (self.state, self.buffer.len());
            if self.step()? {
                self.keep_alive &= self.buffer.is_empty();
                return Ok(Some(self.response()));
            }
            if self.body.len() > MAX_BODY {
                return Err(Malformed(format!("a body of more than {MAX_BODY} bytes")));
            }
            if before == (self.state, self.buffer.len()) {
                return Ok(None);
            }
        }
    }

    /// The connection ended. A response, if its body was to end with the connection.
    pub fn end(&mut self) -> Option<Response> {
        self.keep_alive = false;
        (self.state == State::UntilClose).then(|| self.response())
    }

    fn response(&mut self) -> Response {
        Response { status: self.status, body: std::mem::take(&mut self.body), keep_alive: self.keep_alive }
    }

    /// Takes what can be taken; true when the response is complete.
    fn step(&mut self) -> Result<bool, Malformed> {
        match self.state {
            State::Head => self.head(),
            State::Length(missing) => {
                let missing = missing - self.take(missing);
                self.state = State::Length(missing);
                Ok(missing == 0)
            }
            State::UntilClose => {
                self.take(usize::MAX);
                Ok(false)
            }
            State::ChunkSize => self.chunk_size(),
            State::Chunk(missing) => {
                let missing = missing - self.take(missing);
                self.state = State::Chunk(missing);
                if missing == 0 && self.buffer.len() >= 2 {
                    if !self.buffer.starts_with(b"\r\n") {
                        return Err(Malformed("a chunk that does not end with its size".to_owned()));
                    }
                    self.buffer.drain(..2);
                    self.state = State::ChunkSize;
                }
                Ok(false)
            }
            State::Trailers => self.trailers(),
        }
    }

    /// Moves up to `count` bytes into the body.
    fn take(&mut self, count: usize) -> usize {
        let count = count.min(self.buffer.len());
        self.body.extend(self.buffer.drain(..count));
        count
    }

    fn head(&mut self) -> Result<bool, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        let length = match head.parse(&self.buffer) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.buffer.len() > MAX_HEAD => {
                return Err(Malformed(format!("a head of more than {MAX_HEAD} bytes")));
            }
            Ok(httparse::Status::Partial) => return Ok(false),
            Err(error) => return Err(Malformed(error.to_string())),
        };
        let status = head.code.unwrap_or(0);
        if (100..200).contains(&status) {
            // Interim responses come before the one that counts.
            self.buffer.drain(..length);
            return Ok(false);
        }
        self.status = status;
        let framing = Framing::of(head.version == Some(1), head.headers)?;
        self.keep_alive = framing.keep_alive;
        self.state = match framing {
            // RFC 9112, 6.3: these have no body, whatever their fields say.
            _ if self.head_only || status == 204 || status == 304 => State::Length(0),
            Framing { chunked: true, .. } => State::ChunkSize,
            Framing { length: Some(length), .. } => State::Length(length),
            _ => State::UntilClose,
        };
        self.buffer.drain(..length);
        Ok(self.state == State::Length(0))
    }

    fn chunk_size(&mut self) -> Result<bool, Malformed> {
        match httparse::parse_chunk_size(&self.buffer) {
            Ok(httparse::Status::Complete((start, size))) => {
                self.buffer.drain(..start);
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                if size > MAX_BODY {
                    return Err(Malformed(format!("a chunk of {size} bytes")));
                }
                self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                Ok(false)
            }
            Ok(httparse::Status::Partial) => Ok(false),
            Err(_) => Err(Malformed("a chunk without a size".to_owned())),
        }
    }

    /// Skips lines up to the empty one.
    fn trailers(&mut self) -> Result<bool, Malformed> {
        while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
            self.buffer.drain(..end + 2);
            if end == 0 {
                return Ok(true);
            }
        }
        if self.buffer.len() > MAX_HEAD {
            return Err(Malformed("a trailer without an end".to_owned()));
        }
        Ok(false)
    }
}

/// What the header fields say about the body's length and the connection.
struct Framing {
    chunked: bool,
    length: Option<usize>,
    keep_alive: bool,
}

impl Framing {
    fn of(version_1_1: bool, fields: &[httparse::Header<'_>]) -> Result<Framing, Malformed> {
        let mut framing = Framing { chunked: false, length: None, keep_alive: version_1_1 };
        for field in fields.iter().filter(|f| !f.name.is_empty()) {
            let value = String::from_utf8_lossy(field.value).trim().to_ascii_lowercase();
            if field.name.eq_ignore_ascii_case("content-length") {
                let length =
                    value.parse().map_err(|_| Malformed(format!("a Content-Length of {value:?}")))?;
                if framing.length.is_some_and(|other| other != length) || length > MAX_BODY {
                    return Err(Malformed(format!("a Content-Length of {length}")));
                }
                framing.length = Some(length);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                framing.chunked =
                    value.split(',').next_back().is_some_and(|coding| coding.trim() == "chunked");
                if !framing.chunked {
                    return Err(Malformed(format!("a transfer coding {value:?}")));
                }
            } else if field.name.eq_ignore_ascii_case("connection") {
                for option in value.split(',').map(str::trim) {
                    match option {
                        "close" => framing.keep_alive = false,
                        "keep-alive" => framing.keep_alive = true,
                        _ => {}
                    }
                }
            }
        }
        Ok(framing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `text` in pieces of each size, which must not make a difference; then the end of the connection.
    fn parse(method: &str, text: &str) -> Result<Option<Response>, Malformed> {
        let whole = parse_in(method, text, usize::MAX);
        for size in 1..20 {
            assert_eq!(parse_in(method, text, size), whole, "in pieces of {size}: {text:?}");
        }
        whole
    }

    fn parse_in(method: &str, text: &str, size: usize) -> Result<Option<Response>, Malformed> {
        let mut parser = Parser::new(method);
        for piece in text.as_bytes().chunks(size.min(text.len().max(1))) {
            if let Some(response) = parser.push(piece)? {
                return Ok(Some(response));
            }
        }
        Ok(parser.end())
    }

    fn response(status: u16, body: &str, keep_alive: bool) -> Result<Option<Response>, Malformed> {
        Ok(Some(Response { status, body: body.as_bytes().to_vec(), keep_alive }))
    }

    #[test]
    fn bodies_end_as_their_fields_say() {
        let head = "HTTP/1.1 200 OK\r\n";
        assert_eq!(parse("GET", &format!("{head}Content-Length: 3\r\n\r\nabc")), response(200, "abc", true));
        assert_eq!(parse("GET", &format!("{head}content-length: 0\r\n\r\n")), response(200, "", true));
        assert_eq!(parse("GET", &format!("{head}\r\nabc")), response(200, "abc", false));
        let chunked =
            format!("{head}Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n");
        assert_eq!(parse("GET", &chunked), response(200, "abc", true));
        assert_eq!(parse("HEAD", &format!("{head}Content-Length: 3\r\n\r\n")), response(200, "", true));
        assert_eq!(parse("PUT", "HTTP/1.1 204 No Content\r\n\r\n"), response(204, "", true));
        assert_eq!(
            parse("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
            response(304, "", true)
        );
        let interim = format!("HTTP/1.1 100 Continue\r\n\r\n{head}Content-Length: 1\r\n\r\nx");
        assert_eq!(parse("PUT", &interim), response(200, "x", true));
    }

    #[test]
    fn connections_are_kept_as_version_and_field_say() {
        let with = |version: &str, field: &str| {
            let text = format!("HTTP/{version} 200 OK\r\nContent-Length: 1\r\n{field}\r\nx");
            parse("GET", &text).ok().flatten().map(|r| r.keep_alive)
        };
        assert_eq!(with("1.1", ""), Some(true));
        assert_eq!(with("1.1", "Connection: Close\r\n"), Some(false));
        assert_eq!(with("1.0", ""), Some(false));
        assert_eq!(with("1.0", "Connection: x, keep-alive\r\n"), Some(true));
        // Bytes after the response belong to nothing.
        let extra = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz";
        assert_eq!(parse_in("GET", extra, usize::MAX), response(200, "x", false));
    }

    #[test]
    fn what_is_cut_off_or_wrong_is_no_response() {
        for text in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"] {
            assert_eq!(parse("GET", text), Ok(None), "{text:?}");
        }
        let head = "HTTP/1.1 200 OK\r\n";
        for text in [
            "SSH-2.0-OpenSSH\r\n\r\n".to_owned(),
            format!("{head}Content-Length: x\r\n\r\n"),
            format!("{head}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            format!("{head}Content-Length: 99999999999\r\n\r\nab"),
            format!("{head}Transfer-Encoding: gzip\r\n\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
        ] {
            assert!(parse("GET", &text).is_err(), "{text:?}");
        }
        let long = "HTTP/1.1 200 OK\r\nX: ".to_owned() + &"x".repeat(2 * MAX_HEAD);
        assert!(parse_in("GET", &long, 1000).is_err());
    }
}
