//! Directories: getdents64(2), getcwd(2), chdir(2), mkdir(2), rmdir(2).

use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{IN_ACCESS, MAY_EXEC};
use bloodhound_vfs::{At, Ctx as VfsCtx, Ino, Kind, Outcome, Vfs};

use crate::ctx::*;
use crate::file::FileKind;
use crate::mm::Access;
use crate::path::{Place, Reached, Synth, cwd_place};
use crate::procfs::{Entry, View};
use crate::wait::SysResult;

/// Bytes before the name in a `struct linux_dirent64`; in a `struct linux_dirent`, whose kind is its last byte, one less.
const HEADER: usize = 19;
/// Entries fetched at once; enough for a buffer of 32 KiB, which is what glibc uses.
const BATCH: usize = 1400;

/// getdents64(2).
pub fn getdents64(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64) -> SysResult {
    list(k, fd, buf, count, Record::Dirent64)
}

/// getdents(2), the call of before: glibc and musl use the other one.
pub fn getdents(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64) -> SysResult {
    list(k, fd, buf, count, Record::Dirent)
}

/// An entry: name, inode number, kind, and the offset of the next one.
type Listed = (Vec<u8>, u64, u8, u64);

/// Which structure an entry is stored in. Both are equally long: number, offset, length, name with its end, and the kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Record {
    /// `struct linux_dirent64`: the kind lies before the name.
    Dirent64,
    /// `struct linux_dirent`: "d_type [...] is located at the offset (d_reclen - 1)" (getdents(2)).
    Dirent,
}

impl Record {
    /// Adds an entry of `length` bytes.
    fn store(self, (name, ino, kind, next): &Listed, length: usize, out: &mut Vec<u8>) {
        let end = out.len() + length;
        out.extend_from_slice(&ino.to_le_bytes());
        out.extend_from_slice(&next.to_le_bytes());
        out.extend_from_slice(&(length as u16).to_le_bytes());
        if self == Record::Dirent64 {
            out.push(*kind);
        }
        out.extend_from_slice(name);
        out.resize(end, 0);
        if self == Record::Dirent {
            out[end - 1] = *kind;
        }
    }
}

fn list(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64, record: Record) -> SysResult {
    let id = k.file_id(fd)?;
    let file = &k.node.files[id];
    // An O_PATH descriptor of /proc is one of these with the flag.
    if file.flags & c::O_PATH != 0 {
        return err(Errno::EBADF);
    }
    let offset = file.offset;
    if offset == 0 {
        k.begin_listing(id);
    }
    // The count is an unsigned int.
    let room = (count & 0xffff_ffff) as usize;
    let entries: Vec<Listed> = match &k.node.files[id].kind {
        FileKind::Dir(ino) => {
            let (ino, now) = (*ino, k.now());
            let limit = (room / (HEADER + 5) + 1).min(BATCH);
            let list = k.node.vfs.read_dir(k.outside.base, ino, offset, limit)?;
            if k.node.files[id].flags & c::O_NOATIME == 0 {
                k.node.vfs.accessed(ino, now);
            }
            k.node.vfs.tell(ino, IN_ACCESS);
            list.into_iter().map(|e| (e.name.to_vec(), e.ino.0, e.kind.dirent_type(), e.next)).collect()
        }
        FileKind::SyntheticDir { entries, .. } => {
            let from = (offset as usize).min(entries.len());
            let rest = entries[from..].iter().take(BATCH).enumerate();
            rest.map(|(i, (name, ino, kind))| (name.clone(), *ino, *kind, (from + i + 1) as u64)).collect()
        }
        _ => return err(Errno::ENOTDIR),
    };
    let mut out = Vec::new();
    let mut ends = Vec::new();
    for entry in &entries {
        let length = (HEADER + entry.0.len() + 1).next_multiple_of(8);
        if out.len() + length > room {
            // "EINVAL: Result buffer is too small."
            if out.is_empty() {
                return err(Errno::EINVAL);
            }
            break;
        }
        record.store(entry, length, &mut out);
        ends.push((out.len(), entry.3));
    }
    // A record that cannot be stored ends the listing, and the next one begins with it; EFAULT if it is the first
    // (filldir64).
    let room = k.accessible(buf.0, out.len() as u64, Access::Write);
    let whole = ends.iter().rfind(|(end, _)| *end as u64 <= room);
    if let (None, false) = (whole, out.is_empty()) {
        return err(Errno::EFAULT);
    }
    let (len, last) = whole.copied().unwrap_or((0, offset));
    out.truncate(len);
    k.write_bytes(buf.0, &out)?;
    k.node.files[id].offset = last;
    k.charge_moved(out.len() as u64);
    Ok(out.len() as u64)
}

/// getcwd(2): the length with the NUL.
pub fn getcwd(k: &mut Ctx<'_>, buf: Ptr, size: u64) -> SysResult {
    let cwd = cwd_place(k.place());
    let view = View { node: k.node, pid: k.pid, tid: k.tid };
    // "ENOENT: The current working directory has been unlinked."
    let gone = match &cwd {
        Place::Ino(ino) => k.node.vfs.is_removed(*ino),
        Place::Synth(at) => view.entry(at).is_none(),
        Place::File(_) => true,
    };
    if gone {
        return err(Errno::ENOENT);
    }
    // "If the current directory is not below the root directory of the current process [...], then [...] the returned path will be
    // prefixed with the string "(unreachable)"".
    let root = k.place().root;
    let mut path = match &cwd {
        Place::Ino(ino) => k.node.vfs.path_of(root, *ino),
        _ if root != k.node.vfs.root() => [b"(unreachable)", &view.name_of(&cwd)[..]].concat(),
        _ => view.name_of(&cwd),
    };
    path.push(0);
    if path.len() > 4096 {
        return err(Errno::ENAMETOOLONG);
    }
    if path.len() as u64 > size {
        return err(Errno::ERANGE);
    }
    k.write_bytes(buf.0, &path)?;
    Ok(path.len() as u64)
}

/// chdir(2).
pub fn chdir(k: &mut Ctx<'_>, path: Path) -> SysResult {
    let path = k.read_path(path)?;
    let place = k.resolve(Fd(c::AT_FDCWD), &path, true)?;
    k.change_dir(place)
}

/// fchdir(2); also on O_PATH descriptors.
pub fn fchdir(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    k.fd(fd)?;
    let place = k.fd_place(fd)?;
    k.change_dir(place)
}

impl Ctx<'_> {
    fn change_dir(&mut self, place: Place) -> SysResult {
        let ino = match place {
            Place::Ino(ino) => ino,
            Place::File(_) => return err(Errno::ENOTDIR),
            Place::Synth(at) => {
                let cred = self.fs_cred();
                let view = View { node: self.node, pid: self.pid, tid: self.tid };
                match view.entry(&at) {
                    Some(Entry::Dir { .. }) => view.permit(&at, &cred, MAY_EXEC)?,
                    Some(_) => return err(Errno::ENOTDIR),
                    None => return err(Errno::ENOENT),
                }
                self.place_mut().cwd_synthetic = Some(Arc::new(at.absolute()));
                return Ok(0);
            }
        };
        if self.node.vfs.stat_ino(ino)?.kind != Kind::Directory {
            return err(Errno::ENOTDIR);
        }
        let cred = self.fs_cred();
        self.node.vfs.access_ino(ino, &cred, MAY_EXEC)?;
        self.node.vfs.hold(ino);
        let old = std::mem::replace(&mut self.place_mut().cwd, ino);
        self.node.vfs.close_ref(old, false);
        self.place_mut().cwd_synthetic = None;
        Ok(0)
    }

    /// A VFS operation that makes (`make`) or removes a name. What is in /proc and /sys can be neither.
    pub(crate) fn name_op<T>(
        &mut self,
        dirfd: Fd,
        path: &[u8],
        make: bool,
        op: impl FnMut(&mut Vfs, &mut VfsCtx<'_>, At<'_>) -> Outcome<T>,
    ) -> SysResult<T> {
        match self.at(dirfd, path, false, op)? {
            Reached::Done(value) => Ok(value),
            Reached::At(_) if make => err(Errno::EEXIST),
            Reached::At(Place::Synth(Synth { path, .. })) if path.is_empty() => err(Errno::EBUSY),
            Reached::At(_) => err(Errno::EPERM),
        }
    }
}

/// mkdir(2).
pub fn mkdir(k: &mut Ctx<'_>, path: Path, mode: u32) -> SysResult {
    mkdirat(k, Fd(c::AT_FDCWD), path, mode)
}

/// mkdirat(2).
pub fn mkdirat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, mode: u32) -> SysResult {
    let path = k.read_path(path)?;
    let _made: Ino = k.name_op(dirfd, &path, true, |vfs, ctx, at| vfs.mkdir(ctx, at, mode))?;
    Ok(0)
}

/// rmdir(2).
pub fn rmdir(k: &mut Ctx<'_>, path: Path) -> SysResult {
    let path = k.read_path(path)?;
    k.name_op(Fd(c::AT_FDCWD), &path, false, |vfs, ctx, at| vfs.rmdir(ctx, at))?;
    Ok(0)
}

#[cfg(test)]
mod storm;
#[cfg(test)]
mod tests;
