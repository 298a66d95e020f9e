//! Calls that programs merely probe, where the answer depends on the arguments: adjtimex(2), chroot(2), pkey_mprotect(2),
//! and descriptors of kinds that nobody can have. Those with one answer for all are lines of the table.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::MAY_EXEC;

use crate::ctx::*;
use crate::path::Place;
use crate::wait::{Stop, SysResult};

/// struct timex of 208 bytes, as words.
type Timex = [u64; 26];
/// ADJ_ADJTIME with ADJ_OFFSET_SINGLESHOT, and ADJ_OFFSET_READONLY: what is left of an adjtime(3).
const ADJ_ADJTIME: u64 = 0x8000;
const ADJ_SINGLESHOT: u64 = 1;
const ADJ_READONLY: u64 = 0x2000;

/// adjtimex(2): reading is for everybody, setting needs CAP_SYS_TIME. The clock is one that NTP has set.
pub fn adjtimex(k: &mut Ctx<'_>, buf: Ptr) -> SysResult {
    let mut timex: Timex = k.read_obj(buf)?;
    let modes = timex[0] & 0xffff_ffff;
    if modes & ADJ_ADJTIME != 0 {
        if modes & ADJ_SINGLESHOT == 0 {
            return err(Errno::EINVAL);
        }
        if modes & ADJ_READONLY == 0 {
            return err(Errno::EPERM);
        }
    } else if modes != 0 {
        return err(Errno::EPERM);
    }
    let now = k.node.realtime();
    // offset, freq, maxerror and esterror in us; STA_PLL | STA_NANO; constant, precision, tolerance (500 ppm, scaled).
    timex[1..9].copy_from_slice(&[0, 0, 1_000, 100, 0x2001, 7, 1, 32_768_000]);
    // time in seconds and (STA_NANO) nanoseconds; tick of 10 ms in us.
    timex[9..12].copy_from_slice(&[now / 1_000_000_000, now % 1_000_000_000, 10_000]);
    timex[12..21].fill(0);
    k.write_obj(buf, &timex)?;
    // TIME_OK
    Ok(0)
}

/// clock_adjtime(2): CLOCK_REALTIME only; others that can be read have nothing to adjust.
pub fn clock_adjtime(k: &mut Ctx<'_>, clock: i32, buf: Ptr) -> SysResult {
    match clock {
        0 => adjtimex(k, buf),
        1..=9 | 11 => err(Errno::EOPNOTSUPP),
        _ => err(Errno::EINVAL),
    }
}

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
    let cred = k.process().cred.clone();
    k.node.vfs.access_ino(ino, &cred, MAY_EXEC)?;
    if !k.process().caps.has(CAP_SYS_CHROOT) {
        return err(Errno::EPERM);
    }
    k.node.vfs.hold(ino);
    let old = std::mem::replace(&mut k.place_mut().root, ino);
    k.node.vfs.close_ref(old, false);
    Ok(0)
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
