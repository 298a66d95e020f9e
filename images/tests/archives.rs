//! Archives and layouts, made here and by the real tools, and the trees that come of them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use bloodhound_images::{EntryKind, Image, ImageSource, PullPolicy};
use common::{Blobs, Head, Scratch, Tar, docker_archive, gzip, have, listing, run, zstd};

/// The tree of these layers, by way of an archive.
fn tree(layers: &[Vec<u8>]) -> Vec<String> {
    let scratch = Scratch::new("tree");
    let archive = scratch.write("image.tar", &docker_archive(&["app:1"], layers));
    let image = scratch.resolver().resolve(&ImageSource::Archive(archive), PullPolicy::Missing);
    listing(&image.unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn layers_are_laid_upon_each_other() {
    let lower = Tar::default()
        .dir("./")
        .dir("etc/")
        .file("etc/passwd", b"root")
        .file("etc/old", b"old")
        .dir("data")
        .file("data/a", b"a")
        .file("data/b", b"b")
        .dir("gone")
        .file("gone/x", b"x")
        .file("file", b"file");
    let middle = Tar::default()
        .file("etc/.wh.old", b"")
        .file("data/.wh..wh..opq", b"")
        .file("data/c", b"c")
        .file(".wh.gone", b"");
    let upper = Tar::default()
        .member(&Head { mode: 0o4755, uid: 7, ..Head::new(b'0', "/etc/passwd") }, b"new")
        .dir("gone")
        .file("gone/y", b"y")
        .dir("file")
        .file("file/inside", b"1");
    assert_eq!(
        tree(&[lower.end(), middle.end(), upper.end()]),
        [
            "/ 755 0:0 dir",
            "/data 755 0:0 dir",
            "/data/c 644 0:0 file \"c\"",
            "/etc 755 0:0 dir",
            "/etc/passwd 4755 7:0 file \"new\"",
            "/file 755 0:0 dir",
            "/file/inside 644 0:0 file \"1\"",
            "/gone 755 0:0 dir",
            "/gone/y 644 0:0 file \"y\"",
        ]
    );
}

#[test]
fn directories_that_a_layer_does_not_describe_are_as_below() {
    let lower = Tar::default().member(&Head { mode: 0o1777, uid: 5, ..Head::new(b'5', "tmp") }, b"");
    let upper = Tar::default().file("tmp/x", b"x").file("new/y", b"y");
    assert_eq!(
        tree(&[lower.end(), upper.end()]),
        [
            "/ 755 0:0 dir",
            "/new 755 0:0 dir",
            "/new/y 644 0:0 file \"y\"",
            "/tmp 1777 5:0 dir",
            "/tmp/x 644 0:0 file \"x\"",
        ]
    );
}

#[test]
fn special_files_keep_what_they_are() {
    let long = format!("{}/{}", "d".repeat(200), "n".repeat(250));
    let layer = Tar::default()
        .member(&Head { device: (1, 3), mode: 0o666, ..Head::new(b'3', "dev/null") }, b"")
        .member(&Head { device: (8, 0), mode: 0o660, ..Head::new(b'4', "dev/sda") }, b"")
        .member(&Head::new(b'6', "dev/fifo"), b"")
        .symlink("out", "../../../etc/shadow")
        .pax(&[
            ("path", long.as_bytes()),
            ("SCHILY.xattr.security.capability", b"\x01\0=\xff"),
            ("uid", b"3000000"),
            ("mtime", b"5.25"),
        ])
        .file("short", b"1")
        .member(&Head::new(b'L', "././@LongLink"), b"gnu/long\0")
        .file("x", b"2")
        .symlink("lib", "usr/lib")
        .file("lib/libc.so", b"3");
    let scratch = Scratch::new("special");
    let archive = scratch.write("image.tar", &docker_archive(&["app:1"], &[layer.end()]));
    let image =
        scratch.resolver().resolve(&ImageSource::Archive(archive), PullPolicy::Missing).expect("an image");
    let lines = listing(&image);
    for line in [
        "/dev/null 666 0:0 char 1:3",
        "/dev/sda 660 0:0 block 8:0",
        "/dev/fifo 644 0:0 fifo",
        "/out 777 0:0 -> ../../../etc/shadow",
        "/gnu/long 644 0:0 file \"2\"",
        "/usr/lib/libc.so 644 0:0 file \"3\"",
        &format!("/{long} 644 3000000:0 file \"1\""),
    ] {
        assert!(lines.iter().any(|other| other == line), "{line} is not in\n{}", lines.join("\n"));
    }
    let entry = image.root.lookup(long.as_bytes()).expect("an entry");
    assert_eq!(entry.xattrs, [(b"security.capability".to_vec(), b"\x01\0=\xff".to_vec())]);
    assert_eq!(entry.mtime, (5, 250_000_000));
    assert!(image.root.lookup(b"lib/libc.so").is_none(), "links are not followed");
}

#[test]
fn hard_links_are_one_file() {
    let lower = Tar::default().file("a", b"content").file("other", b"o");
    let upper =
        Tar::default().hard_link("b", "a").file("c", b"1").hard_link("dir/d", "./c").hard_link("e", "/b");
    let scratch = Scratch::new("links");
    let layers = [lower.end(), upper.end()];
    let archive = scratch.write("image.tar", &docker_archive(&["app:1"], &layers));
    let image =
        scratch.resolver().resolve(&ImageSource::Archive(archive), PullPolicy::Missing).expect("an image");
    let entry = |path: &str| image.root.lookup(path.as_bytes()).expect("an entry").clone();
    assert_eq!(entry("a"), entry("b"));
    assert_eq!(entry("a"), entry("e"));
    assert_eq!(entry("a").nlink, 3);
    assert_eq!((entry("c"), entry("c").nlink), (entry("dir/d"), 2));
    assert_ne!(entry("a").inode, entry("c").inode);
    // Below a whiteout of its first name the file is there under its others.
    let layers = [layers[0].clone(), Tar::default().hard_link("b", "a").file(".wh.a", b"").end()];
    assert_eq!(tree(&layers)[1..], ["/b 644 0:0 file \"content\"", "/other 644 0:0 file \"o\""]);
}

#[test]
fn an_image_is_the_same_in_every_archive() {
    let layers = [
        Tar::default().dir("bin").file("bin/app", &[7; 10_000]).end(),
        Tar::default().file("bin/b", b"b").end(),
    ];
    let scratch = Scratch::new("same");
    let plain: fn(&[u8]) -> Vec<u8> = <[u8]>::to_vec;
    let mut archives = vec![scratch.write("docker.tar", &docker_archive(&["app:1"], &layers))];
    archives.push(scratch.write("docker.tar.gz", &gzip(&docker_archive(&["app:1"], &layers))));
    for (name, compress) in [("plain", plain), ("gzip", gzip), ("zstd", zstd)] {
        let blobs = Blobs::new(&layers, compress);
        archives.push(scratch.write(&format!("oci-{name}.tar"), &blobs.oci_archive("app:1")));
        archives.push(scratch.write(&format!("oci-{name}.tar.zst"), &zstd(&blobs.oci_archive("app:1"))));
        for blob in blobs.all() {
            let digest = bloodhound_images::Digest::of(blob).hex();
            scratch.write(&format!("layout-{name}/blobs/sha256/{digest}"), blob);
        }
        scratch.write(&format!("layout-{name}/index.json"), &blobs.index("app:1"));
        archives.push(scratch.path(&format!("layout-{name}")));
    }
    let resolver = scratch.resolver();
    let image = |path: &Path| {
        let image = resolver.resolve(&ImageSource::Archive(path.to_owned()), PullPolicy::Missing);
        image.unwrap_or_else(|e| panic!("{e}"))
    };
    let first = image(&archives[0]);
    for archive in &archives {
        let other = image(archive);
        assert_eq!((other.config_digest, listing(&other)), (first.config_digest, listing(&first)));
        assert_eq!(other.config.cmd.as_deref(), Some(&["/bin/app".to_owned()][..]));
        // The second time it comes from the cache.
        assert_eq!(image(archive).digest, other.digest);
    }
    // The names in the archives are names of the cache.
    let named =
        resolver.resolve(&ImageSource::Reference("app:1".to_owned()), PullPolicy::Never).expect("a name");
    assert_eq!(named.config_digest, first.config_digest);
    assert_eq!(resolver.store.verify(), Ok(Vec::new()));
    // A changed archive is read again.
    fs::write(&archives[0], docker_archive(&["app:1"], &layers[..1])).expect("another archive");
    assert_ne!(image(&archives[0]).config_digest, first.config_digest);
}

#[test]
fn what_nothing_refers_to_is_removed() {
    let scratch = Scratch::new("prune");
    let resolver = scratch.resolver();
    let layers = [Tar::default().file("a", b"a").end(), Tar::default().file("b", b"b").end()];
    resolver.load(&scratch.write("one.tar", &docker_archive(&["one:1"], &layers))).expect("an image");
    resolver.load(&scratch.write("two.tar", &docker_archive(&["two:1"], &layers[..1]))).expect("an image");
    let image =
        resolver.resolve(&ImageSource::Reference("one:1".to_owned()), PullPolicy::Never).expect("an image");
    let gone = |name: &str| resolver.store.remove(name).expect("removed").expect("there");
    assert_eq!(gone("docker.io/library/one:1").layers, 0);
    let file = format!("file:{}", scratch.path("one.tar").canonicalize().expect("a path").display());
    assert_eq!(gone(&file).layers, 1);
    assert_eq!(resolver.store.remove("none"), Ok(None));
    assert_eq!(resolver.store.verify(), Ok(Vec::new()));
    // Who has the image open still reads it.
    assert_eq!(listing(&image)[1..], ["/a 644 0:0 file \"a\"", "/b 644 0:0 file \"b\""]);
    let removed = resolver.store.prune(&|_| true).expect("pruned");
    assert_eq!((removed.images, removed.layers), (2, 1));
    assert_eq!(resolver.store.records(), Ok(Vec::new()));
}

/// What a directory of the host holds, in the same form as [`found`].
fn expected(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut lines = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).expect("metadata");
        let kind = meta.file_type();
        let what = if kind.is_dir() {
            todo.extend(
                fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()),
            );
            "dir".to_owned()
        } else if kind.is_symlink() {
            format!("-> {}", fs::read_link(&path).expect("a link").display())
        } else if kind.is_fifo() {
            "fifo".to_owned()
        } else {
            format!(
                "{} links, {:?}",
                meta.nlink(),
                bloodhound_images::Digest::of(&fs::read(&path).expect("a file"))
            )
        };
        let name = path.strip_prefix(root).expect("below").as_os_str().as_encoded_bytes().to_vec();
        let (mode, owner) = (meta.mode() & 0o7777, (meta.uid(), meta.gid()));
        lines.insert(name, format!("{mode:o} {owner:?} {} {what}", meta.mtime()));
    }
    lines
}

fn found(image: &Image) -> BTreeMap<Vec<u8>, String> {
    let mut lines = BTreeMap::new();
    image.root.walk(&mut |path, entry| {
        let what = match &entry.kind {
            EntryKind::File { id, size } => {
                let mut bytes = vec![0; *size as usize];
                image.root.read_at(*id, 0, &mut bytes).expect("a file");
                let (middle, mut page) = (size / 2, [1; 5000]);
                image.root.read_at(*id, middle, &mut page).expect("a page");
                let whole: Vec<u8> =
                    bytes[middle as usize..].iter().copied().chain([0; 5000]).take(5000).collect();
                assert_eq!(page[..], whole, "a part of {}", String::from_utf8_lossy(path));
                format!("{} links, {:?}", entry.nlink, bloodhound_images::Digest::of(&bytes))
            }
            EntryKind::Dir => "dir".to_owned(),
            EntryKind::Symlink(target) => format!("-> {}", String::from_utf8_lossy(target)),
            other => format!("{other:?}").to_lowercase(),
        };
        let owner = (entry.uid, entry.gid);
        lines.insert(path.to_vec(), format!("{:o} {owner:?} {} {what}", entry.mode, entry.mtime.0));
    });
    lines
}

#[test]
fn archives_of_gnu_tar_are_as_their_directories() {
    if !have(&["tar"], "archives_of_gnu_tar_are_as_their_directories") {
        return;
    }
    let scratch = Scratch::new("gnu");
    let root = scratch.path("root");
    let script = r#"mkdir -p sub/dir && echo hello > sub/file && ln sub/file sub/dir/link && ln -s ../file sub/sym
        chmod 4711 sub/file; chmod 1777 sub/dir; mkfifo sub/fifo; : > empty; touch -d '1960-01-02' old 2>/dev/null || touch old
        long=$(printf 'x%.0s' $(seq 120)); mkdir -p $long/$long && echo long > $long/$long/$long && ln -s $long/$long/$long to-long
        truncate -s 3M sparse; printf start | dd of=sparse conv=notrunc status=none
        for at in 100 200 300 400 500 600 700; do printf %s $at | dd of=sparse bs=4096 seek=$at conv=notrunc status=none; done
        truncate -s 5000001 sparse; truncate -s 1M hole; head -c 200000 /dev/zero | tr '\0' a > big"#;
    fs::create_dir_all(&root).expect("a directory");
    run(Command::new("sh").args(["-ec", script]).current_dir(&root));
    let expected = expected(&root);
    for options in [
        &["--format=gnu"][..],
        &["--format=gnu", "-S"],
        &["--format=pax"],
        &["--format=pax", "-S", "--sparse-version=0.0"],
        &["--format=pax", "-S", "--sparse-version=0.1"],
        &["--format=pax", "-S", "--sparse-version=1.0"],
    ] {
        let layer = run(Command::new("tar")
            .args(options)
            .args(["--numeric-owner", "-C"])
            .arg(&root)
            .args(["-c", "."]));
        let archive = scratch.write("image.tar", &docker_archive(&["app:1"], &[layer.stdout]));
        let image = scratch.resolver().resolve(&ImageSource::Archive(archive), PullPolicy::Missing);
        let found = found(&image.unwrap_or_else(|e| panic!("{options:?}: {e}")));
        for (path, line) in &expected {
            let path_text = String::from_utf8_lossy(path);
            assert_eq!(found.get(path), Some(line), "{options:?}: {path_text}");
        }
        assert_eq!(found.len(), expected.len(), "{options:?}");
    }
}
