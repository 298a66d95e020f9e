//! Mount namespaces of one machine: root file systems of their own, volumes that several of them mount.

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::{O_CREAT, O_RDONLY, O_WRONLY};
use bloodhound_vfs::{At, Config, Cred, Ctx, Fail, Ino, MemBase, MountNs, MountSpec, RootSpec, TreeId, Vfs};

const FIRST: MountNs = MountNs(0);

/// A machine with two containers.
struct Pair {
    vfs: Vfs,
    base: MemBase,
    second: MountNs,
}

fn pair() -> Pair {
    let mut base = MemBase::new();
    base.file(TreeId(1), "etc/name", 0o644, b"one");
    base.file(TreeId(2), "etc/name", 0o644, b"two");
    base.file(TreeId(2), "srv/www/index.html", 0o644, b"of the image");
    let config = Config { root: Some(TreeId(1)), ..Config::default() };
    let mut vfs = Vfs::new(config, &mut base).unwrap();
    let second = vfs.add_namespace(RootSpec { tree: Some(TreeId(2)), ..RootSpec::default() }, &mut base);
    Pair { vfs, base, second: second.unwrap() }
}

fn volume(read_only: bool) -> MountSpec {
    let of = Box::new(MountSpec::Volume { read_only });
    MountSpec::Shared { key: 7, of, subpath: Vec::new(), nocopy: false }
}

impl Pair {
    fn mount(&mut self, ns: MountNs, path: &str, spec: MountSpec) {
        self.vfs.enter_namespace(ns);
        self.vfs.mount(&mut self.base, path.as_bytes(), spec).unwrap();
    }

    fn with<T>(&mut self, ns: MountNs, path: &str, op: impl FnOnce(&mut Vfs, &mut Ctx, At) -> T) -> T {
        self.vfs.enter_namespace(ns);
        let (cred, root) = (Cred::root(), self.vfs.root());
        let mut ctx = Ctx {
            base: &mut self.base,
            cred: &cred,
            root,
            now: SimTime::ZERO,
            umask: 0,
            links: 0,
            resolve: 0,
        };
        op(&mut self.vfs, &mut ctx, At { dir: root, path: path.as_bytes() })
    }

    fn find(&mut self, ns: MountNs, path: &str) -> Result<Ino, Fail> {
        self.with(ns, path, |vfs, ctx, at| vfs.resolve(ctx, at, true))
    }

    fn write(&mut self, ns: MountNs, path: &str, bytes: &[u8]) -> Result<(), Fail> {
        let opened = self.with(ns, path, |vfs, ctx, at| vfs.open(ctx, at, O_WRONLY | O_CREAT, 0o644))?;
        self.vfs.write_at(opened.ino, 0, bytes, SimTime::ZERO)?;
        self.vfs.close_ref(opened.ino, opened.writer);
        Ok(())
    }

    fn read(&mut self, ns: MountNs, path: &str) -> Result<Vec<u8>, Fail> {
        let opened = self.with(ns, path, |vfs, ctx, at| vfs.open(ctx, at, O_RDONLY, 0))?;
        let mut bytes = vec![0; 64];
        let read = self.vfs.read_at(opened.ino, 0, &mut bytes)?;
        self.vfs.close_ref(opened.ino, opened.writer);
        bytes.truncate(read);
        Ok(bytes)
    }

    fn path(&mut self, ns: MountNs, ino: Ino) -> String {
        self.vfs.enter_namespace(ns);
        String::from_utf8(self.vfs.path_of(self.vfs.root(), ino)).unwrap()
    }
}

#[test]
fn each_namespace_has_a_root_of_its_own() {
    let mut pair = pair();
    let second = pair.second;
    assert_eq!(pair.read(FIRST, "/etc/name").unwrap(), b"one");
    assert_eq!(pair.read(second, "/etc/name").unwrap(), b"two");
    pair.write(FIRST, "/only-here", b"x").unwrap();
    assert_eq!(pair.find(second, "/only-here"), Err(Fail::Errno(Errno::ENOENT)));
}

#[test]
fn a_volume_is_one_file_system_with_a_place_in_each_namespace() {
    let mut pair = pair();
    let second = pair.second;
    pair.mount(FIRST, "/data", volume(false));
    pair.mount(second, "/srv/deep/www", volume(false));
    pair.write(FIRST, "/data/file", b"shared").unwrap();
    assert_eq!(pair.read(second, "/srv/deep/www/file").unwrap(), b"shared");
    let ino = pair.find(FIRST, "/data/file").unwrap();
    assert_eq!(pair.find(second, "/srv/deep/www/file"), Ok(ino));
    assert_eq!(pair.path(FIRST, ino), "/data/file");
    assert_eq!(pair.path(second, ino), "/srv/deep/www/file");
    // `..` leads to where the namespace has it.
    assert_eq!(pair.find(FIRST, "/data/.."), pair.find(FIRST, "/"));
    assert_eq!(pair.find(second, "/srv/deep/www/.."), pair.find(second, "/srv/deep"));
    assert_eq!(pair.find(second, "/srv/deep/www/../../.."), pair.find(second, "/"));
}

#[test]
fn a_namespace_may_have_a_shared_volume_read_only() {
    let mut pair = pair();
    let second = pair.second;
    pair.mount(FIRST, "/data", volume(false));
    pair.mount(second, "/data", volume(true));
    pair.write(FIRST, "/data/file", b"x").unwrap();
    assert_eq!(pair.write(second, "/data/file", b"y"), Err(Fail::Errno(Errno::EROFS)));
    let ino = pair.find(second, "/data/file").unwrap();
    pair.vfs.enter_namespace(second);
    assert_eq!(pair.vfs.chmod(ino, &Cred::root(), 0o600, SimTime::ZERO), Err(Errno::EROFS));
    pair.vfs.enter_namespace(FIRST);
    assert_eq!(pair.vfs.chmod(ino, &Cred::root(), 0o600, SimTime::ZERO), Ok(()));
}

#[test]
fn what_one_namespace_mounts_in_a_volume_is_not_seen_by_another() {
    let mut pair = pair();
    let second = pair.second;
    pair.mount(FIRST, "/data", volume(false));
    pair.mount(second, "/data", volume(false));
    pair.mount(FIRST, "/data/tmp", MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) });
    pair.write(FIRST, "/data/tmp/hidden", b"x").unwrap();
    assert_eq!(pair.find(second, "/data/tmp/hidden"), Err(Fail::Errno(Errno::ENOENT)));
    // The place is busy only where something lies over it ("is a mount point in the caller's mount namespace", rmdir(2)).
    let busy = pair.with(FIRST, "/data/tmp", |vfs, ctx, at| vfs.rmdir(ctx, at));
    assert_eq!(busy, Err(Fail::Errno(Errno::EBUSY)));
    assert_eq!(pair.with(second, "/data/tmp", |vfs, ctx, at| vfs.rmdir(ctx, at)), Ok(()));
}

#[test]
fn a_part_of_a_shared_directory_is_the_same_directory() {
    let mut pair = pair();
    let second = pair.second;
    let part = |subpath: &[u8]| MountSpec::Shared {
        key: 1,
        of: Box::new(MountSpec::Volume { read_only: false }),
        subpath: subpath.to_vec(),
        nocopy: false,
    };
    pair.mount(FIRST, "/all", part(b""));
    pair.mount(second, "/part", part(b"a/b"));
    pair.write(second, "/part/file", b"x").unwrap();
    let ino = pair.find(FIRST, "/all/a/b/file").unwrap();
    assert_eq!(pair.path(second, ino), "/part/file");
    assert_eq!(pair.find(second, "/part/.."), pair.find(second, "/"));
    let roots = |pair: &Pair| pair.vfs.mounts().into_iter().map(|mount| mount.root).collect::<Vec<_>>();
    pair.vfs.enter_namespace(second);
    assert_eq!(roots(&pair), [b"/".to_vec(), b"/a/b".to_vec()]);
    pair.vfs.enter_namespace(FIRST);
    assert_eq!(roots(&pair), [b"/".to_vec(), b"/".to_vec()]);
    let out = part(b"../..");
    pair.vfs.enter_namespace(second);
    assert_eq!(pair.vfs.mount(&mut pair.base, b"/out", out), Err(Fail::Errno(Errno::EINVAL)));
}

#[test]
fn a_volume_that_is_empty_is_filled_from_the_place_of_each_further_mount() {
    let mut pair = pair();
    let second = pair.second;
    pair.mount(FIRST, "/data", volume(false));
    pair.mount(second, "/srv/www", volume(false));
    assert_eq!(pair.read(FIRST, "/data/index.html").unwrap(), b"of the image");

    let mut pair = self::pair();
    pair.mount(FIRST, "/data", volume(false));
    pair.write(FIRST, "/data/first", b"x").unwrap();
    pair.mount(second, "/srv/www", volume(false));
    assert_eq!(pair.find(second, "/srv/www/index.html"), Err(Fail::Errno(Errno::ENOENT)));
}

fn tmpfs() -> MountSpec {
    MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) }
}

/// Gives both a volume, and a file in memory.
fn with_data_and_tmp(pair: &mut Pair) {
    for ns in [FIRST, pair.second] {
        pair.mount(ns, "/data", volume(false));
        pair.mount(ns, "/tmp", tmpfs());
        pair.write(ns, "/tmp/file", b"x").unwrap();
    }
}

#[test]
fn a_container_that_starts_anew_leaves_the_others_what_they_have() {
    let mut pair = pair();
    let second = pair.second;
    with_data_and_tmp(&mut pair);
    let shm = || MountSpec::Shared { key: 8, of: Box::new(tmpfs()), subpath: Vec::new(), nocopy: false };
    pair.mount(FIRST, "/shm", shm());
    pair.mount(second, "/shm", shm());
    pair.write(FIRST, "/shm/file", b"x").unwrap();
    pair.write(FIRST, "/data/file", b"x").unwrap();
    pair.vfs.enter_namespace(FIRST);
    pair.vfs.restart_namespace(&mut pair.base).unwrap();
    assert_eq!(pair.find(FIRST, "/tmp/file"), Err(Fail::Errno(Errno::ENOENT)));
    for (ns, path) in [(second, "/tmp/file"), (FIRST, "/data/file"), (FIRST, "/shm/file")] {
        assert!(pair.find(ns, path).is_ok(), "{path}");
    }
    assert_eq!(pair.find(FIRST, "/tmp/.."), pair.find(FIRST, "/"));
}

#[test]
fn a_container_that_is_made_of_another_image_keeps_its_volumes() {
    let mut pair = pair();
    let second = pair.second;
    with_data_and_tmp(&mut pair);
    for ns in [FIRST, second] {
        pair.write(ns, "/etc/own", b"x").unwrap();
    }
    let alone = MountSpec::Shared {
        key: 9,
        of: Box::new(MountSpec::Volume { read_only: false }),
        subpath: Vec::new(),
        nocopy: false,
    };
    pair.mount(FIRST, "/alone", alone.clone());
    pair.write(FIRST, "/alone/file", b"kept").unwrap();
    pair.write(FIRST, "/data/file", b"shared").unwrap();
    pair.vfs.enter_namespace(FIRST);
    let root = RootSpec { tree: Some(TreeId(2)), ..RootSpec::default() };
    let mut fill = |vfs: &mut Vfs, base: &mut dyn bloodhound_vfs::BaseFs| {
        let mut mount = |path: &[u8], spec| match vfs.mount(base, path, spec) {
            Ok(_) => Ok(()),
            Err(Fail::Errno(errno)) => Err(errno),
            Err(Fail::Synthetic(_)) => Err(Errno::EROFS),
        };
        mount(b"/srv/data", volume(false))?;
        mount(b"/alone", alone.clone())?;
        mount(b"/tmp", tmpfs())
    };
    pair.vfs.make_anew(root, &mut pair.base, &mut fill).unwrap();
    assert_eq!(pair.read(FIRST, "/etc/name").unwrap(), b"two");
    assert_eq!(pair.read(FIRST, "/srv/www/index.html").unwrap(), b"of the image");
    for path in ["/tmp/file", "/etc/own", "/data/file"] {
        assert_eq!(pair.find(FIRST, path), Err(Fail::Errno(Errno::ENOENT)), "{path}");
    }
    assert_eq!(pair.read(FIRST, "/srv/data/file").unwrap(), b"shared");
    assert_eq!(pair.read(FIRST, "/alone/file").unwrap(), b"kept");
    assert_eq!(pair.find(FIRST, "/srv/data/.."), pair.find(FIRST, "/srv"));
    // The other one has what it had.
    assert_eq!(pair.find(second, "/data/file"), pair.find(FIRST, "/srv/data/file"));
    for path in ["/tmp/file", "/etc/own"] {
        assert!(pair.find(second, path).is_ok(), "{path}");
    }
    pair.vfs.enter_namespace(FIRST);
    let places: Vec<Vec<u8>> = pair.vfs.mounts().into_iter().map(|mount| mount.path).collect();
    assert_eq!(places, [&b"/"[..], b"/srv/data", b"/alone", b"/tmp"]);
}
