//! The private pages of an address space: page number -> [`Frame`], in copy-on-write chunks, so that fork and
//! snapshots clone one `Arc`.
//!
//! A page may be mapped writable into the platform only while its frame is *exclusive*: no other clone of the world or
//! of the address space shares it. [`PageTable::make_exclusive`] is the one way to get there. It may be mapped executable
//! only while it is *code*: it has been executed ([`PageTable::set_code`]), and not been written since (`super::code`).
//!
//! Memory is accounted here in [`BLOCK`]s (`crate::memory`): a block that fork(2) has made common to several address spaces is
//! charged once, until one of them writes there and so *leaves* it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_frames::Frame;

use super::code::Surroundings;
use crate::memory::{BlockRef, Common};

const CHUNK: u64 = 64;
/// Pages of a block: what a fault in anonymous memory makes at once, and what is charged anew at once after fork(2).
pub const BLOCK: u64 = 16;
const BLOCKS: usize = (CHUNK / BLOCK) as usize;
/// A page that has become code so often is one which its program writes all the time while it runs it. It stays code, writable
/// and executable at once, unless it has bytes that a processor must not be shown.
const OFTEN: u8 = 8;

/// What is known of a page as code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Code {
    /// It may be executed.
    now: bool,
    /// How often it has become code.
    times: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    frames: [Option<Frame>; CHUNK as usize],
    used: u32,
    code: [Code; CHUNK as usize],
    /// Which blocks other address spaces have as well, since a fork. Nobody has written there since.
    common: [Option<BlockRef>; BLOCKS],
}

impl Chunk {
    /// Pages of a block that have a frame.
    fn present(&self, block: usize) -> u64 {
        let from = block * BLOCK as usize;
        self.frames[from..from + BLOCK as usize].iter().flatten().count() as u64
    }
}

/// Private pages by page number (address / 4096).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    chunks: Arc<BTreeMap<u64, Arc<Chunk>>>,
    /// Of those pages of code which may have instructions that a processor must not be shown: what lay around them. Few have.
    surroundings: Arc<BTreeMap<u64, Arc<Surroundings>>>,
    /// How many pages there are.
    len: u64,
    /// How many of them are in blocks that are not common.
    own: u64,
    /// Common blocks that were left and not yet settled (`crate::memory`).
    left: Vec<BlockRef>,
}

/// The place of a page in its chunk: of the page, and of its block.
fn inside(page: u64) -> (usize, usize) {
    ((page % CHUNK) as usize, (page % CHUNK / BLOCK) as usize)
}

impl PageTable {
    /// The frame of `page`, if it has one of its own.
    pub fn get(&self, page: u64) -> Option<&Frame> {
        self.chunks.get(&(page / CHUNK))?.frames[(page % CHUNK) as usize].as_ref()
    }

    /// Sets the frame of `page`.
    pub fn set(&mut self, page: u64, frame: Frame) {
        let chunk = Arc::make_mut(&mut self.chunks).entry(page / CHUNK).or_insert_with(|| {
            Arc::new(Chunk {
                frames: [const { None }; CHUNK as usize],
                used: 0,
                code: [Code::default(); CHUNK as usize],
                common: [None; BLOCKS],
            })
        });
        let (chunk, (at, block)) = (Arc::make_mut(chunk), inside(page));
        self.own += leave(chunk, block, &mut self.left);
        if chunk.frames[at].replace(frame).is_none() {
            chunk.used += 1;
            self.len += 1;
            self.own += 1;
        }
    }

    /// How many pages are in blocks that are not common.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Common blocks that were left since this was asked last.
    pub fn take_left(&mut self) -> Vec<BlockRef> {
        std::mem::take(&mut self.left)
    }

    /// Whether common blocks were left since [`PageTable::take_left`].
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Makes all blocks common to this table and a clone of it, which is to be made right after: the memory of a child.
    pub fn share(&mut self, common: &mut Common) {
        let blocks = |chunk: &Chunk| (0..BLOCKS).filter(|b| chunk.present(*b) > 0).collect::<Vec<_>>();
        for reference in self.chunks.values().flat_map(|chunk| chunk.common.iter().flatten()) {
            common.one_more(*reference);
        }
        let new = |chunk: &Chunk| blocks(chunk).into_iter().any(|b| chunk.common[b].is_none());
        if self.chunks.values().any(|chunk| new(chunk)) {
            let mut family = common.begin();
            for chunk in Arc::make_mut(&mut self.chunks).values_mut().filter(|chunk| new(chunk)) {
                let chunk = Arc::make_mut(chunk);
                for block in blocks(chunk) {
                    if chunk.common[block].is_none() {
                        chunk.common[block] = Some(family.add(chunk.present(block)));
                    }
                }
            }
            common.end(family);
        }
        self.own = 0;
    }

    /// Whether a page is code.
    pub fn is_code(&self, page: u64) -> bool {
        self.code(page).now
    }

    /// Whether a page is code and stays so, whatever is written.
    pub fn is_code_for_good(&self, page: u64) -> bool {
        let code = self.code(page);
        code.now && code.times >= OFTEN && !self.surroundings.contains_key(&page)
    }

    fn code(&self, page: u64) -> Code {
        self.chunks.get(&(page / CHUNK)).map_or(Code::default(), |chunk| chunk.code[(page % CHUNK) as usize])
    }

    fn change_code(&mut self, page: u64, to: Code) {
        if let Some(chunk) = Arc::make_mut(&mut self.chunks).get_mut(&(page / CHUNK)) {
            Arc::make_mut(chunk).code[(page % CHUNK) as usize] = to;
        }
    }

    /// Makes a page code, if it has a frame. `around`: what lies around it, if it may have instructions that a processor must
    /// not be shown.
    pub fn set_code(&mut self, page: u64, around: Option<Arc<Surroundings>>) {
        if self.get(page).is_none() || self.is_code(page) {
            return;
        }
        let times = self.code(page).times.saturating_add(1);
        self.change_code(page, Code { now: true, times });
        self.keep_surroundings(page, around);
    }

    /// What lay around a page of code when it became code, if that was kept.
    pub fn surroundings(&self, page: u64) -> Option<&Arc<Surroundings>> {
        self.surroundings.get(&page).filter(|_| self.is_code(page))
    }

    fn keep_surroundings(&mut self, page: u64, around: Option<Arc<Surroundings>>) {
        match around {
            Some(around) => {
                Arc::make_mut(&mut self.surroundings).insert(page, around);
            }
            None if self.surroundings.contains_key(&page) => {
                Arc::make_mut(&mut self.surroundings).remove(&page);
            }
            None => {}
        }
    }

    /// A page is about to be written: it is no code any more, unless it is for good. Whether that changed anything.
    pub fn write_code(&mut self, page: u64) -> bool {
        let code = self.code(page);
        let changes = code.now && !self.is_code_for_good(page);
        if changes {
            self.change_code(page, Code { now: false, ..code });
            self.keep_surroundings(page, None);
        }
        changes
    }

    /// The pages of `first..end` may not be executed any more.
    pub fn forget_code(&mut self, first: u64, end: u64) {
        let known = |page: &u64| self.code(*page).times > 0;
        let pages: Vec<u64> = self.range(first, end).map(|(page, _)| page).filter(known).collect();
        for page in pages {
            self.change_code(page, Code::default());
            self.keep_surroundings(page, None);
        }
    }

    /// The exclusive frame of a page that has one, and whether it had to be copied for that.
    pub fn make_exclusive(&mut self, page: u64) -> Option<(&mut Frame, bool)> {
        if !self.chunks.contains_key(&(page / CHUNK)) {
            return None;
        }
        let chunk = Arc::make_mut(Arc::make_mut(&mut self.chunks).get_mut(&(page / CHUNK))?);
        let (at, block) = inside(page);
        chunk.frames[at].as_ref()?;
        self.own += leave(chunk, block, &mut self.left);
        let frame = chunk.frames[at].as_mut()?;
        let copied = !frame.is_unique();
        frame.make_unique();
        Some((frame, copied))
    }

    /// Whether [`PageTable::make_exclusive`] would change nothing. Not for a page in a common block, though its frame may be nobody
    /// else's: the first store there is what charges the block, so it has to fault on every platform.
    pub fn is_exclusive(&mut self, page: u64) -> bool {
        let Some(chunks) = Arc::get_mut(&mut self.chunks) else { return false };
        let Some(chunk) = chunks.get_mut(&(page / CHUNK)).and_then(Arc::get_mut) else { return false };
        let (at, block) = inside(page);
        chunk.common[block].is_none() && chunk.frames[at].as_ref().is_some_and(Frame::is_unique)
    }

    /// Makes all pages of `first..end`, a part of one block, that have a frame exclusive; the copies are neighbours, as far as can
    /// be had.
    pub fn make_run_exclusive(&mut self, first: u64, end: u64) {
        debug_assert!(first < end && first / BLOCK == (end - 1) / BLOCK);
        if (first..end).all(|p| self.get(p).is_none() || self.is_exclusive(p)) {
            return;
        }
        let Some(chunk) = Arc::make_mut(&mut self.chunks).get_mut(&(first / CHUNK)) else { return };
        let (chunk, (from, block)) = (Arc::make_mut(chunk), inside(first));
        self.own += leave(chunk, block, &mut self.left);
        let frames = &mut chunk.frames[from..from + (end - first) as usize];
        let shared = |f: &&mut Frame| !f.is_unique();
        let shared: Vec<&mut Frame> = frames.iter_mut().flatten().filter(shared).collect();
        let copies = Frame::copied_run(shared.iter().map(|f| f.bytes()));
        for (frame, copy) in shared.into_iter().zip(copies) {
            *frame = copy;
        }
    }

    /// Drops all pages in `first..end`.
    pub fn remove_range(&mut self, first: u64, end: u64) {
        if first >= end || self.chunks.range(first / CHUNK..=(end - 1) / CHUNK).next().is_none() {
            return;
        }
        if self.surroundings.range(first..end).next().is_some() {
            Arc::make_mut(&mut self.surroundings).retain(|page, _| !(first..end).contains(page));
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let keys: Vec<u64> = chunks.range(first / CHUNK..=(end - 1) / CHUNK).map(|(k, _)| *k).collect();
        for key in keys {
            let base = key * CHUNK;
            if first <= base && base + CHUNK <= end {
                let Some(chunk) = chunks.remove(&key) else { continue };
                self.len -= u64::from(chunk.used);
                for block in 0..BLOCKS {
                    match chunk.common[block] {
                        Some(reference) => self.left.push(reference),
                        None => self.own -= chunk.present(block),
                    }
                }
                continue;
            }
            let Some(arc) = chunks.get_mut(&key) else { continue };
            let chunk = Arc::make_mut(arc);
            for page in first.max(base)..end.min(base + CHUNK) {
                let (at, block) = inside(page);
                if chunk.frames[at].take().is_some() {
                    chunk.used -= 1;
                    chunk.code[at] = Code::default();
                    self.len -= 1;
                    // The others may have the page still: a common block stays as it is until nothing is left of it.
                    match chunk.common[block] {
                        None => self.own -= 1,
                        Some(reference) if chunk.present(block) == 0 => {
                            chunk.common[block] = None;
                            self.left.push(reference);
                        }
                        Some(_) => {}
                    }
                }
            }
            if chunk.used == 0 {
                chunks.remove(&key);
            }
        }
    }

    /// Moves the pages of `from..from + count` to `to..` (mremap).
    pub fn move_range(&mut self, from: u64, count: u64, to: u64) {
        type Moved = (u64, Frame, Code, Option<Arc<Surroundings>>);
        let moved: Vec<Moved> = self
            .range(from, from + count)
            .map(|(page, frame)| {
                (page - from + to, frame.clone(), self.code(page), self.surroundings.get(&page).cloned())
            })
            .collect();
        self.remove_range(from, from + count);
        for (page, frame, code, around) in moved {
            self.set(page, frame);
            if code.times > 0 {
                self.change_code(page, code);
                self.keep_surroundings(page, around);
            }
        }
    }

    /// All pages in `first..end` with a frame, in order.
    pub fn range(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, &Frame)> {
        let last_chunk = if end == 0 { 0 } else { (end - 1) / CHUNK };
        self.chunks.range(first / CHUNK..=last_chunk.max(first / CHUNK)).flat_map(move |(key, chunk)| {
            let base = key * CHUNK;
            chunk.frames.iter().enumerate().filter_map(move |(i, f)| {
                let page = base + i as u64;
                if page >= first && page < end { f.as_ref().map(|f| (page, f)) } else { None }
            })
        })
    }

    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// A block of a chunk is about to differ from what others have of it. How many pages are own ones because of that.
fn leave(chunk: &mut Chunk, block: usize, left: &mut Vec<BlockRef>) -> u64 {
    let Some(reference) = chunk.common[block].take() else { return 0 };
    left.push(reference);
    chunk.present(block)
}
