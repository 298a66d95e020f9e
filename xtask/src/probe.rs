//! What /dev/kvm is: the module behind it, its capabilities, a guest of one instruction, the price of an exit.
//!
//! Function: [`run`]. It is independent of the KVM platform, so that it still answers when that one is broken.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a host tool: it measures host time

use std::fs;
use std::time::Instant;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, Kvm, VcpuExit, VcpuFd};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::failure::Failure;

/// What a VMM of our kind would like to have.
const CAPABILITIES: [(&str, Cap); 12] = [
    ("immediate_exit", Cap::ImmediateExit),
    ("sync_regs", Cap::SyncRegs),
    ("xsave", Cap::Xsave),
    ("xcrs", Cap::Xcrs),
    ("ext_cpuid", Cap::ExtCpuid),
    ("set_guest_debug", Cap::SetGuestDebug),
    ("tsc_control", Cap::TscControl),
    ("nr_memslots", Cap::NrMemslots),
    ("nr_vcpus", Cap::NrVcpus),
    ("max_vcpus", Cap::MaxVcpus),
    ("internal_error_data", Cap::InternalErrorData),
    ("readonly_mem", Cap::ReadonlyMem),
];

/// Where the guest's `hlt` lies.
const HALT: u64 = 0x1000;
/// Where the guest's loop of port writes lies.
const PORT_WRITES: u64 = 0x2000;
/// Where the guest's page tables lie, one page each: the top, the next, and one with a page of 2 MiB for addresses from 0.
const TABLES: [u64; 3] = [0x3000, 0x4000, 0x5000];
/// Size of the guest's memory in bytes.
const MEMORY: usize = 0x6000;
/// How many exits are timed. On a fast machine they take milliseconds, on a slow one less than a second.
const EXITS: u32 = 2000;

/// Prints what this machine's /dev/kvm is, one fact per line.
///
/// # Errors
/// /dev/kvm cannot be opened, or does not run the guest.
pub fn run() -> Result<(), Failure> {
    let fact = |name: &str, value: &str| println!("{name:<20}  {value}");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    fact("kernel", release.trim());
    fact("module", &modules());
    let kvm = Kvm::new().map_err(|e| Failure::Missing(format!("opening /dev/kvm: {e}")))?;
    fact("API version", &kvm.get_api_version().to_string());
    for (name, capability) in CAPABILITIES {
        fact(name, &kvm.check_extension_int(capability).to_string());
    }
    let exit_ns = guest(&kvm)?;
    fact("hlt guest", "ran and halted");
    fact("cost of an exit", &format!("{}.{} us, a port write", exit_ns / 1000, exit_ns % 1000 / 100));
    Ok(())
}

/// The loaded modules whose names speak of KVM, with the parameters that decide how page tables are made.
fn modules() -> String {
    let mut names: Vec<String> = fs::read_dir("/sys/module")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("kvm"))
        .collect();
    names.sort();
    for name in &mut names {
        let set: Vec<String> = ["npt", "ept", "tdp_mmu"]
            .iter()
            .filter_map(|key| {
                let value = fs::read_to_string(format!("/sys/module/{name}/parameters/{key}")).ok()?;
                Some(format!(" {key}={}", value.trim()))
            })
            .collect();
        name.push_str(&set.concat());
    }
    if names.is_empty() { "none that is called kvm".into() } else { names.join(", ") }
}

/// Runs one `hlt`, then a loop of port writes; the time of one of these in nanoseconds.
fn guest(kvm: &Kvm) -> Result<u128, Failure> {
    let broken = |what: &'static str| move |e: kvm_ioctls::Error| Failure::Broken(format!("{what}: {e}"));
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), MEMORY)])
        .map_err(|e| Failure::Broken(format!("memory for a guest: {e}")))?;
    // hlt; and: out 0x10, al; jmp to it.
    for (at, code) in [(HALT, &[0xf4][..]), (PORT_WRITES, &[0xe6, 0x10, 0xeb, 0xfc][..])] {
        memory
            .write_slice(code, GuestAddress(at))
            .map_err(|e| Failure::Broken(format!("guest code: {e}")))?;
    }
    // Present and writable; the last one is a large page.
    for (at, entry) in [(TABLES[0], TABLES[1] | 3), (TABLES[1], TABLES[2] | 3), (TABLES[2], 0x83)] {
        memory
            .write_obj(entry, GuestAddress(at))
            .map_err(|e| Failure::Broken(format!("page tables: {e}")))?;
    }
    let host = memory
        .get_host_address(GuestAddress(0))
        .map_err(|e| Failure::Broken(format!("the guest's memory: {e}")))?;
    let vm = kvm.create_vm().map_err(broken("KVM_CREATE_VM"))?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY as u64,
        userspace_addr: host as u64,
    };
    // SAFETY: the region is the mapping that `memory` owns, which lives until after the last run of the processor below.
    unsafe { vm.set_user_memory_region(region) }.map_err(broken("KVM_SET_USER_MEMORY_REGION"))?;
    let mut vcpu = vm.create_vcpu(0).map_err(broken("KVM_CREATE_VCPU"))?;
    // Newer kernels refuse registers that the vCPU's cpuid does not allow.
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(broken("KVM_GET_SUPPORTED_CPUID"))?;
    vcpu.set_cpuid2(&cpuid).map_err(broken("KVM_SET_CPUID2"))?;
    start_at(&vcpu, HALT).map_err(broken("registers of the guest"))?;
    match vcpu.run().map_err(broken("KVM_RUN"))? {
        VcpuExit::Hlt => {}
        other => return Err(Failure::Broken(format!("the guest left with {other:?} instead of a halt"))),
    }
    start_at(&vcpu, PORT_WRITES).map_err(broken("registers of the guest"))?;
    let start = Instant::now();
    for _ in 0..EXITS {
        match vcpu.run().map_err(broken("KVM_RUN"))? {
            VcpuExit::IoOut(0x10, [_]) => {}
            other => return Err(Failure::Broken(format!("the guest left with {other:?}, not a port write"))),
        }
    }
    Ok(start.elapsed().as_nanos() / u128::from(EXITS))
}

/// Lets the processor go on at an address, in 64-bit mode at CPL 0. (QEMU 8.2 emulates nested paging wrongly for a guest
/// without paging: it hangs in real mode.)
fn start_at(vcpu: &VcpuFd, address: u64) -> Result<(), kvm_ioctls::Error> {
    let mut special = vcpu.get_sregs()?;
    special.cr3 = TABLES[0];
    // PAE; PE and PG with what a processor sets after a reset; LME and LMA.
    special.cr4 = 0x20;
    special.cr0 = 0x8000_0011;
    special.efer = 0x500;
    special.cs.base = 0;
    special.cs.selector = 8;
    special.cs.type_ = 0xb;
    special.cs.s = 1;
    special.cs.db = 0;
    special.cs.l = 1;
    special.cs.g = 1;
    special.cs.limit = 0xffff_ffff;
    vcpu.set_sregs(&special)?;
    let mut registers = vcpu.get_regs()?;
    registers.rip = address;
    // Bit 1 is always set; interrupts are off.
    registers.rflags = 2;
    vcpu.set_regs(&registers)
}
