//! What guides a search: the features of a run, and how near a run came to a violation.
//!
//! Key types: [`Guide`] (gathers the features of a run as a listener of its events), [`Features`], [`First`], [`nearness()`]. A feature is a
//! hash of something that happened, made abstract: a system call with how it ended, a message by its first bytes, the template of a line of
//! a log, what all nodes are doing together. Nodes that run the same are alike in it, whatever they are called, so runs that differ in names and
//! numbers alone have the same features. A run with a feature that no run had before has gone where none was.
//!
//! Nothing in features depends on the platform, on the host, on who else listens or on whether the boot was heard, and gathering them changes
//! nothing in a run. `docs/guidance.md` is the user's side. Modules: `gather` (the listener), `classes` (who is like whom), `template` (of lines and paths), `messages`, `calls`,
//! `situation` (what all do together, under which faults), `book` and `table` (which features there were), `nearness`, `file` (`run --features`).

mod book;
mod calls;
mod classes;
mod file;
mod gather;
mod messages;
mod nearness;
mod situation;
mod table;
pub mod template;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_sim::event::{Event, Listener, Moment};
use bloodhound_sim::scenario::Scenario;

pub use book::Features;
use classes::Classes;
pub use file::FeatureFile;
use gather::Gathering;
pub use nearness::nearness;
pub use table::mix;

/// Gathers the features of one run after another of a worker.
#[derive(Clone, Debug)]
pub struct Guide {
    gathering: Arc<Mutex<Gathering>>,
}

impl Guide {
    /// For runs of a scenario.
    pub fn new(scenario: &Scenario) -> Guide {
        let gathering = Gathering::new(Arc::new(Classes::new(scenario)), false);
        Guide { gathering: Arc::new(Mutex::new(gathering)) }
    }

    /// From now on it tells in words what features are, which costs something.
    pub fn in_words(self) -> Guide {
        lock(&self.gathering).tell_words();
        self
    }

    /// Who has to be told what happens.
    pub fn listener(&self) -> Box<dyn Listener> {
        Box::new(Ear(self.gathering.clone()))
    }

    /// The features since the last time, or since the run began if that was later.
    pub fn take(&self) -> Features {
        lock(&self.gathering).take()
    }
}

struct Ear(Arc<Mutex<Gathering>>);

impl Listener for Ear {
    fn hear(&mut self, moment: &Moment, event: &Event<'_>) {
        lock(&self.0).hear(moment, event);
    }

    fn wants_choices(&self) -> bool {
        false
    }
}

/// A worker that panicked has ended the process.
fn lock(gathering: &Mutex<Gathering>) -> MutexGuard<'_, Gathering> {
    gathering.lock().unwrap_or_else(PoisonError::into_inner)
}
