//! Pairs the events of a history file: invocations with their completions. Shared by all readers.
//!
//! A history is well formed when every completion has an invocation of the same process before it, with no other
//! event of that process in between. Anything else is an error at the place of the event.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;

use super::form::{Form, Value};
use super::{Call, History, OpId, Outcome, ParseError};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Invoke,
    Ok,
    Fail,
    Info,
}

impl Kind {
    pub(super) fn parse(name: &str) -> Option<Kind> {
        Some(match name {
            "invoke" => Kind::Invoke,
            "ok" => Kind::Ok,
            "fail" => Kind::Fail,
            "info" => Kind::Info,
            _ => return None,
        })
    }
}

/// One event as read, with its place for messages.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) process: u64,
    pub(super) f: String,
    pub(super) key: Option<String>,
    pub(super) value: Form,
    pub(super) time: Option<u64>,
    pub(super) error: Option<String>,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// An operation under way.
struct Open {
    id: OpId,
    f: String,
    /// The key, and whether it stands in the value as Jepsen's `[key value]`.
    key: Option<String>,
    tuple: bool,
    written: Value,
    line: usize,
}

/// Builds a [`History`] from events in their order.
#[derive(Default)]
pub(super) struct Pairing {
    history: History,
    open: BTreeMap<u64, Open>,
}

impl Pairing {
    /// Takes the next event.
    pub(super) fn push(&mut self, event: Event) -> Result<(), ParseError> {
        let time = SimTime(event.time.unwrap_or(0));
        if event.kind == Kind::Invoke {
            return self.invoke(event, time);
        }
        let Some(open) = self.open.remove(&event.process) else {
            return Err(event.error_here(format!(
                "process {} completes an operation, but has none under way; expected its :invoke before",
                event.process
            )));
        };
        if event.f != open.f {
            return Err(event.error_here(format!(
                "process {} completes {:?}, but invoked {:?} in line {}",
                event.process, event.f, open.f, open.line
            )));
        }
        let outcome = match event.kind {
            Kind::Info => Outcome::Unknown,
            Kind::Fail if function(&open.f) == Function::Cas && event.is_mismatch() => Outcome::Mismatch,
            Kind::Fail => Outcome::Fail,
            Kind::Invoke | Kind::Ok => Outcome::Ok(completion_value(&event, &open)?),
        };
        // The outcome says it already.
        let error = event.error.filter(|_| outcome != Outcome::Mismatch);
        self.history.complete(open.id, outcome, time, error);
        Ok(())
    }

    /// The history; operations without a completion stay open.
    pub(super) fn finish(self) -> History {
        self.history
    }

    fn invoke(&mut self, event: Event, time: SimTime) -> Result<(), ParseError> {
        if let Some(open) = self.open.get(&event.process) {
            return Err(event.error_here(format!(
                "process {} invokes again before its operation of line {} is complete",
                event.process, open.line
            )));
        }
        let (key, tuple, call) = call_of(&event)?;
        let written = match &call {
            Call::Write(value) => value.clone(),
            _ => Value::Nil,
        };
        let id = self.history.invoke(event.process, key.clone(), call, time);
        let open = Open { id, f: event.f, key, tuple, written, line: event.line };
        self.open.insert(event.process, open);
        Ok(())
    }
}

impl Event {
    fn error_here(&self, message: String) -> ParseError {
        ParseError { line: self.line, column: self.column, message }
    }

    fn is_mismatch(&self) -> bool {
        self.error.as_deref().is_some_and(|e| e.trim_start_matches(':') == "mismatch")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Read,
    Write,
    Cas,
    Delete,
    Other,
}

fn function(name: &str) -> Function {
    match name {
        "read" | "get" | "r" => Function::Read,
        "write" | "put" | "set" | "w" => Function::Write,
        "cas" | "compare-and-set" | "compare-and-swap" => Function::Cas,
        "delete" | "del" | "remove" => Function::Delete,
        _ => Function::Other,
    }
}

/// Key, whether it came from a `[key value]`, and call of an invocation.
fn call_of(event: &Event) -> Result<(Option<String>, bool, Call), ParseError> {
    let function = function(&event.f);
    // Jepsen's independent keys: the value is a pair of key and value. A cas has a pair for its value anyway.
    let tuple = match (&event.key, function, event.value.pair()) {
        (Some(_), _, _) | (None, Function::Other, _) | (None, _, None) => None,
        (None, Function::Cas, Some((key, value))) => value.pair().map(|_| (key, value)),
        (None, _, Some(pair)) => Some(pair),
    };
    let value = tuple.map_or(&event.value, |(_, value)| value);
    let call = match function {
        Function::Read => Call::Read,
        Function::Write => Call::Write(value.to_value()),
        Function::Cas => match value.pair() {
            Some((expected, new)) => Call::Cas { expected: expected.to_value(), new: new.to_value() },
            None => {
                return Err(event.error_here(format!(
                    "the value of a cas is {value}; expected a pair [expected new], or [key [expected new]]"
                )));
            }
        },
        Function::Delete => Call::Delete,
        Function::Other => Call::Other(event.f.clone()),
    };
    let key = tuple.map(|(key, _)| key.to_key()).or_else(|| event.key.clone());
    Ok((key, tuple.is_some(), call))
}

/// The value of an ok completion, checked against the invocation.
fn completion_value(event: &Event, open: &Open) -> Result<Value, ParseError> {
    if event.key.is_some() && event.key != open.key {
        return Err(event.error_here(format!(
            "process {} completes an operation on key {:?}, but invoked it on {:?} in line {}",
            event.process,
            event.key.as_deref().unwrap_or(""),
            open.key.as_deref().unwrap_or("none"),
            open.line
        )));
    }
    let value = match (open.tuple, event.value.pair()) {
        (false, _) => &event.value,
        (true, Some((key, value))) if Some(key.to_key()) == open.key => value,
        (true, _) if event.value == Form::Nil && function(&open.f) != Function::Read => &event.value,
        (true, _) => {
            return Err(event.error_here(format!(
                "the value is {}; expected [key value] with key {} of the invocation in line {}",
                event.value,
                open.key.as_deref().unwrap_or(""),
                open.line
            )));
        }
    };
    match function(&open.f) {
        Function::Read => Ok(value.to_value()),
        Function::Write if *value != Form::Nil && value.to_value() != open.written => {
            Err(event.error_here(format!(
                "the write of {} invoked in line {} completes with another value, {value}",
                open.written, open.line
            )))
        }
        Function::Delete => match value {
            Form::Bool(b) => Ok(Value::Bool(*b)),
            _ => Ok(Value::Nil),
        },
        _ => Ok(Value::Nil),
    }
}
