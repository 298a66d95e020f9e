//! What is drawn, and what a log changes of it.

use super::*;
use bloodhound_decisions::{Choice, Log, Mode, Part};

const MS: u64 = 1_000_000;

fn phases() -> Phases {
    Phases { begin: SimTime(500), end: SimTime(500 + 20_000 * MS), step: 10 * MS, ..Phases::default() }
}

fn profile() -> FaultSpec {
    FaultSpec::default()
        .with_rate(Kind::Crash, 1_000_000)
        .with_rate(Kind::Pause, 500_000)
        .with_rate(Kind::Partition, 3_000_000)
        .with_rate(Kind::Reset, 500_000)
        .with_rate(Kind::ClockJump, 2_000_000)
        .with_rate(Kind::ClockDrift, 1_000_000)
        .with_time(Kind::ClockSkew, (50 * MS, 50 * MS))
        .with_rate(Kind::LeapSecond, 1_000_000)
}

fn targets() -> Vec<NodeId> {
    (1..=3).map(NodeId).collect()
}

fn planned(profile: &FaultSpec, log: Log) -> Vec<Planned> {
    let seed = log.seed;
    let mut decisions = Decisions::new(log, Mode::Strict);
    decisions.begin_run(seed);
    let plan = draw(profile, Aim::plain(&targets()), phases(), false, &mut decisions);
    assert_eq!(decisions.divergences(), []);
    let plan = moved(plan, phases(), |_, _| true);
    plan.into_iter().map(|drawn| drawn.entry).collect()
}

/// The mean and the tail of the distribution, from a tenth to a millionth.
#[test]
fn gaps_are_geometric() {
    let mut dice = bloodhound_decisions::Dice::new(3);
    for (rate, mean) in [(500_000_000, 1.0), (100_000_000, 9.0), (1_000_000, 999.0), (1_000, 999_999.0)] {
        let gaps = Gaps::new(rate);
        let drawn: Vec<u64> = (0..20_000).filter_map(|_| gaps.failures(dice.word())).collect();
        let average = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        // The standard deviation of one is about its mean; five of that of the average.
        assert!((average - mean).abs() < 5.0 * (mean + 1.0) / 141.0, "{rate}: {average} instead of {mean}");
        let longer = drawn.iter().filter(|n| **n as f64 > 2.0 * mean + 1.0).count();
        assert!(longer > 800 && longer < 4_000, "{rate}: {longer} of 20000 are longer than twice the mean");
    }
    assert_eq!(Gaps::new(1_000_000_000).failures(5), Some(0), "a certain fault begins at every step");
    assert_eq!(Gaps::new(500_000_000).failures(0), None);
}

/// As many as trials at every step would give.
#[test]
fn rates_are_per_time_step_and_target() {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..1_000 {
        for entry in planned(&profile(), Log::new(0, seed)) {
            *counts.entry(entry.id.kind).or_insert(0u64) += 1;
            if entry.id.kind == Kind::ClockSkew {
                assert_eq!((entry.begin, entry.duration), (SimTime(500), 0));
                continue;
            }
            let (low, high) = profile().get(entry.id.kind).time;
            assert!((low..=high).contains(&entry.duration));
            assert!((entry.begin.0 - 500) % (10 * MS) == 0 && entry.begin < phases().end);
        }
    }
    // 1999 steps of a thousand seeds; three nodes.
    assert_eq!(counts[&Kind::ClockSkew], 3_000, "one for each node");
    for (kind, expected) in [
        (Kind::Crash, 5_997),
        (Kind::Pause, 2_998),
        (Kind::Partition, 5_997),
        (Kind::Reset, 1_000),
        (Kind::ClockJump, 11_994),
        (Kind::ClockDrift, 5_997),
        (Kind::LeapSecond, 1_999),
    ] {
        let spread = 5 * u64::isqrt(expected);
        assert!(counts[&kind].abs_diff(expected) < spread, "{kind}: {} instead of {expected}", counts[&kind]);
    }
}

#[test]
fn taking_one_out_changes_no_other() {
    for seed in 0..50 {
        let whole = planned(&profile(), Log::new(0, seed));
        for out in &whole {
            let choice = Choice { part: Part::Run, site: out.id.site("begins") };
            let less = planned(&profile(), Log::new(0, seed).with(choice, WORD, 0));
            let others: Vec<Planned> = whole.iter().filter(|entry| entry.id != out.id).cloned().collect();
            assert_eq!(less, others, "seed {seed} without {:?}", out.id);
        }
    }
}

#[test]
fn a_log_gives_one_another_time_and_no_other_one_moves() {
    for seed in 0..20 {
        let whole = planned(&profile(), Log::new(0, seed));
        for moved in whole.iter().filter(|entry| entry.id.kind != Kind::ClockSkew) {
            let choice = Choice { part: Part::Run, site: moved.id.site(BEGINS_AT) };
            for after in [0, 3, 19_999 * MS] {
                let other = planned(&profile(), Log::new(0, seed).with(choice, WORD, after));
                let expected = Planned { begin: SimTime(500 + after), ..moved.clone() };
                let mut all: Vec<Planned> = whole.clone();
                all.iter_mut()
                    .filter(|entry| entry.id == moved.id)
                    .for_each(|entry| *entry = expected.clone());
                sort(&mut all);
                assert_eq!(other, all, "seed {seed}, {:?} at {after}", moved.id);
            }
            let behind = planned(&profile(), Log::new(0, seed).with(choice, WORD, 20_000 * MS));
            assert!(behind.iter().all(|entry| entry.id != moved.id), "none begins when the phase is over");
        }
    }
}

/// A log that gives an entry another time lets its chain go on to the end that is configured. That counts as asked for even if the chain ends before it comes to the
/// entry, and an entry that an epoch draws is none of this chain.
#[test]
fn a_time_in_a_log_counts_where_no_chain_comes_to_the_entry() {
    let phases =
        Phases { end: SimTime(500 + 5_000 * MS), configured_end: SimTime(500 + 20_000 * MS), ..phases() };
    let profile = FaultSpec::default().with_rate(Kind::Crash, 1_000_000);
    let plan = |seed, moved: Option<u64>| {
        let log = moved.map_or(Log::new(0, seed), |nth| {
            let site = FaultId { kind: Kind::Crash, target: 1, nth }.site(BEGINS_AT);
            Log::new(0, seed).with(Choice { part: Part::Run, site }, WORD, 0)
        });
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(seed);
        let plan = draw(&profile, Aim::plain(&targets()), phases, false, &mut decisions);
        (plan.into_iter().map(|drawn| drawn.entry).collect::<Vec<_>>(), decisions.divergences().len())
    };
    let mut longer = 0;
    for seed in 0..20 {
        let (as_drawn, none) = plan(seed, None);
        assert_eq!(none, 0);
        let (of_another, never_asked) = plan(seed, Some(Epoch::at(9).numbered(0)));
        assert_eq!((of_another, never_asked), (as_drawn.clone(), 1), "seed {seed}");
        let (own, never_asked) = plan(seed, Some(1 << 20));
        assert_eq!(never_asked, 0, "seed {seed}");
        longer += usize::from(own.len() > as_drawn.len());
    }
    assert!(longer > 10, "{longer}");
}

/// Amounts and directions are those that are asked for, evenly.
#[test]
fn clocks_go_wrong_either_way_and_as_far_as_is_asked_for() {
    let (mut ahead, mut behind) = (0u64, 0u64);
    for seed in 0..300 {
        for entry in planned(&profile(), Log::new(0, seed)) {
            let (amount, (least, most)) = match &entry.fault {
                Fault::ClockJump(jump) => (jump.by, profile().get(Kind::ClockJump).size),
                Fault::ClockDrift(drift) => (drift.rate, profile().get(Kind::ClockDrift).size),
                Fault::ClockSkew(skew) => (skew.by, (1, 50 * MS)),
                _ => continue,
            };
            *if amount > 0 { &mut ahead } else { &mut behind } += 1;
            assert!((least..=most).contains(&amount.unsigned_abs()), "{:?}", entry.fault);
        }
    }
    assert!(ahead.abs_diff(behind) < 5 * (ahead + behind).isqrt(), "{ahead} {behind}");
}

/// What an epoch draws begins after it, at whole steps, at the same rates, and has names that nothing else has.
#[test]
fn an_epoch_draws_what_comes_after_it_by_names_of_its_own() {
    let now = SimTime(500 + 7_000 * MS + 3);
    let (first, second) = (Epoch::at(now.0), Epoch::at(now.0 + 5_000_000));
    assert_ne!(first.numbered(3), second.numbered(3));
    let id = FaultId { kind: Kind::Crash, target: 1, nth: first.numbered(3) };
    assert!(id.is_drawn_anew() && !id.is_written() && id.is_of_epoch(now.0));
    assert!(!id.is_of_epoch(now.0 + 5_000_000) && !FaultId { nth: 3, ..id }.is_drawn_anew());
    let (mut before, mut anew) = (0, 0);
    for seed in 0..200 {
        let mut decisions = Decisions::seeded(seed);
        let targets = targets();
        let aim = Aim::plain(&targets);
        let plan = draw(&profile(), aim, phases(), false, &mut decisions);
        before += plan.iter().filter(|drawn| drawn.entry.begin > now).count() as u64;
        let mut rest = draw(&profile(), aim, phases().anew(first, now), false, &mut decisions);
        rest.retain(|drawn| drawn.entry.begin > now);
        for Drawn { entry, .. } in &rest {
            assert!((entry.begin.0 - 500) % (10 * MS) == 0 && entry.id.is_drawn_anew(), "{entry:?}");
            assert!(plan.iter().all(|other| other.entry.id != entry.id));
        }
        anew += rest.len() as u64;
    }
    assert!(before.abs_diff(anew) < 5 * (before + anew).isqrt(), "{before} and {anew}");
}

#[test]
fn another_rate_of_one_kind_changes_no_other_kind() {
    let other = profile().with_rate(Kind::Crash, 9_000_000).with_time(Kind::Crash, (1, 2));
    let rest = |profile: &FaultSpec| {
        let plan = planned(profile, Log::new(0, 4)).into_iter();
        plan.filter(|entry| entry.id.kind != Kind::Crash).collect::<Vec<_>>()
    };
    assert_eq!(rest(&profile()), rest(&other));
}

/// A log that lets the phase end sooner still finds an entry that was drawn behind its end and begins before.
#[test]
fn one_that_was_drawn_behind_the_end_may_begin_before_it() {
    let cut = Phases { end: SimTime(500 + 5_000 * MS), configured_end: phases().end, ..phases() };
    let plan = |log: Log, phases: Phases| -> Vec<Planned> {
        let seed = log.seed;
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(seed);
        let drawn = draw(&profile(), Aim::plain(&targets()), phases, false, &mut decisions);
        assert_eq!(decisions.divergences(), []);
        moved(drawn, phases, |_, _| true).into_iter().map(|drawn| drawn.entry).collect()
    };
    let (whole, less) = (plan(Log::new(0, 3), phases()), plan(Log::new(0, 3), cut));
    let behind = whole.iter().find(|entry| entry.begin > cut.end).expect("one is behind");
    let choice = Choice { part: Part::Run, site: behind.id.site(BEGINS_AT) };
    let other = plan(Log::new(0, 3).with(choice, WORD, 3_000 * MS), cut);
    let mut expected = less.clone();
    expected.push(Planned { begin: SimTime(500 + 3_000 * MS), ..behind.clone() });
    sort(&mut expected);
    assert_eq!(other, expected);
    // What an epoch draws begins behind it, whatever the log says.
    let now = SimTime(500 + 7_000 * MS + 3);
    let anew = phases().anew(Epoch::at(now.0), now);
    let of_epoch = plan(Log::new(0, 3), anew);
    let one = of_epoch.iter().find(|entry| entry.id.kind == Kind::Crash).expect("a crash");
    let choice = Choice { part: Part::Run, site: one.id.site(BEGINS_AT) };
    let early = plan(Log::new(0, 3).with(choice, WORD, 0), anew);
    let early = early.iter().find(|entry| entry.id == one.id).expect("it is there");
    assert_eq!(early.begin, SimTime(500 + 7_010 * MS));
}
