//! `bloodhound check`: judges a recorded history.
//!
//! The work is done by `bloodhound_workloads`: `history` reads the file, `linearizability` decides. This module turns
//! the verdict into text or JSON and an exit code.

use std::io::Read;
use std::path::{Path, PathBuf};

use bloodhound_workloads::history::{self, Call, History, Operation, Outcome, Value};
use bloodhound_workloads::linearizability::{self, Budget, Exhausted, Verdict, Violation};
use bloodhound_workloads::model::Model;
use serde_json::{Value as Json, json};

use crate::exit;
use crate::output::{self, Format};

/// Arguments of `check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What the history is compared with: register, cas-register or kv
    #[arg(long, value_parser = model, value_name = "MODEL")]
    model: Model,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Search steps until the answer is "unknown"; a step takes about 0.1 us
    #[arg(long, value_name = "N", default_value_t = Budget::default().steps)]
    max_steps: u64,
    /// Memory of the search, in MiB, until the answer is "unknown"
    #[arg(long, value_name = "MIB", default_value_t = (Budget::default().memory >> 20) as u64)]
    max_memory: u64,
    /// The history: JSON lines, Jepsen EDN, or a log of Jepsen's; `-` is standard input
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
}

fn model(text: &str) -> Result<Model, String> {
    text.parse()
}

/// A history that cannot be judged.
struct Unusable {
    line: Option<(usize, usize)>,
    message: String,
}

/// Judges the history; the exit code.
pub fn run(args: &Args) -> u8 {
    let name = if args.history == Path::new("-") {
        "standard input".to_owned()
    } else {
        args.history.display().to_string()
    };
    match judge(args) {
        Ok((verdict, operations)) => {
            match args.format {
                Format::Human => output::print(&format!("{verdict}\n")),
                Format::Json => output::print_json(&to_json(args.model, &verdict, operations)),
            }
            match verdict {
                Verdict::Linearizable { .. } => exit::PASS,
                Verdict::Violation(_) => exit::FINDINGS,
                Verdict::Unknown { .. } => exit::INCONCLUSIVE,
            }
        }
        Err(Unusable { line, message }) => {
            let place = line.map_or(String::new(), |(line, column)| format!(":{line}:{column}"));
            output::eprint(&format!("bloodhound: {name}{place}: {message}\n"));
            if args.format == Format::Json {
                output::print_json(&json!({
                    "schema": "bloodhound.check/v1",
                    "verdict": "unreadable",
                    "model": args.model.to_string(),
                    "line": line.map(|(line, _)| line),
                    "column": line.map(|(_, column)| column),
                    "message": message,
                }));
            }
            exit::USAGE
        }
    }
}

/// The verdict, and how many operations there are.
fn judge(args: &Args) -> Result<(Verdict, usize), Unusable> {
    let history = read(&args.history)?;
    let budget = Budget {
        steps: args.max_steps,
        memory: usize::try_from(args.max_memory).unwrap_or(usize::MAX).saturating_mul(1 << 20),
        ..Budget::default()
    };
    let verdict = linearizability::check(&history, args.model, budget)
        .map_err(|error| Unusable { line: None, message: error.to_string() })?;
    Ok((verdict, history.operations().len()))
}

fn read(path: &Path) -> Result<History, Unusable> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    let bytes =
        bytes.map_err(|error| Unusable { line: None, message: format!("cannot be read: {error}") })?;
    history::parse_any(&bytes)
        .map_err(|error| Unusable { line: Some((error.line, error.column)), message: error.message })
}

fn to_json(model: Model, verdict: &Verdict, operations: usize) -> Json {
    let mut out = json!({
        "schema": "bloodhound.check/v1",
        "model": model.to_string(),
        "operations": operations,
    });
    match verdict {
        Verdict::Linearizable { keys, .. } => {
            out["verdict"] = json!("linearizable");
            out["keys"] = json!(keys);
        }
        Verdict::Violation(violation) => {
            out["verdict"] = json!("violation");
            out["violation"] = violation_json(violation);
            out["text"] = json!(violation.to_string());
        }
        Verdict::Unknown { undecided, linearizable } => {
            out["verdict"] = json!("unknown");
            out["keys"] = json!(undecided.len() + linearizable);
            out["linearizable_keys"] = json!(linearizable);
            let list =
                undecided.iter().map(|(key, reason)| json!({"key": key, "reason": exhausted(*reason)}));
            out["undecided"] = list.collect();
        }
    }
    out
}

fn exhausted(reason: Exhausted) -> &'static str {
    match reason {
        Exhausted::Steps => "steps",
        Exhausted::Memory => "memory",
        Exhausted::Concurrency => "concurrency",
    }
}

fn violation_json(violation: &Violation) -> Json {
    let evidence = violation.evidence.iter().map(|part| {
        let mut operation = operation_json(&part.operation);
        operation["open"] = json!(part.open);
        operation
    });
    json!({
        "key": violation.key,
        "operations_on_key": violation.operations,
        "culprit": operation_json(&violation.culprit),
        "from_start": violation.from_start,
        "evidence": evidence.collect::<Vec<_>>(),
    })
}

/// An operation with the names that history files use.
fn operation_json(operation: &Operation) -> Json {
    let value = match &operation.call {
        Call::Write(value) => value_json(value),
        Call::Cas { expected, new } => json!([value_json(expected), value_json(new)]),
        Call::Read | Call::Delete | Call::Other(_) => match &operation.outcome {
            Outcome::Ok(value) => value_json(value),
            Outcome::Fail | Outcome::Mismatch | Outcome::Unknown => Json::Null,
        },
    };
    let outcome = match &operation.outcome {
        Outcome::Ok(_) => "ok",
        Outcome::Fail => "fail",
        Outcome::Mismatch => "mismatch",
        Outcome::Unknown => "unknown",
    };
    json!({
        "process": operation.process,
        "f": operation.call.name(),
        "key": operation.key,
        "value": value,
        "outcome": outcome,
        "invoke_time": operation.invoke.0,
        "complete_time": operation.complete.map(|time| time.0),
        "invoke_index": operation.invoke_index,
        "complete_index": operation.complete_index,
    })
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(b) => json!(b),
        Value::Int(i) => json!(i),
        Value::Text(text) => json!(text),
        Value::Raw(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    }
}
