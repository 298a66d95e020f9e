//! [`Fabric`]: directed links between nodes, what goes wrong on them, and which node has which address. It decides
//! what becomes of each packet; the World's queue carries it there. Stacks on its two ends are
//! [`crate::Stack`]. Loopback never comes here.

use crate::datagram::broadcast_of;
use crate::iface::same_network;
use crate::{Body, Flags, Packet, wire};
use bloodhound_abi::SimTime;
use bloodhound_abi::time::SECS;
use bloodhound_decisions::{Decisions, Fate, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A node of the simulation: a service replica or a workload client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Names one partition, so that a heal removes exactly it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

/// Behaviour of one direction of a link. Rates are parts per 1,000,000,000 per packet; times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkConfig {
    /// Fixed latency.
    pub latency: u64,
    /// Added latency, uniform in `0..=jitter`; never reorders by itself.
    pub jitter: u64,
    /// Bytes per second; `None` is unlimited. Packets queue without bound.
    pub bandwidth: Option<u64>,
    /// Packets lost.
    pub loss: u32,
    /// Packets corrupted on the way: the receiver's checksum rejects them, so they are lost as well.
    pub corrupt: u32,
    /// Packets delivered twice; the copy is late by up to the larger of `latency` and `reorder_delay`.
    pub duplicate: u32,
    /// Packets that leave the FIFO order: they are late by up to `reorder_delay` and the ones behind overtake.
    pub reorder: u32,
    /// Upper bound of the lateness of a reordered packet.
    pub reorder_delay: u64,
    /// Packets with an extra delay; the ones behind wait as well.
    pub delay: u32,
    /// Upper bound of the extra delay.
    pub delay_max: u64,
    /// Packets of which a bit of the data is changed so that the receiver's checksum does not show it.
    pub corrupt_pass: u32,
    /// UDP datagrams to one node that arrive damaged, as their receiver finds out when it reads them.
    pub bad_checksum: u32,
}

impl Default for LinkConfig {
    /// 0.2 ms and no faults: a bridge between containers with some switching.
    fn default() -> LinkConfig {
        LinkConfig {
            latency: 200_000,
            jitter: 0,
            bandwidth: None,
            loss: 0,
            corrupt: 0,
            duplicate: 0,
            reorder: 0,
            reorder_delay: 0,
            delay: 0,
            delay_max: 0,
            corrupt_pass: 0,
            bad_checksum: 0,
        }
    }
}

/// Kinds of partitions; groups are lists of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// Nothing passes between the two groups.
    Symmetric(Vec<NodeId>, Vec<NodeId>),
    /// As symmetric; the first group is the majority, the second the minority.
    MajorityMinority(Vec<NodeId>, Vec<NodeId>),
    /// Nothing passes from the first group to the second; the way back is open.
    OneWay(Vec<NodeId>, Vec<NodeId>),
    /// The node is cut off from all given others.
    Isolate(NodeId, Vec<NodeId>),
    /// Two halves that see each other only through the bridge node, which sees both.
    Bridge(NodeId, Vec<NodeId>, Vec<NodeId>),
}

impl PartitionKind {
    /// The directed pairs (from, to) that it blocks, in order; a node is never cut off from itself, a bridge from
    /// nobody.
    pub fn blocked(&self) -> BTreeSet<(NodeId, NodeId)> {
        let one = |node: &NodeId| vec![*node];
        let (left, right, back, spared) = match self {
            PartitionKind::Symmetric(a, b) | PartitionKind::MajorityMinority(a, b) => {
                (a.clone(), b.clone(), true, None)
            }
            PartitionKind::OneWay(a, b) => (a.clone(), b.clone(), false, None),
            PartitionKind::Isolate(node, others) => (one(node), others.clone(), true, None),
            PartitionKind::Bridge(bridge, a, b) => (a.clone(), b.clone(), true, Some(*bridge)),
        };
        let mut pairs = BTreeSet::new();
        for a in left.iter().filter(|node| Some(**node) != spared) {
            for b in right.iter().filter(|node| Some(**node) != spared && *node != a) {
                pairs.insert((*a, *b));
                if back {
                    pairs.insert((*b, *a));
                }
            }
        }
        pairs
    }
}

/// Names one hole, so that who opened it closes exactly it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoleId(pub u32);

/// A place of the network that swallows some packets and tells nobody (a black hole).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hole {
    /// Packets from and to a node that have more bytes with their headers of IP than this.
    Larger(NodeId, u64),
    /// Packets of a connection, in both directions.
    Connection(SocketAddr, SocketAddr),
    /// SYNs of connections to a node; those that answer the node's own pass.
    Syn(NodeId),
    /// FINs that a node sends, with the data in front of them in the same segment.
    Fin(NodeId),
}

impl Hole {
    fn swallows(&self, packet: &Packet, from: NodeId, to: NodeId) -> bool {
        match self {
            // What is larger than a hop takes is cut into pieces as large as it takes, or reported; a black hole does neither.
            Hole::Larger(node, most) => (from == *node || to == *node) && wire::len(packet) as u64 > *most,
            Hole::Connection(a, b) => {
                let ends = (packet.src, packet.dst);
                matches!(packet.body, Body::Tcp(_)) && (ends == (*a, *b) || ends == (*b, *a))
            }
            Hole::Fin(node) => match &packet.body {
                Body::Tcp(s) => from == *node && s.flags.contains(Flags::FIN),
                _ => false,
            },
            Hole::Syn(node) => match &packet.body {
                Body::Tcp(s) => to == *node && s.flags.contains(Flags::SYN) && !s.flags.contains(Flags::ACK),
                _ => false,
            },
        }
    }
}

/// A packet that will arrive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The receiving node.
    pub to: NodeId,
    /// When it arrives.
    pub at: SimTime,
    /// The packet.
    pub packet: Packet,
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// No node has the address.
    NoRoute,
    /// A node has it, in a network of which the sender is no member.
    OtherNetwork,
    /// Lost by the link's loss rate.
    Loss,
    /// Lost by the link's corruption rate.
    Corrupt,
    /// Blocked by this partition (the oldest, if there are several).
    Partition(PartitionId),
    /// The sender or the receiver is down.
    NodeDown(NodeId),
    /// Swallowed by this hole (the oldest, if there are several).
    Hole(HoleId),
}

/// A fault that the link drew for a packet that does arrive; for the run's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mishaps {
    /// Extra delay in ns.
    pub delay: u64,
    /// Lateness of a packet that left the order, in ns.
    pub reordered: u64,
    /// Which bit of its data was changed, from 1 on; 0 for none.
    pub changed: u64,
    /// It is a datagram whose checksum is wrong.
    pub damaged: bool,
}

/// What became of a packet: one delivery, two when duplicated, or a drop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Routed {
    /// The first copy.
    pub first: Option<Delivery>,
    /// The duplicate.
    pub second: Option<Delivery>,
    /// The reason if nothing arrives.
    pub dropped: Option<DropReason>,
    /// What happened to the first copy.
    pub mishaps: Mishaps,
}

impl Routed {
    /// Both deliveries.
    pub fn deliveries(self) -> impl Iterator<Item = Delivery> {
        self.first.into_iter().chain(self.second)
    }

    fn dropped(reason: DropReason) -> Routed {
        Routed { dropped: Some(reason), ..Routed::default() }
    }
}

/// What a directed link remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct LinkState {
    /// When the last packet in FIFO order arrives.
    last_arrival: SimTime,
    /// When the wire is free again (bandwidth).
    free: SimTime,
}

/// The network between the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fabric {
    default: LinkConfig,
    links: BTreeMap<(NodeId, NodeId), LinkConfig>,
    state: BTreeMap<(NodeId, NodeId), LinkState>,
    routes: BTreeMap<IpAddr, NodeId>,
    /// The networks (address and prefix length) of the nodes that are in some only.
    members: BTreeMap<NodeId, Vec<(IpAddr, u8)>>,
    down: BTreeSet<NodeId>,
    partitions: BTreeMap<PartitionId, PartitionKind>,
    /// Which partitions block a directed pair.
    blocked: BTreeMap<(NodeId, NodeId), BTreeSet<PartitionId>>,
    next_partition: u32,
    holes: BTreeMap<HoleId, Hole>,
    next_hole: u32,
}

impl Fabric {
    /// An empty fabric whose links behave as `default`.
    pub fn new(default: LinkConfig) -> Fabric {
        Fabric { default, ..Fabric::default() }
    }

    /// Gives addresses to a node that reaches, and is reached from, all networks; an address that another one had moves
    /// over.
    pub fn add_node(&mut self, node: NodeId, addresses: &[IpAddr]) {
        for ip in addresses {
            self.routes.insert(ip.to_canonical(), node);
        }
    }

    /// Gives addresses to a node that is a member of their networks only, each an address with its prefix length. Members
    /// reach each other in a network that they have in common: there is no way from one network to another, as between
    /// the bridges of a container engine, which drops what goes from one to the other.
    pub fn add_member(&mut self, node: NodeId, addresses: &[(IpAddr, u8)]) {
        let all: Vec<IpAddr> = addresses.iter().map(|(ip, _)| *ip).collect();
        self.add_node(node, &all);
        let canonical = addresses.iter().map(|(ip, prefix)| (ip.to_canonical(), *prefix));
        self.members.entry(node).or_default().extend(canonical);
    }

    /// Whether `from` has no way to `ip`, which `to` has.
    fn separate(&self, from: NodeId, to: NodeId, ip: IpAddr) -> bool {
        match (self.members.get(&from), self.members.get(&to)) {
            (Some(own), Some(_)) => !own.iter().any(|(net, prefix)| same_network(*net, ip, *prefix)),
            _ => false,
        }
    }

    /// The node that has `ip`.
    pub fn node_of(&self, ip: IpAddr) -> Option<NodeId> {
        self.routes.get(&ip.to_canonical()).copied()
    }

    /// Whether `ip` is of a network of which the node is a member.
    pub fn in_own_network(&self, node: NodeId, ip: IpAddr) -> bool {
        let networks = self.members.get(&node).into_iter().flatten();
        networks.into_iter().any(|(net, prefix)| same_network(*net, ip.to_canonical(), *prefix))
    }

    /// Whether `ip` is the broadcast address of a network of which the node is a member: its last one (RFC 919).
    pub fn is_own_broadcast(&self, node: NodeId, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip.to_canonical() else { return false };
        let networks = self.members.get(&node).into_iter().flatten();
        networks.into_iter().any(|(net, prefix)| broadcast_of(*net, *prefix) == Some(ip))
    }

    /// Whether a packet that `from` sends goes to several nodes.
    pub fn is_for_many(&self, from: NodeId, packet: &Packet) -> bool {
        packet.is_for_many() || self.is_own_broadcast(from, packet.dst.ip())
    }

    /// The nodes that a packet to several nodes goes to, in order, each with its address in the network of the sender: all others of
    /// that network, whether they listen or not, as a bridge floods it.
    pub fn hearers(&self, from: NodeId, src: IpAddr) -> Vec<(NodeId, IpAddr)> {
        let networks = self.members.get(&from).into_iter().flatten();
        let network = networks.into_iter().find(|(net, prefix)| same_network(*net, src, *prefix));
        let near = |ip: IpAddr| match network {
            Some((net, prefix)) => same_network(*net, ip, *prefix),
            None => ip.is_ipv4() == src.is_ipv4(),
        };
        let mut out = BTreeMap::new();
        for (ip, to) in self.routes.iter().filter(|(ip, to)| **to != from && near(**ip)) {
            out.entry(*to).or_insert(*ip);
        }
        out.into_iter().collect()
    }

    /// All nodes with an address, in order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.routes.values().copied().collect()
    }

    /// How links behave that have no configuration of their own.
    pub fn default_link(&self) -> &LinkConfig {
        &self.default
    }

    /// Changes how links behave that have no configuration of their own.
    pub fn set_default_link(&mut self, link: LinkConfig) {
        self.default = link;
    }

    /// How the link from `from` to `to` behaves.
    pub fn link(&self, from: NodeId, to: NodeId) -> &LinkConfig {
        self.links.get(&(from, to)).unwrap_or(&self.default)
    }

    /// Gives the link from `from` to `to` its own configuration; `None` returns it to the default.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Option<LinkConfig>) {
        match link {
            Some(link) => self.links.insert((from, to), link),
            None => self.links.remove(&(from, to)),
        };
    }

    /// Marks a node as down (packets from it and to it are lost) or up. Packets on their way are the caller's: see
    /// [`Fabric::is_down`].
    pub fn set_down(&mut self, node: NodeId, down: bool) {
        if down {
            self.down.insert(node);
        } else {
            self.down.remove(&node);
        }
    }

    /// Whether the node is down: then a packet that arrives is lost.
    pub fn is_down(&self, node: NodeId) -> bool {
        self.down.contains(&node)
    }

    /// Starts a partition. Packets that are on their way still arrive.
    pub fn partition(&mut self, kind: PartitionKind) -> PartitionId {
        let id = PartitionId(self.next_partition);
        self.next_partition += 1;
        for pair in kind.blocked() {
            self.blocked.entry(pair).or_default().insert(id);
        }
        self.partitions.insert(id, kind);
        id
    }

    /// The partitions in force.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &PartitionKind)> {
        self.partitions.iter().map(|(id, kind)| (*id, kind))
    }

    /// Ends one partition; false if it is not in force.
    pub fn heal(&mut self, id: PartitionId) -> bool {
        self.blocked.retain(|_, ids| {
            ids.remove(&id);
            !ids.is_empty()
        });
        self.partitions.remove(&id).is_some()
    }

    /// Ends all partitions and closes all holes.
    pub fn heal_all(&mut self) {
        self.partitions.clear();
        self.blocked.clear();
        self.holes.clear();
    }

    /// Opens a hole. Packets that are on their way still arrive.
    pub fn open_hole(&mut self, hole: Hole) -> HoleId {
        let id = HoleId(self.next_hole);
        self.next_hole += 1;
        self.holes.insert(id, hole);
        id
    }

    /// Closes a hole; false if it is not open.
    pub fn close_hole(&mut self, id: HoleId) -> bool {
        self.holes.remove(&id).is_some()
    }

    /// The hole that swallows a packet.
    fn swallowed_by(&self, packet: &Packet, from: NodeId, to: NodeId) -> Option<HoleId> {
        let mut holes = self.holes.iter();
        holes.find(|(_, hole)| hole.swallows(packet, from, to)).map(|(id, _)| *id)
    }

    /// The partition that blocks packets from `from` to `to`.
    pub fn blocked_by(&self, from: NodeId, to: NodeId) -> Option<PartitionId> {
        self.blocked.get(&(from, to))?.first().copied()
    }

    /// Decides what becomes of `packet`, sent by `from` at `now`. Each of its fates is a choice of its own, named by the packet's
    /// place in its stream; what is switched off is not asked for.
    pub fn route(&mut self, packet: Packet, from: NodeId, now: SimTime, decisions: &mut Decisions) -> Routed {
        let Some(to) = self.node_of(packet.dst.ip()) else {
            return Routed::dropped(DropReason::NoRoute);
        };
        if self.separate(from, to, packet.dst.ip().to_canonical()) {
            return Routed::dropped(DropReason::OtherNetwork);
        }
        let dst = packet.dst;
        self.carry(packet, (from, to), dst, now, decisions)
    }

    /// Decides what becomes of the copy of a packet to several nodes that goes to the node with address `ip` ([`Fabric::hearers`]). The
    /// choices about it are named after that address.
    pub fn route_copy(
        &mut self,
        packet: Packet,
        (from, to, ip): (NodeId, NodeId, IpAddr),
        now: SimTime,
        decisions: &mut Decisions,
    ) -> Routed {
        let dst = SocketAddr::new(ip, packet.dst.port());
        self.carry(packet, (from, to), dst, now, decisions)
    }

    fn carry(
        &mut self,
        packet: Packet,
        (from, to): (NodeId, NodeId),
        dst: SocketAddr,
        now: SimTime,
        decisions: &mut Decisions,
    ) -> Routed {
        if let Some(down) = [from, to].into_iter().find(|node| self.is_down(*node)) {
            return Routed::dropped(DropReason::NodeDown(down));
        }
        if let Some(id) = self.blocked_by(from, to) {
            return Routed::dropped(DropReason::Partition(id));
        }
        if !self.holes.is_empty()
            && let Some(id) = self.swallowed_by(&packet, from, to)
        {
            return Routed::dropped(DropReason::Hole(id));
        }
        let link = self.links.get(&(from, to)).unwrap_or(&self.default);
        let (src, kind, place) = (packet.src, packet.kind(), packet.place);
        let site = |fate| Site::packet(src, dst, kind, place, fate);
        if decisions.chance(site(Fate::Loss), link.loss) {
            return Routed::dropped(DropReason::Loss);
        }
        if decisions.chance(site(Fate::Corrupt), link.corrupt) {
            return Routed::dropped(DropReason::Corrupt);
        }
        let state = self.state.entry((from, to)).or_default();
        let (at, mut mishaps) = arrival(link, state, (wire::len(&packet) as u64, now), site, decisions);
        let mut packet = packet;
        let bits = if link.corrupt_pass > 0 { packet.data_len() as u64 * 8 } else { 0 };
        if bits > 0 && decisions.chance(site(Fate::Change), link.corrupt_pass) {
            let bit = decisions.choose(site(Fate::ChangeAt), bits);
            packet.change(bit);
            mishaps.changed = bit + 1;
        }
        // Copies for several nodes are not damaged: each would have to know of it.
        if link.bad_checksum > 0
            && dst == packet.dst
            && let Body::Udp(header, _) = &mut packet.body
            && decisions.chance(site(Fate::Damage), link.bad_checksum)
        {
            (header.damaged, mishaps.damaged) = (true, true);
        }
        let second = decisions.chance(site(Fate::Duplicate), link.duplicate).then(|| {
            let late = decisions.between(site(Fate::DuplicateBy), 0, link.latency.max(link.reorder_delay));
            Delivery { to, at: at.after(late), packet: packet.clone() }
        });
        Routed { first: Some(Delivery { to, at, packet }), second, dropped: None, mishaps }
    }
}

/// When a packet arrives that is not lost.
fn arrival(
    link: &LinkConfig,
    state: &mut LinkState,
    (wire_len, now): (u64, SimTime),
    site: impl Fn(Fate) -> Site,
    decisions: &mut Decisions,
) -> (SimTime, Mishaps) {
    let mut mishaps = Mishaps::default();
    let mut sent = now;
    if let Some(rate) = link.bandwidth {
        let time = u128::from(wire_len) * u128::from(SECS) / u128::from(rate.max(1));
        sent = state.free.max(now).after(u64::try_from(time).unwrap_or(u64::MAX));
        state.free = sent;
    }
    let jitter = decisions.between(site(Fate::Jitter), 0, link.jitter);
    let mut at = sent.after(link.latency).after(jitter);
    if decisions.chance(site(Fate::Reorder), link.reorder) {
        mishaps.reordered = decisions.between(site(Fate::ReorderBy), 0, link.reorder_delay);
        return (at.after(mishaps.reordered), mishaps);
    }
    if decisions.chance(site(Fate::Delay), link.delay) {
        mishaps.delay = decisions.between(site(Fate::DelayBy), 0, link.delay_max);
        at = at.after(mishaps.delay);
    }
    at = at.max(state.last_arrival);
    state.last_arrival = at;
    (at, mishaps)
}

#[cfg(test)]
mod tests;
