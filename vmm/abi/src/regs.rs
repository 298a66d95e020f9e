//! The registers of a task, in the order of ptrace's `struct user_regs_struct` (sys/user.h).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// All x86-64 registers a program can hold, without the extended (x87, SSE, AVX) state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Regs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The system-call number at a system-call trap.
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

impl Regs {
    /// Registers of a fresh user program: flat 64-bit segments, interrupts on.
    pub fn user(rip: u64, rsp: u64) -> Regs {
        Regs { rip, rsp, cs: 0x33, ss: 0x2b, eflags: 0x202, orig_rax: u64::MAX, ..Regs::default() }
    }

    /// The six arguments of a system call (syscall(2), table "x86-64").
    pub fn syscall_args(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}
