//! [`Interfaces`]: the addresses of a node, choice of source addresses, and the way out for packets (to the fabric
//! or back over loopback). Shared by all sockets of a [`crate::Stack`].

use crate::counters::Counters;
use crate::datagram::broadcast_of;
use crate::names::{self, Names};
use crate::{Body, Bytes, Config, Flags, Header, Packet, Segment, SocketId};
use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::Place;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Number of the loopback interface.
pub(crate) const LOOPBACK: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interfaces {
    pub(crate) config: Config,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) out: Vec<Packet>,
    pub(crate) counters: Counters,
    /// How many packet sockets there are, and what they have not got yet.
    pub(crate) watchers: u32,
    pub(crate) noted: Vec<Noted>,
    /// Loopback packets in flight, in order of arrival time.
    /// When, what, and by which interface it comes in.
    pub(crate) loopback: VecDeque<(SimTime, Packet, u32)>,
    /// The name server, which is on loopback.
    pub(crate) names: Names,
    /// TCP ports of the loopback addresses behind which another node is, as an engine has them on the machine of its containers.
    pub(crate) published: Arc<BTreeMap<u16, SocketAddr>>,
}

/// A packet that goes out of an interface or comes in, for packet sockets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Noted {
    pub(crate) packet: Packet,
    pub(crate) interface: u32,
    /// The packet socket that has sent it.
    pub(crate) sender: Option<SocketId>,
    pub(crate) outgoing: bool,
    pub(crate) at: SimTime,
}

impl Interfaces {
    /// Counts a packet that passes an interface, and notes it for packet sockets, if there are any.
    pub(crate) fn note(
        &mut self,
        packet: &Packet,
        interface: u32,
        sender: Option<SocketId>,
        outgoing: bool,
        at: SimTime,
    ) {
        let broadcast = packet.dst.is_ipv4() && self.is_broadcast(packet.dst.ip());
        if outgoing {
            self.counters.goes_out(packet, interface, (sender.is_none(), broadcast));
        } else {
            self.counters.comes_in(packet, interface, broadcast);
        }
        if self.watchers > 0 {
            self.noted.push(Noted { packet: packet.clone(), interface, sender, outgoing, at });
        }
    }

    /// Who takes a packet to an address: itself in a network of the node, else the router, which has the first address of the first network.
    pub(crate) fn next_hop(&self, ip: IpAddr) -> IpAddr {
        if self.is_local(ip) || self.addresses.iter().any(|(own, prefix)| same_network(*own, ip, *prefix)) {
            return ip;
        }
        let router = self.addresses.iter().find_map(|(own, prefix)| match own {
            IpAddr::V4(own) => {
                let mask = u32::MAX.checked_shl(32 - u32::from((*prefix).min(32))).unwrap_or(0);
                Some(IpAddr::V4(Ipv4Addr::from_bits((own.to_bits() & mask).wrapping_add(1))))
            }
            IpAddr::V6(_) => None,
        });
        router.unwrap_or(ip)
    }

    /// Whether packets to `ip` stay on this node.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.addresses.iter().any(|(own, _)| *own == ip)
    }

    /// The source address for packets to `dst`, as the routing table of a container would choose it.
    pub(crate) fn source_for(&self, dst: IpAddr) -> Result<IpAddr, Errno> {
        if dst.is_loopback() {
            return Ok(loopback(dst.is_ipv6()));
        }
        if self.is_local(dst) {
            return Ok(dst);
        }
        let same_family = || self.addresses.iter().filter(|(own, _)| own.is_ipv6() == dst.is_ipv6());
        if let Some((own, _)) = same_family().find(|(own, prefix)| same_network(*own, dst, *prefix)) {
            return Ok(*own);
        }
        let default = same_family().next().filter(|_| self.config.default_route);
        default.map(|(own, _)| *own).ok_or(Errno::ENETUNREACH)
    }

    /// The source address for packets to `dst` of a socket that sends by one interface; 0 stands for any.
    pub(crate) fn source_by(&self, dst: IpAddr, device: u32) -> Result<IpAddr, Errno> {
        let v6 = dst.is_ipv6();
        self.check_device(device, v6)?;
        let own = match device {
            _ if device == 0 || self.is_local(dst) && self.leads_to(dst, device) => {
                return self.source_for(dst);
            }
            // "Apparently, routing tables are wrong. Assume, that the destination is on link" (ip_route_output_key_hash_rcu).
            LOOPBACK => self.addresses.iter().map(|(own, _)| *own).find(|own| own.is_ipv6() == v6),
            _ => self.address_on(device, v6),
        };
        own.ok_or(Errno::ENETUNREACH)
    }

    /// Whether a socket can send by an interface, of which a program may have named any number; 0 stands for any. What fails is the look for a route, with
    /// ENODEV (`ip_route_output_key_hash_rcu`) or ENETUNREACH (IPv6).
    pub(crate) fn check_device(&self, device: u32, v6: bool) -> Result<(), Errno> {
        if device == 0 || self.has_interface(device) {
            return Ok(());
        }
        Err(if v6 { Errno::ENETUNREACH } else { Errno::ENODEV })
    }

    fn has_interface(&self, device: u32) -> bool {
        device == LOOPBACK || self.numbered().any(|(number, ..)| number == device)
    }

    /// Whether packets to `dst` get there by an interface; 0 stands for any. Loopback leads to this node alone, and no other one to its loopback
    /// addresses.
    fn leads_to(&self, dst: IpAddr, device: u32) -> bool {
        match device {
            0 => true,
            LOOPBACK => self.is_local(dst),
            _ => !dst.is_loopback() && self.arrived_by(dst) == device,
        }
    }

    /// The interface by which a packet of this node comes back to it (`inet_iif`): that of its address, but for a socket that sends by loopback.
    fn comes_back_by(&self, dst: IpAddr, device: u32) -> u32 {
        match device {
            LOOPBACK => LOOPBACK,
            _ => self.interface_of(dst).unwrap_or(LOOPBACK),
        }
    }

    /// The addresses with the numbers of their interfaces: loopback is 1, and each IPv4 address begins another one, to which the IPv6
    /// addresses belong that were given after it.
    fn numbered(&self) -> impl Iterator<Item = (u32, IpAddr, u8)> + '_ {
        self.addresses.iter().scan(LOOPBACK, |number, (own, prefix)| {
            if own.is_ipv4() || *number == LOOPBACK {
                *number += 1;
            }
            Some((*number, *own, *prefix))
        })
    }

    /// Number of the interface with an address.
    pub(crate) fn interface_of(&self, ip: IpAddr) -> Option<u32> {
        if ip.is_loopback() {
            return Some(LOOPBACK);
        }
        self.numbered().find(|(_, own, _)| *own == ip).map(|(number, ..)| number)
    }

    /// The first address of a family on an interface.
    pub(crate) fn address_on(&self, interface: u32, v6: bool) -> Option<IpAddr> {
        if interface == LOOPBACK {
            return Some(loopback(v6));
        }
        let own = self.numbered().find(|(number, own, _)| *number == interface && own.is_ipv6() == v6);
        own.map(|(_, own, _)| own)
    }

    /// The interface by which a packet of `src` came in: that of its network, else the one with the default route.
    pub(crate) fn arrived_by(&self, src: IpAddr) -> u32 {
        let own = self.interface_of(src);
        let near = || self.numbered().find(|(_, own, prefix)| same_network(*own, src, *prefix));
        own.or_else(|| near().map(|(number, ..)| number)).unwrap_or(LOOPBACK + 1)
    }

    /// The interface by which a packet to `dst` came in: the one with that address, or for several nodes the one near its sender.
    pub(crate) fn arrived_at(&self, dst: IpAddr, src: IpAddr) -> u32 {
        self.interface_of(dst).unwrap_or_else(|| self.arrived_by(src))
    }

    /// Whether an address stands for all nodes of a network of this node.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        ip == IpAddr::V4(Ipv4Addr::BROADCAST) || self.broadcast_interface(ip).is_some()
    }

    /// The interface whose network has this broadcast address.
    pub(crate) fn broadcast_interface(&self, ip: IpAddr) -> Option<u32> {
        if ip == IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255)) {
            return Some(LOOPBACK);
        }
        let of = |own: IpAddr, prefix: u8| broadcast_of(own, prefix).map(IpAddr::V4) == Some(ip);
        self.numbered().find(|(_, own, prefix)| of(*own, *prefix)).map(|(number, ..)| number)
    }

    /// Checks a source chosen by the user against the route to `dst`, by one interface or (0) any: a loopback source cannot leave the node.
    pub(crate) fn check_source(&self, src: IpAddr, dst: IpAddr, device: u32) -> Result<(), Errno> {
        self.source_by(dst, device)?;
        let leaves = !self.is_local(dst) || device > LOOPBACK;
        if src.is_loopback() && leaves { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// The segment size that this side announces to `peer`.
    pub(crate) fn mss_for(&self, peer: IpAddr) -> u16 {
        match (self.is_local(peer), peer.is_ipv6()) {
            (true, _) => self.config.loopback_mss,
            (false, false) => self.config.mss,
            (false, true) => self.config.mss.saturating_sub(20),
        }
    }

    /// Sends a packet by the interface that leads to its receiver.
    pub(crate) fn emit(&mut self, packet: Packet, now: SimTime) {
        self.emit_by(packet, 0, now);
    }

    /// Sends a packet of a socket that sends by one interface; 0 stands for any. It is lost if the receiver is not there. Loopback packets keep the
    /// order in which they were sent.
    pub(crate) fn emit_by(&mut self, packet: Packet, device: u32, now: SimTime) {
        if !self.leads_to(packet.dst.ip(), device) {
            if self.has_interface(device) {
                self.note(&packet, device, None, true, now);
            }
            return;
        }
        if !self.is_local(packet.dst.ip()) {
            self.send_out(packet, now);
            return;
        }
        self.note(&packet, LOOPBACK, None, true, now);
        if packet.dst == names::SERVER
            && let Body::Udp(Header { lite: false, .. }, data) = &packet.body
            && self.names.table.is_some()
        {
            // The server is a socket of this node.
            self.counters.comes_in(&packet, LOOPBACK, false);
            self.counters.delivers(&packet, false);
            self.counters.udp[0].received += 1;
            if self.names.held {
                self.names.questions.push(packet);
                return;
            }
            let answer = self.names.answer(data);
            if let Some(answer) = answer {
                let (src, dst, place) = (packet.dst, packet.src, packet.place);
                let body = Body::Udp(Header::default(), Bytes::copy(&answer));
                self.emit(Packet { src, dst, body, place }, now);
            }
            return;
        }
        let interface = self.comes_back_by(packet.dst.ip(), device);
        self.loop_back(packet, interface, now);
    }

    /// Sends a packet to the fabric.
    pub(crate) fn send_out(&mut self, packet: Packet, now: SimTime) {
        let interface = self.arrived_by(packet.src.ip());
        self.note(&packet, interface, None, true, now);
        self.out.push(packet);
    }

    /// Sends a packet to this node itself, where it comes in by an interface.
    pub(crate) fn loop_back(&mut self, packet: Packet, interface: u32, now: SimTime) {
        let at = now.after(self.config.loopback_delay);
        let at = self.loopback.back().map_or(at, |(last, ..)| at.max(*last));
        self.loopback.push_back((at, packet, interface));
    }

    /// Answers `seg` with a reset (RFC 9293, 3.10.7.1), unless it is one itself.
    /// It is named after the segment that it answers.
    pub(crate) fn emit_reset_for(
        &mut self,
        (src, dst): (SocketAddr, SocketAddr),
        seg: &Segment,
        place: Place,
        now: SimTime,
    ) {
        if seg.flags.contains(Flags::RST) {
            return;
        }
        let (seq, ack, flags) = match seg.flags.contains(Flags::ACK) {
            true => (seg.ack, 0, Flags::RST),
            false => (0, seg.seq_end(), Flags::RST | Flags::ACK),
        };
        let reset = Segment { signature: seg.signature, ..Segment::control(seq, ack, flags, 0) };
        self.emit(Packet { src: dst, dst: src, body: Body::Tcp(reset), place }, now);
    }
}

/// The address that a v4-mapped one stands for, without scope and flow label; all inner tables use this form.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// `addr` as a socket of the given family shows it.
pub fn shown(addr: SocketAddr, v6: bool) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
        _ => addr,
    }
}

pub(crate) fn unspecified(v6: bool) -> SocketAddr {
    let ip = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    SocketAddr::new(ip, 0)
}

pub(crate) fn loopback(v6: bool) -> IpAddr {
    if v6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) }
}

/// Whether two addresses are in one network with this prefix length.
pub(crate) fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let (a, b, bits) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32u32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let host = bits.saturating_sub(u32::from(prefix));
    (a ^ b).checked_shr(host).unwrap_or(0) == 0
}
