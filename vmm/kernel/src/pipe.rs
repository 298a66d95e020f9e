//! Pipes and fifos (pipe(7)): a byte buffer between descriptions.

mod pages;

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::buffers::{Buffers, Source};
use crate::caps::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use crate::ctx::Ctx;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::line::End;
use crate::mm::Access;
use crate::node::Node;
use crate::wait::{Object, Progress, Restart, SysResult, Wait};

/// "POSIX.1 says that writes of less than PIPE_BUF bytes must be atomic ... On Linux, PIPE_BUF is 4096 bytes."
pub const PIPE_BUF: usize = 4096;
/// "Since Linux 2.6.11, the pipe capacity is 16 pages (i.e., 65,536 bytes)".
const CAPACITY: usize = 65536;
/// /proc/sys/fs/pipe-max-size.
const MAX_CAPACITY: usize = 1 << 20;
/// Pages for which there can be an array of `struct pipe_buffer`, of 40 bytes, in the four MiB of KMALLOC_MAX_SIZE; a power of two.
const MOST_PAGES: usize = 65536;
/// /proc/sys/fs/pipe-user-pages-soft: "the maximum total number of pages that a non-privileged user can allocate for pipes before
/// the pipe size gets limited" (proc(5)), "so that they have at most 2 pages" (PIPE_MIN_DEF_BUFFERS).
const USER_PAGES: u64 = 16384;
pub(crate) const FEW_PAGES: usize = 2;
/// What watches are told when the first end of a side of a fifo is opened: readers whatever they ask for, writers nothing (`wake_up_partner`).
pub(crate) const OPENED: u32 = (c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLHUP) as u32;

/// A page of a pipe (`struct pipe_buffer`): what was written to it, and how much of that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    bytes: Vec<u8>,
    read: usize,
    /// It was written with O_DIRECT: a packet, which nothing is added to and one read takes.
    packet: bool,
    /// A later write may add to it (PIPE_BUF_FLAG_CAN_MERGE): no packet, and no page that belongs to somebody else as well.
    merges: bool,
}

impl Slot {
    fn left(&self) -> usize {
        self.bytes.len() - self.read
    }
}

/// The buffer of a pipe: as many slots as it has pages. A short write goes into the last slot if it fits, and otherwise takes one
/// of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipe {
    slots: VecDeque<Slot>,
    /// Most slots, a power of two.
    most: usize,
    /// Descriptions open for reading.
    readers: u32,
    /// Descriptions open for writing.
    writers: u32,
    /// How often it was opened for writing (`w_counter`).
    pub(crate) writing_opens: u64,
    /// Whose pages it has.
    user: u32,
}

impl Default for Pipe {
    fn default() -> Self {
        let most = CAPACITY / PIPE_BUF;
        Pipe { slots: VecDeque::new(), most, readers: 0, writers: 0, writing_opens: 0, user: 0 }
    }
}

/// Who makes a pipe, or changes its size.
#[derive(Clone, Copy, Debug)]
pub struct PipeUser {
    /// Its real user id.
    pub uid: u32,
    /// It has CAP_SYS_RESOURCE or CAP_SYS_ADMIN (`pipe_is_unprivileged_user`).
    pub privileged: bool,
    /// It has CAP_SYS_RESOURCE.
    pub unlimited: bool,
    /// /proc/sys/fs/pipe-max-size, bytes.
    pub largest: usize,
}

/// Pages that pipes may have, by their users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipePages(BTreeMap<u32, u64>);

impl PipePages {
    fn change(&mut self, user: u32, before: usize, now: usize) {
        let pages = self.0.entry(user).or_default();
        *pages = *pages + now as u64 - before as u64;
    }

    fn too_many(&self, user: PipeUser, more: usize) -> bool {
        let pages = self.0.get(&user.uid).copied().unwrap_or(0);
        !user.privileged && pages + more as u64 > USER_PAGES
    }
}

impl Pipe {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.slots.iter().map(Slot::left).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Buffer size (F_GETPIPE_SZ).
    pub fn capacity(&self) -> usize {
        self.most * PIPE_BUF
    }

    /// Pages that can be written.
    pub fn free_slots(&self) -> usize {
        self.most.saturating_sub(self.slots.len())
    }

    /// F_SETPIPE_SZ to a number of pages: ENOMEM where Linux cannot have an array of so many; EBUSY below what is buffered.
    fn set_pages(&mut self, pages: usize) -> Result<(), Errno> {
        if pages > MOST_PAGES {
            return Err(Errno::ENOMEM);
        }
        if pages < self.slots.len() {
            return Err(Errno::EBUSY);
        }
        self.most = pages;
        Ok(())
    }

    /// One more description of an end, or of both. Whether it is the first of a side.
    pub fn open(&mut self, read: bool, write: bool) -> bool {
        let first = read && self.readers == 0 || write && self.writers == 0;
        self.readers += u32::from(read);
        self.writers += u32::from(write);
        self.writing_opens += u64::from(write);
        first
    }

    /// A description of an end is gone. Whether that was the last of both.
    fn close(&mut self, read: bool, write: bool) -> bool {
        self.readers -= u32::from(read);
        self.writers -= u32::from(write);
        self.readers == 0 && self.writers == 0
    }

    /// Whether somebody has it open for reading.
    pub fn has_readers(&self) -> bool {
        self.readers > 0
    }

    /// Whether somebody has it open for writing.
    pub fn has_writers(&self) -> bool {
        self.writers > 0
    }

    /// How much of `len` bytes a new write can put into the last slot: what is beyond whole pages, if it fits, else nothing.
    fn fits_last(&self, len: u64) -> usize {
        let beyond = (len % PIPE_BUF as u64) as usize;
        self.slots.back().filter(|s| s.merges && s.bytes.len() + beyond <= PIPE_BUF).map_or(0, |_| beyond)
    }

    /// Adds to the last slot what [`Pipe::fits_last`] said.
    fn append(&mut self, bytes: &[u8]) {
        if let Some(last) = self.slots.back_mut() {
            last.bytes.extend_from_slice(bytes);
        }
    }

    /// Fills a new slot.
    fn push(&mut self, bytes: Vec<u8>, packet: bool) {
        self.slots.push_back(Slot { bytes, read: 0, packet, merges: !packet });
    }

    /// What waits in the first slot.
    fn front(&self) -> Option<&[u8]> {
        self.slots.front().map(|s| &s.bytes[s.read..])
    }

    /// Takes `n` bytes of the first slot, and of a packet the rest as well. Whether it was a packet.
    fn take(&mut self, n: usize) -> bool {
        let Some(first) = self.slots.front_mut() else { return false };
        let packet = first.packet;
        first.read += n;
        if first.left() == 0 || packet {
            self.slots.pop_front();
        }
        packet
    }

    /// Readiness of an end (EPOLL* bits), opened when that many opens for writing had been ([`File::unheard_opens`]).
    pub fn ready(&self, read: bool, write: bool, unheard_opens: u64) -> u64 {
        let mut bits = 0;
        if read {
            bits |= if self.is_empty() { 0 } else { c::EPOLLIN | c::EPOLLRDNORM };
            // Only writers that this description has heard of (pipe_poll asks `f_version != pipe->w_counter`).
            let heard = self.writing_opens != unheard_opens;
            bits |= if self.writers == 0 && heard { c::EPOLLHUP } else { 0 };
        }
        if write {
            bits |= if self.free_slots() > 0 { c::EPOLLOUT | c::EPOLLWRNORM } else { 0 };
            bits |= if self.readers == 0 { c::EPOLLERR } else { 0 };
        }
        bits
    }
}

impl Node {
    /// The buffer of a new pipe or fifo, without open ends.
    pub(crate) fn new_buffer(&mut self, user: PipeUser) -> PipeId {
        let mut pipe = Pipe { user: user.uid, ..Pipe::default() };
        // "if (pipe_bufs * PAGE_SIZE > max_size && !capable(CAP_SYS_RESOURCE))" (alloc_pipe_info).
        if !user.unlimited {
            pipe.most = pipe.most.min(user.largest / PIPE_BUF);
        }
        if self.pipe_pages.too_many(user, pipe.most) {
            pipe.most = FEW_PAGES;
        }
        self.pipe_pages.change(user.uid, 0, pipe.most);
        self.pipes.insert(pipe)
    }

    /// F_SETPIPE_SZ, rounded up to a power of two of pages (`pipe_set_size`): EPERM for more than before beyond
    /// /proc/sys/fs/pipe-max-size without CAP_SYS_RESOURCE, and when the owner's pipes have too many pages already.
    pub(crate) fn resize_pipe(&mut self, id: PipeId, bytes: usize, caller: PipeUser) -> Result<usize, Errno> {
        let pipe = &mut self.pipes[id];
        let (before, owner) = (pipe.most, PipeUser { uid: pipe.user, ..caller });
        let size = bytes.max(PIPE_BUF).next_power_of_two();
        let wanted = size / PIPE_BUF;
        let limited = size > caller.largest && !caller.unlimited;
        if wanted > before && (limited || self.pipe_pages.too_many(owner, wanted - before)) {
            return Err(Errno::EPERM);
        }
        pipe.set_pages(wanted)?;
        self.pipe_pages.change(owner.uid, before, wanted);
        Ok(size)
    }

    /// A new pipe with one description for each end: (read end, write end). O_DIRECT is a flag of the write end alone.
    pub fn new_pipe(&mut self, flags: u64, user: PipeUser) -> (FileId, FileId) {
        let pipe = self.new_buffer(user);
        self.pipes[pipe].open(true, true);
        let file = |read, flags| File::new(FileKind::Pipe { pipe, read, write: !read, ino: None }, flags);
        let reader = self.files.insert(file(true, flags & !c::O_DIRECT | c::O_RDONLY));
        (reader, self.files.insert(file(false, flags | c::O_WRONLY)))
    }

    /// A description of an end is gone.
    pub(crate) fn close_pipe_end(&mut self, pipe: PipeId, read: bool, write: bool) {
        let Some(p) = self.pipes.get_mut(pipe) else { return };
        if p.close(read, write) {
            if let Some(Pipe { user, most, .. }) = self.pipes.remove(pipe) {
                self.pipe_pages.change(user, most, 0);
            }
            self.forget_unnamed(&FileKind::Pipe { pipe, read, write, ino: None });
            self.fifos.retain(|_, id| *id != pipe);
            return;
        }
        let one_sided = p.has_readers() != p.has_writers();
        // "if (!pipe->readers != !pipe->writers)" (pipe_release).
        if one_sided {
            for queue in [c::EPOLLHUP | c::EPOLLIN, c::EPOLLERR | c::EPOLLOUT] {
                self.notify_object(Object::Pipe(pipe), queue as u32);
            }
            self.pipe_async(pipe, true);
            self.pipe_async(pipe, false);
        }
    }
}

impl Ctx<'_> {
    /// Who the caller is to the limits of pipes.
    pub(crate) fn pipe_user(&self) -> PipeUser {
        let unlimited = self.capable(CAP_SYS_RESOURCE);
        let privileged = unlimited || self.capable(CAP_SYS_ADMIN);
        // One that a container has from the beginning was not rounded as one that is written.
        let rounded = |bytes: u64| (bytes as usize).max(PIPE_BUF).next_power_of_two();
        let largest = self.container().number("fs/pipe-max-size").map_or(MAX_CAPACITY, rounded);
        PipeUser { uid: self.credentials().real_ids[0], privileged, unlimited, largest }
    }

    /// read(2) of a pipe: what is there; 0 at the end of the stream. Each page is moved as a whole or not at all: of one whose
    /// place in the program is bad in its middle nothing is taken (the kernel's pipe_read). "Each read(2) from the pipe will read
    /// one packet at a time", and "the excess bytes in the packet are discarded" (pipe(2), O_DIRECT).
    pub(crate) fn pipe_read(&mut self, pipe: PipeId, to: &Buffers, nonblock: bool) -> SysResult {
        let p = &self.node.pipes[pipe];
        if to.is_empty() {
            return Ok(0);
        }
        if p.is_empty() && !p.has_writers() {
            self.node.pipe_async(pipe, false);
            return Ok(0);
        }
        // Who sleeps looks at O_NONBLOCK again only when something has come (wait_event_interruptible_exclusive).
        if p.is_empty() && nonblock && self.resumed.is_none() {
            // Writers are told of every read that ends, also of one without a byte (pipe_read's end).
            self.node.pipe_async(pipe, false);
            return Err(Errno::EAGAIN.into());
        }
        // One reader at a time: each wakes the next if there is more.
        if p.is_empty() || self.is_behind(Object::Pipe(pipe), End::Read, 1) {
            return Err(self.line_up_at_pipe(pipe, End::Read, false).into());
        }
        // "We only wake up writers if the pipe was full when we started reading" (the kernel's pipe_read): who watches for room by its edge hears of no other read.
        let was_full = p.free_slots() == 0;
        let mut done = 0;
        while done < to.len() {
            let Some(front) = self.node.pipes[pipe].front() else { break };
            let n = (to.len() - done).min(front.len() as u64);
            let data = front[..n as usize].to_vec();
            if self.good(to, done, n, Access::Write) < n || self.copy_out(to, done, &data).is_err() {
                break;
            }
            done += n;
            if self.node.pipes[pipe].take(n as usize) {
                break;
            }
        }
        if was_full {
            self.node.notify_object(Object::Pipe(pipe), (c::EPOLLOUT | c::EPOLLWRNORM) as u32);
        }
        self.wake_next(pipe, End::Read);
        self.node.pipe_async(pipe, false);
        if done == 0 { Err(Errno::EFAULT.into()) } else { Ok(done) }
    }

    /// write(2) to a pipe, from `done` on; blocks until all is written ("a write(2) of more than PIPE_BUF bytes may be
    /// nonatomic ... blocks until n bytes have been written"). Up to PIPE_BUF bytes go into one slot, and so are atomic. A page
    /// whose source is bad is not written (the kernel's pipe_write).
    ///
    /// With O_DIRECT "each write(2) to the pipe is dealt with as a separate packet"; "writes of greater than PIPE_BUF bytes [...]
    /// will be split into multiple packets" (pipe(2)).
    pub(crate) fn pipe_write(&mut self, pipe: PipeId, from: &Source, done: u64, flags: u64) -> SysResult {
        let (nonblock, packet) = (flags & c::O_NONBLOCK != 0, flags & c::O_DIRECT != 0);
        let (total, begun) = (from.len(), done);
        if total == 0 {
            return Ok(0);
        }
        if !self.node.pipes[pipe].has_readers() {
            // The signal comes also when the last reader goes in the middle of a write, which then tells what it has written (the kernel's pipe_write).
            self.raise_sigpipe();
            return if done > 0 { Ok(done) } else { Err(Errno::EPIPE.into()) };
        }
        let was_empty = self.node.pipes[pipe].is_empty();
        let (done, bad) = match self.is_behind(Object::Pipe(pipe), End::Write, 1) {
            true => (done, false),
            false => self.fill_slots(pipe, from, done, packet),
        };
        if done > begun {
            self.charge_moved(done);
        }
        // Who sleeps looks at O_NONBLOCK again only when there was room.
        let nonblock = nonblock && (self.resumed.is_none() || done > begun);
        let ends = done == total || nonblock || bad;
        // "Epoll nonsensically wants a wakeup whether the pipe was already empty or not" (the kernel's pipe_write): watches hear of each write that ends, also of one that
        // failed; of one that goes to sleep only if nothing had waited.
        if ends || was_empty && done > begun {
            self.node.notify_object(Object::Pipe(pipe), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
        }
        // As of reads, so of writes; one that goes to sleep tells as well.
        if ends || done > begun || self.resumed.is_none() {
            self.node.pipe_async(pipe, true);
        }
        if ends {
            self.wake_next(pipe, End::Write);
        }
        match done {
            0 if bad => Err(Errno::EFAULT.into()),
            0 if nonblock => Err(Errno::EAGAIN.into()),
            _ if ends => Ok(done),
            _ => {
                // "if it is interrupted by a signal handler after having written some bytes, it returns the number" (write(2)).
                let restart = if done > 0 { Restart::Partial(done) } else { Restart::Sys };
                let wait = self.line_up_at_pipe(pipe, End::Write, done > begun).restart(restart);
                Err(wait.progress(Progress::Write { source: from.clone(), done }).into())
            }
        }
    }

    fn line_up_at_pipe(&mut self, pipe: PipeId, end: End, had_turn: bool) -> Wait {
        let object = Object::Pipe(pipe);
        self.line_up(object, end, had_turn, Wait::object(object))
    }

    /// A call ends that may have slept: then the next one at the same end is woken if there is something for it, and so is who watches for that.
    fn wake_next(&mut self, pipe: PipeId, end: End) {
        if self.own_place().is_none() {
            return;
        }
        let now = &self.node.pipes[pipe];
        let (more, events) = match end {
            End::Read => (!now.is_empty(), c::EPOLLIN | c::EPOLLRDNORM),
            End::Write => (now.free_slots() > 0, c::EPOLLOUT | c::EPOLLWRNORM),
        };
        if more {
            self.node.notify_object(Object::Pipe(pipe), events as u32);
        }
    }

    /// Writes from `done` on what there is room for. How far that comes, and whether the source was bad there.
    fn fill_slots(&mut self, pipe: PipeId, from: &Source, mut done: u64, packet: bool) -> (u64, bool) {
        let total = from.len();
        // Only a write that begins looks at the last slot: who waited for room fills new ones.
        let beyond = if self.resumed.is_none() { self.node.pipes[pipe].fits_last(total - done) } else { 0 };
        if beyond > 0 {
            let Ok(bytes) = self.source_bytes(from, done, beyond as u64) else { return (done, true) };
            self.node.pipes[pipe].append(&bytes);
            done += beyond as u64;
        }
        while done < total && self.node.pipes[pipe].free_slots() > 0 {
            let n = (total - done).min(PIPE_BUF as u64);
            let Ok(bytes) = self.source_bytes(from, done, n) else { return (done, true) };
            let bytes = bytes.into_owned();
            self.node.pipes[pipe].push(bytes, packet);
            done += n;
        }
        (done, false)
    }

    /// SIGPIPE for the calling thread.
    pub(crate) fn raise_sigpipe(&mut self) {
        self.node.raise_sigpipe(self.tid);
    }
}

impl Node {
    /// SIGPIPE for a thread that wrote where nobody reads.
    pub fn raise_sigpipe(&mut self, tid: Tid) {
        let task = self.task(tid);
        let info = crate::signal::user_info(c::SIGPIPE as u32, 0, task.pid, task.credentials.real_ids[0]);
        self.send_task(tid, info);
    }
}
