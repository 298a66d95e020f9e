//! Why a stack did not start, in words: what happened, and what its services said.

use std::collections::BTreeSet;

use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::NodeId;
use bloodhound_sim::notice::Notice;
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::services::{ServiceChange, State};
use bloodhound_sim::world::Finding;
use bloodhound_sim::{World, timeline};

use crate::console::Line;
use crate::report;

/// From so many starts on a service counts as one that starts again and again.
const AGAIN_AND_AGAIN: u32 = 4;
/// Lines of such a service that are shown: the first ones, as all tries say the same.
const FIRST_LINES: usize = 5;
/// Lines of all others that are shown: the last ones, of those that are not ready if they said something.
const LAST_LINES: usize = 20;

/// The message.
pub fn text(finding: &Finding, world: &World, console: &[Line], scenario: &Scenario) -> String {
    let name = |id| timeline::name(scenario, id);
    let restless: BTreeSet<NodeId> =
        world.services.iter().filter(|(_, s)| s.starts >= AGAIN_AND_AGAIN).map(|(id, _)| *id).collect();
    let mut text = format!("the stack did not start: {}", finding.text);
    for entry in &world.log {
        let told_below = entry.node.is_some_and(|node| restless.contains(&node));
        if !(told_below && matches!(entry.what, Notice::Service(_))) {
            text.push_str(&format!("\n  {}", timeline::line(entry, scenario)));
        }
    }
    for node in &restless {
        let (name, starts) = (name(*node), world.services[node].starts);
        text.push_str(&format!("\n  {name} started {starts} times{}", last_end(world, *node)));
        for line in console.iter().filter(|l| l.node == *node).take(FIRST_LINES) {
            text.push_str(&format!("\n  {} {name} | {}", line.at, report::printable(&line.text)));
        }
    }
    let waited_for = |node: &NodeId| {
        let service = world.services.get(node);
        finding.node == Some(*node) || service.is_some_and(|s| !s.is_ready() && s.state != State::Waiting)
    };
    let mut others: Vec<&Line> = console.iter().filter(|l| !restless.contains(&l.node)).collect();
    if others.iter().any(|line| waited_for(&line.node)) {
        others.retain(|line| waited_for(&line.node));
    }
    for line in &others[others.len().saturating_sub(LAST_LINES)..] {
        text.push_str(&format!("\n  {} {} | {}", line.at, name(line.node), report::printable(&line.text)));
    }
    text
}

/// How a service's last try ended, after a comma.
fn last_end(world: &World, node: NodeId) -> String {
    if let State::Ended(status) = world.services[&node].state
        && status != ExitStatus::Code(0)
    {
        return format!(", the last time it ended with {status}");
    }
    let ends = world.log.iter().rev().filter(|e| e.node == Some(node));
    let last = ends.filter_map(|e| match &e.what {
        Notice::Service(ServiceChange::Ended(status)) => Some(status),
        _ => None,
    });
    last.take(1).map(|status| format!(", the last time it ended with {status}")).collect()
}
