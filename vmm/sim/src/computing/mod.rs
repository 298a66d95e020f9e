//! Tasks that compute for long without a trap, such as `while (!stop) i++` in one thread while another one is to set `stop`.
//!
//! Nothing on an ordinary machine counts instructions reliably, so a task changes hands at its traps only. A task that waits by
//! computing would therefore wait for ever. What ends this is a **counted loop**: a branch in the task's code whose passes are
//! counted by a stop point (`bloodhound_platform::code_points`). After so many passes since the task's last trap the task is preempted:
//! others run, or, if no other task of its node can, it rests until something on its node changes or the next event of the world is due,
//! and in the beginning for some milliseconds at most.
//!
//! How a loop is found. A task that has spent `Scenario::compute_limit` of processor time without a trap is under suspicion
//! ([`Suspicion`]). The host's clock decides only that somebody looks: the run is made again up to the task's last trap, and from
//! there all branches that the task comes by are counted ([`look`]). The first one to be passed [`PASSES`] times is the counted loop,
//! the same wherever the host interrupted the task. Loop and moment go into the run's log: a replay counts from the beginning and
//! needs no suspicion.
//!
//! While the task goes on its turns double ([`turns`]). Passes of most branches are counted at native speed; a task that is preempted there and does not
//! come to an end within some seconds is **endless** from its next preemption on, which the log says as well. Passes of other branches may cost
//! a trap of the host each. So after some preemptions in a row a task computes **uncounted** there, at full speed,
//! until its next trap: most computations end by themselves. Of one that does not within some seconds the loop is looked for in which it is
//! then, and the run is made again, in which only that one is counted from the task's last preemption on: a **late** loop. There the task
//! is preempted, and is endless from then on. An endless task is only ever given [`PASSES`] at a time, and rests longer and longer. If nothing can
//! happen any more that could end it, that is a `hang`, and so it is if the run comes to its end meanwhile. If all tasks of a machine
//! that could run are endless, one of them may not be after all, and each gets twice as long, once.
//!
//! Neighbours: [`crate::spin`] notices that a task computes (loops *without* side effects are parked there, which needs no
//! counting); [`crate::step`] runs tasks; whoever drives the machine makes the run again ([`Machine::try_again`]).

pub(crate) mod look;
pub(crate) mod suspect;
pub(crate) mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::CountedLoop;
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_platform::{SpaceId, StopPoint, Stops};

use self::turns::Turns;
use crate::code_place::CodePlace;
use crate::event::Event;
use crate::machine::Machine;
use crate::queue::Due;
use crate::trace::{Captured, captured};
use crate::world::{FindingKind, World};

/// Passes of a counted loop after which a task is preempted first; doubled with each time that it goes on without a trap.
const PASSES: u64 = 4096;
/// A return is passed so many times as often before it is a counted loop: functions that many programs share are called in loops of
/// their own, which are better places.
pub(crate) const RETURNS: u64 = 16;
/// Behind what is said of a task that changes something on each way round, and yet hangs: that is no proof, as it is of a loop that
/// changes nothing.
const LONGER: &str = ". It was not seen to repeat itself: if it would come to an end by itself, raise `simulation.compute_limit` \
                      (`exec --compute-limit`)";
/// Preemptions without a trap between them after which the task computes uncounted.
const MOST: u32 = 4;
/// What a preemption costs, in ns of virtual time: tasks that only compute share the processor of their node in slices of this.
const SLICE: u64 = 1_000_000;
/// An endless task rests for so many slices at most, as a power of two.
const LONGEST_REST: u32 = 10;

/// A counted loop.
#[derive(Clone, Copy, Debug)]
struct Loop {
    /// From which moment on its passes are counted.
    from: u64,
    /// The branch by which it goes round.
    place: CodePlace,
    /// So many bytes before the branch begin instructions that are executed one behind the other up to it.
    straight: u8,
}

/// What the world knows of tasks that compute.
#[derive(Clone, Debug, Default)]
pub struct Computing {
    /// Counted loops, and from which moment on.
    loops: Vec<Loop>,
    /// How often tasks were parked.
    parked: u64,
    /// Moments in which the task that is preempted counts as endless from then on.
    ends: BTreeSet<u64>,
    /// Tasks that were preempted since their last trap.
    preempted: BTreeMap<(MachineId, Tid), Turns>,
    /// Endless tasks, until their next trap, and how often they have rested.
    endless: BTreeMap<(MachineId, Tid), u32>,
    /// Machines all of whose tasks that could run were endless: one of them may not be, and got more time.
    patience: BTreeSet<MachineId>,
}

impl Computing {
    /// Of a run with this log.
    ///
    /// # Errors
    /// An entry of the log is no loop.
    pub fn of(log: &[CountedLoop]) -> Result<Computing, String> {
        let mut computing = Computing::default();
        for entry in log {
            if entry.endless {
                computing.ends.insert(entry.step);
                continue;
            }
            let (from, straight) = (entry.step, entry.straight);
            computing.loops.push(Loop { from, place: entry.place.parse()?, straight });
        }
        Ok(computing)
    }

    /// Takes over what was found in a run that is made again.
    fn learn(&mut self, found: Computing) {
        (self.loops, self.ends) = (found.loops, found.ends);
    }

    /// A task was parked, which is no step.
    pub(crate) fn parked(&mut self) {
        self.parked += 1;
    }

    /// A task was preempted although nothing else can happen: it computes on, uncounted if that cost much.
    fn go_on(&mut self, id: MachineId, tid: Tid) {
        let turns = self.preempted.entry((id, tid)).or_default();
        turns.uncounted = !turns.cheap;
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
        self.endless.retain(|task, _| lives(task));
    }
}

/// A task has computed for long, and is to be looked at from its last trap on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// When the task began to compute: steps of the run and parked tasks by then.
    moment: u64,
    /// Its machine.
    id: MachineId,
    /// The task.
    tid: Tid,
    /// How closely it is looked at.
    search: look::Depth,
    /// The branches of the loop that it is in, if it has computed uncounted.
    late: Option<BTreeSet<u64>>,
}

/// Where tests raise a suspicion, instead of processor time.
#[derive(Clone, Copy, Debug)]
pub struct SuspectAt {
    /// The moment at which the task's run begins, as a log of counted loops names it.
    pub moment: u64,
    /// How many instructions the task executes before it is suspected.
    pub instructions: u64,
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

/// Where a run of a task ends besides at its traps.
pub(crate) struct Counting {
    /// The stop points.
    pub stops: Stops,
    /// Whether the task is looked at, and how closely.
    pub search: Option<look::Depth>,
}

impl Machine {
    /// Whether tasks may come under suspicion. Who allows it makes the run again from its beginning when it ends with
    /// [`crate::Ended::Suspect`], by [`Machine::try_again`]. What the run's log says of loops holds in any case.
    pub fn set_suspicious(&mut self, on: bool) {
        self.suspicious = on && !self.trusts_log;
        self.tried.clear();
        self.trial = None;
        // Of a run before, which has ended otherwise.
        (self.suspicion, self.undecided) = (None, None);
        self.computes_since.clear();
        if let Some(breakpoints) = self.breakpoints.as_mut().filter(|_| on) {
            breakpoints.begin();
        }
        self.learn_counted();
    }

    /// For tests: a task is suspected there, and nowhere else.
    pub fn suspect_at(&mut self, at: Option<SuspectAt>) {
        self.suspect_at = at;
    }

    /// Whether the logs of runs from now on are complete, as in a replay: no task comes under suspicion then.
    pub fn trust_log(&mut self, on: bool) {
        (self.trusts_log, self.suspicious) = (on, self.suspicious && !on);
    }

    /// Takes over the loops that another run of the same seed has found, which are all there are.
    pub fn give_counted(&mut self, counted: &[CountedLoop]) {
        self.trust_log(true);
        self.world.decisions.set_counted(counted.to_vec());
        self.learn_counted();
    }

    fn learn_counted(&mut self) {
        // The log's own words, which have been read before, when the world was made.
        if let Ok(computing) = Computing::of(&self.world.decisions.log().counted) {
            self.world.computing.learn(computing);
        }
    }

    /// Begins the run again, from the world as it was then. What was found about tasks that compute is kept; listeners are not told
    /// again what they know.
    pub fn try_again(&mut self, beginning: World, suspicion: Suspicion) {
        let counted = self.world.decisions.log().counted.clone();
        self.restore(beginning);
        self.world.decisions.set_counted(counted);
        self.learn_counted();
        self.computes_since.clear();
        // What comes after it may be different now.
        self.tried.retain(|(moment, _), _| *moment <= suspicion.moment);
        self.trial = Some(Trial { suspicion, begun: false });
        if let Some(breakpoints) = &mut self.breakpoints {
            breakpoints.begin_again();
        }
        self.answers.rewind();
    }

    /// The present moment, which the log of counted loops names: steps, and parked tasks, which make none.
    fn moment(&self) -> u64 {
        self.world.steps + self.world.computing.parked
    }

    /// Where a run of a task ends, besides at its traps.
    pub(crate) fn stops(&mut self, id: MachineId, tid: Tid, mm: MmId) -> Counting {
        // A step begins where the task is: that is no pass, also not of an instruction before which the task gave way.
        let counted = Some(self.world.nodes[&id].task(tid).regs.rip);
        let (mut stops, moment) = (Stops { counted, ..Stops::default() }, self.moment());
        let search = self.trial.as_mut().and_then(|trial| {
            let s = &trial.suspicion;
            let now = (s.moment, s.id, s.tid) == (moment, id, tid);
            trial.begun |= now;
            now.then_some(s.search)
        });
        let tried = search.is_some();
        let late = self.trial.as_ref().filter(|_| tried).and_then(|trial| trial.suspicion.late.as_ref());
        let Computing { loops, preempted, .. } = &self.world.computing;
        let turns = preempted.get(&(id, tid)).copied().unwrap_or_default();
        let uncounted = turns.uncounted;
        let concerns = |from: u64| if uncounted { from == moment } else { from <= moment };
        if !tried && !loops.iter().any(|counted| concerns(counted.from)) {
            return Counting { stops, search: None };
        }
        let node = &self.world.nodes[&id];
        let passes = turns.next(node.run_queue.len() > 1);
        let mut addresses: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        for counted in loops.iter().filter(|counted| concerns(counted.from)) {
            // As in the search that has found it.
            let passes = if counted.from == moment { PASSES } else { passes };
            for address in counted.place.addresses(node, id, tid, mm) {
                addresses.insert(address, (passes * counted.place.weight(), counted.straight));
            }
        }
        for address in late.into_iter().flatten() {
            let weight = CodePlace::at(node, id, tid, mm, *address).map_or(1, |place| place.weight());
            addresses.insert(*address, (PASSES * weight, 0));
        }
        let point = |(address, (passes, straight))| StopPoint { address, passes, straight };
        stops.points = addresses.into_iter().map(point).collect();
        stops.free = self.free_addresses(id, mm);
        Counting { stops, search: search.filter(|_| !uncounted) }
    }

    /// A task has passed a branch so often that it is preempted. True if the machine loop has to look at the other nodes before the
    /// node's next step.
    pub(crate) fn preempt(&mut self, id: MachineId, tid: Tid, (address, straight): (u64, u8)) -> bool {
        let node = &self.world.nodes[&id];
        let (pid, mm) = (node.task(tid).pid, node.process(node.task(tid).pid).mm);
        let space = node.mms[mm].space;
        let moment = self.moment();
        let computing = &self.world.computing;
        let mut turns = computing.preempted.get(&(id, tid)).copied().unwrap_or_default();
        let late = turns.uncounted;
        let place = CodePlace::at(node, id, tid, mm, address);
        let mut known = computing.loops.iter().filter(|counted| Some(counted.place) == place);
        let straight = known.clone().next().map_or(straight, |counted| counted.straight);
        let is_known = known.any(|counted| !late || counted.from == moment);
        if let Some(place) = place.filter(|_| !is_known) {
            self.world.computing.loops.push(Loop { from: moment, place, straight });
            let entry = CountedLoop { step: moment, place: place.to_string(), straight, endless: false };
            self.world.decisions.count_loop(entry);
        }
        let mut endless = self.world.computing.endless.contains_key(&(id, tid));
        if !late && !endless {
            let cheap = self.is_cheap(id, tid, mm, (address, straight));
            turns.preempted(cheap);
            endless = cheap && self.ends(id, tid, SpaceId(space), turns.times, place);
        }
        if late || endless {
            turns = Turns::default();
            self.world.computing.endless.entry((id, tid)).or_default();
        }
        self.world.computing.preempted.insert((id, tid), turns);
        let endless = late || endless;
        let node = self.world.node_mut(id);
        node.take_clock(tid);
        node.charge_computed(tid, SLICE);
        self.record(id, pid, &Event::Preempted { pid, tid });
        let sent = self.node_changed(id);
        let alone = self.world.nodes[&id].run_queue.len() < 2;
        if endless {
            self.preempt_endless(id, tid, alone);
            return true;
        }
        let least = turns.rest().map(|slices| SLICE << slices);
        if !alone && least.is_none() {
            self.world.node_mut(id).yielded = true;
            return sent;
        }
        if alone && self.only_the_end_is_left(id) {
            // It may be a computation that ends by itself.
            self.world.computing.go_on(id, tid);
            return true;
        }
        self.rest(id, tid, least, turns.longest_rest().map(|slices| SLICE << slices));
        // The other nodes, or the time of the next event.
        true
    }

    /// Whether a task that is preempted in a loop whose passes cost little is endless from now on; the log says so then.
    fn ends(
        &mut self,
        id: MachineId,
        tid: Tid,
        space: SpaceId,
        times: u32,
        place: Option<CodePlace>,
    ) -> bool {
        let moment = self.moment();
        if self.world.computing.ends.contains(&moment) {
            return true;
        }
        let Some(place) = place.filter(|_| self.is_endless(id, tid, space, times)) else { return false };
        self.world.computing.ends.insert(moment);
        let entry = CountedLoop { step: moment, place: place.to_string(), straight: 0, endless: true };
        self.world.decisions.count_loop(entry);
        true
    }

    /// An endless task was preempted: it rests, unless it hangs or all others wait for it.
    fn preempt_endless(&mut self, id: MachineId, tid: Tid, alone: bool) {
        let World { computing, scheduler, nodes, .. } = &mut self.world;
        if alone && scheduler.any_resting(id).is_some() && computing.patience.insert(id) {
            computing.endless.retain(|(machine, _), _| *machine != id);
            computing.preempted.insert((id, tid), Turns { uncounted: true, ..Turns::default() });
            scheduler.wake_all_resting(id, nodes);
            self.world.node_mut(id).yielded = true;
            return;
        }
        if alone && self.only_the_end_is_left(id) {
            self.hangs(id, tid);
            return;
        }
        let rests = self.world.computing.endless.entry((id, tid)).or_default();
        *rests += 1;
        let least = SLICE << (*rests - 1).min(LONGEST_REST);
        self.rest(id, tid, Some(least), None);
    }

    /// Lets a preempted task rest: until its node changes or the next event is due, but not for longer than `most`; or for `least` and
    /// until the next event is due.
    fn rest(&mut self, id: MachineId, tid: Tid, least: Option<u64>, most: Option<u64>) {
        let World { scheduler, nodes, .. } = &mut self.world;
        let Some(node) = nodes.get_mut(&id).map(Arc::make_mut) else { return };
        let clock = node.clock;
        let earliest = least.map(|least| clock.after(least));
        scheduler.rest(node, tid, earliest);
        let next = if self.world.nodes[&id].run_queue.is_empty() { self.next_other_time() } else { None };
        let until = match (next, earliest) {
            (next, Some(earliest)) => next.unwrap_or(earliest).max(earliest),
            (Some(next), None) => {
                let latest = most.map_or(next, |most| clock.after(most));
                next.min(latest).max(clock)
            }
            // It is woken when nothing else can happen.
            (None, None) => return,
        };
        self.world.queue.push(until, Due::Computing(id));
    }

    /// When the next thing happens that is not the end of a rest, and that no running task causes.
    fn next_other_time(&self) -> Option<SimTime> {
        let deadlines =
            self.world.nodes.values().filter_map(|node| Some(node.next_deadline()?.max(node.clock)));
        let queued = self.world.queue.first_other().map(|(at, _)| at);
        deadlines.chain(queued).chain(self.client_deadline()).min()
    }

    /// Tasks that rest on a machine are woken.
    pub(crate) fn rested(&mut self, id: MachineId) {
        let node = &self.world.nodes[&id];
        let (idle, missed) = (node.run_queue.is_empty(), self.world.now.since(node.clock));
        let resting = self.world.scheduler.any_resting(id);
        // Where nothing else has run meanwhile, it is the task that rests which has used the processor; on a paused machine nothing does.
        if let Some(tid) = resting.filter(|_| idle && !self.world.paused.contains_key(&id)) {
            self.world.node_mut(id).charge_computed(tid, missed);
        }
        self.world.catch_up(id);
        let World { scheduler, nodes, now, .. } = &mut self.world;
        scheduler.wake_rested(id, *now, nodes);
        self.node_changed(id);
    }

    /// Whether the next thing to happen, if this node does nothing, is that the run ends.
    pub(crate) fn only_the_end_is_left(&self, id: MachineId) -> bool {
        let world = &self.world;
        let others = world.nodes.iter().any(|(other, node)| {
            *other != id && !node.run_queue.is_empty() || node.next_deadline().is_some()
        });
        // Where nothing comes after readiness, as with a single program, readiness is no event to wait for.
        let never_ready = self.scenario.settle >= self.scenario.max_time;
        let end = match world.queue.first_other() {
            None | Some((_, Due::End | Due::BootTimeout)) => true,
            Some((_, Due::HealthCheck(id))) => {
                never_ready && self.spec(*id).is_some_and(|spec| spec.health.is_none())
            }
            Some(_) => false,
        };
        !others && self.client_deadline().is_none() && end && !self.cpu_time_matters(id)
    }

    /// Whether something comes of the CPU time that the tasks use which compute on a machine.
    fn cpu_time_matters(&self, id: MachineId) -> bool {
        let node = &self.world.nodes[&id];
        let mut computing = node.run_queue.iter().copied().chain(self.world.scheduler.busy(id));
        computing.any(|tid| node.cpu_time_left(tid).is_some())
    }

    /// Something has to run when nothing else can happen: a task that rests computes on, uncounted. If it is endless, the run hangs.
    pub(crate) fn wake_resting(&mut self) -> bool {
        let World { scheduler, nodes, computing, .. } = &mut self.world;
        let Some((id, tid)) = scheduler.wake_resting(nodes) else { return false };
        if computing.endless.contains_key(&(id, tid)) {
            self.hangs(id, tid);
        } else {
            computing.go_on(id, tid);
        }
        true
    }

    fn hangs(&mut self, id: MachineId, tid: Tid) {
        let node = &self.world.nodes[&id];
        let task = node.task(tid);
        let whose = node.container_of_any(task.pid).id;
        let text = format!(
            "task {} ({}) computes at {:#x} without a system call for longer than the limit, and nothing can happen any more that \
             could end it{LONGER}",
            tid.number(),
            String::from_utf8_lossy(&task.comm),
            task.regs.rip
        );
        self.hung = Some((id, tid));
        self.find(FindingKind::Hang, Some(whose), text);
    }

    /// The run is at its end: a task that still computes, and does not come to an end, is a finding.
    pub fn find_endless(&mut self) {
        let Some((&(id, tid), _)) = self.world.computing.endless.first_key_value() else { return };
        let Some(task) = self.world.nodes[&id].tasks.get(&tid) else { return };
        let whose = self.world.nodes[&id].container_of_any(task.pid).id;
        let text = format!(
            "task {} ({}) computes at {:#x} without a system call for longer than the limit, and had not come to an end when the run \
             did{LONGER}",
            tid.number(),
            String::from_utf8_lossy(&task.comm),
            task.regs.rip
        );
        self.hung = Some((id, tid));
        self.find(FindingKind::Hang, Some(whose), text);
    }

    /// The task of the finding `hang`, if there is one, with what its stack is made of.
    pub fn hung(&self) -> Option<Captured> {
        let (id, tid) = self.hung?;
        let node = self.world.nodes.get(&id)?;
        let task = node.tasks.get(&tid)?;
        Some(captured(node, tid, node.process(task.pid).mm, &task.regs))
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
            "task {} ({comm}) has been computing for long by this machine's time, at last at {rip:#x}, without a system call",
            tid.number()
        ));
        self.world.node_mut(id).take_clock(tid);
        true
    }
}
