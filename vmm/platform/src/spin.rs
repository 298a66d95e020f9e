//! Loops without side effects: `while (!flag) pause;`, a spin lock that is held, a poll of a counter that nobody advances.
//! A spin probe ([`Probe`]) finds out whether a task is in such a loop.
//!
//! The probe single-steps the task. Suppose that the task comes back to a state that it was in before: the general registers
//! are the same, and all memory that the task wrote in between holds again what it held then. Then the task repeats this cycle
//! for ever, as long as no other task runs. Writes alone do not count as progress, only changed memory does: a failing
//! `cmpxchg` writes back the value that was there, and a call in the loop writes the same return address in each round.
//!
//! A task that is found in a cycle is left at one state of the cycle that does not depend on where in the cycle the probe
//! began, the canonical point: the state with the lowest rip, and if there are several of them, the lowest in the order of their
//! other registers.
//!
//! The answer is [`Spin::Progressing`] when the task does something whose effects the probe cannot follow exactly: it traps,
//! writes vector registers, uses x87 registers, executes a string instruction, or uses memory that is not mapped. Memory is
//! mapped only when a run of the task faults on it. So a probe that ended keeps what it has found so far, and can be continued
//! after the fault has been answered ([`Probe::after_run`]): the answer is then the same as if all of the memory had been mapped
//! from the beginning.
//!
//! Neighbours: the spin detector of `bloodhound-sim` owns the probe and decides when to use it. Of a platform the probe uses
//! only [`Platform::step`], [`Platform::memory`] and [`Platform::abilities`].

use iced_x86::{
    CpuidFeature, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

use crate::decode;
use crate::extents::Extents;
use crate::{Access, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap, umip};

/// After so many steps without a repeated state the answer is [`Spin::Progressing`]. The number is the same on all platforms, as
/// the answer depends on it. One step costs some 20 us under ptrace.
const STEPS: usize = 1024;
/// The trap flag of rflags.
const TF: u64 = 1 << 8;
/// The widest write that is followed, in bytes.
const WIDEST: usize = 16;

/// Instructions that use the x87 stack. They change the position of its top, which the decoder does not name as a register.
const X87: [CpuidFeature; 3] = [CpuidFeature::FPU, CpuidFeature::FPU287, CpuidFeature::FPU387];

/// A write to memory by one step: the number of the step, the address, the number of bytes, and what was there before.
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
    /// The task is in a loop without side effects, and has been stepped to the loop's canonical point.
    Parked,
    /// As `Parked`, and moreover the state in which the probe began is on the cycle: the task has changed nothing since then.
    Still,
    /// There is no proof that the task loops, so it has to run on. The probe may have executed some of its instructions.
    Progressing,
}

/// What a spin probe of a task has found so far. A new probe begins with [`Probe::default`].
#[derive(Debug, Default)]
pub struct Probe {
    /// The states that the task went through, from the one at the beginning to the present one.
    states: Vec<Regs>,
    /// What the task wrote to memory since the first of `states`, by rising number of the step.
    writes: Vec<Write>,
    /// The probe ended at an instruction that it could not follow or step over, and no run has come to a page fault there since.
    interrupted: bool,
    /// Instructions of the loop that was found.
    cycle: usize,
}

impl Probe {
    /// To be called after each run of the task between two calls of [`Probe::go_on`], with the registers before and after it.
    /// If the run raised a page fault at its first instruction, the task has executed nothing and the probe can be continued. The
    /// same holds if the platform's watchdog ended the run before that fault was raised (`BudgetSpent` with unchanged registers
    /// while the probe is interrupted). After any other run the task may have left the last state of the probe, so what the
    /// probe has found is forgotten and it begins anew.
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

    /// How many instructions the loop has that was found last.
    #[must_use]
    pub fn cycle(&self) -> usize {
        self.cycle
    }

    /// Steps the task until it is known whether it is in a loop without side effects. Afterwards `regs` is the state to which the
    /// task was stepped. The answer does not depend on where in the loop the task was. There is none for a loop with a stop point of
    /// `stops` whose passes are still counted: only runs count them.
    ///
    /// # Errors
    /// Those of [`Platform::step`].
    pub fn go_on<P: Platform + ?Sized>(
        &mut self,
        platform: &mut P,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Spin, PlatformError> {
        if !platform.abilities().traps_steps {
            // `Platform::step` would not stop after one instruction here.
            return Ok(Spin::Progressing);
        }
        let Probe { mut states, mut writes, .. } = std::mem::take(self);
        if states.last() != Some(regs) {
            states = vec![*regs];
            writes.clear();
        }
        for step in states.len() - 1..STEPS {
            // The program itself has set the trap flag, so each step raises an exception that the program has to get.
            if regs.rflags & TF != 0 || stops.counts(regs.rip) {
                return Ok(Spin::Progressing);
            }
            platform.approach(space, regs.rip);
            let Some(memory) = platform.memory(space) else { return Ok(Spin::Progressing) };
            let before = writes.len();
            // Excluded: instructions that Linux emulates (UMIP). A step over one of them executes the next instruction as well.
            let followed =
                decode::at(memory, regs.rip).filter(|_| !umip::is_at(memory, regs.rip)).and_then(|i| {
                    note_writes(memory, &mut InstructionInfoFactory::new(), &i, regs, step, &mut writes)
                });
            if followed.is_none() || !step_once(platform, space, task, regs)? {
                writes.truncate(before);
                *self = Probe { states, writes, interrupted: true, cycle: 0 };
                return Ok(Spin::Progressing);
            }
            stops.counted = None;
            if stops.counts(regs.rip) {
                return Ok(Spin::Progressing);
            }
            let Some(memory) = platform.memory(space) else { return Ok(Spin::Progressing) };
            if let Some(start) = cycle_start(memory, &states, &writes, regs) {
                let cycle = &states[start..];
                let goal = cycle.iter().min_by_key(|state| order(state)).copied().unwrap_or(*regs);
                let spin = park(platform, space, task, regs, &goal, cycle.len())?;
                // If the state in which the probe began is on the cycle, it is the first one that is reached again.
                self.cycle = cycle.len();
                return Ok(if spin == Spin::Parked && start == 0 { Spin::Still } else { spin });
            }
            states.push(*regs);
        }
        Ok(Spin::Progressing)
    }
}

/// Makes one step. False if the instruction trapped: `regs` is then unchanged, so that the trap is raised again by the next run.
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

/// The index of the state that begins the cycle which ends with the present state `now`: the latest earlier state that equals
/// it, memory included. `None` if there is none.
fn cycle_start(memory: &Extents, states: &[Regs], writes: &[Write], now: &Regs) -> Option<usize> {
    // Searched from the latest state back, so that the first match gives the shortest cycle.
    let candidates =
        states.iter().enumerate().rev().filter(|(_, state)| state.rip == now.rip && *state == now);
    let mut candidates = candidates.map(|(index, _)| index);
    candidates.find(|&index| unchanged_since(memory, writes, index))
}

/// Whether all memory that was written since a step holds again what it held before that step.
fn unchanged_since(memory: &Extents, writes: &[Write], step: usize) -> bool {
    let since = &writes[writes.partition_point(|write| write.step < step)..];
    // What a byte held before the step is recorded by the first write to it since then. Later writes recorded an intermediate
    // value, so a byte that an earlier write covers is skipped. For simplicity that is looked up for each byte by itself.
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

/// Appends what an instruction is about to write to memory to `writes`. `None` if the probe cannot follow all effects of the
/// instruction.
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
        // Loads of ss are excluded: after them the processor delays the trap of a step by one instruction, so a step would
        // execute two instructions.
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

/// Steps the task on, once round the cycle at most, until it is at the canonical state `goal`.
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

/// A key that orders states: by rip, then by the other registers.
fn order(r: &Regs) -> [u64; 20] {
    [
        r.rip, r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15, r.rflags, r.fs_base, r.gs_base,
    ]
}
