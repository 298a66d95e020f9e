//! The queue of what is due: what will happen at a known virtual time outside of any node's own timers.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_kernel::node::MachineId;
use bloodhound_net::{NodeId, Packet};

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub enum Due {
    /// A packet arrives: at which node, and its number.
    Deliver(NodeId, u64, Box<Packet>),
    /// The phase of faults begins.
    FaultsBegin,
    /// A quiet period of the links ends, or begins (false).
    Links(bool),
    /// An entry of the plan of faults begins.
    Fault(usize),
    /// An entry of the plan of faults ends.
    FaultEnds(usize),
    /// An entry of the plan of faults that lasts comes to a step, with its number.
    FaultGoesOn(usize, u64),
    /// A late answer of a name server arrives at a container.
    Answer(NodeId, Box<Packet>),
    /// A service starts: at the beginning, after its dependencies, after a crash.
    Start(NodeId),
    /// A service's health check is due.
    HealthCheck(NodeId),
    /// A health check has run out of time: its process.
    HealthTimeout(NodeId, u32),
    /// A service that was asked to end has run out of time: its process.
    StopTimeout(NodeId, u32),
    /// A property's check is due.
    Check(usize),
    /// A check's script has run out of time: its attempt.
    CheckTimeout(usize, u64),
    /// The stack must be ready by now.
    BootTimeout,
    /// The faults end and the system must recover.
    HealPhase,
    /// The run ends.
    End,
    /// Tasks of a machine that gave way while nobody else could run there go on.
    Rested(MachineId),
    /// Tasks of a machine that were preempted while they computed, and rest, go on ([`crate::computing`]).
    Computing(MachineId),
}

/// What is due by time; entries of one time in the order in which they were scheduled.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    entries: BTreeMap<(SimTime, u64), Due>,
    next: u64,
}

impl Queue {
    /// Adds an entry.
    pub fn push(&mut self, at: SimTime, due: Due) {
        self.entries.insert((at, self.next), due);
        self.next += 1;
    }

    /// Time of the first entry.
    pub fn next_time(&self) -> Option<SimTime> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first entry if it is due at `now`.
    pub fn pop_due(&mut self, now: SimTime) -> Option<(SimTime, Due)> {
        let entry = self.entries.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let ((at, _), due) = entry.remove_entry();
        Some((at, due))
    }

    /// Drops entries for which `gone` says so.
    pub fn remove_if(&mut self, mut gone: impl FnMut(&Due) -> bool) {
        self.entries.retain(|_, e| !gone(e));
    }

    /// Puts another entry in the place of the first one that `is` it, at another time but among the entries of that time as if it had been scheduled when that one was.
    /// False, and nothing is done, if there is none.
    pub fn replace(&mut self, is: impl Fn(&Due) -> bool, with: Option<(SimTime, Due)>) -> bool {
        let known = self.entries.iter().find(|(_, due)| is(due)).map(|(key, _)| *key);
        let Some((at, number)) = known else { return false };
        self.entries.remove(&(at, number));
        if let Some((at, due)) = with {
            self.entries.insert((at, number), due);
        }
        true
    }

    /// The first entry that is not the end of a rest.
    pub fn first_other(&self) -> Option<(SimTime, &Due)> {
        let other = |due: &Due| !matches!(due, Due::Rested(_) | Due::Computing(_));
        self.entries.iter().find(|(_, due)| other(due)).map(|((at, _), due)| (*at, due))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
