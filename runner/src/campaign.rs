//! `bloodhound test`: many seeds on all cores, verdicts over them, reports.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bloodhound_decisions::Decisions;
use bloodhound_sim::{MachineError, World};

use crate::junit::{Case, Status, Suite};
use crate::output::{Format, write_file};
use crate::platform::{self, Choice, Chosen};
use crate::run::{Source, fail};
use crate::session::{Failure, Outcome, Session, Stopped, Violation, Worker, host_failure};
use crate::{exit, finding, junit, report};

/// Arguments of `test`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    platform: Choice,
    /// How many seeds to run (default: the configuration's `simulation.seeds`)
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Stop starting seeds after so much host time (for example 10m)
    #[arg(long, value_parser = crate::cli::duration)]
    timeout: Option<u64>,
    /// Stop at the first finding
    #[arg(long)]
    fail_fast: bool,
    /// Seeds at the same time (default: exploration.parallel_workers, at most the number of CPUs)
    #[arg(long, short = 'j')]
    jobs: Option<usize>,
    /// Boot the stack for every seed instead of starting from the snapshot of one boot
    #[arg(long)]
    boot_each: bool,
    /// Least share of the configured kinds of faults (crash, pause, partition, reset) that must have been injected,
    /// for example 80%
    #[arg(long, value_parser = percent, value_name = "PERCENT")]
    coverage_threshold: Option<u32>,
    /// Directory for reports and findings (default: the configuration's `output.dir`)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write JUnit XML here (it is always in <out>/junit.xml)
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// `80%`, `80` or `0.8` as thousandths.
fn percent(text: &str) -> Result<u32, String> {
    let wrong = || "a share such as 80%, 80 or 0.8 is needed".to_string();
    let (digits, scale) = match text.strip_suffix('%') {
        Some(d) => (d, 10u64),
        None if text.starts_with("0.") || text == "0" || text == "1.0" => (text, 1000),
        None => (text, 10),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut value: u64 = whole.parse::<u64>().map_err(|_| wrong())?.checked_mul(scale).ok_or_else(wrong)?;
    let mut unit = scale;
    for c in fraction.chars() {
        unit /= 10;
        value += u64::from(c.to_digit(10).ok_or_else(wrong)?) * unit;
    }
    if value > 1000 { Err("at most 100%".into()) } else { Ok(value as u32) }
}

/// What all seeds gave together.
#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    virtual_ns: u64,
    operations: u64,
    faults: BTreeMap<String, u64>,
    findings: Vec<(Outcome, Violation, PathBuf)>,
    undecided: BTreeMap<String, String>,
    unsupported: Option<String>,
    interrupted: bool,
    timed_out: bool,
}

/// `bloodhound test`.
pub fn test(args: &Args) -> u8 {
    let run = || {
        let session = Session::load(&args.source.config, args.source.compose.as_deref())?;
        campaign(args, Arc::new(session), platform::choose(args.platform.wanted)?)
    };
    run().unwrap_or_else(|f| fail(&f))
}

/// `test` on a platform that is chosen.
///
/// # Errors
/// What the host says, services that do not start.
pub fn campaign(args: &Args, session: Arc<Session>, chosen: Chosen) -> Result<u8, Failure> {
    let started = Instant::now();
    let out = args.out.clone().unwrap_or_else(|| session.plan.out.clone());
    let seeds = args.seeds.unwrap_or(session.plan.seeds);
    let interrupt = crate::interrupt::flag();
    eprintln!("bloodhound: platform {}", chosen.line());
    let mut first =
        Worker::new(session.clone(), &chosen, platform::allowed_cpus().first().copied(), interrupt.clone())?;
    let snapshot = Arc::new(first.boot()?);
    eprintln!(
        "bloodhound: {} services ready after {} of virtual time, {} steps ({} ms); seeds {}..{}",
        session.scenario.services.len(),
        snapshot.now,
        snapshot.steps,
        started.elapsed().as_millis(),
        args.first_seed,
        args.first_seed + seeds
    );
    let totals = run_seeds(args, &session, &chosen, first, snapshot, seeds, &out, started, &interrupt)?;
    finish(args, &session, &chosen, &out, seeds, started, totals)
}

/// The seeds on all workers. Results are put in order of seeds, so that reports do not depend on timing.
#[allow(clippy::too_many_arguments)]
fn run_seeds(
    args: &Args,
    session: &Arc<Session>,
    chosen: &Chosen,
    first: Worker,
    snapshot: Arc<World>,
    seeds: u64,
    out: &std::path::Path,
    started: Instant,
    interrupt: &Arc<AtomicBool>,
) -> Result<Totals, Failure> {
    let cpus = platform::allowed_cpus();
    // Of a quota of CPU time the list says nothing.
    let most = std::thread::available_parallelism().map_or(1, usize::from).max(1);
    let jobs = args.jobs.or(session.plan.workers).unwrap_or(most).clamp(1, most).min(seeds.max(1) as usize);
    let next = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let (sender, receiver) = mpsc::channel::<Result<Outcome, Failure>>();
    let mut first = Some(first);
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        // A platform belongs to the thread that made it: the worker that booted makes room for those.
        for job in 0..jobs {
            let cpu = cpus.get(job).copied();
            let (session, snapshot, sender) = (session.clone(), snapshot.clone(), sender.clone());
            let (next, stop, interrupt) = (next.clone(), stop.clone(), interrupt.clone());
            let (boot_each, base) = (args.boot_each, args.first_seed);
            drop(first.take());
            scope.spawn(move || {
                let job = || -> Result<(), Failure> {
                    let mut worker = Worker::new(session.clone(), chosen, cpu, interrupt.clone())?;
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
                            worker = Worker::new(session.clone(), chosen, cpu, interrupt.clone())?;
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
    out: &std::path::Path,
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

/// A progress bar on a terminal, a line every few seconds elsewhere.
struct Progress {
    total: u64,
    bar: bool,
    last: Instant,
}

impl Progress {
    fn new(total: u64) -> Progress {
        let bar = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        Progress { total, bar, last: Instant::now() }
    }

    fn say(&self, line: &str) {
        let clear = if self.bar { "\r\x1b[2K" } else { "" };
        eprintln!("{clear}bloodhound: {line}");
    }

    fn show(&mut self, done: u64, findings: usize) {
        let every = if self.bar { Duration::from_millis(100) } else { Duration::from_secs(10) };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        if self.bar {
            let width = 30;
            let filled = (done * width / self.total.max(1)) as usize;
            eprint!(
                "\r\x1b[2K[{}{}] {done}/{} seeds, {findings} findings",
                "#".repeat(filled),
                " ".repeat(width as usize - filled),
                self.total
            );
        } else {
            eprintln!("bloodhound: {done}/{} seeds, {findings} findings", self.total);
        }
    }

    fn end(&self) {
        if self.bar {
            eprint!("\r\x1b[2K");
        }
    }
}

fn finish(
    args: &Args,
    session: &Session,
    chosen: &Chosen,
    out: &std::path::Path,
    seeds: u64,
    started: Instant,
    totals: Totals,
) -> Result<u8, Failure> {
    let suite = suite(session, &totals);
    let xml = junit::render(&suite).map_err(Failure::environment)?;
    let write =
        |path: &std::path::Path| write_file(path, &xml).map_err(|e| Failure::environment(e.to_string()));
    write(&out.join("junit.xml"))?;
    if let Some(path) = &args.junit {
        write(path)?;
    }
    let coverage = coverage(session, &totals);
    let code = verdict(args, seeds, &totals, coverage);
    match args.format {
        Format::Human => print_human(args, session, out, seeds, started, &totals, coverage),
        Format::Json => print_json(chosen, out, seeds, &totals, coverage, code),
    }
    Ok(code)
}

fn verdict(args: &Args, seeds: u64, totals: &Totals, coverage: u32) -> u8 {
    if totals.unsupported.is_some() {
        return exit::UNSUPPORTED;
    }
    if !totals.findings.is_empty() {
        return exit::FINDINGS;
    }
    if totals.interrupted {
        return exit::INTERRUPTED;
    }
    if !totals.undecided.is_empty()
        || totals.seeds < seeds.min(1)
        || (totals.seeds < seeds && !totals.timed_out)
    {
        return exit::INCONCLUSIVE;
    }
    if args.coverage_threshold.is_some_and(|t| coverage < t) {
        return exit::COVERAGE;
    }
    exit::PASS
}

/// Kinds of faults that the configuration asks for and that were injected at least once, in thousandths. (Code coverage
/// of the services is not measured yet.)
fn coverage(session: &Session, totals: &Totals) -> u32 {
    let f = &session.scenario.faults;
    let kinds = [("crash", f.crash), ("pause", f.pause), ("partition", f.partition), ("reset", f.reset)];
    let asked: Vec<&str> = kinds.iter().filter(|(_, rate)| *rate > 0).map(|(name, _)| *name).collect();
    if asked.is_empty() {
        return 1000;
    }
    let seen = asked.iter().filter(|name| totals.faults.contains_key(**name)).count();
    (seen * 1000 / asked.len()) as u32
}

fn suite(session: &Session, totals: &Totals) -> Suite {
    let config = session.plan.config.display().to_string();
    let mut cases: Vec<Case> = Vec::new();
    for p in &session.plan.properties {
        let failing = totals.findings.iter().find(|(_, v, _)| v.property == p.name);
        let status = match (failing, totals.undecided.get(&p.name), totals.seeds) {
            (Some((outcome, violation, dir)), _, _) => failure_status(outcome, violation, dir),
            (None, Some(why), _) => {
                Status::Error { kind: "undecided".into(), message: "no verdict".into(), text: why.clone() }
            }
            (None, None, 0) => Status::Skipped { reason: "no seed was run".into() },
            _ => Status::Pass,
        };
        cases.push(Case {
            name: p.name.clone(),
            kind: p.kind.into(),
            file: Some(config.clone()),
            line: Some(p.line),
            status,
            facts: Vec::new(),
        });
    }
    // Findings of the machine that belong to no property.
    for (outcome, violation, dir) in &totals.findings {
        if session.plan.properties.iter().any(|p| p.name == violation.property)
            || cases.iter().any(|c| c.name == violation.property)
        {
            continue;
        }
        let status = failure_status(outcome, violation, dir);
        cases.push(Case {
            name: violation.property.clone(),
            kind: violation.kind.clone(),
            file: None,
            line: None,
            status,
            facts: Vec::new(),
        });
    }
    let facts =
        vec![("seeds_run".into(), totals.seeds.to_string()), ("plan".into(), session.plan_digest.clone())];
    Suite { name: config, facts, time: None, cases }
}

fn failure_status(outcome: &Outcome, violation: &Violation, dir: &std::path::Path) -> Status {
    let first = violation.text.lines().next().unwrap_or_default().to_string();
    let active: Vec<String> = report::faults(&outcome.log)
        .into_iter()
        .zip(outcome.log.iter().filter(|e| matches!(e.what, bloodhound_sim::world::Notice::Fault(_))))
        .filter(|(_, e)| e.at <= violation.at)
        .map(|(line, _)| line)
        .collect();
    let recent = active[active.len().saturating_sub(12)..].join("\n");
    let text = format!(
        "{}\n\nseed: {}\nvirtual time: {}\nfaults of this seed: {}\nlast faults before it:\n{recent}\n\nreplay: bloodhound replay {}\n",
        violation.text,
        outcome.seed,
        violation.at,
        outcome.profile,
        dir.display()
    );
    Status::Fail { kind: violation.kind.clone(), message: format!("seed {}: {first}", outcome.seed), text }
}

fn print_human(
    args: &Args,
    session: &Session,
    out: &std::path::Path,
    seeds: u64,
    started: Instant,
    totals: &Totals,
    coverage: u32,
) {
    let secs = started.elapsed().as_millis();
    for p in &session.plan.properties {
        let failing: Vec<_> = totals.findings.iter().filter(|(_, v, _)| v.property == p.name).collect();
        let mark = if !failing.is_empty() {
            "FAIL"
        } else if totals.undecided.contains_key(&p.name) {
            "????"
        } else {
            "ok"
        };
        println!("{mark:<5} {} ({})", p.name, p.kind);
        if let Some(why) = totals.undecided.get(&p.name) {
            println!("      no verdict: {why}");
        }
        if let Some((outcome, violation, dir)) = failing.first() {
            print_finding(outcome, violation, dir);
            if failing.len() > 1 {
                println!("      and {} more seeds", failing.len() - 1);
            }
        }
    }
    for (outcome, violation, dir) in &totals.findings {
        if session.plan.properties.iter().all(|p| p.name != violation.property) {
            println!("FAIL  {} (found by the simulation)", violation.property);
            print_finding(outcome, violation, dir);
        }
    }
    if let Some(what) = &totals.unsupported {
        println!("unsupported: {what}");
    }
    let faults: Vec<String> = totals.faults.iter().map(|(k, n)| format!("{n} {k}")).collect();
    println!(
        "\n{} of {seeds} seeds, {} findings, {} operations, {} s of virtual time in {}.{:01} s; faults: {}",
        totals.seeds,
        totals.findings.len(),
        totals.operations,
        totals.virtual_ns / 1_000_000_000,
        secs / 1000,
        secs % 1000 / 100,
        if faults.is_empty() { "none".to_string() } else { faults.join(", ") }
    );
    if let Some(threshold) = args.coverage_threshold {
        println!(
            "coverage of the configured fault kinds: {}.{}% (threshold {}.{}%)",
            coverage / 10,
            coverage % 10,
            threshold / 10,
            threshold % 10
        );
    }
    println!("reports: {}", out.join("junit.xml").display());
}

fn print_finding(outcome: &Outcome, violation: &Violation, dir: &std::path::Path) {
    println!("      seed {} at {}", outcome.seed, violation.at);
    for line in violation.text.lines() {
        println!("      {line}");
    }
    println!("      replay: bloodhound replay {}", dir.display());
}

fn print_json(chosen: &Chosen, out: &std::path::Path, seeds: u64, totals: &Totals, coverage: u32, code: u8) {
    let findings: Vec<_> = totals
        .findings
        .iter()
        .map(|(o, v, dir)| {
            serde_json::json!({
                "property": v.property, "kind": v.kind, "seed": o.seed, "virtual_time_ns": v.at.0,
                "replay": dir, "digest": o.digest, "text": v.text,
            })
        })
        .collect();
    let result = serde_json::json!({
        "schema": "bloodhound.test/v1",
        "platform": chosen.json(),
        "seeds_run": totals.seeds,
        "seeds_wanted": seeds,
        "findings": findings,
        "undecided": totals.undecided,
        "unsupported": totals.unsupported,
        "interrupted": totals.interrupted,
        "steps": totals.steps,
        "virtual_time_ns": totals.virtual_ns,
        "operations": totals.operations,
        "faults": totals.faults,
        "coverage_per_mille": coverage,
        "junit": out.join("junit.xml"),
        "exit_code": code,
    });
    println!("{result}");
}
