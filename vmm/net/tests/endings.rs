//! How connections end, fail to start, and survive or do not survive their peers: simultaneous open and close,
//! backlog overflow, crash and restart, stale segments, TIME_WAIT.

mod common;

use bloodhound_abi::Errno;
use bloodhound_net::*;
use common::*;

fn crash(net: &mut Net, node: usize) {
    net.fabric.set_down(NodeId(node as u32), true);
    net.stacks[node] = fresh(node, Config::default(), 999);
}

fn restart(net: &mut Net, node: usize) {
    net.fabric.set_down(NodeId(node as u32), false);
}

#[test]
fn simultaneous_close_ends_both_in_time_wait() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, _) = net.pair();
    net.shutdown(0, client, Shutdown::Write).expect("shutdown");
    net.shutdown(1, server, Shutdown::Write).expect("shutdown");
    net.run(250_000);
    for (node, id) in [(0, client), (1, server)] {
        assert_eq!(net.stacks[node].state(id), Some(TcpState::Closing));
        assert_eq!(net.recv(node, id, 9).as_deref(), Ok(&b""[..]));
    }
    net.run(MS);
    for (node, id) in [(0, client), (1, server)] {
        assert_eq!(net.stacks[node].state(id), Some(TcpState::Close), "the socket is closed");
        let wait = net.stacks[node].sockets().into_iter().filter(|s| s.state == TcpState::TimeWait);
        assert_eq!(wait.map(|s| s.id).collect::<Vec<_>>(), [None], "the pair waits");
        net.close(node, id);
    }
    net.run(61 * SEC);
    assert!(net.stacks.iter().all(Stack::is_quiet));
}

#[test]
fn simultaneous_open_makes_one_connection() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let mut ids = Vec::new();
    for node in 0..2 {
        let id = net.stacks[node].tcp_socket(false);
        net.stacks[node].bind(id, any(7000)).expect("bind");
        assert_eq!(net.stacks[node].connect(id, at(1 - node, 7000), net.now), Err(Errno::EINPROGRESS));
        ids.push(id);
    }
    net.run(10 * MS);
    for (node, id) in ids.iter().enumerate() {
        assert_eq!(net.stacks[node].state(*id), Some(TcpState::Established));
        assert_eq!(net.stacks[node].connect(*id, at(1 - node, 7000), net.now), Ok(()));
    }
    net.send(0, ids[0], b"from 0").expect("send");
    net.send(1, ids[1], b"from 1").expect("send");
    net.run(10 * MS);
    assert_eq!(net.recv(0, ids[0], 9).as_deref(), Ok(&b"from 1"[..]));
    assert_eq!(net.recv(1, ids[1], 9).as_deref(), Ok(&b"from 0"[..]));
}

#[test]
fn a_closed_port_refuses_and_a_missing_network_is_unreachable() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let client = net.start(0, at(1, 81));
    net.run(MS);
    assert_eq!(net.stacks[0].connect(client, at(1, 81), net.now), Err(Errno::ECONNREFUSED));
    assert_eq!(net.stacks[0].connect(client, addr("192.0.2.1:1"), net.now), Err(Errno::ENETUNREACH));
    assert_eq!(net.stacks[0].connect(client, addr("[::1]:1"), net.now), Err(Errno::EAFNOSUPPORT));
    let six = net.stacks[0].tcp_socket(true);
    assert_eq!(net.stacks[0].connect(six, addr("[2001:db8::1]:1"), net.now), Err(Errno::ENETUNREACH));
    let udp = net.stacks[0].udp_socket(false);
    assert_eq!(net.stacks[0].send_to(udp, b"x", Some(addr("192.0.2.1:1")), net.now), Err(Errno::ENETUNREACH));
    assert_eq!(net.stacks[0].connect(SocketId(77), at(1, 1), net.now), Err(Errno::EBADF));
    assert!(net.stacks[0].readiness(SocketId(77)).is_empty());
}

#[test]
fn a_full_accept_queue_drops_syns_until_there_is_room() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 2);
    let clients: Vec<SocketId> = (0..6).map(|_| net.start(0, at(1, 80))).collect();
    net.run(900 * MS);
    let open = |net: &Net| {
        clients.iter().filter(|id| net.stacks[0].state(**id) == Some(TcpState::Established)).count()
    };
    // All SYNs came while the queue was empty, so all handshakes began; three were completed (backlog + 1). The
    // others believe that they are open, since their SYN was answered: Linux ignores their last acknowledgement.
    assert_eq!(open(&net), 6);
    let states: Vec<_> = net.stacks[1].sockets().into_iter().map(|s| s.state).collect();
    assert_eq!(states.iter().filter(|s| **s == TcpState::SynRecv).count(), 3);
    let late = net.start(0, at(1, 80));
    net.run(50 * MS);
    assert_eq!(net.stacks[0].state(late), Some(TcpState::SynSent), "its SYN is dropped");
    for _ in 0..3 {
        net.stacks[1].accept(listener).expect("accept");
    }
    assert_eq!(net.stacks[1].accept(listener), Err(Errno::EAGAIN));
    net.run(2 * SEC);
    let mut accepted = 0;
    while net.stacks[1].accept(listener).is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, 3, "retransmitted SYN-ACKs complete the handshakes, until the queue is full again");
    net.run(10 * SEC);
    assert!(net.stacks[1].accept(listener).is_ok(), "the late one comes in as well");
    assert_eq!(net.stacks[0].state(late), Some(TcpState::Established));
}

#[test]
fn data_sent_into_a_full_accept_queue_arrives_after_accept() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 0);
    let clients = [net.start(0, at(1, 80)), net.start(0, at(1, 80))];
    net.run(10 * MS);
    for id in clients {
        net.send(0, id, b"early").expect("send");
    }
    net.run(10 * MS);
    for _ in 0..2 {
        let (server, _) = net.stacks[1].accept(listener).expect("accept");
        net.run(2 * SEC);
        assert_eq!(net.recv(1, server, 9).as_deref(), Ok(&b"early"[..]));
    }
}

#[test]
fn a_restarted_peer_resets_old_connections() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, _, _) = net.pair();
    net.send(0, client, b"before").expect("send");
    net.run(MS);
    crash(&mut net, 1);
    net.send(0, client, b"while down").expect("send");
    net.run(SEC);
    assert_eq!(net.recv(0, client, 9), Err(Errno::EAGAIN), "a dead host is silent");
    restart(&mut net, 1);
    net.run(3 * SEC);
    assert!(net.ready(0, client).contains(ReadyFlags::ERR | ReadyFlags::HUP));
    assert_eq!(net.recv(0, client, 9), Err(Errno::ECONNRESET));
    assert_eq!(net.send(0, client, b"x"), Err(Errno::EPIPE));
    let again = net.start(0, at(1, 80));
    net.run(MS);
    assert_eq!(net.stacks[0].connect(again, at(1, 80), net.now), Err(Errno::ECONNREFUSED));
}

/// A client that crashes and takes the same port again finds its old connection on the server; the handshake clears it
/// (RFC 9293, 3.5.1) and succeeds a moment later.
#[test]
fn a_reused_pair_clears_the_half_open_connection() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let open = |net: &mut Net| {
        let id = net.stacks[0].tcp_socket(false);
        net.stacks[0].bind(id, any(5000)).expect("bind");
        assert_eq!(net.stacks[0].connect(id, at(1, 80), net.now), Err(Errno::EINPROGRESS));
        id
    };
    open(&mut net);
    net.run(MS);
    let (server, _) = net.stacks[1].accept(listener).expect("accept");
    crash(&mut net, 0);
    restart(&mut net, 0);
    let again = open(&mut net);
    net.run(50 * MS);
    assert_eq!(net.recv(1, server, 9), Err(Errno::ECONNRESET));
    assert_eq!(net.stacks[0].connect(again, at(1, 80), net.now), Ok(()));
    assert!(net.stacks[1].accept(listener).is_ok());
}

/// The same while the server still has the old handshake half open.
#[test]
fn a_reused_pair_clears_a_half_open_handshake() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let open = |net: &mut Net| {
        let id = net.stacks[0].tcp_socket(false);
        net.stacks[0].bind(id, any(5000)).expect("bind");
        assert_eq!(net.stacks[0].connect(id, at(1, 80), net.now), Err(Errno::EINPROGRESS));
        id
    };
    open(&mut net);
    net.flush();
    crash(&mut net, 0);
    net.run(MS);
    restart(&mut net, 0);
    let again = open(&mut net);
    net.run(3 * SEC);
    assert_eq!(net.stacks[0].connect(again, at(1, 80), net.now), Ok(()));
    assert!(net.stacks[1].accept(listener).is_ok());
    assert_eq!(net.stacks[1].accept(listener), Err(Errno::EAGAIN));
}

#[test]
fn a_pair_in_time_wait_takes_a_new_connection() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let mut servers = Vec::new();
    for round in 0..3 {
        let id = net.stacks[0].tcp_socket(false);
        net.stacks[0].bind(id, any(5000)).expect("bind");
        assert_eq!(net.stacks[0].connect(id, at(1, 80), net.now), Err(Errno::EINPROGRESS));
        net.run(10 * MS);
        assert_eq!(net.stacks[0].connect(id, at(1, 80), net.now), Ok(()), "round {round}");
        let (server, _) = net.stacks[1].accept(listener).expect("accept");
        // The server closes first: TIME_WAIT is its own.
        net.close(1, server);
        net.run(MS);
        net.close(0, id);
        net.run(MS);
        servers.push(server);
        assert_eq!(net.stacks[1].state(server), Some(TcpState::TimeWait));
    }
    assert_eq!(net.stacks[1].state(servers[0]), None, "taken over");
}

#[test]
fn an_injected_reset_hits_both_ends() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, listener) = net.pair();
    let loopback = net.start(0, lo(1));
    let now = net.now;
    assert_eq!(net.stacks[0].reset_connections(Some(ip(1)), now), 1);
    assert_eq!(net.stacks[1].reset_connections(Some(ip(0)), now), 1);
    assert_eq!(net.stacks[0].reset_connections(None, now), 0);
    for (node, id) in [(0, client), (1, server)] {
        assert!(net.stacks[node].take_events().iter().any(|(woken, _)| *woken == id));
        assert_eq!(net.recv(node, id, 9), Err(Errno::ECONNRESET));
    }
    assert!(net.stacks[1].is_listening(listener));
    assert_eq!(net.stacks[0].state(loopback), Some(TcpState::SynSent), "loopback is spared");
    net.run(MS);
    assert!(net.log.iter().rev().take(2).all(|(_, p, _)| !p.to_string().contains(" R")), "nothing is sent");
}

#[test]
fn a_lingering_close_can_be_waited_for() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, _) = net.pair();
    net.stacks[0].set_option(client, SockOpt::Linger(Some(5)), net.now).expect("option");
    net.send(0, client, b"last words").expect("send");
    net.stacks[0].take_events();
    net.close(0, client);
    assert!(net.stacks[0].lingering(client));
    assert_eq!(net.stacks[0].readable_bytes(client), Err(Errno::EBADF), "the descriptor is gone");
    net.run(50 * MS);
    assert!(!net.stacks[0].lingering(client));
    assert!(net.stacks[0].take_events().iter().any(|(id, _)| *id == client), "the waiter is woken");
    assert_eq!(net.recv(1, server, 20).as_deref(), Ok(&b"last words"[..]));
    net.close(1, server);
    net.run(61 * SEC);
    assert!(net.stacks.iter().all(Stack::is_quiet));
}

/// What edge-triggered epoll needs: an event for each arrival, also when data is already there; none without cause.
#[test]
fn events_are_edges() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    let client = net.start(0, at(1, 80));
    net.run(MS);
    assert_eq!(net.stacks[0].take_events(), [(client, ReadyFlags::all())]);
    assert_eq!(net.stacks[1].take_events(), [(listener, ReadyFlags::READ)]);
    let (server, _) = net.stacks[1].accept(listener).expect("accept");
    for _ in 0..3 {
        net.send(0, client, b"more").expect("send");
        net.run(50 * MS);
        assert_eq!(net.stacks[1].take_events(), [(server, ReadyFlags::READ)]);
        assert_eq!(net.stacks[0].take_events(), []);
    }
    assert_eq!(net.stacks[1].readable_bytes(server), Ok(12));
    net.close(0, client);
    net.run(50 * MS);
    assert_eq!(net.stacks[1].take_events(), [(server, ReadyFlags::all())]);
    assert_eq!(net.stacks[0].take_events(), [], "closed sockets are silent");
}

#[test]
fn ephemeral_ports_run_out_per_destination() {
    let config = Config { local_ports: (40_000, 40_003), ..Config::default() };
    let mut net = Net::with_config(3, LinkConfig::default(), 1, config);
    net.listener(1, 80, 100);
    net.listener(2, 80, 100);
    for _ in 0..4 {
        net.start(0, at(1, 80));
    }
    let extra = net.stacks[0].tcp_socket(false);
    assert_eq!(net.stacks[0].connect(extra, at(1, 80), net.now), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(net.stacks[0].connect(extra, at(2, 80), net.now), Err(Errno::EINPROGRESS), "shares a port");
    net.run(MS);
    assert_eq!(net.stacks[0].connect(extra, at(2, 80), net.now), Ok(()));
    let bound = net.stacks[0].tcp_socket(false);
    assert_eq!(net.stacks[0].bind(bound, any(0)), Err(Errno::EADDRINUSE));
    let udp = net.stacks[0].udp_socket(false);
    assert_eq!(net.stacks[0].bind(udp, any(0)), Ok(()), "UDP has ports of its own");
}

/// Recorded on Linux 6.18: how many datagrams of a size fit into the default buffer.
#[test]
fn a_udp_buffer_overflows_silently() {
    for (len, fit) in
        [(0, 256), (1, 256), (150, 256), (200, 166), (1000, 92), (2000, 48), (9000, 12), (30_000, 6)]
    {
        let mut net = Net::new(2, LinkConfig::default(), 1);
        let server = net.stacks[1].udp_socket(false);
        net.stacks[1].bind(server, any(53)).expect("bind");
        let client = net.stacks[0].udp_socket(false);
        for _ in 0..400 {
            assert_eq!(net.stacks[0].send_to(client, &vec![0; len], Some(at(1, 53)), net.now), Ok(len));
        }
        net.run(MS);
        let mut count = 0;
        while net.stacks[1].recv_from(server, false).is_ok() {
            count += 1;
        }
        assert_eq!(count, fit, "datagrams of {len} bytes");
    }
}
