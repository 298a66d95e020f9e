//! How a run shares out the processors of its nodes among their tasks ([`Policy`]): how long turns are, which tasks are favoured.
//!
//! A node switches from one task to another only at the end of a step, so the lengths of turns decide which interleavings a run
//! can show: with long turns a task can finish before others begin, with short ones any two calls of different tasks can come in
//! either order. No single policy shows all interleavings, so each seed draws its own, as it draws its own profile of faults.

use std::fmt;

use bloodhound_decisions::{Decisions, Lineage, PolicyPart, Site};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::Node;
use bloodhound_net::NodeId;

use super::often::Often;

/// The values from which [`Policy::longest`] is drawn, in steps.
const LONGEST: [u64; 6] = [48, 48, 12, 4, 2, 1];
/// How much more often a favoured task is chosen than another one.
const FAVOUR: u64 = 8;

/// How often, at the rarest, a call changes the priority of its task: once in two to the power of so many times.
const RAREST: u64 = 12;

/// What decides who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Turns of a drawn length, each of a drawn task.
    Turns,
    /// A task runs until it blocks or yields; then the next of the queue does.
    Queue,
    /// The task with the highest priority runs until it blocks ([`super::priorities`]). A call changes priorities once in two to the
    /// power of `rate` times.
    Priorities {
        /// See above.
        rate: u32,
    },
}

/// What the policies of runs are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Order::Queue`].
    Fifo,
    /// [`Order::Turns`].
    Random,
    /// [`Order::Priorities`].
    Pct,
    /// Each run has one of them.
    Swarm,
}

/// Where tasks are preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptAt {
    /// At the end of steps: system calls and exceptions.
    Calls,
    /// At instructions as well ([`crate::switches`]).
    Code,
}

/// How tasks of a run interleave, as far as the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What decides who is next.
    pub kind: Kind,
    /// How many changes of priority, or switches at instructions, a run has at most.
    pub depth: u32,
    /// Where tasks are preempted.
    pub preempt_at: PreemptAt,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { kind: Kind::Random, depth: 3, preempt_at: PreemptAt::Calls }
    }
}

/// How a run shares out the processors of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What decides who is next.
    pub order: Order,
    /// Changes of priority, or switches at instructions, at most.
    pub depth: u32,
    /// Tasks switch at each so many-th pass of a few instructions, instead of a few times in the whole run.
    pub often: Option<Often>,
    /// A turn that begins while other tasks are runnable takes from 1 to so many steps.
    pub longest: u64,
    /// The turn is drawn anew whenever a further task becomes runnable. If false, only a turn that began when no other task was
    /// runnable is drawn anew then.
    pub restless: bool,
    /// About half of the tasks are favoured: which ones follows from a hash of the task with this number. `None`: none is.
    pub favour: Option<u64>,
}

impl Policy {
    /// Draws a policy.
    pub fn draw(decisions: &mut Decisions, schedule: &Schedule) -> Policy {
        let mut choose = |part, bound| decisions.choose(Site::Policy { part }, bound);
        let kind = match schedule.kind {
            // Priorities find most; the others find what waits for a fair turn.
            Kind::Swarm => [Kind::Fifo, Kind::Random, Kind::Pct, Kind::Pct, Kind::Pct]
                [choose(PolicyPart::Order, 5) as usize],
            kind => kind,
        };
        let deep = kind == Kind::Pct || schedule.preempt_at == PreemptAt::Code;
        let depth = if deep { choose(PolicyPart::Depth, u64::from(schedule.depth) + 1) as u32 } else { 0 };
        let often = schedule.kind == Kind::Swarm && schedule.preempt_at == PreemptAt::Code;
        let often = if often { Often::at(choose(PolicyPart::Often, Often::DRAWN)) } else { None };
        // Who goes first at the accesses to one variable is a matter of priorities.
        let kind = if often.is_some_and(|often| often.needs_priorities()) { Kind::Pct } else { kind };
        let plain =
            Policy { order: Order::Queue, depth, often, longest: u64::MAX, restless: false, favour: None };
        match kind {
            Kind::Fifo => return plain,
            Kind::Pct => {
                let rate = 1 + choose(PolicyPart::Rate, RAREST) as u32;
                return Policy { order: Order::Priorities { rate }, ..plain };
            }
            Kind::Random | Kind::Swarm => {}
        }
        // Choice 0 stands for the plainest policy: the longest turns, not restless, without favoured tasks.
        let longest = LONGEST[choose(PolicyPart::Longest, LONGEST.len() as u64) as usize];
        let restless = choose(PolicyPart::Restless, 2) == 1;
        let favours = choose(PolicyPart::Favours, 3) == 2;
        let favour = favours.then(|| choose(PolicyPart::Salt, bloodhound_decisions::WORD));
        Policy { order: Order::Turns, depth, often, longest, restless, favour }
    }

    /// The weight of a task when one of several is drawn.
    fn weight(&self, node: NodeId, task: Lineage) -> u64 {
        let Some(salt) = self.favour else { return 1 };
        if task.hash(salt ^ u64::from(node.0)) & 1 == 0 { FAVOUR } else { 1 }
    }

    /// Draws one of the tasks of `pool`. Choice 0 is the first of them.
    pub(super) fn choose(&self, site: Site, node: &Node, pool: Pool<'_>, decisions: &mut Decisions) -> Tid {
        if self.favour.is_none() {
            return pool.at(decisions.choose(site, pool.len as u64) as usize);
        }
        let weight = |tid: Tid| {
            let task = node.task(tid);
            self.weight(node.container_of_any(task.pid).id, task.lineage)
        };
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

/// The tasks from which one is drawn: `len` tasks of the run queue (at least one), from index `first` on; behind the end of the
/// queue it goes on at its beginning.
#[derive(Clone, Copy)]
pub(super) struct Pool<'a> {
    pub queue: &'a [Tid],
    pub first: usize,
    pub len: usize,
}

impl Pool<'_> {
    pub(super) fn at(&self, place: usize) -> Tid {
        self.queue[(self.first + place) % self.queue.len()]
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(often) = self.often {
            write!(f, "{often}, ")?;
        }
        match self.order {
            Order::Turns => {}
            Order::Queue => return write!(f, "each task until it blocks, {} switches", self.depth),
            Order::Priorities { .. } => return write!(f, "by priority, {} changes at most", self.depth),
        }
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

#[cfg(test)]
pub(super) mod tests {
    use bloodhound_decisions::TurnPart;

    use super::*;
    use bloodhound_abi::Regs;
    use bloodhound_kernel::container::{ContainerConfig, Network};
    use bloodhound_kernel::credentials::Credentials;
    use bloodhound_kernel::ids::{Pid, PlaceId, TableId};
    use bloodhound_kernel::node::MachineId;
    use bloodhound_kernel::shared::Common;
    use bloodhound_kernel::task::Task;
    use bloodhound_vfs::{Cred, MemBase};

    /// A node with tasks that have no process, no memory and no program.
    pub(in crate::scheduler) fn node_with(tids: &[Tid]) -> Node {
        let mut base = MemBase::new();
        let vfs = bloodhound_vfs::Vfs::new(Default::default(), &mut base).expect("a file system");
        let config = bloodhound_kernel::node::NodeConfig {
            id: MachineId(1),
            epoch_ns: 0,
            memory: 1 << 30,
            costs: Default::default(),
            vdso: false,
        };
        let mut node = Node::new(config, vfs, [0, 0]);
        let net = Network::Own(Box::new(bloodhound_net::Stack::new(Default::default(), 1)));
        let mounts = bloodhound_vfs::MountNs(0);
        node.add_container(ContainerConfig {
            id: NodeId(1),
            hostname: String::new(),
            mounts,
            net,
            pids: None,
            ipc: None,
            settings: Default::default(),
        });
        let common = Common { table: TableId(1), place: PlaceId(1) };
        for tid in tids {
            let credentials = Credentials::new(Cred::root(), 0);
            let mut task = Task::new(*tid, Pid(1), common, credentials, Regs::default());
            task.lineage = Lineage::root(0).child(tid.0);
            node.tasks.insert(*tid, task);
        }
        node
    }

    #[test]
    fn policies_differ_from_seed_to_seed() {
        let drawn: Vec<Policy> =
            (0..200).map(|seed| Policy::draw(&mut Decisions::seeded(seed), &Schedule::default())).collect();
        for longest in LONGEST {
            assert!(drawn.iter().any(|p| p.longest == longest), "no policy with turns of {longest}");
        }
        assert!(drawn.iter().any(|p| p.restless) && drawn.iter().any(|p| !p.restless));
        assert!(drawn.iter().any(|p| p.favour.is_some()) && drawn.iter().any(|p| p.favour.is_none()));
        assert_eq!(drawn[7], Policy::draw(&mut Decisions::seeded(7), &Schedule::default()));
    }

    #[test]
    fn favoured_tasks_go_first_and_nobody_starves() {
        let policy = Policy {
            order: Order::Turns,
            depth: 0,
            often: None,
            longest: 1,
            restless: false,
            favour: Some(5),
        };
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
            queue.iter().map(|tid| policy.weight(NodeId(1), node.task(*tid).lineage)).collect();
        assert!(weights.contains(&1) && weights.contains(&FAVOUR));
        for (tid, weight) in queue.iter().zip(&weights) {
            let count = counts[tid.0 as usize];
            assert!(count > 0, "{tid:?} never ran");
            assert_eq!(count > 500, *weight == FAVOUR, "{tid:?} with weight {weight} ran {count} times");
        }
    }
}
