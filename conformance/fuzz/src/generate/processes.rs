//! Processes and threads: making them, waiting for them, groups, limits.

use super::model::Model;

/// Makes another actor, if there is room.
pub fn fork(m: &mut Model) {
    if m.actors >= 4 {
        return;
    }
    let actor = m.actors;
    let maker = m.actor();
    m.actors += 1;
    if m.rng.one_in(4) {
        m.threads = true;
        m.op(format!("{maker} . .thread {actor}"));
    } else {
        // CLONE_PARENT and CLONE_SYSVSEM now and then.
        let flags = if m.rng.one_in(4) { m.rng.pick(&[0x8000, 0x40000]) } else { 0 };
        m.op(format!("{maker} . .fork {actor} {flags:#x}"));
    }
}

/// A process: an actor, none, or one that never was.
pub fn pid(m: &mut Model) -> String {
    match m.rng.below(12) {
        0 => "0".to_owned(),
        // Not a small number with a minus: which groups there are depends on the cases before.
        1 => m.rng.pick(&["0x3fffffe", "-67108861", "0x7fffffff"]).to_owned(),
        _ => format!("p{}", m.rng.below(m.actors)),
    }
}

fn wait(m: &mut Model) {
    let actor = m.actor();
    let pid = match m.rng.below(4) {
        0 => "-1".to_owned(),
        1 => "0".to_owned(),
        2 => format!("~{}", m.rng.below(m.actors)),
        _ => pid(m),
    };
    // WNOHANG mostly: who waits does nothing more. Where there are threads, one actor waits at most: which of two threads gets a
    // child's end is a matter of who is faster.
    let nohang = m.threads && m.waited || !m.rng.one_in(5);
    m.waited |= !nohang;
    let nohang = u64::from(nohang);
    if m.rng.one_in(2) {
        let flags = nohang | m.rng.bits(&[2, 8, 0x2000_0000, 0x4000_0000, 0x8000_0000]);
        m.op(format!("{actor} :p wait4 {pid} <4 {flags:#x} 0"));
    } else {
        let kind = m.number(&[0, 1, 1, 2]);
        let pid = if kind == 1 { self::pid(m) } else { pid };
        let exited = if m.rng.one_in(8) { 0 } else { 4 };
        let flags = nohang | exited | m.rng.bits(&[2, 8, 0x0100_0000, 0x0100_0000]);
        m.op(format!("{actor} . waitid {kind} {pid} <128:siginfo {flags:#x} 0"));
    }
}

fn ids(m: &mut Model) {
    let (actor, pid, other) = (m.actor(), pid(m), pid(m));
    match m.rng.below(9) {
        0 | 1 => m.op(format!("{actor} . setpgid {pid} {other}")),
        2 => m.op(format!("{actor} :p setsid")),
        3 => m.op(format!("{actor} :p getpgid {pid}")),
        4 => m.op(format!("{actor} :p getsid {pid}")),
        5 => m.op(format!("{actor} :p getppid")),
        6 => m.op(format!("{actor} :p gettid")),
        7 => m.op(format!("{actor} :p getpid")),
        _ => {
            let priority = m.number(&[0, 1, 5, 19, 20, 30]);
            let call = m.rng.pick(&["getpriority", "setpriority"]);
            // PRIO_PROCESS and PRIO_PGRP: a user has processes outside of the namespace on Linux.
            let which = m.rng.below(2);
            m.op(format!("{actor} . {call} {which} {pid} {priority}"));
        }
    }
}

fn limit(m: &mut Model) {
    let (actor, pid) = (m.actor(), pid(m));
    // RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_CPU; lower only, so that it can be undone by nobody.
    let resource = m.number(&[1, 7, 7]);
    // Not RLIMIT_CPU: a tick of the clock ends who has none left, and when that comes is a matter of time.
    let resource = if resource == 0 { 7 } else { resource };
    let soft = m.rng.pick(&[0, 3, 10, 64, 1024, 5000]);
    let hard = m.rng.pick(&[64, 1024, 1024]);
    match m.rng.below(3) {
        0 => m.op(format!("{actor} . prlimit64 {pid} {resource} 0 <16")),
        1 => m.op(format!("{actor} . prlimit64 {pid} {resource} [ 8:{soft} 8:{hard} ] <16")),
        _ => m.op(format!("{actor} . getrlimit {resource} <16")),
    }
}

fn control(m: &mut Model) {
    let actor = m.actor();
    let signal = m.number(&[0, 10, 15, 64, 65]);
    match m.rng.below(8) {
        0 => m.op(format!("{actor} . prctl 1 {signal}")),
        1 => m.op(format!("{actor} . prctl 2 <4")),
        2 => m.op(format!("{actor} . prctl 36 {}", signal & 1)),
        3 => m.op(format!("{actor} . prctl 37 <4")),
        4 => m.op(format!("{actor} . prctl 15 \"a name that is too long\"")),
        5 => m.op(format!("{actor} . prctl 16 <16")),
        6 => m.op(format!("{actor} . prctl 38 {} 0 0 0", signal & 1)),
        _ => m.op(format!("{actor} . prctl 39 0 0 0 0")),
    }
}

/// One operation on processes.
pub fn op(m: &mut Model) {
    match m.rng.below(20) {
        0..=3 => fork(m),
        4..=8 => wait(m),
        9 | 10 => {
            let (actor, code) = (m.actor(), m.rng.pick(&[0, 1, 7, 255, 256, -1]));
            // The first actor goes on mostly.
            let actor = if actor == 0 && !m.rng.one_in(10) { m.actors - 1 } else { actor };
            let call = m.rng.pick(&["exit_group", "exit_group", "exit"]);
            m.op(format!("{actor} . {call} {code}"));
        }
        11 => {
            let (actor, code) = (m.actor(), m.rng.below(256));
            m.op(format!("{actor} :p .vfork {code}"));
        }
        12..=14 => ids(m),
        15 => limit(m),
        16 => control(m),
        _ => super::signals::send(m),
    }
}
