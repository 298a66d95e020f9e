//! Options that are kept and shown again. Most have no effect that a program here could see; those of ip(7), ipv6(7) and SO_BROADCAST
//! that say how datagrams leave are read when one does (`sys::message::datagram`).

use bloodhound_abi::consts as c;

use crate::socket::Generic;

/// Older options of RFC 2292, whose ancillary data has the number of the option.
pub(crate) const IPV6_2292PKTINFO: u64 = 2;
pub(crate) const IPV6_2292HOPLIMIT: u64 = 8;

pub(crate) const SO_RCVMARK: u64 = 75;
pub(super) const SO_SELECT_ERR_QUEUE: u64 = 45;
pub(super) const IP_MINTTL: u64 = 21;
pub(super) const IP_RECVFRAGSIZE: u64 = 25;
pub(super) const IPV6_MINHOPCOUNT: u64 = 73;
pub(crate) const IPV6_RECVORIGDSTADDR: u64 = 74;
pub(super) const IPV6_TRANSPARENT: u64 = 75;
pub(super) const IPV6_RECVFRAGSIZE: u64 = 77;

pub(in crate::sys) const TCP_FASTOPEN_NO_COOKIE: u64 = 34;

/// The option of the other family that is the same bit of a socket (`inet->freebind`, `inet->transparent`).
pub(super) fn twin((level, name): (u64, u64)) -> Option<(u64, u64)> {
    match (level, name) {
        (c::IPPROTO_IP, c::IP_FREEBIND) => Some((c::IPPROTO_IPV6, c::IPV6_FREEBIND)),
        (c::IPPROTO_IPV6, c::IPV6_FREEBIND) => Some((c::IPPROTO_IP, c::IP_FREEBIND)),
        (c::IPPROTO_IP, c::IP_TRANSPARENT) => Some((c::IPPROTO_IPV6, IPV6_TRANSPARENT)),
        (c::IPPROTO_IPV6, IPV6_TRANSPARENT) => Some((c::IPPROTO_IP, c::IP_TRANSPARENT)),
        _ => None,
    }
}

/// Values of an option that is only kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// 0 or 1; anything else counts as 1.
    Flag,
    /// EINVAL outside.
    Range(i32, i32),
    /// The low byte of what is given.
    Byte,
}

/// Options that are kept: level, name, default, values.
const KEPT: &[(u64, u64, i32, Shape)] = {
    use Shape::{Byte, Flag, Range};
    const ANY: Shape = Range(i32::MIN, i32::MAX);
    &[
        (c::SOL_SOCKET, c::SO_DONTROUTE, 0, Flag),
        (c::SOL_SOCKET, c::SO_BROADCAST, 0, Flag),
        (c::SOL_SOCKET, c::SO_OOBINLINE, 0, Flag),
        (c::SOL_SOCKET, c::SO_NO_CHECK, 0, Flag),
        (c::SOL_SOCKET, c::SO_RXQ_OVFL, 0, Flag),
        (c::SOL_SOCKET, c::SO_PEEK_OFF, -1, ANY),
        // SO_PASSSEC, SO_WIFI_STATUS, SO_NOFCS: labels and radios, which are not there.
        (c::SOL_SOCKET, 34, 0, Flag),
        (c::SOL_SOCKET, 41, 0, Flag),
        (c::SOL_SOCKET, 43, 0, Flag),
        (c::SOL_SOCKET, SO_SELECT_ERR_QUEUE, 0, Flag),
        (c::SOL_SOCKET, c::SO_PRIORITY, 0, ANY),
        // Nothing is routed by marks, and no packet takes one along.
        (c::SOL_SOCKET, c::SO_MARK, 0, ANY),
        (c::SOL_SOCKET, c::SO_INCOMING_CPU, -1, ANY),
        (c::SOL_SOCKET, c::SO_MAX_PACING_RATE, -1, ANY),
        (c::SOL_SOCKET, c::SO_BUSY_POLL, 0, Range(0, i32::MAX)),
        // SO_RCVMARK: no packet has a mark.
        (c::SOL_SOCKET, SO_RCVMARK, 0, Flag),
        (c::IPPROTO_IP, c::IP_TOS, 0, Byte),
        (c::IPPROTO_IP, c::IP_TRANSPARENT, 0, Flag),
        (c::IPPROTO_IP, c::IP_TTL, 64, Range(1, 255)),
        (c::IPPROTO_IP, c::IP_PKTINFO, 0, Flag),
        // IP_RECVOPTS and IP_RETOPTS: no packet that arrives has any.
        (c::IPPROTO_IP, 6, 0, Flag),
        (c::IPPROTO_IP, 7, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVTTL, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVTOS, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVORIGDSTADDR, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVERR, 0, Flag),
        (c::IPPROTO_IP, c::IP_FREEBIND, 0, Flag),
        // IP_PASSSEC, IP_CHECKSUM, IP_RECVFRAGSIZE: no packet that arrives has a label, a sum of its card, or fragments.
        (c::IPPROTO_IP, 18, 0, Flag),
        (c::IPPROTO_IP, 23, 0, Flag),
        (c::IPPROTO_IP, IP_RECVFRAGSIZE, 0, Flag),
        (c::IPPROTO_IP, IP_MINTTL, 0, Range(0, 255)),
        // IP_RECVERR_RFC4884: no report has extensions.
        (c::IPPROTO_IP, 26, 0, Range(0, 1)),
        (c::IPPROTO_IP, c::IP_BIND_ADDRESS_NO_PORT, 0, Flag),
        (c::IPPROTO_IP, c::IP_MTU_DISCOVER, 1, Range(0, 5)),
        (c::IPPROTO_IP, c::IP_MULTICAST_TTL, 1, Range(0, 255)),
        (c::IPPROTO_IP, c::IP_MULTICAST_LOOP, 1, Flag),
        (c::IPPROTO_IP, c::IP_MULTICAST_ALL, 1, Range(0, 1)),
        (c::IPPROTO_IPV6, c::IPV6_UNICAST_HOPS, 64, Range(0, 255)),
        (c::IPPROTO_IPV6, c::IPV6_MULTICAST_HOPS, 1, Range(0, 255)),
        (c::IPPROTO_IPV6, c::IPV6_MULTICAST_LOOP, 1, Range(0, 1)),
        (c::IPPROTO_IPV6, c::IPV6_MULTICAST_ALL, 1, Flag),
        (c::IPPROTO_IPV6, c::IPV6_MTU_DISCOVER, 1, Range(0, 5)),
        (c::IPPROTO_IPV6, c::IPV6_RECVERR, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_RECVPKTINFO, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_RECVHOPLIMIT, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_RECVTCLASS, 0, Flag),
        (c::IPPROTO_IPV6, IPV6_2292PKTINFO, 0, Flag),
        (c::IPPROTO_IPV6, IPV6_2292HOPLIMIT, 0, Flag),
        // IPV6_2292HOPOPTS, IPV6_2292DSTOPTS, IPV6_2292RTHDR, IPV6_RECVHOPOPTS, IPV6_RECVRTHDR, IPV6_RECVDSTOPTS: no packet that
        // arrives has such headers.
        (c::IPPROTO_IPV6, 3, 0, Flag),
        (c::IPPROTO_IPV6, 4, 0, Flag),
        (c::IPPROTO_IPV6, 5, 0, Flag),
        (c::IPPROTO_IPV6, 53, 0, Flag),
        (c::IPPROTO_IPV6, 56, 0, Flag),
        (c::IPPROTO_IPV6, 58, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_TCLASS, 0, Range(-1, 255)),
        (c::IPPROTO_IPV6, c::IPV6_DONTFRAG, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_AUTOFLOWLABEL, 1, Flag),
        (c::IPPROTO_IPV6, c::IPV6_ADDR_PREFERENCES, 0, Range(0, 0xffff)),
        (c::IPPROTO_IPV6, c::IPV6_FREEBIND, 0, Flag),
        // IPV6_FLOWINFO, IPV6_ROUTER_ALERT_ISOLATE, IPV6_RECVERR_RFC4884, IPV6_FLOWINFO_SEND, IPV6_RECVPATHMTU, IPV6_RECVFRAGSIZE: no packet that arrives has
        // such things, and nobody looks at the flow of those that are sent.
        (c::IPPROTO_IPV6, 11, 0, Flag),
        (c::IPPROTO_IPV6, 30, 0, Flag),
        (c::IPPROTO_IPV6, 31, 0, Range(0, 1)),
        (c::IPPROTO_IPV6, 33, 0, Flag),
        (c::IPPROTO_IPV6, 60, 0, Flag),
        (c::IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 0, Flag),
        (c::IPPROTO_IPV6, IPV6_MINHOPCOUNT, 0, Range(0, 255)),
        (c::IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 0, Flag),
        (c::IPPROTO_IPV6, IPV6_TRANSPARENT, 0, Flag),
        (c::IPPROTO_TCP, c::TCP_DEFER_ACCEPT, 0, ANY),
        (c::IPPROTO_TCP, c::TCP_WINDOW_CLAMP, 0, ANY),
        (c::IPPROTO_TCP, c::TCP_FASTOPEN, 0, Range(0, i32::MAX)),
        (c::IPPROTO_TCP, c::TCP_NOTSENT_LOWAT, 0, ANY),
        (c::IPPROTO_TCP, c::TCP_THIN_LINEAR_TIMEOUTS, 0, Range(0, 1)),
        (c::IPPROTO_TCP, c::TCP_SAVE_SYN, 0, Range(0, 2)),
        // UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX: checksums of zero, which nobody sees.
        (c::IPPROTO_UDP, 101, 0, Flag),
        (c::IPPROTO_UDP, 102, 0, Flag),
        (c::IPPROTO_TCP, c::TCP_INQ, 0, Range(0, 1)),
        // No server gives a cookie, so connect(2) is as without it.
        (c::IPPROTO_TCP, c::TCP_FASTOPEN_CONNECT, 0, Range(0, 1)),
        // It matters only to who opens a connection by its first data, which is not supported with it.
        (c::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 0, Range(0, 1)),
    ]
};

/// Options of socket(7) that unix sockets keep and the network stack gives an effect: name and default.
pub(super) const KEPT_BY_UNIX: &[(u64, i32)] =
    &[(c::SO_REUSEADDR, 0), (c::SO_REUSEPORT, 0), (c::SO_KEEPALIVE, 0), (c::SO_RCVLOWAT, 1)];

/// The value of a kept option.
pub(crate) fn kept_value(generic: &Generic, level: u64, name: u64) -> i32 {
    let default = || kept(level, name).map_or(0, |(default, _)| default);
    generic.kept.get(&(level, name)).copied().unwrap_or_else(default)
}

pub(super) fn kept(level: u64, name: u64) -> Option<(i32, Shape)> {
    KEPT.iter().find(|k| (k.0, k.1) == (level, name)).map(|k| (k.2, k.3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_options_are_listed_once() {
        for (i, a) in KEPT.iter().enumerate() {
            assert!(KEPT[i + 1..].iter().all(|b| (a.0, a.1) != (b.0, b.1)), "{a:?}");
        }
    }
}
