//! [`Scripted`]: a platform without a processor, for tests of the kernel and of whole worlds.
//!
//! A program is a list of [`Step`]s at an address. Its position is the task's rip (two bytes per step), so all
//! of a task's state is in its registers and memory, and worlds with scripted programs can be cloned, restored
//! and forked like any other. Memory is reached through the mappings that the kernel gives, with page faults;
//! instruction fetches as well.
//!
//! Neighbours: [`crate::Platform`]; [`scripted_elf`] makes the executable that `execve` loads.

use std::collections::BTreeMap;

use bloodhound_abi::exception::vector;

use crate::{
    Abilities, Access, CpuidTrap, Exception, Mapping, Platform, PlatformError, Prot, Regs, SpaceId, Stops,
    TaskKey, Trap, XState,
};

const PAGE: u64 = 4096;
/// Length of every step in bytes: that of `syscall`, `rdtsc` and `cpuid`.
const STEP: u64 = 2;
/// Where a scripted executable's writable segment is, from its base.
const DATA: u64 = 0x10_0000;
/// Steps without a trap after which a run ends with `BudgetSpent`.
const BUDGET: u32 = 100_000;

/// Registers that steps name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the architecture's names
pub enum Reg {
    Rax,
    Rbx,
    Rcx,
    Rdx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    FsBase,
}

/// A value that a step uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A constant.
    Imm(u64),
    /// A register's value.
    Reg(Reg),
    /// A register's value plus an offset.
    Off(Reg, i64),
}

impl From<u64> for Arg {
    fn from(value: u64) -> Arg {
        Arg::Imm(value)
    }
}

impl From<Reg> for Arg {
    fn from(reg: Reg) -> Arg {
        Arg::Reg(reg)
    }
}

/// One instruction of a scripted program. Jumps name a step by its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A system call.
    Syscall {
        /// Number.
        nr: u64,
        /// Arguments in order; zero for those left out by [`Step::syscall`].
        args: [Arg; 6],
    },
    /// Sets a register.
    Set(Reg, Arg),
    /// Adds to a register, wrapping.
    Add(Reg, Arg),
    /// Writes bytes to memory.
    Write(Arg, Vec<u8>),
    /// Writes a 64-bit value to memory.
    Store(Arg, Arg),
    /// Writes a 32-bit value to memory.
    Store32(Arg, Arg),
    /// Reads 64 bits from memory.
    Load(Reg, Arg),
    /// Reads 32 bits from memory.
    Load32(Reg, Arg),
    /// Accesses a byte and does nothing with it.
    Touch(Arg, Access),
    /// SIGILL, with a line in [`Scripted::failures`], unless the register has this value.
    Expect(Reg, Arg),
    /// As `Expect`, for bytes in memory.
    ExpectBytes(Arg, Vec<u8>),
    /// Goes to a step.
    Jump(usize),
    /// Goes to a step if the register has this value.
    JumpIf(Reg, Arg, usize),
    /// Goes to a step unless the register has this value.
    JumpUnless(Reg, Arg, usize),
    /// Goes to an address (a signal handler's return, a thread's entry).
    JumpTo(Arg),
    /// `rdtsc`.
    Rdtsc,
    /// `rdtscp`.
    Rdtscp,
    /// `cpuid`.
    Cpuid,
    /// `int3`.
    Breakpoint,
    /// An exception of this kind.
    Raise(Exception),
}

impl Step {
    /// A system call with up to six arguments.
    ///
    /// # Panics
    /// If there are more.
    #[must_use]
    pub fn syscall(nr: u64, args: &[Arg]) -> Step {
        let mut all = [Arg::Imm(0); 6];
        all[..args.len()].copy_from_slice(args);
        Step::Syscall { nr, args: all }
    }
}

#[derive(Clone, Debug, Default)]
struct Space {
    pages: BTreeMap<u64, (u64, Prot)>,
    owner: Option<(TaskKey, XState)>,
}

/// A platform that interprets scripts. Fully deterministic, and itself a value.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    programs: BTreeMap<u64, Vec<Step>>,
    spaces: BTreeMap<SpaceId, Space>,
    failures: Vec<String>,
}

/// What one step did.
enum Done {
    Next,
    Go(u64),
    Trap(Trap),
}

impl Scripted {
    /// A platform without programs.
    #[must_use]
    pub fn new() -> Scripted {
        Scripted::default()
    }

    /// Puts a program at an address: every task whose rip comes there runs it. Programs must not overlap.
    ///
    /// # Panics
    /// If `base` is no multiple of 4096.
    pub fn program(&mut self, base: u64, steps: Vec<Step>) {
        assert!(base.is_multiple_of(PAGE), "programs begin at a page");
        self.programs.insert(base, steps);
    }

    /// What `Expect` steps found wrong, in order.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// The address of a step of the program at `base`: for signal handlers and thread entries.
    #[must_use]
    pub fn address(base: u64, step: usize) -> u64 {
        base + step as u64 * STEP
    }

    /// Where a program made by [`scripted_elf`] at `base` has its 64 KiB of writable memory.
    #[must_use]
    pub fn data(base: u64) -> u64 {
        base + DATA
    }

    fn fetch(&self, rip: u64) -> Option<(u64, &Step)> {
        let (&base, steps) = self.programs.range(..=rip).next_back()?;
        // Rounds down: `rdtscp` is one byte longer than a step.
        let index = (rip - base) / STEP;
        Some((base, steps.get(usize::try_from(index).ok()?)?))
    }

    fn execute(&mut self, space: SpaceId, regs: &mut Regs) -> Done {
        let rip = regs.rip;
        if let Err(trap) = self.access(space, rip, rip, 1, Access::Exec, |_, _| Some(())) {
            return Done::Trap(trap);
        }
        let Some((base, step)) = self.fetch(rip) else {
            return ill(rip);
        };
        let step = step.clone();
        regs.rip = Scripted::address(base, self.index(base, rip));
        self.execute_step(space, regs, base, &step).unwrap_or_else(Done::Trap)
    }

    fn execute_step(
        &mut self,
        space: SpaceId,
        regs: &mut Regs,
        base: u64,
        step: &Step,
    ) -> Result<Done, Trap> {
        let val = |regs: &Regs, arg: Arg| value(regs, arg);
        let go = |step: usize| Done::Go(Scripted::address(base, step));
        match *step {
            Step::Syscall { nr, args } => {
                let args = args.map(|arg| val(regs, arg));
                [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
                regs.orig_rax = nr;
                regs.rax = (-38i64) as u64; // -ENOSYS, as Linux does before the call
                regs.rip += STEP;
                regs.rcx = regs.rip;
                regs.r11 = regs.rflags;
                return Ok(Done::Trap(Trap::Syscall));
            }
            Step::Set(reg, arg) => *register(regs, reg) = val(regs, arg),
            Step::Add(reg, arg) => {
                *register(regs, reg) = value(regs, Arg::Reg(reg)).wrapping_add(val(regs, arg))
            }
            Step::Write(at, ref bytes) => self.write(space, regs, val(regs, at), bytes)?,
            Step::Store(at, arg) => self.write(space, regs, val(regs, at), &val(regs, arg).to_le_bytes())?,
            Step::Store32(at, arg) => {
                self.write(space, regs, val(regs, at), &(val(regs, arg) as u32).to_le_bytes())?;
            }
            Step::Load(reg, at) => {
                let mut raw = [0; 8];
                self.read(space, regs, val(regs, at), &mut raw)?;
                *register(regs, reg) = u64::from_le_bytes(raw);
            }
            Step::Load32(reg, at) => {
                let mut raw = [0; 4];
                self.read(space, regs, val(regs, at), &mut raw)?;
                *register(regs, reg) = u64::from(u32::from_le_bytes(raw));
            }
            Step::Touch(at, access) => {
                self.access(space, regs.rip, val(regs, at), 1, access, |_, _| Some(()))?;
            }
            Step::Expect(reg, arg) => {
                let (got, want) = (value(regs, Arg::Reg(reg)), val(regs, arg));
                if got != want {
                    self.fail(regs.rip, base, format!("{reg:?} is {got:#x}, expected {want:#x}"));
                    return Ok(ill(regs.rip));
                }
            }
            Step::ExpectBytes(at, ref want) => {
                let mut got = vec![0; want.len()];
                self.read(space, regs, val(regs, at), &mut got)?;
                if got != *want {
                    let text =
                        format!("memory is \"{}\", expected \"{}\"", got.escape_ascii(), want.escape_ascii());
                    self.fail(regs.rip, base, text);
                    return Ok(ill(regs.rip));
                }
            }
            Step::Jump(to) => return Ok(go(to)),
            Step::JumpIf(reg, arg, to) if value(regs, Arg::Reg(reg)) == val(regs, arg) => return Ok(go(to)),
            Step::JumpUnless(reg, arg, to) if value(regs, Arg::Reg(reg)) != val(regs, arg) => {
                return Ok(go(to));
            }
            Step::JumpIf(..) | Step::JumpUnless(..) => {}
            Step::JumpTo(arg) => return Ok(Done::Go(val(regs, arg))),
            Step::Rdtsc => return Ok(Done::Trap(Trap::Rdtsc { aux: false })),
            Step::Rdtscp => return Ok(Done::Trap(Trap::Rdtsc { aux: true })),
            Step::Cpuid => return Ok(Done::Trap(Trap::Cpuid)),
            Step::Breakpoint => {
                regs.rip += STEP;
                return Ok(Done::Trap(Trap::Exception(Exception::BREAKPOINT)));
            }
            Step::Raise(exception) => return Ok(Done::Trap(Trap::Exception(exception))),
        }
        Ok(Done::Next)
    }

    fn index(&self, base: u64, rip: u64) -> usize {
        ((rip - base) / STEP) as usize
    }

    fn fail(&mut self, rip: u64, base: u64, text: String) {
        let index = self.index(base, rip);
        self.failures.push(format!("step {index} of the program at {base:#x}: {text}"));
    }

    fn read(&self, space: SpaceId, regs: &Regs, addr: u64, out: &mut [u8]) -> Result<(), Trap> {
        let len = out.len();
        self.access(space, regs.rip, addr, len, Access::Read, |at, part| {
            bloodhound_frames::read_at(at, &mut out[part])
        })
    }

    fn write(&self, space: SpaceId, regs: &Regs, addr: u64, data: &[u8]) -> Result<(), Trap> {
        // Faults before anything is written, so that the step can be run again.
        self.access(space, regs.rip, addr, data.len(), Access::Write, |_, _| Some(()))?;
        self.access(space, regs.rip, addr, data.len(), Access::Write, |at, part| {
            bloodhound_frames::write_at(at, &data[part])
        })
    }

    /// Calls `each` with the arena offset and the part of the range, page by page; or the fault.
    fn access(
        &self,
        space: SpaceId,
        rip: u64,
        addr: u64,
        len: usize,
        access: Access,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), Trap> {
        let mut done = 0;
        while done < len {
            let at = addr.wrapping_add(done as u64);
            let fault = Trap::PageFault { addr: at, access: Some(access), rip };
            let page = self.spaces.get(&space).and_then(|s| s.pages.get(&(at / PAGE)));
            let &(frame, prot) = page.ok_or(fault)?;
            if !prot.allows(access) {
                return Err(fault);
            }
            let part = (len - done).min((PAGE - at % PAGE) as usize);
            each(frame + at % PAGE, done..done + part).ok_or(fault)?;
            done += part;
        }
        Ok(())
    }

    fn enter(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<(), PlatformError> {
        if self.xstate_owner(space) != Some(task) {
            return Err(PlatformError::XStateNotLoaded);
        }
        regs.orig_rax = u64::MAX;
        regs.canonical_rflags();
        Ok(())
    }
}

fn ill(rip: u64) -> Done {
    Done::Trap(Trap::Exception(Exception::at(vector::UD, rip)))
}

fn value(regs: &Regs, arg: Arg) -> u64 {
    let mut copy = *regs;
    match arg {
        Arg::Imm(value) => value,
        Arg::Reg(reg) => *register(&mut copy, reg),
        Arg::Off(reg, by) => register(&mut copy, reg).wrapping_add_signed(by),
    }
}

fn register(regs: &mut Regs, reg: Reg) -> &mut u64 {
    match reg {
        Reg::Rax => &mut regs.rax,
        Reg::Rbx => &mut regs.rbx,
        Reg::Rcx => &mut regs.rcx,
        Reg::Rdx => &mut regs.rdx,
        Reg::Rsi => &mut regs.rsi,
        Reg::Rdi => &mut regs.rdi,
        Reg::Rbp => &mut regs.rbp,
        Reg::Rsp => &mut regs.rsp,
        Reg::R8 => &mut regs.r8,
        Reg::R9 => &mut regs.r9,
        Reg::R10 => &mut regs.r10,
        Reg::R11 => &mut regs.r11,
        Reg::R12 => &mut regs.r12,
        Reg::R13 => &mut regs.r13,
        Reg::R14 => &mut regs.r14,
        Reg::R15 => &mut regs.r15,
        Reg::FsBase => &mut regs.fs_base,
    }
}

impl Platform for Scripted {
    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        self.enter(space, task, regs)?;
        for _ in 0..BUDGET {
            match self.execute(space, regs) {
                Done::Next => regs.rip += STEP,
                Done::Go(to) => regs.rip = to,
                Done::Trap(trap) => return Ok(trap),
            }
            if let Some(stop) = stops.reached(regs.rip) {
                return Ok(stop);
            }
        }
        Ok(Trap::BudgetSpent)
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        self.enter(space, task, regs)?;
        match self.execute(space, regs) {
            Done::Next => regs.rip += STEP,
            Done::Go(to) => regs.rip = to,
            Done::Trap(trap) => return Ok(trap),
        }
        Ok(Trap::Step)
    }

    fn map(&mut self, space: SpaceId, mappings: &[Mapping]) {
        let pages = &mut self.spaces.entry(space).or_default().pages;
        for m in mappings {
            for n in 0..u64::from(m.pages) {
                pages.insert(m.addr / PAGE + n, (m.frame_offset + n * PAGE, m.prot));
            }
        }
    }

    fn unmap(&mut self, space: SpaceId, addr: u64, len: u64) {
        let end = addr.saturating_add(len).div_ceil(PAGE);
        if let Some(space) = self.spaces.get_mut(&space) {
            let mut tail = space.pages.split_off(&(addr / PAGE));
            space.pages.append(&mut tail.split_off(&end));
        }
    }

    fn write_protect(&mut self, space: SpaceId) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.pages.values_mut().for_each(|(_, prot)| prot.write = false);
        }
    }

    fn mapped(&self, space: SpaceId, out: &mut Vec<Mapping>) {
        let pages = self.spaces.get(&space).into_iter().flat_map(|s| &s.pages);
        out.extend(pages.map(|(&page, &(frame_offset, prot))| Mapping {
            addr: page * PAGE,
            frame_offset,
            pages: 1,
            prot,
        }));
    }

    fn xstate_owner(&self, space: SpaceId) -> Option<TaskKey> {
        self.spaces.get(&space)?.owner.as_ref().map(|(task, _)| *task)
    }

    fn save_xstate(&mut self, space: SpaceId) -> Result<Option<(TaskKey, XState)>, PlatformError> {
        Ok(self.spaces.get(&space).and_then(|s| s.owner.clone()))
    }

    fn load_xstate(&mut self, space: SpaceId, task: TaskKey, state: &XState) -> Result<(), PlatformError> {
        self.spaces.entry(space).or_default().owner = Some((task, state.clone()));
        Ok(())
    }

    fn reset_space(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
    }

    fn drop_space(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
    }

    fn evict_all(&mut self) {
        self.spaces.clear();
    }

    fn abilities(&self) -> Abilities {
        Abilities { traps_rdtsc: true, cpuid: CpuidTrap::Faulting, traps_steps: true, trap_cost_ns: 0 }
    }
}

/// A static executable (ELF64, ET_EXEC) for a program of `steps` steps at `base`: entry at `base`, a
/// read-execute segment there, 64 KiB of zeroed read-write memory at [`Scripted::data`].
///
/// # Panics
/// If the program is longer than 512 Ki steps.
#[must_use]
pub fn scripted_elf(base: u64, steps: usize) -> Vec<u8> {
    let code = (steps as u64 * STEP).next_multiple_of(PAGE).max(PAGE);
    assert!(code <= DATA, "the program is too long");
    let mut out = Vec::with_capacity((PAGE + code) as usize);
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"); // 64-bit, little-endian, version 1, System V
    for half in [2u16, 62] {
        out.extend_from_slice(&half.to_le_bytes()); // ET_EXEC, EM_X86_64
    }
    out.extend_from_slice(&1u32.to_le_bytes());
    for word in [base, 64, 0] {
        out.extend_from_slice(&word.to_le_bytes()); // entry, program headers, section headers
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 2, 0, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes()); // sizes and numbers of headers
    }
    // (flags, file offset, address, size in file, size in memory); PF_X 1, PF_W 2, PF_R 4.
    for (flags, offset, at, file, memory) in
        [(5u32, PAGE, base, code, code), (6, PAGE + code, base + DATA, 0, 0x1_0000)]
    {
        out.extend_from_slice(&1u32.to_le_bytes()); // PT_LOAD
        out.extend_from_slice(&flags.to_le_bytes());
        for word in [offset, at, at, file, memory, PAGE] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    out.resize((PAGE + code) as usize, 0);
    out
}

#[cfg(test)]
mod tests;
