//! Fault injection: a swarm profile per seed, one draw per time step, and the heal that ends it all.
//!
//! A time step's single draw falls into one of disjoint intervals, one per possible fault, so that at most one fault
//! begins per step and the number of draws does not depend on what happened before.

use std::fmt;

use bloodhound_decisions::{Decisions, Site, Word};
use bloodhound_net::{LinkConfig, NodeId, PartitionId, PartitionKind};

use crate::event::Event;
use crate::machine::Machine;
use crate::notice::{Notice, PhaseChange};
use crate::queue::Due;
use crate::scenario::{FaultSpec, PartitionName};
use crate::services::State;
use crate::world::Phase;

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A service is killed.
    Crash {
        /// Its node.
        node: NodeId,
        /// It starts again after so long, ns.
        down: u64,
    },
    /// A node stands still.
    Pause {
        /// The node.
        node: NodeId,
        /// For so long, ns.
        time: u64,
    },
    /// Nodes do not reach each other.
    Partition {
        /// Which.
        kind: PartitionKind,
        /// For so long, ns.
        time: u64,
    },
    /// All connections of a node are reset.
    Reset {
        /// The node.
        node: NodeId,
    },
}

/// A fault that lasts is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEnd {
    /// The partition was healed.
    Partition(PartitionId),
    /// The node runs again.
    Pause(NodeId),
}

impl Fault {
    /// The name of its kind, as in bloodhound.yaml.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Crash { .. } => "crash",
            Fault::Pause { .. } => "pause",
            Fault::Partition { .. } => "partition",
            Fault::Reset { .. } => "reset",
        }
    }

    /// For people.
    pub fn words(&self, name: &dyn Fn(NodeId) -> String) -> String {
        let ms = |ns: &u64| ns / 1_000_000;
        match self {
            Fault::Crash { node, down } => {
                format!("crash {} (SIGKILL), restart after {} ms", name(*node), ms(down))
            }
            Fault::Pause { node, time } => format!("pause {} for {} ms", name(*node), ms(time)),
            Fault::Partition { kind, time } => {
                format!("partition {} for {} ms", partition_words(kind, name), ms(time))
            }
            Fault::Reset { node } => format!("reset all connections of {}", name(*node)),
        }
    }
}

impl FaultEnd {
    /// The name of the fault's kind.
    pub fn kind(&self) -> &'static str {
        match self {
            FaultEnd::Partition(_) => "partition",
            FaultEnd::Pause(_) => "pause",
        }
    }

    /// For people.
    pub fn words(&self, name: &dyn Fn(NodeId) -> String) -> String {
        match self {
            FaultEnd::Partition(_) => "partition healed".into(),
            FaultEnd::Pause(node) => format!("{} runs again", name(*node)),
        }
    }
}

fn partition_words(kind: &PartitionKind, name: &dyn Fn(NodeId) -> String) -> String {
    let names = |ids: &[NodeId]| ids.iter().map(|n| name(*n)).collect::<Vec<_>>().join(" ");
    match kind {
        PartitionKind::Symmetric(a, b) => format!("[{}] | [{}]", names(a), names(b)),
        PartitionKind::OneWay(a, b) => format!("[{}] -/-> [{}]", names(a), names(b)),
        PartitionKind::Isolate(n, rest) => format!("isolate {} from [{}]", name(*n), names(rest)),
        PartitionKind::MajorityMinority(a, b) => format!("majority [{}] | minority [{}]", names(a), names(b)),
        PartitionKind::Bridge(n, a, b) => format!("[{}] | [{}], bridge {}", names(a), names(b), name(*n)),
    }
}

/// The faults of one seed.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// What this seed drew.
    pub profile: Option<FaultSpec>,
    /// Partitions in force.
    pub partitions: Vec<PartitionId>,
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let rate = |ppb: u32| format!("{}.{:07}%", ppb / 10_000_000, ppb % 10_000_000);
        let named = [
            ("drop", self.drop),
            ("delay", self.delay),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("partition", self.partition),
            ("reset", self.reset),
            ("crash", self.crash),
            ("pause", self.pause),
        ];
        for (name, ppb) in named.iter().filter(|(_, ppb)| *ppb > 0) {
            let text = rate(*ppb);
            let short = text.trim_end_matches('%').trim_end_matches('0').trim_end_matches('.');
            parts.push(format!("{name} {short}%"));
        }
        if self.jitter_ns > 0 {
            parts.push(format!("jitter {} us", self.jitter_ns / 1000));
        }
        if parts.is_empty() { f.write_str("no faults") } else { f.write_str(&parts.join(", ")) }
    }
}

/// Draws which kinds of faults a seed has and how strong (swarm testing: omitting features at random finds more).
fn swarm(spec: &FaultSpec, decisions: &mut Decisions) -> FaultSpec {
    if !spec.swarm {
        return spec.clone();
    }
    let mut profile = spec.clone();
    let mut draw = |name: &str, rate: &mut u32| {
        if *rate == 0 {
            return;
        }
        // Off one time in three; else between a quarter and four times the configured rate.
        let strength = decisions.choose(Site::Swarm { kind: Word::new(name) }, 6);
        let scaled = match strength {
            0 | 1 => 0,
            2 => u64::from(*rate) / 4,
            3 => u64::from(*rate),
            4 => u64::from(*rate) * 2,
            _ => u64::from(*rate) * 4,
        };
        *rate = scaled.min(1_000_000_000) as u32;
    };
    for (name, rate) in [
        ("drop", &mut profile.drop),
        ("delay", &mut profile.delay),
        ("duplicate", &mut profile.duplicate),
        ("reorder", &mut profile.reorder),
        ("partition", &mut profile.partition),
        ("reset", &mut profile.reset),
        ("crash", &mut profile.crash),
        ("pause", &mut profile.pause),
    ] {
        draw(name, rate);
    }
    if decisions.choose(Site::Swarm { kind: Word::new("jitter") }, 2) == 0 {
        profile.jitter_ns = 0;
    }
    profile
}

fn fault_site(now: u64, part: &str) -> Site {
    Site::Fault { kind: Word::new("tick"), target: 0, nth: now, part: Word::new(part) }
}

impl Machine {
    fn fault_site(&self, part: &str) -> Site {
        fault_site(self.world.now.0, part)
    }

    /// The stack is ready: draws the profile and lets faults begin. Returns the profile.
    pub fn begin_faults(&mut self) -> FaultSpec {
        let profile = swarm(&self.scenario.faults, &mut self.world.decisions);
        let policy = self.begin_schedule();
        self.world.phase = Phase::Faults;
        self.note(None, Notice::Phase(PhaseChange::Scheduling(policy)));
        self.note(None, Notice::Phase(PhaseChange::Faults(Box::new(profile.clone()))));
        let (now, step) = (self.world.now, self.scenario.time_step);
        self.world.faults.profile = Some(profile.clone());
        let start = now.after(self.scenario.fault_start);
        self.world.queue.push(start.after(step), Due::FaultTick);
        self.world.queue.push(start.after(self.scenario.fault_time), Due::HealPhase);
        if self.scenario.fault_start == 0 {
            self.set_links(Some(&profile));
        }
        self.world.queue.push(now.after(self.scenario.max_time), Due::End);
        profile
    }

    fn set_links(&mut self, profile: Option<&FaultSpec>) {
        let mut link = self.scenario.link.clone();
        if let Some(p) = profile {
            link = LinkConfig {
                latency: link.latency + p.latency_ns,
                jitter: link.jitter.max(p.jitter_ns),
                loss: p.drop,
                duplicate: p.duplicate,
                reorder: p.reorder,
                reorder_delay: link.latency * 5,
                delay: p.delay,
                delay_max: p.delay_ns,
                ..link
            };
        }
        self.world.fabric.set_default_link(link);
    }

    /// One draw decides whether and which fault begins.
    pub(crate) fn fault_tick(&mut self) {
        if self.world.phase != Phase::Faults {
            return;
        }
        let at = self.world.now.after(self.scenario.time_step);
        self.world.queue.push(at, Due::FaultTick);
        let Some(profile) = self.world.faults.profile.clone() else { return };
        if self.scenario.fault_start > 0 {
            self.set_links(Some(&profile));
        }
        let targets: Vec<NodeId> =
            self.scenario.services.iter().filter(|s| s.faulty).map(|s| s.node).collect();
        let nodes = targets.len() as u64;
        let weights = [
            u64::from(profile.crash) * nodes,
            u64::from(profile.pause) * nodes,
            u64::from(profile.partition),
            u64::from(profile.reset),
        ];
        let total: u64 = weights.iter().sum();
        if total == 0 || nodes == 0 {
            return;
        }
        let mut value = self.world.decisions.choose(self.fault_site("which"), total.max(1_000_000_000));
        for (kind, weight) in weights.into_iter().enumerate() {
            if value >= weight {
                value -= weight;
                continue;
            }
            let target = targets[(value % nodes) as usize];
            match kind {
                0 => self.crash(target, &profile),
                1 => self.pause(target, &profile),
                2 => self.partition(&targets, &profile),
                _ => self.reset(&targets),
            }
            return;
        }
    }

    fn crash(&mut self, id: NodeId, profile: &FaultSpec) {
        if !matches!(self.world.services[&id].state, State::Running(_)) {
            return;
        }
        let (low, high) = profile.restart_ns;
        let down = self.world.decisions.between(self.fault_site("time"), low, high);
        self.note(Some(id), Notice::Fault(Fault::Crash { node: id, down }));
        self.world.catch_up(id);
        if let Some(s) = self.world.services.get_mut(&id) {
            (s.state, s.healthy, s.probe) = (State::Crashed, false, None);
        }
        let mut parts = self.parts(id);
        let (node, mut outside) = parts.split();
        node.kill_all(&mut outside);
        self.flush(id);
        let at = self.world.now.after(down);
        self.world.queue.push(at, Due::Start(id));
    }

    fn pause(&mut self, id: NodeId, profile: &FaultSpec) {
        let running = matches!(self.world.services[&id].state, State::Running(_));
        if !running || self.world.paused.contains_key(&id) {
            return;
        }
        let (low, high) = profile.pause_ns;
        let time = self.world.decisions.between(self.fault_site("time"), low, high);
        self.note(Some(id), Notice::Fault(Fault::Pause { node: id, time }));
        let until = self.world.now.after(time);
        self.world.paused.insert(id, until);
        self.world.queue.push(until, Due::Unpause(id));
    }

    pub(crate) fn unpause(&mut self, id: NodeId) {
        if self.world.paused.get(&id).is_some_and(|until| *until <= self.world.now) {
            self.world.paused.remove(&id);
            self.world.catch_up(id);
            self.tell(Some(id), &Event::Notice(&Notice::FaultEnd(FaultEnd::Pause(id))));
        }
    }

    fn partition(&mut self, targets: &[NodeId], profile: &FaultSpec) {
        if targets.len() < 2 {
            return;
        }
        let mut nodes = targets.to_vec();
        let now = self.world.now.0;
        let site = |part: &str| fault_site(now, part);
        let decisions = &mut self.world.decisions;
        // Fisher-Yates.
        for i in (1..nodes.len()).rev() {
            nodes.swap(i, decisions.choose(site(&format!("order-{i}")), i as u64 + 1) as usize);
        }
        use PartitionName as P;
        let all = [P::Symmetric, P::OneWay, P::Isolate, P::Majority, P::Bridge];
        let kinds: &[P] = if profile.partition_kinds.is_empty() { &all } else { &profile.partition_kinds };
        let name = kinds[decisions.choose(site("shape"), kinds.len() as u64) as usize];
        let cut = 1 + decisions.choose(site("cut"), nodes.len() as u64 - 1) as usize;
        let (low, high) = profile.partition_ns;
        let time = decisions.between(site("time"), low, high);
        let (a, b) = (nodes[..cut].to_vec(), nodes[cut..].to_vec());
        let kind = match name {
            P::Symmetric => PartitionKind::Symmetric(a, b),
            P::OneWay => PartitionKind::OneWay(a, b),
            P::Isolate => PartitionKind::Isolate(nodes[0], nodes[1..].to_vec()),
            P::Majority => {
                let half = nodes.len() / 2 + 1;
                PartitionKind::MajorityMinority(nodes[..half].to_vec(), nodes[half..].to_vec())
            }
            P::Bridge => {
                let half = 1 + (nodes.len() - 1) / 2;
                PartitionKind::Bridge(nodes[0], nodes[1..half].to_vec(), nodes[half..].to_vec())
            }
        };
        self.note(None, Notice::Fault(Fault::Partition { kind: kind.clone(), time }));
        let id = self.world.fabric.partition(kind);
        self.world.faults.partitions.push(id);
        let at = self.world.now.after(time);
        self.world.queue.push(at, Due::Heal(id));
    }

    pub(crate) fn heal_partition(&mut self, id: PartitionId) {
        if self.world.fabric.heal(id) {
            self.world.faults.partitions.retain(|p| *p != id);
            self.note(None, Notice::FaultEnd(FaultEnd::Partition(id)));
        }
    }

    fn reset(&mut self, targets: &[NodeId]) {
        let id =
            targets[self.world.decisions.choose(self.fault_site("target"), targets.len() as u64) as usize];
        self.note(Some(id), Notice::Fault(Fault::Reset { node: id }));
        self.world.catch_up(id);
        let now = self.world.now;
        let node = self.world.node_mut(id);
        node.net.reset_connections(None, now);
        node.drain_net();
        self.flush(id);
    }

    /// The faults end: the network is whole, everything that is down starts, nothing is paused.
    pub(crate) fn heal_phase(&mut self) {
        if self.world.phase != Phase::Faults {
            return;
        }
        self.world.phase = Phase::Recovery;
        if !self.scenario.heal {
            self.note(None, Notice::Phase(PhaseChange::Unhealed));
            self.recovery_begins();
            return;
        }
        self.world.fabric.heal_all();
        self.world.faults.partitions.clear();
        self.set_links(None);
        let paused: Vec<NodeId> = std::mem::take(&mut self.world.paused).into_keys().collect();
        for id in paused {
            self.world.catch_up(id);
        }
        let now = self.world.now;
        self.world
            .queue
            .remove_if(|e| matches!(e, Due::Start(_) | Due::FaultTick | Due::Heal(_) | Due::Unpause(_)));
        let down: Vec<(NodeId, u64)> = self
            .world
            .services
            .iter()
            .filter(|(_, s)| s.state == State::Crashed)
            .map(|(id, s)| (*id, s.start_offset))
            .collect();
        for (id, offset) in down {
            self.world.queue.push(now.after(offset), Due::Start(id));
        }
        self.note(None, Notice::Phase(PhaseChange::Healed));
        self.recovery_begins();
    }
}
