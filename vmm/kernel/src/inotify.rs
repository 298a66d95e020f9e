//! inotify(7): instances with their watches and the queues of what happened.
//!
//! The file system notes what happens to watched inodes ([`Happened`]); [`Node::deliver_happened`] puts it into the queues of the
//! instances that asked for it. Inodes are those of the machine, so a watch is told what any container does.

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::*;
use bloodhound_vfs::{Happened, Ino, Name};

use crate::buffers::Buffers;
use crate::ctx::Ctx;
use crate::ids::*;
use crate::mm::Access;
use crate::node::Node;
use crate::wait::{Object, Stop, SysResult, Wait};

/// /proc/sys/fs/inotify/max_queued_events.
pub const MAX_QUEUED: usize = 16384;
/// /proc/sys/fs/inotify/max_user_instances.
pub const MAX_INSTANCES: usize = 128;
/// /proc/sys/fs/inotify/max_user_watches.
pub const MAX_WATCHES: usize = 65536;
/// struct inotify_event without its name.
const HEADER: usize = 16;

/// A watch: one inode of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// What is watched.
    pub ino: Ino,
    /// Events, IN_EXCL_UNLINK and IN_ONESHOT.
    pub mask: u32,
}

/// An event in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    wd: i32,
    mask: u32,
    cookie: u32,
    name: Option<Name>,
}

impl Queued {
    /// "The name field is [...] null-terminated, and may include further null bytes ('\0') to align subsequent reads to a
    /// suitable address boundary."
    fn padded(&self) -> usize {
        self.name.as_ref().map_or(0, |name| (name.len() + 1).next_multiple_of(HEADER))
    }

    fn bytes(&self, out: &mut Vec<u8>) {
        for word in [self.wd as u32, self.mask, self.cookie, self.padded() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let end = out.len() + self.padded();
        out.extend_from_slice(self.name.as_deref().unwrap_or_default());
        out.resize(end, 0);
    }
}

/// An instance: what inotify_init1(2) makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inotify {
    /// Its user, whose limits count.
    pub uid: u32,
    /// Watches by descriptor.
    pub watches: BTreeMap<i32, Watched>,
    /// The descriptors of the watched inodes.
    by_ino: BTreeMap<Ino, i32>,
    /// The last descriptor given; none is given twice.
    last: i32,
    /// What happened and was not read.
    queue: VecDeque<Queued>,
    /// An IN_Q_OVERFLOW is in the queue.
    overflowed: bool,
    /// The program may know of so many events at its front.
    known: usize,
}

impl Inotify {
    /// An instance of a user, without watches.
    pub fn new(uid: u32) -> Inotify {
        Inotify { uid, ..Inotify::default() }
    }

    /// Readiness (EPOLL* bits).
    pub fn ready(&self) -> u64 {
        if self.queue.is_empty() { 0 } else { c::EPOLLIN | c::EPOLLRDNORM }
    }

    /// How many events wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many events could be lost that the program does not know of. None while one is lost already; what says that a watch is gone never is.
    pub(crate) fn losable(&self) -> usize {
        if self.overflowed { 0 } else { self.unknown().count() }
    }

    fn unknown(&self) -> impl Iterator<Item = usize> {
        (self.known..self.queue.len()).filter(|at| self.queue[*at].mask & IN_IGNORED == 0)
    }

    /// Loses one of [`Inotify::losable`] events.
    pub(crate) fn lose(&mut self, nth: usize) {
        let lost = self.unknown().nth(nth);
        if let Some(lost) = lost {
            self.queue[lost] = Queued { wd: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: None };
            self.overflowed = true;
        }
    }

    /// The program looks at how much there is to read.
    pub(crate) fn known_to_program(&mut self) {
        self.known = self.queue.len();
    }

    /// What FIONREAD tells.
    pub fn unread(&self) -> usize {
        self.queue.iter().map(|event| HEADER + event.padded()).sum()
    }

    /// "If successive output inotify events produced on the inotify file descriptor are identical (same wd, mask, cookie, and
    /// name), then they are coalesced into a single event if the older event has not yet been read." (Linux does not look at the
    /// cookie, and an IN_IGNORED is never taken for another one.) Beyond the limit one IN_Q_OVERFLOW is queued, and nothing more.
    fn push(&mut self, event: Queued) {
        if self.queue.len() >= MAX_QUEUED {
            if !self.overflowed {
                self.overflowed = true;
                self.queue.push_back(Queued { wd: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: None });
            }
            return;
        }
        let same = |last: &Queued| (last.wd, last.mask, &last.name) == (event.wd, event.mask, &event.name);
        if event.mask != IN_IGNORED && self.queue.back().is_some_and(same) {
            return;
        }
        self.queue.push_back(event);
    }

    /// Takes a watch away and tells it; the inode that it was on.
    fn end(&mut self, wd: i32) -> Option<Ino> {
        let watch = self.watches.remove(&wd)?;
        self.by_ino.remove(&watch.ino);
        self.push(Queued { wd, mask: IN_IGNORED, cookie: 0, name: None });
        Some(watch.ino)
    }

    /// Queues what happened to an inode if its watch asks for it; the inode again if that was the watch's end.
    fn hear(&mut self, happened: &Happened, ino: Ino, name: Option<&Name>) -> Option<Ino> {
        let wd = *self.by_ino.get(&ino)?;
        let watch = &self.watches[&wd];
        // Of the watch of the file itself as well (fsnotify_handle_inode_event).
        let excluded = happened.unlinked && watch.mask & IN_EXCL_UNLINK != 0;
        let event = happened.mask & IN_ALL_EVENTS;
        let once = watch.mask & IN_ONESHOT != 0;
        let wanted = event & watch.mask != 0 && !excluded;
        if wanted {
            let (mask, cookie) = (happened.mask, happened.cookie);
            self.push(Queued { wd, mask, cookie, name: name.cloned() });
        }
        // An inode that is gone takes its watches along, whether or not they asked for IN_DELETE_SELF.
        if event & IN_DELETE_SELF != 0 || (wanted && once) { self.end(wd) } else { None }
    }
}

impl Node {
    /// Puts what has happened in the file system into the queues of the instances that watch it.
    pub(crate) fn deliver_happened(&mut self) {
        if !self.vfs.has_happened() {
            return;
        }
        let all = self.vfs.take_happened();
        self.dnotify_deliver(&all);
        for happened in all {
            let mut told = Vec::new();
            let ids: Vec<InotifyId> = self.inotifies.iter().map(|(id, _)| id).collect();
            for id in ids {
                let instance = &mut self.inotifies[id];
                let before = instance.queue.len();
                let place = happened.place.as_ref();
                let ends = [
                    place.and_then(|(dir, name)| instance.hear(&happened, *dir, Some(name))),
                    happened.ino.and_then(|ino| instance.hear(&happened, ino, None)),
                ];
                told.push((id, instance.queue.len() > before, ends));
            }
            for (id, more, ends) in told {
                ends.into_iter().flatten().for_each(|ino| self.vfs.unwatch(ino));
                if more {
                    self.inotify_told(id);
                }
            }
        }
    }

    fn inotify_told(&mut self, id: InotifyId) {
        self.notify_object(Object::Inotify(id), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
    }

    /// The last descriptor of an instance is closed.
    pub(crate) fn inotify_close(&mut self, id: InotifyId) {
        let Some(instance) = self.inotifies.remove(id) else { return };
        instance.watches.values().for_each(|watch| self.vfs.unwatch(watch.ino));
    }

    /// Tells of a use of an open file (IN_ACCESS, IN_MODIFY, IN_OPEN), if its inode is in the file system.
    pub(crate) fn tell_file(&mut self, id: FileId, mask: u32) {
        if let Some(ino) = self.files[id].ino() {
            self.vfs.tell(ino, mask);
        }
    }

    /// The lines of /proc/PID/fdinfo/N.
    pub(crate) fn inotify_lines(&self, id: InotifyId) -> String {
        let Some(instance) = self.inotifies.get(id) else { return String::new() };
        let line = |(wd, watch): (&i32, &Watched)| {
            let device = self.vfs.stat_ino(watch.ino).map_or(0, |stat| stat.dev.major << 20 | stat.dev.minor);
            // With IN_ONESHOT, since Linux 5.19 (INOTIFY_USER_MASK).
            let (ino, mask) = (watch.ino.0, watch.mask);
            format!("inotify wd:{wd:x} ino:{ino:x} sdev:{device:x} mask:{mask:x} ignored_mask:0 \n")
        };
        instance.watches.iter().rev().map(line).collect()
    }
}

impl Ctx<'_> {
    /// read(2) and readv(2): each buffer is a read of its own, for inotify(7) knows no vectors (`do_loop_readv_writev`). Where events fill
    /// a buffer and no more are there, Linux sleeps for those of the next buffer; here the call ends with what there is.
    pub(crate) fn inotify_read(&mut self, id: InotifyId, to: &Buffers, nonblock: bool) -> SysResult<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let len = to.next_vector(all.len() as u64) as usize;
            let good = self.good(to, all.len() as u64, len as u64, Access::Write) as usize;
            let read = match self.inotify_events(id, (len, good), nonblock || !all.is_empty()) {
                // "ret = copy_event_to_user(); [...] if (ret < 0) break; [...] if (start != buf && ret != -EFAULT) ret = buf - start": the
                // event is lost, those before it are in the memory, and EFAULT is the result.
                Ok(data) if data.len() > good => {
                    self.copy_out(to, all.len() as u64, &data[..good])?;
                    Err(Stop::Errno(Errno::EFAULT))
                }
                result => result,
            };
            let read = match read {
                Ok(data) => data,
                Err(Stop::Errno(_)) if !all.is_empty() => return Ok(all),
                Err(stop) => return Err(stop),
            };
            all.extend_from_slice(&read);
            if read.len() < len || all.len() as u64 == to.len() {
                return Ok(all);
            }
        }
    }

    /// "The read(2) returns as many events as fit": "EINVAL [...] If the buffer given to read(2) is too small to return
    /// information about the next event". The last is the first that does not fit into the memory that is good.
    fn inotify_events(
        &mut self,
        id: InotifyId,
        (max, good): (usize, usize),
        nonblock: bool,
    ) -> SysResult<Vec<u8>> {
        self.may_have_lost(id);
        let Inotify { queue, overflowed, known, .. } = &mut self.node.inotifies[id];
        let Some(first) = queue.front() else {
            if nonblock {
                return Err(Errno::EAGAIN.into());
            }
            return Err(Wait::object(Object::Inotify(id)).into());
        };
        if HEADER + first.padded() > max {
            return Err(Errno::EINVAL.into());
        }
        let mut out = Vec::new();
        while let Some(event) = queue.front()
            && out.len() <= good
            && out.len() + HEADER + event.padded() <= max
        {
            event.bytes(&mut out);
            *overflowed &= event.mask != IN_Q_OVERFLOW;
            queue.pop_front();
            *known -= 1;
        }
        Ok(out)
    }

    /// Adds a watch or changes the one that the instance has on an inode.
    pub(crate) fn inotify_watch(&mut self, id: InotifyId, ino: Ino, mask: u32) -> SysResult {
        let kept = mask & (IN_ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT);
        let instance = &mut self.node.inotifies[id];
        if let Some(&wd) = instance.by_ino.get(&ino) {
            if mask & IN_MASK_CREATE != 0 {
                return Err(Errno::EEXIST.into());
            }
            if let Some(watch) = instance.watches.get_mut(&wd) {
                let before = if mask & IN_MASK_ADD != 0 { watch.mask } else { 0 };
                watch.mask = before | kept;
            }
            return Ok(wd as u64);
        }
        let uid = instance.uid;
        let of_user = self.node.inotifies.iter().filter(|(_, other)| other.uid == uid);
        if of_user.map(|(_, other)| other.watches.len()).sum::<usize>() >= MAX_WATCHES {
            return Err(Errno::ENOSPC.into());
        }
        self.may_watch(ino)?;
        let instance = &mut self.node.inotifies[id];
        instance.last += 1;
        let wd = instance.last;
        instance.watches.insert(wd, Watched { ino, mask: kept });
        instance.by_ino.insert(ino, wd);
        self.node.vfs.watch(ino);
        Ok(wd as u64)
    }

    /// Removes a watch: "IN_IGNORED: Watch was removed explicitly (inotify_rm_watch()) or automatically".
    pub(crate) fn inotify_unwatch(&mut self, id: InotifyId, wd: i32) -> SysResult {
        let ino = self.node.inotifies[id].end(wd).ok_or(Errno::EINVAL)?;
        self.node.vfs.unwatch(ino);
        self.node.inotify_told(id);
        Ok(0)
    }
}
