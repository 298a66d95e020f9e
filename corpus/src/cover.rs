//! Which entries are enough: a greedy set cover.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// The entries, by their places, that together have all features that all of them have: each time the one with the most features for its
/// bytes that none of those before has, then the smallest, then the first. In the order in which they were taken, so that the first so many
/// are a good choice as well where not all may stay. It depends on nothing but its arguments and their order.
pub(crate) fn cover(entries: &[(u64, &BTreeSet<u64>)]) -> Vec<usize> {
    // Few features for many bytes come last. What an entry adds only falls while others are taken, so its old value is a bound.
    let mut heap: BinaryHeap<(u128, Reverse<u64>, Reverse<usize>)> = entries
        .iter()
        .enumerate()
        .filter(|(_, (_, features))| !features.is_empty())
        .map(|(at, (bytes, features))| (worth(features.len(), *bytes), Reverse(*bytes), Reverse(at)))
        .collect();
    let (mut covered, mut taken) = (BTreeSet::new(), Vec::new());
    while let Some((before, Reverse(bytes), Reverse(at))) = heap.pop() {
        let features = entries[at].1;
        let new = features.iter().filter(|feature| !covered.contains(*feature)).count();
        let now = worth(new, bytes);
        if new == 0 {
            continue;
        }
        if now < before {
            heap.push((now, Reverse(bytes), Reverse(at)));
            continue;
        }
        covered.extend(features.iter().copied());
        taken.push(at);
    }
    taken
}

/// Features for each byte, in parts of 2^32.
fn worth(features: usize, bytes: u64) -> u128 {
    ((features as u128) << 32) / u128::from(bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloodhound_decisions::Dice;

    fn set(features: &[u64]) -> BTreeSet<u64> {
        features.iter().copied().collect()
    }

    #[test]
    fn the_cheapest_that_have_all_features_are_taken() {
        let (all, left, right, none) = (set(&[1, 2, 3, 4]), set(&[1, 2]), set(&[3, 4]), set(&[]));
        assert_eq!(cover(&[(100, &left), (100, &all), (100, &right), (1, &none)]), [1]);
        assert_eq!(cover(&[(10, &left), (100, &all), (10, &right)]), [0, 2]);
        assert_eq!(cover(&[(10, &left), (10, &left)]), [0], "the first of equal ones");
        assert_eq!(cover(&[(10, &left), (9, &left)]), [1]);
        assert_eq!(cover(&[]), Vec::<usize>::new());
    }

    #[test]
    fn nothing_is_lost_and_nothing_is_there_for_nothing_twice() {
        let mut dice = Dice::new(5);
        for _ in 0..200 {
            let sets: Vec<(u64, BTreeSet<u64>)> = (0..dice.below(30))
                .map(|_| (1 + dice.below(1000), (0..dice.below(12)).map(|_| dice.below(40)).collect()))
                .collect();
            let entries: Vec<(u64, &BTreeSet<u64>)> = sets.iter().map(|(bytes, set)| (*bytes, set)).collect();
            let taken = cover(&entries);
            let all: BTreeSet<u64> = sets.iter().flat_map(|(_, set)| set.iter().copied()).collect();
            let kept: BTreeSet<u64> = taken.iter().flat_map(|at| sets[*at].1.iter().copied()).collect();
            assert_eq!(all, kept);
            let mut before = BTreeSet::new();
            for at in &taken {
                assert!(sets[*at].1.iter().any(|feature| !before.contains(feature)), "{at} adds nothing");
                before.extend(sets[*at].1.iter().copied());
            }
            assert_eq!(taken, cover(&entries));
        }
    }
}
