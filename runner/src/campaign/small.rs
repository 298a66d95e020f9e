//! Findings are made small when the seeds of a campaign have run: one of each group, that is of those which violate the same property in the same way.
//!
//! Key types: [`Alike`], [`Small`]. Nothing of it reaches a verdict, an exit code or the run of a seed. The others of a group are counted.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::print;
use super::totals::{Found, Totals, by_group};
use crate::group::Group;
use crate::memory::{Budget, Guard};
use crate::platform::Chosen;
use crate::session::{Failure, Session};
use crate::shrink::RUNS;
use crate::shrink::order::{Limits, Order, Shrunk};
use crate::{bug, cpus, exit, finding};

/// How long all groups may take together unless something else is asked for.
pub const BUDGET: Duration = Duration::from_secs(60);
/// A group for which no more is left is not begun.
const LEAST: Duration = Duration::from_secs(2);
/// After the end of the budget what runs then may end; but no longer than this.
const GRACE: Duration = Duration::from_secs(10);
/// How often it looks whether all has to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Findings that violate the same property in the same way.
#[derive(Clone, Debug)]
pub struct Alike {
    pub group: Group,
    /// Its seeds, rising, and the one that was to be made small.
    pub seeds: Vec<u64>,
    pub seed: u64,
    /// What is left of that; or why it was not made small.
    pub small: Result<Small, String>,
}

/// A finding that was made small.
#[derive(Clone, Debug)]
pub struct Small {
    pub dir: PathBuf,
    pub shrunk: Shrunk,
}

impl Small {
    /// The command that shows it.
    pub fn replay(&self) -> String {
        format!("bloodhound replay {}", bug::quote(&self.dir.to_string_lossy()))
    }
}

impl Alike {
    /// Whether a finding is of this group.
    pub fn has(&self, found: &Found) -> bool {
        self.group == found.group()
    }

    /// What is left, for people: a line for each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = match &self.small {
            Ok(small) => {
                let mut lines = vec![format!("shrunken finding: {}", small.replay())];
                lines.extend(small.shrunk.story.lines().map(|line| format!("  {line}")));
                lines
            }
            Err(why) => vec![format!("seed {} was not shrunk: {why}", self.seed)],
        };
        if self.seeds.len() > 1 {
            let others = self.seeds.len() - 1;
            lines.push(format!("{others} more in the same way ({})", self.group.shape));
        }
        lines
    }

    /// For machines.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "property": self.group.property,
            "kind": self.group.kind,
            "shape": self.group.shape,
            "seeds": self.seeds,
            "seed": self.seed,
            "shrunk": self.small.as_ref().ok().map(|small| &small.shrunk.json),
            "not_shrunk": self.small.as_ref().err(),
        })
    }
}

/// How a campaign makes its findings small.
pub struct Shrinking<'a> {
    pub session: &'a Arc<Session>,
    pub chosen: Chosen,
    pub signal: Arc<AtomicBool>,
    pub memory: Budget,
    pub time: Duration,
}

impl Shrinking<'_> {
    /// Makes one finding of each group small, as far as the time goes.
    pub fn all(&self, totals: &Totals) -> Vec<Alike> {
        let mut groups = groups(&totals.findings);
        if groups.is_empty() {
            return groups;
        }
        let noun = if groups.len() == 1 { "finding" } else { "findings" };
        let (count, time) = (groups.len(), self.time.as_millis().div_ceil(1000));
        print::say(&format!("shrinking {count} {noun} within {time} s (`--no-shrink` leaves that out)"));
        let end = Instant::now() + self.time;
        for (at, group) in groups.iter_mut().enumerate() {
            // Each of those that are left gets the same share of the time.
            let left = end.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(count - at).unwrap_or(u32::MAX);
            let Ok(small) = &group.small else { continue };
            let dir = small.dir.clone();
            group.small = match () {
                () if self.signal.load(Ordering::Relaxed) => Err("interrupted".to_owned()),
                () if share < LEAST => Err("the time for shrinking was over".to_owned()),
                () => bug::contain(|| self.one(&dir, share))
                    .unwrap_or_else(|text| Err(Failure { code: exit::BUG, text }))
                    .map_err(|failure| failure.text),
            };
            if let Err(why) = &group.small {
                print::say(&format!("seed {} was not shrunk: {why}", group.seed));
            }
        }
        groups
    }

    fn one(&self, dir: &std::path::Path, share: Duration) -> Result<Small, Failure> {
        let stop = Stop::after(share + GRACE, self.signal.clone());
        let guard = Guard::start(self.memory, stop.flag.clone())?;
        let out = dir.join(finding::SHRUNK);
        let deadline = Some(Instant::now() + share);
        let limits = Limits { runs: RUNS, deadline, workers: cpus::jobs(), memory: self.memory };
        let order = Order {
            session: self.session.clone(),
            afresh: &|| Ok(self.session.clone()),
            chosen: self.chosen,
            interrupt: stop.flag.clone(),
            limits,
            out: &out,
            says: false,
        };
        let shrunk = order.carry_out(finding::load(dir)?).map_err(|failure| {
            let late = failure.code == exit::INTERRUPTED && !self.signal.load(Ordering::Relaxed);
            match late {
                true => guard.explain(Failure { text: "the time for shrinking was over".into(), ..failure }),
                false => failure,
            }
        })?;
        Ok(Small { dir: out, shrunk })
    }
}

/// Sets a flag when a signal comes or the time is over.
struct Stop {
    flag: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Stop {
    fn after(time: Duration, signal: Arc<AtomicBool>) -> Stop {
        let (flag, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (stop, ended, deadline) = (flag.clone(), over.clone(), Instant::now() + time);
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if signal.load(Ordering::Relaxed) || Instant::now() >= deadline {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                std::thread::sleep(LOOK);
            }
        });
        Stop { flag, over }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// The groups of findings in the order of their first seeds; of each the one is to be made small whose violation comes first, for its run is the shortest.
/// What `small` has until then is where that is, or why it cannot be.
fn groups(findings: &[Found]) -> Vec<Alike> {
    let rank = |found: &&Found| (found.kept.is_err(), found.violation.at, found.number);
    let alike = |(group, all): (Group, Vec<&Found>)| {
        let seeds = all.iter().map(|found| found.number).collect();
        let best = all.into_iter().min_by_key(rank)?;
        let small = match &best.kept {
            Ok(dir) => Ok(Small { dir: dir.clone(), shrunk: Shrunk::default() }),
            Err(why) => Err(format!("its files could not be written: {why}")),
        };
        Some(Alike { group, seeds, seed: best.number, small })
    };
    by_group(findings.iter().filter(|found| !found.live)).into_iter().filter_map(alike).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Violation;
    use bloodhound_abi::SimTime;

    fn found(seed: u64, at: u64, text: &str, kept: bool) -> Found {
        let (property, kind, text) = ("p".to_owned(), "safety".to_owned(), text.to_owned());
        Found {
            number: seed,
            name: format!("seed {seed}"),
            branched: None,
            standing: Default::default(),
            seed,
            violation: Violation { index: Some(0), property, kind, at: SimTime(at), text },
            digest: String::new(),
            profile: String::new(),
            faults: Vec::new(),
            kept: if kept { Ok(PathBuf::from(format!("seed-{seed}"))) } else { Err("full".into()) },
            live: false,
        }
    }

    #[test]
    fn findings_are_grouped_by_how_they_fail() {
        let findings = [
            found(1, 90, "kv1 ended: exit code 1", true),
            found(2, 50, "kv2 ended: exit code 137", true),
            found(3, 10, "kv3 ended: exit code 1", false),
            found(4, 40, "kv3 ended: exit code 1\n  more", true),
        ];
        let groups = groups(&findings);
        let told: Vec<(u64, &[u64])> = groups.iter().map(|group| (group.seed, &group.seeds[..])).collect();
        assert_eq!(told, [(4, &[1, 3, 4][..]), (2, &[2][..])]);
        assert_eq!(groups[0].small.as_ref().map(|small| small.dir.clone()), Ok(PathBuf::from("seed-4")));
        let live = Found { live: true, ..found(1, 1, "x", true) };
        assert!(super::groups(&[live]).is_empty());
    }
}
