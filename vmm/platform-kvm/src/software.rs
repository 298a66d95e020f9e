//! Corrects traps that a software KVM reports differently from a processor ([`as_a_processor`], [`is_syscall`]).
//!
//! Some virtual machines offer a KVM that has no hardware below it, a software KVM. It emulates those instructions of application
//! code that trap, but not all checks that a processor makes for them. It raises #UD for valid instructions that it does not
//! emulate, #PF or #SS where a processor would raise #GP first, and reports `int n` and SYSCALL in ways of its own. This file has
//! all corrections that are made only for such a KVM: it turns a trap frame into the one that a processor would have pushed, so
//! that `classify` has to know the rules of processors only. A frame that a processor has pushed is not changed.
//!
//! Neighbours: `classify` and `vm` use this. `vmm/platform-tests` compares the result with what an ordinary program is shown by
//! Linux.

use bloodhound_abi::exception::{page_fault as pf, vector};
use bloodhound_platform::decode::BadOperand;
use bloodhound_platform::extents::Extents;
use bloodhound_platform::{Regs, cause, decode, umip};

use crate::classify::{Circumstances, INT80, TF, canonical};
use crate::vm::TrapFrame;

const PAGE: u64 = 4096;
const INT1: u8 = 0xf1;
const RFLAGS_IF: u64 = 1 << 9;

/// Whether a trap is a SYSCALL. A software KVM goes to the monitor's entry for SYSCALL but stays in ring 3, where the monitor's
/// pages may not be accessed, so a page fault follows at that address. An application that jumps there raises the same fault, but
/// with the interrupt flag set: only SYSCALL clears it.
pub(crate) fn is_syscall(frame: &TrapFrame) -> bool {
    frame.vector == u64::from(vector::PF) && frame.rflags & RFLAGS_IF == 0 && frame.cr2 == frame.rip
}

/// The trap frame that a processor would have pushed. `regs.rip` is corrected as well.
pub(crate) fn as_a_processor(
    frame: &TrapFrame,
    memory: &Extents,
    regs: &mut Regs,
    circumstances: Circumstances,
) -> TrapFrame {
    let is = |vector: u8| frame.vector == u64::from(vector);
    let fetch = is(vector::PF) && frame.error as u32 & pf::FETCH != 0;
    // Instructions that UMIP forbids: a processor raises #GP before it accesses their operand, whereas a KVM that emulates them
    // accesses the operand first and raises the fault of that access.
    if circumstances.umip && (is(vector::SS) || is(vector::PF) && !fetch) && umip::forbids(memory, regs.rip) {
        return protection(frame, memory, regs);
    }
    match u8::try_from(frame.vector) {
        Ok(vector::UD) => invalid_opcode(frame, memory, regs),
        Ok(vector::DB) if !circumstances.stepped && frame.rflags & TF == 0 => int1(frame, memory, regs),
        Ok(vector::SS) if frame.error == 0 => bad_operand(frame, memory, regs).unwrap_or(*frame),
        // Raised for the selector of a segment. All our segments are present, and a processor checks their type first, which
        // raises #GP.
        Ok(vector::NP | vector::SS) => protection(frame, memory, regs),
        Ok(vector::GP) => general_protection(frame, memory, regs, circumstances.software),
        Ok(vector::PF) => page_fault(frame, memory, regs, fetch),
        _ => *frame,
    }
}

/// The frame of another exception at the same place.
fn raise(frame: &TrapFrame, vector: u8, error: u32) -> TrapFrame {
    TrapFrame { vector: u64::from(vector), error: u64::from(error), ..*frame }
}

/// A general protection fault, with the error code that a processor would give.
fn protection(frame: &TrapFrame, memory: &Extents, regs: &Regs) -> TrapFrame {
    raise(frame, vector::GP, cause::error_code_at(memory, regs))
}

/// If the instruction has an operand that is misaligned or whose address is not canonical: the frame of the fault for that,
/// which a processor raises before any other.
fn bad_operand(frame: &TrapFrame, memory: &Extents, regs: &Regs) -> Option<TrapFrame> {
    Some(match decode::bad_operand(memory, regs)? {
        BadOperand::Protection => protection(frame, memory, regs),
        BadOperand::Stack => raise(frame, vector::SS, 0),
    })
}

/// Corrects a #UD that was raised for a valid instruction because the software KVM does not emulate it.
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
    // Exceptions of both instructions are traps and not faults: rip is behind the instruction.
    regs.rip = regs.rip.wrapping_add(len);
    raise(frame, vector, 0)
}

/// The exception of `int1` is a trap too (rip is behind the instruction). A software KVM raises it as a fault (rip is at it).
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

/// Corrects a #GP: its vector, its error code, or rip.
fn general_protection(frame: &TrapFrame, memory: &Extents, regs: &mut Regs, software: bool) -> TrapFrame {
    // `monitor` and `mwait` are invalid opcodes on the processor that we present, but are reported as privileged (#GP).
    let mut code = [0; 3];
    memory.read(regs.rip, &mut code);
    if matches!(code, [0x0f, 0x01, 0xc8 | 0xc9]) {
        return raise(frame, vector::UD, 0);
    }
    if !software || umip::forbids(memory, regs.rip) || decode::trapped(memory, regs.rip).is_some() {
        return *frame;
    }
    // The #GP of a forbidden `int 23` or `int 25` is raised behind the instruction and with error code 0. A processor raises it
    // at the instruction, with the vector in the error code.
    let mut before = [0; 2];
    let at = regs.rip.wrapping_sub(2);
    if frame.error == 0 && memory.read(at, &mut before) == 2 && matches!(before, [0xcd, 23 | 25]) {
        regs.rip = at;
    }
    protection(frame, memory, regs)
}

/// Corrects a #PF that a processor would have raised as #GP or #SS.
fn page_fault(frame: &TrapFrame, memory: &Extents, regs: &Regs, fetch: bool) -> TrapFrame {
    let error = frame.error as u32;
    // An access that the processor itself makes with supervisor rights (as it reads descriptors), to a page that is mapped and
    // readable. Our page tables forbid no such access. QEMU's TCG, though, reads the stack of a far return with supervisor
    // rights, which SMAP forbids.
    if error & (pf::USER | pf::PRESENT) == pf::PRESENT
        && memory.get(frame.cr2 & !(PAGE - 1)).is_some_and(|(_, prot)| prot.read)
    {
        return protection(frame, memory, regs);
    }
    // For an address that is not canonical a processor raises #GP, or #SS if it is on the stack.
    if !canonical(frame.cr2) {
        return bad_operand(frame, memory, regs).unwrap_or_else(|| protection(frame, memory, regs));
    }
    // The same holds for an operand that begins at a canonical address and ends in the gap of addresses that are not canonical.
    let gap = 1 << 47;
    if !fetch
        && (gap - 63..gap).contains(&frame.cr2)
        && let Some(frame) = bad_operand(frame, memory, regs)
    {
        return frame;
    }
    // For an operand that has to be aligned and is not, a processor raises #GP before any page fault.
    if !fetch && !frame.cr2.is_multiple_of(16) && decode::misaligned(memory, regs, frame.cr2) {
        return protection(frame, memory, regs);
    }
    *frame
}
