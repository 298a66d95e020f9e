//! A digest of everything that went into a run, to be told beside that of the run: two runs with equal inputs, seeds and
//! versions have equal digests, so who compares two runs compares this first.

use bloodhound_sim::Digest;
use bloodhound_vfs::host::HostBase;

/// Of the host files that were seen, and of other parts.
pub fn digest(base: &HostBase, parts: &[&[u8]]) -> Digest {
    let mut digest = Digest::default();
    for part in parts {
        digest.bytes(part);
    }
    for input in base.inputs() {
        digest.word(u64::from(input.tree.0));
        digest.bytes(&input.path);
        digest.word(input.kind as u64);
        digest.word(input.size);
        digest.bytes(&input.sha256);
    }
    digest
}
