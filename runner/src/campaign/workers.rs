//! The threads of a campaign: each takes the next seed until there is none left, and the main thread collects.
//!
//! What goes wrong in one seed takes nothing from the others. Something unsupported stops that seed alone; after a failure of
//! the host or a bug of ours no further seed is begun, and those that run come to their end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bloodhound_config::Selection;

use super::Seeds;
use super::progress::Progress;
use super::reports::Reports;
use super::totals::{Found, Totals, Unjudged};
use super::watch::Watch;
use crate::boots::{self, Boots};
use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Stopped, Violation, Worker, host_failure};
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
    pub seeds: Seeds,
    /// Boot for every seed.
    pub boot_each: bool,
    /// How many seeds were taken.
    pub next: AtomicU64,
}

/// What workers tell.
enum Message {
    /// A seed was begun.
    Begun(u64),
    /// It ran.
    Ran(Box<Outcome>),
    /// It did not.
    Lost(u64, Unjudged),
    /// A worker failed before its first seed.
    Failed(Failure),
}

impl Shared {
    /// The next seed, if one is to be begun.
    fn take(&self) -> Option<u64> {
        if self.watch.is_closed() {
            return None;
        }
        self.seeds.number(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn worker(&self) -> Result<Worker, Failure> {
        Worker::new(self.session.clone(), &self.chosen, self.watch.halt())
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
        // Whoever collects may have gone on without this worker.
        let _ignored = sender.send(message);
    }

    fn run(&self, sender: &mpsc::Sender<Message>, current: &Cell<Option<u64>>) -> Result<(), Failure> {
        let mut worker = None;
        while let Some(seed) = self.take() {
            current.set(Some(seed));
            // Nobody to tell: then nobody waits for results either.
            if sender.send(Message::Begun(seed)).is_err() {
                return Ok(());
            }
            let begun = Instant::now();
            if self.boot_each {
                // The one before goes first: a thread should have one platform.
                drop(worker.take());
                let boot = boots::boot_of(seed, self.session.plan.boots);
                worker.insert(self.worker()?).boot(boots::decisions(boot))?;
            } else {
                if worker.is_none() {
                    worker = Some(self.worker()?);
                }
                if let Some(worker) = &mut worker {
                    let booted = self.boots.of(worker, seed)?;
                    worker.restore(&booted);
                }
            }
            let Some(worker) = &mut worker else { return Ok(()) };
            let outcome = worker.run(seed).map_err(host_failure)?;
            self.watch.took(begun.elapsed());
            if sender.send(Message::Ran(Box::new(outcome))).is_err() {
                return Ok(());
            }
            current.set(None);
        }
        Ok(())
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
    /// Seeds that were begun and are under way.
    pub running: BTreeSet<u64>,
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
                self.lost(seed, why);
                self.watch.close();
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
        match &outcome.stopped {
            Some(Stopped::Interrupted) => return self.lost(outcome.seed, stopped(self.watch)),
            Some(Stopped::Undecided(why)) => {
                return self.lost(outcome.seed, Unjudged::Undecided(why.clone()));
            }
            Some(Stopped::Unsupported(what)) => {
                self.lost(outcome.seed, Unjudged::Unsupported(what.clone()));
            }
            None => {}
        }
        self.totals.add(outcome);
        for violation in &outcome.violations {
            self.found(outcome, violation);
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
