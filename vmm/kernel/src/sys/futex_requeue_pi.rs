//! Waits for a condition whose end is the possession of a lock with an owner: FUTEX_WAIT_REQUEUE_PI, FUTEX_CMP_REQUEUE_PI (futex(2)).

use bloodhound_abi::Errno;

use super::futex_pi::{self, Attempt};
use crate::ctx::*;
use crate::ids::*;
use crate::mm::Access;
use crate::node::Node;
use crate::wait::{Deadline, FutexKey, Progress, Restart, SysResult, Wait, WaitOn};

/// FUTEX_WAIT_REQUEUE_PI. EAGAIN if the word does not hold the expected value, and where a signal comes after the move; one before it restarts
/// the call. ETIMEDOUT at any time.
pub(super) fn wait(
    k: &mut Ctx<'_>,
    uaddr: Ptr,
    val: u32,
    deadline: Option<Deadline>,
    uaddr2: Ptr,
    private: bool,
) -> SysResult {
    if uaddr == uaddr2 {
        return err(Errno::EINVAL);
    }
    let to = k.futex_key_for(uaddr2.0, private, Access::Write)?;
    let key = k.futex_key(uaddr.0, private)?;
    if k.read_obj::<u32>(uaddr)? != val {
        return err(Errno::EAGAIN);
    }
    if key == to {
        return err(Errno::EINVAL);
    }
    if deadline.is_some_and(|end| end.at <= k.now()) {
        return err(Errno::ETIMEDOUT);
    }
    if !k.node.signal_deliverable(k.tid) {
        k.node.futex_queue(key, k.tid);
    }
    let wait = Wait::on(WaitOn::Futex(key)).ends(deadline).restart(Restart::NoIntr);
    Err(wait.progress(Progress::ToPiLock(to)).into())
}

/// FUTEX_CMP_REQUEUE_PI: the first waiter gets the lock if nobody has it; it and up to `more` others wait for it otherwise. How many these were.
/// EINVAL at a waiter of another kind, or for another lock, where the move stops.
pub(super) fn requeue(
    k: &mut Ctx<'_>,
    uaddr: Ptr,
    (wake, more): (u32, u32),
    uaddr2: Ptr,
    expected: u32,
    private: bool,
) -> SysResult {
    // "FUTEX_CMP_REQUEUE_PI requires that [val] be 1": one can have the lock.
    if (more as i32) < 0 || uaddr == uaddr2 || wake != 1 {
        return err(Errno::EINVAL);
    }
    let from = k.futex_key(uaddr.0, private)?;
    let to = k.futex_key_for(uaddr2.0, private, Access::Write)?;
    if from == to {
        return err(Errno::EINVAL);
    }
    if k.read_obj::<u32>(uaddr)? != expected {
        return err(Errno::EAGAIN);
    }
    // Read although nobody may wait (futex_proxy_trylock_atomic).
    k.read_obj::<u32>(uaddr2)?;
    let Some(first) = k.node.next_to_move(from, to)? else { return Ok(0) };
    let mut moved = 0;
    let owner = match futex_pi::attempt(k, uaddr2, to, first, more != 0)? {
        Attempt::Taken => {
            k.node.futex_unqueue(from, first);
            k.node.pi_give(first, false);
            moved = 1;
            first
        }
        Attempt::Held(owner) => owner,
    };
    while moved < 1 + u64::from(more) {
        let Some(tid) = k.node.next_to_move(from, to)? else { break };
        if k.node.pi_deadlock(owner, tid) {
            return err(Errno::EDEADLK);
        }
        k.node.futex_unqueue(from, tid);
        k.node.pi_queue(to, owner, tid);
        k.node.now_waits_for_lock(tid);
        moved += 1;
    }
    Ok(moved)
}

impl Node {
    /// The first of those that wait at a word to be moved to a lock.
    fn next_to_move(&mut self, from: FutexKey, to: FutexKey) -> SysResult<Option<Tid>> {
        if self.pi_waited(from) {
            return err(Errno::EINVAL);
        }
        let Some(tid) = self.futexes.get(&from).and_then(|queue| queue.front().copied()) else {
            return Ok(None);
        };
        match self.progress_of(tid) {
            Some((_, Progress::ToPiLock(lock))) if *lock == to => Ok(Some(tid)),
            _ => err(Errno::EINVAL),
        }
    }

    /// A task's wait for a condition has become one for a lock. "We've already been requeued, but cannot restart by calling futex_lock_pi()
    /// directly. We could restart this syscall, but it would detect that the user space "val" changed and return -EWOULDBLOCK. Save the
    /// overhead of the restart and return -EWOULDBLOCK directly" (futex_wait_requeue_pi).
    fn now_waits_for_lock(&mut self, tid: Tid) {
        let Some((_, blocked)) = self.blocked_of(tid) else { return };
        blocked.progress = Progress::PiLock { owned: false, died: false };
        blocked.wait.restart = Restart::Partial(Errno::EAGAIN.as_ret());
    }
}

#[cfg(test)]
mod tests;
