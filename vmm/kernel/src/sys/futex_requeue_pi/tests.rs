//! Moves of waiters to a lock: who gets it, and what signals and deaths do in between.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Sigaction, Timespec};
use bloodhound_abi::table::nr;
use zerocopy::IntoBytes;

use crate::dispatch::Outcome;
use crate::ids::*;
use crate::testing::Bench;

const WAITERS: u32 = c::FUTEX_WAITERS as u32;
const DIED: u32 = c::FUTEX_OWNER_DIED as u32;

/// A process with a handler for SIGUSR1, two more threads, and two words: a condition and a lock.
struct Setting {
    b: Bench,
    threads: [Tid; 2],
    condition: u64,
    lock: u64,
}

impl Setting {
    fn new() -> Setting {
        let mut b = Bench::new();
        let action = Sigaction { handler: 0x40_0000, ..Sigaction::default() };
        let at = b.put_as(b.tid, action.as_bytes());
        b.call(nr::rt_sigaction, &[c::SIGUSR1, at, 0, 8]).expect("rt_sigaction");
        let flags = c::CLONE_VM | c::CLONE_FS | c::CLONE_FILES | c::CLONE_SIGHAND | c::CLONE_THREAD;
        let threads = [(); 2].map(|()| {
            let stack = b.room(64);
            Tid(b.call(nr::clone, &[flags, stack, 0, 0, 0]).expect("a thread") as u32)
        });
        let [condition, lock] = [(); 2].map(|()| b.put_as(b.tid, &[0; 4]));
        Setting { b, threads, condition, lock }
    }

    fn word(&mut self) -> u32 {
        self.b.object(self.b.tid, self.lock)
    }

    fn waits(&mut self, tid: Tid, end: u64) {
        let args = [self.condition, c::FUTEX_WAIT_REQUEUE_PI, 0, end, self.lock, 0];
        assert_eq!(self.b.start(tid, nr::futex, &args), Outcome::Blocked);
    }

    fn moves(&mut self, more: u64) -> Result<u64, Errno> {
        self.b.call(nr::futex, &[self.condition, c::FUTEX_CMP_REQUEUE_PI, 1, more, self.lock, 0])
    }

    fn on_lock(&mut self, tid: Tid, op: u64) -> Result<u64, Errno> {
        self.b.call_as(tid, nr::futex, &[self.lock, op, 0, 0, 0, 0])
    }

    fn signal(&mut self, tid: Tid) {
        let info = crate::signal::user_info(c::SIGUSR1 as u32, c::SI_TKILL as i32, Pid(self.b.tid.0), 0);
        self.b.node.send_task(tid, info);
    }
}

#[test]
fn a_free_lock_goes_to_the_first_and_others_wait_for_it() {
    let mut s = Setting::new();
    let [one, two] = s.threads;
    s.waits(one, 0);
    s.waits(two, 0);
    assert_eq!(s.moves(5), Ok(2));
    assert_eq!(s.word(), one.0 | WAITERS);
    assert_eq!(s.b.resume(one), Ok(0));
    assert!(s.b.sleeps(two));
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_WAKE), Err(Errno::EINVAL));
    assert_eq!(s.on_lock(one, c::FUTEX_UNLOCK_PI), Ok(0));
    assert_eq!(s.word(), two.0 | WAITERS);
    assert_eq!(s.b.resume(two), Ok(0));
    assert_eq!(s.on_lock(two, c::FUTEX_UNLOCK_PI), Ok(0));
    assert_eq!(s.word(), 0);
    assert!(s.b.node.futexes.is_empty() && s.b.node.pi_locks.is_empty());
}

#[test]
fn a_signal_restarts_the_wait_and_fails_it_after_the_move() {
    let mut s = Setting::new();
    let [one, two] = s.threads;
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_LOCK_PI), Ok(0));
    s.waits(one, 0);
    s.signal(one);
    assert_eq!(s.b.resume(one), Err(Errno(513)), "ERESTARTNOINTR");
    assert!(s.b.node.futexes.is_empty());
    s.waits(two, 0);
    assert_eq!(s.moves(0), Ok(1));
    s.b.node.wake_spuriously(two);
    let before = s.b.node.clone();
    let outcome = {
        let outside = &mut crate::ctx::Outside::new(&mut s.b.base, &mut s.b.decisions);
        s.b.node.resume_syscall(two, outside)
    };
    assert_eq!(outcome, Outcome::Blocked);
    assert_eq!(s.b.node.pi_locks, before.pi_locks);
    s.signal(two);
    assert_eq!(s.b.resume(two), Err(Errno::EAGAIN));
    assert!(s.b.node.pi_locks.is_empty());
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_UNLOCK_PI), Ok(0));
}

#[test]
fn who_was_moved_after_a_signal_came_fails_as_well() {
    let mut s = Setting::new();
    let [one, _] = s.threads;
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_LOCK_PI), Ok(0));
    s.waits(one, 0);
    s.signal(one);
    assert_eq!(s.moves(0), Ok(1));
    assert_eq!(s.b.resume(one), Err(Errno::EAGAIN));
    // But not who has the lock by then.
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_UNLOCK_PI), Ok(0));
    assert!(s.b.node.take_pending(one, u64::MAX).is_some());
    s.waits(one, 0);
    s.signal(one);
    assert_eq!(s.moves(0), Ok(1));
    assert_eq!(s.b.resume(one), Ok(0));
    assert_eq!(s.word(), one.0);
}

#[test]
fn deadlines_hold_before_and_after_the_move() {
    for moved in [false, true] {
        let mut s = Setting::new();
        let [one, _] = s.threads;
        assert_eq!(s.on_lock(s.b.tid, c::FUTEX_LOCK_PI), Ok(0));
        let at = s.b.room(16);
        s.b.call(nr::clock_gettime, &[1, at]).expect("the time");
        let [sec, nsec]: [i64; 2] = s.b.object(s.b.tid, at);
        let end = Timespec { sec: sec + 1, nsec };
        let end = s.b.put_as(s.b.tid, end.as_bytes());
        s.waits(one, end);
        if moved {
            assert_eq!(s.moves(0), Ok(1));
        }
        s.b.node.clock = s.b.node.clock.after(2_000_000_000);
        s.b.node.on_time();
        assert_eq!(s.b.resume(one), Err(Errno::ETIMEDOUT));
        assert!(s.b.node.futexes.is_empty() && s.b.node.pi_locks.is_empty());
    }
}

#[test]
fn a_lock_that_a_death_passes_on_is_nobody_elses() {
    let mut s = Setting::new();
    let [one, two] = s.threads;
    assert_eq!(s.on_lock(one, c::FUTEX_LOCK_PI), Ok(0));
    s.waits(two, 0);
    assert_eq!(s.moves(0), Ok(1));
    assert_eq!(s.b.start(one, nr::exit, &[0]), Outcome::Exited);
    // The next owner has not run: as long as the word says nothing of a death, it fits nobody.
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_TRYLOCK_PI), Err(Errno::EINVAL));
    assert_eq!(s.b.resume(two), Ok(0));
    assert_eq!(s.word(), two.0 | WAITERS | DIED);
    assert!(s.b.node.pi_locks.is_empty());
    assert_eq!(s.on_lock(s.b.tid, c::FUTEX_TRYLOCK_PI), Err(Errno::EAGAIN));
}
