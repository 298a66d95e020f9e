//! Names: bind(2), listen(2), ports and their conflicts (`inet_csk_get_port`, `udp_lib_get_port` of Linux).

use super::{Pair, Result, Stack};
use crate::iface::canonical;
use crate::naming::Opened;
use crate::seq::hash_pair;
use crate::socket::{Common, Kind, Listener};
use crate::{Proto, SocketId, TcpState};
use bloodhound_abi::{Errno, SimTime};
use std::net::SocketAddr;

impl Stack {
    /// bind(2). Port 0 picks one. EINVAL already bound, EADDRNOTAVAIL not local, EADDRINUSE, EAFNOSUPPORT.
    pub fn bind(&mut self, id: SocketId, addr: SocketAddr) -> Result<()> {
        let c = &self.get(id)?.common;
        if addr.is_ipv6() != c.v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        let mapped = addr.is_ipv6() && canonical(addr).is_ipv4();
        if mapped && c.opts.v6only {
            return Err(Errno::EINVAL);
        }
        let mut local = canonical(addr);
        if c.proto == Proto::Raw {
            return self.bind_raw(id, local);
        }
        // A connection of connect(2) that was refused or reset has given back a port that nobody chose, and may be bound (`tcp_done`, __inet_bind).
        let socket = self.get(id)?;
        let is_free = match socket.kind {
            Kind::Idle | Kind::Udp(_) => true,
            Kind::Conn(_) => socket.state() == TcpState::Close,
            _ => false,
        };
        if c.holds_port || !is_free {
            return Err(Errno::EINVAL);
        }
        if !local.ip().is_unspecified() && !self.net.is_local(local.ip()) && !self.is_group(local.ip()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let proto = c.proto;
        let opened = if local.port() == 0 {
            let (port, round) = self.free_port(proto).ok_or(Errno::EADDRINUSE)?;
            local.set_port(port);
            round
        } else if self.conflicts(id, local) {
            return Err(Errno::EADDRINUSE);
        } else {
            self.use_of(local.port())
        };
        let c = &mut self.get_mut(id)?.common;
        c.local = local;
        if proto == Proto::Tcp {
            // "inet->inet_daddr = 0": what was connected before is so no more, and does not give back the new port.
            c.peer = None;
        }
        // An echo socket has a use of its own, as its packets show no port.
        c.opened = if proto == Proto::Icmp { c.opened } else { opened };
        c.bound_addr = !local.ip().is_unspecified();
        c.bound_port = addr.port() != 0;
        // "if (addr_type != IPV6_ADDR_ANY && addr_type != IPV6_ADDR_MAPPED) sk->sk_ipv6only = 1" (__inet6_bind).
        c.opts.v6only |= local.is_ipv6() && c.bound_addr;
        self.hold_port(id);
        Ok(())
    }

    /// listen(2). Autobinds. Again on a listener it changes the backlog. EINVAL connected, EADDRINUSE, EOPNOTSUPP on
    /// UDP.
    pub fn listen(&mut self, id: SocketId, backlog: u32) -> Result<()> {
        let backlog = backlog.min(self.net.config.somaxconn);
        let socket = self.get_mut(id)?;
        match &mut socket.kind {
            Kind::Listen(listener) => {
                listener.backlog = backlog;
                return Ok(());
            }
            Kind::Idle => {}
            Kind::Udp(_) | Kind::Packet(_) => return Err(Errno::EOPNOTSUPP),
            Kind::Conn(_) | Kind::TimeWait(_) => return Err(Errno::EINVAL),
        }
        self.autobind(id, Errno::EADDRINUSE)?;
        // Two sockets may share an address by SO_REUSEADDR as long as neither listens; so it is checked again.
        let local = self.get(id)?.common.local;
        if self.conflicts(id, local) {
            return Err(Errno::EADDRINUSE);
        }
        let socket = self.get_mut(id)?;
        socket.kind = Kind::Listen(Listener { backlog, ..Listener::default() });
        socket.common.shut_read = false;
        socket.common.shut_write = false;
        self.listeners.insert((local.port(), id));
        Ok(())
    }

    /// Lets the backlog of a listener count as full for a fault, or no more for it. False if that changes nothing.
    pub fn fill_backlog(&mut self, id: SocketId, fault: u64, full: bool) -> bool {
        let Ok(Kind::Listen(listener)) = self.get_mut(id).map(|socket| &mut socket.kind) else {
            return false;
        };
        if full { listener.filled_by.insert(fault) } else { listener.filled_by.remove(&fault) }
    }

    /// Gives a socket of datagrams a port if it has none, as the first attempt to send something does, whatever becomes of it
    /// (inet_send_prepare of Linux).
    ///
    /// # Errors
    ///
    /// EAGAIN when there is no port left.
    pub fn prepare_to_send(&mut self, id: SocketId) -> Result<()> {
        match self.get(id)?.common.proto {
            Proto::Udp | Proto::UdpLite | Proto::Icmp => self.autobind(id, Errno::EAGAIN),
            _ => Ok(()),
        }
    }

    /// Gives the socket a free port if it has none; `full` is the error when there is none left.
    pub(super) fn autobind(&mut self, id: SocketId, full: Errno) -> Result<()> {
        let c = &self.get(id)?.common;
        if !c.holds_port {
            let (port, opened) = self.free_port(c.proto).ok_or(full)?;
            let c = &mut self.get_mut(id)?.common;
            c.local.set_port(port);
            c.opened = if c.proto == Proto::Icmp { c.opened } else { opened };
        }
        self.hold_port(id);
        Ok(())
    }

    /// Enters the socket into the table of ports.
    pub(super) fn hold_port(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.common.holds_port = true;
            self.ports.insert((socket.common.proto, socket.common.local.port(), id));
        }
    }

    /// Removes it from there; the address stays visible.
    pub(super) fn release_port(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && std::mem::take(&mut socket.common.holds_port)
        {
            self.ports.remove(&(socket.common.proto, socket.common.local.port(), id));
        }
    }

    pub(super) fn holders(&self, proto: Proto, port: u16) -> impl Iterator<Item = SocketId> + Clone + '_ {
        let range = (proto, port, SocketId(0))..=(proto, port, SocketId(u32::MAX));
        self.ports.range(range).map(|(_, _, id)| *id)
    }

    /// Whether `id` may not be bound to `local` because of another socket.
    fn conflicts(&self, id: SocketId, local: SocketAddr) -> bool {
        let Some(socket) = self.sockets.get(&id) else { return false };
        let mine = &socket.common;
        self.holders(mine.proto, local.port()).filter(|other| *other != id).any(|other| {
            let Some(socket) = self.sockets.get(&other) else { return false };
            let theirs = &socket.common;
            let listening = matches!(socket.kind, Kind::Listen(_));
            let reuse = mine.opts.reuseaddr && theirs.opts.reuseaddr && !listening;
            let share = mine.opts.reuseport && theirs.opts.reuseport;
            let [own, other] = [mine.opts.device, theirs.opts.device];
            // Sockets of different interfaces share a port (inet_bind_conflict).
            let meet = own == 0 || other == 0 || own == other;
            !reuse && !share && meet && overlap(mine, local, theirs)
        })
    }

    /// A port of the local range that nobody holds; the search goes on where the last one ended.
    pub(super) fn free_port(&mut self, proto: Proto) -> Option<(u16, Opened)> {
        self.find_port(|stack, port| stack.holders(proto, port).next().is_none())
    }

    /// A local port for a connection from `ip` to `peer`: a free one, else one that other connections use towards
    /// other peers.
    pub(super) fn connect_port(&mut self, pair: Pair, now: SimTime) -> Option<(u16, Opened)> {
        self.free_port(Proto::Tcp).or_else(|| {
            self.find_port(|stack, port| {
                let shared = |id: SocketId| {
                    stack.sockets.get(&id).is_some_and(|s| !s.common.bound_port && s.common.peer.is_some())
                };
                let local = SocketAddr::new(pair.0.ip(), port);
                stack.holders(Proto::Tcp, port).all(shared) && stack.pair_is_free((local, pair.1), now)
            })
        })
    }

    fn find_port(&mut self, fits: impl Fn(&Stack, u16) -> bool) -> Option<(u16, Opened)> {
        let (low, high) = self.net.config.local_ports;
        let count = u64::from(high - low) + 1;
        for place in self.next_port..self.next_port + count {
            let port = low + (place % count) as u16;
            if fits(self, port) {
                self.next_port = place + 1;
                // A round gives each port once.
                return Some((port, Opened { life: self.life, port_use: (place / count) as u32 }));
            }
        }
        None
    }

    /// One more use of a port that a program chose.
    pub(super) fn use_of(&mut self, port: u16) -> Opened {
        Opened { life: self.life, port_use: self.port_uses.count(port) }
    }

    /// Whether a connection may take this pair. A TIME_WAIT on loopback may be taken over after a second
    /// (net.ipv4.tcp_tw_reuse = 2).
    pub(super) fn pair_is_free(&self, pair: Pair, now: SimTime) -> bool {
        let Some(socket) = self.conns.get(&pair).and_then(|id| self.sockets.get(id)) else {
            return true;
        };
        match &socket.kind {
            Kind::TimeWait(wait) => {
                self.net.is_local(pair.1.ip()) && now.since(wait.since) >= bloodhound_abi::time::SECS
            }
            _ => false,
        }
    }

    /// The initial sequence number of a connection: a hash of its ends plus a clock of 64 ns (RFC 6528, as Linux's
    /// `secure_tcp_seq`).
    pub(super) fn initial_seq(&self, pair: Pair, now: SimTime) -> u32 {
        (hash_pair(self.seed, pair.0, pair.1) as u32).wrapping_add((now.0 >> 6) as u32)
    }
}

/// Whether two sockets of one port see the same packets: equal addresses, or one is a wildcard that covers the
/// other (`::` covers IPv4 too unless IPV6_V6ONLY is set).
fn overlap(mine: &Common, local: SocketAddr, theirs: &Common) -> bool {
    let (a, b) = (local.ip(), theirs.local.ip());
    if a.is_ipv4() == b.is_ipv4() {
        return a == b || a.is_unspecified() || b.is_unspecified();
    }
    let (six, v6only) = if a.is_ipv6() { (a, mine.opts.v6only) } else { (b, theirs.opts.v6only) };
    six.is_unspecified() && !v6only
}
