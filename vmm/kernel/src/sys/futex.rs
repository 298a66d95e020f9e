//! futex(2), set_robust_list(2), membarrier(2).

use std::collections::VecDeque;

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Timespec;
use bloodhound_abi::{Errno, SimTime};

use super::{futex_pi, futex_requeue_pi};
use crate::ctx::*;
use crate::ids::*;
use crate::mm::{Access, Backing, PAGE, TASK_SIZE};
use crate::node::Node;
use crate::wait::{Deadline, FutexKey, Progress, Restart, SysResult, Wait, WaitOn};

impl Node {
    /// A task stops waiting for whatever futex it was queued on.
    pub(crate) fn futex_forget(&mut self, tid: Tid) {
        self.pi_forget(tid);
        let queued = self.futexes.iter().filter(|(_, queue)| queue.contains(&tid));
        let keys: Vec<FutexKey> = queued.map(|(key, _)| *key).collect();
        for key in keys {
            self.futex_unqueue(key, tid);
        }
    }

    /// A task begins to wait at a futex: behind those of its priority of real time, before those of lower ones (the queues of
    /// Linux's futexes are `plist`s).
    pub(crate) fn futex_queue(&mut self, key: FutexKey, tid: Tid) {
        let at = self.futexes.get(&key).and_then(|queue| self.place_by_urgency(queue, tid));
        let queue = self.futexes.get_or_default(key);
        queue.insert(at.unwrap_or(queue.len()), tid);
    }

    /// Where a task stands in a queue that goes by priority; `None` for the end.
    pub(crate) fn place_by_urgency(&self, queue: &VecDeque<Tid>, tid: Tid) -> Option<usize> {
        let urgency = |tid: &Tid| self.tasks.get(tid).map_or(0, |task| task.urgency());
        let mine = urgency(&tid);
        if mine == 0 { None } else { queue.iter().position(|other| urgency(other) < mine) }
    }

    /// Wakes up to `count` waiters whose bit sets meet `bitset`, first come first. EINVAL at one that waits for a lock with an owner, or
    /// to be moved to one ("if (this->pi_state || this->rt_waiter)", futex_wake): those before it are awake.
    pub(crate) fn futex_wake(&mut self, key: FutexKey, count: u64, bitset: u32) -> Result<u64, Errno> {
        if count > 0 && self.pi_waited(key) {
            return Err(Errno::EINVAL);
        }
        let Some(queue) = self.futexes.get(&key).cloned() else { return Ok(0) };
        let mut woken = 0;
        for tid in queue {
            if woken == count {
                break;
            }
            // A signal or its deadline may have ended its sleep; as long as its call has not run it stands in the queue, and a
            // wake-up takes it from there (futex_unqueue tells it so).
            let Some((sleeps, progress)) = self.progress_of(tid) else { continue };
            match progress {
                Progress::Futex { woken: flag, bitset: mask } if *mask & bitset != 0 => *flag = true,
                Progress::ToPiLock(_) => return Err(Errno::EINVAL),
                Progress::Futexes(words) => {
                    let Some((_, flag)) = words.iter_mut().find(|(at, woken)| *at == key && !woken) else {
                        continue;
                    };
                    *flag = true;
                }
                _ => continue,
            }
            woken += 1;
            self.futex_unqueue(key, tid);
            if sleeps {
                self.wake(tid, false);
            }
        }
        Ok(woken)
    }

    /// Takes a task out of the queue of one futex.
    pub(super) fn futex_unqueue(&mut self, key: FutexKey, tid: Tid) {
        let Some(queue) = self.futexes.get_mut(&key) else { return };
        queue.retain(|waiter| *waiter != tid);
        if queue.is_empty() {
            self.futexes.remove(&key);
        }
    }

    /// Moves up to `count` waiters from one word to another (FUTEX_REQUEUE). EINVAL at one that waits for another kind of move.
    fn futex_requeue(&mut self, from: FutexKey, to: FutexKey, count: u64) -> Result<u64, Errno> {
        if count > 0 && self.pi_waited(from) {
            return Err(Errno::EINVAL);
        }
        let mut moved = 0;
        // Each waiter once, also where both words are one (plist_for_each_entry_safe).
        let queue = self.futexes.get(&from).cloned().unwrap_or_default();
        for tid in queue {
            if moved == count {
                break;
            }
            if matches!(self.progress_of(tid), Some((_, Progress::ToPiLock(_)))) {
                return Err(Errno::EINVAL);
            }
            self.futex_unqueue(from, tid);
            self.futex_queue(to, tid);
            if let Some((_, Progress::Futexes(words))) = self.progress_of(tid)
                && let Some((key, _)) = words.iter_mut().find(|(key, woken)| *key == from && !woken)
            {
                *key = to;
            }
            moved += 1;
        }
        Ok(moved)
    }
}

impl Ctx<'_> {
    /// The identity of the word at `addr` (get_futex_key).
    pub(crate) fn futex_key(&mut self, addr: u64, private: bool) -> SysResult<FutexKey> {
        self.futex_key_for(addr, private, Access::Read)
    }

    /// The same of a word that is written (FUTEX_WRITE of get_futex_key) if so.
    pub(super) fn futex_key_for(&mut self, addr: u64, private: bool, access: Access) -> SysResult<FutexKey> {
        if !addr.is_multiple_of(4) {
            return err(Errno::EINVAL);
        }
        let mm = self.process().mm;
        // What is private is its address; whether anything is there shows where the word is read ("NULL is fine for private futexes",
        // get_futex_key).
        if private {
            let user = addr < TASK_SIZE;
            return if user { Ok(FutexKey::Private(mm, addr)) } else { err(Errno::EFAULT) };
        }
        let vma = self.node.mms[mm].check(addr, access).map_err(|_| Errno::EFAULT)?;
        let (into, writable) = (addr - vma.start, vma.prot & c::PROT_WRITE != 0);
        let (backing, shared) = (vma.backing.clone(), vma.shared);
        // What counts is the page: behind the end of a file or an object there is none.
        self.node.copy_from_user(mm, addr, &mut [0; 4])?;
        let own = self.node.mms[mm].pages.get(addr / PAGE).is_some();
        Ok(match backing {
            Backing::Shm { id, offset } => FutexKey::Shm(id, offset + into),
            Backing::File { ino, offset } if shared => FutexKey::File(ino, offset + into),
            // It is asked for as for a store (FOLL_WRITE), which makes a copy.
            Backing::File { .. } if writable => {
                if !own {
                    self.node.poke(self.tid, addr, &[])?;
                }
                FutexKey::Anonymous(mm, addr)
            }
            // "Try and get read-only access": the page of the file, as long as there was no copy.
            Backing::File { ino, offset } if !own => FutexKey::File(ino, offset + into),
            Backing::Anon if writable => FutexKey::Anonymous(mm, addr),
            // "A RO anonymous page will never change and thus doesn't make sense for futex operations", nor does the page of zeros; and
            // pages of the kernel are "cases which we are happy to fail".
            _ => return err(Errno::EFAULT),
        })
    }

    fn futex_wait(
        &mut self,
        uaddr: Ptr,
        val: u32,
        deadline: Option<Deadline>,
        bitset: u32,
        private: bool,
        restart: Restart,
    ) -> SysResult {
        if bitset == 0 {
            return err(Errno::EINVAL);
        }
        let key = self.futex_key(uaddr.0, private)?;
        let current: u32 = self.read_obj(uaddr)?;
        if current != val {
            return err(Errno::EAGAIN);
        }
        if deadline.is_some_and(|end| end.at <= self.now()) {
            return err(Errno::ETIMEDOUT);
        }
        if self.wakes_for_nothing() {
            return Ok(0);
        }
        if !self.node.signal_deliverable(self.tid) {
            self.node.futex_queue(key, self.tid);
        }
        let wait = Wait::on(WaitOn::Futex(key)).ends(deadline).restart(restart);
        Err(wait.progress(Progress::Futex { woken: false, bitset }).into())
    }

    /// The end of a sleep in a futex wait, whatever the word holds now.
    fn futex_woken(&mut self) -> Option<SysResult> {
        let sleep = self.sleep_on()?;
        if matches!(self.progress(), Some(Progress::Futex { woken: true, .. })) {
            return Some(Ok(0));
        }
        if self.timed_out() {
            self.node.futex_forget(self.tid);
            return Some(err(Errno::ETIMEDOUT));
        }
        // Woken for nothing: it sleeps on at the same place of the queue.
        Some(sleep)
    }
}

const FUTEX_LOCK_PI2: u64 = 13;
/// Entries of a list of locks that the end of a thread looks at.
const ROBUST_LIST_LIMIT: u32 = 2048;

/// How many waiters a wake-up means, which looks at its int after it has woken one ("if (++ret >= nr_wake)").
fn count_of(val: u32) -> u64 {
    (val as i32).max(1) as u64
}

/// futex(2). EAGAIN if the word does not hold the expected value; ETIMEDOUT; ENOSYS for commands that there are none of.
pub fn futex(
    k: &mut Ctx<'_>,
    uaddr: Ptr,
    op: FutexOp,
    val: u32,
    timeout: Ptr,
    uaddr2: Ptr,
    val3: u32,
) -> SysResult {
    let cmd = op.command();
    let lock = if cmd == c::FUTEX_WAIT_REQUEUE_PI { uaddr2 } else { uaddr };
    if let Some(end) = futex_pi::woken(k, lock).or_else(|| k.futex_woken()) {
        return end;
    }
    let private = op.contains(FutexOp::FUTEX_PRIVATE_FLAG);
    let realtime = op.contains(FutexOp::FUTEX_CLOCK_REALTIME);
    let any = c::FUTEX_BITSET_MATCH_ANY as u32;
    // The timeout of a command that has one is read before anything else is looked at (futex_cmd_has_timeout).
    let ns = if has_timeout(cmd) { k.read_timeout(timeout)? } else { None };
    // "ENOSYS The FUTEX_CLOCK_REALTIME option was specified in futex_op, but the accompanying operation is neither
    // FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, nor FUTEX_LOCK_PI2."
    if realtime && !matches!(cmd, c::FUTEX_WAIT_BITSET | c::FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2) {
        return err(Errno::ENOSYS);
    }
    match cmd {
        c::FUTEX_WAIT => {
            let restart = restart_of(ns);
            let deadline = k.deadline(ns).map(|at| Deadline { at, wall: false });
            k.futex_wait(uaddr, val, deadline, any, private, restart)
        }
        c::FUTEX_WAIT_BITSET => {
            // "the timeout is interpreted as an absolute time"
            let deadline = ns.map(|ns| k.clock_deadline(ns, realtime));
            k.futex_wait(uaddr, val, deadline, val3, private, restart_of(ns))
        }
        c::FUTEX_WAKE => {
            let key = k.futex_key(uaddr.0, private)?;
            Ok(k.node.futex_wake(key, count_of(val), any)?)
        }
        c::FUTEX_WAKE_BITSET => {
            if val3 == 0 {
                return err(Errno::EINVAL);
            }
            let key = k.futex_key(uaddr.0, private)?;
            Ok(k.node.futex_wake(key, count_of(val), val3)?)
        }
        c::FUTEX_REQUEUE => requeue(k, uaddr, (val, timeout.0 as u32), uaddr2, None, private),
        c::FUTEX_CMP_REQUEUE => requeue(k, uaddr, (val, timeout.0 as u32), uaddr2, Some(val3), private),
        c::FUTEX_WAKE_OP => wake_op(k, uaddr, val, timeout, uaddr2, val3, private),
        c::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            // The clock of FUTEX_LOCK_PI is CLOCK_REALTIME, whatever the flag says.
            let realtime = realtime || cmd == c::FUTEX_LOCK_PI;
            let deadline = ns.map(|ns| k.clock_deadline(ns, realtime));
            futex_pi::lock(k, uaddr, deadline, private)
        }
        c::FUTEX_TRYLOCK_PI => futex_pi::trylock(k, uaddr, private),
        c::FUTEX_UNLOCK_PI => futex_pi::unlock(k, uaddr, private),
        c::FUTEX_WAIT_REQUEUE_PI => {
            let deadline = ns.map(|ns| k.clock_deadline(ns, realtime));
            futex_requeue_pi::wait(k, uaddr, val, deadline, uaddr2, private)
        }
        c::FUTEX_CMP_REQUEUE_PI => {
            futex_requeue_pi::requeue(k, uaddr, (val, timeout.0 as u32), uaddr2, val3, private)
        }
        _ => err(Errno::ENOSYS),
    }
}

/// FUTEX_REQUEUE, FUTEX_CMP_REQUEUE. EINVAL for negative counts.
fn requeue(
    k: &mut Ctx<'_>,
    uaddr: Ptr,
    (wake, move_on): (u32, u32),
    uaddr2: Ptr,
    expected: Option<u32>,
    private: bool,
) -> SysResult {
    if (wake as i32) < 0 || (move_on as i32) < 0 {
        return err(Errno::EINVAL);
    }
    let (from, to) = (k.futex_key(uaddr.0, private)?, k.futex_key(uaddr2.0, private)?);
    if let Some(expected) = expected
        && k.read_obj::<u32>(uaddr)? != expected
    {
        return err(Errno::EAGAIN);
    }
    let woken = k.node.futex_wake(from, u64::from(wake), u32::MAX)?;
    Ok(woken + k.node.futex_requeue(from, to, u64::from(move_on))?)
}

/// The commands of which the fourth argument is a timeout.
fn has_timeout(cmd: u64) -> bool {
    let also = [c::FUTEX_LOCK_PI, FUTEX_LOCK_PI2, c::FUTEX_WAIT_REQUEUE_PI];
    cmd == c::FUTEX_WAIT || cmd == c::FUTEX_WAIT_BITSET || also.contains(&cmd)
}

/// A wait with a timeout fails with EINTR after a handler, whatever SA_RESTART says (the kernel's futex_wait).
fn restart_of(timeout: Option<u64>) -> Restart {
    if timeout.is_some() { Restart::Block } else { Restart::Sys }
}

/// FUTEX_WAKE_OP as futex(2) writes it out.
fn wake_op(
    k: &mut Ctx<'_>,
    uaddr: Ptr,
    val: u32,
    val2: Ptr,
    uaddr2: Ptr,
    val3: u32,
    private: bool,
) -> SysResult {
    let key = k.futex_key(uaddr.0, private)?;
    let key2 = k.futex_key_for(uaddr2.0, private, Access::Write)?;
    let (op, cmp) = ((val3 >> 28) & 0xf, (val3 >> 24) & 0xf);
    let sign = |v: u32| ((v << 20) as i32) >> 20;
    let (mut oparg, cmparg) = (sign((val3 >> 12) & 0xfff), sign(val3 & 0xfff));
    if op & 8 != 0 {
        oparg = 1 << (oparg & 31);
    }
    // An operation that there is none of leaves the word alone, whether it can be read or not (arch_futex_atomic_op_inuser).
    if op & 7 > 4 {
        return err(Errno::ENOSYS);
    }
    let old: u32 = k.read_obj(uaddr2)?;
    let new = match op & 7 {
        0 => oparg as u32,
        1 => old.wrapping_add(oparg as u32),
        2 => old | oparg as u32,
        3 => old & !(oparg as u32),
        _ => old ^ oparg as u32,
    };
    k.write_obj(uaddr2, &new)?;
    let signed = old as i32;
    let hit = match cmp {
        0 => signed == cmparg,
        1 => signed != cmparg,
        2 => signed < cmparg,
        3 => signed <= cmparg,
        4 => signed > cmparg,
        5 => signed >= cmparg,
        _ => return err(Errno::ENOSYS),
    };
    let mut woken = k.node.futex_wake(key, count_of(val), u32::MAX)?;
    if hit {
        woken += k.node.futex_wake(key2, count_of(val2.0 as u32), u32::MAX)?;
    }
    Ok(woken)
}

/// set_robust_list(2). EINVAL for a head of another size than that of this architecture.
pub fn set_robust_list(k: &mut Ctx<'_>, head: Ptr, len: u64) -> SysResult {
    if len != 24 {
        return err(Errno::EINVAL);
    }
    k.task_mut().robust_list = head.0;
    Ok(0)
}

/// get_robust_list(2). EPERM for threads of other users.
pub fn get_robust_list(k: &mut Ctx<'_>, pid: i32, head: Ptr, len: Ptr) -> SysResult {
    let tid = if pid == 0 { k.tid } else { k.pid_ns().tid(pid as u32) };
    let task = k.node.tasks.get(&tid).ok_or(Errno::ESRCH)?;
    // "EPERM The calling process does not have permission to see the robust futex list": PTRACE_MODE_READ_REALCREDS.
    if !k.may_attach(tid) {
        return err(Errno::EPERM);
    }
    let list = task.robust_list;
    k.write_obj(head, &list)?;
    k.write_obj(len, &24u64)?;
    Ok(0)
}

/// membarrier(2). EINVAL for unknown commands.
pub fn membarrier(k: &mut Ctx<'_>, cmd: u32, flags: Hex, _cpu: i32) -> SysResult {
    // MEMBARRIER_CMD_FLAG_CPU goes with the commands about restartable sequences, which there are not.
    if flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    // One CPU: every barrier has happened. QUERY lists GLOBAL, the expedited kinds and their registrations.
    let mm = k.process().mm;
    let registered = &mut k.node.mms[mm].membarrier;
    match cmd {
        0 => Ok(0x7f),
        // GLOBAL, GLOBAL_EXPEDITED and its registration, which only says who wants to be reached.
        1 | 2 | 4 => Ok(0),
        // "EPERM: The operation was a MEMBARRIER_CMD_PRIVATE_EXPEDITED [or its SYNC_CORE], and the caller has not previously
        // registered" (membarrier(2)); each command stands before its registration.
        8 | 32 if *registered & cmd << 1 == 0 => err(Errno::EPERM),
        8 | 32 => Ok(0),
        16 | 64 => {
            *registered |= cmd;
            Ok(0)
        }
        _ => err(Errno::EINVAL),
    }
}

impl Ctx<'_> {
    /// A timespec that may be NULL, as it was when the call began; EINVAL if malformed.
    pub(crate) fn read_timeout(&mut self, ptr: Ptr) -> SysResult<Option<u64>> {
        if self.resumed.is_none() && !ptr.is_null() {
            let ts: Timespec = self.read_obj(ptr)?;
            self.timeout = Some(ts.to_ns().ok_or(Errno::EINVAL)?);
        }
        Ok(self.timeout)
    }

    /// An absolute time of a clock in the machine's own time.
    pub(crate) fn clock_deadline(&self, ns: u64, wall: bool) -> Deadline {
        Deadline { at: SimTime(u64::try_from(self.own_deadline(ns, wall)).unwrap_or(0)), wall }
    }

    /// A time of CLOCK_REALTIME or CLOCK_MONOTONIC in the machine's own time, ns; it may be before the beginning of that.
    pub(crate) fn own_deadline(&self, ns: u64, realtime: bool) -> i128 {
        let ahead =
            if realtime { i128::from(self.node.time.offset()) } else { i128::from(self.node.time.boot()) };
        i128::from(ns) - ahead
    }

    /// The end of a thread: futex words in its robust list get FUTEX_OWNER_DIED (get_robust_list(2)).
    pub(crate) fn exit_robust_list(&mut self) {
        let head = self.task().robust_list;
        if head == 0 {
            return;
        }
        let mut fetch = |at: u64| self.read_obj::<u64>(Ptr(at)).ok();
        // list_op_pending: "the pointer to the entry about to be added or removed": its lock may be held already, or still.
        let words = [0, 8, 16].map(|at| fetch(head.wrapping_add(at)));
        let [Some(mut entry), Some(offset), Some(pending)] = words else { return };
        for _ in 0..ROBUST_LIST_LIMIT {
            if entry & !1 == head {
                break;
            }
            // Before the lock's word is changed, with which the entry is somebody else's.
            let next = self.read_obj::<u64>(Ptr(entry & !1)).ok();
            if entry & !1 != pending & !1 && !self.owner_died(entry, offset, false) {
                return;
            }
            let Some(next) = next else { return };
            entry = next;
        }
        if pending & !1 != 0 {
            self.owner_died(pending, offset, true);
        }
    }

    /// Wakes one that waits at a word and does not say that it is private.
    pub(super) fn wake_one(&mut self, word: u64) {
        if let Ok(key) = self.futex_key(word, false) {
            // A lock with an owner goes to the next by itself ([`Node::pi_exit`]).
            let _ = self.node.futex_wake(key, 1, u32::MAX);
        }
    }

    /// Marks the word of a lock whose owner ends, if it is the caller. The lowest bit of the entry says that it is one with an owner. Whether
    /// the word can be read and written (handle_futex_death).
    fn owner_died(&mut self, entry: u64, offset: u64, pending: bool) -> bool {
        let (word, pi) = ((entry & !1).wrapping_add(offset), entry & 1 != 0);
        if !word.is_multiple_of(4) {
            return false;
        }
        let Ok(value) = self.read_obj::<u32>(Ptr(word)) else { return false };
        // Nobody owns it: it was unlocked and perhaps nobody has been woken yet, or its owner died and it was the caller that has been woken, who
        // does not take it any more. Then the next one is told (handle_futex_death of Linux 6.1.2 and later).
        if pending && !pi && value & c::FUTEX_TID_MASK as u32 == 0 {
            self.wake_one(word);
            return true;
        }
        if value & c::FUTEX_TID_MASK as u32 != self.tid.number() {
            return true;
        }
        let waited = value & c::FUTEX_WAITERS as u32;
        if self.write_obj(Ptr(word), &(waited | c::FUTEX_OWNER_DIED as u32)).is_err() {
            return false;
        }
        if !pi && waited != 0 {
            self.wake_one(word);
        }
        true
    }
}
