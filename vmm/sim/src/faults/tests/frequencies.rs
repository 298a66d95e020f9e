//! How often faults of each kind happen, against what is asked for; and that no kind changes a draw of another one, for all pairs. Kinds that are
//! asked for at operations of programs are tested where they are asked (`bloodhound-kernel`'s `hazards`).
//!
//! Seeds are fixed, so each figure is always the same. The bound is five standard deviations: of a right generator one seed in a
//! million is outside of it.

use super::super::plan::{Aim, Drawn, draw};
use super::super::planning::Grouped;
use super::super::*;
use bloodhound_decisions::Place;
use bloodhound_faults::Begins;
use bloodhound_net::{Body, Bytes, DropReason, Fabric, Header, LinkConfig, Packet, Routed};
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
/// Time steps at which a fault can begin.
const STEPS: u64 = 1_999;
/// One time step or packet in so many.
const ONE_IN: u64 = 1_000;

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::DECLARATIONS.iter().map(|declaration| declaration.kind)
}

/// Whether a count is as is to be expected of many independent trials.
fn is_near(count: u64, expected: u64) -> bool {
    count.abs_diff(expected) < 5 * expected.isqrt()
}

/// A profile with some kinds, all at one rate, or for a time if they have no rate.
fn with(kinds: &[Kind], rate: u32) -> FaultSpec {
    kinds.iter().fold(FaultSpec::default(), |spec, kind| {
        let spec = spec.with_rate(*kind, rate);
        if kind.declaration().switch().is_some() { spec } else { spec.with_time(*kind, (50 * MS, 50 * MS)) }
    })
}

/// What a seed draws of a profile for three services on two machines, in two groups.
fn plan(profile: &FaultSpec, seed: u64) -> Vec<Planned> {
    let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
    let group = |number, of: &[NodeId], rest: &[NodeId]| Grouped {
        number,
        name: format!("zone{number}"),
        nodes: of.to_vec(),
        upgrades: of.to_vec(),
        machines: of[..1].to_vec(),
        stacks: of.to_vec(),
        rest: rest.to_vec(),
    };
    let groups = [group(1, &nodes[..2], &nodes[2..]), group(2, &nodes[2..], &nodes[..2])];
    let aim = Aim { machines: &nodes[..2], groups: &groups, ..Aim::plain(&nodes) };
    let end = SimTime(500 + (STEPS + 1) * 10 * MS);
    let phases = Phases { begin: SimTime(500), end, step: 10 * MS, ..Phases::default() };
    let drawn = draw(profile, aim, phases, false, &mut Decisions::seeded(seed));
    drawn.into_iter().map(|Drawn { entry, .. }| entry).collect()
}

/// How many chains of entries a kind has in such a plan.
fn chains(kind: Kind) -> u64 {
    match kind.declaration().begins {
        Begins::ByNode => 3,
        Begins::ByMachine | Begins::ByGroup => 2,
        Begins::ByNetwork => 1,
        // They are no matter of chance, or of no plan.
        Begins::Standing | Begins::Link | Begins::Asked => 0,
    }
}

#[test]
fn each_kind_of_the_plan_comes_as_often_as_is_asked_for() {
    const SEEDS: u64 = 300;
    let all: Vec<Kind> = kinds().filter(|kind| chains(*kind) > 0).collect();
    let profile = with(&all, 1_000_000_000 / ONE_IN as u32);
    let mut counts = BTreeMap::new();
    for entry in (0..SEEDS).flat_map(|seed| plan(&profile, seed)) {
        *counts.entry(entry.id.kind).or_insert(0u64) += 1;
        assert_eq!(entry.fault.kind(), entry.id.kind);
        let target = (entry.id.target > 0 && !entry.id.kind.declaration().has_group())
            .then_some(NodeId(entry.id.target));
        assert!(target.is_none() || entry.fault.node() == target, "{entry:?}");
    }
    for kind in all {
        let expected = STEPS * SEEDS * chains(kind) / ONE_IN;
        let count = counts.get(&kind).copied().unwrap_or_default();
        assert!(is_near(count, expected), "{kind}: {count} instead of {expected}");
    }
}

/// Of the plan, that is; kinds of links and of operations have no part in it, and leave it as it is.
#[test]
fn no_kind_changes_an_entry_of_another_one() {
    let rate = 3_000_000;
    let alone: BTreeMap<Kind, Vec<Planned>> =
        kinds().map(|kind| (kind, plan(&with(&[kind], rate), 4))).collect();
    for first in kinds() {
        for second in kinds().filter(|second| *second != first) {
            let of = |kind| {
                let both = plan(&with(&[first, second], rate), 4).into_iter();
                both.filter(|entry| entry.id.kind == kind).collect::<Vec<_>>()
            };
            assert_eq!(of(second), alone[&second], "{first} beside {second}");
        }
    }
    let drawn = alone.values().filter(|plan| !plan.is_empty()).count();
    assert_eq!(drawn, kinds().filter(|kind| kind.declaration().is_timed()).count());
}

/// Kinds of packets that happen to some of them.
fn of_packets() -> Vec<Kind> {
    let rated = |kind: &Kind| {
        let declaration = kind.declaration();
        declaration.begins == Begins::Link && declaration.switch().is_some() && !declaration.is_of_names()
    };
    kinds().filter(rated).collect()
}

/// Whether a packet was hit by a kind.
fn is_hit(kind: Kind, routed: &Routed) -> bool {
    match kind {
        Kind::Drop => routed.dropped == Some(DropReason::Loss),
        Kind::Corrupt => routed.dropped == Some(DropReason::Corrupt),
        Kind::Delay => routed.mishaps.delay > 0,
        Kind::Reorder => routed.mishaps.reordered > 0,
        Kind::Duplicate => routed.second.is_some(),
        Kind::CorruptPass => routed.mishaps.changed > 0,
        Kind::BadChecksum => routed.mishaps.damaged,
        _ => panic!("{kind}: how does it show that a packet was hit?"),
    }
}

/// What becomes of so many packets from one node to another, far from each other in time.
fn routed(profile: &FaultSpec, count: u32) -> Vec<Routed> {
    let mut link = LinkConfig::default();
    links::apply(profile, &mut link);
    let end = |last: u8| SocketAddr::from(([10, 0, 0, last], 4000));
    let mut fabric = Fabric::new(link);
    for node in [1, 2] {
        fabric.add_node(NodeId(node), &[end(node as u8).ip()]);
    }
    let mut decisions = Decisions::seeded(6);
    let packet = |nth: u32| Packet {
        src: end(1),
        dst: end(2),
        body: Body::Udp(
            Header { hops: 64, class: 0, lite: false, damaged: false },
            Bytes::from(vec![7; 100]),
        ),
        place: Place { offset: nth, ..Place::default() },
    };
    let route =
        |nth| fabric.route(packet(nth), NodeId(1), SimTime(u64::from(nth) * 1_000 * MS), &mut decisions);
    (0..count).map(route).collect()
}

#[test]
fn each_kind_of_packets_hits_as_many_as_is_asked_for() {
    for kind in of_packets() {
        let packets = routed(&with(&[kind], 50_000_000), 20_000);
        let hits = packets.iter().filter(|routed| is_hit(kind, routed)).count() as u64;
        assert!(is_near(hits, 1_000), "{kind}: {hits} instead of 1000");
        let others = of_packets().into_iter().filter(|other| *other != kind);
        let other_hits =
            others.map(|other| packets.iter().filter(|r| is_hit(other, r)).count()).sum::<usize>();
        assert_eq!(other_hits, 0, "{kind} alone is on");
    }
}

/// A packet that one kind leaves alone meets of another one what it meets without the first; one that is lost or overtaken may meet less.
#[test]
fn no_kind_of_packets_changes_a_draw_of_another_one() {
    let rate = 300_000_000;
    let alone: BTreeMap<Kind, Vec<Routed>> =
        of_packets().into_iter().map(|kind| (kind, routed(&with(&[kind], rate), 1_000))).collect();
    for first in of_packets() {
        for second in of_packets().into_iter().filter(|second| *second != first) {
            let both = routed(&with(&[first, second], rate), 1_000);
            let mut together = 0;
            for (routed, without) in both.iter().zip(&alone[&second]) {
                let (hit, hit_without) = (is_hit(second, routed), is_hit(second, without));
                let spared = is_hit(first, routed);
                assert!(hit == hit_without || (spared && !hit), "{second} beside {first}");
                together += u32::from(hit_without);
            }
            assert!(together > 200, "{second}: {together}");
        }
    }
}
