//! From a system-call trap to its result: decode by the one table, run the handler, store the outcome.
//!
//! [`Node::syscall`] is called by the machine loop when a task traps, [`Node::resume_syscall`] when a task that slept
//! inside a call gets the CPU again, [`Node::before_user`] before a task returns to user code (signals).

use bloodhound_abi::call::Call;
use bloodhound_abi::{Errno, SimTime, syscalls};
use bloodhound_vfs::BaseFs;

use crate::ctx::{Ctx, Outside, Resumed};
use crate::ids::*;
use crate::line::Place;
use crate::node::Node;
use crate::task::TaskState;
use crate::wait::{Blocked, Left, Pins, Progress, Restart, Sleep, Stop, SysResult, Wait, WaitOn, Woken};
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

impl Node {
    /// Runs a call that the task has made.
    pub fn syscall(&mut self, tid: Tid, call: Call, outside: &mut Outside<'_>) -> Outcome {
        let cost = self.config.costs.syscall + self.price_of_pages();
        self.charge(tid, cost);
        self.note_looks(tid, &call);
        let task = self.task_mut(tid);
        // Taken also when a filter refuses the call, as the deadline is that of this call only.
        let restart_deadline = task.restart_deadline.take();
        let judged = task.seccomp != crate::seccomp::Seccomp::Off;
        if judged && let Some(outcome) = self.seccomp_judge(tid, call, restart_deadline, outside) {
            return outcome;
        }
        self.begin_syscall(tid, call, restart_deadline, outside)
    }

    /// Runs a call for the first time that filters let go on.
    pub(crate) fn begin_syscall(
        &mut self,
        tid: Tid,
        call: Call,
        restart_deadline: Option<SimTime>,
        outside: &mut Outside<'_>,
    ) -> Outcome {
        let mut ctx = Ctx::new(self, tid, outside.reborrow());
        ctx.restart_deadline = restart_deadline;
        let container = ctx.process().container;
        let (pid, result) = (ctx.pid, dispatch(&mut ctx, call));
        let run = Run { pins: ctx.pins, timeout: ctx.timeout, paid: ctx.paid };
        let moved = ctx.moved;
        self.put_files(outside.base);
        self.name_injected(&call);
        self.drain_net();
        self.deliver_happened();
        self.weigh_objects(container);
        if self.memory_has_grown() {
            self.relieve(tid, outside);
        }
        if !moved.is_empty() {
            outside.tell(self, (pid, tid), &Told::Moved(moved));
        }
        match result {
            Err(Stop::Block(sleep)) => {
                for file in run.pins.files() {
                    self.file_ref(file);
                }
                self.suspend(tid, call, run, *sleep, outside)
            }
            result => {
                self.account_io(tid, &call, &result);
                self.conclude(tid, None, result)
            }
        }
    }

    /// Runs a call again whose task was woken: the same call, with the same descriptions.
    ///
    /// # Panics
    /// If the task is not inside a call.
    pub fn resume_syscall(&mut self, tid: Tid, outside: &mut Outside<'_>) -> Outcome {
        let Some(Woken { blocked, timed_out }) = self.task_mut(tid).woken.take() else {
            panic!("task {} was not woken inside a call", tid.0)
        };
        if let Progress::Asked(asked) = &blocked.progress {
            let asked = asked.clone();
            return self.resume_asked(tid, *blocked, asked, outside);
        }
        let Blocked { call, files, wait, progress, timeout, paid } = *blocked;
        // A signal may have come before the deadline was noticed. Linux's timers fire by themselves; each call then has its
        // own order of deadline and signal.
        let late = wait.deadline.is_some_and(|end| end <= self.own_time()) && self.signal_deliverable(tid);
        let saved_mask = wait.saved_mask;
        let mut ctx = Ctx::new(self, tid, outside.reborrow());
        (ctx.pins, ctx.timeout, ctx.paid) = (files, timeout, paid);
        let before = progress.clone();
        let place = wait.in_line();
        ctx.resumed = Some(Resumed { wait, progress, timed_out: timed_out || late });
        let container = ctx.process().container;
        let (pid, result) = (ctx.pid, dispatch(&mut ctx, call));
        let run = Run { pins: ctx.pins, timeout: ctx.timeout, paid: ctx.paid };
        let moved = ctx.moved;
        self.put_files(outside.base);
        self.name_injected(&call);
        self.drain_net();
        self.deliver_happened();
        self.weigh_objects(container);
        if self.memory_has_grown() {
            self.relieve(tid, outside);
        }
        // What a call has copied that came no further is not told: how often it is woken for nothing is nothing that happens.
        let idle = matches!(&result, Err(Stop::Block(sleep)) if sleep.progress == before);
        if !moved.is_empty() && !idle {
            outside.tell(self, (pid, tid), &Told::Moved(moved));
        }
        match &result {
            Err(Stop::Block(sleep)) if sleep.wait.in_line() == place => {}
            // What it did not take is for those behind it.
            Err(Stop::Errno(_)) => self.give_up_place(place),
            _ => self.leave_line(place),
        }
        match result {
            Err(Stop::Block(sleep)) => self.suspend(tid, call, run, *sleep, outside),
            result => {
                self.account_io(tid, &call, &result);
                self.unpin(&run.pins, outside.base);
                self.conclude(tid, saved_mask, result)
            }
        }
    }

    /// Nothing is there that the call waits for. Only now do signals count: one that was there before the first sleep, or that
    /// woke the task ([`Node::kick`]).
    pub(crate) fn suspend(
        &mut self,
        tid: Tid,
        call: Call,
        run: Run,
        sleep: Sleep,
        outside: &mut Outside<'_>,
    ) -> Outcome {
        let Sleep { wait, progress } = sleep;
        let Run { pins, timeout, paid } = run;
        if self.interrupts(tid, &wait) {
            self.account_io(tid, &call, &Err(Stop::Errno(Errno::EINTR)));
            let outcome = self.interrupt(tid, &wait);
            self.leave_line(wait.in_line());
            self.unpin(&pins, outside.base);
            return outcome;
        }
        self.block(tid, Box::new(Blocked { call, files: pins, wait, progress, timeout, paid }));
        Outcome::Blocked
    }

    /// The end of a call that does not sleep; `saved_mask` is the signal mask to put back.
    pub(crate) fn conclude(&mut self, tid: Tid, saved_mask: Option<u64>, result: SysResult) -> Outcome {
        let value = match result {
            Ok(value) => value,
            Err(Stop::Errno(e)) => e.as_ret(),
            Err(Stop::Block(_)) => unreachable!("a call that sleeps has not ended"),
            Err(Stop::Exited) => return Outcome::Exited,
            Err(Stop::NoReturn) => return Outcome::NoReturn,
            Err(Stop::Unsupported(what)) => return Outcome::Unsupported(what),
        };
        if let Some(task) = self.tasks.get_mut(&tid) {
            // Signals that only the temporary mask let in stay pending (restore_saved_sigmask_unless).
            task.sigmask = saved_mask.unwrap_or(task.sigmask);
            task.regs.rax = value;
        }
        Outcome::Done(value)
    }

    /// A signal interrupts a sleeping call: the registers get the restart code, which signal delivery turns into EINTR or a
    /// restart. A restarted call is a new one, as on Linux: its registers are decoded and its descriptors looked up again.
    fn interrupt(&mut self, tid: Tid, wait: &Wait) -> Outcome {
        let code = crate::signal::restart_code(wait.restart);
        let now = self.own_time();
        if matches!(wait.on.first(), Some(WaitOn::Futex(_))) {
            self.futex_forget(tid);
        }
        if let Some(on) = wait.on.first() {
            self.ipc_forget_on(tid, *on);
        }
        self.forget_notification(wait.on.first());
        let cpu = self.forget_cpu_sleep(tid, wait.on.first());
        let task = self.task_mut(tid);
        if wait.saved_mask.is_some() {
            task.restore_mask = wait.saved_mask;
        }
        let end = wait.deadline.or(cpu.map(|(at, _)| at));
        let left = wait.deadline.map(|d| d.since(now)).or(cpu.map(|(_, left)| left));
        // That waitid(2) has no news is told without a time.
        let left = left.or(matches!(wait.left, Some(Left::News(_))).then_some(0));
        task.left = wait.left.zip(left);
        if wait.restart == Restart::Block {
            task.restart_deadline = end;
        }
        task.regs.rax = code;
        if !matches!(task.state, TaskState::Stopped) {
            task.state = TaskState::Runnable;
            self.enqueue(tid);
        }
        Outcome::Done(code)
    }

    /// Takes a sleeping task out of its call, without another look: it is about to be stopped. The place that it had, which is to be given up
    /// when all threads of its process are stopped; that of a call that was woken already stays, but counts no longer.
    pub(crate) fn break_off(&mut self, tid: Tid, base: &mut dyn BaseFs) -> Option<Place> {
        if !matches!(self.task(tid).state, TaskState::Blocked(_)) {
            return self.call_of(tid).and_then(|blocked| blocked.wait.in_line());
        }
        self.wake(tid, false);
        let Woken { blocked, .. } = self.task_mut(tid).woken.take()?;
        self.account_io(tid, &blocked.call, &Err(Stop::Errno(Errno::EINTR)));
        self.interrupt(tid, &blocked.wait);
        self.leave_line(blocked.wait.in_line());
        self.unpin(&blocked.files, base);
        blocked.wait.in_line()
    }

    /// A task ends that may be inside a call: gives back what the call holds.
    pub(crate) fn abandon_call(&mut self, tid: Tid, base: &mut dyn BaseFs) {
        if matches!(self.task(tid).state, TaskState::Blocked(_)) {
            self.wake(tid, false);
        }
        let Some(Woken { blocked, .. }) = self.task_mut(tid).woken.take() else { return };
        self.forget_cpu_sleep(tid, blocked.wait.on.first());
        self.forget_fifo_open(&blocked.progress);
        self.forget_notification(blocked.wait.on.first());
        self.give_up_place(blocked.wait.in_line());
        self.unpin(&blocked.files, base);
    }
}

/// What is left of a run of a handler.
#[derive(Default)]
pub(crate) struct Run {
    pins: Pins,
    timeout: Option<u64>,
    paid: u64,
}
