//! Bringing a blob: into a file below `partial` of the cache, from where it was left by an earlier try, until its digest is right.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Server;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, ErrorKind};
use crate::progress::Event;
use crate::store::Store;

/// Times that a download begins again without having come further, at most.
const STANDSTILLS: u32 = 4;
/// Bytes that count as having come further.
const FURTHER: u64 = 256 << 10;
/// Times that a download begins again at all.
const BREAKS: u32 = 200;

impl Server<'_> {
    /// The bytes of a blob, compared with its digest, and the file that they are in.
    pub(super) fn download(&self, store: &Store, blob: &Digest, size: u64) -> Result<(PathBuf, File), Error> {
        let path = store.partial(blob);
        let io = |e: io::Error| Error::io(&path, &e);
        let open = || {
            let options =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
            options.open(&path)
        };
        let mut file = open().map_err(io)?;
        let mut have = file.metadata().map_err(io)?.len();
        if have > size {
            file.set_len(0).map_err(io)?;
            have = 0;
        }
        let resumed = have > 0;
        self.progress.event(Event::Begin { blob: *blob, size: Some(size), have });
        self.fill(&mut file, blob, size, &path)?;
        let Err(error) = verify(&mut file, blob) else { return Ok((path.clone(), file)) };
        // What an earlier process has left may be what is wrong, so without it once more.
        if !resumed {
            let _gone = std::fs::remove_file(&path);
            return Err(error);
        }
        file.set_len(0).map_err(io)?;
        self.progress.event(Event::Begin { blob: *blob, size: Some(size), have: 0 });
        self.fill(&mut file, blob, size, &path)?;
        verify(&mut file, blob).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        Ok((path, file))
    }

    /// Appends to the file until it has all bytes.
    fn fill(&self, file: &mut File, blob: &Digest, size: u64, path: &Path) -> Result<(), Error> {
        let io = |e: io::Error| Error::io(path, &e);
        let (mut standstills, mut breaks) = (0, 0);
        loop {
            let have = file.metadata().map_err(io)?.len();
            if have == size {
                return Ok(());
            }
            let error = match self.part(file, blob, size, have, path) {
                Ok(()) => Error::new(ErrorKind::Network, "the answer ended early"),
                Err(e) if e.kind() != ErrorKind::Network => return Err(e),
                Err(e) => e,
            };
            let now = file.metadata().map_err(io)?.len();
            if now == size {
                return Ok(());
            }
            breaks += 1;
            standstills = if now >= have + FURTHER { 0 } else { standstills + 1 };
            if standstills >= STANDSTILLS || breaks >= BREAKS {
                return Err(error.at(format!("blob {blob}, {now} of {size} bytes")));
            }
            self.progress
                .event(Event::Note(format!("blob {}: {error}, continued at byte {now}", blob.short())));
            std::thread::sleep(self.client.timeouts.backoff * 2_u32.pow(standstills.min(6)));
        }
    }

    /// Asks for what is missing, and appends what comes.
    fn part(&self, file: &mut File, blob: &Digest, size: u64, have: u64, path: &Path) -> Result<(), Error> {
        let headers = if have > 0 { vec![("Range", format!("bytes={have}-"))] } else { Vec::new() };
        let place = format!("blobs/{blob}");
        let response = match self.request("GET", &place, headers, false) {
            // The server does not like the range: from the beginning.
            Err(e) if have > 0 && e.kind() == ErrorKind::Range => {
                file.set_len(0).map_err(|e| Error::io(path, &e))?;
                return Err(Error::new(ErrorKind::Network, "the server cannot continue it"));
            }
            other => other?,
        };
        let continued = response.status == 206
            && response
                .header("content-range")
                .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
        let begin = if continued { have } else { 0 };
        file.set_len(begin).map_err(|e| Error::io(path, &e))?;
        file.seek(SeekFrom::Start(begin)).map_err(|e| Error::io(path, &e))?;
        let (mut body, mut at) = (response.into_body(), begin);
        let mut buffer = vec![0; 128 << 10];
        loop {
            let read = body.read(&mut buffer).map_err(|e| self.network(&e))?;
            if read == 0 {
                return Ok(());
            }
            at += read as u64;
            if at > size {
                file.set_len(0).map_err(|e| Error::io(path, &e))?;
                return Err(Error::damaged(format!(
                    "blob {blob} has more than the {size} bytes that it should have"
                )));
            }
            file.write_all(&buffer[..read]).map_err(|e| Error::io(path, &e))?;
            self.progress.event(Event::Advance { blob: *blob, bytes: read as u64 });
        }
    }
}

/// Compares a file with the digest, and leaves it at its beginning.
fn verify(file: &mut File, blob: &Digest) -> Result<(), Error> {
    let io = |e: io::Error| Error::new(ErrorKind::Io, format!("blob {blob}: {e}"));
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let (mut hasher, mut buffer) = (Hasher::default(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer).map_err(io)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let found = hasher.finish();
    if found == *blob {
        return Ok(());
    }
    Err(Error::damaged(format!(
        "blob {blob} came with digest {found}: the registry or the way to it damages it"
    )))
}
