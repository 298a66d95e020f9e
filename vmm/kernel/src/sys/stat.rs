//! File status: stat(2) and its kind, statx(2), access(2) and its kind.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Stat as StatOut, Statx, StatxTime, Timespec};
use bloodhound_vfs::flags::{MAY_EXEC, MAY_WRITE, S_IFIFO, S_IFSOCK};
use bloodhound_vfs::{Cred, Dev, Ino, Kind, Stat, Timestamp};

use crate::ctx::*;
use crate::file::{FileKind, Unnamed};
use crate::ids::*;
use crate::path::{Place, Synth};
use crate::procfs::{Entry, Tree, View, anonymous_ino, cgroup};
use crate::wait::SysResult;

/// STATX_BASIC_STATS | STATX_BTIME.
const STATX_SHOWN: u32 = 0x7ff | STATX_BIRTH;
/// STATX_BTIME.
const STATX_BIRTH: u32 = 0x800;

/// stat(2).
pub fn stat(k: &mut Ctx<'_>, path: Path, buf: Ptr) -> SysResult {
    newfstatat(k, Fd(c::AT_FDCWD), path, buf, AtFlags::empty())
}

/// lstat(2).
pub fn lstat(k: &mut Ctx<'_>, path: Path, buf: Ptr) -> SysResult {
    newfstatat(k, Fd(c::AT_FDCWD), path, buf, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// fstat(2); O_PATH descriptors are allowed since Linux 3.6.
pub fn fstat(k: &mut Ctx<'_>, fd: Fd, buf: Ptr) -> SysResult {
    // Unlike fstatat, AT_FDCWD is no descriptor here.
    k.fd(fd)?;
    let place = k.fd_place(fd)?;
    let stat = k.place_stat(&place)?;
    k.write_stat(buf, &stat_out(&stat), &stat_out(&timeless(&stat)))?;
    Ok(0)
}

/// fstatat(2).
pub fn newfstatat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, buf: Ptr, flags: AtFlags) -> SysResult {
    if flags.exceeds(AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT | AtFlags::AT_EMPTY_PATH) {
        return err(Errno::EINVAL);
    }
    let place = k.resolve_arg(dirfd, path, flags.bits())?;
    let stat = k.place_stat(&place)?;
    k.write_stat(buf, &stat_out(&stat), &stat_out(&timeless(&stat)))?;
    Ok(0)
}

/// STATX_ATTR_MOUNT_ROOT.
const MOUNT_ROOT: u64 = 0x2000;
/// STATX_ATTR_AUTOMOUNT, STATX_ATTR_DAX: nothing has them, and of everything it is known (vfs_getattr_nosec).
const NOWHERE: u64 = 0x20_1000;

/// statx(2).
pub fn statx(k: &mut Ctx<'_>, dirfd: Fd, path: Path, flags: AtFlags, mask: StatxMask, buf: Ptr) -> SysResult {
    let sync = AtFlags::AT_STATX_FORCE_SYNC | AtFlags::AT_STATX_DONT_SYNC;
    let known = sync | AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT | AtFlags::AT_EMPTY_PATH;
    if mask.contains(StatxMask::STATX_RESERVED) || flags.exceeds(known) || flags.contains(sync) {
        return err(Errno::EINVAL);
    }
    let place = k.resolve_arg(dirfd, path, flags.bits())?;
    let stat = k.place_stat(&place)?;
    // Linux tells the mount without being asked (vfs_statx).
    let mount = k.view().mount_number(stat.dev);
    let is_root = match &place {
        Place::Ino(ino) => k.node.vfs.is_mount_root(*ino),
        Place::Synth(synth) => synth.path.is_empty() || cgroup::is_root(synth),
        Place::File(_) => false,
    };
    let (flags, known) = match place {
        Place::Ino(ino) => k.node.vfs.told_flags(ino),
        _ => (0, 0),
    };
    let attributes = flags | if is_root { MOUNT_ROOT } else { 0 };
    let attributes_mask = known | MOUNT_ROOT | NOWHERE;
    // Other file systems tell the birth of a file unasked.
    let of_memory = matches!(place, Place::Ino(ino) if k.node.vfs.is_in_memory(ino));
    let hidden = if of_memory && !mask.contains(StatxMask::STATX_BTIME) { STATX_BIRTH } else { 0 };
    let out = |stat: &Stat| {
        let told = statx_out(stat, mount);
        let btime = if hidden == 0 { told.btime } else { StatxTime { sec: 0, nsec: 0, pad: 0 } };
        Statx { attributes, attributes_mask, mask: told.mask & !hidden, btime, ..told }
    };
    let (shown, told) = (out(&stat), out(&timeless(&stat)));
    k.write_stat(buf, &shown, &told)?;
    Ok(0)
}

fn statx_out(stat: &Stat, mount: u32) -> Statx {
    let time = |t: Timestamp| StatxTime { sec: t.secs, nsec: t.nanos, pad: 0 };
    Statx {
        mask: STATX_SHOWN | StatxMask::STATX_MNT_ID.bits() as u32,
        blksize: stat.blksize,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        mode: stat.mode as u16,
        ino: stat.ino.0,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        btime: time(stat.btime),
        ctime: time(stat.ctime),
        mtime: time(stat.mtime),
        rdev_major: stat.rdev.major,
        rdev_minor: stat.rdev.minor,
        dev_major: stat.dev.major,
        dev_minor: stat.dev.minor,
        mnt_id: mount.into(),
        ..Statx::default()
    }
}

/// What a run's digest has of file attributes: all but times. Those of the host's files are no inputs of a run, so that a finding can be
/// replayed in another checkout; those of files that the simulation made follow from its clocks.
fn timeless(stat: &Stat) -> Stat {
    let none = Timestamp::default();
    Stat { atime: none, mtime: none, ctime: none, btime: none, ..*stat }
}

/// access(2).
pub fn access(k: &mut Ctx<'_>, path: Path, mode: u32) -> SysResult {
    faccessat2(k, Fd(c::AT_FDCWD), path, mode, AtFlags::empty())
}

/// faccessat(2) as the kernel has it: without flags.
pub fn faccessat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, mode: u32) -> SysResult {
    faccessat2(k, dirfd, path, mode, AtFlags::empty())
}

/// faccessat2(2).
pub fn faccessat2(k: &mut Ctx<'_>, dirfd: Fd, path: Path, mode: u32, flags: AtFlags) -> SysResult {
    let known = AtFlags::AT_EACCESS | AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_EMPTY_PATH;
    if mode & !7 != 0 || flags.exceeds(known) {
        return err(Errno::EINVAL);
    }
    // "The check is done using the calling process's real UID and GID, rather than the effective IDs" (access(2)).
    let cred = if flags.contains(AtFlags::AT_EACCESS) { k.fs_cred() } else { k.credentials().for_access() };
    let path = k.read_path(path)?;
    let place = if path.is_empty() && flags.contains(AtFlags::AT_EMPTY_PATH) {
        k.fd_place(dirfd)?
    } else {
        k.resolve_as(&cred, dirfd, &path, !flags.contains(AtFlags::AT_SYMLINK_NOFOLLOW))?
    };
    match place {
        Place::Ino(ino) => k.node.vfs.access_ino(ino, &cred, mode)?,
        Place::Synth(synth) => access_synth(k, &synth, &cred, mode)?,
        // Pipes and sockets belong to who made them; there is one user in all but rare cases.
        Place::File(_) => {}
    }
    Ok(0)
}

fn access_synth(k: &Ctx<'_>, synth: &Synth, cred: &Cred, mode: u32) -> Result<(), Errno> {
    let view = View { node: k.node, pid: k.pid, tid: k.tid };
    // Its inodes are S_IMMUTABLE (inode_permission).
    if mode & MAY_WRITE != 0 && synth.tree == Tree::Ns {
        return Err(Errno::EPERM);
    }
    view.permit(synth, cred, mode)?;
    let entry = view.entry(synth).ok_or(Errno::ENOENT)?;
    let parameter = synth.tree == Tree::Proc && synth.path.starts_with(b"sys/");
    if mode & MAY_WRITE != 0 && (synth.tree == Tree::Sys || parameter && !view.may_set()) {
        return Err(Errno::EROFS);
    }
    // No file there has an x bit, and root needs one.
    if mode & MAY_EXEC != 0 && matches!(entry, Entry::File { .. }) {
        return Err(Errno::EACCES);
    }
    Ok(())
}

impl Ctx<'_> {
    /// Status of whatever a path or descriptor names.
    pub(crate) fn place_stat(&self, place: &Place) -> Result<Stat, Errno> {
        match place {
            Place::Ino(ino) => self.node.vfs.stat_ino(*ino),
            Place::Synth(synth) => Ok(self.synth_stat(synth)),
            Place::File(id) => Ok(self.anonymous_stat(*id)),
        }
    }

    /// A place of which the process is gone meanwhile still has an open file: it shows an empty one.
    fn synth_stat(&self, synth: &Synth) -> Stat {
        let view = View { node: self.node, pid: self.pid, tid: self.tid };
        let dev = view.device_of_tree(synth);
        let Some(attr) = view.attr(synth) else {
            return plain(
                dev,
                crate::procfs::inode_number(synth),
                bloodhound_vfs::flags::S_IFREG | 0o444,
                Timestamp::default(),
            );
        };
        let is_dir = matches!(view.entry(synth), Some(Entry::Dir { .. }));
        Stat {
            nlink: if is_dir { 2 } else { 1 },
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blksize: if synth.tree == Tree::Proc { 1024 } else { 4096 },
            ..plain(dev, attr.ino, attr.mode, attr.time)
        }
    }

    /// Pipes, sockets and anonymous inodes live on file systems of their own in Linux (pipefs, sockfs, anon_inodefs).
    fn anonymous_stat(&self, id: FileId) -> Stat {
        let kind = &self.node.files[id].kind;
        let mode = match kind {
            FileKind::Pipe { .. } | FileKind::Console(_) => S_IFIFO | 0o600,
            FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => S_IFSOCK | 0o777,
            _ => 0o600,
        };
        let dev = anonymous_device(kind);
        let time = match kind {
            // Nobody sets the times of a socket (sock_alloc in Linux).
            FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => Timestamp::default(),
            _ => Timestamp::at(self.node.config.epoch_ns, bloodhound_abi::SimTime::ZERO),
        };
        // The file of a POSIX queue is one of mqueuefs, with what the queue was made with.
        if let FileKind::Mq(queue) = kind {
            let made = &self.node.mqueues.all[*queue];
            let named = self.node.mqueues.names.values().any(|id| id == queue);
            let inode = plain(dev, anonymous_ino(kind), bloodhound_vfs::flags::S_IFREG | made.mode, time);
            let (nlink, size) = (u32::from(named), made.file_size);
            return Stat { uid: made.owner.0, gid: made.owner.1, nlink, size, ..inode };
        }
        // All others share one inode, which is root's (anon_inode_inode). The console belongs to whoever the service runs as.
        let cred = &self.credentials().cred;
        let (uid, gid) = match kind {
            FileKind::Console(_) => (cred.uid, cred.gid),
            _ => self.node.files[id].made_by,
        };
        let ino = anonymous_ino(kind);
        let stat = Stat { uid, gid, ..plain(dev, ino, mode, time) };
        match self.node.unnamed.get(&ino).filter(|_| Unnamed::are_kept(kind)) {
            Some(&Unnamed { mode, owner: (uid, gid) }) => {
                Stat { mode: stat.mode & !0o7777 | mode, uid, gid, ..stat }
            }
            None => stat,
        }
    }
}

impl View<'_> {
    /// The device of the file system that a place is on.
    pub(crate) fn device_of(&self, place: &Place) -> Dev {
        match place {
            Place::Ino(ino) => self.node.vfs.stat_ino(*ino).map(|stat| stat.dev).unwrap_or_default(),
            Place::Synth(synth) => self.device_of_tree(synth),
            Place::File(id) => anonymous_device(&self.node.files[*id].kind),
        }
    }

    /// The number of the mount that shows a device; what has no name is on a mount of the kernel's own.
    pub(crate) fn mount_number(&self, dev: Dev) -> u32 {
        if dev == cgroup::DEVICE {
            return cgroup::MOUNT_NUMBER;
        }
        self.node.vfs.mount_of_device(dev).map_or(dev.minor, |mount| mount.0)
    }

    fn device_of_tree(&self, synth: &Synth) -> Dev {
        if synth.tree == Tree::Ns {
            return Dev { major: 0, minor: crate::procfs::nsfs::MINOR };
        }
        if cgroup::has(synth) {
            return cgroup::DEVICE;
        }
        let mounts = self.node.vfs.mounts();
        mounts.iter().find(|m| m.path == synth.tree.root()).map(|m| m.dev).unwrap_or_default()
    }
}

/// That of pipefs, sockfs or anon_inodefs.
fn anonymous_device(kind: &FileKind) -> Dev {
    let minor = match kind {
        FileKind::Pipe { .. } | FileKind::Console(_) => 13,
        FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => 8,
        _ => 14,
    };
    Dev { major: 0, minor }
}

fn plain(dev: Dev, ino: u64, mode: u32, time: Timestamp) -> Stat {
    Stat {
        dev,
        ino: Ino(ino),
        kind: Kind::from_mode(mode).unwrap_or(Kind::Regular),
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: Dev::default(),
        size: 0,
        blksize: 4096,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    }
}

fn stat_out(s: &Stat) -> StatOut {
    let time = |t: Timestamp| Timespec { sec: t.secs, nsec: i64::from(t.nanos) };
    StatOut {
        dev: s.dev.encode(),
        ino: s.ino.0,
        nlink: u64::from(s.nlink),
        mode: s.mode,
        uid: s.uid,
        gid: s.gid,
        rdev: s.rdev.encode(),
        size: s.size as i64,
        blksize: i64::from(s.blksize),
        blocks: s.blocks as i64,
        atime: time(s.atime),
        mtime: time(s.mtime),
        ctime: time(s.ctime),
        ..StatOut::default()
    }
}
