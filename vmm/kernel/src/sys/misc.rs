//! uname(2), sysinfo(2), limits, priorities, randomness.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Rlimit, Sysinfo};

use crate::buffers::Buffers;
use crate::caps::CAP_SYS_RESOURCE;
use crate::credentials::Credentials;
use crate::ctx::*;
use crate::mm::Access;
use crate::task::{PER_LINUX32, UNAME26};
use crate::wait::SysResult;

/// The release that programs see; new enough for every call in the table.
pub const RELEASE: &str = "6.1.0-bloodhound";
/// The same for those that asked for UNAME26.
const RELEASE_26: &str = "2.6.61-bloodhound";
/// The version string that programs see.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC";

/// sysctl_nr_open.
const NR_OPEN: u64 = 1 << 20;

/// uname(2).
pub fn uname(k: &mut Ctx<'_>, buf: Ptr) -> SysResult {
    let mut out = [0u8; 65 * 6];
    let container = k.container();
    let host = container.shown_name().to_owned();
    let domain = container.parameter("kernel/domainname").unwrap_or("(none)").to_owned();
    let persona = k.task().persona;
    // override_release: 6.1 is 2.6.61.
    let release = if persona & UNAME26 != 0 { RELEASE_26 } else { RELEASE };
    let machine = if persona & PER_LINUX32 != 0 { "i686" } else { "x86_64" };
    for (i, text) in ["Linux", host.as_str(), release, VERSION, machine, domain.as_str()].iter().enumerate() {
        let n = text.len().min(64);
        out[i * 65..i * 65 + n].copy_from_slice(&text.as_bytes()[..n]);
    }
    k.write_bytes(buf.0, &out)?;
    Ok(0)
}

/// sysinfo(2).
pub fn sysinfo(k: &mut Ctx<'_>, info: Ptr) -> SysResult {
    let total = k.node.config.memory;
    let out = Sysinfo {
        uptime: (k.node.uptime() / 1_000_000_000) as i64,
        totalram: total,
        freeram: total / 2,
        procs: k.node.tasks.len() as u16,
        mem_unit: 1,
        ..Sysinfo::default()
    };
    k.write_obj(info, &out)?;
    Ok(0)
}

/// getrandom(2). EFAULT only if not even the first byte could be stored.
pub fn getrandom(k: &mut Ctx<'_>, buf: Ptr, len: u64, flags: RandomFlags) -> SysResult {
    let known = c::GRND_NONBLOCK | c::GRND_RANDOM | c::GRND_INSECURE;
    if flags.bits() & !known != 0
        || flags.bits() & (c::GRND_RANDOM | c::GRND_INSECURE) == c::GRND_RANDOM | c::GRND_INSECURE
    {
        return err(Errno::EINVAL);
    }
    // "reads of up to 33,554,431 (2^25 - 1) bytes"
    let n = len.min(0x1ff_ffff);
    let n = k.good_bytes(&Buffers::one(buf, n)?, 0, n, Access::Write)?;
    let mut out = vec![0; n as usize];
    k.random_bytes(&mut out);
    k.write_bytes(buf.0, &out)?;
    Ok(n)
}

/// getrlimit(2).
pub fn getrlimit(k: &mut Ctx<'_>, resource: u32, limit: Ptr) -> SysResult {
    prlimit64(k, 0, resource, Ptr(0), limit)
}

/// setrlimit(2).
pub fn setrlimit(k: &mut Ctx<'_>, resource: u32, limit: Ptr) -> SysResult {
    prlimit64(k, 0, resource, limit, Ptr(0))
}

/// prlimit(2). EPERM for processes of other users and for raising a hard limit; ESRCH.
pub fn prlimit64(k: &mut Ctx<'_>, pid: i32, resource: u32, new: Ptr, old: Ptr) -> SysResult {
    let wanted: Option<Rlimit> = if new.is_null() { None } else { Some(k.read_obj(new)?) };
    // A number names a thread, whose process's limits these are.
    let tid = if pid == 0 { k.tid } else { k.pid_ns().tid(pid as u32) };
    let pid = if pid == 0 { k.pid } else { k.node.process_of(k.pid_ns(), pid).ok_or(Errno::ESRCH)? };
    let target = k.node.process(pid);
    // The caller must "have the CAP_SYS_RESOURCE capability [...]", or the ids must match (prlimit(2)): for reading, too.
    let privileged = k.capable(CAP_SYS_RESOURCE);
    let same = |other: &Credentials| k.same_ids(other);
    if tid != k.tid && !k.node.credentials_of_thread(tid).is_some_and(same) && !privileged {
        return err(Errno::EPERM);
    }
    let index = resource as usize;
    if index >= 16 {
        return err(Errno::EINVAL);
    }
    let current = target.limits[index];
    if let Some(wanted) = wanted {
        if wanted.cur > wanted.max {
            return err(Errno::EINVAL);
        }
        // RLIMIT_NOFILE: "EPERM The caller tried to increase the hard [...] limit above the current kernel maximum (NR_OPEN)".
        let too_many = resource == c::RLIMIT_NOFILE as u32 && wanted.max > NR_OPEN;
        if too_many || wanted.max > current.max && !privileged {
            return err(Errno::EPERM);
        }
        k.node.process_mut(pid).limits[index] = wanted;
    }
    if !old.is_null() {
        k.write_obj(old, &current)?;
    }
    Ok(0)
}

/// getcpu(2): there is one processor.
pub fn getcpu(k: &mut Ctx<'_>, cpu: Ptr, node: Ptr, _cache: Ptr) -> SysResult {
    for ptr in [cpu, node] {
        if !ptr.is_null() {
            k.write_obj(ptr, &0u32)?;
        }
    }
    Ok(0)
}

/// restart_syscall(2): EINTR, because interrupted calls are restarted by their own number here.
pub fn restart_syscall(_k: &mut Ctx<'_>) -> SysResult {
    err(Errno::EINTR)
}
