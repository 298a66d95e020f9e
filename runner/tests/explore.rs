//! `bloodhound explore`: a planted bug is found and replayed; however many workers there are, and on both platforms, the search is the same; limits hold.

use std::path::Path;

use crate::common::cli::{bloodhound, code, json, text};
use crate::common::{add_program, stack, watched};
use serde_json::Value;

/// What a search tells, without what depends on where it was made.
fn explored(dir: &Path, args: &[&str], out: &str) -> Value {
    // How far findings are shrunk depends on the host.
    let all = [&["explore", "--no-shrink", "--format", "json", "--out", out], args].concat();
    let result = bloodhound(dir, &all);
    assert!([0, 1, 3, 4].contains(&code(&result)), "{}", text(&result));
    let mut told = json(&result);
    let told_of = told.as_object_mut().expect("an object");
    told_of.remove("platform");
    told_of.remove("junit");
    for finding in told["findings"].as_array_mut().expect("findings") {
        let place = finding["replay"].as_str().expect("a directory").to_owned();
        finding["replay"] = Path::new(&place).file_name().expect("a name").to_string_lossy().into();
    }
    told
}

/// The strategy that is guided by what is new finds the bug by a branch, which is replayed; with more workers and on the other platform all is the same.
#[test]
fn a_search_is_the_same_for_any_number_of_workers_and_finds_the_bug() {
    let dir = watched("explore-same");
    let one = explored(&dir, &["--runs", "60", "--jobs", "1"], "one");
    assert_eq!(one["seeds_run"], 60, "{one}");
    let findings = one["findings"].as_array().expect("findings");
    let branched =
        findings.iter().find(|finding| finding["branched_at_ns"].is_u64()).expect("a branch finds it");
    let place = format!("one/findings/{}", branched["replay"].as_str().expect("a name"));
    for _ in 0..2 {
        let again = bloodhound(&dir, &["replay", &place, "--format", "json"]);
        assert_eq!(code(&again), 1, "{}", text(&again));
        assert_eq!(json(&again)["digest"], branched["digest"]);
    }
    assert_eq!(explored(&dir, &["--runs", "60", "--jobs", "2"], "two"), one, "the number of workers shows");
    if !bloodhound_platform_tests::without_kvm("a search on kvm") {
        assert_eq!(explored(&dir, &["--runs", "60", "--platform", "kvm"], "kvm"), one, "the platform shows");
    }
    let stopped = explored(&dir, &["--runs", "60", "--jobs", "2", "--fail-fast"], "first");
    assert_eq!(stopped["findings"][0], one["findings"][0], "the first finding is another one");
    assert_eq!(stopped["seeds_run"], one["findings"][0]["run"]);
}

/// What a strategy does is what its name says.
#[test]
fn strategies_have_their_meaning() {
    let dir = watched("explore-strategies");
    for strategy in ["bfs", "dfs"] {
        let told = explored(&dir, &["--runs", "40", "--strategy", strategy, "--max-states", "3"], strategy);
        assert_eq!((&told["search"]["strategy"], told["seeds_run"].as_u64()), (&strategy.into(), Some(40)));
        assert!(told["search"]["states"].as_u64().is_some_and(|states| states <= 3), "{told}");
        let branches = told["search"]["runs_by_arm"].as_object().expect("arms").len() > 1;
        assert!(branches, "{told}");
    }
    let test = |args: &[&str]| {
        json(&bloodhound(&dir, &[&["test", "--seeds", "12", "--format", "json"], args].concat()))
    };
    let (usual, swarm) = (test(&[]), test(&["--strategy", "swarm"]));
    assert_eq!(usual["steps"], swarm["steps"], "the default is swarm");
    let random = test(&["--strategy", "random"]);
    let asked = |told: &Value| told["fault_accounts"]["pause"]["seeds"].as_u64();
    assert_eq!(asked(&random), Some(12), "every seed has every kind: {random}");
    assert!(asked(&usual) < Some(12), "{usual}");
}

/// `input-tree` changes what getrandom(2) gives, and finds what no seed shows.
#[test]
fn random_numbers_of_programs_are_changed() {
    let compose = "services:\n  drawer: {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro'], command: [/app/drawer]}\n";
    let config = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 10s, boots: 2}\nfaults: {duration: 4s}\n\
        properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";
    let dir = stack("explore-inputs", &[("compose.yaml", compose), ("bloodhound.yaml", config)]);
    add_program(&dir, "explore/drawer.c");
    let options = ["--runs", "60", "--strategy", "input-tree", "--max-states", "3"];
    let told = explored(&dir, &options, "inputs");
    let search = &told["search"];
    assert_eq!((&search["strategy"], told["seeds_run"].as_u64()), (&"input-tree".into(), Some(60)));
    assert!(search["states"].as_u64().is_some_and(|states| states <= 3), "{told}");
    assert!(search["runs_by_arm"]["input"].as_u64().is_some_and(|runs| runs > 0), "{told}");
    let findings = told["findings"].as_array().expect("findings");
    assert!(!findings.is_empty(), "no number has been changed to 0: {told}");
    assert!(findings.iter().all(|finding| finding["branched_at_ns"].is_u64()), "a seed has shown it: {told}");
    let place = format!("inputs/findings/{}", findings[0]["replay"].as_str().expect("a name"));
    let again = bloodhound(&dir, &["replay", &place, "--format", "json"]);
    assert_eq!((code(&again), &json(&again)["digest"]), (1, &findings[0]["digest"]), "{}", text(&again));
}

#[test]
fn what_has_no_meaning_is_refused() {
    let dir = watched("explore-refused");
    let refused = |args: &[&str], says: &str| {
        let result = bloodhound(&dir, args);
        assert!(code(&result) == 2 && text(&result).contains(says), "{args:?}: {}", text(&result));
    };
    refused(&["explore", "--strategy", "breadth"], "is no strategy");
    refused(&["explore", "--runs", "0"], "--runs");
    refused(&["test", "--strategy", "dfs", "--boot-each"], "--boot-each");
}
