//! The file system of a container image as a tree of the simulation's base layer.
//!
//! Key type: [`Tree`], which answers [`ImageTree`] from a [`RootFs`](bloodhound_images::RootFs).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bloodhound_images::{Entry, EntryKind, FileId, Image};
use bloodhound_vfs::{
    BaseEntry, BaseKind, Blocks, ContentId, Dev, ImageContent, ImageTree, Linked, Name, Timestamp,
};
use sha2::{Digest, Sha256};

/// An image's files.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    name: String,
    image: Arc<Image>,
}

impl Tree {
    /// Of `image`, under this name in findings and messages.
    pub(super) fn new(name: String, image: Arc<Image>) -> Tree {
        Tree { name, image }
    }
}

impl ImageTree for Tree {
    fn name(&self) -> String {
        self.name.clone()
    }

    /// Of the configuration, which names all layers by their uncompressed content: an archive and a registry may compress the same
    /// image differently, and then have different manifests.
    fn digest(&self) -> [u8; 32] {
        self.image.config_digest.bytes()
    }

    fn lookup(&self, path: &[u8]) -> Option<BaseEntry> {
        self.image.root.lookup(path).map(convert)
    }

    fn read_dir(&self, path: &[u8]) -> Option<Vec<(Name, BaseEntry)>> {
        let names = self.image.root.read_dir(path)?;
        Some(names.map(|(name, entry)| (Name::from(name), convert(entry))).collect())
    }

    fn content(&self, number: ContentId) -> Option<ImageContent> {
        let file = FileId(u32::try_from(number.0).ok()?);
        let key = self.image.root.content_key(file).ok()?;
        let mut hash = Sha256::new();
        hash.update(key.layer.bytes());
        hash.update(key.offset.to_le_bytes());
        hash.update(key.size.to_le_bytes());
        let source = Arc::new(Content { image: self.image.clone(), file });
        Some(ImageContent { source, size: key.size, name: hash.finalize().into() })
    }
}

/// A file of an image.
#[derive(Debug)]
struct Content {
    image: Arc<Image>,
    file: FileId,
}

impl Blocks for Content {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.image.root.read_at(self.file, offset, out)
    }

    fn name(&self) -> String {
        format!("the cached layers of {}", self.image.reference)
    }
}

fn convert(entry: &Entry) -> BaseEntry {
    let kind = match &entry.kind {
        EntryKind::File { id, size } => {
            BaseKind::Regular { content: ContentId(u64::from(id.0)), size: *size }
        }
        EntryKind::Dir => BaseKind::Directory,
        EntryKind::Symlink(target) => BaseKind::Symlink(target.as_slice().into()),
        EntryKind::Char { major, minor } => BaseKind::CharDevice(Dev { major: *major, minor: *minor }),
        EntryKind::Block { major, minor } => BaseKind::BlockDevice(Dev { major: *major, minor: *minor }),
        EntryKind::Fifo => BaseKind::Fifo,
    };
    let (secs, nanos) = entry.mtime;
    let several = entry.nlink > 1 && entry.kind != EntryKind::Dir;
    let xattrs: BTreeMap<Vec<u8>, Vec<u8>> = entry.xattrs.iter().cloned().collect();
    BaseEntry {
        xattrs: (!xattrs.is_empty()).then(|| Arc::new(xattrs)),
        linked: several.then_some(Linked { inode: entry.inode, names: entry.nlink }),
        ..BaseEntry::new(kind, entry.mode, entry.uid, entry.gid, Timestamp { secs, nanos })
    }
}
