//! The file system of one node: the value [`Vfs`], its tables and the helpers that all operations share.
//!
//! Key types: [`Vfs`], [`Config`], [`Ctx`], [`At`]. Operations are in the modules beside this one, by theme:
//! `walk` (path resolution), `open`, `names`, `rename`, `file` (bytes), `attr`, `list`, `mount`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::arena::Arena;
use crate::bad::BadBlocks;
use crate::base::{BaseEntry, BaseFs, BaseKind, TreeId};
use crate::dir::{BaseDir, Dir, Order, Slot};
use crate::inode::{Data, Inode, Meta, Node};
use crate::journal::{DiskModel, Journal};
use crate::mount::{Fs, FsKind};
use crate::namespace::{Entered, MountNs, MountSpace, RootSpec};
use crate::trouble::Trouble;
use crate::types::{Cred, FsId, Ino, Kind, Name, Timestamp, Volume};

/// What a new [`Vfs`] is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The base tree below the root file system, `None` for an empty root.
    pub root: Option<TreeId>,
    /// Nanoseconds from 1970 to `SimTime::ZERO`, for file times.
    pub epoch_ns: u64,
    /// The order of directory listings.
    pub order: Order,
    /// Largest file in bytes; writing behind it gives EFBIG. ext4 with 4 KiB blocks has 16 TiB - 4 KiB.
    pub max_file_size: u64,
    /// Size of the root file system in bytes for what is written, `None` for no limit. Beyond it: ENOSPC.
    pub root_quota: Option<u64>,
    /// The same for each volume and directory of the host.
    pub disk_quota: Option<u64>,
    /// The same for each file system in memory that has no size of its own.
    pub tmpfs_quota: Option<u64>,
    /// What a power failure keeps; `None` for a run without power failures, which saves noting every change.
    pub disk: Option<DiskModel>,
    /// Whether the root file system refuses changes (docker's `read_only: true`).
    pub read_only: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            root: None,
            epoch_ns: 0,
            order: Order::Hashed(0),
            max_file_size: (16 << 40) - 4096,
            root_quota: None,
            disk_quota: None,
            tmpfs_quota: None,
            disk: None,
            read_only: false,
        }
    }
}

/// What comes with every operation that walks a path: who asks, from where, when.
pub struct Ctx<'a> {
    /// The layer below.
    pub base: &'a mut dyn BaseFs,
    /// Whose permissions count.
    pub cred: &'a Cred,
    /// The process's root directory (chroot(2)); [`Vfs::root`] for most.
    pub root: Ino,
    /// Virtual time of the call.
    pub now: SimTime,
    /// The process's file mode creation mask.
    pub umask: u32,
    /// Symbolic links followed before this call: 0, or [`SynthPath::links`](crate::SynthPath) when the kernel
    /// goes on after a link inside a synthetic mount.
    pub links: u32,
    /// RESOLVE_* of openat2(2), by which the walk is restricted; [`Ctx::root`] is that of the restricted walk then.
    pub resolve: u64,
}

/// A path and the directory that it starts from if it is relative (the `dirfd` of the `*at` calls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<'a> {
    /// The start.
    pub dir: Ino,
    /// The path, without NUL.
    pub path: &'a [u8],
}

/// References that the running kernel holds on an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handles {
    /// Open file descriptions, working directories, roots.
    pub(crate) refs: u32,
    /// Those of `refs` that may write.
    pub(crate) writers: u32,
    /// Programs that run from it.
    pub(crate) execs: u32,
    /// Memory mappings.
    pub(crate) maps: u32,
}

impl Handles {
    fn held(self) -> bool {
        self.refs > 0 || self.execs > 0 || self.maps > 0
    }
}

/// A page of a mapped file that has another frame now (or none): mappings of it must be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMoved {
    /// The file.
    pub ino: Ino,
    /// Which page.
    pub index: u64,
}

/// All file systems of one node; see the crate's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vfs {
    pub(crate) config: Config,
    pub(crate) inodes: Arena,
    pub(crate) next_ino: u64,
    pub(crate) filesystems: Arc<BTreeMap<FsId, Fs>>,
    /// Pages in those that lie in memory.
    pub(crate) memory_pages: u64,
    /// Bytes of what is kept there beside them.
    pub(crate) memory_kept: u64,
    /// What the containers see, by [`MountNs`].
    pub(crate) spaces: Arc<Vec<MountSpace>>,
    /// The namespace in which operations work.
    pub(crate) entered: Entered,
    /// File systems that several namespaces mount, by the key of [`MountSpec::Shared`](crate::MountSpec).
    pub(crate) shared: Arc<BTreeMap<u32, FsId>>,
    pub(crate) handles: Arc<BTreeMap<Ino, Handles>>,
    /// Inodes of a file system's base tree with several names that one of their names has brought in.
    linked: Arc<BTreeMap<(FsId, u64), Ino>>,
    pub(crate) moved: Vec<PageMoved>,
    /// Mapped files that were the base layer's until now.
    pub(crate) copied_up: Vec<Ino>,
    /// Pages that application code may store into without notice, since [`Vfs::page_mut`] gave them out.
    pub(crate) stored: Arc<BTreeMap<Ino, BTreeSet<u64>>>,
    /// Inodes that somebody watches, and how many do.
    pub(crate) watched: Arc<BTreeMap<Ino, u32>>,
    /// What happened to them since the kernel took it last.
    pub(crate) happened: Vec<crate::notify::Happened>,
    /// Renames that watches were told of.
    pub(crate) moves: u32,
    /// What power failures are computed from; `None` if there are none in this run.
    pub(crate) journal: Option<Arc<Journal>>,
    /// What is wrong with the disk.
    pub(crate) trouble: Trouble,
    /// What is wrong with volumes alone.
    pub(crate) volumes: Arc<BTreeMap<Volume, Trouble>>,
    /// Blocks that the disk cannot read.
    pub(crate) bad: BadBlocks,
    /// Namespaces whose programs have used up their quota.
    pub(crate) over_quota: Arc<BTreeSet<MountNs>>,
    /// Files that the simulation has put there ([`Vfs::put_file`]), and no program.
    pub(crate) provided: Arc<BTreeSet<Ino>>,
}

impl Vfs {
    /// A node's files with only the root file system mounted.
    ///
    /// # Errors
    /// ENOTDIR if the base tree's root is no directory; what the base layer reports.
    pub fn new(config: Config, base: &mut dyn BaseFs) -> Result<Vfs, Errno> {
        let mut vfs = Vfs {
            config,
            inodes: Arena::default(),
            next_ino: 1,
            filesystems: Arc::default(),
            memory_pages: 0,
            memory_kept: 0,
            spaces: Arc::default(),
            entered: Entered(MountNs(0)),
            shared: Arc::default(),
            handles: Arc::default(),
            linked: Arc::default(),
            moved: Vec::new(),
            copied_up: Vec::new(),
            stored: Arc::default(),
            watched: Arc::default(),
            happened: Vec::new(),
            moves: 0,
            journal: None,
            trouble: Trouble::default(),
            volumes: Arc::default(),
            bad: BadBlocks::default(),
            over_quota: Arc::default(),
            provided: Arc::default(),
        };
        let root = RootSpec { tree: config.root, quota: config.root_quota, read_only: config.read_only };
        vfs.begin_namespace(root, base)?;
        vfs.journal =
            config.disk.map(|model| Arc::new(Journal::new(model, vfs.inodes.clone(), config.order)));
        Ok(vfs)
    }

    /// Nanoseconds from 1970 to `SimTime::ZERO` that file times are computed with. Set it when the node's
    /// wall clock is set or skewed.
    pub fn set_epoch(&mut self, epoch_ns: u64) {
        self.config.epoch_ns = epoch_ns;
    }

    /// Number of inodes in memory.
    pub fn inode_count(&self) -> u64 {
        self.inodes.live()
    }

    /// What `ino` is, if it exists.
    pub fn kind(&self, ino: Ino) -> Option<Kind> {
        self.inodes.get(ino).map(|inode| inode.kind())
    }

    /// Takes the list of mapped pages whose frame changed since the last call. The kernel calls it after every
    /// operation that can change file bytes, and drops its mappings of these pages.
    pub fn take_moved(&mut self) -> Vec<PageMoved> {
        std::mem::take(&mut self.moved)
    }

    /// Takes the list of mapped files that have content of their own since the last call ([`Vfs::is_pristine`]). To be called
    /// when [`Vfs::take_moved`] is.
    pub fn take_copied_up(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.copied_up)
    }

    pub(crate) fn stamp(&self, now: SimTime) -> Timestamp {
        Timestamp::at(self.config.epoch_ns, now)
    }

    /// The inode; ESTALE for a number that names nothing (the kernel let go of it too early).
    pub(crate) fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes.get(ino).map(|inode| &**inode).ok_or(Errno::ESTALE)
    }

    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(ino).ok_or(Errno::ESTALE)
    }

    pub(crate) fn dir(&self, ino: Ino) -> Result<&Dir, Errno> {
        self.inode(ino)?.dir().ok_or(Errno::ENOTDIR)
    }

    pub(crate) fn dir_mut(&mut self, ino: Ino) -> Result<&mut Dir, Errno> {
        self.inode_mut(ino)?.dir_mut().ok_or(Errno::ENOTDIR)
    }

    pub(crate) fn fs_of(&self, ino: Ino) -> Result<&Fs, Errno> {
        self.filesystems.get(&self.inode(ino)?.fs).ok_or(Errno::ESTALE)
    }

    /// EROFS if the namespace that was entered has the file system of `ino` mounted for reading only (mnt_want_write in Linux).
    pub(crate) fn want_write(&self, ino: Ino) -> Result<(), Errno> {
        self.may_change(ino)?;
        if self.is_read_only(self.inode(ino)?.fs) { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Whether all mounts of a file system in the namespace that was entered refuse changes.
    pub(crate) fn is_read_only(&self, fs: FsId) -> bool {
        let mut mounts = self.space().mounts.values().filter(|mount| mount.fs == Some(fs)).peekable();
        mounts.peek().is_some() && mounts.all(|mount| mount.read_only)
    }

    pub(crate) fn handles_of(&self, ino: Ino) -> Handles {
        self.handles.get(&ino).copied().unwrap_or_default()
    }

    /// Changes the reference counts of `ino`; frees the inode if that was the last reference and it has no name.
    pub(crate) fn change_handles(&mut self, ino: Ino, change: impl FnOnce(&mut Handles)) {
        let mut handles = self.handles_of(ino);
        change(&mut handles);
        let table = Arc::make_mut(&mut self.handles);
        if handles == Handles::default() {
            table.remove(&ino);
        } else {
            table.insert(ino, handles);
        }
        self.reap(ino);
    }

    /// Frees `ino` if nothing names or holds it.
    pub(crate) fn reap(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(ino) else { return };
        if inode.meta.nlink > 0 || self.handles_of(ino).held() {
            return;
        }
        let (fs, pages, kept) = (inode.fs, inode.own_pages(), inode.kept.0);
        self.tell_itself(ino, crate::flags::IN_DELETE_SELF);
        self.charge(fs, pages, 0);
        self.charge_kept(fs, kept, 0);
        self.inodes.remove(ino);
    }

    /// Moves a file's share of the used pages from `before` to `after`.
    pub(crate) fn charge(&mut self, fs: FsId, before: u64, after: u64) {
        if before == after {
            return;
        }
        if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs) {
            fs.used_pages = fs.used_pages + after - before;
            if fs.kind == FsKind::Tmpfs {
                self.memory_pages = self.memory_pages + after - before;
            }
        }
    }

    /// Pages of all file systems that lie in memory.
    pub fn all_memory_pages(&self) -> u64 {
        self.memory_pages
    }

    /// Pages of those that a namespace mounts, with what is kept beside them.
    pub fn memory_pages(&self, namespace: MountNs) -> u64 {
        if self.memory_pages == 0 && self.memory_kept == 0 {
            return 0;
        }
        let space = &self.spaces[namespace.0 as usize];
        let shown = |id: &FsId| {
            space.unnamed == Some(*id) || space.mounts.values().any(|mount| mount.fs == Some(*id))
        };
        // Few of them have anything, and this is asked after most calls.
        let filled = |fs: &Fs| fs.kind == FsKind::Tmpfs && (fs.used_pages > 0 || fs.kept > 0);
        let in_memory = self.filesystems.iter().filter(|(id, fs)| filled(fs) && shown(id));
        in_memory.map(|(_, fs)| fs.used_pages + fs.kept.div_ceil(4096)).sum()
    }

    pub(crate) fn alloc(&mut self, inode: Inode) -> Ino {
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.inodes.put(ino, Arc::new(inode));
        ino
    }

    /// The inode that `name` means in `dir`, taken over from the base layer if need be. Does not cross mounts.
    pub(crate) fn child(
        &mut self,
        base: &mut dyn BaseFs,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<Ino>, Errno> {
        let inode = self.inode(dir)?;
        let content = inode.dir().ok_or(Errno::ENOTDIR)?;
        match content.slot(name) {
            Some(Slot::Live { ino, .. }) => return Ok(Some(ino)),
            Some(Slot::Whiteout) => return Ok(None),
            None => {}
        }
        let Some(below) = content.unlisted_base() else { return Ok(None) };
        if inode.meta.nlink == 0 {
            return Ok(None);
        }
        let (tree, path) = (below.tree, below.child(name));
        match base.lookup(tree, &path)? {
            Some(entry) => self.take_over(dir, Name::from(name), tree, path, entry).map(Some),
            None => Ok(None),
        }
    }

    /// Takes over all names of a directory's base, so that the directory is complete.
    pub(crate) fn complete(&mut self, base: &mut dyn BaseFs, dir: Ino) -> Result<(), Errno> {
        let Some(below) = self.dir(dir)?.unlisted_base().cloned() else { return Ok(()) };
        for (name, entry) in base.read_dir(below.tree, &below.path)? {
            if self.dir(dir)?.slot(&name).is_none() {
                let path = below.child(&name);
                self.take_over(dir, name, below.tree, path, entry)?;
            }
        }
        if let Some(base) = &mut self.dir_mut(dir)?.base {
            base.listed = true;
        }
        Ok(())
    }

    fn take_over(
        &mut self,
        dir: Ino,
        name: Name,
        tree: TreeId,
        path: Vec<u8>,
        entry: BaseEntry,
    ) -> Result<Ino, Errno> {
        let fs = self.inode(dir)?.fs;
        let linked = entry.linked.map(|linked| (fs, linked.inode));
        let known = linked.and_then(|key| self.linked.get(&key).copied());
        if let Some(ino) = known.filter(|ino| self.inodes.get(*ino).is_some()) {
            let order = self.config.order;
            self.dir_mut(dir)?.insert(name.clone(), ino, false, order);
            self.note_taken_over(dir, &name, ino, false);
            return Ok(ino);
        }
        let mut inode = from_base(fs, dir, tree, path, entry);
        inode.seen = Some((dir, name.clone()));
        let is_dir = inode.is_dir();
        let ino = self.alloc(inode);
        if let Some(key) = linked {
            Arc::make_mut(&mut self.linked).insert(key, ino);
        }
        let order = self.config.order;
        self.dir_mut(dir)?.insert(name.clone(), ino, is_dir, order);
        self.note_taken_over(dir, &name, ino, is_dir);
        Ok(ino)
    }

    /// The root inode of a file system over `tree`; it may be a file (a bind mount of one file).
    pub(crate) fn base_root(&mut self, fs: FsId, tree: TreeId, base: &mut dyn BaseFs) -> Result<Ino, Errno> {
        let entry = base.lookup(tree, b"")?.ok_or(Errno::ENOENT)?;
        let own = Ino(self.next_ino);
        Ok(self.alloc(from_base(fs, own, tree, Vec::new(), entry)))
    }

    /// An empty root directory.
    pub(crate) fn make_root(&mut self, fs: FsId, mode: u32) -> Ino {
        let own = Ino(self.next_ino);
        let time = self.stamp(SimTime::ZERO);
        let node = Node::Directory(Dir::new(own, None));
        self.alloc(Inode::new(fs, meta(mode, 0, 0, time), node))
    }
}

/// Metadata of a new inode with one link.
pub(crate) fn meta(mode: u32, uid: u32, gid: u32, time: Timestamp) -> Meta {
    let (nlink, flags) = (1, 0);
    Meta {
        mode,
        flags,
        uid,
        gid,
        nlink,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        xattrs: None,
        xattr_bytes: 0,
    }
}

fn from_base(fs: FsId, parent: Ino, tree: TreeId, path: Vec<u8>, entry: BaseEntry) -> Inode {
    let node = match entry.kind {
        BaseKind::Regular { content, size } => Node::Regular { data: Data::Unread(content), size },
        BaseKind::Directory => {
            Node::Directory(Dir::new(parent, Some(BaseDir { tree, path: path.into(), listed: false })))
        }
        BaseKind::Symlink(target) => Node::Symlink(target),
        BaseKind::CharDevice(dev) => Node::CharDevice(dev),
        BaseKind::BlockDevice(dev) => Node::BlockDevice(dev),
        BaseKind::Fifo => Node::Fifo,
        BaseKind::Socket => Node::Socket,
    };
    let mut meta = meta(entry.mode, entry.uid, entry.gid, entry.mtime);
    meta.nlink = entry.linked.map_or(1, |linked| linked.names);
    meta.take_over_xattrs(entry.xattrs);
    Inode::new(fs, meta, node)
}
