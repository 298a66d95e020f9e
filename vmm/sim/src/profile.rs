//! Which instructions of a program access memory that several tasks share ([`Profile`]): where switches of tasks can make a
//! difference ([`crate::switches`]).
//!
//! A profile is gathered in a run of its own, in which the task stops at each instruction that may access such memory
//! ([`CodeAccess`], found by whoever reads the program's file) as often as [`MOST_PASSES`]. An access to memory that two tasks have accessed, one of them
//! to write, is a shared one. A profile is a function of the program and of the choices of its runs, never of the host. Gathering
//! changes nothing of the run.
//!
//! Neighbours: [`crate::step`] stops tasks for it, `bloodhound_platform::code_points` carries the stops out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_decisions::Lineage;
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::mm::{Backing, Vma};
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_platform::{Regs, StopPoint, Stops, decode};
use bloodhound_vfs::Ino;

use crate::code_place::CodePlace;
use crate::code_view::CodeFile;
use crate::event::Listener;
use crate::machine::Machine;
use crate::output::Output;
use crate::scheduler::named;
use crate::trace::{Trace, Traced};

/// Passes of an instruction by one task that are recorded, at most.
const MOST_PASSES: u64 = 48;
/// The same where all accesses are traced.
const MOST_TRACED: u64 = 1000;
/// Passes that are recorded in one run, at most: a run with more is profiled to there.
const MOST_RECORDED: u64 = 100_000;
/// Stop points in one address space, at most.
const MOST_POINTS: usize = 20_000;
/// Bytes that count as one place in memory.
const GRANULE: u64 = 8;
/// Places in shared memory of which it is known which instructions access them, at most.
const MOST_VARIABLES: usize = 4096;
/// The longest instruction.
const LONGEST: usize = 15;

/// An instruction in a file that may access memory which tasks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeAccess {
    /// Where it begins in the file: a proven start of an instruction.
    pub offset: u64,
    /// It is atomic.
    pub atomic: bool,
    /// It is of the program's own code, not of its language's or a library's.
    pub own: bool,
}

/// Answers with the accesses of a file, by rising offset.
pub type AccessesOf = dyn Fn(&CodeFile<'_>) -> Option<Arc<[CodeAccess]>> + Send + Sync;

/// A task as the log names it: container, life of its service, descent.
pub type TaskName = (u32, u32, Lineage);

/// An instruction that a run has executed.
#[derive(Clone, Debug)]
pub struct Accessed {
    place: CodePlace,
    own: bool,
    shared: bool,
    /// It reads memory and writes there, and is not atomic.
    tears: bool,
    passes: Vec<(TaskName, u64)>,
}

impl Accessed {
    /// The instruction.
    pub fn place(&self) -> &CodePlace {
        &self.place
    }

    /// Whether it accessed memory that several tasks share.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether other tasks may come between its two accesses ([`decode::read_and_written`]).
    pub(crate) fn tears(&self) -> bool {
        self.tears
    }

    /// The tasks that came by it, and how often.
    pub(crate) fn tasks(&self) -> &[(TaskName, u64)] {
        &self.passes
    }
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By place.
    accesses: Vec<Accessed>,
    /// Those that access shared memory, of programs' own code and of libraries.
    own: Vec<u32>,
    libraries: Vec<u32>,
    /// Which of them access the same memory, for each such place in it; places with the same instructions count once. Those that
    /// programs' own files access, and others.
    own_variables: Vec<Vec<u32>>,
    other_variables: Vec<Vec<u32>>,
    /// Shared memory, and who accesses it: what the two lists are made of.
    memory: BTreeMap<(Object, u64), BTreeSet<CodePlace>>,
}

impl Profile {
    /// What was gathered.
    pub fn accesses(&self) -> &[Accessed] {
        &self.accesses
    }

    /// Joins what several runs have gathered.
    #[must_use]
    pub fn joined(all: &[Profile]) -> Profile {
        let mut by_place: BTreeMap<CodePlace, (Accessed, BTreeMap<TaskName, u64>)> = BTreeMap::new();
        for accessed in all.iter().flat_map(|profile| &profile.accesses) {
            let fresh = || (Accessed { passes: Vec::new(), ..accessed.clone() }, BTreeMap::new());
            let (known, by_task) = by_place.entry(accessed.place).or_insert_with(fresh);
            known.shared |= accessed.shared;
            for (task, passes) in &accessed.passes {
                let most = by_task.entry(*task).or_default();
                *most = passes.max(most).to_owned();
            }
        }
        let joined = |(known, by_task): (Accessed, BTreeMap<_, _>)| Accessed {
            passes: by_task.into_iter().collect(),
            ..known
        };
        let accesses: Vec<Accessed> = by_place.into_values().map(joined).collect();
        let of = |wanted: bool| {
            let shared = |at: &u32| {
                let accessed: &Accessed = &accesses[*at as usize];
                accessed.shared && accessed.own == wanted
            };
            (0..accesses.len() as u32).filter(shared).collect()
        };
        let (own, libraries) = (of(true), of(false));
        let mut memory: BTreeMap<(Object, u64), BTreeSet<CodePlace>> = BTreeMap::new();
        for (at, places) in all.iter().flat_map(|profile| &profile.memory) {
            memory.entry(*at).or_default().extend(places);
        }
        let number = |place: &CodePlace| {
            accesses.binary_search_by(|accessed| accessed.place.cmp(place)).ok().map(|at| at as u32)
        };
        let variables: BTreeSet<Vec<u32>> =
            memory.values().map(|places| places.iter().filter_map(number).collect()).collect();
        let (own_variables, other_variables) = variables
            .into_iter()
            .filter(|places: &Vec<u32>| !places.is_empty())
            .partition(|places| places.iter().any(|at| accesses[*at as usize].own));
        Profile { accesses, own, libraries, own_variables, other_variables, memory }
    }

    /// The instruction for a switch, by a number below [`Profile::DRAWN`]: six times in ten one of the programs' own that accesses shared
    /// memory, three times one of a library, such as its locks have, else any. Libraries have many, which every thread comes by when
    /// it begins and ends. Every other time it is one of those that access a drawn variable: so a variable that few instructions
    /// access is not drawn more rarely than one that many do.
    pub(crate) fn drawn(&self, number: u64) -> Option<&Accessed> {
        let (group, drawn) = (number % 10, number / 10);
        let (by_variable, drawn) = (drawn % 2 == 1, drawn / 2);
        let pick = |list: &[u32]| list.get((drawn % list.len().max(1) as u64) as usize).copied();
        let of_variable = |own: bool| {
            let list = if own { &self.own_variables } else { &self.other_variables };
            let count = list.len().max(1) as u64;
            let places = list.get((drawn % count) as usize).filter(|_| by_variable)?;
            places.get((drawn / count % places.len() as u64) as usize).copied()
        };
        let own = || of_variable(true).or_else(|| pick(&self.own));
        let libraries = || of_variable(false).or_else(|| pick(&self.libraries));
        let shared = match group {
            0..6 => own().or_else(libraries),
            6..9 => libraries().or_else(own),
            _ => None,
        };
        let at = match shared {
            Some(at) => u64::from(at),
            None => drawn.checked_rem(self.accesses.len() as u64)?,
        };
        self.accesses.get(at as usize)
    }

    /// The instructions that access one variable, by a number below [`Profile::DRAWN`]: nine times in ten one that programs' own files
    /// access.
    pub(crate) fn drawn_variable(&self, number: u64) -> impl Iterator<Item = &Accessed> {
        let (group, drawn) = (number % 10, number / 10);
        let (first, second) = match group {
            0..9 => (&self.own_variables, &self.other_variables),
            _ => (&self.other_variables, &self.own_variables),
        };
        let list = if first.is_empty() { second } else { first };
        let places = drawn.checked_rem(list.len() as u64).map(|at| &list[at as usize]);
        places.into_iter().flatten().map(|at| &self.accesses[*at as usize])
    }

    /// The bound of the numbers for [`Profile::drawn`].
    pub(crate) const DRAWN: u64 = 10 << 40;
}

/// Memory by what it is, not by where a task has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// An address space.
    Space(u64),
    /// An unnamed shared-memory object.
    Shm(u64),
    /// A file.
    File(u64),
}

/// Who accessed a place in memory.
#[derive(Clone, Debug, Default)]
struct Touched {
    by: BTreeSet<TaskName>,
    written: bool,
}

#[derive(Default)]
struct Seen {
    tears: bool,
    passes: BTreeMap<TaskName, u64>,
    at: BTreeSet<(Object, u64)>,
}

/// Code of a file in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    ino: Ino,
}

/// What a task stops at in an address space.
struct Armed {
    /// The code there when this was made.
    mapped: Vec<Mapped>,
    places: BTreeMap<u64, (CodePlace, bool)>,
    points: Vec<StopPoint>,
    set: u64,
}

/// Gathers a profile: belongs to the machine, no part of the world.
pub(crate) struct Profiler {
    /// Those who are told of runs otherwise.
    listeners: Vec<Box<dyn Listener>>,
    output: Option<Output>,
    accesses_of: Arc<AccessesOf>,
    files: BTreeMap<[u8; 32], Option<Arc<[CodeAccess]>>>,
    /// By place: whether it is of the program's own code, and what it was seen to do.
    seen: BTreeMap<CodePlace, (bool, Seen)>,
    touched: BTreeMap<(Object, u64), Touched>,
    recorded: u64,
    armed: BTreeMap<(TaskName, u64), Armed>,
    /// Number of the last set of stop points.
    sets: u64,
    /// Whose run goes on.
    present: Option<(TaskName, u64)>,
    /// Switches at instructions where that task stops, with the passes that are left until it gives way.
    awaited: BTreeMap<u64, u64>,
    /// If accesses are traced, those so far.
    pub trace: Option<Trace>,
}

impl Profiler {
    fn gathered(&self) -> Profile {
        let is_shared = |at: &(Object, u64)| {
            self.touched.get(at).is_some_and(|touched| touched.written && touched.by.len() > 1)
        };
        let shared = |seen: &Seen| seen.at.iter().any(is_shared);
        let mut memory: BTreeMap<(Object, u64), BTreeSet<CodePlace>> = BTreeMap::new();
        for (place, (_, seen)) in &self.seen {
            for at in seen.at.iter().filter(|at| is_shared(at)) {
                if memory.len() < MOST_VARIABLES || memory.contains_key(at) {
                    memory.entry(*at).or_default().insert(*place);
                }
            }
        }
        let accesses = self.seen.iter().map(|(place, (own, seen))| Accessed {
            place: *place,
            own: *own,
            shared: shared(seen),
            tears: seen.tears,
            passes: seen.passes.iter().map(|(task, passes)| (*task, *passes)).collect(),
        });
        Profile::joined(&[Profile { accesses: accesses.collect(), memory, ..Profile::default() }])
    }

    /// Where a task is to stop.
    fn points(&mut self, node: &Node, tid: Tid, mm: MmId, stops: &mut Stops) {
        self.awaited.clear();
        if let Some(trace) = &mut self.trace {
            trace.goes_on(node, tid, mm);
        }
        if self.recorded >= MOST_RECORDED {
            return;
        }
        let of = (named(node, tid), node.mms[mm].space);
        let mapped = mapped(node, mm);
        if self.armed.get(&of).is_none_or(|armed| armed.mapped != mapped) {
            let places = self.places(node, tid, &mapped);
            let wanted = |(_, (place, _)): &(&u64, &(CodePlace, bool))| {
                let passes = self.seen.get(place).and_then(|(_, seen)| seen.passes.get(&of.0));
                passes.is_none_or(|passes| *passes < self.most_passes())
            };
            let point = |(address, _): (&u64, _)| StopPoint::new(*address, 1);
            let points = places.iter().filter(wanted).take(MOST_POINTS).map(point).collect();
            self.sets += 1;
            self.armed.insert(of, Armed { mapped, places, points, set: self.sets });
        }
        let Some(armed) = self.armed.get_mut(&of) else { return };
        self.present = Some(of);
        if stops.points.is_empty() {
            stops.points = std::mem::take(&mut armed.points);
            stops.set = armed.set;
            return;
        }
        for point in stops.points.iter_mut().filter(|point| armed.places.contains_key(&point.address)) {
            // Each pass is looked at, and counted here.
            self.awaited.insert(point.address, std::mem::replace(&mut point.passes, 1));
        }
        let known: BTreeSet<u64> = stops.points.iter().map(|point| point.address).collect();
        stops.points.extend(armed.points.iter().filter(|point| !known.contains(&point.address)));
        stops.points.sort_unstable_by_key(|point| point.address);
    }

    /// The run for which [`Profiler::points`] was asked is over.
    fn take_back(&mut self, stops: &mut Stops) {
        let Some(armed) = self.present.take().and_then(|of| self.armed.get_mut(&of)) else { return };
        if stops.set != 0 {
            armed.points = std::mem::take(&mut stops.points);
            armed.set = stops.set;
        }
    }

    /// The places in mappings, by address.
    fn places(&mut self, node: &Node, tid: Tid, mapped: &[Mapped]) -> BTreeMap<u64, (CodePlace, bool)> {
        let mut places = BTreeMap::new();
        let container = node.container_of_any(node.task(tid).pid).id;
        for Mapped { start, end, offset, ino } in mapped {
            let Some(image) = node.vfs.pristine(*ino) else { continue };
            let digest = image.sha256();
            let accesses = self.files.entry(digest).or_insert_with(|| {
                let path = node.vfs.path_of(node.vfs.root(), *ino);
                (self.accesses_of)(&CodeFile { service: container, path: &path, image })
            });
            let Some(accesses) = accesses else { continue };
            let from = accesses.partition_point(|access| access.offset < *offset);
            let within = accesses[from..].iter().take_while(|access| access.offset < offset + (end - start));
            places.extend(within.filter_map(|access| {
                let address = start + (access.offset - offset);
                let place = CodePlace::of_file(node, tid, (digest, access.offset), address)?;
                Some((address, (place, access.own)))
            }));
        }
        places
    }

    /// Passes of an instruction by one task that are looked at.
    fn most_passes(&self) -> u64 {
        if self.trace.is_some() { MOST_TRACED } else { MOST_PASSES }
    }

    /// A switch may stand at an instruction: whether its task gives way there now.
    fn counts_down(&mut self, address: u64) -> bool {
        self.awaited.get_mut(&address).is_some_and(|left| {
            *left -= 1;
            *left == 0
        })
    }

    /// A task is at one of the points, and goes on from there or gives way. Whether it is to stop there again.
    fn pass(
        &mut self,
        node: &Node,
        (tid, mm): (Tid, MmId),
        (place, own): (CodePlace, bool),
        regs: &Regs,
        gives_way: bool,
    ) -> bool {
        let most = self.most_passes();
        let name = named(node, tid);
        self.recorded += 1;
        let (_, seen) = self.seen.entry(place).or_insert((own, Seen::default()));
        let passes = seen.passes.entry(name).or_default();
        *passes += 1;
        let nth = *passes;
        let again = nth < most && self.recorded < MOST_RECORDED;
        let (mut touches, mut addresses) = (Vec::new(), Vec::new());
        let (code, length) = instruction(node, tid, regs.rip);
        if nth == 1 {
            seen.tears = decode::read_and_written(&code[..length], regs).is_some();
        }
        decode::accesses(&code[..length], regs, |address, write| {
            let Some(at) = object(node, mm, address) else { return };
            let touched = self.touched.entry(at).or_default();
            touched.by.insert(name);
            touched.written |= write;
            seen.at.insert(at);
            if self.trace.is_some() {
                touches.push((at, write));
                addresses.push(address);
            }
        });
        if let Some(trace) = &mut self.trace {
            let tears = seen.tears;
            let access = Traced { task: name, tid, place, nth, touches, addresses, tears };
            trace.pass(node, (tid, mm), access, regs, gives_way);
        }
        again
    }
}

/// The bytes of the instruction at an address, and of what stands behind it, and how many of them there are.
pub(crate) fn instruction(node: &Node, tid: Tid, rip: u64) -> ([u8; LONGEST], usize) {
    let mut code = [0; LONGEST];
    let mut length = LONGEST;
    while length > 0 && node.peek(tid, rip, &mut code[..length]).is_err() {
        length -= 1;
    }
    (code, length)
}

/// The code of unchanged files in an address space.
fn mapped(node: &Node, mm: MmId) -> Vec<Mapped> {
    let code = |vma: &Vma| match vma.backing {
        Backing::File { ino, offset } if vma.prot & bloodhound_abi::consts::PROT_EXEC != 0 => {
            Some(Mapped { start: vma.start, end: vma.end, offset, ino })
        }
        _ => None,
    };
    node.mms[mm].vmas().filter_map(code).collect()
}

/// The memory at an address.
fn object(node: &Node, mm: MmId, address: u64) -> Option<(Object, u64)> {
    let vma = node.mms[mm].find(address)?;
    let into = address - vma.start;
    let (object, at) = match vma.backing {
        Backing::Shm { id, offset } => (Object::Shm(u64::from(id.0)), offset + into),
        Backing::File { ino, offset } if vma.shared => (Object::File(ino.0), offset + into),
        _ => (Object::Space(node.mms[mm].space), address),
    };
    Some((object, at / GRANULE))
}

impl Machine {
    /// Gathers a profile from now on; `accesses_of` says which instructions of a file are of interest. What was gathered before is lost.
    /// Nobody else is told of what happens meanwhile.
    pub fn begin_profile(&mut self, accesses_of: Arc<AccessesOf>) {
        self.end_profile();
        self.profiler = Some(Profiler {
            listeners: std::mem::take(&mut self.listeners),
            output: self.output.take(),
            accesses_of,
            files: BTreeMap::new(),
            seen: BTreeMap::new(),
            touched: BTreeMap::new(),
            recorded: 0,
            armed: BTreeMap::new(),
            sets: self.sets,
            present: None,
            awaited: BTreeMap::new(),
            trace: None,
        });
    }

    /// What was gathered; from now on nothing is.
    pub fn end_profile(&mut self) -> Profile {
        let Some(mut profiler) = self.profiler.take() else { return Profile::default() };
        self.listeners = std::mem::take(&mut profiler.listeners);
        self.output = profiler.output.take();
        // No number is used again: spaces may still show the points of the last set.
        self.sets = self.sets.max(profiler.sets);
        profiler.gathered()
    }

    /// What switches of tasks are drawn from in runs that begin from now on.
    pub fn set_profile(&mut self, profile: Arc<Profile>) {
        self.profile = Some(profile);
    }

    /// Whether there is something to draw switches from.
    pub fn has_profile(&self) -> bool {
        self.profile.is_some()
    }

    /// Adds what the profile wants to know of to where a run stops.
    pub(crate) fn add_profile(&mut self, id: MachineId, tid: Tid, mm: MmId, stops: &mut Stops) {
        if let Some(profiler) = &mut self.profiler {
            profiler.points(&self.world.nodes[&id], tid, mm, stops);
        }
    }

    /// A run of a task is over: where switches stand, its stops have the passes that are left again.
    pub(crate) fn give_back_passes(&self, stops: &mut Stops) {
        let Some(profiler) = self.profiler.as_ref().filter(|profiler| !profiler.awaited.is_empty()) else {
            return;
        };
        for point in &mut stops.points {
            if let Some(left) = profiler.awaited.get(&point.address) {
                point.passes = *left;
            }
        }
    }

    /// The run for which the profile was asked is over.
    pub(crate) fn take_back_profile(&mut self, stops: &mut Stops) {
        if let Some(profiler) = &mut self.profiler {
            profiler.take_back(stops);
        }
    }

    /// A task has come to a stop point. True if it did so for the profile.
    pub(crate) fn profiled(
        &mut self,
        id: MachineId,
        tid: Tid,
        mm: MmId,
        regs: &Regs,
        stops: &mut Stops,
    ) -> bool {
        let Some(profiler) = &mut self.profiler else { return false };
        let point = profiler.present.and_then(|of| profiler.armed.get(&of)?.places.get(&regs.rip)).copied();
        let Some(point) = point else { return false };
        let gives_way = profiler.counts_down(regs.rip);
        let again = profiler.pass(&self.world.nodes[&id], (tid, mm), point, regs, gives_way);
        if gives_way {
            return false;
        }
        if let Ok(at) = stops.points.binary_search_by_key(&regs.rip, |point| point.address) {
            if again || profiler.awaited.contains_key(&regs.rip) {
                stops.points[at].passes = 1;
            } else {
                stops.points.remove(at);
                if stops.set != 0 {
                    profiler.sets += 1;
                    stops.set = profiler.sets;
                }
            }
        }
        true
    }
}
