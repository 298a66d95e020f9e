//! [`Search`]: the state of one search on the disk, from which it goes on after whatever ended its process.
//!
//! It is a directory with a lock and a journal: what the search is, and then its steps. A search is a function of what it is about and of its steps,
//! so one that goes on counts these again and makes the next. What a step has found may be announced when the step is on the disk.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::Identity;
use crate::error::Error;
use crate::files::{Lock, Locking, clean, free_name, lock, sync_directory};
use crate::journal::{Found, Journal};

/// Version of the records.
const FORMAT: u32 = 1;
/// Letters of a name, at most.
const NAME: usize = 64;
/// What the name of a journal ends in that was put beside.
const ASIDE: &str = "unfinished";

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    /// What the search is: the first record.
    Begin { format: u32, identity: Identity, about: Value },
    /// What came of a part of it.
    Step(Value),
    /// Stands after the beginning in journals of earlier versions, and says nothing.
    State(Value),
}

/// [`Line::Step`] on its way out, without a copy of what it says.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Logged<'a, S> {
    Step(&'a S),
}

/// See the module's text.
#[derive(Debug)]
pub struct Search {
    dir: PathBuf,
    identity: Identity,
    journal: Journal,
    _lock: Lock,
    begun: Option<(Identity, Value)>,
    steps: Vec<Value>,
    notes: Vec<String>,
    /// The journal has steps that lie behind something damaged.
    gap: bool,
}

impl Search {
    /// Opens the search of this name, which nobody else may have.
    pub(crate) fn open(searches: &Path, name: &str, identity: Identity) -> Result<Search, Error> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        if name.is_empty() || name.len() > NAME || name.starts_with('.') || !name.bytes().all(allowed) {
            return Err(Error::wrong(format!(
                "`{name}` cannot be the name of a search: it has 1 to {NAME} of a-z, 0-9, `-`, `_` and `.`, and does not begin with `.`"
            )));
        }
        let dir = searches.join(name);
        std::fs::create_dir_all(&dir).map_err(|e| Error::host("make the directory", &dir, &e))?;
        let path = dir.join("lock");
        let held = match lock(&path).map_err(|e| Error::host("lock", &path, &e))? {
            Locking::Taken(lock) => lock,
            Locking::Held(by) => {
                let by = by.map_or_else(String::new, |by| format!(" ({by})"));
                return Err(Error::in_use(format!(
                    "the search `{name}` in {} is under way in another process{by}\nhelp: wait for it, or give this one another corpus",
                    searches.parent().unwrap_or(searches).display()
                )));
            }
        };
        clean(&dir).map_err(|e| Error::host("tidy up", &dir, &e))?;
        let path = dir.join("journal");
        let (journal, found) = Journal::open(&path).map_err(|e| Error::host("use", &path, &e))?;
        let mut search = Search {
            dir,
            identity,
            journal,
            _lock: held,
            begun: None,
            steps: Vec::new(),
            notes: Vec::new(),
            gap: false,
        };
        search.take(found)?;
        Ok(search)
    }

    /// Takes what the journal has.
    fn take(&mut self, found: Found) -> Result<(), Error> {
        let path = self.path();
        if let Some((aside, bytes)) = &found.damaged {
            self.notes.push(format!(
                "{} was damaged: {bytes} bytes of it do not check; as it was, it is in {}, and the rest is used",
                path.display(),
                aside.display()
            ));
        }
        // Steps without a beginning belong to no search.
        let (mut expected, mut gap) = (None, true);
        for record in &found.records {
            // Steps behind one that is missing mean nothing.
            gap |= expected.is_some_and(|number| number != record.number);
            expected = Some(record.number + 1);
            let value: Value = serde_json::from_slice(&record.text).unwrap_or_default();
            let format = value["begin"]["format"].as_u64();
            if let Some(format) = format.filter(|format| *format != u64::from(FORMAT)) {
                return Err(Error::wrong(format!(
                    "{} has format {format}, made by another version of Bloodhound; this one reads {FORMAT}\nhelp: go on with that version, or \
                     begin the search in another corpus",
                    path.display()
                )));
            }
            match serde_json::from_value(value) {
                Ok(Line::Begin { identity, about, .. }) => {
                    (self.begun, gap) = (Some((identity, about)), false);
                    self.steps.clear();
                }
                Ok(Line::State(_)) => {}
                Ok(Line::Step(step)) if !gap => self.steps.push(step),
                Ok(Line::Step(_)) => self.gap = true,
                Err(error) => {
                    (gap, self.gap) = (true, true);
                    self.notes.push(format!(
                        "{}: record {} says nothing: {error}",
                        path.display(),
                        record.number
                    ));
                }
            }
        }
        Ok(())
    }

    /// What the search is that is there: what it belongs to, and what [`Search::begin`] was given. `None`: there is none.
    pub fn begun(&self) -> Option<(&Identity, &Value)> {
        self.begun.as_ref().map(|(identity, about)| (identity, about))
    }

    /// What was wrong with its files, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Begins a new search in the place of the one that is there.
    ///
    /// # Errors
    /// What the host says; the search before it is still there then.
    pub fn begin(&mut self, about: &Value) -> Result<(), Error> {
        let begun = (self.identity.clone(), about.clone());
        self.rewrite(&begun, &[])?;
        (self.begun, self.gap) = (Some(begun), false);
        self.steps.clear();
        Ok(())
    }

    /// Keeps what came of a part of the search. It outlives this process; `durable`: when this returns it is on the disk, and what was found may be said.
    ///
    /// # Errors
    /// What the host says; the steps before it are still there then. A search that was not begun.
    pub fn log(&mut self, step: &impl Serialize, durable: bool) -> Result<(), Error> {
        if self.begun.is_none() {
            return Err(Error::wrong("a search must have begun before its steps are kept"));
        }
        let text = text(&Logged::Step(step))?;
        let path = self.path();
        self.journal.append(&text, durable).map_err(|e| Error::host("write to", &path, &e))
    }

    /// Brings to the disk what [`Search::log`] was given.
    ///
    /// # Errors
    /// What the host says.
    pub fn sync(&self) -> Result<(), Error> {
        self.journal.sync().map_err(|e| Error::host("write to", &self.path(), &e))
    }

    /// Takes out of the journal what lies behind something damaged, so that steps which are added follow those that are left: for a search that goes
    /// on.
    ///
    /// # Errors
    /// What the host says.
    pub fn mend(&mut self) -> Result<(), Error> {
        if self.gap
            && let Some(begun) = self.begun.clone()
        {
            let steps = self.steps.clone();
            self.rewrite(&begun, &steps)?;
            self.gap = false;
        }
        Ok(())
    }

    /// The steps that were found when it was opened, up to the first that is missing. They are not held any longer.
    pub fn take_steps(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.steps)
    }

    /// Keeps the journal beside as well, in the place of the last one that was kept there, before another search is begun in its place. Returns where it
    /// is.
    ///
    /// # Errors
    /// What the host says; the journal stays where it is.
    pub fn set_aside(&mut self) -> Result<PathBuf, Error> {
        let (path, aside) = (self.path(), self.path().with_extension(ASIDE));
        let free = free_name(&aside);
        // What is begun is written anew, so the second name keeps what is there now. Not every file system has second names.
        let named = std::fs::hard_link(&path, &free).or_else(|_| std::fs::copy(&path, &free).map(drop));
        named.and_then(|()| std::fs::rename(&free, &aside)).map_err(|e| Error::host("rename", &path, &e))?;
        // Two names of one file are both left by a rename: a process was killed before it had begun its search.
        let _ignored = std::fs::remove_file(&free);
        sync_directory(&self.dir).map_err(|e| Error::host("write to", &self.dir, &e))?;
        Ok(aside)
    }

    /// The file of the journal.
    pub fn path(&self) -> PathBuf {
        self.dir.join("journal")
    }

    fn rewrite(&mut self, (identity, about): &(Identity, Value), steps: &[Value]) -> Result<(), Error> {
        let begin = Line::Begin { format: FORMAT, identity: identity.clone(), about: about.clone() };
        let lines = std::iter::once(begin).chain(steps.iter().cloned().map(Line::Step));
        let texts = lines.map(|line| text(&line)).collect::<Result<Vec<_>, _>>()?;
        let path = self.path();
        self.journal.rewrite(&texts).map_err(|e| Error::host("write to", &path, &e))
    }
}

fn text(line: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(line).map_err(|e| Error::wrong(format!("a record of a search cannot be written: {e}")))
}
