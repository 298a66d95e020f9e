//! A jump of the wall clock: CLOCK_REALTIME of a service's machine is set wrong, forward or back, and set right after a time, as a time
//! server that was wrong, a suspended machine or an administrator would do it. No other clock moves.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room, millis};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// The node.
    pub node: NodeId,
    /// How far forward, ns; negative: back.
    pub by: i64,
}

impl Room for ClockJump {
    fn draw(draw: &mut Draw<'_>) -> Option<ClockJump> {
        Some(ClockJump { node: draw.node()?, by: draw.signed_size("jump", "back") })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        machine.not_running(self.node)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let direction = if self.by < 0 { "back" } else { "forward" };
        let until = if ms == 0 { "until the heal".to_owned() } else { format!("for {ms} ms") };
        format!("wall clock of {} goes {direction} by {} ms {until}", name(self.node), millis(self.by))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        machine.set_wrong(entry, self.node, self.by);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        machine.set_right(entry, self.node)
    }
}
