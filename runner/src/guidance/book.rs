//! The book of a run's features: which there were, when each was first seen, and how often.
//!
//! Key types: [`Book`], [`Aspect`] (what a feature is about), [`First`], [`Features`]. A feature is an aspect and the hashes of its parts; where counts
//! say something, each of a few counts that it reaches (1, 2, 3, 4, 8, 16, 32, 128) is a feature of its own, as in coverage-guided fuzzers.
//! Words for people are made only if somebody asked for them. Neighbour: [`super::gather`], which makes the parts.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_explore::{CLASS_BITS, EVENT};

use super::table::{Table, mix};

/// A run has at most so many features before counts; what comes after them is left out, and counted.
const MOST: usize = 1 << 16;
/// The counts that are features of their own.
const LEVELS: [u32; 8] = [1, 2, 3, 4, 8, 16, 32, 128];

/// What a feature is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// A system call and how it ended.
    Call,
    /// Two system calls of one task, one after the other.
    Calls,
    /// A message between two nodes.
    Message,
    /// What a node sent after what it got.
    Reaction,
    /// What the network did to a message.
    Fate,
    /// A change of a connection's state.
    Connection,
    /// A line of a log.
    Line,
    /// Lines of logs one after another over the whole world.
    Lines,
    /// What all nodes are doing, together.
    Together,
    /// The same with the faults that are under way.
    TogetherUnder,
    /// The life of processes: programs, signals, ends.
    Process,
    /// The life of a service.
    Service,
    /// An operation on the names of files.
    File,
    /// Two such operations of one node, one after the other.
    Files,
    /// Which files a node has made.
    FileSet,
    /// What became of an operation of a client.
    Operation,
    /// Two operations on the same key, one after the other.
    Operations,
    /// Kinds of faults that are under way at the same time.
    Faults,
    /// What a fault met when it began.
    FaultAt,
    /// Two faults, one after the other.
    FaultPair,
    /// An operation of a program met a fault.
    Met,
    /// A check came to a result.
    Check,
    /// Something went wrong.
    Finding,
}

impl Aspect {
    /// Its name in the file of features.
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Call => "call",
            Aspect::Calls => "calls",
            Aspect::Message => "message",
            Aspect::Reaction => "reaction",
            Aspect::Fate => "fate",
            Aspect::Connection => "connection",
            Aspect::Line => "line",
            Aspect::Lines => "lines",
            Aspect::Together => "together",
            Aspect::TogetherUnder => "together-under",
            Aspect::Process => "process",
            Aspect::Service => "service",
            Aspect::File => "file",
            Aspect::Files => "files",
            Aspect::FileSet => "file-set",
            Aspect::Operation => "operation",
            Aspect::Operations => "operations",
            Aspect::Faults => "faults",
            Aspect::FaultAt => "fault-at",
            Aspect::FaultPair => "fault-pair",
            Aspect::Met => "met",
            Aspect::Check => "check",
            Aspect::Finding => "finding",
        }
    }

    /// Whether it is about something that a node came to.
    fn is_event(self) -> bool {
        use Aspect::*;
        matches!(self, Line | Process | Service | Connection | File)
    }

    /// Whether how often it happened says something of its own.
    fn counts(self) -> bool {
        use Aspect::*;
        matches!(self, Calls | Message | Connection | Line | Process | Service | Operation)
    }
}

/// When a feature was first seen in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The virtual time, of the node that it is about where it is about one.
    pub at: SimTime,
    /// The count that it stands for: so often was it seen by then.
    pub count: u32,
}

/// The features of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Each by its hash.
    pub seen: BTreeMap<u64, First>,
    /// How often something was seen that found no place among the features of the run.
    pub left_out: u64,
    /// What each is, in words, if that was asked for.
    pub texts: BTreeMap<u64, String>,
}

/// Features while a run goes.
#[derive(Clone, Debug)]
pub struct Book {
    counts: Table<u32>,
    found: Vec<(u64, First)>,
    left_out: u64,
    /// The run was heard from its beginning: what was not heard before did not happen.
    whole: bool,
    /// Words for parts and for features, if they are wanted.
    words: Option<Words>,
}

#[derive(Clone, Debug, Default)]
struct Words {
    parts: BTreeMap<u64, String>,
    features: BTreeMap<u64, String>,
}

impl Book {
    /// An empty one; `words`: what features are will be told in words.
    pub fn new(words: bool) -> Book {
        Book {
            counts: Table::new(MOST),
            found: Vec::new(),
            left_out: 0,
            whole: false,
            words: words.then(Words::default),
        }
    }

    /// Here the run begins.
    pub fn begin(&mut self) {
        self.whole = true;
    }

    /// Whether the run was heard from its beginning. If not, it is a branch: nothing is known of what came before its moment.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// A part with its words, which are made if they are wanted and it is new. Returns it.
    #[inline]
    pub fn part(&mut self, hash: u64, text: impl FnOnce(&Book) -> String) -> u64 {
        if self.words.as_ref().is_some_and(|words| hash != 0 && !words.parts.contains_key(&hash)) {
            let text = text(self);
            if let Some(words) = &mut self.words {
                words.parts.insert(hash, text);
            }
        }
        hash
    }

    /// The words of a part.
    pub fn words(&self, part: u64) -> String {
        let known = self.words.as_ref().and_then(|words| words.parts.get(&part).cloned());
        known.unwrap_or_else(|| if part == 0 { "-".to_owned() } else { format!("{part:016x}") })
    }

    /// A feature was seen. True if it is the first time in this run.
    #[inline]
    pub fn see(&mut self, at: SimTime, aspect: Aspect, parts: &[u64]) -> bool {
        let base = parts.iter().fold(aspect as u64 + 1, |hash, part| mix(hash, *part));
        let Some(count) = self.counts.entry(base) else {
            self.left_out += 1;
            return false;
        };
        *count = count.saturating_add(1);
        let count = *count;
        if count == 1 || aspect.counts() && count <= 128 && LEVELS.contains(&count) {
            self.reached(at, aspect, (base, count), parts);
        }
        count == 1
    }

    /// A feature of what happened after something else, of which one part is `before`: 0 for nothing. In a branch that says only that it was not heard,
    /// so there is no feature then.
    #[inline]
    pub fn see_after(&mut self, before: u64, at: SimTime, aspect: Aspect, parts: &[u64]) {
        if before != 0 || self.whole {
            self.see(at, aspect, parts);
        }
    }

    #[cold]
    fn reached(&mut self, at: SimTime, aspect: Aspect, (base, count): (u64, u32), parts: &[u64]) {
        // What it is about, for who weighs features: to have come often is another thing than to have come at all.
        let class = if aspect.is_event() { EVENT } else { 0 } | (aspect as u64) << 1 | u64::from(count > 1);
        let hash = mix(base, u64::from(count)) << CLASS_BITS | class;
        self.found.push((hash, First { at, count }));
        if self.words.is_none() {
            return;
        }
        let all: Vec<String> = parts.iter().map(|part| self.words(*part)).collect();
        let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
        let text = format!("{}: {}{times}", aspect.name(), all.join(" | "));
        if let Some(words) = &mut self.words {
            words.features.insert(hash, text);
        }
    }

    /// All of it.
    pub fn close(self) -> Features {
        Features {
            seen: self.found.into_iter().collect(),
            left_out: self.left_out,
            texts: self.words.map(|words| words.features).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_features_where_they_say_something() {
        let mut book = Book::new(true);
        for n in 0..200 {
            book.see(SimTime(n), Aspect::Line, &[7]);
            book.see(SimTime(n), Aspect::Together, &[7]);
        }
        let features = book.close();
        let mut seen: Vec<(u64, u32)> =
            features.seen.values().map(|first| (first.at.0, first.count)).collect();
        seen.sort_unstable();
        let lines = LEVELS.map(|level| (u64::from(level) - 1, level));
        assert_eq!(seen, [&[(0, 1)], &lines[..]].concat());
        assert_eq!(features.texts.len(), features.seen.len());
        assert!(features.texts.values().any(|text| text.ends_with("(128 times)")));
    }

    #[test]
    fn what_a_branch_has_not_heard_is_no_feature() {
        let (mut branch, mut run) = (Book::new(false), Book::new(false));
        run.begin();
        for (before, now) in [(0, 7), (7, 8)] {
            branch.see_after(before, SimTime(0), Aspect::Lines, &[before, now]);
            run.see_after(before, SimTime(0), Aspect::Lines, &[before, now]);
        }
        let (branch, run) = (branch.close().seen, run.close().seen);
        assert_eq!((branch.len(), run.len()), (1, 2));
        assert!(branch.keys().all(|feature| run.contains_key(feature)));
    }

    #[test]
    fn what_finds_no_place_is_counted() {
        let mut book = Book::new(false);
        for n in 0..MOST as u64 + 5 {
            book.see(SimTime(0), Aspect::Call, &[n]);
        }
        let features = book.close();
        assert_eq!((features.seen.len(), features.left_out), (MOST, 5));
        assert!(features.texts.is_empty());
    }
}
