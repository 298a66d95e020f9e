//! How near a run came to a violation, as one number: what a search may prefer among runs that violated nothing.
//!
//! Key function: [`nearness`]. It is made of integers alone and is a function of the run, so that two workers say the same. It is a guess, no
//! measure: two numbers are for comparing runs of one configuration, and what is far from a violation by it may violate something all the same.

use bloodhound_abi::SimTime;
use bloodhound_sim::checks::CheckKind;
use bloodhound_sim::notice::{CheckResult, Notice, PhaseChange};
use bloodhound_workloads::history::Outcome as Result;
use bloodhound_workloads::linearizability::{self, Budget, Strain};

use crate::judge::{Judged, operation_name};
use crate::plan::{Judge, Property};
use crate::session::Outcome;

/// The nearness of a run that violated something.
pub const VIOLATED: u32 = 1_000_000;
/// The most that a property gives that was not violated.
const PROPERTY: u64 = 850_000;
/// The most that operations give which did not succeed.
const OPERATIONS: u64 = 100_000;
/// A property that could not be decided with the steps of its check, or with [`STEPS`]: the search for an order went further than most.
const UNDECIDED: u64 = 800_000;
/// The search for orders may take so many steps.
const STEPS: u64 = 2_000_000;

/// From 0, far from a violation, to [`VIOLATED`]: the nearest of the properties, and a little for each operation that did not succeed.
///
/// - A history that had to be linearizable: the hardest key counts, by operations that have to come before a change that completed earlier than they did,
///   writes of unknown outcome that were seen to have taken effect, and what the search for an order tried in vain ([`Strain`]).
/// - A liveness check: how much of its time had passed when it held.
/// - Other checks and crashes say nothing until they fail.
pub fn nearness(outcome: &Outcome, properties: &[Property]) -> u32 {
    if !outcome.violations.is_empty() {
        return VIOLATED;
    }
    let judged = properties.iter().zip(&outcome.judged);
    let nearest = judged.map(|(property, judged)| of(outcome, property, judged)).max().unwrap_or(0);
    let all = outcome.history.operations();
    let failed = all.iter().filter(|o| matches!(o.outcome, Result::Fail | Result::Unknown)).count() as u64;
    let failed = OPERATIONS * failed / (all.len() as u64).max(1);
    (nearest + failed).min(u64::from(VIOLATED) - 1) as u32
}

fn of(outcome: &Outcome, property: &Property, judged: &Judged) -> u64 {
    match &property.judge {
        Judge::Linearizable { operations, model } => {
            let wanted =
                outcome.history.filtered(|o| operations.iter().any(|n| n == operation_name(&o.call)));
            if matches!(judged, Judged::Undecided(_)) {
                return UNDECIDED;
            }
            let budget = Budget { steps: STEPS, ..Budget::default() };
            let strains = linearizability::strain(&wanted, *model, budget).unwrap_or_default();
            let hardest = share(strains.keys.iter().map(weight).max().unwrap_or(0), 16);
            // A key that takes more steps than there are is no easy one.
            if strains.exhausted > 0 { hardest.max(UNDECIDED) } else { hardest }
        }
        Judge::Check(index) => waited(outcome, *index),
        Judge::Healthy(indices) => indices.iter().map(|index| waited(outcome, *index)).max().unwrap_or(0),
        Judge::NoCrash(_) => 0,
    }
}

/// How much a key counts.
fn weight(strain: &Strain) -> u64 {
    let in_vain = u64::from((strain.in_vain + 1).ilog2());
    strain.overtaken as u64 + 2 * strain.unknown as u64 + in_vain
}

/// Of [`PROPERTY`], half for `half`, and never all.
fn share(weight: u64, half: u64) -> u64 {
    PROPERTY * weight / (weight + half)
}

/// How much of its time a liveness check took until it held, or has taken.
fn waited(outcome: &Outcome, index: usize) -> u64 {
    let Some(spec) = outcome.scenario.checks.get(index).filter(|spec| spec.kind == CheckKind::Liveness)
    else {
        return 0;
    };
    let when = |wanted: &dyn Fn(&Notice) -> bool| -> Option<SimTime> {
        outcome.log.iter().find(|entry| wanted(&entry.what)).map(|entry| entry.at)
    };
    let Some(healed) =
        when(&|what| matches!(what, Notice::Phase(PhaseChange::Healed | PhaseChange::Unhealed)))
    else {
        return 0;
    };
    let held =
        when(&|what| matches!(what, Notice::Check { index: of, result: CheckResult::Holds } if *of == index));
    let took = held.unwrap_or(outcome.virtual_time).since(healed);
    // A first attempt takes a moment even where nothing is wrong: below a twentieth nothing is said.
    let timeout = spec.timeout.max(1);
    let late = took.saturating_sub(timeout / 20).min(timeout);
    (u128::from(PROPERTY) * u128::from(late) / u128::from(timeout)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_rises_and_never_is_all() {
        let shares: Vec<u64> = [0, 1, 4, 16, 1 << 30].into_iter().map(|weight| share(weight, 16)).collect();
        assert!(shares.windows(2).all(|two| two[0] < two[1]), "{shares:?}");
        assert_eq!((shares[0], shares[3]), (0, PROPERTY / 2));
        assert!(shares[4] < PROPERTY && PROPERTY + OPERATIONS < u64::from(VIOLATED));
    }

    #[test]
    fn what_must_have_happened_late_counts_more_than_what_was_overtaken() {
        let plain = Strain { operations: 100, ..Strain::default() };
        let [overtaken, unknown] = [Strain { overtaken: 1, ..plain }, Strain { unknown: 1, ..plain }];
        assert!(weight(&plain) < weight(&overtaken) && weight(&overtaken) < weight(&unknown));
        assert!(weight(&plain) < weight(&Strain { in_vain: 10, ..plain }));
    }
}
