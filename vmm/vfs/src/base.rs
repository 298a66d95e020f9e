//! The read-only layer below a world's own files, reached through the trait [`BaseFs`].
//!
//! A world never refers to the host: it stores paths and content numbers, and operations which may need the layer
//! take `&mut dyn BaseFs`. What such a layer answers must not change while a process runs and must be a function
//! of the run's inputs, for determinism rests on it. Implementations: [`NoBase`], [`MemBase`] (tests) and [`HostBase`](crate::host::HostBase).

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::image::FileImage;
use crate::types::{Dev, Name, Timestamp};

/// One of the trees that a [`BaseFs`] serves: the root file system, a bind-mounted host directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// Names the content of one file of a [`BaseFs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub u64);

/// What a name in the base layer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseKind {
    /// Regular file.
    Regular {
        /// Handle for [`BaseFs::load`].
        content: ContentId,
        /// Size in bytes; equals that of the loaded image.
        size: u64,
    },
    /// Directory.
    Directory,
    /// Symbolic link with its target.
    Symlink(Arc<[u8]>),
    /// Character device node.
    CharDevice(Dev),
    /// Block device node.
    BlockDevice(Dev),
    /// FIFO.
    Fifo,
    /// Socket node.
    Socket,
}

/// One entry of the base layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseEntry {
    /// Kind and what belongs to it.
    pub kind: BaseKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of content; the world shows it as atime, ctime and btime as well.
    pub mtime: Timestamp,
    /// Extended attributes, `None` for none.
    pub xattrs: Option<Arc<BTreeMap<Vec<u8>, Vec<u8>>>>,
    /// For something with several names in its tree (hard links): what all of them have in common.
    pub linked: Option<Linked>,
}

/// Several names of one inode of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// Equal for all names of the inode, and different for another inode of the tree.
    pub inode: u64,
    /// How many names it has.
    pub names: u32,
}

impl BaseEntry {
    /// An entry with one name and without extended attributes.
    pub fn new(kind: BaseKind, mode: u32, uid: u32, gid: u32, mtime: Timestamp) -> BaseEntry {
        BaseEntry { kind, mode, uid, gid, mtime, xattrs: None, linked: None }
    }
}

/// A read-only file system outside the world. Paths are relative to the tree's root: no leading slash, empty for
/// the root itself, no `.` or `..`, never through a symbolic link.
pub trait BaseFs {
    /// The entry at `path`, or `None` if there is none.
    ///
    /// # Errors
    /// EIO if the layer cannot answer.
    fn lookup(&mut self, tree: TreeId, path: &[u8]) -> Result<Option<BaseEntry>, Errno>;

    /// Names and entries of the directory at `path`, sorted by name, without `.` and `..`.
    ///
    /// # Errors
    /// ENOENT or ENOTDIR if `path` names no directory, EIO if the layer cannot answer.
    fn read_dir(&mut self, tree: TreeId, path: &[u8]) -> Result<Vec<(Name, BaseEntry)>, Errno>;

    /// The content of a regular file.
    ///
    /// # Errors
    /// EACCES if the layer may not read it, EIO if it cannot.
    fn load(&mut self, content: ContentId) -> Result<Arc<FileImage>, Errno>;

    /// Whether [`BaseFs::missed`] does anything.
    fn notes_missed(&self) -> bool {
        false
    }

    /// A program asked in vain for this absolute path, in a world whose root file system lies over `tree`. It changes
    /// nothing for the world.
    fn missed(&mut self, _tree: TreeId, _path: &[u8]) {}
}

/// A base layer with nothing in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBase;

impl BaseFs for NoBase {
    fn lookup(&mut self, _: TreeId, _: &[u8]) -> Result<Option<BaseEntry>, Errno> {
        Ok(None)
    }

    fn read_dir(&mut self, _: TreeId, _: &[u8]) -> Result<Vec<(Name, BaseEntry)>, Errno> {
        Err(Errno::ENOENT)
    }

    fn load(&mut self, _: ContentId) -> Result<Arc<FileImage>, Errno> {
        Err(Errno::EIO)
    }
}

/// A base layer in memory.
#[derive(Clone, Debug, Default)]
pub struct MemBase {
    entries: BTreeMap<(TreeId, Vec<u8>), BaseEntry>,
    contents: Vec<Arc<FileImage>>,
}

impl MemBase {
    /// An empty layer.
    pub fn new() -> MemBase {
        MemBase::default()
    }

    /// Adds a regular file and the directories above it.
    pub fn file(&mut self, tree: TreeId, path: &str, mode: u32, bytes: &[u8]) -> &mut MemBase {
        let content = ContentId(self.contents.len() as u64);
        self.contents.push(Arc::new(FileImage::from_bytes(bytes)));
        self.entry(tree, path, mode, BaseKind::Regular { content, size: bytes.len() as u64 })
    }

    /// Adds an entry of any kind and the directories above it (mode 0755).
    pub fn entry(&mut self, tree: TreeId, path: &str, mode: u32, kind: BaseKind) -> &mut MemBase {
        let mut parent = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            self.insert(tree, &parent, 0o755, BaseKind::Directory, false);
            if !parent.is_empty() {
                parent.push('/');
            }
            parent.push_str(part);
        }
        self.insert(tree, &parent, mode, kind, true);
        self
    }

    /// Makes these names hard links of one inode, the first one's.
    pub fn link(&mut self, tree: TreeId, paths: &[&str], inode: u64) -> &mut MemBase {
        let first = self.entries.get(&(tree, paths[0].as_bytes().to_vec())).cloned();
        for path in paths {
            let linked = Some(Linked { inode, names: paths.len() as u32 });
            let entry = first.clone().map(|entry| BaseEntry { linked, ..entry });
            self.entries.extend(entry.map(|entry| ((tree, path.as_bytes().to_vec()), entry)));
        }
        self
    }

    /// Gives an entry an extended attribute.
    pub fn set_xattr(&mut self, tree: TreeId, path: &str, name: &[u8], value: &[u8]) -> &mut MemBase {
        if let Some(entry) = self.entries.get_mut(&(tree, path.as_bytes().to_vec())) {
            Arc::make_mut(entry.xattrs.get_or_insert_default()).insert(name.to_vec(), value.to_vec());
        }
        self
    }

    fn insert(&mut self, tree: TreeId, path: &str, mode: u32, kind: BaseKind, replace: bool) {
        let entry = BaseEntry::new(kind, mode, 0, 0, Timestamp::default());
        let key = (tree, path.as_bytes().to_vec());
        if replace {
            self.entries.insert(key, entry);
        } else {
            self.entries.entry(key).or_insert(entry);
        }
    }
}

impl BaseFs for MemBase {
    fn lookup(&mut self, tree: TreeId, path: &[u8]) -> Result<Option<BaseEntry>, Errno> {
        Ok(self.entries.get(&(tree, path.to_vec())).cloned())
    }

    fn read_dir(&mut self, tree: TreeId, path: &[u8]) -> Result<Vec<(Name, BaseEntry)>, Errno> {
        match self.lookup(tree, path)? {
            None => return Err(Errno::ENOENT),
            Some(entry) if entry.kind != BaseKind::Directory => return Err(Errno::ENOTDIR),
            Some(_) => {}
        }
        let mut prefix = path.to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let below = self.entries.range((tree, prefix.clone())..);
        Ok(below
            .take_while(|((of, path), _)| *of == tree && path.starts_with(&prefix))
            .filter(|((_, path), _)| path.len() > prefix.len() && !path[prefix.len()..].contains(&b'/'))
            .map(|((_, path), entry)| (Name::from(&path[prefix.len()..]), entry.clone()))
            .collect())
    }

    fn load(&mut self, content: ContentId) -> Result<Arc<FileImage>, Errno> {
        usize::try_from(content.0).ok().and_then(|i| self.contents.get(i)).cloned().ok_or(Errno::EIO)
    }
}
