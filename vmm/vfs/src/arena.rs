//! The inode table: numbered slots in copy-on-write chunks.
//!
//! Numbers grow and are never used again, so a stale [`Ino`] can never name another file. Cloning is one
//! reference count; the first change after it copies the chunk index, one chunk of handles and one inode.

use std::sync::Arc;

use crate::inode::Inode;
use crate::types::Ino;

const CHUNK: usize = 64;

type Chunk = [Option<Arc<Inode>>; CHUNK];

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arena {
    chunks: Arc<Vec<Option<Arc<Chunk>>>>,
    live: u64,
}

impl Arena {
    /// The inode, if it exists.
    pub(crate) fn get(&self, ino: Ino) -> Option<&Arc<Inode>> {
        let (chunk, slot) = place(ino)?;
        self.chunks.get(chunk)?.as_ref()?[slot].as_ref()
    }

    /// The inode for a change; unshares it.
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let (chunk, slot) = place(ino)?;
        self.get(ino)?;
        let chunk = Arc::make_mut(&mut self.chunks).get_mut(chunk)?.as_mut()?;
        Arc::make_mut(chunk)[slot].as_mut().map(Arc::make_mut)
    }

    /// Puts `inode` at `ino`.
    pub(crate) fn put(&mut self, ino: Ino, inode: Arc<Inode>) {
        let Some((chunk, slot)) = place(ino) else { return };
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.len() <= chunk {
            chunks.resize(chunk + 1, None);
        }
        let chunk = chunks[chunk].get_or_insert_with(|| Arc::new([const { None }; CHUNK]));
        if Arc::make_mut(chunk)[slot].replace(inode).is_none() {
            self.live += 1;
        }
    }

    /// Removes the inode.
    pub(crate) fn remove(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        let (number, slot) = place(ino)?;
        self.get(ino)?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.get_mut(number)?.as_mut()?);
        let removed = chunk[slot].take();
        if chunk.iter().all(Option::is_none) {
            chunks[number] = None;
        }
        self.live -= u64::from(removed.is_some());
        removed
    }

    /// Number of inodes.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// All inodes in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, &Arc<Inode>)> {
        self.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            let slots = chunk.iter().flat_map(|chunk| chunk.iter().enumerate());
            slots.filter_map(move |(i, inode)| Some((Ino((number * CHUNK + i) as u64), inode.as_ref()?)))
        })
    }
}

fn place(ino: Ino) -> Option<(usize, usize)> {
    let index = usize::try_from(ino.0).ok()?;
    Some((index / CHUNK, index % CHUNK))
}
