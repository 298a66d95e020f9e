//! Signals (signal(7)): pending sets, actions, delivery frames, and what interrupts a sleeping call.
//!
//! Key types: [`Pending`], [`SignalFd`]. Delivery happens in [`Node::before_user`] only, when a task is about to return
//! to user code. The frame is Linux's `struct rt_sigframe` with a full XSAVE area, because programs (the JVM, Go)
//! look at it.

mod fd;
mod frame;
mod init;
mod pending;
mod restore;

pub use frame::initial_xstate;
pub(crate) use frame::on_alternate;
pub use pending::Pending;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::exception::{Exception, vector};
use bloodhound_abi::structs::{Sigaction, Siginfo};
use bloodhound_vfs::BaseFs;

use crate::ctx::{Ctx, Outside};
use crate::ids::*;
use crate::node::Node;
use crate::process::{ChildEvent, ExitStatus};
use crate::task::TaskState;
use crate::wait::{Left, Object, Restart, Stop, Wait, WaitOn};
use crate::watch::{Disposition, Told};
use init::{is_from_outside, is_kernel_only};

/// ERESTARTSYS and its kind as the kernel keeps them in rax between interruption and delivery (linux/errno.h).
const ERESTARTSYS: u64 = (-512i64) as u64;
const ERESTARTNOINTR: u64 = (-513i64) as u64;
const ERESTARTNOHAND: u64 = (-514i64) as u64;
const ERESTART_RESTARTBLOCK: u64 = (-516i64) as u64;

/// The rax value for an interrupted call.
pub fn restart_code(restart: Restart) -> u64 {
    match restart {
        Restart::Sys => ERESTARTSYS,
        Restart::NoIntr => ERESTARTNOINTR,
        Restart::NoHand => ERESTARTNOHAND,
        Restart::Block => ERESTART_RESTARTBLOCK,
        Restart::Never | Restart::Killable => Errno::EINTR.as_ret(),
        Restart::Partial(value) => value,
    }
}

/// Bit of a signal in a mask.
pub fn bit(signo: u32) -> u64 {
    1 << (signo - 1)
}

/// Signals that cannot be blocked, caught or ignored.
pub const UNBLOCKABLE: u64 = (1 << (c::SIGKILL - 1)) | (1 << (c::SIGSTOP - 1));

/// The name of a signal, `SIGRTn` for real-time ones.
pub fn name(signo: u32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match signo {
        1..=31 => format!("SIG{}", NAMES[signo as usize - 1]),
        _ => format!("SIGRT{}", signo.saturating_sub(32)),
    }
}

/// What happens without a handler (signal(7), "Standard signals").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Default_ {
    Ignore,
    Terminate,
    Core,
    Stop,
    Continue,
}

fn default_action(signo: u32) -> Default_ {
    match u64::from(signo) {
        c::SIGCHLD | c::SIGURG | c::SIGWINCH => Default_::Ignore,
        c::SIGCONT => Default_::Continue,
        c::SIGSTOP | c::SIGTSTP | c::SIGTTIN | c::SIGTTOU => Default_::Stop,
        c::SIGQUIT
        | c::SIGILL
        | c::SIGTRAP
        | c::SIGABRT
        | c::SIGBUS
        | c::SIGFPE
        | c::SIGSEGV
        | c::SIGXCPU
        | c::SIGXFSZ
        | c::SIGSYS => Default_::Core,
        _ => Default_::Terminate,
    }
}

/// Whether a signal does nothing to a process that has SIG_DFL for it (`sig_kernel_ignore`). SIGCONT is one: what it goes on with is done when
/// it is sent, not when it is delivered.
pub(crate) fn ignored_by_default(signo: u32) -> bool {
    matches!(default_action(signo), Default_::Ignore | Default_::Continue)
}

/// Whether a signal asks for a core dump, which tells of an error of the program (signal(7), "Core"), whether RLIMIT_CORE lets one be
/// made or not.
pub fn asks_for_core(signo: u32) -> bool {
    default_action(signo) == Default_::Core
}

/// What a signal does, for whoever is told.
fn disposition(action: &Sigaction, signo: u32) -> Disposition {
    match action.handler {
        c::SIG_IGN => Disposition::Ignored,
        c::SIG_DFL => match default_action(signo) {
            Default_::Ignore | Default_::Continue => Disposition::Ignored,
            Default_::Stop => Disposition::Stopped,
            Default_::Terminate | Default_::Core => Disposition::Killed,
        },
        _ => Disposition::Handled,
    }
}

/// A signalfd(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalFd {
    /// Signals it reports.
    pub mask: u64,
}

/// Signal information as kill(2) sends it.
pub fn user_info(signo: u32, code: i32, pid: Pid, uid: u32) -> Siginfo {
    let mut info = Siginfo { signo: signo as i32, code, ..Siginfo::default() };
    // Sender and receiver are in one namespace: no call names a process of another.
    info.fields[0] = u64::from(pid.number()) | (u64::from(uid) << 32);
    info
}

/// Signal information for a fault at `addr`.
pub fn fault_info(signo: u32, code: i32, addr: u64) -> Siginfo {
    let mut info = Siginfo { signo: signo as i32, code, ..Siginfo::default() };
    info.fields[0] = addr;
    info
}

/// SIGCHLD's information.
pub fn child_info(code: u64, pid: Pid, uid: u32, status: i32) -> Siginfo {
    let mut info = Siginfo { signo: c::SIGCHLD as i32, code: code as i32, ..Siginfo::default() };
    // Sender and receiver are in one namespace: no call names a process of another.
    info.fields[0] = u64::from(pid.number()) | (u64::from(uid) << 32);
    info.fields[1] = status as u32 as u64;
    info
}

impl Node {
    fn action(&self, pid: Pid, signo: u32) -> Sigaction {
        self.actions_of(pid)[signo as usize - 1]
    }

    fn ignored(&self, pid: Pid, info: &Siginfo) -> bool {
        let signo = info.signo as u32;
        self.ignored_by_action(pid, signo)
            || self.is_spared(pid, signo) && !(is_kernel_only(signo) && is_from_outside(info))
    }

    fn ignored_by_action(&self, pid: Pid, signo: u32) -> bool {
        let handler = self.action(pid, signo).handler;
        // SIG_KERNEL_IGNORE_MASK of Linux has SIGCONT, which resumes although it is ignored.
        handler == c::SIG_IGN || handler == c::SIG_DFL && ignored_by_default(signo)
    }

    /// Whether a signal that asks for a core dump makes one: the limit is at least a page, "the minimal size of a core dump"
    /// (elf_format.min_coredump). No file is written.
    pub(crate) fn dumps_core(&self, pid: Pid) -> bool {
        let process = self.process(pid);
        // "The process does not have the 'dumpable' attribute" leaves no core file (core(5), prctl(2)).
        let dumpable = self.mms.get(process.mm).is_some_and(|mm| mm.kept.dumpable != 0);
        dumpable && process.limits[c::RLIMIT_CORE as usize].cur >= crate::mm::PAGE
    }

    /// Sends a signal to a whole process; the main thread takes it if it does not block it.
    pub fn send_process(&mut self, pid: Pid, info: Siginfo) {
        self.send_process_by(pid, Tid(pid.0), info);
    }

    /// Sends a signal to a whole process that was named by one of its threads, which takes it if it does not block it.
    pub(crate) fn send_process_by(&mut self, pid: Pid, named: Tid, info: Siginfo) {
        let signo = info.signo as u32;
        let Some(process) = self.processes.get(&pid) else { return };
        if process.zombie.is_some() {
            return;
        }
        self.prepare_signal(pid, signo);
        let process = self.process(pid);
        // "Blocked signals are never ignored, since the signal handler may change by the time it is unblocked" (sig_ignored): it is the
        // thread that was named which is asked, whatever the others block.
        let asked = self.tasks.get(&named).map_or(process.first.sigmask, |task| task.sigmask);
        let ignored = self.ignored(pid, &info);
        if ignored && asked & bit(signo) == 0 || process.pending.has_place_of(&info) {
            return;
        }
        let taker = self.choose_taker(pid, named, signo);
        let unblocked = taker.filter(|tid| self.task(*tid).sigmask & bit(signo) == 0);
        // Another thread that neither blocks an ignored signal nor waits for it takes it at once: nobody else sees it, and all that comes of
        // it is that a sleep of this thread ends.
        // Who sleeps for it at a signalfd is woken before (signalfd_notify), and so sees it.
        let unseen = self.ignored_by_action(pid, signo) && !self.sleeps_at_signalfd(pid, signo);
        if let Some(tid) = unblocked.filter(|tid| unseen && !self.waits_for(*tid, signo)) {
            if matches!(self.task(tid).state, TaskState::Blocked(_)) {
                self.task_mut(tid).pending.add(info);
                self.kick(tid);
            }
            return;
        }
        self.process_mut(pid).pending.add(info);
        self.notify_signalfds(pid, signo);
        self.set_taker(pid, signo, taker);
        if let Some(tid) = unblocked {
            self.complete_fatal(tid, info);
        }
        if let Some(tid) = taker {
            self.kick(tid);
        }
        if u64::from(signo) == c::SIGKILL {
            for tid in self.process(pid).threads.clone() {
                self.kick(tid);
            }
        }
    }

    /// Sends a signal to one thread.
    pub fn send_task(&mut self, tid: Tid, info: Siginfo) {
        let signo = info.signo as u32;
        let Some(task) = self.tasks.get(&tid) else { return };
        let (pid, blocked) = (task.pid, task.sigmask & bit(signo) != 0);
        self.prepare_signal(pid, signo);
        // Of one that is pending already nobody hears again (legacy_queue).
        if self.ignored(pid, &info) && !blocked || self.task(tid).pending.has_place_of(&info) {
            return;
        }
        self.task_mut(tid).pending.add(info);
        self.notify_signalfds(pid, signo);
        if !blocked {
            self.complete_fatal(tid, info);
        }
        self.kick(tid);
    }

    /// "If the signal will be fatal to the whole group", all threads end by it, not only once `taker` runs (complete_signal): no signal that comes later is handled
    /// before, whatever its number. Core dumps are made by the thread that took the signal, so these wait for it. A thread to which another signal has come already
    /// takes no more (`wants_signal`): alone in its process, it takes them all in the order of their numbers.
    fn complete_fatal(&mut self, taker: Tid, info: Siginfo) {
        let signo = info.signo as u32;
        let Some(task) = self.tasks.get(&taker) else { return };
        let pid = task.pid;
        let process = self.process(pid);
        let fatal = self.action(pid, signo).handler == c::SIG_DFL
            && default_action(signo) == Default_::Terminate
            && !matches!(task.state, TaskState::Stopped);
        let is_busy = || process.threads.len() == 1 && self.due(taker) & !task.sigmask & !bit(signo) != 0;
        if !fatal || process.fatal.is_some() || is_busy() {
            return;
        }
        let threads = process.threads.clone();
        self.process_mut(pid).fatal = Some(info);
        for tid in threads {
            self.kick(tid);
        }
    }

    /// Signals that end a task's process without a core dump as soon as they are sent: not blocked, not handled.
    pub(crate) fn fatal_signals(&self, tid: Tid) -> u64 {
        let task = self.task(tid);
        let fatal = |signo: &u32| self.is_fatal(task.pid, *signo);
        (1..=64).filter(fatal).map(bit).fold(0, |mask, bit| mask | bit) & !task.sigmask
    }

    /// Whether a signal that is taken ends the process without a core dump.
    fn is_fatal(&self, pid: Pid, signo: u32) -> bool {
        self.action(pid, signo).handler == c::SIG_DFL
            && default_action(signo) == Default_::Terminate
            && (is_kernel_only(signo) || !self.is_spared(pid, signo))
    }

    /// SIGCONT and stop signals cancel each other when sent; SIGCONT resumes at once.
    fn prepare_signal(&mut self, pid: Pid, signo: u32) {
        const STOPS: u64 = (1 << (c::SIGSTOP - 1))
            | (1 << (c::SIGTSTP - 1))
            | (1 << (c::SIGTTIN - 1))
            | (1 << (c::SIGTTOU - 1));
        let threads = self.process(pid).threads.clone();
        let drop = match u64::from(signo) {
            c::SIGCONT => STOPS,
            _ if bit(signo) & STOPS != 0 => bit(c::SIGCONT as u32),
            c::SIGKILL => 0,
            _ => return,
        };
        self.process_mut(pid).pending.discard(drop);
        for tid in &threads {
            self.task_mut(*tid).pending.discard(drop);
        }
        if matches!(u64::from(signo), c::SIGCONT | c::SIGKILL) {
            let mut resumed = false;
            for tid in threads {
                if matches!(self.task(tid).state, TaskState::Stopped) {
                    self.task_mut(tid).state = TaskState::Runnable;
                    self.enqueue(tid);
                    resumed = true;
                }
            }
            if resumed && u64::from(signo) == c::SIGCONT {
                self.process_mut(pid).event = Some(ChildEvent::Continued);
                self.tell_parent(pid, c::CLD_CONTINUED, c::SIGCONT as i32);
            }
        }
    }

    /// A signal was sent to a process, of which signalfds tell.
    fn notify_signalfds(&mut self, pid: Pid, signo: u32) {
        self.wake_signalfds(self.process(pid).actions, bit(signo), c::EPOLLIN);
    }

    /// Wakes who waits at a signalfd that shows one of these signals, and queues all watches that processes with these signal actions have
    /// added to epoll instances: `signalfd_notify` looks at no mask, and whether they have something to tell is seen when they are harvested.
    pub(crate) fn wake_signalfds(&mut self, actions: ActionsId, signals: u64, events: u64) {
        let all: Vec<_> = self.signalfds.iter().map(|(id, fd)| (id, fd.mask & signals != 0)).collect();
        self.epoll_mark_signals(events as u32, actions);
        for (id, _) in all.into_iter().filter(|(_, shown)| *shown) {
            self.notify(WaitOn::Object(Object::SignalFd(id)));
        }
    }

    /// Whether a task waits for a signal in rt_sigtimedwait, or was woken there and has not run since.
    fn waits_for(&self, tid: Tid, signo: u32) -> bool {
        self.task(tid).awaited_signals() & bit(signo) != 0
    }

    /// Wakes a sleeping task if it has a signal to take. The signal does not end the call by itself: as in Linux, where every
    /// wait is a loop around `schedule`, the call looks for its event first (do_wait scans the children, do_poll the
    /// descriptors, pipe_read the buffer), and only one that would sleep again is interrupted (`suspend`).
    pub(crate) fn kick(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(&tid) else { return };
        let TaskState::Blocked(blocked) = &task.state else { return };
        if self.interrupts(tid, &blocked.wait) || task.awaited_signals() & self.pending_for(tid) != 0 {
            self.wake(tid, false);
        }
    }

    /// Whether a signal is pending that ends the sleep `wait` of a task.
    pub(crate) fn interrupts(&self, tid: Tid, wait: &Wait) -> bool {
        if wait.restart != Restart::Killable {
            return self.signal_deliverable(tid);
        }
        let Some(task) = self.tasks.get(&tid) else { return false };
        let hits = self.due(tid) & !task.sigmask;
        let process = self.process(task.pid);
        process.exiting.is_some()
            || process.fatal.is_some()
            || (1..=64).any(|signo| hits & bit(signo) != 0 && self.is_fatal(task.pid, signo))
    }

    /// All signals pending for a task.
    pub fn pending_for(&self, tid: Tid) -> u64 {
        let task = self.task(tid);
        task.pending.mask() | self.process(task.pid).pending.mask()
    }

    /// Whether a pending unblocked signal would do something (ignored ones are dropped on the way).
    pub(crate) fn signal_deliverable(&self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get(&tid) else { return false };
        let process = self.process(task.pid);
        if process.exiting.is_some() || process.fatal.is_some() {
            return true;
        }
        // An ignored signal that is queued for the task ends a sleep as any other does (signal_pending).
        self.due(tid) & !task.sigmask != 0
    }

    /// A fault or exception of the task itself: delivered even if blocked or ignored, as force_sig does.
    pub fn force_fault(&mut self, tid: Tid, info: Siginfo, exception: Exception) {
        let task = self.task_mut(tid);
        task.exception = exception;
        if exception.vector == vector::PF {
            task.cr2 = exception.address;
        }
        self.force_signal(tid, info);
    }

    /// As [`Node::force_fault`], for what is no exception of the processor.
    pub fn force_signal(&mut self, tid: Tid, info: Siginfo) {
        let signo = info.signo as u32;
        let pid = self.task(tid).pid;
        let blocked = self.task(tid).sigmask & bit(signo) != 0;
        // "If the signal is blocked or ignored, the default action is taken" (the kernel's force_sig_info).
        if blocked || self.action(pid, signo).handler == c::SIG_IGN {
            self.actions_of_mut(pid)[signo as usize - 1].handler = c::SIG_DFL;
            self.task_mut(tid).sigmask &= !bit(signo);
        }
        // A fault of its own ends the first process as any other: SIGNAL_UNKILLABLE is cleared here for a task that nobody traces (force_sig_info_to_task).
        if self.action(pid, signo).handler == c::SIG_DFL {
            self.process_mut(pid).unkillable = false;
        }
        let task = self.task_mut(tid);
        task.last_fault = Some(info);
        task.pending.add(info);
    }

    /// Runs before a task returns to user code: delivers a signal if one is due. False if the task is gone or
    /// stopped.
    pub fn before_user(&mut self, tid: Tid, outside: &mut Outside<'_>) -> bool {
        loop {
            let Some(task) = self.tasks.get(&tid) else { return false };
            if !matches!(task.state, TaskState::Runnable) {
                return false;
            }
            let pid = task.pid;
            if let Some(status) = self.process(pid).exiting {
                self.exit_task(tid, status, outside);
                return false;
            }
            if let Some(info) = self.process(pid).fatal {
                self.deliver(tid, pid, info, outside);
                return false;
            }
            let unblocked = self.due(tid) & !task.sigmask;
            if let Some((left, ns)) = self.task_mut(tid).left.take() {
                let stored = Ctx::new(self, tid, outside.reborrow()).report_left(left, ns);
                let task = self.task_mut(tid);
                // Of a sleep and of waitid(2) it is the answer (`nanosleep_copyout`), of select(2) and poll(2) it does not matter.
                let matters = task.regs.rax == ERESTART_RESTARTBLOCK || matches!(left, Left::News(_));
                if let (Err(errno), true) = (stored, matters) {
                    (task.regs.rax, task.regs.orig_rax) = (errno.as_ret(), u64::MAX);
                    task.restart_deadline = None;
                }
            }
            let Some(info) = self.take_pending(tid, unblocked) else {
                self.settle_restart(tid, None);
                if let Some(mask) = self.task_mut(tid).restore_mask.take() {
                    self.task_mut(tid).sigmask = mask;
                    continue;
                }
                if let Some(err) = self.bad_selector(tid) {
                    let info = fault_info(c::SIGSEGV as u32, c::SI_KERNEL as i32, 0);
                    self.force_fault(tid, info, Exception::general_protection(err));
                    continue;
                }
                return true;
            };
            let signo = info.signo as u32;
            if self.is_spared(pid, signo) && !is_kernel_only(signo) {
                // One that was blocked when it was sent is dropped here (get_signal of Linux).
                outside.tell(self, (pid, tid), &Told::Signal { signo, disposition: Disposition::Ignored });
                continue;
            }
            if !self.deliver(tid, pid, info, outside) {
                return false;
            }
        }
    }

    /// Acts on one signal. False if the task is gone or stopped.
    fn deliver(&mut self, tid: Tid, pid: Pid, info: Siginfo, outside: &mut Outside<'_>) -> bool {
        let signo = info.signo as u32;
        let action = self.action(pid, signo);
        let disposition = disposition(&action, signo);
        outside.tell(self, (pid, tid), &Told::Signal { signo, disposition });
        if action.handler == c::SIG_IGN {
            return true;
        }
        if action.handler == c::SIG_DFL {
            return match default_action(signo) {
                Default_::Ignore | Default_::Continue => true,
                // "If ... the process group is orphaned, [they] have no effect" but for SIGSTOP (get_signal in Linux).
                Default_::Stop if signo != c::SIGSTOP as u32 && self.is_orphaned(self.process(pid).pgid) => {
                    true
                }
                // A call that was interrupted is settled when the process goes on: a handler that runs then ends it (get_signal sleeps in do_signal_stop(), and looks for signals again).
                Default_::Stop => {
                    self.stop_process(pid, signo, outside.base);
                    false
                }
                kind => {
                    let status =
                        ExitStatus::Signal { signo, core: kind == Default_::Core && self.dumps_core(pid) };
                    self.exit_group(tid, status, outside);
                    false
                }
            };
        }
        self.settle_restart(tid, Some(&action));
        if action.flags & c::SA_RESETHAND != 0 {
            self.actions_of_mut(pid)[signo as usize - 1].handler = c::SIG_DFL;
        }
        let mut ctx = Ctx::new(self, tid, outside.reborrow());
        if ctx.push_frame(signo, &info, &action).is_err() {
            // No stack for the frame: Linux forces SIGSEGV, which has a stack of its own perhaps; if not, it kills.
            if signo != c::SIGSEGV as u32 {
                self.force_signal(tid, fault_info(c::SIGSEGV as u32, c::SI_KERNEL as i32, 0));
                return true;
            }
            let status = ExitStatus::Signal { signo, core: self.dumps_core(pid) };
            self.exit_group(tid, status, outside);
            return false;
        }
        let task = self.task_mut(tid);
        task.restore_mask = None;
        let defer = if action.flags & c::SA_NODEFER != 0 { 0 } else { bit(signo) };
        let blocked = (task.sigmask | action.mask | defer) & !UNBLOCKABLE & !task.sigmask;
        task.sigmask |= blocked;
        self.retarget(tid, blocked);
        true
    }

    /// Turns a kept restart code into EINTR or a restart (signal(7), "Interruption of system calls").
    fn settle_restart(&mut self, tid: Tid, handler: Option<&Sigaction>) {
        let task = self.task_mut(tid);
        let code = task.regs.rax;
        let restart = match (code, handler) {
            (ERESTARTSYS, Some(a)) => a.flags & c::SA_RESTART != 0,
            (ERESTARTNOHAND | ERESTART_RESTARTBLOCK, Some(_)) => false,
            (ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK, _) => true,
            _ => return,
        };
        if task.regs.orig_rax == u64::MAX {
            return;
        }
        if restart {
            // The `syscall` instruction is two bytes long.
            task.regs.rax = task.regs.orig_rax;
            task.regs.rip = task.regs.rip.wrapping_sub(2);
        } else {
            task.regs.rax = Errno::EINTR.as_ret();
            task.restart_deadline = None;
        }
        task.regs.orig_rax = u64::MAX;
    }

    fn stop_process(&mut self, pid: Pid, signo: u32, base: &mut dyn BaseFs) {
        let mut places = Vec::new();
        for tid in self.process(pid).threads.clone() {
            // "epoll_wait(2), ... can fail with the error EINTR after the process is stopped by one of the stop signals
            // and then resumed via SIGCONT" (signal(7)): all sleeps are broken off, most of them restart.
            if !matches!(&self.task(tid).state, TaskState::Blocked(b) if b.wait.restart == Restart::Killable)
            {
                places.extend(self.break_off(tid, base));
            }
            if matches!(self.task(tid).state, TaskState::Runnable) {
                self.task_mut(tid).state = TaskState::Stopped;
                self.run_queue.retain(|t| *t != tid);
            }
        }
        for place in places {
            self.look_again(place);
        }
        self.process_mut(pid).event = Some(ChildEvent::Stopped(signo));
        self.tell_parent(pid, c::CLD_STOPPED, signo as i32);
    }

    /// SIGCHLD and a wake-up for the parent.
    pub(crate) fn tell_parent(&mut self, pid: Pid, code: u64, status: i32) {
        let process = self.process(pid);
        let (ppid, exit_signal) = (process.ppid, process.exit_signal);
        // "si_uid: The real user ID of the child" (wait(2)).
        let uid = self.credentials_of(process).real_ids[0];
        let parent_thread = process.parent_thread;
        if self.processes.get(&ppid).is_none_or(|p| p.zombie.is_some()) {
            return;
        }
        let action = self.action(ppid, c::SIGCHLD as u32);
        let no_stop = action.flags & c::SA_NOCLDSTOP != 0;
        let ended = matches!(code, c::CLD_EXITED | c::CLD_KILLED | c::CLD_DUMPED);
        // Of a stop SIGCHLD tells whatever the signal of its end is (do_notify_parent_cldstop).
        let tells = if ended { exit_signal != 0 } else { !no_stop };
        if tells {
            let mut info = child_info(code, pid, uid, status);
            info.signo = if ended { exit_signal as i32 } else { c::SIGCHLD as i32 };
            // One that is ignored is not sent at all, and not pending where it is blocked (do_notify_parent).
            if info.signo as u64 != c::SIGCHLD || action.handler != c::SIG_IGN {
                // "__send_signal_locked(sig, &info, tsk->parent, PIDTYPE_TGID)" (do_notify_parent): a task's parent is the thread
                // that made it, as long as there is that thread.
                self.send_process_by(ppid, parent_thread, info);
            }
        }
        self.notify_parent(ppid, pid);
    }
}

#[cfg(test)]
mod tests;
