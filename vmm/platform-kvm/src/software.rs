//! What a software KVM reports otherwise than a processor does ([`as_a_processor`], [`is_syscall`]).
//!
//! Some virtual machines offer a KVM that has no hardware below it. It emulates instructions of ring 3 that trap, and not all
//! checks with them: it says #UD of instructions that it does not emulate, #PF or #SS where a processor first says #GP, and it
//! has ways of its own for `int n` and SYSCALL. Everything that exists for such a KVM alone is here: a trap frame is turned into
//! the one that a processor would have pushed, and `classify` knows processors only. A frame of a processor stays as it is.
//!
//! Neighbours: `classify`, `vm`. `vmm/platform-tests` compares the result with what Linux shows a program of its own.

use bloodhound_abi::exception::{page_fault as pf, vector};
use bloodhound_platform::decode::BadOperand;
use bloodhound_platform::extents::Extents;
use bloodhound_platform::{Regs, cause, decode, umip};

use crate::classify::{Circumstances, INT80, TF, canonical};
use crate::vm::TrapFrame;

const PAGE: u64 = 4096;
const INT1: u8 = 0xf1;
const RFLAGS_IF: u64 = 1 << 9;

/// Whether a trap is SYSCALL: a software KVM takes it to the monitor's address without leaving ring 3, where that page is the
/// supervisor's. A jump to that address is another matter: only SYSCALL clears the interrupt flag.
pub(crate) fn is_syscall(frame: &TrapFrame) -> bool {
    frame.vector == u64::from(vector::PF) && frame.rflags & RFLAGS_IF == 0 && frame.cr2 == frame.rip
}

/// The trap that a processor would have raised. `regs.rip` is corrected with it.
pub(crate) fn as_a_processor(
    frame: &TrapFrame,
    memory: &Extents,
    regs: &mut Regs,
    circumstances: Circumstances,
) -> TrapFrame {
    let is = |vector: u8| frame.vector == u64::from(vector);
    let fetch = is(vector::PF) && frame.error as u32 & pf::FETCH != 0;
    // The processor forbids these before it looks at their operand; a KVM that emulates them looks first.
    if circumstances.umip && (is(vector::SS) || is(vector::PF) && !fetch) && umip::forbids(memory, regs.rip) {
        return protection(frame, memory, regs);
    }
    match u8::try_from(frame.vector) {
        Ok(vector::UD) => invalid_opcode(frame, memory, regs),
        Ok(vector::DB) if !circumstances.stepped && frame.rflags & TF == 0 => int1(frame, memory, regs),
        Ok(vector::SS) if frame.error == 0 => bad_operand(frame, memory, regs).unwrap_or(*frame),
        // All our segments are present, and a processor looks at their type first.
        Ok(vector::NP | vector::SS) => protection(frame, memory, regs),
        Ok(vector::GP) => general_protection(frame, memory, regs, circumstances.software),
        Ok(vector::PF) => page_fault(frame, memory, regs, fetch),
        _ => *frame,
    }
}

fn raise(frame: &TrapFrame, vector: u8, error: u32) -> TrapFrame {
    TrapFrame { vector: u64::from(vector), error: u64::from(error), ..*frame }
}

/// A general protection fault, with the error code that a processor would give.
fn protection(frame: &TrapFrame, memory: &Extents, regs: &Regs) -> TrapFrame {
    raise(frame, vector::GP, cause::error_code_at(memory, regs))
}

/// An operand that is not aligned or whose address is not canonical: a processor says so before it says anything else.
fn bad_operand(frame: &TrapFrame, memory: &Extents, regs: &Regs) -> Option<TrapFrame> {
    Some(match decode::bad_operand(memory, regs)? {
        BadOperand::Protection => protection(frame, memory, regs),
        BadOperand::Stack => raise(frame, vector::SS, 0),
    })
}

/// #UD of valid instructions that are not emulated.
fn invalid_opcode(frame: &TrapFrame, memory: &Extents, regs: &mut Regs) -> TrapFrame {
    let mut code = [0; 2];
    memory.read(regs.rip, &mut code);
    let (vector, len) = match code {
        [0xcd, 0x80] => (INT80, 2),
        [0xcc, _] => (vector::BP, 1),
        _ if decode::patched(memory, regs.rip).is_some() => return *frame,
        _ if decode::at(memory, regs.rip).is_some_and(|i| decode::faults_by_operand(&i)) => {
            return protection(frame, memory, regs);
        }
        _ => return bad_operand(frame, memory, regs).unwrap_or(*frame),
    };
    // Both are traps: rip is behind the instruction.
    regs.rip = regs.rip.wrapping_add(len);
    raise(frame, vector, 0)
}

/// `int1` is a trap as well; a software KVM raises it as a fault.
fn int1(frame: &TrapFrame, memory: &Extents, regs: &mut Regs) -> TrapFrame {
    let byte = |at: u64| {
        let mut byte = [0];
        (memory.read(at, &mut byte) == 1).then_some(byte[0])
    };
    if byte(regs.rip) == Some(INT1) && byte(regs.rip.wrapping_sub(1)) != Some(INT1) {
        regs.rip = regs.rip.wrapping_add(1);
    }
    *frame
}

fn general_protection(frame: &TrapFrame, memory: &Extents, regs: &mut Regs, software: bool) -> TrapFrame {
    // `monitor` and `mwait`, which our processor does not have, are found privileged.
    let mut code = [0; 3];
    memory.read(regs.rip, &mut code);
    if matches!(code, [0x0f, 0x01, 0xc8 | 0xc9]) {
        return raise(frame, vector::UD, 0);
    }
    if !software || umip::forbids(memory, regs.rip) || decode::trapped(memory, regs.rip).is_some() {
        return *frame;
    }
    // Of two vectors it is raised behind the `int n`, and without the vector in the error code.
    let mut before = [0; 2];
    let at = regs.rip.wrapping_sub(2);
    if frame.error == 0 && memory.read(at, &mut before) == 2 && matches!(before, [0xcd, 23 | 25]) {
        regs.rip = at;
    }
    protection(frame, memory, regs)
}

fn page_fault(frame: &TrapFrame, memory: &Extents, regs: &Regs, fetch: bool) -> TrapFrame {
    let error = frame.error as u32;
    // The processor's own access, as of descriptors, which no page table of ours forbids. QEMU's TCG reads the stack of a far
    // return in this way, and SMAP forbids that.
    if error & (pf::USER | pf::PRESENT) == pf::PRESENT
        && memory.get(frame.cr2 & !(PAGE - 1)).is_some_and(|(_, prot)| prot.read)
    {
        return protection(frame, memory, regs);
    }
    // The fault of an address that is not canonical is #GP, or #SS on the stack.
    if !canonical(frame.cr2) {
        return bad_operand(frame, memory, regs).unwrap_or_else(|| protection(frame, memory, regs));
    }
    // So it is where an operand begins below the gap between the halves of the address space and ends in it.
    let gap = 1 << 47;
    if !fetch
        && (gap - 63..gap).contains(&frame.cr2)
        && let Some(frame) = bad_operand(frame, memory, regs)
    {
        return frame;
    }
    // The same goes for operands that have to be aligned.
    if !fetch && !frame.cr2.is_multiple_of(16) && decode::misaligned(memory, regs, frame.cr2) {
        return protection(frame, memory, regs);
    }
    *frame
}
