//! Which task of a node runs next, and for how long.
//!
//! Key types: [`Policy`] (drawn once per run: how long turns are, which tasks are favoured), [`Turn`] (whose turn it is on a node's
//! processor). Threads change hands at system calls only, so how turns are cut decides which interleavings a run can show: long
//! turns let a task finish before others begin, short ones put every pair of calls in either order. No single policy shows
//! everything, hence a policy per seed, as the faults have a profile per seed.
//!
//! Neighbours: [`crate::step`] runs what [`Machine::pick`] chose.

use std::fmt;
use std::sync::Arc;

use bloodhound_decisions::{Decisions, Stream};
use bloodhound_kernel::ids::Tid;
use bloodhound_net::NodeId;

use crate::machine::Machine;

/// Longest turns that a policy can have, in steps.
const LONGEST: [u64; 6] = [1, 2, 4, 12, 48, 48];
/// How much more often a favoured task is chosen than another one.
const FAVOUR: u64 = 8;

/// How a run shares out the processors of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A turn takes 1 to so many steps while others are runnable.
    pub longest: u64,
    /// A turn is drawn anew whenever a further task becomes runnable; otherwise only if the task was alone before.
    pub restless: bool,
    /// Half of the tasks, told by this number, are favoured; `None`: all are alike.
    pub favour: Option<u64>,
}

impl Policy {
    /// Draws a policy.
    pub fn draw(decisions: &mut Decisions) -> Policy {
        let mut below = |bound| decisions.below(Stream::Scheduler, bound);
        let longest = LONGEST[below(LONGEST.len() as u64) as usize];
        let restless = below(2) == 1;
        let favours = below(3) == 2;
        Policy { longest, restless, favour: favours.then(|| decisions.word(Stream::Scheduler)) }
    }

    /// How much weight a task has in the choice.
    fn weight(&self, node: NodeId, tid: Tid) -> u64 {
        let Some(salt) = self.favour else { return 1 };
        // The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
        let mut x = salt ^ (u64::from(node.0) << 32 | u64::from(tid.0));
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (x ^ x >> 31) & 1 == 0 { FAVOUR } else { 1 }
    }

    /// One of the runnable tasks, of which there is at least one.
    fn choose(&self, node: NodeId, pool: &[Tid], decisions: &mut Decisions) -> Tid {
        if self.favour.is_none() {
            return pool[decisions.below(Stream::Scheduler, pool.len() as u64) as usize];
        }
        let sum = pool.iter().map(|tid| self.weight(node, *tid)).sum();
        let mut at = decisions.below(Stream::Scheduler, sum);
        for tid in pool {
            let weight = self.weight(node, *tid);
            if at < weight {
                return *tid;
            }
            at -= weight;
        }
        unreachable!("a number below the sum of all weights lies in one of them")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.longest {
            1 => f.write_str("turns of 1 step")?,
            n => write!(f, "turns of 1 to {n} steps")?,
        }
        if self.restless {
            f.write_str(", drawn anew when a task becomes runnable")?;
        }
        if self.favour.is_some() {
            f.write_str(", half of the tasks are favoured")?;
        }
        Ok(())
    }
}

/// Whose turn it is on a node's processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// The task.
    pub task: Option<Tid>,
    /// Steps left. Of no meaning while the task is alone.
    left: u64,
    /// No other task was runnable when the turn began.
    alone: bool,
    /// The node's count of tasks that became runnable, at that time.
    woken: u64,
}

impl Machine {
    /// Begins a run of the current decisions: draws its policy.
    pub(crate) fn begin_schedule(&mut self) -> Policy {
        let policy = Policy::draw(&mut self.world.decisions);
        self.world.policy = policy;
        self.world.turns.clear();
        policy
    }

    /// Chooses who runs: the current task until its turn is over, then one drawn from the runnable.
    pub(crate) fn pick(&mut self, id: NodeId) -> Option<Tid> {
        let node = Arc::make_mut(self.world.nodes.get_mut(&id)?);
        let policy = self.world.policy;
        let turn = self.world.turns.entry(id).or_default();
        let yielded = std::mem::take(&mut node.yielded);
        let disturbed = turn.woken != node.woken && (turn.alone || policy.restless);
        if let Some(tid) = turn.task
            && (turn.left > 0 || turn.alone)
            && !yielded
            && !disturbed
            && node.run_queue.contains(&tid)
        {
            turn.left = turn.left.saturating_sub(1);
            return Some(tid);
        }
        let queue = &node.run_queue;
        let before = turn.task.filter(|_| yielded);
        // sched_yield: somebody else first, if there is somebody.
        let others: Vec<Tid>;
        let pool = match before {
            Some(before) if queue.len() > 1 => {
                others = queue.iter().copied().filter(|tid| *tid != before).collect();
                &others
            }
            _ => queue,
        };
        let decisions = &mut self.world.decisions;
        *turn = match pool.as_slice() {
            [] => Turn::default(),
            [only] => Turn { task: Some(*only), left: 0, alone: queue.len() == 1, woken: node.woken },
            _ => Turn {
                task: Some(policy.choose(id, pool, decisions)),
                left: decisions.below(Stream::Scheduler, policy.longest),
                alone: false,
                woken: node.woken,
            },
        };
        turn.task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_differ_from_seed_to_seed() {
        let drawn: Vec<Policy> = (0..200).map(|seed| Policy::draw(&mut Decisions::seeded(seed))).collect();
        for longest in LONGEST {
            assert!(drawn.iter().any(|p| p.longest == longest), "no policy with turns of {longest}");
        }
        assert!(drawn.iter().any(|p| p.restless) && drawn.iter().any(|p| !p.restless));
        assert!(drawn.iter().any(|p| p.favour.is_some()) && drawn.iter().any(|p| p.favour.is_none()));
        assert_eq!(drawn[7], Policy::draw(&mut Decisions::seeded(7)));
    }

    #[test]
    fn favoured_tasks_go_first_and_nobody_starves() {
        let policy = Policy { longest: 1, restless: false, favour: Some(5) };
        let pool: Vec<Tid> = (1..=20).map(Tid).collect();
        let mut decisions = Decisions::seeded(1);
        let mut counts = [0u64; 21];
        for _ in 0..20_000 {
            counts[policy.choose(NodeId(1), &pool, &mut decisions).0 as usize] += 1;
        }
        let weights: Vec<u64> = pool.iter().map(|tid| policy.weight(NodeId(1), *tid)).collect();
        assert!(weights.contains(&1) && weights.contains(&FAVOUR));
        for (tid, weight) in pool.iter().zip(&weights) {
            let count = counts[tid.0 as usize];
            assert!(count > 0, "{tid:?} never ran");
            assert_eq!(count > 500, *weight == FAVOUR, "{tid:?} with weight {weight} ran {count} times");
        }
    }
}
