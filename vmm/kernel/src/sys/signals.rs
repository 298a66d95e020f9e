//! sigaction(2), sigprocmask(2), kill(2), sigsuspend(2), sigtimedwait(2), sigaltstack(2), signalfd(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Sigaction, Siginfo, StackT};

use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::process::Process;
use crate::signal::{SignalFd, UNBLOCKABLE, bit, user_info};
use crate::wait::{Restart, Resume, Stop, SysResult, Wait};

pub fn rt_sigaction(k: &mut Ctx<'_>, sig: i32, act: Ptr, old: Ptr, size: u64) -> SysResult {
    if size != 8 || !(1..=64).contains(&sig) {
        return err(Errno::EINVAL);
    }
    let index = sig as usize - 1;
    let new: Option<Sigaction> = if act.is_null() { None } else { Some(k.read_obj(act)?) };
    if new.is_some() && UNBLOCKABLE & bit(sig as u32) != 0 {
        return err(Errno::EINVAL);
    }
    if !old.is_null() {
        let current = k.process().actions[index];
        k.write_obj(old, &current)?;
    }
    if let Some(mut action) = new {
        action.mask &= !UNBLOCKABLE;
        let process = k.process_mut();
        std::sync::Arc::make_mut(&mut process.actions)[index] = action;
        // "Setting a signal action to SIG_IGN for a signal that is pending shall cause the pending signal to be
        // discarded, whether or not it is blocked." (POSIX, quoted in sigaction(2)'s NOTES)
        let ignored_default = matches!(sig as u64, c::SIGCHLD | c::SIGURG | c::SIGWINCH);
        if action.handler == c::SIG_IGN || (action.handler == c::SIG_DFL && ignored_default) {
            process.pending.discard(bit(sig as u32));
            for tid in process.threads.clone() {
                k.node.task_mut(tid).pending.discard(bit(sig as u32));
            }
        }
    }
    Ok(0)
}

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

pub fn rt_sigpending(k: &mut Ctx<'_>, set: Ptr, size: u64) -> SysResult {
    if size > 8 {
        return err(Errno::EINVAL);
    }
    let pending = k.node.pending_for(k.tid) & k.task().sigmask;
    k.write_bytes(set.0, &pending.to_le_bytes()[..size as usize])?;
    Ok(0)
}

pub fn rt_sigsuspend(k: &mut Ctx<'_>, set: Ptr, size: u64) -> SysResult {
    if k.resumed.is_none() && size != 8 {
        return err(Errno::EINVAL);
    }
    let saved = k.swap_mask(set, size)?;
    let mut wait = Wait::until(None).restart(Restart::NoHand);
    wait.saved_mask = saved;
    Err(wait.into())
}

pub fn pause(_k: &mut Ctx<'_>) -> SysResult {
    Err(Wait::until(None).restart(Restart::NoHand).into())
}

pub fn rt_sigtimedwait(k: &mut Ctx<'_>, set: Ptr, info: Ptr, timeout: Ptr, size: u64) -> SysResult {
    if size != 8 {
        return err(Errno::EINVAL);
    }
    let mask: u64 = k.read_obj::<u64>(set)? & !UNBLOCKABLE;
    let ns = k.read_timeout(timeout)?;
    let found = match k.task_mut().pending.take(mask) {
        Some(i) => Some(i),
        None => k.process_mut().pending.take(mask),
    };
    if let Some(found) = found {
        if !info.is_null() {
            k.write_obj(info, &found)?;
        }
        return Ok(found.signo as u64);
    }
    if k.timed_out() || ns == Some(0) {
        return err(Errno::EAGAIN);
    }
    let deadline = k.deadline(ns);
    // The mask in `resume` tells senders that this thread takes these signals although they are blocked.
    Err(Wait::until(deadline).restart(Restart::Never).resume(Resume::Done(mask)).into())
}

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
    /// "the real or effective user ID of the sending process must equal the real or saved set-user-ID of the target".
    fn may_signal(&self, target: &Process, signo: u32) -> bool {
        let me = self.process();
        let same = |id| id == target.real_ids[0] || id == target.real_ids[1];
        me.cred.is_root()
            || same(me.cred.uid)
            || same(me.real_ids[0])
            || (u64::from(signo) == c::SIGCONT && me.sid == target.sid)
    }

    fn signal_process(&mut self, pid: Pid, signo: u32, info: Siginfo) -> SysResult {
        let target = self.node.processes.get(&pid).ok_or(Errno::ESRCH)?;
        if !self.may_signal(target, signo) {
            return err(Errno::EPERM);
        }
        if signo != 0 {
            self.node.send_process(pid, info);
        }
        Ok(0)
    }
}

fn check(sig: i32) -> SysResult<u32> {
    if (0..=64).contains(&sig) { Ok(sig as u32) } else { err(Errno::EINVAL) }
}

pub fn kill(k: &mut Ctx<'_>, pid: i32, sig: i32) -> SysResult {
    let signo = check(sig)?;
    let info = user_info(signo, c::SI_USER as i32, k.pid, k.process().real_ids[0]);
    if pid > 0 {
        return k.signal_process(Pid(pid as u32), signo, info);
    }
    let group = match pid {
        0 => Some(k.process().pgid),
        -1 => None,
        i32::MIN => return err(Errno::ESRCH),
        _ => Some(Pid(pid.unsigned_abs())),
    };
    let me = k.pid;
    let targets: Vec<Pid> = k
        .node
        .processes
        .values()
        .filter(|p| match group {
            Some(g) => p.pgid == g,
            // "every process for which the calling process has permission to send signals, except for process 1 (init)"
            None => p.pid != me && p.ppid.0 != 0,
        })
        .map(|p| p.pid)
        .collect();
    if targets.is_empty() {
        return err(Errno::ESRCH);
    }
    let mut result = err(Errno::EPERM);
    for pid in targets {
        if k.signal_process(pid, signo, info).is_ok() {
            result = Ok(0);
        }
    }
    result
}

fn thread_kill(k: &mut Ctx<'_>, tgid: Option<i32>, tid: i32, signo: u32, info: Siginfo) -> SysResult {
    if tid <= 0 || tgid.is_some_and(|g| g <= 0) {
        return err(Errno::EINVAL);
    }
    let tid = Tid(tid as u32);
    let task = k.node.tasks.get(&tid).ok_or(Errno::ESRCH)?;
    if tgid.is_some_and(|g| task.pid != Pid(g as u32)) {
        return err(Errno::ESRCH);
    }
    if !k.may_signal(k.node.process(task.pid), signo) {
        return err(Errno::EPERM);
    }
    if signo != 0 {
        k.node.send_task(tid, info);
    }
    Ok(0)
}

pub fn tkill(k: &mut Ctx<'_>, tid: i32, sig: i32) -> SysResult {
    let signo = check(sig)?;
    let info = user_info(signo, c::SI_TKILL as i32, k.pid, k.process().real_ids[0]);
    thread_kill(k, None, tid, signo, info)
}

pub fn tgkill(k: &mut Ctx<'_>, tgid: i32, tid: i32, sig: i32) -> SysResult {
    let signo = check(sig)?;
    let info = user_info(signo, c::SI_TKILL as i32, k.pid, k.process().real_ids[0]);
    thread_kill(k, Some(tgid), tid, signo, info)
}

fn queued(k: &mut Ctx<'_>, sig: i32, ptr: Ptr) -> SysResult<(u32, Siginfo)> {
    let signo = check(sig)?;
    let mut info: Siginfo = k.read_obj(ptr)?;
    // "EPERM ... si_code is not allowed to be nonnegative": only the kernel may claim to be the kernel.
    if info.code >= 0 || info.code == c::SI_TKILL as i32 {
        return err(Errno::EPERM);
    }
    info.signo = sig;
    Ok((signo, info))
}

pub fn rt_sigqueueinfo(k: &mut Ctx<'_>, pid: i32, sig: i32, info: Ptr) -> SysResult {
    let (signo, info) = queued(k, sig, info)?;
    k.signal_process(Pid(u32::try_from(pid).map_err(|_| Errno::ESRCH)?), signo, info)
}

pub fn rt_tgsigqueueinfo(k: &mut Ctx<'_>, tgid: i32, tid: i32, sig: i32, info: Ptr) -> SysResult {
    let (signo, info) = queued(k, sig, info)?;
    thread_kill(k, Some(tgid), tid, signo, info)
}

pub fn signalfd(k: &mut Ctx<'_>, fd: Fd, mask: Ptr, size: u64) -> SysResult {
    signalfd4(k, fd, mask, size, Hex(0))
}

pub fn signalfd4(k: &mut Ctx<'_>, fd: Fd, mask: Ptr, size: u64, flags: Hex) -> SysResult {
    if size != 8 || flags.0 & !(c::O_NONBLOCK | c::O_CLOEXEC) != 0 {
        return err(Errno::EINVAL);
    }
    let mask: u64 = k.read_obj::<u64>(mask)? & !UNBLOCKABLE;
    if fd.0 != -1 {
        let FileKind::SignalFd(id) = k.file(fd)?.kind else { return err(Errno::EINVAL) };
        k.node.signalfds[id].mask = mask;
        return Ok(fd.0 as u64);
    }
    let id = k.node.signalfds.insert(SignalFd { mask });
    let file = File::new(FileKind::SignalFd(id), c::O_RDWR | flags.0 & c::O_NONBLOCK);
    Ok(k.open_file(file, flags.0 & c::O_CLOEXEC != 0)?)
}
