//! `bloodhound test`: many seeds on all cores, verdicts over them, reports.
//!
//! Modules: `workers` (threads and seeds), `totals` (what all seeds gave together), `progress` (what is said meanwhile),
//! `verdict` (from the totals to each case and to the exit code), `print` (the answer for people and for machines).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::output::{Format, write_file};
use crate::platform::{self, Choice, Chosen};
use crate::run::{Source, fail};
use crate::session::{Failure, Session};
use crate::{cli, junit};

mod print;
mod progress;
mod totals;
mod verdict;
mod workers;

use totals::Totals;

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
    #[arg(long, value_parser = cli::duration)]
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
    #[arg(long, value_parser = cli::share, value_name = "PERCENT")]
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
    let snapshot = workers::boot(&session, &chosen, &interrupt)?;
    eprintln!(
        "bloodhound: {} services ready after {} of virtual time, {} steps ({} ms); seeds {}..{}",
        session.scenario.services.len(),
        snapshot.now,
        snapshot.steps,
        started.elapsed().as_millis(),
        args.first_seed,
        args.first_seed + seeds
    );
    let totals = workers::run_seeds(args, &session, &chosen, snapshot, seeds, &out, started, &interrupt)?;
    finish(args, &session, &chosen, &out, seeds, started, totals)
}

fn finish(
    args: &Args,
    session: &Session,
    chosen: &Chosen,
    out: &Path,
    seeds: u64,
    started: Instant,
    totals: Totals,
) -> Result<u8, Failure> {
    let suite = verdict::suite(session, &totals);
    let xml = junit::render(&suite).map_err(Failure::environment)?;
    let write = |path: &Path| write_file(path, &xml).map_err(|e| Failure::environment(e.to_string()));
    write(&out.join("junit.xml"))?;
    if let Some(path) = &args.junit {
        write(path)?;
    }
    let coverage = verdict::coverage(session, &totals);
    let code = verdict::exit_code(args, seeds, &totals, coverage);
    match args.format {
        Format::Human => print::human(args, session, out, seeds, started, &totals, coverage),
        Format::Json => print::json(chosen, out, seeds, &totals, coverage, code),
    }
    Ok(code)
}
