//! [`Record`]: everything that worlds have learnt from the host's files, so that a run can be made again on a machine that has
//! none of them ([`HostBase::sealed`]).
//!
//! Container images are not part of it: they are named by their digests and come from where images come from.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloodhound_abi::Errno;

use super::{HostBase, Key, read_image};
use crate::base::{BaseEntry, BaseKind};
use crate::image::FileImage;
use crate::types::Name;

/// What a sealed layer answers from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Names that were asked for or listed; `None` for those that were not there.
    pub entries: BTreeMap<Key, Option<BaseEntry>>,
    /// Directories that were listed.
    pub listings: BTreeMap<Key, Vec<Name>>,
    /// SHA-256 of the files that were read.
    pub contents: BTreeMap<Key, [u8; 32]>,
    /// Answers of [`HostBase::exists`], in the order of the questions.
    pub exists: Vec<bool>,
}

/// A record and the directory with the contents, each under its digest in hexadecimal.
#[derive(Debug)]
pub(super) struct Sealed {
    record: Record,
    contents: PathBuf,
    /// Questions to [`HostBase::exists`] so far.
    asked: usize,
}

impl Sealed {
    pub(super) fn entry(&self, key: &Key) -> Option<BaseEntry> {
        self.record.entries.get(key).cloned().flatten()
    }

    pub(super) fn names(&self, key: &Key) -> Result<Vec<Vec<u8>>, Errno> {
        let names = self.record.listings.get(key).ok_or(Errno::ENOENT)?;
        Ok(names.iter().map(|name| name.to_vec()).collect())
    }

    /// The content of a file that was read; EIO for any other, and for one whose bytes are not what they were.
    pub(super) fn load(&self, key: &Key) -> Result<FileImage, Errno> {
        let sha256 = self.record.contents.get(key).ok_or(Errno::EIO)?;
        let image = read_image(&self.contents.join(file_name(sha256))).map_err(|_| Errno::EIO)?;
        if image.sha256() == *sha256 { Ok(image) } else { Err(Errno::EIO) }
    }

    fn exists(&mut self) -> bool {
        self.asked += 1;
        self.record.exists.get(self.asked - 1).copied().unwrap_or(false)
    }
}

/// The name of the file that holds the content of this digest.
pub fn file_name(sha256: &[u8; 32]) -> String {
    sha256.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl HostBase {
    /// A layer that answers as another one did, without looking at the host: trees are added as they were then, in the same order,
    /// whatever lies at their paths now. `contents` has the files that were read, each under its [`file_name`].
    pub fn sealed(record: Record, contents: &Path) -> HostBase {
        let base = HostBase::new();
        base.lock().sealed = Some(Sealed { record, contents: contents.to_owned(), asked: 0 });
        base
    }

    /// Whether there is something at a path of the host. The answer is part of [`HostBase::record`].
    pub fn exists(&self, path: &Path) -> bool {
        let mut inner = self.lock();
        let exists = match &mut inner.sealed {
            Some(sealed) => sealed.exists(),
            None => path.exists(),
        };
        inner.exists.push(exists);
        exists
    }

    /// What worlds have learnt so far. `content` is given each file that was read, once for each digest.
    ///
    /// # Errors
    /// Those of `content`.
    pub fn record(
        &self,
        content: &mut dyn FnMut(&[u8; 32], &FileImage) -> io::Result<()>,
    ) -> io::Result<Record> {
        let (mut record, images) = {
            let inner = self.lock();
            let mut record = Record { exists: inner.exists.clone(), ..Record::default() };
            for key in inner.asked.keys() {
                if let Some(entry) = inner.entries.get(key) {
                    record.entries.insert(key.clone(), entry.clone());
                }
            }
            for (key, listing) in &inner.listings {
                let Ok(listing) = listing else { continue };
                record.listings.insert(key.clone(), listing.iter().map(|(name, _)| name.clone()).collect());
                for (name, entry) in listing {
                    let way: &[u8] = if key.1.is_empty() { b"" } else { b"/" };
                    let path = [&key.1[..], way, name].concat();
                    record.entries.insert((key.0, path), Some(entry.clone()));
                }
            }
            let images: Vec<(Key, Arc<FileImage>)> = inner
                .contents
                .iter()
                .filter_map(|c| Some((c.key.clone(), c.image.as_ref()?.as_ref().ok()?.clone())))
                .collect();
            (record, images)
        };
        let mut given = BTreeMap::new();
        for (key, image) in images {
            let sha256 = image.sha256();
            if given.insert(sha256, ()).is_none() {
                content(&sha256, &image)?;
            }
            record.contents.insert(key, sha256);
        }
        // Numbers of contents are given anew by whoever reads the record.
        for entry in record.entries.values_mut().flatten() {
            if let BaseKind::Regular { content, .. } = &mut entry.kind {
                content.0 = 0;
            }
        }
        Ok(record)
    }
}
