//! Tests of [`Decisions`] as a whole.

use super::*;

fn arrival(nth: u64) -> Site {
    Site::Arrival { worker: 0, nth }
}

fn turn(nth: u64) -> Site {
    Site::Turn { node: 1, life: 0, task: Lineage::root(0), nth, part: TurnPart::Who }
}

fn run(site: Site) -> Choice {
    Choice { part: Part::Run, site }
}

/// A replay, in its run.
fn replayed(log: Log, mode: Mode) -> Decisions {
    let seed = log.seed;
    let mut decisions = Decisions::new(log, mode);
    decisions.begin_run(seed);
    decisions
}

#[test]
fn a_choice_depends_on_its_seed_and_its_site_only() {
    let (mut a, mut b) = (Decisions::seeded(7), Decisions::seeded(7));
    let forth: Vec<u64> = (0..100).map(|nth| a.choose(arrival(nth), 1000)).collect();
    let back: Vec<u64> = (0..100).rev().map(|nth| b.choose(arrival(nth), 1000)).collect();
    assert!(forth.iter().eq(back.iter().rev()), "{forth:?} {back:?}");
    let other: Vec<u64> = (0..100).map(|nth| Decisions::seeded(8).choose(arrival(nth), 1000)).collect();
    assert_ne!(forth, other);
    assert_ne!(a.trail(), b.trail(), "the order of choices is part of the trail");
}

#[test]
fn the_seeds_of_boot_and_run_are_two() {
    let mut decisions = Decisions::new(Log::new(1, 2), Mode::Strict);
    let boot = decisions.choose(turn(0), WORD);
    decisions.begin_run(2);
    assert_eq!(boot, Decisions::seeded(1).choose(turn(0), WORD));
    assert_eq!(decisions.choose(turn(0), WORD), Decisions::seeded(2).choose(turn(0), WORD));
}

/// Chi-squared over neighbouring sites and seeds, as runs have them.
#[test]
fn values_are_uniform() {
    for bound in [2, 3, 6, 10, 48, 1000] {
        let mut counts = vec![0u64; bound as usize];
        let draws = bound * 2_000;
        for draw in 0..draws {
            let mut decisions = Decisions::seeded(draw % 50);
            counts[decisions.choose(turn(draw / 50), bound) as usize] += 1;
        }
        let square: u64 = counts.iter().map(|n| n.abs_diff(2_000).pow(2)).sum();
        // The expectation of the statistic is `bound - 1`, its variance twice that: six standard deviations above.
        let freedom = bound - 1;
        let limit = freedom + 6 * (2 * freedom).isqrt() + 12;
        assert!(square / 2_000 <= limit, "bound {bound}: {} above {limit}: {counts:?}", square / 2_000);
    }
}

#[test]
fn chances_meet_their_rates_and_certainty_asks_nothing() {
    let mut d = Decisions::seeded(1);
    let hits = (0..100_000).filter(|nth| d.chance(arrival(*nth), 250_000_000)).count();
    assert!((24_000..26_000).contains(&hits), "{hits}");
    let before = d.trail();
    assert!(!d.chance(arrival(0), 0) && d.chance(arrival(0), 1_000_000_000));
    assert_eq!(before, d.trail());
}

#[test]
fn zero_is_the_plain_choice() {
    let log = |site, bound| Log::new(0, 1).with(run(site), bound, 0);
    assert!(!replayed(log(arrival(0), WHOLE), Mode::Strict).chance(arrival(0), 999_999_999));
    assert_eq!(replayed(log(arrival(0), 11), Mode::Strict).between(arrival(0), 5, 15), 5);
}

#[test]
fn a_strict_replay_tells_of_overrides_that_do_not_fit() {
    let log =
        Log::new(0, 1).with(run(arrival(0)), 10, 9).with(run(arrival(1)), 10, 9).with(run(arrival(2)), 10, 9);
    let mut decisions = replayed(log.clone(), Mode::Strict);
    assert_eq!(decisions.choose(arrival(0), 10), 9);
    let drawn = decisions.choose(arrival(1), 5);
    let recorded = Override { bound: 10, value: 9 };
    let asked = Some(Override { bound: 5, value: drawn });
    let misfit = Divergence { choice: run(arrival(1)), recorded, asked };
    let unasked = Divergence { choice: run(arrival(2)), recorded, asked: None };
    assert_eq!(decisions.divergences(), [misfit, unasked]);
    assert_eq!(
        unasked.to_string(),
        "the choice run:arrival(worker=0,nth=2) is recorded as 9 of 10, but was never asked for"
    );
    let mut decisions = replayed(log, Mode::Lenient);
    assert_eq!((decisions.choose(arrival(0), 10), decisions.choose(arrival(1), 5)), (9, 0));
    assert_eq!(decisions.divergences(), []);
}

/// A choice of which there is only one left is a misfit too.
#[test]
fn a_strict_replay_tells_of_a_choice_that_is_none_any_more() {
    let mut decisions = replayed(Log::new(0, 1).with(run(arrival(0)), 10, 0), Mode::Strict);
    assert_eq!(decisions.choose(arrival(0), 1), 0);
    assert_eq!(decisions.divergences().len(), 1);
}

#[test]
fn an_epoch_gives_its_concerns_another_seed_from_its_time_on() {
    let mut decisions = Decisions::seeded(1);
    let log = Log { epochs: vec![epoch(100, 2)], ..Log::new(1, 1) };
    decisions.go_on(log, Mode::Lenient, 99, |_| true).expect("it is about later times");
    assert!(!decisions.epoch_is_due(99) && decisions.epoch_is_due(100));
    assert_eq!(decisions.choose(arrival(0), WORD), Decisions::seeded(1).choose(arrival(0), WORD));
    assert_eq!(decisions.next_epoch(), Some(epoch(100, 2)));
    assert!(!decisions.epoch_is_due(u64::MAX));
    assert_eq!(decisions.choose(arrival(1), WORD), Decisions::seeded(2).choose(arrival(1), WORD));
    assert_eq!(decisions.choose(turn(1), WORD), Decisions::seeded(1).choose(turn(1), WORD));
    // One that began in the boot goes on in the run.
    decisions.begin_run(5);
    assert_eq!(decisions.choose(arrival(1), WORD), Decisions::seeded(2).choose(arrival(1), WORD));
    assert_eq!(decisions.choose(turn(1), WORD), Decisions::seeded(5).choose(turn(1), WORD));
}

#[test]
fn a_log_is_read_back_and_others_are_refused() {
    let mut log = Log::new(3, 4).with(run(turn(1)), 10, 9);
    log.epochs.push(Epoch { from: 6, seed: 6, concerns: vec![Concern::Faults, Concern::GuestRandom] });
    let text = serde_json::to_string(&log).expect("JSON");
    let back: Log = serde_json::from_str(&text).expect("a log");
    assert_eq!(back, log, "{text}");
    for (from, to, why) in [
        ("\"version\":4", "\"version\":3", "has version 3"),
        ("run:turn", "turn", "begins with neither"),
        ("guest-random", "guest", "is no concern"),
        ("\"seed\":4", "\"seed\":-4", "-4"),
    ] {
        let error = serde_json::from_str::<Log>(&text.replace(from, to)).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn whoever_listens_hears_of_each_choice() {
    let mut decisions = Decisions::seeded(1);
    decisions.choose(turn(0), 5);
    decisions.listen(true);
    let value = decisions.choose(turn(1), 5);
    decisions.choose(turn(2), 1);
    assert_eq!(
        decisions.take_made(),
        [Made { choice: run(turn(1)), bound: 5, value, plain: value == 0, at: 0 }]
    );
    assert_eq!(decisions.take_made(), []);
}

#[test]
fn what_does_not_happen_is_plain_whatever_was_drawn() {
    let mut decisions = Decisions::seeded(1);
    decisions.listen(true);
    decisions.tell_time(7);
    let happened: Vec<bool> = (0..200).map(|nth| decisions.chance(turn(nth), 100_000_000)).collect();
    let made = decisions.take_made();
    assert!(happened.contains(&true) && happened.contains(&false));
    assert!(made.iter().any(|made| made.plain && made.value != 0));
    assert_eq!(made.iter().map(|made| !made.plain).collect::<Vec<bool>>(), happened);
    assert!(made.iter().all(|made| made.at == 7));
}

#[test]
fn random_bytes_are_one_choice() {
    let mut decisions = Decisions::seeded(1);
    decisions.listen(true);
    let (mut short, mut long) = ([0; 5], [0; 4096]);
    decisions.bytes(turn(0), &mut short);
    decisions.bytes(turn(0), &mut long);
    assert_eq!(short, long[..5]);
    assert_eq!(decisions.take_made().len(), 2);
    let ones: u32 = long.iter().map(|byte| byte.count_ones()).sum();
    assert!((16_384 - 600..16_384 + 600).contains(&ones), "{ones} ones");
}

#[test]
fn a_plain_concern_has_its_overrides_and_nothing_else() {
    let mut log = Log::new(1, 2).with(run(turn(3)), 10, 7);
    log.plain = vec![Concern::Scheduler];
    let text = serde_json::to_string(&log).expect("it has a form");
    assert_eq!(serde_json::from_str::<Log>(&text).expect("it can be read"), log);
    let mut decisions = Decisions::new(log.clone(), Mode::Lenient);
    let drawn = Decisions::seeded(1).choose(turn(0), WORD);
    assert_eq!(decisions.choose(turn(0), WORD), drawn, "the boot is as it was");
    decisions.begin_run(2);
    let turns: Vec<u64> = (0..6).map(|nth| decisions.choose(turn(nth), 10)).collect();
    assert_eq!(turns, [0, 0, 0, 7, 0, 0]);
    assert_eq!(decisions.choose(arrival(0), WORD), Decisions::seeded(2).choose(arrival(0), WORD));
}

#[test]
fn what_no_seed_draws_is_said_by_a_log_or_by_nobody() {
    let mut silent = replayed(Log::new(0, 1).with(run(arrival(5)), 9, 0), Mode::Strict);
    let trail = silent.trail();
    assert_eq!(silent.said(arrival(1), 2), None);
    assert_eq!(silent.trail(), trail, "nothing was asked");
    let log = Log::new(0, 1).with(run(arrival(1)), 2, 0);
    let mut told = replayed(log.clone(), Mode::Strict);
    assert_eq!(told.divergences().len(), 1, "not asked for yet");
    assert_eq!((told.said(arrival(1), 2), told.said(arrival(2), 2)), (Some(0), None));
    assert_eq!(told.divergences(), []);
    assert_ne!(told.trail(), replayed(log.clone(), Mode::Strict).trail());
    let mut other = replayed(log.clone(), Mode::Strict);
    other.said(arrival(1), 3);
    assert_eq!(other.divergences().len(), 1, "another bound");
    assert_eq!(replayed(log, Mode::Lenient).said(arrival(1), 3), None);
}

/// A run that goes on by another log draws what that says of later times, and nothing else changes.
#[test]
fn a_run_goes_on_by_a_log_about_later_times() {
    let base = Log { epochs: vec![epoch(10, 2), epoch(50, 3)], ..Log::new(1, 1) };
    let base = base.with(run(arrival(0)), 10, 4).with(run(arrival(1)), 10, 5);
    let mut decisions = replayed(base.clone(), Mode::Lenient);
    assert_eq!(decisions.choose(arrival(0), 10), 4);
    decisions.next_epoch();
    let drawn = decisions.clone().choose(arrival(2), WORD);
    let mut log = Log { epochs: vec![epoch(10, 2), epoch(41, 9)], ..base.clone() };
    log.overrides.remove(&run(arrival(1)));
    let log = log.with(run(arrival(3)), 10, 7);
    let may_come = |choice: &Choice| !matches!(choice.site, Site::Swarm { .. });
    decisions.go_on(log.clone(), Mode::Lenient, 40, may_come).expect("it is about later times");
    assert_eq!(decisions.choose(arrival(2), WORD), drawn, "the epoch that has begun goes on");
    assert_eq!(decisions.choose(arrival(3), 10), 7);
    assert!(decisions.epoch_is_due(41) && !decisions.epoch_is_due(40));
    assert_eq!(**decisions.log(), log);
    let refused = |log: Log, why: &str| {
        let error = decisions.clone().go_on(log, Mode::Lenient, 40, may_come).expect_err(why);
        assert!(error.contains(why), "{why}: {error}");
    };
    refused(Log { seed: 2, ..log.clone() }, "another seed");
    refused(Log { epochs: vec![epoch(11, 2)], ..log.clone() }, "have begun");
    refused(Log { epochs: vec![epoch(10, 2), epoch(40, 2)], ..log.clone() }, "already");
    refused(Log { plain: vec![Concern::Disk], ..log.clone() }, "plain");
    refused(log.clone().with(run(arrival(0)), 10, 3), "has been made");
    refused(log.with(run(Site::Swarm { kind: Word::new("drop") }), 6, 0), "has been made");
}

/// What was chosen stays, also where the log says something else of it by now: whoever asks for that knows that it is all the same.
#[test]
fn a_run_turns_to_a_log_that_gives_the_same_run_until_now() {
    let base = Log { epochs: vec![epoch(10, 2)], ..Log::new(1, 1) }.with(run(arrival(0)), 10, 4);
    let mut decisions = replayed(base.clone(), Mode::Lenient);
    assert_eq!(decisions.choose(arrival(0), 10), 4);
    decisions.next_epoch();
    let log = base.with(run(arrival(0)), 10, 3).with(run(arrival(1)), 10, 7);
    for (other, why) in [
        (Log { seed: 2, ..log.clone() }, "another seed"),
        (Log { epochs: Vec::new(), ..log.clone() }, "have begun"),
        (Log { plain: vec![Concern::Disk], ..log.clone() }, "plain"),
        (Log { switches: Some(Vec::new()), ..log.clone() }, "switches"),
    ] {
        let error = decisions.clone().turn_to(other, Mode::Lenient, 40).expect_err(why);
        assert!(error.contains(why), "{why}: {error}");
    }
    decisions.turn_to(log.clone(), Mode::Lenient, 40).expect("the same until now");
    assert_eq!(decisions.choose(arrival(1), 10), 7);
    assert_eq!(**decisions.log(), log);
}

/// Time goes on in steps: a moment may lie behind the time of an epoch that begins with the next step.
#[test]
fn an_epoch_whose_time_has_come_may_begin_with_the_next_step() {
    let base = Log { epochs: vec![epoch(10, 2), epoch(38, 3)], ..Log::new(1, 1) };
    let mut decisions = replayed(base.clone(), Mode::Lenient);
    decisions.next_epoch();
    let at_40 = |log: Log| decisions.clone().go_on(log, Mode::Lenient, 40, |_| true);
    assert_eq!(at_40(base.clone()), Ok(()));
    let later = |more: Epoch| Log { epochs: [base.epochs.clone(), vec![more]].concat(), ..base.clone() };
    assert_eq!(at_40(later(epoch(41, 4))), Ok(()));
    // It has not begun, so a run without it is the same up to here.
    assert_eq!(at_40(Log { epochs: vec![epoch(10, 2)], ..base.clone() }), Ok(()));
    for log in [
        later(epoch(39, 4)),
        Log { epochs: vec![epoch(10, 2), epoch(38, 4)], ..base.clone() },
        Log { epochs: vec![epoch(10, 2), epoch(37, 4), epoch(38, 3)], ..base.clone() },
    ] {
        assert!(at_40(log).is_err_and(|why| why.contains("already")));
    }
}

/// Loops that were found stay, and so do switches that have been drawn.
#[test]
fn what_a_run_has_learnt_stays_when_it_goes_on() {
    let counted = |step| CountedLoop { step, place: "a+1".into(), straight: 0, endless: false };
    let mut decisions = replayed(Log::new(1, 1), Mode::Lenient);
    decisions.count_loop(counted(7));
    decisions.set_switches(Vec::new());
    let log = Log { counted: vec![counted(9)], ..Log::new(1, 1) };
    decisions.go_on(log, Mode::Lenient, 40, |_| true).expect("a log");
    assert_eq!(decisions.log().counted, [counted(7), counted(9)]);
    assert_eq!(decisions.log().switches, Some(Vec::new()));
}

fn epoch(from: u64, seed: u64) -> Epoch {
    Epoch { from, seed, concerns: vec![Concern::Workload] }
}
