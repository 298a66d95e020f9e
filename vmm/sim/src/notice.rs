//! What the timeline of a run has: faults, services, checks, phases, refused output, as data. The world keeps these
//! ([`crate::world::World::log`]); [`crate::timeline`] puts them into words.

use std::net::SocketAddr;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_kernel::file::Console;
use bloodhound_kernel::hazards::Injected;
use bloodhound_kernel::ids::{Pid, Tid};
use bloodhound_kernel::memory::OomKill;
use bloodhound_net::NodeId;
use bloodhound_vfs::PowerReport;

use crate::faults::{FaultId, NameFault, Planned};
use crate::scenario::FaultSpec;
use crate::scheduler::Policy;
use crate::services::ServiceChange;

/// A notice with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When.
    pub at: SimTime,
    /// Which node, if one.
    pub node: Option<NodeId>,
    /// What.
    pub what: Notice,
}

/// Something that people want to know of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A fault was injected.
    Fault(Planned),
    /// A fault ended that lasts.
    FaultEnd(FaultId),
    /// A service's life.
    Service(ServiceChange),
    /// A check came to a result.
    Check {
        /// Its place in the scenario.
        index: usize,
        /// The result.
        result: CheckResult,
    },
    /// A part of the run begins.
    Phase(PhaseChange),
    /// The host did not take output of a program.
    Refused(Refusal),
    /// A process was killed because a container, or its machine, had no memory left.
    OutOfMemory(OomKill),
    /// A machine has lost its power: what its disk has of the changes that were not synced.
    Survived(PowerReport),
    /// An operation of a program met a fault.
    Injected(Box<Injected>),
    /// What a fault that has just begun hits.
    Target(Target),
    /// What a fault did to a question to a name server.
    Name(NameFault),
    /// From here on a service has told so often of the same that the rest is not kept.
    LeftOut(LeftOut),
}

/// What a fault hits that is chosen when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, with its name.
    Process(Pid, Vec<u8>),
    /// A thread, with its name.
    Thread(Tid, Vec<u8>),
    /// A connection: its end at the node, and the other one.
    Connection(SocketAddr, SocketAddr),
    /// A block of a file, by the path of the file and the offset in it.
    Block(Vec<u8>, u64),
    /// A file, by its path.
    File(Vec<u8>),
    /// A listener: its address.
    Listener(SocketAddr),
}

/// How much a service has told that is not kept: a program can have its children killed without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Processes that were killed because there was no memory left.
    pub kills: u64,
    /// Crashes.
    pub crashes: u64,
    /// Faults that operations of its programs met.
    pub faults: u64,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// It holds.
    Holds,
    /// It is violated.
    Violated {
        /// For a liveness check: the time that it had after the heal, ns.
        within: Option<u64>,
        /// The evidence.
        why: String,
    },
    /// It cannot be asked: the script does not start.
    Impossible {
        /// The script.
        script: Vec<u8>,
        /// Why not.
        errno: Errno,
    },
}

/// A part of the run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseChange {
    /// All services are ready: the boot is over.
    Ready,
    /// The run's scheduling policy.
    Scheduling(Policy),
    /// Faults may happen from now on, as this profile says.
    Faults(Box<FaultSpec>),
    /// An epoch of the log has drawn all faults anew that have not begun: from now on as this profile says.
    DrawnAnew(Box<FaultSpec>),
    /// No more faults begin; those that last stay.
    Unhealed,
    /// Everything is healed.
    Healed,
    /// The run is over.
    Done,
}

/// The host did not take all that a program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stream.
    pub stream: Console,
    /// The step that the write ends.
    pub step: u64,
    /// The host's error; without one it took a part.
    pub error: Option<Errno>,
    /// Bytes that it took.
    pub taken: u64,
}
