//! What is wrong with the disk of a machine for a while: it is full, or can only be read, or programs have used up their quota of it.
//!
//! Key type: [`Trouble`]. All file systems on disks (the root file systems of containers, volumes and bind mounts) lie on the one disk of
//! their machine, as below an engine's data directory; what lies in memory (tmpfs) has no part in it. A volume can be in trouble alone, as one is that has a disk
//! of its own. Neighbours: `file` (room for pages), `kept` (room for names), `vfs` (the right to change anything).

use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::mount::{Fs, FsKind};
use crate::namespace::MountNs;
use crate::types::{FsId, Ino, MountId, Volume};
use crate::vfs::Vfs;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// There is no room for another page or name.
    pub full: bool,
    /// An error has made the file systems read-only ("errors=remount-ro", ext4(5)).
    pub read_only: bool,
}

impl Vfs {
    /// What is wrong with the disk.
    pub fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// Says what is wrong with the disk from now on.
    pub fn set_trouble(&mut self, trouble: Trouble) {
        self.trouble = trouble;
    }

    /// What is wrong with a volume alone, or with the disk (`None`).
    pub fn trouble_of(&self, volume: Option<Volume>) -> Trouble {
        volume.map_or(self.trouble, |volume| self.volumes.get(&volume).copied().unwrap_or_default())
    }

    /// Says what is wrong with a volume alone, or with the disk (`None`), from now on.
    pub fn set_trouble_of(&mut self, volume: Option<Volume>, trouble: Trouble) {
        let Some(volume) = volume else { return self.set_trouble(trouble) };
        let volumes = Arc::make_mut(&mut self.volumes);
        match trouble == Trouble::default() {
            true => volumes.remove(&volume),
            false => volumes.insert(volume, trouble),
        };
    }

    /// What somebody does who waits until nothing is wrong with the disk, as an engine does.
    pub fn without_trouble<T>(&mut self, deed: impl FnOnce(&mut Vfs) -> T) -> T {
        let trouble = std::mem::take(&mut self.trouble);
        let (volumes, over_quota) = (std::mem::take(&mut self.volumes), std::mem::take(&mut self.over_quota));
        let done = deed(self);
        (self.trouble, self.volumes, self.over_quota) = (trouble, volumes, over_quota);
        done
    }

    /// The file system of a mount of the namespace that was entered is this volume.
    pub fn name_volume(&mut self, id: MountId, volume: Volume) {
        let fs = self.space().mounts.get(&id).and_then(|mount| mount.fs);
        if let Some(fs) = fs.and_then(|fs| Arc::make_mut(&mut self.filesystems).get_mut(&fs)) {
            fs.volume = Some(volume);
        }
    }

    /// The volume that a file lies on, if it is on one that faults name.
    pub fn volume_of(&self, ino: Ino) -> Option<Volume> {
        self.fs_of(ino).ok()?.volume
    }

    /// Whether a file system is a volume.
    pub(crate) fn is_of(&self, fs: &FsId, volume: Volume) -> bool {
        self.filesystems.get(fs).is_some_and(|fs| fs.volume == Some(volume))
    }

    /// Whether a file lies on a disk, not in memory.
    pub fn is_on_disk(&self, ino: Ino) -> bool {
        self.fs_of(ino).is_ok_and(|fs| fs.kind != FsKind::Tmpfs)
    }

    /// EROFS where an error has made the file system of `ino` read-only: also for descriptors that were opened for writing before
    /// ("if (sb_rdonly(sb)) return -EROFS", ext4_journal_check_start in Linux).
    pub fn may_change(&self, ino: Ino) -> Result<(), Errno> {
        if self.trouble.read_only && self.is_on_disk(ino) {
            return Err(Errno::EROFS);
        }
        // Nearly always no volume is in trouble.
        let of_volume = || self.volume_of(ino).is_some_and(|volume| self.trouble_of(Some(volume)).read_only);
        if !self.volumes.is_empty() && of_volume() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Says whether the programs of a namespace have used up their quota of the disk (quotactl(2)).
    pub fn set_over_quota(&mut self, ns: MountNs, over: bool) {
        let all = Arc::make_mut(&mut self.over_quota);
        if over {
            all.insert(ns)
        } else {
            all.remove(&ns)
        };
    }

    /// Whether the programs of a namespace have used up their quota.
    pub fn is_over_quota(&self, ns: MountNs) -> bool {
        self.over_quota.contains(&ns)
    }

    /// Whether nothing is wrong with the disk.
    pub fn is_whole(&self) -> bool {
        let whole = self.trouble == Trouble::default() && self.volumes.is_empty();
        whole && self.over_quota.is_empty() && !self.has_bad_blocks()
    }

    /// Nothing is wrong with the disk any more.
    pub fn heal(&mut self) {
        (self.trouble, self.volumes, self.over_quota) = (Trouble::default(), Arc::default(), Arc::default());
        self.repair();
    }

    /// Why there is no room for another page or name in a file system, for the programs of the namespace that was entered; `None` if there may be.
    /// The quota is asked first (dquot_reserve_block comes before ext4_claim_free_clusters in ext4_da_reserve_space of Linux).
    pub(crate) fn shortage(&self, fs: &Fs) -> Option<Errno> {
        if fs.kind == FsKind::Tmpfs {
            return None;
        }
        if !self.over_quota.is_empty() && self.is_over_quota(self.entered()) {
            return Some(Errno::EDQUOT);
        }
        self.is_full(fs).then_some(Errno::ENOSPC)
    }

    /// Whether the disk of a file system is full.
    pub(crate) fn is_full(&self, fs: &Fs) -> bool {
        let of_volume = || fs.volume.is_some_and(|volume| self.trouble_of(Some(volume)).full);
        fs.kind != FsKind::Tmpfs && (self.trouble.full || !self.volumes.is_empty() && of_volume())
    }

    /// Whether a volume is mounted in any namespace.
    pub fn has_volume(&self, volume: Volume) -> bool {
        let mounts = self.spaces.iter().flat_map(|space| space.mounts.values());
        mounts.filter_map(|mount| mount.fs).any(|fs| self.is_of(&fs, volume))
    }
}
