//! `bloodhound test --live`: the same configuration, workload and checks on a real engine (Docker, Podman), in real time, with the faults that an
//! engine can do. Nothing of it can be repeated; it is there to see whether a test is right before it is simulated.
//!
//! Key function: [`run_all`]. Modules: `stack` makes everything on the engine and removes it, `spec` its documents; `run` is one run, with
//! `supervise` (services), `checks`, `faults` and `inject`, `hands` (operations of the engine), `workload` and `net` (clients on real sockets). The plan, the
//! drivers, what an answer means, histories, judges and verdicts are those of the simulation.

mod checks;
pub mod faults;
mod hands;
mod inject;
mod net;
mod run;
mod spec;
mod stack;
mod supervise;
mod workload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bloodhound_images::{Control, EngineChoice};
use bloodhound_sim::scenario::Scenario;

use crate::campaign::totals::{Found, Totals, Unjudged};
use crate::campaign::watch::Watch;
use crate::output::{self, write_file};
use crate::session::{Failure, Outcome, Session, Stopped};
use crate::{bug, exit, report};

use run::Run;
use stack::Stack;

/// What is said wherever a result of this mode is told.
pub const NOTE: &str = "live: nothing here is replayable";

/// What is to be run.
pub struct Order<'a> {
    pub session: &'a Session,
    /// The seeds from which faults and operations are drawn, each on a stack of its own; by their numbers from 0.
    pub seeds: &'a dyn Fn(u64) -> Option<u64>,
    /// Directory for what was seen.
    pub out: &'a Path,
    /// Leave the stack where it is.
    pub keep: bool,
    pub fail_fast: bool,
    pub watch: &'a Watch,
}

/// Says something on standard error.
fn say(text: &str) {
    output::eprint(&format!("bloodhound: {text}\n"));
}

/// Runs all seeds, one after the other, and adds what they gave to the totals.
///
/// # Errors
/// There is no engine, it fails, or services do not become ready.
pub fn run_all(order: &Order<'_>, totals: &mut Totals) -> Result<(), Failure> {
    let control =
        Control::find(&EngineChoice::Auto, stack::PATIENCE).map_err(|e| Failure::environment(e.text))?;
    let about = control.about();
    let engine = format!("{} (API {}, {})", about.name, about.api, control.socket().display());
    say(&format!("live on {engine}: nothing here is replayable"));
    totals.live = Some(engine);
    let left = control.containers(spec::LABEL).map_err(|e| stack::failed(&e))?;
    if !left.is_empty() {
        say(&format!(
            "{} containers of other live runs are there (`docker ps --all --filter label={}`); those of a run that was killed are removed by `docker \
             rm --force --volumes`",
            left.len(),
            spec::LABEL
        ));
    }
    let (faults, mut impossible) = faults::possible(&order.session.scenario.faults);
    let mut planning = order.session.scenario.planning.clone();
    impossible.extend(faults::possible_schedule(&mut planning.schedule));
    if !impossible.is_empty() {
        say(&format!("an engine cannot do these faults, which are left out: {}", impossible.join(", ")));
    }
    let scenario = Arc::new(Scenario { faults, planning, ..(*order.session.scenario).clone() });
    for seed in (0..).map_while(order.seeds) {
        if order.watch.is_closed() {
            break;
        }
        bug::doing(format!("live seed {seed}"));
        match one(order, &control, scenario.clone(), seed) {
            Ok(outcome) => add(order, &outcome, totals),
            Err(failure) => {
                let why = match failure.code {
                    exit::INTERRUPTED => stopped(order.watch),
                    _ => Unjudged::Host(failure.text.clone()),
                };
                say(&format!("seed {seed} is not judged: {}", failure.text));
                totals.unjudged.insert(seed, why);
                break;
            }
        }
        if order.fail_fast && !totals.findings.is_empty() {
            totals.failed_fast = true;
            break;
        }
    }
    Ok(())
}

/// Why a seed was stopped from outside.
fn stopped(watch: &Watch) -> Unjudged {
    match watch.halted() {
        Some(true) => Unjudged::TimedOut,
        _ => Unjudged::Interrupted,
    }
}

/// One seed on a stack of its own, which is removed afterwards.
fn one(order: &Order<'_>, control: &Control, scenario: Arc<Scenario>, seed: u64) -> Result<Outcome, Failure> {
    let session = order.session;
    let mut stack = Stack::new(control.clone(), &session.project.compose.name, order.keep);
    stack.make(session)?;
    let mut run = Run::new(session, scenario, stack, order.watch.halt())?;
    run.boot()?;
    let services = session.scenario.services.len();
    say(&format!("seed {seed}: {services} services ready after {}", run.clock.now()));
    order.watch.seeding();
    let begun = Instant::now();
    let outcome = run.run(seed)?;
    order.watch.took(begun.elapsed());
    for (service, output) in run.outputs() {
        let path = directory(order.out, seed).join("logs").join(format!("{service}.log"));
        write_file(&path, output).map_err(|e| Failure::environment(format!("writing a log: {e}")))?;
    }
    Ok(outcome)
}

/// Where what a seed gave is written.
fn directory(out: &Path, seed: u64) -> PathBuf {
    out.join("live").join(format!("seed-{seed}"))
}

/// Adds a seed that ran, and writes what was seen: for people, as nothing can be run again from it.
fn add(order: &Order<'_>, outcome: &Outcome, totals: &mut Totals) {
    if outcome.stopped == Some(Stopped::Interrupted) {
        totals.unjudged.insert(outcome.seed, stopped(order.watch));
        return;
    }
    totals.add(outcome);
    let dir = directory(order.out, outcome.seed);
    let written = write_file(&dir.join("trace.txt"), report::trace(outcome))
        .and_then(|()| write_file(&dir.join("history.jsonl"), outcome.history.to_json_lines()));
    if let Err(error) = &written {
        totals.trouble(exit::ENVIRONMENT, format!("writing what was seen of seed {}: {error}", outcome.seed));
    }
    for violation in &outcome.violations {
        let (seed, property, at) = (outcome.seed, &violation.property, violation.at);
        say(&format!("seed {seed}: {property} violated at {at}: {}", dir.display()));
        let kept = written.as_ref().map(|()| dir.clone()).map_err(ToString::to_string);
        totals.findings.push(Found::new(outcome, violation, kept));
    }
}
