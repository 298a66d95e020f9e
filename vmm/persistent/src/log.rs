//! [`Log`]: a sequence that grows at its end.

use std::fmt;
use std::sync::Arc;

use crate::LEAF;

/// A sequence whose clones share its full chunks; see the crate's text. It grows at its end; nothing is removed from its middle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log<T> {
    /// Chunks of exactly [`LEAF`] items.
    full: Arc<Vec<Arc<Vec<T>>>>,
    /// Fewer than [`LEAF`] items.
    last: Arc<Vec<T>>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Log { full: Arc::default(), last: Arc::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T> Log<T> {
    /// An empty sequence.
    pub fn new() -> Self {
        Log::default()
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.full.len() * LEAF + self.last.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at an index.
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.full.get(index / LEAF) {
            Some(chunk) => chunk.get(index % LEAF),
            None => self.last.get(index.checked_sub(self.full.len() * LEAF)?),
        }
    }

    /// The newest item.
    pub fn last(&self) -> Option<&T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All items, oldest first.
    pub fn iter(&self) -> Iter<'_, T> {
        self.iter_from(0)
    }

    /// The items from an index on, oldest first.
    pub fn iter_from(&self, index: usize) -> Iter<'_, T> {
        Iter { log: self, next: index.min(self.len()), end: self.len() }
    }
}

/// Items of a [`Log`], oldest first.
#[derive(Debug)]
pub struct Iter<'a, T> {
    log: &'a Log<T>,
    next: usize,
    end: usize,
}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Iter { ..*self }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let item = (self.next < self.end).then(|| self.log.get(self.next))?;
        self.next += 1;
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        self.end -= 1;
        self.log.get(self.end)
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<'a, T> IntoIterator for &'a Log<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Clone> Log<T> {
    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        let last = Arc::make_mut(&mut self.last);
        if last.capacity() == 0 {
            last.reserve_exact(LEAF);
        }
        last.push(item);
        if last.len() == LEAF {
            Arc::make_mut(&mut self.full).push(std::mem::take(&mut self.last));
        }
    }

    /// The item at an index, to change it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let full = self.full.len();
        if index / LEAF < full {
            return Arc::make_mut(&mut Arc::make_mut(&mut self.full)[index / LEAF]).get_mut(index % LEAF);
        }
        Arc::make_mut(&mut self.last).get_mut(index - full * LEAF)
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = Log::default();
    }
}

impl<T: Clone> Extend<T> for Log<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl<T: Clone> FromIterator<T> for Log<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut log = Log::default();
        log.extend(items);
        log
    }
}

impl<T> std::ops::Index<usize> for Log<T> {
    type Output = T;
    fn index(&self, index: usize) -> &T {
        self.get(index).unwrap_or_else(|| panic!("no item {index} of {}", self.len()))
    }
}
