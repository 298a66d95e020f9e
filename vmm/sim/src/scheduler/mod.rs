//! Which node runs next, which of its tasks, and for how many steps ([`Scheduler`]). All choices that decide how tasks interleave
//! are made here. A turn is the time for which a node runs one task: a number of steps that is drawn when the turn begins.
//!
//! Tasks that loop without side effects are parked: they leave their node's run queue. When something on the node changes they
//! are put back, and before they run they are probed: they may still loop ([`crate::spin`]). If parked tasks are all that is left
//! and nothing else can happen in the world, the run hangs ([`Scheduler::deadlocked`]).
//!
//! Neighbours: [`crate::machine`] asks for the next node, [`crate::step`] for the next task; the kernel keeps the run queue of
//! each node (`Node::run_queue`), as it knows who becomes runnable.

mod often;
mod policy;
mod priorities;
mod urgent;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Decisions, Site, TurnPart};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_kernel::task::TaskState;

pub(crate) use often::FIRST;
pub use often::{At, Behind, Often, When};
use policy::Pool;
pub use policy::{Kind, Order, Policy, PreemptAt, Schedule};
use priorities::Priorities;
pub(crate) use priorities::named;

/// Who runs next: part of the world.
#[derive(Clone, Debug)]
pub struct Scheduler {
    policy: Policy,
    /// Whose turn it is on each node.
    turns: BTreeMap<MachineId, Turn>,
    /// Tasks in loops without side effects, off their run queues.
    parked: BTreeSet<(MachineId, Tid)>,
    /// Tasks that were parked and woken, and have not run since. Before they run they are probed for whether they still loop.
    to_probe: BTreeSet<(MachineId, Tid)>,
    /// Tasks that were preempted while they computed, off their run queues until something on the node changes, but not before a
    /// time, if there is one.
    resting: BTreeMap<(MachineId, Tid), Option<SimTime>>,
    /// A task of each of these machines gets no turns, because of a fault; and whether it was taken off its run queue.
    starving: BTreeMap<MachineId, (Tid, bool)>,
    priorities: Priorities,
}

/// Whose turn it is on a node's processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// The task.
    pub task: Option<Tid>,
    /// Steps left. Has no meaning while `alone` is set: such a turn has no end of its own.
    left: u64,
    /// No other task of the node was runnable when the turn began.
    alone: bool,
    /// `Node::woken` (how often a task of the node became runnable) when the turn began. If that has grown, so has the choice.
    woken: u64,
    /// How many turns of this node were drawn when there was no task whose turn it was before.
    fresh: u64,
}

/// Names the choices that are made when a new turn is drawn: by the task whose turn it was, and how many turns of it came to an
/// end before; or, if there is no such task or it is gone, by how often that was so on this node.
fn site_of(node: &mut Node, turn: &mut Turn) -> impl Fn(TurnPart) -> Site + use<> {
    let before = turn.task.filter(|tid| node.tasks.contains_key(tid)).map(|tid| {
        let pid = node.task(tid).pid;
        let container = node.container_of_any(pid);
        let (id, life) = (container.id.0, container.life);
        let task = node.task_mut(tid);
        task.turns += 1;
        (id, life, task.lineage, task.turns - 1)
    });
    if before.is_none() {
        turn.fresh += 1;
    }
    let (id, fresh) = (node.config.id.0, turn.fresh);
    let life = node.containers.first().map_or(0, |container| container.life);
    move |part| match before {
        Some((node, life, task, nth)) => Site::Turn { node, life, task, nth, part },
        None => Site::FreshTurn { node: id, life, nth: fresh, part },
    }
}

fn priorities_of(policy: Policy) -> Priorities {
    match policy.order {
        Order::Priorities { rate } => Priorities::new(policy.depth, rate),
        _ => Priorities::default(),
    }
}

/// The task that ran last if it still can and has not yielded, else the one behind it in the queue, which must not be empty.
fn next_of_queue(queue: &[Tid], before: Option<Tid>, yielded: bool) -> Tid {
    match before.and_then(|before| queue.iter().position(|tid| *tid == before)) {
        Some(at) => queue[(at + usize::from(yielded)) % queue.len()],
        None => queue[0],
    }
}

/// The node that runs next, and the clock of the one that comes after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// The earliest node that has a runnable task, and its clock.
    pub first: Option<(SimTime, MachineId)>,
    /// The earliest clock of the other nodes that have a runnable task; the end of time if there are none.
    pub second: SimTime,
}

fn of_node(id: MachineId) -> std::ops::RangeInclusive<(MachineId, Tid)> {
    (id, Tid(0))..=(id, Tid(u32::MAX))
}

impl Scheduler {
    /// A scheduler for a world in which no task has run yet.
    pub fn new(policy: Policy) -> Scheduler {
        Scheduler {
            policy,
            turns: BTreeMap::new(),
            parked: BTreeSet::new(),
            to_probe: BTreeSet::new(),
            resting: BTreeMap::new(),
            starving: BTreeMap::new(),
            priorities: priorities_of(policy),
        }
    }

    /// The policy of the run.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Begins a run whose choices come from `decisions`: draws its policy.
    pub(crate) fn begin(&mut self, decisions: &mut Decisions, schedule: &Schedule) -> Policy {
        self.policy = Policy::draw(decisions, schedule);
        self.turns.clear();
        self.priorities = priorities_of(self.policy);
        self.policy
    }

    /// The node that runs next: of those that have a runnable task and are not paused, the one with the earliest clock.
    pub(crate) fn next_node(
        &self,
        nodes: &BTreeMap<MachineId, Arc<Node>>,
        paused: &BTreeMap<MachineId, SimTime>,
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

    /// Chooses the task that runs next on a node: the current one until its turn is over, then one that is drawn from the
    /// runnable tasks. `None` if no task is runnable.
    pub(crate) fn pick(&mut self, node: &mut Node, decisions: &mut Decisions) -> Option<Tid> {
        if let Some((tid, taken)) = self.starving.get_mut(&node.config.id)
            && node.run_queue.contains(tid)
        {
            node.run_queue.retain(|other| other != tid);
            *taken = true;
        }
        let policy = self.policy;
        let turn = self.turns.entry(node.config.id).or_default();
        let yielded = std::mem::take(&mut node.yielded);
        if node.urgent
            && let Some(urgent) = urgent::turn(node, turn, yielded)
        {
            *turn = urgent;
            return turn.task;
        }
        if policy.order != Order::Turns {
            let task = if node.run_queue.is_empty() {
                None
            } else if policy.order == Order::Queue {
                Some(next_of_queue(&node.run_queue, turn.task, yielded))
            } else {
                Some(self.priorities.pick(node, turn.task, yielded, decisions))
            };
            *turn = Turn { task, fresh: turn.fresh, ..Turn::default() };
            return task;
        }
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
        // Choice 0 is the first of the pool. If the turn is over, that is the task behind the current one in the queue. If the
        // turn was only disturbed (another task became runnable meanwhile), it is the current task itself.
        let queue = node.run_queue.as_slice();
        let before = turn.task.and_then(|before| queue.iter().position(|tid| *tid == before));
        let over = yielded || turn.left == 0 && !turn.alone;
        let pool = Pool {
            queue,
            first: before.map_or(0, |at| at + usize::from(over)),
            // After sched_yield(2) the current task, which is the last of the pool, is left out.
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

    /// Lets others go before a task, which is about to execute an instruction at which the run switches tasks.
    pub(crate) fn give_way(&mut self, node: &mut Node, tid: Tid, decisions: &mut Decisions) {
        if matches!(self.policy.order, Order::Priorities { .. }) {
            let behind = self.policy.often.map_or(Behind::Drawn, |often| often.behind);
            self.priorities.give_way(node, tid, behind, decisions);
        } else {
            node.yielded = true;
        }
    }

    /// Parks a task, which was found to loop without side effects: it leaves the run queue.
    pub(crate) fn park(&mut self, node: &mut Node, tid: Tid) {
        node.run_queue.retain(|other| *other != tid);
        self.parked.insert((node.config.id, tid));
    }

    /// Lets a task that was preempted rest: it leaves the run queue. With a time, nothing but that time wakes it.
    pub(crate) fn rest(&mut self, node: &mut Node, tid: Tid, earliest: Option<SimTime>) {
        node.run_queue.retain(|other| *other != tid);
        self.resting.insert((node.config.id, tid), earliest);
    }

    /// Lets a task of a machine have no more turns.
    pub(crate) fn starve(&mut self, id: MachineId, tid: Tid) {
        self.starving.insert(id, (tid, false));
    }

    /// Whether a task of a machine starves.
    pub(crate) fn starves(&self, id: MachineId) -> bool {
        self.starving.contains_key(&id)
    }

    /// The task of a machine that starves has turns again, if it wants them: one that was stopped meanwhile waits for SIGCONT. False if
    /// there is none, or it is gone.
    pub(crate) fn feed(&mut self, id: MachineId, nodes: &mut BTreeMap<MachineId, Arc<Node>>) -> bool {
        let Some((tid, taken)) = self.starving.remove(&id) else { return false };
        let Some(node) = nodes.get_mut(&id).filter(|node| node.tasks.contains_key(&tid)) else {
            return false;
        };
        if taken && node.task(tid).state == TaskState::Runnable {
            Arc::make_mut(node).enqueue(tid);
        }
        true
    }

    /// No task starves any more.
    pub(crate) fn feed_all(&mut self, nodes: &mut BTreeMap<MachineId, Arc<Node>>) {
        let ids: Vec<MachineId> = self.starving.keys().copied().collect();
        for id in ids {
            self.feed(id, nodes);
        }
    }

    /// The tasks of a machine that would go on computing: those that are parked, and those that rest.
    pub(crate) fn busy(&self, id: MachineId) -> impl Iterator<Item = Tid> {
        let parked = self.parked.range(of_node(id)).map(|(_, tid)| *tid);
        parked.chain(self.resting.range(of_node(id)).map(|((_, tid), _)| *tid))
    }

    /// A task of a machine that rests, if there is one.
    pub(crate) fn any_resting(&self, id: MachineId) -> Option<Tid> {
        self.resting.range(of_node(id)).next().map(|((_, tid), _)| *tid)
    }

    /// Wakes one task that rests, if there is one. To be called when nothing else can happen in the world.
    pub(crate) fn wake_resting(
        &mut self,
        nodes: &mut BTreeMap<MachineId, Arc<Node>>,
    ) -> Option<(MachineId, Tid)> {
        let ((id, tid), _) = self.resting.pop_first()?;
        Arc::make_mut(nodes.get_mut(&id)?).enqueue(tid);
        Some((id, tid))
    }

    /// Wakes all tasks of a machine that rest.
    pub(crate) fn wake_all_resting(&mut self, id: MachineId, nodes: &mut BTreeMap<MachineId, Arc<Node>>) {
        self.wake(id, nodes, |_| true);
    }

    /// Wakes the tasks of a machine whose rest is over by its time.
    pub(crate) fn wake_rested(
        &mut self,
        id: MachineId,
        now: SimTime,
        nodes: &mut BTreeMap<MachineId, Arc<Node>>,
    ) {
        self.wake(id, nodes, |earliest| earliest.is_some_and(|earliest| earliest <= now));
    }

    fn wake(
        &mut self,
        id: MachineId,
        nodes: &mut BTreeMap<MachineId, Arc<Node>>,
        wakes: impl Fn(Option<SimTime>) -> bool,
    ) {
        let woken: Vec<Tid> =
            self.resting.range(of_node(id)).filter(|(_, e)| wakes(**e)).map(|((_, tid), _)| *tid).collect();
        for tid in woken {
            self.resting.remove(&(id, tid));
            if let Some(node) = nodes.get_mut(&id).filter(|node| node.tasks.contains_key(&tid)) {
                Arc::make_mut(node).enqueue(tid);
            }
        }
    }

    /// To be called when something on a node changed: its resting and its parked tasks become runnable. Those that were parked are
    /// probed when it is their turn.
    pub(crate) fn wake_parked(&mut self, id: MachineId, nodes: &mut BTreeMap<MachineId, Arc<Node>>) {
        if !self.resting.is_empty() {
            self.wake(id, nodes, |earliest| earliest.is_none());
        }
        if self.parked.is_empty() {
            return;
        }
        let woken: Vec<Tid> = self.parked.range(of_node(id)).map(|(_, tid)| *tid).collect();
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

    /// Whether a task that is about to run was parked before, and is to be probed first. True only for the first call after the
    /// task was woken.
    pub(crate) fn take_probe(&mut self, id: MachineId, tid: Tid) -> bool {
        self.to_probe.remove(&(id, tid))
    }

    /// One of the parked tasks, if there are any. To be asked when nothing else can happen in the world: no parked task will then
    /// ever be woken, so the run hangs.
    pub(crate) fn deadlocked(&self) -> Option<(MachineId, Tid)> {
        self.parked.first().copied()
    }

    /// Forgets the tasks of a node that are gone: others may get their numbers. A node without tasks starts anew.
    pub(crate) fn forget_dead(&mut self, node: &Node) {
        let id = node.config.id;
        let lives = |tid: &Tid| node.tasks.contains_key(tid);
        if node.tasks.is_empty() {
            self.turns.remove(&id);
        } else if let Some(turn) =
            self.turns.get_mut(&id).filter(|turn| !turn.task.is_some_and(|tid| lives(&tid)))
        {
            *turn = Turn { fresh: turn.fresh, ..Turn::default() };
        }
        self.parked.retain(|(node, tid)| *node != id || lives(tid));
        self.to_probe.retain(|(node, tid)| *node != id || lives(tid));
        self.resting.retain(|(node, tid), _| *node != id || lives(tid));
        self.starving.retain(|node, (tid, _)| *node != id || lives(tid));
        self.priorities.forget_dead(node);
    }
}

#[cfg(test)]
mod tests {
    use super::policy::tests::node_with;
    use super::*;

    /// A task that was stopped while it starved has no turn before SIGCONT: it would wait for the processor and never use it.
    #[test]
    fn who_is_fed_has_turns_only_if_it_wants_them() {
        for (state, wants) in [(TaskState::Runnable, true), (TaskState::Stopped, false)] {
            let (tid, other) = (Tid(1), Tid(2));
            let mut node = node_with(&[tid, other]);
            let id = node.config.id;
            node.enqueue(tid);
            node.enqueue(other);
            let mut decisions = Decisions::seeded(1);
            let mut scheduler = Scheduler::new(Policy::draw(&mut decisions, &Schedule::default()));
            scheduler.starve(id, tid);
            assert_eq!(scheduler.pick(&mut node, &mut decisions), Some(other));
            assert_eq!(node.run_queue, [other]);
            node.task_mut(tid).state = state;
            let mut nodes = BTreeMap::from([(id, Arc::new(node))]);
            assert!(scheduler.feed(id, &mut nodes));
            assert_eq!(nodes[&id].run_queue.contains(&tid), wants);
        }
    }
}
