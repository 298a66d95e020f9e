//! What bloodhound.yaml says of the plan of faults beside rates: schedule, budget, quiet periods and targets, with nodes in the place of names.

use bloodhound_config::Located;
use bloodhound_config::config::{DownBudget, FaultOn, FaultTrigger, Faults, ScheduledFault};
use bloodhound_config::tree::Source;
use bloodhound_faults::{Begins, Disk, Group, Kind, Setting, Shape};
use bloodhound_net::{NodeId, PartitionKind};
use bloodhound_sim::faults::{Down, FaultId, Limits, Planning, Scheduled, Trigger, What};
use bloodhound_sim::scenario::ServiceSpec;
use bloodhound_vfs::DiskModel;

use super::{Planner, Refusal};

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
        };
        let mut schedule = Vec::new();
        for entry in &faults.schedule {
            match self.scheduled(entry, services) {
                Ok(entries) => schedule.extend(entries),
                Err(refusal) => refused.push(refusal),
            }
        }
        let only = faults.targets.iter().map(|(kind, names)| (*kind, nodes(names))).collect();
        Planning { schedule, limits, only }
    }

    /// An entry of the schedule: one for each node, if its kind hits single nodes.
    fn scheduled(&self, entry: &ScheduledFault, services: &[ServiceSpec]) -> Result<Vec<Scheduled>, Refusal> {
        let trigger = self.trigger(&entry.trigger)?;
        let by_node = entry.kind.declaration().has_target();
        let stacks = |names: &[Located<String>]| stacks(self.nodes_named(names), services);
        // What happens to packets happens to those who have a network stack of their own.
        let of_node = by_node && entry.kind.declaration().group != Group::Network;
        let nodes = if of_node { self.nodes_named(&entry.services) } else { stacks(&entry.services) };
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
        let what = if entry.kind.declaration().begins == Begins::Link {
            let mut setting: Setting = self.project.config.faults.kinds.get(entry.kind).clone();
            setting.rate = entry.rate.map_or(setting.rate, |rate| rate.get());
            setting.time = entry.time_ns.map_or(setting.time, |ns| (ns, ns));
            setting.number = entry.kbit.unwrap_or(setting.number);
            What::Links(Box::new(setting), stacks(&entry.from), stacks(&entry.to))
        } else if let Some(cut) = cut(entry.shape, &groups, &all) {
            What::Cut(cut)
        } else if let Some((seed, nth)) = entry.drawn {
            let target = nodes.first().filter(|_| by_node).map_or(0, |node| node.0);
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
            most: entry.time_ns.filter(|_| entry.kind.declaration().begins == Begins::Standing),
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
            FaultTrigger::On { what, service, nth, after_ns } => (what, service, *nth, *after_ns),
        };
        let source = self.schedule_source();
        let nodes = self.nodes_named(std::slice::from_ref(service));
        let [node] = nodes[..] else {
            let text = format!("`{}` has {} replicas: name one of them", service.value, nodes.len());
            return Err(Refusal::from(text).at(service.place(source)));
        };
        Ok(match what {
            FaultOn::Log(text) => Trigger::Line { node, text: text.clone(), nth, after },
            FaultOn::Call(call) => {
                if !bloodhound_abi::table::TABLE.iter().any(|info| info.name == call.value) {
                    let text = format!("`{}` is no system call of Linux", call.value);
                    return Err(Refusal::from(text).at(call.place(source)));
                }
                Trigger::Call { node, call: call.value.clone(), nth, after }
            }
        })
    }

    /// The nodes of services, and of single replicas, in the order of their names, each once.
    fn nodes_named(&self, names: &[Located<String>]) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for name in names {
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

/// What disks promise, if a machine may lose its power: by a rate or by the schedule.
pub(super) fn disk(faults: &Faults, planning: &Planning) -> Option<DiskModel> {
    let written = planning.schedule.iter().any(|entry| entry.kind == Kind::PowerFailure);
    (written || faults.kinds.is_on(Kind::PowerFailure)).then_some(match faults.disk {
        Disk::Ordered => DiskModel::Ordered,
        Disk::Strict => DiskModel::Strict,
    })
}
