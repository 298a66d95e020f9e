//! A signal that comes together with what a call waits for does not hide it, in whichever order the two come; alone it
//! interrupts.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{PollFd, Sigaction, Timespec};
use bloodhound_abi::table::nr;
use zerocopy::IntoBytes;

use super::FutexKey;
use crate::dispatch::Outcome;
use crate::ids::*;
use crate::testing::Bench;

/// A process that handles SIGUSR1 and SIGCHLD without SA_RESTART, and blocks SIGUSR2.
fn bench() -> Bench {
    let mut b = Bench::new();
    let action = Sigaction { handler: 0x40_0000, ..Sigaction::default() };
    let at = b.put_as(b.tid, action.as_bytes());
    for signo in [c::SIGUSR1, c::SIGCHLD] {
        b.call(nr::rt_sigaction, &[signo, at, 0, 8]).expect("rt_sigaction");
    }
    let mask = b.put_as(b.tid, &(1u64 << (c::SIGUSR2 - 1)).to_le_bytes());
    b.call(nr::rt_sigprocmask, &[c::SIG_BLOCK, mask, 0, 8]).expect("rt_sigprocmask");
    b
}

/// Two descriptors that a call has stored.
fn pair(b: &mut Bench, call: u64, before: &[u64]) -> [u64; 2] {
    let at = b.room(8);
    b.call(call, &[before, &[at]].concat()).expect("a pair");
    b.object::<[u32; 2]>(b.tid, at).map(u64::from)
}

fn send(b: &mut Bench, signo: u64) {
    let pid = Pid(b.tid.0);
    let info = crate::signal::user_info(signo as u32, c::SI_USER as i32, pid, 0);
    b.node.send_process(pid, info);
}

/// What a blocked call's end is when `event` happens after the signal, before it, and not at all; and without the signal.
fn ends(call: u64, setup: fn(&mut Bench) -> Vec<u64>, event: fn(&mut Bench, Tid)) -> [Result<u64, Errno>; 4] {
    [(true, true, false), (false, true, true), (true, false, false), (false, true, false)].map(
        |(before, happens, after)| {
            let mut b = bench();
            let args = setup(&mut b);
            let other = b.fork();
            assert_eq!(b.start(b.tid, call, &args), Outcome::Blocked, "call {call}");
            if before {
                send(&mut b, c::SIGUSR1);
            }
            if happens {
                event(&mut b, other);
            }
            if after {
                send(&mut b, c::SIGUSR1);
            }
            b.resume(b.tid)
        },
    )
}

/// The call finds its event in each order, and is interrupted by the signal alone.
fn finds(call: u64, setup: fn(&mut Bench) -> Vec<u64>, event: fn(&mut Bench, Tid)) {
    let [first, last, alone, plain] = ends(call, setup, event);
    assert!(plain.is_ok(), "call {call}: {plain:?}");
    assert_eq!(first, plain, "call {call}, signal first");
    assert_eq!(last, plain, "call {call}, signal last");
    assert!(alone.is_err(), "call {call}, signal alone: {alone:?}");
}

/// The first descriptors that a process opens.
const READ: u64 = 3;
const WRITE: u64 = 4;

fn put_byte(b: &mut Bench, other: Tid) {
    let at = b.put_as(other, b"x");
    b.call_as(other, nr::write, &[WRITE, at, 1]).expect("write");
}

fn read_args(b: &mut Bench) -> Vec<u64> {
    vec![READ, b.room(8), 8]
}

#[test]
fn reads_find_data() {
    let pipe = |b: &mut Bench| {
        assert_eq!(pair(b, nr::pipe, &[]), [READ, WRITE]);
        read_args(b)
    };
    finds(nr::read, pipe, put_byte);
    let socket = |b: &mut Bench| {
        assert_eq!(pair(b, nr::socketpair, &[c::AF_UNIX, c::SOCK_DGRAM, 0]), [READ, WRITE]);
        read_args(b)
    };
    finds(nr::read, socket, put_byte);
    finds(nr::recvfrom, socket, put_byte);
    let event = |b: &mut Bench| {
        assert_eq!(b.call(nr::eventfd, &[0]), Ok(READ));
        read_args(b)
    };
    finds(nr::read, event, |b, other| {
        let one = b.put_as(other, &1u64.to_le_bytes());
        b.call_as(other, nr::write, &[READ, one, 8]).expect("write");
    });
}

/// As in `unix_stream_read_generic`, which asks for signals right after the sleep.
#[test]
fn reads_of_unix_streams_find_signals_first() {
    let socket = |b: &mut Bench| {
        assert_eq!(pair(b, nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0]), [READ, WRITE]);
        read_args(b)
    };
    for call in [nr::read, nr::recvfrom] {
        let [first, last, alone, plain] = ends(call, socket, put_byte);
        assert_eq!(plain, Ok(1), "call {call}");
        assert!(alone.is_err(), "call {call}: {alone:?}");
        assert_eq!([first, last], [alone; 2], "call {call}, with the signal first and last");
    }
}

#[test]
fn polls_find_readiness() {
    let poll = |b: &mut Bench| {
        pair(b, nr::pipe, &[]);
        let set = PollFd { fd: READ as i32, events: c::EPOLLIN as i16, revents: 0 };
        vec![b.put_as(b.tid, set.as_bytes()), 1, u64::MAX]
    };
    finds(nr::poll, poll, put_byte);
    let select = |b: &mut Bench| {
        pair(b, nr::pipe, &[]);
        vec![READ + 1, b.put_as(b.tid, &(1u64 << READ).to_le_bytes()), 0, 0, 0]
    };
    finds(nr::select, select, put_byte);
    let epoll = |b: &mut Bench| {
        pair(b, nr::pipe, &[]);
        let ep = b.call(nr::epoll_create1, &[0]).expect("epoll");
        let event = b.put_as(b.tid, &[c::EPOLLIN as u8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        b.call(nr::epoll_ctl, &[ep, c::EPOLL_CTL_ADD, READ, event]).expect("epoll_ctl");
        vec![ep, b.room(12), 1, u64::MAX]
    };
    finds(nr::epoll_wait, epoll, put_byte);
}

#[test]
fn waits_find_dead_children() {
    for (call, args) in [(nr::wait4, vec![u64::MAX, 0, 0, 0]), (nr::waitid, vec![0, 0, 0, c::WEXITED, 0])] {
        let mut b = bench();
        let other = b.fork();
        assert_eq!(b.start(b.tid, call, &args), Outcome::Blocked);
        assert_eq!(b.start(other, nr::exit_group, &[0]), Outcome::Exited);
        assert!(b.node.pending_for(b.tid) & 1 << (c::SIGCHLD - 1) != 0, "SIGCHLD is there");
        assert!(b.resume(b.tid).is_ok(), "call {call}");
    }
}

#[test]
fn a_futex_that_is_woken_stays_woken() {
    fn word(b: &mut Bench) -> u64 {
        b.put_as(b.tid, &0u32.to_le_bytes())
    }
    let wait = |b: &mut Bench| {
        // The event knows the word by being the first that lies there.
        vec![word(b), c::FUTEX_WAIT | c::FUTEX_PRIVATE_FLAG, 0, 0, 0, 0]
    };
    finds(nr::futex, wait, |b, _| {
        let key = *b.node.futexes.keys().next().expect("a waiter");
        assert!(matches!(key, FutexKey::Private(..)));
        assert_eq!(b.node.futex_wake(key, 1, u32::MAX), Ok(1));
    });
    let mut b = bench();
    let args = wait(&mut b);
    assert_eq!(b.start(b.tid, nr::futex, &args), Outcome::Blocked);
    send(&mut b, c::SIGUSR1);
    assert!(b.resume(b.tid).is_err());
    assert!(b.node.futexes.is_empty(), "who was interrupted takes no wake-up");
}

/// A relative time of 1000 ns in memory.
fn soon(b: &mut Bench) -> u64 {
    b.put_as(b.tid, Timespec { sec: 0, nsec: 1000 }.as_bytes())
}

fn time_passes(b: &mut Bench, _: Tid) {
    b.node.clock = b.node.clock.after(1_000_000);
    b.node.on_time();
}

/// In what order Linux looks at deadline and signal: do_nanosleep, ep_poll and do_sigtimedwait take the time first, do_poll and
/// do_select the signal.
#[test]
fn deadlines_and_signals_have_their_own_order() {
    finds(nr::nanosleep, |b| vec![soon(b), 0], time_passes);
    let epoll = |b: &mut Bench| {
        let ep = b.call(nr::epoll_create1, &[0]).expect("epoll");
        vec![ep, b.room(12), 1, 1]
    };
    finds(nr::epoll_wait, epoll, time_passes);
    for (call, setup) in [
        (nr::poll, (|_| vec![0, 0, 1]) as fn(&mut Bench) -> Vec<u64>),
        (nr::ppoll, |b| vec![0, 0, soon(b), 0, 8]),
    ] {
        let [first, last, alone, plain] = ends(call, setup, time_passes);
        assert_eq!(plain, Ok(0));
        assert!(first.is_err() && last.is_err() && alone.is_err(), "call {call}: {first:?} {last:?}");
    }
    // A signal that is waited for, with the time over and another one pending.
    let wait = |b: &mut Bench| {
        let set = b.put_as(b.tid, &(1u64 << (c::SIGUSR2 - 1)).to_le_bytes());
        vec![set, 0, soon(b), 8]
    };
    finds(nr::rt_sigtimedwait, wait, |b, other| {
        send(b, c::SIGUSR2);
        time_passes(b, other);
    });
}
