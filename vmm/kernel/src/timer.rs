//! Armed timers: setitimer(2), timer_create(2), timerfd_create(2). All live in one ordered set of the node.

use bloodhound_abi::SimTime;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Itimerspec, Siginfo, Timespec};

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
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// The node's clock.
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
    /// Next expiry, on the node's clock or the timer's CPU clock.
    pub next: Option<SimTime>,
    /// Period in ns, 0 for once.
    pub interval: u64,
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
        let count = 1 + now.since(at) / self.interval;
        self.next = Some(at.after(count * self.interval));
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
    /// Expiries not yet read.
    pub expired: u64,
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
    /// When it fires.
    pub schedule: Schedule,
    /// Overrun count of the last signal.
    pub overrun: u64,
}

impl PosixTimer {
    /// Its place among the armed timers: one without a signal is never queued (common_timer_get: "SIGEV_NONE oneshot timers are
    /// never queued").
    pub(crate) fn armed(&self) -> Option<SimTime> {
        self.schedule.next.filter(|_| self.signo != 0)
    }

    /// What timer_gettime(2) shows at `now` on its clock.
    pub(crate) fn show(&self, now: SimTime) -> Itimerspec {
        let mut schedule = self.schedule;
        if let Some(at) = schedule.next
            && self.signo == 0
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
            CpuClock::Process(pid) => self.processes.get(&pid)?.cpu_ns,
            CpuClock::Thread(tid) => self.tasks.get(&tid)?.cpu_ns,
        }))
    }

    /// The time on a timer's clock, as its schedule counts: a CPU clock of one that is gone stands still.
    pub(crate) fn timer_time(&self, clock: Clock) -> SimTime {
        match clock {
            Clock::Cpu(cpu) => self.cpu_time(cpu).unwrap_or(SimTime::ZERO),
            Clock::Monotonic | Clock::Realtime => self.clock,
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
        let seconds = process.cpu_ns / 1_000_000_000;
        let limit = &mut process.limits[c::RLIMIT_CPU as usize];
        let signo = if seconds >= limit.max { c::SIGKILL } else { c::SIGXCPU };
        limit.cur = seconds + 1;
        let info = Siginfo { signo: signo as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
        self.send_process(pid, info);
    }

    /// A timer is due; its entry has been taken from the set.
    pub(crate) fn fire_timer(&mut self, key: TimerKey, at: SimTime) {
        let now = self.clock;
        match key {
            TimerKey::Itimer(pid) => {
                let Some(process) = self.processes.get_mut(&pid) else { return };
                let Some((_, interval)) = process.itimer else { return };
                let mut schedule = Schedule { next: Some(at), interval };
                schedule.advance(at, now);
                process.itimer = schedule.next.map(|n| (n, interval));
                self.rearm(key, None, schedule.next);
                let info =
                    Siginfo { signo: c::SIGALRM as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
                self.send_process(pid, info);
            }
            TimerKey::TimerFd(id) => {
                let Some(timer) = self.timerfds.get_mut(id) else { return };
                timer.expired += timer.schedule.advance(at, now);
                let next = timer.schedule.next;
                self.rearm(key, None, next);
                self.notify_object(Object::TimerFd(id), c::EPOLLIN as u32);
            }
            TimerKey::Posix(pid, id) => self.fire_posix(pid, id, at),
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
            let next = |interval: u64| at + (1 + (now - at) / interval) * interval;
            process.cpu_timers[timer] = (interval > 0).then(|| (next(interval), interval));
            let info = Siginfo { signo: signal as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
            self.send_process(pid, info);
        }
    }

    fn fire_posix(&mut self, pid: Pid, id: i32, at: SimTime) {
        let Some(clock) = self.processes.get(&pid).and_then(|p| p.timers.get(&id)).map(|t| t.clock) else {
            return;
        };
        let now = self.timer_time(clock);
        let Some(timer) = self.processes.get_mut(&pid).and_then(|p| p.timers.get_mut(&id)) else { return };
        timer.overrun = timer.schedule.advance(at, now) - 1;
        let (next, signo, value, thread, overrun) =
            (timer.schedule.next, timer.signo, timer.value, timer.thread, timer.overrun);
        self.rearm_on(clock, TimerKey::Posix(pid, id), None, next);
        let mut info = Siginfo { signo: signo as i32, code: c::SI_TIMER as i32, ..Siginfo::default() };
        info.fields[0] = id as u32 as u64 | (overrun << 32);
        info.fields[1] = value;
        match thread {
            Some(tid) => self.send_task(tid, info),
            None => self.send_process(pid, info),
        }
    }
}
