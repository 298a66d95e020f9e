//! Extended attributes (xattr(7)): setxattr(2), getxattr(2), listxattr(2), removexattr(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::{CAPABILITY, Ino};

use crate::caps::{CAP_SETFCAP, CAP_SYS_ADMIN};
use crate::ctx::*;
use crate::file::FileKind;
use crate::path::Place;
use crate::wait::SysResult;

/// "The VFS-imposed limits on extended attribute names are 255 bytes; values 64 kB" (xattr(7)).
const NAME_MAX: usize = 255;
const SIZE_MAX: u64 = 65536;

impl Ctx<'_> {
    fn xattr_path(&mut self, path: Path, follow: bool) -> SysResult<Place> {
        let path = self.read_path(path)?;
        self.resolve(Fd(c::AT_FDCWD), &path, follow)
    }

    fn xattr_fd(&mut self, fd: Fd) -> SysResult<Place> {
        if self.file(fd)?.flags & c::O_PATH != 0 {
            return err(Errno::EBADF);
        }
        Ok(self.fd_place(fd)?)
    }

    /// "ERANGE: The attribute name is too long" or empty.
    fn xattr_name(&mut self, name: Path) -> Result<Vec<u8>, Errno> {
        let name = self.read_cstr(name.0, NAME_MAX, Errno::ERANGE)?;
        if name.is_empty() { Err(Errno::ERANGE) } else { Ok(name) }
    }
}

/// xattr_permission of what lies in no file system, as pipes and sockets: "In the user.* namespace, only regular files and directories
/// can have extended attributes", so that others are refused for writing, and have none for reading. A POSIX queue is a regular file, of
/// which its mode says who may; that mqueuefs has no attributes is found after that.
fn permitted(k: &Ctx<'_>, place: &Place, name: &[u8], write: bool) -> Result<(), Errno> {
    let Place::File(id) = place else { return Ok(()) };
    let guarded = [&b"security."[..], b"system.", b"trusted."].iter().any(|space| name.starts_with(space));
    match k.node.files[*id].kind {
        FileKind::Mq(queue) if !guarded => {
            super::mqueue::may(k, &k.node.mqueues.all[queue], if write { 2 } else { 4 })
        }
        FileKind::Mq(_) => Ok(()),
        _ if name.starts_with(b"user.") => Err(if write { Errno::EPERM } else { Errno::ENODATA }),
        _ => Ok(()),
    }
}

/// The right to change an attribute that no mode guards: "the CAP_SYS_ADMIN capability" for trusted.* and, without a security
/// module, security.* (xattr(7)), CAP_SETFCAP for what a program file gives (cap_inode_setxattr, cap_inode_removexattr).
fn may_change(k: &Ctx<'_>, name: &[u8]) -> Result<(), Errno> {
    let capability = match name {
        CAPABILITY => CAP_SETFCAP,
        _ if name.starts_with(b"trusted.") || name.starts_with(b"security.") => CAP_SYS_ADMIN,
        _ => return Ok(()),
    };
    if k.capable(capability) { Ok(()) } else { Err(Errno::EPERM) }
}

/// EINVAL for what is no `struct vfs_cap_data` of revision 2 or `vfs_ns_cap_data` of revision 3 (validheader in Linux).
fn check_capability(value: &[u8]) -> Result<(), Errno> {
    const EFFECTIVE: u32 = 1;
    let magic = value.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    match (magic & !EFFECTIVE, value.len()) {
        (0x0200_0000, 20) | (0x0300_0000, 24) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Only files of the file system have attributes.
fn inode(place: Place) -> Result<Ino, Errno> {
    match place {
        Place::Ino(ino) => Ok(ino),
        Place::Synth(_) | Place::File(_) => Err(Errno::EOPNOTSUPP),
    }
}

fn set(k: &mut Ctx<'_>, place: Place, name: Path, value: Ptr, size: u64, flags: XattrFlags) -> SysResult {
    if flags.exceeds(XattrFlags::all()) {
        return err(Errno::EINVAL);
    }
    let name = k.xattr_name(name)?;
    if size > SIZE_MAX {
        return err(Errno::E2BIG);
    }
    let mut bytes = vec![0; size as usize];
    k.read_bytes(value.0, &mut bytes)?;
    // An empty value is not looked at, and nobody asks for the right to it ("if (size && [...])", vfs_setxattr).
    let empty = name == CAPABILITY && bytes.is_empty();
    if name == CAPABILITY && !empty {
        check_capability(&bytes)?;
    }
    permitted(k, &place, &name, true)?;
    if !empty {
        may_change(k, &name)?;
    }
    let (cred, now) = (k.fs_cred(), k.now());
    k.node.vfs.set_xattr(inode(place)?, &cred, &name, &bytes, flags.bits() as u32, now)?;
    Ok(0)
}

/// "If size is specified as zero, these calls return the current size of the named extended attribute"; "ERANGE: The size
/// of the value buffer is too small to hold the result."
fn give(k: &mut Ctx<'_>, bytes: &[u8], buf: Ptr, size: u64) -> SysResult {
    if size > 0 {
        if bytes.len() as u64 > size {
            return err(Errno::ERANGE);
        }
        k.write_bytes(buf.0, bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn get(k: &mut Ctx<'_>, place: Place, name: Path, value: Ptr, size: u64) -> SysResult {
    let name = k.xattr_name(name)?;
    permitted(k, &place, &name, false)?;
    if name.starts_with(b"trusted.") && !k.capable(CAP_SYS_ADMIN) {
        return err(Errno::ENODATA);
    }
    let cred = k.fs_cred();
    let bytes = k.node.vfs.get_xattr(inode(place)?, &cred, &name)?;
    give(k, &bytes, value, size)
}

fn list(k: &mut Ctx<'_>, place: Place, buf: Ptr, size: u64) -> SysResult {
    let Place::Ino(ino) = place else { return Ok(0) };
    let admin = k.capable(CAP_SYS_ADMIN);
    let mut names = k.node.vfs.list_xattr(ino)?;
    // "trusted extended attributes ... are visible and accessible only to processes that have the CAP_SYS_ADMIN
    // capability".
    names.retain(|name| admin || !name.starts_with(b"trusted."));
    let bytes: Vec<u8> = names
        .into_iter()
        .flat_map(|mut name| {
            name.push(0);
            name
        })
        .collect();
    give(k, &bytes, buf, size)
}

fn remove(k: &mut Ctx<'_>, place: Place, name: Path) -> SysResult {
    let name = k.xattr_name(name)?;
    permitted(k, &place, &name, true)?;
    may_change(k, &name)?;
    let (cred, now) = (k.fs_cred(), k.now());
    k.node.vfs.remove_xattr(inode(place)?, &cred, &name, now)?;
    Ok(0)
}

/// setxattr(2).
pub fn setxattr(
    k: &mut Ctx<'_>,
    path: Path,
    name: Path,
    value: Ptr,
    size: u64,
    flags: XattrFlags,
) -> SysResult {
    let place = k.xattr_path(path, true)?;
    set(k, place, name, value, size, flags)
}

/// lsetxattr(2).
pub fn lsetxattr(
    k: &mut Ctx<'_>,
    path: Path,
    name: Path,
    value: Ptr,
    size: u64,
    flags: XattrFlags,
) -> SysResult {
    let place = k.xattr_path(path, false)?;
    set(k, place, name, value, size, flags)
}

/// fsetxattr(2).
pub fn fsetxattr(k: &mut Ctx<'_>, fd: Fd, name: Path, value: Ptr, size: u64, flags: XattrFlags) -> SysResult {
    let place = k.xattr_fd(fd)?;
    set(k, place, name, value, size, flags)
}

/// getxattr(2).
pub fn getxattr(k: &mut Ctx<'_>, path: Path, name: Path, value: Ptr, size: u64) -> SysResult {
    let place = k.xattr_path(path, true)?;
    get(k, place, name, value, size)
}

/// lgetxattr(2).
pub fn lgetxattr(k: &mut Ctx<'_>, path: Path, name: Path, value: Ptr, size: u64) -> SysResult {
    let place = k.xattr_path(path, false)?;
    get(k, place, name, value, size)
}

/// fgetxattr(2).
pub fn fgetxattr(k: &mut Ctx<'_>, fd: Fd, name: Path, value: Ptr, size: u64) -> SysResult {
    let place = k.xattr_fd(fd)?;
    get(k, place, name, value, size)
}

/// listxattr(2).
pub fn listxattr(k: &mut Ctx<'_>, path: Path, buf: Ptr, size: u64) -> SysResult {
    let place = k.xattr_path(path, true)?;
    list(k, place, buf, size)
}

/// llistxattr(2).
pub fn llistxattr(k: &mut Ctx<'_>, path: Path, buf: Ptr, size: u64) -> SysResult {
    let place = k.xattr_path(path, false)?;
    list(k, place, buf, size)
}

/// flistxattr(2).
pub fn flistxattr(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, size: u64) -> SysResult {
    let place = k.xattr_fd(fd)?;
    list(k, place, buf, size)
}

/// removexattr(2).
pub fn removexattr(k: &mut Ctx<'_>, path: Path, name: Path) -> SysResult {
    let place = k.xattr_path(path, true)?;
    remove(k, place, name)
}

/// lremovexattr(2).
pub fn lremovexattr(k: &mut Ctx<'_>, path: Path, name: Path) -> SysResult {
    let place = k.xattr_path(path, false)?;
    remove(k, place, name)
}

/// fremovexattr(2).
pub fn fremovexattr(k: &mut Ctx<'_>, fd: Fd, name: Path) -> SysResult {
    let place = k.xattr_fd(fd)?;
    remove(k, place, name)
}
