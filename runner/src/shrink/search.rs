//! The search: one dimension after the other, each with what the ones before have left of the budget.
//!
//! Key type: [`Search`]. Each step begins with a log that has failed and ends with one; so whenever the time is over, there is something to write. Rounds have
//! a fixed width and are answered in order, so what is found is a function of the finding and the budget in runs.
//!
//! Most of a run is behind what matters, so once most faults are out runs are cut short: a candidate that has not failed a little later than the best one did
//! counts as passing. What is left in the end is run to its end. Neighbours: `plain`, the dimensions in which choices become plain; `luck`, which
//! draws choices anew; `moved`, which leaves out operations with what packets met moved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_bisect::smallest;
use bloodhound_decisions::{Concern, Log};
use bloodhound_sim::faults::Effect;

use super::afresh::Wanted;
use super::case::{self, Element};
use super::luck::FEW_OPERATIONS;
use super::plain::SURPRISES;
use super::pool::{Pool, Ran};
use super::starts::Starts;
use super::times::Window;
use crate::group::Group as Target;
use crate::session::{Ending, Failure, Violation};
use crate::{exit, output};

/// How many runs a round has.
pub(super) const ROUND: usize = 4;
/// With more faults than these, runs go on to their end for longer, and other draws are tried.
pub(super) const FEW: usize = 5;
/// With more than these, another run is looked for before other draws of this one are tried.
const MANY: usize = 8;
/// So much later than the best run may a candidate fail, and a fourth of the time that it takes.
const SLACK: u64 = 2000 * MILLIS;
/// When the searches of faults, then of packets and then of operations have to end, in hundredths of the time, if there is a time.
const FAULTS: u32 = 60;
const NETWORK: u32 = 70;
pub(super) const OPERATIONS: u32 = 90;
const WHOLE: u32 = 100;
/// Parts of the operations after which the clients may end.
const WORKLOAD_PARTS: [(usize, usize); ROUND] = [(1, 8), (1, 4), (1, 2), (3, 4)];
/// So many runs tell how long one takes.
const PACED: u128 = 8;
/// So often other draws may be of no use, before no more are tried.
const VAIN: u32 = 8;
/// Runs that failed and may be looked at next.
const REMEMBERED: usize = 8;

/// What a dimension came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub name: &'static str,
    /// How many there were, and are.
    pub before: usize,
    pub after: usize,
    /// None of what is left can be left out, as far as this dimension is concerned.
    pub minimal: bool,
}

/// A search under way.
pub struct Search<'a> {
    pub pool: &'a Pool,
    pub target: Target,
    /// The run that fails with what is left; its choices are known.
    pub ran: Ran,
    /// The run of the finding.
    pub(super) first: Ran,
    /// Runs that were made, and how many there may be.
    pub runs: u32,
    pub budget: u32,
    /// The time is over, or the part of it that a dimension has.
    pub late: bool,
    /// That part, in hundredths.
    pub(super) shared: u32,
    /// When the search began and has to end, if that is limited.
    pub time: Option<(Instant, Instant)>,
    /// How many runs had been made at this moment: how many the time allows is told by those since then.
    paced: (Instant, u32),
    pub dimensions: Vec<Dimension>,
    /// It says on standard error how far it is.
    says: bool,
    /// Candidates may fail at any time, and not only where the best run does.
    pub(super) whole: bool,
    /// How often other runs were looked for.
    pub(super) others: u32,
    /// What is made smaller is such a run.
    pub drawn_anew: bool,
    /// Other draws that were tried.
    pub(super) tries: u64,
    /// Where candidates begin.
    starts: Starts,
    /// Runs that failed, the last one first.
    failed: Vec<(Log, Ran)>,
    /// When faults may begin, as far as [`Search::times`] has found out.
    pub(super) windows: Vec<Window>,
    /// The logs in which dimensions were found to be minimal.
    pub(super) settled: BTreeMap<&'static str, Arc<Log>>,
}

impl<'a> Search<'a> {
    /// A search that begins with a run that fails.
    pub fn new(pool: &'a Pool, target: Target, (ran, says): (Ran, bool), budget: u32) -> Search<'a> {
        Search {
            pool,
            target,
            first: ran.clone(),
            ran,
            runs: 1,
            budget,
            late: false,
            shared: 0,
            time: None,
            paced: (Instant::now(), 1),
            dimensions: Vec::new(),
            says,
            whole: true,
            others: 0,
            drawn_anew: false,
            tries: 0,
            starts: Starts::default(),
            failed: Vec::new(),
            windows: Vec::new(),
            settled: BTreeMap::new(),
        }
    }

    /// Takes out what can be taken out.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn all(&mut self) -> Result<(), Failure> {
        for (name, count) in [
            ("faults", case::faults(&self.ran).len()),
            ("operations", case::operations(&self.ran.outcome).len()),
        ] {
            if count > 0 {
                self.note(Dimension { name, before: count, after: count, minimal: false });
            }
        }
        self.shorten()?;
        self.shorten_workload()?;
        self.share(FAULTS);
        self.which_faults()?;
        self.which_operations(true)?;
        self.share(WHOLE);
        self.what_is_left()?;
        while self.is_large() && self.another_run(Wanted::Less)? {
            self.share(WHOLE);
            self.what_is_left()?;
        }
        self.fewer_faults()?;
        self.times()?;
        self.cut(false)
    }

    /// Leaves out faults, in runs to the end; or goes on with another run, if there may be one.
    pub(super) fn which_faults(&mut self) -> Result<(), Failure> {
        self.whole = true;
        // With all operations, for each of them may show what is wrong, and to the end of the run: with fewer faults it fails later, if at all.
        self.faults(self.budget)?;
        // Of so many, looking for a shorter run takes less time than other draws of this one.
        if case::faults(&self.ran).len() > MANY && self.others == 0 && self.another_run(Wanted::FewFaults)? {
            return Ok(());
        }
        self.lucky_faults()?;
        if case::faults(&self.ran).len() > FEW {
            self.untangle()?;
        }
        self.whole = false;
        self.cut(true)
    }

    /// Leaves out operations, of a run whose network and scheduler are as plain as that needs; or goes on with another run, if there may be one.
    pub(super) fn which_operations(&mut self, or_another: bool) -> Result<(), Failure> {
        self.plainest()?;
        // A fault that comes just in time is too late in a run in which packets come at other times.
        let in_time = !self.is_plain();
        if in_time {
            self.narrow_times(self.part(4))?;
            self.plainest()?;
        }
        self.shorten_workload()?;
        self.concerned()?;
        self.lucky_concerned()?;
        // Of a run in which packets have to be late or lost operations go one by one, if at all.
        if or_another && !self.is_plain() && self.is_large() && self.another_run(Wanted::Less)? {
            return Ok(());
        }
        self.share(NETWORK);
        // Which mishaps of packets matter: with few of them operations are left out more easily.
        self.surprises("network", &[Concern::Network], self.part(3))?;
        self.share(OPERATIONS);
        self.concerned()?;
        self.moved_operations()?;
        if or_another && self.is_large() && self.another_run(Wanted::Less)? {
            return Ok(());
        }
        // What an operation does to the packets behind it may be all that it is needed for: the rest of the budget is for a plainer run.
        self.operations(self.part(2))?;
        if !in_time && case::operations_out(&self.ran).len() > FEW_OPERATIONS {
            self.narrow_times(self.part(4))?;
            self.operations(self.part(2))?;
        }
        self.lucky_operations()
    }

    /// Makes plain what may be, and asks once more for what was needed only for the times of something that is gone by now. These dimensions are cheap, and say
    /// more.
    fn what_is_left(&mut self) -> Result<(), Failure> {
        self.hits(self.budget)?;
        self.plain(self.budget)?;
        self.parameters()?;
        self.faults(self.budget)?;
        self.operations(self.budget)
    }

    /// Leaves out faults that are needed only for the times of other ones, in runs to the end: when delays, turns and the amounts of faults are as plain as
    /// they can be, and when clients do little, the rest happens at other times, and another part of the faults may be enough.
    fn untangle(&mut self) -> Result<(), Failure> {
        self.hits(self.budget)?;
        self.plain(self.part(8))?;
        self.parameters()?;
        self.faults(self.budget)?;
        self.concerned()?;
        self.faults(self.budget)
    }

    /// Leaves out faults with other draws again and again where more are left than a reader would like.
    fn fewer_faults(&mut self) -> Result<(), Failure> {
        let mut vain = 0;
        while let before = case::faults(&self.ran).len()
            && before > FEW
            && vain < VAIN
        {
            self.lucky_faults()?;
            match case::faults(&self.ran).len() < before {
                true => self.parameters()?,
                false => vain += 1,
            }
        }
        Ok(())
    }

    /// Whether all choices of network and scheduler are plain.
    fn is_plain(&self) -> bool {
        let plain = &self.ran.outcome.decisions.plain;
        SURPRISES.iter().all(|(_, concern)| plain.contains(concern))
            && case::departing(&self.ran, &SURPRISES.map(|(_, concern)| concern)).is_empty()
    }

    /// Makes the choices of network and scheduler plain, with at most so many runs for each.
    fn plain(&mut self, most: u32) -> Result<(), Failure> {
        for (name, concern) in SURPRISES {
            self.surprises(name, &[concern], most.min(self.part(2)))?;
        }
        Ok(())
    }

    /// From now on no run begins when so many hundredths of the time are over: what comes next must not have all of it.
    pub(super) fn share(&mut self, hundredths: u32) {
        // Another run, which comes later, must not have less.
        self.shared = self.shared.max(hundredths);
        if let Some((from, to)) = self.time {
            self.pool.end_at(Some(from + to.saturating_duration_since(from) * self.shared / WHOLE));
            self.late = false;
        }
    }

    /// The run of what is left to its end, if it still fails then.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn until_its_end(&mut self) -> Result<Option<Ran>, Failure> {
        let whole = self.ran.outcome.decisions.clone();
        let mut logs = vec![(*whole).clone()];
        // What comes behind the violation was not looked at. Where there was no time left to cut it off, it is done here.
        if let Some(violation) = self.violation() {
            let cut = case::cut(&self.ran.outcome, &whole, violation.at.after(1));
            logs.extend((cut != *whole).then_some(cut));
        }
        while let Some(log) = logs.pop() {
            let ran = self.pool.look(log, Ending::at(SimTime::MAX))?;
            self.runs += 1;
            if self.target.violated(&ran.outcome).is_some() {
                return Ok(Some(ran));
            }
        }
        Ok(None)
    }

    pub(super) fn left(&self) -> u32 {
        if self.late { 0 } else { self.budget.saturating_sub(self.runs) }
    }

    /// This part of the runs that are left, of which the time may allow fewer than the budget: a dimension must not take all of it from those behind.
    pub(super) fn part(&self, of: u32) -> u32 {
        let made = u128::from(self.runs - self.paced.1);
        let in_time = self.time.filter(|_| made >= PACED).map(|(_, end)| {
            let (spent, left) = (self.paced.0.elapsed(), end.saturating_duration_since(Instant::now()));
            left.as_nanos() * made / spent.as_nanos().max(1)
        });
        let in_time = in_time.map_or(u32::MAX, |runs| u32::try_from(runs).unwrap_or(u32::MAX));
        self.left().min(in_time) / of
    }

    /// How the best run fails.
    pub(super) fn violation(&self) -> Option<&Violation> {
        self.target.violated(&self.ran.outcome)
    }

    /// The virtual time until which a candidate must have failed.
    fn until(&self) -> SimTime {
        if self.whole {
            return SimTime::MAX;
        }
        let Some(at) = self.violation().map(|violation| violation.at) else { return SimTime::MAX };
        let took = at.0.saturating_sub(case::ready(&self.ran.outcome).0);
        at.after(SLACK).after(took / 4)
    }

    /// When a candidate ends: when it has failed, which most of those do that fail about when the best run does, or at that time.
    fn ending(&self) -> Ending {
        let until = self.until();
        let Some(at) = self.violation().map(|violation| violation.at) else { return Ending::at(until) };
        let took = at.0.saturating_sub(case::ready(&self.ran.outcome).0);
        Ending::when_violated(until, (at, took), &self.target)
    }

    /// Ends workload and faults where the violation is, or a little later, so that a candidate may fail later.
    fn cut(&mut self, with_slack: bool) -> Result<(), Failure> {
        let Some(at) = self.violation().map(|violation| violation.at) else { return Ok(()) };
        let log = case::cut(
            &self.ran.outcome,
            &self.ran.outcome.decisions,
            if with_slack { self.until() } else { at.after(1) },
        );
        if self.left() > 1 && log != *self.ran.outcome.decisions {
            self.look(log)?;
        }
        Ok(())
    }

    /// Of a violation that comes only when the faults are over: lets them be over sooner, if it fails then.
    fn shorten(&mut self) -> Result<(), Failure> {
        let Some(at) = self.violation().map(|violation| violation.at) else { return Ok(()) };
        let outcome = &self.ran.outcome;
        let (begin, end) = (case::ready(outcome), case::faults_end(outcome));
        if at <= end || self.left() < 8 {
            return Ok(());
        }
        let parts = [8, 4, 2].map(|part| begin.after(end.0.saturating_sub(begin.0) / part));
        let logs: Vec<Log> = parts.iter().map(|at| case::cut(outcome, &outcome.decisions, *at)).collect();
        match self.first_of(logs)? {
            Some(log) => self.look(log).map(drop),
            None => Ok(()),
        }
    }

    /// Of a violation that is about no operations, or about all: lets the clients end sooner, if it fails then, again and again. What they have done may
    /// matter, a log of a certain length for example, and mostly the beginning of it is enough.
    fn shorten_workload(&mut self) -> Result<(), Failure> {
        let (begun, most) = (self.runs, self.part(4));
        while self.runs - begun + ROUND as u32 <= most && self.of_violation().is_empty() {
            let outcome = &self.ran.outcome;
            let operations = outcome.history.operations();
            let mut begins: Vec<SimTime> = operations.iter().map(|operation| operation.invoke).collect();
            if begins.len() <= FEW_OPERATIONS {
                break;
            }
            begins.sort_unstable();
            let ends = WORKLOAD_PARTS.map(|(part, of)| begins[begins.len() * part / of]);
            let mut logs = ends.map(|at| case::cut_workload(outcome, &outcome.decisions, at)).to_vec();
            logs.retain(|log| *log != *outcome.decisions);
            let Some(log) = self.first_of(logs)? else { break };
            if !self.look(log)? {
                break;
            }
        }
        Ok(())
    }

    /// Leaves out all operations but those that the violation is about, if it fails without.
    fn concerned(&mut self) -> Result<(), Failure> {
        let elements = case::operations_out(&self.ran);
        let decisions = &self.ran.outcome.decisions;
        let logs: Vec<Log> =
            self.of_violation().iter().map(|kept| case::without(decisions, &elements, kept)).collect();
        if logs.is_empty() || self.left() < 4 {
            return Ok(());
        }
        match self.first_of(logs)? {
            Some(log) => self.look(log).map(drop),
            None => Ok(()),
        }
    }

    /// The operations that the violation is about, by their places: those that it names, and all on their key. None of these sets is empty or has all operations.
    pub(super) fn of_violation(&self) -> Vec<Vec<usize>> {
        let Some(violation) = self.violation() else { return Vec::new() };
        let operations = case::operations(&self.ran.outcome);
        let (named, of_key) = case::concerned(&operations, &violation.text);
        let mut sets = vec![named, of_key];
        sets.retain(|kept| !kept.is_empty() && kept.len() < operations.len());
        sets
    }

    pub(super) fn faults(&mut self, most: u32) -> Result<(), Failure> {
        self.dimension("faults", case::faults(&self.ran), most)
    }

    pub(super) fn operations(&mut self, most: u32) -> Result<(), Failure> {
        match self.dimensions.iter().any(|known| known.name == "operations") {
            true => self.dimension("operations", case::operations_out(&self.ran), most),
            // The stack has no workload.
            false => Ok(()),
        }
    }

    /// Leaves out what it can of elements of the run, with at most so many runs.
    fn dimension(&mut self, name: &'static str, elements: Vec<Element>, most: u32) -> Result<(), Failure> {
        let base = self.ran.outcome.decisions.clone();
        // Nothing has changed since that was asked.
        if self.settled.get(name) == Some(&base) {
            return Ok(());
        }
        self.smallest_of(name, &base, &elements, most).map(drop)
    }

    /// The same from a log that is known to fail. Returns how many elements are left.
    pub(super) fn smallest_of(
        &mut self,
        name: &'static str,
        base: &Log,
        elements: &[Element],
        most: u32,
    ) -> Result<usize, Failure> {
        // One run is for the look at what is left.
        let most = most.min(self.left().saturating_sub(1));
        let kept = smallest(elements.len(), most, |parts| {
            let logs = parts.iter().map(|part| case::without(base, elements, part)).collect();
            self.judge(logs)
        })?;
        self.runs += kept.runs;
        if kept.items.len() < elements.len() {
            self.look(case::without(base, elements, &kept.items))?;
        }
        if kept.minimal {
            self.settled.insert(name, self.ran.outcome.decisions.clone());
        }
        let (before, after) = (elements.len(), kept.items.len());
        self.say(Dimension { name, before, after, minimal: kept.minimal });
        Ok(after)
    }

    /// The first of these logs that fails.
    pub(super) fn first_of(&mut self, logs: Vec<Log>) -> Result<Option<Log>, Failure> {
        for round in logs.chunks(ROUND) {
            let answers = self.judge(round.to_vec())?;
            self.runs += answers.len() as u32;
            if let Some(first) = answers.iter().position(|failed| *failed) {
                return Ok(round.get(first).cloned());
            }
            if self.late {
                break;
            }
        }
        Ok(None)
    }

    /// Notes what a dimension has come to, and says so.
    pub(super) fn say(&mut self, dimension: Dimension) {
        if dimension.before == 0 && self.dimensions.iter().all(|known| known.name != dimension.name) {
            return;
        }
        let open = if dimension.minimal { "" } else { " (not all tried)" };
        let (name, after) = (dimension.name, dimension.after);
        self.note(dimension);
        let before =
            self.dimensions.iter().find(|known| known.name == name).map_or(after, |known| known.before);
        self.tell(&format!("{name}: {after} of {before} left after {} runs{open}", self.runs));
    }

    pub(super) fn tell(&self, text: &str) {
        if self.says {
            output::eprint(&format!("bloodhound: {text}\n"));
        }
    }

    /// Notes what a dimension has come to; one that is searched again has the last word, and the first number.
    fn note(&mut self, dimension: Dimension) {
        match self.dimensions.iter_mut().find(|known| known.name == dimension.name) {
            Some(known) => (known.after, known.minimal) = (dimension.after, dimension.minimal),
            None => self.dimensions.push(dimension),
        }
    }

    /// Runs these logs; fewer if the time is over. Those that fail may be looked at next.
    pub(super) fn round(&mut self, logs: &[Log]) -> Result<Vec<Ran>, Failure> {
        let ending = self.ending();
        let near = self.failed.first().map_or(&self.ran, |(_, ran)| ran);
        let near = self.target.violated(&near.outcome).map(|violation| (near, violation.at));
        let rans = self.pool.round(logs.to_vec(), &ending, (&mut self.starts, near))?;
        self.late |= rans.len() < logs.len();
        for (log, ran) in logs.iter().zip(&rans) {
            if self.target.violated(&ran.outcome).is_some() {
                self.failed.insert(0, (log.clone(), ran.clone()));
            }
        }
        self.failed.truncate(REMEMBERED);
        Ok(rans)
    }

    /// Whether each of these logs fails in the same way; fewer answers if the time is over.
    pub(super) fn judge(&mut self, logs: Vec<Log>) -> Result<Vec<bool>, Failure> {
        let rans = self.round(&logs)?;
        Ok(rans.iter().map(|ran| self.target.violated(&ran.outcome).is_some()).collect())
    }

    /// A candidate that ended when it had failed, as long as candidates may run: what comes behind the violation is left out as well, for a later one of them may fail by it.
    /// As it was if the time is over.
    fn gone_on(&mut self, log: Log, ran: Ran) -> Result<Ran, Failure> {
        let until = self.until();
        let near = self.target.violated(&ran.outcome).map(|violation| (&ran, violation.at));
        let whole = self.pool.round(vec![log], &Ending::at(until), (&mut self.starts, near))?.pop();
        Ok(whole.unwrap_or(ran))
    }

    /// Looks at the run of a log: if it fails, it is from now on the run that is made smaller. One that has failed before need not be run again; any other
    /// is run whatever the time is, for what has been found by then would be lost otherwise.
    pub(super) fn look(&mut self, log: Log) -> Result<bool, Failure> {
        let known = self.failed.iter().position(|(failed, _)| *failed == log);
        let ran = match known {
            Some(place) => {
                let (log, ran) = self.failed.swap_remove(place);
                self.gone_on(log, ran)?
            }
            None => {
                self.runs += 1;
                self.pool.look(log, Ending::at(self.until()))?
            }
        };
        if self.target.violated(&ran.outcome).is_none() {
            return Ok(false);
        }
        self.ran = ran;
        self.failed.clear();
        Ok(true)
    }
}

/// What Ctrl-C ends a search with.
pub fn interrupted() -> Failure {
    Failure { code: exit::INTERRUPTED, text: "interrupted".into() }
}

impl crate::session::Outcome {
    /// The faults of the plan that began.
    pub fn record(&self) -> impl Iterator<Item = (&bloodhound_sim::faults::Planned, Effect)> {
        self.plan.iter().zip(self.effects.iter().copied()).filter(|(_, effect)| *effect == Effect::Begun)
    }
}
