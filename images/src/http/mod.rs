//! A small HTTP/1.1 client: one request per connection, over TCP, TLS or a Unix socket. Every step has a bound: time to connect, time
//! without a byte, bytes per time, and the size of headers. Redirects are not followed here but by who knows which credentials
//! may go where (`registry`).
//!
//! `url` has addresses, `socket` connections with their time limits, `tls` certificates, `body` the forms of a body, `base64` what
//! basic authentication needs.

pub(crate) mod base64;
mod body;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod url;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, shown};
use body::Body;
use socket::{Socket, Stream};
use url::{Scheme, Url};

/// Bytes of a status line and all headers, at most.
const HEADERS: u64 = 64 << 10;
/// Lines of headers, at most.
const LINES: usize = 200;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection is made, with TLS.
    pub connect: Duration,
    /// Without a single byte.
    pub idle: Duration,
    /// For an answer that is a document: a manifest, a token.
    pub document: Duration,
    /// Over which the rate of a download is taken.
    pub window: Duration,
    /// Bytes that must come in such a window.
    pub window_bytes: u64,
    /// Before the second try of a request; doubled for each further one.
    pub backoff: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(20),
            idle: Duration::from_secs(30),
            document: Duration::from_secs(60),
            window: Duration::from_secs(60),
            window_bytes: 64 << 10,
            backoff: Duration::from_millis(500),
        }
    }
}

/// What is asked of a server.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a Url,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the answer is a document, which must be there within `Timeouts::document`.
    pub(crate) document: bool,
}

/// Status, headers and body of an answer.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

impl Response {
    /// The first header of this name, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All headers of this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The whole body, which has at most so many bytes.
    pub(crate) fn bytes(mut self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.body).take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::other(format!("the answer has more than {most} bytes")));
        }
        Ok(bytes)
    }

    /// The body as it comes.
    pub(crate) fn into_body(self) -> impl Read {
        self.body
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Another try may succeed.
    pub(crate) transient: bool,
    /// It took too long: a second try may be as long, a third is not made.
    pub(crate) slow: bool,
    /// The server did not speak TLS, or its certificate was refused.
    pub(crate) tls: bool,
}

impl Failed {
    fn new(text: String, transient: bool) -> Failed {
        Failed { error: Error::new(ErrorKind::Network, text), transient, slow: false, tls: false }
    }
}

/// Makes requests.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) timeouts: Timeouts,
    pub(crate) tls: Arc<tls::Certificates>,
    pub(crate) proxies: Arc<socket::Proxies>,
}

impl Client {
    /// Sends a request to an address, and reads the answer up to its body.
    pub(crate) fn send(&self, request: &Request<'_>, verify: bool) -> Result<Response, Failed> {
        let url = request.url;
        let proxy = self.proxies.of(url);
        let tcp = Socket::connect(url, proxy.as_ref(), &self.timeouts)?;
        let stream = match url.scheme {
            Scheme::Http => Stream::Plain(tcp),
            Scheme::Https => self.tls.wrap(tcp, url, verify)?,
        };
        // A proxy is told the whole address, unless it is only a tunnel.
        let whole = proxy.is_some() && url.scheme == Scheme::Http;
        exchange(stream, request, whole, &self.timeouts).map_err(|e| Failed {
            slow: e.kind() == io::ErrorKind::TimedOut,
            ..Failed::new(format!("{}: {e}", url.place()), true)
        })
    }
}

/// The answer to a request to a server behind a Unix socket. With `upload` its body is read from there, so many bytes of it, instead of
/// from the request.
pub(crate) fn over_unix(
    path: &std::path::Path,
    request: &Request<'_>,
    upload: Option<Upload<'_>>,
    timeouts: &Timeouts,
) -> Result<Response, Failed> {
    let failed = |e: io::Error| Failed {
        slow: e.kind() == io::ErrorKind::TimedOut,
        ..Failed::new(format!("{}: {e}", path.display()), false)
    };
    let socket = Socket::unix(path, timeouts).map_err(failed)?;
    send(Stream::Plain(socket), request, upload, false, timeouts).map_err(failed)
}

/// A body that is not in memory, with its length.
pub(crate) type Upload<'a> = (&'a mut dyn Read, u64);

fn exchange(stream: Stream, request: &Request<'_>, whole: bool, timeouts: &Timeouts) -> io::Result<Response> {
    send(stream, request, None, whole, timeouts)
}

fn send(
    mut stream: Stream,
    request: &Request<'_>,
    upload: Option<Upload<'_>>,
    whole: bool,
    timeouts: &Timeouts,
) -> io::Result<Response> {
    stream.socket().bound(Some(timeouts.document));
    let url = request.url;
    let target = if whole { format!("{}{}", url.origin(), url.path) } else { url.path.clone() };
    let mut head = format!("{} {target} HTTP/1.1\r\nHost: {}\r\n", request.method, url.authority());
    for (name, value) in &request.headers {
        // A line break would begin another header.
        if value.contains(['\r', '\n', '\0']) {
            return Err(io::Error::other(format!("{name} has a line break in it")));
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = upload.as_ref().map_or(request.body.len() as u64, |(_, length)| *length);
    if length > 0 || request.method == "POST" {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    let agent = concat!("bloodhound/", env!("CARGO_PKG_VERSION"));
    head.push_str(&format!("User-Agent: {agent}\r\nConnection: close\r\n\r\n"));
    stream.write_all(head.as_bytes())?;
    match upload {
        None => stream.write_all(&request.body)?,
        Some((body, length)) => {
            match io::copy(&mut body.take(length), &mut stream) {
                Ok(written) if written == length => {}
                Ok(written) => {
                    let text = format!("the body has {written} bytes and not {length}");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                // Who does not want the rest may have said why.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
                Err(e) => return Err(e),
            }
            // The time that an answer may take begins when the question has been asked.
            stream.socket().bound(Some(timeouts.document));
        }
    }
    stream.flush()?;
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    let (mut status, mut headers) = head_of(&mut reader)?;
    // Answers before the answer, such as 103 (Early Hints).
    for _ in 0..4 {
        if !(100..200).contains(&status) || status == 101 {
            break;
        }
        (status, headers) = head_of(&mut reader)?;
    }
    if !request.document {
        reader.get_mut().socket().bound(None);
    }
    let empty = request.method == "HEAD" || status == 204 || status == 304;
    let body = Body::new(reader, &headers, empty)?;
    Ok(Response { status, headers, body })
}

/// Status and headers of an answer.
fn head_of(reader: &mut impl BufRead) -> io::Result<(u16, Vec<(String, String)>)> {
    let mut left = HEADERS;
    let mut line = || -> io::Result<String> {
        let mut line = Vec::new();
        reader.take(left).read_until(b'\n', &mut line)?;
        left -= line.len() as u64;
        if !line.ends_with(b"\n") {
            let why = if left == 0 {
                "the headers have more than 64 KiB"
            } else {
                "the connection ended in its headers"
            };
            return Err(io::Error::other(why));
        }
        while line.ends_with(b"\n") || line.ends_with(b"\r") {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().and_then(|word| word.parse().ok()).filter(|status| (100..600).contains(status));
    let (true, Some(status)) = (version.starts_with("HTTP/1."), status) else {
        return Err(io::Error::other(format!("it does not speak HTTP: {}", shown(first.as_bytes()))));
    };
    let mut headers = Vec::new();
    loop {
        let line = line()?;
        if line.is_empty() {
            return Ok((status, headers));
        }
        if headers.len() >= LINES {
            return Err(io::Error::other(format!("the answer has more than {LINES} headers")));
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(io::Error::other(format!("{} is no header", shown(line.as_bytes()))));
        };
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
}
