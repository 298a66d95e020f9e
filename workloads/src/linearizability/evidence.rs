//! Reduces an illegal history to a small part which is illegal by itself.
//!
//! Every step must be a *relaxation*: if the whole history were legal, so would be the part. Then a part that is
//! illegal proves that the whole is. Dropping just any operation is none (without the write that it saw, each read
//! is wrong). These are:
//!
//! * Cut at a completion: what was not complete by then may have taken effect or not.
//! * Cut at an invocation, and let the object hold anything at that time: what was complete by then is dropped, what
//!   was under way may take effect after it or not.
//! * Drop a reader: it changes nothing, and one demand less is met more easily.
//! * Drop a setter that nothing left can have observed: in a legal order, what directly follows it then asks for
//!   nothing, and does not miss it. See [`can_observe`].

use std::collections::BTreeSet;

use super::problem::Item;
use super::search::Answer;
use super::{Budget, Evidence, Partition, Violation, solve};
use crate::model::{Effect, Guard, Model, NIL};

/// A value that no operation names.
const OTHER: u32 = u32::MAX - 1;

/// A part of a history.
#[derive(Clone, Debug)]
struct Part {
    /// Indices into the partition, and the items, relaxed; in the order of invocation.
    items: Vec<(usize, Item)>,
    /// Whether the object holds nil at first; otherwise it may hold anything.
    from_start: bool,
}

/// Describes the violation that a search found in `partition`.
pub(super) fn explain(partition: &Partition<'_>, model: Model, blocked: u32, budget: Budget) -> Violation {
    let blocked = blocked as usize;
    let mut reduction = Reduction { blocked, steps: budget.evidence, memory: budget.memory };
    let part = reduction.minimise(&partition.items);
    let evidence = part.items.iter().map(|(index, item)| Evidence {
        operation: partition.operations[*index].clone(),
        open: !item.required,
    });
    let evidence = evidence.collect();
    let prefix = reduction.legal_prefix(&partition.items);
    Violation {
        model,
        key: partition.key.map(str::to_owned),
        operations: partition.operations.len(),
        culprit: partition.operations[blocked].clone(),
        evidence,
        from_start: part.from_start,
        prefix: prefix.map(|order| order.into_iter().map(|i| partition.operations[i].clone()).collect()),
    }
}

/// What was invoked before event `end`; what was not complete by then stays open.
fn cut_end(items: &[Item], end: usize) -> Vec<(usize, Item)> {
    let before = items.iter().enumerate().filter(|(_, item)| item.invoke < end);
    let cut = before.map(|(i, item)| {
        let complete = item.complete.filter(|c| *c <= end);
        (i, Item { complete, required: item.required && complete.is_some(), ..*item })
    });
    cut.filter(|(_, item)| item.required || item.transition.effect != Effect::Keep).collect()
}

/// What was not complete before event `start`; what was under way then becomes optional.
fn after_start(items: &[(usize, Item)], start: usize) -> Part {
    let left = items.iter().filter(|(_, item)| item.complete.is_none_or(|c| c > start));
    let cut = left.map(|(i, item)| (*i, Item { required: item.required && item.invoke >= start, ..*item }));
    let kept = cut.filter(|(_, item)| item.required || item.transition.effect != Effect::Keep);
    Part { items: kept.collect(), from_start: false }
}

/// Whether `reader` asks for something that `setter`, were it the last to set the object, would answer. Not if it
/// was complete before the setter was invoked, and not if another setter `between` lay wholly between the two.
fn can_observe(setter: &Item, reader: &Item, between: &[Item]) -> bool {
    let Effect::Set(value) = setter.transition.effect else { return false };
    let asks = match reader.transition.guard {
        Guard::Any => false,
        Guard::Is(asked) => asked == value,
        Guard::Not(_) => true,
    };
    asks && reader.complete.is_none_or(|complete| complete > setter.invoke)
        && !between.iter().any(|other| {
            setter.complete.is_some_and(|complete| complete < other.invoke)
                && other.complete.is_some_and(|complete| complete < reader.invoke)
        })
}

/// Makes a part smaller while its steps last.
struct Reduction {
    /// The item whose completion nothing explains. No illegal part is without it.
    blocked: usize,
    steps: u64,
    memory: usize,
}

impl Reduction {
    fn minimise(&mut self, items: &[Item]) -> Part {
        let end = items[self.blocked].complete.unwrap_or(usize::MAX);
        let mut part = Part { items: cut_end(items, end), from_start: true };
        if let Some(cut) = self.cut_start(&part.items) {
            part = cut;
        }
        while self.steps > 0 {
            let before = part.items.len();
            self.drop_readers(&mut part);
            self.drop_setters(&mut part);
            if part.items.len() == before {
                break;
            }
        }
        part
    }

    /// Cuts at the latest invocation at which the part stays illegal. An earlier cut relaxes less; therefore parts
    /// of doubling length are tried first, from the end, then bisection finds the place.
    fn cut_start(&mut self, items: &[(usize, Item)]) -> Option<Part> {
        let illegal_from = |this: &mut Self, at: usize| {
            let cut = after_start(items, items[at].1.invoke);
            this.is_illegal(&cut).then_some(cut)
        };
        let mut high = items.len();
        let mut length = 4;
        let (mut low, mut best) = loop {
            let at = items.len().saturating_sub(length);
            if let Some(cut) = illegal_from(self, at) {
                break (at, cut);
            }
            if at == 0 || self.steps == 0 {
                return None;
            }
            high = at;
            length *= 2;
        };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match illegal_from(self, middle) {
                Some(cut) => (low, best) = (middle, cut),
                None => high = middle,
            }
        }
        Some(best)
    }

    fn drop_readers(&mut self, part: &mut Part) {
        let blocked = self.blocked;
        self.drop_chunks(part, |part| {
            let readers =
                part.items.iter().map(|(i, item)| *i != blocked && item.transition.effect == Effect::Keep);
            readers.collect()
        });
    }

    fn drop_setters(&mut self, part: &mut Part) {
        let blocked = self.blocked;
        self.drop_chunks(part, |part| {
            let required = |item: &&Item| item.required && item.transition.effect != Effect::Keep;
            let setters: Vec<Item> =
                part.items.iter().map(|(_, item)| item).filter(required).copied().collect();
            let observed = |setter: &Item| {
                part.items.iter().any(|(_, other)| other != setter && can_observe(setter, other, &setters))
            };
            let free = part
                .items
                .iter()
                .map(|(i, item)| *i != blocked && item.transition.effect != Effect::Keep && !observed(item));
            free.collect()
        });
    }

    /// Drops what `may_go` marks, in chunks of halving size, as far as the part stays illegal.
    fn drop_chunks(&mut self, part: &mut Part, may_go: impl Fn(&Part) -> Vec<bool>) {
        let mut marked = may_go(part);
        let mut size = marked.iter().filter(|m| **m).count();
        while size > 0 {
            // From the end: what is close to the contradiction moves least.
            let mut end = part.items.len();
            while end > 0 && self.steps > 0 {
                let chunk: BTreeSet<usize> = (0..end).rev().filter(|at| marked[*at]).take(size).collect();
                let Some(start) = chunk.first().copied() else { break };
                let kept = part.items.iter().enumerate().filter(|(at, _)| !chunk.contains(at));
                let smaller = Part { items: kept.map(|(_, item)| *item).collect(), ..*part };
                if self.is_illegal(&smaller) {
                    *part = smaller;
                    marked = may_go(part);
                }
                end = start;
            }
            size = if self.steps == 0 { 0 } else { size / 2 };
        }
    }

    /// Whether the part is certainly illegal, from each value it may start with.
    fn is_illegal(&mut self, part: &Part) -> bool {
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
            // Laying out the arrays costs about as much as a step for each item.
            self.steps = self.steps.saturating_sub(items.len() as u64);
            // One hard candidate must not use up what the others need.
            let share = self.steps / 4;
            let mut left = share;
            let answer = solve(initial, &items, &mut left, self.memory);
            self.steps -= share - left;
            matches!(answer, Ok(Answer::Illegal { .. }))
        })
    }

    /// An order of everything up to just before the completion of the blocked item, as indices into `items`. Not
    /// attempted without steps for evidence.
    fn legal_prefix(&self, items: &[Item]) -> Option<Vec<usize>> {
        let end = items[self.blocked].complete.filter(|_| self.steps > 0)?;
        let cut = cut_end(items, end - 1);
        let prefix: Vec<Item> = cut.iter().map(|(_, item)| *item).collect();
        let mut steps = self.steps;
        match solve(NIL, &prefix, &mut steps, self.memory) {
            Ok(Answer::Legal(order)) => {
                super::verify(&prefix, NIL, &order);
                Some(order.into_iter().map(|i| cut[i as usize].0).collect())
            }
            _ => None,
        }
    }
}
