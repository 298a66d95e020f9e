//! Nodes that are alike are no twins: they start at other times, with other clocks, at other speeds, and so in each boot. Programs
//! that seed themselves from time and process id depend on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, finish, have, platform, repository, scratch};

const COMPOSE: &str = r#"
x-node: &node
  x-bloodhound: {rootfs: host}
  command: ["python3", "/app/seed.py"]
  volumes: ["./:/app:ro"]
services: {a: *node, b: *node, c: *node}
"#;
/// What redis, among many others, seeds itself from.
const SEED: &str = r#"
import os, time
now = time.time_ns()
print("seed", now // 10**9 ^ os.getpid() ^ now // 1000 % 10**6, "at", now // 1000, "pid", os.getpid(), flush=True)
time.sleep(1000)
"#;
/// What two services may be apart that are twins, in microseconds.
const CLOSE: u64 = 200;
const CONFIG: &str =
    "compose: docker-compose.yml\nproperties: [{name: up, kind: safety, check: {type: no-crash}}]\n";

fn stack(name: &str, simulation: &str) -> PathBuf {
    let dir = scratch(name);
    let config = format!("{CONFIG}simulation: {{max_time: 2s, time_step: 10ms{simulation}}}\n");
    for (file, text) in [("docker-compose.yml", COMPOSE), ("seed.py", SEED), ("bloodhound.yaml", &config)] {
        std::fs::write(dir.join(file), text).expect("a file");
    }
    dir
}

fn bloodhound(dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.current_dir(dir).args(arguments);
    if let Some(platform) = platform() {
        command.args(["--platform", &platform]);
    }
    finish(&mut command, b"")
}

/// What the three services seed themselves with in a run of a seed, and when they do by their clocks, in microseconds.
fn numbers(dir: &Path, seed: u64) -> Vec<(u64, u64)> {
    let ran = bloodhound(dir, &["run", "--seed", &seed.to_string()]);
    let lines = ran.stdout.lines().filter_map(|line| line.split("| seed ").nth(1));
    let number = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let &[number, "at", at, "pid", pid] = &words[..] else { panic!("{line}") };
        assert_eq!(pid, "1", "a service is process 1, as in a container");
        (number.parse().expect("a number"), at.parse().expect("a number"))
    };
    let numbers: Vec<(u64, u64)> = lines.map(number).collect();
    assert_eq!(numbers.len(), 3, "{}\n{}", ran.stdout, ran.stderr);
    numbers
}

/// How far the services of a boot are apart, in microseconds.
fn apart(boot: &[(u64, u64)]) -> u64 {
    let times = || boot.iter().map(|(_, at)| *at);
    times().max().unwrap_or(0) - times().min().unwrap_or(0)
}

#[test]
fn a_restarted_service_is_process_1_again() {
    if !have(&["python3"], "services that seed themselves") {
        return;
    }
    let faults = "faults: {swarm: false, duration: 1500ms, process: {crash_probability: 0.02, crash_restart_ms: [100, 200]}}\n";
    let dir = stack("nodes-restarted", "");
    let config = dir.join("bloodhound.yaml");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, text + faults).expect("the configuration");
    let ran = bloodhound(&dir, &["run", "--seed", "0"]);
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| line.contains("| seed ")).collect();
    assert!(lines.len() > 3, "nothing was restarted: {}\n{}", ran.stdout, ran.stderr);
    assert!(lines.iter().all(|line| line.ends_with(" pid 1")), "{lines:?}");
}

#[test]
fn equal_services_draw_other_numbers_in_each_boot() {
    if !have(&["python3"], "services that seed themselves") {
        return;
    }
    let dir = stack("nodes-no-twins", "");
    let boots: Vec<Vec<(u64, u64)>> = (0..4).map(|seed| numbers(&dir, seed)).collect();
    let all: BTreeSet<u64> = boots.iter().flatten().map(|(number, _)| *number).collect();
    assert_eq!(all.len(), 12, "{boots:?}");
    assert!(boots.iter().all(|boot| apart(boot) > CLOSE), "{boots:?}");
    // Seed 5 goes on from boot 1, as seed 1 does.
    assert_eq!(numbers(&dir, 5), boots[1]);
}

/// The canary of the test above: without any spread they are twins.
#[test]
fn without_spread_equal_services_are_twins() {
    if !have(&["python3"], "services that seed themselves") {
        return;
    }
    let spread = ", start_spread: 0, clock_spread: 0, cost_spread: 0";
    let dir = stack("nodes-twins", spread);
    // Not to the microsecond: where memory lies differs, and so how many pages a program touches.
    let boots: Vec<Vec<(u64, u64)>> = (0..4).map(|seed| numbers(&dir, seed)).collect();
    assert!(boots.iter().all(|boot| apart(boot) < CLOSE), "{boots:?}");
}

#[test]
fn a_seed_is_one_run_from_its_snapshot_and_from_its_boot() {
    if !have(&["python3"], "services that seed themselves") {
        return;
    }
    let dir = stack("nodes-boots", ", boots: 3");
    for seed in ["0", "1", "2", "7"] {
        let ran = bloodhound(&dir, &["verify", "--seed", seed, "--times", "4"]);
        assert_eq!(ran.code, Some(0), "seed {seed}: {}\n{}", ran.stdout, ran.stderr);
    }
}

/// Three sentinels that are alike to the byte elect a new master while the old one is down. In lockstep each of them votes for
/// itself at the same time, over and over.
#[test]
fn redis_sentinels_fail_over() {
    if !have(&["redis-server", "redis-cli"], "redis sentinels") {
        return;
    }
    let dir = repository().join("runner/tests/data/sentinels");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nodes-sentinels");
    let ran = bloodhound(&dir, &["test", "--out", &out.to_string_lossy()]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("4 of 4 seeds, 0 findings"), "{}", ran.stdout);
}
