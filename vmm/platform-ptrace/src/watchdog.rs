//! Watches for application code that runs long without a trap ([`Watchdog`]).
//!
//! A thread of its own looks every [`TICK`] whether the same run is still going on, and then nudges the stub
//! with a signal that the tracer sees and the application does not. The trap path pays two plain stores. When
//! the nudge comes is a matter of host time; it only triggers a check (`Trap::BudgetSpent`), never a result.

#![allow(clippy::disallowed_methods)] // a thread of the host, which decides nothing

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the watchdog looks.
const TICK: Duration = Duration::from_millis(10);
/// The nudge. By default ignored, so that a stray one harms nobody.
pub(crate) const NUDGE: libc::c_int = libc::SIGURG;
/// Ticks until the first nudge of a run, and the most that patience grows to (about two seconds).
const FIRST: u32 = 2;
const MOST: u32 = 200;

#[derive(Default)]
struct Slot {
    /// Number of the run that is going on in the upper half, the stub's pid in the lower; 0: none.
    running: AtomicU64,
    /// The run that was nudged last.
    nudged: AtomicU64,
    patience: AtomicU32,
    stop: AtomicBool,
    /// Held while a stub is reaped and while one is nudged, so that a pid is never used after its reuse.
    reaping: Mutex<()>,
}

/// The watchdog of one platform object.
pub(crate) struct Watchdog {
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
    run: u32,
}

impl Watchdog {
    /// Starts the thread; to be called before the calling thread is pinned, since affinity is inherited.
    pub fn new() -> std::io::Result<Watchdog> {
        let slot = Arc::new(Slot { patience: AtomicU32::new(FIRST), ..Slot::default() });
        let watched = Arc::clone(&slot);
        let thread = std::thread::Builder::new()
            .name("bloodhound-watchdog".into())
            .stack_size(64 << 10)
            .spawn(move || watch(&watched))?;
        Ok(Watchdog { slot, thread: Some(thread), run: 0 })
    }

    /// A run begins.
    pub fn begin(&mut self, pid: libc::pid_t) {
        self.run = self.run.wrapping_add(1).max(1);
        let value = u64::from(self.run) << 32 | u64::from(pid as u32);
        self.slot.running.store(value, Ordering::Relaxed);
    }

    /// The run is over.
    pub fn end(&self) {
        self.slot.running.store(0, Ordering::Relaxed);
    }

    /// Whether the nudge that just came was meant for the run that is going on, and not a late one.
    pub fn nudged(&self) -> bool {
        self.slot.running.load(Ordering::Relaxed) == self.slot.nudged.load(Ordering::Acquire)
    }

    /// The task ran out of its budget: it gets twice as long next time.
    pub fn more_patience(&self) {
        let now = self.slot.patience.load(Ordering::Relaxed);
        self.slot.patience.store((now * 2).min(MOST), Ordering::Relaxed);
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

    /// Runs `work`, which reaps a stub, while no nudge can be on its way.
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

fn watch(slot: &Slot) {
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
            // SAFETY: no memory effects. The stub cannot have been reaped: that takes the lock, or the wait of
            // the run itself, after which a stray signal is one that is ignored by default.
            unsafe { libc::kill(running as u32 as libc::pid_t, NUDGE) };
        }
    }
}
