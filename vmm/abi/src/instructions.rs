//! Instructions that the simulation answers instead of the processor, as bytes: `cpuid`, `rdtsc`, `rdtscp`, `xgetbv`.

/// Whether some code has bytes that may be the beginning of such an instruction, or of one that goes on behind its end. Most
/// pages have none.
#[must_use]
pub fn may_be_answered(code: &[u8]) -> bool {
    // 0f a2 cpuid, 0f 31 rdtsc, 0f 01 f9 rdtscp, 0f 01 d0 xgetbv
    let may_begin = |pair: &[u8]| pair[0] == 0x0f && matches!(pair[1], 0xa2 | 0x31 | 0x01);
    code.windows(2).any(may_begin) || code.last() == Some(&0x0f)
}

#[cfg(test)]
mod tests {
    use super::may_be_answered;

    #[test]
    fn beginnings_are_found_up_to_the_last_byte() {
        for code in [&b"\x90\x0f\xa2"[..], b"\x0f\x31\x90", b"\x0f\x01\xf9", b"\x0f\x01\xd0", b"\x90\x0f"] {
            assert!(may_be_answered(code), "{code:02x?}");
        }
        for code in [&b""[..], b"\x90", b"\x0f\x05", b"\xa2\x31\x01"] {
            assert!(!may_be_answered(code), "{code:02x?}");
        }
    }
}
