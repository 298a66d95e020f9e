//! Copies between descriptors: sendfile(2), copy_file_range(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{IN_ACCESS, IN_MODIFY};

use super::splice::{feed_pipe, gives_pages, takes_pages};
use crate::buffers::{MAX_RW, Source};
use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;
use crate::pipe::PIPE_BUF;
use crate::transfer::{CONSOLE_WRITE, seekable};
use crate::wait::{Progress, Restart, Stop, SysResult};

/// Bytes moved at once: as much as the pipe holds through which Linux does it (splice_direct_to_actor).
const PIECE: u64 = 64 << 10;

/// An offset argument: where to read or write, and where to store the new value.
pub(super) enum Offset {
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
        Ok(Offset::User(ptr, k.read_obj(ptr)?))
    }

    /// EINVAL for a place or an end of `len` bytes that no signed number says (rw_verify_area).
    pub(super) fn check(&self, len: u64) -> Result<(), Errno> {
        let end = i64::try_from(self.at()).ok().and_then(|at| at.checked_add_unsigned(len));
        if end.is_some() && i64::try_from(len).is_ok() { Ok(()) } else { Err(Errno::EINVAL) }
    }

    pub(super) fn at(&self) -> u64 {
        match self {
            Offset::Own(_, at) | Offset::User(_, at) => *at,
        }
    }

    /// The offset, if the caller has given one.
    pub(super) fn given(&self) -> Option<u64> {
        match self {
            Offset::Own(..) => None,
            Offset::User(_, at) => Some(*at),
        }
    }

    pub(super) fn advance(&mut self, k: &mut Ctx<'_>, by: u64) -> SysResult<()> {
        if by == 0 {
            return Ok(());
        }
        match self {
            Offset::Own(file, at) => {
                *at += by;
                k.node.files[*file].offset = *at;
            }
            Offset::User(ptr, at) => {
                *at += by;
                k.write_obj(*ptr, &(*at as i64))?;
            }
        }
        Ok(())
    }

    /// Whether a transfer that has moved `done` bytes goes on after a piece that ended with `end`. One that sleeps goes on from here.
    pub(super) fn goes_on(&self, done: u64, end: Option<Stop>) -> SysResult<bool> {
        match end {
            None => Ok(true),
            // "If the transfer was successful, the number of bytes written [...] is returned": also of a part.
            Some(Stop::Errno(_)) if done > 0 => Ok(false),
            Some(Stop::Block(sleep)) => {
                let restart = if done > 0 { Restart::Partial(done) } else { sleep.wait.restart };
                let progress = Progress::Sendfile { at: self.given(), done };
                Err(sleep.wait.restart(restart).progress(progress).into())
            }
            Some(stop) => Err(stop),
        }
    }
}

/// sendfile(2).
pub fn sendfile(k: &mut Ctx<'_>, out: Fd, input: Fd, offset: Ptr, count: u64) -> SysResult {
    // What is asked first is what do_sendfile asks first: the offset, the input, the range, the output.
    if k.progress().is_none() && !offset.is_null() {
        let _readable: u64 = k.read_obj(offset)?;
    }
    let from = k.pin(input)?;
    if !k.node.files[from].readable() {
        return err(Errno::EBADF);
    }
    // What earlier runs of this call have moved; the offset has gone along with it.
    let (mut at, mut done) = match k.progress().cloned() {
        Some(Progress::Sendfile { at: Some(at), done }) => (Offset::User(offset, at), done),
        Some(Progress::Sendfile { at: None, done }) => (Offset::of(k, from, Ptr(0))?, done),
        _ => {
            let kind = &k.node.files[from].kind;
            if !offset.is_null()
                && !seekable(kind)
                && !matches!(kind, FileKind::Dir(_) | FileKind::SyntheticDir { .. })
            {
                return err(Errno::ESPIPE);
            }
            let at = Offset::of(k, from, offset)?;
            at.check(count)?;
            (at, 0)
        }
    };
    let to = k.pin(out)?;
    let (source, sink) = (&k.node.files[from], &k.node.files[to]);
    if !sink.writable() {
        return err(Errno::EBADF);
    }
    // "sendfile() will transfer at most 0x7ffff000 (2,147,479,552) bytes".
    let count = count.min(MAX_RW);
    // The place in the output is asked about as that in the input, by who begins (rw_verify_area).
    if k.progress().is_none() {
        Offset::Own(to, k.node.files[to].offset).check(count)?;
    }
    // Into a pipe Linux splices (splice_file_to_pipe), which a socket gives pages for as well.
    if let FileKind::Pipe { pipe, .. } = sink.kind {
        let nonblock = sink.nonblocking();
        let given = at.given();
        return feed_pipe(k, (from, to), pipe, (given.map(|_| offset), given), count, nonblock);
    }
    // "The in_fd argument must correspond to a file which supports mmap(2)-like operations (i.e., it cannot be a
    // socket)".
    let mapped =
        matches!(source.kind, FileKind::Regular(_) | FileKind::Synthetic { .. } | FileKind::Device { .. });
    if !mapped || count > 0 && !gives_pages(&source.kind) {
        return err(Errno::EINVAL);
    }
    // "EINVAL: out_fd has the O_APPEND flag set. This is not currently supported by sendfile()."
    if sink.flags & c::O_APPEND != 0 {
        return err(Errno::EINVAL);
    }
    let mut whole = true;
    while done < count && whole {
        // Only the first piece of a run can have slept, in its middle. It is cut as before, so that a wake-up for nothing finds
        // the same write.
        let within = if k.resumed.is_some() { done % PIECE } else { 0 };
        let piece = PIECE.min(count - done + within);
        let still = has_no_place(&k.node.files[from].kind);
        let place = if still { at.at() } else { at.at() - within };
        let result = move_piece(k, (from, to), place, piece, within, &mut whole);
        let (reached, end) = match result {
            Ok(reached) => (reached, None),
            Err(Stop::Block(sleep)) => {
                let reached = match &sleep.progress {
                    Progress::Write { done, .. } => *done,
                    Progress::Send(message) => message.done(),
                    _ => within,
                };
                (reached, Some(Stop::Block(sleep)))
            }
            Err(stop) => (within, Some(stop)),
        };
        let moved = reached.saturating_sub(within);
        at.advance(k, if still { 0 } else { moved })?;
        done += moved;
        // The end of the file, which may have become longer by what was written, or what takes no more now.
        let last = end.is_none() && (moved == 0 || enough(k, to, done));
        if !at.goes_on(done, end)? || last {
            break;
        }
        k.begin_part();
    }
    // "done: [...] file_accessed(in)", whatever was moved (splice_direct_to_actor).
    k.accessed(from);
    Ok(done)
}

/// From a file to a pipe: splice_file_to_pipe waits until it has room for a page, and fills it once. The pages are those of
/// the file, so that the first one may be short.
pub(super) fn fill_pipe(
    k: &mut Ctx<'_>,
    from: FileId,
    to: FileId,
    pipe: PipeId,
    mut at: Offset,
    (count, nonblock): (u64, bool),
) -> SysResult {
    k.wait_for_room(pipe, nonblock, Progress::Sendfile { at: at.given(), done: 0 })?;
    if !gives_pages(&k.node.files[from].kind) {
        return err(Errno::EINVAL);
    }
    let pages = k.node.pipes[pipe].free_slots() as u64;
    // Only pages of the page cache keep their place in a page; others are filled from their beginning (append_pipe).
    let cached = matches!(k.node.files[from].kind, FileKind::Regular(_));
    let into = if cached { at.at() % PIPE_BUF as u64 } else { 0 };
    at.check(count.min(pages * PIPE_BUF as u64))?;
    let data = read_piece(k, from, at.at(), count.min(pages * PIPE_BUF as u64 - into))?;
    if data.is_empty() {
        if count > 0 {
            k.accessed(from);
        }
        return Ok(0);
    }
    let n = data.len() as u64;
    k.node.tell_file(from, IN_ACCESS);
    k.node.tell_file(to, IN_MODIFY);
    k.pipe_splice(pipe, &data, PIPE_BUF - into as usize);
    k.charge_moved(n);
    at.advance(k, if has_no_place(&k.node.files[from].kind) { 0 } else { n })?;
    Ok(n)
}

/// Whether reading leaves an offset where it is: read_iter_zero and its kind do not move it.
fn has_no_place(kind: &FileKind) -> bool {
    matches!(kind, FileKind::Device { .. })
}

/// Moves the `piece` bytes at `at`, of which `within` were written before the call slept; how many that makes, which is 0 at the
/// end of the file. Those that a write has written before it sleeps are in its [`Progress`]. `whole`: whether the output took all.
fn move_piece(
    k: &mut Ctx<'_>,
    (from, to): (FileId, FileId),
    at: u64,
    piece: u64,
    within: u64,
    whole: &mut bool,
) -> SysResult {
    let data = read_piece(k, from, at, piece)?;
    if data.is_empty() {
        return Ok(0);
    }
    // The bytes go through a pipe of the kernel's, from which the output must be able to take them (do_splice_from).
    let kind = &k.node.files[to].kind;
    if !takes_pages(kind) && !matches!(kind, FileKind::Tty { .. } | FileKind::Synthetic { .. }) {
        return err(Errno::EINVAL);
    }
    let is_file = matches!(kind, FileKind::Regular(_));
    k.node.tell_file(from, IN_ACCESS);
    let len = data.len() as u64;
    let data = Source::Kernel(data);
    let mut reached = k.write_from(to, &data, within, None)?;
    // A file that has taken a part is asked to take the rest: at a limit of its size that is an error of its own, with SIGXFSZ, which only
    // a transfer that has moved nothing tells (iter_file_splice_write).
    if is_file && reached < len {
        let rest = Source::Kernel(k.source_bytes(&data, reached, len - reached)?.into_owned());
        match k.write_from(to, &rest, 0, None) {
            Ok(n) => reached += n,
            Err(Stop::Errno(_)) => {}
            Err(stop) => return Err(stop),
        }
    }
    *whole = reached == len;
    Ok(reached)
}

/// Bytes of the input.
fn read_piece(k: &mut Ctx<'_>, from: FileId, at: u64, piece: u64) -> SysResult<Vec<u8>> {
    let there = k.readable_at(from, at, piece)?;
    let there = k.sectors_give(from, at, there)?;
    k.read_bytes_at(from, there, at)
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
    let mut source = Offset::of(k, from, in_off)?;
    let mut sink = Offset::of(k, to, out_off)?;
    // "The flags argument is provided to allow for future extensions and currently must be set to 0."
    if flags.0 != 0 {
        return err(Errno::EINVAL);
    }
    let directory =
        |id: FileId| matches!(k.node.files[id].kind, FileKind::Dir(_) | FileKind::SyntheticDir { .. });
    if directory(from) || directory(to) {
        return err(Errno::EISDIR);
    }
    let inode = |id: FileId| match k.node.files[id].kind {
        FileKind::Regular(ino) => Ok(Some(ino)),
        // Regular files of file systems of their own.
        FileKind::Mq(_) | FileKind::Synthetic { .. } => Ok(None),
        _ => Err(Errno::EINVAL),
    };
    let (in_ino, out_ino) = (inode(from)?, inode(to)?);
    // "EBADF: One or more file descriptors are not valid [...] or the O_APPEND flag is set for the open file description
    // referred to by the file descriptor fd_out."
    let target = &k.node.files[to];
    if !k.node.files[from].readable() || !target.writable() || target.flags & c::O_APPEND != 0 {
        return err(Errno::EBADF);
    }
    let (in_ino, out_ino) = match (in_ino, out_ino) {
        (Some(from), Some(to)) => (from, to),
        (None, None) => return err(Errno::EINVAL),
        _ => return err(Errno::EXDEV),
    };
    // "EXDEV (since Linux 5.19) The files referred to by fd_in and fd_out are not on the same filesystem": even for no bytes.
    if k.node.vfs.stat_ino(in_ino)?.dev != k.node.vfs.stat_ino(out_ino)?.dev {
        return err(Errno::EXDEV);
    }
    // "EPERM fd_out refers to an immutable file" (generic_copy_file_checks).
    if k.node.vfs.is_immutable(out_ino) {
        return err(Errno::EPERM);
    }
    for offset in [&source, &sink] {
        if let Offset::User(ptr, _) = offset {
            k.check_user(ptr.0, 8, crate::mm::Access::Write)?;
        }
        // "EOVERFLOW: The requested source or destination range is too large to represent": in 64 bits without a sign.
        if offset.at().checked_add(len).is_none() {
            return err(Errno::EOVERFLOW);
        }
    }
    // "EINVAL: [...] refer to the same file and the source and target ranges overlap", the source range ending with the file.
    let len = len.min(k.node.vfs.size(in_ino).saturating_sub(source.at()));
    // Where a file cannot be written nothing is copied, not even no bytes (generic_write_check_limits); the rest of that the write asks.
    let len = k.limited_to(sink.at(), len)?;
    let apart = source.at() + len <= sink.at() || sink.at() + len <= source.at();
    if in_ino == out_ino && !apart {
        return err(Errno::EINVAL);
    }
    // Of what is left then (vfs_copy_file_range asks rw_verify_area behind generic_copy_file_checks).
    source.check(len)?;
    sink.check(len)?;
    let mut done = 0;
    while done < len.min(MAX_RW) {
        let data = read_piece(k, from, source.at(), (len - done).min(PIECE))?;
        if data.is_empty() {
            break;
        }
        k.begin_part();
        k.node.tell_file(from, IN_ACCESS);
        let n = match k.write_from(to, &Source::Kernel(data.clone()), 0, Some(sink.at())) {
            Ok(n) => n,
            Err(Stop::Errno(_)) if done > 0 => break,
            Err(stop) => return Err(stop),
        };
        source.advance(k, n)?;
        sink.advance(k, n)?;
        done += n;
        if n < data.len() as u64 || k.outside.is_given_up() {
            break;
        }
    }
    Ok(done)
}

impl Ctx<'_> {
    /// How many bytes of a copy may be written at a place. EFBIG for a place where no file can have any, with SIGXFSZ if that is for the
    /// limit of the process.
    fn limited_to(&mut self, at: u64, len: u64) -> SysResult {
        // What is no place at all is refused as such, later.
        if at > i64::MAX as u64 {
            return Ok(len);
        }
        if at >= self.process().limits[c::RLIMIT_FSIZE as usize].cur {
            // One byte more than nothing, so that it is refused.
            return self.file_size_limit(at, len.max(1));
        }
        if at >= i64::MAX as u64 {
            return err(Errno::EFBIG);
        }
        self.file_size_limit(at, len)
    }
}

/// Whether a transfer of so many bytes ends although there is more: the console takes no more at once, or the host gives up the run.
fn enough(k: &mut Ctx<'_>, to: FileId, done: u64) -> bool {
    let console = matches!(k.node.files[to].kind, FileKind::Console(_));
    (console && done >= CONSOLE_WRITE) || k.ends_early()
}
