//! getpriority(2) and setpriority(2): nice values, which threads have; ioprio_get(2) and ioprio_set(2), which go by the same tasks.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::{CAP_SYS_ADMIN, CAP_SYS_NICE};
use crate::credentials::Credentials;
use crate::ctx::*;
use crate::ids::*;
use crate::process::Process;
use crate::wait::SysResult;

const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
const PRIO_USER: u32 = 2;

impl Ctx<'_> {
    /// "RLIMIT_NICE [...] a ceiling to which the process's nice value can be raised [...]: 20 - rlim_cur" (getrlimit(2)).
    pub(crate) fn may_be_so_nice(&self, pid: Pid, nice: i32) -> bool {
        let limits = &self.node.process(pid).limits;
        (20 - nice) as u64 <= limits[c::RLIMIT_NICE as usize].cur
    }

    /// The threads that `which` and `who` mean, and the processes whose first thread has ended (find_task_by_vpid and
    /// do_each_pid_thread find zombies as well). "ESRCH No process was located using the which and who values specified."
    fn priority_targets(&self, which: u32, who: i32) -> SysResult<Vec<Target>> {
        let me = self.process();
        // "According to POSIX, the nice value is a per-process setting. However, under [...] Linux/NPTL [...] different
        // threads in the same process can have different nice values": a number names one thread.
        let uid = if who == 0 { self.credentials().real_ids[0] } else { who as u32 };
        let chosen = |credentials: &Credentials| credentials.real_ids[0] == uid;
        let ended = |p: &Process| !self.node.tasks.contains_key(&Tid(p.pid.0));
        let found: Vec<Target> = match (which, who) {
            (PRIO_PROCESS, 0) => vec![Target::Thread(self.tid)],
            (PRIO_PROCESS, _) => {
                let (tid, pid) = (self.pid_ns().tid(who as u32), self.pid_ns().pid(who as u32));
                let thread = self.node.tasks.get(&tid).map(|t| Target::Thread(t.tid));
                let process = self.node.processes.get(&pid).map(|p| Target::Ended(p.pid));
                thread.or(process).into_iter().collect()
            }
            // The last error counts, so the order does (do_each_pid_thread).
            (PRIO_PGRP, _) => {
                let group = if who == 0 { me.pgid } else { me.pid.ns().pid(who as u32) };
                let members = self.node.members_of(group).into_iter();
                let targets = members.filter(|pid| pid.ns() == self.pid_ns()).flat_map(|pid| {
                    let first = ended(self.node.process(pid)).then_some(Target::Ended(pid));
                    let threads = self.node.process(pid).threads.iter().map(|tid| Target::Thread(*tid));
                    first.into_iter().chain(threads)
                });
                targets.collect()
            }
            (PRIO_USER, _) => {
                let seen = self.node.tasks.values().filter(|t| t.pid.ns() == self.pid_ns());
                let threads = seen.filter(|t| chosen(&t.credentials)).map(|t| Target::Thread(t.tid));
                let seen = self.node.processes.values().filter(|p| p.pid.ns() == self.pid_ns());
                let zombies =
                    seen.filter(|p| ended(p) && chosen(&p.first.credentials)).map(|p| Target::Ended(p.pid));
                threads.chain(zombies).collect()
            }
            _ => return err(Errno::EINVAL),
        };
        if found.is_empty() { err(Errno::ESRCH) } else { Ok(found) }
    }

    /// Where the nice value of a target is kept.
    fn nice_of(&mut self, target: Target) -> &mut i32 {
        match target {
            Target::Thread(tid) => &mut self.node.task_mut(tid).nice,
            Target::Ended(pid) => &mut self.node.process_mut(pid).first.nice,
        }
    }
}

/// What a nice value belongs to.
#[derive(Clone, Copy)]
enum Target {
    Thread(Tid),
    /// The first thread of this process, which has ended.
    Ended(Pid),
}

/// getpriority(2): the raw call returns 20 minus the nice value. ESRCH.
pub fn getpriority(k: &mut Ctx<'_>, which: u32, who: i32) -> SysResult {
    let found = k.priority_targets(which, who)?;
    // "the raw system call returns [...] 20-nice" of the most favoured thread.
    let nice = found.iter().map(|target| *k.nice_of(*target)).min().unwrap_or(0);
    Ok((20 - nice) as u64)
}

/// setpriority(2). EACCES for less nice without CAP_SYS_NICE.
pub fn setpriority(k: &mut Ctx<'_>, which: u32, who: i32, nice: i32) -> SysResult {
    let found = k.priority_targets(which, who)?;
    let (nice, privileged) = (nice.clamp(-20, 19), k.capable(CAP_SYS_NICE));
    // An error for one of several does not spare the others (set_one_prio).
    let mut result = Ok(0);
    for target in found {
        let (pid, owner) = match target {
            Target::Thread(tid) => (k.node.task(tid).pid, &k.node.task(tid).credentials),
            Target::Ended(pid) => (pid, &k.node.process(pid).first.credentials),
        };
        if !k.owns_thread(owner) {
            // "EPERM A process was located, but its effective user ID did not match either the effective or the real user ID
            // of the caller".
            result = err(Errno::EPERM);
        } else if nice < *k.nice_of(target) && !privileged && !k.may_be_so_nice(pid, nice) {
            // "EACCES The caller attempted to set a lower nice value [...], but did not have the required privilege".
            result = err(Errno::EACCES);
        } else {
            *k.nice_of(target) = nice;
        }
    }
    result
}

/// IOPRIO_WHO_PROCESS and the next two are one more than PRIO_PROCESS and its kin.
fn io_which(which: i32) -> u32 {
    (which as u32).wrapping_sub(1)
}

/// The class of a value: 0 none, then real time, best effort, idle.
fn io_class(priority: u16) -> u16 {
    priority >> 13
}

/// ioprio_set(2). EPERM for the real-time class without CAP_SYS_NICE or CAP_SYS_ADMIN.
pub fn ioprio_set(k: &mut Ctx<'_>, which: i32, who: i32, priority: i32) -> SysResult {
    let (class, level) = ((priority >> 13) & 7, priority & 0x1fff);
    // ioprio_check_cap.
    match class {
        1 if !k.capable(CAP_SYS_ADMIN) && !k.capable(CAP_SYS_NICE) => return err(Errno::EPERM),
        1 | 2 if level > 7 => return err(Errno::EINVAL),
        0 if level != 0 => return err(Errno::EINVAL),
        0..=3 => {}
        _ => return err(Errno::EINVAL),
    }
    for target in k.priority_targets(io_which(which), who)? {
        // "PF_EXITING" has no I/O context any more, and gets none (set_task_ioprio).
        let Target::Thread(tid) = target else { return err(Errno::ESRCH) };
        // set_task_ioprio: the effective or the real user is the real one of the task.
        let (me, uid) = (k.credentials(), k.node.task(tid).credentials.real_ids[0]);
        if uid != me.cred.uid && uid != me.real_ids[0] && !k.capable(CAP_SYS_NICE) {
            return err(Errno::EPERM);
        }
        k.node.task_mut(tid).io_priority = priority as u16;
    }
    Ok(0)
}

/// ioprio_get(2). "If who identifies several [...], then the highest priority" (ioprio_best), by which a task without a value of its
/// own counts as best effort by its nice value (__get_task_ioprio).
pub fn ioprio_get(k: &mut Ctx<'_>, which: i32, who: i32) -> SysResult {
    let found = k.priority_targets(io_which(which), who)?;
    let several = io_which(which) != PRIO_PROCESS;
    let values = found.iter().map(|target| {
        let (own, nice) = match *target {
            Target::Thread(tid) => (k.node.task(tid).io_priority, k.node.task(tid).nice),
            Target::Ended(pid) => (0, k.node.process(pid).first.nice),
        };
        match own {
            own if !several || io_class(own) != 0 => u64::from(own),
            _ => 2 << 13 | ((nice + 20) / 5) as u64,
        }
    });
    Ok(values.min().unwrap_or(0))
}
