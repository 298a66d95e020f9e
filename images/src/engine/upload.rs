//! An image of the cache as the archive that an engine loads, made while it is read: nothing of it is written to a disk.
//!
//! Key type: [`Archive`]. It is what `docker save` writes in its older form, which all engines read: `manifest.json`, the
//! configuration, and a file for each layer. The configuration goes as it is, so the engine's id of the image is the
//! digest by which the cache knows it.

use std::io::{self, Read};

use serde_json::json;

use crate::digest::Digest;
use crate::error::Error;
use crate::image::Image;
use crate::store::Store;

const BLOCK: usize = 512;

/// The archive, as a stream.
pub(super) struct Archive {
    parts: std::vec::IntoIter<Part>,
    now: Part,
    length: u64,
}

/// A stretch of the archive that is still to be read.
enum Part {
    Bytes(io::Cursor<Vec<u8>>),
    /// A layer, of which this many bytes are left.
    Layer(std::fs::File, u64),
}

impl Archive {
    pub(super) fn new(store: &Store, image: &Image, name: &str) -> Result<Archive, Error> {
        let config = store.blob(&image.config_digest)?;
        let (_, layers) = crate::config::parse(&config)?;
        let config_name = format!("{}.json", image.config_digest.hex());
        let (mut parts, mut length, mut names) = (Vec::new(), 0, Vec::new());
        let mut bytes = |parts: &mut Vec<Part>, bytes: Vec<u8>| {
            length += bytes.len() as u64;
            parts.push(Part::Bytes(io::Cursor::new(bytes)));
        };
        bytes(&mut parts, member(&config_name, &config));
        let mut of_layers = 0;
        for digest in &layers {
            let file_name = format!("{}.tar", digest.hex());
            if !names.contains(&file_name) {
                let (file, size) = store.layer_archive(digest)?;
                bytes(&mut parts, head(&file_name, size));
                parts.push(Part::Layer(file, size));
                of_layers += size;
                bytes(&mut parts, vec![0; padding(size)]);
            }
            names.push(file_name);
        }
        let manifest = json!([{ "Config": config_name, "RepoTags": [name], "Layers": names }]);
        bytes(&mut parts, member("manifest.json", manifest.to_string().as_bytes()));
        bytes(&mut parts, vec![0; 2 * BLOCK]);
        let length = length + of_layers;
        Ok(Archive { parts: parts.into_iter(), now: Part::Bytes(io::Cursor::default()), length })
    }

    /// How many bytes it has.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.now {
                Part::Bytes(bytes) => bytes.read(buffer)?,
                Part::Layer(file, left) => {
                    let read = file.take(*left).read(buffer)?;
                    *left -= read as u64;
                    read
                }
            };
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.parts.next() {
                Some(part) => self.now = part,
                None => return Ok(0),
            }
        }
    }
}

/// The archive of an image for linux/amd64 without any file.
pub(super) fn empty(name: &str) -> Vec<u8> {
    // An archive that ends at once.
    let layer = vec![0; 2 * BLOCK];
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&layer).to_string()] },
    });
    let config = config.to_string().into_bytes();
    let config_name = format!("{}.json", Digest::of(&config).hex());
    let manifest = json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut out = member(&config_name, &config);
    out.extend(member("layer.tar", &layer));
    out.extend(member("manifest.json", manifest.to_string().as_bytes()));
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn padding(size: u64) -> usize {
    (BLOCK - size as usize % BLOCK) % BLOCK
}

fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut out = head(name, content.len() as u64);
    out.extend_from_slice(content);
    out.resize(out.len() + padding(content.len() as u64), 0);
    out
}

/// A header of a regular file (POSIX.1-1988, "ustar"). Names here have fewer than 100 bytes. Sizes of 8 GiB and more are written in
/// base 256, as GNU tar and Go's archive/tar read them.
fn head(name: &str, size: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    match size {
        0..=0o77_777_777_777 => put(124, format!("{size:011o}\0").as_bytes()),
        _ => {
            put(124, &[0x80]);
            put(128, &size.to_be_bytes());
        }
    }
    put(136, b"00000000000\0");
    // "The checksum is calculated [...] with the checksum field treated as all blanks."
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
