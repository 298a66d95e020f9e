//! A group is cut off from all other services, as behind a switch that fails; its services reach each other.

use bloodhound_abi::SimTime;
use bloodhound_net::{NodeId, PartitionKind};

use super::{Draw, Names, Room, planning};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPartition {
    /// The name of the group; empty if it has none.
    pub group: String,
    /// The network stacks of the group.
    pub nodes: Vec<NodeId>,
    /// Those of the others.
    pub rest: Vec<NodeId>,
}

impl Room for GroupPartition {
    fn draw(draw: &mut Draw<'_>) -> Option<GroupPartition> {
        let group = draw.group.filter(|group| !group.stacks.is_empty() && !group.rest.is_empty())?;
        Some(GroupPartition {
            group: group.name.clone(),
            nodes: group.stacks.clone(),
            rest: group.rest.clone(),
        })
    }

    fn node(&self) -> Option<NodeId> {
        None
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let who = planning::in_words(&self.group, &self.nodes, name);
        format!("{who} cut off from {} for {ms} ms", planning::in_words("", &self.rest, name))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        let cut = PartitionKind::Symmetric(self.nodes.clone(), self.rest.clone());
        let id = machine.world.fabric.partition(cut);
        machine.world.faults.partitions.insert(entry, id);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let id = machine.world.faults.partitions.remove(&entry);
        id.is_some_and(|id| machine.world.fabric.heal(id))
    }
}
