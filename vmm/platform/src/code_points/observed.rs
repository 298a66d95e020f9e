//! The observing points of files ([`FilePoints`]) and the frames that have them ([`Observed`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bloodhound_frames::{FRAME_SIZE, Frame};

/// `int3`, the instruction of one byte that traps.
const INT3: u8 = 0xcc;

/// Bytes before and behind a point by which a copy of code may be known.
pub(super) const REACH: usize = 16;
/// What is known of them: a copy may begin or end at the point, so on one side may be something else, or nothing.
pub(super) type Around = [Option<u8>; 2 * REACH + 1];
/// Bytes one after another that are alike, the point's among them, and how many of them are not `int3` at least: of other points that
/// were copied as well, the bytes are not known.
const ALIKE: usize = REACH + 1;
const LEAST: usize = 8;

/// What a worker is doing, so that a point can say by what it was reached first. Written by the worker's own thread only.
#[derive(Debug, Default)]
pub struct Mark {
    /// The seed plus 1; 0 for the boot of the stack.
    seed: AtomicU64,
    /// The number of the fault in the seed's plan plus 1 that was the last to begin and has not ended; 0 for none.
    fault: AtomicU64,
}

impl Mark {
    /// The stack is being booted.
    pub fn boot(&self) {
        self.seed.store(0, Ordering::Relaxed);
        self.fault.store(0, Ordering::Relaxed);
    }

    /// A seed begins.
    pub fn seed(&self, seed: u64) {
        self.seed.store(seed.wrapping_add(1), Ordering::Relaxed);
        self.fault.store(0, Ordering::Relaxed);
    }

    /// An entry of the seed's plan of faults begins.
    pub fn fault_begins(&self, entry: usize) {
        self.fault.store(entry as u64 + 1, Ordering::Relaxed);
    }

    /// No fault is active any more.
    pub fn healed(&self) {
        self.fault.store(0, Ordering::Relaxed);
    }

    /// An entry of the plan ends.
    pub fn fault_ends(&self, entry: usize) {
        // Another one that began since then stays.
        let _other = self.fault.compare_exchange(entry as u64 + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// By what a point was reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached {
    /// The seed; `None` for the boot of the stack.
    pub seed: Option<u64>,
    /// The number of a fault in the seed's plan that was active.
    pub fault: Option<usize>,
}

/// The observing points of one file and what reached them. Points are the same for all who map the file.
#[derive(Debug)]
pub struct FilePoints {
    /// Offsets in the file, rising.
    offsets: Box<[u64]>,
    points: Box<[State]>,
}

#[derive(Debug, Default)]
struct State {
    reached: AtomicBool,
    /// As in [`Mark`].
    seed: AtomicU64,
    fault: AtomicU64,
    /// It cannot be observed.
    hidden: AtomicBool,
}

impl FilePoints {
    /// Points at these offsets in a file, in any order. Each has to be the first byte of an instruction, for certain.
    #[must_use]
    pub fn new(mut offsets: Vec<u64>) -> FilePoints {
        offsets.sort_unstable();
        offsets.dedup();
        let points = offsets.iter().map(|_| State::default()).collect();
        FilePoints { offsets: offsets.into(), points }
    }

    /// The offsets, rising.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// By what the point with this number was reached first. `None`: it was not.
    #[must_use]
    pub fn reached(&self, number: usize) -> Option<Reached> {
        let state = &self.points[number];
        state.reached.load(Ordering::Acquire).then(|| Reached {
            seed: state.seed.load(Ordering::Relaxed).checked_sub(1),
            fault: state.fault.load(Ordering::Relaxed).checked_sub(1).map(|fault| fault as usize),
        })
    }

    /// Whether nothing can be said of a point: the instruction is one that traps anyway (`cpuid`, `rdtsc`, `int3`).
    #[must_use]
    pub fn is_hidden(&self, number: usize) -> bool {
        self.points[number].hidden.load(Ordering::Relaxed)
    }

    fn reach(&self, number: usize, mark: &Mark) {
        let state = &self.points[number];
        if state.reached.load(Ordering::Relaxed) {
            return;
        }
        state.seed.store(mark.seed.load(Ordering::Relaxed), Ordering::Relaxed);
        state.fault.store(mark.fault.load(Ordering::Relaxed), Ordering::Relaxed);
        state.reached.store(true, Ordering::Release);
    }

    /// The numbers of the points in a page.
    fn in_page(&self, page: u64) -> std::ops::Range<usize> {
        let begin = page * FRAME_SIZE as u64;
        let first = self.offsets.partition_point(|at| *at < begin);
        first..self.offsets.partition_point(|at| *at < begin + FRAME_SIZE as u64)
    }
}

/// A page of a file with points.
#[derive(Clone, Copy, Debug)]
pub struct PageOfFile<'a> {
    /// Names the file: equal for equal contents.
    pub file: [u8; 32],
    /// Its points.
    pub points: &'a Arc<FilePoints>,
    /// The number of the page in the file.
    pub index: u64,
    /// What stands there.
    pub original: &'a Frame,
    /// What is shown in its place if it has no points.
    pub shown: &'a Frame,
}

/// A frame that has points, or had them.
#[derive(Debug)]
struct Page {
    frame: Frame,
    file: Arc<FilePoints>,
    /// Offset in the frame, number of the point and the byte that belongs there, by rising offset.
    points: Box<[(u16, usize, u8)]>,
}

impl Page {
    /// The number of the point at an offset in the arena and the byte that belongs there.
    fn point(&self, offset: u64) -> Option<(usize, u8)> {
        let at = (offset % FRAME_SIZE as u64) as u16;
        let found = self.points.binary_search_by_key(&at, |(at, ..)| *at).ok()?;
        Some((self.points[found].1, self.points[found].2))
    }
}

/// A page by the file's digest and its number in the file.
type Content = ([u8; 32], u64);

/// The frames with observing points that all worlds of a campaign are shown. They are made once and kept.
#[derive(Debug, Default)]
pub struct Observed {
    /// By file and number of the page; `None` for a page without points.
    by_content: Mutex<BTreeMap<Content, Option<Frame>>>,
    /// By the frame's offset in the arena.
    by_frame: RwLock<BTreeMap<u64, Page>>,
}

impl Observed {
    /// The frame that is to be shown in the place of a page of a file; `None` if the page has no points.
    #[must_use]
    pub fn frame(&self, page: PageOfFile<'_>) -> Option<Frame> {
        // No code that could panic runs while the locks are held but allocation, so what they guard is whole.
        let mut by_content = self.by_content.lock().unwrap_or_else(PoisonError::into_inner);
        by_content.entry((page.file, page.index)).or_insert_with(|| self.make(page)).clone()
    }

    fn make(&self, page: PageOfFile<'_>) -> Option<Frame> {
        let begin = page.index * FRAME_SIZE as u64;
        let (original, shown) = (page.original.bytes(), page.shown.bytes());
        let mut points = Vec::new();
        for number in page.points.in_page(page.index) {
            let at = (page.points.offsets[number] - begin) as usize;
            if shown[at] != original[at] || original[at] == INT3 {
                page.points.points[number].hidden.store(true, Ordering::Relaxed);
                continue;
            }
            points.push((at as u16, number, original[at]));
        }
        if points.is_empty() {
            return None;
        }
        let mut frame = Frame::from_bytes(shown);
        let bytes = frame.make_unique();
        for (at, number, _) in &points {
            // A point that was reached before the page was shown here: by another campaign's frames, if at all.
            if page.points.reached(*number).is_none() {
                bytes[usize::from(*at)] = INT3;
            }
        }
        let mut by_frame = self.by_frame.write().unwrap_or_else(PoisonError::into_inner);
        let page = Page { frame: frame.clone(), file: page.points.clone(), points: points.into() };
        by_frame.insert(frame.offset(), page);
        Some(frame)
    }

    /// The byte that belongs to an offset in the arena where an observing point stands or has stood.
    #[must_use]
    pub fn byte_at(&self, offset: u64) -> Option<u8> {
        let by_frame = self.by_frame.read().unwrap_or_else(PoisonError::into_inner);
        by_frame.get(&(offset - offset % FRAME_SIZE as u64))?.point(offset).map(|(_, byte)| byte)
    }

    /// A task is about to execute the instruction at an offset in the arena. If a point stands there, or has stood there until another
    /// worker came by a moment ago, it counts as reached, and the instruction is there from now on: true.
    pub fn reach(&self, offset: u64, mark: &Mark) -> bool {
        let at = offset % FRAME_SIZE as u64;
        let by_frame = self.by_frame.read().unwrap_or_else(PoisonError::into_inner);
        let Some(page) = by_frame.get(&(offset - at)) else { return false };
        let Some((number, byte)) = page.point(offset) else { return false };
        page.file.reach(number, mark);
        page.frame.replace_byte(at as usize, byte);
        true
    }

    /// The byte that belongs to the place of an `int3` which is in the middle of `around`, if a program has copied that `int3`
    /// together with the code before it, behind it or around it from a frame with points, as V8 does with its built-in functions.
    /// `None` if nothing like this is known, or if several places are alike but for this byte.
    #[must_use]
    pub(super) fn copied(&self, around: &Around) -> Option<u8> {
        let by_frame = self.by_frame.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for page in by_frame.values() {
            let mut bytes = [0; FRAME_SIZE];
            page.frame.read(0, &mut bytes);
            for (at, _, byte) in &page.points {
                bytes[usize::from(*at)] = *byte;
            }
            for (_, _, byte) in
                page.points.iter().filter(|(at, ..)| is_alike(&bytes, usize::from(*at), around))
            {
                if found.is_some_and(|other| other != *byte) {
                    return None;
                }
                found = Some(*byte);
            }
        }
        found
    }

    /// Whether an offset in the arena lies in a frame with points: an `int3` that is no point there is the program's own.
    pub(super) fn has_frame(&self, offset: u64) -> bool {
        let by_frame = self.by_frame.read().unwrap_or_else(PoisonError::into_inner);
        by_frame.contains_key(&(offset - offset % FRAME_SIZE as u64))
    }
}

/// Whether the code at a place of a page is that around a copy of it: before it, behind it, or half of each.
fn is_alike(page: &[u8; FRAME_SIZE], at: usize, around: &Around) -> bool {
    [0, REACH / 2, REACH].into_iter().any(|skipped| {
        let Some(from) = (at + skipped).checked_sub(REACH) else { return false };
        let Some(there) = page.get(from..from + ALIKE) else { return false };
        let pairs = || there.iter().zip(&around[skipped..]);
        pairs().all(|(there, here)| here.is_some_and(|here| here == *there || here == INT3))
            && pairs().filter(|(_, here)| **here != Some(INT3)).count() >= LEAST
    })
}
