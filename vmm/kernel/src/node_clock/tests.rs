//! The arithmetic of clocks, and what their faults and the calls that set them do to sleeping tasks and timers.

use bloodhound_abi::Errno;
use bloodhound_abi::structs::{Itimerspec, Timespec};
use bloodhound_abi::table::nr;
use bloodhound_decisions::Dice;
use zerocopy::IntoBytes;

use super::*;
use crate::caps::{CAP_SYS_TIME, OF_A_MACHINE};
use crate::dispatch::Outcome;
use crate::node::Node;
use crate::testing::Bench;

const SEC: u64 = 1_000_000_000;
const EPOCH: u64 = 1_700_000_000 * SEC;
/// TIMER_ABSTIME, and with it TFD_TIMER_CANCEL_ON_SET.
const ABSOLUTE: u64 = 1;
const CANCEL: u64 = 3;

#[test]
fn no_extreme_overflows() {
    let times = [0, 1, SEC, u64::MAX / 2, u64::MAX - 1, u64::MAX].map(SimTime);
    for epoch in [0, 1, EPOCH, i64::MAX as u64, u64::MAX] {
        for rate in [i64::MIN, -MAX_RATE, -1, 0, 1, MAX_RATE, i64::MAX] {
            for at in times {
                let mut clock = NodeClock::new(epoch);
                clock.set_rate(at, rate);
                for by in [i64::MIN, -1, 0, 1, i64::MAX] {
                    clock.step(at, by);
                    for then in times {
                        let _any =
                            (clock.own(then), clock.reaches(then), clock.realtime(then), clock.ahead(then));
                    }
                }
                clock.set_rate(SimTime::MAX, 0);
            }
        }
    }
}

/// The first time at which own time has come so far, neither earlier nor later.
#[test]
fn a_deadline_is_reached_when_own_time_is() {
    let mut dice = Dice::new(5);
    for _ in 0..20_000 {
        let mut clock = NodeClock::new(EPOCH);
        clock.set_rate(SimTime(dice.below(SEC)), dice.below(2 * MAX_RATE as u64) as i64 - MAX_RATE);
        let own = SimTime(2 * SEC + dice.below(1000 * SEC));
        let at = clock.reaches(own);
        assert!(clock.own(at) >= own && clock.own(SimTime(at.0 - 1)) < own, "{clock:?} {own} {at}");
    }
}

#[test]
fn only_the_wall_clock_goes_back() {
    let mut dice = Dice::new(7);
    let mut clock = NodeClock::new(EPOCH);
    let (mut at, mut before) = (SimTime::ZERO, SimTime::ZERO);
    for _ in 0..5_000 {
        at = at.after(dice.below(SEC));
        match dice.below(3) {
            0 => clock.set_rate(at, dice.below(2_000_000) as i64 - 1_000_000),
            1 => {
                let by = dice.below(200 * SEC) as i64 - 100 * SEC as i64;
                let shown = clock.realtime(at);
                let went = clock.step(at, by);
                assert_eq!(clock.realtime(at), shown.checked_add_signed(went).expect("a time"));
                assert!(clock.realtime(at) >= UPTIME + clock.own(at).0, "not before CLOCK_MONOTONIC");
            }
            _ => {}
        }
        assert!(clock.own(at) >= before);
        before = clock.own(at);
    }
}

#[test]
fn times_before_a_change_stay_what_they_were() {
    let mut clock = NodeClock::new(EPOCH);
    clock.step(SimTime(10), 1000);
    clock.step(SimTime(20), -500);
    let shown = [5, 10, 19, 20, 30].map(|at| clock.realtime(SimTime(at)) - EPOCH);
    assert_eq!(shown, [5, 1010, 1019, 520, 530]);
    for at in 21..40 {
        clock.step(SimTime(at), 1);
    }
    assert_eq!(clock.past.len(), PAST);
}

#[test]
fn a_wall_clock_does_not_go_before_the_monotonic_one_nor_beyond_the_end() {
    let mut clock = NodeClock::new(EPOCH);
    let went = clock.step(SimTime(SEC), i64::MIN);
    assert_eq!((clock.realtime(SimTime(SEC)), went), (UPTIME + SEC, UPTIME as i64 - EPOCH as i64));
    clock.step(SimTime(SEC), i64::MAX);
    assert_eq!(clock.realtime(SimTime(SEC)), END as u64);
}

/// Lets virtual time come to a point.
fn at(b: &mut Bench, virtual_time: u64) {
    b.node.clock = b.node.clock.max(SimTime(virtual_time));
    b.node.on_time();
}

fn timespec(b: &mut Bench, ns: u64) -> u64 {
    b.put_as(b.tid, Timespec::from_ns(ns).as_bytes())
}

/// clock_nanosleep(2) of the first task.
fn sleep(b: &mut Bench, clock: u64, flags: u64, ns: u64) {
    let time = timespec(b, ns);
    assert_eq!(
        b.start(b.tid, nr::clock_nanosleep, &[clock, flags, time, 0]),
        crate::dispatch::Outcome::Blocked
    );
}

fn next(node: &Node) -> u64 {
    node.next_deadline().expect("somebody waits").0
}

#[test]
fn absolute_sleeps_follow_the_wall_clock_and_no_others_do() {
    for (clock, flags, follows) in [
        (c::CLOCK_REALTIME, ABSOLUTE, true),
        (c::CLOCK_REALTIME, 0, false),
        (c::CLOCK_MONOTONIC, ABSOLUTE, false),
    ] {
        for by in [-3 * SEC as i64, 3 * SEC as i64, 30 * SEC as i64] {
            let mut b = Bench::new();
            let base = match (flags, clock) {
                (ABSOLUTE, c::CLOCK_REALTIME) => b.node.realtime(),
                (ABSOLUTE, _) => b.node.uptime(),
                _ => 0,
            };
            sleep(&mut b, clock, flags, base + 10 * SEC);
            let before = next(&b.node);
            assert_eq!(b.node.step_wall_clock(by), by);
            let expected = if follows { before as i64 - by } else { before as i64 };
            let now = b.node.clock.0 as i64;
            assert_eq!(next(&b.node) as i64, expected.max(now), "clock {clock}, flags {flags}, by {by}");
            let early = (expected - 1).max(0) as u64;
            if early > b.node.clock.0 {
                at(&mut b, early);
                assert!(b.sleeps(b.tid));
            }
            at(&mut b, expected.max(0) as u64);
            assert_eq!(b.resume(b.tid), Ok(0));
        }
    }
}

#[test]
fn futexes_and_queues_wait_by_the_wall_clock() {
    let bitset = |b: &mut Bench, op: u64, end: u64| {
        let (word, end) = (b.put_as(b.tid, &0u32.to_le_bytes()), timespec(b, end));
        b.start(b.tid, nr::futex, &[word, op, 0, end, 0, u64::from(u32::MAX)])
    };
    let wall = c::FUTEX_WAIT_BITSET | c::FUTEX_CLOCK_REALTIME;
    for (op, moves) in [(wall, true), (c::FUTEX_WAIT_BITSET, false)] {
        let mut b = Bench::new();
        let now = if moves { b.node.realtime() } else { b.node.uptime() };
        assert_eq!(bitset(&mut b, op, now + 5 * SEC), crate::dispatch::Outcome::Blocked);
        let before = next(&b.node);
        b.node.step_wall_clock(2 * SEC as i64);
        assert_eq!(before - next(&b.node), if moves { 2 * SEC } else { 0 });
        let end = next(&b.node);
        at(&mut b, end);
        assert_eq!(b.resume(b.tid), Err(Errno::ETIMEDOUT));
    }
    let mut b = Bench::new();
    let name = b.text("queue");
    let fd = b.call(nr::mq_open, &[name, c::O_CREAT | c::O_RDWR, 0o600, 0]).expect("a queue");
    let (room, end) = (b.room(8192), b.node.realtime() + 5 * SEC);
    let end = timespec(&mut b, end);
    let receive = b.start(b.tid, nr::mq_timedreceive, &[fd, room, 8192, 0, end]);
    assert_eq!(receive, crate::dispatch::Outcome::Blocked);
    b.node.step_wall_clock(60 * SEC as i64);
    let now = b.node.clock.0;
    at(&mut b, now);
    assert_eq!(b.resume(b.tid), Err(Errno::ETIMEDOUT), "its time has passed at once");
}

fn itimerspec(b: &mut Bench, value: u64, interval: u64) -> u64 {
    let spec = Itimerspec { interval: Timespec::from_ns(interval), value: Timespec::from_ns(value) };
    b.put_as(b.tid, spec.as_bytes())
}

/// A timerfd of CLOCK_REALTIME that is armed.
fn timerfd(b: &mut Bench, flags: u64, value: u64, interval: u64) -> u64 {
    let fd = b.call(nr::timerfd_create, &[c::CLOCK_REALTIME, c::O_NONBLOCK]).expect("a timerfd");
    let spec = itimerspec(b, value, interval);
    assert_eq!(b.call(nr::timerfd_settime, &[fd, flags, spec, 0]), Ok(0));
    fd
}

fn read(b: &mut Bench, fd: u64) -> Result<u64, Errno> {
    let room = b.room(8);
    b.call(nr::read, &[fd, room, 8])?;
    Ok(b.object::<u64>(b.tid, room))
}

#[test]
fn timerfds_follow_and_are_cancelled_who_asked_for_it() {
    let mut b = Bench::new();
    let end = b.node.realtime() + 10 * SEC;
    let plain = timerfd(&mut b, ABSOLUTE, end, SEC);
    let asked = timerfd(&mut b, CANCEL, end, SEC);
    let relative = timerfd(&mut b, 0, 10 * SEC, 0);
    // "TFD_TIMER_CANCEL_ON_SET" means nothing without an absolute time.
    let no_time = timerfd(&mut b, CANCEL & !ABSOLUTE, 10 * SEC, 0);
    b.node.step_wall_clock(13 * SEC as i64);
    let now = b.node.clock.0;
    at(&mut b, now);
    assert_eq!(read(&mut b, plain), Ok(4), "at 10, 11, 12 and 13 seconds");
    assert_eq!(read(&mut b, asked), Err(Errno::ECANCELED));
    assert_eq!(read(&mut b, asked), Err(Errno::EAGAIN), "it is told once, and the timer is not armed again");
    assert_eq!(read(&mut b, relative), Err(Errno::EAGAIN));
    assert_eq!(read(&mut b, no_time), Err(Errno::EAGAIN));
    at(&mut b, 11 * SEC);
    assert_eq!(read(&mut b, relative), Ok(1));
    // Back: what was to come in two seconds is later by as much.
    let end = b.node.realtime() + 2 * SEC;
    let later = timerfd(&mut b, ABSOLUTE, end, 0);
    b.node.step_wall_clock(-5 * SEC as i64);
    at(&mut b, 16 * SEC);
    assert_eq!(read(&mut b, later), Err(Errno::EAGAIN));
    at(&mut b, 19 * SEC);
    assert_eq!(read(&mut b, later), Ok(1));
}

#[test]
fn arming_tells_of_a_change_that_nobody_has_read() {
    let mut b = Bench::new();
    let end = b.node.realtime() + 10 * SEC;
    let fd = timerfd(&mut b, CANCEL, end, 0);
    b.node.step_wall_clock(SEC as i64);
    let spec = itimerspec(&mut b, end, 0);
    assert_eq!(b.call(nr::timerfd_settime, &[fd, CANCEL, spec, 0]), Err(Errno::ECANCELED));
    assert_eq!(b.call(nr::timerfd_settime, &[fd, CANCEL, spec, 0]), Ok(0));
    at(&mut b, 10 * SEC);
    assert_eq!(read(&mut b, fd), Ok(1));
}

#[test]
fn a_timer_of_a_process_follows() {
    let mut b = Bench::new();
    let id = b.room(4);
    assert_eq!(b.call(nr::timer_create, &[c::CLOCK_REALTIME, 0, id]), Ok(0));
    let end = b.node.realtime() + 10 * SEC;
    let spec = itimerspec(&mut b, end, 0);
    assert_eq!(b.call(nr::timer_settime, &[0, ABSOLUTE, spec, 0]), Ok(0));
    let before = next(&b.node);
    b.node.step_wall_clock(-4 * SEC as i64);
    assert_eq!(next(&b.node), before + 4 * SEC);
    let shown = b.room(32);
    assert_eq!(b.call(nr::timer_gettime, &[0, shown]), Ok(0));
    let left = b.object::<Itimerspec>(b.tid, shown).value;
    assert!((13..=14).contains(&left.sec), "{left:?}");
}

#[test]
fn a_fast_machine_sleeps_less() {
    for (rate, expected) in [(100_000_000, 10 * SEC), (-100_000_000, 12_222_222_223), (0, 11 * SEC)] {
        let mut b = Bench::new();
        b.node.set_clock_rate(rate);
        let (begin, shown) = (b.node.clock.0, b.node.uptime());
        sleep(&mut b, c::CLOCK_MONOTONIC, 0, 11 * SEC);
        let took = next(&b.node) - begin;
        assert!(took.abs_diff(expected) < 10_000, "{rate}: {took}");
        let end = next(&b.node);
        at(&mut b, end);
        assert_eq!(b.resume(b.tid), Ok(0));
        assert!(b.node.uptime() - shown >= 11 * SEC && b.node.realtime() - EPOCH >= 11 * SEC);
        // A change of the rate amid a sleep counts from then on.
        sleep(&mut b, c::CLOCK_MONOTONIC, 0, 10 * SEC);
        let half = b.node.clock.0 + (next(&b.node) - b.node.clock.0) / 2;
        at(&mut b, half);
        b.node.set_clock_rate(0);
        assert!((next(&b.node) - half).abs_diff(5 * SEC) < 10_000);
    }
}

#[test]
fn a_machine_that_is_booted_again_counts_from_then() {
    let mut b = Bench::new();
    at(&mut b, 50 * SEC);
    let real = b.node.realtime();
    b.node.time.reboot(b.node.clock);
    assert_eq!((b.node.uptime(), b.node.realtime()), (10 * SEC, real));
    let wanted = b.node.uptime() + 3 * SEC;
    sleep(&mut b, c::CLOCK_MONOTONIC, c::TIMER_ABSTIME, wanted);
    assert!((next(&b.node) - b.node.clock.0).abs_diff(3 * SEC) < 10_000);
    // A wall clock may show any time that is not before the boot.
    let by = b.node.step_wall_clock(i64::MIN);
    assert_eq!((b.node.realtime(), by < 0), (b.node.uptime(), true));
}

/// What a program has read without a trap is not taken back by the kernel, however slow the clock.
#[test]
fn reads_without_a_trap_do_not_go_back_on_a_slow_machine() {
    let mut b = Bench::new();
    b.node.vvar = Some(bloodhound_frames::Frame::zeroed());
    for rate in [-MAX_RATE, -500_000, 500_000, MAX_RATE] {
        b.node.set_clock_rate(rate);
        b.node.lend_clock();
        let page = b.node.vvar.as_ref().expect("the page");
        let shown = page.load_u64(0) + 64 * 50;
        page.write_shared(0, &shown.to_le_bytes());
        b.node.take_clock(b.tid);
        assert!(b.node.uptime() >= shown, "{rate}");
        assert!(b.node.uptime() - shown < 50, "{rate}");
    }
}

#[test]
fn a_leap_second_shows_a_second_twice() {
    let mut b = Bench::new();
    let timex = b.room(208);
    b.node.insert_leap_second();
    let state = |b: &mut Bench| b.call(nr::adjtimex, &[timex]).expect("a state");
    assert_eq!(state(&mut b), 1);
    let (second, tai) = (b.node.realtime() / SEC, b.node.tai());
    let left = SEC - b.node.realtime() % SEC;
    let before = b.node.clock.0;
    at(&mut b, before + left);
    assert_eq!((b.node.realtime() / SEC, b.node.realtime() % SEC), (second, 0));
    assert_eq!(b.node.tai() - tai, left, "CLOCK_TAI goes on");
    assert_eq!(state(&mut b), 3);
    at(&mut b, before + left + SEC);
    assert_eq!(state(&mut b), 4);
    assert_eq!(b.node.realtime() / SEC, second + 1);
}

#[test]
fn a_container_sets_no_clock_and_a_machine_does() {
    let mut b = Bench::new();
    let later = timespec(&mut b, EPOCH + 1000 * SEC);
    let early = timespec(&mut b, UPTIME - SEC);
    assert_eq!(b.call(nr::clock_settime, &[0, later]), Err(Errno::EPERM));
    let caps = &mut b.node.task_mut(b.tid).credentials.caps;
    caps.effective = OF_A_MACHINE;
    assert!(caps.has(CAP_SYS_TIME));
    assert_eq!(b.call(nr::clock_settime, &[0, later]), Ok(0));
    assert!(b.node.realtime().abs_diff(EPOCH + 1000 * SEC) < 10_000);
    // "attempted to set the time to a value less than the current value of the CLOCK_MONOTONIC clock".
    assert_eq!(b.call(nr::clock_settime, &[0, early]), Err(Errno::EINVAL));
    let timeval = b.put_as(b.tid, &[(EPOCH / SEC).to_le_bytes(), 0u64.to_le_bytes()].concat());
    assert_eq!(b.call(nr::settimeofday, &[timeval, 0]), Ok(0));
    assert!(b.node.realtime().abs_diff(EPOCH) < 10_000);
    // NTP has to begin anew: TIME_ERROR. An offset of -1.5 s is -2 s and half a second.
    let mut timex = [0u64; 26];
    (timex[0], timex[9], timex[10]) = (0x2100, -2i64 as u64, 500_000_000);
    let at = b.put_as(b.tid, timex.as_bytes());
    assert_eq!(b.call(nr::adjtimex, &[at]), Ok(5));
    assert!((EPOCH - b.node.realtime()).abs_diff(1_500_000_000) < 10_000);
}

#[test]
fn what_is_told_of_a_clock_is_set_and_its_rate_is_not() {
    let mut b = Bench::new();
    b.node.task_mut(b.tid).credentials.caps.effective = OF_A_MACHINE;
    let at = b.room(208);
    assert_eq!(b.call(nr::adjtimex, &[at]), Ok(0));
    let read = |b: &mut Bench| b.object::<[u64; 26]>(b.tid, at);
    let asked = |b: &mut Bench, timex: [u64; 26]| {
        let asked = b.put_as(b.tid, timex.as_bytes());
        b.start(b.tid, nr::adjtimex, &[asked])
    };
    // All that ntpd(8) sets, with the values that are there.
    let mut timex = read(&mut b);
    timex[0] = 0x403f;
    assert_eq!(asked(&mut b, timex), Outcome::Done(0));
    let errors = [5, 1 << 20, 3];
    (timex[3], timex[4], timex[6]) = (errors[0], errors[1], errors[2]);
    assert_eq!(asked(&mut b, timex), Outcome::Done(0));
    assert_eq!(b.call(nr::adjtimex, &[at]), Ok(0));
    let told = read(&mut b);
    assert_eq!([told[3], told[4], told[6]], errors);
    for (word, value, refused) in
        [(11, 8_999, true), (11, 11_001, true), (11, 10_001, false), (2, 65_536, false)]
    {
        let outcome = asked(&mut b, {
            let mut other = timex;
            other[word] = value;
            other
        });
        let einval = Outcome::Done(Errno::EINVAL.as_ret());
        assert_eq!(outcome == einval, refused, "word {word}, {value}: {outcome:?}");
        assert!(refused || matches!(outcome, Outcome::Unsupported(_)), "word {word}, {value}: {outcome:?}");
    }
    // adjtime(3) of nothing.
    timex = [0; 26];
    timex[0] = 0x8001;
    assert_eq!(asked(&mut b, timex), Outcome::Done(0));
}

#[test]
fn files_have_the_times_of_the_wall_clock() {
    let mut b = Bench::new();
    b.node.step_wall_clock(1_000_000 * SEC as i64);
    let fd = b.open("/made", c::O_CREAT | c::O_RDWR).expect("a file");
    let stat = b.room(144);
    assert_eq!(b.call(nr::fstat, &[fd, stat]), Ok(0));
    let seconds: u64 = b.object(b.tid, stat + 88);
    assert_eq!(seconds, EPOCH / SEC + 1_000_000);
    let btime = format!("btime {}\n", (EPOCH - UPTIME) / SEC + 1_000_000);
    assert!(b.content("/proc/stat").expect("a file").contains(&btime));
}
