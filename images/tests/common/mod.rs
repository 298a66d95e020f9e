//! What the tests make images of: a writer of tar archives that also writes what no program would, archives and layouts of
//! images, and a cache for each test.
#![allow(dead_code)] // every test file uses its part
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use bloodhound_images::{Digest, EntryKind, Image, Limits, Options, Resolver, Store};
use serde_json::json;

/// A directory that is removed at the end of its test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(what: &str) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bloodhound-images-{}-{number}-{what}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("a directory");
        fs::write(&path, bytes).expect("a file");
        path
    }

    pub fn store(&self) -> Store {
        Store::open(self.path("cache")).expect("a cache")
    }

    pub fn small_store(&self, limits: Limits) -> Store {
        Store::with_limits(self.path("cache"), limits).expect("a cache")
    }

    pub fn resolver(&self) -> Resolver {
        Resolver::new(self.store(), Options::default())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Another user's process may have left something; the next boot removes it.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// Whether programs are installed. If not, CI fails (BLOODHOUND_TEST_NO_SKIP=1), and others are told.
pub fn have(programs: &[&str], what: &str) -> bool {
    let dirs = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let installed = |program: &&str| dirs.iter().any(|dir| Path::new(dir).join(program).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !installed(program)).collect();
    if missing.is_empty() {
        return true;
    }
    left_out(what, &format!("not installed: {}", missing.join(", ")), true);
    false
}

/// Says that a test, or a part of it, is left out; `fault` if CI is to fail for it.
pub fn left_out(what: &str, reason: &str, fault: bool) {
    let strict =
        std::env::var("BLOODHOUND_TEST_NO_SKIP").is_ok_and(|value| !value.is_empty() && value != "0");
    assert!(!(strict && fault), "{what}: {reason}; BLOODHOUND_TEST_NO_SKIP wants every test to run");
    let line = format!("left out: {what}: {reason}\n");
    let _shown = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("BLOODHOUND_TEST_LEFT_OUT").filter(|path| !path.is_empty()) {
        let file = fs::OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("BLOODHOUND_TEST_LEFT_OUT");
    }
}

/// Runs a program that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// A tar archive.
#[derive(Clone, Default)]
pub struct Tar(pub Vec<u8>);

/// The fields of a header that tests set.
#[derive(Clone)]
pub struct Head<'a> {
    pub name: &'a [u8],
    pub kind: u8,
    pub mode: u32,
    pub uid: u32,
    pub size: u64,
    pub link: &'a [u8],
    pub device: (u32, u32),
}

impl<'a> Head<'a> {
    pub fn new(kind: u8, name: &'a str) -> Head<'a> {
        Head { name: name.as_bytes(), kind, mode: 0o644, uid: 0, size: 0, link: b"", device: (0, 0) }
    }

    pub fn block(&self) -> [u8; 512] {
        let mut block = [0; 512];
        block[..self.name.len().min(100)].copy_from_slice(&self.name[..self.name.len().min(100)]);
        block[100..108].copy_from_slice(format!("{:07o}\0", self.mode).as_bytes());
        block[108..116].copy_from_slice(format!("{:07o}\0", self.uid).as_bytes());
        block[116..124].copy_from_slice(b"0000000\0");
        block[124..136].copy_from_slice(format!("{:011o}\0", self.size).as_bytes());
        block[136..148].copy_from_slice(format!("{:011o}\0", 1_600_000_000).as_bytes());
        block[156] = self.kind;
        block[157..157 + self.link.len().min(100)].copy_from_slice(&self.link[..self.link.len().min(100)]);
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[329..337].copy_from_slice(format!("{:07o}\0", self.device.0).as_bytes());
        block[337..345].copy_from_slice(format!("{:07o}\0", self.device.1).as_bytes());
        checksum(&mut block);
        block
    }
}

/// Writes the checksum of a header.
pub fn checksum(block: &mut [u8; 512]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

impl Tar {
    pub fn raw(mut self, block: &[u8], data: &[u8]) -> Tar {
        self.0.extend(block);
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn member(self, head: &Head<'_>, data: &[u8]) -> Tar {
        let head = Head { size: data.len() as u64, ..head.clone() };
        self.raw(&head.block(), data)
    }

    pub fn file(self, name: &str, data: &[u8]) -> Tar {
        self.member(&Head::new(b'0', name), data)
    }

    pub fn dir(self, name: &str) -> Tar {
        self.member(&Head { mode: 0o755, ..Head::new(b'5', name) }, b"")
    }

    pub fn symlink(self, name: &str, target: &str) -> Tar {
        self.member(&Head { link: target.as_bytes(), mode: 0o777, ..Head::new(b'2', name) }, b"")
    }

    pub fn hard_link(self, name: &str, target: &str) -> Tar {
        self.member(&Head { link: target.as_bytes(), ..Head::new(b'1', name) }, b"")
    }

    pub fn pax(self, records: &[(&str, &[u8])]) -> Tar {
        let mut data = Vec::new();
        for (key, value) in records {
            let body = key.len() + value.len() + 3;
            let length = (1..).map(|digits| body + digits).find(|all| all.to_string().len() == all - body);
            data.extend(format!("{} {key}=", length.expect("a length")).as_bytes());
            data.extend(*value);
            data.push(b'\n');
        }
        self.member(&Head::new(b'x', "pax"), &data)
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// The configuration of an image with these uncompressed layers.
pub fn config(layers: &[Vec<u8>]) -> Vec<u8> {
    let ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Cmd": ["/bin/app"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": ids},
    })
    .to_string()
    .into_bytes()
}

/// An archive as `docker save` made it before version 25.
pub fn docker_archive(tags: &[&str], layers: &[Vec<u8>]) -> Vec<u8> {
    docker_archive_of(tags, &config(layers), layers)
}

pub fn docker_archive_of(tags: &[&str], config: &[u8], layers: &[Vec<u8>]) -> Vec<u8> {
    let name = format!("{}.json", Digest::of(config).hex());
    let paths: Vec<String> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = json!([{"Config": name, "RepoTags": tags, "Layers": paths}]).to_string();
    let mut tar = Tar::default().file(&name, config).file("manifest.json", manifest.as_bytes());
    for (path, layer) in paths.iter().zip(layers) {
        tar = tar.file(path, layer);
    }
    tar.end()
}

/// The documents and blobs of an image: compressed layers, configuration, manifest.
pub struct Blobs {
    pub config: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
    pub manifest: Vec<u8>,
}

impl Blobs {
    pub fn new(layers: &[Vec<u8>], compress: fn(&[u8]) -> Vec<u8>) -> Blobs {
        let compressed: Vec<Vec<u8>> = layers.iter().map(|layer| compress(layer)).collect();
        Blobs::of(config(layers), compressed)
    }

    pub fn of(config: Vec<u8>, layers: Vec<Vec<u8>>) -> Blobs {
        let descriptors: Vec<_> = layers
            .iter()
            .map(|layer| descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": descriptors,
        });
        Blobs { config, layers, manifest: manifest.to_string().into_bytes() }
    }

    pub fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.layers.iter().chain([&self.config, &self.manifest])
    }

    /// index.json of a layout with just this image.
    pub fn index(&self, name: &str) -> Vec<u8> {
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &self.manifest);
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        json!({"schemaVersion": 2, "manifests": [entry]}).to_string().into_bytes()
    }

    /// A tar of the layout.
    pub fn oci_archive(&self, name: &str) -> Vec<u8> {
        let mut tar = Tar::default().file("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}");
        tar = tar.file("index.json", &self.index(name));
        for blob in self.all() {
            tar = tar.file(&format!("blobs/sha256/{}", Digest::of(blob).hex()), blob);
        }
        tar.end()
    }
}

pub fn descriptor(media_type: &str, bytes: &[u8]) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len()})
}

/// A line for each file of an image: path, kind, mode, owner, content or target.
pub fn listing(image: &Image) -> Vec<String> {
    let mut lines = Vec::new();
    image.root.walk(&mut |path, entry| {
        let what = match &entry.kind {
            EntryKind::File { id, size } => {
                let mut bytes = vec![0; *size as usize];
                image.root.read_at(*id, 0, &mut bytes).expect("a readable file");
                if bytes.len() <= 40 {
                    format!("file {:?}", String::from_utf8_lossy(&bytes))
                } else {
                    format!("file of {size} bytes {}", Digest::of(&bytes).short())
                }
            }
            EntryKind::Dir => "dir".to_owned(),
            EntryKind::Symlink(target) => format!("-> {}", String::from_utf8_lossy(target)),
            EntryKind::Char { major, minor } => format!("char {major}:{minor}"),
            EntryKind::Block { major, minor } => format!("block {major}:{minor}"),
            EntryKind::Fifo => "fifo".to_owned(),
        };
        let path = String::from_utf8_lossy(path).into_owned();
        lines.push(format!("/{path} {:o} {}:{} {}", entry.mode, entry.uid, entry.gid, what));
    });
    lines
}
