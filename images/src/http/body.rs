//! Bodies of answers: so many bytes, in chunks, or until the connection ends (RFC 9112, section 6).

use std::io::{self, BufRead, BufReader, Read};

use super::socket::Stream;
use crate::error::shown;

enum Form {
    /// So many bytes are left.
    Length(u64),
    /// So many bytes are left of the present chunk; before the first there is no line end to be read.
    Chunked {
        left: u64,
        first: bool,
    },
    UntilClosed,
    Ended,
}

pub(crate) struct Body {
    reader: BufReader<Stream>,
    form: Form,
}

impl Body {
    pub(super) fn new(
        reader: BufReader<Stream>,
        headers: &[(String, String)],
        empty: bool,
    ) -> io::Result<Body> {
        let all =
            |name: &'static str| headers.iter().filter(move |(key, _)| key == name).map(|(_, value)| value);
        let form = if empty {
            Form::Ended
        } else if let Some(encoding) = all("transfer-encoding").next() {
            if !encoding.eq_ignore_ascii_case("chunked") {
                return Err(io::Error::other(format!(
                    "the answer is encoded as {}",
                    shown(encoding.as_bytes())
                )));
            }
            Form::Chunked { left: 0, first: true }
        } else if let Some(length) = all("content-length").next() {
            // Two different lengths mean that somebody on the way understands the answer otherwise.
            if all("content-length").any(|other| other != length) {
                return Err(io::Error::other("the answer has two lengths"));
            }
            let length = length.parse().map_err(|_| {
                io::Error::other(format!("{} is no length of an answer", shown(length.as_bytes())))
            })?;
            Form::Length(length)
        } else {
            Form::UntilClosed
        };
        Ok(Body { reader, form })
    }

    fn some(&mut self, most: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
        match self.reader.read(&mut buffer[..most])? {
            0 if most > 0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended in the middle of the answer",
            )),
            read => Ok(read as u64),
        }
    }

    /// The size of the next chunk.
    fn chunk(&mut self, first: bool) -> io::Result<u64> {
        if !first && !self.line()?.is_empty() {
            return Err(io::Error::other("a chunk of the answer is longer than it says"));
        }
        let line = self.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let wrong = || io::Error::other(format!("{} is no size of a chunk", shown(line.as_bytes())));
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let size = u64::from_str_radix(digits, 16).map_err(|_| wrong())?;
        if size == 0 {
            // Headers may follow, which mean nothing to anybody here.
            for _ in 0..100 {
                if self.line()?.is_empty() {
                    return Ok(0);
                }
            }
            return Err(io::Error::other("the answer has too many headers at its end"));
        }
        Ok(size)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.reader).take(4096).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).trim_end_matches('\r').to_owned()),
            None => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended in a chunk of the answer",
            )),
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        match self.form {
            Form::Ended | Form::Length(0) => Ok(0),
            Form::UntilClosed => self.reader.read(buffer),
            Form::Length(left) => {
                let read = self.some(left, buffer)?;
                self.form = Form::Length(left - read);
                Ok(read as usize)
            }
            Form::Chunked { left: 0, first } => {
                let left = self.chunk(first)?;
                self.form = if left == 0 { Form::Ended } else { Form::Chunked { left, first: false } };
                self.read(buffer)
            }
            Form::Chunked { left, .. } => {
                let read = self.some(left, buffer)?;
                self.form = Form::Chunked { left: left - read, first: false };
                Ok(read as usize)
            }
        }
    }
}
