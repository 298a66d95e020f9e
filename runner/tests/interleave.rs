//! Services whose bug lies between two instructions: not found at system calls, found with `preempt_at: code`, replayed exactly.

use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, json, text};
use crate::common::compile;

/// A stack of the one service, with this section `exploration`.
fn stack(name: &str, exploration: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interleave-{name}"));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/interleave/service.c");
    compile(&source, &dir.join("service"), &["-O1", "-g"]);
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
    write(
        "compose.yaml",
        "services:\n  one:\n    command: [/app/service]\n    volumes: ['./:/app:ro']\n    x-bloodhound: {rootfs: host}\n",
    );
    write(
        "bloodhound.yaml",
        &format!(
            "compose: compose.yaml\noutput: {{dir: out}}\nsimulation: {{max_time: 20s}}\nfaults: {{duration: 5s, network: {{drop_rate: 0.01}}}}\n{exploration}\nproperties:\n  \
             - name: stays\n    kind: safety\n    check: {{type: no-crash}}\n"
        ),
    );
    dir
}

#[test]
fn at_calls_the_two_accesses_are_never_torn_apart() {
    let dir = stack("calls", "exploration: {schedule: {policy: swarm}}");
    let result = bloodhound(&dir, &["test", "--seeds", "60"]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result));
}

#[test]
fn at_code_they_are_and_the_finding_replays() {
    let dir = stack("code", "exploration: {schedule: {policy: swarm, depth: 3, preempt_at: code}}");
    let seeds = |jobs: &str, out: &str| {
        let result =
            bloodhound(&dir, &["test", "--seeds", "120", "--jobs", jobs, "--format", "json", "--out", out]);
        assert_eq!(result.status.code(), Some(1), "{}", text(&result));
        let findings = json(&result)["findings"].clone();
        let mut found: Vec<(u64, String)> = findings
            .as_array()
            .expect("findings")
            .iter()
            .map(|f| (f["seed"].as_u64().expect("a seed"), f["digest"].to_string()))
            .collect();
        found.sort();
        (found, findings)
    };
    let (found, findings) = seeds("1", "out-1");
    assert!(!found.is_empty());
    assert_eq!(seeds("2", "out-2").0, found, "findings are the same for any number of workers");
    let finding = &findings[0];
    let directory = finding["replay"].as_str().expect("a directory");
    for platform in ["ptrace", "kvm"] {
        if platform == "kvm" && bloodhound_platform_tests::without_kvm("a replay of switches on kvm") {
            continue;
        }
        let again = bloodhound(&dir, &["replay", directory, "--format", "json", "--platform", platform]);
        assert_eq!(again.status.code(), Some(1), "{}", text(&again));
        assert_eq!(json(&again)["digest"], finding["digest"], "{platform}");
    }
    // The seed alone, which draws the switches again.
    let seed = finding["seed"].to_string();
    let again = bloodhound(&dir, &["run", "--seed", &seed, "--format", "json"]);
    assert_eq!(json(&again)["digest"], finding["digest"], "{}", text(&again));
}
