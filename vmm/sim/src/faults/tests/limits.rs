//! The limits of a plan, whom it may hit, and what is written in it.

use super::super::limits::{Down, Limits};
use super::super::plan::{Aim, Drawn, draw, sort};
use super::super::planning::{only, targets};
use super::super::*;
use crate::scenario::{Scenario, ServiceSpec, Sharing};
use bloodhound_decisions::{Choice, Log, Mode, Part, WORD};
use bloodhound_kernel::exec::Program;

pub(super) const MS: u64 = 1_000_000;

pub(super) fn phases() -> Phases {
    Phases { begin: SimTime(500), end: SimTime(500 + 20_000 * MS), step: 10 * MS, ..Phases::default() }
}

/// `count` services; the last two are on one machine.
pub(super) fn scenario(count: u32) -> Scenario {
    let service = |node: u32| ServiceSpec {
        node: NodeId(node),
        name: format!("kv{node}"),
        hostname: String::new(),
        addresses: Vec::new(),
        hosts: BTreeMap::new(),
        program: Program {
            path: Vec::new(),
            argv: Vec::new(),
            envp: Vec::new(),
            cwd: Vec::new(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        root: None,
        mounts: Vec::new(),
        depends_on: Vec::new(),
        health: None,
        hooks: Default::default(),
        restart: crate::scenario::RestartPolicy::No,
        stdin: Default::default(),
        faulty: true,
        sharing: Sharing { machine: (node == count).then(|| NodeId(count - 1)), ..Sharing::default() },
        runtime: Default::default(),
        resolver: Default::default(),
        published: BTreeMap::new(),
    };
    Scenario {
        services: (1..=count).map(service).collect(),
        link: Default::default(),
        costs: Default::default(),
        spread: Default::default(),
        epoch_ns: 0,
        memory: 0,
        time_step: 10 * MS,
        boot_timeout: 0,
        max_time: 0,
        fault_start: 0,
        fault_time: 0,
        heal: true,
        faults: profile(),
        planning: Planning::default(),
        disk: None,
        settle: 0,
        health_until_ready: false,
        vdso: false,
        workload: None,
        clients: Vec::new(),
        prober: None,
        helpers: Vec::new(),
        checks: Vec::new(),
        schedule: Default::default(),
        compute_limit: 0,
    }
}

/// So much that limits have something to do.
fn profile() -> FaultSpec {
    FaultSpec::default()
        .with_rate(Kind::Crash, 3_000_000)
        .with_rate(Kind::Pause, 3_000_000)
        .with_rate(Kind::Partition, 3_000_000)
        .with_rate(Kind::Reset, 3_000_000)
}

/// The plan as it is carried out.
pub(super) fn plan_of(
    scenario: &Scenario,
    profile: &FaultSpec,
    risk: (Phases, Option<&BTreeSet<MachineId>>),
    before: (&[Planned], Option<SimTime>),
    decisions: &mut Decisions,
) -> Vec<Planned> {
    admitted(super::super::plan_of(scenario, profile, risk, before, decisions))
}

fn planned(limits: &Limits, log: Log) -> Vec<Planned> {
    let seed = log.seed;
    let mut scenario = scenario(5);
    scenario.planning.limits = limits.clone();
    let mut decisions = Decisions::new(log, Mode::Strict);
    decisions.begin_run(seed);
    let plan = plan_of(&scenario, &profile(), (phases(), None), (&[], None), &mut decisions);
    assert_eq!(decisions.divergences(), []);
    plan
}

fn all_limits() -> [Limits; 4] {
    [
        Limits { down: Some(Down::Count(1)), ..Limits::default() },
        Limits { down: Some(Down::Minority), recovery: 500 * MS, ..Limits::default() },
        Limits { spare: vec![NodeId(2)], quiet: vec![(2_000 * MS, 9_000 * MS)], ..Limits::default() },
        Limits { down: Some(Down::Count(2)), quiet: vec![(0, 3_000 * MS)], ..Limits::default() },
    ]
}

#[test]
fn limits_take_entries_out_and_move_none() {
    for limits in all_limits() {
        let (mut left_out, mut resets) = (0, 0);
        for seed in 0..20 {
            let whole = planned(&Limits::default(), Log::new(0, seed));
            let less = planned(&limits, Log::new(0, seed));
            assert!(less.iter().all(|entry| whole.contains(entry)), "{limits:?}");
            resets += less.iter().filter(|entry| entry.id.kind == Kind::Reset).count();
            left_out += whole.len() - less.len();
        }
        assert!(left_out > 100 && resets > 20, "{limits:?}: {left_out}, {resets}");
    }
}

#[test]
fn taking_one_out_lets_no_other_in() {
    for limits in all_limits() {
        for seed in 0..10 {
            let whole = planned(&limits, Log::new(0, seed));
            // Of those that a limit spares as well: that they are taken out changes nothing.
            for out in planned(&Limits::default(), Log::new(0, seed)) {
                let choice = Choice { part: Part::Run, site: out.id.site("begins") };
                let less = planned(&limits, Log::new(0, seed).with(choice, WORD, 0));
                let others: Vec<Planned> = whole.iter().filter(|entry| entry.id != out.id).cloned().collect();
                assert_eq!(less, others, "seed {seed} without {:?}", out.id);
            }
        }
    }
}

#[test]
fn a_log_moves_one_within_the_limits_and_no_other_for_that() {
    for limits in all_limits() {
        let (mut moved, mut left_out) = (0, 0);
        for seed in 0..5 {
            let whole = planned(&limits, Log::new(0, seed));
            for one in &whole {
                let choice = Choice { part: Part::Run, site: one.id.site(BEGINS_AT) };
                let after = 10_000 * MS + 7;
                let other = planned(&limits, Log::new(0, seed).with(choice, WORD, after));
                let rest = |plan: &[Planned]| -> Vec<Planned> {
                    plan.iter().filter(|entry| entry.id != one.id).cloned().collect()
                };
                assert_eq!(rest(&other), rest(&whole), "seed {seed}, {:?} moved", one.id);
                match other.iter().find(|entry| entry.id == one.id) {
                    None => left_out += 1,
                    Some(there) => {
                        assert_eq!(*there, Planned { begin: SimTime(500 + after), ..one.clone() });
                        moved += 1;
                    }
                }
            }
        }
        assert!(moved > 10, "{limits:?}: {moved}, {left_out} left out");
    }
}

#[test]
fn a_stop_lasts_for_the_grace_period_of_a_service() {
    let limits = Limits { down: Some(Down::Count(1)), ..Limits::default() };
    let stop = |ms, duration| at(ms, duration, Fault::Stop(Stop { node: NodeId(1) }));
    let room = |stop: &Planned, ms| {
        let crash = at(ms, 50, Fault::Crash(Crash { node: NodeId(2) }));
        limits.have_room(&crash, &scenario(5), (phases(), None), (std::slice::from_ref(stop), &[]))
    };
    // Ten seconds, if nothing else is said.
    assert!(!room(&stop(100, 0), 10_000) && room(&stop(100, 0), 10_200));
    assert!(!room(&stop(100, 300), 350) && room(&stop(100, 300), 450));
}

#[test]
fn no_more_are_down_than_the_budget_has() {
    let limits = Limits { down: Some(Down::Count(2)), recovery: 100 * MS, ..Limits::default() };
    for seed in 0..20 {
        let plan = planned(&limits, Log::new(0, seed));
        let nodes = |entry: &Planned| match &entry.fault {
            Fault::Crash(crash) => vec![crash.node],
            // Both are on one machine.
            Fault::Pause(pause) if pause.node.0 >= 4 => vec![NodeId(4), NodeId(5)],
            Fault::Pause(pause) => vec![pause.node],
            _ => Vec::new(),
        };
        for entry in &plan {
            let end = |entry: &Planned| entry.begin.after(entry.duration).after(limits.recovery);
            let with = plan.iter().filter(|other| other.begin <= entry.begin && end(other) > entry.begin);
            let mut down: Vec<NodeId> = with.flat_map(nodes).collect();
            down.sort();
            down.dedup();
            assert!(down.len() <= 2, "seed {seed}, {entry:?}: {down:?}");
        }
    }
    let none = Limits { down: Some(Down::Count(0)), ..Limits::default() };
    assert!(planned(&none, Log::new(0, 1)).iter().all(|entry| entry.id.kind == Kind::Reset));
}

/// What an epoch draws keeps to the limits together with what began before it, and nothing of it is moved by what is taken out.
#[test]
fn limits_hold_over_what_is_drawn_anew() {
    let now = SimTime(500 + 8_000 * MS);
    let limits = Limits {
        down: Some(Down::Count(1)),
        recovery: 300 * MS,
        quiet: vec![(12_000 * MS, 14_000 * MS)],
        ..Limits::default()
    };
    let mut scenario = scenario(5);
    scenario.planning.limits = limits.clone();
    let anew = phases().anew(Epoch::at(now.0), now);
    let mut left = 0;
    for seed in 0..20 {
        let begun: Vec<Planned> =
            planned(&limits, Log::new(0, seed)).into_iter().filter(|entry| entry.begin <= now).collect();
        let draw = |log: Log| {
            let mut decisions = Decisions::new(log, Mode::Strict);
            decisions.begin_run(seed + 100);
            plan_of(&scenario, &profile(), (anew, None), (&begun, Some(now)), &mut decisions)
        };
        let rest = draw(Log::new(0, seed + 100));
        left += rest.len();
        let all: Vec<Drawn> = begun.iter().chain(&rest).map(|entry| Drawn::kept(entry.clone())).collect();
        assert!(rest.iter().all(|entry| entry.begin > now && entry.id.is_drawn_anew()));
        let kept = limits.admit(all.clone(), &scenario, (phases(), None), &[]);
        assert_eq!(kept.len(), all.len(), "seed {seed}");
        for out in &rest {
            let choice = Choice { part: Part::Run, site: out.id.site("begins") };
            let less = draw(Log::new(0, seed + 100).with(choice, WORD, 0));
            let others: Vec<_> = rest.iter().filter(|entry| entry.id != out.id).cloned().collect();
            assert_eq!(less, others, "seed {seed} without {:?}", out.id);
        }
    }
    assert!(left > 50, "{left}");
}

#[test]
fn a_fault_is_moved_where_the_limits_leave_room() {
    let limits = Limits { down: Some(Down::Count(1)), ..Limits::default() };
    let crash = |ms, node| at(ms, 50, Fault::Crash(Crash { node: NodeId(node) }));
    let others = [crash(100, 2), crash(300, 3)];
    let room = |ms| {
        let (phases, planned) = ((phases(), None), (&[crash(0, 1)][..], &others[..]));
        limits.have_room(&crash(ms, 1), &scenario(5), phases, planned)
    };
    assert!(room(160) && room(240));
    assert!(!room(120), "another one is down");
    assert!(!room(280), "it would take the room of the next one");
}

#[test]
fn nothing_happens_in_a_quiet_period() {
    let (from, to) = (2_000 * MS, 9_000 * MS);
    let limits = Limits { quiet: vec![(from, to)], ..Limits::default() };
    for seed in 0..20 {
        for entry in planned(&limits, Log::new(0, seed)) {
            let (begin, end) = (entry.begin.0 - 500, entry.begin.0 - 500 + entry.duration);
            assert!(end < from || begin >= to, "{entry:?}");
        }
    }
}

#[test]
fn a_kind_hits_the_services_that_it_may_hit() {
    let only = BTreeMap::from([(Kind::Crash, vec![NodeId(3)]), (Kind::Reset, vec![NodeId(1)])]);
    let nodes: Vec<NodeId> = (1..=5).map(NodeId).collect();
    let plan = |only: &BTreeMap<Kind, Vec<NodeId>>| -> Vec<Drawn> {
        let aim = Aim { only, ..Aim::plain(&nodes) };
        let mut decisions = Decisions::seeded(4);
        draw(&profile(), aim, phases(), false, &mut decisions)
    };
    let (all, some) = (plan(&BTreeMap::new()), plan(&only));
    for Drawn { entry, .. } in &some {
        match &entry.fault {
            Fault::Crash(crash) => assert_eq!(crash.node, NodeId(3)),
            Fault::Reset(reset) => assert_eq!(reset.node, NodeId(1)),
            _ => assert!(all.iter().any(|other| other.entry == *entry), "{entry:?}"),
        }
    }
    assert!(some.iter().any(|drawn| drawn.entry.id.kind == Kind::Crash));
}

#[test]
fn a_machine_may_be_hit_if_one_of_its_services_may() {
    let mut scenario = scenario(5);
    scenario.planning.only =
        BTreeMap::from([(Kind::PowerFailure, vec![NodeId(5), NodeId(1)]), (Kind::Crash, vec![NodeId(5)])]);
    let (_, _, machines) = targets(&scenario);
    let only = only(&scenario, &machines);
    assert_eq!(only[&Kind::PowerFailure], [NodeId(1), NodeId(4)], "4 and 5 are on one machine");
    assert_eq!(only[&Kind::Crash], [NodeId(5)]);
}

/// The entries that remain of some under limits.
fn kept(limits: &Limits, entries: &[Planned], begun: &[Planned]) -> Vec<usize> {
    let drawn = entries.iter().map(|entry| Drawn::kept(entry.clone()));
    let kept = admitted(limits.admit(drawn.collect(), &scenario(5), (phases(), None), begun));
    (0..entries.len()).filter(|at| kept.contains(&entries[*at])).collect()
}

fn at(ms: u64, duration: u64, fault: Fault) -> Planned {
    let id = FaultId { kind: fault.kind(), target: fault.node().map_or(0, |node| node.0), nth: ms };
    Planned { id, begin: SimTime(500 + ms * MS), duration: duration * MS, fault }
}

#[test]
fn a_fault_of_one_container_takes_down_that_alone() {
    let limits = Limits { down: Some(Down::Count(1)), ..Limits::default() };
    // 4 and 5 are on one machine.
    for fault in [Fault::Starve(Starve { node: NodeId(4), which: 0 }), Fault::Stop(Stop { node: NodeId(4) })]
    {
        assert_eq!(kept(&limits, &[at(1, 5, fault)], &[]), [0]);
    }
    assert!(kept(&limits, &[at(1, 5, Fault::Pause(Pause { node: NodeId(4) }))], &[]).is_empty());
}

#[test]
fn a_fault_without_end_lasts_into_a_quiet_period() {
    let limits = Limits { quiet: vec![(2_000 * MS, 9_000 * MS)], ..Limits::default() };
    let skew = |ms| at(ms, 0, Fault::ClockSkew(ClockSkew { node: NodeId(1), by: 5 }));
    let reset = |ms| at(ms, 0, Fault::Reset(Reset { node: NodeId(1) }));
    assert_eq!(kept(&limits, &[skew(0), reset(1), skew(9_500), reset(9_501)], &[]), [1, 2, 3]);
}

#[test]
fn what_began_before_counts_in_the_budget() {
    let limits = Limits { down: Some(Down::Count(1)), ..Limits::default() };
    let crash = |ms, node| at(ms, 100, Fault::Crash(Crash { node: NodeId(node) }));
    let rest = [crash(50, 2), crash(150, 2)];
    assert_eq!(kept(&limits, &rest, &[]), [0, 1]);
    assert_eq!(kept(&limits, &rest, &[crash(1, 1)]), [1]);
}

#[test]
fn written_skew_is_as_it_was_drawn_and_has_no_end() {
    let mut scenario = scenario(3);
    let profile = FaultSpec::default().with_time(Kind::ClockSkew, (50 * MS, 50 * MS));
    let drawn = plan_of(&scenario, &profile, (phases(), None), (&[], None), &mut Decisions::seeded(8));
    assert_eq!(drawn.len(), 3);
    // With a schedule alone, no kind is on.
    scenario.faults.switch_off(Kind::ClockSkew);
    let written = |entry: &Planned| Scheduled {
        trigger: Trigger::At(0),
        kind: Kind::ClockSkew,
        nodes: vec![NodeId(entry.id.target)],
        what: What::As(8, entry.id),
        duration: None,
        most: Some(50 * MS),
        volume: None,
    };
    scenario.planning.schedule = drawn.iter().map(written).collect();
    let (again, _) = schedule::written(&scenario, phases(), &mut Decisions::seeded(3));
    let faults = |plan: &[Planned]| plan.iter().map(|e| (e.fault.clone(), e.duration)).collect::<Vec<_>>();
    assert_eq!(faults(&again), faults(&drawn));
}

#[test]
fn written_entries_have_names_of_their_own() {
    let id = FaultId::written(Kind::Crash, 2, 7);
    assert!(id.is_written() && id.place() == Some(7));
    assert!(!FaultId { kind: Kind::Crash, target: 2, nth: 7 }.is_written());
    let mut scenario = scenario(3);
    let entry = |kind, nodes, what, duration| Scheduled {
        trigger: Trigger::At(5 * MS),
        kind,
        nodes,
        what,
        duration,
        most: None,
        volume: None,
    };
    scenario.planning.schedule = vec![
        entry(Kind::Crash, vec![NodeId(2)], What::Drawn, Some(7)),
        entry(Kind::Partition, Vec::new(), What::Shape(bloodhound_faults::Shape::Isolate), None),
        entry(Kind::Reset, vec![NodeId(3)], What::Drawn, None),
    ];
    let written = |scenario: &Scenario| {
        let (mut plan, waiting) = schedule::written(scenario, phases(), &mut Decisions::seeded(3));
        assert!(waiting.is_empty());
        sort(&mut plan);
        plan
    };
    let plan = written(&scenario);
    assert_eq!(plan.len(), 3);
    assert!(plan.iter().all(|entry| entry.begin == SimTime(500 + 5 * MS) && entry.id.is_written()));
    let crash = plan.iter().find(|entry| entry.id.kind == Kind::Crash).expect("the crash");
    assert_eq!((crash.duration, &crash.fault), (7, &Fault::Crash(Crash { node: NodeId(2) })));
    let reset = plan.iter().find(|entry| entry.id.kind == Kind::Reset).expect("the reset");
    assert_eq!((reset.duration, &reset.fault), (0, &Fault::Reset(Reset { node: NodeId(3) })));
    // One without the others is as it was.
    scenario.planning.schedule[0].duration = Some(9);
    assert_eq!(written(&scenario)[1..].len(), 2);
    // What a seed drew is drawn again.
    let drawn = plan_of(&scenario, &profile(), (phases(), None), (&[], None), &mut Decisions::seeded(8));
    let one = drawn.iter().find(|entry| entry.id.kind == Kind::Partition).expect("a partition");
    let as_drawn = entry(Kind::Partition, Vec::new(), What::As(8, one.id), Some(one.duration));
    scenario.planning.schedule = vec![as_drawn];
    assert_eq!(written(&scenario)[0].fault, one.fault);
}

fn group(name: &str, nodes: &[u32]) -> ServiceGroup {
    ServiceGroup { name: name.to_owned(), nodes: nodes.iter().map(|node| NodeId(*node)).collect() }
}

fn of_groups() -> FaultSpec {
    FaultSpec::default()
        .with_rate(Kind::GroupPower, 3_000_000)
        .with_rate(Kind::GroupPartition, 3_000_000)
        .with_rate(Kind::RollingRestart, 3_000_000)
        .with_rate(Kind::Crash, 2_000_000)
}

#[test]
fn a_group_is_hit_as_a_whole_and_by_its_own_name() {
    let mut scenario = scenario(5);
    // 4 and 5 are on one machine.
    scenario.planning.groups = vec![group("a", &[1, 2]), group("b", &[5])];
    let plan = |scenario: &Scenario| {
        plan_of(scenario, &of_groups(), (phases(), None), (&[], None), &mut Decisions::seeded(5))
    };
    let whole = plan(&scenario);
    let ids = |list: &[u32]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
    for entry in &whole {
        let first = entry.id.target == 1;
        match &entry.fault {
            Fault::GroupPower(power) => {
                assert_eq!(power.nodes, if first { ids(&[1, 2]) } else { ids(&[4]) });
                assert_eq!(power.group, if first { "a" } else { "b" });
            }
            Fault::GroupPartition(cut) => {
                let (a, b) =
                    if first { (&[1, 2][..], &[3, 4, 5][..]) } else { (&[5][..], &[1, 2, 3, 4][..]) };
                assert_eq!((&cut.nodes, &cut.rest), (&ids(a), &ids(b)));
            }
            Fault::RollingRestart(RollingRestart(roll)) => {
                assert_eq!(roll.nodes, if first { ids(&[1, 2]) } else { ids(&[5]) })
            }
            fault => assert_eq!(fault.kind(), Kind::Crash),
        }
    }
    for kind in [Kind::GroupPower, Kind::GroupPartition, Kind::RollingRestart] {
        let of = |target| whole.iter().filter(|e| e.id.kind == kind && e.id.target == target).count();
        assert!(of(1) > 0 && of(2) > 0, "{kind}");
    }
    // Without the second one the first is hit as before.
    scenario.planning.only_groups = BTreeMap::from([(Kind::GroupPower, vec![1])]);
    let less = plan(&scenario);
    let second = |e: &&Planned| e.id.kind == Kind::GroupPower && e.id.target == 2;
    assert_eq!(less, whole.iter().filter(|e| !second(e)).cloned().collect::<Vec<_>>());
    // Where none is named, all services are one, of which nothing can be cut off.
    scenario.planning = Planning::default();
    let all = plan(&scenario);
    assert!(all.iter().any(|e| e.fault.rollout().is_some_and(|roll| roll.nodes.len() == 5)));
    assert!(!all.iter().any(|e| e.id.kind == Kind::GroupPartition));
}

#[test]
fn the_budget_counts_all_of_a_group() {
    let down = |count| Limits { down: Some(Down::Count(count)), ..Limits::default() };
    let ids = |list: &[u32]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
    let power = Fault::GroupPower(GroupPower { group: String::new(), nodes: ids(&[1, 4]) });
    let cut = Fault::GroupPartition(GroupPartition {
        group: String::new(),
        nodes: ids(&[1, 2]),
        rest: ids(&[3, 4, 5]),
    });
    // 4 and 5 are on one machine.
    assert!(kept(&down(2), &[at(1, 5, power.clone())], &[]).is_empty());
    assert_eq!(kept(&down(3), &[at(1, 5, power)], &[]), [0]);
    assert!(kept(&down(1), &[at(1, 5, cut.clone())], &[]).is_empty());
    assert_eq!(kept(&down(2), &[at(1, 5, cut)], &[]), [0]);
    // Of a rolling restart one is down at a time, whichever it is.
    let roll = |ms| {
        let rollout = Rollout { group: String::new(), nodes: ids(&[1, 2, 3]), pause: 0 };
        at(ms, 50, Fault::RollingRestart(RollingRestart(rollout)))
    };
    let crash = |ms, node| at(ms, 10, Fault::Crash(Crash { node: NodeId(node) }));
    assert_eq!(kept(&down(1), &[roll(1), crash(10, 1), crash(60, 1)], &[]), [0, 2]);
    assert_eq!(kept(&down(2), &[roll(1), crash(10, 1), crash(15, 2), crash(60, 1)], &[]), [0, 1, 3]);
    let spare = Limits { spare: ids(&[2]), ..Limits::default() };
    assert_eq!(kept(&spare, &[roll(1), crash(70, 1)], &[]), [1]);
    // Of two at a time two are.
    let upgrade = |ms| {
        let rollout = Rollout { group: String::new(), nodes: ids(&[1, 2]), pause: 0 };
        at(ms, 50, Fault::Upgrade(Upgrade(rollout)))
    };
    assert_eq!(kept(&down(1), &[roll(1), upgrade(10), upgrade(60)], &[]), [0, 2]);
    assert_eq!(kept(&down(2), &[roll(1), upgrade(10), crash(15, 5)], &[]), [0, 1]);
    assert_eq!(kept(&spare, &[upgrade(1)], &[]), [0; 0]);
}

/// Of a group those are upgraded for which there is something else, in their order; where there is none, nobody is.
#[test]
fn an_upgrade_is_about_those_that_have_one() {
    let faults = FaultSpec::default()
        .with_rate(Kind::Upgrade, 3_000_000)
        .with_rate(Kind::Downgrade, 3_000_000)
        .with_rate(Kind::RollingRestart, 3_000_000);
    let mut scenario = scenario(5);
    scenario.planning.groups = vec![
        ServiceGroup { name: "a".into(), nodes: vec![NodeId(3), NodeId(2), NodeId(1)] },
        ServiceGroup { name: "b".into(), nodes: vec![NodeId(4)] },
    ];
    let plan = |scenario: &Scenario| {
        let mut decisions = Decisions::seeded(7);
        plan_of(scenario, &faults, (phases(), None), (&[], None), &mut decisions)
    };
    let without = plan(&scenario);
    assert!(without.iter().all(|entry| entry.id.kind == Kind::RollingRestart) && !without.is_empty());
    for node in [1, 3] {
        let upgraded = Upgraded { name: "next".into(), spec: scenario.services[node - 1].clone() };
        scenario.planning.upgrades.insert(NodeId(node as u32), upgraded);
    }
    let with = plan(&scenario);
    let of = |kind| with.iter().filter(move |entry| entry.id.kind == kind);
    for kind in [Kind::Upgrade, Kind::Downgrade] {
        assert!(of(kind).count() > 0);
        for entry in of(kind) {
            let rollout = entry.fault.rollout().expect("one");
            assert_eq!((&rollout.group[..], &rollout.nodes[..]), ("a", &[NodeId(3), NodeId(1)][..]));
            let setting = faults.get(kind);
            assert!((setting.size.0..=setting.size.1).contains(&rollout.pause));
        }
    }
    assert!(of(Kind::RollingRestart).eq(without.iter()), "one more kind changes no other");
}

#[test]
fn so_many_disks_at_most_have_faults() {
    let limits = Limits { disks: Some(1), ..Limits::default() };
    let full = |ms, node| at(ms, 10, Fault::DiskFull(DiskFull { place: DiskPlace::of(NodeId(node)) }));
    let replace = |ms, node| at(ms, 10, Fault::Replace(Replace { node: NodeId(node) }));
    // 4 and 5 have one disk.
    let entries = [full(1, 4), full(5, 5), full(8, 1), replace(20, 1), full(25, 2), full(40, 2)];
    assert_eq!(kept(&limits, &entries, &[]), [0, 1, 3, 5]);
    let none = Limits { disks: Some(0), ..Limits::default() };
    assert!(kept(&none, &[full(1, 1), replace(2, 2)], &[]).is_empty());
    // Where operations meet faults, which disks may have them is drawn once.
    let mut scenario = scenario(5);
    scenario.planning.limits = limits.clone();
    let asked = FaultSpec::default().with_rate(Kind::WriteFail, 5).with_rate(Kind::DiskFull, 20_000_000);
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        let mut decisions = Decisions::seeded(seed);
        let disks = disks_at_risk(&scenario, &asked, (Epoch::default(), &BTreeSet::new()), &mut decisions)
            .expect("a set");
        assert_eq!(disks.len(), 1);
        let plan = plan_of(&scenario, &asked, (phases(), Some(&disks)), (&[], None), &mut decisions);
        let machine = |node| if node == 5 { 4 } else { node };
        assert!(plan.iter().all(|entry| disks.contains(&MachineId(machine(entry.id.target)))));
        seen.extend(disks);
    }
    assert_eq!(seen.len(), 4, "each has its turn");
    let none = (Epoch::default(), &BTreeSet::new());
    assert_eq!(disks_at_risk(&scenario, &profile(), none, &mut Decisions::seeded(1)), None);
    // One that is harmed already is the one.
    let harmed = (Epoch::at(9), &BTreeSet::from([MachineId(2)]));
    let disks = disks_at_risk(&scenario, &asked, harmed, &mut Decisions::seeded(1));
    assert_eq!(disks, Some(BTreeSet::from([MachineId(2)])));
}

#[test]
fn what_is_not_written_is_not_in_the_inputs() {
    assert_eq!(
        format!("{:?}", Planning::default()),
        "Planning { schedule: [], limits: Limits { down: None, recovery: 0, spare: [], quiet: [] }, only: {} }"
    );
}
