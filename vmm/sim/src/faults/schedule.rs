//! Entries of the plan that are written by hand: each begins at a time, or when something happens in the run that it waits for.
//!
//! Key type: [`Scheduled`] (an entry as it is written). What an entry does not say is drawn as for any other, by a name of its own
//! (`FaultId::written`). Times, lines and calls count from when faults can begin. Neighbours: `plan` has the drawn entries, `triggers` those that
//! wait; those that are about single operations are put in force where such faults are (`asked`, `names`).

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use bloodhound_faults::{Begins, Kind, Setting, Shape};
use bloodhound_net::{NodeId, PartitionKind, Routed};
use bloodhound_vfs::Volume;

use super::planning::{Grouped, targets};
use super::triggers::{Trigger, Waiting};
use super::{Draw, Fault, FaultId, KEPT, Partition, Phases, Planned, Window};
use crate::machine::Machine;
use crate::scenario::Scenario;

/// An entry as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When it begins.
    pub trigger: Trigger,
    /// What happens.
    pub kind: Kind,
    /// The node that it hits, for kinds that hit one; the members for kinds that hit a group; else those among which it is drawn, or none for
    /// all.
    pub nodes: Vec<NodeId>,
    /// What is said of its parameters.
    pub what: What,
    /// How long it lasts, ns; `None`: drawn, as configured.
    pub duration: Option<u64>,
    /// How much at most, ns, for kinds that stand for the whole phase and for answers of name servers; `None`: as configured.
    pub most: Option<u64>,
    /// The volume that a fault of disks is about; the nodes are those that mount it.
    pub volume: Option<Volume>,
}

/// What an entry says of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing: they are drawn, as configured.
    Drawn,
    /// They are those that a seed drew for an entry of its plan.
    As(u64, FaultId),
    /// The shape of a partition, whose groups are drawn.
    Shape(Shape),
    /// A partition.
    Cut(PartitionKind),
    /// How strong it is for the links from some nodes to others; none: all nodes.
    Links(Box<Setting>, Vec<NodeId>, Vec<NodeId>),
}

/// The entries that have a time, in no order, and those that wait.
pub(super) fn written(
    scenario: &Scenario,
    phases: Phases,
    decisions: &mut Decisions,
) -> (Vec<Planned>, Vec<Waiting>) {
    let (mut plan, mut waiting) = (Vec::new(), Vec::new());
    for (place, scheduled) in scenario.planning.schedule.iter().enumerate() {
        if let Trigger::Nth(_) = scheduled.trigger {
            continue;
        }
        let Some(mut entry) = scheduled.entry(place, scenario, decisions) else { continue };
        if decisions.said(entry.id.site("begins"), KEPT) == Some(0) {
            continue;
        }
        match &scheduled.trigger {
            Trigger::At(ns) => {
                entry.begin = phases.begin.after(*ns);
                plan.push(entry);
            }
            trigger => waiting.push(Waiting::new(trigger, entry)),
        }
    }
    (plan, waiting)
}

impl Scheduled {
    /// The name of the entry; `place` is its own in the schedule.
    pub fn id(&self, place: usize) -> FaultId {
        let by_node = self.kind.declaration().has_target();
        let target = self.nodes.first().filter(|_| by_node).map_or(0, |node| node.0);
        FaultId::written(self.kind, target, place)
    }

    /// The entry of the plan, as yet without its time. `None`: there is nothing that it could hit.
    fn entry(&self, place: usize, scenario: &Scenario, decisions: &mut Decisions) -> Option<Planned> {
        let id = self.id(place);
        let mut setting = scenario.faults.get(self.kind).clone();
        if let What::Shape(shape) = self.what {
            setting.shapes = vec![shape];
        }
        if let Some(most) = self.most {
            setting.time = (most, most);
        }
        let (_, stacks, _) = targets(scenario);
        let nodes = if self.nodes.is_empty() { &stacks } else { &self.nodes };
        let group = self.kind.declaration().has_group().then(|| {
            let named = scenario.planning.groups.iter().find(|group| group.nodes == *nodes);
            Grouped::new(0, named.map_or("", |group| &group.name), nodes, scenario)
        });
        let group = group.as_ref();
        let disks = [self.volume.and_then(|volume| scenario.planning.named(volume))];
        let (setting, disks) = (&setting, &disks[..]);
        let mut draw = Draw { id, setting, targets: nodes, group, disks, decisions: &mut *decisions };
        let duration = match self.duration {
            Some(ns) => ns,
            // The time of such a kind is no duration: it lasts until the heal.
            None if self.kind.declaration().begins == Begins::Standing => 0,
            None => draw.duration(),
        };
        let fault = match &self.what {
            What::Drawn | What::Shape(_) => Fault::draw(self.kind, &mut draw)?,
            What::As(seed, as_id) => {
                let mut decisions = Decisions::seeded(*seed);
                let decisions = &mut decisions;
                let mut draw = Draw { id: *as_id, setting, targets: nodes, group, disks, decisions };
                Fault::draw(self.kind, &mut draw)?
            }
            What::Cut(cut) => Fault::Partition(Partition { cut: cut.clone() }),
            What::Links(setting, from, to) => Fault::Window(Window {
                kind: self.kind,
                setting: (**setting).clone(),
                from: from.clone(),
                to: to.clone(),
            }),
        };
        Some(Planned { id, begin: SimTime::default(), duration, fault })
    }
}

impl Machine {
    /// Counts what links did to a packet.
    pub(crate) fn count_packet(&mut self, from: NodeId, routed: &Routed) {
        use bloodhound_net::DropReason;
        let faults = &mut self.world.faults;
        let mut count = |kind| *faults.hits.entry(kind).or_insert(0) += 1;
        if let Some(first) = &routed.first {
            let (link, plain) = (self.world.fabric.link(from, first.to), &self.scenario.link);
            for (differs, kind) in [
                (link.latency != plain.latency, Kind::Latency),
                (link.jitter != plain.jitter, Kind::Jitter),
                (link.bandwidth != plain.bandwidth, Kind::Bandwidth),
            ] {
                if differs {
                    count(kind);
                }
            }
        }
        match routed.dropped {
            None if routed.mishaps == Default::default() && routed.second.is_none() => return,
            Some(DropReason::Loss) => count(Kind::Drop),
            Some(DropReason::Corrupt) => count(Kind::Corrupt),
            _ => {}
        }
        if routed.mishaps.delay > 0 {
            count(Kind::Delay);
        }
        if routed.mishaps.reordered > 0 {
            count(Kind::Reorder);
        }
        if routed.mishaps.changed > 0 {
            count(Kind::CorruptPass);
        }
        if routed.mishaps.damaged {
            count(Kind::BadChecksum);
        }
        if routed.second.is_some() {
            count(Kind::Duplicate);
        }
        if let Some(DropReason::Partition(id)) = routed.dropped {
            let entry = faults.partitions.iter().find(|(_, partition)| **partition == id);
            if let Some((entry, _)) = entry {
                *faults.stopped.entry(*entry).or_insert(0) += 1;
            }
        }
    }
}
