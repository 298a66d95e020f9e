//! The record of a run: every event goes into the digest, and then to the listeners.
//!
//! Key type: [`Recorder`]. What the digest covers is decided here and nowhere else; a change is a new
//! [`bloodhound_abi::digest::VERSION`]. Nothing that depends on the host, on what happens to be resident or on listeners may get in.

use std::fmt;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;

use bloodhound_abi::SimTime;
use bloodhound_abi::call::Call;
use bloodhound_abi::digest::Digest;
use bloodhound_kernel::ctx::Outside;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_kernel::watch::{Told, Watch, Whose};
use bloodhound_net::{Body, Flags, Header, Mishaps, NodeId, Packet};
use bloodhound_workloads::driver::Progress;

use crate::computing::Trial;
use crate::event::{Event, Listener, Memory, Moment};
use crate::machine::Machine;
use crate::notice::{LeftOut, LogEntry, Notice};
use crate::strace;
use crate::world::{Finding, FindingKind};

/// Takes events.
pub(crate) struct Recorder<'a> {
    digest: &'a mut Digest,
    step: u64,
    listeners: &'a mut [Box<dyn Listener>],
}

impl Recorder<'_> {
    /// Something happened.
    pub(crate) fn tell(&mut self, at: SimTime, node: Option<NodeId>, event: &Event<'_>) {
        mix(self.digest, at, node, event);
        if self.listeners.is_empty() {
            return;
        }
        let moment = Moment { at, node, step: self.step, digest: *self.digest };
        for listener in self.listeners.iter_mut() {
            listener.hear(&moment, event);
        }
    }
}

impl Watch for Recorder<'_> {
    fn tell(&mut self, whose: Whose, told: &Told<'_>) {
        let Whose { node, at, pid, tid } = whose;
        Recorder::tell(self, at, Some(node), &Event::Task { pid, tid, told });
    }
}

/// A node, and what it sees outside of itself: the parts of a machine that a system call needs.
pub(crate) struct Parts<'a> {
    pub(crate) node: &'a mut Node,
    pub(crate) base: &'a mut dyn bloodhound_vfs::BaseFs,
    pub(crate) decisions: &'a mut bloodhound_decisions::Decisions,
    pub(crate) record: Recorder<'a>,
    interrupt: Option<&'a AtomicBool>,
}

impl Parts<'_> {
    /// The node, and the rest as the kernel takes it.
    pub(crate) fn split(&mut self) -> (&mut Node, Outside<'_>) {
        let outside = Outside::new(self.base, self.decisions);
        (self.node, outside.watched(&mut self.record).until(self.interrupt))
    }

    /// A task made a system call.
    pub(crate) fn trap(&mut self, tid: Tid, call: &Call) {
        let (at, pid) = (self.node.clock, self.node.task(tid).pid);
        let node = self.node.container_of_any(pid).id;
        let memory = View { node: self.node, tid };
        self.record.tell(at, Some(node), &Event::Trap { pid, tid, call, memory: &memory });
    }
}

/// The memory of a task's process.
pub(crate) struct View<'a> {
    pub(crate) node: &'a Node,
    pub(crate) tid: Tid,
}

impl Memory for View<'_> {
    fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        self.node.peek(self.tid, addr, out).is_ok()
    }
}

/// Those who are told what happens: nobody where a run is made again and only repeats what was told.
fn told<'a>(listeners: &'a mut [Box<dyn Listener>], trial: Option<&Trial>) -> &'a mut [Box<dyn Listener>] {
    if trial.is_some_and(Trial::repeats) { &mut [] } else { listeners }
}

/// So many kills, so many crashes, and so many faults that its operations met, of each service are kept.
const KEPT: u64 = 1000;

/// How often a service has told of what it can tell without end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    kept: LeftOut,
    /// Where the timeline tells what is not kept.
    place: Option<usize>,
}

impl Machine {
    /// What takes events.
    pub(crate) fn recorder(&mut self) -> Recorder<'_> {
        let listeners = told(&mut self.listeners, self.trial.as_ref());
        Recorder { digest: &mut self.world.digest, step: self.world.steps, listeners }
    }

    /// The node and what it sees outside of itself at once.
    pub(crate) fn parts(&mut self, id: MachineId) -> Parts<'_> {
        let world = &mut self.world;
        let listeners = told(&mut self.listeners, self.trial.as_ref());
        let arc = world.nodes.get_mut(&id).unwrap_or_else(|| panic!("no node {id:?}"));
        Parts {
            node: std::sync::Arc::make_mut(arc),
            base: self.base.as_mut(),
            decisions: &mut world.decisions,
            record: Recorder { digest: &mut world.digest, step: world.steps, listeners },
            interrupt: self.interrupt.as_deref(),
        }
    }

    /// Something happened now, on a node or on none.
    pub(crate) fn tell(&mut self, node: Option<NodeId>, event: &Event<'_>) {
        let at = self.world.now;
        self.recorder().tell(at, node, event);
    }

    /// Something happened that the timeline has.
    pub(crate) fn note(&mut self, node: Option<NodeId>, what: Notice) {
        self.note_at(self.world.now, node, what);
    }

    /// The same of something that happened at another time, by the clock of its node.
    pub(crate) fn note_at(&mut self, at: SimTime, node: Option<NodeId>, what: Notice) {
        self.recorder().tell(at, node, &Event::Notice(&what));
        let kept = match what {
            Notice::OutOfMemory(_) => self.keeps(node, |told| &mut told.kills),
            Notice::Injected(_) => self.keeps(node, |told| &mut told.faults),
            _ => true,
        };
        if !kept {
            return;
        }
        self.world.log.push(LogEntry { at, node, what });
    }

    /// Something went wrong.
    pub(crate) fn find(&mut self, kind: FindingKind, node: Option<NodeId>, text: String) {
        let finding = Finding { kind, at: self.world.now, node, text };
        self.tell(node, &Event::Finding(&finding));
        if finding.kind == FindingKind::Crash && !self.keeps(node, |told| &mut told.crashes) {
            return;
        }
        self.world.findings.push(finding);
    }

    /// Whether one more of what a service can tell without end is kept. What is not is counted, and the timeline has the count.
    fn keeps(&mut self, node: Option<NodeId>, of: impl Fn(&mut LeftOut) -> &mut u64) -> bool {
        let (Some(id), at) = (node, self.world.now) else { return true };
        let told = self.world.told.entry(id).or_default();
        if *of(&mut told.kept) < KEPT {
            *of(&mut told.kept) += 1;
            return true;
        }
        let log = &mut self.world.log;
        let place = *told.place.get_or_insert_with(|| {
            log.push(LogEntry { at, node, what: Notice::LeftOut(LeftOut::default()) });
            log.len() - 1
        });
        if let Notice::LeftOut(left) = &mut log[place].what {
            *of(left) += 1;
        }
        false
    }

    /// What is said of a call, or of something else that a task does, that is not modelled.
    pub(crate) fn unsupported_text(
        &self,
        id: MachineId,
        tid: Tid,
        call: Option<&Call>,
        what: &str,
    ) -> String {
        let node = &self.world.nodes[&id];
        let comm =
            node.tasks.get(&tid).map(|t| String::from_utf8_lossy(&t.comm).into_owned()).unwrap_or_default();
        let text = call.map_or(String::new(), |call| strace::format_call(call, &View { node, tid }));
        let entry = call
            .and_then(Call::info)
            .map_or(String::new(), |e| format!(" (system call {} of the table: {:?})", e.nr, e.status));
        let detail = if what.is_empty() { "not modelled".to_string() } else { what.to_string() };
        format!("process {comm} (task {}): {text}{entry}: {detail}", tid.number())
    }

    /// Tells of the choices that were made since the last time. The digest gets the decisions' own hash of all of them, so that they
    /// need not be kept where only the digest listens.
    pub(crate) fn tell_choices(&mut self) {
        let heard = self.tells_choices();
        let world = &mut self.world;
        let listeners = told(&mut self.listeners, self.trial.as_ref());
        let mut record = Recorder { digest: &mut world.digest, step: world.steps, listeners };
        let trail = world.decisions.trail();
        if trail == world.trail {
            return;
        }
        world.trail = trail;
        record.digest.word(trail);
        if !record.listeners.iter().any(|listener| listener.wants_choices()) {
            if heard && self.trial.as_ref().is_some_and(Trial::repeats) {
                // They were told of when they were made first.
                world.decisions.take_made();
            }
            return;
        }
        for made in world.decisions.take_made() {
            record.tell(world.now, None, &Event::Choice(&made));
        }
    }

    /// Tells of the changes of a node's connections since the last time.
    pub(crate) fn tell_connections(&mut self, id: MachineId) {
        let Parts { node, mut record, .. } = self.parts(id);
        let Node { clock, net, containers, .. } = node;
        for (ns, stack) in net.iter_mut() {
            let whose = containers.iter().find(|container| container.net == ns).map(|container| container.id);
            for change in stack.drain_changes() {
                record.tell(*clock, whose, &Event::Connection(&change));
            }
        }
    }

    /// Tells of what the workload's clients did since the last time.
    pub(crate) fn tell_operations(&mut self, client: NodeId) {
        let world = &mut self.world;
        let Some(driver) = &mut world.clients.driver else { return };
        let progress = driver.take_progress();
        let mut record =
            Recorder { digest: &mut world.digest, step: world.steps, listeners: &mut self.listeners };
        let operations = driver.history().operations();
        for what in progress {
            let (Progress::Began(id) | Progress::Ended(id)) = what;
            let Some(operation) = operations.get(id.0) else { continue };
            let event = match what {
                Progress::Began(_) => Event::Begun(id.0, operation),
                Progress::Ended(_) => Event::Completed(id.0, operation),
            };
            record.tell(world.now, Some(client), &event);
        }
    }
}

/// Mixes an event into the digest. Events of a step have their fields mixed in one by one; those that are rare, as they are printed
/// for debugging, which names every field.
fn mix(digest: &mut Digest, at: SimTime, node: Option<NodeId>, event: &Event<'_>) {
    let mut head = |kind: u64, tid: u64| {
        digest.word(kind << 56 | node.map_or(0xffff, |n| u64::from(n.0)) << 40 | tid);
        digest.time(at);
    };
    match event {
        Event::Trap { tid, call, .. } => {
            head(1, u64::from(tid.0));
            digest.word(call.nr());
            call.arguments().for_each(|argument| digest.word(argument.value));
        }
        Event::Call { tid, call, result, .. } => {
            head(2, u64::from(tid.0));
            digest.word(call.nr());
            digest.word(*result);
        }
        Event::Exception { tid, signo, .. } => {
            head(3, u64::from(tid.0));
            digest.word(u64::from(*signo));
        }
        Event::Preempted { tid, .. } => head(17, u64::from(tid.0)),
        Event::Task { tid, told, .. } => {
            head(4, u64::from(tid.0));
            mix_told(digest, told);
        }
        Event::Process(end) => {
            head(5, 0);
            digest.word(u64::from(end.pid.0) << 32 | u64::from(end.status.wait_word()));
        }
        Event::Sent { number, packet } => {
            head(6, 0);
            digest.word(*number);
            mix_packet(digest, packet);
        }
        Event::Dropped { number, reason } => {
            head(7, 0);
            digest.word(*number);
            printed(digest, reason);
        }
        Event::Routed { number, to, arrives, mishaps, copy } => {
            head(8, 0);
            digest.word(*number);
            mix_fate(digest, *to, (*arrives, *copy), *mishaps);
        }
        Event::Delivered { number, .. } => {
            head(9, 0);
            digest.word(*number);
        }
        Event::Connection(change) => {
            head(10, u64::from(change.id.0));
            digest.word(change.state as u64);
            mix_address(digest, change.local);
            if let Some(peer) = change.peer {
                mix_address(digest, peer);
            }
        }
        Event::Notice(notice) => {
            head(11, 0);
            printed(digest, notice);
        }
        Event::Service(change) => {
            head(12, 0);
            printed(digest, change);
        }
        Event::Begun(id, operation) => {
            head(13, *id as u64);
            printed(digest, &operation.call);
        }
        Event::Completed(id, operation) => {
            head(14, *id as u64);
            printed(digest, &operation.outcome);
        }
        Event::Output(chunk) => {
            head(15, u64::from(chunk.pid.0) << 2 | chunk.stream as u64);
            digest.bytes(&chunk.bytes);
        }
        // In it already, all together: see `tell_choices`.
        Event::Choice(_) => {}
        Event::Finding(finding) => {
            head(16, 0);
            printed(digest, finding);
        }
    }
}

fn mix_fate(digest: &mut Digest, to: NodeId, (arrives, copy): (SimTime, Option<SimTime>), mishaps: Mishaps) {
    digest.word(u64::from(to.0));
    digest.time(arrives);
    digest.word(mishaps.delay);
    digest.word(mishaps.reordered);
    digest.time(copy.unwrap_or(SimTime::MAX));
    if mishaps.changed > 0 {
        digest.word(mishaps.changed);
    }
    if mishaps.damaged {
        digest.word(u64::MAX);
    }
}

fn mix_told(digest: &mut Digest, told: &Told<'_>) {
    match told {
        Told::Began { parent } => digest.word(1 << 32 | parent.map_or(0, |tid| u64::from(tid.0))),
        Told::Exec { path } => {
            digest.word(2 << 32);
            digest.bytes(path);
        }
        Told::Signal { signo, disposition } => {
            digest.word(3 << 32 | u64::from(*signo) << 8 | *disposition as u64);
        }
        Told::Moved(moved) => {
            digest.word(4 << 32);
            [moved.read, moved.written, moved.hash].into_iter().for_each(|word| digest.word(word));
        }
        Told::Ended { status } => digest.word(5 << 32 | u64::from(status.wait_word())),
    }
}

fn mix_packet(digest: &mut Digest, packet: &Packet) {
    mix_address(digest, packet.src);
    mix_address(digest, packet.dst);
    match &packet.body {
        Body::Tcp(s) => {
            digest.word(u64::from(s.seq) << 32 | u64::from(s.ack));
            digest.word(u64::from(s.flags.bits()) << 16 | u64::from(s.window));
            let option = |known: Option<u64>| known.map_or(u64::from(u32::MAX), |value| value);
            digest.word(option(s.mss.map(u64::from)) << 32 | option(s.wscale.map(u64::from)));
            digest.bytes(&s.payload);
            if s.flags.contains(Flags::URG) {
                digest.word(u64::from(s.urgent));
            }
            // Absent where they are as most have them.
            if s.hops != Header::default().hops {
                digest.word(1 << 51 | u64::from(s.hops));
            }
            if let Some(signature) = s.signature {
                digest.word(1 << 52);
                digest.word(signature);
            }
        }
        Body::Udp(header, data) => {
            digest.bytes(data);
            // Absent where it is as most have it.
            if *header != Header::default() {
                digest.word(
                    1 << 49
                        | u64::from(header.lite) << 16
                        | u64::from(header.hops) << 8
                        | u64::from(header.class),
                );
            }
        }
        Body::Icmp(kind, proto, data) => {
            digest.word(1 << 48 | (*kind as u64) << 8 | *proto as u64);
            digest.bytes(data);
        }
        Body::Raw(header, protocol, data) => {
            digest.word(
                1 << 50 | u64::from(*protocol) << 16 | u64::from(header.hops) << 8 | u64::from(header.class),
            );
            digest.bytes(data);
        }
    }
}

fn mix_address(digest: &mut Digest, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => digest.word(u64::from(u32::from(ip)) << 16 | u64::from(address.port())),
        IpAddr::V6(ip) => {
            let whole = u128::from(ip);
            digest.word(whole as u64);
            digest.word((whole >> 64) as u64);
            digest.word(1 << 48 | u64::from(address.port()));
        }
    }
}

/// Mixes in how something is printed, piece by piece: nothing is allocated.
fn printed(digest: &mut Digest, what: &dyn fmt::Debug) {
    struct Into<'a>(&'a mut Digest);
    impl Write for Into<'_> {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            self.0.bytes(piece.as_bytes());
            Ok(())
        }
    }
    // It cannot fail.
    let _ignored = write!(Into(digest), "{what:?}");
}

#[cfg(test)]
mod tests;
