//! Lock semantics through system calls: several processes on one file.

use crate::ctx::Outside;
use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Flock;
use bloodhound_abi::table::nr;
use zerocopy::IntoBytes;

use crate::dispatch::Outcome;
use crate::ids::*;
use crate::testing::Bench;

const READ: i16 = c::F_RDLCK as i16;
const WRITE: i16 = c::F_WRLCK as i16;
const NONE: i16 = c::F_UNLCK as i16;

fn args(b: &mut Bench, tid: Tid, kind: i16, start: i64, len: i64) -> u64 {
    let lock = Flock { kind, whence: c::SEEK_SET as i16, start, len, ..Flock::default() };
    b.put_as(tid, lock.as_bytes())
}

/// fcntl with a lock, as one process.
fn lock(b: &mut Bench, tid: Tid, fd: u64, cmd: u64, kind: i16, range: (i64, i64)) -> Result<u64, Errno> {
    let at = args(b, tid, kind, range.0, range.1);
    b.call_as(tid, nr::fcntl, &[fd, cmd, at])
}

/// The same, when it has to wait.
fn lock_waits(b: &mut Bench, tid: Tid, fd: u64, cmd: u64, kind: i16, range: (i64, i64)) {
    let at = args(b, tid, kind, range.0, range.1);
    assert_eq!(b.start(tid, nr::fcntl, &[fd, cmd, at]), Outcome::Blocked);
}

fn query(b: &mut Bench, tid: Tid, fd: u64, cmd: u64, kind: i16, range: (i64, i64)) -> Flock {
    let at = args(b, tid, kind, range.0, range.1);
    b.call_as(tid, nr::fcntl, &[fd, cmd, at]).unwrap();
    b.object(tid, at)
}

/// Two processes with a file open for reading and writing, each with a description of its own.
fn two() -> (Bench, (Tid, u64), (Tid, u64)) {
    let mut b = Bench::new();
    let child = b.fork();
    let first = b.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    let second = b.open_as(child, "/tmp/file", c::O_RDWR).unwrap();
    let tid = b.tid;
    (b, (tid, first), (child, second))
}

#[test]
fn record_locks_exclude_and_wake() {
    let (mut b, (one, x), (two, y)) = two();
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, WRITE, (0, 10)), Ok(0));
    assert_eq!(lock(&mut b, two, y, c::F_SETLK, READ, (5, 1)), Err(Errno::EAGAIN));
    assert_eq!(lock(&mut b, two, y, c::F_SETLK, WRITE, (10, 0)), Ok(0));
    let seen = query(&mut b, two, y, c::F_GETLK, READ, (0, 0));
    assert_eq!((seen.kind, seen.start, seen.len, seen.pid), (WRITE, 0, 10, 1));
    let free = query(&mut b, two, y, c::F_GETLK, READ, (20, 5));
    assert_eq!((free.kind, free.start, free.len, free.pid), (NONE, 20, 5, 0));

    lock_waits(&mut b, two, y, c::F_SETLKW, READ, (9, 1));
    // Unlocking another part wakes it for nothing: it sleeps again.
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, NONE, (0, 9)), Ok(0));
    assert!(!b.sleeps(two));
    let outcome = b.node.resume_syscall(two, &mut Outside::new(&mut b.base, &mut b.decisions));
    assert_eq!(outcome, Outcome::Blocked);
    // A read lock in place of the write lock is enough.
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, READ, (9, 1)), Ok(0));
    assert_eq!(b.resume(two), Ok(0));
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, WRITE, (9, 1)), Err(Errno::EAGAIN));
}

#[test]
fn ranges_follow_the_offset_and_may_be_negative() {
    let (mut b, (one, x), (two, y)) = two();
    b.call(nr::ftruncate, &[x, 100]).unwrap();
    b.call(nr::lseek, &[x, 50, c::SEEK_SET]).unwrap();
    let mut with = |whence: u64, start, len| {
        let lock = Flock { kind: WRITE, whence: whence as i16, start, len, ..Flock::default() };
        let at = b.put_as(one, lock.as_bytes());
        b.call_as(one, nr::fcntl, &[x, c::F_SETLK, at])
    };
    assert_eq!(with(c::SEEK_CUR, 0, -10), Ok(0));
    assert_eq!(with(c::SEEK_END, -5, 5), Ok(0));
    assert_eq!(with(c::SEEK_CUR, -51, 1), Err(Errno::EINVAL));
    assert_eq!(with(c::SEEK_SET, 5, -6), Err(Errno::EINVAL));
    assert_eq!(with(c::SEEK_SET, i64::MAX, 2), Err(Errno::EOVERFLOW));
    assert_eq!(with(9, 0, 1), Err(Errno::EINVAL));
    let seen = query(&mut b, two, y, c::F_GETLK, WRITE, (0, 0));
    assert_eq!((seen.start, seen.len), (40, 10));
    let seen = query(&mut b, two, y, c::F_GETLK, WRITE, (60, 0));
    assert_eq!((seen.start, seen.len), (95, 5));
}

#[test]
fn a_lock_needs_the_matching_open_mode() {
    let mut b = Bench::new();
    let tid = b.tid;
    let w = b.open("/tmp/file", c::O_WRONLY | c::O_CREAT).unwrap();
    let r = b.open("/tmp/file", c::O_RDONLY).unwrap();
    let p = b.open("/tmp/file", c::O_PATH).unwrap();
    assert_eq!(lock(&mut b, tid, r, c::F_SETLK, WRITE, (0, 0)), Err(Errno::EBADF));
    assert_eq!(lock(&mut b, tid, w, c::F_SETLK, READ, (0, 0)), Err(Errno::EBADF));
    assert_eq!(lock(&mut b, tid, p, c::F_SETLK, READ, (0, 0)), Err(Errno::EBADF));
    assert_eq!(lock(&mut b, tid, r, c::F_SETLK, 7, (0, 0)), Err(Errno::EINVAL));
    assert_eq!(lock(&mut b, tid, r, c::F_GETLK, NONE, (0, 0)), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::fcntl, &[r, c::F_SETLK, 8]), Err(Errno::EFAULT));
}

#[test]
fn closing_any_descriptor_drops_the_process_s_locks() {
    let (mut b, (one, x), (two, y)) = two();
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, WRITE, (0, 0)), Ok(0));
    lock_waits(&mut b, two, y, c::F_SETLKW, WRITE, (0, 0));
    // Another description of the same file, opened only to be closed.
    let other = b.open("/tmp/file", c::O_RDONLY).unwrap();
    b.call(nr::close, &[other]).unwrap();
    assert_eq!(b.resume(two), Ok(0));
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, READ, (0, 0)), Err(Errno::EAGAIN));
}

#[test]
fn an_exit_drops_locks() {
    let (mut b, (one, x), (two, y)) = two();
    assert_eq!(lock(&mut b, two, y, c::F_SETLK, WRITE, (0, 0)), Ok(0));
    assert_eq!(b.call_as(two, nr::flock, &[y, c::LOCK_EX]), Ok(0));
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, WRITE, (0, 0)), Err(Errno::EAGAIN));
    assert_eq!(b.start(two, nr::exit_group, &[0]), Outcome::Exited);
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, WRITE, (0, 0)), Ok(0));
    assert_eq!(b.call_as(one, nr::flock, &[x, c::LOCK_EX | c::LOCK_NB]), Ok(0));
}

#[test]
fn a_child_does_not_inherit_record_locks_but_flocks() {
    let mut b = Bench::new();
    let one = b.tid;
    let fd = b.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    assert_eq!(lock(&mut b, one, fd, c::F_SETLK, WRITE, (0, 0)), Ok(0));
    assert_eq!(b.call(nr::flock, &[fd, c::LOCK_EX]), Ok(0));
    let two = b.fork();
    assert_eq!(lock(&mut b, two, fd, c::F_SETLK, WRITE, (0, 0)), Err(Errno::EAGAIN));
    // The child has the parent's description: the flock is its own too, and it can drop it for both.
    assert_eq!(b.call_as(two, nr::flock, &[fd, c::LOCK_EX | c::LOCK_NB]), Ok(0));
    assert_eq!(b.call_as(two, nr::flock, &[fd, c::LOCK_UN]), Ok(0));
    let other = b.open_as(two, "/tmp/file", c::O_RDONLY).unwrap();
    assert_eq!(b.call_as(two, nr::flock, &[other, c::LOCK_EX | c::LOCK_NB]), Ok(0));
    assert_eq!(b.call(nr::flock, &[fd, c::LOCK_SH | c::LOCK_NB]), Err(Errno::EAGAIN));
}

#[test]
fn a_circle_is_refused() {
    let (mut b, (one, x), (two, y)) = two();
    let three = b.fork();
    let z = b.open_as(three, "/tmp/file", c::O_RDWR).unwrap();
    for (tid, fd, at) in [(one, x, 0), (two, y, 1), (three, z, 2)] {
        assert_eq!(lock(&mut b, tid, fd, c::F_SETLK, WRITE, (at, 1)), Ok(0));
    }
    lock_waits(&mut b, one, x, c::F_SETLKW, WRITE, (1, 1));
    lock_waits(&mut b, two, y, c::F_SETLKW, WRITE, (2, 1));
    assert_eq!(lock(&mut b, three, z, c::F_SETLKW, WRITE, (0, 1)), Err(Errno::EDEADLK));
    // Not a circle: nobody waits for the third's new lock.
    assert_eq!(lock(&mut b, three, z, c::F_SETLKW, WRITE, (3, 1)), Ok(0));
    // The circle is open again when the third gives way.
    assert_eq!(lock(&mut b, three, z, c::F_SETLK, NONE, (2, 1)), Ok(0));
    assert_eq!(b.resume(two), Ok(0));
    lock_waits(&mut b, three, z, c::F_SETLKW, WRITE, (0, 1));
}

#[test]
fn descriptions_own_ofd_locks() {
    let (mut b, (one, x), (two, y)) = two();
    let again = b.open("/tmp/file", c::O_RDWR).unwrap();
    assert_eq!(lock(&mut b, one, x, c::F_OFD_SETLK, WRITE, (0, 0)), Ok(0));
    // They conflict within a process and with record locks.
    assert_eq!(lock(&mut b, one, again, c::F_OFD_SETLK, READ, (0, 0)), Err(Errno::EAGAIN));
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, READ, (0, 0)), Err(Errno::EAGAIN));
    let seen = query(&mut b, two, y, c::F_GETLK, READ, (0, 0));
    assert_eq!((seen.kind, seen.pid), (WRITE, -1));
    let with_pid = Flock { kind: READ, pid: 1, ..Flock::default() };
    let at = b.put_as(one, with_pid.as_bytes());
    assert_eq!(b.call(nr::fcntl, &[x, c::F_OFD_SETLK, at]), Err(Errno::EINVAL));
    // Closing another description changes nothing, closing a duplicate neither; the last close ends it.
    b.call(nr::close, &[again]).unwrap();
    let dup = b.call(nr::dup, &[x]).unwrap();
    b.call(nr::close, &[x]).unwrap();
    lock_waits(&mut b, two, y, c::F_OFD_SETLKW, WRITE, (0, 0));
    b.call(nr::close, &[dup]).unwrap();
    assert_eq!(b.resume(two), Ok(0));
}

#[test]
fn flock_shares_converts_and_waits() {
    let (mut b, (one, x), (two, y)) = two();
    assert_eq!(b.call(nr::flock, &[x, c::LOCK_SH]), Ok(0));
    assert_eq!(b.call_as(two, nr::flock, &[y, c::LOCK_SH]), Ok(0));
    // A conversion that fails loses the lock that was there.
    assert_eq!(b.call(nr::flock, &[x, c::LOCK_EX | c::LOCK_NB]), Err(Errno::EAGAIN));
    assert_eq!(b.call_as(two, nr::flock, &[y, c::LOCK_EX | c::LOCK_NB]), Ok(0));
    assert_eq!(b.start(one, nr::flock, &[x, c::LOCK_SH]), Outcome::Blocked);
    assert_eq!(b.call_as(two, nr::flock, &[y, c::LOCK_SH]), Ok(0));
    assert_eq!(b.resume(one), Ok(0));
    assert_eq!(b.call(nr::flock, &[x, 3]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::flock, &[99, c::LOCK_SH]), Err(Errno::EBADF));
    // flock and record locks do not see each other.
    assert_eq!(lock(&mut b, one, x, c::F_SETLK, WRITE, (0, 0)), Ok(0));
    assert_eq!(b.content("/proc/locks").unwrap().lines().count(), 3);
}
