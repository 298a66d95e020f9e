//! The checker against a naive one that follows the definition, on 140,000 small random histories: with operations
//! of unknown outcome, with wrong answers, with several keys.

use bloodhound_abi::SimTime;
use bloodhound_decisions::Dice;
use bloodhound_workloads::generate::{Shape, corrupt, generate};
use bloodhound_workloads::history::{Call, History, Operation, Outcome, Value};
use bloodhound_workloads::linearizability::{Budget, Verdict, Violation, check};
use bloodhound_workloads::model::Model;

/// An operation for the naive checker.
#[derive(Clone, Copy)]
struct Op<'a> {
    operation: &'a Operation,
    /// Whether it need not take effect.
    optional: bool,
    /// Event by which it must have taken effect.
    complete: usize,
}

fn ops(history: &History) -> Vec<Op<'_>> {
    let known = history.operations().iter().filter(|o| o.outcome != Outcome::Fail);
    known
        .map(|operation| {
            let optional = operation.outcome == Outcome::Unknown;
            let complete = operation.complete_index.filter(|_| !optional).unwrap_or(usize::MAX);
            Op { operation, optional, complete }
        })
        .collect()
}

/// A history that no object produced: answers are drawn at random, and most operations have none. What explains the
/// few answers are then chains of operations of unknown outcome.
fn guesswork(draw: &mut dyn FnMut(u64) -> u64) -> History {
    let mut history = History::new();
    let mut open = Vec::new();
    let values = 2 + draw(4);
    for step in 0..3 + draw(7) {
        let mut value = || Value::Int(draw(values) as i64);
        let (a, b) = (value(), value());
        let (call, answer) = match draw(20) {
            0..4 => (Call::Read, Outcome::Ok(a)),
            4..9 => (Call::Write(a), Outcome::Ok(Value::Nil)),
            9 => (Call::Delete, Outcome::Ok(Value::Bool(draw(2) == 0))),
            _ => {
                let answer = if draw(3) == 0 { Outcome::Mismatch } else { Outcome::Ok(Value::Nil) };
                (Call::Cas { expected: a, new: b }, answer)
            }
        };
        let known = call == Call::Read || draw(3) == 0;
        let id = history.invoke(step, Some("k".to_owned()), call, SimTime(0));
        if known {
            open.push((id, answer));
        }
        while !open.is_empty() && draw(2) == 0 {
            let (id, answer) = open.remove(draw(open.len() as u64) as usize);
            history.complete(id, answer, SimTime(0), None);
        }
    }
    for (id, answer) in open {
        history.complete(id, answer, SimTime(0), None);
    }
    history
}

/// The object's new value if `operation` can answer as it did; written apart from the checker's own tables.
fn step(operation: &Operation, state: &Value) -> Option<Value> {
    let known = operation.outcome != Outcome::Unknown;
    match &operation.call {
        Call::Read => (!known || operation.outcome == Outcome::Ok(state.clone())).then(|| state.clone()),
        Call::Write(value) => Some(value.clone()),
        Call::Cas { expected, new } => match (state == expected, &operation.outcome) {
            (true, Outcome::Ok(_) | Outcome::Unknown) => Some(new.clone()),
            (false, Outcome::Mismatch | Outcome::Unknown) => Some(state.clone()),
            _ => None,
        },
        Call::Delete => {
            let existed = Value::Bool(*state != Value::Nil);
            let fits = match &operation.outcome {
                Outcome::Ok(answer) => *answer == Value::Nil || *answer == existed,
                _ => true,
            };
            fits.then_some(Value::Nil)
        }
        Call::Other(_) => None,
    }
}

/// Tries every order, as the definition says: the next operation is any that no other one had to precede. An optional
/// operation that had to precede it is then left out.
fn explains(ops: &[Op<'_>], state: &Value) -> bool {
    if ops.iter().all(|op| op.optional) {
        return true;
    }
    ops.iter().enumerate().any(|(i, op)| {
        let over = |other: &Op<'_>| other.complete < op.operation.invoke_index;
        !ops.iter().any(|other| over(other) && !other.optional)
            && step(op.operation, state).is_some_and(|next| {
                let rest = ops.iter().enumerate().filter(|(j, other)| *j != i && !over(other));
                let rest: Vec<Op<'_>> = rest.map(|(_, op)| *op).collect();
                explains(&rest, &next)
            })
    })
}

fn naive(history: &History) -> bool {
    let mut keys: Vec<_> = history.operations().iter().map(|o| o.key.clone()).collect();
    keys.sort();
    keys.dedup();
    keys.iter().all(|key| explains(&ops(&history.filtered(|o| o.key == *key)), &Value::Nil))
}

/// Whether the evidence is wrong by itself, judged by the naive checker.
fn evidence_is_illegal(violation: &Violation) -> bool {
    let ops: Vec<Op<'_>> = violation
        .evidence
        .iter()
        .map(|e| Op {
            operation: &e.operation,
            optional: e.open,
            complete: e
                .operation
                .complete_index
                .filter(|c| {
                    e.operation.outcome != Outcome::Unknown && Some(*c) <= violation.culprit.complete_index
                })
                .unwrap_or(usize::MAX),
        })
        .collect();
    let mut starts = vec![Value::Nil];
    if !violation.from_start {
        starts.push(Value::Text("something else".to_owned()));
        starts.extend((0..5).map(Value::Int));
    }
    !starts.iter().any(|start| explains(&ops, start))
}

#[derive(Default, Debug)]
struct Tally {
    legal: usize,
    illegal: usize,
}

fn compare(model: Model, seed: u64, count: usize, shape: impl Fn(&mut dyn FnMut(u64) -> u64) -> Shape) {
    let mut dice = Dice::new(seed);
    let mut tally = Tally::default();
    for round in 0..count {
        let shape = shape(&mut |bound| dice.below(bound));
        let mut history = generate(shape, &mut dice);
        for _ in 0..dice.below(3) {
            let nth = dice.below(1000) as usize;
            history = corrupt(&history, nth, dice.below(shape.values) as i64);
        }
        tally.compare(model, &history, &format!("seed {seed}, round {round}"));
    }
    tally.assert_mixed();
}

impl Tally {
    /// Judges `history` by both checkers.
    fn compare(&mut self, model: Model, history: &History, name: &str) {
        let expected = naive(history);
        let verdict = check(history, model, Budget::default()).expect("the model has these operations");
        let text = || format!("{name}: {verdict}\n{}", history.to_json_lines());
        match &verdict {
            Verdict::Linearizable { .. } => {
                assert!(expected, "taken for legal: {}", text());
                self.legal += 1;
            }
            Verdict::Violation(violation) => {
                assert!(!expected, "taken for wrong: {}", text());
                assert!(evidence_is_illegal(violation), "no evidence: {}", text());
                assert!(violation.prefix.is_some(), "no prefix: {}", text());
                self.illegal += 1;
            }
            Verdict::Unknown { .. } => panic!("{}", text()),
        }
    }

    /// The test is worth something only if both verdicts are common.
    fn assert_mixed(&self) {
        let tenth = (self.legal + self.illegal) / 10;
        assert!(self.legal > tenth && self.illegal > tenth, "{self:?}");
    }
}

fn register(draw: &mut dyn FnMut(u64) -> u64) -> Shape {
    Shape {
        operations: 2 + draw(9) as usize,
        clients: 1 + draw(5) as usize,
        values: 1 + draw(4),
        cas_percent: 0,
        delete_percent: 0,
        keys: 0,
        crashes: draw(5) as usize,
        mismatches: false,
    }
}

fn cas_register(draw: &mut dyn FnMut(u64) -> u64) -> Shape {
    Shape { cas_percent: 20 + draw(60), mismatches: draw(3) > 0, ..register(draw) }
}

fn kv(draw: &mut dyn FnMut(u64) -> u64) -> Shape {
    Shape { cas_percent: draw(40), delete_percent: draw(40), keys: 1 + draw(3), ..cas_register(draw) }
}

#[test]
fn register_agrees_with_the_definition() {
    compare(Model::Register, 1, 20_000, register);
}

#[test]
fn cas_register_agrees_with_the_definition() {
    compare(Model::CasRegister, 2, 25_000, cas_register);
}

#[test]
fn cas_register_agrees_with_the_definition_again() {
    compare(Model::CasRegister, 3, 25_000, cas_register);
}

#[test]
fn kv_agrees_with_the_definition() {
    compare(Model::Kv, 4, 30_000, kv);
}

#[test]
fn chains_of_unknown_outcomes_agree_with_the_definition() {
    let mut dice = Dice::new(5);
    let mut tally = Tally::default();
    for round in 0..40_000 {
        let history = guesswork(&mut |bound| dice.below(bound));
        tally.compare(Model::Kv, &history, &format!("round {round}"));
    }
    tally.assert_mixed();
}

/// Two reads need the same value: one by a chain of cas from the value before, one by a write that works anywhere.
/// All of these are of unknown outcome, and only this way round there are enough of them.
#[test]
fn a_chain_is_used_where_the_write_is_needed_later() {
    for length in 1..8 {
        let mut history = History::new();
        let mut now = 0;
        let mut process = 0;
        let mut call = |history: &mut History, call: Call, answer: Option<Value>| {
            (now, process) = (now + 1, process + 1);
            let id = history.invoke(process, None, call, SimTime(now));
            if let Some(value) = answer {
                history.complete(id, Outcome::Ok(value), SimTime(now), None);
            }
        };
        let write = |value| Call::Write(Value::Int(value));
        call(&mut history, write(0), Some(Value::Nil));
        for i in 0..length {
            call(&mut history, Call::Cas { expected: Value::Int(i), new: Value::Int(i + 1) }, None);
        }
        call(&mut history, write(length), None);
        let mut tally = Tally::default();
        for read in 0..4 {
            call(&mut history, Call::Read, Some(Value::Int(length)));
            call(&mut history, write(-1), Some(Value::Nil));
            tally.compare(Model::CasRegister, &history, &format!("chain of {length}, {read} reads"));
        }
        assert_eq!((tally.legal, tally.illegal), (2, 2));
    }
}
