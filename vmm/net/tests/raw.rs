//! Raw and echo sockets over the fabric: answers, copies, reports, and the fates of their packets.

mod common;

use bloodhound_net::*;
use common::*;
use std::net::{IpAddr, SocketAddr};

/// An echo request of ICMP with a right checksum.
fn request(seq: u16) -> Vec<u8> {
    let mut out = vec![8, 0, 0, 0, 0x12, 0x34];
    out.extend_from_slice(&seq.to_be_bytes());
    out.extend_from_slice(b"data");
    let sum: u32 = out.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) as u16 + (sum >> 16) as u16);
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    out
}

fn host(node: usize) -> SocketAddr {
    SocketAddr::new(ip(node), 0)
}

/// Sends a request from node 0 to node 1.
fn ping(net: &mut Net, id: SocketId, seq: u16) {
    let now = net.now;
    let sent = net.stacks[0].send_to(id, &request(seq), Some(host(1)), now);
    assert_eq!(sent, Ok(12));
}

/// Sequence numbers of the answers that came.
fn answers(net: &mut Net, id: SocketId, at: usize) -> Vec<u16> {
    let mut out = Vec::new();
    while let Ok(datagram) = net.stacks[0].recv_from(id, false) {
        assert_eq!(datagram.data[at], 0, "an echo reply");
        out.push(u16::from_be_bytes([datagram.data[at + 6], datagram.data[at + 7]]));
    }
    out
}

#[test]
fn another_node_answers_unless_it_is_cut_off() {
    let mut net = Net::new(3, LinkConfig::default(), 1);
    let raw = net.stacks[0].raw_socket(false, 1);
    let echo = net.stacks[0].ping_socket(false);
    ping(&mut net, raw, 1);
    ping(&mut net, echo, 2);
    net.run(SEC);
    // The raw socket sees both answers with their headers, the other one that of its identifier.
    assert_eq!(answers(&mut net, raw, 20), [1, 2]);
    assert_eq!(answers(&mut net, echo, 0), [2]);
    let partition =
        net.fabric.partition(PartitionKind::Symmetric(vec![NodeId(0)], vec![NodeId(1), NodeId(2)]));
    ping(&mut net, raw, 3);
    ping(&mut net, echo, 4);
    net.run(SEC);
    assert_eq!(answers(&mut net, raw, 20), []);
    assert_eq!(answers(&mut net, echo, 0), []);
    net.fabric.heal(partition);
    ping(&mut net, echo, 5);
    net.run(SEC);
    assert_eq!(answers(&mut net, echo, 0), [5]);
}

#[test]
fn each_packet_has_a_fate_of_its_own() {
    let run = |seed| {
        let mut net = Net::new(2, LinkConfig { loss: 300_000_000, ..LinkConfig::default() }, seed);
        let echo = net.stacks[0].ping_socket(false);
        for seq in 0..100 {
            ping(&mut net, echo, seq);
            net.run(10 * MS);
        }
        (answers(&mut net, echo, 0), net.digest())
    };
    let (got, digest) = run(1);
    assert!((25..75).contains(&got.len()), "half of them: {}", got.len());
    assert_eq!(run(1), (got.clone(), digest));
    assert_ne!(run(2).0, got);
}

#[test]
fn packets_of_one_stream_have_names_of_their_own() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (a, b) = (net.stacks[0].raw_socket(false, 1), net.stacks[1].raw_socket(false, 1));
    for seq in 0..3 {
        ping(&mut net, a, seq);
        let now = net.now;
        net.stacks[1].send_to(b, &request(seq), Some(host(0)), now).expect("sent");
        net.run(SEC);
    }
    let mut seen = std::collections::BTreeSet::new();
    for (_, packet, _) in &net.log {
        assert!(seen.insert((packet.src, packet.dst, packet.place)), "two packets have one name: {packet:?}");
    }
    assert_eq!(seen.len(), 12);
}

#[test]
fn a_report_reaches_the_socket_of_the_packet() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let icmp = net.stacks[0].raw_socket(false, 1);
    let udp = net.stacks[0].udp_socket(false);
    let now = net.now;
    net.stacks[0].connect(udp, at(1, 9), now).expect("connected");
    net.stacks[0].send(udp, b"x", false, now).expect("sent");
    net.run(SEC);
    assert_eq!(net.stacks[0].recv_from(udp, false).err(), Some(bloodhound_abi::Errno::ECONNREFUSED));
    let copy = net.stacks[0].recv_from(icmp, false).expect("a copy");
    assert_eq!(copy.data[20..22], [3, 3]);
    assert_eq!(copy.src.ip(), ip(1));
    // Of the packet it quotes both ends.
    assert_eq!(copy.data[28 + 16..28 + 20], [10, 0, 0, 2]);
    assert_eq!(copy.data[28 + 22..28 + 24], 9u16.to_be_bytes());
}

#[test]
fn a_stranger_of_a_connection_is_reset() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let tcp = net.stacks[0].raw_socket(false, 6);
    net.listener(1, 80, 5);
    let mut syn = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0];
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => unreachable!("nodes have addresses of IPv4"),
    };
    let pseudo = [&octets(ip(0))[..], &octets(ip(1)), &[0, 6, 0, 20], &syn].concat();
    let sum: u32 = pseudo.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) as u16).wrapping_add((sum >> 16) as u16);
    syn[16..18].copy_from_slice(&sum.to_be_bytes());
    let now = net.now;
    net.stacks[0].send_to(tcp, &syn, Some(host(1)), now).expect("sent");
    net.run(100 * MS);
    // The listener answers; the own stack knows of no such connection and resets it.
    let answer = net.stacks[0].recv_from(tcp, false).expect("an answer");
    assert_eq!(answer.data[20 + 13], 0x12, "SYN and ACK");
    let flags: Vec<bool> = net.log.iter().map(|(_, packet, _)| matches!(packet.body, Body::Tcp(_))).collect();
    assert_eq!(flags, [false, true, true]);
}
