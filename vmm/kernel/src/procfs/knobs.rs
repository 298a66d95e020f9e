//! Files of /proc/PID that programs write (proc(5)): what memory pressure, core dumps and audit would do with a process.
//! The values are kept, checked and inherited as in Linux; nothing here acts upon them.

use bloodhound_abi::Errno;

use super::View;
use crate::caps::{CAP_AUDIT_CONTROL, CAP_SYS_NICE, CAP_SYS_RESOURCE, CAP_SYS_TIME};
use crate::ctx::*;
use crate::ids::*;
use crate::process::Process;
use crate::task::NO_LOGIN;
use crate::wait::SysResult;

/// OOM_SCORE_ADJ_MAX; the least value is its negative.
const OOM_MAX: i64 = 1000;
/// -OOM_DISABLE, the scale of the older oom_adj, and OOM_ADJUST_MAX.
const OOM_ADJ_SCALE: i64 = 17;
const OOM_ADJ_MAX: i64 = 15;
/// PROC_NUMBUF without the end: more is not looked at.
const NUMBER: usize = 12;
/// MMF_DUMP_FILTER_MASK.
const DUMP_FILTER: u32 = 0x1ff;

/// What a process keeps; a child starts with its parent's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// oom_score_adj, -1000 to 1000.
    pub oom_score_adj: i16,
    /// The least that may be set without CAP_SYS_RESOURCE.
    pub oom_score_adj_min: i16,
    /// The nice value of its session's autogroup (sched(7)): the same for all of the session.
    pub autogroup_nice: i8,
}

impl Knobs {
    /// Those of a container's first process, for which an engine sets oom_score_adj.
    pub fn adjusted(oom_score_adj: i16) -> Knobs {
        Knobs { oom_score_adj, oom_score_adj_min: oom_score_adj.min(0), ..Knobs::default() }
    }

    /// oom_adj, "for backward compatibility [...] scaled".
    pub(super) fn oom_adj(&self) -> i64 {
        (i64::from(self.oom_score_adj) * OOM_ADJ_SCALE / OOM_MAX).min(OOM_ADJ_MAX)
    }

    /// oom_score of a process that uses next to nothing of the machine's memory.
    pub(super) fn oom_score(&self) -> i64 {
        (OOM_MAX + i64::from(self.oom_score_adj)) * 2 / 3
    }
}

/// What is written to a file that takes a text: a copy of it which a 0 ends.
pub(crate) fn before_zero(data: &[u8]) -> &[u8] {
    data.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number as kstrtoint and its kin read it for a type: one sign, in base 0 a prefix for the base, at most one newline behind it. ERANGE for
/// one that the type does not have, EINVAL for a minus where it has none.
fn number<T: TryFrom<i128>>(text: &[u8], base: u32) -> Result<T, Errno> {
    let text = std::str::from_utf8(before_zero(text)).map_err(|_| Errno::EINVAL)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') if T::try_from(-1).is_ok() => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (base, hex) {
        (0, Some(hex)) => (hex, 16),
        (0, None) if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        (0, None) => (digits, 10),
        (base, _) => (digits, base),
    };
    if digits.is_empty() || !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return Err(Errno::EINVAL);
    }
    let value = i128::from_str_radix(digits, radix).map_err(|_| Errno::ERANGE)?;
    T::try_from(if negative { -value } else { value }).map_err(|_| Errno::ERANGE)
}

impl Ctx<'_> {
    /// write(2) to `/proc/number/name`. EINVAL for what is no value of it, EACCES and EPERM, ESRCH; EIO for what is not
    /// written to.
    pub(crate) fn write_knob(&mut self, of: u32, name: &str, data: &[u8]) -> SysResult {
        let view = View { node: self.node, pid: self.pid, tid: self.tid };
        let pid = view.process(of).ok_or(Errno::ESRCH)?.pid;
        let caps = self.credentials().caps;
        match name {
            "oom_score_adj" | "oom_adj" => {
                let taken = &data[..data.len().min(NUMBER)];
                let value: i32 = number(before_zero(taken).trim_ascii(), 0)?;
                self.set_oom(pid, i64::from(value), name == "oom_adj", caps.has(CAP_SYS_RESOURCE))?;
                return Ok(taken.len() as u64);
            }
            "coredump_filter" => {
                let value: u32 = number(data, 0)?;
                let mm = self.node.process(pid).mm;
                let mm = self.node.mms.get_mut(mm).ok_or(Errno::ESRCH)?;
                mm.kept.coredump_filter = value & DUMP_FILTER;
            }
            "timerslack_ns" => {
                let slack = number(data, 10)?;
                if of != self.tid.number() && !caps.has(CAP_SYS_NICE) {
                    return err(Errno::EPERM);
                }
                let task = self.node.tasks.get_mut(&self.pid.ns().tid(of)).ok_or(Errno::ESRCH)?;
                task.timer_slack.set(slack);
            }
            "loginuid" => self.set_login(of, number(data, 10)?, caps.has(CAP_AUDIT_CONTROL))?,
            "autogroup" => {
                self.set_autogroup(pid, number(before_zero(data).trim_ascii(), 0)?, caps.has(CAP_SYS_NICE))?
            }
            // Sets counters to 0 (proc_sched_set_task).
            "sched" => {}
            // Processes are in it: its offsets are frozen (proc_timens_set_offset).
            "timens_offsets" if caps.has(CAP_SYS_TIME) => return err(Errno::EACCES),
            "timens_offsets" => return err(Errno::EPERM),
            "clear_refs" if number::<i32>(data, 10)? == 5 => {
                // "Writing 5 to the file will reset the peak resident set size ("high water mark") to the process's current resident set
                // size value" (proc(5)).
                let mm = self.node.process(pid).mm;
                if let Some(mm) = self.node.mms.get_mut(mm) {
                    mm.peak = mm.pages.len();
                }
            }
            // What else proc(5) lists; nothing is counted.
            "clear_refs" if (1..=4).contains(&number::<i32>(data, 10)?) => {}
            "clear_refs" => return err(Errno::EINVAL),
            // The first user namespace has all ids, for good.
            "uid_map" | "gid_map" | "projid_map" | "setgroups" => return err(Errno::EPERM),
            _ => return err(Errno::EIO),
        }
        Ok(data.len() as u64)
    }

    /// Of all that are in the session (proc_sched_autogroup_set_nice).
    fn set_autogroup(&mut self, pid: Pid, nice: i32, privileged: bool) -> SysResult<()> {
        let nice = i8::try_from(nice).ok().filter(|nice| (-20..=19).contains(nice)).ok_or(Errno::EINVAL)?;
        if nice < 0 && !privileged && !self.may_be_so_nice(self.pid, i32::from(nice)) {
            return err(Errno::EPERM);
        }
        let session = self.node.process(pid).sid;
        let all: Vec<Pid> =
            self.node.processes.values().filter(|p| p.sid == session).map(|p| p.pid).collect();
        for pid in all {
            self.node.process_mut(pid).knobs.autogroup_nice = nice;
        }
        Ok(())
    }

    fn set_oom(&mut self, pid: Pid, value: i64, legacy: bool, privileged: bool) -> SysResult<()> {
        let knobs = self.node.process(pid).knobs;
        let (range, scaled) = match (legacy, value) {
            (true, OOM_ADJ_MAX) => (-OOM_ADJ_SCALE..=OOM_ADJ_MAX, OOM_MAX),
            (true, v) => (-OOM_ADJ_SCALE..=OOM_ADJ_MAX, v.saturating_mul(OOM_MAX) / OOM_ADJ_SCALE),
            (false, v) => (-OOM_MAX..=OOM_MAX, v),
        };
        if !range.contains(&value) {
            return err(Errno::EINVAL);
        }
        let least = i64::from(if legacy { knobs.oom_score_adj } else { knobs.oom_score_adj_min });
        // "lowering [...] requires CAP_SYS_RESOURCE": below what somebody with it has set last, 0 at first.
        if scaled < least && !privileged {
            return err(Errno::EACCES);
        }
        for pid in self.killed_together(pid) {
            let knobs = &mut self.node.process_mut(pid).knobs;
            knobs.oom_score_adj = scaled as i16;
            if !legacy && privileged {
                knobs.oom_score_adj_min = scaled as i16;
            }
        }
        Ok(())
    }

    /// Those that have the same memory share their fate, but for children of vfork(2), which want a value of their own (`__set_oom_adj`).
    fn killed_together(&self, pid: Pid) -> Vec<Pid> {
        let borrows = |p: &Process| p.threads.iter().any(|tid| self.node.task(*tid).vfork_parent.is_some());
        let process = self.node.process(pid);
        if process.zombie.is_some() || borrows(process) {
            return vec![pid];
        }
        let same = |p: &&Process| p.pid == pid || p.mm == process.mm && p.zombie.is_none() && !borrows(p);
        self.node.processes.values().filter(same).map(|p| p.pid).collect()
    }

    /// Only a thread itself says who has logged in, and only once without CAP_AUDIT_CONTROL. The directory of a process is that of its
    /// first thread.
    fn set_login(&mut self, of: u32, uid: u32, privileged: bool) -> SysResult<()> {
        let (pid, tid) = (self.pid, self.tid.number());
        let task = self.task_mut();
        if of != tid || task.login.0 != NO_LOGIN && !privileged {
            return err(Errno::EPERM);
        }
        task.login = (uid, if uid == NO_LOGIN { NO_LOGIN } else { pid.number() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_does() {
        for (text, base, value) in [
            ("12", 0, Ok(12)),
            ("-0x10\n", 0, Ok(-16)),
            ("+010", 0, Ok(8)),
            ("0", 0, Ok(0)),
            ("010", 10, Ok(10)),
            ("", 0, Err(Errno::EINVAL)),
            ("1 2", 0, Err(Errno::EINVAL)),
            ("--1", 0, Err(Errno::EINVAL)),
            ("1\n\n", 0, Err(Errno::EINVAL)),
            ("2147483648", 10, Err(Errno::ERANGE)),
            ("99999999999999999999", 10, Err(Errno::ERANGE)),
        ] {
            assert_eq!(number::<i32>(text.as_bytes(), base), value, "{text:?}");
        }
        assert_eq!(number::<u64>(b"18446744073709551615", 10), Ok(u64::MAX));
        assert_eq!(number::<u64>(b"-1", 10), Err(Errno::EINVAL));
    }
}
