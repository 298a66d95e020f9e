//! What the comparison with the host does not reach: mounts, synthetic paths, mapped pages, quotas, listings while
//! names change, paths of inodes, references, extended attributes, times.

use std::collections::BTreeSet;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;

const EPOCH: u64 = 1_700_000_000_000_000_000;

struct Node {
    vfs: Vfs,
    base: MemBase,
    cred: Cred,
    now: SimTime,
}

impl Node {
    fn new() -> Node {
        Node::with(MemBase::new(), Config { epoch_ns: EPOCH, ..Config::default() })
    }

    fn with(mut base: MemBase, config: Config) -> Node {
        let vfs = Vfs::new(config, &mut base).unwrap();
        Node { vfs, base, cred: Cred::root(), now: SimTime(1_000_000_000) }
    }

    /// Runs one call with a path from the root.
    fn call<T>(&mut self, f: impl FnOnce(&mut Vfs, &mut Ctx, Ino) -> Outcome<T>) -> Outcome<T> {
        let root = self.vfs.root();
        let mut ctx = Ctx {
            base: &mut self.base,
            cred: &self.cred,
            root,
            now: self.now,
            umask: 0o022,
            links: 0,
            resolve: 0,
        };
        f(&mut self.vfs, &mut ctx, root)
    }

    fn resolve(&mut self, path: &str) -> Outcome<Ino> {
        self.call(|vfs, ctx, dir| vfs.resolve(ctx, At { dir, path: path.as_bytes() }, true))
    }

    fn open(&mut self, path: &str, flags: u32) -> Outcome<Opened> {
        self.call(|vfs, ctx, dir| vfs.open(ctx, At { dir, path: path.as_bytes() }, flags, 0o644))
    }

    fn mkdir(&mut self, path: &str) -> Outcome<Ino> {
        self.call(|vfs, ctx, dir| vfs.mkdir(ctx, At { dir, path: path.as_bytes() }, 0o777))
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        self.call(|vfs, ctx, dir| vfs.unlink(ctx, At { dir, path: path.as_bytes() }))
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        self.call(|vfs, ctx, dir| vfs.rmdir(ctx, At { dir, path: path.as_bytes() }))
    }

    fn rename(&mut self, old: &str, new: &str) -> Outcome<()> {
        self.call(|vfs, ctx, dir| {
            let at = |path: &'static str| At { dir, path: path.as_bytes() };
            let (old, new) = (old.to_owned().leak(), new.to_owned().leak());
            vfs.rename(ctx, at(old), at(new), 0)
        })
    }

    fn symlink(&mut self, target: &str, path: &str) -> Outcome<Ino> {
        self.call(|vfs, ctx, dir| vfs.symlink(ctx, target.as_bytes(), At { dir, path: path.as_bytes() }))
    }

    fn stat(&mut self, path: &str) -> Outcome<Stat> {
        self.call(|vfs, ctx, dir| vfs.stat(ctx, At { dir, path: path.as_bytes() }, true))
    }

    fn put(&mut self, path: &str, bytes: &[u8]) -> Ino {
        self.vfs.put_file(&mut self.base, path.as_bytes(), 0o644, bytes).unwrap()
    }

    fn get(&mut self, path: &str) -> Outcome<Vec<u8>> {
        self.vfs.get_file(&mut self.base, path.as_bytes())
    }

    fn mount(&mut self, path: &str, spec: MountSpec) -> MountId {
        self.vfs.mount(&mut self.base, path.as_bytes(), spec).unwrap()
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        let dir = self.resolve(path).unwrap();
        let all = self.vfs.read_dir(&mut self.base, dir, 2, usize::MAX).unwrap();
        let mut names: Vec<_> =
            all.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        names.sort();
        names
    }

    fn path(&self, ino: Ino) -> String {
        String::from_utf8(self.vfs.path_of(self.vfs.root(), ino)).unwrap()
    }
}

fn err<T: std::fmt::Debug>(outcome: Outcome<T>) -> Errno {
    match outcome {
        Err(Fail::Errno(errno)) => errno,
        other => panic!("expected an error number, got {other:?}"),
    }
}

const TMP: MountSpec = MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) };

#[test]
fn hard_links_of_a_base_tree_are_one_inode() {
    let mut tree = MemBase::new();
    let root = TreeId(0);
    tree.file(root, "bin/one", 0o755, b"same")
        .file(root, "bin/two", 0o755, b"same")
        .file(root, "alone", 0o644, b"x");
    tree.link(root, &["bin/one", "bin/two"], 7);
    tree.set_xattr(root, "alone", b"user.colour", b"blue");
    let mut node = Node::with(tree, Config { root: Some(root), epoch_ns: EPOCH, ..Config::default() });
    let (one, two) = (node.stat("/bin/one").unwrap(), node.stat("/bin/two").unwrap());
    assert_eq!((one.ino, one.nlink), (two.ino, 2));
    node.put("/bin/one", b"changed");
    assert_eq!(node.get("/bin/two").unwrap(), b"changed", "copied up once, for both names");
    node.unlink("/bin/one").unwrap();
    assert_eq!(node.stat("/bin/two").unwrap().nlink, 1);
    assert_eq!(node.get("/bin/two").unwrap(), b"changed");
    let alone = node.resolve("/alone").unwrap();
    assert_eq!(node.vfs.list_xattr(alone).unwrap(), [b"user.colour".to_vec()]);
}

#[test]
fn dotdot_and_paths_cross_mounts() {
    let mut node = Node::new();
    node.mount("/a/b", TMP);
    node.mount("/a/b/c", TMP);
    let inner = node.mkdir("/a/b/c/d").unwrap();
    assert_eq!(node.path(inner), "/a/b/c/d");
    let outer = node.resolve("/a").unwrap();
    assert_eq!(node.resolve("/a/b/c/d/../../..").unwrap(), outer);
    assert_eq!(node.resolve("/a/b/c/d/../../../../../..").unwrap(), node.vfs.root());
    let (a, b) = (node.stat("/a").unwrap(), node.stat("/a/b").unwrap());
    assert_ne!(a.dev, b.dev);
    assert_eq!(err(node.rename("/a/b/c/d", "/a/d")), Errno::EXDEV);
    assert_eq!(err(node.rmdir("/a/b")), Errno::EBUSY);
    assert_eq!(err(node.rename("/a/b", "/x")), Errno::EBUSY);
    let paths: Vec<_> =
        node.vfs.mounts().into_iter().map(|mount| (mount.id.0, mount.parent.0, mount.path)).collect();
    assert_eq!(paths, [(1, 1, b"/".to_vec()), (2, 1, b"/a/b".to_vec()), (3, 2, b"/a/b/c".to_vec())]);
}

#[test]
fn a_changed_root_cannot_be_left() {
    let mut node = Node::new();
    node.put("/jail/etc/x", b"inside");
    node.put("/etc/x", b"outside");
    node.symlink("/etc/x", "/jail/link").unwrap();
    let jail = node.resolve("/jail").unwrap();
    let mut ctx = Ctx {
        base: &mut node.base,
        cred: &node.cred,
        root: jail,
        now: node.now,
        umask: 0,
        links: 0,
        resolve: 0,
    };
    let vfs = &mut node.vfs;
    let inside = vfs.resolve(&mut ctx, At { dir: jail, path: b"etc/x" }, true).unwrap();
    for path in ["/../../etc/x", "link", "/etc/../../jail/../etc/x", "/etc/../../etc/x"] {
        let found = vfs.resolve(&mut ctx, At { dir: jail, path: path.as_bytes() }, true);
        assert_eq!(found.ok(), (!path.contains("jail")).then_some(inside), "{path}");
    }
    assert_eq!(vfs.path_of(jail, inside), b"/etc/x");
    assert_eq!(vfs.path_of(jail, vfs.root()), b"(unreachable)/");
}

#[test]
fn synthetic_paths_come_back_with_their_rest() {
    let mut node = Node::new();
    let proc = node.mount("/proc", MountSpec::Synthetic { tag: 7, fstype: "proc" });
    node.mount("/dev", MountSpec::Dev);
    node.symlink("/dev/fd", "/fds").unwrap();
    let expect = |rest: &str, links| {
        Fail::Synthetic(Box::new(SynthPath { mount: proc, tag: 7, rest: rest.as_bytes().to_vec(), links }))
    };
    for (path, rest, links) in [
        ("/proc", "", 0),
        ("/proc/", "/", 0),
        ("/proc/self/../1/", "self/../1/", 0),
        ("/dev/fd/3", "self/fd/3", 1),
        ("/fds/0", "self/fd/0", 2),
        ("/dev/stdin", "self/fd/0", 1),
    ] {
        assert_eq!(node.resolve(path), Err(expect(rest, links)), "{path}");
        assert_eq!(node.open(path, O_RDONLY), Err(expect(rest, links)), "{path}");
    }
    assert_eq!(node.open("/proc/new", O_CREAT | O_RDWR), Err(expect("new", 0)));
    assert_eq!(err(node.mkdir("/proc")), Errno::EEXIST);
    assert_eq!(err(node.rmdir("/proc")), Errno::EBUSY);
    assert_eq!(node.vfs.mount_parent(proc), node.vfs.root());
    assert!(node.names("/").contains(&"proc".to_string()));
}

#[test]
fn too_many_links_and_long_names() {
    let mut node = Node::new();
    node.put("/l0", b"end");
    for i in 1..=41 {
        node.symlink(&format!("l{}", i - 1), &format!("/l{i}")).unwrap();
    }
    assert!(node.resolve("/l40").is_ok());
    assert_eq!(err(node.resolve("/l41")), Errno::ELOOP);
    let mut ctx = Ctx {
        base: &mut node.base,
        cred: &node.cred,
        root: node.vfs.root(),
        now: node.now,
        umask: 0,
        links: 1,
        resolve: 0,
    };
    let dir = ctx.root;
    assert_eq!(err(node.vfs.resolve(&mut ctx, At { dir, path: b"l40" }, true)), Errno::ELOOP);
    assert!(node.mkdir(&format!("/{}", "n".repeat(255))).is_ok());
    assert_eq!(err(node.mkdir(&format!("/{}", "n".repeat(256)))), Errno::ENAMETOOLONG);
    assert!(node.resolve(&format!("/{}", "./".repeat(2047))).is_ok());
    assert_eq!(err(node.resolve(&format!("//{}", "./".repeat(2047)))), Errno::ENAMETOOLONG);
    assert_eq!(err(node.resolve("")), Errno::ENOENT);
}

#[test]
fn sticky_directories_protect_others_files() {
    let mut node = Node::new();
    node.mount("/tmp", TMP);
    node.cred = Cred::user(1000, 1000);
    node.open("/tmp/mine", O_CREAT | O_RDWR).unwrap();
    node.cred = Cred::user(1001, 1001);
    node.open("/tmp/other", O_CREAT | O_RDWR).unwrap();
    assert_eq!(err(node.unlink("/tmp/mine")), Errno::EPERM);
    assert_eq!(err(node.rename("/tmp/mine", "/tmp/x")), Errno::EPERM);
    assert_eq!(err(node.rename("/tmp/other", "/tmp/mine")), Errno::EPERM);
    assert_eq!(err(node.open("/tmp/mine", O_RDWR)), Errno::EACCES);
    node.unlink("/tmp/other").unwrap();
    node.cred = Cred::root();
    node.unlink("/tmp/mine").unwrap();
}

#[test]
fn removed_files_live_until_the_last_close() {
    let mut node = Node::new();
    let count = node.vfs.inode_count();
    let opened = node.open("/file", O_CREAT | O_RDWR).unwrap();
    node.vfs.write_at(opened.ino, 0, b"still here", node.now).unwrap();
    assert_eq!(node.path(opened.ino), "/file");
    node.unlink("/file").unwrap();
    assert_eq!(node.path(opened.ino), "/file (deleted)");
    assert_eq!(node.vfs.stat_ino(opened.ino).unwrap().nlink, 0);
    let mut bytes = [0; 10];
    node.vfs.read_at(opened.ino, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
    assert_eq!(
        err(node.call(|vfs, ctx, dir| vfs.link_ino(ctx, opened.ino, At { dir, path: b"new" }))),
        Errno::ENOENT
    );
    node.vfs.close_ref(opened.ino, opened.writer);
    assert_eq!(node.vfs.stat_ino(opened.ino), Err(Errno::ESTALE));
    assert_eq!(node.vfs.inode_count(), count);
}

#[test]
fn a_removed_working_directory_is_empty_and_above_it_all_goes_on() {
    let mut node = Node::new();
    node.mkdir("/top").unwrap();
    let dir = node.mkdir("/top/cwd").unwrap();
    node.vfs.hold(dir);
    node.rmdir("/top/cwd").unwrap();
    let root = node.vfs.root();
    let mut ctx =
        Ctx { base: &mut node.base, cred: &node.cred, root, now: node.now, umask: 0, links: 0, resolve: 0 };
    assert_eq!(err(node.vfs.mkdir(&mut ctx, At { dir, path: b"x" }, 0o777)), Errno::ENOENT);
    assert!(node.vfs.resolve(&mut ctx, At { dir, path: b"." }, true).is_ok());
    assert!(node.vfs.resolve(&mut ctx, At { dir, path: b".." }, true).is_ok());
    assert!(node.vfs.is_removed(dir));
    assert_eq!(node.vfs.read_dir(&mut node.base, dir, 0, 9), Err(Errno::ENOENT));
    node.rmdir("/top").unwrap();
    let mut ctx =
        Ctx { base: &mut node.base, cred: &node.cred, root, now: node.now, umask: 0, links: 0, resolve: 0 };
    assert_eq!(err(node.vfs.resolve(&mut ctx, At { dir, path: b".." }, true)), Errno::ENOENT);
    node.vfs.close_ref(dir, false);
}

#[test]
fn listings_go_on_while_names_come_and_go() {
    let mut base = MemBase::new();
    for i in 0..50 {
        base.file(TreeId(0), &format!("dir/base{i}"), 0o644, b"");
    }
    for order in [Order::Insertion, Order::Hashed(3)] {
        let config = Config { root: Some(TreeId(0)), order, ..Config::default() };
        let mut node = Node::with(base.clone(), config);
        for i in 0..50 {
            node.put(&format!("/dir/new{i}"), b"");
        }
        let dir = node.resolve("/dir").unwrap();
        let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
        loop {
            let part = node.vfs.read_dir(&mut node.base, dir, cookie, 7).unwrap();
            let Some(last) = part.last() else { break };
            cookie = last.next;
            seen.extend(part.into_iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            // rm -r: everything listed so far goes away; and something new comes.
            for name in seen.iter().filter(|name| name.starts_with("base")) {
                let _ = node.unlink(&format!("/dir/{name}"));
            }
            if round < 20 {
                node.put(&format!("/dir/late{round}"), b"");
            }
            round += 1;
            assert!(round < 100, "a listing must end");
        }
        for i in 0..50 {
            for kind in ["base", "new"] {
                let name = format!("{kind}{i}");
                assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1, "{name} {order:?}");
            }
        }
        assert_eq!(seen[..2], [".", ".."]);
        assert!(!node.names("/dir").iter().any(|name| name.starts_with("base")));
    }
}

#[test]
fn whiteouts_hide_the_base_until_made_anew() {
    let mut base = MemBase::new();
    base.file(TreeId(0), "dir/sub/file", 0o644, b"base");
    let mut node = Node::with(base, Config { root: Some(TreeId(0)), ..Config::default() });
    assert_eq!(err(node.rmdir("/dir/sub")), Errno::ENOTEMPTY);
    node.unlink("/dir/sub/file").unwrap();
    assert_eq!(err(node.stat("/dir/sub/file")), Errno::ENOENT);
    node.rmdir("/dir/sub").unwrap();
    node.mkdir("/dir/sub").unwrap();
    assert!(node.names("/dir/sub").is_empty(), "a new directory does not show the old one's files");
    node.rename("/dir", "/moved").unwrap();
    assert_eq!(node.names("/moved"), ["sub"]);
    assert_eq!(err(node.stat("/dir")), Errno::ENOENT);
}

#[test]
fn a_moved_base_directory_keeps_its_files() {
    let mut base = MemBase::new();
    base.file(TreeId(0), "old/a/b", 0o644, b"deep");
    let mut node = Node::with(base, Config { root: Some(TreeId(0)), ..Config::default() });
    node.rename("/old", "/new").unwrap();
    node.mkdir("/old").unwrap();
    assert_eq!(node.get("/new/a/b").unwrap(), b"deep");
    assert_eq!(err(node.stat("/old/a")), Errno::ENOENT);
}

#[test]
fn quotas_give_short_writes_then_enospc() {
    let mut node = Node::new();
    node.mount("/small", MountSpec::Tmpfs { mode: 0o755, size: Some(3 * 4096), owner: (0, 0) });
    let file = node.open("/small/f", O_CREAT | O_RDWR).unwrap().ino;
    assert_eq!(node.vfs.write_at(file, 100, &[1; 20_000], node.now), Ok(3 * 4096 - 100));
    assert_eq!(node.vfs.write_at(file, 3 * 4096, &[1], node.now), Err(Errno::ENOSPC));
    assert_eq!(
        node.vfs.write_at(file, 0, &[2; 4096], node.now),
        Ok(4096),
        "what is allocated may be written"
    );
    assert_eq!(node.vfs.statfs_ino(file).unwrap().bfree, 0);
    node.vfs.truncate_to(file, 4096, node.now).unwrap();
    assert_eq!(node.vfs.statfs_ino(file).unwrap().bfree, 2);
    assert_eq!(node.vfs.fallocate(file, 0, 0, 5 * 4096, node.now), Err(Errno::ENOSPC));
    node.unlink("/small/f").unwrap();
    node.vfs.close_ref(file, true);
    let dir = node.resolve("/small").unwrap();
    assert_eq!(node.vfs.statfs_ino(dir).unwrap().bfree, 3);
    let big = node.open("/big", O_CREAT | O_RDWR).unwrap().ino;
    let limit = Config::default().max_file_size;
    assert_eq!(node.vfs.write_at(big, limit - 1, b"xy", node.now), Ok(1));
    assert_eq!(node.vfs.write_at(big, limit, b"x", node.now), Err(Errno::EFBIG));
    assert_eq!(node.vfs.truncate_to(big, limit + 1, node.now), Err(Errno::EFBIG));
}

#[test]
fn mapped_pages_are_shared_and_their_replacement_is_told() {
    let mut node = Node::new();
    let file = node.put("/f", &[1; 10_000]);
    node.vfs.map_start(file);
    let frame = node.vfs.page_mut(file, 1, node.now).unwrap().unwrap();
    let offset = frame.offset();
    frame.write_shared(0, b"stored"); // what application code does through its mapping
    drop(frame);
    node.vfs.take_moved();
    let mut bytes = [0; 6];
    node.vfs.read_at(file, 4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"stored");
    node.vfs.write_at(file, 4096, b"call", node.now).unwrap();
    assert_eq!(node.vfs.take_moved(), [], "an unshared page is written in place");
    assert_eq!(node.vfs.page(file, 1).unwrap().offset(), offset);

    let snapshot = node.vfs.clone();
    node.vfs.write_at(file, 4096, b"new!", node.now).unwrap();
    assert_eq!(node.vfs.take_moved(), [PageMoved { ino: file, index: 1 }]);
    snapshot.read_at(file, 4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"called");
    node.vfs.truncate_to(file, 4096, node.now).unwrap();
    assert_eq!(node.vfs.take_moved().iter().map(|moved| moved.index).collect::<BTreeSet<_>>(), [1, 2].into());
    assert_eq!(node.vfs.page(file, 1), None, "behind the end: SIGBUS");
    assert_eq!(node.vfs.page_mut(file, 1, node.now), Ok(None));
    node.vfs.map_end(file);
    node.vfs.write_at(file, 0, b"x", node.now).unwrap();
    assert_eq!(node.vfs.take_moved(), [], "nobody maps it");
}

#[test]
fn stores_through_mappings_set_times_once_until_synced() {
    let mut node = Node::new();
    let file = node.put("/f", &[1; 5000]);
    node.vfs.map_start(file);
    let store = |node: &mut Node, secs: u64| {
        let now = SimTime(secs * 1_000_000_000);
        node.vfs.page_mut(file, 0, now).unwrap().unwrap();
        node.vfs.stat_ino(file).unwrap().mtime.secs - 1_700_000_000
    };
    assert_eq!(store(&mut node, 10), 10);
    assert_eq!(store(&mut node, 11), 10, "a mapping that was dropped and made again is not seen");
    let mut fork = node.vfs.clone();
    std::mem::swap(&mut fork, &mut node.vfs);
    assert_eq!(store(&mut node, 11), 10, "nor a clone of the world");
    node.vfs.take_moved();
    node.vfs.sync(file).unwrap();
    assert_eq!(node.vfs.take_moved(), [PageMoved { ino: file, index: 0 }]);
    assert_eq!(store(&mut node, 12), 12);
    node.vfs.map_end(file);
    node.vfs.map_start(file);
    assert_eq!(store(&mut node, 13), 13);
}

#[test]
fn running_programs_cannot_be_written() {
    let mut node = Node::new();
    let ino = node.put("/prog", b"#!");
    assert_eq!(node.vfs.exec_start(&mut node.base, ino, &node.cred), Err(Errno::EACCES));
    node.vfs.chmod(ino, &node.cred, 0o755, node.now).unwrap();
    let writer = node.open("/prog", O_RDWR).unwrap();
    assert_eq!(node.vfs.exec_start(&mut node.base, ino, &node.cred), Err(Errno::ETXTBSY));
    node.vfs.close_ref(ino, writer.writer);
    node.vfs.exec_start(&mut node.base, ino, &node.cred).unwrap();
    assert_eq!(err(node.open("/prog", O_WRONLY)), Errno::ETXTBSY);
    assert_eq!(err(node.open("/prog", O_RDONLY | O_TRUNC)), Errno::ETXTBSY);
    assert!(node.open("/prog", O_RDONLY).is_ok());
    node.unlink("/prog").unwrap();
    node.vfs.exec_end(ino);
    assert!(node.vfs.stat_ino(ino).is_ok(), "the reader still holds it");
}

#[test]
fn tmpfile_gets_its_first_name_by_link() {
    let mut node = Node::new();
    let opened = node.open("/", O_TMPFILE | O_RDWR).unwrap();
    node.vfs.write_at(opened.ino, 0, b"hidden", node.now).unwrap();
    assert!(node.names("/").is_empty());
    node.call(|vfs, ctx, dir| vfs.link_ino(ctx, opened.ino, At { dir, path: b"named" })).unwrap();
    assert_eq!(node.get("/named").unwrap(), b"hidden");
    let exclusive = node.open("/", O_TMPFILE | O_EXCL | O_RDWR).unwrap();
    let again = node.call(|vfs, ctx, dir| vfs.link_ino(ctx, exclusive.ino, At { dir, path: b"x" }));
    assert_eq!(err(again), Errno::ENOENT);
}

#[test]
fn extended_attributes() {
    let mut node = Node::new();
    let (root, user) = (Cred::root(), Cred::user(5, 5));
    let ino = node.put("/f", b"");
    let now = node.now;
    let vfs = &mut node.vfs;
    assert_eq!(vfs.get_xattr(ino, &root, b"user.a"), Err(Errno::ENODATA));
    vfs.set_xattr(ino, &root, b"user.a", b"1", XATTR_CREATE, now).unwrap();
    assert_eq!(vfs.set_xattr(ino, &root, b"user.a", b"2", XATTR_CREATE, now), Err(Errno::EEXIST));
    assert_eq!(vfs.set_xattr(ino, &root, b"user.b", b"2", XATTR_REPLACE, now), Err(Errno::ENODATA));
    assert_eq!(vfs.set_xattr(ino, &user, b"user.a", b"2", 0, now), Err(Errno::EACCES));
    assert_eq!(vfs.get_xattr(ino, &user, b"user.a").unwrap(), b"1");
    assert_eq!(vfs.list_xattr(ino).unwrap(), [b"user.a"]);
    assert_eq!(vfs.get_xattr(ino, &root, b"system.posix_acl_access"), Err(Errno::ENODATA));
    assert_eq!(vfs.get_xattr(ino, &root, b"system.other"), Err(Errno::EOPNOTSUPP));
    vfs.remove_xattr(ino, &root, b"user.a", now).unwrap();
    assert_eq!(vfs.remove_xattr(ino, &root, b"user.a", now), Err(Errno::ENODATA));
    assert_eq!(vfs.set_xattr(ino, &root, b"user.a", &[0; 65537], 0, now), Err(Errno::E2BIG));
}

#[test]
fn times_are_virtual() {
    let mut node = Node::new();
    let at = |secs: i64| Timestamp { secs: 1_700_000_000 + secs, nanos: 0 };
    let ino = node.open("/f", O_CREAT | O_RDWR).unwrap().ino;
    let made = node.vfs.stat_ino(ino).unwrap();
    assert_eq!([made.atime, made.mtime, made.ctime, made.btime], [at(1); 4]);
    node.vfs.write_at(ino, 0, b"x", SimTime(5_000_000_000)).unwrap();
    let s = node.vfs.stat_ino(ino).unwrap();
    assert_eq!((s.atime, s.mtime, s.ctime, s.btime), (at(1), at(5), at(5), at(1)));
    node.vfs.accessed(ino, SimTime(6_000_000_000));
    node.vfs.accessed(ino, SimTime(7_000_000_000));
    assert_eq!(node.vfs.stat_ino(ino).unwrap().atime, at(6), "relatime: once after a change");
    node.vfs.accessed(ino, SimTime(90_000_000_000_000));
    assert_eq!(node.vfs.stat_ino(ino).unwrap().atime, at(90_000), "and after a day");
    let (user, now) = (Cred::user(9, 9), SimTime(8_000_000_000));
    let to = SetTime::To(at(3));
    assert_eq!(node.vfs.set_times(ino, &user, SetTime::Now, SetTime::Now, now), Err(Errno::EACCES));
    assert_eq!(node.vfs.set_times(ino, &user, to, SetTime::Omit, now), Err(Errno::EPERM));
    node.vfs.set_times(ino, &node.cred, SetTime::Omit, to, now).unwrap();
    let s = node.vfs.stat_ino(ino).unwrap();
    assert_eq!((s.atime, s.mtime, s.ctime), (at(90_000), at(3), at(8)));
    node.vfs.set_epoch(EPOCH + 1_000_000_000_000);
    node.vfs.truncate_to(ino, 0, now).unwrap();
    assert_eq!(node.vfs.stat_ino(ino).unwrap().mtime, at(1008));
}

#[test]
fn holes_are_found() {
    let mut node = Node::new();
    let ino = node.open("/f", O_CREAT | O_RDWR).unwrap().ino;
    node.vfs.write_at(ino, 10 * PAGE, b"x", node.now).unwrap();
    assert_eq!(node.vfs.seek_data(ino, 0), Ok(10 * PAGE));
    assert_eq!(node.vfs.seek_hole(ino, 0), Ok(0));
    assert_eq!(node.vfs.seek_hole(ino, 10 * PAGE), Ok(10 * PAGE + 1));
    assert_eq!(node.vfs.seek_data(ino, 10 * PAGE + 1), Err(Errno::ENXIO));
    assert_eq!(node.vfs.stat_ino(ino).unwrap().blocks, 8);
}

#[test]
fn a_restart_empties_tmpfs_and_keeps_the_rest() {
    let mut base = MemBase::new();
    base.file(TreeId(0), "var/lib/db/seed", 0o600, b"from the image");
    let mut node = Node::with(base, Config { root: Some(TreeId(0)), ..Config::default() });
    node.mount("/proc", MountSpec::Synthetic { tag: 1, fstype: "proc" });
    node.mount("/dev", MountSpec::Dev);
    node.mount("/dev/shm", TMP);
    node.mount("/var/lib/db", MountSpec::Volume { read_only: false });
    node.put("/dev/shm/segment", b"x");
    node.put("/etc/conf", b"root layer");
    node.put("/var/lib/db/table", b"volume");
    let held = node.open("/etc/conf", O_RDWR).unwrap().ino;
    node.unlink("/etc/conf").unwrap();
    node.vfs.restart(&mut node.base).unwrap();
    assert!(node.vfs.stat_ino(held).is_err(), "the open file went with its process");
    assert!(node.names("/dev/shm").is_empty());
    assert_eq!(node.stat("/dev/null").unwrap().rdev, Dev { major: 1, minor: 3 });
    assert_eq!(node.get("/var/lib/db/table").unwrap(), b"volume");
    assert_eq!(node.get("/var/lib/db/seed").unwrap(), b"from the image");
    assert!(matches!(node.resolve("/dev/fd/0"), Err(Fail::Synthetic(_))));
    let mounts: Vec<_> = node.vfs.mounts().into_iter().map(|mount| (mount.path, mount.fstype)).collect();
    let expect = [
        ("/", "overlay"),
        ("/proc", "proc"),
        ("/dev", "tmpfs"),
        ("/dev/shm", "tmpfs"),
        ("/var/lib/db", "ext4"),
    ];
    assert_eq!(mounts, expect.map(|(path, fstype)| (path.as_bytes().to_vec(), fstype)));
    node.put("/dev/shm/again", b"y");
    assert_eq!(node.names("/dev/shm"), ["again"]);
}

#[test]
fn read_only_mounts_refuse_changes() {
    let mut base = MemBase::new();
    base.file(TreeId(1), "file", 0o644, b"data");
    let mut node = Node::with(base, Config::default());
    node.mount("/ro", MountSpec::Bind { tree: TreeId(1), read_only: true });
    let ino = node.resolve("/ro/file").unwrap();
    assert_eq!(node.get("/ro/file").unwrap(), b"data");
    assert_eq!(err(node.open("/ro/file", O_RDWR)), Errno::EROFS);
    assert_eq!(err(node.open("/ro/new", O_CREAT | O_RDWR)), Errno::EROFS);
    assert!(node.open("/ro/file", O_CREAT | O_RDONLY).is_ok(), "nothing to create");
    assert_eq!(err(node.unlink("/ro/file")), Errno::EROFS);
    assert_eq!(err(node.mkdir("/ro/file")), Errno::EEXIST);
    assert_eq!(err(node.mkdir("/ro/dir")), Errno::EROFS);
    assert_eq!(node.vfs.chmod(ino, &node.cred, 0, node.now), Err(Errno::EROFS));
    assert_eq!(node.vfs.access_ino(ino, &node.cred, MAY_WRITE), Err(Errno::EROFS));
    assert_ne!(node.vfs.statfs_ino(ino).unwrap().flags & ST_RDONLY, 0);
    node.vfs.accessed(ino, SimTime(u64::MAX));
    assert_eq!(node.vfs.stat_ino(ino).unwrap().atime, Timestamp::default());
}
