//! The root file system of an image: the trees of its layers laid upon each other, as plain data in memory, and the bytes of its
//! files in the archives of the cache. Nothing is unpacked. `merge` lays the layers upon each other.
//!
//! A [`RootFs`] never changes, and may be used by several threads at once: reading is one pread(2). It keeps the files of its layers
//! open, so removing an image from the cache does not disturb who uses it.

mod merge;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::Error;
use crate::layer::Index;
use crate::tar::Extent;

/// Names the content of a regular file of a [`RootFs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Where the content of a file comes from: two files with equal keys have equal bytes, in whatever images they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentKey {
    /// Digest of the layer's uncompressed archive.
    pub layer: Digest,
    /// Where the file's bytes begin in it.
    pub offset: u64,
    /// How many bytes the file has.
    pub size: u64,
}

/// What a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Regular file.
    File {
        /// For [`RootFs::read_at`].
        id: FileId,
        /// Size in bytes.
        size: u64,
    },
    /// Directory.
    Dir,
    /// Symbolic link with its target, which may be any bytes but NUL.
    Symlink(Vec<u8>),
    /// Character device.
    Char {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Block device.
    Block {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// FIFO.
    Fifo,
}

/// A file of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits with setuid, setgid and the sticky bit (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change: seconds since 1970 and nanoseconds.
    pub mtime: (i64, u32),
    /// Extended attributes with their full names, such as `security.capability`.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Equal for all names of one file; a function of the layers alone. The root has 1.
    pub inode: u64,
    /// How many names the file has; for a directory 2 and one for each directory in it.
    pub nlink: u32,
}

/// A layer of the cache: its uncompressed archive and the index of it.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) digest: Digest,
    pub(crate) archive: File,
    pub(crate) index: Index,
}

/// A name in the merged tree.
#[derive(Debug)]
struct Node {
    /// Where the name stands in `RootFs::names`.
    name: (u32, u32),
    entry: Entry,
    /// The first child, and how many there are. Children stand next to each other, sorted by name.
    children: (u32, u32),
}

/// Where the bytes of a file are.
#[derive(Debug)]
struct Content {
    layer: u32,
    offset: u64,
    size: u64,
    extents: Option<Vec<Extent>>,
}

/// The merged tree of all layers of an image.
#[derive(Debug)]
pub struct RootFs {
    layers: Vec<Arc<Layer>>,
    nodes: Vec<Node>,
    names: Vec<u8>,
    contents: Vec<Content>,
}

impl RootFs {
    /// The tree of these layers, the lowest first.
    pub(crate) fn new(layers: Vec<Arc<Layer>>) -> Result<RootFs, Error> {
        merge::merge(layers)
    }

    /// The entry at a path relative to the root: without a slash at the beginning, empty for the root itself. Symbolic
    /// links are not followed.
    pub fn lookup(&self, path: &[u8]) -> Option<&Entry> {
        self.find(path).map(|node| &node.entry)
    }

    /// Names and entries of the directory at a path, sorted by name, without `.` and `..`. `None` if there is no directory.
    pub fn read_dir(&self, path: &[u8]) -> Option<impl Iterator<Item = (&[u8], &Entry)>> {
        let node = self.find(path).filter(|node| node.entry.kind == EntryKind::Dir)?;
        Some(self.children(node).iter().map(|child| (self.name(child), &child.entry)))
    }

    /// Reads bytes of a file. What lies beyond its end is filled with zeros, so that whole pages can be asked for.
    ///
    /// # Errors
    /// The host's error if the cache cannot be read, or is shorter than it was.
    pub fn read_at(&self, file: FileId, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = self.content(file)?;
        let inside = content.size.saturating_sub(offset).min(out.len() as u64);
        let (out, beyond) = out.split_at_mut(inside as usize);
        beyond.fill(0);
        if out.is_empty() {
            return Ok(());
        }
        let archive = &self.layers[content.layer as usize].archive;
        let Some(extents) = &content.extents else {
            return archive.read_exact_at(out, content.offset + offset);
        };
        out.fill(0);
        let end = offset + out.len() as u64;
        let first = extents.partition_point(|extent| extent.at + extent.len <= offset);
        for extent in extents[first..].iter().take_while(|extent| extent.at < end) {
            let from = extent.at.max(offset);
            let to = (extent.at + extent.len).min(end);
            let part = &mut out[(from - offset) as usize..(to - offset) as usize];
            archive.read_exact_at(part, extent.offset + (from - extent.at))?;
        }
        Ok(())
    }

    /// Which content a file has, the same in all images and processes that share its layer.
    ///
    /// # Errors
    /// No file of this root file system has this number.
    pub fn content_key(&self, file: FileId) -> io::Result<ContentKey> {
        let content = self.content(file)?;
        let layer = self.layers[content.layer as usize].digest;
        Ok(ContentKey { layer, offset: content.offset, size: content.size })
    }

    /// Digests of the uncompressed layers, the lowest first.
    pub fn layers(&self) -> impl Iterator<Item = Digest> {
        self.layers.iter().map(|layer| layer.digest)
    }

    /// How many names there are, with the root.
    pub fn entries(&self) -> usize {
        self.nodes.len()
    }

    /// How many files with bytes of their own there are: numbers of [`FileId`] are below.
    pub fn files(&self) -> usize {
        self.contents.len()
    }

    /// Calls `visit` for each path of the tree with its entry, directories before what lies in them.
    pub fn walk(&self, visit: &mut dyn FnMut(&[u8], &Entry)) {
        let mut todo = vec![(Vec::new(), 0)];
        while let Some((path, at)) = todo.pop() {
            let node = &self.nodes[at];
            visit(&path, &node.entry);
            let first = node.children.0 as usize;
            for (number, child) in self.children(node).iter().enumerate().rev() {
                let mut below = path.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend(self.name(child));
                todo.push((below, first + number));
            }
        }
    }

    fn content(&self, file: FileId) -> io::Result<&Content> {
        let content = self.contents.get(file.0 as usize);
        content.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file in the image"))
    }

    fn children(&self, node: &Node) -> &[Node] {
        &self.nodes[node.children.0 as usize..][..node.children.1 as usize]
    }

    fn name(&self, node: &Node) -> &[u8] {
        &self.names[node.name.0 as usize..][..node.name.1 as usize]
    }

    fn find(&self, path: &[u8]) -> Option<&Node> {
        let mut node = &self.nodes[0];
        if path.is_empty() {
            return Some(node);
        }
        for part in path.split(|byte| *byte == b'/') {
            let children = self.children(node);
            let at = children.binary_search_by(|child| self.name(child).cmp(part)).ok()?;
            node = &children[at];
        }
        Some(node)
    }
}
