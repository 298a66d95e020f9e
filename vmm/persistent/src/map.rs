//! [`Map`]: an ordered map in two levels.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::LEAF;

type Leaf<K, V> = Arc<Vec<(K, V)>>;

/// An ordered map whose clones share their leaves; see the crate's text. Values should be cheap to clone: [`crate::Table`] is for
/// others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Map<K, V> {
    /// Leaves in key order. None is empty.
    leaves: Arc<Vec<Leaf<K, V>>>,
    len: usize,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Map { leaves: Arc::default(), len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.leaves.iter().flat_map(|leaf| leaf.iter()).map(|(k, v)| (k, v))).finish()
    }
}

/// Where an entry is, or belongs: a leaf, and the place in it.
struct Place {
    leaf: usize,
    at: usize,
    found: bool,
}

impl<K, V> Map<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Map::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether both are the same value, unchanged since one was cloned from the other. False does not mean that they differ.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.leaves, &other.leaves)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone + use<'_, K, V> {
        self.leaves.iter().flat_map(|leaf| leaf.iter()).map(|(k, v)| (k, v))
    }

    /// All keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone + use<'_, K, V> {
        self.iter().map(|(k, _)| k)
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone + use<'_, K, V> {
        self.iter().map(|(_, v)| v)
    }

    /// The entry with the lowest key.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.leaves.first().map(|leaf| (&leaf[0].0, &leaf[0].1))
    }

    /// The entry with the highest key.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.leaves.last()?.last().map(|(k, v)| (k, v))
    }
}

impl<K: Ord, V> Map<K, V> {
    /// The place of a key. A key that is not there belongs to the last leaf that begins before it.
    #[inline]
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Place
    where
        K: Borrow<Q>,
    {
        // Most maps have one leaf, and the kernel looks up tasks and processes many times for a system call.
        let leaf = match self.leaves.len() {
            0 | 1 => 0,
            _ => self.leaves.partition_point(|leaf| leaf[0].0.borrow() <= key).saturating_sub(1),
        };
        match self.leaves.get(leaf).map(|entries| entries.binary_search_by(|(k, _)| k.borrow().cmp(key))) {
            Some(Ok(at)) => Place { leaf, at, found: true },
            Some(Err(at)) => Place { leaf, at, found: false },
            None => Place { leaf: 0, at: 0, found: false },
        }
    }

    /// The value of a key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key);
        place.found.then(|| &self.leaves[place.leaf][place.at].1)
    }

    /// Whether the key is there.
    #[inline]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).found
    }

    /// The entries of a range of keys, in order.
    pub fn range<R: RangeBounds<K>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone + use<'_, K, V, R> {
        let count = |included: &dyn Fn(&K) -> bool| {
            let full = self.leaves.partition_point(|leaf| leaf.last().is_some_and(|(k, _)| included(k)));
            let part = self.leaves.get(full).map_or(0, |leaf| leaf.partition_point(|(k, _)| included(k)));
            (full, part)
        };
        // How many leaves, and entries of the next leaf, lie before the range and before its end.
        let start = match range.start_bound() {
            Bound::Included(low) => count(&|k| k < low),
            Bound::Excluded(low) => count(&|k| k <= low),
            Bound::Unbounded => (0, 0),
        };
        let end = match range.end_bound() {
            Bound::Included(high) => count(&|k| k <= high),
            Bound::Excluded(high) => count(&|k| k < high),
            Bound::Unbounded => (self.leaves.len(), 0),
        };
        let last = if end.1 > 0 { end.0 + 1 } else { end.0 };
        let leaves = if start < end { &self.leaves[start.0..last] } else { &[] };
        leaves.iter().enumerate().flat_map(move |(i, leaf)| {
            let from = if i == 0 { start.1 } else { 0 };
            let to = if start.0 + i == end.0 { end.1 } else { leaf.len() };
            leaf[from..to].iter().map(|(k, v)| (k, v))
        })
    }
}

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    #[inline]
    fn leaf_mut(&mut self, leaf: usize) -> &mut Vec<(K, V)> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.leaves)[leaf])
    }

    /// The value of a key, to change it.
    #[inline]
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key);
        place.found.then(|| &mut self.leaf_mut(place.leaf)[place.at].1)
    }

    /// Stores a value; the one that was there is returned.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let place = self.place(&key);
        if place.found {
            return Some(std::mem::replace(&mut self.leaf_mut(place.leaf)[place.at].1, value));
        }
        self.insert_at(place, key, value);
        None
    }

    fn insert_at(&mut self, place: Place, key: K, value: V) {
        self.len += 1;
        let leaves = Arc::make_mut(&mut self.leaves);
        // Keys that only grow, as most do here, fill their leaves.
        let behind_all = place.at == LEAF && place.leaf + 1 == leaves.len();
        if leaves.is_empty() || behind_all {
            leaves.push(Arc::new(vec![(key, value)]));
            return;
        }
        let full = Arc::make_mut(&mut leaves[place.leaf]);
        if full.len() < LEAF {
            full.insert(place.at, (key, value));
            return;
        }
        let mut upper = full.split_off(LEAF / 2);
        match place.at.checked_sub(LEAF / 2) {
            Some(at) => upper.insert(at, (key, value)),
            None => full.insert(place.at, (key, value)),
        }
        leaves.insert(place.leaf + 1, Arc::new(upper));
    }

    /// The value of a key, made by `make` if the key is not there, to change it.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let mut place = self.place(&key);
        if !place.found {
            let again = key.clone();
            self.insert_at(place, key, make());
            place = self.place(&again);
        }
        &mut self.leaf_mut(place.leaf)[place.at].1
    }

    /// The value of a key, the default if the key is not there, to change it.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Removes an entry.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key);
        place.found.then(|| self.remove_at(&place).1)
    }

    fn remove_at(&mut self, place: &Place) -> (K, V) {
        self.len -= 1;
        let leaves = Arc::make_mut(&mut self.leaves);
        let entry = Arc::make_mut(&mut leaves[place.leaf]).remove(place.at);
        let len = leaves[place.leaf].len();
        if len == 0 {
            leaves.remove(place.leaf);
        } else if len < LEAF / 4 && leaves.get(place.leaf + 1).is_some_and(|next| next.len() < LEAF / 2) {
            // So that a map from which nearly everything was removed has few leaves again.
            let next = leaves.remove(place.leaf + 1);
            Arc::make_mut(&mut leaves[place.leaf]).extend(next.iter().cloned());
        }
        entry
    }

    /// Removes the entry with the lowest key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (self.len > 0).then(|| self.remove_at(&Place { leaf: 0, at: 0, found: true }))
    }

    /// Keeps the entries for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        let copy = |(k, v): (&K, &V)| (k.clone(), v.clone());
        let mut kept: Option<Self> = None;
        for (index, (k, v)) in self.iter().enumerate() {
            match (&mut kept, keep(k, v)) {
                (Some(kept), true) => kept.extend([copy((k, v))]),
                (None, false) => kept = Some(self.iter().take(index).map(copy).collect()),
                _ => {}
            }
        }
        if let Some(kept) = kept {
            *self = kept;
        }
    }

    /// Changes all values, in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, v)| v)
    }

    /// All entries in key order, to change the values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let leaves = Arc::make_mut(&mut self.leaves);
        leaves.iter_mut().flat_map(|leaf| Arc::make_mut(leaf).iter_mut()).map(|(k, v)| (&*k, v))
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = Map::default();
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Map::default();
        map.extend(entries);
        map
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (k, v) in entries {
            self.insert(k, v);
        }
    }
}

impl<K: Ord, V, Q: Ord + ?Sized + fmt::Debug> std::ops::Index<&Q> for Map<K, V>
where
    K: Borrow<Q>,
{
    type Output = V;
    fn index(&self, key: &Q) -> &V {
        self.get(key).unwrap_or_else(|| panic!("no entry {key:?}"))
    }
}
