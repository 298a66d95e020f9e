//! What is kept, without simulations.

use super::*;
use std::path::PathBuf;

use bloodhound_corpus::Told;
use bloodhound_decisions::Dice;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("bloodhound-keeping-{}-{name}", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&dir);
    dir
}

fn keeping(dir: &Path, plan: &str, seeds: (u64, u64)) -> Keeping {
    let identity =
        Identity { plan: plan.into(), digest_version: 1, log_version: VERSION, features_version: 1 };
    let corpus = Corpus::open(dir, identity).expect("a corpus");
    Keeping::new(corpus, (true, LIMIT), 1, (Seeds::new(seeds.0, seeds.1, None).expect("seeds"), &Part::All))
}

/// A run of a seed: rare features, and now and then a violation.
fn reached(seed: u64) -> Reached {
    let mut dice = Dice::new(seed);
    let violated: BTreeSet<String> =
        (dice.below(10) == 0).then(|| "stays (safety)".to_owned()).into_iter().collect();
    let mut feature = || {
        let most = 1 + dice.below(60);
        dice.below(most)
    };
    Reached {
        features: (0..5).map(|_| feature()).collect(),
        log: Log::new(boots::seed(0), seed),
        marks: violated.iter().map(|name| features::violation(name, "safety")).collect(),
        violated,
        digest: format!("{seed:016x}"),
    }
}

/// The names of the entries, which are hashes of what they say.
fn names(dir: &Path) -> BTreeSet<String> {
    let list = std::fs::read_dir(dir.join("entries")).expect("entries");
    list.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// A campaign whose runs end in an order of their own.
fn campaign(dir: &Path, seeds: (u64, u64), luck: u64) -> Summary {
    let mut keeping = keeping(dir, "p", seeds);
    let (cases, first) = keeping.order();
    let first_seeds: BTreeSet<u64> = first.iter().copied().collect();
    let others = (seeds.0..seeds.0 + seeds.1).filter(|seed| !first_seeds.contains(seed));
    let mut tasks: Vec<(Task, u64)> =
        cases.iter().enumerate().map(|(place, case)| (Task::Case(place), case.log.seed)).collect();
    tasks.extend(first.iter().copied().chain(others).map(|seed| (Task::Seed(seed), seed)));
    // Workers: one of the next few ends.
    let mut dice = Dice::new(luck);
    while !tasks.is_empty() {
        let next = dice.below(tasks.len().min(4) as u64) as usize;
        let (task, seed) = tasks.remove(next);
        keeping.ended(task, Some(reached(seed)).filter(|_| seed % 17 != 5));
    }
    let (summary, failed) = keeping.finish();
    assert!(failed.is_none(), "{failed:?}");
    summary
}

#[test]
fn what_is_kept_does_not_depend_on_which_run_ends_first() {
    let (one, other) = (scratch("one"), scratch("other"));
    for (number, seeds) in [(0, 40), (30, 60), (500, 20)].into_iter().enumerate() {
        let (a, b) = (campaign(&one, seeds, 1), campaign(&other, seeds, 2 + number as u64));
        assert_eq!(names(&one), names(&other), "campaign {number}");
        assert_eq!(a.growth.curve(), b.growth.curve());
        assert_eq!((a.added, a.trim), (b.added, b.trim));
        assert!(a.added > 0 && !names(&one).is_empty());
    }
    let growth = campaign(&one, (500, 20), 9).growth;
    // Runs that could not be judged say nothing.
    let lost = (500..520).filter(|seed| seed % 17 == 5).count() as u32;
    assert_eq!(growth.runs(), 20 - lost);
    assert!(lost == 0 || matches!(growth.estimate(), Told::TooFewRuns(_)));
    [one, other].iter().for_each(|dir| std::fs::remove_dir_all(dir).expect("removed"));
}

#[test]
fn entries_come_first_and_are_brought_up_to_date() {
    let dir = scratch("first");
    campaign(&dir, (0, 40), 1);
    let kept = keeping(&dir, "p", (10, 1000));
    let (cases, first) = kept.order();
    assert!(cases.iter().all(|case| case.log.seed < 10) && first.iter().all(|seed| (10..40).contains(seed)));
    assert_eq!(cases.len() + first.len(), names(&dir).len());
    assert!(kept.notes().is_empty());
    drop(kept);
    // Another plan: all are out of date until they have been run.
    let mut stale = keeping(&dir, "q", (900, 1));
    let notes = stale.notes();
    assert!(
        notes.len() == 1 && notes[0].contains("out of date") && notes[0].contains("the plan"),
        "{notes:?}"
    );
    let (cases, _) = stale.order();
    assert!(cases[0].name.contains("out of date"), "{}", cases[0].name);
    for (place, case) in cases.iter().enumerate() {
        stale.ended(Task::Case(place), Some(reached(case.log.seed)));
    }
    let (summary, failed) = stale.finish();
    assert!(failed.is_none() && summary.refreshed == cases.len() as u64, "{failed:?} {summary:?}");
    assert!(keeping(&dir, "q", (900, 1)).notes().is_empty());
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn what_cannot_be_saved_is_told() {
    let dir = scratch("gone");
    let mut keeping = keeping(&dir, "p", (0, 10));
    std::fs::remove_dir_all(&dir).expect("removed");
    std::fs::write(&dir, "a file in its place").expect("written");
    for seed in 0..10 {
        keeping.ended(Task::Seed(seed), Some(reached(seed)));
    }
    let (summary, failed) = keeping.finish();
    let failed = failed.expect("it cannot be written");
    assert_eq!((failed.code, summary.growth.runs()), (crate::exit::ENVIRONMENT, 10));
    assert!(failed.text.contains("write the entry"), "{}", failed.text);
    std::fs::remove_file(dir).expect("removed");
}

#[test]
fn shards_run_each_entry_once() {
    let dir = scratch("shards");
    let mut all = keeping(&dir, "a plan", (0, 60));
    (0..60).for_each(|seed| all.ended(Task::Seed(seed), Some(reached(seed))));
    all.finish();
    let entries = names(&dir).len();
    assert!(entries > 8, "{entries}");
    let part = |first: u64, part: &Part| {
        let shard = if let Part::Shard(shard) = part { Some(*shard) } else { None };
        let identity =
            Identity { plan: "a plan".into(), digest_version: 1, log_version: VERSION, features_version: 1 };
        let corpus = Corpus::open(&dir, identity).expect("a corpus");
        let seeds = Seeds::new(first, 60, shard).expect("seeds");
        Keeping::new(corpus, (false, LIMIT), 1, (seeds, part)).order()
    };
    let shards = || (1..=3).map(|index| Part::Shard(Shard { index, of: 3 }));
    // Of other seeds they are cases, of these they are seeds that come first.
    let cases = shards().flat_map(|shard| part(100, &shard).0.into_iter().map(|case| case.name));
    assert_eq!((cases.clone().count(), cases.collect::<BTreeSet<String>>().len()), (entries, entries));
    let first = shards().flat_map(|shard| part(0, &shard).1);
    assert_eq!((first.clone().count(), first.collect::<BTreeSet<u64>>().len()), (entries, entries));
    // A worker has no seeds of its own.
    let (cases, first) = part(0, &Part::Worker("one".to_owned()));
    assert_eq!((cases.len(), first.len()), (entries, 0));
    std::fs::remove_dir_all(dir).expect("removed");
}
