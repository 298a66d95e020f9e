//! What is kept of files beside their bytes: inodes, names, targets of links, extended attributes. Programs can have many of them without
//! a single page of data, so they are counted: against the memory of containers where they lie in memory ("the memory controller [...]
//! tracks [...] kernel data structures such as dentries and inodes", Documentation/admin-guide/cgroup-v2.rst), against the size
//! of a disk elsewhere (ext4(5) has inode tables, blocks of directories and blocks of attributes in it).
//!
//! Key type: [`Kept`]. Counted is what programs have made, not what lies in the base layer.

use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::inode::{Inode, Node};
use crate::mount::FsKind;
use crate::types::{FsId, Ino};
use crate::vfs::Vfs;

const PAGE: u64 = 4096;

/// Bytes that are counted for an inode. No part of what the inode is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept(pub(crate) u64);

impl PartialEq for Kept {
    fn eq(&self, _: &Kept) -> bool {
        true
    }
}

impl Eq for Kept {}

impl Inode {
    /// Bytes that Linux keeps for it, nearly: the inode, an entry of the cache and of a directory for each name, and what hangs on it.
    fn weight(&self) -> u64 {
        const INODE: u64 = 768;
        const NAME: u64 = 256;
        let target = match &self.node {
            Node::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        const ATTRIBUTE: u64 = 64;
        let count = self.meta.xattrs.as_ref().map_or(0, |all| all.len() as u64);
        let attributes = ATTRIBUTE * count + self.meta.xattr_bytes as u64;
        INODE + NAME * u64::from(self.meta.nlink) + target + attributes
    }
}

impl Vfs {
    /// Counts what is kept for an inode that a program has made or has changed.
    pub(crate) fn count_kept(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(ino) else { return };
        let (fs, before, now) = (inode.fs, inode.kept.0, inode.weight());
        if before == now {
            return;
        }
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.kept = Kept(now);
        }
        self.charge_kept(fs, before, now);
    }

    /// Moves an inode's share of what is kept from `before` to `now`.
    pub(crate) fn charge_kept(&mut self, fs: FsId, before: u64, now: u64) {
        if before == now {
            return;
        }
        if let Some(fs) = Arc::make_mut(&mut self.filesystems).get_mut(&fs) {
            fs.kept = fs.kept + now - before;
            if fs.kind == FsKind::Tmpfs {
                self.memory_kept = self.memory_kept + now - before;
            }
        }
    }

    /// Pages of what is kept in all file systems that lie in memory.
    pub fn all_kept_pages(&self) -> u64 {
        self.memory_kept.div_ceil(PAGE)
    }

    /// Counts all anew, after a loss of power.
    pub(crate) fn recount_kept(&mut self) {
        let counted: Vec<Ino> =
            self.inodes.iter().filter(|(_, inode)| inode.kept.0 > 0).map(|(ino, _)| ino).collect();
        for fs in Arc::make_mut(&mut self.filesystems).values_mut() {
            fs.kept = 0;
        }
        self.memory_kept = 0;
        for ino in counted {
            if let Some(inode) = self.inodes.get_mut(ino) {
                inode.kept = Kept(0);
            }
            self.count_kept(ino);
        }
    }

    /// Whether a disk has room for another inode. What lies in memory is bounded by the memory of containers. ENOSPC, EDQUOT.
    pub(crate) fn may_keep(&self, inode: &Inode) -> Result<(), Errno> {
        let Some(fs) = self.filesystems.get(&inode.fs) else { return Ok(()) };
        if let Some(why) = self.shortage(fs) {
            return Err(why);
        }
        let Some(quota) = fs.quota_pages.filter(|_| fs.kind != FsKind::Tmpfs) else { return Ok(()) };
        let full = fs.used_pages * PAGE + fs.kept + inode.weight() > quota * PAGE;
        if full { Err(Errno::ENOSPC) } else { Ok(()) }
    }
}
