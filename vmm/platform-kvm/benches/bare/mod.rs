//! The smallest virtual machine that takes a system call of ring 3 and goes back ([`Bare`]): no bookkeeping at all.
//!
//! Registers go through KVM's sync area, the way back to ring 3 is `iretq`, as in the platform. A software KVM does not
//! leave ring 3 by SYSCALL but by the page fault of LSTAR's page, so there is a gate for that.

use kvm_bindings::{Msrs, kvm_dtable, kvm_msr_entry, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, SyncReg, VcpuExit, VcpuFd, VmFd};

const SIZE: usize = 0x20_0000;
const PML4: u64 = 0x1000;
const TABLES: [u64; 3] = [0x2000, 0x3000, 0x4000];
const GDT: u64 = 0x5000;
const IDT: u64 = 0x6000;
const TSS: u64 = 0x7000;
const STACK_TOP: u64 = 0x9000;
const FRAME: u64 = 0x9000;
/// `out`; `iretq`; a loop of `out`; the gate.
const KERNEL: u64 = 0xa000;
const IRETQ: u64 = KERNEL + 0x10;
const LOOP: u64 = KERNEL + 0x20;
const GATE: u64 = KERNEL + 0x30;
const USER: u64 = 0xb000;
const FREE_PAGE: u64 = 0xc000;

/// See the module's text.
pub struct Bare {
    vcpu: VcpuFd,
    _vm: VmFd,
    memory: *mut u8,
    in_loop: bool,
}

impl Bare {
    /// Sets it up.
    pub fn new() -> Bare {
        let kvm = Kvm::new().expect("/dev/kvm");
        let vm = kvm.create_vm().expect("a VM");
        // SAFETY: a new mapping, which nothing else knows; it lives until the process ends.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let region = kvm_userspace_memory_region {
            memory_size: SIZE as u64,
            userspace_addr: memory as u64,
            ..kvm_userspace_memory_region::default()
        };
        // SAFETY: the mapping above, of this size.
        unsafe { vm.set_user_memory_region(region) }.expect("memory");
        let vcpu = vm.create_vcpu(0).expect("a vCPU");
        vcpu.set_cpuid2(&kvm.get_supported_cpuid(100).expect("cpuid")).expect("cpuid");
        let mut bare = Bare { vcpu, _vm: vm, memory: memory.cast(), in_loop: false };
        bare.fill();
        bare.start();
        bare
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= SIZE);
        // SAFETY: in bounds; the vCPU does not run now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.add(at as usize), bytes.len()) };
    }

    fn word(&self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    fn fill(&self) {
        // The first pages as they are; those of ring 3 are the user's.
        for (table, next) in [(PML4, TABLES[0]), (TABLES[0], TABLES[1]), (TABLES[1], TABLES[2])] {
            self.word(table, next | 7);
        }
        for page in 0..16u64 {
            let user = if page << 12 == USER { 4 } else { 0 };
            self.word(TABLES[2] + 8 * page, page << 12 | 0x63 | user);
        }
        let (code, data, user) = (0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 3 << 45);
        let tss = 0x67 | TSS << 16 | 0x8b << 40;
        for (n, entry) in (0..).zip([0, 0, code, data, 0, data | user, code | user, 0, tss, 0]) {
            self.word(GDT + 8 * n, entry);
        }
        self.write(TSS + 4, &STACK_TOP.to_le_bytes());
        self.word(IDT + 14 * 16, GATE & 0xffff | 0x10 << 16 | 0x8e << 40);
        self.write(KERNEL, b"\xe6\x10");
        self.write(IRETQ, b"\x48\xcf");
        self.write(LOOP, b"\xe6\x10\xeb\xfc");
        self.write(GATE, b"\xe6\x10");
        // mov eax, 110; syscall; jmp back
        self.write(USER, b"\xb8\x6e\0\0\0\x0f\x05\xeb\xf7");
        for (n, value) in (0..).zip([USER, 0x33, 0x202, FREE_PAGE, 0x2b]) {
            self.word(FRAME + 8 * n, value);
        }
    }

    fn start(&mut self) {
        let mut sregs = self.vcpu.get_sregs().expect("sregs");
        let flat = kvm_segment { limit: u32::MAX, present: 1, s: 1, g: 1, ..kvm_segment::default() };
        sregs.cs = kvm_segment { selector: 0x10, type_: 11, l: 1, ..flat };
        sregs.ss = kvm_segment { selector: 0x18, type_: 3, db: 1, ..flat };
        sregs.tr = kvm_segment { base: TSS, limit: 0x67, selector: 0x40, type_: 11, s: 0, g: 0, ..flat };
        sregs.gdt = kvm_dtable { base: GDT, limit: 79, ..kvm_dtable::default() };
        sregs.idt = kvm_dtable { base: IDT, limit: 0xfff, ..kvm_dtable::default() };
        (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8005_0033, PML4, 0x620, 0xd01);
        self.vcpu.set_sregs(&sregs).expect("sregs");
        for (index, data) in
            [(0xc000_0081, 0x10 << 32 | 0x23 << 48), (0xc000_0082, KERNEL), (0xc000_0084, 0x4_7700)]
        {
            let entry = kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
            let msrs = Msrs::from_entries(&[entry]).expect("one MSR");
            assert_eq!(self.vcpu.set_msrs(&msrs).expect("MSRs"), 1);
        }
        self.vcpu.set_sync_valid_reg(SyncReg::Register);
    }

    fn enter(&mut self, rip: u64) {
        let regs = &mut self.vcpu.sync_regs_mut().regs;
        (regs.rip, regs.rsp, regs.rflags, regs.rax) = (rip, FRAME, 2, 1);
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
        self.run();
    }

    fn run(&mut self) {
        match self.vcpu.run() {
            Ok(VcpuExit::IoOut(..)) => {}
            other => panic!("the bare VM stopped with {other:?}"),
        }
    }

    /// A system call in ring 3, with the registers read and written.
    pub fn system_call(&mut self) {
        self.in_loop = false;
        self.enter(IRETQ);
        std::hint::black_box(self.vcpu.sync_regs_mut().regs);
    }

    /// `out` in ring 0 over and over: the exit alone.
    pub fn exit(&mut self) {
        if !self.in_loop {
            self.in_loop = true;
            self.enter(LOOP);
        }
        self.run();
    }
}
