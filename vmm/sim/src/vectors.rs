//! Where the vector registers (x87, SSE, AVX) of tasks are: in the world or on the platform, never in both.
//!
//! Reading and writing them costs as much as a trap, so they stay on the platform while tasks only make system calls. The world
//! says of each task where they are (`bloodhound_kernel::task::Vectors`). That a platform holds some for a task proves nothing:
//! the task may have executed another program since, in another space, or the world may have been replaced. Only what the world
//! calls `Loaded` is ever read back, and only from the space that it names.
//!
//! Neighbours: [`crate::step`] (loads before a run), [`crate::snapshot`] (brings everything back before a clone).

use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::MachineId;
use bloodhound_kernel::task::Vectors;
use bloodhound_platform::{Platform, PlatformError, SpaceId};

use crate::convert;
use crate::machine::{Machine, MachineError};
use crate::step::key;

impl Machine {
    /// Brings the vector registers of a task into the world, for the kernel to read.
    pub(crate) fn fetch_vectors(&mut self, id: MachineId, tid: Tid) -> Result<(), MachineError> {
        let Vectors::Loaded(space) = self.world.nodes[&id].task(tid).vectors else { return Ok(()) };
        let saved = self.platform.save_xstate(SpaceId(space));
        let state = match self.host(saved)? {
            Some((owner, state)) if owner == key(id, tid) => state,
            _ => return self.host(Err(PlatformError::Internal("the vector registers of a task are lost"))),
        };
        self.world.node_mut(id).task_mut(tid).vectors = Vectors::Held(Some(convert::xstate_bytes(&state)));
        Ok(())
    }

    /// The same for all tasks of a node.
    pub(crate) fn fetch_all_vectors(&mut self, id: MachineId) -> Result<(), MachineError> {
        let loaded = self.world.nodes[&id].tasks.values().filter(|t| matches!(t.vectors, Vectors::Loaded(_)));
        let tids: Vec<Tid> = loaded.map(|t| t.tid).collect();
        tids.into_iter().try_for_each(|tid| self.fetch_vectors(id, tid))
    }

    /// Makes the platform ready to run a task in a space: its vector registers are loaded there, those of the task that ran
    /// there before are kept.
    pub(crate) fn load_vectors(
        &mut self,
        id: MachineId,
        tid: Tid,
        space: SpaceId,
    ) -> Result<(), MachineError> {
        if self.world.nodes[&id].task(tid).vectors == Vectors::Loaded(space.0) {
            return Ok(());
        }
        // A task changes its space by execve(2) only, which gives it new registers.
        self.fetch_vectors(id, tid)?;
        if let Some(before) = self.platform.xstate_owner(space) {
            let before = Tid(before.0 as u32);
            let task = self.world.nodes[&id].tasks.get(&before);
            if task.is_some_and(|task| task.vectors == Vectors::Loaded(space.0)) {
                self.fetch_vectors(id, before)?;
            }
        }
        let task = self.world.node_mut(id).task_mut(tid);
        let state = convert::xstate(task.vectors.held());
        task.vectors = Vectors::Loaded(space.0);
        let loaded = self.platform.load_xstate(space, key(id, tid), &state);
        self.host(loaded)
    }
}
