//! Carries out one order of a search: from the boot of its seed, or from a state.
//!
//! Key types: [`Carried`], [`Points`] (snapshots of states). A snapshot is a cache: a state without one is come to again by its log, and the run is the same. It is
//! taken when a state is chosen, not when it is come to: most states are never chosen, and each snapshot costs its run a copy of every page that is written
//! after it (a run of Python services took 1.9 times as long with a snapshot at each of its moments, one of distributed-kv 1.15 times).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Log, Mode};
use bloodhound_explore::{Order, Origin, Search, StateId};
use bloodhound_sim::event::Listener;
use bloodhound_sim::scenario::Scenario;

use crate::boots::Boots;
use crate::branch::{Point, Wish};
use crate::session::{Failure, Outcome, Worker};

/// Into so many parts of equal length the time of faults is cut by the moments from which others may go on.
const PARTS: u64 = 16;
/// Where there are no faults, so long a time is cut instead, ns.
const WITHOUT_FAULTS: u64 = 10_000_000_000;
/// Snapshots hold so many bytes at most, about.
const MOST_BYTES: u64 = 512 << 20;

/// A run that was carried out.
pub struct Carried {
    pub outcome: Outcome,
    /// What was run, without what it found on the way.
    pub log: Arc<Log>,
    /// The moment at which the stack was ready.
    pub ready: SimTime,
    /// The moments from which others may go on, after the one from which it went on itself.
    pub moments: Vec<SimTime>,
    /// Steps that it took, from where it went on.
    pub cost: u64,
}

/// The moments of a run, after its beginning, from which others may go on, if its stack was ready at this time.
fn stops(scenario: &Scenario, ready: SimTime) -> Vec<SimTime> {
    let begin = ready.after(scenario.fault_start);
    let span = match scenario.fault_time {
        0 => scenario.max_time.min(WITHOUT_FAULTS),
        time => time,
    };
    (1..PARTS).map(|part| begin.after(span / PARTS * part)).collect()
}

/// Makes the run of an order. `listener` is told what happens in it from where it goes on.
///
/// # Errors
/// What boot and host say.
pub fn carry(
    worker: &mut Worker,
    (boots, points): (&Boots, &Points),
    order: &Order,
    listener: Box<dyn Listener>,
) -> Result<Carried, Failure> {
    let booted = boots.of(worker, order.seed)?;
    let begin = worker.ready(&booted, order.seed);
    let (from, log) = match &order.origin {
        Origin::Boot => (begin.clone(), begin.log.clone()),
        Origin::State { log, by: Some((id, at)), .. } if *at > begin.at.0 => match points.get(*id) {
            Some(point) => (point, log.clone()),
            None => {
                let point = worker.rebuild(&booted, &before(log, *at), SimTime(*at))?;
                points.put(*id, point.clone());
                (point, log.clone())
            }
        },
        Origin::State { log, .. } => (begin.clone(), log.clone()),
    };
    let stops = stops(worker.scenario(), begin.at);
    let wish = Wish { stops: &stops, moments_only: true, listener: Some(listener) };
    let ran = worker.go_on(&from, (*log).clone(), wish)?;
    let mut outcome = ran.outcome;
    forget_idle(&mut outcome, worker);
    let cost = outcome.steps.saturating_sub(from.steps);
    Ok(Carried { outcome, log, ready: begin.at, moments: ran.moments, cost })
}

/// What of a log comes before a moment: the same up to there.
fn before(log: &Log, at: u64) -> Log {
    let mut log = log.clone();
    log.epochs.retain(|epoch| epoch.from <= at);
    log
}

/// A replay refuses what a log says of choices that are never made; here it does nothing, so it is left out of what is kept of the run.
fn forget_idle(outcome: &mut Outcome, worker: &Worker) {
    if outcome.decisions.overrides.is_empty() {
        return;
    }
    let world = worker.world();
    let mut decisions = world.decisions.clone();
    // The same log, as a replay follows it.
    if decisions.go_on((**world.decisions.log()).clone(), Mode::Strict, world.now.0, |_| true).is_ok() {
        let log = Arc::make_mut(&mut outcome.decisions);
        let idle = decisions.divergences().into_iter().filter(|divergence| divergence.asked.is_none());
        idle.for_each(|divergence| {
            log.overrides.remove(&divergence.choice);
        });
    }
}

/// Snapshots of states that may be gone on from, as many as fit.
#[derive(Debug, Default)]
pub struct Points {
    kept: Mutex<BTreeMap<StateId, Arc<Point>>>,
}

impl Points {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<StateId, Arc<Point>>> {
        // A worker that panicked has ended the process (`bug::install`).
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: StateId) -> Option<Arc<Point>> {
        self.kept().get(&id).cloned()
    }

    /// Keeps the snapshot of a state.
    fn put(&self, id: StateId, point: Arc<Point>) {
        self.kept().insert(id, point);
    }

    /// Gives up all, for want of memory.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.kept());
        drop(all);
    }

    /// Gives up those of states that are no more, and of the others the least useful until what is left fits.
    pub fn fit(&self, search: &Search) {
        let mut gone = Vec::new();
        let mut kept = self.kept();
        let mut left: Vec<(u64, StateId, u64)> = Vec::new();
        for (id, point) in kept.iter() {
            match search.energy_of(*id) {
                Some(energy) => left.push((energy, *id, point.held_bytes())),
                None => gone.push(*id),
            }
        }
        let mut held: u64 = left.iter().map(|(.., bytes)| bytes).sum();
        if held > MOST_BYTES {
            left.sort_unstable();
            for (_, id, bytes) in left {
                if held <= MOST_BYTES / 4 * 3 {
                    break;
                }
                held -= bytes;
                gone.push(id);
            }
        }
        let dropped: Vec<Arc<Point>> = gone.iter().filter_map(|id| kept.remove(id)).collect();
        drop(kept);
        drop(dropped);
    }
}
