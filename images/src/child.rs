//! Programs that this crate runs: engines, builders, credential helpers.
//!
//! Key type: [`Running`].

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// How often it is asked whether a program has ended: the standard library cannot wait with a limit.
const LOOK: Duration = Duration::from_millis(5);

/// A program that is ended when nobody waits for it any more.
pub(crate) struct Running {
    /// Its process, for its streams.
    pub(crate) child: Child,
    program: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Result<Running, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        match command.spawn() {
            Ok(child) => Ok(Running { child, program }),
            Err(e) => Err(Error::new(ErrorKind::Io, format!("{program} cannot be run: {e}"))),
        }
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self, patience: Duration) -> Result<ExitStatus, Error> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if begin.elapsed() > patience => {
                    let text = format!("{} does not end within {} s", self.program, patience.as_secs());
                    return Err(Error::new(ErrorKind::Network, text));
                }
                Ok(None) => std::thread::sleep(LOOK),
                Err(e) => return Err(Error::new(ErrorKind::Io, format!("{}: {e}", self.program))),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be killed, which is no matter.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
