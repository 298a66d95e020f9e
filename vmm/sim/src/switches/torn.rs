//! Instructions whose two accesses are torn apart ([`Torn`]). An instruction such as `add dword [counter], 1` reads memory and writes there; without a lock
//! prefix other processors may write between the two, and what they have written is lost. The simulated machine has one processor, on which
//! no task could come between them.
//!
//! At a torn switch ([`bloodhound_decisions::ForcedSwitch::torn`]) what the instruction is to read is taken down when its task gives way, and stands in its place
//! again right before the task goes on with the instruction. Nobody sees it there: the instruction is the first thing that the task
//! executes. If the task does something else first, such as a handler of a signal, nothing is put back, and the instruction begins anew.
//!
//! Neighbours: [`super`] draws switches; [`crate::step`] runs tasks.

use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::MachineId;
use bloodhound_platform::decode;

use crate::machine::Machine;
use crate::profile::instruction;

/// What a task has read that gave way amid an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Torn {
    /// The address of the instruction.
    rip: u64,
    /// Where it reads and writes, and how many bytes.
    address: u64,
    size: usize,
    /// What was there.
    read: [u8; 8],
}

impl Machine {
    /// A task gives way amid the instruction that it is at, if that reads memory and writes there; else before it.
    pub(super) fn tear(&mut self, id: MachineId, tid: Tid) {
        let node = &self.world.nodes[&id];
        let regs = node.task(tid).regs;
        let (code, length) = instruction(node, tid, regs.rip);
        let Some((address, size)) = decode::read_and_written(&code[..length], &regs) else { return };
        let mut read = [0; 8];
        if node.peek(tid, address, &mut read[..size]).is_ok() {
            self.world.switches.torn.insert((id, tid), Torn { rip: regs.rip, address, size, read });
        }
    }

    /// A task goes on: what it has read stands where it has read it, if that is what it goes on with.
    pub(crate) fn put_back(&mut self, id: MachineId, tid: Tid) {
        if self.world.switches.torn.is_empty() {
            return;
        }
        let Some(torn) = self.world.switches.torn.remove(&(id, tid)) else { return };
        let node = self.world.node_mut(id);
        if node.task(tid).regs.rip == torn.rip {
            // Memory that is not there any more, or must not be written: the instruction will fault.
            let _ = node.poke(tid, torn.address, &torn.read[..torn.size]);
        }
    }
}
