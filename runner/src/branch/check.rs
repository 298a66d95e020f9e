//! Whether what goes on from moments of a run is what it would be without that: for `verify --branches` and for tests.
//!
//! Key function: [`moments`]. From each of some moments the run goes on as it did, and with choices drawn anew; each must have the digest of its log from the boot on.

use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Concern, Dice, Epoch, Log, Mode};
use bloodhound_sim::World;

use super::{Point, Wish};
use crate::exit;
use crate::session::{Failure, Outcome, Stopped, Worker, host_failure};

/// Concerns of which an epoch of a branch has some. How nodes differ is drawn when they boot.
const CONCERNS: [Concern; 6] = [
    Concern::Scheduler,
    Concern::Network,
    Concern::Disk,
    Concern::GuestRandom,
    Concern::Workload,
    Concern::Faults,
];

/// So many points are held at the same time.
const HELD: u64 = 8;

/// Goes on from so many moments of the run of a seed. How many branches were other runs.
///
/// # Errors
/// What is not as it should be; what the host says; a run that does not come to its end.
pub fn moments(worker: &mut Worker, booted: &Arc<World>, seed: u64, count: u64) -> Result<u64, Failure> {
    let log = Log { seed, ..(**booted.decisions.log()).clone() };
    let (mut check, whole) = Check::new(worker, booted, log.clone())?;
    let log = with_loops(log, &whole);
    let mut left = count;
    while left > 0 {
        let now = left.min(HELD);
        check.moments(&log, &whole, now)?;
        left -= now;
    }
    Ok(check.others)
}

/// A run and what goes on from it.
struct Check<'a> {
    worker: &'a mut Worker,
    booted: Arc<World>,
    dice: Dice,
    /// The virtual time at which the run is over.
    end: SimTime,
    /// Branches that were other runs than the one that they branch off.
    others: u64,
}

impl<'a> Check<'a> {
    /// Of the run of a log.
    ///
    /// # Errors
    /// As [`Worker::go_on`]; a run that does not come to its end.
    fn new(worker: &'a mut Worker, booted: &Arc<World>, log: Log) -> Result<(Check<'a>, Outcome), Failure> {
        let dice = Dice::new(log.seed ^ 0x6272_616e_6368);
        let ready = worker.ready(booted, log.seed);
        let outcome = finished(worker.go_on(&ready, log, Wish::default())?.outcome)?;
        let end = outcome.virtual_time;
        Ok((Check { worker, booted: booted.clone(), dice, end, others: 0 }, outcome))
    }

    /// Goes on from so many moments of the run of a log, which has given `whole`: once as it did and once as another run, from one of whose moments another one
    /// goes on again. The worker and what was there before it do not matter, so moments are taken in no order.
    ///
    /// # Errors
    /// What is not as it should be; what the host says.
    fn moments(&mut self, log: &Log, whole: &Outcome, count: u64) -> Result<(), Failure> {
        let mut points = self.points(log, whole, count)?;
        while !points.is_empty() {
            let at = self.dice.below(points.len() as u64) as usize;
            let point = points.swap_remove(at);
            self.as_it_did(&point, whole)?;
            let (branch, points) = self.other(&point)?;
            if branch.digest != whole.digest {
                self.others += 1;
            }
            if let Some(further) = points.last() {
                let log = Log::clone(&further.log);
                let ran = self.worker.go_on(further, log, Wish::default())?;
                let what = || format!("a branch from {} that goes on from {}", point.at, further.at);
                same(&ran.outcome.digest, &branch.digest, what)?;
            }
        }
        Ok(())
    }

    /// Points at drawn moments of a run, taken on its way from the boot.
    fn points(&mut self, log: &Log, whole: &Outcome, count: u64) -> Result<Vec<Arc<Point>>, Failure> {
        let ready = self.worker.ready(&self.booted, log.seed);
        let span = whole.virtual_time.since(ready.at).max(1);
        let mut stops: Vec<SimTime> = (0..count).map(|_| ready.at.after(self.dice.below(span))).collect();
        stops.sort_unstable();
        let wish = Wish { stops: &stops, ..Wish::default() };
        let ran = self.worker.go_on(&ready, log.clone(), wish)?;
        same(&ran.outcome.digest, &whole.digest, || format!("a run in which {count} points were taken"))?;
        Ok(ran.points)
    }

    /// The run goes on from a point as it did, by way of points of its own; and the point comes back from its log.
    fn as_it_did(&mut self, point: &Point, whole: &Outcome) -> Result<(), Failure> {
        let left = whole.virtual_time.since(point.at).max(1);
        let stops = [point.at.after(left / 3), point.at.after(left / 2)];
        let wish = Wish { stops: &stops, ..Wish::default() };
        let ran = self.worker.go_on(point, Log::clone(&point.log), wish)?;
        same(&ran.outcome.digest, &whole.digest, || format!("the run that goes on from {}", point.at))?;
        for later in &ran.points {
            let again = self.worker.rebuild(&self.booted, &later.log, later.at)?;
            let what = || format!("the point at {} of a run that goes on from {}", later.at, point.at);
            same(&again.digest, &later.digest, what)?;
            same(&again.steps.to_string(), &later.steps.to_string(), what)?;
        }
        Ok(())
    }

    /// Another run goes on from a point, which its log gives from the boot on. With its points.
    fn other(&mut self, point: &Point) -> Result<(Outcome, Vec<Arc<Point>>), Failure> {
        let mut log = Log::clone(&point.log);
        let left = self.end.since(point.at).max(2);
        let from = point.at.0 + 1 + self.dice.below(left / 2);
        log.epochs.retain(|epoch| epoch.from <= point.at.0);
        let mut concerns: Vec<Concern> = CONCERNS.into_iter().filter(|_| self.dice.below(3) == 0).collect();
        if concerns.is_empty() {
            concerns.push(CONCERNS[self.dice.below(CONCERNS.len() as u64) as usize]);
        }
        log.epochs.push(Epoch { from, seed: self.dice.word(), concerns });
        let stops = [SimTime(from).after(left / 8)];
        let wish = Wish { stops: &stops, ..Wish::default() };
        let ran = self.worker.go_on(point, log.clone(), wish)?;
        // What it has learnt of tasks that compute is in its own log only; what it has drawn of switches is in either.
        let logs =
            [("its log", Log::clone(ran.log())), ("the log that was given", with_loops(log, &ran.outcome))];
        for (whose, log) in logs {
            let restored = World::clone(&self.booted);
            self.worker.restore(&restored);
            let outcome = self.worker.run_log(log, Mode::Lenient).map_err(host_failure)?;
            let what = || format!("a branch from {} and {whose} from the boot on", point.at);
            same(&outcome.digest, &ran.outcome.digest, what)?;
        }
        Ok((ran.outcome, ran.points))
    }
}

/// A log with the counted loops of a run.
fn with_loops(log: Log, outcome: &Outcome) -> Log {
    Log { counted: outcome.decisions.counted.clone(), ..log }
}

fn finished(outcome: Outcome) -> Result<Outcome, Failure> {
    match &outcome.stopped {
        Some(Stopped::Interrupted) => Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() }),
        Some(Stopped::Undecided(why)) => {
            let text = format!("seed {} cannot be compared: {why}", outcome.seed);
            Err(Failure { code: exit::INCONCLUSIVE, text })
        }
        Some(Stopped::Unsupported(_)) | None => Ok(outcome),
    }
}

fn same(digest: &str, expected: &str, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if digest == expected {
        return Ok(());
    }
    let text = format!("{}: {digest} instead of {expected}", what());
    Err(Failure { code: exit::NONDETERMINISM, text })
}
