//! Damaged and hostile archives and answers of registries. Each must end in an error that says what is wrong, within bounds, and
//! leave the cache as right as it was.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;
#[path = "common/server.rs"]
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloodhound_images::{
    Digest, EngineChoice, ErrorKind, ImageSource, Limits, Options, PullPolicy, Resolver, Settings, Store,
    Timeouts,
};
use common::{
    Blobs, Head, Scratch, Tar, checksum, config, descriptor, docker_archive, docker_archive_of, gzip,
    listing, zstd,
};
use serde_json::{Value, json};
use server::{Asked, Reply, Server};

/// How long any case may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limits that small archives reach.
fn limits() -> Limits {
    Limits {
        layer: 4 << 20,
        image: 6 << 20,
        entries: 2000,
        layers: 8,
        manifest: 64 << 10,
        names: 200_000,
        ..Limits::default()
    }
}

/// A cache with a good image, which must be as good after each case.
struct Cache {
    scratch: Scratch,
    store: Store,
    good: Vec<String>,
    /// What was not as it should be, told when all cases are through.
    wrong: std::cell::RefCell<Vec<String>>,
}

impl Drop for Cache {
    fn drop(&mut self) {
        let wrong = self.wrong.borrow();
        assert!(wrong.is_empty() || std::thread::panicking(), "{}", wrong.join("\n"));
    }
}

impl Cache {
    fn new(what: &str) -> Cache {
        let scratch = Scratch::new(what);
        let store = scratch.small_store(limits());
        let mut cache = Cache { scratch, store, good: Vec::new(), wrong: Default::default() };
        let layers = [Tar::default().file("good", b"good").end()];
        let archive = cache.scratch.write("good.tar", &docker_archive(&["good:1"], &layers));
        cache.resolver(Settings::default()).load(&archive).expect("a good image");
        cache.good = cache.listing();
        cache
    }

    fn resolver(&self, registries: Settings) -> Resolver {
        let options = Options { registries, engine: EngineChoice::Off, ..Options::default() };
        Resolver::new(self.store.clone(), options)
    }

    fn listing(&self) -> Vec<String> {
        let good = ImageSource::Reference("good:1".to_owned());
        let image = self.resolver(Settings::default()).resolve(&good, PullPolicy::Never);
        listing(&image.expect("the good image"))
    }

    /// A source must not resolve, with these words in the error, and must leave nothing.
    fn refuses(&self, case: &str, settings: Settings, source: &ImageSource, words: &str) {
        // What the case before has left is removed: a layer that is there would not be read.
        self.store.prune(&|record| record.reference != "docker.io/library/good:1").expect("pruned");
        let begin = Instant::now();
        let result = self.resolver(settings).resolve(source, PullPolicy::Missing);
        assert!(begin.elapsed() < PATIENCE, "{case} takes too long");
        match result {
            Ok(image) => self.wrong.borrow_mut().push(format!("{case} is accepted: {:?}", listing(&image))),
            Err(error) => {
                let error = error.to_string();
                if !error.contains(words) || error.len() > 2000 {
                    self.wrong.borrow_mut().push(format!("{case}: {words:?} is not in: {error}"));
                }
            }
        }
        self.is_right(case);
    }

    fn is_right(&self, case: &str) {
        assert_eq!(self.store.verify(), Ok(Vec::new()), "{case}");
        assert_eq!(self.listing(), self.good, "{case}");
        let left = std::fs::read_dir(self.store.dir().join("tmp")).expect("a directory").count();
        assert_eq!(left, 0, "{case} leaves temporary files");
    }
}

/// A layer that begins well and then has this.
fn after(tar: impl FnOnce(Tar) -> Tar) -> Vec<u8> {
    tar(Tar::default().dir("dir").file("dir/file", b"1").symlink("link", "dir")).end()
}

fn pax(key: &str, value: &[u8]) -> Vec<u8> {
    after(|tar| tar.pax(&[(key, value)]).file("x", b"content"))
}

fn head(change: impl FnOnce(&mut [u8; 512])) -> Vec<u8> {
    let mut block = Head { size: 3, ..Head::new(b'0', "x") }.block();
    change(&mut block);
    checksum(&mut block);
    after(|tar| tar.raw(&block, b"abc"))
}

/// A member of old GNU tar's sparse type with these pieces.
fn sparse(pieces: &[(u64, u64)], real: &str, stored: &[u8]) -> Vec<u8> {
    let mut block = Head { size: stored.len() as u64, ..Head::new(b'S', "sparse") }.block();
    block[257..265].copy_from_slice(b"ustar  \0");
    block[345..500].fill(0);
    for (number, (at, len)) in pieces.iter().enumerate() {
        let text = format!("{at:011o} {len:011o} ");
        block[386 + number * 24..386 + number * 24 + 24].copy_from_slice(text.as_bytes());
    }
    block[483..495].copy_from_slice(format!("{real:0>11}\0").as_bytes());
    checksum(&mut block);
    after(|tar| tar.raw(&block, stored))
}

/// Layers that no image may have: name, bytes, words of the error.
fn layers() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let long = "n".repeat(256);
    let deep = "d/".repeat(2100);
    let good = after(|tar| tar);
    let cut = |bytes: &[u8], less: usize| bytes[..bytes.len() - less].to_vec();
    let mut damaged_gzip = gzip(&[good.clone(), vec![7; 9000]].concat());
    let middle = damaged_gzip.len() / 2;
    damaged_gzip[middle] ^= 0xff;
    let big = after(|tar| tar.file("big", &vec![1; 70_000]));
    let many: Vec<u8> = (0..2100).fold(Tar::default(), |tar, n| tar.file(&format!("f{n}"), b"")).end();
    let implicit = (0..30).fold(Tar::default(), |tar, n| {
        tar.pax(&[("path", format!("{n}/{}x", "d/".repeat(100)).as_bytes())]).file("x", b"")
    });
    let names = (0..60).fold(Tar::default(), |tar, n| {
        tar.pax(&[("path", format!("{n}/{}", format!("{}/", "n".repeat(250)).repeat(15)).as_bytes())])
            .file("x", b"")
    });
    let attribute = vec![7; 60_000];
    let attributes = (0..4).fold(Tar::default(), |tar, n| {
        tar.pax(&[("SCHILY.xattr.user.x", &attribute)]).file(&format!("{n}"), b"")
    });
    vec![
        ("a name that leads out", after(|tar| tar.file("../x", b"")), "leads out of the image"),
        (
            "a name that leads out later",
            after(|tar| tar.file("a/../../../etc/shadow", b"")),
            "leads out of the image",
        ),
        ("a directory that leads out", after(|tar| tar.dir("..")), "leads out of the image"),
        (
            "a symlink by a name that leads out",
            after(|tar| tar.symlink("../../x", "y")),
            "leads out of the image",
        ),
        (
            "a whiteout by a name that leads out",
            after(|tar| tar.file("../.wh.x", b"")),
            "leads out of the image",
        ),
        (
            "a hard link that leads out",
            after(|tar| tar.hard_link("x", "../../etc/shadow")),
            "leads out of the image",
        ),
        ("a name with a NUL", pax("path", b"a\0b"), "makes no sense"),
        ("a name of 256 bytes", pax("path", long.as_bytes()), "longer than the 255 bytes"),
        ("a path of 4200 bytes", pax("path", deep.as_bytes()), "longer than the 4095 bytes"),
        ("a whiteout of nothing", after(|tar| tar.file("dir/.wh.", b"")), "whiteout of no name"),
        ("a whiteout of .", after(|tar| tar.file("dir/.wh..", b"")), "whiteout of no name"),
        ("a whiteout of ..", after(|tar| tar.file("dir/.wh...", b"")), "whiteout of no name"),
        (
            "a file in a whiteout",
            after(|tar| tar.file(".wh.dir/x", b"")),
            "a whiteout is used as a directory",
        ),
        ("a member of no type", after(|tar| tar.member(&Head::new(b'Z', "x"), b"")), "no layer may have"),
        (
            "a member of another volume",
            after(|tar| tar.member(&Head::new(b'M', "x"), b"")),
            "no layer may have",
        ),
        (
            "an inode's metadata of Solaris",
            after(|tar| tar.member(&Head::new(b'I', "x"), b"")),
            "no layer may have",
        ),
        ("a wrong checksum", after(|tar| tar.raw(&[b'x'; 512], b"")), "checksum is wrong"),
        ("a header cut in the middle", cut(&good, 1024 + 200), "truncated"),
        ("a file cut in the middle", cut(&big, 1024 + 30_000), "truncated"),
        ("a size beyond the end", head(|b| b[124..136].copy_from_slice(b"00000100000\0")), "truncated"),
        (
            "a size of 8 GiB",
            head(|b| b[124..136].copy_from_slice(b"77777777777\0")),
            "BLOODHOUND_IMAGE_MAX_LAYER",
        ),
        ("a negative size", head(|b| b[124..136].fill(0xff)), "is negative"),
        (
            "a size of 2^95",
            head(|b| {
                b[124..136].fill(0);
                b[124] = 0x90;
            }),
            "is no number",
        ),
        (
            "a size of 2^63 - 1",
            head(|b| {
                b[124..136].fill(0xff);
                b[124..129].copy_from_slice(&[0x80, 0, 0, 0, 0x7f]);
            }),
            "says that it has",
        ),
        ("a size that is no number", head(|b| b[124..136].copy_from_slice(b"abcdefghijk\0")), "is no number"),
        ("a mode that is no number", head(|b| b[100..108].copy_from_slice(b"rwxr-xr\0")), "is no number"),
        (
            "an owner of 2^40",
            head(|b| b[108..116].copy_from_slice(&[0x80, 0, 1, 0, 0, 0, 0, 0])),
            "is no number of an owner",
        ),
        ("a PAX size of 2^64", pax("size", b"18446744073709551616"), "makes no sense"),
        ("a PAX size of 2^64 - 1", pax("size", b"18446744073709551615"), "says that it has"),
        ("a negative PAX size", pax("size", b"-5"), "makes no sense"),
        ("a PAX owner of 2^32", pax("uid", b"4294967296"), "is no number of an owner"),
        ("a PAX group of -1", pax("gid", b"4294967295"), "is no number of an group"),
        ("a PAX time that is none", pax("mtime", b"1e400"), "makes no sense"),
        ("an attribute without a name", pax("SCHILY.xattr.", b"x"), "makes no sense"),
        (
            "a PAX record without a length",
            after(|tar| tar.member(&Head::new(b'x', "p"), b"path=x\n").file("x", b"")),
            "is no record",
        ),
        (
            "a PAX record longer than all",
            after(|tar| tar.member(&Head::new(b'x', "p"), b"999 path=x\n").file("x", b"")),
            "is no record",
        ),
        (
            "a PAX record of length 0",
            after(|tar| tar.member(&Head::new(b'x', "p"), b"0 path=x\n").file("x", b"")),
            "is no record",
        ),
        (
            "a PAX record without a line end",
            after(|tar| tar.member(&Head::new(b'x', "p"), b"10 path=ab").file("x", b"")),
            "is no record",
        ),
        (
            "extended records of 2 MiB",
            after(|tar| tar.member(&Head::new(b'x', "p"), &vec![b' '; 2 << 20])),
            "more than 1048576 are refused",
        ),
        (
            "a long name of 2 MiB",
            after(|tar| tar.member(&Head::new(b'L', "l"), &vec![b'a'; 2 << 20])),
            "more than 1048576 are refused",
        ),
        (
            "extended records of nothing",
            after(|tar| tar.pax(&[("path", b"x")])),
            "ends after the extended header",
        ),
        ("a file that is a directory", after(|tar| tar.file("dir/file/x", b"")), "is a file and a directory"),
        (
            "a fifo that is a directory",
            after(|tar| tar.member(&Head::new(b'6', "f"), b"").file("f/x", b"")),
            "is a file and a directory",
        ),
        (
            "a link that is a directory",
            after(|tar| tar.hard_link("h", "below").file("h/x", b"")),
            "used as a directory",
        ),
        ("a hard link to nothing", after(|tar| tar.hard_link("x", "nothing")), "which is not there"),
        ("a hard link to itself", after(|tar| tar.hard_link("x", "x")), "which is not there"),
        (
            "a loop of hard links",
            after(|tar| tar.hard_link("x", "y").hard_link("y", "x")),
            "which is not there",
        ),
        ("a hard link to a directory", after(|tar| tar.hard_link("x", "dir")), "hard link to the directory"),
        ("a hard link to the root", after(|tar| tar.hard_link("x", "/")), "hard link to the directory"),
        (
            "a loop of symbolic links",
            after(|tar| tar.symlink("a", "b").symlink("b", "a").file("a/x", b"")),
            "form a loop",
        ),
        ("a symbolic link to itself", after(|tar| tar.symlink("a", "a/a").file("a/x", b"")), "form a loop"),
        ("a symbolic link to nothing", after(|tar| tar.symlink("a", "")), "no target of a symbolic link"),
        (
            "a root that is a file",
            after(|tar| tar.file("./", b"").file(".", b"")),
            "the root of the image is no directory",
        ),
        (
            "a root that is a link",
            after(|tar| tar.symlink(".", "x")),
            "the root of the image is no directory",
        ),
        (
            "a sparse file with pieces out of order",
            sparse(&[(512, 10), (0, 10)], "2000", &[1; 20]),
            "lies before another",
        ),
        (
            "a sparse file with a piece behind its end",
            sparse(&[(600, 600)], "1000", &[1; 600]),
            "behind its end",
        ),
        (
            "a sparse file with more than is stored",
            sparse(&[(0, 512)], "2000", &[1; 20]),
            "its pieces have 512 bytes",
        ),
        ("a sparse file of 8 GiB of nothing", sparse(&[], "77777777777", b""), "BLOODHOUND_IMAGE_MAX_LAYER"),
        (
            "a sparse file with a map that is none",
            after(|tar| tar.pax(&[("GNU.sparse.map", b"1,2,3"), ("GNU.sparse.size", b"9")]).file("x", b"")),
            "makes no sense",
        ),
        (
            "a sparse file with a map of letters",
            after(|tar| {
                tar.pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9")]).file("x", b"abc")
            }),
            "number in its map",
        ),
        (
            "a sparse file with a million pieces",
            after(|tar| {
                tar.pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9")]).file("x", b"1000000\n")
            }),
            "more than 65536 are refused",
        ),
        (
            "a text",
            b"this is no archive but a text, of which there is enough for a header. ".repeat(20),
            "this is no tar archive",
        ),
        (
            "a text, compressed",
            gzip(&b"this is no archive but a text, of which there is enough for a header. ".repeat(20)),
            "this is no tar archive",
        ),
        ("xz", b"\xfd7zXZ\0\0\0\0\0".to_vec(), "compressed by xz"),
        ("bzip2", b"BZh91AY&SY".to_vec(), "compressed by bzip2"),
        ("lz4", b"\x04\x22\x4d\x18\x64\x40".to_vec(), "compressed by lz4"),
        ("a cut gzip stream", cut(&gzip(&big), 30), "gzip stream is truncated"),
        ("a damaged gzip stream", damaged_gzip, "damaged"),
        ("garbage behind a gzip stream", [gzip(&good), b"garbage".to_vec()].concat(), "gzip stream"),
        ("a cut zstd stream", cut(&zstd(&big), 20), "zstd stream is damaged or truncated"),
        (
            "a zstd stream with a window of 1 GiB",
            vec![0x28, 0xb5, 0x2f, 0xfd, 0x04, 0xa0, 0, 0, 0],
            "at most 100 MiB",
        ),
        ("zstd of nothing but a magic number", vec![0x28, 0xb5, 0x2f, 0xfd], "zstd stream is damaged"),
        (
            "5 MiB of zeros in 5 kB",
            gzip(&after(|tar| tar.file("zeros", &vec![0; 5 << 20]))),
            "BLOODHOUND_IMAGE_MAX_LAYER",
        ),
        (
            "5 MiB of zeros behind the end",
            gzip(&[good.clone(), vec![0; 5 << 20]].concat()),
            "BLOODHOUND_IMAGE_MAX_LAYER",
        ),
        ("too many files", many, "BLOODHOUND_IMAGE_MAX_ENTRIES"),
        ("too many directories in names", implicit.end(), "BLOODHOUND_IMAGE_MAX_ENTRIES"),
        ("too many bytes of names", names.end(), "BLOODHOUND_IMAGE_MAX_NAMES"),
        ("too many bytes of attributes", attributes.end(), "BLOODHOUND_IMAGE_MAX_NAMES"),
    ]
}

#[test]
fn layers_that_no_image_may_have() {
    let cache = Cache::new("layers");
    let cases = layers();
    assert!(cases.len() > 70, "{}", cases.len());
    for (case, layer, words) in cases {
        // In an OCI archive the layer may be compressed, so the digest of its content is not known here where it is damaged.
        let mut plain = Vec::new();
        let inflated = if layer.starts_with(&[0x1f, 0x8b]) {
            let mut decoder = flate2::read::MultiGzDecoder::new(&layer[..]);
            std::io::Read::read_to_end(&mut decoder, &mut plain).is_ok()
        } else {
            false
        };
        let content = if inflated { plain } else { layer.clone() };
        let blobs = Blobs::of(config(&[content]), vec![layer]);
        let archive = cache.scratch.write("case.tar", &blobs.oci_archive("case:1"));
        cache.refuses(case, Settings::default(), &ImageSource::Archive(archive), words);
    }
}

#[test]
fn links_out_of_the_image_are_harmless() {
    let cache = Cache::new("harmless");
    let layer = after(|tar| {
        tar.symlink("up", "../../..")
            .file("up/etc/passwd", b"inside")
            .symlink("abs", "/dir")
            .file("abs/y", b"y")
            .file("/root", b"r")
    });
    let archive = cache.scratch.write("case.tar", &docker_archive(&["case:1"], &[layer]));
    let image =
        cache.resolver(Settings::default()).resolve(&ImageSource::Archive(archive), PullPolicy::Missing);
    let lines = listing(&image.expect("an image"));
    for line in [
        "/etc/passwd 644 0:0 file \"inside\"",
        "/dir/y 644 0:0 file \"y\"",
        "/root 644 0:0 file \"r\"",
        "/up 777 0:0 -> ../../..",
    ] {
        assert!(lines.iter().any(|other| other == line), "{line}: {lines:?}");
    }
    cache.is_right("harmless");
}

fn layer() -> Vec<u8> {
    after(|tar| tar)
}

/// An OCI archive whose manifest is changed.
fn with_manifest(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut blobs = Blobs::new(&[layer()], gzip);
    let mut manifest: Value = serde_json::from_slice(&blobs.manifest).expect("JSON");
    change(&mut manifest);
    blobs.manifest = manifest.to_string().into_bytes();
    blobs.oci_archive("case:1")
}

fn with_config(config: &str) -> Vec<u8> {
    Blobs::of(config.as_bytes().to_vec(), vec![gzip(&layer())]).oci_archive("case:1")
}

fn with_index(index: &Value) -> Vec<u8> {
    let blobs = Blobs::new(&[layer()], gzip);
    let mut tar = Tar::default().file("index.json", index.to_string().as_bytes());
    for blob in blobs.all() {
        tar = tar.file(&format!("blobs/sha256/{}", Digest::of(blob).hex()), blob);
    }
    tar.end()
}

fn docker(manifest: &str) -> Vec<u8> {
    let config = config(&[layer()]);
    Tar::default()
        .file("manifest.json", manifest.as_bytes())
        .file("config", &config)
        .file("layer.tar", &layer())
        .end()
}

/// Indices that refer to indices, six deep.
fn nested() -> Vec<u8> {
    let mut tar = Tar::default();
    let mut inner = json!({"schemaVersion": 2, "manifests": []}).to_string().into_bytes();
    for _ in 0..6 {
        tar = tar.file(&format!("blobs/sha256/{}", Digest::of(&inner).hex()), &inner);
        inner = json!({"schemaVersion": 2, "manifests": [descriptor("", &inner)]}).to_string().into_bytes();
    }
    tar.file("index.json", &inner).end()
}

/// Archives that are none: name, bytes, words of the error.
fn archives() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let platform = |os: &str, architecture: &str| json!({"os": os, "architecture": architecture});
    let for_platforms = |platforms: &[Value]| {
        let manifests: Vec<Value> = platforms
            .iter()
            .map(|platform| {
                let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", b"x");
                entry["platform"] = platform.clone();
                entry
            })
            .collect();
        with_index(&json!({"schemaVersion": 2, "manifests": manifests}))
    };
    let blobs = || Blobs::new(&[layer()], gzip);
    let other_layer = {
        let mut blobs = blobs();
        let manifest = blobs.manifest.clone();
        blobs.layers[0] = gzip(b"another");
        let name = Digest::of(&gzip(&layer())).hex();
        let tar = Tar::default()
            .file("index.json", &blobs.index("case:1"))
            .file(&format!("blobs/sha256/{name}"), &blobs.layers[0]);
        let tar = tar.file(&format!("blobs/sha256/{}", Digest::of(&manifest).hex()), &manifest);
        tar.file(&format!("blobs/sha256/{}", Digest::of(&blobs.config).hex()), &blobs.config).end()
    };
    let ok = format!(r#""rootfs":{{"diff_ids":["{}"]}}"#, Digest::of(&layer()));
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let two = {
        let (one, config) = (config(&[layer()]), config(&[Tar::default().file("other", b"").end()]));
        let manifest = json!([{"Config": "a.json", "RepoTags": ["a:1"], "Layers": ["a.tar"]}, {"Config": "b.json", "RepoTags": ["b:1"], "Layers": ["b.tar"]}]);
        let tar = Tar::default()
            .file("manifest.json", manifest.to_string().as_bytes())
            .file("a.json", &one)
            .file("b.json", &config);
        tar.file("a.tar", &layer()).file("b.tar", &Tar::default().file("other", b"").end()).end()
    };
    vec![
        ("an empty file", Vec::new(), "it has neither manifest.json"),
        ("an archive of nothing", Tar::default().end(), "it has neither manifest.json"),
        ("an archive of something else", Tar::default().file("README", b"x").end(), "README"),
        (
            "a text",
            b"this is no archive but a text, of which there is enough for a header. ".repeat(20),
            "no tar archive",
        ),
        ("an image of a disk", vec![0xeb; 4096], "no tar archive"),
        ("a compressed text", gzip(&b"text ".repeat(2000)), "no tar archive"),
        (
            "a cut compressed archive",
            {
                let z = gzip(&blobs().oci_archive("x"));
                z[..z.len() - 40].to_vec()
            },
            "truncated",
        ),
        ("an archive in xz", b"\xfd7zXZ\0\0\0\0\0".to_vec(), "compressed by xz"),
        (
            "7 MiB of zeros in 7 kB",
            gzip(&Tar::default().file("zeros", &vec![0; 7 << 20]).end()),
            "BLOODHOUND_IMAGE_MAX_SIZE",
        ),
        (
            "a loop of links",
            Tar::default().symlink("manifest.json", "b").symlink("b", "manifest.json").end(),
            "neither manifest.json",
        ),
        (
            "a link to the host",
            Tar::default().symlink("manifest.json", "/etc/passwd").end(),
            "neither manifest.json",
        ),
        ("a manifest.json that is none", docker("{"), "manifest.json is none"),
        ("a manifest.json with nothing", docker("[]"), "there is no image in it"),
        ("a manifest.json of another form", docker(r#"{"a":1}"#), "manifest.json is none"),
        (
            "a missing configuration",
            docker(r#"[{"Config":"none","Layers":["layer.tar"]}]"#),
            "\"none\" is not in it",
        ),
        (
            "a missing layer",
            docker(r#"[{"Config":"config","Layers":["none.tar"]}]"#),
            "\"none.tar\" is not in it",
        ),
        (
            "a configuration of the host",
            docker(r#"[{"Config":"../../../../etc/passwd","Layers":["layer.tar"]}]"#),
            "is not in it",
        ),
        (
            "too few layers",
            docker(r#"[{"Config":"config","Layers":[]}]"#),
            "manifest.json has 0 layers and the configuration 1",
        ),
        (
            "too many layers",
            docker(r#"[{"Config":"config","Layers":["layer.tar","layer.tar"]}]"#),
            "2 layers and the configuration 1",
        ),
        (
            "far too many layers",
            docker(&json!([{"Config": "config", "Layers": vec!["layer.tar"; 9]}]).to_string()),
            "BLOODHOUND_IMAGE_MAX_LAYERS",
        ),
        ("a deep manifest.json", docker(&deep), "manifest.json is none"),
        (
            "a wrong name of the configuration",
            Tar::default()
                .file(
                    "manifest.json",
                    format!(r#"[{{"Config":"{0}.json","Layers":[]}}]"#, "0".repeat(64)).as_bytes(),
                )
                .file(&format!("{}.json", "0".repeat(64)), b"{}")
                .end(),
            "it is damaged",
        ),
        (
            "a layer of another digest",
            docker_archive_of(&["a:1"], &config(&[b"other".to_vec()]), &[layer()]),
            "its content has digest",
        ),
        ("several images", two, "has several images"),
        ("a configuration that is none", with_config("text"), "no configuration of an image"),
        (
            "a configuration for arm64",
            with_config(r#"{"os":"linux","architecture":"arm64"}"#),
            "for linux/arm64",
        ),
        (
            "a configuration for windows",
            with_config(r#"{"os":"windows","architecture":"amd64"}"#),
            "for windows/amd64",
        ),
        ("a configuration for nothing", with_config("{}"), "an unnamed system"),
        (
            "a configuration without layers",
            with_config(r#"{"os":"linux","architecture":"amd64"}"#),
            "1 layers and the configuration 0",
        ),
        (
            "a configuration with a wrong digest",
            with_config(r#"{"os":"linux","architecture":"amd64","rootfs":{"diff_ids":["sha256:0"]}}"#),
            "is no digest",
        ),
        (
            "a configuration with sha512",
            with_config(r#"{"os":"linux","architecture":"amd64","rootfs":{"diff_ids":["sha512:00"]}}"#),
            "only sha256",
        ),
        (
            "a configuration of another layer",
            with_config(&format!(
                r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":["sha256:{}"]}}}}"#,
                "0".repeat(64)
            )),
            "its content has digest",
        ),
        (
            "a variable without a name",
            with_config(&format!(
                r#"{{"os":"linux","architecture":"amd64","config":{{"Env":["=x"]}},{ok}}}"#
            )),
            "as an environment variable",
        ),
        (
            "a variable without a value",
            with_config(&format!(r#"{{"os":"linux","architecture":"amd64","config":{{"Env":["x"]}},{ok}}}"#)),
            "as an environment variable",
        ),
        (
            "a configuration of wrong types",
            with_config(&format!(r#"{{"os":"linux","architecture":"amd64","config":{{"Cmd":"x"}},{ok}}}"#)),
            "no configuration of an image",
        ),
        ("an index that is none", Tar::default().file("index.json", b"text").end(), "it is no manifest"),
        (
            "an index that is a manifest",
            Tar::default().file("index.json", &blobs().manifest).end(),
            "is no index",
        ),
        (
            "an index of nothing",
            with_index(&json!({"schemaVersion": 2, "manifests": []})),
            "there is no image in it",
        ),
        (
            "an index and a manifest in one",
            with_index(&json!({"manifests": [], "config": descriptor("", b""), "layers": []})),
            "an index and a manifest in one",
        ),
        (
            "an index without amd64",
            for_platforms(&[
                platform("linux", "arm64"),
                platform("linux", "s390x"),
                platform("unknown", "unknown"),
            ]),
            "there is: linux/arm64, linux/s390x",
        ),
        (
            "an index of attestations",
            for_platforms(&[platform("unknown", "unknown"), platform("unknown", "unknown")]),
            "none that names its platform",
        ),
        (
            "an index to nothing",
            for_platforms(&[platform("linux", "amd64"), platform("linux", "arm64")]),
            "is not in it",
        ),
        ("indices that do not end", nested(), "more than 4 times"),
        (
            "an index that is too large",
            with_index(&json!({"manifests": [], "x": "x".repeat(70_000)})),
            "BLOODHOUND_IMAGE_MAX_MANIFEST",
        ),
        ("a blob of another digest", other_layer, "should have"),
        (
            "a manifest of version 1",
            with_manifest(|m| *m = json!({"schemaVersion": 1, "fsLayers": []})),
            "schema version 1",
        ),
        ("a manifest of nothing", with_manifest(|m| *m = json!({})), "neither a manifest nor an index"),
        (
            "a manifest without layers",
            with_manifest(|m| m["layers"] = json!([])),
            "0 layers and the configuration 1",
        ),
        (
            "a chart",
            with_manifest(|m| m["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json")),
            "an artifact of type \"application/vnd.cncf.helm",
        ),
        (
            "an encrypted layer",
            with_manifest(|m| {
                m["layers"][0]["mediaType"] = json!("application/vnd.oci.image.layer.v1.tar+encrypted")
            }),
            "is encrypted",
        ),
        (
            "a layer of another kind",
            with_manifest(|m| m["layers"][0]["mediaType"] = json!("text/html")),
            "which no image has",
        ),
        (
            "a layer of negative size",
            with_manifest(|m| m["layers"][0]["size"] = json!(-1)),
            "has the size -1",
        ),
        (
            "a layer that is smaller than it says",
            with_manifest(|m| m["layers"][0]["size"] = json!(1_000_000)),
            "and should have 1000000",
        ),
        (
            "a layer that is larger than it says",
            with_manifest(|m| m["layers"][0]["size"] = json!(10)),
            "more than the 10 bytes",
        ),
        (
            "a configuration of another size",
            with_manifest(|m| m["config"]["size"] = json!(10)),
            "it is damaged",
        ),
        (
            "a configuration of 8 EiB",
            with_manifest(|m| m["config"]["size"] = json!(i64::MAX)),
            "BLOODHOUND_IMAGE_MAX_MANIFEST",
        ),
        (
            "a layer that is not there",
            with_manifest(|m| m["layers"][0]["digest"] = json!(Digest::of(b"none"))),
            "is not in it",
        ),
        (
            "a layer without a digest",
            with_manifest(|m| m["layers"][0]["digest"] = json!("none")),
            "is no digest",
        ),
        (
            "a layer out of the archive",
            with_manifest(|m| m["layers"][0]["digest"] = json!("sha256:../../../../etc/passwd")),
            "is no digest",
        ),
    ]
}

#[test]
fn archives_that_are_none() {
    let cache = Cache::new("archives");
    let cases = archives();
    assert!(cases.len() > 50, "{}", cases.len());
    for (case, archive, words) in cases {
        let archive = cache.scratch.write("case.tar", &archive);
        cache.refuses(case, Settings::default(), &ImageSource::Archive(archive), words);
    }
    let missing = ImageSource::Archive(cache.scratch.path("none.tar"));
    cache.refuses("a file that is not there", Settings::default(), &missing, "there is no such file");
    std::fs::create_dir_all(cache.scratch.path("empty")).expect("a directory");
    let empty = ImageSource::OciLayout(cache.scratch.path("empty"));
    cache.refuses("a directory of nothing", Settings::default(), &empty, "no OCI layout");
    let device = ImageSource::Archive("/dev/zero".into());
    cache.refuses("a device", Settings::default(), &device, "neither a file nor a directory");
}

/// Whatever byte is damaged, either somebody notices or it means nothing.
#[test]
fn damage_anywhere_is_noticed_or_means_nothing() {
    let cache = Cache::new("damage");
    let good = Blobs::new(&[layer()], gzip).oci_archive("case:1");
    let path = cache.scratch.write("case.tar", &good);
    let source = ImageSource::Archive(path.clone());
    let resolve = || cache.resolver(Settings::default()).resolve(&source, PullPolicy::Missing);
    let expected = listing(&resolve().expect("an image"));
    let (mut noticed, mut cut) = (0, 0);
    for at in (0..good.len()).step_by(61) {
        let name = format!("file:{}", path.canonicalize().expect("a path").display());
        for truncate in [false, true] {
            // The image is forgotten, so that everything is read again.
            cache.store.prune(&|record| record.reference != "docker.io/library/good:1").expect("pruned");
            assert_eq!(cache.store.record(&name), Ok(None));
            let mut damaged = good.clone();
            if truncate {
                damaged.truncate(at);
            } else {
                damaged[at] ^= 0x15;
            }
            std::fs::write(&path, damaged).expect("a file");
            match resolve() {
                Ok(image) => assert_eq!(listing(&image), expected, "byte {at}"),
                Err(e) => {
                    assert!(e.kind() != ErrorKind::Io, "byte {at}: {e}");
                    *if truncate { &mut cut } else { &mut noticed } += 1;
                }
            }
            cache.is_right(&format!("byte {at}"));
        }
    }
    assert!(noticed > 30 && cut > 60, "{noticed} damages and {cut} cuts were noticed");
}

fn quick() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(5),
        idle: Duration::from_millis(300),
        document: Duration::from_millis(800),
        window: Duration::from_millis(400),
        window_bytes: 2000,
        backoff: Duration::from_millis(1),
    }
}

type Special = Box<dyn Fn(&Asked) -> Option<Reply> + Send + Sync>;

/// A registry that answers everything so.
fn always(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Special {
    Box::new(move |_| Some(reply()))
}

/// One that answers so where the path has this in it.
fn at(part: &'static str, reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Special {
    Box::new(move |asked| asked.path.contains(part).then(|| reply(asked)))
}

fn raw(text: &'static str) -> Special {
    always(move || Reply::Raw(text.as_bytes().to_vec()))
}

/// One that wants a token, whose server answers so.
fn token(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Special {
    Box::new(move |asked| {
        if asked.path.starts_with("/token") {
            return Some(reply());
        }
        let host = asked.header("host").unwrap_or_default();
        Some(Reply::with(
            401,
            "WWW-Authenticate",
            &format!("Bearer realm=\"http://{host}/token\",service=\"s\""),
        ))
    })
}

/// Answers of registries: name, answers, words of the error.
fn answers() -> Vec<(&'static str, Special, &'static str)> {
    let json_body = |value: Value| move || Reply::body(value.to_string().as_bytes());
    let location = |to: &'static str| at("/blobs/", move |_| Reply::with(307, "Location", to));
    let endless = || Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    vec![
        ("401 for ever", always(|| Reply::with(401, "WWW-Authenticate", "Basic realm=\"x\"")), "status 401"),
        ("401 without a challenge", always(|| Reply::status(401)), "it names none"),
        (
            "401 with an unknown challenge",
            always(|| Reply::with(401, "WWW-Authenticate", "Negotiate abc")),
            "Negotiate abc",
        ),
        (
            "401 with half a challenge",
            always(|| Reply::with(401, "WWW-Authenticate", "Bearer realm=\"")),
            "address",
        ),
        (
            "401 without a realm",
            always(|| Reply::with(401, "WWW-Authenticate", "Bearer service=\"x\"")),
            "not named by the registry",
        ),
        (
            "401 with a token server that is a file",
            always(|| Reply::with(401, "WWW-Authenticate", "Bearer realm=\"file:///etc/passwd\"")),
            "only http and https",
        ),
        ("401 after a token", token(json_body(json!({"token": "abc"}))), "status 401"),
        ("401 of the token server", token(|| Reply::status(401)), "gives none: status 401"),
        (
            "a token server that redirects",
            token(|| Reply::with(302, "Location", "file:///etc/passwd")),
            "gives none: status 302",
        ),
        ("an empty token", token(json_body(json!({"token": ""}))), "answers with no token"),
        (
            "a token with a line break",
            token(json_body(json!({"token": "a\r\nX-Evil: 1"}))),
            "answers with no token",
        ),
        ("a token that is none", token(json_body(json!([1]))), "answers with no token"),
        ("a token server that speaks no JSON", token(|| Reply::body(b"<html>")), "answers with no token"),
        (
            "an endless token",
            token(move || Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())),
            "token server",
        ),
        ("403", always(|| Reply::status(403)), "status 403"),
        ("404", always(|| Reply::status(404)), "has no manifests 1"),
        ("404 of a layer", at("/blobs/", |_| Reply::status(404)), "has no blobs sha256:"),
        ("429 for ever", always(|| Reply::with(429, "Retry-After", "999999")), "allows no more requests"),
        ("500 for ever", always(|| Reply::status(500)), "status 500"),
        ("503 of a layer for ever", at("/blobs/", |_| Reply::status(503)), "status 503"),
        ("204", always(|| Reply::status(204)), "no manifest"),
        ("101", always(|| Reply::status(101)), "status 101"),
        ("a redirect to a file", location("file:///etc/passwd"), "only http and https are followed"),
        ("a redirect to ftp", location("ftp://127.0.0.1/x"), "only http and https are followed"),
        ("a redirect to a script", location("javascript:alert(1)"), "address"),
        ("a redirect to nowhere", at("/blobs/", |_| Reply::status(307)), "a redirect to nowhere"),
        (
            "a redirect to itself",
            at("/blobs/", |asked| Reply::with(307, "Location", &asked.path)),
            "more than 8 redirects",
        ),
        (
            "redirects that do not end",
            at("/blobs/", |asked| Reply::with(307, "Location", &format!("{}x", asked.path))),
            "more than 8 redirects",
        ),
        ("a redirect to nobody", location("http://127.0.0.1:1/x"), "127.0.0.1:1"),
        ("a redirect with a line break", location("http://127.0.0.1:1/x\u{b}y"), "no address has"),
        ("no answer", always(|| Reply::Raw(Vec::new())), "the connection ended in its headers"),
        ("another protocol", raw("SSH-2.0-OpenSSH_9.2\r\n"), "it does not speak HTTP"),
        ("a status that is none", raw("HTTP/1.1 999999 X\r\n\r\n"), "it does not speak HTTP"),
        ("a header that is none", raw("HTTP/1.1 200 OK\r\nno header\r\n\r\n"), "is no header"),
        (
            "headers that do not end",
            always(|| Reply::Endless(b"HTTP/1.1 200 OK\r\nX: ".to_vec())),
            "more than 64 KiB",
        ),
        (
            "a thousand headers",
            always(|| {
                Reply::Raw(["HTTP/1.1 200 OK\r\n", &"X: y\r\n".repeat(1000), "\r\n"].concat().into_bytes())
            }),
            "more than 200 headers",
        ),
        (
            "a hundred early answers",
            always(|| Reply::Raw("HTTP/1.1 103 X\r\n\r\n".repeat(100).into_bytes())),
            "status 103",
        ),
        (
            "two lengths",
            raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
            "two lengths",
        ),
        ("a negative length", raw("HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"), "is no length"),
        (
            "an encoding nobody asked for",
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}"),
            "is encoded as",
        ),
        (
            "a chunk of no size",
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            "is no size of a chunk",
        ),
        (
            "a chunk of 2^68 bytes",
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"),
            "is no size of a chunk",
        ),
        (
            "a cut chunk",
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{}"),
            "ended in the middle",
        ),
        ("silence", always(|| Reply::Stall(Vec::new())), "no answer came in time"),
        ("silence in a header", always(|| Reply::Stall(b"HTTP/1.1 200".to_vec())), "no answer came in time"),
        (
            "silence in a manifest",
            at("/manifests/", |_| Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec())),
            "no answer came in time",
        ),
        (
            "silence in a layer",
            at("/blobs/", |_| Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec())),
            "no answer came in time",
        ),
        (
            "a header byte by byte",
            always(|| {
                Reply::Drip(
                    [b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(150)].concat(),
                    Duration::from_millis(20),
                )
            }),
            "takes too long",
        ),
        ("a layer byte by byte", layer_drips(), "too "),
        ("a manifest without end", at("/manifests/", move |_| endless()), "more than 65536 bytes"),
        (
            "a layer without end",
            layer_answers(|_| Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())),
            "that it should have",
        ),
        (
            "a layer that always ends early",
            layer_answers(|blob| Reply::Broken(blob.to_vec(), 1)),
            "ended in the middle of the answer",
        ),
        (
            "a layer that is another",
            layer_answers(|blob| Reply::body(&vec![7; blob.len()])),
            "came with digest",
        ),
        ("a layer that is shorter", layer_answers(|blob| Reply::body(&blob[1..])), "ended early"),
        (
            "a range that lies",
            layer_answers(|blob| {
                Reply::Plain(
                    206,
                    vec![("Content-Range".to_owned(), "bytes 5-9/10".to_owned())],
                    vec![1; blob.len()],
                )
            }),
            "came with digest",
        ),
        ("a configuration that is another", at(&CONFIG, |_| Reply::body(b"{}")), "came with digest"),
        (
            "a configuration without end",
            at(&CONFIG, move |_| Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())),
            "the answer has more than",
        ),
        (
            "a page of a hotel",
            at("/manifests/", |_| Reply::body(b"<html>Please log in to use this network</html>")),
            "it is no manifest",
        ),
        (
            "an index without amd64",
            at("/manifests/", |_| {
                Reply::body(br#"{"manifests":[{"digest":"sha256:0","size":1,"platform":{"os":"linux","architecture":"riscv64"}}]}"#)
            }),
            "there is: linux/riscv64",
        ),
        (
            "an index to a file",
            at("/manifests/", |_| {
                Reply::body(br#"{"manifests":[{"digest":"file:///etc/passwd","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}"#)
            }),
            "not supported as a digest",
        ),
        (
            "an index to itself",
            at("/manifests/", |_| {
                Reply::body(format!(r#"{{"manifests":[{{"digest":"{}","size":1,"platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#, Digest::of(b"x")).as_bytes())
            }),
            "came with digest",
        ),
        (
            "a configuration of 8 EiB",
            at("/manifests/", |_| {
                let config = json!({"digest": Digest::of(b""), "size": i64::MAX});
                Reply::body(json!({"config": config, "layers": []}).to_string().as_bytes())
            }),
            "BLOODHOUND_IMAGE_MAX_MANIFEST",
        ),
        (
            "an error with a long text",
            always(|| {
                Reply::Plain(
                    400,
                    Vec::new(),
                    json!({"errors": [{"code": "X", "message": "\u{1b}[31m".repeat(9000)}]})
                        .to_string()
                        .into_bytes(),
                )
            }),
            "status 400",
        ),
    ]
}

/// The path of the configuration's blob.
static CONFIG: std::sync::LazyLock<String> =
    std::sync::LazyLock::new(|| Digest::of(&config(&[layer()])).to_string());

fn layer_answers(reply: impl Fn(&[u8]) -> Reply + Send + Sync + 'static) -> Special {
    let blob = gzip(&layer());
    let name = Digest::of(&blob).to_string();
    Box::new(move |asked| asked.path.ends_with(&name).then(|| reply(&blob)))
}

fn layer_drips() -> Special {
    layer_answers(|blob| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", blob.len());
        Reply::Drip([head.as_bytes(), blob].concat(), Duration::from_millis(20))
    })
}

#[test]
fn registries_that_misbehave() {
    let cache = Cache::new("registries");
    let cases = answers();
    assert!(cases.len() > 60, "{}", cases.len());
    for (case, special, words) in cases {
        let special = Arc::new(special);
        let server = Server::registry(Blobs::new(&[layer()], gzip), move |asked| special(asked));
        let settings = Settings { insecure: vec![server.host()], timeouts: quick(), ..Settings::default() };
        let source = ImageSource::Reference(format!("{}/app:1", server.host()));
        cache.refuses(case, settings, &source, words);
        assert!(server.asked().len() < 40, "{case}: {} requests", server.asked().len());
    }
    // With none of that, it is pulled, in spite of what the cases have left.
    let server = Server::registry(Blobs::new(&[layer()], gzip), |_| None);
    let settings = Settings { insecure: vec![server.host()], ..Settings::default() };
    let source = ImageSource::Reference(format!("{}/app:1", server.host()));
    cache.resolver(settings).resolve(&source, PullPolicy::Missing).unwrap_or_else(|e| panic!("{e}"));
    cache.is_right("the good registry");
}
