//! A service is stopped and started again, as an operator does it: it gets its stop signal, and after a grace period SIGKILL.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The node.
    pub node: NodeId,
}

impl Room for Stop {
    fn draw(draw: &mut Draw<'_>) -> Option<Stop> {
        Some(Stop { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        machine.not_acting(self.node)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let grace = if ms == 0 { "its grace period".to_owned() } else { format!("{ms} ms") };
        format!("stop {} (SIGKILL after {grace}) and start it again", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, until: SimTime) {
        let Some(pid) = machine.first_process(self.node) else { return };
        let said = until > machine.world.now;
        if let Some(service) = machine.world.services.get_mut(&self.node) {
            service.stop_by = said.then_some(until);
        }
        machine.stop_service(self.node, pid);
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        // Its stop and its start are told.
        false
    }
}
