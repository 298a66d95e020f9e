//! The FINs that a node sends are lost for a time, and so are those that it sends again (after 0.2 s, 0.4 s, ...): its peers learn late that a
//! connection is closed. Data arrives, but for what stands in the same segment as a FIN.

use bloodhound_abi::SimTime;
use bloodhound_net::{Hole, NodeId};

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinDrop {
    /// The node.
    pub node: NodeId,
}

impl Room for FinDrop {
    fn draw(draw: &mut Draw<'_>) -> Option<FinDrop> {
        Some(FinDrop { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("connections that {} closes end late (its FINs are lost), for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        machine.open_hole(entry, Hole::Fin(self.node));
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        machine.close_hole(entry)
    }
}
