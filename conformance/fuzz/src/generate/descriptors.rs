//! Descriptors of all kinds: copies, flags, closing, polling.

use super::model::{Kind, Model};

fn duplicate(m: &mut Model) {
    let fd = m.fd(&[]);
    let kind = m.slots.last().copied().unwrap_or(Kind::File);
    let target = m.number(&[10, 11, 12, 20, 1023, 1024]);
    match m.rng.below(5) {
        0 | 1 => m.make(kind, format!("dup {fd}")),
        2 => m.make(kind, format!("dup2 {fd} {target}")),
        3 => {
            let flags = m.number(&[0, 0x80000, 0x800]);
            m.make(kind, format!("dup3 {fd} {target} {flags}"));
        }
        _ => {
            let command = m.rng.pick(&[0, 1030]);
            m.make(kind, format!("fcntl {fd} {command} {target}"));
        }
    }
}

fn flags(m: &mut Model) {
    let fd = m.fd(&[]);
    match m.rng.below(6) {
        0 => m.call(format!("fcntl {fd} 1")),
        1 => {
            let flags = m.rng.below(4);
            m.call(format!("fcntl {fd} 2 {flags}"));
        }
        2 => m.call(format!("fcntl {fd} 3")),
        3 | 4 => {
            // O_APPEND, O_NONBLOCK; O_DIRECT and O_NOATIME depend on the file system.
            let bits = m.flags(&[0o2000, 0o4000, 0o4000, 2], 0x1000_0000);
            m.call(format!("fcntl {fd} 4 {bits}"));
        }
        _ => {
            let request = m.rng.pick(&[0x5421, 0x541b, 0x5450, 0x5451, 0x5401]);
            m.call(format!("ioctl {fd} {request:#x} [ 4:1 ]?"));
        }
    }
}

/// One operation on descriptors.
pub fn op(m: &mut Model) {
    match m.rng.below(12) {
        0..=3 => duplicate(m),
        4 | 5 => flags(m),
        6 | 7 => {
            let fd = m.fd(&[]);
            m.call(format!("close {fd}"));
        }
        8 => {
            let (first, last) = (m.number(&[4, 6, 9, 12]), m.number(&[5, 8, 20]));
            let flags = m.flags(&[4], 1);
            m.call(format!("close_range {first} {last} {flags}"));
        }
        9 => m.call(".fds"),
        10 => {
            let (a, b) = (m.fd(&[]), m.fd(&[]));
            let events = m.flags(&[1, 4, 2, 0x2000, 0x100, 0x40], 0x4000);
            m.call(format!("poll [ 4:{a} 2:{events} 2:0 4:{b} 2:5 2:0 ]? 2 0"));
        }
        _ => super::files::open(m),
    }
}
