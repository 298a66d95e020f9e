//! Watches on files and directories: inotify_init(2), inotify_add_watch(2), inotify_rm_watch(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::Kind;
use bloodhound_vfs::flags::*;

use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::InotifyId;
use crate::inotify::{Inotify, MAX_INSTANCES};
use crate::path::Place;
use crate::wait::{Stop, SysResult};

/// Every bit that inotify_add_watch(2) knows (ALL_INOTIFY_BITS of Linux).
const KNOWN: u32 = IN_ALL_EVENTS
    | IN_UNMOUNT
    | IN_Q_OVERFLOW
    | IN_IGNORED
    | IN_ONLYDIR
    | IN_DONT_FOLLOW
    | IN_EXCL_UNLINK
    | IN_MASK_CREATE
    | IN_MASK_ADD
    | IN_ISDIR
    | IN_ONESHOT;

/// inotify_init(2).
pub fn inotify_init(k: &mut Ctx<'_>) -> SysResult {
    inotify_init1(k, FdFlags::empty())
}

/// inotify_init1(2): "EMFILE: The user limit on the total number of inotify instances has been reached."
pub fn inotify_init1(k: &mut Ctx<'_>, flags: FdFlags) -> SysResult {
    if flags.exceeds(FdFlags::O_CLOEXEC | FdFlags::O_NONBLOCK) {
        return err(Errno::EINVAL);
    }
    let uid = k.credentials().cred.uid;
    if k.node.inotifies.iter().filter(|(_, other)| other.uid == uid).count() >= MAX_INSTANCES {
        return err(Errno::EMFILE);
    }
    k.may_have_inotify()?;
    let id = k.node.inotifies.insert(Inotify::new(uid));
    let file = File::new(FileKind::Inotify(id), c::O_RDONLY | flags.bits() & c::O_NONBLOCK);
    Ok(k.open_file(file, flags.contains(FdFlags::O_CLOEXEC))?)
}

/// inotify_add_watch(2).
pub fn inotify_add_watch(k: &mut Ctx<'_>, fd: Fd, path: Path, mask: Hex) -> SysResult {
    let mask = mask.0 as u32;
    // "EINVAL: The given event mask contains no valid events; or mask contains both IN_MASK_ADD and IN_MASK_CREATE; or fd is
    // not an inotify file descriptor."
    if mask & KNOWN == 0 {
        return err(Errno::EINVAL);
    }
    k.file(fd)?;
    if mask & IN_MASK_ADD != 0 && mask & IN_MASK_CREATE != 0 {
        return err(Errno::EINVAL);
    }
    let id = instance(k, fd)?;
    let path = k.read_path(path)?;
    let ino = match k.resolve(Fd(c::AT_FDCWD), &path, mask & IN_DONT_FOLLOW == 0)? {
        Place::Ino(ino) => ino,
        _ => return Err(Stop::Unsupported(format!("inotify_add_watch on {}", path.escape_ascii()))),
    };
    if mask & IN_ONLYDIR != 0 && k.node.vfs.kind(ino) != Some(Kind::Directory) {
        return err(Errno::ENOTDIR);
    }
    // "EACCES: Read access to the given file is not permitted."
    let cred = k.fs_cred();
    k.node.vfs.access_ino(ino, &cred, MAY_READ)?;
    k.inotify_watch(id, ino, mask)
}

/// inotify_rm_watch(2).
pub fn inotify_rm_watch(k: &mut Ctx<'_>, fd: Fd, watch: i32) -> SysResult {
    let id = instance(k, fd)?;
    k.inotify_unwatch(id, watch)
}

fn instance(k: &Ctx<'_>, fd: Fd) -> SysResult<InotifyId> {
    match k.file(fd)?.kind {
        FileKind::Inotify(id) => Ok(id),
        _ => err(Errno::EINVAL),
    }
}
