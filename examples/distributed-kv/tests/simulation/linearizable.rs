//! A plain linearizability checker for one key (Wing and Gong's search with remembered configurations).

use std::collections::BTreeSet;

/// What an operation did, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Returned this value.
    Read(Option<String>),
    /// Set this value, or removed the key.
    Write(Option<String>),
    /// Replaced the first by the second.
    Swap(Option<String>, Option<String>),
    /// Found that the value was another than this.
    NoSwap(Option<String>),
}

/// One operation on the key.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What it did.
    pub action: Action,
    /// When it was called.
    pub invoke: u64,
    /// When it returned; `None` if nobody knows whether and when it took effect.
    pub complete: Option<u64>,
}

/// The value after `action`, or `None` if it cannot happen now.
fn step(action: &Action, value: &Option<String>) -> Option<Option<String>> {
    match action {
        Action::Read(seen) => (seen == value).then(|| value.clone()),
        Action::Write(new) => Some(new.clone()),
        Action::Swap(old, new) => (old == value).then(|| new.clone()),
        Action::NoSwap(old) => (old != value).then(|| value.clone()),
    }
}

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Set([u64; Set::WORDS]);

impl Set {
    const WORDS: usize = 8;

    fn has(&self, i: usize) -> bool {
        self.0[i / 64] & 1 << (i % 64) != 0
    }

    fn with(mut self, i: usize) -> Set {
        self.0[i / 64] |= 1 << (i % 64);
        self
    }
}

/// Whether the operations on one key, absent at first, can be put in an order that explains them.
pub fn check(operations: &[Operation]) -> bool {
    assert!(operations.len() <= 64 * Set::WORDS, "too many operations for the set");
    let mut operations = operations.to_vec();
    operations.sort_by_key(|op| op.invoke);
    let mut seen = BTreeSet::new();
    let mut stack = vec![(Set([0; Set::WORDS]), None::<String>)];
    while let Some((done, value)) = stack.pop() {
        // Next may come whatever was called before any other open operation returned.
        let open = || (0..operations.len()).filter(|i| !done.has(*i));
        let Some(first_return) = open().filter_map(|i| operations[i].complete).min() else { return true };
        if !seen.insert((done, value.clone())) {
            continue;
        }
        for i in open().take_while(|i| operations[*i].invoke <= first_return) {
            if let Some(next) = step(&operations[i].action, &value) {
                stack.push((done.with(i), next));
            }
        }
    }
    false
}
