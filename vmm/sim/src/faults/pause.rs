//! A pause: a service's machine stands still while time goes on, with all services on it, as in a long garbage collection.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The node.
    pub node: NodeId,
}

impl Room for Pause {
    fn draw(draw: &mut Draw<'_>) -> Option<Pause> {
        Some(Pause { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let paused = machine
            .world
            .paused
            .contains_key(&machine.world.room(self.node).machine)
            .then_some("it is paused already");
        machine.not_running(self.node).or(paused)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("pause {} for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, until: SimTime) {
        let room = machine.world.room(self.node);
        machine.world.paused.insert(room.machine, until);
        machine.world.faults.pauses.insert(room.machine, entry);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let room = machine.world.room(self.node);
        if machine.world.faults.pauses.get(&room.machine) != Some(&entry) {
            return false;
        }
        machine.world.faults.pauses.remove(&room.machine);
        let paused = machine.world.paused.remove(&room.machine).is_some();
        if paused {
            machine.world.catch_up(room.machine);
        }
        paused
    }
}
