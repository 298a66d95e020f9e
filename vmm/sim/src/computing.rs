//! Tasks that compute for long without a trap, such as `while (!stop) i++` in one thread while another one is to set `stop`.
//!
//! Nothing on an ordinary machine counts instructions reliably, so a task changes hands at its traps only. A task that waits by
//! computing would therefore wait for ever. What ends this is a **counted loop**: a branch in the task's code whose passes are
//! counted by a stop point (`bloodhound_platform::code_points`). After so many passes since the task's last trap the task is preempted:
//! others run, or, if no other task of its node can, it rests until something on its node changes.
//!
//! How a loop is found. A task that has spent [`SUSPICIOUS`] of host time without a trap is under suspicion ([`Suspicion`]): it is
//! single-stepped for a while to see which branches it comes by. Host time decides only that somebody looks. The run is then made
//! again up to the task's last trap, and from there these branches are counted: the first one to be passed [`PASSES`] times is the
//! counted loop. A task that goes round in one loop comes by the same branches wherever it is interrupted, so the answer does not
//! depend on the host. Loop and step go into the run's log: a replay counts from the beginning and needs no suspicion.
//!
//! Each pass that is counted costs a trap of the host. So after some preemptions in a row a task computes **uncounted**, at full speed,
//! until its next trap: most computations end by themselves. One that does not within seconds is **endless**: the run is made again, with that
//! in its log, and from there on the task is only ever given [`PASSES`] at a time. If nothing can happen any more that could end it, that is a
//! `hang`. If all tasks of a machine that could run are endless, one of them is not after all, and each gets four times as long.
//!
//! Neighbours: [`crate::spin`] notices that a task computes (loops *without* side effects are parked there, which needs no
//! counting); [`crate::step`] runs tasks; whoever drives the machine makes the run again ([`Machine::try_again`]).

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_decisions::CountedLoop;
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_platform::{Platform, PlatformError, Regs, SpaceId, StopPoint, Stops, Trap, decode};

use crate::code_place::CodePlace;
use crate::event::Event;
use crate::machine::Machine;
use crate::queue::Due;
use crate::step::key;
use crate::world::{FindingKind, World};

/// Passes of a counted loop after which a task is preempted first; doubled with each time that it goes on without a trap.
const PASSES: u64 = 4096;
/// Preemptions without a trap between them after which the task computes uncounted.
const MOST: u32 = 4;
/// Ticks of the watchdog (10 ms each) after which a task that computes uncounted is endless, if other tasks wait for their turn.
const ENDLESS: u32 = 400;
/// The same for a task that keeps nobody waiting.
const ENDLESS_ALONE: u32 = 3000;
/// Name of an endless task in the log, where that of a loop stands otherwise.
const ENDLESS_TASK: &str = "endless";
/// What a preemption costs, in ns of virtual time: tasks that only compute share the processor of their node in slices of this.
const SLICE: u64 = 1_000_000;
/// Ticks of the watchdog (10 ms each) without a trap after which a task is under suspicion.
pub(crate) const SUSPICIOUS: u32 = 100;
/// Steps for which a task under suspicion is watched.
const WATCHED: usize = 4096;
/// Branches that are counted at the same time, at most.
const MOST_BRANCHES: usize = 256;

/// What the world knows of tasks that compute.
#[derive(Clone, Debug, Default)]
pub struct Computing {
    /// Counted loops, and from which step on.
    loops: Vec<(u64, CodePlace)>,
    /// How often tasks were preempted since their last trap; [`MOST`]: they compute uncounted.
    preempted: BTreeMap<(MachineId, Tid), u32>,
    /// Steps after which the task that computes uncounted is endless.
    endless_from: BTreeSet<u64>,
    /// Endless tasks, until their next trap.
    endless: BTreeSet<(MachineId, Tid)>,
    /// How often all tasks of a machine that could run were endless: one of them is not, and got more time.
    patience: BTreeMap<MachineId, u32>,
}

impl Computing {
    /// Of a run with this log.
    ///
    /// # Errors
    /// An entry of the log is no loop.
    pub fn of(log: &[CountedLoop]) -> Result<Computing, String> {
        let mut computing = Computing::default();
        for entry in log {
            if entry.place == ENDLESS_TASK {
                computing.endless_from.insert(entry.step);
            } else {
                computing.loops.push((entry.step, entry.place.parse()?));
            }
        }
        Ok(computing)
    }

    /// Takes over what was found in a run that is made again.
    fn learn(&mut self, found: Computing) {
        (self.loops, self.endless_from) = (found.loops, found.endless_from);
    }

    /// The task has made a step that is no preemption.
    pub(crate) fn trapped(&mut self, id: MachineId, tid: Tid) {
        if !self.preempted.is_empty() {
            self.preempted.remove(&(id, tid));
            self.endless.remove(&(id, tid));
        }
    }

    /// Forgets the tasks of a node that are gone.
    pub(crate) fn forget_dead(&mut self, node: &Node) {
        let lives = |(id, tid): &(MachineId, Tid)| *id != node.config.id || node.tasks.contains_key(tid);
        self.preempted.retain(|task, _| lives(task));
        self.endless.retain(lives);
    }
}

/// A task has computed for long, and is to be looked at from its last trap on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Steps of the run when the task began to compute.
    step: u64,
    /// Its machine.
    id: MachineId,
    /// The task.
    tid: Tid,
    /// The branches that it came by. None: it is endless.
    branches: BTreeSet<u64>,
}

/// What a machine knows of a run that it makes again.
#[derive(Debug)]
pub(crate) struct Trial {
    suspicion: Suspicion,
    /// The run has come to the place from which it differs from the one before.
    begun: bool,
}

impl Trial {
    /// Whether what happens has happened before, and was told.
    pub fn repeats(&self) -> bool {
        !self.begun
    }
}

impl Machine {
    /// Whether tasks may come under suspicion. Who allows it makes the run again from its beginning when it ends with
    /// [`crate::Ended::Suspect`], by [`Machine::try_again`].
    pub fn set_suspicious(&mut self, on: bool) {
        self.suspicious = on;
        self.tried.clear();
        self.trial = None;
    }

    /// Begins the run again, from the world as it was then. What was found about tasks that compute is kept; listeners are not told
    /// again what they know.
    pub fn try_again(&mut self, beginning: World, suspicion: Suspicion) {
        let mut counted = self.world.decisions.log().counted.clone();
        if suspicion.branches.is_empty() {
            counted.push(CountedLoop { step: suspicion.step, place: ENDLESS_TASK.into() });
        }
        self.restore(beginning);
        // The log's own words, which have been read before.
        self.world.computing.learn(Computing::of(&counted).unwrap_or_default());
        self.world.decisions.set_counted(counted);
        self.trial = Some(Trial { suspicion, begun: false });
        self.answers.rewind();
    }

    /// Where a run of a task ends, besides at its traps.
    pub(crate) fn stops(&mut self, id: MachineId, tid: Tid, mm: MmId) -> Stops {
        let mut stops = Stops::default();
        let steps = self.world.steps;
        let trial = self.trial.as_mut().map(|trial| {
            let s = &trial.suspicion;
            let now = (s.step, s.id, s.tid) == (steps, id, tid);
            trial.begun |= now;
            (now, &*trial)
        });
        let tried = trial.filter(|(now, _)| *now).map(|(_, trial)| &trial.suspicion.branches);
        let computing = &mut self.world.computing;
        if computing.preempted.get(&(id, tid)) == Some(&MOST) && computing.endless_from.contains(&steps) {
            computing.endless.insert((id, tid));
            computing.preempted.insert((id, tid), 0);
        }
        let Computing { loops, preempted, .. } = &self.world.computing;
        if loops.is_empty() && tried.is_none() {
            return stops;
        }
        let level = preempted.get(&(id, tid)).copied().unwrap_or(0);
        if level >= MOST {
            return stops;
        }
        let node = &self.world.nodes[&id];
        let counted = loops.iter().filter(|(step, _)| *step <= steps);
        let mut addresses: BTreeMap<u64, u64> = BTreeMap::new();
        for address in counted.flat_map(|(_, counted)| counted.addresses(node, id, tid, mm)) {
            addresses.insert(address, PASSES << level);
        }
        for address in tried.into_iter().flatten() {
            addresses.entry(*address).or_insert(PASSES);
        }
        let point = |(address, passes)| StopPoint { address, passes };
        stops.points = addresses.into_iter().map(point).collect();
        // A step begins there: that is no pass.
        stops.counted = Some(node.task(tid).regs.rip);
        stops
    }

    /// A task has passed a branch so often that it is preempted. True if the machine loop has to look at the other nodes before the
    /// node's next step.
    pub(crate) fn preempt(&mut self, id: MachineId, tid: Tid, address: u64) -> bool {
        let node = &self.world.nodes[&id];
        let (pid, mm) = (node.task(tid).pid, node.process(node.task(tid).pid).mm);
        if let Some(found) = CodePlace::at(node, id, tid, mm, address)
            && !self.world.computing.loops.iter().any(|(_, known)| *known == found)
        {
            let step = self.world.steps;
            self.world.computing.loops.push((step, found));
            self.world.decisions.count_loop(CountedLoop { step, place: found.to_string() });
        }
        let endless = self.world.computing.endless.contains(&(id, tid));
        let level = self.world.computing.preempted.entry((id, tid)).or_default();
        *level += u32::from(!endless);
        let node = self.world.node_mut(id);
        node.take_clock(tid);
        node.charge(tid, SLICE);
        self.record(id, pid, &Event::Preempted { pid, tid });
        let sent = self.node_changed(id);
        let waiting = &self.world.nodes[&id].run_queue;
        if waiting.len() > 1 {
            let computing = &mut self.world.computing;
            if waiting.iter().all(|tid| computing.endless.contains(&(id, *tid))) {
                computing.endless.retain(|(machine, _)| *machine != id);
                computing.preempted.insert((id, tid), MOST);
                *computing.patience.entry(id).or_default() += 1;
            }
            self.world.node_mut(id).yielded = true;
            return sent;
        }
        if self.only_the_end_is_left(id) {
            if endless {
                self.hangs(id, tid);
            } else {
                // It may be a computation that ends by itself.
                self.world.computing.preempted.insert((id, tid), MOST);
            }
            return true;
        }
        let World { scheduler, nodes, .. } = &mut self.world;
        if let Some(node) = nodes.get_mut(&id) {
            scheduler.rest(std::sync::Arc::make_mut(node), tid);
        }
        // The other nodes, or the time of the next event.
        true
    }

    /// Whether the next thing to happen, if this node does nothing, is that the run ends.
    pub(crate) fn only_the_end_is_left(&self, id: MachineId) -> bool {
        let world = &self.world;
        let others = world.nodes.iter().any(|(other, node)| {
            *other != id && !node.run_queue.is_empty() || node.next_deadline().is_some()
        });
        // Where nothing comes after readiness, as with a single program, readiness is no event to wait for.
        let never_ready = self.scenario.settle >= self.scenario.max_time;
        let end = match world.queue.first() {
            None | Some(Due::End | Due::BootTimeout) => true,
            Some(Due::HealthCheck(id)) => {
                never_ready && self.spec(*id).is_some_and(|spec| spec.health.is_none())
            }
            Some(_) => false,
        };
        !others && self.client_deadline().is_none() && end
    }

    /// Something has to run when nothing else can happen: a task that rests computes on, uncounted. If it is endless, the run hangs.
    pub(crate) fn wake_resting(&mut self) -> bool {
        let World { scheduler, nodes, computing, .. } = &mut self.world;
        let Some((id, tid)) = scheduler.wake_resting(nodes) else { return false };
        if computing.endless.contains(&(id, tid)) {
            self.hangs(id, tid);
        } else {
            computing.preempted.insert((id, tid), MOST);
        }
        true
    }

    fn hangs(&mut self, id: MachineId, tid: Tid) {
        let node = &self.world.nodes[&id];
        let task = node.task(tid);
        let whose = node.container_of_any(task.pid).id;
        let text = format!(
            "task {} ({}) computes at {:#x} without a system call and does not come to an end, and nothing can happen any more \
             that could end it",
            tid.number(),
            String::from_utf8_lossy(&task.comm),
            task.regs.rip
        );
        self.find(FindingKind::Hang, Some(whose), text);
    }

    /// A task has spent a budget of host time without a trap, and is not known to loop: calls the `computing` callback, if one is
    /// set. `for_long`: the task has spent so many budgets in a row that the run is given up without a verdict. True if it is.
    pub(crate) fn computes(&mut self, id: MachineId, tid: Tid, for_long: bool) -> bool {
        if let Some(computing) = &mut self.computing {
            computing(id, tid, self.world.steps);
        }
        if !for_long {
            return false;
        }
        let task = self.world.node_mut(id).task(tid);
        let (comm, rip) = (String::from_utf8_lossy(&task.comm).into_owned(), task.regs.rip);
        self.undecided = Some(format!(
            "task {} ({comm}) has been computing for minutes of this machine's time, at last at {rip:#x}, without a system call",
            tid.number()
        ));
        self.world.node_mut(id).take_clock(tid);
        true
    }

    /// A task has computed for long: watches which branches it comes by. `Err` is a trap that came first, so that it was no loop.
    pub(crate) fn suspect(
        &mut self,
        id: MachineId,
        tid: Tid,
        (space, ticks): (SpaceId, u32),
        stops: &Stops,
        regs: &mut Regs,
    ) -> Result<Result<Option<Suspicion>, Trap>, PlatformError> {
        let step = self.world.steps;
        if !self.suspicious || !self.platform.abilities().traps_steps || self.tried.contains(&step) {
            return Ok(Ok(None));
        }
        let computing = &self.world.computing;
        if computing.preempted.get(&(id, tid)) == Some(&MOST) {
            let alone = self.world.nodes[&id].run_queue.len() < 2;
            let patience = computing.patience.get(&id).copied().unwrap_or(0).min(4);
            if ticks < if alone { ENDLESS_ALONE } else { ENDLESS } << (2 * patience) {
                return Ok(Ok(None));
            }
            self.tried.insert(step);
            return Ok(Ok(Some(Suspicion { step, id, tid, branches: BTreeSet::new() })));
        }
        self.tried.insert(step);
        let mut branches = BTreeSet::new();
        for _ in 0..WATCHED {
            self.platform.approach(space, regs.rip);
            let at = regs.rip;
            if stops.counts(at) {
                // A pass of it is to be counted, which the run that follows does.
                break;
            }
            let branch = self.platform.memory(space).and_then(|memory| decode::at(memory, at));
            let before = *regs;
            match self.platform.step(space, key(id, tid), regs)? {
                Trap::Step => {}
                // The run that follows meets it again.
                Trap::PageFault { .. } => {
                    *regs = before;
                    break;
                }
                trap => return Ok(Err(trap)),
            }
            if branch.is_some_and(|instruction| decode::may_go_back(&instruction))
                && branches.len() < MOST_BRANCHES
            {
                branches.insert(at);
            }
        }
        let found = Suspicion { step, id, tid, branches };
        Ok(Ok((!found.branches.is_empty()).then_some(found)))
    }
}
