//! The platform: how application code is run at user level until it traps.
//!
//! Key types: [`Platform`], [`Trap`], [`XState`], [`Mapping`]; of `bloodhound-abi` [`Regs`], [`Access`], [`Exception`]; [`cpuid_profile`], the one processor
//! that applications see; [`Scripted`], a platform for tests that needs no processor at
//! all; [`code_view`], which makes instructions trap that a host lets through; [`code_points`], which observe what code was executed.
//!
//! What every platform on an x86-64 processor needs: [`extents`] its page tables, [`decode`] instructions, [`x86`] from
//! faults to traps, [`cause`] which exception a host's signal stands for, [`umip`] instructions that Linux does itself, [`spin`] loops without side effects, [`stops`] where runs end, [`watchdog`] code
//! that does not trap.
//!
//! Neighbours: `bloodhound-sim` drives a platform and is the only one to know it; `bloodhound-frames` holds the
//! bytes that are mapped; `bloodhound-platform-ptrace` and `bloodhound-platform-kvm` are the implementations.
//!
//! All that a platform holds is a cache (mappings, loaded registers): it may forget mappings at any time, and
//! then says so by a page fault which the kernel answers by mapping the page again.

#![forbid(unsafe_code)]

pub mod cause;
mod code;
pub mod code_points;
pub mod code_view;
mod cpuid;
pub mod decode;
pub mod extents;
mod forward;
mod patch;
mod scripted;
pub mod spin;
pub mod stops;
mod trap;
pub mod umip;
pub mod vsyscall;
pub mod watchdog;
pub mod x86;
mod xstate;

pub use bloodhound_abi::{Access, Exception, Regs};
pub use code_view::Patches;
pub use cpuid::{XSAVE_SIZE, cpuid_profile};
pub use patch::CONTEXT as CODE_CONTEXT;
pub use scripted::{Arg, Reg, Scripted, Step, scripted_elf};
pub use spin::{Probe, Spin};
pub use stops::{Budget, StopPoint, Stops};
pub use trap::{PlatformError, Trap, Unsupported};
pub use xstate::{XSTATE_SIZE, XState};

use std::time::Duration;

use extents::Extents;

/// First address that no application may map: the platform's own code lies above it. Linux's TASK_SIZE is
/// 0x7fff_ffff_f000; the kernel offers this instead, so that stacks and `mmap` go below it.
pub const GUEST_TOP: u64 = 0x7fff_ff00_0000;

/// Names an address space. Numbers are the caller's; a platform makes what it needs at first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u64);

/// Names a task (thread), to know whose x87/SSE/AVX state a space's processor holds. Numbers are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey(pub u64);

/// What a mapping allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prot {
    /// May be read. x86-64 has no writable or executable page that is not readable.
    pub read: bool,
    /// May be written: legal only if the frame is not shared with another world (`Frame::is_unique`).
    pub write: bool,
    /// May be executed.
    pub exec: bool,
}

impl Prot {
    /// Read only.
    pub const R: Prot = Prot { read: true, write: false, exec: false };
    /// Read and write.
    pub const RW: Prot = Prot { read: true, write: true, exec: false };
    /// Read and execute.
    pub const RX: Prot = Prot { read: true, write: false, exec: true };
    /// Read, write and execute.
    pub const RWX: Prot = Prot { read: true, write: true, exec: true };

    /// Whether an access of this kind succeeds.
    #[must_use]
    pub fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read || self.write || self.exec,
            Access::Write => self.write,
            Access::Exec => self.exec,
        }
    }
}

/// A run of pages: guest pages from `addr` show consecutive frames from `frame_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// Guest address, a multiple of 4096, below [`GUEST_TOP`].
    pub addr: u64,
    /// `Frame::offset` of the first frame.
    pub frame_offset: u64,
    /// Number of pages, at least 1.
    pub pages: u32,
    /// What the guest may do with them.
    pub prot: Prot,
}

/// How `cpuid` is made to answer [`cpuid_profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuidTrap {
    /// The processor traps it.
    Faulting,
    /// It does not: [`code_view`] makes it trap.
    NeedsPatch,
}

/// What a platform can do on this host, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// `rdtsc` and `rdtscp` trap. Without it [`code_view`] makes them trap; the host's time still leaks into code that is written
    /// where code has run already, so the platform is not deterministic for every program.
    pub traps_rdtsc: bool,
    /// How `cpuid` traps.
    pub cpuid: CpuidTrap,
    /// A single step traps. Without it loops without side effects cannot be told from work.
    pub traps_steps: bool,
    /// Host nanoseconds per trap, measured once; for `doctor` and for choosing a platform.
    pub trap_cost_ns: u64,
}

/// Runs application code. One object belongs to one host thread and serves any number of address spaces.
///
/// Mapping calls are queued and applied, in order and in one batch, before the space's next run; they cannot
/// fail by themselves.
///
/// Stale mappings: a frame may be freed and reused while a space still maps it, as long as that space does not
/// run before the mapping is replaced, unmapped, or the space is reset.
pub trait Platform {
    /// Runs `task` in `space` from `regs` until it traps, comes to one of `stops`' points or has spent its budget; `regs` is
    /// then its state.
    ///
    /// For [`Trap::Syscall`] `regs` is as Linux's `pt_regs`: `orig_rax` is the call's number, `rax` is -ENOSYS,
    /// `rip` is behind the instruction. For every other trap `orig_rax` is -1 and `rip` is at the instruction
    /// that trapped ([`Exception::BREAKPOINT`]: behind the `int3`; [`Trap::Step`], `StopPoint` and `BudgetSpent`: at the next one).
    ///
    /// # Errors
    /// [`PlatformError::XStateNotLoaded`] unless `task` is the space's [`Platform::xstate_owner`]; host errors.
    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError>;

    /// As [`Platform::run`], for one instruction: [`Trap::Step`] unless it trapped.
    ///
    /// # Errors
    /// As `run`.
    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError>;

    /// The instruction at `rip` is the next one that a task of the space executes, and whoever runs the task is about to look at its
    /// bytes: what stands there for observers only ([`code_points`]) is taken away.
    fn approach(&mut self, space: SpaceId, rip: u64) {
        let _ = (space, rip);
    }

    /// How much of the host's processor time was spent on what runs code of the space, or of several of them. Only differences mean
    /// anything, and only to raise a suspicion. `None`: not known.
    fn processor_time(&self, space: SpaceId) -> Option<Duration> {
        let _ = space;
        None
    }

    /// What a space maps, queued changes included, to read application memory by. `None` if the space is not known, or if this
    /// platform does not run instructions.
    fn memory(&self, space: SpaceId) -> Option<&Extents> {
        let _ = space;
        None
    }

    /// Queues mappings; each replaces what its pages showed before.
    fn map(&mut self, space: SpaceId, mappings: &[Mapping]);

    /// Queues the removal of all mappings in `addr..addr + len` (both multiples of 4096).
    fn unmap(&mut self, space: SpaceId, addr: u64, len: u64);

    /// Queues the loss of write permission for every mapping of the space: after a world was cloned its frames
    /// are shared.
    fn write_protect(&mut self, space: SpaceId);

    /// Appends what the space maps (queued changes included), by rising address. After a world is restored the
    /// caller unmaps what differs from it and keeps the rest.
    fn mapped(&self, space: SpaceId, out: &mut Vec<Mapping>);

    /// The task whose x87/SSE/AVX state is loaded in the space.
    fn xstate_owner(&self, space: SpaceId) -> Option<TaskKey>;

    /// Reads the state of the owner, who stays loaded. `None` if nobody's is. To be called before another task
    /// is loaded, before the world is cloned, and before the space is dropped, if the owner lives on.
    ///
    /// # Errors
    /// Host errors.
    fn save_xstate(&mut self, space: SpaceId) -> Result<Option<(TaskKey, XState)>, PlatformError>;

    /// Makes `task` the owner, with `state`. What was loaded before is lost.
    ///
    /// # Errors
    /// Host errors.
    fn load_xstate(&mut self, space: SpaceId, task: TaskKey, state: &XState) -> Result<(), PlatformError>;

    /// Forgets the space's mappings and xstate owner, and keeps its host resources for reuse under this id.
    fn reset_space(&mut self, space: SpaceId);

    /// Forgets the space. Unknown ids are ignored.
    fn drop_space(&mut self, space: SpaceId);

    /// Forgets everything, as if each space had been dropped, down to the host resources.
    fn evict_all(&mut self);

    /// What this platform can do here.
    fn abilities(&self) -> Abilities;
}
