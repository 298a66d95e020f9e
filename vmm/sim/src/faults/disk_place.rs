//! Where a fault of a disk is: on all of the disk of a machine, or on one volume, as if that had a disk of its own, in whichever services mount it.

use bloodhound_kernel::node::MachineId;
use bloodhound_net::NodeId;
use bloodhound_vfs::{Trouble, Volume};

use super::planning::NamedVolume;
use super::{Draw, Fault, Names};
use crate::machine::Machine;
use crate::scenario::{Scenario, ServiceSpec};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlace {
    /// The service whose machine's disk it is, or that stands for those that mount the volume.
    pub node: NodeId,
    /// The volume that is hit alone.
    pub volume: Option<NamedVolume>,
}

impl DiskPlace {
    /// All of the disk of a service's machine.
    pub fn of(node: NodeId) -> DiskPlace {
        DiskPlace { node, volume: None }
    }

    pub(super) fn draw(draw: &mut Draw<'_>) -> Option<DiskPlace> {
        Some(DiskPlace { node: draw.node()?, volume: draw.disk() })
    }

    /// The number of the volume.
    pub(super) fn volume(&self) -> Option<Volume> {
        self.volume.as_ref().map(|named| named.volume)
    }

    pub(super) fn describe(&self, name: Names<'_>) -> String {
        match &self.volume {
            Some(volume) => format!("the volume {}", volume.name),
            None => format!("the disk of {}", name(self.node)),
        }
    }

    /// The machines on which it is.
    pub(super) fn machines(&self, scenario: &Scenario) -> Vec<MachineId> {
        let is_on = |spec: &&ServiceSpec| match self.volume() {
            Some(volume) => scenario.planning.mounts(spec.node, volume),
            None => spec.node == self.node,
        };
        let mut machines: Vec<MachineId> =
            scenario.services.iter().filter(is_on).map(ServiceSpec::machine).collect();
        machines.sort_unstable();
        machines.dedup();
        machines
    }

    /// Why a fault can do nothing there: the definition that mounts the volume may be another one than that of which a service is made now.
    pub(super) fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let volume = self.volume()?;
        let machines = self.machines(&machine.scenario);
        let mounted = machines.iter().any(|id| machine.world.nodes[id].vfs.has_volume(volume));
        (!mounted).then_some("no service mounts the volume now")
    }

    /// What is wrong there.
    pub(super) fn trouble(&self, machine: &Machine) -> Trouble {
        machine.world.machine_of(self.node).vfs.trouble_of(self.volume())
    }

    /// Says what is wrong there from now on.
    pub(super) fn set_trouble(&self, machine: &mut Machine, change: impl Fn(&mut Trouble)) {
        for id in self.machines(&machine.scenario.clone()) {
            let node = machine.world.node_mut(id);
            let mut trouble = node.vfs.trouble_of(self.volume());
            change(&mut trouble);
            node.vfs.set_trouble_of(self.volume(), trouble);
        }
    }
}

impl Fault {
    /// Where it is, if it is a fault of a disk.
    pub fn disk_place(&self) -> Option<&DiskPlace> {
        match self {
            Fault::DiskFull(full) => Some(&full.place),
            Fault::DiskReadonly(read_only) => Some(&read_only.place),
            Fault::DiskSlow(slow) => Some(&slow.place),
            Fault::BadSector(sector) => Some(&sector.place),
            _ => None,
        }
    }
}
