//! Faults that are asked for at operations of programs: the rates of a run's profile are put in force in the containers of the services
//! that may be hit, and what happened is taken from their machines.
//!
//! The kernel asks ([`bloodhound_kernel::hazards`]). Neighbours: `mod` (when rates are in force), [`crate::notice`] (what is told).

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_faults::{FaultSpec, Group, Kind};
use bloodhound_kernel::hazards::{Injected, Named, OfVolumes, Rates};
use bloodhound_net::NodeId;

use super::{Planning, Scheduled, Single, Trigger};
use crate::machine::Machine;
use crate::notice::Notice;
use crate::world::World;

/// The operations of a service that are hit whatever the rate.
fn named(planning: &Planning, node: NodeId) -> Named {
    let mut named = Named::new();
    let of_service = |entry: &&Scheduled| entry.volume.is_none() && entry.nodes.contains(&node);
    for entry in planning.schedule.iter().filter(of_service) {
        let kind = entry.kind.declaration();
        if let (Trigger::Nth(nth), true) = (&entry.trigger, kind.is_asked() && !kind.is_of_power()) {
            named.entry(entry.kind).or_default().insert(*nth);
        }
    }
    named
}

/// How faults of disks that a service's operations meet are about volumes.
fn of_volumes(planning: &Planning, node: NodeId) -> OfVolumes {
    let mut of = OfVolumes::default();
    for (kind, volumes) in &planning.only_volumes {
        let mounted = volumes.iter().filter(|volume| planning.mounts(node, **volume));
        of.counted.extend(mounted.map(|volume| (*kind, *volume)));
        if !planning.only.get(kind).is_some_and(|only| only.contains(&node)) {
            of.only.insert(*kind, volumes.iter().copied().collect());
        }
    }
    for entry in planning.schedule.iter().filter(|entry| !entry.kind.declaration().is_of_power()) {
        if let (Trigger::Nth(nth), Some(volume)) = (&entry.trigger, entry.volume)
            && planning.mounts(node, volume)
        {
            of.named.entry((entry.kind, volume)).or_default().insert(*nth);
            of.counted.insert((entry.kind, volume));
        }
    }
    of
}

/// The rates of the kinds of a profile that are asked for, and may hit a service.
fn rates(profile: &FaultSpec, planning: &Planning, node: NodeId) -> Rates {
    let may = |kind| {
        let named = planning.only.get(&kind).map(|only| only.contains(&node));
        match planning.only_volumes.get(&kind) {
            None => named.unwrap_or(true),
            Some(volumes) => {
                named == Some(true) || volumes.iter().any(|volume| planning.mounts(node, *volume))
            }
        }
    };
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

    /// The operations of programs, questions to name servers, and power failures, that met faults.
    pub fn met(&self) -> Vec<Single> {
        let mut all = self.faults.questioned.clone();
        for container in self.nodes.values().flat_map(|node| &node.containers) {
            let node = container.id;
            for (kind, met) in &container.hazards.met {
                let one = |(volume, nth): &(_, u64)| Single { kind: *kind, node, volume: *volume, nth: *nth };
                all.extend(met.iter().map(one));
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
            let rates = profile.as_ref().map(|profile| rates(profile, planning, spec.node));
            let mut rates = rates.unwrap_or_default();
            // So many disks at most may have faults, and this is none of them.
            if self.world.faults.disks.as_ref().is_some_and(|disks| !disks.contains(&spec.machine())) {
                rates.retain(|kind, _| kind.declaration().group != Group::Disk);
            }
            let (named, volumes) = match faulty {
                true => (named(planning, spec.node), of_volumes(planning, spec.node)),
                false => Default::default(),
            };
            let room = self.world.room(spec.node);
            let now = self.world.machine_of(spec.node).container(room.container).hazards.in_force();
            // Most runs have no such faults: no machine is touched for that.
            if now || !rates.is_empty() || !named.is_empty() || !volumes.named.is_empty() {
                let container = self.world.node_mut(room.machine).container_mut(room.container);
                container.hazards.set_with(&Arc::new(rates), &Arc::new(named), &Arc::new(volumes));
            }
        }
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
    use super::super::{VolumePlaces, What};
    use super::*;
    use bloodhound_vfs::Volume;

    #[test]
    fn only_kinds_that_are_asked_for_have_rates_in_containers() {
        let spec = FaultSpec::default()
            .with_rate(Kind::Drop, 5)
            .with_rate(Kind::Crash, 6)
            .with_rate(Kind::FsyncFail, 7);
        let all = Planning::default();
        assert_eq!(rates(&spec, &all, NodeId(1)), Rates::from([(Kind::FsyncFail, 7)]));
        assert!(rates(&FaultSpec::default(), &all, NodeId(1)).is_empty());
    }

    #[test]
    fn a_kind_has_a_rate_where_it_may_hit() {
        let spec = FaultSpec::default().with_rate(Kind::FsyncFail, 7).with_rate(Kind::Enfile, 8);
        let only =
            Planning { only: BTreeMap::from([(Kind::FsyncFail, vec![NodeId(2)])]), ..Planning::default() };
        assert_eq!(rates(&spec, &only, NodeId(1)), Rates::from([(Kind::Enfile, 8)]));
        assert_eq!(rates(&spec, &only, NodeId(2)).len(), 2);
    }

    /// Whoever mounts a volume that a kind may hit meets it there alone, unless the service is named as well.
    #[test]
    fn a_kind_that_is_about_a_volume_has_a_rate_where_that_is_mounted() {
        let spec = FaultSpec::default().with_rate(Kind::FsyncFail, 7).with_rate(Kind::WriteFail, 8);
        let places = vec![(NodeId(1), b"/data".to_vec()), (NodeId(2), b"/srv".to_vec())];
        let entry = Scheduled {
            trigger: Trigger::Nth(5),
            kind: Kind::ReadFail,
            nodes: vec![NodeId(1)],
            what: What::Drawn,
            duration: None,
            most: None,
            volume: Some(Volume(0)),
        };
        let planning = Planning {
            volumes: vec![VolumePlaces { name: "data".into(), places }],
            only: BTreeMap::from([(Kind::FsyncFail, vec![NodeId(2)])]),
            only_volumes: BTreeMap::from([(Kind::FsyncFail, vec![Volume(0)])]),
            schedule: vec![entry],
            ..Planning::default()
        };
        let rates = |node| rates(&spec, &planning, NodeId(node)).into_keys().collect::<Vec<_>>();
        assert_eq!([1, 2, 3].map(|node| rates(node).contains(&Kind::FsyncFail)), [true, true, false]);
        assert_eq!([1, 2, 3].map(|node| rates(node).contains(&Kind::WriteFail)), [true; 3]);
        let of = |node| of_volumes(&planning, NodeId(node));
        assert_eq!([1, 2].map(|node| of(node).only.contains_key(&Kind::FsyncFail)), [true, false]);
        let named = |node| of(node).named.into_keys().collect::<Vec<_>>();
        assert_eq!([1, 2].map(named), [[(Kind::ReadFail, Volume(0))]; 2]);
        assert!(named(3).is_empty() && self::named(&planning, NodeId(1)).is_empty());
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
            volume: None,
        };
        let schedule = vec![of(Kind::VanishedFile, 2), of(Kind::FsyncFail, 3)];
        let planning = Planning { schedule, ..Planning::default() };
        assert_eq!(named(&planning, NodeId(1)).into_keys().collect::<Vec<_>>(), [Kind::FsyncFail]);
        assert!(planning.is_written(Kind::VanishedFile, NodeId(1), 2));
        assert!(!planning.is_written(Kind::VanishedFile, NodeId(1), 3));
        assert!(!planning.is_written(Kind::VanishedFile, NodeId(2), 2));
    }
}
