//! The one error of this crate: a sentence that names the place and what is wrong, and a kind for callers which act on it.

use std::fmt;
use std::path::Path;

/// What sort of failure an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such image, tag, file or layer.
    NotFound,
    /// The bytes are not what their format or digest says.
    Damaged,
    /// Larger than a limit of [`Limits`](crate::Limits) allows; the text names the variable that raises it.
    Limit,
    /// Understood, and not supported or not allowed.
    Refused,
    /// Credentials are missing or were not accepted.
    Denied,
    /// A registry or engine could not be reached, or did not answer as its protocol says.
    Network,
    /// A registry cannot go on where an earlier download ended (status 416).
    Range,
    /// A file of the host could not be read or written.
    Io,
    /// What was asked for would need the network, which was forbidden.
    Offline,
    /// The request itself makes no sense: a reference that is none.
    Usage,
}

/// A failure, told to a user as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    pub(crate) fn damaged(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, text)
    }

    pub(crate) fn refused(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Refused, text)
    }

    pub(crate) fn limit(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Limit, text)
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, text)
    }

    /// An error of the host's files at this path.
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("{}: {error}", path.display()))
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error with the place where it occurred before it.
    pub fn at(self, place: impl fmt::Display) -> Error {
        Error { kind: self.kind, text: format!("{place}: {}", self.text) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Bytes of a name for a message: printable ones as they are, others escaped, long ones cut.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 200;
    let cut = bytes.len() > MOST;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)])
        .chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect();
    if cut { format!("\"{text}...\" ({} bytes)", bytes.len()) } else { format!("\"{text}\"") }
}
