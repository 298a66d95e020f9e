//! Mount namespaces (mount_namespaces(7)): what the containers of one machine see of its file systems.
//!
//! Key types: [`MountNs`] (names one), `MountSpace` (a root directory and a mount table). Inodes, file bytes and free space belong
//! to the machine; which file system lies where belongs to a namespace, so a volume is one file system that several containers
//! mount, each at its own place, writable or not. Operations work in the namespace that was entered last ([`Vfs::enter_namespace`]), which
//! has the place of `current->nsproxy->mnt_ns` in Linux: the kernel enters that of the calling task before each call.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::base::{BaseFs, TreeId};
use crate::mount::{FsKind, Mount};
use crate::types::{FsId, Ino, MountId};
use crate::vfs::Vfs;

/// A mount namespace, by number: those of the containers of a machine, in the order in which they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountNs(pub u32);

/// The root file system of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootSpec {
    /// The base tree below it, `None` for an empty root.
    pub tree: Option<TreeId>,
    /// Its size in bytes for what is written, `None` for no limit. Beyond it: ENOSPC.
    pub quota: Option<u64>,
    /// Whether it refuses changes (docker's `read_only: true`).
    pub read_only: bool,
}

/// The namespace that was entered last. It says where operations work and nothing of what is there, so file systems are equal
/// whatever it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered(pub(crate) MountNs);

impl PartialEq for Entered {
    fn eq(&self, _: &Entered) -> bool {
        true
    }
}

impl Eq for Entered {}

/// A namespace: where it begins and what is mounted in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountSpace {
    pub(crate) root: Ino,
    pub(crate) root_tree: Option<TreeId>,
    pub(crate) mounts: BTreeMap<MountId, Mount>,
    /// Mounts by the inode that they cover.
    pub(crate) by_point: BTreeMap<Ino, MountId>,
    /// Mounts by the inode that they show there.
    pub(crate) by_root: BTreeMap<Ino, MountId>,
    /// The file system of files in memory that no path leads to (`shm_mnt` of Linux), made when it is needed.
    pub(crate) unnamed: Option<FsId>,
}

impl MountSpace {
    /// The first mount of a file system.
    pub(crate) fn mount_of(&self, fs: FsId) -> Option<(MountId, &Mount)> {
        self.mounts.iter().find(|(_, mount)| mount.fs == Some(fs)).map(|(id, mount)| (*id, mount))
    }

    /// What a directory covers if something is mounted there, whose root it is; `None` if it is no such root.
    pub(crate) fn below(&self, root: Ino) -> Option<Option<Ino>> {
        let id = self.by_root.get(&root)?;
        self.mounts.get(id).map(|mount| mount.point)
    }

    pub(crate) fn next_mount(&self) -> MountId {
        MountId(self.mounts.keys().last().map_or(0, |id| id.0) + 1)
    }
}

impl Vfs {
    /// A further namespace with a root file system of its own, for another container. The one that was entered stays so.
    ///
    /// # Errors
    /// ENOTDIR if the base tree's root is no directory; what the base layer reports.
    pub fn add_namespace(&mut self, root: RootSpec, base: &mut dyn BaseFs) -> Result<MountNs, Errno> {
        let before = self.entered;
        let ns = self.begin_namespace(root, base);
        self.entered = before;
        let ns = ns?;
        self.sync_all();
        Ok(ns)
    }

    /// Makes a namespace and enters it.
    pub(crate) fn begin_namespace(
        &mut self,
        root: RootSpec,
        base: &mut dyn BaseFs,
    ) -> Result<MountNs, Errno> {
        let (fs, space) = self.make_space(root, base)?;
        let ns = MountNs(u32::try_from(self.spaces.len()).map_err(|_| Errno::ENOSPC)?);
        Arc::make_mut(&mut self.spaces).push(space);
        self.entered = Entered(ns);
        self.attach(fs, self.root(), None, root.read_only);
        Ok(ns)
    }

    /// A root file system, and what a namespace with it is before anything is mounted.
    pub(crate) fn make_space(
        &mut self,
        root: RootSpec,
        base: &mut dyn BaseFs,
    ) -> Result<(FsId, MountSpace), Errno> {
        let fs = self.add_fs(FsKind::Root, root.quota);
        let ino = match root.tree {
            None => self.make_root(fs, 0o755),
            Some(tree) => self.base_root(fs, tree, base)?,
        };
        if !self.inode(ino)?.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let space = MountSpace {
            root: ino,
            root_tree: root.tree,
            mounts: BTreeMap::new(),
            by_point: BTreeMap::new(),
            by_root: BTreeMap::new(),
            unnamed: None,
        };
        Ok((fs, space))
    }

    /// From now on the root file system of the namespace that was entered refuses changes (docker's `read_only: true`).
    pub fn protect_root(&mut self) {
        for mount in self.space_mut().mounts.values_mut().filter(|mount| mount.point.is_none()) {
            mount.read_only = true;
        }
    }

    /// What follows happens in this namespace.
    ///
    /// # Panics
    /// If there is no such namespace.
    pub fn enter_namespace(&mut self, ns: MountNs) {
        assert!((ns.0 as usize) < self.spaces.len(), "no mount namespace {ns:?}");
        self.entered = Entered(ns);
    }

    /// The namespace in which operations work.
    pub fn entered(&self) -> MountNs {
        self.entered.0
    }

    /// The root directory of the namespace that was entered.
    pub fn root(&self) -> Ino {
        self.space().root
    }

    /// Whether an inode is the root of a mount of the namespace that was entered.
    pub fn is_mount_root(&self, ino: Ino) -> bool {
        let space = self.space();
        ino == space.root || space.by_root.contains_key(&ino)
    }

    /// The root directory of a namespace.
    ///
    /// # Panics
    /// If there is no such namespace.
    pub fn root_of(&self, ns: MountNs) -> Ino {
        self.spaces[ns.0 as usize].root
    }

    /// The base tree below the root file system of the namespace that was entered.
    pub fn root_tree(&self) -> Option<TreeId> {
        self.space().root_tree
    }

    pub(crate) fn space(&self) -> &MountSpace {
        &self.spaces[self.entered.0.0 as usize]
    }

    pub(crate) fn space_mut(&mut self) -> &mut MountSpace {
        let at = self.entered.0.0 as usize;
        &mut Arc::make_mut(&mut self.spaces)[at]
    }

    /// Whether another namespace than the entered one has the file system mounted.
    pub(crate) fn mounted_elsewhere(&self, fs: FsId) -> bool {
        let own = self.entered.0.0 as usize;
        self.spaces.iter().enumerate().any(|(at, space)| at != own && space.mount_of(fs).is_some())
    }

    /// Whether something lies over an inode in the namespace that was entered.
    pub(crate) fn is_covered(&self, ino: Ino) -> bool {
        self.space().by_point.contains_key(&ino)
    }
}
