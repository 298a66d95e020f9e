//! Locks of files: against a list that is walked, and how many are counted.

use super::*;

const INO: Ino = Ino(7);

fn lock(pid: u32, start: u64, end: u64, exclusive: bool) -> Request {
    Request {
        owner: Owner::Table(TableId(pid)),
        pid: Pid(pid),
        container: ContainerId(pid),
        start,
        end,
        exclusive,
    }
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
    assert!(locks.cut(INO, Owner::Table(TableId(1)), 10, 19));
    assert_eq!(held(&locks), [(0, 9, true), (20, 99, true)]);
    // Adjacent ranges join, also at the largest offset.
    locks.set(INO, lock(1, 10, 19, true));
    locks.set(INO, lock(1, 100, Request::TO_END, true));
    assert_eq!(held(&locks), [(0, Request::TO_END, true)]);
    assert!(locks.cut(INO, Owner::Table(TableId(1)), 0, Request::TO_END));
    assert!(!locks.cut(INO, Owner::Table(TableId(1)), 0, Request::TO_END));
    assert_eq!(held(&locks), []);
}

#[test]
fn readers_share_and_writers_do_not() {
    let mut locks = Locks::default();
    locks.set(INO, lock(1, 0, 9, false));
    locks.set(INO, lock(2, 5, 14, false));
    assert_eq!(locks.conflict(INO, &lock(3, 0, 3, false)), None);
    assert_eq!(locks.conflict(INO, &lock(3, 12, 12, true)).map(|l| l.owner), Some(Owner::Table(TableId(2))));
    // Own locks never stand in the way.
    assert_eq!(locks.conflict(INO, &lock(1, 0, 3, true)), None);
    assert_eq!(locks.conflict(INO, &lock(1, 0, 9, true)).map(|l| l.owner), Some(Owner::Table(TableId(2))));
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

/// What the locks do, as a list that is walked: one entry for each byte and owner.
#[derive(Default)]
struct Bytes(BTreeMap<(u64, u32), bool>);

impl Bytes {
    fn conflicts(&self, want: &Request, pid: u32) -> bool {
        let others = self.0.iter().filter(|((at, of), _)| *of != pid && (want.start..=want.end).contains(at));
        others.into_iter().any(|(_, exclusive)| want.exclusive || *exclusive)
    }
}

#[test]
fn locks_are_what_a_list_of_bytes_says() {
    let (mut locks, mut bytes) = (Locks::default(), Bytes::default());
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..4000 {
        let (pid, start) = (draw(4) as u32, draw(24));
        let want = lock(pid, start, start + draw(6), draw(2) == 0);
        assert_eq!(locks.conflict(INO, &want).is_some(), bytes.conflicts(&want, pid), "{want:?}");
        let range = want.start..=want.end;
        if draw(3) == 0 {
            locks.cut(INO, want.owner, want.start, want.end);
            bytes.0.retain(|(at, of), _| *of != pid || !range.contains(at));
        } else if !bytes.conflicts(&want, pid) {
            locks.set(INO, want);
            bytes.0.extend(range.map(|at| ((at, pid), want.exclusive)));
        }
        let all: Vec<Request> = locks.range_locks().map(|(_, lock)| lock).collect();
        let held = all.iter().flat_map(|l| (l.start..=l.end).map(|at| ((at, l.pid.0), l.exclusive)));
        assert_eq!(held.collect::<BTreeMap<_, _>>(), bytes.0);
        for (container, count) in locks.counts() {
            assert_eq!(all.iter().filter(|l| l.container == container).count() as u64, count);
        }
    }
}

#[test]
fn many_locks_are_no_long_walk() {
    let mut locks = Locks::default();
    for at in 0..200_000 {
        let want = lock(1, at * 2, at * 2, true);
        assert_eq!(locks.conflict(INO, &want), None);
        locks.set(INO, want);
    }
    assert_eq!(locks.conflict(INO, &lock(2, 7, 399_000, false)).map(|l| l.start), Some(8));
    assert_eq!(locks.counts().collect::<Vec<_>>(), [(ContainerId(1), 200_000)]);
    assert!(locks.cut(INO, Owner::Table(TableId(1)), 0, Request::TO_END));
    assert_eq!(locks.counts().collect::<Vec<_>>(), [(ContainerId(1), 0)]);
}

#[test]
fn record_locks_are_those_of_a_table_of_descriptors() {
    use crate::testing::Bench;
    use bloodhound_abi::Errno;
    use bloodhound_abi::consts as c;
    use bloodhound_abi::table::nr;
    let mut b = Bench::new();
    let main = b.tid;
    let fd = b.open("/tmp/locked", c::O_RDWR | c::O_CREAT).expect("a file");
    // A write lock of one byte.
    let lock = |b: &mut Bench, tid: Tid, at: u64| {
        let words = [c::F_WRLCK, at, 1, 0];
        let at = b.put_as(tid, &words.map(u64::to_le_bytes).concat());
        b.call_as(tid, nr::fcntl, &[fd, c::F_SETLK, at])
    };
    let clone = |b: &mut Bench, flags: u64| {
        let stack = b.room(64);
        Tid(b.call(nr::clone, &[flags, stack, 0, 0, 0]).expect("a task") as u32)
    };
    assert_eq!(lock(&mut b, main, 0), Ok(0));
    let same = clone(&mut b, c::CLONE_FILES | c::SIGCHLD);
    let other = b.fork();
    assert_eq!(lock(&mut b, same, 0), Ok(0));
    assert_eq!(lock(&mut b, same, 5), Ok(0));
    assert_eq!(lock(&mut b, other, 5), Err(Errno::EAGAIN));
    // One of those who have it has ended.
    assert_eq!(b.start(same, nr::exit_group, &[0]), crate::dispatch::Outcome::Exited);
    assert_eq!(lock(&mut b, other, 5), Err(Errno::EAGAIN));
    let flags = c::CLONE_VM | c::CLONE_FS | c::CLONE_FILES | c::CLONE_SIGHAND | c::CLONE_THREAD;
    let thread = clone(&mut b, flags);
    assert_eq!(lock(&mut b, thread, 0), Ok(0));
    assert_eq!(b.call_as(thread, nr::unshare, &[c::CLONE_FILES]), Ok(0));
    assert_eq!(lock(&mut b, thread, 0), Err(Errno::EAGAIN));
    assert_eq!(lock(&mut b, thread, 9), Ok(0));
    assert_eq!(b.start(thread, nr::exit, &[0]), crate::dispatch::Outcome::Exited);
    assert_eq!(lock(&mut b, other, 9), Ok(0));
}
