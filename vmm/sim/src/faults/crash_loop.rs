//! A crash loop: a service crashes several times in a row. Each part of the time it is down for one half and up for the other.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room, crash};
use crate::machine::Machine;
use crate::queue::Due;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashLoop {
    /// The node.
    pub node: NodeId,
    /// How often it crashes.
    pub times: u64,
}

impl Room for CrashLoop {
    fn draw(draw: &mut Draw<'_>) -> Option<CrashLoop> {
        Some(CrashLoop { node: draw.node()?, times: draw.number().max(1) })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        machine.not_running(self.node)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("crash {} {} times within {ms} ms (SIGKILL)", name(self.node), self.times)
    }

    fn begin(&self, machine: &mut Machine, entry: usize, until: SimTime) {
        let begin = machine.world.now;
        // Starts and crashes in turn: the first crash is now, the last start at the end.
        let steps = 2 * self.times;
        let half = until.since(begin) / steps;
        for step in 1..steps - 1 {
            machine.world.queue.push(begin.after(half * step), Due::FaultGoesOn(entry, step));
        }
        crash::fall(machine, self.node);
    }

    fn go_on(&self, machine: &mut Machine, _: usize, step: u64) {
        if step % 2 == 1 {
            crash::rise(machine, self.node);
        } else if machine.not_running(self.node).is_none() {
            crash::fall(machine, self.node);
        }
    }

    fn end(&self, machine: &mut Machine, _: usize) -> bool {
        crash::rise(machine, self.node);
        // The start is told.
        false
    }
}
