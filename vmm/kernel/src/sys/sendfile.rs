//! Copies between descriptors: sendfile(2), copy_file_range(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;
use crate::wait::SysResult;

/// Bytes moved by one call at most. "Note that a successful call to sendfile() may write fewer bytes than requested; the
/// caller should be prepared to retry the call" (sendfile(2)); large pieces to a slow reader would be read again and
/// again.
const CHUNK: u64 = 256 << 10;
/// The same for copies between files, which never wait.
const COPY: u64 = 1 << 20;

/// An offset argument: where to read or write, and where to store the new value.
enum Offset {
    /// The description's own.
    Own(FileId, u64),
    /// In the caller's memory.
    User(Ptr, u64),
}

impl Offset {
    fn of(k: &mut Ctx<'_>, file: FileId, ptr: Ptr) -> SysResult<Offset> {
        if ptr.is_null() {
            return Ok(Offset::Own(file, k.node.files[file].offset));
        }
        let at: i64 = k.read_obj(ptr)?;
        Ok(Offset::User(ptr, u64::try_from(at).map_err(|_| Errno::EINVAL)?))
    }

    fn at(&self) -> u64 {
        match self {
            Offset::Own(_, at) | Offset::User(_, at) => *at,
        }
    }

    fn advance(self, k: &mut Ctx<'_>, by: u64) -> SysResult<()> {
        match self {
            Offset::Own(file, at) => k.node.files[file].offset = at + by,
            Offset::User(ptr, at) => k.write_obj(ptr, &((at + by) as i64))?,
        }
        Ok(())
    }
}

/// sendfile(2).
pub fn sendfile(k: &mut Ctx<'_>, out: Fd, input: Fd, offset: Ptr, count: u64) -> SysResult {
    let (from, to) = (k.file_id(input)?, k.file_id(out)?);
    let (source, sink) = (&k.node.files[from], &k.node.files[to]);
    if !source.readable() || !sink.writable() {
        return err(Errno::EBADF);
    }
    // "The in_fd argument must correspond to a file which supports mmap(2)-like operations (i.e., it cannot be a
    // socket)".
    if !matches!(source.kind, FileKind::Regular(_) | FileKind::Synthetic { .. } | FileKind::Device { .. }) {
        return err(Errno::EINVAL);
    }
    // "EINVAL: out_fd has the O_APPEND flag set. This is not currently supported by sendfile()."
    if sink.flags & c::O_APPEND != 0 {
        return err(Errno::EINVAL);
    }
    let at = Offset::of(k, from, offset)?;
    if let Offset::User(ptr, _) = at {
        k.check_user(ptr.0, 8, crate::mm::Access::Write)?;
    }
    if i64::try_from(count).is_err() {
        return err(Errno::EINVAL);
    }
    let data = k.read_file(from, count.min(CHUNK), Some(at.at()))?;
    if data.is_empty() {
        return Ok(0);
    }
    // A call that waits is run again from the start: it reads the same bytes, and the write goes on where it was.
    let n = k.write_file(to, &data, None)?;
    at.advance(k, n)?;
    Ok(n)
}

/// copy_file_range(2).
pub fn copy_file_range(
    k: &mut Ctx<'_>,
    input: Fd,
    in_off: Ptr,
    out: Fd,
    out_off: Ptr,
    len: u64,
    flags: Hex,
) -> SysResult {
    let (from, to) = (k.file_id(input)?, k.file_id(out)?);
    // "The flags argument is provided to allow for future extensions and currently must be set to 0."
    if flags.0 != 0 {
        return err(Errno::EINVAL);
    }
    let source = Offset::of(k, from, in_off)?;
    let sink = Offset::of(k, to, out_off)?;
    let inode = |id: FileId| match k.node.files[id].kind {
        FileKind::Regular(ino) => Ok(ino),
        FileKind::Dir(_) | FileKind::SyntheticDir { .. } => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    };
    let (in_ino, out_ino) = (inode(from)?, inode(to)?);
    // "EBADF: One or more file descriptors are not valid [...] or the O_APPEND flag is set for the open file description
    // referred to by the file descriptor fd_out."
    let target = &k.node.files[to];
    if !k.node.files[from].readable() || !target.writable() || target.flags & c::O_APPEND != 0 {
        return err(Errno::EBADF);
    }
    for offset in [&source, &sink] {
        if let Offset::User(ptr, _) = offset {
            k.check_user(ptr.0, 8, crate::mm::Access::Write)?;
        }
        // "EOVERFLOW: The requested source or destination range is too large to represent in the specified data types."
        if offset.at().checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
            return err(Errno::EOVERFLOW);
        }
    }
    // "EINVAL: fd_in and fd_out refer to the same file and the source and target ranges overlap", the source range
    // ending with the file.
    let len = len.min(k.node.vfs.size(in_ino).saturating_sub(source.at()));
    let apart = source.at() + len <= sink.at() || sink.at() + len <= source.at();
    if in_ino == out_ino && !apart {
        return err(Errno::EINVAL);
    }
    let data = k.read_file(from, len.min(COPY), Some(source.at()))?;
    if data.is_empty() {
        return Ok(0);
    }
    let n = k.write_file(to, &data, Some(sink.at()))?;
    source.advance(k, n)?;
    sink.advance(k, n)?;
    Ok(n)
}
