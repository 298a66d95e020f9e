//! [`PtracePlatform`]: spaces, their queues of mapping changes, and the run loop.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use bloodhound_platform::extents::Extents;
use bloodhound_platform::watchdog::{Watchdog, processor_time};
use bloodhound_platform::x86::{self, USER_CS};
use bloodhound_platform::{
    Abilities, Budget, CpuidTrap, GUEST_TOP, Mapping, Platform, PlatformError, Prot, Regs, SpaceId, Stops,
    TaskKey, Trap, XState, stops,
};
use iced_x86::InstructionInfoFactory;
use libc::user_regs_struct;

use crate::classify::{Seen, classify};
use crate::process::{Factory, ID_FLAG, Stub, bare_regs};
use crate::stub::{ARENA_FD, BATCH_MAX, COMMAND_WORDS, TASK_SIZE};
use crate::sys::{self, Stop};
use crate::tsc::TscOff;

/// Stubs that are kept for new spaces.
const POOL: usize = 16;
const PAGE: u64 = 4096;

/// A change of a space's mappings that its stub has yet to make.
#[derive(Clone, Copy, Debug)]
enum Change {
    Map(Mapping),
    Unmap { addr: u64, len: u64 },
    Protect { addr: u64, len: u64, prot: Prot },
}

impl Change {
    /// Everything of the guest's.
    const CLEAR: Change = Change::Unmap { addr: 0, len: GUEST_TOP };

    fn command(self) -> [u64; COMMAND_WORDS] {
        match self {
            Change::Map(m) => {
                // MAP_POPULATE: who maps a page is about to use it, and a fault costs more than the entry.
                let flags = (libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE) as u64;
                let len = u64::from(m.pages) * PAGE;
                [libc::SYS_mmap as u64, m.addr, len, host_prot(m.prot), flags, ARENA_FD, m.frame_offset]
            }
            Change::Unmap { addr, len } => [libc::SYS_munmap as u64, addr, len, 0, 0, 0, 0],
            Change::Protect { addr, len, prot } => {
                [libc::SYS_mprotect as u64, addr, len, host_prot(prot), 0, 0, 0]
            }
        }
    }
}

fn host_prot(prot: Prot) -> u64 {
    let bit = |on, bit: i32| if on { bit as u64 } else { 0 };
    bit(prot.read, libc::PROT_READ) | bit(prot.write, libc::PROT_WRITE) | bit(prot.exec, libc::PROT_EXEC)
}

/// An address space: what it maps, and the process that shows it, if one does now.
#[derive(Default)]
pub(crate) struct Space {
    pub extents: Extents,
    queue: Vec<Change>,
    stub: Option<Stub>,
    owner: Option<TaskKey>,
    /// The owner's state, while it is known to be what the stub has: from a load or save until the next run.
    known: Option<XState>,
    /// The owner's ds, es, fs and gs, as long as no trap was answered since: when the watchdog looks must not show.
    selectors: Option<[u64; 4]>,
}

/// How to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Until a trap, or until the budget is spent.
    Run(Budget),
    /// For one instruction.
    Step,
}

/// Runs application code in stub processes. Bound to the thread that made it: ptrace is per thread.
pub struct PtracePlatform {
    spaces: BTreeMap<SpaceId, Space>,
    pool: Vec<Stub>,
    factory: Factory,
    pub(crate) watchdog: Watchdog,
    pub(crate) info: InstructionInfoFactory,
    /// Reused between flushes.
    commands: Vec<u64>,
    xstate_size: usize,
    trap_cost_ns: u64,
    /// Last, as fields are dropped in order.
    _tsc_off: TscOff,
    /// Not `Send`.
    _thread: PhantomData<*const ()>,
}

impl PtracePlatform {
    /// Starts the platform on the calling thread. With `cpu` the thread and all its stubs are bound to that
    /// processor, which makes traps several times faster: handing over to a process on an idle one takes long.
    ///
    /// While it lives the calling thread has no `rdtsc` of its own (the reason is in the module `tsc`): its clock
    /// reads still work but are slow, and it must start processes only within [`crate::with_host_clock`].
    ///
    /// # Errors
    /// When the host does not allow ptrace (seccomp in a container, Yama), lacks memory, or its processor is
    /// older than x86-64-v3.
    pub fn new(cpu: Option<usize>) -> Result<PtracePlatform, PlatformError> {
        if !std::is_x86_feature_detected!("avx2") || !std::is_x86_feature_detected!("bmi2") {
            return Err(PlatformError::Lacks("a processor of x86-64-v3 (AVX2, BMI2)"));
        }
        // Before pinning: the watchdog's thread belongs on another processor.
        let watchdog = Watchdog::new(sys::nudge)?;
        if let Some(cpu) = cpu {
            sys::pin(cpu)?;
        }
        let mut factory = Factory::new()?;
        let first = factory.make()?;
        let measured = first.tracee.xstate(<[u8]>::len);
        let pool = vec![first];
        let mut platform = PtracePlatform {
            spaces: BTreeMap::new(),
            pool,
            factory,
            watchdog,
            info: InstructionInfoFactory::new(),
            commands: Vec::new(),
            xstate_size: 0,
            trap_cost_ns: 0,
            _tsc_off: TscOff::new()?,
            _thread: PhantomData,
        };
        platform.xstate_size = measured?;
        platform.trap_cost_ns = platform.measure()?;
        Ok(platform)
    }

    /// Pids of the live stubs, for tests and `doctor`.
    #[must_use]
    pub fn stub_pids(&self) -> Vec<i32> {
        let used = self.spaces.values().filter_map(|space| space.stub.as_ref());
        used.chain(&self.pool).map(|stub| stub.tracee.0).collect()
    }

    /// Host time of a system-call trap, in nanoseconds: the best of a few short series.
    #[allow(clippy::disallowed_methods, clippy::disallowed_types)] // only reported
    fn measure(&mut self) -> Result<u64, PlatformError> {
        // syscall; jmp to it
        let code = bloodhound_frames::Frame::from_slice(&[0x0f, 0x05, 0xeb, 0xfc]);
        let (space, task) = (SpaceId(u64::MAX), TaskKey(0));
        let mapping = Mapping { addr: PAGE, frame_offset: code.offset(), pages: 1, prot: Prot::RX };
        self.map(space, &[mapping]);
        self.load_xstate(space, task, &XState::initial())?;
        let mut regs = Regs { rip: PAGE, ..Regs::default() };
        let mut best = u64::MAX;
        for _ in 0..5 {
            let start = std::time::Instant::now();
            for _ in 0..20 {
                match self.run(space, task, &mut regs, &mut Stops::default())? {
                    Trap::Syscall | Trap::BudgetSpent => {}
                    _ => return Err(PlatformError::Internal("the first system call did not trap")),
                }
            }
            best = best.min(start.elapsed().as_nanos() as u64 / 20);
        }
        self.drop_space(space);
        Ok(best)
    }

    fn space(&mut self, id: SpaceId) -> &mut Space {
        self.spaces.entry(id).or_default()
    }

    /// Gives the space a stub if it has none.
    fn provide_stub(&mut self, id: SpaceId) -> Result<(), PlatformError> {
        let space = self.spaces.entry(id).or_default();
        if space.stub.is_none() {
            let stub = match self.pool.pop() {
                Some(stub) => stub,
                None => self.factory.make()?,
            };
            // A pooled stub still shows its last space; a new one shows nothing and does not mind.
            let mut queue = vec![Change::CLEAR];
            let mut kept = Vec::new();
            space.extents.list(&mut kept);
            queue.extend(kept.into_iter().map(Change::Map));
            space.queue = queue;
            space.stub = Some(stub);
        }
        Ok(())
    }

    /// Makes the queued changes.
    fn flush(&mut self, id: SpaceId) -> Result<(), PlatformError> {
        let Some(space) = self.spaces.get_mut(&id) else { return Ok(()) };
        let Some(stub) = &mut space.stub else { return Ok(()) };
        let mut at = 0;
        let mut forgot = false;
        while at < space.queue.len() {
            let part = &space.queue[at..space.queue.len().min(at + BATCH_MAX)];
            self.commands.clear();
            self.commands.extend(part.iter().flat_map(|change| change.command()));
            match self.factory.batch(stub, &self.commands)? {
                Ok(()) => at += part.len(),
                // Too many mappings (vm.max_map_count): forget all of them, those just queued too, as it is not known which
                // of these were undone behind them. What is needed comes back by faults.
                Err((_, libc::ENOMEM)) if !forgot => {
                    forgot = true;
                    at = 0;
                    space.extents.clear();
                    space.queue = vec![Change::CLEAR];
                }
                Err((_, errno)) => {
                    return Err(PlatformError::Host { what: "mapping memory in a stub", errno });
                }
            }
        }
        space.queue.clear();
        Ok(())
    }

    fn go(&mut self, id: SpaceId, task: TaskKey, regs: &mut Regs, mode: Mode) -> Result<Trap, PlatformError> {
        let space = self.spaces.get(&id).filter(|space| space.owner == Some(task));
        let space = space.ok_or(PlatformError::XStateNotLoaded)?;
        let flushed = if space.queue.is_empty() { Ok(()) } else { self.flush(id) };
        let done = flushed.and_then(|()| self.go_on(id, regs, mode));
        if let Err(error) = &done {
            self.abandon(id, error);
        }
        done
    }

    fn go_on(&mut self, id: SpaceId, regs: &mut Regs, mode: Mode) -> Result<Trap, PlatformError> {
        let space = self.spaces.get_mut(&id).ok_or(PlatformError::XStateNotLoaded)?;
        let Some(stub) = &mut space.stub else { return Err(PlatformError::XStateNotLoaded) };
        let tracee = stub.tracee;
        space.known = None;
        set_regs(&self.factory, stub, regs, space.selectors.take())?;
        let before = *regs;
        loop {
            let budget = if let Mode::Run(budget) = mode { budget } else { Budget::SHORT };
            self.watchdog.begin(tracee.0 as u32, budget);
            match mode {
                Mode::Run(_) => tracee.sysemu()?,
                Mode::Step => tracee.step()?,
            }
            let stop = tracee.wait()?;
            if let Stop::Gone(signal) = stop {
                self.watchdog.end();
                return Err(PlatformError::StubDied { signal });
            }
            let nudged = stop == Stop::Signal(sys::NUDGE) && self.watchdog.nudged();
            self.watchdog.end();
            let host = tracee.regs()?;
            from_host(&host, regs);
            stub.id_flag = regs.rflags & ID_FLAG != 0;
            let selectors = Some([host.ds, host.es, host.fs, host.gs]);
            // A step leaves the trap flag to the host.
            stub.shown = (mode != Mode::Step && has_own_selectors(&host)).then_some(*regs);
            // A nudge comes before the instruction: a step is just made again. 32-bit code cannot be gone on with.
            if nudged && mode != Mode::Step && host.cs == USER_CS {
                space.selectors = selectors;
                return Ok(Trap::BudgetSpent);
            }
            let stepped_from = (mode == Mode::Step || before.rflags & x86::TF != 0).then_some(before.rip);
            let seen = Seen { tracee, host: &host, stop, stepped_from };
            if let Some(trap) = classify(&seen, &space.extents, &mut self.info, regs)? {
                // Linux hides it as well, but not after a step over a `popf`, until the next run.
                if mode == Mode::Step {
                    x86::hide_step(&space.extents, &before, regs, trap);
                }
                space.selectors = selectors.filter(|_| mode == Mode::Step && trap == Trap::Step);
                return Ok(trap);
            }
            // A signal from elsewhere: not for the application.
        }
    }

    /// Gives up a space's stub after an error: it may be dead or anywhere.
    fn abandon(&mut self, id: SpaceId, error: &PlatformError) {
        if let Some(space) = self.spaces.get_mut(&id)
            && let Some(stub) = space.stub.take()
        {
            space.owner = None;
            space.known = None;
            let factory = &mut self.factory;
            self.watchdog.while_quiet(|| factory.discard(stub, error));
        }
    }

    fn retire(&mut self, stub: Stub) {
        if self.pool.len() < POOL {
            self.pool.push(stub);
        } else {
            let factory = &mut self.factory;
            self.watchdog.while_quiet(|| factory.destroy(stub));
        }
    }
}

impl Drop for PtracePlatform {
    fn drop(&mut self) {
        self.evict_all();
    }
}

impl Platform for PtracePlatform {
    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        if stops.points.is_empty() {
            return self.go(space, task, regs, Mode::Run(stops.budget));
        }
        stops::run_by_steps(self, space, task, regs, stops)
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        self.go(space, task, regs, Mode::Step)
    }

    fn memory(&self, space: SpaceId) -> Option<&Extents> {
        self.spaces.get(&space).map(|space| &space.extents)
    }

    fn map(&mut self, space: SpaceId, mappings: &[Mapping]) {
        let space = self.space(space);
        for &mapping in mappings {
            assert!(
                mapping.addr.is_multiple_of(PAGE)
                    && mapping.frame_offset.is_multiple_of(PAGE)
                    && mapping.pages > 0
                    && mapping.addr.saturating_add(u64::from(mapping.pages) * PAGE) <= GUEST_TOP,
                "a mapping that is no run of guest pages"
            );
            space.extents.insert(&mapping);
            if let Some(Change::Map(last)) = space.queue.last_mut()
                && last.addr + u64::from(last.pages) * PAGE == mapping.addr
                && last.frame_offset + u64::from(last.pages) * PAGE == mapping.frame_offset
                && last.prot == mapping.prot
                && let Some(pages) = last.pages.checked_add(mapping.pages)
            {
                last.pages = pages;
            } else {
                space.queue.push(Change::Map(mapping));
            }
        }
    }

    fn unmap(&mut self, space: SpaceId, addr: u64, len: u64) {
        assert!(addr.is_multiple_of(PAGE) && len.is_multiple_of(PAGE), "unmap of parts of pages");
        let len = len.min(GUEST_TOP.saturating_sub(addr));
        if len == 0 {
            return;
        }
        let space = self.space(space);
        // Often nothing was ever touched there, and a batch for nothing costs as much as a trap.
        if space.extents.touches(addr, len) {
            space.extents.remove(addr, len);
            space.queue.push(Change::Unmap { addr, len });
        }
    }

    fn processor_time(&self, space: SpaceId) -> Option<Duration> {
        let stub = self.spaces.get(&space)?.stub.as_ref()?;
        processor_time(&stub.tracee.0.to_string())
    }

    fn write_protect(&mut self, space: SpaceId) {
        let Space { extents, queue, .. } = self.space(space);
        extents.write_protect(|addr, len, prot| queue.push(Change::Protect { addr, len, prot }));
    }

    fn mapped(&self, space: SpaceId, out: &mut Vec<Mapping>) {
        if let Some(space) = self.spaces.get(&space) {
            space.extents.list(out);
        }
    }

    fn xstate_owner(&self, space: SpaceId) -> Option<TaskKey> {
        self.spaces.get(&space)?.owner
    }

    fn save_xstate(&mut self, space: SpaceId) -> Result<Option<(TaskKey, XState)>, PlatformError> {
        let Some(space) = self.spaces.get_mut(&space) else { return Ok(None) };
        let (Some(owner), Some(stub)) = (space.owner, &space.stub) else { return Ok(None) };
        if space.known.is_none() {
            let state = stub.tracee.xstate(XState::from_area)?;
            space.known = Some(state.ok_or(PlatformError::Internal("a short XSAVE area"))?);
        }
        Ok(space.known.clone().map(|state| (owner, state)))
    }

    fn load_xstate(&mut self, space: SpaceId, task: TaskKey, state: &XState) -> Result<(), PlatformError> {
        self.provide_stub(space)?;
        let size = self.xstate_size;
        let space = self.space(space);
        let Some(stub) = &space.stub else { return Err(PlatformError::Internal("no stub")) };
        space.owner = None;
        space.selectors = None;
        if space.known.as_ref() != Some(state) {
            stub.tracee.set_xstate(state.area(), size)?;
        }
        space.owner = Some(task);
        space.known = Some(state.clone());
        Ok(())
    }

    fn reset_space(&mut self, space: SpaceId) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.extents.clear();
            space.queue.clear();
            space.queue.push(Change::CLEAR);
            space.owner = None;
            space.known = None;
        }
    }

    fn drop_space(&mut self, space: SpaceId) {
        if let Some(stub) = self.spaces.remove(&space).and_then(|space| space.stub) {
            self.retire(stub);
        }
    }

    fn evict_all(&mut self) {
        let used = std::mem::take(&mut self.spaces).into_values().filter_map(|space| space.stub);
        let stubs: Vec<Stub> = used.chain(std::mem::take(&mut self.pool)).collect();
        // All die at the same time; then all are reaped.
        stubs.iter().for_each(|stub| stub.tracee.kill());
        let factory = &mut self.factory;
        self.watchdog.while_quiet(|| stubs.into_iter().for_each(|stub| factory.destroy(stub)));
    }

    fn abilities(&self) -> Abilities {
        let cpuid = if self.factory.cpuid_faults { CpuidTrap::Faulting } else { CpuidTrap::NeedsPatch };
        Abilities { traps_rdtsc: true, cpuid, traps_steps: true, trap_cost_ns: self.trap_cost_ns }
    }
}

/// Sets a stub's registers: all of them, or no more than rax, which is all that most system calls change: the host checks and copies each
/// register that it is given.
fn set_regs(
    factory: &Factory,
    stub: &mut Stub,
    regs: &Regs,
    selectors: Option<[u64; 4]>,
) -> Result<(), PlatformError> {
    let id_flag = regs.rflags & ID_FLAG != 0;
    if id_flag != stub.id_flag {
        factory.set_id_flag(stub, id_flag)?;
    }
    if let Some(shown) = stub.shown.take()
        && selectors.is_none()
        && !restarts(regs.rax)
        && differ_in_rax_alone(&shown, regs)
    {
        return if shown.rax == regs.rax { Ok(()) } else { stub.tracee.set_rax(regs.rax) };
    }
    let mut host = to_host(regs);
    if let Some([ds, es, fs, gs]) = selectors {
        (host.ds, host.es, host.fs, host.gs) =
            (acceptable(ds), acceptable(es), acceptable(fs), acceptable(gs));
    }
    // "TASK_SIZE_MAX" and above: putreg in arch/x86/kernel/ptrace.c refuses these.
    if host.fs_base < TASK_SIZE && host.gs_base < TASK_SIZE {
        stub.tracee.set_regs(&host)
    } else {
        stub.set_regs_and_bases(&host)
    }
}

/// Whether the registers of a stop have the selectors that [`to_host`] gives.
fn has_own_selectors(host: &user_regs_struct) -> bool {
    let own = bare_regs();
    let selectors = |regs: &user_regs_struct| [regs.cs, regs.ss, regs.ds, regs.es, regs.fs, regs.gs];
    selectors(host) == selectors(&own)
}

/// Whether the host takes this for the error of a call that it has to make again if a signal comes before the stub goes on:
/// ERESTARTSYS (512) to ERESTART_RESTARTBLOCK (516), while orig_rax is that of the stop (`arch_do_signal_or_restart` in
/// arch/x86/kernel/signal.c). Setting all registers sets orig_rax to -1, which is no call.
pub(crate) fn restarts(rax: u64) -> bool {
    matches!(rax as i64, -516..=-512)
}

/// Whether an application that stopped with `shown` and goes on with `regs` sees another rax at most.
pub(crate) fn differ_in_rax_alone(shown: &Regs, regs: &Regs) -> bool {
    let mut wanted = Regs { rax: shown.rax, orig_rax: shown.orig_rax, ..*regs };
    wanted.canonical_rflags();
    wanted == *shown
}

/// A selector that is accepted in place of what application code could load: "value != 0 && (value & SEGMENT_RPL_MASK) !=
/// USER_RPL" is refused (invalid_selector in arch/x86/kernel/ptrace.c). Nulls stay null.
fn acceptable(selector: u64) -> u64 {
    if selector < 4 { 0 } else { selector | 3 }
}

fn to_host(regs: &Regs) -> user_regs_struct {
    let mut canonical = *regs;
    canonical.canonical_rflags();
    user_regs_struct {
        r15: regs.r15,
        r14: regs.r14,
        r13: regs.r13,
        r12: regs.r12,
        rbp: regs.rbp,
        rbx: regs.rbx,
        r11: regs.r11,
        r10: regs.r10,
        r9: regs.r9,
        r8: regs.r8,
        rax: regs.rax,
        rcx: regs.rcx,
        rdx: regs.rdx,
        rsi: regs.rsi,
        rdi: regs.rdi,
        rip: regs.rip,
        eflags: canonical.rflags,
        rsp: regs.rsp,
        fs_base: regs.fs_base,
        gs_base: regs.gs_base,
        ..bare_regs()
    }
}

fn from_host(host: &user_regs_struct, regs: &mut Regs) {
    *regs = Regs {
        rax: host.rax,
        rbx: host.rbx,
        rcx: host.rcx,
        rdx: host.rdx,
        rsi: host.rsi,
        rdi: host.rdi,
        rbp: host.rbp,
        rsp: host.rsp,
        r8: host.r8,
        r9: host.r9,
        r10: host.r10,
        r11: host.r11,
        r12: host.r12,
        r13: host.r13,
        r14: host.r14,
        r15: host.r15,
        rip: host.rip,
        rflags: host.eflags,
        fs_base: host.fs_base,
        gs_base: host.gs_base,
        orig_rax: u64::MAX,
    };
    regs.canonical_rflags();
}
