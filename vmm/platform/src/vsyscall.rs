//! The vsyscall page: a page at a fixed address whose three entries make system calls, from before the vDSO ([`vsyscall`]).
//! Linux emulates the calls; so does every platform whose host does not do it itself.

use crate::extents::Extents;
use crate::x86::NOT_YET;
use crate::{Access, Regs, Trap};

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
}
