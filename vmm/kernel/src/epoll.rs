//! epoll(7) as Linux does it: a ready list per instance that wake-ups append to, so that edge-triggered watches see
//! edges, not levels. Neighbour: [`crate::wait`] calls [`Node::epoll_mark`] at every wake-up.

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::Errno;
use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::EpollEvent;

use crate::file::{Console, FileKind};
use crate::ids::*;
use crate::node::Node;
use crate::task::TaskState;
use crate::wait::{Object, WaitOn};

/// A watch is named by descriptor number and description (epoll(7), Q0: "The key is the combination of the file
/// descriptor number and the open file description").
pub type Key = (i32, FileId);

/// A watch as seen from the watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchKey {
    /// The instance.
    pub epoll: EpollId,
    /// The watch in it.
    pub key: Key,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    events: u32,
    data: u64,
    queued: bool,
    object: Object,
    /// Of a watch of a signalfd: the process whose signals queue it, by its signal actions. "If a process adds (via epoll_ctl(2)) a
    /// signalfd file descriptor to an epoll(7) instance, then epoll_wait(2) returns events only for signals sent to that process"
    /// (signalfd(2)): the watch is at the wait queue of that process (`sighand->signalfd_wqh`), also after fork(2).
    signals_of: Option<ActionsId>,
    /// Its place among all watches of the machine in the order in which they were added: those of signalfds are told the newest first.
    added: u64,
}

/// An epoll instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoll {
    items: BTreeMap<Key, Item>,
    ready: VecDeque<Key>,
}

impl Epoll {
    /// How many watches it has.
    pub(crate) fn watches(&self) -> usize {
        self.items.len()
    }

    /// What is watched below a descriptor number, the n-th of several descriptions.
    pub(crate) fn watched(&self, fd: i32, nth: usize) -> Option<FileId> {
        self.items.keys().filter(|(number, _)| *number == fd).nth(nth).map(|(_, file)| *file)
    }
}

/// Bits that are reported whether asked for or not.
const ALWAYS: u32 = (c::EPOLLERR | c::EPOLLHUP) as u32;
/// Bits of `events` that are flags, not conditions.
const FLAGS: u32 = 0xf000_0000;
/// What watches of an instance are told when it has an event (ep_poll_safewake).
const SAFE_WAKE: u32 = c::EPOLLIN as u32;
/// Longest chain of epoll instances: so many watch the next one (EP_MAX_NESTS).
const MAX_NESTS: usize = 4;
/// Wake-ups of those at a pipe's reading or writing end that do not say for what (`wake_up_interruptible`, by splice(2) and F_SETPIPE_SZ): they queue each
/// watch, whatever it asks for ("if (pollflags && !(pollflags & epi->event.events))", ep_poll_callback). No bits of Linux's.
pub(crate) const UNKEYED_READERS: u32 = 1 << 20;
pub(crate) const UNKEYED_WRITERS: u32 = 1 << 21;
/// What may stand beside EPOLLEXCLUSIVE (EPOLLEXCLUSIVE_OK_BITS).
const EXCLUSIVE_OK: u32 =
    (c::EPOLLIN | c::EPOLLOUT | c::EPOLLERR | c::EPOLLHUP | c::EPOLLWAKEUP | c::EPOLLET | c::EPOLLEXCLUSIVE)
        as u32;

/// Readiness of an instance that has events or none (ep_eventpoll_poll).
fn epoll_bits(has_events: bool) -> u32 {
    if has_events { (c::EPOLLIN | c::EPOLLRDNORM) as u32 } else { 0 }
}

impl Node {
    /// Readiness of a description: EPOLL* bits. Files that cannot block are always readable and writable.
    pub fn ready_bits(&self, id: FileId) -> u32 {
        let Some(file) = self.files.get(id) else { return c::EPOLLERR as u32 };
        let in_out = c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLOUT | c::EPOLLWRNORM;
        let bits = match file.kind {
            FileKind::Pipe { pipe, read, write, .. } => {
                self.pipes[pipe].ready(read, write, file.unheard_opens)
            }
            FileKind::Inet(id) => u64::from(crate::inet::ready_bits(self, id, file.nonblocking())),
            FileKind::Unix(id) => u64::from(self.unix.ready_bits(id)),
            FileKind::Netlink(id) => self.netlinks[id].ready(),
            FileKind::Event(id) => self.events[id].ready(),
            // timerfd_poll and signalfd_poll of Linux do not speak of EPOLLRDNORM.
            FileKind::TimerFd(id) if self.timerfds[id].is_ready() => c::EPOLLIN,
            FileKind::TimerFd(_) => 0,
            FileKind::SignalFd(_) => 0, // depends on the reader: see `ready_bits_for`
            FileKind::Epoll(id) => u64::from(epoll_bits(self.epoll_any(id, |file| self.ready_bits(file)))),
            FileKind::Process(named) => self.process_ready(named),
            FileKind::Tty { pty, master, .. } => self.tty_ready(&file.kind, pty, master),
            FileKind::Mq(id) => self.mqueues.all[id].ready(),
            FileKind::Inotify(id) => self.inotifies[id].ready(),
            FileKind::Listener(id) => self.listener_ready(id),
            // "POLLERR | POLLPRI" would tell of a change, and there is none.
            FileKind::Synthetic { ref path, .. } if crate::file::shows_mounts(path) => {
                c::EPOLLIN | c::EPOLLRDNORM
            }
            FileKind::Synthetic { ref path, .. } if crate::file::shows_log(path) => 0,
            _ => in_out,
        };
        bits as u32
    }

    /// As [`Node::ready_bits`], for a reader of process `pid` and thread `tid` (signalfd shows the reader's signals).
    pub fn ready_bits_for(&self, id: FileId, tid: Tid) -> u32 {
        match self.files.get(id).map(|f| &f.kind) {
            Some(FileKind::SignalFd(s)) if self.pending_for(tid) & self.signalfds[*s].mask != 0 => {
                c::EPOLLIN as u32
            }
            // One of its watches may be of a signalfd.
            Some(FileKind::Epoll(epoll)) => epoll_bits(self.epoll_has_events(*epoll, tid)),
            Some(FileKind::Console(Console::In)) if self.has_silent_input(tid) => 0,
            _ => self.ready_bits(id),
        }
    }

    fn has_silent_input(&self, tid: Tid) -> bool {
        self.container(self.process(self.task(tid).pid).container).stdin.silent
    }

    /// Whether [`Node::epoll_harvest`] by this task would find something.
    pub(crate) fn epoll_has_events(&self, id: EpollId, tid: Tid) -> bool {
        self.epoll_any(id, |file| self.ready_bits_for(file, tid))
    }

    /// As [`Node::ready_bits_for`], for a call that polls the description, which changes an epoll instance: watches at the front of its ready list
    /// that are not ready leave the list, up to the first that is (`__ep_eventpoll_poll`).
    pub(crate) fn poll_bits(&mut self, id: FileId, tid: Tid) -> u32 {
        let Some(&FileKind::Epoll(epoll)) = self.files.get(id).map(|file| &file.kind) else {
            return self.ready_bits_for(id, tid);
        };
        while let Some(&key) = self.epolls[epoll].ready.front() {
            let asked = self.epolls[epoll].items.get(&key).map_or(0, |item| item.events & !FLAGS);
            if asked != 0 && self.poll_bits(key.1, tid) & (asked | ALWAYS) != 0 {
                return epoll_bits(true);
            }
            let instance = &mut self.epolls[epoll];
            instance.ready.pop_front();
            if let Some(item) = instance.items.get_mut(&key) {
                item.queued = false;
            }
        }
        epoll_bits(false)
    }

    fn epoll_any(&self, id: EpollId, ready: impl Fn(FileId) -> u32) -> bool {
        let ep = &self.epolls[id];
        ep.ready
            .iter()
            .any(|k| ep.items.get(k).is_some_and(|i| ready(k.1) & (i.events & !FLAGS | ALWAYS) != 0))
    }

    /// A wake-up of `object` for `events`: its watches go to the ready lists, those with EPOLLEXCLUSIVE only until one has
    /// woken a task. "When a wakeup event occurs and multiple epoll file descriptors are attached to the same target file
    /// using EPOLLEXCLUSIVE, one or more of the epoll file descriptors will receive an event with epoll_wait(2)"; the others
    /// all receive it (epoll_ctl(2)).
    pub(crate) fn epoll_mark(&mut self, object: Object, events: u32) {
        let Some(watches) = self.epoll_watch.get(&object).cloned() else { return };
        // The end of a connection or a pipe is told to all (wake_up_interruptible_all).
        let all = events & (c::EPOLLHUP | c::EPOLLRDHUP) as u32 != 0;
        // The newest comes first; exclusive watches are at the end of Linux's list, in the order in which they were made (ep_ptable_queue_proc).
        for w in watches.iter().rev() {
            if !self.is_exclusive(w) {
                self.mark(w, events);
            }
        }
        for w in &watches {
            if self.is_exclusive(w) && self.mark(w, events) && !all {
                break;
            }
        }
    }

    /// Queues the watches of signalfds when a signal was sent to a process with these signal actions: those that such a process has added. They are
    /// in one queue (`sighand->signalfd_wqh`).
    pub(crate) fn epoll_mark_signals(&mut self, events: u32, signals_of: ActionsId) {
        let signalfds = self.signalfds.iter().map(|(id, _)| Object::SignalFd(id));
        let mut watches: Vec<(u64, WatchKey)> = signalfds
            .filter_map(|object| self.epoll_watch.get(&object))
            .flatten()
            .filter_map(|w| {
                Some((self.item(w).filter(|item| item.signals_of == Some(signals_of))?.added, *w))
            })
            .collect();
        watches.sort_unstable_by(|one, other| other.cmp(one));
        for (_, w) in watches {
            self.mark(&w, events);
        }
    }

    fn is_exclusive(&self, w: &WatchKey) -> bool {
        self.item(w).is_some_and(|item| item.events & c::EPOLLEXCLUSIVE as u32 != 0)
    }

    fn item(&self, w: &WatchKey) -> Option<&Item> {
        self.epolls.get(w.epoll).and_then(|ep| ep.items.get(&w.key))
    }

    /// Queues one watch if it asks for `events`; whether an exclusive one has thereby taken the wake-up: somebody slept in
    /// epoll_wait on its instance, for just this (ep_poll_callback's `ewake`).
    fn mark(&mut self, w: &WatchKey, events: u32) -> bool {
        let events = self.heard(w.key.1, events);
        let Some(ep) = self.epolls.get_mut(w.epoll) else { return false };
        let Some(item) = ep.items.get_mut(&w.key) else { return false };
        let interest = item.events & !FLAGS;
        if interest == 0 || events & (interest | ALWAYS | UNKEYED_READERS | UNKEYED_WRITERS) == 0 {
            return false;
        }
        if !item.queued {
            item.queued = true;
            ep.ready.push_back(w.key);
        }
        let wanted = match u64::from(events) & (c::EPOLLIN | c::EPOLLOUT) {
            0 => true,
            c::EPOLLIN => u64::from(interest) & c::EPOLLIN != 0,
            c::EPOLLOUT => u64::from(interest) & c::EPOLLOUT != 0,
            // Both at once are taken by nobody.
            _ => false,
        };
        let takes = wanted && self.sleeps_in_epoll_wait(w.epoll);
        self.notify_object(Object::Epoll(w.epoll), SAFE_WAKE);
        takes
    }

    /// What of a wake-up a description hears. Readers and writers of a pipe sleep in queues of their own (`rd_wait` and `wr_wait`), so an
    /// end that cannot be written hears nothing of room, whatever its watch asks for. EPOLLHUP is for readers, EPOLLERR for writers: of the last end of the other
    /// side that is closed both hear, whatever they ask for, and of the first one that is opened the readers ([`crate::pipe::OPENED`]).
    fn heard(&self, file: FileId, events: u32) -> u32 {
        let Some(FileKind::Pipe { read, write, .. }) = self.files.get(file).map(|file| &file.kind) else {
            return events;
        };
        let hears = |can: bool, bits: u64| if can { bits as u32 } else { 0 };
        let of_readers = hears(*read, c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLHUP | u64::from(UNKEYED_READERS));
        let of_writers = c::EPOLLOUT | c::EPOLLWRNORM | c::EPOLLERR | u64::from(UNKEYED_WRITERS);
        events & (of_readers | hears(*write, of_writers))
    }

    /// Whether a task sleeps in epoll_wait on the instance; those that poll its descriptor do not count.
    fn sleeps_in_epoll_wait(&self, ep: EpollId) -> bool {
        let waits = |tid: &Tid| match self.tasks.get(tid).map(|t| &t.state) {
            Some(TaskState::Blocked(blocked)) => matches!(
                blocked.call,
                Call::epoll_wait { .. } | Call::epoll_pwait { .. } | Call::epoll_pwait2 { .. }
            ),
            _ => false,
        };
        self.waiters.get(&WaitOn::Object(Object::Epoll(ep))).is_some_and(|list| list.iter().any(waits))
    }

    /// EPOLL_CTL_ADD and EPOLL_CTL_MOD by a thread, whose signals a signalfd shows.
    pub(crate) fn epoll_set(
        &mut self,
        ep: EpollId,
        key: Key,
        event: EpollEvent,
        add: bool,
        caller: Tid,
    ) -> Result<(), Errno> {
        let file = self.files.get(key.1).ok_or(Errno::EBADF)?;
        // "EPERM The target file fd does not support epoll. This error can occur if fd refers to, for example, a
        // regular file or a directory."
        let object = file.object().ok_or(Errno::EPERM)?;
        let exclusive = |events: u32| events & c::EPOLLEXCLUSIVE as u32 != 0;
        // "EINVAL An invalid event type was specified along with EPOLLEXCLUSIVE in events"; "op was EPOLL_CTL_MOD and events
        // included EPOLLEXCLUSIVE"; "EPOLLEXCLUSIVE was specified in event and fd refers to an epoll instance."
        let nested = matches!(object, Object::Epoll(_));
        if exclusive(event.events) && (!add || nested || event.events & !EXCLUSIVE_OK != 0) {
            return Err(Errno::EINVAL);
        }
        // "ELOOP fd refers to an epoll instance and this EPOLL_CTL_ADD operation would result in a circular loop of epoll
        // instances monitoring one another or a nesting depth of epoll instances greater than 5."
        if let Object::Epoll(inner) = object
            && add
            && (self.reaches(inner, ep) || self.below(inner) + 1 + self.above(ep) > MAX_NESTS)
        {
            return Err(Errno::ELOOP);
        }
        let adder = match object {
            Object::SignalFd(_) => Some(self.process(self.task(caller).pid).actions),
            _ => None,
        };
        let epoll = &mut self.epolls[ep];
        if add == epoll.items.contains_key(&key) {
            return Err(if add { Errno::EEXIST } else { Errno::ENOENT });
        }
        // "op was EPOLL_CTL_MOD and the EPOLLEXCLUSIVE flag has previously been applied to this epfd, fd pair."
        if epoll.items.get(&key).is_some_and(|i| exclusive(i.events)) {
            return Err(Errno::EINVAL);
        }
        // "EPOLLERR, EPOLLHUP: epoll_wait(2) will always report for this event; it is not necessary to set it in events":
        // the kernel sets them here, so that an empty set still reports them while a spent one-shot watch does not.
        let event = EpollEvent { events: event.events | ALWAYS, ..event };
        let (queued, signals_of, added) = match epoll.items.get(&key) {
            Some(item) => (item.queued, item.signals_of, item.added),
            None => (false, adder, self.watches_added),
        };
        let EpollEvent { events, data } = event;
        epoll.items.insert(key, Item { events, data, queued, object, signals_of, added });
        if add {
            self.watches_added += 1;
            self.epoll_watch.get_or_default(object).push(WatchKey { epoll: ep, key });
        }
        let bits = match object {
            Object::SignalFd(_) | Object::Epoll(_) => self.poll_bits(key.1, caller),
            _ => self.ready_bits(key.1),
        };
        if bits & (event.events & !FLAGS | ALWAYS) != 0 && event.events & !FLAGS != 0 {
            let epoll = &mut self.epolls[ep];
            if let Some(item) = epoll.items.get_mut(&key)
                && !item.queued
            {
                item.queued = true;
                epoll.ready.push_back(key);
                self.notify_object(Object::Epoll(ep), SAFE_WAKE);
            }
        }
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub(crate) fn epoll_remove(&mut self, ep: EpollId, key: Key) -> Result<(), Errno> {
        let epoll = self.epolls.get_mut(ep).ok_or(Errno::EBADF)?;
        let item = epoll.items.remove(&key).ok_or(Errno::ENOENT)?;
        if item.queued {
            epoll.ready.retain(|k| *k != key);
        }
        if let Some(list) = self.epoll_watch.get_mut(&item.object) {
            list.retain(|w| !(w.epoll == ep && w.key == key));
            if list.is_empty() {
                self.epoll_watch.remove(&item.object);
            }
        }
        Ok(())
    }

    /// The last reference to a description is gone: "closing a file descriptor [causes] it to be removed from all epoll
    /// sets ... only after all the file descriptors referring to the underlying open file description have been closed".
    pub(crate) fn epoll_forget_file(&mut self, object: Object, file: FileId) {
        let Some(watches) = self.epoll_watch.get(&object).cloned() else { return };
        for w in watches.into_iter().filter(|w| w.key.1 == file) {
            let _gone = self.epoll_remove(w.epoll, w.key);
        }
    }

    /// The instance itself is closed.
    pub(crate) fn epoll_close(&mut self, ep: EpollId) {
        self.epolls[ep].ready.clear();
        let keys: Vec<Key> = self.epolls[ep].items.keys().copied().collect();
        for key in keys {
            let _gone = self.epoll_remove(ep, key);
        }
        self.epolls.remove(ep);
    }

    /// Takes up to `max` events from the ready list, as ep_send_events does, each with what it is about.
    pub(crate) fn epoll_harvest(&mut self, ep: EpollId, max: usize, tid: Tid) -> Vec<(EpollEvent, Object)> {
        let mut out = Vec::new();
        for _ in 0..self.epolls[ep].ready.len() {
            if out.len() == max {
                break;
            }
            let Some(key) = self.epolls[ep].ready.pop_front() else { break };
            let ready = self.poll_bits(key.1, tid);
            let epoll = &mut self.epolls[ep];
            let Some(item) = epoll.items.get_mut(&key) else { continue };
            let bits = ready & (item.events & !FLAGS | ALWAYS);
            item.queued = false;
            if bits == 0 || item.events & !FLAGS == 0 {
                continue;
            }
            out.push((EpollEvent { events: bits, data: item.data }, item.object));
            if item.events & c::EPOLLONESHOT as u32 != 0 {
                // "disabled ... the user must call epoll_ctl() with EPOLL_CTL_MOD to rearm"
                item.events &= FLAGS;
            } else if item.events & c::EPOLLET as u32 == 0 {
                item.queued = true;
                epoll.ready.push_back(key);
            }
        }
        out
    }

    fn inner(&self, ep: EpollId) -> impl Iterator<Item = EpollId> {
        self.epolls[ep].items.values().filter_map(|i| match i.object {
            Object::Epoll(next) => Some(next),
            _ => None,
        })
    }

    fn reaches(&self, from: EpollId, target: EpollId) -> bool {
        from == target || self.inner(from).any(|next| self.reaches(next, target))
    }

    /// How many steps lead down from an instance to those that it watches; there is no circle, and never a long chain.
    fn below(&self, ep: EpollId) -> usize {
        self.inner(ep).map(|next| 1 + self.below(next)).max().unwrap_or(0)
    }

    /// The same upwards, to those that watch it.
    fn above(&self, ep: EpollId) -> usize {
        let outer = self.epoll_watch.get(&Object::Epoll(ep)).into_iter().flatten();
        outer.map(|w| 1 + self.above(w.epoll)).max().unwrap_or(0)
    }

    /// /proc/PID/fdinfo's "tfd:" lines: descriptor, events, data.
    pub fn epoll_items(&self, ep: EpollId) -> Vec<(i32, u32, u64)> {
        self.epolls[ep].items.iter().map(|(k, i)| (k.0, i.events, i.data)).collect()
    }
}
