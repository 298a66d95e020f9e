//! Setting clocks: clock_settime(2), settimeofday(2), adjtimex(2), clock_adjtime(2). They change the machine's
//! [`NodeClock`](crate::node_clock::NodeClock), as faults of clocks do.
//!
//! To set one takes CAP_SYS_TIME, which root has on a machine and not in a container. Reading is for everybody. What adjusts the rate of a
//! clock (ADJ_FREQUENCY, ADJ_TICK, adjtime(3)) stops the run when it is permitted.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Timespec, Timeval};

use crate::caps::CAP_SYS_TIME;
use crate::ctx::*;
use crate::node_clock::Leap;
use crate::wait::{Stop, SysResult};

const SECOND: i64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND as u64;

/// struct timex of 208 bytes, as words.
type Timex = [u64; 26];
/// Modes of adjtimex(2).
const ADJ_OFFSET: u64 = 1;
const ADJ_FREQUENCY: u64 = 2;
const ADJ_MAXERROR: u64 = 4;
const ADJ_ESTERROR: u64 = 8;
const ADJ_TIMECONST: u64 = 0x20;
const ADJ_TICK: u64 = 0x4000;
const ADJ_STATUS: u64 = 0x10;
const ADJ_TAI: u64 = 0x80;
const ADJ_SETOFFSET: u64 = 0x100;
/// The unit of what is set and shown.
const ADJ_NANO: u64 = 0x2000;
/// Modes that are known here. ADJ_MICRO is not.
const KNOWN: u64 = ADJ_OFFSET
    | ADJ_FREQUENCY
    | ADJ_MAXERROR
    | ADJ_ESTERROR
    | ADJ_TIMECONST
    | ADJ_TICK
    | ADJ_STATUS
    | ADJ_TAI
    | ADJ_SETOFFSET
    | ADJ_NANO;
/// A tick, 10 ms, in us.
const TICK_US: u64 = 10_000;
/// ADJ_ADJTIME with ADJ_OFFSET_SINGLESHOT, and ADJ_OFFSET_READONLY: what is left of an adjtime(3).
const ADJ_ADJTIME: u64 = 0x8000;
const ADJ_SINGLESHOT: u64 = 1;
const ADJ_READONLY: u64 = 0x2000;
/// Status bits.
const STA_PLL: u64 = 1;
const STA_INS: u64 = 0x10;
const STA_UNSYNC: u64 = 0x40;
const STA_NANO: u64 = 0x2000;
/// Those that nobody sets (STA_RONLY).
const STA_RONLY: u64 = 0xff00;
/// States of the clock, the values of adjtimex(2).
const TIME_OK: u64 = 0;
const TIME_INS: u64 = 1;
const TIME_OOP: u64 = 3;
const TIME_WAIT: u64 = 4;
const TIME_ERROR: u64 = 5;

/// clock_settime(2). Only CLOCK_REALTIME has a `clock_set` that somebody could use. EPERM without CAP_SYS_TIME; EINVAL for a time before
/// that of CLOCK_MONOTONIC.
pub fn clock_settime(k: &mut Ctx<'_>, clock: i32, tp: Ptr) -> SysResult {
    let cpu = clock < 0 && clock & 7 != 3;
    if !cpu && clock as u64 != c::CLOCK_REALTIME {
        return err(Errno::EINVAL);
    }
    let ts: Timespec = k.read_obj(tp)?;
    if cpu {
        k.cpu_clock(clock, false)?;
        return err(Errno::EPERM);
    }
    settable(&ts)?;
    k.may_set_clocks()?;
    k.set_wall_clock(&ts)
}

/// Whether a clock could be set to a time (`timespec64_valid_settod`): not within 30 years of the end of 64 bits of nanoseconds.
fn settable(ts: &Timespec) -> Result<(), Errno> {
    const END: i64 = i64::MAX / 1_000_000_000 - 30 * 365 * 24 * 3600;
    if (0..END).contains(&ts.sec) && (0..1_000_000_000).contains(&ts.nsec) {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// settimeofday(2). What is wrong with the arguments comes first; to set the clock one needs CAP_SYS_TIME.
pub fn settimeofday(k: &mut Ctx<'_>, tv: Ptr, tz: Ptr) -> SysResult {
    let mut time = None;
    if !tv.is_null() {
        let tv: Timeval = k.read_obj(tv)?;
        // "if (new_ts.tv_nsec > USEC_PER_SEC || new_ts.tv_nsec < 0)": a full second is refused later.
        if !(0..=1_000_000).contains(&tv.usec) {
            return err(Errno::EINVAL);
        }
        time = Some(Timespec { sec: tv.sec, nsec: tv.usec * 1000 });
    }
    let zone = if tz.is_null() { None } else { Some(k.read_obj::<[i32; 2]>(tz)?) };
    if let Some(time) = time {
        settable(&time)?;
    }
    k.may_set_clocks()?;
    match zone {
        // "Verify we're within the +-15 hrs range" (do_sys_settimeofday64).
        Some([west, _]) if !(-15 * 60..=15 * 60).contains(&west) => return err(Errno::EINVAL),
        Some(zone) if zone != [0, 0] => {
            return Err(Stop::Unsupported("settimeofday with a time zone of the kernel".into()));
        }
        _ => {}
    }
    time.map_or(Ok(0), |time| k.set_wall_clock(&time))
}

/// adjtimex(2): reading is for everybody, setting needs CAP_SYS_TIME. The clock is one that NTP has set.
pub fn adjtimex(k: &mut Ctx<'_>, buf: Ptr) -> SysResult {
    let mut timex: Timex = k.read_obj(buf)?;
    let modes = timex[0] & 0xffff_ffff;
    if modes & ADJ_ADJTIME != 0 {
        if modes & ADJ_SINGLESHOT == 0 {
            return err(Errno::EINVAL);
        }
        if modes & ADJ_READONLY == 0 {
            k.may_set_clocks()?;
            // Nothing is left to be made up, as nothing ever is begun.
            if timex[1] != 0 {
                return Err(Stop::Unsupported("adjtime".into()));
            }
        }
    } else if modes != 0 {
        k.may_set_clocks()?;
        adjust(k, modes, &timex)?;
    }
    let now = k.node.realtime();
    let (state, leap) = leap_state(k);
    let unsync = if k.node.time.unsynchronized { STA_UNSYNC } else { 0 };
    let status = STA_NANO | STA_PLL | leap | unsync;
    // offset, freq, maxerror and esterror in us; constant, precision, tolerance (500 ppm, scaled).
    let [greatest, estimated, constant] = k.node.time.told;
    timex[1..9].copy_from_slice(&[0, 0, greatest, estimated, status, constant, 1, 32_768_000]);
    // time in seconds and (STA_NANO) nanoseconds; tick of 10 ms in us.
    timex[9..12].copy_from_slice(&[now / 1_000_000_000, now % 1_000_000_000, TICK_US]);
    timex[12..21].fill(0);
    timex[20] = u64::from(k.node.time.tai() as u32);
    k.write_obj(buf, &timex)?;
    Ok(if unsync != 0 { TIME_ERROR } else { state })
}

/// The state of the clock, and its status bit, as a leap second makes it.
fn leap_state(k: &Ctx<'_>) -> (u64, u64) {
    match k.node.time.leap {
        Leap::None => (TIME_OK, 0),
        Leap::Ahead(_) => (TIME_INS, STA_INS),
        Leap::Inserted(at) if k.now().since(at) < SECOND as u64 => (TIME_OOP, STA_INS),
        Leap::Inserted(_) => (TIME_WAIT, STA_INS),
    }
}

/// Carries out what adjtimex(2) is asked to change.
fn adjust(k: &mut Ctx<'_>, modes: u64, timex: &Timex) -> SysResult<()> {
    let has = |bit: u64| modes & bit != 0;
    // "Check the tick value: from 900000/USER_HZ to 1100000/USER_HZ" (adjtimex(2), EINVAL).
    if has(ADJ_TICK) && !(9_000..=11_000).contains(&timex[11]) {
        return err(Errno::EINVAL);
    }
    let rated = has(ADJ_OFFSET) && timex[1] != 0
        || has(ADJ_FREQUENCY) && timex[2] != 0
        || has(ADJ_TICK) && timex[11] != TICK_US;
    if modes & !KNOWN != 0 || rated {
        let what = if rated { "that changes the rate of the clock" } else { "with other modes" };
        return Err(Stop::Unsupported(format!("adjtimex {what} ({modes:#x})")));
    }
    let told = &mut k.node.time.told;
    for (bit, kept, value) in [
        (ADJ_MAXERROR, 0, timex[3]),
        (ADJ_ESTERROR, 1, timex[4]),
        // "time_constant = max(0l, min(txc->constant, MAXTC))" (process_adjtimex_modes).
        (ADJ_TIMECONST, 2, (timex[6] as i64).clamp(0, 10) as u64),
    ] {
        if has(bit) {
            told[kept] = value;
        }
    }
    if modes & ADJ_SETOFFSET != 0 {
        let (seconds, part) = (timex[9] as i64, timex[10] as i64);
        // "The value of a timeval is the sum of its fields, but the field tv_usec must always be non-negative" (adjtimex(2)).
        let (unit, whole) = if modes & ADJ_NANO != 0 { (1, SECOND) } else { (1000, 1_000_000) };
        if !(0..whole).contains(&part) {
            return err(Errno::EINVAL);
        }
        let by = seconds.checked_mul(SECOND).and_then(|ns| ns.checked_add(part * unit));
        k.step_wall_clock(by.ok_or(Errno::EINVAL)?)?;
    }
    if modes & ADJ_STATUS != 0 {
        set_status(k, timex[5] & 0xffff_ffff)?;
    }
    // "if (txc->modes & ADJ_TAI && txc->constant >= 0 && txc->constant <= MAX_TAI_OFFSET)" (process_adjtimex_modes).
    if modes & ADJ_TAI != 0 && timex[6] <= 100_000 {
        k.node.time.set_tai(timex[6] as i32);
    }
    Ok(())
}

fn set_status(k: &mut Ctx<'_>, status: u64) -> SysResult<()> {
    let status = status & !STA_RONLY;
    if status & !(STA_PLL | STA_INS | STA_UNSYNC) != 0 {
        return Err(Stop::Unsupported(format!("adjtimex with status {status:#x}")));
    }
    k.node.time.unsynchronized = status & STA_UNSYNC != 0;
    match (k.node.time.leap, status & STA_INS != 0) {
        // "Insert a leap second at the end of the UTC day" (adjtimex(2)).
        (Leap::None, true) => {
            let left = DAY - k.node.realtime() % DAY;
            let at = k.now().after(left);
            k.node.arm_leap(Some(at));
        }
        (_, true) | (Leap::None, false) => {}
        (_, false) => k.node.arm_leap(None),
    }
    Ok(())
}

/// clock_adjtime(2): CLOCK_REALTIME only; others that can be read have nothing to adjust.
pub fn clock_adjtime(k: &mut Ctx<'_>, clock: i32, buf: Ptr) -> SysResult {
    match clock {
        0 => adjtimex(k, buf),
        // A negative number is the clock of a process or thread, or of a descriptor (CLOCKFD), of which there are none.
        id if id < 0 && id & 7 == 3 => err(Errno::EINVAL),
        1..=9 | 11 | i32::MIN..0 => err(Errno::EOPNOTSUPP),
        _ => err(Errno::EINVAL),
    }
}

impl Ctx<'_> {
    fn may_set_clocks(&self) -> Result<(), Errno> {
        if self.capable(CAP_SYS_TIME) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Sets CLOCK_REALTIME; NTP is told nothing of it, and has to begin anew (ntp_clear).
    fn set_wall_clock(&mut self, ts: &Timespec) -> SysResult {
        // Settable times fit into 64 bits.
        let to = ts.sec * SECOND + ts.nsec;
        let now = i64::try_from(self.node.realtime()).unwrap_or(i64::MAX);
        self.step_wall_clock(to - now)?;
        self.node.time.unsynchronized = true;
        if let Leap::Ahead(_) = self.node.time.leap {
            self.node.arm_leap(None);
        }
        Ok(0)
    }

    /// EINVAL for a time before that of CLOCK_MONOTONIC, or too late: nothing is changed then.
    fn step_wall_clock(&mut self, by: i64) -> SysResult<()> {
        let mut after = self.node.time.clone();
        if after.step(self.node.clock, by) != by {
            return err(Errno::EINVAL);
        }
        self.node.step_wall_clock(by);
        Ok(())
    }
}
