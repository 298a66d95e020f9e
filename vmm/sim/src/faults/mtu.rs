//! An MTU black hole: packets from and to a node that are larger than so many bytes are lost, and no ICMP message tells anybody, so
//! that connections open and hang at their first large transfer ("PMTU black hole", RFC 2923, section 2.1). As Linux has
//! tcp_mtu_probing off, nobody tries smaller segments; what is sent again is as large.

use bloodhound_abi::SimTime;
use bloodhound_net::{Hole, NodeId};

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// The node.
    pub node: NodeId,
    /// The largest packet that passes.
    pub bytes: u64,
}

impl Room for Mtu {
    fn draw(draw: &mut Draw<'_>) -> Option<Mtu> {
        Some(Mtu { node: draw.node()?, bytes: draw.number() })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let Mtu { node, bytes } = self;
        format!("packets from and to {} of more than {bytes} bytes are lost, for {ms} ms", name(*node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        machine.open_hole(entry, Hole::Larger(self.node, self.bytes));
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        machine.close_hole(entry)
    }
}
