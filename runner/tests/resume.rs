//! `bloodhound explore --resume`: a search that is killed again and again comes to the same end as one that is not, and nothing that it has announced is lost.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::cli::{bloodhound, code, command, json, text};
use crate::common::{WATCHER_CONFIG, figures, seeds_or, watched};
use bloodhound_decisions::Dice;
use serde_json::Value;

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

/// The journal of the search that is killed.
const JOURNAL: &str = "corpus-cut/searches/explore/journal";

/// Records of the journal of the search that is killed.
fn records(dir: &Path) -> u64 {
    let journal = std::fs::read(dir.join(JOURNAL)).unwrap_or_default();
    journal.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Files below a directory; one that vanishes while they are counted is none.
fn files(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let below = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        kind => u64::from(kind.is_ok()),
    });
    below.sum()
}

/// Waits for something that nobody tells: it is looked for again and again, for a minute at most.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Begins a search, kills it when it has brought so many more records and files of findings to the disk, and returns what it announced.
fn killed(dir: &Path, args: &[String], more: u64) -> Vec<String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let written = || records(dir) + files(&dir.join("out-cut"));
    let wanted = written() + more;
    let mut child =
        command(dir, &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    until("the search does not get on", || {
        assert!(child.try_wait().expect("a child").is_none(), "it has ended before it was killed");
        written() >= wanted
    });
    child.kill().expect("it is killed");
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(status.signal(), Some(9), "it has ended before it was killed: {said}");
    said.lines().filter(|line| line.contains(" violated at ")).map(announced).collect()
}

/// The directory of a finding from the line that announces it.
fn announced(line: &str) -> String {
    let (_, rest) = line.split_once(": out-").unwrap_or_else(|| panic!("no directory: {line}"));
    format!("out-{}", rest.split(' ').next().unwrap_or_default())
}

/// Killed at drawn moments and resumed each time, a search ends as one that nobody disturbed.
#[test]
fn a_search_that_is_killed_goes_on_where_it_was() {
    let kills = seeds_or(5);
    let dir = watched("resume-killed");
    // A process is killed when it has made four or five runs on average, so runs are left for the last one.
    // What the search learned is asked for by the hundred that come behind.
    let runs = 160.max(kills * 8);
    let whole = searched(&dir, "whole", runs, &["--jobs", "2"]);
    let mut dice = Dice::new(kills);
    let mut said = BTreeSet::new();
    // There is nothing to go on with before the journal has a record.
    let resume = || -> &[&str] { if records(&dir) > 0 { &["--resume"] } else { &[] } };
    for _ in 0..kills {
        let args = arguments("cut", runs, &[&["--jobs", "2"], resume()].concat());
        said.extend(killed(&dir, &args, 1 + dice.below(8)));
        for finding in &said {
            assert!(dir.join(finding).join("finding.json").is_file(), "{finding} was announced and is lost");
        }
    }
    let cut = searched(&dir, "cut", runs, resume());
    assert_same(&dir, &whole, &cut, &said);
    // The corpus is whole too.
    let names = |place: &str| -> BTreeSet<_> {
        let entries = std::fs::read_dir(dir.join(format!("corpus-{place}/entries"))).expect("entries");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert_eq!(names("cut"), names("whole"));
    let findings = whole["findings"].as_array().map_or(0, Vec::len);
    figures(&format!(
        "killed {kills} times in {runs} runs, {findings} findings, {} announced before a kill",
        said.len()
    ));
    assert!(findings > 0, "nothing was found: {whole}");
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
    let dir = watched("resume-more");
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
    let other = WATCHER_CONFIG.replace("drop_rate: 0.01", "drop_rate: 0.02");
    std::fs::write(dir.join("bloodhound.yaml"), other).expect("written");
    explore(&["--runs", "9"], &["another stack or version", "the plan"]);
}

/// A search that has not ended is not thrown away by one that is begun without `--resume`, and two of them do not share a journal.
#[test]
fn a_search_that_has_not_ended_is_put_beside() {
    let dir = watched("resume-beside");
    let args = arguments("cut", 4000, &["--jobs", "1"]);
    let journal = dir.join(JOURNAL);
    let mut child = command(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("no run was made", || records(&dir) >= 6);
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
