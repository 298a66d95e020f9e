//! The machines of a group lose their power at once, as those of a rack do. Each of them is as after a power failure of its own.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room, planning, power_failure};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPower {
    /// The name of the group; empty if it has none.
    pub group: String,
    /// The first service that faults may hit on each of the machines.
    pub nodes: Vec<NodeId>,
}

impl Room for GroupPower {
    fn draw(draw: &mut Draw<'_>) -> Option<GroupPower> {
        let group = draw.group.filter(|group| !group.machines.is_empty())?;
        Some(GroupPower { group: group.name.clone(), nodes: group.machines.clone() })
    }

    fn node(&self) -> Option<NodeId> {
        None
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let any = self.nodes.iter().any(|node| power_failure::hindrance(machine, *node).is_none());
        (!any).then_some("no service runs on its machines")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let who = planning::in_words(&self.group, &self.nodes, name);
        format!("power failure of the machines of {who}, power again after {ms} ms")
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        for node in &self.nodes {
            if power_failure::hindrance(machine, *node).is_none() {
                power_failure::take(machine, *node, entry);
            }
        }
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        for node in &self.nodes {
            power_failure::give_back(machine, *node, entry);
        }
        // The starts are told.
        false
    }
}
