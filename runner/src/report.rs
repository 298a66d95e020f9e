//! Text about a world for people.

use bloodhound_abi::SimTime;
use bloodhound_kernel::task::TaskState;
use bloodhound_sim::faults::{Effect, Names, Planned};
use bloodhound_sim::notice::{LogEntry, Notice};
use bloodhound_sim::{World, timeline};
use serde::{Deserialize, Serialize};

use crate::session::Outcome;

/// Times in files: as nanoseconds.
pub mod ns {
    use bloodhound_abi::SimTime;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(at: &SimTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(at.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SimTime, D::Error> {
        u64::deserialize(deserializer).map(SimTime)
    }
}

/// What every sleeping task waits for.
pub fn waiting(world: &World) -> String {
    let mut out = String::new();
    for node in world.nodes.values() {
        for task in node.tasks.values() {
            let TaskState::Blocked(blocked) = &task.state else { continue };
            if node.is_sleeping_init(task.pid) {
                continue;
            }
            out.push_str(&format!(
                "  node {} task {} ({}): {}, waits for {:?}\n",
                node.container_of_any(task.pid).id.0,
                task.tid.number(),
                String::from_utf8_lossy(&task.comm),
                blocked.call.name(),
                blocked.wait.on
            ));
        }
    }
    out
}

/// The injected faults of a run, those that operations met too, and the ends of those that last, as lines.
pub fn faults(outcome: &Outcome) -> Vec<String> {
    faults_until(outcome, SimTime::MAX)
}

/// A fault of the plan whose time came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Its kind.
    pub kind: String,
    /// The service that it hit, if it was one.
    pub service: Option<String>,
    /// Begin and duration, ns of virtual time.
    pub begin_ns: u64,
    pub duration_ns: u64,
    /// In words.
    pub text: String,
    /// Why it had no effect, if it had none.
    pub without_effect: Option<String>,
}

/// The plan of faults of a run with what became of it, as far as its time came. `name` gives nodes their names.
pub fn fault_records<'a>(
    faults: impl Iterator<Item = (&'a Planned, Effect)>,
    name: Names<'_>,
) -> Vec<FaultRecord> {
    let record = |(planned, effect): (&Planned, Effect)| FaultRecord {
        kind: planned.id.kind.name().to_owned(),
        service: planned.fault.node().map(name),
        begin_ns: planned.begin.0,
        duration_ns: planned.duration,
        text: planned.describe(name),
        without_effect: match effect {
            Effect::Begun => None,
            Effect::None(why) => Some(why.to_owned()),
        },
    };
    faults.map(record).collect()
}

/// Those of them until a time.
pub fn faults_until(outcome: &Outcome, at: SimTime) -> Vec<String> {
    let is_fault =
        |e: &&LogEntry| matches!(e.what, Notice::Fault(_) | Notice::FaultEnd(_) | Notice::Injected(_));
    let until = outcome.log.iter().filter(is_fault).filter(|e| e.at <= at);
    until.map(|e| timeline::line(e, &outcome.scenario)).collect()
}

/// Faults, services and output of a run in order of time.
pub fn trace(outcome: &Outcome) -> String {
    let mut lines: Vec<(SimTime, String)> =
        outcome.log.iter().map(|e| (e.at, timeline::line(e, &outcome.scenario))).collect();
    let output = crate::console::lines(&outcome.console, &outcome.log);
    lines.extend(output.iter().filter(|line| !line.check).map(|line| {
        let who = timeline::name(&outcome.scenario, line.node);
        (line.at, format!("{} output   {who} | {}", line.at, printable(&line.text)))
    }));
    lines.sort_by_key(|(at, _)| *at);
    let from = match outcome.platform {
        Some(_) => format!("from boot {}", crate::boots::number(&outcome.decisions)),
        None => "live: nothing here is replayable".to_owned(),
    };
    let mut out = format!("seed {}, {from}\nfaults of this seed: {}\n", outcome.seed, outcome.profile);
    for (_, line) in lines {
        out.push_str(&line);
        out.push('\n');
    }
    for v in &outcome.violations {
        out.push_str(&format!("{} VIOLATED {} ({})\n{}\n", v.at, v.property, v.kind, v.text));
    }
    out
}

/// Output of a service without control characters, which could steer the reader's terminal.
pub fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}
