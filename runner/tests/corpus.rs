//! `bloodhound test --corpus`: what was interesting comes first in the next campaign, whatever became of the files and however many workers there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, code, json, text};
use crate::common::{add_program, compile, put, repository, stack};
use bloodhound_corpus::{Corpus, Entry};
use bloodhound_decisions::{Choice, Part, Site};
use serde_json::Value;

const COMPOSE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n  \
    watcher: {<<: *s, command: [/app/watcher]}\n";
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 30s, time_step: 10ms, boots: 1}\n\
    faults: {swarm: false, duration: 20s, process: {pause_probability: 0.001, pause_duration_ms: [100, 400], \
    slow_probability: 0.005, slow_duration_ms: [100, 400]}}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";
const SEEDS: &str = "8";

/// A stack that fails in some seeds.
fn failing(name: &str) -> PathBuf {
    let dir = stack(&format!("corpus-{name}"), &[("compose.yaml", COMPOSE), ("bloodhound.yaml", CONFIG)]);
    add_program(&dir, "shrink/watcher.c");
    dir
}

/// A campaign with a corpus: its answer, and what it said.
fn campaign(dir: &Path, corpus: &str, more: &[&str]) -> (Value, String) {
    let args = [&["test", "--corpus", corpus, "--format", "json"], more].concat();
    let result = bloodhound(dir, &args);
    assert_eq!(code(&result), 1, "{}", text(&result));
    (json(&result), text(&result))
}

/// The entries of a corpus by their names.
fn entries(corpus: &Path) -> BTreeMap<String, Value> {
    let list =
        std::fs::read_dir(corpus.join("entries")).expect("a corpus").map(|entry| entry.expect("an entry"));
    let read = |path: PathBuf| serde_json::from_slice(&std::fs::read(path).expect("an entry")).expect("JSON");
    list.map(|entry| (entry.file_name().to_string_lossy().into_owned(), read(entry.path()))).collect()
}

/// Digests of the findings of a campaign, with their seeds.
fn digests(answer: &Value) -> BTreeMap<u64, String> {
    let findings = answer["findings"].as_array().expect("findings");
    let digest =
        |f: &Value| (f["seed"].as_u64().expect("a seed"), f["digest"].as_str().expect("a digest").to_owned());
    findings.iter().map(digest).collect()
}

#[test]
fn what_was_interesting_comes_first_and_workers_do_not_show() {
    let dir = failing("first");
    let run = |jobs: &str, corpus: &str| campaign(&dir, corpus, &["--seeds", SEEDS, "--jobs", jobs]).0;
    let (mut one, mut three) = (run("1", "one"), run("3", "three"));
    let kept = entries(&dir.join("one"));
    assert_eq!(kept, entries(&dir.join("three")), "the number of workers shows");
    for answer in [&mut one, &mut three] {
        answer["corpus"]["dir"] = Value::Null;
    }
    assert_eq!(one["corpus"], three["corpus"]);
    assert_eq!((&one["corpus"]["cases"], &one["corpus"]["growth"]["runs"]), (&0.into(), &8.into()), "{one}");
    assert_eq!(one["corpus"]["growth"]["estimate"], Value::Null, "of eight seeds nothing is estimated");
    let failed: Vec<&Value> = kept.values().filter(|entry| !entry["violated"].is_null()).collect();
    assert!(!failed.is_empty() && kept.len() < 8, "{kept:?}");
    // The same seeds: entries are seeds of this campaign, and none is run twice.
    let again = run("2", "one");
    assert_eq!((&again["corpus"]["seeds_first"], &again["corpus"]["cases"]), (&kept.len().into(), &0.into()));
    assert_eq!((&again["seeds_judged"], digests(&again)), (&8.into(), digests(&one)));
    assert_eq!(entries(&dir.join("one")), kept, "nothing is new");
    // Other seeds: entries are runs beside them, and what failed is found again as the run that it was.
    let (other, said) = campaign(&dir, "one", &["--first-seed", "100000", "--seeds", "1", "--out", "other"]);
    assert_eq!(other["corpus"]["cases_judged"], kept.len(), "{said}");
    assert_eq!((&other["seeds_run"], &other["seeds_wanted"]), (&1.into(), &1.into()));
    let (known, found) = (digests(&one), digests(&other));
    for entry in failed {
        let seed = entry["log"]["seed"].as_u64().expect("a seed");
        assert_eq!(
            (found.get(&seed), entry["digest"].as_str()),
            (known.get(&seed), found.get(&seed).map(|d| &**d))
        );
        assert!(said.contains(&format!("of the corpus (seed {seed}): stays violated")), "{said}");
    }
    // A case stops a campaign that wants no more than one finding.
    let many = ["--first-seed", "100000", "--seeds", "500", "--fail-fast", "--jobs", "1", "--out", "fast"];
    let (fast, said) = campaign(&dir, "one", &many);
    assert!(fast["seeds_run"].as_u64() < Some(100), "{said}");
    assert!(digests(&fast).iter().all(|(seed, digest)| known.get(seed) == Some(digest)), "{said}");
}

#[test]
fn entries_that_are_damaged_out_of_date_or_fit_no_more_are_named_and_judged() {
    let dir = failing("odd");
    let (answer, _) = campaign(&dir, "c", &["--seeds", SEEDS]);
    let corpus = dir.join("c");
    // An entry with a choice that never comes up: it is left out, and the finding is replayed strictly.
    let identity = {
        let (_, entry) = entries(&corpus).pop_first().expect("an entry");
        serde_json::from_value(entry["identity"].clone()).expect("an identity")
    };
    let failed = Corpus::open(&corpus, identity).expect("a corpus");
    let (_, kept) = failed.entries()[0];
    assert!(!kept.stale && !kept.entry.violated.is_empty(), "what failed comes first");
    let choice = Choice { part: Part::Run, site: Site::Arrival { worker: 77, nth: 5 } };
    let log = kept.entry.log.clone().with(choice, 10, 3);
    let seed = log.seed;
    let mut odd = Corpus::open(&dir.join("d"), failed.identity().clone()).expect("a corpus");
    odd.add(Entry { log, ..kept.entry.clone() }).expect("added");
    let (found, said) = campaign(&dir, "d", &["--first-seed", "100000", "--seeds", "1", "--out", "odd"]);
    assert_eq!(digests(&found).get(&seed), digests(&answer).get(&seed), "{said}");
    let of_seed = found["findings"].as_array().expect("findings").iter().find(|f| f["seed"] == seed);
    let replayed =
        bloodhound(&dir, &["replay", of_seed.expect("it is there")["replay"].as_str().expect("a place")]);
    assert!(text(&replayed).contains("reproduced: stays"), "{}", text(&replayed));
    // Another plan: the entries are out of date, and run all the same.
    put(&dir, "bloodhound.yaml", &CONFIG.replace("max_time: 30s", "max_time: 31s"));
    let before = entries(&corpus).len();
    std::fs::write(corpus.join("entries/0123456789abcdef0123456789abcdef.json"), "{").expect("written");
    let (stale, said) = campaign(&dir, "c", &["--first-seed", "100000", "--seeds", "1", "--out", "stale"]);
    assert_eq!(
        (&stale["corpus"]["cases_judged"], &stale["corpus"]["unusable_files"]),
        (&before.into(), &1.into())
    );
    assert!(said.contains("out of date (") && said.contains("other than now: the plan"), "{said}");
    assert!(said.contains("0123456789abcdef.json is damaged and is left as it is"), "{said}");
    let (_, said) = campaign(&dir, "c", &["--first-seed", "100000", "--seeds", "1", "--out", "stale"]);
    assert!(!said.contains("out of date"), "{said}");
    // What is no corpus is refused before anything is run.
    let refused = bloodhound(&dir, &["test", "--corpus", "app", "--seeds", "1"]);
    assert_eq!(code(&refused), 2, "{}", text(&refused));
    assert!(
        text(&refused).contains("app is no corpus") && !text(&refused).contains("platform "),
        "{}",
        text(&refused)
    );
    // Interesting seeds are saved where the configuration asks for it.
    let config = CONFIG.replace("{dir: out}", "{dir: own, save_interesting_seeds: true}");
    put(&dir, "bloodhound.yaml", &config);
    bloodhound(&dir, &["test", "--seeds", "2"]);
    assert!(!entries(&dir.join("own/corpus")).is_empty());
}

#[test]
fn a_search_goes_on_from_what_other_campaigns_have_kept() {
    let dir = failing("given");
    // Behind a failure there is nothing to go on from.
    let watcher = repository().join("runner/tests/shrink/watcher.c");
    compile(&watcher, &dir.join("app/watcher"), &["-O1", "-DPAUSES=1000"]);
    let kept = bloodhound(&dir, &["test", "--corpus", "corpus", "--seeds", "24"]);
    assert_eq!(code(&kept), 0, "{}", text(&kept));
    let entries = entries(&dir.join("corpus")).len();
    let search = |more: &[&str]| {
        let args = ["explore", "--strategy", "bfs", "--seed", "1000", "--runs", "16", "--no-shrink"];
        let result = bloodhound(&dir, &[&args[..], more, &["--format", "json"]].concat());
        assert!([0, 1].contains(&code(&result)), "{}", text(&result));
        let answer = json(&result);
        (answer["search"].clone(), digests(&answer))
    };
    let given = |jobs: &str, place: &str| {
        // Each has the same corpus, to which it adds.
        let copied =
            std::process::Command::new("cp").args(["-r", "corpus", place]).current_dir(&dir).status();
        assert!(copied.expect("cp").success());
        search(&["--jobs", jobs, "--corpus", place, "--out", place])
    };
    let one = given("1", "one");
    assert_eq!((&one.0["given"], &one.0["runs"]), (&Value::from(entries), &Value::from(16)));
    assert_eq!(given("3", "three"), one, "the number of workers shows");
    // From its first runs on, which without a corpus are all of new seeds.
    let fresh = |search: &Value| search["runs_by_arm"]["fresh"].as_u64().expect("a number");
    let none = search(&["--out", "none"]).0;
    assert_eq!((fresh(&none), &none["given"]), (16, &Value::from(0)));
    assert!(fresh(&one.0) < 14, "{}", one.0);
}
