//! A full disk: the machine of a service, or a volume alone, has no room for another page or name of a file for a while.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{DiskPlace, Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFull {
    /// Where.
    pub place: DiskPlace,
}

impl Room for DiskFull {
    fn draw(draw: &mut Draw<'_>) -> Option<DiskFull> {
        Some(DiskFull { place: DiskPlace::draw(draw)? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.place.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let already = || self.place.trouble(machine).full.then_some("its disk is full already");
        self.place.hindered(machine).or_else(already)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("{} is full for {ms} ms (ENOSPC)", self.place.describe(name))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        self.place.set_trouble(machine, |trouble| trouble.full = true);
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        self.place.set_trouble(machine, |trouble| trouble.full = false);
        true
    }
}
