//! `bloodhound run`, `replay` and `verify`: single runs from the snapshot of a booted stack.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bloodhound_decisions::Decisions;
use bloodhound_sim::machine::{Listen, StepRecord};

use crate::output::Format;
use crate::session::{Failure, Outcome, Session, Stopped, Worker, host_failure};
use crate::{exit, finding, report};

/// Which configuration is run.
#[derive(clap::Args, Clone, Debug)]
pub struct Source {
    /// The configuration
    #[arg(long, default_value = "bloodhound.yaml", value_name = "FILE")]
    pub config: PathBuf,
    /// The compose file, instead of the configuration's `compose:`
    #[arg(long, value_name = "FILE")]
    pub compose: Option<PathBuf>,
}

/// Arguments of `run`.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    source: Source,
    /// The seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print every system call to standard error
    #[arg(long)]
    strace: bool,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Arguments of `replay`.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    /// Directory of the finding (or its finding.json)
    finding: PathBuf,
    /// The configuration, if it is not where it was when the finding was made
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The compose file, if it is not where it was
    #[arg(long, value_name = "FILE")]
    compose: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Arguments of `verify`.
#[derive(clap::Args, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    source: Source,
    /// The seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How often it is run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    times: u32,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Ends a command that failed.
pub fn fail(failure: &Failure) -> u8 {
    eprintln!("bloodhound: {}", failure.text);
    failure.code
}

/// `bloodhound run`.
pub fn run(args: &RunArgs) -> u8 {
    one(args).unwrap_or_else(|f| fail(&f))
}

fn one(args: &RunArgs) -> Result<u8, Failure> {
    let session = Arc::new(Session::load(&args.source.config, args.source.compose.as_deref())?);
    let mut worker = Worker::new(session, None, interrupt())?;
    if args.strace {
        worker.listen(Listen::Text, Box::new(crate::exec::print_step));
    }
    worker.boot()?;
    let outcome = worker.run(args.seed, Decisions::seeded(args.seed)).map_err(host_failure)?;
    print(&outcome, args.format);
    Ok(code(&outcome))
}

/// The exit code that a single run stands for.
pub fn code(outcome: &Outcome) -> u8 {
    match &outcome.stopped {
        Some(Stopped::Unsupported(_)) => exit::UNSUPPORTED,
        Some(Stopped::Interrupted) => exit::INTERRUPTED,
        None if !outcome.violations.is_empty() => exit::FINDINGS,
        None if !outcome.undecided.is_empty() => exit::INCONCLUSIVE,
        None => exit::PASS,
    }
}

fn print(outcome: &Outcome, format: Format) {
    match format {
        Format::Json => println!("{}", json(outcome)),
        Format::Human => {
            print!("{}", report::trace(outcome));
            for (property, why) in &outcome.undecided {
                println!("undecided: {property}: {why}");
            }
            if let Some(Stopped::Unsupported(what)) = &outcome.stopped {
                println!("unsupported: {what}");
            }
            println!("operations: {}", outcome.history.operations().len());
            println!(
                "digest: {}\nsteps: {}\nvirtual_time_ns: {}",
                outcome.digest, outcome.steps, outcome.virtual_time.0
            );
        }
    }
}

fn json(outcome: &Outcome) -> serde_json::Value {
    let violations: Vec<_> = outcome
        .violations
        .iter()
        .map(|v| serde_json::json!({"property": v.property, "kind": v.kind, "virtual_time_ns": v.at.0, "text": v.text}))
        .collect();
    serde_json::json!({
        "schema": "bloodhound.run/v1",
        "seed": outcome.seed,
        "digest": outcome.digest,
        "steps": outcome.steps,
        "virtual_time_ns": outcome.virtual_time.0,
        "operations": outcome.history.operations().len(),
        "faults": report::faults(&outcome.log),
        "profile": outcome.profile.to_string(),
        "findings": violations,
        "undecided": outcome.undecided,
        "unsupported": match &outcome.stopped { Some(Stopped::Unsupported(t)) => Some(t), _ => None },
    })
}

/// `bloodhound replay`.
pub fn replay(args: &ReplayArgs) -> u8 {
    again(args).unwrap_or_else(|f| fail(&f))
}

fn again(args: &ReplayArgs) -> Result<u8, Failure> {
    let (record, log) = finding::load(&args.finding)?;
    let config = args.config.as_ref().unwrap_or(&record.config);
    let session = Arc::new(Session::load(config, args.compose.as_deref().or(record.compose.as_deref()))?);
    finding::unchanged(&record, &session)?;
    let mut worker = Worker::new(session.clone(), None, interrupt())?;
    worker.boot()?;
    let outcome = worker.run(record.seed, Decisions::replay(log)).map_err(host_failure)?;
    print(&outcome, args.format);
    let same =
        outcome.violations.iter().any(|v| v.property == record.property && v.at.0 == record.virtual_time_ns);
    if outcome.digest != record.digest || !same {
        let text = format!(
            "the replay differs from the finding: digest {} instead of {}, {}",
            outcome.digest,
            record.digest,
            if same { "the same violation" } else { "another outcome" }
        );
        return Err(Failure { code: exit::NONDETERMINISM, text });
    }
    if args.format == Format::Human {
        println!("reproduced: {} at {}", record.property, bloodhound_abi::SimTime(record.virtual_time_ns));
    }
    Ok(exit::FINDINGS)
}

/// `bloodhound verify`.
pub fn verify(args: &VerifyArgs) -> u8 {
    several(args).unwrap_or_else(|f| fail(&f))
}

type Steps = Arc<Mutex<Vec<StepRecord>>>;

fn several(args: &VerifyArgs) -> Result<u8, Failure> {
    let session = Arc::new(Session::load(&args.source.config, args.source.compose.as_deref())?);
    let mut first: Option<(Outcome, Vec<StepRecord>)> = None;
    // Half of the runs boot anew, half start from the snapshot of the run before: both must agree.
    let mut worker: Option<(Worker, bloodhound_sim::World, Steps)> = None;
    let fresh = Cell::new(true);
    for number in 1..=args.times {
        if fresh.replace(!fresh.get()) || worker.is_none() {
            let mut w = Worker::new(session.clone(), None, interrupt())?;
            let steps: Steps = Arc::default();
            let sink = steps.clone();
            w.listen(
                Listen::Steps,
                Box::new(move |s| sink.lock().unwrap_or_else(|e| e.into_inner()).push(s)),
            );
            let snapshot = w.boot()?;
            steps.lock().unwrap_or_else(|e| e.into_inner()).clear();
            worker = Some((w, snapshot, steps));
        } else if let Some((w, snapshot, _)) = &mut worker {
            w.restore(snapshot);
        }
        let Some((w, _, steps)) = &mut worker else { continue };
        let outcome = w.run(args.seed, Decisions::seeded(args.seed)).map_err(host_failure)?;
        if outcome.stopped == Some(Stopped::Interrupted) {
            return Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() });
        }
        let steps = std::mem::take(&mut *steps.lock().unwrap_or_else(|e| e.into_inner()));
        match &first {
            None => first = Some((outcome, steps)),
            Some((reference, expected)) => {
                if let Some(text) = difference(expected, &steps, reference, &outcome) {
                    return Err(Failure {
                        code: exit::NONDETERMINISM,
                        text: format!("run {number} differs from run 1: {text}"),
                    });
                }
            }
        }
    }
    let Some((outcome, _)) = first else { return Ok(exit::PASS) };
    match args.format {
        Format::Human => println!(
            "{} runs of seed {} are equal\ndigest: {}\nsteps: {}\nvirtual_time_ns: {}",
            args.times, args.seed, outcome.digest, outcome.steps, outcome.virtual_time.0
        ),
        Format::Json => println!(
            "{}",
            serde_json::json!({"schema": "bloodhound.verify/v1", "equal": true, "times": args.times, "seed": args.seed,
                "digest": outcome.digest, "steps": outcome.steps, "virtual_time_ns": outcome.virtual_time.0})
        ),
    }
    Ok(exit::PASS)
}

/// The first difference between two runs, with both sides.
fn difference(a: &[StepRecord], b: &[StepRecord], x: &Outcome, y: &Outcome) -> Option<String> {
    let describe = |s: Option<&StepRecord>| match s {
        None => "the run is over".to_string(),
        Some(s) => {
            let call = bloodhound_abi::table::info(s.nr).map_or("signal", |i| i.name);
            format!(
                "node {} task {} {call} = {} at {}",
                s.node.0,
                s.tid,
                bloodhound_sim::strace::format_result(s.result),
                s.at
            )
        }
    };
    let at = (0..a.len().max(b.len())).find(|i| a.get(*i).map(|s| s.digest) != b.get(*i).map(|s| s.digest));
    match at {
        Some(i) => {
            let step = a.get(i).or(b.get(i)).map_or(0, |s| s.step);
            Some(format!("step {step}:\n  first: {}\n  now:   {}", describe(a.get(i)), describe(b.get(i))))
        }
        None if x.digest != y.digest => {
            Some(format!("digest {} and {} after equal steps", x.digest, y.digest))
        }
        None => None,
    }
}

/// Becomes true at Ctrl-C or SIGTERM; a second one ends the process at once.
pub fn interrupt() -> Arc<AtomicBool> {
    crate::interrupt::flag()
}
