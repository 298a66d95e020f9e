//! [`EntryFiles`]: the files of a corpus for whoever brings them to another place and back, such as the command with a store that several machines
//! share. Entries are named by their content, so equal names are equal entries.
//!
//! Neighbours: `corpus` (what the files are), `runner/src/corpus/shared.rs`.

use std::path::{Path, PathBuf};

use crate::corpus::{ENTRIES, LARGEST, begin};
pub use crate::corpus::{about, is_of_this_version};
use crate::entry;
use crate::error::Error;
use crate::files;

/// Whether a file of an entry can have this name.
pub fn is_entry(name: &str) -> bool {
    entry::is_name(name)
}

/// The entries of a corpus as files.
#[derive(Clone, Debug)]
pub struct EntryFiles {
    entries: PathBuf,
}

impl EntryFiles {
    /// Of the corpus in a directory, which is made if it is not there.
    ///
    /// # Errors
    /// The host's; a directory that is something else.
    pub fn of(dir: &Path) -> Result<EntryFiles, Error> {
        begin(dir)?;
        Ok(EntryFiles { entries: dir.join(ENTRIES) })
    }

    /// The names of the entries that are there, sorted.
    ///
    /// # Errors
    /// The host's.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let list = || {
            let names = std::fs::read_dir(&self.entries)?;
            names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        let names: std::io::Result<Vec<String>> = list();
        let mut names = names.map_err(|e| Error::host("read", &self.entries, &e))?;
        names.retain(|name| is_entry(name));
        names.sort();
        Ok(names)
    }

    /// The file of an entry; `None` if it is gone.
    ///
    /// # Errors
    /// The host's.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.entries.join(name);
        files::read(&path, LARGEST).map_err(|e| Error::host("read", &path, &e))
    }

    /// Adds the file of an entry. Whether it is one is seen when the corpus is opened.
    ///
    /// # Errors
    /// The host's; a name that no entry has.
    pub fn add(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        if !is_entry(name) {
            return Err(Error::wrong(format!("`{name}` is no name of an entry of a corpus")));
        }
        let path = self.entries.join(name);
        files::write_whole(&self.entries, name, bytes).map_err(|e| Error::host("write the entry", &path, &e))
    }
}
