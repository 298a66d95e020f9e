//! The fabric: each kind of partition, healing exactly one, rates, order, bandwidth, nodes that are down.

mod common;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Decisions, Place};
use bloodhound_net::*;
use common::*;

fn n(id: u32) -> NodeId {
    NodeId(id)
}

fn packet(from: usize, to: usize, len: usize) -> Packet {
    nth_packet(from, to, len, 0)
}

/// The n-th packet of its kind; each has fates of its own.
fn nth_packet(from: usize, to: usize, len: usize, n: u64) -> Packet {
    let place = Place { offset: n as u32, ..Place::default() };
    Packet {
        src: at(from, 1),
        dst: at(to, 2),
        body: Body::Udp(Header::default(), Bytes::from(vec![0; len])),
        place,
    }
}

fn fabric(nodes: usize, link: LinkConfig) -> (Fabric, Decisions) {
    let mut fabric = Fabric::new(link);
    for node in 0..nodes {
        fabric.add_node(n(node as u32), &[ip(node)]);
    }
    (fabric, Decisions::seeded(1))
}

/// Which directed pairs of nodes can talk, as lines of "0>1".
fn reach(fabric: &mut Fabric, nodes: usize) -> Vec<String> {
    let mut open = Vec::new();
    let mut decisions = Decisions::seeded(1);
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            let routed = fabric.route(packet(from, to, 1), n(from as u32), SimTime::ZERO, &mut decisions);
            assert_eq!(routed.first.is_some(), routed.dropped.is_none());
            if routed.first.is_some() {
                open.push(format!("{from}>{to}"));
            }
        }
    }
    open
}

#[test]
fn each_kind_of_partition_blocks_what_it_says() {
    let cases = [
        (PartitionKind::Symmetric(vec![n(0)], vec![n(1), n(2)]), "1>2 1>3 0>3 2>1 2>3 3>0 3>1 3>2"),
        (PartitionKind::MajorityMinority(vec![n(1), n(2), n(3)], vec![n(0)]), "1>2 1>3 2>1 2>3 3>1 3>2"),
        (PartitionKind::OneWay(vec![n(0)], vec![n(1), n(2), n(3)]), "1>0 1>2 1>3 2>0 2>1 2>3 3>0 3>1 3>2"),
        (PartitionKind::Isolate(n(2), vec![n(0), n(1), n(2), n(3)]), "0>1 0>3 1>0 1>3 3>0 3>1"),
        (
            PartitionKind::Bridge(n(3), vec![n(0), n(3)], vec![n(1), n(2), n(3)]),
            "0>3 1>2 1>3 2>1 2>3 3>0 3>1 3>2",
        ),
    ];
    for (kind, open) in cases {
        let (mut fabric, _) = fabric(4, LinkConfig::default());
        let id = fabric.partition(kind.clone());
        let mut expected: Vec<&str> = open.split(' ').collect();
        expected.sort_unstable();
        assert_eq!(reach(&mut fabric, 4), expected, "{kind:?}");
        assert!(fabric.heal(id));
        assert_eq!(reach(&mut fabric, 4).len(), 12);
    }
}

#[test]
fn a_heal_removes_exactly_its_partition() {
    let (mut fabric, mut decisions) = fabric(3, LinkConfig::default());
    let first = fabric.partition(PartitionKind::Symmetric(vec![n(0)], vec![n(1)]));
    let second = fabric.partition(PartitionKind::Isolate(n(0), vec![n(1), n(2)]));
    let mut why =
        |fabric: &mut Fabric, to| fabric.route(packet(0, to, 1), n(0), SimTime::ZERO, &mut decisions).dropped;
    assert_eq!(why(&mut fabric, 1), Some(DropReason::Partition(first)));
    assert!(fabric.heal(first));
    assert!(!fabric.heal(first), "only once");
    assert_eq!(why(&mut fabric, 1), Some(DropReason::Partition(second)));
    assert_eq!(why(&mut fabric, 2), Some(DropReason::Partition(second)));
    let third = fabric.partition(PartitionKind::OneWay(vec![n(0)], vec![n(2)]));
    assert!(fabric.heal(second));
    assert_eq!(why(&mut fabric, 1), None);
    assert_eq!(why(&mut fabric, 2), Some(DropReason::Partition(third)));
    assert_eq!(fabric.partitions().map(|(id, _)| id).collect::<Vec<_>>(), [third]);
    fabric.heal_all();
    assert_eq!(reach(&mut fabric, 3).len(), 6);
    assert_ne!(fabric.partition(PartitionKind::Isolate(n(0), vec![])), third, "ids are not used again");
}

#[test]
fn members_reach_each_other_in_common_networks_only() {
    let mut fabric = Fabric::new(LinkConfig::default());
    let a = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    fabric.add_member(n(0), &[(a("10.1.0.2"), 16)]);
    fabric.add_member(n(1), &[(a("10.1.0.3"), 16), (a("10.2.0.3"), 16)]);
    fabric.add_member(n(2), &[(a("10.2.0.4"), 16)]);
    fabric.add_node(n(3), &[a("10.254.0.1")]);
    let mut decisions = Decisions::seeded(1);
    let mut passes = |from: u32, to: &str| {
        let packet = Packet { dst: (a(to), 2).into(), ..packet(0, 1, 1) };
        fabric.route(packet, n(from), SimTime::ZERO, &mut decisions).dropped
    };
    let other = Some(DropReason::OtherNetwork);
    assert_eq!(passes(0, "10.1.0.3"), None);
    assert_eq!(passes(1, "10.1.0.2"), None);
    assert_eq!(passes(0, "10.2.0.3"), other, "the other side of a neighbour");
    assert_eq!(passes(0, "10.2.0.4"), other);
    assert_eq!(passes(2, "10.1.0.2"), other);
    assert_eq!(passes(1, "10.2.0.4"), None);
    for to in ["10.1.0.2", "10.1.0.3", "10.2.0.3", "10.2.0.4"] {
        assert_eq!(passes(3, to), None, "from outside to {to}");
    }
    for from in 0..3 {
        assert_eq!(passes(from, "10.254.0.1"), None, "the way back to the outside");
    }
}

#[test]
fn unknown_addresses_and_dead_nodes_get_nothing() {
    let (mut fabric, mut decisions) = fabric(2, LinkConfig::default());
    let mut why = |fabric: &mut Fabric, from: usize, to: usize| {
        fabric.route(packet(from, to, 1), n(from as u32), SimTime::ZERO, &mut decisions).dropped
    };
    assert_eq!(why(&mut fabric, 0, 9), Some(DropReason::NoRoute));
    fabric.set_down(n(1), true);
    assert_eq!(why(&mut fabric, 0, 1), Some(DropReason::NodeDown(n(1))));
    assert_eq!(why(&mut fabric, 1, 0), Some(DropReason::NodeDown(n(1))));
    fabric.set_down(n(1), false);
    assert_eq!(why(&mut fabric, 0, 1), None);
    fabric.add_node(n(7), &[ip(1)]);
    assert_eq!(fabric.node_of(ip(1)), Some(n(7)), "addresses move");
}

#[test]
fn rates_are_met_and_switched_off_faults_draw_nothing() {
    let link = LinkConfig {
        loss: 100_000_000,
        corrupt: 50_000_000,
        duplicate: 200_000_000,
        reorder: 250_000_000,
        reorder_delay: MS,
        delay: 300_000_000,
        delay_max: 10 * MS,
        ..LinkConfig::default()
    };
    let (mut bad, mut decisions) = fabric(2, link);
    let (mut lost, mut corrupt, mut twice, mut late, mut held) = (0, 0, 0, 0, 0);
    for i in 0..20_000u64 {
        let routed = bad.route(nth_packet(0, 1, 1, i), n(0), SimTime(i * MS), &mut decisions);
        lost += u32::from(routed.dropped == Some(DropReason::Loss));
        corrupt += u32::from(routed.dropped == Some(DropReason::Corrupt));
        twice += u32::from(routed.second.is_some());
        late += u32::from(routed.mishaps.reordered > 0);
        held += u32::from(routed.mishaps.delay > 0);
    }
    for (count, low, high) in
        [(lost, 1900, 2100), (corrupt, 840, 960), (twice, 3300, 3550), (late, 4150, 4400), (held, 3700, 4000)]
    {
        assert!((low..high).contains(&count), "{count} is not within {low}..{high}");
    }
    let (mut good, mut decisions) = fabric(2, LinkConfig::default());
    let before = decisions.trail();
    good.route(packet(0, 1, 1), n(0), SimTime::ZERO, &mut decisions);
    assert_eq!(decisions.trail(), before);
}

#[test]
fn jitter_and_delays_keep_the_order_and_reordering_does_not() {
    let arrivals = |link: LinkConfig| {
        let (mut fabric, mut decisions) = fabric(2, link);
        let mut at = Vec::new();
        for i in 0..2000u64 {
            let routed = fabric.route(nth_packet(0, 1, 1, i), n(0), SimTime(i * 10_000), &mut decisions);
            at.extend(routed.first.map(|d| d.at));
        }
        at
    };
    let jittery = LinkConfig { jitter: MS, delay: 50_000_000, delay_max: 20 * MS, ..LinkConfig::default() };
    assert!(arrivals(jittery.clone()).is_sorted());
    let shuffled = LinkConfig { reorder: 50_000_000, reorder_delay: MS, ..jittery };
    assert!(!arrivals(shuffled).is_sorted());
}

#[test]
fn a_thin_link_spaces_packets() {
    let (mut fabric, mut decisions) =
        fabric(2, LinkConfig { bandwidth: Some(1_000_000), ..LinkConfig::default() });
    let mut at = |time| {
        let routed = fabric.route(packet(0, 1, 972), n(0), SimTime(time), &mut decisions);
        routed.first.map(|d| d.at.0)
    };
    // 1000 bytes on the wire at 1 MB/s take a millisecond each.
    assert_eq!([at(0), at(0), at(0)], [Some(1_200_000), Some(2_200_000), Some(3_200_000)]);
    assert_eq!(at(100 * MS), Some(101_200_000), "an idle link is free");
}

#[test]
fn links_are_directed() {
    let (mut fabric, _) = fabric(2, LinkConfig::default());
    let dead = LinkConfig { loss: 1_000_000_000, ..LinkConfig::default() };
    fabric.set_link(n(0), n(1), Some(dead.clone()));
    assert_eq!(reach(&mut fabric, 2), ["1>0"]);
    assert_eq!(fabric.link(n(0), n(1)), &dead);
    fabric.set_link(n(0), n(1), None);
    assert_eq!(reach(&mut fabric, 2), ["0>1", "1>0"]);
    fabric.set_default_link(dead);
    assert_eq!(reach(&mut fabric, 2), Vec::<String>::new());
}

/// Loopback works on a node that is cut off and whose links lose everything.
#[test]
fn loopback_is_never_faulted() {
    let dead = LinkConfig { loss: 1_000_000_000, ..LinkConfig::default() };
    let mut net = Net::new(1, dead, 1);
    net.fabric.set_down(n(0), true);
    for to in [lo(80), at(0, 80)] {
        let listener = net.listener(0, to.port(), 5);
        let client = net.start(0, to);
        net.run(MS);
        let (server, _) = net.stacks[0].accept(listener).expect("accept");
        net.send(0, client, b"still here").expect("send");
        net.run(MS);
        assert_eq!(net.recv(0, server, 99).as_deref(), Ok(&b"still here"[..]));
        net.close(0, listener);
        net.close(0, server);
        net.close(0, client);
        net.run(61 * SEC);
    }
    assert!(net.log.is_empty() && net.decisions.trail() == 0);
}

/// The fate of a packet depends on nothing but its place: not on which others there are, nor on which of its fates are switched on.
#[test]
fn fates_do_not_depend_on_other_packets_or_other_faults() {
    let lossy = LinkConfig { loss: 200_000_000, ..LinkConfig::default() };
    let all = LinkConfig {
        jitter: MS,
        duplicate: 300_000_000,
        reorder: 300_000_000,
        reorder_delay: MS,
        delay: 300_000_000,
        delay_max: MS,
        ..lossy.clone()
    };
    let lost = |link: LinkConfig, sent: &mut dyn Iterator<Item = u64>| {
        let (mut fabric, mut decisions) = fabric(2, link);
        let mut lost = Vec::new();
        for i in sent {
            let routed = fabric.route(nth_packet(0, 1, 1, i), n(0), SimTime(MS), &mut decisions);
            lost.extend(routed.dropped.map(|_| i));
        }
        lost
    };
    let expected = lost(lossy.clone(), &mut (0..1000));
    assert!((150..250).contains(&expected.len()));
    assert_eq!(lost(all, &mut (0..1000)), expected);
    let even: Vec<u64> = expected.iter().copied().filter(|i| i % 2 == 0).collect();
    assert_eq!(lost(lossy, &mut (0..1000).step_by(2)), even);
}
