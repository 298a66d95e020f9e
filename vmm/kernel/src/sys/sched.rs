//! sched(7): one processor. The policies of real time go before all others ([`Task::urgency`]), the others are kept but schedule
//! nothing: nor do nice values.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use zerocopy::IntoBytes;

use crate::caps::CAP_SYS_NICE;
use crate::credentials::Credentials;
use crate::ctx::*;
use crate::ids::*;
use crate::task::Task;
use crate::wait::SysResult;

/// SCHED_OTHER, SCHED_BATCH, SCHED_IDLE: those without priorities.
const FAIR: [u32; 3] = [0, 3, 5];
const IDLE: u32 = 5;
/// SCHED_FIFO, SCHED_RR.
const REAL_TIME: [u32; 2] = [1, 2];
const ROUND_ROBIN: u32 = 2;
/// The turn of SCHED_RR, sched_rr_timeslice_ms.
const ROUND_NS: u64 = 100_000_000;
/// A tick of Linux with HZ=250, of which turns are whole ones.
const JIFFY_MS: u64 = 4;
/// That of the fair policies, as it is shown.
const FAIR_NS: u64 = 4_000_000;
const DEADLINE: u32 = 6;
/// Highest real-time priority.
const PRIORITY_MAX: u32 = 99;
/// SCHED_RESET_ON_FORK.
const RESET_ON_FORK: u32 = 0x4000_0000;
/// Size of the first struct sched_attr.
const ATTR_SIZE: u32 = 48;
/// Size of that of Linux 6.1.
const ATTR_SIZE_NOW: u32 = 56;

impl Ctx<'_> {
    /// The task that a pid argument names. "ESRCH The thread whose ID is pid could not be found."
    fn scheduled(&self, pid: i32) -> Result<Tid, Errno> {
        let tid = if pid == 0 { self.tid } else { self.pid_ns().tid(pid as u32) };
        if self.node.tasks.contains_key(&tid) { Ok(tid) } else { Err(Errno::ESRCH) }
    }

    /// Whether the caller may change how a task is scheduled (check_same_owner): "the caller's effective user ID must match
    /// the real or effective user ID" of the task, or it has CAP_SYS_NICE.
    pub(super) fn owns_thread(&self, target: &Credentials) -> bool {
        let uid = self.credentials().cred.uid;
        self.capable(CAP_SYS_NICE) || uid == target.cred.uid || uid == target.real_ids[0]
    }

    /// The end of all calls that set a policy, with the checks in the order of __sched_setscheduler.
    fn set_policy(&mut self, tid: Tid, want: &Wanted) -> SysResult {
        let plain = want.policy & !RESET_ON_FORK;
        let real_time = REAL_TIME.contains(&plain);
        // "EINVAL policy is not one of the recognized policies"; "param does not make sense for the specified policy".
        if !(FAIR.contains(&plain) || real_time || plain == DEADLINE)
            || want.priority > PRIORITY_MAX
            || real_time != (want.priority != 0)
            || plain == DEADLINE && !want.deadline
        {
            return err(Errno::EINVAL);
        }
        let (privileged, task) = (self.capable(CAP_SYS_NICE), self.node.task(tid));
        if !privileged && (!self.owns_thread(&task.credentials) || self.needs_privilege(task, want, plain)) {
            return err(Errno::EPERM);
        }
        let task = self.node.task_mut(tid);
        (task.policy, task.priority) = (want.policy, want.priority);
        task.reserved = if plain == DEADLINE { want.reserved } else { [0; 3] };
        task.nice = want.nice.unwrap_or(task.nice);
        self.node.urgent |= real_time || plain == DEADLINE;
        // Whoever goes first now is asked for again, as after set_user_nice and __sched_setscheduler (resched_curr).
        Ok(0)
    }

    /// Whether a change needs CAP_SYS_NICE (user_check_sched_setscheduler).
    fn needs_privilege(&self, task: &Task, want: &Wanted, plain: u32) -> bool {
        let before = task.policy & !RESET_ON_FORK;
        let limit = self.node.process(task.pid).limits[c::RLIMIT_RTPRIO as usize].cur;
        // "If the thread has a nonzero RLIMIT_RTPRIO soft limit, then it can change its scheduling policy and priority, subject
        // to the restriction that the priority cannot be set to a value higher than the maximum of its current priority and its
        // RLIMIT_RTPRIO soft limit" (sched(7)).
        let too_urgent = REAL_TIME.contains(&plain)
            && (plain != before && limit == 0
                || want.priority > task.priority && u64::from(want.priority) > limit);
        // "Linux-specific: since 2.6.39 [...] an unprivileged thread operating under SCHED_IDLE can switch to [...] another
        // policy so long as its nice value falls in the range permitted by its RLIMIT_NICE"; nor may such a thread lower its
        // nice value, or take back that its children get the normal policy (sched(7)).
        too_urgent
            || plain == DEADLINE
            || want.nice.is_some_and(|nice| nice < task.nice && !self.may_be_so_nice(task.pid, nice))
            || before == IDLE && plain != IDLE && !self.may_be_so_nice(task.pid, task.nice)
            || task.policy & RESET_ON_FORK != 0 && want.policy & RESET_ON_FORK == 0
    }
}

impl Task {
    /// Who goes first: 0 for the fair policies, then the priority of real time, then deadlines. "The scheduler makes it possible
    /// for [...] threads with higher static priority [...] to preempt" (sched(7)); a "SCHED_DEADLINE thread [...] will preempt any
    /// thread scheduled under one of the other policies".
    pub fn urgency(&self) -> u32 {
        match self.policy & !RESET_ON_FORK {
            DEADLINE => PRIORITY_MAX + 1,
            _ => self.priority,
        }
    }

    /// It shares the processor by turns with others of its priority (SCHED_RR).
    pub fn round_robin(&self) -> bool {
        self.policy & !RESET_ON_FORK == ROUND_ROBIN
    }
}

/// What a call asks for.
#[derive(Default)]
struct Wanted {
    /// With SCHED_RESET_ON_FORK.
    policy: u32,
    /// As an unsigned number, so that a negative one is too large.
    priority: u32,
    nice: Option<i32>,
    /// The parameters of SCHED_DEADLINE make sense.
    deadline: bool,
    /// They.
    reserved: [u64; 3],
}

/// Policy, priority and nice value of a child. "If SCHED_RESET_ON_FORK is set: [...] If the calling thread has a scheduling
/// policy of SCHED_FIFO or SCHED_RR, the policy is reset to SCHED_OTHER in child processes. If the calling thread has a negative
/// nice value, the nice value is reset to zero in child processes" (sched(7)).
pub(super) fn inherited(parent: &Task) -> (u32, u32, i32) {
    let (plain, nice) = (parent.policy & !RESET_ON_FORK, parent.nice);
    match parent.policy & RESET_ON_FORK != 0 {
        false => (plain, parent.priority, nice),
        true if FAIR.contains(&plain) => (plain, 0, nice.max(0)),
        true => (0, 0, 0),
    }
}

/// "EAGAIN [...] the caller is operating under the SCHED_DEADLINE scheduling policy and does not have the reset-on-fork flag set"
/// (fork(2)).
pub(super) fn may_fork(parent: &Task) -> bool {
    parent.policy != DEADLINE
}

/// "EINVAL Invalid arguments: param is NULL or pid is negative".
fn valid(pid: i32, pointer: Ptr) -> Result<(), Errno> {
    if pid < 0 || pointer.is_null() { Err(Errno::EINVAL) } else { Ok(()) }
}

/// sched_yield(2): another runnable task goes first.
pub fn sched_yield(k: &mut Ctx<'_>) -> SysResult {
    k.node.yielded = true;
    Ok(0)
}

/// sched_getaffinity(2): one processor. EINVAL for a mask that is too short.
pub fn sched_getaffinity(k: &mut Ctx<'_>, pid: i32, size: u64, mask: Ptr) -> SysResult {
    if size < 8 || !size.is_multiple_of(8) {
        return err(Errno::EINVAL);
    }
    k.scheduled(pid)?;
    k.write_obj(mask, &1u64)?;
    Ok(8)
}

/// sched_setaffinity(2). EINVAL for a mask without the one processor.
pub fn sched_setaffinity(k: &mut Ctx<'_>, pid: i32, size: u64, mask: Ptr) -> SysResult {
    let mut word = [0u8; 8];
    k.read_bytes(mask.0, &mut word[..size.min(8) as usize])?;
    let tid = k.scheduled(pid)?;
    if !k.owns_thread(&k.node.task(tid).credentials) {
        return err(Errno::EPERM);
    }
    // One CPU, number 0.
    if word[0] & 1 == 0 { err(Errno::EINVAL) } else { Ok(0) }
}

/// sched_setparam(2). EINVAL for a priority that the policy does not have.
pub fn sched_setparam(k: &mut Ctx<'_>, pid: i32, param: Ptr) -> SysResult {
    valid(pid, param)?;
    let priority: u32 = k.read_obj(param)?;
    let tid = k.scheduled(pid)?;
    let policy = k.node.task(tid).policy;
    k.set_policy(tid, &Wanted { policy, priority, ..Wanted::default() })
}

/// sched_getparam(2).
pub fn sched_getparam(k: &mut Ctx<'_>, pid: i32, param: Ptr) -> SysResult {
    valid(pid, param)?;
    let tid = k.scheduled(pid)?;
    let priority = k.node.task(tid).priority;
    k.write_obj(param, &priority)?;
    Ok(0)
}

/// sched_rr_get_interval(2): the turn of SCHED_RR; 0 where there are none, as with SCHED_FIFO.
pub fn sched_rr_get_interval(k: &mut Ctx<'_>, pid: i32, interval: Ptr) -> SysResult {
    // "EINVAL Invalid PID."
    if pid < 0 {
        return err(Errno::EINVAL);
    }
    let tid = k.scheduled(pid)?;
    let slice = match k.node.task(tid).policy & !RESET_ON_FORK {
        ROUND_ROBIN => k
            .container()
            .number("kernel/sched_rr_timeslice_ms")
            .map_or(ROUND_NS, |ms| ms.min(i32::MAX as u64).div_ceil(JIFFY_MS) * JIFFY_MS * 1_000_000),
        plain if FAIR.contains(&plain) => FAIR_NS,
        _ => 0,
    };
    k.write_obj(interval, &bloodhound_abi::structs::Timespec::from_ns(slice))?;
    Ok(0)
}

/// sched_setscheduler(2). EPERM for policies of real time without CAP_SYS_NICE.
pub fn sched_setscheduler(k: &mut Ctx<'_>, pid: i32, policy: u32, param: Ptr) -> SysResult {
    if (policy as i32) < 0 {
        return err(Errno::EINVAL);
    }
    valid(pid, param)?;
    let priority: u32 = k.read_obj(param)?;
    let tid = k.scheduled(pid)?;
    k.set_policy(tid, &Wanted { policy, priority, ..Wanted::default() })
}

/// sched_getscheduler(2).
pub fn sched_getscheduler(k: &mut Ctx<'_>, pid: i32) -> SysResult {
    if pid < 0 {
        return err(Errno::EINVAL);
    }
    let tid = k.scheduled(pid)?;
    Ok(u64::from(k.node.task(tid).policy))
}

/// sched_get_priority_max(2). EINVAL for unknown policies.
pub fn sched_get_priority_max(_k: &mut Ctx<'_>, policy: u32) -> SysResult {
    match policy {
        1 | 2 => Ok(99),
        0 | 3 | 5 | 6 => Ok(0),
        _ => err(Errno::EINVAL),
    }
}

/// sched_get_priority_min(2). EINVAL for unknown policies.
pub fn sched_get_priority_min(_k: &mut Ctx<'_>, policy: u32) -> SysResult {
    match policy {
        1 | 2 => Ok(1),
        0 | 3 | 5 | 6 => Ok(0),
        _ => err(Errno::EINVAL),
    }
}

/// struct sched_attr as 32-bit words: size, policy, flags (two), nice, priority; then runtime, deadline, period of 64 bits;
/// then the bounds of utilization.
type Attr = [u32; (ATTR_SIZE_NOW / 4) as usize];

/// sched_copy_attr: "E2BIG The buffer specified by size and attr [...] all bytes beyond those known to the kernel must be
/// zero; [...] the kernel sets the size field to the size that it knows" (sched_setattr(2)).
fn read_attr(k: &mut Ctx<'_>, attr: Ptr) -> SysResult<Attr> {
    let given: u32 = k.read_obj(attr)?;
    let size = if given == 0 { ATTR_SIZE } else { given };
    let mut fits = (ATTR_SIZE..=4096).contains(&size);
    if fits && size > ATTR_SIZE_NOW {
        let mut rest = vec![0; (size - ATTR_SIZE_NOW) as usize];
        k.read_bytes(attr.0 + u64::from(ATTR_SIZE_NOW), &mut rest)?;
        fits = rest.iter().all(|byte| *byte == 0);
    }
    if !fits {
        k.write_obj(attr, &ATTR_SIZE_NOW)?;
        return err(Errno::E2BIG);
    }
    let mut words = Attr::default();
    k.read_bytes(attr.0, &mut words.as_mut_bytes()[..size.min(ATTR_SIZE_NOW) as usize])?;
    words[0] = size;
    Ok(words)
}

/// sched_setattr(2). E2BIG for a structure with fields that are not known.
pub fn sched_setattr(k: &mut Ctx<'_>, pid: i32, attr: Ptr, flags: Hex) -> SysResult {
    const FLAG_RESET_ON_FORK: u32 = 1;
    const FLAG_KEEP_POLICY: u32 = 8;
    const FLAG_KEEP_PARAMS: u32 = 0x10;
    const FLAG_UTIL_CLAMP: u32 = 0x60;
    const FLAGS_ALL: u32 = 0x7f;
    valid(pid, attr)?;
    if flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    let words = read_attr(k, attr)?;
    let [size, mut policy, flags, more, nice, priority, ..] = words;
    let clamps = flags & FLAG_UTIL_CLAMP != 0;
    if clamps && size < ATTR_SIZE_NOW || (policy as i32) < 0 {
        return err(Errno::EINVAL);
    }
    let tid = k.scheduled(pid)?;
    let task = k.node.task(tid);
    if flags & FLAG_KEEP_POLICY != 0 {
        policy = task.policy & !RESET_ON_FORK;
    }
    if flags & !FLAGS_ALL != 0 || more != 0 || policy & RESET_ON_FORK != 0 {
        return err(Errno::EINVAL);
    }
    // Without CONFIG_UCLAMP_TASK.
    if clamps {
        return err(Errno::EOPNOTSUPP);
    }
    let keep = flags & FLAG_KEEP_PARAMS != 0;
    let long = |at: usize| u64::from(words[at + 1]) << 32 | u64::from(words[at]);
    let (runtime, deadline, period) = (long(6), long(8), long(10));
    let now = task.priority;
    let want = Wanted {
        policy: if flags & FLAG_RESET_ON_FORK != 0 { policy | RESET_ON_FORK } else { policy },
        priority: if keep { now } else { priority },
        // "SCHED_OTHER and SCHED_BATCH" have a nice value; others ignore it.
        nice: (!keep && matches!(policy, 0 | 3)).then_some((nice as i32).clamp(-20, 19)),
        // __checkparam_dl: at least 1024 ns of runtime, in order.
        deadline: runtime >= 1 << 10 && runtime <= deadline && (period == 0 || deadline <= period),
        reserved: [runtime, deadline, if period == 0 { deadline } else { period }],
    };
    k.set_policy(tid, &want)
}

/// sched_getattr(2).
pub fn sched_getattr(k: &mut Ctx<'_>, pid: i32, attr: Ptr, size: u32, flags: Hex) -> SysResult {
    valid(pid, attr)?;
    if !(ATTR_SIZE..=4096).contains(&size) || flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    let tid = k.scheduled(pid)?;
    let task = k.node.task(tid);
    let known = size.min(ATTR_SIZE_NOW);
    let mut words = Attr::default();
    let plain = task.policy & !RESET_ON_FORK;
    (words[0], words[1], words[5]) = (known, plain, task.priority);
    words[2] = u32::from(task.policy & RESET_ON_FORK != 0);
    words[4] = if FAIR.contains(&plain) { task.nice as u32 } else { 0 };
    for (at, time) in task.reserved.iter().enumerate() {
        (words[6 + 2 * at], words[7 + 2 * at]) = (*time as u32, (*time >> 32) as u32);
    }
    k.write_bytes(attr.0, &words.as_bytes()[..known as usize])?;
    Ok(0)
}
