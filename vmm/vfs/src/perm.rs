//! Permission checks, as Linux does them for the classic owner, group and other bits and for access control lists ([`acl`](crate::acl)).

use bloodhound_abi::Errno;

use crate::flags::{MAY_EXEC, MAY_READ, MAY_WRITE, S_ISGID, S_ISUID, S_ISVTX};
use crate::inode::Inode;
use crate::types::{Cred, FileCap, Ino, Kind};
use crate::vfs::Vfs;

/// Whether `cred` may do all of `want` (MAY_* bits) with the inode.
///
/// # Errors
/// EACCES, EPERM.
pub(crate) fn allows(inode: &Inode, cred: &Cred, want: u32) -> Result<(), Errno> {
    let mode = inode.meta.mode;
    // "Nobody gets write access to an immutable file" (inode_permission).
    if want & MAY_WRITE != 0 && inode.is_immutable() {
        return Err(Errno::EPERM);
    }
    let by_bits = |bits: u32| want & !bits & 7 == 0;
    let allowed = if cred.uid == inode.meta.uid {
        by_bits(mode >> 6)
    } else if let Some(allowed) = inode.meta.acl_allows(cred, want) {
        allowed
    } else {
        by_bits(if cred.in_group(inode.meta.gid) { mode >> 3 } else { mode })
    };
    if allowed || overrides(inode, cred, want & 7) { Ok(()) } else { Err(Errno::EACCES) }
}

/// Whether capabilities allow what the bits do not (generic_permission in Linux).
fn overrides(inode: &Inode, cred: &Cred, want: u32) -> bool {
    let (over, search) = (cred.has(FileCap::DacOverride), cred.has(FileCap::DacReadSearch));
    if inode.is_dir() {
        return over || search && want & MAY_WRITE == 0;
    }
    // Execution "needs at least one x bit".
    let runs = want & MAY_EXEC == 0 || inode.meta.mode & 0o111 != 0;
    over && runs || search && want == MAY_READ
}

/// Whether `cred` owns the inode, or may do what its owner may (inode_owner_or_capable).
pub(crate) fn owns(inode: &Inode, cred: &Cred) -> bool {
    cred.uid == inode.meta.uid || cred.has(FileCap::Fowner)
}

/// Whether a link that is a path's last component is followed (may_follow_link in Linux, with
/// /proc/sys/fs/protected_symlinks at 1): "symbolic links are followed only when outside a sticky world-writable directory,
/// or when the uid of the symbolic link and follower match, or when the directory owner matches the symbolic link's owner"
/// (proc(5)). No capability helps.
///
/// # Errors
/// EACCES.
pub(crate) fn may_follow(dir: &Inode, link: &Inode, cred: &Cred) -> Result<(), Errno> {
    const SHARED: u32 = S_ISVTX | 0o002;
    let owner = link.meta.uid;
    let refused = owner != cred.uid && dir.meta.mode & SHARED == SHARED && owner != dir.meta.uid;
    if refused { Err(Errno::EACCES) } else { Ok(()) }
}

/// The set-id bits that a change by `cred` takes away: set-user-ID always, set-group-ID if the group may execute or
/// `cred` is not in it (setattr_should_drop_suidgid in Linux).
pub(crate) fn set_id_to_drop(inode: &Inode, cred: &Cred) -> u32 {
    let mode = inode.meta.mode;
    let group = mode & 0o010 != 0 || !(cred.has(FileCap::Fsetid) || cred.in_group(inode.meta.gid));
    mode & (S_ISUID | if group { S_ISGID } else { 0 })
}

impl Vfs {
    /// Checks `want` (MAY_* bits) on `ino`, and that its file system takes writes if `want` has MAY_WRITE.
    ///
    /// # Errors
    /// EROFS, EACCES.
    pub(crate) fn permit(&self, ino: Ino, cred: &Cred, want: u32) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        let on_fs = matches!(inode.kind(), Kind::Regular | Kind::Directory | Kind::Symlink);
        if want & MAY_WRITE != 0 && on_fs {
            self.want_write(ino)?;
        }
        allows(inode, cred, want)
    }

    /// Whether a name may be added to `dir` (may_create in Linux).
    ///
    /// # Errors
    /// ENOENT in a removed directory, EACCES.
    pub(crate) fn may_create(&self, dir: Ino, cred: &Cred) -> Result<(), Errno> {
        let inode = self.inode(dir)?;
        if inode.meta.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        allows(inode, cred, MAY_WRITE | MAY_EXEC)
    }

    /// Whether the name of `victim` may be removed from `dir` (may_delete in Linux). `want_dir` says what the call
    /// removes.
    ///
    /// # Errors
    /// EACCES, EPERM in sticky directories and of what is immutable or append-only, ENOTDIR, EISDIR, EBUSY for a file system's root.
    pub(crate) fn may_delete(&self, dir: Ino, victim: Ino, cred: &Cred, want_dir: bool) -> Result<(), Errno> {
        let (parent, inode) = (self.inode(dir)?, self.inode(victim)?);
        allows(parent, cred, MAY_WRITE | MAY_EXEC)?;
        if parent.is_append_only() {
            return Err(Errno::EPERM);
        }
        inode.may_change_attributes()?;
        // inode(7): "the sticky bit (S_ISVTX) on a directory means that a file in that directory can be renamed
        // or deleted only by the owner of the file, by the owner of the directory, and by a privileged process".
        if parent.meta.mode & S_ISVTX != 0 && !owns(inode, cred) && cred.uid != parent.meta.uid {
            return Err(Errno::EPERM);
        }
        match (want_dir, inode.is_dir()) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            _ => Ok(()),
        }
    }
}
