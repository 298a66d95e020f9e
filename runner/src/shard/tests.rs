//! Shards, manifests and results, as they are written and as damaged or hostile files have them.

use std::path::PathBuf;
use std::time::Duration;

use bloodhound_store::Place;

use super::results::{line, read};
use super::share::{STOP, Share, decoded, encoded};
use super::*;
use crate::campaign::record::SeedRecord;
use crate::campaign::totals::{Found, Unjudged};
use crate::judge::Judged;
use crate::regress::ledger::Standing;
use crate::session::Violation;

/// A manifest of ten seeds.
pub fn manifest(part: Part) -> Manifest {
    let identity = Identity {
        bloodhound: "1.0".into(),
        digest_version: 1,
        plan: "abc".into(),
        config: "bloodhound.yaml".into(),
        strategy: "random".into(),
        no_regressions: false,
        properties: vec![Title { name: "p".into(), kind: "safety".into(), line: 3 }],
        fault_kinds: vec!["crash".into()],
        least_fault_coverage: Some(500),
        code: None,
    };
    let (inputs, ended) = (Vec::new(), Some(Ended::default()));
    Manifest { format: FORMAT, identity, first_seed: 0, seeds: 10, part, inputs, entries: None, ended }
}

/// A seed in which everything held.
pub fn held(seed: u64) -> SeedRecord {
    let mut record = SeedRecord::lost(seed, Unjudged::Interrupted);
    let exercise = crate::judge::Exercise {
        unit: crate::judge::Unit::Operations,
        tried: 2,
        worked: 1,
        lacking: None,
        first: None,
    };
    (record.unjudged, record.digest, record.judged) =
        (None, format!("d{seed}"), vec![Judged::Held(exercise)]);
    record
}

/// A seed in which the property was violated.
pub fn violated(seed: u64) -> SeedRecord {
    let at = bloodhound_abi::SimTime(7);
    let violation = Violation {
        index: Some(0),
        property: "p".into(),
        kind: "safety".into(),
        at,
        text: "no\nreally".into(),
    };
    let kept = Ok(PathBuf::from(format!("out/findings/seed-{seed}-p")));
    let (digest, profile) = (format!("d{seed}"), "none".to_owned());
    let found = Found {
        number: seed,
        name: format!("seed {seed}"),
        branched: None,
        standing: Default::default(),
        seed,
        violation,
        digest,
        profile,
        faults: Vec::new(),
        kept,
        live: false,
    };
    let judged = vec![Judged::Violated(at, "no\nreally".into())];
    SeedRecord { judged, findings: vec![found], ..held(seed) }
}

/// The same where this is the failure of a case that is marked as known.
pub fn known(seed: u64) -> SeedRecord {
    let mut record = violated(seed);
    record.findings.iter_mut().for_each(|found| found.standing = Standing::Known("c1".into()));
    record
}

#[test]
fn only_a_finding_that_is_not_known_stops_all_who_share_a_campaign() {
    let dir = std::env::temp_dir().join(format!("bloodhound-share-{}-stop", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&dir);
    let (place, manifest) = (Place::Directory(dir.clone()), manifest(Part::Shard(Shard { index: 1, of: 2 })));
    let begin = |fail_fast| Share::begin(&place, &manifest, Duration::from_secs(60), fail_fast);
    let mut slow = begin(false).expect("a store");
    slow.record(&dir, &violated(0)).expect("written");
    let mut fast = begin(true).expect("a store");
    fast.record(&dir, &known(2)).expect("written");
    assert!(!dir.join(STOP).exists());
    fast.record(&dir, &violated(4)).expect("written");
    assert_eq!(std::fs::read_to_string(dir.join(STOP)).expect("it is there"), "seed 4\n");
    drop((slow, fast));
    std::fs::remove_dir_all(dir).expect("no directory");
}

#[test]
fn shards_are_named_by_number_and_count() {
    assert_eq!(Shard::parse("2/4"), Ok(Shard { index: 2, of: 4 }));
    for (text, why) in [
        ("0/4", "shards are counted from 1"),
        ("5/4", "there is no shard 5 of 4"),
        ("1/0", "there cannot be 0 shards"),
        ("a/b", "is not of the form i/n"),
        ("2", "is not of the form i/n"),
        ("", "is not of the form i/n"),
        ("-1/4", "is not of the form i/n"),
        ("+1/4", "is not of the form i/n"),
        ("1/4/2", "is not of the form i/n"),
        ("1/99999999999999999999999", "is not of the form i/n"),
    ] {
        let wrong = Shard::parse(text).expect_err(text);
        assert!(wrong.contains(why) && wrong.contains("for example 2/4"), "{text}: {wrong}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    for part in [Part::All, Part::Shard(Shard { index: 2, of: 4 }), Part::Worker("w".into())] {
        let written = manifest(part);
        assert_eq!(Manifest::parse("x", written.text().as_bytes()), Ok(written));
    }
    for record in [held(3), violated(4), SeedRecord::lost(5, Unjudged::Host("no room".into()))] {
        let [again] = &read("x", line(&record).as_bytes()).expect("a line")[..] else { panic!("one") };
        let mut named = record.clone();
        named.findings.iter_mut().for_each(|found| found.kept = Ok(PathBuf::from("seed-4-p")));
        assert_eq!(*again, named);
    }
}

#[test]
fn half_a_line_at_the_end_is_left_out_and_one_before_it_refused() {
    let (first, second) = (line(&held(1)), line(&held(2)));
    for end in 0..second.len() {
        let text = format!("{first}{}", &second[..end]);
        let seeds: Vec<u64> =
            read("x", text.as_bytes()).expect("a whole line").iter().map(|r| r.seed).collect();
        assert_eq!(seeds, [1], "{end}");
    }
    let damaged = format!("{}\n{second}", &first[..first.len() / 2]);
    let wrong = read("dir/results.jsonl", damaged.as_bytes()).expect_err("half a line");
    assert!(wrong.starts_with("dir/results.jsonl:1: "), "{wrong}");
    for other in ["null\n", "{}\n", "[]\n", "\n", "{\"seed\":-1}\n", "\u{0}\n"] {
        assert!(read("x", other.as_bytes()).is_err(), "{other:?}");
    }
    assert!(read("x", &[0xff, 0xfe, b'\n']).is_err());
    assert!(read("x", b"").expect("nothing").is_empty());
}

#[test]
fn findings_of_a_line_lead_nowhere_else() {
    for name in ["../../etc", "/etc/passwd", "a/b", "", ".", "seed-4-\u{e4}"] {
        let text = line(&violated(4)).replace("seed-4-p", name);
        assert!(read("x", text.as_bytes()).is_err(), "{name}");
    }
}

#[test]
fn manifests_of_other_versions_and_damaged_ones_are_refused() {
    let text = manifest(Part::Shard(Shard { index: 2, of: 4 })).text();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        Manifest::parse("dir/shard.json", text.replacen(from, to, 1).as_bytes()).expect_err(to)
    };
    for (from, to, why) in [
        ("\"format\": 1", "\"format\": 2", "it has format 2; this version"),
        ("\"format\"", "\"formal\"", "has no `format`"),
        ("\"seeds\": 10", "\"seeds\": 0", "seeds or a shard that there cannot be"),
        ("\"first_seed\": 0", "\"first_seed\": 18446744073709551615", "that there cannot be"),
        ("\"index\": 2", "\"index\": 5", "that there cannot be"),
        ("\"of\": 4", "\"of\": 0", "that there cannot be"),
        ("\"plan\"", "\"plane\"", "missing field `plan`"),
    ] {
        let wrong = change(from, to);
        assert!(wrong.starts_with("dir/shard.json: ") && wrong.contains(why), "{to}: {wrong}");
    }
    for end in 0..text.trim_end().len() {
        assert!(Manifest::parse("x", &text.as_bytes()[..end]).is_err(), "{end}");
    }
}

#[test]
fn paths_of_findings_are_keys_and_come_back() {
    let (wide, dots) = (format!("bundle/{}/x", "\u{e4}".repeat(127)), ".".repeat(255));
    let paths =
        ["findings/seed-4-p/trace.txt", "bundle/project/.env", "a b/\u{e4}_/..x", "x/_2e", &wide, &dots];
    for path in paths {
        let key = encoded(path);
        assert!(key.split('/').all(|part| part.len() <= bloodhound_store::LONGEST), "{key}");
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._/".contains(&b)), "{key}");
        assert!(key.split('/').all(|part| !part.starts_with('.')), "{key}");
        assert_eq!(decoded(&key).as_deref(), Some(path));
    }
    for key in
        ["..", "a/../b", "_2e_2e/x", "a//b", "", "/a", "_", "_2", "_zz", "_2f_2fx/", "a_00", "_-/", "_-/.."]
    {
        assert_eq!(decoded(key), None, "{key}");
    }
}
