//! The machine loop: runs the node whose clock is earliest until it passes the next event, over and over.
//!
//! Nodes are parallel in virtual time. A node may run ahead of the others by the network's lowest latency at most
//! (the lookahead of conservative discrete-event simulation), so that no packet can reach its past.
//! Neighbours: [`crate::step`] runs one step of one task, [`crate::services`] and [`crate::faults`] act on events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bloodhound_abi::SimTime;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_kernel::stacks::NetNs;
use bloodhound_net::{DropReason, NodeId};
use bloodhound_platform::code_points::{Mark, WithCodePoints};
use bloodhound_platform::{Mapping, Patches, Platform, PlatformError, SpaceId};
use bloodhound_vfs::BaseFs;

use crate::breakpoints::Breakpoints;
use crate::code_view::{CodeView, Observer};
use crate::computing::turns::Free;
use crate::computing::{SuspectAt, Suspicion, Trial};
use crate::event::{Event, Listener};
use crate::faults::Patterns;
use crate::output::{Answers, Computing, Output};
use crate::page_faults::UsedPages;
use crate::profile::{Profile, Profiler};
use crate::queue::Due;
use crate::scenario::Scenario;
use crate::spaces::Spaces;
use crate::spin::Detector;
use crate::world::{Finding, FindingKind, Room, World};

/// Test modes that must not change any digest (ARCHITECTURE.md, "Standing tests").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestModes {
    /// Drop all platform state every so many steps.
    pub evict_every: u64,
    /// Wake a sleeping task for nothing every so many steps.
    pub spurious_every: u64,
    /// Clone the world every so many steps and go on with the clone; the original is kept until the next time.
    pub clone_every: u64,
}

/// Why a run of the loop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The condition holds.
    Condition,
    /// Nothing can happen any more.
    Quiet,
    /// A finding that makes going on meaningless was recorded.
    Fatal(Finding),
    /// The host asked to stop.
    Interrupted,
    /// A task computed for so long that the run was given up: which, where and for how long. No property of the run, as a
    /// faster host comes further in the same time.
    Undecided(String),
    /// A task has computed for long. Only where that is wanted ([`Machine::set_suspicious`]): the run is to be made again.
    Suspect(Suspicion),
}

/// A host-side failure, with the place in the run.
#[derive(Debug)]
pub struct MachineError {
    /// What the platform says.
    pub error: PlatformError,
    /// Where it happened.
    pub at: SimTime,
    /// The step.
    pub step: u64,
}

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (virtual time {}, step {})", self.error, self.at, self.step)
    }
}

impl std::error::Error for MachineError {}

/// A world on a platform.
pub struct Machine {
    /// The world; change it only between runs of the loop, after [`Machine::detach`].
    pub world: World,
    pub(crate) platform: WithCodePoints,
    pub(crate) base: Box<dyn BaseFs>,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) listeners: Vec<Box<dyn Listener>>,
    pub(crate) modes: TestModes,
    /// What the test mode of cloning keeps.
    pub(crate) kept: Option<World>,
    pub(crate) spaces: Spaces,
    pub(crate) code: CodeView,
    pub(crate) used: UsedPages,
    pub(crate) scratch: Vec<Mapping>,
    /// The loop looks at its condition after each step of a node.
    pub(crate) each_step: bool,
    pub(crate) interrupt: Option<Arc<std::sync::atomic::AtomicBool>>,
    pub(crate) output: Option<Output>,
    pub(crate) answers: Answers,
    pub(crate) computing: Option<Computing>,
    pub(crate) spin: Detector,
    /// Is told whether what runs is a health check, when that changes.
    pub(crate) meter: Option<Box<dyn FnMut(bool)>>,
    pub(crate) metered: bool,
    /// Why the run is to be given up, if it is.
    pub(crate) undecided: Option<String>,
    /// Whether tasks may come under suspicion ([`crate::computing`]), and the steps at which one did.
    pub(crate) suspicious: bool,
    /// Whether the logs of runs say all about loops that are counted.
    pub(crate) trusts_log: bool,
    /// The second part: whether it computed uncounted. With how often.
    pub(crate) tried: BTreeMap<(u64, bool), u32>,
    pub(crate) suspect_at: Option<SuspectAt>,
    /// What an address space has not mapped, of which that was asked last.
    pub(crate) free: Option<Free>,
    /// The processor time when tasks that compute were preempted for the first time since their last trap.
    pub(crate) computes_since: BTreeMap<(MachineId, Tid), Duration>,
    /// Where a task that computes had got to when it was asked last: the moment, and the passes that were left.
    pub(crate) progress: Option<(u64, u64)>,
    /// Sets of stop points of searches and of profiles so far, at least.
    pub(crate) sets: u64,
    /// The task of the finding `hang`.
    pub(crate) hung: Option<(MachineId, Tid)>,
    /// Why the run is to be made again, and why it is.
    pub(crate) suspicion: Option<Suspicion>,
    pub(crate) trial: Option<Trial>,
    /// Gathers which instructions access shared memory, and what was gathered so.
    pub(crate) profiler: Option<Profiler>,
    pub(crate) profile: Option<Arc<Profile>>,
    pub(crate) breakpoints: Option<Breakpoints>,
    /// What triggers of faults look for in lines.
    pub(crate) patterns: Patterns,
}

impl Machine {
    /// A machine for a world made by [`crate::setup`].
    pub fn new(
        world: World,
        scenario: Arc<Scenario>,
        platform: Box<dyn Platform>,
        base: Box<dyn BaseFs>,
    ) -> Machine {
        let code = CodeView::new(Patches::needed(&platform.abilities()));
        Machine {
            world,
            platform: WithCodePoints::new(platform),
            code,
            used: UsedPages::default(),
            base,
            scenario,
            listeners: Vec::new(),
            modes: TestModes::default(),
            kept: None,
            spaces: Spaces::default(),
            scratch: Vec::new(),
            each_step: false,
            interrupt: None,
            output: None,
            answers: Answers::default(),
            computing: None,
            spin: Detector::default(),
            meter: None,
            metered: false,
            undecided: None,
            suspicious: false,
            trusts_log: false,
            tried: BTreeMap::new(),
            suspect_at: None,
            free: None,
            computes_since: BTreeMap::new(),
            progress: None,
            sets: 0,
            hung: None,
            suspicion: None,
            trial: None,
            profiler: None,
            profile: None,
            breakpoints: None,
            patterns: Patterns::default(),
        }
    }

    /// `listener` is told everything that happens from now on, after those that listen already.
    pub fn listen(&mut self, listener: Box<dyn Listener>) {
        if listener.wants_choices() {
            self.world.decisions.listen(true);
        }
        self.listeners.push(listener);
    }

    /// Whether somebody who listens wants to be told of choices.
    pub fn tells_choices(&self) -> bool {
        self.listeners.iter().any(|listener| listener.wants_choices())
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// From now on only the first so many listen.
    pub fn leave_listeners(&mut self, first: usize) {
        self.listeners.truncate(first);
        self.world.decisions.listen(self.tells_choices());
    }

    /// Calls `meter` whenever a process of a health check begins or ceases to run, with whether one does: the host's time for
    /// them is measured so. Nothing that it does may reach the world.
    pub fn set_meter(&mut self, meter: Box<dyn FnMut(bool)>) {
        self.meter = Some(meter);
    }

    /// Turns standing tests on.
    pub fn set_modes(&mut self, modes: TestModes) {
        self.modes = modes;
    }

    /// The loop ends soon after this becomes true.
    pub fn set_interrupt(&mut self, flag: Arc<std::sync::atomic::AtomicBool>) {
        self.interrupt = Some(flag);
    }

    /// Shows code with these instructions replaced, instead of those that the platform needs: for tests. To be called before
    /// anything runs.
    pub fn set_patches(&mut self, patches: Patches) {
        self.code = CodeView::new(patches);
    }

    /// Tells `observer` which code is executed. To be called before anything runs.
    pub fn observe(&mut self, observer: Observer) {
        self.platform.observe(observer.observed.clone(), observer.mark.clone());
        self.code.observe(observer);
    }

    /// What observers are told of what the machine is doing, if there are any.
    pub fn mark(&self) -> Option<&Mark> {
        self.code.observer().map(|observer| &*observer.mark)
    }

    /// Whether [`Machine::run`] looks at its condition after each step, and not only after a slice of virtual time. What happens is the
    /// same either way.
    pub fn look_after_each_step(&mut self, on: bool) {
        self.each_step = on;
    }

    /// The scenario of the run.
    pub fn scenario(&self) -> &Arc<Scenario> {
        &self.scenario
    }

    /// Runs until `done` holds, nothing can happen, or something fatal was found.
    ///
    /// # Errors
    /// Host errors.
    pub fn run(&mut self, mut done: impl FnMut(&World) -> bool) -> Result<Ended, MachineError> {
        loop {
            // The world is amid a step then: nothing is to be said of it.
            if let Some(suspicion) = self.suspicion.take() {
                return Ok(Ended::Suspect(suspicion));
            }
            if let Some(why) = self.undecided.take() {
                return Ok(Ended::Undecided(why));
            }
            if done(&self.world) {
                return Ok(Ended::Condition);
            }
            if let Some(f) = self.fatal() {
                return Ok(Ended::Fatal(f));
            }
            if self.interrupted() {
                return Ok(Ended::Interrupted);
            }
            let more = self.advance()?;
            // What led to a suspicion happens again.
            if self.suspicion.is_none() {
                self.tell_choices();
            }
            if !more {
                return Ok(Ended::Quiet);
            }
        }
    }

    /// Whether the host asked to stop.
    pub fn interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|i| i.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn fatal(&self) -> Option<Finding> {
        let fatal = |f: &&Finding| {
            matches!(f.kind, FindingKind::Unsupported | FindingKind::Hang | FindingKind::NotReady)
        };
        self.world.findings.iter().find(fatal).cloned()
    }

    /// When the next thing happens that no running task causes.
    fn next_timed(&self) -> Option<SimTime> {
        let idle = |(id, n): &(&MachineId, &Arc<Node>)| {
            n.run_queue.is_empty() || self.world.paused.contains_key(*id)
        };
        let deadlines =
            self.world.nodes.iter().filter(idle).filter_map(|(_, n)| Some(n.next_deadline()?.max(n.clock)));
        let spent = self.world.nodes.values().filter_map(|node| Some(self.busy(node)?.0));
        deadlines.chain(self.world.queue.next_time()).chain(self.client_deadline()).chain(spent).min()
    }

    /// A node on which nothing runs but a task that goes round in a loop, which uses CPU time: when it will have used so much of it
    /// that a timer or a limit says so, and how much that is. A loop costs nothing otherwise.
    fn busy(&self, node: &Node) -> Option<(SimTime, Tid, u64)> {
        let id = node.config.id;
        if !node.run_queue.is_empty() || self.world.paused.contains_key(&id) {
            return None;
        }
        let busy = self.world.scheduler.busy(id).filter_map(|tid| Some((node.cpu_time_left(tid)?, tid)));
        busy.min().map(|(left, tid)| (node.clock.after(left), tid, left))
    }

    /// One slice of a node or the events of one time. False if nothing can happen.
    fn advance(&mut self) -> Result<bool, MachineError> {
        self.begin_epochs();
        let next = self.world.scheduler.next_node(&self.world.nodes, &self.world.paused);
        let timed = self.next_timed();
        match (next.first, timed) {
            (Some((clock, id)), t)
                if t.is_none_or(|t| clock < t || clock == t && !self.world.faults.goes_first(t)) =>
            {
                let lookahead = self.scenario.link.latency;
                // At most a time step, so that whoever waits for a condition or an interrupt gets to look.
                let slice = clock.after(self.scenario.time_step);
                let limit = next.second.after(lookahead).min(t.unwrap_or(SimTime::MAX)).min(slice);
                self.run_node(id, limit)?;
                Ok(true)
            }
            (_, Some(t)) => {
                self.world.reach(t);
                self.timed(t);
                Ok(true)
            }
            _ => Ok(self.report_deadlock()),
        }
    }

    /// Runs steps of a node until its clock passes `limit`, it has nothing to run, or it sent something.
    fn run_node(&mut self, id: MachineId, limit: SimTime) -> Result<(), MachineError> {
        self.world.reach(self.world.nodes[&id].clock);
        loop {
            let sent = self.step(id)?;
            let node = &self.world.nodes[&id];
            let over = sent || node.run_queue.is_empty() || node.clock > limit || node.wants_stdin();
            if over || self.each_step || !self.world.faults.urgent.is_empty() {
                return Ok(());
            }
        }
    }

    /// Everything that is due at `t`: timers of idle nodes, clients, events.
    fn timed(&mut self, t: SimTime) {
        let ids: Vec<MachineId> = self.world.nodes.keys().copied().collect();
        for id in ids {
            if let Some((at, tid, left)) = self.busy(&self.world.nodes[&id]).filter(|(at, ..)| *at <= t) {
                debug_assert!(at >= self.world.nodes[&id].clock);
                self.world.node_mut(id).charge_computed(tid, left);
                self.node_changed(id);
            }
            let node = &self.world.nodes[&id];
            let idle = node.run_queue.is_empty() || self.world.paused.contains_key(&id);
            if idle && node.next_deadline().is_some_and(|d| d <= t) {
                let node = self.world.node_mut(id);
                node.clock = node.clock.max(t);
                node.on_time();
                self.node_changed(id);
            }
        }
        self.run_clients(t);
        self.conclude_run();
        while let Some((at, due)) = self.world.queue.pop_due(t) {
            self.world.reach(at);
            self.due(due);
        }
    }

    fn due(&mut self, due: Due) {
        match due {
            Due::Deliver(id, number, packet) => self.deliver(id, number, *packet),
            Due::FaultsBegin => self.set_links(true),
            Due::Links(faulty) => self.set_links_in_faults(faulty),
            Due::Fault(entry) => self.fault_due(entry),
            Due::FaultEnds(entry) => self.fault_ends(entry),
            Due::FaultGoesOn(entry, step) => self.fault_goes_on(entry, step),
            Due::Answer(id, packet) => {
                self.hear(id, *packet);
                self.node_changed(self.world.room(id).machine);
            }
            Due::Start(id) => self.start_service(id),
            Due::HealthCheck(id) => self.check_health(id),
            Due::HealthTimeout(id, pid) => self.health_timeout(id, pid),
            Due::StopTimeout(id, pid) => self.stop_timeout(id, pid),
            Due::Check(index) => self.check_due(index),
            Due::CheckTimeout(index, attempt) => self.check_timeout(index, attempt),
            Due::BootTimeout => self.boot_timeout(),
            Due::HealPhase => self.heal_phase(),
            Due::End => self.end_of_time(),
            Due::Rested(id) => {
                self.node_changed(id);
            }
            Due::Computing(id) => self.rested(id),
        }
    }

    fn deliver(&mut self, id: NodeId, number: u64, packet: bloodhound_net::Packet) {
        if self.world.fabric.is_down(id) {
            self.tell(Some(id), &Event::Dropped { number, reason: DropReason::NodeDown(id) });
            return;
        }
        self.tell(Some(id), &Event::Delivered { number, packet: &packet });
        let Some(Room { machine, net, .. }) = self.world.rooms.get(&id).copied() else {
            self.deliver_to_client(id, packet);
            return;
        };
        self.world.catch_up(machine);
        self.world.node_mut(machine).receive(net, packet);
        self.node_changed(machine);
    }

    /// Something on a node changed: parked tasks are woken, and what it has put out is taken ([`Machine::take_output`]). True
    /// if packets were sent.
    pub(crate) fn node_changed(&mut self, id: MachineId) -> bool {
        self.world.scheduler.wake_parked(id, &mut self.world.nodes);
        self.take_output(id)
    }

    /// Takes what a node has put out: packets go to the network, console output and ends of processes to who wants them, dead
    /// address spaces away. True if packets were sent.
    pub(crate) fn take_output(&mut self, id: MachineId) -> bool {
        let Some(arc) = self.world.nodes.get_mut(&id) else { return false };
        let node = Arc::make_mut(arc);
        for space in node.dead_spaces.drain(..) {
            self.spaces.remove(space);
            self.code.forget(space);
            self.platform.drop_space(SpaceId(space));
        }
        let (console, clock) = (std::mem::take(&mut node.console), node.clock);
        let ends = std::mem::take(&mut node.ends);
        let kills = std::mem::take(&mut node.memory.kills);
        let injected = std::mem::take(&mut node.injected);
        self.tell_connections(id);
        for chunk in console {
            self.fault_triggers_read(&chunk, clock);
            self.recorder().tell(clock, Some(chunk.container), &Event::Output(&chunk));
            if self.output.is_none() {
                self.script_wrote(&chunk);
                Arc::make_mut(&mut self.world.console).push(chunk);
            }
        }
        let sent = self.take_packets(id, clock);
        self.tell_kills(kills);
        self.tell_injected(injected);
        for end in ends {
            self.process_ended(end.container, end);
        }
        sent
    }

    /// Sends the packets of a machine's network stacks. True if there were any.
    fn take_packets(&mut self, id: MachineId, clock: SimTime) -> bool {
        let mut sent = false;
        for at in 0..self.world.nodes[&id].net.len() as u32 {
            let net = NetNs(at);
            let node = self.world.node_mut(id);
            let stack = node.net.stack_mut(net);
            let questions = stack.take_questions();
            let (packets, unknown) = (stack.take_output(), stack.take_unknown_names());
            // So it is after most steps.
            if packets.is_empty() && unknown.is_empty() && questions.is_empty() {
                continue;
            }
            // The first container with a stack is the one that it was made for.
            let Some(owner) = node.containers.iter().find(|container| container.net == net) else { continue };
            let owner = owner.id;
            questions.iter().for_each(|question| self.question(owner, question, clock));
            self.names_outside(owner, unknown);
            sent |= !packets.is_empty();
            self.send_packets(owner, packets, clock);
        }
        sent
    }

    /// Routes packets that `id` sent at `clock`.
    pub(crate) fn send_packets(&mut self, id: NodeId, packets: Vec<bloodhound_net::Packet>, clock: SimTime) {
        for packet in packets {
            if self.world.fabric.is_for_many(id, &packet) {
                self.send_copies(id, &packet, clock);
                continue;
            }
            let number = self.tell_sent(id, &packet, clock);
            let about = packet.clone();
            let routed = self.world.fabric.route(packet, id, clock, &mut self.world.decisions);
            let dropped = routed.dropped;
            self.put_on_the_way(id, number, routed, clock);
            if dropped == Some(DropReason::NoRoute) {
                self.answer_from_router(id, &about, clock);
            }
        }
    }

    /// Sends a packet to each service of the sender's network; clients of the workload listen to no groups.
    fn send_copies(&mut self, id: NodeId, packet: &bloodhound_net::Packet, clock: SimTime) {
        for (to, ip) in self.world.fabric.hearers(id, packet.src.ip()) {
            if !self.world.rooms.contains_key(&to) {
                continue;
            }
            let number = self.tell_sent(id, packet, clock);
            let (way, decisions) = ((id, to, ip), &mut self.world.decisions);
            let routed = self.world.fabric.route_copy(packet.clone(), way, clock, decisions);
            self.put_on_the_way(id, number, routed, clock);
        }
    }

    /// Tells of a packet that a node sends. Returns its number.
    fn tell_sent(&mut self, id: NodeId, packet: &bloodhound_net::Packet, clock: SimTime) -> u64 {
        self.world.packets += 1;
        let number = self.world.packets;
        self.recorder().tell(clock, Some(id), &Event::Sent { number, packet });
        number
    }

    /// Tells what becomes of a packet, and has it delivered when it arrives.
    fn put_on_the_way(&mut self, id: NodeId, number: u64, routed: bloodhound_net::Routed, clock: SimTime) {
        self.tell_choices();
        self.count_packet(id, &routed);
        if let Some(reason) = routed.dropped {
            self.recorder().tell(clock, Some(id), &Event::Dropped { number, reason });
        }
        if let Some(first) = &routed.first {
            let (to, arrives, mishaps) = (first.to, first.at, routed.mishaps);
            let copy = routed.second.as_ref().map(|second| second.at);
            let event = Event::Routed { number, to, arrives, mishaps, copy };
            self.recorder().tell(clock, Some(id), &event);
        }
        for d in routed.deliveries() {
            self.world.queue.push(d.at, Due::Deliver(d.to, number, Box::new(d.packet)));
        }
    }

    /// Nothing can happen any more. If tasks go round in loops without side effects, nothing can end these either: a finding.
    fn report_deadlock(&mut self) -> bool {
        if self.wake_resting() {
            return true;
        }
        let Some((id, tid)) = self.world.scheduler.deadlocked() else { return false };
        let Some(task) = self.world.nodes[&id].tasks.get(&tid) else { return false };
        let whose = self.world.nodes[&id].container_of_any(task.pid).id;
        let text = format!(
            "task {} ({}) loops at {:#x} without side effects and nothing can end it",
            tid.number(),
            String::from_utf8_lossy(&task.comm),
            task.regs.rip
        );
        self.hung = Some((id, tid));
        self.find(FindingKind::Hang, Some(whose), text);
        true
    }

    pub(crate) fn host<T>(&self, result: Result<T, PlatformError>) -> Result<T, MachineError> {
        result.map_err(|error| MachineError { error, at: self.world.now, step: self.world.steps })
    }
}
