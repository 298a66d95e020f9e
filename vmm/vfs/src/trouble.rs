//! What is wrong with the disk of a machine for a while: it is full, or can only be read.
//!
//! Key type: [`Trouble`]. All file systems on disks (the root file systems of containers, volumes and bind mounts) lie on the one disk of
//! their machine, as below an engine's data directory; what lies in memory (tmpfs) has no part in it. Neighbours: `file` (room for
//! pages), `kept` (room for names), `vfs` (the right to change anything).

use bloodhound_abi::Errno;

use crate::mount::FsKind;
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

    /// Whether the disk that `ino` lies on is full.
    pub(crate) fn is_full(&self, kind: FsKind) -> bool {
        self.trouble.full && kind != FsKind::Tmpfs
    }
}
