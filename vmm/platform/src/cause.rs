//! Which exception of the processor a host's signal stands for ([`of_general_protection`], [`of_float`]): vector and error
//! code, for a platform whose host tells a signal and its `si_code` only. What Linux would put into the signal frame of a
//! program of its own can be told from the instruction, and `vmm/platform-tests` compares it with what Linux does put there.
//!
//! Neighbours: `decode` finds the instruction; a platform that sees the processor's own error code needs none of this.

use bloodhound_abi::exception::{Exception, vector};
use iced_x86::{Code, CpuidFeature, Instruction, InstructionInfoFactory, Mnemonic, Register};

use crate::Regs;
use crate::decode;
use crate::extents::Extents;

/// 64-bit and 32-bit code, and data of user level: the selectors that a far return may load (asm/segment.h).
const CODE_SELECTORS: [u16; 2] = [0x33, 0x23];
const DATA_SELECTOR: u16 = 0x2b;
/// The bit of an error code that says that it names an entry of the interrupt table (Intel SDM, volume 3, 6.13).
const IDT: u32 = 2;

/// SIGSEGV of the host's kernel without an address: a general protection fault at rip, or `int 4` (#OF) before it.
#[must_use]
pub fn of_general_protection(memory: &Extents, regs: &Regs) -> Exception {
    let instruction = decode::at(memory, regs.rip);
    let faults = instruction.is_some_and(|i| may_fault(memory, regs, &i));
    if !faults && follows_int4(memory, regs.rip) {
        return Exception { vector: vector::OF, error_code: 0, address: 0 };
    }
    let error_code = instruction.and_then(|i| error_code(memory, regs, &i)).unwrap_or(0);
    Exception::general_protection(error_code)
}

/// The error code of a general protection fault at rip.
#[must_use]
pub fn error_code_at(memory: &Extents, regs: &Regs) -> u32 {
    decode::at(memory, regs.rip).and_then(|i| error_code(memory, regs, &i)).unwrap_or(0)
}

/// #MF or #XM at rip, of which the host says SIGFPE: instructions of x87 and MMX raise what x87 instructions before them left
/// pending, before they do anything themselves. `pending`: the error summary of the status word is set.
#[must_use]
pub fn of_float(memory: &Extents, regs: &Regs, pending: bool) -> Exception {
    let x87 = pending && decode::at(memory, regs.rip).is_none_or(|i| waits_for_x87(&i));
    Exception::at(if x87 { vector::MF } else { vector::XM }, regs.rip)
}

fn waits_for_x87(instruction: &Instruction) -> bool {
    const FEATURES: [CpuidFeature; 4] =
        [CpuidFeature::FPU, CpuidFeature::FPU287, CpuidFeature::FPU387, CpuidFeature::MMX];
    instruction.mnemonic() == Mnemonic::Wait
        || instruction.cpuid_features().iter().any(|feature| FEATURES.contains(feature))
        || InstructionInfoFactory::new()
            .info(instruction)
            .used_registers()
            .iter()
            .any(|used| used.register().is_mm() || used.register().is_st())
}

/// Whether the instruction before rip may be `int 4`, which is a trap: rip is behind it.
fn follows_int4(memory: &Extents, rip: u64) -> bool {
    let mut before = [0; 2];
    memory.read(rip.wrapping_sub(2), &mut before) == 2 && before == [0xcd, 4]
}

/// Whether an instruction may raise a general protection fault here and now.
fn may_fault(memory: &Extents, regs: &Regs, instruction: &Instruction) -> bool {
    instruction.is_privileged()
        || decode::faults_by_operand(instruction)
        || decode::bad_operand(memory, regs).is_some()
        || decode::trapped(memory, regs.rip).is_some()
        || matches!(instruction.mnemonic(), Mnemonic::In | Mnemonic::Out | Mnemonic::Cli | Mnemonic::Sti)
}

/// What the fault is about: an interrupt, or the selector that cannot be loaded. `None` is nothing of that kind.
fn error_code(memory: &Extents, regs: &Regs, instruction: &Instruction) -> Option<u32> {
    if instruction.mnemonic() == Mnemonic::Int {
        return Some(u32::from(instruction.immediate8()) << 3 | IDT);
    }
    // An operand that cannot be read is no selector.
    if decode::bad_operand(memory, regs).is_some() {
        return None;
    }
    let word = |addr: u64| {
        let mut bytes = [0; 2];
        (memory.read(addr, &mut bytes) == 2).then(|| u16::from_le_bytes(bytes))
    };
    let about = |selector: u16| u32::from(selector & !3);
    if let Some(width) = far_return_width(instruction) {
        let stack = |slot: u64| word(regs.rsp.wrapping_add(slot * width));
        let code = stack(1)?;
        if !CODE_SELECTORS.contains(&code) {
            return Some(about(code));
        }
        // Only `iret` loads a stack segment as well.
        let is_iret = matches!(instruction.mnemonic(), Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq);
        let data = if is_iret { stack(4)? } else { DATA_SELECTOR };
        return (data != DATA_SELECTOR).then(|| about(data));
    }
    if instruction.is_jmp_far_indirect()
        || instruction.is_call_far_indirect()
        || loads_far_pointer(instruction)
    {
        let (addr, size) = decode::operand(instruction, regs)?;
        return word(addr.wrapping_add(size - 2)).map(about);
    }
    if instruction.op0_register().is_segment_register() {
        let source = instruction.op1_register();
        let selector = match (instruction.mnemonic(), source) {
            (Mnemonic::Pop, _) => word(regs.rsp),
            (_, Register::None) => word(decode::operand(instruction, regs)?.0),
            _ => decode::register_value(regs, source.full_register()).map(|value| value as u16),
        };
        return selector.map(about);
    }
    None
}

/// Bytes of each word that a far return takes from the stack.
fn far_return_width(instruction: &Instruction) -> Option<u64> {
    Some(match instruction.code() {
        Code::Retfw | Code::Retfw_imm16 | Code::Iretw => 2,
        Code::Retfd | Code::Retfd_imm16 | Code::Iretd => 4,
        Code::Retfq | Code::Retfq_imm16 | Code::Iretq => 8,
        _ => return None,
    })
}

fn loads_far_pointer(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Lfs | Mnemonic::Lgs | Mnemonic::Lss)
}
