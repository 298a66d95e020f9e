//! Netlink sockets (netlink(7)): their ports, groups and queues of answers.
//!
//! NETLINK_ROUTE ([`route`]) and NETLINK_SOCK_DIAG ([`diag`]) exist: the kernel answers a request within send(2), so a queue holds what came back, and nothing
//! of a stack changes later that a group could be told of. Calls on them are in `sys::netlink`.
//!
//! Key types: [`NetlinkSocket`], [`message::Message`].

pub mod diag;
pub mod filter;
pub mod inet6;
pub mod message;
pub mod route;

use std::collections::{BTreeSet, VecDeque};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_bpf::{Filter, Packet};

use crate::ids::{Arena, NetlinkId};
use crate::socket::Generic;
use crate::stacks::NetNs;

/// SOL_NETLINK and its options.
pub const SOL_NETLINK: u64 = 270;
#[allow(missing_docs)]
pub mod option {
    pub const ADD_MEMBERSHIP: u64 = 1;
    pub const DROP_MEMBERSHIP: u64 = 2;
    pub const PKTINFO: u64 = 3;
    pub const BROADCAST_ERROR: u64 = 4;
    pub const NO_ENOBUFS: u64 = 5;
    pub const LISTEN_ALL_NSID: u64 = 8;
    pub const CAP_ACK: u64 = 10;
    pub const EXT_ACK: u64 = 11;
    pub const GET_STRICT_CHK: u64 = 12;
}
/// NETLINK_ROUTE.
pub const NETLINK_ROUTE: u64 = 0;
/// The last multicast group of NETLINK_ROUTE in Linux 6.1 (RTNLGRP_STATS).
pub const GROUPS: u32 = 36;
/// SK_WMEM_MAX and SK_RMEM_MAX.
pub const BUFFER: u32 = 212_992;
/// What a datagram takes of SO_RCVBUF beside its bytes (SKB_TRUESIZE of nothing).
const OVERHEAD: usize = 768;
/// Where ports begin, downwards, for sockets whose process has a port of its number already (`netlink_autobind`; Linux begins at a
/// random number below -4096).
const SECOND_PORT: i32 = -4097;

/// An answer in a socket's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Messages.
    pub data: Vec<u8>,
    /// Part of a dump whose end is still in the queue.
    pub dump: bool,
}

/// A netlink socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetlinkSocket {
    /// The stack that it asks.
    pub net: NetNs,
    /// NETLINK_ROUTE or NETLINK_SOCK_DIAG.
    pub protocol: u64,
    /// SOCK_RAW or SOCK_DGRAM, which are the same.
    pub kind: u64,
    /// Its port, once bound.
    pub port: Option<u32>,
    /// Groups that it belongs to.
    pub groups: BTreeSet<u32>,
    /// Answers that were not received.
    pub queue: VecDeque<Datagram>,
    /// An answer was lost because the queue was full: ENOBUFS for the next call that looks.
    pub overrun: bool,
    /// SO_SNDBUF and SO_RCVBUF.
    pub buffers: [u32; 2],
    /// SO_PASSCRED.
    pub passcred: bool,
    /// SO_ATTACH_FILTER.
    pub filter: Option<Box<Filter>>,
    /// Options of all sockets; flags of SOL_NETLINK are among the kept ones.
    pub generic: Generic,
}

impl NetlinkSocket {
    /// A socket of `uid`.
    pub fn new(net: NetNs, protocol: u64, kind: u64, uid: u32) -> NetlinkSocket {
        NetlinkSocket {
            net,
            protocol,
            kind,
            port: None,
            groups: BTreeSet::new(),
            queue: VecDeque::new(),
            overrun: false,
            buffers: [BUFFER; 2],
            passcred: false,
            filter: None,
            generic: Generic::new(uid),
        }
    }

    /// Whether a flag of SOL_NETLINK is set.
    pub fn has(&self, option: u64) -> bool {
        self.generic.is_set(SOL_NETLINK, option)
    }

    /// Adds an answer. netlink(7): "messages may be lost if [...] the socket's receive buffer is full", of which the next call hears
    /// (ENOBUFS), unless NETLINK_NO_ENOBUFS is set (`netlink_overrun`).
    pub fn push(&mut self, datagram: Datagram) {
        let used: usize = self.queue.iter().map(|d| d.data.len() + OVERHEAD).sum();
        if used > self.buffers[1] as usize {
            self.overrun = !self.has(option::NO_ENOBUFS);
        } else {
            self.queue.push_back(datagram);
        }
    }

    /// The same as far as the filter lets it through (netlink_unicast, netlink_dump).
    pub fn push_filtered(&mut self, mut datagram: Datagram) {
        if let Some(filter) = &mut self.filter {
            let Some(kept) = filter.keeps(&Packet::message(&datagram.data)) else { return };
            datagram.data.truncate(kept);
        }
        self.push(datagram);
    }

    /// Readiness (EPOLL* bits), as `datagram_poll` tells it.
    pub fn ready(&self) -> u64 {
        let readable = if self.queue.is_empty() { 0 } else { c::EPOLLIN | c::EPOLLRDNORM };
        let failed = if self.overrun { c::EPOLLERR } else { 0 };
        readable | failed | c::EPOLLOUT | c::EPOLLWRNORM | c::EPOLLWRBAND
    }

    /// `struct sockaddr_nl` of the socket itself.
    pub fn name(&self) -> Vec<u8> {
        // Groups beyond the first 32 have no bits there.
        let mask = self.groups.iter().filter(|g| **g <= 32).fold(0, |mask, g| mask | 1u32 << (g - 1));
        address(self.port.unwrap_or(0), mask)
    }

    /// Takes the groups of bind(2), which are the first 32.
    pub fn set_mask(&mut self, mask: u32) {
        self.groups.retain(|g| *g > 32);
        self.groups.extend((1..=32).filter(|g| mask & 1 << (g - 1) != 0));
    }
}

/// `struct sockaddr_nl`.
pub fn address(port: u32, groups: u32) -> Vec<u8> {
    let mut out = (c::AF_NETLINK as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&port.to_le_bytes());
    out.extend_from_slice(&groups.to_le_bytes());
    out
}

/// All netlink sockets of a node.
pub type NetlinkSockets = Arena<NetlinkId, NetlinkSocket>;

/// Whether a socket of the same namespace and protocol has the port.
fn taken(sockets: &NetlinkSockets, id: NetlinkId, port: u32) -> bool {
    let place = (sockets[id].net, sockets[id].protocol);
    sockets.iter().any(|(_, s)| (s.net, s.protocol) == place && s.port == Some(port))
}

/// Gives the socket the port that it asks for. EADDRINUSE.
pub fn bind(sockets: &mut NetlinkSockets, id: NetlinkId, port: u32) -> Result<(), Errno> {
    if taken(sockets, id, port) {
        return Err(Errno::EADDRINUSE);
    }
    sockets[id].port = Some(port);
    Ok(())
}

/// Gives a socket without a port one: netlink(7): "the kernel [...] assigns the process ID to the first netlink socket the process
/// opens and assigns a unique nl_pid to every netlink socket that the process subsequently creates".
pub fn autobind(sockets: &mut NetlinkSockets, id: NetlinkId, pid: u32) {
    if sockets[id].port.is_some() {
        return;
    }
    let mut port = pid;
    let mut next = SECOND_PORT;
    while taken(sockets, id, port) {
        port = next as u32;
        next -= 1;
    }
    sockets[id].port = Some(port);
}
