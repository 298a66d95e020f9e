//! What is in files: reading, writing, offsets, sizes, copies, locks.

use super::model::{Kind, Model};

const O_CREAT: u64 = 0o100;
const O_DIRECTORY: u64 = 0o200000;
const O_FLAGS: &[u64] =
    &[0o100, 0o100, 0o200, 0o1000, 0o2000, 0o4000, 0o2000000, 0o200000, 0o400000, 0o10000, 0o4010000];
/// What kinds of descriptors calls on files mostly get.
const FILES: &[Kind] = &[Kind::File, Kind::File];

/// Opens a file.
pub fn open(m: &mut Model) {
    let create = if m.rng.one_in(3) { 0 } else { O_CREAT };
    let mut flags = m.rng.pick(&[0, 1, 2, 2, 2, 2, 3]) | m.rng.bits(O_FLAGS) | create;
    // Since Linux 6.4 both together are EINVAL; before, a file was made.
    if flags & O_DIRECTORY != 0 {
        flags &= !O_CREAT;
    }
    let mode = m.rng.pick(&[0o644, 0o600, 0o777, 0o4755, 0, 0o444]);
    match m.rng.below(20) {
        // O_TMPFILE
        0 => {
            let name = m.rng.pick(&[".", "d", "a"]);
            m.make(Kind::File, format!("openat -100 \"{name}\" {:#x} {mode:#x}", 0o20200000 | flags));
        }
        1 => {
            // MFD_NOEXEC_SEAL and MFD_EXEC are of Linux 6.3.
            let flags = m.flags(&[1, 2, 2], 0x800);
            m.make(Kind::File, format!("memfd_create \"m\" {flags}"));
        }
        2 => {
            // Not the root, which is of another kind natively: it counts its directories.
            let path = m.rng.pick(&["/dev/null", "//dev/zero", "/dev/full", "..", "../shm"]);
            m.make(Kind::File, format!("openat -100 \"{path}\" {flags:#x} {mode:#x}"));
        }
        _ => {
            let (dir, path) = (m.dirfd(), m.path());
            m.make(Kind::File, format!("openat {dir} {path} {flags:#x} {mode:#x}"));
        }
    }
}

fn transfer(m: &mut Model) {
    let fd = m.fd(FILES);
    let offset = m.offset();
    let (input, input_size) = m.input();
    let (output, output_size) = m.output();
    let reads = m.rng.one_in(2);
    let (vector, count) = m.vector(reads);
    // RWF_NOWAIT succeeds or not as pages happen to be there, so it is left out.
    let flags = m.flags(&[1, 2, 4, 16], 0x4000);
    match m.rng.below(10) {
        0 | 1 => m.call(format!("read {fd} {output} {output_size}")),
        2 | 3 => m.call(format!("write {fd} {input} {input_size}")),
        4 => m.call(format!("pread64 {fd} {output} {output_size} {offset}")),
        5 => m.call(format!("pwrite64 {fd} {input} {input_size} {offset}")),
        6 => m.call(format!("{} {fd} {vector} {count}", if reads { "readv" } else { "writev" })),
        7 => m.call(format!("{} {fd} {vector} {count} {offset} 0", if reads { "preadv" } else { "pwritev" })),
        _ => {
            // -1 stands for the descriptor's own offset.
            let call = if reads { "preadv2" } else { "pwritev2" };
            m.call(format!(
                "{call} {fd} {vector} {count} {offset} {} {flags}",
                if offset < 0 { -1 } else { 0 }
            ));
        }
    }
}

fn seek(m: &mut Model) {
    let (fd, offset) = (m.fd(FILES), m.offset());
    let whence = m.number(&[0, 1, 2, 3, 4]);
    m.call(format!("lseek {fd} {offset} {whence}"));
}

fn resize(m: &mut Model) {
    let (fd, path) = (m.fd(FILES), m.path());
    // Bloodhound ends files at 16 TiB on every file system, so larger ones are left out.
    let sizes = [0, 1, 100, 4095, 4096, 4097, 10_000, 70_000, 1 << 40, -1, -4096];
    let (size, offset) = (m.number(&sizes), m.number(&sizes[..8]));
    // FALLOC_FL_*: keep size, punch hole, collapse range, zero range, insert range, unshare.
    let mode = m.rng.pick(&[0, 1, 3, 3, 2, 8, 16, 17, 32, 64, 4, 0x800]);
    match m.rng.below(4) {
        0 => m.call(format!("truncate {path} {size}")),
        1 | 2 => m.call(format!("ftruncate {fd} {size}")),
        _ => {
            // More than the file system holds is refused; much that it holds would fill this machine.
            let length = m.number(&[0, 1, 100, 4095, 4096, 4097, 8192, 70_000, -1, i64::MAX]);
            // Nor as much as memory has: what memfd_create(2) makes has no limit. What ends where files do may be a hole natively,
            // so it ends behind that.
            let length = if (1 << 20..i64::MAX).contains(&length) { 70_000 } else { length };
            let offset = if length == i64::MAX { offset.max(1) } else { offset };
            m.call(format!("fallocate {fd} {mode:#x} {offset} {length}"));
        }
    }
}

fn copy(m: &mut Model) {
    let all = [Kind::File, Kind::File, Kind::Reader, Kind::Writer];
    let kinds = if m.rng.one_in(2) { &all[..1] } else { &all[..] };
    let (from, to) = (m.fd(kinds), m.fd(kinds));
    let size = m.size();
    let place = |m: &mut Model| match m.rng.below(3) {
        0 => format!("[ 8:{} ]?", m.offset()),
        _ => "0".to_owned(),
    };
    let (a, b) = (place(m), place(m));
    match m.rng.below(4) {
        0 | 1 => {
            let flags = m.number(&[0]);
            m.call(format!("copy_file_range {from} {a} {to} {b} {size} {flags}"));
        }
        2 => m.call(format!("sendfile {to} {from} {a} {size}")),
        _ => {
            // Not SPLICE_F_MORE: the target may be a datagram socket, of which Bloodhound says that it has no such thing.
            let flags = m.flags(&[1, 2, 2, 8], 16);
            m.call(format!("splice {from} {a} {to} {b} {size} {flags}"));
        }
    }
}

fn lock(m: &mut Model) {
    let fd = m.fd(FILES);
    match m.rng.below(5) {
        0 => {
            // Without LOCK_NB the only actor would sleep for ever.
            let op = m.number(&[1 | 4, 2 | 4, 8, 8 | 4, 1, 16 | 4]);
            m.call(format!("flock {fd} {op}"));
        }
        1 => {
            let (fd, size) = (m.fd(FILES), m.offset());
            let advice = m.number(&[0, 1, 2, 3, 4, 5]);
            m.call(format!("fadvise64 {fd} 0 {size} {advice}"));
        }
        _ => {
            // F_GETLK, F_SETLK, F_OFD_GETLK, F_OFD_SETLK
            let command = m.number(&[5, 6, 6, 36, 37, 37]);
            let kind = m.rng.pick(&[0, 1, 2, 2, 0, 1, 3]);
            // F_UNLCK asks for locks of a process since Linux 6.6.
            let kind = if command == 36 && kind == 2 { 1 } else { kind };
            let whence = m.rng.pick(&[0, 0, 0, 1, 2, 3]);
            let (start, length) = (m.offset(), m.offset());
            // Nobody's: numbers are shown by names, and who process 1 is differs.
            let pid = if m.rng.one_in(20) { 0x3ffffe } else { 0 };
            m.call(format!(
                "fcntl {fd} {command} [ 2:{kind} 2:{whence} 4:0 8:{start} 8:{length} 4:{pid} 4:0 ]?lock"
            ));
        }
    }
}

/// One operation on what is in files.
pub fn op(m: &mut Model) {
    match m.rng.below(20) {
        0..=3 => open(m),
        4..=10 => transfer(m),
        11 | 12 => seek(m),
        13 | 14 => resize(m),
        15 | 16 => copy(m),
        17 => {
            let (fd, call) = (m.fd(FILES), m.rng.pick(&["fsync", "fdatasync", "sync_file_range"]));
            m.call(format!("{call} {fd} 0 0 0"));
        }
        18 => {
            let fd = m.fd(&[]);
            m.call(format!("fstat {fd} <144:stat"));
        }
        _ => lock(m),
    }
}
