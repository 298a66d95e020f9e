//! [`Features`]: in how many runs of a search each feature was seen, from which follows how rare it is, and how much it says that one is new.
//!
//! A feature is a number that stands for something a run has shown: an abstract state of a node, a line of output without its numbers, an operation with its outcome.
//! Its lowest bits are its class: what it is about. Of some classes each run shows something new, as there are so many combinations; of others nearly none does,
//! and a new line of a log says more than a new combination of what three nodes do. So what is new counts by how often runs show something new of its class: the
//! classes weigh alike, and what is news all the time is none.

use std::collections::BTreeMap;

/// Features have so many classes at most, as a power of two: these bits of a feature are its class.
pub const CLASS_BITS: u32 = 7;
/// The classes with this bit are about events of a node: something that it came to, after which it may matter that a fault begins.
pub const EVENT: u64 = 1 << 6;
const CLASSES: usize = 1 << CLASS_BITS;
/// What the new features of a class count together which an average run shows.
pub(crate) const ONE: u64 = 1 << 16;
/// A single new feature counts at most so many times as much.
const MOST_WORTH: u64 = 64;
/// The average is over so many runs, about.
const RUNS: u64 = 32;
/// More features are not told apart: what is new beyond them counts as seen.
const MOST: usize = 1 << 21;

/// In how many runs each feature was seen.
#[derive(Clone, Debug, Default)]
pub struct Features {
    runs: BTreeMap<u64, u32>,
    /// How many new features of each class a run shows on average, in parts of [`ONE`].
    news: Classes,
}

/// A number for each class.
#[derive(Clone, Debug)]
struct Classes([u64; CLASSES]);

impl Default for Classes {
    fn default() -> Classes {
        Classes([0; CLASSES])
    }
}

/// Whether a feature is about an event of a node.
pub fn is_event(feature: u64) -> bool {
    feature & EVENT != 0
}

fn class(feature: u64) -> usize {
    (feature & (CLASSES as u64 - 1)) as usize
}

impl Features {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether there is no room for more.
    pub fn is_full(&self) -> bool {
        self.runs.len() >= MOST
    }

    /// In how many runs a feature was seen.
    pub fn runs_of(&self, feature: u64) -> u32 {
        self.runs.get(&feature).copied().unwrap_or_default()
    }

    /// How many features were seen in one run alone: from it follows how likely the next run shows something new (Good and Turing).
    pub fn singletons(&self) -> usize {
        self.runs.values().filter(|runs| **runs == 1).count()
    }

    /// What it counts that a feature is new.
    pub(crate) fn worth(&self, feature: u64) -> u64 {
        let news = self.news.0[class(feature)];
        ONE * ONE / news.max(ONE / MOST_WORTH)
    }

    /// What a feature counts: where `n` runs have shown it, an `n`-th of what it did when it was new.
    pub(crate) fn rarity_of(&self, feature: u64) -> u64 {
        self.worth(feature) / u64::from(self.runs_of(feature).max(1))
    }

    /// What features count together.
    pub(crate) fn rarity(&self, features: &[u64]) -> u64 {
        features.iter().map(|feature| self.rarity_of(*feature)).sum()
    }

    /// A run has shown these features, each with its time. Returns those that no run has shown before.
    pub(crate) fn learn<'a>(&mut self, shown: impl Iterator<Item = &'a (u64, u64)>) -> Vec<(u64, u64)> {
        let new: Vec<(u64, u64)> = shown.filter(|(feature, _)| self.add(*feature)).copied().collect();
        let mut counts = Classes::default();
        new.iter().for_each(|(feature, _)| counts.0[class(*feature)] += ONE);
        for (news, count) in self.news.0.iter_mut().zip(counts.0) {
            *news = *news - *news / RUNS + count / RUNS;
        }
        new
    }

    /// A run has shown a feature. Returns whether it is the first one that did.
    pub(crate) fn add(&mut self, feature: u64) -> bool {
        let full = self.is_full();
        match self.runs.get_mut(&feature) {
            Some(runs) => {
                *runs = runs.saturating_add(1);
                false
            }
            None if full => false,
            None => {
                self.runs.insert(feature, 1);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run shows ten new features of one class, and one run in twenty one of another.
    #[test]
    fn what_is_news_all_the_time_counts_little() {
        let mut features = Features::default();
        let feature = |number: u64, class: u64| number << CLASS_BITS | class;
        for run in 0..200u64 {
            let mut shown: Vec<(u64, u64)> = (0..10).map(|n| (feature(run * 10 + n, 1), n)).collect();
            shown.push((feature(run / 20, 2), 50));
            let new = features.learn(shown.iter());
            assert_eq!(new.len(), if run % 20 == 0 { 11 } else { 10 });
        }
        let (common, rare) = (features.worth(feature(9_999, 1)), features.worth(feature(9_999, 2)));
        assert!(common < ONE / 9 && common > ONE / 12, "{common}");
        assert!(rare > 10 * ONE && rare <= MOST_WORTH * ONE, "{rare}");
        // The more runs have shown it, the less it counts.
        let (once, often) = (features.rarity(&[feature(1999, 1)]), features.rarity(&[feature(3, 2)]));
        assert!(once <= common && often < rare / 19, "{once} {often}");
    }
}
