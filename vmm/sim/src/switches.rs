//! Switches of tasks at instructions ([`Switches`]): a task is made to give way to others right before it executes an instruction
//! for the n-th time, or amid it ([`torn`]). Otherwise tasks change hands at system calls and exceptions only, so that a race between two plain accesses to
//! memory would never show.
//!
//! A run has a few such switches; every other one has many, at each so many-th pass of a few instructions. They are drawn when the run
//! begins, from what a profile ([`crate::profile`]) knows of the program, and stand in the run's log, so that a replay needs no profile.
//! Only the instructions that were drawn are stop points (`bloodhound_platform::code_points`), and only while their task runs: everything
//! else runs at full speed.
//!
//! Neighbours: [`crate::step`] runs tasks, [`crate::scheduler`] decides who goes first instead, [`crate::computing`] has the other
//! kind of stop points.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_decisions::{Decisions, ForcedSwitch, Lineage, Site, SwitchPart};
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_platform::{StopPoint, Stops};

use crate::code_place::CodePlace;
use crate::event::Event;
use crate::machine::Machine;
use crate::profile::{Profile, TaskName};
use crate::queue::Due;
use crate::scheduler::{Policy, PreemptAt, named};
use crate::step::Ran;
use crate::world::{FindingKind, World};

mod often;
mod torn;

use often::Again;
use torn::Torn;

/// Virtual time after which a task that gave way on a machine on which nobody else could run goes on at the latest, ns.
const REST: u64 = 20_000_000;
/// Half of the switches that are drawn are at one of so many first passes of their instruction.
const FIRST_PASSES: u64 = 2;

/// A switch that is to happen.
#[derive(Clone, Debug)]
struct Planned {
    /// The container, and the life of its service.
    of: (u32, u32),
    /// The task; `None`: whichever comes by.
    task: Option<Lineage>,
    place: CodePlace,
    /// At which pass, from 1.
    nth: u64,
    /// See [`torn`].
    torn: bool,
}

/// Where tasks are made to give way: part of the world.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    list: Arc<Vec<Planned>>,
    /// Of each, how many more passes it takes; 0: it has happened.
    left: Vec<u64>,
    /// Passes of those that are for any task, by the task.
    passes: BTreeMap<(usize, Lineage), u64>,
    again: Option<Again>,
    /// Tasks that gave way amid an instruction.
    torn: BTreeMap<(MachineId, Tid), Torn>,
}

impl Switches {
    /// Of a run with this log.
    ///
    /// # Errors
    /// An entry of the log names no instruction.
    pub fn of(log: &[ForcedSwitch]) -> Result<Switches, String> {
        let parsed = log.iter().map(|switch| {
            let (of, place) = ((switch.node, switch.life), switch.place.parse()?);
            Ok(Planned { of, task: Some(switch.task), place, nth: switch.nth, torn: switch.torn })
        });
        Ok(Switches::planned(parsed.collect::<Result<_, String>>()?))
    }

    fn planned(list: Vec<Planned>) -> Switches {
        let left = list.iter().map(|switch| switch.nth).collect();
        Switches { list: Arc::new(list), left, ..Switches::default() }
    }

    /// Those for certain tasks, as a log has them.
    fn logged(&self) -> Vec<ForcedSwitch> {
        self.list.iter().filter_map(|switch| Some(logged(switch, switch.task?, switch.nth))).collect()
    }

    /// Whether none is left to happen, as in each run without such switches.
    fn are_over(&self) -> bool {
        match &self.again {
            Some(again) => again.is_over(),
            None => self.left.iter().all(|left| *left == 0),
        }
    }

    /// Where a task is to stop: which switch, and at which address.
    fn points(
        &mut self,
        node: &Node,
        (id, tid, mm): (MachineId, Tid, MmId),
        decisions: &Decisions,
    ) -> Vec<(usize, u64)> {
        if let Some(again) = &mut self.again {
            return again.points(node, (id, tid, mm), decisions);
        }
        let (container, life, task) = named(node, tid);
        let pending = self.list.iter().enumerate().filter(|(at, switch)| {
            self.left[*at] > 0
                && switch.of == (container, life)
                && switch.task.is_none_or(|other| other == task)
        });
        let addresses = |(at, switch): (usize, &Planned)| -> Vec<(usize, u64)> {
            switch.place.addresses(node, id, tid, mm).into_iter().map(|address| (at, address)).collect()
        };
        pending.flat_map(addresses).collect()
    }

    /// Passes until a task gives way at a switch.
    fn left(&self, at: usize, task: TaskName) -> u64 {
        match &self.again {
            Some(again) => again.left(at, task),
            None => self.left[at],
        }
    }

    /// A task has passed the instruction of a switch so many times.
    fn passed(&mut self, at: usize, name: TaskName, passes: u64) -> Passed {
        let (.., task) = name;
        if let Some(again) = &mut self.again {
            return again.passed(at, name, passes);
        }
        self.left[at] -= passes.min(self.left[at]);
        let switch = &self.list[at];
        let happens = passes > 0 && self.left[at] == 0;
        if switch.task.is_some() {
            return if happens { Passed::GivesWayAsLogged { torn: switch.torn } } else { Passed::GoesOn };
        }
        let nth = self.passes.entry((at, task)).or_default();
        *nth += passes;
        if happens { Passed::GivesWayAnew(logged(switch, task, *nth)) } else { Passed::GoesOn }
    }
}

/// What follows from a task's passes of the instruction of a switch.
#[derive(Debug)]
enum Passed {
    /// Nothing: it has more to make.
    GoesOn,
    /// It gives way; the switch stands in the log since it was drawn.
    GivesWayAsLogged { torn: bool },
    /// It gives way, and this goes into the log.
    GivesWayAnew(ForcedSwitch),
}

fn logged(switch: &Planned, task: Lineage, nth: u64) -> ForcedSwitch {
    let (node, life) = switch.of;
    ForcedSwitch { node, life, task, place: switch.place.to_string(), nth, torn: switch.torn }
}

/// The switches that concern one run of a task.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    task: TaskName,
    /// Which switch, its address, the passes of it at the beginning of the run.
    points: Vec<(usize, u64, u64)>,
}

/// How a run of a task has ended, in which a switch may have come due: amid an instruction or before it.
pub(crate) fn judged(due: Option<bool>, ran: Ran) -> Ran {
    match (due, ran) {
        (Some(torn), Ran::Preempted(..)) => Ran::Switched { torn },
        (_, ran) => ran,
    }
}

impl Machine {
    /// A run begins, whose choices come from the seed of its decisions from now on: draws how its tasks interleave.
    pub fn begin_schedule(&mut self) -> Policy {
        let World { scheduler, decisions, .. } = &mut self.world;
        let policy = scheduler.begin(decisions, &self.scenario.schedule);
        let by_log = decisions.log().switches.clone();
        let switches = match (by_log, self.profile.clone()) {
            (Some(list), _) => Switches::of(&list),
            (None, Some(profile)) if self.scenario.schedule.preempt_at == PreemptAt::Code => {
                Ok(match policy.often {
                    Some(often) => {
                        let again = Some(Again::drawn(&profile, often, &self.world.decisions));
                        Switches { again, ..Switches::default() }
                    }
                    None => Switches::planned(self.draw_switches(&profile, policy.depth)),
                })
            }
            _ => return policy,
        };
        match switches {
            Ok(switches) => {
                self.world.decisions.set_switches(switches.logged());
                self.world.switches = switches;
            }
            Err(what) => self.find(FindingKind::Unsupported, None, format!("the log of the run: {what}")),
        }
        policy
    }

    /// Draws switches. They stand in the log, and whoever follows a log draws none: so these choices are no part of the run. One that
    /// is for any task comes into the log when it happens, with the task that it happens to.
    fn draw_switches(&self, profile: &Profile, count: u32) -> Vec<Planned> {
        let mut decisions = self.world.decisions.clone();
        let mut list: Vec<Planned> = Vec::new();
        for nth in 0..count {
            let mut choose = |part, bound| decisions.choose(Site::Switch { nth, part }, bound);
            let Some(accesses) = profile.drawn(choose(SwitchPart::Place, Profile::DRAWN)) else { break };
            let by = accesses.tasks();
            // Half of the switches are for any task of a container: where many tasks execute the same code, the first of them to come by
            // is often the one that matters, whichever it is.
            let drawn = choose(SwitchPart::Task, 2 * by.len() as u64) as usize;
            let ((node, life, task), passes) = by[drawn % by.len()];
            let any = drawn >= by.len();
            let same = |other: &&(TaskName, u64)| (other.0.0, other.0.1) == (node, life);
            let passes = if any { by.iter().filter(same).map(|(_, passes)| passes).sum() } else { passes };
            // And half of them are at one of the first passes.
            let drawn = choose(SwitchPart::Pass, 2 * passes);
            let nth = 1 + if drawn < passes { drawn % FIRST_PASSES.min(passes) } else { drawn - passes };
            let task = (!any).then_some(task);
            let torn = choose(SwitchPart::Torn, 2) == 1 && accesses.tears();
            list.push(Planned { of: (node, life), task, place: *accesses.place(), nth, torn });
        }
        list
    }

    /// Adds the switches of a task to where its run stops.
    pub(crate) fn add_switches(&mut self, id: MachineId, tid: Tid, mm: MmId, stops: &mut Stops) -> Pending {
        let World { nodes, switches, decisions, .. } = &mut self.world;
        if switches.are_over() {
            return Pending::default();
        }
        let node = &nodes[&id];
        let mut pending = Pending { task: named(node, tid), points: Vec::new() };
        for (at, address) in switches.points(node, (id, tid, mm), decisions) {
            let passes = switches.left(at, pending.task);
            match stops.points.binary_search_by_key(&address, |point| point.address) {
                Ok(known) => {
                    let point = &mut stops.points[known];
                    point.passes = point.passes.min(passes);
                }
                Err(room) => stops.points.insert(room, StopPoint::new(address, passes)),
            }
            let first = stops.points.iter().find(|point| point.address == address);
            pending.points.push((at, address, first.map_or(passes, |point| point.passes)));
        }
        pending
    }

    /// Counts the passes that a run of a task has made. If the task is to give way now, whether amid the instruction that it is at.
    pub(crate) fn count_switches(&mut self, pending: &Pending, stops: &Stops) -> Option<bool> {
        let mut due = None;
        for (at, address, before) in &pending.points {
            let now = stops.points.iter().find(|point| point.address == *address).map_or(0, |p| p.passes);
            let torn = match self.world.switches.passed(*at, pending.task, before - now) {
                Passed::GoesOn => continue,
                Passed::GivesWayAsLogged { torn } => torn,
                Passed::GivesWayAnew(switch) => {
                    let torn = switch.torn;
                    self.world.decisions.add_switch(switch);
                    torn
                }
            };
            due = Some(due.unwrap_or(false) | torn);
        }
        due
    }

    /// A task gives way before the instruction that it is at, or amid it. True if the machine loop has to look at the other nodes before the
    /// node's next step.
    pub(crate) fn switch(&mut self, id: MachineId, tid: Tid, torn: bool) -> bool {
        if torn {
            self.tear(id, tid);
        }
        let pid = self.world.nodes[&id].task(tid).pid;
        self.record(id, pid, &Event::Preempted { pid, tid });
        let sent = self.node_changed(id);
        let alone = self.world.nodes[&id].run_queue.len() < 2;
        let waits = alone && !self.only_the_end_is_left(id);
        let World { scheduler, nodes, decisions, queue, .. } = &mut self.world;
        let Some(node) = nodes.get_mut(&id).map(Arc::make_mut) else { return sent };
        scheduler.give_way(node, tid, decisions);
        if waits {
            // Others may become able to run when time passes.
            queue.push(node.clock.after(REST), Due::Rested(id));
            scheduler.rest(node, tid, None);
        }
        sent || waits
    }
}
