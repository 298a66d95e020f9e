//! Histories as JSON lines: the format in which findings keep them.
//!
//! One object per line and event, in the order in which the events happened, with Jepsen's keys:
//!
//! | key | in | meaning |
//! |---|---|---|
//! | `type` | all | `invoke`, `ok`, `fail` or `info` |
//! | `process` | all | number of the client; events of a named process (`"nemesis"`) are left out |
//! | `f` | all | `read`, `write`, `cas`, `delete` (also `get`, `put`, `set`) |
//! | `key` | optional | the object; or the value is `[key, value]`, as Jepsen's independent keys |
//! | `value` | by `f` | of a write the value; of a cas `[expected, new]`; of an ok read what was found, `null` for nothing; of an ok delete `true`, `false` or `null` (there was something, nothing, not known) |
//! | `time` | optional | virtual nanoseconds since the boot of the simulation |
//! | `index` | optional | number of the event; the order of the lines counts, not this |
//! | `error` | optional | why it failed; `mismatch` on a failed cas says that the object held another value |

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::event::{Event, Kind, Pairing};
use super::form::{Form, Value};
use super::{Call, History, Operation, Outcome, ParseError};

/// Reads a history.
pub fn parse(text: &str) -> Result<History, ParseError> {
    let mut pairing = Pairing::default();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let number = number + 1;
        let value: Json = serde_json::from_str(line).map_err(|e| ParseError {
            line: number,
            column: e.column().max(1),
            message: format!("not a JSON object on one line: {}", without_place(&e)),
        })?;
        if let Some(event) = event(line, number, &value)? {
            pairing.push(event)?;
        }
    }
    Ok(pairing.finish())
}

/// serde_json's message ends in "at line 1 column 7", which would contradict ours.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(message, _)| message.to_owned())
}

fn event(text: &str, line: usize, json: &Json) -> Result<Option<Event>, ParseError> {
    let error = |key: &str, message: String| {
        // Point at the key where it stands; a key that is missing has no place of its own.
        let column = text.find(&format!("\"{key}\"")).map_or(1, |at| text[..at].chars().count() + 1);
        ParseError { line, column, message }
    };
    let Json::Object(object) = json else {
        let column = text.chars().take_while(|c| c.is_whitespace()).count() + 1;
        let message =
            format!("{json} is no event; expected an object like {{\"type\":\"invoke\",\"f\":\"read\",...}}");
        return Err(ParseError { line, column, message });
    };
    let process = match object.get("process") {
        Some(Json::Number(n)) => n
            .as_u64()
            .ok_or_else(|| error("process", format!("process is {n}; expected a whole number from 0")))?,
        Some(Json::String(_) | Json::Null) => return Ok(None),
        Some(other) => return Err(error("process", format!("process is {other}; expected a number from 0"))),
        None => return Err(error("process", "an event without \"process\"".to_owned())),
    };
    let kinds = "expected \"invoke\", \"ok\", \"fail\" or \"info\"";
    let kind = match object.get("type") {
        Some(Json::String(name)) => Kind::parse(name.trim_start_matches(':'))
            .ok_or_else(|| error("type", format!("type is {name:?}; {kinds}")))?,
        Some(other) => return Err(error("type", format!("type is {other}; {kinds}"))),
        None => return Err(error("type", format!("an event without \"type\"; {kinds}"))),
    };
    let f = match object.get("f") {
        Some(Json::String(name)) => name.trim_start_matches(':').to_owned(),
        Some(other) => return Err(error("f", format!("f is {other}; expected a name like \"read\""))),
        None => return Err(error("f", "an event without \"f\"; expected a name like \"read\"".to_owned())),
    };
    let time = match object.get("time") {
        None | Some(Json::Null) => None,
        Some(Json::Number(n)) if n.is_u64() => n.as_u64(),
        Some(other) => return Err(error("time", format!("time is {other}; expected nanoseconds from 0"))),
    };
    let optional = |key: &str| object.get(key).filter(|v| !v.is_null()).map(|v| form(v).to_key());
    Ok(Some(Event {
        kind,
        process,
        f,
        key: optional("key"),
        value: object.get("value").map_or(Form::Nil, form),
        time,
        error: optional("error"),
        line,
        column: text.chars().take_while(|c| c.is_whitespace()).count() + 1,
    }))
}

fn form(json: &Json) -> Form {
    match json {
        Json::Null => Form::Nil,
        Json::Bool(b) => Form::Bool(*b),
        Json::Number(n) => n.as_i64().map_or_else(|| Form::Other(n.to_string()), Form::Int),
        Json::String(text) => Form::Text(text.clone()),
        Json::Array(items) => Form::List(items.iter().map(form).collect()),
        Json::Object(_) => Form::Other(json.to_string()),
    }
}

/// Writes a history, ending each event with a line feed.
pub fn write(history: &History) -> String {
    let mut events: Vec<(usize, &Operation, bool)> = Vec::with_capacity(history.events());
    for operation in history.operations() {
        events.push((operation.invoke_index, operation, true));
        if let Some(index) = operation.complete_index {
            events.push((index, operation, false));
        }
    }
    events.sort_by_key(|(index, _, _)| *index);
    let mut out = String::new();
    for (index, operation, invocation) in events {
        write_event(&mut out, index, operation, invocation);
    }
    out
}

fn write_event(out: &mut String, index: usize, operation: &Operation, invocation: bool) {
    let kind = match (&operation.outcome, invocation) {
        (_, true) => "invoke",
        (Outcome::Ok(_), false) => "ok",
        (Outcome::Fail | Outcome::Mismatch, false) => "fail",
        (Outcome::Unknown, false) => "info",
    };
    let time = if invocation { Some(operation.invoke) } else { operation.complete };
    // Fixed order of the keys: what a reader looks for first comes first.
    let _ = write!(
        out,
        "{{\"index\":{index},\"time\":{},\"process\":{},\"type\":\"{kind}\",\"f\":{}",
        time.map_or(0, |t| t.0),
        operation.process,
        json!(operation.call.name()),
    );
    if let Some(key) = &operation.key {
        let _ = write!(out, ",\"key\":{}", json!(key));
    }
    let value = match (&operation.call, &operation.outcome) {
        (Call::Write(value), _) => to_json(value),
        (Call::Cas { expected, new }, _) => format!("[{},{}]", to_json(expected), to_json(new)),
        (_, Outcome::Ok(value)) if !invocation => to_json(value),
        _ => "null".to_owned(),
    };
    let _ = write!(out, ",\"value\":{value}");
    if !invocation {
        let error = match operation.outcome {
            Outcome::Mismatch => Some("mismatch"),
            _ => operation.error.as_deref(),
        };
        if let Some(error) = error {
            let _ = write!(out, ",\"error\":{}", json!(error));
        }
    }
    out.push_str("}\n");
}

fn to_json(value: &Value) -> String {
    match value {
        Value::Nil => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Text(text) => json!(text).to_string(),
        // What came from JSON goes back as it was; what came from EDN becomes a text.
        Value::Raw(text) => match serde_json::from_str::<Json>(text) {
            Ok(_) => text.clone(),
            Err(_) => json!(text).to_string(),
        },
    }
}
