//! Page tables against the list of mappings that they are made from, as a processor walks them and caches what it found.

use super::*;

/// A small generator: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27) % n
    }
}

/// A processor that looks at one space, with all that it ever looked up cached.
struct Processor {
    low: Low,
    pool: Pool,
    memory: Extents,
    tables: Tables,
    cached: BTreeMap<u64, u64>,
}

/// What an update asked of the monitor.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    writes: usize,
    stale: usize,
    flush: bool,
}

impl Processor {
    fn new() -> Processor {
        let low = Low::new().unwrap();
        let mut pool = Pool::new();
        let tables = Tables::new(&low, &mut pool).unwrap();
        Processor { low, pool, memory: Extents::default(), tables, cached: BTreeMap::new() }
    }

    /// The entry that a walk ends with, or 0. All tables on the way must be a user's.
    fn walk(&self, addr: u64) -> u64 {
        let mut table = self.tables.root;
        for shift in [39, 30, 21] {
            let entry = self.low.read(table + 8 * (addr >> shift & 511));
            if entry & PRESENT == 0 {
                return 0;
            }
            assert_eq!(entry & 0xfff, PRESENT | WRITE | USER | ACCESSED, "a table for {addr:#x}");
            table = entry & !0xfff;
            assert!((TABLES..LOW_END).contains(&table), "a table at {table:#x}");
        }
        self.low.read(table + 8 * (addr >> 12 & 511))
    }

    /// As the list of mappings has it.
    fn wanted(&self, addr: u64) -> u64 {
        self.memory.get(addr).map_or(0, |(offset, prot)| match flags(prot) {
            0 => 0,
            flags => (ARENA + offset) | flags,
        })
    }

    /// Brings the tables up to date, does what the monitor would, and looks at pages.
    fn update(&mut self, ranges: &[(u64, u64)], probes: &[u64]) -> Result<Asked, Full> {
        let mut changes = Changes::default();
        let mut pool = &mut self.pool;
        self.tables.update((&self.low, &mut pool), &self.memory, ranges, &mut changes)?;
        for &(at, value) in &changes.writes {
            self.low.write(at - MONITOR_BASE, value);
        }
        self.pool.seen();
        if changes.flush {
            self.cached.clear();
        }
        for addr in &changes.stale {
            self.cached.remove(addr);
        }
        for (&addr, &entry) in &self.cached {
            assert_eq!(entry, self.walk(addr), "cached of {addr:#x}, and nobody said that it is stale");
        }
        for &addr in probes {
            let entry = self.walk(addr);
            assert_eq!(entry, self.wanted(addr), "{addr:#x}");
            if entry != 0 {
                self.cached.insert(addr, entry);
            }
        }
        Ok(Asked { writes: changes.writes.len(), stale: changes.stale.len(), flush: changes.flush })
    }

    fn map(&mut self, addr: u64, frame: u64, pages: u32, prot: Prot) -> (u64, u64) {
        self.memory.insert(&Mapping { addr, frame_offset: frame * PAGE, pages, prot });
        (addr, u64::from(pages) * PAGE)
    }

    fn unmap(&mut self, addr: u64, pages: u64) -> (u64, u64) {
        self.memory.remove(addr, pages * PAGE);
        (addr, pages * PAGE)
    }
}

/// Pages from an address on.
fn pages(addr: u64, count: u64) -> Vec<u64> {
    (0..count).map(|n| addr + n * PAGE).collect()
}

const HERE: u64 = 3 * CHUNK + 100 * PAGE;

#[test]
fn what_the_processor_never_saw_takes_no_writes() {
    let mut p = Processor::new();
    let range = p.map(HERE, 7, 50, Prot::RW);
    let asked = p.update(&[range], &pages(HERE - PAGE, 52)).unwrap();
    assert_eq!(asked, Asked { writes: 0, stale: 0, flush: false });
}

#[test]
fn few_changes_are_written_one_by_one_and_more_by_a_new_table() {
    for (count, want) in [
        (FEW as u64, Asked { writes: FEW, stale: FEW, flush: false }),
        (FEW as u64 + 1, Asked { writes: 1, stale: 0, flush: true }),
    ] {
        let mut p = Processor::new();
        let range = p.map(HERE, 7, 50, Prot::RW);
        p.update(&[range], &pages(HERE, 50)).unwrap();
        let taken = p.pool.next;
        let range = p.unmap(HERE + 3 * PAGE, count);
        assert_eq!(p.update(&[range], &pages(HERE - PAGE, 52)).unwrap(), want);
        assert_eq!(p.pool.next - taken, if want.flush { PAGE } else { 0 });
        // The new table is as live as the old one was.
        let range = p.map(HERE, 1000, 2, Prot::RX);
        let asked = p.update(&[range], &pages(HERE - PAGE, 52)).unwrap();
        assert_eq!(asked, Asked { writes: 2, stale: 2, flush: false });
    }
}

#[test]
fn what_was_not_there_is_not_stale() {
    let mut p = Processor::new();
    let range = p.map(HERE, 7, 1, Prot::R);
    p.update(&[range], &[HERE]).unwrap();
    let range = p.map(HERE + PAGE, 20, 3, Prot::RW);
    let asked = p.update(&[range], &pages(HERE, 5)).unwrap();
    assert_eq!(asked, Asked { writes: 3, stale: 0, flush: false });
    // A new table is linked into a live one: one write, and nothing of it was cached.
    let range = p.map(HERE + CHUNK, 30, 40, Prot::RW);
    let asked = p.update(&[range], &pages(HERE + CHUNK, 41)).unwrap();
    assert_eq!(asked, Asked { writes: 1, stale: 0, flush: false });
}

#[test]
fn more_stale_pages_than_fit_flush_all() {
    let mut p = Processor::new();
    let ranges: Vec<_> = (0..20).map(|n| p.map(n * CHUNK, 10 * n, 4, Prot::RW)).collect();
    let probes: Vec<u64> = (0..20).flat_map(|n| pages(n * CHUNK, 4)).collect();
    p.update(&ranges, &probes).unwrap();
    let fitting = STALE_MAX as u64;
    let ranges: Vec<_> = (0..fitting).map(|n| p.unmap(n * CHUNK, 1)).collect();
    let asked = p.update(&ranges, &probes).unwrap();
    assert_eq!(asked, Asked { writes: STALE_MAX, stale: STALE_MAX, flush: false });
    let ranges: Vec<_> = (0..=fitting).map(|n| p.unmap(n * CHUNK + PAGE, 1)).collect();
    let asked = p.update(&ranges, &probes).unwrap();
    assert_eq!((asked.writes, asked.flush), (STALE_MAX + 1, true));
}

#[test]
fn ranges_of_one_chunk_are_merged() {
    let mut p = Processor::new();
    p.map(HERE, 7, 1, Prot::RW);
    p.map(HERE + 50 * PAGE, 70, 1, Prot::RW);
    // Reaches into the next two chunks, of which the last maps something.
    p.map(5 * CHUNK, 90, 2, Prot::R);
    let parts = p.tables.chunks(
        &p.memory,
        &[(HERE + 50 * PAGE, PAGE), (HERE, PAGE), (HERE + 90 * PAGE, 2 * CHUNK), (9 * CHUNK, CHUNK), (0, 0)],
    );
    let want = [(3, (HERE, HERE + 51 * PAGE)), (5, (5 * CHUNK, HERE + 90 * PAGE + 2 * CHUNK))];
    assert_eq!(parts.into_iter().collect::<Vec<_>>(), want);
    // All there is.
    let parts = p.tables.chunks(&p.memory, &[(0, bloodhound_platform::GUEST_TOP)]);
    assert_eq!(parts.keys().copied().collect::<Vec<_>>(), [3, 5]);
}

#[test]
fn an_empty_pool_and_too_many_writes_are_told() {
    let mut p = Processor::new();
    let range = p.map(HERE, 1, 1, Prot::RW);
    p.update(&[range], &[HERE]).unwrap();
    // Each page in a table of its own: the pool has room for 16 Ki less what is used.
    let room = (LOW_END - p.pool.next) / PAGE;
    let ranges: Vec<_> = (0..room + 1).map(|n| p.map((n + 10) * CHUNK, 2, 1, Prot::RW)).collect();
    let mut pool = Pool { next: p.pool.next, fresh_from: p.pool.next };
    let mut fresh = Tables::new(&p.low, &mut pool).unwrap();
    let mut changes = Changes::default();
    let done = fresh.update((&p.low, &mut pool), &p.memory, &ranges, &mut changes);
    assert!(done.is_err() && pool.next == LOW_END);
    assert!(pool.take().is_err());
    // A live tree whose tables change a little everywhere.
    let mut p = Processor::new();
    let many = WRITES_MAX as u64;
    let ranges: Vec<_> = (0..many).map(|n| p.map(n * CHUNK, 3, 2, Prot::RW)).collect();
    p.update(&ranges, &[]).unwrap();
    let ranges: Vec<_> = (0..many).map(|n| p.unmap(n * CHUNK, 1)).collect();
    assert!(p.update(&ranges, &[]).is_err());
    let mut p = Processor::new();
    let fitting = many - 64;
    let ranges: Vec<_> = (0..fitting).map(|n| p.map(n * CHUNK, 3, 2, Prot::RW)).collect();
    p.update(&ranges, &[]).unwrap();
    let ranges: Vec<_> = (0..fitting).map(|n| p.unmap(n * CHUNK, 1)).collect();
    assert_eq!(p.update(&ranges, &[0, PAGE]).unwrap().writes as u64, fitting);
}

#[test]
fn random_changes_show_what_the_list_says() {
    for seed in 0..8 {
        let mut random = Random(seed);
        let mut p = Processor::new();
        // Around the edges of tables of each level, and the first and last page.
        let bases = [0, CHUNK, 1 << 30, 1 << 39, bloodhound_platform::GUEST_TOP];
        for _ in 0..400 {
            let mut ranges = Vec::new();
            let mut probes = Vec::new();
            for _ in 0..1 + random.below(4) {
                let base = bases[random.below(5) as usize];
                let count = if random.below(3) == 0 { 1 + random.below(700) } else { 1 + random.below(12) };
                let addr = (base + random.below(20) * PAGE).saturating_sub(random.below(600) * PAGE);
                let count = count.min((bloodhound_platform::GUEST_TOP.saturating_sub(addr)) / PAGE);
                if count == 0 {
                    continue;
                }
                probes.extend(pages(addr.saturating_sub(PAGE), count + 2));
                match random.below(8) {
                    0..=3 => {
                        let prot = [Prot::R, Prot::RW, Prot::RX, Prot::RWX, Prot::default()];
                        let prot = prot[random.below(5) as usize];
                        ranges.push(p.map(addr, random.below(1 << 18), count as u32, prot));
                    }
                    4..=6 => ranges.push(p.unmap(addr, count)),
                    _ => p.memory.write_protect(|addr, len, _| ranges.push((addr, len))),
                }
            }
            probes.retain(|addr| *addr < bloodhound_platform::GUEST_TOP);
            p.update(&ranges, &probes).unwrap();
        }
    }
}
