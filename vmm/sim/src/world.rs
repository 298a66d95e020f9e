//! The world: everything that a run is, as one value. Cloning it is a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use bloodhound_kernel::container::ContainerId;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_kernel::stacks::NetNs;
use bloodhound_net::{Fabric, NodeId};

use crate::Digest;
use crate::checks::CheckState;
use crate::clients::Clients;
use crate::computing::Computing;
use crate::console::ConsoleLog;
use crate::faults::Faults;
use crate::kept::Kept;
use crate::notice::LogEntry;
use crate::outside::Outside;
use crate::queue::Queue;
use crate::record::Repeats;
use crate::scheduler::Scheduler;
use crate::services::Service;
use crate::switches::Switches;

/// What went wrong, besides violated properties (which the runner judges).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// When.
    pub at: SimTime,
    /// Where: which service.
    pub node: Option<NodeId>,
    /// In words, with evidence.
    pub text: String,
}

/// Kinds of findings of the machine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A process was killed by a signal or a service ended that should not.
    Crash,
    /// Nothing can ever run again although services wait.
    Deadlock,
    /// A task loops for ever.
    Hang,
    /// Something that is not modelled was needed.
    Unsupported,
    /// The stack did not become ready.
    NotReady,
}

impl FindingKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Crash => "crash",
            FindingKind::Deadlock => "deadlock",
            FindingKind::Hang => "hang",
            FindingKind::Unsupported => "unsupported",
            FindingKind::NotReady => "not-ready",
        }
    }
}

/// Which part of a run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Services start.
    Boot,
    /// Faults are injected.
    Faults,
    /// Everything is healed; progress is demanded.
    Recovery,
    /// Over.
    Done,
}

/// Where a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its machine.
    pub machine: MachineId,
    /// Which of its containers it is.
    pub container: ContainerId,
    /// Its network stack.
    pub net: NetNs,
}

/// Steps between two digests that are kept.
pub const MARK: u64 = 1000;

/// Everything that a run is.
#[derive(Clone, Debug)]
pub struct World {
    /// Time of the last thing that happened.
    pub now: SimTime,
    /// When the stack was ready.
    pub ready_at: Option<SimTime>,
    /// The phase.
    pub phase: Phase,
    /// The machines.
    pub nodes: BTreeMap<MachineId, Arc<Node>>,
    /// In which containers of them the services and scripts are.
    pub rooms: Arc<BTreeMap<NodeId, Room>>,
    /// The network between them.
    pub fabric: Fabric,
    /// What will happen.
    pub queue: Queue,
    /// Supervision of the services.
    pub services: BTreeMap<NodeId, Service>,
    /// Fault injection.
    pub faults: Faults,
    /// Machines that stand still until a time.
    pub paused: BTreeMap<MachineId, SimTime>,
    /// Who runs next.
    pub scheduler: Scheduler,
    /// Tasks that compute for long.
    pub computing: Computing,
    /// Where tasks are made to give way.
    pub switches: Switches,
    /// The source of choice.
    pub decisions: Decisions,
    /// Digest of all steps.
    pub digest: Digest,
    /// The digest after every [`MARK`] steps: where a replay left its record.
    pub marks: Arc<Vec<Digest>>,
    /// Steps made.
    pub steps: u64,
    /// The decisions' hash of all choices that were told of.
    pub trail: u64,
    /// Packets sent into the network.
    pub packets: u64,
    /// What the timeline has.
    pub log: Vec<LogEntry>,
    /// What went wrong.
    pub findings: Vec<Finding>,
    /// How often services have told of what they can tell without end.
    pub(crate) told: BTreeMap<NodeId, Repeats>,
    /// Output of the services, as far as it is kept.
    pub console: Arc<ConsoleLog>,
    /// Files of earlier lives of services that somebody wants.
    pub kept: Arc<Vec<Kept>>,
    /// What was asked for outside of the stack, by whom and how often.
    pub outside: Arc<Outside>,
    /// Workload clients and the prober.
    pub clients: Clients,
    /// Checks, as in the scenario.
    pub checks: Vec<CheckState>,
    /// When the faults ended.
    pub healed_at: Option<SimTime>,
    /// Safety checks have been started.
    pub final_checks: bool,
}

impl World {
    /// The virtual time is at least this from now on.
    pub(crate) fn reach(&mut self, at: SimTime) {
        self.now = self.now.max(at);
        self.decisions.tell_time(self.now.0);
    }

    /// The machine, to change it.
    pub fn node_mut(&mut self, id: MachineId) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).unwrap_or_else(|| panic!("no node {id:?}")))
    }

    /// Where a service or script is; it must be one.
    pub fn room(&self, id: NodeId) -> Room {
        *self.rooms.get(&id).unwrap_or_else(|| panic!("no container {id:?}"))
    }

    /// The machine on which a service or script is.
    pub fn machine_of(&self, id: NodeId) -> &Node {
        &self.nodes[&self.room(id).machine]
    }

    /// Brings an idle machine's clock up to the world's.
    pub fn catch_up(&mut self, id: MachineId) {
        let now = self.now;
        let node = self.node_mut(id);
        node.clock = node.clock.max(now);
    }
}
