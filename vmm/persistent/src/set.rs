//! [`Set`]: an ordered set, a [`Map`] without values.

use std::fmt;
use std::ops::RangeBounds;

use crate::Map;

/// An ordered set whose clones share their leaves; see the crate's text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set<K> {
    map: Map<K, ()>,
}

impl<K> Default for Set<K> {
    fn default() -> Self {
        Set { map: Map::default() }
    }
}

impl<K: fmt::Debug> fmt::Debug for Set<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.map.keys()).finish()
    }
}

impl<K: Ord + Clone> Set<K> {
    /// An empty set.
    pub fn new() -> Self {
        Set::default()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Adds a member; false if it was there.
    pub fn insert(&mut self, key: K) -> bool {
        if self.map.contains_key(&key) {
            return false;
        }
        self.map.insert(key, ());
        true
    }

    /// Removes a member; false if it was not there.
    pub fn remove(&mut self, key: &K) -> bool {
        self.map.remove(key).is_some()
    }

    /// Whether it is a member.
    pub fn contains(&self, key: &K) -> bool {
        self.map.contains_key(key)
    }

    /// The lowest member.
    pub fn first(&self) -> Option<&K> {
        self.map.first_key_value().map(|(k, ())| k)
    }

    /// The highest member.
    pub fn last(&self) -> Option<&K> {
        self.map.last_key_value().map(|(k, ())| k)
    }

    /// Removes the lowest member.
    pub fn pop_first(&mut self) -> Option<K> {
        self.map.pop_first().map(|(k, ())| k)
    }

    /// All members in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &K> + Clone + use<'_, K> {
        self.map.keys()
    }

    /// The members of a range, in order.
    pub fn range<R: RangeBounds<K>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = &K> + Clone + use<'_, K, R> {
        self.map.range(range).map(|(k, ())| k)
    }

    /// Keeps the members for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.map.retain(|k, ()| keep(k));
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.map.clear();
    }
}

impl<K: Ord + Clone> FromIterator<K> for Set<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Set { map: keys.into_iter().map(|k| (k, ())).collect() }
    }
}

impl<K: Ord + Clone> Extend<K> for Set<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        self.map.extend(keys.into_iter().map(|k| (k, ())));
    }
}
