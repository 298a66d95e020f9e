//! Runs of a finding that are made again: what each must be, and what is told of one that is not.
//!
//! `shrink`, `causes` and `regress add` believe nothing of a finding that they have not seen themselves. Those that must be runs of the record are compared by
//! [`as_recorded`], those that follow a log strictly, as `replay` does, are made by [`fails_again`].

use bloodhound_decisions::{Decisions, Log, Mode};

use super::Record;
use crate::exit;
use crate::group::Group;
use crate::session::{Failure, Outcome, Stopped, Worker, host_failure};
use crate::shrink::search::interrupted;

/// Differences between a log and its run that are told.
const TOLD: usize = 10;

/// The run of a log from a boot of its own, which must follow the log, fail in this way and have this digest. `what` names it.
///
/// # Errors
/// It is another run; interrupted, or given up; what the host says.
pub fn fails_again(
    mut worker: Worker,
    log: &Log,
    target: &Group,
    (what, digest): (&str, &str),
) -> Result<Outcome, Failure> {
    worker.trust_log();
    worker.boot(Decisions::new(log.clone(), Mode::Strict))?;
    let outcome = worker.run(log.seed).map_err(host_failure)?;
    came_to_an_end(&outcome, what)?;
    let same = outcome.digest == digest && outcome.divergences.is_empty();
    match same && target.violated(&outcome).is_some() {
        true => Ok(outcome),
        false => Err(differs(what, &outcome, digest)),
    }
}

/// Whether the run of a finding is the recorded one, and fails so. `purpose`: what there is nothing of if it does not.
///
/// # Errors
/// It does not fail, or is another run; interrupted, or given up.
pub fn as_recorded(outcome: &Outcome, record: &Record, purpose: &str) -> Result<(), Failure> {
    let what = "the run of the finding";
    came_to_an_end(outcome, what)?;
    let target = Group::of(record);
    if target.violated(outcome).is_none() {
        let text = format!(
            "{what} does not fail any more ({target}): there is nothing to {purpose}\nhelp: `bloodhound replay` shows where it left its record"
        );
        return Err(Failure { code: exit::NONDETERMINISM, text });
    }
    match outcome.digest == record.digest {
        true => Ok(()),
        false => Err(differs(what, outcome, &record.digest)),
    }
}

/// Whether a run was neither interrupted nor given up.
///
/// # Errors
/// It was.
pub fn came_to_an_end(outcome: &Outcome, what: &str) -> Result<(), Failure> {
    match &outcome.stopped {
        Some(Stopped::Interrupted) => Err(interrupted()),
        Some(Stopped::Undecided(why)) => {
            Err(Failure { code: exit::INCONCLUSIVE, text: format!("{what} was given up: {why}") })
        }
        Some(Stopped::Unsupported(_)) | None => Ok(()),
    }
}

/// A run that should be another one and is not.
pub fn differs(what: &str, outcome: &Outcome, digest: &str) -> Failure {
    let mut text =
        format!("{what} is another run: digest {} instead of {digest}; nothing is written", outcome.digest);
    for divergence in outcome.divergences.iter().take(TOLD) {
        text.push_str(&format!("\n  {divergence}"));
    }
    Failure { code: exit::NONDETERMINISM, text }
}
