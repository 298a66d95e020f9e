//! What a search is told of a run: features, how near it came to a violation, and what in it can be changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_decisions::{Choice, Part, WORD};
use bloodhound_explore::{Planned, Seen};

use super::carry::Carried;
use crate::session::Outcome;

/// What a run has shown.
pub fn seen(carried: &Carried) -> Seen {
    let outcome = &carried.outcome;
    Seen {
        log: carried.log.clone(),
        moments: carried.moments.clone(),
        features: features(outcome),
        nearness: 0,
        cost: carried.cost,
        failed: !outcome.violations.is_empty() || outcome.stopped.is_some(),
        faults: Arc::new(faults(outcome)),
        draws: Arc::default(),
    }
}

/// The faults that the run drew, in order of time.
fn faults(outcome: &Outcome) -> Vec<Planned> {
    let drawn = outcome.plan.iter().filter(|entry| !entry.id.is_written());
    drawn
        .map(|entry| {
            let begins = Choice { part: Part::Run, site: entry.id.site("begins") };
            Planned { begins, bound: WORD, at: entry.begin.0 }
        })
        .collect()
}

/// Lines of output of each service without their numbers, with how often they came as a power of two.
fn features(outcome: &Outcome) -> Vec<(u64, u64)> {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    let mut features = BTreeMap::new();
    for line in crate::console::lines(&outcome.console, &outcome.log) {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ u64::from(line.node.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut number = false;
        for byte in line.text.bytes() {
            if byte.is_ascii_digit() && number {
                continue;
            }
            number = byte.is_ascii_digit();
            let byte = if number { b'#' } else { byte };
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let count = counts.entry(hash).or_default();
        *count += 1;
        if count.is_power_of_two() {
            let feature = hash.wrapping_add(u64::from(count.trailing_zeros()) << 56);
            features.entry(feature).or_insert(line.at.0);
        }
    }
    features.into_iter().collect()
}
