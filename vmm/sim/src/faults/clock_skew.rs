//! Skew: the wall clock of a service's machine is wrong by a fixed time through the whole phase of faults.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Fault, Names, Room, millis};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    /// The node.
    pub node: NodeId,
    /// How far its wall clock is before the true time, ns; negative: behind.
    pub by: i64,
}

impl Room for ClockSkew {
    fn draw(draw: &mut Draw<'_>) -> Option<ClockSkew> {
        let most = draw.longest();
        let size = draw.choose("skew", most.saturating_add(1));
        let by = draw.signed(size, "behind");
        (by != 0).then_some(ClockSkew { node: draw.node()?, by })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let is_skew = |fault: &Fault| matches!(fault, Fault::ClockSkew(_));
        machine.clock_fault(self.node, is_skew).then_some("its machine's wall clock is wrong already")
    }

    fn describe(&self, name: Names<'_>, _: u64) -> String {
        let direction = if self.by < 0 { "behind" } else { "ahead" };
        format!("wall clock of {} is {} ms {direction} until the heal", name(self.node), millis(self.by))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        machine.set_wrong(entry, self.node, self.by);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        machine.set_right(entry, self.node)
    }
}
