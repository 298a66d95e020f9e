//! `bloodhound shrink`: the fewest faults, operations and surprises with which a finding still fails, as a finding of its own.
//!
//! The finding is run again first; then `search` runs what its log says with less and less in it ([`case`]), on workers ([`pool`]), as long as it fails in the same
//! way ([`crate::group`]). What is left is run twice more as a replay does it, and written with a story ([`story`]). All of that is [`order`], which `test` does too.

mod afresh;
pub mod case;
mod luck;
mod moved;
pub mod order;
mod plain;
pub mod pool;
pub mod search;
pub mod starts;
pub mod story;
mod times;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::finding::{self, Record};
use crate::memory::Guard;
use crate::output::{self, Format};
use crate::platform::{self, Choice, Chosen};
use crate::run::{Again, fail, interrupt};
use crate::session::{Failure, Session};
use crate::{cli, cpus, exit};

use order::{Limits, Order};

/// Most runs of a search that nobody limits.
pub const RUNS: u32 = 1000;
/// Its time: a minute.
const TIME: Duration = Duration::from_secs(60);

/// Arguments of `shrink`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    of: OfFinding,
    /// Most runs that the search may make (default: 1000, within a minute)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Be ready after about so much host time (for example 10m), with what is left by then (default: 1m, or none if --runs is given)
    #[arg(long, value_parser = cli::duration)]
    timeout: Option<u64>,
    /// Where the shrunken finding is written (default: the directory `shrunk` of the finding)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Arguments of a search that runs a finding again and again: of `shrink`, and of `causes`.
#[derive(clap::Args, Debug)]
pub struct OfFinding {
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    platform: Choice,
    /// Runs at the same time, up to 4 (default: the number of CPUs); the result does not depend on it
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    pub format: Format,
}

/// What such a search works with.
pub struct Ready {
    pub session: Arc<Session>,
    pub chosen: Chosen,
    /// Ends its runs: a signal, or the guard of the memory.
    pub interrupt: Arc<AtomicBool>,
    pub guard: Guard,
    /// Runs at the same time.
    pub workers: usize,
}

impl OfFinding {
    /// Loads what the finding was made of, and chooses the platform.
    ///
    /// # Errors
    /// Something has changed since the finding was made; what the host says.
    pub fn ready(&self, record: &Record) -> Result<Ready, Failure> {
        let session = Arc::new(self.again.session(record)?);
        let chosen = platform::choose(self.platform.wanted)?;
        output::eprint(&finding::compare_platforms(&record.platform, &chosen));
        let interrupt = interrupt();
        let guard = Guard::start(self.platform.budget(), interrupt.clone())?;
        let workers = self.jobs.map_or_else(cpus::jobs, usize::from).clamp(1, order::WORKERS);
        Ok(Ready { session, chosen, interrupt, guard, workers })
    }
}

/// `bloodhound shrink`.
pub fn run(args: &Args) -> u8 {
    shrink(args).unwrap_or_else(|failure| fail(&failure))
}

fn shrink(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let stored = finding::load(&args.of.again.finding)?;
    let out = match &args.out {
        Some(dir) => dir.clone(),
        None => finding::directory_of(&args.of.again.finding).join(finding::SHRUNK),
    };
    if out.exists() && !out.join("finding.json").is_file() {
        let text =
            format!("{} is there and is no finding\nhelp: give another place with `--out`", out.display());
        return Err(Failure::usage(text));
    }
    let Ready { session, chosen, interrupt, guard, workers } = args.of.ready(&stored.record)?;
    let time = match (args.timeout, args.runs) {
        (Some(ns), _) => Some(Duration::from_nanos(ns)),
        (None, Some(_)) => None,
        (None, None) => Some(TIME),
    };
    let limits = Limits {
        runs: args.runs.unwrap_or(RUNS),
        deadline: time.map(|time| started + time),
        workers,
        memory: guard.budget(),
    };
    let record = stored.record.clone();
    // With nothing of what the search has seen: its inputs are those of the last runs alone.
    let afresh = || args.of.again.session(&record).map(Arc::new);
    let order = Order { session, afresh: &afresh, chosen, interrupt, limits, out: &out, says: true };
    let shrunk = order.carry_out(stored).map_err(|failure| guard.explain(failure))?;
    match args.of.format {
        Format::Json => output::print_json(&shrunk.json),
        Format::Human => {
            let place = crate::bug::quote(&out.to_string_lossy());
            let digest = &shrunk.digest;
            output::print(&format!("{}digest: {digest}\nreplay: bloodhound replay {place}\n", shrunk.story));
        }
    }
    Ok(exit::FINDINGS)
}
