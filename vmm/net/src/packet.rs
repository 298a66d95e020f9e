//! Packets as structured values: what travels over [`crate::Fabric`] between two [`crate::Stack`]s. There is no
//! wire format but for raw sockets, whose packets are bytes (`wire`); fields are those of RFC 9293 (TCP), RFC 768 (UDP) and RFC 792 (ICMP unreachable).

use crate::datagram::stands_for_many;
use crate::{Bytes, Header, wire};
use bloodhound_decisions::{PacketKind, Place};
use std::net::{IpAddr, SocketAddr};

bitflags::bitflags! {
    /// TCP control bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronise sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Deliver to the application.
        const PSH = 0x08;
        /// The acknowledgement field counts.
        const ACK = 0x10;
        /// The urgent pointer counts.
        const URG = 0x20;
    }
}

/// A TCP segment. `window` is the field of the header, so it must be shifted by the negotiated scale except on
/// segments with SYN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Sequence number of the first byte (of the SYN itself on a SYN).
    pub seq: u32,
    /// Next byte expected from the other side; 0 without [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window field, unscaled.
    pub window: u16,
    /// Urgent pointer: from the first byte to the one behind the urgent one; 0 without [`Flags::URG`].
    pub urgent: u16,
    /// Maximum segment size option; only on segments with SYN.
    pub mss: Option<u16>,
    /// Window scale option (RFC 7323); only on segments with SYN.
    pub wscale: Option<u8>,
    /// Time to live or hop limit, as sent.
    pub hops: u8,
    /// What a key has made of it (RFC 2385); `None` without a signature.
    pub signature: Option<u64>,
    /// Data.
    pub payload: Bytes,
}

impl Segment {
    /// A segment without data and options.
    pub fn control(seq: u32, ack: u32, flags: Flags, window: u16) -> Segment {
        let (hops, payload) = (Header::default().hops, Bytes::default());
        Segment {
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            mss: None,
            wscale: None,
            hops,
            signature: None,
            payload,
        }
    }

    /// Sequence numbers that the segment takes: data, and one each for SYN and FIN.
    pub fn seq_len(&self) -> u32 {
        let control = self.flags.intersection(Flags::SYN | Flags::FIN).bits().count_ones();
        self.payload.len() as u32 + control
    }

    /// The sequence number after this segment.
    pub fn seq_end(&self) -> u32 {
        self.seq.wrapping_add(self.seq_len())
    }
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proto {
    /// Stream sockets.
    Tcp,
    /// Datagram sockets.
    Udp,
    /// Datagram sockets whose checksum need not cover all (RFC 3828). Here a datagram that is damaged is always lost, as with UDP.
    UdpLite,
    /// Datagram sockets for echo requests of ICMP and ICMPv6 (icmp(7)); their port is the identifier.
    Icmp,
    /// Raw sockets (raw(7)); their port is the protocol number.
    Raw,
    /// Packet sockets (packet(7)), which have no port.
    Packet,
}

impl Proto {
    /// Whether its sockets are datagram sockets.
    pub fn is_datagram(self) -> bool {
        self != Proto::Tcp
    }
}

/// Why a packet could not be delivered, as ICMP reports it. The report travels from the unreachable address (the
/// packet's `src`) back to the sender (its `dst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreachable {
    /// No socket there: ECONNREFUSED.
    Port,
    /// No such host: EHOSTUNREACH.
    Host,
    /// No route: ENETUNREACH.
    Net,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram, unfragmented whatever its size, with what its receiver may ask of the IP header.
    Udp(Header, Bytes),
    /// ICMP destination unreachable about a packet of the given protocol, with the data of a datagram.
    Icmp(Unreachable, Proto, Bytes),
    /// What a raw socket or ICMP sends: fields of the header, protocol number, all that is behind the header. Ports are 0.
    Raw(Header, u8, Bytes),
}

impl Body {
    /// The transport protocol; an ICMP message has none.
    pub fn proto(&self) -> Option<Proto> {
        match self {
            Body::Tcp(_) => Some(Proto::Tcp),
            Body::Udp(header, _) => Some(header.proto()),
            Body::Icmp(..) => None,
            Body::Raw(..) => Some(Proto::Raw),
        }
    }
}

/// A packet. Addresses are canonical: IPv4 is always `SocketAddr::V4`, never `::ffff:a.b.c.d`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Sender.
    pub src: SocketAddr,
    /// Receiver.
    pub dst: SocketAddr,
    /// Content.
    pub body: Body,
    /// Where it stands in the traffic between the two; no part of what is sent, but of the name of the choices about it.
    pub place: Place,
}

impl Packet {
    /// Whether it goes to a multicast group or to all nodes of whatever network.
    pub fn is_for_many(&self) -> bool {
        stands_for_many(self.dst.ip())
    }

    /// What it is, for the name of the choices about it.
    pub fn kind(&self) -> PacketKind {
        match &self.body {
            Body::Tcp(s) if s.flags.contains(Flags::SYN) => PacketKind::Syn,
            Body::Tcp(s) if s.flags.contains(Flags::RST) => PacketKind::Reset,
            Body::Tcp(s) if s.seq_len() > 0 => PacketKind::Data,
            Body::Tcp(_) => PacketKind::Ack,
            Body::Udp(..) => PacketKind::Datagram,
            Body::Icmp(..) => PacketKind::Unreachable,
            Body::Raw(..) => PacketKind::Raw,
        }
    }

    /// The body of the report that the packet cannot be delivered, from `src`; `None` for one about which nothing is reported: "An ICMP
    /// error message MUST NOT be sent as the result of receiving an ICMP error message" (RFC 1122, section 3.2.2).
    pub fn report(&self, kind: Unreachable, src: IpAddr) -> Option<Body> {
        match &self.body {
            Body::Icmp(..) => None,
            Body::Raw(_, protocol, data) => {
                let icmp = *protocol == wire::icmp_of(self.dst.is_ipv6());
                let echo = if self.dst.is_ipv6() { wire::V6_ECHO } else { wire::ECHO };
                let asks = !icmp || data.first() == Some(&echo);
                asks.then(|| wire::report_raw(self, kind, src))
            }
            Body::Udp(header, data) => Some(Body::Icmp(kind, header.proto(), data.clone())),
            Body::Tcp(_) => Some(Body::Icmp(kind, Proto::Tcp, Bytes::default())),
        }
    }

    /// The data that it carries for a program.
    fn data_mut(&mut self) -> Option<&mut Bytes> {
        match &mut self.body {
            Body::Tcp(s) => Some(&mut s.payload),
            Body::Udp(_, data) => Some(data),
            Body::Icmp(..) | Body::Raw(..) => None,
        }
    }

    /// Bytes of data that it carries for a program.
    pub(crate) fn data_len(&self) -> usize {
        match &self.body {
            Body::Tcp(s) => s.payload.len(),
            Body::Udp(_, data) => data.len(),
            Body::Icmp(..) | Body::Raw(..) => 0,
        }
    }

    /// Changes a bit of its data.
    pub(crate) fn change(&mut self, bit: u64) {
        let Some(data) = self.data_mut() else { return };
        let mut bytes = data.to_vec();
        if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
        *data = Bytes::from(bytes);
    }
}

/// One line in the manner of tcpdump(8): `10.0.0.2:80 > 10.0.0.3:33001 SA seq=1 ack=2 win=64240 len=0`.
impl std::fmt::Display for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} > {} ", self.src, self.dst)?;
        match &self.body {
            Body::Tcp(s) => {
                for (flag, letter) in [
                    (Flags::SYN, 'S'),
                    (Flags::FIN, 'F'),
                    (Flags::RST, 'R'),
                    (Flags::PSH, 'P'),
                    (Flags::ACK, 'A'),
                    (Flags::URG, 'U'),
                ] {
                    if s.flags.contains(flag) {
                        write!(f, "{letter}")?;
                    }
                }
                write!(f, " seq={} ack={} win={} len={}", s.seq, s.ack, s.window, s.payload.len())
            }
            Body::Udp(_, data) => write!(f, "UDP len={}", data.len()),
            Body::Icmp(kind, proto, _) => write!(f, "ICMP {kind:?} unreachable ({proto:?})"),
            Body::Raw(_, protocol, data) => write!(f, "IP protocol {protocol} len={}", data.len()),
        }
    }
}
