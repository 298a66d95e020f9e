//! How the machine's memory lies in zones, and in which pieces it is free: /proc/zoneinfo, /proc/buddyinfo, /proc/pagetypeinfo, in the form
//! of Linux 6.1 on one node of x86-64.
//!
//! The sums are those of /proc/meminfo and /proc/vmstat. What is used and not said of a zone is in the highest.

use super::{View, counters, system};

/// MAX_ORDER: free memory is kept in pieces of up to 2^10 pages.
const ORDERS: u32 = 11;
/// The zones, with their first pages; those of the last are none.
const ZONES: [(&str, u64); 4] = [("DMA", 1), ("DMA32", 4096), ("Normal", 1 << 20), ("Movable", 0)];
/// Managed pages of ZONE_DMA: its 16 MiB less what firmware and kernel have there.
const LOWEST: u64 = 3840;
/// Where the memory below 4 GiB ends: devices are behind it.
const HOLE: u64 = 3 << 18;
/// vm.min_free_kbytes, vm.watermark_scale_factor, vm.lowmem_reserve_ratio.
const MIN_FREE_KIB: u64 = 67_584;
const SCALE: u64 = 10;
const RESERVES: [u64; 4] = [256, 256, 32, 0];
/// `migratetype_names`, without CMA and isolation; and a block of pages of one kind, which is the largest piece without hugetlbfs.
const KINDS: [&str; 4] = ["Unmovable", "Movable", "Reclaimable", "HighAtomic"];
const BLOCK: u32 = ORDERS - 1;

struct Zone {
    name: &'static str,
    start: u64,
    /// Pages from its beginning to its end, those of them that there are, and those that programs and the kernel can have.
    spanned: u64,
    present: u64,
    managed: u64,
    free: u64,
}

fn zones(view: &View<'_>) -> Vec<Zone> {
    let (total, free) = system::memory_kib(view.node);
    let (mut managed, mut free) = (total / 4, free / 4);
    let bounds = [LOWEST, HOLE - ZONES[1].1, u64::MAX, 0];
    let mut out = Vec::new();
    for ((name, start), bound) in ZONES.into_iter().zip(bounds) {
        let own = managed.min(bound);
        managed -= own;
        let present = if name == "DMA" && own > 0 { ZONES[1].1 - start } else { own };
        let spanned = if name == "DMA32" && managed > 0 { ZONES[2].1 - start } else { present };
        out.push(Zone { name, start, spanned, present, managed: own, free: 0 });
    }
    // What is low is taken last (the zonelist of an allocation).
    for zone in &mut out {
        zone.free = zone.managed.min(free);
        free -= zone.free;
    }
    out
}

/// How many pieces of each size so many free pages are.
fn pieces(free: u64) -> impl Iterator<Item = u64> {
    (0..ORDERS).map(move |order| if order == BLOCK { free >> order } else { free >> order & 1 })
}

/// /proc/buddyinfo.
pub(super) fn buddyinfo(view: &View<'_>) -> String {
    let zones = zones(view);
    let line = |zone: &Zone| {
        let counts: String = pieces(zone.free).map(|count| format!("{count:>6} ")).collect();
        format!("Node 0, zone {:>8} {counts}\n", zone.name)
    };
    zones.iter().filter(|zone| zone.managed > 0).map(line).collect()
}

/// /proc/pagetypeinfo: all that is free is movable.
pub(super) fn pagetypeinfo(view: &View<'_>) -> String {
    let zones = zones(view);
    let populated = || zones.iter().filter(|zone| zone.managed > 0);
    let mut out = format!("Page block order: {BLOCK}\nPages per block:  {}\n\n", 1 << BLOCK);
    let orders: String = (0..ORDERS).map(|order| format!("{order:>6} ")).collect();
    out += &format!("{:<43} {orders}\n", "Free pages count per migrate type at order");
    for zone in populated() {
        for kind in KINDS {
            let free = if kind == "Movable" { zone.free } else { 0 };
            let counts: String = pieces(free).map(|count| format!("{count:>6} ")).collect();
            out += &format!("Node {:>4}, zone {:>8}, type {kind:>12} {counts}\n", 0, zone.name);
        }
    }
    let kinds: String = KINDS.iter().map(|kind| format!("{kind:>12} ")).collect();
    out += &format!("\n{:<23}{kinds}\n", "Number of blocks type ");
    for zone in populated() {
        let blocks = zone.present >> BLOCK;
        let free = zone.free >> BLOCK;
        let counts: String = [blocks - free, free, 0, 0].map(|count| format!("{count:>12} ")).concat();
        out += &format!("Node 0, zone {:>8} {counts}\n", zone.name);
    }
    out
}

/// /proc/zoneinfo (`zoneinfo_show_print`).
pub(super) fn zoneinfo(view: &View<'_>) -> String {
    let zones = zones(view);
    let values = counters::vm_values(view);
    let all: u64 = zones.iter().map(|zone| zone.managed).sum();
    let highest = zones.iter().rposition(|zone| zone.managed > 0);
    let mut out = String::new();
    for (at, zone) in zones.iter().enumerate() {
        out += &format!("Node 0, zone {:>8}", zone.name);
        if at == 0 {
            out += "\n  per-node stats";
            counters::node_items().for_each(|name| out += &item(name, counters::value(&values, name)));
        }
        // __setup_per_zone_wmarks.
        let min = MIN_FREE_KIB / 4 * zone.managed / all.max(1);
        let step = (min / 4).max(zone.managed * SCALE / 10_000);
        let rows = [
            ("pages free     ", zone.free),
            ("      boost    ", 0),
            ("      min      ", min),
            ("      low      ", min + step),
            ("      high     ", min + 2 * step),
            ("      spanned  ", zone.spanned),
            ("      present  ", zone.present),
            ("      managed  ", zone.managed),
            ("      cma      ", 0),
        ];
        rows.iter().for_each(|(name, pages)| out += &format!("\n  {name}{pages}"));
        out += &format!("\n        protection: ({})", protection(&zones, at));
        if zone.managed > 0 {
            for name in counters::zone_items() {
                let value = match name {
                    "nr_free_pages" => zone.free as i64,
                    _ if Some(at) == highest => counters::value(&values, name),
                    _ => 0,
                };
                out += &item(name, value);
            }
            counters::zone_events().for_each(|name| out += &item(name, 0));
            out += &processor(zone, min + step);
        }
        out.push('\n');
    }
    out
}

fn item(name: &str, value: i64) -> String {
    format!("\n      {name:<12} {value}")
}

/// Pages that allocations for higher zones leave in this one (`setup_per_zone_lowmem_reserve`).
fn protection(zones: &[Zone], at: usize) -> String {
    let reserve = |upper: usize| {
        let above: u64 = zones.iter().take(upper + 1).skip(at + 1).map(|zone| zone.managed).sum();
        let kept = zones[at].managed > 0 && RESERVES[at] > 0;
        if kept { above / RESERVES[at] } else { 0 }
    };
    (0..zones.len()).map(|upper| reserve(upper).to_string()).collect::<Vec<_>>().join(", ")
}

/// The lists of the one processor (`zone_batchsize`, `calculate_normal_threshold`), and what stands behind them.
fn processor(zone: &Zone, high: u64) -> String {
    let size = (zone.managed >> 10).min(256) / 4;
    let size = size.max(1);
    let batch = ((1 << (size + size / 2).ilog2()) - 1).max(1);
    let threshold = (2 * (1 + (u64::BITS - (zone.managed >> 15).leading_zeros()))).min(125);
    format!(
        "\n  pagesets\n    cpu: 0\n              count: 0\n              high:  {}\n              batch: {batch}\
         \n  vm stats threshold: {threshold}\n  node_unreclaimable:  0\n  start_pfn:           {}",
        high.max(batch << 2),
        zone.start
    )
}
