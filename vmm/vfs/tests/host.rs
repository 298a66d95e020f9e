//! The host's files as base layer: what is shown, what is hidden, sharing, stability and input digests.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::*;
use bloodhound_vfs::host::{Allow, HostBase, InputKind};
use bloodhound_vfs::*;

/// A directory of its own for one test, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("bloodhound-vfs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Dir(path.canonicalize().unwrap())
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(vfs: &mut Vfs, base: &mut HostBase, path: &str) -> Vec<String> {
    let cred = Cred::root();
    let root = vfs.root();
    let mut ctx = Ctx { base, cred: &cred, root, now: SimTime::ZERO, umask: 0, links: 0, resolve: 0 };
    let dir = vfs.resolve(&mut ctx, At { dir: root, path: path.as_bytes() }, true).unwrap();
    let all = vfs.read_dir(base, dir, 0, usize::MAX).unwrap();
    let mut names: Vec<_> =
        all.iter().skip(2).map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    names.sort();
    names
}

fn world(base: &mut HostBase, tree: TreeId) -> Vfs {
    Vfs::new(Config { root: Some(tree), ..Config::default() }, base).unwrap()
}

#[test]
fn only_what_is_allowed_is_seen() {
    let dir = Dir::new("allow");
    for file in ["etc/passwd", "etc/shadow", "usr/lib/a.so", "usr/share/doc", "home/me/key", "app"] {
        dir.write(file, file.as_bytes());
    }
    let mut base = HostBase::new();
    let allow = Allow::Only(vec![b"/etc/passwd".to_vec(), b"usr/lib/".to_vec()]);
    let tree = base.add_tree(&dir.0, allow).unwrap();
    let mut vfs = world(&mut base, tree);
    assert_eq!(names(&mut vfs, &mut base, "/"), ["etc", "usr"]);
    assert_eq!(names(&mut vfs, &mut base, "/etc"), ["passwd"]);
    assert_eq!(names(&mut vfs, &mut base, "/usr"), ["lib"]);
    assert_eq!(vfs.get_file(&mut base, b"/usr/lib/a.so").unwrap(), b"usr/lib/a.so");
    for hidden in ["/etc/shadow", "/home", "/home/me/key", "/app", "/usr/share", "/usr/libx"] {
        assert_eq!(vfs.get_file(&mut base, hidden.as_bytes()), Err(Errno::ENOENT.into()), "{hidden}");
    }
    assert_eq!(base.lookup(tree, b"etc/../home/me/key").unwrap(), None);
}

#[test]
fn what_every_user_may_read_is_seen() {
    let dir = Dir::new("public");
    for file in [
        "etc/passwd",
        "etc/shadow",
        "etc/keys/a",
        "var/lib/db/data",
        "drop/known",
        "home/me/key",
        "opt/named/key",
    ] {
        dir.write(file, file.as_bytes());
    }
    let mode = |path: &str, mode| {
        fs::set_permissions(dir.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    for open in ["", "etc", "etc/keys", "var", "var/lib", "home", "home/me", "opt", "opt/named"] {
        mode(open, 0o755);
    }
    for readable in ["etc/passwd", "etc/keys/a", "var/lib/db/data", "drop/known", "home/me/key"] {
        mode(readable, 0o644);
    }
    mode("etc/shadow", 0o640);
    mode("opt/named/key", 0o600);
    mode("var/lib/db", 0o750);
    // Who knows a name may look it up, but nobody may list them.
    mode("drop", 0o711);
    let socket = std::os::unix::net::UnixListener::bind(dir.0.join("var/socket")).unwrap();
    let user = fs::metadata(&dir.0).unwrap().uid();
    let allow = Allow::Public { named: vec![b"/opt/named".to_vec()], closed: vec![b"home".to_vec()], user };
    let mut base = HostBase::new();
    let tree = base.add_tree(&dir.0, allow).unwrap();
    let mut vfs = world(&mut base, tree);
    assert_eq!(names(&mut vfs, &mut base, "/"), ["drop", "etc", "home", "opt", "var"]);
    assert_eq!(names(&mut vfs, &mut base, "/etc"), ["keys", "passwd"]);
    assert_eq!(names(&mut vfs, &mut base, "/var"), ["lib"]);
    for closed in ["/home", "/var/lib/db", "/drop"] {
        assert_eq!(names(&mut vfs, &mut base, closed), [""; 0], "{closed}");
    }
    for seen in ["etc/passwd", "etc/keys/a", "opt/named/key"] {
        assert_eq!(vfs.get_file(&mut base, seen.as_bytes()).unwrap(), seen.as_bytes());
    }
    for hidden in
        ["/etc/shadow", "/var/lib/db/data", "/drop/known", "/home/me", "/home/me/key", "/var/socket"]
    {
        assert_eq!(vfs.get_file(&mut base, hidden.as_bytes()), Err(Errno::ENOENT.into()), "{hidden}");
    }
    // A program can make its own files where the host's are not shown.
    vfs.put_file(&mut base, b"/var/lib/db/own", 0o600, b"own").unwrap();
    assert_eq!(names(&mut vfs, &mut base, "/var/lib/db"), ["own"]);
    drop(socket);
}

#[test]
fn files_of_other_people_are_not_seen() {
    let dir = Dir::new("people");
    dir.write("mine/file", b"mine");
    dir.write("file", b"file");
    for (path, mode) in [("", 0o755), ("mine", 0o755), ("mine/file", 0o644), ("file", 0o644)] {
        fs::set_permissions(dir.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let owner = fs::metadata(&dir.0).unwrap().uid();
    let seen = |user| {
        let mut base = HostBase::new();
        let tree =
            base.add_tree(&dir.0, Allow::Public { named: Vec::new(), closed: Vec::new(), user }).unwrap();
        let entry = |base: &mut HostBase, path: &[u8]| base.lookup(tree, path).unwrap().is_some();
        (entry(&mut base, b"mine"), entry(&mut base, b"mine/file"), entry(&mut base, b"file"))
    };
    assert_eq!(seen(owner), (true, true, true));
    // Files of the system are everybody's; those of a person are shown to nobody else, whose directories are closed.
    let of_system = !(1000..=60_000).contains(&owner);
    assert_eq!(seen(owner ^ 1), (of_system, of_system, of_system));
}

#[test]
fn writes_stay_in_the_world() {
    let dir = Dir::new("writes");
    dir.write("data/file", b"host");
    dir.write("data/gone", b"host");
    let mut base = HostBase::new();
    let tree = base.add_tree(&dir.0, Allow::All).unwrap();
    let mut vfs = world(&mut base, tree);
    let before = vfs.clone();
    vfs.put_file(&mut base, b"/data/file", 0o600, b"world").unwrap();
    vfs.put_file(&mut base, b"/data/new", 0o600, b"new").unwrap();
    let cred = Cred::root();
    let root = vfs.root();
    let mut ctx =
        Ctx { base: &mut base, cred: &cred, root, now: SimTime::ZERO, umask: 0, links: 0, resolve: 0 };
    vfs.unlink(&mut ctx, At { dir: root, path: b"data/gone" }).unwrap();
    assert_eq!(names(&mut vfs, &mut base, "/data"), ["file", "new"]);
    assert_eq!(vfs.get_file(&mut base, b"/data/file").unwrap(), b"world");
    assert_eq!(fs::read(dir.0.join("data/file")).unwrap(), b"host");
    assert!(dir.0.join("data/gone").exists() && !dir.0.join("data/new").exists());
    let mut old = before;
    assert_eq!(old.get_file(&mut base, b"/data/file").unwrap(), b"host");
    assert_eq!(names(&mut old, &mut base, "/data"), ["file", "gone"]);
}

#[test]
fn worlds_share_frames_and_do_not_see_the_host_change() {
    let dir = Dir::new("stable");
    dir.write("file", &[7; 10_000]);
    let mut base = HostBase::new();
    let tree = base.add_tree(&dir.0, Allow::All).unwrap();
    let (mut one, mut two) = (world(&mut base, tree), world(&mut base, tree));
    assert_eq!(one.get_file(&mut base, b"/file").unwrap(), [7; 10_000]);
    dir.write("file", b"changed");
    assert_eq!(two.get_file(&mut base, b"/file").unwrap(), [7; 10_000]);
    let cred = Cred::root();
    let frames: Vec<_> = [&mut one, &mut two]
        .map(|vfs| {
            let root = vfs.root();
            let mut ctx = Ctx {
                base: &mut base,
                cred: &cred,
                root,
                now: SimTime::ZERO,
                umask: 0,
                links: 0,
                resolve: 0,
            };
            let opened = vfs.open(&mut ctx, At { dir: root, path: b"file" }, O_RDONLY, 0).unwrap();
            vfs.page(opened.ino, 2).unwrap()
        })
        .into();
    assert!(frames[0].same(&frames[1]));
    assert_eq!(frames[0].bytes()[10_000 - 8192], 0, "the rest of the last page is zero");
}

#[test]
fn inputs_tell_what_changed() {
    let dir = Dir::new("inputs");
    for file in ["dir/a", "dir/b", "read", "same", "stat"] {
        dir.write(file, b"1");
    }
    let mut base = HostBase::new();
    let tree = base.add_tree(&dir.0, Allow::All).unwrap();
    let mut vfs = world(&mut base, tree);
    names(&mut vfs, &mut base, "/dir");
    vfs.get_file(&mut base, b"/read").unwrap();
    vfs.get_file(&mut base, b"/same").unwrap();
    assert!(vfs.get_file(&mut base, b"/absent").is_err());
    let recorded = base.inputs();
    let content = recorded.iter().find(|input| input.path == b"read" && input.kind == InputKind::Content);
    let one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"; // sha256sum of "1"
    assert_eq!(content.unwrap().sha256.iter().map(|b| format!("{b:02x}")).collect::<String>(), one);
    assert!(!recorded.iter().any(|input| input.path == b"stat"), "nobody asked for it");
    assert!(base.changed(&recorded).is_empty());

    dir.write("read", b"2");
    dir.write("dir/c", b"");
    dir.write("absent", b"");
    dir.write("stat", b"longer");
    let fresh = HostBase::new();
    fresh.add_tree(&dir.0, Allow::All).unwrap();
    let changed: Vec<_> =
        fresh.changed(&recorded).into_iter().map(|input| (input.path, input.kind)).collect();
    let has = |path: &[u8], kind| changed.contains(&(path.to_vec(), kind));
    assert!(has(b"read", InputKind::Content) && has(b"dir", InputKind::Listing));
    assert!(has(b"absent", InputKind::Absent));
    assert!(
        !changed
            .iter()
            .any(|(path, _)| path == b"same" || path == b"dir" && !has(b"dir", InputKind::Listing))
    );
}

#[test]
fn a_bind_mount_may_be_one_file() {
    let dir = Dir::new("bind");
    dir.write("conf.yaml", b"key: value");
    let mut base = HostBase::new();
    let tree = base.add_tree(&dir.0.join("conf.yaml"), Allow::All).unwrap();
    let mut vfs = Vfs::new(Config::default(), &mut base).unwrap();
    vfs.mount(&mut base, b"/etc/app/conf.yaml", MountSpec::Bind { tree, read_only: true }).unwrap();
    assert_eq!(vfs.get_file(&mut base, b"/etc/app/conf.yaml").unwrap(), b"key: value");
    assert_eq!(vfs.put_file(&mut base, b"/etc/app/conf.yaml", 0o644, b"x"), Err(Errno::EROFS.into()));
    assert_eq!(vfs.mounts()[1].path, b"/etc/app/conf.yaml");
}

#[test]
fn the_hosts_own_root_can_be_walked() {
    let mut base = HostBase::new();
    let allow = Allow::Only(vec![b"/usr".to_vec(), b"/bin".to_vec(), b"/lib".to_vec(), b"/lib64".to_vec()]);
    let tree = base.add_tree(std::path::Path::new("/"), allow).unwrap();
    let mut vfs = world(&mut base, tree);
    let shell = vfs.get_file(&mut base, b"/bin/sh").unwrap();
    assert!(shell == fs::read("/bin/sh").unwrap(), "links inside are followed inside");
    assert_eq!(vfs.get_file(&mut base, b"/etc/passwd"), Err(Errno::ENOENT.into()));
}

#[test]
fn a_sealed_layer_answers_as_the_host_did() {
    let dir = Dir::new("sealed");
    dir.write("etc/app.conf", b"port = 1");
    dir.write("etc/other", b"not read");
    std::os::unix::fs::symlink("app.conf", dir.0.join("etc/link")).unwrap();
    let look = |base: &mut HostBase| {
        let tree = base.add_tree(&dir.0, Allow::All).unwrap();
        let exists = base.exists(&dir.0.join("etc"));
        let mut vfs = world(base, tree);
        let listed = names(&mut vfs, base, "/etc");
        let read = vfs.get_file(base, b"/etc/link").map_err(|_| ());
        let absent = vfs.get_file(base, b"/nothing").map_err(|_| ());
        (exists, listed, read, absent, base.inputs())
    };
    let mut base = HostBase::new();
    let first = look(&mut base);
    assert_eq!((first.0, &first.2), (true, &Ok(b"port = 1".to_vec())));
    let contents = Dir::new("sealed-contents");
    let record = base.record(&mut |sha256, image| {
        let mut bytes = vec![0; image.size() as usize];
        image.read(0, &mut bytes);
        contents.write(&bloodhound_vfs::host::file_name(sha256), &bytes);
        Ok(())
    });
    let record = record.unwrap();
    std::fs::remove_dir_all(&dir.0).unwrap();
    assert_eq!(look(&mut HostBase::sealed(record.clone(), &contents.0)), first);
    for entry in std::fs::read_dir(&contents.0).unwrap() {
        std::fs::write(entry.unwrap().path(), b"port = 2").unwrap();
    }
    assert_eq!(look(&mut HostBase::sealed(record, &contents.0)).2, Err(()), "other bytes are no answer");
}
