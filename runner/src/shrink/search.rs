//! The search: one dimension after the other, each with what the ones before have left of the budget.
//!
//! Key type: [`Search`]. Each step begins with a log that has failed and ends with one; so whenever the time is over, there is something to write. Rounds have
//! a fixed width and are answered in order, so what is found is a function of the finding and the budget in runs.

use bloodhound_bisect::smallest;
use bloodhound_decisions::{Choice, Concern, Log, Override, Part, Site};
use bloodhound_sim::faults::Effect;

use super::case::{self, Edit, Element};
use super::pool::{Pool, Ran};
use crate::session::{Failure, Stopped};
use crate::group::Group as Target;
use crate::{exit, output};

/// At most so many elements are looked at in one search; more are put together in blocks first.
const BLOCKS: usize = 1024;
/// Searches of durations that a fault is worth.
const HALVINGS: usize = 3;

/// Most runs that are spent on other schedules, how many schedules are tried for each fault, and how many runs a round has.
const LUCK: u32 = 80;
const SCHEDULES: usize = 2;
const ROUND: usize = 4;

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
    /// Runs that were made, and how many there may be.
    pub runs: u32,
    pub budget: u32,
    /// The time is over.
    pub late: bool,
    pub dimensions: Vec<Dimension>,
}

impl Search<'_> {
    /// Takes out what can be taken out.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn all(&mut self) -> Result<(), Failure> {
        self.dimension("faults", case::faults(&self.ran), self.budget)?;
        self.luck()?;
        self.hits()?;
        self.dimension("operations", case::operations(&self.ran.outcome), self.budget)?;
        for (name, concern) in [("network", Concern::Network), ("scheduler", Concern::Scheduler)] {
            // The last dimensions are cheap, and say more.
            self.surprises(name, &[concern], self.left() / 2)?;
        }
        self.durations()?;
        // What was needed for the times of something that is gone by now.
        self.dimension("faults", case::faults(&self.ran), self.budget)
    }

    fn left(&self) -> u32 {
        if self.late { 0 } else { self.budget.saturating_sub(self.runs) }
    }

    /// Leaves out what it can of elements of the run, with at most so many runs.
    fn dimension(&mut self, name: &'static str, elements: Vec<Element>, most: u32) -> Result<(), Failure> {
        let base = (*self.ran.outcome.decisions).clone();
        self.smallest_of(name, &base, &elements, most).map(drop)
    }

    /// The same from a log that is known to fail. Returns how many elements are left.
    fn smallest_of(
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
        self.runs_of(kept.runs);
        if kept.items.len() < elements.len() {
            self.look(case::without(base, elements, &kept.items))?;
        }
        let (before, after) = (elements.len(), kept.items.len());
        self.say(Dimension { name, before, after, minimal: kept.minimal });
        Ok(after)
    }

    /// Leaves out single faults in other schedules, where few are left: a run that passes without one may pass for want of luck. What fails is the run
    /// that is made smaller from then on.
    fn luck(&mut self) -> Result<(), Failure> {
        let most = LUCK.min(self.left() / 4);
        let (begun, mut tries) = (self.runs, 0);
        loop {
            let elements = case::faults(&self.ran);
            let log = self.ran.outcome.decisions.clone();
            let all: Vec<usize> = (0..elements.len()).collect();
            let mut others = Vec::new();
            for at in &all {
                let kept: Vec<usize> = all.iter().filter(|other| *other != at).copied().collect();
                let less = case::without(&log, &elements, &kept);
                for _ in 0..SCHEDULES {
                    tries += 1;
                    others.push(case::in_another_schedule(&self.ran, &less, tries));
                }
            }
            let spent = self.runs - begun;
            if all.len() < 2 || others.len() as u32 > most.saturating_sub(spent) {
                return Ok(());
            }
            let mut found = None;
            for round in others.chunks(ROUND) {
                let answers = self.judge(round.to_vec())?;
                self.runs += answers.len() as u32;
                found = answers.iter().position(|failed| *failed).map(|first| round[first].clone());
                if found.is_some() || self.late {
                    break;
                }
            }
            let Some(found) = found else { return Ok(()) };
            if !self.look(found)? {
                return Ok(());
            }
            self.dimension("faults", case::faults(&self.ran), most)?;
        }
    }

    fn runs_of(&mut self, runs: u32) {
        self.runs += runs;
    }

    /// Notes what a dimension has come to; one that is searched again has the last word, and the first number.
    fn say(&mut self, dimension: Dimension) {
        let Dimension { name, before, after, minimal } = dimension;
        if before == 0 && self.dimensions.iter().all(|known| known.name != name) {
            return;
        }
        let open = if minimal { "" } else { " (not all tried)" };
        output::eprint(&format!(
            "bloodhound: {name}: {after} of {before} left after {} runs{open}\n",
            self.runs
        ));
        match self.dimensions.iter_mut().find(|known| known.name == name) {
            Some(known) => (known.after, known.minimal) = (after, minimal),
            None => self.dimensions.push(Dimension { name, before, after, minimal }),
        }
    }

    /// Whether each of these logs fails in the same way; fewer answers if the time is over.
    fn judge(&mut self, logs: Vec<Log>) -> Result<Vec<bool>, Failure> {
        let wanted = logs.len();
        let rans = self.pool.round(logs)?;
        self.late |= rans.len() < wanted;
        let verdict = |ran: &Ran| match &ran.outcome.stopped {
            Some(Stopped::Interrupted) => Err(interrupted()),
            _ => Ok(self.target.violated(&ran.outcome).is_some()),
        };
        rans.iter().map(verdict).collect()
    }

    /// Runs a log, to see its choices: if it fails, it is from now on the run that is made smaller. This is done whatever the time is, for what has been
    /// found by then would be lost otherwise.
    fn look(&mut self, log: Log) -> Result<bool, Failure> {
        let Some(ran) = self.pool.look(log, true)? else { return Ok(false) };
        self.runs += 1;
        if self.target.violated(&ran.outcome).is_none() {
            return Ok(false);
        }
        self.ran = ran;
        Ok(true)
    }

    /// Makes all faults plain that the log does not name, and leaves out of those that operations meet, and of what power failures take, what it can.
    fn hits(&mut self) -> Result<(), Failure> {
        let concerns = [Concern::Faults, Concern::Disk];
        if self.left() < 2 || !self.look(case::explicit(&self.ran, &concerns))? {
            return Ok(());
        }
        let named: Vec<Choice> = case::departing(&self.ran, &concerns)
            .into_iter()
            .map(|(choice, _)| choice)
            .filter(|choice| {
                matches!(choice.site, Site::Call { .. } | Site::DiskCall { .. } | Site::Power { .. })
            })
            .collect();
        let budget = self.budget;
        self.blocks("operations with faults and changes without sync", named, budget)?;
        self.ends_of_chains()
    }

    /// The places of entries that are out stand in the log only where a later entry follows; those behind the last one need not.
    fn ends_of_chains(&mut self) -> Result<(), Failure> {
        let there = |kind: &str, target: u32, nth: u64| {
            let mut entries = self.ran.outcome.plan.iter().map(|entry| entry.id);
            entries
                .any(|id| !id.is_written() && id.kind.name() == kind && id.target == target && id.nth >= nth)
        };
        let log = (*self.ran.outcome.decisions).clone();
        let behind = log.overrides.keys().filter(|choice| match choice.site {
            Site::Fault { kind, target, nth, .. } => !there(kind.as_str(), target, nth),
            _ => false,
        });
        let behind: Vec<Edit> = behind.map(|choice| Edit::Plain(*choice)).collect();
        let said = |edit: &Edit| match edit {
            Edit::Plain(choice) => case::is_said(choice, log.overrides[choice]),
            _ => false,
        };
        let behind: Element = behind.into_iter().filter(|edit| !said(edit)).collect();
        if !behind.is_empty() && self.left() > 1 {
            self.look(case::without(&log, &[behind], &[]))?;
        }
        Ok(())
    }

    /// Makes all choices about these concerns plain but those without which it does not fail.
    fn surprises(&mut self, name: &'static str, concerns: &[Concern], most: u32) -> Result<(), Failure> {
        if self.left() < 3 {
            return Ok(());
        }
        let explicit = case::explicit(&self.ran, concerns);
        let all: Vec<Choice> =
            case::departing(&self.ran, concerns).into_iter().map(|(choice, _)| choice).collect();
        let switches = match concerns.contains(&Concern::Scheduler) {
            true => explicit.switches.clone().unwrap_or_default(),
            false => Vec::new(),
        };
        if all.is_empty() && switches.is_empty() {
            return Ok(());
        }
        // The plainest run first: with it, a log that names each choice of the run is never needed.
        let everything = case::plain_in_blocks(&all, &switches, usize::MAX);
        if self.look(case::without(&explicit, &everything, &[]))? {
            self.say(Dimension { name, before: all.len() + switches.len(), after: 0, minimal: true });
            return Ok(());
        }
        let before = self.runs;
        let count = all.len() + switches.len();
        if !self.look(explicit)? {
            return Ok(());
        }
        self.blocks(name, all, most.saturating_sub(self.runs - before))?;
        self.dimensions.iter_mut().filter(|dimension| dimension.name == name).for_each(|d| d.before = count);
        Ok(())
    }

    /// Leaves out what it can of choices that the log names, whose concern is plain, and of its switches: in blocks, and then in those that are left.
    fn blocks(&mut self, name: &'static str, named: Vec<Choice>, most: u32) -> Result<(), Failure> {
        let (begun, all) = (self.runs, named.len());
        let mut named = named;
        loop {
            let base = (*self.ran.outcome.decisions).clone();
            let of_scheduler = named.iter().any(|choice| choice.site.concern() == Concern::Scheduler);
            let switches = base.switches.clone().filter(|_| of_scheduler).unwrap_or_default();
            named.retain(|choice| base.overrides.contains_key(choice));
            let block = named.len().div_ceil(BLOCKS).max(1);
            let elements = case::plain_in_blocks(&named, &switches, block);
            if elements.is_empty() {
                return Ok(());
            }
            let before = named.len();
            self.smallest_of(name, &base, &elements, most.saturating_sub(self.runs - begun))?;
            let now = &self.ran.outcome.decisions.overrides;
            named.retain(|choice| now.contains_key(choice));
            if let Some(known) = self.dimensions.iter_mut().find(|known| known.name == name) {
                (known.before, known.after) = (all, named.len());
            }
            let spent = self.runs - begun >= most || self.left() < 2;
            if block == 1 || named.len() == before || spent {
                return Ok(());
            }
        }
    }

    /// Makes faults shorter, as long as it still fails.
    fn durations(&mut self) -> Result<(), Failure> {
        let entries: Vec<_> = self.ran.outcome.record().map(|(entry, _)| entry.id).collect();
        let (mut before, mut after) = (0, 0);
        for id in entries {
            let choice = Choice { part: Part::Run, site: id.site("duration") };
            for round in 0..HALVINGS {
                let made = self.ran.made.iter().find(|made| made.choice == choice && made.value > 0);
                let Some(made) = made.copied() else { break };
                if self.left() < 6 {
                    break;
                }
                before += usize::from(round == 0);
                let log = self.ran.outcome.decisions.clone();
                let mut shorter = vec![0, made.value / 8, made.value / 4, made.value / 2];
                shorter.dedup();
                let with = |value: &u64| {
                    let mut log = (*log).clone();
                    log.overrides.insert(choice, Override { bound: made.bound, value: *value });
                    log
                };
                let logs: Vec<Log> = shorter.iter().map(with).collect();
                let answers = self.judge(logs.clone())?;
                self.runs_of(answers.len() as u32);
                let Some(first) = answers.iter().position(|failed| *failed) else { break };
                if !self.look(logs[first].clone())? {
                    break;
                }
                after += usize::from(round == 0);
                if shorter[first] == 0 {
                    break;
                }
            }
        }
        if before > 0 {
            output::eprint(&format!(
                "bloodhound: durations: {after} of {before} made shorter after {} runs\n",
                self.runs
            ));
        }
        Ok(())
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
