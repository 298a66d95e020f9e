//! /sys/class/net: a directory for each interface of the network namespace, with what it is and what it has counted.
//!
//! Neighbours: `sysfs` has the rest of /sys; [`crate::inet`] knows the interfaces.

use bloodhound_abi::Errno;
use bloodhound_net::LinkCounters;

use super::{Entry, View};
use crate::inet::{Interface, interfaces};

/// Where they are in /sys.
const DIR: &str = "class/net";
/// The directory of counters (Documentation/ABI/testing/sysfs-class-net-statistics of Linux).
const STATISTICS: &str = "statistics";
const ATTRIBUTES: [&str; 20] = [
    "addr_assign_type",
    "addr_len",
    "address",
    "broadcast",
    "carrier",
    "dev_id",
    "dev_port",
    "dormant",
    "duplex",
    "flags",
    "ifalias",
    "ifindex",
    "iflink",
    "link_mode",
    "mtu",
    "netdev_group",
    "operstate",
    "speed",
    "tx_queue_len",
    "type",
];
const COUNTERS: [&str; 24] = [
    "collisions",
    "multicast",
    "rx_bytes",
    "rx_compressed",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_nohandler",
    "rx_over_errors",
    "rx_packets",
    "tx_aborted_errors",
    "tx_bytes",
    "tx_carrier_errors",
    "tx_compressed",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_packets",
    "tx_window_errors",
];

/// The name of an interface and what of it a path of /sys is about, if it is below the directory of interfaces.
fn split(path: &str) -> Option<(&str, &str)> {
    let below = path.strip_prefix(DIR)?.strip_prefix('/')?;
    Some(below.split_once('/').unwrap_or((below, "")))
}

/// Whether a path of /sys is one of these.
pub(super) fn has(path: &str) -> bool {
    path == DIR || split(path).is_some()
}

pub(super) fn entry(view: &View<'_>, path: &str) -> Option<Entry> {
    let directory = Some(Entry::Dir { mode: 0o555 });
    let Some((name, rest)) = split(path) else { return directory };
    interfaces(view.stack()).iter().find(|interface| interface.name == name)?;
    let is_counter =
        || rest.strip_prefix(STATISTICS)?.strip_prefix('/').filter(|file| COUNTERS.contains(file));
    match rest {
        "" | STATISTICS => directory,
        _ if ATTRIBUTES.contains(&rest) || is_counter().is_some() => Some(Entry::File { mode: 0o444 }),
        _ => None,
    }
}

pub(super) fn names(view: &View<'_>, path: &str) -> Vec<String> {
    let Some((_, rest)) = split(path) else {
        return interfaces(view.stack()).into_iter().map(|interface| interface.name).collect();
    };
    match rest {
        "" => ATTRIBUTES.iter().chain([&STATISTICS]).map(|name| (*name).to_owned()).collect(),
        _ => COUNTERS.map(str::to_owned).to_vec(),
    }
}

/// What a file says.
///
/// # Errors
/// ENOENT; EINVAL for what an interface does not have.
pub(super) fn text(view: &View<'_>, path: &str) -> Result<Vec<u8>, Errno> {
    let (name, rest) = split(path).ok_or(Errno::ENOENT)?;
    let all = interfaces(view.stack());
    let interface = all.iter().find(|interface| interface.name == name).ok_or(Errno::ENOENT)?;
    if rest.starts_with(STATISTICS) {
        let counter = rest.rsplit('/').next().unwrap_or_default();
        return Ok(format!("{}\n", link_counter(&interface.counters(view.stack()), counter)).into_bytes());
    }
    Ok(format!("{}\n", attribute(interface, rest)?).into_bytes())
}

/// A counter by its name. Packets are lost on links and in queues, not at an interface, and none is damaged there.
fn link_counter(counters: &LinkCounters, name: &str) -> u64 {
    match name {
        "rx_packets" => counters.received.packets,
        "rx_bytes" => counters.received.bytes,
        "tx_packets" => counters.sent.packets,
        "tx_bytes" => counters.sent.bytes,
        _ => 0,
    }
}

fn attribute(interface: &Interface, name: &str) -> Result<String, Errno> {
    let hardware = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    // Loopback has neither a speed nor two directions (show_and_store of net-sysfs.c answers EINVAL).
    let of_link = |text: &str| if interface.is_loopback() { Err(Errno::EINVAL) } else { Ok(text.to_owned()) };
    let by_kind =
        |loopback: &str, other: &str| (if interface.is_loopback() { loopback } else { other }).to_owned();
    Ok(match name {
        "address" => hardware(interface.hardware()),
        "broadcast" => hardware([if interface.is_loopback() { 0 } else { 0xff }; 6]),
        "addr_assign_type" => by_kind("0", "3"),
        "addr_len" => "6".to_owned(),
        "carrier" => "1".to_owned(),
        "dev_id" => "0x0".to_owned(),
        "duplex" => of_link("full")?,
        "speed" => of_link("10000")?,
        // IFF_UP | IFF_LOOPBACK; IFF_UP | IFF_BROADCAST | IFF_MULTICAST.
        "flags" => by_kind("0x9", "0x1003"),
        "ifalias" => String::new(),
        "ifindex" | "iflink" => interface.index.to_string(),
        "mtu" => interface.mtu().to_string(),
        "operstate" => by_kind("unknown", "up"),
        "tx_queue_len" => "1000".to_owned(),
        // ARPHRD_LOOPBACK, ARPHRD_ETHER.
        "type" => by_kind("772", "1"),
        // dev_port, dormant, link_mode, netdev_group.
        _ => "0".to_owned(),
    })
}
