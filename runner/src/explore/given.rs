//! What a search is given of the corpus: its entries are run once more, and their moments are states from which the search goes on, whichever machine or campaign
//! has put them there.
//!
//! Key function: [`give`]. Neighbours: [`super::workers`], `campaign::order` (which runs the entries as cases, and judges them).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_abi::SimTime;
use bloodhound_decisions::Log;
use bloodhound_explore::{Arm, Order, Origin, Search, Seen, StateId};

use super::carry::{Carried, Points, carry};
use super::observe::{Eyes, seen};
use super::workers::Hunt;
use crate::boots;
use crate::session::{Failure, Stopped, Worker};
use crate::{bug, exit};

/// No state of the search: these runs go on from the end of a boot.
const NO_STATE: StateId = StateId(u64::MAX);

/// Lets a search know what these runs show, in their order. False: something has ended the campaign before all were made.
///
/// # Errors
/// What the host says; no memory for a run.
pub fn give(hunt: &Hunt, logs: &[Log], jobs: usize, search: &mut Search) -> Result<bool, Failure> {
    // A boot of its own is booted for a case, and no run of a search goes on from there.
    let boot = |log: &Log| boots::seed(boots::boot_of(log.seed, hunt.session.plan.boots));
    let fits: Vec<&Log> =
        logs.iter().filter(|log| hunt.boots.has(log) && log.boot_seed == boot(log)).collect();
    let shown = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), Failure> {
        let (lane, eyes) = (hunt.watch.lane(), Eyes::new(&hunt.session.scenario, hunt.settings.strategy));
        let mut worker = Worker::new(hunt.session.clone(), &hunt.chosen, lane.stop())?;
        while let Some((place, log)) = take(&next, &fits) {
            if hunt.watch.is_closed() {
                return Ok(());
            }
            let carried = run(hunt, &mut worker, log, &eyes)?;
            if matches!(carried.outcome.stopped, Some(Stopped::Interrupted)) {
                return match lane.is_short() && hunt.watch.halted().is_none() {
                    true => Err(Failure { code: exit::INCONCLUSIVE, text: hunt.watch.budget().text() }),
                    false => Ok(()),
                };
            }
            let mut seen = seen(&carried, &hunt.session, &eyes);
            // What does not fit any more is not to be in what goes on from it.
            let fits = &carried.outcome.decisions.overrides;
            Arc::make_mut(&mut seen.log).overrides.retain(|choice, _| fits.contains_key(choice));
            shown.lock().unwrap_or_else(PoisonError::into_inner).insert(place, seen);
        }
        Ok(())
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(fits.len())).map(|_| scope.spawn(|| bug::contain(work))).collect();
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    for ended in ended {
        match ended {
            Ok(Ok(ended)) => ended?,
            Ok(Err(text)) => return Err(Failure { code: exit::BUG, text }),
            Err(_) => return Err(Failure { code: exit::BUG, text: "a run of the corpus panicked".into() }),
        }
    }
    let shown: BTreeMap<usize, Seen> = shown.into_inner().unwrap_or_else(PoisonError::into_inner);
    let all = shown.len() == fits.len();
    if all {
        shown.into_values().for_each(|seen| search.give(seen));
    }
    Ok(all)
}

fn take<'a>(next: &AtomicUsize, logs: &[&'a Log]) -> Option<(usize, &'a Log)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    logs.get(place).map(|log| (place, *log))
}

/// The run of a log from the end of its boot, leniently: what does not fit any more is plain.
fn run(hunt: &Hunt, worker: &mut Worker, log: &Log, eyes: &Eyes) -> Result<Carried, Failure> {
    let origin = Origin::State { id: NO_STATE, at: SimTime::default().0, log: log.clone().into(), by: None };
    let order = Order { number: 0, seed: log.seed, arm: Arm::Fresh, origin };
    carry(worker, (&hunt.boots, &Points::default()), &order, eyes.listener())
}
