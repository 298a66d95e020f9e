//! Packets as bytes of IP: what raw sockets and packet sockets see, and what they send (RFC 791, 8200, 792, 4443, 768, 9293).
//!
//! [`ip_bytes`] writes a packet out; [`datagram`] and [`segment`] read what a raw socket sent with the protocol number of UDP or TCP. What
//! a structured packet does not have is written as Linux's most frequent value: no identification, "do not fragment". Neighbours:
//! `packet` (the values), `stack::raw`.

use crate::{Body, Bytes, Flags, Header, Packet, Proto, Segment, Unreachable};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the two headers of IP without options.
pub(crate) const V4_HEADER: usize = 20;
pub(crate) const V6_HEADER: usize = 40;
/// Bytes of the header of UDP.
pub(crate) const UDP_HEADER: usize = 8;
/// Protocol numbers (RFC 5237's registry).
pub(crate) const ICMP: u8 = 1;
const IGMP: u8 = 2;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
const UDPLITE: u8 = 136;
/// IPPROTO_RAW: a socket that sends only.
pub(crate) const RAW: u8 = 255;

/// Types of ICMP and ICMPv6.
pub(crate) const ECHO_REPLY: u8 = 0;
pub(crate) const UNREACHABLE: u8 = 3;
pub(crate) const ECHO: u8 = 8;
pub(crate) const V6_UNREACHABLE: u8 = 1;
pub(crate) const V6_ECHO: u8 = 128;
pub(crate) const V6_ECHO_REPLY: u8 = 129;
/// "As much of the invoking packet as possible without the ICMPv6 packet exceeding the minimum IPv6 MTU" (RFC 4443), and what Linux
/// sends of one of IPv4 ("RFC says return as much as we can without exceeding 576 bytes", icmp_send).
const QUOTE: usize = 576 - V4_HEADER - 8;
const V6_QUOTE: usize = 1280 - V6_HEADER - 8;

/// The number of ICMP's protocol for a family.
pub(crate) fn icmp_of(v6: bool) -> u8 {
    if v6 { ICMPV6 } else { ICMP }
}

/// The sum of RFC 1071 over these bytes, on top of `sum`.
fn add(mut sum: u32, bytes: &[u8]) -> u32 {
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// The checksum of these bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    !(add(0, bytes) as u16)
}

/// The checksum of a transport's bytes with the pseudo header (RFC 768, RFC 8200 section 8.1). Over bytes with a right checksum it is 0.
pub(crate) fn transport_checksum(src: IpAddr, dst: IpAddr, protocol: u8, bytes: &[u8]) -> u16 {
    let addresses = [src, dst].iter().fold(0, |sum, ip| match ip {
        IpAddr::V4(ip) => add(sum, &ip.octets()),
        IpAddr::V6(ip) => add(sum, &ip.octets()),
    });
    let sum = add(addresses, &(bytes.len() as u32).to_be_bytes());
    !(add(add(sum, &[0, protocol]), bytes) as u16)
}

/// Puts the checksum of ICMP or ICMPv6 into a message.
pub(crate) fn sum_icmp(src: IpAddr, dst: IpAddr, message: &mut [u8]) {
    message[2..4].fill(0);
    let sum = if dst.is_ipv6() { transport_checksum(src, dst, ICMPV6, message) } else { checksum(message) };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// Whether a message of ICMP or ICMPv6 has a right checksum.
pub(crate) fn is_right_icmp(src: IpAddr, dst: IpAddr, message: &[u8]) -> bool {
    0 == if dst.is_ipv6() { transport_checksum(src, dst, ICMPV6, message) } else { checksum(message) }
}

/// A header of IP before `len` bytes.
pub(crate) fn header(src: IpAddr, dst: IpAddr, fields: Header, protocol: u8, len: usize) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = (V4_HEADER + len).min(0xffff) as u16;
            let mut out = vec![0x45, fields.class];
            out.extend_from_slice(&total.to_be_bytes());
            // No identification; "do not fragment".
            out.extend_from_slice(&[0, 0, 0x40, 0, fields.hops, protocol, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let sum = checksum(&out);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out
        }
        _ => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let mut out = (6u32 << 28 | u32::from(fields.class) << 20).to_be_bytes().to_vec();
            out.extend_from_slice(&(len.min(0xffff) as u16).to_be_bytes());
            out.extend_from_slice(&[protocol, fields.hops]);
            out.extend_from_slice(&octets(src));
            out.extend_from_slice(&octets(dst));
            out
        }
    }
}

/// What a header of IP says.
pub(crate) struct Parsed {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) header: Header,
    pub(crate) protocol: u8,
    /// Where the payload begins, and where it ends as the header says.
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// Reads the header of a packet of IP; `None` for what is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Parsed> {
    let field = |class, hops| Header { hops, class, ..Header::default() };
    match bytes.first()? >> 4 {
        4 => {
            let at = usize::from(bytes[0] & 15) * 4;
            let head = bytes.get(..at).filter(|head| head.len() >= V4_HEADER)?;
            let ip =
                |at: usize| IpAddr::from(Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]));
            let (src, dst) = (ip(12), ip(16));
            Some(Parsed {
                src,
                dst,
                header: field(head[1], head[8]),
                protocol: head[9],
                at,
                end: usize::from(word(head, 2)),
            })
        }
        6 => {
            let head = bytes.get(..V6_HEADER)?;
            let ip = |at: usize| {
                let octets: [u8; 16] = head[at..at + 16].try_into().unwrap_or_default();
                IpAddr::from(Ipv6Addr::from(octets))
            };
            let class = head[0] << 4 | head[1] >> 4;
            let (src, dst) = (ip(8), ip(24));
            Some(Parsed {
                src,
                dst,
                header: field(class, head[7]),
                protocol: head[6],
                at: V6_HEADER,
                end: V6_HEADER + usize::from(word(head, 4)),
            })
        }
        _ => None,
    }
}

/// Whether a header of IPv4 has options or says that this is a part of a packet.
pub(crate) fn is_fragment_or_has_options(bytes: &[u8]) -> bool {
    bytes.len() >= V4_HEADER && (bytes[0] & 15 > 5 || word(bytes, 6) & 0x3fff != 0)
}

/// The protocol number in the header of a packet.
pub(crate) fn protocol(packet: &Packet) -> u8 {
    match &packet.body {
        Body::Tcp(_) => TCP,
        Body::Udp(header, _) if header.lite => UDPLITE,
        Body::Udp(..) => UDP,
        Body::Icmp(..) => icmp_of(packet.dst.is_ipv6()),
        Body::Raw(_, protocol, _) => *protocol,
    }
}

/// Whether a stack knows what to do with packets of a protocol, without a raw socket.
pub(crate) fn is_known(protocol: u8, v6: bool) -> bool {
    matches!(protocol, TCP | UDP) || protocol == icmp_of(v6)
}

/// What its header of IP says beside addresses and protocol.
pub(crate) fn fields(packet: &Packet) -> Header {
    match &packet.body {
        Body::Udp(header, _) | Body::Raw(header, ..) => *header,
        Body::Tcp(segment) => Header { hops: segment.hops, ..Header::default() },
        Body::Icmp(..) => Header::default(),
    }
}

/// Bytes of the header of IP of a packet.
pub(crate) fn ip_header(packet: &Packet) -> usize {
    if packet.dst.is_ipv6() { V6_HEADER } else { V4_HEADER }
}

/// Bytes of the header of a packet's transport, 0 where its protocol is not known (`__skb_get_poff`).
pub(crate) fn transport_header(packet: &Packet) -> usize {
    match (&packet.body, protocol(packet)) {
        (Body::Tcp(segment), _) => tcp_header(segment),
        (Body::Raw(_, _, data), TCP) => data.get(12).map_or(0, |byte| usize::from(byte >> 2 & 0x3c).max(20)),
        (_, UDP | UDPLITE | ICMP | ICMPV6 | IGMP) => 8,
        _ => 0,
    }
}

/// Bytes of the option with a signature, filled up to words (TCPOLEN_MD5SIG_ALIGNED).
pub(crate) const SIGNATURE: usize = 20;

/// Bytes of the header of a segment.
fn tcp_header(s: &Segment) -> usize {
    let option = |is_there: bool, len: usize| if is_there { len } else { 0 };
    20 + option(s.mss.is_some(), 4) + option(s.wscale.is_some(), 4) + option(s.signature.is_some(), SIGNATURE)
}

/// Bytes of a packet with its header of IP, as [`ip_bytes`] makes them: what it takes on a wire of Ethernet behind the header of that.
pub(crate) fn len(packet: &Packet) -> usize {
    let ip = ip_header(packet);
    ip + match &packet.body {
        Body::Tcp(s) => tcp_header(s) + s.payload.len(),
        Body::Udp(_, data) => 8 + data.len(),
        // The header of the message, and the packet that it quotes.
        Body::Icmp(_, _, data) => 8 + ip + 8 + quoted_data(data, packet.dst.is_ipv6()).len(),
        Body::Raw(_, _, data) => data.len(),
    }
}

/// What lies behind the header of IP.
pub(crate) fn payload(packet: &Packet) -> Vec<u8> {
    let (src, dst) = (packet.src.ip(), packet.dst.ip());
    let protocol = protocol(packet);
    let mut out = match &packet.body {
        Body::Tcp(segment) => tcp_bytes(packet, segment),
        Body::Udp(header, data) => {
            // The coverage of UDP-Lite, 0 for all, is where UDP has its length.
            let len = if header.lite { 0 } else { (8 + data.len()).min(0xffff) as u16 };
            let mut out = ports(packet);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(data);
            out
        }
        Body::Icmp(kind, proto, data) => return report(packet, *kind, *proto, data),
        Body::Raw(_, _, data) => return data.to_vec(),
    };
    let sum = transport_checksum(src, dst, protocol, &out);
    let at = if protocol == TCP { 16 } else { 6 };
    // "If the computed checksum is zero, it is transmitted as all ones" (RFC 768).
    let sum = if sum == 0 && protocol != TCP { 0xffff } else { sum };
    out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    out
}

fn ports(packet: &Packet) -> Vec<u8> {
    let mut out = packet.src.port().to_be_bytes().to_vec();
    out.extend_from_slice(&packet.dst.port().to_be_bytes());
    out
}

fn tcp_bytes(packet: &Packet, s: &Segment) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(mss) = s.mss {
        options.extend_from_slice(&[2, 4]);
        options.extend_from_slice(&mss.to_be_bytes());
    }
    if let Some(scale) = s.wscale {
        options.extend_from_slice(&[1, 3, 3, scale]);
    }
    if let Some(signature) = s.signature {
        // Where the digest is there is what stands for it here.
        options.extend_from_slice(&[1, 1, 19, 18]);
        options.extend_from_slice(&u128::from(signature).to_be_bytes());
    }
    let mut out = ports(packet);
    out.extend_from_slice(&s.seq.to_be_bytes());
    out.extend_from_slice(&s.ack.to_be_bytes());
    out.extend_from_slice(&[((20 + options.len()) as u8 / 4) << 4, s.flags.bits()]);
    out.extend_from_slice(&s.window.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&s.urgent.to_be_bytes());
    out.extend_from_slice(&options);
    out.extend_from_slice(&s.payload);
    out
}

/// Type and code of a report in a family.
pub(crate) fn type_and_code(kind: Unreachable, v6: bool) -> [u8; 2] {
    match (kind, v6) {
        (Unreachable::Net, false) => [UNREACHABLE, 0],
        (Unreachable::Host, false) => [UNREACHABLE, 1],
        (Unreachable::Port, false) => [UNREACHABLE, 3],
        (Unreachable::Net, true) => [V6_UNREACHABLE, 0],
        (Unreachable::Host, true) => [V6_UNREACHABLE, 3],
        (Unreachable::Port, true) => [V6_UNREACHABLE, 4],
    }
}

/// The type of all reports of a family that something cannot be reached.
pub(crate) fn unreachable_type(v6: bool) -> u8 {
    if v6 { V6_UNREACHABLE } else { UNREACHABLE }
}

/// What a report about these says: type, code, and the kind; `None` for others.
pub(crate) fn unreachable_of(kind: u8, code: u8, v6: bool) -> Option<Unreachable> {
    let all = [Unreachable::Net, Unreachable::Host, Unreachable::Port];
    all.into_iter().find(|known| type_and_code(*known, v6) == [kind, code])
}

/// A report of the stack: it quotes the packet; of one of TCP only the ports are known any more.
fn report(packet: &Packet, kind: Unreachable, proto: Proto, data: &Bytes) -> Vec<u8> {
    let (src, dst) = (packet.src, packet.dst);
    let quote = match proto {
        Proto::Udp | Proto::UdpLite => {
            let header = Header { lite: proto == Proto::UdpLite, ..Header::default() };
            let body = Body::Udp(header, data.clone());
            ip_bytes(&Packet { src: dst, dst: src, body, place: packet.place })
        }
        _ => {
            let mut quote = header(dst.ip(), src.ip(), Header::default(), TCP, 8);
            quote.extend_from_slice(&dst.port().to_be_bytes());
            quote.extend_from_slice(&src.port().to_be_bytes());
            quote.extend_from_slice(&[0; 4]);
            quote
        }
    };
    error(type_and_code(kind, dst.is_ipv6()), &quote, (src.ip(), dst.ip()))
}

/// How much of the data of a datagram a report about it quotes.
pub(crate) fn quoted_data(data: &Bytes, v6: bool) -> Bytes {
    let most = if v6 { V6_QUOTE - V6_HEADER } else { QUOTE - V4_HEADER };
    data.slice(0..data.len().min(most - 8))
}

/// A message of ICMP about a packet of which `quote` are the bytes.
pub(crate) fn error([kind, code]: [u8; 2], quote: &[u8], (src, dst): (IpAddr, IpAddr)) -> Vec<u8> {
    let most = if dst.is_ipv6() { V6_QUOTE } else { QUOTE };
    let mut out = vec![kind, code, 0, 0, 0, 0, 0, 0];
    out.extend_from_slice(&quote[..quote.len().min(most)]);
    sum_icmp(src, dst, &mut out);
    out
}

/// The body of a report from `src` that a packet of a raw socket cannot be delivered.
pub(crate) fn report_raw(packet: &Packet, kind: Unreachable, src: IpAddr) -> Body {
    let v6 = packet.dst.is_ipv6();
    let message = error(type_and_code(kind, v6), &ip_bytes(packet), (src, packet.src.ip()));
    Body::Raw(Header::default(), icmp_of(v6), message.into())
}

/// A packet as bytes of IP.
pub(crate) fn ip_bytes(packet: &Packet) -> Vec<u8> {
    let payload = payload(packet);
    let (src, dst) = (packet.src.ip(), packet.dst.ip());
    let mut out = header(src, dst, fields(packet), protocol(packet), payload.len());
    out.extend_from_slice(&payload);
    out
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The ports and the content of a datagram of UDP; `None` if it is damaged.
pub(crate) fn datagram(src: IpAddr, dst: IpAddr, data: &Bytes) -> Option<(u16, u16, Bytes)> {
    let len = usize::from(word(data.get(..8)?, 4));
    if len < 8 || len > data.len() {
        return None;
    }
    let summed = word(data, 6) != 0 || src.is_ipv6();
    if summed && transport_checksum(src, dst, UDP, &data[..len]) != 0 {
        return None;
    }
    Some((word(data, 0), word(data, 2), data.slice(8..len)))
}

/// The ends and the segment of TCP in these bytes; `None` if it is damaged.
pub(crate) fn segment(
    (src, dst): (IpAddr, IpAddr),
    hops: u8,
    data: &Bytes,
) -> Option<(SocketAddr, SocketAddr, Segment)> {
    let head = data.get(..20)?;
    let at = usize::from(head[12] >> 4) * 4;
    if at < 20 || at > data.len() || transport_checksum(src, dst, TCP, data) != 0 {
        return None;
    }
    let long = |at: usize| u32::from(word(head, at)) << 16 | u32::from(word(head, at + 2));
    let flags = Flags::from_bits_truncate(head[13]);
    let mut out = Segment { hops, ..Segment::control(long(4), long(8), flags, word(head, 14)) };
    out.urgent = if flags.contains(Flags::URG) { word(head, 18) } else { 0 };
    out.payload = data.slice(at..data.len());
    let mut options = &data[20..at];
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => break,
            (1, rest) => rest,
            (kind, [len, ..]) if usize::from(*len) >= 2 && usize::from(*len) <= options.len() => {
                match (kind, &options[2..usize::from(*len)]) {
                    (2, [high, low]) if flags.contains(Flags::SYN) => {
                        out.mss = Some(u16::from_be_bytes([*high, *low]));
                    }
                    (19, digest) => {
                        // One that no socket here has made is of no key.
                        let digest = digest.try_into().ok().map(u128::from_be_bytes);
                        out.signature = digest.map(|digest| digest as u64 ^ (digest >> 64) as u64);
                    }
                    (3, [scale]) if flags.contains(Flags::SYN) => out.wscale = Some((*scale).min(14)),
                    _ => {}
                }
                &options[usize::from(*len)..]
            }
            _ => break,
        };
    }
    Some((SocketAddr::new(src, word(head, 0)), SocketAddr::new(dst, word(head, 2)), out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(src: &str, dst: &str, body: Body) -> Packet {
        let address = |text: &str| text.parse().expect("an address");
        Packet { src: address(src), dst: address(dst), body, place: Default::default() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut syn = Segment::control(1 << 31, 7, Flags::SYN | Flags::ACK, 500);
        (syn.mss, syn.wscale, syn.hops, syn.signature) = (Some(1460), Some(7), 255, Some(9));
        let data = Segment { payload: vec![1, 2, 3].into(), ..Segment::control(9, 8, Flags::ACK, 3) };
        for (src, dst) in [("10.0.0.1:5", "10.0.0.2:80"), ("[fd00::1]:5", "[fd00::2]:80")] {
            for s in [&syn, &data] {
                let packet = packet(src, dst, Body::Tcp(s.clone()));
                let bytes = ip_bytes(&packet);
                let parsed = parse(&bytes).expect("a header");
                assert_eq!((parsed.src, parsed.dst), (packet.src.ip(), packet.dst.ip()));
                let payload = Bytes::copy(&bytes[parsed.at..]);
                let read =
                    segment((parsed.src, parsed.dst), parsed.header.hops, &payload).expect("a segment");
                assert_eq!(read, (packet.src, packet.dst, s.clone()));
            }
            let header = Header { hops: 9, class: 0xb8, ..Header::default() };
            let packet = packet(src, dst, Body::Udp(header, vec![5; 33].into()));
            let bytes = ip_bytes(&packet);
            let parsed = parse(&bytes).expect("a header");
            assert_eq!((parsed.header, parsed.protocol), (header, UDP));
            let read = datagram(parsed.src, parsed.dst, &Bytes::copy(&bytes[parsed.at..]));
            assert_eq!(read, Some((5, 80, vec![5; 33].into())));
        }
    }

    #[test]
    fn damage_is_seen() {
        let whole =
            ip_bytes(&packet("10.0.0.1:5", "10.0.0.2:80", Body::Udp(Header::default(), vec![7; 9].into())));
        assert_eq!(checksum(&whole[..V4_HEADER]), 0);
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for at in V4_HEADER..whole.len() {
            let mut bytes = whole[V4_HEADER..].to_vec();
            bytes[at - V4_HEADER] ^= 1;
            assert_eq!(datagram(src, dst, &bytes.into()), None, "{at}");
        }
        for len in 0..8 {
            assert_eq!(datagram(src, dst, &vec![0; len].into()), None);
            assert_eq!(segment((src, dst), 64, &vec![0; len].into()), None);
        }
    }
}
