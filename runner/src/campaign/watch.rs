//! When a campaign has to stop: signals, the end of `--timeout`, seeds that hang; and when one of its seeds has to, because there is
//! no memory left for all.
//!
//! Key types: [`Watch`], [`Lane`] (a worker's place in it). [`Watch`] has a thread of its own, so that whoever runs a seed or boots need not look. No seed is begun after the end of
//! `--timeout`; those that run then may end if they do not take much longer than the seeds before them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::memory::{Budget, Pressure};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(10);
/// A seed may run for so much longer than the end of `--timeout`, and three times the slowest seed's time.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    /// What runs is to stop at once.
    halt: Arc<AtomicBool>,
    /// No seed is to be begun any more.
    closed: AtomicBool,
    /// Seeds run: the boot is over.
    seeding: AtomicBool,
    /// It was `--timeout` that stopped what ran.
    late: AtomicBool,
    /// The time of the slowest seed, ms.
    slowest: AtomicU64,
    /// The watching is over.
    over: AtomicBool,
    /// The boot was stopped for want of memory.
    starved: AtomicBool,
    /// The workers that run seeds.
    lanes: Mutex<Vec<Lane>>,
    /// Memory is nearly used up: nothing should be kept for speed alone.
    near: AtomicBool,
}

/// A worker's place: what stops its seed, and what that seed has.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Its machine stops soon after this is set.
    stop: Arc<AtomicBool>,
    /// It was set because there was no memory left.
    short: Arc<AtomicBool>,
    /// About how many frames the worker's worlds hold.
    held: Arc<AtomicI64>,
}

impl Lane {
    /// The flag for its machine.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Whether its seed was stopped for want of memory.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// What it held is given back: it may run a seed again.
    pub fn relieved(&self) {
        self.stop.store(false, Ordering::Relaxed);
        self.short.store(false, Ordering::Relaxed);
    }
}

/// Watches a campaign until it is dropped.
#[derive(Debug)]
pub struct Watch {
    state: Arc<State>,
    signal: Arc<AtomicBool>,
    deadline: Option<Instant>,
    budget: Budget,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// Begins; `deadline` is the end of `--timeout`, `budget` what the campaign may use of the memory.
    pub fn start(signal: Arc<AtomicBool>, deadline: Option<Instant>, budget: Budget) -> Watch {
        let state = Arc::new(State::default());
        let (watched, seen) = (state.clone(), signal.clone());
        let thread = std::thread::spawn(move || {
            while !watched.over.load(Ordering::Relaxed) {
                watched.look(seen.load(Ordering::Relaxed), deadline, Instant::now());
                watched.look_at_memory(budget);
                std::thread::sleep(LOOK);
            }
        });
        Watch { state, signal, deadline, budget, thread: Some(thread) }
    }

    /// The flag for machines: they stop soon after it is set.
    pub fn halt(&self) -> Arc<AtomicBool> {
        self.state.halt.clone()
    }

    /// A place for a worker on this thread.
    pub fn lane(&self) -> Lane {
        let (stop, short) = (Arc::default(), Arc::default());
        let lane = Lane { stop, short, held: bloodhound_frames::held_by_thread() };
        self.state.lanes().push(lane.clone());
        if self.state.halt.load(Ordering::Relaxed) {
            lane.stop.store(true, Ordering::Relaxed);
        }
        lane
    }

    /// What the campaign may use of the memory.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Whether the boot was stopped for want of memory.
    pub fn starved(&self) -> bool {
        self.state.starved.load(Ordering::Relaxed)
    }

    /// Whether memory is nearly used up.
    pub fn memory_is_short(&self) -> bool {
        self.state.near.load(Ordering::Relaxed)
    }

    /// The boot is over: from now on what runs are seeds.
    pub fn seeding(&self) {
        self.state.seeding.store(true, Ordering::Relaxed);
    }

    /// No seed is to be begun any more.
    pub fn close(&self) {
        self.state.closed.store(true, Ordering::Relaxed);
    }

    /// Whether no seed is to be begun any more.
    pub fn is_closed(&self) -> bool {
        self.state.closed.load(Ordering::Relaxed) || self.signalled() || self.timed_out()
    }

    /// A seed took so long.
    pub fn took(&self, time: Duration) {
        self.state.slowest.fetch_max(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether a signal came.
    pub fn signalled(&self) -> bool {
        self.signal.load(Ordering::Relaxed)
    }

    /// Whether `--timeout` is over.
    pub fn timed_out(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Whether what ran was to stop at once, and whether `--timeout` was the reason.
    pub fn halted(&self) -> Option<bool> {
        let halted = self.state.halt.load(Ordering::Relaxed);
        halted.then(|| self.state.late.load(Ordering::Relaxed))
    }
}

impl State {
    fn look(&self, signalled: bool, deadline: Option<Instant>, now: Instant) {
        if self.halt.load(Ordering::Relaxed) {
            return;
        }
        let grace = match self.seeding.load(Ordering::Relaxed) {
            true => GRACE + Duration::from_millis(self.slowest.load(Ordering::Relaxed)) * 3,
            // No seed would be begun after it.
            false => Duration::ZERO,
        };
        let late = deadline.is_some_and(|d| now >= d + grace);
        if signalled || late {
            self.late.store(late && !signalled, Ordering::Relaxed);
            self.halt.store(true, Ordering::Relaxed);
            self.lanes().iter().for_each(|lane| lane.stop.store(true, Ordering::Relaxed));
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane>> {
        // A worker that panicked has ended the process (`bug::install`).
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_at_memory(&self, budget: Budget) {
        let pressure = budget.pressure();
        self.near.store(pressure >= Pressure::Near, Ordering::Relaxed);
        match pressure {
            Pressure::None => {}
            Pressure::Near => budget.give_back(),
            Pressure::Over => self.stop_largest(),
        }
    }

    /// Stops the seed that holds most, one at a time: until it has given its memory back no other has to.
    fn stop_largest(&self) {
        if self.halt.load(Ordering::Relaxed) {
            return;
        }
        let lanes = self.lanes();
        if lanes.iter().any(Lane::is_short) {
            return;
        }
        match lanes.iter().max_by_key(|lane| lane.held.load(Ordering::Relaxed)) {
            Some(lane) => {
                lane.short.store(true, Ordering::Relaxed);
                lane.stop.store(true, Ordering::Relaxed);
            }
            // The boot itself.
            None => {
                self.starved.store(true, Ordering::Relaxed);
                self.halt.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic; if it did, the watching is over all the same.
            let _ignored = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_may_end_after_the_time_but_not_hang() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let halted = |state: &State, signalled, now| {
            state.look(signalled, Some(at(100)), now);
            (state.halt.load(Ordering::Relaxed), state.late.load(Ordering::Relaxed))
        };
        let boots = State::default();
        assert_eq!(halted(&boots, false, at(99)), (false, false));
        assert_eq!(halted(&boots, false, at(100)), (true, true));
        let runs = State::default();
        runs.seeding.store(true, Ordering::Relaxed);
        runs.slowest.store(4000, Ordering::Relaxed);
        assert_eq!(halted(&runs, false, at(116)), (false, false));
        assert_eq!(halted(&runs, false, at(117)), (true, true));
        // A signal that comes later changes nothing about why it ended.
        assert_eq!(halted(&runs, true, at(118)), (true, true));
        assert_eq!(halted(&State::default(), true, at(1)), (true, false));
    }
}
