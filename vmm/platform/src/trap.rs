//! Why application code stopped ([`Trap`]), and what can go wrong with the host ([`PlatformError`]).

use std::fmt;

use bloodhound_abi::{Access, Exception};

/// Why application code stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trap {
    /// A system call; number in `orig_rax`, arguments in rdi, rsi, rdx, r10, r8, r9.
    Syscall,
    /// An access to a page that is not mapped, or not for this.
    PageFault {
        /// The address that was accessed.
        addr: u64,
        /// The kind of access, where the platform knows it. Where it does not, answering as for a read is
        /// right, only slower: a write then faults again and is known.
        access: Option<Access>,
        /// The instruction.
        rip: u64,
    },
    /// `rdtsc`, or `rdtscp` with `aux`. Answer with [`crate::Regs::set_rdtsc`].
    Rdtsc {
        /// `rdtscp`: three bytes long, also sets ecx.
        aux: bool,
    },
    /// `cpuid`; leaf in eax, subleaf in ecx. Answer with [`crate::Regs::set_cpuid`].
    Cpuid,
    /// `xgetbv`; register in ecx. Answer with [`crate::Regs::set_xgetbv`].
    Xgetbv,
    /// One instruction was executed ([`crate::Platform::step`], or the application set the trap flag).
    Step,
    /// An exception of the processor that Linux turns into a signal, `int3` among them.
    Exception(Exception),
    /// The instruction at one of the run's stop points ([`crate::Stops`]) comes next, and has been reached often enough.
    StopPoint {
        /// Its address.
        address: u64,
    },
    /// The instruction at a kept point comes next ([`crate::code_points::WithCodePoints::keep`]), and the task came there in this run. No event of
    /// the world: the task runs on.
    KeptPoint {
        /// Its address.
        address: u64,
    },
    /// The run's budget of host time is spent. No event of the world: the task runs on, perhaps after a spin probe.
    BudgetSpent,
    /// Something that no supported program does.
    Unsupported(Unsupported),
}

/// What no supported program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unsupported {
    /// `int $0x80`: the 32-bit system-call interface.
    Int80,
    /// Code in a 32-bit segment, `sysenter`.
    Compat,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsupported::Int80 => "int $0x80 (the 32-bit system-call interface)",
            Unsupported::Compat => "32-bit code",
        })
    }
}

/// Something is wrong with the host or with the caller; never the application's doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlatformError {
    /// A host call failed.
    Host {
        /// What was tried.
        what: &'static str,
        /// The host's errno.
        errno: i32,
    },
    /// The host lacks something that no setting can give it.
    Lacks(&'static str),
    /// The process that runs the space's code died: killed from outside, or for lack of memory.
    StubDied {
        /// The signal that killed it, or 0.
        signal: i32,
    },
    /// The host has no memory left for a frame (SIGBUS on shared memory).
    HostMemory,
    /// The virtual machine cannot go on: its hypervisor gave up on an instruction, or stopped for a reason that is no
    /// trap.
    Vm {
        /// What happened.
        what: String,
        /// Where.
        rip: u64,
        /// The instruction's bytes, as far as they could be read.
        code: Vec<u8>,
    },
    /// `run` of a task whose x87/SSE/AVX state is not loaded: a bug of the caller.
    XStateNotLoaded,
    /// A bug: the platform saw what cannot be.
    Internal(&'static str),
}

impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlatformError::Host { what, errno } => {
                write!(f, "{what}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            PlatformError::Lacks(what) => write!(f, "this machine lacks {what}"),
            PlatformError::StubDied { signal } => {
                write!(f, "a process that runs application code was killed (signal {signal})")
            }
            PlatformError::HostMemory => f.write_str("the host has no memory left for the simulation"),
            PlatformError::Vm { what, rip, code } => {
                write!(f, "the virtual machine failed: {what}, at {rip:#x}")?;
                match code.is_empty() {
                    true => f.write_str(" (no code is mapped there)"),
                    false => write!(f, ", instruction {}", crate::code::describe(code)),
                }
            }
            PlatformError::XStateNotLoaded => {
                f.write_str("a task was run whose floating-point state is not loaded")
            }
            PlatformError::Internal(what) => write!(f, "platform bug: {what}"),
        }
    }
}

impl std::error::Error for PlatformError {}
