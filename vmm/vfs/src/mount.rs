//! Mounts: the root, tmpfs, bind mounts of base trees, named volumes, `/dev`, and places that the kernel fills.
//!
//! Key types: [`MountSpec`], [`MountInfo`]. All work in the namespace that was entered ([`crate::namespace`]). What several
//! containers mount is one file system ([`MountSpec::Shared`]): their mounts differ in place, part and whether they may write.
//! Where one namespace mounts a file system more than once, it may be written if one of these mounts may.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::base::{BaseFs, TreeId};
use crate::dir::{BaseDir, Dir};
use crate::flags;
use crate::inode::{Inode, Node};
use crate::types::{Cred, Dev, Fail, FsId, Ino, MountId, Name, Volume};
use crate::vfs::{At, Ctx, Vfs, meta};

/// What to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSpec {
    /// An empty file system in memory. A power failure or a restart of the container empties it.
    Tmpfs {
        /// Permission bits of its root: 01777 for /tmp and /dev/shm, 0755 for /run.
        mode: u32,
        /// Limit in bytes.
        size: Option<u64>,
        /// User and group of its root.
        owner: (u32, u32),
    },
    /// A host directory or a single host file. Writes stay in the simulation.
    Bind {
        /// The base tree.
        tree: TreeId,
        /// Refuse writes with EROFS.
        read_only: bool,
    },
    /// A volume. It starts with what the root file system's base has at that place, as docker fills an
    /// empty volume from the image.
    Volume {
        /// Refuse writes with EROFS.
        read_only: bool,
    },
    /// A file system that several mounts of the machine show: a volume or a writable directory of several containers. The first
    /// mount makes it; a volume that is still empty starts, at a later mount too, with what lies at that mount's place.
    Shared {
        /// The same for all of its mounts.
        key: u32,
        /// What it is; whether it is read-only holds for this mount.
        of: Box<MountSpec>,
        /// The directory in it that is mounted, made if it is missing: no leading slash, empty for all of it.
        subpath: Vec<u8>,
        /// A volume starts empty whatever lies at its place (docker's `nocopy`).
        nocopy: bool,
    },
    /// A tmpfs with the device nodes and links of a container's /dev.
    Dev,
    /// The nodes of pseudoterminals.
    Devpts,
    /// A tree that the kernel makes up; paths into it fail with [`Fail::Synthetic`].
    Synthetic {
        /// Comes back in [`SynthPath::tag`](crate::SynthPath).
        tag: u32,
        /// Type name for `/proc/mounts`: `proc`, `sysfs`, `devpts`.
        fstype: &'static str,
    },
}

/// What kind of file system it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsKind {
    Root,
    Tmpfs,
    Bind,
    Volume,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fs {
    pub(crate) kind: FsKind,
    pub(crate) root: Ino,
    /// Its first mount, by which statfs(2) names it.
    pub(crate) mount: MountId,
    pub(crate) quota_pages: Option<u64>,
    pub(crate) used_pages: u64,
    /// Bytes of what is kept beside them.
    pub(crate) kept: u64,
    /// As what faults name it.
    pub(crate) volume: Option<Volume>,
}

/// A file system, or the kernel, at a place of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) spec: Option<MountSpec>,
    /// The covered inode; `None` for the root mount.
    pub(crate) point: Option<Ino>,
    /// `None` for synthetic mounts.
    pub(crate) fs: Option<FsId>,
    /// The inode that is seen there: the root of the file system, or a directory in it. `None` for synthetic mounts.
    pub(crate) root: Option<Ino>,
    /// Writes are refused.
    pub(crate) read_only: bool,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The mount.
    pub id: MountId,
    /// The mount that holds its place; its own id for the root.
    pub parent: MountId,
    /// Which directory or file of its file system is seen there: a path from the file system's root.
    pub root: Vec<u8>,
    /// Absolute path of its place.
    pub path: Vec<u8>,
    /// Type name.
    pub fstype: &'static str,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Device of the file system, as in `st_dev`.
    pub dev: Dev,
}

impl Vfs {
    /// Mounts `spec` at the absolute path `path`. Missing directories (or the missing file, for a bind mount of a
    /// file) are made, as container runtimes do. What was written before is durable then.
    ///
    /// # Errors
    /// EBUSY if something is mounted there already, ENOTDIR/EISDIR if the place is of the wrong kind, ENOENT for a
    /// bind mount of nothing; errors of path resolution.
    pub fn mount(&mut self, base: &mut dyn BaseFs, path: &[u8], spec: MountSpec) -> Result<MountId, Fail> {
        let is_file = match &spec {
            MountSpec::Bind { tree, .. } => {
                let entry = base.lookup(*tree, b"")?.ok_or(Errno::ENOENT)?;
                entry.kind != crate::base::BaseKind::Directory
            }
            MountSpec::Shared { key, of, subpath, .. } => {
                self.make_shared(base, *key, of)?;
                let root = self.shared_root(base, *key, subpath)?;
                !self.inode(root)?.is_dir()
            }
            _ => false,
        };
        let point = self.make_point(base, path, is_file)?;
        if self.is_covered(point) || point == self.root() {
            return Err(Errno::EBUSY.into());
        }
        match (self.inode(point)?.is_dir(), is_file) {
            (true, true) => return Err(Errno::EISDIR.into()),
            (false, false) => return Err(Errno::ENOTDIR.into()),
            _ => {}
        }
        if matches!(spec, MountSpec::Synthetic { .. }) {
            let id = self.space().next_mount();
            let mount =
                Mount { spec: Some(spec), point: Some(point), fs: None, root: None, read_only: false };
            self.put_mount(id, mount);
            self.sync_all();
            return Ok(id);
        }
        let (fs, root, read_only) = self.make_fs(base, point, &spec)?;
        let id = self.attach(fs, root, Some(point), read_only);
        if let Some(mount) = self.space_mut().mounts.get_mut(&id) {
            mount.spec = Some(spec);
        }
        self.sync_all();
        Ok(id)
    }

    /// The first mount of what a device number stands for.
    pub fn mount_of_device(&self, dev: Dev) -> Option<MountId> {
        self.space().mounts.iter().find(|(id, mount)| device(mount.fs, **id) == dev).map(|(id, _)| *id)
    }

    /// All mounts in the order in which they were made.
    pub fn mounts(&self) -> Vec<MountInfo> {
        let space = self.space();
        let holder = |point: Ino| space.mount_of(self.inode(point).ok()?.fs);
        space
            .mounts
            .iter()
            .map(|(id, mount)| {
                let fs = mount.fs.and_then(|fs| self.filesystems.get(&fs));
                let parent = mount.point.and_then(holder).map_or(*id, |(id, _)| id);
                let fstype = match (&mount.spec, fs.map(|fs| fs.kind)) {
                    (Some(MountSpec::Synthetic { fstype, .. }), _) => fstype,
                    (Some(MountSpec::Devpts), _) => "devpts",
                    (_, Some(FsKind::Root)) => "overlay",
                    (_, Some(FsKind::Tmpfs)) => "tmpfs",
                    _ => "ext4",
                };
                MountInfo {
                    id: *id,
                    parent,
                    root: match (fs, mount.root) {
                        (Some(fs), Some(root)) => self.path_within(fs.root, root),
                        _ => b"/".to_vec(),
                    },
                    path: mount.point.map_or_else(|| b"/".to_vec(), |point| self.path_of(space.root, point)),
                    fstype,
                    read_only: mount.read_only,
                    dev: device(mount.fs, *id),
                }
            })
            .collect()
    }

    /// The path of an inode from the root of its file system.
    fn path_within(&self, root: Ino, ino: Ino) -> Vec<u8> {
        let (mut at, mut path) = (ino, Vec::new());
        while at != root
            && let Some((parent, name)) = self.inode(at).ok().and_then(|inode| inode.seen.as_ref())
        {
            path = [b"/", &name[..], &path].concat();
            at = *parent;
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// The directory that `..` of a synthetic mount's root leads to.
    pub fn mount_parent(&self, mount: MountId) -> Ino {
        let point = self.space().mounts.get(&mount).and_then(|mount| mount.point);
        point.map_or(self.root(), |point| self.parent_of_point(point))
    }

    /// Starts the machine anew: every reference of the old kernel is dropped, tmpfs mounts of the namespace that was entered are
    /// empty again; the root file system, bind mounts and volumes keep what was written.
    ///
    /// # Errors
    /// What the base layer reports.
    pub fn restart(&mut self, base: &mut dyn BaseFs) -> Result<(), Errno> {
        let held: Vec<Ino> = self.handles.keys().copied().collect();
        self.handles = Arc::default();
        self.moved.clear();
        self.stored = Arc::default();
        for ino in held {
            self.reap(ino);
        }
        self.restart_namespace(base)
    }

    /// Starts one container of several anew, whose processes have given back what they held: its tmpfs mounts are empty again,
    /// but for those that other containers mount too.
    ///
    /// # Errors
    /// What the base layer reports.
    pub fn restart_namespace(&mut self, base: &mut dyn BaseFs) -> Result<(), Errno> {
        let ids: Vec<MountId> = self.space().mounts.keys().copied().collect();
        for id in ids {
            let Some(mount) = self.space().mounts.get(&id) else { continue };
            let (Some(spec), Some(point), Some(old)) = (mount.spec.clone(), mount.point, mount.fs) else {
                continue;
            };
            let spec = match spec {
                MountSpec::Shared { of, .. } if !self.mounted_elsewhere(old) => *of,
                spec => spec,
            };
            if !matches!(spec, MountSpec::Tmpfs { .. } | MountSpec::Dev | MountSpec::Devpts) {
                continue;
            }
            let keep: Vec<(Ino, Vec<u8>)> = self.points_inside(old);
            let (fs, root, _) = self.make_fs(base, point, &spec)?;
            self.drop_fs(old);
            for shared in Arc::make_mut(&mut self.shared).values_mut().filter(|shared| **shared == old) {
                *shared = fs;
            }
            if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs) {
                (fs.root, fs.mount) = (root, id);
            }
            let space = self.space_mut();
            space.by_root.retain(|_, of| *of != id);
            space.by_root.insert(root, id);
            if let Some(mount) = space.mounts.get_mut(&id) {
                (mount.fs, mount.root) = (Some(fs), Some(root));
            }
            self.restore_points(base, keep).map_err(|fail| match fail {
                Fail::Errno(errno) => errno,
                Fail::Synthetic(_) => Errno::EBUSY,
            })?;
        }
        Ok(())
    }

    /// Mount points in `fs` with their paths.
    fn points_inside(&self, fs: FsId) -> Vec<(Ino, Vec<u8>)> {
        let inside = |ino: &Ino| self.inode(*ino).is_ok_and(|inode| inode.fs == fs);
        let space = self.space();
        space
            .by_point
            .keys()
            .filter(|ino| inside(ino))
            .map(|ino| (*ino, self.path_of(space.root, *ino)))
            .collect()
    }

    /// Makes the mount points of a file system that was made anew, and moves their mounts there.
    fn restore_points(&mut self, base: &mut dyn BaseFs, points: Vec<(Ino, Vec<u8>)>) -> Result<(), Fail> {
        for (old, path) in points {
            let Some(id) = self.space_mut().by_point.remove(&old) else { continue };
            let point = self.make_point(base, &path, false)?;
            let space = self.space_mut();
            space.by_point.insert(point, id);
            if let Some(mount) = space.mounts.get_mut(&id) {
                mount.point = Some(point);
            }
        }
        Ok(())
    }

    /// Removes all inodes of a file system.
    pub(crate) fn drop_fs(&mut self, fs: FsId) {
        let gone: Vec<Ino> =
            self.inodes.iter().filter(|(_, inode)| inode.fs == fs).map(|(ino, _)| ino).collect();
        for ino in gone {
            self.inodes.remove(ino);
        }
        if let Some(fs) = Arc::make_mut(&mut self.filesystems).remove(&fs)
            && fs.kind == FsKind::Tmpfs
        {
            self.memory_pages -= fs.used_pages;
            self.memory_kept -= fs.kept;
        }
    }

    /// Makes the file system that `spec` asks for; its id, root and whether it is read-only.
    fn make_fs(
        &mut self,
        base: &mut dyn BaseFs,
        point: Ino,
        spec: &MountSpec,
    ) -> Result<(FsId, Ino, bool), Errno> {
        Ok(match spec {
            MountSpec::Tmpfs { mode, size, owner } => {
                let fs = self.add_fs(FsKind::Tmpfs, size.or(self.config.tmpfs_quota));
                let root = self.make_root(fs, *mode);
                (self.inode_mut(root)?.meta.uid, self.inode_mut(root)?.meta.gid) = *owner;
                (fs, root, false)
            }
            MountSpec::Bind { tree, read_only } => {
                let fs = self.add_fs(FsKind::Bind, self.config.disk_quota);
                (fs, self.base_root(fs, *tree, base)?, *read_only)
            }
            MountSpec::Volume { read_only } => {
                let fs = self.add_fs(FsKind::Volume, self.config.disk_quota);
                let root = self.make_root(fs, 0o755);
                self.fill_volume(root, point)?;
                (fs, root, *read_only)
            }
            MountSpec::Shared { key, of, subpath, nocopy } => {
                let fs = self.make_shared(base, *key, of)?;
                let root = self.shared_root(base, *key, subpath)?;
                let whole = matches!(**of, MountSpec::Volume { .. }) && subpath.is_empty();
                if whole && !nocopy && self.is_empty_volume(base, root)? {
                    self.fill_volume(root, point)?;
                }
                let read_only = matches!(
                    **of,
                    MountSpec::Volume { read_only: true } | MountSpec::Bind { read_only: true, .. }
                );
                (fs, root, read_only)
            }
            MountSpec::Dev => {
                let fs = self.add_fs(FsKind::Tmpfs, Some(64 << 20));
                let root = self.make_root(fs, 0o755);
                self.fill_dev(root)?;
                (fs, root, false)
            }
            MountSpec::Devpts => {
                let fs = self.add_fs(FsKind::Tmpfs, Some(1 << 20));
                let root = self.make_root(fs, 0o755);
                self.plant(root, "ptmx", 0o666, Node::CharDevice(Dev { major: 5, minor: 2 }))?;
                (fs, root, false)
            }
            MountSpec::Synthetic { .. } => return Err(Errno::EINVAL),
        })
    }

    /// A volume starts with what its first place in a container has: names, mode and owner of the directory.
    fn fill_volume(&mut self, root: Ino, point: Ino) -> Result<(), Errno> {
        let covered = self.inode(point)?;
        let (meta, below) = (covered.meta.clone(), covered.dir().and_then(|dir| dir.base.clone()));
        let inode = self.inode_mut(root)?;
        inode.meta = meta;
        inode.node = Node::Directory(Dir::new(root, below.map(|below| BaseDir { listed: false, ..below })));
        Ok(())
    }

    /// "If you mount an empty volume into a directory in the container in which files or directories exist, these files or
    /// directories are propagated (copied) into the volume by default" (Docker's manual, Volumes).
    fn is_empty_volume(&mut self, base: &mut dyn BaseFs, root: Ino) -> Result<bool, Errno> {
        self.complete(base, root)?;
        Ok(self.dir(root)?.len() == 0)
    }

    /// The file system of a key, made if this is its first mount.
    fn make_shared(&mut self, base: &mut dyn BaseFs, key: u32, of: &MountSpec) -> Result<FsId, Errno> {
        if let Some(fs) = self.shared.get(&key) {
            return Ok(*fs);
        }
        let (fs, root) = match of {
            MountSpec::Volume { .. } => {
                let fs = self.add_fs(FsKind::Volume, self.config.disk_quota);
                (fs, self.make_root(fs, 0o755))
            }
            MountSpec::Tmpfs { .. } | MountSpec::Bind { .. } => {
                let (fs, root, _) = self.make_fs(base, self.root(), of)?;
                (fs, root)
            }
            MountSpec::Dev | MountSpec::Devpts | MountSpec::Synthetic { .. } | MountSpec::Shared { .. } => {
                return Err(Errno::EINVAL);
            }
        };
        if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs) {
            fs.root = root;
        }
        Arc::make_mut(&mut self.shared).insert(key, fs);
        Ok(fs)
    }

    /// What a mount shows of the file system of a key.
    fn shared_root(&mut self, base: &mut dyn BaseFs, key: u32, subpath: &[u8]) -> Result<Ino, Errno> {
        let fs = self.shared.get(&key).and_then(|fs| self.filesystems.get(fs)).ok_or(Errno::ESTALE)?;
        let mut at = fs.root;
        for part in subpath.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
            // Neither a link nor `..` may lead out of the volume.
            if matches!(part, b"." | b"..") {
                return Err(Errno::EINVAL);
            }
            at = match self.child(base, at, part)? {
                Some(ino) if matches!(self.inode(ino)?.node, Node::Symlink(_)) => return Err(Errno::ELOOP),
                Some(ino) => ino,
                None => self.plant(at, part, 0o755, Node::Directory(Dir::new(at, None)))?,
            };
        }
        Ok(at)
    }

    /// The nodes that docker puts into /dev, and the socket of syslog(3). Directories `pts`, `shm` and `mqueue` are places for
    /// mounts.
    fn fill_dev(&mut self, root: Ino) -> Result<(), Errno> {
        const NODES: [(&str, u32, u32); 6] = [
            ("null", 1, 3),
            ("zero", 1, 5),
            ("full", 1, 7),
            ("random", 1, 8),
            ("urandom", 1, 9),
            ("tty", 5, 0),
        ];
        const LINKS: [(&str, &str); 6] = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
            ("core", "/proc/kcore"),
        ];
        for (name, major, minor) in NODES {
            self.plant(root, name, 0o666, Node::CharDevice(Dev { major, minor }))?;
        }
        self.plant(root, "log", 0o666, Node::LogSocket)?;
        for (name, target) in LINKS {
            self.plant(root, name, 0o777, Node::Symlink(Arc::from(target.as_bytes())))?;
        }
        for (name, mode) in [("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o1777)] {
            self.plant(root, name, mode, Node::Directory(Dir::new(root, None)))?;
        }
        Ok(())
    }

    /// Whether an inode is the socket of syslog(3) that every /dev has, and not one that a program has bound there.
    pub fn is_log_socket(&self, ino: Ino) -> bool {
        self.inode(ino).is_ok_and(|inode| inode.node == Node::LogSocket)
    }

    /// Adds an inode under a name that is free, outside of any call.
    pub(crate) fn plant(
        &mut self,
        dir: Ino,
        name: impl AsRef<[u8]>,
        mode: u32,
        node: Node,
    ) -> Result<Ino, Errno> {
        let name = Name::from(name.as_ref());
        let mut inode = Inode::new(self.inode(dir)?.fs, meta(mode, 0, 0, self.stamp(SimTime::ZERO)), node);
        inode.seen = Some((dir, name.clone()));
        let (is_dir, order) = (inode.is_dir(), self.config.order);
        let ino = self.alloc(inode);
        self.dir_mut(dir)?.insert(name, ino, is_dir, order);
        Ok(ino)
    }

    /// The inode at `path`, made with all that leads to it if it is missing. Read-only mounts do not stop it.
    fn make_point(&mut self, base: &mut dyn BaseFs, path: &[u8], is_file: bool) -> Result<Ino, Fail> {
        let cred = Cred::root();
        let mut dir = self.root();
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).collect();
        for (i, part) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            let root = self.root();
            let mut ctx = Ctx { base, cred: &cred, root, now: SimTime::ZERO, umask: 0, links: 0, resolve: 0 };
            if last
                && let Some(ino) = self.child(ctx.base, dir, part)?
                && !matches!(self.inode(ino)?.node, Node::Symlink(_))
            {
                return Ok(ino); // not resolved: that would cross into a mount which covers it
            }
            match self.resolve(&mut ctx, At { dir, path: part }, true) {
                Ok(ino) => dir = ino,
                Err(Fail::Errno(Errno::ENOENT)) => {
                    let (mode, node) = if last && is_file {
                        (0o644, crate::file::empty())
                    } else {
                        (0o755, Node::Directory(Dir::new(dir, None)))
                    };
                    dir = self.plant(dir, part, mode, node)?;
                }
                Err(fail) => return Err(fail),
            }
        }
        Ok(dir)
    }

    pub(crate) fn add_fs(&mut self, kind: FsKind, quota: Option<u64>) -> FsId {
        let id = FsId(self.filesystems.keys().last().map_or(0, |id| id.0) + 1);
        let fs = Fs {
            kind,
            root: Ino(0),
            mount: MountId(0),
            quota_pages: quota.map(|bytes| bytes / 4096),
            used_pages: 0,
            kept: 0,
            volume: None,
        };
        Arc::make_mut(&mut self.filesystems).insert(id, fs);
        id
    }

    pub(crate) fn attach(&mut self, fs: FsId, root: Ino, point: Option<Ino>, read_only: bool) -> MountId {
        let id = self.space().next_mount();
        if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs)
            && fs.mount == MountId(0)
        {
            fs.mount = id;
            if fs.root == Ino(0) {
                fs.root = root;
            }
        }
        self.put_mount(id, Mount { spec: None, point, fs: Some(fs), root: Some(root), read_only });
        id
    }

    fn put_mount(&mut self, id: MountId, mount: Mount) {
        let space = self.space_mut();
        if let Some(point) = mount.point {
            space.by_point.insert(point, id);
        }
        if let Some(root) = mount.root {
            space.by_root.entry(root).or_insert(id);
        }
        space.mounts.insert(id, mount);
    }

    /// The directory above a mount point.
    pub(crate) fn parent_of_point(&self, point: Ino) -> Ino {
        match self.inode(point) {
            Ok(inode) => match (inode.dir(), &inode.seen) {
                (Some(dir), _) => dir.parent,
                (None, Some((parent, _))) => *parent,
                (None, None) => self.root(),
            },
            Err(_) => self.root(),
        }
    }
}

/// The device number that `st_dev` shows: anonymous devices, as for overlay and tmpfs.
pub(crate) fn device(fs: Option<FsId>, mount: MountId) -> Dev {
    Dev { major: 0, minor: fs.map_or(128 + mount.0, |fs| 40 + fs.0) }
}

/// Magic number of statfs(2).
pub(crate) fn magic(kind: FsKind) -> u64 {
    match kind {
        FsKind::Root => flags::OVERLAYFS_MAGIC,
        FsKind::Tmpfs => flags::TMPFS_MAGIC,
        FsKind::Bind | FsKind::Volume => flags::EXT4_MAGIC,
    }
}
