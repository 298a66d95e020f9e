//! What a log changes in the faults of a run that is under way: an epoch draws the rest of them anew, with the profile; and when the time of an entry comes, the log may
//! leave it out, or move it.
//!
//! Both are choices of that time, so a run that branches off another one at any moment before makes them as the whole run does. Neighbours: `plan` draws, `limits` are kept
//! over what was drawn before and what is drawn anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{AT_ITS_TIME, Choice, Concern, LATER, Site, WORD, Word};
use bloodhound_faults::Kind;
use bloodhound_kernel::node::MachineId;

use super::plan::is_drawn_anew;
use super::swarm::STRENGTH;
use super::{Drawn, Epoch, KEPT, Phases, Planned, admitted, disks_at_risk, limits, plan, plan_of, swarm};
use crate::machine::Machine;
use crate::notice::{Notice, PhaseChange};
use crate::world::{Phase, World};

/// Why an entry has no effect that the log leaves out.
const LEFT_OUT: &str = "the log of the run leaves it out";
/// Why one has none that the log moves.
const NO_ROOM: &str = "the log of the run moves it to a time at which the limits leave no room for it";

/// Whether an entry has no effect for such a reason.
pub(super) fn is_of_log(why: &str) -> bool {
    why == LEFT_OUT || why == NO_ROOM
}

/// What becomes of an entry when its time comes.
pub(super) enum Now {
    /// It begins.
    Begins,
    /// It does not, and why.
    LeftOut(&'static str),
    /// It has another time.
    Moved,
}

impl World {
    /// Whether a choice may still be made after this moment of a run. Those are over that are made when the run begins, when an epoch draws faults anew, and when the
    /// time of an entry comes; of others, which depend on what happens, it is not known here.
    pub fn may_come(&self, choice: &Choice) -> bool {
        let (kind, nth, part) = match choice.site {
            Site::Fault { kind, nth, part, .. } => (kind, nth, part),
            Site::Swarm { .. } | Site::Policy { .. } | Site::Node { .. } | Site::Switch { .. } => {
                return false;
            }
            _ => return true,
        };
        if part == Word::new(AT_ITS_TIME) || part == Word::new(LATER) {
            let mut begun = self.faults.plan.iter().take(self.faults.effects.len());
            return !begun.any(|entry| entry.id.site(part.as_str()) == choice.site);
        }
        // What a power failure takes with it is asked for when it comes.
        if kind == Word::new(Kind::VanishedFile.name()) && part != Word::new(STRENGTH) {
            return true;
        }
        let epochs = &self.decisions.log().epochs[..self.decisions.begun_epochs()];
        is_drawn_anew(nth) && !epochs.iter().any(|epoch| Epoch::at(epoch.from).has(nth))
    }
}

impl Machine {
    /// Epochs of the log begin at the first time that the world comes to: a branch is made there, and a replay of it does the same.
    pub(crate) fn begin_epochs(&mut self) {
        while self.world.decisions.epoch_is_due(self.world.now.0) {
            let Some(epoch) = self.world.decisions.next_epoch() else { return };
            if epoch.concerns.contains(&Concern::Faults) && self.world.phase == Phase::Faults {
                self.draw_anew(Epoch::at(epoch.from));
            }
        }
    }

    /// Draws profile and plan of the rest of the phase by an epoch. What is under way ends as planned, and what is written stays.
    fn draw_anew(&mut self, epoch: Epoch) {
        let (now, before) = (self.world.now, self.world.faults.profile.take());
        let profile = swarm(&self.scenario.faults, epoch, &mut self.world.decisions);
        self.note(None, Notice::Phase(PhaseChange::DrawnAnew(Box::new(profile.clone()))));
        let faults = &mut self.world.faults;
        Arc::make_mut(&mut faults.before).extend(before.map(|before| (now, before)));
        if faults.disks.is_none() {
            let harmed = self.harmed_disks();
            let World { faults, decisions, .. } = &mut self.world;
            faults.disks = disks_at_risk(&self.scenario, &profile, (epoch, &harmed), decisions);
        }
        self.world.faults.profile = Some(profile);
        let phases = self.world.faults.phases.anew(epoch, now);
        self.plan_faults(phases);
        if self.world.faults.by_profile {
            self.set_links(true);
        }
    }

    /// The machines on whose disks faults are that have begun.
    fn harmed_disks(&self) -> BTreeSet<MachineId> {
        let (faults, now) = (&self.world.faults, self.world.now);
        let begun = faults.plan.iter().take(faults.effects.len());
        let under_way = begun.filter(|entry| limits::end(entry, faults.phases, &self.scenario) > now);
        under_way.flat_map(|entry| limits::harms_disks(&entry.fault, &self.scenario)).collect()
    }

    /// Draws the plan, or what of it has not begun, and puts its next entry into the queue.
    pub(super) fn plan_faults(&mut self, phases: Phases) {
        let Some(profile) = self.world.faults.profile.clone() else { return };
        let after = (phases.epoch != Epoch::default()).then_some(self.world.now);
        self.world.faults.last_drawn = (self.world.now, phases);
        let begun = self.begun(after.unwrap_or_default());
        let World { faults, decisions, .. } = &mut self.world;
        let (risk, before) = ((phases, faults.disks.as_ref()), (&begun[..], after));
        let drawn = plan_of(&self.scenario, &profile, risk, before, decisions);
        let out = drawn.iter().filter(|drawn| drawn.out).map(|Drawn { entry, .. }| entry.clone());
        faults.taken_out.retain(|entry| after.is_some_and(|now| entry.begin <= now));
        faults.taken_out.extend(out);
        let plan = Arc::make_mut(&mut faults.plan);
        let mut rest = plan.split_off(faults.effects.len());
        // What is written stays as it is.
        rest.retain(|entry| entry.id.is_written());
        rest.extend(admitted(drawn));
        plan::sort(&mut rest);
        plan.append(&mut rest);
        self.queue_next_fault();
    }

    /// The drawn entries that the limits have admitted and whose time was until now, in order of time: with those that had no effect and those that the log takes
    /// out, so that to take one out lets no other in.
    fn begun(&self, now: SimTime) -> Vec<Planned> {
        let faults = &self.world.faults;
        let begun = faults.plan.iter().take(faults.effects.len()).filter(|entry| !entry.id.is_written());
        let out = faults.taken_out.iter().filter(|entry| entry.begin <= now);
        let mut all: Vec<Planned> = begun.chain(out).cloned().collect();
        plan::sort(&mut all);
        all
    }

    /// What the log says of an entry whose time has come.
    pub(super) fn kept_at_its_time(&mut self, entry: usize, planned: &Planned) -> Now {
        let decisions = &mut self.world.decisions;
        if decisions.said(planned.id.site(AT_ITS_TIME), KEPT) == Some(0) {
            return Now::LeftOut(LEFT_OUT);
        }
        if self.world.faults.moved.contains(&planned.id) {
            return Now::Begins;
        }
        let later = decisions.said(planned.id.site(LATER), WORD).unwrap_or(0);
        if later == 0 {
            return Now::Begins;
        }
        let moved = Planned { begin: self.world.now.after(later), ..planned.clone() };
        if !self.has_room(entry, &moved) {
            return Now::LeftOut(NO_ROOM);
        }
        let faults = &mut self.world.faults;
        faults.moved.insert(moved.id);
        let plan = Arc::make_mut(&mut faults.plan);
        plan.remove(entry);
        let behind = plan[entry..].partition_point(|other| (other.begin, other.id) < (moved.begin, moved.id));
        plan.insert(entry + behind, moved);
        self.queue_next_fault();
        Now::Moved
    }

    /// Whether an entry whose time has come may begin later.
    fn has_room(&self, entry: usize, moved: &Planned) -> bool {
        let faults = &self.world.faults;
        if moved.begin >= faults.phases.end {
            return false;
        }
        if moved.id.is_written() || !self.scenario.planning.limits.is_some() {
            return true;
        }
        let others: Vec<Planned> =
            faults.plan.iter().skip(entry + 1).filter(|other| !other.id.is_written()).cloned().collect();
        let risk = (faults.phases, faults.disks.as_ref());
        let planned = (&self.begun(self.world.now)[..], &others[..]);
        self.scenario.planning.limits.have_room(moved, &self.scenario, risk, planned)
    }
}
