//! A full disk: the machine of a service has no room for another page or name of a file for a while.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFull {
    /// The node.
    pub node: NodeId,
}

impl Room for DiskFull {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskFull> {
        Some(DiskFull { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        machine.world.machine_of(self.node).vfs.trouble().full.then_some("its disk is full already")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("the disk of {} is full for {ms} ms (ENOSPC)", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        machine.trouble(self.node, |trouble| trouble.full = true);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        machine.trouble(self.node, |trouble| trouble.full = false);
        true
    }
}
