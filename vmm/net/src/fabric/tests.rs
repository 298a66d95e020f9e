//! What links, holes and networks do to packets.

use super::*;
use crate::{Bytes, Segment};
use bloodhound_decisions::Place;

fn end(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

fn segment(src: SocketAddr, dst: SocketAddr, flags: Flags, data: usize) -> Packet {
    let control = Segment::control(1, 1, flags, 100);
    let body = Body::Tcp(Segment { payload: Bytes::from(vec![0; data]), ..control });
    Packet { src, dst, body, place: Place::default() }
}

#[test]
fn holes_swallow_what_they_are_for_and_nothing_else() {
    let mut fabric = Fabric::new(LinkConfig::default());
    let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
    for node in &nodes {
        fabric.add_node(*node, &[end(node.0 as u8, 0).ip()]);
    }
    let mut decisions = Decisions::seeded(1);
    let mut lost = |fabric: &mut Fabric, packet: &Packet| {
        let from = fabric.node_of(packet.src.ip()).expect("a node");
        let routed = fabric.route(packet.clone(), from, SimTime(0), &mut decisions);
        routed.dropped.is_some_and(|reason| matches!(reason, DropReason::Hole(_)))
    };
    let (client, server) = (end(1, 4000), end(2, 80));
    let (large, fits) = (1400, 1240);
    let data = |len| segment(client, server, Flags::ACK, len);
    let back = |len| segment(server, client, Flags::ACK, len);
    let aside = segment(client, end(3, 80), Flags::ACK, large);

    let id = fabric.open_hole(Hole::Larger(nodes[1], 1280));
    for (packet, gone) in [(data(large), true), (back(large), true), (data(fits), false)] {
        assert_eq!(lost(&mut fabric, &packet), gone, "{packet}");
    }
    assert!(!lost(&mut fabric, &aside), "another node's");
    assert!(fabric.close_hole(id) && !fabric.close_hole(id));
    assert!(!lost(&mut fabric, &data(large)));

    let id = fabric.open_hole(Hole::Connection(server, client));
    assert!(lost(&mut fabric, &data(0)) && lost(&mut fabric, &back(0)));
    assert!(!lost(&mut fabric, &segment(end(1, 4001), server, Flags::ACK, 1)), "another connection");
    fabric.close_hole(id);

    let id = fabric.open_hole(Hole::Fin(nodes[0]));
    let fin = segment(client, server, Flags::FIN | Flags::ACK, 0);
    assert!(lost(&mut fabric, &fin) && !lost(&mut fabric, &data(1)));
    assert!(!lost(&mut fabric, &segment(server, client, Flags::FIN | Flags::ACK, 0)), "another node's");
    assert!(fabric.close_hole(id));

    fabric.open_hole(Hole::Syn(nodes[1]));
    assert!(lost(&mut fabric, &segment(client, server, Flags::SYN, 0)));
    assert!(!lost(&mut fabric, &segment(server, client, Flags::SYN, 0)), "from the node");
    assert!(!lost(&mut fabric, &segment(client, server, Flags::SYN | Flags::ACK, 0)), "an answer");
    assert!(!lost(&mut fabric, &data(1)), "a connection that is open");
    fabric.heal_all();
    assert!(!lost(&mut fabric, &segment(client, server, Flags::SYN, 0)));
}

#[test]
fn a_bit_of_the_data_is_changed_as_often_as_is_asked_for() {
    let link = LinkConfig { corrupt_pass: 250_000_000, ..LinkConfig::default() };
    let mut fabric = Fabric::new(link);
    fabric.add_node(NodeId(1), &[end(1, 0).ip()]);
    fabric.add_node(NodeId(2), &[end(2, 0).ip()]);
    let mut decisions = Decisions::seeded(7);
    let mut changed = 0;
    for nth in 0..2_000 {
        let mut packet = segment(end(1, 4000), end(2, 80), Flags::ACK, 100);
        packet.place.offset = nth;
        let routed = fabric.route(packet, NodeId(1), SimTime(0), &mut decisions);
        let Body::Tcp(s) = &routed.first.as_ref().expect("it arrives").packet.body else { panic!() };
        let bits: u32 = s.payload.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(u64::from(bits), routed.mishaps.changed.min(1));
        changed += bits;
    }
    assert!(changed.abs_diff(500) < 5 * 20, "{changed}");
    let empty = segment(end(1, 4000), end(2, 80), Flags::ACK, 0);
    let routed = fabric.route(empty, NodeId(1), SimTime(0), &mut decisions);
    assert_eq!(routed.mishaps.changed, 0, "there is nothing to change");
}

#[test]
fn the_last_address_of_a_network_is_its_broadcast_address() {
    let mut fabric = Fabric::new(LinkConfig::default());
    let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
    let node = NodeId(1);
    fabric.add_member(node, &[(ip("10.89.0.2"), 16), (ip("10.1.2.4"), 31), (ip("fd00::2"), 64)]);
    assert!(fabric.is_own_broadcast(node, ip("10.89.255.255")));
    assert!(fabric.is_own_broadcast(node, ip("::ffff:10.89.255.255")));
    // A host of its network, one of another network, and one of a network without a broadcast address.
    for other in ["10.89.1.255", "93.184.216.255", "10.1.2.5", "fd00::ffff:ffff:ffff:ffff"] {
        assert!(!fabric.is_own_broadcast(node, ip(other)), "{other}");
    }
    assert!(!fabric.is_own_broadcast(NodeId(2), ip("10.89.255.255")));
}
