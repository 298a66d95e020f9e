//! The record of a run as it happens: one stream of typed events, and whoever listens to it.
//!
//! Key types: [`Event`] (what happened; it borrows what it names), [`Moment`] (when and where), [`Listener`]. The digest always
//! listens and allocates nothing ([`crate::record`]); a timeline, strace output, a file of events and `verify` are listeners like
//! any other. Without one nothing is formatted, and what an event is made of exists anyway. A listener changes nothing: it gets
//! shared references, and belongs to the machine and not to the world.

use bloodhound_abi::SimTime;
use bloodhound_abi::call::Call;
use bloodhound_decisions::Made;
use bloodhound_kernel::ids::{Pid, Tid};
use bloodhound_kernel::node::{ConsoleChunk, ProcessEnd};
use bloodhound_kernel::watch::Told;
use bloodhound_net::{DropReason, Mishaps, NodeId, Packet, StateChange};
use bloodhound_workloads::history::Operation;

use crate::Digest;
use crate::notice::Notice;
use crate::services::ServiceChange;
use crate::world::Finding;

/// When and where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Virtual time: of the node, or of the world where no node is meant.
    pub at: SimTime,
    /// The node.
    pub node: Option<NodeId>,
    /// Steps made so far, with the one that the event ends.
    pub step: u64,
    /// Digest of the run up to this event, this one included.
    pub digest: Digest,
}

/// Memory of the program that made a call, as it is when the call begins.
pub trait Memory {
    /// Fills `out` from an address; false if the program could not read there.
    fn read(&self, addr: u64, out: &mut [u8]) -> bool;
}

/// Something that happened in a run.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A task made a system call. A call that sleeps has one trap and one end, however often it is woken.
    Trap {
        /// The process.
        pid: Pid,
        /// The task.
        tid: Tid,
        /// The call.
        call: &'a Call,
        /// What its pointers point to.
        memory: &'a dyn Memory,
    },
    /// A system call ended. This is a step.
    Call {
        /// The process.
        pid: Pid,
        /// The task.
        tid: Tid,
        /// The call.
        call: &'a Call,
        /// What rax is afterwards; 0 where the call does not return.
        result: u64,
    },
    /// An exception of the processor became a signal. This is a step.
    Exception {
        /// The process.
        pid: Pid,
        /// The task.
        tid: Tid,
        /// The signal.
        signo: u32,
    },
    /// A task was preempted between two instructions: at a counted loop, as it only computes, or at a switch of the run's log. This is a
    /// step.
    Preempted {
        /// The process.
        pid: Pid,
        /// The task.
        tid: Tid,
    },
    /// The life of a task, as its kernel tells it.
    Task {
        /// The process.
        pid: Pid,
        /// The task.
        tid: Tid,
        /// What happened to it.
        told: &'a Told<'a>,
    },
    /// A process is gone.
    Process(&'a ProcessEnd),
    /// A node sent a packet into the network.
    Sent {
        /// Its number in the run, from 1.
        number: u64,
        /// The packet.
        packet: &'a Packet,
    },
    /// The network lost a packet.
    Dropped {
        /// Its number.
        number: u64,
        /// Why.
        reason: DropReason,
    },
    /// The network carries a packet.
    Routed {
        /// Its number.
        number: u64,
        /// To which node.
        to: NodeId,
        /// When it arrives.
        arrives: SimTime,
        /// What it met on the way.
        mishaps: Mishaps,
        /// When a second copy of it arrives, if the network duplicates it.
        copy: Option<SimTime>,
    },
    /// A packet arrived.
    Delivered {
        /// Its number.
        number: u64,
        /// The packet.
        packet: &'a Packet,
    },
    /// A TCP socket has another state.
    Connection(&'a StateChange),
    /// A fault, a check's verdict, a phase, output that the host refused: what the timeline has.
    Notice(&'a Notice),
    /// What happens to a service and the timeline leaves out: failed health checks.
    Service(&'a ServiceChange),
    /// A client of the workload began an operation.
    Begun(usize, &'a Operation),
    /// An operation has its outcome, or was given up.
    Completed(usize, &'a Operation),
    /// A service wrote to its standard output or error.
    Output(&'a ConsoleChunk),
    /// Something was decided.
    Choice(&'a Made),
    /// Something went wrong.
    Finding(&'a Finding),
}

/// All kinds of events, by the names that docs/events.md has.
pub const KINDS: [&str; 31] = [
    "trap",
    "moved",
    "call",
    "exception",
    "preempted",
    "signal",
    "task-begin",
    "exec",
    "task-end",
    "process-end",
    "output",
    "output-refused",
    "packet-sent",
    "packet-routed",
    "packet-dropped",
    "packet-delivered",
    "connection",
    "fault",
    "fault-end",
    "fault-target",
    "name-server",
    "injected",
    "survived",
    "out-of-memory",
    "service",
    "check",
    "phase",
    "operation-begin",
    "operation-end",
    "choice",
    "finding",
];

/// Is told everything that happens in a run.
pub trait Listener {
    /// Takes notice of an event.
    fn hear(&mut self, moment: &Moment, event: &Event<'_>);

    /// Whether it has a use for choices, which are kept for it only then.
    fn wants_choices(&self) -> bool {
        true
    }
}

impl<F: FnMut(&Moment, &Event<'_>)> Listener for F {
    fn hear(&mut self, moment: &Moment, event: &Event<'_>) {
        self(moment, event);
    }
}

impl Event<'_> {
    /// The name of the event's kind, as docs/events.md has it.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Trap { .. } => "trap",
            Event::Call { .. } => "call",
            Event::Exception { .. } => "exception",
            Event::Preempted { .. } => "preempted",
            Event::Task { told, .. } => match told {
                Told::Began { .. } => "task-begin",
                Told::Exec { .. } => "exec",
                Told::Signal { .. } => "signal",
                Told::Moved(_) => "moved",
                Told::Ended { .. } => "task-end",
            },
            Event::Process(_) => "process-end",
            Event::Sent { .. } => "packet-sent",
            Event::Dropped { .. } => "packet-dropped",
            Event::Routed { .. } => "packet-routed",
            Event::Delivered { .. } => "packet-delivered",
            Event::Connection(_) => "connection",
            Event::Notice(notice) => match notice {
                Notice::Fault(_) => "fault",
                Notice::FaultEnd(_) => "fault-end",
                Notice::Service(_) => "service",
                Notice::Check { .. } => "check",
                Notice::Phase(_) => "phase",
                Notice::Refused(_) => "output-refused",
                Notice::OutOfMemory(_) => "out-of-memory",
                Notice::Survived(_) => "survived",
                Notice::Injected(_) => "injected",
                Notice::LeftOut(_) => "left-out",
                Notice::Target(_) => "fault-target",
                Notice::Name(_) => "name-server",
            },
            Event::Service(_) => "service",
            Event::Begun(..) => "operation-begin",
            Event::Completed(..) => "operation-end",
            Event::Output(_) => "output",
            Event::Choice(_) => "choice",
            Event::Finding(_) => "finding",
        }
    }
}
