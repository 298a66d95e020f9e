//! What the runs of a campaign say about those that come: [`Growth`], the number of features over the number of runs, whether it has reached a
//! [`Plateau`], and an [`Estimate`] of what is not yet seen.
//!
//! The estimates take runs for independent draws, as seeds are; they are not told of a guided search, which chooses its runs by what it has seen.
//!
//! - *The next run shows something new*: a run is new if it has a feature that no other one has. The share of such runs is the leave-one-out
//!   form of Good and Turing's estimate (I. J. Good, 1953): the one that counts runs, not features, so that a run with a hundred new features
//!   counts once.
//! - *At most*: what the first half of the runs had is compared with the second half. Each run of the second half is a trial of its own whether a
//!   run has something that the first half had not. From k successes in m trials follows a bound on their probability that holds in 95 % of
//!   all campaigns (that of Poisson's distribution, which lies above the exact one of the binomial); what is seen has only grown since.
//!   With k = 0 it is the rule of three, 3/m. It supposes nothing about how frequent features are.
//! - *Unseen features, at least*: Chao's lower bound, in the form for incidences (Chao2, 1987): from the numbers of features that one run and that
//!   two runs had.
//!
//! All of it is computed with integers, in parts per million.

use std::collections::{BTreeMap, BTreeSet};

/// With fewer runs nothing is estimated.
pub const LEAST_RUNS: u32 = 20;
/// A plateau is at least so many runs long.
const LEAST_PLATEAU: u32 = 50;
/// And at least this share of all runs: one in so many.
const PLATEAU_SHARE: u32 = 4;
/// Between two points of the curve the number of runs grows by one in so many.
const STEP: u32 = 8;
/// More features are not counted: a feature that is as rare as that is none.
const MOST_FEATURES: usize = 4 << 20;
const MILLION: u64 = 1_000_000;

/// How often a feature was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The run that had it first.
    first: u32,
    /// In how many runs.
    runs: u32,
}

/// Features over runs; see the module's text. Runs are added in an order that does not depend on when they ended.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    runs: u32,
    features: BTreeMap<u64, Seen>,
    /// For each run, the run that first had the newest of its features; `None`: it had none.
    newest: Vec<Option<u32>>,
    /// How many of the features that only one run had are those of which run.
    alone: BTreeMap<u32, u32>,
    once: u64,
    twice: u64,
    curve: Vec<(u32, u64)>,
    last_new: u32,
    /// Features that were not counted because there were too many.
    overflowed: bool,
}

/// A stretch of runs without anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plateau {
    /// How many runs, to the last one.
    pub runs: u32,
    /// So many are needed to be one.
    pub needed: u32,
}

/// What is not yet seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Probability that the next run shows something new, in parts per million.
    pub next_new: u32,
    /// It is at most this, with a confidence of 95 %.
    pub next_new_at_most: u32,
    /// Features that are not seen yet, at least.
    pub unseen_at_least: u64,
    /// Features that one run had.
    pub once: u64,
    /// Features that two runs had.
    pub twice: u64,
}

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: there were too few runs, so many.
    TooFewRuns(u32),
    /// Nothing: no run had any feature.
    NoFeatures,
    /// Nothing: there are more features than are counted.
    TooManyFeatures,
    /// An estimate.
    Estimate(Estimate),
}

impl Growth {
    /// Adds the next run. Returns how many of its features are new.
    pub fn add(&mut self, features: &BTreeSet<u64>) -> u32 {
        let run = self.runs;
        let (mut new, mut newest) = (0, None);
        for feature in features {
            let again = self.features.get_mut(feature).map(|seen| {
                seen.runs = seen.runs.saturating_add(1);
                *seen
            });
            let first = match again {
                Some(seen) => {
                    self.seen_again(seen);
                    seen.first
                }
                None if self.features.len() >= MOST_FEATURES => {
                    self.overflowed = true;
                    continue;
                }
                None => {
                    self.features.insert(*feature, Seen { first: run, runs: 1 });
                    *self.alone.entry(run).or_default() += 1;
                    self.once += 1;
                    new += 1;
                    run
                }
            };
            newest = newest.max(Some(first));
        }
        self.newest.push(newest);
        self.runs += 1;
        if new > 0 {
            self.last_new = self.runs;
        }
        let due = self.curve.last().map_or(1, |(runs, _)| runs + (runs / STEP).max(1));
        if self.runs >= due {
            self.curve.push((self.runs, self.features.len() as u64));
        }
        new
    }

    /// A feature that was known was seen once more.
    fn seen_again(&mut self, seen: Seen) {
        match seen.runs {
            2 => {
                (self.once, self.twice) = (self.once - 1, self.twice + 1);
                if let Some(count) = self.alone.get_mut(&seen.first) {
                    *count -= 1;
                    if *count == 0 {
                        self.alone.remove(&seen.first);
                    }
                }
            }
            3 => self.twice -= 1,
            _ => {}
        }
    }

    /// How many runs there were.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// How many features they had.
    pub fn features(&self) -> u64 {
        self.features.len() as u64
    }

    /// Whether a run had this feature.
    pub fn has(&self, feature: u64) -> bool {
        self.features.contains_key(&feature)
    }

    /// The last run that had something new, from 1; 0: none had.
    pub fn last_new(&self) -> u32 {
        self.last_new
    }

    /// Numbers of runs, growing by one in eight, with how many features they had; the last point is that of all runs.
    pub fn curve(&self) -> Vec<(u32, u64)> {
        let last = (self.runs, self.features());
        let more = (self.runs > 0 && self.curve.last() != Some(&last)).then_some(last);
        self.curve.iter().copied().chain(more).collect()
    }

    /// Whether the last runs showed nothing new: at least 50, and at least a quarter of all.
    pub fn plateau(&self) -> Option<Plateau> {
        let needed = LEAST_PLATEAU.max(self.runs.div_ceil(PLATEAU_SHARE));
        let runs = self.runs - self.last_new;
        (self.last_new > 0 && !self.overflowed && runs >= needed).then_some(Plateau { runs, needed })
    }

    /// What is not yet seen.
    pub fn estimate(&self) -> Told {
        if self.runs < LEAST_RUNS {
            return Told::TooFewRuns(self.runs);
        }
        if self.features.is_empty() {
            return Told::NoFeatures;
        }
        if self.overflowed {
            return Told::TooManyFeatures;
        }
        let next_new = millionths(self.alone.len() as u64 * MILLION, u64::from(self.runs));
        let half = self.runs / 2;
        let later = &self.newest[half as usize..];
        let successes =
            later.iter().filter(|newest| newest.is_some_and(|first| first >= half)).count() as u64;
        let bound = millionths(at_most(successes) * (MILLION / 1000), later.len() as u64);
        Told::Estimate(Estimate {
            next_new,
            next_new_at_most: bound.max(next_new),
            unseen_at_least: self.unseen(),
            once: self.once,
            twice: self.twice,
        })
    }

    /// Chao2, in the form that needs no feature that two runs had.
    fn unseen(&self) -> u64 {
        let (once, twice, runs) = (u128::from(self.once), u128::from(self.twice), u128::from(self.runs));
        let pairs = once * once.saturating_sub(1) * (runs - 1);
        u64::try_from(pairs / (2 * (twice + 1) * runs)).unwrap_or(u64::MAX)
    }
}

/// A ratio, at most 1.
fn millionths(numerator: u64, denominator: u64) -> u32 {
    let ratio = numerator.div_ceil(denominator.max(1));
    ratio.min(MILLION) as u32
}

/// With so many events counted, the mean of their number is at most this, in thousandths, with a confidence of 95 %.
fn at_most(events: u64) -> u64 {
    /// The first ones exactly, rounded up (tables of Poisson's distribution).
    const FIRST: [u64; 6] = [2_996, 4_744, 6_296, 7_754, 9_154, 10_514];
    /// 1.645 is the normal distribution's point; the series of Cornish and Fisher stays below with 1.57 in place of its further terms.
    const POINT: u64 = 1_645;
    const REST: u64 = 1_570;
    match FIRST.get(events as usize) {
        Some(mean) => *mean,
        None => events * 1000 + REST + ((events + 1) * POINT * POINT).isqrt() + 1,
    }
}

#[cfg(test)]
mod tests;
