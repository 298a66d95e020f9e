//! System V objects, POSIX message queues.

use super::model::{Kind, Model};

fn id(m: &mut Model, kind: Kind) -> String {
    m.fd(&[kind])
}

fn get(m: &mut Model) {
    // IPC_PRIVATE or one of a few keys; IPC_CREAT, IPC_EXCL.
    let key = m.number(&[0, 1, 2, 3]);
    let flags = m.rng.pick(&[0o1600, 0o1600, 0o1644, 0o3600, 0o600, 0]);
    let actor = m.actor();
    match m.rng.below(3) {
        0 => {
            let count = m.number(&[1, 2, 5, 0]);
            let slot = m.slot(Kind::Semaphores);
            m.op(format!("{actor} {slot}:i semget {key} {count} {flags:#x}"));
        }
        1 => {
            let slot = m.slot(Kind::Queue);
            m.op(format!("{actor} {slot}:i msgget {key} {flags:#x}"));
        }
        _ => {
            let size = m.number(&[4096, 1, 10000, 0]);
            let slot = m.slot(Kind::Segment);
            m.op(format!("{actor} {slot}:i shmget {key} {size} {flags:#x}"));
        }
    }
}

/// IPC_SET: owner, group and mode as they are, or others. What follows them is the object's.
fn perm(m: &mut Model, rest: &str) -> String {
    let (uid, gid) = (m.rng.pick(&[0, 0, 1000, -1]), m.rng.pick(&[0, 0, 1001, -1]));
    let mode = m.rng.pick(&[0o600, 0o644, 0o666, 0]);
    format!("[ 4:0 4:{uid} 4:{gid} 4:0 4:0 4:{mode:#x} {rest} ]")
}

fn semaphore(m: &mut Model) {
    let (actor, id) = (m.actor(), id(m, Kind::Semaphores));
    let number = m.number(&[0, 0, 1, 4, 5]);
    match m.rng.below(11) {
        0..=2 => {
            let count = 1 + m.rng.below(3);
            let mut ops = String::new();
            for _ in 0..count {
                // IPC_NOWAIT mostly, SEM_UNDO.
                let flags = if m.rng.one_in(5) { 0 } else { 0o4000 } | m.rng.bits(&[0x1000]);
                let (number, change) = (m.rng.pick(&[0, 0, 1, 2]), m.rng.pick(&[1, 2, -1, -1, 0, -2, 32767]));
                ops.push_str(&format!(" 2:{number} 2:{change} 2:{flags:#x}"));
            }
            m.op(format!("{actor} . semop {id} [{ops} ] {count}"));
        }
        3 => {
            let value = m.rng.below(5);
            m.op(format!("{actor} . semctl {id} {number} 16 {value}"));
        }
        4 => m.op(format!("{actor} . semctl {id} {number} 12")),
        // GETNCNT, GETZCNT
        5 => {
            let command = m.rng.pick(&[14, 15]);
            m.op(format!("{actor} . semctl {id} {number} {command}"));
        }
        6 => {
            // IPC_STAT, and SEM_STAT by the id of a set, of which only the index counts.
            let command = m.rng.pick(&[2, 2, 18]);
            m.op(format!("{actor} . semctl {id} 0 {command} <104:sem"));
        }
        7 => {
            let perm = perm(m, "z80");
            m.op(format!("{actor} . semctl {id} 0 1 {perm}"));
        }
        // GETALL, SETALL
        8 => m.op(format!("{actor} . semctl {id} 0 13 <10")),
        9 => {
            let (a, b) = (m.rng.pick(&[0, 1, 2, 32767]), m.rng.pick(&[0, 1, 32768]));
            m.op(format!("{actor} . semctl {id} 0 17 [ 2:{a} 2:{b} 2:0 2:1 2:0 ]"));
        }
        _ if m.rng.one_in(3) => m.op(format!("{actor} . semctl {id} 0 0")),
        _ => m.op(format!("{actor} :p semctl {id} {number} 11")),
    }
}

fn queue(m: &mut Model) {
    let (actor, id) = (m.actor(), id(m, Kind::Queue));
    let nowait = if m.rng.one_in(5) { 0 } else { 0o4000 };
    let kind = m.number(&[1, 2, 3, 0, -2]);
    let size = m.number(&[3, 0, 5, 16, 8192, 8193]);
    match m.rng.below(10) {
        0..=2 => m.op(format!(
            "{actor} . msgsnd {id} [ 8:{kind} \"message of some length\" ] {} {nowait:#x}",
            size.min(22)
        )),
        3..=5 => {
            // MSG_NOERROR, MSG_EXCEPT, MSG_COPY
            let flags = nowait | m.rng.bits(&[0o10000, 0o20000, 0o40000]);
            m.op(format!("{actor} . msgrcv {id} <64 {} {kind} {flags:#x}", size.min(56)));
        }
        6 => m.op(format!("{actor} . msgctl {id} 2 <120:queue")),
        7 | 8 => {
            let bytes = m.rng.pick(&[16384, 40, 0]);
            let perm = perm(m, &format!("z64 8:{bytes} z24"));
            m.op(format!("{actor} . msgctl {id} 1 {perm}"));
        }
        _ if m.rng.one_in(3) => m.op(format!("{actor} . msgctl {id} 0 0")),
        _ => m.op(format!("{actor} . msgctl {id} 2 0")),
    }
}

fn segment(m: &mut Model) {
    let (actor, id) = (m.actor(), id(m, Kind::Segment));
    let at = 0x200000 + m.rng.below(4) * 0x4000;
    match m.rng.below(8) {
        0..=2 => {
            // SHM_RDONLY, SHM_REMAP
            let flags = m.rng.bits(&[0o10000, 0o40000]);
            m.op(format!("{actor} :a shmat {id} @{at:#x} {flags:#x}"));
        }
        3 => m.op(format!("{actor} . shmdt @{at:#x}")),
        4 => {
            let perm = perm(m, "z96");
            m.op(format!("{actor} . shmctl {id} 1 {perm}"));
        }
        5 => m.op(format!("{actor} . shmctl {id} 2 <112:shm")),
        6 => m.op(format!("{actor} . shmctl {id} 0 0")),
        _ => m.op(format!("{actor} . read 63 @{at:#x} 16")),
    }
}

fn posix_queue(m: &mut Model) {
    let actor = m.actor();
    let name = m.rng.pick(&["q0", "q0", "q1", "q2/x", ""]);
    let nonblocking = if m.rng.one_in(5) { 0 } else { 0o4000 };
    let queue = m.fd(&[Kind::PosixQueue]);
    let (size, priority) = (m.number(&[3, 0, 8, 9]), m.number(&[0, 1, 5, 32768]));
    match m.rng.below(9) {
        0..=2 => {
            let flags =
                m.rng.pick(&[2, 2, 0, 1]) | nonblocking | m.rng.pick(&[0o100, 0o100, 0o300, 0, 0o2100]);
            let (most, length) = (m.rng.pick(&[2, 3, 10, 0, 11]), m.rng.pick(&[8, 8, 16, 0]));
            let attributes =
                if m.rng.one_in(4) { "0".to_owned() } else { format!("[ 8:0 8:{most} 8:{length} 8:0 z32 ]") };
            m.make(Kind::PosixQueue, format!("mq_open \"{name}\" {flags:#x} 0x1a4 {attributes}"));
        }
        3 | 4 => m.op(format!("{actor} . mq_timedsend {queue} \"some message\" {size} {priority} 0")),
        5 | 6 => {
            let length = m.rng.pick(&[8, 16, 32, 7]);
            m.op(format!("{actor} . mq_timedreceive {queue} <32 {length} <4 0"));
        }
        7 => m.op(format!("{actor} . mq_getsetattr {queue} 0 <64")),
        _ if m.rng.one_in(2) => m.op(format!("{actor} . mq_unlink \"{name}\"")),
        _ => {
            let signal = m.rng.pick(&[10, 0, 65]);
            let how = m.rng.pick(&[0, 0, 1, 3]);
            m.op(format!("{actor} . mq_notify {queue} [ 8:7 4:{signal} 4:{how} z48 ]"));
        }
    }
}

/// One operation on IPC objects.
pub fn op(m: &mut Model) {
    match m.rng.below(20) {
        0 => super::processes::fork(m),
        1..=5 => get(m),
        6..=9 => semaphore(m),
        10..=12 => queue(m),
        13 | 14 => segment(m),
        _ => posix_queue(m),
    }
}
