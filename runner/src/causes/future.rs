//! Futures of a run: the same up to a moment, and everything drawn anew after it ([`future`]), or after one of its choices ([`after`]).
//!
//! Faults stay as they were planned, unless those that begin later are left out ([`Later`]). Concerns of which all is plain in the failing run (as in a
//! shrunken one) are drawn after the moment, too: what the run chose before stands in the log then. Where shrinking has ended the workload at the violation, clients
//! of futures go on after the moment, for they are what would notice.

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Choice, Concern, Epoch, Log, Made, Override, Part, Site, WORD};
use bloodhound_sim::faults::KEPT;
use bloodhound_workloads::http::{left_out, workload_end};

use super::runs::Base;
use crate::shrink::case::{self, is_said};

/// What is drawn anew: all but which faults are planned.
pub const ANEW: [Concern; 6] = [
    Concern::Scheduler,
    Concern::Network,
    Concern::Disk,
    Concern::GuestRandom,
    Concern::Workload,
    Concern::Nodes,
];
/// Futures have seeds that no campaign begins with: "caus" in ASCII and a number.
const SEEDS: u64 = 0x6361_7573_0000_0000;

/// What becomes of the faults that were planned for later than the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// They stay.
    Stay,
    /// They are left out.
    Out,
}

/// The `nth` future of a run after a moment.
pub fn future(base: &Base, at: SimTime, nth: u64, later: Later) -> Log {
    let before = base.choices.partition_point(|(time, _)| *time < at);
    let mut log = fork(of(base), &base.choices[..before], (at, nth), before);
    if later == Later::Out {
        leave_out(base, &mut log, at);
    }
    log
}

/// The `nth` future of a run after its first `kept` choices, which are the same.
pub fn after(base: &Base, kept: usize, nth: u64) -> Log {
    // The epoch begins when the world goes on from this time; until the first choice that is drawn anew, the log says what is chosen.
    let at = base.choices.get(kept).map_or(base.until, |(time, _)| *time);
    let earlier = base.choices[..kept].iter().rev().map(|(time, _)| *time).find(|time| *time < at);
    let from = earlier.unwrap_or(base.from).max(base.from);
    let named = base.choices.partition_point(|(time, _)| *time < from);
    fork(of(base), &base.choices[..kept], (from, nth), named.min(kept))
}

/// The log of the failing run, and when its workload began.
fn of(base: &Base) -> (&Log, SimTime) {
    (&base.log, case::ready(&base.ran.outcome))
}

/// A log with an epoch, before which the run is the same. Of the choices that are `kept` those from place `named` on stand in the log, and those before where the
/// run's own seed does not give them.
fn fork(
    (of, begun): (&Log, SimTime),
    kept: &[(SimTime, Made)],
    (from, nth): (SimTime, u64),
    named: usize,
) -> Log {
    let mut log = of.clone();
    let plain: BTreeSet<Concern> =
        log.plain.iter().copied().filter(|concern| ANEW.contains(concern)).collect();
    log.plain.retain(|concern| !plain.contains(concern));
    let of_run = |choice: &Choice| choice.part == Part::Run && ANEW.contains(&choice.site.concern());
    // What ends the workload behind the moment is no part of what went before.
    let is_later = |choice: &Choice, value: u64| choice.site == workload_end() && begun.after(value) > from;
    let mut old = std::mem::take(&mut log.overrides);
    old.retain(|choice, said| !is_later(choice, said.value));
    log.overrides = old
        .iter()
        .filter(|(choice, recorded)| !of_run(choice) || is_said(choice, **recorded) && !is_operation(choice))
        .map(|(choice, recorded)| (*choice, *recorded))
        .collect();
    for (place, (_, made)) in kept.iter().enumerate() {
        let needed =
            place >= named || plain.contains(&made.choice.site.concern()) || old.contains_key(&made.choice);
        if of_run(&made.choice) && needed && !is_later(&made.choice, made.value) {
            let value = Override { bound: made.bound, value: made.value };
            log.overrides.entry(made.choice).or_insert(value);
        }
    }
    for epoch in log.epochs.iter_mut().filter(|epoch| epoch.from >= from.0) {
        epoch.concerns.retain(|concern| !ANEW.contains(concern));
    }
    let before = log.epochs.iter().take_while(|epoch| epoch.from <= from.0).count();
    let epoch = Epoch { from: from.0, seed: SEEDS.wrapping_add(nth), concerns: ANEW.to_vec() };
    log.epochs.insert(before, epoch);
    log
}

/// Whether it says that an operation is left out. After the moment clients do what they do, those of a shrunken finding, too.
pub fn is_operation(choice: &Choice) -> bool {
    matches!(choice.site, Site::Operation { worker, nth, .. } if choice.site == left_out(worker, nth))
}

/// Leaves out the faults that begin at a time or later.
fn leave_out(base: &Base, log: &mut Log, at: SimTime) {
    let outcome = &base.ran.outcome;
    let schedule = outcome.scenario.planning.schedule.iter().enumerate();
    let begun: BTreeMap<_, SimTime> = outcome.record().map(|(entry, _)| (entry.id, entry.begin)).collect();
    let written = schedule.map(|(place, scheduled)| scheduled.id(place));
    let drawn = outcome.plan.iter().filter(|entry| !entry.id.is_written());
    let drawn = drawn.filter(|entry| entry.begin >= at).map(|entry| entry.id);
    // One that is written and waits for something has not begun yet.
    let written = written.filter(|id| begun.get(id).is_none_or(|begin| *begin >= at));
    for id in drawn.chain(written) {
        let bound = if id.is_written() { KEPT } else { WORD };
        let choice = Choice { part: Part::Run, site: id.site("begins") };
        log.overrides.insert(choice, Override { bound, value: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_run(site: Site) -> Choice {
        Choice { part: Part::Run, site }
    }

    fn arrival(nth: u64) -> Choice {
        in_run(Site::Arrival { worker: 0, nth })
    }

    fn made(at: u64, choice: Choice, value: u64) -> (SimTime, Made) {
        (SimTime(at), Made { choice, bound: 9, value, plain: value == 0, at })
    }

    #[test]
    fn what_comes_after_the_epoch_is_drawn_anew_and_nothing_before() {
        let policy = in_run(Site::Policy { part: bloodhound_decisions::PolicyPart::Order });
        let mut log = Log::new(1, 2).with(arrival(0), 9, 4).with(arrival(5), 9, 5);
        log.plain = vec![Concern::Scheduler, Concern::Faults];
        let out = in_run(left_out(3, 0));
        let late = in_run(left_out(3, 9));
        log = log.with(out, WORD, 7).with(late, WORD, 7);
        let anew = ANEW.to_vec();
        log.epochs = vec![
            Epoch { from: 5, seed: 8, concerns: vec![Concern::Network] },
            Epoch { from: 50, seed: 9, concerns: vec![Concern::Network, Concern::Faults] },
        ];
        let kept = [made(1, policy, 0), made(2, arrival(0), 4), made(3, out, 7), made(4, arrival(1), 6)];
        let fork = |named| fork((&log, SimTime(1)), &kept, (SimTime(20), 3), named);
        let all = fork(4);
        assert_eq!(all.plain, [Concern::Faults], "what was plain is named, or drawn");
        // What stands in the log, was plain or is said; the rest comes by the seed.
        assert_eq!(
            all.overrides.keys().copied().collect::<BTreeSet<_>>(),
            BTreeSet::from([policy, arrival(0), out])
        );
        let seeds: Vec<(u64, u64)> = all.epochs.iter().map(|epoch| (epoch.from, epoch.seed)).collect();
        assert_eq!(seeds, [(5, 8), (20, SEEDS + 3), (50, 9)]);
        assert_eq!((&all.epochs[1].concerns, &all.epochs[2].concerns), (&anew, &vec![Concern::Faults]));
        // The last one of them was made after the epoch had begun.
        let named = fork(3);
        assert_eq!(named.overrides.get(&arrival(1)), Some(&Override { bound: 9, value: 6 }));
    }

    #[test]
    fn a_workload_that_ends_at_the_violation_goes_on_in_futures() {
        let end = in_run(workload_end());
        // It began at 5 and ends at 25, at the violation.
        let log = Log::new(1, 2).with(end, WORD, 20);
        let kept = [(SimTime(5), Made { choice: end, bound: WORD, value: 20, plain: false, at: 5 })];
        let from = |at: u64, named| fork((&log, SimTime(5)), &kept, (SimTime(at), 0), named);
        for named in [0, 1] {
            assert!(!from(10, named).overrides.contains_key(&end), "it goes on");
            assert!(!from(24, named).overrides.contains_key(&end), "it goes on");
        }
        assert!(from(25, 1).overrides.contains_key(&end), "it was over before");
    }
}
