//! Entries of the plan that are written by hand: each begins at a time, or when something happens in the run that it waits for.
//!
//! Key types: [`Scheduled`] (an entry as it is written), [`Trigger`] (when it begins), [`Waiting`] (one whose trigger has not come). What an entry
//! does not say is drawn as for any other, by a name of its own (`FaultId::written`). Times, lines and calls count from when faults can begin.
//! Neighbours: `plan` has the drawn entries; the machine tells of calls and output.

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use bloodhound_faults::{Begins, Kind, Setting, Shape};
use bloodhound_kernel::file::Console;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::{ConsoleChunk, MachineId};
use bloodhound_net::{NodeId, PartitionKind, Routed};

use super::{Draw, Fault, FaultId, KEPT, Names, Partition, Phases, Planned, Window, plan, targets};
use crate::machine::Machine;
use crate::scenario::Scenario;
use crate::world::Phase;

/// Most bytes of a line that a trigger looks at.
const LINE: usize = 64 << 10;

/// An entry as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When it begins.
    pub trigger: Trigger,
    /// What happens.
    pub kind: Kind,
    /// The node that it hits, for kinds that hit one; else those among which it is drawn, or none for all.
    pub nodes: Vec<NodeId>,
    /// What is said of its parameters.
    pub what: What,
    /// How long it lasts, ns; `None`: drawn, as configured.
    pub duration: Option<u64>,
    /// How much at most, ns, for kinds that stand for the whole phase; `None`: as configured.
    pub most: Option<u64>,
}

/// What an entry says of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing: they are drawn, as configured.
    Drawn,
    /// They are those that a seed drew for an entry of its plan.
    As(u64, FaultId),
    /// The shape of a partition, whose groups are drawn.
    Shape(Shape),
    /// A partition.
    Cut(PartitionKind),
    /// How strong it is for the links from some nodes to others; none: all nodes.
    Links(Box<Setting>, Vec<NodeId>, Vec<NodeId>),
}

/// When an entry begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// So long after faults can begin, ns.
    At(u64),
    /// When a service has written a line that contains a text.
    Line {
        /// Which.
        node: NodeId,
        /// What stands in it.
        text: String,
        /// The number of the line among those, from 1.
        nth: u64,
        /// So much later, ns.
        after: u64,
    },
    /// When a system call of a service has returned.
    Call {
        /// Which.
        node: NodeId,
        /// The name of the call.
        call: String,
        /// Its number among those, from 1.
        nth: u64,
        /// So much later, ns.
        after: u64,
    },
}

impl Trigger {
    /// In words; nothing for a time.
    pub fn describe(&self, name: Names<'_>) -> Option<String> {
        let later = |after: u64| match after {
            0 => String::new(),
            ns => format!("{} ms after ", ns / 1_000_000),
        };
        match self {
            Trigger::At(_) => None,
            Trigger::Line { node, text, nth, after } => {
                Some(format!("{}line {nth} of {} with {text:?}", later(*after), name(*node)))
            }
            Trigger::Call { node, call, nth, after } => {
                Some(format!("{}call {nth} of {call} by {}", later(*after), name(*node)))
            }
        }
    }
}

/// An entry whose trigger has not come.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    trigger: Trigger,
    /// How often it has come so far.
    seen: u64,
    /// The line that the service has begun to write, on standard output and error.
    lines: [Vec<u8>; 2],
    entry: Planned,
}

impl Waiting {
    /// Whether a call of this name by the node is the one; it is counted.
    fn sees(&mut self, by: NodeId, name: &str) -> bool {
        let Trigger::Call { node, call, nth, .. } = &self.trigger else { return false };
        let counts = *node == by && call == name;
        self.seen += u64::from(counts);
        counts && self.seen == *nth
    }

    /// Whether the line is among these bytes of the service; lines are counted.
    fn reads(&mut self, chunk: &ConsoleChunk) -> bool {
        let Trigger::Line { node, text, nth, .. } = &self.trigger else { return false };
        if *node != chunk.container {
            return false;
        }
        let line = &mut self.lines[usize::from(matches!(chunk.stream, Console::Err))];
        for piece in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(&piece[..piece.len().min(LINE - line.len().min(LINE))]);
            if piece.ends_with(b"\n") {
                self.seen += u64::from(contains(line, text.as_bytes()));
                line.clear();
                if self.seen >= *nth {
                    return true;
                }
            }
        }
        false
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    text.is_empty() || line.windows(text.len()).any(|window| window == text)
}

/// The entries that have a time, in no order, and those that wait.
pub(super) fn written(
    scenario: &Scenario,
    phases: Phases,
    decisions: &mut Decisions,
) -> (Vec<Planned>, Vec<Waiting>) {
    let (mut plan, mut waiting) = (Vec::new(), Vec::new());
    for (place, scheduled) in scenario.planning.schedule.iter().enumerate() {
        let Some(mut entry) = scheduled.entry(place, scenario, decisions) else { continue };
        if decisions.said(entry.id.site("begins"), KEPT) == Some(0) {
            continue;
        }
        match &scheduled.trigger {
            Trigger::At(ns) => {
                entry.begin = phases.begin.after(*ns);
                plan.push(entry);
            }
            trigger => {
                waiting.push(Waiting { trigger: trigger.clone(), seen: 0, lines: Default::default(), entry })
            }
        }
    }
    (plan, waiting)
}

impl Scheduled {
    /// The name of the entry; `place` is its own in the schedule.
    pub fn id(&self, place: usize) -> FaultId {
        let by_node = self.kind.declaration().has_target();
        let target = self.nodes.first().filter(|_| by_node).map_or(0, |node| node.0);
        FaultId::written(self.kind, target, place)
    }

    /// The entry of the plan, as yet without its time. `None`: there is nothing that it could hit.
    fn entry(&self, place: usize, scenario: &Scenario, decisions: &mut Decisions) -> Option<Planned> {
        let id = self.id(place);
        let mut setting = scenario.faults.get(self.kind).clone();
        if let What::Shape(shape) = self.what {
            setting.shapes = vec![shape];
        }
        if let Some(most) = self.most {
            setting.time = (most, most);
        }
        let (_, stacks, _) = targets(scenario);
        let nodes = if self.nodes.is_empty() { &stacks } else { &self.nodes };
        let mut draw = Draw { id, setting: &setting, targets: nodes, decisions: &mut *decisions };
        let duration = match self.duration {
            Some(ns) => ns,
            // The time of such a kind is no duration: it lasts until the heal.
            None if self.kind.declaration().begins == Begins::Standing => 0,
            None => draw.duration(),
        };
        let fault = match &self.what {
            What::Drawn | What::Shape(_) => Fault::draw(self.kind, &mut draw)?,
            What::As(seed, as_id) => {
                let mut decisions = Decisions::seeded(*seed);
                let mut draw =
                    Draw { id: *as_id, setting: &setting, targets: nodes, decisions: &mut decisions };
                Fault::draw(self.kind, &mut draw)?
            }
            What::Cut(cut) => Fault::Partition(Partition { cut: cut.clone() }),
            What::Links(setting, from, to) => Fault::Window(Window {
                kind: self.kind,
                setting: (**setting).clone(),
                from: from.clone(),
                to: to.clone(),
            }),
        };
        Some(Planned { id, begin: SimTime::default(), duration, fault })
    }
}

impl Machine {
    /// A system call has returned: an entry may have waited for it. Those of checks do not count.
    #[inline]
    pub(crate) fn fault_triggers_see(&mut self, id: MachineId, pid: Pid, name: &str) {
        if !self.world.faults.waiting.is_empty() {
            let node = &self.world.nodes[&id];
            let (by, clock) = (node.container_of_any(pid).id, node.clock);
            if node.processes.get(&pid).is_some_and(|process| !process.is_of_service()) {
                return;
            }
            self.trigger(clock, |waiting| waiting.sees(by, name));
        }
    }

    /// A service wrote something: an entry may have waited for it. What checks write is no output of the service.
    #[inline]
    pub(crate) fn fault_triggers_read(&mut self, chunk: &ConsoleChunk, clock: SimTime) {
        if !self.world.faults.waiting.is_empty() && !chunk.check {
            let writer = self.world.machine_of(chunk.container).processes.get(&chunk.pid);
            if writer.is_some_and(|process| process.is_script) {
                return;
            }
            self.trigger(clock, |waiting| waiting.reads(chunk));
        }
    }

    /// The triggers for which `comes` says so come at this time.
    fn trigger(&mut self, now: SimTime, mut comes: impl FnMut(&mut Waiting) -> bool) {
        let faults = &mut self.world.faults;
        if self.world.phase != Phase::Faults || now < faults.phases.begin {
            return;
        }
        let mut come = Vec::new();
        faults.waiting.retain_mut(|waiting| {
            let comes = comes(waiting);
            if comes {
                come.push(waiting.clone());
            }
            !comes
        });
        if come.is_empty() {
            return;
        }
        for Waiting { trigger, mut entry, .. } in come {
            let (Trigger::Line { after, .. } | Trigger::Call { after, .. } | Trigger::At(after)) = trigger;
            entry.begin = now.after(after);
            if after == 0 {
                self.world.faults.urgent.insert(now);
            }
            let begun = self.world.faults.effects.len();
            let plan = std::sync::Arc::make_mut(&mut self.world.faults.plan);
            plan.push(entry);
            plan::sort(&mut plan[begun..]);
        }
        self.queue_next_fault();
    }

    /// Counts what links did to a packet.
    pub(crate) fn count_packet(&mut self, from: NodeId, routed: &Routed) {
        use bloodhound_net::DropReason;
        let faults = &mut self.world.faults;
        let mut count = |kind| *faults.hits.entry(kind).or_insert(0) += 1;
        if let Some(first) = &routed.first {
            let (link, plain) = (self.world.fabric.link(from, first.to), &self.scenario.link);
            for (differs, kind) in [
                (link.latency != plain.latency, Kind::Latency),
                (link.jitter != plain.jitter, Kind::Jitter),
                (link.bandwidth != plain.bandwidth, Kind::Bandwidth),
            ] {
                if differs {
                    count(kind);
                }
            }
        }
        match routed.dropped {
            None if routed.mishaps == Default::default() && routed.second.is_none() => return,
            Some(DropReason::Loss) => count(Kind::Drop),
            Some(DropReason::Corrupt) => count(Kind::Corrupt),
            _ => {}
        }
        if routed.mishaps.delay > 0 {
            count(Kind::Delay);
        }
        if routed.mishaps.reordered > 0 {
            count(Kind::Reorder);
        }
        if routed.mishaps.changed > 0 {
            count(Kind::CorruptPass);
        }
        if routed.mishaps.damaged {
            count(Kind::BadChecksum);
        }
        if routed.second.is_some() {
            count(Kind::Duplicate);
        }
        if let Some(DropReason::Partition(id)) = routed.dropped {
            let entry = faults.partitions.iter().find(|(_, partition)| **partition == id);
            if let Some((entry, _)) = entry {
                *faults.stopped.entry(*entry).or_insert(0) += 1;
            }
        }
    }
}
