//! Drift: the oscillator of a service's machine is fast or slow for a time. All its clocks and timers go by that: CLOCK_MONOTONIC as
//! well as CLOCK_REALTIME, against the clocks of other machines. At the end the wall clock is set right at once; CLOCK_MONOTONIC keeps
//! what it has gained or lost.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Fault, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockDrift {
    /// The node.
    pub node: NodeId,
    /// How much too fast, parts per billion; negative: too slow.
    pub rate: i64,
}

impl Room for ClockDrift {
    fn draw(draw: &mut Draw<'_>) -> Option<ClockDrift> {
        Some(ClockDrift { node: draw.node()?, rate: draw.signed_size("drift", "slow") })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let is_drift = |fault: &Fault| matches!(fault, Fault::ClockDrift(_));
        let drifts = machine.clock_fault(self.node, is_drift).then_some("its machine's clocks drift already");
        machine.not_running(self.node).or(drifts)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let direction = if self.rate < 0 { "slow" } else { "fast" };
        let rate = self.rate.unsigned_abs();
        let ppm = format!("{}.{:03}", rate / 1000, rate % 1000);
        let ppm = ppm.trim_end_matches('0').trim_end_matches('.');
        let until = if ms == 0 { "until the heal".to_owned() } else { format!("for {ms} ms") };
        format!("clocks of {} are {ppm} ppm {direction} {until}", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        let id = machine.world.room(self.node).machine;
        machine.world.catch_up(id);
        let node = machine.world.node_mut(id);
        let ahead = node.time.ahead(node.clock);
        node.set_clock_rate(self.rate);
        machine.world.faults.clocks.insert(entry, ahead);
        machine.node_changed(id);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let Some(before) = machine.world.faults.clocks.remove(&entry) else { return false };
        let id = machine.world.room(self.node).machine;
        machine.world.catch_up(id);
        let node = machine.world.node_mut(id);
        let gained = node.time.ahead(node.clock).saturating_sub(before);
        node.set_clock_rate(0);
        node.step_wall_clock(gained.saturating_neg());
        machine.node_changed(id);
        true
    }
}
