//! Limits of the drawn plan: how many nodes may be down at the same time, whom no fault takes down, and when nothing happens. They are kept by
//! taking entries out of the plan before the run begins.
//!
//! Key type: [`Limits`]. The filter sees the plan as the seed drew it, with the entries that the log of a run takes out: whether an entry is
//! admitted depends on those drawn before it alone, so that to take one out lets no other in.

use std::collections::BTreeSet;
use std::fmt;

use bloodhound_abi::SimTime;
use bloodhound_faults::{Group, Kind};
use bloodhound_kernel::node::MachineId;
use bloodhound_net::{NodeId, PartitionKind};

use super::planning::targets;
use super::{Drawn, Fault, FaultId, Phases, Planned};
use crate::scenario::{Scenario, ServiceSpec};

/// One that counts as down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    /// A service.
    Service(NodeId),
    /// Whichever has its turn in a rollout: one at a time, beside whatever else is down.
    InTurn(FaultId),
}

/// What the drawn plan must keep to.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many services may be down at the same time; `None`: any number.
    pub down: Option<Down>,
    /// A service counts as down for so long after the end of the fault, ns.
    pub recovery: u64,
    /// Services that no fault takes down.
    pub spare: Vec<NodeId>,
    /// No fault begins in these times, or lasts into them: from and to, ns after faults can begin.
    pub quiet: Vec<(u64, u64)>,
    /// How many disks may have faults at the same time; `None`: any number.
    pub disks: Option<u32>,
}

/// As [`super::Planning`]'s.
impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { down, recovery, spare, quiet, disks } = self;
        let mut out = f.debug_struct("Limits");
        out.field("down", down).field("recovery", recovery).field("spare", spare).field("quiet", quiet);
        if disks.is_some() {
            out.field("disks", disks);
        }
        out.finish()
    }
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

    /// The entries that keep to the limits, those included that are taken out. `begun` are those that began before all of them, in a plan that they go
    /// on with. `at_risk` are the machines whose disks may have faults, if not all ([`super::planning::disks_at_risk`]).
    pub(super) fn admit(
        &self,
        drawn: Vec<Drawn>,
        scenario: &Scenario,
        (phases, at_risk): (Phases, Option<&BTreeSet<MachineId>>),
        begun: &[Planned],
    ) -> Vec<Drawn> {
        if !self.is_some() {
            return drawn;
        }
        let most = match self.down {
            None => usize::MAX,
            Some(Down::Count(count)) => count as usize,
            Some(Down::Minority) => targets(scenario).0.len().saturating_sub(1) / 2,
        };
        let most_disks = self.disks.map_or(usize::MAX, |disks| disks as usize);
        // What is down, and which disks are not whole, until when.
        let (mut down, mut harmed) = (Until(Vec::new()), Until(Vec::new()));
        for entry in begun {
            let end = end(entry, phases, scenario);
            down.add(takes_down(entry, scenario), end.after(self.recovery));
            harmed.add(harms_disks(&entry.fault, scenario), end);
        }
        let mut plan = Vec::new();
        for Drawn { entry, out, at } in drawn {
            let end = end(&entry, phases, scenario);
            if self.is_quiet(phases.begin, (entry.begin, end)) || self.is_spared(&entry, scenario) {
                continue;
            }
            let (takes, harms) = (takes_down(&entry, scenario), harms_disks(&entry.fault, scenario));
            let whole = |machine: &MachineId| at_risk.is_some_and(|at_risk| !at_risk.contains(machine));
            let too_many =
                down.with(&takes, entry.begin) > most || harmed.with(&harms, entry.begin) > most_disks;
            if too_many || harms.iter().any(whole) {
                continue;
            }
            down.add(takes, end.after(self.recovery));
            harmed.add(harms, end);
            plan.push(Drawn { entry, out, at });
        }
        plan
    }

    /// Whether an entry that begins later than planned keeps to the limits, with those that have begun and all that come.
    pub(super) fn have_room(
        &self,
        moved: &Planned,
        scenario: &Scenario,
        (phases, at_risk): (Phases, Option<&BTreeSet<MachineId>>),
        (begun, others): (&[Planned], &[Planned]),
    ) -> bool {
        let mut all = others.to_vec();
        all.push(moved.clone());
        super::plan::sort(&mut all);
        let count = all.len();
        let drawn = all.into_iter().map(Drawn::kept).collect();
        self.admit(drawn, scenario, (phases, at_risk), begun).len() == count
    }

    /// Whether a fault would take down a service that none is to take down.
    fn is_spared(&self, entry: &Planned, scenario: &Scenario) -> bool {
        let takes = match entry.fault.rollout() {
            Some(rollout) => rollout.nodes.clone(),
            None => services_down(entry, scenario),
        };
        takes.iter().any(|node| self.spare.contains(node))
    }

    fn is_quiet(&self, begin: SimTime, (from, to): (SimTime, SimTime)) -> bool {
        self.quiet.iter().any(|(first, last)| from < begin.after(*last) && to >= begin.after(*first))
    }
}

/// What is so until a time.
struct Until<T>(Vec<(T, SimTime)>);

impl<T: Clone + Ord> Until<T> {
    fn add(&mut self, what: Vec<T>, until: SimTime) {
        self.0.extend(what.into_iter().map(|one| (one, until)));
    }

    /// Forgets what is over at a time. How many there are then with some more; none if there are no more, which is within any limit.
    fn with(&mut self, more: &[T], at: SimTime) -> usize {
        self.0.retain(|(_, until)| *until > at);
        let all: BTreeSet<&T> = self.0.iter().map(|(one, _)| one).chain(more).collect();
        if more.is_empty() { 0 } else { all.len() }
    }
}

/// When an entry ends: one without a time at once, or with the phase of faults. A service that is stopped has its own grace period then, for it may handle no
/// stop signal.
pub(super) fn end(entry: &Planned, phases: Phases, scenario: &Scenario) -> SimTime {
    match &entry.fault {
        _ if entry.duration > 0 => entry.begin.after(entry.duration),
        _ if entry.id.kind.declaration().lasts_without_time() => phases.end,
        Fault::Stop(_) => {
            let stopped = scenario.services.iter().find(|service| Some(service.node) == entry.fault.node());
            entry.begin.after(stopped.map_or(0, |service| service.runtime.stop_grace))
        }
        _ => entry.begin,
    }
}

/// What a fault takes down.
fn takes_down(entry: &Planned, scenario: &Scenario) -> Vec<Taken> {
    if entry.fault.rollout().is_some() {
        return vec![Taken::InTurn(entry.id)];
    }
    services_down(entry, scenario).into_iter().map(Taken::Service).collect()
}

/// The services that a fault takes down, if it is no rollout: all that a fault of processes hits, with those that share its machine if it hits the machine (the
/// others hit a container alone, and those that see its processes), and the smaller side of a partition.
fn services_down(entry: &Planned, scenario: &Scenario) -> Vec<NodeId> {
    let fault = &entry.fault;
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
    match fault {
        Fault::GroupPartition(partition) => return partition.nodes.clone(),
        Fault::GroupPower(failure) => return on_machines(&failure.nodes, scenario),
        _ => {}
    }
    let of_processes = fault.kind().declaration().group == Group::Process;
    let Some(node) = fault.node().filter(|_| of_processes) else { return Vec::new() };
    match fault.kind() {
        Kind::Crash | Kind::Oom | Kind::Kill | Kind::Stop | Kind::CrashLoop | Kind::Starve => {
            let falls = |service: &&ServiceSpec| service.node == node || service.sharing.pids == Some(node);
            scenario.services.iter().filter(|service| service.faulty).filter(falls).map(|s| s.node).collect()
        }
        _ => on_machines(&[node], scenario),
    }
}

/// The machines of services.
fn machines_of(nodes: &[NodeId], scenario: &Scenario) -> Vec<MachineId> {
    let named = scenario.services.iter().filter(|service| nodes.contains(&service.node));
    named.map(ServiceSpec::machine).collect()
}

/// The services that faults may hit on the machines of some.
fn on_machines(nodes: &[NodeId], scenario: &Scenario) -> Vec<NodeId> {
    let machines = machines_of(nodes, scenario);
    let on =
        scenario.services.iter().filter(|service| service.faulty && machines.contains(&service.machine()));
    on.map(|service| service.node).collect()
}

/// The machines on whose disks a fault is.
pub(super) fn harms_disks(fault: &Fault, scenario: &Scenario) -> Vec<MachineId> {
    if let Some(place) = fault.disk_place() {
        return place.machines(scenario);
    }
    let of_disk = fault.kind().declaration().group == Group::Disk || fault.kind() == Kind::Replace;
    let node: Vec<NodeId> = fault.node().filter(|_| of_disk).into_iter().collect();
    machines_of(&node, scenario)
}
