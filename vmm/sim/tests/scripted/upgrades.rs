//! Services are upgraded while the stack runs, and taken back: each is made anew of its other definition, in its turn, and keeps its volume.

use bloodhound_sim::faults::{Limits, Scheduled, Trigger, Upgraded, What};
use bloodhound_sim::scenario::{Condition, Dependency};
use bloodhound_sim::services::Version;
use bloodhound_vfs::{DiskModel, MountSpec};

use super::*;

const NEXT: TreeId = TreeId(2);

/// The trees of both versions.
fn both() -> MemBase {
    let mut base = files();
    for node in 1..=NODES {
        let steps = program::service(base_of(node), ip(node % NODES + 1)).len();
        base.file(NEXT, &format!("bin/service{node}"), 0o755, &scripted_elf(base_of(node), steps));
    }
    base.file(NEXT, "bin/helper", 0o755, &scripted_elf(HELPER, program::helper(HELPER).len()));
    base.file(TREE, "version", 0o644, b"1");
    base.file(NEXT, "version", 0o644, b"2");
    base
}

/// Three services with a volume each; the log that they write is not in it.
fn upgradable(faults: FaultSpec) -> Scenario {
    let mut scenario = Scenario::clone(&scenario(faults));
    for spec in &mut scenario.services {
        let of = Box::new(MountSpec::Volume { read_only: false });
        let volume = MountSpec::Shared { key: spec.node.0, of, subpath: Vec::new(), nocopy: false };
        spec.mounts = vec![(b"/data".to_vec(), volume)];
        spec.runtime.stop_grace = 10 * MS;
        let next = ServiceSpec { root: Some(NEXT), ..spec.clone() };
        scenario.planning.upgrades.insert(spec.node, Upgraded { name: "next".into(), spec: next });
    }
    scenario
}

fn machine_of_both(scenario: Scenario, modes: TestModes) -> Machine {
    let (scenario, mut base) = (Arc::new(scenario), both());
    let world = setup::world(&scenario, &mut base, Decisions::seeded(1)).expect("a world");
    let mut machine = Machine::new(world, scenario, Box::new(platform()), Box::new(base));
    machine.set_modes(modes);
    machine
}

/// A rollout of all services that is written.
fn written(kind: Kind, ms: u64) -> Scheduled {
    Scheduled {
        trigger: Trigger::At(ms * MS),
        kind,
        nodes: (1..=NODES).map(NodeId).collect(),
        what: What::Drawn,
        duration: Some(500 * MS),
        most: None,
        volume: None,
    }
}

fn content(machine: &Machine, node: u32, path: &str) -> Option<String> {
    let mut vfs = machine.world.machine_of(NodeId(node)).vfs.clone();
    vfs.enter_namespace(bloodhound_vfs::MountNs(0));
    let bytes = vfs.get_file(&mut both(), path.as_bytes()).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is told of services, in order: `1 next`, `2 started`.
fn lives(outcome: &Outcome) -> Vec<String> {
    let one = |entry: &LogEntry| {
        let what = match entry.what {
            Notice::Service(ServiceChange::Started) => "started",
            Notice::Service(ServiceChange::Stopping) => "stopping",
            Notice::Service(ServiceChange::Remade(Version::First)) => "first",
            Notice::Service(ServiceChange::Remade(Version::Next)) => "next",
            _ => return None,
        };
        Some(format!("{} {what}", entry.node?.0))
    };
    outcome.log.iter().filter_map(one).collect()
}

fn pause() -> FaultSpec {
    let mut faults = FaultSpec::default();
    for kind in [Kind::Upgrade, Kind::Downgrade] {
        faults.get_mut(kind).size = (20 * MS, 20 * MS);
    }
    faults
}

#[test]
fn services_are_upgraded_in_turn_and_taken_back() {
    let mut scenario = upgradable(pause());
    scenario.planning.schedule =
        vec![written(Kind::Upgrade, 10), written(Kind::Upgrade, 700), written(Kind::Downgrade, 800)];
    let run = |modes| {
        let mut machine = machine_of_both(scenario.clone(), modes);
        boot(&mut machine);
        for node in 1..=NODES {
            let node = machine.world.node_mut(bloodhound_kernel::node::MachineId(node));
            for path in ["/data/kept", "/own"] {
                node.vfs.put_file(&mut both(), path.as_bytes(), 0o644, b"x").expect("a file");
            }
        }
        machine.world.decisions.begin_run(5);
        machine.begin_faults();
        go(&mut machine, |world| world.now > SimTime(world.ready_at.expect("it is").0 + 650 * MS));
        for node in 1..=NODES {
            assert_eq!(content(&machine, node, "/version").as_deref(), Some("2"));
            assert_eq!(content(&machine, node, "/data/kept").as_deref(), Some("x"));
            assert_eq!(content(&machine, node, "/own"), None);
            assert!(content(&machine, node, "/log").is_some(), "it runs");
            assert_eq!(machine.world.services[&NodeId(node)].version, Version::Next);
        }
        go(&mut machine, |world| world.phase == Phase::Done);
        for node in 1..=NODES {
            assert_eq!(content(&machine, node, "/version").as_deref(), Some("1"));
            assert_eq!(content(&machine, node, "/data/kept").as_deref(), Some("x"));
        }
        let effects: Vec<Effect> = machine.world.faults.record().map(|(_, effect)| effect).collect();
        let none = Effect::None("its services are upgraded already");
        assert_eq!(effects, [Effect::Begun, none, Effect::Begun]);
        Outcome::of(&machine.world)
    };
    let outcome = run(TestModes::default());
    assert_eq!(outcome.findings, Vec::<String>::new());
    let mut expected: Vec<String> = (1..=NODES).map(|node| format!("{node} started")).collect();
    for version in ["next", "first"] {
        for node in 1..=NODES {
            expected.extend(["stopping", version, "started"].map(|what| format!("{node} {what}")));
        }
    }
    assert_eq!(lives(&outcome), expected);
    assert_eq!(run(TestModes { clone_every: 3, spurious_every: 2, evict_every: 7 }), outcome);
}

/// Who is to be restarted with a service is when that is upgraded, and not when it is restarted in turn.
#[test]
fn dependents_are_restarted_after_an_upgrade() {
    let mut scenario = upgradable(pause());
    let on = Dependency { service: NodeId(1), condition: Condition::Started, restart: true };
    scenario.services[1].depends_on = vec![on];
    let first = |kind, ms| Scheduled { nodes: vec![NodeId(1)], ..written(kind, ms) };
    scenario.planning.schedule = vec![first(Kind::RollingRestart, 10), first(Kind::Upgrade, 600)];
    let mut machine = machine_of_both(scenario, TestModes::default());
    boot(&mut machine);
    let lives = lives(&run_seed(&mut machine, 5));
    let stops: Vec<&str> =
        lives.iter().filter(|life| life.ends_with("stopping")).map(|life| &life[..1]).collect();
    assert_eq!(stops, ["1", "1", "2"], "{lives:?}");
    assert_eq!(machine.world.services[&NodeId(2)].version, Version::First);
}

/// A downgrade that begins amid an upgrade takes those back that were upgraded, and no more are.
#[test]
fn the_last_rollout_has_the_say() {
    let mut scenario = upgradable(pause());
    scenario.planning.schedule = vec![written(Kind::Upgrade, 10), written(Kind::Downgrade, 75)];
    let mut machine = machine_of_both(scenario, TestModes::default());
    boot(&mut machine);
    let outcome = run_seed(&mut machine, 5);
    let lives = lives(&outcome);
    let count = |what: &str| lives.iter().filter(|life| life.ends_with(what)).count();
    assert_eq!((count("next"), count("first")), (1, 1), "{lives:?}");
    assert!(machine.world.services.values().all(|service| service.version == Version::First));
}

/// The service that is just being stopped for an upgrade starts as what it was if a downgrade begins then, which is so also if it is the only one.
#[test]
fn a_downgrade_reaches_the_service_that_is_being_upgraded() {
    for nodes in [1, NODES] {
        let mut scenario = upgradable(pause());
        let of = |kind| Scheduled { nodes: (1..=nodes).map(NodeId).collect(), ..written(kind, 10) };
        scenario.planning.schedule = vec![of(Kind::Upgrade), of(Kind::Downgrade)];
        let mut machine = machine_of_both(scenario, TestModes::default());
        boot(&mut machine);
        let outcome = run_seed(&mut machine, 5);
        let lives = lives(&outcome);
        let told = |what: &str| lives.iter().filter(|life| life.ends_with(what)).count();
        assert_eq!((told("stopping"), told("next"), told("first")), (1, 0, 0), "{lives:?}");
        let effects: Vec<Effect> = machine.world.faults.record().map(|(_, effect)| effect).collect();
        assert_eq!(effects, [Effect::Begun, Effect::Begun]);
        assert!(machine.world.services.values().all(|service| service.runs()));
    }
}

/// A rollout of which those that run have no need has no effect, whatever those need that are down.
#[test]
fn who_is_down_makes_no_upgrade_begin() {
    let mut scenario = upgradable(pause());
    let of = |kind, ms, nodes: &[u32]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        Scheduled { nodes, ..written(kind, ms) }
    };
    scenario.planning.schedule = vec![
        of(Kind::Upgrade, 10, &[1]),
        of(Kind::Crash, 300, &[2]),
        of(Kind::Upgrade, 400, &[1, 2]),
        of(Kind::Upgrade, 410, &[2]),
    ];
    let mut machine = machine_of_both(scenario, TestModes::default());
    boot(&mut machine);
    run_seed(&mut machine, 5);
    let effects: Vec<Effect> = machine.world.faults.record().map(|(_, effect)| effect).collect();
    let nones = ["those of its services that run are of this version already", "none of its services runs"];
    assert_eq!(effects, [Effect::Begun, Effect::Begun, Effect::None(nones[0]), Effect::None(nones[1])]);
}

/// Whatever else happens to the machines, every mode of the tests agrees, and all services are up at the end: a machine that is replaced has the version that
/// its services have.
#[test]
fn maintenance_that_is_drawn_is_the_same_in_all_modes() {
    let kinds = [
        Kind::Upgrade,
        Kind::Downgrade,
        Kind::RollingRestart,
        Kind::Replace,
        Kind::PowerFailure,
        Kind::Crash,
    ];
    let mut faults = kinds.into_iter().fold(FaultSpec::default(), |faults, kind| {
        faults.with_rate(kind, 4_000_000).with_time(kind, (100 * MS, 300 * MS))
    });
    for kind in [Kind::Upgrade, Kind::Downgrade, Kind::RollingRestart] {
        faults.get_mut(kind).size = (5 * MS, 20 * MS);
    }
    for kind in [Kind::Replace, Kind::PowerFailure, Kind::Crash] {
        faults = faults.with_time(kind, (5 * MS, 30 * MS));
    }
    let run = |seed, limits: Limits, modes| {
        let mut scenario = upgradable(faults.clone());
        scenario.disk = Some(DiskModel::Ordered);
        scenario.planning.limits = limits;
        let mut machine = machine_of_both(scenario, modes);
        boot(&mut machine);
        let outcome = run_seed(&mut machine, seed);
        assert_eq!(outcome.findings, Vec::<String>::new(), "seed {seed}");
        assert!(machine.world.services.values().all(|service| service.runs()), "seed {seed}");
        for (id, service) in &machine.world.services {
            let version = if service.version == Version::Next { "2" } else { "1" };
            assert_eq!(content(&machine, id.0, "/version").as_deref(), Some(version), "seed {seed}");
        }
        let begun =
            |(planned, effect): (&Planned, Effect)| (effect == Effect::Begun).then_some(planned.clone());
        (outcome, machine.world.faults.record().filter_map(begun).collect::<Vec<_>>())
    };
    let mut seen = std::collections::BTreeSet::new();
    let disks = Limits { disks: Some(1), ..Limits::default() };
    for seed in SEEDS {
        let (want, begun) = run(seed, Limits::default(), TestModes::default());
        seen.extend(begun.iter().map(|planned| planned.id.kind.name()));
        let modes = TestModes { clone_every: 3, spurious_every: 1, evict_every: 7 };
        assert!(run(seed, Limits::default(), modes).0 == want, "seed {seed}");
        // With a budget of one disk no second machine is lost as long as the first one is away.
        let (_, begun) = run(seed, disks.clone(), TestModes::default());
        let lost: Vec<&Planned> = begun.iter().filter(|planned| planned.id.kind == Kind::Replace).collect();
        for pair in lost.windows(2) {
            assert!(
                pair[1].begin >= pair[0].begin.after(pair[0].duration)
                    || pair[0].id.target == pair[1].id.target
            );
        }
    }
    let mut wanted = kinds.map(Kind::name);
    wanted.sort_unstable();
    assert!(seen.into_iter().eq(wanted));
}
