use super::sem::{SemOp, SemSet, Tried, Who};
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
    let who = |number| (Who { pid: Pid(number), list: None }, Tid(number));
    set.wait(who(1), vec![op(0, -2)], 0);
    set.wait(who(2), vec![op(0, -1), op(1, 1)], 0);
    set.wait(who(3), vec![op(1, -1)], 0);
    set.wait(who(4), vec![op(0, 0)], 0);
    let ops = [op(0, 1)];
    assert_eq!(set.attempt(who(9).0, &ops), Tried::Done { alters: true });
    // The second can; the zero that it leaves lets the fourth go on, which is told before it (do_smart_wakeup_zero in update_queue), and
    // itself the third.
    let done: Vec<u32> = set.settle(Some(&ops), 7).into_iter().map(|(tid, _)| tid.0).collect();
    assert_eq!(done, [4, 2, 3]);
    assert_eq!((set.waiting(0, false), set.waiting(0, true), set.otime), (1, 0, 7));
    assert_eq!(set.waiters(), [Tid(1)]);
}

#[test]
fn what_blocks_is_looked_at_again_only_where_it_could_go_on() {
    let op = |number, add| SemOp { number, add, no_wait: false, undo: false };
    let mut set = SemSet::new(2);
    let who = |number| Who { pid: Pid(number), list: None };
    (0..2).for_each(|number| set.set(Pid(9), number, 1));
    // Waits for zeros of both, and for that of the first one to begin with.
    set.wait((who(1), Tid(1)), vec![op(0, 0), op(1, 0)], 0);
    for (add, blocking) in [(-1, [0, 1]), (1, [0, 1])] {
        let ops = [op(0, add)];
        assert_eq!(set.attempt(who(9), &ops), Tried::Done { alters: true });
        assert_eq!(set.settle(Some(&ops), 0), []);
        // That the first has risen again makes nobody look.
        assert_eq!([set.waiting(0, true), set.waiting(1, true)], blocking, "after {add}");
    }
    set.set(Pid(9), 0, 0);
    set.set(Pid(9), 1, 0);
    assert_eq!(set.settle(None, 0), [(Tid(1), Ok(()))]);
}

#[test]
fn one_queue_begins_with_the_last_semaphore() {
    let op = |number, add| SemOp { number, add, no_wait: false, undo: false };
    let mut set = SemSet::new(2);
    let who = |number| (Who { pid: Pid(number), list: None }, Tid(number));
    for (number, ops) in [(1, vec![op(0, -1)]), (2, vec![op(1, -1)]), (3, vec![op(0, -1), op(1, -1)])] {
        set.wait(who(number), ops, 0);
    }
    let ops = [op(0, 1), op(1, 1)];
    assert_eq!(set.attempt(who(9).0, &ops), Tried::Done { alters: true });
    // merge_queues puts the second before the first.
    let done: Vec<u32> = set.settle(Some(&ops), 0).into_iter().map(|(tid, _)| tid.0).collect();
    assert_eq!(done, [2, 1]);
}
