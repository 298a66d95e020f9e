//! [`Bytes`]: an immutable slice of a shared buffer. Payloads are cut into segments, queued, duplicated and
//! cloned with the World without copying what they hold. Used by [`crate::packet`] and the socket buffers.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// A cheaply clonable, immutable run of bytes (a window onto an `Arc<[u8]>`). Compares and hashes by content.
#[derive(Clone)]
pub struct Bytes {
    data: Arc<[u8]>,
    start: u32,
    end: u32,
}

impl Bytes {
    /// Copies `data` into a fresh buffer. At most 4 GiB, which no socket call of Linux reaches (MAX_RW_COUNT).
    pub fn copy(data: &[u8]) -> Bytes {
        Bytes::from(Arc::from(data))
    }

    /// The part `range` of these bytes, sharing the buffer. Panics if it reaches past the end.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.len(), "slice outside of the bytes");
        let start = self.start + range.start as u32;
        Bytes { data: self.data.clone(), start, end: self.start + range.end as u32 }
    }

    /// Drops the first `count` bytes.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advance past the end");
        self.start += count as u32;
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(data: Arc<[u8]>) -> Bytes {
        let end = u32::try_from(data.len()).expect("a payload is below 4 GiB");
        Bytes { data, start: 0, end }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(data: Vec<u8>) -> Bytes {
        Bytes::from(Arc::<[u8]>::from(data))
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::copy(&[])
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[self.start as usize..self.end as usize]
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl std::hash::Hash for Bytes {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Length and the first bytes only: packets are printed in timelines.
impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = &self[..self.len().min(24)];
        write!(f, "{}B\"{}\"", self.len(), head.escape_ascii())?;
        if head.len() < self.len() { f.write_str("..") } else { Ok(()) }
    }
}
