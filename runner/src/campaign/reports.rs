//! Where a campaign writes: its directory and its report files, made, tried and locked before anything is run.
//!
//! Key type: [`Reports`]. A lock is an flock(2), which ends with its owner however that ends. Until the campaign is over the
//! report files say that it is not: so they are never those of an earlier one, and valid if this one is killed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::totals::Totals;
use super::verdict::Judgement;
use crate::junit::{self, Case, Status, Suite};
use crate::output::write_file;
use crate::session::Failure;
use crate::{finding, redact};

/// The file that keeps room for the reports.
const RESERVE: &str = ".bloodhound-reserve";
/// Its size: enough for a report with some findings.
const ROOM: usize = 256 << 10;
/// Earlier findings that are named.
const NAMED: usize = 5;

/// The directory and the report files of a campaign, locked.
#[derive(Debug)]
pub struct Reports {
    /// The directory.
    pub dir: PathBuf,
    /// The report files.
    files: Vec<PathBuf>,
    /// What holds the locks.
    _locks: Vec<File>,
}

impl Reports {
    /// Makes the directory and the files, tries to write, and locks them.
    ///
    /// # Errors
    /// What the host says; another campaign that uses one of them.
    pub fn prepare(dir: &Path, junit: Option<&Path>, config: &Path) -> Result<Reports, Failure> {
        let lock = lock(dir)?;
        let findings = finding::directory(dir);
        let mut reports = Reports { dir: dir.to_path_buf(), files: Vec::new(), _locks: vec![lock] };
        let reserve = dir.join(RESERVE);
        // Fails where the directory cannot be written to, and where the disk is full already.
        let written = File::create(&reserve).and_then(|mut f| f.write_all(&vec![0; ROOM]).and(f.sync_all()));
        written.map_err(|e| {
            let _ignored = std::fs::remove_file(&reserve);
            cannot(&reserve, &e)
        })?;
        finding::clean(dir).map_err(|e| cannot(&findings, &e))?;
        remove_unfinished(dir);
        let begun = junit::render(&not_ended(config)).map_err(Failure::environment)?;
        for path in std::iter::once(dir.join("junit.xml")).chain(junit.map(Path::to_path_buf)) {
            if reports.files.iter().any(|other| same(other, &path)) {
                continue;
            }
            reports._locks.push(claim(&path, &begun)?);
            reports.files.push(path);
        }
        Ok(reports)
    }

    /// Names the findings of earlier campaigns in the directory, if there are any.
    pub fn earlier(&self) -> Option<String> {
        let names = finding::names(&self.dir);
        if names.is_empty() {
            return None;
        }
        let more = names.len().saturating_sub(NAMED);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if names.len() == 1 { "finding" } else { "findings" };
        Some(format!(
            "{} has {} {noun} of earlier campaigns, which stay: {}{rest}",
            self.dir.display(),
            names.len(),
            names[..names.len() - more].join(", ")
        ))
    }

    /// Writes all reports.
    ///
    /// # Errors
    /// What the host says of the first that it refuses; the others are written.
    pub fn write(&self, xml: &str) -> Result<(), String> {
        // The room that was kept; at a second attempt it is gone.
        let _ignored = std::fs::remove_file(self.dir.join(RESERVE));
        let mut result = Ok(());
        for path in &self.files {
            if let Err(e) = write_file(path, xml) {
                result = result.and(Err(format!("writing a report: {e}")));
            }
        }
        result
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let _ignored = std::fs::remove_file(self.dir.join(RESERVE));
    }
}

/// Puts a [`refusal`] into report files that no campaign uses: those of an earlier one would speak for this one.
pub fn refused(files: impl Iterator<Item = PathBuf>, refusal: Result<String, String>) {
    // The failure that is told is the one that is there already; a file that cannot be replaced stays as it is.
    let _ignored = refusal.map(|xml| files.for_each(|path| drop(claim(&path, &xml))));
}

/// The report that says why nothing is run, or joined.
///
/// # Errors
/// For the user.
pub fn refusal(config: &str, wanted: u64, failure: &Failure) -> Result<String, String> {
    let mut totals = Totals::new(0, wanted, 0);
    totals.trouble(failure.code, failure.text.clone());
    junit::render(&Judgement::of(&[], &totals).suite(config, Vec::new()))
}

/// Removes reports that a killed campaign had begun to write: the lock says that nobody writes them.
fn remove_unfinished(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".junit.xml.") && name.ends_with(".tmp") {
            // One that stays is in nobody's way.
            let _ignored = std::fs::remove_file(entry.path());
        }
    }
}

/// What a report says until the campaign is over.
fn not_ended(config: &Path) -> Suite {
    let message = "the campaign has not ended, or was killed";
    let status = Status::Error { kind: "not-ended".into(), message: message.into(), text: message.into() };
    let name = config.display().to_string();
    let (case, kind) = ("seeds".to_owned(), "campaign".to_owned());
    let case = Case { name: case, kind, file: None, line: None, status, facts: Vec::new() };
    Suite { name, facts: Vec::new(), time: None, cases: vec![case] }
}

/// A report file: not one that another campaign uses. It gets `text`; what is returned holds its lock.
fn claim(path: &Path, text: &str) -> Result<File, Failure> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(m) if m.is_file() => Some(m),
        // Is replaced, not followed.
        Ok(m) if m.is_symlink() => None,
        Ok(_) => return Err(cannot(path, &io::Error::other("it is not a regular file"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(cannot(path, &e)),
    };
    // Held until the new file, which is locked from the beginning, has taken its place.
    let _old = there.map(|_| File::open(path).map_err(|e| cannot(path, &e))).transpose()?;
    if let Some(old) = &_old {
        locked(old, path)?;
    }
    let beside = path.with_file_name(format!(
        ".{}.{}.tmp",
        path.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let directory = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(directory).and_then(|()| {
        let mut file = File::create(&beside)?;
        file.write_all(redact::text(text).as_bytes())?;
        file.sync_all()?;
        Ok(file)
    });
    let renamed = written.and_then(|file| {
        // SAFETY: the descriptor is open; nobody else knows the file, so this cannot wait.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        std::fs::rename(&beside, path).map(|()| file)
    });
    renamed.map_err(|e| {
        let _ignored = std::fs::remove_file(&beside);
        cannot(path, &e)
    })
}

/// Makes a directory with room for findings and locks it, until what is returned is dropped.
///
/// # Errors
/// What the host says; another command that writes into it.
pub fn lock(dir: &Path) -> Result<File, Failure> {
    let findings = finding::directory(dir);
    std::fs::create_dir_all(&findings).map_err(|e| cannot(&findings, &e))?;
    let lock = File::open(dir).map_err(|e| cannot(dir, &e))?;
    locked(&lock, dir)?;
    Ok(lock)
}

/// Takes the lock of a file or a directory.
fn locked(file: &File, path: &Path) -> Result<(), Failure> {
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EWOULDBLOCK) {
        // A file system without locks: nobody else has one either.
        return Ok(());
    }
    let who = owner(file).map_or_else(String::new, |pid| format!(" (process {pid})"));
    Err(Failure::environment(format!(
        "{} is in use by another `bloodhound test`{who}\nhelp: wait for it, or give this one another place with --out and --junit",
        path.display()
    )))
}

/// The process that holds the lock, where the host tells (proc(5), /proc/locks).
fn owner(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder(&locks, inode)
}

/// `1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF`. The device is left out: some file systems tell another there.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { return None };
        let found = file.rsplit(':').next()?.parse() == Ok(inode);
        // Of a process in another namespace it tells 0 or less.
        pid.parse().ok().filter(|pid| found && *pid > 0)
    })
}

/// Whether two paths name one file that is, or is to be, in a directory that is there.
fn same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let directory = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
        Some((directory.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    a == b || place(a).is_some_and(|a| Some(a) == place(b))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::environment(format!("cannot write to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("bloodhound-reports-{}-{name}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_directory_and_a_report_have_one_user() {
        let dir = scratch("one-user");
        let config = Path::new("bloodhound.yaml");
        let junit = dir.join("elsewhere/report.xml");
        let first = Reports::prepare(&dir.join("a"), Some(&junit), config).expect("it is free");
        let text = std::fs::read_to_string(&junit).expect("a report");
        assert!(text.contains("<error") && text.contains("has not ended"), "{text}");
        for (out, junit) in [("a", None), ("b", Some(&*junit)), ("c", Some(&*dir.join("a/junit.xml")))] {
            let refused = Reports::prepare(&dir.join(out), junit, config).expect_err("it is in use");
            assert_eq!(refused.code, crate::exit::ENVIRONMENT);
            let name = junit.map_or_else(|| dir.join("a"), Path::to_path_buf);
            assert!(
                refused.text.starts_with(&format!("{} is in use by", name.display())),
                "{}",
                refused.text
            );
            let pid = format!("(process {})", std::process::id());
            assert!(refused.text.contains(&pid) || !Path::new("/proc/locks").exists(), "{}", refused.text);
        }
        first.write("<testsuites/>").expect("written");
        assert_eq!(std::fs::read_to_string(&junit).expect("a report"), "<testsuites/>");
        drop(first);
        let own = dir.join("a/../a/junit.xml");
        let again = Reports::prepare(&dir.join("a"), Some(&own), config).expect("it is free again");
        assert_eq!(again.files.len(), 1, "the same file under another name");
        drop(again);
        std::fs::write(dir.join("a/.junit.xml.1.tmp"), "half").expect("a file");
        drop(Reports::prepare(&dir.join("a"), None, config).expect("it is free"));
        let left = std::fs::read_dir(dir.join("a")).expect("the directory").flatten();
        let mut left: Vec<_> = left.map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["findings", "junit.xml"]);
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn what_cannot_be_written_is_said_before_anything_is_run() {
        let dir = scratch("refused");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("file"), "").expect("a file");
        let config = Path::new("bloodhound.yaml");
        let prepare =
            |out: &Path, junit: Option<&Path>| Reports::prepare(out, junit, config).expect_err("refused");
        for refused in [
            prepare(&dir.join("file"), None),
            prepare(&dir.join("file/below"), None),
            prepare(&dir.join("out"), Some(&dir.join("file/below.xml"))),
            prepare(&dir.join("out"), Some(&dir)),
            prepare(Path::new("/proc/nowhere"), None),
        ] {
            assert_eq!(refused.code, crate::exit::ENVIRONMENT);
            assert!(refused.text.starts_with("cannot write to /"), "{}", refused.text);
        }
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn the_host_names_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1a:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 708 08:01:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE -1 08:01:43 0 EOF\n";
        assert_eq!((holder(locks, 42), holder(locks, 43), holder(locks, 44)), (Some(708), None, None));
    }
}
