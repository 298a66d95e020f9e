//! Which thread takes a signal, and what the first process of a namespace is spared.

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

/// Lets a thread block signals, or none.
fn block(b: &mut Bench, tid: Tid, mask: u64) {
    let set = b.put_as(tid, &mask.to_le_bytes());
    assert_eq!(b.call_as(tid, nr::rt_sigprocmask, &[c::SIG_SETMASK, set, 0, 8]), Ok(0));
}

#[test]
fn the_search_begins_with_the_thread_that_was_chosen_last() {
    let (mut b, second) = two_threads();
    let main = b.tid;
    let flags = c::CLONE_VM | c::CLONE_FS | c::CLONE_FILES | c::CLONE_SIGHAND | c::CLONE_THREAD;
    let stack = b.room(64);
    let third = Tid(b.call(nr::clone, &[flags, stack, 0, 0, 0]).expect("a thread") as u32);
    let usr1 = 1 << (c::SIGUSR1 - 1);
    let takes = |b: &mut Bench| {
        b.node.send_process(Pid(main.0), user_info(c::SIGUSR1 as u32, c::SI_USER as i32, Pid(main.0), 0));
        let taker = [main, second, third].into_iter().find(|tid| b.node.signal_deliverable(*tid));
        let taker = taker.expect("a thread takes it");
        assert!(b.node.take_pending(taker, u64::MAX).is_some());
        taker
    };
    block(&mut b, main, usr1);
    block(&mut b, second, usr1);
    assert_eq!(takes(&mut b), third);
    block(&mut b, second, 0);
    assert_eq!(takes(&mut b), third);
    block(&mut b, third, usr1);
    assert_eq!(takes(&mut b), second);
    block(&mut b, third, 0);
    assert_eq!(takes(&mut b), second);
    // After the one that has ended comes the next one.
    assert_eq!(b.start(second, nr::exit, &[0]), crate::dispatch::Outcome::Exited);
    assert_eq!(takes(&mut b), third);
    // The thread that is named comes first all the same.
    block(&mut b, main, 0);
    assert_eq!(takes(&mut b), main);
}

#[test]
fn an_ignored_signal_ends_the_sleep_of_who_takes_it_and_of_nobody_else() {
    let (mut b, named) = two_threads();
    let (main, child) = (b.tid, 1 << (c::SIGCHLD - 1));
    block(&mut b, named, child);
    let info = |code: u64| user_info(c::SIGCHLD as u32, code as i32, Pid(main.0), 0);
    let nothing = b.put_as(main, &[0; 8]);
    let wait = |b: &mut Bench| b.start(main, nr::rt_sigtimedwait, &[nothing, 0, 0, 8]);
    assert_eq!(wait(&mut b), crate::dispatch::Outcome::Blocked);
    // The one that is named does not block it: nobody gets it.
    b.node.send_process(Pid(main.0), info(c::SI_USER));
    assert!(b.sleeps(main));
    // For one thread: it stays there.
    b.node.send_task(named, info(c::SI_TKILL));
    assert!(b.sleeps(main));
    assert_eq!(b.node.pending_for(named), child);
    // Named is one that blocks it.
    b.node.send_process_by(Pid(main.0), named, info(c::SI_USER));
    assert_eq!(b.resume(main), Err(bloodhound_abi::Errno::EINTR));
    assert_eq!(b.node.process(Pid(main.0)).pending.mask(), 0);
}

/// complete_signal of Linux asks nobody whether a process is the first one: what the thread that is named blocks ends it by a thread that does not.
#[test]
fn a_signal_that_one_thread_of_the_first_process_blocks_ends_it_by_another() {
    for (signo, ends) in [(c::SIGTERM, true), (c::SIGQUIT, false)] {
        let (mut b, _) = two_threads();
        let (main, first) = (b.tid, Pid(b.tid.0));
        b.node.send_process(first, user_info(signo as u32, c::SI_USER as i32, Pid::NONE, 0));
        assert_eq!(b.node.process(first).pending.mask(), 0, "all take it, so it is ignored");
        block(&mut b, main, 1 << (signo - 1));
        b.node.send_process(first, user_info(signo as u32, c::SI_USER as i32, Pid::NONE, 0));
        assert_eq!(b.node.process(first).fatal.is_some(), ends, "{signo}");
    }
}

#[test]
fn the_first_process_gets_no_signal_that_it_does_not_handle() {
    let mut b = Bench::new();
    let (main, first) = (b.tid, Pid(b.tid.0));
    let outside = |signo: u64| user_info(signo as u32, c::SI_USER as i32, Pid::NONE, 0);
    let inside = |signo: u64| user_info(signo as u32, c::SI_USER as i32, first, 0);
    for info in [c::SIGTERM, c::SIGKILL, c::SIGSTOP, c::SIGABRT].map(inside) {
        b.node.send_process(first, info);
        b.node.send_task(main, info);
    }
    b.node.send_process(first, outside(c::SIGTERM));
    assert_eq!(b.node.pending_for(main), 0, "nothing of it is for the process");
    // A handler makes a signal one that it wants, and what it blocks may be handled later.
    let action = b.put_as(main, &[0x1000_u64, 0, 0, 0].map(u64::to_le_bytes).concat());
    assert_eq!(b.call(nr::rt_sigaction, &[c::SIGUSR1, action, 0, 8]), Ok(0));
    block(&mut b, main, 1 << (c::SIGHUP - 1));
    b.node.send_process(first, inside(c::SIGUSR1));
    b.node.send_process(first, inside(c::SIGHUP));
    assert_eq!(b.node.pending_for(main), 1 << (c::SIGUSR1 - 1) | 1 << (c::SIGHUP - 1));
    // From outside SIGKILL is not ignored, and a child is a process as any other.
    b.node.send_process(first, outside(c::SIGKILL));
    assert_ne!(b.node.pending_for(main) & 1 << (c::SIGKILL - 1), 0);
    let child = Tid(b.call(nr::fork, &[]).expect("a child") as u32);
    b.node.send_process(Pid(child.0), inside(c::SIGTERM));
    assert_eq!(b.node.pending_for(child), 1 << (c::SIGTERM - 1));
}
