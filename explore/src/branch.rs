//! The log of a run that goes on from a state: that of the state's run, with other choices from its moment on.

use std::sync::Arc;

use bloodhound_decisions::{Choice, Concern, Dice, Epoch, FaultChain, LATER, Log, Site, WORD, Word};

use crate::arms::{Arm, pick};
use crate::features::Features;
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
/// Of the faults that come next, one of the first so many is left out or moved.
const FAULTS: u64 = 8;
/// A fault is added, or moved, by a millisecond to two, by two to four, and so on: so many spans, each as likely as the others. What goes wrong only shortly
/// after something is met as often as what goes wrong long after it.
const SPANS: u64 = 12;
const MILLIS: u64 = 1_000_000;

/// What is run instead of a state's own run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branched {
    /// The log.
    pub(crate) log: Arc<Log>,
    /// The moment up to which it is the state's run.
    pub(crate) at: u64,
}

/// Whether there is anything to do for an arm at a state. `chains`: what may be added.
pub(crate) fn is_possible(arm: Arm, state: &State, chains: &[FaultChain]) -> bool {
    match arm {
        Arm::Fresh => false,
        Arm::Profile => state.is_ready,
        // At the beginning that is what `Profile` does.
        Arm::Future => !state.is_ready,
        Arm::Faults | Arm::Timing | Arm::Operations => true,
        Arm::OneFault | Arm::MoveFault => state.faults.iter().any(|fault| fault.at > state.at),
        Arm::Input => !state.draws.is_empty(),
        Arm::AddFault => !chains.is_empty(),
    }
}

/// The concerns that an arm draws anew.
fn concerns(arm: Arm) -> &'static [Concern] {
    match arm {
        Arm::Fresh | Arm::Input | Arm::OneFault | Arm::MoveFault => &[],
        Arm::Profile | Arm::Future => &Concern::OF_RUN,
        Arm::Faults => &[Concern::Disk, Concern::Faults],
        Arm::AddFault => &[Concern::Faults],
        Arm::Timing => &[Concern::Scheduler, Concern::Network],
        Arm::Operations => &[Concern::Workload],
    }
}

/// A time of one of the spans, ns.
fn a_while(dice: &mut Dice) -> u64 {
    let span = MILLIS << dice.below(SPANS);
    span + dice.below(span)
}

/// One of the faults that come next at a state.
fn next_fault(state: &State, dice: &mut Dice) -> Option<Planned> {
    let next: Vec<&Planned> = state.faults.iter().filter(|fault| fault.at > state.at).collect();
    next.get(dice.below((next.len() as u64).clamp(1, FAULTS)) as usize).copied().copied()
}

/// A run that goes on from a state by an arm. `None`: the arm is not possible there.
pub(crate) fn branch(
    state: &State,
    arm: Arm,
    (chains, features): (&[FaultChain], &Features),
    dice: &mut Dice,
) -> Option<Branched> {
    if !is_possible(arm, state, chains) {
        return None;
    }
    let at = match arm {
        // Behind what was seen, which is before the state, or behind the state itself.
        Arm::AddFault if !state.events.is_empty() => {
            state.events[dice.below(state.events.len() as u64) as usize].saturating_add(a_while(dice))
        }
        Arm::AddFault => {
            let rarities: Vec<u64> =
                state.features.iter().map(|feature| features.rarity_of(*feature)).collect();
            let came = pick(&rarities, dice).and_then(|place| state.came.get(place).copied());
            came.unwrap_or(state.at).saturating_add(a_while(dice))
        }
        _ => state.at,
    };
    let mut log = (*state.log).clone();
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
            let fault = next_fault(state, dice)?;
            log = log.with(fault.happens, fault.bound, 0);
        }
        Arm::MoveFault => {
            let mut choice = next_fault(state, dice)?.happens;
            if let Site::Fault { part, .. } = &mut choice.site {
                *part = Word::new(LATER);
            }
            log = log.with(choice, WORD, a_while(dice));
        }
        _ => {
            let concerns = concerns(arm).to_vec();
            let from = at.saturating_add(1);
            if arm == Arm::AddFault {
                log.overrides.extend(chains.get(dice.below(chains.len() as u64) as usize)?.begins(from));
            }
            log.epochs.push(Epoch { from, seed: dice.word(), concerns });
        }
    }
    Some(Branched { log: Arc::new(log), at })
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
        let log = branch(&from, Arm::Timing, (&[], &Features::default()), &mut dice).expect("possible").log;
        assert_eq!((log.seed, log.boot_seed), (2, 1));
        assert_eq!(log.epochs[0], before);
        assert_eq!((log.epochs.len(), log.epochs[1].from), (2, 101));
        assert_eq!(log.epochs[1].concerns, [Concern::Scheduler, Concern::Network]);
        for arm in [Arm::Profile, Arm::OneFault, Arm::MoveFault, Arm::AddFault, Arm::Input, Arm::Fresh] {
            assert!(branch(&from, arm, (&[], &Features::default()), &mut dice).is_none(), "{arm:?}");
        }
        from.faults = Arc::new(vec![fault(0, 50), fault(1, 150)]);
        let log = branch(&from, Arm::OneFault, (&[], &Features::default()), &mut dice).expect("possible").log;
        assert_eq!(log.overrides.keys().collect::<Vec<_>>(), [&fault(1, 150).happens]);
        assert_eq!(log.epochs, [before]);
        let log =
            branch(&from, Arm::MoveFault, (&[], &Features::default()), &mut dice).expect("possible").log;
        let (moved, by) = log.overrides.first_key_value().expect("one");
        assert!(
            moved.to_string().contains("later") && (MILLIS..MILLIS << SPANS).contains(&by.value),
            "{moved}"
        );
    }

    /// As often within eight milliseconds of what was seen as after a second.
    #[test]
    fn a_fault_is_added_soon_after_what_was_seen() {
        let mut from = state(1, &[]);
        let mut features = Features::default();
        features.add(64);
        from.features = vec![64];
        (from.at, from.came) = (5_000 * MILLIS, vec![4_000 * MILLIS]);
        let gap = |target| Site::Fault { kind: Word::new("crash"), target, nth: 0, part: Word::new("gap") };
        let chains: Vec<FaultChain> = (1..=3).map(|target| FaultChain::new(gap(target), None)).collect();
        let (mut dice, mut soon, mut late, mut hit) = (Dice::new(9), 0, 0, std::collections::BTreeSet::new());
        for _ in 0..400 {
            let Branched { log, at } =
                branch(&from, Arm::AddFault, (&chains, &features), &mut dice).expect("possible");
            assert_eq!((log.epochs[0].from, &log.epochs[0].concerns), (at + 1, &vec![Concern::Faults]));
            let (first, to) = log.overrides.first_key_value().expect("one");
            assert_eq!((log.overrides.len(), to.value), (1, WORD - 1), "the soonest");
            let Site::Fault { target, nth, .. } = first.site else { panic!("{first}") };
            assert_eq!(nth, bloodhound_decisions::drawn_by_epoch(at + 1, 0));
            hit.insert(target);
            soon += u32::from(at < 4_008 * MILLIS);
            late += u32::from(at >= 5_024 * MILLIS);
        }
        assert!((60..140).contains(&soon) && (30..105).contains(&late), "{soon} {late}");
        assert_eq!(hit.len(), 3);
    }

    #[test]
    fn an_input_is_changed_by_its_name() {
        let mut from = state(1, &[]);
        from.at = 100;
        let choice = |nth| Choice { part: Part::Run, site: Site::ClientRandom { nth } };
        from.draws = Arc::new(vec![(choice(1), 120), (choice(2), 130)]);
        let log =
            branch(&from, Arm::Input, (&[], &Features::default()), &mut Dice::new(1)).expect("possible").log;
        let (changed, to) = log.overrides.iter().next().expect("one");
        assert!([choice(1), choice(2)].contains(changed) && to.value < to.bound);
        assert_eq!(log.epochs, []);
    }
}
