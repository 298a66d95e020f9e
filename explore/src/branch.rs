//! The log of a run that goes on from a state: that of the state's run, with other choices from its moment on.

use std::sync::Arc;

use bloodhound_decisions::{Choice, Concern, Dice, Epoch, Log, WORD};

use crate::arms::Arm;
use crate::frontier::State;

/// A fault that a run had planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The choice that takes it out, at 0, and is made when its time comes.
    pub happens: Choice,
    /// The bound of that choice.
    pub bound: u64,
    /// When it begins, ns of virtual time.
    pub at: u64,
}

/// Of the random numbers that come next, one of the first so many is changed.
const DRAWS: u64 = 64;
/// Of the faults that come next, one of the first so many is left out.
const FAULTS: u64 = 8;

/// Whether there is anything to do for an arm at a state.
pub(crate) fn is_possible(arm: Arm, state: &State) -> bool {
    match arm {
        Arm::Fresh => false,
        Arm::Profile => state.is_ready,
        // At the beginning that is what `Profile` does.
        Arm::Future => !state.is_ready,
        Arm::Faults | Arm::Timing | Arm::Operations => true,
        Arm::OneFault => state.faults.iter().any(|fault| fault.at > state.at),
        Arm::Input => !state.draws.is_empty(),
    }
}

/// The concerns that an arm draws anew.
fn concerns(arm: Arm) -> &'static [Concern] {
    match arm {
        Arm::Fresh | Arm::Input | Arm::OneFault => &[],
        Arm::Profile | Arm::Future => &[
            Concern::Scheduler,
            Concern::Network,
            Concern::Disk,
            Concern::GuestRandom,
            Concern::Workload,
            Concern::Faults,
        ],
        Arm::Faults => &[Concern::Disk, Concern::Faults],
        Arm::Timing => &[Concern::Scheduler, Concern::Network],
        Arm::Operations => &[Concern::Workload],
    }
}

/// The log of a run that goes on from a state by an arm. `None`: the arm is not possible there.
pub(crate) fn branch(state: &State, arm: Arm, dice: &mut Dice) -> Option<Arc<Log>> {
    if !is_possible(arm, state) {
        return None;
    }
    let mut log = (*state.log).clone();
    let at = state.at;
    log.epochs.retain(|epoch| epoch.from <= at);
    match arm {
        Arm::Input => {
            let place = dice.below((state.draws.len() as u64).min(DRAWS));
            let (choice, _) = *state.draws.get(place as usize)?;
            let value = match dice.below(4) {
                0 => 0,
                1 => WORD - 1,
                _ => dice.below(WORD),
            };
            log = log.with(choice, WORD, value);
        }
        Arm::OneFault => {
            let next: Vec<&Planned> = state.faults.iter().filter(|fault| fault.at > at).collect();
            let fault = next.get(dice.below((next.len() as u64).clamp(1, FAULTS)) as usize)?;
            log = log.with(fault.happens, fault.bound, 0);
        }
        _ => {
            let concerns = concerns(arm).to_vec();
            log.epochs.push(Epoch { from: at.saturating_add(1), seed: dice.word(), concerns });
        }
    }
    Some(Arc::new(log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::tests::state;
    use bloodhound_decisions::{Part, Site, Word};

    fn fault(nth: u64, at: u64) -> Planned {
        let site = Site::Fault { kind: Word::new("crash"), target: 1, nth, part: Word::new("happens") };
        Planned { happens: Choice { part: Part::Run, site }, bound: WORD, at }
    }

    #[test]
    fn a_branch_keeps_what_was_before_its_moment() {
        let mut from = state(1, &[]);
        let before = Epoch { from: 10, seed: 5, concerns: vec![Concern::Faults] };
        let after = Epoch { from: 101, seed: 6, concerns: vec![Concern::Network] };
        from.log = Arc::new(Log { epochs: vec![before.clone(), after], ..Log::new(1, 2) });
        from.at = 100;
        let mut dice = Dice::new(3);
        let log = branch(&from, Arm::Timing, &mut dice).expect("possible");
        assert_eq!((log.seed, log.boot_seed), (2, 1));
        assert_eq!(log.epochs[0], before);
        assert_eq!((log.epochs.len(), log.epochs[1].from), (2, 101));
        assert_eq!(log.epochs[1].concerns, [Concern::Scheduler, Concern::Network]);
        for arm in [Arm::Profile, Arm::OneFault, Arm::Input, Arm::Fresh] {
            assert!(branch(&from, arm, &mut dice).is_none(), "{arm:?}");
        }
        from.faults = Arc::new(vec![fault(0, 50), fault(1, 150)]);
        let log = branch(&from, Arm::OneFault, &mut dice).expect("possible");
        assert_eq!(log.overrides.keys().collect::<Vec<_>>(), [&fault(1, 150).happens]);
        assert_eq!(log.epochs, [before]);
    }

    #[test]
    fn an_input_is_changed_by_its_name() {
        let mut from = state(1, &[]);
        from.at = 100;
        let choice = |nth| Choice { part: Part::Run, site: Site::ClientRandom { nth } };
        from.draws = Arc::new(vec![(choice(1), 120), (choice(2), 130)]);
        let log = branch(&from, Arm::Input, &mut Dice::new(1)).expect("possible");
        let (changed, to) = log.overrides.iter().next().expect("one");
        assert!([choice(1), choice(2)].contains(changed) && to.value < to.bound);
        assert_eq!(log.epochs, []);
    }
}
