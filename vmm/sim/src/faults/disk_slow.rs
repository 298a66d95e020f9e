//! A slow disk: calls that wait for the disk of a service's machine, or for a volume alone, wait longer for a while.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{DiskPlace, Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSlow {
    /// Where.
    pub place: DiskPlace,
    /// How much longer a call waits, ns.
    pub latency: u64,
}

impl DiskSlow {
    fn set(&self, machine: &mut Machine, ns: u64) {
        for id in self.place.machines(&machine.scenario.clone()) {
            machine.world.node_mut(id).broken.set_slow(self.place.volume(), ns);
        }
    }
}

impl Room for DiskSlow {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskSlow> {
        Some(DiskSlow { place: DiskPlace::draw(draw)?, latency: draw.size() })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.place.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let broken = &machine.world.machine_of(self.place.node).broken;
        let already = || (broken.slow_ns(self.place.volume()) > 0).then_some("its disk is slow already");
        self.place.hindered(machine).or_else(already)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("{} is slow for {ms} ms ({} ms a call)", self.place.describe(name), self.latency / 1_000_000)
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        self.set(machine, self.latency);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        self.set(machine, 0);
        true
    }
}
