//! Reading, writing and descriptors: read(2), write(2), lseek(2), dup(2), close(2), fcntl(2), ioctl(2), pipe(2),
//! eventfd(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Iovec, Siginfo, SignalfdSiginfo};
use bloodhound_vfs::BaseFs;
use zerocopy::{FromZeros, IntoBytes};

use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;
use crate::node::{ConsoleChunk, Node};
use crate::wait::{Object, SysResult, Wait};

/// Linux moves at most this much at once (MAX_RW_COUNT).
const MAX_RW: u64 = 0x7fff_f000;
/// UIO_MAXIOV.
const IOV_MAX: u64 = 1024;

impl Node {
    /// One reference to a description less; the last one closes it.
    pub fn file_unref(&mut self, id: FileId, base: &mut dyn BaseFs) {
        let file = &mut self.files[id];
        file.refs -= 1;
        if file.refs > 0 {
            return;
        }
        if let Some(object) = file.object() {
            self.epoll_forget_file(object, id);
        }
        self.release_locks_of_file(id);
        let Some(file) = self.files.remove(id) else { return };
        let writer = file.writable();
        match file.kind {
            FileKind::Regular(ino) => self.vfs.close_ref(ino, writer),
            FileKind::Dir(ino) | FileKind::Path(ino) | FileKind::Device { ino, .. } => {
                self.vfs.close_ref(ino, false);
            }
            FileKind::Pipe { pipe, read, write, ino } => {
                self.close_pipe_end(pipe, read, write);
                if let Some(ino) = ino {
                    self.vfs.close_ref(ino, false);
                }
            }
            FileKind::Inet(socket) => self.close_inet(socket),
            FileKind::Unix(socket) => self.close_unix(socket, base),
            FileKind::Event(event) => drop(self.events.remove(event)),
            FileKind::TimerFd(timer) => {
                if let Some(t) = self.timerfds.remove(timer) {
                    self.rearm(crate::timer::TimerKey::TimerFd(timer), t.schedule.next, None);
                }
            }
            FileKind::SignalFd(s) => drop(self.signalfds.remove(s)),
            FileKind::Epoll(ep) => self.epoll_close(ep),
            FileKind::Console(_) | FileKind::Synthetic { .. } | FileKind::SyntheticDir { .. } => {}
        }
    }
}

impl Ctx<'_> {
    /// Reads up to `max` bytes at the description's offset (or `at`).
    pub(crate) fn read_file(&mut self, id: FileId, max: u64, at: Option<u64>) -> SysResult<Vec<u8>> {
        let file = &self.node.files[id];
        if !file.readable() {
            return err(Errno::EBADF);
        }
        let (kind, nonblock, offset) = (file.kind.clone(), file.nonblocking(), at.unwrap_or(file.offset));
        let max = max.min(MAX_RW) as usize;
        let seekable =
            matches!(kind, FileKind::Regular(_) | FileKind::Synthetic { .. } | FileKind::Device { .. });
        if at.is_some() && !seekable {
            return err(if matches!(kind, FileKind::Dir(_) | FileKind::SyntheticDir { .. }) {
                Errno::EISDIR
            } else {
                Errno::ESPIPE
            });
        }
        // Character devices have no position (null(4), random(4)).
        let device = matches!(kind, FileKind::Device { .. });
        let data = match kind {
            FileKind::Regular(ino) => {
                let data = self.read_inode(ino, offset, max)?;
                if self.node.files[id].flags & c::O_NOATIME == 0 && !data.is_empty() {
                    let now = self.now();
                    self.node.vfs.accessed(ino, now);
                }
                data
            }
            FileKind::Synthetic { data, .. } => {
                let data = if offset == 0 { self.refresh_synthetic(id)? } else { data };
                let from = (offset as usize).min(data.len());
                data[from..(from + max).min(data.len())].to_vec()
            }
            FileKind::Device { dev, .. } => self.device_read(dev, max)?,
            FileKind::Dir(_) | FileKind::SyntheticDir { .. } => return err(Errno::EISDIR),
            FileKind::Path(_) => return err(Errno::EBADF),
            FileKind::Pipe { pipe, .. } => self.pipe_read(pipe, max, nonblock)?,
            FileKind::Inet(_) | FileKind::Unix(_) => self.socket_read(id, max, nonblock)?,
            FileKind::Event(event) => self.eventfd_read(event, max, nonblock)?,
            FileKind::TimerFd(timer) => self.timerfd_read(timer, max, nonblock)?,
            FileKind::SignalFd(s) => self.signalfd_read(s, max, nonblock)?,
            FileKind::Epoll(_) => return err(Errno::EINVAL),
            FileKind::Console(_) => self.console_read(max)?,
        };
        if at.is_none() && seekable && !device {
            self.node.files[id].offset = offset + data.len() as u64;
        }
        self.charge_bytes(data.len() as u64);
        Ok(data)
    }

    fn read_inode(&mut self, ino: bloodhound_vfs::Ino, offset: u64, max: usize) -> SysResult<Vec<u8>> {
        let size = self.node.vfs.size(ino);
        let n = size.saturating_sub(offset).min(max as u64) as usize;
        let mut out = vec![0; n];
        let got = self.node.vfs.read_at(ino, offset, &mut out)?;
        out.truncate(got);
        Ok(out)
    }

    fn timerfd_read(&mut self, id: TimerFdId, max: usize, nonblock: bool) -> SysResult<Vec<u8>> {
        if max < 8 {
            return err(Errno::EINVAL);
        }
        let timer = &mut self.node.timerfds[id];
        if timer.expired == 0 {
            if nonblock {
                return err(Errno::EAGAIN);
            }
            return Err(Wait::object(Object::TimerFd(id)).into());
        }
        Ok(std::mem::take(&mut timer.expired).to_le_bytes().to_vec())
    }

    fn signalfd_read(&mut self, id: SignalFdId, max: usize, nonblock: bool) -> SysResult<Vec<u8>> {
        let size = size_of::<SignalfdSiginfo>();
        if max < size {
            return err(Errno::EINVAL);
        }
        let mask = self.node.signalfds[id].mask;
        let mut out = Vec::new();
        while out.len() + size <= max {
            let info = match self.task_mut().pending.take(mask) {
                Some(i) => Some(i),
                None => self.process_mut().pending.take(mask),
            };
            let Some(info) = info else { break };
            let mut s = SignalfdSiginfo::new_zeroed();
            (s.signo, s.errno, s.code) = (info.signo as u32, info.errno, info.code);
            describe(&mut s, &info);
            out.extend_from_slice(s.as_bytes());
        }
        if !out.is_empty() {
            return Ok(out);
        }
        if nonblock {
            return err(Errno::EAGAIN);
        }
        Err(Wait::object(Object::SignalFd(id)).into())
    }

    /// Writes at the description's offset (or `at`), honouring O_APPEND.
    pub(crate) fn write_file(&mut self, id: FileId, data: &[u8], at: Option<u64>) -> SysResult {
        let file = &self.node.files[id];
        if !file.writable() {
            return err(Errno::EBADF);
        }
        let (kind, nonblock, offset) = (file.kind.clone(), file.nonblocking(), file.offset);
        let append = file.flags & c::O_APPEND != 0;
        self.charge_bytes(data.len() as u64);
        match kind {
            FileKind::Regular(ino) => {
                // "POSIX requires that opening a file with the O_APPEND flag should have no effect on the location at
                // which pwrite() writes data. However, on Linux ... appends data" (pwrite(2), BUGS).
                let from = if append { self.node.vfs.size(ino) } else { at.unwrap_or(offset) };
                let n = self.write_inode(ino, from, data)?;
                if at.is_none() {
                    self.node.files[id].offset = from + n;
                }
                // O_SYNC contains this bit.
                if self.node.files[id].flags & c::O_DSYNC != 0 {
                    self.sync_inode(ino)?;
                }
                Ok(n)
            }
            _ if at.is_some() && !matches!(kind, FileKind::Device { .. }) => err(Errno::ESPIPE),
            FileKind::Device { dev, .. } => self.device_write(dev, data),
            FileKind::Pipe { pipe, .. } => self.pipe_write(pipe, data, nonblock),
            FileKind::Inet(_) | FileKind::Unix(_) => self.socket_write(id, data, nonblock),
            FileKind::Event(event) => self.eventfd_write(event, data, nonblock),
            FileKind::Console(stream) => {
                let (at, pid) = (self.now(), self.pid);
                self.node.console.push(ConsoleChunk { at, pid, stream, bytes: data.to_vec() });
                Ok(data.len() as u64)
            }
            FileKind::Synthetic { path, .. } => self.synthetic_write(&path, data),
            FileKind::Dir(_) | FileKind::SyntheticDir { .. } | FileKind::Path(_) => err(Errno::EBADF),
            FileKind::TimerFd(_) | FileKind::SignalFd(_) | FileKind::Epoll(_) => err(Errno::EINVAL),
        }
    }

    /// Writes file data and drops platform mappings of pages that moved. RLIMIT_FSIZE: EFBIG and SIGXFSZ.
    pub(crate) fn write_inode(&mut self, ino: bloodhound_vfs::Ino, from: u64, data: &[u8]) -> SysResult {
        let limit = self.process().limits[c::RLIMIT_FSIZE as usize].cur;
        let mut data = data;
        if limit != u64::MAX && from.saturating_add(data.len() as u64) > limit {
            if from >= limit && !data.is_empty() {
                let info = crate::signal::user_info(c::SIGXFSZ as u32, 0, self.pid, 0);
                self.node.send_task(self.tid, info);
                return err(Errno::EFBIG);
            }
            data = &data[..(limit - from) as usize];
        }
        self.may_store(ino, from, data.len() as u64)?;
        let now = self.now();
        let n = self.node.vfs.write_at(ino, from, data, now)?;
        self.node.drop_moved_pages();
        Ok(n as u64)
    }

    pub(crate) fn read_iovecs(&mut self, iov: Ptr, count: u64) -> SysResult<Vec<Iovec>> {
        if count > IOV_MAX {
            return err(Errno::EINVAL);
        }
        let iovs: Vec<Iovec> = self.read_vec(iov.0, count as usize)?;
        let mut total = 0u64;
        for v in &iovs {
            if v.len > i64::MAX as u64 {
                return err(Errno::EINVAL);
            }
            total = total.checked_add(v.len).filter(|t| *t <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
        }
        Ok(iovs)
    }

    /// Gathers what the vectors hold, up to MAX_RW.
    pub(crate) fn gather(&mut self, iovs: &[Iovec]) -> SysResult<Vec<u8>> {
        let mut out = Vec::new();
        for v in iovs {
            let n = v.len.min(MAX_RW - out.len() as u64) as usize;
            let at = out.len();
            // Check before allocating: a wild length must be EFAULT, not an allocation of 2 GiB.
            self.check_user(v.base, n as u64, crate::mm::Access::Read)?;
            out.resize(at + n, 0);
            self.read_bytes(v.base, &mut out[at..])?;
        }
        Ok(out)
    }

    /// Scatters `data` over the vectors.
    pub(crate) fn scatter(&mut self, iovs: &[Iovec], data: &[u8]) -> SysResult<()> {
        let mut at = 0;
        for v in iovs {
            let n = (v.len as usize).min(data.len() - at);
            self.write_bytes(v.base, &data[at..at + n])?;
            at += n;
        }
        Ok(())
    }

    fn read_vectors(&mut self, fd: Fd, iov: Ptr, count: u64, at: Option<u64>) -> SysResult {
        let id = self.file_id(fd)?;
        let iovs = self.read_iovecs(iov, count)?;
        for v in &iovs {
            self.check_user(v.base, v.len.min(MAX_RW), crate::mm::Access::Write)?;
        }
        let total = iovs.iter().map(|v| v.len).sum::<u64>();
        let data = self.read_file(id, total, at)?;
        self.scatter(&iovs, &data)?;
        Ok(data.len() as u64)
    }

    fn write_vectors(&mut self, fd: Fd, iov: Ptr, count: u64, at: Option<u64>) -> SysResult {
        let id = self.file_id(fd)?;
        let iovs = self.read_iovecs(iov, count)?;
        let data = self.gather(&iovs)?;
        self.write_file(id, &data, at)
    }
}

impl Node {
    /// Tells address spaces about file pages whose frames changed.
    pub fn drop_moved_pages(&mut self) {
        for ino in self.vfs.take_copied_up() {
            self.forget_pristine(ino);
        }
        for moved in self.vfs.take_moved() {
            self.invalidate_file(moved.ino, moved.index * crate::mm::PAGE, crate::mm::PAGE);
        }
    }
}

pub fn read(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64) -> SysResult {
    let id = k.file_id(fd)?;
    k.check_user(buf.0, count.min(MAX_RW), crate::mm::Access::Write).or_else(|e| {
        // A short file with a long count is common; only what is read must be writable.
        if count > 4096 { Ok(()) } else { Err(e) }
    })?;
    let data = k.read_file(id, count, None)?;
    k.write_bytes(buf.0, &data)?;
    Ok(data.len() as u64)
}

pub fn write(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64) -> SysResult {
    let id = k.file_id(fd)?;
    if !k.node.files[id].writable() {
        return err(Errno::EBADF);
    }
    let data = k.gather(&[Iovec { base: buf.0, len: count }])?;
    k.write_file(id, &data, None)
}

pub fn pread64(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64, offset: i64) -> SysResult {
    let at = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let id = k.file_id(fd)?;
    let data = k.read_file(id, count, Some(at))?;
    k.write_bytes(buf.0, &data)?;
    Ok(data.len() as u64)
}

pub fn pwrite64(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64, offset: i64) -> SysResult {
    let at = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let id = k.file_id(fd)?;
    let data = k.gather(&[Iovec { base: buf.0, len: count }])?;
    k.write_file(id, &data, Some(at))
}

pub fn readv(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64) -> SysResult {
    k.read_vectors(fd, iov, count, None)
}

pub fn writev(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64) -> SysResult {
    k.write_vectors(fd, iov, count, None)
}

pub fn preadv(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64, lo: u64, _hi: u64) -> SysResult {
    if (lo as i64) < 0 {
        return err(Errno::EINVAL);
    }
    k.read_vectors(fd, iov, count, Some(lo))
}

pub fn pwritev(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64, lo: u64, _hi: u64) -> SysResult {
    if (lo as i64) < 0 {
        return err(Errno::EINVAL);
    }
    k.write_vectors(fd, iov, count, Some(lo))
}

pub fn preadv2(
    k: &mut Ctx<'_>,
    fd: Fd,
    iov: Ptr,
    count: u64,
    lo: u64,
    _hi: u64,
    flags: RwFlags,
) -> SysResult {
    k.check_rw_flags(fd, flags)?;
    // "If offset is -1, the current file offset is used and updated."
    k.read_vectors(fd, iov, count, if lo == u64::MAX { None } else { Some(lo) })
}

pub fn pwritev2(
    k: &mut Ctx<'_>,
    fd: Fd,
    iov: Ptr,
    count: u64,
    lo: u64,
    _hi: u64,
    flags: RwFlags,
) -> SysResult {
    k.check_rw_flags(fd, flags)?;
    let (mut at, kind) = (if lo == u64::MAX { None } else { Some(lo) }, k.file(fd)?.kind.clone());
    let FileKind::Regular(ino) = kind else { return k.write_vectors(fd, iov, count, at) };
    if flags.contains(RwFlags::RWF_APPEND) {
        // "The offset argument does not affect the write operation; the data is always appended to the end of the file.
        // However, if the offset argument is -1, the current file offset is updated."
        let end = k.node.vfs.size(ino);
        if at.is_none() {
            k.file_mut(fd)?.offset = end;
        } else {
            at = Some(end);
        }
    }
    let n = k.write_vectors(fd, iov, count, at)?;
    if n > 0 && flags.intersects(RwFlags::RWF_DSYNC | RwFlags::RWF_SYNC) {
        k.sync_inode(ino)?;
    }
    Ok(n)
}

impl Ctx<'_> {
    /// "EOPNOTSUPP: An unknown flag is specified in flags." Files never wait, so RWF_NOWAIT means nothing for them;
    /// other kinds do not know it.
    fn check_rw_flags(&self, fd: Fd, flags: RwFlags) -> SysResult<()> {
        let regular = matches!(self.file(fd)?.kind, FileKind::Regular(_));
        let known = if regular { RwFlags::all() } else { RwFlags::all() - RwFlags::RWF_NOWAIT };
        if flags.exceeds(known) { err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }
}

/// The fields of a signal's kind, as signalfd_copyinfo chooses them.
fn describe(s: &mut SignalfdSiginfo, info: &Siginfo) {
    let [first, second] = [info.fields[0], info.fields[1]];
    let signo = info.signo as u64;
    let kernel = c::SI_KERNEL as i32;
    match info.code {
        code if code == c::SI_TIMER as i32 => {
            (s.tid, s.overrun) = (first as u32, (first >> 32) as u32);
            (s.ptr, s.int) = (second, second as i32);
        }
        code if code > 0 && code != kernel && signo == c::SIGCHLD => {
            (s.pid, s.uid, s.status) = (first as u32, (first >> 32) as u32, second as i32);
            (s.utime, s.stime) = (info.fields[2], info.fields[3]);
        }
        code if code > 0 && matches!(signo, c::SIGSEGV | c::SIGBUS | c::SIGILL | c::SIGFPE | c::SIGTRAP) => {
            s.addr = first;
        }
        code => {
            (s.pid, s.uid) = (first as u32, (first >> 32) as u32);
            // The value of sigqueue(3) and its kind.
            if code < 0 && code != c::SI_TKILL as i32 {
                (s.ptr, s.int) = (second, second as i32);
            }
        }
    }
}

pub fn lseek(k: &mut Ctx<'_>, fd: Fd, offset: i64, whence: u32) -> SysResult {
    let file = k.file(fd)?;
    let (kind, current) = (file.kind.clone(), file.offset);
    let size = match &kind {
        FileKind::Regular(ino) => k.node.vfs.size(*ino),
        FileKind::Synthetic { .. }
        | FileKind::Dir(_)
        | FileKind::SyntheticDir { .. }
        | FileKind::Device { .. } => 0,
        _ => return err(Errno::ESPIPE),
    };
    // /dev/null, zero and full: "Seeks on [them] always succeed" and leave the offset 0 (the kernel's null_lseek).
    if let FileKind::Device { dev, .. } = &kind
        && dev.major == 1
        && matches!(dev.minor, 3 | 5 | 7)
    {
        return Ok(0);
    }
    let base = match u64::from(whence) {
        c::SEEK_SET => 0,
        c::SEEK_CUR => current,
        c::SEEK_END => size,
        c::SEEK_DATA | c::SEEK_HOLE => {
            let FileKind::Regular(ino) = kind else { return err(Errno::EINVAL) };
            let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let at = if u64::from(whence) == c::SEEK_DATA {
                k.node.vfs.seek_data(ino, from)?
            } else {
                k.node.vfs.seek_hole(ino, from)?
            };
            k.file_mut(fd)?.offset = at;
            return Ok(at);
        }
        _ => return err(Errno::EINVAL),
    };
    let to = (base as i64).checked_add(offset).filter(|t| *t >= 0).ok_or(Errno::EINVAL)? as u64;
    k.file_mut(fd)?.offset = to;
    Ok(to)
}
