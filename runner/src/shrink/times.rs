//! When the faults of a run begin: each gets a time amid those at which it fails, and of these a round one.
//!
//! A fault that a seed draws may begin just before the last moment at which it does harm. Whatever is left out then moves the rest by a little, and the run
//! passes; with the fault amid the times that will do, more can be left out. What is found is told in the story as well: how narrow the time is in which a fault must come is
//! often the best hint at what is wrong. Key type: [`Window`]. Neighbours: `search`, which calls this; `case`, the log of a run in which a fault begins elsewhere.

use std::collections::BTreeSet;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::Log;
use bloodhound_faults::Begins;
use bloodhound_sim::faults::{FaultId, Planned};

use super::case;
use super::pool::Ran;
use super::search::{ROUND, Search};
use crate::session::{Failure, Outcome};

/// By how much a fault is moved first, ns: the times of one round, rising.
const STEPS: [u64; ROUND] = [MILLIS, 8 * MILLIS, 64 * MILLIS, 512 * MILLIS];
/// By how much it is moved to see whether there is need for that. What is left out moves the rest of a run by less.
const NEAR: [u64; ROUND / 2] = [8 * MILLIS, 64 * MILLIS];
/// Runs that one fault takes at most: both ways, two rounds each, and the look at what is found.
const MOST: u32 = 4 * ROUND as u32 + 1;
/// Times that are read easily are multiples of one of these, in ms; those of the first are preferred.
const ROUND_TIMES: [u64; 9] = [1000, 500, 100, 50, 20, 10, 5, 2, 1];

/// The times at which a fault may begin, with all else as it is: the run fails with the fault at `from` and at `to`, and at those times between them that were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub id: FaultId,
    pub from: SimTime,
    pub to: SimTime,
    /// It was not found to end there: further away was not tried.
    pub open: (bool, bool),
}

impl Window {
    /// The roundest time in the middle half of it, as times are told: since the beginning of the run.
    fn middle(&self) -> SimTime {
        let (from, long) = (self.from.0, self.to.0.saturating_sub(self.from.0));
        let (low, high) = (from + long / 4, from + long - long / 4);
        let multiple = |millis: u64| {
            let unit = millis * MILLIS;
            let nearest = (from + long / 2 + unit / 2) / unit * unit;
            (low..=high).contains(&nearest).then_some(SimTime(nearest))
        };
        ROUND_TIMES.into_iter().find_map(multiple).unwrap_or(SimTime(from + long / 2))
    }
}

/// Earlier or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Earlier,
    Later,
}

/// How far a fault was moved one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reach {
    /// The furthest that fails, with all that are nearer and were tried.
    fails: u64,
    /// The nearest that passes, if one does.
    passes: Option<u64>,
    /// Further away is no time for a fault.
    is_end: bool,
}

impl Reach {
    /// By the answers to steps that are times for a fault, which are the first ones of these.
    fn of(steps: &[u64], answers: &[bool]) -> Reach {
        let failed = answers.iter().take_while(|fails| **fails).count();
        Reach {
            fails: failed.checked_sub(1).map_or(0, |last| steps[last]),
            passes: steps.get(failed).copied().filter(|_| failed < answers.len()),
            is_end: failed == answers.len() && answers.len() < steps.len(),
        }
    }
}

/// What came of moving a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// It was there already.
    Stays,
    /// It fails, and is the run that is looked at from now on.
    Fails,
    /// It passes, or there is no room for the fault there.
    Passes,
}

impl Search<'_> {
    /// Moves each fault amid the times at which it may begin that is near the first or the last of these, with at most so many runs.
    pub(super) fn narrow_times(&mut self, most: u32) -> Result<(), Failure> {
        let (begun, mut moved) = (self.runs, 0);
        for id in self.with_times() {
            let may = self.left() > MOST && self.runs - begun + MOST <= most;
            let Some(at) = self.begin(id).filter(|_| may) else { break };
            let Some(reached) = self.near(id, at)? else { continue };
            let window = self.narrowed(id, at, reached)?;
            if self.late {
                break;
            }
            moved += u32::from(self.move_to(id, window.middle())? == Move::Fails);
        }
        if moved > 0 {
            self.tell(&format!(
                "{moved} faults amid the times at which they may begin after {} runs",
                self.runs
            ));
        }
        Ok(())
    }

    /// How far a fault may be moved each way, in one round of runs; `None` if that is far enough, or is not known.
    fn near(&mut self, id: FaultId, at: SimTime) -> Result<Option<(Reach, Reach)>, Failure> {
        let ways = [Way::Earlier, Way::Later].map(|way| self.moved_by(id, at, (way, &NEAR)));
        let all: Vec<(SimTime, Log)> = ways.iter().flatten().cloned().collect();
        let mut answers = self.fail_there(id, all)?.into_iter();
        let [earlier, later] = ways.map(|logs| {
            let answers: Vec<bool> = logs.iter().map(|_| answers.next().unwrap_or(false)).collect();
            Reach::of(&NEAR, &answers)
        });
        let is_narrow = earlier.passes.is_some() || later.passes.is_some();
        Ok((is_narrow && !self.late).then_some((earlier, later)))
    }

    /// Moves each fault amid the times at which it may begin, and notes these for the story.
    pub(super) fn times(&mut self) -> Result<(), Failure> {
        self.windows.clear();
        // Of these the times are not one stretch.
        let mut torn = BTreeSet::new();
        for id in self.with_times() {
            let Some(window) = self.window(id)? else { break };
            match self.move_to(id, window.middle())? {
                // The times of the others are those beside this one where it was. Its own stay, for all else is as it was.
                Move::Fails => self.windows.clear(),
                Move::Stays => {}
                Move::Passes => {
                    torn.insert(id);
                    continue;
                }
            }
            self.windows.push(window);
        }
        for id in self.with_times() {
            if torn.contains(&id) || self.windows.iter().any(|known| known.id == id) {
                continue;
            }
            let Some(window) = self.window(id)? else { break };
            self.windows.push(window);
        }
        self.windows.sort_by_key(|window| (window.from, window.to, window.id));
        Ok(())
    }

    /// The faults that began and of which a log can say when.
    fn with_times(&self) -> Vec<FaultId> {
        self.ran.outcome.record().map(|(entry, _)| entry.id).filter(|id| has_time(*id)).collect()
    }

    /// Between which times a fault may begin; `None` if there may not be so many runs as that takes.
    fn window(&mut self, id: FaultId) -> Result<Option<Window>, Failure> {
        let Some(at) = self.begin(id).filter(|_| self.left() > MOST) else { return Ok(None) };
        let reached = (self.reach(id, at, Way::Earlier)?, self.reach(id, at, Way::Later)?);
        let window = self.narrowed(id, at, reached)?;
        Ok((!self.late).then_some(window))
    }

    /// The same by how far it was moved.
    fn narrowed(
        &mut self,
        id: FaultId,
        at: SimTime,
        (earlier, later): (Reach, Reach),
    ) -> Result<Window, Failure> {
        let before = self.narrow(id, at, (Way::Earlier, earlier))?;
        let behind = self.narrow(id, at, (Way::Later, later))?;
        let open = |reach: Reach| reach.passes.is_none() && !reach.is_end;
        let (from, to) = (SimTime(at.0.saturating_sub(before)), at.after(behind));
        Ok(Window { id, from, to, open: (open(earlier), open(later)) })
    }

    /// How far a fault may be moved, roughly: one round of runs.
    fn reach(&mut self, id: FaultId, at: SimTime, way: Way) -> Result<Reach, Failure> {
        let logs = self.moved_by(id, at, (way, &STEPS));
        let asked = logs.len();
        let mut answers = self.fail_there(id, logs)?;
        answers.resize(asked, false);
        Ok(Reach::of(&STEPS, &answers))
    }

    /// The same more exactly: another round, between the last that fails and the first that passes.
    fn narrow(&mut self, id: FaultId, at: SimTime, (way, reach): (Way, Reach)) -> Result<u64, Failure> {
        let Some(passes) = reach.passes else { return Ok(reach.fails) };
        let parts = ROUND as u64 + 1;
        let steps: Vec<u64> =
            (1..parts).map(|part| reach.fails + (passes - reach.fails) * part / parts).collect();
        let logs = self.moved_by(id, at, (way, &steps));
        let answers = self.fail_there(id, logs)?;
        Ok(steps
            .iter()
            .zip(answers)
            .take_while(|(_, fails)| *fails)
            .last()
            .map_or(reach.fails, |(by, _)| *by))
    }

    /// Whether each of these logs fails with the fault where it says: there may be no room for it, or nothing that it can hit. Fewer answers if the time is over.
    fn fail_there(&mut self, id: FaultId, logs: Vec<(SimTime, Log)>) -> Result<Vec<bool>, Failure> {
        let (times, logs): (Vec<SimTime>, Vec<Log>) = logs.into_iter().unzip();
        let rans = self.round(&logs)?;
        self.runs += rans.len() as u32;
        let fails = |(ran, at): (&Ran, SimTime)| {
            self.target.violated(&ran.outcome).is_some() && begins_at(&ran.outcome, id, at)
        };
        Ok(rans.iter().zip(times).map(fails).collect())
    }

    /// The logs in which a fault begins so much earlier or later than at a time, as far as these are times for a fault.
    fn moved_by(&self, id: FaultId, at: SimTime, (way, steps): (Way, &[u64])) -> Vec<(SimTime, Log)> {
        let outcome = &self.ran.outcome;
        let moved = |by: &u64| {
            let to = match way {
                Way::Earlier => SimTime(at.0.checked_sub(*by)?),
                Way::Later => at.after(*by),
            };
            let log = case::beginning_at(outcome, id, to).filter(|_| to < case::faults_end(outcome))?;
            Some((to, log))
        };
        steps.iter().map_while(moved).collect()
    }

    /// Lets a fault begin at another time, if it fails then.
    fn move_to(&mut self, id: FaultId, to: SimTime) -> Result<Move, Failure> {
        if self.begin(id) == Some(to) {
            return Ok(Move::Stays);
        }
        let Some(log) = case::beginning_at(&self.ran.outcome, id, to) else { return Ok(Move::Passes) };
        let before = self.ran.clone();
        if self.look(log)? && begins_at(&self.ran.outcome, id, to) {
            return Ok(Move::Fails);
        }
        self.ran = before;
        Ok(Move::Passes)
    }

    /// When a fault began.
    fn begin(&self, id: FaultId) -> Option<SimTime> {
        begin_in(&self.ran.outcome, id)
    }
}

/// Whether a fault has begun at a time in a run, or the run has ended before it, as one does when it has failed.
fn begins_at(outcome: &Outcome, id: FaultId, at: SimTime) -> bool {
    begin_in(outcome, id) == Some(at) || outcome.virtual_time < at
}

/// When a fault began in a run.
fn begin_in(outcome: &Outcome, id: FaultId) -> Option<SimTime> {
    let mut begun = outcome.record().map(|(entry, _)| entry);
    begun.find(|entry| entry.id == id).map(|entry: &Planned| entry.begin)
}

/// Whether a log can say when a fault begins: it was drawn, and is not there for the whole phase.
fn has_time(id: FaultId) -> bool {
    !id.is_written() && id.kind.declaration().begins != Begins::Standing
}

#[cfg(test)]
mod tests {
    use bloodhound_faults::Kind;

    use super::*;

    #[test]
    fn how_far_it_fails_is_told_by_the_answers() {
        let reach = |answers: &[bool]| {
            let Reach { fails, passes, is_end } = Reach::of(&[1, 8, 64], answers);
            (fails, passes, is_end)
        };
        assert_eq!(reach(&[true, false, true]), (1, Some(8), false));
        assert_eq!(reach(&[false, false, false]), (0, Some(1), false));
        assert_eq!(reach(&[true, true, true]), (64, None, false), "further away was not tried");
        assert_eq!(reach(&[true, true]), (8, None, true), "64 is no time for a fault");
        assert_eq!(reach(&[]), (0, None, true));
    }

    #[test]
    fn a_round_time_amid_the_window_is_taken() {
        let id = FaultId { kind: Kind::Crash, target: 1, nth: 0 };
        let middle = |from: u64, to: u64| {
            let window = Window { id, from: SimTime(from), to: SimTime(to), open: (false, false) };
            window.middle().0
        };
        let ms = MILLIS;
        assert_eq!(middle(2_610 * ms, 3_400 * ms), 3_000 * ms);
        assert_eq!(middle(2_310 * ms, 2_412 * ms), 2_350 * ms);
        assert_eq!(middle(2_310 * ms, 2_310 * ms), 2_310 * ms);
        assert_eq!(middle(7, 9), 8, "no whole millisecond is in it");
        assert_eq!(
            middle(2_310 * ms + 7, 2_310 * ms + 7),
            2_310 * ms + 7,
            "nothing is moved that must not be"
        );
    }
}
