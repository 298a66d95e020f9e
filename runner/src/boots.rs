//! The boots of a session: the stack is started a few times, each time with other decisions, and every seed goes on from one of these
//! states. Which one is a function of the seed alone ([`boot_of`]), not of how many seeds or workers there are.
//!
//! Key type: [`Boots`], the snapshots that the workers of a campaign share. They are only a cache: a boot is made when a seed needs it
//! first, and made again after it was given up for want of memory; a seed's digest is the same either way. Neighbours:
//! `session` ([`Worker::boot`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_decisions::{Decisions, Log, Mode, Part};
use bloodhound_sim::World;

use crate::session::{Failure, Worker};

/// Boots draw from seeds of their own, "boot" in ASCII and the boot's number: seed 0 shares nothing with boot 0.
const SEEDS: u64 = 0x626f_6f74_0000_0000;
/// Less than this share of the host's memory left, and snapshots are given up.
const LEAST_SHARE: u64 = 8;

/// The number of the boot from which a seed goes on; `boots` is `simulation.boots`.
pub fn boot_of(seed: u64, boots: u64) -> u64 {
    seed % boots.max(1)
}

/// The decisions of a boot. The run that goes on from it brings its own seed.
pub fn decisions(boot: u64) -> Decisions {
    Decisions::new(Log::new(seed(boot), 0), Mode::Strict)
}

/// The seed of the decisions of a boot.
pub fn seed(boot: u64) -> u64 {
    SEEDS.wrapping_add(boot)
}

/// The number of the boot from which this run goes on.
pub fn number(log: &Log) -> u64 {
    log.boot_seed.wrapping_sub(SEEDS)
}

/// Snapshots of booted stacks, by the number of the boot.
pub struct Boots {
    slots: Vec<Mutex<Option<Arc<World>>>>,
}

impl Boots {
    /// Room for so many boots.
    pub fn new(boots: u64) -> Boots {
        Boots { slots: (0..boots.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// The stack as it is when `seed` begins, booted by `worker` if there is no snapshot of it.
    ///
    /// # Errors
    /// What the boot says.
    pub fn of(&self, worker: &mut Worker, seed: u64) -> Result<Arc<World>, Failure> {
        self.numbered(worker, boot_of(seed, self.slots.len() as u64))
    }

    /// Whether there is room for the boot from which this log goes on, which must be what its number says.
    pub fn has(&self, log: &Log) -> bool {
        let own = log.overrides.keys().any(|choice| choice.part == Part::Boot);
        !own && number(log) < self.slots.len() as u64
    }

    /// The stack after the boot of this number.
    ///
    /// # Errors
    /// What the boot says.
    pub fn numbered(&self, worker: &mut Worker, boot: u64) -> Result<Arc<World>, Failure> {
        // Held over the boot: who needs the same one waits for it instead of making it as well.
        let mut slot = lock(&self.slots[boot as usize]);
        if let Some(world) = &*slot {
            return Ok(world.clone());
        }
        let world = Arc::new(worker.boot(decisions(boot))?);
        if memory_is_short() {
            self.give_up(boot);
        }
        *slot = Some(world.clone());
        Ok(world)
    }

    /// Forgets all boots but that of a seed, for want of memory. Those that other workers are about to make stay.
    pub fn give_up_others(&self, seed: u64) {
        self.give_up(boot_of(seed, self.slots.len() as u64));
    }

    fn give_up(&self, but: u64) {
        let others = self.slots.iter().enumerate().filter(|(number, _)| *number as u64 != but);
        for (_, slot) in others {
            if let Ok(mut slot) = slot.try_lock() {
                *slot = None;
            }
        }
    }
}

/// A worker that panicked has ended the process (`bug::install`).
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the host has little memory left. Decides only about what is kept, never about what a run does.
fn memory_is_short() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    short(&text).unwrap_or(false)
}

/// The same, from the text of /proc/meminfo; `None` if it does not say.
fn short(meminfo: &str) -> Option<bool> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(field("MemAvailable")? < field("MemTotal")? / LEAST_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_of_a_seed_is_fixed_by_its_number() {
        assert_eq!((0..6).map(|seed| boot_of(seed, 4)).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1]);
        assert_eq!(boot_of(u64::MAX, 4), 3);
        assert_eq!(boot_of(9, 1), 0);
        assert_eq!(number(decisions(3).log()), 3);
    }

    #[test]
    fn memory_is_short_when_an_eighth_is_left() {
        let text =
            |available: u64| format!("MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:   {available} kB\n");
        assert_eq!((short(&text(999)), short(&text(1000)), short("")), (Some(true), Some(false), None));
    }
}
