//! `bloodhound test`: many seeds on all cores, verdicts over them, reports.
//!
//! With `--live` the seeds are run by [`crate::live`]; everything around them is the same.
//!
//! Modules: `accounts` (what became of the faults), `reports` (where it writes), `workers` (threads and seeds), `watch` (when it has to stop), `totals` (what all seeds
//! gave together), `verdict` (the one rule from the totals to each case and to the exit code), `progress` (what is said
//! meanwhile), `print` (the answer for people and for machines).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::boots::Boots;
use crate::coverage::{self, Measuring};
use crate::output::Format;
use crate::platform::{self, Choice, Chosen};
use crate::regress::ledger::{self, Ledger};
use crate::run::{Source, fail};
use crate::session::{Failure, Session, Worker};
use crate::{bug, cli, cpus, exit, finding, junit, live, output, regress};

mod accounts;
mod print;
mod progress;
mod reports;
pub mod totals;
pub mod verdict;
pub mod watch;
mod workers;

use progress::Progress;
use reports::Reports;
use totals::Totals;
use verdict::Judgement;
use watch::Watch;

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
    /// Begin no seeds after so much host time (for example 10m); one that then does not end is stopped
    #[arg(long, value_parser = cli::duration)]
    timeout: Option<u64>,
    /// Stop at the first finding that is not known
    #[arg(long)]
    fail_fast: bool,
    /// Neither read nor run the regression cases: what they mark as known is a finding as any other
    #[arg(long)]
    no_regressions: bool,
    /// Most runs in which a regression case is looked for that has changed since it was found
    #[arg(long, value_name = "N", default_value_t = regress::RUNS, value_parser = clap::value_parser!(u32).range(1..))]
    regression_runs: u32,
    /// Seeds at the same time (default: exploration.parallel_workers, at most the number of CPUs)
    #[arg(long, short = 'j')]
    jobs: Option<usize>,
    /// Boot the stack for every seed instead of starting from a snapshot of its boot
    #[arg(long)]
    boot_each: bool,
    /// Least number of seeds that must be judged when --timeout is over (default: 1; without --timeout, all)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    min_seeds: Option<u64>,
    /// Least share of the configured kinds of faults that must have been injected, for example 80% (default: the
    /// configuration's `faults.coverage_threshold`)
    #[arg(long, value_parser = cli::share, value_name = "PERCENT")]
    fault_coverage_threshold: Option<u32>,
    /// Measure which code of the services is reached, and write reports of it
    #[arg(long)]
    coverage: bool,
    /// Least share of the services' own code that must be reached, for example 80%
    #[arg(long, value_parser = cli::share, value_name = "PERCENT")]
    coverage_threshold: Option<u32>,
    /// Make findings self-contained: each takes along the files and images that its run saw, so that it can be replayed elsewhere
    #[arg(long)]
    bundle: bool,
    /// Run on this machine's Docker or Podman engine, in real time, with the faults that an engine can do: one seed unless --seeds says more. Nothing
    /// of it can be replayed (docs/live.md)
    #[arg(long)]
    live: bool,
    /// With --live: leave the containers, networks and volumes of the run where they are
    #[arg(long, requires = "live")]
    keep: bool,
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

/// The seeds of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    count: u64,
}

impl Seeds {
    /// # Errors
    /// Usage: there are none, or no such numbers.
    fn new(first: u64, count: u64) -> Result<Seeds, Failure> {
        let Some(last) = count.checked_sub(1) else {
            return Err(Failure::usage("`--seeds 0` would judge nothing\nhelp: give at least one seed"));
        };
        if first.checked_add(last).is_none() {
            let left = u64::MAX - first;
            return Err(Failure::usage(format!(
                "{count} seeds from {first} on are too many: the last seed is {}, so at most {} are left\nhelp: give \
                 another `--first-seed` or `--seeds`",
                u64::MAX,
                u128::from(left) + 1
            )));
        }
        Ok(Seeds { first, count })
    }

    /// The seed with this number, from 0.
    fn number(&self, number: u64) -> Option<u64> {
        (number < self.count).then(|| self.first + number)
    }
}

impl std::fmt::Display for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            1 => write!(f, "seed {}", self.first),
            _ => write!(f, "seeds {} to {}", self.first, self.first + (self.count - 1)),
        }
    }
}

/// `bloodhound test`.
pub fn test(args: &Args) -> u8 {
    // From here on a signal ends with a report.
    let _flag = crate::interrupt::flag();
    let run = || {
        without_meaning(args)?;
        let source = &args.source;
        let mut session = Session::load(&source.config, &source.selection()?, &source.images)
            .inspect_err(|failure| refused(args, failure))?;
        measure(args, &mut session).inspect_err(|failure| refused(args, failure))?;
        if let Some(note) = session.note() {
            output::eprint(&format!("bloodhound: {note}\n"));
        }
        campaign(args, Arc::new(session), || platform::choose(args.platform.wanted))
    };
    run().unwrap_or_else(|f| fail(&f))
}

/// Why coverage has no meaning with --live.
const NO_COVERAGE: &str = "code coverage is measured in the simulation only";

/// Refuses options that mean nothing on a real engine.
fn without_meaning(args: &Args) -> Result<(), Failure> {
    let given = [
        ("--bundle", args.bundle, "nothing of a live run can be replayed"),
        ("--boot-each", args.boot_each, "each seed of a live run has a stack of its own"),
        ("--jobs", args.jobs.is_some(), "the seeds of a live run are run one after the other"),
        ("--platform", args.platform.wanted != platform::Wanted::Auto, "the engine runs the services"),
        ("--coverage", args.coverage, NO_COVERAGE),
        ("--coverage-threshold", args.coverage_threshold.is_some(), NO_COVERAGE),
    ];
    match given.iter().find(|(_, given, _)| *given && args.live) {
        Some((option, _, why)) => {
            Err(Failure::usage(format!("`{option}` cannot be used with --live: {why}")))
        }
        None => Ok(()),
    }
}

/// Measures coverage if anybody asks for it.
fn measure(args: &Args, session: &mut Session) -> Result<(), Failure> {
    if args.live {
        if session.coverage.wanted() {
            print::say(&format!("the section `coverage` has no effect with --live: {NO_COVERAGE}"));
        }
        return Ok(());
    }
    if args.coverage || args.coverage_threshold.is_some() || session.coverage.wanted() {
        let (settings, scenario) = (session.coverage.clone(), session.scenario.clone());
        session.measuring = Some(Measuring::new(settings, scenario, args.first_seed)?);
    }
    Ok(())
}

/// Puts the reason why nothing is run into the reports that the command line names: those of an earlier campaign would speak
/// for this one.
fn refused(args: &Args, failure: &Failure) {
    let files = args.out.iter().map(|dir| dir.join("junit.xml")).chain(args.junit.clone());
    // The failure that is told is the one that is there already.
    let _ignored = refusal(args, failure).map(|xml| files.for_each(|path| reports::replace(&path, &xml)));
}

/// The report of a campaign that is not begun.
fn refusal(args: &Args, failure: &Failure) -> Result<String, String> {
    let mut totals = Totals::new(0, args.seeds.unwrap_or_default(), 0);
    totals.trouble(failure.code, failure.text.clone());
    let config = args.source.config.display().to_string();
    junit::render(&Judgement::of(&[], &totals).suite(&config, Vec::new()))
}

/// `test` on a platform that is chosen when the reports have their place.
///
/// # Errors
/// Wrong arguments, and reports that have no place. Everything later is in the reports.
pub fn campaign(
    args: &Args,
    session: Arc<Session>,
    choose: impl FnOnce() -> Result<Chosen, Failure>,
) -> Result<u8, Failure> {
    let started = Instant::now();
    let usual = if args.live { 1 } else { session.plan.seeds };
    let seeds = Seeds::new(args.first_seed, args.seeds.unwrap_or(usual))
        .inspect_err(|failure| refused(args, failure))?;
    let least = args.min_seeds.unwrap_or(if args.timeout.is_some() { 1 } else { seeds.count });
    if least > seeds.count {
        let failure = Failure::usage(format!(
            "`--min-seeds {least}` is more than the {} seeds that are run",
            seeds.count
        ));
        refused(args, &failure);
        return Err(failure);
    }
    let out = args.out.clone().unwrap_or_else(|| session.plan.out.clone());
    let reports = Reports::prepare(&out, args.junit.as_deref(), &session.plan.config)?;
    let left_out = args.no_regressions || args.live;
    let cases = ledger::cases_of(&session, left_out).inspect_err(|failure| {
        // The failure that is told is the one that is there already.
        let _ignored = refusal(args, failure).and_then(|xml| reports.write(&xml));
    })?;
    if let Some(text) = reports.earlier() {
        print::say(&text);
    }
    let mut totals = Totals::new(session.plan.properties.len(), seeds.count, least);
    let configured = session.project.config.faults.coverage_threshold;
    totals.least_coverage = args.fault_coverage_threshold.or(configured);
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let watch = Arc::new(Watch::start(crate::interrupt::flag(), deadline, args.platform.budget()));
    let ledger = match args.live {
        // Its seeds say nothing of those of the simulation.
        true => Ledger::default(),
        false => Ledger::open(cases, &session, args.source.faults.as_deref(), &out),
    };
    let mut campaign = Campaign { args, session, seeds, reports, ledger, watch, started };
    let chosen = if args.live { campaign.run_live(&mut totals) } else { campaign.run(choose, &mut totals) };
    Ok(campaign.finish(totals, chosen.as_ref()))
}

/// A campaign whose reports have their place.
struct Campaign<'a> {
    args: &'a Args,
    session: Arc<Session>,
    seeds: Seeds,
    reports: Reports,
    ledger: Ledger,
    watch: Arc<Watch>,
    started: Instant,
}

impl Campaign<'_> {
    /// Boots and runs all seeds. Whatever goes wrong is in the totals; the platform is returned if there is one.
    fn run(&self, choose: impl FnOnce() -> Result<Chosen, Failure>, totals: &mut Totals) -> Option<Chosen> {
        let mut chosen = None;
        let ran = bug::contain(|| {
            let platform = chosen.insert(choose()?);
            print::say(&format!("platform {}", platform.line()));
            let boots = self.boot(platform)?;
            self.watch.seeding();
            self.run_cases(*platform, &boots, totals)?;
            self.run_seeds(*platform, boots, totals)
        });
        self.settle(ran, totals);
        chosen
    }

    /// Runs all seeds on a real engine, for which no platform is needed.
    fn run_live(&self, totals: &mut Totals) -> Option<Chosen> {
        let order = live::Order {
            session: &self.session,
            seeds: &|number| self.seeds.number(number),
            out: &self.reports.dir,
            keep: self.args.keep,
            fail_fast: self.args.fail_fast,
            watch: &self.watch,
        };
        let ran = bug::contain(|| live::run_all(&order, totals));
        self.settle(ran, totals);
        None
    }

    /// Puts what ended the seeds early into the totals.
    fn settle(&self, ran: Result<Result<(), Failure>, String>, totals: &mut Totals) {
        let failure = match ran {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(text) => Some(Failure { code: exit::BUG, text }),
        };
        totals.timed_out = self.watch.timed_out() && totals.run() < totals.wanted;
        totals.interrupted = self.watch.signalled() && totals.run() < totals.wanted;
        match failure {
            None => {}
            // Told as such.
            Some(f) if f.code == exit::INTERRUPTED && (totals.interrupted || totals.timed_out) => {}
            Some(f) => {
                print::say(&f.text);
                totals.trouble(f.code, f.text);
            }
        }
    }

    /// Boots the stack as the first seed needs it. On a thread of its own: a platform binds its thread to a processor, and what the main thread starts
    /// afterwards must not inherit that.
    fn boot(&self, chosen: &Chosen) -> Result<Boots, Failure> {
        let boots = Boots::new(self.session.plan.boots);
        let boot = || {
            let mut worker = Worker::new(self.session.clone(), chosen, self.watch.halt())?;
            boots.of(&mut worker, self.args.first_seed)
        };
        let booted = std::thread::scope(|scope| scope.spawn(|| bug::contain(boot)).join());
        let snapshot = match booted {
            Ok(Ok(Err(_))) if self.watch.starved() => {
                return Err(Failure { code: exit::INCONCLUSIVE, text: self.watch.budget().text() });
            }
            Ok(Ok(booted)) => booted?,
            Ok(Err(text)) => return Err(Failure { code: exit::BUG, text }),
            Err(_) => return Err(Failure { code: exit::BUG, text: "the boot panicked".into() }),
        };
        print::say(&format!(
            "{} services ready after {} of virtual time, {} steps ({} ms); {}",
            self.session.scenario.services.len(),
            snapshot.now,
            snapshot.steps,
            self.started.elapsed().as_millis(),
            self.seeds
        ));
        Ok(boots)
    }

    /// How many seeds or cases are run at the same time, of so many.
    fn jobs(&self, count: u64) -> usize {
        let most = cpus::jobs();
        let jobs = self.args.jobs.or(self.session.plan.workers).unwrap_or(most).clamp(1, most);
        usize::try_from(count).map_or(jobs, |count| jobs.min(count))
    }

    /// Runs the regression cases, before any seed.
    fn run_cases(&self, chosen: Chosen, boots: &Boots, totals: &mut Totals) -> Result<(), Failure> {
        let cases = &self.ledger.cases;
        if cases.is_empty() {
            return Ok(());
        }
        let (out, selection) = (&self.reports.dir, self.args.source.selection()?);
        let dir = &self.session.project.config.regressions;
        let keep = |session: &Session, schedule: Option<&str>, outcome: &_, violation: &_| {
            let selection = regress::with_schedule(&selection, dir, schedule);
            let saved = finding::save(out, session, &selection, outcome, violation);
            saved.map(|saved| saved.dir).map_err(|error| error.to_string())
        };
        let order = regress::judge::Order {
            session: &self.session,
            chosen,
            boots,
            cases,
            all: cases,
            runs: self.args.regression_runs,
            jobs: self.jobs(cases.len() as u64),
            watch: &self.watch,
            keep: &keep,
            say: &print::say,
        };
        totals.regressions = regress::judge::run_all(&order)?;
        for judged in &totals.regressions {
            if let Some(Err(why)) = judged.shown.as_ref().map(|shown| &shown.kept) {
                let text =
                    format!("the finding of the regression case {} cannot be written: {why}", judged.name);
                totals.troubles.push(totals::Trouble { code: exit::ENVIRONMENT, text });
            }
        }
        if self.args.fail_fast && totals.regressions.iter().any(regress::judge::Judged::fails_gate) {
            totals.failed_fast = true;
            self.watch.close();
        }
        Ok(())
    }

    fn run_seeds(&self, chosen: Chosen, boots: Boots, totals: &mut Totals) -> Result<(), Failure> {
        let jobs = self.jobs(self.seeds.count);
        let shared = workers::Shared {
            session: self.session.clone(),
            chosen,
            boots,
            watch: self.watch.clone(),
            seeds: self.seeds,
            boot_each: self.args.boot_each,
            next: AtomicU64::new(0),
            alone: Mutex::default(),
        };
        let mut collector = workers::Collector {
            session: &self.session,
            compose: self.args.source.selection()?,
            bundle: self.args.bundle,
            fail_fast: self.args.fail_fast,
            reports: &self.reports,
            ledger: &self.ledger,
            watch: &self.watch,
            progress: Progress::new(self.seeds.count),
            totals,
            running: BTreeSet::new(),
            postponed: false,
        };
        workers::run(&Arc::new(shared), jobs, &mut collector)
    }

    /// Writes the reports and the answer. If either cannot be written, that is a trouble of the campaign as well.
    fn finish(&mut self, mut totals: Totals, chosen: Option<&Chosen>) -> u8 {
        totals.sort();
        self.ledger.finish(&self.session.plan.properties, &mut totals);
        let (asked, mut planning) = (&self.session.scenario.faults, self.session.scenario.planning.clone());
        match self.args.live {
            true => {
                live::faults::possible_schedule(&mut planning.schedule);
                totals.measure_faults(&live::faults::possible(asked).0, &planning);
            }
            false => totals.measure_faults(asked, &planning),
        }
        self.cover(&mut totals);
        let mut judgement = self.write(&mut totals);
        let junit = self.reports.dir.join("junit.xml");
        let answer = match self.args.format {
            Format::Human => print::human(&judgement, &totals, &junit, self.started.elapsed()),
            Format::Json => print::json(&judgement, &totals, &junit, chosen),
        };
        if let Err(error) = print::answer(&answer) {
            let text = format!("writing to standard output: {error}");
            print::say(&text);
            totals.trouble(exit::ENVIRONMENT, text);
            judgement = self.write(&mut totals);
        }
        judgement.code
    }

    /// Judges what code was reached, and writes the reports of it.
    fn cover(&self, totals: &mut Totals) {
        let Some(measuring) = &self.session.measuring else { return };
        let coverage = measuring.coverage();
        let settings = measuring.settings();
        let least = self.args.coverage_threshold.or(settings.config.threshold);
        totals.code = coverage::judge(settings, &coverage, least);
        totals.code_summary = coverage::summary(&coverage);
        match coverage::write(&self.reports.dir, measuring, &coverage) {
            Ok(files) => totals.code_reports = files,
            Err(text) => {
                print::say(&text);
                totals.trouble(exit::ENVIRONMENT, text);
            }
        }
    }

    fn write(&self, totals: &mut Totals) -> Judgement {
        let judge = |totals: &Totals| {
            let judgement = Judgement::of(&self.session.plan.properties, totals);
            let facts = vec![
                ("seeds_run".into(), totals.run().to_string()),
                ("seeds_judged".into(), totals.judged.to_string()),
                ("plan".into(), self.session.plan_digest.clone()),
            ];
            let silent =
                (!totals.silent.is_empty()).then(|| ("faults_never_injected".into(), totals.silent()));
            let engine =
                totals.live.as_ref().map(|engine| ("live".into(), format!("{engine}; {}", live::NOTE)));
            let facts = facts.into_iter().chain(silent).chain(engine).collect();
            let suite = judgement.suite(&self.session.plan.config.display().to_string(), facts);
            let written = junit::render(&suite).and_then(|xml| self.reports.write(&xml));
            (judgement, written)
        };
        match judge(totals) {
            (judgement, Ok(())) => judgement,
            (_, Err(text)) => {
                print::say(&text);
                totals.trouble(exit::ENVIRONMENT, text);
                // Those that can be written are to say so.
                judge(totals).0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_numbers_that_there_are() {
        let seeds = Seeds::new(u64::MAX, 1).expect("the last seed");
        assert_eq!((seeds.number(0), seeds.number(1)), (Some(u64::MAX), None));
        assert_eq!(seeds.to_string(), "seed 18446744073709551615");
        let all = Seeds::new(0, u64::MAX).expect("nearly all");
        assert_eq!(all.to_string(), "seeds 0 to 18446744073709551614");
        assert_eq!(Seeds::new(7, 3).expect("some").to_string(), "seeds 7 to 9");
        for (first, count) in [(0, 0), (u64::MAX, 2), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let wrong = Seeds::new(first, count).map(|s| (first, count) == (1, u64::MAX) && s.count > 0);
            match wrong {
                Ok(fits) => assert!(fits, "{first} {count}"),
                Err(failure) => assert_eq!(failure.code, exit::USAGE),
            }
        }
        assert!(Seeds::new(u64::MAX - 1, 3).expect_err("too many").text.contains("at most 2 are left"));
    }
}
