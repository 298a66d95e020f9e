//! The event queue: what will happen at a known virtual time outside of any node's own timers.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_net::{NodeId, Packet};

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub enum Event {
    /// A packet arrives.
    Deliver(NodeId, Box<Packet>),
    /// The fault injector draws (every `time_step`).
    FaultTick,
    /// A partition ends.
    Heal(bloodhound_net::PartitionId),
    /// A paused node runs again.
    Unpause(NodeId),
    /// A service starts: at the beginning, after its dependencies, after a crash.
    Start(NodeId),
    /// A service's health check is due.
    Probe(NodeId),
    /// A health check has run out of time.
    ProbeTimeout(NodeId, u32),
    /// A property's check is due.
    Check(usize),
    /// A check's script has run out of time.
    CheckTimeout(usize, u32),
    /// The stack must be ready by now.
    BootTimeout,
    /// The faults end and the system must recover.
    HealPhase,
    /// The run ends.
    End,
}

/// Events by time; those of one time in the order in which they were scheduled.
#[derive(Clone, Debug, Default)]
pub struct EventQueue {
    events: BTreeMap<(SimTime, u64), Event>,
    next: u64,
}

impl EventQueue {
    /// Adds an event.
    pub fn push(&mut self, at: SimTime, event: Event) {
        self.events.insert((at, self.next), event);
        self.next += 1;
    }

    /// Time of the first event.
    pub fn next_time(&self) -> Option<SimTime> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first event if it is due at `now`.
    pub fn pop_due(&mut self, now: SimTime) -> Option<(SimTime, Event)> {
        let entry = self.events.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let ((at, _), event) = entry.remove_entry();
        Some((at, event))
    }

    /// Drops events for which `gone` says so.
    pub fn remove_if(&mut self, mut gone: impl FnMut(&Event) -> bool) {
        self.events.retain(|_, e| !gone(e));
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
