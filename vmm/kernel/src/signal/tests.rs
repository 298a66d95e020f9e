//! Which thread takes a signal.

use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;

use crate::ids::*;
use crate::signal::user_info;
use crate::testing::Bench;

/// A process that has a handler for SIGUSR1, and its second thread.
fn two_threads() -> (Bench, Tid) {
    let mut b = Bench::new();
    let action = b.put_as(b.tid, &[0x1000_u64, 0, 0, 0].map(u64::to_le_bytes).concat());
    assert_eq!(b.call(nr::rt_sigaction, &[c::SIGUSR1, action, 0, 8]), Ok(0));
    let flags = c::CLONE_VM | c::CLONE_FS | c::CLONE_FILES | c::CLONE_SIGHAND | c::CLONE_THREAD;
    let stack = b.room(64);
    let thread = Tid(b.call(nr::clone, &[flags, stack, 0, 0, 0]).expect("a thread") as u32);
    (b, thread)
}

#[test]
fn a_signal_of_the_process_is_left_to_the_thread_that_was_woken_but_not_an_own_one() {
    let (mut b, thread) = two_threads();
    let (main, pid) = (b.tid, Pid(b.tid.0));
    let info = user_info(c::SIGUSR1 as u32, c::SI_USER as i32, pid, 0);
    b.node.send_process(pid, info);
    assert!(b.node.signal_deliverable(main));
    assert!(!b.node.signal_deliverable(thread), "the main thread takes it");
    // The same number for this thread alone: the other one pending must not hide it.
    b.node.send_task(thread, info);
    assert!(b.node.signal_deliverable(thread));
    assert!(b.node.take_pending(thread, b.node.due(thread)).is_some());
    assert!(!b.node.signal_deliverable(thread));
    assert!(b.node.signal_deliverable(main), "that of the process is still there");
}

#[test]
fn a_signal_goes_to_another_thread_when_its_taker_blocks_it() {
    let (mut b, thread) = two_threads();
    let (main, pid) = (b.tid, Pid(b.tid.0));
    b.node.send_process(pid, user_info(c::SIGUSR1 as u32, c::SI_USER as i32, pid, 0));
    let blocked = b.put_as(main, &(1_u64 << (c::SIGUSR1 - 1)).to_le_bytes());
    assert_eq!(b.call(nr::rt_sigprocmask, &[0, blocked, 0, 8]), Ok(0));
    assert!(!b.node.signal_deliverable(main));
    assert!(b.node.signal_deliverable(thread));
}
