//! What a run is called: by its seed, or by its number in a search.

use bloodhound_abi::SimTime;

use super::Outcome;

/// A run of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number, from 1.
    pub number: u64,
    /// The moment of another run from which it went on; `None`: it began with its seed.
    pub at: Option<SimTime>,
}

impl Outcome {
    /// By which number its campaign knows the run: its seed, unless it is one of a search.
    pub fn number(&self) -> u64 {
        self.numbered.map_or(self.seed, |numbered| numbered.number)
    }

    /// What the run is called.
    pub fn name(&self) -> String {
        match self.numbered {
            None => format!("seed {}", self.seed),
            Some(Numbered { number, at: None }) => format!("run {number} (seed {})", self.seed),
            Some(Numbered { number, at: Some(at) }) => {
                format!("run {number} (seed {}, with other choices from {at} on)", self.seed)
            }
        }
    }
}
