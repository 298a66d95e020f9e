//! When a task that computes comes under suspicion, and what is seen of it then ([`Doubt`]). The host's clock decides when; what follows from
//! a suspicion is up to the run that is made again ([`super`]).
//!
//! Neighbours: [`crate::step`] asks when a task has spent a budget of host time ([`crate::spin`]).

use std::collections::BTreeSet;

use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::node::MachineId;
use bloodhound_platform::{Platform, PlatformError, Regs, SpaceId, Stops, Trap};

use super::{Suspicion, look};
use crate::machine::{Machine, MachineError};
use crate::spin::TICK_NS;
use crate::step::{Ran, key};

/// How many times the limit a task computes uncounted until it is endless, if other tasks of its machine wait for their turn.
const ENDLESS: u32 = 4;
/// The same for a task that keeps nobody waiting, while something else is going to happen.
const ENDLESS_ALONE: u32 = 8;
/// The same if nothing else is going to happen; and of a task whose passes are counted at native speed, in any case.
pub(super) const ENDLESS_AT_LAST: u32 = 20;
/// Steps for which a task that computes uncounted is watched, to see in which loop it is.
const WATCHED: u32 = 4096;
/// How often that is done from one moment on.
const WATCHES: u32 = 3;
/// How often a loop is looked for from one moment on.
const SEARCHES: u32 = 2;

/// What is to be done about a task that computes.
pub(crate) enum Doubt {
    /// Nothing.
    None,
    /// The run is to be made again.
    Suspicion(Suspicion),
    /// It has trapped meanwhile, which is to be answered.
    Trap(Trap),
    /// The run is given up.
    Hopeless,
}

/// How a task that computes goes on.
pub(crate) enum Next {
    /// As it did.
    On,
    /// It has trapped and was answered: it is to be run again.
    Again,
    /// Not for now.
    Ran(Ran),
    /// Not at all: its run is given up.
    GiveUp,
}

impl Machine {
    /// A task has computed for so many ticks of processor time. What is to be done about it.
    pub(crate) fn suspect(
        &mut self,
        (id, tid, space): (MachineId, Tid, SpaceId),
        ticks: u32,
        stops: &mut Stops,
        regs: &mut Regs,
    ) -> Result<Doubt, PlatformError> {
        if self.suspect_at.is_some() || !self.suspicious || !self.platform.abilities().traps_steps {
            return Ok(Doubt::None);
        }
        let limit = u32::try_from(self.scenario.compute_limit / TICK_NS).unwrap_or(u32::MAX).max(1);
        if ticks < limit {
            return Ok(Doubt::None);
        }
        let moment = self.moment();
        let uncounted = self.world.computing.preempted.get(&(id, tid)).is_some_and(|turns| turns.uncounted);
        if !uncounted && self.is_counted(moment, stops) {
            return Ok(Doubt::None);
        }
        let times = self.tried.get(&(moment, uncounted)).copied().unwrap_or(0);
        let longer = if !uncounted && times == 0 {
            1
        } else if self.world.nodes[&id].run_queue.len() > 1 {
            ENDLESS
        } else if !self.only_the_end_is_left(id) {
            ENDLESS_ALONE
        } else {
            ENDLESS_AT_LAST
        };
        let patience = u32::from(uncounted && self.world.computing.patience.contains(&id));
        if ticks < limit.saturating_mul(longer << patience) {
            return Ok(Doubt::None);
        }
        if times == if uncounted { WATCHES } else { SEARCHES } {
            // Neither is a loop found, nor does it end.
            return Ok(Doubt::Hopeless);
        }
        self.tried.insert((moment, uncounted), times + 1);
        let search = if times == 0 { look::Depth::Quick } else { look::Depth::Thorough };
        let mut suspicion = Suspicion { moment, id, tid, search, late: None };
        if uncounted {
            let mut seen = BTreeSet::new();
            if let Some(trap) = self.watch((id, tid, space), stops, regs, &mut seen)? {
                return Ok(Doubt::Trap(trap));
            }
            suspicion.late = Some(seen);
        }
        Ok(Doubt::Suspicion(suspicion))
    }

    /// Whether passes were counted since this was asked last in the present run of a task: it is then in a loop that ends by being counted.
    pub(super) fn is_counted(&mut self, moment: u64, stops: &Stops) -> bool {
        if stops.points.is_empty() {
            return false;
        }
        let left = stops.points.iter().fold(0_u64, |sum, point| sum.wrapping_add(point.passes));
        let before = self.progress.replace((moment, left));
        // Asked for the first time, it may have been counted or not: it is asked again.
        before.is_none_or(|before| before != (moment, left))
    }

    /// Steps a task for a while, to see by which branches its loop goes round. A trap that came first.
    fn watch(
        &mut self,
        (id, tid, space): (MachineId, Tid, SpaceId),
        stops: &mut Stops,
        regs: &mut Regs,
        seen: &mut BTreeSet<u64>,
    ) -> Result<Option<Trap>, PlatformError> {
        for _ in 0..WATCHED {
            self.platform.approach(space, regs.rip);
            let at = regs.rip;
            if look::is_loops(&self.world.nodes[&id], tid, at) {
                seen.insert(at);
            }
            match self.watched().step(space, key(id, tid), regs)? {
                Trap::Step => stops.counted = None,
                trap => return Ok(Some(trap)),
            }
        }
        Ok(None)
    }

    /// For tests: executes so many instructions of a task that is to be suspected now, and suspects it, unless it traps before.
    pub(crate) fn suspect_by_steps(
        &mut self,
        id: MachineId,
        tid: Tid,
        space: SpaceId,
        regs: &mut Regs,
    ) -> Result<Doubt, PlatformError> {
        let moment = self.moment();
        let Some(at) = self.suspect_at.filter(|at| at.moment == moment) else { return Ok(Doubt::None) };
        for _ in 0..at.instructions {
            match self.watched().step(space, key(id, tid), regs)? {
                Trap::Step => {}
                trap => return Ok(Doubt::Trap(trap)),
            }
        }
        self.suspect_at = None;
        Ok(Doubt::Suspicion(Suspicion { moment, id, tid, search: look::Depth::Quick, late: None }))
    }

    /// Does what is to be done about a task that computes.
    pub(crate) fn doubt(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        doubt: Doubt,
        regs: &mut Regs,
    ) -> Result<Next, MachineError> {
        let trap = match doubt {
            Doubt::None => return Ok(Next::On),
            Doubt::Hopeless => return Ok(Next::GiveUp),
            Doubt::Suspicion(suspicion) => return Ok(Next::Ran(Ran::Suspect(suspicion))),
            Doubt::Trap(trap) => trap,
        };
        let Some(ran) = self.trap(id, tid, mm, space, trap, regs)? else { return Ok(Next::Again) };
        self.world.node_mut(id).take_clock(tid);
        Ok(Next::Ran(ran))
    }
}
