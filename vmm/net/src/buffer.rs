//! The two queues of a TCP connection: [`SendBuffer`] keeps what is not yet acknowledged, [`RecvBuffer`] what is
//! not yet read and what arrived out of order. Both count bytes from the start of the stream (`u64` offsets), so
//! that sequence numbers, which wrap, stay the business of the connection.

use crate::Bytes;
use bloodhound_abi::SimTime;
use std::collections::{BTreeMap, VecDeque};

/// Chunks below this size are merged with what is written next, so that a program that writes byte by byte does
/// not leave a chunk per byte.
const MERGE_BELOW: usize = 1460;
const MERGE_LIMIT: usize = 4096;
/// What a piece takes beside its bytes: `struct sk_buff` and the smallest data area with `struct skb_shared_info`, as their slabs round
/// them (SKB_TRUESIZE(1) of Linux), which is about what it takes of the host's memory as well.
const BESIDE: usize = 768;

/// Bytes written and not yet acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SendBuffer {
    /// Offset of each chunk's first byte, ascending and without holes.
    chunks: VecDeque<(u64, Bytes)>,
    start: u64,
    end: u64,
}

impl SendBuffer {
    /// Offset of the first byte kept: everything before is acknowledged.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Offset after the last byte written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Bytes of memory that it takes: those of its chunks, and what Linux has beside each ([`BESIDE`]).
    pub(crate) fn held(&self) -> usize {
        self.len() + BESIDE * self.chunks.len()
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.end += data.len() as u64;
        if let Some((_, tail)) = self.chunks.back_mut()
            && tail.len() < MERGE_BELOW
            && tail.len() + data.len() <= MERGE_LIMIT
        {
            let mut merged = Vec::with_capacity(tail.len() + data.len());
            merged.extend_from_slice(tail);
            merged.extend_from_slice(data);
            *tail = Bytes::from(merged);
        } else {
            self.chunks.push_back((self.end - data.len() as u64, Bytes::copy(data)));
        }
    }

    /// Drops everything before `offset`.
    pub(crate) fn acknowledge(&mut self, offset: u64) {
        assert!(offset <= self.end, "acknowledged what was never written");
        self.start = self.start.max(offset);
        while self.chunks.front().is_some_and(|(at, chunk)| at + chunk.len() as u64 <= offset) {
            self.chunks.pop_front();
        }
    }

    /// `len` bytes from `offset` on; shares the buffer when one chunk holds them all.
    pub(crate) fn slice(&self, offset: u64, len: usize) -> Bytes {
        assert!(offset >= self.start && offset + len as u64 <= self.end, "slice outside of the send buffer");
        if len == 0 {
            return Bytes::default();
        }
        let mut index = self.chunks.partition_point(|(at, chunk)| at + chunk.len() as u64 <= offset);
        let (at, chunk) = &self.chunks[index];
        let skip = (offset - at) as usize;
        if skip + len <= chunk.len() {
            return chunk.slice(skip..skip + len);
        }
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&chunk[skip..]);
        while out.len() < len {
            index += 1;
            let chunk = &self.chunks[index].1;
            out.extend_from_slice(&chunk[..chunk.len().min(len - out.len())]);
        }
        Bytes::from(out)
    }

    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.start = self.end;
    }
}

/// Bytes received: the readable part, then pieces with holes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RecvBuffer {
    /// Pieces, and when each came.
    ready: VecDeque<(SimTime, Bytes)>,
    ready_len: usize,
    /// When the piece came that was read last.
    read_of: SimTime,
    /// Stream offset after the readable part: what is expected next.
    next: u64,
    /// Pieces after `next`, by offset; never overlapping, never touching `next`.
    later: BTreeMap<u64, (SimTime, Bytes)>,
}

impl RecvBuffer {
    /// Bytes that can be read.
    pub(crate) fn len(&self) -> usize {
        self.ready_len
    }

    /// Bytes of memory that it takes, as [`SendBuffer::held`].
    pub(crate) fn held(&self) -> usize {
        let later: usize = self.later.values().map(|(_, piece)| BESIDE + piece.len()).sum();
        self.ready_len + BESIDE * self.ready.len() + later
    }

    /// Offset of the byte expected next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether pieces wait behind a hole.
    pub(crate) fn has_holes(&self) -> bool {
        !self.later.is_empty()
    }

    /// Puts in `data` at stream offset `at`, which comes now; what is there already is dropped. Returns how many bytes became
    /// readable.
    pub(crate) fn insert(&mut self, mut at: u64, mut data: Bytes, now: SimTime) -> usize {
        if at < self.next {
            let known = (self.next - at).min(data.len() as u64);
            data.advance(known as usize);
            at += known;
        }
        if data.is_empty() {
            return 0;
        }
        if at == self.next && self.later.is_empty() {
            return self.append(data, now);
        }
        self.insert_later(at, data, now);
        let before = self.ready_len;
        while let Some((came, piece)) = self.later.remove(&self.next) {
            self.append(piece, came);
        }
        self.ready_len - before
    }

    fn append(&mut self, data: Bytes, came: SimTime) -> usize {
        let len = data.len();
        self.next += len as u64;
        self.ready_len += len;
        self.ready.push_back((came, data));
        len
    }

    /// Keeps the parts of `data` that no piece holds yet.
    fn insert_later(&mut self, mut at: u64, mut data: Bytes, now: SimTime) {
        if let Some((start, (_, piece))) = self.later.range(..=at).next_back() {
            let known = (start + piece.len() as u64).saturating_sub(at).min(data.len() as u64);
            data.advance(known as usize);
            at += known;
        }
        while !data.is_empty() {
            let following = self.later.range(at..).next().map(|(start, (_, piece))| (*start, piece.len()));
            let Some((start, len)) = following.filter(|(start, _)| *start < at + data.len() as u64) else {
                self.later.insert(at, (now, data));
                return;
            };
            let gap = (start - at) as usize;
            if gap > 0 {
                self.later.insert(at, (now, data.slice(0..gap)));
            }
            let skip = (gap + len).min(data.len());
            data.advance(skip);
            at += skip as u64;
        }
    }

    /// Drops the pieces behind holes (nothing more will come: FIN or reset).
    pub(crate) fn drop_later(&mut self) {
        self.later.clear();
    }

    /// Reads into `out`; with `peek` nothing is taken.
    pub(crate) fn read(&mut self, out: &mut [u8], peek: bool) -> usize {
        let want = out.len().min(self.ready_len);
        let mut done = 0;
        let mut index = 0;
        while done < want {
            let (came, chunk) = &mut self.ready[index];
            self.read_of = *came;
            let count = chunk.len().min(want - done);
            out[done..done + count].copy_from_slice(&chunk[..count]);
            done += count;
            if peek {
                index += 1;
            } else if count == chunk.len() {
                self.ready.pop_front();
            } else {
                chunk.advance(count);
            }
        }
        if !peek {
            self.ready_len -= done;
        }
        done
    }

    /// When the piece came of which something was read last, or peeked at.
    pub(crate) fn read_of(&self) -> SimTime {
        self.read_of
    }

    /// Throws away everything readable; returns how much there was.
    pub(crate) fn discard(&mut self) -> usize {
        self.ready.clear();
        self.later.clear();
        std::mem::take(&mut self.ready_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_send_buffer_slices_over_chunks() {
        let mut buffer = SendBuffer::default();
        let all: Vec<u8> = (0..10_000u32).map(|i| (i * 7 % 251) as u8).collect();
        for chunk in all.chunks(997) {
            buffer.push(chunk);
        }
        for (from, len) in [(0, 10_000), (996, 2), (997, 997), (5000, 1460), (9999, 1)] {
            assert_eq!(*buffer.slice(from as u64, len), all[from..from + len]);
        }
        buffer.acknowledge(5001);
        assert_eq!((buffer.start(), buffer.len()), (5001, 4999));
        assert_eq!(*buffer.slice(5001, 4999), all[5001..]);
    }

    #[test]
    fn single_bytes_do_not_make_a_chunk_each() {
        let mut buffer = SendBuffer::default();
        for _ in 0..14_600 {
            buffer.push(b"x");
        }
        assert_eq!((buffer.len(), buffer.chunks.len()), (14_600, 10));
    }

    /// All ways to cut twelve bytes into overlapping pieces in a scrambled order give the same stream.
    #[test]
    fn reassembly_keeps_each_byte_once() {
        let text = b"abcdefghijkl";
        for seed in 0..2000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % bound
            };
            let mut buffer = RecvBuffer::default();
            let mut out = Vec::new();
            let mut piece = [0; 5];
            while buffer.next() < 12 {
                let from = draw(12) as usize;
                let to = (from + 1 + draw(4) as usize).min(12);
                let ready = buffer.len();
                let grown = buffer.insert(from as u64, Bytes::copy(&text[from..to]), SimTime(to as u64));
                assert_eq!(buffer.len(), ready + grown);
                if draw(3) == 0 {
                    let peeked = buffer.read(&mut piece, true);
                    let copy = piece[..peeked].to_vec();
                    let count = buffer.read(&mut piece, false);
                    assert_eq!(copy, &piece[..count]);
                    // Each piece came at its end, so what was read came no earlier.
                    assert!(count == 0 || buffer.read_of().0 >= (out.len() + count) as u64);
                    out.extend_from_slice(&piece[..count]);
                }
            }
            while buffer.len() > 0 {
                let count = buffer.read(&mut piece, false);
                out.extend_from_slice(&piece[..count]);
            }
            assert_eq!(out, text, "seed {seed}");
            assert!(!buffer.has_holes());
        }
    }
}
