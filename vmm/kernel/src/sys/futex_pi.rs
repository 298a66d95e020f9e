//! Futexes whose word names their owner (futex(2), "Priority-inheritance futexes"): FUTEX_LOCK_PI and its kin.
//!
//! What is modelled is ownership: who unlocks hands the lock to the first that waits, by priority, and an owner's death does too.
//! Nobody's priority is raised while it has a lock. [`PiLock`] is there while somebody waits.

use std::collections::VecDeque;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::ids::*;
use crate::mm::Access;
use crate::node::Node;
use crate::wait::{Deadline, FutexKey, Progress, Restart, SysResult, Wait, WaitOn};

const TID: u32 = c::FUTEX_TID_MASK as u32;
const WAITERS: u32 = c::FUTEX_WAITERS as u32;
const DIED: u32 = c::FUTEX_OWNER_DIED as u32;

/// A lock that somebody waits for, or whose new owner has not yet written its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiLock {
    /// Who has it.
    owner: Tid,
    /// Who waits, by priority, then first come first.
    waiters: VecDeque<Tid>,
    /// A death has given it to its owner, which has not run since.
    passed_on: bool,
}

/// What came of an attempt at a lock.
pub(super) enum Attempt {
    /// It is taken.
    Taken,
    /// Somebody has it.
    Held(Tid),
}

impl Node {
    /// Whether anybody stands at a word as at a lock with an owner.
    pub(super) fn pi_waited(&self, key: FutexKey) -> bool {
        self.pi_locks.contains_key(&key)
    }

    /// A task does not wait for such a lock any more.
    pub(crate) fn pi_forget(&mut self, tid: Tid) {
        let waits = self.pi_locks.iter().filter(|(_, lock)| lock.waiters.contains(&tid));
        let keys: Vec<FutexKey> = waits.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(lock) = self.pi_locks.get_mut(&key) {
                lock.waiters.retain(|waiter| *waiter != tid);
            }
            self.pi_drop_unwaited(key);
        }
    }

    /// Nobody waits for a lock, perhaps.
    fn pi_drop_unwaited(&mut self, key: FutexKey) {
        if self.pi_locks.get(&key).is_some_and(|lock| lock.waiters.is_empty() && !lock.passed_on) {
            self.pi_locks.remove(&key);
        }
    }

    /// A task waits for a lock that another one has.
    pub(super) fn pi_queue(&mut self, key: FutexKey, owner: Tid, tid: Tid) {
        let place = self.pi_locks.get(&key).and_then(|lock| self.place_by_urgency(&lock.waiters, tid));
        let lock = PiLock { owner, waiters: VecDeque::new(), passed_on: false };
        let waiters = &mut self.pi_locks.get_or_insert_with(key, || lock).waiters;
        waiters.insert(place.unwrap_or(waiters.len()), tid);
    }

    /// Gives a lock to the first that waits for it.
    fn pi_hand_over(&mut self, key: FutexKey, died: bool) -> Option<Tid> {
        let lock = self.pi_locks.get_mut(&key)?;
        let Some(next) = lock.waiters.pop_front() else {
            self.pi_locks.remove(&key);
            return None;
        };
        (lock.owner, lock.passed_on) = (next, died);
        self.pi_give(next, died);
        self.pi_drop_unwaited(key);
        Some(next)
    }

    /// A task that waits has the lock now.
    pub(super) fn pi_give(&mut self, tid: Tid, died: bool) {
        if let Some((sleeps, progress)) = self.progress_of(tid) {
            *progress = Progress::PiLock { owned: true, died };
            if sleeps {
                self.wake(tid, false);
            }
        }
    }

    /// The owner of a lock has written its word.
    fn pi_taken_over(&mut self, tid: Tid) {
        for key in self.pi_owned(tid) {
            if let Some(lock) = self.pi_locks.get_mut(&key) {
                lock.passed_on = false;
            }
            self.pi_drop_unwaited(key);
        }
    }

    /// The locks of a task that somebody waits for.
    fn pi_owned(&self, tid: Tid) -> Vec<FutexKey> {
        let owned = self.pi_locks.iter().filter(|(_, lock)| lock.owner == tid);
        owned.map(|(key, _)| *key).collect()
    }

    /// A task ends that waits for nothing any more: its locks go to those that wait for them (exit_pi_state_list).
    pub(crate) fn pi_exit(&mut self, tid: Tid) {
        for key in self.pi_owned(tid) {
            self.pi_hand_over(key, true);
        }
    }

    /// Whether a task that would wait for `owner` would wait for itself, directly or by way of others.
    pub(super) fn pi_deadlock(&self, mut owner: Tid, tid: Tid) -> bool {
        for _ in 0..self.pi_locks.len() + 1 {
            if owner == tid {
                return true;
            }
            let Some(lock) = self.pi_locks.values().find(|lock| lock.waiters.contains(&owner)) else { break };
            owner = lock.owner;
        }
        false
    }
}

/// FUTEX_LOCK_PI, FUTEX_LOCK_PI2; `deadline` is `None` for ever. EDEADLK, ESRCH for an owner that does not exist, ETIMEDOUT, EINVAL
/// where somebody waits at the word in another way.
pub(super) fn lock(k: &mut Ctx<'_>, uaddr: Ptr, deadline: Option<Deadline>, private: bool) -> SysResult {
    let key = k.futex_key_for(uaddr.0, private, Access::Write)?;
    let Attempt::Held(owner) = attempt(k, uaddr, key, k.tid, false)? else { return Ok(0) };
    if k.node.pi_deadlock(owner, k.tid) {
        return err(Errno::EDEADLK);
    }
    if deadline.is_some_and(|end| end.at <= k.now()) {
        return err(Errno::ETIMEDOUT);
    }
    k.node.pi_queue(key, owner, k.tid);
    let wait = Wait::on(WaitOn::Futex(key)).ends(deadline).restart(Restart::NoIntr);
    Err(wait.progress(Progress::PiLock { owned: false, died: false }).into())
}

/// FUTEX_TRYLOCK_PI. EAGAIN.
pub(super) fn trylock(k: &mut Ctx<'_>, uaddr: Ptr, private: bool) -> SysResult {
    let key = k.futex_key_for(uaddr.0, private, Access::Write)?;
    match attempt(k, uaddr, key, k.tid, false)? {
        Attempt::Taken => Ok(0),
        Attempt::Held(_) => err(Errno::EAGAIN),
    }
}

/// Takes a lock for a task if nobody has it, with FUTEX_WAITERS in its word if `waited`; else its word has that now, and the owner is told
/// (futex_lock_pi_atomic).
pub(super) fn attempt(
    k: &mut Ctx<'_>,
    uaddr: Ptr,
    key: FutexKey,
    tid: Tid,
    waited: bool,
) -> SysResult<Attempt> {
    let word: u32 = k.read_obj(uaddr)?;
    if word & TID == tid.number() {
        return err(Errno::EDEADLK);
    }
    if let Some(lock) = k.node.pi_locks.get(&key) {
        // "Bail out if user space manipulated the futex value": the word names the owner, or nobody if an owner has died and the next one
        // has not run yet (attach_to_pi_state).
        let named = word & TID == lock.owner.number() || word & TID == 0 && word & DIED != 0;
        return if named { Ok(Attempt::Held(lock.owner)) } else { err(Errno::EINVAL) };
    }
    // "Userspace might have messed up non-PI and PI futexes".
    if k.node.futexes.contains_key(&key) {
        return err(Errno::EINVAL);
    }
    if word & TID == 0 {
        let waiters = if waited { WAITERS } else { 0 };
        k.write_obj(uaddr, &(word & DIED | waiters | tid.number()))?;
        return Ok(Attempt::Taken);
    }
    // "Set the waiters bit before attaching ourself to the owner. [...] If that fails, no harm done".
    k.write_obj(uaddr, &(word | WAITERS))?;
    let owner = k.pid_ns().tid(word & TID);
    if !k.node.tasks.contains_key(&owner) {
        return err(Errno::ESRCH);
    }
    Ok(Attempt::Held(owner))
}

/// FUTEX_UNLOCK_PI. "EPERM The caller does not own the lock represented by the futex word." EINVAL where the kernel knows better, or somebody
/// waits at the word in another way.
pub(super) fn unlock(k: &mut Ctx<'_>, uaddr: Ptr, private: bool) -> SysResult {
    let word: u32 = k.read_obj(uaddr)?;
    if word & TID != k.tid.number() {
        return err(Errno::EPERM);
    }
    let key = k.futex_key_for(uaddr.0, private, Access::Write)?;
    let owner = k.node.pi_locks.get(&key).map(|lock| lock.owner);
    if owner.is_some_and(|owner| owner != k.tid) || owner.is_none() && k.node.futexes.contains_key(&key) {
        return err(Errno::EINVAL);
    }
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
        k.node.pi_taken_over(k.tid);
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
