//! `bloodhound causes`: of stacks whose failure has a cause that is known exactly, this cause is named, however many workers there are, and on both platforms.

use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, code, json, text};
use crate::common::{compile, repository, scratch, stack};
use serde_json::Value;

const SERVICE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n";

/// A stack of these services with these faults, and a finding of it.
fn failing(name: &str, services: &str, faults: &str) -> (PathBuf, PathBuf) {
    let config = format!(
        "compose: compose.yaml\noutput: {{dir: out}}\nsimulation: {{max_time: 40s, time_step: 10ms, boots: 1}}\n\
         faults: {{swarm: false, duration: 10s{faults}}}\nproperties: [{{name: stays, kind: safety, check: {{type: no-crash}}}}]\n"
    );
    let compose = format!("{SERVICE}{services}");
    let dir = stack(&format!("causes-{name}"), &[("compose.yaml", &compose), ("bloodhound.yaml", &config)]);
    std::fs::create_dir_all(dir.join("app")).expect("a directory");
    let sources = repository().join("runner/tests");
    compile(&sources.join("causes/parcel.c"), &dir.join("app/parcel"), &["-O1"]);
    compile(&sources.join("shrink/watcher.c"), &dir.join("app/watcher"), &["-O1"]);
    let args = ["test", "--seeds", "200", "--jobs", "1", "--fail-fast", "--format", "json"];
    let result = bloodhound(&dir, &args);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0]["replay"].as_str().expect("a directory").to_owned();
    let finding = dir.join(finding);
    (dir, finding)
}

/// The causes of a finding, with these options.
fn causes(dir: &Path, finding: &Path, options: &[&str]) -> Value {
    let path = finding.to_string_lossy();
    let result = bloodhound(dir, &[&["causes", &path, "--format", "json"], options].concat());
    assert_eq!(code(&result), 1, "{}", text(&result));
    json(&result)
}

fn says(of: &Value, part: &str) -> bool {
    of.as_str().is_some_and(|text| text.contains(part))
}

/// Both platforms, where there are both.
fn platforms() -> &'static [&'static str] {
    let kvm = !bloodhound_platform_tests::without_kvm("causes on kvm");
    if kvm { &["ptrace", "kvm"] } else { &["ptrace"] }
}

#[test]
fn a_lost_datagram_is_named_with_its_ends_and_its_text() {
    let services = "  sender: {<<: *s, command: [/app/parcel, send, taker]}\n  taker: {<<: *s, command: [/app/parcel, take]}\n";
    let (dir, finding) = failing("lost", services, ", network: {drop_rate: 0.03}");
    let told = causes(&dir, &finding, &["--runs", "250"]);
    let cause = &told["cause"];
    for part in ["datagram from sender", "to taker (port 7000)", "pay 20"] {
        assert!(says(&cause["what"], part), "{told:#}");
    }
    assert!(says(&cause["values"]["failing"], "is lost"), "{told:#}");
    assert!(says(&cause["values"]["passing"], "arrives at"), "{told:#}");
    assert_eq!(told["always"], false);
    // From there on it always fails, and not without it.
    let (with, without) = (&cause["futures_with"], &cause["futures_without"]);
    assert_eq!((&with["failing"], &without["failing"]), (&with["tried"], &0.into()), "{told:#}");
    assert_ne!(cause["digest_failing"], cause["digest_passing"]);
    let around = cause["around"].as_array().expect("events");
    let failing = |event: &Value| event["side"] == "failing" && says(&event["line"], "nobody has paid");
    assert!(around.iter().any(failing), "{told:#}");
    let story = std::fs::read_to_string(finding.join("causes.md")).expect("a story");
    assert!(story.contains("pay 20") && story.contains("## When"), "{story}");
    let written = std::fs::read_to_string(finding.join("causes.json")).expect("a file");
    assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), told);
}

#[test]
fn a_fault_is_named_whatever_the_workers_and_the_platform() {
    let services =
        "  watcher: {<<: *s, command: [/app/watcher]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
    let faults = ", process: {pause_probability: 0.002, pause_duration_ms: [100, 400], slow_probability: 0.005, slow_duration_ms: [100, 400]}";
    let (dir, finding) = failing("fault", services, faults);
    let mut all = Vec::new();
    for (jobs, platform) in
        [("1", "ptrace"), ("2", "ptrace")].into_iter().chain(platforms().iter().map(|p| ("2", *p)))
    {
        let out = format!("told-{}", all.len());
        all.push(causes(
            &dir,
            &finding,
            &["--runs", "200", "--jobs", jobs, "--platform", platform, "--out", &out],
        ));
    }
    let told = &all[0];
    assert!(says(&told["cause"]["what"], "pause watcher"), "{told:#}");
    let flips = told["taken_out"].as_array().expect("a list").iter();
    let flips = flips.filter(|one| one["without_it"] == "passes").count();
    assert_eq!(flips, 2, "it takes two pauses: {told:#}");
    let (before, after) = (&told["jump"]["before"], &told["jump"]["after"]);
    assert_eq!((&before["failing"], &after["failing"]), (&0.into(), &after["tried"]), "{told:#}");
    assert_eq!(after["virtual_time_ns"].as_u64(), told["cause"]["virtual_time_ns"].as_u64().map(|at| at + 1));
    assert!(all.iter().all(|other| other == told), "workers or platform show");
}

#[test]
fn a_failure_without_any_cause_in_time_is_told_as_such() {
    let services =
        "  old: {<<: *s, command: [/app/parcel, old]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
    let (dir, finding) = failing("always", services, ", process: {pause_probability: 0.01}");
    let told = causes(&dir, &finding, &["--runs", "120"]);
    assert_eq!(
        (&told["always"], &told["plainest"], &told["cause"]),
        (&true.into(), &"fails".into(), &Value::Null)
    );
    let story = std::fs::read_to_string(finding.join("causes.md")).expect("a story");
    assert!(story.contains("It fails in every future from the start on"), "{story}");
}

#[test]
fn what_cannot_be_explained_is_refused_and_nothing_is_written() {
    let services = "  old: {<<: *s, command: [/app/parcel, old]}\n";
    let (dir, finding) = failing("refused", services, "");
    let path = finding.to_string_lossy().into_owned();
    let refused = |args: &[&str], wanted: i32, says: &str| {
        let result = bloodhound(&dir, &[&["causes"], args].concat());
        let all = text(&result);
        assert!(code(&result) == wanted && all.contains(says), "{args:?}: {all}");
        assert!(!finding.join("causes.json").exists(), "{args:?}");
    };
    refused(&["out/findings/nothing"], 2, "give the directory of a finding");
    refused(&[&path, "--out", "bloodhound.yaml"], 2, "is no directory");
    refused(&[&path, "--runs", "0"], 2, "--runs");
    let record = finding.join("finding.json");
    let original = std::fs::read_to_string(&record).expect("a record");
    std::fs::write(&record, original.replacen("\"property\": \"stays\"", "\"property\": \"goes\"", 1))
        .expect("written");
    refused(&[&path], 6, "does not fail any more");
    std::fs::write(&record, &original).expect("written");
    // A search whose time is over says so, and claims nothing that it has not seen.
    let told = causes(&dir, &finding, &["--timeout", "1ns"]);
    assert_eq!((&told["ended_early"], &told["always"]), (&"the time was over".into(), &false.into()));
}

/// The planted bug of the example that needs a leader which is cut off or paused.
#[test]
fn a_planted_bug_has_its_fault_named() {
    let example = repository().join("examples/distributed-kv");
    assert!(example.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
    let out = scratch("causes-stale-read");
    let place = out.to_string_lossy();
    let args = [
        "test",
        "--config",
        "bugs/stale-read.yaml",
        "--seeds",
        "30",
        "--fail-fast",
        "--format",
        "json",
        "--out",
        &place,
    ];
    let result = bloodhound(&example, &args);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = PathBuf::from(json(&result)["findings"][0]["replay"].as_str().expect("a directory"));
    let told = causes(&example, &finding, &["--runs", "100"]);
    let faults =
        told["taken_out"].as_array().expect("a list").iter().filter(|one| one["without_it"] == "passes");
    let named = faults.filter(|one| says(&one["what"], "partition") || says(&one["what"], "pause")).count();
    assert!(named > 0, "{told:#}");
}
