//! [`Dice`]: numbers in a row for tests and generators, which need some randomness but are no part of a run.

use crate::mix::Mix;

/// A sequence of uniform numbers; a function of its seed.
#[derive(Clone, Debug)]
pub struct Dice {
    seed: u64,
    next: u64,
}

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice { seed, next: 0 }
    }

    fn mix(&mut self) -> Mix {
        let mut mix = Mix::new(self.seed);
        mix.word(self.next);
        self.next += 1;
        mix
    }

    /// 64 uniform bits.
    pub fn word(&mut self) -> u64 {
        self.mix().finish(0)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a choice among nothing");
        self.mix().below(bound)
    }

    /// Fills `out` with uniform bytes.
    pub fn bytes(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
