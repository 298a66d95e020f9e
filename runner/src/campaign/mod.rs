//! `bloodhound test`: many seeds on all cores, verdicts over them, reports.
//!
//! With `--live` the seeds are run by [`crate::live`]; everything around them is the same.
//!
//! Modules: `accounts` (what became of the faults), `args` (the command line), `begin` (what there is from campaigns before, and for those after), `resumed` (runs that a process before has made), `seeds` (their numbers), `order` (which runs come first), `small` (one finding of each group is shrunk), `reports` (where it writes), `record` and `keep` (what it leaves for machines), `crew` (threads and what they tell), `workers` (seeds on them), `watch` (when it has to stop), `totals` (what all seeds
//! gave together), `verdict` (the one rule from the totals to each case and to the exit code), `progress` (what is said
//! meanwhile), `print` (the answer for people and for machines).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::boots::Boots;
use crate::corpus::Keeping;
use crate::corpus::shared::Shared;
use crate::coverage::{self, Measuring};
use crate::explore::{self, Hunt, Journal};
use crate::output::Format;
use crate::platform::{self, Chosen};
use crate::regress::ledger::{self, Ledger};
use crate::run::fail;
use crate::session::{Failure, Session, Worker};
use crate::shard::claims::Deal;
use crate::shard::share::Share;
use crate::shard::{Part, Title};
use crate::{bug, cpus, exit, finding, junit, live, output, regress};

pub mod accounts;
mod args;
mod begin;
pub mod crew;
mod keep;
pub mod order;
pub mod print;
mod progress;
pub mod record;
pub mod reports;
mod resumed;
pub mod seeds;
mod small;
pub mod totals;
pub mod verdict;
pub mod watch;
pub mod workers;

pub use args::{Args, Common, explore};
use args::{NO_COVERAGE, cannot_be_shared, least, without_meaning};
pub use keep::forget;
use keep::{Keep, thresholds};
use order::Order;
use progress::Progress;
use reports::Reports;
use seeds::Seeds;
use totals::Totals;
use verdict::Judgement;
use watch::Watch;

/// `bloodhound test`.
pub fn test(args: &Args) -> u8 {
    // From here on a signal ends with a report.
    let _flag = crate::interrupt::flag();
    let run = || {
        without_meaning(args)?;
        let source = &args.common.source;
        let mut session = Session::load(&source.config, &source.selection()?, &source.images)
            .inspect_err(|failure| refused(args, failure))?;
        measure(args, &mut session).inspect_err(|failure| refused(args, failure))?;
        if let Some(note) = session.note() {
            output::eprint(&format!("bloodhound: {note}\n"));
        }
        campaign(args, Arc::new(session), || platform::choose(args.common.platform.wanted))
    };
    run().unwrap_or_else(|f| fail(&f))
}

/// Measures coverage if anybody asks for it.
fn measure(args: &Args, session: &mut Session) -> Result<(), Failure> {
    if args.live {
        if session.coverage.wanted() {
            print::say(&format!("the section `coverage` has no effect with --live: {NO_COVERAGE}"));
        }
        return Ok(());
    }
    if args.common.coverage || args.coverage_threshold.is_some() || session.coverage.wanted() {
        let (settings, scenario) = (session.coverage.clone(), session.scenario.clone());
        session.measuring = Some(Measuring::new(settings, scenario, args.first_seed)?);
    }
    Ok(())
}

/// Puts the reason why nothing is run into the reports that the command line names: those of an earlier campaign would speak
/// for this one.
fn refused(args: &Args, failure: &Failure) {
    let files = args.common.out.iter().map(|dir| dir.join("junit.xml")).chain(args.common.junit.clone());
    reports::refused(files, refusal(args, failure));
}

/// The report of a campaign that is not begun.
fn refusal(args: &Args, failure: &Failure) -> Result<String, String> {
    let config = args.common.source.config.display().to_string();
    reports::refusal(&config, args.seeds.unwrap_or_default(), failure)
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
    let guided = !args.live && args.strategy(&session).is_guided();
    cannot_be_shared(args, guided).inspect_err(|failure| refused(args, failure))?;
    let out = args.common.out.clone().unwrap_or_else(|| session.plan.out.clone());
    let (named, bucket) = begin::corpus(args, &out).inspect_err(|failure| refused(args, failure))?;
    let (journal, opened) = begin::journal(args, &session, (guided, named.as_deref()))
        .inspect_err(|failure| refused(args, failure))?
        .unzip();
    let asked = args.seeds.or(journal.as_ref().and_then(Journal::budget));
    let seeds = Seeds::new(args.first_seed, asked.unwrap_or(usual), args.sharing.shard)
        .inspect_err(|failure| refused(args, failure))?;
    let least = least(args, &seeds).inspect_err(|failure| refused(args, failure))?;
    // A search begins seeds itself, so each entry of its corpus is a case.
    let own = Seeds { all: if guided { 0 } else { seeds.all }, ..seeds };
    let mut keeping = begin::keeping(args, &session, (&out, named.as_deref(), opened), own)
        .inspect_err(|failure| refused(args, failure))?;
    let reports = Reports::prepare(&out, args.common.junit.as_deref(), &session.plan.config)?;
    let left_out = args.common.no_regressions || args.live;
    let cases = ledger::cases_of(&session, left_out).inspect_err(|failure| {
        // The failure that is told is the one that is there already.
        let _ignored = refusal(args, failure).and_then(|xml| reports.write(&xml));
    })?;
    if let Some(text) = reports.earlier() {
        print::say(&text);
    }
    let mut totals = Totals::new(session.plan.properties.len(), seeds.count(), least);
    totals.noun = if guided { "run" } else { "seed" };
    let configured = session.project.config.faults.coverage_threshold;
    totals.least_coverage = args.fault_coverage_threshold.or(configured);
    totals.is_part = args.sharing.part() != Part::All;
    // Results that can be joined are those of seeds alone. A part tells of its other cases how they ended.
    let joinable = !args.live && !guided && (keeping.is_none() || totals.is_part);
    let entries = keeping.as_ref().map(|keeping| keeping.cases().len() as u64);
    let settings = args.settings(&session, &seeds);
    let begun = begin::search(journal, keeping.as_mut(), &settings);
    let keep =
        begun.and_then(|()| begin::keep(args, &session, &seeds, &totals, (&reports.dir, joinable, entries)));
    let keep = match keep {
        Ok(keep) => keep,
        Err(failure) => {
            drop(reports);
            refused(args, &failure);
            return Err(failure);
        }
    };
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let watch = Arc::new(Watch::start(crate::interrupt::flag(), deadline, args.common.platform.budget()));
    let ledger = match args.live {
        // Its seeds say nothing of those of the simulation.
        true => Ledger::default(),
        false => Ledger::open(cases, &session, (&args.common.source, args.strategy(&session)), &out),
    };
    let keep = keep.map(Mutex::new);
    let mut campaign = Campaign { args, session, seeds, reports, ledger, watch, started, keep };
    let chosen = if args.live {
        campaign.run_live(&mut totals)
    } else {
        campaign.run(choose, &mut keeping, &mut totals)
    };
    if let Some(keeping) = keeping {
        keep_corpus(keeping, bucket.as_ref(), &mut totals);
    }
    Ok(campaign.finish(totals, chosen.as_ref()))
}

/// Brings the corpus to its end. What could not be saved is a trouble of the campaign.
fn keep_corpus(keeping: Keeping, bucket: Option<&Shared>, totals: &mut Totals) {
    let saves = keeping.saves();
    let (mut summary, failed) = keeping.finish();
    // What is on the disk is handed on also if there was no room for more.
    let handed_on = bucket.filter(|_| saves).map(Shared::hand_on).transpose();
    let failed = [failed, handed_on.map(|handed_on| summary.handed_on = handed_on).err()];
    totals.corpus = Some(summary);
    for failure in failed.into_iter().flatten() {
        print::say(&failure.text);
        totals.trouble(failure.code, failure.text);
    }
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
    keep: Option<Mutex<Keep>>,
}

impl Campaign<'_> {
    fn keep(&self) -> Option<MutexGuard<'_, Keep>> {
        // Who panicked in there had added a whole line or none.
        self.keep.as_ref().map(|keep| keep.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the seeds come from.
    fn deal(&self, seeds: Seeds) -> Deal {
        let keep = self.keep();
        let share = keep.as_ref().and_then(|keep| keep.share.as_ref());
        match share.and_then(|share| share.claims.clone()) {
            Some(claims) => Deal::Claims(claims),
            None => {
                let stopped = share.and_then(Share::stopped);
                Deal::Own { seeds, next: AtomicU64::new(0), stopped }
            }
        }
    }

    /// Boots and runs all seeds. Whatever goes wrong is in the totals; the platform is returned if there is one.
    fn run(
        &self,
        choose: impl FnOnce() -> Result<Chosen, Failure>,
        keeping: &mut Option<Keeping>,
        totals: &mut Totals,
    ) -> Option<Chosen> {
        let mut chosen = None;
        let ran = bug::contain(|| {
            let platform = chosen.insert(choose()?);
            print::say(&format!("platform {}", platform.line()));
            let boots = self.boot(platform)?;
            self.keep().map_or(Ok(()), |mut keep| keep.booted(&self.session, totals))?;
            self.watch.seeding();
            self.run_cases(*platform, &boots, totals)?;
            self.run_seeds(*platform, boots, keeping.as_mut(), totals)
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
        // A worker that had no seed yet did not get any for that reason.
        let ended_early = totals.run() < totals.wanted || totals.wanted == 0;
        totals.timed_out = self.watch.timed_out() && ended_early;
        totals.interrupted = self.watch.signalled() && ended_early;
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
        } else if totals.wanted == 0 {
            let text = if stopped {
                "a finding of another process has ended the campaign before this worker had a seed"
            } else if self.watch.timed_out() {
                "--timeout was over before this worker had a seed"
            } else if self.watch.is_closed() {
                "this worker has ended before it had a seed"
            } else {
                "no seeds were left for this worker: others have them; `bloodhound merge` gives the verdict"
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
            match self.args.strategy(&self.session) {
                s if s.is_guided() => {
                    format!("{} runs, {}, from seed {} on", self.seeds.count(), s.name(), self.seeds.first)
                }
                _ => self.seeds.to_string(),
            }
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
        let (out, selection) = (&self.reports.dir, self.args.common.source.selection()?);
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

    /// Runs what is in the corpus, and then the seeds, or a search.
    fn run_seeds(
        &self,
        chosen: Chosen,
        boots: Boots,
        keeping: Option<&mut Keeping>,
        totals: &mut Totals,
    ) -> Result<(), Failure> {
        let strategy = self.args.strategy(&self.session);
        let (cases, first) = keeping.as_ref().map(|keeping| keeping.order()).unwrap_or_default();
        // A search begins seeds itself.
        let seeds = Seeds { all: if strategy.is_guided() { 0 } else { self.seeds.all }, ..self.seeds };
        let order = Order::new(cases, first, seeds);
        let all = order.len().saturating_add(self.seeds.count() - seeds.count());
        let jobs = self.jobs(all);
        let features = keeping.is_some();
        let mut collector = workers::Collector {
            session: &self.session,
            compose: self.args.common.source.selection()?,
            bundle: self.args.common.bundle,
            fail_fast: self.args.fail_fast,
            reports: &self.reports,
            ledger: &self.ledger,
            watch: &self.watch,
            progress: Progress::new(all, totals.noun),
            totals,
            order: &order,
            keeping,
            keep: self.keep.as_ref(),
            postponed: false,
        };
        let (session, watch) = (self.session.clone(), self.watch.clone());
        let boots = Arc::new(boots);
        let shared = workers::Shared {
            session: session.clone(),
            chosen,
            boots: boots.clone(),
            watch: watch.clone(),
            order: order.clone(),
            strategy,
            boot_each: self.args.boot_each,
            features,
            deal: self.deal(seeds),
            next: AtomicU64::new(0),
            alone: Mutex::default(),
        };
        if order.len() > 0 {
            workers::run(shared, jobs, &mut collector)?;
        }
        if strategy.is_guided() {
            let settings = self.args.settings(&session, &self.seeds);
            let given = order.cases().iter().map(|case| case.log.clone()).collect();
            let hunt = Hunt { session, chosen, boots, watch, settings, given };
            return explore::run_all(hunt, jobs, &mut collector);
        }
        Ok(())
    }

    /// Writes the reports and the answer. If either cannot be written, that is a trouble of the campaign as well.
    fn finish(&mut self, mut totals: Totals, chosen: Option<&Chosen>) -> u8 {
        totals.sort();
        // The runs of a search are no independent sample: nothing follows from how often they fail.
        if totals.search.is_none() {
            self.ledger.finish(&self.session.plan.properties, &mut totals);
        }
        let (asked, mut planning) = (&self.session.scenario.faults, self.session.scenario.planning.clone());
        match self.args.live {
            true => {
                live::faults::possible_schedule(&mut planning.schedule);
                totals.measure_faults(&live::faults::possible(asked).0, &planning);
            }
            false => totals.measure_faults(asked, &planning),
        }
        self.cover(&mut totals);
        let took = self.started.elapsed();
        let judgement = self.write(&mut totals);
        let mut judgement = self.hand_on(&mut totals, judgement);
        if self.shrink(&mut totals, chosen) {
            judgement = self.write(&mut totals);
        }
        let junit = self.reports.dir.join("junit.xml");
        let answer = match self.args.common.format {
            Format::Human => print::human(&judgement, &totals, &junit, took),
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

    /// Shrinks findings, when all else is written. True if there is something to add to the reports.
    fn shrink(&self, totals: &mut Totals, chosen: Option<&Chosen>) -> bool {
        let Some(chosen) = chosen.filter(|_| !self.args.common.no_shrink && !self.watch.signalled()) else {
            return false;
        };
        let shrinking = small::Shrinking {
            session: &self.session,
            chosen: *chosen,
            signal: crate::interrupt::flag(),
            memory: self.args.common.platform.budget(),
            time: self.args.shrink_budget.map_or(small::BUDGET, Duration::from_nanos),
        };
        totals.groups = shrinking.all(totals);
        !totals.groups.is_empty()
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
            totals.is_unshared = keep.share.is_some();
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
            let mut suite = judgement.suite(&self.session.plan.config.display().to_string(), facts);
            for (case, item) in suite.cases.iter_mut().zip(&judgement.items) {
                if let junit::Status::Fail { text, .. } = &mut case.status {
                    let groups = totals.groups_of(&item.findings);
                    groups
                        .iter()
                        .flat_map(|group| group.lines())
                        .for_each(|line| *text += &format!("\n{line}"));
                }
            }
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
