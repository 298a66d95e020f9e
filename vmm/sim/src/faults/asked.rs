//! Faults that are asked for at operations of programs: the rates of a run's profile are put in force in the containers of the services
//! that may be hit, and what happened is taken from their machines.
//!
//! The kernel asks ([`bloodhound_kernel::hazards`]). Neighbours: `mod` (when rates are in force), [`crate::notice`] (what is told).

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_faults::{FaultSpec, Group, Kind};
use bloodhound_kernel::hazards::{Injected, Named, Rates};
use bloodhound_net::NodeId;
use bloodhound_vfs::Trouble;

use super::{Planning, Trigger};
use crate::machine::Machine;
use crate::notice::Notice;
use crate::world::World;

/// The operations of a service that are hit whatever the rate.
fn named(planning: &Planning, node: NodeId) -> Named {
    let mut named = Named::new();
    for entry in planning.schedule.iter().filter(|entry| entry.nodes.contains(&node)) {
        let kind = entry.kind.declaration();
        if let (Trigger::Nth(nth), true) = (&entry.trigger, kind.is_asked() && !kind.is_of_power()) {
            named.entry(entry.kind).or_default().insert(*nth);
        }
    }
    named
}

/// The rates of the kinds of a profile that are asked for, and may hit a service.
fn rates(profile: &FaultSpec, only: &BTreeMap<Kind, Vec<NodeId>>, node: NodeId) -> Rates {
    let may = |kind| only.get(&kind).is_none_or(|only| only.contains(&node));
    let asked =
        Kind::DECLARATIONS.iter().filter(|declaration| declaration.is_asked() && may(declaration.kind));
    asked
        .filter(|declaration| !declaration.is_of_power())
        .map(|declaration| (declaration.kind, profile.get(declaration.kind).rate))
        .filter(|(_, rate)| *rate > 0)
        .collect()
}

impl World {
    /// How many operations of programs were asked about, by kind.
    pub fn asked(&self) -> BTreeMap<Kind, u64> {
        let mut all = BTreeMap::new();
        for container in self.nodes.values().flat_map(|node| &node.containers) {
            for (kind, count) in &container.hazards.asked {
                *all.entry(*kind).or_default() += count;
            }
        }
        all
    }

    /// The operations of programs, questions to name servers, and power failures, that met faults: kind, whose, and their numbers among those that were
    /// asked about.
    pub fn met(&self) -> Vec<(Kind, NodeId, u64)> {
        let mut all = self.faults.questioned.clone();
        for container in self.nodes.values().flat_map(|node| &node.containers) {
            for (kind, numbers) in &container.hazards.met {
                all.extend(numbers.iter().map(|number| (*kind, container.id, *number)));
            }
        }
        all.sort();
        all
    }
}

impl Machine {
    /// Operations of programs meet faults from now on, or no more.
    pub(super) fn set_hazards(&mut self, faulty: bool) {
        let profile = self.world.faults.profile.as_ref().filter(|_| faulty);
        let profile = profile.cloned();
        let scenario = self.scenario.clone();
        for spec in scenario.services.iter().filter(|spec| spec.faulty) {
            let planning = &scenario.planning;
            let rates = profile.as_ref().map(|profile| rates(profile, &planning.only, spec.node));
            let mut rates = rates.unwrap_or_default();
            // So many disks at most may have faults, and this is none of them.
            if self.world.faults.disks.as_ref().is_some_and(|disks| !disks.contains(&spec.machine())) {
                rates.retain(|kind, _| kind.declaration().group != Group::Disk);
            }
            let named = if faulty { named(planning, spec.node) } else { Named::new() };
            let room = self.world.room(spec.node);
            let now = self.world.machine_of(spec.node).container(room.container).hazards.in_force();
            // Most runs have no such faults: no machine is touched for that.
            if now || !rates.is_empty() || !named.is_empty() {
                let container = self.world.node_mut(room.machine).container_mut(room.container);
                container.hazards.set_with(&Arc::new(rates), &Arc::new(named));
            }
        }
    }

    /// Says what is wrong with the disk of a node's machine from now on.
    pub(super) fn trouble(&mut self, id: NodeId, change: impl FnOnce(&mut Trouble)) {
        let machine = self.world.room(id).machine;
        let node = self.world.node_mut(machine);
        let mut trouble = node.vfs.trouble();
        change(&mut trouble);
        node.vfs.set_trouble(trouble);
    }

    /// The disks are whole again.
    pub(super) fn heal_disks(&mut self) {
        for node in self.world.nodes.values_mut() {
            if !node.vfs.is_whole() || node.broken != Default::default() {
                let node = Arc::make_mut(node);
                node.vfs.heal();
                node.broken.heal();
            }
        }
    }

    /// Puts faults that operations met into the timeline, and counts them.
    pub(crate) fn tell_injected(&mut self, injected: Vec<Injected>) {
        for met in injected {
            *self.world.faults.hits.entry(met.kind).or_default() += 1;
            self.note_at(met.at, Some(met.container), Notice::Injected(Box::new(met)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scheduled, What};
    use super::*;

    #[test]
    fn only_kinds_that_are_asked_for_have_rates_in_containers() {
        let spec = FaultSpec::default()
            .with_rate(Kind::Drop, 5)
            .with_rate(Kind::Crash, 6)
            .with_rate(Kind::FsyncFail, 7);
        let all = BTreeMap::new();
        assert_eq!(rates(&spec, &all, NodeId(1)), Rates::from([(Kind::FsyncFail, 7)]));
        assert!(rates(&FaultSpec::default(), &all, NodeId(1)).is_empty());
    }

    #[test]
    fn a_kind_has_a_rate_where_it_may_hit() {
        let spec = FaultSpec::default().with_rate(Kind::FsyncFail, 7).with_rate(Kind::Enfile, 8);
        let only = BTreeMap::from([(Kind::FsyncFail, vec![NodeId(2)])]);
        assert_eq!(rates(&spec, &only, NodeId(1)), Rates::from([(Kind::Enfile, 8)]));
        assert_eq!(rates(&spec, &only, NodeId(2)).len(), 2);
    }

    #[test]
    fn what_is_written_for_power_failures_is_not_about_operations() {
        let of = |kind, nth| Scheduled {
            trigger: Trigger::Nth(nth),
            kind,
            nodes: vec![NodeId(1)],
            what: What::Drawn,
            duration: None,
            most: None,
        };
        let schedule = vec![of(Kind::VanishedFile, 2), of(Kind::FsyncFail, 3)];
        let planning = Planning { schedule, ..Planning::default() };
        assert_eq!(named(&planning, NodeId(1)).into_keys().collect::<Vec<_>>(), [Kind::FsyncFail]);
        assert!(planning.is_written(Kind::VanishedFile, NodeId(1), 2));
        assert!(!planning.is_written(Kind::VanishedFile, NodeId(1), 3));
        assert!(!planning.is_written(Kind::VanishedFile, NodeId(2), 2));
    }
}
