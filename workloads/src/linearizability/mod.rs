//! Decides whether a history is linearizable: whether each operation can be given one moment between its invocation
//! and its completion so that, done one after the other at these moments, the object answers as it did (Herlihy and
//! Wing, 1990). The question is NP-complete; the search is exact and its budget is counted in steps and bytes, not in
//! host time, so that a verdict is a function of history, model and budget.
//!
//! [`check`] splits the history by key and gives each key's search a budget that doubles from round to round, so that
//! a wrong key is found before hard ones have used everything. It answers with a [`Verdict`]: never "linearizable"
//! or "violation" unless that is proved. A proof of linearizability (an order) is verified independently of the
//! search; a violation carries [`Violation::evidence`], a smaller set of operations which is illegal by itself.

mod cache;
mod evidence;
mod jumps;
mod mask;
mod problem;
mod report;
mod search;
mod strain;

use std::collections::BTreeMap;

use crate::history::{History, Operation};
use crate::model::{Effect, Model, ModelError, NIL, Values};

use problem::{Item, Problem};
pub use report::describe;
use search::{Answer, Search};
pub use strain::{Strain, Strains, strain};

/// What a check may use, in units that do not depend on the host's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Search steps over all keys: a candidate tried, or some entries of the cache looked at; 0.1 to 0.5 us each.
    pub steps: u64,
    /// Bytes that one key's search may hold.
    pub memory: usize,
    /// Steps, beyond those of the search, for making the evidence of a violation small and for finding an order of
    /// what came before it. Without any, the evidence is everything up to the operation that nothing explains.
    pub evidence: u64,
}

impl Default for Budget {
    /// 300 million steps (one to two minutes), 2 GiB, 5 million steps for evidence.
    fn default() -> Self {
        Budget { steps: 300_000_000, memory: 2 << 30, evidence: 5_000_000 }
    }
}

/// The answer to a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every key's operations have a legal order, found and verified.
    Linearizable {
        /// Operations in the history.
        operations: usize,
        /// Objects checked.
        keys: usize,
    },
    /// One key's operations have no legal order. Other keys may not have been looked at.
    Violation(Box<Violation>),
    /// The budget ended before there was an answer for every key; those with an answer are linearizable.
    Unknown {
        /// The keys without an answer, and what ran out.
        undecided: Vec<(Option<String>, Exhausted)>,
        /// Number of keys that are linearizable.
        linearizable: usize,
    },
}

/// The part of the budget that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exhausted {
    /// [`Budget::steps`].
    Steps,
    /// [`Budget::memory`].
    Memory,
    /// More operations under way at one time than the search can represent ([`MAX_CONCURRENCY`]).
    Concurrency,
}

/// The most operations of known outcome that may be under way on one key at one time.
pub const MAX_CONCURRENCY: usize = 1024;

/// Proof that a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The model checked against.
    pub model: Model,
    /// The object, where the history names several.
    pub key: Option<String>,
    /// Operations on that object in the whole history.
    pub operations: usize,
    /// The operation whose completion nothing explains: up to just before it, the history is linearizable.
    pub culprit: Operation,
    /// A set of operations that is illegal by itself, in the order of invocation.
    pub evidence: Vec<Evidence>,
    /// Whether the evidence needs that the object was empty at first; if not, it is illegal whatever came before.
    pub from_start: bool,
    /// An order of the operations up to just before the culprit's completion; `None` if the budget ended.
    pub prefix: Option<Vec<Operation>>,
}

/// An operation of [`Violation::evidence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The operation as recorded.
    pub operation: Operation,
    /// The evidence does not need it to have taken effect: only that it may have, before its completion if that
    /// lies inside the evidence, or not at all.
    pub open: bool,
}

/// The operations of one key.
struct Partition<'a> {
    key: Option<&'a str>,
    /// Parallel to `items`.
    operations: Vec<&'a Operation>,
    items: Vec<Item>,
}

/// Checks whether `history` is one that `model` could have produced. An error names an operation that the model
/// does not have.
pub fn check(history: &History, model: Model, budget: Budget) -> Result<Verdict, ModelError> {
    let partitions = partition(history, model)?;
    let mut pending: Vec<&Partition<'_>> = partitions.iter().collect();
    // Short histories first: among equals the cheaper answer.
    pending.sort_by_key(|p| p.items.len());
    let mut steps = budget.steps;
    let mut undecided: Vec<(Option<String>, Exhausted)> = Vec::new();
    let mut round = 0;
    while !pending.is_empty() && steps > 0 {
        let mut again = Vec::new();
        for partition in pending {
            let share =
                (1024 + 8 * partition.items.len() as u64).saturating_mul(1 << round.min(40)).min(steps);
            let mut left = share;
            let answer = solve(NIL, &partition.items, &mut left, budget.memory);
            steps -= share - left;
            match answer {
                Ok(Answer::Legal(order)) => verify(&partition.items, NIL, &order),
                Ok(Answer::Illegal { blocked }) => {
                    let violation = evidence::explain(partition, model, blocked, budget);
                    return Ok(Verdict::Violation(Box::new(violation)));
                }
                Ok(Answer::OutOfSteps | Answer::Cut) => again.push(partition),
                Ok(Answer::OutOfMemory) => undecided.push((owned(partition.key), Exhausted::Memory)),
                Err(exhausted) => undecided.push((owned(partition.key), exhausted)),
            }
        }
        pending = again;
        round += 2;
    }
    undecided.extend(pending.iter().map(|p| (owned(p.key), Exhausted::Steps)));
    if undecided.is_empty() {
        return Ok(Verdict::Linearizable { operations: history.operations().len(), keys: partitions.len() });
    }
    undecided.sort();
    let linearizable = partitions.len() - undecided.len();
    Ok(Verdict::Unknown { undecided, linearizable })
}

fn owned(key: Option<&str>) -> Option<String> {
    key.map(str::to_owned)
}

/// Splits by key and lowers each operation.
fn partition(history: &History, model: Model) -> Result<Vec<Partition<'_>>, ModelError> {
    let mut partitions: BTreeMap<Option<&str>, (Partition<'_>, Values)> = BTreeMap::new();
    for operation in history.operations() {
        model.admit(operation)?;
        let key = operation.key.as_deref();
        let (partition, values) = partitions.entry(key).or_insert_with(|| {
            (Partition { key, operations: Vec::new(), items: Vec::new() }, Values::default())
        });
        if let Some((transition, certain)) = Model::lower(operation, values)
            && (certain || transition.effect != Effect::Keep)
        {
            let complete = operation.complete_index.filter(|_| certain);
            partition.operations.push(operation);
            partition.items.push(Item {
                transition,
                invoke: operation.invoke_index,
                complete,
                required: complete.is_some(),
            });
        }
    }
    Ok(partitions.into_values().map(|(partition, _)| partition).collect())
}

/// Lengths of chains of crashed operations that are tried, one after the other.
const CHAIN_LIMITS: [usize; 3] = [1, 3, usize::MAX];

/// Searches with masks as wide as the concurrency needs.
fn solve(initial: u32, items: &[Item], steps: &mut u64, memory: usize) -> Result<Answer, Exhausted> {
    let Some(problem) = Problem::new(initial, items, memory) else { return Err(Exhausted::Memory) };
    for limit in CHAIN_LIMITS {
        let answer = match problem.slots {
            0..=64 => Search::<u64>::new(&problem, memory, limit).run(steps),
            65..=256 => Search::<[u64; 4]>::new(&problem, memory, limit).run(steps),
            257..=MAX_CONCURRENCY => {
                Search::<[u64; MAX_CONCURRENCY / 64]>::new(&problem, memory, limit).run(steps)
            }
            _ => return Err(Exhausted::Concurrency),
        };
        if answer != Answer::Cut {
            return Ok(answer);
        }
    }
    unreachable!("without a limit nothing is cut")
}

/// Replays an order against the definition: each operation fits the state, keeps real-time order, and no operation
/// that certainly took effect is missing. A failure is a bug of the search.
fn verify(items: &[Item], initial: u32, order: &[u32]) {
    let mut seen = vec![false; items.len()];
    let mut state = initial;
    let mut latest_invocation = 0;
    for &index in order {
        let item = &items[index as usize];
        assert!(!seen[index as usize], "operation {index} twice in an order");
        seen[index as usize] = true;
        assert!(item.transition.guard.admits(state), "operation {index} does not fit in an order");
        if let Effect::Set(value) = item.transition.effect {
            state = value;
        }
        assert!(
            item.complete.is_none_or(|complete| complete > latest_invocation),
            "operation {index} comes after one that was invoked after its completion"
        );
        latest_invocation = latest_invocation.max(item.invoke);
    }
    let missing = items.iter().zip(&seen).position(|(item, seen)| item.required && !seen);
    assert_eq!(missing, None, "an operation is missing in an order");
}
