//! What services have written to their standard output and error, as far as a world keeps it: of each service the first part and the
//! last, so that one which writes without end costs a bounded amount of memory. What a reader takes at once (`crate::output`) is not
//! kept here.
//!
//! Key types: [`ConsoleLog`], [`Piece`]. Neighbours: `crate::machine` fills it, the runner makes lines of it.

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::SimTime;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_net::NodeId;

/// How much is kept of a service's output from its beginning, in the unit of [`charge`].
pub const FIRST: usize = 2 << 20;
/// How much is kept of the rest, from its end.
pub const LAST: usize = 6 << 20;
/// What a line costs beside its bytes when it is shown, and a chunk when it is kept.
const OVERHEAD: usize = 128;

/// The output of all services.
#[derive(Clone, Debug, Default)]
pub struct ConsoleLog {
    services: BTreeMap<NodeId, Kept>,
    /// How many chunks there were: their order over all services.
    next: u64,
}

/// The output of a service.
#[derive(Clone, Debug, Default)]
struct Kept {
    first: Vec<(u64, ConsoleChunk)>,
    first_charge: usize,
    /// Nothing is added to the first part any more.
    full: bool,
    last: VecDeque<(u64, ConsoleChunk)>,
    last_charge: usize,
    /// Between the two parts.
    gap: Option<Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The number of the first chunk of which something is not kept, and its time.
    order: u64,
    at: SimTime,
    bytes: u64,
}

/// A part of what is kept.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// This was written.
    Chunk(&'a ConsoleChunk),
    /// From this time on so many bytes of the service's output are not kept.
    LeftOut {
        /// When the first of them was written.
        at: SimTime,
        /// How many.
        bytes: u64,
    },
}

impl ConsoleLog {
    /// Keeps what a service wrote, or its last part.
    pub fn push(&mut self, chunk: ConsoleChunk) {
        let order = self.next;
        self.next += 1;
        self.services.entry(chunk.container).or_default().push(order, chunk);
    }

    /// What is kept, in the order in which it was written.
    pub fn pieces(&self) -> Vec<(NodeId, Piece<'_>)> {
        let mut all: Vec<(u64, NodeId, Piece)> = Vec::new();
        for (node, kept) in &self.services {
            let chunks = kept.first.iter().chain(&kept.last);
            all.extend(chunks.map(|(order, chunk)| (*order, *node, Piece::Chunk(chunk))));
            let gap = kept.gap.map(|gap| (gap.order, Piece::LeftOut { at: gap.at, bytes: gap.bytes }));
            all.extend(gap.map(|(order, piece)| (order, *node, piece)));
        }
        // A chunk of which the first part is not kept has the gap before it.
        all.sort_by_key(|(order, _, piece)| (*order, matches!(piece, Piece::Chunk(_))));
        all.into_iter().map(|(_, node, piece)| (node, piece)).collect()
    }
}

impl Kept {
    fn push(&mut self, order: u64, mut chunk: ConsoleChunk) {
        let cost = charge(&chunk.bytes);
        if !self.full && self.first_charge + cost <= FIRST {
            self.first_charge += cost;
            self.first.push((order, chunk));
            return;
        }
        self.full = true;
        let cost = if cost > LAST {
            let from = last_part(&chunk.bytes, LAST);
            // All before this chunk goes too.
            while let Some((order, old)) = self.last.pop_front() {
                self.leave_out(order, old.at, old.bytes.len());
            }
            self.last_charge = 0;
            self.leave_out(order, chunk.at, from);
            chunk.bytes = chunk.bytes.split_off(from);
            charge(&chunk.bytes)
        } else {
            cost
        };
        self.last_charge += cost;
        self.last.push_back((order, chunk));
        while self.last_charge > LAST {
            let (order, old) = self.last.pop_front().expect("what is charged is there");
            self.last_charge -= charge(&old.bytes);
            self.leave_out(order, old.at, old.bytes.len());
        }
    }

    fn leave_out(&mut self, order: u64, at: SimTime, bytes: usize) {
        let gap = self.gap.get_or_insert(Gap { order, at, bytes: 0 });
        gap.bytes += bytes as u64;
    }
}

/// What a chunk costs: its bytes, and for itself and each line end in it what a line costs that is shown.
fn charge(bytes: &[u8]) -> usize {
    bytes.len() + OVERHEAD * (1 + bytes.iter().filter(|b| **b == b'\n').count())
}

/// Where the longest end of the bytes begins that costs no more than this.
fn last_part(bytes: &[u8], most: usize) -> usize {
    let mut cost = OVERHEAD;
    let fits = |byte: &&u8| {
        cost += if **byte == b'\n' { 1 + OVERHEAD } else { 1 };
        cost <= most
    };
    bytes.len() - bytes.iter().rev().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use bloodhound_kernel::file::Console;
    use bloodhound_kernel::ids::Pid;

    use super::*;

    fn chunk(at: u64, node: u32, bytes: Vec<u8>) -> ConsoleChunk {
        let container = NodeId(node);
        ConsoleChunk { at: SimTime(at), container, pid: Pid(1), stream: Console::Out, check: false, bytes }
    }

    fn held(log: &ConsoleLog) -> usize {
        let chunks = log.services.values().flat_map(|kept| kept.first.iter().chain(&kept.last));
        chunks.map(|(_, chunk)| charge(&chunk.bytes)).sum()
    }

    #[test]
    fn short_output_is_kept_in_order() {
        let mut log = ConsoleLog::default();
        for at in 0..100 {
            log.push(chunk(at, (at % 3) as u32, vec![at as u8; 10]));
        }
        let pieces = log.pieces();
        assert_eq!(pieces.len(), 100);
        for (at, (node, piece)) in pieces.iter().enumerate() {
            let Piece::Chunk(chunk) = piece else { panic!("nothing is left out") };
            assert_eq!((chunk.at.0, node.0, chunk.bytes[0]), (at as u64, at as u32 % 3, at as u8));
        }
    }

    #[test]
    fn of_endless_output_the_first_and_the_last_part_are_kept() {
        let mut log = ConsoleLog::default();
        let lines = b"y\n".repeat(4096);
        let count = 10_000;
        for at in 0..count {
            log.push(chunk(at, 1, lines.clone()));
            assert!(held(&log) <= FIRST + LAST);
        }
        log.push(chunk(count, 2, b"another\n".to_vec()));
        let pieces = log.pieces();
        let gaps = pieces.iter().filter(|(_, p)| matches!(p, Piece::LeftOut { .. })).count();
        assert_eq!(gaps, 1);
        let mut told = 0;
        let mut last = None;
        for (node, piece) in &pieces {
            match piece {
                Piece::Chunk(chunk) if node.0 == 1 => {
                    assert!(last.is_none_or(|last| last < chunk.at), "in order");
                    (told, last) = (told + chunk.bytes.len() as u64, Some(chunk.at));
                }
                Piece::Chunk(_) => assert_eq!(node.0, 2),
                Piece::LeftOut { bytes, at } => {
                    assert!(last.is_some_and(|last| last.0 + 1 == at.0), "the gap follows the first part");
                    told += bytes;
                }
            }
        }
        assert_eq!((told, last), (count * lines.len() as u64, Some(SimTime(count - 1))));
    }

    #[test]
    fn of_one_huge_chunk_the_end_is_kept() {
        let mut log = ConsoleLog::default();
        log.push(chunk(0, 1, vec![b'a'; FIRST / 2]));
        log.push(chunk(1, 1, vec![b'b'; LAST / 2]));
        let mut huge = b"\n".repeat(LAST);
        huge.extend_from_slice(b"the end");
        let whole = huge.len() + LAST / 2;
        log.push(chunk(2, 1, huge));
        assert!(held(&log) <= FIRST + LAST);
        let pieces = log.pieces();
        let [(_, Piece::Chunk(a)), (_, Piece::LeftOut { at, bytes }), (_, Piece::Chunk(end))] = pieces[..]
        else {
            panic!("{}", pieces.len())
        };
        assert_eq!((a.bytes[0], at, end.at), (b'a', SimTime(1), SimTime(2)));
        assert!(end.bytes.ends_with(b"\nthe end"));
        assert_eq!(bytes as usize + end.bytes.len(), whole);
    }
}
