//! Signals: masks, actions, sending, waiting for them.

use super::model::Model;
use super::processes::{fork, pid};

/// Signals that are used: some that end, are ignored, stop, or go on; real-time ones; and wrong numbers.
const SIGNALS: &[i64] = &[10, 10, 12, 12, 15, 17, 18, 19, 20, 23, 28, 34, 35, 64, 1, 2];

fn signal(m: &mut Model) -> i64 {
    m.number(SIGNALS)
}

fn set(m: &mut Model) -> String {
    let mut set = 0u64;
    for _ in 0..1 + m.rng.below(4) {
        set |= 1 << (m.rng.pick(SIGNALS) - 1);
    }
    if m.rng.one_in(12) {
        set = m.rng.pick(&[0, u64::MAX]);
    }
    format!("[ 8:{:#x} ]", set)
}

/// Sends a signal.
pub fn send(m: &mut Model) {
    let (actor, to, signal) = (m.actor(), pid(m), signal(m));
    // How far the other threads come before a process has stopped is a matter of who is faster.
    let signal = if m.threads && [19, 20].contains(&signal) { 15 } else { signal };
    match m.rng.below(8) {
        0..=2 => m.op(format!("{actor} . kill {to} {signal}")),
        3 => {
            let group = m.rng.below(m.actors);
            m.op(format!("{actor} . kill ~{group} {signal}"));
        }
        4 => m.op(format!("{actor} . tkill {to} {signal}")),
        5 => {
            let process = pid(m);
            m.op(format!("{actor} . tgkill {process} {to} {signal}"));
        }
        _ => {
            // SI_QUEUE, SI_MESGQ, and codes that only the kernel may give.
            let code = m.rng.pick(&[-1, -1, -3, 0, 1, -6]);
            let value = m.rng.below(100);
            m.op(format!(
                "{actor} . rt_sigqueueinfo {to} {signal} [ 4:{signal} 4:0 4:{code} 4:0 4:p{actor} 4:0 4:{value} 4:0 z96 ]"
            ));
        }
    }
}

fn act(m: &mut Model) {
    let (actor, signal) = (m.actor(), signal(m));
    let action = m.rng.pick(&["h", "h", "h", "1", "0"]);
    // SA_NOCLDSTOP, SA_NOCLDWAIT, SA_SIGINFO, SA_ONSTACK, SA_RESTART, SA_NODEFER, SA_RESETHAND; SA_RESTORER always.
    let flags =
        0x400_0000 | m.rng.bits(&[1, 2, 4, 0x0800_0000, 0x1000_0000, 0x1000_0000, 0x4000_0000, 0x8000_0000]);
    let mask = m.rng.bits(&[1 << 9, 1 << 11, 1 << 33]);
    let action = if action == "h" && flags & 4 == 0 { "H" } else { action };
    match m.rng.below(6) {
        0 => m.op(format!("{actor} . rt_sigaction {signal} 0 <32:action 8")),
        1 => {
            let size = m.rng.below(9);
            m.op(format!("{actor} . rt_sigaction {signal} [ 8:0 8:0 8:0 8:0 ] 0 {size}"));
        }
        _ => m.op(format!("{actor} . rt_sigaction {signal} [ 8:{action} 8:{flags:#x} 8:r 8:{mask:#x} ] 0 8")),
    }
}

fn wait(m: &mut Model) {
    let (actor, set) = (m.actor(), set(m));
    match m.rng.below(8) {
        // Without a time it sleeps until a signal comes, which others may send.
        0 => m.op(format!("{actor} . rt_sigsuspend {set} 8")),
        1 => m.op(format!("{actor} . rt_sigtimedwait {set} <128:siginfo 0 8")),
        2 | 3 => m.op(format!("{actor} . rt_sigtimedwait {set} <128:siginfo [ 8:0 8:0 ] 8")),
        4 => m.op(format!("{actor} . pause")),
        5 => m.op(format!("{actor} . .signals")),
        _ => m.op(format!("{actor} . rt_sigpending <8 8")),
    }
}

/// One operation on signals.
pub fn op(m: &mut Model) {
    match m.rng.below(20) {
        0 => fork(m),
        1..=5 => act(m),
        6..=9 => {
            let (actor, set, how) = (m.actor(), set(m), m.number(&[0, 0, 1, 2]));
            m.op(format!("{actor} . rt_sigprocmask {how} {set} <8 8"));
        }
        10..=14 => send(m),
        15 => {
            // Whether a frame fits into MINSIGSTKSZ bytes depends on the processor, so none is as small as it may be.
            let (actor, size) = (m.actor(), m.rng.pick(&[16384, 2047, 12288]));
            let flags = m.rng.pick(&[0, 0, 2, 1, 0x8000_0000u64]);
            m.op(format!("{actor} . mmap @0x100000 0x4000 3 0x32 -1 0"));
            m.op(format!("{actor} . sigaltstack [ 8:@0x100000 4:{flags:#x} 4:0 8:{size} ] 0"));
        }
        _ => wait(m),
    }
}
