//! How faults end: each with its own entry of the plan, whatever other faults did to its target meanwhile.

use bloodhound_sim::faults::{Scheduled, Trigger, What};

use super::*;

/// A run of entries that are written by hand, each with its time, kind, node and duration in ms; and when it began. The first two nodes are
/// on one machine.
fn scheduled(entries: &[(u64, Kind, u32, u64)]) -> (SimTime, Machine) {
    let mut scenario = Scenario::clone(&scenario(FaultSpec::default()));
    let entry = |(at, kind, node, duration): &(u64, Kind, u32, u64)| Scheduled {
        trigger: Trigger::At(at * MS),
        kind: *kind,
        nodes: vec![NodeId(*node)],
        what: What::Drawn,
        duration: Some(duration * MS),
        most: None,
        volume: None,
    };
    scenario.services[1].sharing = Sharing { machine: Some(NodeId(1)), ..Sharing::default() };
    scenario.planning.schedule = entries.iter().map(entry).collect();
    let mut machine = machine_of(Arc::new(scenario), Box::new(platform()), TestModes::default());
    boot(&mut machine);
    let begin = machine.world.now;
    run_seed(&mut machine, SEEDS[0]);
    assert!(machine.world.faults.effects.iter().all(|effect| *effect == Effect::Begun));
    assert_eq!(machine.world.faults.effects.len(), entries.len());
    (begin, machine)
}

/// When what is told of a node happened, ms after the beginning.
fn times(begin: SimTime, machine: &Machine, node: u32, wanted: impl Fn(&Notice) -> bool) -> Vec<u64> {
    let log = machine.world.log.iter();
    let of_node =
        log.filter(|entry| entry.node == Some(NodeId(node)) && entry.at >= begin && wanted(&entry.what));
    of_node.map(|entry| entry.at.since(begin) / MS).collect()
}

#[test]
fn the_end_of_a_fault_that_is_over_ends_no_other() {
    let entries = [(10, Kind::Pause, 1, 90), (20, Kind::PowerFailure, 1, 10), (40, Kind::Pause, 1, 160)];
    let (begin, machine) = scheduled(&entries);
    let ends = times(begin, &machine, 1, |n| matches!(n, Notice::FaultEnd(id) if id.kind == Kind::Pause));
    assert_eq!(ends, [200], "the power failure has ended the first one");
}

#[test]
fn a_power_failure_starts_nobody_who_was_down_before() {
    let (begin, machine) = scheduled(&[(10, Kind::Crash, 1, 200), (20, Kind::PowerFailure, 2, 15)]);
    let starts =
        |node| times(begin, &machine, node, |n| matches!(n, Notice::Service(ServiceChange::Started)));
    assert_eq!((starts(1), starts(2)), (vec![210], vec![35]));
}

#[test]
fn without_a_heal_operations_meet_no_new_faults() {
    let mut scenario = Scenario::clone(&scenario(FaultSpec::default().with_rate(Kind::FsyncFail, 1_000)));
    scenario.heal = false;
    let mut machine = machine_of(Arc::new(scenario), Box::new(platform()), TestModes::default());
    boot(&mut machine);
    machine.world.decisions.begin_run(SEEDS[0]);
    machine.begin_faults();
    let in_force = |world: &World| {
        let containers = world.nodes.values().flat_map(|node| &node.containers);
        containers.filter(|container| container.hazards.in_force()).count()
    };
    assert_eq!(in_force(&machine.world), NODES as usize);
    go(&mut machine, |world| world.phase == Phase::Done);
    assert_eq!(in_force(&machine.world), 0);
}
