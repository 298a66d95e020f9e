//! Blocking as data (design rule 3): why a system call stops ([`Stop`]), what a task waits for ([`Wait`]), and waking.
//!
//! A handler that cannot go on returns `Err(Stop::Block(wait))`. The task then sleeps until one of the things it
//! waits for is notified, its deadline passes, or a signal arrives; then the handler runs again from the start with
//! [`crate::ctx::Ctx::resumed`] telling what happened. Handlers therefore check everything first and mutate last.
//! They look for the event first and never for signals: the dispatcher interrupts a call that would sleep although a
//! signal is pending.

use bloodhound_abi::{Errno, SimTime};
use smallvec::SmallVec;

use crate::ids::*;
use crate::node::Node;
use crate::task::TaskState;

/// Result of a system call.
pub type SysResult<T = u64> = Result<T, Stop>;

/// Why a system call did not return a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An error for the guest.
    Errno(Errno),
    /// The task sleeps.
    Block(Box<Wait>),
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
    Event(EventId),
    TimerFd(TimerFdId),
    SignalFd(SignalFdId),
    Epoll(EpollId),
}

/// A reason to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitOn {
    /// The readiness of a pollable object may have changed.
    Object(Object),
    /// FUTEX_WAKE on the word.
    Futex(FutexKey),
    /// A child of the process changed state.
    Child(Pid),
    /// A vfork child released its parent's address space.
    Vfork(Pid),
    /// Standard input is known.
    Stdin,
    /// A file lock on the inode was released.
    Lock(bloodhound_vfs::Ino),
    /// The other side of the fifo is being opened.
    Fifo(bloodhound_vfs::Ino),
}

/// Identity of a futex word (futex(2)): private to an address space, or by the memory object behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FutexKey {
    /// Address in one address space.
    Private(MmId, u64),
    /// Byte offset in a file.
    File(bloodhound_vfs::Ino, u64),
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
    /// Part of the work is done: the call ends with this value, no error.
    Partial(u64),
    /// ERESTART_RESTARTBLOCK: as `NoHand`, but the rest of a relative timeout is kept.
    Block,
    /// Only a signal that ends the process interrupts: the wait of vfork(2)'s caller.
    Killable,
}

/// Where an interrupted call reports the time that it had left (nanosleep(2), select(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Address of a struct timespec.
    Timespec(u64),
    /// Address of a struct timeval.
    Timeval(u64),
}

/// What a blocked call must remember for its second run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Resume {
    /// Nothing: run the handler again.
    #[default]
    Retry,
    /// Bytes already transferred by a blocking write.
    Done(u64),
    /// recvmmsg and sendmmsg.
    Messages {
        /// Messages done.
        done: u32,
        /// Bytes of the next one done.
        bytes: u64,
        /// recvmmsg's timeout as a time.
        end: Option<SimTime>,
    },
    /// An open of a fifo ([`WaitOn::Fifo`]) that waits for the other side.
    Fifo {
        /// Wants to write; otherwise to read.
        write: bool,
        /// Set by the other side, which has counted the sleeper in and taken a reference for it.
        granted: bool,
    },
    /// A close that waits for the end of this connection (SO_LINGER).
    Linger(bloodhound_net::SocketId),
    /// A futex wait; true when FUTEX_WAKE (or a requeue's wake) chose it.
    Futex {
        /// Set by the waker.
        woken: bool,
        /// FUTEX_WAIT_BITSET's mask.
        bitset: u32,
    },
}

/// Why and until when a task sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Wakes when any of these is notified.
    pub on: SmallVec<[WaitOn; 2]>,
    /// Wakes at this time of the node's clock.
    pub deadline: Option<SimTime>,
    /// What an interrupting signal does.
    pub restart: Restart,
    /// State for the second run.
    pub resume: Resume,
    /// Signal mask to put back when the call ends (ppoll, epoll_pwait, sigsuspend).
    pub saved_mask: Option<u64>,
    /// Where an interruption stores what is left until the deadline.
    pub left: Option<Left>,
}

impl Wait {
    /// Waits for one thing, without a deadline, restarted after signals as most calls are.
    pub fn on(what: WaitOn) -> Wait {
        Wait {
            on: SmallVec::from_elem(what, 1),
            deadline: None,
            restart: Restart::Sys,
            resume: Resume::Retry,
            saved_mask: None,
            left: None,
        }
    }

    /// Waits for one object.
    pub fn object(object: Object) -> Wait {
        Wait::on(WaitOn::Object(object))
    }

    /// Waits for time or a signal only.
    pub fn until(deadline: Option<SimTime>) -> Wait {
        Wait {
            on: SmallVec::new(),
            deadline,
            restart: Restart::Sys,
            resume: Resume::Retry,
            saved_mask: None,
            left: None,
        }
    }

    /// With another deadline.
    pub fn deadline(mut self, deadline: Option<SimTime>) -> Wait {
        self.deadline = deadline;
        self
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

    /// With state for the second run.
    pub fn resume(mut self, resume: Resume) -> Wait {
        self.resume = resume;
        self
    }
}

impl From<Wait> for Stop {
    fn from(w: Wait) -> Stop {
        Stop::Block(Box::new(w))
    }
}

impl Node {
    /// Puts `tid` to sleep as `wait` says. Called by the dispatcher only.
    pub(crate) fn block(&mut self, tid: Tid, wait: Box<Wait>) {
        for on in &wait.on {
            self.waiters.get_or_default(*on).push(tid);
        }
        if let Some(deadline) = wait.deadline {
            self.sleepers.insert((deadline, tid));
        }
        self.run_queue.retain(|t| *t != tid);
        let task = self.task_mut(tid);
        task.state = TaskState::Blocked(wait);
    }

    /// Makes a sleeping task runnable; its call runs again. `timed_out` tells it that its deadline has passed.
    pub(crate) fn wake(&mut self, tid: Tid, timed_out: bool) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let TaskState::Blocked(wait) = std::mem::replace(&mut task.state, TaskState::Runnable) else {
            unreachable!("wake of a task that does not sleep")
        };
        task.resumed = Some(crate::task::Resumed { wait: (*wait).clone(), timed_out });
        for on in &wait.on {
            if let Some(list) = self.waiters.get_mut(on) {
                list.retain(|t| *t != tid);
                if list.is_empty() {
                    self.waiters.remove(on);
                }
            }
        }
        if let Some(deadline) = wait.deadline {
            self.sleepers.remove(&(deadline, tid));
        }
        self.enqueue(tid);
    }

    /// Wakes a sleeping task although nothing happened, for the standing test that no call minds.
    pub fn wake_spuriously(&mut self, tid: Tid) {
        self.wake(tid, false);
    }

    /// Wakes every task that waits for `on`, first come first. Never runs anything by itself.
    pub fn notify(&mut self, on: WaitOn) {
        if let Some(list) = self.waiters.get(&on).cloned() {
            for tid in list {
                if self.tasks.get(&tid).is_some_and(|t| matches!(t.state, TaskState::Blocked(_))) {
                    self.wake(tid, false);
                }
            }
        }
    }

    /// Tells that `object` may have become ready for `events` (EPOLL* bits): queues it with the epoll instances that
    /// watch it and wakes the tasks that wait for it.
    pub fn notify_object(&mut self, object: Object, events: u32) {
        self.epoll_mark(object, events);
        self.notify(WaitOn::Object(object));
    }
}

#[cfg(test)]
mod tests;
