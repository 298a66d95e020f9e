//! From the faults of an x86-64 processor to traps, as far as it is the same for all platforms: the
//! vsyscall page ([`vsyscall`]), instructions that trap by a general protection fault ([`general_protection`]), and
//! what a single step leaves behind ([`hide_step`]).
//!
//! Neighbours: `decode` looks at the instruction; platforms call this where their host shows a fault.

use crate::extents::Extents;
use crate::{Access, Exception, Regs, Trap, decode, umip};

/// The selectors of 64-bit code and of data and stack at user level.
pub const USER_CS: u64 = 0x33;
/// See [`USER_CS`].
pub const USER_SS: u64 = 0x2b;

/// The trap flag.
const TF: u64 = 1 << 8;

/// -ENOSYS, what rax holds at the entry of a system call.
pub const NOT_YET: u64 = (-38i64) as u64;

/// The vsyscall page, its three entries 0x400 apart, and the calls that they make: gettimeofday, time, getcpu.
pub const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
const VSYSCALLS: [u64; 3] = [96, 201, 309];

/// Whether an address lies in the vsyscall page.
#[must_use]
pub fn in_vsyscall_page(addr: u64) -> bool {
    addr & !0xfff == VSYSCALL
}

/// The call that an address in the vsyscall page makes.
#[must_use]
pub fn vsyscall_at(addr: u64) -> Option<u64> {
    let entry = addr.checked_sub(VSYSCALL)?;
    (entry.is_multiple_of(0x400)).then(|| VSYSCALLS.get((entry / 0x400) as usize).copied()).flatten()
}

/// A fetch at rip faulted, or the host could not do a call by the vsyscall page: if rip is one of its entries, makes
/// the call as Linux does and goes back to the caller. If the caller's stack is not there, that is the fault. `None`, and
/// nothing changed, if rip is somewhere else.
pub fn vsyscall(memory: &Extents, regs: &mut Regs) -> Option<Trap> {
    let nr = vsyscall_at(regs.rip)?;
    let mut back = [0; 8];
    let read = memory.read(regs.rsp, &mut back);
    if read < back.len() {
        let addr = regs.rsp.wrapping_add(read as u64);
        return Some(Trap::PageFault { addr, access: Some(Access::Read), rip: regs.rip });
    }
    regs.rip = u64::from_le_bytes(back);
    regs.rsp = regs.rsp.wrapping_add(8);
    regs.orig_rax = nr;
    regs.rax = NOT_YET;
    Some(Trap::Syscall)
}

/// The trap of a general protection fault at rip: `rdtsc`, `rdtscp`, `cpuid`, or the exception itself. Prefixes before the
/// first three are skipped, so that the answers in [`Regs`] fit.
pub fn general_protection(memory: &Extents, regs: &mut Regs, exception: Exception) -> Trap {
    match decode::trapped(memory, regs.rip) {
        Some((trap, prefixes)) => {
            regs.rip = regs.rip.wrapping_add(prefixes as u64);
            trap
        }
        None => Trap::Exception(exception),
    }
}

/// Takes the trap flag of a step from `before` out of what the application can see of it.
pub fn hide_step(memory: &Extents, before: &Regs, regs: &mut Regs, trap: Trap) {
    if before.rflags & TF != 0 {
        return;
    }
    let rip = umip::stepped(memory, before.rip, regs.rip);
    // Those that load the flags have loaded the trap flag as well.
    if trap != Trap::Step || !decode::loads_flags(memory, rip) {
        regs.rflags &= !TF;
    }
    match trap {
        Trap::Syscall => regs.r11 &= !TF,
        Trap::Step if decode::is_pushf(memory, rip) => hide_trap_flag(memory, regs),
        _ => {}
    }
}

/// `pushf` under a step pushes the trap flag that the platform set: takes it out of the application's memory.
fn hide_trap_flag(memory: &Extents, regs: &Regs) {
    // Bit 8 is the lowest bit of the word's second byte, for the 16-bit form as well.
    let at = regs.rsp.wrapping_add(1);
    let mut byte = [0];
    if memory.read(at, &mut byte) == 1
        && let Some((offset, _)) = memory.get(at)
        && bloodhound_frames::write_at(offset, &[byte[0] & !1]).is_none()
    {
        debug_assert!(false, "a mapping outside of the arena");
    }
}

#[cfg(test)]
mod tests {
    use bloodhound_frames::Frame;

    use super::*;
    use crate::{Mapping, Prot};

    const STACK: u64 = 0x7000;

    fn stack() -> (Extents, Frame) {
        let frame = Frame::zeroed();
        let mut memory = Extents::default();
        let mapping = Mapping { addr: STACK, frame_offset: frame.offset(), pages: 1, prot: Prot::RW };
        memory.insert(&mapping);
        (memory, frame)
    }

    #[test]
    fn vsyscalls_return_to_their_caller() {
        let (memory, frame) = stack();
        frame.write_shared(0x10, &0x40_1234u64.to_le_bytes());
        let at = |rip, rsp| {
            let mut regs = Regs { rip, rsp, ..Regs::default() };
            (vsyscall(&memory, &mut regs), regs)
        };
        let (trap, regs) = at(VSYSCALL + 0x400, STACK + 0x10);
        assert_eq!(trap, Some(Trap::Syscall));
        let called = (regs.rip, regs.rsp, regs.orig_rax, regs.rax as i64);
        assert_eq!(called, (0x40_1234, STACK + 0x18, 201, -38));
        for (rip, rsp) in [(VSYSCALL + 0x401, STACK), (VSYSCALL + 0xc00, STACK), (VSYSCALL - 0x400, STACK)] {
            let (trap, regs) = at(rip, rsp);
            assert_eq!((trap, regs), (None, Regs { rip, rsp, ..Regs::default() }));
        }
        for (rsp, addr) in [(STACK + 0xff9, STACK + 0x1000), (0, 0), (u64::MAX - 2, u64::MAX - 2)] {
            let (trap, regs) = at(VSYSCALL, rsp);
            assert_eq!(trap, Some(Trap::PageFault { addr, access: Some(Access::Read), rip: VSYSCALL }));
            assert_eq!(regs, Regs { rip: VSYSCALL, rsp, ..Regs::default() });
        }
    }

    #[test]
    fn only_the_trap_flag_is_hidden() {
        let (memory, frame) = stack();
        frame.write_shared(8, &u64::MAX.to_le_bytes());
        hide_trap_flag(&memory, &Regs { rsp: STACK + 8, ..Regs::default() });
        assert_eq!((frame.load_u64(0), frame.load_u64(8), frame.load_u64(16)), (0, !0x100, 0));
        // Where nothing is mapped there is nothing to hide.
        hide_trap_flag(&memory, &Regs { rsp: u64::MAX, ..Regs::default() });
    }
}
