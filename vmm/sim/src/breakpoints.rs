//! Breakpoints: places in programs of which somebody is told each time a task comes there, with the task's registers and stack
//! ([`Watcher`]). They lie outside of the world: a hit takes no virtual time, is no step, and nothing of the run depends on it.
//!
//! A breakpoint is a kept point (`bloodhound_platform::code_points`) in each space that has mapped its file. Whoever runs a task does it through
//! [`Watched`], a platform around the machine's own that tells of hits and goes on.
//!
//! What is told is a function of the run, as the run itself is. A task that waits in a loop without side effects goes round as often as the host
//! lets it, until it is parked: of such a loop one round is told ([`Breakpoints::parked`]). So hits wait until the run of their task is over. A hit is
//! told of when the task *arrives*: not again when it goes on from there after a fault or after others had their turn. And a run that is made
//! again ([`Machine::try_again`]) is not told again.
//!
//! Neighbours: [`crate::step`] runs tasks; the runner knows where places are and what a stack says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bloodhound_abi::consts::PROT_EXEC;
use bloodhound_abi::{Regs, SimTime};
use bloodhound_kernel::ids::{MmId, Pid, Tid};
use bloodhound_kernel::mm::Backing;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_net::NodeId;
use bloodhound_platform::code_points::WithCodePoints;
use bloodhound_platform::extents::Extents;
use bloodhound_platform::{
    Exception, Platform, PlatformError, SpaceId, Stops, TaskKey, Trap, forward_platform,
};

use crate::code_view::CodeFile;
use crate::machine::Machine;
use crate::step::Ran;
use crate::trace::{Captured, captured};
use crate::world::World;

/// Hits in one run of a task after which whoever runs it gets to look, as after a budget of host time.
const BURST: u32 = 1024;
/// Hits of a task that was found to compute which wait no longer: a loop without side effects would have been found by then.
const MANY: usize = 4096;
/// Passes in single steps that are remembered.
const MOST_STEPPED: usize = 1 << 16;

/// A place in a file at which tasks are stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePoint {
    /// Where it is in the file: a proven start of an instruction.
    pub offset: u64,
    /// The number of its breakpoint; several places may have one.
    pub breakpoint: u32,
    /// The instruction: where a program has put something else in its place, there is no breakpoint.
    pub code: Vec<u8>,
}

/// A task has come to a breakpoint.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The number of the breakpoint.
    pub breakpoint: u32,
    /// Which of its hits this is, from 1.
    pub nth: u64,
    /// The time that the task would read.
    pub at: SimTime,
    /// Whose process it is.
    pub service: NodeId,
    /// The process.
    pub pid: Pid,
    /// The task, and its name.
    pub tid: Tid,
    /// See `tid`.
    pub comm: String,
    /// Its registers.
    pub regs: Regs,
    /// What [`Watcher::stack`] said.
    pub stack: Vec<String>,
}

/// Who has set breakpoints.
pub trait Watcher {
    /// Where breakpoints are in a file that a program is about to execute. Asked once for each file.
    fn points(&mut self, file: &CodeFile<'_>) -> Vec<CodePoint>;

    /// A stack in words, the place of the task first.
    fn stack(&mut self, captured: &Captured) -> Vec<String>;

    /// A hit.
    fn hit(&mut self, hit: &Hit);
}

/// How the present run of a task is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Hits are told.
    Tells,
    /// What happens has happened before, and was told.
    Silent,
    /// Nothing is looked at.
    Off,
}

/// A hit that waits.
struct Seen {
    breakpoint: u32,
    regs: Regs,
    /// `None`: there are so many already that it is not to be told.
    hit: Option<Hit>,
}

/// Where breakpoints are in a space, by address, and of which state of its memory that is.
struct InSpace {
    changes: Option<u64>,
    generation: u64,
    points: Arc<BTreeMap<u64, Vec<u32>>>,
    addresses: Arc<[u64]>,
}

/// See the module's text. Belongs to the machine, no part of the world.
pub(crate) struct Breakpoints {
    watcher: Box<dyn Watcher>,
    /// Hits of one breakpoint that are told; then it is gone.
    most: u64,
    mood: Mood,
    paused: bool,
    files: BTreeMap<[u8; 32], Arc<[CodePoint]>>,
    spaces: BTreeMap<SpaceId, InSpace>,
    /// How often breakpoints were taken away.
    generation: u64,
    /// Hits that were told, by breakpoint.
    told: BTreeMap<u32, u64>,
    /// Tasks that are at a breakpoint whose instruction they have not executed since they came there; and the same when the run began.
    arrived: BTreeMap<TaskKey, Regs>,
    arrived_at_first: BTreeMap<TaskKey, Regs>,
    /// Hits of the present run of a task, and how many of each breakpoint.
    waiting: Vec<Seen>,
    of_each: BTreeMap<u32, u64>,
    /// Single steps so far, and at which of them a breakpoint was passed.
    steps: u64,
    stepped: Vec<u64>,
    /// Whether there was a hit since a budget was spent last.
    active: bool,
    /// Processor time that was spent on hits.
    spent: Duration,
}

impl Breakpoints {
    fn new(watcher: Box<dyn Watcher>, most: u64) -> Breakpoints {
        Breakpoints {
            watcher,
            most,
            mood: Mood::Tells,
            paused: false,
            files: BTreeMap::new(),
            spaces: BTreeMap::new(),
            generation: 0,
            told: BTreeMap::new(),
            arrived: BTreeMap::new(),
            arrived_at_first: BTreeMap::new(),
            waiting: Vec::new(),
            of_each: BTreeMap::new(),
            steps: 0,
            stepped: Vec::new(),
            active: false,
            spent: Duration::ZERO,
        }
    }

    /// Another run begins, or the present one from here on.
    pub fn begin(&mut self) {
        self.arrived_at_first.clone_from(&self.arrived);
    }

    /// The run begins again where [`Breakpoints::begin`] was called.
    pub fn begin_again(&mut self) {
        self.arrived.clone_from(&self.arrived_at_first);
        self.drop_waiting();
    }

    /// Where breakpoints are in a space.
    fn find(
        &mut self,
        world: &World,
        space: SpaceId,
        (id, tid): (MachineId, Tid),
        changes: Option<u64>,
    ) -> Arc<[u64]> {
        let generation = self.generation;
        if let Some(known) = self.spaces.get(&space)
            && known.changes == changes
            && known.generation == generation
        {
            return known.addresses.clone();
        }
        let node = &world.nodes[&id];
        let mm = node.process(node.task(tid).pid).mm;
        let mut points: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for vma in node.mms[mm].vmas().filter(|vma| vma.prot & PROT_EXEC != 0) {
            let Backing::File { ino, offset } = vma.backing else { continue };
            let Some(image) = node.vfs.pristine(ino) else { continue };
            let in_file = self.files.entry(image.sha256()).or_insert_with(|| {
                let path = node.vfs.path_of(node.vfs.root(), ino);
                let service = node.container_of_any(node.task(tid).pid).id;
                let mut points = self.watcher.points(&CodeFile { service, path: &path, image });
                points.sort_by_key(|point| (point.offset, point.breakpoint));
                points.into()
            });
            let from = in_file.partition_point(|point| point.offset < offset);
            let within =
                in_file[from..].iter().take_while(|point| point.offset < offset + (vma.end - vma.start));
            for point in within {
                let address = vma.start + (point.offset - offset);
                let more = self.told.get(&point.breakpoint).is_none_or(|told| *told < self.most);
                if more && is_there(node, tid, address, &point.code) {
                    points.entry(address).or_default().push(point.breakpoint);
                }
            }
        }
        let addresses: Arc<[u64]> = points.keys().copied().collect();
        let points = Arc::new(points);
        self.spaces.insert(space, InSpace { changes, generation, points, addresses: addresses.clone() });
        addresses
    }

    /// The breakpoints at an address of a space.
    fn at(&self, space: SpaceId, address: u64) -> Vec<u32> {
        let known = self.spaces.get(&space);
        known.and_then(|known| known.points.get(&address).cloned()).unwrap_or_default()
    }

    /// A task has come to breakpoints.
    fn hit(&mut self, world: &World, (id, tid): (MachineId, Tid), breakpoints: &[u32], regs: &Regs) {
        self.active = true;
        if self.mood != Mood::Tells {
            return;
        }
        for breakpoint in breakpoints.iter().copied() {
            let of_this = self.of_each.entry(breakpoint).or_default();
            *of_this += 1;
            let nth = self.told.get(&breakpoint).map_or(0, |told| *told) + *of_this;
            let hit = (nth <= self.most).then(|| {
                let node = &world.nodes[&id];
                let pid = node.task(tid).pid;
                let mm = node.process(pid).mm;
                let captured = captured(node, tid, mm, regs);
                let (stack, comm) = (self.watcher.stack(&captured), captured.comm);
                let (at, service) = (node.lent_clock(), node.container_of_any(pid).id);
                Hit { breakpoint, nth, at, service, pid, tid, comm, regs: *regs, stack }
            });
            self.waiting.push(Seen { breakpoint, regs: *regs, hit });
        }
    }

    fn drop_waiting(&mut self) {
        self.waiting.clear();
        self.of_each.clear();
    }

    /// Tells the hits that wait.
    fn tell(&mut self) {
        for seen in std::mem::take(&mut self.waiting) {
            let told = self.told.entry(seen.breakpoint).or_default();
            let Some(hit) = seen.hit.filter(|_| *told < self.most) else { continue };
            *told += 1;
            if *told == self.most {
                self.generation += 1;
            }
            self.watcher.hit(&Hit { nth: *told, ..hit });
        }
        self.drop_waiting();
    }

    /// The task of the hits that wait was parked in a loop of so many instructions: one round of it is told. `still`: it was parked in this
    /// loop before, so that was told already.
    fn parked(&mut self, cycle: usize, still: bool) {
        if still {
            self.drop_waiting();
            return;
        }
        let since = self.steps.saturating_sub(cycle as u64);
        let round = self.stepped.iter().filter(|step| **step >= since).count();
        let same = |(a, b): (&Seen, &Seen)| (a.breakpoint, &a.regs) == (b.breakpoint, &b.regs);
        if round > 0 && self.waiting.len() >= round {
            let (all, later) = (self.waiting.iter(), &self.waiting[round..]);
            let repeated =
                all.rev().skip(round).zip(later.iter().rev()).take_while(|pair| same(*pair)).count();
            self.waiting.truncate(self.waiting.len() - repeated);
        }
        self.tell();
    }
}

/// Whether an instruction stands at an address.
fn is_there(node: &Node, tid: Tid, address: u64, code: &[u8]) -> bool {
    let mut there = vec![0; code.len()];
    node.peek(tid, address, &mut there).is_ok() && there == code
}

/// The machine's platform as tasks are run on it: tells of breakpoints, and goes on.
pub(crate) struct Watched<'a> {
    platform: &'a mut WithCodePoints,
    watching: Option<(&'a mut Breakpoints, &'a World)>,
}

impl<'a> Watched<'a> {
    /// `breakpoints`: those that are set, if any are.
    pub fn new(
        platform: &'a mut WithCodePoints,
        breakpoints: Option<&'a mut Breakpoints>,
        world: &'a World,
    ) -> Watched<'a> {
        let on = breakpoints.filter(|breakpoints| breakpoints.mood != Mood::Off);
        Watched { platform, watching: on.map(|breakpoints| (breakpoints, world)) }
    }

    /// A task is about to run: sees to it that it stops at breakpoints, and tells if it is at one.
    fn begin(&mut self, space: SpaceId, task: TaskKey, regs: &Regs) {
        let Some((breakpoints, world)) = &mut self.watching else { return };
        let changes = self.platform.memory(space).map(Extents::changes);
        let addresses = breakpoints.find(world, space, named(task), changes);
        self.platform.keep(space, &addresses);
        if addresses.binary_search(&regs.rip).is_ok() && breakpoints.arrived.get(&task) != Some(regs) {
            self.arrive(space, task, regs);
        }
    }

    /// A task has come to a breakpoint.
    fn arrive(&mut self, space: SpaceId, task: TaskKey, regs: &Regs) {
        let Some((breakpoints, world)) = &mut self.watching else { return };
        let before = self.platform.processor_time(space);
        breakpoints.arrived.insert(task, *regs);
        let here = breakpoints.at(space, regs.rip);
        breakpoints.hit(world, named(task), &here, regs);
        let after = self.platform.processor_time(space);
        let looked = after.zip(before).map_or(Duration::ZERO, |(after, before)| after.saturating_sub(before));
        // What a trap costs is known; it takes as long to come here.
        let trap = Duration::from_nanos(self.platform.abilities().trap_cost_ns);
        breakpoints.spent += looked + trap;
    }

    /// A task has run until it trapped, and came to no breakpoint meanwhile that it was not told of.
    fn trapped(&mut self, task: TaskKey, regs: &Regs, trap: Trap) {
        let Some((breakpoints, _)) = &mut self.watching else { return };
        let Some(at) = breakpoints.arrived.get_mut(&task) else { return };
        let stays = match trap {
            // Whoever steps may take it back; if not, the task makes a step of the world ([`Machine::watched`]).
            Trap::Syscall => return,
            Trap::Step | Trap::Exception(Exception::BREAKPOINT) => false,
            _ => at.rip == regs.rip,
        };
        if stays {
            // Part of a string instruction may be done.
            *at = *regs;
        } else {
            breakpoints.arrived.remove(&task);
        }
    }
}

impl Platform for Watched<'_> {
    forward_platform!(platform: approach, memory, map, unmap, write_protect, mapped, xstate_owner, save_xstate, load_xstate, reset_space,
        drop_space, evict_all, abilities);

    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        if self.watching.is_none() {
            return self.platform.run(space, task, regs, stops);
        }
        for _ in 0..BURST {
            self.begin(space, task, regs);
            match self.platform.run(space, task, regs, stops)? {
                Trap::KeptPoint { .. } => self.arrive(space, task, regs),
                trap => {
                    self.trapped(task, regs, trap);
                    return Ok(trap);
                }
            }
        }
        Ok(Trap::BudgetSpent)
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        self.begin(space, task, regs);
        if let Some((breakpoints, _)) = &mut self.watching {
            let here = breakpoints.at(space, regs.rip).len();
            if breakpoints.stepped.len() >= MOST_STEPPED {
                breakpoints.stepped.clear();
            }
            let step = breakpoints.steps;
            breakpoints.stepped.extend(std::iter::repeat_n(step, here));
        }
        let trap = self.platform.step(space, task, regs)?;
        if let Some((breakpoints, _)) = &mut self.watching {
            breakpoints.steps += 1;
        }
        self.trapped(task, regs, trap);
        Ok(trap)
    }

    fn processor_time(&self, space: SpaceId) -> Option<Duration> {
        let time = self.platform.processor_time(space)?;
        let spent = self.watching.as_ref().map_or(Duration::ZERO, |(breakpoints, _)| breakpoints.spent);
        Some(time.saturating_sub(spent))
    }
}

/// Whose name for the platform this is ([`crate::step::key`]).
fn named(task: TaskKey) -> (MachineId, Tid) {
    (MachineId((task.0 >> 32) as u32), Tid(task.0 as u32))
}

impl Machine {
    /// Sets breakpoints; `watcher` is told of the first `most` hits of each. To be called before anything runs. False: this platform has no single
    /// steps, which they need.
    #[must_use]
    pub fn set_breakpoints(&mut self, watcher: Box<dyn Watcher>, most: u64) -> bool {
        self.breakpoints = Some(Breakpoints::new(watcher, most));
        self.platform.abilities().traps_steps
    }

    /// Nothing is told of runs that are made meanwhile.
    pub fn pause_breakpoints(&mut self, paused: bool) {
        if let Some(breakpoints) = &mut self.breakpoints {
            breakpoints.paused = paused;
        }
    }

    /// A space has nothing mapped any more.
    pub(crate) fn forget_watched(&mut self, space: SpaceId) {
        if let Some(breakpoints) = &mut self.breakpoints {
            breakpoints.spaces.remove(&space);
        }
    }

    /// The platform, to run tasks on.
    pub(crate) fn watched(&mut self) -> Watched<'_> {
        Watched::new(&mut self.platform, self.breakpoints.as_mut(), &self.world)
    }

    /// A run of a task begins, in the space of `mm`.
    pub(crate) fn begin_watch(&mut self, id: MachineId, mm: MmId) {
        let repeats = self.trial.as_ref().is_some_and(crate::computing::Trial::repeats);
        let profiles = self.profiler.is_some();
        let Some(breakpoints) = &mut self.breakpoints else { return };
        breakpoints.mood = match (profiles || breakpoints.paused, repeats) {
            (true, _) => Mood::Off,
            (false, true) => Mood::Silent,
            (false, false) => Mood::Tells,
        };
        breakpoints.drop_waiting();
        if breakpoints.mood == Mood::Off {
            self.platform.keep(SpaceId(self.world.nodes[&id].mms[mm].space), &[]);
        }
    }

    /// A run of a task is over: its hits are told.
    pub(crate) fn end_watch(&mut self, id: MachineId, tid: Tid, ran: &Ran) {
        let Some(breakpoints) = &mut self.breakpoints else { return };
        match ran {
            // It is made again.
            Ran::Suspect(_) => breakpoints.drop_waiting(),
            Ran::Parked { still } => breakpoints.parked(self.spin.cycle(), *still),
            _ => breakpoints.tell(),
        }
        if matches!(ran, Ran::Syscall | Ran::Fault(_)) {
            breakpoints.arrived.remove(&crate::step::key(id, tid));
        }
    }

    /// A task has spent a budget, and is not known to loop without side effects.
    pub(crate) fn watch_computing(&mut self) {
        let Some(breakpoints) = &mut self.breakpoints else { return };
        if std::mem::take(&mut breakpoints.active) {
            self.spin.forgive();
        }
        if breakpoints.waiting.len() >= MANY {
            breakpoints.tell();
        }
    }
}
