//! Going on from a moment amid a run by another log ([`Decisions::go_on`]), and what such a log may say: what was chosen before that moment stays as it was.
//!
//! Neighbours: `log` (what a log has), the whole of [`Decisions`] in the crate's text. Whoever restores worlds (the runner's `branch`) calls this.

use crate::{Choice, Decisions, Log, Mode, Override, Part, Site, WORD};

/// The part of an entry of the plan of faults that is asked for when its time comes, and not when the plan is drawn.
pub const AT_ITS_TIME: &str = "happens";
/// The part of an entry by which it begins later: by so many ns. It is asked for at the same time.
pub const LATER: &str = "later";

/// What an epoch of the log has drawn has numbers from here on.
pub const ANEW: u64 = 1 << 61;
/// An epoch draws so many things of one kind and target at most, as a power of two.
pub const CHAIN: u32 = 20;
/// Epochs are told apart in numbers by their times in units of so many ns, as a power of two.
const EPOCH_UNIT: u32 = 10;

/// The number of the so manieth thing that the epoch draws which begins at a virtual time, ns: that of another epoch has it only if both begin within one
/// unit of their times, and then what a log says of it is about both.
pub fn drawn_by_epoch(from: u64, nth: u64) -> u64 {
    ANEW | ((from >> EPOCH_UNIT) << CHAIN & (ANEW - 1)) | nth & ((1 << CHAIN) - 1)
}

/// A kind of faults with whom it hits, of which an epoch that draws faults can be made to begin with one: the choices that make it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultChain {
    /// How long it takes until the first one begins: the greater, the sooner.
    gap: Site,
    /// Whether the epoch has faults of the kind, where that is drawn, and what it is when it has.
    on: Option<(Site, Override)>,
}

impl FaultChain {
    /// By the names of its choices in a plan that no epoch has drawn.
    pub fn new(gap: Site, on: Option<(Site, Override)>) -> FaultChain {
        FaultChain { gap, on }
    }

    /// What a log says so that an epoch which draws faults from a virtual time on, ns, begins with one of these.
    pub fn begins(&self, from: u64) -> Vec<(Choice, Override)> {
        let named = |site: Site| {
            let site = match site {
                Site::Fault { kind, target, part, .. } => {
                    Site::Fault { kind, target, nth: drawn_by_epoch(from, 0), part }
                }
                other => other,
            };
            Choice { part: Part::Run, site }
        };
        let soonest = (named(self.gap), Override { bound: WORD, value: WORD - 1 });
        let on = self.on.map(|(site, to)| (named(site), to));
        std::iter::once(soonest).chain(on).collect()
    }
}

impl Decisions {
    /// How many epochs of the log have begun.
    pub fn begun_epochs(&self) -> usize {
        self.epochs
    }

    /// What comes after this moment of a run, at the virtual time `now`, is to follow another log. Switches at instructions that have been
    /// drawn stay, and so do counted loops. `may_come`: whether a choice may still be made, as far as whoever makes it knows.
    ///
    /// # Errors
    /// What the log says of the time before. It cannot be seen of every override whether its choice has been made: of one that has, the log
    /// is another run from its boot on.
    pub fn go_on(
        &mut self,
        log: Log,
        mode: Mode,
        now: u64,
        may_come: impl Fn(&Choice) -> bool,
    ) -> Result<(), String> {
        self.may_go_on(&log, now, may_come)?;
        self.adopt(log, mode);
        Ok(())
    }

    /// The same for a caller that knows of another run that it is this one up to now, whatever its log says of the choices that have been made: those that the run
    /// made by this log stay as they are.
    ///
    /// # Errors
    /// It can be seen here that the log is that of another run: another seed or boot, concerns that are plain, epochs that have begun, switches.
    pub fn turn_to(&mut self, log: Log, mode: Mode, now: u64) -> Result<(), String> {
        self.has_come_here(&log, now)?;
        if log.switches != self.log.switches {
            return Err("its switches of tasks are others".into());
        }
        self.adopt(log, mode);
        Ok(())
    }

    fn adopt(&mut self, mut log: Log, mode: Mode) {
        log.switches.clone_from(&self.log.switches);
        for known in &self.log.counted {
            if !log.counted.contains(known) {
                log.counted.push(known.clone());
            }
        }
        log.counted.sort_by_key(|counted| counted.step);
        (self.log, self.mode) = (std::sync::Arc::new(log), mode);
    }

    fn may_go_on(&self, log: &Log, now: u64, may_come: impl Fn(&Choice) -> bool) -> Result<(), String> {
        self.has_come_here(log, now)?;
        let known = &*self.log;
        let changed = |choice: &&Choice| log.overrides.get(choice) != known.overrides.get(choice);
        let all = log.overrides.keys().chain(known.overrides.keys());
        let over = all
            .filter(changed)
            .find(|choice| choice.part == Part::Boot || self.asked.contains(choice) || !may_come(choice));
        match over {
            Some(choice) => {
                Err(format!("the choice {choice} has been made, and it says something else of it"))
            }
            None => Ok(()),
        }
    }

    /// Whether a log is that of a run which comes to this moment, as far as it can be seen without its overrides.
    fn has_come_here(&self, log: &Log, now: u64) -> Result<(), String> {
        let known = &*self.log;
        if (log.boot_seed, log.seed) != (known.boot_seed, known.seed) {
            return Err("it is a run of another seed, or from another boot".into());
        }
        if log.plain != known.plain {
            return Err("it makes other concerns plain".into());
        }
        let begun = &known.epochs[..self.epochs];
        if log.epochs.get(..self.epochs) != Some(begun) {
            return Err("the epochs that have begun are not in it".into());
        }
        let mut later = log.epochs[self.epochs..].iter();
        // One whose time has come begins with the next step: it is in both logs, or in neither.
        let mut due = known.epochs[self.epochs..].iter();
        if let Some(early) = later.clone().find(|epoch| due.next() != Some(epoch) && epoch.from <= now) {
            return Err(format!("an epoch begins at {} ns, and it is {now} ns already", early.from));
        }
        if !later.clone().is_sorted_by_key(|epoch| epoch.from) || later.any(|epoch| epoch.concerns.is_empty())
        {
            return Err("its epochs are not in order of time, or one is about nothing".into());
        }
        Ok(())
    }
}
