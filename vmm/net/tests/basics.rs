//! The ordinary life of connections and datagrams.

mod common;

use bloodhound_abi::Errno;
use bloodhound_net::*;
use common::*;

#[test]
fn a_connection_from_handshake_to_time_wait() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, listener) = net.pair();
    assert_eq!(net.stacks[0].peer_addr(client), Ok(at(1, 80)));
    assert_eq!(net.stacks[1].peer_addr(server), net.stacks[0].local_addr(client));
    assert_eq!(net.stacks[1].local_addr(listener), Ok(any(80)));
    assert_eq!(net.stacks[1].accept(listener), Err(Errno::EAGAIN));
    assert_eq!(net.ready(0, client), ReadyFlags::WRITE);
    assert_eq!(net.send(0, client, b"hello"), Ok(5));
    net.run(MS);
    assert_eq!(net.ready(1, server), ReadyFlags::READ | ReadyFlags::WRITE);
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"hello"[..]));
    assert_eq!(net.recv(1, server, 100), Err(Errno::EAGAIN));
    net.close(0, client);
    net.run(MS);
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b""[..]));
    assert_eq!(net.ready(1, server), ReadyFlags::READ | ReadyFlags::WRITE | ReadyFlags::RDHUP);
    net.close(1, server);
    net.run(MS);
    assert_eq!(net.stacks[0].state(client), Some(TcpState::TimeWait));
    assert_eq!(net.stacks[1].state(server), None);
    net.run(59 * SEC);
    assert_eq!(net.stacks[0].state(client), Some(TcpState::TimeWait));
    net.run(SEC);
    assert!(net.stacks[0].is_quiet() && net.stacks[1].is_quiet());
    assert!(net.log.len() < 15, "{:#?}", net.log);
}

#[test]
fn bulk_data_over_a_clean_link_and_over_loopback() {
    for (to, node) in [(at(1, 80), 1), (lo(80), 0)] {
        let mut net = Net::new(2, LinkConfig::default(), 1);
        let listener = net.listener(node, 80, 5);
        let client = net.start(0, to);
        net.run(MS);
        let (server, _) = net.stacks[node].accept(listener).expect("accept");
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        while got.len() < data.len() {
            match net.send(0, client, &data[sent..data.len().min(sent + 65536)]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
            let next = net.next_event();
            assert!(net.step(bloodhound_abi::SimTime::MAX), "stuck at {} of {}, {next:?}", got.len(), sent);
            while let Ok(chunk) = net.recv(node, server, 20_000) {
                got.extend_from_slice(&chunk);
            }
        }
        assert!(got == data);
        assert!(net.now.0 < 2 * SEC, "took until {}", net.now);
    }
}

#[test]
fn a_published_port_of_loopback_leads_to_another_node() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 5);
    net.stacks[0].publish(std::sync::Arc::new([(8080, at(1, 80))].into()));
    let client = net.start(0, lo(8080));
    let other = net.start(0, lo(8081));
    net.run(MS);
    let (server, _) = net.stacks[1].accept(listener).expect("accept");
    assert_eq!(net.send(0, client, b"hello"), Ok(5));
    net.run(MS);
    assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"hello"[..]));
    assert!(
        net.ready(0, other).contains(ReadyFlags::ERR) || net.stacks[0].state(other) == Some(TcpState::Close)
    );
}

#[test]
fn datagrams_and_port_unreachable() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let server = net.stacks[1].udp_socket(false);
    net.stacks[1].bind(server, any(53)).expect("bind");
    let client = net.stacks[0].udp_socket(false);
    assert_eq!(net.send(0, client, b"?"), Err(Errno::EDESTADDRREQ));
    assert_eq!(net.stacks[0].send_to(client, b"ping", Some(at(1, 53)), net.now), Ok(4));
    net.run(MS);
    let datagram = net.stacks[1].recv_from(server, false).expect("a datagram");
    assert_eq!((&*datagram.data, datagram.src.ip(), datagram.dst), (&b"ping"[..], ip(0), at(1, 53)));
    net.stacks[1].send_to(server, b"pong", Some(datagram.src), net.now).expect("reply");
    net.run(MS);
    assert_eq!(net.recv(0, client, 2).as_deref(), Ok(&b"po"[..]));
    assert_eq!(net.recv(0, client, 2), Err(Errno::EAGAIN));
    net.stacks[0].connect(client, at(1, 54), net.now).expect("connect");
    assert_eq!(net.send(0, client, b"nobody"), Ok(6));
    net.run(MS);
    assert!(net.ready(0, client).contains(ReadyFlags::ERR));
    assert_eq!(net.recv(0, client, 2), Err(Errno::ECONNREFUSED));
    assert_eq!(net.recv(0, client, 2), Err(Errno::EAGAIN));
}
