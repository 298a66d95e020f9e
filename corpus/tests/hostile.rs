//! Corpora that are damaged, foreign, of other versions, without room or shared: what is wrong is said, and nothing is lost.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bloodhound_corpus::{Added, Corpus, Entry, ErrorKind};
use common::{entry, files, identity, open, scratch, scratch_in_memory, seeds};
use serde_json::json;

const STEPS: u64 = 4;

#[test]
fn entries_are_there_when_the_corpus_is_opened_again() {
    let dir = scratch("again");
    let mut corpus = open(&dir);
    let added = corpus.add(entry(1, &[1, 2])).expect("added");
    assert!(matches!(added, Added::New(_)), "{added:?}");
    assert!(matches!(corpus.add(entry(1, &[1, 2])).expect("there"), Added::Known(_)));
    let mut failed = entry(2, &[1]);
    failed.violated.insert("linearizable (safety)".into());
    corpus.add(failed.clone()).expect("added");
    let again = open(&dir);
    let entries = again.entries();
    assert_eq!(entries[0].1.entry, failed, "what failed comes first");
    assert_eq!((entries.len(), seeds(&again)), (2, vec![1, 2]));
    assert!(!entries[1].1.stale && again.notes().is_empty());
    // The same run with other features takes the place of what was known of it.
    assert!(matches!(corpus.add(entry(1, &[7])).expect("added"), Added::Replaced(..)));
    assert_eq!((seeds(&open(&dir)), open(&dir).features()), (vec![1, 2], [1, 7].into()));
}

#[test]
fn entries_of_another_plan_are_out_of_date_and_of_other_versions_unusable() {
    let dir = scratch("stale");
    open(&dir).add(entry(1, &[1])).expect("added");
    let mut other = Corpus::open(&dir, identity("q")).expect("opened");
    let (name, kept) = other.entries()[0];
    assert!(kept.stale && other.features().is_empty());
    assert_eq!(kept.entry.identity.difference(other.identity()), "the plan");
    let (name, mut entry) = (name.to_owned(), kept.entry.clone());
    entry.identity = identity("q");
    assert!(matches!(other.add(entry).expect("refreshed"), Added::Replaced(_, before) if before == name));
    assert!(!other.entries()[0].1.stale);
    // A log of another version: it is kept and named.
    let (path, bytes) = files(&dir.join("entries")).pop_first().expect("an entry");
    let text = String::from_utf8(bytes).expect("text").replace("\"version\":4", "\"version\":3");
    std::fs::remove_file(path).expect("removed");
    let name = name_of(&text);
    std::fs::write(dir.join("entries").join(&name), &text).expect("written");
    let corpus = open(&dir);
    assert_eq!((corpus.entries().len(), corpus.notes().len()), (0, 1));
    let note = corpus.notes()[0].to_string();
    assert!(
        corpus.notes()[0].of_another_version && note.contains(&name) && note.contains("version 3"),
        "{note}"
    );
    let mut corpus = corpus;
    corpus.minimise(0).expect("minimised");
    assert!(dir.join("entries").join(name).is_file(), "what is of another version stays");
}

/// The name that a file with this text must have: that which opening it asks for is not told, so it is made by the rule.
fn name_of(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::new().chain_update((text.len() as u64).to_le_bytes()).chain_update(text).finalize();
    format!("{}.json", hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[test]
fn every_prefix_and_every_flipped_bit_of_every_file_is_survived_and_seen() {
    let dir = scratch_in_memory("damage");
    let mut corpus = open(&dir);
    for seed in 1..=2 {
        corpus.add(entry(seed, &[seed])).expect("added");
    }
    {
        let mut search = corpus.search("s").expect("a search");
        search.begin(&json!({"seed": 7})).expect("begun");
        for run in 0..STEPS {
            search.log(&json!({"run": run}), run == 1).expect("kept");
        }
    }
    let all = files(&dir);
    assert_eq!(all.len(), 5, "corpus.json, two entries, a lock and a journal");
    for (path, bytes) in &all {
        let prefixes = (0..bytes.len()).map(|end| bytes[..end].to_vec());
        let flipped = (0..bytes.len()).map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            bytes
        });
        for damaged in prefixes.chain(flipped) {
            std::fs::write(path, &damaged).expect("damaged");
            check(&dir, path, &String::from_utf8_lossy(&damaged));
            for (path, bytes) in &all {
                std::fs::write(path, bytes).expect("restored");
            }
        }
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

/// One file is damaged; the rest must be there, and the damage be told unless nothing of meaning is gone.
fn check(dir: &Path, damaged: &Path, text: &str) {
    let name = damaged.file_name().expect("a name").to_string_lossy().into_owned();
    let corpus = match Corpus::open(dir, identity("p")) {
        Ok(corpus) => corpus,
        Err(error) => {
            assert!(name == "corpus.json" && error.kind == ErrorKind::Wrong, "{name}: {error}");
            assert!(error.text.contains("help: "), "{error}");
            return;
        }
    };
    let in_entries = damaged.parent().expect("a parent").ends_with("entries");
    assert_eq!(seeds(&corpus).len(), if in_entries { 1 } else { 2 }, "{name}: {text}");
    assert_eq!(corpus.notes().len(), usize::from(in_entries), "{name}");
    assert!(!in_entries || corpus.notes()[0].to_string().contains(&name));
    let mut search = match corpus.search("s") {
        Ok(search) => search,
        Err(error) => {
            assert!(name == "journal" && error.kind == ErrorKind::Wrong, "{name}: {error}");
            return;
        }
    };
    let steps: Vec<u64> =
        search.take_steps().iter().map(|step| step["run"].as_u64().expect("a run")).collect();
    if name != "journal" {
        assert_eq!(steps, (0..STEPS).collect::<Vec<u64>>(), "{name}");
        return;
    }
    assert_eq!(
        steps,
        (0..steps.len() as u64).collect::<Vec<u64>>(),
        "{text}: a step behind one that is missing"
    );
    // What is whole up to a run stays. Without the end of its line a record may have been cut off: nobody was told of it.
    let whole =
        (0..STEPS).take_while(|run| text.contains(&format!("{{\"step\":{{\"run\":{run}}}}}"))).count();
    let told = !search.notes().is_empty();
    assert!(steps.len() == whole || told || search.begun().is_none(), "{text}");
    // What was damaged is kept beside.
    if told {
        let kept = files(dir).into_keys().filter(|path| path.to_string_lossy().contains("damaged"));
        let kept: Vec<_> = kept.collect();
        assert!(!kept.is_empty(), "{text}");
        kept.iter().for_each(|path| std::fs::remove_file(path).expect("removed"));
    }
}

#[test]
fn what_is_no_corpus_is_refused_and_left_alone() {
    let dir = scratch("foreign");
    std::fs::create_dir_all(dir.join("src")).expect("a directory");
    std::fs::write(dir.join("src/main.c"), "int main;").expect("a file");
    let before = files(&dir);
    let error = Corpus::open(&dir, identity("p")).expect_err("a foreign directory");
    assert_eq!(error.kind, ErrorKind::Wrong);
    assert!(error.text.contains("is no corpus") && error.text.contains("`src`"), "{error}");
    let error = Corpus::open(&dir.join("src/main.c"), identity("p")).expect_err("a file");
    assert_eq!(error.kind, ErrorKind::Host);
    assert_eq!(files(&dir), before);
    let newer = scratch("newer");
    open(&newer).add(entry(1, &[1])).expect("added");
    std::fs::write(newer.join("corpus.json"), "{\"bloodhound\":\"corpus\",\"format\":2}").expect("written");
    let before = files(&newer);
    let error = Corpus::open(&newer, identity("p")).expect_err("a newer one");
    assert!(error.text.contains("newer version") && error.text.contains("format 2"), "{error}");
    assert_eq!(files(&newer), before);
}

#[test]
fn a_directory_that_cannot_be_written_to_is_told_at_once() {
    let dir = scratch("unwritable");
    open(&dir).add(entry(1, &[1])).expect("added");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o555)).expect("changed");
    let opened = Corpus::open(&dir, identity("p"));
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("changed");
    // Who may do anything may write here too, and nobody into a directory whose place a file has.
    let blocked = scratch("blocked");
    drop(open(&blocked));
    std::fs::remove_dir_all(blocked.join("entries")).expect("removed");
    std::fs::write(blocked.join("entries"), "a file").expect("written");
    let error = Corpus::open(&blocked, identity("p")).expect_err("a file in the place of the entries");
    assert!(error.kind == ErrorKind::Host && error.text.contains("entries"), "{error}");
    if let Err(error) = opened {
        assert_eq!(error.kind, ErrorKind::Host);
        assert!(error.text.contains("write to") && error.text.contains("help: "), "{error}");
    }
    assert_eq!(
        Corpus::open(Path::new("/proc/corpus"), identity("p")).expect_err("no place").kind,
        ErrorKind::Host
    );
    assert_eq!(seeds(&open(&dir)), [1]);
}

#[test]
fn two_processes_add_to_one_corpus_and_a_search_has_one_owner() {
    let dir = scratch("two");
    let (mut one, mut two) = (open(&dir), open(&dir));
    one.add(entry(1, &[1])).expect("added");
    two.add(entry(2, &[2])).expect("added");
    two.add(entry(1, &[1])).expect("the same file");
    assert_eq!(seeds(&open(&dir)), [1, 2]);
    let mut held = one.search("s").expect("free");
    held.begin(&json!(null)).expect("begun");
    let error = two.search("s").expect_err("taken");
    assert_eq!(error.kind, ErrorKind::InUse);
    let me = format!("process {}", std::process::id());
    assert!(error.text.contains(&me) && error.text.contains("help: "), "{error}");
    two.search("t").expect("another one");
    drop(held);
    assert!(two.search("s").expect("free again").begun().is_some());
    // What one takes out is found by the other one, and what it adds stays.
    two.add(entry(3, &[1, 2, 3])).expect("added");
    one.minimise(u64::MAX).expect("minimised").expect("nobody else does");
    assert_eq!((seeds(&one), seeds(&open(&dir))), (vec![3], vec![3]));
    two.add(entry(4, &[4])).expect("added");
    two.minimise(u64::MAX).expect("minimised");
    assert_eq!(seeds(&two), [3, 4]);
}

#[test]
fn a_corpus_is_brought_down_to_a_size() {
    let dir = scratch("size");
    let mut corpus = open(&dir);
    for seed in 0..20 {
        corpus.add(entry(seed, &[seed, seed + 1, 100 + seed / 4])).expect("added");
    }
    let mut failed = entry(50, &[1]);
    failed.violated.insert("linearizable (safety)".into());
    corpus.add(failed).expect("added");
    let all = corpus.features();
    let trimmed = corpus.minimise(u64::MAX).expect("minimised").expect("alone");
    assert_eq!((corpus.features(), trimmed.uncovered), (all, 0));
    assert!(trimmed.removed >= 5 && trimmed.kept + trimmed.removed == 21, "{trimmed:?}");
    assert!(seeds(&corpus).contains(&50), "what failed is kept");
    let before = files(&dir);
    corpus.minimise(u64::MAX).expect("minimised");
    assert_eq!(files(&dir), before, "once is enough");
    let half = trimmed.bytes / 2;
    let less = corpus.minimise(half).expect("minimised").expect("alone");
    assert!(less.bytes <= half && less.kept > 1 && less.uncovered > 0, "{less:?}");
    assert!(seeds(&corpus).contains(&50), "what failed goes last");
    assert_eq!(open(&dir).minimise(0).expect("minimised").expect("alone").kept, 0);
}

#[test]
fn what_failed_stays_longest_even_if_it_is_out_of_date() {
    let dir = scratch("longest");
    let mut failed = entry(50, &[1]);
    failed.violated.insert("linearizable (safety)".into());
    open(&dir).add(failed).expect("added");
    let mut corpus = Corpus::open(&dir, identity("q")).expect("opened");
    let bytes = corpus.entries()[0].1.bytes;
    for seed in 1..=5 {
        let fresh = Entry { identity: identity("q"), ..entry(seed, &[seed]) };
        corpus.add(fresh).expect("added");
    }
    corpus.minimise(bytes).expect("minimised").expect("alone");
    assert_eq!(seeds(&corpus), [50]);
}

#[test]
fn a_search_goes_on_where_it_was_and_only_for_what_it_was_begun() {
    let dir = scratch("search");
    let corpus = open(&dir);
    let mut search = corpus.search("s").expect("free");
    assert_eq!(search.take_steps(), [json!(null); 0]);
    assert_eq!(search.begun(), None);
    assert_eq!(search.log(&json!(1), true).expect_err("not begun").kind, ErrorKind::Wrong);
    search.begin(&json!({"seed": 7})).expect("begun");
    for run in 0..100 {
        search.log(&json!(run), run % 10 == 0).expect("kept");
    }
    drop(search);
    let mut search = corpus.search("s").expect("free");
    assert_eq!(search.take_steps(), (0..100).map(|run| json!(run)).collect::<Vec<_>>());
    let aside = search.set_aside().expect("kept beside");
    let before = std::fs::read(&aside).expect("the journal");
    assert_eq!(before, std::fs::read(search.path()).expect("it is still there"));
    search.begin(&json!({"seed": 8})).expect("begun anew");
    drop(search);
    assert_eq!(std::fs::read(&aside).expect("it stays"), before);
    let mut search = corpus.search("s").expect("free");
    assert_eq!(search.take_steps(), [json!(null); 0]);
    drop(search);
    let other = Corpus::open(&dir, identity("q")).expect("opened");
    let search = other.search("s").expect("free");
    assert_eq!(
        search.begun().map(|(identity, about)| (identity.plan.as_str(), about)),
        Some(("p", &json!({"seed": 8})))
    );
    for name in ["", "../s", "a b", ".hidden", &"x".repeat(65)] {
        assert_eq!(corpus.search(name).expect_err(name).kind, ErrorKind::Wrong);
    }
}

#[test]
fn steps_behind_a_damaged_one_are_taken_out_before_others_are_added() {
    let dir = scratch("mend");
    let corpus = open(&dir);
    let mut search = corpus.search("s").expect("free");
    search.begin(&json!(null)).expect("begun");
    for run in 0..4 {
        search.log(&json!({"run": run}), true).expect("kept");
    }
    let path = search.path();
    drop(search);
    let text = std::fs::read_to_string(&path).expect("a journal");
    std::fs::write(&path, text.replace("{\"run\":1}", "{\"run\":9}")).expect("damaged");
    let mut search = corpus.search("s").expect("free");
    search.mend().expect("mended");
    assert_eq!(search.take_steps(), [json!({"run": 0})]);
    search.log(&json!({"run": 5}), true).expect("kept");
    drop(search);
    let mut search = corpus.search("s").expect("free");
    assert_eq!(search.take_steps(), [json!({"run": 0}), json!({"run": 5})]);
}
