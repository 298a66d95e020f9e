//! What the faults of clocks have in common: what is wrong with the clocks of machines, and how it is set right.

use bloodhound_net::NodeId;

use super::Fault;
use crate::machine::Machine;

impl Machine {
    /// The wall clock of a service's machine is set by an entry of the plan.
    pub(super) fn set_wrong(&mut self, entry: usize, node: NodeId, by: i64) {
        let by = self.step_wall_clock(node, by);
        self.world.faults.clocks.insert(entry, by);
    }

    /// What an entry of the plan did to a wall clock is undone, unless that was done before. An NTP client that finds the clock wrong by
    /// much sets it at once.
    pub(super) fn set_right(&mut self, entry: usize, node: NodeId) -> bool {
        let by = self.world.faults.clocks.remove(&entry);
        by.is_some_and(|by| self.step_wall_clock(node, by.saturating_neg()) != 0)
    }

    fn step_wall_clock(&mut self, node: NodeId, by: i64) -> i64 {
        let id = self.world.room(node).machine;
        self.world.catch_up(id);
        let by = self.world.node_mut(id).step_wall_clock(by);
        self.node_changed(id);
        by
    }

    /// Whether such a fault of the clock is in force on a service's machine.
    pub(super) fn clock_fault(&self, node: NodeId, is_such: impl Fn(&Fault) -> bool) -> bool {
        let id = self.world.room(node).machine;
        let faults = &self.world.faults;
        faults.clocks.keys().filter_map(|entry| faults.plan.get(*entry)).any(|planned| {
            let on = planned.fault.node().map(|node| self.world.room(node).machine);
            on == Some(id) && is_such(&planned.fault)
        })
    }

    /// All clocks are set right, and none drifts any more.
    pub(super) fn heal_clocks(&mut self) {
        let entries: Vec<usize> = self.world.faults.clocks.keys().copied().collect();
        let plan = self.world.faults.plan.clone();
        for planned in entries.into_iter().filter_map(|entry| Some((entry, plan.get(entry)?))) {
            let (entry, planned) = planned;
            planned.fault.end(self, entry);
        }
    }
}

/// Nanoseconds as milliseconds, without their sign.
pub(super) fn millis(ns: i64) -> String {
    let ns = ns.unsigned_abs();
    let text = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
