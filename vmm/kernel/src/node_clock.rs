//! The clocks of a machine: what it reads at a time of the simulation ([`NodeClock`]), and what follows when its wall clock is set
//! ([`Node::step_wall_clock`]).
//!
//! Virtual time is that of the world, and true. A machine counts it with an oscillator that may be fast or slow: the *own time* of a
//! machine, a [`SimTime`] as well. Its deadlines, timers and file times are in own time, as are CLOCK_MONOTONIC, CLOCK_BOOTTIME and
//! the time-stamp counter, which are own time and a constant that changes when the machine is booted again. Packets, lookahead and all else that machines have in common are in
//! virtual time. CLOCK_REALTIME is own time and an offset. Who sets it changes the offset, so no other clock moves: CLOCK_MONOTONIC "is
//! not affected by discontinuous jumps in the system time" (clock_gettime(2)).
//!
//! Neighbours: `timer` and `wait` (deadlines), `vdso` (reads without a trap), `sys::time` and `sys::clock_set` (the calls).

use bloodhound_abi::SimTime;
use bloodhound_abi::consts as c;

use crate::ids::*;
use crate::node::{Node, UPTIME};
use crate::task::TaskState;
use crate::timer::{Schedule, TimerKey};
use crate::wait::Object;

/// One, in parts per billion.
const WHOLE: i128 = 1_000_000_000;
/// A rate is less than this fast or slow, parts per billion.
pub const MAX_RATE: i64 = 900_000_000;
/// A second, ns.
const SECOND: u64 = 1_000_000_000;
/// The last time that a wall clock may show: 30 years before 64 bits of nanoseconds end (`timespec64_valid_settod` of Linux).
const END: i64 = (i64::MAX / 1_000_000_000 - 30 * 365 * 24 * 3600) * 1_000_000_000;
/// What CLOCK_MONOTONIC shows when a machine has power again, ns: as long as a server takes from its kernel's first tick to its services.
const BOOTED: i64 = 10_000_000_000;
/// How many changes are remembered, for the times of packets that came before them.
const PAST: usize = 8;

/// How the clocks go from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// The virtual time at which it begins.
    since: SimTime,
    /// Own time then.
    own: SimTime,
    /// How much faster own time goes than virtual time, parts per billion.
    rate: i64,
    /// CLOCK_REALTIME minus own time, ns.
    offset: i64,
}

impl Line {
    /// Own time at a virtual time; the line is continued to before its beginning.
    fn own(&self, at: SimTime) -> SimTime {
        if self.rate == 0 {
            return if at >= self.since {
                self.own.after(at.since(self.since))
            } else {
                SimTime(self.own.0.saturating_sub(self.since.since(at)))
            };
        }
        let passed = i128::from(at.0) - i128::from(self.since.0);
        clamp(i128::from(self.own.0) + (passed * (WHOLE + i128::from(self.rate))).div_euclid(WHOLE))
    }
}

fn clamp(time: i128) -> SimTime {
    SimTime(u64::try_from(time.max(0)).unwrap_or(u64::MAX))
}

/// What a leap second has to do with a clock (adjtimex(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leap {
    /// Nothing.
    #[default]
    None,
    /// One will be inserted at this own time (TIME_INS).
    Ahead(SimTime),
    /// It was inserted at this own time (TIME_OOP for a second, then TIME_WAIT).
    Inserted(SimTime),
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClock {
    line: Line,
    /// What held before, the latest last.
    past: Vec<Line>,
    /// CLOCK_MONOTONIC minus own time, ns.
    boot: i64,
    /// CLOCK_TAI minus CLOCK_REALTIME, s.
    tai: i32,
    /// A leap second.
    pub leap: Leap,
    /// Somebody set CLOCK_REALTIME, and nobody said since that it is right (STA_UNSYNC).
    pub unsynchronized: bool,
    /// What adjtimex(2) tells, and nothing here goes by: the greatest and the estimated error, us, and the time constant.
    pub told: [u64; 3],
}

impl NodeClock {
    /// A clock that is right but for what it shows at virtual time 0, ns since 1970.
    pub fn new(epoch_ns: u64) -> NodeClock {
        let offset = i64::try_from(epoch_ns).unwrap_or(i64::MAX).min(END);
        let line = Line { since: SimTime::ZERO, own: SimTime::ZERO, rate: 0, offset };
        NodeClock {
            line,
            past: Vec::new(),
            boot: UPTIME as i64,
            tai: 0,
            leap: Leap::None,
            unsynchronized: false,
            told: [1_000, 100, 7],
        }
    }

    /// Own time at a virtual time.
    pub fn own(&self, at: SimTime) -> SimTime {
        self.line.own(at)
    }

    /// The first virtual time at which own time has come that far.
    pub fn reaches(&self, own: SimTime) -> SimTime {
        let Line { since, own: begin, rate, .. } = self.line;
        if own <= begin {
            return since;
        }
        let left = own.since(begin);
        if rate == 0 {
            return since.after(left);
        }
        let speed = WHOLE + i128::from(rate);
        clamp(i128::from(since.0) + (i128::from(left) * WHOLE + speed - 1) / speed)
    }

    /// CLOCK_REALTIME minus own time, ns.
    pub fn offset(&self) -> u64 {
        self.line.offset.max(0) as u64
    }

    /// CLOCK_MONOTONIC minus own time, ns.
    pub fn boot(&self) -> i64 {
        self.boot
    }

    /// The machine is booted again: "CLOCK_MONOTONIC [...] represents [...] the number of seconds that the system has been running since
    /// it was booted" (clock_gettime(2)). A battery keeps CLOCK_REALTIME going.
    pub fn reboot(&mut self, at: SimTime) {
        self.boot = BOOTED.saturating_sub_unsigned(self.own(at).0);
    }

    /// CLOCK_TAI minus CLOCK_REALTIME, s.
    pub fn tai(&self) -> i32 {
        self.tai
    }

    /// Sets what CLOCK_TAI is ahead of CLOCK_REALTIME (ADJ_TAI).
    pub fn set_tai(&mut self, seconds: i32) {
        self.tai = seconds;
    }

    /// How much faster own time goes than virtual time, parts per billion.
    pub fn rate(&self) -> i64 {
        self.line.rate
    }

    /// CLOCK_REALTIME at a virtual time, ns since 1970: as it was then.
    pub fn realtime(&self, at: SimTime) -> u64 {
        let then = || self.past.iter().rev().find(|line| line.since <= at).or(self.past.first());
        let line = if at >= self.line.since { &self.line } else { then().unwrap_or(&self.line) };
        line.own(at).0.saturating_add_signed(line.offset)
    }

    fn change(&mut self, at: SimTime, rate: i64, offset: i64) {
        let own = self.own(at);
        let line = Line { since: at, own, rate, offset };
        let before = std::mem::replace(&mut self.line, line);
        if self.past.len() == PAST {
            self.past.remove(0);
        }
        self.past.push(before);
    }

    /// From `at` on own time is so much faster than virtual time, parts per billion.
    pub fn set_rate(&mut self, at: SimTime, rate: i64) {
        self.change(at, rate.clamp(-MAX_RATE, MAX_RATE), self.line.offset);
    }

    /// By how much own time is ahead of virtual time, ns.
    pub fn ahead(&self, at: SimTime) -> i64 {
        let ahead = i128::from(self.own(at).0) - i128::from(at.0);
        ahead.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// CLOCK_REALTIME goes forward or back at once, by `by` ns or what of it is possible: "EINVAL [...] attempted to set the time to a
    /// value less than the current value of the CLOCK_MONOTONIC clock" (clock_settime(2)). Returns by how much it went.
    pub fn step(&mut self, at: SimTime, by: i64) -> i64 {
        let before = self.line.offset;
        let own = i64::try_from(self.own(at).0).unwrap_or(i64::MAX);
        let (least, most) = (self.boot.min(before), END.saturating_sub(own).max(before));
        let offset = before.saturating_add(by).clamp(least, most);
        if offset != before {
            self.change(at, self.line.rate, offset);
        }
        offset - before
    }
}

impl Node {
    /// The machine's own time.
    pub fn own_time(&self) -> SimTime {
        self.time.own(self.clock)
    }

    /// CLOCK_MONOTONIC, ns since the machine was booted.
    pub fn uptime(&self) -> u64 {
        self.own_time().0.saturating_add_signed(self.time.boot())
    }

    /// CLOCK_REALTIME, ns since 1970.
    pub fn realtime(&self) -> u64 {
        self.time.realtime(self.clock)
    }

    /// CLOCK_TAI, ns.
    pub fn tai(&self) -> u64 {
        self.realtime().saturating_add_signed(i64::from(self.time.tai()) * SECOND as i64)
    }

    /// CLOCK_REALTIME at a virtual time, as it was then.
    pub fn realtime_at(&self, at: SimTime) -> u64 {
        self.time.realtime(at)
    }

    /// From now on the machine's oscillator is so much too fast, parts per billion. Deadlines are in own time, so they need no change.
    pub fn set_clock_rate(&mut self, rate: i64) {
        self.time.set_rate(self.clock, rate);
    }

    /// CLOCK_REALTIME goes forward or back at once. Deadlines that are times of that clock follow: "if the CLOCK_REALTIME clock is set
    /// by clock_settime(2), the new value of the clock shall be used to determine the time of expiration for absolute time services
    /// based upon the CLOCK_REALTIME clock. [...] Setting the value of the CLOCK_REALTIME clock [...] shall have no effect on threads
    /// that are blocked waiting for a relative time service" (clock_settime(2), POSIX). Returns by how much it went, ns.
    pub fn step_wall_clock(&mut self, by: i64) -> i64 {
        let by = self.time.step(self.clock, by);
        if by == 0 {
            return 0;
        }
        self.vfs.set_epoch(self.time.offset());
        self.shift_sleepers(by);
        self.shift_timers(by);
        self.cancel_timerfds();
        by
    }

    fn shift_sleepers(&mut self, by: i64) {
        let tids: Vec<Tid> = self.tasks.values().map(|task| task.tid).collect();
        for tid in tids {
            let Some(task) = self.tasks.get_mut(&tid) else { continue };
            let (blocked, sleeps) = match (&mut task.state, &mut task.woken) {
                (TaskState::Blocked(blocked), _) => (blocked, true),
                (_, Some(woken)) => (&mut woken.blocked, false),
                _ => continue,
            };
            let Some(old) = blocked.wait.deadline.filter(|_| blocked.wait.wall) else { continue };
            let new = clamp(i128::from(old.0) - i128::from(by));
            blocked.wait.deadline = Some(new);
            if sleeps && self.sleepers.remove(&(old, tid)) {
                self.sleepers.insert((new, tid));
            }
        }
    }

    fn shift_timers(&mut self, by: i64) {
        let mut moved = Vec::new();
        for (id, timer) in self.timerfds.iter_mut() {
            let old = timer.armed();
            if timer.schedule.shift(by).is_some() {
                moved.push((TimerKey::TimerFd(id), old, timer.armed()));
            }
        }
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            for (id, timer) in process.timers.iter_mut() {
                let old = timer.armed();
                if timer.schedule.shift(by).is_some() {
                    moved.push((TimerKey::Posix(pid, *id), old, timer.armed()));
                }
            }
        }
        for (key, old, new) in moved {
            self.rearm(key, old, new);
        }
    }

    /// `timerfd_clock_was_set`: who asked for it learns that the clock "undergoes a discontinuous change" (timerfd_create(2)).
    fn cancel_timerfds(&mut self) {
        let asked = self.timerfds.iter_mut().filter(|(_, timer)| timer.cancel_on_set);
        let asked: Vec<TimerFdId> = asked
            .map(|(id, timer)| {
                timer.cancelled = true;
                id
            })
            .collect();
        for id in asked {
            self.notify_object(Object::TimerFd(id), c::EPOLLIN as u32);
        }
    }

    /// A leap second is to be inserted at the end of the second that CLOCK_REALTIME shows now, as if a day of UTC ended there.
    pub fn insert_leap_second(&mut self) {
        let now = self.own_time();
        let at = now.after(SECOND - self.realtime() % SECOND);
        self.arm_leap(Some(at));
    }

    /// A leap second is to be inserted at an own time, or none.
    pub(crate) fn arm_leap(&mut self, after: Option<SimTime>) {
        let before = match self.time.leap {
            Leap::Ahead(before) => Some(before),
            _ => None,
        };
        self.time.leap = after.map_or(Leap::None, Leap::Ahead);
        self.rearm(TimerKey::Leap, before, after);
    }

    /// The second is over at whose end a leap second is inserted: CLOCK_REALTIME shows it once more, CLOCK_TAI goes on (`second_overflow`:
    /// "Clock: inserting leap second 23:59:60 UTC").
    pub(crate) fn leap(&mut self, at: SimTime) {
        self.time.leap = Leap::Inserted(at);
        let by = self.step_wall_clock(-(SECOND as i64));
        self.time.set_tai(self.time.tai() - (by / SECOND as i64) as i32);
    }
}

impl Schedule {
    /// Follows a wall clock that went by `by` ns, if it is for times of that; what `next` was.
    fn shift(&mut self, by: i64) -> Option<SimTime> {
        let old = self.next.filter(|_| self.wall)?;
        let new = i128::from(old.0) - i128::from(self.before_boot) - i128::from(by);
        self.next = Some(clamp(new));
        self.before_boot = clamp(-new).0;
        Some(old)
    }
}

#[cfg(test)]
mod tests;
