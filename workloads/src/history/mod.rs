//! Histories: what every client invoked and what it learned, in the order in which it happened.
//!
//! Key types: [`Operation`], [`History`], [`Outcome`]. A driver records with [`History::invoke`] and
//! [`History::complete`]; [`parse_any`] reads a recorded one. The formats are Jepsen's (one event per invocation and
//! one per completion): JSON lines ([`json`]), EDN ([`edn`]), and the lines of Jepsen's log ([`log`]).
//!
//! Four outcomes are told apart, because a checker may conclude different things from them:
//!
//! | type in the file | [`Outcome`] | meaning |
//! |---|---|---|
//! | `ok` | [`Outcome::Ok`] | took effect between invocation and completion |
//! | `fail` | [`Outcome::Fail`] | took no effect; says nothing else |
//! | `fail` of a cas with error `mismatch` | [`Outcome::Mismatch`] | took no effect because the object held another value than the expected one, at a moment between invocation and completion |
//! | `info`, or no completion | [`Outcome::Unknown`] | may take effect at any time after the invocation, or never |

pub mod edn;
mod event;
mod form;
pub mod json;
pub mod log;

use bloodhound_abi::SimTime;
use bloodhound_persistent::Log;

pub use form::Value;

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Read the object.
    Read,
    /// Set the object to a value.
    Write(Value),
    /// Set the object to `new` if it holds `expected`.
    Cas {
        /// The value that the object must hold.
        expected: Value,
        /// The value that it gets.
        new: Value,
    },
    /// Remove the object: a read then finds [`Value::Nil`].
    Delete,
    /// A function that no model of this crate knows, by its name.
    Other(String),
}

impl Call {
    /// The name of the function in a history file.
    pub fn name(&self) -> &str {
        match self {
            Call::Read => "read",
            Call::Write(_) => "write",
            Call::Cas { .. } => "cas",
            Call::Delete => "delete",
            Call::Other(name) => name,
        }
    }
}

/// What a client learned; see the table in the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done. The value is what a read found; for a delete `true` (there was something), `false` (there was nothing)
    /// or nil (the answer did not say); nil otherwise.
    Ok(Value),
    /// Certainly not done, for a reason that says nothing about the object.
    Fail,
    /// A cas that was not done because the object held another value than the expected one.
    Mismatch,
    /// Done or not done, now or at any later time.
    Unknown,
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client; it has at most one operation under way.
    pub process: u64,
    /// The object, where a history is about several.
    pub key: Option<String>,
    /// What was asked.
    pub call: Call,
    /// What was learned.
    pub outcome: Outcome,
    /// Virtual time of the invocation.
    pub invoke: SimTime,
    /// Virtual time of the completion, or of giving up; `None` if neither happened.
    pub complete: Option<SimTime>,
    /// Place of the invocation among all events of the history, which is their order.
    pub invoke_index: usize,
    /// Place of the completion among all events of the history.
    pub complete_index: Option<usize>,
    /// Why it failed or why its outcome is unknown, as text for people.
    pub error: Option<String>,
}

/// Names an operation of a [`History`] that is being recorded: its place in [`History::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub usize);

/// Operations in the order of their invocation. A clone shares what is recorded so far.
///
/// Real-time order is the order of events (`invoke_index`, `complete_index`), not of times: the events of a
/// simulation are totally ordered even where two happen at the same nanosecond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Log<Operation>,
    events: usize,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        History::default()
    }

    /// All operations, in the order of their invocation.
    pub fn operations(&self) -> &Log<Operation> {
        &self.operations
    }

    pub(crate) fn operation_mut(&mut self, index: usize) -> Option<&mut Operation> {
        self.operations.get_mut(index)
    }

    /// Number of events (invocations and completions).
    pub fn events(&self) -> usize {
        self.events
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Records that `process` asks for `call` on `key` at `now`.
    pub fn invoke(&mut self, process: u64, key: Option<String>, call: Call, now: SimTime) -> OpId {
        let invoke_index = self.events;
        self.events += 1;
        self.operations.push(Operation {
            process,
            key,
            call,
            outcome: Outcome::Unknown,
            invoke: now,
            complete: None,
            invoke_index,
            complete_index: None,
            error: None,
        });
        OpId(self.operations.len() - 1)
    }

    /// Records what became of an operation. Each operation completes at most once.
    pub fn complete(&mut self, id: OpId, outcome: Outcome, now: SimTime, error: Option<String>) {
        let operation = self.operations.get_mut(id.0).unwrap_or_else(|| panic!("no operation {}", id.0));
        assert!(operation.complete_index.is_none(), "operation {} completed twice", id.0);
        operation.outcome = outcome;
        operation.complete = Some(now);
        operation.complete_index = Some(self.events);
        operation.error = error;
        self.events += 1;
    }

    /// The history without the operations that `keep` refuses; the order of events stays.
    pub fn filtered(&self, mut keep: impl FnMut(&Operation) -> bool) -> History {
        let operations = self.operations.iter().filter(|o| keep(o)).cloned().collect();
        History { operations, events: self.events }
    }

    /// The history without operations that no model knows ([`Call::Other`]). To leave out any other operation is
    /// sound for reads only: without the write that it saw, a read looks wrong.
    pub fn modelled(&self) -> History {
        self.filtered(|o| !matches!(o.call, Call::Other(_)))
    }

    /// This history as JSON lines, the documented format of [`json`].
    pub fn to_json_lines(&self) -> String {
        json::write(self)
    }
}

/// A place in a history file at which it is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Reads a history in any of the known formats, told apart by its first character and, for Jepsen's log, by the
/// lines of its `jepsen.util` logger. A file of white space only is an empty history.
pub fn parse_any(bytes: &[u8]) -> Result<History, ParseError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            let (line, column) = position_at_end(&good);
            return Err(ParseError { line, column, message: "not UTF-8 text".to_owned() });
        }
    };
    match detect(text) {
        Format::Json => json::parse(text),
        Format::Edn => edn::parse(text),
        Format::Log => log::parse(text),
        Format::Empty => Ok(History::new()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Edn,
    Log,
    Empty,
}

fn detect(text: &str) -> Format {
    let mut rest = text.trim_start();
    while rest.starts_with(';') {
        rest = rest.split_once('\n').map_or("", |(_, after)| after).trim_start();
    }
    let second = rest.chars().skip(1).find(|c| !c.is_whitespace());
    match (rest.chars().next(), second) {
        (None, _) => Format::Empty,
        (Some('{'), Some(':' | '#')) => Format::Edn,
        (Some('{'), _) => Format::Json,
        // "[INFO" opens lines of some log layouts.
        (Some('['), Some('{' | '#' | ']' | ';')) | (Some('#'), _) => Format::Edn,
        (Some('['), None) => Format::Edn,
        _ => Format::Log,
    }
}

/// Line and column just past the end of `text`, both from 1.
fn position_at_end(text: &str) -> (usize, usize) {
    let line = text.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}
