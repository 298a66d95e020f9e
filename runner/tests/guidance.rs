//! `run --features`: the features of a run are those of the run and of nothing else, there are more where there are faults, fewer and fewer
//! are new, and a run that violates something is as near to it as can be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, code, text};
use crate::common::{put, repository, say, scratch, stack};
use serde_json::Value as Json;

/// How many seeds the growth of features is looked at.
const SEEDS: u64 = 8;

fn example() -> PathBuf {
    let dir = repository().join("examples/distributed-kv");
    assert!(dir.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
    dir
}

/// A run with its features: the digest that it tells, and the lines of the file.
fn run(dir: &Path, out: &Path, args: &[&str], wanted: i32) -> (String, Vec<Json>) {
    let file = out.join("features.jsonl");
    let result = bloodhound(dir, &[&["run", "--features", &file.to_string_lossy()], args].concat());
    assert_eq!(code(&result), wanted, "{}", text(&result));
    let lines = std::fs::read_to_string(&file).expect("a file of features");
    let lines: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((&first["schema"], &last["end"]), (&Json::from("bloodhound.features/v1"), &Json::from(true)));
    assert_eq!((&last["features"], &last["left_out"]), (&Json::from(lines.len() - 2), &Json::from(0)));
    (digest(&result), lines)
}

fn digest(result: &std::process::Output) -> String {
    let all = text(result);
    let line = all.lines().find(|line| line.starts_with("digest: "));
    line.unwrap_or_else(|| panic!("no digest: {all}")).to_owned()
}

fn hashes(lines: &[Json]) -> BTreeSet<String> {
    lines.iter().filter_map(|line| line["feature"].as_str().map(str::to_owned)).collect()
}

#[test]
fn features_are_those_of_the_run_on_every_platform() {
    let out = scratch("guidance-same");
    let args = ["--seed", "3"];
    let (told, one) = run(&example(), &out, &args, 0);
    let plain = bloodhound(&example(), &["run", "--seed", "3"]);
    assert_eq!(digest(&plain), told, "to gather features has changed the run");
    // Other listeners, and all of their choices, change nothing.
    let events = out.join("events.jsonl");
    let (again, other) =
        run(&example(), &out, &[&args[..], &["--events", &events.to_string_lossy()]].concat(), 0);
    assert_eq!((&again, &other), (&told, &one));
    let all = one.iter().filter_map(|line| line["text"].as_str()).collect::<Vec<_>>();
    for aspect in ["calls: ", "message: ", "together-under: ", "file-set: ", "operation: ", "fault-pair: "] {
        assert!(all.iter().any(|text| text.starts_with(aspect)), "{aspect}");
    }
    assert!(
        !all.iter().any(|text| text.contains("kv2") || text.contains("kv3")),
        "a node has its own features"
    );
    for platform in ["ptrace", "kvm"] {
        if platform == "kvm" && bloodhound_platform_tests::without_kvm("features on kvm") {
            continue;
        }
        let args = [&args[..], &["--platform", platform]].concat();
        // Programs that read the processor's counter differ where it is not trapped.
        if platform == "kvm"
            && text(&bloodhound(&example(), &[&["run"], &args[..]].concat())).contains("does not trap rdtsc")
        {
            continue;
        }
        let (digest, lines) = run(&example(), &out, &args, 0);
        assert_eq!((&digest, &lines), (&told, &one), "{platform}");
    }
}

#[test]
fn faults_add_features_and_seeds_add_fewer_and_fewer() {
    let out = scratch("guidance-growth");
    put(&out, "none.yaml", "schedule: []\n");
    let none = out.join("none.yaml").to_string_lossy().into_owned();
    let (_, calm) = run(&example(), &out, &["--seed", "0", "--faults", &none], 0);
    let calm = hashes(&calm);
    let mut known = BTreeSet::new();
    let mut curve: Vec<usize> = Vec::new();
    for seed in 0..SEEDS {
        let before = known.len();
        let (_, lines) = run(&example(), &out, &["--seed", &seed.to_string()], 0);
        known.extend(hashes(&lines));
        curve.push(known.len() - before);
    }
    say(&format!("features that each seed adds: {curve:?}; without faults {}", calm.len()));
    assert!(known.len() > calm.len() * 3 / 2, "{} with faults, {} without", known.len(), calm.len());
    let (early, late) = curve.split_at(curve.len() / 2);
    assert!(late.iter().sum::<usize>() < early.iter().sum::<usize>() / 2, "{curve:?}");
}

const COMPOSE: &str = "services:\n  job: {x-bloodhound: {rootfs: host}, restart: 'no', \
    command: [/bin/sh, -c, 'sleep 2; echo \"elected in term $$$$\"; sleep 2; exit $CODE']}\n";
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 10s}\nfaults: {swarm: false, duration: 6s}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";

#[test]
fn a_violation_is_as_near_as_can_be() {
    let mut near = BTreeMap::new();
    for (exit, wanted) in [("0", 0), ("3", 1)] {
        let compose = COMPOSE.replace("$CODE", exit);
        let dir = stack(
            &format!("guidance-near-{exit}"),
            &[("compose.yaml", &compose), ("bloodhound.yaml", CONFIG)],
        );
        let (_, lines) = run(&dir, &dir, &[], wanted);
        near.insert(exit, lines.last().and_then(|line| line["nearness"].as_u64()).expect("a number"));
        let line = "line: job~: elected in term #";
        assert!(lines.iter().any(|l| l["text"] == line), "{lines:?}");
    }
    assert_eq!(near["3"], 1_000_000);
    assert!(near["0"] < 1_000_000, "{near:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_an_environment_error() {
    let compose = COMPOSE.replace("$CODE", "0");
    let dir = stack(
        "guidance-unwritable",
        &[("compose.yaml", &compose), ("bloodhound.yaml", CONFIG), ("file", "")],
    );
    let result = bloodhound(&dir, &["run", "--features", "file/features.jsonl"]);
    assert_eq!(code(&result), 5, "{}", text(&result));
    assert!(text(&result).contains("cannot write features to file/features.jsonl"), "{}", text(&result));
}
