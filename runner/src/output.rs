//! Writing: files that are whole or not there, and text for people or machines on the standard streams.
//!
//! Functions: [`write_file`] for every file that a command leaves behind, [`print`] and [`eprint`] for the streams,
//! [`colour`] for whether to use colours. Knows nothing of what is written.
//!
//! The macros `print!`, `println!`, `eprint!` and `eprintln!` are these functions here: those of the standard library panic where
//! a stream is closed, and a campaign does not end because nobody listens.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exec::closed_at_start;
use crate::{exit, redact};

macro_rules! print {
    ($($part:tt)*) => { $crate::output::print(&::std::format!($($part)*)) };
}
macro_rules! println {
    ($($part:tt)*) => { $crate::output::print(&(::std::format!($($part)*) + "\n")) };
}
#[allow(unused_macros)] // as long as nobody prints half a line
macro_rules! eprint {
    ($($part:tt)*) => { $crate::output::eprint(&::std::format!($($part)*)) };
}
macro_rules! eprintln {
    ($($part:tt)*) => { $crate::output::eprint(&(::std::format!($($part)*) + "\n")) };
}

/// How a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people
    Human,
    /// JSON on standard output
    Json,
}

/// Temporary names of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Writes a file so that a reader sees the old content or the whole new one: under a temporary name beside it,
/// then renamed over it (rename(2): "there is no point at which another process attempting to access newpath will
/// find it missing"). Directories above it are created. A symbolic link is replaced, not followed.
///
/// # Errors
/// The host's, with the path in the text; nothing is left behind then.
pub fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(directory).map_err(named)?;
    let temporary = temporary(directory, path).map_err(named)?;
    let written = create(&temporary, &redact::file(path, bytes.as_ref()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // Nothing can be done if this fails as well; the first error is the one to tell.
        let _ignored = std::fs::remove_file(&temporary);
    }
    written.map_err(named)
}

/// A name beside `path` that no other process or thread uses.
pub(crate) fn temporary(directory: &Path, path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    Ok(directory.join(hidden))
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // create_new: what lies there (a link, say) is not ours to write through.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    // A rename may reach the disk before what it names.
    file.sync_all()
}

/// Why standard output did not take everything, if so.
static UNWRITTEN: Mutex<Option<String>> = Mutex::new(None);

/// Writes to standard output. That it failed (a full disk, a reader that went away) does not stop the command, which may have
/// more to do than to print: [`finish`] tells it at the end.
pub fn print(text: &str) {
    let text: &str = &redact::text(text);
    write_out(text);
}

fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    let written = if closed_at_start(libc::STDOUT_FILENO) {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    } else {
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
    if let Err(error) = written {
        let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        unwritten.get_or_insert_with(|| error.to_string());
    }
}

/// The exit code of a command that would end with `code`: not 0 if its answer could not be written, which is said.
pub fn finish(code: u8) -> u8 {
    let unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(error) = unwritten else { return code };
    eprint(&format!("bloodhound: writing to standard output: {error}\n"));
    if code == exit::PASS { exit::ENVIRONMENT } else { code }
}

/// A line at the bottom of the terminal that says how much of `total` is done, after a template of indicatif; `None` where standard error
/// is no terminal that can draw one.
pub fn progress_bar(total: u64, template: &str) -> Option<ProgressBar> {
    let terminal = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
    terminal.then(|| {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(template).expect("a template without mistakes");
        bar.set_style(style.progress_chars("## "));
        bar
    })
}

/// Writes to standard error; see [`print`].
pub fn eprint(text: &str) {
    let _ignored = io::stderr().lock().write_all(redact::text(text).as_bytes());
}

/// Prints a JSON value, one line, to standard output.
pub fn print_json(value: &serde_json::Value) {
    write_out(&redact::json(&format!("{value}\n")));
}

/// Whether text on standard error may be coloured.
pub fn colour() -> bool {
    let set = |name: &str| std::env::var_os(name);
    colour_for(set("NO_COLOR"), set("CLICOLOR_FORCE"), set("TERM"), io::stderr().is_terminal())
}

/// <https://no-color.org>: "command-line software which adds ANSI color to its output by default should check for a
/// NO_COLOR environment variable that, when present and not an empty string, prevents the addition of ANSI color".
fn colour_for(
    no_color: Option<OsString>,
    force: Option<OsString>,
    term: Option<OsString>,
    terminal: bool,
) -> bool {
    if no_color.is_some_and(|v| !v.is_empty()) {
        return false;
    }
    if force.is_some_and(|v| !v.is_empty() && v != "0") {
        return true;
    }
    terminal && term.is_none_or(|v| v != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bloodhound-output-{}-{name}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&path);
        path
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn writes_whole_files_and_leaves_nothing_else() {
        let directory = scratch("whole");
        let path = directory.join("a/b/report.xml");
        write_file(&path, "one").unwrap();
        write_file(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(names(&directory.join("a/b")), ["report.xml"]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn replaces_links_instead_of_following_them() {
        let directory = scratch("links");
        std::fs::create_dir_all(&directory).unwrap();
        let (target, link) = (directory.join("target"), directory.join("link"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_file(&link, "new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        assert_eq!(std::fs::read(&link).unwrap(), b"new");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn errors_name_the_path_and_clean_up() {
        let directory = scratch("errors");
        let path = directory.join("file");
        std::fs::create_dir_all(&path).unwrap();
        let error = write_file(&path, "x").unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert_eq!(names(&directory), ["file"]);
        assert!(write_file(&path.join(".."), "x").is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn colours_obey_no_color_first() {
        let os = |s: &str| Some(OsString::from(s));
        assert!(colour_for(None, None, os("xterm"), true));
        assert!(!colour_for(None, None, os("xterm"), false));
        assert!(!colour_for(None, None, os("dumb"), true));
        assert!(!colour_for(os("1"), os("1"), os("xterm"), true));
        assert!(colour_for(os(""), os("1"), None, false));
        assert!(!colour_for(None, os("0"), None, false));
    }
}
