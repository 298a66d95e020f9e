//! Names: unlink(2), rename(2), link(2), symlink(2), readlink(2), mknod(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::{At, Dev, Ino, Kind};

use crate::caps::CAP_DAC_READ_SEARCH;
use crate::ctx::*;
use crate::path::{Place, done};
use crate::wait::SysResult;

const CWD: Fd = Fd(c::AT_FDCWD);

/// unlink(2).
pub fn unlink(k: &mut Ctx<'_>, path: Path) -> SysResult {
    unlinkat(k, CWD, path, AtFlags::empty())
}

/// unlinkat(2).
pub fn unlinkat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, flags: AtFlags) -> SysResult {
    if flags.exceeds(AtFlags::AT_REMOVEDIR) {
        return err(Errno::EINVAL);
    }
    let path = k.read_path(path)?;
    if flags.contains(AtFlags::AT_REMOVEDIR) {
        k.name_op(dirfd, &path, false, |vfs, ctx, at| vfs.rmdir(ctx, at))?;
    } else {
        k.name_op(dirfd, &path, false, |vfs, ctx, at| vfs.unlink(ctx, at))?;
    }
    Ok(0)
}

/// rename(2).
pub fn rename(k: &mut Ctx<'_>, old: Path, new: Path) -> SysResult {
    renameat2(k, CWD, old, CWD, new, RenameFlags::empty())
}

/// renameat(2).
pub fn renameat(k: &mut Ctx<'_>, olddir: Fd, old: Path, newdir: Fd, new: Path) -> SysResult {
    renameat2(k, olddir, old, newdir, new, RenameFlags::empty())
}

/// renameat2(2).
pub fn renameat2(
    k: &mut Ctx<'_>,
    olddir: Fd,
    old: Path,
    newdir: Fd,
    new: Path,
    flags: RenameFlags,
) -> SysResult {
    let flags = u32::try_from(flags.bits()).unwrap_or(u32::MAX);
    if !bloodhound_vfs::rename_flags(flags) {
        return err(Errno::EINVAL);
    }
    let old = k.read_path(old)?;
    let (old_dir, old) = k.locate(olddir, &old)?;
    let old = At { dir: old_dir, path: &old };
    // The directory of the old name is looked up before anything is known of the new one (do_renameat2 in Linux).
    let located = k.read_path(new).map_err(Into::into).and_then(|new| k.locate(newdir, &new));
    let (new_dir, new) = match located {
        Ok(located) => located,
        Err(wrong) => {
            done(k.fs(|vfs, ctx| vfs.find_parent(ctx, old)))?;
            return Err(wrong);
        }
    };
    let new = At { dir: new_dir, path: &new };
    done(k.fs(|vfs, ctx| vfs.rename(ctx, old, new, flags)))?;
    Ok(0)
}

/// link(2): "POSIX.1-2001 says that link() should dereference oldpath if it is a symbolic link. However, since Linux
/// 2.0, Linux does not do so".
pub fn link(k: &mut Ctx<'_>, old: Path, new: Path) -> SysResult {
    linkat(k, CWD, old, CWD, new, AtFlags::empty())
}

/// linkat(2).
pub fn linkat(k: &mut Ctx<'_>, olddir: Fd, old: Path, newdir: Fd, new: Path, flags: AtFlags) -> SysResult {
    if flags.exceeds(AtFlags::AT_SYMLINK_FOLLOW | AtFlags::AT_EMPTY_PATH) {
        return err(Errno::EINVAL);
    }
    let old = k.read_path(old)?;
    let place = if old.is_empty() && flags.contains(AtFlags::AT_EMPTY_PATH) {
        // "The caller must have the CAP_DAC_READ_SEARCH capability in order to use this flag."
        if !k.credentials().caps.has(CAP_DAC_READ_SEARCH) {
            return err(Errno::ENOENT);
        }
        k.fd_place(olddir)?
    } else {
        k.resolve(olddir, &old, flags.contains(AtFlags::AT_SYMLINK_FOLLOW))?
    };
    // The new name is looked at when the old one was found (do_linkat in Linux).
    let new = k.read_path(new)?;
    let Place::Ino(ino) = place else { return err(Errno::EXDEV) };
    k.name_op(newdir, &new, true, |vfs, ctx, at| vfs.link_ino(ctx, ino, at))?;
    Ok(0)
}

/// symlink(2).
pub fn symlink(k: &mut Ctx<'_>, target: Path, link: Path) -> SysResult {
    symlinkat(k, target, CWD, link)
}

/// symlinkat(2).
pub fn symlinkat(k: &mut Ctx<'_>, target: Path, newdir: Fd, link: Path) -> SysResult {
    let target = k.read_path(target)?;
    // An empty target is ENOENT before anything is looked up (getname).
    if target.is_empty() {
        return err(Errno::ENOENT);
    }
    let link = k.read_path(link)?;
    let _made: Ino = k.name_op(newdir, &link, true, |vfs, ctx, at| vfs.symlink(ctx, &target, at))?;
    Ok(0)
}

/// readlink(2).
pub fn readlink(k: &mut Ctx<'_>, path: Path, buf: Ptr, size: u64) -> SysResult {
    readlinkat(k, CWD, path, buf, size)
}

/// readlinkat(2): "readlink() does not append a terminating null byte to buf. It will (silently) truncate the contents".
pub fn readlinkat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, buf: Ptr, size: u64) -> SysResult {
    // "EINVAL: bufsiz is not positive"; it is an int.
    let size = usize::try_from(size as i32).ok().filter(|n| *n > 0).ok_or(Errno::EINVAL)?;
    let path = k.read_path(path)?;
    // "If pathname is an empty string, then the call operates on the symbolic link referred to by dirfd (which should
    // have been obtained using open(2) with the O_PATH and O_NOFOLLOW flags)."
    let place = if path.is_empty() { k.fd_place(dirfd)? } else { k.resolve(dirfd, &path, false)? };
    let not_a_link = if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL };
    let mut target = match place {
        Place::Ino(ino) => {
            let now = k.now();
            k.node.vfs.readlink_ino(ino, now).map_err(|_| not_a_link)?.to_vec()
        }
        Place::Synth(synth) => k.view().readlink(&synth)?,
        Place::File(_) => return err(not_a_link),
    };
    target.truncate(size);
    k.write_bytes(buf.0, &target)?;
    Ok(target.len() as u64)
}

/// mknod(2).
pub fn mknod(k: &mut Ctx<'_>, path: Path, mode: u32, dev: u64) -> SysResult {
    mknodat(k, CWD, path, mode, dev)
}

/// mknodat(2).
pub fn mknodat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, mode: u32, dev: u64) -> SysResult {
    // "mode requested creation of something other than a regular file, device special file, FIFO or socket".
    match Kind::from_mode(mode) {
        Some(Kind::Directory) => return err(Errno::EPERM),
        Some(Kind::Symlink) | None => return err(Errno::EINVAL),
        _ => {}
    }
    let path = k.read_path(path)?;
    // The argument is an unsigned int (new_decode_dev in Linux).
    let dev = Dev::decode(dev & 0xffff_ffff);
    let _made: Ino = k.name_op(dirfd, &path, true, |vfs, ctx, at| vfs.mknod(ctx, at, mode, dev))?;
    Ok(0)
}
