//! The general registers of a task ([`Regs`]), as the kernel and every platform see them, with the answers to instructions
//! that trap.

/// The bits of rflags that an application owns: CF PF AF ZF SF TF DF OF NT AC ID.
pub const USER_RFLAGS: u64 = 0x0024_4dd5;
/// Bits that always read as one at user level: the reserved bit 1 and IF.
const FIXED_RFLAGS: u64 = 0x202;

/// General registers of a task, as Linux's `user_regs_struct` without the segment selectors: while a task runs these are those
/// of 64-bit Linux (cs 0x33, ss 0x2b, others 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the architecture's names
pub struct Regs {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
    /// Base of fs: the thread pointer. Must be canonical. The kernel only gives addresses of the user half; `wrfsbase`
    /// makes others, on a platform that cannot keep it from programs.
    pub fs_base: u64,
    /// Base of gs. As `fs_base`.
    pub gs_base: u64,
    /// Number of the system call that the task is in, or -1.
    pub orig_rax: u64,
}

impl Default for Regs {
    /// A task's registers after `execve`, except rip and rsp: all zero, interrupts on.
    fn default() -> Regs {
        Regs {
            rax: 0,
            rbx: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            rbp: 0,
            rsp: 0,
            r8: 0,
            r9: 0,
            r10: 0,
            r11: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rip: 0,
            rflags: FIXED_RFLAGS,
            fs_base: 0,
            gs_base: 0,
            orig_rax: u64::MAX,
        }
    }
}

impl Regs {
    /// Registers of a program that begins at `rip` with the stack pointer `rsp`.
    #[must_use]
    pub fn user(rip: u64, rsp: u64) -> Regs {
        Regs { rip, rsp, ..Regs::default() }
    }

    /// The six arguments of a system call, in order (syscall(2), table "x86-64").
    #[must_use]
    pub fn syscall_args(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Forces the bits of rflags that no application may choose. RF is dropped: it only says whether the
    /// instruction is being restarted, which depends on the host's faults.
    pub fn canonical_rflags(&mut self) {
        self.rflags = self.rflags & USER_RFLAGS | FIXED_RFLAGS;
    }

    /// Puts a system call back before its instruction, to be made again (as for ERESTARTSYS).
    pub fn restart_syscall(&mut self) {
        self.rax = self.orig_rax;
        self.rip = self.rip.wrapping_sub(2);
        self.orig_rax = u64::MAX;
    }

    /// Answers `rdtsc` (two bytes), or `rdtscp` (three bytes) with `aux` for ecx.
    ///
    /// "Reads the current value of the processor's time-stamp counter into the EDX:EAX registers" and clears
    /// the high halves of rax, rdx (and rcx) (Intel SDM, RDTSC).
    pub fn set_rdtsc(&mut self, value: u64, aux: Option<u32>) {
        self.rax = value & 0xffff_ffff;
        self.rdx = value >> 32;
        self.rip = self.rip.wrapping_add(2);
        if let Some(aux) = aux {
            self.rcx = u64::from(aux);
            self.rip = self.rip.wrapping_add(1);
        }
    }

    /// Answers `cpuid` (two bytes) with eax, ebx, ecx and edx.
    pub fn set_cpuid(&mut self, [eax, ebx, ecx, edx]: [u32; 4]) {
        self.rax = u64::from(eax);
        self.rbx = u64::from(ebx);
        self.rcx = u64::from(ecx);
        self.rdx = u64::from(edx);
        self.rip = self.rip.wrapping_add(2);
    }

    /// Answers `xgetbv` (three bytes): x87, SSE and AVX are enabled in XCR0. False, and nothing changed, if another register
    /// is asked for: "#GP(0) If an invalid XCR is specified in ECX"; our processor does not have XCR1.
    #[must_use]
    pub fn set_xgetbv(&mut self) -> bool {
        if self.rcx as u32 != 0 {
            return false;
        }
        self.rax = 7;
        self.rdx = 0;
        self.rip = self.rip.wrapping_add(3);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trapped_instructions_are_answered_and_skipped() {
        let mut regs = Regs { rip: 0x1000, rax: u64::MAX, rcx: u64::MAX, ..Regs::default() };
        regs.set_rdtsc(0x1122_3344_5566_7788, None);
        assert_eq!((regs.rax, regs.rdx, regs.rcx, regs.rip), (0x5566_7788, 0x1122_3344, u64::MAX, 0x1002));
        regs.set_rdtsc(5, Some(3));
        assert_eq!((regs.rax, regs.rdx, regs.rcx, regs.rip), (5, 0, 3, 0x1005));
        regs.rax = 0xffff_ffff_0000_0000;
        regs.set_cpuid([0xd, u32::from_le_bytes(*b"Genu"), 0, 0]);
        assert_eq!((regs.rbx, regs.rip), (u64::from(u32::from_le_bytes(*b"Genu")), 0x1007));
        (regs.rcx, regs.rdx) = (0xffff_ffff_0000_0000, u64::MAX);
        assert!(regs.set_xgetbv());
        assert_eq!((regs.rax, regs.rdx, regs.rip), (7, 0, 0x100a));
        regs.rcx = 1;
        let before = regs;
        assert!(!regs.set_xgetbv());
        assert_eq!(regs, before);
    }

    #[test]
    fn rflags_lose_what_is_the_hosts() {
        let mut regs = Regs { rflags: u64::MAX, ..Regs::default() };
        regs.canonical_rflags();
        assert_eq!(regs.rflags, 0x24_4fd7);
        assert_eq!(regs.rflags & (1 << 16), 0, "RF");
    }

    #[test]
    fn restart_goes_back_to_the_instruction() {
        let mut regs = Regs { rip: 0x1002, rax: (-38i64) as u64, orig_rax: 7, ..Regs::default() };
        regs.restart_syscall();
        assert_eq!((regs.rip, regs.rax, regs.orig_rax), (0x1000, 7, u64::MAX));
    }
}
