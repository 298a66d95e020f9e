//! Page tables of a space ([`Tables`]), built from what it maps, and the memory that they take ([`Pool`]).
//!
//! A KVM without nested paging keeps shadows of page tables and learns of changes only by writes of the guest. So a
//! table that the processor may have seen is only written by the monitor ([`Changes`]); one that it has not is
//! written from here, which costs nothing. That is also why tables are not reused one by one: a page that was a
//! table once may have a shadow for ever. When all are used up everything is forgotten, and the memory slot made anew.
//!
//! Where more than a few entries of one table change, a new table takes its place: one write instead of many.

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
/// Bytes that a table of the lowest level maps.
const CHUNK: u64 = 1 << 21;
/// Changes of one table that the monitor makes one by one.
const FEW: usize = 8;

/// All tables are in use.
#[derive(Debug)]
pub(crate) struct Full;

/// Memory for page tables: handed out from front to back.
pub(crate) struct Pool {
    next: u64,
    /// Tables from here on were never seen by the processor.
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

    /// The processor is about to see every table.
    pub fn seen(&mut self) {
        self.fresh_from = self.next;
    }
}

/// What the monitor is to do before application code runs.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Address of an entry in the monitor's view, and its value.
    pub writes: Vec<(u64, u64)>,
    /// Pages whose translation may be cached.
    pub stale: Vec<u64>,
    /// Too many for that: flush all.
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
    pub root: u64,
    /// Tables by level and by what they map: (1, address >> 21) is a lowest one, (3, address >> 39) hangs in the root.
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
    /// When the pool is used up; the tables are then useless.
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
                // The caller starts anew with fresh tables, which take no writes of the monitor.
                return Err(Full);
            }
        }
        Ok(())
    }

    /// The parts of the ranges where something is mapped or was: from and to, by the number of the lowest table.
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

    /// Puts a changed copy of a lowest table in its place.
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

    /// The table of a level (1 to 3), made if it is not there; 4 is the root.
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

/// Hangs a table into another one.
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

/// Accessed and dirty are set at once: nobody looks at them, and the processor need not write them.
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
