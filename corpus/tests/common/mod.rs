//! What tests of corpora share: directories, entries, files that are changed.
#![allow(dead_code)] // each test uses a part

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bloodhound_corpus::{Corpus, Entry, Identity};
use bloodhound_decisions::{Choice, Log, Part, Site};

/// A directory of its own for a test, which is not there yet.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("corpus-{name}"));
    if let Err(error) = std::fs::remove_dir_all(&dir) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", dir.display());
    }
    dir
}

/// The same in memory, where the host has a file system there: for what is written thousands of times.
pub fn scratch_in_memory(name: &str) -> PathBuf {
    let dir = Path::new("/dev/shm").join(format!("bloodhound-corpus-{}-{name}", std::process::id()));
    match std::fs::create_dir(&dir) {
        Ok(()) => dir,
        Err(_) => scratch(name),
    }
}

/// What the entries of a plan belong to.
pub fn identity(plan: &str) -> Identity {
    Identity { plan: plan.into(), digest_version: 1, log_version: 4, features_version: 1 }
}

/// An entry of the plan `p` with these features.
pub fn entry(seed: u64, features: &[u64]) -> Entry {
    let choice = Choice { part: Part::Run, site: Site::Arrival { worker: 0, nth: seed } };
    Entry {
        identity: identity("p"),
        log: Log::new(1, seed).with(choice, 10, 3),
        features: features.iter().copied().collect(),
        violated: BTreeSet::new(),
        digest: format!("{seed:016x}"),
        why: format!("seed {seed}"),
    }
}

/// An open corpus for runs of the plan `p`.
pub fn open(dir: &Path) -> Corpus {
    Corpus::open(dir, identity("p")).unwrap_or_else(|error| panic!("{error}"))
}

/// The seeds of the entries, in order.
pub fn seeds(corpus: &Corpus) -> Vec<u64> {
    let mut seeds: Vec<u64> = corpus.entries().iter().map(|(_, kept)| kept.entry.log.seed).collect();
    seeds.sort_unstable();
    seeds
}

/// All files below a directory.
pub fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).expect("a directory").map(|e| e.expect("an entry").path()));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            found.insert(path, bytes);
        }
    }
    found
}
