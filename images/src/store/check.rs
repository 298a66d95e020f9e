//! Removing what nothing refers to, and examining everything that is there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};

use super::{Record, Store};
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::layer::{Index, write};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names.
    pub images: u64,
    /// Layers.
    pub layers: u64,
    /// Bytes of the disk that they took.
    pub bytes: u64,
}

impl Store {
    /// Removes a name, and all that only its image needed. False if there is no such name.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove(&self, name: &str) -> Result<Option<Removed>, Error> {
        let _alone = self.exclusive()?;
        let path = self.path("images", &Digest::of(name.as_bytes()));
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(&path, &e)),
        }
        let mut removed = self.sweep(false)?;
        removed.images = 1;
        Ok(Some(removed))
    }

    /// Removes what no name refers to, and what has come of blobs that are not complete; names as well of which `goes` says so.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn prune(&self, goes: &dyn Fn(&Record) -> bool) -> Result<Removed, Error> {
        let _alone = self.exclusive()?;
        let mut images = 0;
        for record in self.records()?.iter().filter(|record| goes(record)) {
            let path = self.path("images", &Digest::of(record.reference.as_bytes()));
            fs::remove_file(&path).map_err(|e| Error::io(&path, &e))?;
            images += 1;
        }
        let removed = self.sweep(true)?;
        Ok(Removed { images, ..removed })
    }

    /// Removes all blobs and layers that no record refers to.
    fn sweep(&self, partial: bool) -> Result<Removed, Error> {
        self.clear_temporary();
        let records = self.records()?;
        let blobs: BTreeSet<Digest> = records
            .iter()
            .flat_map(|record| [Some(record.manifest), Some(record.config), record.index])
            .flatten()
            .collect();
        let layers: BTreeSet<Digest> = records.iter().flat_map(|record| record.layers.clone()).collect();
        let mut removed = Removed::default();
        for digest in self.names("blobs")?.iter().filter(|digest| !blobs.contains(digest)) {
            removed.bytes += self.discard(&self.path("blobs", digest))?;
        }
        for digest in self.names("layers")?.iter().filter(|digest| !layers.contains(digest)) {
            let path = self.path("layers", digest);
            removed.bytes += disk(&path.join("archive")) + disk(&path.join("index"));
            // The archive last: a layer without its archive is none, one without its index is.
            let _gone = fs::remove_file(path.join("archive"));
            fs::remove_dir_all(&path).map_err(|e| Error::io(&path, &e))?;
            removed.layers += 1;
        }
        if partial {
            for digest in self.names("partial")? {
                removed.bytes += self.discard(&self.path("partial", &digest))?;
            }
            for digest in self.names("locks")? {
                self.discard(&self.path("locks", &digest))?;
            }
        }
        Ok(removed)
    }

    fn discard(&self, path: &std::path::Path) -> Result<u64, Error> {
        let bytes = disk(path);
        fs::remove_file(path).map_err(|e| Error::io(path, &e))?;
        Ok(bytes)
    }

    /// Examines everything: each blob and layer has the digest that it is named by, each index is that of its archive, each record
    /// refers to what is there. Returns what is wrong.
    ///
    /// # Errors
    /// A directory of the cache cannot be read.
    pub fn verify(&self) -> Result<Vec<String>, Error> {
        let _shared = self.shared()?;
        let mut wrong = Vec::new();
        for digest in self.names("blobs")? {
            wrong.extend(self.blob(&digest).err().map(|e| e.to_string()));
        }
        for digest in self.names("layers")? {
            wrong.extend(self.verify_layer(&digest).err().map(|e| e.to_string()));
        }
        for name in self.names("images")? {
            wrong.extend(self.verify_record(&name).err().map(|e| e.to_string()));
        }
        Ok(wrong)
    }

    fn verify_layer(&self, digest: &Digest) -> Result<(), Error> {
        let path = self.path("layers", digest);
        let archive = path.join("archive");
        let io = |e: io::Error| Error::io(&archive, &e);
        let mut file = File::open(&archive).map_err(io)?;
        let (mut hasher, mut buffer) = (Hasher::default(), vec![0; 256 << 10]);
        loop {
            match file.read(&mut buffer).map_err(io)? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            }
        }
        let found = hasher.finish();
        if found != *digest {
            return Err(Error::damaged(format!("{} has digest {found}", archive.display())));
        }
        let index = fs::read(path.join("index")).map_err(|e| Error::io(&path.join("index"), &e))?;
        let index = Index::from_bytes(index, digest)?;
        if index.bytes() != write::index(&file, digest, self.limits())?.bytes() {
            return Err(Error::damaged(format!("the index of layer {digest} is not that of its archive")));
        }
        Ok(())
    }

    fn verify_record(&self, name: &Digest) -> Result<(), Error> {
        let path = self.path("images", name);
        let bytes = fs::read(&path).map_err(|e| Error::io(&path, &e))?;
        let damaged = |what: String| Error::damaged(format!("{}: {what}", path.display()));
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if Digest::of(record.reference.as_bytes()) != *name {
            return Err(damaged(format!("it is about {}", record.reference)));
        }
        for blob in [record.manifest, record.config] {
            self.blob(&blob).map_err(|e| damaged(e.to_string()))?;
        }
        match record.layers.iter().find(|layer| !self.has_layer(layer)) {
            Some(layer) => Err(damaged(format!("layer {layer} is not there"))),
            None => Ok(()),
        }
    }
}

/// Bytes of the disk that a file takes.
fn disk(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).map_or(0, |meta| meta.blocks() * 512)
}
