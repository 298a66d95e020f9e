//! A platform around another one that lets tasks pass observing points ([`Observing`]).

use std::sync::Arc;

use super::observed::AROUND;
use super::{Mark, Observed};
use crate::extents::Extents;
use crate::{
    Abilities, Exception, Mapping, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap, XState,
};

/// Length of an `int3`.
const INT3_LEN: u64 = 1;

/// A platform whose spaces are shown frames with observing points. A task that comes to a point goes on as if it had not been
/// there: whoever runs tasks never learns of it.
pub struct Observing {
    inner: Box<dyn Platform>,
    observed: Arc<Observed>,
    mark: Arc<Mark>,
}

impl Observing {
    /// `mark` is what this platform's worker is doing.
    #[must_use]
    pub fn new(inner: Box<dyn Platform>, observed: Arc<Observed>, mark: Arc<Mark>) -> Observing {
        Observing { inner, observed, mark }
    }

    /// Whether a trap was that of a point, which is gone now; the task is then at its instruction again.
    fn passed(&self, space: SpaceId, regs: &mut Regs, trap: Trap) -> bool {
        if trap != Trap::Exception(Exception::BREAKPOINT) {
            return false;
        }
        // The `int3` of the program itself, at which no point can be, is not at a point.
        let at = regs.rip.wrapping_sub(INT3_LEN);
        if !self.reach(space, at) && !self.undo_copied(space, at) {
            return false;
        }
        regs.rip = at;
        true
    }

    /// Whether the `int3` at an address was one that the program has copied from a frame with points; the byte that belongs there
    /// is put back.
    fn undo_copied(&self, space: SpaceId, at: u64) -> bool {
        let Some(memory) = self.inner.memory(space) else { return false };
        let mut around = [0; AROUND];
        if memory.read(at.wrapping_sub(AROUND as u64 / 2), &mut around) != AROUND {
            return false;
        }
        let (Some(byte), Some((offset, _))) = (self.observed.copied(&around), memory.get(at)) else {
            return false;
        };
        // In place, whoever else has the frame: it is a copy of the same code there.
        bloodhound_frames::write_at(offset, &[byte]).is_some()
    }

    fn reach(&self, space: SpaceId, rip: u64) -> bool {
        let shown = self.inner.memory(space).and_then(|memory| memory.get(rip));
        shown.is_some_and(|(offset, _)| self.observed.reach(offset, &self.mark))
    }
}

impl Platform for Observing {
    fn run(
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

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        loop {
            let trap = self.inner.step(space, task, regs)?;
            if !self.passed(space, regs, trap) {
                return Ok(trap);
            }
        }
    }

    fn approach(&mut self, space: SpaceId, rip: u64) {
        self.reach(space, rip);
    }

    fn memory(&self, space: SpaceId) -> Option<&Extents> {
        self.inner.memory(space)
    }

    fn map(&mut self, space: SpaceId, mappings: &[Mapping]) {
        self.inner.map(space, mappings);
    }

    fn unmap(&mut self, space: SpaceId, addr: u64, len: u64) {
        self.inner.unmap(space, addr, len);
    }

    fn write_protect(&mut self, space: SpaceId) {
        self.inner.write_protect(space);
    }

    fn mapped(&self, space: SpaceId, out: &mut Vec<Mapping>) {
        self.inner.mapped(space, out);
    }

    fn xstate_owner(&self, space: SpaceId) -> Option<TaskKey> {
        self.inner.xstate_owner(space)
    }

    fn save_xstate(&mut self, space: SpaceId) -> Result<Option<(TaskKey, XState)>, PlatformError> {
        self.inner.save_xstate(space)
    }

    fn load_xstate(&mut self, space: SpaceId, task: TaskKey, state: &XState) -> Result<(), PlatformError> {
        self.inner.load_xstate(space, task, state)
    }

    fn reset_space(&mut self, space: SpaceId) {
        self.inner.reset_space(space);
    }

    fn drop_space(&mut self, space: SpaceId) {
        self.inner.drop_space(space);
    }

    fn evict_all(&mut self) {
        self.inner.evict_all();
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }
}
