//! `bloodhound test`: many seeds on all cores, verdicts over them, reports.
//!
//! With `--live` the seeds are run by [`crate::live`]; everything around them is the same.
//!
//! Modules: `accounts` (what became of the faults), `seeds` (their numbers), `reports` (where it writes), `record` and `keep` (what it leaves
//! for machines), `workers` (threads and seeds), `watch` (when it has to stop), `totals` (what all seeds
//! gave together), `verdict` (the one rule from the totals to each case and to the exit code), `progress` (what is said
//! meanwhile), `print` (the answer for people and for machines).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bloodhound_store::Place;

use crate::boots::Boots;
use crate::coverage::{self, Measuring, Thresholds};
use crate::output::Format;
use crate::platform::{self, Choice, Chosen};
use crate::run::{Source, fail};
use crate::session::{Failure, Session, Worker};
use crate::shard::claims::Deal;
use crate::shard::share::Share;
use crate::shard::{FORMAT, Identity, Manifest, Part, Shard, Title};
use crate::{bug, cli, cpus, exit, junit, live, output};

pub mod accounts;
mod keep;
pub mod print;
mod progress;
pub mod record;
pub mod reports;
pub mod seeds;
pub mod totals;
pub mod verdict;
pub mod watch;
mod workers;

use keep::Keep;
pub use keep::forget;
use progress::Progress;
use reports::Reports;
use seeds::Seeds;
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
    /// Stop at the first finding; with --store, all that share it
    #[arg(long)]
    fail_fast: bool,
    #[command(flatten)]
    sharing: Sharing,
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

/// What makes this one of several processes.
#[derive(clap::Args, Debug)]
struct Sharing {
    /// Run one part of the seeds of several, for example 2/4: of four shards the second (docs/scaling.md)
    #[arg(long, value_parser = Shard::parse, value_name = "I/N")]
    shard: Option<Shard>,
    /// Put the results where other shards and `bloodhound merge` find them: s3://bucket/prefix, file:///path or a directory
    #[arg(long, value_parser = Place::parse, value_name = "PLACE")]
    store: Option<Place>,
    /// Take ranges of the seeds from the store, as the worker of this name, together with others
    #[arg(long, value_parser = worker_name, value_name = "NAME", requires = "store", conflicts_with = "shard")]
    worker: Option<String>,
    /// After so much time without a sign of life a worker is taken for dead, and others run its seeds
    #[arg(long, value_parser = cli::duration, value_name = "TIME", default_value = "60s", requires = "worker")]
    worker_timeout: u64,
}

impl Sharing {
    /// Which seeds this process runs.
    fn part(&self) -> Part {
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
        ("--shard", args.sharing.shard.is_some(), "shards are joined by what can be repeated"),
        ("--store", args.sharing.store.is_some(), "shards are joined by what can be repeated"),
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
    let mut totals = Totals::new(0, args.seeds.unwrap_or_default(), 0);
    totals.trouble(failure.code, failure.text.clone());
    let config = args.source.config.display().to_string();
    let suite = Judgement::of(&[], &totals).suite(&config, Vec::new());
    let files = args.out.iter().map(|dir| dir.join("junit.xml")).chain(args.junit.clone());
    // The failure that is told is the one that is there already.
    let _ignored = junit::render(&suite).map(|xml| files.for_each(|path| reports::replace(&path, &xml)));
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
    let seeds = Seeds::new(args.first_seed, args.seeds.unwrap_or(usual), args.sharing.shard)
        .inspect_err(|failure| refused(args, failure))?;
    let least = least(args, &seeds).inspect_err(|failure| refused(args, failure))?;
    let out = args.out.clone().unwrap_or_else(|| session.plan.out.clone());
    let reports = Reports::prepare(&out, args.junit.as_deref(), &session.plan.config)?;
    if let Some(text) = reports.earlier() {
        print::say(&text);
    }
    let mut totals = Totals::new(session.plan.properties.len(), seeds.count(), least);
    let configured = session.project.config.faults.coverage_threshold;
    totals.least_coverage = args.fault_coverage_threshold.or(configured);
    totals.is_part = args.sharing.part() != Part::All;
    let keep = match keep(args, &session, &seeds, &totals, &reports.dir) {
        Ok(keep) => keep,
        Err(failure) => {
            drop(reports);
            refused(args, &failure);
            return Err(failure);
        }
    };
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let watch = Arc::new(Watch::start(crate::interrupt::flag(), deadline, args.platform.budget()));
    let campaign = Campaign { args, session, seeds, reports, watch, started, keep: keep.map(Mutex::new) };
    let chosen = if args.live { campaign.run_live(&mut totals) } else { campaign.run(choose, &mut totals) };
    Ok(campaign.finish(totals, chosen.as_ref()))
}

/// The least number of seeds that must be judged.
fn least(args: &Args, seeds: &Seeds) -> Result<u64, Failure> {
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

/// Begins what is left for machines, unless the run is live: nothing of that can be joined with anything.
fn keep(
    args: &Args,
    session: &Session,
    seeds: &Seeds,
    totals: &Totals,
    dir: &Path,
) -> Result<Option<Keep>, Failure> {
    if args.live {
        let forgot = keep::forget(dir);
        forgot.map_err(|e| Failure::environment(format!("cannot write to {}: {e}", dir.display())))?;
        return Ok(None);
    }
    let code = session.measuring.as_ref().map(|measuring| thresholds(args, measuring));
    let kinds = accounts::Accounts::configured(&session.scenario.faults, &session.scenario.planning);
    let manifest = Manifest {
        format: FORMAT,
        identity: Identity::of(session, &kinds, totals.least_coverage, code),
        first_seed: seeds.first,
        seeds: seeds.all,
        part: args.sharing.part(),
        ended: None,
    };
    let stale = Duration::from_nanos(args.sharing.worker_timeout);
    let share = args.sharing.store.as_ref();
    let share = share.map(|place| Share::begin(place, &manifest, stale, args.fail_fast)).transpose()?;
    let keep = Keep::begin(dir, manifest, share)?;
    keep.share.as_ref().map_or(Ok(()), |share| share.announce(dir))?;
    Ok(Some(keep))
}

/// What is wanted of code coverage.
fn thresholds(args: &Args, measuring: &Measuring) -> Thresholds {
    let settings = measuring.settings();
    Thresholds::of(settings, args.coverage_threshold.or(settings.config.threshold))
}

/// A campaign whose reports have their place.
struct Campaign<'a> {
    args: &'a Args,
    session: Arc<Session>,
    seeds: Seeds,
    reports: Reports,
    watch: Arc<Watch>,
    started: Instant,
    keep: Option<Mutex<Keep>>,
}

impl Campaign<'_> {
    fn keep(&self) -> Option<MutexGuard<'_, Keep>> {
        // Who panicked in there had added a whole line or none.
        self.keep.as_ref().map(|keep| keep.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the seeds come from.
    fn deal(&self) -> Deal {
        let keep = self.keep();
        let share = keep.as_ref().and_then(|keep| keep.share.as_ref());
        match share.and_then(|share| share.claims.clone()) {
            Some(claims) => Deal::Claims(claims),
            None => {
                let stopped = share.and_then(Share::stopped);
                Deal::Own { seeds: self.seeds, next: AtomicU64::new(0), stopped }
            }
        }
    }

    /// Boots and runs all seeds. Whatever goes wrong is in the totals; the platform is returned if there is one.
    fn run(&self, choose: impl FnOnce() -> Result<Chosen, Failure>, totals: &mut Totals) -> Option<Chosen> {
        let mut chosen = None;
        let ran = bug::contain(|| {
            let platform = chosen.insert(choose()?);
            print::say(&format!("platform {}", platform.line()));
            let boots = self.boot(platform)?;
            self.watch.seeding();
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
        self.settle_shared(totals);
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

    /// The same for what other processes have to do with it.
    fn settle_shared(&self, totals: &mut Totals) {
        let keep = self.keep();
        let Some(share) = keep.as_ref().and_then(|keep| keep.share.as_ref()) else { return };
        let stopped = share.stopped().is_some_and(|stopped| stopped.load(Ordering::Relaxed));
        totals.failed_fast |= stopped;
        let Some(claims) = &share.claims else { return };
        // What others run is not missing here.
        (totals.wanted, totals.least) = (claims.taken(), claims.taken());
        if let Some(text) = claims.failure() {
            print::say(&text);
            totals.trouble(exit::ENVIRONMENT, text);
        } else if totals.wanted == 0 && !self.watch.is_closed() {
            let text = match stopped {
                true => "a finding of another process has ended the campaign before this worker had a seed",
                false => {
                    "no seeds were left for this worker: others have them; `bloodhound merge` gives the verdict"
                }
            };
            totals.trouble(exit::INCONCLUSIVE, text);
        }
    }

    /// Boots the stack as the first seed needs it. On a thread of its own: a platform binds its thread to a processor, and what the main thread starts
    /// afterwards must not inherit that.
    fn boot(&self, chosen: &Chosen) -> Result<Boots, Failure> {
        let boots = Boots::new(self.session.plan.boots);
        let boot = || {
            let mut worker = Worker::new(self.session.clone(), chosen, self.watch.halt())?;
            boots.of(&mut worker, self.seeds.number(0).unwrap_or(self.args.first_seed))
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

    fn run_seeds(&self, chosen: Chosen, boots: Boots, totals: &mut Totals) -> Result<(), Failure> {
        let most = cpus::jobs();
        let jobs = self.args.jobs.or(self.session.plan.workers).unwrap_or(most).clamp(1, most);
        let jobs = usize::try_from(self.seeds.count()).map_or(jobs, |count| jobs.min(count));
        let shared = workers::Shared {
            session: self.session.clone(),
            chosen,
            boots,
            watch: self.watch.clone(),
            deal: self.deal(),
            boot_each: self.args.boot_each,
            alone: Mutex::default(),
        };
        let mut collector = workers::Collector {
            session: &self.session,
            compose: self.args.source.selection()?,
            bundle: self.args.bundle,
            fail_fast: self.args.fail_fast,
            reports: &self.reports,
            watch: &self.watch,
            progress: Progress::new(self.seeds.count()),
            keep: self.keep.as_ref(),
            totals,
            running: BTreeSet::new(),
            postponed: false,
        };
        workers::run(&Arc::new(shared), jobs, &mut collector)
    }

    /// Writes the reports and the answer. If either cannot be written, that is a trouble of the campaign as well.
    fn finish(&self, mut totals: Totals, chosen: Option<&Chosen>) -> u8 {
        totals.sort();
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
        judgement = self.hand_on(&mut totals, judgement);
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
        totals.code = coverage::judge(&thresholds(self.args, measuring), &coverage);
        totals.code_summary = coverage::summary(&coverage);
        let written = coverage::write(&self.reports.dir, measuring, &coverage).and_then(|files| {
            // Whoever joins parts needs it, whatever the configuration wants of reports.
            match totals.is_part {
                true => {
                    coverage::write_json(&self.reports.dir, measuring.checkout(), &coverage).map(|_| files)
                }
                false => Ok(files),
            }
        });
        match written {
            Ok(files) => totals.code_reports = files,
            Err(text) => {
                print::say(&text);
                totals.trouble(exit::ENVIRONMENT, text);
            }
        }
    }

    /// Leaves shard.json and the results, and puts them into the store. That one of them fails is a trouble of the campaign; what is in
    /// the directory stays there.
    fn hand_on(&self, totals: &mut Totals, mut judgement: Judgement) -> Judgement {
        let Some(mut keep) = self.keep() else { return judgement };
        let ended = keep.end(&self.session, totals, judgement.code);
        if let Err(text) = ended.and_then(|()| keep.share().map_err(|text| self.later(&text))) {
            print::say(&text);
            totals.trouble(exit::ENVIRONMENT, text);
            judgement = self.write(totals);
            // With what went wrong; that it fails again has been said.
            let _ignored = keep.end(&self.session, totals, judgement.code);
        }
        judgement
    }

    /// What to do when the store has failed.
    fn later(&self, text: &str) -> String {
        let dir = self.reports.dir.display();
        format!(
            "{text}\nall results are in {dir}: `bloodhound merge {dir}` takes them from there, beside the store"
        )
    }

    fn write(&self, totals: &mut Totals) -> Judgement {
        let judge = |totals: &Totals| {
            let judgement = Judgement::of(&Title::all(&self.session.plan.properties), totals);
            let facts = vec![
                ("seeds_run".into(), totals.run().to_string()),
                ("seeds_judged".into(), totals.judged.to_string()),
                ("plan".into(), self.session.plan_digest.clone()),
            ];
            let part = self.args.sharing.part();
            let part = (part != Part::All).then(|| ("part".into(), part.to_string()));
            let silent =
                (!totals.silent.is_empty()).then(|| ("faults_never_injected".into(), totals.silent()));
            let engine =
                totals.live.as_ref().map(|engine| ("live".into(), format!("{engine}; {}", live::NOTE)));
            let facts = facts.into_iter().chain(part).chain(silent).chain(engine).collect();
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
