//! TCP and UDP sockets: what the kernel keeps beside [`bloodhound_net::Stack`], and the text of /proc/net.
//!
//! The stack has the protocols; here are the family and type of each socket, the options that are only remembered,
//! closing, and readiness in epoll(7)'s terms.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, ReadyFlags, Sending, SocketId, SocketInfo, Stack, TcpState};

use crate::file::FileKind;
use crate::node::Node;
use crate::procfs::anonymous_ino;
use crate::socket::Generic;
use crate::stacks::NetNs;
use crate::unix::Name;

/// A datagram that is put together by several calls (UDP_CORK, MSG_MORE): what the first one said of it, and its content so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corked {
    /// The receiver; `None` is the connected peer.
    pub to: Option<SocketAddr>,
    /// How it leaves.
    pub how: Sending,
    /// At most as much as a datagram has.
    pub data: Vec<u8>,
}

/// The kernel's part of an internet socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InetSocket {
    /// AF_INET6.
    pub v6: bool,
    /// Stream or datagram.
    pub proto: Proto,
    /// The number of its protocol (SO_PROTOCOL).
    pub number: u8,
    /// Options of all sockets.
    pub generic: Generic,
    /// A datagram that is not whole yet.
    pub corked: Option<Corked>,
    /// The program has looked at how much there is to read (FIONREAD, MSG_PEEK): no read may give less.
    pub looked: bool,
}

/// The first port that needs no CAP_NET_BIND_SERVICE (net.ipv4.ip_unprivileged_port_start): Linux's own default, although
/// some container engines set 0.
pub const UNPRIVILEGED_PORT_START: u16 = 1024;

/// All internet sockets of a node that a descriptor refers to.
pub type InetSockets = bloodhound_persistent::Table<SocketId, InetSocket>;

/// What a wake-up of the network stack tells as EPOLL* bits: data with every kind of reading
/// (`sock_def_readable`), room with every kind of writing (`sk_stream_write_space`).
pub fn wake_bits(key: ReadyFlags) -> u32 {
    let mut bits = epoll_bits(key);
    if key.contains(ReadyFlags::READ) {
        bits |= (c::EPOLLPRI | c::EPOLLRDBAND) as u32;
    }
    if key.contains(ReadyFlags::WRITE) {
        bits |= c::EPOLLWRBAND as u32;
    }
    bits
}

/// Readiness of a socket as EPOLL* bits. `datagram_poll` reports EPOLLWRBAND with EPOLLOUT, `tcp_poll` does not.
///
/// A datagram with a wrong checksum makes a socket readable that does not block: "Check for false positives due to checksum errors: if
/// ((mask & EPOLLRDNORM) && !(file->f_flags & O_NONBLOCK) && [...] first_packet_length(sk) == -1) mask &= ~(EPOLLIN | EPOLLRDNORM)"
/// (`udp_poll`). "Under Linux, select() may report a socket file descriptor as "ready for reading", while nevertheless a subsequent
/// read blocks" (select(2), BUGS).
pub fn ready_bits(node: &Node, id: SocketId, nonblocking: bool) -> u32 {
    let stack = node.net.of(id);
    let mut ready = stack.readiness(id);
    if !nonblocking && stack.has_only_damaged(id) {
        ready.remove(ReadyFlags::READ);
    }
    let datagram = node.inet.get(&id).is_some_and(|s| s.proto.is_datagram());
    let band = datagram && ready.contains(ReadyFlags::WRITE);
    epoll_bits(ready) | if band { c::EPOLLWRBAND as u32 } else { 0 }
}

/// Readiness of the network stack as EPOLL* bits. Linux's `tcp_poll` and `datagram_poll` report EPOLLRDNORM and
/// EPOLLWRNORM with EPOLLIN and EPOLLOUT.
fn epoll_bits(ready: ReadyFlags) -> u32 {
    let mut bits = ready.bits();
    if ready.contains(ReadyFlags::READ) {
        bits |= c::EPOLLRDNORM as u32;
    }
    if ready.contains(ReadyFlags::WRITE) {
        bits |= c::EPOLLWRNORM as u32;
    }
    bits
}

fn inode_of_inet(id: SocketId) -> u64 {
    anonymous_ino(&FileKind::Inet(id))
}

impl Node {
    /// The last description of a TCP or UDP socket is gone. The connection ends by itself; close(2) waits for that with
    /// SO_LINGER ([`Node::inet_linger`]).
    pub fn close_inet(&mut self, id: SocketId) {
        self.inet.remove(&id);
        // EBADF would mean that the stack forgot a socket that a description names: a bug, but no harm here.
        let _closed = self.net.of_mut(id).close(id, self.clock);
        self.drain_net();
    }

    /// How long close(2) of the socket has to wait for [`bloodhound_net::Stack::lingering`] to end, ns: SO_LINGER with
    /// a time above 0. `None`: close does not wait.
    pub fn inet_linger(&self, id: SocketId) -> Option<u64> {
        let secs = self.net.of(id).options(id).ok()?.linger.filter(|secs| *secs > 0)?;
        Some(u64::from(secs) * bloodhound_abi::time::SECS)
    }

    fn socket_uid(&self, info: &SocketInfo) -> u32 {
        info.id.and_then(|id| self.inet.get(&id)).map_or(0, |s| s.generic.uid)
    }
}

/// A network interface as programs see it (netdevice(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// `lo`, `eth0` and so on.
    pub name: String,
    /// Its number, from 1.
    pub index: i32,
    /// Addresses with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Interface {
    /// Its first IPv4 address.
    pub fn v4(&self) -> Option<(Ipv4Addr, u8)> {
        self.addresses.iter().find_map(|(ip, prefix)| match ip {
            IpAddr::V4(ip) => Some((*ip, *prefix)),
            IpAddr::V6(_) => None,
        })
    }

    /// Hardware address, made from the IPv4 address as container runtimes do; zero for loopback.
    pub fn hardware(&self) -> [u8; 6] {
        match self.v4() {
            Some((ip, _)) if !ip.is_loopback() => bloodhound_net::hardware_address(ip.into()),
            _ => [0; 6],
        }
    }

    /// What has passed it.
    pub fn counters(&self, net: &Stack) -> bloodhound_net::LinkCounters {
        net.counters().link(self.index as u32)
    }

    /// The longest packet that it sends, bytes.
    pub fn mtu(&self) -> u32 {
        if self.is_loopback() { 65536 } else { 1500 }
    }

    /// Whether it is the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.index == 1
    }
}

/// The interfaces of a network stack: loopback, then one for each IPv4 address with the IPv6 addresses that were given after it.
pub fn interfaces(net: &Stack) -> Vec<Interface> {
    let loopback = vec![(IpAddr::from([127, 0, 0, 1]), 8), (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128)];
    let mut out = vec![Interface { name: "lo".into(), index: 1, addresses: loopback }];
    for (ip, prefix) in net.addresses() {
        if ip.is_ipv4() || out.len() == 1 {
            let number = out.len() as i32;
            out.push(Interface {
                name: format!("eth{}", number - 1),
                index: number + 1,
                addresses: Vec::new(),
            });
        }
        if let Some(last) = out.last_mut() {
            last.addresses.push((*ip, *prefix));
        }
    }
    out
}

/// Whether packets to the address stay in the stack.
pub fn is_local(net: &Stack, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || net.addresses().iter().any(|(own, _)| *own == ip)
}

/// Number of the interface with an address; that of loopback for those that no other has.
pub fn interface_of(net: &Stack, ip: IpAddr) -> i32 {
    net.interface_of(ip).map_or(1, |number| number as i32)
}

/// An address as /proc/net shows it: each 32-bit word in the byte order of the machine, so `0100007F` is 127.0.0.1.
fn hex_addr(addr: SocketAddr) -> String {
    let mut out = String::new();
    let octets: Vec<u8> = match addr.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    for word in octets.chunks_exact(4) {
        for byte in word.iter().rev() {
            // Writing to a string cannot fail.
            let _ok = write!(out, "{byte:02X}");
        }
    }
    let _ok = write!(out, ":{:04X}", addr.port());
    out
}

pub(crate) fn infos(node: &Node, net: NetNs, proto: Proto, v6: bool) -> Vec<SocketInfo> {
    let mut all = node.net.stack(net).sockets();
    all.retain(|s| s.proto == proto && s.v6 == v6);
    all
}

/// /proc/net/tcp (or tcp6), as `get_tcp4_sock` prints it; bound but unconnected sockets do not show, as on Linux.
pub fn proc_net_tcp(node: &Node, net: NetNs, v6: bool) -> String {
    let head = if v6 {
        "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
            .to_string()
    } else {
        format!(
            "{:<149}\n",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
        )
    };
    let mut out = head;
    let shown = infos(node, net, Proto::Tcp, v6).into_iter().filter(|s| s.state != TcpState::Close);
    for (row, s) in shown.enumerate() {
        let inode = s.id.map_or(0, inode_of_inet);
        let tail = match (s.state, s.id) {
            // TIME_WAIT: timer type 3, no owner.
            (TcpState::TimeWait, _) => format!("03:00000000 00000000     0        0 0 3 {:016x}", 0),
            (_, None) => format!("01:00000000 00000000     0        0 0 1 {:016x}", 0),
            _ => {
                let ssthresh = if s.state == TcpState::Listen { 0 } else { -1 };
                let uid = node.socket_uid(&s);
                format!("00:00000000 00000000 {uid:5}        0 {inode} 1 {:016x} 100 0 0 10 {ssthresh}", 0)
            }
        };
        // A listener's send queue is its backlog for ss(8) only; this file shows 0.
        let tx = if s.state == TcpState::Listen { 0 } else { s.tx_queue };
        let line = format!(
            "{row:4}: {} {} {:02X} {tx:08X}:{:08X} {tail}",
            hex_addr(s.local),
            hex_addr(s.peer),
            s.state as u8,
            s.rx_queue,
        );
        let _ok = if v6 { writeln!(out, "{line}") } else { writeln!(out, "{line:<149}") };
    }
    out
}

/// /proc/net/udp (or udp6, udplite, udplite6, icmp, icmp6, raw, raw6); unbound sockets do not show.
pub fn proc_net_udp(node: &Node, net: NetNs, proto: Proto, v6: bool) -> String {
    const TAIL: &str = "st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";
    // Lines of UDP and of echo sockets over IPv4 are as wide as they can be, and numbers of raw sockets narrower.
    let (raw, wide) = (proto == Proto::Raw, !v6 && proto != Proto::Raw);
    let end = |line: String| if wide { format!("{line:<127}\n") } else { format!("{line}\n") };
    let mut out = match (v6, proto) {
        (true, _) => end(format!("  sl  {:<37} {:<37} {TAIL}", "local_address", "remote_address")),
        (false, Proto::Raw | Proto::Icmp) => end(format!("  sl  local_address rem_address   {TAIL}")),
        _ => end(format!("   sl  local_address rem_address   {TAIL}")),
    };
    for s in infos(node, net, proto, v6).into_iter().filter(|s| s.local.port() != 0) {
        let line = format!(
            "{:width$}: {} {} {:02X} {:08X}:{:08X} 00:00000000 00000000 {:5}        0 {} 2 {:016x} 0",
            s.local.port(),
            hex_addr(s.local),
            hex_addr(s.peer),
            s.state as u8,
            s.tx_queue,
            s.rx_queue,
            node.socket_uid(&s),
            s.id.map_or(0, inode_of_inet),
            0,
            width = if raw { 4 } else { 5 },
        );
        out.push_str(&end(line));
    }
    out
}

/// /proc/net/unix. Names that are no UTF-8 show replacement characters.
pub fn proc_net_unix(node: &Node, net: NetNs) -> String {
    let mut out = String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
    for (id, s) in node.unix.iter().filter(|(_, s)| s.net == net && !s.is_log()) {
        // __SO_ACCEPTCON, and socket_state: SS_UNCONNECTED 1, SS_CONNECTING 2 (not accepted yet), SS_CONNECTED 3.
        let flags = if node.unix.is_listening(id) { 0x1_0000 } else { 0 };
        let state = match (node.unix.peer_name(id).is_ok(), s.is_accepted()) {
            (true, true) => 3,
            (true, false) => 2,
            (false, _) => 1,
        };
        let inode = if s.is_accepted() { anonymous_ino(&FileKind::Unix(id)) } else { 0 };
        let name = match node.unix.local_name(id) {
            Some(Name::Path(path)) => format!(" {}", String::from_utf8_lossy(path)),
            Some(Name::Abstract(name)) => format!(" @{}", String::from_utf8_lossy(name).replace('\0', "@")),
            None => String::new(),
        };
        let kind = s.kind.number();
        let _ok = writeln!(
            out,
            "{:016x}: {:08X} {:08X} {flags:08X} {kind:04X} {state:02X} {inode:5}{name}",
            0, 2, 0
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_show_in_machine_order() {
        assert_eq!(hex_addr("127.0.0.1:80".parse().unwrap()), "0100007F:0050");
        assert_eq!(hex_addr("[::1]:6379".parse().unwrap()), "00000000000000000000000001000000:18EB");
    }

    #[test]
    fn readiness_has_the_normal_bits() {
        let bits = epoll_bits(ReadyFlags::READ | ReadyFlags::WRITE | ReadyFlags::RDHUP);
        assert_eq!(bits, (c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLOUT | c::EPOLLWRNORM | c::EPOLLRDHUP) as u32);
        assert_eq!(epoll_bits(ReadyFlags::HUP), c::EPOLLHUP as u32);
    }
}
