//! Faults that are asked for at an operation of a program: whether one happens there, and what is told of it.
//!
//! Key types: [`Hazards`] (how often operations of a container's programs meet faults: nothing outside of the phase of faults),
//! [`Injected`] (one that happened). The kinds are declared in `bloodhound-faults`; what they do to files is in [`crate::disk`].
//!
//! Where an operation could be hit, its handler asks `Ctx::hazard` once, when it is clear that it would go on. With no rate in
//! force that is one branch, and no choice is made. A choice is named by the container and its life, the task by descent, the kind, and
//! how often the task was asked for that kind before: so another rate of one kind, or one fault taken out, names no other choice anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::call::Call;
use bloodhound_decisions::{Site, Word};
use bloodhound_faults::{Group, Kind};
use bloodhound_net::NodeId;
use bloodhound_vfs::{Ino, Volume};

use crate::ctx::Ctx;
use crate::ids::Pid;
use crate::node::Node;

/// Rates in parts per billion, by kind; kinds that are off are not in it.
pub type Rates = BTreeMap<Kind, u32>;

/// Operations that are hit whatever the rate: by kind, their numbers among those of the container that were asked about, from 1.
pub type Named = BTreeMap<Kind, BTreeSet<u64>>;

/// How faults of disks are about volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfVolumes {
    /// The only volumes on whose files a kind is met, by rate and by number.
    pub only: BTreeMap<Kind, BTreeSet<Volume>>,
    /// Operations that are hit whatever the rate: by kind and volume, their numbers among those on the volume's files, from 1.
    pub named: BTreeMap<(Kind, Volume), BTreeSet<u64>>,
    /// Of which kinds operations on a volume's files have numbers: where they are named, or the kind is met on the volume, in whichever container that mounts
    /// it.
    pub counted: BTreeSet<(Kind, Volume)>,
}

impl OfVolumes {
    /// Whether no fault is about a volume.
    pub fn is_empty(&self) -> bool {
        self.only.is_empty() && self.named.is_empty() && self.counted.is_empty()
    }

    /// Whether operations of a kind are named.
    fn names(&self, kind: Kind) -> bool {
        self.named.keys().any(|(named, _)| *named == kind)
    }
}

/// What is in force in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InForce {
    rates: Arc<Rates>,
    named: Arc<Named>,
    volumes: Arc<OfVolumes>,
}

impl InForce {
    /// Whether the operation of a number among those on a volume's files is one that is named.
    fn names(&self, kind: Kind, of_volume: Option<(Volume, u64)>) -> bool {
        of_volume.is_some_and(|(volume, number)| {
            self.volumes.named.get(&(kind, volume)).is_some_and(|named| named.contains(&number))
        })
    }
}

/// How often operations of a container's programs meet faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// `None`: never, and nobody asks.
    force: Option<Arc<InForce>>,
    /// Operations that were asked about since rates were in force first, by kind.
    pub asked: BTreeMap<Kind, u64>,
    /// Those of them that met a fault, by their numbers from 1: among the operations on a volume's files if the fault keeps to that.
    pub met: BTreeMap<Kind, Vec<(Option<Volume>, u64)>>,
    /// Operations on files of a volume that were asked about and have numbers there, by kind and volume.
    of_volumes: BTreeMap<(Kind, Volume), u64>,
}

impl Hazards {
    /// Puts rates in force, or none.
    pub fn set(&mut self, rates: &Arc<Rates>) {
        self.set_with(rates, &Arc::default(), &Arc::default());
    }

    /// The same, with operations that are hit besides, and volumes that faults are about.
    pub fn set_with(&mut self, rates: &Arc<Rates>, named: &Arc<Named>, volumes: &Arc<OfVolumes>) {
        let any = !rates.is_empty() || !named.is_empty() || !volumes.named.is_empty();
        let (rates, named, volumes) = (rates.clone(), named.clone(), volumes.clone());
        self.force = any.then(|| Arc::new(InForce { rates, named, volumes }));
    }

    /// Whether any are in force.
    pub fn in_force(&self) -> bool {
        self.force.is_some()
    }
}

/// That an operation meets a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The number by which the kind's choices for the operation are named.
    pub(crate) nth: u64,
    /// The volume that the fault keeps to: it was named of that, or its kind is met on volumes alone.
    pub(crate) within: Option<Volume>,
}

/// A fault that an operation of a program met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// When, in virtual time.
    pub at: SimTime,
    /// Its kind.
    pub kind: Kind,
    /// The container's name over the world.
    pub container: NodeId,
    /// Whose operation it was.
    pub pid: Pid,
    /// The name of that program.
    pub comm: Vec<u8>,
    /// The system call.
    pub call: &'static str,
    /// The path of the file, if it was about one.
    pub path: Option<Vec<u8>>,
    /// What the program is shown: `EIO`, `1024 of 4096 bytes, then EIO`.
    pub shown: String,
}

impl Node {
    /// Names the call in which faults were met.
    pub(crate) fn name_injected(&mut self, call: &Call) {
        for injected in self.injected.iter_mut().filter(|injected| injected.call.is_empty()) {
            injected.call = call.name();
        }
    }
}

impl Ctx<'_> {
    /// Whether an operation of the caller meets a fault of a kind. Health checks and scripts of properties, which are no
    /// part of the service, meet none.
    #[inline]
    pub(crate) fn hazard(&mut self, kind: Kind) -> bool {
        self.container().hazards.in_force() && self.ask(kind, None).is_some()
    }

    /// The same; if it does, the number by which the kind's choices for this operation are named.
    #[inline]
    pub(crate) fn hazard_with(&mut self, kind: Kind) -> Option<u64> {
        if self.container().hazards.in_force() { Some(self.ask(kind, None)?.nth) } else { None }
    }

    /// The same for an operation on a file.
    #[inline]
    pub(crate) fn hazard_on(&mut self, kind: Kind, ino: Ino) -> Option<u64> {
        Some(self.hit_on(kind, ino)?.nth)
    }

    /// The same, with the volume that the fault keeps to.
    #[inline]
    pub(crate) fn hit_on(&mut self, kind: Kind, ino: Ino) -> Option<Hit> {
        if self.container().hazards.in_force() { self.ask(kind, Some(ino)) } else { None }
    }

    #[cold]
    fn ask(&mut self, kind: Kind, ino: Option<Ino>) -> Option<Hit> {
        let force = self.container().hazards.force.clone()?;
        let (rate, named) = (force.rates.get(&kind), force.named.get(&kind));
        let volume =
            if force.volumes.is_empty() { None } else { ino.and_then(|ino| self.node.vfs.volume_of(ino)) };
        // What is named of a volume has a number among all operations as well, by which it can be named of the service.
        let counts = force.volumes.names(kind);
        if rate.is_none() && named.is_none() && !counts || !self.process().is_of_service() {
            return None;
        }
        let is_counted = |volume: &Volume| force.volumes.counted.contains(&(kind, *volume));
        let of_volume = volume.filter(is_counted).map(|volume| (volume, self.number_on(kind, volume)));
        let by_volume = force.names(kind, of_volume);
        let only = force.volumes.only.get(&kind);
        if !by_volume && only.is_some_and(|only| volume.is_none_or(|volume| !only.contains(&volume))) {
            return None;
        }
        let container = self.process().container;
        let hazards = &mut self.node.container_mut(container).hazards;
        let number = hazards.asked.entry(kind).or_default();
        *number += 1;
        let is_named = by_volume || named.is_some_and(|named| named.contains(number));
        let number = *number;
        let asked = self.task_mut().asked.entry(kind).or_default();
        let nth = *asked;
        *asked += 1;
        let site = self.hazard_site(kind, nth, "happens");
        let happens = self.outside.decisions.chance(site, rate.copied().unwrap_or(0)) || is_named;
        if !happens {
            return None;
        }
        let within = of_volume.filter(|_| by_volume || only.is_some());
        // What a fault does is the same either way, but for one that reaches beyond the file.
        let by_place = within.filter(|_| kind == Kind::Misdirected);
        let met = by_place.map_or((None, number), |(volume, number)| (Some(volume), number));
        self.node.container_mut(container).hazards.met.entry(kind).or_default().push(met);
        Some(Hit { nth, within: within.map(|(volume, _)| volume) })
    }

    /// The number of an operation among those of a kind on files of a volume, whoever makes them, from 1.
    fn number_on(&mut self, kind: Kind, volume: Volume) -> u64 {
        let key = (kind, volume);
        let counts =
            self.node.containers.iter().filter_map(|container| container.hazards.of_volumes.get(&key));
        let before: u64 = counts.sum();
        let container = self.process().container;
        *self.node.container_mut(container).hazards.of_volumes.entry(key).or_default() += 1;
        before + 1
    }

    /// A number below `bound` that says more about a fault.
    pub(crate) fn hazard_choice(&mut self, kind: Kind, nth: u64, part: &str, bound: u64) -> u64 {
        let site = self.hazard_site(kind, nth, part);
        self.outside.decisions.choose(site, bound)
    }

    fn hazard_site(&self, kind: Kind, nth: u64, part: &str) -> Site {
        let (container, task) = (self.container(), self.task().lineage);
        let (node, life) = (container.id.0, container.life);
        let (group, kind, part) = (kind.declaration().group, Word::new(kind.name()), Word::new(part));
        match group {
            Group::Disk => Site::DiskCall { node, life, task, kind, nth, part },
            _ => Site::Call { node, life, task, kind, nth, part },
        }
    }

    /// Tells that an operation met a fault, and what the caller is shown. The dispatcher adds the name of the call.
    pub(crate) fn met(&mut self, kind: Kind, ino: Option<Ino>, shown: impl Into<String>) {
        let path = ino.map(|ino| self.view().path_of(ino));
        let (container, pid, comm) = (self.container().id, self.pid, self.task().comm.clone());
        let (at, shown) = (self.node.clock, shown.into());
        self.node.injected.push(Injected { at, kind, container, pid, comm, call: "", path, shown });
    }
}

#[cfg(test)]
mod tests;
