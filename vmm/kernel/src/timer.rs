//! Armed timers: setitimer(2), timer_create(2), timerfd_create(2). All live in one ordered set of the node.

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Itimerspec, Siginfo, Timespec};
use bloodhound_abi::{Errno, SimTime};

use crate::ids::*;
use crate::node::Node;
use crate::wait::{Object, WaitOn};

/// Names an armed timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// ITIMER_REAL of a process.
    Itimer(Pid),
    /// A POSIX timer of a process.
    Posix(Pid, i32),
    /// clock_nanosleep(2) of a task on a CPU clock.
    Sleep(Tid),
    /// A timerfd.
    TimerFd(TimerFdId),
    /// The end of the second before a leap second.
    Leap,
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// The machine's own time.
    Monotonic,
    /// CLOCK_REALTIME.
    Realtime,
    /// CPU time.
    Cpu(CpuClock),
}

/// Whose CPU time: the virtual time of its system calls and of what else has a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuClock {
    /// That of all threads of a process.
    Process(Pid),
    /// That of one thread.
    Thread(Tid),
}

/// When a timer fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Next expiry, in the machine's own time or on the timer's CPU clock.
    pub next: Option<SimTime>,
    /// Period in ns, 0 for once.
    pub interval: u64,
    /// How long before the beginning of own time the next expiry was due, ns; `next` is that beginning then.
    pub before_boot: u64,
    /// Expiries are times of CLOCK_REALTIME, which they follow when that is set.
    pub wall: bool,
}

impl Schedule {
    /// What the get calls show: remaining time and interval.
    pub fn show(&self, now: SimTime) -> Itimerspec {
        // "a zero it_value means disarmed": an expiry due now still shows one nanosecond.
        let left = self.next.map_or(0, |t| t.since(now).max(1));
        Itimerspec { interval: Timespec::from_ns(self.interval), value: Timespec::from_ns(left) }
    }

    /// Counts expiries up to `now` and moves on: (expiries, next).
    fn advance(&mut self, at: SimTime, now: SimTime) -> u64 {
        if self.interval == 0 {
            self.next = None;
            return 1;
        }
        let before = std::mem::take(&mut self.before_boot);
        let count = 1 + now.since(at).saturating_add(before) / self.interval;
        self.next = Some(at.after((count * self.interval).saturating_sub(before)));
        count
    }
}

/// A timerfd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerFd {
    /// Counts CLOCK_REALTIME (or a BOOTTIME/MONOTONIC kind).
    pub realtime: bool,
    /// When it fires.
    pub schedule: Schedule,
    /// Expiries not yet read, as far as they were counted.
    pub expired: u64,
    /// It has fired and goes on when somebody reads it or asks when it fires: "timerfd_tmrproc: return HRTIMER_NORESTART". Until then `schedule` has the time at
    /// which it fired.
    pub waits: bool,
    /// It was armed with TFD_TIMER_CANCEL_ON_SET, which means something.
    pub cancel_on_set: bool,
    /// The clock was set since, and nobody has read that.
    pub cancelled: bool,
}

impl TimerFd {
    /// Whether a read finds something.
    pub fn is_ready(&self) -> bool {
        self.expired > 0 || self.cancelled
    }

    /// When it stands in the set of armed timers.
    pub(crate) fn armed(&self) -> Option<SimTime> {
        self.schedule.next.filter(|_| !self.waits)
    }

    /// It fires: whoever waits for it is told once.
    fn fire(&mut self) {
        self.expired = self.expired.saturating_add(1);
        self.waits = self.schedule.interval > 0;
        if !self.waits {
            self.schedule.next = None;
        }
    }

    /// Goes on after it has fired, and counts the expiries since (`hrtimer_forward_now`).
    fn go_on(&mut self, now: SimTime) {
        let Some(at) = self.schedule.next.filter(|_| std::mem::take(&mut self.waits)) else { return };
        self.expired = match at <= now {
            true => self.expired.saturating_add(self.schedule.advance(at, now) - 1),
            // The clock was set back since: none has passed, and the one that it has fired for comes again.
            false => self.expired.saturating_sub(1),
        };
    }

    /// timerfd_settime(2). ECANCELED if the clock was set since it was armed before, and nobody has read that; it is armed all the same
    /// (timerfd_setup).
    pub(crate) fn set(&mut self, schedule: Schedule, cancel_on_set: bool) -> Result<(), Errno> {
        (self.schedule, self.expired, self.waits, self.cancel_on_set) = (schedule, 0, false, cancel_on_set);
        if std::mem::take(&mut self.cancelled) && cancel_on_set && schedule.next.is_some() {
            return Err(Errno::ECANCELED);
        }
        Ok(())
    }

    /// The flags of timerfd_settime(2) that /proc shows, in octal digits; TFD_TIMER_ABSTIME is not kept for other timers.
    pub(crate) fn flags(&self) -> u32 {
        if self.cancel_on_set { 3 } else { 0 }
    }
}

/// A POSIX timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixTimer {
    /// What it counts.
    pub clock: Clock,
    /// Signal, or 0 for SIGEV_NONE.
    pub signo: u32,
    /// sigev_value.
    pub value: u64,
    /// SIGEV_THREAD_ID's thread.
    pub thread: Option<Tid>,
    /// When it fires, or fired if it waits.
    pub schedule: Schedule,
    /// It has fired and goes on when its signal is taken: "only a single signal is queued to the process for a given timer at any
    /// point in time" (timer_getoverrun(2)).
    pub waits: bool,
    /// Number of the arming that its signal belongs to (it_requeue_pending): signals of others do not let it go on.
    pub arming: u64,
    /// Expiries since a signal was taken that nobody was told of.
    pub missed: u64,
    /// Overrun count of the last signal that was taken.
    pub overrun: u64,
}

impl PosixTimer {
    /// One that is not armed. `signo` is 0 for SIGEV_NONE, `value` is sigev_value.
    pub(crate) fn new(clock: Clock, signo: u32, value: u64, thread: Option<Tid>) -> PosixTimer {
        let schedule = Schedule::default();
        PosixTimer { clock, signo, value, thread, schedule, waits: false, arming: 0, missed: 0, overrun: 0 }
    }

    /// Gives it another schedule.
    pub(crate) fn set(&mut self, schedule: Schedule) {
        self.schedule = schedule;
        self.waits = false;
        self.arming += 1;
        self.overrun = 0;
    }

    /// Its place among the armed timers: one without a signal is never queued (common_timer_get: "SIGEV_NONE oneshot timers are
    /// never queued").
    pub(crate) fn armed(&self) -> Option<SimTime> {
        self.schedule.next.filter(|_| self.signo != 0 && !self.waits)
    }

    /// What timer_gettime(2) shows at `now` on its clock.
    pub(crate) fn show(&self, now: SimTime) -> Itimerspec {
        let mut schedule = self.schedule;
        if let Some(at) = schedule.next
            && (self.signo == 0 || self.waits)
            && at <= now
        {
            schedule.advance(at, now);
        }
        schedule.show(now)
    }
}

impl Node {
    /// Replaces the schedule of a timer in the ordered set.
    pub(crate) fn rearm(&mut self, key: TimerKey, old: Option<SimTime>, new: Option<SimTime>) {
        if let Some(at) = old {
            self.timers.remove(&(at, key));
        }
        if let Some(at) = new {
            self.timers.insert((at, key));
        }
    }

    /// The CPU time of a process or thread; `None` if it is gone.
    pub(crate) fn cpu_time(&self, clock: CpuClock) -> Option<SimTime> {
        Some(SimTime(match clock {
            CpuClock::Process(pid) => self.processes.get(&pid)?.cpu.total,
            CpuClock::Thread(tid) => self.tasks.get(&tid)?.cpu.total,
        }))
    }

    /// The time on a timer's clock, as its schedule counts: a CPU clock of one that is gone stands still.
    pub(crate) fn timer_time(&self, clock: Clock) -> SimTime {
        match clock {
            Clock::Cpu(cpu) => self.cpu_time(cpu).unwrap_or(SimTime::ZERO),
            Clock::Monotonic | Clock::Realtime => self.own_time(),
        }
    }

    /// Replaces the schedule of a timer on some clock.
    pub(crate) fn rearm_on(
        &mut self,
        clock: Clock,
        key: TimerKey,
        old: Option<SimTime>,
        new: Option<SimTime>,
    ) {
        let Clock::Cpu(cpu) = clock else { return self.rearm(key, old, new) };
        let alarms = self.cpu_alarms.get_or_default(cpu);
        if let Some(at) = old {
            alarms.remove(&(at, key));
        }
        if let Some(at) = new {
            alarms.insert((at, key));
        }
        if alarms.is_empty() {
            self.cpu_alarms.remove(&cpu);
        }
    }

    /// Deletes all POSIX timers of a process.
    pub(crate) fn delete_timers(&mut self, pid: Pid) {
        for (id, timer) in std::mem::take(&mut self.process_mut(pid).timers) {
            self.rearm_on(timer.clock, TimerKey::Posix(pid, id), timer.armed(), None);
        }
    }

    /// Fires the timers on CPU clocks that are due, after a thread has used CPU time.
    #[cold]
    pub(crate) fn fire_cpu_alarms(&mut self, pid: Pid, tid: Tid) {
        for clock in [CpuClock::Process(pid), CpuClock::Thread(tid)] {
            let Some(now) = self.cpu_time(clock) else { continue };
            while let Some((at, key)) = self.cpu_alarms.get(&clock).and_then(|set| set.first()).copied()
                && at <= now
            {
                self.rearm_on(Clock::Cpu(clock), key, Some(at), None);
                match key {
                    TimerKey::Sleep(_) => self.notify(WaitOn::CpuTime(clock, at)),
                    key => self.fire_timer(key, at),
                }
            }
        }
    }

    /// How much longer a task may compute until something comes of it: a timer on its CPU clocks, or RLIMIT_CPU.
    pub fn cpu_time_left(&self, tid: Tid) -> Option<u64> {
        let task = self.tasks.get(&tid)?;
        let process = self.processes.get(&task.pid)?;
        let used = process.cpu.total;
        let alarm = |clock, now: u64| {
            let (at, _) = self.cpu_alarms.get(&clock)?.first()?;
            Some(at.0.saturating_sub(now))
        };
        let alarms = [alarm(CpuClock::Process(task.pid), used), alarm(CpuClock::Thread(tid), task.cpu.total)];
        let timers = process.cpu_timers.iter().enumerate().map(|(timer, set)| {
            let (at, _) = (*set)?;
            Some(at.saturating_sub(process.cpu_clock(timer)))
        });
        let limit = process.limits[c::RLIMIT_CPU as usize].cur;
        let limit = (limit != u64::MAX).then(|| limit.saturating_mul(1_000_000_000).saturating_sub(used));
        timers.chain(alarms).chain([limit]).flatten().min()
    }

    /// A call of a task does not wait any more; if it was for a CPU clock, how long it had to.
    pub(crate) fn forget_cpu_sleep(&mut self, tid: Tid, on: Option<&WaitOn>) -> Option<(SimTime, u64)> {
        let Some(WaitOn::CpuTime(clock, at)) = on else { return None };
        self.rearm_on(Clock::Cpu(*clock), TimerKey::Sleep(tid), Some(*at), None);
        Some((*at, at.since(self.timer_time(Clock::Cpu(*clock)))))
    }

    /// A process has used more CPU time than RLIMIT_CPU allows: "it is sent a SIGXCPU signal [...] once per second until the hard limit
    /// is reached, at which time it is sent SIGKILL" (getrlimit(2)).
    #[cold]
    pub(crate) fn cpu_limit_reached(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let seconds = process.cpu.total / 1_000_000_000;
        let limit = &mut process.limits[c::RLIMIT_CPU as usize];
        let signo = if seconds >= limit.max { c::SIGKILL } else { c::SIGXCPU };
        limit.cur = seconds + 1;
        let info = Siginfo { signo: signo as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
        self.send_process(pid, info);
    }

    /// Lets a timerfd that has fired go on.
    pub(crate) fn go_on_timerfd(&mut self, id: TimerFdId) {
        let (now, timer) = (self.own_time(), &mut self.timerfds[id]);
        let before = timer.armed();
        timer.go_on(now);
        let after = timer.armed();
        if before != after {
            self.rearm(TimerKey::TimerFd(id), before, after);
        }
    }

    /// A timer is due; its entry has been taken from the set.
    pub(crate) fn fire_timer(&mut self, key: TimerKey, at: SimTime) {
        let now = self.own_time();
        match key {
            TimerKey::Itimer(pid) => {
                let Some(process) = self.processes.get_mut(&pid) else { return };
                let Some((_, interval)) = process.itimer else { return };
                let mut schedule = Schedule { next: Some(at), interval, ..Schedule::default() };
                schedule.advance(at, now);
                process.itimer = schedule.next.map(|n| (n, interval));
                self.rearm(key, None, schedule.next);
                let info =
                    Siginfo { signo: c::SIGALRM as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
                self.send_process(pid, info);
            }
            TimerKey::TimerFd(id) => {
                let Some(timer) = self.timerfds.get_mut(id) else { return };
                timer.fire();
                self.notify_object(Object::TimerFd(id), c::EPOLLIN as u32);
            }
            TimerKey::Posix(pid, id) => self.fire_posix(pid, id, at),
            TimerKey::Leap => self.leap(at),
            TimerKey::Sleep(_) => unreachable!("only CPU clocks have sleepers among their timers"),
        }
    }

    /// Fires the timers of a process's CPU time that are due.
    #[cold]
    pub(crate) fn fire_cpu_timers(&mut self, pid: Pid) {
        for (timer, signal) in [c::SIGVTALRM, c::SIGPROF].into_iter().enumerate() {
            let Some(process) = self.processes.get_mut(&pid) else { return };
            let now = process.cpu_clock(timer);
            let Some((at, interval)) = process.cpu_timers[timer].filter(|(at, _)| *at <= now) else {
                continue;
            };
            let next =
                |interval: u64| at.saturating_add((1 + (now - at) / interval).saturating_mul(interval));
            process.cpu_timers[timer] = (interval > 0).then(|| (next(interval), interval));
            let info = Siginfo { signo: signal as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
            self.send_process(pid, info);
        }
    }

    /// A POSIX timer expires: its signal is queued, or counted if it is queued already (posix_timer_fn, send_sigqueue).
    fn fire_posix(&mut self, pid: Pid, id: i32, at: SimTime) {
        let Some(clock) = self.processes.get(&pid).and_then(|p| p.timers.get(&id)).map(|t| t.clock) else {
            return;
        };
        let Some(timer) = self.processes.get_mut(&pid).and_then(|p| p.timers.get_mut(&id)) else { return };
        let (signo, value, thread) = (timer.signo, timer.value, timer.thread);
        if timer.schedule.interval == 0 {
            timer.schedule.next = None;
        } else {
            (timer.schedule.next, timer.waits) = (Some(at), true);
            timer.arming += 1;
        }
        // si_sys_private: 0 for one that does not go on.
        let arming = if timer.waits { timer.arming } else { 0 };
        if let Some(info) = self.timer_signal(pid, thread, signo, id) {
            info.fields[0] += 1 << 32;
            info.fields[2] = arming;
            return;
        }
        let mut info = Siginfo { signo: signo as i32, code: c::SI_TIMER as i32, ..Siginfo::default() };
        (info.fields[0], info.fields[1], info.fields[2]) = (u64::from(id as u32), value, arming);
        match thread {
            // "If we failed to send the signal the timer stops" (posix_timer_event).
            Some(tid) if !self.tasks.contains_key(&tid) => return,
            Some(tid) => self.send_task(tid, info),
            None => self.send_process(pid, info),
        }
        if arming == 0 || self.timer_signal(pid, thread, signo, id).is_some() {
            return;
        }
        // Ignored: the timer goes on without anybody who takes its signal.
        let now = self.timer_time(clock);
        let Some(timer) = self.processes.get_mut(&pid).and_then(|p| p.timers.get_mut(&id)) else { return };
        timer.waits = false;
        timer.missed += timer.schedule.advance(at, now);
        let next = timer.schedule.next;
        self.rearm_on(clock, TimerKey::Posix(pid, id), None, next);
    }

    /// The queued signal of a timer.
    fn timer_signal(&mut self, pid: Pid, thread: Option<Tid>, signo: u32, id: i32) -> Option<&mut Siginfo> {
        let pending = match thread {
            Some(tid) => &mut self.tasks.get_mut(&tid)?.pending,
            None => &mut self.processes.get_mut(&pid)?.pending,
        };
        pending.timer_mut(signo, id)
    }

    /// A timer's signal is taken from its queue: the timer goes on from now, and the signal says how often it has expired since
    /// (posixtimer_rearm).
    pub(crate) fn timer_signal_taken(&mut self, pid: Pid, info: &mut Siginfo) {
        let (id, queued) = (info.fields[0] as i32, info.fields[0] >> 32);
        // "Don't expose the si_sys_private value to userspace" (dequeue_signal).
        let arming = std::mem::take(&mut info.fields[2]);
        let Some(timer) = self.process(pid).timers.get(&id) else { return };
        let (clock, Some(at)) = (timer.clock, timer.schedule.next) else { return };
        if !timer.waits || timer.arming != arming {
            return;
        }
        let now = self.timer_time(clock);
        let Some(timer) = self.process_mut(pid).timers.get_mut(&id) else { return };
        timer.waits = false;
        // The first expiry is the signal itself.
        timer.overrun = std::mem::take(&mut timer.missed) + timer.schedule.advance(at, now) - 1;
        let (next, overrun) = (timer.schedule.next, timer.overrun);
        // "clamped to DELAYTIMER_MAX", which is INT_MAX.
        let shown = (overrun + queued).min(i32::MAX as u64);
        info.fields[0] = u64::from(id as u32) | (shown << 32);
        self.rearm_on(clock, TimerKey::Posix(pid, id), None, next);
    }
}
