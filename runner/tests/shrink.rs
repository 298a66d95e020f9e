//! `bloodhound shrink`: of many faults those are left that matter, in a finding that is replayed exactly, however many workers there are.

use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, code, json, text};
use crate::common::{compile, repository, scratch, stack};

const COMPOSE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n  \
    watcher: {<<: *s, command: [/app/watcher]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
/// Some faults of each kind in each second, of which only pauses of the watcher matter.
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 60s, time_step: 10ms, boots: 1}\n\
    faults: {swarm: false, duration: 20s, network: {drop_rate: 0.01, delay_rate: 0.01, partition_probability: 0.01, \
    partition_duration_ms: [100, 400]}, process: {pause_probability: 0.002, pause_duration_ms: [100, 400], \
    slow_probability: 0.005, slow_duration_ms: [100, 400]}, clock: {clock_jump_probability: 0.005, clock_jump_ms: [100, 400]}}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";

/// A stack whose watcher fails, and a finding of it.
fn failing(name: &str) -> (PathBuf, PathBuf) {
    let dir = stack(&format!("shrink-{name}"), &[("compose.yaml", COMPOSE), ("bloodhound.yaml", CONFIG)]);
    std::fs::create_dir_all(dir.join("app")).expect("a directory");
    compile(&repository().join("runner/tests/shrink/watcher.c"), &dir.join("app/watcher"), &["-O1"]);
    let result =
        bloodhound(&dir, &["test", "--seeds", "10", "--jobs", "1", "--fail-fast", "--format", "json"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0]["replay"].as_str().expect("a directory").to_owned();
    let finding = dir.join(finding);
    (dir, finding)
}

/// The lines of a story that tell of faults that were injected, without those of their ends.
fn faults(story: &str) -> Vec<&str> {
    let told = story.lines().filter(|line| line.contains(" fault    ") && !line.contains(" is over"));
    told.filter(|line| !line.contains(" healed")).collect()
}

fn story(finding: &Path) -> String {
    std::fs::read_to_string(finding.join("shrunk/story.txt")).expect("a story")
}

/// Replays it on both platforms, where there are both: the same violation, and the digest that it tells.
fn replays(dir: &Path, shrunk: &str) {
    let mut digests = Vec::new();
    let kvm = !bloodhound_platform_tests::without_kvm("replays of shrunken findings on kvm");
    for platform in ["ptrace", "ptrace", "kvm"].into_iter().take(if kvm { 3 } else { 2 }) {
        let result = bloodhound(dir, &["replay", shrunk, "--platform", platform, "--format", "json"]);
        if platform == "kvm" && text(&result).contains("does not trap rdtsc") {
            continue;
        }
        assert_eq!(code(&result), 1, "{}", text(&result));
        digests.push(json(&result)["digest"].clone());
    }
    assert!(digests.windows(2).all(|two| two[0] == two[1]), "{digests:?}");
}

#[test]
fn two_pauses_are_left_of_many_faults() {
    let (dir, finding) = failing("two");
    let before = std::fs::read_to_string(finding.join("trace.txt")).expect("a trace");
    let many = faults(&before).len();
    assert!(many > 20, "{before}");
    let path = finding.to_string_lossy();
    // A budget in runs, so that no clock decides.
    let one = bloodhound(&dir, &["shrink", &path, "--jobs", "1", "--runs", "400"]);
    assert_eq!(code(&one), 1, "{}", text(&one));
    let told = story(&finding);
    let left = faults(&told);
    assert_eq!(left.len(), 2, "{told}");
    assert!(left.iter().all(|line| line.contains("pause watcher")), "{told}");
    assert!(told.contains("VIOLATED stays"), "{told}");
    // Each is where it may come a little earlier and later.
    assert!(told.contains("it failed as well with one of these faults at another time"), "{told}");
    let shrunk = finding.join("shrunk").to_string_lossy().into_owned();
    replays(&dir, &shrunk);
    let out = String::from_utf8_lossy(&one.stdout).into_owned();
    // What comes after the violation is no part of it any more.
    assert!(told.contains("no fault begins later than ") && told.contains(" of 20s"), "{told}");
    assert!(!told.contains("not all tried"), "{told}");
    assert!(out.contains(&told) && out.contains("replay: bloodhound replay "), "{out}");
    let three = bloodhound(&dir, &["shrink", &path, "--jobs", "3", "--runs", "400"]);
    assert_eq!(String::from_utf8_lossy(&three.stdout), out, "the number of workers shows");
    // It cannot be made smaller, and is one of its own: its directory is that of a finding.
    let again = bloodhound(&dir, &["shrink", &shrunk, "--runs", "400", "--out", "again", "--format", "json"]);
    assert_eq!(code(&again), 1, "{}", text(&again));
    assert_eq!(json(&again)["faults"].as_array().map(Vec::len), Some(left_with_ends(&told)));
    let times = json(&again)["fault_times"].clone();
    let times = times.as_array().expect("times of faults");
    assert!(
        times.len() == 2 && times.iter().all(|one| one["from_ns"].as_u64() < one["to_ns"].as_u64()),
        "{times:?}"
    );
    replays(&dir, "again");
    let few = bloodhound(&dir, &["shrink", &path, "--runs", "4", "--out", "few", "--format", "json"]);
    assert_eq!(code(&few), 1, "{}", text(&few));
    let (few, rest) = (json(&few), std::fs::read_to_string(dir.join("few/story.txt")).expect("a story"));
    assert_eq!(few["ended_early"], "the budget of runs was used up", "{few}");
    assert!(few["runs"].as_u64().is_some_and(|runs| runs <= 4), "{few}");
    assert!((2..=many).contains(&faults(&rest).len()), "{rest}");
    replays(&dir, "few");
}

/// After a campaign one finding of each group is shrunk, and nothing else is another one for that.
#[test]
fn a_campaign_shrinks_its_findings() {
    let (dir, finding) = failing("automatic");
    let test = |more: &[&str]| {
        let args = ["test", "--seeds", "3", "--jobs", "1", "--first-seed"];
        let record = std::fs::read_to_string(finding.join("finding.json")).expect("a record");
        let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
        let seed = record["seed"].to_string();
        bloodhound(&dir, &[&args[..], &[&seed, "--format", "json"], more].concat())
    };
    let (plain, shrunk) = (test(&[]), test(&["--shrink-budget", "5m"]));
    assert_eq!((code(&plain), code(&shrunk)), (1, 1), "{}", text(&shrunk));
    let (plain, shrunk) = (json(&plain), json(&shrunk));
    for key in ["findings", "properties", "steps", "exit_code", "virtual_time_ns"] {
        assert_eq!(plain[key], shrunk[key], "{key}");
    }
    assert_eq!(plain["groups"], serde_json::json!([]));
    let groups = shrunk["groups"].as_array().expect("groups");
    let (group, findings) = (&groups[0], shrunk["findings"].as_array().map_or(0, Vec::len));
    assert_eq!((groups.len(), group["seeds"].as_array().map_or(0, Vec::len)), (1, findings), "{shrunk}");
    assert_eq!(group["not_shrunk"], serde_json::Value::Null, "{shrunk}");
    let small = group["shrunk"]["directory"].as_str().expect("a directory");
    let left = group["shrunk"]["dimensions"][0]["after"].as_u64().expect("a number");
    assert_eq!(left, 2, "{group}");
    replays(&dir, small);
    let report = std::fs::read_to_string(dir.join("out/junit.xml")).expect("a report");
    assert!(report.contains("shrunken finding: bloodhound replay ") && report.contains("in order of time:"));
    let none = test(&["--shrink-budget", "1ms"]);
    let why = &json(&none)["groups"][0]["not_shrunk"];
    assert_eq!((code(&none), why.as_str()), (1, Some("the time for shrinking was over")), "{}", text(&none));
}

/// How many lines of faults a story has, those of ends included.
fn left_with_ends(story: &str) -> usize {
    story.lines().filter(|line| line.contains(" fault    ")).count()
}

#[test]
fn what_cannot_be_shrunk_is_refused_and_nothing_is_written() {
    let (dir, finding) = failing("refused");
    let path = finding.to_string_lossy().into_owned();
    let refused = |args: &[&str], wanted: i32, says: &str| {
        let result = bloodhound(&dir, &[&["shrink"], args].concat());
        let all = text(&result);
        assert!(code(&result) == wanted && all.contains(says), "{args:?}: {all}");
        assert!(!finding.join("shrunk").exists(), "{args:?}");
    };
    refused(&["out/findings/nothing"], 2, "give the directory of a finding");
    std::fs::create_dir(dir.join("mine")).expect("a directory");
    refused(&[&path, "--out", "mine"], 2, "is no finding");
    refused(&[&path, "--timeout", "1ns"], 4, "nothing is written");
    let record = finding.join("finding.json");
    let original = std::fs::read_to_string(&record).expect("a record");
    let put = |from: &str, to: &str| {
        assert!(original.contains(from), "{original}");
        std::fs::write(&record, original.replacen(from, to, 1)).expect("written");
    };
    put("\"format\": 5", "\"format\": 4");
    refused(&[&path], 2, "has format 4");
    put("\"property\": \"stays\"", "\"property\": \"goes\"");
    refused(&[&path], 6, "does not fail any more");
    std::fs::write(&record, &original).expect("written");
    std::fs::write(dir.join("bloodhound.yaml"), CONFIG.replace("20s", "21s")).expect("written");
    refused(&[&path], 2, "has changed since the finding was made");
    std::fs::write(dir.join("bloodhound.yaml"), CONFIG).expect("written");
    std::fs::write(finding.join("decisions.json"), "{}").expect("written");
    refused(&[&path], 2, "decisions.json");
}

/// What is written by hand is left out as what is drawn.
#[test]
fn written_faults_are_left_out_as_well() {
    let (dir, _) = failing("written");
    let pauses = "{at: 1s, fault: pause, service: watcher, duration: 200ms}";
    let schedule = format!(
        "schedule:\n  - {pauses}\n  - {}\n  - {{at: 3s, fault: crash, service: other}}\n  - {}\n  - {}\n",
        pauses.replace("1s", "2s").replace("watcher", "other"),
        pauses.replace("1s", "4s"),
        pauses.replace("1s", "5s"),
    );
    std::fs::write(dir.join("faults.yaml"), schedule).expect("written");
    let args = ["test", "--faults", "faults.yaml", "--seeds", "1", "--out", "written", "--format", "json"];
    let result = bloodhound(&dir, &args);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0]["replay"].as_str().expect("a directory").to_owned();
    let shrunk = bloodhound(&dir, &["shrink", &finding, "--runs", "400"]);
    assert_eq!(code(&shrunk), 1, "{}", text(&shrunk));
    let told = story(&dir.join(&finding));
    assert_eq!(faults(&told).len(), 2, "{told}");
    replays(&dir, &format!("{finding}/shrunk"));
}

/// The story of a planted bug of the example, shrunk within 200 runs and replayed.
fn shrunken_bug(bug: &str) -> String {
    shrunken(bug, "0", "200")
}

/// The story of the finding of the first seed that fails, from this one on.
fn shrunken(bug: &str, first: &str, runs: &str) -> String {
    story(&shrunken_finding(bug, first, runs))
}

fn shrunken_finding(bug: &str, first: &str, runs: &str) -> PathBuf {
    let example = repository().join("examples/distributed-kv");
    assert!(example.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
    let out = scratch(bug);
    let (place, config) = (out.to_string_lossy(), format!("bugs/{bug}.yaml"));
    let args = ["test", "--config", &config, "--first-seed", first, "--seeds", "100", "--fail-fast"];
    let result = bloodhound(&example, &[&args[..], &["--format", "json", "--out", &place]].concat());
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0]["replay"].as_str().expect("a directory").to_owned();
    let shrunk = bloodhound(&example, &["shrink", &finding, "--runs", runs]);
    assert_eq!(code(&shrunk), 1, "{}", text(&shrunk));
    replays(&example, &format!("{finding}/shrunk"));
    PathBuf::from(finding)
}

/// An old leader and a node that votes twice.
#[test]
fn a_planted_bug_is_left_with_few_faults() {
    let told = shrunken_bug("vote-twice");
    assert!(faults(&told).len() <= 5, "{told}");
}

/// A connection is reset while a request waits, for packets between the nodes are lost. Each operation that is left out moves these losses.
#[test]
fn operations_go_although_losses_of_packets_matter() {
    is_small(&shrunken_bug("reuse-after-reset"));
}

/// A write to the log fails, or is short. Each operation that is left out gives that write another number.
#[test]
fn operations_go_although_a_write_that_fails_matters() {
    is_small(&shrunken_bug("short-write"));
}

/// A write has to be late just where a read comes, which happens to this seed only amid many operations: another run does it with few.
#[test]
fn another_run_is_made_smaller_where_much_is_left_of_a_finding() {
    let finding = shrunken_finding("ack-before-commit", "7017", "400");
    let told = story(&finding);
    is_small(&told);
    assert!(told.contains("drawn anew from the boot on"), "it is small without another run: {told}");
    // One that is small already stays as it is, whatever another run might be, and does not depend on the number of workers either.
    let shrunk = finding.join("shrunk").to_string_lossy().into_owned();
    let example = repository().join("examples/distributed-kv");
    let args = ["shrink", &shrunk, "--jobs", "1", "--runs", "400", "--out", "again", "--format", "json"];
    let out = finding.join("again").to_string_lossy().into_owned();
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "again" { out.as_str() } else { arg }).collect();
    let again = bloodhound(&example, &args);
    assert_eq!((code(&again), &json(&again)["drawn_anew"]), (1, &false.into()), "{}", text(&again));
    let one = bloodhound(
        &example,
        &[
            "shrink",
            &finding.to_string_lossy(),
            "--jobs",
            "1",
            "--runs",
            "400",
            "--out",
            &out,
            "--format",
            "json",
        ],
    );
    assert_eq!((code(&one), &json(&one)["drawn_anew"]), (1, &true.into()), "{}", text(&one));
    let digest = json(&one)["digest"].as_str().expect("a digest").to_owned();
    let replayed = bloodhound(&example, &["replay", &shrunk, "--format", "json"]);
    assert_eq!(json(&replayed)["digest"], digest.as_str(), "the number of workers shows");
}

/// A service that is never healthy again after its seventh request: no operation is named by the violation, so the clients end when enough are made.
#[test]
fn of_a_violation_that_names_no_operation_the_first_ones_are_left() {
    let service = "import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n  seen = 0\n  def do_PUT(self):\n    H.seen += 1\n    \
        self.rfile.read(int(self.headers['Content-Length']))\n    self.answer(200)\n  def do_GET(self):\n    self.answer(200 if H.seen < 7 else 500)\n  \
        def answer(self, status):\n    self.send_response(status)\n    self.send_header('Content-Length', '0')\n    self.end_headers()\n  \
        def log_message(self, *_): pass\nhttp.server.ThreadingHTTPServer(('', 8080), H).serve_forever()\n";
    let compose = "services:\n  store: {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro'], command: [/usr/bin/python3, /app/store.py]}\n";
    let config = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 60s}\nfaults: {duration: 10s}\n\
        workload: {driver: http, config: {targets: ['http://store:8080'], qps: 20, clients: 2, duration: 10s, operations: [{type: put, key_pattern: 'k{seq}', value_pattern: v}]}}\n\
        properties: [{name: healthy, kind: liveness, timeout: 2s, check: {type: http, endpoint: 'http://store:8080/health', expect: {status: 200}}}]\n";
    let dir = stack(
        "shrink-first",
        &[("compose.yaml", compose), ("bloodhound.yaml", config), ("app/store.py", service)],
    );
    let result = bloodhound(&dir, &["test", "--seeds", "1", "--no-shrink", "--format", "json"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0]["replay"].as_str().expect("a directory").to_owned();
    let shrunk = bloodhound(&dir, &["shrink", &finding, "--runs", "60"]);
    assert_eq!(code(&shrunk), 1, "{}", text(&shrunk));
    let told = story(&dir.join(&finding));
    is_small(&told);
    assert!(told.contains("  operations: 7 of ") && told.contains("\"k7\", write"), "{told}");
    assert!(told.contains("no operation begins later than "), "{told}");
    replays(&dir, &format!("{finding}/shrunk"));
}

/// At most five faults and ten operations are left.
fn is_small(told: &str) {
    let line = told.lines().find_map(|line| line.strip_prefix("  operations: "));
    let left = line.and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
    assert!(left.is_some_and(|left| left <= 10) && faults(told).len() <= 5, "{told}");
}
