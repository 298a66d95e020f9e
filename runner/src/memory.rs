//! How much of this machine's memory a command may use, and how much it uses. What the worlds hold decides about it, never about
//! what a run does: a run that needs more is given up without a verdict, or tried again alone.
//!
//! Key types: [`Budget`], [`Pressure`], [`Guard`] (watches over a command with one run; a campaign has its own watch).
//! Neighbours: `bloodhound_frames` (where the worlds' memory lies), `campaign::watch`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloodhound_frames as frames;

use crate::exit;
use crate::session::{Failure, Stopped};

/// The share of the memory that is available at the start which may be used, in parts of [`WHOLE`].
const SHARE: u64 = 3;
const WHOLE: u64 = 4;
/// More than this share of the budget used, in parts of [`FULL`], and what is only kept for speed is given up.
const NEAR: u64 = 4;
const FULL: u64 = 5;
/// What is kept for speed alone has at most so many bytes, and this part of the budget.
const MOST_FOR_SPEED: u64 = 512 << 20;
const FOR_SPEED: u64 = 16;
/// The frame store has 64 GiB of addresses; some are needed beside the worlds.
const MOST: u64 = 56 << 30;
/// How often a [`Guard`] looks.
const LOOK: Duration = Duration::from_millis(10);

/// How close a budget is to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    None,
    /// What is kept for speed alone should go.
    Near,
    /// A run has to go.
    Over,
}

/// Bytes that this process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    bytes: u64,
}

impl Budget {
    /// What was asked for, or most of what is available now.
    pub fn new(asked: Option<u64>) -> Budget {
        let usual = || available() / WHOLE * SHARE;
        Budget { bytes: asked.unwrap_or_else(usual).min(MOST) }
    }

    /// Why a run was given up.
    pub fn text(self) -> String {
        format!(
            "the run needs more memory than the {} MiB that may be used on this machine; `--memory SIZE` allows more, and \
             `mem_limit` of a service lets it have less",
            self.bytes >> 20
        )
    }

    /// How much may be kept for speed alone now.
    pub fn for_speed(self) -> u64 {
        if self.pressure() == Pressure::None { MOST_FOR_SPEED.min(self.bytes / FOR_SPEED) } else { 0 }
    }

    /// How close it is to its end now.
    pub fn pressure(self) -> Pressure {
        self.pressure_of(used())
    }

    fn pressure_of(self, used: u64) -> Pressure {
        match used {
            used if used > self.bytes => Pressure::Over,
            used if used / NEAR > self.bytes / FULL => Pressure::Near,
            _ => Pressure::None,
        }
    }

    /// Gives free memory of the frame store back to the host if it is a noticeable part of the budget.
    pub fn give_back(self) {
        if frames::free_bytes() > self.bytes / 16 {
            frames::trim();
        }
    }
}

/// Bytes that this process has, without what it would use next before it takes more from the host.
fn used() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    (pages * 4096).saturating_sub(frames::free_bytes())
}

/// Bytes that this process could get: what the host has available, and what its control groups leave it.
fn available() -> u64 {
    let of_host = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable"));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = groups.lines().filter_map(left_in_group).min();
    // A machine that does not say has been seen by nobody; 4 GiB is what a small one has.
    of_host.unwrap_or(4 << 30).min(of_groups.unwrap_or(u64::MAX))
}

/// A line of /proc/meminfo, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// What the control group of a line of /proc/self/cgroup ("hierarchy-ID:controller-list:cgroup-path", cgroups(7)) and those above
/// it leave.
fn left_in_group(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (controllers, path) = (parts.nth(1)?, parts.next()?);
    let (root, most, now) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
        list if list.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        }
        _ => return None,
    };
    least_left(root, path, most, now)
}

/// What a control group at `path` and those above it leave: the difference of two files below `root`, where there is a limit.
pub fn least_left(root: &str, path: &str, most: &str, now: &str) -> Option<u64> {
    let number = |dir: &str, file: &str| -> Option<u64> {
        std::fs::read_to_string(format!("{root}{dir}/{file}")).ok()?.trim().parse().ok()
    };
    let mut dir = path.trim_end_matches('/');
    let mut least: Option<u64> = None;
    loop {
        if let Some(limit) = number(dir, most) {
            let left = limit.saturating_sub(number(dir, now).unwrap_or(0));
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        match dir.rfind('/') {
            Some(at) => dir = &dir[..at],
            None => return least,
        }
    }
}

/// Interrupts the one run of a command when the budget is over.
pub struct Guard {
    budget: Budget,
    over: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Guard {
    /// Begins to watch; `interrupt` is the flag of the machine that runs.
    ///
    /// # Errors
    /// The host gives no thread for it.
    pub fn start(budget: Budget, interrupt: Arc<AtomicBool>) -> Result<Guard, Failure> {
        let (over, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (told, until) = (over.clone(), ended.clone());
        let watch = move || {
            while !until.load(Ordering::Relaxed) {
                match budget.pressure() {
                    Pressure::None => {}
                    Pressure::Near => budget.give_back(),
                    Pressure::Over => {
                        told.store(true, Ordering::Relaxed);
                        interrupt.store(true, Ordering::Relaxed);
                        return;
                    }
                }
                std::thread::sleep(LOOK);
            }
        };
        let spawned = std::thread::Builder::new().name("memory".into()).spawn(watch);
        spawned.map_err(|e| Failure::environment(format!("no thread to watch over memory: {e}")))?;
        Ok(Guard { budget, over, ended })
    }

    /// What it watches over.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Why the run was interrupted, if it was for this.
    pub fn reason(&self) -> Option<String> {
        self.over.load(Ordering::Relaxed).then(|| self.budget.text())
    }

    /// What a run said that may have been interrupted for this.
    pub fn explain(&self, failure: Failure) -> Failure {
        match self.reason() {
            Some(text) if failure.code == exit::INTERRUPTED => Failure { code: exit::INCONCLUSIVE, text },
            _ => failure,
        }
    }

    /// The same of a run that has an outcome.
    pub fn explain_stop(&self, stopped: &mut Option<Stopped>) {
        if *stopped == Some(Stopped::Interrupted)
            && let Some(text) = self.reason()
        {
            *stopped = Some(Stopped::Undecided(text));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_near_its_end_at_four_fifths() {
        let budget = Budget { bytes: 1000 };
        assert_eq!(budget.pressure_of(800), Pressure::None);
        assert_eq!(budget.pressure_of(804), Pressure::Near);
        assert_eq!(budget.pressure_of(1001), Pressure::Over);
    }

    #[test]
    fn a_budget_is_what_was_asked_for() {
        assert_eq!(Budget::new(Some(64 << 20)).bytes, 64 << 20);
        assert!(Budget::new(None).bytes > 0);
        assert_eq!(Budget::new(Some(u64::MAX)).bytes, MOST);
    }

    #[test]
    fn what_is_used_is_seen() {
        let before = used();
        let held: Vec<frames::Frame> = (0..16384).map(|_| frames::Frame::zeroed()).collect();
        assert!(used() > before + (32 << 20), "{} after {before}", used());
        drop(held);
    }

    #[test]
    fn lines_of_meminfo_are_in_kib() {
        assert_eq!(field("MemTotal:  8000 kB\nMemAvailable:   7 kB\n", "MemAvailable"), Some(7 << 10));
        assert_eq!(field("", "MemAvailable"), None);
        assert_eq!(left_in_group("1:name=systemd:/"), None);
    }
}
