//! [`Interfaces`]: the addresses of a node, choice of source addresses, and the way out for packets (to the fabric
//! or back over loopback). Shared by all sockets of a [`crate::Stack`].

use crate::names::{self, Names};
use crate::{Body, Bytes, Config, Flags, Packet, Segment};
use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::Place;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interfaces {
    pub(crate) config: Config,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) out: Vec<Packet>,
    /// Loopback packets in flight, in order of arrival time.
    pub(crate) loopback: VecDeque<(SimTime, Packet)>,
    /// The name server, which is on loopback.
    pub(crate) names: Names,
    /// TCP ports of the loopback addresses behind which another node is, as an engine has them on the machine of its containers.
    pub(crate) published: Arc<BTreeMap<u16, SocketAddr>>,
}

impl Interfaces {
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

    /// Checks a source chosen by the user against the route to `dst`: a loopback source cannot leave the node.
    pub(crate) fn check_source(&self, src: IpAddr, dst: IpAddr) -> Result<(), Errno> {
        self.source_for(dst)?;
        if src.is_loopback() && !self.is_local(dst) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// The segment size that this side announces to `peer`.
    pub(crate) fn mss_for(&self, peer: IpAddr) -> u16 {
        match (self.is_local(peer), peer.is_ipv6()) {
            (true, _) => self.config.loopback_mss,
            (false, false) => self.config.mss,
            (false, true) => self.config.mss.saturating_sub(20),
        }
    }

    /// Sends a packet. Loopback packets keep the order in which they were sent.
    pub(crate) fn emit(&mut self, packet: Packet, now: SimTime) {
        if !self.is_local(packet.dst.ip()) {
            self.out.push(packet);
            return;
        }
        if packet.dst == names::SERVER
            && let Body::Udp(data) = &packet.body
            && self.names.table.is_some()
        {
            let answer = self.names.answer(data);
            if let Some(answer) = answer {
                let (src, dst, place) = (packet.dst, packet.src, packet.place);
                self.emit(Packet { src, dst, body: Body::Udp(Bytes::copy(&answer)), place }, now);
            }
            return;
        }
        let at = now.after(self.config.loopback_delay);
        let at = self.loopback.back().map_or(at, |(last, _)| at.max(*last));
        self.loopback.push_back((at, packet));
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
        let reset = Segment::control(seq, ack, flags, 0);
        self.emit(Packet { src: dst, dst: src, body: Body::Tcp(reset), place }, now);
    }
}

/// The address that a v4-mapped one stands for, without scope and flow label; all inner tables use this form.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// `addr` as a socket of the given family shows it.
pub(crate) fn shown(addr: SocketAddr, v6: bool) -> SocketAddr {
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
