//! Loops without side effects ([`analyse`]): `while (!flag) pause;`, a spin lock that is held, a poll of a
//! counter that nobody advances.
//!
//! The task is single-stepped. If it comes back to a state that it was in before, registers and all memory that
//! it wrote in between, then it goes round for ever as long as no other task runs. (A failing `cmpxchg` writes
//! back what was there, a call writes the same return address each time round: writes as such are no
//! progress, changed memory is.) It is parked at one point of the cycle that does not depend on where it was
//! stopped: of all states on the cycle the one with the lowest rip, and of several there the least.
//!
//! What cannot be followed exactly makes the answer `Progressing`: traps, vector and x87 registers that are
//! written, string instructions, memory that is not mapped. Memory is mapped when a run faults on it; a [`Look`] keeps what was
//! found until then, so that the answer is the same as if all of it had been mapped.
//!
//! Neighbours: a platform that can step calls this from [`Platform::analyse_spin`] and gives its page table by
//! [`Memory`].

use iced_x86::{
    CpuidFeature, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

use crate::decode;
use crate::extents::Extents;
use crate::{Access, Platform, PlatformError, Regs, SpaceId, Spin, TaskKey, Trap, umip};

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

/// A check of a task, as far as it has come. A new one asks for a new check; one that a page fault interrupted goes on with it
/// when the fault has been answered.
#[derive(Debug, Default)]
pub struct Look {
    /// From the beginning to where it has come.
    states: Vec<Regs>,
    writes: Vec<Write>,
    /// What interrupted it has not been answered.
    waits: bool,
}

impl Look {
    /// To be called after each run. Only one that met a page fault at once has changed nothing of what was seen; and one that
    /// the watchdog ended before it came to the fault that interrupted the look.
    pub fn after_run(&mut self, before: &Regs, regs: &Regs, trap: Trap) {
        if self.states.is_empty() {
            return;
        }
        let nothing = before == regs
            && match trap {
                Trap::PageFault { .. } => true,
                Trap::BudgetSpent => self.waits,
                _ => false,
            };
        match nothing {
            true => self.waits &= trap == Trap::BudgetSpent,
            false => *self = Look::default(),
        }
    }
}

/// A platform whose page tables can be looked at.
pub trait Memory: Platform {
    /// What a space maps, queued changes included. `None` if the space is not known.
    fn extents(&self, space: SpaceId) -> Option<&Extents>;
}

/// See the module's text. `regs` are moved on.
///
/// # Errors
/// Those of [`Platform::step`].
pub fn analyse<P: Memory + ?Sized>(
    platform: &mut P,
    space: SpaceId,
    task: TaskKey,
    regs: &mut Regs,
    look: &mut Look,
) -> Result<Spin, PlatformError> {
    let Look { mut states, mut writes, .. } = std::mem::take(look);
    if states.last() != Some(regs) {
        states = vec![*regs];
        writes.clear();
    }
    for step in states.len() - 1..STEPS {
        // A program that steps itself has traps of its own to take.
        if regs.rflags & TF != 0 {
            return Ok(Spin::Progressing);
        }
        let Some(memory) = platform.extents(space) else { return Ok(Spin::Progressing) };
        let before = writes.len();
        // A step over an instruction that Linux does itself takes the next one as well.
        let followed =
            decode::at(memory, regs.rip).filter(|_| !umip::is_at(memory, regs.rip)).and_then(|i| {
                note_writes(memory, &mut InstructionInfoFactory::new(), &i, regs, step, &mut writes)
            });
        if followed.is_none() || !step_once(platform, space, task, regs)? {
            writes.truncate(before);
            *look = Look { states, writes, waits: true };
            return Ok(Spin::Progressing);
        }
        let Some(memory) = platform.extents(space) else { return Ok(Spin::Progressing) };
        if let Some(start) = cycle_start(memory, &states, &writes, regs) {
            let cycle = &states[start..];
            let goal = cycle.iter().min_by_key(|state| order(state)).copied().unwrap_or(*regs);
            let spin = park(platform, space, task, regs, &goal, cycle.len())?;
            // The first state that comes again is the one of the beginning, if that is on the cycle at all.
            return Ok(if spin == Spin::Parked && start == 0 { Spin::Still } else { spin });
        }
        states.push(*regs);
    }
    Ok(Spin::Progressing)
}

/// One step; false if it trapped, with `regs` as if the trap had not been taken, so that it comes again.
fn step_once<P: Memory + ?Sized>(
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
fn park<P: Memory + ?Sized>(
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
