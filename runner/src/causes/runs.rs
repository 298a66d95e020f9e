//! The runs of a search for causes: logs are run, within a budget, and each ends in one of four ways.
//!
//! Key types: [`Runs`], [`End`], [`Base`] (the failing run that everything is compared with). Rounds are answered in order, so what comes of them is a
//! function of the finding and of the budget. A future is a log with an epoch. What is the failing run until a moment begins at a snapshot of it (`shrink::starts`):
//! [`Runs::judge`] is the one place that runs logs.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Log, Made};
use bloodhound_sim::faults::{Effect, Planned};

use crate::group::Group as Target;
use crate::plan::Property;
use crate::session::{Ending, Failure, Outcome, Stopped};
use crate::shrink::case::services_ready;
use crate::shrink::pool::{Pool, Ran};
use crate::shrink::search::interrupted;
use crate::shrink::starts::Starts;

/// So many runs are kept in memory at the same time.
const ROUND: usize = 8;

/// How a run ends, as far as a failure is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It fails in the same way.
    Fails,
    /// It came to its end, and nothing was violated.
    Passes,
    /// It violates something else: which property.
    Otherwise(String),
    /// There is no telling, and why.
    Unknown(String),
}

impl End {
    /// How a run has ended.
    pub fn of(outcome: &Outcome, target: &Target, properties: &[Property]) -> End {
        if target.violated(outcome).is_some() {
            return End::Fails;
        }
        match &outcome.stopped {
            Some(Stopped::Undecided(why) | Stopped::Unsupported(why)) => return End::Unknown(why.clone()),
            Some(Stopped::Interrupted) => return End::Unknown("interrupted".into()),
            None => {}
        }
        if let Some(violation) = outcome.violations.first() {
            return End::Otherwise(violation.property.clone());
        }
        target.unjudged(properties, &outcome.judged).map_or(End::Passes, End::Unknown)
    }
}

/// What runs logs.
pub struct Runs<'a> {
    pub pool: &'a Pool,
    pub target: Target,
    pub properties: &'a [Property],
    /// Runs that were made, and how many there may be.
    pub made: u32,
    pub budget: u32,
    /// The time is over.
    pub late: bool,
    /// Where runs begin.
    pub starts: Starts,
    /// The failing run, once it is known, and when it fails: others are it until a moment, or but for a few choices.
    pub near: Option<(Ran, SimTime)>,
}

impl Runs<'_> {
    /// How many runs may still be made.
    pub fn left(&self) -> u32 {
        if self.late { 0 } else { self.budget.saturating_sub(self.made) }
    }

    /// How these logs end, in their order; fewer answers if the budget or the time is over.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn judge(&mut self, logs: impl IntoIterator<Item = Log>) -> Result<Vec<End>, Failure> {
        let mut ends = Vec::new();
        // Logs of whole runs are large: a round at a time is made.
        let mut logs = logs.into_iter().take(self.left() as usize);
        loop {
            let round: Vec<Log> = logs.by_ref().take(ROUND).collect();
            if round.is_empty() {
                return Ok(ends);
            }
            let wanted = round.len();
            let near = self.near.as_ref().map(|(ran, at)| (ran, *at));
            let rans = self.pool.round(round, &self.ending(), (&mut self.starts, near))?;
            self.made += rans.len() as u32;
            self.late |= rans.len() < wanted;
            for ran in &rans {
                ends.push(self.end(&ran.outcome)?);
            }
            if self.late {
                return Ok(ends);
            }
        }
    }

    /// Whether logs fail in the same way.
    ///
    /// # Errors
    /// As [`Runs::judge`].
    pub fn fails(&mut self, logs: impl IntoIterator<Item = Log>) -> Result<Vec<bool>, Failure> {
        Ok(self.judge(logs)?.into_iter().map(|end| end == End::Fails).collect())
    }

    /// Runs a log and keeps its choices, whatever the time is.
    ///
    /// # Errors
    /// As [`Runs::judge`].
    pub fn look(&mut self, log: Log) -> Result<(Ran, End), Failure> {
        let ran = self.pool.look(log, Ending::at(SimTime::MAX))?;
        self.made += 1;
        let end = self.end(&ran.outcome)?;
        Ok((ran, end))
    }

    /// Runs come to their end, unless they fail in the same way before: nothing else is asked of them then.
    fn ending(&self) -> Ending {
        let Some((near, at)) = &self.near else { return Ending::at(SimTime::MAX) };
        let took = at.since(services_ready(&near.outcome).unwrap_or_default());
        Ending::when_violated(SimTime::MAX, (*at, took), &self.target)
    }

    fn end(&self, outcome: &Outcome) -> Result<End, Failure> {
        match &outcome.stopped {
            Some(Stopped::Interrupted) => Err(interrupted()),
            _ => Ok(End::of(outcome, &self.target, self.properties)),
        }
    }
}

/// The failing run.
pub struct Base {
    pub ran: Ran,
    /// Its log.
    pub log: Log,
    /// Its choices after the boot, in order, with their times.
    pub choices: Vec<(SimTime, Made)>,
    /// When its services were ready, and when the property was violated.
    pub from: SimTime,
    pub until: SimTime,
}

impl Base {
    /// The run, with its choices, and when it fails.
    pub fn near(&self) -> (Ran, SimTime) {
        let made = self.choices.iter().map(|(at, made)| Made { at: at.0, ..*made }).collect();
        (Ran { outcome: self.ran.outcome.clone(), made }, self.until)
    }

    /// The base of a run that fails; `None` if it does not.
    pub fn new(ran: Ran, choices: Vec<(SimTime, Made)>, target: &Target) -> Option<Base> {
        let until = target.violated(&ran.outcome)?.at;
        let from = services_ready(&ran.outcome).unwrap_or_default();
        let log = (*ran.outcome.decisions).clone();
        Some(Base { ran, log, choices, from, until })
    }

    /// The faults of the plan that began before the violation, in order of time.
    pub fn faults(&self) -> impl Iterator<Item = &Planned> {
        let begun = self
            .ran
            .outcome
            .record()
            .filter(|(entry, effect)| *effect == Effect::Begun && entry.begin <= self.until);
        begun.map(|(entry, _)| entry)
    }
}
