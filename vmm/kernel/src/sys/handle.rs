//! File handles: name_to_handle_at(2), open_by_handle_at(2). Files of tmpfs have them, as on Linux; an overlay file system gives none.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::Ino;

use crate::caps::CAP_DAC_READ_SEARCH;
use crate::ctx::*;
use crate::path::Place;
use crate::wait::SysResult;

/// MAX_HANDLE_SZ.
const LONGEST: u32 = 128;
/// FILEID_INO32_GEN, under which tmpfs has its own form: a generation and the halves of the inode's number.
const KIND: u32 = 1;
const SIZE: u32 = 12;

impl Ctx<'_> {
    /// The mount of a file whose file system gives handles.
    fn exporting(&self, ino: Ino) -> Result<u32, Errno> {
        let dev = self.node.vfs.stat_ino(ino).map_err(|_| Errno::ESTALE)?.dev;
        let mounts = self.node.vfs.mounts();
        let mount = mounts.iter().find(|m| m.dev == dev).filter(|m| m.fstype == "tmpfs");
        mount.map(|m| m.id.0).ok_or(Errno::EOPNOTSUPP)
    }
}

/// name_to_handle_at(2). EOVERFLOW with the size that is needed, EOPNOTSUPP.
pub fn name_to_handle_at(
    k: &mut Ctx<'_>,
    dirfd: Fd,
    path: Path,
    handle: Ptr,
    mount: Ptr,
    flags: AtFlags,
) -> SysResult {
    if flags.exceeds(AtFlags::AT_SYMLINK_FOLLOW | AtFlags::AT_EMPTY_PATH) {
        return err(Errno::EINVAL);
    }
    // "By default, [...] does not dereference pathname if it is a symbolic link": the opposite flag of the other calls.
    let follow = flags.contains(AtFlags::AT_SYMLINK_FOLLOW);
    let rest = flags.bits() & c::AT_EMPTY_PATH | if follow { 0 } else { c::AT_SYMLINK_NOFOLLOW };
    let Place::Ino(ino) = k.resolve_arg(dirfd, path, rest)? else { return err(Errno::EOPNOTSUPP) };
    let id = k.exporting(ino)?;
    let [room, _]: [u32; 2] = k.read_obj(handle)?;
    if room > LONGEST {
        return err(Errno::EINVAL);
    }
    let fits = room >= SIZE;
    let words = [SIZE, if fits { KIND } else { 255 }, 0, ino.0 as u32, (ino.0 >> 32) as u32];
    k.write_obj(mount, &id)?;
    for (at, word) in words.iter().enumerate().take(if fits { 5 } else { 2 }) {
        k.write_obj(Ptr(handle.0.wrapping_add(4 * at as u64)), word)?;
    }
    if fits { Ok(0) } else { err(Errno::EOVERFLOW) }
}

/// open_by_handle_at(2). EPERM without CAP_DAC_READ_SEARCH, ESTALE for a handle of no file that is there.
pub fn open_by_handle_at(k: &mut Ctx<'_>, mount: Fd, handle: Ptr, flags: OpenFlags) -> SysResult {
    if !k.capable(CAP_DAC_READ_SEARCH) {
        return err(Errno::EPERM);
    }
    let [size, kind]: [u32; 2] = k.read_obj(handle)?;
    if size > LONGEST || size == 0 {
        return err(Errno::EINVAL);
    }
    let mut bytes = vec![0; size as usize];
    k.read_bytes(handle.0.wrapping_add(8), &mut bytes)?;
    let beside = k.fd_place(mount)?;
    if mount != Fd(c::AT_FDCWD) && k.file(mount)?.flags & c::O_PATH != 0 {
        return err(Errno::EBADF);
    }
    let word = |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let ino = Ino(u64::from(word(8)) << 32 | u64::from(word(4)));
    if size < SIZE || kind != KIND || k.node.vfs.stat_ino(ino).is_err() || k.exporting(ino).is_err() {
        return err(Errno::ESTALE);
    }
    // The handle is looked up in the file system that `mount` is in.
    let device = k.node.vfs.stat_ino(ino)?.dev;
    if k.view().device_of(&beside) != device {
        return err(Errno::ESTALE);
    }
    k.open_inode(ino, flags.bits())
}
