//! What one seed of a hunt came to ([`Outcome`]), and whether that is a failure.

use bloodhound_kernel::process::ExitStatus;
use bloodhound_sim::world::{FindingKind, World};

use super::super::End;
use crate::exit;

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How the program ended.
    pub end: End,
    /// The same for people.
    pub text: String,
    /// Digest of the run.
    pub digest: String,
    /// Steps of the run.
    pub steps: u64,
    /// The last lines that the program wrote, and whether there were others before.
    pub tail: String,
    /// Output was left out before [`Outcome::tail`].
    pub cut: bool,
}

/// What a run says about the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did not fail.
    Passed,
    /// It failed.
    Failed,
    /// Nothing: the exit code for that.
    None(u8),
}

/// How a program failed: what a run must have in common with another one to have failed in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// With an exit code.
    Code(u8),
    /// By a signal.
    Signal(u32),
    /// All its tasks wait for ever.
    Deadlock,
    /// A task goes round in a loop for ever.
    Hang,
    /// It ran for longer than it may in virtual time.
    TooLong,
}

impl Outcome {
    /// Of a run that has ended.
    pub fn new(seed: u64, end: End, world: &World, tail: (String, bool)) -> Outcome {
        let text = end.text(world);
        let (digest, steps) = (world.digest.to_string(), world.steps);
        Outcome { seed, end, text, digest, steps, tail: tail.0, cut: tail.1 }
    }

    /// Whether the program failed; it did not if it ended with `expected`.
    pub fn verdict(&self, expected: u8) -> Verdict {
        match &self.end {
            End::Fatal(finding) if finding.kind == FindingKind::Unsupported => {
                Verdict::None(exit::UNSUPPORTED)
            }
            End::Interrupted | End::Undecided(_) | End::NotStarted(..) => Verdict::None(self.end.code()),
            _ => match self.failed(expected) {
                Some(_) => Verdict::Failed,
                None => Verdict::Passed,
            },
        }
    }

    /// How the program failed, if it did.
    pub fn failed(&self, expected: u8) -> Option<Failed> {
        match &self.end {
            End::Exited(ExitStatus::Code(code)) => (*code != expected).then_some(Failed::Code(*code)),
            End::Exited(ExitStatus::Signal { signo, .. }) => Some(Failed::Signal(*signo)),
            End::TimedOut => Some(Failed::TooLong),
            End::Deadlock(_) => Some(Failed::Deadlock),
            End::Fatal(finding) => match finding.kind {
                FindingKind::Hang => Some(Failed::Hang),
                FindingKind::Deadlock => Some(Failed::Deadlock),
                _ => None,
            },
            End::Interrupted | End::Undecided(_) | End::NotStarted(..) => None,
        }
    }
}
