//! File systems that an error has made read-only: nothing on the disk of a service's machine can be changed for a while.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReadonly {
    /// The node.
    pub node: NodeId,
}

impl Room for DiskReadonly {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskReadonly> {
        Some(DiskReadonly { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        machine.world.machine_of(self.node).vfs.trouble().read_only.then_some("its disk is read-only already")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("the disk of {} is read-only for {ms} ms (EROFS)", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        machine.trouble(self.node, |trouble| trouble.read_only = true);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        machine.trouble(self.node, |trouble| trouble.read_only = false);
        true
    }
}
