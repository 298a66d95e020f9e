//! `bloodhound explore --resume`: a search that is killed again and again comes to the same end as one that is not, and nothing that it has announced is lost.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::cli::{bloodhound, code, command, json, text};
use common::{compile, figures, repository, seeds_or, stack};
use serde_json::Value;

const COMPOSE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n  \
    watcher: {<<: *s, command: [/app/watcher]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
/// Few faults, of which two pauses of the watcher matter.
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 30s, time_step: 10ms, boots: 2, seeds: 60}\n\
    faults: {duration: 8s, network: {drop_rate: 0.01}, process: {pause_probability: 0.001, pause_duration_ms: [100, 400], \
    slow_probability: 0.002, slow_duration_ms: [100, 400]}}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";

/// A stack whose watcher fails when it has been paused twice.
fn watched(name: &str) -> PathBuf {
    let dir = stack(&format!("resume-{name}"), &[("compose.yaml", COMPOSE), ("bloodhound.yaml", CONFIG)]);
    std::fs::create_dir_all(dir.join("app")).expect("a directory");
    compile(&repository().join("runner/tests/shrink/watcher.c"), &dir.join("app/watcher"), &["-O1"]);
    dir
}

/// The arguments of a search whose reports and corpus are in directories of this name.
fn arguments(place: &str, runs: u64, more: &[&str]) -> Vec<String> {
    let (out, corpus) = (format!("out-{place}"), format!("corpus-{place}"));
    let args = ["explore", "--format", "json", "--no-shrink", "--out", &out, "--corpus", &corpus, "--runs"];
    args.iter()
        .map(|arg| (*arg).to_owned())
        .chain([runs.to_string()])
        .chain(more.iter().map(|arg| (*arg).to_owned()))
        .collect()
}

/// A search to its end.
fn searched(dir: &Path, place: &str, runs: u64, more: &[&str]) -> Value {
    let args = arguments(place, runs, more);
    let result = bloodhound(dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!([0, 1].contains(&code(&result)), "{}", text(&result));
    json(&result)
}

/// What it tells, without where it is and how fast the machine was.
fn placeless(told: &Value, place: &str) -> Value {
    let text = told.to_string().replace(&format!("out-{place}"), "out");
    let text = text.replace(&format!("corpus-{place}"), "corpus");
    let mut told: Value = serde_json::from_str(&text).expect("JSON");
    told.as_object_mut().expect("an object").remove("platform");
    told
}

fn junit(dir: &Path, place: &str) -> String {
    let text = std::fs::read_to_string(dir.join(format!("out-{place}/junit.xml"))).expect("a report");
    text.replace(&format!("out-{place}"), "out")
}

/// Begins a search, kills it after a time, and returns what it announced; `None`: it had come to its end.
fn killed(dir: &Path, args: &[String], after: Duration) -> Option<Vec<String>> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut child =
        command(dir, &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let begun = Instant::now();
    while begun.elapsed() < after && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = child.try_wait().expect("a child").is_some();
    // It may end just now.
    let _ignored = child.kill();
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(!ended || matches!(status.code(), Some(0 | 1)), "{status}: {said}");
    (!ended).then(|| said.lines().filter(|line| line.contains(" violated at ")).map(announced).collect())
}

/// The directory of a finding from the line that announces it.
fn announced(line: &str) -> String {
    let (_, rest) = line.split_once(": out-").unwrap_or_else(|| panic!("no directory: {line}"));
    format!("out-{}", rest.split(' ').next().unwrap_or_default())
}

/// Numbers below a bound, from a seed (splitmix64).
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Killed at random moments and resumed each time, a search ends as one that nobody disturbed.
#[test]
fn a_search_that_is_killed_goes_on_where_it_was() {
    let kills = seeds_or(5);
    let dir = watched("killed");
    let runs = 60.max(kills * 8);
    let begun = Instant::now();
    let whole = searched(&dir, "whole", runs, &["--jobs", "2"]);
    let took = begun.elapsed();
    let mut drawn = Drawn(kills);
    let (mut done, mut said, mut tries) = (0, BTreeSet::new(), 0);
    // A process must get further than to the boot for a kill to mean something, and together they take about as long as the whole.
    let most = (took.as_millis() as u64 * 2 / kills).max(120);
    while done < kills && tries < 4 * kills {
        tries += 1;
        let resume: &[&str] =
            if dir.join("corpus-cut/searches/explore/journal").exists() { &["--resume"] } else { &[] };
        let args = arguments("cut", runs, &[&["--jobs", "2"], resume].concat());
        let Some(lines) = killed(&dir, &args, Duration::from_millis(20 + drawn.below(most))) else {
            // It has come to its end: the others are killed in another search.
            assert_same(&dir, &whole, &searched(&dir, "cut", runs, &["--resume"]), &said);
            for name in ["out-cut", "corpus-cut"] {
                std::fs::remove_dir_all(dir.join(name)).expect("it can be removed");
            }
            said.clear();
            continue;
        };
        done += 1;
        said.extend(lines);
        for finding in &said {
            assert!(dir.join(finding).join("finding.json").is_file(), "{finding} was announced and is lost");
        }
    }
    let resume: &[&str] =
        if dir.join("corpus-cut/searches/explore/journal").exists() { &["--resume"] } else { &[] };
    let cut = searched(&dir, "cut", runs, resume);
    assert_same(&dir, &whole, &cut, &said);
    // The corpus is whole too.
    let names = |place: &str| -> BTreeSet<_> {
        let entries = std::fs::read_dir(dir.join(format!("corpus-{place}/entries"))).expect("entries");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert_eq!(names("cut"), names("whole"));
    let findings = whole["findings"].as_array().map_or(0, Vec::len);
    figures(&format!(
        "killed {done} times in {runs} runs, {findings} findings, {} announced before a kill",
        said.len()
    ));
    assert!(done == kills && findings > 0, "{done} kills, {findings} findings");
}

/// One that was disturbed is the same as one that was not, and has all that it announced.
fn assert_same(dir: &Path, whole: &Value, cut: &Value, said: &BTreeSet<String>) {
    assert_eq!(placeless(cut, "cut"), placeless(whole, "whole"), "an interruption shows");
    assert_eq!(junit(dir, "cut"), junit(dir, "whole"));
    let findings = cut["findings"].as_array().expect("findings");
    for finding in said {
        let is_told =
            |told: &Value| told["replay"].as_str().is_some_and(|place| place.ends_with(finding.as_str()));
        assert!(findings.iter().any(is_told), "{finding} was announced: {cut}");
    }
}

/// A search that has ended goes on with more runs, and all strategies do; what is not the same search is refused by its name.
#[test]
fn a_search_goes_on_with_more_runs_and_only_as_the_same() {
    let dir = watched("more");
    for strategy in ["bfs", "input-tree"] {
        let options = ["--strategy", strategy];
        let whole = searched(&dir, "whole", 30, &options);
        let first = searched(&dir, "cut", 10, &options);
        assert_eq!(first["seeds_run"], 10);
        let cut = searched(&dir, "cut", 30, &[&options[..], &["--resume"]].concat());
        let (cut, whole) = (placeless(&cut, "cut"), placeless(&whole, "whole"));
        for part in ["findings", "search", "seeds_run", "steps", "fault_accounts", "properties"] {
            assert_eq!(cut[part], whole[part], "{strategy}: {part}");
        }
        assert_eq!(junit(&dir, "cut"), junit(&dir, "whole"));
        for name in ["out-cut", "corpus-cut", "out-whole", "corpus-whole"] {
            std::fs::remove_dir_all(dir.join(name)).expect("it can be removed");
        }
    }
    let refused = |args: &[&str], says: &[&str]| {
        let result = bloodhound(&dir, args);
        let told = text(&result);
        assert!(code(&result) == 2 && says.iter().all(|part| told.contains(part)), "{args:?}: {told}");
    };
    let explore = |more: &[&str], says: &[&str]| {
        let args = [&["explore", "--corpus", "corpus-a", "--no-shrink", "--resume"], more].concat();
        refused(&args, says);
    };
    refused(&["explore", "--resume"], &["--corpus"]);
    refused(&["test", "--resume", "--corpus", "corpus-a"], &["--resume", "not guided"]);
    explore(&[], &["there is no search to go on with"]);
    let made = searched(&dir, "a", 6, &[]);
    explore(&["--seed", "3"], &["its first seed is 0, not 3"]);
    explore(
        &["--strategy", "dfs", "--max-depth", "2"],
        &["its strategy is coverage-guided, not dfs", "max_depth"],
    );
    explore(&["--runs", "5"], &["it has made 6 runs, more than 5"]);
    explore(&["--coverage"], &["code coverage"]);
    // Without --runs it has the budget that it had, which is used up.
    let again = bloodhound(
        &dir,
        &["explore", "--corpus", "corpus-a", "--out", "out-a", "--no-shrink", "--resume", "--format", "json"],
    );
    assert_eq!(placeless(&json(&again), "a"), placeless(&made, "a"), "{}", text(&again));
    let other = CONFIG.replace("drop_rate: 0.01", "drop_rate: 0.02");
    std::fs::write(dir.join("bloodhound.yaml"), other).expect("written");
    explore(&["--runs", "9"], &["another stack or version", "the plan"]);
}

/// A search that has not ended is not thrown away by one that is begun without `--resume`, and two of them do not share a journal.
#[test]
fn a_search_that_has_not_ended_is_put_beside() {
    let dir = watched("beside");
    let args = arguments("cut", 4000, &["--jobs", "1"]);
    let journal = dir.join("corpus-cut/searches/explore/journal");
    let mut child = command(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while lines() < 6 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no run was made");
        std::thread::sleep(Duration::from_millis(5));
    }
    let second =
        bloodhound(&dir, &["explore", "--corpus", "corpus-cut", "--out", "out-other", "--no-shrink"]);
    assert!(code(&second) > 1 && text(&second).contains("under way in another process"), "{}", text(&second));
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let args = arguments("cut", 3, &[]);
    let next = bloodhound(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(text(&next).contains("as `--resume` was not given"), "{}", text(&next));
    std::fs::rename(journal.with_extension("unfinished"), &journal).expect("the journal is there");
    let back = searched(&dir, "cut", 40, &["--resume"]);
    assert_eq!(back["seeds_run"], 40);
}
