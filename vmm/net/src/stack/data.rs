//! Data: send(2), recv(2) and their datagram forms.

use super::{Result, Stack};
use crate::iface::shown;
use crate::socket::Kind;
use crate::{Datagram, Proto, Sending, SocketId};
use bloodhound_abi::{Errno, SimTime};
use std::net::SocketAddr;

/// The way of a datagram.
pub(super) struct Way {
    pub(super) source: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Of one to a single node, 0 leaves it to the route.
    pub(super) interface: u32,
    /// It goes to a group, or to all nodes of a network.
    pub(super) many: bool,
}

impl Stack {
    /// send(2) on a connected socket: TCP takes what fits (EAGAIN: nothing), UDP all. `more` is MSG_MORE (TCP only).
    /// EPIPE (the caller raises SIGPIPE on TCP), ECONNRESET, ENOTCONN, EMSGSIZE, EDESTADDRREQ.
    pub fn send(&mut self, id: SocketId, data: &[u8], more: bool, now: SimTime) -> Result<usize> {
        self.send_bytes(id, data, (more, false), now)
    }

    /// send(2) with MSG_OOB on a stream: the last byte is urgent.
    pub fn send_urgent(&mut self, id: SocketId, data: &[u8], now: SimTime) -> Result<usize> {
        self.send_bytes(id, data, (false, true), now)
    }

    /// recv(2) with MSG_OOB on a stream: the urgent byte; `None` at the end. EINVAL, EAGAIN, ENOTCONN.
    pub fn recv_urgent(&mut self, id: SocketId, peek: bool) -> Result<Option<u8>> {
        let socket = self.get_mut(id)?;
        match &mut socket.kind {
            Kind::Conn(conn) => conn.read_urgent(peek, &socket.common),
            Kind::Listen(_) => Err(Errno::ENOTCONN),
            _ => Err(Errno::EINVAL),
        }
    }

    /// How much a send(2) on a connection that does not wait would take.
    pub fn send_room(&self, id: SocketId) -> usize {
        self.get(id).map_or(0, |s| if let Kind::Conn(conn) = &s.kind { conn.room(&s.common) } else { 0 })
    }

    /// A send(2) on a connection has taken less than there was room for, as if memory were short: an acknowledgement tells of room again.
    pub fn lacks_space(&mut self, id: SocketId) {
        if let Ok(Kind::Conn(conn)) = self.get_mut(id).map(|s| &mut s.kind) {
            conn.lacks_space();
        }
    }

    fn send_bytes(&mut self, id: SocketId, data: &[u8], how: (bool, bool), now: SimTime) -> Result<usize> {
        let (kind, mut cx) = self.with_cx(id, now)?;
        let result = match kind {
            Kind::Udp(_) => return self.send_to(id, data, None, now),
            Kind::Conn(conn) => conn.write(data, how, &mut cx),
            _ => Err(cx.c.take_error().unwrap_or(Errno::EPIPE)),
        };
        self.settle(id, now);
        result
    }

    /// recv(2) into `buf`; `Ok(0)` is the end of the stream (or an empty datagram). A datagram that is too long is
    /// cut. EAGAIN, ENOTCONN, ECONNRESET.
    pub fn recv(&mut self, id: SocketId, buf: &mut [u8], peek: bool, now: SimTime) -> Result<usize> {
        let (kind, mut cx) = self.with_cx(id, now)?;
        let result = match kind {
            Kind::Udp(_) => {
                let datagram = self.recv_from(id, peek)?;
                let count = datagram.data.len().min(buf.len());
                buf[..count].copy_from_slice(&datagram.data[..count]);
                return Ok(count);
            }
            Kind::Conn(conn) => conn.read(buf, peek, &mut cx),
            Kind::Listen(_) => Err(Errno::ENOTCONN),
            _ => match cx.c.take_error() {
                Some(error) => Err(error),
                None if cx.c.shut_read => Ok(0),
                None => Err(Errno::ENOTCONN),
            },
        };
        self.settle(id, now);
        result
    }

    /// sendto(2): on UDP to `to`, or to the connected peer if `None`; on TCP the address is ignored, as Linux does.
    pub fn send_to(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        now: SimTime,
    ) -> Result<usize> {
        self.send_datagram(id, data, to, &Sending::default(), now)
    }

    /// Who gets a datagram to `to`, or to the connected peer: asked before its bytes are looked at.
    ///
    /// # Errors
    ///
    /// EDESTADDRREQ for nobody, EINVAL for a port 0, EAFNOSUPPORT and ENETUNREACH for an address of the other family.
    pub fn receiver(&self, id: SocketId, to: Option<SocketAddr>) -> Result<SocketAddr> {
        let c = &self.get(id)?.common;
        let v6 = c.v6;
        let ports = matches!(c.proto, Proto::Udp | Proto::UdpLite);
        let peer = match (to, c.peer) {
            (Some(to), _) if to.is_ipv6() && !v6 => return Err(Errno::EAFNOSUPPORT),
            (Some(to), _) if to.port() == 0 && ports => return Err(Errno::EINVAL),
            (Some(to), _) => to,
            // udpv6_sendmsg gives such a peer to udp_sendmsg as an address.
            (None, Some(peer)) if ports && v6 && peer.is_ipv4() && peer.port() == 0 => {
                return Err(Errno::EINVAL);
            }
            (None, Some(peer)) => peer,
            (None, None) => return Err(Errno::EDESTADDRREQ),
        };
        self.reachable(id, peer)
    }

    /// What is found out about a datagram before its bytes are looked at: where it goes, and but for a probe (MSG_PROBE) whether its socket
    /// may send so many. Errors as of [`Stack::send_datagram`].
    pub fn check_datagram(
        &mut self,
        id: SocketId,
        (len, probe): (usize, bool),
        to: Option<SocketAddr>,
        how: &Sending,
        now: SimTime,
    ) -> Result<()> {
        if !matches!(self.get(id)?.kind, Kind::Udp(_)) {
            return Ok(());
        }
        let way = self.way_of(id, to, how)?;
        if probe {
            return Ok(());
        }
        self.check_length(id, len, &way, how, now)?;
        self.check_sender(id, how)
    }

    /// Between which addresses a datagram goes, and by which interface.
    fn way_of(&mut self, id: SocketId, to: Option<SocketAddr>, how: &Sending) -> Result<Way> {
        self.autobind(id, Errno::EAGAIN)?;
        let peer = self.receiver(id, to)?;
        let c = &self.get(id)?.common;
        if self.is_group(peer.ip()) {
            if !peer.ip().is_multicast() && !how.broadcast {
                return Err(Errno::EACCES);
            }
            let (interface, ip) = self.group_route(c, peer.ip(), Some(how))?;
            let source = SocketAddr::new(ip, c.local.port());
            return Ok(Way { source, peer, interface, many: true });
        }
        let (mut source, device) = (c.local, c.device_to(peer.ip()));
        // Of IPv6 by an earlier connection, while that of IPv4 is left to the route.
        let of_other_family = source.is_ipv6() && peer.is_ipv4() && !c.bound_addr;
        if let Some(ip) = how.source {
            self.net.check_source(ip, peer.ip(), device)?;
            source.set_ip(ip);
        } else if source.ip().is_unspecified() || self.is_group(source.ip()) || of_other_family {
            source.set_ip(self.net.source_by(peer.ip(), device)?);
        } else if source.is_ipv6() != peer.is_ipv6() {
            return Err(Errno::ENETUNREACH);
        } else {
            self.net.check_source(source.ip(), peer.ip(), device)?;
        }
        source.set_port(c.local.port());
        Ok(Way { source, peer, interface: device, many: false })
    }

    /// [`Stack::send_to`] with all that can be said about a datagram. Also EACCES for a broadcast address without SO_BROADCAST.
    pub fn send_datagram(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        how: &Sending,
        now: SimTime,
    ) -> Result<usize> {
        let socket = self.get_mut(id)?;
        if !matches!(socket.kind, Kind::Udp(_)) {
            return self.send(id, data, false, now);
        }
        let way = self.way_of(id, to, how)?;
        self.check_length(id, data.len(), &way, how, now)?;
        self.check_sender(id, how)?;
        self.frees_space(id, now)?;
        if way.many {
            return self.send_to_group(id, data, &way, how, now);
        }
        let Way { source, peer, interface: device, .. } = way;
        let socket = self.get_mut(id)?;
        let Kind::Udp(udp) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        let place = udp.names.place(socket.common.opened, peer);
        let packet = self.packet_of(id, data, (source, peer), (how.header, place), how)?;
        self.tell_times(id, &packet, how.times, now);
        self.net.emit_by(packet, device, now);
        Ok(data.len())
    }

    /// Whether a socket may send a datagram, whatever it is: only the first part of one is asked (`sock_alloc_send_skb` in
    /// `__ip_append_data`).
    pub(super) fn check_sender(&mut self, id: SocketId, how: &Sending) -> Result<()> {
        let c = &mut self.get_mut(id)?.common;
        if how.begun {
            return Ok(());
        }
        match c.take_error() {
            Some(error) => Err(error),
            None if c.shut_write => Err(Errno::EPIPE),
            None => Ok(()),
        }
    }

    /// A datagram leaves the send buffer at once, or is given up there, which Linux reports as new room (`sock_wfree`).
    pub fn frees_space(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        self.get_mut(id)?.common.wake(crate::ReadyFlags::WRITE);
        self.settle(id, now);
        Ok(())
    }

    /// When that part of a stream came which was read or peeked at last (`tcp_update_recv_tstamps`).
    pub fn read_of(&self, id: SocketId) -> Option<SimTime> {
        match &self.get(id).ok()?.kind {
            Kind::Conn(conn) => Some(conn.rcv.read_of()),
            _ => None,
        }
    }

    /// How many calls that receive from a socket of datagrams or frames do not sleep, as far as is known.
    pub fn receptions(&mut self, id: SocketId) -> Result<usize> {
        self.hand_out_noted();
        let socket = self.get(id)?;
        let queued = match &socket.kind {
            _ if socket.common.shut_read => usize::MAX,
            Kind::Udp(udp) => udp.queue.len(),
            Kind::Packet(tap) => tap.queue.len(),
            _ => 0,
        };
        Ok(queued.saturating_add(usize::from(socket.common.error.is_some())))
    }

    /// recvfrom(2) on a UDP socket: the whole datagram (the caller truncates). EAGAIN, ECONNREFUSED from an earlier
    /// send, EOPNOTSUPP on TCP. EAGAIN also comes after shutdown(SHUT_RD), where a blocking call returns 0: such a
    /// caller has to look at [`crate::ReadyFlags::RDHUP`].
    pub fn recv_from(&mut self, id: SocketId, peek: bool) -> Result<Datagram> {
        let socket = self.get_mut(id)?;
        let c = &mut socket.common;
        let Kind::Udp(udp) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        if let Some(error) = c.take_error() {
            return Err(error);
        }
        udp.drop_damaged();
        let next = if peek { udp.peek(None).map(|(datagram, _)| datagram) } else { udp.pop() };
        let (proto, v6, damaged) = (c.proto, c.v6, std::mem::take(&mut udp.found_damaged));
        self.count_read(proto, next.as_ref().filter(|_| !peek), damaged);
        let datagram = next.ok_or(Errno::EAGAIN)?;
        Ok(Datagram { src: shown(datagram.src, v6), dst: shown(datagram.dst, v6), ..datagram })
    }

    /// Counts what a program has read of UDP, and how many damaged datagrams it came across.
    fn count_read(&mut self, proto: Proto, read: Option<&Datagram>, damaged: [u64; 2]) {
        if !matches!(proto, Proto::Udp | Proto::UdpLite) {
            return;
        }
        for v6 in [false, true] {
            let counters = self.net.counters.udp_of(proto, v6);
            counters.received += u64::from(read.is_some_and(|datagram| datagram.src.is_ipv6() == v6));
            counters.damaged += damaged[usize::from(v6)];
        }
    }

    /// A peek on a UDP socket with SO_PEEK_OFF: the datagram in which the offset is, with the number of its bytes before that. Errors as of
    /// [`Stack::recv_from`].
    pub fn peek_at(&mut self, id: SocketId, offset: u64) -> Result<(Datagram, u64)> {
        let socket = self.get_mut(id)?;
        let c = &mut socket.common;
        let Kind::Udp(udp) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        if let Some(error) = c.take_error() {
            return Err(error);
        }
        let next = udp.peek(Some(offset));
        let (proto, v6, damaged) = (c.proto, c.v6, std::mem::take(&mut udp.found_damaged));
        self.count_read(proto, None, damaged);
        let (datagram, before) = next.ok_or(Errno::EAGAIN)?;
        let (src, dst) = (shown(datagram.src, v6), shown(datagram.dst, v6));
        Ok((Datagram { src, dst, ..datagram }, before))
    }
}
