//! Carries out one order of a search: from the boot of its seed, or from a state.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Log, Mode};
use bloodhound_explore::{Order, Origin};
use bloodhound_sim::scenario::Scenario;
use std::sync::Arc;

use crate::boots::Boots;
use crate::session::{Failure, Outcome, Worker, host_failure};

/// Into so many parts of equal length the time of faults is cut by the moments from which others may go on.
const PARTS: u64 = 16;
/// Where there are no faults, so long a time is cut instead, ns.
const WITHOUT_FAULTS: u64 = 10_000_000_000;

/// A run that was carried out.
pub struct Carried {
    pub outcome: Outcome,
    /// What was run, without what it found on the way.
    pub log: Arc<Log>,
    /// The moments from which others may go on.
    pub moments: Vec<u64>,
    /// Steps that it took, from where it went on.
    pub cost: u64,
}

/// The moments of a run whose stack was ready at a time.
fn moments(scenario: &Scenario, ready: SimTime) -> Vec<u64> {
    let begin = ready.after(scenario.fault_start);
    let span = match scenario.fault_time {
        0 => scenario.max_time.min(WITHOUT_FAULTS),
        time => time,
    };
    let later = (1..PARTS).map(|part| begin.after(span / PARTS * part).0);
    std::iter::once(ready.0).chain(later).collect()
}

/// Makes the run of an order.
///
/// # Errors
/// What boot and host say.
pub fn carry(worker: &mut Worker, boots: &Boots, order: &Order) -> Result<Carried, Failure> {
    let booted = boots.of(worker, order.seed)?;
    let log = match &order.origin {
        Origin::Boot => Arc::new(Log { seed: order.seed, ..(**booted.decisions.log()).clone() }),
        Origin::State { log, .. } => log.clone(),
    };
    worker.restore(&booted);
    let outcome = worker.run_log((*log).clone(), Mode::Strict).map_err(host_failure)?;
    let cost = outcome.steps.saturating_sub(booted.steps);
    let moments = moments(&outcome.scenario, booted.now);
    Ok(Carried { outcome, log, moments, cost })
}
