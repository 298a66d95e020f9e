//! A power failure: a machine with all its containers is gone at once, and nobody is told. Its disk keeps what was synced and a part of the
//! rest; its services start again at the end.
//!
//! What is lost is `bloodhound_vfs`' to choose ([`bloodhound_vfs::Aspect`]), under names that are made here. Unlike a crash it
//! closes no connection: peers hear nothing, and a reset when they speak to the machine that has started again.

use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::{NodeRandom, PowerPart, Site};
use bloodhound_faults::Kind;
use bloodhound_kernel::node::{MachineId, Reboot};
use bloodhound_net::{NodeId, Stack};
use bloodhound_vfs::{Aspect, PowerReport, Volume};

use super::disk_quota::place;
use super::{Draw, FaultId, Names, Planning, Room, Single};
use crate::machine::Machine;
use crate::notice::{Notice, Target};
use crate::record::Parts;
use crate::services::State;
use crate::world::FindingKind;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerFailure {
    /// The first service of the machine that faults may hit.
    pub node: NodeId,
}

/// Failures of groups have numbers from here on.
const OF_GROUPS: u64 = 1 << 62;

/// A machine without power.
#[derive(Clone, Debug)]
pub(super) struct Dark {
    /// The entry that took it.
    entry: usize,
    /// The services that fell with it. Others that are down by then have a time of their own.
    fell: Vec<NodeId>,
}

impl Room for PowerFailure {
    fn draw(draw: &mut Draw<'_>) -> Option<PowerFailure> {
        Some(PowerFailure { node: draw.node()? })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        hindrance(machine, self.node)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("power failure of the machine of {}, power again after {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        take(machine, self.node, entry);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        give_back(machine, self.node, entry);
        // The start is told.
        false
    }
}

/// Why the machine of a service cannot lose its power.
pub(super) fn hindrance(machine: &Machine, node: NodeId) -> Option<&'static str> {
    let id = machine.world.room(node).machine;
    if machine.world.faults.is_dark(id) {
        return Some("its machine has no power already");
    }
    let runs = |node: &NodeId| machine.not_running(*node).is_none();
    let any = services_on(machine, id).iter().any(runs);
    (!any).then_some("no service runs on its machine")
}

/// The machine of a service loses its power, by an entry of the plan.
pub(super) fn take(machine: &mut Machine, node: NodeId, entry: usize) {
    let id = fall(machine, node, entry);
    match lose_power(machine, id, entry) {
        Ok(report) => {
            machine.note(Some(node), Notice::Survived(report));
            lose_a_file(machine, id, node, entry);
        }
        Err(e) => {
            let text = format!("what is left after a power failure cannot be made: {e}");
            machine.find(FindingKind::Unsupported, Some(node), text);
        }
    }
    machine.forget_dead(id);
    machine.node_changed(id);
}

/// The same, and its disk is lost with it: another machine with an empty one takes its place.
pub(super) fn take_for_good(machine: &mut Machine, node: NodeId, entry: usize) {
    let machine_id = machine.world.room(node).machine;
    for service in services_on(machine, machine_id) {
        machine.keep_files(service);
    }
    let id = fall(machine, node, entry);
    let scenario = machine.scenario.clone();
    let epoch_ns = machine.world.nodes[&id].config.epoch_ns;
    let versions = machine.world.services.iter().map(|(node, service)| (*node, service.version)).collect();
    let reboot = reboot(machine, id);
    let Parts { node: of_machine, base, decisions, mut record, .. } = machine.parts(id);
    match crate::setup::file_systems_of(&scenario, (id, &versions), epoch_ns, base, decisions) {
        Ok(file_systems) => of_machine.replace(reboot, file_systems, &mut record),
        Err(e) => {
            let text = format!("an empty disk cannot be made: {e}");
            machine.find(FindingKind::Unsupported, Some(node), text);
        }
    }
    machine.forget_dead(id);
    machine.node_changed(id);
}

/// All services on the machine of a service are gone, and nobody is told. Returns the machine.
fn fall(machine: &mut Machine, node: NodeId, entry: usize) -> MachineId {
    let id = machine.world.room(node).machine;
    machine.world.catch_up(id);
    // A machine that stood still does not go on.
    machine.world.paused.remove(&id);
    machine.world.faults.pauses.remove(&id);
    let mut fell = Vec::new();
    for node in services_on(machine, id) {
        if let Some(service) = machine.world.services.get_mut(&node)
            && matches!(service.state, State::Running(_) | State::Stopping(_))
        {
            service.crash();
            fell.push(node);
        }
        machine.world.fabric.set_down(node, true);
    }
    machine.world.faults.dark.insert(id, Dark { entry, fell });
    id
}

/// The machine of a service has power again, if this entry has taken it: the services that fell start.
pub(super) fn give_back(machine: &mut Machine, node: NodeId, entry: usize) {
    let id = machine.world.room(node).machine;
    if machine.world.faults.dark.get(&id).is_none_or(|dark| dark.entry != entry) {
        return;
    }
    for node in has_power(machine, id) {
        if machine.world.services.get(&node).is_some_and(|service| service.state == State::Crashed) {
            machine.start_service(node);
        }
    }
}

/// The services of a machine.
fn services_on(machine: &Machine, id: MachineId) -> Vec<NodeId> {
    machine.scenario.services.iter().filter(|spec| spec.machine() == id).map(|spec| spec.node).collect()
}

/// A machine has power again. Returns the services that fell when it lost it.
fn has_power(machine: &mut Machine, id: MachineId) -> Vec<NodeId> {
    for node in services_on(machine, id) {
        machine.world.fabric.set_down(node, false);
    }
    machine.world.faults.dark.remove(&id).map(|dark| dark.fell).unwrap_or_default()
}

/// Everything is healed.
pub(super) fn all_have_power(machine: &mut Machine) {
    let dark: Vec<MachineId> = machine.world.faults.dark.keys().copied().collect();
    for id in dark {
        has_power(machine, id);
    }
}

/// Takes what a machine has in memory, and what its disk loses.
fn lose_power(machine: &mut Machine, id: MachineId, entry: usize) -> Result<PowerReport, Errno> {
    let failure = failure(machine, entry);
    let (reboot, now) = (reboot(machine, id), machine.world.now);
    let Parts { node, base, decisions, mut record, .. } = machine.parts(id);
    let mut choose = |nth: u64, aspect: Aspect, bound: u64| {
        let part = match aspect {
            Aspect::Cut => PowerPart::Cut,
            Aspect::Keep => PowerPart::Keep,
            Aspect::Fate => PowerPart::Fate,
            Aspect::Point => PowerPart::Point,
            Aspect::Side => PowerPart::Side,
        };
        decisions.choose(Site::Power { machine: id.0, failure, nth, part }, bound)
    };
    node.lose_power(reboot, now, base, &mut choose, &mut record)
}

/// After a power failure a file of the service is gone, if that is asked for and drawn, or written for this failure of its machine
/// (`vanished-file`). Where services are named that the kind may hit, it is one of the first of these on the machine.
fn lose_a_file(machine: &mut Machine, on: MachineId, first: NodeId, entry: usize) {
    let rate = machine.world.faults.profile.as_ref().map_or(0, |all| all.get(Kind::VanishedFile).rate);
    let number = machine.world.faults.failures.entry(on).or_default();
    *number += 1;
    let number = *number;
    let services = services_on(machine, on);
    let planning = &machine.scenario.planning;
    let written = vanishes(planning, &services, number);
    let drawn = may_vanish(planning, &services, first);
    let Some((service, volume)) = written.or(drawn.filter(|_| rate > 0)) else { return };
    let id = FaultId { kind: Kind::VanishedFile, target: service.0, nth: failure(machine, entry) };
    let (at, mounts) = place(machine, service);
    let Parts { node, decisions, .. } = machine.parts(at);
    let files = node.vfs.vanishable(mounts, volume);
    let happens = decisions.chance(id.site("happens"), rate) || written.is_some();
    if !happens || files == 0 {
        return;
    }
    let which = decisions.choose(id.site("file"), files);
    if let Some(path) = node.vfs.vanish((mounts, volume), which) {
        let faults = &mut machine.world.faults;
        *faults.hits.entry(Kind::VanishedFile).or_default() += 1;
        let met = Single { kind: Kind::VanishedFile, node: service, volume, nth: number };
        faults.questioned.push(met);
        machine.note(Some(service), Notice::Target(Target::File(path)));
    }
}

/// Of which service, or volume that it mounts, a file is written to vanish at the failure of its machine of this number.
fn vanishes(planning: &Planning, services: &[NodeId], number: u64) -> Option<(NodeId, Option<Volume>)> {
    let is_written = |node: &&NodeId| planning.is_written(Kind::VanishedFile, **node, number);
    let of_service = services.iter().find(is_written).map(|node| (*node, None));
    let volumes = planning.written(Kind::VanishedFile, number).filter_map(|entry| entry.volume);
    of_service.or_else(|| mounted(planning, services, volumes))
}

/// Of which one a file may vanish: where services or volumes are named that the kind may hit, one of these on the machine.
fn may_vanish(planning: &Planning, services: &[NodeId], first: NodeId) -> Option<(NodeId, Option<Volume>)> {
    let only = planning.only.get(&Kind::VanishedFile);
    let of_service = || services.iter().find(|node| only.is_some_and(|only| only.contains(node)));
    match planning.only_volumes.get(&Kind::VanishedFile) {
        None if only.is_none() => Some((first, None)),
        volumes => {
            let volumes = volumes.into_iter().flatten().copied();
            of_service().map(|node| (*node, None)).or_else(|| mounted(planning, services, volumes))
        }
    }
}

/// The first of some volumes that one of these services mounts.
fn mounted(
    planning: &Planning,
    services: &[NodeId],
    mut volumes: impl Iterator<Item = Volume>,
) -> Option<(NodeId, Option<Volume>)> {
    volumes.find_map(|volume| {
        let node = services.iter().find(|node| planning.mounts(**node, volume))?;
        Some((*node, Some(volume)))
    })
}

/// By which number the choices about a failure are named: that of the entry, or of the one as which it is written, so that what survives is the
/// same in a run of saved faults. Failures of groups have numbers of their own.
fn failure(machine: &Machine, entry: usize) -> u64 {
    let Some(planned) = machine.world.faults.plan.get(entry) else { return 0 };
    let id = machine.scenario.planning.drawn_as(planned.id);
    match id.kind {
        Kind::GroupPower if !id.is_written() => OF_GROUPS | (u64::from(id.target) << 32 ^ id.nth),
        _ => id.nth,
    }
}

/// What the machine begins its next life with.
fn reboot(machine: &mut Machine, id: MachineId) -> Reboot {
    let containers = &machine.world.nodes[&id].containers;
    // The first container with a stack is the one that it was made for.
    let owners: Vec<(NodeId, u32)> = (0..machine.world.nodes[&id].net.len())
        .filter_map(|at| containers.iter().find(|container| container.net.0 as usize == at))
        .map(|container| (container.id, container.life + 1))
        .collect();
    let (first, life) = containers.first().map_or((NodeId(id.0), 1), |first| (first.id, first.life + 1));
    let stacks: Vec<Stack> = owners
        .into_iter()
        .filter_map(|(owner, life)| {
            let spec = machine.spec(owner)?;
            Some(crate::setup::stack(&spec, life, &mut machine.world.decisions))
        })
        .collect();
    let boot_id = [0, 1].map(|nth| {
        let site = Site::NodeRandom { node: first.0, life, part: NodeRandom::BootId, nth };
        machine.world.decisions.word(site)
    });
    Reboot { stacks, boot_id }
}
