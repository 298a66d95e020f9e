//! [`Stack`]: the sockets of one node.

use crate::{
    Config, Datagram, Options, Packet, ReadyFlags, Shutdown, SockOpt, SocketId, SocketInfo, TcpInfo,
};
use bloodhound_abi::{Errno, SimTime};
use std::net::{IpAddr, SocketAddr};

type Result<T, E = Errno> = std::result::Result<T, E>;

/// One node's TCP/IP stack. Every call on an id that is not open gives EBADF. Nothing blocks: where Linux would
/// block, the call gives what it gives on a non-blocking socket, and an event says when to try again.
///
/// Loopback packets (to any local address) are queued inside with `Config::loopback_delay` and delivered by
/// [`Stack::on_time`], so they pass through time order like all else.
#[derive(Clone, Debug)]
pub struct Stack {
    config: Config,
    addresses: Vec<(IpAddr, u8)>,
}

#[allow(unused_variables)]
impl Stack {
    /// A stack with loopback only. `seed` sets the first ephemeral port and the initial sequence numbers; a
    /// restarted node should get another one.
    pub fn new(config: Config, seed: u64) -> Stack {
        Stack { config, addresses: Vec::new() }
    }

    /// Gives the node an address; `prefix` is the length of its network's prefix, which decides what is reachable.
    pub fn add_address(&mut self, ip: IpAddr, prefix: u8) {
        self.addresses.push((ip, prefix));
    }

    /// The addresses given so far with their prefixes, without loopback.
    pub fn addresses(&self) -> &[(IpAddr, u8)] {
        &self.addresses
    }

    /// The constants in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// socket(AF_INET or AF_INET6, SOCK_STREAM).
    pub fn tcp_socket(&mut self, v6: bool) -> SocketId {
        SocketId(0)
    }

    /// socket(AF_INET or AF_INET6, SOCK_DGRAM).
    pub fn udp_socket(&mut self, v6: bool) -> SocketId {
        SocketId(0)
    }

    /// bind(2). Port 0 picks one. EINVAL already bound, EADDRNOTAVAIL not local, EADDRINUSE, EAFNOSUPPORT.
    pub fn bind(&mut self, id: SocketId, addr: SocketAddr) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// listen(2). Autobinds. Again on a listener changes the backlog. EINVAL connected, EADDRINUSE.
    pub fn listen(&mut self, id: SocketId, backlog: u32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// connect(2) without blocking. TCP: the first call gives EINPROGRESS; then EALREADY until the handshake ended,
    /// then once `Ok` or the error (ECONNREFUSED, ETIMEDOUT, ..); then EISCONN. A blocking connect calls again
    /// after each event until neither EINPROGRESS nor EALREADY comes. UDP: sets the peer at once.
    pub fn connect(&mut self, id: SocketId, addr: SocketAddr, now: SimTime) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// connect(2) with AF_UNSPEC: dissolves the association; an open TCP connection is reset.
    pub fn disconnect(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// accept(2). EAGAIN when none is waiting, EINVAL when not listening.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr)> {
        Err(Errno::EOPNOTSUPP)
    }

    /// send(2) on a connected socket: TCP takes what fits (EAGAIN: nothing), UDP all. `more` is MSG_MORE.
    /// EPIPE (the caller raises SIGPIPE), ECONNRESET, ENOTCONN, EMSGSIZE, EDESTADDRREQ.
    pub fn send(&mut self, id: SocketId, data: &[u8], more: bool, now: SimTime) -> Result<usize> {
        Err(Errno::EOPNOTSUPP)
    }

    /// recv(2) into `buf`; `Ok(0)` is the end of the stream (or an empty datagram). EAGAIN, ENOTCONN, ECONNRESET.
    pub fn recv(&mut self, id: SocketId, buf: &mut [u8], peek: bool, now: SimTime) -> Result<usize> {
        Err(Errno::EOPNOTSUPP)
    }

    /// sendto(2) on a UDP socket; `None` uses the connected peer.
    pub fn send_to(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        now: SimTime,
    ) -> Result<usize> {
        Err(Errno::EOPNOTSUPP)
    }

    /// recvfrom(2) on a UDP socket: the whole datagram (the caller truncates). EAGAIN, ECONNREFUSED.
    pub fn recv_from(&mut self, id: SocketId, peek: bool) -> Result<Datagram> {
        Err(Errno::EOPNOTSUPP)
    }

    /// shutdown(2). ENOTCONN. On a listener SHUT_RD stops listening, as Linux does.
    pub fn shutdown(&mut self, id: SocketId, how: Shutdown, now: SimTime) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// close(2) of the last descriptor. The id is gone for the user at once; the connection ends by itself. Unread
    /// data or SO_LINGER 0 resets the peer. For SO_LINGER > 0 see [`Stack::lingering`].
    pub fn close(&mut self, id: SocketId, now: SimTime) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Whether a closed socket still has data or its FIN unacknowledged: what a close(2) with SO_LINGER > 0 waits
    /// for (events keep coming for it).
    pub fn lingering(&self, id: SocketId) -> bool {
        false
    }

    /// setsockopt(2). EINVAL out of range.
    pub fn set_option(&mut self, id: SocketId, option: SockOpt, now: SimTime) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// getsockopt(2) of all options.
    pub fn options(&self, id: SocketId) -> Result<&Options> {
        Err(Errno::EOPNOTSUPP)
    }

    /// SO_ERROR: takes the pending error.
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<Errno>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Whether the socket listens (SO_ACCEPTCONN).
    pub fn is_listening(&self, id: SocketId) -> bool {
        false
    }

    /// getsockname(2), in the socket's family (IPv4 on a v6 socket is `::ffff:a.b.c.d`).
    pub fn local_addr(&self, id: SocketId) -> Result<SocketAddr> {
        Err(Errno::EOPNOTSUPP)
    }

    /// getpeername(2). ENOTCONN.
    pub fn peer_addr(&self, id: SocketId) -> Result<SocketAddr> {
        Err(Errno::EOPNOTSUPP)
    }

    /// What poll(2) reports now; empty for an id that is not open. Does not allocate.
    pub fn readiness(&self, id: SocketId) -> ReadyFlags {
        ReadyFlags::empty()
    }

    /// FIONREAD: bytes to read (UDP: of the first datagram).
    pub fn readable_bytes(&self, id: SocketId) -> Result<usize> {
        Err(Errno::EOPNOTSUPP)
    }

    /// SIOCOUTQ: bytes not yet acknowledged.
    pub fn unacked_bytes(&self, id: SocketId) -> Result<usize> {
        Err(Errno::EOPNOTSUPP)
    }

    /// TCP_INFO. EOPNOTSUPP on UDP.
    pub fn tcp_info(&self, id: SocketId) -> Result<TcpInfo> {
        Err(Errno::EOPNOTSUPP)
    }

    /// All sockets, for /proc/net/tcp and udp, in a fixed order.
    pub fn sockets(&self) -> Vec<SocketInfo> {
        Vec::new()
    }

    /// Wakes since the last call, in the order of each socket's first one: the flags are the key of the wake (all
    /// of them for a state change), not the readiness. An edge-triggered waiter is woken if they meet its interest
    /// and `readiness` then agrees.
    pub fn take_events(&mut self) -> Vec<(SocketId, ReadyFlags)> {
        Vec::new()
    }

    /// A packet from the fabric arrives.
    pub fn input(&mut self, packet: Packet, now: SimTime) {}

    /// When `on_time` has to be called next, at the latest.
    pub fn next_deadline(&self) -> Option<SimTime> {
        None
    }

    /// Delivers loopback packets and fires timers that are due at `now`, in order of time, then of socket.
    pub fn on_time(&mut self, now: SimTime) {}

    /// Packets for the fabric, in the order in which they were sent.
    pub fn take_output(&mut self) -> Vec<Packet> {
        Vec::new()
    }

    /// Resets connections to `peer` (any if `None`), as if a RST had come in: the fault "connection reset". Call it
    /// on both ends. Returns how many.
    pub fn reset_connections(&mut self, peer: Option<IpAddr>, now: SimTime) -> usize {
        0
    }
}
