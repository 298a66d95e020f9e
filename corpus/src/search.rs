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
/// What the name of a journal ends in that was put beside.
const ASIDE: &str = "unfinished";

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
                Ok(Line::Step(_)) => self.gap = true,
                Ok(Line::Announced(what)) => self.announced.push(what),
                Ok(Line::Earlier(what)) => self.earlier.push(what),
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
        self.rewrite(&begun, (&earlier, &[]), None, &[])?;
        self.gap = false;
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

    /// Keeps what came of a part, as [`Search::step`] does, and does not hold it in memory: a search that says all it is by its steps needs
    /// them only when it goes on. `durable`: when this returns it is on the disk.
    ///
    /// # Errors
    /// As for [`Search::checkpoint`].
    pub fn log(&mut self, step: Value, durable: bool) -> Result<(), Error> {
        self.append(&Line::Step(step), durable)
    }

    /// Brings to the disk what [`Search::step`] and [`Search::log`] were given.
    ///
    /// # Errors
    /// What the host says.
    pub fn sync(&self) -> Result<(), Error> {
        self.journal.sync().map_err(|e| Error::host("write to", &self.path(), &e))
    }

    /// The steps that were found when it was opened, for a search that goes on from them. Where the journal was damaged, what lies behind that is
    /// taken out of it, so that steps which are added follow these.
    ///
    /// # Errors
    /// What the host says.
    pub fn take_steps(&mut self) -> Result<Vec<Value>, Error> {
        if self.gap
            && let Some(begun) = self.begun.clone()
        {
            let (earlier, announced) = (self.earlier.clone(), self.announced.clone());
            let (state, steps) = (self.state.clone(), self.steps.clone());
            self.rewrite(&begun, (&earlier, &announced), state, &steps)?;
            self.gap = false;
        }
        Ok(std::mem::take(&mut self.steps))
    }

    /// Puts the journal beside, where it stays until the next one is put there, before another search is begun in its place. Returns where it is.
    ///
    /// # Errors
    /// What the host says; it is where it was then.
    pub fn set_aside(&mut self) -> Result<PathBuf, Error> {
        let (path, aside) = (self.path(), self.path().with_extension(ASIDE));
        std::fs::rename(&path, &aside).map_err(|e| Error::host("rename", &path, &e))?;
        Ok(aside)
    }

    /// The file of the journal.
    pub fn path(&self) -> PathBuf {
        self.dir.join("journal")
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
        let path = self.path();
        self.journal.append(&text, durable).map_err(|e| Error::host("write to", &path, &e))
    }

    fn compact(&mut self) -> Result<(), Error> {
        let Some(begun) = self.begun.clone() else { return Ok(()) };
        let (earlier, announced, state) = (self.earlier.clone(), self.announced.clone(), self.state.clone());
        self.rewrite(&begun, (&earlier, &announced), state, &[])
    }

    fn rewrite(
        &mut self,
        (identity, about): &(Identity, Value),
        (earlier, announced): (&[Value], &[Value]),
        state: Option<Value>,
        steps: &[Value],
    ) -> Result<(), Error> {
        let begin = Line::Begin { format: FORMAT, identity: identity.clone(), about: about.clone() };
        let lines = std::iter::once(begin)
            .chain(earlier.iter().cloned().map(Line::Earlier))
            .chain(announced.iter().cloned().map(Line::Announced))
            .chain(state.map(Line::State))
            .chain(steps.iter().cloned().map(Line::Step));
        let texts = lines.map(|line| text(&line)).collect::<Result<Vec<_>, _>>()?;
        let path = self.path();
        self.journal.rewrite(&texts).map_err(|e| Error::host("write to", &path, &e))
    }
}

fn text(line: &Line) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(line).map_err(|e| Error::wrong(format!("a record of a search cannot be written: {e}")))
}
