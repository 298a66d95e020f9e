//! Another run that fails in the same way: where more is left than a reader would like, all is drawn anew from the boot on.
//!
//! To leave out one thing after the other keeps what the failure needs for its times, and a rare moment may need dozens of operations, or all faults. The same
//! faults and clients come upon such a moment in other ways, too: with few operations seldom, but runs of few operations are short. So runs are
//! tried in which workload and faults are over after about so many operations: half of them with all operations on the key of the violation, for a few operations on
//! one key are worth dozens of them on many; and three of four with all kinds of faults as strong as they can be, for little time needs many. What fails is made
//! smaller in place of the run that the search had, and given back if more is left of it.
//! Neighbours: `luck`, which draws parts of a run anew; `case`, which knows the choices; `search`, which leaves out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Choice, Concern, Log, Override, Part};
use bloodhound_workloads::http::key_place;

use super::case;
use super::luck::FEW_OPERATIONS;
use super::pool::Ran;
use super::search::{Dimension, FEW, OPERATIONS, ROUND, Search};
use crate::session::Failure;

/// Operations that such runs have, about, and how many runs of each length are tried.
const LENGTHS: [usize; 5] = [12, 24, 48, 96, 192];
const DRAWS: usize = 8 * ROUND;
/// Without so many operations before the violation: parts of the time until then.
const PARTS: [u64; 4] = [16, 8, 4, 2];
/// With fewer runs left, those are for the run that the search has.
const WORTH: u32 = 6 * DRAWS as u32;
/// The same for those for which there seems to be time: with fewer, none is found that can be made small.
const WORTH_IN_TIME: u32 = 2 * DRAWS as u32;
/// So many other runs may be made smaller.
const MOST: u32 = 3;

/// What a search comes back to if another run is of no use.
struct Kept {
    ran: Ran,
    dimensions: Vec<Dimension>,
    settled: BTreeMap<&'static str, Arc<Log>>,
    drawn_anew: bool,
    whole: bool,
    shared: u32,
    budget: u32,
}

/// What came of looking for another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Found,
    /// None of those that were tried fails in the same way.
    Nothing,
    /// There was no room to try all of them.
    NotAll,
}

/// What is to be made smaller of another run, and so by what it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// No more faults than a reader would like.
    FewFaults,
    /// Less of all than is left of the run that the search has.
    Less,
}

impl Search<'_> {
    /// Whether more is left than a reader would like.
    pub(super) fn is_large(&self) -> bool {
        excess(&self.ran).0 > 0
    }

    /// Makes another run smaller that fails in the same way, with at most half of the runs that are left. Whether that was of use; else the search goes on where it was.
    pub(super) fn another_run(&mut self, wanted: Wanted) -> Result<bool, Failure> {
        while self.others < MOST && self.left() >= WORTH && self.part(1) >= WORTH_IN_TIME {
            self.others += 1;
            let kept = Kept {
                ran: self.ran.clone(),
                dimensions: self.dimensions.clone(),
                settled: self.settled.clone(),
                drawn_anew: self.drawn_anew,
                whole: self.whole,
                shared: self.shared,
                budget: self.budget,
            };
            self.budget = self.runs + self.left() / 2;
            self.share(OPERATIONS);
            let looked = self.afresh()?;
            if looked == Looked::Found {
                self.which_faults()?;
                if wanted == Wanted::Less {
                    self.which_operations(false)?;
                }
                let useful = match wanted {
                    // What is left of operations says little while those of the run before are still to be left out.
                    Wanted::FewFaults => case::faults(&self.ran).len() <= FEW,
                    Wanted::Less => {
                        let faults = |ran| case::faults(ran).len();
                        faults(&self.ran) <= faults(&kept.ran).max(2 * FEW)
                            && excess(&self.ran) < excess(&kept.ran)
                    }
                };
                if useful {
                    self.budget = kept.budget;
                    return Ok(true);
                }
            }
            self.give_back(kept);
            match looked {
                Looked::Found if wanted == Wanted::Less => {}
                Looked::Found => break,
                // Others would hardly be found either.
                Looked::Nothing => self.others = MOST,
                Looked::NotAll => {
                    self.others -= 1;
                    break;
                }
            }
        }
        Ok(false)
    }

    fn give_back(&mut self, kept: Kept) {
        let Kept { ran, dimensions, settled, drawn_anew, whole, shared, budget } = kept;
        (self.ran, self.dimensions, self.settled) = (ran, dimensions, settled);
        (self.drawn_anew, self.whole, self.budget) = (drawn_anew, whole, budget);
        self.shared = shared;
        self.share(shared);
    }

    /// Goes on with another run, if there is one among those that are tried.
    fn afresh(&mut self) -> Result<Looked, Failure> {
        let (on_key, strongest) = (self.on_key(), case::strongest(&self.first.outcome));
        self.whole = true;
        let base = base_of(&self.first.outcome.decisions, case::ready(&self.first.outcome));
        for end in self.ends() {
            if self.left() < 2 * DRAWS as u32 {
                return Ok(Looked::NotAll);
            }
            let other = case::cut(&self.first.outcome, &base, end);
            let with = |log: &Log, more: &[(Choice, Override)]| {
                let mut log = log.clone();
                log.overrides.extend(more.iter().copied());
                log
            };
            let keyed = with(&other, &on_key);
            let strong = [with(&keyed, &strongest), with(&other, &strongest)];
            let as_drawn = [keyed, other];
            let draws: Vec<Log> = (0..DRAWS)
                .map(|nth| {
                    self.tries += 1;
                    // Every fourth round has faults as they are drawn.
                    let logs = if nth / ROUND % 4 == 3 { &as_drawn } else { &strong };
                    case::drawn_anew(&self.first, &logs[nth % 2], &Concern::OF_RUN, self.tries)
                })
                .collect();
            if let Some(found) = self.first_of(draws)?
                && self.look(found)?
            {
                self.begin_with_another();
                return Ok(Looked::Found);
            }
        }
        Ok(if self.late { Looked::NotAll } else { Looked::Nothing })
    }

    /// What is known of dimensions was of the run before.
    fn begin_with_another(&mut self) {
        self.drawn_anew = true;
        let left = [
            ("faults", case::faults(&self.ran).len()),
            ("operations", case::operations_out(&self.ran).len()),
        ];
        self.dimensions.retain(|known| left.iter().any(|(name, _)| *name == known.name));
        for known in &mut self.dimensions {
            let count = left.iter().find(|(name, _)| *name == known.name).map_or(0, |(_, count)| *count);
            (known.after, known.minimal) = (count, false);
        }
        let [(_, faults), (_, operations)] = left;
        self.tell(&format!(
            "another run fails in the same way: {faults} faults, {operations} operations after {} runs",
            self.runs
        ));
    }

    /// When workload and faults of such runs are over: when the finding has begun so many operations, before its violation, or else after parts of the time until then.
    fn ends(&self) -> Vec<SimTime> {
        let outcome = &self.first.outcome;
        let Some(violation) = self.target.violated(outcome) else { return Vec::new() };
        let mut begins: Vec<SimTime> =
            outcome.history.operations().iter().map(|operation| operation.invoke).collect();
        begins.sort_unstable();
        begins.retain(|begin| *begin < violation.at);
        let ends: Vec<SimTime> = LENGTHS.iter().filter_map(|length| begins.get(*length).copied()).collect();
        if !ends.is_empty() {
            return ends;
        }
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

/// The log of a finding without what it says of the run behind its boot, for that is drawn anew: what stays is what no seed draws of the faults, and where workload and
/// faults end.
fn base_of(log: &Log, ready: SimTime) -> Log {
    let mut log = log.clone();
    log.epochs.retain(|epoch| epoch.from <= ready.0);
    log.plain.retain(|concern| !Concern::OF_RUN.contains(concern));
    log.overrides.retain(|choice, recorded| {
        choice.part == Part::Boot
            || !Concern::OF_RUN.contains(&choice.site.concern())
            || case::is_of_configuration(choice, *recorded)
    });
    log.switches = None;
    log.counted.clear();
    log
}

/// How much more is left of a run than a reader would like, and how much in all: faults and operations. A fault takes as long to understand as some operations.
fn excess(ran: &Ran) -> (usize, usize) {
    const FAULT: usize = 4;
    let (faults, operations) = (case::faults(ran).len(), case::operations_out(ran).len());
    let more = FAULT * faults.saturating_sub(FEW) + operations.saturating_sub(FEW_OPERATIONS);
    (more, faults + operations)
}

#[cfg(test)]
mod tests {
    use bloodhound_decisions::{Epoch, Site, Word};
    use bloodhound_sim::faults::phase_end;
    use bloodhound_workloads::http::{left_out, workload_end};

    use super::*;

    /// Of a log of a search, or of a finding that was shrunk, nothing stays that would make the next draws those of the finding.
    #[test]
    fn a_run_is_drawn_anew_whatever_the_finding_says_of_its_own() {
        let of = |part, site| Choice { part, site };
        let arrival = Site::Arrival { worker: 0, nth: 1 };
        let boot = of(Part::Boot, arrival);
        let (ends, faults_end) = (of(Part::Run, workload_end()), of(Part::Run, phase_end()));
        let mut log = Log::new(3, 4)
            .with(boot, 9, 1)
            .with(of(Part::Run, arrival), 9, 1)
            .with(of(Part::Run, left_out(1, 2)), 9, 1)
            .with(of(Part::Run, Site::Swarm { kind: Word::new("drop") }), 6, 3)
            .with(ends, 9, 1)
            .with(faults_end, 9, 1);
        log.plain = vec![Concern::Network, Concern::Nodes];
        log.switches = Some(Vec::new());
        log.epochs = [7, 8].map(|from| Epoch { from, seed: 1, concerns: vec![Concern::Faults] }).to_vec();
        let base = base_of(&log, SimTime(7));
        assert_eq!(base.overrides.keys().copied().collect::<Vec<_>>(), {
            let mut left = vec![boot, ends, faults_end];
            left.sort_unstable();
            left
        });
        assert_eq!(
            (base.boot_seed, base.seed, base.plain, base.switches),
            (3, 4, vec![Concern::Nodes], None)
        );
        assert_eq!(base.epochs.iter().map(|epoch| epoch.from).collect::<Vec<_>>(), [7]);
    }
}
