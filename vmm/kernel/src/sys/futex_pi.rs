//! Futexes whose word names their owner (futex(2), "Priority-inheritance futexes"): FUTEX_LOCK_PI and its kin.
//!
//! What is modelled is ownership: who unlocks hands the lock to the first that waits, by priority, and an owner's death does too.
//! Nobody's priority is raised while it has a lock. [`PiLock`] is there while somebody waits.

use std::collections::VecDeque;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::ids::*;
use crate::node::Node;
use crate::wait::{Deadline, FutexKey, Progress, Restart, SysResult, Wait, WaitOn};

const TID: u32 = c::FUTEX_TID_MASK as u32;
const WAITERS: u32 = c::FUTEX_WAITERS as u32;
const DIED: u32 = c::FUTEX_OWNER_DIED as u32;

/// A lock that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiLock {
    /// Who has it.
    owner: Tid,
    /// Who waits, by priority, then first come first.
    waiters: VecDeque<Tid>,
}

impl Node {
    /// A task does not wait for such a lock any more.
    pub(crate) fn pi_forget(&mut self, tid: Tid) {
        let waits = self.pi_locks.iter().filter(|(_, lock)| lock.waiters.contains(&tid));
        let keys: Vec<FutexKey> = waits.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(lock) = self.pi_locks.get_mut(&key) {
                lock.waiters.retain(|waiter| *waiter != tid);
                if lock.waiters.is_empty() {
                    self.pi_locks.remove(&key);
                }
            }
        }
    }

    /// Gives a lock to the first that waits for it. Its number as its own namespace has it.
    fn pi_hand_over(&mut self, key: FutexKey, died: bool) -> Option<Tid> {
        let lock = self.pi_locks.get_mut(&key)?;
        let next = lock.waiters.pop_front()?;
        lock.owner = next;
        if lock.waiters.is_empty() {
            self.pi_locks.remove(&key);
        }
        if let Some((sleeps, progress)) = self.progress_of(next) {
            *progress = Progress::PiLock { owned: true, died };
            if sleeps {
                self.wake(next, false);
            }
        }
        Some(next)
    }

    /// A task ends that waits for nothing any more: its locks go to those that wait for them (exit_pi_state_list).
    pub(crate) fn pi_exit(&mut self, tid: Tid) {
        let owned = self.pi_locks.iter().filter(|(_, lock)| lock.owner == tid);
        let keys: Vec<FutexKey> = owned.map(|(key, _)| *key).collect();
        for key in keys {
            self.pi_hand_over(key, true);
        }
    }

    /// Whether a task waits for a lock of another one, directly or by way of others.
    fn pi_waits_for(&self, mut tid: Tid, other: Tid) -> bool {
        for _ in 0..self.pi_locks.len() + 1 {
            let Some(lock) = self.pi_locks.values().find(|lock| lock.waiters.contains(&tid)) else { break };
            if lock.owner == other {
                return true;
            }
            tid = lock.owner;
        }
        false
    }
}

/// FUTEX_LOCK_PI, FUTEX_LOCK_PI2; `deadline` is `None` for ever. EDEADLK, ESRCH for an owner that does not exist, ETIMEDOUT.
pub(super) fn lock(k: &mut Ctx<'_>, uaddr: Ptr, deadline: Option<Deadline>, private: bool) -> SysResult {
    let key = k.futex_key(uaddr.0, private)?;
    let Some((word, owner)) = try_lock(k, uaddr, key)? else { return Ok(0) };
    if deadline.is_some_and(|end| end.at <= k.now()) {
        return err(Errno::ETIMEDOUT);
    }
    if k.node.pi_waits_for(owner, k.tid) {
        return err(Errno::EDEADLK);
    }
    k.write_obj(uaddr, &(word | WAITERS))?;
    let tid = k.tid;
    let lock = PiLock { owner, waiters: VecDeque::new() };
    let place = k.node.pi_locks.get(&key).and_then(|lock| k.node.place_by_urgency(&lock.waiters, tid));
    let waiters = &mut k.node.pi_locks.get_or_insert_with(key, || lock).waiters;
    waiters.insert(place.unwrap_or(waiters.len()), tid);
    let wait = Wait::on(WaitOn::Futex(key)).ends(deadline).restart(Restart::NoIntr);
    Err(wait.progress(Progress::PiLock { owned: false, died: false }).into())
}

/// FUTEX_TRYLOCK_PI. EAGAIN.
pub(super) fn trylock(k: &mut Ctx<'_>, uaddr: Ptr, private: bool) -> SysResult {
    let key = k.futex_key(uaddr.0, private)?;
    match try_lock(k, uaddr, key)? {
        None => Ok(0),
        Some(_) => err(Errno::EAGAIN),
    }
}

/// Takes a lock that nobody has; else the word and the owner that it names.
fn try_lock(k: &mut Ctx<'_>, uaddr: Ptr, key: FutexKey) -> SysResult<Option<(u32, Tid)>> {
    let word: u32 = k.read_obj(uaddr)?;
    let me = k.tid.number();
    if word & TID == me {
        return err(Errno::EDEADLK);
    }
    let owner = k.pid_ns().tid(word & TID);
    if word & TID == 0 {
        let waiters = if k.node.pi_locks.contains_key(&key) { WAITERS } else { 0 };
        k.write_obj(uaddr, &(word & DIED | waiters | me))?;
        return Ok(None);
    }
    if !k.node.tasks.contains_key(&owner) {
        return err(Errno::ESRCH);
    }
    Ok(Some((word, owner)))
}

/// FUTEX_UNLOCK_PI. "EPERM The caller does not own the lock represented by the futex word."
pub(super) fn unlock(k: &mut Ctx<'_>, uaddr: Ptr, private: bool) -> SysResult {
    let word: u32 = k.read_obj(uaddr)?;
    if word & TID != k.tid.number() {
        return err(Errno::EPERM);
    }
    let key = k.futex_key(uaddr.0, private)?;
    // Before the lock changes hands: a word that cannot be written leaves all as it is.
    k.write_obj(uaddr, &0u32)?;
    if let Some(next) = k.node.pi_hand_over(key, false) {
        k.write_obj(uaddr, &(WAITERS | next.number()))?;
    }
    Ok(0)
}

/// The end of a sleep for a lock. A lock that its owner's death has passed on says so (FUTEX_OWNER_DIED).
pub(super) fn woken(k: &mut Ctx<'_>, uaddr: Ptr) -> Option<SysResult> {
    let Some(Progress::PiLock { owned, died }) = k.progress().cloned() else { return None };
    if owned && died {
        let me = k.tid.number();
        let stored = k.read_obj::<u32>(uaddr).and_then(|_| k.write_obj(uaddr, &(DIED | WAITERS | me)));
        return Some(stored.map(|()| 0).map_err(Into::into));
    }
    if owned {
        return Some(Ok(0));
    }
    if k.timed_out() {
        k.node.pi_forget(k.tid);
        return Some(err(Errno::ETIMEDOUT));
    }
    k.sleep_on()
}
