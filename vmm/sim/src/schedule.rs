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

use bloodhound_decisions::{Decisions, Lineage, PolicyPart, Site, TurnPart};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::Node;
use bloodhound_net::NodeId;

use crate::machine::Machine;

/// Longest turns that a policy can have, in steps.
const LONGEST: [u64; 6] = [48, 48, 12, 4, 2, 1];
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
        let mut choose = |part, bound| decisions.choose(Site::Policy { part }, bound);
        // The longest turns are the plain ones.
        let longest = LONGEST[choose(PolicyPart::Longest, LONGEST.len() as u64) as usize];
        let restless = choose(PolicyPart::Restless, 2) == 1;
        let favours = choose(PolicyPart::Favours, 3) == 2;
        let favour = favours.then(|| choose(PolicyPart::Salt, bloodhound_decisions::WORD));
        Policy { longest, restless, favour }
    }

    /// How much weight a task has in the choice.
    fn weight(&self, node: NodeId, task: Lineage) -> u64 {
        let Some(salt) = self.favour else { return 1 };
        if task.hash(salt ^ u64::from(node.0)) & 1 == 0 { FAVOUR } else { 1 }
    }

    /// One of the runnable tasks; 0 is the first.
    fn choose(&self, site: Site, node: &Node, pool: Pool<'_>, decisions: &mut Decisions) -> Tid {
        if self.favour.is_none() {
            return pool.at(decisions.choose(site, pool.len as u64) as usize);
        }
        let weight = |tid: Tid| self.weight(node.config.id, node.task(tid).lineage);
        let all = || (0..pool.len).map(|at| pool.at(at));
        let mut drawn = decisions.choose(site, all().map(weight).sum());
        for tid in all() {
            let weight = weight(tid);
            if drawn < weight {
                return tid;
            }
            drawn -= weight;
        }
        unreachable!("a number below the sum of all weights lies in one of them")
    }
}

/// The tasks among which is chosen, of which there is at least one: so many of the queue, from a place on and round.
#[derive(Clone, Copy)]
struct Pool<'a> {
    queue: &'a [Tid],
    first: usize,
    len: usize,
}

impl Pool<'_> {
    fn at(&self, place: usize) -> Tid {
        self.queue[(self.first + place) % self.queue.len()]
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
    /// Turns that began when nobody had one.
    fresh: u64,
}

/// What is chosen at the end of a turn: named by the task whose turn it was, and how many it had; or, if that is gone, by how often it was so.
fn site_of(node: &mut Node, turn: &mut Turn) -> impl Fn(TurnPart) -> Site + use<> {
    let (id, life) = (node.config.id.0, node.life);
    let before = turn.task.and_then(|tid| node.tasks.get_mut(&tid)).map(|task| {
        task.turns += 1;
        (task.lineage, task.turns - 1)
    });
    if before.is_none() {
        turn.fresh += 1;
    }
    let fresh = turn.fresh;
    move |part| match before {
        Some((task, nth)) => Site::Turn { node: id, life, task, nth, part },
        None => Site::FreshTurn { node: id, life, nth: fresh, part },
    }
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
        if node.run_queue.len() < 2 {
            let task = node.run_queue.first().copied();
            *turn = Turn { task, left: 0, alone: true, woken: node.woken, fresh: turn.fresh };
            if task.is_none() {
                *turn = Turn { fresh: turn.fresh, ..Turn::default() };
            }
            return task;
        }
        let site = site_of(node, turn);
        // The next in the queue comes first: the one behind the task whose turn is over. A turn that was only disturbed goes on.
        let queue = node.run_queue.as_slice();
        let before = turn.task.and_then(|before| queue.iter().position(|tid| *tid == before));
        let over = yielded || turn.left == 0 && !turn.alone;
        let pool = Pool {
            queue,
            first: before.map_or(0, |at| at + usize::from(over)),
            // sched_yield: somebody else.
            len: queue.len() - usize::from(yielded && before.is_some()),
        };
        let decisions = &mut self.world.decisions;
        let (task, shorter) = match pool.len {
            1 => (pool.at(0), policy.longest - 1),
            _ => (
                policy.choose(site(TurnPart::Who), node, pool, decisions),
                decisions.choose(site(TurnPart::Length), policy.longest),
            ),
        };
        let left = policy.longest - 1 - shorter;
        *turn = Turn { task: Some(task), left, alone: false, woken: node.woken, fresh: turn.fresh };
        turn.task
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloodhound_abi::Regs;
    use bloodhound_kernel::ids::Pid;
    use bloodhound_kernel::task::Task;
    use bloodhound_vfs::MemBase;

    /// A node with tasks that are there in name only.
    fn node_with(tids: &[Tid]) -> Node {
        let mut base = MemBase::new();
        let vfs = bloodhound_vfs::Vfs::new(Default::default(), &mut base).expect("a file system");
        let config = bloodhound_kernel::node::NodeConfig {
            id: NodeId(1),
            hostname: String::new(),
            epoch_ns: 0,
            memory: 1 << 30,
            costs: Default::default(),
            patch_code: None,
            vdso: false,
        };
        let net = bloodhound_net::Stack::new(Default::default(), 1);
        let mut node = Node::new(config, vfs, net, [0, 0]);
        for tid in tids {
            let mut task = Task::new(*tid, Pid(1), Regs::default());
            task.lineage = Lineage::root(0).child(tid.0);
            node.tasks.insert(*tid, task);
        }
        node
    }

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
        let queue: Vec<Tid> = (1..=20).map(Tid).collect();
        let node = node_with(&queue);
        let pool = Pool { queue: &queue, first: 0, len: queue.len() };
        let mut decisions = Decisions::seeded(1);
        let mut counts = [0u64; 21];
        for nth in 0..20_000 {
            let site = Site::FreshTurn { node: 1, life: 0, nth, part: TurnPart::Who };
            counts[policy.choose(site, &node, pool, &mut decisions).0 as usize] += 1;
        }
        let weights: Vec<u64> =
            queue.iter().map(|tid| policy.weight(node.config.id, node.task(*tid).lineage)).collect();
        assert!(weights.contains(&1) && weights.contains(&FAVOUR));
        for (tid, weight) in queue.iter().zip(&weights) {
            let count = counts[tid.0 as usize];
            assert!(count > 0, "{tid:?} never ran");
            assert_eq!(count > 500, *weight == FAVOUR, "{tid:?} with weight {weight} ran {count} times");
        }
    }
}
