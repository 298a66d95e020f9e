//! Instructions that are answered for the program instead of being executed by the processor: `rdtsc`, `cpuid`, `xgetbv`.

use bloodhound_abi::{Exception, Regs};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::MachineId;
use bloodhound_platform::{Trap, cpuid_profile};

use crate::machine::{Machine, MachineError};
use crate::step::Ran;

/// TF of rflags.
const TRAP_FLAG: u64 = 0x100;

impl Machine {
    /// Answers such an instruction. `None`: the trap was no step, and the task runs on.
    pub(crate) fn answer(
        &mut self,
        id: MachineId,
        tid: Tid,
        trap: Trap,
        regs: &mut Regs,
    ) -> Result<Option<Ran>, MachineError> {
        let known = match trap {
            // "Throw a SIGSEGV when the process tries to read the timestamp counter" (PR_SET_TSC(2const)).
            Trap::Rdtsc { .. } if self.world.nodes[&id].task(tid).no_tsc => false,
            Trap::Rdtsc { aux } => {
                let node = self.world.node_mut(id);
                node.take_clock(tid);
                node.charge_look(tid);
                node.return_clock();
                // One tick is one nanosecond of virtual time.
                regs.set_rdtsc(node.uptime(), aux.then_some(0));
                true
            }
            Trap::Cpuid => {
                regs.set_cpuid(cpuid_profile(regs.rax as u32, regs.rcx as u32));
                true
            }
            _ => regs.set_xgetbv(),
        };
        self.keep(id, tid, regs);
        if !known {
            return Ok(Some(self.exception(id, tid, Exception::general_protection(0))?));
        }
        Ok(self.single_step(id, tid, regs))
    }

    /// To be called after such an instruction. If the program has set its trap flag, the task gets SIGTRAP, as after an instruction that
    /// the processor executes.
    pub(crate) fn single_step(&mut self, id: MachineId, tid: Tid, regs: &Regs) -> Option<Ran> {
        (regs.rflags & TRAP_FLAG != 0).then(|| self.trace_trap(id, tid, regs))
    }
}
