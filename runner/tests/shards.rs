//! Campaigns that several processes share: shards and workers find what one process finds, over a directory and over a server that
//! speaks S3; also when workers are killed, and when the store fails.

mod server;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::cli::{bloodhound, code, command, json, text};
use crate::common::{compile, repository, stack};
use server::{Mode, Proxy, RESULTS, Server};

const COMPOSE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n  \
    watcher: {<<: *s, command: [/app/watcher]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
/// A watcher that fails in some seeds and not in others.
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 6s, time_step: 10ms, boots: 3}\n\
    faults: {swarm: false, duration: 3s, process: {pause_probability: 0.004, pause_duration_ms: [100, 200], \
    slow_probability: 0.005, slow_duration_ms: [100, 200]}, coverage_threshold: 60%}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";
/// How many seeds the campaigns have.
const SEEDS: &str = "24";

/// The stack.
fn watched(name: &str) -> PathBuf {
    let dir = stack(&format!("shards-{name}"), &[("compose.yaml", COMPOSE), ("bloodhound.yaml", CONFIG)]);
    std::fs::create_dir_all(dir.join("app")).expect("a directory");
    compile(&repository().join("runner/tests/shrink/watcher.c"), &dir.join("app/watcher"), &["-O1"]);
    dir
}

/// The campaign in one process.
fn alone(dir: &Path) -> Output {
    let result =
        bloodhound(dir, &["test", "--seeds", SEEDS, "--jobs", "1", "--out", "one", "--format", "json"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    result
}

/// What must be the same of a campaign however many made it.
fn said(answer: &serde_json::Value) -> serde_json::Value {
    let findings = answer["findings"].as_array().expect("findings").iter();
    let findings: Vec<_> = findings
        .map(|f| (&f["seed"], &f["property"], &f["digest"], &f["virtual_time_ns"], &f["text"]))
        .collect();
    let mut out = serde_json::json!({ "findings": findings });
    for key in [
        "seeds_wanted",
        "seeds_run",
        "seeds_judged",
        "seeds_not_judged",
        "properties",
        "campaign",
        "steps",
        "virtual_time_ns",
        "operations",
        "faults",
        "fault_accounts",
        "fault_coverage_per_mille",
        "exit_code",
    ] {
        out[key] = answer[key].clone();
    }
    out
}

/// The JUnit file of a campaign, without the name of its directory.
fn junit(dir: &Path, out: &str) -> String {
    let text = std::fs::read_to_string(dir.join(out).join("junit.xml")).expect("a report");
    text.replace(&format!("{out}/findings"), "OUT/findings")
}

/// The merge of these places says what one process said, in every report, and its findings can be replayed.
fn merged_is_one(
    dir: &Path,
    one: &Output,
    places: &[&str],
    environment: &[(&str, String)],
) -> serde_json::Value {
    let mut merge = command(dir, &[&["merge"], places, &["--out", "merged", "--format", "json"]].concat());
    let merged = merge.envs(environment.iter().map(|(k, v)| (*k, v))).output().expect("it runs");
    assert_eq!(code(&merged), code(one), "{}", text(&merged));
    let answer = json(&merged);
    assert_eq!(said(&answer), said(&json(one)));
    assert_eq!(junit(dir, "merged"), junit(dir, "one"));
    let results = |out: &str| std::fs::read_to_string(dir.join(out).join("results.jsonl")).expect("results");
    assert_eq!(results("merged"), results("one"));
    let findings = answer["findings"].as_array().expect("findings");
    assert!(findings.len() > 2, "{answer}");
    let first = findings[0]["replay"].as_str().expect("a directory");
    assert_eq!(code(&bloodhound(dir, &["replay", first])), 1);
    answer
}

#[test]
fn four_shards_find_what_one_process_finds() {
    let dir = watched("four");
    let one = alone(&dir);
    let shards: Vec<Child> = (1..=4).map(|index| shard(&dir, index, &[], &[])).collect();
    for (place, mut child) in shards.into_iter().enumerate() {
        let ended = child.wait().expect("it ends").code();
        assert!(matches!(ended, Some(0 | 1 | 4)), "shard {}: {ended:?}", place + 1);
        let report = junit(&dir, &format!("parts/{}", place + 1));
        assert!(report.contains(&format!("name=\"part\" value=\"shard {}/4\"", place + 1)), "{report}");
        // Thresholds are a matter of the whole campaign.
        assert!(report.contains("judges it over all parts"), "{report}");
    }
    let answer = merged_is_one(&dir, &one, &["parts"], &[]);
    assert_eq!(answer["parts"].as_array().map(Vec::len), Some(4));
    // Again with one of them twice, from the merge itself and from a run of some seeds: each seed counts once.
    let some = bloodhound(&dir, &["test", "--first-seed", "5", "--seeds", "3", "--out", "again"]);
    assert!(matches!(code(&some), 0 | 1 | 4), "{}", text(&some));
    std::fs::rename(dir.join("merged"), dir.join("before")).expect("renamed");
    let answer = merged_is_one(&dir, &one, &["parts/2", "parts", "before", "again"], &[]);
    assert!(answer["seeds_run_twice"].as_u64().is_some_and(|n| n >= 33), "{answer}");
    missing(&dir);
    mixed(&dir);
}

/// Starts a shard of four, with its own directory.
fn shard(dir: &Path, index: u64, more: &[&str], environment: &[(&str, String)]) -> Child {
    let (part, out) = (format!("{index}/4"), format!("parts/{index}"));
    let args = ["test", "--seeds", SEEDS, "--jobs", "1", "--shard", &part, "--out", &out];
    let mut shard = command(dir, &[&args, more].concat());
    shard.envs(environment.iter().map(|(k, v)| (*k, v))).stdout(Stdio::null()).stderr(Stdio::null());
    shard.spawn().expect("it starts")
}

/// A part that is not there is told, with the command that makes it.
fn missing(dir: &Path) {
    let parts = ["parts/1", "parts/2", "parts/4"];
    let merge = |more: &[&str]| bloodhound(dir, &[&["merge"], &parts[..], more].concat());
    let result = merge(&["--out", "less", "--format", "json"]);
    let reason = json(&result)["campaign"][0]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(
        reason.starts_with("seeds 2, 6, 10, 14, 18, 22 have no result (shard 3/4 is missing)"),
        "{}",
        text(&result)
    );
    let listed = merge(&["--missing"]);
    assert_eq!(code(&listed), 4, "{}", text(&listed));
    assert!(
        text(&listed).contains("bloodhound test --first-seed 0 --seeds 24 --shard 3/4\n"),
        "{}",
        text(&listed)
    );
    let allowed = merge(&["--out", "less", "--min-seeds", "18", "--format", "json"]);
    assert_eq!(json(&allowed)["campaign"][0]["verdict"], "passed", "{}", text(&allowed));
    assert_eq!(json(&allowed)["seeds_missing"].as_array().map(Vec::len), Some(6));
}

/// Parts of another configuration, and of a damaged one, are refused.
fn mixed(dir: &Path) {
    crate::common::put(dir, "bloodhound.yaml", &CONFIG.replace("0.005", "0.006"));
    let other =
        bloodhound(dir, &["test", "--seeds", SEEDS, "--jobs", "1", "--shard", "3/4", "--out", "other"]);
    assert!(matches!(code(&other), 0 | 1 | 4), "{}", text(&other));
    let refused = bloodhound(dir, &["merge", "parts/1", "other", "--out", "mixed"]);
    let all = text(&refused);
    assert!(
        code(&refused) == 2
            && all.contains("plan digests")
            && all.contains("parts/1 (shard 1/4) and other (shard 3/4)"),
        "{all}"
    );
    assert!(!dir.join("mixed").exists());
    let results = dir.join("parts/1/results.jsonl");
    let whole = std::fs::read_to_string(&results).expect("results");
    std::fs::write(&results, whole.replacen("\"digest\":\"", "\"digest\":\"0", 1)).expect("written");
    let differs = bloodhound(dir, &["merge", "parts/1", "before", "--out", "differs", "--format", "json"]);
    let reason = json(&differs)["campaign"][0]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("seed 0 came to different ends"), "{}", text(&differs));
    std::fs::write(&results, whole.replacen('{', "", 1)).expect("written");
    let damaged = bloodhound(dir, &["merge", "parts/1", "--out", "differs"]);
    assert!(
        code(&damaged) == 2 && text(&damaged).contains("parts/1/results.jsonl:1: "),
        "{}",
        text(&damaged)
    );
    // The report of the merge before does not speak for it.
    let report = junit(dir, "differs");
    assert!(
        report.contains("parts/1/results.jsonl:1: ") && !report.contains("came to different ends"),
        "{report}"
    );
}

#[test]
fn shards_that_there_cannot_be_are_refused() {
    let dir = watched("refused");
    for (args, why) in [
        (&["--shard", "0/4"][..], "shards are counted from 1"),
        (&["--shard", "5/4"], "there is no shard 5 of 4"),
        (&["--shard", "a/b"], "is not of the form i/n"),
        (&["--shard", "4/4", "--seeds", "3"], "shard 4/4 would judge nothing"),
        (&["--worker", "w"], "--store"),
        (&["--worker", "w", "--store", "s", "--shard", "1/2"], "cannot be used with"),
        (&["--worker", "../w", "--store", "s"], "a name has up to 100"),
        (&["--worker", "w", "--store", "s", "--worker-timeout", "999ms"], "a second at least"),
        (&["--store", "gs://x/y"], "`gs://` is not supported"),
        (
            &["--strategy", "dfs", "--corpus", "s3://runs/c", "--resume"],
            "the journal of a search is in the directory `corpus`",
        ),
        (&["--worker", "w", "--store", "s", "--min-seeds", "3"], "give it to `bloodhound merge`"),
    ] {
        let refused = bloodhound(&dir, &[&["test"], args].concat());
        assert!(code(&refused) == 2 && text(&refused).contains(why), "{args:?}: {}", text(&refused));
    }
    let nothing = bloodhound(&dir, &["merge", ".", "--out", "merged"]);
    assert!(
        code(&nothing) == 2 && text(&nothing).contains("has nothing that can be joined"),
        "{}",
        text(&nothing)
    );
}

/// Starts a worker.
fn worker(dir: &Path, name: &str, store: &str, environment: &[(&str, String)]) -> Child {
    let out = format!("workers/{name}");
    let args = [
        "test",
        "--seeds",
        SEEDS,
        "--jobs",
        "1",
        "--store",
        store,
        "--worker",
        name,
        "--worker-timeout",
        "2s",
        "--out",
        &out,
    ];
    let log = std::fs::File::create(dir.join(format!("{name}.log"))).expect("a file");
    let mut worker = command(dir, &args);
    worker.envs(environment.iter().map(|(k, v)| (*k, v))).stdout(Stdio::null()).stderr(log);
    worker.spawn().expect("it starts")
}

/// Waits until something is there.
fn until(what: &str, there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !there() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} does not come");
        // Nothing tells, but to look.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Workers share a campaign over a store. One is killed while it runs seeds; others run them again.
fn workers_over(dir: &Path, store: &str, environment: &[(&str, String)]) {
    let one = alone(dir);
    let mut victim = worker(dir, "victim", store, environment);
    let results = dir.join("workers/victim/results.jsonl");
    until("the first seed", || std::fs::read(&results).is_ok_and(|text| text.contains(&b'\n')));
    victim.kill().expect("it is killed");
    victim.wait().expect("it has ended");
    // It has told what it ran, for merges that find it.
    let manifest = std::fs::read_to_string(dir.join("workers/victim/shard.json")).expect("a manifest");
    assert!(manifest.contains("\"path\": \"watcher\"") && manifest.contains("\"ended\": null"), "{manifest}");
    let others: Vec<Child> = ["a", "b"].map(|name| worker(dir, name, store, environment)).into();
    for mut other in others {
        let ended = other.wait().expect("it ends").code();
        assert!(
            matches!(ended, Some(0 | 1 | 4)),
            "{ended:?}: {:?}",
            std::fs::read_to_string(dir.join("a.log"))
        );
    }
    let logs = ["a", "b"]
        .map(|name| std::fs::read_to_string(dir.join(format!("{name}.log"))).expect("a log"))
        .concat();
    assert!(logs.contains("nothing was heard of worker victim"), "{logs}");
    merged_is_one(dir, &one, &[store], environment);
    // What the victim had on its disk counts as well, and no seed twice.
    std::fs::remove_dir_all(dir.join("merged")).expect("a merge");
    merged_is_one(dir, &one, &[store, "workers/victim"], environment);
}

#[test]
fn seeds_of_a_killed_worker_are_run_again() {
    let dir = watched("workers");
    workers_over(&dir, "store", &[]);
    // Another campaign has no place there.
    let other =
        bloodhound(&dir, &["test", "--seeds", "7", "--shard", "1/2", "--store", "store", "--out", "other"]);
    let all = text(&other);
    assert!(
        code(&other) == 2 && all.contains("is the store of another campaign") && all.contains("24 seeds"),
        "{all}"
    );
}

#[test]
fn a_worker_that_ends_before_it_has_a_seed_is_no_success() {
    let dir = watched("late");
    let args = ["--store", "store", "--worker", "late", "--timeout", "1ms", "--out", "late"];
    let late = bloodhound(&dir, &[&["test", "--seeds", SEEDS], &args[..]].concat());
    let all = text(&late);
    assert!(code(&late) == 4 && all.contains("--timeout was over before this worker had a seed"), "{all}");
}

#[test]
fn the_first_finding_stops_all_who_share_a_campaign() {
    let dir = watched("first");
    let answer = json(&alone(&dir));
    let seeds = answer["findings"].as_array().expect("findings").iter();
    let failing: Vec<u64> = seeds.map(|found| found["seed"].as_u64().expect("a seed")).collect();
    // The campaign begins with a seed that fails, which is the first of the first shard; the first of the second one does not.
    let begins = failing.iter().find(|seed| **seed < 23 && !failing.contains(&(**seed + 1)));
    let fails = begins.expect("a seed that fails before one that does not").to_string();
    let more = ["--first-seed", &fails, "--store", "store", "--fail-fast"];
    let mut first = shard(&dir, 1, &more, &[]);
    assert_eq!(first.wait().expect("it ends").code(), Some(1));
    let stop = std::fs::read_to_string(dir.join("store/stop")).expect("the others are told");
    assert_eq!(stop, format!("seed {fails}\n"));
    let mut other = shard(&dir, 2, &[&more[..], &["--boot-each"]].concat(), &[]);
    other.wait().expect("it ends");
    let results = std::fs::read_to_string(dir.join("parts/2/results.jsonl")).expect("results");
    let ran = results.lines().count();
    assert!(ran < 6, "it ran all of its {ran} seeds");
    // It was no finding of its own that stopped it.
    assert!(results.lines().all(|line| line.contains("\"findings\":[]")), "{results}");
    let manifest = std::fs::read_to_string(dir.join("parts/2/shard.json")).expect("a manifest");
    assert!(manifest.contains("\"failed_fast\": true"), "{manifest}");
}

#[test]
fn a_bucket_is_a_store_and_one_that_fails_loses_nothing() {
    let dir = watched("bucket");
    let Some(server) = Server::start("campaigns over S3") else { return };
    workers_over(&dir, "s3://runs/workers", &server.environment(server.port));
    let shards: Vec<Child> = (1..=4)
        .map(|i| shard(&dir, i, &["--store", "s3://runs/shards"], &server.environment(server.port)))
        .collect();
    for mut child in shards {
        assert!(matches!(child.wait().expect("it ends").code(), Some(0 | 1 | 4)));
    }
    std::fs::remove_dir_all(dir.join("merged")).expect("a merge");
    let one = alone(&dir);
    merged_is_one(&dir, &one, &["s3://runs/shards"], &server.environment(server.port));
    for (mode, why) in [(Mode::Refuses, "500"), (Mode::Closes, ""), (Mode::Denies, "AccessDenied")] {
        let proxy = Proxy::start(server.port, mode, RESULTS);
        let out = dir.join("parts/1");
        std::fs::remove_dir_all(&out).expect("a shard");
        let store = format!("s3://runs/fails-{mode:?}").to_lowercase();
        let mut shard = command(
            &dir,
            &[
                "test", "--seeds", SEEDS, "--jobs", "1", "--shard", "1/4", "--store", &store, "--out",
                "parts/1",
            ],
        );
        shard.envs(server.environment(proxy.port)).stdout(Stdio::null()).stderr(Stdio::piped());
        let result = shard.output().expect("it runs");
        let all = text(&result);
        let told = ["cannot write s3://runs/fails", "help: ", "all results are in parts/1", why];
        assert!(code(&result) == 5 && told.iter().all(|told| all.contains(told)), "{mode:?}: {all}");
        std::fs::remove_dir_all(dir.join("merged")).expect("a merge");
        merged_is_one(&dir, &one, &["parts"], &[]);
    }
    let nowhere = command(&dir, &["merge", "s3://no-such-bucket/x", "--out", "nothing"])
        .envs(server.environment(server.port))
        .output()
        .expect("it runs");
    assert!(code(&nowhere) == 5 && text(&nowhere).contains("NoSuchBucket"), "{}", text(&nowhere));
}

/// The answer of a campaign with the corpus of a bucket.
fn with_corpus(dir: &Path, environment: &[(&str, String)], args: &[&str]) -> (i32, serde_json::Value) {
    let args = [&["test", "--jobs", "1", "--corpus", "s3://runs/corpus", "--format", "json"], args].concat();
    let mut test = command(dir, &args);
    let result = test.envs(environment.iter().map(|(k, v)| (*k, v))).output().expect("it runs");
    (code(&result), json(&result))
}

#[test]
fn machines_share_a_corpus_in_a_bucket() {
    let dir = watched("corpus");
    let Some(server) = Server::start("a corpus over S3") else { return };
    let environment = server.environment(server.port);
    let (code_of_one, one) = with_corpus(&dir, &environment, &["--seeds", SEEDS, "--out", "one"]);
    let added = one["corpus"]["bucket"]["added"].as_u64().expect("a number");
    assert!(code_of_one == 1 && added > 1, "{one}");
    assert_eq!(one["corpus"]["now"]["entries"], added);
    // Two shards elsewhere: each entry is run by one of them, and `merge` knows of those that fail.
    let quiet = CONFIG.replace("output: {dir: out}", "output: {dir: out, save_interesting_seeds: false}");
    crate::common::put(&dir, "quiet.yaml", &quiet);
    let mut run = 0;
    for index in ["1", "2"] {
        let (shard, out) = (format!("{index}/2"), format!("parts/{index}"));
        let args = [
            "--config",
            "quiet.yaml",
            "--first-seed",
            "1000",
            "--seeds",
            "4",
            "--shard",
            &shard,
            "--out",
            &out,
        ];
        let (_, part) = with_corpus(&dir, &environment, &args);
        assert_eq!(part["corpus"]["bucket"], serde_json::Value::Null, "{part}");
        run += part["corpus"]["cases_judged"].as_u64().expect("a number");
    }
    assert_eq!(run, added);
    let merged = bloodhound(&dir, &["merge", "parts", "--out", "merged"]);
    let all = text(&merged);
    assert!(code(&merged) == 1 && all.contains("of the corpus (seed "), "{all}");
    assert!(all.contains("violates stays: see the reports of the part that ran it"), "{all}");
    // Workers and a search have it too.
    let worker =
        ["--first-seed", "2000", "--seeds", "6", "--store", "s3://runs/w", "--worker", "a", "--out", "w"];
    let (_, worker) = with_corpus(&dir, &environment, &worker);
    assert_eq!(worker["corpus"]["cases_judged"], added, "{worker}");
    let left = worker["corpus"]["now"]["entries"].clone();
    let mut explore = command(
        &dir,
        &[
            "explore",
            "--runs",
            "6",
            "--jobs",
            "1",
            "--corpus",
            "s3://runs/corpus",
            "--out",
            "e",
            "--format",
            "json",
        ],
    );
    let result = explore.envs(environment.iter().map(|(k, v)| (*k, v))).output().expect("it runs");
    assert_eq!(json(&result)["corpus"]["entries"], left, "{}", text(&result));
}

#[test]
fn what_a_bucket_does_not_take_is_on_the_disk_and_there_after_the_next_campaign() {
    let dir = watched("late");
    let Some(server) = Server::start("a corpus over S3 that fails") else { return };
    let proxy = Proxy::start(server.port, Mode::Denies, "late/entries/");
    let args = [
        "test",
        "--seeds",
        "8",
        "--jobs",
        "1",
        "--corpus",
        "s3://runs/late",
        "--out",
        "late",
        "--format",
        "json",
    ];
    let mut denied = command(&dir, &args);
    let denied = denied.envs(server.environment(proxy.port)).output().expect("it runs");
    let all = text(&denied);
    let told = [
        "the corpus cannot be shared: cannot write s3://runs/late/entries/",
        "AccessDenied",
        "are in late/corpus",
    ];
    assert!(code(&denied) == 1 && json(&denied)["exit_code"] == 1, "findings come first: {all}");
    assert!(told.iter().all(|told| all.contains(told)), "{all}");
    let again = command(&dir, &args).envs(server.environment(server.port)).output().expect("it runs");
    assert!(json(&again)["corpus"]["bucket"]["added"].as_u64().is_some_and(|n| n > 1), "{}", text(&again));
    // Nothing is run for nothing: a bucket that cannot be asked is told at once.
    let mut nowhere = command(&dir, &["test", "--corpus", "s3://no-such-bucket/x", "--out", "nowhere"]);
    let nowhere = nowhere.envs(server.environment(server.port)).output().expect("it runs");
    let all = text(&nowhere);
    assert!(
        code(&nowhere) == 5 && all.contains("the corpus cannot be shared") && !all.contains("seeds,"),
        "{all}"
    );
}

/// A program that is started and killed with this.
pub struct Started(pub Child);

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ignored = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A command that says nothing.
pub fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
