//! Listeners of filters (seccomp_unotify(2)): a call on which a filter answers SECCOMP_RET_USER_NOTIF sleeps until somebody who has
//! the listener's descriptor says what becomes of it.
//!
//! Key types: [`Listener`] (its notifications), [`Asked`] (what the call keeps that sleeps). An answer is put into the sleeping call at
//! once; the notification stays, answered, until the call runs.

use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::{Errno, SimTime};
use zerocopy::IntoBytes;

use super::{DATA, Seccomp};
use crate::ctx::*;
use crate::dispatch::{Outcome, Run};
use crate::ids::*;
use crate::node::Node;
use crate::wait::{Blocked, Object, Progress, Restart, SysResult, Wait, WaitOn};

/// linux/seccomp.h.
const RECV: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const ID_VALID: u64 = 0x4008_2102;
const ID_VALID_WRONG_DIR: u64 = 0x8008_2102;
/// SECCOMP_IOCTL_NOTIF_ADDFD, whose structure may grow: without direction and size.
const ADDFD: u64 = 0x2103;
const DIRECTION_AND_SIZE: u64 = 0xffff_0000;
/// SECCOMP_USER_NOTIF_FLAG_CONTINUE.
const CONTINUE: u32 = 1;
/// SECCOMP_ADDFD_FLAG_SETFD, SECCOMP_ADDFD_FLAG_SEND.
const SETFD: u32 = 1;
const AND_SEND: u32 = 2;
/// Bytes of `struct seccomp_notif_resp`.
const RESPONSE: u16 = 24;
/// Bytes of `struct seccomp_notif_addfd`.
const ADDITION: u64 = 24;

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The id of the next notification; the first is random.
    next: u64,
    /// How many notifications were made and not fetched, those included whose tasks were interrupted meanwhile (the semaphore `request`
    /// of `struct notification`).
    requests: u64,
    /// In the order in which they were made.
    notifications: Vec<Notification>,
    /// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV.
    killable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Notification {
    id: u64,
    tid: Tid,
    data: [u32; DATA as usize / 4],
    state: State,
}

/// SECCOMP_NOTIFY_INIT and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Sent,
    Replied,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It ends with this value.
    Value(u64),
    /// It is carried out.
    Continue,
}

/// What a call keeps that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    listener: ListenerId,
    id: u64,
    answer: Option<Answer>,
    /// When its relative timeout ends, of a call that was interrupted before.
    restart_deadline: Option<SimTime>,
}

impl Listener {
    pub(crate) fn new(first: u64, killable: bool) -> Listener {
        Listener { next: first, requests: 0, notifications: Vec::new(), killable }
    }

    fn find(&mut self, id: u64) -> Option<&mut Notification> {
        self.notifications.iter_mut().find(|n| n.id == id)
    }

    /// Somebody works on the notification. "ENOENT The blocked system call in the target has been interrupted [...] or the target has
    /// terminated", "EINPROGRESS" before it was fetched and after it was answered.
    fn being_answered(&mut self, id: u64) -> Result<Tid, Errno> {
        let notification = self.find(id).ok_or(Errno::ENOENT)?;
        if notification.state == State::Sent { Ok(notification.tid) } else { Err(Errno::EINPROGRESS) }
    }

    /// How a call waits for its answer: as others until it was fetched, then perhaps not for signals that do not end it
    /// (should_sleep_killable).
    fn restart(&self, id: u64) -> Restart {
        let sent = |n: &Notification| n.id == id && n.state == State::Sent;
        if self.killable && self.notifications.iter().any(sent) { Restart::Killable } else { Restart::Sys }
    }
}

impl Node {
    /// Asks a filter's listener about the call that a task makes. ENOSYS without one, as if "the filter's listener was closed".
    pub(super) fn ask_listener(
        &mut self,
        (tid, call): (Tid, Call),
        listener: Option<ListenerId>,
        data: [u32; 16],
        restart_deadline: Option<SimTime>,
        outside: &mut Outside<'_>,
    ) -> Outcome {
        let Some((listener, l)) = listener.and_then(|id| Some((id, self.listeners.get_mut(id)?))) else {
            return self.answered(tid, Errno::ENOSYS.as_ret());
        };
        let id = l.next;
        l.next = id.wrapping_add(1);
        l.requests += 1;
        l.notifications.push(Notification { id, tid, data, state: State::New });
        self.notify_object(Object::Listener(listener), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
        let asked = Asked { listener, id, answer: None, restart_deadline };
        let sleep = Wait::on(WaitOn::Answer(listener, id)).progress(Progress::Asked(asked));
        self.suspend(tid, call, Run::default(), sleep, outside)
    }

    /// A call runs on that has waited for an answer.
    pub(crate) fn resume_asked(
        &mut self,
        tid: Tid,
        blocked: Blocked,
        asked: Asked,
        outside: &mut Outside<'_>,
    ) -> Outcome {
        let Asked { listener, id, answer, restart_deadline } = asked;
        let Some(answer) = answer else {
            let restart = self.listeners.get(listener).map_or(Restart::Sys, |l| l.restart(id));
            let sleep = blocked.wait.restart(restart).progress(blocked.progress);
            return self.suspend(tid, blocked.call, Run::default(), sleep, outside);
        };
        self.forget_notification(blocked.wait.on.first());
        match answer {
            Answer::Continue => self.begin_syscall(tid, blocked.call, restart_deadline, outside),
            Answer::Value(value) => self.answered(tid, value),
        }
    }

    /// A call does not wait for its answer any more.
    pub(crate) fn forget_notification(&mut self, on: Option<&WaitOn>) {
        if let Some(WaitOn::Answer(listener, id)) = on
            && let Some(listener) = self.listeners.get_mut(*listener)
        {
            listener.notifications.retain(|n| n.id != *id);
        }
    }

    /// Gives a call that waits its answer.
    fn answer(&mut self, listener: ListenerId, id: u64, answer: Answer) {
        let Some(notification) = self.listeners.get_mut(listener).and_then(|l| l.find(id)) else { return };
        notification.state = State::Replied;
        let tid = notification.tid;
        if let Some((_, Progress::Asked(asked))) = self.progress_of(tid) {
            asked.answer = Some(answer);
        }
        self.wake_if_blocked(tid);
    }

    /// The last descriptor of a listener is gone: calls that wait fail with ENOSYS (seccomp_notify_detach).
    pub(crate) fn close_listener(&mut self, id: ListenerId) {
        let all = self.listeners.get(id).map(|l| l.notifications.clone()).unwrap_or_default();
        for notification in all.iter().filter(|n| n.state != State::Replied) {
            self.answer(id, notification.id, Answer::Value(Errno::ENOSYS.as_ret()));
        }
        self.listeners.remove(id);
    }

    /// Readiness (seccomp_notify_poll): a notification waits to be fetched, one to be answered, and nobody has the filter any more.
    pub(crate) fn listener_ready(&self, id: ListenerId) -> u64 {
        let any = |state| self.listeners[id].notifications.iter().any(|n| n.state == state);
        let mut bits = 0;
        if any(State::New) {
            bits |= c::EPOLLIN | c::EPOLLRDNORM;
        }
        if any(State::Sent) {
            bits |= c::EPOLLOUT | c::EPOLLWRNORM;
        }
        if !self.is_heard(id) {
            bits |= c::EPOLLHUP;
        }
        bits
    }

    /// Whether a thread has the filter of a listener, or a zombie does that nobody has waited for.
    fn is_heard(&self, id: ListenerId) -> bool {
        let has = |filters: &Seccomp| filters.listeners().any(|listener| listener == id);
        self.tasks.values().any(|task| has(&task.seccomp))
            || self.processes.values().any(|process| has(&process.ended_filters))
    }

    /// A thread is gone that had these filters (seccomp_filter_release).
    pub(crate) fn release_filters(&mut self, filters: &Seccomp) {
        for id in filters.listeners() {
            if self.listeners.get(id).is_some() && !self.is_heard(id) {
                self.notify_object(Object::Listener(id), c::EPOLLHUP as u32);
            }
        }
    }
}

impl Ctx<'_> {
    /// SECCOMP_GET_NOTIF_SIZES.
    pub(crate) fn notification_sizes(&mut self, to: Ptr) -> SysResult {
        self.write_obj(to, &[16 + DATA as u16, RESPONSE, DATA as u16])?;
        Ok(0)
    }

    /// ioctl(2) of a listener. EINVAL for commands that it does not have.
    pub(crate) fn listener_ioctl(&mut self, listener: ListenerId, cmd: u64, arg: Ptr) -> SysResult {
        match cmd {
            RECV => self.fetch_notification(listener, arg),
            SEND => self.send_answer(listener, arg),
            ID_VALID | ID_VALID_WRONG_DIR => {
                let id: u64 = self.read_obj(arg)?;
                let sent = self.node.listeners[listener].find(id).is_some_and(|n| n.state == State::Sent);
                if sent { Ok(0) } else { err(Errno::ENOENT) }
            }
            _ if cmd & !DIRECTION_AND_SIZE == ADDFD => self.add_descriptor(listener, arg, cmd >> 16 & 0x3fff),
            _ => err(Errno::EINVAL),
        }
    }

    /// "If there is no pending notification, the operation blocks until an event occurs", with O_NONBLOCK too. "ENOENT The target was
    /// killed by a signal as the notification information was being generated, or the target's (blocked) system call was
    /// interrupted". EINTR: nothing restarts down_interruptible.
    fn fetch_notification(&mut self, listener: ListenerId, to: Ptr) -> SysResult {
        if self.resumed.is_none() {
            // "EINVAL The seccomp_notif structure that was passed to the call contained nonzero fields".
            let given: [u8; 16 + DATA as usize] = self.read_obj(to)?;
            if given.iter().any(|b| *b != 0) {
                return err(Errno::EINVAL);
            }
        }
        let l = &self.node.listeners[listener];
        if l.requests == 0 {
            return Err(Wait::object(Object::Listener(listener)).restart(Restart::Never).into());
        }
        let Some(next) = l.notifications.iter().find(|n| n.state == State::New).cloned() else {
            self.node.listeners[listener].requests -= 1;
            return err(Errno::ENOENT);
        };
        // struct seccomp_notif: id, pid, flags, and the data.
        let number = Pid(next.tid.0).number_in(self.pid_ns());
        let mut words = [0u32; 4 + DATA as usize / 4];
        (words[0], words[1], words[2]) = (next.id as u32, (next.id >> 32) as u32, number);
        words[4..].copy_from_slice(&next.data);
        self.write_bytes(to.0, words.as_bytes())?;
        let l = &mut self.node.listeners[listener];
        l.requests -= 1;
        let killable = l.killable;
        if let Some(notification) = l.find(next.id) {
            notification.state = State::Sent;
        }
        if killable {
            // It waits otherwise from now on.
            self.node.wake_if_blocked(next.tid);
        }
        self.node.notify_object(Object::Listener(listener), (c::EPOLLOUT | c::EPOLLWRNORM) as u32);
        Ok(0)
    }

    /// SECCOMP_IOCTL_NOTIF_SEND.
    fn send_answer(&mut self, listener: ListenerId, from: Ptr) -> SysResult {
        // struct seccomp_notif_resp: id, val, error and flags.
        let [id, value, last]: [u64; 3] = self.read_obj(from)?;
        let (error, flags) = (last as i32, (last >> 32) as u32);
        // "EINVAL An invalid value was specified in the flags field", "[...] CONTINUE, and the error and val fields were not zero".
        let goes_on = flags == CONTINUE;
        if flags & !CONTINUE != 0 || goes_on && (error != 0 || value != 0) {
            return err(Errno::EINVAL);
        }
        self.node.listeners[listener].being_answered(id)?;
        // syscall_set_return_value: `error ?: val`.
        let answer = match error {
            _ if goes_on => Answer::Continue,
            0 => Answer::Value(value),
            _ => Answer::Value(i64::from(error) as u64),
        };
        self.node.answer(listener, id, answer);
        Ok(0)
    }

    /// SECCOMP_IOCTL_NOTIF_ADDFD: a copy of a descriptor for the task whose call waits. The result is the copy's number there. The task
    /// does it itself on Linux, when it gets to run.
    fn add_descriptor(&mut self, listener: ListenerId, from: Ptr, size: u64) -> SysResult {
        if !(ADDITION..crate::mm::PAGE).contains(&size) {
            return err(Errno::EINVAL);
        }
        // struct seccomp_notif_addfd: id, flags, srcfd, newfd, newfd_flags.
        self.check_newer_fields(from, ADDITION, size)?;
        let [id, source, target]: [u64; 3] = self.read_obj(from)?;
        let (flags, source) = (source as u32, Fd((source >> 32) as i32));
        let (number, fd_flags) = (target as u32, target >> 32);
        if fd_flags & !c::O_CLOEXEC != 0
            || flags & !(SETFD | AND_SEND) != 0
            || number != 0 && flags & SETFD == 0
        {
            return err(Errno::EINVAL);
        }
        let file = self.file_id(source)?;
        let tid = self.node.listeners[listener].being_answered(id)?;
        let cloexec = fd_flags & c::O_CLOEXEC != 0;
        let mounts = self.container().mounts;
        let mut target = Ctx::new(self.node, tid, self.outside.reborrow());
        let fd = if flags & SETFD != 0 {
            target.dup_onto(file, Fd(number as i32), cloexec)
        } else {
            target.node.file_ref(file);
            target.install(file, cloexec).map_err(Into::into)
        };
        self.node.vfs.enter_namespace(mounts);
        let fd = fd?;
        if flags & AND_SEND != 0 {
            self.node.answer(listener, id, Answer::Value(fd));
        }
        Ok(fd)
    }
}
