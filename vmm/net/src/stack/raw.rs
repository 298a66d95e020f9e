//! Raw sockets and echo sockets (raw(7), icmp(7)), and the ICMP of the stack: what they send, who gets copies, who answers
//! (`raw_local_deliver`, `icmp_rcv`, `ping_rcv` and `icmpv6_rcv` of Linux).

use super::filter::{Start, filtered_bytes};
use super::{Pair, Result, Stack};
use crate::datagram::stands_for_many;
use crate::socket::{Common, Kind, Raw, Udp};
use crate::{Body, Bytes, Datagram, Header, Packet, Proto, ReadyFlags, Sending, SocketId, wire};
use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::Place;
use std::net::{IpAddr, SocketAddr};

/// Marks the place of an answer to a packet: the answerer may itself send packets of that place.
const ANSWER: u32 = 1 << 16;
/// And that of a report about it.
const REPORT: u32 = 1 << 17;
/// Bytes of the header of ICMP.
pub(super) const ICMP_HEADER: usize = 8;

impl Stack {
    /// Whether a socket may send these bytes to anybody: an echo socket sends requests for echoes only, and looks at them before it
    /// looks for a receiver (ping_common_sendmsg of Linux).
    ///
    /// # Errors
    ///
    /// EINVAL for others.
    pub fn check_request(&self, id: SocketId, data: &[u8]) -> Result<()> {
        let c = &self.get(id)?.common;
        if c.proto == Proto::Icmp { is_echo(c, data) } else { Ok(()) }
    }

    /// socket(AF_INET or AF_INET6, SOCK_RAW, protocol).
    pub fn raw_socket(&mut self, v6: bool, protocol: u8) -> SocketId {
        let mut common = Common::new(Proto::Raw, v6, &self.net.config);
        // `inet_create`: "inet->inet_num = protocol", which is its port and stays.
        common.local.set_port(u16::from(protocol));
        common.bound_port = true;
        common.opened = self.use_of(0);
        // INET_PROTOSW_REUSE.
        common.opts.reuseaddr = true;
        let checksum = (v6 && protocol == wire::ICMPV6).then_some(2);
        let raw = Raw { protocol, filter: [0; 8], checksum };
        let id = self.insert(common, Kind::Udp(Udp { raw: Some(Box::new(raw)), ..Udp::default() }));
        self.hold_port(id);
        id
    }

    /// socket(AF_INET or AF_INET6, SOCK_DGRAM, IPPROTO_ICMP or IPPROTO_ICMPV6).
    pub fn ping_socket(&mut self, v6: bool) -> SocketId {
        let mut common = Common::new(Proto::Icmp, v6, &self.net.config);
        common.opened = self.use_of(0);
        common.opts.reuseaddr = true;
        self.insert(common, Kind::Udp(Udp::default()))
    }

    fn raw(&self, id: SocketId) -> Result<&Raw> {
        match &self.get(id)?.kind {
            Kind::Udp(Udp { raw: Some(raw), .. }) => Ok(raw),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn raw_mut(&mut self, id: SocketId) -> Result<&mut Raw> {
        match &mut self.get_mut(id)?.kind {
            Kind::Udp(Udp { raw: Some(raw), .. }) => Ok(raw),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// The protocol number of a raw socket. ENOPROTOOPT for others.
    pub fn raw_protocol(&self, id: SocketId) -> Result<u8> {
        Ok(self.raw(id)?.protocol)
    }

    /// ICMP_FILTER, of which the first word counts, or ICMP6_FILTER.
    pub fn icmp_filter(&self, id: SocketId) -> Result<[u32; 8]> {
        Ok(self.raw(id)?.filter)
    }

    /// Sets ICMP_FILTER or ICMP6_FILTER.
    pub fn set_icmp_filter(&mut self, id: SocketId, filter: [u32; 8]) -> Result<()> {
        self.raw_mut(id)?.filter = filter;
        Ok(())
    }

    /// IPV6_CHECKSUM.
    pub fn checksum_offset(&self, id: SocketId) -> Result<Option<u16>> {
        Ok(self.raw(id)?.checksum)
    }

    /// Sets IPV6_CHECKSUM.
    pub fn set_checksum_offset(&mut self, id: SocketId, offset: Option<u16>) -> Result<()> {
        self.raw_mut(id)?.checksum = offset;
        Ok(())
    }

    /// bind(2) of a raw socket: its address only. EADDRNOTAVAIL; EINVAL when connected.
    pub(super) fn bind_raw(&mut self, id: SocketId, local: SocketAddr) -> Result<()> {
        let ip = local.ip();
        let known = ip.is_unspecified() || self.net.is_local(ip) || self.is_group(ip);
        let c = &mut self.get_mut(id)?.common;
        if c.peer.is_some() {
            return Err(Errno::EINVAL);
        }
        if !known {
            return Err(Errno::EADDRNOTAVAIL);
        }
        c.local.set_ip(ip);
        c.bound_addr = !ip.is_unspecified();
        Ok(())
    }

    /// The packet of a datagram that a socket sends.
    pub(super) fn packet_of(
        &mut self,
        id: SocketId,
        data: &[u8],
        (src, dst): Pair,
        (header, place): (Header, Place),
        how: &Sending,
    ) -> Result<Packet> {
        let socket = self.get(id)?;
        let bare = |(src, dst): Pair| (SocketAddr::new(src.ip(), 0), SocketAddr::new(dst.ip(), 0));
        let ((src, dst), body) = match socket.common.proto {
            Proto::Icmp => (bare((src, dst)), echo_body(&socket.common, data, (src, dst), header)?),
            Proto::Raw if how.has_header => return with_header(data, (src, dst), place),
            Proto::Raw => {
                let raw = self.raw(id)?;
                // A socket of IPPROTO_RAW for IPv6 may name another protocol with the address.
                let number = if raw.protocol == wire::RAW && dst.is_ipv6() && dst.port() != 0 {
                    dst.port() as u8
                } else {
                    raw.protocol
                };
                let mut data = data.to_vec();
                if let Some(at) = raw.checksum.map(usize::from).filter(|_| dst.is_ipv6()) {
                    let end = at + 2;
                    let field = data.get_mut(at..end).ok_or(Errno::EINVAL)?;
                    field.fill(0);
                    let sum = wire::transport_checksum(src.ip(), dst.ip(), number, &data);
                    data[at..end].copy_from_slice(&sum.to_be_bytes());
                }
                (bare((src, dst)), Body::Raw(header, number, data.into()))
            }
            proto => {
                let header = Header { lite: proto == Proto::UdpLite, ..header };
                ((src, dst), Body::Udp(header, Bytes::copy(data)))
            }
        };
        Ok(Packet { src, dst, body, place })
    }

    /// Gives copies of an arriving packet to the raw sockets of its protocol. Whether there were any.
    pub(super) fn copy_to_raw(&mut self, packet: &Packet, interface: u32, now: SimTime) -> bool {
        let protocol = wire::protocol(packet);
        if self.holders(Proto::Raw, u16::from(protocol)).next().is_none() {
            return false;
        }
        let v6 = packet.dst.is_ipv6();
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        let payload = Bytes::from(wire::payload(packet));
        let header = wire::fields(packet);
        let hears = |c: &Common| c.v6 == v6 && fits(c, dst, src) && c.takes_from(interface);
        let hearing: Vec<SocketId> = self
            .holders(Proto::Raw, u16::from(protocol))
            .filter(|id| self.sockets.get(id).is_some_and(|s| hears(&s.common)))
            .collect();
        // A receiver of IPv4 gets the header, too.
        let whole = match v6 {
            true => payload.clone(),
            false => {
                let mut whole = wire::header(src, dst, header, protocol, payload.len());
                whole.extend_from_slice(&payload);
                whole.into()
            }
        };
        for id in &hearing {
            let Some(socket) = self.sockets.get_mut(id) else { continue };
            let Kind::Udp(udp) = &mut socket.kind else { continue };
            if udp.raw.as_ref().is_some_and(|raw| raw.refuses(&payload, (src, dst))) {
                continue;
            }
            let start = (interface, if v6 { Start::Transport } else { Start::Network });
            let Some(data) = filtered_bytes(&mut socket.common, &self.net, packet, &whole, start) else {
                continue;
            };
            let (src, dst) = (SocketAddr::new(src, 0), SocketAddr::new(dst, 0));
            let datagram = Datagram { src, dst, interface, header, at: now, data, peeked: false };
            if udp.push(datagram, socket.common.opts.rcvbuf) {
                socket.common.wake(ReadyFlags::READ);
            }
            self.settle(*id, now);
        }
        !hearing.is_empty()
    }

    /// A packet that a raw socket or ICMP has sent arrives. `taken`: a raw socket has got it.
    pub(super) fn input_raw(&mut self, packet: &Packet, taken: bool, interface: u32, now: SimTime) {
        let Body::Raw(header, protocol, data) = &packet.body else { return };
        let (src, dst, place) = (packet.src.ip(), packet.dst.ip(), packet.place);
        match *protocol {
            wire::TCP => {
                if let Some((src, dst, segment)) = wire::segment((src, dst), header.hops, data) {
                    self.input_tcp((dst, src), &segment, (place, interface), now);
                }
            }
            wire::UDP => {
                if let Some((from, to, data)) = wire::datagram(src, dst, data) {
                    let pair = (SocketAddr::new(dst, to), SocketAddr::new(src, from));
                    self.input_udp(pair, (*header, data), (place, interface), now);
                }
            }
            number if number == wire::icmp_of(dst.is_ipv6()) => {
                self.input_icmp_message(packet, data, interface, now)
            }
            _ if !taken => {
                // ICMP_PROT_UNREACH, and ICMPv6's "unrecognized Next Header type encountered".
                let kind = if dst.is_ipv6() { [4, 1] } else { [wire::UNREACHABLE, 2] };
                let message = wire::error(kind, &wire::ip_bytes(packet), (dst, src));
                self.answer(packet, dst, (Header::default(), message), REPORT, now);
            }
            _ => {}
        }
    }

    /// A message of ICMP or ICMPv6.
    pub(super) fn input_icmp_message(&mut self, packet: &Packet, data: &Bytes, interface: u32, now: SimTime) {
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        let v6 = dst.is_ipv6();
        if data.len() < ICMP_HEADER || !wire::is_right_icmp(src, dst, data) {
            self.net.counters.icmp_comes(None, v6);
            return;
        }
        self.net.counters.icmp_comes(Some(data[0]), v6);
        match (data[0], v6) {
            // net.ipv4.icmp_echo_ignore_broadcasts = 1; a group of IPv6 is answered from an address of the node.
            (wire::ECHO, false) if stands_for_many(dst) || self.net.is_broadcast(dst) => {
                self.net.counters.icmp[0].errors += 1;
            }
            (wire::ECHO, false) | (wire::V6_ECHO, true) => {
                let from = if dst.is_multicast() { self.net.source_for(src).unwrap_or(dst) } else { dst };
                let mut message = data.to_vec();
                message[0] = if v6 { wire::V6_ECHO_REPLY } else { wire::ECHO_REPLY };
                wire::sum_icmp(from, src, &mut message);
                let header = Header { class: wire::fields(packet).class, ..Header::default() };
                self.answer(packet, from, (header, message), ANSWER, now);
            }
            (wire::ECHO_REPLY, false) | (wire::V6_ECHO_REPLY, true) => {
                self.input_echo_reply(packet, data, interface, now)
            }
            (kind, v6) => {
                if let Some(known) = wire::unreachable_of(kind, data[1], v6) {
                    let quote = data.slice(ICMP_HEADER..data.len());
                    let from = ([kind, data[1]], src, interface);
                    self.input_quote(known, &quote, from, now);
                }
            }
        }
    }

    fn answer(
        &mut self,
        packet: &Packet,
        from: IpAddr,
        (header, message): (Header, Vec<u8>),
        mark: u32,
        now: SimTime,
    ) {
        let protocol = wire::icmp_of(packet.dst.is_ipv6());
        let place = Place { transmission: packet.place.transmission | mark, ..packet.place };
        let (src, dst) = (SocketAddr::new(from, 0), packet.src);
        self.net.emit(Packet { src, dst, body: Body::Raw(header, protocol, message.into()), place }, now);
    }

    /// An answer to an echo request, for the echo socket of its identifier (`ping_lookup`).
    fn input_echo_reply(&mut self, packet: &Packet, data: &Bytes, interface: u32, now: SimTime) {
        let (src, dst) = (packet.src, packet.dst);
        let identifier = u16::from_be_bytes([data[4], data[5]]);
        let Some(id) = self.echo_socket(identifier, dst.ip(), interface) else { return };
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Udp(udp) = &mut socket.kind else { return };
        let header = wire::fields(packet);
        let start = (interface, Start::Transport);
        let Some(data) = filtered_bytes(&mut socket.common, &self.net, packet, data, start) else { return };
        let datagram = Datagram { src, dst, interface, header, at: now, data, peeked: false };
        if udp.push(datagram, socket.common.opts.rcvbuf) {
            socket.common.wake(ReadyFlags::READ);
        }
        self.settle(id, now);
    }

    pub(super) fn echo_socket(&self, identifier: u16, local: IpAddr, interface: u32) -> Option<SocketId> {
        let hears = |c: &Common| {
            let ip = c.local.ip();
            c.v6 == local.is_ipv6() && (ip.is_unspecified() || ip == local) && c.takes_from(interface)
        };
        self.holders(Proto::Icmp, identifier)
            .find(|id| self.sockets.get(id).is_some_and(|s| hears(&s.common)))
    }
}

impl Raw {
    /// Whether a filter or a wrong checksum keeps a packet from the socket (`icmp_filter`: "Do not block unknown ICMP types";
    /// `icmpv6_filter`; `rawv6_rcv`).
    fn refuses(&self, payload: &[u8], (src, dst): (IpAddr, IpAddr)) -> bool {
        // "skb_header_pointer" of the whole header fails.
        let short = payload.len() < ICMP_HEADER;
        let kind = payload.first().copied().unwrap_or(0);
        let blocked = match self.protocol {
            wire::ICMP => short || kind < 32 && self.filter[0] & 1 << kind != 0,
            wire::ICMPV6 => short || self.filter[usize::from(kind) / 32] & 1 << (kind % 32) != 0,
            _ => false,
        };
        let wrong = || wire::transport_checksum(src, dst, self.protocol, payload) != 0;
        blocked || self.checksum.is_some() && dst.is_ipv6() && wrong()
    }
}

/// Whether a raw socket's addresses allow a packet (`raw_v4_match`).
fn fits(c: &Common, dst: IpAddr, src: IpAddr) -> bool {
    let bound = c.local.ip();
    (bound.is_unspecified() || bound == dst) && c.peer.is_none_or(|peer| peer.ip() == src)
}

/// EINVAL for what is no request for an echo.
fn is_echo(c: &Common, data: &[u8]) -> Result<()> {
    let kind = if c.v6 { wire::V6_ECHO } else { wire::ECHO };
    if data.len() < ICMP_HEADER || data[..2] != [kind, 0] { Err(Errno::EINVAL) } else { Ok(()) }
}

/// What an echo socket sends: an echo request with its own identifier. EINVAL for anything else (`ping_common_sendmsg`,
/// `ping_supported`).
fn echo_body(c: &Common, data: &[u8], (src, dst): Pair, header: Header) -> Result<Body> {
    is_echo(c, data)?;
    let mut message = data.to_vec();
    message[4..6].copy_from_slice(&c.local.port().to_be_bytes());
    wire::sum_icmp(src.ip(), dst.ip(), &mut message);
    Ok(Body::Raw(header, wire::icmp_of(c.v6), message.into()))
}

/// A packet that comes with its header (`raw_send_hdrinc`). The source is filled in when it is 0, length and checksum always. EINVAL for
/// what is too short.
fn with_header(data: &[u8], (src, dst): Pair, place: Place) -> Result<Packet> {
    let parsed = wire::parse(data).filter(|p| p.src.is_ipv6() == dst.is_ipv6()).ok_or(Errno::EINVAL)?;
    let from = if parsed.src.is_unspecified() { src.ip() } else { parsed.src };
    let body = Body::Raw(parsed.header, parsed.protocol, Bytes::copy(&data[parsed.at..]));
    Ok(Packet { src: SocketAddr::new(from, 0), dst: SocketAddr::new(parsed.dst, 0), body, place })
}
