//! The answers of `cpuid` that KVM derives the vCPU's features from ([`entries`]).
//!
//! Application code gets its answers from `bloodhound_platform::cpuid_profile` wherever cpuid faults. These entries
//! decide what KVM lets the vCPU have: instructions that the profile lacks become invalid where the hardware can
//! make them so (RDRAND, RDSEED, RDPID), and the monitor gets its protections.

use bloodhound_platform::{PlatformError, cpuid_profile};
use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::Kvm;

use crate::sys;

/// The feature's bit in leaf 7, and that of CR4.
pub(crate) const UMIP: (u32, u64) = (1 << 2, 1 << 11);
const SMEP: (u32, u64) = (1 << 7, 1 << 20);
const SMAP: (u32, u64) = (1 << 20, 1 << 21);
const RDTSCP: u32 = 1 << 27;
const NX_LM_SYSCALL: u32 = 1 << 11 | 1 << 20 | 1 << 29;

/// Leaves for KVM_SET_CPUID2: what KVM supports, without what the profile lacks.
///
/// # Errors
/// Host errors.
pub(crate) fn entries(kvm: &Kvm) -> Result<CpuId, PlatformError> {
    let mut ids =
        kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(sys::kvm("KVM_GET_SUPPORTED_CPUID"))?;
    let lacks = |leaf: u32, subleaf: u32, register: usize| !cpuid_profile(leaf, subleaf)[register];
    for entry in ids.as_mut_slice() {
        match (entry.function, entry.index) {
            (1, _) => {
                entry.ecx &= !lacks(1, 0, 2);
                entry.edx &= !lacks(1, 0, 3);
            }
            (7, 0) => {
                entry.ebx &= !lacks(7, 0, 1) | SMEP.0 | SMAP.0;
                entry.ecx &= UMIP.0;
                entry.edx = 0;
            }
            (7, _) => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
            // x87, SSE, AVX; no XSAVEOPT, XSAVEC, XSAVES.
            (0xd, 0) => (entry.eax, entry.edx) = (entry.eax & 7, 0),
            (0xd, 1) => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
            (0x8000_0001, _) => {
                entry.ecx &= !lacks(0x8000_0001, 0, 2);
                // AMD repeats leaf 1 in the other bits.
                entry.edx &= cpuid_profile(1, 0)[3] & 0x0183_f3ff | NX_LM_SYSCALL | RDTSCP;
            }
            _ => {}
        }
    }
    Ok(ids)
}

/// The bits of CR4 that protect the monitor, as far as the vCPU has them: UMIP, SMEP, SMAP.
pub(crate) fn protections(ids: &CpuId) -> u64 {
    let leaf = ids.as_slice().iter().find(|entry| entry.function == 7 && entry.index == 0);
    leaf.map_or(0, |entry| {
        let bit = |(feature, cr4): (u32, u64), register: u32| if register & feature != 0 { cr4 } else { 0 };
        bit(UMIP, entry.ecx) | bit(SMEP, entry.ebx) | bit(SMAP, entry.ebx)
    })
}
