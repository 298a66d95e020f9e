//! Faults of a live run: the entries of the plan begin and end, and at last everything is healed. The engine does it (`hands`); what happens
//! is written down when it is asked for.
//!
//! Neighbours: `faults` says what an engine can do, `supervise` starts again what was killed.

use bloodhound_images::EngineError;
use bloodhound_kernel::node::MachineId;
use bloodhound_net::NodeId;
use bloodhound_sim::faults::{Effect, Fault};
use bloodhound_sim::notice::{Notice, PhaseChange};
use bloodhound_sim::scenario::ServiceSpec;

use super::faults::cut_off;
use super::hands::{Deed, Task};
use super::run::{Due, Phase, Run};
use super::supervise::State;

impl Run<'_> {
    pub(super) fn begin_fault(&mut self, entry: usize) {
        if self.phase != Phase::Faults {
            return;
        }
        let Some(planned) = self.plan.get(entry).cloned() else { return };
        let effect = self.hindered(&planned.fault).map_or(Effect::Begun, Effect::None);
        self.effects.push(effect);
        if effect != Effect::Begun {
            return;
        }
        self.note(planned.fault.node(), Notice::Fault(planned.clone()));
        match &planned.fault {
            Fault::Crash(crash) => {
                self.crash(crash.node, Some(entry));
                for node in self.falling(crash.node) {
                    self.crash(node, None);
                }
            }
            Fault::Pause(pause) => {
                let machine = self.machine_of(pause.node);
                let on = |s: &&ServiceSpec| Some(s.machine()) == machine;
                let nodes: Vec<NodeId> = self
                    .scenario
                    .services
                    .iter()
                    .filter(on)
                    .map(|s| s.node)
                    .filter(|n| self.runs(*n))
                    .collect();
                for node in &nodes {
                    self.hands.ask(Task { node: *node, deed: Deed::Pause, entry: Some(entry) });
                }
                self.paused.insert(machine.unwrap_or(MachineId(pause.node.0)), (entry, nodes));
            }
            Fault::Partition(_) => {
                let nodes = cut_off(&planned.fault);
                for node in &nodes {
                    let count = self.cuts.entry(*node).or_default();
                    *count += 1;
                    if *count == 1 {
                        self.hands.ask(Task { node: *node, deed: Deed::Cut, entry: Some(entry) });
                    }
                }
                self.cut_by.insert(entry, nodes);
            }
            // Never drawn: an engine cannot do it.
            Fault::Reset(_) | Fault::Window(_) => {}
        }
        self.due(planned.duration, Due::FaultEnds(entry));
    }

    pub(super) fn end_fault(&mut self, entry: usize) {
        if self.phase != Phase::Faults {
            return;
        }
        let Some(planned) = self.plan.get(entry).cloned() else { return };
        match &planned.fault {
            Fault::Crash(crash) => {
                // The start is told.
                for node in std::iter::once(crash.node).chain(self.falling(crash.node)) {
                    if self.service(node).state == State::Crashed {
                        self.start_service(node);
                    }
                }
                return;
            }
            Fault::Pause(pause) => {
                let machine = self.machine_of(pause.node).unwrap_or(MachineId(pause.node.0));
                let Some((_, nodes)) = self.paused.remove(&machine) else { return };
                for node in nodes {
                    self.hands.ask(Task { node, deed: Deed::Unpause, entry: None });
                }
            }
            Fault::Partition(_) => {
                let Some(nodes) = self.cut_by.remove(&entry) else { return };
                for node in nodes {
                    let count = self.cuts.entry(node).or_default();
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.hands.ask(Task { node, deed: Deed::Join, entry: None });
                    }
                }
            }
            Fault::Reset(_) | Fault::Window(_) => return,
        }
        self.note(planned.fault.node(), Notice::FaultEnd(planned.id));
    }

    /// The engine refused to begin a fault: it has no effect, which is said once for each thing that it cannot do.
    pub(super) fn refused(&mut self, entry: Option<usize>, deed: Deed, error: &EngineError) {
        if let Some(effect) = entry.and_then(|entry| self.effects.get_mut(entry)) {
            *effect = Effect::None("the engine refused it");
        }
        if self.told.insert(deed.word()) {
            super::say(&format!("a fault has no effect, for the engine refuses it: {error}"));
        }
    }

    /// Why a fault would have no effect now, if it would have none.
    fn hindered(&self, fault: &Fault) -> Option<&'static str> {
        let Some(node) = fault.node() else {
            return cut_off(fault).is_empty().then_some("nobody is on its smaller side");
        };
        let machine = self.machine_of(node);
        if !self.runs(node) {
            return Some("its service does not run");
        }
        machine.is_some_and(|machine| self.paused.contains_key(&machine)).then_some("it is paused already")
    }

    fn runs(&self, node: NodeId) -> bool {
        self.services.get(&node).is_some_and(|service| service.state == State::Running)
    }

    fn machine_of(&self, node: NodeId) -> Option<MachineId> {
        self.scenario.services.iter().find(|s| s.node == node).map(ServiceSpec::machine)
    }

    /// Services whose processes end with those of another one: they are in its namespace of processes.
    fn falling(&self, node: NodeId) -> Vec<NodeId> {
        let with = self.scenario.services.iter().filter(|s| s.sharing.pids == Some(node)).map(|s| s.node);
        let down = |node: &NodeId| {
            let state = self.services.get(node).map(|service| service.state);
            matches!(state, Some(State::Running | State::Crashed))
        };
        with.filter(down).collect()
    }

    /// The faults end: the network is whole, everything that is down starts, nothing is paused. Liveness counts from when this is done.
    pub(super) fn heal(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        self.phase = Phase::Recovery;
        if !self.scenario.heal {
            self.note(None, Notice::Phase(PhaseChange::Unhealed));
            self.recovery_begins();
            return;
        }
        for (_, nodes) in std::mem::take(&mut self.paused).into_values() {
            for node in nodes {
                self.hands.ask(Task { node, deed: Deed::Unpause, entry: None });
            }
        }
        self.cut_by.clear();
        for (node, _) in std::mem::take(&mut self.cuts).into_iter().filter(|(_, count)| *count > 0) {
            self.hands.ask(Task { node, deed: Deed::Join, entry: None });
        }
        let crashed: Vec<NodeId> =
            self.services.iter().filter(|(_, s)| s.state == State::Crashed).map(|(node, _)| *node).collect();
        for node in crashed {
            self.start_service(node);
        }
        self.note(None, Notice::Phase(PhaseChange::Healed));
        self.healing = self.hands.open > 0;
        if !self.healing {
            self.recovery_begins();
        }
    }
}
