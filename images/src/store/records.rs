//! Which image a name stands for: small JSON files, each replaced as a whole.

use std::fs;

use serde::{Deserialize, Serialize};

use super::{Store, read_bounded};
use crate::digest::Digest;
use crate::error::Error;

/// Bytes of a record, at most.
const RECORD: u64 = 1 << 20;

/// Where an image came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A registry.
    Registry,
    /// A file or directory, with what tells whether it has changed since.
    File {
        /// Its path.
        path: String,
        /// Size, times and number of the file; of a layout the digest of its index.
        stamp: String,
    },
    /// A Docker or Podman engine of this machine.
    Engine,
    /// A build: its name is a digest of what went into it.
    Build,
}

/// A name, and the image that it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The complete name, or the path of an archive.
    pub reference: String,
    /// Digest of the manifest.
    pub manifest: Digest,
    /// Digest of the index or manifest that the name stood for at its origin, if that was another one.
    pub index: Option<Digest>,
    /// Digest of the configuration, which engines call the image's id.
    pub config: Digest,
    /// Digests of the uncompressed layers, the lowest first.
    pub layers: Vec<Digest>,
    /// Bytes of the layers, uncompressed.
    pub size: u64,
    /// Where it came from.
    pub origin: Origin,
    /// When: seconds since 1970.
    pub stored: u64,
}

impl Store {
    /// What a name stands for.
    ///
    /// # Errors
    /// The record cannot be read, or is damaged.
    pub fn record(&self, name: &str) -> Result<Option<Record>, Error> {
        let path = self.path("images", &Digest::of(name.as_bytes()));
        match read_bounded(&path, RECORD) {
            Ok(bytes) => {
                let damaged = |what: String| {
                    Error::damaged(format!("{} is damaged: {what}; remove it", path.display()))
                };
                let record: Record = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
                if record.reference != name {
                    return Err(damaged(format!("it is about {}", record.reference)));
                }
                Ok(Some(record))
            }
            Err(e) if e.kind() == crate::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All names, sorted. Records that cannot be read are left out: [`Store::verify`] tells of them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let mut records: Vec<Record> = self
            .names("images")?
            .into_iter()
            .filter_map(|digest| read_bounded(&self.path("images", &digest), RECORD).ok())
            .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
            .collect();
        records.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(records)
    }

    /// Lets a name stand for an image whose parts are all there.
    pub(crate) fn set_record(&self, record: &Record) -> Result<(), Error> {
        let path = self.path("images", &Digest::of(record.reference.as_bytes()));
        let bytes = serde_json::to_vec_pretty(record).map_err(|e| Error::damaged(e.to_string()))?;
        self.write(&path, &bytes)
    }

    /// The digests that name the files of a directory of the cache.
    pub(super) fn names(&self, part: &str) -> Result<Vec<Digest>, Error> {
        let dir = self.0.dir.join(part);
        let entries = fs::read_dir(&dir).map_err(|e| Error::io(&dir, &e))?;
        let mut names: Vec<Digest> = entries
            .flatten()
            .filter_map(|entry| format!("sha256:{}", entry.file_name().to_string_lossy()).parse().ok())
            .collect();
        names.sort();
        Ok(names)
    }
}
