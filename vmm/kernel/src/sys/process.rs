//! fork(2), clone(2), exit(2), wait(2), kill(2)'s relatives of identity: process groups and sessions.

use bloodhound_abi::consts as c;
use bloodhound_abi::names;
use bloodhound_abi::structs::{CloneArgs, Rusage, Siginfo, Timeval};
use bloodhound_abi::{Errno, Regs};

use crate::ctx::*;
use crate::ids::*;
use crate::node::{Node, ProcessEnd};
use crate::process::{ChildEvent, ExitStatus, Process};
use crate::task::{Task, Vectors};
use crate::wait::{Progress, Stop, SysResult, Wait, WaitOn};
use crate::watch::Told;

/// What clone(2) was asked for, from either of its calls.
struct CloneRequest {
    flags: u64,
    exit_signal: u32,
    stack: u64,
    parent_tid: Ptr,
    child_tid: Ptr,
    tls: u64,
}

/// clone(2). EINVAL for flags that do not go together; EPERM for namespaces.
pub fn clone(
    k: &mut Ctx<'_>,
    flags: CloneFlags,
    stack: Ptr,
    parent_tid: Ptr,
    child_tid: Ptr,
    tls: Ptr,
) -> SysResult {
    let exit_signal = (flags.bits() & 0xff) as u32;
    do_clone(
        k,
        CloneRequest {
            flags: flags.bits() & !0xff & 0xffff_ffff,
            exit_signal,
            stack: stack.0,
            parent_tid,
            child_tid,
            tls: tls.0,
        },
    )
}

/// clone3(2): as clone(2), with its arguments in a structure that may be longer than known if the rest is 0 (E2BIG).
pub fn clone3(k: &mut Ctx<'_>, args: Ptr, size: u64) -> SysResult {
    if size < 64 {
        return err(Errno::EINVAL);
    }
    let mut raw = CloneArgs::default();
    let n = (size as usize).min(size_of::<CloneArgs>());
    k.check_newer_fields(args, n as u64, size)?;
    k.read_bytes(args.0, &mut zerocopy::IntoBytes::as_mut_bytes(&mut raw)[..n])?;
    // "EINVAL One of the values specified in flags is not recognized"; what clone(2) takes for a signal is none.
    const CSIGNAL: u64 = 0xff;
    let unknown = raw.flags & !(0xffff_ffff | c::CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP);
    if unknown != 0 || raw.flags & (c::CLONE_DETACHED | CSIGNAL & !CLONE_NEWTIME) != 0 {
        return err(Errno::EINVAL);
    }
    let both = c::CLONE_SIGHAND | c::CLONE_CLEAR_SIGHAND;
    let silent = raw.flags & (c::CLONE_THREAD | c::CLONE_PARENT) != 0 && raw.exit_signal != 0;
    if raw.flags & both == both || silent || (raw.set_tid == 0) != (raw.set_tid_size == 0) {
        return err(Errno::EINVAL);
    }
    if (raw.stack == 0) != (raw.stack_size == 0) || raw.exit_signal > 64 {
        return err(Errno::EINVAL);
    }
    // CAP_CHECKPOINT_RESTORE.
    if raw.set_tid_size != 0 {
        return err(Errno::EPERM);
    }
    do_clone(
        k,
        CloneRequest {
            flags: raw.flags,
            exit_signal: raw.exit_signal as u32,
            stack: raw.stack.wrapping_add(raw.stack_size),
            parent_tid: Ptr(raw.parent_tid),
            child_tid: Ptr(raw.child_tid),
            tls: raw.tls,
        },
    )
}

const CLONE_NEWTIME: u64 = 0x80;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

impl Ctx<'_> {
    /// A structure that is longer than the kernel knows may have zeros only behind what it knows (copy_struct_from_user):
    /// E2BIG, also for more than a page.
    fn check_newer_fields(&mut self, at: Ptr, known: u64, size: u64) -> SysResult<()> {
        if size > 4096 {
            return err(Errno::E2BIG);
        }
        let mut rest = vec![0; size.saturating_sub(known) as usize];
        self.read_bytes(at.0.wrapping_add(known), &mut rest)?;
        if rest.iter().all(|b| *b == 0) { Ok(()) } else { err(Errno::E2BIG) }
    }
}

/// fork(2).
pub fn fork(k: &mut Ctx<'_>) -> SysResult {
    do_clone(k, plain(0))
}

/// vfork(2): the caller sleeps until the child calls execve(2) or ends.
pub fn vfork(k: &mut Ctx<'_>) -> SysResult {
    do_clone(k, plain(c::CLONE_VM | c::CLONE_VFORK))
}

fn plain(flags: u64) -> CloneRequest {
    let exit_signal = c::SIGCHLD as u32;
    CloneRequest { flags, exit_signal, stack: 0, parent_tid: Ptr(0), child_tid: Ptr(0), tls: 0 }
}

fn do_clone(k: &mut Ctx<'_>, r: CloneRequest) -> SysResult {
    // A vfork parent runs again here when the child has let go of its memory.
    if let (Some(Progress::Vfork(child)), Some(sleep)) = (k.progress(), k.sleep_on()) {
        let waiting = k.node.tasks.values().any(|t| t.pid.0 == child.0 && t.vfork_parent == Some(k.tid));
        return if waiting { sleep } else { Ok(u64::from(child.number())) };
    }
    let has = |flag| r.flags & flag != 0;
    if has(c::CLONE_SIGHAND) && !has(c::CLONE_VM) || has(c::CLONE_THREAD) && !has(c::CLONE_SIGHAND) {
        return err(Errno::EINVAL);
    }
    let namespaces = c::CLONE_NEWNS
        | c::CLONE_NEWCGROUP
        | c::CLONE_NEWUTS
        | c::CLONE_NEWIPC
        | c::CLONE_NEWUSER
        | c::CLONE_NEWPID
        | c::CLONE_NEWNET
        | CLONE_NEWTIME;
    // A file system root and working directory in another namespace than those who share it: "EINVAL".
    if has(c::CLONE_FS) && r.flags & (c::CLONE_NEWNS | c::CLONE_NEWUSER) != 0
        || has(c::CLONE_THREAD) && r.flags & (c::CLONE_NEWUSER | c::CLONE_NEWPID) != 0
    {
        return err(Errno::EINVAL);
    }
    if r.flags & namespaces != 0 {
        return err(Errno::EPERM);
    }
    let mut missing = r.flags & (c::CLONE_PIDFD | CLONE_INTO_CGROUP);
    if !has(c::CLONE_THREAD) {
        missing |= r.flags & (c::CLONE_PARENT | c::CLONE_FILES);
        missing |= if has(c::CLONE_VFORK) { 0 } else { r.flags & c::CLONE_VM };
    }
    if missing != 0 {
        return Err(Stop::Unsupported(format!("clone {}", names::bits(names::CLONE, missing))));
    }
    if has(c::CLONE_THREAD) && !has(c::CLONE_FILES) {
        return Err(Stop::Unsupported("clone CLONE_THREAD without CLONE_FILES".into()));
    }
    // As arch_prctl(2) with ARCH_SET_FS, through which copy_thread sets it: no processor takes such a base.
    if has(c::CLONE_SETTLS) && r.tls >= crate::mm::TASK_SIZE {
        return err(Errno::EPERM);
    }
    let tid = Tid(k.node.new_number(k.pid_ns()));
    let mut regs = k.task().regs;
    (regs.rax, regs.orig_rax) = (0, u64::MAX);
    if r.stack != 0 {
        regs.rsp = r.stack;
    }
    if has(c::CLONE_SETTLS) {
        regs.fs_base = r.tls;
    }
    let pid = if has(c::CLONE_THREAD) { k.pid } else { k.new_process(tid, &r)? };
    k.new_task(tid, pid, regs, &r)?;
    if has(c::CLONE_VFORK) {
        k.node.task_mut(tid).vfork_parent = Some(k.tid);
        let wait = Wait::on(WaitOn::Vfork(pid)).restart(crate::wait::Restart::Killable);
        return Err(wait.progress(Progress::Vfork(tid)).into());
    }
    Ok(u64::from(tid.number()))
}

impl Ctx<'_> {
    fn new_process(&mut self, tid: Tid, r: &CloneRequest) -> SysResult<Pid> {
        let cost = self.node.config.costs.process;
        self.node.charge(self.tid, cost);
        let pid = Pid(tid.0);
        let parent_mm = self.process().mm;
        let mm = if r.flags & c::CLONE_VM != 0 {
            self.node.mms[parent_mm].users += 1;
            parent_mm
        } else {
            self.node.mm_fork(parent_mm)
        };
        let mut child: Process = self.process().clone();
        (child.pid, child.ppid, child.mm) = (pid, self.pid, mm);
        child.threads = Vec::new();
        child.pending = Default::default();
        // clone takes any byte for the signal; one that does not exist is never sent (do_notify_parent).
        child.exit_signal = if r.exit_signal <= 64 { r.exit_signal } else { 0 };
        child.event = None;
        // "The child does not inherit timers from its parent (setitimer(2), alarm(2), timer_create(2))."
        (child.itimer, child.timers, child.cpu_timers) = (None, Default::default(), [None; 2]);
        (child.cpu_ns, child.children_cpu_ns) = (0, 0);
        child.pdeathsig = 0;
        child.did_exec = false;
        child.started = self.now();
        if r.flags & c::CLONE_CLEAR_SIGHAND != 0 {
            for action in
                std::sync::Arc::make_mut(&mut child.actions).iter_mut().filter(|a| a.handler != c::SIG_IGN)
            {
                action.handler = c::SIG_DFL;
            }
        }
        let files: Vec<FileId> = child.fds.iter().map(|(_, e)| e.file).collect();
        for file in files {
            self.node.file_ref(file);
        }
        self.node.vfs.hold(child.cwd);
        self.node.processes.insert(pid, child);
        Ok(pid)
    }

    fn new_task(&mut self, tid: Tid, pid: Pid, regs: Regs, r: &CloneRequest) -> SysResult<()> {
        let parent = self.task_mut();
        let lineage = parent.lineage.child(parent.children);
        parent.children = parent.children.wrapping_add(1);
        let parent = self.task();
        let mut task = Task::new(tid, pid, regs);
        task.lineage = lineage;
        task.vectors = Vectors::Held(parent.vectors.held().cloned());
        task.sigmask = parent.sigmask;
        task.exception = parent.exception;
        (task.policy, task.nice) = super::sched::inherited(parent);
        task.fs_ids = parent.fs_ids;
        task.timer_slack = parent.timer_slack;
        task.comm = parent.comm.clone();
        // "A child created via fork inherits the alternate stack; clone with CLONE_VM and not CLONE_VFORK clears it".
        if r.flags & c::CLONE_VM == 0 || r.flags & c::CLONE_VFORK != 0 {
            task.altstack = parent.altstack;
        }
        if r.flags & c::CLONE_CHILD_CLEARTID != 0 {
            task.clear_child_tid = r.child_tid.0;
        }
        self.node.process_mut(pid).threads.push(tid);
        self.node.tasks.insert(tid, task);
        self.node.enqueue(tid);
        self.outside.tell(self.node, (pid, tid), &Told::Began { parent: Some(self.tid) });
        if r.flags & c::CLONE_PARENT_SETTID != 0 {
            self.write_obj(r.parent_tid, &tid.number())?;
        }
        if r.flags & c::CLONE_CHILD_SETTID != 0 {
            let mm = self.node.process(pid).mm;
            // A bad address is not an error here: the kernel ignores put_user's result in schedule_tail.
            let _ignored = self.write_bytes_of(mm, r.child_tid.0, &tid.number().to_le_bytes());
        }
        Ok(())
    }
}

impl Node {
    /// Ends every thread of the caller's process. The caller itself is gone on return.
    pub(crate) fn exit_group(&mut self, tid: Tid, status: ExitStatus, outside: &mut Outside<'_>) {
        let pid = self.task(tid).pid;
        let process = self.process_mut(pid);
        let status = *process.exiting.get_or_insert(status);
        for other in process.threads.clone() {
            if other != tid {
                self.reap_thread(other, status, outside);
            }
        }
        self.exit_task(tid, status, outside);
    }

    fn reap_thread(&mut self, tid: Tid, status: ExitStatus, outside: &mut Outside<'_>) {
        self.exit_task(tid, status, outside);
    }

    /// Ends one thread; the last one ends the process.
    pub(crate) fn exit_task(&mut self, tid: Tid, status: ExitStatus, outside: &mut Outside<'_>) {
        let pid = self.task(tid).pid;
        {
            let mut ctx = Ctx::new(self, tid, outside.reborrow());
            ctx.exit_robust_list();
            let word = ctx.task().clear_child_tid;
            // set_tid_address(2): "the kernel will write 0 at this address and wake a futex" if others share the memory.
            if word != 0 && ctx.write_obj(Ptr(word), &0u32).is_ok() {
                let mm = ctx.process().mm;
                ctx.node.futex_wake(crate::wait::FutexKey::Private(mm, word), 1, u32::MAX);
                if let Ok(key) = ctx.futex_key(word, false) {
                    ctx.node.futex_wake(key, 1, u32::MAX);
                }
            }
        }
        self.futex_forget(tid);
        self.abandon_call(tid, outside.base);
        self.vfork_done(tid);
        self.run_queue.retain(|t| *t != tid);
        self.tasks.remove(&tid);
        outside.tell(self, (pid, tid), &Told::Ended { status });
        let process = self.process_mut(pid);
        process.threads.retain(|t| *t != tid);
        if process.threads.is_empty() {
            let status = process.exiting.unwrap_or(status);
            self.exit_process(pid, status, outside);
        }
    }

    /// Lets a vfork parent go on.
    pub(crate) fn vfork_done(&mut self, tid: Tid) {
        if self.task_mut(tid).vfork_parent.take().is_some() {
            let pid = self.task(tid).pid;
            self.notify(WaitOn::Vfork(pid));
        }
    }

    fn exit_process(&mut self, pid: Pid, status: ExitStatus, outside: &mut Outside<'_>) {
        let process = self.process_mut(pid);
        let (fds, mm, cwd) = (std::mem::take(&mut process.fds), process.mm, process.cwd);
        let (itimer, timers) = (process.itimer.take(), std::mem::take(&mut process.timers));
        process.zombie = Some(status);
        self.rearm(crate::timer::TimerKey::Itimer(pid), itimer.map(|t| t.0), None);
        for (id, timer) in timers {
            self.rearm(crate::timer::TimerKey::Posix(pid, id), timer.schedule.next, None);
        }
        self.release_locks_of_process(pid);
        for (_, entry) in fds.iter() {
            self.file_unref(entry.file, outside.base);
        }
        self.vfs.close_ref(cwd, false);
        self.mm_release(mm);
        let comm = self.comm_of(pid);
        let (at, container) = (self.clock, self.container_of(pid).id);
        self.ends.push(ProcessEnd { at, container, pid, comm, status, fault: None });
        self.adopt_children(pid);
        self.reap_or_notify(pid, status);
    }

    fn comm_of(&self, pid: Pid) -> Vec<u8> {
        let exe = &self.process(pid).exe;
        exe.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec()
    }

    /// Children of a dead process go to the nearest subreaper or to the first process of their namespace.
    fn adopt_children(&mut self, pid: Pid) {
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
        let children: Vec<Pid> = self.processes.values().filter(|p| p.ppid == pid).map(|p| p.pid).collect();
        for child in children {
            let (death, dead) = (self.process(child).pdeathsig, self.process(child).zombie.is_some());
            self.process_mut(child).ppid = heir;
            if dead {
                if heir == Pid::NONE {
                    self.processes.remove(&child);
                } else {
                    self.notify(WaitOn::Child(heir));
                }
            } else if death != 0 {
                let info = crate::signal::user_info(death, c::SI_USER as i32, pid, 0);
                self.send_process(child, info);
            }
        }
    }

    fn reap_or_notify(&mut self, pid: Pid, status: ExitStatus) {
        let ppid = self.process(pid).ppid;
        let Some(parent) = self.processes.get(&ppid) else {
            // A root process: the runner learns of it through `ends`; nobody waits for it.
            self.processes.remove(&pid);
            return;
        };
        let action = parent.actions[c::SIGCHLD as usize - 1];
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
            self.processes.remove(&pid);
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

/// Which children a wait call means.
#[derive(Clone, Copy)]
enum Which {
    Any,
    Pid(Pid),
    Group(Pid),
}

/// A child's news for a wait call.
struct News {
    pid: Pid,
    uid: u32,
    /// Status word of wait4, CLD_* code and value of waitid.
    word: u32,
    code: u64,
    value: i32,
    cpu_ns: u64,
}

impl Ctx<'_> {
    /// Looks for a child with news; takes them unless WNOWAIT.
    fn wait_child(&mut self, which: Which, options: u64) -> SysResult<Option<News>> {
        let matches = |p: &Process| {
            p.ppid == self.pid
                && match which {
                    Which::Any => true,
                    Which::Pid(pid) => p.pid == pid,
                    Which::Group(g) => p.pgid == g,
                }
        };
        let children: Vec<Pid> = self.node.processes.values().filter(|p| matches(p)).map(|p| p.pid).collect();
        if children.is_empty() {
            return err(Errno::ECHILD);
        }
        for pid in children {
            let p = self.node.process_mut(pid);
            let (uid, cpu_ns) = (p.real_ids[0], p.cpu_ns + p.children_cpu_ns);
            let news = |word, code, value| News { pid, uid, word, code, value, cpu_ns };
            if let (Some(status), true) = (p.zombie, options & c::WEXITED != 0) {
                let (code, value) = match status {
                    ExitStatus::Code(n) => (c::CLD_EXITED, i32::from(n)),
                    ExitStatus::Signal { signo, core } => {
                        (if core { c::CLD_DUMPED } else { c::CLD_KILLED }, signo as i32)
                    }
                };
                if options & c::WNOWAIT == 0 {
                    self.node.processes.remove(&pid);
                    self.process_mut().children_cpu_ns += cpu_ns;
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
        Err(Wait::on(WaitOn::Child(self.pid)).into())
    }
}

fn usage(cpu_ns: u64) -> Rusage {
    Rusage {
        utime: Timeval::from_ns(cpu_ns / 2),
        stime: Timeval::from_ns(cpu_ns - cpu_ns / 2),
        ..Rusage::default()
    }
}

/// wait4(2). ECHILD if there is no such child; 0 with WNOHANG if none has news.
pub fn wait4(k: &mut Ctx<'_>, pid: i32, status: Ptr, options: WaitFlags, rusage: Ptr) -> SysResult {
    let kinds = WaitFlags::__WNOTHREAD | WaitFlags::__WALL | WaitFlags::__WCLONE;
    if options.exceeds(kinds | WaitFlags::WNOHANG | WaitFlags::WUNTRACED | WaitFlags::WCONTINUED) {
        return err(Errno::EINVAL);
    }
    let which = match pid {
        -1 => Which::Any,
        0 => Which::Group(k.process().pgid),
        // The negation of the smallest number is none ("ESRCH", kernel_wait4).
        _ if pid == i32::MIN => return err(Errno::ESRCH),
        ..-1 => Which::Group(k.pid_ns().pid(pid.unsigned_abs())),
        _ => Which::Pid(k.pid_ns().pid(pid as u32)),
    };
    let Some(news) = k.wait_child(which, (options.bits() & 0xff) | c::WEXITED)? else { return Ok(0) };
    if !status.is_null() {
        k.write_obj(status, &news.word)?;
    }
    if !rusage.is_null() {
        k.write_obj(rusage, &usage(news.cpu_ns))?;
    }
    Ok(u64::from(news.pid.number()))
}

/// waitid(2). ECHILD if there is no such child; a structure of zeros with WNOHANG if none has news.
pub fn waitid(k: &mut Ctx<'_>, which: u32, id: i32, info: Ptr, options: WaitFlags, rusage: Ptr) -> SysResult {
    let news = WaitFlags::WEXITED | WaitFlags::WUNTRACED | WaitFlags::WCONTINUED;
    if options.exceeds(WaitFlags::all()) || !options.intersects(news) {
        return err(Errno::EINVAL);
    }
    let which = match u64::from(which) {
        c::P_ALL => Which::Any,
        c::P_PID if id > 0 => Which::Pid(k.pid_ns().pid(id as u32)),
        c::P_PGID if id > 0 => Which::Group(k.pid_ns().pid(id as u32)),
        c::P_PGID if id == 0 => Which::Group(k.process().pgid),
        // "EBADF idtype was P_PIDFD and id is not a valid PID file descriptor": nothing makes one.
        c::P_PIDFD if id >= 0 => return err(Errno::EBADF),
        _ => return err(Errno::EINVAL),
    };
    let news = k.wait_child(which, options.bits())?;
    let mut out = Siginfo::default();
    if let Some(n) = &news {
        out = crate::signal::child_info(n.code, n.pid, n.uid, n.value);
        if !rusage.is_null() {
            k.write_obj(rusage, &usage(n.cpu_ns))?;
        }
    }
    if !info.is_null() {
        k.write_obj(info, &out)?;
    }
    Ok(0)
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

/// getrusage(2): half of the virtual time of calls is shown as user time.
pub fn getrusage(k: &mut Ctx<'_>, who: i32, usage_ptr: Ptr) -> SysResult {
    let ns = match who {
        0 | 1 => k.process().cpu_ns,
        -1 => k.process().children_cpu_ns,
        _ => return err(Errno::EINVAL),
    };
    k.write_obj(usage_ptr, &usage(ns))?;
    Ok(0)
}
