//! Page tables of a space ([`Tables`]), built from what the space maps, and the memory that they take ([`Pool`]).
//!
//! A KVM without nested paging keeps shadows of page tables: copies, which the processor uses in their place. It learns that a
//! table has changed only when the guest itself writes to the table. So a table that the vCPU may have used is written only by
//! the monitor, which runs in the guest ([`Changes`] lists the writes). A table that the vCPU has not used yet is written
//! directly by the VMM, which costs nothing.
//!
//! For the same reason a single table is never reused: KVM may keep a shadow of its page for ever. When the memory for tables is
//! used up, all tables of all spaces are forgotten, and the memory slot is removed and made anew: KVM then forgets all shadows.
//!
//! If more than a few entries of a lowest table change, a changed copy takes its place: the monitor then writes one entry of the
//! parent table instead of many entries.

use std::collections::BTreeMap;

use bloodhound_platform::extents::Extents;
use bloodhound_platform::{Mapping, Prot};

use crate::layout::{ARENA, LOW_END, MONITOR_BASE, MONITOR_PDPT, STALE_MAX, TABLES, WRITES_MAX};
use crate::memory::Low;

pub(crate) const PRESENT: u64 = 1;
pub(crate) const WRITE: u64 = 1 << 1;
pub(crate) const USER: u64 = 1 << 2;
pub(crate) const ACCESSED: u64 = 1 << 5;
pub(crate) const DIRTY: u64 = 1 << 6;
pub(crate) const LARGE: u64 = 1 << 7;
pub(crate) const NO_EXEC: u64 = 1 << 63;

const PAGE: u64 = 4096;
/// Bytes of address space that a table of the lowest level (level 1) maps: a chunk.
const CHUNK: u64 = 1 << 21;
/// The most entries of one table that the monitor changes one by one; if there are more, the table is replaced.
const FEW: usize = 8;

/// The memory for tables is used up, or there are more changes than the monitor has room for.
#[derive(Debug)]
pub(crate) struct Full;

/// Memory for page tables. Tables are taken from front to back and never given back one by one.
pub(crate) struct Pool {
    next: u64,
    /// Tables from this address on have never been used by the vCPU, so the VMM may write them directly.
    fresh_from: u64,
}

impl Pool {
    pub fn new() -> Pool {
        Pool { next: TABLES, fresh_from: TABLES }
    }

    fn take(&mut self) -> Result<u64, Full> {
        if self.next >= LOW_END {
            return Err(Full);
        }
        self.next += PAGE;
        Ok(self.next - PAGE)
    }

    /// To be called before the vCPU runs: from now on it may have used every table that was taken so far.
    pub fn seen(&mut self) {
        self.fresh_from = self.next;
    }
}

/// What the monitor is to do before application code runs.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Writes to page-table entries: the virtual address of the entry in the monitor, and its new value.
    pub writes: Vec<(u64, u64)>,
    /// Addresses of pages whose old translation the processor may have cached: for `invlpg`.
    pub stale: Vec<u64>,
    /// There are too many stale pages for that, or a whole table was replaced: all cached translations are to be flushed.
    pub flush: bool,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.stale.is_empty() && !self.flush
    }

    pub fn clear(&mut self) {
        self.writes.clear();
        self.stale.clear();
        self.flush = false;
    }

    fn stale(&mut self, addr: u64) {
        if self.stale.len() < STALE_MAX {
            self.stale.push(addr);
        } else {
            self.flush = true;
        }
    }
}

/// Page tables of one space.
pub(crate) struct Tables {
    /// Guest-physical address of the table of the highest level, for cr3.
    pub root: u64,
    /// The tables below the root, by level and by what they map: `(1, address >> 21)` is a table of the lowest level,
    /// `(3, address >> 39)` is one to which an entry of the root points.
    nodes: BTreeMap<(u8, u64), u64>,
}

impl Tables {
    /// Tables which map the monitor only.
    pub fn new(low: &Low, pool: &mut Pool) -> Result<Tables, Full> {
        let root = pool.take()?;
        low.write(root + 8 * (MONITOR_BASE >> 39 & 511), MONITOR_PDPT | PRESENT | WRITE | ACCESSED);
        Ok(Tables { root, nodes: BTreeMap::new() })
    }

    /// Makes the tables show what `memory` says, within `ranges` (address, bytes).
    ///
    /// # Errors
    /// When the pool is used up, or the changes are too many for the monitor. The tables must not be used any more then.
    pub fn update(
        &mut self,
        (low, pool): (&Low, &mut Pool),
        memory: &Extents,
        ranges: &[(u64, u64)],
        changes: &mut Changes,
    ) -> Result<(), Full> {
        for (chunk, (from, to)) in self.chunks(memory, ranges) {
            let mut wanted = [0; 512];
            for run in memory.within(from, to - from) {
                fill(&mut wanted, &run);
            }
            let first = (from >> 12 & 511) as usize;
            let pages = ((to - from) >> 12) as usize;
            self.update_chunk((low, pool), chunk, &wanted[first..first + pages], first, changes)?;
            if changes.writes.len() > WRITES_MAX - 64 {
                // The caller builds new tables instead. Those are written directly, without the monitor.
                return Err(Full);
            }
        }
        Ok(())
    }

    /// The parts of the ranges where something is mapped or was mapped before, by chunk (address / [`CHUNK`]): the first address
    /// and the end.
    fn chunks(&self, memory: &Extents, ranges: &[(u64, u64)]) -> BTreeMap<u64, (u64, u64)> {
        let mut parts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut add = |chunk: u64, start: u64, end: u64| {
            let (from, to) = (start.max(chunk * CHUNK), end.min((chunk + 1) * CHUNK));
            let part = parts.entry(chunk).or_insert((from, to));
            *part = (part.0.min(from), part.1.max(to));
        };
        for &(start, len) in ranges.iter().filter(|(_, len)| *len > 0) {
            let end = start.saturating_add(len);
            let (first, last) = (start / CHUNK, (end - 1) / CHUNK);
            for (&(_, chunk), _) in self.nodes.range((1, first)..=(1, last)) {
                add(chunk, start, end);
            }
            for run in memory.within(start, len) {
                let run_end = run.addr + u64::from(run.pages) * PAGE;
                for chunk in run.addr / CHUNK..=(run_end - 1) / CHUNK {
                    add(chunk, start, end);
                }
            }
        }
        parts
    }

    /// Makes the entries of a chunk's table, from entry `first` on, equal to `wanted`.
    fn update_chunk(
        &mut self,
        (low, pool): (&Low, &mut Pool),
        chunk: u64,
        wanted: &[u64],
        first: usize,
        changes: &mut Changes,
    ) -> Result<(), Full> {
        let table = match self.nodes.get(&(1, chunk)) {
            Some(&table) => table,
            None if wanted.iter().all(|&entry| entry == 0) => return Ok(()),
            None => self.provide((low, pool), 1, chunk, changes)?,
        };
        let entry_at = |n: usize| table + 8 * (first + n) as u64;
        let differs = |n: &usize| low.read(entry_at(*n)) != wanted[*n];
        if table >= pool.fresh_from {
            (0..wanted.len()).filter(differs).for_each(|n| low.write(entry_at(n), wanted[n]));
            return Ok(());
        }
        let differing = (0..wanted.len()).filter(differs).take(FEW + 1).count();
        if differing > FEW {
            return self.replace((low, pool), chunk, table, wanted, first, changes);
        }
        for n in (0..wanted.len()).filter(differs) {
            changes.writes.push((MONITOR_BASE + entry_at(n), wanted[n]));
            if low.read(entry_at(n)) & PRESENT != 0 {
                changes.stale(chunk * CHUNK + (first + n) as u64 * PAGE);
            }
        }
        Ok(())
    }

    /// Replaces a table of the lowest level by a copy of it whose entries from `first` on are `wanted`.
    fn replace(
        &mut self,
        (low, pool): (&Low, &mut Pool),
        chunk: u64,
        table: u64,
        wanted: &[u64],
        first: usize,
        changes: &mut Changes,
    ) -> Result<(), Full> {
        let copy = pool.take()?;
        for n in 0..512usize {
            let inside = n.checked_sub(first).and_then(|n| wanted.get(n));
            low.write(copy + 8 * n as u64, inside.copied().unwrap_or_else(|| low.read(table + 8 * n as u64)));
        }
        let parent = self.provide((low, pool), 2, chunk >> 9, changes)?;
        link((low, pool), parent, chunk, copy, changes);
        self.nodes.insert((1, chunk), copy);
        changes.flush = true;
        Ok(())
    }

    /// The table of a level from 1 to 3, with its index at that level; it is made if it is not there. For level 4, the root.
    fn provide(
        &mut self,
        (low, pool): (&Low, &mut Pool),
        level: u8,
        index: u64,
        changes: &mut Changes,
    ) -> Result<u64, Full> {
        if level == 4 {
            return Ok(self.root);
        }
        if let Some(&table) = self.nodes.get(&(level, index)) {
            return Ok(table);
        }
        let parent = self.provide((low, &mut *pool), level + 1, index >> 9, changes)?;
        let table = pool.take()?;
        link((low, pool), parent, index, table, changes);
        self.nodes.insert((level, index), table);
        Ok(table)
    }
}

/// Makes the entry of `parent` that `index` selects point to `table`.
fn link((low, pool): (&Low, &mut Pool), parent: u64, index: u64, table: u64, changes: &mut Changes) {
    let at = parent + 8 * (index & 511);
    let entry = table | PRESENT | WRITE | USER | ACCESSED;
    if parent >= pool.fresh_from {
        low.write(at, entry);
    } else {
        changes.writes.push((MONITOR_BASE + at, entry));
    }
}

/// Writes the entries of a run that lies within one lowest table.
fn fill(entries: &mut [u64; 512], run: &Mapping) {
    let first = (run.addr >> 12 & 511) as usize;
    let flags = flags(run.prot);
    for n in 0..run.pages as usize {
        entries[first + n] =
            if flags == 0 { 0 } else { (ARENA + run.frame_offset + n as u64 * PAGE) | flags };
    }
}

/// The flags of an entry. The accessed and dirty bits are set from the beginning: nobody reads them, and the processor then need
/// not write them.
fn flags(prot: Prot) -> u64 {
    if prot == Prot::default() {
        return 0;
    }
    let write = if prot.write { WRITE } else { 0 };
    let no_exec = if prot.exec { 0 } else { NO_EXEC };
    PRESENT | USER | ACCESSED | DIRTY | write | no_exec
}

#[cfg(test)]
mod tests;
