//! The threads of a hunt: each takes the next seed until there is none left; the calling thread puts their outcomes into the order of
//! seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use super::outcome::Verdict;
use super::report::Report;
use super::runner::SharedInput;
use super::{Options, Outcome, Runner, Seeds, Start};
use crate::exec::Single;
use crate::platform::Chosen;
use crate::session::Failure;
use crate::{bug, cpus, exit};

/// What all workers share.
pub struct Shared {
    pub single: Single,
    pub chosen: Chosen,
    pub options: Options,
    pub seeds: Seeds,
    /// Where all seeds begin, once a worker has come there.
    pub start: Mutex<Option<Arc<Start>>>,
    pub input: SharedInput,
    /// How many seeds were taken.
    pub next: AtomicU64,
    /// No seed behind this number (counted from 0) is to be run: it failed, or the program has one schedule only.
    pub last: AtomicU64,
    pub interrupt: Arc<AtomicBool>,
}

/// What workers tell: the number of a seed, from 0, and its outcome.
type Message = Result<(u64, Box<Outcome>), Failure>;

impl Shared {
    /// The next seed with its number.
    fn take(&self) -> Option<(u64, u64)> {
        if self.interrupt.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let wanted = number <= self.last.load(Ordering::Relaxed);
        self.seeds.number(number).filter(|_| wanted).map(|seed| (number, seed))
    }

    fn work(&self, sender: &mpsc::Sender<Message>) {
        let failure = match bug::contain(|| self.run(sender)) {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(text) => Failure { code: exit::BUG, text },
        };
        self.last.store(0, Ordering::Relaxed);
        // Whoever collects may have gone.
        let _ignored = sender.send(Err(failure));
    }

    fn run(&self, sender: &mpsc::Sender<Message>) -> Result<(), Failure> {
        let mut runner: Option<Runner<'_>> = None;
        let expected = self.options.expect_status;
        while let Some((number, seed)) = self.take() {
            if runner.is_none() {
                runner = Some(Runner::new(
                    &self.single,
                    &self.chosen,
                    self.interrupt.clone(),
                    &self.input,
                    self.options.max_steps,
                )?);
            }
            let Some(runner) = &mut runner else { return Ok(()) };
            let start = self.start(runner)?;
            let outcome = runner.run(&start, seed)?;
            // Every seed would be the same.
            let only = start.ended.is_some();
            let stop = match outcome.verdict(expected) {
                Verdict::Failed => !self.options.keep_going,
                // One that was given up says nothing of the others.
                Verdict::Passed | Verdict::None(exit::INCONCLUSIVE) => false,
                Verdict::None(_) => true,
            };
            if only || stop {
                self.last.fetch_min(number, Ordering::Relaxed);
            }
            if sender.send(Ok((number, Box::new(outcome)))).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Where all seeds begin; the first worker goes there, the others wait for it.
    fn start(&self, runner: &mut Runner<'_>) -> Result<Arc<Start>, Failure> {
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(start) = &*start {
            return Ok(start.clone());
        }
        Ok(start.insert(Arc::new(runner.start()?)).clone())
    }
}

/// Runs the seeds on so many workers, and tells `report` of them in their order.
///
/// # Errors
/// What the host says.
pub fn hunt(shared: &Arc<Shared>, jobs: usize, report: &mut Report) -> Result<(), Failure> {
    let (sender, receiver) = mpsc::channel();
    let threads = cpus::spawn(jobs, || {
        let (shared, sender) = (shared.clone(), sender.clone());
        move || shared.work(&sender)
    })?;
    drop(sender);
    let collected = collect(shared, &receiver, report);
    for thread in threads {
        // A panic of its own was contained.
        let _ignored = thread.join();
    }
    collected?;
    let start = shared.start.lock().unwrap_or_else(PoisonError::into_inner);
    report.one_schedule = start.as_ref().is_some_and(|start| start.ended.is_some());
    report.interrupted = shared.interrupt.load(Ordering::Relaxed);
    Ok(())
}

fn collect(shared: &Shared, receiver: &mpsc::Receiver<Message>, report: &mut Report) -> Result<(), Failure> {
    let (mut waiting, mut next) = (BTreeMap::new(), 0);
    for message in receiver {
        let (number, outcome) = message?;
        waiting.insert(number, outcome);
        while let Some(outcome) = waiting.remove(&next) {
            if next <= shared.last.load(Ordering::Relaxed) {
                report.ran(&outcome);
            }
            next += 1;
        }
    }
    Ok(())
}
