//! A crash: all processes of a service's container are killed as by SIGKILL; the service starts again at the end.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;
use crate::services::State;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The node.
    pub node: NodeId,
}

impl Room for Crash {
    fn draw(draw: &mut Draw<'_>) -> Option<Crash> {
        Some(Crash { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        machine.not_running(self.node)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("crash {} (SIGKILL), restart after {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        fall(machine, self.node);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        rise(machine, self.node);
        // The start is told.
        false
    }
}

/// A service falls, with those whose processes end with it.
pub(super) fn fall(machine: &mut Machine, node: NodeId) {
    let room = machine.world.room(node);
    machine.world.catch_up(room.machine);
    for id in falling(machine, node) {
        if let Some(service) = machine.world.services.get_mut(&id) {
            service.crash();
        }
    }
    machine.kill_container(room);
    machine.node_changed(room.machine);
}

/// They start again.
pub(super) fn rise(machine: &mut Machine, node: NodeId) {
    for id in falling(machine, node) {
        machine.start_service(id);
    }
}

/// The service and those whose processes end with it: they are in its namespace of processes.
pub(super) fn falling(machine: &Machine, node: NodeId) -> Vec<NodeId> {
    let with =
        machine.scenario.services.iter().filter(|spec| spec.sharing.pids == Some(node)).map(|s| s.node);
    let down = |id: &NodeId| {
        let state = machine.world.services.get(id).map(|service| service.state);
        matches!(state, Some(State::Running(_) | State::Crashed))
    };
    std::iter::once(node).chain(with.filter(down)).collect()
}
