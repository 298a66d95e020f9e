//! File systems that an error has made read-only: nothing on the disk of a service's machine, or on a volume alone, can be changed for a
//! while.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{DiskPlace, Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReadonly {
    /// Where.
    pub place: DiskPlace,
}

impl Room for DiskReadonly {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskReadonly> {
        Some(DiskReadonly { place: DiskPlace::draw(draw)? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.place.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let already = || self.place.trouble(machine).read_only.then_some("its disk is read-only already");
        self.place.hindered(machine).or_else(already)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("{} is read-only for {ms} ms (EROFS)", self.place.describe(name))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        self.place.set_trouble(machine, |trouble| trouble.read_only = true);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        self.place.set_trouble(machine, |trouble| trouble.read_only = false);
        true
    }
}
