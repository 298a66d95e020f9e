//! The dimensions in which choices become plain: what single operations met, delays of packets, turns of tasks, and the parameters of the faults that are left.

use bloodhound_decisions::{Choice, Concern, Override, Site};

use super::case::{self, Edit, Element};
use super::search::{Dimension, Search};
use crate::session::Failure;

/// At most so many elements are looked at in one search; more are put together in blocks first.
const BLOCKS: usize = 1024;
/// Searches of a value that a parameter of a fault is worth.
const HALVINGS: usize = 3;
/// What is drawn for each packet and each turn.
pub(super) const SURPRISES: [(&str, Concern); 2] =
    [("network", Concern::Network), ("scheduler", Concern::Scheduler)];

impl Search<'_> {
    /// Makes all faults plain that the log does not name, and leaves out of those that operations meet, and of what power failures take, what it can with at most so many
    /// runs.
    pub(super) fn hits(&mut self, most: u32) -> Result<(), Failure> {
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
        self.blocks("operations with faults and changes without sync", named, most)?;
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

    /// Makes all choices of the network plain, and all of the scheduler, if it fails then: operations are left out of such a run more easily, in which
    /// no other packet is late or lost for it. Costs a run each.
    pub(super) fn plainest(&mut self) -> Result<(), Failure> {
        for (name, concern) in SURPRISES {
            self.all_plain(name, &[concern])?;
        }
        Ok(())
    }

    /// Tries the run in which all choices about these concerns are plain: whether it is the one that is looked at from now on, or the run was so before.
    fn all_plain(&mut self, name: &'static str, concerns: &[Concern]) -> Result<bool, Failure> {
        let all: Vec<Choice> =
            case::departing(&self.ran, concerns).into_iter().map(|(choice, _)| choice).collect();
        let explicit = case::explicit(&self.ran, concerns);
        let switches =
            explicit.switches.clone().filter(|_| concerns.contains(&Concern::Scheduler)).unwrap_or_default();
        let count = all.len() + switches.len();
        if count == 0 || self.left() < 3 {
            return Ok(count == 0);
        }
        let everything = case::plain_in_blocks(&all, &switches, usize::MAX);
        let found = self.look(case::without(&explicit, &everything, &[]))?;
        if found {
            self.say(Dimension { name, before: count, after: 0, minimal: true });
        }
        Ok(found)
    }

    /// Makes all choices about these concerns plain but those without which it does not fail.
    pub(super) fn surprises(
        &mut self,
        name: &'static str,
        concerns: &[Concern],
        most: u32,
    ) -> Result<(), Failure> {
        // The plainest run first: with it, a log that names each choice of the run is never needed.
        if self.left() < 3 || self.all_plain(name, concerns)? {
            return Ok(());
        }
        let explicit = case::explicit(&self.ran, concerns);
        let all: Vec<Choice> =
            case::departing(&self.ran, concerns).into_iter().map(|(choice, _)| choice).collect();
        let of_scheduler = concerns.contains(&Concern::Scheduler);
        let switches = explicit.switches.as_ref().filter(|_| of_scheduler).map_or(0, Vec::len);
        let count = all.len() + switches;
        let before = self.runs;
        let first = self.dimensions.iter().find(|known| known.name == name).map(|known| known.before);
        if self.left() < 3 || !self.look(explicit)? {
            return Ok(());
        }
        self.blocks(name, all, most.saturating_sub(self.runs - before))?;
        let known = self.dimensions.iter_mut().find(|known| known.name == name);
        known.into_iter().for_each(|known| known.before = first.unwrap_or(count));
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

    /// Makes the parameters of the faults that are left plain (the shortest time, the least amount), and those that must not be so as small as it still fails.
    pub(super) fn parameters(&mut self) -> Result<(), Failure> {
        let parameters = case::parameters(&self.ran);
        if parameters.is_empty() || self.left() < 3 {
            return Ok(());
        }
        let base = self.ran.outcome.decisions.clone();
        let plain = |(choice, made): &(Choice, Override)| {
            vec![Edit::Set(*choice, Override { bound: made.bound, value: 0 })]
        };
        let elements: Vec<Element> = parameters.iter().map(plain).collect();
        self.smallest_of("amounts", &base, &elements, self.part(2))?;
        for (choice, _) in parameters.iter().filter(|(_, asked)| case::is_amount(asked)) {
            for _ in 0..HALVINGS {
                let made = self.ran.made.iter().find(|made| made.choice == *choice && made.value > 1);
                let Some(made) = made.copied() else { break };
                if self.left() < 6 {
                    return Ok(());
                }
                let log = self.ran.outcome.decisions.clone();
                let mut smaller = vec![made.value / 8, made.value / 4, made.value / 2];
                smaller.dedup();
                let with = |value: u64| {
                    let mut log = (*log).clone();
                    log.overrides.insert(*choice, Override { bound: made.bound, value });
                    log
                };
                let Some(found) = self.first_of(smaller.into_iter().map(with).collect())? else { break };
                if !self.look(found)? {
                    break;
                }
            }
        }
        self.tell(&format!("amounts as small as they can be after {} runs", self.runs));
        Ok(())
    }
}
