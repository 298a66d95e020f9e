//! A crash: all processes of a node are killed as by SIGKILL; its service starts again at the end.

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
        machine.world.catch_up(self.node);
        if let Some(service) = machine.world.services.get_mut(&self.node) {
            (service.state, service.healthy, service.probe) = (State::Crashed, false, None);
        }
        let mut parts = machine.parts(self.node);
        let (node, mut outside) = parts.split();
        node.kill_all(&mut outside);
        machine.node_changed(self.node);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        machine.start_service(self.node);
        // The start is told.
        false
    }
}
