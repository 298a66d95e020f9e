//! [`Search`]: orders runs by number and learns from what they show, in the order of their numbers.
//!
//! Run `n` is ordered when the runs up to `n - LAG` are merged, so that workers are busy while what they have shown is not known yet, and the search
//! is the same for any number of them. Each order draws from dice of its own, made of the seed of the search and the number.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_decisions::{Choice, Dice, FaultChain, Log};

use crate::arms::{Arm, Arms};
use crate::branch::{Branched, Planned, branch, is_possible};
use crate::features::{Features, ONE, is_event};
use crate::frontier::{Frontier, Prefer, State, StateId};
use crate::strategy::Strategy;

/// The version of the rules by which a search chooses and learns: one that was begun by other rules is another search.
pub const RULES: u32 = 3;
/// A run is chosen when the results of all runs are known but so many before it.
pub const LAG: u64 = 16;
/// Of the moments of a run that showed something new, at most so many become states.
const STATES_OF_RUN: usize = 4;
/// So many events of a run are remembered.
const EVENTS_OF_STATE: usize = 512;
/// A moment becomes one if what it showed is worth this part of what an average run shows that is new: else it showed what every run does.
const STATE_OF_USUAL: u64 = 3;
/// Of what was seen first at a moment, so much is remembered.
const FEATURES_OF_STATE: usize = 48;
/// What a run is worth is reckoned in such parts of what is new of a class in an average run.
const PART: u64 = ONE / 16;
/// How often a state is gone on from where all states are gone on from in turn.
const CHILDREN: u32 = 4;
/// Where they are, one run in so many is of a seed that was not run yet.
const FRESH_ONE_IN: u64 = 8;

/// What a search is, besides what it searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// By which rule.
    pub strategy: Strategy,
    /// The first of the seeds, and what all choices of the search are drawn from.
    pub first_seed: u64,
    /// How many runs it makes.
    pub runs: u64,
    /// A state has at most so many states above it.
    pub max_depth: u32,
    /// So many states are kept.
    pub max_states: usize,
    /// Which states are preferred.
    pub prefer: Prefer,
}

/// From where a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the boot of its seed: it is what the seed alone says.
    Boot,
    /// From a state.
    State {
        /// Its number.
        id: StateId,
        /// The moment up to which the run is that of the state.
        at: u64,
        /// What it is.
        log: Arc<Log>,
        /// The last state that the run comes by until then, and when: it can be carried out from there. `None`: from the end of the boot.
        by: Option<(StateId, u64)>,
    },
}

/// A run that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number in the search, from 0.
    pub number: u64,
    /// Its seed, from which its boot follows.
    pub seed: u64,
    /// Which way of making a run this is.
    pub arm: Arm,
    /// From where.
    pub origin: Origin,
}

/// What a run has shown.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What was run: what it found out about itself on the way is not in it.
    pub log: Arc<Log>,
    /// The moments from which others may go on, rising; the first is that at which the stack was ready.
    pub moments: Vec<u64>,
    /// Its features, each with the time at which it was seen first. Asked for are the times of what is new, of events where the run begins at its boot, and
    /// whether the others came behind the moment from which the run goes on: nothing else of them is in a journal.
    pub features: Vec<(u64, u64)>,
    /// How near it came to a violation, in millionths.
    pub nearness: u32,
    /// Steps that were carried out for it.
    pub cost: u64,
    /// It violated something: there is nothing to be found behind that.
    pub failed: bool,
    /// The faults that it planned, in order of time.
    pub faults: Arc<Vec<Planned>>,
    /// Random numbers that its programs asked for, with their times.
    pub draws: Arc<Vec<(Choice, u64)>>,
}

/// A search; see the module's text.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    /// The faults that may be added to runs.
    chains: Vec<FaultChain>,
    frontier: Frontier,
    features: Features,
    arms: Arms,
    /// Runs that were ordered, and seeds that were begun.
    ordered: u64,
    seeds: u64,
    /// Runs whose results are merged.
    merged: u64,
    /// From where those that are not came.
    open: BTreeMap<u64, (Arm, Option<(StateId, u64)>)>,
    /// How many runs each arm had.
    runs_of: [u64; Arm::COUNT],
    /// How many runs it was given.
    given: u64,
    /// The run that showed something new last, and the nearest that any came to a violation.
    newest: u64,
    nearest: u32,
}

impl Search {
    /// A search that has not begun. `chains`: the faults that may be added to its runs.
    pub fn new(settings: Settings, chains: Vec<FaultChain>) -> Search {
        Search {
            frontier: Frontier::new(settings.max_states),
            settings,
            chains,
            features: Features::default(),
            arms: Arms::default(),
            ordered: 0,
            seeds: 0,
            merged: 0,
            open: BTreeMap::new(),
            runs_of: [0; Arm::COUNT],
            given: 0,
            newest: 0,
            nearest: 0,
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its states.
    pub fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// What it has seen.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// How many runs there were of each arm that had any.
    pub fn runs_of_arms(&self) -> impl Iterator<Item = (Arm, u64)> {
        let all = [Arm::Fresh].into_iter().chain(Arm::REDRAWN).chain([Arm::Input]);
        all.map(|arm| (arm, self.runs_of[arm as usize])).filter(|(_, runs)| *runs > 0)
    }

    /// How useful a state is; `None`: it had to go.
    pub fn energy_of(&self, id: StateId) -> Option<u64> {
        self.frontier.get(id).map(|state| state.energy(&self.features, self.settings.prefer))
    }

    /// How many seeds were begun.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// How many runs are merged, and after how many of them nothing new was seen any more.
    pub fn merged(&self) -> (u64, u64) {
        (self.merged, self.newest)
    }

    /// How near any run came to a violation, in millionths.
    pub fn nearest(&self) -> u32 {
        self.nearest
    }

    /// What a run has shown that was made elsewhere, before the search begins: its moments become states, it counts for no way of making runs, and is none of its runs.
    pub fn give(&mut self, seen: Seen) {
        let new = self.features.learn(seen.features.iter());
        self.nearest = self.nearest.max(seen.nearness);
        self.given += 1;
        let depth = u32::try_from(seen.log.epochs.len()).unwrap_or(u32::MAX);
        if !seen.failed && depth <= self.settings.max_depth && self.settings.strategy.is_guided() {
            self.add_states(seen, &new, 0, (None, depth, 0));
            self.frontier.evict(&self.features, self.settings.prefer);
        }
    }

    /// How many runs it was given.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The first runs: those that are chosen before anything is known of runs of this search.
    pub fn begin(&mut self) -> Vec<Order> {
        let most = self.settings.runs.min(LAG);
        std::iter::from_fn(|| if self.ordered < most { self.next() } else { None }).collect()
    }

    /// What the next run that is not merged has shown; `None`: it came to no result. Returns the run that may be made now that this is known, if the
    /// search has one more.
    pub fn merge(&mut self, seen: Option<Seen>) -> Option<Order> {
        let (arm, from) = self.open.remove(&self.merged)?;
        self.merged += 1;
        if let Some(seen) = seen {
            self.learn(seen, arm, from);
        }
        self.next()
    }

    fn next(&mut self) -> Option<Order> {
        if self.ordered >= self.settings.runs {
            return None;
        }
        let number = self.ordered;
        let mut dice = Dice::new(self.settings.first_seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let order = self.branch(number, &mut dice).unwrap_or_else(|| self.fresh(number));
        let from = match &order.origin {
            Origin::Boot => None,
            Origin::State { id, at, .. } => Some((*id, *at)),
        };
        if let Some(state) = from.and_then(|(id, _)| self.frontier.get_mut(id)) {
            state.chosen = state.chosen.saturating_add(1);
        }
        self.open.insert(number, (order.arm, from));
        self.runs_of[order.arm as usize] += 1;
        self.ordered += 1;
        Some(order)
    }

    /// A seed that was not run yet.
    fn fresh(&mut self, number: u64) -> Order {
        let seed = self.settings.first_seed.wrapping_add(self.seeds);
        self.seeds += 1;
        Order { number, seed, arm: Arm::Fresh, origin: Origin::Boot }
    }

    /// A run that goes on from a state, if one is to be made.
    fn branch(&mut self, number: u64, dice: &mut Dice) -> Option<Order> {
        let (strategy, prefer) = (self.settings.strategy, self.settings.prefer);
        let in_turn = number.is_multiple_of(FRESH_ONE_IN);
        let fresh = match strategy {
            Strategy::Random | Strategy::Swarm => true,
            Strategy::Bfs | Strategy::Dfs => in_turn,
            Strategy::CoverageGuided => dice.below(64) < self.arms.fresh(number),
            Strategy::InputTree => dice.below(64) < Arms::LEAST_FRESH,
        };
        if fresh {
            return None;
        }
        let (arms, id) = match strategy {
            Strategy::InputTree => {
                let may = |state: &State| is_possible(Arm::Input, state, &self.chains);
                (vec![Arm::Input], self.frontier.choose(may, &self.features, prefer, dice)?)
            }
            Strategy::Bfs => (Vec::new(), self.frontier.first(|state| state.chosen < CHILDREN)?),
            Strategy::Dfs => (Vec::new(), self.frontier.last(|state| state.chosen < CHILDREN)?),
            _ => {
                let arm = self.arms.choose(&Arm::REDRAWN, dice)?;
                let may = |state: &State| is_possible(arm, state, &self.chains);
                // Half of the faults are added behind what is new, half behind anything that nodes came to.
                let anywhere = arm == Arm::AddFault && dice.below(2) == 0;
                let beginning = if anywhere { self.frontier.choose_beginning(dice) } else { None };
                let chosen = beginning.or_else(|| self.frontier.choose(may, &self.features, prefer, dice));
                (vec![arm], chosen?)
            }
        };
        let state = self.frontier.get(id)?;
        let arms: Vec<Arm> = match arms.is_empty() {
            true => Arm::REDRAWN.into_iter().filter(|arm| is_possible(*arm, state, &self.chains)).collect(),
            false => arms,
        };
        // In turn, so that each child of a state is another kind of branch.
        let arm = match strategy {
            Strategy::Bfs | Strategy::Dfs => arms[state.chosen as usize % arms.len().max(1)],
            _ => *arms.first()?,
        };
        let Branched { log, at } = branch(state, arm, (&self.chains, &self.features), dice)?;
        let by = self.last_before(id, at);
        Some(Order { number, seed: log.seed, arm, origin: Origin::State { id, at, log, by } })
    }

    /// The last state that a run comes by until a moment which is the run of a state until then.
    fn last_before(&self, id: StateId, at: u64) -> Option<(StateId, u64)> {
        let (mut next, mut until) = (Some(id), at);
        while let Some(id) = next {
            let state = self.frontier.get(id)?;
            if state.at <= until {
                return Some((id, state.at));
            }
            (next, until) = (state.parent, until.min(state.left));
        }
        None
    }

    /// Learns from what a run has shown.
    fn learn(&mut self, seen: Seen, arm: Arm, from: Option<(StateId, u64)>) {
        // What was seen until its moment is its state's and was counted there.
        let until = from.map_or(0, |(_, at)| at);
        let new =
            self.features.learn(seen.features.iter().filter(|(_, when)| from.is_none() || *when > until));
        let nearer = u64::from(seen.nearness.saturating_sub(self.nearest));
        self.nearest = self.nearest.max(seen.nearness);
        // A hundredth of the way to a violation is worth as much as what is new of a class in an average run, if it is worth anything.
        let near = if self.settings.prefer.near { (nearer / 10_000).min(64) * ONE } else { 0 };
        let worth = (new.iter().map(|(feature, _)| self.features.worth(*feature)).sum::<u64>() + near) / PART;
        let usual = self.arms.usual_worth();
        self.arms.ran(arm, worth, seen.cost);
        if !new.is_empty() {
            self.newest = self.merged;
        }
        let (mut depth, mut after) = (0, 0);
        if let Some((id, at)) = from
            && let Some(parent) = self.frontier.get_mut(id)
        {
            parent.paid = parent.paid.saturating_add(u32::from(worth > usual));
            (depth, after) = (parent.depth + 1, at);
        } else if from.is_some() {
            // Its state had to go: how deep it was is not known any more.
            return;
        }
        if seen.failed || depth > self.settings.max_depth || !self.settings.strategy.is_guided() {
            return;
        }
        self.add_states(seen, &new, usual, (from.map(|(id, _)| id), depth, after));
        self.frontier.evict(&self.features, self.settings.prefer);
    }

    /// The moments of a run at which it showed most that was new, and its beginning, become states.
    fn add_states(
        &mut self,
        seen: Seen,
        new: &[(u64, u64)],
        usual: u64,
        (parent, depth, after): (Option<StateId>, u32, u64),
    ) {
        let ready = seen.moments.first().copied().unwrap_or_default();
        let events = seen.features.iter().filter(|(feature, _)| is_event(*feature)).map(|(_, when)| *when);
        let events: Vec<u64> =
            if parent.is_none() { events.take(EVENTS_OF_STATE).collect() } else { Vec::new() };
        let mut at_moment: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (feature, at) in new {
            // What was seen at a moment or before it is there.
            if let Some(moment) = seen.moments.iter().find(|moment| *moment >= at && **moment > after) {
                at_moment.entry(*moment).or_default().push((*feature, *at));
            }
        }
        // Those with what says most; of equal ones the earlier.
        let mut best: Vec<(u64, Vec<(u64, u64)>)> = at_moment.into_iter().collect();
        let worth =
            |new: &[(u64, u64)]| new.iter().map(|(feature, _)| self.features.worth(*feature)).sum::<u64>();
        best.iter_mut().for_each(|(_, new)| {
            new.sort_by_key(|(feature, when)| (Reverse(self.features.worth(*feature)), *when))
        });
        best.sort_by_key(|(at, new)| (Reverse(worth(new)), *at));
        best.retain(|(_, new)| worth(new) / PART * STATE_OF_USUAL >= usual);
        best.truncate(STATES_OF_RUN);
        if parent.is_none() && best.iter().all(|(at, _)| *at != ready) {
            best.push((ready, Vec::new()));
        }
        best.sort_by_key(|(at, _)| *at);
        for (at, mut new) in best {
            new.truncate(FEATURES_OF_STATE);
            let (features, came) = new.into_iter().unzip();
            let later = |draws: &[(Choice, u64)]| {
                let first = draws.partition_point(|(_, when)| *when <= at);
                Arc::new(draws[first..].to_vec())
            };
            self.frontier.add(State {
                parent,
                left: after,
                depth,
                log: seen.log.clone(),
                at,
                is_ready: at == ready,
                features,
                came,
                events: if at == ready { events.clone() } else { Vec::new() },
                nearness: seen.nearness,
                faults: seen.faults.clone(),
                draws: if seen.draws.is_empty() { Arc::default() } else { later(&seen.draws) },
                chosen: 0,
                paid: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests;
