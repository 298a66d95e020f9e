//! Byte streams over bad links: everything arrives exactly once and in order; equal seeds give equal runs; a clone
//! taken at any step has the same future.

mod common;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::*;
use common::*;

/// Sends `sizes.0` bytes from node 0 and `sizes.1` back, both ends reading and writing whenever they are woken, and
/// closes. Plain data, so that a run can be cloned.
#[derive(Clone, Debug)]
struct Exchange {
    net: Net,
    ends: [End; 2],
    listener: SocketId,
    chunk: usize,
}

#[derive(Clone, Debug)]
struct End {
    id: Option<SocketId>,
    connected: bool,
    to_send: Vec<u8>,
    sent: usize,
    got: Vec<u8>,
    shut: bool,
    eof: bool,
}

impl End {
    fn new(len: usize, salt: u32) -> End {
        let byte = |i: usize| ((i as u32 ^ salt).wrapping_mul(2_654_435_761) >> 24) as u8;
        let to_send = (0..len).map(byte).collect();
        End { id: None, connected: false, to_send, sent: 0, got: Vec::new(), shut: false, eof: false }
    }
}

impl Exchange {
    fn new(link: LinkConfig, seed: u64, sizes: (usize, usize), chunk: usize) -> Exchange {
        let mut net = Net::new(2, link, seed);
        let listener = net.listener(1, 80, 5);
        let mut ends = [End::new(sizes.0, 1), End::new(sizes.1, 99)];
        ends[0].id = Some(net.start(0, at(1, 80)));
        Exchange { net, ends, listener, chunk }
    }

    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| end.shut && end.eof)
    }

    /// One event, then what the woken ends do.
    fn step(&mut self) {
        assert!(self.net.step(SimTime::MAX), "stuck: {:#?}", self.ends.map_state());
        for node in 0..2 {
            for (id, _) in self.net.stacks[node].take_events() {
                if id == self.listener && node == 1 {
                    while let Ok((child, _)) = self.net.stacks[1].accept(id) {
                        assert_eq!(self.ends[1].id.replace(child), None);
                    }
                }
                self.act(node);
            }
        }
    }

    fn act(&mut self, node: usize) {
        let end = &mut self.ends[node];
        let Some(id) = end.id else { return };
        let now = self.net.now;
        let stack = &mut self.net.stacks[node];
        if node == 0 && !end.connected {
            match stack.connect(id, at(1, 80), now) {
                Ok(()) => end.connected = true,
                Err(error) => {
                    assert_eq!(error, Errno::EALREADY);
                    return;
                }
            }
        }
        let mut buf = vec![0; self.chunk];
        while stack.readiness(id).contains(ReadyFlags::READ) && !end.eof {
            match stack.recv(id, &mut buf, false, now).expect("recv") {
                0 => end.eof = true,
                count => end.got.extend_from_slice(&buf[..count]),
            }
        }
        while end.sent < end.to_send.len() && stack.readiness(id).contains(ReadyFlags::WRITE) {
            let to = end.to_send.len().min(end.sent + self.chunk);
            end.sent += stack.send(id, &end.to_send[end.sent..to], false, now).expect("send");
        }
        if end.sent == end.to_send.len() && !end.shut {
            end.shut = true;
            stack.shutdown(id, Shutdown::Write, now).expect("shutdown");
        }
    }

    fn check(&self) {
        assert!(self.ends[1].got == self.ends[0].to_send, "node 1 got something else");
        assert!(self.ends[0].got == self.ends[1].to_send, "node 0 got something else");
    }

    fn run(&mut self) -> u64 {
        while !self.is_done() {
            self.step();
        }
        self.check();
        self.net.digest()
    }
}

trait MapState {
    fn map_state(&self) -> Vec<(usize, usize, bool, bool)>;
}

impl MapState for [End; 2] {
    fn map_state(&self) -> Vec<(usize, usize, bool, bool)> {
        self.iter().map(|e| (e.sent, e.got.len(), e.shut, e.eof)).collect()
    }
}

fn bad_link(loss: u32) -> LinkConfig {
    LinkConfig {
        latency: MS,
        jitter: MS / 2,
        loss,
        corrupt: loss / 20,
        duplicate: 50_000_000,
        reorder: 100_000_000,
        reorder_delay: 5 * MS,
        delay: 20_000_000,
        delay_max: 300 * MS,
        bandwidth: None,
        corrupt_pass: 0,
        bad_checksum: 0,
    }
}

#[test]
fn all_bytes_arrive_under_twenty_percent_loss() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let sizes = (20_000 + seed as usize * 37, 5_000);
        let chunk = [1, 100, 1460, 4000, 70_000][seed as usize % 5];
        let mut run = Exchange::new(bad_link(200_000_000), seed, sizes, chunk);
        digests.insert(run.run());
        assert!(run.net.log.iter().any(|(_, _, dropped)| dropped.is_some()));
    }
    assert_eq!(digests.len(), 300, "each seed has a run of its own");
}

#[test]
fn large_transfers_survive_moderate_loss_and_a_thin_link() {
    for seed in 0..10 {
        let mut link = bad_link(20_000_000);
        link.bandwidth = Some(2_000_000);
        let mut run = Exchange::new(link, seed, (400_000, 300_000), 65_536);
        run.run();
    }
}

#[test]
fn equal_seeds_give_equal_digests() {
    for seed in 0..30 {
        let make = || Exchange::new(bad_link(200_000_000), seed, (30_000, 3_000), 3_000).run();
        assert_eq!(make(), make());
    }
}

#[test]
fn a_clone_at_each_step_has_the_same_future() {
    let mut run = Exchange::new(bad_link(150_000_000), 5, (60_000, 20_000), 2_000);
    let mut clones = Vec::new();
    while !run.is_done() {
        clones.push(run.clone());
        run.step();
    }
    let end = run.net.digest();
    assert!(clones.len() > 40);
    for mut clone in clones {
        assert_eq!(clone.run(), end);
    }
}

/// After a partition of a minute heals, the stream goes on where it stopped.
#[test]
fn a_partition_only_delays() {
    for seed in 0..20 {
        let mut run = Exchange::new(bad_link(50_000_000), seed, (60_000, 60_000), 5_000);
        while run.ends[1].got.len() < 20_000 {
            run.step();
        }
        let both = PartitionKind::Symmetric(vec![NodeId(0)], vec![NodeId(1)]);
        let id = run.net.fabric.partition(both);
        let until = run.net.now.after(60 * SEC);
        while run.net.now < until && !run.is_done() {
            run.step();
        }
        assert!(!run.is_done());
        assert!(run.net.fabric.heal(id));
        run.run();
    }
}

/// On a long fat link the windows grow until the link is used: a fixed 64 KiB would need 100 round trips of 100 ms.
#[test]
fn windows_grow_with_the_round_trip_time() {
    let link = LinkConfig { latency: 50 * MS, ..LinkConfig::default() };
    let mut run = Exchange::new(link, 1, (6_400_000, 0), 65_536);
    run.run();
    let took = run.net.now.since(SimTime(SEC));
    assert!(took < 2 * SEC, "{took} ns");
    let receiver = run.ends[1].id.expect("accepted");
    assert!(run.net.stacks[1].options(receiver).expect("open").rcvbuf > 1_000_000);
}
