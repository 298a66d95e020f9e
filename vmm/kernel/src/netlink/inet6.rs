//! What IPv6 says of interfaces: the messages of RTM_GETLINK for AF_INET6 (`inet6_dump_ifinfo` of Linux).

use bloodhound_abi::consts as c;

use super::message::{MULTI, Message, Request, add_attribute};
use super::route::{mtu_and_state, named};
use crate::inet::Interface;

/// IF_READY.
const READY: u32 = 0x8000_0000;
/// How many parameters there are (DEVCONF_MAX of Linux 6.1).
const PARAMETERS: usize = 58;
/// Counters of IP and ICMPv6 (IPSTATS_MIB_MAX, ICMP6_MIB_MAX). The first place of each tells how many there are.
const COUNTERS: u64 = 37;
const ICMP_COUNTERS: u64 = 6;

/// The parameters that are not 0 (DEVCONF_*), as /proc/sys/net/ipv6/conf shows them; times are in ms.
const SET: [(usize, i32); 28] = [
    (1, 64),         // hop_limit
    (3, 1),          // accept_ra
    (4, 1),          // accept_redirects
    (5, 1),          // autoconf
    (6, 1),          // dad_transmits
    (7, -1),         // router_solicitations
    (8, 4000),       // router_solicitation_interval
    (9, 1000),       // router_solicitation_delay
    (11, 604_800),   // temp_valid_lft
    (12, 86_400),    // temp_prefered_lft
    (13, 3),         // regen_max_retry
    (14, 600),       // max_desync_factor
    (15, 16),        // max_addresses
    (17, 1),         // accept_ra_defrtr
    (18, 1),         // accept_ra_pinfo
    (19, 1),         // accept_ra_rtr_pref
    (20, 60_000),    // router_probe_interval
    (30, 10_000),    // mldv1_unsolicited_report_interval
    (31, 1000),      // mldv2_unsolicited_report_interval
    (32, 1),         // suppress_frag_ndisc
    (35, 1),         // accept_ra_mtu
    (38, 1),         // accept_ra_min_hop_limit
    (43, 3_600_000), // router_solicitation_max_interval
    (46, 1),         // enhanced_dad
    (52, 1024),      // ra_defrtr_metric
    (54, 0xffff),    // ioam6_id
    (55, -1),        // ioam6_id_wide
    (56, 1),         // ndisc_evict_nocarrier
];
const MTU: usize = 2;
const USE_TEMPADDR: usize = 10;
const ACCEPT_DAD: usize = 27;

/// The message about an interface (`inet6_fill_ifinfo`).
pub(super) fn link(request: &Request<'_>, port: u32, i: &Interface) -> Message {
    let (mtu, state) = mtu_and_state(i);
    // IFLA_ADDRESS, IFLA_MTU, IFLA_OPERSTATE, IFLA_PROTINFO
    named(request, port, MULTI, c::AF_INET6 as u8, i)
        .with(1, &i.hardware())
        .word(4, mtu)
        .with(16, &[state])
        .with(12, &information(mtu, i.is_loopback()))
}

/// IFLA_PROTINFO (`inet6_fill_ifla6_attrs`).
fn information(mtu: u32, lo: bool) -> Vec<u8> {
    let mut parameters = [0; PARAMETERS];
    for (at, value) in SET {
        parameters[at] = value;
    }
    parameters[MTU] = mtu as i32;
    // Loopback has neither temporary addresses nor doubles.
    parameters[USE_TEMPADDR] = if lo { -1 } else { 0 };
    parameters[ACCEPT_DAD] = if lo { -1 } else { 1 };
    let counters = |count: u64| {
        let mut out = count.to_le_bytes().to_vec();
        out.resize(8 * count as usize, 0);
        out
    };
    // struct ifla_cacheinfo: the longest packet, when it was changed, and how long neighbours are reachable and between questions, in ms.
    let cache = [0xffff, 0, 30_000, 1000u32].map(u32::to_le_bytes).concat();
    let mut out = Vec::new();
    // IFLA_INET6_FLAGS, IFLA_INET6_CACHEINFO, IFLA_INET6_CONF, IFLA_INET6_STATS, IFLA_INET6_ICMP6STATS, IFLA_INET6_TOKEN,
    // IFLA_INET6_ADDR_GEN_MODE
    add_attribute(&mut out, 1, &READY.to_le_bytes());
    add_attribute(&mut out, 5, &cache);
    add_attribute(&mut out, 2, &parameters.map(i32::to_le_bytes).concat());
    add_attribute(&mut out, 3, &counters(COUNTERS));
    add_attribute(&mut out, 6, &counters(ICMP_COUNTERS));
    add_attribute(&mut out, 7, &[0; 16]);
    add_attribute(&mut out, 8, &[0]);
    // A nest counts the padding of its last attribute.
    out.resize(super::message::align(out.len()), 0);
    out
}
