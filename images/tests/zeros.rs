//! 10 GiB of zeros in 10 MB: an error at the default limits, which takes neither memory nor disk. A process of its own, whose
//! memory is measured.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bloodhound_images::{ImageSource, Limits, Options, PullPolicy, Resolver, Store};
use common::{Blobs, Head, Scratch, config, gzip};

const GIB: u64 = 1 << 30;

/// The most memory that this process has had.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

fn disk(path: &Path) -> u64 {
    let meta = std::fs::symlink_metadata(path).expect("metadata");
    let below = if meta.is_dir() {
        std::fs::read_dir(path)
            .expect("a directory")
            .map(|entry| disk(&entry.expect("an entry").path()))
            .sum()
    } else {
        0
    };
    meta.blocks() * 512 + below
}

#[test]
fn ten_gibibytes_of_zeros() {
    let scratch = Scratch::new("zeros");
    // The header of a file of 512 MiB in base 256, then zeros: each piece is a gzip stream of its own.
    let mut block = Head::new(b'0', "zeros").block();
    block[124..136].fill(0);
    block[124] = 0x80;
    block[128..136].copy_from_slice(&(GIB / 2).to_be_bytes());
    common::checksum(&mut block);
    let mut layer = gzip(&block);
    let piece = gzip(&vec![0; 16 << 20]);
    (0..640).for_each(|_| layer.extend(&piece));
    layer.extend(gzip(&[0; 1024]));
    let archive =
        scratch.write("zeros.tar", &Blobs::of(config(&[Vec::new()]), vec![layer]).oci_archive("zeros:1"));
    let before = memory();
    let resolve = |limits: Limits| {
        let store = Store::with_limits(scratch.path("cache"), limits).expect("a cache");
        Resolver::new(store, Options::default())
            .resolve(&ImageSource::Archive(archive.clone()), PullPolicy::Missing)
    };
    let error = resolve(Limits::default()).expect_err("too large").to_string();
    assert!(error.contains("BLOODHOUND_IMAGE_MAX_RATIO"), "{error}");
    assert!(disk(&scratch.path("cache")) < 1 << 20, "the cache keeps nothing of it");
    // Whoever raises that limit meets the next one.
    let limits = Limits { ratio: u64::MAX, layer: 2 * GIB, ..Limits::default() };
    let error = resolve(limits).expect_err("too large").to_string();
    assert!(error.contains("BLOODHOUND_IMAGE_MAX_LAYER"), "{error}");
    assert!(disk(&scratch.path("cache")) < 1 << 20, "the cache keeps nothing of it");
    assert!(memory() - before < 64 << 20, "it took {} bytes of memory", memory() - before);
}
