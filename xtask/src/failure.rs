//! What ends a task early.
//!
//! Key type: [`Failure`], which tells what the machine lacks from what went wrong, because CI may skip a task for the first
//! and never for the second.

use std::fmt;
use std::path::Path;

/// Why a task did not come to its end. The text says what to do.
#[derive(Debug)]
pub enum Failure {
    /// Something that the task needs cannot be had on this machine: a package, a download.
    Missing(String),
    /// The task went wrong.
    Broken(String),
}

impl Failure {
    /// 5, which stands for the environment in the exit codes of `bloodhound` as well, or 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Missing(_) => 5,
            Failure::Broken(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Missing(text) | Failure::Broken(text) => f.write_str(text),
        }
    }
}

/// Makes a [`Failure::Broken`] of an error of the host, with the path that it is about.
pub fn broken_at(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::Broken(format!("{}: {error}", path.display()))
}
