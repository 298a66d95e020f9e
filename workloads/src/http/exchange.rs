//! One request and its response on one connection.

use std::net::SocketAddr;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::SocketId;

use super::response::{Parser, Response};
use super::transport::Transport;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A complete response came.
    Response(Response),
    /// No complete response came in time, though there was a connection.
    Timeout,
    /// The connection ended, or what came was no response, before a response was complete; with the reason.
    Reset(String),
    /// There was no connection, so that no byte of the request was sent; with the reason.
    Refused(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    /// So many bytes are sent.
    Sending(usize),
    Receiving,
}

/// A request under way.
#[derive(Clone, Debug)]
pub struct Exchange {
    socket: SocketId,
    address: SocketAddr,
    phase: Phase,
    request: Vec<u8>,
    parser: Parser,
    deadline: SimTime,
}

impl Exchange {
    /// Sends `request` (whose method is `method`) on a new connection to `address`; gives up at `deadline`. Call
    /// [`Exchange::poll`] next.
    pub fn open(
        net: &mut impl Transport,
        address: SocketAddr,
        method: &str,
        request: Vec<u8>,
        deadline: SimTime,
    ) -> Self {
        let socket = net.open(address.is_ipv6());
        Exchange { socket, address, phase: Phase::Connecting, request, parser: Parser::new(method), deadline }
    }

    /// Sends `request` on `socket`, a connection to `address` that is idle.
    pub fn reuse(
        socket: SocketId,
        address: SocketAddr,
        method: &str,
        request: Vec<u8>,
        deadline: SimTime,
    ) -> Self {
        Exchange { socket, address, phase: Phase::Sending(0), request, parser: Parser::new(method), deadline }
    }

    /// When the request is given up.
    pub fn deadline(&self) -> SimTime {
        self.deadline
    }

    /// Does what can be done at `now`. At the end, says how it ended, and gives the socket back if it can be used
    /// for another request; otherwise it is closed.
    pub fn poll(&mut self, net: &mut impl Transport, now: SimTime) -> Option<(End, Option<SocketId>)> {
        let end = self.advance(net, now).or_else(|| (now >= self.deadline).then(|| self.give_up()))?;
        let reusable = matches!(&end, End::Response(response) if response.keep_alive);
        if !reusable {
            self.cancel(net, now);
        }
        Some((end, reusable.then_some(self.socket)))
    }

    /// Closes the connection.
    pub fn cancel(&mut self, net: &mut impl Transport, now: SimTime) {
        // It is open: no one else knows the socket.
        net.close(self.socket, now);
    }

    fn give_up(&self) -> End {
        match self.phase {
            Phase::Connecting => End::Refused("no connection in time".to_owned()),
            Phase::Sending(_) | Phase::Receiving => End::Timeout,
        }
    }

    fn advance(&mut self, net: &mut impl Transport, now: SimTime) -> Option<End> {
        if self.phase == Phase::Connecting {
            match net.connect(self.socket, self.address, now) {
                Ok(()) => self.phase = Phase::Sending(0),
                Err(Errno::EINPROGRESS | Errno::EALREADY) => return None,
                Err(error) => return Some(End::Refused(error.to_string())),
            }
        }
        while let Phase::Sending(sent) = self.phase {
            match net.send(self.socket, &self.request[sent..], now) {
                Ok(count) if sent + count < self.request.len() => self.phase = Phase::Sending(sent + count),
                Ok(_) => self.phase = Phase::Receiving,
                Err(Errno::EAGAIN) => break,
                // The response may have come before the peer closed: read on, and find the end there.
                Err(_) => self.phase = Phase::Receiving,
            }
        }
        let mut buffer = [0; 4096];
        loop {
            match net.recv(self.socket, &mut buffer, now) {
                Ok(0) => {
                    let cut = if self.parser.has_begun() {
                        "the response was cut off"
                    } else {
                        "the connection was closed"
                    };
                    return Some(self.parser.end().map_or_else(|| End::Reset(cut.to_owned()), End::Response));
                }
                Ok(count) => match self.parser.push(&buffer[..count]) {
                    Ok(Some(response)) => return Some(End::Response(response)),
                    Ok(None) => {}
                    Err(malformed) => return Some(End::Reset(format!("no HTTP response: {}", malformed.0))),
                },
                Err(Errno::EAGAIN) => return None,
                Err(error) => return Some(End::Reset(error.to_string())),
            }
        }
    }
}
