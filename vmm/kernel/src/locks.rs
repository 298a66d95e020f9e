//! File locks: flock(2), POSIX record locks (fcntl(2) F_SETLK) and open-file-description locks (F_OFD_SETLK).
//!
//! Key types: [`Locks`] (a node's locks as plain tables), [`Owner`], [`Request`]. Waiting is
//! [`WaitOn::Lock`](crate::wait::WaitOn::Lock) on the inode: a woken waiter tries again. `sys::lock` has the calls;
//! closing descriptors ends locks through [`Node::release_locks_of_file`] and [`Ctx::release_posix_locks`].

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_vfs::Ino;

use crate::container::ContainerId;
use crate::ctx::Ctx;
use crate::file::FileKind;
use crate::ids::*;
use crate::node::Node;
use crate::task::TaskState;
use crate::wait::WaitOn;

/// Who holds a record lock. "The threads in a process share locks" (fcntl(2)), as they have one table of descriptors, which other processes may
/// share (fl_owner of Linux); OFD locks "are associated with the open file description on which they are acquired".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A table of descriptors: POSIX record locks.
    Table(TableId),
    /// A description: OFD locks.
    File(FileId),
}

/// A lock on a range of bytes, held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose it is.
    pub owner: Owner,
    /// The process that asked, for /proc/locks.
    pub pid: Pid,
    /// Its container, which is charged for the lock.
    pub container: ContainerId,
    /// First byte.
    pub start: u64,
    /// Last byte; [`Request::TO_END`] for "to the end of the file, however large".
    pub end: u64,
    /// A write lock.
    pub exclusive: bool,
}

impl Request {
    /// The last byte of a lock with l_len 0 (OFFSET_MAX).
    pub const TO_END: u64 = i64::MAX as u64;
}

/// A whole-file lock of flock(2), held by a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flock {
    /// The description.
    pub file: FileId,
    /// The process that asked, for /proc/locks.
    pub pid: Pid,
    /// LOCK_EX.
    pub exclusive: bool,
}

/// A record lock without its owner and its first byte, which are the keys that it is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    end: u64,
    exclusive: bool,
    pid: Pid,
    container: ContainerId,
    /// When it was set, among all of its inode.
    number: u64,
}

impl Held {
    fn request(&self, owner: Owner, start: u64) -> Request {
        let Held { end, exclusive, pid, container, .. } = *self;
        Request { owner, pid, container, start, end, exclusive }
    }
}

/// The record locks of an owner on an inode, which never overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Owned {
    /// When it came to have one, among all owners of the inode: Linux's list has those of an owner together, behind those of who came before.
    since: u64,
    /// By first byte.
    held: BTreeMap<u64, Held>,
    /// First bytes of the write locks.
    exclusive: BTreeSet<u64>,
}

impl Owned {
    /// The first lock that has one of these bytes; if `exclusive`, the first write lock.
    fn first(&self, start: u64, end: u64, exclusive: bool) -> Option<(u64, Held)> {
        let near = if exclusive {
            let before = self.exclusive.range(..=start).next_back();
            let within = self.exclusive.range(start..=end).next();
            [before.copied(), within.copied()]
        } else {
            let before = self.held.range(..=start).next_back();
            let within = self.held.range(start..=end).next();
            [before.map(|(at, _)| *at), within.map(|(at, _)| *at)]
        };
        let locks = near.into_iter().flatten().filter_map(|at| Some((at, *self.held.get(&at)?)));
        locks.into_iter().find(|(_, held)| held.end >= start)
    }
}

/// The record locks of an inode. A program may have as many as it likes, so none of its calls walks over all of them, but over
/// all owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges {
    by_owner: BTreeMap<Owner, Owned>,
    /// Owners of write locks, who alone stand in the way of a read lock.
    writers: BTreeSet<Owner>,
    /// How many were ever set.
    numbers: u64,
}

impl Ranges {
    /// Adds a lock, of an owner with this place among the owners if it has none.
    fn put(&mut self, lock: Request, number: u64, since: u64) {
        let Request { owner, pid, container, start, end, exclusive } = lock;
        let owned = self.by_owner.entry(owner).or_insert_with(|| Owned { since, ..Owned::default() });
        owned.held.insert(start, Held { end, exclusive, pid, container, number });
        if exclusive {
            owned.exclusive.insert(start);
            self.writers.insert(owner);
        }
    }

    /// The place of an owner that has locks.
    fn since(&self, owner: Owner) -> Option<u64> {
        self.by_owner.get(&owner).map(|owned| owned.since)
    }

    fn take(&mut self, owner: Owner, start: u64) -> Option<Held> {
        let owned = self.by_owner.get_mut(&owner)?;
        let held = owned.held.remove(&start)?;
        owned.exclusive.remove(&start);
        if owned.exclusive.is_empty() {
            self.writers.remove(&owner);
        }
        if owned.held.is_empty() {
            self.by_owner.remove(&owner);
        }
        Some(held)
    }

    /// The first lock of an owner that has one of these bytes.
    fn first(&self, owner: Owner, start: u64, end: u64) -> Option<(u64, Held)> {
        self.by_owner.get(&owner)?.first(start, end, false)
    }

    fn conflict(&self, want: &Request) -> Option<Request> {
        let hit = |owner: &Owner| {
            let owned = self.by_owner.get(owner).filter(|_| *owner != want.owner)?;
            Some((owned.since, *owner, owned.first(want.start, want.end, !want.exclusive)?))
        };
        let first = if want.exclusive {
            self.by_owner.keys().filter_map(hit).min_by_key(|(since, ..)| *since)
        } else {
            self.writers.iter().filter_map(hit).min_by_key(|(since, ..)| *since)
        };
        let (_, owner, (start, held)) = first?;
        Some(held.request(owner, start))
    }

    /// All of them in order of their first byte, those that were set first before others.
    fn all(&self) -> Vec<Request> {
        let of = |(owner, owned): (&Owner, &Owned)| -> Vec<(u64, Request)> {
            owned.held.iter().map(|(start, held)| (held.number, held.request(*owner, *start))).collect()
        };
        let mut all: Vec<(u64, Request)> = self.by_owner.iter().flat_map(of).collect();
        all.sort_by_key(|(number, lock)| (lock.start, *number));
        all.into_iter().map(|(_, lock)| lock).collect()
    }
}

/// The flock(2) locks of an inode, by description; each with when it was set, among all of the inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Whole {
    held: BTreeMap<FileId, (u64, Flock)>,
    numbers: u64,
}

/// All locks of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    whole: BTreeMap<Ino, Whole>,
    ranges: BTreeMap<Ino, Ranges>,
    /// What the sleeping callers of F_SETLKW want. An entry counts only while its task sleeps on that inode.
    wanted: BTreeMap<Tid, (Ino, Request)>,
    /// How many record locks the containers have.
    counts: BTreeMap<ContainerId, u64>,
}

impl Locks {
    /// The lock that stands in the way of `want`: of the owner that has had one for longest, the one with the lowest first byte (posix_test_lock).
    pub fn conflict(&self, ino: Ino, want: &Request) -> Option<Request> {
        self.ranges.get(&ino)?.conflict(want)
    }

    /// How many owners have record locks on an inode: so many steps [`Locks::conflict`] takes.
    pub(crate) fn owners(&self, ino: Ino) -> usize {
        self.ranges.get(&ino).map_or(0, |ranges| ranges.by_owner.len())
    }

    /// How many record locks the containers have.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (ContainerId, u64)> {
        self.counts.iter().map(|(container, count)| (*container, *count))
    }

    fn counted(&mut self, container: ContainerId, one_more: bool) {
        let count = self.counts.entry(container).or_default();
        *count = if one_more { *count + 1 } else { *count - 1 };
    }

    /// Gives the owner of `want` this lock, which must not conflict, in place of what it holds on these bytes. Locks of
    /// one kind that touch become one, as in Linux's posix_lock_inode: the first of them grows, so that it is still that of the process which
    /// has set it, where several have one table of descriptors.
    pub fn set(&mut self, ino: Ino, want: Request) {
        let want = Request { pid: self.setter(ino, &want), ..want };
        // Who replaces all that it had keeps its place among the owners.
        let since = self.ranges.get(&ino).and_then(|ranges| ranges.since(want.owner));
        self.cut(ino, want.owner, want.start, want.end);
        // Where nobody else has one, counting begins anew.
        let since = since.filter(|_| self.ranges.contains_key(&ino));
        let ranges = self.ranges.entry(ino).or_default();
        let mut whole = want;
        let before = want.start.checked_sub(1).and_then(|at| ranges.first(want.owner, at, at));
        let after = want.end.checked_add(1).and_then(|at| ranges.first(want.owner, at, at));
        let mut joined = Vec::new();
        for (start, held) in before.into_iter().chain(after) {
            if held.exclusive == want.exclusive {
                (whole.start, whole.end) = (whole.start.min(start), whole.end.max(held.end));
                joined.extend(ranges.take(want.owner, start));
            }
        }
        ranges.numbers += 1;
        ranges.put(whole, ranges.numbers, since.unwrap_or(ranges.numbers));
        joined.iter().for_each(|held| self.counted(held.container, false));
        self.counted(whole.container, true);
    }

    /// The process that has set the first lock of this kind which the new one overlaps or touches, or the one that sets it.
    fn setter(&self, ino: Ino, want: &Request) -> Pid {
        let (mut at, end) = (want.start.saturating_sub(1), want.end.saturating_add(1));
        while let Some((start, held)) =
            self.ranges.get(&ino).and_then(|ranges| ranges.first(want.owner, at, end))
        {
            if held.exclusive == want.exclusive {
                return held.request(want.owner, start).pid;
            }
            match held.end.checked_add(1).filter(|next| *next <= end) {
                Some(next) => at = next,
                None => break,
            }
        }
        want.pid
    }

    /// Takes these bytes out of all locks of `owner`; whether it held any. A lock in the middle becomes two.
    pub fn cut(&mut self, ino: Ino, owner: Owner, start: u64, end: u64) -> bool {
        let mut hit = false;
        while let Some(ranges) = self.ranges.get_mut(&ino)
            && let Some((at, held)) = ranges.first(owner, start, end)
        {
            hit = true;
            let since = ranges.since(owner).unwrap_or(held.number);
            ranges.take(owner, at);
            let lock = held.request(owner, at);
            let mut pieces = 0;
            if at < start {
                ranges.put(Request { end: start - 1, ..lock }, held.number, since);
                pieces += 1;
            }
            if held.end > end {
                ranges.put(Request { start: end + 1, ..lock }, held.number, since);
                pieces += 1;
            }
            if ranges.by_owner.is_empty() {
                self.ranges.remove(&ino);
            }
            match pieces {
                0 => self.counted(held.container, false),
                2 => self.counted(held.container, true),
                _ => {}
            }
        }
        hit
    }

    /// The flock(2) lock of a description.
    pub fn whole_of(&self, ino: Ino, file: FileId) -> Option<Flock> {
        self.whole.get(&ino)?.held.get(&file).map(|(_, lock)| *lock)
    }

    /// Whether another description's flock(2) lock stands in the way. Of several none is exclusive.
    pub fn whole_conflict(&self, ino: Ino, file: FileId, exclusive: bool) -> bool {
        let held = self.whole.get(&ino).into_iter().flat_map(|whole| whole.held.values());
        held.map(|(_, lock)| lock).find(|lock| lock.file != file).is_some_and(|l| l.exclusive || exclusive)
    }

    /// Adds a flock(2) lock; the description must not hold one.
    pub fn set_whole(&mut self, ino: Ino, lock: Flock) {
        debug_assert!(self.whole_of(ino, lock.file).is_none());
        let whole = self.whole.entry(ino).or_default();
        whole.numbers += 1;
        whole.held.insert(lock.file, (whole.numbers, lock));
    }

    /// Removes the flock(2) lock of a description; whether there was one.
    pub fn cut_whole(&mut self, ino: Ino, file: FileId) -> bool {
        let Some(whole) = self.whole.get_mut(&ino) else { return false };
        let hit = whole.held.remove(&file).is_some();
        if whole.held.is_empty() {
            self.whole.remove(&ino);
        }
        hit
    }

    /// Notes what a task is about to sleep for.
    pub(crate) fn want(&mut self, tid: Tid, ino: Ino, request: Request) {
        self.wanted.insert(tid, (ino, request));
    }

    /// The task does not wait for a record lock any more.
    pub(crate) fn unwant(&mut self, tid: Tid) {
        self.wanted.remove(&tid);
    }

    /// All flock(2) locks, by inode, oldest first.
    pub fn whole_locks(&self) -> impl Iterator<Item = (Ino, Flock)> {
        self.whole.iter().flat_map(|(ino, whole)| {
            let mut list: Vec<(u64, Flock)> = whole.held.values().copied().collect();
            list.sort_by_key(|(number, _)| *number);
            list.into_iter().map(|(_, lock)| (*ino, lock))
        })
    }

    /// All record locks, by inode and first byte.
    pub fn range_locks(&self) -> impl Iterator<Item = (Ino, Request)> {
        self.ranges.iter().flat_map(|(ino, ranges)| ranges.all().into_iter().map(|lock| (*ino, lock)))
    }
}

impl Node {
    /// Whether granting `want` to a sleeper would close a circle of owners that wait for each other (EDEADLK). As in
    /// Linux only POSIX locks take part, and the search gives up after ten steps ("avoids infinite loops").
    pub(crate) fn lock_deadlock(&self, ino: Ino, want: &Request) -> bool {
        const STEPS: usize = 10;
        let mut blocker = self.locks.conflict(ino, want);
        for _ in 0..STEPS {
            let Some(owner @ Owner::Table(_)) = blocker.map(|b| b.owner) else { return false };
            if owner == want.owner {
                return true;
            }
            let Some((ino, next)) = self.lock_wanted_by(owner) else { return false };
            blocker = self.locks.conflict(ino, &next);
        }
        false
    }

    /// What a sleeping thread wants for an owner.
    fn lock_wanted_by(&self, owner: Owner) -> Option<(Ino, Request)> {
        let sleeps = |tid: &Tid, ino: Ino| match self.tasks.get(tid).map(|t| &t.state) {
            Some(TaskState::Blocked(blocked)) => blocked.wait.on.contains(&WaitOn::Lock(ino)),
            _ => false,
        };
        let mut wanted = self.locks.wanted.iter();
        let hit = wanted.find(|(tid, (ino, r))| r.owner == owner && sleeps(tid, *ino))?;
        Some(*hit.1)
    }

    /// The last reference to a description is gone: its flock(2) lock and its OFD locks end.
    pub(crate) fn release_locks_of_file(&mut self, id: FileId) {
        let Some(ino) = self.files.get(id).and_then(|f| lockable(&f.kind)) else { return };
        let whole = self.locks.cut_whole(ino, id);
        if self.locks.cut(ino, Owner::File(id), 0, Request::TO_END) || whole {
            self.notify(WaitOn::Lock(ino));
        }
    }

    /// A table of descriptors is gone: its POSIX locks end.
    pub(crate) fn release_locks_of_table(&mut self, table: TableId) {
        let owner = Owner::Table(table);
        let held = self.locks.ranges.iter().filter(|(_, ranges)| ranges.by_owner.contains_key(&owner));
        let inodes: Vec<Ino> = held.map(|(ino, _)| *ino).collect();
        for ino in inodes {
            self.locks.cut(ino, owner, 0, Request::TO_END);
            self.notify(WaitOn::Lock(ino));
        }
    }
}

impl Node {
    /// A process has closed a descriptor of this description in this table.
    pub(crate) fn closed_by(&mut self, id: FileId, pid: Pid, table: TableId) {
        self.mq_closed_by(id, pid);
        self.dnotify_closed_by(id, table);
    }
}

impl Ctx<'_> {
    /// The caller closed a descriptor: "if a process closes any file descriptor referring to a file, then all of the
    /// process's locks on that file are released, regardless of the file descriptor(s) on which the locks were obtained"
    /// (fcntl(2)). A message queue forgets that it asked to be told of messages.
    pub(crate) fn release_posix_locks(&mut self, id: FileId) {
        let table = self.task().common.table;
        self.node.closed_by(id, self.pid, table);
        let Some(ino) = self.node.files.get(id).and_then(|f| lockable(&f.kind)) else { return };
        if self.node.locks.cut(ino, Owner::Table(table), 0, Request::TO_END) {
            self.node.notify(WaitOn::Lock(ino));
        }
    }
}

/// Inode numbers of what has no file system here, behind those of all that has.
const ANONYMOUS: u64 = 1 << 63;

/// The inode on which a description's locks lie; `None` for a descriptor of O_PATH, which no lock is for.
pub(crate) fn lockable(kind: &FileKind) -> Option<Ino> {
    let anonymous = || Some(Ino(ANONYMOUS | crate::procfs::anonymous_ino(kind)));
    match kind {
        FileKind::Regular(ino)
        | FileKind::Dir(ino)
        | FileKind::Device { ino, .. }
        | FileKind::Tty { ino, .. } => Some(*ino),
        FileKind::Pipe { ino, .. } => ino.or_else(anonymous),
        FileKind::Path(_) => None,
        _ => anonymous(),
    }
}

#[cfg(test)]
mod tests;
