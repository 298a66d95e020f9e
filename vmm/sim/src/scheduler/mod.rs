//! Which node runs next, and which task of it, and for how long ([`Scheduler`]). All choices of an interleaving are made here.
//!
//! Tasks that loop without side effects are parked: they are off their node's run queue until something on the node changes, and
//! are then probed again before they run ([`crate::spin`]). If nothing can happen any more but that parked tasks go round, the
//! run hangs ([`Scheduler::deadlocked`]).
//!
//! Neighbours: [`crate::machine`] asks for the next node, [`crate::step`] for the next task; the kernel keeps the run queue of
//! each node (`Node::run_queue`), as it knows who becomes runnable.

mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Decisions, Site, TurnPart};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::Node;
use bloodhound_net::NodeId;

pub use policy::Policy;
use policy::Pool;

/// Who runs next: part of the world.
#[derive(Clone, Debug)]
pub struct Scheduler {
    policy: Policy,
    /// Whose turn it is on each node.
    turns: BTreeMap<NodeId, Turn>,
    /// Tasks in loops without side effects, off their run queues.
    parked: BTreeSet<(NodeId, Tid)>,
    /// Tasks that were parked and woken, and have not run since: to be probed whether their loop goes on.
    to_probe: BTreeSet<(NodeId, Tid)>,
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

/// The node that runs next, and how far the others have come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// The earliest node that has a runnable task, and its clock.
    pub first: Option<(SimTime, NodeId)>,
    /// The clock of the next one; the end of time if there is none.
    pub second: SimTime,
}

impl Scheduler {
    /// Nobody has run yet.
    pub fn new(policy: Policy) -> Scheduler {
        Scheduler { policy, turns: BTreeMap::new(), parked: BTreeSet::new(), to_probe: BTreeSet::new() }
    }

    /// Begins a run of these decisions: draws its policy.
    pub(crate) fn begin(&mut self, decisions: &mut Decisions) -> Policy {
        self.policy = Policy::draw(decisions);
        self.turns.clear();
        self.policy
    }

    /// The node whose turn it is: that with the earliest clock of those that can run.
    pub(crate) fn next_node(
        &self,
        nodes: &BTreeMap<NodeId, Arc<Node>>,
        paused: &BTreeMap<NodeId, SimTime>,
    ) -> Next {
        let mut next = Next { first: None, second: SimTime::MAX };
        for (id, node) in nodes {
            if node.run_queue.is_empty() || paused.contains_key(id) {
                continue;
            }
            match next.first {
                Some((at, _)) if node.clock >= at => next.second = next.second.min(node.clock),
                Some((at, _)) => {
                    next.second = next.second.min(at);
                    next.first = Some((node.clock, *id));
                }
                None => next.first = Some((node.clock, *id)),
            }
        }
        next
    }

    /// Chooses who runs on a node: the current task until its turn is over, then one drawn from the runnable.
    pub(crate) fn pick(&mut self, node: &mut Node, decisions: &mut Decisions) -> Option<Tid> {
        let policy = self.policy;
        let turn = self.turns.entry(node.config.id).or_default();
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

    /// A task loops without side effects: it leaves the run queue.
    pub(crate) fn park(&mut self, node: &mut Node, tid: Tid) {
        node.run_queue.retain(|other| *other != tid);
        self.parked.insert((node.config.id, tid));
    }

    /// Something on a node changed: its parked tasks become runnable, and are probed when it is their turn.
    pub(crate) fn wake_parked(&mut self, id: NodeId, nodes: &mut BTreeMap<NodeId, Arc<Node>>) {
        if self.parked.is_empty() {
            return;
        }
        let of_node = (id, Tid(0))..=(id, Tid(u32::MAX));
        let woken: Vec<Tid> = self.parked.range(of_node).map(|(_, tid)| *tid).collect();
        let Some(node) = nodes.get_mut(&id).filter(|_| !woken.is_empty()) else { return };
        let node = Arc::make_mut(node);
        for tid in woken {
            self.parked.remove(&(id, tid));
            if node.tasks.contains_key(&tid) {
                node.enqueue(tid);
                self.to_probe.insert((id, tid));
            }
        }
    }

    /// Whether a task that is about to run was parked before, and is to be probed first. True once.
    pub(crate) fn take_probe(&mut self, id: NodeId, tid: Tid) -> bool {
        self.to_probe.remove(&(id, tid))
    }

    /// A task that is parked, of which nothing will ever come if nothing else can happen.
    pub(crate) fn deadlocked(&self) -> Option<(NodeId, Tid)> {
        self.parked.first().copied()
    }

    /// A node starts anew.
    pub(crate) fn forget(&mut self, id: NodeId) {
        self.turns.remove(&id);
        self.parked.retain(|(node, _)| *node != id);
        self.to_probe.retain(|(node, _)| *node != id);
    }
}
