//! Random calls and random packets: nothing panics, everything ends. The stack's own assertions are the oracle, and
//! in the end, with all sockets closed, nothing may be left.

mod common;

use bloodhound_abi::time::MILLIS;
use bloodhound_net::*;
use common::*;
use std::net::SocketAddr;

/// Errors are right answers in a storm.
fn ignore<T>(result: Result<T, bloodhound_abi::Errno>) {
    let _ = result;
}

struct Dice(bloodhound_decisions::Dice);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len() as u64) as usize]) }
    }
}

fn target(dice: &mut Dice, node: usize) -> SocketAddr {
    let port = 80 + (dice.below(9) / 4) as u16;
    match dice.below(4) {
        0 => lo(port),
        1 => at(node, port),
        _ => at(1 - node, port),
    }
}

fn random_option(dice: &mut Dice) -> SockOpt {
    let on = dice.below(2) == 0;
    let number = dice.below(3000) as u32;
    match dice.below(14) {
        0 => SockOpt::NoDelay(on),
        1 => SockOpt::Cork(on),
        2 => SockOpt::QuickAck(on),
        3 => SockOpt::KeepAlive(on),
        4 => SockOpt::KeepIdle(number % 20),
        5 => SockOpt::KeepIntvl(number % 5),
        6 => SockOpt::UserTimeout(number * 10),
        7 => SockOpt::MaxSeg(number as u16),
        8 => SockOpt::Linger2(number as i32 % 20 - 1),
        9 => SockOpt::ReuseAddr(on),
        10 => SockOpt::SndBuf(number * 10),
        11 => SockOpt::RcvBuf(number * 10),
        12 => SockOpt::RcvLowat(number),
        _ => SockOpt::Linger(on.then_some(number % 2)),
    }
}

/// One random call on a random socket of the node.
fn act(net: &mut Net, node: usize, ids: &mut Vec<SocketId>, dice: &mut Dice) {
    let now = net.now;
    let to = target(dice, node);
    let stack = &mut net.stacks[node];
    if ids.len() < 7 && dice.below(6) == 0 {
        ids.push(if dice.below(5) == 0 {
            stack.udp_socket(false)
        } else {
            stack.tcp_socket(dice.below(4) == 0)
        });
    }
    let open = |id: &&SocketId| stack.state(**id) == Some(TcpState::Established);
    let connected: Vec<SocketId> = ids.iter().filter(open).copied().collect();
    let some =
        if dice.below(4) > 0 && !connected.is_empty() { dice.pick(&connected) } else { dice.pick(ids) };
    let Some(id) = some else { return };
    let v6 = |addr: SocketAddr| match addr.ip() {
        std::net::IpAddr::V4(ip) if stack.local_addr(id).is_ok_and(|a| a.is_ipv6()) => {
            SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port())
        }
        _ => addr,
    };
    let to = v6(to);
    let size = [1, 10, 1460, 5000, 80_000][dice.below(5) as usize];
    match dice.below(30) {
        0 => ignore(stack.bind(id, v6(any(to.port())))),
        1 => ignore(stack.listen(id, dice.below(3) as u32)),
        2..=4 => ignore(stack.connect(id, to, now)),
        5..=8 => {
            if let Ok((child, _)) = stack.accept(id) {
                ids.push(child);
            }
        }
        9..=15 => ignore(stack.send(id, &vec![1; size], dice.below(4) == 0, now)),
        16..=23 => ignore(stack.recv(id, &mut vec![0; size], dice.below(4) == 0, now)),
        24 => {
            let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both][dice.below(3) as usize];
            ignore(stack.shutdown(id, how, now));
        }
        25 | 26 => ignore(stack.set_option(id, random_option(dice), now)),
        27 => ignore(stack.send_to(id, &[5; 50], Some(to), now)),
        _ => match dice.below(3) {
            0 => ignore(stack.disconnect(id, now)),
            _ => {
                stack.close(id, now).expect("close");
                ids.retain(|open| *open != id);
            }
        },
    }
    let _ = stack.readiness(id);
    stack.sockets();
    stack.take_events();
}

/// A segment that resembles one that was sent: fields changed at random.
fn mutate(net: &Net, dice: &mut Dice) -> Option<Packet> {
    if net.log.is_empty() {
        return None;
    }
    let recent = net.log.len().min(40) as u64;
    let mut packet = net.log[net.log.len() - 1 - dice.below(recent) as usize].1.clone();
    if dice.below(10) == 0 {
        packet.body = Body::Icmp(Unreachable::Host, Proto::Tcp, Bytes::default());
    }
    if let Body::Tcp(seg) = &mut packet.body {
        match dice.below(6) {
            0 => seg.seq = seg.seq.wrapping_add(dice.below(5) as u32).wrapping_sub(2),
            1 => seg.ack = seg.ack.wrapping_add(dice.below(5) as u32).wrapping_sub(2),
            2 => seg.flags = Flags::from_bits_truncate(dice.below(32) as u8),
            3 => seg.window = dice.below(3) as u16 * 300,
            4 => seg.seq = dice.below(1 << 32) as u32,
            _ => seg.payload = Bytes::from(vec![9; dice.below(3000) as usize]),
        }
        seg.wscale = seg.wscale.map(|_| dice.below(256) as u8);
        seg.mss = seg.mss.map(|_| dice.below(65536) as u16);
    }
    Some(packet)
}

/// Returns the digest of the run and the bytes that were sent.
fn storm(seed: u64, forged: bool) -> (u64, usize) {
    let link = LinkConfig {
        latency: MS,
        loss: 50_000_000,
        duplicate: 50_000_000,
        reorder: 100_000_000,
        reorder_delay: 10 * MS,
        ..LinkConfig::default()
    };
    let mut net = Net::new(2, link, seed);
    let mut dice = Dice(bloodhound_decisions::Dice::new(seed));
    let mut ids = [Vec::new(), Vec::new()];
    for (node, ids) in ids.iter_mut().enumerate() {
        ids.push(net.listener(node, 80, 2));
    }
    for _ in 0..1500 {
        let node = dice.below(2) as usize;
        act(&mut net, node, &mut ids[node], &mut dice);
        let pause =
            [0, 10_000, MILLIS, MILLIS, 5 * MILLIS, 50 * MILLIS, 50 * MILLIS, SEC][dice.below(8) as usize];
        net.run(pause);
        if forged
            && dice.below(4) == 0
            && let Some(packet) = mutate(&net, &mut dice)
            && let Some(node) = net.fabric.node_of(packet.dst.ip())
        {
            let now = net.now;
            net.stacks[node.0 as usize].input(packet, now);
        }
    }
    let digest = net.digest();
    for (node, ids) in ids.iter().enumerate() {
        for id in ids {
            net.close(node, *id);
        }
    }
    net.run(1500 * SEC);
    for stack in &net.stacks {
        assert!(stack.is_quiet(), "seed {seed}: {:#?}", stack.sockets());
        assert_eq!(stack.sockets(), []);
    }
    let bytes = |packet: &Packet| if let Body::Tcp(seg) = &packet.body { seg.payload.len() } else { 0 };
    (digest, net.log.iter().map(|(_, packet, _)| bytes(packet)).sum())
}

#[test]
fn random_calls_end_in_silence() {
    let sent: usize = (0..150).map(|seed| storm(seed, false).1).sum();
    assert!(sent > 5_000_000, "{sent} bytes are no storm");
}

#[test]
fn forged_packets_do_no_harm() {
    let sent: usize = (1000..1150).map(|seed| storm(seed, true).1).sum();
    assert!(sent > 5_000_000, "{sent} bytes are no storm");
}

#[test]
fn storms_are_deterministic() {
    for seed in 0..10 {
        assert_eq!(storm(seed, true), storm(seed, true));
    }
}
