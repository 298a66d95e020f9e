//! [`Search`]: the state of one search on the disk, from which it goes on after whatever ended its process.
//!
//! It is a directory with a lock and a journal of five kinds of records: what the search is, its state at the beginning of a round, the
//! steps of that round, what was announced, and what a search before it had announced there. A search that goes on has the last state and
//! the steps since then, so it goes on with just the round that was under way.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::Identity;
use crate::error::Error;
use crate::files::{Lock, Locking, clean, lock};
use crate::journal::{Found, Journal};

/// Version of the records.
const FORMAT: u32 = 1;
/// Letters of a name, at most.
const NAME: usize = 64;
/// A journal with so many bytes more than it needs is written anew.
const SPARE: u64 = 4 << 20;

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    /// What the search is: the first record.
    Begin {
        format: u32,
        identity: Identity,
        about: Value,
    },
    State(Value),
    Step(Value),
    Announced(Value),
    /// What another search had announced in this place.
    Earlier(Value),
}

/// Where a search goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resumed<'a> {
    /// The state that [`Search::checkpoint`] was last given.
    pub state: &'a Value,
    /// What [`Search::step`] was given since then, in order.
    pub steps: &'a [Value],
}

/// See the module's text.
#[derive(Debug)]
pub struct Search {
    dir: PathBuf,
    identity: Identity,
    journal: Journal,
    _lock: Lock,
    begun: Option<(Identity, Value)>,
    state: Option<Value>,
    steps: Vec<Value>,
    announced: Vec<Value>,
    earlier: Vec<Value>,
    notes: Vec<String>,
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
        let (begun, state) = (None, None);
        let mut search = Search {
            dir,
            identity,
            journal,
            _lock: held,
            begun,
            state,
            steps: Vec::new(),
            announced: Vec::new(),
            earlier: Vec::new(),
            notes: Vec::new(),
        };
        search.take(found)?;
        Ok(search)
    }

    /// Takes what the journal has.
    fn take(&mut self, found: Found) -> Result<(), Error> {
        let path = self.dir.join("journal");
        if let Some((aside, bytes)) = &found.damaged {
            self.notes.push(format!(
                "{} was damaged: {bytes} bytes of it do not check; as it was, it is in {}, and the rest is used",
                path.display(),
                aside.display()
            ));
        }
        let (mut expected, mut gap) = (None, found.damaged.is_some());
        for record in &found.records {
            // After a gap, steps belong to a state that is not there any more.
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
                Ok(Line::Begin { identity, about, .. }) => self.begun = Some((identity, about)),
                Ok(Line::State(state)) => {
                    (self.state, gap) = (Some(state), false);
                    self.steps.clear();
                }
                Ok(Line::Step(step)) if !gap => self.steps.push(step),
                Ok(Line::Step(_)) => {}
                Ok(Line::Announced(what)) => self.announced.push(what),
                Ok(Line::Earlier(what)) => self.earlier.push(what),
                Err(error) => {
                    gap = true;
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

    /// Where the search goes on that is there. `None`: there is none, it has no state yet, or it belongs to another plan or version, whose
    /// state means nothing here ([`Search::begun`] has it).
    pub fn resume_state(&self) -> Option<Resumed<'_>> {
        let (identity, _) = self.begun.as_ref()?;
        let state = self.state.as_ref().filter(|_| *identity == self.identity)?;
        Some(Resumed { state, steps: &self.steps })
    }

    /// What this search has announced, in order.
    pub fn announced(&self) -> &[Value] {
        &self.announced
    }

    /// What searches before it had announced in this place.
    pub fn earlier(&self) -> &[Value] {
        &self.earlier
    }

    /// What was wrong with its files, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Begins a new search in this place. What the one before it had announced is kept as [`Search::earlier`].
    ///
    /// # Errors
    /// What the host says; the search before it is still there then.
    pub fn begin(&mut self, about: &Value) -> Result<(), Error> {
        let earlier: Vec<Value> = self.earlier.iter().chain(&self.announced).cloned().collect();
        let begun = (self.identity.clone(), about.clone());
        self.rewrite(&begun, &earlier, &[], None)?;
        (self.begun, self.earlier) = (Some(begun), earlier);
        (self.state, self.announced) = (None, Vec::new());
        self.steps.clear();
        Ok(())
    }

    /// Keeps the state at the beginning of a round. When this returns it is on the disk.
    ///
    /// # Errors
    /// What the host says; the state before it is still there then. A search that was not begun.
    pub fn checkpoint(&mut self, state: &Value) -> Result<(), Error> {
        self.append(&Line::State(state.clone()), true)?;
        self.state = Some(state.clone());
        self.steps.clear();
        let kept = self.announced.len() + self.earlier.len();
        let needed = serde_json::to_string(state).map_or(0, |text| text.len() as u64) + 256 * kept as u64;
        if self.journal.length > SPARE + 4 * needed {
            // It is longer than it need be, and stays so if there is no room for another one.
            let _ignored = self.compact();
        }
        Ok(())
    }

    /// Keeps what came of a part of the round that is under way. It outlives this process; if the machine fails the part may have to be done
    /// again.
    ///
    /// # Errors
    /// As for [`Search::checkpoint`].
    pub fn step(&mut self, step: &Value) -> Result<(), Error> {
        self.append(&Line::Step(step.clone()), false)?;
        self.steps.push(step.clone());
        Ok(())
    }

    /// Keeps what is to be announced. Only when this has returned may it be said.
    ///
    /// # Errors
    /// As for [`Search::checkpoint`].
    pub fn announce(&mut self, what: &Value) -> Result<(), Error> {
        self.append(&Line::Announced(what.clone()), true)?;
        self.announced.push(what.clone());
        Ok(())
    }

    fn append(&mut self, line: &Line, durable: bool) -> Result<(), Error> {
        if self.begun.is_none() {
            return Err(Error::wrong("a search must have begun before its state is kept"));
        }
        let text = text(line)?;
        let path = self.dir.join("journal");
        self.journal.append(&text, durable).map_err(|e| Error::host("write to", &path, &e))
    }

    fn compact(&mut self) -> Result<(), Error> {
        let Some(begun) = self.begun.clone() else { return Ok(()) };
        let (earlier, announced, state) = (self.earlier.clone(), self.announced.clone(), self.state.clone());
        self.rewrite(&begun, &earlier, &announced, state)
    }

    fn rewrite(
        &mut self,
        (identity, about): &(Identity, Value),
        earlier: &[Value],
        announced: &[Value],
        state: Option<Value>,
    ) -> Result<(), Error> {
        let begin = Line::Begin { format: FORMAT, identity: identity.clone(), about: about.clone() };
        let lines = std::iter::once(begin)
            .chain(earlier.iter().cloned().map(Line::Earlier))
            .chain(announced.iter().cloned().map(Line::Announced))
            .chain(state.map(Line::State));
        let texts = lines.map(|line| text(&line)).collect::<Result<Vec<_>, _>>()?;
        let path = self.dir.join("journal");
        self.journal.rewrite(&texts).map_err(|e| Error::host("write to", &path, &e))
    }
}

fn text(line: &Line) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(line).map_err(|e| Error::wrong(format!("a record of a search cannot be written: {e}")))
}
