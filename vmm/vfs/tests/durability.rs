//! What power failures keep and lose, under both disk models.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;
use common::{NOW, Node};
use proptest::prelude::*;

const TREE: TreeId = TreeId(0);

/// A source of choices for one power failure: SplitMix64.
fn choices(seed: u64) -> impl FnMut(u64, Aspect, u64) -> u64 {
    let mut state = seed;
    move |_, _, bound| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

impl Node {
    fn new(disk: DiskModel) -> Node {
        let mut base = MemBase::new();
        base.file(TREE, "base/a", 0o644, &[b'a'; 5000]).file(TREE, "base/b", 0o644, b"b");
        let config = Config { root: Some(TREE), disk: Some(disk), ..Config::default() };
        let vfs = Vfs::new(config, &mut base).unwrap();
        Node { vfs, base }
    }

    fn resolve(&mut self, path: &str) -> Outcome<Ino> {
        self.call(|vfs, ctx, dir| vfs.resolve(ctx, At { dir, path: path.as_bytes() }, false))
    }

    /// Opens or makes a file, writes and closes it.
    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Outcome<Ino> {
        let flags = O_CREAT | O_WRONLY;
        let opened =
            self.call(|vfs, ctx, dir| vfs.open(ctx, At { dir, path: path.as_bytes() }, flags, 0o644))?;
        let written = self.vfs.write_at(opened.ino, offset, bytes, NOW);
        self.vfs.close_ref(opened.ino, opened.writer);
        written?;
        Ok(opened.ino)
    }

    fn rename(&mut self, old: &str, new: &str, flags: u32) -> Outcome<()> {
        self.call(|vfs, ctx, dir| {
            vfs.rename(ctx, At { dir, path: old.as_bytes() }, At { dir, path: new.as_bytes() }, flags)
        })
    }

    fn sync(&mut self, path: &str) {
        if let Ok(ino) = self.resolve(path) {
            self.vfs.sync(ino).unwrap();
        }
    }

    fn get(&mut self, path: &str) -> Option<Vec<u8>> {
        self.vfs.get_file(&mut self.base, path.as_bytes()).ok()
    }

    fn fail(&mut self, choose: &mut dyn FnMut(u64, Aspect, u64) -> u64) -> PowerReport {
        self.vfs.power_fail(&mut self.base, NOW, NOW, choose).unwrap()
    }

    /// The contents of `path` that are possible after a failure now.
    fn outcomes(&self, path: &str) -> BTreeSet<Option<Vec<u8>>> {
        self.after(0, path)
    }

    /// The same for a failure so much later, ns.
    fn after(&self, ns: u64, path: &str) -> BTreeSet<Option<Vec<u8>>> {
        (0..300)
            .map(|seed| {
                let mut node = self.clone();
                let then = NOW.after(ns);
                node.vfs.power_fail(&mut node.base, then, then, &mut choices(seed)).unwrap();
                node.get(path)
            })
            .collect()
    }

    /// The whole tree. Only directories that were listed show their true link count, hence twice.
    fn dump(&mut self) -> Vec<String> {
        self.dump_once();
        self.dump_once()
    }

    fn dump_once(&mut self) -> Vec<String> {
        let (mut lines, root) = (Vec::new(), self.vfs.root());
        let (mut todo, mut links) = (vec![(root, String::new())], BTreeMap::new());
        while let Some((dir, path)) = todo.pop() {
            for entry in self.vfs.read_dir(&mut self.base, dir, 2, usize::MAX).unwrap() {
                let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                let s = self.vfs.stat_ino(entry.ino).unwrap();
                let mut bytes = vec![0; s.size as usize];
                links.entry(entry.ino).or_insert((s.nlink, s.kind, 0)).2 += 1;
                if s.kind == Kind::Regular {
                    self.vfs.load(&mut self.base, entry.ino).unwrap();
                    self.vfs.read_at(entry.ino, 0, &mut bytes).unwrap();
                }
                let sum =
                    bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte) % 7 + 1);
                lines.push(format!("{path} {:o} {} {} {sum}", s.mode, s.nlink, s.size));
                if s.kind == Kind::Directory {
                    todo.push((entry.ino, path));
                }
            }
        }
        for (nlink, kind, names) in links.into_values() {
            assert_eq!(if kind == Kind::Directory { 1 } else { nlink }, names, "links of a {kind:?}");
        }
        lines.sort();
        lines
    }
}

const BOTH: [DiskModel; 2] = [DiskModel::Ordered, DiskModel::Strict];

fn some(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

#[test]
fn a_restart_of_the_container_loses_nothing() {
    for disk in BOTH {
        let mut node = Node::new(disk);
        node.write("/file", 0, b"written").unwrap();
        node.vfs.restart(&mut node.base).unwrap();
        assert_eq!(node.get("/file"), some(b"written"));
    }
}

#[test]
fn synced_files_survive_and_others_may_not() {
    for disk in BOTH {
        let mut node = Node::new(disk);
        node.write("/file", 0, b"first").unwrap();
        assert!(node.outcomes("/file").len() > 1);
        assert!(node.outcomes("/file").contains(&None) && node.outcomes("/file").contains(&some(b"first")));
        node.sync("/file");
        node.sync("/");
        assert_eq!(node.outcomes("/file"), [some(b"first")].into());
        node.write("/file", 0, b"SECOND").unwrap();
        let after = node.outcomes("/file");
        assert!(after.contains(&some(b"first")) && after.contains(&some(b"SECOND")), "{after:?}");
    }
}

#[test]
fn the_name_needs_its_own_sync_where_posix_says_so() {
    let mut node = Node::new(DiskModel::Strict);
    node.write("/file", 0, b"x").unwrap();
    node.sync("/file");
    assert_eq!(node.outcomes("/file"), [None, some(b"x")].into());
    node.sync("/");
    assert_eq!(node.outcomes("/file"), [some(b"x")].into());
    let mut node = Node::new(DiskModel::Ordered);
    node.write("/file", 0, b"x").unwrap();
    node.sync("/file");
    assert_eq!(node.outcomes("/file"), [some(b"x")].into(), "ext4's journal takes the name along");
}

#[test]
fn replacing_by_rename_is_safe_with_fsync_only() {
    for disk in BOTH {
        let (old, new) = (vec![1u8; 10_000], vec![2u8; 12_000]);
        let mut node = Node::new(disk);
        node.write("/conf", 0, &old).unwrap();
        node.sync("/conf");
        node.sync("/");
        let mut careless = node.clone();
        node.write("/conf.tmp", 0, &new).unwrap();
        node.sync("/conf.tmp");
        node.rename("/conf.tmp", "/conf", 0).unwrap();
        assert_eq!(node.outcomes("/conf"), [Some(old.clone()), Some(new.clone())].into(), "{disk:?}");

        careless.write("/conf.tmp", 0, &new).unwrap();
        let mut first = careless.clone();
        careless.rename("/conf.tmp", "/conf", 0).unwrap();
        let outcomes = careless.outcomes("/conf");
        if disk == DiskModel::Ordered {
            assert_eq!(outcomes, [Some(old), Some(new.clone())].into(), "auto_da_alloc of ext4");
        } else {
            assert!(outcomes.len() > 2, "the bug must show");
            assert!(outcomes.iter().flatten().any(|content| content.len() < new.len()));
        }
        // A name that was not there before is no replacement.
        first.rename("/conf.tmp", "/new", 0).unwrap();
        let outcomes = first.outcomes("/new");
        assert!(outcomes.contains(&None) && outcomes.contains(&Some(new)), "{disk:?}");
        assert!(outcomes.contains(&some(b"")), "{disk:?}: a name without content");
    }
}

#[test]
fn emptying_a_file_and_writing_it_anew_ends_with_its_close() {
    let written = |close: bool| {
        let mut node = Node::new(DiskModel::Ordered);
        node.write("/conf", 0, &[1; 3000]).unwrap();
        node.vfs.sync_all();
        let opened =
            node.call(|vfs, ctx, dir| vfs.open(ctx, At { dir, path: b"/conf" }, O_WRONLY | O_TRUNC, 0));
        let opened = opened.unwrap();
        node.vfs.write_at(opened.ino, 0, &[2; 9000], NOW).unwrap();
        if close {
            node.vfs.close_ref(opened.ino, opened.writer);
        }
        // What makes all metadata durable, and no content but its own.
        node.write("/other", 0, b"x").unwrap();
        node.sync("/other");
        node.outcomes("/conf")
    };
    assert_eq!(written(true), [Some(vec![2; 9000])].into());
    let open = written(false);
    assert!(open.contains(&some(b"")) && open.contains(&Some(vec![2; 4096])), "{open:?}");
}

#[test]
fn time_makes_changes_durable() {
    const SECOND: u64 = 1_000_000_000;
    let outcomes = |disk, seconds: u64, path: &str| {
        let mut node = Node::new(disk);
        node.write("/file", 0, &[1; 100]).unwrap();
        node.call(|vfs, ctx, dir| vfs.mkdir(ctx, At { dir, path: b"/dir" }, 0o755)).unwrap();
        node.after(seconds * SECOND, path)
    };
    for (seconds, lost, empty) in
        [(1, true, true), (5, true, true), (7, false, true), (30, false, true), (42, false, false)]
    {
        let seen = outcomes(DiskModel::Ordered, seconds, "/file");
        assert_eq!((seen.contains(&None), seen.contains(&some(b""))), (lost, empty), "{seconds} s: {seen:?}");
    }
    assert_eq!(outcomes(DiskModel::Strict, 42, "/file"), [Some(vec![1; 100])].into());
    assert!(outcomes(DiskModel::Strict, 30, "/file").contains(&None));
}

#[test]
fn a_sync_promises_nothing_until_it_returns() {
    for disk in BOTH {
        let mut node = Node::new(disk);
        let ino = node.write("/file", 0, &[1; 100]).unwrap();
        node.vfs.sync_all();
        node.write("/file", 0, &[2; 100]).unwrap();
        node.vfs.sync_until(ino, NOW.after(500)).unwrap();
        let (old, new) = (Some(vec![1; 100]), Some(vec![2; 100]));
        assert_eq!(node.after(499, "/file"), [old, new.clone()].into());
        assert_eq!(node.after(500, "/file"), [new].into());
        node.vfs.sync_all_until(NOW.after(700));
        assert_eq!(node.after(499, "/file").len(), 1, "nothing was left to sync");
    }
}

#[test]
fn a_sector_has_no_later_write_without_an_earlier_one() {
    for disk in BOTH {
        let mut node = Node::new(disk);
        node.write("/file", 0, &[0; 4096]).unwrap();
        node.vfs.sync_all();
        for at in 0..8u8 {
            node.write("/file", u64::from(at) * 100, &[at + 1; 100]).unwrap();
        }
        let seen = node.outcomes("/file");
        assert!(seen.len() > 8);
        for content in seen.into_iter().flatten() {
            for sector in content.chunks(512) {
                let gone = sector.iter().position(|byte| *byte == 0).unwrap_or(512);
                assert!(sector[gone..].iter().all(|byte| *byte == 0), "{sector:?}");
            }
        }
    }
}

#[test]
fn pages_of_mappings_stay_noticed_when_the_flusher_writes_them() {
    let mut node = Node::new(DiskModel::Ordered);
    let ino = node.write("/file", 0, &[0; 100]).unwrap();
    node.vfs.sync_all();
    node.vfs.map_start(ino);
    node.vfs.page_mut(ino, 0, NOW).unwrap().unwrap().write_shared(0, &[1; 100]);
    let later = SimTime(100_000_000_000);
    // Enough for a segment of the list, long after the store.
    for at in 0..300u64 {
        node.vfs.write_at(ino, 4096 + at * 10, &[7; 10], SimTime(at + 1)).unwrap();
    }
    node.vfs.write_at(ino, 9000, &[7; 10], later).unwrap();
    node.vfs.page_mut(ino, 0, later).unwrap().unwrap().write_shared(0, &[2; 100]);
    node.sync("/file");
    for content in node.outcomes("/file").into_iter().flatten() {
        assert_eq!(content[..100], [2; 100]);
    }
}

#[test]
fn an_ordered_log_is_a_prefix() {
    let mut node = Node::new(DiskModel::Ordered);
    node.write("/log", 0, &[]).unwrap();
    node.sync("/log");
    let mut whole = Vec::new();
    for record in 0..20u8 {
        let bytes = vec![record + 1; 700];
        node.write("/log", whole.len() as u64, &bytes).unwrap();
        whole.extend(bytes);
        if record == 9 {
            node.sync("/log");
        }
    }
    let outcomes = node.outcomes("/log");
    assert!(outcomes.len() > 5);
    for content in outcomes {
        let content = content.unwrap();
        assert!(whole.starts_with(&content) && content.len() >= 7000, "{}", content.len());
    }
}

#[test]
fn overwrites_tear_at_sectors() {
    for disk in BOTH {
        let mut node = Node::new(disk);
        node.write("/file", 0, &[1; 4096]).unwrap();
        node.vfs.sync_all();
        node.write("/file", 100, &[2; 3000]).unwrap();
        let mut torn = 0;
        for content in node.outcomes("/file").into_iter().flatten() {
            let twos = content.iter().filter(|byte| **byte == 2).count();
            torn += usize::from(twos > 0 && twos < 3000);
            for (at, pair) in content.windows(2).enumerate() {
                let border = at + 1;
                assert!(pair[0] == pair[1] || border == 100 || border == 3100 || border % 512 == 0);
            }
        }
        assert!(torn > 3);
    }
}

#[test]
fn a_failed_fsync_is_reported_once_and_the_data_is_gone() {
    let mut node = Node::new(DiskModel::Ordered);
    let ino = node.write("/file", 0, b"old").unwrap();
    node.sync("/file");
    node.write("/file", 0, b"new").unwrap();
    node.vfs.sync_failed(ino);
    node.sync("/file");
    node.vfs.sync_all();
    assert_eq!(node.get("/file"), some(b"new"), "still in the page cache");
    assert_eq!(node.outcomes("/file"), [some(b"old")].into());
    node.write("/file", 1, b"xy").unwrap();
    node.sync("/file");
    assert_eq!(node.outcomes("/file"), [some(b"oxy")].into());
}

#[test]
fn stores_through_mappings_need_msync() {
    let mut node = Node::new(DiskModel::Ordered);
    let ino = node.write("/file", 0, &[0; 100]).unwrap();
    node.sync("/file");
    node.vfs.map_start(ino);
    let store = |node: &mut Node, byte| {
        let frame = node.vfs.page_mut(ino, 0, NOW).unwrap().unwrap();
        frame.write_shared(0, &[byte; 100]);
    };
    store(&mut node, 1);
    assert!(node.outcomes("/file").contains(&Some(vec![0; 100])));
    node.vfs.take_moved();
    node.sync("/file");
    assert_eq!(node.vfs.take_moved(), [PageMoved { ino, index: 0 }], "the next store must be noticed");
    assert_eq!(node.outcomes("/file"), [Some(vec![1; 100])].into());
    store(&mut node, 2);
    let after = node.outcomes("/file");
    assert!(after.contains(&Some(vec![1; 100])) && after.contains(&Some(vec![2; 100])));
}

#[test]
fn base_files_come_back_when_their_removal_is_lost() {
    let mut node = Node::new(DiskModel::Ordered);
    node.call(|vfs, ctx, dir| vfs.unlink(ctx, At { dir, path: b"base/b" })).unwrap();
    node.write("/base/a", 0, b"changed").unwrap();
    assert_eq!(node.outcomes("/base/b"), [None, some(b"b")].into());
    let mut changed = vec![b'a'; 5000];
    changed[..7].copy_from_slice(b"changed");
    let seen = node.outcomes("/base/a");
    assert!(seen.contains(&Some(vec![b'a'; 5000])) && seen.contains(&Some(changed)));
    node.vfs.sync_all();
    assert_eq!(node.outcomes("/base/b"), [None].into());
}

#[test]
fn tmpfs_is_empty_after_a_failure_and_volumes_are_disks() {
    let mut node = Node::new(DiskModel::Ordered);
    let mount =
        |node: &mut Node, path: &str, spec| node.vfs.mount(&mut node.base, path.as_bytes(), spec).unwrap();
    mount(&mut node, "/tmp", MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) });
    mount(&mut node, "/data", MountSpec::Volume { read_only: false });
    node.write("/tmp/x", 0, b"x").unwrap();
    node.write("/data/x", 0, b"x").unwrap();
    node.sync("/tmp/x");
    node.sync("/data/x");
    assert_eq!(node.outcomes("/tmp/x"), [None].into());
    assert_eq!(node.outcomes("/data/x"), [some(b"x")].into());
    node.fail(&mut |_, _, _| 0);
    node.write("/tmp/y", 0, b"y").unwrap();
    assert_eq!(node.get("/tmp/y"), some(b"y"));
}

#[derive(Clone, Debug)]
enum Op {
    Write(String, u64, usize, u8),
    Truncate(String, u64),
    Punch(String, u64, u64),
    Mkdir(String),
    Rmdir(String),
    Unlink(String),
    Rename(String, String, u32),
    Link(String, String),
    Chmod(String, u32),
    Sync(String),
    SyncAll,
}

fn path() -> impl Strategy<Value = String> {
    let part = || prop::sample::select(vec!["a", "b", "base"]);
    prop::collection::vec(part(), 1..4).prop_map(|parts| parts.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    let flags = prop::sample::select(vec![0, 0, RENAME_EXCHANGE]);
    prop_oneof![
        6 => (path(), 0..9000u64, 1..6000usize, 1..255u8).prop_map(|(p, at, len, b)| Op::Write(p, at, len, b)),
        2 => (path(), 0..9000u64).prop_map(|(p, size)| Op::Truncate(p, size)),
        1 => (path(), 0..9000u64, 1..9000u64).prop_map(|(p, at, len)| Op::Punch(p, at, len)),
        4 => path().prop_map(Op::Mkdir),
        1 => path().prop_map(Op::Rmdir),
        2 => path().prop_map(Op::Unlink),
        5 => (path(), path(), flags).prop_map(|(old, new, flags)| Op::Rename(old, new, flags)),
        2 => (path(), path()).prop_map(|(old, new)| Op::Link(old, new)),
        1 => (path(), 0..0o777u32).prop_map(|(p, mode)| Op::Chmod(p, mode)),
        2 => path().prop_map(Op::Sync),
        1 => Just(Op::SyncAll),
    ]
}

fn run(node: &mut Node, op: &Op) -> Result<(), Fail> {
    let cred = Cred::root();
    fn at(dir: Ino, path: &str) -> At<'_> {
        At { dir, path: path.as_bytes() }
    }
    match op {
        Op::Write(path, offset, len, byte) => drop(node.write(path, *offset, &vec![*byte; *len])?.0),
        Op::Truncate(path, size) => node.call(|vfs, ctx, dir| vfs.truncate(ctx, at(dir, path), *size))?,
        Op::Punch(path, offset, len) => {
            let ino = node.resolve(path)?;
            node.vfs.load(&mut node.base, ino)?;
            let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
            node.vfs.fallocate(ino, mode, *offset, *len, NOW)?;
        }
        Op::Mkdir(path) => drop(node.call(|vfs, ctx, dir| vfs.mkdir(ctx, at(dir, path), 0o755))?.0),
        Op::Rmdir(path) => node.call(|vfs, ctx, dir| vfs.rmdir(ctx, at(dir, path)))?,
        Op::Unlink(path) => node.call(|vfs, ctx, dir| vfs.unlink(ctx, at(dir, path)))?,
        Op::Rename(old, new, flags) => node.rename(old, new, *flags)?,
        Op::Link(old, new) => node.call(|vfs, ctx, dir| vfs.link(ctx, at(dir, old), at(dir, new), false))?,
        Op::Chmod(path, mode) => {
            let ino = node.resolve(path)?;
            node.vfs.chmod(ino, &cred, *mode, NOW)?;
        }
        Op::Sync(path) => node.sync(path),
        Op::SyncAll => node.vfs.sync_all(),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// If every change is kept the tree is the same; if everything was synced it is the same whatever is chosen;
    /// otherwise the tree is sound, and equal choices give equal trees.
    #[test]
    fn failures_leave_sound_trees(ops in prop::collection::vec(op(), 1..60), strict: bool, seed: u64) {
        let mut node = Node::new(if strict { DiskModel::Strict } else { DiskModel::Ordered });
        for op in &ops {
            let untracked = run(&mut node, op);
            prop_assert!(!matches!(untracked, Err(Fail::Errno(Errno::ESTALE | Errno::EIO))), "{op:?}");
        }
        let before = node.dump();

        let mut kept = node.clone();
        let report = kept.fail(&mut |_, _, _| 0);
        prop_assert_eq!(kept.dump(), before.clone());
        prop_assert_eq!((report.torn, report.lost), (0, 0));

        let mut synced = node.clone();
        synced.vfs.sync_all();
        prop_assert_eq!(synced.vfs.unsynced(), 0);
        synced.fail(&mut choices(seed));
        prop_assert_eq!(synced.dump(), before);

        let mut again = node.clone();
        prop_assert_eq!(node.fail(&mut choices(seed)), again.fail(&mut choices(seed)));
        let after = node.dump();
        prop_assert_eq!(&after, &again.dump());
        prop_assert_eq!(node.fail(&mut choices(seed)), PowerReport::default());
        prop_assert_eq!(node.dump(), after.clone());
        for op in &ops {
            let _ = run(&mut node, op);
        }
        node.dump();
    }
}

/// What is in the image and what the engine puts there is durable, what a program has written to the volume is not for that.
#[test]
fn a_container_that_is_made_anew_has_its_root_on_the_disk_and_its_volume_as_it_was() {
    for disk in [DiskModel::Ordered, DiskModel::Strict] {
        let mut node = Node::new(disk);
        node.base.file(TreeId(1), "version", 0o644, b"2").file(TreeId(1), "data/of-image", 0o644, b"x");
        let of = Box::new(MountSpec::Volume { read_only: false });
        let volume = || MountSpec::Shared { key: 1, of: of.clone(), subpath: Vec::new(), nocopy: false };
        node.vfs.mount(&mut node.base, b"/data", volume()).unwrap();
        node.write("/data/synced", 0, b"synced").unwrap();
        node.sync("/data/synced");
        node.sync("/data");
        node.write("/data/unsynced", 0, b"unsynced").unwrap();
        node.write("/own", 0, b"own").unwrap();
        let root = RootSpec { tree: Some(TreeId(1)), ..RootSpec::default() };
        let mut fill = |vfs: &mut Vfs, base: &mut dyn BaseFs| {
            vfs.mount(base, b"/data", volume()).expect("a mount");
            vfs.put_file(base, b"/etc/hosts", 0o644, b"hosts").expect("a file");
            Ok(())
        };
        node.vfs.make_anew(root, &mut node.base, &mut fill).unwrap();
        assert_eq!(node.get("/data/unsynced").as_deref(), Some(&b"unsynced"[..]));
        assert!(node.vfs.unsynced() > 0);
        let only = |bytes: &[u8]| BTreeSet::from([Some(bytes.to_vec())]);
        assert_eq!(node.outcomes("/version"), only(b"2"));
        assert_eq!(node.outcomes("/etc/hosts"), only(b"hosts"));
        assert_eq!(node.outcomes("/data/synced"), only(b"synced"));
        assert_eq!(node.outcomes("/own"), BTreeSet::from([None]));
        assert_eq!(node.outcomes("/data/of-image"), BTreeSet::from([None]), "the volume was not empty");
        assert!(node.outcomes("/data/unsynced").len() > 1, "{disk:?}");
        // It goes on as any other.
        node.write("/later", 0, b"later").unwrap();
        node.sync("/later");
        node.sync("/");
        assert_eq!(node.outcomes("/later"), only(b"later"));
    }
}

/// An empty volume takes what the new image has at its place, and that is durable then.
#[test]
fn a_volume_that_is_empty_is_filled_by_the_new_image() {
    let mut node = Node::new(DiskModel::Ordered);
    node.base.file(TreeId(1), "data/of-image", 0o644, b"x");
    let of = Box::new(MountSpec::Volume { read_only: false });
    let volume = || MountSpec::Shared { key: 1, of: of.clone(), subpath: Vec::new(), nocopy: false };
    node.vfs.mount(&mut node.base, b"/data", volume()).unwrap();
    let root = RootSpec { tree: Some(TreeId(1)), ..RootSpec::default() };
    let mut fill = |vfs: &mut Vfs, base: &mut dyn BaseFs| {
        vfs.mount(base, b"/data", volume()).expect("a mount");
        Ok(())
    };
    node.vfs.make_anew(root, &mut node.base, &mut fill).unwrap();
    assert_eq!(node.outcomes("/data/of-image"), BTreeSet::from([Some(b"x".to_vec())]));
    node.write("/data/of-image", 0, b"y").unwrap();
    node.sync("/data/of-image");
    assert_eq!(node.outcomes("/data/of-image"), BTreeSet::from([Some(b"y".to_vec())]));
}
