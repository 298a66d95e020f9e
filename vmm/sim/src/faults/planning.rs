//! What a configuration says about the plan of faults beside rates, and whom faults may hit by it.
//!
//! Key types: [`Planning`], [`ServiceGroup`] (services that fail together), [`Grouped`] (one of them as far as faults may hit it). Neighbours:
//! `plan` draws for whom it is told here, `limits` leaves out, `schedule` has what is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bloodhound_decisions::{Decisions, FaultChain, Site, Word};
use bloodhound_faults::{Begins, Declaration, FaultSpec, Group, Kind};
use bloodhound_kernel::node::MachineId;
use bloodhound_net::NodeId;
use bloodhound_vfs::Volume;

use super::plan::{Aim, GAP};
use super::swarm::as_configured;
use super::{Epoch, FaultId, Limits, Names, Scheduled, Trigger, What, Window};
use crate::scenario::{Scenario, ServiceSpec};

/// From which nodes to which a link goes; none: from or to all.
pub type Ends = (Vec<NodeId>, Vec<NodeId>);

/// A volume that faults may be about, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVolume {
    /// Its number: its place in [`Planning::volumes`].
    pub volume: Volume,
    /// The name in the compose file.
    pub name: String,
}

/// Where services mount a volume that faults may be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlaces {
    /// Its name in the compose file.
    pub name: String,
    /// The services, and the paths in them.
    pub places: Vec<(NodeId, Vec<u8>)>,
}

/// Which disks kinds may hit by services, where that is not the one of the service's machine: all of that (`None`), or volumes alone.
pub(super) type Disks = BTreeMap<(Kind, NodeId), Vec<Option<NamedVolume>>>;

/// What a configuration says about the plan beside rates: entries of its own, limits, and who may be hit by what.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Planning {
    /// Entries that are written by hand. They always happen: limits are about what is drawn.
    pub schedule: Vec<Scheduled>,
    /// What the drawn plan must keep to.
    pub limits: Limits,
    /// The only services that faults of a kind may hit; a kind that is not named may hit all that faults may hit.
    pub only: BTreeMap<Kind, Vec<NodeId>>,
    /// The only groups that faults of a kind may hit, by their numbers from 1.
    pub only_groups: BTreeMap<Kind, Vec<u32>>,
    /// Groups of services that fail together.
    pub groups: Vec<ServiceGroup>,
    /// The only links that a kind of links' faults is about: from the first ones to the second ones; none: from or to all.
    pub links: BTreeMap<Kind, Vec<Ends>>,
    /// Programs have to ask the name server for other services, whether or not anything happens to questions.
    pub asks_names: bool,
    /// Of what services are made after an upgrade.
    pub upgrades: BTreeMap<NodeId, Upgraded>,
    /// The volumes that faults may be about.
    pub volumes: Vec<VolumePlaces>,
    /// The volumes that a kind of faults of disks may hit, beside the services of `only`, and no others.
    pub only_volumes: BTreeMap<Kind, Vec<Volume>>,
}

/// Of what a service is made after an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The name of the image or definition.
    pub name: String,
    /// The container. Its place in the network, its machine and what it depends on are as before.
    pub spec: ServiceSpec,
}

/// What the digest of the inputs takes: what is not written is not printed, so that there is one thing more to write changes no input
/// without it.
impl fmt::Debug for Planning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Planning { schedule, limits, only, only_groups, groups, links, .. } = self;
        let Planning { asks_names, upgrades, volumes, only_volumes, .. } = self;
        let mut out = f.debug_struct("Planning");
        out.field("schedule", schedule).field("limits", limits).field("only", only);
        if !groups.is_empty() {
            out.field("groups", groups);
        }
        if !only_groups.is_empty() {
            out.field("only_groups", only_groups);
        }
        if !links.is_empty() {
            out.field("links", links);
        }
        if *asks_names {
            out.field("asks_names", asks_names);
        }
        if !upgrades.is_empty() {
            out.field("upgrades", upgrades);
        }
        if !volumes.is_empty() {
            out.field("volumes", volumes).field("only_volumes", only_volumes);
        }
        out.finish()
    }
}

/// Services that fail together: a rack, a zone, those behind a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceGroup {
    /// Its name.
    pub name: String,
    /// The services.
    pub nodes: Vec<NodeId>,
}

impl Planning {
    /// The entry that a seed drew as which an entry of the plan is written; else the entry itself.
    pub(super) fn drawn_as(&self, id: FaultId) -> FaultId {
        match id.place().and_then(|place| self.schedule.get(place)).map(|written| &written.what) {
            Some(What::As(_, drawn)) => *drawn,
            _ => id,
        }
    }

    /// The entries for what happens the so manieth time on a disk.
    pub(super) fn written(&self, kind: Kind, number: u64) -> impl Iterator<Item = &Scheduled> {
        let of_kind = self.schedule.iter().filter(move |entry| entry.kind == kind);
        of_kind.filter(move |entry| entry.trigger == Trigger::Nth(number))
    }

    /// Whether a fault is written for what a service does, or its machine meets, the so manieth time.
    pub(super) fn is_written(&self, kind: Kind, node: NodeId, number: u64) -> bool {
        self.written(kind, number).any(|entry| entry.volume.is_none() && entry.nodes.contains(&node))
    }

    /// The services that mount a volume, and where.
    pub(crate) fn places_of(&self, volume: Volume) -> &[(NodeId, Vec<u8>)] {
        self.volumes.get(volume.0 as usize).map_or(&[], |volume| &volume.places)
    }

    /// Whether a service mounts a volume.
    pub(super) fn mounts(&self, node: NodeId, volume: Volume) -> bool {
        self.places_of(volume).iter().any(|(other, _)| *other == node)
    }

    /// The service that stands for a volume: the first of these that mounts it and that faults may hit.
    pub fn stands_for(&self, volume: Volume, services: &[ServiceSpec]) -> Option<NodeId> {
        services.iter().find(|spec| spec.faulty && self.mounts(spec.node, volume)).map(|spec| spec.node)
    }

    /// A volume with its name.
    pub(super) fn named(&self, volume: Volume) -> Option<NamedVolume> {
        let name = self.volumes.get(volume.0 as usize)?.name.clone();
        Some(NamedVolume { volume, name })
    }

    /// The volumes that are mounted in a service, with their paths there.
    pub(crate) fn volumes_in(&self, node: NodeId) -> impl Iterator<Item = (Volume, &[u8])> {
        let all = self.volumes.iter().enumerate().flat_map(|(number, volume)| {
            volume.places.iter().map(move |(other, path)| (Volume(number as u32), *other, &path[..]))
        });
        all.filter(move |(_, other, _)| *other == node).map(|(volume, _, path)| (volume, path))
    }

    /// What links do that a profile does to some links alone.
    pub(super) fn windows(&self, profile: &FaultSpec) -> Vec<Window> {
        let on = self.links.iter().filter(|(kind, _)| profile.is_on(**kind));
        let windows = on.flat_map(|(kind, links)| {
            links.iter().map(|(from, to)| Window {
                kind: *kind,
                setting: profile.get(*kind).clone(),
                from: from.clone(),
                to: to.clone(),
            })
        });
        windows.collect()
    }
}

/// A group as far as faults may hit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grouped {
    /// Its number among the groups, from 1; 0 if it is none of them.
    pub(super) number: u32,
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// The services.
    pub(super) nodes: Vec<NodeId>,
    /// Those of them that can be upgraded.
    pub(super) upgrades: Vec<NodeId>,
    /// The first service that faults may hit on each machine that has one of them.
    pub(super) machines: Vec<NodeId>,
    /// The network stacks that they use.
    pub(super) stacks: Vec<NodeId>,
    /// The stacks of the other services.
    pub(super) rest: Vec<NodeId>,
}

impl Grouped {
    /// Of services that are named as a group, those that faults may hit.
    pub(super) fn new(number: u32, name: &str, nodes: &[NodeId], scenario: &Scenario) -> Grouped {
        let (targets, stacks, machines) = targets(scenario);
        let nodes: Vec<NodeId> = nodes.iter().filter(|node| targets.contains(node)).copied().collect();
        let spec = |node: NodeId| scenario.services.iter().find(|spec| spec.node == node);
        let on: BTreeSet<MachineId> =
            nodes.iter().filter_map(|node| spec(*node)).map(ServiceSpec::machine).collect();
        let of_machine = |node: &NodeId| spec(*node).is_some_and(|spec| on.contains(&spec.machine()));
        let used: BTreeSet<NodeId> = nodes
            .iter()
            .filter_map(|node| spec(*node))
            .map(|spec| spec.sharing.net.unwrap_or(spec.node))
            .collect();
        let is_upgraded = |node: &&NodeId| scenario.planning.upgrades.contains_key(node);
        let (of_group, rest) = stacks.into_iter().partition(|node| used.contains(node));
        Grouped {
            number,
            name: name.to_owned(),
            machines: machines.into_iter().filter(of_machine).collect(),
            upgrades: nodes.iter().filter(is_upgraded).copied().collect(),
            nodes,
            stacks: of_group,
            rest,
        }
    }

    /// The groups of a scenario, of which each has a service that faults may hit; where none is named, all services are one without a name.
    pub(super) fn all(scenario: &Scenario) -> Vec<Grouped> {
        let groups = &scenario.planning.groups;
        if groups.is_empty() {
            let nodes: Vec<NodeId> = scenario.services.iter().map(|spec| spec.node).collect();
            return vec![Grouped::new(1, "", &nodes, scenario)];
        }
        let one = |(place, group): (usize, &ServiceGroup)| {
            Grouped::new(place as u32 + 1, &group.name, &group.nodes, scenario)
        };
        groups.iter().enumerate().map(one).filter(|group| !group.nodes.is_empty()).collect()
    }
}

/// A group in words, with the names of nodes.
pub(super) fn in_words(group: &str, nodes: &[NodeId], name: Names<'_>) -> String {
    let names: Vec<String> = nodes.iter().map(|node| name(*node)).collect();
    match group {
        "" => format!("[{}]", names.join(" ")),
        group => format!("{group} [{}]", names.join(" ")),
    }
}

/// The only services that kinds may hit: for kinds that hit machines, the first of each machine, if any of its services is named.
pub(super) fn only(scenario: &Scenario, machines: &[NodeId]) -> BTreeMap<Kind, Vec<NodeId>> {
    let mut only = scenario.planning.only.clone();
    for (kind, volumes) in &scenario.planning.only_volumes {
        let nodes = only.entry(*kind).or_default();
        let planning = &scenario.planning;
        nodes.extend(volumes.iter().filter_map(|volume| planning.stands_for(*volume, &scenario.services)));
    }
    let machine =
        |node: &NodeId| scenario.services.iter().find(|s| s.node == *node).map(ServiceSpec::machine);
    for (_, named) in only.iter_mut().filter(|(kind, _)| kind.declaration().begins == Begins::ByMachine) {
        let hit: Vec<_> = named.iter().map(machine).collect();
        *named = machines.iter().filter(|first| hit.contains(&machine(first))).copied().collect();
    }
    only
}

/// Which disks kinds may hit, where volumes are named.
pub(super) fn disks(scenario: &Scenario) -> Disks {
    let mut disks = Disks::new();
    let planning = &scenario.planning;
    for (kind, volumes) in &planning.only_volumes {
        for node in planning.only.get(kind).into_iter().flatten() {
            disks.insert((*kind, *node), vec![None]);
        }
        for volume in volumes {
            if let Some(node) = planning.stands_for(*volume, &scenario.services) {
                disks.entry((*kind, node)).or_default().push(planning.named(*volume));
            }
        }
    }
    disks
}

/// The services that faults may hit, those of them that have a network stack of their own, and the first of them on each machine.
pub(super) fn targets(scenario: &Scenario) -> (Vec<NodeId>, Vec<NodeId>, Vec<NodeId>) {
    let faulty = || scenario.services.iter().filter(|s| s.faulty);
    let targets = faulty().map(|s| s.node).collect();
    let stacks = faulty().filter(|s| s.sharing.net.is_none()).map(|s| s.node).collect();
    let mut machines: Vec<&ServiceSpec> = Vec::new();
    for spec in faulty() {
        if !machines.iter().any(|other| other.machine() == spec.machine()) {
            machines.push(spec);
        }
    }
    (targets, stacks, machines.into_iter().map(|spec| spec.node).collect())
}

/// Does something with whom faults of a scenario may hit.
pub(super) fn aimed<T>(scenario: &Scenario, with: impl FnOnce(Aim<'_>) -> T) -> T {
    let (targets, stacks, machines) = targets(scenario);
    let (only, groups, disks) = (only(scenario, &machines), Grouped::all(scenario), disks(scenario));
    with(Aim {
        targets: &targets,
        stacks: &stacks,
        machines: &machines,
        only: &only,
        groups: &groups,
        only_groups: &scenario.planning.only_groups,
        disks: &disks,
    })
}

/// What an epoch of a log can be made to begin with: each configured kind of faults that begin at times, with whom it hits.
pub fn fault_chains(scenario: &Scenario) -> Vec<FaultChain> {
    let spec = &scenario.faults;
    let timed = |declaration: &&Declaration| {
        spec.is_on(declaration.kind) && declaration.is_timed() && declaration.begins != Begins::Standing
    };
    aimed(scenario, |aim| {
        let of_kind = Kind::DECLARATIONS.iter().filter(timed).flat_map(|declaration| {
            let kind = declaration.kind;
            let strength = Epoch::at(0).swarm(kind);
            let on = as_configured(spec, declaration).map(|to| (strength, to));
            let gap = move |target| FaultId { kind, target, nth: 0 }.site(GAP);
            aim.chains(declaration).into_iter().map(move |target| FaultChain::new(gap(target), on))
        });
        of_kind.collect()
    })
}

/// The machines whose disks a seed may harm, where so many at most may have faults at once and operations meet them during the whole phase:
/// these are drawn, and faults that begin at times come to no other. `None`: all of them. `harmed` have faults already, and are among them.
pub(super) fn disks_at_risk(
    scenario: &Scenario,
    profile: &FaultSpec,
    (epoch, harmed): (Epoch, &BTreeSet<MachineId>),
    decisions: &mut Decisions,
) -> Option<BTreeSet<MachineId>> {
    let most = scenario.planning.limits.disks? as usize;
    let asked = Kind::of_group(Group::Disk).any(|kind| kind.is_asked() && profile.is_on(kind.kind));
    if !asked {
        return None;
    }
    let (_, _, machines) = targets(scenario);
    let spec = |node: &NodeId| scenario.services.iter().find(|spec| spec.node == *node);
    let mut machines: Vec<MachineId> = machines.iter().filter_map(spec).map(ServiceSpec::machine).collect();
    machines.retain(|machine| !harmed.contains(machine));
    let most = most.saturating_sub(harmed.len()).min(machines.len());
    for place in 0..most {
        let left = (machines.len() - place) as u64;
        let (kind, nth) = (Word::new("disks"), epoch.numbered(place as u64));
        let site = Site::Fault { kind, target: 0, nth, part: Word::new("which") };
        machines.swap(place, place + decisions.choose(site, left) as usize);
    }
    machines.truncate(most);
    Some(machines.into_iter().chain(harmed.iter().copied()).collect())
}
