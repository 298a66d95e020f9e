//! The replicated log: entries, and the snapshot that stands for those which have been dropped from its beginning.

use crate::kv::{Command, Map};

/// One place in the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The term of the leader that created it.
    pub term: u64,
    /// What to do; `None` for the entry with which a leader opens its term.
    pub command: Option<Command>,
}

/// The map as the entries up to one index make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The map after that entry.
    pub map: Map,
}

/// Consecutive entries. The first one follows [`Log::base`], of which only the term is still known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    base: u64,
    base_term: u64,
    entries: Vec<Entry>,
}

impl Log {
    /// A log of `entries` that follow the entry `base` of term `base_term` (0 and 0: they are the first ones).
    pub fn new(base: u64, base_term: u64, entries: Vec<Entry>) -> Log {
        Log { base, base_term, entries }
    }

    /// The index before the first entry.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The term of the entry at [`Log::base`].
    pub fn base_term(&self) -> u64 {
        self.base_term
    }

    /// The index of the last entry.
    pub fn last_index(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// The term of the last entry.
    pub fn last_term(&self) -> u64 {
        self.entries.last().map_or(self.base_term, |entry| entry.term)
    }

    /// The term of the entry at `index`; `None` if it is not there, or not any more.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base { Some(self.base_term) } else { self.get(index).map(|entry| entry.term) }
    }

    /// The entry at `index`; `None` if it is not there, or not any more.
    pub fn get(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.base + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// The entries from `index` on, all if it is before the first.
    pub fn from(&self, index: u64) -> &[Entry] {
        let at = index.saturating_sub(self.base + 1).min(self.entries.len() as u64);
        &self.entries[at as usize..]
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Removes the entry at `index` and all behind it.
    pub fn truncate_from(&mut self, index: u64) {
        self.entries.truncate(index.saturating_sub(self.base + 1) as usize);
    }

    /// Drops the entries up to `index`, which must be one of the log's.
    pub fn drop_up_to(&mut self, index: u64) {
        if let Some(term) = self.term_at(index) {
            self.entries.drain(..(index - self.base) as usize);
            (self.base, self.base_term) = (index, term);
        }
    }

    /// What remains when a snapshot takes the place of everything up to its index: "if existing log entry has same
    /// index and term as snapshot's last included entry, retain log entries following it", else nothing (figure 13
    /// of the Raft paper).
    pub fn behind(mut self, snapshot: &Snapshot) -> Log {
        if self.term_at(snapshot.index) == Some(snapshot.term) {
            self.drop_up_to(snapshot.index);
            return self;
        }
        Log::new(snapshot.index, snapshot.term, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(term: u64) -> Entry {
        Entry { term, command: None }
    }

    #[test]
    fn indices_stay_when_the_beginning_goes() {
        let mut log = Log::default();
        [1, 1, 2, 3].into_iter().for_each(|term| log.push(entry(term)));
        let all = log.clone();
        log.drop_up_to(2);
        assert_eq!((log.base(), log.base_term(), log.last_index(), log.last_term()), (2, 1, 4, 3));
        assert_eq!([1, 2, 3, 4, 5].map(|i| log.term_at(i)), [None, Some(1), Some(2), Some(3), None]);
        assert_eq!([0, 3, 4, 5].map(|i| log.from(i).len()), [2, 2, 1, 0]);
        log.truncate_from(4);
        log.push(entry(4));
        assert_eq!(log, Log::new(2, 1, vec![entry(2), entry(4)]));
        let at = |index, term| Snapshot { index, term, map: Map::default() };
        assert_eq!(all.clone().behind(&at(3, 2)), Log::new(3, 2, vec![entry(3)]));
        assert_eq!(all.clone().behind(&at(4, 3)), Log::new(4, 3, vec![]));
        assert_eq!(all.clone().behind(&at(3, 3)), Log::new(3, 3, vec![]), "another history");
        assert_eq!(all.behind(&at(9, 3)), Log::new(9, 3, vec![]), "far behind");
    }
}
