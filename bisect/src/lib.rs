//! Narrows a run that fails against runs that pass.
//!
//! A run is its log (`bloodhound_decisions::Log`): values of choices by name, and forced switches of tasks. A **departure** is one of
//! these by which a run differs from the plainest one. [`narrow`] finds a set of departures of which none can be left out without the
//! run ceasing to fail in its way ([delta debugging](minimal)); [`latest`] moves one of them as far as the run still fails;
//! [`critical_pairs`] compares what a failing and a passing run did, and gives the pairs of accesses whose order is the difference.
//!
//! [`smallest`] does what `minimal` does where runs are dear and a few can be made at once, as those of whole stacks: it tests groups of things.
//!
//! Who asks says what failing means, and runs the logs: this crate knows neither programs nor machines, and depends on the log alone.

mod delta;
mod departures;
mod groups;
mod pairs;

pub use delta::{latest, minimal};
pub use departures::{Departure, Narrowed, departures, log_of, narrow};
pub use groups::{Kept, Round, smallest};
pub use pairs::{Access, Pair, critical_pairs};
