//! Random histories of a known verdict, for tests and benchmarks.
//!
//! [`generate`] runs random operations of concurrent clients on a real register: each takes effect at one moment
//! between its invocation and its completion, so that the history is linearizable by construction.
//! [`corrupt`] changes one answer; mostly that makes the history illegal, but not always.

use bloodhound_abi::SimTime;
use bloodhound_decisions::Dice;

use crate::history::{Call, History, OpId, Operation, Outcome, Value};

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of operations.
    pub operations: usize,
    /// Clients, each with one operation under way at most.
    pub clients: usize,
    /// Values written are drawn from `0..values`.
    pub values: u64,
    /// Of 100 operations this many are cas; the others are reads and writes in equal parts.
    pub cas_percent: u64,
    /// Of 100 operations this many are deletes.
    pub delete_percent: u64,
    /// Number of keys; 0 for a single object without a key.
    pub keys: u64,
    /// Operations whose outcome stays unknown, spread evenly; each takes effect or not.
    pub crashes: usize,
    /// Whether a cas that finds another value is recorded as [`Outcome::Mismatch`] rather than [`Outcome::Fail`].
    pub mismatches: bool,
}

impl Shape {
    /// Reads, writes and cas on one register of five values.
    pub fn register(operations: usize, clients: usize, crashes: usize) -> Shape {
        Shape {
            operations,
            clients,
            values: 5,
            cas_percent: 34,
            delete_percent: 0,
            keys: 0,
            crashes,
            mismatches: true,
        }
    }
}

struct Pending {
    id: OpId,
    object: usize,
    call: Call,
    /// What it answers, once it has taken effect.
    answer: Option<Outcome>,
    crashes: bool,
}

/// A linearizable history; its random numbers come from `dice`.
pub fn generate(shape: Shape, dice: &mut Dice) -> History {
    let mut history = History::new();
    let mut objects = vec![Value::Nil; shape.keys.max(1) as usize];
    let mut clients: Vec<Option<Pending>> = (0..shape.clients).map(|_| None).collect();
    let mut processes: Vec<u64> = (0..shape.clients as u64).collect();
    let mut started = 0;
    let mut now = 0;
    let mut draw = |bound: usize| dice.below(bound as u64) as usize;
    while started < shape.operations || clients.iter().any(Option::is_some) {
        now += 1 + draw(1000) as u64;
        let client = draw(shape.clients);
        match clients[client].take() {
            None if started < shape.operations => {
                started += 1;
                let object = draw(objects.len());
                let call = random_call(&shape, &mut draw);
                let key = (shape.keys > 0).then(|| format!("k{object}"));
                let id = history.invoke(processes[client], key, call.clone(), SimTime(now));
                let every = shape.operations.checked_div(shape.crashes).unwrap_or(usize::MAX).max(1);
                let crashes = started % every == every / 2 && started / every < shape.crashes;
                clients[client] = Some(Pending { id, object, call, answer: None, crashes });
            }
            None => {}
            Some(mut pending) => {
                if pending.answer.is_none() && (!pending.crashes || draw(2) == 0) {
                    pending.answer = Some(take_effect(&pending.call, &mut objects[pending.object], &shape));
                }
                if pending.crashes {
                    // Gives up; the client goes on as another process.
                    history.complete(pending.id, Outcome::Unknown, SimTime(now), Some("timeout".to_owned()));
                    processes[client] += shape.clients as u64;
                } else if draw(2) == 0 {
                    let answer = pending.answer.take().unwrap_or(Outcome::Fail);
                    history.complete(pending.id, answer, SimTime(now), None);
                } else {
                    clients[client] = Some(pending);
                }
            }
        }
    }
    history
}

fn random_call(shape: &Shape, draw: &mut impl FnMut(usize) -> usize) -> Call {
    let mut value = || Value::Int(draw(shape.values as usize) as i64);
    let (a, b) = (value(), value());
    match draw(100) as u64 {
        kind if kind < shape.cas_percent => Call::Cas { expected: a, new: b },
        kind if kind < shape.cas_percent + shape.delete_percent => Call::Delete,
        kind if (kind + shape.cas_percent + shape.delete_percent).is_multiple_of(2) => Call::Read,
        _ => Call::Write(a),
    }
}

fn take_effect(call: &Call, object: &mut Value, shape: &Shape) -> Outcome {
    match call {
        Call::Read => Outcome::Ok(object.clone()),
        Call::Write(value) => {
            *object = value.clone();
            Outcome::Ok(Value::Nil)
        }
        Call::Cas { expected, new } if object == expected => {
            *object = new.clone();
            Outcome::Ok(Value::Nil)
        }
        Call::Cas { .. } if shape.mismatches => Outcome::Mismatch,
        Call::Cas { .. } | Call::Other(_) => Outcome::Fail,
        Call::Delete => Outcome::Ok(Value::Bool(std::mem::take(object) != Value::Nil)),
    }
}

/// `history` with the answer of one operation changed: a read finds another value, a cas succeeds instead of being
/// refused or the other way round. The operation is the `nth` (counted around) of those that can be changed.
pub fn corrupt(history: &History, nth: usize, value: i64) -> History {
    let changeable = |o: &Operation| {
        matches!(
            (&o.call, &o.outcome),
            (Call::Read, Outcome::Ok(_)) | (Call::Cas { .. }, Outcome::Ok(_) | Outcome::Mismatch)
        )
    };
    let indices =
        history.operations().iter().enumerate().filter(|(_, o)| changeable(o)).map(|(index, _)| index);
    let candidates: Vec<usize> = indices.collect();
    let mut changed = history.clone();
    if let Some(chosen) = nth.checked_rem(candidates.len())
        && let Some(operation) = changed.operation_mut(candidates[chosen])
    {
        operation.outcome = match (&operation.call, &operation.outcome) {
            (Call::Read, _) => Outcome::Ok(Value::Int(value)),
            (_, Outcome::Mismatch) => Outcome::Ok(Value::Nil),
            _ => Outcome::Mismatch,
        };
    }
    changed
}
