//! A differential fuzzer: sequences of system calls at random, carried out natively and simulated, whose answers must be the same.
//!
//! A [`case::Case`] is text, one operation a line. [`generate`] makes cases from seeds, the guest (`guest/`, one C program) carries
//! them out on a [`machine::Machine`], [`hunt`] compares what it printed and [`shrink`] makes a case small that differs. docs/fuzzing.md
//! says how to use it. This is a tool of the host: nothing of Bloodhound depends on it, and it calls Bloodhound as a user does.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a host tool: it measures host time

pub mod case;
pub mod command;
pub mod generate;
pub mod hunt;
pub mod machine;
pub mod rng;
pub mod shrink;
pub mod versions;
