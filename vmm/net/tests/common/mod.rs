//! A small world for the network's tests: stacks on a fabric, driven by an event queue.
#![allow(dead_code)]

use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::Decisions;
use bloodhound_net::*;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1_000_000_000;

/// Nodes 0.. with addresses 10.0.0.1.., packets in flight, and a log of what was sent.
#[derive(Clone, Debug)]
pub struct Net {
    pub now: SimTime,
    pub stacks: Vec<Stack>,
    pub fabric: Fabric,
    pub decisions: Decisions,
    pub flight: BTreeMap<(SimTime, u64), (NodeId, Packet)>,
    pub sequence: u64,
    /// Every packet handed to the fabric: time, packet, whether it was dropped.
    pub log: Vec<(SimTime, Packet, Option<DropReason>)>,
}

pub fn ip(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8 + 1))
}

pub fn at(node: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(node), port)
}

pub fn lo(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub fn any(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

pub fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl Net {
    pub fn new(nodes: usize, link: LinkConfig, seed: u64) -> Net {
        Net::with_config(nodes, link, seed, Config::default())
    }

    pub fn with_config(nodes: usize, link: LinkConfig, seed: u64, config: Config) -> Net {
        let mut fabric = Fabric::new(link);
        let mut stacks = Vec::new();
        for node in 0..nodes {
            fabric.add_node(NodeId(node as u32), &[ip(node)]);
            stacks.push(fresh(node, config.clone(), seed));
        }
        let decisions = Decisions::seeded(seed);
        Net {
            now: SimTime(SEC),
            stacks,
            fabric,
            decisions,
            flight: BTreeMap::new(),
            sequence: 0,
            log: Vec::new(),
        }
    }

    /// Hands what the stacks sent to the fabric.
    pub fn flush(&mut self) {
        for node in 0..self.stacks.len() {
            for packet in self.stacks[node].take_output() {
                let from = NodeId(node as u32);
                let routed = self.fabric.route(packet.clone(), from, self.now, &mut self.decisions);
                self.log.push((self.now, packet, routed.dropped));
                for delivery in routed.deliveries() {
                    self.flight.insert((delivery.at, self.sequence), (delivery.to, delivery.packet));
                    self.sequence += 1;
                }
            }
        }
    }

    pub fn next_event(&self) -> Option<SimTime> {
        let packet = self.flight.keys().next().map(|(at, _)| *at);
        let timer = self.stacks.iter().filter_map(Stack::next_deadline).min();
        [packet, timer].into_iter().flatten().min()
    }

    /// One event; false if there is none up to `until`.
    pub fn step(&mut self, until: SimTime) -> bool {
        self.flush();
        let Some(next) = self.next_event().filter(|at| *at <= until) else { return false };
        self.now = self.now.max(next);
        if let Some(entry) = self.flight.first_entry().filter(|e| e.key().0 <= self.now) {
            let (node, packet) = entry.remove();
            if !self.fabric.is_down(node) {
                self.stacks[node.0 as usize].input(packet, self.now);
            }
        } else {
            for stack in &mut self.stacks {
                stack.on_time(self.now);
            }
        }
        self.flush();
        true
    }

    /// Runs for `ns` of virtual time.
    pub fn run(&mut self, ns: u64) {
        let until = self.now.after(ns);
        while self.step(until) {}
        self.now = until;
    }

    /// A hash over all state.
    pub fn digest(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        self.now.hash(&mut hasher);
        self.stacks.hash(&mut hasher);
        self.fabric.hash(&mut hasher);
        self.flight.hash(&mut hasher);
        self.log.hash(&mut hasher);
        self.decisions.trail().hash(&mut hasher);
        hasher.0
    }

    pub fn listener(&mut self, node: usize, port: u16, backlog: u32) -> SocketId {
        let id = self.stacks[node].tcp_socket(false);
        self.stacks[node].bind(id, any(port)).expect("bind");
        self.stacks[node].listen(id, backlog).expect("listen");
        id
    }

    /// Starts a connection; returns its socket.
    pub fn start(&mut self, node: usize, to: SocketAddr) -> SocketId {
        let id = self.stacks[node].tcp_socket(to.is_ipv6());
        assert_eq!(self.stacks[node].connect(id, to, self.now), Err(Errno::EINPROGRESS));
        id
    }

    /// An open connection from node 0 to a fresh listener on node 1: (client, server, listener).
    pub fn pair(&mut self) -> (SocketId, SocketId, SocketId) {
        let listener = self.listener(1, 80, 16);
        let client = self.start(0, at(1, 80));
        self.run(10 * MS);
        let (server, _) = self.stacks[1].accept(listener).expect("accept");
        assert_eq!(self.stacks[0].connect(client, at(1, 80), self.now), Ok(()));
        (client, server, listener)
    }

    pub fn send(&mut self, node: usize, id: SocketId, data: &[u8]) -> Result<usize, Errno> {
        let now = self.now;
        self.stacks[node].send(id, data, false, now)
    }

    pub fn recv(&mut self, node: usize, id: SocketId, len: usize) -> Result<Vec<u8>, Errno> {
        let mut buf = vec![0; len];
        let count = self.stacks[node].recv(id, &mut buf, false, self.now)?;
        buf.truncate(count);
        Ok(buf)
    }

    pub fn close(&mut self, node: usize, id: SocketId) {
        let now = self.now;
        self.stacks[node].close(id, now).expect("close");
    }

    pub fn shutdown(&mut self, node: usize, id: SocketId, how: Shutdown) -> Result<(), Errno> {
        let now = self.now;
        self.stacks[node].shutdown(id, how, now)
    }

    pub fn ready(&self, node: usize, id: SocketId) -> ReadyFlags {
        self.stacks[node].readiness(id)
    }

    /// TCP segments logged since `from`, as (time since then, from which node, segment).
    pub fn segments(&self, from: SimTime) -> Vec<(u64, usize, Segment)> {
        let since = |time: SimTime| time.since(from);
        let node = |packet: &Packet| (0..self.stacks.len()).find(|n| ip(*n) == packet.src.ip());
        self.log
            .iter()
            .filter(|(time, _, _)| *time >= from)
            .filter_map(|(time, packet, _)| match &packet.body {
                Body::Tcp(seg) => Some((since(*time), node(packet)?, seg.clone())),
                _ => None,
            })
            .collect()
    }
}

/// A stack with the node's address, as after a (re)start.
pub fn fresh(node: usize, config: Config, seed: u64) -> Stack {
    let mut stack = Stack::new(config, seed.wrapping_mul(31).wrapping_add(node as u64));
    stack.add_address(ip(node), 24);
    stack
}

/// FNV-1a: std's default hasher is not stable between releases.
pub struct Fnv(pub u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
