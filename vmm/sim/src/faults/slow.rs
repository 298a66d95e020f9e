//! A slow node: all that is paid for in virtual time on its machine takes several times as long, as with a share of its processor. Sleeps
//! and timers end on time.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// A factor of one.
const ONCE: u64 = 1000;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The node.
    pub node: NodeId,
    /// How many times as long its work takes, in thousandths.
    pub factor: u64,
}

impl Room for Slow {
    fn draw(draw: &mut Draw<'_>) -> Option<Slow> {
        Some(Slow { node: draw.node()?, factor: draw.number() })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let id = machine.world.room(self.node).machine;
        let slow = machine.world.faults.slowed.contains_key(&id).then_some("it is slow already");
        machine.not_acting(self.node).or(slow)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let (whole, rest) = (self.factor / ONCE, self.factor % ONCE);
        let factor = format!("{whole}.{rest:03}");
        let factor = factor.trim_end_matches('0').trim_end_matches('.');
        format!("slow {}: all work takes {factor} times as long, for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        let id = machine.world.room(self.node).machine;
        let node = machine.world.node_mut(id);
        let costs = node.config.costs;
        node.config.costs = costs.scaled(self.factor, ONCE);
        machine.world.faults.slowed.insert(id, costs);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        let id = machine.world.room(self.node).machine;
        let Some(costs) = machine.world.faults.slowed.remove(&id) else { return false };
        machine.world.node_mut(id).config.costs = costs;
        true
    }
}

impl Machine {
    /// No node is slow any more.
    pub(super) fn end_slowness(&mut self) {
        for (id, costs) in std::mem::take(&mut self.world.faults.slowed) {
            self.world.node_mut(id).config.costs = costs;
        }
    }
}
