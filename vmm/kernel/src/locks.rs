//! File locks: flock(2), POSIX record locks (fcntl(2) F_SETLK) and open-file-description locks (F_OFD_SETLK).
//!
//! Key types: [`Locks`] (a node's locks as plain tables), [`Owner`], [`Request`]. Waiting is
//! [`WaitOn::Lock`](crate::wait::WaitOn::Lock) on the inode: a woken waiter tries again. `sys::lock` has the calls;
//! closing descriptors ends locks through [`Node::release_locks_of_file`] and [`Ctx::release_posix_locks`].

use std::collections::BTreeMap;

use bloodhound_vfs::Ino;

use crate::ctx::Ctx;
use crate::file::FileKind;
use crate::ids::*;
use crate::node::Node;
use crate::task::TaskState;
use crate::wait::WaitOn;

/// Who holds a record lock. "The threads in a process share locks" (fcntl(2)); OFD locks "are associated with the open
/// file description on which they are acquired".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A process: POSIX record locks.
    Process(Pid),
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

    fn overlaps(&self, other: &Request) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn conflicts(&self, other: &Request) -> bool {
        self.owner != other.owner && self.overlaps(other) && (self.exclusive || other.exclusive)
    }
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

/// All locks of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// flock(2) locks by inode, oldest first.
    whole: BTreeMap<Ino, Vec<Flock>>,
    /// Record locks by inode, in order of their first byte; those of one owner never overlap.
    ranges: BTreeMap<Ino, Vec<Request>>,
    /// What the sleeping callers of F_SETLKW want. An entry counts only while its task sleeps on that inode.
    wanted: BTreeMap<Tid, (Ino, Request)>,
}

impl Locks {
    /// The lock that stands in the way of `want`, the one with the lowest first byte.
    pub fn conflict(&self, ino: Ino, want: &Request) -> Option<Request> {
        self.ranges.get(&ino)?.iter().find(|held| want.conflicts(held)).copied()
    }

    /// Gives the owner of `want` this lock, which must not conflict, in place of what it holds on these bytes. Locks of
    /// one kind that touch become one, as in Linux's posix_lock_inode.
    pub fn set(&mut self, ino: Ino, want: Request) {
        self.cut(ino, want.owner, want.start, want.end);
        let list = self.ranges.entry(ino).or_default();
        let mut whole = want;
        list.retain(|held| {
            let same = held.owner == want.owner && held.exclusive == want.exclusive;
            let touches =
                held.start <= whole.end.saturating_add(1) && whole.start <= held.end.saturating_add(1);
            if same && touches {
                (whole.start, whole.end) = (whole.start.min(held.start), whole.end.max(held.end));
            }
            !(same && touches)
        });
        let at = list.partition_point(|held| held.start <= whole.start);
        list.insert(at, whole);
    }

    /// Takes these bytes out of all locks of `owner`; whether it held any. A lock in the middle becomes two.
    pub fn cut(&mut self, ino: Ino, owner: Owner, start: u64, end: u64) -> bool {
        let Some(list) = self.ranges.get_mut(&ino) else { return false };
        let mut kept = Vec::with_capacity(list.len() + 1);
        let mut hit = false;
        for held in list.drain(..) {
            if held.owner != owner || held.start > end || held.end < start {
                kept.push(held);
                continue;
            }
            hit = true;
            if held.start < start {
                kept.push(Request { end: start - 1, ..held });
            }
            if held.end > end {
                kept.push(Request { start: end + 1, ..held });
            }
        }
        kept.sort_by_key(|held| held.start);
        if kept.is_empty() {
            self.ranges.remove(&ino);
        } else {
            *list = kept;
        }
        hit
    }

    /// The flock(2) lock of a description.
    pub fn whole_of(&self, ino: Ino, file: FileId) -> Option<Flock> {
        self.whole.get(&ino)?.iter().find(|l| l.file == file).copied()
    }

    /// Whether another description's flock(2) lock stands in the way.
    pub fn whole_conflict(&self, ino: Ino, file: FileId, exclusive: bool) -> bool {
        let held = self.whole.get(&ino).into_iter().flatten();
        held.into_iter().any(|l| l.file != file && (l.exclusive || exclusive))
    }

    /// Adds a flock(2) lock; the description must not hold one.
    pub fn set_whole(&mut self, ino: Ino, lock: Flock) {
        debug_assert!(self.whole_of(ino, lock.file).is_none());
        self.whole.entry(ino).or_default().push(lock);
    }

    /// Removes the flock(2) lock of a description; whether there was one.
    pub fn cut_whole(&mut self, ino: Ino, file: FileId) -> bool {
        let Some(list) = self.whole.get_mut(&ino) else { return false };
        let before = list.len();
        list.retain(|l| l.file != file);
        let hit = list.len() < before;
        if list.is_empty() {
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

    /// All flock(2) locks, by inode.
    pub fn whole_locks(&self) -> impl Iterator<Item = (Ino, &Flock)> {
        self.whole.iter().flat_map(|(ino, list)| list.iter().map(|l| (*ino, l)))
    }

    /// All record locks, by inode and first byte.
    pub fn range_locks(&self) -> impl Iterator<Item = (Ino, &Request)> {
        self.ranges.iter().flat_map(|(ino, list)| list.iter().map(|l| (*ino, l)))
    }
}

impl Node {
    /// Whether granting `want` to a sleeper would close a circle of processes that wait for each other (EDEADLK). As in
    /// Linux only POSIX locks take part, and the search gives up after ten steps ("avoids infinite loops").
    pub(crate) fn lock_deadlock(&self, ino: Ino, want: &Request) -> bool {
        const STEPS: usize = 10;
        let mut blocker = self.locks.conflict(ino, want);
        for _ in 0..STEPS {
            let Some(Owner::Process(pid)) = blocker.map(|b| b.owner) else { return false };
            if Owner::Process(pid) == want.owner {
                return true;
            }
            let Some((ino, next)) = self.lock_wanted_by(pid) else { return false };
            blocker = self.locks.conflict(ino, &next);
        }
        false
    }

    /// What a sleeping thread of `pid` wants.
    fn lock_wanted_by(&self, pid: Pid) -> Option<(Ino, Request)> {
        let sleeps = |tid: &Tid, ino: Ino| match self.tasks.get(tid).map(|t| &t.state) {
            Some(TaskState::Blocked(blocked)) => blocked.wait.on.contains(&WaitOn::Lock(ino)),
            _ => false,
        };
        let mut wanted = self.locks.wanted.iter();
        let hit = wanted.find(|(tid, (ino, r))| r.owner == Owner::Process(pid) && sleeps(tid, *ino))?;
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

    /// A process is gone: its POSIX locks end.
    pub(crate) fn release_locks_of_process(&mut self, pid: Pid) {
        let held =
            self.locks.ranges.iter().filter(|(_, list)| list.iter().any(|l| l.owner == Owner::Process(pid)));
        let inodes: Vec<Ino> = held.map(|(ino, _)| *ino).collect();
        for ino in inodes {
            self.locks.cut(ino, Owner::Process(pid), 0, Request::TO_END);
            self.notify(WaitOn::Lock(ino));
        }
    }
}

impl Node {
    /// A process has closed a descriptor of this description.
    pub(crate) fn closed_by(&mut self, id: FileId, pid: Pid) {
        self.mq_closed_by(id, pid);
        self.dnotify_closed_by(id, pid);
    }
}

impl Ctx<'_> {
    /// The caller closed a descriptor: "if a process closes any file descriptor referring to a file, then all of the
    /// process's locks on that file are released, regardless of the file descriptor(s) on which the locks were obtained"
    /// (fcntl(2)). A message queue forgets that it asked to be told of messages.
    pub(crate) fn release_posix_locks(&mut self, id: FileId) {
        let pid = self.pid;
        self.node.closed_by(id, pid);
        let Some(ino) = self.node.files.get(id).and_then(|f| lockable(&f.kind)) else { return };
        if self.node.locks.cut(ino, Owner::Process(self.pid), 0, Request::TO_END) {
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
mod tests {
    use super::*;

    const INO: Ino = Ino(7);

    fn lock(pid: u32, start: u64, end: u64, exclusive: bool) -> Request {
        Request { owner: Owner::Process(Pid(pid)), pid: Pid(pid), start, end, exclusive }
    }

    fn held(locks: &Locks) -> Vec<(u64, u64, bool)> {
        locks.range_locks().map(|(_, r)| (r.start, r.end, r.exclusive)).collect()
    }

    #[test]
    fn locks_of_one_owner_split_and_join() {
        let mut locks = Locks::default();
        locks.set(INO, lock(1, 0, 99, true));
        // The middle becomes a read lock: three pieces.
        locks.set(INO, lock(1, 40, 59, false));
        assert_eq!(held(&locks), [(0, 39, true), (40, 59, false), (60, 99, true)]);
        // Back to a write lock: one again.
        locks.set(INO, lock(1, 40, 59, true));
        assert_eq!(held(&locks), [(0, 99, true)]);
        assert!(locks.cut(INO, Owner::Process(Pid(1)), 10, 19));
        assert_eq!(held(&locks), [(0, 9, true), (20, 99, true)]);
        // Adjacent ranges join, also at the largest offset.
        locks.set(INO, lock(1, 10, 19, true));
        locks.set(INO, lock(1, 100, Request::TO_END, true));
        assert_eq!(held(&locks), [(0, Request::TO_END, true)]);
        assert!(locks.cut(INO, Owner::Process(Pid(1)), 0, Request::TO_END));
        assert!(!locks.cut(INO, Owner::Process(Pid(1)), 0, Request::TO_END));
        assert_eq!(held(&locks), []);
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut locks = Locks::default();
        locks.set(INO, lock(1, 0, 9, false));
        locks.set(INO, lock(2, 5, 14, false));
        assert_eq!(locks.conflict(INO, &lock(3, 0, 3, false)), None);
        assert_eq!(
            locks.conflict(INO, &lock(3, 12, 12, true)).map(|l| l.owner),
            Some(Owner::Process(Pid(2)))
        );
        // Own locks never stand in the way.
        assert_eq!(locks.conflict(INO, &lock(1, 0, 3, true)), None);
        assert_eq!(locks.conflict(INO, &lock(1, 0, 9, true)).map(|l| l.owner), Some(Owner::Process(Pid(2))));
        assert_eq!(locks.conflict(INO, &lock(3, 15, 20, true)), None);
    }

    #[test]
    fn whole_file_locks_belong_to_descriptions() {
        let mut locks = Locks::default();
        locks.set_whole(INO, Flock { file: FileId(1), pid: Pid(1), exclusive: false });
        assert!(!locks.whole_conflict(INO, FileId(2), false));
        assert!(locks.whole_conflict(INO, FileId(2), true));
        assert!(!locks.whole_conflict(INO, FileId(1), true));
        // Record locks and flock(2) locks do not see each other.
        assert_eq!(locks.conflict(INO, &lock(1, 0, 9, true)), None);
        assert!(locks.cut_whole(INO, FileId(1)));
        assert!(!locks.whole_conflict(INO, FileId(2), true));
    }
}
