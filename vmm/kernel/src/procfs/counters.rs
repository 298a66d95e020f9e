//! Files that count what has happened: /proc/vmstat, /proc/softirqs, and netstat, snmp, snmp6 and softnet_stat of /proc/net, with the
//! names of Linux 6.1 and in its order. What is not counted here is 0, as on a machine on which it has not happened.

use bloodhound_net::{Proto, TcpState};

use super::{View, system};
use crate::inet;

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

/// `snmp4_ipstats_list`, with what goes before it.
const IP: &str = "Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards \
    InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails \
    FragCreates";
/// `icmpmibmap` and what is beside it.
const ICMP: &str = "InMsgs InErrors InCsumErrors InDestUnreachs InTimeExcds InParmProbs InSrcQuenchs InRedirects \
    InEchos InEchoReps InTimestamps InTimestampReps InAddrMasks InAddrMaskReps OutMsgs OutErrors OutDestUnreachs \
    OutTimeExcds OutParmProbs OutSrcQuenchs OutRedirects OutEchos OutEchoReps OutTimestamps OutTimestampReps \
    OutAddrMasks OutAddrMaskReps";
/// `snmp4_tcp_list`.
const TCP: &str = "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab \
    InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors";
/// `snmp4_udp_list`.
const UDP: &str = "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti \
    MemErrors";
/// `snmp4_net_list`.
const TCP_EXT: &str = "SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled RcvPruned OfoPruned \
    OutOfWindowIcmps LockDroppedIcmps ArpFilter TW TWRecycled TWKilled PAWSActive PAWSEstab DelayedACKs \
    DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPHPHits TCPPureAcks TCPHPAcks TCPRenoRecovery \
    TCPSackRecovery TCPSACKReneging TCPSACKReorder TCPRenoReorder TCPTSReorder TCPFullUndo TCPPartialUndo \
    TCPDSACKUndo TCPLossUndo TCPLostRetransmit TCPRenoFailures TCPSackFailures TCPLossFailures TCPFastRetrans \
    TCPSlowStartRetrans TCPTimeouts TCPLossProbes TCPLossProbeRecovery TCPRenoRecoveryFail TCPSackRecoveryFail \
    TCPRcvCollapsed TCPBacklogCoalesce TCPDSACKOldSent TCPDSACKOfoSent TCPDSACKRecv TCPDSACKOfoRecv TCPAbortOnData \
    TCPAbortOnClose TCPAbortOnMemory TCPAbortOnTimeout TCPAbortOnLinger TCPAbortFailed TCPMemoryPressures \
    TCPMemoryPressuresChrono TCPSACKDiscard TCPDSACKIgnoredOld TCPDSACKIgnoredNoUndo TCPSpuriousRTOs TCPMD5NotFound \
    TCPMD5Unexpected TCPMD5Failure TCPSackShifted TCPSackMerged TCPSackShiftFallback TCPBacklogDrop PFMemallocDrop \
    TCPMinTTLDrop TCPDeferAcceptDrop IPReversePathFilter TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop \
    TCPRetransFail TCPRcvCoalesce TCPOFOQueue TCPOFODrop TCPOFOMerge TCPChallengeACK TCPSYNChallenge \
    TCPFastOpenActive TCPFastOpenActiveFail TCPFastOpenPassive TCPFastOpenPassiveFail TCPFastOpenListenOverflow \
    TCPFastOpenCookieReqd TCPFastOpenBlackhole TCPSpuriousRtxHostQueues BusyPollRxPackets TCPAutoCorking \
    TCPFromZeroWindowAdv TCPToZeroWindowAdv TCPWantZeroWindowAdv TCPSynRetrans TCPOrigDataSent TCPHystartTrainDetect \
    TCPHystartTrainCwnd TCPHystartDelayDetect TCPHystartDelayCwnd TCPACKSkippedSynRecv TCPACKSkippedPAWS \
    TCPACKSkippedSeq TCPACKSkippedFinWait2 TCPACKSkippedTimeWait TCPACKSkippedChallenge TCPWinProbe TCPKeepAlive \
    TCPMTUPFail TCPMTUPSuccess TCPDelivered TCPDeliveredCE TCPAckCompressed TCPZeroWindowDrop TCPRcvQDrop \
    TCPWqueueTooBig TCPFastOpenPassiveAltKey TcpTimeoutRehash TcpDuplicateDataRehash TCPDSACKRecvSegs \
    TCPDSACKIgnoredDubious TCPMigrateReqSuccess TCPMigrateReqFailure";
/// `snmp4_ipextstats_list`.
const IP_EXT: &str = "InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets OutOctets \
    InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets InCsumErrors InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts \
    ReasmOverlaps";
/// `snmp6_seq_show`.
const SNMP6: &str = "Ip6InReceives Ip6InHdrErrors Ip6InTooBigErrors Ip6InNoRoutes Ip6InAddrErrors Ip6InUnknownProtos \
    Ip6InTruncatedPkts Ip6InDiscards Ip6InDelivers Ip6OutForwDatagrams Ip6OutRequests Ip6OutDiscards Ip6OutNoRoutes \
    Ip6ReasmTimeout Ip6ReasmReqds Ip6ReasmOKs Ip6ReasmFails Ip6FragOKs Ip6FragFails Ip6FragCreates Ip6InMcastPkts \
    Ip6OutMcastPkts Ip6InOctets Ip6OutOctets Ip6InMcastOctets Ip6OutMcastOctets Ip6InBcastOctets Ip6OutBcastOctets \
    Ip6InNoECTPkts Ip6InECT1Pkts Ip6InECT0Pkts Ip6InCEPkts Icmp6InMsgs Icmp6InErrors Icmp6OutMsgs Icmp6OutErrors \
    Icmp6InCsumErrors Icmp6InDestUnreachs Icmp6InPktTooBigs Icmp6InTimeExcds Icmp6InParmProblems Icmp6InEchos \
    Icmp6InEchoReplies Icmp6InGroupMembQueries Icmp6InGroupMembResponses Icmp6InGroupMembReductions \
    Icmp6InRouterSolicits Icmp6InRouterAdvertisements Icmp6InNeighborSolicits Icmp6InNeighborAdvertisements \
    Icmp6InRedirects Icmp6InMLDv2Reports Icmp6OutDestUnreachs Icmp6OutPktTooBigs Icmp6OutTimeExcds \
    Icmp6OutParmProblems Icmp6OutEchos Icmp6OutEchoReplies Icmp6OutGroupMembQueries Icmp6OutGroupMembResponses \
    Icmp6OutGroupMembReductions Icmp6OutRouterSolicits Icmp6OutRouterAdvertisements Icmp6OutNeighborSolicits \
    Icmp6OutNeighborAdvertisements Icmp6OutRedirects Icmp6OutMLDv2Reports Udp6InDatagrams Udp6NoPorts Udp6InErrors \
    Udp6OutDatagrams Udp6RcvbufErrors Udp6SndbufErrors Udp6InCsumErrors Udp6IgnoredMulti Udp6MemErrors \
    UdpLite6InDatagrams UdpLite6NoPorts UdpLite6InErrors UdpLite6OutDatagrams UdpLite6RcvbufErrors \
    UdpLite6SndbufErrors UdpLite6InCsumErrors UdpLite6MemErrors";

/// "name value" for each, 0 where nothing is said.
pub(super) fn value(of: &[(&str, i64)], name: &str) -> i64 {
    of.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// Two lines, of names and of values.
fn pair(group: &str, names: &str, values: &[(&str, i64)]) -> String {
    let values: String = names.split(' ').map(|name| format!(" {}", value(values, name))).collect();
    format!("{group}: {names}\n{group}:{values}\n")
}

/// "the Simple Network Management Protocol (SNMP) agent [...] IP, ICMP, TCP, and UDP management information bases" (proc(5)).
pub(super) fn snmp(view: &View<'_>) -> String {
    // TCP_MIB_CURRESTAB: those that are established or wait to be closed.
    let current = [false, true].into_iter().flat_map(|v6| inet::infos(view.node, view.net(), Proto::Tcp, v6));
    let current = current.filter(|s| matches!(s.state, TcpState::Established | TcpState::CloseWait)).count();
    let tcp = [
        ("RtoAlgorithm", 1),
        ("RtoMin", 200),
        ("RtoMax", 120_000),
        ("MaxConn", -1),
        ("CurrEstab", current as i64),
    ];
    [
        // 2: it forwards nothing.
        pair("Ip", IP, &[("Forwarding", 2), ("DefaultTTL", 64)]),
        pair("Icmp", ICMP, &[]),
        pair("Tcp", TCP, &tcp),
        pair("Udp", UDP, &[]),
        pair("UdpLite", UDP, &[]),
    ]
    .concat()
}

pub(super) fn netstat(_: &View<'_>) -> String {
    pair("TcpExt", TCP_EXT, &[]) + &pair("IpExt", IP_EXT, &[])
}

pub(super) fn snmp6(_: &View<'_>) -> String {
    SNMP6.split(' ').map(|name| format!("{name:<32}\t0\n")).collect()
}

/// Of each processor: packets that it has handled and dropped, and more (`softnet_seq_show`).
pub(super) fn softnet_stat(_: &View<'_>) -> String {
    ["00000000"; 13].join(" ") + "\n"
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
