//! [`Frontier`]: the states that a search may go on from, in a tree by number, with a limit.
//!
//! A state is what it takes to come there again: the log of a run and a moment of it. Whether a snapshot of it is in memory is the business of who runs it,
//! and changes nothing. When there are too many, those that are worth least go; their children stay, as their logs are whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_decisions::{Choice, Dice, Log};

use crate::arms::pick;
use crate::branch::Planned;
use crate::features::{Features, ONE};

/// The number of a state; the later it was come to, the higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub u64);

/// A moment of a run that a search may go on from.
#[derive(Clone, Debug)]
pub struct State {
    /// The state from which its run went on.
    pub parent: Option<StateId>,
    /// The moment up to which its run is that of the parent, ns.
    pub left: u64,
    /// How many times it was gone on from a state on the way to it.
    pub depth: u32,
    /// The run.
    pub log: Arc<Log>,
    /// The moment, ns of virtual time.
    pub at: u64,
    /// The moment is that at which the stack was ready.
    pub is_ready: bool,
    /// What was seen there for the first time.
    pub features: Vec<u64>,
    /// When each of them came, ns: before the moment, and after that from which its run went on.
    pub came: Vec<u64>,
    /// When events of nodes came in its run, ns; known where the stack was ready.
    pub events: Vec<u64>,
    /// How near its run came to a violation, in millionths.
    pub nearness: u32,
    /// The faults that its run had planned for later.
    pub faults: Arc<Vec<Planned>>,
    /// The random numbers that programs asked for later, with their times.
    pub draws: Arc<Vec<(Choice, u64)>>,
    /// How often it was gone on from.
    pub chosen: u32,
    /// How many of the runs that went on from it have shown something new.
    pub paid: u32,
}

impl State {
    /// How likely it is to be chosen: by how rare what it showed is, how near it came, and whether going on from it has brought something; the
    /// oftener it was chosen, the less (as the schedules of AFLFast have it). Its square counts, because most states show nothing but combinations that each run has,
    /// and there are so many of these that they would be chosen nearly always.
    pub(crate) fn energy(&self, features: &Features, prefer: Prefer) -> u64 {
        let nearness = u64::from(self.nearness) * ONE / 1_000_000;
        let rare = if prefer.rare { features.rarity(&self.features) } else { ONE };
        let base = rare + if prefer.near { nearness * 4 } else { 0 };
        let paid = u64::from(self.paid.min(16));
        // In parts of 2^12, so that squares have room.
        let base = (base >> 4).clamp(1, 1 << 26);
        (base * base * (1 + paid) / (1 + u64::from(self.chosen))).max(1)
    }
}

/// What makes states likely to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefer {
    /// That few runs have shown what they did.
    pub rare: bool,
    /// That their run came near a violation.
    pub near: bool,
}

/// The states of a search.
#[derive(Clone, Debug)]
pub struct Frontier {
    states: BTreeMap<StateId, State>,
    next: u64,
    most: usize,
    evicted: u64,
}

impl Frontier {
    /// Room for so many states.
    pub fn new(most: usize) -> Frontier {
        Frontier { states: BTreeMap::new(), next: 0, most: most.max(1), evicted: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// How many there were, with those that had to go.
    pub fn come_to(&self) -> u64 {
        self.next
    }

    /// How many had to go.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// A state.
    pub fn get(&self, id: StateId) -> Option<&State> {
        self.states.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: StateId) -> Option<&mut State> {
        self.states.get_mut(&id)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = (StateId, &State)> {
        self.states.iter().map(|(id, state)| (*id, state))
    }

    /// Adds a state.
    pub(crate) fn add(&mut self, state: State) -> StateId {
        let id = StateId(self.next);
        self.next += 1;
        self.states.insert(id, state);
        id
    }

    /// Lets the least useful states go until there are no more than there may be. One that was just added may be among them.
    pub(crate) fn evict(&mut self, features: &Features, prefer: Prefer) {
        let over = self.states.len().saturating_sub(self.most);
        if over == 0 {
            return;
        }
        let mut energies: Vec<(u64, StateId)> =
            self.states.iter().map(|(id, state)| (state.energy(features, prefer), *id)).collect();
        energies.sort_unstable();
        for (_, id) in energies.into_iter().take(over) {
            self.states.remove(&id);
        }
        self.evicted += over as u64;
    }

    /// A state that may be gone on from, by energy.
    pub(crate) fn choose(
        &self,
        may: impl Fn(&State) -> bool,
        features: &Features,
        prefer: Prefer,
        dice: &mut Dice,
    ) -> Option<StateId> {
        let open: Vec<(&StateId, &State)> = self.states.iter().filter(|(_, state)| may(state)).collect();
        let weights: Vec<u64> = open.iter().map(|(_, state)| state.energy(features, prefer)).collect();
        pick(&weights, dice).map(|place| *open[place].0)
    }

    /// A beginning of a run that had events, those that were chosen often less likely.
    pub(crate) fn choose_beginning(&self, dice: &mut Dice) -> Option<StateId> {
        let open: Vec<(&StateId, &State)> =
            self.states.iter().filter(|(_, state)| !state.events.is_empty()).collect();
        let weights: Vec<u64> = open.iter().map(|(_, state)| ONE / (1 + u64::from(state.chosen))).collect();
        pick(&weights, dice).map(|place| *open[place].0)
    }

    /// The state of the least depth, and of those the oldest.
    pub(crate) fn first(&self, may: impl Fn(&State) -> bool) -> Option<StateId> {
        let open = self.states.iter().filter(|(_, state)| may(state));
        open.min_by_key(|(id, state)| (state.depth, **id)).map(|(id, _)| *id)
    }

    /// The deepest state, and of those the newest.
    pub(crate) fn last(&self, may: impl Fn(&State) -> bool) -> Option<StateId> {
        let open = self.states.iter().filter(|(_, state)| may(state));
        open.max_by_key(|(id, state)| (state.depth, **id)).map(|(id, _)| *id)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const BOTH: Prefer = Prefer { rare: true, near: true };

    pub(crate) fn state(depth: u32, features: &[u64]) -> State {
        State {
            parent: None,
            left: 0,
            depth,
            log: Arc::default(),
            at: 0,
            is_ready: false,
            features: features.to_vec(),
            came: Vec::new(),
            events: Vec::new(),
            nearness: 0,
            faults: Arc::default(),
            draws: Arc::default(),
            chosen: 0,
            paid: 0,
        }
    }

    #[test]
    fn the_least_useful_go() {
        let mut features = Features::default();
        for feature in [1, 2, 2, 2, 3] {
            features.add(feature);
        }
        let mut frontier = Frontier::new(2);
        let rare = frontier.add(state(1, &[1]));
        let common = frontier.add(state(1, &[2]));
        let other = frontier.add(state(2, &[3]));
        frontier.evict(&features, BOTH);
        assert_eq!(frontier.iter().map(|(id, _)| id).collect::<Vec<_>>(), [rare, other]);
        assert!(frontier.get(common).is_none());
        assert_eq!((frontier.len(), frontier.come_to(), frontier.evicted()), (2, 3, 1));
        assert_eq!((frontier.first(|_| true), frontier.last(|_| true)), (Some(rare), Some(other)));
        assert_eq!(frontier.first(|state| state.depth > 2), None);
    }

    #[test]
    fn states_that_were_chosen_often_are_chosen_less() {
        let mut features = Features::default();
        features.add(1);
        let mut often = state(0, &[1]);
        let never = often.clone();
        often.chosen = 9;
        let (rare, common) = (never.energy(&features, BOTH), often.energy(&features, BOTH));
        assert_eq!(rare / 10, common);
        often.paid = 9;
        assert_eq!(often.energy(&features, BOTH), rare);
        let near = State { nearness: 900_000, ..never.clone() };
        assert!(near.energy(&features, BOTH) > never.energy(&features, BOTH));
    }
}
