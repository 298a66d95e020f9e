//! A container is made anew from other files, as an engine does it with one whose image is another now: its root file system and what it had in
//! memory are gone, and what several mounts can show ([`MountSpec::Shared`](crate::MountSpec): volumes and directories of the host) stays as it is.
//!
//! What the engine does is durable at once, as it is where a namespace is made first ([`Vfs::add_namespace`]). What programs have not synced on the file
//! systems that stay does not become durable by it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::arena::Arena;
use crate::base::BaseFs;
use crate::inode::Inode;
use crate::mount::FsKind;
use crate::namespace::{MountSpace, RootSpec};
use crate::types::{FsId, Ino};
use crate::vfs::Vfs;

/// Puts mounts and files into a namespace that has its root file system.
pub type Fill<'a> = &'a mut dyn FnMut(&mut Vfs, &mut dyn BaseFs) -> Result<(), Errno>;

impl Vfs {
    /// The namespace that was entered begins anew with another root file system, in which `fill` puts all else. No process may be in it.
    ///
    /// # Errors
    /// What the base layer reports, and `fill`.
    pub fn make_anew(&mut self, root: RootSpec, base: &mut dyn BaseFs, fill: Fill<'_>) -> Result<(), Errno> {
        let stays = self.staying();
        // Whether a volume is empty is asked when it is mounted again.
        for fs in stays
            .iter()
            .filter_map(|fs| self.filesystems.get(fs))
            .map(|fs| (fs.kind, fs.root))
            .collect::<Vec<_>>()
        {
            if let (FsKind::Volume, root) = fs {
                self.complete(base, root)?;
            }
        }
        let (journal, before) = (self.journal.take(), self.inodes.clone());
        let filled =
            self.without_trouble(|vfs| vfs.begin_anew(&stays, root, base).and_then(|()| fill(vfs, base)));
        self.journal = journal;
        self.note_anew(&stays, &before);
        self.forget_bad_of_nothing();
        let inodes = &self.inodes;
        Arc::make_mut(&mut self.provided).retain(|ino| inodes.get(*ino).is_some());
        filled
    }

    /// The file systems that stay when the namespace that was entered is made anew: those that it does not mount or others mount too, and those on disks that
    /// several mounts can show.
    fn staying(&self) -> BTreeSet<FsId> {
        let own: BTreeSet<FsId> = self.space().mounts.values().filter_map(|mount| mount.fs).collect();
        let is_shared = |fs: &FsId| self.shared.values().any(|shared| shared == fs);
        let stays = self.filesystems.iter().filter(|(id, fs)| {
            !own.contains(id) || self.mounted_elsewhere(**id) || fs.kind != FsKind::Tmpfs && is_shared(id)
        });
        stays.map(|(id, _)| *id).collect()
    }

    /// The namespace that was entered has another root file system, and nothing else.
    fn begin_anew(
        &mut self,
        stays: &BTreeSet<FsId>,
        root: RootSpec,
        base: &mut dyn BaseFs,
    ) -> Result<(), Errno> {
        let (fs, space) = self.make_space(root, base)?;
        let own: BTreeSet<FsId> = self.space().mounts.values().filter_map(|mount| mount.fs).collect();
        for gone in own.difference(stays) {
            self.drop_fs(*gone);
        }
        Arc::make_mut(&mut self.shared).retain(|_, fs| stays.contains(fs));
        let unnamed = self.space().unnamed;
        *self.space_mut() = MountSpace { unnamed, ..space };
        self.attach(fs, self.root(), None, root.read_only);
        Ok(())
    }

    /// What was made, and what was changed by that on the file systems that stay, is on the disk.
    fn note_anew(&mut self, stays: &BTreeSet<FsId>, before: &Arena) {
        let Some(journal) = self.journal.as_mut() else { return };
        let is_new = |ino: Ino, inode: &Arc<Inode>| before.get(ino) != Some(inode);
        let on_disk = |fs: &FsId| self.filesystems.get(fs).is_some_and(|fs| fs.kind != FsKind::Tmpfs);
        let all = self.inodes.iter().filter(|(ino, inode)| is_new(*ino, inode) && on_disk(&inode.fs));
        let (changed, made): (Vec<_>, Vec<_>) = all.partition(|(_, inode)| stays.contains(&inode.fs));
        let inos = |list: Vec<(Ino, &Arc<Inode>)>| list.into_iter().map(|(ino, _)| ino).collect::<Vec<_>>();
        Arc::make_mut(journal).made_anew(&self.inodes, stays, &inos(made), &inos(changed));
    }
}
