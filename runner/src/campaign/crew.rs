//! Workers and who takes what they tell: threads that make runs one after another, and the main thread, until all workers have ended.
//!
//! Key types: [`Message`] (what workers tell), [`Takes`] (the main thread's side). Which run a worker makes next, and what it does when there is no memory
//! for one, is not the same for seeds (`workers`) and for a search ([`crate::explore`]): that is theirs.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::totals::Unjudged;
use super::watch::Watch;
use crate::platform::Chosen;
use crate::session::Failure;
use crate::{bug, cpus, exit};

/// How often a thread that waits looks whether all has to stop.
pub const LOOK: Duration = Duration::from_millis(20);
/// Time for runs to stop when they are asked to; after that they are left behind.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a run.
pub enum Ended<R> {
    Ran(Box<R>),
    Lost(Unjudged),
    /// There is no memory for it.
    TooLarge,
}

/// What workers tell.
pub enum Message<N, R> {
    /// The run of this name was begun.
    Begun(N),
    Ended(N, Ended<R>),
    /// There was no memory for it beside others: it waits.
    Postponed(N),
    /// A worker failed outside of its runs.
    Failed(Failure),
}

/// Who takes what workers tell.
pub trait Takes {
    /// The name of a run.
    type Name: Copy + Ord + Send + 'static;
    /// What comes of it.
    type Ran: Send + 'static;

    /// What says when all has to stop.
    fn watch(&self) -> &Watch;
    /// A run has ended.
    fn ended(&mut self, name: Self::Name, ended: Ended<Self::Ran>);
    /// A run waits for memory.
    fn postponed(&mut self, name: Self::Name);
    /// A worker failed outside of its runs.
    fn failed(&mut self, failure: Failure);
    /// Shows how far all is.
    fn show(&mut self);
    /// Nothing is told any more. These runs did not stop, and are left behind.
    fn over(&mut self, left: BTreeSet<Self::Name>);
}

/// Lets so many workers work, and takes what they tell until all have ended, or have not although they should.
///
/// # Errors
/// No thread can be started.
pub fn run<T: Takes>(
    jobs: usize,
    taker: &mut T,
    work: impl Fn(&Sender<Message<T::Name, T::Ran>>) + Clone + Send + 'static,
) -> Result<(), Failure> {
    let (sender, receiver) = mpsc::channel();
    let threads = cpus::spawn(jobs, || {
        let (work, sender) = (work.clone(), sender.clone());
        move || {
            // What can go wrong in a run is contained there.
            if let Err(text) = bug::contain(|| work(&sender)) {
                // Whoever takes may have gone on without this worker.
                let _ignored = sender.send(Message::Failed(Failure { code: exit::BUG, text }));
            }
        }
    })?;
    drop(sender);
    if collect(taker, &receiver) {
        for thread in threads {
            // A panic of its own was contained.
            let _ignored = thread.join();
        }
    }
    Ok(())
}

/// Until all workers have ended: true; or have not although they should: false.
fn collect<T: Takes>(taker: &mut T, receiver: &Receiver<Message<T::Name, T::Ran>>) -> bool {
    let mut halted: Option<Instant> = None;
    // Runs that were begun and are under way.
    let mut running = BTreeSet::new();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(message) => {
                match message {
                    Message::Begun(name) => {
                        running.insert(name);
                    }
                    Message::Ended(name, ended) => {
                        running.remove(&name);
                        taker.ended(name, ended);
                    }
                    Message::Postponed(name) => {
                        running.remove(&name);
                        taker.postponed(name);
                    }
                    Message::Failed(failure) => taker.failed(failure),
                }
                taker.show();
            }
            Err(RecvTimeoutError::Disconnected) => {
                taker.over(BTreeSet::new());
                return true;
            }
            Err(RecvTimeoutError::Timeout) if taker.watch().halted().is_some() => {
                if halted.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    taker.over(running);
                    return false;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Why a run has no outcome.
pub fn lost(failure: Failure, watch: &Watch, chosen: &Chosen) -> Unjudged {
    match failure.code {
        exit::INTERRUPTED => stopped(watch),
        exit::UNSUPPORTED => Unjudged::Unsupported(failure.text),
        exit::BUG | exit::NONDETERMINISM => Unjudged::Bug(failure.text),
        _ => Unjudged::Host(format!("on {}: {}", chosen.name, failure.text)),
    }
}

/// Why a run was stopped from outside.
pub fn stopped(watch: &Watch) -> Unjudged {
    match watch.halted() {
        Some(true) => Unjudged::TimedOut,
        _ => Unjudged::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::memory::Budget;

    struct Toy {
        watch: Watch,
        ended: Vec<(u64, Option<u64>)>,
        postponed: Vec<u64>,
        failed: Vec<String>,
        left: Vec<BTreeSet<u64>>,
    }

    impl Takes for Toy {
        type Name = u64;
        type Ran = u64;

        fn watch(&self) -> &Watch {
            &self.watch
        }

        fn ended(&mut self, name: u64, ended: Ended<u64>) {
            let ran = match ended {
                Ended::Ran(ran) => Some(*ran),
                Ended::Lost(_) | Ended::TooLarge => None,
            };
            self.ended.push((name, ran));
        }

        fn postponed(&mut self, name: u64) {
            self.postponed.push(name);
        }

        fn failed(&mut self, failure: Failure) {
            assert_eq!(failure.code, exit::BUG);
            self.failed.push(failure.text);
        }

        fn show(&mut self) {}

        fn over(&mut self, left: BTreeSet<u64>) {
            self.left.push(left);
        }
    }

    #[test]
    fn all_that_workers_tell_is_taken_and_one_that_fails_takes_nothing_from_others() {
        let watch = Watch::start(Arc::new(AtomicBool::new(false)), None, Budget::new(None));
        let (ended, postponed, failed, left) = Default::default();
        let mut toy = Toy { watch, ended, postponed, failed, left };
        let next = Arc::new(AtomicU64::new(0));
        let work = move |sender: &Sender<Message<u64, u64>>| {
            loop {
                let name = next.fetch_add(1, Ordering::Relaxed);
                let message = match name {
                    0..20 => Message::Ended(name, Ended::Ran(Box::new(name * 2))),
                    20 => Message::Ended(name, Ended::TooLarge),
                    21 => Message::Postponed(name),
                    22 => panic!("it fails"),
                    _ => return,
                };
                sender.send(Message::Begun(name)).expect("somebody takes");
                sender.send(message).expect("somebody takes");
            }
        };
        run(3, &mut toy, work).expect("threads");
        toy.ended.sort_unstable();
        let all: Vec<(u64, Option<u64>)> =
            (0..20).map(|name| (name, Some(name * 2))).chain([(20, None)]).collect();
        assert_eq!(toy.ended, all);
        assert_eq!(toy.postponed, [21]);
        assert!(toy.failed.len() == 1 && toy.failed[0].contains("it fails"), "{:?}", toy.failed);
        assert_eq!(toy.left, [BTreeSet::new()]);
    }
}
