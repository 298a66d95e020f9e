//! Blocking as data (design rule 3): why a system call stops ([`Stop`]), what a task waits for ([`Wait`]), and waking.
//!
//! A handler that cannot go on returns `Err(Stop::Block(sleep))`: a [`Wait`], and in [`Progress`] how far it has come. The
//! task then is [`Blocked`]: it keeps the call, and references to the open file descriptions that the call has looked up. When
//! one of the things it waits for is notified, its deadline passes, or a signal arrives, the same handler runs again with the
//! same call and the same descriptions; [`crate::ctx::Ctx::resumed`] tells what happened and how far it had come. Handlers
//! therefore check everything first and mutate last, and a wake-up for nothing changes nothing.
//! They look for the event first and never for signals: the dispatcher interrupts a call that would sleep although a
//! signal is pending.

use std::collections::BTreeMap;

use bloodhound_abi::args::Fd;
use bloodhound_abi::call::Call;
use bloodhound_abi::structs::PollFd;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::{BaseFs, Ino};
use smallvec::SmallVec;

use crate::buffers::{Buffers, Source};
use crate::container::IpcNs;
use crate::ids::*;
use crate::ipc::queue::Message;
use crate::locks::Request;
use crate::node::Node;
use crate::process::FdEntry;
use crate::seccomp::listener::Asked;
use crate::socket::Address;
use crate::sys::{Batch, Incoming, Outgoing};
use crate::task::TaskState;
use crate::timer::CpuClock;

/// Result of a system call.
pub type SysResult<T = u64> = Result<T, Stop>;

/// Why a system call did not return a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An error for the guest.
    Errno(Errno),
    /// The task sleeps.
    Block(Box<Sleep>),
    /// The task is gone (exit, exec of a sibling, fatal signal).
    Exited,
    /// Registers were set by the handler (rt_sigreturn, execve): there is no return value to store.
    NoReturn,
    /// The kernel does not model this: the run stops with a finding. The text says what was asked.
    Unsupported(String),
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Stop {
        Stop::Errno(e)
    }
}

/// Something that can be waited for by poll, epoll and blocking calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Object {
    Pipe(PipeId),
    Inet(bloodhound_net::SocketId),
    Unix(UnixId),
    Netlink(NetlinkId),
    Event(EventId),
    TimerFd(TimerFdId),
    SignalFd(SignalFdId),
    Epoll(EpollId),
    Process(Pid),
    Mq(MqId),
    Inotify(InotifyId),
    Listener(ListenerId),
    /// The tables of mounts, which never change while a container lives.
    Mounts,
    /// A pseudoterminal, and whether its master.
    Tty(PtyId, bool),
    /// A stream of a container, whose readiness never changes.
    Console(crate::file::Console),
}

/// A reason to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitOn {
    /// The readiness of a pollable object may have changed.
    Object(Object),
    /// FUTEX_WAKE on the word.
    Futex(FutexKey),
    /// A CPU clock has come to this time.
    CpuTime(CpuClock, SimTime),
    /// A child of the process changed state.
    Child(Pid),
    /// A vfork child released its parent's address space.
    Vfork(Pid),
    /// Standard input is known.
    Stdin,
    /// A file lock on the inode was released.
    Lock(Ino),
    /// A lease on the inode was given back.
    Lease(Ino),
    /// The other side of the fifo is being opened.
    Fifo(Ino),
    /// Room in the queue of a unix socket, for those who send or connect to it (`peer_wait` of net/unix/af_unix.c).
    UnixRoom(UnixId),
    /// The values of a semaphore set ([`crate::ipc`]).
    Semaphores(IpcNs, i32),
    /// A message of a queue, or room in it.
    Messages(IpcNs, i32),
    /// The same of a POSIX message queue.
    Mq(MqId),
    /// What a listener answers to this notification.
    Answer(ListenerId, u64),
}

/// Identity of a futex word (futex(2)): private to an address space, or by the memory object behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FutexKey {
    /// Address in one address space, of those that say that it is private.
    Private(MmId, u64),
    /// The same address to all others, which is another word ("FUT_OFF_MMSHARED", get_futex_key).
    Anonymous(MmId, u64),
    /// Byte offset in a file.
    File(Ino, u64),
    /// Byte offset in an unnamed shared-memory object.
    Shm(ShmId, u64),
}

/// How a signal handler's end treats an interrupted call: Linux's four ERESTART kinds (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// ERESTARTSYS: restarted after a handler with SA_RESTART, else EINTR.
    Sys,
    /// ERESTARTNOINTR: always restarted.
    NoIntr,
    /// ERESTARTNOHAND: restarted only if no handler ran.
    NoHand,
    /// Never restarted, whatever the handler says (epoll_wait, and others in the list of signal(7)).
    Never,
    /// The call ends with this value: part of the work is done.
    Partial(u64),
    /// ERESTART_RESTARTBLOCK: as `NoHand`, but the rest of a relative timeout is kept.
    Block,
    /// Only a signal that ends the process interrupts: the wait of vfork(2)'s caller.
    Killable,
}

/// Where an interrupted call reports what it has come to: the time that it had left (nanosleep(2), select(2)), or that there is no news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Address of a struct timespec.
    Timespec(u64),
    /// Address of a struct timeval.
    Timeval(u64),
    /// Address of the siginfo_t of waitid(2), or 0.
    News(u64),
}

/// Which children a wait call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// All.
    Any,
    /// One.
    Pid(Pid),
    /// Those of a process group.
    Group(Pid),
}

/// How far a call has come that sleeps: what it has read of the program's memory and what it has done. The next run takes it up
/// from here and reads nothing of that again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The arguments say it all.
    #[default]
    None,
    /// read(2), readv(2) and their kind, which move nothing before they sleep.
    Read(Buffers),
    /// The same of a terminal that does not wait for whole lines.
    Tty {
        /// Where to.
        to: Buffers,
        /// Bytes read.
        done: u64,
    },
    /// write(2), writev(2) and their kind.
    Write {
        /// What is to be written.
        source: Source,
        /// Bytes written.
        done: u64,
    },
    /// send(2) and its kind, and write(2) to a socket.
    Send(Box<Outgoing>),
    /// recv(2) and its kind, and read(2) from a socket.
    Receive(Box<Incoming>),
    /// sendmmsg(2), recvmmsg(2).
    Batch(Box<Batch>),
    /// sendfile(2).
    Sendfile {
        /// Where the input is read next, if the caller gave an offset.
        at: Option<u64>,
        /// Bytes moved.
        done: u64,
    },
    /// connect(2): the address.
    Connect(Address),
    /// poll(2): the set.
    Poll(Vec<PollFd>),
    /// select(2): the three sets, and for how many descriptors.
    Select(Box<[[u8; 128]; 3]>, usize),
    /// wait4(2), waitid(2).
    Children {
        /// The children. A group that is the caller's own is that of the call's beginning.
        which: Children,
        /// Only those that the caller's own thread has made (__WNOTHREAD).
        own: bool,
        /// One of them has news, or had some.
        told: bool,
    },
    /// A record lock of fcntl(2).
    Lock(Ino, Request),
    /// An open of a fifo that waits for the other side.
    Fifo {
        /// Its inode.
        ino: Ino,
        /// Wants to write; otherwise to read.
        write: bool,
        /// Set by the other side, which has counted the sleeper in and taken a reference for it.
        granted: bool,
        /// What openat2(2) has read.
        how: [u64; 3],
    },
    /// An open or truncation that waits for the end of a lease.
    Path {
        /// The path.
        path: Vec<u8>,
        /// What openat2(2) has read.
        how: [u64; 3],
        /// It writes.
        writes: bool,
    },
    /// A close that waits for the end of this connection (SO_LINGER).
    Linger(bloodhound_net::SocketId),
    /// A futex wait.
    Futex {
        /// Set by the task whose FUTEX_WAKE (or a requeue's wake) chose the sleeper.
        woken: bool,
        /// FUTEX_WAIT_BITSET's mask.
        bitset: u32,
    },
    /// futex_waitv(2): the words, and which of them a FUTEX_WAKE has chosen.
    Futexes(Vec<(FutexKey, bool)>),
    /// FUTEX_WAIT_REQUEUE_PI, before a FUTEX_CMP_REQUEUE_PI makes a wait for this lock of it.
    ToPiLock(FutexKey),
    /// FUTEX_LOCK_PI.
    PiLock {
        /// The sleeper has the lock now.
        owned: bool,
        /// The owner before it has ended without unlocking.
        died: bool,
    },
    /// vfork(2): the child.
    Vfork(Tid),
    /// semop(2): its result, once somebody else has carried it out.
    Semaphores(Option<Result<(), Errno>>),
    /// msgsnd(2): what is sent.
    MessageOut(Message),
    /// msgrcv(2): what has come.
    MessageIn(Option<Result<Message, Errno>>),
    /// mq_timedsend(2): its result, once somebody has made room.
    MqOut(Option<Result<(), Errno>>),
    /// mq_timedreceive(2): what has come.
    MqIn(Option<crate::ipc::mqueue::Received>),
    /// Any call, before it begins: a filter has left it to a listener.
    Asked(Asked),
    /// rt_sigtimedwait(2): the signals that the sleeper takes although they are blocked.
    Signals(u64),
}

/// An absolute time that a program has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// In the machine's own time.
    pub at: SimTime,
    /// It is a time of CLOCK_REALTIME.
    pub wall: bool,
}

/// Why and until when a task sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Wakes when any of these is notified.
    pub on: SmallVec<[WaitOn; 2]>,
    /// Wakes at this own time of the machine.
    pub deadline: Option<SimTime>,
    /// The deadline is a time of CLOCK_REALTIME, which it follows when that is set.
    pub wall: bool,
    /// What an interrupting signal does.
    pub restart: Restart,
    /// Signal mask to put back when the call ends (ppoll, epoll_pwait, sigsuspend).
    pub saved_mask: Option<u64>,
    /// Where an interruption stores what is left until the deadline.
    pub left: Option<Left>,
    /// The place among those who wait for the same in order ([`crate::line`]).
    pub place: Option<u64>,
}

impl Wait {
    /// Waits for one thing, without a deadline, restarted after signals as most calls are.
    pub fn on(what: WaitOn) -> Wait {
        Wait {
            on: SmallVec::from_elem(what, 1),
            deadline: None,
            wall: false,
            restart: Restart::Sys,
            saved_mask: None,
            left: None,
            place: None,
        }
    }

    /// Waits for one object.
    pub fn object(object: Object) -> Wait {
        Wait::on(WaitOn::Object(object))
    }

    /// Waits for time or a signal only.
    pub fn until(deadline: Option<SimTime>) -> Wait {
        let (on, restart) = (SmallVec::new(), Restart::Sys);
        Wait { on, deadline, wall: false, restart, saved_mask: None, left: None, place: None }
    }

    /// With another deadline.
    pub fn deadline(mut self, deadline: Option<SimTime>) -> Wait {
        self.deadline = deadline;
        self
    }

    /// With a deadline on some clock.
    pub fn ends(self, deadline: Option<Deadline>) -> Wait {
        Wait { wall: deadline.is_some_and(|end| end.wall), ..self.deadline(deadline.map(|end| end.at)) }
    }

    /// With another restart kind.
    pub fn restart(mut self, restart: Restart) -> Wait {
        self.restart = restart;
        self
    }

    /// With a place for the time left.
    pub fn left(mut self, left: Option<Left>) -> Wait {
        self.left = left;
        self
    }

    /// With what the next run must know.
    pub fn progress(self, progress: Progress) -> Sleep {
        Sleep { wait: self, progress }
    }
}

/// What a handler that cannot go on hands to the dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Why and until when.
    pub wait: Wait,
    /// How far the call has come.
    pub progress: Progress,
}

impl Sleep {
    /// With another restart kind.
    pub fn restart(mut self, restart: Restart) -> Sleep {
        self.wait.restart = restart;
        self
    }
}

impl From<Sleep> for Stop {
    fn from(sleep: Sleep) -> Stop {
        Stop::Block(Box::new(sleep))
    }
}

/// A system call that sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The call as it was decoded at its trap.
    pub call: Call,
    /// The descriptions that it has looked up, with a reference each.
    pub files: Pins,
    /// Why and until when it sleeps.
    pub wait: Wait,
    /// How far it has come.
    pub progress: Progress,
    /// Its relative timeout as it was read when it began, ns; `None` is for ever.
    pub timeout: Option<u64>,
    /// Bytes for whose move it has paid.
    pub paid: u64,
}

/// A call whose sleep has ended, until it has run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The call.
    pub blocked: Box<Blocked>,
    /// Its deadline has passed.
    pub timed_out: bool,
}

/// The open file descriptions that a call has looked up, by descriptor. As with Linux's `fdget`, the call goes on with them,
/// whatever another thread does to the descriptors meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    list: SmallVec<[(Fd, FdEntry); 2]>,
    /// Where each descriptor is in the list, of a list that is too long to be searched: poll(2) takes as many as there may be.
    places: BTreeMap<i32, usize>,
}

impl Pins {
    /// Longer lists are not searched.
    const SHORT: usize = 16;

    fn find(&self, fd: Fd) -> Option<usize> {
        if self.list.len() > Pins::SHORT {
            return self.places.get(&fd.0).copied();
        }
        self.list.iter().position(|(pinned, _)| *pinned == fd)
    }

    /// What the descriptor was when the call looked it up.
    pub fn get(&self, fd: Fd) -> Option<FdEntry> {
        self.find(fd).map(|at| self.list[at].1)
    }

    /// Adds a descriptor; the first look counts.
    pub fn add(&mut self, fd: Fd, entry: FdEntry) {
        if self.find(fd).is_some() {
            return;
        }
        self.list.push((fd, entry));
        if self.list.len() > Pins::SHORT {
            let from = if self.places.is_empty() { 0 } else { self.list.len() - 1 };
            let later = self.list.iter().enumerate().skip(from);
            self.places.extend(later.map(|(at, (fd, _))| (fd.0, at)));
        }
    }

    /// The descriptions.
    pub fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.list.iter().map(|(_, entry)| entry.file)
    }
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Stop {
        wait.progress(Progress::None).into()
    }
}

impl Node {
    /// Puts `tid` to sleep in a call. Called by the dispatcher only.
    pub(crate) fn block(&mut self, tid: Tid, blocked: Box<Blocked>) {
        for on in &blocked.wait.on {
            self.waiters.get_or_default(*on).push(tid);
        }
        if let Some(deadline) = blocked.wait.deadline {
            self.sleepers.insert((deadline, tid));
        }
        self.run_queue.retain(|t| *t != tid);
        let task = self.task_mut(tid);
        task.state = TaskState::Blocked(blocked);
    }

    /// Makes a sleeping task runnable; its call runs again. `timed_out` tells it that its deadline has passed.
    pub(crate) fn wake(&mut self, tid: Tid, timed_out: bool) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let TaskState::Blocked(blocked) = std::mem::replace(&mut task.state, TaskState::Runnable) else {
            unreachable!("wake of a task that does not sleep")
        };
        for on in &blocked.wait.on {
            if let Some(list) = self.waiters.get_mut(on) {
                list.retain(|t| *t != tid);
                if list.is_empty() {
                    self.waiters.remove(on);
                }
            }
        }
        if let Some(deadline) = blocked.wait.deadline {
            self.sleepers.remove(&(deadline, tid));
        }
        task.woken = Some(Woken { blocked, timed_out });
        self.enqueue(tid);
    }

    /// Makes a task runnable if it sleeps in a call.
    pub(crate) fn wake_if_blocked(&mut self, tid: Tid) {
        if self.tasks.get(&tid).is_some_and(|t| matches!(t.state, TaskState::Blocked(_))) {
            self.wake(tid, false);
        }
    }

    /// How far the call of a task has come that sleeps (`true`), or whose sleep has ended but that has not run again.
    pub(crate) fn progress_of(&mut self, tid: Tid) -> Option<(bool, &mut Progress)> {
        self.blocked_of(tid).map(|(sleeps, blocked)| (sleeps, &mut blocked.progress))
    }

    /// The call of such a task.
    pub(crate) fn blocked_of(&mut self, tid: Tid) -> Option<(bool, &mut Blocked)> {
        let task = self.tasks.get_mut(&tid)?;
        match (&mut task.state, &mut task.woken) {
            (TaskState::Blocked(blocked), _) => Some((true, blocked)),
            (_, Some(woken)) => Some((false, &mut woken.blocked)),
            _ => None,
        }
    }

    /// The same, to be looked at.
    pub(crate) fn call_of(&self, tid: Tid) -> Option<&Blocked> {
        let task = self.tasks.get(&tid)?;
        match (&task.state, &task.woken) {
            (TaskState::Blocked(blocked), _) => Some(blocked),
            (_, Some(woken)) => Some(&woken.blocked),
            _ => None,
        }
    }

    /// Gives back the references to descriptions that a call has held while it slept.
    pub(crate) fn unpin(&mut self, files: &Pins, base: &mut dyn BaseFs) {
        for file in files.files() {
            self.file_unref(file, base);
        }
    }

    /// Wakes a sleeping task although nothing happened, for the standing test that no call minds.
    pub fn wake_spuriously(&mut self, tid: Tid) {
        self.wake(tid, false);
    }

    /// Wakes every task that waits for `on`, first come first. Never runs anything by itself.
    pub fn notify(&mut self, on: WaitOn) {
        if let Some(list) = self.waiters.get(&on).cloned() {
            for tid in list {
                self.wake_if_blocked(tid);
            }
        }
    }

    /// Tells the threads of a process that wait for its child that the child has news. Others go on sleeping, also where they would find
    /// that they have no such child any more (child_wait_callback).
    pub(crate) fn notify_parent(&mut self, parent: Pid, child: Pid) {
        let Some(process) = self.processes.get(&parent) else { return };
        let (threads, group) = (process.threads.clone(), self.process(child).pgid);
        for tid in threads {
            let maker = self.process(child).parent_thread;
            let Some((sleeps, Progress::Children { which, own, told })) = self.progress_of(tid) else {
                continue;
            };
            // "if ((wo->wo_flags & __WNOTHREAD) && wo->child_wait.private != p->parent) return 0" (child_wait_callback).
            let others = *own && maker != tid;
            let meant = match *which {
                _ if others => false,
                Children::Any => true,
                Children::Pid(pid) => pid == child,
                Children::Group(of) => of == group,
            };
            // Also one that was woken already and has not run since.
            *told |= meant;
            if meant && sleeps {
                self.wake_if_blocked(tid);
            }
        }
    }

    /// Tells that `object` may have become ready for `events` (EPOLL* bits): queues it with the epoll instances that
    /// watch it and wakes the tasks that wait for it.
    pub fn notify_object(&mut self, object: Object, events: u32) {
        self.epoll_mark(object, events);
        self.object_async(object, events);
        self.notify(WaitOn::Object(object));
    }
}

#[cfg(test)]
mod tests;
