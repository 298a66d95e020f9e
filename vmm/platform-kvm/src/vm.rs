//! The virtual machine ([`Vm`]): one vCPU, memory slots, and the way to application code and back.
//!
//! To enter application code, the VMM puts the application's general registers into KVM's sync area (memory from which KVM_RUN
//! loads the vCPU's registers, and to which it stores them), and rip, rflags and rsp into the frame that the monitor's `iretq`
//! pops.
//! When the application traps, the monitor executes `out`, which makes KVM_RUN return. The registers are in the sync area then;
//! for anything but a system call, what the processor pushed at the trap is on the monitor's stack. In the usual case KVM_RUN is
//! the only ioctl on this path.

use bloodhound_platform::{PlatformError, Regs};
use kvm_bindings::{
    KVM_CAP_DISABLE_QUIRKS2, KVM_X86_QUIRK_FIX_HYPERCALL_INSN, Msrs, kvm_dtable, kvm_enable_cap,
    kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region, kvm_vcpu_events, kvm_xcrs,
    kvm_xsave,
};
use kvm_ioctls::{Kvm, SyncReg, VcpuExit, VcpuFd, VmFd};

use crate::cpuid;
use crate::layout::{
    ARENA, ARENA_SLOT, BASES, FRAME, GDT, IDT, KERNEL_CS, KERNEL_SS, LOW_END, MONITOR_BASE, PORT_COMPAT,
    PORT_SYSCALL, PORT_TRAP, REPORTED_BASES, SAVED, SCRATCH, SELECTORS, SLOT_ARENA, SLOT_MONITOR,
    SLOT_TABLES, STALE, TABLES, TRAP_STACK_TOP, TSS, TSS_LIMIT, TSS_SELECTOR, USER_CS, USER_SS, USER32_CS,
    WRITES,
};
use crate::memory::Low;
use crate::monitor::{GDT_LIMIT, Monitor};
use crate::segments::BaseSource;
use crate::software;
use crate::sys;
use crate::tables::Changes;

const RFLAGS_FIXED: u64 = 2;
const RFLAGS_TF: u64 = 1 << 8;

const CR0: u64 = 1 << 31 | 1 << 18 | 1 << 16 | 1 << 5 | 1 << 4 | 1 << 1 | 1; // PG AM WP NE ET MP PE
const CR4: u64 = 1 << 2 | 1 << 5 | 1 << 9 | 1 << 10 | 1 << 18; // TSD PAE OSFXSR OSXMMEXCPT OSXSAVE
const EFER: u64 = 1 | 1 << 8 | 1 << 10 | 1 << 11; // SCE LME LMA NXE
/// x87, SSE, AVX.
const XCR0: u64 = 7;

const MSR_STAR: u32 = 0xc000_0081;
const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_CSTAR: u32 = 0xc000_0083;
const MSR_FMASK: u32 = 0xc000_0084;
const MSR_PLATFORM_INFO: u32 = 0xce;
const MSR_MISC_FEATURES: u32 = 0x140;
/// MSR_PLATFORM_INFO: cpuid faulting exists. MSR_MISC_FEATURES: it is on.
const CPUID_FAULTING: (u64, u64) = (1 << 31, 1);
/// Cleared by SYSCALL: TF, IF, DF, IOPL, NT, RF, AC, ID, arithmetic flags.
const FMASK: u64 = 0x25_7fd5;

/// What the processor pushed at a trap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrapFrame {
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    /// For page faults.
    pub cr2: u64,
}

/// How to go to application code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Stop after one instruction.
    pub step: bool,
    /// Keep the segment selectors that the application has loaded, as it was stopped without a trap of its own.
    pub keep_selectors: bool,
}

/// Why application code stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    /// SYSCALL; rcx and r11 hold rip and rflags.
    Syscall,
    /// The application executed 32-bit code: its rip and rsp.
    Compat { rip: u64, rsp: u64 },
    /// An exception.
    Trap(TrapFrame),
    /// KVM_RUN was interrupted while it ran application code.
    Kicked,
    /// KVM_RUN was interrupted while the monitor ran, or while an exception was on its way to the monitor. KVM_RUN is to be
    /// called again with nothing changed.
    KickedInMonitor,
}

/// One virtual machine with its vCPU.
pub(crate) struct Vm {
    vm: VmFd,
    vcpu: VcpuFd,
    pub low: Low,
    monitor: Monitor,
    /// The system registers with which the monitor can be entered.
    kernel: kvm_sregs,
    /// The vCPU was stopped in application code (by a kick), or has no page tables: before the monitor can be entered, `kernel`
    /// has to be loaded.
    in_user: bool,
    /// Which parts of the frame store the vCPU can access, a bit each.
    shown: u64,
    /// The root of the page tables that the vCPU uses; 0: none.
    root: u64,
    /// The bases of fs and gs, as far as they are known ([`BaseSource`]).
    bases: (u64, u64),
    base_source: BaseSource,
    syscall_rsp: u64,
    /// The delivery of an int3 was interrupted by the last kick.
    interrupted_int3: bool,
    /// The last exception was an int3, and KVM may still have its vector ([`Vm::kicked`]).
    delivered_int3: bool,
}

/// The vector of int3.
const BREAKPOINT: u8 = 3;

impl Vm {
    pub fn new(kvm: &Kvm, base_source: BaseSource) -> Result<Vm, PlatformError> {
        sys::clear_selectors();
        let vm = kvm.create_vm().map_err(sys::kvm("KVM_CREATE_VM"))?;
        // By default KVM rewrites the hypercall instruction of the other vendor's processors in the guest's code. Here it is to
        // be an invalid opcode. Where KVM does not know this setting, the only consequence is a page fault on the code.
        let quirks = kvm_enable_cap {
            cap: KVM_CAP_DISABLE_QUIRKS2,
            args: [u64::from(KVM_X86_QUIRK_FIX_HYPERCALL_INSN), 0, 0, 0],
            ..kvm_enable_cap::default()
        };
        let _ = vm.enable_cap(&quirks);
        let low = Low::new()?;
        let monitor = Monitor::load(&low, base_source == BaseSource::Monitor)?;
        let vcpu = vm.create_vcpu(0).map_err(sys::kvm("KVM_CREATE_VCPU"))?;
        let mut machine = Vm {
            vm,
            vcpu,
            low,
            monitor,
            kernel: kvm_sregs::default(),
            in_user: true,
            shown: 0,
            root: 0,
            bases: (0, 0),
            base_source,
            syscall_rsp: 0,
            interrupted_int3: false,
            delivered_int3: false,
        };
        machine.slot(SLOT_MONITOR, 0, TABLES)?;
        machine.slot(SLOT_TABLES, TABLES, LOW_END - TABLES)?;
        machine.set_up_vcpu(kvm)?;
        Ok(machine)
    }

    /// Makes a part of low memory accessible to the vCPU as a memory slot, or with a size of 0 removes the slot.
    fn slot(&self, slot: u32, at: u64, size: u64) -> Result<(), PlatformError> {
        let region = kvm_userspace_memory_region {
            slot,
            flags: 0,
            guest_phys_addr: at,
            memory_size: size,
            userspace_addr: self.low.host_address(at),
        };
        // SAFETY: the memory lives as long as the Vm, whose fields are dropped in order: KVM's first.
        unsafe { self.vm.set_user_memory_region(region) }.map_err(sys::kvm("KVM_SET_USER_MEMORY_REGION"))
    }

    /// Makes the parts of the frame store whose bits are set in `parts` accessible to the vCPU.
    pub fn show_arena(&mut self, parts: u64) -> Result<(), PlatformError> {
        let (base, size) = bloodhound_frames::arena_region();
        let mut missing = parts & !self.shown;
        while missing != 0 {
            let part = u64::from(missing.trailing_zeros());
            missing &= missing - 1;
            let at = part * ARENA_SLOT;
            let region = kvm_userspace_memory_region {
                slot: SLOT_ARENA + part as u32,
                flags: 0,
                guest_phys_addr: ARENA + at,
                memory_size: ARENA_SLOT.min((size as u64).saturating_sub(at)),
                userspace_addr: base.as_ptr() as u64 + at,
            };
            // SAFETY: the arena is mapped as long as the process lives. The application code that writes to it
            // obeys the rule in the frame store's text: only what a world may write is mapped writable.
            unsafe { self.vm.set_user_memory_region(region) }
                .map_err(sys::kvm("KVM_SET_USER_MEMORY_REGION"))?;
            self.shown |= 1 << part;
        }
        Ok(())
    }

    /// Makes KVM forget all page tables, and fills their memory with zeros.
    pub fn clear_tables(&mut self) -> Result<(), PlatformError> {
        self.slot(SLOT_TABLES, TABLES, 0)?;
        self.low.clear_tables()?;
        self.slot(SLOT_TABLES, TABLES, LOW_END - TABLES)?;
        // Not even the monitor is mapped any more, so it cannot load the next root. That is loaded with the system registers.
        self.root = 0;
        self.in_user = true;
        Ok(())
    }

    fn set_up_vcpu(&mut self, kvm: &Kvm) -> Result<(), PlatformError> {
        let ids = cpuid::entries(kvm)?;
        self.vcpu.set_cpuid2(&ids).map_err(sys::kvm("KVM_SET_CPUID2"))?;
        let mut sregs = self.vcpu.get_sregs().map_err(sys::kvm("KVM_GET_SREGS"))?;
        kernel_state(&mut sregs);
        sregs.cr4 |= cpuid::protections(&ids);
        self.vcpu.set_sregs(&sregs).map_err(sys::kvm("KVM_SET_SREGS"))?;
        self.kernel = sregs;
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
        xcrs.xcrs[0].value = XCR0;
        self.vcpu.set_xcrs(&xcrs).map_err(sys::kvm("KVM_SET_XCRS"))?;
        let star = u64::from(KERNEL_CS) << 32 | u64::from(USER32_CS) << 48;
        for (index, data) in [
            (MSR_STAR, star),
            (MSR_LSTAR, self.monitor.syscall_entry),
            (MSR_CSTAR, self.monitor.compat_entry),
            (MSR_FMASK, FMASK),
        ] {
            if !self.set_msr(index, data)? {
                return Err(PlatformError::Host { what: "KVM_SET_MSRS", errno: libc::EINVAL });
            }
        }
        // If KVM does not offer cpuid faulting, `cpuid` does not trap, which `probe::measure` finds out.
        let _ = self.set_msr(MSR_PLATFORM_INFO, CPUID_FAULTING.0)?
            && self.set_msr(MSR_MISC_FEATURES, CPUID_FAULTING.1)?;
        self.vcpu.set_sync_valid_reg(SyncReg::Register);
        if self.base_source == BaseSource::Kvm {
            self.vcpu.set_sync_valid_reg(SyncReg::SystemRegister);
        }
        Ok(())
    }

    /// Sets an MSR of the vCPU. False if KVM refuses.
    fn set_msr(&self, index: u32, data: u64) -> Result<bool, PlatformError> {
        let entry = kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
        let msrs =
            Msrs::from_entries(&[entry]).map_err(|_| PlatformError::Internal("one MSR is too many"))?;
        Ok(self.vcpu.set_msrs(&msrs).map_err(sys::kvm("KVM_SET_MSRS"))? == 1)
    }

    /// Prepares the next KVM_RUN: the monitor makes `changes` to the page tables, switches to those at `root`, and enters
    /// application code with `regs`. Of the monitor's entries `resume_keeping`, `resume` and `apply` the shortest that suffices
    /// is taken.
    pub fn prepare(&mut self, regs: &Regs, how: How, root: u64, changes: &Changes) {
        let trap_flag = if how.step { RFLAGS_TF } else { 0 };
        let frame = [regs.rip, u64::from(USER_CS), regs.rflags | trap_flag, regs.rsp, u64::from(USER_SS)];
        for (at, value) in (FRAME..).step_by(8).zip(frame) {
            self.low.write(at, value);
        }
        let bases = (regs.fs_base, regs.gs_base);
        if self.in_user {
            let keep = how.keep_selectors && bases == self.bases;
            self.enter_kernel(root, bases, keep);
        }
        let plain = changes.is_empty() && root == self.root;
        // Selectors need not be cleared either if they are known to be null already.
        let keep = how.keep_selectors || self.selectors_are_clear();
        let keep = keep && bases == self.bases;
        let mut vcpu = general(regs);
        (vcpu.rip, vcpu.rsp, vcpu.rflags) = (self.monitor.resume_keeping, MONITOR_BASE + FRAME, RFLAGS_FIXED);
        if !plain || !keep {
            for (at, value) in
                (SCRATCH..).step_by(8).zip([regs.r10, regs.r9, regs.r8, regs.rdx, regs.rcx, regs.rax])
            {
                self.low.write(at, value);
            }
            self.low.write(BASES, bases.0);
            self.low.write(BASES + 8, bases.1);
            self.bases = bases;
            (vcpu.rip, vcpu.rsp) = (self.monitor.resume, MONITOR_BASE + FRAME - 3 * 8);
        }
        if !plain {
            self.write_changes(changes);
            (vcpu.rip, vcpu.rsp) = (self.monitor.apply, MONITOR_BASE + SCRATCH);
            vcpu.r8 = changes.writes.len() as u64;
            vcpu.r9 = if changes.flush { 0 } else { changes.stale.len() as u64 };
            vcpu.r10 = if changes.flush || root != self.root { root } else { 0 };
            self.root = root;
        }
        self.vcpu.sync_regs_mut().regs = vcpu;
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
    }

    /// Writes what the monitor's `apply` is to do to where it reads it.
    fn write_changes(&self, changes: &Changes) {
        for (at, &(entry, value)) in (WRITES..).step_by(16).zip(&changes.writes) {
            self.low.write(at, entry);
            self.low.write(at + 8, value);
        }
        for (at, &addr) in (STALE..).step_by(8).zip(&changes.stale) {
            self.low.write(at, addr);
        }
    }

    /// Sets the vCPU's system registers to those of ring 0, with the page tables at `root`. Unless `keep` is set, the bases of fs
    /// and gs become `bases`. With `keep` they stay what they were when the vCPU was kicked: the effect of loading a selector
    /// lasts until the application's next trap, whether or not the watchdog kicks the vCPU before that.
    fn enter_kernel(&mut self, root: u64, bases: (u64, u64), keep: bool) {
        (self.root, self.bases) = (root, bases);
        self.kernel.cr3 = root;
        if !keep {
            (self.kernel.fs.base, self.kernel.gs.base) = bases;
        }
        self.vcpu.sync_regs_mut().sregs = self.kernel;
        self.vcpu.set_sync_dirty_reg(SyncReg::SystemRegister);
        self.in_user = false;
    }

    /// Runs the vCPU, after [`Vm::prepare`], until the application traps or KVM_RUN is interrupted.
    pub fn run(&mut self) -> Result<Exit, PlatformError> {
        if std::mem::take(&mut self.delivered_int3) {
            // Nothing is on its way to the vCPU when the monitor has exited.
            self.vcpu.sync_regs_mut().events = kvm_vcpu_events::default();
            self.vcpu.set_sync_dirty_reg(SyncReg::VcpuEvents);
        }
        let port = match self.vcpu.run() {
            Ok(VcpuExit::IoOut(port, _)) => port,
            Ok(VcpuExit::InternalError) => {
                let what = self.internal_error();
                return Err(self.failed(what));
            }
            Ok(VcpuExit::Shutdown) => {
                // KVM has reset the vCPU by then. Only the rip at which application code was entered is still known.
                let (what, rip) = ("a triple fault, after the entry".to_owned(), self.low.read(FRAME));
                return Err(PlatformError::Vm { what, rip, code: Vec::new() });
            }
            Ok(VcpuExit::MmioRead(at, _) | VcpuExit::MmioWrite(at, _)) => {
                let what = format!("an access to guest-physical address {at:#x}, where there is no memory");
                return Err(self.failed(what));
            }
            Ok(VcpuExit::FailEntry(reason, _)) => {
                return Err(self.failed(format!("KVM cannot enter the guest (hardware reason {reason:#x})")));
            }
            // "EFAULT", "EHWPOISON": the host cannot provide the memory behind a page.
            Ok(VcpuExit::MemoryFault { .. }) => return Err(PlatformError::HostMemory),
            Ok(other) => {
                let what = format!("KVM stopped with {other:?}");
                return Err(self.failed(what));
            }
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {
                return self.kicked();
            }
            Err(error) if matches!(error.errno(), libc::EFAULT | libc::ENOMEM | libc::EHWPOISON) => {
                return Err(PlatformError::HostMemory);
            }
            Err(error) => {
                let what = format!("KVM_RUN: {error}");
                return Err(self.failed(what));
            }
        };
        if self.base_source == BaseSource::Monitor {
            self.take_report();
        }
        match port {
            PORT_SYSCALL => {
                self.syscall_rsp = self.vcpu.sync_regs_mut().regs.rsp;
                Ok(Exit::Syscall)
            }
            PORT_COMPAT => {
                let regs = &self.vcpu.sync_regs_mut().regs;
                Ok(Exit::Compat { rip: regs.rcx, rsp: regs.rsp })
            }
            PORT_TRAP => self.trap(),
            _ => Err(self.failed(format!("an exit by port {port:#x}"))),
        }
    }

    /// Reads what a reporting entry of the monitor has stored: the application's registers that the entry itself uses, and the
    /// segment bases.
    fn take_report(&mut self) {
        let word = |n: u64| self.low.read(SAVED + 8 * n);
        let saved = [word(0), word(1), word(2)];
        self.bases = (self.low.read(REPORTED_BASES), self.low.read(REPORTED_BASES + 8));
        let regs = &mut self.vcpu.sync_regs_mut().regs;
        [regs.rax, regs.rcx, regs.rdx] = saved;
    }

    /// Whether the kick that [`Exit::Kicked`] tells of has interrupted the delivery of an int3. On some hosts the application's rip is
    /// behind it then.
    pub fn has_interrupted_int3(&self) -> bool {
        self.interrupted_int3
    }

    /// The exit when KVM_RUN was interrupted by a signal.
    fn kicked(&mut self) -> Result<Exit, PlatformError> {
        if self.vcpu.sync_regs_mut().regs.rip >= MONITOR_BASE {
            return Ok(Exit::KickedInMonitor);
        }
        // If an exception is about to be delivered to the monitor, it must be delivered first: KVM would otherwise raise it in
        // whatever the vCPU is prepared to run next.
        let events = self.vcpu.get_vcpu_events().map_err(sys::kvm("KVM_GET_VCPU_EVENTS"))?;
        if events.exception.injected != 0 || events.exception.pending != 0 {
            return Ok(Exit::KickedInMonitor);
        }
        // KVM does not tell of an int3 whose delivery was interrupted, but for its vector (kvm_vcpu_ioctl_x86_get_vcpu_events of Linux),
        // and would still deliver it, wherever the vCPU goes on. Setting the events makes KVM forget it. The vector is not that of an earlier
        // int3: `run` has made KVM forget those.
        self.interrupted_int3 = events.exception.nr == BREAKPOINT;
        let mut forgotten = events;
        forgotten.exception.nr = 0;
        self.vcpu.set_vcpu_events(&forgotten).map_err(sys::kvm("KVM_SET_VCPU_EVENTS"))?;
        // To get back to ring 0 the system registers have to be loaded. In them, the selectors that the application has
        // loaded are kept.
        let now = self.vcpu.get_sregs().map_err(sys::kvm("KVM_GET_SREGS"))?;
        (self.kernel.ds, self.kernel.es, self.kernel.fs, self.kernel.gs) = (now.ds, now.es, now.fs, now.gs);
        self.in_user = true;
        if self.base_source == BaseSource::Monitor {
            // The monitor has not run, so it has reported nothing.
            self.bases = (now.fs.base, now.gs.base);
            let selectors = [now.ds, now.es, now.fs, now.gs].map(|segment| u64::from(segment.selector));
            self.low.write(SELECTORS, selectors.iter().rev().fold(0, |word, selector| word << 16 | selector));
        }
        let regs = &self.vcpu.sync_regs_mut().regs;
        let compat = Exit::Compat { rip: regs.rip, rsp: regs.rsp };
        Ok(if now.cs.selector == USER_CS { Exit::Kicked } else { compat })
    }

    /// The exit when the monitor has forwarded an exception: what the processor and the monitor's entry pushed.
    fn trap(&mut self) -> Result<Exit, PlatformError> {
        let word = |n: u64| self.low.read(TRAP_STACK_TOP - 8 * n);
        let frame = TrapFrame {
            rsp: word(2),
            rflags: word(3),
            cs: word(4),
            rip: word(5),
            error: word(6),
            vector: word(7),
            cr2: word(8),
        };
        self.delivered_int3 = frame.vector == u64::from(BREAKPOINT);
        let called = software::is_syscall(&frame);
        // A software KVM reports SYSCALL as a page fault ([`software::is_syscall`]): in 32-bit code at CSTAR's lower 32 bits.
        if called && frame.rip == self.monitor.compat_entry & 0xffff_ffff {
            let rip = self.vcpu.sync_regs_mut().regs.rcx;
            return Ok(Exit::Compat { rip, rsp: frame.rsp });
        }
        if frame.cs & 3 == 0 {
            let what = format!(
                "exception {} (error code {:#x}, cr2 {:#x}) in the monitor",
                frame.vector, frame.error, frame.cr2
            );
            return Err(PlatformError::Vm { what, rip: frame.rip, code: Vec::new() });
        }
        if called && frame.rip == self.monitor.syscall_entry {
            self.syscall_rsp = frame.rsp;
            return Ok(Exit::Syscall);
        }
        Ok(Exit::Trap(frame))
    }

    /// The error when the monitor runs on and on without an exit.
    pub fn stuck(&mut self) -> PlatformError {
        self.failed("ring 0 does not come to an end".to_owned())
    }

    /// Describes a KVM_EXIT_INTERNAL_ERROR (Documentation/virt/kvm/api.rst of Linux).
    fn internal_error(&mut self) -> String {
        // SAFETY: after KVM_EXIT_INTERNAL_ERROR this is the member of the union that KVM has filled; plain integers.
        let error = unsafe { self.vcpu.get_kvm_run().__bindgen_anon_1.internal };
        let kind = match error.suberror {
            1 => "it could not emulate an instruction",
            2 => "exceptions at the same time",
            3 => "it could not deliver an event",
            4 => "an exit that it does not know",
            _ => "unknown",
        };
        let data: Vec<String> =
            error.data.iter().take(error.ndata as usize).map(|d| format!("{d:#x}")).collect();
        format!("KVM internal error {} ({kind}), data [{}]", error.suberror, data.join(", "))
    }

    /// An error of the virtual machine at the vCPU's present rip.
    fn failed(&mut self, what: String) -> PlatformError {
        PlatformError::Vm { what, rip: self.vcpu.sync_regs_mut().regs.rip, code: Vec::new() }
    }

    /// Whether the last exit reported that the data selectors are all null.
    fn selectors_are_clear(&mut self) -> bool {
        match self.base_source {
            BaseSource::None => false,
            BaseSource::Monitor => self.low.read(SELECTORS) == 0,
            BaseSource::Kvm => {
                let sregs = &self.vcpu.sync_regs_mut().sregs;
                sregs.ds.selector | sregs.es.selector | sregs.fs.selector | sregs.gs.selector == 0
            }
        }
    }

    /// The bases of fs and gs as the application has them.
    pub fn bases(&mut self) -> (u64, u64) {
        if self.base_source == BaseSource::Kvm {
            let sregs = &self.vcpu.sync_regs_mut().sregs;
            self.bases = (sregs.fs.base, sregs.gs.base);
        }
        self.bases
    }

    /// Whether UMIP is on: `sgdt`, `sidt`, `sldt`, `str` and `smsw` trap in application code.
    pub fn umip(&self) -> bool {
        self.kernel.cr4 & cpuid::UMIP.1 != 0
    }

    /// The application's rsp, after [`Exit::Syscall`].
    pub fn rsp_of_syscall(&self) -> u64 {
        self.syscall_rsp
    }

    /// The general registers of the last exit.
    pub fn regs(&mut self) -> &kvm_regs {
        &self.vcpu.sync_regs_mut().regs
    }

    /// The x87, SSE and AVX state.
    pub fn xstate(&self) -> Result<kvm_xsave, PlatformError> {
        self.vcpu.get_xsave().map_err(sys::kvm("KVM_GET_XSAVE"))
    }

    /// Sets the x87, SSE and AVX state.
    pub fn set_xstate(&self, area: &kvm_xsave) -> Result<(), PlatformError> {
        // SAFETY: a whole kvm_xsave of 4096 bytes; larger areas need features that no thread of ours asked for.
        unsafe { self.vcpu.set_xsave(area) }.map_err(sys::kvm("KVM_SET_XSAVE"))
    }
}

/// The application's general registers for the vCPU, without rip, rsp and rflags, which the frame for `iretq` holds.
fn general(r: &Regs) -> kvm_regs {
    kvm_regs {
        rax: r.rax,
        rbx: r.rbx,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        rbp: r.rbp,
        r8: r.r8,
        r9: r.r9,
        r10: r.r10,
        r11: r.r11,
        r12: r.r12,
        r13: r.r13,
        r14: r.r14,
        r15: r.r15,
        ..kvm_regs::default()
    }
}

/// Sets system registers for 64-bit mode in ring 0, with the monitor's descriptor tables.
fn kernel_state(sregs: &mut kvm_sregs) {
    let flat = kvm_segment { limit: u32::MAX, present: 1, s: 1, g: 1, ..kvm_segment::default() };
    // Types: 11 code, readable, accessed; 3 data, writable, accessed. As a task segment 11 is a busy 64-bit one.
    sregs.cs = kvm_segment { selector: KERNEL_CS, type_: 11, l: 1, ..flat };
    sregs.ss = kvm_segment { selector: KERNEL_SS, type_: 3, db: 1, ..flat };
    let null = kvm_segment { unusable: 1, ..kvm_segment::default() };
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ldt) = (null, null, null, null, null);
    sregs.tr = kvm_segment {
        base: MONITOR_BASE + TSS,
        limit: TSS_LIMIT,
        selector: TSS_SELECTOR,
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    };
    sregs.gdt = kvm_dtable { base: MONITOR_BASE + GDT, limit: GDT_LIMIT, ..kvm_dtable::default() };
    sregs.idt = kvm_dtable { base: MONITOR_BASE + IDT, limit: 0xfff, ..kvm_dtable::default() };
    (sregs.cr0, sregs.cr4, sregs.efer) = (CR0, CR4, EFER);
}
