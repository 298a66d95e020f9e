//! Typed ids and the arena which hands them out. Ids are never used twice within a node, so that a stale one is
//! noticed instead of naming something else.

use bloodhound_persistent::Table;

macro_rules! ids {
    ($($(#[$m:meta])* $name:ident),* $(,)?) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl From<u32> for $name { fn from(n: u32) -> Self { $name(n) } }
        impl From<$name> for u32 { fn from(id: $name) -> u32 { id.0 } }
    )*};
}

ids! {
    /// A process (thread group), as `getpid(2)` shows it.
    Pid,
    /// A task (thread), as `gettid(2)` shows it. The first task of a process has the process's number.
    Tid,
    /// An address space.
    MmId,
    /// An open file description.
    FileId,
    /// A pipe or fifo buffer.
    PipeId,
    /// An eventfd counter.
    EventId,
    /// A timerfd.
    TimerFdId,
    /// A signalfd.
    SignalFdId,
    /// An epoll instance.
    EpollId,
    /// A unix-domain socket.
    UnixId,
    /// A shared-memory object without a name (MAP_SHARED|MAP_ANONYMOUS, SysV segments).
    ShmId,
}

/// Objects of one kind by id, in id order. A write to an object after a clone of the arena copies that object only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena<I, T> {
    items: Table<I, T>,
    next: u32,
}

impl<I: Copy + Ord + From<u32> + std::fmt::Debug, T: Clone> Arena<I, T> {
    /// An empty arena whose first id is `first`.
    pub fn starting_at(first: u32) -> Self {
        Arena { items: Table::new(), next: first }
    }

    /// Stores `item` under a fresh id.
    pub fn insert(&mut self, item: T) -> I {
        let id = I::from(self.next);
        self.next += 1;
        self.items.insert(id, item);
        id
    }

    /// The object, if it still exists.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(&id)
    }

    /// The object, if it still exists.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(&id)
    }

    /// Removes the object.
    pub fn remove(&mut self, id: I) -> Option<T> {
        self.items.remove(&id)
    }

    /// All objects in id order.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().map(|(i, t)| (*i, t))
    }

    /// All objects in id order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.items.iter_mut().map(|(i, t)| (*i, t))
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
        self.items.get(&id).unwrap_or_else(|| panic!("no object {id:?}"))
    }
}

impl<I: Copy + Ord + From<u32> + std::fmt::Debug, T: Clone> std::ops::IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.items.get_mut(&id).unwrap_or_else(|| panic!("no object {id:?}"))
    }
}
