//! The threads of a campaign: each takes the next seed until there is none left, and the main thread collects.
//!
//! What goes wrong in one seed takes nothing from the others. Something unsupported stops that seed alone; after a failure of
//! the host or a bug of ours no further seed is begun, and those that run come to their end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use bloodhound_config::Selection;

use super::keep::Keep;
use super::progress::Progress;
use super::record::SeedRecord;
use super::reports::Reports;
use super::totals::{Found, Totals, Unjudged};
use super::watch::{Lane, Watch};
use crate::boots::{self, Boots};
use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Stopped, Violation, Worker, host_failure};
use crate::shard::claims::Deal;
use crate::{bug, cpus, exit, finding};

/// How often the main thread looks whether all has to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Time for a seed to stop when it is asked to; after that it is left behind.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all workers share.
pub struct Shared {
    pub session: Arc<Session>,
    pub chosen: Chosen,
    pub boots: Boots,
    pub watch: Arc<Watch>,
    /// Boot for every seed.
    pub boot_each: bool,
    /// Where the seeds come from.
    pub deal: Deal,
    /// What waits until one worker is left.
    pub alone: Mutex<Alone>,
}

/// Seeds for which there was no memory beside others. The last worker runs them when the others have ended.
#[derive(Debug, Default)]
pub struct Alone {
    /// Workers that have begun and not ended.
    workers: usize,
    seeds: Vec<u64>,
}

/// What workers tell.
enum Message {
    /// A seed was begun.
    Begun(u64),
    /// It ran.
    Ran(Box<Outcome>),
    /// It did not.
    Lost(u64, Unjudged),
    /// It did not yet: there was no memory for it beside others.
    Postponed(u64),
    /// It did not: there is no memory for it.
    TooLarge(u64),
    /// A worker failed before its first seed.
    Failed(Failure),
}

impl Shared {
    /// The next seed, if one is to be begun.
    fn take(&self) -> Option<u64> {
        if self.watch.is_closed() {
            return None;
        }
        self.deal.next(&|| self.watch.is_closed())
    }

    /// The next seed of a worker: one that nobody has begun, or for the last worker one that has waited for that. `None`: the
    /// worker ends.
    fn take_any(&self) -> Option<u64> {
        if let Some(seed) = self.take() {
            return Some(seed);
        }
        let mut alone = self.alone();
        let seed = match alone.workers {
            1 if !self.watch.is_closed() => alone.seeds.pop(),
            _ => None,
        };
        alone.workers -= usize::from(seed.is_none());
        seed
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
            (Ok(Err(failure)), Some(seed)) => Message::Lost(seed, self.lost(failure)),
            (Err(text), None) => Message::Failed(Failure { code: exit::BUG, text }),
            (Err(text), Some(seed)) => Message::Lost(seed, Unjudged::Bug(text)),
        };
        self.alone().workers -= 1;
        // Whoever collects may have gone on without this worker.
        let _ignored = sender.send(message);
    }

    fn run(&self, sender: &mpsc::Sender<Message>, current: &Cell<Option<u64>>) -> Result<(), Failure> {
        self.alone().workers += 1;
        let (mut worker, lane) = (None, self.watch.lane());
        while let Some(seed) = self.take_any() {
            current.set(Some(seed));
            // Nobody to tell: then nobody waits for results either.
            if sender.send(Message::Begun(seed)).is_err() {
                break;
            }
            if self.watch.memory_is_short() {
                self.boots.give_up_others(seed);
            }
            let begun = Instant::now();
            let outcome = self.run_seed(&mut worker, seed, &lane);
            let message = match outcome {
                _ if lane.is_short() && self.watch.halted().is_none() => {
                    drop(worker.take());
                    bloodhound_frames::trim();
                    let mut alone = self.alone();
                    if alone.workers > 1 {
                        // Fewer seeds at once from now on: this worker ends.
                        alone.workers -= 1;
                        alone.seeds.push(seed);
                        drop(alone);
                        lane.relieved();
                        let _ignored = sender.send(Message::Postponed(seed));
                        return Ok(());
                    }
                    lane.relieved();
                    Message::TooLarge(seed)
                }
                outcome => Message::Ran(Box::new(outcome?)),
            };
            self.watch.took(begun.elapsed());
            if sender.send(message).is_err() {
                break;
            }
            current.set(None);
        }
        Ok(())
    }

    /// Runs a seed on the worker of this thread, which is made if there is none.
    fn run_seed(&self, worker: &mut Option<Worker>, seed: u64, lane: &Lane) -> Result<Outcome, Failure> {
        let new = || Worker::new(self.session.clone(), &self.chosen, lane.stop());
        let worker = if self.boot_each {
            // The one before goes first: a thread should have one platform.
            drop(worker.take());
            let boot = boots::boot_of(seed, self.session.plan.boots);
            let worker = worker.insert(new()?);
            worker.boot(boots::decisions(boot))?;
            worker
        } else {
            let made = worker.take().map_or_else(new, Ok)?;
            let worker = worker.insert(made);
            let booted = self.boots.of(worker, seed)?;
            worker.restore(&booted);
            worker
        };
        worker.run(seed).map_err(host_failure)
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
fn stopped(watch: &Watch) -> Unjudged {
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

/// Takes what workers tell: results into the totals, findings onto the disk.
pub struct Collector<'a> {
    pub session: &'a Session,
    pub compose: Selection,
    /// Findings take their files along.
    pub bundle: bool,
    pub fail_fast: bool,
    pub reports: &'a Reports,
    pub watch: &'a Watch,
    pub progress: Progress,
    pub totals: &'a mut Totals,
    /// What is left for machines.
    pub keep: Option<&'a Mutex<Keep>>,
    /// Seeds that were begun and are under way.
    pub running: BTreeSet<u64>,
    /// Seeds had to wait for want of memory.
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
        for seed in std::mem::take(&mut self.running) {
            self.totals.unjudged.insert(seed, stopped(self.watch));
            self.record(SeedRecord::lost(seed, stopped(self.watch)));
        }
        self.progress.end();
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Begun(seed) => {
                self.running.insert(seed);
            }
            Message::Ran(outcome) => {
                self.running.remove(&outcome.seed);
                self.ran(&outcome);
            }
            Message::Lost(seed, why) => {
                self.running.remove(&seed);
                self.lost(seed, why.clone());
                self.record(SeedRecord::lost(seed, why));
                self.watch.close();
            }
            Message::Postponed(seed) => {
                self.running.remove(&seed);
                if !self.postponed {
                    self.postponed = true;
                    self.progress.say(&format!(
                        "seed {seed} waits: there is no memory for it beside others; fewer seeds run at once from now on"
                    ));
                }
            }
            Message::TooLarge(seed) => {
                self.running.remove(&seed);
                let why = Unjudged::Undecided(self.watch.budget().text());
                self.lost(seed, why.clone());
                self.record(SeedRecord::lost(seed, why));
            }
            Message::Failed(failure) => {
                self.progress.say(&failure.text);
                self.totals.trouble(failure.code, failure.text);
                self.watch.close();
            }
        }
        self.progress.show(self.totals.run(), self.totals.findings.len());
    }

    /// A seed without a verdict; each reason is said once.
    fn lost(&mut self, seed: u64, why: Unjudged) {
        let known = self.totals.unjudged.values().any(|other| *other == why);
        if !known && why != Unjudged::Interrupted {
            self.progress.say(&format!("seed {seed} is not judged: {}", why.text()));
        }
        self.totals.unjudged.insert(seed, why);
    }

    fn ran(&mut self, outcome: &Outcome) {
        if let Some(measuring) = &self.session.measuring {
            measuring.ran(outcome);
        }
        let mut record = SeedRecord::of(outcome);
        match &outcome.stopped {
            Some(Stopped::Interrupted) => {
                record.unjudged = Some(stopped(self.watch));
                self.lost(outcome.seed, stopped(self.watch));
                return self.record(record);
            }
            Some(Stopped::Undecided(why)) => {
                self.lost(outcome.seed, Unjudged::Undecided(why.clone()));
                return self.record(record);
            }
            Some(Stopped::Unsupported(what)) => {
                self.lost(outcome.seed, Unjudged::Unsupported(what.clone()));
            }
            None => {}
        }
        self.totals.share.add(outcome.share);
        self.totals.add_record(&record);
        let before = self.totals.findings.len();
        for violation in &outcome.violations {
            self.found(outcome, violation);
        }
        record.findings = self.totals.findings[before..].to_vec();
        self.record(record);
    }

    /// Writes down what came of a seed, once its findings are on the disk.
    fn record(&mut self, record: SeedRecord) {
        let Some(keep) = self.keep else { return };
        // Who panicked in there had added a whole line or none.
        let kept = keep.lock().unwrap_or_else(PoisonError::into_inner).record(&record);
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

    /// A finding is announced when its files are there.
    fn found(&mut self, outcome: &Outcome, violation: &Violation) {
        let (seed, property) = (outcome.seed, &violation.property);
        let saved = finding::save(&self.reports.dir, self.session, &self.compose, outcome, violation)
            .and_then(|saved| self.bundle(&saved.dir).map(|()| saved));
        let kept = match saved {
            Ok(saved) => {
                let beside = saved.beside.map_or_else(String::new, |other| {
                    format!(" ({} is the finding of another run)", other.display())
                });
                self.progress.say(&format!(
                    "seed {seed}: {property} violated at {}: {}{beside}",
                    violation.at,
                    saved.dir.display()
                ));
                Ok(saved.dir)
            }
            Err(error) => {
                let text = format!("the finding of seed {seed} ({property}) cannot be written: {error}");
                self.progress.say(&text);
                self.totals.trouble(exit::ENVIRONMENT, text);
                self.watch.close();
                Err(error.to_string())
            }
        };
        self.totals.findings.push(Found::new(outcome, violation, kept));
        if self.fail_fast {
            self.totals.failed_fast = true;
            self.watch.close();
        }
    }
}
