//! What the network has counted: netstat, snmp and snmp6 of /proc/net, with the names of Linux 6.1 and in its order ([`Counters`] says what is
//! counted). The other names are 0, as on a machine on which that has not happened.

use bloodhound_net::{Counters, IcmpCounters, IpCounters, Proto, TcpState, UdpCounters};

use super::View;
use super::counters::value;
use crate::inet;

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

type Values = Vec<(&'static str, i64)>;

/// Two lines, of names and of values.
fn pair(group: &str, names: &str, values: &[(&str, i64)]) -> String {
    let values: String = names.split(' ').map(|name| format!(" {}", value(values, name))).collect();
    format!("{group}: {names}\n{group}:{values}\n")
}

fn signed<const N: usize>(values: [(&'static str, u64); N]) -> Values {
    values.map(|(name, value)| (name, value as i64)).to_vec()
}

fn ip(of: &IpCounters) -> Values {
    let [[mcast_in, mcast_out], [bcast_in, bcast_out]] = [of.multicast, of.broadcast];
    signed([
        ("InReceives", of.received.packets),
        ("InDelivers", of.delivered),
        ("InUnknownProtos", of.unknown_protocol),
        ("OutRequests", of.sent.packets),
        ("InOctets", of.received.bytes),
        ("OutOctets", of.sent.bytes),
        ("InMcastPkts", mcast_in.packets),
        ("InMcastOctets", mcast_in.bytes),
        ("OutMcastPkts", mcast_out.packets),
        ("OutMcastOctets", mcast_out.bytes),
        ("InBcastPkts", bcast_in.packets),
        ("InBcastOctets", bcast_in.bytes),
        ("OutBcastPkts", bcast_out.packets),
        ("OutBcastOctets", bcast_out.bytes),
        ("InNoECTPkts", of.marked[0]),
        ("InECT1Pkts", of.marked[1]),
        ("InECT0Pkts", of.marked[2]),
        ("InCEPkts", of.marked[3]),
    ])
}

fn icmp(of: &IcmpCounters, [echo, reply]: [[&'static str; 2]; 2]) -> Values {
    signed([
        ("InMsgs", of.messages[0]),
        ("OutMsgs", of.messages[1]),
        ("InErrors", of.errors),
        ("InCsumErrors", of.damaged),
        ("InDestUnreachs", of.unreachable[0]),
        ("OutDestUnreachs", of.unreachable[1]),
        (echo[0], of.echos[0]),
        (echo[1], of.echos[1]),
        (reply[0], of.echo_replies[0]),
        (reply[1], of.echo_replies[1]),
    ])
}

/// Counters of types of messages of which there were some; `types` are those of reports, requests for an echo and answers.
fn icmp_types(of: &IcmpCounters, types: [u8; 3]) -> Vec<(String, u64)> {
    let counters = [of.unreachable, of.echos, of.echo_replies];
    let mut out = Vec::new();
    for (way, direction) in ["In", "Out"].into_iter().enumerate() {
        let mut known: Vec<(u8, u64)> = types.into_iter().zip(counters.map(|both| both[way])).collect();
        known.sort_unstable();
        let some = known.into_iter().filter(|(_, count)| *count > 0);
        out.extend(some.map(|(kind, count)| (format!("{direction}Type{kind}"), count)));
    }
    out
}

fn udp(of: &UdpCounters) -> Values {
    signed([
        ("InDatagrams", of.received),
        ("NoPorts", of.no_port),
        ("InErrors", of.errors()),
        ("OutDatagrams", of.sent),
        ("RcvbufErrors", of.no_room),
        ("InCsumErrors", of.damaged),
        ("IgnoredMulti", of.ignored_for_many),
    ])
}

/// "the Simple Network Management Protocol (SNMP) agent [...] IP, ICMP, TCP, and UDP management information bases" (proc(5)).
pub(super) fn snmp(view: &View<'_>) -> String {
    let of = view.stack().counters();
    // TCP_MIB_CURRESTAB: those that are established or wait to be closed.
    let current = [false, true].into_iter().flat_map(|v6| inet::infos(view.node, view.net(), Proto::Tcp, v6));
    let current = current.filter(|s| matches!(s.state, TcpState::Established | TcpState::CloseWait)).count();
    let mut ip = ip(&of.ip[0]);
    // 2: it forwards nothing.
    ip.extend([("Forwarding", 2), ("DefaultTTL", 64)]);
    let types = icmp_types(&of.icmp[0], [3, 8, 0]);
    let joined = |texts: Vec<String>| texts.concat();
    let messages = match types.is_empty() {
        true => String::new(),
        false => format!(
            "IcmpMsg:{}\nIcmpMsg:{}\n",
            joined(types.iter().map(|(name, _)| format!(" {name}")).collect()),
            joined(types.iter().map(|(_, count)| format!(" {count}")).collect())
        ),
    };
    [
        pair("Ip", IP, &ip),
        pair("Icmp", ICMP, &icmp(&of.icmp[0], [["InEchos", "OutEchos"], ["InEchoReps", "OutEchoReps"]])),
        messages,
        pair("Tcp", TCP, &tcp(of, current as i64)),
        pair("Udp", UDP, &udp(&of.udp[0])),
        pair("UdpLite", UDP, &udp(&of.udplite[0])),
    ]
    .concat()
}

fn tcp(of: &Counters, current: i64) -> Values {
    let of = &of.tcp;
    let mut values = signed([
        ("ActiveOpens", of.active_opens),
        ("PassiveOpens", of.passive_opens),
        ("AttemptFails", of.attempts_failed),
        ("EstabResets", of.resets),
        ("InSegs", of.received),
        ("OutSegs", of.out_segs()),
        ("RetransSegs", of.retransmitted()),
        ("OutRsts", of.resets_sent),
    ]);
    values.extend([
        ("RtoAlgorithm", 1),
        ("RtoMin", 200),
        ("RtoMax", 120_000),
        ("MaxConn", -1),
        ("CurrEstab", current),
    ]);
    values
}

pub(super) fn netstat(view: &View<'_>) -> String {
    let of = view.stack().counters();
    let tcp = &of.tcp;
    let extended = signed([
        ("EmbryonicRsts", tcp.embryonic_resets),
        ("TW", tcp.time_waits),
        ("DelayedACKs", tcp.delayed_acks),
        ("ListenOverflows", tcp.listen_overflows),
        ("ListenDrops", tcp.listen_drops),
        ("TCPFastRetrans", tcp.fast_retransmits),
        ("TCPTimeouts", tcp.timeouts),
        ("TCPAbortOnTimeout", tcp.aborted_on_timeout),
        ("TCPSynRetrans", tcp.resent_syns + tcp.resent_by_listeners),
        ("TCPKeepAlive", tcp.keep_alives),
    ]);
    pair("TcpExt", TCP_EXT, &extended) + &pair("IpExt", IP_EXT, &ip(&of.ip[0]))
}

pub(super) fn snmp6(view: &View<'_>) -> String {
    let of = view.stack().counters();
    let echos = [["InEchos", "OutEchos"], ["InEchoReplies", "OutEchoReplies"]];
    let groups = [
        ("Ip6", ip(&of.ip[1])),
        ("Icmp6", icmp(&of.icmp[1], echos)),
        ("Udp6", udp(&of.udp[1])),
        ("UdpLite6", udp(&of.udplite[1])),
    ];
    let mut types = icmp_types(&of.icmp[1], [1, 128, 129]);
    let mut out = String::new();
    for name in SNMP6.split(' ') {
        // Those of types of messages come behind the other ones of ICMPv6.
        if name.starts_with("Udp6") {
            let lines =
                types.drain(..).map(|(name, count)| format!("{:<32}\t{count}\n", format!("Icmp6{name}")));
            out.push_str(&lines.collect::<String>());
        }
        let known = groups.iter().find_map(|(group, values)| Some((name.strip_prefix(group)?, values)));
        let count = known.map_or(0, |(name, values)| value(values, name));
        out.push_str(&format!("{name:<32}\t{count}\n"));
    }
    out
}
