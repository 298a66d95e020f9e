//! Ends runs of application code that have spent their budget of host time ([`Watchdog`]).
//!
//! A thread of the watchdog's own wakes every [`TICK`]. If the same run has been going on for as many ticks as its budget
//! has, the thread nudges whatever executes the run, in the platform's way, which is a signal as a rule. The path of a trap
//! pays two plain stores for this. When the nudge comes depends on the host's time, so it only ends the run with
//! `Trap::BudgetSpent` and decides nothing. A nudge that arrives before the run has really begun is lost; the next tick
//! brings another.

#![allow(clippy::disallowed_methods)] // a thread of the host, which decides nothing

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Budget, PlatformError};

/// The processor time of a process or thread of the host, named by its directory below /proc; `None` if the host does not tell.
///
/// proc(5) of Linux's documentation, /proc/PID/schedstat: "time spent on the cpu (in nanoseconds)" is the first number.
#[must_use]
pub fn processor_time(process: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    let ns = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns)).filter(|time| !time.is_zero())
}

/// How often the watchdog's thread wakes: the unit of [`Budget`].
const TICK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Slot {
    /// Number of the run that is going on in the upper half, the id of what runs it in the lower; 0: none.
    running: AtomicU64,
    /// The run that was nudged last.
    nudged: AtomicU64,
    /// The budget of the run that is going on, in ticks.
    budget: AtomicU32,
    stop: AtomicBool,
    /// Held while a run is nudged, and while the platform ends what executes it: so an id that the host may give to somebody
    /// else is never nudged.
    reaping: Mutex<()>,
}

/// The watchdog of one platform object.
pub struct Watchdog {
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
    run: u32,
}

impl Watchdog {
    /// Starts the thread; to be called before the calling thread is pinned, since affinity is inherited. `nudge` gets
    /// the id that the run began with.
    ///
    /// # Errors
    /// The host has no more threads.
    pub fn new(nudge: impl Fn(u32) + Send + 'static) -> Result<Watchdog, PlatformError> {
        let slot = Arc::new(Slot::default());
        let watched = Arc::clone(&slot);
        let thread = std::thread::Builder::new()
            .name("bloodhound-watchdog".into())
            .stack_size(64 << 10)
            .spawn(move || watch(&watched, &nudge))
            .map_err(|error| PlatformError::Host {
                what: "starting the watchdog thread",
                errno: error.raw_os_error().unwrap_or(0),
            })?;
        Ok(Watchdog { slot, thread: Some(thread), run: 0 })
    }

    /// A run begins; `id` names what executes it.
    pub fn begin(&mut self, id: u32, budget: Budget) {
        self.slot.budget.store(budget.0, Ordering::Relaxed);
        self.run = self.run.wrapping_add(1).max(1);
        let value = u64::from(self.run) << 32 | u64::from(id);
        self.slot.running.store(value, Ordering::Relaxed);
    }

    /// The run is over.
    pub fn end(&self) {
        self.slot.running.store(0, Ordering::Relaxed);
    }

    /// Whether the nudge that just came was meant for the run that is going on, and not a late one.
    #[must_use]
    pub fn nudged(&self) -> bool {
        self.slot.running.load(Ordering::Relaxed) == self.slot.nudged.load(Ordering::Acquire)
    }

    /// Runs `work`, which ends what executes runs, while no nudge can be on its way.
    pub fn while_quiet<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.slot.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot.running.store(0, Ordering::Relaxed);
        work()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.slot.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot have panicked in a way that matters here.
            let _ = thread.join();
        }
    }
}

fn watch(slot: &Slot, nudge: &dyn Fn(u32)) {
    let (mut seen, mut ticks) = (0, 0);
    while !slot.stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(TICK);
        let running = slot.running.load(Ordering::Relaxed);
        if running == 0 || running != seen {
            (seen, ticks) = (running, 0);
            continue;
        }
        ticks += 1;
        if ticks < slot.budget.load(Ordering::Relaxed) {
            continue;
        }
        let _guard = slot.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.running.load(Ordering::Relaxed) == running {
            slot.nudged.store(running, Ordering::Release);
            nudge(running as u32);
        }
    }
}
