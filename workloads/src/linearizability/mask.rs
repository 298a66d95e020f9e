//! Sets of slots: one machine word where the concurrency allows it, several where it does not.

use std::fmt::Debug;

/// A set of small numbers.
pub(super) trait Mask: Copy + PartialEq + Debug {
    const EMPTY: Self;
    fn has(self, slot: u32) -> bool;
    fn with(self, slot: u32) -> Self;
    fn without(self, slot: u32) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Folds the set into a hash.
    fn mix(self, hash: u64) -> u64;

    fn subset_of(self, other: Self) -> bool {
        self.minus(other) == Self::EMPTY
    }
}

/// One step of a multiplicative hash; the caller takes the high bits.
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Mask for u64 {
    const EMPTY: Self = 0;

    fn has(self, slot: u32) -> bool {
        self >> slot & 1 == 1
    }
    fn with(self, slot: u32) -> Self {
        self | 1 << slot
    }
    fn without(self, slot: u32) -> Self {
        self & !(1 << slot)
    }
    fn minus(self, other: Self) -> Self {
        self & !other
    }
    fn mix(self, hash: u64) -> u64 {
        mix(hash, self)
    }
}

impl<const N: usize> Mask for [u64; N] {
    const EMPTY: Self = [0; N];

    fn has(self, slot: u32) -> bool {
        self[slot as usize / 64].has(slot % 64)
    }
    fn with(mut self, slot: u32) -> Self {
        self[slot as usize / 64] |= 1 << (slot % 64);
        self
    }
    fn without(mut self, slot: u32) -> Self {
        self[slot as usize / 64] &= !(1 << (slot % 64));
        self
    }
    fn minus(mut self, other: Self) -> Self {
        self.iter_mut().zip(other).for_each(|(a, b)| *a &= !b);
        self
    }
    fn mix(self, hash: u64) -> u64 {
        self.into_iter().fold(hash, mix)
    }
}
