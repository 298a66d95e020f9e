//! `bloodhound shrink`: the fewest faults, operations and surprises with which a finding still fails, as a finding of its own.
//!
//! The finding is run again first; then `search` runs what its log says with less and less in it ([`case`]), on workers ([`pool`]), as long as it fails in the same
//! way ([`target`]). What is left is run twice more as a replay does it, and written with a story ([`story`]).

mod case;
mod pool;
mod search;
mod story;
mod target;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloodhound_decisions::{Decisions, Log, Made, Mode};

use crate::memory::Guard;
use crate::output::{self, Format};
use crate::platform::{self, Choice, Chosen};
use crate::run::{Again, fail, interrupt};
use crate::session::{Failure, Outcome, Session, Stopped, Worker, host_failure};
use crate::{cli, cpus, exit, finding};

use pool::{Pool, Ran};
use search::Search;
use story::Told;
use target::Target;

/// Runs at the same time are of use up to here: a round has no more.
const WORKERS: usize = 4;

/// Arguments of `shrink`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    again: Again,
    #[command(flatten)]
    platform: Choice,
    /// Most runs that the search may make
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Begin no runs after so much host time (for example 10m), and write what is left by then
    #[arg(long, value_parser = cli::duration)]
    timeout: Option<u64>,
    /// Runs at the same time, up to 4 (default: the number of CPUs); the result does not depend on it
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Where the shrunken finding is written (default: the directory `shrunk` of the finding)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// `bloodhound shrink`.
pub fn run(args: &Args) -> u8 {
    shrink(args).unwrap_or_else(|failure| fail(&failure))
}

fn shrink(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let finding::Stored { record, log, .. } = finding::load(&args.again.finding)?;
    let out = match &args.out {
        Some(dir) => dir.clone(),
        None => finding::directory_of(&args.again.finding).join(finding::SHRUNK),
    };
    if out.exists() && !out.join("finding.json").is_file() {
        let text =
            format!("{} is there and is no finding\nhelp: give another place with `--out`", out.display());
        return Err(Failure::usage(text));
    }
    let session = Arc::new(args.again.session(&record)?);
    let chosen = platform::choose(args.platform.wanted)?;
    output::eprint(&finding::compare_platforms(&record.platform, &chosen));
    let interrupt = interrupt();
    let guard = Guard::start(args.platform.budget(), interrupt.clone())?;
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let workers = args.jobs.map_or_else(cpus::jobs, usize::from).clamp(1, WORKERS);
    let pool = Pool::new(session, chosen, (interrupt, deadline), &log, workers)?;
    let target = Target::of(&record);
    output::eprint(&format!("bloodhound: shrinking seed {}: {target}\n", record.seed));
    let found =
        search(&pool, target.clone(), args.runs, (&record, log)).map_err(|failure| guard.explain(failure))?;
    drop(pool);
    let Found { ran, runs, dimensions, late } = found;
    let log = case::settled(&ran);
    let again = |session: &Arc<Session>| {
        replay(session, &chosen, &log, &target, &ran.outcome).map_err(|failure| guard.explain(failure))
    };
    // With nothing of what the search has seen: its inputs are those of this run alone.
    let session = Arc::new(args.again.session(&record)?);
    let (outcome, second) = (again(&session)?, again(&session)?);
    let violation = target.violated(&outcome).filter(|_| outcome.digest == second.digest);
    let Some(violation) = violation else {
        return Err(differs("the second replay", &second, &outcome.digest));
    };
    let early = match late {
        true => Some("the time was over"),
        false => (runs >= args.runs.saturating_sub(1)).then_some("the budget of runs was used up"),
    };
    let dimensions = &dimensions;
    let told = Told { original: &record, outcome: &outcome, violation, dimensions, runs, early };
    let text = story::text(&told);
    finding::save_shrunk(&out, &record, &session, (&outcome, violation), chosen.record(), &text)
        .map_err(|error| Failure::environment(format!("the shrunken finding cannot be written: {error}")))?;
    match args.format {
        Format::Json => output::print_json(&story::json(&told, &out)),
        Format::Human => {
            let place = crate::bug::quote(&out.to_string_lossy());
            output::print(&format!("{text}digest: {}\nreplay: bloodhound replay {place}\n", outcome.digest));
        }
    }
    Ok(exit::FINDINGS)
}

/// What a search came to.
struct Found {
    ran: Ran,
    runs: u32,
    dimensions: Vec<search::Dimension>,
    late: bool,
}

/// Runs the finding again, and searches.
fn search(
    pool: &Pool,
    target: Target,
    budget: u32,
    (record, log): (&finding::Record, Log),
) -> Result<Found, Failure> {
    let Some(ran) = pool.look(log, false)? else {
        let text = "the time was over before the finding was run again: nothing is written";
        return Err(Failure { code: exit::INCONCLUSIVE, text: text.into() });
    };
    if let Some(Stopped::Undecided(why)) = &ran.outcome.stopped {
        return Err(Failure { code: exit::INCONCLUSIVE, text: format!("the finding was given up: {why}") });
    }
    if target.violated(&ran.outcome).is_none() {
        let text = format!(
            "the run of the finding does not fail any more ({target}): there is nothing to shrink\nhelp: `bloodhound replay` shows where it left \
             its record"
        );
        return Err(Failure { code: exit::NONDETERMINISM, text });
    }
    if ran.outcome.digest != record.digest {
        return Err(differs("the run of the finding", &ran.outcome, &record.digest));
    }
    let mut search = Search { pool, target, ran, runs: 1, budget, late: false, dimensions: Vec::new() };
    search.all()?;
    let Search { ran, runs, dimensions, late, .. } = search;
    Ok(Found { ran, runs, dimensions, late })
}

/// The outcome of a run that followed a log leniently and made these choices, with a log that a replay can follow strictly.
pub fn settled(outcome: Outcome, made: Vec<Made>) -> Outcome {
    let ran = Ran { outcome, made };
    let decisions = Arc::new(case::settled(&ran));
    Outcome { decisions, ..ran.outcome }
}

/// Runs what is left as `replay` does, from a boot of its own.
fn replay(
    session: &Arc<Session>,
    chosen: &Chosen,
    log: &Log,
    target: &Target,
    searched: &Outcome,
) -> Result<Outcome, Failure> {
    let mut worker = Worker::new(session.clone(), chosen, interrupt())?;
    worker.trust_log();
    worker.boot(Decisions::new(log.clone(), Mode::Strict))?;
    let outcome = worker.run(log.seed).map_err(host_failure)?;
    match &outcome.stopped {
        Some(Stopped::Interrupted) => return Err(search::interrupted()),
        Some(Stopped::Undecided(why)) => {
            return Err(Failure {
                code: exit::INCONCLUSIVE,
                text: format!("the replay was given up: {why}"),
            });
        }
        Some(Stopped::Unsupported(_)) | None => {}
    }
    let same = outcome.digest == searched.digest && outcome.divergences.is_empty();
    if !same || target.violated(&outcome).is_none() {
        return Err(differs("the replay of what is left", &outcome, &searched.digest));
    }
    Ok(outcome)
}

/// A run that should be another one and is not.
fn differs(what: &str, outcome: &Outcome, digest: &str) -> Failure {
    let mut text =
        format!("{what} is another run: digest {} instead of {digest}; nothing is written", outcome.digest);
    for divergence in outcome.divergences.iter().take(10) {
        text.push_str(&format!("\n  {divergence}"));
    }
    Failure { code: exit::NONDETERMINISM, text }
}
