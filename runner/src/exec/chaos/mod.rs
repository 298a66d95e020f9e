//! `bloodhound exec --chaos`: hunts in one program, without a configuration, for a schedule with which it fails.
//!
//! The program is run up to where it has a second task, once ([`Start`]); each seed goes on from there with a schedule of its own
//! ([`Runner`]), on several workers ([`hunt`]). What is told of a seed ([`report`]) depends on neither their number nor their speed:
//! seeds are told of in their order, and a hunt that stops at its first failure stops at that with the smallest seed.
//!
//! Neighbours: [`super`] runs single programs; `bloodhound_sim` draws the schedule.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bloodhound_decisions::Log;
use bloodhound_sim::scheduler::{self, Schedule};
use bloodhound_sim::strace::Strace;
use clap::builder::RangedU64ValueParser;

use super::{Args, Single};
use crate::events::EventFile;
use crate::output::{self, eprint};
use crate::platform::{self, Chosen};
use crate::session::Failure;
use crate::{cpus, exit};

mod bisect;
mod hunt;
mod outcome;
mod progress;
mod report;
mod runner;
mod saved;

pub use outcome::Outcome;
pub use runner::{Runner, Start};

/// Seeds of a hunt, unless it is said how many.
const SEEDS: u64 = 1000;

/// What a hunt is asked for.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Hunt: run the program once per seed, each time with another schedule, until it fails. With `--seed`, that seed alone
    #[arg(long)]
    pub chaos: bool,
    /// How many seeds [default: 1000]
    #[arg(long, value_name = "N", requires = "chaos", conflicts_with = "seed", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    seeds: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "S", requires = "chaos", conflicts_with = "seed")]
    seed_from: Option<u64>,
    /// Workers [default: one per processor]
    #[arg(long, short = 'j', value_name = "W", requires = "chaos", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    jobs: Option<usize>,
    /// Go on after a failure
    #[arg(long, requires = "chaos")]
    keep_going: bool,
    /// The exit code with which the program does not fail [default: 0]
    #[arg(long, value_name = "CODE", requires = "chaos", default_value_t = 0, hide_default_value = true)]
    expect_status: u8,
    /// What decides which task runs next
    #[arg(long, value_enum, requires = "chaos", default_value = "swarm")]
    policy: Policy,
    /// How often a seed switches tasks against that order, at most
    #[arg(long, value_name = "N", requires = "chaos", default_value_t = DEPTH, value_parser = RangedU64ValueParser::<u32>::new().range(0..=10))]
    depth: u32,
    /// Where it does so: at system calls only, or also between two instructions of the program
    #[arg(long, value_enum, requires = "chaos", default_value = "code")]
    preempt_at: PreemptAt,
    /// Give a seed up after so many system calls, without a verdict
    #[arg(long, value_name = "N", requires = "chaos", default_value_t = MOST_STEPS, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    max_steps: u64,
    /// Tell which switches make the seed fail, and which two accesses come in the wrong order
    #[arg(long, requires = "chaos", requires = "seed")]
    bisect: bool,
    /// Write the narrowed schedule to a file, for `--replay`
    #[arg(long, value_name = "FILE", requires = "bisect")]
    save: Option<PathBuf>,
    /// Run the program with the schedule of a file of `--save`, instead of one that is drawn
    #[arg(long, value_name = "FILE", requires = "chaos", conflicts_with_all = ["seed", "seeds", "seed_from", "keep_going"])]
    replay: Option<PathBuf>,
}

/// Switches of a seed, at most, unless it is said how many.
const DEPTH: u32 = 3;
/// Steps after which a seed is given up, unless it is said how many. Threads may wait for each other for ever by calls that do not block.
const MOST_STEPS: u64 = 2_000_000;

/// What decides which task runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    /// Another one of these for each seed
    Swarm,
    /// Each task runs until it blocks; then the next of the queue does
    Fifo,
    /// Turns of random lengths
    Random,
    /// By random priorities, of which a few change (probabilistic concurrency testing)
    Pct,
}

/// Where tasks are preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PreemptAt {
    /// At system calls
    Calls,
    /// At instructions that access shared memory as well
    Code,
}

impl Options {
    fn schedule(&self) -> Schedule {
        let kind = match self.policy {
            Policy::Swarm => scheduler::Kind::Swarm,
            Policy::Fifo => scheduler::Kind::Fifo,
            Policy::Random => scheduler::Kind::Random,
            Policy::Pct => scheduler::Kind::Pct,
        };
        let preempt_at = match self.preempt_at {
            PreemptAt::Calls => scheduler::PreemptAt::Calls,
            PreemptAt::Code => scheduler::PreemptAt::Code,
        };
        Schedule { kind, depth: self.depth, preempt_at }
    }

    fn seeds(&self) -> Seeds {
        Seeds { first: self.seed_from.unwrap_or(0), count: self.seeds.unwrap_or(SEEDS) }
    }
}

/// The seeds of a hunt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeds {
    first: u64,
    count: u64,
}

impl Seeds {
    /// The seed with this number, from 0, if there is one.
    fn number(self, number: u64) -> Option<u64> {
        (number < self.count).then(|| self.first.checked_add(number)).flatten()
    }
}

/// Hunts; the exit code.
///
/// # Errors
/// What the host says.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let chosen = platform::choose(args.platform.wanted)?;
    hunt_on(args, chosen)
}

fn hunt_on(args: &Args, chosen: Chosen) -> Result<u8, Failure> {
    let mut single = Single::new(&args.surroundings, &args.command)?;
    single.set_schedule(args.chaos.schedule());
    if let Some(file) = &args.chaos.replay {
        return one(args, &single, &chosen, saved::read(file)?);
    }
    if let Some(seed) = args.seed {
        return one(args, &single, &chosen, Log::new(runner::BOOT, seed));
    }
    for (given, option) in [
        (args.strace, "--strace"),
        (args.events.is_some(), "--events"),
        (args.breaks.wanted(), "--break"),
        (args.summary, "--summary"),
    ] {
        if given {
            return Err(Failure::usage(format!(
                "{option} tells of one run, and this is a hunt over many\nhelp: add `--seed N`"
            )));
        }
    }
    let seeds = args.chaos.seeds();
    let most = cpus::jobs();
    let jobs = args.chaos.jobs.unwrap_or(most).clamp(1, most);
    let jobs = usize::try_from(seeds.count).map_or(jobs, |count| jobs.min(count));
    let shared = hunt::Shared {
        single,
        chosen,
        options: args.chaos.clone(),
        seeds,
        start: Mutex::new(None),
        input: Arc::default(),
        next: Default::default(),
        last: u64::MAX.into(),
        interrupt: crate::interrupt::flag(),
    };
    let mut telling = report::Report::new(args, seeds);
    hunt::hunt(&Arc::new(shared), jobs, &mut telling)?;
    Ok(telling.finish())
}

/// Runs one seed of a hunt, or what else a log says; the exit code.
fn one(args: &Args, single: &Single, chosen: &Chosen, log: Log) -> Result<u8, Failure> {
    let seed = log.seed;
    let input = Arc::default();
    let mut runner = Runner::new(single, chosen, crate::interrupt::flag(), &input, args.chaos.max_steps)?;
    if args.chaos.bisect {
        let start = runner.start()?;
        return bisect::bisect(&mut runner, &start, seed, &args.chaos);
    }
    let machine = runner.machine();
    machine.set_modes(args.modes());
    let breaks = args.breaks.set(machine)?;
    let start = runner.start()?;
    let machine = runner.machine();
    if args.strace {
        machine.listen(Box::new(Strace::new(eprint)));
    }
    let file =
        args.events.as_deref().map(|path| EventFile::create(path, &single.scenario, seed)).transpose()?;
    if let Some(file) = &file {
        machine.listen(file.listener(single.scenario.clone()));
    }
    let outcome = runner.run_log(&start, log)?;
    breaks.map_or(Ok(()), crate::breakpoints::Setting::finish)?;
    if args.summary {
        eprint(&format!(
            "platform: {}\ndigest: {}\ndigest_version: {}\nsteps: {}\n",
            chosen.line(),
            outcome.digest,
            bloodhound_abi::digest::VERSION,
            outcome.steps
        ));
    }
    file.map_or(Ok(()), |file| file.finish(&runner.machine().world))?;
    output::print(&report::text(&outcome));
    Ok(match outcome.verdict(args.chaos.expect_status) {
        outcome::Verdict::Passed => exit::PASS,
        outcome::Verdict::Failed => exit::FINDINGS,
        outcome::Verdict::None(code) => code,
    })
}

/// The exit code of a hunt.
fn code(codes: &[u8]) -> u8 {
    match codes {
        // The shell's codes for a program that cannot be started.
        [code @ (exit::NOT_FOUND | exit::NOT_EXECUTABLE)] => *code,
        codes => exit::first(codes),
    }
}
