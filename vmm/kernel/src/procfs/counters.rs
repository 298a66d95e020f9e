//! Files that count what has happened: /proc/vmstat, /proc/softirqs and /proc/net/softnet_stat, with the names of Linux 6.1 and in its order. What
//! is not counted here is 0, as on a machine on which it has not happened. Neighbours: `mib` counts packets.

use super::{View, system};

/// `vmstat_text` of Linux, for one node with the zones of x86-64 and what the configuration has ([`super::config`]).
const VM: &str = "nr_free_pages nr_zone_inactive_anon nr_zone_active_anon nr_zone_inactive_file nr_zone_active_file \
    nr_zone_unevictable nr_zone_write_pending nr_mlock nr_bounce nr_free_cma numa_hit numa_miss \
    numa_foreign numa_interleave numa_local numa_other nr_inactive_anon nr_active_anon nr_inactive_file \
    nr_active_file nr_unevictable nr_slab_reclaimable nr_slab_unreclaimable nr_isolated_anon nr_isolated_file \
    workingset_nodes workingset_refault_anon workingset_refault_file workingset_activate_anon \
    workingset_activate_file workingset_restore_anon workingset_restore_file workingset_nodereclaim nr_anon_pages \
    nr_mapped nr_file_pages nr_dirty nr_writeback nr_writeback_temp nr_shmem nr_shmem_hugepages nr_shmem_pmdmapped \
    nr_file_hugepages nr_file_pmdmapped nr_anon_transparent_hugepages nr_vmscan_write nr_vmscan_immediate_reclaim \
    nr_dirtied nr_written nr_throttled_written nr_kernel_misc_reclaimable nr_foll_pin_acquired nr_foll_pin_released \
    nr_kernel_stack nr_page_table_pages nr_sec_page_table_pages nr_swapcached pgpromote_success pgpromote_candidate \
    nr_dirty_threshold nr_dirty_background_threshold pgpgin pgpgout pswpin pswpout pgalloc_dma pgalloc_dma32 \
    pgalloc_normal pgalloc_movable allocstall_dma allocstall_dma32 allocstall_normal allocstall_movable pgskip_dma \
    pgskip_dma32 pgskip_normal pgskip_movable pgfree pgactivate pgdeactivate pglazyfree pgfault pgmajfault \
    pglazyfreed pgrefill pgreuse pgsteal_kswapd pgsteal_direct pgdemote_kswapd pgdemote_direct pgscan_kswapd \
    pgscan_direct pgscan_direct_throttle pgscan_anon pgscan_file pgsteal_anon pgsteal_file zone_reclaim_failed \
    pginodesteal slabs_scanned kswapd_inodesteal kswapd_low_wmark_hit_quickly kswapd_high_wmark_hit_quickly \
    pageoutrun pgrotated drop_pagecache drop_slab oom_kill numa_pte_updates numa_huge_pte_updates numa_hint_faults \
    numa_hint_faults_local numa_pages_migrated pgmigrate_success pgmigrate_fail thp_migration_success \
    thp_migration_fail thp_migration_split compact_migrate_scanned compact_free_scanned compact_isolated \
    compact_stall compact_fail compact_success compact_daemon_wake compact_daemon_migrate_scanned \
    compact_daemon_free_scanned unevictable_pgs_culled \
    unevictable_pgs_scanned unevictable_pgs_rescued unevictable_pgs_mlocked unevictable_pgs_munlocked \
    unevictable_pgs_cleared unevictable_pgs_stranded thp_fault_alloc thp_fault_fallback thp_fault_fallback_charge \
    thp_collapse_alloc thp_collapse_alloc_failed thp_file_alloc thp_file_fallback thp_file_fallback_charge \
    thp_file_mapped thp_split_page thp_split_page_failed thp_deferred_split_page thp_split_pmd \
    thp_scan_exceed_none_pte thp_scan_exceed_swap_pte thp_scan_exceed_share_pte thp_zero_page_alloc \
    thp_zero_page_alloc_failed thp_swpout thp_swpout_fallback balloon_inflate balloon_deflate balloon_migrate swap_ra \
    swap_ra_hit direct_map_level2_splits direct_map_level3_splits nr_unstable";

/// "name value" for each, 0 where nothing is said.
pub(super) fn value(of: &[(&str, i64)], name: &str) -> i64 {
    of.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// Of each processor: packets that it has handled and dropped, and more (`softnet_seq_show`).
pub(super) fn softnet_stat(view: &View<'_>) -> String {
    let handled: u64 = view.stack().counters().ip.iter().map(|ip| ip.received.packets).sum();
    format!("{:08x} {}\n", handled as u32, ["00000000"; 12].join(" "))
}

pub(super) fn softirqs(_: &View<'_>) -> String {
    let names =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    let rows: String = names.iter().map(|name| format!("{name:>12}: {:>10}\n", 0)).collect();
    format!("{:20}CPU{:<8}\n{rows}", "", 0)
}

/// Those of a zone.
pub(super) fn zone_items() -> impl Iterator<Item = &'static str> {
    VM.split(' ').take_while(|name| *name != "numa_hit")
}

/// Those of a zone that count where its pages went.
pub(super) fn zone_events() -> impl Iterator<Item = &'static str> {
    VM.split(' ').skip_while(|name| *name != "numa_hit").take_while(|name| *name != "nr_inactive_anon")
}

/// Those of a node.
pub(super) fn node_items() -> impl Iterator<Item = &'static str> {
    VM.split(' ')
        .skip_while(|name| *name != "nr_inactive_anon")
        .take_while(|name| *name != "nr_dirty_threshold")
}

pub(super) fn vmstat(view: &View<'_>) -> String {
    let values = vm_values(view);
    VM.split(' ').map(|name| format!("{name} {}\n", value(&values, name))).collect()
}

/// Pages as /proc/meminfo tells them in KiB; nothing is written back or counted by faults.
pub(super) fn vm_values(view: &View<'_>) -> Vec<(&'static str, i64)> {
    let rows = system::memory_rows(view);
    let kib = |name: &str| rows.iter().find(|(known, _)| *known == name).map_or(0, |(_, kib)| *kib as i64);
    let pages = |name: &str| kib(name) / 4;
    let available = pages("MemAvailable");
    vec![
        ("nr_free_pages", pages("MemFree")),
        ("nr_zone_inactive_anon", pages("Inactive(anon)")),
        ("nr_zone_active_anon", pages("Active(anon)")),
        ("nr_zone_inactive_file", pages("Inactive(file)")),
        ("nr_zone_active_file", pages("Active(file)")),
        ("nr_inactive_anon", pages("Inactive(anon)")),
        ("nr_active_anon", pages("Active(anon)")),
        ("nr_inactive_file", pages("Inactive(file)")),
        ("nr_active_file", pages("Active(file)")),
        ("nr_slab_reclaimable", pages("SReclaimable")),
        ("nr_slab_unreclaimable", pages("SUnreclaim")),
        ("nr_anon_pages", pages("AnonPages")),
        ("nr_mapped", pages("Mapped")),
        ("nr_file_pages", pages("Cached")),
        ("nr_shmem", pages("Shmem")),
        // In KiB.
        ("nr_kernel_stack", kib("KernelStack")),
        ("nr_page_table_pages", pages("PageTables")),
        // vm.dirty_ratio and dirty_background_ratio of what is available.
        ("nr_dirty_threshold", available / 5),
        ("nr_dirty_background_threshold", available / 10),
    ]
}
