//! The processor that applications see: [`cpuid_profile`].
//!
//! One fixed x86-64-v3 processor for all hosts, without what would let the host through: no RDRAND and RDSEED,
//! no TSX, no RDPID, no AVX-512, no XSAVEC/XSAVEOPT/XSAVES, no PKU, no FSGSBASE, one core, no topology.

/// Size that the XSAVE area has according to leaf 0xd, in bytes.
///
/// Larger than our components need (832): `xsave` is not trapped, so it obeys the host's XCR0. glibc's lazy
/// binding asks for components 1, 2, 3, 5, 6 and 7 and takes the size of its stack buffer from here; an Intel
/// host with AVX-512 writes up to byte 2688 then, with PKRU behind it. So this is the largest there is.
pub const XSAVE_SIZE: u32 = 2696;

/// Highest basic leaf.
const MAX_BASIC: u32 = 0xd;
/// Highest extended leaf.
const MAX_EXTENDED: u32 = 0x8000_0008;

/// Family 6, model 0x3c, stepping 3.
const SIGNATURE: u32 = 0x0003_06c3;

const fn bits(list: &[u32]) -> u32 {
    let (mut sum, mut i) = (0, 0);
    while i < list.len() {
        sum |= 1 << list[i];
        i += 1;
    }
    sum
}

/// SSE3, PCLMULQDQ, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, AES, XSAVE, OSXSAVE, AVX, F16C.
const LEAF1_ECX: u32 = bits(&[0, 1, 9, 12, 13, 19, 20, 22, 23, 25, 26, 27, 28, 29]);
/// FPU VME DE PSE TSC MSR PAE MCE CX8 APIC MTRR PGE MCA CMOV PAT PSE36 CLFSH MMX FXSR SSE SSE2.
const LEAF1_EDX: u32 = bits(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 19, 23, 24, 25, 26]);
/// BMI1, AVX2, BMI2, ERMS.
const LEAF7_EBX: u32 = bits(&[3, 5, 8, 9]);
/// LAHF/SAHF, LZCNT.
const EXT1_ECX: u32 = bits(&[0, 5]);
/// SYSCALL, NX, RDTSCP, LM.
const EXT1_EDX: u32 = bits(&[11, 20, 27, 29]);

const BRAND: &[u8; 48] = b"Bloodhound virtual CPU\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// What `cpuid` answers for `leaf` (eax) and `subleaf` (ecx): eax, ebx, ecx, edx.
///
/// Leaves that do not exist are zero (as on AMD; Intel repeats the highest basic leaf).
#[must_use]
pub fn cpuid_profile(leaf: u32, subleaf: u32) -> [u32; 4] {
    match leaf {
        0 => [MAX_BASIC, word(b"Genu"), word(b"ntel"), word(b"ineI")],
        // ebx: CLFLUSH line of 8 quadwords, one logical processor, APIC id 0.
        1 => [SIGNATURE, 0x0001_0800, LEAF1_ECX, LEAF1_EDX],
        // TLB descriptors and, in ecx, the caches of leaf 4: 0xe4 L3, 0x2c L1 data, 0x30 L1 instruction, 0x21 L2. Newer
        // processors have 0xff for "see leaf 4" there; then glibc asks for leaf 4 some forty times at each start.
        2 => [0x7603_6301, 0x00f0_b500, 0x2130_2ce4, 0x00c1_0000],
        4 => cache(subleaf),
        7 if subleaf == 0 => [0, LEAF7_EBX, 0, 0],
        0xd => match subleaf {
            // Components that XCR0 may enable: x87, SSE, AVX; size for those enabled and for all.
            0 => [7, XSAVE_SIZE, XSAVE_SIZE, 0],
            // AVX: 256 bytes at 576.
            2 => [256, 576, 0, 0],
            _ => [0; 4],
        },
        0x8000_0000 => [MAX_EXTENDED, 0, 0, 0],
        0x8000_0001 => [0, 0, EXT1_ECX, EXT1_EDX],
        0x8000_0002..=0x8000_0004 => brand(leaf - 0x8000_0002),
        // ecx: L2 of 256 KiB, 8-way, lines of 64 bytes.
        0x8000_0006 => [0, 0, 0x0100_6040, 0],
        // edx bit 8: the time-stamp counter runs at a constant rate.
        0x8000_0007 => [0, 0, 0, 1 << 8],
        // 48 bits of physical and of virtual address.
        0x8000_0008 => [0x3030, 0, 0, 0],
        _ => [0; 4],
    }
}

const fn word(text: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*text)
}

/// Leaf 4: 32 KiB L1 data and instruction, 256 KiB L2, 8 MiB L3; 64-byte lines, each for one core.
fn cache(subleaf: u32) -> [u32; 4] {
    const SELF_INITIALISING: u32 = 1 << 8;
    let level = |kind: u32, level: u32, ways: u32, sets: u32, edx: u32| {
        [kind | level << 5 | SELF_INITIALISING, (ways - 1) << 22 | 63, sets - 1, edx]
    };
    match subleaf {
        0 => level(1, 1, 8, 64, 0),
        1 => level(2, 1, 8, 64, 0),
        2 => level(3, 2, 8, 512, 0),
        // Inclusive, complex indexing.
        3 => level(3, 3, 16, 8192, 6),
        _ => [0; 4],
    }
}

fn brand(part: u32) -> [u32; 4] {
    let mut out = [0; 4];
    for (slot, raw) in out.iter_mut().zip(BRAND[part as usize * 16..].chunks_exact(4)) {
        *slot = raw.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_64_v3_without_what_leaks() {
        let [_, _, ecx, edx] = cpuid_profile(1, 0);
        let [_, ebx7, ecx7, edx7] = cpuid_profile(7, 0);
        for (bit, name) in
            [(0, "SSE3"), (12, "FMA"), (13, "CX16"), (20, "SSE4.2"), (22, "MOVBE"), (23, "POPCNT")]
        {
            assert_ne!(ecx & 1 << bit, 0, "{name}");
        }
        assert_ne!(ecx & 1 << 28, 0, "AVX");
        assert_ne!(ecx & 1 << 29, 0, "F16C");
        assert_ne!(edx & 1 << 26, 0, "SSE2");
        for bit in [3, 5, 8] {
            assert_ne!(ebx7 & 1 << bit, 0, "BMI1, AVX2, BMI2");
        }
        assert_eq!(ecx & 1 << 30, 0, "RDRAND");
        assert_eq!(
            ebx7 & (1 << 18 | 1 << 4 | 1 << 11 | 1 << 16 | 1),
            0,
            "RDSEED, HLE, RTM, AVX512F, FSGSBASE"
        );
        assert_eq!((ecx7, edx7), (0, 0), "PKU, RDPID and the like");
        assert_eq!(cpuid_profile(0xd, 1), [0; 4], "XSAVEOPT, XSAVEC, XSAVES");
        assert_eq!(cpuid_profile(0xd, 0)[1], 2696);
        assert_ne!(cpuid_profile(0x8000_0001, 0)[2] & 1 << 5, 0, "LZCNT");
    }

    #[test]
    fn names() {
        let text = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
        let [_, b, c, d] = cpuid_profile(0, 0);
        assert_eq!(text(&[b, d, c]), b"GenuineIntel");
        let brand: Vec<u8> = (2..5).flat_map(|n| text(&cpuid_profile(0x8000_0000 + n, 0))).collect();
        assert_eq!(&brand[..24], b"Bloodhound virtual CPU\0\0");
    }

    #[test]
    fn caches_have_the_sizes_they_should() {
        let size = |sub| {
            let [eax, ebx, ecx, _] = cpuid_profile(4, sub);
            (eax & 31, ((ebx >> 22) + 1) * ((ebx & 0xfff) + 1) * (ecx + 1))
        };
        assert_eq!(
            [size(0), size(1), size(2), size(3)],
            [(1, 32 << 10), (2, 32 << 10), (3, 256 << 10), (3, 8 << 20)]
        );
        assert_eq!(cpuid_profile(4, 4), [0; 4]);
    }
}
