//! The kernel kills a process of a service for want of memory: the one with the highest score in the container gets SIGKILL, with the
//! record of a real one ([`crate::out_of_memory`]). If it was the service's first process, the service ends.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oom {
    /// The node.
    pub node: NodeId,
}

impl Room for Oom {
    fn draw(draw: &mut Draw<'_>) -> Option<Oom> {
        Some(Oom { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let room = machine.world.room(self.node);
        let victim = || machine.world.nodes[&room.machine].oom_victim(room.container);
        // "a value of -1000 [...] is equivalent to disabling OOM killing entirely for the associated task" (proc(5)).
        let spared = || victim().is_none().then_some("all its processes have an oom_score_adj of -1000");
        machine.not_acting(self.node).or_else(spared)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!(
            "memory of {} runs out (OOM kill); if it ends for that, restart after {ms} ms",
            name(self.node)
        )
    }

    fn begin(&self, machine: &mut Machine, _: usize, until: SimTime) {
        let room = machine.world.room(self.node);
        machine.world.catch_up(room.machine);
        machine.strike(self.node, until);
        let mut parts = machine.parts(room.machine);
        let (node, mut outside) = parts.split();
        node.kill_for_memory(room.container, &mut outside);
        machine.node_changed(room.machine);
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        // A start is told.
        false
    }
}
