//! Attributes: stat, access, chmod, chown, utimensat, extended attributes, statfs.

use bloodhound_abi::{Errno, SimTime};

use crate::flags::*;
use crate::inode::{CAPABILITY, Inode, Node};
use crate::mount::{FsKind, device, magic};
use crate::perm::{allows, owns, set_id_to_drop};
use crate::types::{Cred, Dev, Fail, FileCap, Ino, Kind, MountId, Outcome, Stat, StatFs, Timestamp};
use crate::vfs::{At, Ctx, Vfs};

/// What utimensat(2) does with one of the two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// UTIME_OMIT: leave it.
    Omit,
    /// UTIME_NOW: the time of the call.
    Now,
    /// This time.
    To(Timestamp),
}

/// Seconds of the 24 hours after which relatime updates an access time in any case.
const DAY_SECS: i64 = 24 * 60 * 60;
/// Longest name and longest value of an extended attribute (xattr(7)).
const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: usize = 65536;
/// All extended attributes of one inode together (ext4: one block).
const XATTR_TOTAL_MAX: usize = 65536;

impl Vfs {
    /// stat(2) (`follow`) and lstat(2).
    ///
    /// # Errors
    /// Those of resolution.
    pub fn stat(&mut self, ctx: &mut Ctx, at: At, follow: bool) -> Outcome<Stat> {
        let ino = self.resolve(ctx, at, follow)?;
        Ok(self.stat_ino(ino)?)
    }

    /// fstat(2).
    ///
    /// # Errors
    /// ESTALE.
    pub fn stat_ino(&self, ino: Ino) -> Result<Stat, Errno> {
        let inode = self.inode(ino)?;
        let meta = &inode.meta;
        let (nlink, rdev) = match &inode.node {
            Node::Directory(dir) if meta.nlink > 0 => (dir.shown_nlink(), Dev::default()),
            Node::CharDevice(dev) | Node::BlockDevice(dev) => (meta.nlink, *dev),
            _ => (meta.nlink, Dev::default()),
        };
        Ok(Stat {
            dev: device(Some(inode.fs), MountId(0)),
            ino,
            kind: inode.kind(),
            mode: inode.kind().mode_bits() | meta.mode,
            nlink,
            uid: meta.uid,
            gid: meta.gid,
            rdev,
            size: inode.size(),
            blksize: 4096,
            blocks: match &inode.node {
                // A target that does not fit into the inode: of 60 bytes in ext4, 128 with the NUL in tmpfs.
                Node::Symlink(target) if self.fs_of(ino)?.kind == FsKind::Tmpfs => {
                    if target.len() >= 128 {
                        8
                    } else {
                        0
                    }
                }
                Node::Symlink(target) if target.len() >= 60 => 8,
                _ => inode.blocks(),
            },
            atime: meta.atime,
            mtime: meta.mtime,
            ctime: meta.ctime,
            btime: meta.btime,
        })
    }

    /// access(2), faccessat2(2): `want` of MAY_* bits (0 is F_OK). The caller puts the real or the effective ids
    /// into `ctx.cred`.
    ///
    /// # Errors
    /// EACCES, EROFS; those of resolution.
    pub fn access(&mut self, ctx: &mut Ctx, at: At, want: u32, follow: bool) -> Outcome<()> {
        let ino = self.resolve(ctx, at, follow)?;
        Ok(self.access_ino(ino, ctx.cred, want)?)
    }

    /// As [`Vfs::access`] for a known inode.
    ///
    /// # Errors
    /// EACCES, EROFS.
    pub fn access_ino(&self, ino: Ino, cred: &Cred, want: u32) -> Result<(), Errno> {
        self.permit(ino, cred, want)
    }

    /// chmod(2) by inode; `mode` are permission bits (07777).
    ///
    /// # Errors
    /// EPERM unless owner or root, EROFS, EOPNOTSUPP for a symbolic link.
    pub fn chmod(&mut self, ino: Ino, cred: &Cred, mode: u32, now: SimTime) -> Result<(), Errno> {
        self.want_write(ino)?;
        let inode = self.inode(ino)?;
        if inode.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.may_change_attributes()?;
        if !owns(inode, cred) {
            return Err(Errno::EPERM);
        }
        let mut mode = mode & 0o7777;
        // chmod(2): "If the calling process is not privileged [...], and the group of the file does not match [...],
        // the S_ISGID bit will be turned off".
        if !cred.has(FileCap::Fsetid) && !cred.in_group(inode.meta.gid) {
            mode &= !S_ISGID;
        }
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        meta.set_mode(mode);
        meta.ctime = time;
        self.note_attributes(ino, now);
        self.tell_change(ino, IN_ATTRIB);
        Ok(())
    }

    /// chown(2) by inode; `None` leaves an id as it is.
    ///
    /// # Errors
    /// EPERM, EROFS.
    pub fn chown(
        &mut self,
        ino: Ino,
        cred: &Cred,
        uid: Option<u32>,
        gid: Option<u32>,
        now: SimTime,
    ) -> Result<(), Errno> {
        self.want_write(ino)?;
        let inode = self.inode(ino)?;
        // Without an id there is nothing that may_setattr asks about.
        if uid.is_some() || gid.is_some() || self.is_frozen(ino) {
            inode.may_change_attributes()?;
        }
        let owner = cred.uid == inode.meta.uid;
        let uid_bad = uid.is_some_and(|uid| !owner || uid != inode.meta.uid);
        let gid_bad = gid.is_some_and(|gid| !owner || !(cred.in_group(gid) || gid == inode.meta.gid));
        // "When the owner or group of an executable file is changed [...], the S_ISUID and S_ISGID mode bits are
        // cleared". Linux does it for root and for ids of -1 too, and then it is a chmod(2), which takes the owner.
        let is_dir = inode.is_dir();
        let drop = if is_dir { 0 } else { set_id_to_drop(inode, cred) };
        let refused = !cred.has(FileCap::Chown) && (uid_bad || gid_bad);
        if refused || drop != 0 && !owns(inode, cred) {
            return Err(Errno::EPERM);
        }
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        meta.uid = uid.unwrap_or(meta.uid);
        meta.gid = gid.unwrap_or(meta.gid);
        meta.ctime = time;
        meta.mode &= !drop;
        // So does what it has of capabilities (ATTR_KILL_PRIV).
        if !is_dir && meta.has_capabilities() {
            meta.set_xattr(CAPABILITY, None);
            self.count_kept(ino);
        }
        self.note_attributes(ino, now);
        self.tell_change(ino, IN_ATTRIB);
        Ok(())
    }

    /// utimensat(2) by inode.
    ///
    /// # Errors
    /// EACCES (both times now, neither owner nor writer), EPERM (other times, not owner), EROFS.
    pub fn set_times(
        &mut self,
        ino: Ino,
        cred: &Cred,
        atime: SetTime,
        mtime: SetTime,
        now: SimTime,
    ) -> Result<(), Errno> {
        if (atime, mtime) == (SetTime::Omit, SetTime::Omit) {
            return Ok(());
        }
        self.want_write(ino)?;
        let inode = self.inode(ino)?;
        let touch = (atime, mtime) == (SetTime::Now, SetTime::Now);
        if inode.is_immutable() || inode.is_append_only() && !touch {
            return Err(Errno::EPERM);
        }
        if !owns(inode, cred) {
            if !touch {
                return Err(Errno::EPERM);
            }
            allows(inode, cred, MAY_WRITE)?;
        }
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        for (field, set) in [(&mut meta.atime, atime), (&mut meta.mtime, mtime)] {
            match set {
                SetTime::Omit => {}
                SetTime::Now => *field = time,
                SetTime::To(to) => *field = to,
            }
        }
        meta.ctime = time;
        self.note_attributes(ino, now);
        // notify_change: both times are an attribute, one of them is what would have set it.
        let told = match (atime, mtime) {
            (_, SetTime::Omit) => IN_ACCESS,
            (SetTime::Omit, _) => IN_MODIFY,
            _ => IN_ATTRIB,
        };
        self.tell_change(ino, told);
        Ok(())
    }

    /// Notes a read at `now`, by the rules of relatime: the access time moves if it is not later than the last
    /// change or a day old. Not to be called for O_NOATIME.
    pub fn accessed(&mut self, ino: Ino, now: SimTime) {
        let time = self.stamp(now);
        let Ok(inode) = self.inode(ino) else { return };
        let meta = &inode.meta;
        let due = !inode.keeps_atime()
            && (meta.atime <= meta.mtime
                || meta.atime <= meta.ctime
                || time.secs - meta.atime.secs >= DAY_SECS);
        if due
            && meta.atime != time
            && self.want_write(ino).is_ok()
            && let Ok(inode) = self.inode_mut(ino)
        {
            inode.meta.atime = time;
        }
    }

    /// A symbolic link was read or followed (touch_atime in pick_link and do_readlinkat). Not on the root file system: the inodes of an
    /// overlay have no access times of their own (S_NOATIME, ovl_fill_inode).
    pub fn link_read(&mut self, link: Ino, now: SimTime) {
        let fs = self.inode(link).ok().and_then(|inode| self.filesystems.get(&inode.fs));
        if fs.is_some_and(|fs| fs.kind != FsKind::Root) {
            self.accessed(link, now);
        }
    }

    /// getxattr(2): the value of `name`.
    ///
    /// # Errors
    /// ENODATA, EOPNOTSUPP for a namespace that is not kept, ERANGE for a bad name, EACCES.
    pub fn get_xattr(&self, ino: Ino, cred: &Cred, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        if crate::acl::is_list(name) {
            self.takes_lists(ino, inode)?;
        } else {
            xattr_name(inode, cred, name, MAY_READ)?;
        }
        inode.meta.xattrs.as_ref().and_then(|all| all.get(name)).cloned().ok_or(Errno::ENODATA)
    }

    /// listxattr(2): all names.
    ///
    /// # Errors
    /// ESTALE.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.inode(ino)?.meta.xattrs.iter().flat_map(|all| all.keys().cloned()).collect())
    }

    /// setxattr(2); `flags` of XATTR_CREATE and XATTR_REPLACE.
    ///
    /// # Errors
    /// EEXIST, ENODATA, E2BIG, ENOSPC, EPERM, EOPNOTSUPP, ERANGE, EACCES, EROFS, EINVAL.
    pub fn set_xattr(
        &mut self,
        ino: Ino,
        cred: &Cred,
        name: &[u8],
        value: &[u8],
        flags: u32,
        now: SimTime,
    ) -> Result<(), Errno> {
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL);
        }
        if value.len() > XATTR_SIZE_MAX {
            return Err(Errno::E2BIG);
        }
        self.want_write(ino)?;
        self.inode(ino)?.may_change_attributes()?;
        // It is set whether there is one or not.
        if crate::acl::is_list(name) {
            return self.set_list(ino, cred, name, Some(value), now);
        }
        let inode = self.inode(ino)?;
        xattr_name(inode, cred, name, MAY_WRITE)?;
        let all = inode.meta.xattrs.as_deref();
        let known = all.is_some_and(|all| all.contains_key(name));
        if known && flags & XATTR_CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        if !known && flags & XATTR_REPLACE != 0 {
            return Err(Errno::ENODATA);
        }
        if inode.meta.xattr_bytes + name.len() + value.len() > XATTR_TOTAL_MAX {
            return Err(Errno::ENOSPC);
        }
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        meta.set_xattr(name, Some(value.to_vec()));
        meta.ctime = time;
        self.count_kept(ino);
        self.note_attributes(ino, now);
        self.tell_change(ino, IN_ATTRIB);
        Ok(())
    }

    /// removexattr(2).
    ///
    /// # Errors
    /// ENODATA, EPERM, EOPNOTSUPP, ERANGE, EACCES, EROFS.
    pub fn remove_xattr(&mut self, ino: Ino, cred: &Cred, name: &[u8], now: SimTime) -> Result<(), Errno> {
        self.want_write(ino)?;
        self.inode(ino)?.may_change_attributes()?;
        if crate::acl::is_list(name) {
            return self.set_list(ino, cred, name, None, now);
        }
        let inode = self.inode(ino)?;
        xattr_name(inode, cred, name, MAY_WRITE)?;
        if !inode.meta.xattrs.as_ref().is_some_and(|all| all.contains_key(name)) {
            return Err(Errno::ENODATA);
        }
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        meta.set_xattr(name, None);
        meta.ctime = time;
        self.count_kept(ino);
        self.note_attributes(ino, now);
        self.tell_change(ino, IN_ATTRIB);
        Ok(())
    }

    /// statfs(2).
    ///
    /// # Errors
    /// Those of resolution.
    pub fn statfs(&mut self, ctx: &mut Ctx, at: At) -> Result<StatFs, Fail> {
        let ino = self.resolve(ctx, at, true)?;
        Ok(self.statfs_ino(ino)?)
    }

    /// fstatfs(2). A file system without a quota shows 64 GiB; nothing of the host is shown.
    ///
    /// # Errors
    /// ESTALE.
    pub fn statfs_ino(&self, ino: Ino) -> Result<StatFs, Errno> {
        const UNLIMITED: u64 = 16 << 20; // blocks
        const FILES: u64 = 4 << 20;
        let fs = self.fs_of(ino)?;
        let blocks = fs.quota_pages.unwrap_or(UNLIMITED);
        let free = if self.is_full(fs) { 0 } else { blocks.saturating_sub(fs.used_pages) };
        let ffree = FILES.saturating_sub(self.inodes.live());
        let read_only = if self.is_read_only(self.inode(ino)?.fs) { ST_RDONLY } else { 0 };
        Ok(StatFs {
            magic: if self.is_devpts(ino) { DEVPTS_MAGIC } else { magic(fs.kind) },
            bsize: 4096,
            blocks,
            bfree: free,
            bavail: free,
            files: FILES,
            ffree,
            namelen: NAME_MAX as u64,
            flags: ST_VALID | ST_RELATIME | read_only,
            fsid: u64::from(fs.mount.0),
        })
    }
}

/// Checks the name of an attribute that is no list and the right to it (xattr(7)).
fn xattr_name(inode: &Inode, cred: &Cred, name: &[u8], want: u32) -> Result<(), Errno> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE);
    }
    // A matter of capabilities, which the kernel asks for.
    if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
        // A namespace alone is no name (xattr_resolve_name).
        let alone = matches!(name, b"trusted." | b"security.");
        return if alone { Err(Errno::EINVAL) } else { Ok(()) };
    }
    // Nobody asks for rights, and there is nothing but the lists that others look at.
    if name.starts_with(b"system.") {
        return Err(Errno::EOPNOTSUPP);
    }
    // The rights come before what is wrong with the name (xattr_permission, then xattr_resolve_name).
    if name.starts_with(b"user.") {
        // "user extended attributes are allowed only for regular files and directories".
        if !matches!(inode.kind(), Kind::Regular | Kind::Directory) {
            return Err(if want == MAY_WRITE { Errno::EPERM } else { Errno::ENODATA });
        }
        // "Sticky directories: only the owner and privileged users can write attributes" (xattr_permission).
        let sticky = inode.is_dir() && inode.meta.mode & S_ISVTX != 0;
        if sticky && want == MAY_WRITE && !owns(inode, cred) {
            return Err(Errno::EPERM);
        }
    }
    allows(inode, cred, want)?;
    match name.strip_prefix(b"user.") {
        Some(b"") => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}
