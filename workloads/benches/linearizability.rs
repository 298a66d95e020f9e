//! Time of the linearizability checker on generated histories, and on files given as arguments.
//!
//! `cargo bench -p bloodhound-workloads` prints one line per history: verdict, best of three times, operations.
//! `cargo bench -p bloodhound-workloads -- --model cas-register FILE...` judges recorded histories instead.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures the host's time"
)]

use std::time::{Duration, Instant};

use bloodhound_decisions::Dice;
use bloodhound_workloads::generate::{Shape, corrupt, generate};
use bloodhound_workloads::history::{History, parse_any};
use bloodhound_workloads::linearizability::{Budget, Verdict, check};
use bloodhound_workloads::model::Model;

/// Operations, clients, crashes, and whether an answer near the end is wrong.
const ROWS: [(usize, usize, usize, bool); 20] = [
    (1_000, 5, 0, false),
    (1_000, 5, 0, true),
    (1_000, 10, 0, false),
    (1_000, 10, 0, true),
    (1_000, 20, 0, false),
    (1_000, 20, 0, true),
    (10_000, 5, 0, false),
    (10_000, 5, 0, true),
    (10_000, 10, 0, false),
    (10_000, 10, 0, true),
    (10_000, 20, 0, false),
    (10_000, 20, 0, true),
    (100_000, 5, 0, false),
    (100_000, 5, 0, true),
    (100_000, 10, 0, false),
    (100_000, 20, 0, false),
    (1_000, 10, 1, true),
    (1_000, 10, 5, true),
    (1_000, 10, 15, true),
    (1_000, 10, 15, false),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match args.as_slice() {
        [] => generated(),
        [flag, model, files @ ..] if flag == "--model" => match model.parse() {
            Ok(model) => recorded(model, files),
            Err(error) => eprintln!("{error}"),
        },
        [filter, ..] => eprintln!("{filter:?} is not understood; expected --model MODEL FILE..."),
    }
}

fn generated() {
    println!(
        "{:<42} {:>10} {:>12} {:>14} {:>10}",
        "one register, 5 values, read/write/cas", "verdict", "time", "with evidence", "operations"
    );
    for (operations, clients, crashes, bad) in ROWS {
        let name = format!(
            "{operations} ops, {clients} clients, {crashes} crashes, {}",
            if bad { "bad" } else { "ok" }
        );
        let history = history(operations, clients, crashes, bad);
        let (verdict, time, _) = measure(&history, Model::CasRegister, VERDICT_ONLY);
        let (_, explained, evidence) = measure(&history, Model::CasRegister, Budget::default());
        println!("{name:<42} {verdict:>10} {time:>12.3?} {explained:>14.3?} {evidence:>10}");
    }
}

/// The seeds are tried in order until a wrong answer in the last tenth makes the history illegal, or, for good ones,
/// the first is taken.
fn history(operations: usize, clients: usize, crashes: usize, bad: bool) -> History {
    let mut dice = Dice::new(1);
    let history = generate(Shape::register(operations, clients, crashes), &mut dice);
    if !bad {
        return history;
    }
    let changeable = operations / 2;
    (0..1000)
        .map(|i| corrupt(&history, changeable * 9 / 10 + i, (i % 5) as i64))
        .find(|h| {
            let budget = Budget { steps: 50_000_000, ..VERDICT_ONLY };
            matches!(check(h, Model::CasRegister, budget), Ok(Verdict::Violation(_)))
        })
        .unwrap_or(history)
}

const VERDICT_ONLY: Budget = Budget { steps: 300_000_000, memory: 2 << 30, evidence: 0 };

/// The verdict's name, the best of three times, and the number of operations in the evidence.
fn measure(history: &History, model: Model, budget: Budget) -> (&'static str, Duration, usize) {
    let mut best = Duration::MAX;
    let mut answer = ("", 0);
    for _ in 0..3 {
        let start = Instant::now();
        let verdict = check(history, model, budget);
        best = best.min(start.elapsed());
        answer = match verdict {
            Ok(Verdict::Linearizable { .. }) => ("ok", 0),
            Ok(Verdict::Violation(violation)) => ("violation", violation.evidence.len()),
            Ok(Verdict::Unknown { .. }) => ("unknown", 0),
            Err(_) => ("error", 0),
        };
    }
    (answer.0, best, answer.1)
}

fn recorded(model: Model, files: &[String]) {
    let (mut total, mut explained) = (Duration::ZERO, Duration::ZERO);
    for file in files {
        let history = match std::fs::read(file)
            .map_err(|e| e.to_string())
            .and_then(|bytes| parse_any(&bytes).map_err(|e| e.to_string()))
        {
            Ok(history) => history,
            Err(error) => {
                println!("{file}: {error}");
                continue;
            }
        };
        let (verdict, time, _) = measure(&history, model, VERDICT_ONLY);
        let (_, with_evidence, evidence) = measure(&history, model, Budget::default());
        let operations = history.operations().len();
        println!("{file} {verdict} {time:.3?} {with_evidence:.3?} {operations} {evidence}");
        total += time;
        explained += with_evidence;
    }
    println!("{} files, {total:.3?}, with evidence {explained:.3?}", files.len());
}
