//! The plan of faults drawn once more, amid a run: by a log that says something else of entries whose time has not come, so that its run is the same until now.
//!
//! A plan is a function of the log and of when it was drawn; what has begun of it is compared ([`World::plan_again`]). Neighbours: `anew`, where a log has
//! the rest drawn by other choices from a time on.

use std::collections::BTreeSet;
use std::sync::Arc;

use bloodhound_decisions::{Concern, Decisions, Made, Mode, WORD};
use bloodhound_faults::FaultSpec;
use bloodhound_kernel::node::MachineId;

use super::{Epoch, Phases, Planned, admitted, disks_at_risk, phase_end, plan, plan_of, swarm};
use crate::queue::Due;
use crate::scenario::Scenario;
use crate::world::{Phase, World};

/// Profile, machines whose disks may have faults, and entries that the log leaves in and takes out.
struct Drawing {
    profile: FaultSpec,
    disks: Option<BTreeSet<MachineId>>,
    plan: Vec<Planned>,
    out: Vec<Planned>,
}

impl World {
    /// Draws the plan again by the log that the run follows from now on, and puts it in the place of the one that there is. Returns the choices that are made for it, with
    /// the times at which a run from the boot on makes them.
    ///
    /// # Errors
    /// Why a run by that log is, or may be, another one until now; the world is then of no use.
    pub fn plan_again(&mut self, scenario: &Scenario) -> Result<Vec<Made>, &'static str> {
        if self.phase != Phase::Faults {
            return Err("faults are over");
        }
        if !self.faults.moved.is_empty() || !scenario.planning.schedule.is_empty() {
            return Err("faults are written, or were moved");
        }
        let (mut decisions, drawing) = self.draw_again(scenario)?;
        if Some(&drawing.profile) != self.faults.profile.as_ref() || drawing.disks != self.faults.disks {
            return Err("it has other kinds of faults");
        }
        let (plan, now) = (drawing.plan, self.now);
        let until_now = |plan: &[Planned]| plan.iter().take_while(|entry| entry.begin <= now).count();
        let come = until_now(&plan);
        if come < self.faults.effects.len()
            || plan[..come] != self.faults.plan[..until_now(&self.faults.plan)]
        {
            return Err("another fault has begun by now");
        }
        self.faults.taken_out = drawing.out;
        self.faults.plan = Arc::new(plan);
        let next = self.faults.effects.len();
        let due = self.faults.plan.get(next).map(|entry| (entry.begin, Due::Fault(next)));
        let has_next = due.is_some();
        if !self.queue.replace(|due| matches!(due, Due::Fault(_)), due) && has_next {
            // What else comes at the same time would come before it or behind it.
            return Err("no fault was to come");
        }
        Ok(decisions.take_made())
    }

    /// The last drawing by the log as it is, with the decisions that made it.
    fn draw_again(&self, scenario: &Scenario) -> Result<(Decisions, Drawing), &'static str> {
        let faults = &self.faults;
        let (log, (at, last)) = (self.decisions.log(), faults.last_drawn);
        let mut decisions = Decisions::new((**log).clone(), Mode::Lenient);
        decisions.begin_run(log.seed);
        decisions.listen(true);
        let first = Phases { epoch: Epoch::default(), over: 0, ..last };
        decisions.tell_time(first.begin.0.saturating_sub(scenario.fault_start));
        let mut profile = swarm(&scenario.faults, first.epoch, &mut decisions);
        let long = decisions.said(phase_end(), WORD).unwrap_or(u64::MAX).min(scenario.fault_time);
        if long != last.end.since(last.begin) {
            return Err("the phase of faults has another end");
        }
        let disks = disks_at_risk(scenario, &profile, (first.epoch, &BTreeSet::new()), &mut decisions);
        let at_risk = disks.as_ref();
        let mut drawn = plan_of(scenario, &profile, (first, at_risk), (&[], None), &mut decisions);
        if last.epoch != first.epoch {
            let [(_, before)] = &faults.before[..] else { return Err("several epochs have drawn faults") };
            if profile != *before || disks.is_none() && faults.disks.is_some() {
                return Err("faults of before the epoch may be others");
            }
            if drawn.iter().any(|drawn| drawn.entry.begin == at) {
                return Err("a fault begins with the epoch");
            }
            // What has begun until then stays, with what the log takes out of it.
            drawn.retain(|drawn| drawn.entry.begin < at);
            let mut begun: Vec<Planned> = drawn.iter().map(|drawn| drawn.entry.clone()).collect();
            plan::sort(&mut begun);
            decisions.tell_time(at.0);
            while let Some(epoch) = decisions.next_epoch() {
                if Epoch::at(epoch.from) == last.epoch && epoch.concerns.contains(&Concern::Faults) {
                    break;
                }
            }
            profile = swarm(&scenario.faults, last.epoch, &mut decisions);
            let rest = plan_of(scenario, &profile, (last, at_risk), (&begun, Some(at)), &mut decisions);
            drawn.extend(rest);
        }
        let out = drawn.iter().filter(|drawn| drawn.out).map(|drawn| drawn.entry.clone()).collect();
        let mut plan = admitted(drawn);
        plan::sort(&mut plan);
        Ok((decisions, Drawing { profile, disks, plan, out }))
    }
}
