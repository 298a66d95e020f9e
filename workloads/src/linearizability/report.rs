//! Verdicts as text for people.

use std::fmt;

use super::{Evidence, Exhausted, Verdict, Violation};
use crate::history::{Call, Operation, Outcome};

/// Operations of the legal prefix that a report shows: the last ones.
const PREFIX_SHOWN: usize = 8;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Linearizable { operations, keys } => {
                write!(f, "linearizable: {operations} operations on {keys} {}", plural(*keys, "object"))
            }
            Verdict::Violation(violation) => write!(f, "{violation}"),
            Verdict::Unknown { undecided, linearizable } => {
                let total = undecided.len() + linearizable;
                write!(
                    f,
                    "unknown: no verdict for {} of {total} {}",
                    undecided.len(),
                    plural(total, "object")
                )?;
                for (key, exhausted) in undecided.iter().take(10) {
                    write!(
                        f,
                        "\n  {}{exhausted}",
                        key.as_ref().map_or(String::new(), |key| format!("key {key:?}: "))
                    )?;
                }
                if undecided.len() > 10 {
                    write!(f, "\n  and {} more", undecided.len() - 10)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exhausted::Steps => "the budget of steps ended",
            Exhausted::Memory => "the budget of memory ended",
            Exhausted::Concurrency => "too many operations under way at one time",
        })
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{noun}{}", if count == 1 { "" } else { "s" })
}

/// What a client asked and learned: `cas 1 -> 2: refused`.
pub fn describe(operation: &Operation) -> String {
    let call = match &operation.call {
        Call::Read => "read".to_owned(),
        Call::Write(value) => format!("write {value}"),
        Call::Cas { expected, new } => format!("cas {expected} to {new}"),
        Call::Delete => "delete".to_owned(),
        Call::Other(name) => name.clone(),
    };
    let outcome = match (&operation.call, &operation.outcome) {
        (Call::Read, Outcome::Ok(value)) => format!("found {value}"),
        (Call::Delete, Outcome::Ok(crate::history::Value::Bool(true))) => {
            "ok, there was something".to_owned()
        }
        (Call::Delete, Outcome::Ok(crate::history::Value::Bool(false))) => "there was nothing".to_owned(),
        (_, Outcome::Ok(_)) => "ok".to_owned(),
        (_, Outcome::Fail) => "failed".to_owned(),
        (_, Outcome::Mismatch) => "refused, another value was there".to_owned(),
        (_, Outcome::Unknown) => "unknown".to_owned(),
    };
    format!("{call}: {outcome}")
}

/// The columns of one line: process, operation, invocation, completion, note.
type Row = [String; 5];

fn row(evidence: &Evidence, timed: bool) -> Row {
    let operation = &evidence.operation;
    let invoked =
        if timed { operation.invoke.to_string() } else { format!("event {}", operation.invoke_index) };
    let completed = match (operation.complete, operation.complete_index) {
        (Some(time), _) if timed => time.to_string(),
        (_, Some(index)) if !timed => format!("event {index}"),
        _ => "never".to_owned(),
    };
    let note = match (evidence.open, &operation.outcome) {
        (true, Outcome::Unknown) => "may have taken effect at any time since",
        (true, _) => "under way at the edge of this part; may have taken effect in it",
        (false, _) => "",
    };
    [operation.process.to_string(), describe(operation), invoked, completed, note.to_owned()]
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timed = self.evidence.iter().any(|e| e.operation.invoke.0 != 0)
            || self.culprit.complete.is_some_and(|time| time.0 != 0);
        let object = self.key.as_ref().map_or_else(|| "the object".to_owned(), |key| format!("key {key:?}"));
        writeln!(f, "not linearizable: {object} as a {}", self.model)?;
        writeln!(
            f,
            "  no order of the operations explains process {}'s {:?}",
            self.culprit.process,
            describe(&self.culprit)
        )?;
        let start =
            if self.from_start { "beginning with nothing (nil)" } else { "whatever the object held before" };
        writeln!(
            f,
            "  {} of {} operations on it are wrong by themselves, {start}:",
            self.evidence.len(),
            self.operations
        )?;
        let mut rows: Vec<Row> =
            vec![["process", "operation", "invoked", "completed", ""].map(str::to_owned)];
        rows.extend(self.evidence.iter().map(|e| row(e, timed)));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "    {}", cells.join("  ").trim_end())?;
        }
        match &self.prefix {
            Some(prefix) => {
                let shown = &prefix[prefix.len().saturating_sub(PREFIX_SHOWN)..];
                let list: Vec<String> =
                    shown.iter().map(|o| format!("process {} {}", o.process, describe(o))).collect();
                let dots = if shown.len() < prefix.len() { "...; " } else { "" };
                write!(
                    f,
                    "  up to there it is linearizable ({} operations), for example: {dots}{}",
                    prefix.len(),
                    list.join("; ")
                )
            }
            None => write!(f, "  up to there it is linearizable"),
        }
    }
}
