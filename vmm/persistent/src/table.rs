//! [`Table`]: an ordered map of large values.

use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::Map;

/// An ordered map with each value behind its own `Arc`: the first write to a value after a clone copies that value only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table<K, T> {
    map: Map<K, Arc<T>>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Table { map: Map::default() }
    }
}

impl<K: fmt::Debug, T: fmt::Debug> fmt::Debug for Table<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}

impl<K, T> Table<K, T> {
    /// An empty table.
    pub fn new() -> Self {
        Table::default()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &T)> + Clone + use<'_, K, T> {
        self.map.iter().map(|(k, v)| (k, &**v))
    }

    /// All keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone + use<'_, K, T> {
        self.map.keys()
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + Clone + use<'_, K, T> {
        self.map.values().map(|v| &**v)
    }

    /// The entry with the lowest key.
    pub fn first_key_value(&self) -> Option<(&K, &T)> {
        self.map.first_key_value().map(|(k, v)| (k, &**v))
    }

    /// The entry with the highest key.
    pub fn last_key_value(&self) -> Option<(&K, &T)> {
        self.map.last_key_value().map(|(k, v)| (k, &**v))
    }
}

impl<K: Ord + Clone, T: Clone> Table<K, T> {
    /// The value of a key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&T>
    where
        K: Borrow<Q>,
    {
        self.map.get(key).map(|v| &**v)
    }

    /// The value of a key, to change it.
    #[inline]
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut T>
    where
        K: Borrow<Q>,
    {
        self.map.get_mut(key).map(Arc::make_mut)
    }

    /// Whether the key is there.
    #[inline]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.contains_key(key)
    }

    /// The entries of a range of keys, in order.
    pub fn range<R: RangeBounds<K>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = (&K, &T)> + Clone + use<'_, K, T, R> {
        self.map.range(range).map(|(k, v)| (k, &**v))
    }

    /// Stores a value; the one that was there is returned.
    pub fn insert(&mut self, key: K, value: T) -> Option<T> {
        self.map.insert(key, Arc::new(value)).map(Arc::unwrap_or_clone)
    }

    /// The value of a key, the default if the key is not there, to change it.
    pub fn get_or_default(&mut self, key: K) -> &mut T
    where
        T: Default,
    {
        Arc::make_mut(self.map.get_or_default(key))
    }

    /// The value of a key, made by `make` if the key is not there, to change it.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> T) -> &mut T {
        Arc::make_mut(self.map.get_or_insert_with(key, || Arc::new(make())))
    }

    /// Removes a value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
    {
        self.map.remove(key).map(Arc::unwrap_or_clone)
    }

    /// Keeps the entries for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &T) -> bool) {
        self.map.retain(|k, v| keep(k, v));
    }

    /// All entries in key order, to change the values: copies all that are shared.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut T)> {
        self.map.iter_mut().map(|(k, v)| (k, Arc::make_mut(v)))
    }

    /// All values in the order of their keys, to change them: copies all that are shared.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.iter_mut().map(|(_, v)| v)
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.map.clear();
    }
}

impl<K: Ord + Clone, T: Clone> FromIterator<(K, T)> for Table<K, T> {
    fn from_iter<I: IntoIterator<Item = (K, T)>>(entries: I) -> Self {
        Table { map: entries.into_iter().map(|(k, v)| (k, Arc::new(v))).collect() }
    }
}

impl<K: Ord + Clone, T: Clone, Q: Ord + ?Sized + fmt::Debug> std::ops::Index<&Q> for Table<K, T>
where
    K: Borrow<Q>,
{
    type Output = T;
    #[inline]
    fn index(&self, key: &Q) -> &T {
        &self.map[key]
    }
}
