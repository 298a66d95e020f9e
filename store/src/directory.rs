//! A directory as a store: for shards on one machine, or on machines that share a file system.
//!
//! Key type: [`Directory`]. An object is a file; it is written under a hidden name, brought to the disk and then renamed, or linked
//! where there must be no other. link(2) fails if the name is taken, on NFS as well.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::place::object;
use crate::{Error, LARGEST};

/// A directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Makes it if it is not there.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        let directory = Directory { path: path.to_path_buf() };
        let made = std::fs::create_dir_all(path);
        made.map_err(|error| Error {
            object: path.display().to_string(),
            ..directory.error("open", "", &error)
        })?;
        Ok(directory)
    }

    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let file = match std::fs::File::open(self.path.join(key)) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(self.error("read", key, &error)),
        };
        let mut bytes = Vec::new();
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.error("read", key, &error))?;
        match bytes.len() as u64 > LARGEST {
            true => Err(self.error(
                "read",
                key,
                &std::io::Error::other(format!("it has more than {LARGEST} bytes")),
            )),
            false => Ok(Some(bytes)),
        }
    }

    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        let (path, temporary) = self.written("write", key, bytes)?;
        let renamed = std::fs::rename(&temporary, &path).and_then(|()| settle(&path));
        renamed.map_err(|error| {
            let _ignored = std::fs::remove_file(&temporary);
            self.error("write", key, &error)
        })
    }

    pub fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, Error> {
        if self.path.join(key).exists() {
            return Ok(false);
        }
        let (path, temporary) = self.written("create", key, bytes)?;
        let linked = std::fs::hard_link(&temporary, &path);
        let _ignored = std::fs::remove_file(&temporary);
        match linked {
            Ok(()) => settle(&path).map(|()| true).map_err(|error| self.error("create", key, &error)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(self.error("create", key, &error)),
        }
    }

    pub fn remove(&self, key: &str) -> Result<(), Error> {
        match std::fs::remove_file(self.path.join(key)) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(self.error("remove", key, &error))
            }
            _ => Ok(()),
        }
    }

    pub fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let (mut keys, mut left) = (Vec::new(), vec![prefix.trim_end_matches('/').to_owned()]);
        while let Some(below) = left.pop() {
            self.look(&below, &mut keys, &mut left)?;
        }
        Ok(keys)
    }

    /// Adds the objects that lie in a directory, and the directories in it.
    fn look(&self, below: &str, keys: &mut Vec<String>, directories: &mut Vec<String>) -> Result<(), Error> {
        let listed = match std::fs::read_dir(self.path.join(below)) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.error("list", below, &error)),
        };
        for entry in listed {
            let entry = entry.map_err(|error| self.error("list", below, &error))?;
            // What is not a name of ours is not an object.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let key = if below.is_empty() { name } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(|error| self.error("list", &key, &error))?;
            if kind.is_dir() {
                directories.push(key);
            } else if kind.is_file() {
                keys.push(key);
            }
        }
        Ok(())
    }

    /// Writes the bytes to the disk under a hidden name beside the object's.
    fn written(&self, operation: &'static str, key: &str, bytes: &[u8]) -> Result<(PathBuf, PathBuf), Error> {
        let path = self.path.join(key);
        let directory = path.parent().unwrap_or(&self.path);
        let write = || {
            std::fs::create_dir_all(directory)?;
            let temporary = directory.join(format!(".{}", crate::token()?));
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            let written = file.write_all(bytes).and_then(|()| file.sync_all());
            if written.is_err() {
                let _ignored = std::fs::remove_file(&temporary);
            }
            written.map(|()| temporary)
        };
        let temporary = write().map_err(|error| self.error(operation, key, &error))?;
        Ok((path, temporary))
    }

    fn error(&self, operation: &'static str, key: &str, error: &std::io::Error) -> Error {
        let help = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "let this user write there, or name another store"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there, or name another store",
            ErrorKind::Unsupported => {
                "the file system has no hard links, which decide between workers; name another store"
            }
            _ => "see whether the directory is there, or name another store",
        };
        Error {
            operation,
            object: object(&self.path.display().to_string(), key),
            why: error.to_string(),
            help: help.to_owned(),
        }
    }
}

/// Brings the name of a file to the disk.
fn settle(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
}
