//! From the faults of an x86-64 processor to traps, as far as it is the same for all platforms:
//! instructions that trap by a general protection fault ([`general_protection`]), and
//! what a single step leaves behind ([`hide_step`]).
//!
//! Neighbours: `decode` looks at the instruction; platforms call this where their host shows a fault.

use crate::extents::Extents;
use crate::{Exception, Regs, Trap, decode, umip};

/// The selectors of 64-bit code and of data and stack at user level.
pub const USER_CS: u64 = 0x33;
/// See [`USER_CS`].
pub const USER_SS: u64 = 0x2b;

/// The trap flag.
/// The trap flag.
pub const TF: u64 = 1 << 8;

/// -ENOSYS, what rax holds at the entry of a system call.
pub const NOT_YET: u64 = (-38i64) as u64;

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
    fn only_the_trap_flag_is_hidden() {
        let (memory, frame) = stack();
        frame.write_shared(8, &u64::MAX.to_le_bytes());
        hide_trap_flag(&memory, &Regs { rsp: STACK + 8, ..Regs::default() });
        assert_eq!((frame.load_u64(0), frame.load_u64(8), frame.load_u64(16)), (0, !0x100, 0));
        // Where nothing is mapped there is nothing to hide.
        hide_trap_flag(&memory, &Regs { rsp: u64::MAX, ..Regs::default() });
    }
}
