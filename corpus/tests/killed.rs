//! A search that is killed again and again, or has no room, and goes on: it ends as one that nobody disturbed, and what it announced is there.
//!
//! The search is a toy in a process of its own: this test program, run again with `BLOODHOUND_TOY` in its environment.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bloodhound_corpus::{Corpus, Error};
use bloodhound_decisions::Dice;
use common::{entry, open, scratch, seeds};
use serde_json::{Value, json};

const ROUNDS: u64 = 60;
const RUNS: u64 = 8;
const KILLS: usize = 50;

/// A run of the toy: its features are a function of its seed.
fn features(seed: u64) -> Vec<u64> {
    let mut dice = Dice::new(seed);
    (0..4)
        .map(|_| {
            let most = 1 + dice.below(300);
            dice.below(most)
        })
        .collect()
}

/// The toy: rounds of runs that are chosen by what was found before. Goes on where it was; prints what it announces.
fn toy(dir: &Path, pause: Duration) -> Result<(), Error> {
    let mut corpus = open(dir);
    let mut search = corpus.search("toy")?;
    if search.begun().is_none() {
        search.begin(&json!({"seed": 3}))?;
    }
    let (mut state, mut done) = match search.resume_state() {
        Some(resumed) => (resumed.state.clone(), resumed.steps.to_vec()),
        None => (json!({"round": 0, "known": [], "sum": 0}), Vec::new()),
    };
    let known_before: BTreeSet<String> = search.announced().iter().map(Value::to_string).collect();
    if search.resume_state().is_none() {
        search.checkpoint(&state)?;
    }
    while state["round"].as_u64() < Some(ROUNDS) {
        let (round, sum) =
            (state["round"].as_u64().unwrap_or_default(), state["sum"].as_u64().unwrap_or_default());
        let chosen: Vec<u64> = (0..RUNS).map(|run| round * RUNS + run + 1000 * (sum % 7)).collect();
        for seed in chosen.iter().skip(done.len()) {
            std::thread::sleep(pause);
            let step = json!({"seed": seed, "features": features(*seed)});
            search.step(&step)?;
            done.push(step);
        }
        // The runs of a round are looked at when all of them are there.
        let mut known: BTreeSet<u64> = serde_json::from_value(state["known"].clone()).expect("numbers");
        let mut sum = sum;
        for step in done.drain(..) {
            let found: BTreeSet<u64> = serde_json::from_value(step["features"].clone()).expect("numbers");
            let seed = step["seed"].as_u64().expect("a seed");
            if found.iter().any(|feature| !known.contains(feature)) {
                corpus.add(entry(seed, &found.iter().copied().collect::<Vec<_>>()))?;
                sum += seed;
                let what = json!({"seed": seed, "round": round});
                if !known_before.contains(&what.to_string()) {
                    search.announce(&what)?;
                    println!("announced {what}");
                    std::io::stdout().flush().expect("standard output");
                }
                known.extend(found);
            }
        }
        state = json!({"round": round + 1, "known": known, "sum": sum});
        search.checkpoint(&state)?;
    }
    println!("done {state}");
    Ok(())
}

/// The process of the toy; a test that does nothing when it is not one.
#[test]
fn toy_process() {
    let Ok(dir) = std::env::var("BLOODHOUND_TOY") else { return };
    let pause = std::env::var("BLOODHOUND_TOY_PAUSE").map_or(0, |ms| ms.parse().expect("a number"));
    if let Err(error) = toy(Path::new(&dir), Duration::from_millis(pause)) {
        println!("failed {error}");
        std::process::exit(7);
    }
}

fn start(shell: &str, dir: &Path, pause: u64) -> Child {
    Command::new("/bin/sh")
        .args(["-c", &format!("{shell} exec \"$0\" --exact toy_process --nocapture --test-threads=1")])
        .arg(std::env::current_exe().expect("this program"))
        .env("BLOODHOUND_TOY", dir)
        .env("BLOODHOUND_TOY_PAUSE", pause.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the toy")
}

/// What it said, until it ended. Other lines are of the test harness, which may begin a line of the toy's.
fn said(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let known = ["announced ", "done ", "failed "];
    lines
        .filter_map(|line| known.iter().find_map(|word| line.find(word).map(|at| line[at..].to_owned())))
        .collect()
}

/// What is in the corpus in the end.
fn result(dir: &Path) -> (Vec<u64>, BTreeSet<String>, Value) {
    let corpus = open(dir);
    assert!(corpus.notes().is_empty(), "{:?}", corpus.notes());
    let search = corpus.search("toy").expect("nobody has it");
    assert!(search.notes().is_empty(), "{:?}", search.notes());
    let announced = search.announced().iter().map(Value::to_string).collect();
    let state = search.resume_state().expect("a state").state.clone();
    (seeds(&corpus), announced, state)
}

#[test]
fn a_search_that_is_killed_fifty_times_ends_as_one_that_is_not() {
    let (calm, disturbed) = (scratch("calm"), scratch("killed"));
    let mut child = start("", &calm, 0);
    assert!(said(&mut child).last().is_some_and(|line| line.starts_with("done")));
    assert!(child.wait().expect("ended").success());
    let (mut dice, mut announced, mut kills) = (Dice::new(11), BTreeSet::new(), 0);
    while kills < KILLS {
        let mut child = start("", &disturbed, 1);
        std::thread::sleep(Duration::from_micros(dice.below(25_000)));
        child.kill().expect("killed");
        let lines = said(&mut child);
        assert!(!child.wait().expect("ended").success() || kills > 0, "it must not end by itself so early");
        assert!(lines.iter().all(|line| !line.starts_with("failed")), "{lines:?}");
        announced
            .extend(lines.into_iter().filter_map(|line| Some(line.strip_prefix("announced ")?.to_owned())));
        kills += 1;
        // Whatever state it was left in: it can be read, and has what was announced.
        let corpus = open(&disturbed);
        assert!(corpus.notes().is_empty(), "{:?}", corpus.notes());
        let search = corpus.search("toy").expect("nobody has it");
        let kept: BTreeSet<String> = search.announced().iter().map(Value::to_string).collect();
        assert!(announced.is_subset(&kept), "announced and lost: {:?}", announced.difference(&kept));
    }
    let mut child = start("", &disturbed, 0);
    assert!(said(&mut child).last().is_some_and(|line| line.starts_with("done")));
    assert_eq!(result(&disturbed), result(&calm));
    let left = common::files(&disturbed).into_keys().filter(|path| path.to_string_lossy().contains(".tmp-"));
    assert_eq!(left.count(), 0, "what killed writers have left is removed");
}

#[test]
fn a_search_without_room_says_so_and_goes_on_when_there_is_some() {
    let (calm, full) = (scratch("room"), scratch("full"));
    let mut child = start("", &calm, 0);
    said(&mut child);
    assert!(child.wait().expect("ended").success());
    // Files end at so many blocks of 512 bytes: a record is cut off in the middle.
    let mut announced = BTreeSet::new();
    for blocks in [1, 3, 8, 20] {
        let mut child = start(&format!("trap '' XFSZ; ulimit -f {blocks};"), &full, 0);
        let lines = said(&mut child);
        assert_eq!(child.wait().expect("ended").code(), Some(7), "{blocks}: {lines:?}");
        let failed = lines.last().expect("a line");
        assert!(failed.contains("File too large"), "{failed}");
        announced
            .extend(lines.into_iter().filter_map(|line| Some(line.strip_prefix("announced ")?.to_owned())));
    }
    let mut child = start("", &full, 0);
    assert!(said(&mut child).last().is_some_and(|line| line.starts_with("done")));
    assert!(child.wait().expect("ended").success());
    let (found, wanted) = (result(&full), result(&calm));
    assert!(announced.is_subset(&found.1));
    assert_eq!(found, wanted);
}

#[test]
fn processes_that_write_at_the_same_time_lose_nothing() {
    let dir = scratch("writers");
    let add = |first: u64| {
        let dir = dir.clone();
        move || {
            let mut corpus: Corpus = open(&dir);
            for seed in first..first + 40 {
                corpus.add(entry(seed, &[seed])).expect("added");
                if seed % 8 == 0 {
                    corpus.minimise(u64::MAX).expect("minimised");
                }
            }
        }
    };
    // Each opens the directory on its own, as processes do; half of what they add is the same.
    std::thread::scope(|scope| {
        for first in [0, 20, 40, 60] {
            scope.spawn(add(first));
        }
    });
    assert_eq!(seeds(&open(&dir)), (0..100).collect::<Vec<u64>>());
}
