//! What a campaign runs, and in which order: cases that are known to be worth a look come first, then seeds of the campaign of which the same
//! is known, then all other seeds as they rise. Each seed comes once.
//!
//! Key types: [`Order`], [`Case`] (a run by its log), [`Task`].

use std::collections::BTreeSet;

use bloodhound_decisions::Log;

use super::Seeds;

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

/// What is at a place of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// This.
    Task(Task),
    /// A seed that has come already.
    Passed,
    /// Nothing, nor behind it.
    End,
}

impl Order {
    /// An order of these; `first` are seeds of the campaign, each at most once.
    pub fn new(cases: Vec<Case>, first: Vec<u64>, seeds: Seeds) -> Order {
        let among_first = first.iter().copied().collect();
        Order { cases, first, among_first, seeds }
    }

    /// What comes at this place, from 0.
    pub fn at(&self, place: u64) -> At {
        let cases = self.cases.len() as u64;
        let first = cases + self.first.len() as u64;
        if place < cases {
            return At::Task(Task::Case(place as usize));
        }
        if place < first {
            return At::Task(Task::Seed(self.first[(place - cases) as usize]));
        }
        match self.seeds.number(place - first) {
            Some(seed) if self.among_first.contains(&seed) => At::Passed,
            Some(seed) => At::Task(Task::Seed(seed)),
            None => At::End,
        }
    }

    /// A case.
    pub fn case(&self, place: usize) -> &Case {
        &self.cases[place]
    }

    /// How many runs there are.
    pub fn len(&self) -> u64 {
        self.seeds.count.saturating_add(self.cases.len() as u64)
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
    fn each_seed_comes_once_and_what_is_known_comes_first() {
        let cases = vec![Case { name: "a case".into(), log: Log::new(1, 900) }];
        let order = Order::new(cases, vec![7, 5], Seeds { first: 4, count: 5 });
        let all: Vec<At> = (0..).map(|place| order.at(place)).take_while(|at| *at != At::End).collect();
        let tasks: Vec<Task> =
            all.iter().filter_map(|at| if let At::Task(task) = at { Some(*task) } else { None }).collect();
        let seeds = [7, 5, 4, 6, 8].map(Task::Seed);
        assert_eq!(tasks, [&[Task::Case(0)], &seeds[..]].concat());
        assert_eq!((tasks.len() as u64, all.len()), (order.len(), 8), "two places are passed");
        assert_eq!(order.name(Task::Case(0)), "a case");
    }
}
