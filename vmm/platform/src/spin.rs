//! Loops without side effects: `while (!flag) pause;`, a spin lock that is held, a poll of a counter that nobody advances.
//! [`Probe`] finds out whether a task is in one.
//!
//! The task is single-stepped. If it comes back to a state that it was in before, registers and all memory that it wrote in
//! between, then it goes round for ever as long as no other task runs. (A failing `cmpxchg` writes back what was there, and a
//! call writes the same return address in each round: a write is no progress, changed memory is.) The task is parked at one
//! point of the cycle that does not depend on where the probe found it: of all states on the cycle the one with the lowest
//! rip, and of several there the least.
//!
//! What cannot be followed exactly makes the answer [`Spin::Progressing`]: traps, vector and x87 registers that are written,
//! string instructions, memory that is not mapped. Memory is mapped when a run faults on it. The probe then keeps what it has
//! found so far and goes on after the fault has been answered, so that its answer is the same as if all of the memory had been
//! mapped.
//!
//! Neighbours: `bloodhound-sim`'s spin detector owns the probe and decides when to use it; [`Platform::step`] and
//! [`Platform::memory`] are all that it needs of a platform.

use iced_x86::{
    CpuidFeature, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

use crate::decode;
use crate::extents::Extents;
use crate::{Access, Platform, PlatformError, Regs, SpaceId, TaskKey, Trap, umip};

/// Steps until a loop counts as making progress. The same on all platforms, as the answer depends on it. One step
/// costs some 20 us under ptrace.
const STEPS: usize = 1024;
/// The trap flag of rflags.
const TF: u64 = 1 << 8;
/// The widest write that is followed, in bytes.
const WIDEST: usize = 16;

/// Instructions on the x87 stack, whose position is no register that the decoder names.
const X87: [CpuidFeature; 3] = [CpuidFeature::FPU, CpuidFeature::FPU287, CpuidFeature::FPU387];

/// A write by one step: where, how many bytes, what was there before.
#[derive(Clone, Copy, Debug)]
struct Write {
    step: usize,
    addr: u64,
    len: usize,
    before: [u8; WIDEST],
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// The task is in a loop without side effects; its registers are now at the loop's canonical point.
    Parked,
    /// The same, and the task was in that loop before the probe already: since then it changed nothing.
    Still,
    /// No proof of that: the task has to run on. Its registers have moved on.
    Progressing,
}

/// A spin probe of a task, as far as it has come. A new probe begins with [`Probe::default`].
#[derive(Debug, Default)]
pub struct Probe {
    /// The states that the task went through, from the one at the beginning to the present one.
    states: Vec<Regs>,
    writes: Vec<Write>,
    /// The probe was interrupted, and what interrupted it has not been answered yet.
    interrupted: bool,
}

impl Probe {
    /// To be called after each run of the task between two calls of [`Probe::go_on`], with the registers before and after it.
    /// If the run did more than fault at once, what the probe has seen is not true any more and the probe begins anew. (The
    /// watchdog may end a run before it comes to the fault that interrupted the probe; that changes nothing either.)
    pub fn after_run(&mut self, before: &Regs, regs: &Regs, trap: Trap) {
        if self.states.is_empty() {
            return;
        }
        let changed_nothing = before == regs
            && match trap {
                Trap::PageFault { .. } => true,
                Trap::BudgetSpent => self.interrupted,
                _ => false,
            };
        match changed_nothing {
            true => self.interrupted &= trap == Trap::BudgetSpent,
            false => *self = Probe::default(),
        }
    }

    /// Steps the task until it is known whether it is in a loop without side effects, and takes its registers on. The answer
    /// does not depend on where in the loop the task was.
    ///
    /// # Errors
    /// Those of [`Platform::step`].
    pub fn go_on<P: Platform + ?Sized>(
        &mut self,
        platform: &mut P,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
    ) -> Result<Spin, PlatformError> {
        if !platform.abilities().traps_steps {
            // A step would be a run.
            return Ok(Spin::Progressing);
        }
        let Probe { mut states, mut writes, .. } = std::mem::take(self);
        if states.last() != Some(regs) {
            states = vec![*regs];
            writes.clear();
        }
        for step in states.len() - 1..STEPS {
            // A program that steps itself has traps of its own to take.
            if regs.rflags & TF != 0 {
                return Ok(Spin::Progressing);
            }
            let Some(memory) = platform.memory(space) else { return Ok(Spin::Progressing) };
            let before = writes.len();
            // A step over an instruction that Linux emulates takes the next instruction as well.
            let followed =
                decode::at(memory, regs.rip).filter(|_| !umip::is_at(memory, regs.rip)).and_then(|i| {
                    note_writes(memory, &mut InstructionInfoFactory::new(), &i, regs, step, &mut writes)
                });
            if followed.is_none() || !step_once(platform, space, task, regs)? {
                writes.truncate(before);
                *self = Probe { states, writes, interrupted: true };
                return Ok(Spin::Progressing);
            }
            let Some(memory) = platform.memory(space) else { return Ok(Spin::Progressing) };
            if let Some(start) = cycle_start(memory, &states, &writes, regs) {
                let cycle = &states[start..];
                let goal = cycle.iter().min_by_key(|state| order(state)).copied().unwrap_or(*regs);
                let spin = park(platform, space, task, regs, &goal, cycle.len())?;
                // The first state that comes again is the one at the beginning, if that one is on the cycle at all.
                return Ok(if spin == Spin::Parked && start == 0 { Spin::Still } else { spin });
            }
            states.push(*regs);
        }
        Ok(Spin::Progressing)
    }
}

/// One step; false if it trapped, with `regs` as if the trap had not been taken, so that it comes again.
fn step_once<P: Platform + ?Sized>(
    platform: &mut P,
    space: SpaceId,
    task: TaskKey,
    regs: &mut Regs,
) -> Result<bool, PlatformError> {
    let before = *regs;
    let stepped = platform.step(space, task, regs)? == Trap::Step;
    if !stepped {
        *regs = before;
    }
    Ok(stepped)
}

/// The earliest-found state that equals the present one, memory included: the cycle is from there to now.
fn cycle_start(memory: &Extents, states: &[Regs], writes: &[Write], now: &Regs) -> Option<usize> {
    // From the back: the first hit is the shortest cycle.
    let candidates =
        states.iter().enumerate().rev().filter(|(_, state)| state.rip == now.rip && *state == now);
    let mut candidates = candidates.map(|(index, _)| index);
    candidates.find(|&index| unchanged_since(memory, writes, index))
}

/// Whether everything written since a step holds again what it held before that step.
fn unchanged_since(memory: &Extents, writes: &[Write], step: usize) -> bool {
    let since = &writes[writes.partition_point(|write| write.step < step)..];
    // The first write to a byte knows what was there at the beginning; later ones to it are covered by it. To
    // keep it simple all bytes of earlier writes are excluded one by one.
    since.iter().enumerate().all(|(index, write)| {
        (0..write.len).all(|offset| {
            let addr = write.addr.wrapping_add(offset as u64);
            let first =
                since[..index].iter().all(|earlier| addr.wrapping_sub(earlier.addr) >= earlier.len as u64);
            let mut byte = [0];
            !first || memory.read(addr, &mut byte) == 1 && byte[0] == write.before[offset]
        })
    })
}

/// Notes what an instruction is about to write. `None` if that cannot be followed.
fn note_writes(
    memory: &Extents,
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    regs: &Regs,
    step: usize,
    writes: &mut Vec<Write>,
) -> Option<()> {
    let strange = instruction.is_string_instruction()
        || instruction.has_rep_prefix() && instruction.mnemonic() != Mnemonic::Pause
        || instruction.has_repne_prefix()
        || instruction.is_save_restore_instruction()
        || matches!(instruction.mnemonic(), Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr)
        || instruction.cpuid_features().iter().any(|feature| X87.contains(feature))
        || matches!(
            instruction.flow_control(),
            FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend
        );
    if strange {
        return None;
    }
    let info = factory.info(instruction);
    for used in info.used_registers() {
        // A step over a load of ss takes the next instruction as well.
        let segment = used.register().is_segment_register() && used.register() != Register::SS;
        let general = used.register().is_gpr() || segment;
        if !general && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None) {
            return None;
        }
    }
    for used in info.used_memory() {
        if decode::access_of(used.access()) != Some(Access::Write) {
            continue;
        }
        let (addr, len) = (decode::effective(used, regs)?, used.memory_size().size());
        let mut before = [0; WIDEST];
        if len == 0 || len > WIDEST || memory.read(addr, &mut before[..len]) != len {
            return None;
        }
        writes.push(Write { step, addr, len, before });
    }
    Some(())
}

/// Steps on to the canonical state of a cycle.
fn park<P: Platform + ?Sized>(
    platform: &mut P,
    space: SpaceId,
    task: TaskKey,
    regs: &mut Regs,
    goal: &Regs,
    length: usize,
) -> Result<Spin, PlatformError> {
    for _ in 0..length {
        if regs == goal {
            break;
        }
        if !step_once(platform, space, task, regs)? {
            return Ok(Spin::Progressing);
        }
    }
    Ok(if regs == goal { Spin::Parked } else { Spin::Progressing })
}

/// A total order of states with rip first.
fn order(r: &Regs) -> [u64; 20] {
    [
        r.rip, r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15, r.rflags, r.fs_base, r.gs_base,
    ]
}
