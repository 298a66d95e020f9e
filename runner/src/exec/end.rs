//! How a single program ended, in words and as an exit code.

use bloodhound_abi::Errno;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_sim::world::{Finding, FindingKind, World};

use crate::exit;

/// How a single program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended by itself or by a signal.
    Exited(ExitStatus),
    /// It could not be started.
    NotStarted(Errno, String),
    /// Its virtual time is over.
    TimedOut,
    /// Everything in it waits; for what, by task.
    Deadlock(String),
    /// The simulation stopped it.
    Fatal(Finding),
    /// The user did.
    Interrupted,
    /// It computed for so long that it was given up.
    Undecided(String),
}

impl End {
    /// The exit code of `exec`.
    pub fn code(&self) -> u8 {
        match self {
            End::Exited(ExitStatus::Code(code)) => *code,
            // As a shell tells it.
            End::Exited(ExitStatus::Signal { signo, .. }) => 128 + *signo as u8,
            // "If a command is not found, the exit status shall be 127. If the command name is found, but it is not an
            // executable utility, the exit status shall be 126." (POSIX, Shell Command Language, 2.8.2)
            End::NotStarted(Errno::ENOENT, _) => exit::NOT_FOUND,
            End::NotStarted(..) => exit::NOT_EXECUTABLE,
            End::TimedOut | End::Undecided(_) => exit::INCONCLUSIVE,
            End::Deadlock(_) => exit::FINDINGS,
            End::Fatal(finding) => match finding.kind {
                FindingKind::Unsupported => exit::UNSUPPORTED,
                _ => exit::FINDINGS,
            },
            End::Interrupted => exit::INTERRUPTED,
        }
    }

    /// For people.
    pub fn text(&self, world: &World) -> String {
        match self {
            End::Exited(ExitStatus::Code(code)) => format!("exit code {code}"),
            End::Exited(ExitStatus::Signal { signo, .. }) => {
                format!("killed by {}", bloodhound_kernel::signal::name(*signo))
            }
            End::NotStarted(errno, name) => format!("cannot run {name}: {errno}"),
            End::TimedOut => format!("stopped after {} of virtual time (--max-time)", world.now),
            End::Deadlock(waiting) => {
                format!("deadlock: every task waits for something that cannot happen\n{waiting}")
            }
            End::Fatal(finding) => finding.text.clone(),
            End::Interrupted => "interrupted".into(),
            End::Undecided(why) => format!("given up: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_start_has_the_codes_of_a_shell() {
        let code = |errno| End::NotStarted(errno, "x".into()).code();
        assert_eq!(code(Errno::ENOENT), 127);
        for errno in [Errno::EACCES, Errno::ENOEXEC, Errno::ENOTDIR, Errno::EISDIR] {
            assert_eq!(code(errno), 126, "{errno}");
        }
        assert_eq!(End::Exited(ExitStatus::Code(7)).code(), 7);
        assert_eq!(End::Exited(ExitStatus::Signal { signo: 13, core: false }).code(), 141);
    }
}
