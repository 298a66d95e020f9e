//! `bloodhound regress`, and campaigns that run the cases first: a case fails as long as its bug is there, whatever else of the stack has changed.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::cli::{bloodhound, code, json, text};
use crate::common::{compile, platform, put, repository, scratch, stack};
use serde_json::Value as Json;

const COMPOSE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n  \
    watcher: {<<: *s, command: [/app/watcher]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
/// Some faults of each kind in each second, of which only pauses of the watcher matter.
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 20s, time_step: 10ms, boots: 1}\n\
    faults: {swarm: false, duration: 8s, network: {partition_probability: 0.01, partition_duration_ms: [100, 400]}, \
    process: {pause_probability: 0.004, pause_duration_ms: [100, 400], slow_probability: 0.005, slow_duration_ms: [100, 400]}}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";
/// The case.
const CASE: &str = "regressions/stays.yaml";

/// Puts a build of the watcher into a stack.
fn build(dir: &Path, pauses: u32, name: &str) {
    let (pauses, name) = (format!("-DPAUSES={pauses}"), format!("-DBUILD=\"{name}\""));
    let new = dir.join("app/new");
    compile(&repository().join("runner/tests/shrink/watcher.c"), &new, &["-O1", &pauses, &name]);
    std::fs::rename(new, dir.join("app/watcher")).expect("in its place");
}

fn failing(name: &str) -> PathBuf {
    let dir = stack(&format!("regress-{name}"), &[("compose.yaml", COMPOSE), ("bloodhound.yaml", CONFIG)]);
    std::fs::create_dir_all(dir.join("app")).expect("a directory");
    build(&dir, 2, "first");
    dir
}

/// A finding of a campaign that stops at the first.
fn find(dir: &Path, args: &[&str]) -> (String, Json) {
    let result = bloodhound(
        dir,
        &[&["test", "--seeds", "30", "--jobs", "1", "--fail-fast", "--format", "json"], args].concat(),
    );
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0].clone();
    (finding["replay"].as_str().expect("a directory").to_owned(), finding)
}

/// `regress` with a command that runs something, on the platform that the tests are to run on.
fn regress(dir: &Path, args: &[&str]) -> Output {
    let platform = platform().unwrap_or_else(|| "auto".into());
    let options: &[&str] = if matches!(args[0], "add" | "run") { &["--platform", &platform] } else { &[] };
    bloodhound(dir, &[&["regress"], args, options].concat())
}

/// What `regress run` says of the only case, and with which exit code.
fn judged(dir: &Path, args: &[&str], wanted: i32) -> Json {
    let result = regress(dir, &[&["run", "--format", "json"], args].concat());
    assert_eq!(code(&result), wanted, "{}", text(&result));
    json(&result)["regressions"][0].clone()
}

fn said(json: &Json, key: &str) -> String {
    json[key].as_str().unwrap_or_default().to_owned()
}

fn junit(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("out/junit.xml")).expect("a report")
}

#[test]
fn a_case_fails_until_its_bug_is_gone() {
    let dir = failing("until");
    let (finding, found) = find(&dir, &[]);
    let shrunk = bloodhound(&dir, &["shrink", &finding, "--runs", "80"]);
    assert_eq!(code(&shrunk), 1, "{}", text(&shrunk));
    let added = regress(&dir, &["add", &finding]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    let file = std::fs::read_to_string(dir.join(CASE)).expect("a case");
    assert!(file.contains("VIOLATED stays") && file.contains("fault: pause, service: watcher"), "{file}");
    assert!(file.lines().count() < 150, "{file}");
    // It comes first, and is the recorded run on every platform.
    let args = ["test", "--seeds", "5", "--fail-fast", "--format", "json"];
    let first = bloodhound(&dir, &args);
    let told = json(&first);
    assert_eq!((code(&first), &told["seeds_run"]), (1, &Json::from(0)), "{}", text(&first));
    let case = &told["regressions"][0];
    assert_eq!((&case["verdict"], &case["runs"]), (&Json::from("fails"), &Json::from(1)), "{told}");
    assert!(
        said(case, "reason").contains("the same run") && case["changed"] == serde_json::json!([]),
        "{told}"
    );
    let xml = junit(&dir);
    assert!(
        xml.contains("<testcase name=\"stays\" classname=\"bloodhound.yaml.regression\"")
            && xml.contains("<failure"),
        "{xml}"
    );
    let replayed = bloodhound(&dir, &["replay", &said(case, "replay"), "--format", "json"]);
    assert_eq!((code(&replayed), &json(&replayed)["digest"]), (1, &case["digest"]), "{}", text(&replayed));
    let kvm = !bloodhound_platform_tests::without_kvm("regression cases on kvm");
    for name in ["ptrace", "kvm"].into_iter().take(if kvm { 2 } else { 1 }) {
        let result = bloodhound(&dir, &["regress", "run", "--platform", name, "--format", "json"]);
        assert!(
            code(&result) == 1 && text(&result).contains("the same run")
                || text(&result).contains("does not trap rdtsc"),
            "{}",
            text(&result)
        );
    }
    // Another build of the same bug.
    build(&dir, 2, "second");
    let other = judged(&dir, &[], 1);
    assert!(said(&other, "reason").contains("changed since it was found: watcher (content)"), "{other}");
    // Another configuration: the faults are those of its schedule, by names.
    put(
        &dir,
        "compose.yaml",
        &COMPOSE.replace("  watcher:", "  before: {<<: *s, command: [/bin/sleep, inf]}\n  watcher:"),
    );
    put(&dir, "bloodhound.yaml", &CONFIG.replace("pause_probability: 0.004", "pause_probability: 0.0001"));
    let refound = judged(&dir, &[], 1);
    assert!(said(&refound, "reason").contains("re-found by its faults and operations in run"), "{refound}");
    let text_of = said(&refound, "replay");
    assert_eq!(code(&bloodhound(&dir, &["replay", &text_of])), 1, "{text_of}");
    put(&dir, "compose.yaml", COMPOSE);
    put(&dir, "bloodhound.yaml", CONFIG);
    gone(&dir, &found);
}

/// The rest of the life of the case: its bug is fixed.
fn gone(dir: &Path, found: &Json) {
    build(dir, 1_000_000, "fixed");
    let passes = judged(dir, &["--runs", "3"], 0);
    assert_eq!((&passes["verdict"], &passes["runs"]), (&Json::from("passes"), &Json::from(4)), "{passes}");
    assert!(said(&passes, "reason").contains("choices that its log names were asked for"), "{passes}");
    let campaign = bloodhound(dir, &["test", "--seeds", "5", "--regression-runs", "1", "--format", "json"]);
    let told = json(&campaign);
    assert_eq!((code(&campaign), &told["regressions"][0]["verdict"]), (0, &Json::from("passes")), "{told}");
    let gone = &told["gone"][0];
    assert_eq!((&gone["property"], &gone["seeds_without"]), (&found["property"], &Json::from(5)), "{told}");
    assert!(gone["seeds_more"].as_u64().is_some_and(|more| more > 0), "{told}");
    assert!(
        junit(dir).contains("<testcase name=\"stays\" classname=\"bloodhound.yaml.regression\"/>"),
        "{}",
        junit(dir)
    );
    // Without its property nothing looks for it any more, so that nothing is violated says nothing.
    put(dir, "bloodhound.yaml", &CONFIG.replace("name: stays", "name: remains"));
    let blind = judged(dir, &["--runs", "1"], 4);
    assert_eq!(blind["verdict"], "not judged", "{blind}");
    assert!(said(&blind, "reason").contains("there is no property stays (safety) any more"), "{blind}");
    put(dir, "bloodhound.yaml", CONFIG);
    assert_eq!(code(&regress(dir, &["remove", "stays"])), 0);
    assert!(!dir.join(CASE).exists());
}

#[test]
fn a_known_case_is_listed_and_does_not_fail() {
    let dir = failing("known");
    let (finding, found) = find(&dir, &[]);
    assert_eq!(found["status"], "new");
    let seed = found["seed"].to_string();
    let again = ["test", "--seeds", "1", "--first-seed", &seed, "--format", "json"];
    let seen = bloodhound(&dir, &again);
    assert_eq!(
        (code(&seen), &json(&seen)["findings"][0]["status"]),
        (1, &Json::from("seen")),
        "{}",
        text(&seen)
    );
    let added = regress(&dir, &["add", &finding, "--known", "until \"later\": #1"]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    let known = bloodhound(&dir, &again);
    let told = json(&known);
    assert_eq!((code(&known), &told["findings"][0]["status"]), (0, &Json::from("known")), "{}", text(&known));
    assert_eq!(
        (&told["regressions"][0]["verdict"], &told["properties"][0]["verdict"]),
        (&Json::from("fails"), &Json::from("known"))
    );
    let xml = junit(&dir);
    assert!(!xml.contains("<failure") && !xml.contains("<error") && xml.contains("known (stays)"), "{xml}");
    let human = bloodhound(&dir, &["test", "--seeds", "1", "--first-seed", &seed]);
    assert!(
        text(&human).contains("known stays (regression)") && text(&human).contains("(known: stays)"),
        "{}",
        text(&human)
    );
    // Left out, it is a finding as any other.
    let out = bloodhound(&dir, &[&again[..], &["--no-regressions"]].concat());
    assert_eq!((code(&out), &json(&out)["regressions"]), (1, &serde_json::json!([])), "{}", text(&out));
    // Fixed, it is said aloud.
    build(&dir, 1_000_000, "fixed");
    let fixed = bloodhound(&dir, &["test", "--seeds", "2", "--regression-runs", "2"]);
    assert!(code(&fixed) == 0 && text(&fixed).contains("DOES NOT FAIL NOW"), "{}", text(&fixed));
    // Its log was not shrunken: nothing tells whether it still applies.
    assert!(text(&fixed).contains("not re-found in 2 runs"), "{}", text(&fixed));
    assert_eq!(code(&regress(&dir, &["mark", "stays", "--fixed"])), 0);
    build(&dir, 2, "first");
    assert_eq!(code(&regress(&dir, &["run"])), 1);
    assert_eq!(code(&regress(&dir, &["mark", "stays", "--known", "again"])), 0);
    let list = regress(&dir, &["list"]);
    assert!(text(&list).contains("stays (known: again)"), "{}", text(&list));
    damaged(&dir, &finding);
}

/// Cases that cannot be read end a campaign before it begins, and are told with their places.
fn damaged(dir: &Path, finding: &str) {
    let file = std::fs::read_to_string(dir.join(CASE)).expect("a case");
    let line = file.lines().position(|line| line.starts_with("kind:")).expect("a kind") + 1;
    put(dir, CASE, &file.replace("kind: \"safety\"", "kind: [safety]"));
    for args in [&["test", "--seeds", "1"][..], &["regress", "run"], &["regress", "list"]] {
        let refused = bloodhound(dir, args);
        let told = text(&refused);
        assert_eq!(code(&refused), 2, "{args:?}: {told}");
        assert!(told.contains(&format!("{CASE}:{line}:7")), "{args:?}: {told}");
    }
    assert!(junit(dir).contains("<error"), "{}", junit(dir));
    assert_eq!(
        code(&bloodhound(
            dir,
            &["test", "--seeds", "1", "--first-seed", "0", "--no-regressions", "--out", "other"]
        )) & !1,
        0
    );
    put(dir, CASE, &file);
    let refused = |args: &[&str], says: &str| {
        let result = regress(dir, args);
        assert!(code(&result) == 2 && text(&result).contains(says), "{args:?}: {}", text(&result));
    };
    refused(&["add", finding, "--name", "stays"], "there is a case `stays`");
    refused(&["add", finding, "--name", "../x"], "cannot be the name of a case");
    refused(&["add", "out/nothing"], "give the directory of a finding");
    refused(&["run", "other"], "there is no case `other`");
    refused(&["remove", "other"], "there is no case `other`");
    put(dir, "out/seen.json", "{");
    let result = bloodhound(dir, &["test", "--seeds", "1"]);
    assert!(code(&result) == 5 && text(&result).contains("seen.json"), "{}", text(&result));
}

/// A planted bug of the example: its case fails, and is not found again in the service without the bug.
#[test]
fn a_planted_bug_comes_first() {
    let example = repository().join("examples/distributed-kv");
    assert!(example.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
    let dir = scratch("regress-vote-twice");
    for file in ["bin/distributed-kv", "bugs/vote-twice.yaml", "bugs/vote-twice.compose.yml"] {
        let to = dir.join(file);
        std::fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
        std::fs::copy(example.join(file), to).expect("copied");
    }
    let config = ["--config", "bugs/vote-twice.yaml"];
    let (finding, found) = find(&dir, &config);
    let added = regress(&dir, &["add", &finding, "--name", "two-leaders"]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    assert!(dir.join("bugs/regressions/two-leaders.yaml").exists());
    let case = judged(&dir, &config, 1);
    assert_eq!((&case["verdict"], &case["digest"]), (&Json::from("fails"), &found["digest"]), "{case}");
    let compose = std::fs::read_to_string(dir.join("bugs/vote-twice.compose.yml")).expect("a file");
    assert!(compose.contains("BUG: vote-twice"), "{compose}");
    put(&dir, "bugs/vote-twice.compose.yml", &compose.replace("BUG: vote-twice", "BUG: ''"));
    let case = judged(&dir, &[&config[..], &["--runs", "2"]].concat(), 0);
    assert_eq!((&case["verdict"], &case["runs"]), (&Json::from("not re-found"), &Json::from(3)), "{case}");
}
