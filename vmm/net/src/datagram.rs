//! Datagrams: what is sent and received with the data ([`Sending`], [`Header`], [`Datagram`]), and addresses that stand for several
//! nodes (multicast and broadcast, ip(7), ipv6(7)). Neighbours: `stack::data` and `stack::group`.

use crate::{Bytes, Proto};
use bloodhound_abi::{Errno, SimTime};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The fields of the IP header which receivers can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Time to live, hop limit. No router is on the way, so it arrives as it was sent.
    pub hops: u8,
    /// Type of service, traffic class.
    pub class: u8,
    /// The protocol is UDP-Lite.
    pub lite: bool,
    /// The checksum of what is behind it is wrong, as the receiver finds out when it reads.
    pub damaged: bool,
}

impl Header {
    /// The transport protocol.
    pub fn proto(&self) -> Proto {
        if self.lite { Proto::UdpLite } else { Proto::Udp }
    }
}

impl Default for Header {
    /// net.ipv4.ip_default_ttl, and no class.
    fn default() -> Header {
        Header { hops: 64, class: 0, lite: false, damaged: false }
    }
}

/// How a datagram is sent, beside its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sending {
    /// Header of one to a single node or to all of a network.
    pub header: Header,
    /// Hop limit of one to a group (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS): with 0 it stays on the node.
    pub group_hops: u8,
    /// Groups that the node itself is a member of get it as well (IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP).
    pub group_loops: bool,
    /// SO_BROADCAST.
    pub broadcast: bool,
    /// Source address (IP_PKTINFO, IPV6_PKTINFO).
    pub source: Option<IpAddr>,
    /// Interface for groups and networks; 0 leaves it to the socket's option and the route.
    pub interface: u32,
    /// The data begins with the header of IP (IP_HDRINCL).
    pub has_header: bool,
    /// No datagram longer than what the interface takes (IP_PMTUDISC_DO, IP_PMTUDISC_PROBE, IPV6_DONTFRAG).
    pub unfragmented: bool,
    /// Times of sending that are to be told.
    pub times: Times,
    /// A part of it was taken already, and so the rest is, whatever became of its socket.
    pub begun: bool,
}

/// Which times of sending the error queue is to tell of a datagram (SO_TIMESTAMPING).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Times {
    /// When it is given to the queue of the interface (SOF_TIMESTAMPING_TX_SCHED).
    pub scheduled: bool,
    /// When it is given to the interface (SOF_TIMESTAMPING_TX_SOFTWARE).
    pub sent: bool,
    /// One by the hardware is asked for (SOF_TIMESTAMPING_TX_HARDWARE): there is none, but such datagrams are numbered as well.
    pub hardware: bool,
    /// Datagrams are numbered (SOF_TIMESTAMPING_OPT_ID).
    pub numbered: bool,
    /// Without the frame (SOF_TIMESTAMPING_OPT_TSONLY).
    pub bare: bool,
}

impl Default for Sending {
    /// As the options of a new socket are.
    fn default() -> Sending {
        let header = Header::default();
        Sending {
            header,
            group_hops: 1,
            group_loops: true,
            broadcast: false,
            source: None,
            interface: 0,
            has_header: false,
            unfragmented: false,
            times: Times::default(),
            begun: false,
        }
    }
}

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// Sender, as the socket's family shows it.
    pub src: SocketAddr,
    /// The address it was sent to (IP_PKTINFO).
    pub dst: SocketAddr,
    /// Number of the interface by which it came in.
    pub interface: u32,
    /// Fields of its header.
    pub header: Header,
    /// When it came in (SO_TIMESTAMP).
    pub at: SimTime,
    /// Content, whole.
    pub data: Bytes,
    /// A peek has shown it. Counts for one without a byte (`skb->peeked`).
    pub peeked: bool,
}

/// What the error queue of a socket has (ip(7), IP_RECVERR; SO_TIMESTAMPING).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// What it tells.
    pub cause: Cause,
    /// When it came.
    pub at: SimTime,
    /// The beginning of what was sent, or the frame.
    pub data: Bytes,
}

/// What a report tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A message of ICMP (SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6).
    Icmp {
        /// The error.
        error: Errno,
        /// Type and code of the message.
        kind: [u8; 2],
        /// Who reports it.
        offender: IpAddr,
        /// Where the packet went.
        dst: SocketAddr,
        /// To whom the message came, and the interface by which it did.
        came: (IpAddr, u32),
    },
    /// A datagram was too long for the interface (SO_EE_ORIGIN_LOCAL).
    TooLong {
        /// Where it was to go.
        dst: SocketAddr,
        /// What the interface takes.
        mtu: u32,
    },
    /// The time of a datagram (SO_EE_ORIGIN_TIMESTAMPING).
    Time {
        /// It is that of being sent; of being scheduled otherwise.
        sent: bool,
        /// The number of the datagram; 0 where they have none.
        number: u32,
        /// The packet; `None` where reports come without it.
        of: Option<Sent>,
    },
}

/// A packet whose time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sent {
    /// Where it came from.
    pub src: IpAddr,
    /// Where it went.
    pub dst: IpAddr,
    /// The interface by which it left.
    pub interface: u32,
    /// Fields of its header.
    pub header: Header,
}

impl Cause {
    /// The error that becomes the socket's own: that of ICMP (`is_icmp_err_skb`).
    pub(crate) fn error(&self) -> Option<Errno> {
        match self {
            Cause::Icmp { error, .. } => Some(*error),
            _ => None,
        }
    }
}

/// A socket's membership in a multicast group, and of which sources it hears there (RFC 3678).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Membership {
    /// Canonical.
    pub(crate) group: IpAddr,
    pub(crate) interface: u32,
    /// The sources are the only ones (MCAST_INCLUDE), or all others (MCAST_EXCLUDE).
    pub(crate) include: bool,
    /// None at all is not the same as all taken away, which keeps the way in which they count (`sflist`).
    pub(crate) sources: Option<Vec<IpAddr>>,
}

impl Membership {
    /// One that hears everybody.
    pub(crate) fn whole(group: IpAddr, interface: u32) -> Membership {
        Membership { group, interface, include: false, sources: None }
    }

    pub(crate) fn is_of(&self, group: IpAddr, interface: u32) -> bool {
        self.group == group && self.interface == interface
    }

    /// Whether it hears this source.
    pub(crate) fn hears(&self, source: IpAddr) -> bool {
        self.sources.as_ref().is_some_and(|sources| sources.contains(&source)) == self.include
    }
}

/// Whether an address is that of a group of nodes, or of all nodes of whatever network.
pub(crate) fn stands_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Groups that every node is in: 224.0.0.1 (RFC 1112), ff01::1 and ff02::1 (RFC 4291).
pub(crate) fn is_of_all_nodes(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(ip) => ip == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(ip) => matches!(ip.segments(), [0xff01 | 0xff02, 0, 0, 0, 0, 0, 0, 1]),
    }
}

/// The broadcast address of a network of IPv4, its last one (RFC 919). Networks of one or two addresses have none (RFC 3021).
pub(crate) fn broadcast_of(own: IpAddr, prefix: u8) -> Option<Ipv4Addr> {
    let IpAddr::V4(own) = own else { return None };
    let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    (prefix < 31).then(|| Ipv4Addr::from_bits(own.to_bits() | host))
}
