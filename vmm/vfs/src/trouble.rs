//! What is wrong with the disk of a machine for a while: it is full, or can only be read, or programs have used up their quota of it.
//!
//! Key type: [`Trouble`]. All file systems on disks (the root file systems of containers, volumes and bind mounts) lie on the one disk of
//! their machine, as below an engine's data directory; what lies in memory (tmpfs) has no part in it. Neighbours: `file` (room for
//! pages), `kept` (room for names), `vfs` (the right to change anything).

use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::mount::FsKind;
use crate::namespace::MountNs;
use crate::types::Ino;
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

    /// Whether a file lies on a disk, not in memory.
    pub fn is_on_disk(&self, ino: Ino) -> bool {
        self.fs_of(ino).is_ok_and(|fs| fs.kind != FsKind::Tmpfs)
    }

    /// EROFS where an error has made the file system of `ino` read-only: also for descriptors that were opened for writing before
    /// ("if (sb_rdonly(sb)) return -EROFS", ext4_journal_check_start in Linux).
    pub fn may_change(&self, ino: Ino) -> Result<(), Errno> {
        if self.trouble.read_only && self.is_on_disk(ino) { Err(Errno::EROFS) } else { Ok(()) }
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
        self.trouble == Trouble::default() && self.over_quota.is_empty() && !self.has_bad_blocks()
    }

    /// Nothing is wrong with the disk any more.
    pub fn heal(&mut self) {
        (self.trouble, self.over_quota) = (Trouble::default(), Arc::default());
        self.repair();
    }

    /// Why there is no room for another page or name in a file system of a kind, for the programs of the namespace that was entered; `None` if there may be.
    /// The quota is asked first (dquot_reserve_block comes before ext4_claim_free_clusters in ext4_da_reserve_space of Linux).
    pub(crate) fn shortage(&self, kind: FsKind) -> Option<Errno> {
        if kind == FsKind::Tmpfs {
            return None;
        }
        if !self.over_quota.is_empty() && self.is_over_quota(self.entered()) {
            return Some(Errno::EDQUOT);
        }
        self.trouble.full.then_some(Errno::ENOSPC)
    }

    /// Whether the disk that `ino` lies on is full.
    pub(crate) fn is_full(&self, kind: FsKind) -> bool {
        self.trouble.full && kind != FsKind::Tmpfs
    }
}
