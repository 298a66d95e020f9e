//! exit(2), wait(2) and what tells who a process is.

use std::collections::BTreeMap;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Rusage, Timeval};

use crate::credentials::{Credentials, First};
use crate::ctx::*;
use crate::ids::*;
use crate::memory::TASK;
use crate::mm::PAGE;
use crate::node::{Node, ProcessEnd};
use crate::process::{ChildEvent, CpuTime, ExitStatus, Process};
use crate::shared::Common;
use crate::wait::{Children, Left, Progress, Stop, SysResult, Wait, WaitOn};
use crate::watch::Told;

impl Node {
    /// Ends every thread of the caller's process. The caller itself is gone on return.
    pub(crate) fn exit_group(&mut self, tid: Tid, status: ExitStatus, outside: &mut Outside<'_>) {
        let pid = self.task(tid).pid;
        let process = self.process_mut(pid);
        let status = *process.exiting.get_or_insert(status);
        // Linux sends the others SIGKILL and goes on to end the caller (do_group_exit): its end comes before theirs.
        let others: Vec<Tid> = process.threads.iter().copied().filter(|other| *other != tid).collect();
        self.exit_task(tid, status, outside);
        for other in others {
            self.exit_task(other, status, outside);
        }
    }

    /// Ends one thread; the last one ends the process.
    pub(crate) fn exit_task(&mut self, tid: Tid, status: ExitStatus, outside: &mut Outside<'_>) {
        let pid = self.task(tid).pid;
        Ctx::new(self, tid, outside.reborrow()).release_memory();
        // exit_signals of Linux.
        self.retarget(tid, u64::MAX);
        self.futex_forget(tid);
        self.pi_exit(tid);
        self.ipc_forget(tid);
        self.abandon_call(tid, outside.base);
        self.semaphores_undo(tid);
        self.vfork_done(tid);
        self.run_queue.retain(|t| *t != tid);
        let (common, first) = (self.task(tid).common, First::of(self.task(tid)));
        let credentials = first.credentials.clone();
        let filters = std::mem::take(&mut self.task_mut(tid).seccomp);
        self.tasks.remove(&tid);
        let container = self.process(pid).container;
        self.memory.kernel_shrinks(container, TASK);
        if tid.0 == pid.0 {
            let process = self.process_mut(pid);
            (process.first, process.ended_filters) = (first, filters);
        } else {
            self.release_filters(&filters);
        }
        outside.tell(self, (pid, tid), &Told::Ended { status });
        self.pass_choice(pid, tid);
        let process = self.process_mut(pid);
        process.threads.retain(|t| *t != tid);
        if process.threads.is_empty() {
            let status = process.exiting.unwrap_or(status);
            self.exit_process((pid, &credentials), common, status, outside);
        } else {
            let heir = process.threads[0];
            for child in self.hand_over_children(tid, pid, heir) {
                if self.process(child).zombie.is_none() {
                    self.signal_parents_end(child, pid, &credentials);
                }
            }
            self.release_table(common.table, pid, outside.base);
            self.release_place(common.place);
        }
    }

    /// Numbers a child that a thread is given, or a process that comes to a group.
    pub(crate) fn next_sibling(&mut self) -> u64 {
        self.births += 1;
        self.births
    }

    /// A thread has ended, or has another number: its children go to another thread of its process, behind those that this one has
    /// (forget_original_parent). Which they are.
    pub(crate) fn hand_over_children(&mut self, from: Tid, pid: Pid, heir: Tid) -> Vec<Pid> {
        let of = |p: &&Process| p.ppid == pid && p.parent_thread == from;
        let mut children: Vec<(u64, Pid)> =
            self.processes.values().filter(of).map(|p| (p.sibling, p.pid)).collect();
        children.sort_unstable();
        let children: Vec<Pid> = children.into_iter().map(|(_, child)| child).collect();
        for child in &children {
            let sibling = self.next_sibling();
            let child = self.process_mut(*child);
            (child.parent_thread, child.sibling) = (heir, sibling);
        }
        children
    }

    /// Lets a vfork parent go on.
    pub(crate) fn vfork_done(&mut self, tid: Tid) {
        if self.task_mut(tid).vfork_parent.take().is_some() {
            let pid = self.task(tid).pid;
            self.notify(WaitOn::Vfork(pid));
        }
    }

    /// `credentials`: of the last thread.
    fn exit_process(
        &mut self,
        (pid, credentials): (Pid, &Credentials),
        common: Common,
        status: ExitStatus,
        outside: &mut Outside<'_>,
    ) {
        let process = self.process_mut(pid);
        let mm = process.mm;
        let itimer = process.itimer.take();
        process.zombie = Some(status);
        self.rearm(crate::timer::TimerKey::Itimer(pid), itimer.map(|t| t.0), None);
        self.delete_timers(pid);
        self.release_table(common.table, pid, outside.base);
        self.release_place(common.place);
        self.leave_terminal(pid, true);
        let peak = self.mms[mm].peak;
        let process = self.process_mut(pid);
        process.peak = process.peak.max(peak);
        self.mm_release(pid, mm);
        self.put_files(outside.base);
        let comm = self.comm_of(pid);
        let (at, container) = (self.clock, self.container_of(pid).id);
        self.ends.push(ProcessEnd { at, container, pid, comm, status, fault: None });
        let groups = self.groups_held_by(pid);
        self.adopt_children(pid, credentials);
        self.end_orphaned(&groups);
        let readable = (c::EPOLLIN | c::EPOLLRDNORM) as u32;
        self.notify_object(crate::wait::Object::Process(pid), readable);
        self.reap_or_notify(pid, status);
    }

    /// The name of a process's program, without its directory.
    pub fn comm_of(&self, pid: Pid) -> Vec<u8> {
        let exe = &self.process(pid).exe;
        exe.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec()
    }

    /// Children of a dead process go to the nearest subreaper or to the first process of their namespace.
    fn adopt_children(&mut self, pid: Pid, credentials: &Credentials) {
        let mut heir = self.process(pid).ppid;
        while let Some(p) = self.processes.get(&heir) {
            if p.zombie.is_none() && p.subreaper {
                break;
            }
            heir = p.ppid;
        }
        if self.processes.get(&heir).is_none_or(|p| p.zombie.is_some()) {
            heir = self
                .processes
                .values()
                .find(|p| p.ppid == Pid::NONE && p.zombie.is_none() && p.pid != pid && p.pid.ns() == pid.ns())
                .map_or(Pid::NONE, |p| p.pid);
        }
        let thread = self.processes.get(&heir).and_then(|p| p.threads.first().copied()).unwrap_or(Tid(0));
        let mut children: Vec<(u64, Pid)> =
            self.processes.values().filter(|p| p.ppid == pid).map(|p| (p.sibling, p.pid)).collect();
        children.sort_unstable();
        for (_, child) in children {
            let sibling = self.next_sibling();
            let adopted = self.process_mut(child);
            (adopted.ppid, adopted.parent_thread, adopted.sibling) = (heir, thread, sibling);
            // "We don't want people slaying init" (reparent_leader).
            adopted.exit_signal = c::SIGCHLD as u32;
            match adopted.zombie {
                // The heir is told of it, or it goes where nobody wants to know.
                Some(status) => self.reap_or_notify(child, status),
                None => self.signal_parents_end(child, pid, credentials),
            }
        }
    }

    /// The thread that made a process has ended, one of `parent` that had these credentials: each thread of the process may have asked for
    /// a signal (PR_SET_PDEATHSIG(2const): "the \"parent\" in this case is considered to be the thread that created this process"). It is sent
    /// as kill(2) by the thread that ends would be, and not at all where that may not signal the thread (SEND_SIG_NOINFO counts as sent by a user).
    fn signal_parents_end(&mut self, child: Pid, parent: Pid, credentials: &Credentials) {
        let threads = self.process(child).threads.clone();
        for tid in threads {
            let signal = self.task(tid).pdeathsig;
            if signal != 0 && self.may_signal(parent, credentials, self.process(child), tid, signal) {
                let uid = credentials.real_ids[0];
                let info = crate::signal::user_info(signal, c::SI_USER as i32, parent, uid);
                self.send_process_by(child, tid, info);
            }
        }
    }

    fn reap_or_notify(&mut self, pid: Pid, status: ExitStatus) {
        let ppid = self.process(pid).ppid;
        let Some(parent) = self.processes.get(&ppid) else {
            // A root process: the runner learns of it through `ends`; nobody waits for it.
            self.forget_process(pid);
            return;
        };
        let action = self.actions[parent.actions].item[c::SIGCHLD as usize - 1];
        let (code, word) = match status {
            ExitStatus::Code(n) => (c::CLD_EXITED, i32::from(n)),
            ExitStatus::Signal { signo, core: true } => (c::CLD_DUMPED, signo as i32),
            ExitStatus::Signal { signo, .. } => (c::CLD_KILLED, signo as i32),
        };
        // "If SIGCHLD is ignored or SA_NOCLDWAIT is set, children do not become zombies" (wait(2), NOTES).
        let nobody = action.handler == c::SIG_IGN || action.flags & c::SA_NOCLDWAIT != 0;
        let by_sigchld = self.process(pid).exit_signal == c::SIGCHLD as u32;
        self.tell_parent(pid, code, word);
        if nobody && by_sigchld {
            self.forget_process(pid);
        }
    }
}

impl Ctx<'_> {
    /// The caller lets go of its memory, by its end or by execve(2): what others learn of that in it (exec_mm_release).
    pub(crate) fn release_memory(&mut self) {
        self.exit_robust_list();
        let task = self.task_mut();
        let word = std::mem::take(&mut task.clear_child_tid);
        task.robust_list = 0;
        let mm = self.process().mm;
        // set_tid_address(2): "the kernel will write 0 at this address and wake a futex" if others share the memory.
        let shared = self.node.mms[mm].users > 1 || self.process().threads.len() > 1;
        if word != 0 && shared && self.write_obj(Ptr(word), &0u32).is_ok() {
            self.wake_one(word);
        }
    }
}

/// _exit(2) of one thread.
pub fn exit(k: &mut Ctx<'_>, status: i32) -> SysResult {
    let code = ExitStatus::Code(status as u8);
    k.node.exit_task(k.tid, code, &mut k.outside);
    Err(Stop::Exited)
}

/// exit_group(2): all threads of the process end.
pub fn exit_group(k: &mut Ctx<'_>, status: i32) -> SysResult {
    let code = ExitStatus::Code(status as u8);
    k.node.exit_group(k.tid, code, &mut k.outside);
    Err(Stop::Exited)
}

/// A child's news for a wait call.
struct News {
    pid: Pid,
    uid: u32,
    /// Status word of wait4, CLD_* code and value of waitid.
    word: u32,
    code: u64,
    value: i32,
    cpu: CpuTime,
    /// Most resident pages.
    peak: u64,
}

impl Ctx<'_> {
    /// Looks for a child with news; takes them unless WNOWAIT.
    fn wait_child(&mut self, which: Children, options: u64) -> SysResult<Option<News>> {
        let (which, told) = match self.progress() {
            Some(Progress::Children { which, told, .. }) => (*which, Some(*told)),
            _ => (which, None),
        };
        let nothread = options & WaitFlags::__WNOTHREAD.bits() != 0;
        let asleep = Progress::Children { which, own: nothread, told: false };
        let sleep = Wait::on(WaitOn::Child(self.pid)).progress(asleep);
        // "A \"clone\" child is one which delivers no signal, or a signal other than SIGCHLD to its parent upon termination";
        // __WALL waits for all (wait4(2)).
        let clones = options & WaitFlags::__WCLONE.bits() != 0;
        let kind = |p: &Process| options & c::__WALL != 0 || (p.exit_signal != c::SIGCHLD as u32) == clones;
        // __WNOTHREAD: "Do not wait for children of other threads in the same thread group".
        let own = |p: &Process| p.parent_thread == self.tid;
        // A child that has ended is none for who does not ask for ends (wait_consider_task).
        let exited = options & c::WEXITED != 0;
        let matches = |p: &Process| {
            p.ppid == self.pid
                && kind(p)
                && (exited || p.zombie.is_none())
                && (!nothread || own(p))
                && match which {
                    Children::Any => true,
                    Children::Pid(pid) => p.pid == pid,
                    Children::Group(g) => p.pgid == g,
                }
        };
        // The caller's own children are looked at first, then those of the threads that were made after it, round to those of the
        // one before it (do_wait).
        let threads = &self.process().threads;
        let mut children: Vec<&Process> = self.node.processes.values().filter(|p| matches(p)).collect();
        if children.len() > 1 {
            let places: BTreeMap<Tid, usize> = threads.iter().copied().zip(0..).collect();
            let place = |tid: Tid| places.get(&tid).copied().unwrap_or(0);
            let (mine, count) = (place(self.tid), threads.len());
            children.sort_by_key(|p| ((place(p.parent_thread) + count - mine) % count, p.sibling));
        }
        let children: Vec<Pid> = children.into_iter().map(|p| p.pid).collect();
        if children.is_empty() {
            // Who sleeps already is not woken by the children that are left, and so does not find that they are others.
            let sleeps_on = told == Some(false) && !self.node.signal_deliverable(self.tid);
            return if sleeps_on { Err(sleep.into()) } else { err(Errno::ECHILD) };
        }
        for pid in children {
            let uid = self.node.credentials_of(self.node.process(pid)).real_ids[0];
            let p = self.node.process_mut(pid);
            let mut cpu = p.cpu;
            cpu += p.children_cpu;
            let io = p.io;
            let peak = p.peak.max(p.children_peak);
            let news = |word, code, value| News { pid, uid, word, code, value, cpu, peak };
            if let (Some(status), true) = (p.zombie, options & c::WEXITED != 0) {
                let (code, value) = match status {
                    ExitStatus::Code(n) => (c::CLD_EXITED, i32::from(n)),
                    ExitStatus::Signal { signo, core } => {
                        (if core { c::CLD_DUMPED } else { c::CLD_KILLED }, signo as i32)
                    }
                };
                if options & c::WNOWAIT == 0 {
                    self.node.forget_process(pid);
                    let own = self.process_mut();
                    own.children_cpu += cpu;
                    own.io += io;
                    own.children_peak = own.children_peak.max(peak);
                }
                return Ok(Some(news(status.wait_word(), code, value)));
            }
            let found = match p.event {
                Some(ChildEvent::Stopped(s)) if options & c::WUNTRACED != 0 => {
                    Some(news((s << 8) | 0x7f, c::CLD_STOPPED, s as i32))
                }
                Some(ChildEvent::Continued) if options & c::WCONTINUED != 0 => {
                    Some(news(0xffff, c::CLD_CONTINUED, c::SIGCONT as i32))
                }
                _ => None,
            };
            if found.is_some() {
                if options & c::WNOWAIT == 0 {
                    p.event = None;
                }
                return Ok(found);
            }
        }
        if options & c::WNOHANG != 0 {
            return Ok(None);
        }
        Err(sleep.into())
    }
}

/// `peak`: pages, of which "ru_maxrss [...] is the maximum resident set size used (in kilobytes)" is made. "For RUSAGE_CHILDREN, this
/// is the resident set size of the largest child, not the maximum resident set size of the process tree."
fn usage(cpu: CpuTime, peak: u64) -> Rusage {
    let mut usage = Rusage {
        utime: Timeval::from_ns(cpu.user()),
        stime: Timeval::from_ns(cpu.system()),
        ..Rusage::default()
    };
    usage.rest[0] = (peak * (PAGE / 1024)) as i64;
    usage
}

/// wait4(2). ECHILD if there is no such child; 0 with WNOHANG if none has news.
pub fn wait4(k: &mut Ctx<'_>, pid: i32, status: Ptr, options: WaitFlags, rusage: Ptr) -> SysResult {
    let kinds = WaitFlags::__WNOTHREAD | WaitFlags::__WALL | WaitFlags::__WCLONE;
    if options.exceeds(kinds | WaitFlags::WNOHANG | WaitFlags::WUNTRACED | WaitFlags::WCONTINUED) {
        return err(Errno::EINVAL);
    }
    let which = match pid {
        -1 => Children::Any,
        0 => Children::Group(k.process().pgid),
        // The negation of the smallest number is none ("ESRCH", kernel_wait4).
        _ if pid == i32::MIN => return err(Errno::ESRCH),
        ..-1 => Children::Group(k.pid_ns().pid(pid.unsigned_abs())),
        _ => Children::Pid(k.pid_ns().pid(pid as u32)),
    };
    let Some(news) = k.wait_child(which, options.bits() | c::WEXITED)? else { return Ok(0) };
    if !status.is_null() {
        k.write_obj(status, &news.word)?;
    }
    if !rusage.is_null() {
        k.write_obj(rusage, &usage(news.cpu, news.peak))?;
    }
    Ok(u64::from(news.pid.number()))
}

/// waitid(2). ECHILD if there is no such child; a structure of zeros with WNOHANG if none has news.
pub fn waitid(k: &mut Ctx<'_>, which: u32, id: i32, info: Ptr, options: WaitFlags, rusage: Ptr) -> SysResult {
    let news = match wait_id(k, which, id, options) {
        Ok(news) => news,
        Err(Stop::Errno(wrong)) => {
            // Linux tells that there is nothing also where the call fails.
            give_news(k, info, None)?;
            return err(wrong);
        }
        // Nor where a signal interrupts it.
        Err(Stop::Block(mut sleep)) => {
            sleep.wait.left = Some(Left::News(info.0));
            return Err(Stop::Block(sleep));
        }
        Err(other) => return Err(other),
    };
    if let Some(n) = &news
        && !rusage.is_null()
    {
        k.write_obj(rusage, &usage(n.cpu, n.peak))?;
    }
    give_news(k, info, news)?;
    Ok(0)
}

/// Tells the caller of waitid(2) that there is no news.
pub(super) fn give_no_news(k: &mut Ctx<'_>, info: Ptr) -> Result<(), Errno> {
    give_news(k, info, None)
}

/// Fills in what waitid(2) knows of a siginfo_t; the rest is left as it is.
fn give_news(k: &mut Ctx<'_>, info: Ptr, news: Option<News>) -> Result<(), Errno> {
    if info.is_null() {
        return Ok(());
    }
    let (head, child) = match news {
        Some(n) => ([c::SIGCHLD as i32, 0, n.code as i32], [n.pid.number() as i32, n.uid as i32, n.value]),
        None => ([0; 3], [0; 3]),
    };
    k.write_obj::<[i32; 3]>(info, &head)?;
    k.write_obj::<[i32; 3]>(Ptr(info.0.wrapping_add(16)), &child)
}

fn wait_id(k: &mut Ctx<'_>, which: u32, id: i32, options: WaitFlags) -> SysResult<Option<News>> {
    let news = WaitFlags::WEXITED | WaitFlags::WUNTRACED | WaitFlags::WCONTINUED;
    if options.exceeds(WaitFlags::all()) || !options.intersects(news) {
        return err(Errno::EINVAL);
    }
    let mut unready = false;
    let which = match u64::from(which) {
        c::P_ALL => Children::Any,
        c::P_PID if id > 0 => Children::Pid(k.pid_ns().pid(id as u32)),
        c::P_PGID if id > 0 => Children::Group(k.pid_ns().pid(id as u32)),
        c::P_PGID if id == 0 => Children::Group(k.process().pgid),
        // "EBADF idtype was P_PIDFD and id is not a valid PID file descriptor"; a process that is gone is nobody's child.
        c::P_PIDFD if id >= 0 => {
            let (process, nonblock) = k.pidfd(Fd(id))?;
            unready = nonblock;
            Children::Pid(process.unwrap_or(Pid(u32::MAX)))
        }
        _ => return err(Errno::EINVAL),
    };
    match k.wait_child(which, options.bits()) {
        // "EAGAIN The PID file descriptor specified in id is nonblocking and the process that it refers to has not terminated."
        Err(Stop::Block(_)) if unready => err(Errno::EAGAIN),
        news => news,
    }
}

/// set_tid_address(2).
pub fn set_tid_address(k: &mut Ctx<'_>, tidptr: Ptr) -> SysResult {
    k.task_mut().clear_child_tid = tidptr.0;
    Ok(u64::from(k.tid.number()))
}

/// getpid(2).
pub fn getpid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.pid.number()))
}

/// gettid(2).
pub fn gettid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.tid.number()))
}

/// getppid(2): 0 for a process that the run has started.
pub fn getppid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.process().ppid.number()))
}

/// getrusage(2).
pub fn getrusage(k: &mut Ctx<'_>, who: i32, usage_ptr: Ptr) -> SysResult {
    let process = k.process();
    let (cpu, peak) = match who {
        0 | 1 => {
            (if who == 0 { process.cpu } else { k.task().cpu }, process.peak.max(k.node.mms[process.mm].peak))
        }
        -1 => (process.children_cpu, process.children_peak),
        _ => return err(Errno::EINVAL),
    };
    k.write_obj(usage_ptr, &usage(cpu, peak))?;
    Ok(0)
}
