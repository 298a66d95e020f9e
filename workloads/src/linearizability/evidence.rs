//! Reduces an illegal history to a small part which is illegal by itself.
//!
//! Every step must be a *relaxation*: if the whole history were legal, so would be the part. Then a part that is
//! illegal proves that the whole is. Dropping just any operation is none (without the write that it saw, each read
//! is wrong). These are:
//!
//! * Cut at a completion: what was not complete by then may have taken effect or not.
//! * Cut at an invocation, and let the object hold anything at that time: what was complete by then is dropped, what
//!   was under way may take effect or not.
//! * Drop a reader: it changes nothing, and one demand less is met more easily.
//! * Drop a setter of a value for which no other operation that is left asks, neither for it nor for its absence: in
//!   a legal order what directly follows it asks for nothing, and does not miss it.

use std::collections::BTreeSet;

use super::problem::Item;
use super::search::Answer;
use super::{Evidence, Partition, Violation, solve};
use crate::model::{Effect, Guard, Model, NIL};

/// Steps for making the evidence small, whatever the check's budget: a verdict stands without.
const MINIMISE_STEPS: u64 = 20_000_000;

/// A value that no operation names.
const OTHER: u32 = u32::MAX - 1;

/// A part of a history.
#[derive(Clone, Debug)]
struct Part {
    /// Indices into the partition, and the items, relaxed.
    items: Vec<(usize, Item)>,
    /// Whether the object holds nil at first; otherwise it may hold anything.
    from_start: bool,
}

/// Describes the violation that a search found in `partition`, using up to `steps`.
pub(super) fn explain(
    partition: &Partition<'_>,
    model: Model,
    blocked: u32,
    steps: u64,
    memory: usize,
) -> Violation {
    let mut budget = steps.min(MINIMISE_STEPS);
    let part = minimise(&partition.items, blocked as usize, &mut budget, memory);
    let evidence = part
        .items
        .iter()
        .map(|(index, item)| Evidence {
            operation: partition.operations[*index].clone(),
            open: item.complete.is_none(),
        })
        .collect();
    let prefix = legal_prefix(&partition.items, blocked as usize, memory);
    Violation {
        model,
        key: partition.key.map(str::to_owned),
        operations: partition.operations.len(),
        culprit: partition.operations[blocked as usize].clone(),
        evidence,
        from_start: part.from_start,
        prefix: prefix.map(|order| order.into_iter().map(|i| partition.operations[i].clone()).collect()),
    }
}

/// The smallest illegal part found of `items`, whose first unexplained completion is that of `blocked`.
fn minimise(items: &[Item], blocked: usize, steps: &mut u64, memory: usize) -> Part {
    let end = items[blocked].complete.unwrap_or(usize::MAX);
    let mut part = Part { items: cut_end(items, end), from_start: true };
    cut_start(&mut part, steps, memory);
    loop {
        let before = part.items.len();
        drop_chunks(&mut part, is_reader, steps, memory);
        drop_chunks(&mut part, is_unasked_setter, steps, memory);
        if part.items.len() == before || *steps == 0 {
            break;
        }
    }
    part.items.sort_by_key(|(_, item)| item.invoke);
    part
}

/// What was invoked before event `end`; what was not complete by then stays open.
fn cut_end(items: &[Item], end: usize) -> Vec<(usize, Item)> {
    let before = items.iter().enumerate().filter(|(_, item)| item.invoke < end);
    let cut = before.map(|(i, item)| (i, Item { complete: item.complete.filter(|c| *c <= end), ..*item }));
    cut.filter(|(_, item)| item.complete.is_some() || item.transition.effect != Effect::Keep).collect()
}

/// What was not complete before event `start`; what was under way then stays open.
fn after_start(part: &Part, start: usize) -> Part {
    let items = part.items.iter().filter(|(_, item)| item.complete.is_none_or(|c| c > start));
    let cut = items
        .map(|(i, item)| (*i, Item { complete: item.complete.filter(|_| item.invoke >= start), ..*item }));
    let kept = cut.filter(|(_, item)| item.complete.is_some() || item.transition.effect != Effect::Keep);
    Part { items: kept.collect(), from_start: false }
}

/// Cuts the part at the latest invocation at which it stays illegal. Later cuts relax more, so bisection finds it.
fn cut_start(part: &mut Part, steps: &mut u64, memory: usize) {
    let mut starts: Vec<usize> = part.items.iter().map(|(_, item)| item.invoke).collect();
    starts.sort_unstable();
    let (mut low, mut high) = (0, starts.len());
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let cut = after_start(part, starts[middle]);
        if is_illegal(&cut, steps, memory) {
            best = Some(cut);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if let Some(cut) = best {
        *part = cut;
    }
}

fn is_reader(part: &Part, at: usize) -> bool {
    part.items[at].1.transition.effect == Effect::Keep
}

fn is_unasked_setter(part: &Part, at: usize) -> bool {
    let Effect::Set(value) = part.items[at].1.transition.effect else { return false };
    part.items.iter().enumerate().all(|(other, (_, item))| {
        other == at
            || match item.transition.guard {
                Guard::Any => true,
                Guard::Is(asked) => asked != value,
                Guard::Not(_) => false,
            }
    })
}

/// Drops those that `may_go` allows, in chunks of halving size, as far as the part stays illegal.
fn drop_chunks(part: &mut Part, may_go: fn(&Part, usize) -> bool, steps: &mut u64, memory: usize) {
    let mut size = (part.items.len() / 2).max(1);
    loop {
        let mut end = part.items.len();
        while end > 0 && *steps > 0 {
            let start = end.saturating_sub(size);
            let candidates: BTreeSet<usize> = (start..end).filter(|at| may_go(part, *at)).collect();
            if !candidates.is_empty() {
                let kept = part.items.iter().enumerate().filter(|(at, _)| !candidates.contains(at));
                let smaller = Part { items: kept.map(|(_, item)| *item).collect(), ..*part };
                if is_illegal(&smaller, steps, memory) {
                    *part = smaller;
                }
            }
            end = start;
        }
        if size == 1 || *steps == 0 {
            return;
        }
        size /= 2;
    }
}

/// Whether the part is certainly illegal, from each value it may start with.
fn is_illegal(part: &Part, steps: &mut u64, memory: usize) -> bool {
    let items: Vec<Item> = part.items.iter().map(|(_, item)| *item).collect();
    let mut initials = BTreeSet::from([NIL]);
    if !part.from_start {
        initials.insert(OTHER);
        initials.extend(items.iter().filter_map(|item| match item.transition.guard {
            Guard::Is(value) | Guard::Not(value) => Some(value),
            Guard::Any => None,
        }));
    }
    initials.into_iter().all(|initial| {
        // One hard candidate must not use up what the others need.
        let share = *steps / 4;
        let mut left = share;
        let answer = solve(initial, &items, &mut left, memory);
        *steps -= share - left;
        matches!(answer, Ok(Answer::Illegal { .. }))
    })
}

/// An order of everything up to just before the completion of `blocked`, as indices into the partition.
fn legal_prefix(items: &[Item], blocked: usize, memory: usize) -> Option<Vec<usize>> {
    let end = items[blocked].complete?;
    let cut = cut_end(items, end - 1);
    let prefix: Vec<Item> = cut.iter().map(|(_, item)| *item).collect();
    let mut steps = MINIMISE_STEPS;
    match solve(NIL, &prefix, &mut steps, memory) {
        Ok(Answer::Legal(order)) => {
            super::verify(&prefix, NIL, &order);
            Some(order.into_iter().map(|i| cut[i as usize].0).collect())
        }
        _ => None,
    }
}
