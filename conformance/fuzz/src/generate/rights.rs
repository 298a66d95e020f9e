//! Rights: ids, groups and capabilities of threads, and what prctl(2) keeps for a thread, a process or memory.

use super::model::Model;
use super::processes::{fork, pid};

/// Users and groups; -1 leaves what there is.
const IDS: &[i64] = &[0, 0, 1000, 1000, 1001, -1, -1];

fn id(m: &mut Model) -> i64 {
    m.rng.pick(IDS)
}

fn set(m: &mut Model) {
    let (actor, one, two, three) = (m.actor(), id(m), id(m), id(m));
    let call = match m.rng.below(8) {
        0 | 1 => format!("setresuid {one} {two} {three}"),
        2 | 3 => format!("setresgid {one} {two} {three}"),
        4 => format!("{} {one} {two}", m.rng.pick(&["setreuid", "setregid"])),
        5 => format!("{} {one}", m.rng.pick(&["setuid", "setgid"])),
        6 => format!("{} {one}", m.rng.pick(&["setfsuid", "setfsgid"])),
        _ => format!("setgroups {} [ 4:{two} 4:{three} ]", m.rng.below(3)),
    };
    m.op(format!("{actor} . {call}"));
}

fn get(m: &mut Model) {
    let (actor, whose) = (m.actor(), pid(m));
    match m.rng.below(6) {
        0 => m.op(format!("{actor} . getresuid <4:r <4:e <4:s")),
        1 => m.op(format!("{actor} . getresgid <4:r <4:e <4:s")),
        2 => {
            let most = m.rng.below(4);
            m.op(format!("{actor} . getgroups {most} <16"));
        }
        3 => m.op(format!("{actor} . getuid")),
        // _LINUX_CAPABILITY_VERSION_3. No capset(2): Bloodhound's files go by users and not by capabilities.
        _ => m.op(format!("{actor} . capget [ 4:0x20080522 4:{whose} ] <24")),
    }
}

/// Options with an argument that is a number, and how they are asked for.
const KEPT: &[(u64, &[i64], u64)] = &[
    // PR_SET_DUMPABLE, PR_SET_KEEPCAPS.
    (4, &[0, 1, 2], 3),
    (8, &[0, 1, 2], 7),
    // PR_SET_SECUREBITS: not SECBIT_NO_SETUID_FIXUP, by which users keep rights to files, nor bits that are newer than Linux 6.1.
    (28, &[0, 1, 0x10, 0x40, 0x80, 0x1000], 27),
    // PR_SET_TIMERSLACK, PR_SET_NO_NEW_PRIVS, PR_SET_THP_DISABLE, PR_SET_IO_FLUSHER.
    (29, &[0, 1, 70_000, -5000], 30),
    (38, &[1, 1, 0], 39),
    (41, &[0, 1], 42),
    (57, &[0, 1], 58),
];

fn keep(m: &mut Model) {
    let (actor, capability) = (m.actor(), m.number(&[5, 6, 7, 10, 21, 40]));
    let (set, values, get) = m.rng.pick(KEPT);
    match m.rng.below(8) {
        0..=2 => {
            let value = m.rng.pick(values);
            m.op(format!("{actor} . prctl {set} {value} 0 0 0"));
        }
        3..=5 => m.op(format!("{actor} . prctl {get} 0 0 0 0")),
        // PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_CAP_AMBIENT.
        6 => {
            let option = m.rng.pick(&[23, 23, 24]);
            m.op(format!("{actor} . prctl {option} {capability} 0 0 0"));
        }
        _ => {
            let command = m.rng.below(5);
            m.op(format!("{actor} . prctl 47 {command} {capability} 0 0"));
        }
    }
}

/// One operation on rights.
pub fn op(m: &mut Model) {
    match m.rng.below(16) {
        0 | 1 => fork(m),
        2..=5 => set(m),
        6..=8 => get(m),
        9..=12 => keep(m),
        13 => {
            // Those of others may be seen and changed by who has the same ids.
            let (actor, whose) = (m.actor(), pid(m));
            m.op(format!("{actor} . prlimit64 {whose} 7 0 <16"));
        }
        _ => super::signals::send(m),
    }
}
