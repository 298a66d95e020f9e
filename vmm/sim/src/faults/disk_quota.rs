//! A quota that is used up: the programs of a service get no further page or name of a file on the disk of their machine for a while, other
//! services on it do.

use bloodhound_abi::SimTime;
use bloodhound_kernel::caps::CAP_SYS_RESOURCE;
use bloodhound_net::NodeId;
use bloodhound_vfs::MountNs;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskQuota {
    /// The node.
    pub node: NodeId,
}

impl DiskQuota {
    fn set(&self, machine: &mut Machine, over: bool) {
        let (id, mounts) = place(machine, self.node);
        machine.world.node_mut(id).vfs.set_over_quota(mounts, over);
    }
}

impl Room for DiskQuota {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskQuota> {
        Some(DiskQuota { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let (_, mounts) = place(machine, self.node);
        if machine.world.machine_of(self.node).vfs.is_over_quota(mounts) {
            return Some("its quota is used up already");
        }
        // "A process with [CAP_SYS_RESOURCE can] override disk quota limits" (capabilities(7)).
        let first = machine.first_process(self.node);
        let node = machine.world.machine_of(self.node);
        let exempt =
            first.is_some_and(|pid| node.credentials_of(node.process(pid)).caps.has(CAP_SYS_RESOURCE));
        exempt.then_some("its first process has CAP_SYS_RESOURCE, so no quota holds for it")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("the quota of {} on its disk is used up for {ms} ms (EDQUOT)", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        self.set(machine, true);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        self.set(machine, false);
        true
    }
}

/// The machine of a service, and what the service sees of its file systems.
pub(super) fn place(machine: &Machine, id: NodeId) -> (bloodhound_kernel::node::MachineId, MountNs) {
    let room = machine.world.room(id);
    (room.machine, machine.world.machine_of(id).container(room.container).mounts)
}
