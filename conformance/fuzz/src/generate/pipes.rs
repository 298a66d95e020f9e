//! Pipes and FIFOs.

use super::model::{Kind, Model};

const ENDS: &[Kind] = &[Kind::Reader, Kind::Writer];

fn make(m: &mut Model) {
    // Mostly without sleeping: who sleeps does nothing more.
    let nonblocking = if m.rng.one_in(6) { 0 } else { 0o4000 };
    let flags = nonblocking | m.rng.bits(&[0o2000000, 0o40000]);
    let (reader, writer) = (m.slot(Kind::Reader), m.slot(Kind::Writer));
    m.op(format!("0 {reader},{writer} pipe2 <8 {flags:#x}"));
}

/// One operation on pipes.
pub fn op(m: &mut Model) {
    if !m.slots.contains(&Kind::Reader) {
        return make(m);
    }
    let (reader, writer) = (m.fd(&[Kind::Reader]), m.fd(&[Kind::Writer]));
    match m.rng.below(16) {
        0 => make(m),
        1..=3 => {
            let (memory, size) = m.input();
            m.call(format!("write {writer} {memory} {size}"));
        }
        4..=6 => {
            let (memory, size) = m.output();
            m.call(format!("read {reader} {memory} {size}"));
        }
        7 => {
            let sizes = [0, 1, 4096, 4097, 8192, 65536, 65537, 1 << 20, (1 << 20) + 1, 1 << 31];
            let (fd, size) = (m.fd(ENDS), m.number(&sizes));
            m.call(format!("fcntl {fd} 1031 {size}"));
        }
        8 => {
            let fd = m.fd(ENDS);
            m.call(format!("fcntl {fd} 1032"));
        }
        9 => {
            let (from, to) = (m.fd(&[Kind::Reader]), m.fd(&[Kind::Writer, Kind::File]));
            let (call, size) = (m.rng.pick(&["tee", "splice"]), m.size());
            // Not SPLICE_F_MORE, as in `files::copy`.
            let flags = m.flags(&[2, 2, 1], 32);
            match call {
                "tee" => m.call(format!("tee {from} {to} {size} {flags}")),
                _ => m.call(format!("splice {from} 0 {to} 0 {size} {flags}")),
            }
        }
        10 => {
            let (vector, count) = m.vector(false);
            // The pipe has the pages themselves, so they must stay as they are.
            let vector = vector.replace('%', "!%").replace("|!", "!");
            let flags = m.flags(&[2, 2, 4, 8], 32);
            m.call(format!("vmsplice {writer} {vector} {count} {flags}"));
        }
        11 => m.call(format!("ioctl {reader} 0x541b <4")),
        12 => m.call(format!("poll [ 4:{reader} 2:0x2041 2:0 4:{writer} 2:0x104 2:0 ]? 2 0")),
        13 => {
            let fd = m.fd(ENDS);
            m.call(format!("close {fd}"));
        }
        14 => {
            // SIGPIPE is ignored, or not.
            let action = m.rng.pick(&["8:1", "8:0", "8:h"]);
            m.call(format!("rt_sigaction 13 [ {action} 8:0x4000004 8:r 8:0 ] 0 8"));
        }
        _ => {
            let (fd, offset) = (m.fd(ENDS), m.offset());
            let call = m.rng.pick(&["pread64", "pwrite64"]);
            m.call(format!("{call} {fd} <16 16 {offset}"));
        }
    }
}
