//! Pipes and fifos (pipe(7)): a byte buffer between descriptions.

use std::collections::VecDeque;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::Ctx;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::node::Node;
use crate::wait::{Object, Restart, Resume, SysResult, Wait};

/// "POSIX.1 says that writes of less than PIPE_BUF bytes must be atomic ... On Linux, PIPE_BUF is 4096 bytes."
pub const PIPE_BUF: usize = 4096;
/// "Since Linux 2.6.11, the pipe capacity is 16 pages (i.e., 65,536 bytes)".
const CAPACITY: usize = 65536;
/// /proc/sys/fs/pipe-max-size.
const MAX_CAPACITY: usize = 1 << 20;

/// The buffer of a pipe.
#[derive(Clone, Debug)]
pub struct Pipe {
    data: VecDeque<u8>,
    capacity: usize,
    /// Descriptions open for reading.
    pub readers: u32,
    /// Descriptions open for writing.
    pub writers: u32,
    /// Opens so far, for fifo opens that wait for the other side: (readers, writers).
    pub opened: (u64, u64),
}

impl Default for Pipe {
    fn default() -> Self {
        Pipe { data: VecDeque::new(), capacity: CAPACITY, readers: 0, writers: 0, opened: (0, 0) }
    }
}

impl Pipe {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Buffer size (F_GETPIPE_SZ).
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// F_SETPIPE_SZ: rounded up to a power of two of pages; EBUSY below what is buffered.
    pub fn set_capacity(&mut self, bytes: usize) -> Result<usize, Errno> {
        let size = bytes.max(4096).next_power_of_two();
        if size > MAX_CAPACITY {
            return Err(Errno::EPERM);
        }
        if size < self.data.len() {
            return Err(Errno::EBUSY);
        }
        self.capacity = size;
        Ok(size)
    }

    /// Readiness of an end (EPOLL* bits).
    pub fn ready(&self, read: bool, write: bool) -> u64 {
        let mut bits = 0;
        if read {
            bits |= if self.data.is_empty() { 0 } else { c::EPOLLIN | c::EPOLLRDNORM };
            bits |= if self.writers == 0 && self.opened.1 > 0 { c::EPOLLHUP } else { 0 };
        }
        if write {
            bits |=
                if self.capacity - self.data.len() >= PIPE_BUF { c::EPOLLOUT | c::EPOLLWRNORM } else { 0 };
            bits |= if self.readers == 0 { c::EPOLLERR } else { 0 };
        }
        bits
    }
}

impl Node {
    /// A new pipe with one description for each end: (read end, write end).
    pub fn new_pipe(&mut self, flags: u64) -> (FileId, FileId) {
        let pipe = self.pipes.insert(Pipe { readers: 1, writers: 1, opened: (1, 1), ..Pipe::default() });
        let file =
            |read, access| File::new(FileKind::Pipe { pipe, read, write: !read, ino: None }, flags | access);
        (self.files.insert(file(true, c::O_RDONLY)), self.files.insert(file(false, c::O_WRONLY)))
    }

    /// A description of an end is gone.
    pub(crate) fn close_pipe_end(&mut self, pipe: PipeId, read: bool, write: bool) {
        let Some(p) = self.pipes.get_mut(pipe) else { return };
        p.readers -= u32::from(read);
        p.writers -= u32::from(write);
        if p.readers == 0 && p.writers == 0 {
            self.pipes.remove(pipe);
            self.fifos.retain(|_, id| *id != pipe);
            return;
        }
        self.notify_object(Object::Pipe(pipe), (c::EPOLLHUP | c::EPOLLERR | c::EPOLLIN | c::EPOLLOUT) as u32);
    }
}

impl Ctx<'_> {
    /// read(2) of a pipe: what is there, up to `max`; 0 at the end of the stream.
    pub(crate) fn pipe_read(&mut self, pipe: PipeId, max: usize, nonblock: bool) -> SysResult<Vec<u8>> {
        let p = &mut self.node.pipes[pipe];
        if p.data.is_empty() && max > 0 {
            if p.writers == 0 {
                return Ok(Vec::new());
            }
            if nonblock {
                return Err(Errno::EAGAIN.into());
            }
            return Err(Wait::object(Object::Pipe(pipe)).into());
        }
        let n = max.min(p.data.len());
        let out: Vec<u8> = p.data.drain(..n).collect();
        if n > 0 {
            self.node.notify_object(Object::Pipe(pipe), (c::EPOLLOUT | c::EPOLLWRNORM) as u32);
        }
        Ok(out)
    }

    /// write(2) to a pipe, from `done` on; blocks until all is written ("a write(2) of more than PIPE_BUF bytes may be
    /// nonatomic ... blocks until n bytes have been written").
    pub(crate) fn pipe_write(&mut self, pipe: PipeId, data: &[u8], nonblock: bool) -> SysResult {
        let done = match &self.resumed {
            Some(r) => match r.wait.resume {
                Resume::Done(n) => n as usize,
                _ => 0,
            },
            None => 0,
        };
        let p = &mut self.node.pipes[pipe];
        if p.readers == 0 {
            if done > 0 {
                return Ok(done as u64);
            }
            self.raise_sigpipe();
            return Err(Errno::EPIPE.into());
        }
        let room = p.capacity - p.data.len();
        let rest = data.len() - done;
        let atomic = data.len() <= PIPE_BUF;
        let n = if atomic && room < rest { 0 } else { room.min(rest) };
        p.data.extend(&data[done..done + n]);
        if n > 0 {
            self.node.notify_object(Object::Pipe(pipe), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
        }
        let done = done + n;
        if done == data.len() {
            return Ok(done as u64);
        }
        if nonblock {
            return if done > 0 { Ok(done as u64) } else { Err(Errno::EAGAIN.into()) };
        }
        let wait = Wait::object(Object::Pipe(pipe)).resume(Resume::Done(done as u64));
        // "if it is interrupted by a signal handler after having written some bytes, it returns the number" (write(2)).
        Err(if done > 0 { wait.restart(Restart::Partial(done as u64)) } else { wait }.into())
    }

    /// SIGPIPE for the calling thread.
    pub(crate) fn raise_sigpipe(&mut self) {
        self.node.raise_sigpipe(self.tid);
    }
}

impl Node {
    /// SIGPIPE for a thread that wrote where nobody reads.
    pub fn raise_sigpipe(&mut self, tid: Tid) {
        let process = self.process(self.task(tid).pid);
        let info = crate::signal::user_info(c::SIGPIPE as u32, 0, process.pid, process.real_ids[0]);
        self.send_task(tid, info);
    }
}
