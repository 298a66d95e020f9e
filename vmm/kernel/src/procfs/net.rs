//! /proc/net (proc(5)): interfaces, routes and sockets of the node.

use std::net::IpAddr;

use bloodhound_net::Proto;

use super::Source::{Make, Text};
use super::{Table, View, counters, mib, system};
use crate::inet;

pub(super) const TABLE: Table = &[
    ("arp", Text("IP address       HW type     Flags       HW address            Mask     Device\n")),
    ("dev", Make(dev)),
    ("fib_trie", Text("")),
    ("if_inet6", Make(if_inet6)),
    ("netstat", Make(mib::netstat)),
    ("packet", Make(packet)),
    ("protocols", Text("")),
    ("icmp", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::Icmp, false))),
    ("icmp6", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::Icmp, true))),
    ("raw", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::Raw, false))),
    ("raw6", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::Raw, true))),
    ("route", Make(route)),
    ("snmp", Make(mib::snmp)),
    ("snmp6", Make(mib::snmp6)),
    ("sockstat", Make(sockstat)),
    (
        "sockstat6",
        Text("TCP6: inuse 0\nUDP6: inuse 0\nUDPLITE6: inuse 0\nRAW6: inuse 0\nFRAG6: inuse 0 memory 0\n"),
    ),
    ("softnet_stat", Make(counters::softnet_stat)),
    ("tcp", Make(|view| inet::proc_net_tcp(view.node, view.net(), false))),
    ("tcp6", Make(|view| inet::proc_net_tcp(view.node, view.net(), true))),
    ("udp", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::Udp, false))),
    ("udp6", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::Udp, true))),
    ("udplite", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::UdpLite, false))),
    ("udplite6", Make(|view| inet::proc_net_udp(view.node, view.net(), Proto::UdpLite, true))),
    ("unix", Make(|view| inet::proc_net_unix(view.node, view.net()))),
];

/// Interface names with their addresses: `lo`, then one for each network.
fn interfaces(view: &View<'_>) -> Vec<(String, Vec<(IpAddr, u8)>)> {
    let loopback = vec![(IpAddr::from([127, 0, 0, 1]), 8), (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), 128)];
    let mut out = vec![("lo".to_string(), loopback)];
    let mut v4 = 0;
    for (ip, prefix) in view.stack().addresses() {
        if ip.is_ipv4() || out.len() == 1 {
            out.push((format!("eth{v4}"), Vec::new()));
            v4 += 1;
        }
        if let Some((_, list)) = out.last_mut() {
            list.push((*ip, *prefix));
        }
    }
    out
}

/// Packet sockets (`packet_seq_show`).
fn packet(view: &View<'_>) -> String {
    let mut out = String::from("sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n");
    for (id, socket) in view.node.inet.iter() {
        let stack = view.stack();
        let (Ok((ethertype, interface, whole)), Ok(used)) = (stack.packet_name(*id), stack.packet_bytes(*id))
        else {
            continue;
        };
        // SOCK_RAW, SOCK_DGRAM.
        let kind = if whole { 3 } else { 2 };
        let inode = super::anonymous_ino(&crate::file::FileKind::Inet(*id));
        out.push_str(&format!(
            "{:016x} {:<6} {kind:<4} {ethertype:04x}   {interface:<5} {:1} {used:<6} {:<6} {inode:<6}\n",
            0,
            3,
            u8::from(ethertype != 0),
            socket.generic.uid,
        ));
    }
    out
}

fn dev(view: &View<'_>) -> String {
    let mut out = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets \
                   errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
        .to_string();
    for interface in inet::interfaces(view.stack()) {
        let of = interface.counters(view.stack());
        let (received, sent) = (of.received, of.sent);
        // dev_seq_printf_stats.
        out.push_str(&format!(
            "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9} ",
            interface.name, received.bytes, received.packets, 0, 0, 0, 0, 0, 0
        ));
        out.push_str(&format!(
            "{:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}\n",
            sent.bytes, sent.packets, 0, 0, 0, 0, 0, 0
        ));
    }
    out
}

/// "address, netlink device number, prefix length, scope value, interface flags, device name" in hexadecimal.
fn if_inet6(view: &View<'_>) -> String {
    let mut out = String::new();
    for (index, (name, addresses)) in interfaces(view).iter().enumerate() {
        for (ip, prefix) in addresses {
            let IpAddr::V6(ip) = ip else { continue };
            let scope = if ip.is_loopback() { 0x10 } else { 0 };
            out.push_str(&format!(
                "{:032x} {:02x} {prefix:02x} {scope:02x} 80 {name:>8}\n",
                ip.to_bits(),
                index + 1
            ));
        }
    }
    out
}

fn route(view: &View<'_>) -> String {
    // RTF_UP, RTF_GATEWAY.
    const UP: u32 = 1;
    const GATEWAY: u32 = 2;
    let line = |text: String| format!("{text:<127}\n");
    let mut out = line(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT                                                       "
            .trim_end()
            .to_string(),
    );
    // Addresses are printed as the number that their bytes make in memory.
    let hex = |bits: u32| format!("{:08X}", bits.swap_bytes());
    let row = |name: &str, to: u32, via: u32, flags: u32, mask: u32| {
        line(format!("{name}\t{}\t{}\t{flags:04X}\t0\t0\t0\t{}\t0\t0\t0", hex(to), hex(via), hex(mask)))
    };
    let mut first = true;
    for (name, addresses) in interfaces(view).into_iter().skip(1) {
        for (ip, prefix) in addresses {
            let IpAddr::V4(ip) = ip else { continue };
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            let network = ip.to_bits() & mask;
            if first && view.stack().config().default_route {
                out.push_str(&row(&name, 0, network + 1, UP | GATEWAY, 0));
            }
            first = false;
            out.push_str(&row(&name, network, 0, UP, mask));
        }
    }
    out
}

fn sockstat(view: &View<'_>) -> String {
    let used = view.node.files.iter().filter(|(_, f)| system::is_socket(&f.kind)).count();
    format!(
        "sockets: used {used}\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\nUDPLITE: inuse 0\n\
         RAW: inuse 0\nFRAG: inuse 0 memory 0\n"
    )
}
