//! The threads of a campaign: each takes the next run (`order`) until there is none left, and the main thread collects.
//!
//! What goes wrong in one seed takes nothing from the others. Something unsupported stops that seed alone; after a failure of
//! the host or a bug of ours no further seed is begun, and those that run come to their end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use bloodhound_config::Selection;
use bloodhound_decisions::{Decisions, Log, Mode};
use bloodhound_explore::Strategy;

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
use crate::{bug, cpus, exit, finding};

/// How often the main thread looks whether all has to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Time for a seed to stop when it is asked to; after that it is left behind.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// What workers tell.
enum Message {
    /// A run was begun.
    Begun(Task),
    /// It ended.
    Ran(Task, Box<Ran>),
    /// It did not.
    Lost(Task, Unjudged),
    /// It did not yet: there was no memory for it beside others.
    Postponed(Task),
    /// It did not: there is no memory for it.
    TooLarge(Task),
    /// A worker failed before its first seed.
    Failed(Failure),
}

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

    /// The life of a worker.
    fn work(&self, sender: &mpsc::Sender<Message>) {
        let current = Cell::new(None);
        let ended = bug::contain(|| self.run(sender, &current));
        let message = match (ended, current.get()) {
            (Ok(Ok(())), _) => return,
            (Ok(Err(failure)), None) => Message::Failed(failure),
            (Ok(Err(failure)), Some(task)) => Message::Lost(task, self.lost(failure)),
            (Err(text), None) => Message::Failed(Failure { code: exit::BUG, text }),
            (Err(text), Some(task)) => Message::Lost(task, Unjudged::Bug(text)),
        };
        self.alone().workers -= 1;
        // Whoever collects may have gone on without this worker.
        let _ignored = sender.send(message);
    }

    fn run(&self, sender: &mpsc::Sender<Message>, current: &Cell<Option<Task>>) -> Result<(), Failure> {
        self.alone().workers += 1;
        let (mut worker, lane) = (None, self.watch.lane());
        while let Some(task) = self.take_any() {
            current.set(Some(task));
            // Nobody to tell: then nobody waits for results either.
            if sender.send(Message::Begun(task)).is_err() {
                break;
            }
            if self.watch.memory_is_short() {
                self.boots.give_up_others(self.seed(task));
            }
            let begun = Instant::now();
            let ran = self.run_task(&mut worker, task, &lane);
            let message = match ran {
                _ if lane.is_short() && self.watch.halted().is_none() => {
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
                        return Ok(());
                    }
                    lane.relieved();
                    Message::TooLarge(task)
                }
                ran => Message::Ran(task, Box::new(ran?)),
            };
            self.watch.took(begun.elapsed());
            if sender.send(message).is_err() {
                break;
            }
            current.set(None);
        }
        Ok(())
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

    /// Why a seed has no outcome.
    fn lost(&self, failure: Failure) -> Unjudged {
        match failure.code {
            exit::INTERRUPTED => stopped(&self.watch),
            exit::UNSUPPORTED => Unjudged::Unsupported(failure.text),
            _ => Unjudged::Host(format!("on {}: {}", self.chosen.name, failure.text)),
        }
    }
}

/// Why a seed was stopped from outside.
pub fn stopped(watch: &Watch) -> Unjudged {
    match watch.halted() {
        Some(true) => Unjudged::TimedOut,
        _ => Unjudged::Interrupted,
    }
}

/// Runs the seeds on so many workers until all are done or something ends it.
pub fn run(shared: &Arc<Shared>, jobs: usize, collector: &mut Collector<'_>) -> Result<(), Failure> {
    let (sender, receiver) = mpsc::channel();
    let threads = cpus::spawn(jobs, || {
        let (shared, sender) = (shared.clone(), sender.clone());
        move || shared.work(&sender)
    })?;
    drop(sender);
    if collector.collect(&receiver) {
        for thread in threads {
            // A panic of its own was contained.
            let _ignored = thread.join();
        }
    }
    Ok(())
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
    /// Runs that were begun and are under way.
    pub running: BTreeSet<Task>,
    /// Runs had to wait for want of memory.
    pub postponed: bool,
}

impl Collector<'_> {
    /// Until all workers have ended: true; or have not although they should: false.
    fn collect(&mut self, receiver: &mpsc::Receiver<Message>) -> bool {
        let mut halted: Option<Instant> = None;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(message) => self.take(message),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.progress.end();
                    return true;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.watch.halted().is_some() => {
                    if halted.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        self.leave();
                        return false;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Goes on without the seeds that do not stop.
    fn leave(&mut self) {
        for task in std::mem::take(&mut self.running) {
            self.unjudged(task, stopped(self.watch));
            self.record_lost(task, stopped(self.watch));
        }
        self.progress.end();
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Begun(task) => {
                self.running.insert(task);
            }
            Message::Ran(task, ran) => {
                self.running.remove(&task);
                self.ran(task, *ran);
            }
            Message::Lost(task, why) => {
                self.running.remove(&task);
                self.lost(task, why.clone());
                self.record_lost(task, why);
                self.watch.close();
            }
            Message::Postponed(task) => {
                self.running.remove(&task);
                self.postponed(&self.order.name(task));
            }
            Message::TooLarge(task) => {
                self.running.remove(&task);
                let why = Unjudged::Undecided(self.watch.budget().text());
                self.lost(task, why.clone());
                self.record_lost(task, why);
            }
            Message::Failed(failure) => self.failed(failure),
        }
        self.show("");
    }

    /// Shows how far all is.
    pub fn show(&mut self, more: &str) {
        self.progress.show(self.totals.run() + self.totals.cases(), self.totals.findings.len(), more);
    }

    /// A run waits for memory; it is said once.
    pub fn postponed(&mut self, what: &str) {
        if !self.postponed {
            self.postponed = true;
            let noun = self.totals.noun;
            self.progress.say(&format!(
                "{what} waits: there is no memory for it beside others; fewer {noun}s run at once from now on"
            ));
        }
    }

    /// A worker failed.
    pub fn failed(&mut self, failure: Failure) {
        self.progress.say(&failure.text);
        self.totals.trouble(failure.code, failure.text);
        self.watch.close();
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
        self.totals.findings.push(found);
        if self.fail_fast && !known {
            self.totals.failed_fast = true;
            self.watch.close();
        }
        told
    }
}
