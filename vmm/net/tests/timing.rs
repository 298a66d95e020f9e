//! When things happen: retransmission, delayed acknowledgements and Nagle, probes, keep-alive, TIME_WAIT. The figures
//! are those of Linux (tcp(7), RFC 6298); where a comment says "recorded", a Linux 6.18 showed them.

mod common;

use bloodhound_abi::Errno;
use bloodhound_net::*;
use common::*;

/// Latency small against 40 ms but not zero.
fn lan() -> LinkConfig {
    LinkConfig { latency: 100_000, ..LinkConfig::default() }
}

fn cut(net: &mut Net, a: u32, b: u32) -> PartitionId {
    net.fabric.partition(PartitionKind::Symmetric(vec![NodeId(a)], vec![NodeId(b)]))
}

/// Milliseconds at which node `from` sent segments that `pick` chooses.
fn times(
    net: &Net,
    since: bloodhound_abi::SimTime,
    from: usize,
    pick: impl Fn(&Segment) -> bool,
) -> Vec<u64> {
    let sent = net.segments(since).into_iter();
    sent.filter(|(_, node, seg)| *node == from && pick(seg)).map(|(at, _, _)| at / MS).collect()
}

#[test]
fn a_syn_into_the_void_is_sent_seven_times_in_127_seconds() {
    let mut net = Net::new(2, lan(), 1);
    net.fabric.set_down(NodeId(1), true);
    let start = net.now;
    let client = net.start(0, at(1, 80));
    net.run(126 * SEC);
    assert_eq!(net.stacks[0].connect(client, at(1, 80), net.now), Err(Errno::EALREADY));
    assert_eq!(times(&net, start, 0, |_| true), [0, 1000, 3000, 7000, 15000, 31000, 63000]);
    net.run(2 * SEC);
    assert_eq!(net.ready(0, client), all());
    assert_eq!(net.stacks[0].connect(client, at(1, 80), net.now), Err(Errno::ETIMEDOUT));
    assert!(net.stacks[0].is_quiet());
}

fn all() -> ReadyFlags {
    ReadyFlags::all() - ReadyFlags::PRI
}

#[test]
fn unacknowledged_data_is_given_up_after_924_seconds() {
    let mut net = Net::new(2, lan(), 1);
    let (client, _, _) = net.pair();
    cut(&mut net, 0, 1);
    let start = net.now;
    net.send(0, client, b"lost").expect("send");
    net.run(900 * SEC);
    assert_eq!(net.stacks[0].take_error(client), Ok(None));
    let sent = times(&net, start, 0, |_| true);
    // The first timeout is 200 ms and the round-trip time, then it doubles up to 120 s.
    assert_eq!(&sent[..6], &[0, 200, 600, 1401, 3003, 6206]);
    let gaps: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(gaps.iter().max(), Some(&120_000));
    net.run(200 * SEC);
    assert_eq!(net.recv(0, client, 9), Err(Errno::ETIMEDOUT));
    assert_eq!(net.send(0, client, b"x"), Err(Errno::EPIPE));
    assert_eq!(sent.len(), 16, "tcp_retries2 = 15 retransmissions");
}

#[test]
fn tcp_user_timeout_gives_up_sooner() {
    let mut net = Net::new(2, lan(), 1);
    let (client, _, _) = net.pair();
    net.stacks[0].set_option(client, SockOpt::UserTimeout(5000), net.now).expect("option");
    cut(&mut net, 0, 1);
    net.send(0, client, b"lost").expect("send");
    net.run(5 * SEC);
    assert_eq!(net.stacks[0].take_error(client), Ok(None));
    net.run(SEC);
    assert_eq!(net.stacks[0].take_error(client), Ok(Some(Errno::ETIMEDOUT)));
}

/// Two small writes, then wait for the answer: from the second round on, Nagle holds the second write back until the
/// delayed acknowledgement. Recorded: first round at once, then 43 to 48 ms each.
#[test]
fn write_write_read_costs_forty_milliseconds_unless_nodelay() {
    for nodelay in [false, true] {
        let mut net = Net::new(2, lan(), 1);
        let (client, server, _) = net.pair();
        net.stacks[0].set_option(client, SockOpt::NoDelay(nodelay), net.now).expect("option");
        let mut rounds = Vec::new();
        for _ in 0..8 {
            let start = net.now;
            net.send(0, client, b"head").expect("send");
            net.send(0, client, b"body").expect("send");
            let mut got = 0;
            while got < 8 {
                assert!(net.step(start.after(SEC)));
                got += net.recv(1, server, 100).map_or(0, |data| data.len());
            }
            net.send(1, server, b"ok").expect("send");
            while net.recv(0, client, 100).is_err() {
                assert!(net.step(start.after(SEC)));
            }
            rounds.push(net.now.since(start) / MS);
        }
        let late = if nodelay { 0 } else { 40 };
        assert_eq!(rounds, [0, late, late, late, late, late, late, late], "nodelay {nodelay}");
    }
}

#[test]
fn single_writes_are_never_delayed() {
    let mut net = Net::new(2, lan(), 1);
    let (client, server, _) = net.pair();
    let start = net.now;
    for _ in 0..50 {
        net.send(0, client, b"question").expect("send");
        net.run(100_000);
        assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"question"[..]));
        net.send(1, server, b"answer").expect("send");
        net.run(100_000);
        assert_eq!(net.recv(0, client, 100).as_deref(), Ok(&b"answer"[..]));
    }
    let bare = times(&net, start, 1, |seg| seg.payload.is_empty()).len();
    assert!(bare <= 2, "acknowledgements ride on the answers, yet {bare} went alone");
}

/// TCP_CORK and MSG_MORE: "200 millisecond ceiling on the time for which output is corked" (tcp(7)); recorded 211 and
/// 208 ms.
#[test]
fn a_cork_holds_for_200_milliseconds() {
    for more in [false, true] {
        let mut net = Net::new(2, lan(), 1);
        let (client, server, _) = net.pair();
        net.stacks[0].set_option(client, SockOpt::Cork(!more), net.now).expect("option");
        let now = net.now;
        net.stacks[0].send(client, b"abc", more, now).expect("send");
        net.run(199 * MS);
        assert_eq!(net.recv(1, server, 9), Err(Errno::EAGAIN));
        net.run(3 * MS);
        assert_eq!(net.recv(1, server, 9).as_deref(), Ok(&b"abc"[..]));
    }
    let mut net = Net::new(2, lan(), 1);
    let (client, server, _) = net.pair();
    net.stacks[0].set_option(client, SockOpt::Cork(true), net.now).expect("option");
    for _ in 0..30 {
        net.send(0, client, &[b'x'; 100]).expect("send");
    }
    net.run(MS);
    assert_eq!(net.recv(1, server, 9999).map(|d| d.len()), Ok(2920), "full segments are not held");
    net.stacks[0].set_option(client, SockOpt::Cork(false), net.now).expect("option");
    net.run(MS);
    assert_eq!(net.recv(1, server, 9999).map(|d| d.len()), Ok(80));
}

/// A reader that does not read: the window closes, probes go out with growing gaps, and reading goes on at once.
#[test]
fn zero_window_is_probed_and_opens_again() {
    let mut net = Net::new(2, lan(), 1);
    let (client, server, _) = net.pair();
    let mut sent = 0;
    for _ in 0..100 {
        match net.send(0, client, &[7; 8192]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        net.run(MS);
    }
    assert!(!net.ready(0, client).contains(ReadyFlags::WRITE));
    let held = net.stacks[1].readable_bytes(server).expect("held");
    assert!((60_000..=65_536).contains(&held), "{held}");
    net.run(50 * MS);
    let start = net.now;
    net.run(30 * SEC);
    let probes = times(&net, start, 0, |seg| seg.payload.is_empty());
    assert!((6..9).contains(&probes.len()), "{probes:?}");
    let gaps: Vec<u64> = probes.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.windows(2).all(|w| w[1] >= 2 * w[0] - 2), "{gaps:?}");
    // Answers to strays without data are limited to one in half a second (tcp_invalid_ratelimit).
    let answers = times(&net, start, 1, |_| true).len();
    assert!((probes.len() - 1..=probes.len() + 1).contains(&answers), "{answers} answers to {probes:?}");
    let held_then = net.stacks[1].readable_bytes(server).expect("held");
    assert!(held_then < held + 1460, "probes fill what is left of the window, no more");
    net.stacks[0].take_events();
    let mut got = 0;
    let start = net.now;
    while got < sent {
        got += net.recv(1, server, 100_000).map_or(0, |d| d.len());
        assert!(net.step(start.after(SEC)), "{got} of {sent}");
    }
    assert!(net.now.since(start) < 10 * MS, "the window update is sent at once");
    net.run(MS);
    let woken =
        net.stacks[0].take_events().iter().any(|(id, f)| *id == client && f.contains(ReadyFlags::WRITE));
    assert!(woken && net.ready(0, client).contains(ReadyFlags::WRITE));
}

/// A lost window update does not stop the stream for ever: the next probe finds the window open.
#[test]
fn a_lost_window_update_is_found_by_a_probe() {
    let mut net = Net::new(2, lan(), 1);
    let (client, server, _) = net.pair();
    for _ in 0..40 {
        let _ = net.send(0, client, &[7; 8192]);
        net.run(MS);
    }
    let id = cut(&mut net, 1, 0);
    net.recv(1, server, 100_000).expect("data");
    net.run(MS);
    assert!(net.fabric.heal(id));
    assert_eq!(net.recv(1, server, 1), Err(Errno::EAGAIN));
    net.run(SEC);
    assert!(net.recv(1, server, 1).is_ok());
}

#[test]
fn keepalive_notices_a_dead_peer_and_spares_a_living_one() {
    let mut net = Net::new(2, lan(), 1);
    let (client, _, _) = net.pair();
    for option in
        [SockOpt::KeepAlive(true), SockOpt::KeepIdle(10), SockOpt::KeepIntvl(2), SockOpt::KeepCnt(3)]
    {
        net.stacks[0].set_option(client, option, net.now).expect("option");
    }
    let start = net.now;
    net.run(35 * SEC);
    assert_eq!(times(&net, start, 0, |_| true), [10_000, 20_000, 30_000]);
    assert_eq!(net.stacks[0].take_error(client), Ok(None));
    net.fabric.set_down(NodeId(1), true);
    let start = net.now;
    net.run(10 * SEC);
    assert_eq!(net.stacks[0].take_error(client), Ok(None));
    net.run(2 * SEC);
    assert_eq!(times(&net, start, 0, |seg| !seg.flags.contains(Flags::RST)), [5_000, 7_000, 9_000]);
    assert_eq!(times(&net, start, 0, |seg| seg.flags.contains(Flags::RST)), [11_000]);
    assert_eq!(net.recv(0, client, 1), Err(Errno::ETIMEDOUT));
}

#[test]
fn three_duplicate_acknowledgements_retransmit_without_a_timeout() {
    let mut net = Net::new(2, lan(), 1);
    let (client, server, _) = net.pair();
    let start = net.now;
    net.send(0, client, &[1; 1460]).expect("send");
    // The first segment is lost, seven more arrive.
    let id = cut(&mut net, 0, 1);
    net.flush();
    assert!(net.fabric.heal(id));
    net.send(0, client, &[2; 1460 * 7]).expect("send");
    net.run(10 * MS);
    assert_eq!(net.recv(1, server, 20_000).map(|d| d.len()), Ok(1460 * 8));
    let first = net.segments(start)[0].2.seq;
    let copies = net.segments(start).iter().filter(|(_, node, s)| *node == 0 && s.seq == first).count();
    assert_eq!(copies, 2);
    let info = net.stacks[0].tcp_info(client).expect("tcp").expect("connected");
    assert_eq!((info.total_retrans, info.retransmits), (1, 0));
    assert!(info.snd_ssthresh < 10);
}

#[test]
fn an_orphan_in_fin_wait_2_goes_after_sixty_seconds() {
    let mut net = Net::new(2, lan(), 1);
    let (client, _, _) = net.pair();
    net.close(0, client);
    net.run(59 * SEC);
    assert_eq!(net.stacks[0].state(client), Some(TcpState::FinWait2));
    net.run(2 * SEC);
    assert_eq!(net.stacks[0].state(client), None);
}

#[test]
fn the_syn_ack_is_retransmitted_and_then_forgotten() {
    let mut net = Net::new(2, lan(), 1);
    net.listener(1, 80, 5);
    let start = net.now;
    net.start(0, at(1, 80));
    net.flush();
    cut(&mut net, 0, 1);
    net.run(200 * SEC);
    let syn_acks = times(&net, start, 1, |_| true);
    assert_eq!(syn_acks, [0, 1000, 3000, 7000, 15000, 31000]);
    assert!(net.stacks[1].is_quiet());
    assert_eq!(net.stacks[1].sockets().len(), 1, "only the listener is left");
}

#[test]
fn reads_of_a_stream_are_acknowledged_without_delay() {
    // A one-way stream of small messages: the reader drains each, so nothing waits for the delayed acknowledgement
    // and Nagle never holds a write for long.
    let mut net = Net::new(2, lan(), 1);
    let (client, server, _) = net.pair();
    let start = net.now;
    for _ in 0..40 {
        net.send(0, client, b"event").expect("send");
        net.run(500_000);
        assert_eq!(net.recv(1, server, 100).as_deref(), Ok(&b"event"[..]));
        net.run(500_000);
    }
    assert_eq!(net.now.since(start), 40 * MS);
}
