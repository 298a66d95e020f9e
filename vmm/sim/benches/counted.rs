//! A platform that counts what is asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bloodhound_platform::{Mapping, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap, XState};

/// Counts since the platform was made.
#[derive(Debug, Default)]
pub struct Counts {
    /// Traps of any kind.
    pub traps: AtomicU64,
    /// Page faults.
    pub faults: AtomicU64,
    /// Mapping operations: each is a system call in the stub.
    pub maps: AtomicU64,
    /// Pages mapped.
    pub pages: AtomicU64,
    /// Ranges unmapped.
    pub unmaps: AtomicU64,
    /// Vector states loaded.
    pub loads: AtomicU64,
}

impl Counts {
    /// One line.
    pub fn line(&self) -> String {
        let n = |c: &AtomicU64| c.load(Relaxed);
        format!(
            "{} traps, {} of them page faults; {} pages in {} runs mapped, {} ranges unmapped, {} vector states loaded",
            n(&self.traps),
            n(&self.faults),
            n(&self.pages),
            n(&self.maps),
            n(&self.unmaps),
            n(&self.loads)
        )
    }
}

/// A platform with counts.
pub struct Counted(pub Box<dyn Platform>, pub Arc<Counts>);

fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Relaxed);
}

impl Platform for Counted {
    bloodhound_platform::forward_platform!(0: step, approach, processor_time, memory, write_protect, mapped, xstate_owner, save_xstate, reset_space, drop_space, evict_all, abilities);

    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        let trap = self.0.run(space, task, regs, stops);
        add(&self.1.traps, 1);
        add(&self.1.faults, u64::from(matches!(trap, Ok(Trap::PageFault { .. }))));
        trap
    }

    fn map(&mut self, space: SpaceId, mappings: &[Mapping]) {
        add(&self.1.maps, mappings.len() as u64);
        add(&self.1.pages, mappings.iter().map(|m| u64::from(m.pages)).sum());
        self.0.map(space, mappings);
    }

    fn unmap(&mut self, space: SpaceId, addr: u64, len: u64) {
        add(&self.1.unmaps, 1);
        self.0.unmap(space, addr, len);
    }

    fn load_xstate(&mut self, space: SpaceId, task: TaskKey, state: &XState) -> Result<(), PlatformError> {
        add(&self.1.loads, 1);
        self.0.load_xstate(space, task, state)
    }
}
