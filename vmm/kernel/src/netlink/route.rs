//! NETLINK_ROUTE (rtnetlink(7)): links, addresses, routes and rules of a network stack, as Linux shows them in a container. What
//! changes something needs CAP_NET_ADMIN, which containers do not have.

use std::net::{IpAddr, Ipv4Addr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{LinkCounters, Stack};

use super::inet6;
use super::message::{DUMP, DUMP_FILTERED, MIN_TYPE, MULTI, Message, Request};
use crate::inet::{Interface, interfaces};

const NEWLINK: u16 = 16;
const GETLINK: u16 = 18;
const NEWADDR: u16 = 20;
const GETADDR: u16 = 22;
const NEWROUTE: u16 = 24;
const GETROUTE: u16 = 26;
const GETNEIGH: u16 = 30;
const NEWRULE: u16 = 32;
const GETRULE: u16 = 34;
const GETQDISC: u16 = 38;
const GETTCLASS: u16 = 42;
const GETTFILTER: u16 = 46;
const GETNSID: u16 = 90;
/// RTM_MAX of Linux 6.1.
const LAST: u16 = 123;

/// Bytes of `struct ifinfomsg`, `struct ifaddrmsg`, `struct rtmsg`.
const IFINFO: usize = 16;
const IFADDR: usize = 8;
const RT: usize = 12;

/// RT_TABLE_MAIN and RT_TABLE_LOCAL.
const MAIN: u8 = 254;
const LOCAL: u8 = 255;
/// RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RT_SCOPE_HOST.
const UNIVERSE: u8 = 0;
const LINK: u8 = 253;
const HOST: u8 = 254;
/// RTPROT_KERNEL, RTPROT_BOOT.
const KERNEL: u8 = 2;
const BOOT: u8 = 3;
/// RTN_UNICAST, RTN_LOCAL, RTN_BROADCAST, RTN_MULTICAST.
const UNICAST: u8 = 1;
const TO_SELF: u8 = 2;
const BROADCAST: u8 = 3;
const MULTICAST: u8 = 5;
/// RTM_F_CLONED.
const CLONED: u32 = 0x200;
/// RTM_F_LOOKUP_TABLE.
const LOOKUP_TABLE: u32 = 0x1000;
/// RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_CACHEINFO, RTA_TABLE, RTA_PREF, RTA_UID.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_PREF: u16 = 20;
const RTA_UID: u16 = 25;
/// IFLA_IFNAME.
const IFNAME: u16 = 3;
/// AF_BRIDGE.
const AF_BRIDGE: u64 = 7;

/// What a request gets.
#[derive(Debug)]
pub enum Reply {
    /// An acknowledgement, if it asks for one.
    Nothing,
    /// One message.
    One(Message),
    /// A dump: its messages, and flags of its end.
    Dump(Vec<Message>, u16),
    /// A dump that says at its end why there is none.
    NoDump(Errno),
    /// Not modelled.
    Unsupported(String),
}

/// Who asks, and for what.
#[derive(Debug)]
pub struct Asker<'a> {
    /// The stack of its network namespace.
    pub stack: &'a Stack,
    /// The port of its socket.
    pub port: u32,
    /// Its user.
    pub uid: u32,
    /// NETLINK_GET_STRICT_CHK.
    pub strict: bool,
}

/// Answers a request (`rtnetlink_rcv_msg`).
pub fn answer(asker: &Asker<'_>, request: &Request<'_>) -> Result<Reply, Errno> {
    if request.kind < MIN_TYPE {
        return Ok(Reply::Nothing);
    }
    if request.kind > LAST {
        return Err(Errno::EOPNOTSUPP);
    }
    // "All the messages must have at least 1 byte length": struct rtgenmsg.
    if request.payload().is_empty() {
        return Ok(Reply::Nothing);
    }
    // RTM_NEW*, RTM_DEL*, RTM_GET*, RTM_SET* in fours.
    if request.kind % 4 != 2 {
        return Err(Errno::EPERM);
    }
    let dump = request.flags & DUMP != 0;
    let all = interfaces(asker.stack);
    match (request.kind, dump) {
        (GETLINK, true) => Ok(dump_links(asker, request, &all)),
        (GETLINK, false) => one_link(asker, request, &all),
        (GETADDR, true) => Ok(dump_addresses(asker, request, &all)),
        (GETADDR, false) => one_address(asker, request, &all),
        (GETROUTE, true) => Ok(dump_routes(asker, request, &all)),
        (GETROUTE, false) => one_route(asker, request, &all),
        // Addresses of neighbours are never asked for on the simulated networks.
        (GETNEIGH, true) => Ok(Reply::Dump(Vec::new(), 0)),
        (GETRULE, true) => Ok(dump_rules(asker, request)),
        (GETRULE, false) => Err(Errno::EOPNOTSUPP),
        // As of a kernel that has nobody to answer them: without CONFIG_NET_SCHED, and with one network namespace.
        (GETQDISC | GETTCLASS | GETTFILTER | GETNSID, _) => Err(Errno::EOPNOTSUPP),
        (kind, _) => Ok(Reply::Unsupported(format!("rtnetlink request of type {kind}"))),
    }
}

fn bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

fn family(v6: bool) -> u8 {
    if v6 { c::AF_INET6 as u8 } else { c::AF_INET as u8 }
}

/// The families of a dump: that which is asked for, and for all others both, as `rtnl_dump_all` does.
fn families(request: &Request<'_>) -> &'static [bool] {
    match u64::from(request.byte(0)) {
        c::AF_INET => &[false],
        c::AF_INET6 => &[true],
        _ => &[false, true],
    }
}

/// A message about an interface, with its name.
pub(super) fn named(request: &Request<'_>, port: u32, flags: u16, family: u8, i: &Interface) -> Message {
    // ARPHRD_LOOPBACK or ARPHRD_ETHER; IFF_UP, IFF_RUNNING and IFF_LOWER_UP with IFF_LOOPBACK or IFF_BROADCAST and IFF_MULTICAST.
    let (hardware, state): (u16, u32) = if i.is_loopback() { (772, 0x10049) } else { (1, 0x11043) };
    let mut header = vec![family, 0];
    header.extend_from_slice(&hardware.to_le_bytes());
    header.extend_from_slice(&i.index.to_le_bytes());
    header.extend_from_slice(&state.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    let mut name = i.name.clone().into_bytes();
    name.push(0);
    Message::new(NEWLINK, flags, request.seq, port, &header).with(IFNAME, &name)
}

/// IFLA_MTU and IFLA_OPERSTATE (IF_OPER_UNKNOWN, IF_OPER_UP) of an interface.
pub(super) fn mtu_and_state(i: &Interface) -> (u32, u8) {
    (i.mtu(), if i.is_loopback() { 0 } else { 6 })
}

/// `struct rtnl_link_stats64`; `struct rtnl_link_stats` is the same with halves of the numbers.
fn statistics(of: &LinkCounters) -> [u64; 25] {
    let mut out = [0; 25];
    let (received, sent) = (of.received, of.sent);
    out[..4].copy_from_slice(&[received.packets, sent.packets, received.bytes, sent.bytes]);
    out
}

fn link(asker: &Asker<'_>, request: &Request<'_>, flags: u16, i: &Interface) -> Message {
    let lo = i.is_loopback();
    let (mtu, state) = mtu_and_state(i);
    let broadcast = if lo { [0; 6] } else { [0xff; 6] };
    let counters = statistics(&i.counters(asker.stack));
    let halves: Vec<u8> = counters[..24].iter().flat_map(|value| (*value as u32).to_le_bytes()).collect();
    let whole: Vec<u8> = counters.iter().flat_map(|value| value.to_le_bytes()).collect();
    // IFLA_TXQLEN, IFLA_OPERSTATE, IFLA_LINKMODE, IFLA_MTU, IFLA_GROUP, IFLA_PROMISCUITY,
    // IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES, IFLA_CARRIER, IFLA_CARRIER_CHANGES, IFLA_ADDRESS, IFLA_BROADCAST, IFLA_STATS64,
    // IFLA_STATS, IFLA_QDISC, IFLA_MAP
    named(request, asker.port, flags, 0, i)
        .word(13, 1000)
        .with(16, &[state])
        .with(17, &[0])
        .word(4, mtu)
        .word(27, 0)
        .word(30, 0)
        .word(31, 1)
        .word(32, 1)
        .with(33, &[1])
        .word(35, 0)
        .with(1, &i.hardware())
        .with(2, &broadcast)
        .with(23, &whole)
        .with(7, &halves)
        .with(6, b"noqueue\0")
        .with(14, &[0; 32])
}

fn dump_links(asker: &Asker<'_>, request: &Request<'_>, all: &[Interface]) -> Reply {
    // "Invalid values in header for link dump request"; "Filter by device index not supported for link dumps".
    if asker.strict && (request.payload().len() < IFINFO || !request.zero(1..IFINFO)) {
        return Reply::NoDump(Errno::EINVAL);
    }
    let links = all.iter();
    let out = match u64::from(request.byte(0)) {
        // "Invalid data after header" (inet6_valid_dump_ifinfo)
        c::AF_INET6 if asker.strict && request.payload().len() > IFINFO => {
            return Reply::NoDump(Errno::EINVAL);
        }
        c::AF_INET6 => links.map(|i| inet6::link(request, asker.port, i)).collect(),
        // There are no bridges.
        AF_BRIDGE => Vec::new(),
        _ => links.map(|i| link(asker, request, MULTI, i)).collect(),
    };
    Reply::Dump(out, 0)
}

fn one_link(asker: &Asker<'_>, request: &Request<'_>, all: &[Interface]) -> Result<Reply, Errno> {
    if request.payload().len() < IFINFO {
        return Err(Errno::EINVAL);
    }
    // "Invalid values in header for get link request"
    if asker.strict && !(request.zero(1..4) && request.zero(8..IFINFO)) {
        return Err(Errno::EINVAL);
    }
    let index = request.word(4) as i32;
    let name = request.attributes(IFINFO).into_iter().find(|(kind, _)| *kind == IFNAME);
    let found = match (index, name) {
        (1.., _) => all.iter().find(|i| i.index == index),
        (_, Some((_, name))) => {
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            all.iter().find(|i| i.name.as_bytes() == &name[..end])
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(Reply::One(link(asker, request, 0, found.ok_or(Errno::ENODEV)?)))
}

fn address(asker: &Asker<'_>, request: &Request<'_>, flags: u16, i: &Interface, at: (IpAddr, u8)) -> Message {
    let (ip, prefix) = at;
    // IFA_F_PERMANENT
    let mut header = vec![family(ip.is_ipv6()), prefix, 0x80, if ip.is_loopback() { HOST } else { UNIVERSE }];
    header.extend_from_slice(&i.index.to_le_bytes());
    let out = Message::new(NEWADDR, flags, request.seq, asker.port, &header).with(1, &bytes(ip));
    // struct ifa_cacheinfo: valid for ever, made and changed at 0.
    let cache = [[0xff; 8], [0; 8]].concat();
    let IpAddr::V4(ip) = ip else { return out.with(6, &cache).word(8, 0x80) };
    // IFA_LOCAL, IFA_BROADCAST, IFA_LABEL, IFA_FLAGS, IFA_CACHEINFO
    let mut out = out.with(2, &ip.octets());
    if !i.is_loopback() && prefix < 31 {
        out = out.with(4, &Ipv4Addr::from_bits(ip.to_bits() | !mask(prefix)).octets());
    }
    let mut label = i.name.clone().into_bytes();
    label.push(0);
    out.with(3, &label).word(8, 0x80).with(6, &cache)
}

fn dump_addresses(asker: &Asker<'_>, request: &Request<'_>, all: &[Interface]) -> Reply {
    let mut only = 0;
    if asker.strict {
        // "Invalid values in header for address dump request"
        if request.payload().len() < IFADDR || !request.zero(1..4) {
            return Reply::NoDump(Errno::EINVAL);
        }
        only = request.word(4) as i32;
        if only != 0 && !all.iter().any(|i| i.index == only) {
            return Reply::NoDump(Errno::ENODEV);
        }
    }
    let filtered = if only != 0 { DUMP_FILTERED } else { 0 };
    let mut out = Vec::new();
    for v6 in families(request) {
        for i in all.iter().filter(|i| only == 0 || i.index == only) {
            for at in i.addresses.iter().filter(|(ip, _)| ip.is_ipv6() == *v6) {
                out.push(address(asker, request, MULTI | filtered, i, *at));
            }
        }
    }
    Reply::Dump(out, filtered)
}

/// RTM_GETADDR of one address, which only IPv6 has.
fn one_address(asker: &Asker<'_>, request: &Request<'_>, all: &[Interface]) -> Result<Reply, Errno> {
    if u64::from(request.byte(0)) != c::AF_INET6 {
        return Err(Errno::EOPNOTSUPP);
    }
    let attributes = request.attributes(IFADDR);
    let asked = attributes.iter().rev().find(|(kind, value)| (1..=2).contains(kind) && value.len() == 16);
    let (_, asked) = asked.ok_or(Errno::EINVAL)?;
    let index = request.word(4) as i32;
    let found = all.iter().filter(|i| index == 0 || i.index == index).find_map(|i| {
        let at = i.addresses.iter().find(|(ip, _)| bytes(*ip) == **asked)?;
        Some(address(asker, request, 0, i, *at))
    });
    found.map(Reply::One).ok_or(Errno::EADDRNOTAVAIL)
}

/// A route.
struct Route {
    to: IpAddr,
    prefix: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    via: Option<IpAddr>,
    /// Preferred source of IPv4.
    source: Option<IpAddr>,
    /// Metric of IPv6.
    priority: u32,
    out: i32,
}

impl Route {
    fn message(&self, asker: &Asker<'_>, request: &Request<'_>, flags: u16) -> Message {
        let header = [
            family(self.to.is_ipv6()),
            self.prefix,
            0,
            0,
            self.table,
            self.protocol,
            self.scope,
            self.kind,
            0,
            0,
            0,
            0,
        ];
        let mut out = Message::new(NEWROUTE, flags, request.seq, asker.port, &header);
        out = out.word(RTA_TABLE, u32::from(self.table));
        if self.prefix > 0 {
            out = out.with(RTA_DST, &bytes(self.to));
        }
        if self.to.is_ipv6() {
            out = out.word(RTA_PRIORITY, self.priority);
        }
        if let Some(source) = self.source {
            out = out.with(RTA_PREFSRC, &bytes(source));
        }
        if let Some(via) = self.via {
            out = out.with(RTA_GATEWAY, &bytes(via));
        }
        out = out.word(RTA_OIF, self.out as u32);
        if self.to.is_ipv6() { out.with(RTA_CACHEINFO, &[0; 32]).with(RTA_PREF, &[0]) } else { out }
    }
}

fn network(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() & mask(prefix)).into(),
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            std::net::Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// The gateway of a network: its first address, as /proc/net/route tells.
fn gateway(ip: IpAddr, prefix: u8) -> IpAddr {
    match network(ip, prefix) {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().wrapping_add(1)).into(),
        IpAddr::V6(ip) => std::net::Ipv6Addr::from_bits(ip.to_bits().wrapping_add(1)).into(),
    }
}

/// The routes of a family: those of the main table, then what is local, in the order of their addresses.
fn routes(stack: &Stack, all: &[Interface], v6: bool) -> Vec<Route> {
    let mut main: Vec<Route> = Vec::new();
    let mut local = Vec::new();
    let own = all.iter().flat_map(|i| i.addresses.iter().map(move |at| (i, *at)));
    for (i, (ip, prefix)) in own.filter(|(_, (ip, _))| ip.is_ipv6() == v6) {
        let (out, source) = (i.index, (!v6).then_some(ip));
        let bits = if v6 { 128 } else { 32 };
        let route = |to, prefix, table, scope, kind| {
            let scope = if v6 { UNIVERSE } else { scope };
            Route { to, prefix, table, protocol: KERNEL, scope, kind, via: None, source, priority: 0, out }
        };
        if !ip.is_loopback() && prefix < bits {
            if stack.config().default_route && !main.iter().any(|r| r.prefix == 0) {
                let default = route(network(ip, 0), 0, MAIN, UNIVERSE, UNICAST);
                let via = Some(gateway(ip, prefix));
                main.push(Route { protocol: BOOT, via, source: None, priority: 1024, ..default });
            }
            main.push(Route { priority: 256, ..route(network(ip, prefix), prefix, MAIN, LINK, UNICAST) });
        } else if !v6 && ip.is_loopback() {
            local.push(route(network(ip, prefix), prefix, LOCAL, HOST, TO_SELF));
        }
        local.push(route(ip, bits, LOCAL, HOST, TO_SELF));
        if let IpAddr::V4(ip) = ip
            && prefix < 31
        {
            let last = Ipv4Addr::from_bits(ip.to_bits() | !mask(prefix)).into();
            local.push(route(last, 32, LOCAL, LINK, BROADCAST));
        }
        if v6 && !ip.is_loopback() && !local.iter().any(|r| r.kind == MULTICAST && r.out == out) {
            let all_groups = IpAddr::V6(std::net::Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0));
            local.push(Route { priority: 256, ..route(all_groups, 8, LOCAL, UNIVERSE, MULTICAST) });
        }
    }
    main.sort_by_key(|r| (v6 && r.prefix == 0, r.to, r.prefix));
    local.sort_by_key(|r| (r.to, r.prefix));
    main.extend(local);
    main
}

fn dump_routes(asker: &Asker<'_>, request: &Request<'_>, all: &[Interface]) -> Reply {
    let full = request.payload().len() >= RT;
    let (mut table, mut only_out, mut rest) = (0, 0, [0; 2]);
    if asker.strict {
        // "Invalid values in header for FIB dump request"
        if !full || !request.zero(1..4) || !request.zero(6..7) || request.word(8) & !(CLONED | 0x800) != 0 {
            return Reply::NoDump(Errno::EINVAL);
        }
        (table, rest) = (u32::from(request.byte(4)), [request.byte(5), request.byte(7)]);
        for (kind, value) in request.attributes(RT) {
            let word = value.first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
            match (kind, word) {
                (RTA_TABLE, Some(word)) => table = word,
                (RTA_OIF, Some(word)) => only_out = word as i32,
                _ => return Reply::NoDump(Errno::EINVAL),
            }
        }
    }
    // Routes that are clones lie in a cache that Linux does not have any more.
    if full && request.word(8) & CLONED != 0 {
        return Reply::Dump(Vec::new(), 0);
    }
    if only_out != 0 && !all.iter().any(|i| i.index == only_out) {
        return Reply::NoDump(Errno::ENODEV);
    }
    if !matches!(table, 0 | 254 | 255) {
        // "FIB table does not exist"; who asks for all families gets nothing.
        return if families(request).len() == 1 {
            Reply::NoDump(Errno::ENOENT)
        } else {
            Reply::Dump(Vec::new(), 0)
        };
    }
    let filtered = if table != 0 || only_out != 0 || rest != [0; 2] { DUMP_FILTERED } else { 0 };
    let shown = |r: &Route| {
        (table == 0 || u32::from(r.table) == table)
            && (only_out == 0 || r.out == only_out)
            && (rest[0] == 0 || r.protocol == rest[0])
            && (rest[1] == 0 || r.kind == rest[1])
    };
    let routes = families(request).iter().flat_map(|v6| routes(asker.stack, all, *v6)).filter(shown);
    Reply::Dump(routes.map(|r| r.message(asker, request, MULTI | filtered)).collect(), filtered)
}

/// RTM_GETROUTE of one destination: where its packets go ("ip route get").
fn one_route(asker: &Asker<'_>, request: &Request<'_>, all: &[Interface]) -> Result<Reply, Errno> {
    let v6 = match u64::from(request.byte(0)) {
        c::AF_INET => false,
        c::AF_INET6 => true,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if request.payload().len() < RT {
        return Err(Errno::EINVAL);
    }
    let attributes = request.attributes(RT);
    // A source, a mark or an interface to begin with, or RTM_F_FIB_MATCH, which asks for the route instead of the way.
    if v6
        || request.word(8) & 0x2000 != 0
        || attributes.iter().any(|(kind, _)| !matches!(*kind, RTA_DST | RTA_UID))
    {
        return Ok(Reply::Unsupported("RTM_GETROUTE of one destination but for its IPv4 address".into()));
    }
    let asked = attributes.iter().find(|(kind, _)| *kind == RTA_DST).and_then(|(_, v)| v.first_chunk::<4>());
    let ip = asked.map_or(Ipv4Addr::UNSPECIFIED, |b| Ipv4Addr::from(*b));
    // 0.0.0.0 stands for the machine itself.
    let to = IpAddr::V4(if ip.is_unspecified() { Ipv4Addr::LOCALHOST } else { ip });
    let best = routes(asker.stack, all, false).into_iter().filter(|r| network(to, r.prefix) == r.to);
    let best = best.max_by_key(|r| (r.table == LOCAL, r.prefix)).ok_or(Errno::ENETUNREACH)?;
    let here = best.table == LOCAL;
    let own = |i: &Interface| i.v4().map(|(ip, _)| IpAddr::V4(ip));
    let source = best.source.or_else(|| all.iter().find(|i| i.index == best.out).and_then(own));
    let source = if here && best.kind == TO_SELF { Some(to) } else { source };
    let out = if here && best.kind == TO_SELF { 1 } else { best.out };
    // The main table stands for all, unless RTM_F_LOOKUP_TABLE asks for the true one.
    let table = if request.word(8) & LOOKUP_TABLE != 0 { best.table } else { MAIN };
    let header = [c::AF_INET as u8, 32, 0, 0, table, 0, UNIVERSE, best.kind];
    let mut header = header.to_vec();
    // RTCF_LOCAL, RTCF_BROADCAST
    let local = if here && best.kind == TO_SELF { 0x8000_0000 } else { 0 };
    let broadcast = if best.kind == BROADCAST { 0x9000_0000 } else { 0 };
    header.extend_from_slice(&(CLONED | local | broadcast).to_le_bytes());
    let mut message = Message::new(NEWROUTE, 0, request.seq, asker.port, &header)
        .word(RTA_TABLE, u32::from(table))
        .with(RTA_DST, &bytes(to))
        .word(RTA_OIF, out as u32);
    if let Some(source) = source {
        message = message.with(RTA_PREFSRC, &bytes(source));
    }
    if let Some(via) = best.via {
        message = message.with(RTA_GATEWAY, &bytes(via));
    }
    Ok(Reply::One(message.word(RTA_UID, asker.uid).with(RTA_CACHEINFO, &[0; 32])))
}

/// The rules that every namespace begins with: the local table first, then the main one, then, for IPv4, the default one.
fn dump_rules(asker: &Asker<'_>, request: &Request<'_>) -> Reply {
    let mut out = Vec::new();
    for v6 in families(request) {
        let rules: &[(u8, u32)] =
            if *v6 { &[(LOCAL, 0), (MAIN, 32766)] } else { &[(LOCAL, 0), (MAIN, 32766), (253, 32767)] };
        for (table, priority) in rules {
            // struct fib_rule_hdr with FR_ACT_TO_TBL; FRA_PROTOCOL, FRA_TABLE, FRA_SUPPRESS_PREFIXLEN, FRA_PRIORITY
            let header = [family(*v6), 0, 0, 0, *table, 0, 0, 1, 0, 0, 0, 0];
            let mut rule = Message::new(NEWRULE, MULTI, request.seq, asker.port, &header)
                .with(21, &[KERNEL])
                .word(15, u32::from(*table))
                .word(14, u32::MAX);
            if *priority != 0 {
                rule = rule.word(6, *priority);
            }
            out.push(rule);
        }
    }
    Reply::Dump(out, 0)
}
