//! Memory: mappings, rights, faults, files in memory, futexes.

use super::model::{Kind, Model};

/// A place in the arena, in pages mostly, where other mappings are likely to be.
fn place(m: &mut Model) -> String {
    let page = m.rng.below(12) * 4096;
    let beyond = if m.rng.one_in(25) { m.rng.pick(&[1, 2048, 4095]) } else { 0 };
    format!("@{:#x}", page + beyond)
}

fn length(m: &mut Model) -> i64 {
    match m.rng.below(20) {
        0 => m.rng.pick(&[0, 1, 4095, 4097, -1, -4096, 1 << 47]),
        _ => m.rng.pick(&[4096, 4096, 8192, 12288, 20480]),
    }
}

fn protection(m: &mut Model) -> u64 {
    m.rng.pick(&[3, 3, 3, 1, 1, 0, 2])
}

fn map(m: &mut Model) {
    let (at, length, protection) = (place(m), length(m), protection(m));
    // MAP_FIXED or MAP_FIXED_NOREPLACE always: where else something goes differs between kernels.
    let fixed = m.rng.pick(&[0x10, 0x10, 0x10_0000]);
    let kind = m.rng.pick(&[1, 2, 2, 2, 3, 0]);
    if m.rng.one_in(2) {
        // MAP_POPULATE, MAP_NORESERVE
        let flags = fixed | kind | 0x20 | m.rng.bits(&[0x8000, 0x4000]);
        m.call(format!("mmap {at} {length} {protection} {flags:#x} -1 0"));
    } else {
        let fd = m.fd(&[Kind::File]);
        let offset = m.rng.pick(&[0, 0, 4096, 8192, 1, -4096]);
        m.call(format!("mmap {at} {length} {protection} {:#x} {fd} {offset}", fixed | kind));
    }
}

fn change(m: &mut Model) {
    let (at, length, protection) = (place(m), length(m), protection(m));
    match m.rng.below(9) {
        0 | 1 => m.call(format!("munmap {at} {length}")),
        2 | 3 => m.call(format!("mprotect {at} {length} {protection}")),
        4 => {
            // With MREMAP_FIXED and MREMAP_MAYMOVE, or where it is.
            // Sizes are whole pages and the target is elsewhere: the order of these checks has changed since Linux 6.1.
            let pages = |m: &mut Model| 4096 * (1 + m.rng.below(4)) as i64;
            let (length, new) = (pages(m), pages(m));
            let to = format!("@{:#x}", 0x40000 + m.rng.below(8) * 4096);
            // Only where it stays or is told to go: another place differs between kernels. No MREMAP_DONTUNMAP, which is
            // unsupported.
            let flags = m.rng.pick(&[0, 3, 3, 2]);
            m.call(format!("mremap {at} {length} {new} {flags} {to}"));
        }
        5 => {
            // MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, REMOVE, DONTFORK, DOFORK, WIPEONFORK, KEEPONFORK
            let advice = m.number(&[0, 1, 2, 3, 4, 4, 4, 9, 10, 11, 18, 19]);
            // Not what would reach the guest's own memory: which comes first differs between kernels.
            let length = if length > 1 << 32 { 1 << 20 } else { length };
            m.call(format!("madvise {at} {length} {advice}"));
        }
        6 => {
            let flags = m.rng.pick(&[1, 4, 2, 5, 0, 8]);
            m.call(format!("msync {at} {length} {flags}"));
        }
        7 => {
            // MLOCK_ONFAULT
            let flags = m.number(&[0, 0, 1]);
            let call = if m.rng.one_in(3) { "munlock" } else { "mlock2" };
            let last = if call == "mlock2" { format!(" {flags}") } else { String::new() };
            let length = if length > 1 << 32 { 1 << 20 } else { length };
            m.call(format!("{call} {at} {length}{last}"));
        }
        _ => m.call(".maps"),
    }
}

fn touch(m: &mut Model) {
    let at = place(m);
    match m.rng.below(6) {
        0 | 1 => {
            let byte = 65 + m.rng.below(26);
            m.call(format!(".poke {at} {byte}"));
        }
        2 | 3 => m.call(format!(".peek {at}")),
        _ => {
            // Calls that find part of their memory missing.
            let (fd, size) = (m.fd(&[Kind::File]), m.rng.pick(&[16, 4096, 8192, 10000]));
            let call = m.rng.pick(&["read", "write"]);
            m.call(format!("{call} {fd} {at} {size}"));
        }
    }
}

fn futex(m: &mut Model) {
    let (at, other) = (place(m), place(m));
    // FUTEX_WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET; FUTEX_PRIVATE_FLAG.
    let command = m.number(&[0, 1, 1, 3, 4, 5, 9, 10]) | m.rng.pick(&[0, 0, 128]);
    let (value, count) = (m.rng.pick(&[0, 1, 2, 7]), m.rng.pick(&[0, 1, 10]));
    // For FUTEX_WAKE_OP: add, and, compare with one of these.
    let third = m.rng.pick(&["0", "1", "0xffffffff", "0x1001000", "0x22000001"]);
    m.call(format!("futex {at} {command} {value} {count} {other} {third}"));
}

fn handle(m: &mut Model) {
    for signal in [11, 7] {
        m.op(format!("0 . rt_sigaction {signal} [ 8:h 8:0x4000004 8:r 8:0 ] 0 8"));
    }
}

/// One operation on memory.
pub fn op(m: &mut Model) {
    if !m.ops.iter().any(|op| op.contains("rt_sigaction 11")) && !m.rng.one_in(8) {
        handle(m);
    }
    match m.rng.below(20) {
        0..=5 => map(m),
        6..=9 => change(m),
        10..=14 => touch(m),
        15 => futex(m),
        16 => {
            let fd = m.fd(&[Kind::File]);
            let size = m.rng.pick(&[0, 1, 4096, 5000, 20000]);
            m.call(format!("ftruncate {fd} {size}"));
        }
        17 => super::processes::fork(m),
        18 => {
            let (at, size) = (place(m), length(m));
            m.call(format!("mincore {at} {size} 0"));
        }
        _ => super::files::open(m),
    }
}
