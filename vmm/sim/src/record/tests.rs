//! The canaries of the digest: whatever one thing is another, the digest is another.

use std::collections::BTreeSet;

use bloodhound_abi::Errno;
use bloodhound_abi::digest::Moved;
use bloodhound_decisions::{Choice, Decisions, Log, Mode, Part, Site};
use bloodhound_kernel::file::Console;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::{ConsoleChunk, ProcessEnd};
use bloodhound_kernel::process::ExitStatus;
use bloodhound_kernel::watch::Disposition;
use bloodhound_net::{
    DropReason, Flags, Header, Mishaps, PartitionKind, Proto, Segment, SocketId, StateChange, TcpState,
    Unreachable,
};

use super::*;
use crate::faults::{Crash, Fault, FaultId, Partition, Pause, Planned, Reset};
use crate::notice::{CheckResult, PhaseChange, Refusal};
use crate::services::{Moment, ServiceChange};
use bloodhound_faults::Kind;

const NODE: Option<NodeId> = Some(NodeId(1));
const AT: SimTime = SimTime(7);

struct Nothing;

impl Memory for Nothing {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

fn of(event: &Event<'_>) -> Digest {
    let mut digest = Digest::default();
    mix(&mut digest, AT, NODE, event);
    digest
}

/// All of these are different from each other, and each is equal to itself.
#[track_caller]
fn differ(events: &[Event<'_>]) {
    let seen: BTreeSet<String> = events.iter().map(|event| of(event).to_string()).collect();
    assert_eq!(seen.len(), events.len());
    assert!(events.iter().all(|event| of(event) == of(event)));
}

#[test]
fn time_and_place_count() {
    let event = Event::Delivered { number: 1, packet: &packet(b"") };
    let at = |at, node| {
        let mut digest = Digest::default();
        mix(&mut digest, SimTime(at), node, &event);
        digest.to_string()
    };
    let all = [at(1, NODE), at(2, NODE), at(1, Some(NodeId(2))), at(1, None)];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn one_argument_and_one_result_count() {
    let call = |nr, first| Call::decode(nr, [first, 2, 3, 4, 5, 6]);
    let (read, other, write) = (call(0, 1), call(0, 9), call(1, 1));
    let (pid, tid) = (Pid(1), Tid(1));
    let trap = |call| Event::Trap { pid, tid, call, memory: &Nothing };
    let end = |call, result| Event::Call { pid, tid, call, result };
    differ(&[
        trap(&read),
        trap(&other),
        trap(&write),
        Event::Trap { pid, tid: Tid(2), call: &read, memory: &Nothing },
        end(&read, 1),
        end(&read, 2),
        end(&write, 1),
        Event::Exception { pid, tid, signo: 11 },
        Event::Exception { pid, tid, signo: 7 },
        Event::Preempted { pid, tid },
    ]);
}

#[test]
fn lives_signals_and_bytes_that_calls_copy_count() {
    let moved = |bytes: &[u8], out: bool| {
        let mut moved = Moved::default();
        if out {
            moved.written(bytes)
        } else {
            moved.read(bytes)
        }
        Told::Moved(moved)
    };
    let signal = |signo, disposition| Told::Signal { signo, disposition };
    let ended = |status| Told::Ended { status };
    let told = [
        moved(b"AAAA", false),
        moved(b"BBBB", false),
        moved(b"AAAA", true),
        Told::Began { parent: None },
        Told::Began { parent: Some(Tid(1)) },
        Told::Exec { path: b"/a" },
        Told::Exec { path: b"/b" },
        signal(1, Disposition::Handled),
        signal(2, Disposition::Handled),
        signal(1, Disposition::Killed),
        ended(ExitStatus::Code(0)),
        ended(ExitStatus::Code(1)),
        ended(ExitStatus::Signal { signo: 1, core: false }),
    ];
    let events = told.each_ref().map(|told| Event::Task { pid: Pid(1), tid: Tid(1), told });
    differ(&events);
    let end = |status| ProcessEnd {
        at: AT,
        container: NodeId(1),
        pid: Pid(1),
        comm: b"x".to_vec(),
        status,
        fault: None,
    };
    let ends =
        [ExitStatus::Code(0), ExitStatus::Code(1), ExitStatus::Signal { signo: 1, core: true }].map(end);
    differ(&ends.each_ref().map(Event::Process));
}

fn packet(payload: &[u8]) -> Packet {
    let segment = Segment { payload: payload.to_vec().into(), ..Segment::control(1, 2, Flags::ACK, 3) };
    let address = |host: u8| SocketAddr::from(([10, 0, 0, host], 80));
    Packet { src: address(1), dst: address(2), body: Body::Tcp(segment), place: Default::default() }
}

#[test]
fn one_byte_of_a_packet_and_one_fate_count() {
    let plain = packet(b"AAAA");
    let mut others = vec![packet(b"AAAB"), packet(b"AAA")];
    let mut changed = |change: &dyn Fn(&mut Packet)| {
        let mut other = plain.clone();
        change(&mut other);
        others.push(other);
    };
    changed(&|p| p.src.set_port(81));
    changed(&|p| p.dst = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80)));
    let fields: [&dyn Fn(&mut Segment); 8] = [
        &|s| s.seq += 1,
        &|s| s.ack += 1,
        &|s| s.flags |= Flags::FIN,
        &|s| s.window += 1,
        &|s| s.mss = Some(3),
        &|s| s.wscale = Some(3),
        &|s| s.hops = 3,
        &|s| s.signature = Some(3),
    ];
    for field in fields {
        changed(&|p| {
            if let Body::Tcp(segment) = &mut p.body {
                field(segment)
            }
        });
    }
    changed(&|p| p.body = Body::Udp(Header::default(), b"AAAA".to_vec().into()));
    changed(&|p| p.body = Body::Raw(Header::default(), 1, b"AAAA".to_vec().into()));
    changed(&|p| p.body = Body::Raw(Header::default(), 2, b"AAAA".to_vec().into()));
    changed(&|p| p.body = Body::Raw(Header::default(), 1, b"AAAB".to_vec().into()));
    changed(&|p| p.body = Body::Raw(Header { hops: 1, ..Header::default() }, 1, b"AAAA".to_vec().into()));
    for (kind, data) in [(Unreachable::Port, ""), (Unreachable::Host, ""), (Unreachable::Host, "A")] {
        changed(&|p| p.body = Body::Icmp(kind, Proto::Udp, data.as_bytes().to_vec().into()));
    }
    let all: Vec<Event<'_>> =
        others.iter().chain([&plain]).map(|packet| Event::Sent { number: 1, packet }).collect();
    differ(&all);

    let to = NodeId(2);
    let fine = Mishaps::default();
    let routed =
        |arrives, mishaps, copy| Event::Routed { number: 1, to, arrives: SimTime(arrives), mishaps, copy };
    differ(&[
        routed(9, fine, None),
        routed(8, fine, None),
        routed(9, Mishaps { delay: 1, ..fine }, None),
        routed(9, Mishaps { reordered: 1, ..fine }, None),
        routed(9, Mishaps { damaged: true, ..fine }, None),
        routed(9, fine, Some(SimTime(9))),
        Event::Routed { number: 2, to, arrives: SimTime(9), mishaps: fine, copy: None },
        Event::Routed { number: 1, to: NodeId(3), arrives: SimTime(9), mishaps: fine, copy: None },
        Event::Dropped { number: 1, reason: DropReason::Loss },
        Event::Dropped { number: 1, reason: DropReason::Corrupt },
        Event::Dropped { number: 2, reason: DropReason::Loss },
        Event::Delivered { number: 1, packet: &plain },
        Event::Delivered { number: 2, packet: &plain },
    ]);
    let change = |state, port| {
        let (local, peer) = (SocketAddr::from(([10, 0, 0, 1], port)), None);
        StateChange { id: SocketId(1), local, peer, state }
    };
    let changes =
        [change(TcpState::Established, 80), change(TcpState::Close, 80), change(TcpState::Close, 81)];
    differ(&changes.each_ref().map(Event::Connection));
}

#[test]
fn one_choice_counts() {
    let site = |nth| Site::ClientRandom { nth };
    let trail = |value, nth| {
        let log = Log::new(1, 1).with(Choice { part: Part::Run, site: site(nth) }, 10, value);
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(1);
        assert_eq!(decisions.choose(site(nth), 10), value);
        decisions.trail()
    };
    let all = [trail(3, 1), trail(4, 1), trail(3, 2)];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert_eq!(trail(3, 1), all[0]);
}

#[test]
fn notices_output_and_findings_count() {
    let planned = |id, duration, fault| Notice::Fault(Planned { id, begin: AT, duration, fault });
    let id = |kind, target| FaultId { kind, target, nth: 0 };
    let fault = |node, down| planned(id(Kind::Crash, node), down, Fault::Crash(Crash { node: NodeId(node) }));
    let partition = |cut| planned(id(Kind::Partition, 0), 5, Fault::Partition(Partition { cut }));
    let refused = |error| Notice::Refused(Refusal { stream: Console::Out, step: 1, error, taken: 0 });
    let check = |index, result| Notice::Check { index, result };
    let notices = [
        fault(1, 5),
        fault(2, 5),
        fault(1, 6),
        planned(id(Kind::Pause, 1), 5, Fault::Pause(Pause { node: NodeId(1) })),
        planned(id(Kind::Reset, 0), 0, Fault::Reset(Reset { node: NodeId(1) })),
        partition(PartitionKind::Symmetric(vec![NodeId(1)], vec![NodeId(2)])),
        partition(PartitionKind::OneWay(vec![NodeId(1)], vec![NodeId(2)])),
        Notice::FaultEnd(id(Kind::Pause, 1)),
        Notice::Service(ServiceChange::Started),
        Notice::Service(ServiceChange::Healthy),
        Notice::Service(ServiceChange::Unhealthy { failures: 3 }),
        Notice::Service(ServiceChange::Stopping),
        Notice::Service(ServiceChange::Hook { moment: Moment::PreStop, nth: 0, status: ExitStatus::Code(1) }),
        Notice::Service(ServiceChange::Hook { moment: Moment::PreStop, nth: 1, status: ExitStatus::Code(1) }),
        Notice::Service(ServiceChange::Ended(ExitStatus::Code(1))),
        check(0, CheckResult::Holds),
        check(1, CheckResult::Holds),
        check(0, CheckResult::Violated { within: None, why: "a".into() }),
        check(0, CheckResult::Violated { within: None, why: "b".into() }),
        Notice::Phase(PhaseChange::Healed),
        Notice::Phase(PhaseChange::Done),
        refused(None),
        refused(Some(Errno::EPIPE)),
    ];
    differ(&notices.each_ref().map(Event::Notice));
    let chunk = |pid, stream, bytes: &[u8]| ConsoleChunk {
        at: AT,
        container: NodeId(1),
        pid: Pid(pid),
        stream,
        check: false,
        bytes: bytes.to_vec(),
    };
    let chunks = [
        chunk(1, Console::Out, b"a"),
        chunk(1, Console::Out, b"b"),
        chunk(1, Console::Err, b"a"),
        chunk(2, Console::Out, b"a"),
    ];
    differ(&chunks.each_ref().map(Event::Output));
    let finding = |kind, text: &str| Finding { kind, at: AT, node: NODE, text: text.into() };
    let findings =
        [finding(FindingKind::Crash, "a"), finding(FindingKind::Crash, "b"), finding(FindingKind::Hang, "a")];
    differ(&findings.each_ref().map(Event::Finding));
}
