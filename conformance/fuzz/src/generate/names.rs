//! Names and inodes: links, renames, directories, permissions, times, attributes.

use super::model::{Kind, Model};

fn make_name(m: &mut Model) {
    let (a, b, path, other) = (m.dirfd(), m.dirfd(), m.path(), m.path());
    let mode = m.rng.pick(&[0o755, 0o700, 0o777, 0, 0o1777, 0o2755]);
    match m.rng.below(6) {
        0 | 1 => m.call(format!("mkdirat {a} {path} {mode:#x}")),
        2 => m.call(format!("symlinkat {path} {a} {other}")),
        3 => {
            // AT_EMPTY_PATH wants a capability, which in Bloodhound is the user's id.
            let flags = m.flags(&[0x400], 1);
            m.call(format!("linkat {a} {path} {b} {other} {flags}"));
        }
        4 => m.call(format!("link {path} {other}")),
        _ => {
            // Regular files, FIFOs, sockets, a device, and nothing.
            let kind = m.rng.pick(&[0o100000, 0o10000, 0o140000, 0o20000, 0, 0o40000]);
            // Devices with a number want a capability as well.
            let device = 0;
            m.call(format!("mknodat {a} {path} {:#x} {device:#x}", kind | mode));
        }
    }
}

fn change_name(m: &mut Model) {
    let (a, b, path, other) = (m.dirfd(), m.dirfd(), m.path(), m.path());
    match m.rng.below(8) {
        0 | 1 => m.call(format!("rename {path} {other}")),
        2 | 3 => {
            // RENAME_NOREPLACE, RENAME_EXCHANGE. Bloodhound has no RENAME_WHITEOUT (docs/syscalls.md).
            let flags = m.rng.pick(&[0, 1, 2, 2, 3, 8]);
            m.call(format!("renameat2 {a} {path} {b} {other} {flags}"));
        }
        4 | 5 => {
            let flags = m.flags(&[0x200, 0x200], 1);
            m.call(format!("unlinkat {a} {path} {flags}"));
        }
        6 => m.call(format!("unlink {path}")),
        _ => m.call(format!("rmdir {path}")),
    }
}

fn ask(m: &mut Model) {
    let (dir, path) = (m.dirfd(), m.path());
    match m.rng.below(7) {
        0 => {
            // AT_EMPTY_PATH takes a null pointer for an empty path since Linux 6.11.
            let flags =
                m.flags(if path.starts_with('"') { &[0x100, 0x800, 0x1000] } else { &[0x100, 0x800] }, 1);
            m.call(format!("newfstatat {dir} {path} <144:stat {flags}"));
        }
        1 => {
            // What tmpfs knows beyond what is asked for differs between versions: only the mask's lower bits are shown.
            let flags =
                m.flags(if path.starts_with('"') { &[0x100, 0x1000, 0x2000, 0x4000] } else { &[0x100] }, 1);
            m.call(format!("statx {dir} {path} {flags} 0x7ff <256:statx"));
        }
        2 => {
            let size = m.rng.pick(&[0, 1, 3, 64, -1]);
            m.call(format!("readlinkat {dir} {path} <64 {size}"));
        }
        3 => {
            let mode = m.rng.below(9);
            let flags = m.flags(&[0x100, 0x200, 0x1000], 1);
            m.call(format!("faccessat2 {dir} {path} {mode} {flags}"));
        }
        4 => m.call(format!("access {path} {}", 4)),
        5 => m.make(Kind::Directory, format!("openat {dir} {path} 0x10000 0")),
        _ => {
            let size = m.rng.pick(&[0, 1, 20, 64]);
            // The text has the place of the case's directory, which is the same on all sides.
            m.call(format!("getcwd <64 {size}"));
        }
    }
}

fn change(m: &mut Model) {
    // Of files: what is anonymous has no owner or mode to change since Linux 6.16.
    let (dir, path, fd) = (m.dirfd(), m.path(), m.sure(&[Kind::File, Kind::Directory]));
    let mode = m.rng.pick(&[0o644, 0, 0o777, 0o4755, 0o2755, 0o1777, 0o10644]);
    let (uid, gid) = (m.rng.pick(&[-1, 0, 1000]), m.rng.pick(&[-1, 0, 1000]));
    // A null pointer for a path, and an empty one, may mean what the descriptor refers to.
    let dir = if path == "0" || path == "\"\"" { fd.clone() } else { dir };
    match m.rng.below(6) {
        0 => m.call(format!("fchmodat {dir} {path} {mode:#x}")),
        1 => m.call(format!("fchmod {fd} {mode:#x}")),
        2 => {
            let flags = m.flags(&[0x100, 0x1000], 1);
            m.call(format!("fchownat {dir} {path} {uid} {gid} {flags}"));
        }
        3 => m.call(format!("fchown {fd} {uid} {gid}")),
        4 => {
            let time = |m: &mut Model| match m.rng.below(5) {
                0 => "8:0 8:0x3fffffff".to_owned(),
                1 => "8:0 8:0x3ffffffe".to_owned(),
                2 => "8:5 8:1000000000".to_owned(),
                _ => format!("8:{} 8:{}", m.rng.below(2000) as i64 - 100, m.rng.below(1000)),
            };
            let (a, b) = (time(m), time(m));
            let flags = m.flags(&[0x100, 0x1000], 1);
            m.call(format!("utimensat {dir} {path} [ {a} {b} ] {flags}"));
        }
        _ => {
            let mask = m.rng.pick(&[0o22, 0, 0o777, 0o77, 0o1022]);
            m.call(format!("umask {mask:#x}"));
        }
    }
}

fn attribute(m: &mut Model) {
    let (path, file) = (m.path(), &[Kind::File, Kind::Directory]);
    // Those of users are new on tmpfs in Linux 6.6, so they are left out. Since 6.13 names and flags are looked at before
    // paths and descriptors, so those that are wrong by themselves are left out too.
    // What the file system permits follows the user's id in Bloodhound, so trusted ones are left out.
    let name = m.rng.pick(&["\"other.a\"", "\"trusted\""]);
    let size = m.rng.pick(&[0, 1, 5, 64]);
    let flags = m.rng.pick(&[0, 0, 1, 2, 3]);
    match m.rng.below(7) {
        0 | 1 => m.call(format!("setxattr {path} {name} \"value\" {size} {flags}")),
        // A descriptor that is none is EOPNOTSUPP for these names since 6.13, and EBADF before.
        2 if m.slots.iter().any(|kind| file.contains(kind)) => {
            let fd = m.sure(file);
            m.call(format!("fsetxattr {fd} {name} \"value\" {} {flags}", size.min(5)));
        }
        3 => m.call(format!("getxattr {path} {name} <64 {size}")),
        4 => m.call(format!("lgetxattr {path} {name} <64 {size}")),
        5 => m.call(format!("listxattr {path} <64 {size}")),
        _ => m.call(format!("removexattr {path} {name}")),
    }
}

/// One operation on names and inodes.
pub fn op(m: &mut Model) {
    match m.rng.below(20) {
        0..=4 => make_name(m),
        5..=8 => change_name(m),
        9..=12 => ask(m),
        13..=15 => change(m),
        16 => attribute(m),
        17 => {
            let path = m.path();
            m.call(format!("chdir {path}"));
        }
        18 => {
            let fd = m.fd(&[Kind::Directory]);
            m.call(format!("fchdir {fd}"));
        }
        _ => super::files::open(m),
    }
}
