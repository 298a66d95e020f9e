//! Tasks by priority ([`Priorities`]): the runnable task with the highest one runs until it blocks. Each task draws its priority when
//! it is first seen, and at a few moments of a run the running task falls behind all that have not fallen.
//!
//! This is probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi, Nagarakatte: "A Randomized Scheduler with Probabilistic
//! Guarantees of Finding Bugs", ASPLOS 2010): a bug that needs d ordered switches among n tasks and k steps is found by a run with a
//! probability of at least 1/(n k^(d-1)). Two things differ: priorities are drawn by the descent of a task, so that a task more or
//! less leaves the others theirs; and a task that yields, or runs for very long while others wait, falls behind all others, as a
//! program may wait for another task by calls that do not block.
//!
//! Neighbours: [`super::Scheduler`] picks by them; [`crate::switches`] changes them at instructions.

use std::collections::BTreeMap;

use bloodhound_decisions::{Decisions, Site, WORD};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::{MachineId, Node};

use super::often::Behind;

/// Priorities that no change has lowered have this bit.
const HIGH: u64 = 1 << 63;
/// Lowered ones lie from here on; those of tasks that have yielded below.
const LOW: u64 = 1 << 62;
/// That of tasks that stay behind all others, however often these fall.
const LAST: u64 = 1;
/// One task in so many does.
const STARVES: u64 = 3;
/// Steps that a task may make in a row while others could run.
const MOST_STEPS: u64 = 10_000;
/// One, in parts per billion.
const WHOLE: u32 = 1_000_000_000;

/// A task's.
#[derive(Clone, Copy, Debug, Default)]
struct Priority {
    level: u64,
    /// How often it was drawn.
    drawn: u64,
    /// Steps that the task made while others could have run.
    steps: u64,
}

/// The priorities of all tasks: part of the world.
#[derive(Clone, Debug, Default)]
pub(super) struct Priorities {
    of: BTreeMap<(MachineId, Tid), Priority>,
    /// How many more times calls may change one.
    changes: u32,
    /// A call changes its task's priority once in two to the power of this many times.
    rate: u32,
    /// How many tasks have fallen behind all others.
    fallen: u64,
    /// Steps that the running task of each machine made in a row while others could have run.
    row: BTreeMap<MachineId, (Tid, u64)>,
}

/// How choices about a task are named: its container, the life of that, its descent.
pub(crate) fn named(node: &Node, tid: Tid) -> (u32, u32, bloodhound_decisions::Lineage) {
    let task = node.task(tid);
    let container = node.container_of_any(task.pid);
    (container.id.0, container.life, task.lineage)
}

impl Priorities {
    /// Of a run in which calls change priorities so often at most, each with a probability of 1 in two to the power of `rate`.
    pub fn new(changes: u32, rate: u32) -> Priorities {
        Priorities { changes, rate, ..Priorities::default() }
    }

    /// The task that runs next; the run queue must not be empty. `before`: the one that ran last.
    pub fn pick(
        &mut self,
        node: &Node,
        before: Option<Tid>,
        yielded: bool,
        decisions: &mut Decisions,
    ) -> Tid {
        let id = node.config.id;
        let queue = node.run_queue.as_slice();
        if queue.len() < 2 {
            self.row.remove(&id);
            return queue[0];
        }
        if let Some(before) = before.filter(|before| queue.contains(before)) {
            let (_, row) =
                self.row.get(&id).copied().filter(|(tid, _)| *tid == before).unwrap_or((before, 0));
            self.row.insert(id, (before, row + 1));
            if yielded || row >= MOST_STEPS {
                // Those that stay behind are perhaps what it waits for.
                self.raise_last(id);
                self.fall(id, before);
            } else if self.changes > 0 && self.call_changes(node, before, decisions) {
                self.changes -= 1;
                self.lower(node, before, decisions);
            }
        }
        let mut best = (0, queue[0]);
        for tid in queue {
            let level = self.level(node, *tid, decisions);
            if level > best.0 {
                best = (level, *tid);
            }
        }
        best.1
    }

    fn level(&mut self, node: &Node, tid: Tid, decisions: &mut Decisions) -> u64 {
        match self.of.get(&(node.config.id, tid)) {
            Some(priority) if priority.level > 0 => priority.level,
            _ => self.draw(node, tid, HIGH, decisions),
        }
    }

    fn draw(&mut self, node: &Node, tid: Tid, base: u64, decisions: &mut Decisions) -> u64 {
        let (container, life, task) = named(node, tid);
        let priority = self.of.entry((node.config.id, tid)).or_default();
        let nth = priority.drawn;
        let drawn = decisions.choose(Site::Priority { node: container, life, task, nth }, WORD);
        priority.drawn += 1;
        priority.level = base | drawn >> 2;
        priority.level
    }

    /// The task falls behind all that have not been lowered.
    pub fn lower(&mut self, node: &Node, tid: Tid, decisions: &mut Decisions) {
        self.draw(node, tid, LOW, decisions);
    }

    /// The task gives way, to all that have not been lowered and to some of those that have.
    pub fn give_way(&mut self, node: &Node, tid: Tid, behind: Behind, decisions: &mut Decisions) {
        let id = node.config.id;
        let level = match behind {
            Behind::Drawn => return self.lower(node, tid, decisions),
            Behind::All => return self.fall(id, tid),
            Behind::Starving => return self.fall_or_starve(node, tid, decisions),
            Behind::Younger => LOW | u64::from(tid.0),
            Behind::Older => LOW | u64::from(u32::MAX - tid.0),
        };
        self.of.entry((id, tid)).or_default().level = level;
    }

    /// The task falls behind all others: for now, or for good.
    fn fall_or_starve(&mut self, node: &Node, tid: Tid, decisions: &mut Decisions) {
        let (container, life, task) = named(node, tid);
        let starves = decisions.choose(Site::Starve { node: container, life, task }, STARVES) + 1 == STARVES;
        if starves {
            self.of.entry((node.config.id, tid)).or_default().level = LAST;
        } else {
            self.fall(node.config.id, tid);
        }
    }

    /// Those that stay behind all others do so no longer.
    fn raise_last(&mut self, id: MachineId) {
        let level = LOW - self.fallen;
        let last = |(of, priority): &(&(MachineId, Tid), &mut Priority)| of.0 == id && priority.level == LAST;
        for (_, priority) in self.of.iter_mut().filter(last) {
            priority.level = level;
        }
    }

    /// The task falls behind all others.
    fn fall(&mut self, id: MachineId, tid: Tid) {
        self.fallen += 1;
        self.of.entry((id, tid)).or_default().level = LOW - self.fallen;
        self.row.remove(&id);
    }

    fn call_changes(&mut self, node: &Node, tid: Tid, decisions: &mut Decisions) -> bool {
        let (container, life, task) = named(node, tid);
        let priority = self.of.entry((node.config.id, tid)).or_default();
        let nth = priority.steps;
        priority.steps += 1;
        decisions.chance(Site::Change { node: container, life, task, nth }, WHOLE >> self.rate.min(29))
    }

    /// Forgets the tasks of a node that are gone.
    pub fn forget_dead(&mut self, node: &Node) {
        if !self.of.is_empty() {
            let id = node.config.id;
            self.of.retain(|(of, tid), _| *of != id || node.tasks.contains_key(tid));
        }
    }
}
