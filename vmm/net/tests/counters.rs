//! What the stacks count of packets, datagrams and connections.

mod common;

use bloodhound_net::*;
use common::*;

/// Bytes of a packet on a network of Ethernet, without what it carries: of Ethernet, IPv4 and UDP or TCP.
const UDP_HEADERS: u64 = 14 + 20 + 8;

fn link(net: &Net, node: usize, number: u32) -> LinkCounters {
    net.stacks[node].counters().link(number)
}

#[test]
fn datagrams_are_counted_where_they_pass() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let sender = net.stacks[0].udp_socket(false);
    let receiver = net.stacks[1].udp_socket(false);
    net.stacks[1].bind(receiver, any(53)).expect("bind");
    for _ in 0..3 {
        let now = net.now;
        net.stacks[0].send_to(sender, &[0; 100], Some(at(1, 53)), now).expect("send");
        net.run(MS);
    }
    assert_eq!(link(&net, 0, 2).sent, Traffic { packets: 3, bytes: 3 * (UDP_HEADERS + 100) });
    assert_eq!(link(&net, 1, 2).received, link(&net, 0, 2).sent);
    assert_eq!(link(&net, 1, 2).sent, Traffic::default());
    assert_eq!(link(&net, 0, 1), LinkCounters::default());
    net.stacks[1].recv_from(receiver, true).expect("peek");
    assert_eq!(net.stacks[1].counters().udp[0].received, 0);
    net.stacks[1].recv_from(receiver, false).expect("read");
    let [v4, v6] = net.stacks[1].counters().udp;
    assert_eq!((v4.received, v6), (1, UdpCounters::default()));
    assert_eq!(net.stacks[0].counters().udp[0].sent, 3);
    assert_eq!(net.stacks[1].counters().ip[0].received, Traffic { packets: 3, bytes: 3 * 128 });
    assert_eq!(net.stacks[1].counters().ip[0].delivered, 3);
    // Nobody is there, and says so.
    net.stacks[0].send_to(sender, &[0; 100], Some(at(1, 54)), net.now).expect("send");
    net.run(MS);
    assert_eq!(net.stacks[1].counters().udp[0].no_port, 1);
    assert_eq!(net.stacks[1].counters().icmp[0].unreachable, [0, 1]);
    assert_eq!(net.stacks[0].counters().icmp[0].unreachable, [1, 0]);
    assert_eq!(link(&net, 0, 2).received, link(&net, 1, 2).sent);
}

#[test]
fn loopback_counts_a_packet_both_ways() {
    let mut net = Net::new(1, LinkConfig::default(), 1);
    let socket = net.stacks[0].udp_socket(false);
    net.stacks[0].bind(socket, lo(53)).expect("bind");
    net.stacks[0].send_to(socket, &[0; 10], Some(lo(53)), net.now).expect("send");
    net.run(MS);
    let counted = link(&net, 0, 1);
    assert_eq!(counted.sent, Traffic { packets: 1, bytes: 38 });
    assert_eq!(counted.received, counted.sent);
    assert_eq!(net.stacks[0].counters().ip[0].received, net.stacks[0].counters().ip[0].sent);
}

#[test]
fn a_connection_is_counted_at_both_ends() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, _) = net.pair();
    net.send(0, client, b"hello").expect("send");
    net.run(MS);
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"hello"[..]));
    net.close(0, client);
    net.run(MS);
    net.close(1, server);
    net.run(MS);
    let (a, b) = (net.stacks[0].counters().tcp, net.stacks[1].counters().tcp);
    assert_eq!((a.active_opens, a.passive_opens, a.time_waits), (1, 0, 1));
    assert_eq!((b.active_opens, b.passive_opens, b.time_waits), (0, 1, 0));
    assert_eq!((a.sent, a.received), (b.received, b.sent));
    assert_eq!((a.retransmitted(), a.resets, a.attempts_failed, a.resets_sent), (0, 0, 0, 0));
    assert_eq!((a.out_segs(), b.resets), (a.sent, 0));
    // What closes with unread data resets the other end (RFC 2525, section 2.17).
    let listener = net.listener(1, 81, 1);
    let client = net.start(0, at(1, 81));
    net.run(10 * MS);
    let (server, _) = net.stacks[1].accept(listener).expect("accept");
    net.send(0, client, b"hello").expect("send");
    net.run(MS);
    net.close(1, server);
    net.run(MS);
    let (a, b) = (net.stacks[0].counters().tcp, net.stacks[1].counters().tcp);
    assert_eq!((a.resets, b.resets, b.resets_sent), (1, 1, 1));
    // Who gives up a connection himself has not failed.
    let client = net.start(0, at(1, 82));
    net.close(0, client);
    net.run(MS);
    assert_eq!(net.stacks[0].counters().tcp.attempts_failed, 0);
    // Nobody listens, which this one and the one before were told.
    net.start(0, at(1, 99));
    net.run(MS);
    assert_eq!(net.stacks[0].counters().tcp.attempts_failed, 1);
    assert_eq!(net.stacks[1].counters().tcp.resets_sent, 3);
}

#[test]
fn what_is_sent_again_is_counted_apart() {
    let link = LinkConfig { loss: 1_000_000_000, ..LinkConfig::default() };
    let mut net = Net::new(2, link, 1);
    net.start(0, at(1, 80));
    net.run(4 * SEC);
    let counted = net.stacks[0].counters().tcp;
    // After 1 s and 3 s.
    assert_eq!((counted.sent, counted.resent, counted.resent_syns), (3, 2, 2));
    assert_eq!((counted.out_segs(), counted.retransmitted(), counted.timeouts), (1, 2, 2));
    assert_eq!(net.stacks[1].counters(), &Counters::default());
}
