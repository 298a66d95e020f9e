//! [`Fabric`]: directed links between nodes, and what goes wrong on them.

use crate::Packet;
use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use std::net::IpAddr;

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
    /// Bytes per second; `None` is unlimited.
    pub bandwidth: Option<u64>,
    /// Packets lost.
    pub loss: u32,
    /// Packets delivered twice.
    pub duplicate: u32,
    /// Packets that may overtake others: they leave the FIFO order and are late by up to `reorder_delay`.
    pub reorder: u32,
    /// Upper bound of the lateness of a reordered packet.
    pub reorder_delay: u64,
    /// Packets with an extra delay (the ones behind wait as well).
    pub delay: u32,
    /// Upper bound of the extra delay.
    pub delay_max: u64,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            latency: 200_000,
            jitter: 0,
            bandwidth: None,
            loss: 0,
            duplicate: 0,
            reorder: 0,
            reorder_delay: 0,
            delay: 0,
            delay_max: 0,
        }
    }
}

/// Kinds of partitions; groups are lists of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// Nothing passes between the two groups.
    Symmetric(Vec<NodeId>, Vec<NodeId>),
    /// Nothing passes from the first group to the second; the way back is open.
    OneWay(Vec<NodeId>, Vec<NodeId>),
    /// The node is cut off from all given others.
    Isolate(NodeId, Vec<NodeId>),
    /// Two halves that see each other only through the bridge node, which sees both.
    Bridge(NodeId, Vec<NodeId>, Vec<NodeId>),
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
    /// Lost by the link's loss rate.
    Loss,
    /// Blocked by this partition.
    Partition(PartitionId),
    /// The sender or the receiver is down.
    NodeDown(NodeId),
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
}

/// The network between the nodes.
#[derive(Clone, Debug, Default)]
pub struct Fabric {}

#[allow(unused_variables)]
impl Fabric {
    /// An empty fabric whose links behave as `default`.
    pub fn new(default: LinkConfig) -> Fabric {
        Fabric {}
    }

    /// Adds a node, or addresses to it.
    pub fn add_node(&mut self, node: NodeId, addresses: &[IpAddr]) {}

    /// The node that has `ip`.
    pub fn node_of(&self, ip: IpAddr) -> Option<NodeId> {
        None
    }

    /// Behaviour of the link from `from` to `to`, for changing.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: LinkConfig) {}

    /// Marks a node as down (its packets and those to it are lost) or up.
    pub fn set_down(&mut self, node: NodeId, down: bool) {}

    /// Starts a partition.
    pub fn partition(&mut self, kind: &PartitionKind) -> PartitionId {
        PartitionId(0)
    }

    /// Ends one partition; false if there is none of this id.
    pub fn heal(&mut self, id: PartitionId) -> bool {
        false
    }

    /// Ends all partitions.
    pub fn heal_all(&mut self) {}

    /// Decides what becomes of `packet`, sent by `from` at `now`. Draws from [`Stream::Network`] only.
    ///
    /// [`Stream::Network`]: bloodhound_decisions::Stream::Network
    pub fn route(&mut self, packet: Packet, from: NodeId, now: SimTime, decisions: &mut Decisions) -> Routed {
        Routed { dropped: Some(DropReason::NoRoute), ..Routed::default() }
    }
}
