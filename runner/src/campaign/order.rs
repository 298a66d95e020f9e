//! What a campaign runs, and in which order: cases that are known to be worth a look come first, then seeds of the campaign of which the same
//! is known, then all other seeds as they rise. Each seed comes once.
//!
//! Key types: [`Order`], [`Case`] (a run by its log), [`Task`]. Neighbour: the other seeds come from [`crate::shard::claims::Deal`].

use std::collections::BTreeSet;

use bloodhound_decisions::Log;

use super::seeds::Seeds;

/// A run that is none of the campaign's seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it is, for people: `the entry 0f1e...` of a corpus.
    pub name: String,
    /// What is run, leniently: what does not fit any more is plain.
    pub log: Log,
}

/// What a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// The case at this place.
    Case(usize),
    /// A seed.
    Seed(u64),
    /// The run of a search with this number, from 1; never in an order.
    Run(u64),
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Order {
    cases: Vec<Case>,
    first: Vec<u64>,
    among_first: BTreeSet<u64>,
    seeds: Seeds,
}

impl Order {
    /// An order of these; `first` are seeds of the campaign, each at most once.
    pub fn new(cases: Vec<Case>, first: Vec<u64>, seeds: Seeds) -> Order {
        let among_first = first.iter().copied().collect();
        Order { cases, first, among_first, seeds }
    }

    /// What comes at this place, from 0, before all other seeds.
    pub fn known(&self, place: u64) -> Option<Task> {
        let place = usize::try_from(place).ok()?;
        match place.checked_sub(self.cases.len()) {
            None => Some(Task::Case(place)),
            Some(place) => self.first.get(place).map(|seed| Task::Seed(*seed)),
        }
    }

    /// Whether a seed came before all others.
    pub fn is_known(&self, seed: u64) -> bool {
        self.among_first.contains(&seed)
    }

    /// All cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// A case.
    pub fn case(&self, place: usize) -> &Case {
        &self.cases[place]
    }

    /// How many runs there are.
    pub fn len(&self) -> u64 {
        self.seeds.count().saturating_add(self.cases.len() as u64)
    }

    /// The task in words.
    pub fn name(&self, task: Task) -> String {
        match task {
            Task::Seed(seed) => format!("seed {seed}"),
            Task::Run(number) => format!("run {number}"),
            Task::Case(place) => self.cases[place].name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_comes_first() {
        let cases = vec![Case { name: "a case".into(), log: Log::new(1, 900) }];
        let order = Order::new(cases, vec![7, 5], Seeds { first: 4, all: 5, shard: None });
        let known: Vec<Task> = (0..).map_while(|place| order.known(place)).collect();
        assert_eq!(known, [Task::Case(0), Task::Seed(7), Task::Seed(5)]);
        assert_eq!((order.len(), order.known(u64::MAX)), (6, None));
        assert!(order.is_known(5) && !order.is_known(4));
        assert_eq!(order.name(Task::Case(0)), "a case");
    }
}
