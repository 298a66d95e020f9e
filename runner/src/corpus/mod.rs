//! The corpus of campaigns and searches: which runs come first, which are kept, and what the runs say about those that come.
//!
//! Key types: [`Keeping`] (a corpus in use by a campaign), [`Reached`] (what is kept of a run until its turn comes), [`Summary`]. Runs end in any order, and
//! are looked at in that of their seeds, so what is kept does not depend on how many workers there are. [`open`] and [`identity`] are for searches too.
//!
//! Modules: `features` (what a run reached), `shared` (a corpus in a bucket), `summary` (what is told of it). Neighbours: `bloodhound_corpus` (files, estimates), `campaign::order`.

mod features;
pub mod shared;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bloodhound_abi::digest;
use bloodhound_corpus::{Added, Corpus, Entry, Error, ErrorKind, Growth, Identity};
use bloodhound_decisions::{Log, VERSION};

use crate::boots;
use crate::campaign::order::{Case, Task};
use crate::campaign::seeds::Seeds;
use crate::campaign::totals::Found;
use crate::explore::Journal;
use crate::session::{Failure, Outcome, Session};
use crate::shard::{Part, Shard};

pub use features::features;
pub use summary::{Summary, Trim};

/// The bytes that a corpus is brought down to, if nobody says how many: little for the cache of a CI.
pub const LIMIT: u64 = 8 << 20;
/// The directory of a corpus that nobody names, in that of the reports.
pub const DIRECTORY: &str = "corpus";

/// Entries that are named where there are many.
const NAMED: usize = 5;

/// Enough of an entry's name for people.
fn short(name: &str) -> &str {
    name.get(..12).unwrap_or(name)
}

/// What the entries of runs belong to.
pub fn identity(session: &Session) -> Identity {
    Identity {
        plan: session.plan_digest.clone(),
        digest_version: digest::VERSION,
        log_version: VERSION,
        features_version: features::VERSION,
    }
}

/// Opens a corpus for runs of a session.
///
/// # Errors
/// Those of [`Corpus::open`].
pub fn open(dir: &Path, session: &Session) -> Result<Corpus, Failure> {
    Corpus::open(dir, identity(session)).map_err(failure)
}

/// An error of a corpus as one of a command.
pub fn failure(error: Error) -> Failure {
    match error.kind {
        ErrorKind::Wrong => Failure::usage(error.text),
        ErrorKind::Host | ErrorKind::InUse => Failure::environment(error.text),
    }
}

/// What is kept of a run that was judged, until its turn comes.
#[derive(Clone, Debug)]
pub struct Reached {
    /// What it reached.
    pub features: BTreeSet<u64>,
    log: Log,
    violated: BTreeSet<String>,
    /// The same as features.
    marks: BTreeSet<u64>,
    digest: String,
}

impl Reached {
    /// Of a run, with its features.
    pub fn of(outcome: &Outcome, features: BTreeSet<u64>) -> Reached {
        let violations = outcome.violations.iter();
        Reached {
            features,
            log: lasting(&outcome.decisions),
            violated: violations.clone().map(|v| format!("{} ({})", v.property, v.kind)).collect(),
            marks: violations.map(|v| features::violation(&v.property, &v.kind)).collect(),
            digest: outcome.digest.clone(),
        }
    }

    fn everything(&self) -> impl Iterator<Item = u64> {
        self.features.iter().chain(&self.marks).copied()
    }
}

/// An entry of a run. Its log is that of the run, or another one that leads to it.
pub fn entry(identity: Identity, log: Log, reached: &Reached, why: String) -> Entry {
    Entry {
        identity,
        log,
        features: reached.features.clone(),
        violated: reached.violated.clone(),
        digest: reached.digest.clone(),
        why,
    }
}

/// What of a log is kept: loops that are counted are found again, and so are switches of a run that its seeds alone determine.
pub fn lasting(log: &Log) -> Log {
    let mut log = Log { counted: Vec::new(), ..log.clone() };
    if is_seed(&log) {
        log.switches = None;
    }
    log
}

/// The mark of a violation as an entry tells it: `PROPERTY (KIND)`.
fn mark(violated: &str) -> Option<u64> {
    let (property, kind) = violated.strip_suffix(')')?.rsplit_once(" (")?;
    Some(features::violation(property, kind))
}

/// Whether a shard runs an entry: by its name alone, whatever else others have put into the corpus meanwhile.
fn dealt(name: &str, shard: Shard) -> bool {
    let number = name.get(..15).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
    number % shard.of == shard.index - 1
}

/// Whether a run is what its seeds say and nothing else.
fn is_seed(log: &Log) -> bool {
    log.epochs.is_empty() && log.overrides.is_empty() && log.plain.is_empty()
}

/// An entry of which a run is made before others.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its file.
    pub name: String,
    pub entry: Entry,
    /// It belongs to another plan or version.
    pub stale: bool,
}

/// A corpus in use by a campaign.
#[derive(Debug)]
pub struct Keeping {
    corpus: Corpus,
    /// New runs are saved.
    save: bool,
    limit: u64,
    /// By the number of the case.
    cases: Vec<Known>,
    /// Seeds of the campaign that have an entry, in the order in which they are run.
    first: BTreeMap<u64, Known>,
    seeds: Seeds,
    /// Seeds have their turn as they end: others run those between.
    as_they_end: bool,
    /// Runs that must end before it can be said what is new.
    awaited: BTreeSet<Task>,
    /// What ended before its turn; `None`: there is nothing to be said of it.
    pending: BTreeMap<u64, Option<Reached>>,
    /// How many seeds had their turn.
    turn: u64,
    /// What entries and seeds have reached so far.
    known: BTreeSet<u64>,
    growth: Growth,
    summary: Summary,
    /// Why nothing is saved any more.
    failed: Option<Failure>,
    /// The journal of a search, if the campaign is one.
    pub journal: Option<Journal>,
}

impl Keeping {
    /// The corpus of a campaign, or of a part of it, if it has one: the one that is named, which may have been opened already, or the one of its reports if the
    /// configuration says that interesting seeds are saved. A shard runs its part of the entries.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn of(
        session: &Session,
        (named, opened): (Option<&Path>, Option<Corpus>),
        limit: u64,
        out: &Path,
        (seeds, part): (Seeds, &Part),
    ) -> Result<Option<Keeping>, Failure> {
        let said = session.project.config.output.save_interesting_seeds;
        let dir = match (named, said) {
            (Some(dir), _) => dir.to_path_buf(),
            // A part of a campaign keeps runs for others only where somebody wants it to.
            (None, Some(true)) if *part == Part::All => out.join(DIRECTORY),
            (None, _) => return Ok(None),
        };
        let save = said.unwrap_or(true);
        let corpus = opened.map_or_else(|| open(&dir, session), Ok)?;
        Ok(Some(Keeping::new(corpus, (save, limit), session.plan.boots, (seeds, part))))
    }

    fn new(corpus: Corpus, (save, limit): (bool, u64), boots: u64, (seeds, part): (Seeds, &Part)) -> Keeping {
        let (mut cases, mut first, mut known_by_others) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for (name, kept) in corpus.entries() {
            let log = &kept.entry.log;
            let known = Known { name: name.to_owned(), entry: kept.entry.clone(), stale: kept.stale };
            let is_seed = is_seed(log) && log.boot_seed == boots::seed(boots::boot_of(log.seed, boots));
            let here = match part {
                Part::Shard(_) if is_seed && seeds.of_all(log.seed) => seeds.contains(log.seed),
                Part::Shard(shard) => dealt(name, *shard),
                Part::All | Part::Worker(_) => true,
            };
            if !here {
                known_by_others.extend(kept.entry.features.iter().copied().filter(|_| !kept.stale));
                known_by_others.extend(kept.entry.violated.iter().filter_map(|violated| mark(violated)));
            } else if is_seed && seeds.contains(log.seed) && !matches!(part, Part::Worker(_)) {
                first.insert(log.seed, known);
            } else {
                // A worker does not know which seeds it gets, so all entries are cases for it.
                cases.push(known);
            }
        }
        let awaited = (0..cases.len()).map(Task::Case).chain(first.keys().copied().map(Task::Seed)).collect();
        let summary = Summary::new(&corpus, cases.len() as u64, first.len() as u64);
        Keeping {
            corpus,
            save,
            limit,
            cases,
            first,
            seeds,
            as_they_end: matches!(part, Part::Worker(_)),
            awaited,
            pending: BTreeMap::new(),
            turn: 0,
            known: known_by_others,
            growth: Growth::default(),
            summary,
            failed: None,
            journal: None,
        }
    }

    /// Whether new runs are saved in it.
    pub fn saves(&self) -> bool {
        self.save
    }

    /// The runs that come before the seeds, and the seeds that come before others.
    pub fn order(&self) -> (Vec<Case>, Vec<u64>) {
        let case = |known: &Known| {
            let stale = if known.stale { ", out of date" } else { "" };
            let name =
                format!("entry {} of the corpus (seed {}{stale})", short(&known.name), known.entry.log.seed);
            Case { name, log: known.entry.log.clone() }
        };
        // Those that failed come first.
        let mut first: Vec<(bool, u64)> =
            self.first.iter().map(|(seed, known)| (known.entry.violated.is_empty(), *seed)).collect();
        first.sort_unstable();
        (self.cases.iter().map(case).collect(), first.into_iter().map(|(_, seed)| seed).collect())
    }

    /// The entries that are run as cases.
    pub fn cases(&self) -> &[Known] {
        &self.cases
    }

    /// Runs these as cases, which were there when a search was begun that is gone on with.
    pub fn begin_with(&mut self, cases: Vec<Known>) {
        self.awaited =
            (0..cases.len()).map(Task::Case).chain(self.first.keys().copied().map(Task::Seed)).collect();
        self.summary.begin_with(cases.len() as u64, self.first.len() as u64);
        self.cases = cases;
    }

    /// A run of a search has reached this, and was looked at by a process before, which has saved it.
    pub fn again(&mut self, features: &BTreeSet<u64>, findings: &[Found]) {
        self.summary.is_search = true;
        self.growth.add(features);
        let violations = findings.iter().map(|found| &found.violation);
        let marks = violations.map(|v| features::violation(&v.property, &v.kind));
        let before = self.known.len();
        self.known.extend(features.iter().copied().chain(marks));
        self.summary.added += u64::from(self.save && self.known.len() > before);
    }

    /// A run has ended; `None`: there is nothing to be said of it.
    pub fn ended(&mut self, task: Task, reached: Option<Reached>) {
        match task {
            Task::Case(place) => {
                let known = self.cases[place].clone();
                self.summary.case(reached.is_some());
                if let Some(reached) = &reached {
                    self.known.extend(reached.everything());
                    self.refresh(&known, reached);
                }
            }
            // Runs of a search come in the order of their numbers.
            Task::Run(number) => {
                self.summary.is_search = true;
                if let Some(reached) = reached {
                    self.look_at(&format!("run {number}"), &reached);
                }
                return;
            }
            Task::Seed(seed) => {
                if let (Some(known), Some(reached)) = (self.first.get(&seed).cloned(), &reached) {
                    self.known.extend(reached.everything());
                    self.refresh(&known, reached);
                }
                self.pending.insert(seed, reached);
            }
        }
        self.awaited.remove(&task);
        if self.awaited.is_empty() {
            while let Some((seed, reached)) = self.next_turn() {
                self.turn += 1;
                self.seed(seed, reached);
            }
        }
    }

    /// The seed whose turn it is, if it has ended.
    fn next_turn(&mut self) -> Option<(u64, Option<Reached>)> {
        if self.as_they_end {
            return self.pending.pop_first();
        }
        self.pending.remove_entry(&self.seeds.number(self.turn)?)
    }

    /// An entry was run again: what it says is that of now.
    fn refresh(&mut self, known: &Known, reached: &Reached) {
        let news: Vec<&String> = reached.violated.difference(&known.entry.violated).collect();
        let why = match news.first() {
            Some(property) => format!("violates {property}"),
            None => known.entry.why.clone(),
        };
        if known.stale || known.entry.features != reached.features || !news.is_empty() {
            self.summary.refreshed += 1;
        }
        // The log stays as it is, however little of it fits: another service may be the old one again.
        self.save(known.entry.log.clone(), reached, (why, false));
    }

    /// The turn of a seed.
    fn seed(&mut self, seed: u64, reached: Option<Reached>) {
        let Some(reached) = reached else { return };
        if self.first.contains_key(&seed) {
            self.growth.add(&reached.features);
        } else {
            self.look_at(&format!("seed {seed}"), &reached);
        }
    }

    /// A run that was not known: it is saved if it reached something new.
    fn look_at(&mut self, name: &str, reached: &Reached) {
        self.growth.add(&reached.features);
        let new = reached.everything().filter(|feature| !self.known.contains(feature)).count();
        if new == 0 {
            return;
        }
        self.known.extend(reached.everything());
        let noun = if new == 1 { "feature" } else { "features" };
        let why = match reached.violated.first() {
            Some(property) => format!("{name}: violates {property}"),
            None => format!("{name}: {new} new {noun}"),
        };
        self.save(reached.log.clone(), reached, (why, true));
    }

    fn save(&mut self, log: Log, reached: &Reached, (why, new): (String, bool)) {
        let is_search = self.journal.is_some();
        if !self.save || self.failed.is_some() {
            return;
        }
        let entry = entry(self.corpus.identity().clone(), log, reached, why);
        match self.corpus.add(entry) {
            Ok(Added::New(_)) => self.summary.added += 1,
            // A process before was killed just when it had saved this run of a search.
            Ok(Added::Known(_)) if is_search && new => self.summary.added += 1,
            Ok(Added::Replaced(..) | Added::Known(_)) => {}
            Err(error) => self.failed = Some(failure(error)),
        }
    }

    /// The campaign is over: what is still waiting has its turn, and the corpus is brought down to its limit. A failure says what could not
    /// be saved.
    pub fn finish(mut self) -> (Summary, Option<Failure>) {
        for (seed, reached) in std::mem::take(&mut self.pending) {
            self.seed(seed, reached);
        }
        if self.save && self.failed.is_none() {
            match self.corpus.minimise(self.limit) {
                Ok(Some(trimmed)) => self.summary.trim = Trim::Done(trimmed),
                Ok(None) => self.summary.trim = Trim::ByAnother,
                Err(error) => self.failed = Some(failure(error)),
            }
        }
        if self.failed.is_some() {
            self.summary.trim = Trim::Failed;
        }
        self.summary.growth = self.growth;
        (self.summary, self.failed)
    }

    /// What is wrong with files of the corpus, and what is out of date, for people.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.corpus.notes().iter().map(ToString::to_string).collect();
        let stale: Vec<&Known> = self.cases.iter().chain(self.first.values()).filter(|k| k.stale).collect();
        if let Some(first) = stale.first() {
            let differs = first.entry.identity.difference(self.corpus.identity());
            let (noun, verb) = if stale.len() == 1 { ("entry", "is") } else { ("entries", "are") };
            let names: Vec<&str> = stale.iter().take(NAMED).map(|known| short(&known.name)).collect();
            let more = if stale.len() > names.len() { ", ..." } else { "" };
            notes.push(format!(
                "{} {noun} of the corpus {verb} out of date ({}{more}; other than now: {differs}): run all the same, without what does not fit \
                 any more",
                stale.len(),
                names.join(", ")
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests;
