//! The simulation: the world as one value, the machine loop that runs it on a platform, faults, supervision of the
//! services, the trace digest.
//!
//! Start with [`scenario::Scenario`], [`setup::world`] and [`machine::Machine`]. Everything below [`world::World`] is
//! plain data; [`machine::Machine`] alone holds host resources (a platform, a base file layer).
#![forbid(unsafe_code)]

mod answered;
pub mod breakpoints;
pub mod checks;
pub mod clients;
mod code_place;
mod code_view;
mod computing;
pub mod console;
mod convert;
pub mod event;
pub mod faults;
pub mod kept;
pub mod machine;
pub mod notice;
mod out_of_memory;
pub mod output;
pub mod outside;
mod page_faults;
pub mod profile;
pub mod queue;
mod record;
pub mod scenario;
pub mod scheduler;
pub mod services;
pub mod setup;
mod snapshot;
mod spaces;
mod spin;
mod step;
pub mod strace;
mod switches;
pub mod timeline;
pub mod trace;
mod vectors;
pub mod world;

pub use bloodhound_abi::digest::Digest;
pub use code_place::CodePlace;
pub use code_view::{CodeFile, Observer};
pub use computing::{Computing, SuspectAt, Suspicion};
pub use machine::{Ended, Machine, MachineError};
pub use scenario::Scenario;
pub use world::World;
