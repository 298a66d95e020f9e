//! From what the processor pushed to a [`Trap`] ([`classify`]), by Linux's rules (arch/x86/kernel/traps.c).
//!
//! Neighbours: `software` corrects what a software KVM reports otherwise than a processor, before anything here looks at it;
//! `umip` and `vsyscall` of `bloodhound-platform` carry out what Linux does for an application.

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
    /// None: an instruction was done for the application, as Linux does it. The application goes on.
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
    let frame = &software::as_a_processor(frame, memory, regs, circumstances);
    let error_code = frame.error as u32;
    let exception = |vector, address| Trap::Exception(Exception { vector, error_code, address });
    let trap = match frame.vector as u8 {
        of @ (vector::DE | vector::MF | vector::XM) => exception(of, regs.rip),
        // `popf` may have cleared the flag: the processor looks at it when an instruction begins.
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
        // Reserved bits are a bug of ours where our page tables map something, which is below the gap.
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

/// A system call: `regs` become what Linux's `pt_regs` hold at its entry.
pub(crate) fn syscall(regs: &mut Regs) -> Trap {
    regs.rip = regs.rcx;
    regs.rflags = regs.r11;
    regs.orig_rax = regs.rax;
    regs.rax = NOT_YET;
    Trap::Syscall
}

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
