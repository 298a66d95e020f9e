//! Coverage of services: what can be covered in a program, what was, and reports of it. This crate is on the host's side: it
//! reads programs, source and reports, and knows nothing of the simulation.
//!
//! [`analyse`] takes an executable or a shared library and gives a [`Program`]: its **points**, which are proven starts of
//! instructions, and the **items** that a percentage counts, which are lines, functions or blocks ([`Unit`]).
//!
//! [`named`] finds places that people name, for breakpoints.
//!
//! [`accesses`] gives the instructions that may access shared memory.
//!
//! A campaign gathers a [`Record`], which becomes a [`Coverage`]: lines and functions of the source without any address, which shards
//! are joined by and [`report`]s are made of. What interpreters and compilers report themselves is taken in by [`read`].
//!
//! Neighbours: the platforms stop a program at its points, the runner gathers which of them were reached and writes reports.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the host side: nothing of it reaches the World

mod accesses;
mod analyse;
mod boundaries;
mod build;
mod cache;
mod checkout;
pub mod command;
mod debug_files;
pub mod diff;
mod dwarf;
mod elf;
mod frames;
mod functions;
mod golang;
pub mod model;
pub mod named;
mod names;
mod pattern;
mod program;
pub mod read;
mod record;
pub mod report;
mod rules;
mod tables;
mod totals;
pub mod unwind;
mod variables;
mod written;

pub use accesses::{Access, Which, accesses};
pub use analyse::{analyse, blocks, symbols};
pub use cache::analyse_cached;
pub use checkout::Checkout;
pub use debug_files::{DebugFiles, HostFiles, NoFiles};
pub use model::{Coverage, Moment};
pub use pattern::Pattern;
pub use program::{Frame, Function, Item, NotMeasured, Places, Point, Program, Row, Scope, Unit};
pub use record::{Digest, Record};
pub use rules::Rules;
pub use totals::{Count, Sums, Totals, Uncovered, growth, source_lines, totals, uncovered_functions};
pub use variables::variable;
