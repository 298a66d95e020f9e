//! The bytes of a file: a sparse map from page index to [`Frame`], copied on write in chunks.
//!
//! Key type: [`PageMap`]. A clone is one reference count; the first write after it copies the chunk index, one
//! chunk of handles and one page. Used by inodes, by host file images and by the durable state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_frames::Frame;

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Pages in a chunk.
pub(crate) const CHUNK: u64 = 64;

/// A chunk's frames.
pub(crate) type Chunk = [Option<Frame>; CHUNK as usize];

/// Sparse pages of a file. An absent page reads as zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageMap {
    chunks: Arc<BTreeMap<u64, Arc<Chunk>>>,
    present: u64,
    reserved: Reserved,
}

/// Pages that fallocate(2) has given a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reserved {
    /// From the first of each run to behind its last. Runs do not overlap.
    runs: Arc<BTreeMap<u64, u64>>,
    /// How many of them are not present.
    absent: u64,
}

/// Called with the index of each page whose frame was replaced, added or dropped, so that the kernel can remap.
pub type Moved<'a> = &'a mut dyn FnMut(u64);

/// Fills `out` from byte `offset` of a file with these pages; absent pages give zeros.
pub(crate) fn read_pages<'a>(page: impl Fn(u64) -> Option<&'a Frame>, offset: u64, out: &mut [u8]) {
    let mut done = 0;
    while done < out.len() {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let len = (PAGE as usize - within).min(out.len() - done);
        let target = &mut out[done..done + len];
        match page(at / PAGE) {
            Some(frame) => frame.read(within, target),
            None => target.fill(0),
        }
        done += len;
    }
}

impl PageMap {
    /// A map of these chunks by number.
    pub(crate) fn from_chunks(chunks: impl Iterator<Item = (u64, Arc<Chunk>)>) -> PageMap {
        let chunks: BTreeMap<u64, Arc<Chunk>> =
            chunks.filter(|(_, chunk)| chunk.iter().any(Option::is_some)).collect();
        let present = chunks.values().map(|chunk| chunk.iter().flatten().count() as u64).sum();
        PageMap { chunks: Arc::new(chunks), present, reserved: Reserved::default() }
    }

    /// Number of pages present.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Number of pages that the file takes on its disk: present or reserved.
    pub fn taken(&self) -> u64 {
        self.present + self.reserved.absent
    }

    /// Reserves the pages `first..end` (fallocate(2)): they are holes and read as zeros, but have their place on the disk.
    pub fn reserve(&mut self, first: u64, end: u64) {
        self.reserved.absent += self.missing(first * PAGE, (end - first) * PAGE);
        // With those that it continues, so that a file that grows by reservations has one run.
        let near = self.runs_in(first.saturating_sub(1), end + 1);
        let from = near.first().map_or(first, |run| run.0.min(first));
        let to = near.last().map_or(end, |run| run.1.max(end));
        let runs = Arc::make_mut(&mut self.reserved.runs);
        for (at, _) in near {
            runs.remove(&at);
        }
        runs.insert(from, to);
    }

    /// Makes those of the pages `first..end` zeroes that are reserved and absent: data, no holes.
    pub fn fill_reserved(&mut self, first: u64, end: u64, moved: Moved) {
        for (from, to) in self.runs_in(first, end) {
            for index in from.max(first)..to.min(end) {
                if self.get(index).is_none() {
                    self.set(index, Frame::shared_zero());
                    moved(index);
                }
            }
        }
    }

    /// Gives back what is reserved of the pages `first..end`.
    pub fn release(&mut self, first: u64, end: u64) {
        let overlapping = self.runs_in(first, end);
        if overlapping.is_empty() {
            return;
        }
        let within = overlapping.iter().map(|(from, to)| (*from.max(&first), *to.min(&end)));
        let gone: u64 = within.map(|(from, to)| to - from - self.count_present(from, to - 1)).sum();
        self.reserved.absent -= gone;
        let runs = Arc::make_mut(&mut self.reserved.runs);
        for (from, to) in overlapping {
            runs.remove(&from);
            let rest = [(from, to.min(first)), (from.max(end), to)];
            runs.extend(rest.into_iter().filter(|(from, to)| from < to));
        }
    }

    /// The runs of reserved pages that have some of `first..end`.
    fn runs_in(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.reserved.runs.range(..end).rev().map(|(from, to)| (*from, *to));
        let mut found: Vec<_> = before.take_while(|(_, to)| *to > first).collect();
        found.reverse();
        found
    }

    /// A page that was absent becomes present.
    fn note_present(&mut self, index: u64) {
        self.present += 1;
        let reserved = !self.reserved.runs.is_empty() && !self.runs_in(index, index + 1).is_empty();
        self.reserved.absent -= u64::from(reserved);
    }

    /// The frame of page `index`, if there is one.
    pub fn get(&self, index: u64) -> Option<&Frame> {
        self.chunks.get(&(index / CHUNK))?[(index % CHUNK) as usize].as_ref()
    }

    /// Puts `frame` at page `index`.
    pub fn set(&mut self, index: u64, frame: Frame) {
        if self.slot(index).replace(frame).is_none() {
            self.note_present(index);
        }
    }

    /// The frame of page `index` for writing: made present and unshared. `moved` hears of a new frame.
    pub fn unique(&mut self, index: u64, moved: Moved) -> &mut Frame {
        let fresh = self.get(index).is_none();
        if fresh {
            self.note_present(index);
        }
        let slot = self.slot(index);
        let frame = slot.get_or_insert_with(Frame::zeroed);
        let shared = !frame.is_unique();
        if shared {
            frame.make_unique();
        }
        if fresh || shared {
            moved(index);
        }
        frame
    }

    /// Fills `out` from byte `offset`; absent pages give zeros. The caller bounds it by the file size.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        read_pages(|index| self.get(index), offset, out);
    }

    /// Writes `data` at byte `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8], moved: Moved) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let len = (PAGE as usize - within).min(data.len() - done);
            let part = &data[done..done + len];
            done += len;
            match <&[u8; PAGE as usize]>::try_from(part) {
                // A whole page needs no copy of what it replaces.
                Ok(whole) if !self.get(index).is_some_and(Frame::is_unique) => {
                    self.set(index, Frame::from_bytes(whole));
                    moved(index);
                }
                _ => self.unique(index, moved).make_unique()[within..within + len].copy_from_slice(part),
            }
        }
    }

    /// How many of the pages that `offset..offset + len` touches are neither present nor reserved.
    pub fn missing(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
        let runs = self.runs_in(first, last + 1).into_iter();
        let reserved = runs.map(|(from, to)| (from.max(first), to.min(last + 1)));
        let absent: u64 = reserved.map(|(from, to)| to - from - self.count_present(from, to - 1)).sum();
        (last - first + 1) - self.count_present(first, last) - absent
    }

    fn count_present(&self, first: u64, last: u64) -> u64 {
        let mut count = 0;
        for (number, chunk) in self.chunks.range(first / CHUNK..=last / CHUNK) {
            let start = number * CHUNK;
            count += (0..CHUNK)
                .filter(|i| (first..=last).contains(&(start + i)) && chunk[*i as usize].is_some())
                .count() as u64;
        }
        count
    }

    /// Makes the bytes of `offset..end` zero: whole pages are dropped, partial ones written.
    pub fn zero(&mut self, offset: u64, end: u64, moved: Moved) {
        if offset >= end {
            return;
        }
        let (head_page, tail_page) = (offset.div_ceil(PAGE), end / PAGE);
        if head_page > tail_page {
            self.zero_within(offset, end, moved);
            return;
        }
        self.zero_within(offset, head_page * PAGE, moved);
        self.zero_within(tail_page * PAGE, end, moved);
        self.drop_pages(head_page, tail_page, moved);
    }

    /// Drops everything at and above `size` and zeroes the rest of the last page (POSIX: a later extension must
    /// read zeros there).
    pub fn truncate(&mut self, size: u64, moved: Moved) {
        let first = size.div_ceil(PAGE);
        self.zero_within(size, first * PAGE, moved);
        self.drop_pages(first, u64::MAX, moved);
    }

    /// First offset at or after `offset` that lies in a present page, if any (SEEK_DATA).
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let first = offset / PAGE;
        for (number, chunk) in self.chunks.range(first / CHUNK..) {
            for (i, slot) in chunk.iter().enumerate() {
                let index = number * CHUNK + i as u64;
                if index >= first && slot.is_some() {
                    return Some(offset.max(index * PAGE));
                }
            }
        }
        None
    }

    /// First offset at or after `offset` that lies in no present page (SEEK_HOLE; the caller bounds it).
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut index = offset / PAGE;
        while self.get(index).is_some() {
            index += 1;
        }
        offset.max(index * PAGE)
    }

    /// The pages present, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Frame)> {
        self.chunks.iter().flat_map(|(number, chunk)| {
            let start = number * CHUNK;
            chunk.iter().enumerate().filter_map(move |(i, slot)| Some((start + i as u64, slot.as_ref()?)))
        })
    }

    fn slot(&mut self, index: u64) -> &mut Option<Frame> {
        let chunk = Arc::make_mut(&mut self.chunks)
            .entry(index / CHUNK)
            .or_insert_with(|| Arc::new([const { None }; CHUNK as usize]));
        &mut Arc::make_mut(chunk)[(index % CHUNK) as usize]
    }

    /// Zeroes `from..to`, which lie in one page; an absent page is zero already.
    fn zero_within(&mut self, from: u64, to: u64, moved: Moved) {
        let index = from / PAGE;
        if from < to && self.get(index).is_some() {
            let start = (from % PAGE) as usize;
            self.unique(index, moved).make_unique()[start..start + (to - from) as usize].fill(0);
        }
    }

    /// Drops the pages `first..end`, and what is reserved of them.
    fn drop_pages(&mut self, first: u64, end: u64, moved: Moved) {
        if first >= end {
            return;
        }
        // In this order: pages that are present are not counted among the reserved ones.
        self.release(first, end);
        self.drop_present(first, end, moved);
    }

    fn drop_present(&mut self, first: u64, end: u64, moved: Moved) {
        let numbers: Vec<u64> =
            self.chunks.range(first / CHUNK..=(end - 1) / CHUNK).map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        for number in numbers {
            let Some(chunk) = chunks.get_mut(&number) else { continue };
            let chunk = Arc::make_mut(chunk);
            for (i, slot) in chunk.iter_mut().enumerate() {
                let index = number * CHUNK + i as u64;
                if (first..end).contains(&index) && slot.take().is_some() {
                    self.present -= 1;
                    moved(index);
                }
            }
            if chunk.iter().all(Option::is_none) {
                chunks.remove(&number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(map: &PageMap, len: usize) -> Vec<u8> {
        let mut out = vec![0xaa; len];
        map.read(0, &mut out);
        out
    }

    proptest! {
        /// Against a plain byte vector; an earlier clone must not see later writes.
        #[test]
        fn behaves_like_a_vector(ops in prop::collection::vec((0..3u8, 0..40_000u64, 0..20_000usize, 1..255u8), 1..24)) {
            const LEN: usize = 64 * 1024;
            let (mut map, mut model) = (PageMap::default(), vec![0u8; LEN]);
            for (op, at, len, fill) in ops {
                let (before, old) = (map.clone(), model.clone());
                let end = (at + len as u64).min(LEN as u64);
                match op {
                    0 => {
                        let data = vec![fill; (end - at) as usize];
                        map.write(at, &data, &mut |_| {});
                        model[at as usize..end as usize].fill(fill);
                    }
                    1 => {
                        map.zero(at, end, &mut |_| {});
                        model[at as usize..end as usize].fill(0);
                    }
                    _ => {
                        map.truncate(at, &mut |_| {});
                        model[at as usize..].fill(0);
                    }
                }
                prop_assert!(bytes(&map, LEN) == model);
                prop_assert!(bytes(&before, LEN) == old);
                prop_assert_eq!(map.present(), map.iter().count() as u64);
                prop_assert_eq!(map.missing(0, LEN as u64), 16 - map.present());
            }
        }
    }

    #[test]
    fn holes_and_data() {
        let mut map = PageMap::default();
        map.write(5 * PAGE + 7, b"x", &mut |_| {});
        map.write(200 * PAGE, b"y", &mut |_| {});
        assert_eq!(map.next_data(0), Some(5 * PAGE));
        assert_eq!(map.next_data(5 * PAGE + 9), Some(5 * PAGE + 9));
        assert_eq!(map.next_data(6 * PAGE), Some(200 * PAGE));
        assert_eq!(map.next_data(201 * PAGE), None);
        assert_eq!(map.next_hole(5 * PAGE + 1), 6 * PAGE);
        assert_eq!(map.next_hole(3), 3);
    }

    #[test]
    fn reserved_pages_are_taken_but_absent() {
        let mut map = PageMap::default();
        map.write(3 * PAGE, b"a", &mut |_| {});
        map.reserve(2, 6);
        map.reserve(10, 12);
        assert_eq!((map.present(), map.taken()), (1, 6));
        assert_eq!((map.missing(0, 12 * PAGE), map.missing(2 * PAGE, 4 * PAGE)), (6, 0));
        map.reserve(5, 11);
        assert_eq!((map.taken(), map.missing(0, 12 * PAGE)), (10, 2));
        // What is written takes the reserved place.
        map.write(4 * PAGE, b"b", &mut |_| {});
        assert_eq!((map.present(), map.taken()), (2, 10));
        assert_eq!(map.next_data(5 * PAGE), None);
        map.zero(3 * PAGE, 7 * PAGE, &mut |_| {});
        assert_eq!((map.present(), map.taken()), (0, 6));
        map.release(8, u64::MAX);
        assert_eq!(map.taken(), 2);
        map.truncate(0, &mut |_| {});
        assert_eq!(map, PageMap::default());
    }

    #[test]
    fn only_new_frames_are_reported() {
        let mut map = PageMap::default();
        let mut moved = Vec::new();
        map.write(0, b"a", &mut |i| moved.push(i));
        map.write(1, b"b", &mut |i| moved.push(i));
        assert_eq!(moved, [0]);
        let snapshot = map.clone();
        map.write(1, b"c", &mut |i| moved.push(i));
        assert_eq!(moved, [0, 0]);
        drop(snapshot);
        map.truncate(0, &mut |i| moved.push(i));
        assert_eq!(moved, [0, 0, 0]);
    }
}
