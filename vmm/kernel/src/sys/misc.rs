//! uname(2), sysinfo(2), limits, priorities, randomness.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Rlimit, Sysinfo};
use bloodhound_decisions::Stream;

use crate::ctx::*;
use crate::ids::*;
use crate::wait::SysResult;

/// The release that programs see; new enough for every call in the table.
pub const RELEASE: &str = "6.1.0-bloodhound";
/// The version string that programs see.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC";

pub fn uname(k: &mut Ctx<'_>, buf: Ptr) -> SysResult {
    let mut out = [0u8; 65 * 6];
    let host = k.node.config.hostname.clone();
    for (i, text) in ["Linux", host.as_str(), RELEASE, VERSION, "x86_64", "(none)"].iter().enumerate() {
        let n = text.len().min(64);
        out[i * 65..i * 65 + n].copy_from_slice(&text.as_bytes()[..n]);
    }
    k.write_bytes(buf.0, &out)?;
    Ok(0)
}

pub fn sysinfo(k: &mut Ctx<'_>, info: Ptr) -> SysResult {
    let total = k.node.config.memory;
    let out = Sysinfo {
        uptime: (k.now().0 / 1_000_000_000) as i64,
        totalram: total,
        freeram: total / 2,
        procs: k.node.tasks.len() as u16,
        mem_unit: 1,
        ..Sysinfo::default()
    };
    k.write_obj(info, &out)?;
    Ok(0)
}

pub fn getrandom(k: &mut Ctx<'_>, buf: Ptr, len: u64, flags: Hex) -> SysResult {
    let known = c::GRND_NONBLOCK | c::GRND_RANDOM | c::GRND_INSECURE;
    if flags.0 & !known != 0
        || flags.0 & (c::GRND_RANDOM | c::GRND_INSECURE) == c::GRND_RANDOM | c::GRND_INSECURE
    {
        return err(Errno::EINVAL);
    }
    // "reads of up to 33,554,431 (2^25 - 1) bytes"
    let n = len.min(0x1ff_ffff);
    k.check_user(buf.0, n, crate::mm::Access::Write)?;
    let mut out = vec![0; n as usize];
    k.decisions.bytes(Stream::GuestRandom, &mut out);
    k.write_bytes(buf.0, &out)?;
    Ok(n)
}

pub fn getrlimit(k: &mut Ctx<'_>, resource: u32, limit: Ptr) -> SysResult {
    prlimit64(k, 0, resource, Ptr(0), limit)
}

pub fn setrlimit(k: &mut Ctx<'_>, resource: u32, limit: Ptr) -> SysResult {
    prlimit64(k, 0, resource, limit, Ptr(0))
}

pub fn prlimit64(k: &mut Ctx<'_>, pid: i32, resource: u32, new: Ptr, old: Ptr) -> SysResult {
    let pid = if pid == 0 { k.pid } else { Pid(pid as u32) };
    let index = resource as usize;
    if index >= 16 {
        return err(Errno::EINVAL);
    }
    let current = k.node.processes.get(&pid).ok_or(Errno::ESRCH)?.limits[index];
    if !new.is_null() {
        let wanted: Rlimit = k.read_obj(new)?;
        if wanted.cur > wanted.max {
            return err(Errno::EINVAL);
        }
        if wanted.max > current.max && !k.process().cred.is_root() {
            return err(Errno::EPERM);
        }
        k.node.process_mut(pid).limits[index] = wanted;
    }
    if !old.is_null() {
        k.write_obj(old, &current)?;
    }
    Ok(0)
}

impl Ctx<'_> {
    /// The processes that `which` and `who` of getpriority(2) mean; ESRCH if there is none.
    fn priority_targets(&self, which: u32, who: i32) -> SysResult<Vec<Pid>> {
        let me = self.process();
        let pid = Pid(who as u32);
        let hit = |p: &crate::process::Process| match (which, who) {
            (0, 0) => p.pid == me.pid,
            // A thread's number means its process: threads have no nice value of their own here.
            (0, _) => p.pid == pid || self.node.tasks.get(&Tid(pid.0)).is_some_and(|t| t.pid == p.pid),
            (1, 0) => p.pgid == me.pgid,
            (1, _) => p.pgid == pid,
            (2, 0) => p.real_ids[0] == me.real_ids[0],
            _ => p.real_ids[0] == who as u32,
        };
        if which > 2 {
            return err(Errno::EINVAL);
        }
        let found: Vec<Pid> = self.node.processes.values().filter(|p| hit(p)).map(|p| p.pid).collect();
        if found.is_empty() { err(Errno::ESRCH) } else { Ok(found) }
    }
}

pub fn getpriority(k: &mut Ctx<'_>, which: u32, who: i32) -> SysResult {
    let found = k.priority_targets(which, who)?;
    // "the raw system call returns [...] 20-nice" of the most favoured process.
    let nice = found.iter().map(|p| k.node.process(*p).nice).min().unwrap_or(0);
    Ok((20 - nice) as u64)
}

pub fn setpriority(k: &mut Ctx<'_>, which: u32, who: i32, nice: i32) -> SysResult {
    let found = k.priority_targets(which, who)?;
    let (nice, root) = (nice.clamp(-20, 19), k.process().cred.is_root());
    for pid in found {
        let process = k.node.process_mut(pid);
        // "EACCES The caller attempted to set a lower nice value [...], but did not have the required privilege".
        if nice < process.nice && !root {
            return err(Errno::EACCES);
        }
        process.nice = nice;
    }
    Ok(0)
}

pub fn getcpu(k: &mut Ctx<'_>, cpu: Ptr, node: Ptr, _cache: Ptr) -> SysResult {
    for ptr in [cpu, node] {
        if !ptr.is_null() {
            k.write_obj(ptr, &0u32)?;
        }
    }
    Ok(0)
}

pub fn restart_syscall(_k: &mut Ctx<'_>) -> SysResult {
    err(Errno::EINTR)
}
