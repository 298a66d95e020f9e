//! Reads the operations out of Jepsen's log: `INFO  jepsen.util - 0 :invoke :read nil`, white space between.
//!
//! Only lines of the logger `jepsen.util` count: such a file also holds other loggers' lines, stack traces, and a
//! report that repeats operations without that prefix. A file without that logger is taken for Jepsen's
//! `history.txt`, where every line is `process type f value [error]`.
//!
//! In these logs a cas that was refused is written `:fail :cas [a b]`, and one that failed for another reason has
//! that reason for its value (`:fail :cas :timed-out`). The former is an [`Outcome::Mismatch`](super::Outcome), as all
//! checkers that judge this corpus take it.

use super::edn::Reader;
use super::event::{Event, Kind, Pairing};
use super::form::Form;
use super::{History, ParseError};

const LOGGER: &str = "jepsen.util";

/// Reads a history.
pub fn parse(text: &str) -> Result<History, ParseError> {
    let prefixed = text.lines().any(|line| operation_part(line).is_some());
    let mut pairing = Pairing::default();
    for (number, line) in text.lines().enumerate() {
        let part = if prefixed {
            match operation_part(line) {
                Some(part) => part,
                None => continue,
            }
        } else if line.trim().is_empty() {
            continue;
        } else {
            line
        };
        let column = line.len() - part.len();
        match event(part, number + 1, column)? {
            Some(event) => pairing.push(event)?,
            None => continue,
        }
    }
    Ok(pairing.finish())
}

/// What follows the logger's name and its `-` or `:`.
fn operation_part(line: &str) -> Option<&str> {
    let at = line.find(LOGGER)?;
    let rest = line[at + LOGGER.len()..].trim_start();
    rest.strip_prefix('-').or_else(|| rest.strip_prefix(':'))
}

fn event(part: &str, line: usize, offset: usize) -> Result<Option<Event>, ParseError> {
    let mut reader = Reader::new(part, line);
    let mut next = |what: &str| -> Result<(Form, usize), ParseError> {
        match reader.next_form() {
            Ok(Some((form, _, column))) => Ok((form, column + offset)),
            Ok(None) => Err(ParseError {
                line,
                column: part.chars().count() + offset + 1,
                message: format!("the line ends; expected {what} of `process type f value`"),
            }),
            Err(mut error) => {
                error.column += offset;
                Err(error)
            }
        }
    };
    let process = match next("the process")? {
        (Form::Int(process), column) => u64::try_from(process).map_err(|_| ParseError {
            line,
            column,
            message: format!("process {process}; expected a number from 0"),
        })?,
        (Form::Keyword(_), _) => return Ok(None),
        (other, column) => {
            let message = format!(
                "{other} is no process; expected a line of `process type f value` (or JSON lines, or EDN maps)"
            );
            return Err(ParseError { line, column, message });
        }
    };
    let (form, column) = next("the type")?;
    let Some(kind) = form.name().and_then(Kind::parse) else {
        let message = format!("{form} is no type; expected :invoke, :ok, :fail or :info");
        return Err(ParseError { line, column, message });
    };
    let (form, column) = next("the function")?;
    let Some(f) = form.name().map(str::to_owned) else {
        return Err(ParseError {
            line,
            column,
            message: format!("{form} is no function; expected :read or the like"),
        });
    };
    let (value, column) = next("the value")?;
    let error = match (&value, reader.next_form()) {
        (_, Ok(Some((form, _, _)))) => Some(form.to_key()),
        (Form::Keyword(reason), _) if kind != Kind::Invoke => Some(reason.clone()),
        (Form::List(_), _) if kind == Kind::Fail && f == "cas" => Some(":mismatch".to_owned()),
        _ => None,
    };
    Ok(Some(Event { kind, process, f, key: None, value, time: None, error, line, column }))
}
