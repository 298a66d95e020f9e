//! What bloodhound.yaml says of the plan of faults beside rates: schedule, budget, quiet periods and targets, with nodes in the place of names.

use bloodhound_config::Located;
use bloodhound_config::config::{
    CallMoment, DownBudget, FaultOn, FaultTargets, FaultTrigger, Faults, ScheduledFault,
};
use bloodhound_config::tree::Source;
use bloodhound_faults::{Begins, Disk, Group, Kind, Setting, Shape};
use bloodhound_net::{NodeId, PartitionKind};
use bloodhound_sim::faults::{Down, FaultId, Limits, Planning, Scheduled, ServiceGroup, Trigger, What};
use bloodhound_sim::scenario::ServiceSpec;
use bloodhound_vfs::{DiskModel, Volume};

use super::{Planner, Refusal, volumes};

impl Planner<'_> {
    /// What completes and limits the plans of all seeds.
    pub(super) fn planning(&self, services: &[ServiceSpec], refused: &mut Vec<Refusal>) -> Planning {
        let faults = &self.project.config.faults;
        let nodes = |names: &[Located<String>]| self.nodes_named(names);
        let down = faults.budget.down.map(|down| match down {
            DownBudget::Count(count) => Down::Count(count),
            DownBudget::Minority => Down::Minority,
        });
        let limits = Limits {
            down,
            recovery: faults.budget.recovery_ns,
            spare: nodes(&faults.budget.spare),
            quiet: faults.quiet.clone(),
            disks: faults.budget.disks,
        };
        let groups = faults
            .groups
            .iter()
            .map(|group| ServiceGroup { name: group.name.value.clone(), nodes: nodes(&group.services) });
        let mut planning = Planning {
            schedule: Vec::new(),
            limits,
            groups: groups.collect(),
            upgrades: self.upgrades(services, refused),
            volumes: self.volumes(),
            asks_names: faults.asks_names
                && !faults.kinds.is_on(Kind::DnsFail)
                && !faults.kinds.is_on(Kind::DnsDelay),
            ..Planning::default()
        };
        for (kind, targets) in &faults.targets {
            if let Err(refusal) = self.aim(*kind, targets, services, &mut planning) {
                refused.push(refusal);
            }
        }
        for entry in &faults.schedule {
            match self.scheduled(entry, services, &planning) {
                Ok(entries) => planning.schedule.extend(entries),
                Err(refusal) => refused.push(refusal),
            }
        }
        planning
    }

    /// Whom a kind may hit.
    fn aim(
        &self,
        kind: Kind,
        targets: &FaultTargets,
        services: &[ServiceSpec],
        planning: &mut Planning,
    ) -> Result<(), Refusal> {
        let declaration = kind.declaration();
        if declaration.has_group() {
            let number = |name: &Located<String>| {
                let place = planning.groups.iter().position(|group| group.name == name.value);
                place.map(|place| place as u32 + 1)
            };
            let numbers = targets.services.iter().filter_map(number).collect();
            planning.only_groups.insert(kind, numbers);
            return Ok(());
        }
        let stacks_of =
            |name: &Located<String>| stacks(self.nodes_named(std::slice::from_ref(name)), services);
        if declaration.is_of_links() {
            let mut links = Vec::new();
            for name in &targets.services {
                let nodes = stacks_of(name);
                links.extend([(nodes.clone(), Vec::new()), (Vec::new(), nodes)]);
            }
            for (a, b) in &targets.links {
                let (a, b) = (stacks_of(a), stacks_of(b));
                links.extend([(a.clone(), b.clone()), (b, a)]);
            }
            planning.links.insert(kind, links);
            return Ok(());
        }
        let mut nodes = self.nodes_named(&targets.services);
        // What happens to packets happens to those who have a network stack of their own.
        if declaration.group == Group::Network {
            nodes = stacks(nodes, services);
        }
        let volumes: Vec<Volume> =
            targets.volumes.iter().filter_map(|name| volumes::number(&planning.volumes, name)).collect();
        let mut of_volumes = volumes.iter().filter_map(|volume| planning.stands_for(*volume, services));
        let first = targets.services.first().or(targets.volumes.first());
        let any = of_volumes.next().is_some() || nodes.iter().any(|node| may_be_hit(*node, services));
        if let (false, Some(first)) = (any, first) {
            let text = format!(
                "`faults.targets.{kind}` names no service that faults may hit: see `faults.process.services`"
            );
            return Err(Refusal::from(text).at(first.place(&self.project.config.source)));
        }
        if volumes.is_empty() || !nodes.is_empty() {
            planning.only.insert(kind, nodes);
        }
        if !volumes.is_empty() {
            planning.only_volumes.insert(kind, volumes);
        }
        Ok(())
    }

    /// The number of the volume that an entry of the schedule names, and the service that stands for it: the first one that mounts it and that faults may hit.
    fn on_volume(
        &self,
        entry: &ScheduledFault,
        services: &[ServiceSpec],
        planning: &Planning,
    ) -> Result<Option<(Volume, NodeId)>, Refusal> {
        let Some(name) = &entry.volume else { return Ok(None) };
        let volume = volumes::number(&planning.volumes, name);
        match (volume, volume.and_then(|volume| planning.stands_for(volume, services))) {
            (Some(volume), Some(node)) => Ok(Some((volume, node))),
            _ => {
                let text = format!("no service that faults may hit mounts the volume `{}`", name.value);
                Err(Refusal::from(text).at(name.place(self.schedule_source())))
            }
        }
    }

    /// An entry of the schedule: one for each node, if its kind hits single nodes.
    fn scheduled(
        &self,
        entry: &ScheduledFault,
        services: &[ServiceSpec],
        planning: &Planning,
    ) -> Result<Vec<Scheduled>, Refusal> {
        let trigger = self.trigger(&entry.trigger)?;
        let volume = self.on_volume(entry, services, planning)?;
        let by_node = entry.kind.declaration().has_target();
        let stacks = |names: &[Located<String>]| stacks(self.nodes_named(names), services);
        // What happens to packets happens to those who have a network stack of their own.
        let has_group = entry.kind.declaration().has_group();
        let by_number = matches!(entry.trigger, FaultTrigger::Nth(_));
        let of_node = has_group
            || by_number && entry.kind.declaration().is_asked()
            || by_node && entry.kind.declaration().group != Group::Network;
        let nodes = match volume {
            Some((_, node)) => vec![node],
            None if of_node => self.nodes_named(&entry.services),
            None => stacks(&entry.services),
        };
        let all: Vec<NodeId> =
            services.iter().filter(|s| s.faulty && s.sharing.net.is_none()).map(|s| s.node).collect();
        let mut groups: Vec<Vec<NodeId>> = entry.groups.iter().map(|group| stacks(group)).collect();
        if groups.is_empty() && entry.shape == Some(Shape::Isolate) && nodes.len() == 1 {
            groups.push(nodes.clone());
        }
        if let (Kind::Partition, [], [_], Some(one)) =
            (entry.kind, &groups[..], &nodes[..], entry.services.first())
        {
            let text = format!("`{}` is one node, and a partition divides several", one.value);
            return Err(Refusal::from(text).at(one.place(self.schedule_source())));
        }
        let what = if entry.kind.declaration().is_of_links() {
            let mut setting: Setting = self.project.config.faults.kinds.get(entry.kind).clone();
            setting.rate = entry.rate.map_or(setting.rate, |rate| rate.get());
            setting.time = entry.time_ns.map_or(setting.time, |ns| (ns, ns));
            setting.number = entry.kbit.unwrap_or(setting.number);
            What::Links(Box::new(setting), stacks(&entry.from), stacks(&entry.to))
        } else if let Some(cut) = cut(entry.shape, &groups, &all) {
            What::Cut(cut)
        } else if let Some((seed, nth)) = entry.drawn {
            let of_group = planning.groups.iter().position(|group| has_group && group.nodes == nodes);
            // Entries that were written themselves have no group in their names.
            let was_written = FaultId { kind: entry.kind, target: 0, nth }.is_written();
            let target = match of_group {
                _ if has_group && was_written => 0,
                Some(place) => place as u32 + 1,
                // All services are the first group where none is named.
                None if has_group => 1,
                None => nodes.first().filter(|_| by_node).map_or(0, |node| node.0),
            };
            What::As(seed, FaultId { kind: entry.kind, target, nth })
        } else {
            entry.shape.map_or(What::Drawn, What::Shape)
        };
        let one = |nodes: Vec<NodeId>| Scheduled {
            trigger: trigger.clone(),
            kind: entry.kind,
            nodes,
            what: what.clone(),
            duration: entry.duration_ns,
            volume: volume.map(|(volume, _)| volume),
            most: entry.time_ns.filter(|_| by_number || entry.kind.declaration().begins == Begins::Standing),
        };
        Ok(if by_node { nodes.into_iter().map(|node| one(vec![node])).collect() } else { vec![one(nodes)] })
    }

    /// The file in which the schedule stands.
    fn schedule_source(&self) -> &Source {
        let config = &self.project.config;
        config.fault_file.as_ref().unwrap_or(&config.source)
    }

    fn trigger(&self, trigger: &FaultTrigger) -> Result<Trigger, Refusal> {
        let (what, service, nth, after) = match trigger {
            FaultTrigger::At(ns) => return Ok(Trigger::At(*ns)),
            FaultTrigger::Nth(nth) => return Ok(Trigger::Nth(*nth)),
            FaultTrigger::On { what, service, nth, after_ns } => (what, service, *nth, *after_ns),
        };
        let source = self.schedule_source();
        let nodes = self.nodes_named(std::slice::from_ref(service));
        let [node] = nodes[..] else {
            let text = format!("`{}` is {} containers: name one of them", service.value, nodes.len());
            return Err(Refusal::from(text).at(service.place(source)));
        };
        Ok(match what {
            FaultOn::Log(text) => Trigger::Line { node, text: text.clone(), nth, after },
            FaultOn::Pattern(pattern) => Trigger::Pattern { node, pattern: pattern.clone(), nth, after },
            FaultOn::Call(call, when) => {
                if !bloodhound_abi::table::TABLE.iter().any(|info| info.name == call.value) {
                    let text = format!("`{}` is no system call of Linux", call.value);
                    return Err(Refusal::from(text).at(call.place(source)));
                }
                let call = call.value.clone();
                match when {
                    CallMoment::Enter => Trigger::Enter { node, call, nth, after },
                    CallMoment::Return => Trigger::Call { node, call, nth, after },
                }
            }
        })
    }

    /// The nodes of services, of single replicas and of groups, in the order of their names, each once.
    fn nodes_named(&self, names: &[Located<String>]) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for name in names {
            let group = self.project.config.faults.groups.iter().find(|group| group.name.value == name.value);
            // Members are services.
            for node in group.map(|group| self.nodes_named(&group.services)).unwrap_or_default() {
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
            for (service, instance) in self.instances() {
                let node = self.ids[&instance];
                if (service.name == name.value || instance == name.value) && !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
        }
        nodes
    }
}

/// Whether faults may hit a service.
fn may_be_hit(node: NodeId, services: &[ServiceSpec]) -> bool {
    services.iter().any(|service| service.node == node && service.faulty)
}

/// The nodes whose network stacks these use.
fn stacks(nodes: Vec<NodeId>, services: &[ServiceSpec]) -> Vec<NodeId> {
    let mut out = Vec::new();
    for node in nodes {
        let shared = services.iter().find(|service| service.node == node).and_then(|s| s.sharing.net);
        let stack = shared.unwrap_or(node);
        if !out.contains(&stack) {
            out.push(stack);
        }
    }
    out
}

/// The partition with these groups. `None`: there are none, so it is drawn.
fn cut(shape: Option<Shape>, groups: &[Vec<NodeId>], all: &[NodeId]) -> Option<PartitionKind> {
    let (a, b) = (groups.first()?.clone(), groups.get(1).cloned());
    let rest = || all.iter().filter(|node| !a.contains(node)).copied().collect();
    Some(match shape.unwrap_or(Shape::Symmetric) {
        Shape::Symmetric | Shape::Link => PartitionKind::Symmetric(a, b?),
        Shape::OneWay => PartitionKind::OneWay(a, b?),
        Shape::Isolate => PartitionKind::Isolate(*a.first()?, b.unwrap_or_else(rest)),
        Shape::MajorityMinority => PartitionKind::MajorityMinority(a, b?),
        Shape::Bridge => PartitionKind::Bridge(*a.first()?, b?, groups.get(2)?.clone()),
    })
}

/// The kinds by which machines lose their power.
const LOSE_POWER: [Kind; 2] = [Kind::PowerFailure, Kind::GroupPower];

/// What disks promise, if a machine may lose its power: by a rate or by the schedule.
pub(super) fn disk(faults: &Faults, planning: &Planning) -> Option<DiskModel> {
    let loses = |kind: &Kind| {
        let written = planning.schedule.iter().any(|entry| entry.kind == *kind);
        written || faults.kinds.is_on(*kind)
    };
    LOSE_POWER.iter().any(loses).then_some(match faults.disk {
        Disk::Ordered => DiskModel::Ordered,
        Disk::Strict => DiskModel::Strict,
    })
}
