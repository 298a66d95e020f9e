//! The words of the timeline: a [`LogEntry`] as a line for people. Nothing reads these lines; whoever wants to know what happened
//! takes the data.

use bloodhound_kernel::file::Console;
use bloodhound_kernel::hazards::Injected;
use bloodhound_kernel::memory::OomKill;
use bloodhound_net::NodeId;
use bloodhound_vfs::PowerReport;

use crate::faults::NameFault;
use crate::notice::{CheckResult, LeftOut, LogEntry, Notice, PhaseChange, Refusal, Target};
use crate::scenario::Scenario;
use crate::services::{ServiceChange, Version};

/// The name of a node: of its service or script, or its number.
pub fn name(scenario: &Scenario, id: NodeId) -> String {
    let spec = scenario.services.iter().chain(&scenario.helpers).find(|s| s.node == id);
    spec.map_or_else(|| format!("node {}", id.0), |s| s.name.clone())
}

/// `1.234 s fault    crash kv2 (SIGKILL), restart after 310 ms`.
pub fn line(entry: &LogEntry, scenario: &Scenario) -> String {
    let word = match &entry.what {
        Notice::Fault(_)
        | Notice::FaultEnd(_)
        | Notice::Injected(_)
        | Notice::Target(_)
        | Notice::Name(_) => "fault",
        Notice::Service(_) => "service",
        Notice::Phase(_) => "phase",
        Notice::Refused(_) => "output",
        Notice::OutOfMemory(_) => "memory",
        Notice::Survived(_) => "disk",
        Notice::LeftOut(_) => "left out",
        Notice::Check { .. } => "check",
    };
    format!("{} {word:<8} {}", entry.at, words(entry.node, &entry.what, scenario))
}

/// A notice in words.
pub fn words(node: Option<NodeId>, notice: &Notice, scenario: &Scenario) -> String {
    let name_of = |id| name(scenario, id);
    match notice {
        Notice::Fault(fault) => {
            let written = fault.id.place().and_then(|place| scenario.planning.schedule.get(place));
            let because = written.and_then(|written| written.trigger.describe(&name_of));
            let because = because.map(|because| format!(" ({because})")).unwrap_or_default();
            format!("{}{because}", fault.describe(&name_of))
        }
        Notice::FaultEnd(end) => end.over(&name_of),
        Notice::Service(change) => {
            let made_of = || node.and_then(|id| scenario.planning.upgrades.get(&id)).map(|of| &of.name[..]);
            format!(
                "{} {}",
                node.map(name_of).unwrap_or_default(),
                service(change, made_of().unwrap_or_default())
            )
        }
        Notice::Check { index, result } => {
            let name = &scenario.checks[*index].name;
            match result {
                CheckResult::Holds => format!("{name} holds"),
                CheckResult::Violated { .. } | CheckResult::Impossible { .. } => {
                    let verb = if matches!(result, CheckResult::Violated { .. }) { " violated" } else { "" };
                    format!("{name}{verb}: {}", evidence(result))
                }
            }
        }
        Notice::Phase(change) => phase(change),
        Notice::Refused(refusal) => refused(refusal),
        Notice::OutOfMemory(kill) => {
            format!("{} {}", node.map(name_of).unwrap_or_default(), out_of_memory(kill))
        }
        Notice::Survived(report) => {
            let PowerReport { kept, torn, lost } = report;
            let machine = node.map(name_of).unwrap_or_default();
            format!(
                "of what the machine of {machine} had not synced, {kept} changes are on its disk, {torn} in part, {lost} are lost"
            )
        }
        Notice::Injected(met) => injected(&node.map(name_of).unwrap_or_default(), met),
        Notice::Target(of) => format!("{} {}", node.map(name_of).unwrap_or_default(), target(of)),
        Notice::Name(fault) => format!("{} {}", node.map(name_of).unwrap_or_default(), name_fault(*fault)),
        Notice::LeftOut(LeftOut { kills, crashes, faults }) => {
            let met = if *faults > 0 { format!(" and {faults} faults of operations") } else { String::new() };
            format!(
                "{}: from here on {kills} processes that were killed for want of memory and {crashes} crashes{met} are not listed",
                node.map(name_of).unwrap_or_default()
            )
        }
    }
}

/// `fsync-fail: fsync of /data/log by kv (process 7, kvd): EIO`.
fn injected(name: &str, met: &Injected) -> String {
    let Injected { kind, pid, comm, call, path, shown, .. } = met;
    let of = path.as_ref().map(|path| format!(" of {}", String::from_utf8_lossy(path))).unwrap_or_default();
    let comm = String::from_utf8_lossy(comm);
    format!("{kind}: {call}{of} by {name} (process {}, {comm}): {shown}", pid.number())
}

fn target(target: &Target) -> String {
    let named =
        |what: &str, number: u32, comm: &[u8]| format!("{what} {number} ({})", String::from_utf8_lossy(comm));
    match target {
        Target::Process(pid, comm) => format!("{} is killed", named("process", pid.number(), comm)),
        Target::Thread(tid, comm) => format!("{} gets no processor", named("thread", tid.number(), comm)),
        Target::Connection(local, peer) => {
            format!("connection {local} to {peer} is forgotten by the network")
        }
        Target::Block(path, at) => {
            format!("cannot read 4096 bytes of {} from byte {at} on", String::from_utf8_lossy(path))
        }
        Target::File(path) => {
            format!("has lost {}, whatever was synced (vanished-file)", String::from_utf8_lossy(path))
        }
        Target::Listener(local) => format!("listener {local} takes no more connections"),
    }
}

fn name_fault(fault: NameFault) -> String {
    match fault {
        NameFault::Refused => "asks its name server, which answers SERVFAIL".into(),
        NameFault::Silent => "asks its name server and gets no answer".into(),
        NameFault::Late(ns) => format!("asks its name server, which answers after {} ms", ns / 1_000_000),
    }
}

fn out_of_memory(kill: &OomKill) -> String {
    let OomKill { pid, comm, had, limit, of_container, .. } = kill;
    let whose = if *of_container { "the container's limit" } else { "the machine's memory" };
    format!(
        "has no memory left ({whose} is {} MiB): process {} ({}) with {} MiB is killed",
        limit >> 20,
        pid.number(),
        String::from_utf8_lossy(comm),
        had >> 20
    )
}

/// `next` is of what it is made after an upgrade.
fn service(change: &ServiceChange, next: &str) -> String {
    match change {
        ServiceChange::Remade(Version::First) => "is made of what it began with".into(),
        ServiceChange::Remade(Version::Next) => format!("is made of {next}"),
        ServiceChange::Started => "started".into(),
        ServiceChange::Healthy => "is healthy".into(),
        ServiceChange::CheckFailed { failures } => format!("failed {failures} health checks in a row"),
        ServiceChange::Unhealthy { failures } => {
            format!("is unhealthy: {failures} health checks failed in a row")
        }
        ServiceChange::Stopping => "is asked to stop".into(),
        ServiceChange::Hook { moment, nth, status } => {
            format!("command {} of {} ended: {status}", nth + 1, moment.key())
        }
        ServiceChange::Ended(status) => format!("ended: {status}"),
    }
}

/// Why a check does not hold, or cannot be asked; nothing if it holds.
pub fn evidence(result: &CheckResult) -> String {
    match result {
        CheckResult::Holds => String::new(),
        CheckResult::Violated { within: Some(ns), why } => {
            format!("not within {} ms after the heal: {why}", ns / 1_000_000)
        }
        CheckResult::Violated { within: None, why } => why.clone(),
        CheckResult::Impossible { script, errno } => {
            format!("the script {} cannot be run: {errno}", String::from_utf8_lossy(script))
        }
    }
}

fn phase(change: &PhaseChange) -> String {
    match change {
        PhaseChange::Ready => "all services are ready".into(),
        PhaseChange::Scheduling(policy) => format!("scheduling: {policy}"),
        PhaseChange::Faults(profile) => format!("faults: {profile}"),
        PhaseChange::DrawnAnew(profile) => format!("faults that have not begun are drawn anew: {profile}"),
        PhaseChange::Unhealed => "no more faults begin; nothing is healed".into(),
        PhaseChange::Healed => "healed: the system must recover".into(),
        PhaseChange::Done => "the run is over".into(),
    }
}

fn refused(refusal: &Refusal) -> String {
    let Refusal { stream, step, error, taken } = refusal;
    match (error, stream) {
        (Some(e), Console::Err) => format!("write to standard error at step {step}: {e}"),
        (Some(e), _) => format!("write to standard output at step {step}: {e}"),
        (None, _) => format!("write at step {step}: only {taken} bytes were taken"),
    }
}
