//! Sets of sectors of a file.
//!
//! Key type: [`Sectors`]. Used by `power`: a sector that kept an older content keeps it, whatever was written there later.

use std::collections::BTreeMap;
use std::ops::Range;

/// A disk writes whole sectors or not at all.
pub(crate) const SECTOR: u64 = 512;

/// Sectors by number, as runs that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sectors {
    /// From the first of each run to behind its last.
    runs: BTreeMap<u64, u64>,
}

impl Sectors {
    /// Adds the sectors that have bytes of `bytes`.
    pub(crate) fn add(&mut self, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let (mut from, mut to) = (bytes.start / SECTOR, bytes.end.div_ceil(SECTOR));
        let near: Vec<(u64, u64)> =
            self.runs.range(..=to).rev().map(|(a, b)| (*a, *b)).take_while(|(_, b)| *b >= from).collect();
        for (a, b) in near {
            self.runs.remove(&a);
            (from, to) = (from.min(a), to.max(b));
        }
        self.runs.insert(from, to);
    }

    /// Those behind `size` bytes are no longer there.
    pub(crate) fn truncate(&mut self, size: u64) {
        let end = size.div_ceil(SECTOR);
        let cut = self.runs.range(..end).next_back().map(|(from, to)| (*from, (*to).min(end)));
        self.runs.split_off(&end);
        if let Some((from, to)) = cut {
            self.runs.insert(from, to);
        }
    }

    /// The parts of `bytes` that lie in none of the sectors.
    pub(crate) fn outside(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let (mut at, mut parts) = (bytes.start, Vec::new());
        let first = self.runs.range(..=bytes.start / SECTOR).next_back().map_or(0, |(from, _)| *from);
        for (from, to) in self.runs.range(first..bytes.end.div_ceil(SECTOR)) {
            let (from, to) = (from * SECTOR, to * SECTOR);
            if at < from {
                parts.push(at..from.min(bytes.end));
            }
            at = at.max(to);
        }
        if at < bytes.end {
            parts.push(at..bytes.end);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_outside_are_what_is_left_of_bytes() {
        let mut sectors = Sectors::default();
        assert_eq!(sectors.outside(100..2000), vec![100..2000]);
        sectors.add(600..700);
        assert_eq!(sectors.outside(100..2000), vec![100..512, 1024..2000]);
        sectors.add(1500..1600);
        assert_eq!(sectors.outside(0..4096), vec![0..512, 2048..4096]);
        assert_eq!(sectors.outside(700..900), Vec::<Range<u64>>::new());
        sectors.add(3000..3000);
        sectors.add(5000..5001);
        assert_eq!(sectors.outside(0..6000), vec![0..512, 2048..4608, 5120..6000]);
        sectors.truncate(1000);
        assert_eq!(sectors.outside(0..6000), vec![0..512, 1024..6000]);
        sectors.truncate(0);
        assert_eq!(sectors, Sectors::default());
    }
}
