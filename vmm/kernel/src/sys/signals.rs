//! sigaction(2), sigprocmask(2), kill(2), sigsuspend(2), sigtimedwait(2), sigaltstack(2), signalfd(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Sigaction, Siginfo, StackT};

use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::process::Process;
use crate::signal::{SignalFd, UNBLOCKABLE, bit, user_info};
use crate::wait::{Progress, Restart, Stop, SysResult, Wait};

/// The flags of an action that there are (UAPI_SA_FLAGS).
const KNOWN_FLAGS: u64 = c::SA_NOCLDSTOP
    | c::SA_NOCLDWAIT
    | c::SA_SIGINFO
    | c::SA_ONSTACK
    | c::SA_RESTART
    | c::SA_NODEFER
    | c::SA_RESETHAND
    | c::SA_RESTORER
    | SA_EXPOSE_TAGBITS;
const SA_EXPOSE_TAGBITS: u64 = 0x800;

/// sigaction(2). EINVAL for SIGKILL and SIGSTOP.
pub fn rt_sigaction(k: &mut Ctx<'_>, sig: i32, act: Ptr, old: Ptr, size: u64) -> SysResult {
    if size != 8 {
        return err(Errno::EINVAL);
    }
    let new: Option<Sigaction> = if act.is_null() { None } else { Some(k.read_obj(act)?) };
    if !(1..=64).contains(&sig) || new.is_some() && UNBLOCKABLE & bit(sig as u32) != 0 {
        return err(Errno::EINVAL);
    }
    let index = sig as usize - 1;
    let current = k.node.actions_of(k.pid)[index];
    if let Some(mut action) = new {
        action.mask &= !UNBLOCKABLE;
        // "SA_UNSUPPORTED [...] the kernel will clear it", as all that it does not know (sigaction(2), do_sigaction).
        action.flags &= KNOWN_FLAGS;
        k.node.actions_of_mut(k.pid)[index] = action;
        let process = k.process_mut();
        // "Setting a signal action to SIG_IGN for a signal that is pending shall cause the pending signal to be
        // discarded, whether or not it is blocked." (POSIX, quoted in sigaction(2)'s NOTES) So is SIG_DFL where that ignores the signal.
        let ignored_default = crate::signal::ignored_by_default(sig as u32);
        if action.handler == c::SIG_IGN || (action.handler == c::SIG_DFL && ignored_default) {
            process.pending.discard(bit(sig as u32));
            for tid in process.threads.clone() {
                k.node.task_mut(tid).pending.discard(bit(sig as u32));
            }
        }
    }
    // The new action holds where the old one cannot be told as well.
    if !old.is_null() {
        k.write_obj(old, &current)?;
    }
    Ok(0)
}

/// sigprocmask(2): SIGKILL and SIGSTOP are never blocked, without an error.
pub fn rt_sigprocmask(k: &mut Ctx<'_>, how: u32, set: Ptr, old: Ptr, size: u64) -> SysResult {
    if size != 8 {
        return err(Errno::EINVAL);
    }
    let current = k.task().sigmask;
    if !set.is_null() {
        let mask: u64 = k.read_obj(set)?;
        let new = match u64::from(how) {
            c::SIG_BLOCK => current | mask,
            c::SIG_UNBLOCK => current & !mask,
            c::SIG_SETMASK => mask,
            _ => return err(Errno::EINVAL),
        };
        k.task_mut().sigmask = new & !UNBLOCKABLE;
    }
    if !old.is_null() {
        k.write_obj(old, &current)?;
    }
    Ok(0)
}

/// sigreturn(2): takes all registers from the frame on the stack; SIGSEGV for a bad one.
pub fn rt_sigreturn(k: &mut Ctx<'_>) -> SysResult {
    match k.sigreturn() {
        Err(Stop::Unsupported(what)) => return Err(Stop::Unsupported(what)),
        // A bad frame.
        Err(_) => {
            let info = crate::signal::fault_info(c::SIGSEGV as u32, c::SI_KERNEL as i32, 0);
            k.node.force_signal(k.tid, info);
        }
        Ok(()) => {}
    }
    Err(Stop::NoReturn)
}

/// sigpending(2).
pub fn rt_sigpending(k: &mut Ctx<'_>, set: Ptr, size: u64) -> SysResult {
    if size > 8 {
        return err(Errno::EINVAL);
    }
    let pending = k.node.pending_for(k.tid) & k.task().sigmask;
    k.write_bytes(set.0, &pending.to_le_bytes()[..size as usize])?;
    Ok(0)
}

/// sigsuspend(2): always ends with EINTR.
pub fn rt_sigsuspend(k: &mut Ctx<'_>, set: Ptr, size: u64) -> SysResult {
    if let Some(sleep) = k.sleep_on() {
        return sleep;
    }
    if size != 8 {
        return err(Errno::EINVAL);
    }
    let saved = k.swap_mask(set, size)?;
    let mut wait = Wait::until(None).restart(Restart::NoHand);
    wait.saved_mask = saved;
    Err(wait.into())
}

/// pause(2): always ends with EINTR.
pub fn pause(_k: &mut Ctx<'_>) -> SysResult {
    Err(Wait::until(None).restart(Restart::NoHand).into())
}

/// sigtimedwait(2). EAGAIN when the time is over.
pub fn rt_sigtimedwait(k: &mut Ctx<'_>, set: Ptr, info: Ptr, timeout: Ptr, size: u64) -> SysResult {
    if size != 8 {
        return err(Errno::EINVAL);
    }
    let mask = match k.progress() {
        Some(Progress::Signals(mask)) => *mask,
        _ => k.read_obj::<u64>(set)? & !UNBLOCKABLE,
    };
    let ns = k.read_timeout(timeout)?;
    // One that is not blocked and ends the process does so before anybody could take it (complete_signal of Linux).
    let taken = mask & !k.node.fatal_signals(k.tid);
    if let Some(found) = k.node.take_pending(k.tid, taken) {
        // It blocks the others again: those that were left to it go to who does not (`__set_task_blocked`).
        let again = mask & k.task().sigmask;
        k.node.retarget(k.tid, again);
        if !info.is_null() {
            k.write_obj(info, &found)?;
        }
        return Ok(found.signo as u64);
    }
    if k.timed_out() || ns == Some(0) {
        return err(Errno::EAGAIN);
    }
    let deadline = k.deadline(ns);
    // The mask tells senders that this thread takes these signals although they are blocked.
    Err(Wait::until(deadline).restart(Restart::Never).progress(Progress::Signals(mask)).into())
}

/// sigaltstack(2). EPERM while the stack is in use, ENOMEM for one that is too small.
pub fn sigaltstack(k: &mut Ctx<'_>, ss: Ptr, old: Ptr) -> SysResult {
    let current = k.task().altstack;
    let sp = k.task().regs.rsp;
    if !ss.is_null() {
        let new: StackT = k.read_obj(ss)?;
        k.set_altstack(new, sp)?;
    }
    if !old.is_null() {
        // The mode is told by where the task is; of what was set only the flag bits show.
        let mode = match current.size {
            0 => c::SS_DISABLE,
            _ if crate::signal::on_alternate(&current, sp) => c::SS_ONSTACK,
            _ => 0,
        };
        let flags = mode | current.flags as u32 as u64 & c::SS_AUTODISARM;
        k.write_obj(old, &StackT { flags: flags as u32 as i32, ..current })?;
    }
    Ok(0)
}

impl Ctx<'_> {
    /// Whether the caller may send `signo` to the process. It is the thread which was named that is asked, of a process its first one.
    fn may_signal(&self, target: &Process, named: Tid, signo: u32) -> bool {
        self.node.may_signal(self.pid, self.credentials(), target, named, signo)
    }

    /// Sends a signal to the process that `number` names, by its own id or by that of any of its threads: "kill_pid_info"
    /// looks for a task and signals its group.
    pub(super) fn signal_process(&mut self, number: i32, sig: i32, info: Siginfo) -> SysResult {
        let pid = self.node.process_of(self.pid_ns(), number).ok_or(Errno::ESRCH)?;
        // Linux finds the target first: an unknown signal for nobody is ESRCH.
        let signo = check(sig)?;
        let named = self.pid_ns().tid(number as u32);
        if !self.may_signal(self.node.process(pid), named, signo) {
            return err(Errno::EPERM);
        }
        if signo != 0 && self.may_send(pid, info)? {
            self.node.send_process_by(pid, named, info);
        }
        Ok(0)
    }

    /// Whether there is room to queue a signal, if it is one that queues. "EAGAIN The limit of signals which may be queued has been
    /// reached" (sigqueue(3)), also for tgkill(2); what kill(2) sends is pending then, without a place in the queue: false if it
    /// is so already.
    fn may_send(&self, pid: Pid, info: Siginfo) -> SysResult<bool> {
        const REAL_TIME: u32 = 32;
        let signo = info.signo as u32;
        if signo < REAL_TIME || self.node.may_queue(pid) {
            Ok(true)
        } else if info.code == c::SI_USER as i32 {
            Ok(self.node.process(pid).pending.mask() & crate::signal::bit(signo) == 0)
        } else {
            err(Errno::EAGAIN)
        }
    }

    /// A signal from the caller itself.
    pub(super) fn own_info(&self, sig: i32, code: u64) -> Siginfo {
        user_info(sig as u32, code as i32, self.pid, self.credentials().real_ids[0])
    }
}

fn check(sig: i32) -> SysResult<u32> {
    if (0..=64).contains(&sig) { Ok(sig as u32) } else { err(Errno::EINVAL) }
}

/// kill(2). ESRCH, EPERM; signal 0 only asks.
pub fn kill(k: &mut Ctx<'_>, pid: i32, sig: i32) -> SysResult {
    let info = k.own_info(sig, c::SI_USER);
    if pid > 0 {
        return k.signal_process(pid, sig, info);
    }
    let group = match pid {
        0 => Some(k.process().pgid),
        -1 => None,
        i32::MIN => return err(Errno::ESRCH),
        _ => Some(k.pid_ns().pid(pid.unsigned_abs())),
    };
    let me = k.pid;
    // "every process for which the calling process has permission to send signals, except for process 1 (init)"
    let other = |pid: &Pid| *pid != me && pid.number() > 1 && pid.ns() == me.ns();
    let targets: Vec<Pid> = match group {
        Some(group) => k.node.members_of(group),
        None => k.node.processes.values().map(|p| p.pid).filter(other).collect(),
    };
    if targets.is_empty() {
        return err(Errno::ESRCH);
    }
    let results: Vec<SysResult> =
        targets.into_iter().map(|pid| k.signal_process(pid.number() as i32, sig, info)).collect();
    let mut last = results.iter().rev();
    match group {
        // A group succeeds if one member could be signalled, and has the last one's error else (__kill_pgrp_info).
        Some(_) if results.iter().any(|r| r.is_ok()) => Ok(0),
        Some(_) => last.next().cloned().unwrap_or(Ok(0)),
        // For all processes a missing permission does not count at all (kill_something_info).
        None => last.find(|r| **r != err(Errno::EPERM)).cloned().unwrap_or(Ok(0)),
    }
}

fn thread_kill(k: &mut Ctx<'_>, tgid: Option<i32>, tid: i32, sig: i32, info: Siginfo) -> SysResult {
    if tid <= 0 || tgid.is_some_and(|g| g <= 0) {
        return err(Errno::EINVAL);
    }
    let number = tid as u32;
    let tid = k.pid_ns().tid(number);
    let Some(task) = k.node.tasks.get(&tid) else {
        // The first thread of a process is there until the process was waited for.
        let ended = k.pid_ns().pid(number);
        let there = k.node.processes.get(&ended).ok_or(Errno::ESRCH)?;
        if tgid.is_some_and(|g| ended != k.pid_ns().pid(g as u32)) {
            return err(Errno::ESRCH);
        }
        let signo = check(sig)?;
        return if k.may_signal(there, tid, signo) { Ok(0) } else { err(Errno::EPERM) };
    };
    if tgid.is_some_and(|g| task.pid != k.pid_ns().pid(g as u32)) {
        return err(Errno::ESRCH);
    }
    let signo = check(sig)?;
    if !k.may_signal(k.node.process(task.pid), tid, signo) {
        return err(Errno::EPERM);
    }
    if signo != 0 && k.may_send(k.node.task(tid).pid, info)? {
        k.node.send_task(tid, info);
    }
    Ok(0)
}

/// tkill(2). ESRCH, EPERM.
pub fn tkill(k: &mut Ctx<'_>, tid: i32, sig: i32) -> SysResult {
    let info = k.own_info(sig, c::SI_TKILL);
    thread_kill(k, None, tid, sig, info)
}

/// tgkill(2). ESRCH also for a thread of another process.
pub fn tgkill(k: &mut Ctx<'_>, tgid: i32, tid: i32, sig: i32) -> SysResult {
    let info = k.own_info(sig, c::SI_TKILL);
    thread_kill(k, Some(tgid), tid, sig, info)
}

/// The siginfo_t of a call that sends one to `number`. "Not even root can pretend to send signals from the kernel. Nor can
/// they impersonate a kill()/tgkill(), which adds source info" (do_rt_sigqueueinfo): EPERM, but for the calling thread.
fn queued(k: &mut Ctx<'_>, number: i32, sig: i32, ptr: Ptr) -> SysResult<Siginfo> {
    let mut info: Siginfo = k.read_obj(ptr)?;
    info.signo = sig;
    let forged = info.code >= 0 || info.code == c::SI_TKILL as i32;
    if forged && number != k.tid.number() as i32 { err(Errno::EPERM) } else { Ok(info) }
}

/// rt_sigqueueinfo(2). EPERM for codes that only the kernel may send.
pub fn rt_sigqueueinfo(k: &mut Ctx<'_>, pid: i32, sig: i32, info: Ptr) -> SysResult {
    let info = queued(k, pid, sig, info)?;
    k.signal_process(pid, sig, info)
}

/// rt_tgsigqueueinfo(2). EPERM for codes that only the kernel may send.
pub fn rt_tgsigqueueinfo(k: &mut Ctx<'_>, tgid: i32, tid: i32, sig: i32, info: Ptr) -> SysResult {
    let bad = tgid <= 0 || tid <= 0;
    let info = queued(k, if bad { k.tid.number() as i32 } else { tid }, sig, info)?;
    thread_kill(k, Some(tgid), tid, sig, info)
}

/// signalfd(2) as it was before it had flags.
pub fn signalfd(k: &mut Ctx<'_>, fd: Fd, mask: Ptr, size: u64) -> SysResult {
    signalfd4(k, fd, mask, size, FdFlags::empty())
}

/// signalfd(2): a new descriptor, or another mask for one that is there.
pub fn signalfd4(k: &mut Ctx<'_>, fd: Fd, mask: Ptr, size: u64, flags: FdFlags) -> SysResult {
    if size != 8 || flags.exceeds(FdFlags::O_NONBLOCK | FdFlags::O_CLOEXEC) {
        return err(Errno::EINVAL);
    }
    let mask: u64 = k.read_obj::<u64>(mask)? & !UNBLOCKABLE;
    if fd.0 != -1 {
        let FileKind::SignalFd(id) = k.file(fd)?.kind else { return err(Errno::EINVAL) };
        k.node.signalfds[id].mask = mask;
        // Whoever waits at any of the process's signalfds looks again.
        let actions = k.process().actions;
        k.node.wake_signalfds(actions, u64::MAX, c::EPOLLIN);
        return Ok(fd.0 as u64);
    }
    let id = k.node.signalfds.insert(SignalFd { mask });
    let file = File::new(FileKind::SignalFd(id), c::O_RDWR | flags.bits() & c::O_NONBLOCK);
    Ok(k.open_file(file, flags.contains(FdFlags::O_CLOEXEC))?)
}
