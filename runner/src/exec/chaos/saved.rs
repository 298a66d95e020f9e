//! A schedule in a file: the log of a run, as the `decisions.json` of a finding has it.

use std::path::Path;

use bloodhound_decisions::Log;

use super::runner::BOOT;
use crate::output::write_file;
use crate::session::Failure;

/// Writes a schedule.
///
/// # Errors
/// What the host says.
pub fn write(path: &Path, log: &Log) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(log).map_err(|e| refused("write", path, &e.to_string()))?;
    write_file(path, text).map_err(|e| refused("write", path, &e.to_string()))
}

/// Reads a schedule.
///
/// # Errors
/// The file cannot be read, or has no schedule of a hunt.
pub fn read(path: &Path) -> Result<Log, Failure> {
    let bytes = std::fs::read(path).map_err(|e| refused("read", path, &e.to_string()))?;
    let log: Log = serde_json::from_slice(&bytes).map_err(|e| refused("read", path, &e.to_string()))?;
    // All hunts begin in the same way.
    if log.boot_seed != BOOT {
        return Err(refused("read", path, "it is the log of another kind of run, which `replay` is for"));
    }
    Ok(log)
}

fn refused(what: &str, path: &Path, why: &str) -> Failure {
    Failure::usage(format!("cannot {what} the schedule {}: {why}", path.display()))
}
