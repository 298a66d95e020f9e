//! A platform around another one that carries out code points ([`WithCodePoints`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::counter::{COUNTER_BYTES, Inside, JUMP, Site};
use super::counting::Counting;
use super::observed::{Around, REACH};
use super::stops::Stopping;
use super::{Mark, Observed};
use crate::{Exception, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap};

/// Length of an `int3`.
const INT3_LEN: u64 = 1;
/// The trap flag: a program that steps itself takes each step as a trap of its own.
const TF: u64 = 1 << 8;
/// Bytes of the longest instruction (Intel SDM, volume 2, 2.3.11).
const LONGEST: u64 = 15;
/// Passes of stop points after which a run ends as one whose budget is spent: each run of the platform below has a budget of its
/// own, and whoever asked has to get to look.
const PASSES: u32 = 1 << 14;

/// A platform on which tasks pass observing points without noticing them, and whose runs end at stop points
/// ([`Stops::points`]) without single-stepping the whole way.
///
/// A stop point is an `int3` in a copy of the frame that the space shows; the copy belongs to that space alone. A task passes
/// it by what the instruction does, if it is a jump, and otherwise by a single step with the instruction in its place.
pub struct WithCodePoints {
    inner: Box<dyn Platform>,
    observed: Option<(Arc<Observed>, Arc<Mark>)>,
    stopping: BTreeMap<SpaceId, Stopping>,
}

impl WithCodePoints {
    /// Without observing points.
    #[must_use]
    pub fn new(inner: Box<dyn Platform>) -> WithCodePoints {
        WithCodePoints { inner, observed: None, stopping: BTreeMap::new() }
    }

    /// From now on spaces are shown frames of `observed`; `mark` is what this platform's worker is doing.
    pub fn observe(&mut self, observed: Arc<Observed>, mark: Arc<Mark>) {
        self.observed = Some((observed, mark));
    }

    /// Whether an `int3` at an address was an observing point, which is gone now.
    fn come_by(&self, space: SpaceId, at: u64) -> bool {
        let Some((observed, mark)) = &self.observed else { return false };
        let Some((offset, _)) = self.inner.memory(space).and_then(|memory| memory.get(at)) else {
            return false;
        };
        match self.stopping.get(&space).and_then(|stopping| stopping.original(at, offset)) {
            Some((original, copy)) => {
                let reached = observed.reach(original, mark);
                if reached {
                    copy.take_over(original);
                }
                reached
            }
            None => observed.reach(offset, mark),
        }
    }

    /// Whether a trap was that of an observing point; the task is then at its instruction again.
    fn passed(&self, space: SpaceId, regs: &mut Regs, trap: Trap) -> bool {
        if trap != Trap::Exception(Exception::BREAKPOINT) || self.observed.is_none() {
            return false;
        }
        let at = regs.rip.wrapping_sub(INT3_LEN);
        if !self.come_by(space, at) && !self.undo_copied(space, at) {
            return false;
        }
        regs.rip = at;
        true
    }

    /// Whether the `int3` at an address was one that the program has copied from a frame with points; the byte that belongs there
    /// is put back.
    fn undo_copied(&self, space: SpaceId, at: u64) -> bool {
        let (Some((observed, _)), Some(memory)) = (&self.observed, self.inner.memory(space)) else {
            return false;
        };
        let Some((offset, _)) = memory.get(at).filter(|(offset, _)| !observed.has_frame(*offset)) else {
            return false;
        };
        let mut around: Around = [None; 2 * REACH + 1];
        for (place, byte) in (0..).zip(&mut around) {
            let mut one = [0];
            let read = memory.read(at.wrapping_sub(REACH as u64).wrapping_add(place), &mut one);
            *byte = (read == 1).then_some(one[0]);
        }
        let Some(byte) = observed.copied(&around) else { return false };
        // In place, whoever else has the frame: it is a copy of the same code there.
        bloodhound_frames::write_at(offset, &[byte]).is_some()
    }

    /// From now on runs of the space's tasks come back at these addresses, which rise, with [`Trap::KeptPoint`] before the instruction there is executed.
    /// A run that begins at one of them passes it: whoever asks for the run has seen it. So do single steps.
    pub fn keep(&mut self, space: SpaceId, points: &[u64]) {
        if !points.is_empty() || self.stopping.contains_key(&space) {
            self.stopping.entry(space).or_default().keep(points);
        }
    }

    fn keeps(&self, space: SpaceId, address: u64) -> bool {
        self.stopping.get(&space).is_some_and(|stopping| stopping.keeps(address))
    }

    /// What was lifted for somebody who looked at the code is there again.
    fn settle(&mut self, space: SpaceId) {
        if let Some(stopping) = self.stopping.get_mut(&space) {
            stopping.settle();
        }
    }

    /// Shows the space just these stop points and the kept ones; runs do so by themselves, single steps meet what was shown last. False if this platform cannot, because it runs no instructions.
    pub fn show(&mut self, space: SpaceId, stops: &Stops) -> bool {
        if stops.points.is_empty() && !self.stopping.contains_key(&space) {
            return true;
        }
        let Some(memory) = self.inner.memory(space) else { return stops.points.is_empty() };
        let stopping = self.stopping.entry(space).or_default();
        stopping.settle();
        if stopping.shows(memory, stops) {
            return true;
        }
        let observed = self.observed.as_ref();
        let changes = stopping.show(memory, stops, |offset| observed?.0.byte_at(offset));
        if !changes.is_empty() {
            self.inner.map(space, &changes);
        }
        if stopping.is_empty() {
            let pages = stopping.counting.end();
            self.stopping.remove(&space);
            self.unmap_counters(space, pages);
        } else if let Some(memory) = self.inner.memory(space) {
            stopping.has_shown(memory, stops);
        }
        true
    }

    /// Lets a task pass the stop point that it is at.
    fn pass(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        // An observing point may lie below it.
        self.come_by(space, regs.rip);
        let Some(stopping) = self.stopping.get(&space) else { return Ok(Trap::Step) };
        if regs.rflags & TF == 0 && stopping.jump(regs) {
            return Ok(Trap::Step);
        }
        stopping.lift(regs.rip, true);
        let at = regs.rip;
        let trap = self.step_past_observed(space, task, regs)?;
        if let Some(stopping) = self.stopping.get(&space) {
            stopping.lift(at, false);
        }
        Ok(trap)
    }

    /// Before a run: stop points that are passed often are counted at native speed.
    fn show_counters(&mut self, space: SpaceId, regs: &Regs, stops: &Stops) {
        // A program that steps itself would step through what is not its own.
        if regs.rflags & TF != 0 {
            return;
        }
        let Some(stopping) = self.stopping.get_mut(&space).filter(|stopping| stopping.counting.wanted(stops))
        else {
            return;
        };
        let Some(memory) = self.inner.memory(space) else { return };
        let mut maps = Vec::new();
        let mut counting = std::mem::take(&mut stopping.counting);
        counting.show((memory, stopping), stops, regs.rip, &mut maps);
        stopping.counting = counting;
        if !maps.is_empty() {
            self.inner.map(space, &maps);
            self.still_shown(space, stops);
        }
    }

    /// After a run: stop points are counted by traps again. A task that was stopped while it was counted is where it would be without
    /// counters then. The trap that has happened; `None` if there was none and the task is to be run on.
    fn hide_counters(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
        trap: Trap,
    ) -> Result<Option<Trap>, PlatformError> {
        let Some(stopping) = self.stopping.get_mut(&space).filter(|stopping| stopping.counting.shows())
        else {
            return Ok(Some(trap));
        };
        let mut counting = std::mem::take(&mut stopping.counting);
        let left = leave_code(&mut *self.inner, (space, task), regs, &counting, trap);
        let hid = counting.hid(regs.rip, trap);
        counting.hide(stopping, stops);
        stopping.counting = counting;
        match left? {
            Left::Out(_) if hid => Ok(None),
            Left::Out(trap) => Ok(Some(trap)),
            Left::At(address, trap) => {
                // Counted, and not executed.
                stops.counted = Some(address);
                Ok(Some(trap))
            }
            Left::Before => Ok(None),
            Left::Over(site) if site.head == site.counted => {
                Ok(Some(Trap::StopPoint { address: site.counted }))
            }
            // It is about to come there.
            Left::Over(site) => {
                if let Ok(at) = stops.points.binary_search_by_key(&site.counted, |point| point.address) {
                    stops.points[at].passes = 1;
                }
                Ok(None)
            }
        }
    }

    /// Pages that are no part of what stop points need were mapped or unmapped.
    fn still_shown(&mut self, space: SpaceId, stops: &Stops) {
        if let (Some(stopping), Some(memory)) = (self.stopping.get_mut(&space), self.inner.memory(space)) {
            stopping.has_shown(memory, stops);
        }
    }

    /// A run has ended with a trap: the pages of counters are not needed any more if the program may map something there now.
    fn leave(&mut self, space: SpaceId, trap: Trap) {
        let Some(stopping) = self.stopping.get_mut(&space) else { return };
        let pages = stopping.counting.leave(trap);
        self.unmap_counters(space, pages);
    }

    fn unmap_counters(&mut self, space: SpaceId, pages: BTreeSet<u64>) {
        for page in pages {
            self.inner.unmap(space, page, COUNTER_BYTES);
        }
    }

    /// Steps a task on that is amid what the jump of a counter is to replace: it would pass the stop point by a trap in each round of
    /// its loop, and be just behind it each time. A trap that came meanwhile.
    fn come_out(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &Stops,
    ) -> Result<Option<Trap>, PlatformError> {
        if regs.rflags & TF != 0 {
            return Ok(None);
        }
        for _ in 0..JUMP {
            let stopping = self.stopping.get(&space);
            if !stopping.is_some_and(|of| of.counting.is_amid(regs.rip, stops) && !of.is_point(regs.rip)) {
                break;
            }
            match self.step_past_observed(space, task, regs)? {
                Trap::Step => {}
                trap => return Ok(Some(trap)),
            }
        }
        Ok(None)
    }

    /// A run without stop points.
    fn run_past_observed(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        loop {
            let trap = self.inner.run(space, task, regs, stops)?;
            if !self.passed(space, regs, trap) {
                return Ok(trap);
            }
        }
    }

    fn step_past_observed(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
    ) -> Result<Trap, PlatformError> {
        loop {
            let trap = self.inner.step(space, task, regs)?;
            if !self.passed(space, regs, trap) {
                return Ok(trap);
            }
        }
    }

    fn run_to_points(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        let mut arrived = false;
        for _ in 0..PASSES {
            if std::mem::replace(&mut arrived, true) && self.keeps(space, regs.rip) {
                return Ok(Trap::KeptPoint { address: regs.rip });
            }
            let at_point = self.stopping.get(&space).is_some_and(|stopping| stopping.is_point(regs.rip));
            let is_stop = stops.points.binary_search_by_key(&regs.rip, |point| point.address).is_ok();
            if at_point && is_stop && stops.counted != Some(regs.rip) {
                stops.counted = Some(regs.rip);
                if let Some(stop) = stops.reached(regs.rip) {
                    return Ok(stop);
                }
                if let Some(stopping) = self.stopping.get_mut(&space) {
                    stopping.counting.passed(regs.rip, stops);
                }
            }
            if at_point {
                let own = regs.rflags & TF != 0;
                let at = regs.rip;
                let trap = self.pass(space, task, regs)?;
                if trap != Trap::Step || own {
                    return Ok(trap);
                }
                stops.counted = None;
                if regs.rip == at {
                    // A jump to itself; or a string instruction that is not over yet, which was come to once.
                    arrived = self.stopping.get(&space).is_some_and(|stopping| stopping.is_jump(at));
                    continue;
                }
            }
            if let Some(trap) = self.come_out(space, task, regs, stops)? {
                return Ok(trap);
            }
            self.show_counters(space, regs, stops);
            let trap = self.inner.run(space, task, regs, &mut Stops::after(stops.budget))?;
            let trap = match self.hide_counters(space, task, regs, stops, trap)? {
                Some(Trap::StopPoint { address }) => {
                    stops.counted = Some(address);
                    return Ok(Trap::StopPoint { address });
                }
                Some(trap) => trap,
                None => continue,
            };
            let at = regs.rip.wrapping_sub(INT3_LEN);
            if trap == Trap::BudgetSpent && self.keeps(space, regs.rip) {
                stops.counted = None;
                return Ok(Trap::KeptPoint { address: regs.rip });
            }
            let here = trap == Trap::Exception(Exception::BREAKPOINT)
                && self.stopping.get(&space).is_some_and(|stopping| stopping.is_point(at));
            if here {
                regs.rip = at;
                stops.counted = None;
            } else if !self.passed(space, regs, trap) {
                if regs.rip != stops.counted.unwrap_or(regs.rip) {
                    stops.counted = None;
                }
                return Ok(trap);
            }
        }
        Ok(Trap::BudgetSpent)
    }
}

/// Where a task has got to that was stopped while passes were counted at native speed.
enum Left {
    /// To code of its own, with this trap.
    Out(Trap),
    /// To the counted instruction, which it was to execute when it trapped; the pass is counted.
    At(u64, Trap),
    /// To the head of a site, with nothing counted. There was no trap of its own.
    Before,
    /// To the head of a site, and it is about to pass the counted instruction for the last time that was asked for.
    Over(Site),
}

/// Takes a task out of the code of a counter, if it is there: its registers are then those that it would have without it.
fn leave_code(
    inner: &mut dyn Platform,
    (space, task): (SpaceId, TaskKey),
    regs: &mut Regs,
    counting: &Counting,
    trap: Trap,
) -> Result<Left, PlatformError> {
    loop {
        let at = regs.rip;
        let Some((site, inside)) = counting.inside(at) else { return Ok(Left::Out(trap)) };
        match inside {
            Inside::No => return Ok(Left::Out(trap)),
            Inside::Entry => {
                regs.rip = site.head;
                return Ok(if trap == Trap::BudgetSpent { Left::Out(trap) } else { Left::Before });
            }
            Inside::Over => {
                regs.rip = site.head;
                return Ok(Left::Over(site));
            }
            Inside::Moved(own) => {
                regs.rip = own;
                let trap = moved(trap, at, own);
                if own < site.counted {
                    counting.take_back(site);
                }
                return Ok(if own == site.counted { Left::At(own, trap) } else { Left::Out(trap) });
            }
            // Only the end of a budget stops it here.
            Inside::Counts if trap == Trap::BudgetSpent => {
                if inner.step(space, task, regs)? != Trap::Step {
                    return Err(PlatformError::Internal("code that counts passes has trapped"));
                }
            }
            Inside::Counts => return Err(PlatformError::Internal("code that counts passes has trapped")),
        }
    }
}

/// A trap at an address, as it is where the instruction belongs.
fn moved(trap: Trap, at: u64, own: u64) -> Trap {
    match trap {
        Trap::PageFault { addr, access, rip } if rip == at => Trap::PageFault { addr, access, rip: own },
        Trap::Exception(exception) if exception.address == at => {
            Trap::Exception(Exception { address: own, ..exception })
        }
        trap => trap,
    }
}

impl Platform for WithCodePoints {
    crate::forward_platform!(inner: processor_time, memory, map, unmap, write_protect, mapped, xstate_owner, save_xstate, load_xstate, abilities);

    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        if !self.show(space, stops) {
            return self.inner.run(space, task, regs, stops);
        }
        // Asked of the stop points, not of what is shown: where their pages are not mapped yet nothing is shown, and a platform that is
        // handed stop points itself comes to them by single steps.
        let kept = self.stopping.get(&space).is_some_and(Stopping::keeps_some);
        let trap = if stops.points.is_empty() && !kept {
            self.run_past_observed(space, task, regs, stops)?
        } else {
            self.run_to_points(space, task, regs, stops)?
        };
        self.leave(space, trap);
        Ok(trap)
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        self.settle(space);
        let trap = if self.stopping.get(&space).is_some_and(|stopping| stopping.is_point(regs.rip)) {
            self.pass(space, task, regs)?
        } else {
            self.step_past_observed(space, task, regs)?
        };
        self.leave(space, trap);
        Ok(trap)
    }

    fn approach(&mut self, space: SpaceId, rip: u64) {
        self.come_by(space, rip);
        if let Some(stopping) = self.stopping.get_mut(&space) {
            stopping.reveal(rip, LONGEST);
        }
    }

    fn reset_space(&mut self, space: SpaceId) {
        self.stopping.remove(&space);
        self.inner.reset_space(space);
    }

    fn drop_space(&mut self, space: SpaceId) {
        self.stopping.remove(&space);
        self.inner.drop_space(space);
    }

    fn evict_all(&mut self) {
        self.stopping.clear();
        self.inner.evict_all();
    }
}
