//! Runs of which it is known what they are: from a log, or with the counted loops of another run.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{CountedLoop, Log, Made, Mode};
use bloodhound_explore::Strategy;
use bloodhound_sim::MachineError;
use bloodhound_sim::faults::every_kind;

use super::{Outcome, Worker};

impl Worker {
    /// From now on runs have just those counted loops that the logs of their decisions have.
    pub fn trust_log(&mut self) {
        self.machine.trust_log(true);
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

    /// Runs a seed from a booted world as a strategy has it: what [`Worker::run`] does, or with every configured kind of fault.
    ///
    /// # Errors
    /// Host errors.
    pub fn run_seed(&mut self, seed: u64, strategy: Strategy) -> Result<Outcome, MachineError> {
        let log = self.log_of(seed, strategy, self.machine.world.decisions.log());
        if log.overrides == self.machine.world.decisions.log().overrides {
            return self.run(seed);
        }
        self.run_log(log, Mode::Strict)
    }

    /// The log of the run of a seed as a strategy has it, from the boot that has the log `base`.
    pub fn log_of(&self, seed: u64, strategy: Strategy, base: &Log) -> Log {
        let mut log = Log { seed, ..base.clone() };
        if strategy == Strategy::Random {
            log.overrides.extend(every_kind(&self.session.scenario.faults));
        }
        log
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
