//! The private pages of an address space: page number -> [`Frame`], in copy-on-write chunks, so that fork and
//! snapshots clone one `Arc`.
//!
//! A page may be mapped writable into the platform only while its frame is *exclusive*: no other clone of the world or
//! of the address space shares it. [`PageTable::make_exclusive`] is the one way to get there. It may be mapped executable
//! only while it is *code*: it has been executed ([`PageTable::set_code`]), and not been written since (`super::code`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_frames::Frame;

use super::code::Surroundings;

const CHUNK: u64 = 64;
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
}

/// Private pages by page number (address / 4096).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    chunks: Arc<BTreeMap<u64, Arc<Chunk>>>,
    /// Of those pages of code which may have instructions that a processor must not be shown: what lay around them. Few have.
    surroundings: Arc<BTreeMap<u64, Arc<Surroundings>>>,
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
            })
        });
        let chunk = Arc::make_mut(chunk);
        if chunk.frames[(page % CHUNK) as usize].replace(frame).is_none() {
            chunk.used += 1;
        }
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
        let chunk = Arc::make_mut(&mut self.chunks).get_mut(&(page / CHUNK))?;
        let frame = Arc::make_mut(chunk).frames[(page % CHUNK) as usize].as_mut()?;
        let copied = !frame.is_unique();
        frame.make_unique();
        Some((frame, copied))
    }

    /// Whether [`PageTable::make_exclusive`] would change nothing.
    pub fn is_exclusive(&mut self, page: u64) -> bool {
        let Some(chunks) = Arc::get_mut(&mut self.chunks) else { return false };
        let Some(chunk) = chunks.get_mut(&(page / CHUNK)).and_then(Arc::get_mut) else { return false };
        chunk.frames[(page % CHUNK) as usize].as_ref().is_some_and(Frame::is_unique)
    }

    /// Makes all pages of `first..end` that have a frame exclusive; the copies are neighbours, as far as can be had.
    pub fn make_run_exclusive(&mut self, first: u64, end: u64) {
        if (first..end).all(|p| self.get(p).is_none() || self.is_exclusive(p)) {
            return;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        for key in first / CHUNK..=(end - 1) / CHUNK {
            let Some(chunk) = chunks.get_mut(&key) else { continue };
            let chunk = Arc::make_mut(chunk);
            let inside = |page: u64| (page.clamp(key * CHUNK, (key + 1) * CHUNK) - key * CHUNK) as usize;
            let frames = &mut chunk.frames[inside(first)..inside(end)];
            let shared = |f: &&mut Frame| !f.is_unique();
            let shared: Vec<&mut Frame> = frames.iter_mut().flatten().filter(shared).collect();
            let copies = Frame::copied_run(shared.iter().map(|f| f.bytes()));
            for (frame, copy) in shared.into_iter().zip(copies) {
                *frame = copy;
            }
        }
    }

    /// Drops all pages in `first..end`.
    pub fn remove_range(&mut self, first: u64, end: u64) {
        let hit = |k: &u64| *k >= first / CHUNK && *k <= (end.saturating_sub(1)) / CHUNK;
        if first >= end || !self.chunks.keys().any(hit) {
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
                chunks.remove(&key);
                continue;
            }
            let Some(arc) = chunks.get_mut(&key) else { continue };
            let chunk = Arc::make_mut(arc);
            for page in first.max(base)..end.min(base + CHUNK) {
                if chunk.frames[(page - base) as usize].take().is_some() {
                    chunk.used -= 1;
                    chunk.code[(page - base) as usize] = Code::default();
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
        self.chunks.values().map(|c| u64::from(c.used)).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}
