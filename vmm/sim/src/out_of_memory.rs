//! What happens when a container, or its machine, has no memory left: the kernel kills processes, and the run tells of it.
//!
//! Neighbours: `bloodhound_kernel::memory` (who is charged for what, and who is killed), [`crate::step`] (page faults).

use bloodhound_abi::consts as c;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::memory::OomKill;
use bloodhound_kernel::node::MachineId;

use crate::machine::Machine;
use crate::notice::Notice;
use crate::step::Ran;

impl Machine {
    /// After memory was charged: kills processes if there is too much. If that of the task is among them, its run ends.
    pub(crate) fn relieve(&mut self, id: MachineId, tid: Tid) -> Option<Ran> {
        if !self.world.nodes[&id].memory_has_grown() {
            return None;
        }
        let mut parts = self.parts(id);
        let (node, mut outside) = parts.split();
        node.relieve(tid, &mut outside).then_some(Ran::Fault(c::SIGKILL as u32))
    }

    /// Puts processes that were killed into the timeline.
    pub(crate) fn tell_kills(&mut self, kills: Vec<OomKill>) {
        for kill in kills {
            self.note(Some(kill.container), Notice::OutOfMemory(kill));
        }
    }
}
