//! A search that is killed again and again, or has no room, and goes on: it ends as one that nobody disturbed, and what it announced is there.
//!
//! The search is a toy in a process of its own: this test program, run again with `BLOODHOUND_TOY` in its environment.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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

/// The toy: rounds of runs that are chosen by what was found before. Goes on where it was; prints what it announces. `may_go_on` is asked
/// before each run.
fn toy(dir: &Path, mut may_go_on: impl FnMut()) -> Result<(), Error> {
    let mut corpus = open(dir);
    let mut search = corpus.search("toy")?;
    if search.begun().is_none() {
        search.begin(&json!({"seed": 3}))?;
    }
    search.mend()?;
    let mut done = search.take_steps().into_iter();
    let (mut known, mut sum) = (BTreeSet::new(), 0);
    for round in 0..ROUNDS {
        let of_round = sum;
        for run in 0..RUNS {
            let seed = round * RUNS + run + 1000 * (of_round % 7);
            let found: BTreeSet<u64> = match done.next() {
                Some(step) => {
                    assert_eq!(step["seed"], json!(seed), "it goes on as it was");
                    serde_json::from_value(step["features"].clone()).expect("numbers")
                }
                None => {
                    may_go_on();
                    let found: BTreeSet<u64> = features(seed).into_iter().collect();
                    let is_new = !found.is_subset(&known);
                    if is_new {
                        corpus.add(entry(seed, &found.iter().copied().collect::<Vec<_>>()))?;
                    }
                    let step = json!({"seed": seed, "features": found, "new": is_new});
                    search.log(&step, is_new)?;
                    if is_new {
                        println!("announced {step}");
                        std::io::stdout().flush().expect("standard output");
                    }
                    found
                }
            };
            if !found.is_subset(&known) {
                sum += seed;
                known.extend(found);
            }
        }
    }
    println!("done {sum}");
    Ok(())
}

/// The process of the toy; a test that does nothing when it is not one.
#[test]
fn toy_process() {
    let Ok(dir) = std::env::var("BLOODHOUND_TOY") else { return };
    // One that is to be killed has said that it begins a run, and begins none that it was not let begin.
    let is_led = std::env::var_os("BLOODHOUND_TOY_LED").is_some();
    let may_go_on = || {
        if is_led {
            std::io::stdin().read_exact(&mut [0]).expect("a word from the test");
            println!("begins a run");
            std::io::stdout().flush().expect("standard output");
        }
    };
    if let Err(error) = toy(Path::new(&dir), may_go_on) {
        println!("failed {error}");
        std::process::exit(7);
    }
}

fn command(shell: &str, dir: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("{shell} exec \"$0\" --exact toy_process --nocapture --test-threads=1")])
        .arg(std::env::current_exe().expect("this program"))
        .env("BLOODHOUND_TOY", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn start(shell: &str, dir: &Path) -> Child {
    command(shell, dir).spawn().expect("the toy")
}

/// Starts it, lets it begin `runs` runs and at most two more, and kills it. Returns what it had announced.
fn killed_amid(dir: &Path, runs: usize) -> Vec<String> {
    let mut child =
        command("", dir).env("BLOODHOUND_TOY_LED", "1").stdin(Stdio::piped()).spawn().expect("the toy");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&vec![b'.'; runs + 2]).expect("the toy reads");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let (mut begun, mut said) = (0, Vec::new());
    while begun < runs {
        let line = lines.next().expect("it has not ended");
        begun += usize::from(line.contains("begins a run"));
        said.push(line);
    }
    child.kill().expect("killed");
    said.extend(lines);
    assert_eq!(child.wait().expect("ended").signal(), Some(9), "it was under way: {said:?}");
    assert!(!said.iter().any(|line| line.contains("failed ")), "{said:?}");
    said.iter().filter_map(|line| Some(line.split_once("announced ")?.1.to_owned())).collect()
}

/// What it said, until it ended. Other lines are of the test harness, which may begin a line of the toy's.
fn said(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let known = ["announced ", "done ", "failed "];
    lines
        .filter_map(|line| known.iter().find_map(|word| line.find(word).map(|at| line[at..].to_owned())))
        .collect()
}

/// What is in the corpus in the end: its seeds, and the steps of the search.
fn result(dir: &Path) -> (Vec<u64>, Vec<Value>) {
    let corpus = open(dir);
    assert!(corpus.notes().is_empty(), "{:?}", corpus.notes());
    let mut search = corpus.search("toy").expect("nobody has it");
    assert!(search.notes().is_empty(), "{:?}", search.notes());
    (seeds(&corpus), search.take_steps())
}

/// Steps with something new, as the toy announces them.
fn announced_of(steps: &[Value]) -> BTreeSet<String> {
    steps.iter().filter(|step| step["new"] == json!(true)).map(Value::to_string).collect()
}

#[test]
fn a_search_that_is_killed_fifty_times_ends_as_one_that_is_not() {
    let (calm, disturbed) = (scratch("calm"), scratch("killed"));
    let mut child = start("", &calm);
    assert!(said(&mut child).last().is_some_and(|line| line.starts_with("done")));
    assert!(child.wait().expect("ended").success());
    let (mut dice, mut announced) = (Dice::new(11), BTreeSet::new());
    for _ in 0..KILLS {
        announced.extend(killed_amid(&disturbed, dice.below(8) as usize));
        // Whatever state it was left in: it can be read, and has what was announced.
        let kept = announced_of(&result(&disturbed).1);
        assert!(announced.is_subset(&kept), "announced and lost: {:?}", announced.difference(&kept));
    }
    assert!(announced.len() > KILLS / 2, "too little was announced: {}", announced.len());
    let mut child = start("", &disturbed);
    assert!(said(&mut child).last().is_some_and(|line| line.starts_with("done")));
    assert_eq!(result(&disturbed), result(&calm));
    let left = common::files(&disturbed).into_keys().filter(|path| path.to_string_lossy().contains(".tmp-"));
    assert_eq!(left.count(), 0, "what killed writers have left is removed");
}

#[test]
fn a_search_without_room_says_so_and_goes_on_when_there_is_some() {
    let (calm, full) = (scratch("room"), scratch("full"));
    let mut child = start("", &calm);
    said(&mut child);
    assert!(child.wait().expect("ended").success());
    // Files end at so many blocks of 512 bytes: a record is cut off in the middle.
    let mut announced = BTreeSet::new();
    for blocks in [1, 3, 8, 20] {
        let mut child = start(&format!("trap '' XFSZ; ulimit -f {blocks};"), &full);
        let lines = said(&mut child);
        assert_eq!(child.wait().expect("ended").code(), Some(7), "{blocks}: {lines:?}");
        let failed = lines.last().expect("a line");
        assert!(failed.contains("File too large"), "{failed}");
        announced
            .extend(lines.into_iter().filter_map(|line| Some(line.strip_prefix("announced ")?.to_owned())));
    }
    let mut child = start("", &full);
    assert!(said(&mut child).last().is_some_and(|line| line.starts_with("done")));
    assert!(child.wait().expect("ended").success());
    let (found, wanted) = (result(&full), result(&calm));
    assert!(announced.is_subset(&announced_of(&found.1)));
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
