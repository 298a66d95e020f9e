//! Text about a world for people.

use bloodhound_kernel::task::TaskState;
use bloodhound_sim::World;

/// What every sleeping task waits for.
pub fn waiting(world: &World) -> String {
    let mut out = String::new();
    for (id, node) in &world.nodes {
        for task in node.tasks.values() {
            let TaskState::Blocked(wait) = &task.state else { continue };
            let call = bloodhound_abi::table::info(task.regs.orig_rax).map_or("?", |i| i.name);
            out.push_str(&format!(
                "  node {} task {} ({}): {call}, waits for {:?}\n",
                id.0,
                task.tid.0,
                String::from_utf8_lossy(&task.comm),
                wait.on
            ));
        }
    }
    out
}

/// A log entry as a line.
pub fn log_line(entry: &bloodhound_sim::world::LogEntry) -> String {
    use bloodhound_sim::world::Notice;
    let (what, text) = match &entry.what {
        Notice::Fault(t) => ("fault", t),
        Notice::Service(t) => ("service", t),
        Notice::Phase(t) => ("phase", t),
        Notice::Output(t) => ("output", t),
        Notice::Check(t) => ("check", t),
    };
    format!("{} {what:<8} {text}", entry.at)
}

/// The injected faults of a run as lines.
pub fn faults(log: &[bloodhound_sim::world::LogEntry]) -> Vec<String> {
    log.iter().filter(|e| is_fault(e)).map(log_line).collect()
}

/// Those of them until a time.
pub fn faults_until(log: &[bloodhound_sim::world::LogEntry], at: bloodhound_abi::SimTime) -> Vec<String> {
    log.iter().filter(|e| is_fault(e) && e.at <= at).map(log_line).collect()
}

fn is_fault(entry: &bloodhound_sim::world::LogEntry) -> bool {
    matches!(entry.what, bloodhound_sim::world::Notice::Fault(_))
}

/// Faults, services and output of a run in order of time.
pub fn trace(outcome: &crate::session::Outcome) -> String {
    let mut lines: Vec<(bloodhound_abi::SimTime, String)> =
        outcome.log.iter().map(|e| (e.at, log_line(e))).collect();
    lines.extend(
        outcome
            .console
            .iter()
            .map(|(at, who, line)| (*at, format!("{at} output   {who} | {}", printable(line)))),
    );
    lines.sort_by_key(|(at, _)| *at);
    let boot = crate::boots::number(&outcome.decisions);
    let mut out =
        format!("seed {}, from boot {boot}\nfaults of this seed: {}\n", outcome.seed, outcome.profile);
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
