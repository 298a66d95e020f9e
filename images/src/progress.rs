//! What the resolver tells while it works, for progress bars.

use crate::digest::Digest;

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A blob begins to come, of which so many bytes are there already.
    Begin {
        /// The blob.
        blob: Digest,
        /// All of its bytes, if known.
        size: Option<u64>,
        /// Bytes that an earlier try has left.
        have: u64,
    },
    /// More bytes of it came.
    Advance {
        /// The blob.
        blob: Digest,
        /// How many.
        bytes: u64,
    },
    /// It is in the cache.
    Done {
        /// The blob.
        blob: Digest,
    },
    /// Another process is fetching the same blob, which is waited for.
    Waiting {
        /// The blob.
        blob: Digest,
    },
    /// Something that the user should know: a registry is tried again, a mirror does not answer.
    Note(String),
    /// A password or token has been read, which must not be shown, not even where a server's answer repeats it.
    Credential(Credential),
}

/// A password or token.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub String);

impl std::fmt::Debug for Credential {
    /// Without the text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

/// Takes what happens, from several threads.
pub trait Progress: Send + Sync {
    /// Something happened.
    fn event(&self, event: Event);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _: Event) {}
}
