//! Packet sockets (packet(7)): what goes out of and comes into the interfaces of a node, as frames of Ethernet.
//!
//! Key types: [`Tap`] (a socket), [`Frame`]. Packets that leave or arrive are noted while there are such sockets (`Interfaces::note`) and handed
//! out soon after. Hardware addresses are made from addresses of IPv4, as an engine makes them; nobody asks for them, so there is no ARP.

use super::filter::{Start, kept_of_frame};
use super::reports::mtu;
use super::{Result, Stack};
use crate::iface::{Interfaces, LOOPBACK, Noted};
use crate::naming::Datagrams;
use crate::socket::{Common, Kind, datagram_cost};
use crate::{Body, Bytes, Packet, Proto, ReadyFlags, SocketId, wire};
use bloodhound_abi::{Errno, SimTime};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Types of frames (linux/if_ether.h): all of them, ARP, IPv4, IPv6.
const ALL: u16 = 3;
const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Bytes of the header of Ethernet.
pub(super) const ETHERNET: usize = 14;

/// For whom a frame is (PACKET_HOST and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum FrameKind {
    Host = 0,
    Broadcast = 1,
    Multicast = 2,
    Outgoing = 4,
}

/// A frame in the queue of a packet socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Number of the interface.
    pub interface: u32,
    /// Its type.
    pub ethertype: u16,
    /// For whom it is.
    pub kind: FrameKind,
    /// Hardware address of the sender.
    pub from: [u8; 6],
    /// When it came by.
    pub at: SimTime,
    /// Its length before a filter has cut it.
    pub whole: u32,
    /// The checksum of its transport is left to hardware, which a packet that does not leave the machine never meets (CHECKSUM_PARTIAL).
    pub unsummed: bool,
    /// Its content, for SOCK_RAW with the header of Ethernet.
    pub data: Bytes,
}

/// A packet socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tap {
    /// SOCK_RAW: with the header of Ethernet.
    whole: bool,
    /// The type that it listens to; 0 for none.
    ethertype: u16,
    /// The interface that it listens on; 0 for all.
    interface: u32,
    /// PACKET_IGNORE_OUTGOING.
    ignores_outgoing: bool,
    pub(crate) queue: VecDeque<Frame>,
    pub(crate) used: usize,
    names: Datagrams,
    /// What PACKET_STATISTICS tells: frames that came, and those of them that found no room.
    counts: (u32, u32),
}

/// The hardware address that a container engine makes for an address of IPv4; nodes without one have the end of their address of IPv6.
pub fn hardware_address(ip: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => ip.octets().last_chunk().copied().unwrap_or_default(),
    };
    [0x02, 0x42, a, b, c, d]
}

impl Stack {
    /// socket(AF_PACKET, ..): `whole` for SOCK_RAW.
    pub fn packet_socket(&mut self, whole: bool, ethertype: u16) -> SocketId {
        let mut common = Common::new(Proto::Packet, false, &self.net.config);
        common.opened = self.use_of(0);
        let tap = Tap {
            whole,
            ethertype,
            interface: 0,
            ignores_outgoing: false,
            queue: VecDeque::new(),
            used: 0,
            names: Datagrams::default(),
            counts: (0, 0),
        };
        self.net.watchers += 1;
        self.insert(common, Kind::Packet(Box::new(tap)))
    }

    fn tap(&self, id: SocketId) -> Result<&Tap> {
        match &self.get(id)?.kind {
            Kind::Packet(tap) => Ok(tap),
            _ => Err(Errno::EBADF),
        }
    }

    fn tap_mut(&mut self, id: SocketId) -> Result<&mut Tap> {
        match &mut self.get_mut(id)?.kind {
            Kind::Packet(tap) => Ok(tap),
            _ => Err(Errno::EBADF),
        }
    }

    /// bind(2) of a packet socket to an interface, 0 for all, and, unless that is 0, to a type of frames.
    pub fn bind_packet(&mut self, id: SocketId, ethertype: u16, interface: u32) -> Result<()> {
        // What came by before was for the old name.
        self.hand_out_noted();
        let tap = self.tap_mut(id)?;
        tap.interface = interface;
        if ethertype != 0 {
            tap.ethertype = ethertype;
        }
        Ok(())
    }

    /// Type of frames and interface of a packet socket, and whether it is one of SOCK_RAW.
    pub fn packet_name(&self, id: SocketId) -> Result<(u16, u32, bool)> {
        let tap = self.tap(id)?;
        Ok((tap.ethertype, tap.interface, tap.whole))
    }

    /// Bytes that the queue of a packet socket takes.
    pub fn packet_bytes(&self, id: SocketId) -> Result<usize> {
        Ok(self.tap(id)?.used)
    }

    /// PACKET_IGNORE_OUTGOING.
    pub fn ignore_outgoing(&mut self, id: SocketId, ignore: bool) -> Result<()> {
        self.tap_mut(id)?.ignores_outgoing = ignore;
        Ok(())
    }

    /// PACKET_STATISTICS, which begins anew then: frames that came, and how many of them were lost.
    pub fn take_packet_counts(&mut self, id: SocketId) -> Result<(u32, u32)> {
        self.hand_out_noted();
        Ok(std::mem::take(&mut self.tap_mut(id)?.counts))
    }

    /// The next frame. EAGAIN, or a pending error.
    pub fn recv_frame(&mut self, id: SocketId, peek: bool) -> Result<Frame> {
        self.hand_out_noted();
        let tap = self.tap_mut(id)?;
        let frame = if peek { tap.queue.front().cloned() } else { tap.queue.pop_front() };
        let frame = frame.ok_or(Errno::EAGAIN)?;
        if !peek {
            tap.used -= datagram_cost(frame.data.len());
            self.weigh(id);
        }
        Ok(frame)
    }

    /// Sends a frame; `to` says type and interface where the frame or the socket does not. ENXIO without an interface, EINVAL for a frame
    /// without header, EMSGSIZE; EPROTONOSUPPORT for what is no packet of IP, or one with options or in fragments: that is not modelled. Frames of ARP, and those
    /// without a type, are lost: nobody here has a table of neighbours, so nobody listens to them.
    pub fn send_frame(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<(u16, u32)>,
        now: SimTime,
    ) -> Result<usize> {
        let tap = self.tap(id)?;
        let (ethertype, interface) = to.unwrap_or((tap.ethertype, tap.interface));
        if interface == 0 || self.net.address_on(interface, false).is_none() {
            return Err(Errno::ENXIO);
        }
        let at = if tap.whole { ETHERNET } else { 0 };
        let most = mtu(interface);
        if data.len() > most + at {
            return Err(Errno::EMSGSIZE);
        }
        let content = data.get(at..).ok_or(Errno::EINVAL)?;
        let ethertype = if tap.whole { u16::from_be_bytes([data[12], data[13]]) } else { ethertype };
        let known = match (ethertype, wire::parse(content)) {
            (IPV4, Some(parsed)) => !wire::is_fragment_or_has_options(content) && parsed.src.is_ipv4(),
            (IPV6, Some(parsed)) => parsed.src.is_ipv6(),
            _ => false,
        };
        if matches!(ethertype, 0 | ARP) {
            return Ok(data.len());
        }
        let Some(parsed) = wire::parse(content).filter(|_| known) else {
            return Err(Errno::EPROTONOSUPPORT);
        };
        let opened = self.get(id)?.common.opened;
        let (src, dst) = (SocketAddr::new(parsed.src, 0), SocketAddr::new(parsed.dst, 0));
        let payload = Bytes::copy(&content[parsed.at..parsed.end.clamp(parsed.at, content.len())]);
        let place = self.tap_mut(id)?.names.place(opened, dst);
        let packet = Packet { src, dst, body: Body::Raw(parsed.header, parsed.protocol, payload), place };
        self.net.note(&packet, interface, Some(id), true, now);
        if interface == LOOPBACK && self.is_martian(&packet) {
            self.net.note(&packet, interface, None, false, now);
        } else if interface == LOOPBACK {
            self.net.loop_back(packet, LOOPBACK, now);
        } else if !self.net.is_local(parsed.dst) {
            self.net.out.push(packet);
        }
        Ok(data.len())
    }

    /// Hands what was noted to the packet sockets.
    pub(super) fn hand_out_noted(&mut self) {
        for noted in std::mem::take(&mut self.net.noted) {
            self.hand_out(&noted);
        }
    }

    fn hand_out(&mut self, noted: &Noted) {
        let ethertype = ethertype_of(&noted.packet);
        let hears = |tap: &Tap| {
            let kind = match tap.ethertype {
                ALL => !(noted.outgoing && tap.ignores_outgoing),
                own => own == ethertype && !noted.outgoing,
            };
            kind && (tap.interface == 0 || tap.interface == noted.interface)
        };
        let hearing: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(id, s)| {
                noted.sender != Some(**id) && matches!(&s.kind, Kind::Packet(tap) if hears(tap))
            })
            .map(|(id, _)| *id)
            .collect();
        if hearing.is_empty() {
            return;
        }
        let kind = self.net.frame_kind(&noted.packet, noted.interface, noted.outgoing);
        let head = self.net.frame_header(&noted.packet, noted.interface, noted.outgoing);
        let from = head[6..12].try_into().unwrap_or_default();
        let whole = Bytes::from([&head[..], &wire::ip_bytes(&noted.packet)].concat());
        for id in hearing {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let Kind::Packet(tap) = &mut socket.kind else { continue };
            let (at, start) = if tap.whole { (0, Start::Link) } else { (ETHERNET, Start::Network) };
            let of = (&noted.packet, noted.interface, kind);
            let Some(kept) = kept_of_frame(&mut socket.common, &whole, of, start) else { continue };
            let data = whole.slice(at..whole.len().min(at.saturating_add(kept)));
            let unsummed = matches!(noted.packet.body, Body::Tcp(_) | Body::Udp(..));
            let (interface, whole) = (noted.interface, (whole.len() - at) as u32);
            let frame = Frame { interface, ethertype, kind, from, at: noted.at, whole, unsummed, data };
            if tap.push(frame, socket.common.opts.rcvbuf) {
                socket.common.wake(ReadyFlags::READ);
            }
            self.settle(id, noted.at);
        }
    }
}

/// The type of the frame of a packet.
pub(super) fn ethertype_of(packet: &Packet) -> u16 {
    if packet.dst.is_ipv6() { IPV6 } else { IPV4 }
}

impl Interfaces {
    /// For whom a frame is.
    pub(super) fn frame_kind(&self, packet: &Packet, interface: u32, outgoing: bool) -> FrameKind {
        match packet.dst.ip() {
            _ if outgoing => FrameKind::Outgoing,
            _ if interface == LOOPBACK => FrameKind::Host,
            dst if dst.is_multicast() => FrameKind::Multicast,
            dst if self.is_broadcast(dst) => FrameKind::Broadcast,
            _ => FrameKind::Host,
        }
    }

    /// The header of a frame: hardware addresses, which are 0 on loopback, and type.
    pub(super) fn frame_header(&self, packet: &Packet, interface: u32, outgoing: bool) -> [u8; ETHERNET] {
        let mut out = [0; ETHERNET];
        out[12..].copy_from_slice(&ethertype_of(packet).to_be_bytes());
        if interface == LOOPBACK {
            return out;
        }
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        let own = self.address_on(interface, false).map_or([0; 6], hardware_address);
        let to = match dst {
            _ if self.is_broadcast(dst) => [0xff; 6],
            IpAddr::V4(ip) if ip.is_multicast() => {
                let [_, b, c, d] = ip.octets();
                [0x01, 0x00, 0x5e, b & 0x7f, c, d]
            }
            IpAddr::V6(ip) if ip.is_multicast() => {
                let [.., a, b, c, d] = ip.octets();
                [0x33, 0x33, a, b, c, d]
            }
            _ if !outgoing => own,
            _ => hardware_address(self.next_hop(dst)),
        };
        let from = if outgoing { own } else { hardware_address(self.next_hop(src)) };
        out[..6].copy_from_slice(&to);
        out[6..12].copy_from_slice(&from);
        out
    }
}

impl Tap {
    /// Queues a frame; false if there is no room and it is lost.
    fn push(&mut self, frame: Frame, rcvbuf: u32) -> bool {
        self.counts.0 = self.counts.0.wrapping_add(1);
        let cost = datagram_cost(frame.data.len());
        // packet_rcv: "if (atomic_read(&sk->sk_rmem_alloc) >= (unsigned int)sk->sk_rcvbuf) goto drop_n_acct".
        if self.used >= rcvbuf as usize {
            self.counts.1 = self.counts.1.wrapping_add(1);
            return false;
        }
        self.used += cost;
        self.queue.push_back(frame);
        true
    }
}
