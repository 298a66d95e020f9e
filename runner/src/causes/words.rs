//! Choices in words that people know: services instead of numbers, operations instead of sites ([`candidate`], [`choice`]).

use std::net::SocketAddr;

use bloodhound_decisions::{
    Choice, Made, NodeRandom, PacketKind, Part, PowerPart, Site, TaskRandom, TurnPart,
};
use bloodhound_net::NodeId;
use bloodhound_sim::faults::FaultId;
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::timeline;
use bloodhound_workloads::driver::DriverConfig;
use bloodhound_workloads::history::Operation;
use bloodhound_workloads::http::left_out;
use bloodhound_workloads::linearizability::describe;

use super::future::is_operation;
use super::watch::Watched;
use super::which::{Candidate, What};
use crate::report;
use crate::session::Outcome;

/// The operation that a worker began as its `nth`, those that the log leaves out included.
fn operation_of(outcome: &Outcome, worker: u32, nth: u64) -> Option<Operation> {
    let DriverConfig::Http(config) = outcome.scenario.workload.as_ref()?;
    let workers = u64::from(config.workers.max(1));
    let is_out = |nth| {
        let choice = Choice { part: Part::Run, site: left_out(worker, nth) };
        outcome.decisions.overrides.contains_key(&choice)
    };
    let before = (0..nth).filter(|nth| !is_out(*nth)).count();
    let operations = outcome.history.operations();
    let mut own = operations.iter().filter(|operation| operation.process % workers == u64::from(worker));
    own.nth(before).cloned()
}

/// The operation that a choice is about, if there is one.
pub fn operation(outcome: &Outcome, choice: &Choice) -> Option<Operation> {
    match choice.site {
        Site::Operation { worker, nth, .. } | Site::Arrival { worker, nth } => {
            operation_of(outcome, worker, nth)
        }
        _ => None,
    }
}

/// An operation as a line of a story has it.
pub fn told(operation: &Operation) -> String {
    let key = operation.key.as_ref().map(|key| format!(" {key:?}")).unwrap_or_default();
    let what = report::printable(&describe(operation));
    format!("process {}{key}, {what}", operation.process)
}

/// Something that can be taken out, in words.
pub fn candidate(watched: &Watched, candidate: &Candidate) -> String {
    let outcome = &watched.ran.outcome;
    match &candidate.what {
        What::Fault(id) => fault(outcome, *id),
        What::Kind(kind) => {
            let hits = outcome.hits.get(kind).copied().unwrap_or_default();
            format!("faults of the kind {kind} ({hits} hits)")
        }
        What::Choice(made) => choice(watched, made),
        What::Switch(switch) => format!(
            "a switch: {} gives way before its pass {} of {}",
            watched.task(switch.node, switch.task),
            switch.nth,
            switch.place
        ),
        What::Operation(choice) => match operation(outcome, choice) {
            Some(operation) => format!("an operation of a client: {}", told(&operation)),
            None => "an operation of a client".into(),
        },
    }
}

/// A fault of the plan in words.
fn fault(outcome: &Outcome, id: FaultId) -> String {
    let name = |node| timeline::name(&outcome.scenario, node);
    match outcome.plan.iter().find(|entry| entry.id == id) {
        Some(entry) => format!("the fault `{}`", entry.describe(&name)),
        None => format!("a fault of the kind {}", id.kind),
    }
}

/// What a choice is about, in words, as the run made it.
pub fn choice(watched: &Watched, made: &Made) -> String {
    let outcome = &watched.ran.outcome;
    let of_node = |node: u32| timeline::name(&outcome.scenario, NodeId(node));
    match made.choice.site {
        Site::Packet { src, dst, kind, transmission, .. } => {
            let again = if transmission > 0 { ", sent again" } else { "" };
            let carries =
                watched.packet.as_ref().map(|told| format!(" ({})", report::printable(&told.carries)));
            let (from, to) = (address(&outcome.scenario, src), address(&outcome.scenario, dst));
            format!("{} from {from} to {to}{again}{}", packet(kind), carries.unwrap_or_default())
        }
        Site::Turn { node, task, nth, part, .. } => {
            format!("{} after turn {nth} of {}", turn(part), watched.task(node, task))
        }
        Site::FreshTurn { node, nth, part, .. } => {
            format!("{} on {}, the {nth}th after a time in which nothing ran", turn(part), of_node(node))
        }
        Site::Priority { node, task, nth, .. } => {
            format!("the priority of {} after {nth} changes", watched.task(node, task))
        }
        Site::Change { node, task, nth, .. } => {
            format!("whether the priority of {} changes before its call {nth}", watched.task(node, task))
        }
        Site::Starve { node, task, .. } => {
            format!("whether {} stays behind all others", watched.task(node, task))
        }
        Site::Often { node, task, nth, .. } => {
            format!("when {} gives way, after {nth} times", watched.task(node, task))
        }
        Site::Policy { part } => format!("the scheduling policy ({part:?})"),
        Site::NodeRandom { node, part, .. } => format!("{} of {}", random_of_node(part), of_node(node)),
        Site::ClientRandom { .. } => "a port or sequence number of the clients".into(),
        Site::TaskRandom { node, task, nth, part, .. } => {
            format!("{} of {}, number {nth}", random_of_task(part), watched.task(node, task))
        }
        Site::Operation { worker, nth, .. } if is_operation(&made.choice) => {
            format!("whether operation {nth} of client worker {worker} is carried out")
        }
        Site::Operation { worker, nth, field, .. } => {
            let which = operation(outcome, &made.choice).map(|operation| format!(": {}", told(&operation)));
            let which = which.unwrap_or_default();
            format!("the {} of operation {nth} of client worker {worker}{which}", field.as_str())
        }
        Site::Arrival { worker, nth } => {
            let which = operation(outcome, &made.choice).map(|operation| format!(": {}", told(&operation)));
            format!("when client worker {worker} begins operation {nth}{}", which.unwrap_or_default())
        }
        Site::Power { machine, nth, part, .. } => format!(
            "what the power failure of {} leaves of change {nth} that was not synced ({})",
            of_node(machine),
            power(part)
        ),
        Site::DiskCall { node, task, kind, nth, .. } | Site::Call { node, task, kind, nth, .. } => format!(
            "whether operation {nth} of {} on {} meets {}",
            watched.task(node, task),
            of_node(node),
            kind.as_str()
        ),
        Site::Fault { kind, target, nth, part } => {
            let target = if target > 0 { format!(" of {}", of_node(target)) } else { String::new() };
            format!("the {} of fault {nth} of the kind {}{target}", part.as_str(), kind.as_str())
        }
        Site::Swarm { kind } => format!("whether the kind {} of faults is on", kind.as_str()),
        Site::Node { node, part } => format!("how {} differs from others ({part:?})", of_node(node)),
        Site::Switch { nth, .. } => format!("switch {nth} at an instruction"),
    }
}

/// What the value of a choice means, in words.
pub fn value(watched: &Watched, made: &Made) -> String {
    let value = made.value;
    match made.choice.site {
        Site::Packet { .. } => match &watched.packet {
            Some(told) => format!("it {}", told.fate),
            None => format!("{value} of {}", made.bound),
        },
        Site::Turn { part: TurnPart::Who, .. } | Site::FreshTurn { part: TurnPart::Who, .. } => match value {
            0 => "the next in the queue".into(),
            nth => format!("the one {nth} places behind the next in the queue"),
        },
        Site::Turn { .. } | Site::FreshTurn { .. } => match value {
            0 => "as long as the policy has it".into(),
            less => format!("{less} steps shorter"),
        },
        Site::TaskRandom { .. } | Site::NodeRandom { .. } | Site::ClientRandom { .. } => {
            format!("{value:#x}")
        }
        Site::Operation { .. } if is_operation(&made.choice) => {
            format!("it is left out: the client waits for {} ms", value / 1_000_000)
        }
        Site::Operation { .. } | Site::Arrival { .. } => {
            match operation(&watched.ran.outcome, &made.choice) {
                Some(operation) => format!("{} at {}", told(&operation), operation.invoke),
                None => format!("{value} of {}", made.bound),
            }
        }
        _ => format!("{value} of {}", made.bound),
    }
}

fn packet(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Syn => "the packet that opens a connection (SYN),",
        PacketKind::Data => "the data packet",
        PacketKind::Ack => "the acknowledgement",
        PacketKind::Reset => "the reset (RST)",
        PacketKind::Datagram => "the datagram",
        PacketKind::Unreachable => "the report that something cannot be reached (ICMP)",
        PacketKind::Raw => "the raw packet",
    }
}

fn turn(part: TurnPart) -> &'static str {
    match part {
        TurnPart::Who => "which task goes on",
        TurnPart::Length => "how long the turn is",
    }
}

fn random_of_node(part: NodeRandom) -> &'static str {
    match part {
        NodeRandom::Order => "the order of directory entries",
        NodeRandom::Stack => "a port or sequence number",
        NodeRandom::BootId => "the boot id",
    }
}

fn random_of_task(part: TaskRandom) -> &'static str {
    match part {
        TaskRandom::Mmap | TaskRandom::Stack | TaskRandom::Heap | TaskRandom::Pie => "an address",
        TaskRandom::Aux => "the random bytes at the start",
        TaskRandom::Bytes => "the random bytes (getrandom)",
    }
}

fn power(part: PowerPart) -> &'static str {
    match part {
        PowerPart::Cut => "how many of the last changes are lost",
        PowerPart::Keep => "whether it is lost",
        PowerPart::Fate => "there, torn or lost",
        PowerPart::Point => "how much of it is lost",
        PowerPart::Side => "which end of it is lost",
    }
}

/// An address with the name of whose it is.
fn address(scenario: &Scenario, address: SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    let has = |addresses: &[(std::net::IpAddr, u8)]| addresses.iter().any(|(own, _)| *own == ip);
    let service = scenario.services.iter().chain(&scenario.helpers).find(|service| has(&service.addresses));
    let name = match service {
        Some(service) => service.name.clone(),
        None if scenario.clients.iter().any(|(_, own)| *own == ip) => "a client".into(),
        None if scenario.prober.is_some_and(|(_, own)| own == ip) => "a check".into(),
        None => return address.to_string(),
    };
    format!("{name} (port {})", address.port())
}
