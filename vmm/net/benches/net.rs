//! What the network costs on the host: `cargo bench -p bloodhound-net`. Each figure stands beside the same work done
//! natively (sockets of this machine's loopback, memcpy, a map lookup) in the same run.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../tests/common/mod.rs"]
mod common;

use bloodhound_abi::SimTime;
use bloodhound_net::*;
use common::*;
use std::hint::black_box;
use std::io::{Read, Write};
use std::time::Instant;

/// Best of five, in ns per round.
fn time(rounds: u32, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..rounds {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(rounds));
    }
    best
}

fn report(name: &str, ours: f64, what: &str, native: f64) {
    println!("{name:<44} {ours:>10.0} ns   {what:<28} {native:>10.0} ns   ratio {:.2}", ours / native);
}

/// A request of 200 bytes and a response of 500 on an open connection between two nodes.
fn exchange(net: &mut Net, client: SocketId, server: SocketId, buf: &mut [u8]) {
    net.log.clear();
    for (from, id, len, to, other) in [(0, client, 200, 1, server), (1, server, 500, 0, client)] {
        net.send(from, id, &[b'q'; 500][..len]).expect("send");
        let now = net.now;
        while net.stacks[to].recv(other, buf, false, now).is_err() && net.step(SimTime::MAX) {
            if net.ready(to, other).contains(ReadyFlags::READ) {
                net.stacks[to].recv(other, buf, false, net.now).expect("recv");
                break;
            }
        }
        net.stacks[to].take_events();
    }
}

fn native_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let client = std::net::TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    client.set_nodelay(true).expect("nodelay");
    server.set_nodelay(true).expect("nodelay");
    (client, server)
}

fn requests() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let (client, server, _) = net.pair();
    let mut buf = vec![0; 4096];
    let ours = time(20_000, || exchange(&mut net, client, server, &mut buf));
    let (mut a, mut b) = native_pair();
    let native = time(20_000, || {
        a.write_all(&[b'q'; 200]).expect("write");
        b.read_exact(&mut buf[..200]).expect("read");
        b.write_all(&[b'q'; 500]).expect("write");
        a.read_exact(&mut buf[..500]).expect("read");
    });
    report("request and response between two nodes", ours, "native loopback, one thread", native);
}

fn connections() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 16);
    let ours = time(2000, || {
        net.log.clear();
        let client = net.start(0, at(1, 80));
        net.run(2 * MS);
        let (server, _) = net.stacks[1].accept(listener).expect("accept");
        net.close(0, client);
        net.run(MS);
        net.close(1, server);
        net.run(60 * MS);
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let to = listener.local_addr().expect("addr");
    let native = time(500, || {
        let client = std::net::TcpStream::connect(to).expect("connect");
        let server = listener.accept().expect("accept");
        drop(client);
        drop(server);
    });
    report("connect, accept, close both ends", ours, "native loopback", native);
}

fn bulk() {
    for (name, to, node) in
        [("64 KiB between nodes (45 segments)", at(1, 80), 1), ("64 KiB over loopback", lo(80), 0)]
    {
        let mut net = Net::new(2, LinkConfig { latency: 1000, ..LinkConfig::default() }, 1);
        let listener = net.listener(node, 80, 5);
        let client = net.start(0, to);
        net.run(MS);
        let (server, _) = net.stacks[node].accept(listener).expect("accept");
        let (data, mut buf) = (vec![1u8; 65_536], vec![0u8; 65_536]);
        let ours = time(500, || {
            net.log.clear();
            let (mut sent, mut got) = (0, 0);
            while got < data.len() {
                sent += net.send(0, client, &data[sent..]).unwrap_or(0);
                net.step(SimTime::MAX);
                got += net.stacks[node].recv(server, &mut buf, false, net.now).unwrap_or(0);
            }
        });
        let (mut a, mut b) = native_pair();
        let native = time(500, || {
            a.write_all(&data).expect("write");
            b.read_exact(&mut buf).expect("read");
        });
        report(name, ours, "native loopback", native);
    }
}

fn queries() {
    let mut net = Net::new(2, LinkConfig::default(), 1);
    let listener = net.listener(1, 80, 1000);
    for _ in 0..200 {
        net.start(0, at(1, 80));
    }
    net.run(SEC);
    let mut ids = Vec::new();
    while let Ok((id, _)) = net.stacks[1].accept(listener) {
        ids.push(id);
    }
    let stack = &net.stacks[1];
    let ours = time(1000, || {
        for id in &ids {
            black_box(stack.readiness(*id));
        }
    });
    let map: std::collections::BTreeMap<u32, u32> = (0..200).map(|i| (i, i)).collect();
    let lookup = time(1000, || {
        for i in 0..200u32 {
            black_box(map.get(&black_box(i)));
        }
    });
    report("readiness of a socket among 200", ours / 200.0, "lookup in a BTreeMap of 200", lookup / 200.0);
    let clone = time(500, || drop(black_box(stack.clone())));
    let bytes = vec![1u8; 100_000];
    let copy = time(500, || drop(black_box(bytes.clone())));
    report("clone of a stack with 200 connections", clone, "clone of 100 kB", copy);
}

fn main() {
    requests();
    connections();
    bulk();
    queries();
}
