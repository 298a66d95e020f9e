//! The one source of choice (design rule 4).
//!
//! Every nondeterministic decision of a simulation asks [`Decisions`]. There is one independent [`Stream`] per
//! concern, so that one more draw in one stream shifts none of the others. Each choice is recorded in a
//! [`DecisionLog`]; the log, not the seed, is what a replay follows.
//!
//! Generator: ChaCha8, key from the seed by `seed_from_u64`, one ChaCha stream number per [`Stream`]; a golden
//! test pins the values, because a stored seed must keep its meaning.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// A concern with its own stream of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Stream {
    /// Which runnable task goes next.
    Scheduler = 0,
    /// Loss, delay, duplication and reordering of packets.
    Network = 1,
    /// Disk faults and what survives a power failure.
    Disk = 2,
    /// What guests see as randomness: getrandom, /dev/urandom, AT_RANDOM, address-space layout.
    GuestRandom = 3,
    /// Operations, keys and values of the workload.
    Workload = 4,
    /// Which faults happen, where and when.
    Faults = 5,
    /// How nodes differ from each other: start, clock, costs.
    Nodes = 6,
}

/// Number of streams.
pub const STREAMS: usize = 7;

/// The recorded choices of a run, per stream, in the order in which they were drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionLog {
    /// Seed of the run, kept for display; a replay does not draw from it.
    pub seed: u64,
    /// Choices by `Stream as usize`.
    pub choices: [Vec<u64>; STREAMS],
}

/// A replay that asked for something the log does not hold: the run differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The stream that ran out or held a value out of range.
    pub stream: Stream,
    /// Index of the choice within that stream.
    pub index: usize,
    /// What was found there: `None` at the end of the log.
    pub found: Option<u64>,
    /// The exclusive bound that was asked for.
    pub bound: u64,
}

#[derive(Clone, Debug)]
struct Source {
    rng: ChaCha8Rng,
    log: Vec<u64>,
}

/// All decision streams of one run; see the module's text. A plain value: cloning it forks the future.
#[derive(Clone, Debug)]
pub struct Decisions {
    seed: u64,
    streams: Vec<Source>,
    replay: Option<std::sync::Arc<DecisionLog>>,
    divergence: Option<Divergence>,
}

impl Decisions {
    /// Fresh decisions drawn from `seed`.
    pub fn seeded(seed: u64) -> Self {
        let streams = (0..STREAMS)
            .map(|i| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream(i as u64 + 1);
                Source { rng, log: Vec::new() }
            })
            .collect();
        Decisions { seed, streams, replay: None, divergence: None }
    }

    /// Decisions that follow a recorded log exactly. Asking for more than it holds is noted as a
    /// [`Divergence`] and answered from the log's seed.
    pub fn replay(log: DecisionLog) -> Self {
        let mut decisions = Decisions::seeded(log.seed);
        decisions.replay = Some(std::sync::Arc::new(log));
        decisions
    }

    /// The seed of these decisions.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number in `0..bound`, uniformly; `bound` must be at least 1. A bound of 1 draws nothing.
    pub fn below(&mut self, stream: Stream, bound: u64) -> u64 {
        assert!(bound > 0, "a choice among nothing");
        if bound == 1 {
            return 0;
        }
        let value = match self.recorded(stream, bound) {
            Some(value) => value,
            None => uniform(&mut self.streams[stream as usize].rng, bound),
        };
        self.streams[stream as usize].log.push(value);
        value
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, stream: Stream, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        match (high - low).checked_add(1) {
            Some(span) => low + self.below(stream, span),
            None => self.word(stream),
        }
    }

    /// True with a probability of `ppb` parts in 1,000,000,000. 0 and 1,000,000,000 (and more) draw nothing.
    pub fn chance(&mut self, stream: Stream, ppb: u32) -> bool {
        match ppb {
            0 => false,
            1_000_000_000.. => true,
            _ => self.below(stream, 1_000_000_000) < u64::from(ppb),
        }
    }

    /// 64 uniform bits.
    pub fn word(&mut self, stream: Stream) -> u64 {
        let value = match self.recorded(stream, u64::MAX) {
            Some(value) => value,
            None => self.streams[stream as usize].rng.next_u64(),
        };
        self.streams[stream as usize].log.push(value);
        value
    }

    /// Fills `out` with uniform bytes, eight a draw.
    pub fn bytes(&mut self, stream: Stream, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.word(stream).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Everything decided so far.
    pub fn log(&self) -> DecisionLog {
        let mut choices: [Vec<u64>; STREAMS] = Default::default();
        for (out, source) in choices.iter_mut().zip(&self.streams) {
            out.clone_from(&source.log);
        }
        DecisionLog { seed: self.seed, choices }
    }

    /// The first point at which a replay left its log, if it did.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.divergence.as_ref()
    }

    fn recorded(&mut self, stream: Stream, bound: u64) -> Option<u64> {
        let log = self.replay.as_ref()?;
        let index = self.streams[stream as usize].log.len();
        let found = log.choices[stream as usize].get(index).copied();
        match found {
            Some(value) if bound == u64::MAX || value < bound => Some(value),
            _ => {
                self.divergence.get_or_insert(Divergence { stream, index, found, bound });
                None
            }
        }
    }
}

/// Lemire's multiply-shift with rejection: unbiased, and a fixed function of the generator's output.
fn uniform(rng: &mut ChaCha8Rng, bound: u64) -> u64 {
    let threshold = bound.wrapping_neg() % bound;
    loop {
        let wide = u128::from(rng.next_u64()) * u128::from(bound);
        if wide as u64 >= threshold {
            return (wide >> 64) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_expansion_is_pinned() {
        let mut rng = ChaCha8Rng::seed_from_u64(42);
        assert_eq!(rng.next_u64(), 0xae90_bfb5_395d_5ba1);
        assert_eq!(rng.next_u64(), 0xf345_3fc6_2579_9188);
    }

    #[test]
    fn streams_are_independent() {
        let (mut a, mut b) = (Decisions::seeded(7), Decisions::seeded(7));
        a.word(Stream::Network);
        assert_eq!(a.word(Stream::Faults), b.word(Stream::Faults));
        assert_ne!(a.word(Stream::Network), b.word(Stream::Network));
    }

    #[test]
    fn replay_follows_the_log_and_notices_its_end() {
        let mut first = Decisions::seeded(3);
        let drawn: Vec<u64> = (2..50).map(|n| first.below(Stream::Scheduler, n)).collect();
        let mut again = Decisions::replay(first.log());
        let replayed: Vec<u64> = (2..50).map(|n| again.below(Stream::Scheduler, n)).collect();
        assert_eq!(drawn, replayed);
        assert!(again.divergence().is_none());
        again.below(Stream::Scheduler, 5);
        assert_eq!(again.divergence().map(|d| d.index), Some(48));
    }

    #[test]
    fn chances_meet_their_rates_and_certainty_draws_nothing() {
        let mut d = Decisions::seeded(1);
        let hits = (0..100_000).filter(|_| d.chance(Stream::Network, 250_000_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        let before = d.log();
        assert!(!d.chance(Stream::Network, 0) && d.chance(Stream::Network, 1_000_000_000));
        assert_eq!(before, d.log());
    }
}
