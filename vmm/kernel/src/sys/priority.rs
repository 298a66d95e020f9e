//! getpriority(2) and setpriority(2): nice values, which threads have.

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::ids::*;
use crate::process::Process;
use crate::wait::SysResult;

const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
const PRIO_USER: u32 = 2;

impl Ctx<'_> {
    /// The threads that `which` and `who` mean. "ESRCH No process was located using the which and who values specified."
    fn priority_targets(&self, which: u32, who: i32) -> SysResult<Vec<Tid>> {
        let me = self.process();
        // "According to POSIX, the nice value is a per-process setting. However, under [...] Linux/NPTL [...] different
        // threads in the same process can have different nice values": a number names one thread.
        let chosen = |p: &Process| match (which, who) {
            (PRIO_PGRP, 0) => p.pgid == me.pgid,
            (PRIO_PGRP, _) => p.pgid == me.pid.ns().pid(who as u32),
            (_, 0) => p.real_ids[0] == me.real_ids[0],
            _ => p.real_ids[0] == who as u32,
        };
        let found: Vec<Tid> = match (which, who) {
            (PRIO_PROCESS, 0) => vec![self.tid],
            (PRIO_PROCESS, _) => {
                self.node.tasks.get(&self.pid_ns().tid(who as u32)).map(|t| t.tid).into_iter().collect()
            }
            (PRIO_PGRP | PRIO_USER, _) => {
                let seen = self.node.tasks.values().filter(|t| t.pid.ns() == self.pid_ns());
                seen.filter(|t| chosen(self.node.process(t.pid))).map(|t| t.tid).collect()
            }
            _ => return err(Errno::EINVAL),
        };
        if found.is_empty() { err(Errno::ESRCH) } else { Ok(found) }
    }
}

/// getpriority(2): the raw call returns 20 minus the nice value. ESRCH.
pub fn getpriority(k: &mut Ctx<'_>, which: u32, who: i32) -> SysResult {
    let found = k.priority_targets(which, who)?;
    // "the raw system call returns [...] 20-nice" of the most favoured thread.
    let nice = found.iter().map(|tid| k.node.task(*tid).nice).min().unwrap_or(0);
    Ok((20 - nice) as u64)
}

/// setpriority(2). EACCES for less nice without CAP_SYS_NICE.
pub fn setpriority(k: &mut Ctx<'_>, which: u32, who: i32, nice: i32) -> SysResult {
    let found = k.priority_targets(which, who)?;
    let (nice, root) = (nice.clamp(-20, 19), k.process().cred.is_root());
    // An error for one of several does not spare the others (set_one_prio).
    let mut result = Ok(0);
    for tid in found {
        if !k.owns_task(tid) {
            // "EPERM A process was located, but its effective user ID did not match either the effective or the real user ID
            // of the caller".
            result = err(Errno::EPERM);
        } else if nice < k.node.task(tid).nice && !root {
            // "EACCES The caller attempted to set a lower nice value [...], but did not have the required privilege".
            result = err(Errno::EACCES);
        } else {
            k.node.task_mut(tid).nice = nice;
        }
    }
    result
}
