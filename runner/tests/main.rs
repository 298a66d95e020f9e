//! The tests of the command, in one program: sixty programs would be sixty times the common part to compile and to link. Each module is
//! about one part of what users see: `cargo test --release -p bloodhound --test command servers::` runs those of one.
//!
//! Tests of different modules run side by side (`processors.rs` is a program of its own, as it asserts which processors are free). A directory that a test makes has a name of its own ([`common::scratch`]).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // what is tested are processes of this host

mod common;

mod action;
mod bad_disks;
mod branches;
mod breakpoints;
mod campaign;
mod causes;
mod chaos;
mod cli;
mod clock_faults;
mod clusters;
mod compat;
mod compose_keys;
mod computing;
mod conformance;
mod containers;
mod corpus;
mod coverage;
mod coverage_agreement;
mod coverage_interpreted;
mod databases;
mod deep;
mod disk_faults;
mod every_fault;
mod exhaust;
mod explore;
mod fuzz;
mod guidance;
mod hostile;
mod hostile_coverage;
mod image;
mod images;
mod init;
mod interleave;
mod live;
mod machines;
mod network_faults;
mod networks;
mod nodes;
mod plans;
mod platforms;
mod power;
mod process_faults;
mod programs;
mod rare_faults;
mod record;
mod regress;
mod resume;
mod schedules;
mod secrets;
mod servers;
mod shards;
mod shrink;
mod stacks;
mod streams;
mod supervision;
mod tidy;
mod vdso;
mod verdicts;
