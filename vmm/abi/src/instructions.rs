//! Instructions that the simulation answers instead of the processor, as bytes: `cpuid`, `rdtsc`, `rdtscp`, `xgetbv`.

/// Bytes that are searched without a branch.
const PART: usize = 256;

/// Whether some code has bytes that may be the beginning of such an instruction, or of one that goes on behind its end. Most
/// pages have none.
#[must_use]
pub fn may_be_answered(code: &[u8]) -> bool {
    // 0f a2 cpuid, 0f 31 rdtsc, 0f 01 f9 rdtscp, 0f 01 d0 xgetbv
    // A part at a time without an early end, so that the compiler takes many bytes at once: each page of code that a program maps is
    // searched.
    let Some(next) = code.get(1..) else { return false };
    let may_begin =
        |first: u8, second: u8| (first == 0x0f) & ((second == 0xa2) | (second == 0x31) | (second == 0x01));
    let mut parts = code.chunks(PART).zip(next.chunks(PART));
    let found = |(first, next): (&[u8], &[u8])| {
        first.iter().zip(next).fold(false, |found, (first, second)| found | may_begin(*first, *second))
    };
    parts.any(found) || code.last() == Some(&0x0f)
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
