//! The pairs of accesses whose order tells a failing run from a passing one ([`critical_pairs`]).

use std::collections::BTreeMap;

/// Accesses of each run that are looked at, from the first difference on. A pair that is farther from it is none that a reader could
/// make use of.
const MOST: usize = 4000;

/// An access to memory in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access<K, M> {
    /// Names it in any run: the task, the instruction, the task's pass of it.
    pub key: K,
    /// What it touches, and whether it writes there.
    pub touches: Vec<(M, bool)>,
}

/// Two accesses of one place in memory, at least one of them a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The one that comes first in the failing run, by its place there.
    pub first: usize,
    /// The one that comes first in the passing run: its place there.
    pub second: usize,
    /// Its place in the failing run; `None`: the run failed before it.
    pub late: Option<usize>,
}

/// The pairs whose order in the failing run is not that of the passing run, those first whose first access comes earliest in the failing
/// run, and of these those whose second one comes earliest in the passing run.
pub fn critical_pairs<K: Ord, M: Ord>(failing: &[Access<K, M>], passing: &[Access<K, M>]) -> Vec<Pair> {
    let same = failing.iter().zip(passing).take_while(|(a, b)| a.key == b.key).count();
    let window = |run: &'_ [Access<K, M>]| same..run.len().min(same + MOST);
    let (mut in_failing, mut in_passing) = (BTreeMap::new(), BTreeMap::new());
    for at in window(failing) {
        in_failing.entry(&failing[at].key).or_insert(at);
    }
    for at in window(passing) {
        in_passing.entry(&passing[at].key).or_insert(at);
    }
    // What the passing run touches where, by rising place.
    let mut touched: BTreeMap<&M, Vec<(usize, bool)>> = BTreeMap::new();
    for at in window(passing) {
        for (memory, write) in &passing[at].touches {
            touched.entry(memory).or_default().push((at, *write));
        }
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for first in window(failing) {
        let Some(&then) = in_passing.get(&failing[first].key) else { continue };
        for (memory, write) in &failing[first].touches {
            for &(second, also) in touched.get(memory).into_iter().flatten() {
                if second >= then {
                    break;
                }
                let late = in_failing.get(&passing[second].key).copied();
                let pair = Pair { first, second, late };
                if (*write || also) && late.is_none_or(|late| late > first) && !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
    }
    pairs.sort_by_key(|pair| (pair.first, pair.second));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a0r` is access 0 of task a, which reads `x`; in capitals, `y`.
    fn run(text: &str) -> Vec<Access<(char, char), char>> {
        let access = |word: &str| {
            let mut chars = word.chars();
            let (task, nth, how) = (chars.next()?, chars.next()?, chars.next()?);
            let memory = if how.is_ascii_uppercase() { 'y' } else { 'x' };
            Some(Access { key: (task, nth), touches: vec![(memory, how.eq_ignore_ascii_case(&'w'))] })
        };
        text.split(' ').filter_map(access).collect()
    }

    #[test]
    fn a_lost_update_is_the_store_behind_the_other_ones_load() {
        let passing = run("m0w a0r a1w b0r b1w");
        let failing = run("m0w a0r b0r b1w a1w");
        let pairs = critical_pairs(&failing, &passing);
        assert_eq!(pairs.first(), Some(&Pair { first: 2, second: 2, late: Some(4) }));
        assert_eq!(passing[2].key, ('a', '1'));
        assert_eq!(failing[2].key, ('b', '0'));
    }

    #[test]
    fn what_a_run_never_comes_to_is_late_too() {
        let pairs = critical_pairs(&run("b0r"), &run("m0w b0r"));
        assert_eq!(pairs, [Pair { first: 0, second: 0, late: None }]);
    }

    #[test]
    fn other_memory_and_two_reads_are_no_pair() {
        assert_eq!(critical_pairs(&run("b0r a0r"), &run("a0r b0r")), []);
        assert_eq!(critical_pairs(&run("b0w a0W"), &run("a0W b0w")), []);
        assert_eq!(critical_pairs(&run("a0w b0w"), &run("a0w b0w")), []);
    }
}
