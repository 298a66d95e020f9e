//! How long tasks that only compute may run until they are preempted ([`Turns`]), and when they have had enough of it.
//!
//! Passes of most branches are counted at native speed (`bloodhound_platform::code_points`), of which it is known by their bytes
//! ([`Machine::is_cheap`]): a task in such a loop is counted as long as it computes. Each pass of any other may cost a trap of the host.
//!
//! Neighbours: [`super`] preempts tasks.

use std::sync::Arc;

use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::mm::Layout;
use bloodhound_kernel::node::MachineId;
use bloodhound_platform::code_points::{COUNTABLE, countable};
use bloodhound_platform::{Platform, SpaceId};

use super::suspect::ENDLESS_AT_LAST;
use super::{MOST, PASSES};
use crate::machine::Machine;

/// Turns double up to this power while other tasks of the node wait for theirs: some milliseconds.
const LONGEST_SHARED: u32 = 10;
/// The same while none does: some tenths of a second up to some seconds.
const LONGEST_ALONE: u32 = 16;
/// Preemptions in a row after which a task rests when it is preempted, and longer with each: it may wait for something that happens much later.
const RESTLESS: u32 = 16;
/// A task that is not endless rests for so many slices at most, as a power of two: virtual time goes about as fast for it as the host's does.
const LONGEST_REST: u32 = 7;
/// What lies below a mapping by so many bytes is left alone: a stack may grow there.
const MARGIN: u64 = 64 << 20;

/// The preemptions of a task since its last trap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// How many there were.
    pub times: u32,
    /// The last one was at a branch whose passes are counted at native speed.
    pub cheap: bool,
    /// It computes uncounted.
    pub uncounted: bool,
}

impl Turns {
    /// After how many passes the task is preempted next. `shared`: others wait for their turn.
    pub fn next(self, shared: bool) -> u64 {
        let longest = if shared { LONGEST_SHARED } else { LONGEST_ALONE };
        PASSES << if self.uncounted { 0 } else { self.times.min(longest) }
    }

    /// For how many slices the task rests when it is preempted, if it does, as a power of two.
    pub fn rest(self) -> Option<u32> {
        self.times.checked_sub(RESTLESS + 1).map(|times| times.min(LONGEST_REST))
    }

    /// For how many slices at most the task rests when it is preempted and others do not, as a power of two. A computation that comes to
    /// an end by itself shall not see its clock go to whatever happens next, which may be a minute away; one that waits for that
    /// sees it soon all the same. Branches whose passes are counted by traps are given up after [`MOST`] preemptions, so rests grow
    /// faster there.
    pub fn longest_rest(self) -> Option<u32> {
        let faster = if self.cheap { 1 } else { 3 };
        Some(self.times * faster).filter(|slices| *slices <= RESTLESS)
    }

    /// The task was preempted again.
    pub fn preempted(&mut self, cheap: bool) {
        self.times += 1;
        self.cheap = cheap;
        self.uncounted = !cheap && self.times >= MOST;
    }
}

/// What an address space has not mapped, as long as that is the same. On the host's side.
#[derive(Debug)]
pub(crate) struct Free {
    layout: Layout,
    free: Arc<[(u64, u64)]>,
}

impl Machine {
    /// Where a platform may put pages of its own for a while, in the memory of a task of a machine.
    pub(super) fn free_addresses(&mut self, id: MachineId, mm: MmId) -> Arc<[(u64, u64)]> {
        let mm = &self.world.nodes[&id].mms[mm];
        match &self.free {
            Some(known) if mm.has(&known.layout) => Arc::clone(&known.free),
            _ => {
                let free: Arc<[(u64, u64)]> = mm.free(MARGIN).into();
                self.free = Some(Free { layout: mm.layout(), free: Arc::clone(&free) });
                free
            }
        }
    }

    /// Whether passes of a branch are counted at native speed: a function of the world alone. So many bytes before it begin
    /// instructions that are executed one behind the other up to it. Of two counted branches near each other only one can be.
    pub(super) fn is_cheap(
        &mut self,
        id: MachineId,
        tid: Tid,
        mm: MmId,
        (address, straight): (u64, u8),
    ) -> bool {
        let Some(start) = address.checked_sub(straight.into()) else { return false };
        let node = &self.world.nodes[&id];
        let loops = &self.world.computing.loops;
        let mut others = loops.iter().flat_map(|counted| counted.place.addresses(node, id, tid, mm));
        if others.any(|other| other != address && other.abs_diff(address) < COUNTABLE as u64) {
            return false;
        }
        let mut code = [0; COUNTABLE];
        if self.world.nodes[&id].peek(tid, start, &mut code).is_err() {
            return false;
        }
        let free = self.free_addresses(id, mm);
        countable((start, address), &code, &free)
    }

    /// A task was preempted so often without a trap in between: whether it has had so much of the host's processor time since the first of
    /// them that it counts as endless.
    pub(super) fn is_endless(&mut self, id: MachineId, tid: Tid, space: SpaceId, times: u32) -> bool {
        let Some(now) = self.watched().processor_time(space).filter(|_| self.suspicious) else {
            return false;
        };
        if times <= 1 {
            self.computes_since.insert((id, tid), now);
            return false;
        }
        // A run that goes on from amid a computation counts from there.
        let since = *self.computes_since.entry((id, tid)).or_insert(now);
        let limit = u128::from(self.scenario.compute_limit) * u128::from(ENDLESS_AT_LAST);
        now.saturating_sub(since).as_nanos() >= limit
    }
}
