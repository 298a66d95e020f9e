//! Watches for application code that runs long without a trap ([`Watchdog`]).
//!
//! A thread of its own looks every [`TICK`] whether the same run is still going on, and then nudges whatever runs it
//! in the platform's way, with a signal as a rule. The trap path pays two plain stores. When the nudge comes is a
//! matter of host time; it only triggers a check (`Trap::BudgetSpent`), never a result. A nudge that comes too early,
//! before the run has really begun, is lost: the next tick brings another.

#![allow(clippy::disallowed_methods)] // a thread of the host, which decides nothing

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{PlatformError, Spin};

/// How often the watchdog looks.
const TICK: Duration = Duration::from_millis(10);
/// Ticks until the first nudge of a run, and the most that patience grows to (about two seconds).
const FIRST: u32 = 2;
const MOST: u32 = 200;

#[derive(Default)]
struct Slot {
    /// Number of the run that is going on in the upper half, the id of what runs it in the lower; 0: none.
    running: AtomicU64,
    /// The run that was nudged last.
    nudged: AtomicU64,
    patience: AtomicU32,
    stop: AtomicBool,
    /// Held while something is nudged, and while the platform does away with it: an id is never used after its reuse.
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
        let slot = Arc::new(Slot { patience: AtomicU32::new(FIRST), ..Slot::default() });
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

    /// A run begins; `id` names what runs it.
    pub fn begin(&mut self, id: u32) {
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

    /// The task ran out of its budget: it gets twice as long next time.
    pub fn more_patience(&self) {
        let now = self.slot.patience.load(Ordering::Relaxed);
        self.slot.patience.store((now * 2).min(MOST), Ordering::Relaxed);
    }

    /// A look found something: who waits in a loop is to be found at once, who computes is not to be disturbed.
    pub fn looked(&self, spin: Spin) {
        if spin != Spin::Progressing {
            self.slot.patience.store(FIRST, Ordering::Relaxed);
        }
    }

    /// A trap came: patience shrinks back. Not at once, so that a program that computes long between its traps
    /// is not checked again and again.
    pub fn less_patience(&self) {
        let now = self.slot.patience.load(Ordering::Relaxed);
        // The usual case is a load only.
        if now != FIRST {
            self.slot.patience.store((now * 3 / 4).max(FIRST), Ordering::Relaxed);
        }
    }

    /// Runs `work`, which does away with what is nudged, while no nudge can be on its way.
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
        if ticks < slot.patience.load(Ordering::Relaxed) {
            continue;
        }
        let _guard = slot.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.running.load(Ordering::Relaxed) == running {
            slot.nudged.store(running, Ordering::Release);
            nudge(running as u32);
        }
    }
}
