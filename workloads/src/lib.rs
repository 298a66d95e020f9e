//! Drivers, histories, models and checkers.
//!
//! * [`history`]: what clients asked and what they were told, with virtual times; readers and writers of the
//!   formats in which histories are kept.
//! * [`model`]: the sequential objects a history can be compared with (register, cas-register, key-value map).
//! * [`linearizability`]: decides whether a history is one that such an object could have produced.
//! * [`driver`]: what drives a service over the simulated network, one variant for each protocol.
//! * [`http`]: clients that drive a service over the simulated network and record a history.
//! * [`generate`]: random histories of a known verdict, for tests and benchmarks.
//!
//! Nothing in here does input or output: a driver is a clonable state machine over the simulated network, a checker
//! a function of a history.

pub mod driver;
pub mod generate;
pub mod history;
pub mod http;
pub mod linearizability;
pub mod model;
