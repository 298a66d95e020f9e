//! Disks with bad sectors, with a quota that is used up, and disks that lie.

mod common;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;
use common::{NOW, Node};

const NS: MountNs = MountNs(0);

impl Node {
    fn new(disk: Option<DiskModel>) -> Node {
        let mut base = MemBase::new();
        let vfs = Vfs::new(Config { disk, ..Config::default() }, &mut base).expect("a file system");
        Node { vfs, base }
    }

    fn open(&mut self, path: &str) -> Outcome<Ino> {
        let at = |dir| At { dir, path: path.as_bytes() };
        self.call(|vfs, ctx, dir| Ok(vfs.open(ctx, at(dir), O_CREAT | O_RDWR, 0o644)?.ino))
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> Ino {
        let ino = self.open(path).expect("a file");
        assert_eq!(self.vfs.write_at(ino, 0, bytes, NOW), Ok(bytes.len()));
        ino
    }

    fn read(&self, ino: Ino, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut out = vec![0; len];
        let n = self.vfs.read_at(ino, at, &mut out)?;
        out.truncate(n);
        Ok(out)
    }

    fn lose_power(&mut self) {
        self.vfs.power_fail(&mut self.base, NOW, NOW, &mut |_, _, _| 0).expect("power");
    }

    fn block_to_lose(&self, choice: (u64, u64)) -> Option<(Ino, u64)> {
        self.vfs.block_to_lose((NS, None), &|_| false, choice)
    }
}

fn pages(of: &[u8]) -> Vec<u8> {
    of.iter().flat_map(|byte| [*byte; PAGE as usize]).collect()
}

#[test]
fn a_read_ends_before_a_bad_block_and_fails_in_it() {
    let mut node = Node::new(None);
    let ino = node.file("f", &pages(b"abc"));
    assert!(!node.vfs.has_bad_blocks());
    node.vfs.go_bad(ino, 1);
    assert_eq!(node.read(ino, 0, 12288), Ok(pages(b"a")));
    assert_eq!(node.read(ino, 4096, 1), Err(Errno::EIO));
    assert_eq!(node.read(ino, 8191, 10), Err(Errno::EIO));
    assert_eq!(node.read(ino, 8192, 4096), Ok(pages(b"c")));
    assert_eq!(node.read(ino, 12288, 10), Ok(vec![]));
    assert!(node.vfs.page(ino, 1).is_none() && node.vfs.page(ino, 2).is_some());
    assert_eq!(node.vfs.page_mut(ino, 1, NOW).map(|frame| frame.is_none()), Ok(true));
}

#[test]
fn a_bad_block_is_good_when_all_of_it_was_written() {
    let mut node = Node::new(None);
    let ino = node.file("f", &pages(b"abc"));
    node.vfs.go_bad(ino, 1);
    // The rest of the block would have to be read.
    assert_eq!(node.vfs.write_at(ino, 4096, b"x", NOW), Err(Errno::EIO));
    assert_eq!(node.vfs.write_at(ino, 4000, &[b'x'; 200], NOW), Ok(96), "up to the block");
    assert_eq!(node.vfs.write_at(ino, 5000, &[b'x'; 4000], NOW), Err(Errno::EIO));
    assert_eq!(node.read(ino, 4096, 1), Err(Errno::EIO));
    assert_eq!(node.vfs.write_at(ino, 4000, &pages(b"xx"), NOW), Ok(8192));
    assert!(!node.vfs.has_bad_blocks());
    assert_eq!(node.read(ino, 5000, 1), Ok(b"x".to_vec()));
    // What is cut off, or made a hole, has no sector.
    node.vfs.go_bad(ino, 1);
    node.vfs.go_bad(ino, 2);
    node.vfs.truncate_to(ino, 5000, NOW).expect("shorter");
    assert!(node.vfs.is_bad(ino, 1) && !node.vfs.is_bad(ino, 2));
    let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    assert_eq!(node.vfs.fallocate(ino, punch, 4096, 100, NOW), Err(Errno::EIO));
    assert_eq!(node.vfs.fallocate(ino, punch, 4096, 904, NOW), Ok(()), "to the end of the file");
    assert_eq!(node.read(ino, 4096, 904), Ok(vec![0; 904]));
    node.vfs.go_bad(ino, 0);
    node.vfs.heal();
    assert!(node.vfs.is_whole() && node.read(ino, 0, 1).is_ok());
}

#[test]
fn only_data_that_is_on_the_disk_goes_bad() {
    let mut node = Node::new(Some(DiskModel::Ordered));
    assert_eq!(node.block_to_lose((0, 0)), None, "there is no file");
    let first = node.file("first", &pages(b"ab"));
    assert_eq!(node.block_to_lose((0, 0)), None, "it is not written yet");
    node.vfs.sync(first).expect("synced");
    assert_eq!(node.block_to_lose((7, 3)), Some((first, 1)));
    assert_eq!(node.vfs.block_to_lose((NS, None), &|ino| ino == first, (7, 3)), None);
    node.vfs.write_at(first, 4200, b"x", NOW).expect("written");
    assert_eq!(node.block_to_lose((7, 3)), Some((first, 0)));
    // A shared mapping may store into a page without notice.
    node.vfs.page_mut(first, 0, NOW).expect("a page");
    assert_eq!(node.block_to_lose((7, 3)), None);
    node.vfs.sync(first).expect("synced");
    let second = node.file("second", &pages(b"a"));
    node.vfs.sync(second).expect("synced");
    assert_eq!(node.block_to_lose((1, 5)), Some((second, 0)));
    node.vfs.go_bad(second, 0);
    assert_eq!(node.block_to_lose((1, 5)), Some((first, 1)), "the other file is left");
    // A power failure leaves the sector as it is.
    node.lose_power();
    assert_eq!(node.read(second, 0, 1), Err(Errno::EIO));
    node.vfs.write_at(second, 0, &pages(b"b"), NOW).expect("all of it");
    assert!(node.vfs.is_whole());
}

#[test]
fn a_power_failure_forgets_bad_blocks_that_are_no_longer_there() {
    let mut node = Node::new(Some(DiskModel::Ordered));
    let ino = node.file("f", &pages(b"ab"));
    node.vfs.sync(ino).expect("synced");
    node.vfs.go_bad(ino, 0);
    let at = |dir| At { dir, path: b"f" };
    node.call(|vfs, ctx, dir| vfs.unlink(ctx, at(dir))).expect("gone");
    node.lose_power();
    assert!(node.vfs.is_whole());
}

#[test]
fn a_quota_holds_for_the_programs_of_one_namespace() {
    let mut node = Node::new(None);
    let ino = node.file("f", b"data");
    node.vfs.set_over_quota(NS, true);
    assert!(!node.vfs.is_whole());
    assert_eq!(node.vfs.write_at(ino, 4, &[1; 5000], NOW), Ok(4092), "the rest of the page");
    assert_eq!(node.vfs.write_at(ino, 4096, &[1; 10], NOW), Err(Errno::EDQUOT));
    assert_eq!(node.vfs.fallocate(ino, 0, 4096, 10, NOW), Err(Errno::EDQUOT));
    assert_eq!(node.open("g"), Err(Fail::Errno(Errno::EDQUOT)));
    // A full disk and a quota: the quota is asked first.
    node.vfs.set_trouble(Trouble { full: true, read_only: false });
    assert_eq!(node.open("g"), Err(Fail::Errno(Errno::EDQUOT)));
    node.vfs.set_over_quota(NS, false);
    node.vfs.set_over_quota(MountNs(1), true);
    assert_eq!(node.open("g"), Err(Fail::Errno(Errno::ENOSPC)));
    node.vfs.set_trouble(Trouble::default());
    assert!(node.open("g").is_ok());
    node.vfs.heal();
    assert!(node.vfs.is_whole());
}

#[test]
fn a_block_that_goes_astray_shows_when_the_power_fails() {
    for model in [DiskModel::Ordered, DiskModel::Strict] {
        let mut node = Node::new(Some(model));
        let (log, other) = (node.file("log", &pages(b"ab")), node.file("other", &pages(b"xy")));
        node.vfs.sync_all();
        assert_eq!(node.vfs.blocks_to_write(log), []);
        node.vfs.write_at(log, 0, &pages(b"AB"), NOW).expect("written");
        node.vfs.write_at(log, 8192, b"end", NOW).expect("written");
        assert_eq!(node.vfs.blocks_to_write(log), [0, 1, 2]);
        let places = node.vfs.places_on_disk((log, 1), None);
        assert_eq!(places, [(log, 0), (other, 0), (other, 1)]);
        node.vfs.sync_astray((log, 1), (other, 0), SimTime::ZERO).expect("synced");
        // The page cache has the right data, and nothing waits to be written.
        assert_eq!((node.read(log, 4096, 1), node.read(other, 0, 1)), (Ok(b"B".to_vec()), Ok(b"x".to_vec())));
        assert_eq!(node.vfs.unsynced(), 0);
        node.vfs.sync_all();
        node.lose_power();
        let expected = [pages(b"Ab"), b"end".to_vec()].concat();
        assert_eq!(node.read(log, 0, 20000), Ok(expected));
        assert_eq!(node.read(other, 0, 20000), Ok(pages(b"By")));
    }
}

#[test]
fn a_new_block_that_goes_astray_leaves_nothing_in_its_place() {
    let mut node = Node::new(Some(DiskModel::Ordered));
    let old = node.file("old", &pages(b"x"));
    node.vfs.sync_all();
    let new = node.file("new", &pages(b"ab"));
    node.vfs.sync_astray((new, 0), (old, 0), SimTime::ZERO).expect("synced");
    node.lose_power();
    assert_eq!(node.read(new, 0, 20000), Ok(pages(b"\0b")));
    assert_eq!(node.read(old, 0, 20000), Ok(pages(b"a")));
}

#[test]
fn a_file_vanishes_whatever_was_synced() {
    let mut node = Node::new(Some(DiskModel::Ordered));
    // What an engine provides is no program's.
    node.vfs.put_file(&mut node.base, b"/etc/hosts", 0o644, b"127.0.0.1 localhost\n").expect("a file");
    assert_eq!((node.vfs.vanishable(NS, None), node.block_to_lose((0, 0))), (0, None));
    node.call(|vfs, ctx, dir| vfs.mkdir(ctx, At { dir, path: b"data" }, 0o755)).expect("a directory");
    node.file("data/a", b"a");
    node.file("data/b", b"b");
    node.vfs.sync_all();
    node.lose_power();
    assert_eq!(node.vfs.vanishable(NS, None), 2);
    assert_eq!(node.vfs.vanish((NS, None), 2), None);
    let gone = node.vfs.vanish((NS, None), 1).expect("a file");
    assert!(gone == b"/data/a" || gone == b"/data/b");
    assert_eq!(node.vfs.vanishable(NS, None), 1);
    let get = |node: &mut Node, path: &[u8]| node.vfs.get_file(&mut node.base, path).is_ok();
    assert!(!get(&mut node, &gone));
    let left: &[u8] = if gone == b"/data/a" { b"/data/b" } else { b"/data/a" };
    assert!(get(&mut node, left));
    // The disk does not have it either.
    node.lose_power();
    assert!(!get(&mut node, &gone) && get(&mut node, left));
}

/// What is about a volume finds its files alone, whoever has it mounted, and a namespace that is made anew has the same volume.
#[test]
fn a_volume_has_bad_sectors_and_lost_files_of_its_own() {
    let mut node = Node::new(Some(DiskModel::Ordered));
    let volume = Volume(4);
    let of = Box::new(MountSpec::Volume { read_only: false });
    let spec = || MountSpec::Shared { key: 1, of: of.clone(), subpath: Vec::new(), nocopy: false };
    let id = node.vfs.mount(&mut node.base, b"/volume", spec()).unwrap();
    node.vfs.name_volume(id, volume);
    let (inside, outside) = (node.file("/volume/file", &pages(b"a")), node.file("/other", &pages(b"b")));
    assert_eq!((node.vfs.volume_of(inside), node.vfs.volume_of(outside)), (Some(volume), None));
    node.vfs.sync_all();
    let lose =
        |node: &Node, volume, n| node.vfs.block_to_lose((NS, volume), &|_| false, (n, 0)).map(|lost| lost.0);
    assert_eq!([0, 1, 2].map(|n| lose(&node, Some(volume), n)), [Some(inside); 3]);
    assert!([0, 1].map(|n| lose(&node, None, n)).contains(&Some(outside)));
    assert_eq!(lose(&node, Some(Volume(5)), 0), None);
    assert_eq!((node.vfs.vanishable(NS, Some(volume)), node.vfs.vanishable(NS, None)), (1, 2));
    let places = node.vfs.places_on_disk((outside, 0), Some(volume));
    assert!(!places.is_empty() && places.iter().all(|(ino, _)| *ino == inside), "{places:?}");
    assert_eq!(node.vfs.vanish((NS, Some(volume)), 0).as_deref(), Some(&b"/volume/file"[..]));
    assert_eq!(node.vfs.vanishable(NS, Some(volume)), 0);
}
