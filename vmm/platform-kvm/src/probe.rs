//! What KVM can do here ([`measure`]), found out by running tiny programs.
//!
//! An ordinary KVM traps all; a software one may let rdtsc and cpuid through to the host.

use bloodhound_frames::Frame;
use bloodhound_platform::{
    Abilities, CpuidTrap, Mapping, Platform, PlatformError, Prot, Regs, SpaceId, Stops, TaskKey, Trap, XState,
};

use crate::KvmPlatform;
use crate::layout::USER_SS;

/// Before anything is measured.
pub(crate) const UNKNOWN: Abilities =
    Abilities { traps_rdtsc: false, cpuid: CpuidTrap::NeedsPatch, traps_steps: false, trap_cost_ns: 0 };

const SPACE: SpaceId = SpaceId(u64::MAX);
const TASK: TaskKey = TaskKey(0);
const CODE: u64 = 0x1000;
/// How often the watchdog may come before a program counts as one that does not trap.
const BUDGETS: u32 = 50;
/// Rounds of the measurement, and traps in each.
const ROUNDS: u32 = 5;
const TRAPS: u32 = 20;

/// Runs the programs.
///
/// # Errors
/// When not even a system call traps, and host errors.
pub(crate) fn measure(platform: &mut KvmPlatform) -> Result<Abilities, PlatformError> {
    // syscall; jmp to it
    let loops = b"\x0f\x05\xeb\xfc";
    if first_trap(platform, loops, false)? != Trap::Syscall {
        return Err(PlatformError::Internal("a system call does not trap"));
    }
    let cost = trap_cost(platform, loops)?;
    let rdtsc = first_trap(platform, b"\x0f\x31\x0f\x05", false)?;
    let rdtscp = first_trap(platform, b"\x0f\x01\xf9\x0f\x05", false)?;
    let cpuid = first_trap(platform, b"\x0f\xa2\x0f\x05", false)?;
    let step = first_trap(platform, b"\x90\x0f\x05", true)?;
    platform.evict_all();
    Ok(Abilities {
        traps_rdtsc: rdtsc == Trap::Rdtsc { aux: false } && rdtscp == Trap::Rdtsc { aux: true },
        cpuid: if cpuid == Trap::Cpuid { CpuidTrap::Faulting } else { CpuidTrap::NeedsPatch },
        traps_steps: step == Trap::Step,
        trap_cost_ns: cost,
    })
}

/// Whether application code can change the base of fs by itself, which CR4.FSGSBASE forbids on ordinary KVMs.
///
/// # Errors
/// Host errors.
pub(crate) fn wrfsbase(platform: &mut KvmPlatform) -> Result<bool, PlatformError> {
    let can = first_trap(platform, b"\xf3\x48\x0f\xae\xd0\x0f\x05", false)? == Trap::Syscall;
    platform.evict_all();
    Ok(can)
}

/// Whether what application code does to the bases of fs and gs is reported.
///
/// # Errors
/// Host errors.
pub(crate) fn bases(platform: &mut KvmPlatform) -> Result<bool, PlatformError> {
    let mut reported = true;
    // syscall; ud2
    for end in [b"\x0f\x05", b"\x0f\x0b"] {
        // mov fs, edx; mov gs, edx
        for (before, want) in [(&b""[..], (0x1000, 0x2000)), (b"\x8e\xe2\x8e\xea", (0, 0))] {
            let frame = Frame::from_slice(&[before, end].concat());
            let mut regs = start(platform, &frame)?;
            (regs.fs_base, regs.gs_base, regs.rdx) = (0x1000, 0x2000, u64::from(USER_SS));
            trap_of(platform, &mut regs, false)?;
            reported &= (regs.fs_base, regs.gs_base, regs.rdx) == (want.0, want.1, u64::from(USER_SS));
        }
    }
    platform.evict_all();
    Ok(reported)
}

/// A program's first trap, or that of its first step.
fn first_trap(platform: &mut KvmPlatform, code: &[u8], step: bool) -> Result<Trap, PlatformError> {
    let frame = Frame::from_slice(code);
    let mut regs = start(platform, &frame)?;
    trap_of(platform, &mut regs, step)
}

/// The next trap, or that of the next step.
fn trap_of(platform: &mut KvmPlatform, regs: &mut Regs, step: bool) -> Result<Trap, PlatformError> {
    for _ in 0..BUDGETS {
        let trap = match step {
            true => platform.step(SPACE, TASK, regs)?,
            false => platform.run(SPACE, TASK, regs, &mut Stops::default())?,
        };
        if trap != Trap::BudgetSpent {
            return Ok(trap);
        }
    }
    Ok(Trap::BudgetSpent)
}

/// Host time of a trap in nanoseconds: the best of a few short rounds.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // only reported
fn trap_cost(platform: &mut KvmPlatform, code: &[u8]) -> Result<u64, PlatformError> {
    let frame = Frame::from_slice(code);
    let mut regs = start(platform, &frame)?;
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        for _ in 0..TRAPS {
            match platform.run(SPACE, TASK, &mut regs, &mut Stops::default())? {
                // Another process had the processor for long.
                Trap::Syscall | Trap::BudgetSpent => {}
                _ => return Err(PlatformError::Internal("the first system call did not trap")),
            }
        }
        best = best.min(start.elapsed().as_nanos() as u64 / u64::from(TRAPS));
    }
    Ok(best)
}

fn start(platform: &mut KvmPlatform, frame: &Frame) -> Result<Regs, PlatformError> {
    platform.reset_space(SPACE);
    platform.map(SPACE, &[Mapping { addr: CODE, frame_offset: frame.offset(), pages: 1, prot: Prot::RX }]);
    platform.load_xstate(SPACE, TASK, &XState::initial())?;
    Ok(Regs { rip: CODE, ..Regs::default() })
}
