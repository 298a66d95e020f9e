//! What a space maps, as runs of pages ([`Extents`]): a platform's own page table, for telling kinds of
//! faults apart, for reading application memory, and for the diff after a restore.
//!
//! Neighbours: platforms keep one for each space; `decode`, `spin` and `x86` read application memory through it.

use std::collections::BTreeMap;

use crate::{Mapping, Prot};

const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    pages: u64,
    frame_offset: u64,
    prot: Prot,
}

/// Runs of mapped pages, by address; they do not overlap, and neighbours that continue each other are one.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    runs: BTreeMap<u64, Run>,
    changes: u64,
}

impl Extents {
    /// What an address shows: its offset in the arena and what is allowed.
    pub fn get(&self, addr: u64) -> Option<(u64, Prot)> {
        let (&start, run) = self.runs.range(..=addr).next_back()?;
        (addr - start < run.pages * PAGE).then(|| (run.frame_offset + (addr - start), run.prot))
    }

    /// How often runs were mapped, unmapped or protected: while it is the same, so are they.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Maps a run over whatever was there.
    pub fn insert(&mut self, mapping: &Mapping) {
        let mut start = mapping.addr;
        let pages = u64::from(mapping.pages);
        self.remove(start, pages * PAGE);
        let mut run = Run { pages, frame_offset: mapping.frame_offset, prot: mapping.prot };
        let end = start + pages * PAGE;
        if let Some(next) = self.runs.get(&end).copied()
            && next.prot == run.prot
            && next.frame_offset == run.frame_offset + pages * PAGE
        {
            self.runs.remove(&end);
            run.pages += next.pages;
        }
        if let Some((&before, last)) = self.runs.range(..start).next_back()
            && before + last.pages * PAGE == start
            && last.prot == run.prot
            && last.frame_offset + last.pages * PAGE == run.frame_offset
        {
            run = Run { pages: last.pages + run.pages, ..*last };
            start = before;
        }
        self.runs.insert(start, run);
    }

    /// The runs within a range, cut to it, by rising address.
    pub fn within(&self, addr: u64, len: u64) -> impl Iterator<Item = Mapping> {
        let end = addr.saturating_add(len);
        let before = self.runs.range(..addr).next_back();
        before.into_iter().chain(self.runs.range(addr..end)).filter_map(move |(&start, run)| {
            let (from, to) = (start.max(addr), (start + run.pages * PAGE).min(end));
            // More than u32::MAX pages do not fit below GUEST_TOP in frames of the arena.
            let pages = u32::try_from(to.checked_sub(from)? / PAGE).ok().filter(|pages| *pages > 0)?;
            Some(Mapping {
                addr: from,
                frame_offset: run.frame_offset + (from - start),
                pages,
                prot: run.prot,
            })
        })
    }

    /// Whether any page of the range is mapped.
    pub fn touches(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        self.runs.range(..end).next_back().is_some_and(|(start, run)| start + run.pages * PAGE > addr)
    }

    /// Unmaps a range; runs that reach out of it are cut.
    pub fn remove(&mut self, addr: u64, len: u64) {
        self.changes += 1;
        let end = addr.saturating_add(len);
        // From the back: at each turn the last run that begins before the end.
        while let Some((&start, &run)) = self.runs.range(..end).next_back() {
            let run_end = start + run.pages * PAGE;
            if run_end <= addr {
                break;
            }
            self.runs.remove(&start);
            if run_end > end {
                let skipped = end - start;
                let tail = Run {
                    pages: (run_end - end) / PAGE,
                    frame_offset: run.frame_offset + skipped,
                    prot: run.prot,
                };
                self.runs.insert(end, tail);
            }
            if start < addr {
                self.runs.insert(start, Run { pages: (addr - start) / PAGE, ..run });
                break;
            }
        }
    }

    /// Takes write permission away everywhere; calls `each` with the runs that had it.
    pub fn write_protect(&mut self, mut each: impl FnMut(u64, u64, Prot)) {
        self.changes += 1;
        for (&addr, run) in &mut self.runs {
            if run.prot.write {
                run.prot.write = false;
                each(addr, run.pages * PAGE, run.prot);
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.changes += 1;
        self.runs.clear();
    }

    /// All runs by rising address.
    pub fn list(&self, out: &mut Vec<Mapping>) {
        for (&addr, run) in &self.runs {
            let (mut addr, mut frame_offset, mut left) = (addr, run.frame_offset, run.pages);
            while left > 0 {
                let pages = left.min(u64::from(u32::MAX)) as u32;
                out.push(Mapping { addr, frame_offset, pages, prot: run.prot });
                addr += u64::from(pages) * PAGE;
                frame_offset += u64::from(pages) * PAGE;
                left -= u64::from(pages);
            }
        }
    }

    /// Reads application memory up to the first page that is not mapped; how many bytes.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let Some(at) = addr.checked_add(done as u64) else { break };
            let Some((offset, _)) = self.get(at) else { break };
            let part = (out.len() - done).min((PAGE - at % PAGE) as usize);
            if bloodhound_frames::read_at(offset, &mut out[done..done + part]).is_none() {
                break;
            }
            done += part;
        }
        done
    }

    /// Reads a 64-bit word of application memory.
    pub fn read_u64(&self, addr: u64) -> Option<u64> {
        let mut raw = [0; 8];
        (self.read(addr, &mut raw) == 8).then_some(u64::from_le_bytes(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(page: u64, frame: u64, pages: u32, prot: Prot) -> Mapping {
        Mapping { addr: page * PAGE, frame_offset: frame * PAGE, pages, prot }
    }

    fn listed(extents: &Extents) -> Vec<(u64, u64, u32)> {
        let mut out = Vec::new();
        extents.list(&mut out);
        out.iter().map(|m| (m.addr / PAGE, m.frame_offset / PAGE, m.pages)).collect()
    }

    #[test]
    fn neighbours_that_continue_each_other_merge() {
        let mut e = Extents::default();
        e.insert(&mapping(10, 100, 2, Prot::R));
        e.insert(&mapping(13, 103, 1, Prot::R));
        e.insert(&mapping(12, 102, 1, Prot::R));
        assert_eq!(listed(&e), [(10, 100, 4)]);
        e.insert(&mapping(14, 104, 1, Prot::RW));
        e.insert(&mapping(9, 98, 1, Prot::R));
        assert_eq!(listed(&e), [(9, 98, 1), (10, 100, 4), (14, 104, 1)]);
    }

    #[test]
    fn holes_cut_runs() {
        let mut e = Extents::default();
        e.insert(&mapping(10, 100, 10, Prot::R));
        e.remove(12 * PAGE, 3 * PAGE);
        assert_eq!(listed(&e), [(10, 100, 2), (15, 105, 5)]);
        e.insert(&mapping(11, 7, 5, Prot::RX));
        assert_eq!(listed(&e), [(10, 100, 1), (11, 7, 5), (16, 106, 4)]);
        let touched: Vec<u64> = (8..22).filter(|p| e.touches(p * PAGE, PAGE)).collect();
        assert_eq!(touched, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert!(e.touches(0, 11 * PAGE) && !e.touches(0, 10 * PAGE) && !e.touches(20 * PAGE, u64::MAX));
        e.remove(0, u64::MAX);
        assert_eq!(listed(&e), []);
    }

    /// Random operations against a page-by-page table.
    #[test]
    fn agrees_with_a_plain_table() {
        let mut e = Extents::default();
        let mut plain: BTreeMap<u64, (u64, Prot)> = BTreeMap::new();
        let mut seed = 12345u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            let (page, pages) = (next(64), 1 + next(12));
            match next(8) {
                0 => {
                    e.write_protect(|_, _, _| ());
                    plain.values_mut().for_each(|v| v.1.write = false);
                }
                1..4 => {
                    e.remove(page * PAGE, pages * PAGE);
                    plain.retain(|p, _| !(page..page + pages).contains(p));
                }
                _ => {
                    let (frame, prot) = (1 + page + 100 * next(2), [Prot::R, Prot::RW][next(2) as usize]);
                    e.insert(&mapping(page, frame, pages as u32, prot));
                    for n in 0..pages {
                        plain.insert(page + n, ((frame + n) * PAGE, prot));
                    }
                }
            }
            let (page, pages) = (next(70), next(20));
            let within: Vec<(u64, u64)> = e
                .within(page * PAGE, pages * PAGE)
                .flat_map(|m| {
                    (0..u64::from(m.pages)).map(move |n| (m.addr / PAGE + n, m.frame_offset + n * PAGE))
                })
                .collect();
            let want: Vec<(u64, u64)> = plain.range(page..page + pages).map(|(p, v)| (*p, v.0)).collect();
            assert_eq!(within, want);
            for page in 0..80 {
                let want = plain.get(&page).map(|&(frame, prot)| (frame + 5, prot));
                assert_eq!(e.get(page * PAGE + 5), want, "page {page}");
            }
        }
    }
}
