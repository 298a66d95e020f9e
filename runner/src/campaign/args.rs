//! The command lines of `test` and `explore`, and what of them cannot go together.
//!
//! Key types: [`Common`] (what both have), [`Args`] (of `test`), [`Sharing`]. Neighbours: those of `explore` ([`explore::Args`]) are made into those of a
//! campaign that is guided.

use std::path::PathBuf;

use bloodhound_explore::{Settings, Strategy};
use bloodhound_store::Place;

use super::seeds::Seeds;
use crate::explore::{self, SearchArgs};
use crate::output::Format;
use crate::platform::{self, Choice};
use crate::run::Source;
use crate::session::{Failure, Session};
use crate::shard::{Part, Shard};
use crate::{cli, corpus, regress};

/// The shortest time after which a worker may be taken for dead.
const LEAST_WORKER_TIMEOUT: u64 = 1_000_000_000;

/// What `test` and `explore` have in common.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub platform: Choice,
    #[command(flatten)]
    pub search: SearchArgs,
    /// Neither read nor run the regression cases: what they mark as known is a finding as any other
    #[arg(long)]
    pub no_regressions: bool,
    /// Measure which code of the services is reached, and write reports of it
    #[arg(long)]
    pub coverage: bool,
    /// Leave findings as they are
    #[arg(long)]
    pub no_shrink: bool,
    /// Make findings self-contained: each takes along the files and images that its run saw, so that it can be replayed elsewhere
    #[arg(long)]
    pub bundle: bool,
    /// Interesting runs of earlier campaigns: they come first, and new ones are saved there. A directory, or s3://bucket/prefix (docs/corpus.md)
    #[arg(long, value_parser = Place::parse, value_name = "PLACE")]
    pub corpus: Option<Place>,
    /// Go on with the search whose journal is in the corpus, which was interrupted or is to have more runs (docs/exploration.md)
    #[arg(long, requires = "corpus")]
    pub resume: bool,
    /// Bytes to which the corpus is brought down at the end (for example 32m)
    #[arg(long, value_parser = cli::bytes, value_name = "SIZE", default_value_t = corpus::LIMIT)]
    pub corpus_limit: u64,
    /// Directory for reports and findings (default: the configuration's `output.dir`)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write JUnit XML here (it is always in <out>/junit.xml)
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    pub format: Format,
}

/// Arguments of `test`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// It is `explore`.
    #[arg(skip)]
    pub explores: bool,
    /// How many seeds to run, or runs to make where the strategy is guided (default: the configuration's `simulation.seeds`)
    #[arg(long)]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub first_seed: u64,
    /// Begin no seeds after so much host time (for example 10m); one that then does not end is stopped
    #[arg(long, value_parser = cli::duration)]
    pub timeout: Option<u64>,
    /// Stop at the first finding that is not known; with --store, all that share it and have this option
    #[arg(long)]
    pub fail_fast: bool,
    /// Most runs in which a regression case is looked for that has changed since it was found
    #[arg(long, value_name = "N", default_value_t = regress::RUNS, value_parser = clap::value_parser!(u32).range(1..))]
    pub regression_runs: u32,
    #[command(flatten)]
    pub sharing: Sharing,
    /// Seeds at the same time (default: exploration.parallel_workers, at most the number of CPUs)
    #[arg(long, short = 'j')]
    pub jobs: Option<usize>,
    /// Boot the stack for every seed instead of starting from a snapshot of its boot
    #[arg(long)]
    pub boot_each: bool,
    /// Least number of seeds that must be judged when --timeout is over (default: 1; without --timeout, all)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub min_seeds: Option<u64>,
    /// Least share of the configured kinds of faults that must have been injected, for example 80% (default: the
    /// configuration's `faults.coverage_threshold`)
    #[arg(long, value_parser = cli::share, value_name = "PERCENT")]
    pub fault_coverage_threshold: Option<u32>,
    /// Least share of the services' own code that must be reached, for example 80%
    #[arg(long, value_parser = cli::share, value_name = "PERCENT")]
    pub coverage_threshold: Option<u32>,
    /// When the seeds have run, shrink one finding of each group within so much host time for all of them (default: 1m; docs/shrinking.md)
    #[arg(long, value_name = "TIME", value_parser = cli::duration, conflicts_with = "no_shrink")]
    pub shrink_budget: Option<u64>,
    /// Run on this machine's Docker or Podman engine, in real time, with the faults that an engine can do: one seed unless --seeds says more. Nothing
    /// of it can be replayed (docs/live.md)
    #[arg(long)]
    pub live: bool,
    /// With --live: leave the containers, networks and volumes of the run where they are
    #[arg(long, requires = "live")]
    pub keep: bool,
}

impl Args {
    /// By which rule runs are chosen: `explore` without another word is guided.
    pub fn strategy(&self, session: &Session) -> Strategy {
        let search = &self.common.search;
        match search.strategy_of(session) {
            strategy if strategy.is_guided() || !self.explores || search.strategy.is_some() => strategy,
            _ => Strategy::CoverageGuided,
        }
    }

    /// What a search of so many runs is.
    pub fn settings(&self, session: &Session, seeds: &Seeds) -> Settings {
        let settings = self.common.search.settings(session, seeds.first, seeds.count());
        Settings { strategy: self.strategy(session), ..settings }
    }
}

/// What makes this one of several processes.
#[derive(clap::Args, Clone, Debug)]
pub struct Sharing {
    /// Run one part of the seeds of several, for example 2/4: of four shards the second (docs/scaling.md)
    #[arg(long, value_parser = Shard::parse, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Put the results where other shards and `bloodhound merge` find them: s3://bucket/prefix, file:///path or a directory
    #[arg(long, value_parser = Place::parse, value_name = "PLACE")]
    pub store: Option<Place>,
    /// Take ranges of the seeds from the store, as the worker of this name, together with others
    #[arg(long, value_parser = worker_name, value_name = "NAME", requires = "store", conflicts_with = "shard")]
    pub worker: Option<String>,
    /// After so much time without a sign of life a worker is taken for dead, and others run its seeds; that of the first worker holds for all
    #[arg(long, value_parser = worker_timeout, value_name = "TIME", default_value = "60s", requires = "worker")]
    pub worker_timeout: u64,
}

impl Sharing {
    /// The process is alone.
    const ALONE: Sharing = Sharing { shard: None, store: None, worker: None, worker_timeout: 0 };

    /// Which seeds this process runs.
    pub fn part(&self) -> Part {
        match (self.shard, &self.worker) {
            (Some(shard), _) => Part::Shard(shard),
            (None, Some(name)) => Part::Worker(name.clone()),
            (None, None) => Part::All,
        }
    }
}

/// A name that can be a part of a key.
fn worker_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    match !text.is_empty() && text.len() <= 100 && !text.starts_with('.') && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => {
            Err("a name has up to 100 letters, digits, `-` and `.`, and does not begin with `.`".to_owned())
        }
    }
}

/// A time in which a worker can give several signs of life.
fn worker_timeout(text: &str) -> Result<u64, String> {
    match cli::duration(text)? {
        ns if ns < LEAST_WORKER_TIMEOUT => Err("a worker is given a second at least".to_owned()),
        ns => Ok(ns),
    }
}

/// `bloodhound explore`: a campaign whose runs are those of a search.
pub fn explore(args: &explore::Args) -> u8 {
    super::test(&Args {
        common: args.common.clone(),
        explores: true,
        seeds: args.runs,
        first_seed: args.seed,
        timeout: args.timeout,
        fail_fast: args.fail_fast,
        sharing: Sharing::ALONE,
        regression_runs: regress::RUNS,
        jobs: args.jobs,
        boot_each: false,
        min_seeds: None,
        fault_coverage_threshold: None,
        coverage_threshold: None,
        shrink_budget: args.shrink_budget,
        live: false,
        keep: false,
    })
}

/// Why coverage has no meaning with --live.
pub const NO_COVERAGE: &str = "code coverage is measured in the simulation only";

/// Refuses options that mean nothing on a real engine.
pub fn without_meaning(args: &Args) -> Result<(), Failure> {
    let given = [
        ("--bundle", args.common.bundle, "nothing of a live run can be replayed"),
        ("--corpus", args.common.corpus.is_some(), "nothing of a live run can be run again"),
        ("--boot-each", args.boot_each, "each seed of a live run has a stack of its own"),
        ("--jobs", args.jobs.is_some(), "the seeds of a live run are run one after the other"),
        ("--shrink-budget", args.shrink_budget.is_some(), "nothing of a live run can be run again"),
        (
            "--max-depth",
            args.common.search.max_depth.is_some(),
            "a live run cannot be gone on with from a moment of it",
        ),
        (
            "--max-states",
            args.common.search.max_states.is_some(),
            "a live run cannot be gone on with from a moment of it",
        ),
        (
            "--regression-runs",
            args.regression_runs != regress::RUNS,
            "a live run says nothing about regression cases",
        ),
        ("--platform", args.common.platform.wanted != platform::Wanted::Auto, "the engine runs the services"),
        ("--shard", args.sharing.shard.is_some(), "shards are joined by what can be repeated"),
        ("--store", args.sharing.store.is_some(), "shards are joined by what can be repeated"),
        ("--coverage", args.common.coverage, NO_COVERAGE),
        ("--strategy", args.common.search.strategy.is_some(), "the seeds of a live run are independent"),
        ("--coverage-threshold", args.coverage_threshold.is_some(), NO_COVERAGE),
    ];
    match given.iter().find(|(_, given, _)| *given && args.live) {
        Some((option, _, why)) => {
            Err(Failure::usage(format!("`{option}` cannot be used with --live: {why}")))
        }
        None => Ok(()),
    }
}

/// The least number of seeds that must be judged.
pub fn least(args: &Args, seeds: &Seeds) -> Result<u64, Failure> {
    let all = seeds.count();
    if args.sharing.worker.is_some() {
        return match args.min_seeds {
            Some(_) => Err(Failure::usage(
                "`--min-seeds` cannot be used with --worker: nobody knows how many seeds a worker gets\nhelp: give it to `bloodhound merge`",
            )),
            None => Ok(all),
        };
    }
    let least = args.min_seeds.unwrap_or(if args.timeout.is_some() { 1 } else { all });
    match least > all {
        true => {
            Err(Failure::usage(format!("`--min-seeds {least}` is more than the {all} seeds that are run")))
        }
        false => Ok(least),
    }
}

/// Refuses what cannot go together, and what cannot be joined: runs of searches are in no results.
pub fn cannot_be_shared(args: &Args, guided: bool) -> Result<(), Failure> {
    let shared = args.sharing.shard.is_some() || args.sharing.store.is_some();
    let given = [
        (
            "--boot-each",
            args.boot_each && guided,
            "with a strategy that is guided: its runs go on from others",
        ),
        (
            "--resume",
            args.common.resume && matches!(args.common.corpus, Some(Place::Bucket { .. })),
            "with a corpus in a bucket: the journal of a search is in the directory `corpus` of its reports, which `--corpus` can name",
        ),
        (
            "--strategy",
            guided && shared,
            "with --shard or --store: the runs of a search depend on each other",
        ),
    ];
    match given.iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("`{option}` cannot be used {why}"))),
        None => Ok(()),
    }
}
