//! Runs of which it is known what they are: from a log, or with the counted loops of another run.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{CountedLoop, Log, Made, Mode};
use bloodhound_sim::MachineError;

use super::{Outcome, Worker};

impl Worker {
    /// From now on runs have just those counted loops that the logs of their decisions have.
    pub fn trust_log(&mut self) {
        self.machine.trust_log();
    }

    /// The run that comes has these counted loops, as another one of the same seed has found them.
    pub fn give_counted(&mut self, counted: &[CountedLoop]) {
        self.machine.give_counted(counted);
    }

    /// Runs what a log says from a booted world, whose boot must be the log's.
    ///
    /// # Errors
    /// Host errors.
    pub fn run_log(&mut self, log: Log, mode: Mode) -> Result<Outcome, MachineError> {
        let seed = log.seed;
        self.machine.world.decisions.follow(log, mode);
        self.run(seed)
    }

    /// The same, which ends when the virtual time `until` is over. Of a run that is cut short so it is known what it has violated, and nothing else.
    ///
    /// # Errors
    /// Host errors.
    pub fn run_log_until(&mut self, log: Log, until: SimTime) -> Result<Outcome, MachineError> {
        self.until = until;
        let outcome = self.run_log(log, Mode::Lenient);
        self.until = SimTime::MAX;
        outcome
    }

    /// Keeps the choices that are made from now on.
    pub fn listen_to_choices(&mut self) {
        self.machine.world.decisions.listen(true);
    }

    /// The choices since then.
    pub fn take_choices(&mut self) -> Vec<Made> {
        self.machine.world.decisions.take_made()
    }
}
