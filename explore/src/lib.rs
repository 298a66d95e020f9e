//! Which runs a search makes next.
//!
//! A search goes on from moments of runs that it has made ([`State`]) with other choices, and begins runs of seeds that nobody has run yet. What it
//! does next is a function of its settings and of what its runs have shown, in the order of their numbers: never of time, of the number of workers or
//! of the order in which runs end. Run `n` is chosen when what the runs up to `n - LAG` have shown is known ([`LAG`]), so workers need not wait for each other.
//!
//! Key types: [`Search`] (orders runs, takes what they have shown), [`Frontier`] (the tree of states, with a limit), [`Strategy`], [`Arms`] (which way of going
//! on has paid). Nothing here runs anything: the command's `explore` does. Neighbours: `bloodhound_decisions` for logs and numbers.

mod arms;
mod branch;
mod features;
mod frontier;
mod search;
mod strategy;

pub use arms::{Arm, Arms};
pub use branch::Planned;
pub use features::{CLASS_BITS, EVENT, Features, is_event};
pub use frontier::{Frontier, Prefer, State, StateId};
pub use search::{LAG, Order, Origin, RULES, Search, Seen, Settings};
pub use strategy::Strategy;
