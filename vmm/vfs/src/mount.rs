//! Mounts: the root, tmpfs, bind mounts of base trees, named volumes, `/dev`, and places that the kernel fills.
//!
//! Key types: [`MountSpec`], [`MountInfo`]. Each file system is mounted once, so an [`Ino`] says which mount it
//! is in and `..` needs no more than the mount table.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::base::{BaseFs, TreeId};
use crate::dir::{BaseDir, Dir};
use crate::flags;
use crate::inode::{Inode, Node};
use crate::types::{Cred, Dev, Fail, FsId, Ino, MountId, Name};
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
    },
    /// A host directory or a single host file. Writes stay in the simulation.
    Bind {
        /// The base tree.
        tree: TreeId,
        /// Refuse writes with EROFS.
        read_only: bool,
    },
    /// A named volume. It starts with what the root file system's base has at that place, as docker fills an
    /// empty volume from the image.
    Volume {
        /// Refuse writes with EROFS.
        read_only: bool,
    },
    /// A tmpfs with the device nodes and links of a container's /dev.
    Dev,
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
    pub(crate) mount: MountId,
    pub(crate) read_only: bool,
    pub(crate) quota_pages: Option<u64>,
    pub(crate) used_pages: u64,
}

/// A file system, or the kernel, at a place of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) spec: Option<MountSpec>,
    /// The covered inode; `None` for the root mount.
    pub(crate) point: Option<Ino>,
    /// `None` for synthetic mounts.
    pub(crate) fs: Option<FsId>,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The mount.
    pub id: MountId,
    /// The mount that holds its place; its own id for the root.
    pub parent: MountId,
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
        let is_file = match spec {
            MountSpec::Bind { tree, .. } => {
                let entry = base.lookup(tree, b"")?.ok_or(Errno::ENOENT)?;
                entry.kind != crate::base::BaseKind::Directory
            }
            _ => false,
        };
        let point = self.make_point(base, path, is_file)?;
        if self.by_point.contains_key(&point) || point == self.root {
            return Err(Errno::EBUSY.into());
        }
        match (self.inode(point)?.is_dir(), is_file) {
            (true, true) => return Err(Errno::EISDIR.into()),
            (false, false) => return Err(Errno::ENOTDIR.into()),
            _ => {}
        }
        let id = MountId(self.mounts.keys().last().map_or(0, |id| id.0) + 1);
        if matches!(spec, MountSpec::Synthetic { .. }) {
            self.put_mount(id, Mount { spec: Some(spec), point: Some(point), fs: None });
            self.sync_all();
            return Ok(id);
        }
        let (fs, root, read_only) = self.make_fs(base, point, &spec)?;
        let id = self.attach(fs, root, Some(point), read_only);
        if let Some(mount) = Arc::make_mut(&mut self.mounts).get_mut(&id) {
            mount.spec = Some(spec);
        }
        self.sync_all();
        Ok(id)
    }

    /// All mounts in the order in which they were made.
    pub fn mounts(&self) -> Vec<MountInfo> {
        self.mounts
            .iter()
            .map(|(id, mount)| {
                let fs = mount.fs.and_then(|fs| self.filesystems.get(&fs));
                let parent = mount.point.and_then(|point| self.fs_of(point).ok()).map_or(*id, |fs| fs.mount);
                let fstype = match (&mount.spec, fs.map(|fs| fs.kind)) {
                    (Some(MountSpec::Synthetic { fstype, .. }), _) => fstype,
                    (_, Some(FsKind::Root)) => "overlay",
                    (_, Some(FsKind::Tmpfs)) => "tmpfs",
                    _ => "ext4",
                };
                MountInfo {
                    id: *id,
                    parent,
                    path: mount.point.map_or_else(|| b"/".to_vec(), |point| self.path_of(self.root, point)),
                    fstype,
                    read_only: fs.is_some_and(|fs| fs.read_only),
                    dev: device(mount.fs, *id),
                }
            })
            .collect()
    }

    /// The directory that `..` of a synthetic mount's root leads to.
    pub fn mount_parent(&self, mount: MountId) -> Ino {
        let point = self.mounts.get(&mount).and_then(|mount| mount.point);
        point.map_or(self.root, |point| self.parent_of_point(point))
    }

    /// Starts the container anew: every reference of the old kernel is dropped, tmpfs mounts are empty again; the
    /// root file system, bind mounts and volumes keep what was written.
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
        let ids: Vec<MountId> = self.mounts.keys().copied().collect();
        for id in ids {
            let Some(mount) = self.mounts.get(&id) else { continue };
            let (Some(spec), Some(point), Some(old)) = (mount.spec.clone(), mount.point, mount.fs) else {
                continue;
            };
            if !matches!(spec, MountSpec::Tmpfs { .. } | MountSpec::Dev) {
                continue;
            }
            let keep: Vec<(Ino, Vec<u8>)> = self.points_inside(old);
            let (fs, root, read_only) = self.make_fs(base, point, &spec)?;
            self.drop_fs(old);
            if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs) {
                (fs.root, fs.mount, fs.read_only) = (root, id, read_only);
            }
            if let Some(mount) = Arc::make_mut(&mut self.mounts).get_mut(&id) {
                mount.fs = Some(fs);
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
        self.by_point
            .keys()
            .filter(|ino| inside(ino))
            .map(|ino| (*ino, self.path_of(self.root, *ino)))
            .collect()
    }

    /// Makes the mount points of a file system that was made anew, and moves their mounts there.
    fn restore_points(&mut self, base: &mut dyn BaseFs, points: Vec<(Ino, Vec<u8>)>) -> Result<(), Fail> {
        for (old, path) in points {
            let Some(id) = Arc::make_mut(&mut self.by_point).remove(&old) else { continue };
            let point = self.make_point(base, &path, false)?;
            Arc::make_mut(&mut self.by_point).insert(point, id);
            if let Some(mount) = Arc::make_mut(&mut self.mounts).get_mut(&id) {
                mount.point = Some(point);
            }
        }
        Ok(())
    }

    /// Removes all inodes of a file system.
    fn drop_fs(&mut self, fs: FsId) {
        let gone: Vec<Ino> =
            self.inodes.iter().filter(|(_, inode)| inode.fs == fs).map(|(ino, _)| ino).collect();
        for ino in gone {
            self.inodes.remove(ino);
        }
        Arc::make_mut(&mut self.filesystems).remove(&fs);
    }

    /// Makes the file system that `spec` asks for; its id, root and whether it is read-only.
    fn make_fs(
        &mut self,
        base: &mut dyn BaseFs,
        point: Ino,
        spec: &MountSpec,
    ) -> Result<(FsId, Ino, bool), Errno> {
        Ok(match spec {
            MountSpec::Tmpfs { mode, size } => {
                let fs = self.add_fs(FsKind::Tmpfs, *size);
                (fs, self.make_root(fs, *mode), false)
            }
            MountSpec::Bind { tree, read_only } => {
                let fs = self.add_fs(FsKind::Bind, None);
                (fs, self.base_root(fs, *tree, base)?, *read_only)
            }
            MountSpec::Volume { read_only } => {
                let fs = self.add_fs(FsKind::Volume, None);
                let root = self.make_root(fs, 0o755);
                let covered = self.inode(point)?;
                let (meta, below) = (covered.meta.clone(), covered.dir().and_then(|dir| dir.base.clone()));
                let inode = self.inode_mut(root)?;
                inode.meta = meta;
                inode.node =
                    Node::Directory(Dir::new(root, below.map(|below| BaseDir { listed: false, ..below })));
                (fs, root, *read_only)
            }
            MountSpec::Dev => {
                let fs = self.add_fs(FsKind::Tmpfs, Some(64 << 20));
                let root = self.make_root(fs, 0o755);
                self.fill_dev(root)?;
                (fs, root, false)
            }
            MountSpec::Synthetic { .. } => return Err(Errno::EINVAL),
        })
    }

    /// The nodes that docker puts into /dev. Directories `pts`, `shm` and `mqueue` are places for mounts.
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
        for (name, target) in LINKS {
            self.plant(root, name, 0o777, Node::Symlink(Arc::from(target.as_bytes())))?;
        }
        for (name, mode) in [("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o1777)] {
            self.plant(root, name, mode, Node::Directory(Dir::new(root, None)))?;
        }
        Ok(())
    }

    /// Adds an inode under a name that is free, outside of any call.
    fn plant(&mut self, dir: Ino, name: &str, mode: u32, node: Node) -> Result<Ino, Errno> {
        let name = Name::from(name.as_bytes());
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
        let mut dir = self.root;
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).collect();
        for (i, part) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            let root = self.root;
            let mut ctx = Ctx { base, cred: &cred, root, now: SimTime::ZERO, umask: 0, links: 0 };
            if last
                && let Some(ino) = self.child(ctx.base, dir, part)?
                && !matches!(self.inode(ino)?.node, Node::Symlink(_))
            {
                return Ok(ino); // not resolved: that would cross into a mount which covers it
            }
            match self.resolve(&mut ctx, At { dir, path: part }, true) {
                Ok(ino) => dir = ino,
                Err(Fail::Errno(Errno::ENOENT)) => {
                    let name = std::str::from_utf8(part).map_err(|_| Errno::EINVAL)?;
                    let (mode, node) = if last && is_file {
                        (0o644, crate::file::empty())
                    } else {
                        (0o755, Node::Directory(Dir::new(dir, None)))
                    };
                    dir = self.plant(dir, name, mode, node)?;
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
            read_only: false,
            quota_pages: quota.map(|bytes| bytes / 4096),
            used_pages: 0,
        };
        Arc::make_mut(&mut self.filesystems).insert(id, fs);
        id
    }

    pub(crate) fn attach(&mut self, fs: FsId, root: Ino, point: Option<Ino>, read_only: bool) -> MountId {
        let id = MountId(self.mounts.keys().last().map_or(0, |id| id.0) + 1);
        if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs) {
            (fs.root, fs.mount, fs.read_only) = (root, id, read_only);
        }
        self.put_mount(id, Mount { spec: None, point, fs: Some(fs) });
        id
    }

    fn put_mount(&mut self, id: MountId, mount: Mount) {
        if let Some(point) = mount.point {
            Arc::make_mut(&mut self.by_point).insert(point, id);
        }
        Arc::make_mut(&mut self.mounts).insert(id, mount);
    }

    /// The directory above a mount point.
    pub(crate) fn parent_of_point(&self, point: Ino) -> Ino {
        match self.inode(point) {
            Ok(inode) => match (inode.dir(), &inode.seen) {
                (Some(dir), _) => dir.parent,
                (None, Some((parent, _))) => *parent,
                (None, None) => self.root,
            },
            Err(_) => self.root,
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
