//! splice(2), tee(2), vmsplice(2): bytes from and to pipes, a buffer of a pipe at a time.
//!
//! Linux moves references to pages; here bytes are copied, so that a program which changes a file or its memory between both ends
//! does not see its change at the other one. What a call takes of a socket or a device is read as by read(2), into a buffer of
//! the kernel ([`Buffers::kernel`]); what it gives is written as by write(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{IN_ACCESS, IN_MODIFY};

use super::sendfile::{Offset, fill_pipe};
use crate::buffers::{Buffers, MAX_RW, Source};
use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;

use crate::mm::Access;
use crate::pipe::PIPE_BUF;
use crate::wait::{Object, Progress, Stop, SysResult, Wait};

/// An argument for an offset that may be missing.
fn given(ptr: Ptr) -> Option<Ptr> {
    Some(ptr).filter(|ptr| !ptr.is_null())
}

/// splice(2). EINVAL if neither end is a pipe, or both are the same.
pub fn splice(
    k: &mut Ctx<'_>,
    input: Fd,
    in_off: Ptr,
    out: Fd,
    out_off: Ptr,
    len: u64,
    flags: SpliceFlags,
) -> SysResult {
    if len == 0 {
        return Ok(0);
    }
    known(flags)?;
    let (from, to) = (k.pin(input)?, k.pin(out)?);
    let (source, sink) = (k.pipe_of(from), k.pipe_of(to));
    // "ESPIPE: Either off_in or off_out was not NULL, but the corresponding file descriptor refers to a pipe."
    if source.is_some() && given(in_off).is_some() || sink.is_some() && given(out_off).is_some() {
        return err(Errno::ESPIPE);
    }
    // What was read of the program before the call slept: only one end can have an offset.
    let kept = match k.progress() {
        Some(Progress::Sendfile { at, .. }) => Some(*at),
        Some(_) => Some(None),
        None => None,
    };
    // Both are read before it is asked whether an end is a pipe (__do_splice).
    let read = |k: &mut Ctx<'_>, ptr: Option<Ptr>| ptr.map(|ptr| k.read_obj::<u64>(ptr)).transpose();
    let offset = match kept {
        Some(at) => at,
        None => match (read(k, given(out_off))?, read(k, given(in_off))?) {
            (Some(offset), _) | (None, Some(offset)) => Some(offset),
            _ => None,
        },
    };
    let nonblock = |k: &Ctx<'_>, file: FileId| {
        flags.contains(SpliceFlags::SPLICE_F_NONBLOCK) || k.node.files[file].nonblocking()
    };
    if !k.node.files[from].readable() || !k.node.files[to].writable() {
        return err(Errno::EBADF);
    }
    match (source, sink) {
        (Some(source), Some(sink)) if source == sink => err(Errno::EINVAL),
        (Some(source), Some(sink)) => {
            let nonblock = nonblock(k, from) || nonblock(k, to);
            k.ready_to_move(source, sink, nonblock)?;
            let n = k.pipe_to_pipe(source, sink, len);
            k.told_of_copy(from, to, n);
            Ok(n)
        }
        (Some(_), None) => {
            let ptr = given(out_off).unwrap_or(Ptr(0));
            let nonblock = nonblock(k, from);
            drain_pipe(k, (from, to), (ptr, offset), len, (nonblock, flags))
        }
        (None, Some(pipe)) => {
            let nonblock = nonblock(k, to);
            feed_pipe(k, (from, to), pipe, (given(in_off), offset), len.min(MAX_RW), nonblock)
        }
        (None, None) => err(Errno::EINVAL),
    }
}

fn known(flags: SpliceFlags) -> Result<(), Errno> {
    let all = SpliceFlags::SPLICE_F_MOVE
        | SpliceFlags::SPLICE_F_NONBLOCK
        | SpliceFlags::SPLICE_F_MORE
        | SpliceFlags::SPLICE_F_GIFT;
    if flags.exceeds(all) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// From a pipe to what is none: all that is there, up to `len`; it waits for the first byte only.
fn drain_pipe(
    k: &mut Ctx<'_>,
    (from, to): (FileId, FileId),
    (ptr, offset): (Ptr, Option<u64>),
    len: u64,
    (nonblock, flags): (bool, SpliceFlags),
) -> SysResult {
    let kind = k.node.files[to].kind.clone();
    let seekable = matches!(kind, FileKind::Regular(_) | FileKind::Device { .. });
    if offset.is_some() && !seekable {
        return err(Errno::EINVAL);
    }
    // "EINVAL: The target file is opened in append mode."
    if k.node.files[to].flags & c::O_APPEND != 0 || !takes_pages(&kind) {
        return err(Errno::EINVAL);
    }
    let mut at = match offset {
        Some(offset) => Offset::User(ptr, offset),
        None => Offset::Own(to, k.node.files[to].offset),
    };
    // Place and end are looked at before the pipe is (rw_verify_area in do_splice), when the call begins.
    if k.progress().is_none() {
        at.check(len)?;
    }
    let len = len.min(MAX_RW);
    if flags.contains(SpliceFlags::SPLICE_F_MORE) && k.holds_back_datagrams(to) {
        return Err(Stop::Unsupported("splice SPLICE_F_MORE to a datagram socket".into()));
    }
    let FileKind::Pipe { pipe, .. } = k.node.files[from].kind else { return err(Errno::EBADF) };
    let mut done = match k.progress() {
        Some(Progress::Sendfile { done, .. }) => *done,
        _ => 0,
    };
    // Devices leave the offset where it is: splice_write_null (drivers/char/mem.c), and what /dev/urandom is given by iter_file_splice_write.
    let stays = matches!(kind, FileKind::Device { .. });
    let buffers = at_once(&kind);
    while done < len {
        let data = k.node.pipes[pipe].peek(len - done, buffers);
        if data.is_empty() {
            if done > 0 || !k.node.pipes[pipe].has_writers() {
                break;
            }
            if nonblock {
                return err(Errno::EAGAIN);
            }
            let progress = Progress::Sendfile { at: at.given(), done };
            return Err(Wait::object(Object::Pipe(pipe)).progress(progress).into());
        }
        let place = if seekable { Some(at.at()) } else { None };
        let result = k.write_from(to, &Source::Kernel(data), 0, place);
        let (moved, end) = match result {
            Ok(n) => (n, None),
            Err(Stop::Block(sleep)) => match &sleep.progress {
                Progress::Send(message) => (message.done(), Some(Stop::Block(sleep))),
                _ => (0, Some(Stop::Block(sleep))),
            },
            Err(stop) => (0, Some(stop)),
        };
        k.pipe_consume(pipe, moved);
        at.advance(k, if stays { 0 } else { moved })?;
        done += moved;
        let last = end.is_none() && moved == 0;
        if !at.goes_on(done, end)? || last {
            break;
        }
        k.begin_part();
    }
    if done > 0 {
        k.node.tell_file(from, IN_ACCESS);
    }
    Ok(done)
}

/// How many buffers of a pipe are given to a file by one write: sockets take messages of 16 (`splice_to_socket`, since Linux 6.5; of one
/// before). Those of the Internet are told that more follows (MSG_MORE), so that all are one datagram.
fn at_once(kind: &FileKind) -> usize {
    match kind {
        FileKind::Unix(_) | FileKind::Netlink(_) => 16,
        _ => usize::MAX,
    }
}

/// Files with `splice_write`.
pub(super) fn takes_pages(kind: &FileKind) -> bool {
    match kind {
        FileKind::Regular(_)
        | FileKind::Inet(_)
        | FileKind::Unix(_)
        | FileKind::Netlink(_)
        | FileKind::Console(_) => true,
        // Since Linux 5.11 (proc_sys_file_operations).
        FileKind::Synthetic { path, .. } => path.starts_with(b"/proc/sys/"),
        // Not /dev/full.
        FileKind::Device { dev, .. } => dev.major == 1 && dev.minor != 7,
        _ => false,
    }
}

/// Files with `splice_read`.
pub(super) fn gives_pages(kind: &FileKind) -> bool {
    match kind {
        FileKind::Synthetic { path, .. } => is_iterated(path),
        FileKind::Regular(_)
        | FileKind::Inet(_)
        | FileKind::Unix(_)
        | FileKind::Netlink(_)
        | FileKind::Console(_) => true,
        // Not /dev/null.
        FileKind::Device { dev, .. } => dev.major == 1 && dev.minor != 3,
        _ => false,
    }
}

/// Whether a file of /proc or /sys has `read_iter`. Those of a process have not, but for its mounts (proc_mounts_operations), nor have most of networks
/// (proc_net_seq_ops), those of System V IPC (sysvipc_proc_ops) and a few others; files of namespaces, whose paths do not begin with `/`, cannot be read at all.
fn is_iterated(path: &[u8]) -> bool {
    let Some(below) = path.strip_prefix(b"/proc/") else { return path.starts_with(b"/") };
    let mut names = below.split(|byte| *byte == b'/');
    let first = names.next().unwrap_or_default();
    match first.iter().all(u8::is_ascii_digit) {
        true => {
            [&b"mounts"[..], b"mountinfo", b"mountstats"].contains(&names.next_back().unwrap_or_default())
        }
        false => ![&b"net"[..], b"sysvipc", b"swaps", b"config.gz", b"kmsg", b"modules"].contains(&first),
    }
}

/// From what is no pipe to a pipe: what there is room for, once.
pub(super) fn feed_pipe(
    k: &mut Ctx<'_>,
    (from, to): (FileId, FileId),
    pipe: PipeId,
    (ptr, offset): (Option<Ptr>, Option<u64>),
    len: u64,
    nonblock: bool,
) -> SysResult {
    let kind = k.node.files[from].kind.clone();
    let seekable =
        matches!(kind, FileKind::Regular(_) | FileKind::Synthetic { .. } | FileKind::Device { .. });
    if offset.is_some() && !seekable || offset.is_some_and(|at| i64::try_from(at).is_err()) {
        return err(Errno::EINVAL);
    }
    if seekable {
        let at = match (ptr, offset) {
            (Some(ptr), Some(offset)) => Offset::User(ptr, offset),
            _ => Offset::Own(from, k.node.files[from].offset),
        };
        return fill_pipe(k, from, to, pipe, at, (len, nonblock));
    }
    // Who sleeps in the socket has found room before.
    if !matches!(k.progress(), Some(Progress::Receive(_) | Progress::Read(_))) {
        k.wait_for_room(pipe, nonblock, Progress::Sendfile { at: None, done: 0 })?;
    }
    if !gives_pages(&kind) {
        return err(Errno::EINVAL);
    }
    let room = (k.node.pipes[pipe].free_slots() * PIPE_BUF) as u64;
    let is_stream = |id: UnixId| k.node.unix.get(id).kind == crate::unix::Kind::Stream;
    let stream = nonblock && matches!(kind, FileKind::Unix(id) if is_stream(id));
    let status = k.node.files[from].flags;
    // unix_stream_splice_read looks at the call's flag as well, which the pipe's stands for. Other sockets sleep but for their own
    // (sock_splice_read, tcp_splice_read).
    k.node.files[from].flags |= if stream { c::O_NONBLOCK } else { 0 };
    let result = k.read_into(from, &Buffers::kernel(len.min(room.max(1))), None);
    k.node.files[from].flags = status;
    let data = std::mem::take(&mut k.inside);
    match result {
        Ok(_) => {}
        // It waits for more, but what has come is taken.
        Err(Stop::Block(_)) if !data.is_empty() => {}
        Err(stop) => return Err(stop),
    }
    k.pipe_splice(pipe, &data, PIPE_BUF);
    if !data.is_empty() {
        k.node.tell_file(to, IN_MODIFY);
    }
    Ok(data.len() as u64)
}

/// tee(2): copies what is in a pipe to another one, and takes nothing.
pub fn tee(k: &mut Ctx<'_>, input: Fd, out: Fd, len: u64, flags: SpliceFlags) -> SysResult {
    known(flags)?;
    if len == 0 {
        return Ok(0);
    }
    let (from, to) = (k.pin(input)?, k.pin(out)?);
    let (source, sink) = (&k.node.files[from], &k.node.files[to]);
    if !source.readable() || !sink.writable() {
        return err(Errno::EBADF);
    }
    let nonblock =
        flags.contains(SpliceFlags::SPLICE_F_NONBLOCK) || source.nonblocking() || sink.nonblocking();
    match (k.pipe_of(from), k.pipe_of(to)) {
        (Some(source), Some(sink)) if source != sink => {
            k.ready_to_move(source, sink, nonblock)?;
            let n = k.pipe_tee(source, sink, len);
            k.told_of_copy(from, to, n);
            Ok(n)
        }
        _ => err(Errno::EINVAL),
    }
}

/// vmsplice(2): memory into a pipe, as much as there is room for, or what is in a pipe into memory.
pub fn vmsplice(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64, flags: SpliceFlags) -> SysResult {
    known(flags)?;
    let id = k.pin(fd)?;
    let (readable, writable) = (k.node.files[id].readable(), k.node.files[id].writable());
    if !readable && !writable {
        return err(Errno::EBADF);
    }
    let buffers = match k.progress() {
        Some(Progress::Read(buffers) | Progress::Write { source: Source::User(buffers), .. }) => {
            buffers.clone()
        }
        _ => k.read_buffers(iov, count)?,
    };
    if buffers.is_empty() {
        return Ok(0);
    }
    let Some(pipe) = k.pipe_of(id) else { return err(Errno::EBADF) };
    let nonblock = flags.contains(SpliceFlags::SPLICE_F_NONBLOCK);
    let n = if writable {
        k.memory_to_pipe(pipe, buffers, nonblock)?
    } else {
        k.pipe_to_memory(pipe, buffers, nonblock)?
    };
    if n > 0 {
        k.node.tell_file(id, if writable { IN_MODIFY } else { IN_ACCESS });
        k.charge_moved(n);
    }
    Ok(n)
}

impl Ctx<'_> {
    /// Whether MSG_MORE would keep datagrams back.
    fn holds_back_datagrams(&self, file: FileId) -> bool {
        match self.node.files[file].kind {
            FileKind::Inet(id) => self.node.inet.get(&id).is_some_and(|s| s.proto.is_datagram()),
            _ => false,
        }
    }

    /// The pipe of a description.
    fn pipe_of(&self, file: FileId) -> Option<PipeId> {
        match self.node.files[file].kind {
            FileKind::Pipe { pipe, .. } => Some(pipe),
            _ => None,
        }
    }

    fn told_of_copy(&mut self, from: FileId, to: FileId, n: u64) {
        if n > 0 {
            self.node.tell_file(to, IN_MODIFY);
            self.node.tell_file(from, IN_ACCESS);
            self.charge_moved(n);
        }
    }

    /// Waits until a pipe has room for a buffer (`wait_for_space`). SIGPIPE and EPIPE if nobody reads.
    pub(super) fn wait_for_room(
        &mut self,
        pipe: PipeId,
        nonblock: bool,
        progress: Progress,
    ) -> SysResult<()> {
        let p = &self.node.pipes[pipe];
        if !p.has_readers() {
            self.raise_sigpipe();
            return err(Errno::EPIPE);
        }
        match p.free_slots() {
            0 if nonblock => err(Errno::EAGAIN),
            0 => Err(Wait::object(Object::Pipe(pipe)).progress(progress).into()),
            _ => Ok(()),
        }
    }

    /// Waits for something in one pipe and room in the other (`ipipe_prep`, `opipe_prep`).
    fn ready_to_move(&mut self, from: PipeId, to: PipeId, nonblock: bool) -> SysResult<()> {
        let source = &self.node.pipes[from];
        if source.is_empty() && source.has_writers() {
            if nonblock {
                return err(Errno::EAGAIN);
            }
            return Err(Wait::object(Object::Pipe(from)).into());
        }
        self.wait_for_room(to, nonblock, Progress::None)
    }

    /// Each piece of memory within a page takes a buffer of the pipe (`iter_to_pipe`). The pages are copied.
    fn memory_to_pipe(&mut self, pipe: PipeId, from: Buffers, nonblock: bool) -> SysResult {
        let source = Source::User(from.clone());
        self.wait_for_room(pipe, nonblock, Progress::Write { source, done: 0 })?;
        let mut done = 0;
        for (base, len) in from.by_page() {
            if self.node.pipes[pipe].free_slots() == 0 {
                break;
            }
            let mut bytes = vec![0; len as usize];
            if self.accessible(base, len, Access::Read) < len {
                break;
            }
            self.read_bytes(base, &mut bytes)?;
            self.node.pipes[pipe].push_page(bytes);
            done += len;
        }
        if done == 0 {
            return err(Errno::EFAULT);
        }
        self.node.pipe_filled(pipe);
        Ok(done)
    }

    /// What is there, up to the length of the buffers; it waits for the first byte only.
    fn pipe_to_memory(&mut self, pipe: PipeId, to: Buffers, nonblock: bool) -> SysResult {
        let p = &self.node.pipes[pipe];
        if p.is_empty() {
            return match p.has_writers() {
                false => Ok(0),
                true if nonblock => err(Errno::EAGAIN),
                true => Err(Wait::object(Object::Pipe(pipe)).progress(Progress::Read(to)).into()),
            };
        }
        let (mut done, mut freed) = (0, false);
        while done < to.len() {
            let Some(front) = self.node.pipes[pipe].front_part(to.len() - done) else { break };
            let n = front.len() as u64;
            if self.good(&to, done, n, Access::Write) < n {
                break;
            }
            self.copy_out(&to, done, &front)?;
            freed |= self.node.pipes[pipe].consume(n);
            done += n;
        }
        if freed {
            self.node.pipe_drained(pipe);
        }
        if done == 0 {
            return err(Errno::EFAULT);
        }
        Ok(done)
    }
}
