//! The one source of choice (design rule 4).
//!
//! Every nondeterministic decision of a simulation asks [`Decisions::choose`] with a [`Site`], the name of the choice, and a bound.
//! The value is a pure function of the seed and the site: no generator has a state, so a choice that is taken away, added or
//! answered otherwise changes no other one. **0 is the plain choice everywhere**: no fault, the next in the queue, no delay.
//!
//! A run is its [`Log`]: the seed of its boot, its own seed, epochs (from a virtual time on, some concerns have another seed) and
//! overrides (values in place of drawn ones), the loops that are counted, and the switches of tasks at instructions. Drawn values are not kept, for they can be computed again.
//!
//! Modules: `site` the names, `log` what is kept of a run, `branch` how a run goes on by another log, `mix` the keyed hash, `lineage` names of tasks, `dice` numbers for tests.

mod branch;
mod concern;
mod dice;
mod lineage;
mod log;
mod mix;
mod site;
mod word;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub use branch::{ANEW, AT_ITS_TIME, CHAIN, FaultChain, LATER, drawn_by_epoch};
pub use dice::Dice;
pub use lineage::Lineage;
pub use log::{Choice, CountedLoop, Epoch, ForcedSwitch, Log, Override, Part, VERSION};
use mix::Mix;
pub use site::{
    Concern, Fate, NodeRandom, PacketKind, Place, PolicyPart, PowerPart, Site, SwitchPart, TaskRandom, Trait,
    TurnPart,
};
pub use word::Word;

/// The bound of a choice among all words of 64 bits but the last.
pub const WORD: u64 = u64::MAX;
/// One, in parts per billion.
const WHOLE: u64 = 1_000_000_000;

/// What is done about an override that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For replays: it is a [`Divergence`], and so is one that is never asked for. The value is drawn then.
    Strict,
    /// For shrinking and branching: a value out of bounds counts as 0, one that is never asked for as nothing.
    Lenient,
}

/// A replay that is not the recorded run: an override was asked for with another bound, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The choice.
    pub choice: Choice,
    /// What the log has.
    pub recorded: Override,
    /// The bound with which it was asked for and the value that was drawn; `None`: it never was.
    pub asked: Option<Override>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Override { bound, value } = self.recorded;
        write!(f, "the choice {} is recorded as {value} of {bound}, but ", self.choice)?;
        match self.asked {
            Some(Override { bound, value }) => {
                write!(f, "was asked for with {value} of {bound} as its value")
            }
            None => f.write_str("was never asked for"),
        }
    }
}

/// A choice that was made, for listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Which.
    pub choice: Choice,
    /// Among how many.
    pub bound: u64,
    /// The value.
    pub value: u64,
    /// It has the effect of 0: it is 0, or what has a probability ([`Decisions::chance`]) does not happen.
    pub plain: bool,
    /// The virtual time when it was made, in ns, as far as [`Decisions::tell_time`] has told it.
    pub at: u64,
}

/// All choices of one run; see the module's text. A plain value: cloning it forks the future.
#[derive(Clone, Debug)]
pub struct Decisions {
    log: Arc<Log>,
    mode: Mode,
    part: Part,
    /// The seed of each concern now.
    seeds: [u64; Concern::ALL.len()],
    /// Whether all choices of a concern are plain now.
    plain: [bool; Concern::ALL.len()],
    /// How many of the log's epochs have begun.
    epochs: usize,
    /// Overrides that were asked for. Empty in a run without overrides.
    asked: BTreeSet<Choice>,
    /// Overrides that were asked for with another bound; only in [`Mode::Strict`].
    misfits: Vec<Divergence>,
    /// A hash of all choices with their values.
    trail: u64,
    /// The virtual time, in ns.
    now: u64,
    /// Choices since they were last taken, if somebody wants to hear of them.
    made: Option<Vec<Made>>,
}

impl Decisions {
    /// Decisions of a run, at the beginning of its boot.
    pub fn new(log: Log, mode: Mode) -> Decisions {
        let seeds = [log.boot_seed; Concern::ALL.len()];
        Decisions {
            log: Arc::new(log),
            mode,
            part: Part::Boot,
            seeds,
            plain: [false; Concern::ALL.len()],
            epochs: 0,
            asked: BTreeSet::new(),
            misfits: Vec::new(),
            trail: 0,
            now: 0,
            made: None,
        }
    }

    /// The virtual time is this from now on, in ns. Only listeners hear of it ([`Made::at`]): no choice depends on it.
    pub fn tell_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Decisions of a run without a boot of its own, as its seed has them.
    pub fn seeded(seed: u64) -> Decisions {
        Decisions { part: Part::Run, ..Decisions::new(Log::new(seed, seed), Mode::Lenient) }
    }

    /// The boot is over: from now on the choices are those of the run with this seed.
    pub fn begin_run(&mut self, seed: u64) {
        if self.log.seed != seed {
            Arc::make_mut(&mut self.log).seed = seed;
        }
        self.part = Part::Run;
        self.seeds = [seed; Concern::ALL.len()];
        self.plain = Concern::ALL.map(|concern| self.log.plain.contains(&concern));
        let begun = self.epochs;
        self.epochs = 0;
        while self.epochs < begun {
            self.next_epoch();
        }
    }

    /// What comes after the boot, at whose end this is called, is to follow this log, which must have the same boot.
    pub fn follow(&mut self, log: Log, mode: Mode) {
        assert_eq!(log.boot_seed, self.log.boot_seed, "a run goes on from its own boot");
        let seed = log.seed;
        (self.log, self.mode) = (Arc::new(log), mode);
        self.begin_run(seed);
    }

    /// The seed of the run; while it boots, that of the boot.
    pub fn seed(&self) -> u64 {
        match self.part {
            Part::Boot => self.log.boot_seed,
            Part::Run => self.log.seed,
        }
    }

    /// What the run is.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// From now on a loop is counted: what the run is has one thing more.
    pub fn count_loop(&mut self, counted: CountedLoop) {
        Arc::make_mut(&mut self.log).counted.push(counted);
    }

    /// What is known of loops that are counted.
    pub fn set_counted(&mut self, counted: Vec<CountedLoop>) {
        if self.log.counted != counted {
            Arc::make_mut(&mut self.log).counted = counted;
        }
    }

    /// Tasks are made to give way at these instructions.
    pub fn set_switches(&mut self, switches: Vec<ForcedSwitch>) {
        if self.log.switches.as_ref() != Some(&switches) {
            Arc::make_mut(&mut self.log).switches = Some(switches);
        }
    }

    /// A task was made to give way: what the run is has one thing more.
    pub fn add_switch(&mut self, switch: ForcedSwitch) {
        Arc::make_mut(&mut self.log).switches.get_or_insert_default().push(switch);
    }

    /// Whether an epoch has to begin, now that the virtual time is `now`.
    #[inline]
    pub fn epoch_is_due(&self, now: u64) -> bool {
        self.log.epochs.get(self.epochs).is_some_and(|epoch| epoch.from <= now)
    }

    /// Begins the next epoch of the log, if there is one.
    pub fn next_epoch(&mut self) -> Option<Epoch> {
        let epoch = self.log.epochs.get(self.epochs)?.clone();
        for concern in &epoch.concerns {
            self.seeds[*concern as usize] = epoch.seed;
        }
        self.epochs += 1;
        Some(epoch)
    }

    /// A number in `0..bound`; `bound` must be at least 1. Where there is no choice, nothing is asked.
    #[inline]
    pub fn choose(&mut self, site: Site, bound: u64) -> u64 {
        assert!(bound > 0, "a choice among nothing");
        if bound == 1 && self.log.overrides.is_empty() {
            return 0;
        }
        let concern = site.concern() as usize;
        let mut mix = Mix::new(self.seeds[concern]);
        site.feed(&mut mix);
        let mut value = if bound == 1 || self.plain[concern] { 0 } else { mix.below(bound) };
        if !self.log.overrides.is_empty() {
            value = self.overridden(site, bound, value);
        }
        if bound > 1 {
            let mut trail = Mix::new(self.trail);
            trail.word(mix.finish(u64::MAX) ^ bound);
            trail.word(value);
            self.trail = trail.finish(0);
            if let Some(made) = &mut self.made {
                let choice = Choice { part: self.part, site };
                made.push(Made { choice, bound, value, plain: value == 0, at: self.now });
            }
        }
        value
    }

    /// The value of the log, if it has one that fits.
    #[cold]
    fn overridden(&mut self, site: Site, bound: u64, drawn: u64) -> u64 {
        let choice = Choice { part: self.part, site };
        let Some(recorded) = self.log.overrides.get(&choice).copied() else { return drawn };
        self.asked.insert(choice);
        if self.mode == Mode::Lenient {
            return if recorded.value < bound { recorded.value } else { 0 };
        }
        if recorded.bound == bound && recorded.value < bound {
            return recorded.value;
        }
        if !self.misfits.iter().any(|known| known.choice == choice) {
            let asked = Some(Override { bound, value: drawn });
            self.misfits.push(Divergence { choice, recorded, asked });
        }
        drawn
    }

    /// What the log says about something that no seed draws: to leave out a fault that is written or configured, or an operation. `None`, and
    /// nothing is asked, unless the log has an override for it.
    #[inline]
    pub fn said(&mut self, site: Site, bound: u64) -> Option<u64> {
        if self.log.overrides.is_empty() { None } else { self.said_of(site, bound) }
    }

    #[cold]
    fn said_of(&mut self, site: Site, bound: u64) -> Option<u64> {
        let choice = Choice { part: self.part, site };
        let recorded = self.log.overrides.get(&choice)?;
        let fits = recorded.bound == bound && recorded.value < bound;
        if !fits && self.mode == Mode::Lenient {
            return None;
        }
        // The plain choice stands in for a value that does not fit, which is told as a divergence.
        let value = self.overridden(site, bound, 0);
        let mut trail = Mix::new(self.trail);
        trail.word(value);
        self.trail = trail.finish(1);
        if let Some(made) = &mut self.made {
            made.push(Made { choice, bound, value, plain: value == 0, at: self.now });
        }
        Some(value)
    }

    /// A number in `low..=high`; `low` is the plain choice.
    pub fn between(&mut self, site: Site, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        low + self.choose(site, (high - low).saturating_add(1))
    }

    /// True with a probability of `ppb` parts in 1,000,000,000; false is the plain choice. With 0 and 1,000,000,000 (and more) there
    /// is no choice.
    #[inline]
    pub fn chance(&mut self, site: Site, ppb: u32) -> bool {
        match u64::from(ppb) {
            0 => false,
            WHOLE.. => true,
            ppb => {
                let happens = self.choose(site, WHOLE) >= WHOLE - ppb;
                if let Some(last) = self.made.as_mut().and_then(|made| made.last_mut()) {
                    last.plain = !happens;
                }
                happens
            }
        }
    }

    /// A uniform word.
    pub fn word(&mut self, site: Site) -> u64 {
        self.choose(site, WORD)
    }

    /// Fills `out` with uniform bytes: one choice, however many they are.
    pub fn bytes(&mut self, site: Site, out: &mut [u8]) {
        let seed = self.word(site);
        for (at, chunk) in out.chunks_mut(8).enumerate() {
            let word = match at as u64 {
                0 => seed,
                at => {
                    let mut mix = Mix::new(seed);
                    mix.word(at);
                    mix.finish(0)
                }
            };
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }

    /// Where the run is not the recorded one, to be asked at its end. Empty in [`Mode::Lenient`].
    pub fn divergences(&self) -> Vec<Divergence> {
        if self.mode == Mode::Lenient {
            return Vec::new();
        }
        let unasked = self.log.overrides.iter().filter(|(choice, _)| !self.asked.contains(choice));
        let never = unasked.map(|(choice, recorded)| Divergence {
            choice: *choice,
            recorded: *recorded,
            asked: None,
        });
        self.misfits.iter().copied().chain(never).collect()
    }

    /// A hash of all choices so far, with their values.
    pub fn trail(&self) -> u64 {
        self.trail
    }

    /// Keeps choices from now on for [`Decisions::take_made`], with those that are kept already; or no longer, and those are gone.
    pub fn listen(&mut self, on: bool) {
        let kept = self.made.take().unwrap_or_default();
        self.made = on.then_some(kept);
    }

    /// How many choices are kept.
    pub fn kept(&self) -> usize {
        self.made.as_ref().map_or(0, Vec::len)
    }

    /// The choices since this was last called.
    pub fn take_made(&mut self) -> Vec<Made> {
        self.made.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
