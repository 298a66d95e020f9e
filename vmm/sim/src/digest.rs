//! The trace digest: one number for everything that happened, in order. Equal digests after equal steps mean equal
//! runs; `verify` compares them step by step.

use bloodhound_abi::SimTime;

/// A running 128-bit digest. Not cryptographic: it finds differences, it does not resist forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest {
    a: u64,
    b: u64,
}

impl Default for Digest {
    fn default() -> Self {
        // The fractional parts of the square roots of 2 and 3, as in SHA-512: nothing up the sleeve.
        Digest { a: 0x6a09_e667_f3bc_c908, b: 0xbb67_ae85_84ca_a73b }
    }
}

impl Digest {
    /// Mixes one word in.
    pub fn word(&mut self, word: u64) {
        // Two independent multiply-and-fold lanes.
        self.a = fold(self.a ^ word, 0x9e37_79b9_7f4a_7c15);
        self.b = fold(self.b.wrapping_add(word).rotate_left(23), 0xd6e8_feb8_6659_fd93);
    }

    /// Mixes bytes in, their length too.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            if let Some(word) = chunk.first_chunk::<8>() {
                self.word(u64::from_le_bytes(*word));
            }
        }
        let mut last = [0; 8];
        let rest = chunks.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    /// Mixes a time in.
    pub fn time(&mut self, at: SimTime) {
        self.word(at.0);
    }
}

fn fold(x: u64, k: u64) -> u64 {
    let wide = u128::from(x) * u128::from(k);
    (wide as u64) ^ ((wide >> 64) as u64) ^ x.rotate_right(29)
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.a, self.b)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_value_is_pinned() {
        let mut d = Digest::default();
        d.bytes(b"bloodhound");
        let first = d.to_string();
        assert_eq!(first.len(), 32);
        d.word(0);
        assert_ne!(first, d.to_string());
    }
}
