//! Inodes: metadata and, by kind, pages, names, a link target or a device number.
//!
//! Key types: [`Inode`], [`Node`]. Directories are in [`dir`](crate::dir), file bytes in
//! [`pages`](crate::pages). Open counts are not here but in [`Vfs`](crate::Vfs): they belong to the running
//! kernel and not to the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::ContentId;
use crate::dir::Dir;
use crate::image::FileImage;
use crate::kept::Kept;
use crate::pages::PageMap;
use crate::types::{Dev, FsId, Ino, Kind, Name, Timestamp};

/// Metadata common to all kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Permission bits (07777).
    pub(crate) mode: u32,
    /// What chattr(1) sets ([`iflags`](crate::iflags)).
    pub(crate) flags: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    /// Extended attributes, `None` for none.
    pub(crate) xattrs: Option<Arc<BTreeMap<Vec<u8>, Vec<u8>>>>,
    /// Bytes of their names and values: there may be thousands, so they are not counted anew for each that is set.
    pub(crate) xattr_bytes: usize,
}

/// XATTR_NAME_CAPS: the capabilities that a program file gives (capabilities(7)).
pub const CAPABILITY: &[u8] = b"security.capability";

impl Meta {
    /// Whether the file gives capabilities to who executes it.
    pub(crate) fn has_capabilities(&self) -> bool {
        self.xattrs.as_deref().is_some_and(|all| all.contains_key(CAPABILITY))
    }

    /// Sets an extended attribute, or removes it.
    pub(crate) fn set_xattr(&mut self, name: &[u8], value: Option<Vec<u8>>) {
        let new = value.as_ref().map_or(0, |value| name.len() + value.len());
        let old = match (value, &mut self.xattrs) {
            (Some(value), xattrs) => {
                Arc::make_mut(xattrs.get_or_insert_default()).insert(name.to_vec(), value)
            }
            (None, Some(all)) if all.contains_key(name) => Arc::make_mut(all).remove(name),
            (None, _) => None,
        };
        self.xattr_bytes = self.xattr_bytes + new - old.map_or(0, |old| name.len() + old.len());
    }

    /// The attributes of a file of the base layer.
    pub(crate) fn take_over_xattrs(&mut self, xattrs: Option<Arc<BTreeMap<Vec<u8>, Vec<u8>>>>) {
        let all = xattrs.iter().flat_map(|all| all.iter());
        self.xattr_bytes = all.map(|(name, value)| name.len() + value.len()).sum();
        self.xattrs = xattrs;
    }
}

/// The bytes of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Content of the base layer that nobody has opened yet.
    Unread(ContentId),
    /// Content of the base layer, unchanged.
    Image(Arc<FileImage>),
    /// Content of this file system, after the first change ("copied up" in terms of overlayfs).
    Own(PageMap),
}

/// What an inode is and what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Regular {
        data: Data,
        size: u64,
    },
    Directory(Dir),
    Symlink(Arc<[u8]>),
    CharDevice(Dev),
    BlockDevice(Dev),
    Fifo,
    Socket,
    /// A socket that the kernel reads itself: /dev/log.
    LogSocket,
}

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) fs: FsId,
    pub(crate) meta: Meta,
    pub(crate) node: Node,
    /// Where it was last found or linked: what `/proc/self/fd/N` shows. Directories know their parent exactly.
    pub(crate) seen: Option<(Ino, Name)>,
    /// Made by O_TMPFILE without O_EXCL and so far without a name: linkat(2) may give it its first one.
    pub(crate) linkable: bool,
    /// What is counted for it.
    pub(crate) kept: Kept,
}

impl Inode {
    pub(crate) fn new(fs: FsId, meta: Meta, node: Node) -> Inode {
        Inode { fs, meta, node, seen: None, linkable: false, kept: Kept::default() }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.node {
            Node::Regular { .. } => Kind::Regular,
            Node::Directory(_) => Kind::Directory,
            Node::Symlink(_) => Kind::Symlink,
            Node::CharDevice(_) => Kind::CharDevice,
            Node::BlockDevice(_) => Kind::BlockDevice,
            Node::Fifo => Kind::Fifo,
            Node::Socket | Node::LogSocket => Kind::Socket,
        }
    }

    pub(crate) fn dir(&self) -> Option<&Dir> {
        match &self.node {
            Node::Directory(dir) => Some(dir),
            _ => None,
        }
    }

    pub(crate) fn dir_mut(&mut self) -> Option<&mut Dir> {
        match &mut self.node {
            Node::Directory(dir) => Some(dir),
            _ => None,
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.node, Node::Directory(_))
    }

    /// `st_size`.
    pub(crate) fn size(&self) -> u64 {
        match &self.node {
            Node::Regular { size, .. } => *size,
            // One block, as ext4 shows for all but large directories.
            Node::Directory(_) => 4096,
            Node::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }

    /// Pages that count against the file system's quota.
    pub(crate) fn own_pages(&self) -> u64 {
        match &self.node {
            Node::Regular { data: Data::Own(pages), .. } => pages.taken(),
            _ => 0,
        }
    }

    /// `st_blocks`, in units of 512 bytes.
    pub(crate) fn blocks(&self) -> u64 {
        match &self.node {
            Node::Regular { data: Data::Own(pages), .. } => pages.taken() * 8,
            Node::Regular { size, .. } => size.div_ceil(4096) * 8,
            Node::Directory(_) => 8,
            _ => 0,
        }
    }
}
