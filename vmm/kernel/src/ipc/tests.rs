use super::sem::{SemOp, SemSet, Tried};
use super::*;
use crate::ids::Pid;

fn perm(key: i32) -> Perm {
    Perm { key, ..Perm::default() }
}

#[test]
fn ids_go_round_before_one_is_used_again() {
    let mut objects: Objects<u8> = Objects::default();
    let first = objects.add(10, perm(5), 0, 1).unwrap();
    assert_eq!(first, 0);
    for _ in 1..MIN_CYCLE {
        let id = objects.add(10, perm(PRIVATE), 0, 2).unwrap();
        objects.remove(id).unwrap();
    }
    let id = objects.add(10, perm(6), 0, 3).unwrap();
    assert_eq!(id, 1 << INDEX_BITS | 1, "index 0 is in use");
    assert_eq!((objects.get(1), objects.get(id).map(|entry| entry.item)), (None, Some(3)));
    assert_eq!((objects.named(5).map(|entry| entry.id), objects.highest()), (Some(0), 1));
    objects.forget_name(0);
    assert_eq!(objects.named(5), None);
    for _ in 2..10 {
        objects.add(10, perm(PRIVATE), 0, 0).unwrap();
    }
    assert_eq!(objects.add(10, perm(PRIVATE), 0, 0), Err(Errno::ENOSPC));
}

#[test]
fn the_first_that_waits_is_not_overtaken_by_what_could_go_on() {
    let op = |number, add| SemOp { number, add, no_wait: false, undo: false };
    let mut set = SemSet::new(2);
    let who = |number| (Pid(number), Tid(number));
    set.wait(who(1), vec![op(0, -2)], 0);
    set.wait(who(2), vec![op(0, -1), op(1, 1)], 0);
    set.wait(who(3), vec![op(1, -1)], 0);
    set.wait(who(4), vec![op(0, 0)], 0);
    assert_eq!(set.attempt(Pid(9), &[op(0, 1)]), Tried::Done { alters: true });
    // The second can; it lets the third go on, and the zero that is left the fourth.
    let done: Vec<u32> = set.settle(7).into_iter().map(|(tid, _)| tid.0).collect();
    assert_eq!(done, [2, 4, 3]);
    assert_eq!((set.waiting(0, false), set.waiting(0, true), set.otime), (1, 0, 7));
    assert_eq!(set.waiters(), [Tid(1)]);
}
