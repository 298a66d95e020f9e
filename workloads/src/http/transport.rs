//! [`Transport`]: what a client needs of a network. The simulated one is [`Stack`]; `bloodhound test --live` has the host's.
//!
//! Nothing in it waits: what cannot be done now says so (`EAGAIN`, `EINPROGRESS`), and the caller asks again later.

use std::net::SocketAddr;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::{ReadyFlags, SockOpt, SocketId, Stack};

/// TCP connections of a client.
pub trait Transport {
    /// A socket, which is not connected.
    fn open(&mut self, ipv6: bool) -> SocketId;

    /// Begins to connect, and at later calls says how it goes: `EINPROGRESS` or `EALREADY` until there is a connection.
    ///
    /// # Errors
    /// Why there is no connection (yet).
    fn connect(&mut self, socket: SocketId, to: SocketAddr, now: SimTime) -> Result<(), Errno>;

    /// Sends as much as can be sent now.
    ///
    /// # Errors
    /// `EAGAIN`: nothing can; others: the connection is broken.
    fn send(&mut self, socket: SocketId, bytes: &[u8], now: SimTime) -> Result<usize, Errno>;

    /// Receives what is there; 0 bytes are the end.
    ///
    /// # Errors
    /// `EAGAIN`: nothing is there yet; others: the connection is broken.
    fn recv(&mut self, socket: SocketId, buffer: &mut [u8], now: SimTime) -> Result<usize, Errno>;

    /// Whether an idle connection is still good: nothing to read, no end, no error.
    fn is_usable(&mut self, socket: SocketId) -> bool;

    /// Closes a socket.
    fn close(&mut self, socket: SocketId, now: SimTime);
}

impl Transport for Stack {
    fn open(&mut self, ipv6: bool) -> SocketId {
        self.tcp_socket(ipv6)
    }

    fn connect(&mut self, socket: SocketId, to: SocketAddr, now: SimTime) -> Result<(), Errno> {
        Stack::connect(self, socket, to, now)?;
        // Small requests are to leave at once; a refusal would be a fault of the stack, not of the peer.
        let _ = self.set_option(socket, SockOpt::NoDelay(true), now);
        Ok(())
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8], now: SimTime) -> Result<usize, Errno> {
        Stack::send(self, socket, bytes, false, now)
    }

    fn recv(&mut self, socket: SocketId, buffer: &mut [u8], now: SimTime) -> Result<usize, Errno> {
        Stack::recv(self, socket, buffer, false, now)
    }

    fn is_usable(&mut self, socket: SocketId) -> bool {
        let bad = ReadyFlags::READ | ReadyFlags::RDHUP | ReadyFlags::HUP | ReadyFlags::ERR;
        !self.readiness(socket).intersects(bad)
    }

    fn close(&mut self, socket: SocketId, now: SimTime) {
        let closed = Stack::close(self, socket, now);
        assert_eq!(closed, Ok(()), "closing a connection of our own");
    }
}
