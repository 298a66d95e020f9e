//! [`Error`]: why a corpus cannot be used or written, for people.

use std::fmt;
use std::io;
use std::path::Path;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The host refuses: no permission, no room, a file system that is read-only.
    Host,
    /// The directory is not what it was taken for, or is one of another version.
    Wrong,
    /// Another process uses it.
    InUse,
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Whose fault it is.
    pub kind: ErrorKind,
    /// What is wrong and what to do, with the path.
    pub text: String,
}

impl Error {
    pub(crate) fn wrong(text: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Wrong, text: text.into() }
    }

    pub(crate) fn in_use(text: impl Into<String>) -> Error {
        Error { kind: ErrorKind::InUse, text: text.into() }
    }

    /// The host refuses to read or write something.
    pub(crate) fn host(what: &str, path: &Path, error: &io::Error) -> Error {
        let help = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                "\nhelp: make room; what was kept so far is still there"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "\nhelp: the corpus must be a directory that this user can write to"
            }
            io::ErrorKind::NotADirectory => "\nhelp: give a directory, which is made if it is not there",
            _ => "",
        };
        Error {
            kind: ErrorKind::Host,
            text: format!("the corpus cannot {what} {}: {error}{help}", path.display()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
