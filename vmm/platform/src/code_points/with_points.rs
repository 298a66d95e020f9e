//! A platform around another one that carries out code points ([`WithCodePoints`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::observed::{Around, REACH};
use super::stops::Stopping;
use super::{Mark, Observed};
use crate::{Exception, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap};

/// Length of an `int3`.
const INT3_LEN: u64 = 1;
/// The trap flag: a program that steps itself takes each step as a trap of its own.
const TF: u64 = 1 << 8;
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

    /// Shows the space just these stop points; runs do so by themselves, single steps meet what was shown last. False if this platform cannot, because it runs no instructions.
    pub fn show(&mut self, space: SpaceId, stops: &Stops) -> bool {
        if stops.points.is_empty() && !self.stopping.contains_key(&space) {
            return true;
        }
        let Some(memory) = self.inner.memory(space) else { return stops.points.is_empty() };
        let stopping = self.stopping.entry(space).or_default();
        if stopping.shows(memory, stops) {
            return true;
        }
        let observed = self.observed.as_ref();
        let changes = stopping.show(memory, stops, |offset| observed?.0.byte_at(offset));
        if !changes.is_empty() {
            self.inner.map(space, &changes);
        }
        if stopping.is_empty() {
            self.stopping.remove(&space);
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
        let trap = loop {
            let trap = self.inner.step(space, task, regs)?;
            if !self.passed(space, regs, trap) {
                break trap;
            }
        };
        if let Some(stopping) = self.stopping.get(&space) {
            stopping.lift(at, false);
        }
        Ok(trap)
    }

    fn run_to_points(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        for _ in 0..PASSES {
            let at_point = self.stopping.get(&space).is_some_and(|stopping| stopping.is_point(regs.rip));
            if at_point && stops.counted != Some(regs.rip) {
                stops.counted = Some(regs.rip);
                if let Some(stop) = stops.reached(regs.rip) {
                    return Ok(stop);
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
                    // A jump to itself.
                    continue;
                }
            }
            let trap = self.inner.run(space, task, regs, &mut Stops::after(stops.budget))?;
            let at = regs.rip.wrapping_sub(INT3_LEN);
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
        if !stops.points.is_empty() {
            return self.run_to_points(space, task, regs, stops);
        }
        loop {
            let trap = self.inner.run(space, task, regs, stops)?;
            if !self.passed(space, regs, trap) {
                return Ok(trap);
            }
        }
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        if self.stopping.get(&space).is_some_and(|stopping| stopping.is_point(regs.rip)) {
            return self.pass(space, task, regs);
        }
        loop {
            let trap = self.inner.step(space, task, regs)?;
            if !self.passed(space, regs, trap) {
                return Ok(trap);
            }
        }
    }

    fn approach(&mut self, space: SpaceId, rip: u64) {
        self.come_by(space, rip);
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
