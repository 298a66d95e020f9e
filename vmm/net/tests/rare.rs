//! What a network and a kernel rarely do and may do: full backlogs, FINs that are late, datagrams with wrong checksums, sends that lack memory,
//! connections that are reset before they are accepted.

mod common;

use bloodhound_abi::Errno;
use bloodhound_net::*;
use common::*;

#[test]
fn a_backlog_that_counts_as_full_takes_no_syn_until_it_does_no_more() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let before = net.start(0, at(1, 80));
    net.run(MS);
    assert!(net.stacks[1].fill_backlog(listener, 7, true));
    assert!(!net.stacks[1].fill_backlog(listener, 7, true), "for this fault it is full already");
    let late = net.start(0, at(1, 80));
    net.run(500 * MS);
    assert!(net.stacks[1].accept(listener).is_ok(), "what is in the queue can be accepted");
    assert_eq!(net.stacks[0].state(before), Some(TcpState::Established));
    assert_eq!(net.stacks[0].state(late), Some(TcpState::SynSent));
    assert_eq!(net.stacks[1].accept(listener), Err(Errno::EAGAIN));
    assert!(
        net.stacks[1].fill_backlog(listener, 7, false) && !net.stacks[1].fill_backlog(listener, 7, false)
    );
    net.run(490 * MS);
    assert_eq!(net.stacks[0].state(late), Some(TcpState::SynSent), "the SYN comes again after a second");
    net.run(20 * MS);
    assert_eq!(net.stacks[0].state(late), Some(TcpState::Established));
    assert!(net.stacks[1].accept(listener).is_ok());
}

#[test]
fn a_client_is_connected_long_before_a_full_backlog_lets_its_connection_in() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let client = net.start(0, at(1, 80));
    // The SYN is there, the ACK is not.
    net.run(MS / 4);
    assert!(net.stacks[1].fill_backlog(listener, 1, true));
    net.run(MS);
    assert_eq!(net.stacks[0].state(client), Some(TcpState::Established));
    assert_eq!(net.send(0, client, b"hello"), Ok(5));
    net.run(900 * MS);
    assert_eq!(net.stacks[1].accept(listener), Err(Errno::EAGAIN));
    assert!(net.stacks[1].fill_backlog(listener, 1, false));
    net.run(2 * SEC);
    let (server, _) = net.stacks[1].accept(listener).expect("a connection");
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"hello"[..]));
}

#[test]
fn two_faults_fill_a_backlog_until_both_are_over() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    for fault in [1, 2] {
        assert!(net.stacks[1].fill_backlog(listener, fault, true));
    }
    assert!(net.stacks[1].fill_backlog(listener, 1, false));
    let client = net.start(0, at(1, 80));
    net.run(SEC / 2);
    assert_eq!(net.stacks[0].state(client), Some(TcpState::SynSent));
    assert!(net.stacks[1].fill_backlog(listener, 2, false));
    net.run(SEC);
    assert_eq!(net.stacks[0].state(client), Some(TcpState::Established));
}

#[test]
fn a_fin_that_is_lost_comes_again_and_data_before_it_is_there() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, _) = net.pair();
    let hole = net.fabric.open_hole(Hole::Fin(NodeId(0)));
    assert_eq!(net.send(0, client, b"last"), Ok(4));
    net.close(0, client);
    net.run(300 * MS);
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"last"[..]));
    assert_eq!(net.recv(1, server, 100), Err(Errno::EAGAIN), "the end has not come");
    assert!(net.fabric.close_hole(hole));
    net.run(SEC);
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b""[..]));
}

#[test]
fn a_datagram_with_a_wrong_checksum_makes_readable_and_is_not_read() {
    let link = LinkConfig { bad_checksum: 1_000_000_000, ..LinkConfig::default() };
    let mut net = Net::new(2, link, 1);
    let (a, b) = (net.stacks[0].udp_socket(false), net.stacks[1].udp_socket(false));
    net.stacks[1].bind(b, any(53)).expect("a port");
    let send = |net: &mut Net, port| net.stacks[0].send_to(a, b"x", Some(at(1, port)), net.now);
    assert_eq!(send(&mut net, 53), Ok(1));
    net.run(MS);
    assert!(net.ready(1, b).contains(ReadyFlags::READ) && net.stacks[1].has_only_damaged(b));
    assert_eq!(net.stacks[1].readable_bytes(b), Ok(0));
    assert_eq!(net.stacks[1].recv_from(b, false), Err(Errno::EAGAIN));
    assert!(!net.ready(1, b).contains(ReadyFlags::READ) && !net.stacks[1].has_only_damaged(b));
    // One behind it that is right is read, and nobody reports that no socket takes one.
    assert_eq!(send(&mut net, 53), Ok(1));
    assert_eq!(send(&mut net, 54), Ok(1));
    net.run(MS);
    net.fabric.set_default_link(LinkConfig::default());
    assert_eq!(send(&mut net, 53), Ok(1));
    net.run(MS);
    assert!(!net.stacks[1].has_only_damaged(b));
    // A peek at an offset passes by what is damaged, and drops it where it would show it.
    let peek =
        |net: &mut Net, offset| net.stacks[1].peek_at(b, offset).map(|(d, before)| (d.data.len(), before));
    assert_eq!(peek(&mut net, 1), Ok((1, 0)));
    assert_eq!(peek(&mut net, 2), Err(Errno::EAGAIN));
    assert_eq!(peek(&mut net, 0), Ok((1, 0)));
    assert_eq!(peek(&mut net, 1), Err(Errno::EAGAIN));
    assert_eq!(net.stacks[1].recv_from(b, true).map(|d| d.data.len()), Ok(1));
    assert_eq!(net.stacks[1].recv_from(b, false).map(|d| d.data.len()), Ok(1));
    assert_eq!(net.stacks[1].recv_from(b, false), Err(Errno::EAGAIN));
    assert!(net.log.iter().all(|(_, packet, _)| !matches!(packet.body, Body::Icmp(..))));
}

#[test]
fn an_acknowledgement_tells_of_room_after_a_send_that_lacked_memory() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, _) = net.pair();
    net.run(MS);
    net.stacks[0].take_events();
    let writable = |net: &mut Net| {
        let events = net.stacks[0].take_events();
        events.iter().any(|(id, key)| *id == client && key.contains(ReadyFlags::WRITE))
    };
    for short in [false, true] {
        assert!(net.stacks[0].send_room(client) > 1000);
        assert_eq!(net.send(0, client, &[1; 1000]), Ok(1000));
        if short {
            net.stacks[0].lacks_space(client);
        }
        net.run(100 * MS);
        assert_eq!(writable(&mut net), short);
        assert_eq!(net.recv(1, server, 2000).map(|data| data.len()), Ok(1000));
    }
    net.stacks[0].shutdown(client, Shutdown::Write, net.now).expect("it is open");
    assert_eq!(net.stacks[0].send_room(client), 0);
}

#[test]
fn both_ends_of_a_connection_that_is_reset_in_the_queue_learn_of_it() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let client = net.start(0, at(1, 80));
    net.run(MS);
    assert_eq!(net.send(0, client, b"hello"), Ok(5));
    net.run(MS);
    let (server, _) = net.stacks[1].accept(listener).expect("a connection");
    let now = net.now;
    assert!(net.stacks[1].reset_connection(server, now) && !net.stacks[1].reset_connection(server, now));
    assert_eq!(net.stacks[1].peer_addr(server), Err(Errno::ENOTCONN));
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"hello"[..]), "what had come is there");
    assert_eq!(net.recv(1, server, 100), Err(Errno::ECONNRESET));
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b""[..]));
    net.run(MS);
    assert_eq!(net.recv(0, client, 100), Err(Errno::ECONNRESET));
}

#[test]
fn a_connection_of_the_node_with_itself_is_reset_by_nobody() {
    let mut net = Net::new(1, LinkConfig::default(), 1);
    let listener = net.listener(0, 80, 5);
    net.start(0, lo(80));
    net.run(MS);
    let (server, _) = net.stacks[0].accept(listener).expect("a connection");
    let now = net.now;
    assert!(!net.stacks[0].reset_connection(server, now));
    assert_eq!(net.stacks[0].state(server), Some(TcpState::Established));
}
