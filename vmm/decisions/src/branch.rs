//! Going on from a moment amid a run by another log ([`Decisions::go_on`]), and what such a log may say: what was chosen before that moment stays as it was.
//!
//! Neighbours: `log` (what a log has), the whole of [`Decisions`] in the crate's text. Whoever restores worlds (the runner's `branch`) calls this.

use crate::{Choice, Decisions, Log, Mode, Part};

/// The part of an entry of the plan of faults that is asked for when its time comes, and not when the plan is drawn.
pub const AT_ITS_TIME: &str = "happens";

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
        let mut log = log;
        log.switches.clone_from(&self.log.switches);
        for known in &self.log.counted {
            if !log.counted.contains(known) {
                log.counted.push(known.clone());
            }
        }
        log.counted.sort_by_key(|counted| counted.step);
        (self.log, self.mode) = (std::sync::Arc::new(log), mode);
        Ok(())
    }

    fn may_go_on(&self, log: &Log, now: u64, may_come: impl Fn(&Choice) -> bool) -> Result<(), String> {
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
        if let Some(early) = later.clone().find(|epoch| epoch.from <= now) {
            return Err(format!("an epoch begins at {} ns, and it is {now} ns already", early.from));
        }
        if !later.clone().is_sorted_by_key(|epoch| epoch.from) || later.any(|epoch| epoch.concerns.is_empty())
        {
            return Err("its epochs are not in order of time, or one is about nothing".into());
        }
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
}
