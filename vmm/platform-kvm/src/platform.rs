//! [`KvmPlatform`]: the spaces (address spaces of applications), and the loop that runs a task in a virtual machine until it
//! traps.
//!
//! What a space maps is kept in its `extents`; the page tables of the virtual machine are only a cache of that. The vector state
//! in the vCPU is a cache too: of the space whose task ran last. A kick is a signal to this thread, as the watchdog sends one,
//! which makes KVM_RUN return.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use bloodhound_platform::extents::Extents;
use bloodhound_platform::watchdog::{Watchdog, processor_time};
use bloodhound_platform::{
    Abilities, Budget, GUEST_TOP, Mapping, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap,
    XState, decode, stops, x86,
};
use bloodhound_platform::{Exception, Unsupported};
use kvm_bindings::kvm_xsave;
use kvm_ioctls::{Cap, Kvm};

use crate::classify::{self, Circumstances, Meaning, canonical, classify};
use crate::layout::ARENA_SLOT;
use crate::probe;
use crate::segments::BaseSource;
use crate::sys;
use crate::tables::{Changes, Full, Pool, Tables};
use crate::vm::{Exit, How, Vm};

const PAGE: u64 = 4096;
const TF: u64 = 1 << 8;

/// An address space.
#[derive(Default)]
struct Space {
    extents: Extents,
    /// Ranges (address, bytes) where `tables` may differ from `extents`.
    changed: Vec<(u64, u64)>,
    tables: Option<Tables>,
    owner: Option<TaskKey>,
    /// The owner's vector state (x87, SSE, AVX). `None` once the owner has run: the vCPU has the state then.
    known: Option<XState>,
    /// The owner was last stopped by the platform (by the watchdog, or after a step) and not by a trap of its own. It must not
    /// notice that, so the segment selectors that it has loaded are kept; after a trap of its own they are cleared.
    stopped_silently: bool,
}

/// The most ranges that [`Space::changed`] lists one by one. If there are more, the whole space counts as changed.
const MOST_RANGES: usize = 1024;

/// One eviction in so many also ends the virtual machine. That takes a hundred times as long as the rest of an eviction, since
/// KVM waits for all processors then.
const EVICTIONS_OF_A_VM: u32 = 16;

/// After so many kicks in a row the monitor, or a single step, counts as stuck. The watchdog sends one every 10 ms at most.
const MOST_KICKS: u32 = 200;

/// How long to run application code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Until a trap, or until the budget is spent.
    Run(Budget),
    /// For one instruction.
    Step,
}

/// Runs application code in a virtual machine. May only be used by the thread that made it, as KVM binds a vCPU to a thread.
pub struct KvmPlatform {
    spaces: BTreeMap<SpaceId, Space>,
    vm: Option<Vm>,
    pool: Pool,
    kvm: Kvm,
    /// The space whose owner's vector state is in the vCPU.
    loaded: Option<SpaceId>,
    /// The parts of the frame store (of [`ARENA_SLOT`] bytes, a bit each) that any mapping has ever named.
    arena: u64,
    changes: Changes,
    watchdog: Watchdog,
    thread: u32,
    abilities: Abilities,
    evictions: u32,
    base_source: BaseSource,
    _thread: PhantomData<*const ()>,
}

impl KvmPlatform {
    /// Starts the platform on the calling thread, and measures what it can do here. With `cpu` the thread is bound
    /// to that processor.
    ///
    /// # Errors
    /// When there is no usable /dev/kvm, memory is short, or the processor is older than x86-64-v3.
    pub fn new(cpu: Option<usize>) -> Result<KvmPlatform, PlatformError> {
        // The host's processor is asked, not KVM: a software KVM (one without hardware below it) may not report these
        // instructions although application code can use them.
        if !std::is_x86_feature_detected!("avx2") || !std::is_x86_feature_detected!("bmi2") {
            return Err(PlatformError::Lacks("a processor of x86-64-v3 (AVX2, BMI2)"));
        }
        let kvm = Kvm::new().map_err(sys::kvm("opening /dev/kvm"))?;
        // "Applications should refuse to run if KVM_GET_API_VERSION returns a value other than 12."
        if kvm.get_api_version() != 12 {
            return Err(PlatformError::Lacks("version 12 of KVM's interface"));
        }
        let needed = [
            (Cap::UserMemory, "user memory in KVM"),
            (Cap::Xsave, "KVM_GET_XSAVE"),
            (Cap::Xcrs, "KVM_GET_XCRS"),
            (Cap::SyncRegs, "registers that KVM shares (KVM_CAP_SYNC_REGS, Linux 4.17)"),
        ];
        if let Some((_, what)) = needed.into_iter().find(|(cap, _)| !kvm.check_extension(*cap)) {
            return Err(PlatformError::Lacks(what));
        }
        bloodhound_frames::init().map_err(|error| PlatformError::Host {
            what: "making the frame store",
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        sys::catch_kicks()?;
        // Before this thread is pinned: a new thread inherits the affinity, and the watchdog's belongs on another processor.
        let watchdog = Watchdog::new(sys::kick)?;
        if let Some(cpu) = cpu {
            sys::pin(cpu)?;
        }
        let mut platform = KvmPlatform {
            spaces: BTreeMap::new(),
            vm: None,
            pool: Pool::new(),
            kvm,
            loaded: None,
            arena: 0,
            changes: Changes::default(),
            watchdog,
            thread: sys::thread_id(),
            abilities: probe::UNKNOWN,
            evictions: 0,
            base_source: BaseSource::None,
            _thread: PhantomData,
        };
        let wrfsbase = probe::wrfsbase(&mut platform)?;
        platform.end_vm();
        platform.base_source = if wrfsbase { BaseSource::Kvm } else { BaseSource::Monitor };
        if !wrfsbase && !probe::bases(&mut platform)? {
            platform.end_vm();
            platform.base_source = BaseSource::None;
        }
        platform.abilities = probe::measure(&mut platform)?;
        Ok(platform)
    }

    fn space(&mut self, id: SpaceId) -> &mut Space {
        self.spaces.entry(id).or_default()
    }

    fn provide_vm(&mut self) -> Result<(), PlatformError> {
        if self.vm.is_none() {
            self.vm = Some(Vm::new(&self.kvm, self.base_source)?);
            self.forget_tables();
        }
        Ok(())
    }

    fn end_vm(&mut self) {
        self.vm = None;
        self.loaded = None;
        self.forget_tables();
    }

    /// Forgets the page tables of all spaces; each space gets new ones when it runs next.
    fn forget_tables(&mut self) {
        self.pool = Pool::new();
        self.changes.clear();
        for space in self.spaces.values_mut() {
            space.tables = None;
        }
    }

    /// Brings the page tables of a space up to date and returns the address of their root. Tables that the processor may have
    /// seen are not written here: what the monitor has to write to them is in `changes` afterwards.
    fn update(&mut self, id: SpaceId) -> Result<u64, PlatformError> {
        for attempt in 0.. {
            self.changes.clear();
            match self.try_update(id) {
                Ok(root) => return Ok(root),
                // Too many changes for the monitor, or no memory for tables: first this space gets new tables, then every space.
                Err(Full) if attempt == 0 => self.space(id).tables = None,
                Err(Full) if attempt == 1 => self.start_over()?,
                Err(Full) if attempt == 2 => {
                    // Its mappings are scattered so widely that their tables alone do not fit. The space is emptied; the
                    // pages that are really used are mapped again when they fault.
                    self.start_over()?;
                    self.space(id).extents.clear();
                }
                Err(Full) => break,
            }
        }
        Err(PlatformError::Internal("the page tables of nothing do not fit"))
    }

    fn try_update(&mut self, id: SpaceId) -> Result<u64, Full> {
        let Some(vm) = &self.vm else { return Err(Full) };
        let space = self.spaces.entry(id).or_default();
        let mut pool = &mut self.pool;
        let tables = match &mut space.tables {
            Some(tables) => tables,
            missing => {
                space.changed.clear();
                space.changed.push((0, GUEST_TOP));
                missing.insert(Tables::new(&vm.low, pool)?)
            }
        };
        if !space.changed.is_empty() {
            tables.update((&vm.low, &mut pool), &space.extents, &space.changed, &mut self.changes)?;
            space.changed.clear();
        }
        Ok(tables.root)
    }

    /// Makes all memory for page tables free again: every space loses its tables, and KVM what it knows of them.
    fn start_over(&mut self) -> Result<(), PlatformError> {
        self.forget_tables();
        self.vm.as_mut().map_or(Ok(()), Vm::clear_tables)
    }

    /// Loads the vector state of the space's owner into the vCPU, unless it is there already.
    fn load_vectors(&mut self, id: SpaceId) -> Result<(), PlatformError> {
        if self.loaded == Some(id) {
            return Ok(());
        }
        self.stash_vectors()?;
        let state = self.space(id).known.clone().unwrap_or_default();
        if let Some(vm) = &self.vm {
            vm.set_xstate(&to_area(&state))?;
        }
        self.loaded = Some(id);
        Ok(())
    }

    /// If the vCPU has the only copy of a vector state, reads it into the space to whose owner it belongs.
    fn stash_vectors(&mut self) -> Result<(), PlatformError> {
        if let Some(space) = self.loaded.and_then(|id| self.spaces.get_mut(&id))
            && space.known.is_none()
            && let Some(vm) = &self.vm
        {
            space.known = Some(from_area(&vm.xstate()?)?);
        }
        Ok(())
    }

    /// Runs the owner of a space until it traps, its budget is spent, or one instruction is done.
    fn go(&mut self, id: SpaceId, task: TaskKey, regs: &mut Regs, mode: Mode) -> Result<Trap, PlatformError> {
        self.spaces
            .get(&id)
            .filter(|space| space.owner == Some(task))
            .ok_or(PlatformError::XStateNotLoaded)?;
        regs.orig_rax = u64::MAX;
        if !canonical(regs.rip) {
            // The monitor's iretq would fault in ring 0. On Linux the application gets a general protection fault in this case.
            return Ok(Trap::Exception(Exception::general_protection(0)));
        }
        let done = self.go_on(id, regs, mode);
        self.watchdog.end();
        done.map_err(|error| self.abandon(id, error))
    }

    /// [`KvmPlatform::go`], after its checks.
    fn go_on(&mut self, id: SpaceId, regs: &mut Regs, mode: Mode) -> Result<Trap, PlatformError> {
        self.provide_vm()?;
        let root = self.update(id)?;
        self.load_vectors(id)?;
        regs.canonical_rflags();
        let before = *regs;
        let Some(vm) = &mut self.vm else { return Err(PlatformError::Internal("no VM")) };
        vm.show_arena(self.arena)?;
        let Some(space) = self.spaces.get_mut(&id) else { return Err(PlatformError::XStateNotLoaded) };
        let how = How { step: mode == Mode::Step, keep_selectors: space.stopped_silently };
        vm.prepare(regs, how, root, &self.changes);
        self.pool.seen();
        space.known = None;
        space.stopped_silently = false;
        let mut kicks = 0;
        // The watchdog counts this as one run, even if instructions are done for the application in between.
        let budget = if let Mode::Run(budget) = mode { budget } else { Budget::SHORT };
        self.watchdog.begin(self.thread, budget);
        loop {
            let exit = leave(vm)?;
            let nudged = self.watchdog.nudged();
            take_general(vm, regs);
            (regs.fs_base, regs.gs_base) = vm.bases();
            let trap = match exit {
                Exit::Kicked => {
                    let vcpu = vm.regs();
                    (regs.rip, regs.rsp, regs.rflags) = (vcpu.rip, vcpu.rsp, vcpu.rflags);
                    if vm.has_interrupted_int3() && is_behind_int3(&space.extents, regs.rip) {
                        regs.rip -= 1;
                    }
                    own_flags(regs, &before, how);
                    if nudged && mode != Mode::Step {
                        space.stopped_silently = true;
                        return Ok(Trap::BudgetSpent);
                    }
                    kicks += 1;
                    if kicks > MOST_KICKS && mode == Mode::Step {
                        // On this host steps do not trap, which `probe::measure` finds out in this way.
                        return Ok(Trap::BudgetSpent);
                    }
                    // The signal was not the watchdog's for this run, or it came before the instruction of a step: go on.
                    go_back(vm, &mut self.changes, regs, how, root);
                    continue;
                }
                exit => {
                    let circumstances = Circumstances {
                        stepped: mode == Mode::Step || before.rflags & TF != 0,
                        umip: vm.umip(),
                        software: !self.abilities.traps_rdtsc,
                    };
                    match trapped(vm, exit, &space.extents, regs, circumstances)? {
                        Some(trap) => trap,
                        None => {
                            own_flags(regs, &before, how);
                            // The kick may have come while the vCPU did not run; then KVM_RUN was not interrupted by it.
                            if nudged {
                                space.stopped_silently = true;
                                return Ok(Trap::BudgetSpent);
                            }
                            // The instruction was done for the application. A step executes the next one as well, as on Linux.
                            go_back(vm, &mut self.changes, regs, how, root);
                            continue;
                        }
                    }
                }
            };
            regs.canonical_rflags();
            if mode == Mode::Step {
                space.stopped_silently = trap == Trap::Step;
                x86::hide_step(&space.extents, &before, regs, trap);
            }
            return Ok(trap);
        }
    }

    /// Gives up the virtual machine after an error in `id`. State of applications that only the vCPU had is lost with it, so
    /// the spaces that it belonged to have no owner any more. Adds the instruction's bytes to the error where they are known.
    fn abandon(&mut self, id: SpaceId, error: PlatformError) -> PlatformError {
        // Besides `id`, this may be the space whose vector state only the vCPU had.
        if let Some(space) = self.loaded.and_then(|id| self.spaces.get_mut(&id)) {
            space.owner = space.owner.filter(|_| space.known.is_some());
        }
        self.end_vm();
        let Some(space) = self.spaces.get_mut(&id) else { return error };
        space.owner = None;
        match error {
            PlatformError::Vm { what, rip, .. } => {
                let mut code = vec![0; decode::MAX_INSTRUCTION];
                let len = space.extents.read(rip, &mut code);
                code.truncate(len);
                PlatformError::Vm { what, rip, code }
            }
            other => other,
        }
    }
}

/// Whether the instruction before this address is an int3, and the one there is not.
///
/// This does not decide it where two of them follow each other: behind an int3 in place of an instruction of one byte another one may stand.
/// A task would have to be kicked just there.
fn is_behind_int3(memory: &Extents, rip: u64) -> bool {
    const INT3: u8 = 0xcc;
    let mut code = [0; 2];
    rip > 0 && memory.read(rip - 1, &mut code) == 2 && code[0] == INT3 && code[1] != INT3
}

impl Platform for KvmPlatform {
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
        for &mapping in mappings {
            let bytes = u64::from(mapping.pages) * PAGE;
            assert!(
                mapping.addr.is_multiple_of(PAGE)
                    && mapping.frame_offset.is_multiple_of(PAGE)
                    && mapping.pages > 0
                    && mapping.addr.saturating_add(bytes) <= GUEST_TOP,
                "a mapping that is no run of guest pages"
            );
            for part in mapping.frame_offset / ARENA_SLOT..=(mapping.frame_offset + bytes - 1) / ARENA_SLOT {
                self.arena |= 1 << part;
            }
            let space = self.space(space);
            space.extents.insert(&mapping);
            space.note(mapping.addr, bytes);
        }
    }

    fn unmap(&mut self, space: SpaceId, addr: u64, len: u64) {
        assert!(addr.is_multiple_of(PAGE) && len.is_multiple_of(PAGE), "unmap of parts of pages");
        let len = len.min(GUEST_TOP.saturating_sub(addr));
        let space = self.space(space);
        if len > 0 && space.extents.touches(addr, len) {
            space.extents.remove(addr, len);
            space.note(addr, len);
        }
    }

    fn write_protect(&mut self, space: SpaceId) {
        let space = self.space(space);
        let mut extents = std::mem::take(&mut space.extents);
        extents.write_protect(|addr, len, _| space.note(addr, len));
        space.extents = extents;
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
        if self.loaded == Some(space) {
            self.stash_vectors()?;
        }
        let Some(space) = self.spaces.get(&space) else { return Ok(None) };
        Ok(space.owner.zip(space.known.clone()))
    }

    fn load_xstate(&mut self, space: SpaceId, task: TaskKey, state: &XState) -> Result<(), PlatformError> {
        let loaded = self.loaded == Some(space);
        let target = self.space(space);
        let kept = loaded && target.known.as_ref() == Some(state);
        target.stopped_silently &= target.owner == Some(task);
        target.owner = Some(task);
        target.known = Some(state.clone());
        if loaded && !kept {
            self.loaded = None;
        }
        Ok(())
    }

    fn reset_space(&mut self, space: SpaceId) {
        if let Some(space) = self.spaces.get_mut(&space) {
            *space = Space::default();
        }
        self.unload(space);
    }

    fn drop_space(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
        self.unload(space);
    }

    fn processor_time(&self, _: SpaceId) -> Option<Duration> {
        // The virtual processor runs on the thread that asks.
        processor_time("thread-self")
    }

    fn evict_all(&mut self) {
        self.spaces.clear();
        self.loaded = None;
        self.evictions += 1;
        if self.evictions.is_multiple_of(EVICTIONS_OF_A_VM) {
            self.end_vm();
        }
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }
}

impl KvmPlatform {
    fn unload(&mut self, space: SpaceId) {
        if self.loaded == Some(space) {
            self.loaded = None;
        }
    }
}

impl Space {
    /// Notes that a range of pages has changed.
    fn note(&mut self, addr: u64, len: u64) {
        if let Some((start, bytes)) = self.changed.last_mut()
            && *start + *bytes == addr
        {
            *bytes += len;
        } else if self.changed.len() < MOST_RANGES {
            self.changed.push((addr, len));
        } else {
            // This many changes gather if a space is changed again and again and does not run in between.
            self.changed.clear();
            self.changed.push((0, GUEST_TOP));
        }
    }
}

/// Runs the vCPU until it exits for another reason than a kick while the monitor ran.
fn leave(vm: &mut Vm) -> Result<Exit, PlatformError> {
    for _ in 0..=MOST_KICKS {
        match vm.run()? {
            Exit::KickedInMonitor => {}
            exit => return Ok(exit),
        }
    }
    Err(vm.stuck())
}

/// The trap that an exit other than a kick means. `None` if the VMM has done the instruction for the application instead, which
/// runs on behind it.
fn trapped(
    vm: &Vm,
    exit: Exit,
    memory: &Extents,
    regs: &mut Regs,
    circumstances: Circumstances,
) -> Result<Option<Trap>, PlatformError> {
    Ok(match exit {
        Exit::Syscall => {
            regs.rsp = vm.rsp_of_syscall();
            Some(classify::syscall(regs))
        }
        Exit::Compat { rip, rsp } => {
            (regs.rip, regs.rsp) = (rip, rsp);
            Some(Trap::Unsupported(Unsupported::Compat))
        }
        Exit::Trap(frame) => {
            (regs.rip, regs.rsp, regs.rflags) = (frame.rip, frame.rsp, frame.rflags);
            match classify(&frame, memory, regs, circumstances)? {
                Meaning::Trap(trap) => Some(trap),
                Meaning::Done => None,
            }
        }
        Exit::Kicked | Exit::KickedInMonitor => return Err(PlatformError::Internal("a kick is no trap")),
    })
}

/// Clears the trap flag that a step has set in an application's registers, unless the application had set it itself before.
fn own_flags(regs: &mut Regs, before: &Regs, how: How) {
    regs.canonical_rflags();
    if how.step && before.rflags & TF == 0 {
        regs.rflags &= !TF;
    }
}

/// Prepares to go back to application code that was stopped without a trap of its own: its selectors are kept.
fn go_back(vm: &mut Vm, changes: &mut Changes, regs: &Regs, how: How, root: u64) {
    changes.clear();
    vm.prepare(regs, How { keep_selectors: true, ..how }, root, changes);
}

/// Copies the general registers after an exit. Not rip, rsp and rflags: if the monitor made the exit those are the monitor's.
fn take_general(vm: &mut Vm, r: &mut Regs) {
    let v = vm.regs();
    (r.rax, r.rbx, r.rcx, r.rdx) = (v.rax, v.rbx, v.rcx, v.rdx);
    (r.rsi, r.rdi, r.rbp) = (v.rsi, v.rdi, v.rbp);
    (r.r8, r.r9, r.r10, r.r11) = (v.r8, v.r9, v.r10, v.r11);
    (r.r12, r.r13, r.r14, r.r15) = (v.r12, v.r13, v.r14, v.r15);
}

fn to_area(state: &XState) -> kvm_xsave {
    let mut area = kvm_xsave::default();
    for (word, bytes) in area.region.iter_mut().zip(state.area().chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    area
}

fn from_area(area: &kvm_xsave) -> Result<XState, PlatformError> {
    let mut bytes = [0; 4096];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(area.region) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    XState::from_area(&bytes).ok_or(PlatformError::Internal("a short XSAVE area"))
}

#[cfg(test)]
mod tests;
