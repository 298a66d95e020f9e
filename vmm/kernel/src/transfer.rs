//! Bytes between programs and descriptions: what read(2) and write(2) do to each kind of file.
//!
//! [`Ctx::read_into`] and [`Ctx::write_from`] are the ways of the calls; [`Ctx::read_bytes_at`] and [`Ctx::write_inode`] those of
//! copies within the kernel. The objects behind descriptions have their own modules; sockets are in `sys::message`.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::Ino;
use bloodhound_vfs::flags::{IN_ACCESS, IN_MODIFY, TMPFS_MAGIC};

use crate::buffers::{Buffers, MAX_RW, Source};
use crate::ctx::*;
use crate::file::{FileKind, shows_log};
use crate::ids::*;
use crate::mm::Access;
use crate::node::{ConsoleChunk, Node};
use crate::procfs::Shows;
use crate::sys::reads_writes;
use crate::wait::{Object, Restart, Stop, SysResult, Wait};

/// A transfer is made in pieces of no more bytes: the size of a call's buffer must not decide how much memory the host needs for it.
const PIECE: u64 = 4 << 20;
/// No more bytes are taken for the console by one write(2), as where a pipe's reader leaves after them.
pub(crate) const CONSOLE_WRITE: u64 = 16 << 20;

/// How many times as much a byte costs that goes to the console.
const CONSOLE_COST: u64 = 8;

/// Whether a kind of file has a place at which to read: pread(2) of others is ESPIPE.
pub(crate) fn seekable(kind: &FileKind) -> bool {
    let text = matches!(kind, FileKind::Synthetic { .. } | FileKind::Mq(_));
    text || matches!(kind, FileKind::Regular(_) | FileKind::Device { .. })
}

/// The end of what is asked for is a place in a file as well (rw_verify_area in Linux).
fn verify_area(at: u64, len: u64) -> Result<(), Errno> {
    let end = at.checked_add(len).filter(|end| *end <= i64::MAX as u64);
    end.map(|_| ()).ok_or(Errno::EINVAL)
}

impl Ctx<'_> {
    /// Reads into buffers of the program, at the description's offset (or `at`).
    ///
    /// Where a buffer is bad in its middle, files give the part before it. What hands out a number or a record (eventfd(2),
    /// timerfd_create(2)) has given it away when it turns out that the buffer is bad, as on Linux.
    pub(crate) fn read_into(&mut self, id: FileId, to: &Buffers, at: Option<u64>) -> SysResult {
        let file = &self.node.files[id];
        if !file.readable() {
            return err(Errno::EBADF);
        }
        let (kind, nonblock) = (file.kind.clone(), file.nonblocking());
        if at.is_some() && !seekable(&kind) {
            let dir = matches!(kind, FileKind::Dir(_) | FileKind::SyntheticDir { .. });
            return err(if dir { Errno::EISDIR } else { Errno::ESPIPE });
        }
        let max = to.len().min(MAX_RW) as usize;
        let n = match kind {
            FileKind::Synthetic { ref path, .. } if shows_log(path) => match (max, nonblock) {
                (_, true) => return err(Errno::EAGAIN),
                (0, false) => 0,
                // As syslog(2) with SYSLOG_ACTION_READ.
                _ => return Err(Wait::until(None).into()),
            },
            FileKind::Regular(_) | FileKind::Synthetic { .. } | FileKind::Device { .. } | FileKind::Mq(_) => {
                return self.read_seekable(id, to, at);
            }
            FileKind::Dir(_) | FileKind::SyntheticDir { .. } => return err(Errno::EISDIR),
            FileKind::Path(_) => return err(Errno::EBADF),
            FileKind::Epoll(_) | FileKind::Process(_) | FileKind::Listener(_) => return err(Errno::EINVAL),
            FileKind::Pipe { pipe, ino, .. } => {
                let n = self.pipe_read(pipe, to, nonblock)?;
                if n > 0 && ino.is_some() {
                    self.accessed(id);
                }
                n
            }
            FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => return self.socket_read(id, to),
            FileKind::SignalFd(s) => self.signalfd_read(s, to, nonblock)?,
            FileKind::Event(event) => {
                let data = self.eventfd_read(event, max, nonblock)?;
                self.copy_out(to, 0, &data)?;
                data.len() as u64
            }
            FileKind::Inotify(id) => {
                let data = self.inotify_read(id, to, nonblock)?;
                self.copy_out(to, 0, &data)?;
                data.len() as u64
            }
            FileKind::TimerFd(timer) => {
                let data = self.timerfd_read(timer, max, nonblock)?;
                self.copy_out(to, 0, &data)?;
                data.len() as u64
            }
            FileKind::Tty { .. } => self.tty_read(&kind, to, nonblock)?,
            FileKind::Console(_) if max == 0 => 0,
            FileKind::Console(_) => {
                let ready = self.console_ready(max, nonblock)? as u64;
                let good = self.good_bytes(to, 0, ready, Access::Write)?;
                let data = self.console_take(good as usize)?;
                self.copy_out(to, 0, &data)?;
                data.len() as u64
            }
        };
        if n > 0 {
            self.node.tell_file(id, IN_ACCESS);
        }
        self.charge_moved(n);
        Ok(n)
    }

    fn read_seekable(&mut self, id: FileId, to: &Buffers, at: Option<u64>) -> SysResult {
        let offset = at.unwrap_or(self.node.files[id].offset);
        verify_area(offset, to.len())?;
        let there = self.readable_at(id, offset, to.len().min(MAX_RW))?;
        let there = self.sectors_give(id, offset, there)?;
        let lies = if there > 0 { self.disk_gives(id)? } else { None };
        // A read that fails has accessed the file as well.
        let good = self.good_bytes(to, 0, there, Access::Write).inspect_err(|_| self.accessed(id))?;
        if there == 0 && (!to.is_empty() || self.is_on_tmpfs(id)) {
            // Who finds the end has accessed the file as well (file_accessed); on tmpfs also who asks for nothing (shmem_file_read_iter),
            // for which other file systems "skip atime".
            self.accessed(id);
        }
        let mut n = 0;
        loop {
            let most = (good - n).min(PIECE);
            let mut data = self.read_bytes_at(id, most, offset + n)?;
            if n == 0
                && let Some(nth) = lies
            {
                self.disk_gives_other(id, nth, &mut data);
            }
            self.copy_out(to, n, &data)?;
            n += data.len() as u64;
            if n == good || (data.len() as u64) < most || self.ends_early() {
                break;
            }
        }
        // Character devices have no position (null(4), random(4)).
        if at.is_none() && !matches!(self.node.files[id].kind, FileKind::Device { .. }) {
            self.node.files[id].offset = offset + n;
        }
        if n > 0 {
            self.node.tell_file(id, IN_ACCESS);
        }
        self.charge_moved(n);
        Ok(n)
    }

    /// How many of `max` bytes a file of the file system has at an offset.
    pub(crate) fn readable_at(&mut self, id: FileId, offset: u64, max: u64) -> SysResult {
        if let FileKind::Synthetic { path, .. } = &self.node.files[id].kind
            && let Some(whose) = self.memory_file(&path.clone())
        {
            return Ok(self.read_memory(whose, offset, max as usize)?.len() as u64);
        }
        let end = match &self.node.files[id].kind {
            FileKind::Regular(ino) => self.node.vfs.size(*ino),
            // Made where nothing is made yet as well: read at an offset first (traverse() in seq_file.c).
            FileKind::Synthetic { data, .. } if offset == 0 || data.is_empty() => {
                self.refresh_synthetic(id)?.len() as u64
            }
            FileKind::Synthetic { data, .. } => data.len() as u64,
            FileKind::Device { dev, .. } => return self.device_readable(*dev, max),
            FileKind::Mq(id) => self.mq_status(*id).len() as u64,
            _ => 0,
        };
        Ok(end.saturating_sub(offset).min(max))
    }

    /// Reads up to `max` bytes of a file of the file system. The description's offset is neither used nor changed.
    pub(crate) fn read_bytes_at(&mut self, id: FileId, max: u64, offset: u64) -> SysResult<Vec<u8>> {
        match self.node.files[id].kind.clone() {
            FileKind::Regular(ino) => {
                let data = self.read_inode(ino, offset, max as usize)?;
                if !data.is_empty() {
                    self.accessed(id);
                }
                Ok(data)
            }
            FileKind::Synthetic { path, .. } if self.memory_file(&path).is_some() => {
                let whose = self.memory_file(&path).ok_or(Errno::EIO)?;
                self.read_memory(whose, offset, max as usize)
            }
            FileKind::Synthetic { data, .. } => {
                let from = (offset as usize).min(data.len());
                Ok(data[from..(from + max as usize).min(data.len())].to_vec())
            }
            FileKind::Device { dev, .. } => self.device_read(dev, max as usize),
            FileKind::Mq(id) => {
                let text = self.mq_status(id).into_bytes();
                let from = (offset as usize).min(text.len());
                Ok(text[from..(from + max as usize).min(text.len())].to_vec())
            }
            _ => err(Errno::EINVAL),
        }
    }

    /// A regular file has been read or mapped by this description, or a fifo read.
    pub(crate) fn accessed(&mut self, id: FileId) {
        let file = &self.node.files[id];
        if let FileKind::Regular(ino) | FileKind::Pipe { ino: Some(ino), .. } = file.kind
            && file.flags & c::O_NOATIME == 0
        {
            let now = self.now();
            self.node.vfs.accessed(ino, now);
        }
    }

    /// Whether a description is of a regular file of a tmpfs.
    pub(crate) fn is_on_tmpfs(&self, id: FileId) -> bool {
        let FileKind::Regular(ino) = self.node.files[id].kind else { return false };
        self.node.vfs.statfs_ino(ino).is_ok_and(|fs| fs.magic == TMPFS_MAGIC)
    }

    fn read_inode(&mut self, ino: Ino, offset: u64, max: usize) -> SysResult<Vec<u8>> {
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
        // "If clock has changed, we do not care about the ticks and we do not rearm the timer. Userspace must reevaluate anyway"
        // (timerfd_read_iter).
        if std::mem::take(&mut timer.cancelled) {
            timer.expired = 0;
            if std::mem::take(&mut timer.waits) {
                timer.schedule.next = None;
            }
            return err(Errno::ECANCELED);
        }
        if timer.expired == 0 {
            if nonblock {
                return err(Errno::EAGAIN);
            }
            return Err(Wait::object(Object::TimerFd(id)).into());
        }
        self.node.go_on_timerfd(id);
        // "it is possible for a read(2) [...] to return 0 (i.e., no bytes read)" where the clock was set back (timerfd_create(2)).
        match std::mem::take(&mut self.node.timerfds[id].expired) {
            0 if nonblock => err(Errno::EAGAIN),
            0 => Ok(Vec::new()),
            count => Ok(count.to_le_bytes().to_vec()),
        }
    }

    /// Writes at the description's offset (or `at`), honouring O_APPEND. `done` bytes were written before the call slept.
    pub(crate) fn write_from(&mut self, id: FileId, from: &Source, done: u64, at: Option<u64>) -> SysResult {
        let file = &self.node.files[id];
        if !file.writable() {
            return err(Errno::EBADF);
        }
        let (kind, nonblock, flags) = (file.kind.clone(), file.nonblocking(), file.flags);
        let n = match kind {
            FileKind::Regular(ino) => self.write_regular(id, ino, from, at)?,
            _ if at.is_some() && !matches!(kind, FileKind::Device { .. } | FileKind::Synthetic { .. }) => {
                return err(Errno::ESPIPE);
            }
            // The devices of memory take what they are given without a look at it (the kernel's write_null, write_full).
            FileKind::Device { dev, .. } => {
                let len = if reads_writes(dev) { self.source_len(from)? } else { from.len() };
                self.device_write(dev, len)?
            }
            FileKind::Pipe { pipe, ino, .. } => {
                let result = self.pipe_write(pipe, from, done, flags);
                // Also one that sleeps has, of which an interruption says how much.
                let some = match &result {
                    Ok(n) => *n > 0,
                    Err(Stop::Block(sleep)) => matches!(sleep.wait.restart, Restart::Partial(1..)),
                    Err(_) => false,
                };
                if let Some(ino) = ino.filter(|_| some) {
                    self.node.vfs.written(ino, self.now())?;
                }
                result?
            }
            FileKind::Tty { .. } => self.tty_write(&kind, from, done, nonblock)?,
            FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => {
                return self.socket_write(id, from, done);
            }
            FileKind::Event(event) => self.eventfd_write(event, from, done, nonblock)?,
            FileKind::Console(stream) => {
                let bytes = self.source_part(from, CONSOLE_WRITE)?;
                let (at, pid, n) = (self.node.clock, self.pid, bytes.len() as u64);
                let (container, check) = (self.container().id, self.process().is_check);
                self.node.console.push(ConsoleChunk { at, container, pid, stream, check, bytes });
                // An engine reads the pipe, and stores the lines.
                self.charge_moved(n.saturating_mul(CONSOLE_COST));
                n
            }
            FileKind::Synthetic { path, .. } => match self.memory_file(&path) {
                Some((tid, Shows::Bytes)) => self.write_memory(id, tid, from, at)?,
                _ => {
                    let data = self.source_bytes(from, 0, from.len())?;
                    self.synthetic_write(&path, &data)?
                }
            },
            FileKind::Dir(_) | FileKind::SyntheticDir { .. } | FileKind::Path(_) => return err(Errno::EBADF),
            FileKind::TimerFd(_)
            | FileKind::SignalFd(_)
            | FileKind::Epoll(_)
            | FileKind::Process(_)
            | FileKind::Inotify(_)
            | FileKind::Listener(_)
            | FileKind::Mq(_) => {
                return err(Errno::EINVAL);
            }
        };
        if n > 0 {
            self.node.tell_file(id, IN_MODIFY);
        }
        self.charge_moved(n);
        Ok(n)
    }

    /// Writes to /proc/PID/mem by pieces, however much it is: up to the first byte that cannot be read or written.
    fn write_memory(&mut self, id: FileId, tid: Tid, from: &Source, at: Option<u64>) -> SysResult {
        let start = at.unwrap_or(self.node.files[id].offset);
        let (good, mut done) = (self.source_len(from)?, 0);
        while done < good {
            let data = self.source_bytes(from, done, PIECE.min(good - done))?.into_owned();
            let n = match self.write_memory_file(tid, start.saturating_add(done), &data) {
                Err(_) if done > 0 => break,
                result => result?,
            };
            done += n;
            if n < data.len() as u64 {
                break;
            }
        }
        if at.is_none() {
            self.node.files[id].offset += done;
        }
        Ok(done)
    }

    /// How many bytes of a source lie before the first that cannot be read; EFAULT if that is the first of all.
    fn source_len(&mut self, from: &Source) -> Result<u64, Errno> {
        match self.source_good(from, 0, from.len()) {
            0 if !from.is_empty() => Err(Errno::EFAULT),
            good => Ok(good),
        }
    }

    /// Up to `most` bytes of a source, as far as they can be read.
    fn source_part(&mut self, from: &Source, most: u64) -> Result<Vec<u8>, Errno> {
        let good = self.source_len(from)?;
        Ok(self.source_bytes(from, 0, good.min(most))?.into_owned())
    }

    fn write_regular(&mut self, id: FileId, ino: Ino, from: &Source, at: Option<u64>) -> SysResult {
        let file = &self.node.files[id];
        let (append, offset) = (file.flags & c::O_APPEND != 0, file.offset);
        // O_SYNC contains this bit.
        let durable = file.flags & c::O_DSYNC != 0;
        verify_area(at.unwrap_or(offset), from.len())?;
        // Nothing goes nowhere: not even the place of what appends (generic_write_checks).
        if from.is_empty() {
            return Ok(0);
        }
        // "POSIX requires that opening a file with the O_APPEND flag should have no effect on the location at
        // which pwrite() writes data. However, on Linux ... appends data" (pwrite(2), BUGS).
        let start = if append { self.node.vfs.size(ino) } else { at.unwrap_or(offset) };
        // The limit comes before the first byte is looked at (generic_write_checks).
        self.file_size_limit(start, from.len())?;
        // Privileges go before anything is written (file_remove_privs).
        if self.node.vfs.gives_privileges(ino) {
            let (cred, now) = (self.fs_cred(), self.now());
            self.node.vfs.drop_privileges(ino, &cred, now)?;
        }
        let mut good = self.source_len(from)?;
        let mut len = self.file_size_limit(start, good)?;
        let most_taken = self.disk_takes(id, ino, start, len)?;
        len = len.min(most_taken);
        let mut n = 0;
        loop {
            let most = (len - n).min(PIECE);
            let data = self.source_bytes(from, n, most)?;
            let written = match self.write_inode(ino, start + n, &data) {
                // "The number of bytes written may be less than count if, for example, there is insufficient space" (write(2)).
                Err(_) if n > 0 => break,
                result => result?,
            };
            n += written;
            if n == good {
                // What comes next may be a mapping of this file, which was beyond its end before.
                good += self.source_good(from, n, from.len() - n);
                len = self.file_size_limit(start, good)?.min(most_taken);
            }
            if n == len || written < most || self.ends_early() {
                break;
            }
        }
        // A write that is not durable although it has to be ends with the error, and the place stays ("if (ret >= 0 && ppos)
        // fd_file(f)->f_pos = pos", ksys_write).
        if durable {
            self.sync_file(id, ino)?;
        }
        if at.is_none() {
            self.node.files[id].offset = start + n;
        }
        Ok(n)
    }

    /// Between the pieces of a long transfer: whether the rest is of no use, as the container has got more memory than it may have
    /// and somebody will be killed for it when the call ends, or as the host gives up the run.
    pub(crate) fn ends_early(&mut self) -> bool {
        let (mm, container) = (self.process().mm, self.process().container);
        self.node.settle(mm);
        self.outside.is_given_up() || self.node.has_too_much(container)
    }

    /// How many of so many bytes RLIMIT_FSIZE lets a file have from an offset on; EFBIG and SIGXFSZ if none.
    pub(crate) fn file_size_limit(&mut self, from: u64, len: u64) -> SysResult {
        let limit = self.process().limits[c::RLIMIT_FSIZE as usize].cur;
        if limit == u64::MAX || from.saturating_add(len) <= limit {
            return Ok(len);
        }
        if from >= limit && len > 0 {
            let info = crate::signal::user_info(c::SIGXFSZ as u32, 0, self.pid, 0);
            self.node.send_task(self.tid, info);
            return err(Errno::EFBIG);
        }
        Ok(limit.saturating_sub(from))
    }

    /// Writes file data and drops platform mappings of pages that moved. RLIMIT_FSIZE has been looked at.
    pub(crate) fn write_inode(&mut self, ino: Ino, from: u64, data: &[u8]) -> SysResult {
        let most = self.may_store(ino, from, data.len() as u64)? as usize;
        let now = self.now();
        let result = self.node.vfs.write_at(ino, from, &data[..most], now);
        if result == Err(Errno::EIO) && self.node.vfs.has_bad_blocks() {
            self.met_bad_sector(ino);
        }
        let n = result?;
        self.node.broken.keep_cached(ino, from, n as u64);
        self.node.drop_moved_pages();
        Ok(n as u64)
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
