//! A leap second: every machine's CLOCK_REALTIME shows the second in which it is once more, as at the end of a day of UTC. It is so on all
//! machines, each by its own clock, and stays: nothing is wrong that a heal could set right.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeapSecond;

impl Room for LeapSecond {
    fn draw(_: &mut Draw<'_>) -> Option<LeapSecond> {
        Some(LeapSecond)
    }

    fn node(&self) -> Option<NodeId> {
        None
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, _: Names<'_>, _: u64) -> String {
        "leap second: every wall clock shows this second twice".to_owned()
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        let ids: Vec<_> = machine.world.nodes.keys().copied().collect();
        for id in ids {
            machine.world.catch_up(id);
            machine.world.node_mut(id).insert_leap_second();
            machine.node_changed(id);
        }
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        false
    }
}
