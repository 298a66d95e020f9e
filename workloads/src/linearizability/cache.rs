//! Configurations from which the search has found no way on.
//!
//! The key of a configuration is its position, its state and which value-setting operations of its window are done:
//! a few words, however long the history is. Under one key an entry also says which readers are done and how many
//! crashed operations of each class were used. An entry *dominates* a configuration with the same key that has no
//! more readers done and no fewer crashed operations used: whatever that one can still do, the entry's could as well.

use super::mask::{Mask, mix};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<M> {
    position: u32,
    state: u32,
    setters: M,
    readers: M,
    /// Index into [`Cache::used`]: a length, then that many pairs of class and count.
    used: u32,
    next: u32,
}

/// A configuration as the cache sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration<'a, M> {
    pub(super) position: u32,
    pub(super) state: u32,
    /// Value-setting operations of the window that are done.
    pub(super) setters: M,
    /// Readers of the window that are done.
    pub(super) readers: M,
    /// How many crashed operations of each class were used.
    pub(super) counts: &'a [u32],
    /// The classes used, with repetitions.
    pub(super) used: &'a [u32],
}

/// A hash table of entries, chained through an arena.
#[derive(Clone, Debug)]
pub(super) struct Cache<M> {
    buckets: Vec<u32>,
    entries: Vec<Entry<M>>,
    used: Vec<u32>,
}

impl<M: Mask> Cache<M> {
    pub(super) fn new() -> Self {
        Cache { buckets: vec![NONE; 64], entries: Vec::new(), used: vec![0] }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.capacity() * 4
            + self.entries.capacity() * size_of::<Entry<M>>()
            + self.used.capacity() * 4
    }

    /// Whether an entry dominates `c`, and how many entries were looked at to find out.
    pub(super) fn dominates(&self, c: &Configuration<'_, M>) -> (bool, u64) {
        let mut looked_at = 0;
        let mut at = self.buckets[self.bucket(c.position, c.state, c.setters)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            looked_at += 1;
            if same_key(entry, c) && c.readers.subset_of(entry.readers) && self.uses_no_more(entry, c.counts)
            {
                return (true, looked_at);
            }
            at = entry.next;
        }
        (false, looked_at)
    }

    /// Adds `c`, which no entry dominates, in place of an entry that it dominates if there is one.
    pub(super) fn insert(&mut self, c: &Configuration<'_, M>) {
        if self.entries.len() >= self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(c.position, c.state, c.setters);
        let mut at = self.buckets[bucket];
        while at != NONE {
            let entry = &self.entries[at as usize];
            if same_key(entry, c) && entry.readers.subset_of(c.readers) && self.uses_no_less(entry, c) {
                let used = self.store_used(c);
                let entry = &mut self.entries[at as usize];
                (entry.readers, entry.used) = (c.readers, used);
                return;
            }
            at = entry.next;
        }
        let used = self.store_used(c);
        let next = self.buckets[bucket];
        self.buckets[bucket] = self.entries.len() as u32;
        self.entries.push(Entry {
            position: c.position,
            state: c.state,
            setters: c.setters,
            readers: c.readers,
            used,
            next,
        });
    }

    fn bucket(&self, position: u32, state: u32, setters: M) -> usize {
        let hash = setters.mix(mix(0, u64::from(position) << 32 | u64::from(state)));
        (hash >> (64 - self.buckets.len().trailing_zeros())) as usize
    }

    fn grow(&mut self) {
        self.buckets = vec![NONE; self.buckets.len() * 2];
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            let bucket = self.bucket(entry.position, entry.state, entry.setters);
            self.entries[at].next = self.buckets[bucket];
            self.buckets[bucket] = at as u32;
        }
    }

    fn pairs(&self, entry: &Entry<M>) -> impl Iterator<Item = (u32, u32)> + '_ {
        let start = entry.used as usize;
        let pairs = self.used[start] as usize;
        self.used[start + 1..start + 1 + 2 * pairs].chunks_exact(2).map(|pair| (pair[0], pair[1]))
    }

    fn uses_no_more(&self, entry: &Entry<M>, counts: &[u32]) -> bool {
        self.pairs(entry).all(|(class, count)| count <= counts[class as usize])
    }

    fn uses_no_less(&self, entry: &Entry<M>, c: &Configuration<'_, M>) -> bool {
        c.used.iter().all(|used| {
            let theirs = self.pairs(entry).find(|(class, _)| class == used).map_or(0, |(_, count)| count);
            theirs >= c.counts[*used as usize]
        })
    }

    fn store_used(&mut self, c: &Configuration<'_, M>) -> u32 {
        if c.used.is_empty() {
            return 0;
        }
        let start = self.used.len();
        self.used.push(0);
        for class in c.used {
            let known = self.used[start + 1..].chunks_exact(2).any(|pair| pair[0] == *class);
            if !known {
                self.used.push(*class);
                self.used.push(c.counts[*class as usize]);
            }
        }
        self.used[start] = ((self.used.len() - start - 1) / 2) as u32;
        start as u32
    }
}

fn same_key<M: Mask>(entry: &Entry<M>, c: &Configuration<'_, M>) -> bool {
    entry.position == c.position && entry.state == c.state && entry.setters == c.setters
}
