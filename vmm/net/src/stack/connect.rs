//! Opening and closing: connect(2), accept(2), shutdown(2), close(2).

use super::{Pair, Result, Stack};
use crate::conn::Conn;
use crate::iface::{canonical, loopback, shown, unspecified};
use crate::socket::{Association, Cx, Kind, Socket};
use crate::{Proto, ReadyFlags, Shutdown, SocketId, TcpState};
use bloodhound_abi::{Errno, SimTime};
use std::net::{IpAddr, SocketAddr};

impl Stack {
    /// connect(2) without blocking. TCP: the first call gives EINPROGRESS; then EALREADY until the handshake ended,
    /// then once `Ok` or the error (ECONNREFUSED, ETIMEDOUT, ..); then EISCONN. A blocking connect calls again
    /// after each event until neither EINPROGRESS nor EALREADY comes. UDP: sets the peer at once.
    pub fn connect(&mut self, id: SocketId, addr: SocketAddr, now: SimTime) -> Result<()> {
        self.connect_to(id, Ok(addr), now)
    }

    /// [`Stack::connect`] to an address that may be none: Linux looks at it when the socket has been found fit
    /// (`__inet_stream_connect`), or has got its port (`inet_dgram_connect`).
    pub fn connect_to(&mut self, id: SocketId, addr: Result<SocketAddr>, now: SimTime) -> Result<()> {
        let socket = self.get_mut(id)?;
        let v6 = socket.common.v6;
        if socket.common.proto.is_datagram() {
            self.autobind(id, Errno::EAGAIN)?;
            return self.connect_udp(id, addr?);
        }
        match socket.common.association {
            Association::Connected => return Err(Errno::EISCONN),
            Association::Connecting => return self.finish_connect(id, now),
            Association::Disconnecting => return Err(Errno::EINVAL),
            Association::Unconnected if !matches!(socket.kind, Kind::Idle) => return Err(Errno::EISCONN),
            Association::Unconnected => {}
        }
        let addr = addr?;
        if addr.is_ipv6() != v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        let pair = self.plan_connection(id, addr, now)?;
        if let Some(old) = self.conns.remove(&pair) {
            self.remove(old);
        }
        let iss = self.initial_seq(pair, now);
        let c = &mut self.get_mut(id)?.common;
        c.local = pair.0;
        c.peer = Some(pair.1);
        c.association = Association::Connecting;
        c.error = None;
        // What shutdown(2) closed before stays closed.
        self.hold_port(id);
        self.conns.insert(pair, id);
        self.net.counters.tcp.active_opens += 1;
        let (kind, mut cx) = self.with_cx(id, now)?;
        *kind = Kind::Conn(Box::new(Conn::open(pair.0, pair.1, iss, &mut cx)));
        self.settle(id, now);
        Err(Errno::EINPROGRESS)
    }

    /// Chooses both ends of a connection to `addr`.
    fn plan_connection(&mut self, id: SocketId, addr: SocketAddr, now: SimTime) -> Result<Pair> {
        let c = &self.get(id)?.common;
        let (mut local, device) = (c.local, c.opts.device);
        let mut peer = self.reachable(id, addr)?;
        if self.is_group(peer.ip()) {
            return Err(Errno::ENETUNREACH);
        }
        if let Some(behind) = self.net.published.get(&peer.port()).filter(|_| peer.ip().is_loopback()) {
            peer = self.reachable(id, *behind)?;
        }
        if local.ip().is_unspecified() {
            local.set_ip(self.net.source_by(peer.ip(), device)?);
        } else if local.is_ipv6() != peer.is_ipv6() {
            return Err(Errno::ENETUNREACH);
        } else {
            self.net.check_source(local.ip(), peer.ip(), device)?;
        }
        let opened = if c.holds_port {
            self.use_of(local.port())
        } else {
            local.set_port(0);
            let (port, round) = self.connect_port((local, peer), now).ok_or(Errno::EADDRNOTAVAIL)?;
            local.set_port(port);
            round
        };
        if !self.pair_is_free((local, peer), now) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.get_mut(id)?.common.opened = opened;
        Ok((local, peer))
    }

    /// The canonical form of a destination. The unspecified address means this host, as on Linux.
    pub(super) fn reachable(&self, id: SocketId, addr: SocketAddr) -> Result<SocketAddr> {
        let mut peer = canonical(addr);
        let c = &self.get(id)?.common;
        if peer.is_ipv4() && c.v6 && c.opts.v6only {
            return Err(Errno::ENETUNREACH);
        }
        // A socket whose own address is a mapped one sends by IPv4 only; the unspecified address is then that of IPv4 (ip6_dst_lookup_tail,
        // __ip6_datagram_connect, tcp_v6_connect).
        let mapped = c.v6 && c.local.is_ipv4() && peer.is_ipv6();
        if peer.ip().is_unspecified() {
            peer.set_ip(loopback(peer.is_ipv6() && !mapped));
        } else if mapped {
            return Err(Errno::EAFNOSUPPORT);
        }
        Ok(peer)
    }

    /// IPV6_ADDRFORM: a connected socket of IPv6 of which both ends have IPv4 addresses becomes one of IPv4. ENOTCONN, EADDRNOTAVAIL.
    pub fn become_v4(&mut self, id: SocketId) -> Result<()> {
        let socket = self.get_mut(id)?;
        if socket.state() != TcpState::Established {
            return Err(Errno::ENOTCONN);
        }
        let c = &mut socket.common;
        if c.opts.v6only || !c.peer.is_some_and(|peer| peer.is_ipv4()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        c.v6 = false;
        c.groups.retain(|m| m.group.is_ipv4());
        Ok(())
    }

    /// A further connect(2) while or after the handshake.
    fn finish_connect(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        let socket = self.get_mut(id)?;
        let result = match &socket.kind {
            Kind::Conn(conn) => conn.connect_result(&mut socket.common),
            _ => Err(socket.common.take_error().unwrap_or(Errno::ECONNABORTED)),
        };
        if result.is_err_and(|error| error != Errno::EALREADY) {
            if let Kind::Conn(conn) = &socket.kind {
                socket.common.ahead = conn.ahead();
            }
            self.make_idle(id, now);
        }
        result
    }

    fn connect_udp(&mut self, id: SocketId, addr: SocketAddr) -> Result<()> {
        let c = &self.get(id)?.common;
        if addr.is_ipv6() && !c.v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        let peer = self.reachable(id, addr)?;
        let c = &self.get(id)?.common;
        let (local, device) = (c.local, c.device_to(peer.ip()));
        let source = if self.is_group(peer.ip()) {
            self.group_route(&self.get(id)?.common, peer.ip(), None)?.1
        } else if local.ip().is_unspecified() || self.is_group(local.ip()) {
            self.net.source_by(peer.ip(), device)?
        } else if local.is_ipv6() && peer.is_ipv4() && !c.bound_addr {
            // The address of an earlier connection stays that of IPv6, that of IPv4 is another one (__ip4_datagram_connect).
            local.ip()
        } else {
            self.net.check_source(local.ip(), peer.ip(), device)?;
            local.ip()
        };
        let c = &mut self.get_mut(id)?.common;
        c.local.set_ip(source);
        c.peer = Some(peer);
        c.association = Association::Connected;
        Ok(())
    }

    /// connect(2) with AF_UNSPEC: dissolves the association; an open TCP connection is reset (and the socket's own
    /// SO_ERROR becomes ECONNRESET), a listener closed. An error that was pending stays (`tcp_disconnect`, `__udp_disconnect`).
    pub fn disconnect(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        self.stop_listening(id, now)?;
        let (kind, mut cx) = self.with_cx(id, now)?;
        if let Kind::Conn(conn) = kind {
            use TcpState::*;
            let ahead = conn.ahead();
            if matches!(conn.state, Established | CloseWait | FinWait1 | FinWait2 | SynRecv | SynSent) {
                cx.c.error = Some(Errno::ECONNRESET);
            }
            conn.abort(&mut cx);
            cx.c.ahead = ahead;
            self.settle(id, now);
        }
        self.make_idle(id, now);
        Ok(())
    }

    /// Makes the socket as new, but for what bind(2) gave it (`tcp_disconnect`).
    fn make_idle(&mut self, id: SocketId, now: SimTime) {
        // A connection that is over has given back its port; one that it has now was bound since, and stays (tcp_disconnect in TCP_CLOSE).
        let is_over = |s: &Socket| s.common.proto == Proto::Tcp && s.state() == TcpState::Close;
        let keeps_port = self.get(id).is_ok_and(|s| s.common.bound_port || is_over(s));
        if !keeps_port {
            self.release_port(id);
        }
        let Ok(socket) = self.get_mut(id) else { return };
        if socket.common.proto == Proto::Tcp {
            socket.kind = Kind::Idle;
        }
        let c = &mut socket.common;
        if !c.bound_addr {
            c.local.set_ip(unspecified(c.v6).ip());
        }
        if !c.bound_port && c.proto.is_datagram() {
            c.local.set_port(0);
        }
        c.peer = None;
        c.association = Association::Unconnected;
        c.soft_error = None;
        // udp_disconnect leaves this as it is.
        if c.proto == Proto::Tcp {
            c.shut_read = false;
            c.shut_write = false;
            // "seq = tp->write_seq + tp->max_window + 2", while what is acknowledged and what was sent last stay.
            c.ahead = c.ahead.map(|bytes| bytes.wrapping_add(2));
            // "sk_error_report(sk)", whether there is an error or not.
            c.wake(ReadyFlags::ERR);
        }
        c.done = false;
        self.settle(id, now);
    }

    /// accept(2): the new socket, which has the listener's options, and its peer. EAGAIN when none is waiting,
    /// EINVAL when not listening, EOPNOTSUPP on UDP.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr)> {
        let child = match &mut self.get_mut(id)?.kind {
            Kind::Listen(listener) => listener.queue.pop_front().ok_or(Errno::EAGAIN)?,
            Kind::Udp(_) => return Err(Errno::EOPNOTSUPP),
            _ => return Err(Errno::EINVAL),
        };
        let socket = self.sockets.get_mut(&child).ok_or(Errno::ECONNABORTED)?;
        let c = &mut socket.common;
        c.unaccepted = false;
        c.association = Association::Connected;
        let peer = c.peer.ok_or(Errno::ECONNABORTED)?;
        Ok((child, shown(peer, c.v6)))
    }

    /// How many connections wait to be accepted.
    pub fn connections(&self, id: SocketId) -> Result<usize> {
        match &self.get(id)?.kind {
            Kind::Listen(listener) => Ok(listener.queue.len()),
            _ => Ok(0),
        }
    }

    /// shutdown(2). ENOTCONN. On a listener SHUT_RD stops listening, as Linux does.
    pub fn shutdown(&mut self, id: SocketId, how: Shutdown, now: SimTime) -> Result<()> {
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        let socket = self.get_mut(id)?;
        let c = &mut socket.common;
        match &socket.kind {
            Kind::Listen(_) => {
                if read {
                    self.disconnect(id, now)?;
                }
                // "Wake up anyone sleeping in poll."
                self.get_mut(id)?.common.wake_all();
                self.settle(id, now);
                return Ok(());
            }
            Kind::Conn(conn) if conn.state == TcpState::SynSent => {
                return self.disconnect(id, now);
            }
            _ => {}
        }
        let unconnected = match &socket.kind {
            Kind::Udp(_) => c.peer.is_none(),
            Kind::Conn(conn) => conn.state == TcpState::Close,
            _ => true,
        };
        if c.association == Association::Connecting {
            c.association = if unconnected { Association::Disconnecting } else { Association::Connected };
        }
        c.shut_read |= read;
        c.shut_write |= write;
        if unconnected {
            // "Hack to wake up other listeners, who can poll for EPOLLHUP, even on eg. unconnected UDP sockets."
            c.wake_all();
        } else {
            c.wake_all();
            let (kind, mut cx) = self.with_cx(id, now)?;
            if let Kind::Conn(conn) = kind
                && write
            {
                conn.shutdown_write(&mut cx);
            }
        }
        self.settle(id, now);
        if unconnected { Err(Errno::ENOTCONN) } else { Ok(()) }
    }

    /// close(2) of the last descriptor. The id is gone for the user at once; the connection ends by itself. Unread
    /// data or SO_LINGER 0 resets the peer. For SO_LINGER > 0 see [`Stack::lingering`].
    pub fn close(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        self.stop_listening(id, now)?;
        let socket = self.get_mut(id)?;
        if let Some(index) = socket.common.event.take() {
            self.events[index as usize].1 = crate::ReadyFlags::empty();
        }
        let (kind, mut cx) = self.with_cx(id, now)?;
        cx.c.orphan = true;
        cx.c.groups.clear();
        match kind {
            Kind::Conn(conn) => {
                conn.close(&mut cx);
                self.settle(id, now);
            }
            _ => self.remove(id),
        }
        Ok(())
    }

    /// Whether a closed socket still has data or its FIN unacknowledged: what a close(2) with SO_LINGER > 0 waits
    /// for (events keep coming for it).
    pub fn lingering(&self, id: SocketId) -> bool {
        match self.sockets.get(&id).map(|s| &s.kind) {
            Some(Kind::Conn(conn)) => conn.is_lingering(),
            _ => false,
        }
    }

    /// Turns a listener into an idle socket; connections that nobody accepted are reset.
    fn stop_listening(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        let socket = self.get_mut(id)?;
        if !matches!(socket.kind, Kind::Listen(_)) {
            return Ok(());
        }
        let port = socket.common.local.port();
        let Kind::Listen(listener) = std::mem::replace(&mut socket.kind, Kind::Idle) else { return Ok(()) };
        self.listeners.remove(&(port, id));
        for pair in listener.requests.keys() {
            self.conns.remove(pair);
        }
        for child in listener.queue {
            let Some(socket) = self.sockets.get_mut(&child) else { continue };
            socket.common.unaccepted = false;
            socket.common.orphan = true;
            let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
            if let Kind::Conn(conn) = &mut socket.kind {
                conn.abort(&mut cx);
            }
            self.settle(child, now);
        }
        if !self.get(id)?.common.bound_port {
            self.release_port(id);
        }
        self.settle(id, now);
        Ok(())
    }

    /// Removes a socket and all that refers to it.
    pub(super) fn remove(&mut self, id: SocketId) {
        self.release_port(id);
        let Some(socket) = self.sockets.remove(&id) else { return };
        self.net.watchers -= u32::from(matches!(socket.kind, Kind::Packet(_)));
        self.held -= socket.held;
        self.note_end(id, &socket.common);
        if let Some(peer) = socket.common.peer {
            self.forget_pair((socket.common.local, peer), id);
        }
        if let Some(at) = socket.deadline {
            self.timers.remove(&(at, id));
        }
    }

    /// Removes the connection table's entry if it is this socket's.
    pub(super) fn forget_pair(&mut self, pair: Pair, id: SocketId) {
        if self.conns.get(&pair) == Some(&id) {
            self.conns.remove(&pair);
        }
    }

    /// Resets an open connection by a segment to each of its ends, as something between them may do. False if it is none to another node.
    pub fn reset_connection(&mut self, id: SocketId, now: SimTime) -> bool {
        let far = self.is_to_other_node(id);
        let Ok((Kind::Conn(conn), mut cx)) = self.with_cx(id, now) else { return false };
        let resets = far && conn.state == TcpState::Established;
        if resets {
            conn.reset_both(&mut cx);
            self.settle(id, now);
        }
        resets
    }

    /// Whether a socket has a peer on another node.
    pub fn is_to_other_node(&self, id: SocketId) -> bool {
        self.get(id).is_ok_and(|s| s.common.peer.is_some_and(|peer| !self.net.is_local(peer.ip())))
    }

    /// Resets connections to `peer` (any remote one if `None`), as if a RST had come in: the fault "connection
    /// reset". Call it on both ends. Loopback connections are spared unless `peer` names the address. Returns how
    /// many.
    pub fn reset_connections(&mut self, peer: Option<IpAddr>, now: SimTime) -> usize {
        let meant = |ip: IpAddr| peer.map_or(!self.net.is_local(ip), |peer| peer.to_canonical() == ip);
        let ids: Vec<SocketId> =
            self.conns.iter().filter(|(pair, _)| meant(pair.1.ip())).map(|(_, id)| *id).collect();
        let mut count = 0;
        for id in ids {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
            if let Kind::Conn(conn) = &mut socket.kind {
                conn.reset(&mut cx);
                count += 1;
                self.settle(id, now);
            }
        }
        count
    }
}
