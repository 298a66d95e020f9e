//! [`Corpus`]: a directory with interesting runs, and beside them the states of searches.
//!
//! `corpus.json` says what the directory is and which version has made it, `entries/` has a file for each run, `searches/` a directory for
//! each search. Entries are named by their content, so processes that share a corpus only ever add the same file twice; what is taken
//! out is taken out under a lock, from what is on the disk then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cover::cover;
use crate::entry::{self, Entry, Identity, Read};
use crate::error::Error;
use crate::files::{self, Locking, TEMPORARY};
use crate::search::Search;

/// Version of the directory.
const FORMAT: u64 = 1;
/// The file that says what the directory is.
const ABOUT: &str = "corpus.json";
pub(crate) const ENTRIES: &str = "entries";
const SEARCHES: &str = "searches";
/// Who takes entries out has its lock.
const LOCK: &str = "lock";
/// What may lie in a directory that is taken for empty: a file system begins with it.
const NOTHING: &str = "lost+found";
/// A file of an entry with more bytes is none.
pub(crate) const LARGEST: u64 = 16 << 20;

/// An entry that is there.
#[derive(Clone, Debug)]
pub struct Kept {
    /// It.
    pub entry: Entry,
    /// Bytes of its file.
    pub bytes: u64,
    /// It belongs to another plan or version: its features are out of date until its log has been run again.
    pub stale: bool,
}

/// A file in a corpus that is no entry that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub text: String,
    /// It is whole, but of another version.
    pub of_another_version: bool,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.of_another_version { "cannot be used by this version" } else { "is damaged" };
        write!(f, "{} {what} and is left as it is: {}", self.path.display(), self.text)
    }
}

/// What became of an entry that was to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is on the disk, under this name.
    New(String),
    /// It is on the disk, under the first name, in place of what the second one had of the same run.
    Replaced(String, String),
    /// It was there already.
    Known(String),
}

/// What a corpus was brought down to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Entries that stay.
    pub kept: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries that were taken out.
    pub removed: u64,
    /// Features that only entries had for which there was no room.
    pub uncovered: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Corpus {
    dir: PathBuf,
    identity: Identity,
    /// By name.
    entries: BTreeMap<String, Kept>,
    /// The name of the entry of each run.
    runs: BTreeMap<Vec<u8>, String>,
    notes: Vec<Note>,
}

impl Corpus {
    /// Opens the corpus in a directory, which is made if it is not there or empty, for runs of this identity.
    ///
    /// # Errors
    /// What the host says; a directory that is something else, or of a newer version. Nothing is changed then.
    pub fn open(dir: &Path, identity: Identity) -> Result<Corpus, Error> {
        begin(dir)?;
        let entries = dir.join(ENTRIES);
        files::clean(&entries).map_err(|e| Error::host("tidy up", &entries, &e))?;
        let mut corpus = Corpus {
            dir: dir.to_path_buf(),
            identity,
            entries: BTreeMap::new(),
            runs: BTreeMap::new(),
            notes: Vec::new(),
        };
        corpus.read()?;
        Ok(corpus)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the runs of now belong to.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The entries by their names, in the order of these: those that failed first, each run once.
    pub fn entries(&self) -> Vec<(&str, &Kept)> {
        let mut entries: Vec<(&str, &Kept)> =
            self.runs.values().filter_map(|name| Some((name.as_str(), self.entries.get(name)?))).collect();
        entries.sort_by_key(|(name, kept)| (kept.entry.violated.is_empty(), *name));
        entries
    }

    /// Files that are there and cannot be used.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// All features that entries of this identity have.
    pub fn features(&self) -> BTreeSet<u64> {
        let fresh = self.entries.values().filter(|kept| !kept.stale);
        fresh.flat_map(|kept| kept.entry.features.iter().copied()).collect()
    }

    /// Adds an entry, or puts it in the place of another one of the same run. When this returns it is on the disk.
    ///
    /// # Errors
    /// What the host says; the corpus is as it was then.
    pub fn add(&mut self, entry: Entry) -> Result<Added, Error> {
        let wrong = |e: serde_json::Error| Error::wrong(format!("an entry cannot be written: {e}"));
        let (name, bytes) = entry.file().map_err(wrong)?;
        let key = entry.key().map_err(wrong)?;
        let dir = self.dir.join(ENTRIES);
        if self.entries.contains_key(&name) && dir.join(&name).is_file() {
            return Ok(Added::Known(name));
        }
        files::write_whole(&dir, &name, &bytes)
            .map_err(|e| Error::host("write the entry", &dir.join(&name), &e))?;
        let stale = entry.identity != self.identity;
        self.entries.insert(name.clone(), Kept { entry, bytes: bytes.len() as u64, stale });
        let before = self.runs.insert(key, name.clone()).filter(|before| *before != name);
        match before {
            None => Ok(Added::New(name)),
            Some(before) => {
                self.remove(&before)?;
                Ok(Added::Replaced(name, before))
            }
        }
    }

    /// Takes out all entries that are not needed to have all features, and then as many as it takes to come down to `limit` bytes: what
    /// failed stays longest, and what is out of date goes before what is not. `None`: another process is just doing it.
    ///
    /// # Errors
    /// What the host says; entries that are still there are whole.
    pub fn minimise(&mut self, limit: u64) -> Result<Option<Trimmed>, Error> {
        let path = self.dir.join(LOCK);
        let lock = match files::lock(&path).map_err(|e| Error::host("lock", &path, &e))? {
            Locking::Taken(lock) => lock,
            Locking::Held(_) => return Ok(None),
        };
        // Others may have added some.
        self.read()?;
        let (order, all) = self.wanted();
        let (mut bytes, mut stay, mut covered) = (0, BTreeSet::new(), BTreeSet::new());
        for name in order {
            let kept = &self.entries[&name];
            if bytes + kept.bytes <= limit {
                bytes += kept.bytes;
                covered.extend(marks(kept));
                stay.insert(name);
            }
        }
        let out: Vec<String> = self.entries.keys().filter(|name| !stay.contains(*name)).cloned().collect();
        for name in &out {
            self.remove(name)?;
        }
        self.runs.retain(|_, name| stay.contains(name));
        drop(lock);
        let uncovered = all.difference(&covered).count() as u64;
        Ok(Some(Trimmed { kept: stay.len() as u64, bytes, removed: out.len() as u64, uncovered }))
    }

    /// The state of a search, with its lock.
    ///
    /// # Errors
    /// Another process that has it; what the host says; a newer version.
    pub fn search(&self, name: &str) -> Result<Search, Error> {
        Search::open(&self.dir.join(SEARCHES), name, self.identity.clone())
    }

    /// The entries that are to stay, the most wanted first, and all that entries of this identity have.
    fn wanted(&self) -> (Vec<String>, BTreeSet<u64>) {
        let runs: BTreeSet<&String> = self.runs.values().collect();
        let (mut stale, mut fresh): (Vec<_>, Vec<_>) =
            self.entries.iter().filter(|(name, _)| runs.contains(name)).partition(|(_, kept)| kept.stale);
        fresh.sort_by_key(|(name, kept)| (kept.entry.violated.is_empty(), *name));
        let marked: Vec<(u64, BTreeSet<u64>)> =
            fresh.iter().map(|(_, kept)| (kept.bytes, marks(kept))).collect();
        let failed = fresh.iter().take_while(|(_, kept)| !kept.entry.violated.is_empty()).count();
        let view: Vec<(u64, &BTreeSet<u64>)> = marked.iter().map(|(bytes, marks)| (*bytes, marks)).collect();
        stale.sort_by_key(|(name, kept)| (kept.bytes, *name));
        let fresh = cover(&view).into_iter().map(|at| (at >= failed, fresh[at].0));
        let stale = stale.iter().map(|(name, kept)| (kept.entry.violated.is_empty(), *name));
        let mut order: Vec<(bool, &String)> = fresh.chain(stale).collect();
        // Those that failed first: they are what a corpus is for. What is out of date comes last on either side.
        order.sort_by_key(|(held, _)| *held);
        (
            order.into_iter().map(|(_, name)| name.clone()).collect(),
            marked.into_iter().flat_map(|(_, marks)| marks).collect(),
        )
    }

    fn remove(&mut self, name: &str) -> Result<(), Error> {
        let path = self.dir.join(ENTRIES).join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::host("remove", &path, &error));
            }
            _ => {}
        }
        self.entries.remove(name);
        Ok(())
    }

    /// Reads what is on the disk.
    fn read(&mut self) -> Result<(), Error> {
        let dir = self.dir.join(ENTRIES);
        let list = || std::fs::read_dir(&dir)?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>();
        let mut names = list().map_err(|e| Error::host("read", &dir, &e))?;
        names.sort();
        (self.entries, self.runs, self.notes) = Default::default();
        for name in names {
            let name = name.to_string_lossy().into_owned();
            if !name.starts_with(TEMPORARY) {
                self.read_entry(&dir, name);
            }
        }
        Ok(())
    }

    fn read_entry(&mut self, dir: &Path, name: String) {
        let path = dir.join(&name);
        let (text, of_another_version) = match files::read(&path, LARGEST) {
            // Another process has just removed it.
            Ok(None) => return,
            Ok(Some(_)) if !entry::is_name(&name) => ("its name is none of an entry".to_owned(), false),
            Ok(Some(bytes)) => match entry::read(&name, &bytes) {
                Read::Entry(entry) => return self.insert(name, *entry, bytes.len() as u64),
                Read::Unusable(why) => (why, true),
                Read::Damaged(why) => (why, false),
            },
            Err(error) => (error.to_string(), false),
        };
        self.notes.push(Note { path, text, of_another_version });
    }

    /// Of two entries of one run the one counts that is up to date. The other one goes with the next that are taken out.
    fn insert(&mut self, name: String, entry: Entry, bytes: u64) {
        let stale = entry.identity != self.identity;
        let Ok(key) = entry.key() else { return };
        let other = self.runs.get(&key).and_then(|other| self.entries.get(other));
        if other.is_none_or(|other| other.stale) {
            self.runs.insert(key, name.clone());
        }
        self.entries.insert(name, Kept { entry, bytes, stale });
    }
}

/// What an entry is kept for: its features and what it violated.
fn marks(kept: &Kept) -> BTreeSet<u64> {
    let violated = kept.entry.violated.iter().map(|property| {
        let digits = files::hash(&[b"violated", property.as_bytes()], 8);
        u64::from_str_radix(&digits, 16).unwrap_or_default()
    });
    kept.entry.features.iter().copied().filter(|_| !kept.stale).chain(violated).collect()
}

/// Makes a directory a corpus, if it is not one already.
///
/// # Errors
/// What the host says; a directory that is something else, or of a newer version. Nothing is changed then.
pub(crate) fn begin(dir: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(dir).map_err(|e| Error::host("make the directory", dir, &e))?;
    recognise(dir)?;
    files::clean(dir).map_err(|e| Error::host("tidy up", dir, &e))?;
    // What cannot be written later is said now, before anything is run. And before anything else is made, so that
    // whoever opens the directory at the same moment, or finds it after a kill, knows what it is.
    files::write_whole(dir, ABOUT, about().as_bytes()).map_err(|e| Error::host("write to", dir, &e))?;
    for below in [ENTRIES, SEARCHES] {
        let path = dir.join(below);
        std::fs::create_dir_all(&path).map_err(|e| Error::host("make the directory", &path, &e))?;
    }
    Ok(())
}

/// The text of the file that says what the directory is.
pub fn about() -> String {
    format!("{}\n", json!({"bloodhound": "corpus", "format": FORMAT}))
}

/// Whether a directory is a corpus of this version, or an empty one that is to become it.
fn recognise(dir: &Path) -> Result<(), Error> {
    let path = dir.join(ABOUT);
    let Some(bytes) = files::read(&path, LARGEST).map_err(|e| Error::host("read", &path, &e))? else {
        let list = std::fs::read_dir(dir).map_err(|e| Error::host("read", dir, &e))?;
        for entry in list {
            let name = entry.map_err(|e| Error::host("read", dir, &e))?.file_name();
            let name = name.to_string_lossy();
            // Another process may have made it meanwhile.
            if name != NOTHING && !name.starts_with(TEMPORARY) && !path.exists() {
                return Err(Error::wrong(format!(
                    "{} is no corpus: it has no {ABOUT}, and it is not empty (it has `{name}`)\nhelp: give an empty directory, or one that \
                     is not there yet",
                    dir.display()
                )));
            }
        }
        return Ok(());
    };
    is_of_this_version(&path.display().to_string(), &bytes)
}

/// Refuses what is not the text of [`about`]: of another version, or of something else. `at` is where it was found.
///
/// # Errors
/// What is wrong, and what to do.
pub fn is_of_this_version(at: &str, bytes: &[u8]) -> Result<(), Error> {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    match value["format"].as_u64().filter(|_| value["bloodhound"] == "corpus") {
        Some(FORMAT) => Ok(()),
        Some(format) if format > FORMAT => Err(Error::wrong(format!(
            "{at} was made by a newer version of Bloodhound: it has format {format}, this one reads {FORMAT}\nhelp: use that version, or \
             another corpus"
        ))),
        _ => Err(Error::wrong(format!(
            "{at} is damaged, or is none of a corpus\nhelp: if what lies beside it is a corpus, write {} into this file: each entry is checked \
             on its own",
            about().trim_end()
        ))),
    }
}
