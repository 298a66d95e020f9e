//! A rolling restart: the services of a group are stopped and started one after the other, as an operator or a deployment does it. The next one
//! has its turn a pause after the one before is ready again.
//!
//! Its steps have numbers: an even one is the turn of a service, the odd one behind it looks whether that is ready.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room, planning};
use crate::machine::Machine;
use crate::queue::Due;

/// How often it is looked whether a service is ready, ns.
const LOOK: u64 = 50_000_000;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollingRestart {
    /// The name of the group; empty if it has none.
    pub group: String,
    /// The services in their order.
    pub nodes: Vec<NodeId>,
    /// From when one is ready until the next one is stopped, ns.
    pub pause: u64,
}

impl Room for RollingRestart {
    fn draw(draw: &mut Draw<'_>) -> Option<RollingRestart> {
        let pause = draw.size();
        let group = draw.group.filter(|group| !group.nodes.is_empty())?;
        Some(RollingRestart { group: group.name.clone(), nodes: group.nodes.clone(), pause })
    }

    fn node(&self) -> Option<NodeId> {
        None
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let any = self.nodes.iter().any(|node| machine.not_acting(*node).is_none());
        (!any).then_some("none of its services runs")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let who = planning::in_words(&self.group, &self.nodes, name);
        format!("rolling restart of {who}, {} ms between, within {ms} ms", self.pause / 1_000_000)
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        self.turn(machine, entry, 0);
    }

    fn go_on(&self, machine: &mut Machine, entry: usize, step: u64) {
        if machine.is_over(entry) {
            return;
        }
        let place = (step / 2) as usize;
        if step.is_multiple_of(2) {
            self.turn(machine, entry, place);
            return;
        }
        let service = self.nodes.get(place).and_then(|node| machine.world.services.get(node));
        let ready = service.is_some_and(|service| service.is_ready());
        let (after, next) = if ready { (self.pause, step + 1) } else { (LOOK, step) };
        machine.world.queue.push(machine.world.now.after(after), Due::FaultGoesOn(entry, next));
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        // Stops and starts are told.
        false
    }
}

impl RollingRestart {
    /// It is the turn of the first service from this place on that runs: those that are down are left alone.
    fn turn(&self, machine: &mut Machine, entry: usize, place: usize) {
        let acts = |node: &NodeId| machine.not_acting(*node).is_none();
        let Some(place) = (place..self.nodes.len()).find(|place| acts(&self.nodes[*place])) else { return };
        let node = self.nodes[place];
        if let Some(pid) = machine.first_process(node) {
            machine.stop_service(node, pid);
        }
        let looks = Due::FaultGoesOn(entry, 2 * place as u64 + 1);
        machine.world.queue.push(machine.world.now.after(LOOK), looks);
    }
}
