//! A machine is lost with its disk, and another one takes its place, with its names and addresses: nothing is there that the services wrote. Peers
//! hear nothing, as at a power failure.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room, power_failure};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replace {
    /// The first service of the machine that faults may hit.
    pub node: NodeId,
}

impl Room for Replace {
    fn draw(draw: &mut Draw<'_>) -> Option<Replace> {
        Some(Replace { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        power_failure::hindrance(machine, self.node)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!(
            "the machine of {} is lost, one with an empty disk takes its place after {ms} ms",
            name(self.node)
        )
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        power_failure::take_for_good(machine, self.node, entry);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        power_failure::give_back(machine, self.node, entry);
        // The start is told.
        false
    }
}
