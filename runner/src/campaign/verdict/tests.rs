//! The rule over every combination of what can come of a campaign.

use bloodhound_abi::SimTime;

use super::*;
use crate::campaign::print;
use crate::campaign::totals::Unjudged;
use crate::judge::{Exercise, Judged, Unit};
use crate::junit;
use crate::regress::judge::{Judged as JudgedCase, Verdict as OfCase};
use crate::regress::ledger::Standing;
use crate::session::Violation;

fn properties(count: usize) -> Vec<Title> {
    let property = |n| Title {
        name: format!("p{n}"),
        kind: if n == 0 { "safety" } else { "liveness" }.to_owned(),
        line: 10 + n as u32,
    };
    (0..count).map(property).collect()
}

fn exercise(worked: u64) -> Exercise {
    let first = Some("connection refused".to_owned());
    Exercise { unit: Unit::Operations, tried: 745, worked, lacking: None, first }
}

fn found(seed: u64, index: Option<usize>) -> Found {
    let name = index.map_or_else(|| "hang".to_owned(), |i| format!("p{i}"));
    let violation = Violation {
        index,
        property: name,
        kind: if index.is_some() { "safety" } else { "hang" }.to_owned(),
        at: SimTime(1_000_000_000),
        text: "it does <not> hold\nreally".to_owned(),
    };
    let kept = if seed == 0 { Ok("out/f".into()) } else { Err("no space".to_owned()) };
    Found {
        number: seed,
        seed,
        name: format!("seed {seed}"),
        branched: None,
        violation,
        digest: "0".into(),
        profile: "none".into(),
        faults: Vec::new(),
        kept,
        live: false,
        standing: Standing::New,
    }
}

/// What a seed may come to, with what it says about each of two properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seed {
    Good,
    Idle,
    Violates,
    Undecided,
    Hangs,
    Unsupported,
    UnsupportedAfterViolation,
    Host,
    Bug,
    Interrupted,
    TimedOut,
}

const SEEDS: [Seed; 11] = [
    Seed::Good,
    Seed::Idle,
    Seed::Violates,
    Seed::Undecided,
    Seed::Hangs,
    Seed::Unsupported,
    Seed::UnsupportedAfterViolation,
    Seed::Host,
    Seed::Bug,
    Seed::Interrupted,
    Seed::TimedOut,
];

fn add(totals: &mut Totals, number: u64, seed: Seed) {
    let violated = Judged::Violated(SimTime(1), "no".into());
    let judged = match seed {
        Seed::Good => vec![Judged::Held(exercise(10)); 2],
        Seed::Idle => vec![Judged::Held(exercise(0)), Judged::Held(exercise(10))],
        Seed::Violates => vec![violated, Judged::Held(exercise(10))],
        Seed::Undecided => vec![Judged::Undecided("out of budget".into()), Judged::Held(exercise(1))],
        Seed::UnsupportedAfterViolation => vec![violated, Judged::Unfinished],
        Seed::Hangs | Seed::Unsupported => vec![Judged::Unfinished; 2],
        Seed::Host | Seed::Bug | Seed::Interrupted | Seed::TimedOut => Vec::new(),
    };
    let unjudged = match seed {
        Seed::Good | Seed::Idle | Seed::Violates | Seed::Undecided | Seed::Hangs => None,
        Seed::Unsupported | Seed::UnsupportedAfterViolation => Some(Unjudged::Unsupported("semget".into())),
        Seed::Host => Some(Unjudged::Host("the stub was killed".into())),
        Seed::Bug => Some(Unjudged::Bug("2 + 2 = 5\n  at x.rs:1".into())),
        Seed::Interrupted => Some(Unjudged::Interrupted),
        Seed::TimedOut => Some(Unjudged::TimedOut),
    };
    match unjudged {
        Some(why) => {
            totals.unjudged.insert(number, why);
        }
        None => totals.judged += 1,
    }
    for (index, judged) in judged.iter().enumerate() {
        totals.properties[index].add(number, judged);
        if let Judged::Violated(..) = judged {
            totals.findings.push(found(number, Some(index)));
        }
    }
    if seed == Seed::Hangs {
        totals.findings.push(found(number, None));
    }
}

/// Codes that something in it stands for, written down once more.
fn expected(seeds: &[Seed], totals: &Totals) -> u8 {
    let any = |kinds: &[Seed]| seeds.iter().any(|s| kinds.contains(s));
    let trouble = |code| totals.troubles.iter().any(|t| t.code == code);
    if any(&[Seed::Bug]) || trouble(exit::BUG) {
        return exit::BUG;
    }
    if any(&[Seed::Violates, Seed::Hangs, Seed::UnsupportedAfterViolation]) {
        return exit::FINDINGS;
    }
    if any(&[Seed::Unsupported]) || trouble(exit::UNSUPPORTED) {
        return exit::UNSUPPORTED;
    }
    if any(&[Seed::Host]) || trouble(exit::ENVIRONMENT) {
        return exit::ENVIRONMENT;
    }
    if any(&[Seed::Interrupted]) || totals.interrupted {
        return exit::INTERRUPTED;
    }
    let exercised = any(&[Seed::Good]);
    if any(&[Seed::Undecided, Seed::TimedOut]) || !exercised || totals.judged < totals.least {
        return exit::INCONCLUSIVE;
    }
    if totals.least_coverage.is_some_and(|least| totals.coverage < least) {
        return exit::COVERAGE;
    }
    exit::PASS
}

/// Every way in which a campaign may end, over every three seeds.
fn campaigns(mut judge: impl FnMut(&[Seed], &Totals)) {
    let mut lists: Vec<Vec<Seed>> = vec![Vec::new()];
    for length in 0..3 {
        let longer: Vec<Vec<Seed>> = lists
            .iter()
            .filter(|l| l.len() == length)
            .flat_map(|l| SEEDS.map(|s| [&l[..], &[s]].concat()))
            .collect();
        lists.extend(longer);
    }
    let codes = [exit::BUG, exit::UNSUPPORTED, exit::ENVIRONMENT];
    for list in &lists {
        let whole = list.len() as u64;
        // How it ended: all were run; interrupted; out of time, with enough seeds or not; trouble.
        for end in 0..4 + codes.len() {
            for coverage in [None, Some(800), Some(1000)] {
                let mut totals = Totals::new(2, whole.max(1), whole.max(1));
                for (number, seed) in list.iter().enumerate() {
                    add(&mut totals, number as u64, *seed);
                }
                (totals.coverage, totals.least_coverage) = (900, coverage);
                match end {
                    0 => {}
                    1 => (totals.wanted, totals.least, totals.interrupted) = (100, 100, true),
                    2 => (totals.wanted, totals.least, totals.timed_out) = (100, 1, true),
                    3 => (totals.wanted, totals.least, totals.timed_out) = (100, 50, true),
                    n => totals.trouble(codes[n - 4], "something <else>\nwent wrong"),
                }
                judge(list, &totals);
            }
        }
    }
}

#[test]
fn a_report_has_a_failure_or_an_error_exactly_when_the_exit_code_is_not_0() {
    let properties = properties(2);
    let mut codes = std::collections::BTreeSet::new();
    campaigns(|list, totals| {
        let judgement = Judgement::of(&properties, totals);
        let context = || format!("{list:?} {totals:?}");
        assert_eq!(judgement.code, expected(list, totals), "{}", context());
        let xml = junit::render(&judgement.suite("bloodhound.yaml", Vec::new())).expect("XML");
        let bad = xml.contains("<failure ") || xml.contains("<error ");
        assert_eq!(bad, judgement.code != exit::PASS, "{}\n{xml}", context());
        // The sums that readers go by.
        let none =
            xml.lines().any(|l| l.contains("<testsuites ") && l.contains("failures=\"0\" errors=\"0\""));
        assert_eq!(none, !bad, "{xml}");
        codes.insert(judgement.code);
        for item in &judgement.items[..2] {
            let index = if item.name == "p0" { 0 } else { 1 };
            let all = !list.is_empty()
                && list.iter().all(|s| match s {
                    Seed::Good | Seed::Idle => true,
                    Seed::Violates | Seed::Undecided => index == 1,
                    _ => false,
                })
                && (index == 1 || list.contains(&Seed::Good));
            assert_eq!(item.verdict == Verdict::Passed, all, "{} {}", item.name, context());
            assert_eq!(matches!(item.verdict, Verdict::NotRun(_)), list.is_empty(), "{}", context());
        }
    });
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [0, 1, 3, 4, 5, 7, 70, 130]);
}

#[test]
fn terminal_and_json_say_the_same() {
    let properties = properties(2);
    let path = std::path::Path::new("out/junit.xml");
    campaigns(|list, totals| {
        let judgement = Judgement::of(&properties, totals);
        let human = print::human(&judgement, totals, path, std::time::Duration::from_secs(1));
        let fine = !human.lines().any(|l| ["FAIL", "????", "ERROR", "-  "].iter().any(|m| l.starts_with(m)));
        assert_eq!(fine, judgement.code == exit::PASS, "{list:?}\n{human}");
        let json = print::json(&judgement, totals, path, None);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["exit_code"], judgement.code);
        for (item, shown) in judgement.items.iter().zip(json["properties"].as_array().expect("a list")) {
            let ok = human.contains(&format!("ok    {} (", item.name));
            assert_eq!(ok, item.verdict == Verdict::Passed, "{list:?}\n{human}");
            assert_eq!(shown["verdict"] == "passed", ok, "{json}");
            assert_eq!(
                shown["reason"] == "",
                matches!(item.verdict, Verdict::Passed | Verdict::Failed),
                "{json}"
            );
        }
    });
}

#[test]
fn the_texts_say_what_was_not_judged_and_why() {
    let properties = properties(2);
    let of = |list: &[Seed]| {
        let mut totals = Totals::new(2, list.len() as u64, list.len() as u64);
        for (number, seed) in list.iter().enumerate().rev() {
            add(&mut totals, number as u64, *seed);
        }
        totals.sort();
        Judgement::of(&properties, &totals).items
    };
    let idle = of(&[Seed::Idle, Seed::Idle]);
    let reason = "0 of 1,490 operations succeeded, first: connection refused";
    assert_eq!(idle[0].verdict, Verdict::NotExercised(reason.into()));
    assert_eq!(idle[1].verdict, Verdict::Passed);
    let some = of(&[Seed::Good, Seed::Unsupported, Seed::Good, Seed::Unsupported]);
    let reason = "not judged in 2 of 4 seeds (1, 3): unsupported: semget";
    assert_eq!(some[0].verdict, Verdict::NotJudged(reason.into()));
    assert_eq!(some[2].name, "seeds");
    assert_eq!(some[2].verdict.reason(), "seeds 1, 3 not judged: unsupported: semget");
    let hangs = of(&[Seed::Hangs, Seed::Good]);
    let reason = "not judged in 1 of 2 seeds (0): the run ended at 1.000000000s with a hang";
    assert_eq!(hangs[0].verdict, Verdict::NotJudged(reason.into()));
    assert_eq!((&*hangs[2].name, &hangs[2].verdict), ("hang", &Verdict::Failed));
    let open = of(&[Seed::Undecided, Seed::Undecided]);
    assert_eq!(open[0].verdict.reason(), "no verdict in 2 of 2 seeds (0, 1): out of budget");
    let many = of(&[Seed::Interrupted; 11]);
    let reason = "not judged in 11 of 11 seeds (0, 1, 2, 3, 4, 5, 6, 7, and 3 more): interrupted";
    assert_eq!(many[0].verdict.reason(), reason);
}

#[test]
fn who_stops_at_the_first_finding_wants_no_more_seeds() {
    let mut totals = Totals::new(2, 100, 100);
    add(&mut totals, 0, Seed::Violates);
    totals.failed_fast = true;
    let judgement = Judgement::of(&properties(2), &totals);
    assert_eq!(judgement.code, exit::FINDINGS);
    assert_eq!(judgement.items[2].verdict, Verdict::Passed);
}

#[test]
fn findings_that_others_cannot_see_are_a_failure_of_the_environment() {
    for (seed, is_unshared, code) in [
        (Seed::Violates, false, exit::FINDINGS),
        (Seed::Violates, true, exit::ENVIRONMENT),
        (Seed::Good, true, exit::ENVIRONMENT),
        (Seed::Bug, true, exit::BUG),
    ] {
        let mut totals = Totals::new(2, 1, 1);
        add(&mut totals, 0, seed);
        totals.trouble(exit::ENVIRONMENT, "the store has failed");
        totals.is_unshared = is_unshared;
        assert_eq!(Judgement::of(&properties(2), &totals).code, code, "{seed:?} {is_unshared}");
    }
}

#[test]
fn too_few_seeds_are_an_error_of_the_campaign() {
    let mut totals = Totals::new(2, 100, 50);
    add(&mut totals, 0, Seed::Good);
    totals.timed_out = true;
    let judgement = Judgement::of(&properties(2), &totals);
    assert_eq!(judgement.code, exit::INCONCLUSIVE);
    let reason = "1 of 100 seeds were judged when --timeout was over, at least 50 are wanted";
    assert_eq!(judgement.items[2].verdict.reason(), reason);
    assert_eq!(judgement.items[0].verdict, Verdict::Passed);
}

fn case(name: &str, known: Option<&str>, verdict: OfCase) -> JudgedCase {
    JudgedCase {
        name: name.into(),
        path: format!("regressions/{name}.yaml").into(),
        group: found(0, Some(0)).group(),
        known: known.map(str::to_owned),
        verdict,
        says: "because <it> does".into(),
        runs: 2,
        changed: Vec::new(),
        shown: None,
    }
}

#[test]
fn cases_are_judged_before_all_else() {
    let path = std::path::Path::new("out/junit.xml");
    for (verdict, known, code, mark, bad) in [
        (OfCase::Fails, None, exit::FINDINGS, "FAIL ", true),
        (OfCase::Fails, Some("later"), exit::PASS, "known", false),
        (OfCase::FailsOtherwise, Some("later"), exit::FINDINGS, "FAIL ", true),
        (OfCase::Passes, None, exit::PASS, "ok   ", false),
        (OfCase::Passes, Some("later"), exit::PASS, "ok   ", false),
        (OfCase::NotRefound, None, exit::PASS, "note ", false),
        (OfCase::Open(exit::INCONCLUSIVE), None, exit::INCONCLUSIVE, "ERROR", true),
        (OfCase::Open(exit::NONDETERMINISM), Some("later"), exit::NONDETERMINISM, "ERROR", true),
    ] {
        let mut totals = Totals::new(2, 1, 1);
        add(&mut totals, 0, Seed::Good);
        totals.regressions = vec![case("c1", known, verdict)];
        let judgement = Judgement::of(&properties(2), &totals);
        assert_eq!(judgement.code, code, "{verdict:?} {known:?}");
        assert_eq!((&*judgement.items[0].name, &*judgement.items[0].kind), ("c1", "regression"));
        let human = print::human(&judgement, &totals, path, std::time::Duration::from_secs(1));
        assert!(human.starts_with(&format!("{mark} c1 (regression")), "{human}");
        let loud = known.is_some() && verdict == OfCase::Passes;
        assert_eq!(human.contains("DOES NOT FAIL NOW"), loud, "{human}");
        let xml = junit::render(&judgement.suite("bloodhound.yaml", Vec::new())).expect("XML");
        assert_eq!(xml.contains("<failure ") || xml.contains("<error "), bad, "{xml}");
        let json: serde_json::Value =
            serde_json::from_str(&print::json(&judgement, &totals, path, None)).expect("JSON");
        assert_eq!(json["regressions"][0]["verdict"], verdict.word());
        assert_eq!(json["properties"].as_array().map(Vec::len), Some(2), "{json}");
    }
}

#[test]
fn known_findings_are_listed_and_do_not_fail() {
    let known = |found: &mut Found| found.standing = Standing::Known("c1".into());
    let of = |list: &[Seed], all: bool| {
        let mut totals = Totals::new(2, list.len() as u64, list.len() as u64);
        for (number, seed) in list.iter().enumerate() {
            add(&mut totals, number as u64, *seed);
        }
        let count = if all { totals.findings.len() } else { 1 };
        totals.findings.iter_mut().take(count).for_each(known);
        Judgement::of(&properties(2), &totals)
    };
    let judgement = of(&[Seed::Violates, Seed::Good, Seed::Violates], true);
    assert_eq!(judgement.code, exit::PASS);
    assert!(
        matches!(&judgement.items[0].verdict, Verdict::Known(why) if why.contains("c1") && why.contains("2 of 3"))
    );
    assert_eq!(of(&[Seed::Violates, Seed::Good, Seed::Violates], false).code, exit::FINDINGS);
    // Each run of a search counts, also where several go on from one seed.
    let mut search = Totals { noun: "run", ..Totals::new(2, 3, 3) };
    (1..=3).for_each(|number| add(&mut search, number, Seed::Violates));
    search.findings.iter_mut().for_each(|found| {
        known(found);
        found.seed = 7;
    });
    let judgement = Judgement::of(&properties(2), &search);
    assert_eq!(judgement.items[0].verdict.reason(), "known (c1): violated in 3 of 3 runs");
    // A known end of a run takes nothing from the seeds that went on; but where none did, nothing was judged.
    assert_eq!(of(&[Seed::Hangs, Seed::Good], true).code, exit::PASS);
    let none = of(&[Seed::Hangs, Seed::Hangs], true);
    assert_eq!(none.code, exit::INCONCLUSIVE);
    assert!(matches!(none.items[0].verdict, Verdict::NotJudged(_)), "{:?}", none.items[0]);
    // Nor does it hide what is not judged for another reason.
    assert_eq!(of(&[Seed::Violates, Seed::Undecided], true).code, exit::INCONCLUSIVE);
}

#[test]
fn a_case_that_is_not_judged_is_no_success_and_one_that_fails_is_enough_for_who_wants_one() {
    let judged = |change: &dyn Fn(&mut Totals)| {
        let mut totals = Totals::new(1, 4, 4);
        (0..4).for_each(|seed| totals.properties[0].add(seed, &Judged::Held(exercise(1))));
        totals.judged = 4;
        change(&mut totals);
        Judgement::of(&properties(1), &totals)
    };
    assert_eq!(judged(&|_| {}).code, exit::PASS);
    let lost = judged(&|totals| {
        let why = Unjudged::Unsupported("a call".to_owned());
        totals.unjudged_cases.push(("entry 0f of the corpus (seed 9)".to_owned(), why));
    });
    assert_eq!(lost.code, exit::UNSUPPORTED);
    let reasons: Vec<String> = lost.items.iter().map(|item| item.verdict.reason()).collect();
    assert!(
        reasons.contains(&"entry 0f of the corpus (seed 9) not judged: unsupported: a call".to_owned()),
        "{reasons:?}"
    );
    let fast = judged(&|totals| {
        (totals.judged, totals.judged_cases, totals.failed_fast) = (0, 1, true);
        totals.findings.push(found(900, Some(0)));
    });
    assert_eq!(fast.code, exit::FINDINGS);
    assert!(fast.items.iter().all(|item| !matches!(item.verdict, Verdict::Troubled(_))), "{:?}", fast.items);
}
