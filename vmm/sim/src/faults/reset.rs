//! A reset: all connections of a node that is drawn are reset. It is over at once.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The node.
    pub node: NodeId,
}

impl Room for Reset {
    fn draw(draw: &mut Draw<'_>) -> Option<Reset> {
        let count = draw.targets.len() as u64;
        let place = (count > 0).then(|| draw.choose("node", count))?;
        Some(Reset { node: draw.targets[place as usize] })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, _: u64) -> String {
        format!("reset all connections of {}", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        let room = machine.world.room(self.node);
        machine.world.catch_up(room.machine);
        let now = machine.world.now;
        let node = machine.world.node_mut(room.machine);
        node.net.stack_mut(room.net).reset_connections(None, now);
        node.drain_net();
        machine.node_changed(room.machine);
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        false
    }
}
