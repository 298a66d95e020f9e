//! How a run is carried out: from a world until it is over, again when a task comes under suspicion, with the profile that its switches of tasks are drawn
//! from.
//!
//! Neighbours: [`super`] (a seed from the end of its boot), [`crate::branch`] (from any moment of a run).

use std::sync::{Arc, PoisonError};

use bloodhound_sim::profile::{Accessed, Profile};
use bloodhound_sim::scheduler::PreemptAt;
use bloodhound_sim::world::Phase;
use bloodhound_sim::{Ended, Machine, MachineError, World};

use super::{Outcome, Worker};

/// What is said where `exploration.schedule` asks for switches inside code, and there is nothing to switch at.
const NOTHING_SHARED: &str = "bloodhound: warning: exploration.schedule.preempt_at: code has no effect: in the first boot and a few \
    runs no instruction was seen that accesses memory which several threads or processes share (the workload may not reach it)";

/// Whether a run is over.
pub(crate) fn is_done(world: &World) -> bool {
    world.phase == Phase::Done
}

impl Worker {
    /// Runs what begins in a world, as many times as tasks come under suspicion in it. `seed`: the faults and the workload of the run of this seed begin there.
    pub(crate) fn carry_out(
        &mut self,
        beginning: &World,
        seed: Option<u64>,
        mut run: impl FnMut(&mut Machine) -> Result<Ended, MachineError>,
    ) -> Result<Ended, MachineError> {
        self.machine.set_suspicious(true);
        self.carry_on(beginning, seed, &mut run)
    }

    /// The same again, of a run that has come under suspicion.
    pub(crate) fn carry_on(
        &mut self,
        beginning: &World,
        seed: Option<u64>,
        run: &mut impl FnMut(&mut Machine) -> Result<Ended, MachineError>,
    ) -> Result<Ended, MachineError> {
        loop {
            if let Some(seed) = seed {
                self.machine.world.decisions.begin_run(seed);
            }
            if let Some(mark) = self.machine.mark() {
                mark.seed(self.machine.world.decisions.seed());
            }
            self.meter.begin();
            if seed.is_some() {
                self.machine.begin_faults();
                self.machine.begin_workload();
            }
            match run(&mut self.machine)? {
                Ended::Suspect(suspicion) => self.machine.try_again(beginning.clone(), suspicion),
                ended => return Ok(ended),
            }
        }
    }

    /// What the run that has ended gave.
    pub(crate) fn ended(&mut self, seed: u64, ended: Ended) -> Result<Outcome, MachineError> {
        let outcome = self.outcome(seed, ended.clone());
        self.collect(seed, &ended)?;
        Ok(outcome)
    }

    /// Sees to it that there is a profile if this run draws switches of tasks from one. It is gathered from the first boot, so that
    /// it depends on nothing but the stack.
    pub(crate) fn learn_profile(&mut self) -> Result<(), MachineError> {
        let schedule = self.session.scenario.schedule;
        let drawn = self.machine.world.decisions.log().switches.is_none();
        if schedule.preempt_at != PreemptAt::Code || !drawn || self.machine.has_profile() {
            return Ok(());
        }
        let session = self.session.clone();
        let mut known = session.profile.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = match &*known {
            Some(profile) => profile.clone(),
            None => {
                let world = self.machine.snapshot()?;
                self.machine.pause_breakpoints(true);
                let gathered = self.gather_profile();
                self.machine.pause_breakpoints(false);
                self.machine.restore(world);
                let gathered = gathered?;
                // A campaign that is interrupted meanwhile has not looked at all of it.
                if !gathered.accesses().iter().any(Accessed::is_shared) && !self.machine.interrupted() {
                    eprintln!("{NOTHING_SHARED}");
                }
                known.insert(gathered).clone()
            }
        };
        self.machine.set_profile(profile);
        Ok(())
    }

    fn gather_profile(&mut self) -> Result<Arc<Profile>, MachineError> {
        // A stack that does not boot so has no profile; a seed that goes on from this boot says why.
        let Ok(booted) = self.boot(crate::boots::decisions(0)) else { return Ok(Arc::default()) };
        crate::interleave::profile(&mut self.machine, &booted, |machine, seed| {
            machine.set_suspicious(true);
            loop {
                machine.world.decisions.begin_run(seed);
                machine.begin_faults();
                machine.begin_workload();
                match machine.run(|w| w.phase == Phase::Done)? {
                    Ended::Suspect(suspicion) => machine.try_again(booted.clone(), suspicion),
                    _ => return Ok(()),
                }
            }
        })
    }
}
