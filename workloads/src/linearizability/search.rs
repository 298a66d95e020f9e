//! The search: Wing and Gong's depth-first search over linearizations, in Lowe's form with a cache of failed
//! configurations, and with shortcuts that the guarded assignments of [`crate::model`] allow:
//!
//! 1. The cache's key does not grow with the history (see [`super::cache`]).
//! 2. A crashed operation is only used directly before an operation which its value makes possible: used earlier it
//!    could be moved there, used for nothing it could be left out (see `jumps`). Configurations are compared by what
//!    they used. Long chains of crashed operations are not tried before short ones have failed.
//! 3. A reader that fits the state is linearized at once: it changes nothing, and waiting gains nothing. This does
//!    *not* hold for a write of the value that is already there: its effect may be needed later.
//! 4. Among identical pending operations the one that completes first goes first (if another did, swap them), and a
//!    live one before a crashed one.
//! 5. Candidates are tried in the order of their completion.
//! 6. A position whose blocking operation waits for a value that nothing in its window sets is given up at once.

use super::cache::{Cache, Configuration};
use super::mask::Mask;
use super::problem::{Live, Problem};
use crate::model::{Effect, Guard};

/// Cache entries that cost as much as a step.
const LOOKS_PER_STEP: u64 = 4;

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// These items in this order are a legal sequence; crashed ones that are missing took no effect.
    Legal(Vec<u32>),
    /// No order explains the completion of this item: with it the history up to there is illegal, without it legal.
    Illegal {
        /// The item.
        blocked: u32,
    },
    /// There is no legal order in which crashed operations make chains no longer than the limit.
    Cut,
    /// The budget of steps ended.
    OutOfSteps,
    /// The budget of memory ended.
    OutOfMemory,
}

pub(super) const NONE: u32 = u32::MAX;

/// Slots of a window that are done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done<M> {
    readers: M,
    setters: M,
}

impl<M: Mask> Done<M> {
    pub(super) fn has(&self, live: &Live) -> bool {
        self.readers.has(live.slot) || self.setters.has(live.slot)
    }
}

/// A configuration on the path that is being tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<M> {
    pub(super) position: u32,
    pub(super) state: u32,
    /// What is done of the window: readers and value-setters.
    pub(super) done: Done<M>,
    /// Next candidate: first those of the window, then the jumps.
    cursor: u32,
    /// Lengths of trail and used-stack when this configuration was reached.
    trail: u32,
    used: u32,
    /// Jumps of this frame, once they are known.
    jumps: Option<(u32, u32)>,
    /// Whether going on without the blocking operation is still to be tried.
    skip: bool,
}

/// Uses crashed operations, and the operation that needs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump {
    /// Part of [`Search::chains`]: the classes in the order of their use.
    pub(super) chain: (u32, u32),
    /// State after the chain.
    pub(super) state: u32,
    /// The live operation that goes next, or [`NONE`] where readers fit the state.
    pub(super) observer: u32,
}

/// A search in progress.
pub(super) struct Search<'a, M> {
    pub(super) problem: &'a Problem,
    memory: usize,
    cache: Cache<M>,
    frames: Vec<Frame<M>>,
    /// Items linearized, in order.
    trail: Vec<u32>,
    /// Crash classes used, in order, and how often each.
    used: Vec<u32>,
    counts: Vec<u32>,
    pub(super) jumps: Vec<Jump>,
    pub(super) chains: Vec<u32>,
    /// Most crashed operations that follow each other directly.
    pub(super) limit: usize,
    /// Whether a longer chain was passed over.
    pub(super) cut: bool,
    furthest: u32,
    /// Cache entries looked at and not yet counted as steps.
    looked_at: u64,
}

impl<'a, M: Mask> Search<'a, M> {
    pub(super) fn new(problem: &'a Problem, memory: usize, limit: usize) -> Self {
        Search {
            problem,
            memory: memory.saturating_sub(problem.bytes()),
            cache: Cache::new(),
            frames: Vec::new(),
            trail: Vec::new(),
            used: Vec::new(),
            counts: vec![0; problem.crashed.len()],
            jumps: Vec::new(),
            chains: Vec::new(),
            limit,
            cut: false,
            furthest: 0,
            looked_at: 0,
        }
    }

    /// Searches until there is an answer or `steps` are used up; takes off it what was used.
    pub(super) fn run(mut self, steps: &mut u64) -> Answer {
        if self.enter(0, self.problem.initial, Done { readers: M::EMPTY, setters: M::EMPTY }) {
            return Answer::Legal(self.trail);
        }
        while let Some(top) = self.frames.len().checked_sub(1) {
            if *steps == 0 {
                return Answer::OutOfSteps;
            }
            // Under one key there can be many entries; looking at a few costs as much as a step.
            *steps = steps.saturating_sub(1 + self.looked_at / LOOKS_PER_STEP);
            self.looked_at %= LOOKS_PER_STEP;
            let legal = if self.frames[top].skip {
                self.frames[top].skip = false;
                let Frame { position, state, done, .. } = self.frames[top];
                self.enter(position + 1, state, done)
            } else if let Some(j) = self.next_live(top) {
                self.rewind(top);
                let frame = self.frames[top];
                self.apply_live(frame.position, frame.state, frame.done, j)
            } else if let Some(jump) = self.next_jump(top, steps) {
                self.rewind(top);
                self.take_jump(top, jump)
            } else {
                self.give_up(top);
                if self.bytes() > self.memory {
                    return Answer::OutOfMemory;
                }
                false
            };
            if legal {
                return Answer::Legal(self.trail);
            }
        }
        if *steps == 0 {
            // The last jumps may have been cut short.
            return Answer::OutOfSteps;
        }
        if self.cut {
            return Answer::Cut;
        }
        Answer::Illegal { blocked: self.problem.live[self.furthest as usize].item }
    }

    fn bytes(&self) -> usize {
        self.cache.bytes()
            + self.frames.capacity() * size_of::<Frame<M>>()
            + self.jumps.capacity() * size_of::<Jump>()
            + (self.trail.capacity() + self.chains.capacity()) * 4
    }

    /// Back to the state of frame `top`, to try another candidate.
    fn rewind(&mut self, top: usize) {
        let frame = self.frames[top];
        self.trail.truncate(frame.trail as usize);
        while self.used.len() > frame.used as usize {
            let class = self.used.pop().map_or(0, |class| class as usize);
            self.counts[class] -= 1;
        }
    }

    /// No candidate is left in frame `top`.
    fn give_up(&mut self, top: usize) {
        self.rewind(top);
        let frame = self.frames[top];
        if let Some((start, _)) = frame.jumps {
            if let Some(jump) = self.jumps.get(start as usize) {
                self.chains.truncate(jump.chain.0 as usize);
            }
            self.jumps.truncate(start as usize);
        }
        let Done { readers, setters } = frame.done;
        let (counts, used) = (&self.counts, &self.used);
        let Frame { position, state, .. } = frame;
        self.cache.insert(&Configuration { position, state, setters, readers, counts, used });
        self.frames.pop();
    }

    fn configuration(&self, position: u32, state: u32, done: Done<M>) -> Configuration<'_, M> {
        let Done { readers, setters } = done;
        Configuration { position, state, setters, readers, counts: &self.counts, used: &self.used }
    }

    /// Enters a configuration: linearizes what fits, moves over what is complete, and opens a frame unless the way
    /// is known to be blocked. True when everything is linearized.
    fn enter(&mut self, mut position: u32, state: u32, mut done: Done<M>) -> bool {
        let problem = self.problem;
        loop {
            let Some(next) = problem.live.get(position as usize) else { return true };
            for &j in problem.window(position) {
                let live = &problem.live[j as usize];
                if live.effect == Effect::Keep && live.guard.admits(state) && !done.readers.has(live.slot) {
                    done.readers = done.readers.with(live.slot);
                    self.trail.push(live.item);
                }
            }
            if !done.has(next) {
                break;
            }
            done =
                Done { readers: done.readers.without(next.slot), setters: done.setters.without(next.slot) };
            position += 1;
        }
        self.furthest = self.furthest.max(position);
        if self.hopeless(position, state, done) {
            return false;
        }
        let (known, looked_at) = self.cache.dominates(&self.configuration(position, state, done));
        self.looked_at += looked_at;
        if known {
            return false;
        }
        self.frames.push(Frame {
            position,
            state,
            done,
            cursor: 0,
            trail: self.trail.len() as u32,
            used: self.used.len() as u32,
            jumps: None,
            skip: !problem.live[position as usize].required,
        });
        false
    }

    /// Whether the blocking operation waits for a value that nothing can set before it.
    fn hopeless(&self, position: u32, state: u32, done: Done<M>) -> bool {
        let Live { guard, required, .. } = self.problem.live[position as usize];
        if !required || guard.admits(state) {
            return false;
        }
        let settable = self.problem.window(position).iter().any(|&j| {
            let live = &self.problem.live[j as usize];
            matches!(live.effect, Effect::Set(value) if guard.admits(value)) && !done.has(live)
        });
        let crashed = || match guard {
            Guard::Is(value) => self
                .problem
                .crashed_into
                .get(&value)
                .is_some_and(|classes| classes.iter().any(|c| self.available(*c, position))),
            _ => !self.problem.crashed.is_empty(),
        };
        !settable && !crashed()
    }

    /// Whether an operation of crash class `class` is left at `position`.
    pub(super) fn available(&self, class: u32, position: u32) -> bool {
        let used = self.counts[class as usize] as usize;
        self.problem.crashed[class as usize].from.get(used).is_some_and(|(from, _)| *from <= position)
    }

    /// The next value-setting operation of the window that fits frame `top`.
    fn next_live(&mut self, top: usize) -> Option<u32> {
        let problem = self.problem;
        let frame = &mut self.frames[top];
        let window = problem.window(frame.position);
        while let Some(&j) = window.get(frame.cursor as usize) {
            let before = &window[..frame.cursor as usize];
            frame.cursor += 1;
            let live = &problem.live[j as usize];
            if live.effect == Effect::Keep || !live.guard.admits(frame.state) || frame.done.has(live) {
                continue;
            }
            let twin = |k: &&u32| {
                let earlier = &problem.live[**k as usize];
                earlier.class == live.class && !frame.done.has(earlier)
            };
            if before.iter().find(twin).is_none() {
                return Some(j);
            }
        }
        None
    }

    fn apply_live(&mut self, position: u32, state: u32, mut done: Done<M>, j: u32) -> bool {
        let live = self.problem.live[j as usize];
        self.trail.push(live.item);
        let Effect::Set(state) = live.effect else { return self.enter(position, state, done) };
        done.setters = done.setters.with(live.slot);
        self.enter(position, state, done)
    }

    fn next_jump(&mut self, top: usize, steps: &mut u64) -> Option<Jump> {
        if self.problem.crashed.is_empty() {
            return None;
        }
        let (next, end) = match self.frames[top].jumps {
            Some(range) => range,
            None => {
                self.rewind(top);
                let start = self.jumps.len() as u32;
                let frame = self.frames[top];
                self.find_jumps(&frame, steps);
                self.frames[top].jumps = Some((start, self.jumps.len() as u32));
                (start, self.jumps.len() as u32)
            }
        };
        let at =
            next + (self.frames[top].cursor - self.problem.window(self.frames[top].position).len() as u32);
        if at >= end {
            return None;
        }
        self.frames[top].cursor += 1;
        Some(self.jumps[at as usize])
    }

    fn take_jump(&mut self, top: usize, jump: Jump) -> bool {
        let frame = self.frames[top];
        for at in jump.chain.0..jump.chain.1 {
            let class = self.chains[at as usize];
            let count = &mut self.counts[class as usize];
            self.trail.push(self.problem.crashed[class as usize].from[*count as usize].1);
            *count += 1;
            self.used.push(class);
        }
        if jump.observer == NONE {
            self.enter(frame.position, jump.state, frame.done)
        } else {
            self.apply_live(frame.position, jump.state, frame.done, jump.observer)
        }
    }
}
