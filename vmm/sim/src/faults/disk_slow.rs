//! A slow disk: calls that wait for the disk of a service's machine wait longer for a while.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSlow {
    /// The node.
    pub node: NodeId,
    /// How much longer a call waits, ns.
    pub latency: u64,
}

impl Room for DiskSlow {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskSlow> {
        Some(DiskSlow { node: draw.node()?, latency: draw.size() })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        (machine.world.machine_of(self.node).broken.slow_ns() > 0).then_some("its disk is slow already")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!(
            "the disk of {} is slow for {ms} ms ({} ms a call)",
            name(self.node),
            self.latency / 1_000_000
        )
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        let room = machine.world.room(self.node);
        machine.world.node_mut(room.machine).broken.set_slow(self.latency);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        let room = machine.world.room(self.node);
        machine.world.node_mut(room.machine).broken.set_slow(0);
        true
    }
}
