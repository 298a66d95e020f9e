//! Process groups and sessions: setpgid(2), setsid(2), and who asks for them.

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::ids::*;
use crate::node::Node;
use crate::wait::SysResult;

/// getpgrp(2).
pub fn getpgrp(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.process().pgid.number()))
}

/// The process of which a pid argument names any thread.
fn target(k: &Ctx<'_>, pid: i32) -> SysResult<Pid> {
    if pid == 0 { Ok(k.pid) } else { Ok(k.node.process_of(k.pid_ns(), pid).ok_or(Errno::ESRCH)?) }
}

/// getpgid(2). ESRCH.
pub fn getpgid(k: &mut Ctx<'_>, pid: i32) -> SysResult {
    let pid = target(k, pid)?;
    Ok(u64::from(k.node.process(pid).pgid.number()))
}

/// getsid(2). ESRCH.
pub fn getsid(k: &mut Ctx<'_>, pid: i32) -> SysResult {
    let pid = target(k, pid)?;
    Ok(u64::from(k.node.process(pid).sid.number()))
}

impl Node {
    /// The processes of a group, in the order in which Linux walks over them: who came to it last is first (attach_pid).
    pub(crate) fn members_of(&self, group: Pid) -> Vec<Pid> {
        let members = self.processes.values().filter(|p| p.pgid == group);
        let mut members: Vec<(u64, Pid)> = members.map(|p| (p.grouped, p.pid)).collect();
        members.sort_unstable_by(|one, other| other.cmp(one));
        members.into_iter().map(|(_, pid)| pid).collect()
    }
}

/// setpgid(2). EACCES for a child after its execve(2), EPERM across sessions and for session leaders.
pub fn setpgid(k: &mut Ctx<'_>, pid: i32, pgid: i32) -> SysResult {
    // "if (!pgid) pgid = pid; if (pgid < 0) return -EINVAL" (setpgid's source).
    if pgid < 0 || pgid == 0 && pid < 0 {
        return err(Errno::EINVAL);
    }
    let number = pid;
    let pid = target(k, number)?;
    // Only the number of a whole process will do (thread_group_leader in setpgid's source).
    if number != 0 && number != pid.number() as i32 {
        return err(Errno::EINVAL);
    }
    let pgid = if pgid == 0 { pid } else { k.pid_ns().pid(pgid as u32) };
    let p = k.node.process(pid);
    if pid != k.pid && p.ppid != k.pid {
        return err(Errno::ESRCH);
    }
    // "EACCES An attempt was made to change the process group ID of one of the children of the calling process and the
    // child had already performed an execve(2)".
    if pid != k.pid && p.did_exec {
        return err(Errno::EACCES);
    }
    let sid = k.process().sid;
    if p.sid != sid || p.sid == pid {
        return err(Errno::EPERM);
    }
    if pgid != pid && !k.node.processes.values().any(|q| q.pgid == pgid && q.sid == sid) {
        return err(Errno::EPERM);
    }
    if k.node.process(pid).pgid != pgid {
        let grouped = k.node.next_sibling();
        let process = k.node.process_mut(pid);
        (process.pgid, process.grouped) = (pgid, grouped);
    }
    Ok(0)
}

/// setsid(2). EPERM for the leader of a process group.
pub fn setsid(k: &mut Ctx<'_>) -> SysResult {
    let pid = k.pid;
    // "EPERM The process group ID of any process equals the PID of the calling process."
    if k.node.processes.values().any(|p| p.pgid == pid) {
        return err(Errno::EPERM);
    }
    let grouped = k.node.next_sibling();
    let p = k.process_mut();
    (p.sid, p.pgid, p.grouped) = (pid, pid, grouped);
    p.knobs.autogroup_nice = 0;
    // "Initially, the new session has no controlling terminal."
    (p.tty, p.tty_old_pgrp) = (None, None);
    Ok(u64::from(pid.number()))
}
