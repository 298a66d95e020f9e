//! From what the processor pushed to a [`Trap`] ([`classify`]), by Linux's rules (arch/x86/kernel/traps.c).

use bloodhound_abi::exception::{page_fault as pf, vector};
use bloodhound_platform::decode::BadOperand;
use bloodhound_platform::extents::Extents;
use bloodhound_platform::umip::{self, Emulated};
use bloodhound_platform::x86::{self, NOT_YET, USER_CS};
use bloodhound_platform::{
    Access, Exception, GUEST_TOP, PlatformError, Regs, Trap, Unsupported, cause, decode,
};

use crate::vm::TrapFrame;

/// `int $0x80`, whose gate is open to applications as in Linux.
const INT80: u64 = 0x80;
const TF: u64 = 1 << 8;
const PAGE: u64 = 4096;
const INT1: u8 = 0xf1;

/// A general protection fault that the processor reports as something else, or not at all: its error code is that which a
/// processor would give.
fn protection(memory: &Extents, regs: &Regs) -> Trap {
    Trap::Exception(Exception::general_protection(cause::error_code_at(memory, regs)))
}

const STACK_SEGMENT: Trap = Trap::Exception(Exception::at(vector::SS, 0));

/// Whether the upper bits of an address repeat bit 47.
pub(crate) fn canonical(addr: u64) -> bool {
    let upper = addr >> 47;
    upper == 0 || upper == 0x1_ffff
}

/// What a trap frame means.
pub(crate) enum Meaning {
    /// A trap of the application.
    Trap(Trap),
    /// None: an instruction was done for the application, as Linux does it. It goes on.
    Done,
}

/// What else there is to know of a trap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// The trap flag was set at the start.
    pub stepped: bool,
    /// The processor has UMIP.
    pub umip: bool,
    /// The KVM is a software one.
    pub software: bool,
}

/// The meaning of a trap. `regs` are the application's at the trap; they are corrected where the convention of
/// [`bloodhound_platform::Platform::run`] wants it.
pub(crate) fn classify(
    frame: &TrapFrame,
    memory: &Extents,
    regs: &mut Regs,
    circumstances: Circumstances,
) -> Result<Meaning, PlatformError> {
    if frame.cs != USER_CS {
        return Ok(Meaning::Trap(Trap::Unsupported(Unsupported::Compat)));
    }
    let Circumstances { stepped, umip: has_umip, software } = circumstances;
    let exception = |address| {
        let (vector, error_code) = (frame.vector as u8, frame.error as u32);
        Ok(Meaning::Trap(Trap::Exception(Exception { vector, error_code, address })))
    };
    if frame.vector == INT80 {
        return Ok(Meaning::Trap(Trap::Unsupported(Unsupported::Int80)));
    }
    match frame.vector as u8 {
        // The processor forbids them before it looks at their operand; a KVM that emulates them looks first.
        vector::SS | vector::PF
            if has_umip && frame.error as u32 & pf::FETCH == 0 && umip::forbids(memory, regs.rip) =>
        {
            Ok(general_protection(frame, memory, regs, software))
        }
        vector::DE | vector::MF | vector::XM => exception(regs.rip),
        vector::DB => Ok(Meaning::Trap(debug(frame, memory, regs, stepped))),
        vector::BP => exception(0),
        vector::OF | vector::BR | vector::TS | vector::AC => exception(0),
        vector::UD => Ok(Meaning::Trap(invalid_opcode(memory, regs))),
        vector::SS if frame.error == 0 => {
            Ok(Meaning::Trap(bad_operand(memory, regs).unwrap_or(STACK_SEGMENT)))
        }
        // All our segments are present, and a processor looks at their type first; a software KVM does not.
        vector::NP | vector::SS => Ok(Meaning::Trap(protection(memory, regs))),
        vector::GP => Ok(general_protection(frame, memory, regs, software)),
        // The processor's own access, as of descriptors, which no page table of ours forbids. QEMU's TCG reads the stack of a
        // far return so, and SMAP forbids that.
        vector::PF
            if frame.error as u32 & (pf::USER | pf::PRESENT) == pf::PRESENT
                && memory.get(frame.cr2 & !(PAGE - 1)).is_some_and(|(_, prot)| prot.read) =>
        {
            Ok(Meaning::Trap(protection(memory, regs)))
        }
        // Reserved bits are a bug of ours where our page tables map something, which is below the gap.
        vector::PF if frame.error as u32 & pf::RESERVED == 0 || frame.cr2 >= GUEST_TOP => {
            Ok(Meaning::Trap(page_fault(frame, memory, regs)))
        }
        other => {
            let at = if other == vector::PF { format!(", address {:#x}", frame.cr2) } else { String::new() };
            let what = format!("exception {other} (error code {:#x}{at}) in application code", frame.error);
            Err(PlatformError::Vm { what, rip: frame.rip, code: Vec::new() })
        }
    }
}

/// A system call: `regs` become what Linux's `pt_regs` hold at its entry.
pub(crate) fn syscall(regs: &mut Regs) -> Trap {
    regs.rip = regs.rcx;
    regs.rflags = regs.r11;
    regs.orig_rax = regs.rax;
    regs.rax = NOT_YET;
    Trap::Syscall
}

fn debug(frame: &TrapFrame, memory: &Extents, regs: &mut Regs, stepped: bool) -> Trap {
    // `popf` may have cleared the flag: the processor looks at it when an instruction begins.
    if stepped || frame.rflags & TF != 0 {
        return Trap::Step;
    }
    // int1 is a trap: rip is behind it. A software KVM raises it as a fault.
    let byte = |at: u64| {
        let mut byte = [0];
        (memory.read(at, &mut byte) == 1).then_some(byte[0])
    };
    if byte(regs.rip) == Some(INT1) && byte(regs.rip.wrapping_sub(1)) != Some(INT1) {
        regs.rip = regs.rip.wrapping_add(1);
    }
    Trap::Exception(Exception::at(vector::DB, regs.rip))
}

/// SIGILL, where the processor says it. A software KVM says it as well of valid instructions that it does not emulate.
fn invalid_opcode(memory: &Extents, regs: &mut Regs) -> Trap {
    let mut code = [0; 2];
    memory.read(regs.rip, &mut code);
    match code {
        [0xcd, 0x80] => {
            regs.rip = regs.rip.wrapping_add(2);
            return Trap::Unsupported(Unsupported::Int80);
        }
        [0xcc, _] => {
            regs.rip = regs.rip.wrapping_add(1);
            return Trap::Exception(Exception::BREAKPOINT);
        }
        _ => {}
    }
    if let Some(trap) = decode::patched(memory, regs.rip) {
        return trap;
    }
    if decode::at(memory, regs.rip).is_some_and(|instruction| decode::faults_by_operand(&instruction)) {
        return protection(memory, regs);
    }
    if let Some(trap) = bad_operand(memory, regs) {
        return trap;
    }
    Trap::Exception(Exception::at(vector::UD, regs.rip))
}

/// An operand that is not aligned or whose address is not canonical: a processor says so before it says anything else.
fn bad_operand(memory: &Extents, regs: &Regs) -> Option<Trap> {
    Some(match decode::bad_operand(memory, regs)? {
        BadOperand::Protection => protection(memory, regs),
        BadOperand::Stack => STACK_SEGMENT,
    })
}

/// SIGSEGV, or one of the instructions that trap this way.
fn general_protection(frame: &TrapFrame, memory: &Extents, regs: &mut Regs, software: bool) -> Meaning {
    // Not in our processor; a software KVM finds them privileged.
    let mut code = [0; 3];
    memory.read(regs.rip, &mut code);
    if matches!(code, [0x0f, 0x01, 0xc8 | 0xc9]) {
        return Meaning::Trap(Trap::Exception(Exception::at(vector::UD, regs.rip)));
    }
    match umip::emulate(memory, regs) {
        Some(Emulated::Done) => return Meaning::Done,
        Some(Emulated::Fault(fault)) => return Meaning::Trap(fault),
        None => {}
    }
    let mut error_code = frame.error as u32;
    if software {
        // Of two vectors a software KVM says it behind the `int n`, and without the vector in the error code.
        let mut before = [0; 2];
        let at = regs.rip.wrapping_sub(2);
        if decode::trapped(memory, regs.rip).is_none()
            && error_code == 0
            && memory.read(at, &mut before) == 2
            && matches!(before, [0xcd, 23 | 25])
        {
            regs.rip = at;
        }
        error_code = cause::error_code_at(memory, regs);
    }
    let exception = Exception::general_protection(error_code);
    Meaning::Trap(x86::general_protection(memory, regs, exception))
}

fn page_fault(frame: &TrapFrame, memory: &Extents, regs: &mut Regs) -> Trap {
    if !canonical(frame.cr2) {
        // A processor says #GP, or #SS for the stack; a software KVM that emulates the instruction does not.
        return bad_operand(memory, regs).unwrap_or_else(|| protection(memory, regs));
    }
    // So it does where an operand begins below the gap and ends in it.
    if frame.cr2 > (1 << 47) - 64
        && frame.cr2 < 1 << 47
        && frame.error as u32 & pf::FETCH == 0
        && let Some(trap) = bad_operand(memory, regs)
    {
        return trap;
    }
    // The same goes for operands that have to be aligned.
    if !frame.cr2.is_multiple_of(16)
        && frame.error as u32 & pf::FETCH == 0
        && decode::misaligned(memory, regs, frame.cr2)
    {
        return protection(memory, regs);
    }
    let access = if frame.error as u32 & pf::FETCH != 0 {
        Access::Exec
    } else if frame.error as u32 & pf::WRITE != 0 {
        Access::Write
    } else {
        Access::Read
    };
    if access == Access::Exec
        && frame.cr2 == regs.rip
        && let Some(call) = x86::vsyscall(memory, regs)
    {
        return call;
    }
    Trap::PageFault { addr: frame.cr2, access: Some(access), rip: regs.rip }
}
