//! clock_gettime(2), nanosleep(2), setitimer(2), timer_create(2), timerfd_create(2).

use bloodhound_abi::Errno;
use bloodhound_abi::SimTime;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Itimerspec, Itimerval, Timespec, Timeval, Tms};

use crate::caps::CAP_WAKE_ALARM;
use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::timer::{Clock, CpuClock, PosixTimer, Schedule, TimerFd, TimerKey};
use crate::wait::{Deadline, Left, Restart, Stop, SysResult, Wait, WaitOn};

/// A coarse clock ticks every 4 ms (CONFIG_HZ=250).
const COARSE: u64 = 4_000_000;

impl Ctx<'_> {
    /// The value of a clock, ns.
    fn clock(&self, clock: i32) -> SysResult {
        let (mono, real) = (self.node.uptime(), self.node.realtime());
        if clock < 0 {
            let cpu = self.cpu_clock(clock, true)?;
            return Ok(self.node.cpu_time(cpu).ok_or(Errno::EINVAL)?.0);
        }
        Ok(match clock as u64 {
            c::CLOCK_REALTIME | c::CLOCK_REALTIME_ALARM => real,
            c::CLOCK_TAI => self.node.tai(),
            c::CLOCK_MONOTONIC | c::CLOCK_MONOTONIC_RAW | c::CLOCK_BOOTTIME | c::CLOCK_BOOTTIME_ALARM => mono,
            c::CLOCK_REALTIME_COARSE => real - real % COARSE,
            c::CLOCK_MONOTONIC_COARSE => mono - mono % COARSE,
            c::CLOCK_PROCESS_CPUTIME_ID => self.process().cpu.total,
            c::CLOCK_THREAD_CPUTIME_ID => self.task().cpu.total,
            _ => return err(Errno::EINVAL),
        })
    }

    /// Whose time a negative clock id means. A CPU clock of a process or thread (clock_getcpuclockid(3)) is
    /// `!number << 3 | thread << 2 | kind`, a clock behind a descriptor `!fd << 3 | 3` (dynamic posix clocks, which no
    /// device here has). The rules are pid_for_clock's; `time` says that the time itself is asked for.
    pub(super) fn cpu_clock(&self, clock: i32, time: bool) -> Result<CpuClock, Errno> {
        // CPUCLOCK_PROF, CPUCLOCK_VIRT and CPUCLOCK_SCHED; 3 is a descriptor's or none.
        if clock & 3 == 3 {
            return Err(Errno::EINVAL);
        }
        let (number, thread) = (!(clock >> 3) as u32, clock & 4 != 0);
        match (number, thread) {
            (0, true) => Ok(CpuClock::Thread(self.tid)),
            (0, false) => Ok(CpuClock::Process(self.pid)),
            // Threads of other processes have none that can be seen.
            (tid, true) => {
                let tid = self.pid_ns().tid(tid);
                let task = self.node.tasks.get(&tid).filter(|t| t.pid == self.pid);
                task.map(|_| CpuClock::Thread(tid)).ok_or(Errno::EINVAL)
            }
            // "allow finding the process by with the pid of the current task".
            (tid, false) if time && tid == self.tid.number() => Ok(CpuClock::Process(self.pid)),
            (number, false) => {
                let pid = self.pid_ns().pid(number);
                let known = self.node.processes.contains_key(&pid);
                if known { Ok(CpuClock::Process(pid)) } else { Err(Errno::EINVAL) }
            }
        }
    }

    /// The clock of a sleep or a timer. EINVAL for what is no clock, `cannot` for one that does not do this (Linux asks for its
    /// `nsleep` or `timer_create`).
    fn timer_clock(&self, clock: i32, cannot: Errno) -> SysResult<Clock> {
        if clock < 0 {
            if clock & 7 == 3 {
                return err(cannot);
            }
            return Ok(Clock::Cpu(self.cpu_clock(clock, false)?));
        }
        // timer_create(2): "EPERM: clockid was CLOCK_REALTIME_ALARM or CLOCK_BOOTTIME_ALARM but the caller did not have the
        // CAP_WAKE_ALARM capability", which root in a container has not.
        let alarm = matches!(clock as u64, c::CLOCK_REALTIME_ALARM | c::CLOCK_BOOTTIME_ALARM);
        if alarm && !self.capable(CAP_WAKE_ALARM) {
            return err(Errno::EPERM);
        }
        match clock as u64 {
            c::CLOCK_TAI if self.node.time.tai() != 0 => {
                Err(Stop::Unsupported("a sleep or timer on CLOCK_TAI after a leap second".into()))
            }
            c::CLOCK_REALTIME | c::CLOCK_REALTIME_ALARM | c::CLOCK_TAI => Ok(Clock::Realtime),
            c::CLOCK_MONOTONIC | c::CLOCK_BOOTTIME | c::CLOCK_BOOTTIME_ALARM => Ok(Clock::Monotonic),
            c::CLOCK_PROCESS_CPUTIME_ID => Ok(Clock::Cpu(CpuClock::Process(self.pid))),
            c::CLOCK_THREAD_CPUTIME_ID => Ok(Clock::Cpu(CpuClock::Thread(self.tid))),
            c::CLOCK_MONOTONIC_RAW | c::CLOCK_REALTIME_COARSE | c::CLOCK_MONOTONIC_COARSE => err(cannot),
            _ => err(Errno::EINVAL),
        }
    }

    /// The end of a sleep that was begun before: nothing is read again.
    fn slept(&self) -> Option<SysResult> {
        let sleep = self.sleep_on()?;
        let on = self.resumed.as_ref().and_then(|r| r.wait.on.first());
        let reached = match on {
            Some(WaitOn::CpuTime(clock, end)) => self.node.timer_time(Clock::Cpu(*clock)) >= *end,
            _ => self.timed_out(),
        };
        Some(if reached { Ok(0) } else { sleep })
    }

    fn sleep(&mut self, deadline: Deadline, rem: Ptr, absolute: bool) -> SysResult {
        if deadline.at <= self.now() {
            return Ok(0);
        }
        let wait = Wait::until(None).ends(Some(deadline));
        if absolute {
            return Err(wait.restart(Restart::NoHand).into());
        }
        let left = (!rem.is_null()).then_some(Left::Timespec(rem.0));
        Err(wait.restart(Restart::Block).left(left).into())
    }

    /// Until a CPU clock has come to a time: others have to use the processor meanwhile.
    fn cpu_sleep(&mut self, clock: CpuClock, ns: u64, rem: Ptr, absolute: bool) -> SysResult {
        let now = self.node.timer_time(Clock::Cpu(clock));
        let end = if absolute { SimTime(ns) } else { self.restart_deadline.unwrap_or(now.after(ns)) };
        if end <= now {
            return Ok(0);
        }
        if !self.node.signal_deliverable(self.tid) {
            self.node.rearm_on(Clock::Cpu(clock), TimerKey::Sleep(self.tid), None, Some(end));
        }
        let left = (!absolute && !rem.is_null()).then_some(Left::Timespec(rem.0));
        let restart = if absolute { Restart::NoHand } else { Restart::Block };
        Err(Wait::on(WaitOn::CpuTime(clock, end)).restart(restart).left(left).into())
    }

    /// Stores the time that an interrupted or finished call had left. A bad address does not matter to poll(2) and its kind: "if
    /// an application puts its timeval in read-only memory, [the] update [must not] cause a fault" (the kernel's poll_select_finish).
    pub(crate) fn report_left(&mut self, left: Left, ns: u64) -> Result<(), Errno> {
        match left {
            Left::Timespec(at) => self.write_obj(Ptr(at), &Timespec::from_ns(ns)),
            Left::News(at) => super::process::give_no_news(self, Ptr(at)),
            // Rounded up, so that what is left never reads as nothing.
            Left::Timeval(at) => {
                self.write_obj(Ptr(at), &Timeval::from_ns(ns.checked_next_multiple_of(1000).unwrap_or(ns)))
            }
        }
    }

    /// A timer's new schedule from user space; a zero value disarms.
    fn schedule(&self, spec: &Itimerspec, absolute: bool, clock: Clock) -> SysResult<Schedule> {
        let (value, interval) =
            (spec.value.to_ns().ok_or(Errno::EINVAL)?, spec.interval.to_ns().ok_or(Errno::EINVAL)?);
        if value == 0 {
            return Ok(Schedule { interval, ..Schedule::default() });
        }
        // "Relative CLOCK_REALTIME timers are not affected by clock modifications" (the kernel's __hrtimer_init).
        let (mut before_boot, mut wall) = (0, false);
        let next = match clock {
            _ if !absolute => self.node.timer_time(clock).after(value),
            Clock::Cpu(_) => SimTime(value),
            Clock::Monotonic | Clock::Realtime => {
                let realtime = clock == Clock::Realtime;
                before_boot = u64::try_from(-self.own_deadline(value, realtime)).unwrap_or(0);
                wall = realtime;
                self.clock_deadline(value, realtime).at
            }
        };
        Ok(Schedule { next: Some(next), interval, before_boot, wall })
    }
}

/// clock_gettime(2). EINVAL for unknown clocks.
pub fn clock_gettime(k: &mut Ctx<'_>, clock: i32, tp: Ptr) -> SysResult {
    let ns = k.clock(clock)?;
    k.write_obj(tp, &Timespec::from_ns(ns))?;
    Ok(0)
}

/// clock_getres(2). EINVAL for unknown clocks.
pub fn clock_getres(k: &mut Ctx<'_>, clock: i32, tp: Ptr) -> SysResult {
    // What is measured in ticks: the coarse clocks, and the CPU clocks of the kinds PROF and VIRT, which are below 0 and
    // need a valid number (posix_cpu_clock_getres).
    if clock < 0 {
        k.cpu_clock(clock, false)?;
    } else {
        k.clock(clock)?;
    }
    let coarse = clock < 0 && clock & 3 < 2
        || matches!(clock as u64, c::CLOCK_REALTIME_COARSE | c::CLOCK_MONOTONIC_COARSE);
    if !tp.is_null() {
        k.write_obj(tp, &Timespec::from_ns(if coarse { COARSE } else { 1 }))?;
    }
    Ok(0)
}

/// gettimeofday(2).
pub fn gettimeofday(k: &mut Ctx<'_>, tv: Ptr, tz: Ptr) -> SysResult {
    let ns = k.node.realtime();
    if !tv.is_null() {
        k.write_obj(tv, &Timeval::from_ns(ns))?;
    }
    if !tz.is_null() {
        k.write_obj(tz, &[0i32; 2])?;
    }
    Ok(0)
}

/// time(2).
pub fn time(k: &mut Ctx<'_>, t: Ptr) -> SysResult {
    let secs = k.node.realtime() / 1_000_000_000;
    if !t.is_null() {
        k.write_obj(t, &secs)?;
    }
    Ok(secs)
}

/// times(2).
pub fn times(k: &mut Ctx<'_>, buf: Ptr) -> SysResult {
    let tick = |ns: u64| (ns / 10_000_000) as i64;
    let p = k.process();
    let tms = Tms {
        utime: tick(p.cpu.user()),
        stime: tick(p.cpu.system()),
        cutime: tick(p.children_cpu.user()),
        cstime: tick(p.children_cpu.system()),
    };
    if !buf.is_null() {
        k.write_obj(buf, &tms)?;
    }
    Ok(k.node.uptime() / 10_000_000)
}

/// nanosleep(2): an interruption stores the time left.
pub fn nanosleep(k: &mut Ctx<'_>, req: Ptr, rem: Ptr) -> SysResult {
    if let Some(end) = k.slept() {
        return end;
    }
    let ts: Timespec = k.read_obj(req)?;
    let ns = ts.to_ns().ok_or(Errno::EINVAL)?;
    let at = k.deadline(Some(ns)).unwrap_or(k.now());
    k.sleep(Deadline { at, wall: false }, rem, false)
}

/// clock_nanosleep(2). EOPNOTSUPP for clocks on which nobody can sleep.
pub fn clock_nanosleep(k: &mut Ctx<'_>, clock: i32, flags: TimerFlags, req: Ptr, rem: Ptr) -> SysResult {
    if let Some(end) = k.slept() {
        return end;
    }
    // A thread has timers on its CPU clock, but cannot sleep on it (no `nsleep` in clock_thread).
    if clock as u64 == c::CLOCK_THREAD_CPUTIME_ID {
        return err(Errno::EOPNOTSUPP);
    }
    // The clock is looked at first, then the time; but whose CPU clock it is comes last.
    let cpu = clock < 0 && clock & 7 != 3;
    if !cpu {
        k.timer_clock(clock, Errno::EOPNOTSUPP)?;
    }
    let ts: Timespec = k.read_obj(req)?;
    let ns = ts.to_ns().ok_or(Errno::EINVAL)?;
    // "EINVAL [...] clockid is [...] the CPU-time clock of the calling thread" (clock_nanosleep(2)).
    if cpu && clock & 4 != 0 && [0, k.tid.number()].contains(&(!(clock >> 3) as u32)) {
        return err(Errno::EINVAL);
    }
    let absolute = flags.contains(TimerFlags::TIMER_ABSTIME);
    let realtime = match k.timer_clock(clock, Errno::EOPNOTSUPP)? {
        Clock::Cpu(clock) => return k.cpu_sleep(clock, ns, rem, absolute),
        clock => clock == Clock::Realtime,
    };
    let relative = || Deadline { at: k.deadline(Some(ns)).unwrap_or(k.now()), wall: false };
    let deadline = if absolute { k.clock_deadline(ns, realtime) } else { relative() };
    k.sleep(deadline, rem, absolute)
}

/// getitimer(2).
pub fn getitimer(k: &mut Ctx<'_>, which: u32, value: Ptr) -> SysResult {
    let shown = match u64::from(which) {
        c::ITIMER_REAL => k.itimer(),
        c::ITIMER_VIRTUAL => k.cpu_itimer(0),
        c::ITIMER_PROF => k.cpu_itimer(1),
        _ => return err(Errno::EINVAL),
    };
    k.write_obj(value, &shown)?;
    Ok(0)
}

impl Ctx<'_> {
    fn itimer(&self) -> Itimerval {
        let now = self.now();
        match self.process().itimer {
            None => Itimerval::default(),
            Some((at, interval)) => Itimerval {
                interval: Timeval::from_ns(interval),
                value: Timeval::from_ns(at.since(now).max(1000)),
            },
        }
    }

    /// ITIMER_VIRTUAL (0) or ITIMER_PROF (1).
    fn cpu_itimer(&self, timer: usize) -> Itimerval {
        let process = self.process();
        process.cpu_timers[timer].map_or(Itimerval::default(), |(at, interval)| Itimerval {
            interval: Timeval::from_ns(interval),
            value: Timeval::from_ns(at.saturating_sub(process.cpu_clock(timer)).max(1000)),
        })
    }

    fn set_itimer(&mut self, value: u64, interval: u64) {
        let key = TimerKey::Itimer(self.pid);
        let next = (value > 0).then(|| self.now().after(value));
        let old = std::mem::replace(&mut self.process_mut().itimer, next.map(|n| (n, interval)));
        self.node.rearm(key, old.map(|o| o.0), next);
    }
}

/// setitimer(2). Computation costs no virtual time, so timers of CPU time count what system calls and the like cost.
pub fn setitimer(k: &mut Ctx<'_>, which: u32, value: Ptr, old: Ptr) -> SysResult {
    let timer = match u64::from(which) {
        c::ITIMER_REAL => None,
        c::ITIMER_VIRTUAL => Some(0),
        c::ITIMER_PROF => Some(1),
        _ => return err(Errno::EINVAL),
    };
    let new: Itimerval = if value.is_null() { Itimerval::default() } else { k.read_obj(value)? };
    let (ns, interval) =
        (new.value.to_ns().ok_or(Errno::EINVAL)?, new.interval.to_ns().ok_or(Errno::EINVAL)?);
    let shown = timer.map_or_else(|| k.itimer(), |timer| k.cpu_itimer(timer));
    if !old.is_null() {
        k.write_obj(old, &shown)?;
    }
    match timer {
        None => k.set_itimer(ns, interval),
        Some(timer) => {
            let process = k.process_mut();
            let at = process.cpu_clock(timer).saturating_add(ns);
            process.cpu_timers[timer] = (ns > 0).then_some((at, interval));
        }
    }
    Ok(0)
}

/// alarm(2): returns the seconds that the alarm before had left, rounded up.
pub fn alarm(k: &mut Ctx<'_>, seconds: u32) -> SysResult {
    let now = k.now();
    let left = k.process().itimer.map_or(0, |(at, _)| at.since(now).div_ceil(1_000_000_000));
    k.set_itimer(u64::from(seconds) * 1_000_000_000, 0);
    Ok(left)
}

/// timer_create(2). EINVAL for unknown clocks and ways to notify; EAGAIN beyond RLIMIT_SIGPENDING: "each POSIX timer [...] counts
/// against this limit as well", as its signal is allocated with it.
pub fn timer_create(k: &mut Ctx<'_>, clock: u32, event: Ptr, id: Ptr) -> SysResult {
    let clock = clock as i32;
    let clock = k.timer_clock(clock, Errno::EOPNOTSUPP)?;
    // struct sigevent: value, signo, notify, thread id. NULL means SIGALRM with the timer's id as value.
    let next = k.process().next_timer;
    let (mut signo, mut value, mut thread) = (c::SIGALRM as u32, next as u64, None);
    if !event.is_null() {
        value = k.read_obj(event)?;
        let [sig, notify, tid]: [i32; 3] = k.read_obj(Ptr(event.0 + 8))?;
        match notify {
            // SIGEV_SIGNAL; SIGEV_THREAD, which is the C library's and a signal to the kernel (good_sigevent); SIGEV_THREAD_ID
            0 | 2 | 4 => {
                if !(1..=64).contains(&sig) {
                    return err(Errno::EINVAL);
                }
                signo = sig as u32;
                if notify == 4 {
                    let tid = k.pid_ns().tid(tid as u32);
                    if k.node.tasks.get(&tid).is_none_or(|t| t.pid != k.pid) {
                        return err(Errno::EINVAL);
                    }
                    thread = Some(tid);
                }
            }
            // SIGEV_NONE
            1 => signo = 0,
            _ => return err(Errno::EINVAL),
        }
    }
    // Each timer has its signal allocated before it is needed.
    if !k.node.may_queue(k.pid) {
        return err(Errno::EAGAIN);
    }
    k.write_obj(id, &next)?;
    let process = k.process_mut();
    process.timers.insert(next, PosixTimer::new(clock, signo, value, thread));
    while process.timers.contains_key(&process.next_timer) {
        process.next_timer = process.next_timer.checked_add(1).unwrap_or(0);
    }
    Ok(0)
}

/// timer_settime(2).
pub fn timer_settime(k: &mut Ctx<'_>, id: i32, flags: TimerFlags, value: Ptr, old: Ptr) -> SysResult {
    if value.is_null() {
        return err(Errno::EINVAL);
    }
    let spec: Itimerspec = k.read_obj(value)?;
    let timer = k.process().timers.get(&id).ok_or(Errno::EINVAL)?;
    let (clock, before, queued) = (timer.clock, timer.armed(), timer.signo != 0);
    let shown = timer.show(k.node.timer_time(clock));
    let mut new = k.schedule(&spec, flags.contains(TimerFlags::TIMER_ABSTIME), clock)?;
    if new.next.is_none() && !matches!(clock, Clock::Cpu(_)) {
        // "Switch off the timer when it_value is zero": the interval is not stored (common_timer_set).
        new.interval = 0;
    }
    if !old.is_null() {
        k.write_obj(old, &shown)?;
    }
    if let Some(t) = k.process_mut().timers.get_mut(&id) {
        t.set(new);
    }
    let key = TimerKey::Posix(k.pid, id);
    k.node.rearm_on(clock, key, before, new.next.filter(|_| queued));
    // One whose time has passed already fires at once.
    let (pid, tid) = (k.pid, k.tid);
    k.node.fire_cpu_alarms(pid, tid);
    Ok(0)
}

/// timer_gettime(2).
pub fn timer_gettime(k: &mut Ctx<'_>, id: i32, value: Ptr) -> SysResult {
    let timer = k.process().timers.get(&id).ok_or(Errno::EINVAL)?;
    let shown = timer.show(k.node.timer_time(timer.clock));
    k.write_obj(value, &shown)?;
    Ok(0)
}

/// timer_getoverrun(2).
pub fn timer_getoverrun(k: &mut Ctx<'_>, id: i32) -> SysResult {
    Ok(k.process().timers.get(&id).ok_or(Errno::EINVAL)?.overrun.min(i32::MAX as u64))
}

/// timer_delete(2).
pub fn timer_delete(k: &mut Ctx<'_>, id: i32) -> SysResult {
    let timer = k.process_mut().timers.remove(&id).ok_or(Errno::EINVAL)?;
    let key = TimerKey::Posix(k.pid, id);
    k.node.rearm_on(timer.clock, key, timer.armed(), None);
    Ok(0)
}

/// timerfd_create(2). EINVAL for clocks of CPU time.
pub fn timerfd_create(k: &mut Ctx<'_>, clock: u32, flags: FdFlags) -> SysResult {
    let clock = clock as i32;
    if flags.exceeds(FdFlags::O_CLOEXEC | FdFlags::O_NONBLOCK) {
        return err(Errno::EINVAL);
    }
    // No CPU clocks here, not even other processes' ones.
    if clock < 0
        || matches!(clock as u64, c::CLOCK_PROCESS_CPUTIME_ID..=c::CLOCK_MONOTONIC_COARSE | c::CLOCK_TAI)
    {
        return err(Errno::EINVAL);
    }
    let realtime = k.timer_clock(clock, Errno::EINVAL)? == Clock::Realtime;
    k.may_open()?;
    let id = k.node.timerfds.insert(TimerFd { realtime, ..TimerFd::default() });
    let file = File::new(FileKind::TimerFd(id), c::O_RDWR | flags.bits() & c::O_NONBLOCK);
    Ok(k.open_file(file, flags.contains(FdFlags::O_CLOEXEC))?)
}

fn timerfd(k: &Ctx<'_>, fd: Fd) -> SysResult<TimerFdId> {
    match k.file(fd)?.kind {
        FileKind::TimerFd(id) => Ok(id),
        _ => err(Errno::EINVAL),
    }
}

/// timerfd_settime(2): forgets expirations that were not read.
pub fn timerfd_settime(k: &mut Ctx<'_>, fd: Fd, flags: TimerFlags, value: Ptr, old: Ptr) -> SysResult {
    if flags.exceeds(TimerFlags::TIMER_ABSTIME | TimerFlags::TFD_TIMER_CANCEL_ON_SET) {
        return err(Errno::EINVAL);
    }
    let spec: Itimerspec = k.read_obj(value)?;
    k.schedule(&spec, false, Clock::Monotonic)?;
    let id = timerfd(k, fd)?;
    // What it shows is when it would fire next.
    k.node.go_on_timerfd(id);
    let (realtime, before) = (k.node.timerfds[id].realtime, k.node.timerfds[id].schedule);
    let clock = if realtime { Clock::Realtime } else { Clock::Monotonic };
    let absolute = flags.contains(TimerFlags::TIMER_ABSTIME);
    let (new, wall) = (k.schedule(&spec, absolute, clock)?, absolute && realtime);
    let shown = before.show(k.now());
    k.node.rearm(TimerKey::TimerFd(id), before.next, new.next);
    k.node.timerfds[id].set(new, wall && flags.contains(TimerFlags::TFD_TIMER_CANCEL_ON_SET))?;
    if !old.is_null() {
        k.write_obj(old, &shown)?;
    }
    Ok(0)
}

/// timerfd_gettime(2).
pub fn timerfd_gettime(k: &mut Ctx<'_>, fd: Fd, value: Ptr) -> SysResult {
    let id = timerfd(k, fd)?;
    k.node.go_on_timerfd(id);
    let shown = k.node.timerfds[id].schedule.show(k.now());
    k.write_obj(value, &shown)?;
    Ok(0)
}
