//! The threads of a campaign: each takes the next seed until there is none left, and the main thread collects.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bloodhound_decisions::Decisions;
use bloodhound_sim::{MachineError, World};

use super::Args;
use super::progress::Progress;
use super::totals::Totals;
use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Stopped, Worker, host_failure};
use crate::{cpus, finding, report};

/// Boots the stack and gives its snapshot. On a thread of its own: a platform binds its thread to a processor, and what
/// the main thread starts afterwards must not inherit that.
pub fn boot(
    session: &Arc<Session>,
    chosen: &Chosen,
    interrupt: &Arc<AtomicBool>,
) -> Result<Arc<World>, Failure> {
    let boot = || Worker::new(session.clone(), chosen, interrupt.clone())?.boot().map(Arc::new);
    // A panic has ended the process by then (`bug::install`).
    std::thread::scope(|scope| scope.spawn(boot).join())
        .unwrap_or_else(|_| Err(Failure::environment("the boot panicked")))
}

/// The seeds on all workers. Results are put in order of seeds, so that reports do not depend on timing.
#[allow(clippy::too_many_arguments)]
pub fn run_seeds(
    args: &Args,
    session: &Arc<Session>,
    chosen: &Chosen,
    snapshot: Arc<World>,
    seeds: u64,
    out: &Path,
    started: Instant,
    interrupt: &Arc<AtomicBool>,
) -> Result<Totals, Failure> {
    let most = cpus::jobs();
    let jobs = args.jobs.or(session.plan.workers).unwrap_or(most).clamp(1, most).min(seeds.max(1) as usize);
    let next = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let (sender, receiver) = mpsc::channel::<Result<Outcome, Failure>>();
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (session, snapshot, sender) = (session.clone(), snapshot.clone(), sender.clone());
            let (next, stop, interrupt) = (next.clone(), stop.clone(), interrupt.clone());
            let (boot_each, base) = (args.boot_each, args.first_seed);
            scope.spawn(move || {
                let job = || -> Result<(), Failure> {
                    let mut worker = Worker::new(session.clone(), chosen, interrupt.clone())?;
                    loop {
                        let late = deadline.is_some_and(|d| Instant::now() >= d);
                        if stop.load(Ordering::Relaxed) || interrupt.load(Ordering::Relaxed) || late {
                            return Ok(());
                        }
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= seeds {
                            return Ok(());
                        }
                        if boot_each {
                            worker = Worker::new(session.clone(), chosen, interrupt.clone())?;
                            worker.boot()?;
                        } else {
                            worker.restore(&snapshot);
                        }
                        let seed = base + number;
                        let ran = worker.run(seed, Decisions::seeded(seed));
                        let outcome = ran.map_err(|e| seed_failure(seed, chosen, e))?;
                        if sender.send(Ok(outcome)).is_err() {
                            return Ok(());
                        }
                    }
                };
                if let Err(f) = job() {
                    // The receiver may be gone after an earlier failure.
                    let _ignored = sender.send(Err(f));
                }
            });
        }
        drop(sender);
        collect(args, session, out, seeds, &receiver, &stop, &mut totals)
    })?;
    totals.interrupted = interrupt.load(Ordering::Relaxed);
    totals.timed_out = totals.seeds < seeds && deadline.is_some_and(|d| Instant::now() >= d);
    totals.findings.sort_by_key(|(o, _, _)| o.seed);
    Ok(totals)
}

/// A host error, with the seed that it ended.
fn seed_failure(seed: u64, chosen: &Chosen, error: MachineError) -> Failure {
    let Failure { code, text } = host_failure(error);
    Failure { code, text: format!("seed {seed} on {}: {text}", chosen.name) }
}

fn collect(
    args: &Args,
    session: &Arc<Session>,
    out: &Path,
    seeds: u64,
    receiver: &mpsc::Receiver<Result<Outcome, Failure>>,
    stop: &AtomicBool,
    totals: &mut Totals,
) -> Result<(), Failure> {
    let mut progress = Progress::new(seeds);
    let mut failure = None;
    while let Ok(result) = receiver.recv() {
        let outcome = match result {
            Ok(o) => o,
            Err(f) => {
                stop.store(true, Ordering::Relaxed);
                failure.get_or_insert(f);
                continue;
            }
        };
        if outcome.stopped == Some(Stopped::Interrupted) {
            continue;
        }
        totals.seeds += 1;
        totals.steps += outcome.steps;
        totals.virtual_ns += outcome.virtual_time.0;
        totals.operations += outcome.history.operations().len() as u64;
        for line in report::faults(&outcome.log) {
            let kind = line.split_whitespace().nth(2).unwrap_or("?").to_string();
            *totals.faults.entry(kind).or_default() += 1;
        }
        totals.undecided.extend(outcome.undecided.clone());
        if let Some(Stopped::Unsupported(what)) = &outcome.stopped {
            totals.unsupported.get_or_insert_with(|| format!("seed {}: {what}", outcome.seed));
            stop.store(true, Ordering::Relaxed);
        }
        for violation in outcome.violations.clone() {
            let dir = finding::save(out, session, args.source.compose.as_deref(), &outcome, &violation)
                .map_err(|e| Failure::environment(format!("writing a finding: {e}")))?;
            progress
                .say(&format!("seed {}: {} violated at {}", outcome.seed, violation.property, violation.at));
            totals.findings.push((outcome.clone(), violation, dir));
            if args.fail_fast {
                stop.store(true, Ordering::Relaxed);
            }
        }
        progress.show(totals.seeds, totals.findings.len());
    }
    progress.end();
    failure.map_or(Ok(()), Err)
}
