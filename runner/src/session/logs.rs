//! Runs of which it is known what they are: from a log, or with the counted loops of another run.

use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::{CountedLoop, Log, Made, Mode};
use bloodhound_explore::Strategy;
use bloodhound_sim::faults::every_kind;
use bloodhound_sim::{Ended, MachineError, World};

use super::{Outcome, Worker, is_done};
use crate::group::Group;

/// So much later than another run it is looked for the first time whether one has failed.
const SOON: u64 = 50 * MILLIS;

/// When a run ends that need not come to its end. Of one that is cut short it is known what it has violated, and nothing else.
#[derive(Clone)]
pub struct Ending {
    /// When this virtual time is over.
    pub until: SimTime,
    /// When one of these rising times is over and what the run has come to is enough.
    pub looks: Vec<SimTime>,
    pub enough: Option<Enough>,
}

/// Whether a run has shown what is to be known of it.
type Enough = Arc<dyn Fn(&Outcome) -> bool + Send + Sync>;

impl Ending {
    /// The end of the run, or of this virtual time.
    pub fn at(until: SimTime) -> Ending {
        Ending { until, looks: Vec::new(), enough: None }
    }

    /// The same, or when the run has failed in the way of another one, which does so at a time, so long after its boot: a little later at first, for most of those that fail do so then.
    pub fn when_violated(until: SimTime, (at, took): (SimTime, u64), target: &Group) -> Ending {
        let mut looks = [SOON, took / 8, took / 2].map(|later| at.after(later)).to_vec();
        looks.sort_unstable();
        let target = target.clone();
        Ending { until, looks, enough: Some(Arc::new(move |outcome| target.violated(outcome).is_some())) }
    }
}

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

    /// The same, leniently, until it has come to this end.
    ///
    /// # Errors
    /// Host errors.
    pub fn run_log_until(&mut self, log: Log, ending: &Ending) -> Result<Outcome, MachineError> {
        let seed = log.seed;
        crate::bug::doing(format!("seed {seed}"));
        self.machine.world.decisions.follow(log, Mode::Lenient);
        self.learn_profile()?;
        let booted = self.machine.snapshot()?;
        self.run_until(&booted, (seed, true), ending)
    }

    /// Runs what begins in a world until it has come to this end. `begins`: faults and workload of the run of this seed begin there.
    pub(crate) fn run_until(
        &mut self,
        beginning: &World,
        (seed, begins): (u64, bool),
        ending: &Ending,
    ) -> Result<Outcome, MachineError> {
        let begins = begins.then_some(seed);
        let mut looks = ending.looks.iter().copied().filter(|look| *look < ending.until);
        let mut until = looks.next().unwrap_or(ending.until);
        let is_over = |until| move |world: &World| is_done(world) || world.now > until;
        let mut ended = self.carry_out(beginning, begins, |machine| machine.run(is_over(until)))?;
        while until < ending.until && ended == Ended::Condition && !is_done(&self.machine.world) {
            if ending.enough.as_ref().is_some_and(|enough| enough(&self.outcome(seed, ended.clone()))) {
                break;
            }
            until = looks.next().unwrap_or(ending.until);
            ended = match self.machine.run(is_over(until))? {
                Ended::Suspect(suspicion) => {
                    self.machine.try_again(beginning.clone(), suspicion);
                    self.carry_on(beginning, begins, &mut |machine| machine.run(is_over(until)))?
                }
                ended => ended,
            };
        }
        self.ended(seed, ended)
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
