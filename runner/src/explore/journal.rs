//! The journal of a search: what it is about, and what came of each of its runs, so that it goes on where it was after whatever ended its process.
//!
//! Key types: [`Journal`], [`About`] (what must be the same), [`Step`] (a run: what is counted of it, and what the search learned from it). A search is a function of its
//! settings and of what its runs have shown, in order; so its steps are all that there is to keep. A step is written when the findings of its run are on the disk and
//! before they are announced. Runs that something outside has ended (an interrupt, --timeout, a failure of the host, want of memory, a bug) are no steps: they are made again.
//!
//! Neighbours: `bloodhound_corpus::Search` (the file and its lock), [`super::workers`] (takes results in order), `campaign::resumed` (counts steps again).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloodhound_abi::SimTime;
use bloodhound_corpus::{Corpus, Entry, Search as File};
use bloodhound_decisions::{Choice, Log};
use bloodhound_explore::{Planned, RULES, Seen, Settings, is_event};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::campaign::record::SeedRecord;
use crate::campaign::totals::Unjudged;
use crate::corpus::{self, Keeping, Known};
use crate::redact;
use crate::session::{Failure, Session};

/// The name of the search in its corpus: there is one.
const NAME: &str = "explore";
/// How often what was written is brought to the disk where nothing is announced.
const SYNC: Duration = Duration::from_secs(1);

/// What a search is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    /// By which rules a search learns ([`bloodhound_explore::RULES`]).
    rules: u32,
    strategy: String,
    first_seed: u64,
    /// Its budget when it was begun.
    runs: u64,
    max_depth: u32,
    max_states: u64,
    prioritize_coverage: bool,
    prioritize_near_violation: bool,
    /// The entries of the corpus when it was begun, which are run before it: name, text, and whether it was out of date.
    cases: Vec<(String, String, bool)>,
}

impl About {
    fn of(settings: &Settings, keeping: &Keeping) -> Result<About, Failure> {
        let text = |known: &Known| {
            let text = known.entry.to_text().map_err(corpus::failure)?;
            Ok((known.name.clone(), text, known.stale))
        };
        Ok(About {
            rules: RULES,
            strategy: settings.strategy.name().to_owned(),
            first_seed: settings.first_seed,
            runs: settings.runs,
            max_depth: settings.max_depth,
            max_states: settings.max_states as u64,
            prioritize_coverage: settings.prefer.rare,
            prioritize_near_violation: settings.prefer.near,
            cases: keeping.cases().iter().map(text).collect::<Result<_, Failure>>()?,
        })
    }

    /// In what another one differs, in words: as it is here, and as it is there.
    fn difference(&self, other: &About) -> Vec<String> {
        let parts = |about: &About| {
            [
                ("version", about.rules.to_string()),
                ("strategy", about.strategy.clone()),
                ("first seed", about.first_seed.to_string()),
                ("max_depth", about.max_depth.to_string()),
                ("max_states", about.max_states.to_string()),
                ("prioritize_coverage", about.prioritize_coverage.to_string()),
                ("prioritize_near_violation", about.prioritize_near_violation.to_string()),
            ]
        };
        let pairs = parts(self).into_iter().zip(parts(other));
        let differ = pairs.filter(|((_, here), (_, there))| here != there);
        differ.map(|((name, here), (_, there))| format!("its {name} is {here}, not {there}")).collect()
    }
}

/// A record of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    /// It has another budget from here on.
    Runs(u64),
    /// The next run has ended.
    Run(Box<Written>),
}

/// What is written of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    record: SeedRecord,
    /// The moment of another run from which it went on.
    branched: Option<u64>,
    /// What the search learned; `None`: nothing.
    shown: Option<Shown>,
    /// What it reached, for the corpus.
    reached: Option<Numbers>,
}

/// Features: those that no step before has, and the places of the others in the order in which they came.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    new: Vec<(u64, u64)>,
    old: Vec<u32>,
}

/// [`Seen`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    /// The moment up to which it is the run from which it went on. What was seen until then a search does not learn of it, so it is left out.
    #[serde(default)]
    from: Option<u64>,
    features: Numbers,
    /// The times of the events that are not new, of a run from the boot on. Of others nobody asks for the time.
    #[serde(default)]
    times: Vec<u64>,
    nearness: u32,
    cost: u64,
    failed: bool,
    /// What states are made of, if there came any.
    states: Option<OfStates>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfStates {
    log: Log,
    moments: Vec<u64>,
    /// Choice, bound, time.
    faults: Vec<(String, u64, u64)>,
    draws: Vec<(String, u64)>,
}

/// The features of a journal by their places.
#[derive(Debug, Default)]
struct Book {
    place: BTreeMap<u64, u32>,
    names: Vec<u64>,
}

impl Book {
    fn add(&mut self, feature: u64) {
        let next = self.names.len() as u32;
        self.place.insert(feature, next);
        self.names.push(feature);
    }

    /// Of features that come once each, with their times.
    fn write(&mut self, features: impl Iterator<Item = (u64, u64)>) -> Numbers {
        let mut numbers = Numbers::default();
        for (feature, at) in features {
            match self.place.get(&feature) {
                Some(place) => numbers.old.push(*place),
                None => numbers.new.push((feature, at)),
            }
        }
        numbers.new.iter().for_each(|(feature, _)| self.add(*feature));
        numbers
    }

    /// In rising order; `time` is asked for those that were not new, in the order in which they were written. `None`: a place, or a time, that is none.
    fn read(
        &mut self,
        numbers: &Numbers,
        mut time: impl FnMut(u64) -> Option<u64>,
    ) -> Option<Vec<(u64, u64)>> {
        let old = numbers.old.iter().map(|place| {
            let feature = *self.names.get(*place as usize)?;
            Some((feature, time(feature)?))
        });
        let mut all = old.collect::<Option<Vec<(u64, u64)>>>()?;
        numbers.new.iter().for_each(|(feature, _)| self.add(*feature));
        all.extend(&numbers.new);
        all.sort_unstable();
        Some(all)
    }
}

/// The features that guide a search, and those of the corpus.
#[derive(Debug, Default)]
struct Books {
    shown: Book,
    reached: Book,
}

impl Shown {
    fn of(seen: &Seen, (from, has_states): (Option<u64>, bool), book: &mut Book) -> Shown {
        let states = has_states.then(|| OfStates {
            log: (*seen.log).clone(),
            moments: seen.moments.clone(),
            faults: seen.faults.iter().map(|f| (f.happens.to_string(), f.bound, f.at)).collect(),
            draws: seen.draws.iter().map(|(choice, at)| (choice.to_string(), *at)).collect(),
        });
        let learned = seen.features.iter().copied().filter(|(_, at)| from.is_none_or(|from| *at > from));
        let is_asked =
            |feature: u64| from.is_none() && is_event(feature) && book.place.contains_key(&feature);
        let times = learned.clone().filter(|(feature, _)| is_asked(*feature)).map(|(_, at)| at).collect();
        let features = book.write(learned);
        Shown { from, features, times, nearness: seen.nearness, cost: seen.cost, failed: seen.failed, states }
    }

    fn seen(&self, book: &mut Book) -> Option<Seen> {
        let mut times = self.times.iter().copied();
        let time = |feature: u64| match self.from {
            None if is_event(feature) => times.next(),
            None => Some(0),
            Some(from) => from.checked_add(1),
        };
        let mut seen = Seen {
            features: book.read(&self.features, time)?,
            nearness: self.nearness,
            cost: self.cost,
            failed: self.failed,
            ..Seen::default()
        };
        if let Some(states) = &self.states {
            let choice = |text: &str| text.parse::<Choice>().ok();
            let fault = |(happens, bound, at): &(String, u64, u64)| {
                Some(Planned { happens: choice(happens)?, bound: *bound, at: *at })
            };
            let faults = states.faults.iter().map(fault).collect::<Option<Vec<_>>>()?;
            let draws = states.draws.iter().map(|(draw, at)| Some((choice(draw)?, *at)));
            seen.log = Arc::new(states.log.clone());
            seen.moments.clone_from(&states.moments);
            (seen.faults, seen.draws) = (Arc::new(faults), Arc::new(draws.collect::<Option<Vec<_>>>()?));
        }
        Some(seen)
    }
}

/// A run that was made by a process before.
#[derive(Debug)]
pub struct Step {
    /// What is counted of it, with its findings.
    pub record: SeedRecord,
    /// What the search learns from it.
    pub seen: Option<Seen>,
    /// What it reached, for the corpus.
    pub reached: Option<BTreeSet<u64>>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Journal {
    file: File,
    resume: bool,
    /// The search that is there; `None`: there is none, or this version cannot read it.
    about: Option<About>,
    /// Its runs that are not counted again yet, and how many there were of how many.
    written: VecDeque<Written>,
    made: u64,
    runs: u64,
    books: Books,
    /// What the search has learned from the run that is taken just now.
    shown: Option<Option<Shown>>,
    /// Steps are added no more: a run is missing.
    closed: bool,
    synced: Instant,
}

impl Journal {
    /// Opens the journal of a corpus, to go on or for a new search.
    ///
    /// # Errors
    /// Another process that has it; nothing that can be gone on with; what the host says.
    pub fn open(corpus: &Corpus, session: &Session, resume: bool) -> Result<Journal, Failure> {
        let file = corpus.search(NAME).map_err(corpus::failure)?;
        let mut journal = Journal {
            file,
            resume,
            about: None,
            written: VecDeque::new(),
            made: 0,
            runs: 0,
            books: Books::default(),
            shown: None,
            closed: false,
            synced: Instant::now(),
        };
        let begun = journal.file.begun().map(|(identity, about)| (identity.clone(), about.clone()));
        let read = begun.map(|(identity, about)| {
            let other = identity.difference(&corpus::identity(session));
            match other.is_empty() {
                true => journal.read(about),
                false => {
                    Err(format!("the search belongs to another stack or version: other than now: {other}"))
                }
            }
        });
        match read {
            None if resume => Err(journal.wrong("there is no search to go on with")),
            Some(Err(why)) if resume => Err(journal.wrong(&why)),
            _ => Ok(journal),
        }
    }

    /// Why `--resume` is not possible.
    fn wrong(&self, why: &str) -> Failure {
        Failure::usage(format!(
            "`--resume`: {why} ({})\nhelp: give the corpus, the options and the configuration with which the search was begun, or leave `--resume` out to \
             begin a new one",
            self.file.path().display()
        ))
    }

    /// Reads the search that is there.
    fn read(&mut self, about: Value) -> Result<(), String> {
        let other = |e: serde_json::Error| format!("the search was written by another version: {e}");
        let about: About = serde_json::from_value(about).map_err(other)?;
        if self.resume {
            self.file.mend().map_err(|e| e.text)?;
        }
        let steps = self.file.take_steps();
        self.runs = about.runs;
        for step in steps {
            match serde_json::from_value(step).map_err(other)? {
                Line::Runs(runs) => self.runs = runs,
                Line::Run(written) => self.written.push_back(*written),
            }
        }
        self.made = self.written.len() as u64;
        self.about = Some(about);
        Ok(())
    }

    /// The budget of the search that is gone on with.
    pub fn budget(&self) -> Option<u64> {
        self.resume.then_some(self.runs)
    }

    /// Goes on with the search that is there, or begins one. Returns what there is to say.
    ///
    /// # Errors
    /// The search that is there is another one; what the host says.
    pub fn start(&mut self, settings: &Settings, keeping: &mut Keeping) -> Result<Vec<String>, Failure> {
        let mut notes = self.file.notes().to_vec();
        let now = About::of(settings, keeping)?;
        if !self.resume {
            notes.extend(self.put_aside()?);
            let about = serde_json::to_value(&now).map_err(|e| self.wrong(&e.to_string()))?;
            self.file.begin(&about).map_err(corpus::failure)?;
            return Ok(notes);
        }
        let there = self.about.take().unwrap_or_else(|| now.clone());
        let differ = there.difference(&now);
        if !differ.is_empty() {
            return Err(self.wrong(&format!("the search there is another one: {}", differ.join(", "))));
        }
        if settings.runs < self.made {
            return Err(self.wrong(&format!("it has made {} runs, more than {}", self.made, settings.runs)));
        }
        let case = |(name, text, stale): (String, String, bool)| {
            let entry = Entry::of_text(&text).map_err(corpus::failure)?;
            Ok(Known { name, entry, stale })
        };
        keeping.begin_with(there.cases.into_iter().map(case).collect::<Result<_, Failure>>()?);
        if settings.runs != self.runs {
            self.add(&Line::Runs(settings.runs), true)?;
        }
        let findings: usize = self.written.iter().map(|written| written.record.findings.len()).sum();
        notes.push(format!(
            "goes on with the search of {}: {} of {} runs are made, with {findings} findings",
            self.file.path().display(),
            self.made,
            settings.runs
        ));
        Ok(notes)
    }

    /// Where a search is there that has not come to its end, its journal is put beside, in the place of one that was put there before.
    fn put_aside(&mut self) -> Result<Option<String>, Failure> {
        if self.file.begun().is_none() || self.about.is_some() && self.made >= self.runs {
            return Ok(None);
        }
        let how_far = match self.about {
            Some(_) => format!("after {} of {} runs", self.made, self.runs),
            None => "with another stack, or another version of Bloodhound".to_owned(),
        };
        let (made, place) = (self.made, self.file.path());
        self.written.clear();
        if made == 0 && self.about.is_some() {
            return Ok(None);
        }
        let aside = self.file.set_aside().map_err(corpus::failure)?;
        Ok(Some(format!(
            "a search that has not ended was in this corpus ({how_far}); this is a new one, as `--resume` was not given, which would have gone on with it. \
             Its journal is kept as {}: to go on with it, move it back to {} and say `--resume`",
            aside.display(),
            place.display()
        )))
    }

    /// The next run that a process before has made.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn next(&mut self) -> Result<Option<Step>, Failure> {
        let Some(written) = self.written.pop_front() else { return Ok(None) };
        let number = self.made - self.written.len() as u64;
        let Books { shown: book, reached } = &mut self.books;
        let seen = written.shown.map(|shown| shown.seen(book));
        let reached = written.reached.map(|numbers| reached.read(&numbers, |_| Some(0)));
        let mut record = written.record;
        if record.seed != number || matches!(seen, Some(None)) || matches!(reached, Some(None)) {
            return Err(self.wrong(&format!("what the journal says of run {number} makes no sense")));
        }
        record.findings.iter_mut().for_each(|found| found.branched = written.branched.map(SimTime));
        let reached = reached.flatten().map(|all| all.into_iter().map(|(feature, _)| feature).collect());
        Ok(Some(Step { record, seen: seen.flatten(), reached }))
    }

    /// What the search has learned from the run that is recorded next, which went on from another one at `from`; `has_states`: the search goes on from it.
    pub fn shows(&mut self, seen: Option<&Seen>, from: Option<u64>, has_states: bool) {
        if !self.closed {
            let book = &mut self.books.shown;
            self.shown = Some(seen.map(|seen| Shown::of(seen, (from, has_states), book)));
        }
    }

    /// Writes down what came of a run, with its findings, which are on the disk. When this returns it may be said.
    ///
    /// # Errors
    /// What the host says; no more is written then.
    pub fn record(&mut self, record: &SeedRecord, reached: Option<&BTreeSet<u64>>) -> Result<(), Failure> {
        let shown = self.shown.take().filter(|_| !self.closed && is_step(record));
        let Some(shown) = shown else {
            // What comes behind a run that is missing is made again with it.
            self.closed = true;
            return Ok(());
        };
        let branched = record.findings.first().and_then(|found| found.branched).map(|at| at.0);
        let book = &mut self.books.reached;
        let reached = reached.map(|all| book.write(all.iter().map(|feature| (*feature, 0))));
        let findings = !record.findings.is_empty();
        let written = Written { record: redacted(record)?, branched, shown, reached };
        self.add(&Line::Run(Box::new(written)), findings).inspect_err(|_| self.closed = true)
    }

    fn add(&mut self, line: &Line, durable: bool) -> Result<(), Failure> {
        self.file.log(line, durable).map_err(corpus::failure)?;
        if !durable && self.synced.elapsed() >= SYNC {
            return self.sync();
        }
        Ok(())
    }

    /// Brings to the disk what is written.
    ///
    /// # Errors
    /// What the host says.
    pub fn sync(&mut self) -> Result<(), Failure> {
        self.synced = Instant::now();
        self.file.sync().map_err(corpus::failure)
    }
}

/// A record without secrets. What the search learned beside it is names and numbers, which must stay as they are.
fn redacted(record: &SeedRecord) -> Result<SeedRecord, Failure> {
    if !redact::active() {
        return Ok(record.clone());
    }
    serde_json::to_string(record)
        .and_then(|text| serde_json::from_str(&redact::json(&text)))
        .map_err(|e| Failure::environment(format!("a run cannot be written: {e}")))
}

/// Whether a run came to an end that it would come to again: if not, it is made again.
fn is_step(record: &SeedRecord) -> bool {
    let ended = match &record.unjudged {
        None | Some(Unjudged::Unsupported(_) | Unjudged::Undecided(_)) => true,
        Some(Unjudged::Bug(_) | Unjudged::Host(_) | Unjudged::Interrupted | Unjudged::TimedOut) => false,
    };
    ended && record.findings.iter().all(|found| found.kept.is_ok())
}

#[cfg(test)]
mod tests {
    use bloodhound_decisions::Dice;
    use bloodhound_explore::EVENT;

    use super::*;

    /// What a search learns of runs is the same from what is written of them.
    #[test]
    fn a_search_learns_the_same_from_the_journal() {
        let (mut dice, mut here, mut there) = (Dice::new(7), Book::default(), Book::default());
        for run in 0..200 {
            let mut all = BTreeMap::new();
            for _ in 0..60 {
                let feature = dice.below(300) | if dice.below(3) == 0 { EVENT } else { 0 };
                all.insert(feature, 1 + dice.below(1000));
            }
            let from = (run % 2 == 1).then(|| dice.below(1000));
            let seen = Seen { features: all.into_iter().collect(), nearness: run, ..Seen::default() };
            let is_known = |feature: &u64, book: &Book| book.place.contains_key(feature);
            let asked: Vec<(u64, u64)> = seen
                .features
                .iter()
                .filter(|(_, at)| from.is_none_or(|from| *at > from))
                .map(|(feature, at)| {
                    let timed = from.is_none() && is_event(*feature) || !is_known(feature, &here);
                    (*feature, if timed { *at } else { from.map_or(0, |from| from + 1) })
                })
                .collect();
            let text = serde_json::to_string(&Shown::of(&seen, (from, false), &mut here)).expect("text");
            let shown: Shown = serde_json::from_str(&text).expect("what was written");
            let again = shown.seen(&mut there).expect("it makes sense");
            assert_eq!((again.features, again.nearness), (asked, run), "run {run}");
        }
        assert_eq!(here.names, there.names);
    }

    #[test]
    fn times_that_are_missing_make_no_sense() {
        let mut book = Book::default();
        book.add(EVENT);
        let numbers = Numbers { new: Vec::new(), old: vec![0] };
        let shown = Shown {
            from: None,
            features: numbers,
            times: Vec::new(),
            nearness: 0,
            cost: 0,
            failed: false,
            states: None,
        };
        assert!(shown.seen(&mut book).is_none());
    }
}
