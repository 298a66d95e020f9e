//! System V IPC (sysvipc(7)): semaphore sets, message queues and shared-memory segments of the IPC namespaces of a machine; and
//! POSIX message queues ([`mqueue`]).
//!
//! Key types: [`SysV`] (all of them), [`Objects`] (those of one kind in one namespace, by id), [`Perm`] (whose an object is),
//! [`sem::SemSet`], [`queue::Queue`], [`segment::Segment`]. Whoever changes an object carries out what waits for the change, in the
//! order in which it came, as Linux does: the sleeper finds its result ready. Neighbours: `sys::{sem, msg, shm}` are the calls.

pub mod mqueue;
pub mod queue;
pub mod segment;
pub mod sem;

use bloodhound_abi::Errno;
use bloodhound_persistent::{Map, Table};

use crate::arena::Weigh;
use crate::caps::{CAP_IPC_OWNER, CAP_SYS_ADMIN};
use crate::container::IpcNs;
use crate::credentials::Credentials;
use crate::ctx::Ctx;
use crate::ids::Tid;
use crate::mm::PAGE;
use crate::node::Node;
use crate::wait::{Progress, Stop, SysResult, WaitOn};

/// Ids are a sequence number above an index of so many bits (IPCMNI_SHIFT).
const INDEX_BITS: u32 = 15;
/// An index is used again after so many others at the earliest (ipc_min_cycle).
const MIN_CYCLE: u32 = 64;
/// The largest sequence number (ipcid_seq_max).
const MAX_SEQUENCE: u32 = i32::MAX as u32 >> INDEX_BITS;

/// IPC_PRIVATE: the key of an object without a name.
pub const PRIVATE: i32 = 0;

/// `struct kern_ipc_perm`: whose an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perm {
    /// Its name.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Group of the owner.
    pub gid: u32,
    /// Who made it.
    pub cuid: u32,
    /// The group of who made it.
    pub cgid: u32,
    /// Permission bits, and flags of the kind above them.
    pub mode: u32,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// Its id.
    pub id: i32,
    /// Whose it is.
    pub perm: Perm,
    /// When its owner, mode or content was last set, or it was made, seconds since 1970.
    pub ctime: u64,
    /// It.
    pub item: T,
    /// What it weighed when it was last weighed.
    weight: Apart<u64>,
}

/// What says nothing about whether two values are the same: when objects were last weighed.
#[derive(Clone, Debug, Default)]
struct Apart<T>(T);

impl<T> PartialEq for Apart<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Apart<T> {}

/// The objects of one kind in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects<T> {
    by_index: Table<u32, Entry<T>>,
    by_key: Map<i32, u32>,
    /// The index that was given last.
    last: Option<u32>,
    sequence: u32,
    /// What all weighed when each was last weighed.
    held: Apart<u64>,
    /// Indices of those that were touched since.
    touched: Apart<Vec<u32>>,
}

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects {
            by_index: Table::new(),
            by_key: Map::new(),
            last: None,
            sequence: 0,
            held: Apart(0),
            touched: Apart(Vec::new()),
        }
    }
}

impl<T: Clone> Objects<T> {
    /// Adds an object: indices go round, as Linux's `ipc_idr_alloc` gives them. ENOSPC if there are `most` already.
    pub(crate) fn add(&mut self, most: u32, perm: Perm, ctime: u64, item: T) -> Result<i32, Errno> {
        let used = self.by_index.len() as u32;
        if used >= most {
            return Err(Errno::ENOSPC);
        }
        let end = (used + used / 2 + 1).clamp(MIN_CYCLE, 1 << INDEX_BITS);
        let next = self.last.map_or(0, |last| last + 1);
        let free = |range: std::ops::Range<u32>| range.into_iter().find(|at| !self.by_index.contains_key(at));
        let index = free(next..end).or_else(|| free(0..end)).ok_or(Errno::ENOSPC)?;
        if self.last.is_some_and(|last| index <= last) {
            self.sequence = if self.sequence == MAX_SEQUENCE { 0 } else { self.sequence + 1 };
        }
        self.last = Some(index);
        let id = (self.sequence << INDEX_BITS | index) as i32;
        self.by_index.insert(index, Entry { id, perm, ctime, item, weight: Apart(0) });
        self.touched.0.push(index);
        if perm.key != PRIVATE {
            self.by_key.insert(perm.key, index);
        }
        Ok(id)
    }

    /// The object of an id.
    pub fn get(&self, id: i32) -> Option<&Entry<T>> {
        self.by_index.get(&index(id)?).filter(|entry| entry.id == id)
    }

    /// The object of an id.
    pub fn get_mut(&mut self, id: i32) -> Option<&mut Entry<T>> {
        self.touched.0.push(index(id)?);
        self.by_index.get_mut(&index(id)?).filter(|entry| entry.id == id)
    }

    /// The object at an index, or at that of an id, whose sequence does not matter (ipc_obtain_object_idr).
    pub fn at(&self, id: i32) -> Option<&Entry<T>> {
        self.by_index.get(&index(id)?)
    }

    /// The object of a name.
    pub fn named(&self, key: i32) -> Option<&Entry<T>> {
        self.by_index.get(self.by_key.get(&key)?)
    }

    /// Takes the name from an object.
    pub(crate) fn forget_name(&mut self, id: i32) {
        if let Some(entry) = self.get_mut(id) {
            let key = std::mem::take(&mut entry.perm.key);
            if key != PRIVATE {
                self.by_key.remove(&key);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: i32) -> Option<Entry<T>> {
        self.get(id)?;
        self.forget_name(id);
        let entry = self.by_index.remove(&index(id)?)?;
        self.held.0 -= entry.weight.0;
        Some(entry)
    }

    /// What all of them weigh ([`Weigh`]).
    pub(crate) fn weigh(&mut self) -> u64
    where
        T: Weigh,
    {
        for at in self.touched.0.drain(..) {
            let Some(entry) = self.by_index.get_mut(&at) else { continue };
            let before = std::mem::replace(&mut entry.weight.0, entry.item.weight());
            self.held.0 = self.held.0 + entry.weight.0 - before;
        }
        self.held.0
    }

    /// All of them, by index.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.by_index.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_index.is_empty()
    }

    /// The highest index in use; 0 if none is, as the commands IPC_INFO and their kind give it.
    pub fn highest(&self) -> u64 {
        self.by_index.last_key_value().map_or(0, |(index, _)| u64::from(*index))
    }
}

fn index(id: i32) -> Option<u32> {
    u32::try_from(id).ok().map(|id| id & ((1 << INDEX_BITS) - 1))
}

/// All objects of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Semaphore sets.
    pub sets: Objects<sem::SemSet>,
    /// Message queues.
    pub queues: Objects<queue::Queue>,
    /// Shared-memory segments.
    pub segments: Objects<segment::Segment>,
}

/// All objects of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysV {
    namespaces: Table<IpcNs, Namespace>,
    /// How many lists of semaphores to undo there have been.
    lists: u64,
}

impl SysV {
    /// What the objects of each namespace weigh in which one was touched. Memory of segments is charged by its pages.
    pub(crate) fn weights(&mut self) -> Vec<(IpcNs, u64)> {
        let stale = |all: &Namespace| !all.sets.touched.0.is_empty() || !all.queues.touched.0.is_empty();
        let touched: Vec<IpcNs> =
            self.namespaces.iter().filter(|(_, all)| stale(all)).map(|(ns, _)| *ns).collect();
        let weigh = |ns: IpcNs| {
            let all = self.of(ns);
            (ns, all.sets.weigh() + all.queues.weigh())
        };
        touched.into_iter().map(weigh).collect()
    }

    /// The pages of all segments that a user has locked (SHM_LOCK), in whatever namespace they are (UCOUNT_RLIMIT_MEMLOCK).
    pub(crate) fn locked_by(&self, user: u32) -> u64 {
        let segments = self.namespaces.values().flat_map(|all| all.segments.iter());
        let theirs = segments.filter(|entry| entry.item.locker == Some(user));
        theirs.map(|entry| entry.item.size.div_ceil(PAGE)).sum()
    }

    /// A namespace, if something was ever in it.
    pub fn get(&self, ns: IpcNs) -> Option<&Namespace> {
        self.namespaces.get(&ns)
    }

    /// A namespace.
    pub fn of(&mut self, ns: IpcNs) -> &mut Namespace {
        self.namespaces.get_or_default(ns)
    }
}

/// Which objects a call asks for with `semget` and its kind.
pub(crate) struct Wanted {
    pub key: i32,
    /// IPC_CREAT, IPC_EXCL and permission bits.
    pub flags: u32,
}

/// What there is for a name.
pub(crate) enum Named {
    /// Nothing: it is to be made.
    Make(Perm),
    /// This.
    Is(i32),
}

impl Ctx<'_> {
    /// The namespace of the caller.
    pub(crate) fn ipc(&mut self) -> &mut Namespace {
        let ns = self.container().ipc;
        self.node.sysv.of(ns)
    }

    /// Seconds since 1970, as the times of these objects count.
    pub(crate) fn seconds(&self) -> u64 {
        self.node.realtime() / 1_000_000_000
    }

    /// The beginning of semget(2) and its kind (`ipcget`): `fits` says whether an object that is there is what is asked for. ENOENT,
    /// EEXIST, EACCES, and what `fits` says.
    pub(crate) fn ipc_named<T: Clone>(
        &mut self,
        wanted: &Wanted,
        objects: impl Fn(&mut Namespace) -> &mut Objects<T>,
        fits: impl Fn(&T) -> Result<(), Errno>,
    ) -> SysResult<Named> {
        const CREAT: u32 = 0o1000;
        const EXCL: u32 = 0o2000;
        let known = match wanted.key {
            PRIVATE => None,
            key => objects(self.ipc()).named(key).map(|entry| (entry.id, entry.perm, fits(&entry.item))),
        };
        let Some((id, perm, fits)) = known else {
            if wanted.key != PRIVATE && wanted.flags & CREAT == 0 {
                return Err(Errno::ENOENT.into());
            }
            let (uid, gid) = (self.credentials().cred.uid, self.credentials().cred.gid);
            let mode = wanted.flags & 0o777;
            return Ok(Named::Make(Perm { key: wanted.key, uid, gid, cuid: uid, cgid: gid, mode }));
        };
        if wanted.flags & CREAT != 0 && wanted.flags & EXCL != 0 {
            return Err(Errno::EEXIST.into());
        }
        fits?;
        self.ipc_may(&perm, wanted.flags)?;
        Ok(Named::Is(id))
    }

    /// Whether the caller may do what the permission bits in `flags` say. EACCES.
    pub(crate) fn ipc_may(&self, perm: &Perm, flags: u32) -> Result<(), Errno> {
        perm.allows(self.credentials(), flags)
    }

    /// Whether the caller may remove an object and give it away. EPERM.
    pub(crate) fn ipc_owns(&self, perm: &Perm) -> Result<(), Errno> {
        let uid = self.credentials().cred.uid;
        let owns = uid == perm.uid || uid == perm.cuid || self.capable(CAP_SYS_ADMIN);
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// The end of a sleep in one of these calls: its result if it has one, else it sleeps on; `None` for a call that has not slept.
    /// `late` is what a deadline gives.
    pub(crate) fn ipc_woken<R: Clone>(
        &mut self,
        late: Errno,
        result: impl Fn(&Progress) -> Option<Option<Result<R, Errno>>>,
    ) -> Option<SysResult<R>> {
        let ready = result(self.progress()?)?;
        if let Some(ready) = ready {
            return Some(ready.map_err(Stop::Errno));
        }
        if self.timed_out() {
            if let Some(on) = self.resumed.as_ref().and_then(|resumed| resumed.wait.on.first()).copied() {
                self.node.ipc_forget_on(self.tid, on);
            }
            return Some(Err(late.into()));
        }
        self.sleep_on()
    }
}

impl Perm {
    /// `struct ipc64_perm`, the beginning of what IPC_STAT gives: six words of eight bytes.
    pub(crate) fn words(&self, id: i32) -> [u64; 6] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let sequence = id as u32 >> INDEX_BITS;
        [
            pair(self.key as u32, self.uid),
            pair(self.gid, self.cuid),
            pair(self.cgid, self.mode),
            u64::from(sequence & 0xffff),
            0,
            0,
        ]
    }

    /// Takes owner and permission bits of a `struct ipc64_perm`, as IPC_SET does. EINVAL for -1, which is no id ("if (!uid_valid(uid) ||
    /// !gid_valid(gid)) return -EINVAL", ipc_update_perm).
    pub(crate) fn set(&mut self, words: &[u64; 6]) -> Result<(), Errno> {
        let (uid, gid) = ((words[0] >> 32) as u32, words[1] as u32);
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::EINVAL);
        }
        (self.uid, self.gid) = (uid, gid);
        self.mode = self.mode & !0o777 | (words[2] >> 32) as u32 & 0o777;
        Ok(())
    }

    /// Whether somebody may do what the permission bits in `flags` say (`ipcperms`). EACCES.
    pub(crate) fn allows(&self, who: &Credentials, flags: u32) -> Result<(), Errno> {
        // The user is the effective one, the group that for files (in_group_p).
        let (cred, group) = (&who.cred, who.for_files().gid);
        let wanted = (flags >> 6 | flags >> 3 | flags) & 7;
        let granted = if cred.uid == self.cuid || cred.uid == self.uid {
            self.mode >> 6
        } else if [self.cgid, self.gid].iter().any(|gid| group == *gid || cred.groups.contains(gid)) {
            self.mode >> 3
        } else {
            self.mode
        };
        match wanted & !granted & 7 {
            0 => Ok(()),
            _ if who.caps.has(CAP_IPC_OWNER) => Ok(()),
            _ => Err(Errno::EACCES),
        }
    }
}

impl Node {
    /// A task stops waiting for a semaphore or a message: its call ends otherwise.
    pub(crate) fn ipc_forget(&mut self, tid: Tid) {
        let on = match self.tasks.get(&tid).map(|task| (&task.state, &task.woken)) {
            Some((crate::task::TaskState::Blocked(blocked), _)) => blocked.wait.on.first().copied(),
            Some((_, Some(woken))) => woken.blocked.wait.on.first().copied(),
            _ => None,
        };
        if let Some(on) = on {
            self.ipc_forget_on(tid, on);
        }
    }

    /// As [`Node::ipc_forget`], for a task that waits for this.
    pub(crate) fn ipc_forget_on(&mut self, tid: Tid, on: WaitOn) {
        match on {
            WaitOn::Semaphores(ns, id) => {
                if let Some(set) = self.sysv.of(ns).sets.get_mut(id) {
                    set.item.forget(tid);
                }
            }
            WaitOn::Messages(ns, id) => {
                if let Some(queue) = self.sysv.of(ns).queues.get_mut(id) {
                    queue.item.forget(tid);
                }
            }
            WaitOn::Mq(id) => {
                if let Some(queue) = self.mqueues.all.get_mut(id) {
                    queue.forget(tid);
                }
            }
            _ => {}
        }
    }

    /// Gives a sleeping call its result: `store` puts it into its progress.
    fn ipc_complete(&mut self, tid: Tid, store: impl FnOnce(&mut Progress)) {
        let Some((sleeps, progress)) = self.progress_of(tid) else { return };
        store(progress);
        if sleeps {
            self.wake(tid, false);
        }
    }

    /// Removes all objects of an IPC namespace, as its end does. No process of it may be left.
    pub fn remove_ipc(&mut self, ns: IpcNs) {
        self.mq_remove_all(ns);
        let Some(Namespace { segments, .. }) = self.sysv.namespaces.remove(&ns) else { return };
        self.memory.forget_ipc(ns);
        for segment in segments.iter() {
            self.shm_remove(segment.item.shm);
        }
    }
}

#[cfg(test)]
mod tests;
