//! What a search is given of the corpus: its entries are run once more, and their moments are states from which the search goes on, whichever machine or campaign
//! has put them there.
//!
//! Key function: [`give`]. Neighbours: [`super::workers`], `campaign::order` (which runs the entries as cases, and judges them).

use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::Log;
use bloodhound_explore::{Arm, Order, Origin, Search, Seen, StateId};

use super::carry::{Carried, Points, carry};
use super::observe::{Eyes, seen};
use super::workers::Hunt;
use crate::boots;
use crate::session::{Failure, Stopped, Worker};
use crate::shrink::case::settled_outcome;
use crate::{bug, exit};

/// No state of the search: these runs go on from the end of a boot.
const NO_STATE: StateId = StateId(u64::MAX);

/// Lets a search know what these runs show, in their order. False: something has ended the campaign before all were made. One run at a time is made, for each
/// has come to its end so before.
///
/// # Errors
/// What the host says; no memory for a run.
pub fn give(hunt: &Hunt, logs: &[Log], search: &mut Search) -> Result<bool, Failure> {
    // A boot of its own is booted for a case, and no run of a search goes on from there.
    let boot = |log: &Log| boots::seed(boots::boot_of(log.seed, hunt.session.plan.boots));
    let fits: Vec<&Log> =
        logs.iter().filter(|log| hunt.boots.has(log) && log.boot_seed == boot(log)).collect();
    if fits.is_empty() {
        return Ok(true);
    }
    // On a thread of its own, for a platform binds its thread to a processor.
    let shown = std::thread::scope(|scope| scope.spawn(|| bug::contain(|| shown(hunt, &fits))).join());
    let shown = match shown {
        Ok(Ok(shown)) => shown?,
        Ok(Err(text)) => return Err(Failure { code: exit::BUG, text }),
        Err(_) => return Err(Failure { code: exit::BUG, text: "a run of the corpus panicked".into() }),
    };
    let all = shown.len() == fits.len();
    if all {
        shown.into_iter().for_each(|seen| search.give(seen));
    }
    Ok(all)
}

/// What the runs show, until something ends the campaign.
fn shown(hunt: &Hunt, logs: &[&Log]) -> Result<Vec<Seen>, Failure> {
    let (lane, eyes) = (hunt.watch.lane(), Eyes::new(&hunt.session.scenario, hunt.settings.strategy));
    let mut worker = Worker::new(hunt.session.clone(), &hunt.chosen, lane.stop())?;
    let mut all = Vec::new();
    for log in logs {
        if hunt.watch.is_closed() {
            break;
        }
        if hunt.watch.memory_is_short() {
            hunt.boots.give_up_others(log.seed);
        }
        worker.listen_to_choices();
        let mut carried = run(hunt, &mut worker, log, &eyes)?;
        let choices = worker.take_choices();
        if lane.is_short() && hunt.watch.halted().is_none() {
            lane.relieved();
            return Err(Failure { code: exit::INCONCLUSIVE, text: hunt.watch.budget().text() });
        }
        if matches!(carried.outcome.stopped, Some(Stopped::Interrupted)) {
            break;
        }
        // What does not fit any more is not to be in what goes on from it.
        carried.outcome = settled_outcome(carried.outcome, choices);
        let mut seen = seen(&carried, &hunt.session, &eyes);
        Arc::make_mut(&mut seen.log).overrides.clone_from(&carried.outcome.decisions.overrides);
        all.push(seen);
    }
    Ok(all)
}

/// The run of a log from the end of its boot, leniently: what does not fit any more is plain.
fn run(hunt: &Hunt, worker: &mut Worker, log: &Log, eyes: &Eyes) -> Result<Carried, Failure> {
    let origin = Origin::State { id: NO_STATE, at: SimTime::default().0, log: log.clone().into(), by: None };
    let order = Order { number: 0, seed: log.seed, arm: Arm::Fresh, origin };
    carry(worker, (&hunt.boots, &Points::default()), &order, eyes.listener())
}
