//! Two platforms run the same random programs, in step with each other: after each trap they must show the same trap and
//! registers, and at the end the same memory and vector state.
//!
//! A case is its seed ([`Lockstep::case`]). It has three tasks in two spaces, of which two share one. Their code is
//! random instructions or random bytes, their data lies at the edges of pages, and between traps what their spaces map
//! changes. If a case differs it is run again by single steps, to find the instruction; if that is one whose result
//! is known to differ, the case does not count.
//!
//! Modules: `program` makes the programs, `known` has the instructions that are left out, `side` is one platform with its
//! frames, `random` a stream of numbers, `found` what was found.
//!
//! Neighbours: `bloodhound-platform-kvm`, whose test `differential` compares it with the ptrace platform.

pub mod found;
mod known;
mod program;
mod random;
mod side;

use std::collections::BTreeMap;
use std::fmt;

use bloodhound_platform::{Access, GUEST_TOP, Platform, Prot, Regs, Trap, XState};

use iced_x86::Instruction;

use self::random::Random;
use self::side::Side;
use crate::{CODE, Oddity, PAGE};

/// Pages of code.
const CODE_PAGES: u64 = 2;
/// What can be mapped, and how it usually is: code; data on both sides of a page table's edge, and of that of a table
/// one level up; the stack; the last page that there is.
const PAGES: &[(u64, Prot)] = &[
    (CODE, Prot::RX),
    (CODE + PAGE, Prot::RX),
    (0x5f_f000, Prot::RW),
    (0x60_0000, Prot::RW),
    (0x3fff_f000, Prot::RW),
    (0x4000_0000, Prot::R),
    (0x7ff_efff_f000, Prot::RW),
    (0x7ff_f000_0000, Prot::RW),
    (GUEST_TOP - PAGE, Prot::RW),
];
/// Where stacks begin: in the middle of the upper of their pages.
const STACK_TOP: u64 = 0x7ff_f000_0800;
/// Frames: the code of both spaces, then data.
const FRAMES: usize = 12;
const CODE_FRAMES: usize = 4;
/// Traps of a case, and steps when it is run again by steps.
const TRAPS: u32 = 64;
const STEPS: u32 = 20_000;
/// How often one platform may use up its budget where the other trapped at once.
const PATIENCE: u32 = 8;

/// Nested task: a flag without a meaning in 64-bit code, which a software KVM loses at each exit, seen or not.
const NT: u64 = 1 << 14;

/// A task: where it runs and its state while it is not loaded.
struct Task {
    space: usize,
    regs: Regs,
    state: XState,
}

/// A page of a space's table: what a fault there is answered with.
#[derive(Clone, Copy, Debug)]
struct Page {
    frame: usize,
    prot: Prot,
}

/// What the kernel of the case knows; the same for both platforms.
struct World {
    random: Random,
    tasks: [Task; 3],
    tables: [BTreeMap<u64, Page>; 2],
    starts: [Vec<u64>; 2],
    /// The task that is loaded in each space.
    loaded: [Option<usize>; 2],
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No difference, after so many traps.
    Same(u32),
    /// A program went on without a trap: the case was given up.
    Endless,
    /// A difference, by an instruction that is known for it.
    Known(String),
    /// A difference.
    Differs(String),
}

/// Two platforms.
pub struct Lockstep<A, B> {
    first: Side<A>,
    second: Side<B>,
    /// Why a case that differs, and does not by steps, is no news.
    excuse: Option<&'static str>,
}

/// Why a case stopped early.
enum Stop {
    Endless,
    Known(String),
    Differs(String),
}

impl<A: Platform, B: Platform> Lockstep<A, B> {
    /// Spaces 1 and 2 of both are used.
    pub fn new(first: A, second: B) -> Lockstep<A, B> {
        Lockstep { first: Side::new(first), second: Side::new(second), excuse: None }
    }

    /// Runs the case of a seed. Even seeds are instructions, odd ones bytes.
    ///
    /// # Panics
    /// On errors of the platforms.
    pub fn case(&mut self, seed: u64) -> Outcome {
        let stop = match self.attempt(seed, false) {
            Ok(traps) => return Outcome::Same(traps),
            Err(stop) => stop,
        };
        // What one of them ran may have left anything behind.
        self.evict();
        let found = match stop {
            Stop::Endless => return Outcome::Endless,
            Stop::Known(what) => return Outcome::Known(what),
            Stop::Differs(what) => what,
        };
        let again = self.attempt(seed, true);
        self.evict();
        match again {
            Err(Stop::Known(what)) => Outcome::Known(what),
            Err(Stop::Differs(what)) => Outcome::Differs(format!("seed {seed}: {found}\nby steps: {what}")),
            Ok(_) => match self.excuse {
                Some(excuse) => Outcome::Known(excuse.to_owned()),
                None => Outcome::Differs(format!("seed {seed}: {found}\nnot found again by steps")),
            },
            Err(Stop::Endless) => Outcome::Differs(format!("seed {seed}: {found}\nendless by steps")),
        }
    }

    fn evict(&mut self) {
        self.first.platform.evict_all();
        self.second.platform.evict_all();
    }

    fn attempt(&mut self, seed: u64, by_steps: bool) -> Result<u32, Stop> {
        let mut world = self.begin(seed);
        self.excuse = None;
        let mut now = 0;
        let mut steps = 0;
        for trap in 0..TRAPS {
            if world.random.once_in(4) {
                now = world.random.below(3) as usize;
            }
            if world.random.once_in(4) {
                self.change(&mut world);
            }
            self.load(&mut world, now)?;
            let step = world.random.once_in(8);
            let (kind, regs) = match by_steps {
                true => self.by_steps(&mut world, now, step, &mut steps)?,
                false => self.both(&world.tasks[now], now, step)?,
            };
            world.tasks[now].regs = regs;
            if !self.react(&mut world, now, kind) {
                self.finish(&mut world)?;
                return Ok(trap + 1);
            }
        }
        self.finish(&mut world)?;
        Ok(TRAPS)
    }

    /// New programs, new contents of the frames, and spaces that map nothing or what is left over.
    fn begin(&mut self, seed: u64) -> World {
        let mut random = Random::new(seed);
        let plain = seed.is_multiple_of(2);
        let mut starts = [Vec::new(), Vec::new()];
        for (space, starts) in starts.iter_mut().enumerate() {
            let (code, at) =
                if plain { program::instructions(&mut random) } else { program::bytes(&mut random) };
            for (n, page) in code.chunks(PAGE as usize).enumerate() {
                self.fill(2 * space + n, page);
            }
            *starts = at;
        }
        for frame in CODE_FRAMES..FRAMES {
            let page = program::data(&mut random, &starts[0]);
            self.fill(frame, &page);
        }
        let how = random.below(4);
        self.first.forget(how);
        self.second.forget(how);
        let tables = [0, 1].map(|space| table(&mut random, space));
        let tasks = [0, 0, 1].map(|space| {
            let rip = if plain { starts[space][0] } else { random.of(&starts[space]) };
            let regs = program::registers(&mut random, rip);
            Task { space, regs, state: program::vectors(&mut random) }
        });
        let mut world = World { random, tasks, tables, starts, loaded: [None; 2] };
        for space in 0..2 {
            let pages: Vec<(u64, Page)> = world.tables[space].iter().map(|(a, p)| (*a, *p)).collect();
            for (addr, page) in pages {
                // The rest comes by faults.
                if !world.random.once_in(3) {
                    self.map(space, addr, page);
                }
            }
        }
        world
    }

    fn fill(&mut self, frame: usize, bytes: &[u8]) {
        self.first.frames[frame].write_shared(0, bytes);
        self.second.frames[frame].write_shared(0, bytes);
    }

    fn map(&mut self, space: usize, addr: u64, page: Page) {
        self.first.map(space, addr, page.frame, page.prot);
        self.second.map(space, addr, page.frame, page.prot);
    }

    /// Changes what a space maps.
    fn change(&mut self, world: &mut World) {
        let random = &mut world.random;
        let space = random.below(2) as usize;
        let (addr, _) = random.of(PAGES);
        match random.below(16) {
            0..=4 => {
                let pages = 1 + random.below(2);
                self.first.unmap(space, addr, pages);
                self.second.unmap(space, addr, pages);
            }
            5 | 6 => {
                self.first.write_protect(space);
                self.second.write_protect(space);
            }
            7..=12 => {
                let page = page(random, space, addr);
                world.tables[space].insert(addr, page);
                self.map(space, addr, page);
            }
            13 => {
                world.tables[space].remove(&addr);
                self.first.unmap(space, addr, 1);
                self.second.unmap(space, addr, 1);
            }
            14 => {
                self.first.write_protect(space);
                self.second.write_protect(space);
                self.first.unmap(space, 0, GUEST_TOP / PAGE);
                self.second.unmap(space, 0, GUEST_TOP / PAGE);
            }
            _ => {
                let task = &mut world.tasks[random.below(3) as usize];
                task.regs = program::registers(random, task.regs.rip);
            }
        }
    }

    /// Makes a task's vector state that of its space. What the one before left must be the same on both.
    fn load(&mut self, world: &mut World, now: usize) -> Result<(), Stop> {
        let space = world.tasks[now].space;
        if world.loaded[space] == Some(now) && !world.random.once_in(16) {
            return Ok(());
        }
        self.save(world, space)?;
        if world.random.once_in(4) {
            world.tasks[now].state = program::vectors(&mut world.random);
        }
        self.first.load(space, now, &world.tasks[now].state);
        self.second.load(space, now, &world.tasks[now].state);
        world.loaded[space] = Some(now);
        Ok(())
    }

    fn save(&mut self, world: &mut World, space: usize) -> Result<(), Stop> {
        let Some(owner) = world.loaded[space] else { return Ok(()) };
        let (first, second) = (self.first.save(space), self.second.save(space));
        if first != second {
            let what = match (&first, &second) {
                (Some((_, first)), Some((_, second))) => differing(first, second),
                _ => Vec::new(),
            };
            return Err(differ("vector state", &what, &(first.map(|f| f.0), second.map(|s| s.0))));
        }
        if let Some((_, state)) = first {
            world.tasks[owner].state = state;
        }
        Ok(())
    }

    /// Runs to the next trap.
    fn both(&mut self, task: &Task, key: usize, step: bool) -> Result<(Trap, Regs), Stop> {
        let (mut one, mut other) = (task.regs, task.regs);
        let first = self.first.go(task.space, key, &mut one, step);
        let mut second = self.second.go(task.space, key, &mut other, step);
        if first == Trap::BudgetSpent && second == Trap::BudgetSpent {
            return Err(Stop::Endless);
        }
        let mut first = first;
        for _ in 0..PATIENCE {
            if first == Trap::BudgetSpent {
                first = self.first.go(task.space, key, &mut one, step);
            } else if second == Trap::BudgetSpent {
                second = self.second.go(task.space, key, &mut other, step);
            }
        }
        if (one.rflags | other.rflags) & NT != 0 {
            self.excuse = Some("the nested-task flag");
        }
        for regs in [&mut one, &mut other] {
            regs.rflags &= !NT;
            if first == Trap::Syscall {
                regs.r11 &= !NT;
            }
        }
        let kind = same_trap(first, second);
        match kind {
            Some(trap) if one == other => Ok((trap, one)),
            _ if [first, second].iter().any(known::platforms_own) => {
                Err(Stop::Known("a page of the platform's own".to_owned()))
            }
            _ => Err(differ(&format!("trap, with {}", apart(&one, &other)), &first, &second)),
        }
    }

    /// The same by single steps, looking at each instruction.
    fn by_steps(
        &mut self,
        world: &mut World,
        now: usize,
        once: bool,
        steps: &mut u32,
    ) -> Result<(Trap, Regs), Stop> {
        const TF: u64 = 1 << 8;
        let task = &mut world.tasks[now];
        loop {
            *steps += 1;
            if *steps > STEPS {
                return Err(Stop::Endless);
            }
            let (code, instruction) = self.first.instruction(task.space, task.regs.rip);
            if let Some(why) = known::at(&instruction, &code, &task.regs) {
                return Err(Stop::Known(why));
            }
            let before = task.regs;
            let done = self.both(task, now, true);
            let (trap, regs) = done.map_err(|stop| match stop {
                Stop::Differs(what) => {
                    let name = instruction.code();
                    Stop::Differs(format!("{name:?} {code:02x?} with {before:x?}\n{what}"))
                }
                other => other,
            })?;
            self.same_state(task.space, &instruction, &before).map_err(|stop| match stop {
                Stop::Differs(what) => Stop::Differs(format!(
                    "{what} after {:?} {code:02x?} with {before:x?}",
                    instruction.code()
                )),
                other => other,
            })?;
            task.regs = regs;
            if trap != Trap::Step || before.rflags & TF != 0 || once {
                return Ok((trap, regs));
            }
        }
    }

    /// Memory and vector state must be the same after an instruction.
    fn same_state(&mut self, space: usize, instruction: &Instruction, before: &Regs) -> Result<(), Stop> {
        if let Some(shown) = known::last_instruction(instruction, before) {
            self.excuse = Some("what the last x87 instruction was");
            self.first.clear(space, shown.iter().copied());
            self.second.clear(space, shown.iter().copied());
        }
        if !self.first.contents().eq(self.second.contents()) {
            let software = Oddity::of(&self.first.platform.abilities()) == Oddity::SoftwareKvm;
            if software && known::shows_selector(instruction) {
                return Err(Stop::Known("a selector that stayed".to_owned()));
            }
            return Err(Stop::Differs(format!("{:?}", self.memory())));
        }
        let (first, second) = (self.first.save(space), self.second.save(space));
        if let (Some((_, first)), Some((_, second))) = (first, second)
            && first != second
        {
            return Err(Stop::Differs(format!("vector state {:?}", differing(&first, &second))));
        }
        Ok(())
    }

    /// Answers a trap; false if the task cannot go on in a way that would tell anything.
    fn react(&mut self, world: &mut World, now: usize, trap: Trap) -> bool {
        let World { random, tasks, tables, starts, .. } = world;
        let task = &mut tasks[now];
        let starts = &starts[task.space];
        if let Trap::PageFault { addr, access, .. } = trap
            && let Some(page) = tables[task.space].get_mut(&(addr & !(PAGE - 1)))
            && !random.once_in(6)
        {
            // What a page is not for it becomes, sometimes.
            if !access.is_some_and(|access| page.prot.allows(access)) && random.once_in(2) {
                page.prot = if access == Some(Access::Exec) { Prot::RWX } else { Prot::RW };
            }
            let (addr, page) = (addr & !(PAGE - 1), *page);
            if access.is_none_or(|access| page.prot.allows(access)) {
                self.map(task.space, addr, page);
                return true;
            }
        }
        if trap == Trap::Syscall && random.once_in(2) {
            task.regs.rax = random.word();
            return true;
        }
        if matches!(trap, Trap::Step | Trap::Exception(bloodhound_platform::Exception::BREAKPOINT))
            && !random.once_in(4)
        {
            return true;
        }
        // On with the next instruction, or any.
        let next = starts.iter().copied().find(|start| *start > task.regs.rip);
        let rip = next.filter(|_| !random.once_in(6)).unwrap_or_else(|| random.of(starts));
        let old = task.regs;
        task.regs = Regs { rip, ..program::registers(random, rip) };
        if random.once_in(2) {
            task.regs = Regs { rip, rflags: old.rflags, ..old };
        }
        true
    }

    /// Memory, vector state and lists of mappings must be the same.
    fn finish(&mut self, world: &mut World) -> Result<(), Stop> {
        for space in 0..2 {
            self.save(world, space)?;
            let (first, second) = (self.first.mapped(space), self.second.mapped(space));
            if first != second {
                return Err(differ("mappings", &first, &second));
            }
        }
        match self.memory() {
            None => Ok(()),
            Some((what, first, second)) => Err(differ(&what, &first, &second)),
        }
    }

    /// The first word of memory that differs, and its neighbour.
    fn memory(&self) -> Option<(String, Vec<u8>, Vec<u8>)> {
        let (first, second) = (self.first.contents(), self.second.contents());
        first.zip(second).enumerate().find(|(_, (first, second))| first != second).map(
            |(frame, (first, second))| {
                let at = (0..PAGE as usize).find(|&at| first[at] != second[at]).unwrap_or(0) & !7;
                let part = at..at + 16.min(PAGE as usize - at);
                let what = format!("frame {frame} at {at:#x}");
                (what, first[part.clone()].to_vec(), second[part].to_vec())
            },
        )
    }
}

/// The table of a space: each page with its frame, sometimes with another protection.
fn table(random: &mut Random, space: usize) -> BTreeMap<u64, Page> {
    let mut table = BTreeMap::new();
    for &(addr, prot) in PAGES {
        let code = (addr - CODE) / PAGE;
        let page = match code < CODE_PAGES {
            true => Page {
                frame: 2 * space + code as usize,
                prot: if random.once_in(8) { Prot::RWX } else { prot },
            },
            false if random.once_in(10) => continue,
            false => page(random, space, addr),
        };
        table.insert(addr, page);
    }
    table
}

/// Something that a page may show.
fn page(random: &mut Random, space: usize, addr: u64) -> Page {
    let usual = PAGES.iter().find(|(at, _)| *at == addr).map_or(Prot::RW, |(_, prot)| *prot);
    let prot = if random.once_in(4) { random.of(&[Prot::R, Prot::RW, Prot::RX, Prot::RWX]) } else { usual };
    let code = (addr.wrapping_sub(CODE)) / PAGE;
    let frame = if code < CODE_PAGES && !random.once_in(8) {
        2 * space + code as usize
    } else if random.once_in(24) {
        // Code that is written where it stands as data.
        random.below(CODE_FRAMES as u64) as usize
    } else {
        CODE_FRAMES + random.below((FRAMES - CODE_FRAMES) as u64) as usize
    };
    Page { frame, prot }
}

/// The trap, if both are the same. The kind of an access need not be known.
fn same_trap(first: Trap, second: Trap) -> Option<Trap> {
    match (first, second) {
        (
            Trap::PageFault { addr, access, rip },
            Trap::PageFault { addr: other_addr, access: other, rip: other_rip },
        ) if addr == other_addr && rip == other_rip => match (access, other) {
            (Some(access), Some(other)) if access != other => None,
            _ => Some(Trap::PageFault { addr, access: access.or(other), rip }),
        },
        (first, second) => (first == second).then_some(first),
    }
}

fn differ(what: &str, first: &dyn fmt::Debug, second: &dyn fmt::Debug) -> Stop {
    Stop::Differs(format!("{what}:\n  {first:x?}\n  {second:x?}"))
}

/// Registers that differ.
fn apart(first: &Regs, second: &Regs) -> String {
    let (first, second) = (format!("{first:x?}"), format!("{second:x?}"));
    let pairs = first.split(", ").zip(second.split(", "));
    let list: Vec<String> = pairs.filter(|(a, b)| a != b).map(|(a, b)| format!("{a} or {b}")).collect();
    if list.is_empty() { "equal registers".to_owned() } else { list.join("; ") }
}

/// Where two states differ.
fn differing(first: &XState, second: &XState) -> Vec<String> {
    let parts = first.area().chunks(16).zip(second.area().chunks(16)).enumerate();
    let show = |(n, (a, b))| format!("at {}: {a:02x?}, {b:02x?}", 16 * n);
    parts.filter(|(_, (first, second))| first != second).map(show).collect()
}
