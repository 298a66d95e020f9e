//! The few things that [`crate::storage`] asks of a file system, each as the system call behind it does it: a write may
//! write less than it was given, and nothing is on the disk before it is synced. Tests put a disk with faults here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

/// A directory of small files.
pub trait Disk {
    /// The content of a file; `None` if there is none of that name.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Makes an empty file, in place of an old one of that name.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Appends to a file made by [`Disk::create`], in one write(2): returns how many of the bytes were written.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize>;
    /// fdatasync(2) of a file made by [`Disk::create`].
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// rename(2); an open file goes on under its new name.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// fsync(2) of the directory.
    fn sync_directory(&mut self) -> io::Result<()>;
}

/// A real directory. The files that it has created stay open.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    open: Vec<(String, File)>,
}

impl Directory {
    /// Opens a directory, after it has made it if need be.
    pub fn open(path: PathBuf) -> io::Result<Directory> {
        if !path.is_dir() {
            fs::create_dir_all(&path)?;
            // A file is found only if every directory above it is.
            for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Directory { path, open: Vec::new() })
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let found = self.open.iter_mut().find(|(open, _)| open == name);
        found.map(|(_, file)| file).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }
}

impl Disk for Directory {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        self.open.retain(|(open, _)| open != name);
        self.open.push((name.to_owned(), file));
        Ok(())
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        self.file(name)?.write(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))?;
        self.open.retain(|(open, _)| open != to);
        if let Some((open, _)) = self.open.iter_mut().find(|(open, _)| open == from) {
            to.clone_into(open);
        }
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}
