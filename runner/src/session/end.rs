//! After a run: services are given time to end, so that tools of theirs write their coverage, and what they wrote is read.

use bloodhound_sim::{Ended, MachineError};

use super::Worker;
use crate::coverage;

impl Worker {
    /// Takes what tools of the services have written, after they were given time to end. The outcome of the run is there already:
    /// nothing of this is part of it.
    pub(super) fn collect(&mut self, seed: u64, ended: &Ended) -> Result<(), MachineError> {
        let Some(measuring) = self.measuring.clone().filter(|measuring| measuring.collects()) else {
            return Ok(());
        };
        let cut = coverage::lives_cut(&self.machine.world);
        let asked = match ended {
            // Nothing is said of such a run.
            Ended::Interrupted | Ended::Undecided(_) | Ended::Suspect(_) => return Ok(()),
            // It cannot go on.
            Ended::Fatal(_) => false,
            Ended::Condition | Ended::Quiet => {
                if self.stop_services()? == Ended::Interrupted {
                    return Ok(());
                }
                true
            }
        };
        measuring.collect(&mut self.machine, seed, &coverage::End { cut, asked });
        Ok(())
    }

    /// Asks all services to end, and runs them until they have or their time is over.
    fn stop_services(&mut self) -> Result<Ended, MachineError> {
        let over = self.machine.snapshot()?;
        loop {
            let limit = self.machine.stop_all();
            match self.machine.run(|world| world.has_stopped(limit))? {
                Ended::Suspect(suspicion) => {
                    self.machine.try_again(over.clone(), suspicion);
                }
                ended => return Ok(ended),
            }
        }
    }
}
