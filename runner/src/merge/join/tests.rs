//! What is joined and what is refused, on records that no run has made.

use super::super::list;
use super::*;
use crate::campaign::totals::Unjudged;
use crate::shard::tests::{held, known, manifest, violated};

fn shard(index: u64, records: Vec<SeedRecord>) -> Piece {
    let manifest = manifest(Part::Shard(Shard { index, of: 2 }));
    Piece::test(&format!("shard {index}"), Some(manifest), records)
}

fn even() -> Vec<SeedRecord> {
    (0..10).step_by(2).map(held).collect()
}

fn odd() -> Vec<SeedRecord> {
    (1..10).step_by(2).map(held).collect()
}

/// The totals of what is joined, and their troubles as codes.
fn totals(joined: &Joined, min_seeds: Option<u64>) -> (Totals, Vec<u8>) {
    let mut totals = Totals::new(1, joined.wanted(), joined.least(min_seeds));
    for (record, _) in joined.chosen.values() {
        totals.add_record(record);
        totals.findings.extend(record.findings.clone());
    }
    joined.troubles(&mut totals, list);
    let codes = totals.troubles.iter().map(|trouble| trouble.code).collect();
    (totals, codes)
}

#[test]
fn all_shards_are_the_campaign() {
    let joined = Joined::of(&[shard(2, odd()), shard(1, even())]).expect("they fit");
    assert_eq!((joined.wanted(), joined.missing.len(), joined.duplicates), (10, 0, 0));
    let (totals, codes) = totals(&joined, None);
    assert_eq!((totals.judged, totals.least, codes), (10, 10, vec![]));
}

#[test]
fn seeds_that_were_run_twice_count_once_or_show_nondeterminism() {
    let again = Piece::test("again", Some(manifest(Part::All)), vec![held(2), held(3)]);
    let joined = Joined::of(&[shard(1, even()), shard(2, odd()), again]).expect("they fit");
    assert_eq!((joined.duplicates, totals(&joined, None).0.judged), (2, 10));
    let mut other = held(3);
    other.digest = "another".into();
    let again = Piece::test("again", Some(manifest(Part::All)), vec![other]);
    let joined = Joined::of(&[shard(1, even()), shard(2, odd()), again]).expect("they fit");
    let (totals, codes) = totals(&joined, None);
    assert_eq!(codes, [exit::NONDETERMINISM]);
    assert!(
        totals.troubles[0]
            .text
            .contains("seed 3 came to different ends in shard 2 and again: digests d3 and another")
    );
    // The same digest with another verdict.
    let mut same = violated(3);
    same.digest = held(3).digest;
    let again = Piece::test("again", Some(manifest(Part::All)), vec![same]);
    let joined = Joined::of(&[shard(1, even()), shard(2, odd()), again]).expect("they fit");
    assert_eq!(joined.differences.len(), 1);
}

#[test]
fn what_is_missing_is_named_and_inconclusive_unless_it_is_allowed() {
    let mut rest = odd();
    rest.retain(|record| record.seed != 5);
    let joined = Joined::of(&[shard(1, even()), shard(2, rest)]).expect("they fit");
    assert_eq!(joined.missing, [Range { first: 5, count: 1 }]);
    assert_eq!(joined.commands(), ["bloodhound test --first-seed 5 --seeds 1"]);
    assert_eq!(totals(&joined, None).1, [exit::INCONCLUSIVE]);
    assert_eq!(totals(&joined, Some(10)).1, [exit::INCONCLUSIVE]);
    assert_eq!(totals(&joined, Some(9)).1, [] as [u8; 0]);
    let joined = Joined::of(&[shard(1, even())]).expect("it fits");
    assert_eq!(joined.commands(), ["bloodhound test --first-seed 0 --seeds 10 --shard 2/2"]);
    let (totals, codes) = totals(&joined, None);
    assert_eq!(codes, [exit::INCONCLUSIVE]);
    let text = &totals.troubles[0].text;
    assert!(text.starts_with("seeds 1, 3, 5, 7, 9 have no result (shard 2/2 is missing)"), "{text}");
}

#[test]
fn commands_run_each_missing_seed_once() {
    let of_three = |index, records| {
        let manifest = manifest(Part::Shard(Shard { index, of: 3 }));
        Piece::test(&format!("shard {index}"), Some(manifest), records)
    };
    // Of the first shard, with the seeds 0, 3, 6 and 9, there is the first seed alone.
    let joined = Joined::of(&[of_three(1, vec![held(0)])]).expect("it fits");
    let shard = |index| format!("bloodhound test --first-seed 0 --seeds 10 --shard {index}/3");
    let seed = |seed| format!("bloodhound test --first-seed {seed} --seeds 1");
    assert_eq!(joined.missing, [Range { first: 1, count: 9 }]);
    assert_eq!(joined.commands(), [shard(2), shard(3), seed(3), seed(6), seed(9)]);
    // Runs of single seeds have left nothing of the second one to run.
    let again = Piece::test("again", Some(manifest(Part::All)), [1, 3, 4, 6, 7, 9].map(held).into());
    let joined = Joined::of(&[of_three(1, vec![held(0)]), again]).expect("they fit");
    assert_eq!(joined.commands(), [shard(3)]);
}

#[test]
fn what_a_merge_was_told_is_not_lost_by_another_merge() {
    let trouble = |code, text: &str| Trouble { code, text: text.into() };
    let mut merged = Piece::test("merged", Some(manifest(Part::All)), (0..10).map(held).collect());
    let ended = merged.manifest.as_mut().and_then(|manifest| manifest.ended.as_mut()).expect("it has ended");
    ended.regressions = vec![trouble(exit::FINDINGS, "a case fails")];
    ended.troubles = vec![
        trouble(exit::FINDINGS, "a case fails"),
        trouble(exit::NONDETERMINISM, "seed 3 came to different ends"),
        trouble(exit::ENVIRONMENT, "no room"),
    ];
    let joined = Joined::of(&[merged]).expect("it fits");
    assert_eq!(joined.regressions(), [trouble(exit::FINDINGS, "a case fails")]);
    assert_eq!(totals(&joined, None).1, [exit::NONDETERMINISM, exit::FINDINGS]);
}

#[test]
fn parts_of_which_none_has_told_its_end_are_no_success() {
    let killed = |index, records| {
        let mut part = shard(index, records);
        part.manifest.as_mut().expect("it has one").ended = None;
        part
    };
    let joined = Joined::of(&[killed(1, even()), killed(2, odd())]).expect("they fit");
    assert_eq!((joined.missing.len(), totals(&joined, None).1), (0, vec![exit::INCONCLUSIVE]));
    let joined = Joined::of(&[killed(1, even()), shard(2, odd())]).expect("they fit");
    assert_eq!(totals(&joined, None).1, [] as [u8; 0]);
}

#[test]
fn a_rerun_of_what_was_stopped_takes_its_place() {
    let mut stopped = odd();
    stopped[0] = SeedRecord::lost(1, Unjudged::Interrupted);
    let mut part = shard(2, stopped);
    if let Some(ended) = part.manifest.as_mut().and_then(|manifest| manifest.ended.as_mut()) {
        ended.interrupted = true;
        ended
            .troubles
            .push(crate::campaign::totals::Trouble { code: exit::ENVIRONMENT, text: "no room".into() });
    }
    let joined = Joined::of(&[shard(1, even()), part]).expect("they fit");
    assert_eq!(joined.missing, [Range { first: 1, count: 1 }]);
    let (before, codes) = totals(&joined, None);
    assert!(before.interrupted && codes.contains(&exit::ENVIRONMENT), "{codes:?}");
    let mut stopped = odd();
    stopped[0] = SeedRecord::lost(1, Unjudged::Interrupted);
    for order in [true, false] {
        let mut manifest = manifest(Part::All);
        (manifest.first_seed, manifest.seeds) = (1, 1);
        let again = Piece::test("again", Some(manifest), vec![held(1)]);
        let mut pieces = vec![shard(1, even()), shard(2, stopped.clone()), again];
        if order {
            pieces.reverse();
        }
        let joined = Joined::of(&pieces).expect("they fit");
        let (after, codes) = totals(&joined, None);
        assert_eq!((after.judged, after.interrupted, codes.len(), joined.missing.len()), (10, false, 0, 0));
    }
}

/// Two parts of a campaign, of which the first ended at the finding of its first seed.
fn stopped_by(finding: SeedRecord) -> [Piece; 2] {
    let mut part = shard(1, vec![finding]);
    part.manifest.as_mut().and_then(|manifest| manifest.ended.as_mut()).expect("it has ended").failed_fast =
        true;
    [part, shard(2, vec![held(1)])]
}

#[test]
fn the_first_finding_of_a_campaign_that_stops_there_explains_the_rest() {
    let joined = Joined::of(&stopped_by(violated(0))).expect("they fit");
    let (totals, codes) = totals(&joined, None);
    assert_eq!((totals.findings.len(), codes.len(), totals.failed_fast), (1, 0, true));
}

#[test]
fn a_known_finding_explains_nothing_that_is_missing() {
    let joined = Joined::of(&stopped_by(known(0))).expect("they fit");
    assert_eq!(totals(&joined, None).1, [exit::INCONCLUSIVE]);
}

#[test]
fn what_a_timeout_left_out_is_allowed_of_parts_that_have_ended() {
    let timed_out = |index, records| {
        let mut part = shard(index, records);
        let ended = part.manifest.as_mut().and_then(|manifest| manifest.ended.as_mut());
        ended.map(|ended| (ended.timed_out, ended.least) = (true, 1)).expect("it has ended");
        part
    };
    let joined = Joined::of(&[timed_out(1, vec![held(0)]), timed_out(2, vec![held(1)])]).expect("they fit");
    assert_eq!((joined.least(None), totals(&joined, None).1), (2, vec![]));
    // A shard of which there is nothing would have had all of its seeds.
    let joined = Joined::of(&[timed_out(1, vec![held(0)])]).expect("it fits");
    assert_eq!((joined.least(None), totals(&joined, None).1), (6, vec![exit::INCONCLUSIVE]));
    // One that was killed has not said that its time was over.
    let mut killed = timed_out(2, vec![held(1)]);
    killed.manifest.as_mut().expect("it has one").ended = None;
    let mut pieces = vec![timed_out(1, vec![held(0)]), killed];
    let joined = Joined::of(&pieces).expect("they fit");
    assert_eq!((joined.least(None), totals(&joined, None).1), (10, vec![exit::INCONCLUSIVE]));
    // It was started again, and has ended then, twice: it counts once.
    pieces.extend([timed_out(2, vec![held(3)]), timed_out(2, vec![])]);
    let joined = Joined::of(&pieces).expect("they fit");
    assert_eq!((telling(&pieces).count(), joined.least(None), totals(&joined, None).1), (3, 2, vec![]));
}

#[test]
fn parts_that_do_not_fit_are_refused_and_named() {
    type Change = fn(&mut Manifest);
    let cases: [(Change, &str); 7] = [
        (|m| m.identity.plan = "def".into(), "plan digests \"abc\" and \"def\""),
        (|m| m.identity.bloodhound = "2.0".into(), "versions of Bloodhound"),
        (|m| m.identity.least_fault_coverage = None, "thresholds of fault coverage"),
        (|m| m.seeds = 20, "seeds: 0 to 9, and 0 to 19"),
        (|m| m.identity.properties.clear(), "properties"),
        (|m| m.identity.strategy = "swarm".into(), "strategies \"random\" and \"swarm\""),
        (|m| m.identity.no_regressions = true, "values of --no-regressions: false and true"),
    ];
    for (change, why) in cases {
        let mut other = shard(2, Vec::new());
        change(other.manifest.as_mut().expect("it has one"));
        let refused = Joined::of(&[shard(1, even()), other]).expect_err(why);
        assert_eq!(refused.code, exit::USAGE);
        assert!(
            refused.text.starts_with("shard 1 and shard 2 cannot be joined") && refused.text.contains(why),
            "{}",
            refused.text
        );
    }
    let input = |sha: &str| InputRecord {
        tree: 0,
        path: "/app/x".into(),
        kind: "content".into(),
        size: 4096,
        sha256: sha.into(),
    };
    let with = |index, sha| {
        let mut part = shard(index, Vec::new());
        part.manifest.as_mut().expect("it has one").inputs = vec![input(sha)];
        part
    };
    let refused = Joined::of(&[with(1, "a"), with(2, "b")]).expect_err("other programs");
    assert!(refused.text.contains("contents of the content /app/x"), "{}", refused.text);
    assert!(Joined::of(&[with(1, "a"), with(2, "a")]).is_ok());
    // One that was killed has told what it ran.
    let mut killed = with(2, "b");
    killed.manifest.as_mut().expect("it has one").ended = None;
    let refused = Joined::of(&[with(1, "a"), killed]).expect_err("other programs");
    assert!(refused.text.contains("contents of the content /app/x"), "{}", refused.text);
}

#[test]
fn records_that_cannot_be_of_their_part_are_refused() {
    let mut two = held(1);
    two.judged.clear();
    let mut elsewhere = violated(1);
    elsewhere.findings[0].violation.index = Some(7);
    let mut of_another = violated(1);
    of_another.findings[0].seed = 2;
    let mut empty = held(1);
    empty.digest.clear();
    for (record, why) in [
        (held(2), "seed 2 is none of its seeds"),
        (held(11), "seed 11 is none of its seeds"),
        (two, "judges 0 properties of 1"),
        (elsewhere, "a finding of another seed or property"),
        (of_another, "a finding of another seed or property"),
        (empty, "has a verdict and no digest"),
    ] {
        let refused = Joined::of(&[shard(2, vec![record])]).expect_err(why);
        assert!(
            refused.code == exit::USAGE
                && refused.text.starts_with("shard 2: ")
                && refused.text.contains(why),
            "{}",
            refused.text
        );
    }
    assert_eq!(Joined::of(&[]).expect_err("nothing").code, exit::USAGE);
}

#[test]
fn the_last_seeds_that_there_are_can_be_missing() {
    let mut manifest = manifest(Part::All);
    (manifest.first_seed, manifest.seeds) = (u64::MAX - 2, 3);
    let piece = Piece::test("last", Some(manifest), vec![held(u64::MAX)]);
    let joined = Joined::of(&[piece]).expect("it fits");
    assert_eq!(joined.missing, [Range { first: u64::MAX - 2, count: 2 }]);
    assert_eq!(joined.spans, [Range { first: u64::MAX - 2, count: 3 }]);
}

#[test]
fn entries_of_a_corpus_that_nobody_has_judged_are_told() {
    let part = |part: Part, records: Vec<SeedRecord>, judged: Option<u64>| {
        let mut manifest = manifest(part.clone());
        manifest.entries = Some(3);
        manifest.ended = judged
            .map(|judged| crate::shard::Ended { entries_judged: judged, ..crate::shard::Ended::default() });
        Piece::test(&part.to_string(), Some(manifest), records)
    };
    let shard = |index, records, judged| part(Part::Shard(Shard { index, of: 2 }), records, judged);
    let codes = |pieces: &[Piece]| totals(&Joined::of(pieces).expect("they fit"), None).1;
    assert_eq!(codes(&[shard(1, even(), Some(3)), shard(2, odd(), Some(3))]), [] as [u8; 0]);
    // It was killed behind its last seed, or had no time for all of them.
    for judged in [None, Some(2)] {
        let half = || [shard(1, even(), Some(3)), shard(2, odd(), judged)];
        assert_eq!(codes(&half()), [exit::INCONCLUSIVE], "{judged:?}");
        let [one, two] = half();
        assert_eq!(codes(&[one, two, shard(2, vec![], Some(3))]), [] as [u8; 0], "it was run again");
    }
    // Each worker runs all.
    let worker = |name: &str, records, judged| part(Part::Worker(name.to_owned()), records, judged);
    assert_eq!(codes(&[worker("a", even(), Some(3)), worker("b", odd(), None)]), [] as [u8; 0]);
    assert_eq!(codes(&[worker("a", even(), Some(1)), worker("b", odd(), Some(2))]), [exit::INCONCLUSIVE; 2]);
}
