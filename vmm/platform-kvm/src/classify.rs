//! Turns what the processor pushed at an exception (the trap frame) into a [`Trap`] ([`classify`]), by the rules by which Linux
//! turns exceptions into signals (arch/x86/kernel/traps.c).
//!
//! Neighbours: [`classify`] first lets `software` turn a frame that a software KVM has made into the one that a processor would
//! have made; `umip` and `vsyscall` of `bloodhound-platform` do what Linux does for an application at some exceptions.

use bloodhound_abi::exception::{page_fault as pf, vector};
use bloodhound_platform::extents::Extents;
use bloodhound_platform::umip::{self, Emulated};
use bloodhound_platform::x86::{self, NOT_YET, USER_CS};
use bloodhound_platform::{
    Access, Exception, GUEST_TOP, PlatformError, Regs, Trap, Unsupported, decode, vsyscall,
};

use crate::software;
use crate::vm::TrapFrame;

/// `int $0x80`, whose gate is open to applications as in Linux.
pub(crate) const INT80: u8 = 0x80;
/// The trap flag.
pub(crate) const TF: u64 = 1 << 8;

/// Whether the upper bits of an address repeat bit 47.
pub(crate) fn canonical(addr: u64) -> bool {
    let upper = addr >> 47;
    upper == 0 || upper == 0x1_ffff
}

/// What a trap frame means.
pub(crate) enum Meaning {
    /// A trap of the application.
    Trap(Trap),
    /// No trap: the VMM has executed the instruction for the application, as Linux does with this one. The application runs on.
    Done,
}

/// What [`classify`] has to know besides the trap frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// The trap flag was set when the application was entered: by itself, or for a step.
    pub stepped: bool,
    /// UMIP is on ([`crate::vm::Vm::umip`]).
    pub umip: bool,
    /// The KVM is taken for a software KVM (one without hardware below it), since `rdtsc` does not trap.
    pub software: bool,
}

/// The meaning of a trap. `regs` are the application's registers at the trap. They are changed to what
/// [`bloodhound_platform::Platform::run`] promises its caller for this trap, for example which instruction rip points to.
pub(crate) fn classify(
    frame: &TrapFrame,
    memory: &Extents,
    regs: &mut Regs,
    circumstances: Circumstances,
) -> Result<Meaning, PlatformError> {
    if frame.cs != USER_CS {
        return Ok(Meaning::Trap(Trap::Unsupported(Unsupported::Compat)));
    }
    let frame = &software::as_a_processor(frame, memory, regs, circumstances);
    let error_code = frame.error as u32;
    let exception = |vector, address| Trap::Exception(Exception { vector, error_code, address });
    let trap = match frame.vector as u8 {
        of @ (vector::DE | vector::MF | vector::XM) => exception(of, regs.rip),
        // `stepped` counts as well as the flag in the frame: the processor tests the flag when an instruction begins, so a
        // `popf` that clears it is still followed by this exception.
        vector::DB if circumstances.stepped || frame.rflags & TF != 0 => Trap::Step,
        vector::DB => exception(vector::DB, regs.rip),
        vector::UD => decode::patched(memory, regs.rip).unwrap_or_else(|| exception(vector::UD, regs.rip)),
        vector::GP => match umip::emulate(memory, regs) {
            Some(Emulated::Done) => return Ok(Meaning::Done),
            Some(Emulated::Fault(fault)) => fault,
            None => {
                let fault = Exception::general_protection(error_code);
                x86::general_protection(memory, regs, fault)
            }
        },
        of @ (vector::BP | vector::OF | vector::BR | vector::TS | vector::SS | vector::AC) => {
            exception(of, 0)
        }
        // An error code with the bit for reserved bits means that a page-table entry is invalid. Our page tables map application
        // memory only below `GUEST_TOP`; for an address there that is a bug of ours, which becomes an error below.
        vector::PF if error_code & pf::RESERVED == 0 || frame.cr2 >= GUEST_TOP => {
            page_fault(frame, memory, regs)
        }
        INT80 => Trap::Unsupported(Unsupported::Int80),
        other => {
            let at = if other == vector::PF { format!(", address {:#x}", frame.cr2) } else { String::new() };
            let what = format!("exception {other} (error code {error_code:#x}{at}) in application code");
            return Err(PlatformError::Vm { what, rip: frame.rip, code: Vec::new() });
        }
    };
    Ok(Meaning::Trap(trap))
}

/// A system call. `regs` become what Linux's `pt_regs` holds when a system call begins.
pub(crate) fn syscall(regs: &mut Regs) -> Trap {
    regs.rip = regs.rcx;
    regs.rflags = regs.r11;
    regs.orig_rax = regs.rax;
    regs.rax = NOT_YET;
    Trap::Syscall
}

/// A page fault, or the call of a vsyscall function, which is an instruction fetch from an address where nothing is mapped.
fn page_fault(frame: &TrapFrame, memory: &Extents, regs: &mut Regs) -> Trap {
    let error_code = frame.error as u32;
    let access = if error_code & pf::FETCH != 0 {
        Access::Exec
    } else if error_code & pf::WRITE != 0 {
        Access::Write
    } else {
        Access::Read
    };
    if access == Access::Exec
        && frame.cr2 == regs.rip
        && let Some(call) = vsyscall::vsyscall(memory, regs)
    {
        return call;
    }
    Trap::PageFault { addr: frame.cr2, access: Some(access), rip: regs.rip }
}
