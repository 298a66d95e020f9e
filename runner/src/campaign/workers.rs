//! The workers of a campaign: each takes the next run (`order`) until there is none left, and the main thread collects (`crew`).
//!
//! What goes wrong in one seed takes nothing from the others. Something unsupported stops that seed alone; after a failure of
//! the host or a bug of ours no further seed is begun, and those that run come to their end.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use bloodhound_config::Selection;
use bloodhound_decisions::{Decisions, Log, Mode};
use bloodhound_explore::Strategy;

use super::crew::{self, Ended, Message, Takes, stopped};
use super::keep::Keep;
use super::order::{Order, Task};
use super::progress::Progress;
use super::record::SeedRecord;
use super::reports::Reports;
use super::totals::{Found, Totals, Unjudged};
use super::watch::{Lane, Watch};
use crate::boots::{self, Boots};
use crate::corpus::{self, Keeping, Reached};
use crate::platform::Chosen;
use crate::regress::ledger::{Ledger, Standing};
use crate::session::{Failure, Outcome, Session, Stopped, Violation, Worker, host_failure};
use crate::shard::claims::Deal;
use crate::shrink::case::settled_outcome;
use crate::{bug, exit, finding};

/// What all workers share.
pub struct Shared {
    pub session: Arc<Session>,
    pub chosen: Chosen,
    pub boots: Arc<Boots>,
    pub watch: Arc<Watch>,
    pub order: Order,
    /// Where the seeds behind it come from.
    pub deal: Deal,
    /// By which rule seeds have faults.
    pub strategy: Strategy,
    /// Boot for every run.
    pub boot_each: bool,
    /// What runs reach is wanted.
    pub features: bool,
    /// How many places of the order were taken.
    pub next: AtomicU64,
    /// What waits until one worker is left.
    pub alone: Mutex<Alone>,
}

/// Runs for which there was no memory beside others. The last worker makes them when the others have ended.
#[derive(Debug, Default)]
pub struct Alone {
    /// Workers that have begun and not ended.
    workers: usize,
    tasks: Vec<Task>,
}

type Sender = mpsc::Sender<Message<Task, Ran>>;

/// A run that has ended.
pub struct Ran {
    pub outcome: Outcome,
    /// What it reached, if that is wanted.
    pub features: Option<BTreeSet<u64>>,
}

impl Shared {
    /// The next run, if one is to be begun.
    fn take(&self) -> Option<Task> {
        loop {
            if self.watch.is_closed() {
                return None;
            }
            let known = self.order.known(self.next.fetch_add(1, Ordering::Relaxed));
            let Some(task) = known else {
                // Whoever waits for a run that was put off here must not be waited for.
                let may_wait = || self.alone().tasks.is_empty();
                let seed = self.deal.next(&|| self.watch.is_closed(), &may_wait)?;
                if self.order.is_known(seed) {
                    continue;
                }
                return Some(Task::Seed(seed));
            };
            return Some(task);
        }
    }

    /// The next run of a worker: one that nobody has begun, or for the last worker one that has waited for that. `None`: the
    /// worker ends.
    fn take_any(&self) -> Option<Task> {
        if let Some(task) = self.take() {
            return Some(task);
        }
        let mut alone = self.alone();
        let task = match alone.workers {
            1 if !self.watch.is_closed() => alone.tasks.pop(),
            _ => None,
        };
        alone.workers -= usize::from(task.is_none());
        task
    }

    fn alone(&self) -> MutexGuard<'_, Alone> {
        // A worker that panicked has ended the process (`bug::install`).
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a worker: until there is no run for it, there is no memory for it beside others, or it has lost a run.
    fn work(&self, sender: &Sender) {
        self.alone().workers += 1;
        let (mut worker, lane) = (None, self.watch.lane());
        while let Some(task) = self.take_any() {
            // Nobody to tell: then nobody waits for results either.
            if sender.send(Message::Begun(task)).is_err() {
                return;
            }
            if self.watch.memory_is_short() {
                self.boots.give_up_others(self.seed(task));
            }
            let begun = Instant::now();
            let ended = match bug::contain(|| self.run_task(&mut worker, task, &lane)) {
                Err(text) => Ended::Lost(Unjudged::Bug(text)),
                Ok(_) if lane.is_short() && self.watch.halted().is_none() => {
                    drop(worker.take());
                    bloodhound_frames::trim();
                    let mut alone = self.alone();
                    if alone.workers > 1 {
                        // Fewer seeds at once from now on: this worker ends.
                        alone.workers -= 1;
                        alone.tasks.push(task);
                        drop(alone);
                        lane.relieved();
                        let _ignored = sender.send(Message::Postponed(task));
                        return;
                    }
                    lane.relieved();
                    Ended::TooLarge
                }
                Ok(Ok(ran)) => Ended::Ran(Box::new(ran)),
                Ok(Err(failure)) => Ended::Lost(crew::lost(failure, &self.watch, &self.chosen)),
            };
            self.watch.took(begun.elapsed());
            let is_lost = matches!(ended, Ended::Lost(_));
            if is_lost {
                self.alone().workers -= 1;
            }
            if sender.send(Message::Ended(task, ended)).is_err() || is_lost {
                return;
            }
        }
    }

    /// The seed of a run.
    fn seed(&self, task: Task) -> u64 {
        match task {
            Task::Seed(seed) => seed,
            Task::Run(number) => number,
            Task::Case(place) => self.order.case(place).log.seed,
        }
    }

    /// Makes a run on the worker of this thread, which is made if there is none.
    fn run_task(&self, worker: &mut Option<Worker>, task: Task, lane: &Lane) -> Result<Ran, Failure> {
        let new = || Worker::new(self.session.clone(), &self.chosen, lane.stop());
        if self.boot_each {
            // The one before goes first: a thread should have one platform.
            drop(worker.take());
        }
        let made = worker.take().map_or_else(new, Ok)?;
        let worker = worker.insert(made);
        let outcome = match task {
            Task::Seed(seed) => {
                if self.boot_each {
                    worker.boot(boots::decisions(boots::boot_of(seed, self.session.plan.boots)))?;
                } else {
                    let booted = self.boots.of(worker, seed)?;
                    worker.restore(&booted);
                }
                worker.run_seed(seed, self.strategy).map_err(host_failure)?
            }
            Task::Case(place) => self.run_case(worker, &self.order.case(place).log)?,
            Task::Run(_) => unreachable!("a search makes its runs itself"),
        };
        let features = self.features.then(|| corpus::features(&outcome));
        Ok(Ran { outcome, features })
    }

    /// Runs a log. The log of its outcome has only what was asked for, so that a replay can follow it strictly.
    fn run_case(&self, worker: &mut Worker, log: &Log) -> Result<Outcome, Failure> {
        if !self.boot_each && self.boots.has(log) {
            let booted = self.boots.numbered(worker, boots::number(log))?;
            worker.restore(&booted);
        } else {
            let boot = Log { counted: Vec::new(), ..log.clone() };
            worker.boot(Decisions::new(boot, Mode::Lenient))?;
        }
        let replaces = !log.overrides.is_empty();
        if replaces {
            worker.listen_to_choices();
        }
        let outcome = worker.run_log(log.clone(), Mode::Lenient).map_err(host_failure)?;
        Ok(if replaces { settled_outcome(outcome, worker.take_choices()) } else { outcome })
    }
}

/// Runs the seeds on so many workers until all are done or something ends it.
pub fn run(shared: Shared, jobs: usize, collector: &mut Collector<'_>) -> Result<(), Failure> {
    let shared = Arc::new(shared);
    crew::run(jobs, collector, move |sender: &Sender| shared.work(sender))
}

/// A finding as others are told of it: what earlier campaigns in this directory have seen is no part of what the run says.
fn lasting(found: &Found) -> Found {
    let standing = match &found.standing {
        Standing::Seen => Standing::New,
        standing => standing.clone(),
    };
    Found { standing, ..found.clone() }
}

/// Takes what workers tell: results into the totals, findings onto the disk.
pub struct Collector<'a> {
    pub session: &'a Session,
    pub compose: Selection,
    /// Findings take their files along.
    pub bundle: bool,
    pub fail_fast: bool,
    pub reports: &'a Reports,
    /// What is known of failures.
    pub ledger: &'a Ledger,
    pub watch: &'a Watch,
    pub progress: Progress,
    pub totals: &'a mut Totals,
    pub order: &'a Order,
    /// What is left for machines.
    pub keep: Option<&'a Mutex<Keep>>,
    /// The corpus, if there is one.
    pub keeping: Option<&'a mut Keeping>,
    /// Runs had to wait for want of memory.
    pub postponed: bool,
}

impl Takes for Collector<'_> {
    type Name = Task;
    type Ran = Ran;

    fn watch(&self) -> &Watch {
        self.watch
    }

    fn ended(&mut self, task: Task, ended: Ended<Ran>) {
        let (why, closes) = match ended {
            Ended::Ran(ran) => return self.ran(task, *ran),
            Ended::Lost(why) => (why, true),
            Ended::TooLarge => (Unjudged::Undecided(self.watch.budget().text()), false),
        };
        self.lost(task, why.clone());
        self.record_lost(task, why);
        if closes {
            self.watch.close();
        }
    }

    fn postponed(&mut self, task: Task) {
        self.waits(&self.order.name(task));
    }

    fn failed(&mut self, failure: Failure) {
        self.progress.say(&failure.text);
        self.totals.trouble(failure.code, failure.text);
        self.watch.close();
    }

    fn show(&mut self) {
        self.shows("");
    }

    fn over(&mut self, left: BTreeSet<Task>) {
        for task in left {
            self.unjudged(task, stopped(self.watch));
            self.record_lost(task, stopped(self.watch));
        }
        self.progress.end();
    }
}

impl Collector<'_> {
    /// Shows how far all is.
    pub fn shows(&mut self, more: &str) {
        self.progress.show(self.totals.run() + self.totals.cases(), self.totals.findings.len(), more);
    }

    /// A run waits for memory; it is said once.
    pub fn waits(&mut self, what: &str) {
        if !self.postponed {
            self.postponed = true;
            let noun = self.totals.noun;
            self.progress.say(&format!(
                "{what} waits: there is no memory for it beside others; fewer {noun}s run at once from now on"
            ));
        }
    }

    /// A run without a verdict; each reason is said once.
    pub fn lost(&mut self, task: Task, why: Unjudged) {
        if !self.totals.has_reason(&why) && why != Unjudged::Interrupted {
            self.progress.say(&format!("{} is not judged: {}", self.order.name(task), why.text()));
        }
        self.unjudged(task, why);
        self.reached(task, None);
    }

    fn unjudged(&mut self, task: Task, why: Unjudged) {
        match task {
            Task::Seed(number) | Task::Run(number) => {
                self.totals.unjudged.insert(number, why);
            }
            Task::Case(_) => self.totals.unjudged_cases.push((self.order.name(task), why)),
        }
    }

    /// What a run reached, for the corpus.
    fn reached(&mut self, task: Task, reached: Option<Reached>) {
        if let Some(keeping) = &mut self.keeping {
            keeping.ended(task, reached);
        }
    }

    /// Takes the outcome of a run.
    pub fn ran(&mut self, task: Task, ran: Ran) {
        let Ran { outcome, features } = ran;
        if let Some(measuring) = &self.session.measuring {
            measuring.ran(&outcome);
        }
        match &outcome.stopped {
            Some(Stopped::Interrupted) => {
                self.record_lost(task, stopped(self.watch));
                return self.lost(task, stopped(self.watch));
            }
            Some(Stopped::Undecided(why)) => {
                let why = Unjudged::Undecided(why.clone());
                self.record_lost(task, why.clone());
                return self.lost(task, why);
            }
            Some(Stopped::Unsupported(what)) => {
                self.lost(task, Unjudged::Unsupported(what.clone()));
            }
            None => {}
        }
        let mut record = SeedRecord::of(&outcome);
        match task {
            Task::Seed(_) | Task::Run(_) => {
                self.totals.share.add(outcome.share);
                self.totals.add_record(&record);
                self.totals.ended(outcome.number(), &outcome.violations);
            }
            Task::Case(_) => self.totals.add_case(&record, outcome.share),
        }
        let before = self.totals.findings.len();
        let told: Vec<String> =
            outcome.violations.iter().filter_map(|violation| self.found(task, &outcome, violation)).collect();
        let features = features.filter(|_| outcome.stopped.is_none());
        if outcome.stopped.is_none() {
            let reached = features.clone().map(|features| Reached::of(&outcome, features));
            self.reached(task, reached);
        }
        if let Task::Seed(_) | Task::Run(_) = task {
            record.findings = self.totals.findings[before..].iter().map(lasting).collect();
            self.record(task, &record, features.as_ref());
        }
        told.iter().for_each(|text| self.progress.say(text));
    }

    /// The same of one without an outcome.
    pub fn record_lost(&mut self, task: Task, why: Unjudged) {
        if let Task::Seed(number) | Task::Run(number) = task {
            self.record(task, &SeedRecord::lost(number, why), None);
        }
    }

    /// Writes down what came of a seed or a run of a search, once its findings are on the disk.
    fn record(&mut self, task: Task, record: &SeedRecord, reached: Option<&BTreeSet<u64>>) {
        if let Task::Run(_) = task {
            return self.write_down(record, reached);
        }
        let Some(keep) = self.keep else { return };
        // Who panicked in there had added a whole line or none.
        let kept = keep.lock().unwrap_or_else(PoisonError::into_inner).record(record);
        if let Err(text) = kept {
            self.progress.say(&text);
            self.totals.trouble(exit::ENVIRONMENT, text);
            self.watch.close();
        }
    }

    /// Adds what a finding needs elsewhere, if this is wanted.
    fn bundle(&self, dir: &Path) -> std::io::Result<()> {
        if self.bundle { crate::bundle::add(dir, self.session, &crate::redact::holds) } else { Ok(()) }
    }

    /// Writes the files of a finding. Returns what is to be announced, once what came of the run is written down too.
    fn found(&mut self, task: Task, outcome: &Outcome, violation: &Violation) -> Option<String> {
        let run = if let Task::Case(_) = task { self.order.name(task) } else { outcome.name() };
        let property = &violation.property;
        let standing = self.ledger.standing(violation);
        let saved = finding::save(&self.reports.dir, self.session, &self.compose, outcome, violation)
            .and_then(|saved| self.bundle(&saved.dir).map(|()| saved));
        let (kept, told) = match saved {
            Ok(saved) => {
                let beside = saved.beside.map_or_else(String::new, |other| {
                    format!(" ({} is the finding of another run)", other.display())
                });
                let told = format!(
                    "{run}: {property} violated at {}{}: {}{beside}",
                    violation.at,
                    standing.text(),
                    saved.dir.display()
                );
                (Ok(saved.dir), Some(told))
            }
            Err(error) => {
                let text = format!("the finding of {run} ({property}) cannot be written: {error}");
                self.progress.say(&text);
                self.totals.trouble(exit::ENVIRONMENT, text);
                self.watch.close();
                (Err(error.to_string()), None)
            }
        };
        let found = Found { standing, ..Found::new(outcome, violation, kept) };
        let known = found.is_known();
        if let (Task::Case(_), false) = (task, known) {
            self.totals.failed_cases.push((run, format!("violates {property}")));
        }
        self.totals.findings.push(found);
        if self.fail_fast && !known {
            self.totals.failed_fast = true;
            self.watch.close();
        }
        told
    }
}
