//! sched(7): one processor, and policies that are kept but schedule nothing.

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::ids::*;
use crate::wait::SysResult;

/// SCHED_OTHER, SCHED_BATCH, SCHED_IDLE: those without priorities. FIFO, RR and DEADLINE need CAP_SYS_NICE.
const FAIR: [u32; 3] = [0, 3, 5];
const REAL_TIME: [u32; 3] = [1, 2, 6];
/// SCHED_RESET_ON_FORK.
const RESET_ON_FORK: u32 = 0x4000_0000;
/// Size of the first struct sched_attr.
const ATTR_SIZE: u32 = 48;
/// Size of the one that Linux 6.1 knows, with utilization clamps.
const ATTR_KNOWN: u32 = 56;
/// SCHED_FLAG_ALL; of it SCHED_FLAG_KEEP_POLICY and SCHED_FLAG_UTIL_CLAMP.
const ATTR_FLAGS: u32 = 0x7f;
const KEEP_POLICY: u32 = 8;
const UTIL_CLAMP: u32 = 0x60;

impl Ctx<'_> {
    /// The task that a pid argument names. "ESRCH The thread whose ID is pid could not be found."
    fn scheduled(&self, pid: i32) -> Result<Tid, Errno> {
        let tid = if pid == 0 { self.tid } else { Tid(pid as u32) };
        if self.node.tasks.contains_key(&tid) { Ok(tid) } else { Err(Errno::ESRCH) }
    }

    /// Checks the priority that goes with a policy: "EINVAL param does not make sense for the specified policy".
    fn check_priority(&mut self, param: Ptr) -> Result<(), Errno> {
        let priority: i32 = self.read_obj(param)?;
        if priority == 0 { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// The policy of a child.
pub(super) fn inherited(policy: u32) -> u32 {
    if policy & RESET_ON_FORK == 0 { policy } else { 0 }
}

/// "EINVAL Invalid arguments: param is NULL or pid is negative".
fn valid(pid: i32, pointer: Ptr) -> Result<(), Errno> {
    if pid < 0 || pointer.is_null() { Err(Errno::EINVAL) } else { Ok(()) }
}

pub fn sched_yield(k: &mut Ctx<'_>) -> SysResult {
    k.node.yielded = true;
    Ok(0)
}

pub fn sched_getaffinity(k: &mut Ctx<'_>, pid: i32, size: u64, mask: Ptr) -> SysResult {
    if size < 8 || !size.is_multiple_of(8) {
        return err(Errno::EINVAL);
    }
    k.scheduled(pid)?;
    k.write_obj(mask, &1u64)?;
    Ok(8)
}

pub fn sched_setaffinity(k: &mut Ctx<'_>, pid: i32, size: u64, mask: Ptr) -> SysResult {
    let mut word = [0u8; 8];
    k.read_bytes(mask.0, &mut word[..size.min(8) as usize])?;
    k.scheduled(pid)?;
    // One CPU, number 0.
    if word[0] & 1 == 0 { err(Errno::EINVAL) } else { Ok(0) }
}

pub fn sched_setparam(k: &mut Ctx<'_>, pid: i32, param: Ptr) -> SysResult {
    valid(pid, param)?;
    let priority = k.check_priority(param);
    if priority == Err(Errno::EFAULT) {
        return err(Errno::EFAULT);
    }
    k.scheduled(pid)?;
    priority?;
    Ok(0)
}

pub fn sched_getparam(k: &mut Ctx<'_>, pid: i32, param: Ptr) -> SysResult {
    valid(pid, param)?;
    k.scheduled(pid)?;
    k.write_obj(param, &0i32)?;
    Ok(0)
}

/// What a task of SCHED_OTHER shows; nothing is scheduled by it.
pub fn sched_rr_get_interval(k: &mut Ctx<'_>, pid: i32, interval: Ptr) -> SysResult {
    // "EINVAL Invalid PID."
    if pid < 0 {
        return err(Errno::EINVAL);
    }
    k.scheduled(pid)?;
    k.write_obj(interval, &bloodhound_abi::structs::Timespec::from_ns(4_000_000))?;
    Ok(0)
}

pub fn sched_setscheduler(k: &mut Ctx<'_>, pid: i32, policy: u32, param: Ptr) -> SysResult {
    if policy as i32 >= 0 {
        valid(pid, param)?;
        let priority = k.check_priority(param);
        if priority == Err(Errno::EFAULT) {
            return err(Errno::EFAULT);
        }
        let tid = k.scheduled(pid)?;
        let plain = policy & !RESET_ON_FORK;
        if REAL_TIME.contains(&plain) {
            return err(Errno::EPERM);
        }
        if FAIR.contains(&plain) {
            priority?;
            k.node.task_mut(tid).policy = policy;
            return Ok(0);
        }
    }
    err(Errno::EINVAL)
}

pub fn sched_getscheduler(k: &mut Ctx<'_>, pid: i32) -> SysResult {
    if pid < 0 {
        return err(Errno::EINVAL);
    }
    let tid = k.scheduled(pid)?;
    Ok(u64::from(k.node.task(tid).policy))
}

pub fn sched_get_priority_max(_k: &mut Ctx<'_>, policy: u32) -> SysResult {
    match policy {
        1 | 2 => Ok(99),
        0 | 3 | 5 | 6 => Ok(0),
        _ => err(Errno::EINVAL),
    }
}

pub fn sched_get_priority_min(_k: &mut Ctx<'_>, policy: u32) -> SysResult {
    match policy {
        1 | 2 => Ok(1),
        0 | 3 | 5 | 6 => Ok(0),
        _ => err(Errno::EINVAL),
    }
}

pub fn sched_setattr(k: &mut Ctx<'_>, pid: i32, attr: Ptr, flags: Hex) -> SysResult {
    valid(pid, attr)?;
    if flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    // size, policy, flags (64 bits), nice, priority.
    let [size, policy, low, high, _nice, priority]: [u32; 6] = k.read_obj(attr)?;
    if size != 0 && !(ATTR_SIZE..=4096).contains(&size) {
        // "E2BIG [...] the kernel [...] returns the size that it knows".
        k.write_obj(attr, &ATTR_KNOWN)?;
        return err(Errno::E2BIG);
    }
    if high != 0 || low & !ATTR_FLAGS != 0 {
        return err(Errno::EINVAL);
    }
    // SCHED_FLAG_UTIL_CLAMP needs CONFIG_UCLAMP_TASK.
    if low & UTIL_CLAMP != 0 {
        return err(Errno::EOPNOTSUPP);
    }
    let tid = k.scheduled(pid)?;
    if low & KEEP_POLICY != 0 {
        return Ok(0);
    }
    if REAL_TIME.contains(&policy) {
        return err(Errno::EPERM);
    }
    if !FAIR.contains(&policy) || priority != 0 {
        return err(Errno::EINVAL);
    }
    k.node.task_mut(tid).policy = policy | if low & 1 != 0 { RESET_ON_FORK } else { 0 };
    Ok(0)
}

pub fn sched_getattr(k: &mut Ctx<'_>, pid: i32, attr: Ptr, size: u32, flags: Hex) -> SysResult {
    valid(pid, attr)?;
    if !(ATTR_SIZE..=4096).contains(&size) || flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    let tid = k.scheduled(pid)?;
    let policy = k.node.task(tid).policy & !RESET_ON_FORK;
    let nice = k.node.process(k.node.task(tid).pid).nice;
    // struct sched_attr: size, policy, flags (64 bits), nice, priority; then runtime, deadline, period of 64 bits.
    let mut words = [0u32; (ATTR_SIZE / 4) as usize];
    (words[0], words[1], words[4]) = (ATTR_SIZE, policy, nice as u32);
    k.write_obj(attr, &words)?;
    Ok(0)
}
