//! What programs see as randomness, as choices named by the task that is given it.
//!
//! Neighbours: `exec` (address-space layout, AT_RANDOM), `sys::misc` (getrandom(2)), `sys::open` (/dev/urandom).

use bloodhound_decisions::{Site, TaskRandom};

use crate::ctx::Ctx;

impl Ctx<'_> {
    /// The number of one more random thing that the caller is given.
    pub(crate) fn next_random(&mut self) -> u64 {
        let task = self.task_mut();
        task.randoms += 1;
        task.randoms - 1
    }

    /// The name of a choice for the caller's `nth` random thing.
    pub(crate) fn random_site(&self, part: TaskRandom, nth: u64) -> Site {
        let container = self.container();
        let (node, life) = (container.id.0, container.life);
        Site::TaskRandom { node, life, task: self.task().lineage, nth, part }
    }

    /// Fills `out` with random bytes: one choice.
    pub(crate) fn random_bytes(&mut self, out: &mut [u8]) {
        let nth = self.next_random();
        let site = self.random_site(TaskRandom::Bytes, nth);
        self.outside.decisions.bytes(site, out);
    }
}
