//! Files that are whole or not there, and locks that end with their owner.
//!
//! A file that is being written has a temporary name and is locked by its writer (flock(2)): so whoever finds one that nobody holds knows that
//! its writer was killed, and removes it ([`clean`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// How temporary names begin.
pub(crate) const TEMPORARY: &str = ".tmp-";
/// Attempts to write a file whose temporary one is taken away by somebody who cleans at just that moment.
const ATTEMPTS: u32 = 8;

/// Temporary names of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The first bytes of the SHA-256 of parts, hexadecimal.
pub(crate) fn hash(parts: &[&[u8]], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file so that a reader sees all of it or none, whenever this process or the machine ends.
///
/// # Errors
/// The host's; nothing is left behind then.
pub(crate) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match write_once(dir, name, bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS && dir.is_dir() => {}
            written => return written,
        }
    }
}

/// A new file with a temporary name. Processes of several containers may have the same id, and one that was killed has left its names behind:
/// what is there already belongs to somebody else, and the next number is free or belongs to one more.
fn temporary(dir: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{TEMPORARY}{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((path, opened?)),
        }
    }
}

fn write_once(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (temporary, mut file) = temporary(dir)?;
    // A file system without locks: nobody cleans there either.
    let _ignored = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let written = file
        .write_all(bytes)
        // A rename may reach the disk before what it names.
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, dir.join(name)))
        .and_then(|()| sync_directory(dir));
    if written.is_err() {
        // The first error is the one to tell.
        let _ignored = std::fs::remove_file(&temporary);
    }
    written
}

/// Brings names of a directory to the disk.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes what writers have left that were killed.
pub(crate) fn clean(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Somebody else may have done it.
            let _ignored = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Reads a regular file of at most so many bytes. `None`: it is gone, or was never there.
///
/// # Errors
/// The host's, something that is no regular file, and one that is larger.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let absent = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(error),
    };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(io::Error::other("it is not a regular file")),
        Err(error) => return absent(error),
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return absent(error),
    };
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it has more than {most} bytes"))),
        false => Ok(Some(bytes)),
    }
}

/// A lock, held until it is dropped, however its process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// What became of the attempt to take a lock.
#[derive(Debug)]
pub(crate) enum Locking {
    /// It is ours.
    Taken(Lock),
    /// Somebody has it: who, if that is written there.
    Held(Option<String>),
}

/// Takes the lock of this file, which is made, and writes into it who holds it.
///
/// # Errors
/// The host's.
pub(crate) fn lock(path: &Path) -> io::Result<Locking> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            let _ignored = file.take(256).read_to_string(&mut holder);
            let holder = holder.lines().next().unwrap_or_default().trim().to_owned();
            return Ok(Locking::Held((!holder.is_empty()).then_some(holder)));
        }
        Err(error) => return Err(error.into()),
    }
    // Only a help for people: a full disk takes no lock away.
    let _ignored = file.set_len(0).and_then(|()| writeln!(file, "process {}{}", std::process::id(), host()));
    Ok(Locking::Taken(Lock { _file: file }))
}

/// The name of this machine, for a directory that several share.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { String::new() } else { format!(" on {}", name.trim()) }
}

/// The path of a file beside this one that is not there yet: with `.1`, `.2` and so on behind its name.
pub(crate) fn free_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = |number: u32| path.with_file_name(format!("{name}.{number}"));
    (1..u32::MAX).map(numbered).find(|free| std::fs::symlink_metadata(free).is_err()).unwrap_or(numbered(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_another_process_of_this_id_has_left_are_passed_over() {
        let dir = std::env::temp_dir().join(format!("bloodhound-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let id = std::process::id();
        let next = NEXT.load(Ordering::Relaxed);
        for number in next..next + 20 {
            std::fs::write(dir.join(format!("{TEMPORARY}{id}-{number}")), "half").expect("written");
        }
        write_whole(&dir, "whole", b"all of it").expect("written");
        assert_eq!(std::fs::read(dir.join("whole")).expect("there"), b"all of it");
        clean(&dir).expect("tidy");
        let left = std::fs::read_dir(&dir).expect("a directory").count();
        assert_eq!(left, 1, "what nobody holds is removed");
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
