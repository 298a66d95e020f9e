//! Arenas: the kernel's objects of one kind by typed id, with what each of them weighs for its container.
//!
//! Key types: [`Arena`], [`Weigh`] (how much kernel memory an object takes), [`Ledger`] (an arena as `crate::memory` sees it). An object
//! is weighed after the call that has touched it, not while it is changed: so no place that fills a queue has to think of the
//! account, and the account is always the sum of what was weighed.

use bloodhound_persistent::Table;

use crate::container::ContainerId;

/// What takes kernel memory: "the memory controller [...] tracks [...] kernel data structures such as dentries and inodes; TCP socket
/// buffers" (Documentation/admin-guide/cgroup-v2.rst).
pub trait Weigh {
    /// Bytes that Linux takes for it, with all that it keeps, nearly. Must be quick: it is asked after each call that has touched it.
    fn weight(&self) -> u64;
}

/// An object, who made it, and what it weighed when it was last weighed.
#[derive(Clone, Debug)]
struct Held<T> {
    item: T,
    by: ContainerId,
    weight: u64,
}

/// Objects of one kind by id, in id order. A write to an object after a clone of the arena copies that object only.
#[derive(Clone, Debug)]
pub struct Arena<I, T> {
    items: Table<I, Held<T>>,
    next: u32,
    /// Its objects are weighed.
    weighed: bool,
    /// What was touched since it was last weighed. Some are here twice.
    touched: Vec<I>,
    /// Whose objects are gone since, and what they weighed.
    gone: Vec<(ContainerId, u64)>,
}

/// Two arenas are the same if their objects are: when those were weighed last is no difference.
impl<I: PartialEq, T: PartialEq> PartialEq for Arena<I, T> {
    fn eq(&self, other: &Self) -> bool {
        let objects = || self.items.iter().zip(other.items.iter());
        self.next == other.next
            && self.items.len() == other.items.len()
            && objects().all(|(one, two)| one.0 == two.0 && one.1.item == two.1.item)
    }
}

impl<I: Eq, T: Eq> Eq for Arena<I, T> {}

impl<I: Copy + Ord + From<u32> + std::fmt::Debug, T: Clone> Arena<I, T> {
    /// An empty arena whose first id is `first`, of objects that are not weighed.
    pub fn starting_at(first: u32) -> Self {
        Arena { items: Table::new(), next: first, weighed: false, touched: Vec::new(), gone: Vec::new() }
    }

    /// An empty arena of objects that are weighed.
    pub fn weighed() -> Self
    where
        T: Weigh,
    {
        Arena { weighed: true, ..Arena::starting_at(1) }
    }

    /// Stores `item` under a fresh id.
    pub fn insert(&mut self, item: T) -> I {
        let id = I::from(self.next);
        self.next += 1;
        self.items.insert(id, Held { item, by: ContainerId(0), weight: 0 });
        self.touch(id);
        id
    }

    fn touch(&mut self, id: I) {
        if self.weighed && self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    /// The object, if it still exists.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(&id).map(|held| &held.item)
    }

    /// The object, if it still exists.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.touch(id);
        self.items.get_mut(&id).map(|held| &mut held.item)
    }

    /// Removes the object.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let Held { item, by, weight } = self.items.remove(&id)?;
        if weight > 0 {
            self.gone.push((by, weight));
        }
        Some(item)
    }

    /// All objects in id order.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().map(|(id, held)| (*id, &held.item))
    }

    /// All objects in id order, for changes that are no matter of weight.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.items.iter_mut().map(|(id, held)| (*id, &mut held.item))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl<I: Copy + Ord + From<u32> + std::fmt::Debug, T: Clone> std::ops::Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        self.get(id).unwrap_or_else(|| panic!("no object {id:?}"))
    }
}

impl<I: Copy + Ord + From<u32> + std::fmt::Debug, T: Clone> std::ops::IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| panic!("no object {id:?}"))
    }
}

/// An arena whose objects are weighed.
pub(crate) trait Ledger {
    /// Whether something was touched since it was last weighed.
    fn is_stale(&self) -> bool;

    /// Weighs what was touched. An object that was never weighed is `maker`'s. Tells whose weight changes from what to what.
    fn weigh(&mut self, maker: ContainerId, tell: &mut dyn FnMut(ContainerId, u64, u64));
}

impl<I: Copy + Ord + From<u32> + std::fmt::Debug, T: Clone + Weigh> Ledger for Arena<I, T> {
    fn is_stale(&self) -> bool {
        !self.touched.is_empty() || !self.gone.is_empty()
    }

    fn weigh(&mut self, maker: ContainerId, tell: &mut dyn FnMut(ContainerId, u64, u64)) {
        for (by, weight) in self.gone.drain(..) {
            tell(by, weight, 0);
        }
        for id in self.touched.drain(..) {
            let Some(held) = self.items.get(&id) else { continue };
            let (by, before, now) = (held.by, held.weight, held.item.weight());
            if now == before {
                continue;
            }
            let by = if before == 0 { maker } else { by };
            if let Some(held) = self.items.get_mut(&id) {
                (held.by, held.weight) = (by, now);
            }
            tell(by, before, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PipeId;

    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Bytes(u64);

    impl Weigh for Bytes {
        fn weight(&self) -> u64 {
            100 + self.0
        }
    }

    fn changes(arena: &mut Arena<PipeId, Bytes>, maker: u32) -> Vec<(u32, u64, u64)> {
        let mut out = Vec::new();
        arena.weigh(ContainerId(maker), &mut |by, before, now| out.push((by.0, before, now)));
        assert!(!arena.is_stale());
        out
    }

    #[test]
    fn an_object_stays_with_who_made_it() {
        let mut arena = Arena::weighed();
        let (one, two) = (arena.insert(Bytes(1)), arena.insert(Bytes(2)));
        assert_eq!(changes(&mut arena, 3), [(3, 0, 101), (3, 0, 102)]);
        arena[one].0 = 50;
        arena[two].0 = 2;
        assert_eq!(changes(&mut arena, 4), [(3, 101, 150)]);
        arena.remove(one);
        assert!(arena.is_stale());
        assert_eq!(changes(&mut arena, 4), [(3, 150, 0)]);
        assert_eq!(changes(&mut arena, 4), []);
    }

    #[test]
    fn what_is_gone_before_it_was_weighed_weighs_nothing() {
        let mut arena = Arena::weighed();
        let one = arena.insert(Bytes(1));
        arena.remove(one);
        assert_eq!(changes(&mut arena, 0), []);
    }

    #[test]
    fn when_objects_were_weighed_is_no_difference() {
        let mut arena = Arena::weighed();
        arena.insert(Bytes(1));
        let before = arena.clone();
        changes(&mut arena, 0);
        assert_eq!(arena, before);
    }
}
