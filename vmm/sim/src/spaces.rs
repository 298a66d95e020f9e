//! Which address spaces the platform has resources for. They are a cache (design rule 2) with a bound: when there are too many, those
//! that have not run for longest are given up, and made again when they run.
//!
//! Key type: [`Spaces`]. Neighbours: [`crate::step`] (uses a space before each run), [`crate::snapshot`] (keeps those of another world).

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::MachineId;
use bloodhound_kernel::task::Vectors;
use bloodhound_platform::{Platform, SpaceId};

use crate::machine::{Machine, MachineError};

/// As many as a platform has room for, if nobody says less. On ptrace each is a process of the host.
const MOST: usize = 1024;

/// Names of address spaces ([`bloodhound_kernel::mm::Mm::space`]) with the time of their last use.
#[derive(Debug)]
pub(crate) struct Spaces {
    used: BTreeMap<u64, u64>,
    time: u64,
    most: usize,
}

impl Default for Spaces {
    fn default() -> Spaces {
        Spaces { used: BTreeMap::new(), time: 0, most: MOST }
    }
}

impl Spaces {
    /// A space is about to run. Whether it has to be made first.
    pub(crate) fn touch(&mut self, space: u64) -> bool {
        self.time += 1;
        self.used.insert(space, self.time).is_none()
    }

    /// A space is gone.
    pub(crate) fn remove(&mut self, space: u64) {
        self.used.remove(&space);
    }

    /// All are gone.
    pub(crate) fn clear(&mut self) {
        self.used.clear();
    }

    /// Of all spaces those that `keep` wants stay; the others.
    pub(crate) fn split(&mut self, keep: &BTreeSet<u64>) -> Vec<u64> {
        let gone: Vec<u64> = self.used.keys().copied().filter(|space| !keep.contains(space)).collect();
        gone.iter().for_each(|space| self.remove(*space));
        gone
    }

    /// All, in the order of their names.
    pub(crate) fn names(&self) -> BTreeSet<u64> {
        self.used.keys().copied().collect()
    }

    /// Those to be given up, if there are more than there is room for: the half that has not been used for longest, so that this
    /// does not happen at each step.
    fn surplus(&self) -> BTreeSet<u64> {
        if self.used.len() <= self.most {
            return BTreeSet::new();
        }
        let mut by_time: Vec<(u64, u64)> = self.used.iter().map(|(space, time)| (*time, *space)).collect();
        by_time.sort_unstable();
        by_time.truncate(self.used.len() - self.most.div_ceil(2));
        by_time.into_iter().map(|(_, space)| space).collect()
    }
}

impl Machine {
    /// Lets the platform have resources for at most so many address spaces, and for 2 at least. Changes nothing that a run does.
    pub fn set_most_spaces(&mut self, most: usize) {
        self.spaces.most = most.max(2);
    }

    /// Gives up spaces if there are too many. The one that was touched last stays.
    pub(crate) fn make_room(&mut self) -> Result<(), MachineError> {
        let surplus = self.spaces.surplus();
        if surplus.is_empty() {
            return Ok(());
        }
        let ids: Vec<MachineId> = self.world.nodes.keys().copied().collect();
        for id in ids {
            let held = |v: &Vectors| matches!(v, Vectors::Loaded(space) if surplus.contains(space));
            let tasks = self.world.nodes[&id].tasks.values().filter(|task| held(&task.vectors));
            let tids: Vec<Tid> = tasks.map(|task| task.tid).collect();
            for tid in tids {
                self.fetch_vectors(id, tid)?;
            }
        }
        for space in surplus {
            self.spaces.remove(space);
            self.code.forget(space);
            self.platform.drop_space(SpaceId(space));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_not_run_for_longest_go() {
        let mut spaces = Spaces { most: 4, ..Spaces::default() };
        assert!((1..=4).all(|space| spaces.touch(space)));
        assert!(spaces.surplus().is_empty());
        assert!(!spaces.touch(1));
        assert!(spaces.touch(5));
        assert_eq!(spaces.surplus(), BTreeSet::from([2, 3, 4]));
        spaces.remove(2);
        assert!(spaces.surplus().is_empty());
        assert_eq!(spaces.split(&BTreeSet::from([5, 3])), [1, 4]);
        assert_eq!(spaces.names(), BTreeSet::from([3, 5]));
    }
}
