//! A node takes no new connections for a time: their SYNs are lost, as Linux drops them when a listener's backlog is full ("If
//! the backlog [...] queue is full, [...] if the underlying protocol supports retransmission, the request may be ignored so that a
//! later reattempt at connection succeeds", listen(2)).

use bloodhound_abi::SimTime;
use bloodhound_net::{Hole, NodeId};

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynDrop {
    /// The node.
    pub node: NodeId,
}

impl Room for SynDrop {
    fn draw(draw: &mut Draw<'_>) -> Option<SynDrop> {
        Some(SynDrop { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("{} takes no new connections (SYNs to it are lost), for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        machine.open_hole(entry, Hole::Syn(self.node));
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        machine.close_hole(entry)
    }
}
