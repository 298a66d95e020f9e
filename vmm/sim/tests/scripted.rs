//! Whole worlds on the `Scripted` platform, which needs no processor: three nodes whose processes fork, execute, wait, share memory, sleep,
//! are signalled, write files and talk over TCP, while faults happen to them. What happens is a function of the seed, whatever the platform
//! forgets, whoever is woken for nothing, and how often the world is cloned.

#[path = "scripted/anew.rs"]
mod anew;
#[path = "scripted/ends.rs"]
mod ends;
#[path = "scripted/program.rs"]
mod program;
#[path = "scripted/upgrades.rs"]
mod upgrades;

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Choice, Concern, Decisions, Log, Mode, Part, Site};
use bloodhound_faults::Kind;
use bloodhound_kernel::exec::Program;
use bloodhound_net::{LinkConfig, NodeId, PartitionKind};
use bloodhound_platform::{Platform, Scripted, SpaceId, scripted_elf};
use bloodhound_sim::event::{Event, Moment};
use bloodhound_sim::faults::{Effect, Fault, Planned};
use bloodhound_sim::machine::TestModes;
use bloodhound_sim::notice::{LogEntry, Notice};
use bloodhound_sim::scenario::{FaultSpec, RestartPolicy, Scenario, ServiceSpec, Sharing};
use bloodhound_sim::services::ServiceChange;
use bloodhound_sim::world::{Phase, World};
use bloodhound_sim::{Ended, Machine, setup};
use bloodhound_vfs::{MemBase, TreeId};

const NODES: u32 = 3;
const TREE: TreeId = TreeId(1);
const MS: u64 = 1_000_000;
/// Faults are injected for so long, and the run goes on for so long behind them.
const FAULT_TIME: u64 = 1_500 * MS;
const MAX_TIME: u64 = 2_000 * MS;
const HELPER: u64 = 0x4000_0000;

fn base_of(node: u32) -> u64 {
    u64::from(node) << 24
}

fn ip(node: u32) -> [u8; 4] {
    [10, 0, 0, node as u8]
}

/// The programs of all nodes.
fn platform() -> Scripted {
    let mut platform = Scripted::new();
    for node in 1..=NODES {
        platform.program(base_of(node), program::service(base_of(node), ip(node % NODES + 1)));
    }
    platform.program(HELPER, program::helper(HELPER));
    platform
}

/// Their executables.
fn files() -> MemBase {
    let mut base = MemBase::new();
    for node in 1..=NODES {
        let steps = program::service(base_of(node), ip(node % NODES + 1)).len();
        base.file(TREE, &format!("bin/service{node}"), 0o755, &scripted_elf(base_of(node), steps));
    }
    base.file(TREE, "bin/helper", 0o755, &scripted_elf(HELPER, program::helper(HELPER).len()));
    base
}

fn service(node: u32) -> ServiceSpec {
    let path = format!("/bin/service{node}").into_bytes();
    ServiceSpec {
        node: NodeId(node),
        name: format!("n{node}"),
        hostname: format!("n{node}"),
        addresses: vec![(ip(node).into(), 24)],
        hosts: BTreeMap::new(),
        program: Program {
            path: path.clone(),
            argv: vec![path],
            envp: Vec::new(),
            cwd: b"/".to_vec(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        root: Some(TREE),
        mounts: Vec::new(),
        depends_on: Vec::new(),
        health: None,
        hooks: Default::default(),
        published: Default::default(),
        restart: RestartPolicy::Always,
        stdin: Default::default(),
        faulty: true,
        sharing: Default::default(),
        runtime: Default::default(),
        resolver: Default::default(),
    }
}

/// All kinds of faults.
fn all_faults() -> FaultSpec {
    FaultSpec::default()
        .with_rate(Kind::Drop, 5_000_000)
        .with_rate(Kind::Delay, 10_000_000)
        .with_time(Kind::Delay, (3 * MS, 3 * MS))
        .with_time(Kind::Jitter, (MS / 2, MS / 2))
        .with_rate(Kind::Duplicate, 20_000_000)
        .with_rate(Kind::Reorder, 20_000_000)
        .with_rate(Kind::Partition, 6_000_000)
        .with_time(Kind::Partition, (10 * MS, 40 * MS))
        .with_rate(Kind::Reset, 5_000_000)
        .with_rate(Kind::Crash, 2_000_000)
        .with_time(Kind::Crash, (5 * MS, 30 * MS))
        .with_rate(Kind::Pause, 3_000_000)
        .with_time(Kind::Pause, (5 * MS, 30 * MS))
}

/// The kinds beside these that do not show programs data that nobody sent.
fn more_faults() -> FaultSpec {
    let timed = [
        Kind::Oom,
        Kind::Kill,
        Kind::Stop,
        Kind::CrashLoop,
        Kind::Slow,
        Kind::Starve,
        Kind::Mtu,
        Kind::HalfOpen,
        Kind::SynDrop,
        Kind::BacklogFull,
        Kind::FinDrop,
    ];
    let spec = timed
        .into_iter()
        .fold(all_faults(), |spec, kind| spec.with_rate(kind, 2_000_000).with_time(kind, (5 * MS, 30 * MS)));
    spec.with_number(Kind::Mtu, 80).with_number(Kind::Bandwidth, 8_000).with_number(Kind::CrashLoop, 3)
}

fn scenario(faults: FaultSpec) -> Arc<Scenario> {
    Arc::new(Scenario {
        services: (1..=NODES).map(service).collect(),
        link: LinkConfig::default(),
        costs: Default::default(),
        spread: Default::default(),
        epoch_ns: 1_735_689_600_000_000_000,
        memory: 1 << 30,
        time_step: MS,
        boot_timeout: 10_000 * MS,
        max_time: MAX_TIME,
        fault_start: 0,
        fault_time: FAULT_TIME,
        heal: true,
        faults,
        disk: None,
        planning: Default::default(),
        settle: 10 * MS,
        health_until_ready: false,
        vdso: true,
        workload: None,
        clients: Vec::new(),
        prober: None,
        helpers: Vec::new(),
        checks: Vec::new(),
        schedule: Default::default(),
        compute_limit: 1_000_000_000,
    })
}

fn machine_on(platform: Box<dyn Platform>, modes: TestModes) -> Machine {
    machine_with(all_faults(), platform, modes)
}

fn machine_with(faults: FaultSpec, platform: Box<dyn Platform>, modes: TestModes) -> Machine {
    machine_of(scenario(faults), platform, modes)
}

fn machine_of(scenario: Arc<Scenario>, platform: Box<dyn Platform>, modes: TestModes) -> Machine {
    let mut base = files();
    let world = setup::world(&scenario, &mut base, Decisions::seeded(1)).expect("a world");
    let mut machine = Machine::new(world, scenario, platform, Box::new(base));
    machine.set_modes(modes);
    machine
}

fn machine(modes: TestModes) -> Machine {
    machine_on(Box::new(platform()), modes)
}

fn go(machine: &mut Machine, done: impl FnMut(&World) -> bool) {
    let ended = machine.run(done).expect("the platform works");
    assert_eq!(ended, Ended::Condition, "{:?}", machine.world.findings);
}

/// Boots, and runs a seed from there.
fn boot(machine: &mut Machine) {
    go(machine, |world| world.ready_at.is_some());
}

fn run_seed(machine: &mut Machine, seed: u64) -> Outcome {
    machine.world.decisions.begin_run(seed);
    machine.begin_faults();
    go(machine, |world| world.phase == Phase::Done);
    Outcome::of(&machine.world)
}

/// All that a user could see of a run.
#[derive(Clone, PartialEq, Eq)]
struct Outcome {
    digest: String,
    steps: u64,
    now: SimTime,
    log: Vec<LogEntry>,
    console: Vec<String>,
    findings: Vec<String>,
    /// All choices.
    choices: String,
}

impl Outcome {
    fn of(world: &World) -> Outcome {
        Outcome {
            digest: world.digest.to_string(),
            steps: world.steps,
            now: world.now,
            log: world.log.clone(),
            console: world.console.pieces().iter().map(|chunk| format!("{chunk:?}")).collect(),
            findings: world.findings.iter().map(|finding| format!("{finding:?}")).collect(),
            choices: format!("{:x}", world.decisions.trail()),
        }
    }

    /// Notices for which `wanted` says so.
    fn count(&self, wanted: impl Fn(&Notice) -> bool) -> usize {
        self.log.iter().filter(|entry| wanted(&entry.what)).count()
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} after {} steps at {}", self.digest, self.steps, self.now)
    }
}

fn plain(seed: u64) -> Outcome {
    let mut machine = machine(TestModes::default());
    boot(&mut machine);
    run_seed(&mut machine, seed)
}

/// Whether it is a partition of this shape.
fn cut(planned: &Planned, shape: fn(&PartitionKind) -> bool) -> bool {
    matches!(&planned.fault, Fault::Partition(partition) if shape(&partition.cut))
}

const SEEDS: [u64; 4] = [3, 7, 11, 12];

/// What the seeds do is worth comparing: each kind of fault comes, services are killed, and come back, and nothing goes wrong that
/// the programs would have noticed.
#[test]
fn the_worlds_are_eventful() {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in SEEDS {
        let outcome = plain(seed);
        assert_eq!(outcome.findings, Vec::<String>::new(), "seed {seed}: {:#?}", outcome.log);
        assert!(outcome.steps > 5_000, "seed {seed}: {outcome:?}");
        assert!(outcome.console.len() > 20, "seed {seed}: the helper ran {} times", outcome.console.len());
        for entry in &outcome.log {
            let kind = match &entry.what {
                Notice::Fault(planned) if cut(planned, |cut| matches!(cut, PartitionKind::OneWay(..))) => {
                    "one way"
                }
                Notice::Fault(planned) if cut(planned, |cut| matches!(cut, PartitionKind::Bridge(..))) => {
                    "bridge"
                }
                Notice::Fault(planned) if cut(planned, |cut| matches!(cut, PartitionKind::Isolate(..))) => {
                    "isolate"
                }
                Notice::Fault(planned) => planned.id.kind.name(),
                Notice::FaultEnd(_) => "healed",
                _ => continue,
            };
            *all.entry(kind).or_default() += 1;
        }
        let starts = outcome.count(|n| *n == Notice::Service(ServiceChange::Started));
        let crashes =
            outcome.count(|n| matches!(n, Notice::Fault(planned) if planned.id.kind == Kind::Crash));
        // What is down at the end comes back no more.
        assert!(starts >= crashes, "seed {seed}: {starts} starts");
    }
    let kinds: Vec<&str> = all.keys().copied().collect();
    let wanted = ["bridge", "crash", "healed", "isolate", "one way", "partition", "pause", "reset"];
    assert_eq!(kinds, wanted, "{all:?}");
}

#[test]
fn equal_seeds_make_equal_runs_and_others_do_not() {
    let outcomes: Vec<Outcome> = SEEDS.map(plain).to_vec();
    for (seed, outcome) in SEEDS.into_iter().zip(&outcomes) {
        assert_eq!(plain(seed), *outcome, "seed {seed}");
    }
    let mut digests: Vec<&str> = outcomes.iter().map(|outcome| outcome.digest.as_str()).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), SEEDS.len());
}

/// The first step in which two runs differ.
fn first_difference(seed: u64, modes: TestModes) -> String {
    let record = |modes| {
        let (steps, mut machine) = (Arc::new(std::sync::Mutex::new(Vec::new())), machine(modes));
        let sink = steps.clone();
        let listener = move |moment: &Moment, event: &Event<'_>| {
            sink.lock().expect("one thread").push((*moment, event.kind()));
        };
        machine.listen(Box::new(listener));
        boot(&mut machine);
        run_seed(&mut machine, seed);
        steps.lock().expect("one thread").clone()
    };
    let (one, other) = (record(TestModes::default()), record(modes));
    match one.iter().zip(&other).find(|(one, other)| one != other) {
        Some((one, other)) => format!("{one:?}\nbecame {other:?}"),
        None => format!("{} steps became {}", one.len(), other.len()),
    }
}

#[test]
fn nothing_shows_what_the_platform_forgets_and_who_is_woken_for_nothing() {
    let off = TestModes::default();
    let modes = [
        TestModes { clone_every: 1, ..off },
        TestModes { spurious_every: 1, ..off },
        TestModes { evict_every: 1, ..off },
        TestModes { clone_every: 3, spurious_every: 2, evict_every: 7 },
        TestModes { clone_every: 11, spurious_every: 5, evict_every: 13 },
    ];
    for seed in SEEDS {
        let want = plain(seed);
        for modes in modes {
            let mut machine = machine(modes);
            boot(&mut machine);
            let got = run_seed(&mut machine, seed);
            assert!(got == want, "seed {seed}, {modes:?}: {}", first_difference(seed, modes));
        }
    }
}

/// The same for the kinds of faults that the others leave out: each begins, and those that last end.
#[test]
fn further_kinds_of_faults_are_no_less_equal() {
    let run = |seed, modes| {
        let mut machine = machine_with(more_faults(), Box::new(platform()), modes);
        boot(&mut machine);
        let outcome = run_seed(&mut machine, seed);
        let begun =
            |(planned, effect): (&Planned, Effect)| (effect == Effect::Begun).then_some(planned.id.kind);
        let kinds: Vec<Kind> = machine.world.faults.record().filter_map(begun).collect();
        (outcome, kinds)
    };
    let off = TestModes::default();
    let mut seen = std::collections::BTreeSet::new();
    for seed in SEEDS {
        let (want, kinds) = run(seed, off);
        assert_eq!(want.findings, Vec::<String>::new(), "seed {seed}: {:#?}", want.log);
        let lasting =
            want.count(|n| matches!(n, Notice::FaultEnd(id) if matches!(id.kind, Kind::Slow | Kind::Mtu)));
        assert!(lasting > 0, "seed {seed}: {:#?}", want.log);
        seen.extend(kinds);
        for modes in [
            off,
            TestModes { clone_every: 3, spurious_every: 1, evict_every: 7 },
            TestModes { clone_every: 11, spurious_every: 5, evict_every: 13 },
        ] {
            assert!(run(seed, modes).0 == want, "seed {seed}, {modes:?}");
        }
    }
    let timed = Kind::DECLARATIONS.iter().filter(|declaration| declaration.is_timed());
    let wanted: Vec<&str> = timed
        .filter(|declaration| more_faults().is_on(declaration.kind))
        .map(|declaration| declaration.name)
        .collect();
    assert_eq!(seen.iter().map(|kind| kind.name()).collect::<Vec<_>>(), wanted);
}

/// Two services are containers of one machine, the second with the network of the first: the same holds.
#[test]
fn containers_of_one_machine_are_no_less_equal() {
    let shared = |net| {
        let mut scenario = Scenario::clone(&scenario(all_faults()));
        scenario.services[1].sharing = Sharing { machine: Some(NodeId(1)), net, ..Sharing::default() };
        Arc::new(scenario)
    };
    let off = TestModes::default();
    let stress = TestModes { clone_every: 3, spurious_every: 1, evict_every: 7 };
    // A service that has another's network cannot listen where that one does, so it only runs at the boot.
    for (net, seeds) in [(None, &SEEDS[..2]), (Some(NodeId(1)), &[])] {
        let run = |seed: Option<u64>, modes| {
            let mut machine = machine_of(shared(net), Box::new(platform()), modes);
            assert_eq!(machine.world.nodes.len(), NODES as usize - 1);
            match seed {
                Some(seed) => {
                    boot(&mut machine);
                    run_seed(&mut machine, seed)
                }
                None => {
                    let _ended = machine.run(|world| world.steps > 2_000).expect("the platform works");
                    Outcome::of(&machine.world)
                }
            }
        };
        for seed in seeds.iter().map(|seed| Some(*seed)).chain([None]) {
            let want = run(seed, off);
            assert!(want.steps > 100, "{want:?}");
            assert!(run(seed, stress) == want, "seed {seed:?}, network {net:?}");
        }
    }
}

/// A machine takes up a world that another left, at any time, and what it was before does not matter.
#[test]
fn snapshots_go_on_as_the_original_does() {
    let seed = SEEDS[1];
    let want = plain(seed);
    let mut first = machine(TestModes::default());
    boot(&mut first);
    first.world.decisions.begin_run(seed);
    first.begin_faults();
    let mut snapshots = Vec::new();
    for n in 1..=8 {
        let until = first.world.steps + want.steps / 10;
        go(&mut first, |world| world.steps >= until);
        snapshots.push((n, first.snapshot().expect("the platform works")));
    }
    go(&mut first, |world| world.phase == Phase::Done);
    assert_eq!(Outcome::of(&first.world), want, "snapshots disturb the run");
    // From the last to the first, twice, in a machine that ran something else before.
    let mut other = machine(TestModes { evict_every: 5, ..TestModes::default() });
    boot(&mut other);
    run_seed(&mut other, SEEDS[0]);
    for round in 0..2 {
        for (n, snapshot) in snapshots.iter().rev() {
            other.restore(snapshot.clone());
            go(&mut other, |world| world.phase == Phase::Done);
            assert_eq!(Outcome::of(&other.world), want, "snapshot {n}, round {round}");
        }
    }
}

/// The plan goes on as it was, whoever is down; what meets nobody is recorded.
#[test]
fn faults_that_meet_a_dead_or_paused_node_are_without_effect() {
    let often = FaultSpec::default()
        .with_rate(Kind::Crash, 20_000_000)
        .with_time(Kind::Crash, (50 * MS, 100 * MS))
        .with_rate(Kind::Pause, 20_000_000)
        .with_time(Kind::Pause, (50 * MS, 100 * MS));
    let mut machine = machine_with(often, Box::new(platform()), TestModes::default());
    boot(&mut machine);
    let outcome = run_seed(&mut machine, SEEDS[0]);
    let faults = &machine.world.faults;
    assert_eq!(faults.effects.len(), faults.plan.len(), "the time of all has come");
    let of = |kind: Kind, wanted: fn(&Effect) -> bool| {
        faults.record().filter(|(planned, effect)| planned.id.kind == kind && wanted(effect)).count()
    };
    for kind in [Kind::Crash, Kind::Pause] {
        let begun = of(kind, |effect| *effect == Effect::Begun);
        assert!(begun > 5 && of(kind, |effect| *effect != Effect::Begun) > 5, "{kind}: {begun}");
        let told = outcome.count(|n| matches!(n, Notice::Fault(planned) if planned.id.kind == kind));
        assert_eq!(told, begun, "{kind}");
    }
    let dead = faults.record().any(|(_, effect)| effect == Effect::None("its service does not run"));
    let paused = faults.record().any(|(_, effect)| effect == Effect::None("it is paused already"));
    assert!(dead && paused);
}

/// Machines lose their power, whatever runs on them, and every mode of the tests agrees on what is left.
#[test]
fn power_failures_are_the_same_in_all_modes() {
    let faults = FaultSpec::default()
        .with_rate(Kind::PowerFailure, 8_000_000)
        .with_time(Kind::PowerFailure, (5 * MS, 30 * MS))
        .with_rate(Kind::Crash, 4_000_000)
        .with_time(Kind::Crash, (5 * MS, 30 * MS));
    let run = |modes| {
        let mut scenario = Scenario::clone(&scenario(faults.clone()));
        scenario.disk = Some(bloodhound_vfs::DiskModel::Ordered);
        let mut machine = machine_of(Arc::new(scenario), Box::new(platform()), modes);
        boot(&mut machine);
        let outcome = run_seed(&mut machine, SEEDS[0]);
        assert!(machine.world.services.values().all(|service| service.runs()), "all are up after the heal");
        outcome
    };
    let outcome = run(TestModes::default());
    let failures =
        outcome.count(|n| matches!(n, Notice::Fault(planned) if planned.id.kind == Kind::PowerFailure));
    assert!(failures > 5, "{failures}");
    assert_eq!(outcome.count(|n| matches!(n, Notice::Survived(_))), failures);
    assert_eq!(outcome.findings, Vec::<String>::new());
    let modes = TestModes { evict_every: 7, spurious_every: 5, clone_every: 11 };
    assert_eq!(run(modes), outcome);
}

/// An override that is asked for with another bound, or not at all, is told, and changes nothing.
#[test]
fn a_strict_replay_tells_where_it_is_another_run() {
    let seed = SEEDS[0];
    let whole = plain(seed);
    let never = Choice { part: Part::Run, site: Site::Arrival { worker: 77, nth: 0 } };
    let run = |mode: Mode| {
        let mut machine = machine(TestModes::default());
        boot(&mut machine);
        machine.world.decisions.follow(Log::new(1, seed).with(never, 5, 3), mode);
        machine.begin_faults();
        go(&mut machine, |world| world.phase == Phase::Done);
        assert_eq!(Outcome::of(&machine.world), whole);
        machine.world.decisions.divergences()
    };
    let told = run(Mode::Strict);
    assert!(told.len() == 1 && told[0].choice == never && told[0].asked.is_none(), "{told:?}");
    assert_eq!(run(Mode::Lenient), []);
}

/// A platform with a mistake: stores go on into pages that were write-protected.
struct Careless(Scripted);

impl Platform for Careless {
    bloodhound_platform::forward_platform!(0: run, step, approach, processor_time, map, unmap, mapped, xstate_owner, save_xstate, load_xstate, reset_space, drop_space, evict_all, abilities);

    fn write_protect(&mut self, _: SpaceId) {}
}

/// The comparisons would notice: such a platform writes into what belongs to the snapshot as well.
#[test]
fn a_platform_that_forgets_to_protect_is_found_out() {
    let careful: fn() -> Box<dyn Platform> = || Box::new(platform());
    let careless: fn() -> Box<dyn Platform> = || Box::new(Careless(platform()));
    for (make, equal) in [(careful, true), (careless, false)] {
        let mut machine = machine_on(make(), TestModes::default());
        boot(&mut machine);
        machine.world.decisions.begin_run(SEEDS[0]);
        let until = machine.world.steps + 1_000;
        go(&mut machine, |world| world.steps >= until);
        let snapshot = machine.snapshot().expect("the platform works");
        let mut runs = Vec::new();
        for _ in 0..2 {
            machine.restore(snapshot.clone());
            let until = machine.world.steps + 1_000;
            machine.run(|world| world.steps >= until).expect("the platform works");
            runs.push(Outcome::of(&machine.world));
        }
        assert_eq!(runs[0] == runs[1], equal, "{runs:?}");
    }
}

/// The programs' own complaints reach the findings: one that expects another status of its helper ends on SIGILL.
#[test]
fn a_program_that_is_wrong_is_found_out() {
    let mut platform = platform();
    let mut helper = program::helper(HELPER);
    let last = helper.len() - 1;
    let exit = bloodhound_abi::table::nr::exit_group;
    helper[last] = bloodhound_platform::Step::syscall(exit, &[(program::HELPER_STATUS + 1).into()]);
    platform.program(HELPER, helper);
    let mut machine = machine_on(Box::new(platform), TestModes::default());
    let done = |world: &World| world.now > SimTime(1_000 * MS) || !world.findings.is_empty();
    machine.run(done).expect("the platform works");
    assert!(machine.world.findings.iter().any(|f| f.text.contains("SIGILL")), "{:?}", machine.world.findings);
    let crashed = machine.world.log.iter().filter(|entry| matches!(&entry.what, Notice::Service(_)));
    assert!(crashed.count() >= NODES as usize);
}
