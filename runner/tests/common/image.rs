//! Container images made by tests: layers as tars, the archive that `docker save` writes, and stacks that run from such images.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{Ran, command_on, finish, lines, platform, put, scratch};

/// A layer under construction: an uncompressed tar.
#[derive(Default)]
pub struct Layer(Vec<u8>);

impl Layer {
    pub fn new() -> Layer {
        Layer::default()
    }

    pub fn dir(self, path: &str, mode: u32) -> Layer {
        self.entry(&format!("{path}/"), b'5', mode, (0, 0), "", b"")
    }

    pub fn file(self, path: &str, mode: u32, bytes: impl AsRef<[u8]>) -> Layer {
        self.entry(path, b'0', mode, (0, 0), "", bytes.as_ref())
    }

    pub fn owned(self, path: &str, mode: u32, owner: (u32, u32), bytes: impl AsRef<[u8]>) -> Layer {
        let kind = if path.ends_with('/') { b'5' } else { b'0' };
        self.entry(path, kind, mode, owner, "", bytes.as_ref())
    }

    pub fn symlink(self, path: &str, target: &str) -> Layer {
        self.entry(path, b'2', 0o777, (0, 0), target, b"")
    }

    /// Another name of `first`.
    pub fn hard_link(self, path: &str, first: &str) -> Layer {
        self.entry(path, b'1', 0o644, (0, 0), first, b"")
    }

    /// busybox, with a link for each of these names, and what it needs: it is statically linked.
    pub fn busybox(self, names: &[&str]) -> Layer {
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| std::fs::read(path).ok());
        let busybox = busybox.expect("busybox is installed (busybox-static)");
        let mut layer = self.dir("bin", 0o755).dir("tmp", 0o1777).file("bin/busybox", 0o755, busybox);
        for name in names {
            layer = layer.symlink(&format!("bin/{name}"), "busybox");
        }
        layer
            .file("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n")
            .file("etc/group", 0o644, "root:x:0:\napp:x:1000:\nlogs:x:4:app\n")
    }

    fn entry(
        mut self,
        path: &str,
        kind: u8,
        mode: u32,
        owner: (u32, u32),
        link: &str,
        bytes: &[u8],
    ) -> Layer {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, path);
        put(100, &format!("{mode:07o}"));
        put(108, &format!("{:07o}", owner.0));
        put(116, &format!("{:07o}", owner.1));
        put(124, &format!("{:011o}", bytes.len()));
        put(136, "14720000000");
        put(148, "        ");
        put(157, link);
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn tar(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

/// Writes an image as `docker save` does. `config` is the member `config` of its configuration.
pub fn save(archive: &Path, tag: &str, config: &Value, layers: Vec<Layer>) -> PathBuf {
    let layers: Vec<Vec<u8>> = layers.into_iter().map(Layer::tar).collect();
    let ids: Vec<String> = layers.iter().map(|tar| format!("sha256:{}", hex(tar))).collect();
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": ids},
    });
    let config = config.to_string();
    let name = format!("{}.json", hex(config.as_bytes()));
    let files: Vec<String> = ids.iter().map(|id| format!("{}/layer.tar", &id["sha256:".len()..])).collect();
    let manifest = json!([{"Config": name, "RepoTags": [tag], "Layers": files}]).to_string();
    let mut outer = Layer::new().file(&name, 0o644, config).file("manifest.json", 0o644, manifest);
    for (file, tar) in files.iter().zip(&layers) {
        outer = outer.file(file, 0o644, tar);
    }
    std::fs::write(archive, outer.tar()).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
    archive.to_owned()
}

/// A directory for a test with a cache of images of its own.
pub struct Stack(pub PathBuf);

impl Stack {
    /// Empty, but for a configuration that asks for little.
    #[track_caller]
    pub fn new(name: &str) -> Stack {
        let dir = scratch(&format!("images-{name}"));
        let stack = Stack(dir);
        stack.file("bloodhound.yaml", "simulation: {max_time: 20s}\nproperties:\n  - {name: no-crash, kind: safety, check: {type: no-crash}}\n");
        stack
    }

    /// Writes a file.
    pub fn file(&self, name: &str, text: &str) {
        put(&self.0, name, text);
    }

    /// Adds an image to the cache.
    pub fn image(&self, tag: &str, config: Value, layers: Vec<Layer>) {
        let archive = save(&self.0.join("image.tar"), tag, &config, layers);
        let loaded = self.command(&["image", "load", &archive.to_string_lossy()]);
        assert_eq!(loaded.code, Some(0), "{}", loaded.stderr);
    }

    /// The command in the directory.
    pub fn command(&self, args: &[&str]) -> Ran {
        let mut command = command_on(platform().as_deref(), &self.0, args);
        command.env("BLOODHOUND_CACHE", self.0.join("cache"));
        finish(&mut command, b"")
    }

    /// What a service prints in a run, which must be the same in two runs.
    pub fn output(&self, service: &str) -> Vec<String> {
        let once = self.command(&["run", "--seed", "3"]);
        let again = self.command(&["run", "--seed", "3"]);
        assert_eq!(once.stdout, again.stdout, "two runs of one seed");
        let lines: Vec<String> = lines(&once, service).into_iter().map(str::to_owned).collect();
        assert!(!lines.is_empty(), "{service} printed nothing\n{}\n{}", once.stdout, once.stderr);
        lines
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
