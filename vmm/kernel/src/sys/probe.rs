//! Calls that programs merely probe, where the answer depends on the arguments: chroot(2), pkey_mprotect(2), and descriptors of
//! kinds that nobody can have. Those with one answer for all are lines of the table.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::MAY_EXEC;

use crate::ctx::*;
use crate::path::Place;
use crate::wait::{Stop, SysResult};

/// chroot(2): where absolute paths of the caller begin, and of those that share its place. "This call does not change the current
/// working directory". Into /proc and /sys it stops the run.
pub fn chroot(k: &mut Ctx<'_>, path: Path) -> SysResult {
    const CAP_SYS_CHROOT: u32 = 18;
    let path = k.read_path(path)?;
    let ino = match k.resolve(Fd(c::AT_FDCWD), &path, true)? {
        Place::Ino(ino) => ino,
        Place::Synth(_) => return Err(Stop::Unsupported(format!("chroot to {}", path.escape_ascii()))),
        Place::File(_) => return err(Errno::ENOTDIR),
    };
    if k.node.vfs.kind(ino) != Some(bloodhound_vfs::Kind::Directory) {
        return err(Errno::ENOTDIR);
    }
    let cred = k.fs_cred();
    k.node.vfs.access_ino(ino, &cred, MAY_EXEC)?;
    if !k.capable(CAP_SYS_CHROOT) {
        return err(Errno::EPERM);
    }
    k.node.vfs.hold(ino);
    let old = std::mem::replace(&mut k.place_mut().root, ino);
    k.node.vfs.close_ref(old, false);
    Ok(0)
}

/// iopl(2). EINVAL for a level that there is not; EPERM, as in a container (CAP_SYS_RAWIO).
pub fn iopl(_: &mut Ctx<'_>, level: u32) -> SysResult {
    match level {
        0 => Ok(0),
        1..=3 => err(Errno::EPERM),
        _ => err(Errno::EINVAL),
    }
}

/// ioperm(2). EINVAL for ports that there are not; EPERM, as in a container (CAP_SYS_RAWIO). Nobody has ports to give back.
pub fn ioperm(_: &mut Ctx<'_>, from: u64, num: u64, turn_on: i32) -> SysResult {
    const PORTS: u64 = 65536;
    let end = from.wrapping_add(num);
    match () {
        () if end <= from || end > PORTS => err(Errno::EINVAL),
        () if turn_on != 0 => err(Errno::EPERM),
        () => Ok(0),
    }
}

/// pkey_mprotect(2): "if pkey is -1 [...] the same as mprotect()"; there are no keys.
pub fn pkey_mprotect(k: &mut Ctx<'_>, addr: Ptr, len: u64, prot: Prot, pkey: i32) -> SysResult {
    if pkey == -1 { super::mprotect(k, addr, len, prot) } else { err(Errno::EINVAL) }
}

/// A descriptor of a kind that nobody can have: EBADF, or EINVAL for one of another kind.
fn of_no_kind(k: &Ctx<'_>, fd: Fd) -> SysResult {
    k.file(fd)?;
    err(Errno::EINVAL)
}

/// fanotify_init(2) gives none.
pub fn fanotify_mark(k: &mut Ctx<'_>, fd: Fd, _flags: Hex, _mask: Hex, _dirfd: Fd, _path: Path) -> SysResult {
    of_no_kind(k, fd)
}
