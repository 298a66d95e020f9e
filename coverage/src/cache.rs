//! Analyses that are kept on disk: that of a large program takes seconds, and a campaign is run again and again.
//!
//! An entry's name is a digest of all that an analysis depends on: the program, the rules, the files of the checkout with their sizes and
//! times, and the version of this crate's results. Which debug files were read is in the entry, with their digests; an entry whose debug
//! files have changed is not used.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::record::hex;
use crate::{DebugFiles, NotMeasured, Program, Rules, analyse};

/// To be changed with whatever changes the result of an analysis.
const VERSION: u32 = 2;
/// What is faster is not worth a file.
const SLOW: Duration = Duration::from_millis(200);
/// Entries that are kept.
const MOST: usize = 64;

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Debug files that were asked for, and the digests of those that were there.
    read: Vec<(PathBuf, Option<String>)>,
    result: Result<Program, NotMeasured>,
}

/// As [`analyse`], with results in `directory`, which is made if it is missing. A cache that cannot be read or written is none.
///
/// # Errors
/// As [`analyse`].
pub fn analyse_cached(
    directory: &Path,
    name: &str,
    bytes: &[u8],
    files: &dyn DebugFiles,
    rules: &Rules,
) -> Result<Program, NotMeasured> {
    let path = directory.join(format!("{}.json", key(name, bytes, rules)));
    if let Some(entry) = load(&path, files) {
        return entry.result;
    }
    let begin = Instant::now();
    let recorder = Recorder { files, read: Mutex::default() };
    let result = analyse(name, bytes, &recorder, rules);
    if begin.elapsed() >= SLOW {
        let read = recorder.read.into_inner().unwrap_or_default();
        let entry = Entry { read, result };
        // Without the entry, the next analysis takes as long.
        let _ = store(directory, &path, &entry);
        return entry.result;
    }
    result
}

fn key(name: &str, bytes: &[u8], rules: &Rules) -> String {
    let mut hash = Sha256::new();
    // Each part with its length, so that no two lists of parts are one.
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(&VERSION.to_le_bytes());
    add(name.as_bytes());
    add(&Sha256::digest(bytes));
    let Rules { unit, include, exclude, checkout, path_map, places } = rules;
    add(format!("{unit:?} {include:?} {exclude:?} {path_map:?} {places}").as_bytes());
    add(checkout.root().as_os_str().as_encoded_bytes());
    for file in checkout.files() {
        add(file.as_bytes());
        let about = std::fs::metadata(checkout.root().join(file)).ok();
        let time = about.as_ref().and_then(|about| about.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        add(&about.map_or(0, |about| about.len()).to_le_bytes());
        add(&time.unwrap_or_default().as_nanos().to_le_bytes());
    }
    hex(&hash.finalize())
}

fn load(path: &Path, files: &dyn DebugFiles) -> Option<Entry> {
    let text = std::fs::read(path).ok()?;
    let entry: Entry = serde_json::from_slice(&text).ok()?;
    let same = |(path, digest): &(PathBuf, Option<String>)| {
        files.read(path).map(|bytes| hex(&Sha256::digest(&bytes))) == *digest
    };
    entry.read.iter().all(same).then_some(entry)
}

fn store(directory: &Path, path: &Path, entry: &Entry) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let new = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, serde_json::to_vec(entry)?)?;
    std::fs::rename(&new, path)?;
    let mut entries: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            entries.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    entries.sort();
    let old = entries.len().saturating_sub(MOST);
    entries[..old].iter().try_for_each(|(_, path)| std::fs::remove_file(path))
}

/// Writes down what is read.
struct Recorder<'f> {
    files: &'f dyn DebugFiles,
    read: Mutex<Vec<(PathBuf, Option<String>)>>,
}

impl DebugFiles for Recorder<'_> {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let bytes = self.files.read(path);
        let digest = bytes.as_ref().map(|bytes| hex(&Sha256::digest(bytes)));
        if let Ok(mut read) = self.read.lock() {
            read.push((path.to_owned(), digest));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoFiles;

    /// A debug file that may change.
    struct One(Option<Vec<u8>>);

    impl DebugFiles for One {
        fn read(&self, _: &Path) -> Option<Vec<u8>> {
            self.0.clone()
        }
    }

    #[test]
    fn entries_are_used_as_long_as_all_is_the_same() {
        let directory =
            std::env::temp_dir().join(format!("bloodhound-coverage-cache-{}", std::process::id()));
        let path = directory.join("entry.json");
        let result = Err(NotMeasured { reason: "a".to_owned(), hint: "b".to_owned() });
        let read = vec![(PathBuf::from("/debug"), Some(hex(&Sha256::digest(b"one"))))];
        store(&directory, &path, &Entry { read, result: result.clone() }).expect("stored");
        assert_eq!(load(&path, &One(Some(b"one".to_vec()))).expect("an entry").result, result);
        assert!(load(&path, &One(Some(b"two".to_vec()))).is_none() && load(&path, &NoFiles).is_none());
        std::fs::write(&path, "damaged").expect("written");
        assert!(load(&path, &One(Some(b"one".to_vec()))).is_none());
        for number in 0..MOST + 3 {
            let entry = Entry { read: Vec::new(), result: result.clone() };
            store(&directory, &directory.join(format!("{number}.json")), &entry).expect("stored");
        }
        assert_eq!(std::fs::read_dir(&directory).expect("a directory").count(), MOST);
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn what_an_analysis_depends_on_is_in_its_key() {
        let rules = Rules::default();
        let first = key("/a", b"program", &rules);
        assert_eq!(first, key("/a", b"program", &rules));
        assert_ne!(first, key("/b", b"program", &rules));
        assert_ne!(first, key("/a", b"other", &rules));
        assert_ne!(first, key("/a", b"program", &Rules { places: true, ..rules.clone() }));
        let exclude = vec![crate::Pattern::new("x/").expect("a pattern")];
        assert_ne!(first, key("/a", b"program", &Rules { exclude, ..rules }));
    }
}
