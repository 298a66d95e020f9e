//! `bloodhound verify --branches`: runs go on from moments of a run as their logs say, and however many do, neither memory nor descriptors nor processes grow.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::common::cli::{bloodhound, code, command, json, text};
use crate::common::{compile, repository, say, stack};

const COMPOSE: &str =
    "services:\n  busy: {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro'], command: [/app/busy]}\n";
const CONFIG: &str = "compose: compose.yaml\nsimulation: {max_time: 300ms, boots: 1}\n\
    faults: {swarm: false, duration: 200ms, process: {pause_probability: 0.02, pause_duration_ms: [10, 50], \
    kill_probability: 0.005, kill_restart_ms: [10, 50]}}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";
/// Moments of the short form. Each is five or six runs, of which two or three are branches and four restores.
const MOMENTS: u64 = 48;
/// Bytes by which the memory may be larger at the end than in the middle.
const SLACK: u64 = 16 << 20;

/// What a process has of the host: bytes, open descriptors, children.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    descriptors: u64,
    children: u64,
}

impl Held {
    fn of(pid: u32) -> Option<Held> {
        let dir = Path::new("/proc").join(pid.to_string());
        let statm = fs::read_to_string(dir.join("statm")).ok()?;
        let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
        let descriptors = fs::read_dir(dir.join("fd")).ok()?.count() as u64;
        let tasks = fs::read_dir(dir.join("task")).ok()?.flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children = children.map(|children| children.split_whitespace().count() as u64).sum();
        Some(Held { bytes: pages * 4096, descriptors, children })
    }
}

/// How many moments there are to be: BLOODHOUND_TEST_BRANCHES says it.
fn moments() -> u64 {
    let text = std::env::var("BLOODHOUND_TEST_BRANCHES").ok();
    text.map_or(MOMENTS, |text| text.parse().expect("BLOODHOUND_TEST_BRANCHES is a number"))
}

#[test]
fn branches_keep_nothing_of_the_host() {
    let dir = stack("branches", &[("compose.yaml", COMPOSE), ("bloodhound.yaml", CONFIG)]);
    fs::create_dir_all(dir.join("app")).expect("a directory");
    compile(&repository().join("runner/tests/data/branches/busy.c"), &dir.join("app/busy"), &["-O1"]);
    let count = moments().to_string();
    let args = ["verify", "--seed", "1", "--branches", &count, "--format", "json"];
    let mut child =
        command(&dir, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut seen = Vec::new();
    while child.try_wait().expect("a child").is_none() {
        seen.extend(Held::of(child.id()));
        sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("an answer");
    assert_eq!(code(&output), 0, "{}", text(&output));
    let branches = &json(&output)["branches"];
    assert_eq!(branches["moments"].as_u64(), Some(count.parse().expect("a number")), "{branches}");
    assert!(branches["other_runs"].as_u64() > Some(0), "{branches}");
    // The second run of `verify` has a worker of its own, so the last samples are not looked at.
    seen.truncate(seen.len() * 9 / 10);
    assert!(seen.len() > 20, "only {} samples", seen.len());
    let most = |of: fn(&Held) -> u64, part: &[Held]| part.iter().map(of).max().unwrap_or_default();
    let (first, second) = seen.split_at(seen.len() / 2);
    let both = |of| (most(of, first), most(of, second));
    let (bytes, descriptors, children) =
        (both(|held| held.bytes), both(|held| held.descriptors), both(|held| held.children));
    say(&format!(
        "figures: branches from {count} moments, bytes {bytes:?}, descriptors {descriptors:?}, children {children:?}"
    ));
    assert!(bytes.1 <= bytes.0 + SLACK, "{bytes:?} bytes");
    assert!(descriptors.1 <= descriptors.0 + 8, "{descriptors:?} descriptors");
    assert!(children.1 <= children.0 + 8, "{children:?} processes");
}

#[test]
fn branches_of_a_program_are_refused() {
    let result = bloodhound(Path::new("/"), &["verify", "--branches", "2", "--", "/bin/true"]);
    assert_eq!(code(&result), 2, "{}", text(&result));
}
