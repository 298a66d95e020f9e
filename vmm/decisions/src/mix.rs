//! The keyed hash behind every choice, and the unbiased step from its 64 bits to a number below a bound.
//!
//! A choice must be cheap (packets and turns of tasks make many), well mixed (sites differ in one small number only) and the same
//! for ever (a stored seed must keep its meaning). Each word is absorbed by a multiplication and a shift, which is a bijection of the
//! state; the end applies the "moremur" finaliser (Pelle Evensen) twice. A test pins values and looks at their distribution.

const ABSORB: u64 = 0x9e37_79b9_7f4a_7c15;
const FIRST: u64 = 0x3c79_ac49_2ba7_b653;
const SECOND: u64 = 0x1c69_b3f7_4ac4_ae35;

/// The state of a hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix(u64);

impl Mix {
    /// Begins with a key.
    pub(crate) fn new(key: u64) -> Mix {
        let mut mix = Mix(FIRST);
        mix.word(key);
        mix
    }

    /// Absorbs a word.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        let x = (self.0 ^ word).wrapping_mul(ABSORB);
        // The rotation keeps words in different places apart; the shift brings high bits down for the next multiplication.
        self.0 = (x ^ x >> 29).rotate_left(17).wrapping_add(FIRST);
    }

    /// The hash, one of as many as are asked for by `attempt`.
    #[inline]
    pub(crate) fn finish(self, attempt: u64) -> u64 {
        moremur(moremur(self.0 ^ attempt.wrapping_mul(SECOND)).wrapping_add(ABSORB))
    }

    /// A number in `0..bound`, uniformly: Lemire's multiply-shift with rejection ("Fast Random Integer Generation in an Interval").
    #[inline]
    pub(crate) fn below(self, bound: u64) -> u64 {
        let mut wide = u128::from(self.finish(0)) * u128::from(bound);
        if (wide as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            let mut attempt = 0;
            while (wide as u64) < threshold {
                attempt += 1;
                wide = u128::from(self.finish(attempt)) * u128::from(bound);
            }
        }
        (wide >> 64) as u64
    }
}

#[inline]
fn moremur(mut x: u64) -> u64 {
    x = (x ^ x >> 27).wrapping_mul(FIRST);
    x = (x ^ x >> 33).wrapping_mul(SECOND);
    x ^ x >> 27
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stored seed must keep its meaning.
    #[test]
    fn values_are_pinned() {
        let of = |words: &[u64]| {
            let mut mix = Mix::new(42);
            words.iter().for_each(|word| mix.word(*word));
            mix.finish(0)
        };
        let pinned = [of(&[]), of(&[0]), of(&[1, 2, 3]), of(&[3, 2, 1])];
        assert_eq!(pinned, PINNED, "{pinned:#x?}");
    }

    const PINNED: [u64; 4] =
        [0x4c9d_568e_300d_03a5, 0x08f1_7a9c_95a7_51a9, 0xdbc4_7069_ba45_7d29, 0x7742_1464_3d43_be5c];

    /// Each bit of the input changes each bit of the output in half of all cases, in whichever word it is.
    #[test]
    fn every_bit_of_a_site_changes_every_bit_of_the_value() {
        const WORDS: usize = 4;
        const SAMPLES: u64 = 2_000;
        for bit in 0..WORDS * 64 {
            let mut changed = [0u64; 64];
            for sample in 0..SAMPLES {
                // Small numbers, as sites have them.
                let mut words = [sample % 7, sample, 3, sample / 5];
                let hash = |words: &[u64]| {
                    let mut mix = Mix::new(sample % 11);
                    words.iter().for_each(|word| mix.word(*word));
                    mix.finish(0)
                };
                let before = hash(&words);
                words[bit / 64] ^= 1 << (bit % 64);
                let difference = before ^ hash(&words);
                for (out, count) in changed.iter_mut().enumerate() {
                    *count += difference >> out & 1;
                }
            }
            for (out, count) in changed.iter().enumerate() {
                // Standard deviation is 22; six of them.
                assert!(
                    (1_000 - 134..=1_000 + 134).contains(count),
                    "bit {bit} to {out}: {count} of {SAMPLES}"
                );
            }
        }
    }
}
