//! Where the run of a log begins: at a snapshot of another run that is the same until then, instead of at the end of the boot.
//!
//! What is tried of a finding differs from a run that is known in a few choices, mostly in late ones, for what matters of a failing run lies at its end. When each choice of
//! that run was made is known ([`Times`]), so it is known until when another log gives the same run ([`Times::until`]). Where there is much to be saved, the known run is made
//! once more and leaves snapshots ([`Base`]). A run that begins at one is the run from the boot on, choices included, so snapshots are a cache and nothing that is found depends on
//! them. Neighbours: `pool` carries runs out, `search` and `causes` ask for rounds of them, [`crate::branch`] has the snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::{ANEW, AT_ITS_TIME, Choice, LATER, Log, Made, Override, Part, Site, Word};
use bloodhound_sim::faults::{BEGINS_AT, STRENGTH};

use super::case::{self, is_said};
use super::pool::Ran;
use crate::branch::Point;

/// So many operations and faults of a run have snapshots before them.
const POINTS: usize = 5;
/// A snapshot is taken so long before something that may be left out, for it lies at the first moment of the run that comes then; and one before what may begin earlier.
const BEFORE: [u64; 2] = [100 * MILLIS, 700 * MILLIS];
/// An epoch begins at the first moment of a run that comes then, which is hardly more than so much later.
const EPOCH: u64 = 20 * MILLIS;
/// One run, in millionths.
const RUN: u64 = 1_000_000;
/// Snapshots are taken anew when those that there are have cost so much more than the best ones would have: a run with snapshots takes a little longer than one without.
const WORTH: u64 = RUN * 3 / 2;

/// When what a run did was decided, ns.
#[derive(Debug)]
struct Times {
    log: Arc<Log>,
    /// When each choice was made first.
    made: BTreeMap<Choice, u64>,
    /// When each operation began, by the choice that leaves it out.
    operations: BTreeMap<Choice, u64>,
    /// When each entry of the plan of faults began or would have, by kind, target and number.
    faults: BTreeMap<(Word, u32, u64), u64>,
    /// When the run went on from its boot, and when faults could begin.
    ready: u64,
    faults_begin: u64,
}

/// A run with snapshots along it.
#[derive(Debug)]
pub struct Base {
    times: Times,
    /// In order of time.
    points: Vec<Arc<Point>>,
    /// The choices of the run.
    made: Vec<Made>,
}

/// Where a run may begin.
#[derive(Clone, Debug)]
pub struct Start {
    base: Arc<Base>,
    /// At the last of so many snapshots of it, or at one before.
    points: usize,
    /// The log gives other entries to the plan of faults.
    pub faults_differ: bool,
}

/// A run that is to be made for its snapshots.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub log: Log,
    /// Where snapshots are wanted.
    pub stops: Vec<SimTime>,
    /// When it may end.
    pub until: SimTime,
}

/// The snapshots that there are, and whether others are worth their run.
#[derive(Debug, Default)]
pub struct Starts {
    base: Option<Arc<Base>>,
    /// The run that logs were near last.
    near: Option<Times>,
    /// What better snapshots would have saved, in millionths of a run.
    missed: u64,
}

impl Times {
    fn of(ran: &Ran) -> Times {
        let outcome = &ran.outcome;
        let mut made = BTreeMap::new();
        for one in &ran.made {
            made.entry(one.choice).or_insert(one.at);
        }
        let operations = case::operations(outcome);
        let operations = operations.iter().map(|done| (done.choice(), done.operation.invoke.0));
        let named = |entry: &bloodhound_sim::faults::Planned| {
            let id = entry.id;
            ((Word::new(id.kind.name()), id.target, id.nth), entry.begin.0)
        };
        Times {
            log: outcome.decisions.clone(),
            made,
            operations: operations.collect(),
            faults: outcome.plan.iter().map(named).collect(),
            ready: case::ready(outcome).0,
            faults_begin: case::faults_begin(outcome).0,
        }
    }

    /// Until when the run of a log is this one, ns, and whether it has other entries in its plan of faults, which is known of those that this run has. `None`: it may be
    /// another one from its boot on.
    fn until(&self, log: &Log) -> Option<(u64, bool)> {
        let known = &*self.log;
        if (log.boot_seed, log.seed, &log.plain, &log.switches)
            != (known.boot_seed, known.seed, &known.plain, &known.switches)
        {
            return None;
        }
        // A loop is counted from where it was found, which another run may have found elsewhere.
        if log.counted.iter().any(|counted| !known.counted.contains(counted)) {
            return None;
        }
        let (mut until, mut faults_differ) = (u64::MAX, false);
        let mut epochs = [log.epochs.iter(), known.epochs.iter()];
        loop {
            let [of_log, of_known] = &mut epochs;
            let (one, other) = (of_log.next(), of_known.next());
            if one != other {
                until = one.into_iter().chain(other).map(|epoch| epoch.from).fold(until, u64::min);
            }
            if one != other || one.is_none() {
                break;
            }
        }
        for choice in log.overrides.keys().chain(known.overrides.keys()) {
            let both = [log.overrides.get(choice), known.overrides.get(choice)];
            if both[0] == both[1] {
                continue;
            }
            let (at, of_plan) = self.decided(choice, both)?;
            until = until.min(at);
            faults_differ |= of_plan;
        }
        Some((until, faults_differ))
    }

    /// When it makes a difference what a log says of a choice, ns, and whether the plan of faults is another one by that. `None`: that is not known.
    fn decided(&self, choice: &Choice, said: [Option<&Override>; 2]) -> Option<(u64, bool)> {
        if choice.part == Part::Boot {
            return None;
        }
        if let Some(at) = self.operations.get(choice) {
            return Some((*at, false));
        }
        let made = self.made.get(choice).copied();
        if let Site::Fault { kind, target, nth, part } = choice.site {
            let begins = self.faults.get(&(kind, target, nth)).copied();
            if [AT_ITS_TIME, LATER].map(Word::new).contains(&part) {
                return Some((made.or(begins).unwrap_or(u64::MAX), false));
            }
            let drawn_later = made.is_some_and(|at| at > self.drawn_until(nth));
            if !drawn_later && !self.is_of_entry(choice) {
                return None;
            }
            if !drawn_later {
                let moved = said.into_iter().flatten().filter(|_| part == Word::new(BEGINS_AT));
                let moved = moved.map(|to| self.faults_begin.saturating_add(to.value));
                return Some((moved.chain(begins).min().unwrap_or(u64::MAX), true));
            }
        }
        // What the log does not speak of may have been asked about all the same.
        let asked = said.into_iter().flatten().any(|to| is_said(choice, *to)) && !self.is_left_out(choice);
        match made {
            Some(at) => Some((at, false)),
            None if asked => None,
            None => Some((u64::MAX, false)),
        }
    }

    /// When the plan was drawn that has the entry of this number.
    fn drawn_until(&self, nth: u64) -> u64 {
        let epochs = self.log.epochs.iter().map(|epoch| epoch.from);
        let last = epochs.filter(|_| nth >= ANEW).max().unwrap_or(0);
        // An epoch begins at the first moment of the run that comes then.
        self.ready.max(last.saturating_add(EPOCH))
    }

    /// Whether it is a choice about one entry of a plan that was drawn.
    fn is_of_entry(&self, choice: &Choice) -> bool {
        let Site::Fault { kind, nth, part, .. } = choice.site else { return false };
        let others = ["gap", STRENGTH, "which", "ends"].map(Word::new);
        let named = bloodhound_faults::Kind::DECLARATIONS.iter().any(|known| Word::new(known.name) == kind);
        named && !others.contains(&part) && nth < bloodhound_sim::faults::WRITTEN
    }

    /// Whether a choice leaves out an operation: one that this run has not begun is begun later, if at all.
    fn is_left_out(&self, choice: &Choice) -> bool {
        let Site::Operation { worker, nth, .. } = choice.site else { return false };
        choice.site == bloodhound_workloads::http::left_out(worker, nth)
    }

    /// Where snapshots are of use: before operations and faults, of which as many lie between one snapshot and the next.
    fn stops(&self, until: u64) -> Vec<SimTime> {
        let all = self.operations.values().chain(self.faults.values()).copied();
        let mut times: Vec<u64> = all.filter(|at| (self.ready..until).contains(at)).collect();
        times.sort_unstable();
        let mut stops: Vec<SimTime> = (0..POINTS)
            .filter_map(|nth| times.get(nth * times.len() / POINTS))
            .flat_map(|at| BEFORE.map(|before| at.saturating_sub(before)))
            .filter(|at| *at > self.ready)
            .map(SimTime)
            .collect();
        stops.sort_unstable();
        stops.dedup();
        stops
    }
}

impl Base {
    /// A run that has left snapshots, of which the first ones are kept that hold so many bytes at most; none of one that was given up.
    pub fn new(ran: Ran, mut points: Vec<Arc<Point>>, most: u64) -> Base {
        // Of what is not known to the end, choices may be missing.
        if ran.outcome.stopped.is_some() {
            points.clear();
        }
        let times = Times::of(&ran);
        let mut held = 0;
        // What one holds is counted at the first that holds it.
        let fit = points.iter().take_while(|point| {
            held += point.held_bytes();
            held <= most
        });
        let kept = fit.count();
        points.truncate(kept);
        Base { times, points, made: ran.made }
    }
}

impl Start {
    /// The time of the best of them.
    fn begins(&self) -> SimTime {
        self.base.points[self.points - 1].at
    }

    /// The snapshots at which the run may begin, the best first, with the choices of the run that left them.
    pub fn points(&self) -> (impl Iterator<Item = &Arc<Point>>, &[Made]) {
        (self.base.points[..self.points].iter().rev(), &self.base.made)
    }
}

impl Starts {
    /// Which run is worth to be made for its snapshots before those of these logs, which are near one that is known and fails at a time.
    pub fn wanted(&mut self, logs: &[Log], near: &Ran, violated: SimTime) -> Option<Wanted> {
        if self.near.as_ref().is_none_or(|known| !Arc::ptr_eq(&known.log, &near.outcome.decisions)) {
            self.near = Some(Times::of(near));
        }
        let times = self.near.as_ref()?;
        let long = violated.0.saturating_sub(times.ready).max(1);
        let share = |at: u64| {
            let into = u128::from(at.min(violated.0).saturating_sub(times.ready));
            (into * u128::from(RUN) / u128::from(long)) as u64
        };
        for log in logs {
            let possible = times.until(log).map_or(0, |(until, _)| share(until));
            let is = self.start(log).map_or(0, |start| share(start.begins().0));
            self.missed += possible.saturating_sub(is);
        }
        if self.missed < WORTH {
            return None;
        }
        self.missed = 0;
        self.base = None;
        let log = (*near.outcome.decisions).clone();
        Some(Wanted { log, stops: times.stops(violated.0), until: violated })
    }

    /// Gives up the snapshots.
    pub fn forget(&mut self) {
        self.base = None;
    }

    /// The snapshots of a run that was made for them.
    pub fn take(&mut self, base: Base) {
        self.base = Some(Arc::new(base));
    }

    /// Where the run of a log begins; `None`: at the end of its boot.
    pub fn start(&self, log: &Log) -> Option<Start> {
        let base = self.base.as_ref()?;
        let (until, faults_differ) = base.times.until(log)?;
        let points = base.points.partition_point(|point| point.at.0 < until);
        (points > 0).then(|| Start { base: base.clone(), points, faults_differ })
    }
}

#[cfg(test)]
mod tests;
