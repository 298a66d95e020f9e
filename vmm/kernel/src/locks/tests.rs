//! Locks of files: against a list that is walked, and how many are counted.

use super::*;

const INO: Ino = Ino(7);

fn lock(pid: u32, start: u64, end: u64, exclusive: bool) -> Request {
    Request {
        owner: Owner::Process(Pid(pid)),
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
    assert_eq!(locks.conflict(INO, &lock(3, 12, 12, true)).map(|l| l.owner), Some(Owner::Process(Pid(2))));
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
    assert!(locks.cut(INO, Owner::Process(Pid(1)), 0, Request::TO_END));
    assert_eq!(locks.counts().collect::<Vec<_>>(), [(ContainerId(1), 0)]);
}
