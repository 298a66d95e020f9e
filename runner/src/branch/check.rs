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

/// So many points are held at the same time.
const HELD: u64 = 8;
/// After so many attempts in a row that give no point, it is given up: moments are drawn, and after the last event of a run there are none.
const FRUITLESS: u32 = 4;

/// What was compared.
#[derive(Debug, Default)]
pub struct Checked {
    /// The digest of the run.
    pub digest: String,
    /// The moments of it from which others went on.
    pub moments: u64,
    /// Branches that were other runs.
    pub others: u64,
}

impl Checked {
    /// What was compared if it was the run with this digest, and from any moment.
    ///
    /// # Errors
    /// It was not.
    pub fn require_run(self, digest: &str) -> Result<Checked, Failure> {
        same(&self.digest, digest, || "the run that others branch off".to_owned())?;
        if self.moments == 0 {
            let text = "there is no moment of the run from which others could go on".to_owned();
            return Err(Failure { code: exit::INCONCLUSIVE, text });
        }
        Ok(self)
    }
}

/// Goes on from so many moments of the run of a log, or from fewer if it has not as many.
///
/// # Errors
/// What is not as it should be; what the host says; a run that does not come to its end.
pub fn moments(worker: &mut Worker, booted: &Arc<World>, log: Log, count: u64) -> Result<Checked, Failure> {
    let (mut check, whole) = Check::new(worker, booted, log.clone())?;
    let log = with_loops(log, &whole);
    let (mut moments, mut fruitless) = (0, 0);
    while moments < count && fruitless < FRUITLESS {
        let taken = check.moments(&log, &whole, HELD.min(count - moments))?;
        moments += taken;
        fruitless = if taken == 0 { fruitless + 1 } else { 0 };
    }
    check.worker.machine.trust_log(false);
    Ok(Checked { digest: whole.digest, moments, others: check.others })
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
    /// Of the run of a log. Loops depend on the host's speed: what this run finds, or has in its log if that is trusted, is given to those that are compared with it.
    ///
    /// # Errors
    /// As [`Worker::go_on`]; a run that does not come to its end.
    fn new(worker: &'a mut Worker, booted: &Arc<World>, log: Log) -> Result<(Check<'a>, Outcome), Failure> {
        let dice = Dice::new(log.seed ^ 0x6272_616e_6368);
        let ready = worker.ready(booted, log.seed);
        let mut check = Check { worker, booted: booted.clone(), dice, end: ready.at, others: 0 };
        let (outcome, _) = check.go(&ready, log, &[])?;
        check.end = outcome.virtual_time;
        check.worker.machine.trust_log(true);
        Ok((check, outcome))
    }

    /// The run that goes on from a point by a log, which has come to its end, and points at these times.
    fn go(
        &mut self,
        from: &Point,
        log: Log,
        stops: &[SimTime],
    ) -> Result<(Outcome, Vec<Arc<Point>>), Failure> {
        let ran = self.worker.go_on(from, log, Wish { stops, ..Wish::default() })?;
        Ok((finished(ran.outcome)?, ran.points))
    }

    /// The run of a log from the boot on, which has come to its end.
    fn replay(&mut self, log: Log) -> Result<Outcome, Failure> {
        self.worker.restore(&self.booted);
        finished(self.worker.run_log(log, Mode::Lenient).map_err(host_failure)?)
    }

    /// Goes on from so many moments of the run of a log, which has given `whole`: once as it did and once as another run, from one of whose moments another one
    /// goes on again. The worker and what was there before it do not matter, so moments are taken in no order. How many there were.
    ///
    /// # Errors
    /// What is not as it should be; what the host says.
    fn moments(&mut self, log: &Log, whole: &Outcome, count: u64) -> Result<u64, Failure> {
        let mut points = self.points(log, whole, count)?;
        let taken = points.len() as u64;
        while !points.is_empty() {
            let at = self.dice.below(points.len() as u64) as usize;
            let point = points.swap_remove(at);
            self.as_it_did(&point, whole)?;
            let (branch, points) = self.other(&point)?;
            if branch.digest != whole.digest {
                self.others += 1;
            }
            if let Some(further) = points.last() {
                let log = with_loops(Log::clone(&further.log), &branch);
                let (again, _) = self.go(further, log, &[])?;
                let what = || format!("a branch from {} that goes on from {}", point.at, further.at);
                same(&again.digest, &branch.digest, what)?;
            }
        }
        Ok(taken)
    }

    /// Points at drawn moments of a run, taken on its way from the boot.
    fn points(&mut self, log: &Log, whole: &Outcome, count: u64) -> Result<Vec<Arc<Point>>, Failure> {
        let ready = self.worker.ready(&self.booted, log.seed);
        let span = whole.virtual_time.since(ready.at).max(1);
        let mut stops: Vec<SimTime> = (0..count).map(|_| ready.at.after(self.dice.below(span))).collect();
        stops.sort_unstable();
        let (outcome, points) = self.go(&ready, log.clone(), &stops)?;
        same(&outcome.digest, &whole.digest, || {
            format!("a run in which {} points were taken", points.len())
        })?;
        Ok(points)
    }

    /// The run goes on from a point as it did, by way of points of its own; and the point comes back from its log.
    fn as_it_did(&mut self, point: &Point, whole: &Outcome) -> Result<(), Failure> {
        let left = whole.virtual_time.since(point.at).max(1);
        let stops = [point.at.after(left / 3), point.at.after(left / 2)];
        let (outcome, points) = self.go(point, Log::clone(&point.log), &stops)?;
        same(&outcome.digest, &whole.digest, || format!("the run that goes on from {}", point.at))?;
        for later in &points {
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
        let mut concerns: Vec<Concern> =
            Concern::OF_RUN.into_iter().filter(|_| self.dice.below(3) == 0).collect();
        if concerns.is_empty() {
            concerns.push(Concern::OF_RUN[self.dice.below(Concern::OF_RUN.len() as u64) as usize]);
        }
        log.epochs.push(Epoch { from, seed: self.dice.word(), concerns });
        let stops = [SimTime(from).after(left / 8)];
        // What computes in it is found by it, and given to those that are compared with it.
        self.worker.machine.trust_log(false);
        let branched = self.go(point, log.clone(), &stops);
        self.worker.machine.trust_log(true);
        let (branch, points) = branched?;
        // What it has learnt of tasks that compute is in its own log only; what it has drawn of switches is in either.
        let logs = [
            ("its log", Log::clone(&branch.decisions)),
            ("the log that was given", with_loops(log, &branch)),
        ];
        for (whose, log) in logs {
            let outcome = self.replay(log)?;
            let what = || format!("a branch from {} and {whose} from the boot on", point.at);
            same(&outcome.digest, &branch.digest, what)?;
        }
        Ok((branch, points))
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
