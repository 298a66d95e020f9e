//! Another run that fails in the same way, and is shorter: where more is left than a reader would like, all is drawn anew from the boot on.
//!
//! What is left out of a run one after the other keeps what the failure needs for its times, and a rare moment may need dozens of operations, or all faults. The same
//! faults and clients come upon such a moment in other ways, too: with few operations seldom, but runs of few operations are short. So other runs are
//! tried in which workload and faults are over after about so many operations, half of them with all operations on the key of the violation, for a few operations on
//! one key are worth dozens of them on many. Neighbours: `luck`, which draws parts of a run anew; `case`, which knows the choices.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Choice, Concern, Log, Override, Part};
use bloodhound_workloads::http::key_place;

use super::case;
use super::luck::FEW_OPERATIONS;
use super::search::{FEW, ROUND, Search};
use crate::session::Failure;

/// Operations that such runs have, about, and how many runs of each length are tried.
const LENGTHS: [usize; 5] = [12, 24, 48, 96, 192];
const DRAWS: usize = 6 * ROUND;
/// Without operations: parts of the time until the violation.
const PARTS: [u64; 4] = [16, 8, 4, 2];
/// All that is drawn when the services are ready.
const DRAWN: [Concern; 6] = [
    Concern::Scheduler,
    Concern::Network,
    Concern::Disk,
    Concern::GuestRandom,
    Concern::Workload,
    Concern::Faults,
];

impl Search<'_> {
    /// Whether more is left than a reader would like.
    pub(super) fn is_large(&self) -> bool {
        case::faults(&self.ran).len() > FEW || case::operations_out(&self.ran).len() > FEW_OPERATIONS
    }

    /// Goes on with a shorter run, if there is one among those that are tried. Whether there is.
    pub(super) fn afresh(&mut self) -> Result<bool, Failure> {
        let on_key = self.on_key();
        let whole = std::mem::replace(&mut self.whole, true);
        let mut found = None;
        for end in self.ends() {
            let base = case::cut(&self.first.outcome, &self.first.outcome.decisions, end);
            let mut keyed = base.clone();
            keyed.overrides.extend(on_key.iter().copied());
            let draws: Vec<Log> = (0..DRAWS)
                .map(|nth| {
                    self.tries += 1;
                    let log = if nth % 2 == 0 { &keyed } else { &base };
                    case::drawn_anew(&self.first, log, &DRAWN, self.tries)
                })
                .collect();
            if self.left() > 2 * DRAWS as u32 {
                found = self.first_of(draws)?;
            }
            if found.is_some() {
                break;
            }
        }
        let failed = match found {
            Some(log) => self.look(log)?,
            None => false,
        };
        self.whole = whole;
        self.drawn_anew |= failed;
        if failed {
            self.tell(&format!(
                "another run fails in the same way, and is shorter: {} faults, {} operations after {} runs",
                case::faults(&self.ran).len(),
                case::operations_out(&self.ran).len(),
                self.runs
            ));
        }
        Ok(failed)
    }

    /// When workload and faults of such runs are over: when the finding has begun so many operations, or without a workload after parts of the time until its violation.
    fn ends(&self) -> Vec<SimTime> {
        let outcome = &self.first.outcome;
        let mut begins: Vec<SimTime> =
            outcome.history.operations().iter().map(|operation| operation.invoke).collect();
        begins.sort_unstable();
        if !begins.is_empty() {
            return LENGTHS.iter().filter_map(|length| begins.get(*length).copied()).collect();
        }
        let Some(violation) = self.target.violated(outcome) else { return Vec::new() };
        let begin = case::faults_begin(outcome);
        PARTS.iter().map(|part| begin.after(violation.at.0.saturating_sub(begin.0) / part)).collect()
    }

    /// What puts all operations on the key of one that the violation names.
    fn on_key(&self) -> Vec<(Choice, Override)> {
        let Some(violation) = self.violation() else { return Vec::new() };
        let operations = case::operations(&self.ran.outcome);
        let (named, _) = case::concerned(&operations, &violation.text);
        let Some(named) = named.first().map(|at| &operations[*at]) else { return Vec::new() };
        let places = self.ran.made.iter().filter_map(|made| Some((made, key_place(&made.choice.site)?)));
        let places: Vec<_> =
            places.filter(|(_, place)| (place.worker, place.nth) == (named.worker, named.nth)).collect();
        let longest = LENGTHS.into_iter().max().unwrap_or_default() as u64;
        let workers = operations.iter().map(|done| done.worker).max().unwrap_or_default();
        let mut out = Vec::new();
        for worker in 0..=workers {
            for nth in 0..longest {
                for (made, place) in &places {
                    let choice = Choice { part: Part::Run, site: place.of(worker, nth) };
                    out.push((choice, Override { bound: made.bound, value: made.value }));
                }
            }
        }
        out
    }
}
