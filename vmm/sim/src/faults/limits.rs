//! Limits of the drawn plan: how many nodes may be down at the same time, whom no fault takes down, and when nothing happens. They are kept by
//! taking entries out of the plan before the run begins.
//!
//! Key type: [`Limits`]. The filter sees the plan as the seed drew it, with the entries that the log of a run takes out: whether an entry is
//! admitted depends on those drawn before it alone, so that to take one out lets no other in.

use bloodhound_abi::SimTime;
use bloodhound_faults::{Group, Kind};
use bloodhound_net::{NodeId, PartitionKind};

use super::{Drawn, Fault, Phases, Planned, targets};
use crate::scenario::Scenario;

/// What the drawn plan must keep to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many services may be down at the same time; `None`: any number.
    pub down: Option<Down>,
    /// A service counts as down for so long after the end of the fault, ns.
    pub recovery: u64,
    /// Services that no fault takes down.
    pub spare: Vec<NodeId>,
    /// No fault begins in these times, or lasts into them: from and to, ns after faults can begin.
    pub quiet: Vec<(u64, u64)>,
}

/// How many services may be down at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// So many.
    Count(u32),
    /// So many that most of those that faults may hit are up.
    Minority,
}

impl Limits {
    /// Whether there is a limit.
    pub(super) fn is_some(&self) -> bool {
        *self != Limits::default()
    }

    /// The entries that keep to the limits and are not taken out. `begun` are those that began before all of them, in a plan that they go
    /// on with.
    pub(super) fn filter(
        &self,
        drawn: Vec<Drawn>,
        scenario: &Scenario,
        phases: Phases,
        begun: &[Planned],
    ) -> Vec<Planned> {
        if !self.is_some() {
            return drawn.into_iter().map(|drawn| drawn.entry).collect();
        }
        let most = match self.down {
            None => usize::MAX,
            Some(Down::Count(count)) => count as usize,
            Some(Down::Minority) => targets(scenario).0.len().saturating_sub(1) / 2,
        };
        // Those that are down, and until when.
        let mut down: Vec<(NodeId, SimTime)> = Vec::new();
        for entry in begun {
            let until = end(entry, phases).after(self.recovery);
            down.extend(takes_down(&entry.fault, scenario).into_iter().map(|node| (node, until)));
        }
        let mut plan = Vec::new();
        for Drawn { entry, out } in drawn {
            let end = end(&entry, phases);
            if self.is_quiet(phases.begin, (entry.begin, end)) {
                continue;
            }
            let takes = takes_down(&entry.fault, scenario);
            down.retain(|(_, until)| *until > entry.begin);
            let mut both: Vec<NodeId> = down.iter().map(|(node, _)| *node).chain(takes.clone()).collect();
            both.sort();
            both.dedup();
            let spared = takes.iter().any(|node| self.spare.contains(node));
            if !takes.is_empty() && (spared || both.len() > most) {
                continue;
            }
            down.extend(takes.into_iter().map(|node| (node, end.after(self.recovery))));
            if !out {
                plan.push(entry);
            }
        }
        plan
    }

    fn is_quiet(&self, begin: SimTime, (from, to): (SimTime, SimTime)) -> bool {
        self.quiet.iter().any(|(first, last)| from < begin.after(*last) && to >= begin.after(*first))
    }
}

/// When an entry ends: one without a time at once, or with the phase of faults.
fn end(entry: &Planned, phases: Phases) -> SimTime {
    let lasts = entry.duration == 0 && entry.id.kind.declaration().lasts_without_time();
    if lasts { phases.end } else { entry.begin.after(entry.duration) }
}

/// The services that a fault takes down: all that a fault of processes hits, with those that share its machine if it hits the machine (the
/// others hit a container alone, and those that see its processes), and the smaller side of a partition.
fn takes_down(fault: &Fault, scenario: &Scenario) -> Vec<NodeId> {
    if let Fault::Partition(partition) = fault {
        let (a, b) = match &partition.cut {
            PartitionKind::Isolate(node, _) => return vec![*node],
            PartitionKind::Symmetric(a, b)
            | PartitionKind::MajorityMinority(a, b)
            | PartitionKind::OneWay(a, b)
            | PartitionKind::Bridge(_, a, b) => (a, b),
        };
        return if b.len() <= a.len() { b.clone() } else { a.clone() };
    }
    let of_processes = fault.kind().declaration().group == Group::Process;
    let Some(node) = fault.node().filter(|_| of_processes) else { return Vec::new() };
    let spec = |id| scenario.services.iter().find(|service| service.node == id);
    let machine = spec(node).map(|service| service.machine());
    let falls = |service: &&crate::scenario::ServiceSpec| match fault.kind() {
        Kind::Crash | Kind::Oom | Kind::Kill | Kind::Stop | Kind::CrashLoop | Kind::Starve => {
            service.node == node || service.sharing.pids == Some(node)
        }
        _ => Some(service.machine()) == machine,
    };
    scenario.services.iter().filter(|service| service.faulty).filter(falls).map(|s| s.node).collect()
}
