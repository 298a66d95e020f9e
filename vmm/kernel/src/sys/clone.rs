//! clone(2) and its kin: fork(2), vfork(2), clone3(2).

use bloodhound_abi::consts as c;
use bloodhound_abi::names;
use bloodhound_abi::structs::{CloneArgs, Sigaction};
use bloodhound_abi::{Errno, Regs};

use crate::caps::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use crate::ctx::*;
use crate::ids::*;
use crate::memory::{PROCESS, TASK};
use crate::process::Process;
use crate::shared::{Common, Shared};
use crate::task::{Task, Vectors};
use crate::wait::{Progress, Stop, SysResult, Wait, WaitOn};
use crate::watch::Told;

/// What clone(2) was asked for, from either of its calls.
struct CloneRequest {
    flags: u64,
    exit_signal: u32,
    stack: u64,
    /// Where the descriptor of CLONE_PIDFD goes.
    pidfd: Ptr,
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
            // "CLONE_PIDFD ... the PID file descriptor is placed at the location to which parent_tid points".
            pidfd: parent_tid,
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
            pidfd: Ptr(raw.pidfd),
            parent_tid: Ptr(raw.parent_tid),
            child_tid: Ptr(raw.child_tid),
            tls: raw.tls,
        },
    )
}

const CLONE_NEWTIME: u64 = 0x80;
const NAMESPACES: u64 = c::CLONE_NEWNS
    | c::CLONE_NEWCGROUP
    | c::CLONE_NEWUTS
    | c::CLONE_NEWIPC
    | c::CLONE_NEWUSER
    | c::CLONE_NEWPID
    | c::CLONE_NEWNET
    | CLONE_NEWTIME;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

impl Ctx<'_> {
    /// A structure that is longer than the kernel knows may have zeros only behind what it knows (copy_struct_from_user):
    /// E2BIG, also for more than a page.
    pub(crate) fn check_newer_fields(&mut self, at: Ptr, known: u64, size: u64) -> SysResult<()> {
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
    CloneRequest {
        flags,
        exit_signal,
        stack: 0,
        pidfd: Ptr(0),
        parent_tid: Ptr(0),
        child_tid: Ptr(0),
        tls: 0,
    }
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
    // A file system root and working directory in another namespace than those who share it: "EINVAL".
    if has(c::CLONE_FS) && r.flags & (c::CLONE_NEWNS | c::CLONE_NEWUSER) != 0
        || has(c::CLONE_THREAD) && r.flags & (c::CLONE_NEWUSER | c::CLONE_NEWPID) != 0
    {
        return err(Errno::EINVAL);
    }
    if r.flags & NAMESPACES != 0 {
        return err(Errno::EPERM);
    }
    // "EINVAL CLONE_PIDFD was specified together with CLONE_DETACHED", with CLONE_THREAD, or, as both store something there, with
    // CLONE_PARENT_SETTID in clone(2).
    let detached = c::CLONE_DETACHED | c::CLONE_THREAD;
    if has(c::CLONE_PIDFD)
        && (r.flags & detached != 0 || has(c::CLONE_PARENT_SETTID) && r.pidfd == r.parent_tid)
    {
        return err(Errno::EINVAL);
    }
    // "EINVAL CLONE_PARENT was specified by an init process".
    if has(c::CLONE_PARENT) && k.process().unkillable {
        return err(Errno::EINVAL);
    }
    if has(CLONE_INTO_CGROUP) {
        return Err(Stop::Unsupported(format!("clone {}", names::bits(names::CLONE, CLONE_INTO_CGROUP))));
    }
    // As arch_prctl(2) with ARCH_SET_FS, through which copy_thread sets it: no processor takes such a base.
    if has(c::CLONE_SETTLS) && r.tls >= crate::mm::TASK_SIZE {
        return err(Errno::EPERM);
    }
    if has(c::CLONE_PIDFD) {
        // Before there is a child: EMFILE, EFAULT.
        let limit = k.process().limits[c::RLIMIT_NOFILE as usize].cur;
        k.table().lowest_free(0, limit)?;
        k.check_user(r.pidfd.0, 4, crate::mm::Access::Write)?;
    }
    k.may_have_another_task()?;
    k.may_fork()?;
    let tid = Tid(k.node.new_number(k.pid_ns()));
    let mut regs = k.task().regs;
    (regs.rax, regs.orig_rax) = (0, u64::MAX);
    if r.stack != 0 {
        regs.rsp = r.stack;
    }
    if has(c::CLONE_SETTLS) {
        regs.fs_base = r.tls;
    }
    // The child does not inherit the descriptor: it is made after the child's table.
    let pid = if has(c::CLONE_THREAD) { k.pid } else { k.new_process(tid, &r)? };
    k.new_task(tid, pid, regs, &r)?;
    if has(c::CLONE_PIDFD) {
        let fd = k.open_pidfd(pid, 0)? as u32;
        k.write_obj(r.pidfd, &fd)?;
    }
    if has(c::CLONE_VFORK) {
        k.node.task_mut(tid).vfork_parent = Some(k.tid);
        let wait = Wait::on(WaitOn::Vfork(pid)).restart(crate::wait::Restart::Killable);
        return Err(wait.progress(Progress::Vfork(tid)).into());
    }
    Ok(u64::from(tid.number()))
}

impl Ctx<'_> {
    /// "EAGAIN A system-imposed limit on the number of threads was encountered" (fork(2)): RLIMIT_NPROC, which "is not enforced for
    /// processes that have either the CAP_SYS_ADMIN or the CAP_SYS_RESOURCE capability, or run with real user ID 0" (getrlimit(2)),
    /// kernel.threads-max, and pids.max of the cgroup.
    fn may_have_another_task(&mut self) -> Result<(), Errno> {
        let (own, container) = (self.credentials().real_ids[0], self.process().container);
        let all = self.node.tasks.len() as u64;
        let exempt = own == 0 || self.capable(CAP_SYS_ADMIN) || self.capable(CAP_SYS_RESOURCE);
        let of_user = if exempt { u64::MAX } else { self.process().limits[c::RLIMIT_NPROC as usize].cur };
        if !super::sched::may_fork(self.task()) {
            return Err(Errno::EAGAIN);
        }
        let of_container = self.container().settings.pids.unwrap_or(u64::MAX);
        // All of the machine's are not fewer than those that a limit is about: mostly nothing has to be counted.
        let counts = |limit: u64, counted: &dyn Fn(&Task) -> bool| {
            all >= limit && self.node.tasks.values().filter(|task| counted(task)).count() as u64 >= limit
        };
        if all >= self.node.threads_max()
            || counts(of_user, &|task| task.credentials.real_ids[0] == own)
            || counts(of_container, &|task| self.node.process(task.pid).container == container)
        {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    fn new_process(&mut self, tid: Tid, r: &CloneRequest) -> SysResult<Pid> {
        let costs = self.node.config.costs;
        let pid = Pid(tid.0);
        let parent_mm = self.process().mm;
        let shares = r.flags & c::CLONE_VM != 0;
        let pages = if shares { 0 } else { self.node.mms[parent_mm].pages.len() };
        self.node.charge(self.tid, costs.process + pages * costs.page / 8);
        let mm = if shares {
            self.node.mms[parent_mm].users += 1;
            parent_mm
        } else {
            self.node.mm_fork(self.pid, parent_mm)
        };
        let mut child: Process = self.process().clone();
        (child.pid, child.mm) = (pid, mm);
        // CLONE_PARENT: "the parent of the new child will be the same as that of the calling process", and gets the same signal.
        let sibling = r.flags & c::CLONE_PARENT != 0;
        if !sibling {
            (child.ppid, child.parent_thread) = (self.pid, self.tid);
        }
        child.sibling = self.node.next_sibling();
        child.grouped = child.sibling;
        child.threads = Vec::new();
        child.pending = Default::default();
        child.ended_filters = Default::default();
        (child.takers, child.chosen) = (Default::default(), tid);
        // clone takes any byte for the signal; one that does not exist is never sent (do_notify_parent).
        if !sibling {
            child.exit_signal = if r.exit_signal <= 64 { r.exit_signal } else { 0 };
        }
        child.event = None;
        child.unkillable = false;
        // "The child does not inherit timers from its parent (setitimer(2), alarm(2), timer_create(2))."
        (child.itimer, child.timers, child.cpu_timers) = (None, Default::default(), [None; 2]);
        child.next_timer = 0;
        (child.cpu, child.children_cpu, child.io) = Default::default();
        (child.peak, child.children_peak) = (0, 0);
        child.subreaper = false;
        (child.did_exec, child.sleeps_for_good) = (false, false);
        child.tty_old_pgrp = None;
        child.started = self.now();
        if r.flags & c::CLONE_SIGHAND != 0 {
            self.node.actions[child.actions].users += 1;
        } else {
            let mut actions = self.node.actions[child.actions].item.clone();
            if r.flags & c::CLONE_CLEAR_SIGHAND != 0 {
                let caught = |action: &&mut Sigaction| action.handler != c::SIG_IGN;
                std::sync::Arc::make_mut(&mut actions)
                    .iter_mut()
                    .filter(caught)
                    .for_each(|action| action.handler = c::SIG_DFL);
            }
            child.actions = self.node.actions.insert(Shared::new(actions));
        }
        let container = child.container;
        self.node.processes.insert(pid, child);
        self.node.memory.kernel_grows(container, PROCESS);
        Ok(pid)
    }

    /// What a child shares with the caller, or has a copy of.
    fn common_of_child(&mut self, flags: u64) -> Common {
        let Common { mut table, mut place } = self.task().common;
        if flags & c::CLONE_FILES != 0 {
            self.node.fd_tables[table].users += 1;
        } else {
            table = self.node.copy_table(table);
        }
        if flags & c::CLONE_FS != 0 {
            self.node.places[place].users += 1;
        } else {
            place = self.node.copy_place(place);
        }
        Common { table, place }
    }

    fn new_task(&mut self, tid: Tid, pid: Pid, regs: Regs, r: &CloneRequest) -> SysResult<()> {
        let parent = self.task_mut();
        let lineage = parent.lineage.child(parent.children);
        parent.children = parent.children.wrapping_add(1);
        let common = self.common_of_child(r.flags);
        // "If CLONE_SYSVSEM is set, then the child and the calling process share a single list of System V semaphore adjustment (semadj)
        // values" (clone(2)).
        let undo = (r.flags & c::CLONE_SYSVSEM != 0).then(|| self.node.undo_list(self.tid));
        let parent = self.task();
        let mut task = Task::new(tid, pid, common, parent.credentials.clone(), regs);
        (task.lineage, task.undo) = (lineage, undo);
        task.vectors = Vectors::Held(parent.vectors.held().cloned());
        task.sigmask = parent.sigmask;
        task.exception = parent.exception;
        (task.policy, task.priority, task.nice) = super::sched::inherited(parent);
        (task.no_new_privs, task.io_flusher) = (parent.no_new_privs, parent.io_flusher);
        task.login = parent.login;
        task.timer_slack = parent.timer_slack.of_child();
        task.seccomp = parent.seccomp.clone();
        (task.persona, task.io_priority) = (parent.persona, parent.io_priority);
        (task.no_tsc, task.memory_errors) = (parent.no_tsc, parent.memory_errors);
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
        let container = self.process().container;
        self.node.memory.kernel_grows(container, TASK);
        self.node.enqueue(tid);
        self.outside.tell(self.node, (pid, tid), &Told::Began { parent: Some(self.tid) });
        if r.flags & c::CLONE_PARENT_SETTID != 0 {
            // A bad address is not an error: the kernel ignores put_user's result in kernel_clone.
            let _ignored = self.write_obj(r.parent_tid, &tid.number());
        }
        if r.flags & c::CLONE_CHILD_SETTID != 0 {
            let mm = self.node.process(pid).mm;
            // A bad address is not an error here: the kernel ignores put_user's result in schedule_tail.
            let _ignored = self.write_bytes_of(mm, r.child_tid.0, &tid.number().to_le_bytes());
        }
        Ok(())
    }
}

/// unshare(2): what threads or processes had in common by clone(2). EPERM for namespaces.
pub fn unshare(k: &mut Ctx<'_>, flags: CloneFlags) -> SysResult {
    let mut flags = flags.bits();
    // What a thing implies (ksys_unshare).
    for (one, other) in [
        (c::CLONE_NEWUSER, c::CLONE_THREAD | c::CLONE_FS),
        (c::CLONE_VM, c::CLONE_SIGHAND),
        (c::CLONE_SIGHAND, c::CLONE_THREAD),
        (c::CLONE_NEWNS, c::CLONE_FS),
    ] {
        flags |= if flags & one != 0 { other } else { 0 };
    }
    let alone = c::CLONE_THREAD | c::CLONE_SIGHAND | c::CLONE_VM;
    let known = alone | c::CLONE_FS | c::CLONE_FILES | c::CLONE_SYSVSEM | NAMESPACES;
    if flags & !known != 0 {
        return err(Errno::EINVAL);
    }
    // "EINVAL CLONE_THREAD, CLONE_SIGHAND, or CLONE_VM was specified in flags, and the caller is multithreaded."
    let process = k.process();
    let shares_memory = k.node.mms[process.mm].users > 1 && flags & c::CLONE_VM != 0;
    let shares_actions =
        k.node.actions[process.actions].users > 1 && flags & (c::CLONE_SIGHAND | c::CLONE_VM) != 0;
    if flags & alone != 0 && process.threads.len() > 1 || shares_memory || shares_actions {
        return err(Errno::EINVAL);
    }
    if flags & NAMESPACES != 0 {
        return err(Errno::EPERM);
    }
    if flags & c::CLONE_SYSVSEM != 0 {
        k.node.semaphores_undo(k.tid);
    }
    if flags & c::CLONE_FS != 0 {
        k.unshare_place();
    }
    if flags & c::CLONE_FILES != 0 {
        k.unshare_table();
    }
    Ok(0)
}
