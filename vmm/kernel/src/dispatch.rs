//! From a system-call trap to its result: decode by the one table, run the handler, store the outcome.
//!
//! [`Node::syscall`] is called by the machine loop when a task traps, [`Node::resume_syscall`] when a task that slept
//! inside a call gets the CPU again, [`Node::before_user`] before a task returns to user code (signals).

use bloodhound_abi::call::Call;
use bloodhound_abi::{Errno, syscalls};

use crate::ctx::{Ctx, Outside};
use crate::ids::*;
use crate::node::Node;
use crate::task::{Resumed, TaskState};
use crate::wait::{Restart, Resume, Stop, SysResult, Wait};
use crate::watch::Told;

macro_rules! handle {
    ($k:ident, $name:ident, ($($arg:ident),*), errno $e:ident) => {
        Err(Stop::Errno(Errno::$e))
    };
    ($k:ident, $name:ident, ($($arg:ident),*), unsupported) => {
        Err(Stop::Unsupported(String::new()))
    };
    ($k:ident, $name:ident, ($($arg:ident),*), $status:ident) => {
        crate::sys::$name($k $(, $arg)*)
    };
}

macro_rules! make_dispatch {
    ($([$nr:literal $name:ident ($($arg:ident : $kind:ident),*) $status:ident $($errno:ident)? $note:literal])*) => {
        #[allow(unused_variables)] // arguments of calls that have no handler
        fn dispatch(k: &mut Ctx<'_>, call: Call) -> SysResult {
            match call {
                $(Call::$name { $($arg),* } => handle!(k, $name, ($($arg),*), $status $($errno)?),)*
                // A number that no Linux defines: "ENOSYS: The requested system call function is not implemented".
                Call::Unknown { .. } => Err(Stop::Errno(Errno::ENOSYS)),
            }
        }
    };
}

syscalls!(make_dispatch);

/// What a system call led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended with this value in rax.
    Done(u64),
    /// The task sleeps.
    Blocked,
    /// The task is gone.
    Exited,
    /// It set the registers itself.
    NoReturn,
    /// Something is not modelled: the run stops.
    Unsupported(String),
}

/// Whether the call came no further than it was: it sleeps for what it waited for already. What it copied then is not told, for
/// how often a call is woken for nothing is nothing that happens.
fn is_idle(result: &SysResult, resumed: Option<&Resumed>) -> bool {
    match (result, resumed) {
        (Err(Stop::Block(wait)), Some(before)) => wait.resume == before.wait.resume,
        (Err(Stop::Block(wait)), None) => wait.resume == Resume::Retry,
        _ => false,
    }
}

impl Node {
    /// Runs a call that the task has made.
    pub fn syscall(&mut self, tid: Tid, call: Call, outside: &mut Outside<'_>) -> Outcome {
        let cost = self.config.costs.syscall;
        self.charge(tid, cost);
        let task = self.task_mut(tid);
        task.in_syscall = true;
        task.syscalls += 1;
        self.run_call(tid, call, outside)
    }

    /// Runs a call again whose task was woken.
    pub fn resume_syscall(&mut self, tid: Tid, outside: &mut Outside<'_>) -> Outcome {
        let regs = self.task(tid).regs;
        self.run_call(tid, Call::decode(regs.orig_rax, regs.syscall_args()), outside)
    }

    fn run_call(&mut self, tid: Tid, call: Call, outside: &mut Outside<'_>) -> Outcome {
        let mut resumed = self.task_mut(tid).resumed.take();
        if let Some(resumed) = &mut resumed
            && resumed.wait.deadline.is_some_and(|end| end <= self.clock)
            && self.signal_deliverable(tid)
        {
            // A signal came before the deadline was noticed. Linux's timers fire by themselves; each call then has its own
            // order of deadline and signal.
            resumed.timed_out = true;
        }
        let mut ctx = Ctx::new(self, tid, outside.reborrow());
        ctx.resumed = resumed.clone();
        ctx.restart_deadline = ctx.task_mut().restart_deadline.take();
        let pid = ctx.pid;
        let result = dispatch(&mut ctx, call);
        let moved = ctx.moved;
        self.drain_net();
        if !moved.is_empty() && !is_idle(&result, resumed.as_ref()) {
            outside.tell(self, (pid, tid), &Told::Moved(moved));
        }
        let value = match result {
            Ok(value) => value,
            Err(Stop::Errno(e)) => e.as_ret(),
            Err(Stop::Block(wait)) => {
                // Nothing is there that the call waits for. Only now do signals count: one that was there before the first
                // sleep, or that woke the task ([`Node::kick`]).
                if self.interrupts(tid, &wait) {
                    return self.interrupt(tid, &wait);
                }
                self.block(tid, wait);
                return Outcome::Blocked;
            }
            Err(Stop::Exited) => return Outcome::Exited,
            Err(Stop::NoReturn) => {
                self.task_mut(tid).in_syscall = false;
                return Outcome::NoReturn;
            }
            Err(Stop::Unsupported(what)) => return Outcome::Unsupported(what),
        };
        if let Some(mask) = resumed.and_then(|r| r.wait.saved_mask) {
            // Signals that only the temporary mask let in stay pending (restore_saved_sigmask_unless).
            self.task_mut(tid).sigmask = mask;
        }
        self.finish_call(tid, value);
        Outcome::Done(value)
    }

    fn finish_call(&mut self, tid: Tid, value: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        task.regs.rax = value;
        task.in_syscall = false;
    }

    /// A signal interrupts a sleeping call: the registers get the restart code, which signal delivery turns into
    /// EINTR or a restart.
    pub(crate) fn interrupt(&mut self, tid: Tid, wait: &Wait) -> Outcome {
        let code = crate::signal::restart_code(wait.restart);
        let now = self.clock;
        if matches!(wait.resume, crate::wait::Resume::Futex { .. }) {
            self.futex_forget(tid);
        }
        let task = self.task_mut(tid);
        if wait.saved_mask.is_some() {
            task.restore_mask = wait.saved_mask;
        }
        task.left = wait.left.zip(wait.deadline.map(|d| d.since(now)));
        if wait.restart == Restart::Block {
            task.restart_deadline = wait.deadline;
        }
        task.resumed = None;
        task.regs.rax = code;
        task.in_syscall = false;
        if !matches!(task.state, TaskState::Stopped) {
            task.state = TaskState::Runnable;
            self.enqueue(tid);
        }
        Outcome::Done(code)
    }
}
