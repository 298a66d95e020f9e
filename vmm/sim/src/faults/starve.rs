//! A thread of a service gets no processor for a time, while the others of its node do: a scheduler may leave a runnable thread
//! waiting for as long as it likes. Signals wait with it, and timers of its own.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Lineage, WORD};
use bloodhound_kernel::ids::Tid;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;
use crate::notice::{Notice, Target};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starve {
    /// The node.
    pub node: NodeId,
    /// Which thread, modulo how many there are.
    pub which: u64,
}

impl Room for Starve {
    fn draw(draw: &mut Draw<'_>) -> Option<Starve> {
        Some(Starve { node: draw.node()?, which: draw.choose("thread", WORD) })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let id = machine.world.room(self.node).machine;
        let starves =
            machine.world.scheduler.starves(id).then_some("a thread of its machine starves already");
        machine.not_acting(self.node).or(starves)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("starve a thread of {} for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        let threads = threads(machine, self.node);
        let Some(at) = self.which.checked_rem(threads.len() as u64) else { return };
        let tid = threads[at as usize];
        let id = machine.world.room(self.node).machine;
        let comm = machine.world.nodes[&id].task(tid).comm.to_vec();
        machine.note(Some(self.node), Notice::Target(Target::Thread(tid, comm)));
        machine.world.scheduler.starve(id, tid);
        machine.world.faults.starving.insert(id, entry);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let id = machine.world.room(self.node).machine;
        if machine.world.faults.starving.get(&id) != Some(&entry) {
            return false;
        }
        machine.world.faults.starving.remove(&id);
        machine.world.catch_up(id);
        let world = &mut machine.world;
        world.scheduler.feed(id, &mut world.nodes)
    }
}

/// The threads of a service, without those of checks, in the order of their descent.
fn threads(machine: &Machine, id: NodeId) -> Vec<Tid> {
    let node = machine.world.machine_of(id);
    let container = machine.world.room(id).container;
    let mine =
        node.processes.values().filter(|process| process.container == container && process.is_of_service());
    let threads = mine.flat_map(|process| process.threads.iter().copied());
    let mut found: Vec<(Lineage, Tid)> =
        threads.filter_map(|tid| Some((node.tasks.get(&tid)?.lineage, tid))).collect();
    found.sort();
    found.into_iter().map(|(_, tid)| tid).collect()
}
