//! The digest of a run: one number for everything that happened, in order. Runs with equal digests were equal; `verify` compares
//! them step by step.
//!
//! Key types: [`Digest`] (of a run, or of a run's inputs), [`Moved`] (of the bytes that one system call copied). What of a run is
//! mixed in is decided where the run's events are told (`sim::record`); [`VERSION`] names that rule.

use twox_hash::XxHash3_64;

use crate::SimTime;

/// Version of what a run's digest covers and how. Digests of different versions say nothing about each other. 1 had calls by number
/// and result; 2 has every event of the run with its data.
pub const VERSION: u32 = 3;

/// Odd constants without structure: the fractional parts of the square roots of 2, 3, 5 and 7, as in SHA-512.
const KEYS: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// A running 128-bit digest. Not cryptographic: it finds differences, it does not resist forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest {
    a: u64,
    b: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Digest { a: KEYS[0], b: KEYS[1] }
    }
}

impl Digest {
    /// Mixes one word in.
    #[inline]
    pub fn word(&mut self, word: u64) {
        // Two independent multiply-and-fold lanes.
        self.a = fold(self.a ^ word, 0x9e37_79b9_7f4a_7c15);
        self.b = fold(self.b.wrapping_add(word).rotate_left(23), 0xd6e8_feb8_6659_fd93);
    }

    /// Mixes bytes in, their length too.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.word(content(bytes));
    }

    /// Mixes a time in.
    #[inline]
    pub fn time(&mut self, at: SimTime) {
        self.word(at.0);
    }
}

#[inline]
fn fold(x: u64, k: u64) -> u64 {
    let wide = u128::from(x) * u128::from(k);
    (wide as u64) ^ ((wide >> 64) as u64) ^ x.rotate_right(29)
}

/// A keyed hash of bytes (XXH3). Fast, because every byte that a system call copies goes through it.
#[inline]
pub fn content(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(KEYS[2], bytes)
}

/// The bytes that a system call copied from and to user memory: how many, and a hash of all of them in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read from user memory.
    pub read: u64,
    /// Bytes written to it.
    pub written: u64,
    /// Of the content.
    pub hash: u64,
}

impl Moved {
    /// Bytes were copied from user memory.
    #[inline]
    pub fn read(&mut self, bytes: &[u8]) {
        self.read += bytes.len() as u64;
        self.hash = fold(self.hash ^ content(bytes), KEYS[2]);
    }

    /// Bytes were copied to user memory.
    #[inline]
    pub fn written(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        self.hash = fold(self.hash.wrapping_add(content(bytes)), KEYS[3]);
    }

    /// Whether nothing was copied.
    pub fn is_empty(&self) -> bool {
        self.read == 0 && self.written == 0
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.a, self.b)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn order_content_and_length_count() {
        let of = |parts: &[&[u8]]| {
            let mut d = Digest::default();
            parts.iter().for_each(|p| d.bytes(p));
            d
        };
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        let others: [&[&[u8]]; 4] = [&[b"c", b"ab"], &[b"a", b"bc"], &[b"abc"], &[b"ab", b"c\0"]];
        for other in others {
            assert_ne!(of(&[b"ab", b"c"]), of(other));
        }
    }

    /// A change of these values is a new [`VERSION`].
    #[test]
    fn the_values_are_pinned() {
        assert_eq!(VERSION, 3);
        let mut d = Digest::default();
        d.bytes(b"bloodhound");
        d.word(0);
        assert_eq!(d.to_string(), "d9be11c8901a0e3c4a40faf3ca4ceec9");
        assert_eq!(content(&[7; 200]), 7_051_930_644_092_618_433);
    }

    #[test]
    fn every_bit_and_every_length_of_content_counts() {
        let mut seen = BTreeSet::new();
        for len in 0..200 {
            let mut bytes = vec![0u8; len];
            assert!(seen.insert(content(&bytes)), "{len} zeroes");
            for bit in 0..8 * len {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(content(&bytes)), "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        // The same bytes in another place of a long block.
        let at = |place: usize| {
            let mut bytes = [0u8; 256];
            bytes[place..place + 8].copy_from_slice(b"12345678");
            content(&bytes)
        };
        assert_eq!((0..249).map(at).collect::<BTreeSet<u64>>().len(), 249);
    }

    #[test]
    fn direction_and_order_of_copies_count() {
        let of = |copies: &[(bool, &[u8])]| {
            let mut moved = Moved::default();
            for (out, bytes) in copies {
                if *out { moved.written(bytes) } else { moved.read(bytes) }
            }
            moved.hash
        };
        let all = [
            of(&[(false, b"a"), (true, b"b")]),
            of(&[(true, b"a"), (false, b"b")]),
            of(&[(true, b"b"), (false, b"a")]),
            of(&[(false, b"ab")]),
            of(&[]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
