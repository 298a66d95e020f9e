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
use bloodhound_vfs::Ino;

use crate::ctx::Ctx;
use crate::ids::Pid;
use crate::node::Node;

/// Rates in parts per billion, by kind; kinds that are off are not in it.
pub type Rates = BTreeMap<Kind, u32>;

/// Operations that are hit whatever the rate: by kind, their numbers among those of the container that were asked about, from 1.
pub type Named = BTreeMap<Kind, BTreeSet<u64>>;

/// What is in force in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InForce {
    rates: Arc<Rates>,
    named: Arc<Named>,
}

/// How often operations of a container's programs meet faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// `None`: never, and nobody asks.
    force: Option<Arc<InForce>>,
    /// Operations that were asked about since rates were in force first, by kind.
    pub asked: BTreeMap<Kind, u64>,
    /// Those of them that met a fault, by their numbers from 1.
    pub met: BTreeMap<Kind, Vec<u64>>,
}

impl Hazards {
    /// Puts rates in force, or none.
    pub fn set(&mut self, rates: &Arc<Rates>) {
        self.set_with(rates, &Arc::default());
    }

    /// The same, with operations that are hit besides.
    pub fn set_with(&mut self, rates: &Arc<Rates>, named: &Arc<Named>) {
        let any = !rates.is_empty() || !named.is_empty();
        self.force = any.then(|| Arc::new(InForce { rates: rates.clone(), named: named.clone() }));
    }

    /// Whether any are in force.
    pub fn in_force(&self) -> bool {
        self.force.is_some()
    }
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
        self.container().hazards.in_force() && self.ask(kind).is_some()
    }

    /// The same; if it does, the number by which the kind's choices for this operation are named.
    #[inline]
    pub(crate) fn hazard_with(&mut self, kind: Kind) -> Option<u64> {
        if self.container().hazards.in_force() { self.ask(kind) } else { None }
    }

    #[cold]
    fn ask(&mut self, kind: Kind) -> Option<u64> {
        let force = self.container().hazards.force.clone()?;
        let (rate, named) = (force.rates.get(&kind), force.named.get(&kind));
        if rate.is_none() && named.is_none() || !self.process().is_of_service() {
            return None;
        }
        let container = self.process().container;
        let hazards = &mut self.node.container_mut(container).hazards;
        let number = hazards.asked.entry(kind).or_default();
        *number += 1;
        let is_named = named.is_some_and(|named| named.contains(number));
        let number = *number;
        let asked = self.task_mut().asked.entry(kind).or_default();
        let nth = *asked;
        *asked += 1;
        let site = self.hazard_site(kind, nth, "happens");
        let happens = self.outside.decisions.chance(site, rate.copied().unwrap_or(0)) || is_named;
        if happens {
            self.node.container_mut(container).hazards.met.entry(kind).or_default().push(number);
        }
        happens.then_some(nth)
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
