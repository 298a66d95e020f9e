//! [`Features`]: in how many runs of a search each feature was seen, from which follows how rare it is.
//!
//! A feature is a number that stands for something a run has shown: an abstract state of a node, a line of output without its numbers, a place in the code.

use std::collections::BTreeMap;

/// What a feature counts that only one run has shown; one that `n` runs have shown counts an `n`-th of it.
pub(crate) const ONE: u64 = 1 << 16;
/// More features are not told apart: what is new beyond them counts as seen.
const MOST: usize = 1 << 21;

/// In how many runs each feature was seen.
#[derive(Clone, Debug, Default)]
pub struct Features {
    runs: BTreeMap<u64, u32>,
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

    /// What features count together.
    pub(crate) fn rarity(&self, features: &[u64]) -> u64 {
        features.iter().map(|feature| ONE / u64::from(self.runs_of(*feature).max(1))).sum()
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
