//! Attributes: chmod(2), chown(2), umask(2), utimensat(2) and their kin.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Timespec, Timeval};
use bloodhound_vfs::flags::{S_ISGID, S_ISUID};
use bloodhound_vfs::{FileCap, Ino, SetTime, Stat, Timestamp};

use crate::ctx::*;
use crate::file::{FileKind, Unnamed};
use crate::ids::FileId;
use crate::path::Place;
use crate::procfs::{Change, anonymous_ino};
use crate::wait::SysResult;

const CWD: Fd = Fd(c::AT_FDCWD);
/// utimensat(2).
const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;

impl Ctx<'_> {
    /// The inode of a place whose attributes change. What is in /proc has some that nobody looks at: `None`.
    fn changeable(&self, place: Place, change: Change) -> Result<Option<Ino>, Errno> {
        match place {
            Place::Ino(ino) => return Ok(Some(ino)),
            Place::Synth(synth) => self.view().may_change(&synth, &self.fs_cred(), change)?,
            Place::File(_) => {}
        }
        Ok(None)
    }

    fn chmod_place(&mut self, place: Place, mode: u32) -> SysResult {
        let (cred, now) = (self.fs_cred(), self.now());
        if let Place::File(id) = place {
            return self.change_unnamed(id, |stat| {
                if !cred.has(FileCap::Fowner) && cred.uid != stat.uid {
                    return Err(Errno::EPERM);
                }
                let kept = cred.has(FileCap::Fsetid) || cred.in_group(stat.gid);
                let mode = mode & 0o7777 & if kept { u32::MAX } else { !S_ISGID };
                Ok(Stat { mode: stat.mode & !0o7777 | mode, ..stat })
            });
        }
        if let Some(ino) = self.changeable(place, Change::Mode(mode & 0o7777))? {
            self.node.vfs.chmod(ino, &cred, mode & 0o7777, now)?;
        }
        Ok(0)
    }

    fn chown_place(&mut self, place: Place, uid: u32, gid: u32) -> SysResult {
        // "If the owner or group is specified as -1, then that ID is not changed."
        let id = |id: u32| Some(id).filter(|id| *id != u32::MAX);
        let (cred, now) = (self.fs_cred(), self.now());
        if let Place::File(file) = place {
            let (uid, gid) = (id(uid), id(gid));
            return self.change_unnamed(file, |stat| {
                let owner = cred.uid == stat.uid;
                let others = uid.is_some_and(|uid| !owner || uid != stat.uid)
                    || gid.is_some_and(|gid| !owner || !cred.in_group(gid) && gid != stat.gid);
                if others && !cred.has(FileCap::Chown) {
                    return Err(Errno::EPERM);
                }
                // ATTR_KILL_SUID and ATTR_KILL_SGID, of which the second is for files that a group may execute.
                let drop = S_ISUID | if stat.mode & 0o010 != 0 { S_ISGID } else { 0 };
                let (uid, gid) = (uid.unwrap_or(stat.uid), gid.unwrap_or(stat.gid));
                Ok(Stat { mode: stat.mode & !drop, uid, gid, ..stat })
            });
        }
        if let Some(ino) = self.changeable(place, Change::Owner)? {
            self.node.vfs.chown(ino, &cred, id(uid), id(gid), now)?;
        }
        Ok(0)
    }

    /// Changes attributes of a file that has no name. Those of pipes, sockets and POSIX queues are kept; others share an inode, or have one
    /// that nobody looks at.
    fn change_unnamed(&mut self, id: FileId, change: impl FnOnce(Stat) -> Result<Stat, Errno>) -> SysResult {
        let stat = change(self.place_stat(&Place::File(id))?)?;
        let kind = &self.node.files[id].kind;
        if let FileKind::Mq(queue) = *kind {
            let made = &mut self.node.mqueues.all[queue];
            (made.mode, made.owner) = (stat.mode & 0o7777, (stat.uid, stat.gid));
        } else if Unnamed::are_kept(kind) {
            let changed = Unnamed { mode: stat.mode & 0o7777, owner: (stat.uid, stat.gid) };
            self.node.unnamed.insert(anonymous_ino(kind), changed);
        }
        Ok(0)
    }

    /// The open file behind a descriptor; EBADF for an O_PATH one ("fchmod(2), fchown(2), ... fail with the error
    /// EBADF", open(2)).
    fn open_place(&self, fd: Fd) -> Result<Place, Errno> {
        if self.file(fd)?.flags & c::O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        self.fd_place(fd)
    }
}

/// chmod(2).
pub fn chmod(k: &mut Ctx<'_>, path: Path, mode: u32) -> SysResult {
    fchmodat(k, CWD, path, mode)
}

/// fchmod(2).
pub fn fchmod(k: &mut Ctx<'_>, fd: Fd, mode: u32) -> SysResult {
    let place = k.open_place(fd)?;
    k.chmod_place(place, mode)
}

/// fchmodat(2) as the kernel has it: without flags (fchmodat2(2) is newer than Linux 6.1).
pub fn fchmodat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, mode: u32) -> SysResult {
    let place = k.resolve_arg(dirfd, path, 0)?;
    k.chmod_place(place, mode)
}

/// chown(2).
pub fn chown(k: &mut Ctx<'_>, path: Path, uid: u32, gid: u32) -> SysResult {
    fchownat(k, CWD, path, uid, gid, AtFlags::empty())
}

/// lchown(2).
pub fn lchown(k: &mut Ctx<'_>, path: Path, uid: u32, gid: u32) -> SysResult {
    fchownat(k, CWD, path, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// fchown(2).
pub fn fchown(k: &mut Ctx<'_>, fd: Fd, uid: u32, gid: u32) -> SysResult {
    let place = k.open_place(fd)?;
    k.chown_place(place, uid, gid)
}

/// fchownat(2).
pub fn fchownat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, uid: u32, gid: u32, flags: AtFlags) -> SysResult {
    if flags.exceeds(AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_EMPTY_PATH) {
        return err(Errno::EINVAL);
    }
    let place = k.resolve_arg(dirfd, path, flags.bits())?;
    k.chown_place(place, uid, gid)
}

/// umask(2): "This system call always succeeds and the previous value of the mask is returned."
pub fn umask(k: &mut Ctx<'_>, mask: u32) -> SysResult {
    let old = std::mem::replace(&mut k.place_mut().umask, mask & 0o777);
    Ok(u64::from(old))
}

/// utimensat(2); futimens(3) passes no path.
pub fn utimensat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, times: Ptr, flags: AtFlags) -> SysResult {
    let times = match times.is_null() {
        true => Ok([SetTime::Now; 2]),
        false => {
            let times: Vec<Timespec> = k.read_vec(times.0, 2)?;
            // What is wrong with them is told when the file is found (do_utimes in Linux).
            let [a, b] = [set_time(times[0]), set_time(times[1])];
            match (a, b) {
                (Ok(a), Ok(b)) => Ok([a, b]),
                _ => Err(Errno::EINVAL),
            }
        }
    };
    // "If both tv_nsec fields are specified as UTIME_OMIT, then the Linux implementation of utimensat() succeeds even if
    // the file referred to by dirfd and pathname does not exist."
    if times == Ok([SetTime::Omit; 2]) {
        return Ok(0);
    }
    if path.0 == 0 && dirfd.0 != c::AT_FDCWD {
        if !flags.is_empty() {
            return err(Errno::EINVAL);
        }
        let place = k.open_place(dirfd)?;
        return set_times(k, place, times?);
    }
    if flags.exceeds(AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_EMPTY_PATH) {
        return err(Errno::EINVAL);
    }
    let place = k.resolve_arg(dirfd, path, flags.bits())?;
    set_times(k, place, times?)
}

fn set_time(time: Timespec) -> Result<SetTime, Errno> {
    match time.nsec {
        UTIME_NOW => Ok(SetTime::Now),
        UTIME_OMIT => Ok(SetTime::Omit),
        0..1_000_000_000 => Ok(SetTime::To(Timestamp { secs: time.sec, nanos: time.nsec as u32 })),
        _ => Err(Errno::EINVAL),
    }
}

fn set_times(k: &mut Ctx<'_>, place: Place, [atime, mtime]: [SetTime; 2]) -> SysResult {
    let (cred, now) = (k.fs_cred(), k.now());
    let change = if (atime, mtime) == (SetTime::Now, SetTime::Now) { Change::Touch } else { Change::Times };
    if let Some(ino) = k.changeable(place, change)? {
        k.node.vfs.set_times(ino, &cred, atime, mtime, now)?;
    }
    Ok(0)
}

/// utimes(2).
pub fn utimes(k: &mut Ctx<'_>, path: Path, times: Ptr) -> SysResult {
    futimesat(k, CWD, path, times)
}

/// futimesat(2).
pub fn futimesat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, times: Ptr) -> SysResult {
    let times = match times.is_null() {
        true => [SetTime::Now; 2],
        false => {
            let times: Vec<Timeval> = k.read_vec(times.0, 2)?;
            let to = |t: Timeval| match t.usec {
                0..1_000_000 => Ok(SetTime::To(Timestamp { secs: t.sec, nanos: t.usec as u32 * 1000 })),
                _ => Err(Errno::EINVAL),
            };
            [to(times[0])?, to(times[1])?]
        }
    };
    let place = match path.0 == 0 && dirfd.0 != c::AT_FDCWD {
        true => k.open_place(dirfd)?,
        false => k.resolve_arg(dirfd, path, 0)?,
    };
    set_times(k, place, times)
}

/// utime(2): seconds only.
pub fn utime(k: &mut Ctx<'_>, path: Path, times: Ptr) -> SysResult {
    let times = match times.is_null() {
        true => [SetTime::Now; 2],
        false => {
            let secs: Vec<i64> = k.read_vec(times.0, 2)?;
            [secs[0], secs[1]].map(|secs| SetTime::To(Timestamp { secs, nanos: 0 }))
        }
    };
    let place = k.resolve_arg(CWD, path, 0)?;
    set_times(k, place, times)
}
