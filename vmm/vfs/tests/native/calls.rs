//! The calls and how they are made up.

use bloodhound_vfs::flags::*;
use proptest::prelude::*;

use super::SLOTS;

#[derive(Clone, Debug)]
pub enum Op {
    Open { path: String, flags: u32, mode: u32, slot: usize },
    Close { slot: usize },
    Pread { slot: usize, at: u64, len: usize },
    Pwrite { slot: usize, at: u64, len: usize, fill: u8 },
    Ftruncate { slot: usize, size: u64 },
    Fallocate { slot: usize, mode: u32, at: u64, len: u64 },
    Mkdir { path: String, mode: u32 },
    Mkfifo { path: String, mode: u32 },
    Rmdir { path: String },
    Unlink { path: String },
    Symlink { target: String, path: String },
    Link { old: String, new: String, follow: bool },
    Rename { old: String, new: String, flags: u32 },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: Option<u32>, gid: Option<u32> },
    Stat { path: String, follow: bool },
    Readlink { path: String },
    Access { path: String, want: u32 },
    Truncate { path: String, size: u64 },
    List { path: String },
}

/// One call: who, starting from the test's directory or from an open slot.
#[derive(Clone, Debug)]
pub struct Call {
    pub user: usize,
    pub from: Option<usize>,
    pub op: Op,
}

fn part() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        10 => prop::sample::select(vec!["a", "b", "c"]),
        1 => Just("."),
        1 => Just(".."),
        1 => Just("")
    ]
}

fn path() -> impl Strategy<Value = String> {
    let parts = prop::collection::vec(part(), 1..4);
    (parts, prop::bool::weighted(0.1))
        .prop_map(|(parts, slash)| format!("{}{}", parts.join("/"), if slash { "/" } else { "" }))
        // Never absolute: that would be the host's root.
        .prop_map(|path| if path.starts_with('/') { format!(".{path}") } else { path })
}

fn target() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec!["a", "b", "c", "."]);
    prop::collection::vec(names, 1..3).prop_map(|parts| parts.join("/"))
}

fn open_flags() -> impl Strategy<Value = u32> {
    let access = prop::sample::select(vec![O_RDONLY, O_WRONLY, O_RDWR, O_RDWR]);
    let bits = vec![O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY, O_NOFOLLOW, O_PATH];
    (access, prop::sample::subsequence(bits, 0..4), prop::bool::weighted(0.05)).prop_map(
        |(access, bits, tmp)| {
            if tmp {
                return O_TMPFILE | access;
            }
            let flags = bits.into_iter().fold(access, |all, bit| all | bit);
            // What the two together mean changed in Linux 6.4.
            if flags & O_CREAT != 0 { flags & !O_DIRECTORY } else { flags }
        },
    )
}

fn mode() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![
        0o777, 0o755, 0o700, 0o666, 0o644, 0o500, 0o444, 0o110, 0o2775, 0o4755, 0o2755, 0,
    ])
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_000u64, Just(4096u64), Just(8192u64)]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..SLOTS;
    let modes = prop::sample::select(vec![0, 1, 3, 0x10, 0x11, 2, 0x13]);
    let rename_flags = prop::sample::select(vec![0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, 3]);
    let id = || prop::option::of(prop::sample::select(vec![0u32, 1000, 1001]));
    prop_oneof![
        8 => (path(), open_flags(), mode(), slot.clone())
            .prop_map(|(path, flags, mode, slot)| Op::Open { path, flags, mode, slot }),
        1 => slot.clone().prop_map(|slot| Op::Close { slot }),
        3 => (slot.clone(), size(), 0..9000usize).prop_map(|(slot, at, len)| Op::Pread { slot, at, len }),
        4 => (slot.clone(), size(), 0..9000usize, 1..255u8)
            .prop_map(|(slot, at, len, fill)| Op::Pwrite { slot, at, len, fill }),
        1 => (slot.clone(), size()).prop_map(|(slot, size)| Op::Ftruncate { slot, size }),
        2 => (slot, modes, size(), size()).prop_map(|(slot, mode, at, len)| Op::Fallocate { slot, mode, at, len }),
        5 => (path(), mode()).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::Mkfifo { path, mode }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        3 => path().prop_map(|path| Op::Unlink { path }),
        3 => (target(), path()).prop_map(|(target, path)| Op::Symlink { target, path }),
        3 => (path(), path(), any::<bool>()).prop_map(|(old, new, follow)| Op::Link { old, new, follow }),
        6 => (path(), path(), rename_flags).prop_map(|(old, new, flags)| Op::Rename { old, new, flags }),
        2 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        1 => (path(), id(), id()).prop_map(|(path, uid, gid)| Op::Chown { path, uid, gid }),
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Op::Stat { path, follow }),
        1 => path().prop_map(|path| Op::Readlink { path }),
        1 => (path(), 0..8u32).prop_map(|(path, want)| Op::Access { path, want }),
        1 => (path(), size()).prop_map(|(path, size)| Op::Truncate { path, size }),
        2 => path().prop_map(|path| Op::List { path }),
    ]
}

pub fn call() -> impl Strategy<Value = Call> {
    let user = prop_oneof![3 => Just(0usize), 1 => Just(1usize), 1 => Just(2usize)];
    let from = prop_oneof![4 => Just(None), 1 => (0..SLOTS).prop_map(Some)];
    (user, from, op()).prop_map(|(user, from, op)| Call { user, from, op })
}
