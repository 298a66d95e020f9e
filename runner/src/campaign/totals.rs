//! What all seeds of a campaign gave together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::session::{Outcome, Violation};

/// What all seeds gave together.
#[derive(Default)]
pub struct Totals {
    pub seeds: u64,
    pub steps: u64,
    pub virtual_ns: u64,
    pub operations: u64,
    pub faults: BTreeMap<String, u64>,
    pub findings: Vec<(Outcome, Violation, PathBuf)>,
    pub undecided: BTreeMap<String, String>,
    pub unsupported: Option<String>,
    pub interrupted: bool,
    pub timed_out: bool,
}
