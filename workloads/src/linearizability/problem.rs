//! One object's operations, laid out for the search.
//!
//! Key types: [`Item`] (an operation as the checker sees it), [`Problem`] (arrays over items). Operations with a
//! completion are *live* and numbered in the order of their completion; a search at *position* `i` has
//! linearized every live operation below `i` and not operation `i`, whose completion blocks the way. What may be
//! linearized there is the *window* of `i`: all live operations not below `i` that were invoked before `i` completed.
//! Operations without a completion are *crashed*: grouped into classes of identical transitions and held as counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Effect, Guard, Transition};

/// An operation: what it does and between which events it may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) transition: Transition,
    /// Event of the invocation.
    pub(crate) invoke: usize,
    /// Event before which it took effect, if there is one.
    pub(crate) complete: Option<usize>,
    /// Whether it took effect at all. Only what is complete can be required.
    pub(crate) required: bool,
}

/// A live operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) guard: Guard,
    pub(super) effect: Effect,
    /// Equal for operations with equal transitions which are both required, or both not: those can be exchanged.
    pub(super) class: u32,
    /// Its bit in masks; distinct among operations that are under way at the same time.
    pub(super) slot: u32,
    /// The item it is.
    pub(super) item: u32,
    /// Whether its completion can only be passed when it is done.
    pub(super) required: bool,
}

/// Identical operations of unknown outcome.
#[derive(Clone, Debug)]
pub(super) struct CrashClass {
    pub(super) guard: Guard,
    pub(super) effect: u32,
    /// For each of them the first position at which it may be used, ascending, and the item it is.
    pub(super) from: Vec<(u32, u32)>,
}

/// What the search needs to know; see the module's text.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) initial: u32,
    pub(super) live: Vec<Live>,
    pub(super) crashed: Vec<CrashClass>,
    /// Crash classes by the value they set.
    pub(super) crashed_into: BTreeMap<u32, Vec<u32>>,
    /// Bits that a mask needs.
    pub(super) slots: usize,
    /// Windows, each ascending, one after the other; `window_start[i]..window_start[i + 1]` is that of position `i`.
    windows: Vec<u32>,
    window_start: Vec<usize>,
}

impl Problem {
    /// Lays out `items` for an object that holds `initial`. `None` if that takes more than `memory` bytes.
    pub(super) fn new(initial: u32, items: &[Item], memory: usize) -> Option<Problem> {
        let mut order: Vec<u32> =
            (0..items.len() as u32).filter(|i| items[*i as usize].complete.is_some()).collect();
        order.sort_by_key(|i| items[*i as usize].complete);
        let values = Renaming::of(items);
        let mut classes: BTreeMap<(Transition, bool), u32> = BTreeMap::new();
        let mut live: Vec<Live> = Vec::with_capacity(order.len());
        for &item in &order {
            let transition = values.rename(items[item as usize].transition);
            let required = items[item as usize].required;
            let next = classes.len() as u32;
            let class = *classes.entry((transition, required)).or_insert(next);
            live.push(Live {
                guard: transition.guard,
                effect: transition.effect,
                class,
                slot: 0,
                item,
                required,
            });
        }
        let mut problem = Problem {
            initial: values.value(initial),
            live,
            crashed: Vec::new(),
            crashed_into: BTreeMap::new(),
            slots: 0,
            windows: Vec::new(),
            window_start: Vec::with_capacity(order.len() + 1),
        };
        problem.lay_windows(items, memory)?;
        problem.group_crashed(items, &order, &values);
        Some(problem)
    }

    /// The live operations that may be linearized at position `i`.
    pub(super) fn window(&self, i: u32) -> &[u32] {
        &self.windows[self.window_start[i as usize]..self.window_start[i as usize + 1]]
    }

    /// Bytes of the largest parts.
    pub(super) fn bytes(&self) -> usize {
        self.windows.len() * 4 + self.window_start.len() * 8 + self.live.len() * size_of::<Live>()
    }

    /// Walks the events once, noting who is under way at each completion, and gives out slots.
    fn lay_windows(&mut self, items: &[Item], memory: usize) -> Option<()> {
        let mut invocations: Vec<u32> = (0..self.live.len() as u32).collect();
        let invoked = |live: &Live| items[live.item as usize].invoke;
        invocations.sort_by_key(|j| invoked(&self.live[*j as usize]));
        let mut upcoming = invocations.into_iter().peekable();
        let mut under_way: Vec<u32> = Vec::new();
        let mut free: BTreeSet<u32> = BTreeSet::new();
        for i in 0..self.live.len() as u32 {
            let completed = items[self.live[i as usize].item as usize].complete;
            while let Some(j) = upcoming.next_if(|j| Some(invoked(&self.live[*j as usize])) < completed) {
                let at = under_way.partition_point(|k| *k < j);
                under_way.insert(at, j);
                let slot = free.pop_first().unwrap_or_else(|| {
                    self.slots += 1;
                    self.slots as u32 - 1
                });
                self.live[j as usize].slot = slot;
            }
            if (self.windows.len() + under_way.len()).saturating_mul(4) > memory {
                return None;
            }
            self.window_start.push(self.windows.len());
            self.windows.extend_from_slice(&under_way);
            let done = under_way.remove(0);
            assert_eq!(done, i, "an operation completed before its invocation");
            free.insert(self.live[i as usize].slot);
        }
        self.window_start.push(self.windows.len());
        Some(())
    }

    fn group_crashed(&mut self, items: &[Item], order: &[u32], values: &Renaming) {
        let mut groups: BTreeMap<Transition, Vec<(u32, u32)>> = BTreeMap::new();
        for (i, item) in items.iter().enumerate().filter(|(_, item)| item.complete.is_none()) {
            let transition = values.rename(item.transition);
            // Who only looks, or sets what nobody looks for, is as good as absent.
            let useful = match transition.effect {
                Effect::Keep => false,
                Effect::Set(value) => value != UNSEEN || values.negated,
            };
            let from = order.partition_point(|j| items[*j as usize].complete < Some(item.invoke)) as u32;
            if useful && (from as usize) < order.len() {
                groups.entry(transition).or_default().push((from, i as u32));
            }
        }
        for (transition, mut from) in groups {
            let Effect::Set(effect) = transition.effect else { continue };
            from.sort_unstable();
            self.crashed_into.entry(effect).or_default().push(self.crashed.len() as u32);
            self.crashed.push(CrashClass { guard: transition.guard, effect, from });
        }
    }
}

/// Stands for every value that no guard names: such values cannot be told apart.
const UNSEEN: u32 = u32::MAX;

struct Renaming {
    seen: BTreeSet<u32>,
    /// Whether there is a guard "not that value", for which even an unseen value makes a difference.
    negated: bool,
}

impl Renaming {
    fn of(items: &[Item]) -> Renaming {
        let mut renaming = Renaming { seen: BTreeSet::new(), negated: false };
        for item in items {
            match item.transition.guard {
                Guard::Any => {}
                Guard::Is(value) => {
                    renaming.seen.insert(value);
                }
                Guard::Not(value) => {
                    renaming.seen.insert(value);
                    renaming.negated = true;
                }
            }
        }
        renaming
    }

    fn value(&self, value: u32) -> u32 {
        if self.seen.contains(&value) { value } else { UNSEEN }
    }

    fn rename(&self, transition: Transition) -> Transition {
        let effect = match transition.effect {
            Effect::Keep => Effect::Keep,
            Effect::Set(value) => Effect::Set(self.value(value)),
        };
        Transition { guard: transition.guard, effect }
    }
}
