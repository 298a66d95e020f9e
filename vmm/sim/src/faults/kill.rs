//! A process of a service gets SIGKILL that is not its first one, such as a worker or a helper. Which one is drawn among those that
//! descend from the first, in the order of their descent.

use bloodhound_abi::{SimTime, consts};
use bloodhound_decisions::{Lineage, WORD};
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::Node;
use bloodhound_net::NodeId;

use super::{Draw, Names, Room};
use crate::machine::Machine;
use crate::notice::{Notice, Target};
use crate::scenario::Init;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The node.
    pub node: NodeId,
    /// Which process, modulo how many there are.
    pub which: u64,
}

impl Kill {
    fn victim(&self, machine: &Machine) -> Option<Pid> {
        let workers = workers(machine, self.node);
        let at = self.which.checked_rem(workers.len() as u64)?;
        workers.get(at as usize).copied()
    }
}

impl Room for Kill {
    fn draw(draw: &mut Draw<'_>) -> Option<Kill> {
        Some(Kill { node: draw.node()?, which: draw.choose("process", WORD) })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        let alone = || self.victim(machine).is_none().then_some("its service has one process only");
        machine.not_acting(self.node).or_else(alone)
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let node = name(self.node);
        format!("kill a process of {node} (SIGKILL); if the service ends for that, restart after {ms} ms")
    }

    fn begin(&self, machine: &mut Machine, _: usize, until: SimTime) {
        let Some(pid) = self.victim(machine) else { return };
        let id = machine.world.room(self.node).machine;
        machine.world.catch_up(id);
        machine.strike(self.node, until);
        let comm = machine.world.nodes[&id].comm_of(pid);
        machine.note(Some(self.node), Notice::Target(Target::Process(pid, comm)));
        // As `kill -9` from outside of the container: "a process [...] in an ancestor namespace may send signals to the processes in
        // child namespaces" and is seen as process 0 there (pid_namespaces(7)).
        let info = bloodhound_kernel::signal::user_info(consts::SIGKILL as u32, 0, Pid::NONE, 0);
        machine.world.node_mut(id).send_process(pid, info);
        machine.node_changed(id);
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        // A start is told.
        false
    }
}

/// The processes of a service that descend from its first one, without it, and without a command that an init runs for it.
fn workers(machine: &Machine, id: NodeId) -> Vec<Pid> {
    let Some(first) = machine.first_process(id) else { return Vec::new() };
    let node = machine.world.machine_of(id);
    let with_init = machine.spec(id).is_some_and(|spec| spec.runtime.init == Init::Runs);
    let mut found: Vec<(Lineage, Pid)> = node
        .processes
        .values()
        .filter(|process| {
            process.zombie.is_none() && process.is_of_service() && descends(node, process.pid, first)
        })
        .filter_map(|process| Some((node.tasks.get(process.threads.first()?)?.lineage, process.pid)))
        .collect();
    found.sort();
    // The command is the child of init that is there first.
    let command =
        with_init.then(|| found.iter().position(|(_, pid)| node.process(*pid).ppid == first)).flatten();
    if let Some(at) = command {
        found.remove(at);
    }
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// Whether a process is a descendant of another one, as far as parents are alive.
fn descends(node: &Node, pid: Pid, from: Pid) -> bool {
    let mut at = pid;
    while let Some(process) = node.processes.get(&at) {
        at = process.ppid;
        if at == from {
            return true;
        }
    }
    false
}
