//! Tasks that give way again and again at a few instructions ([`Again`]): as [`crate::scheduler::Often`] says, at instructions that are
//! drawn from the profile when the run begins.
//!
//! Neighbours: [`super`] has the few switches of other runs, and stops tasks at both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_decisions::{Decisions, ForcedSwitch, Site, SwitchPart};
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::node::{MachineId, Node};

use super::Passed;
use crate::code_place::CodePlace;
use crate::profile::{Accessed, Profile, TaskName};
use crate::scheduler::{At, FIRST, Often, When, named};

/// How often tasks give way in a run, at most.
const MOST: u32 = 400;

/// Instructions at which each task gives way again and again.
#[derive(Clone, Debug)]
pub(super) struct Again {
    places: Arc<Vec<CodePlace>>,
    /// Those whose tasks give way amid the instruction.
    torn: Arc<BTreeSet<u32>>,
    often: Often,
    /// With [`When::Once`], the pass.
    nth: u64,
    /// With [`At::Variable`], the places that tasks come by, as far as the profile knows them.
    by: Arc<BTreeMap<TaskName, Vec<u32>>>,
    /// How many more times.
    more: u32,
    /// By container, life of its service, task, and place.
    tasks: BTreeMap<(TaskName, u32), Turnstile>,
}

/// A task at one of these instructions.
#[derive(Clone, Copy, Debug, Default)]
struct Turnstile {
    /// Passes until it gives way.
    left: u64,
    /// Passes so far.
    passes: u64,
    /// How often it gave way.
    gave_way: u64,
}

impl Again {
    /// Draws the instructions. The choices are no part of the run, as what comes of them stands in its log.
    pub fn drawn(profile: &Profile, often: Often, decisions: &Decisions) -> Again {
        let mut decisions = decisions.clone();
        let mut choose = |nth, part, bound| decisions.choose(Site::Switch { nth, part }, bound);
        let (mut places, mut by): (Vec<CodePlace>, BTreeMap<TaskName, Vec<u32>>) = Default::default();
        // All of them in every other run, else none.
        let (tears, mut torn) = (choose(0, SwitchPart::Torn, 2) == 1, BTreeSet::new());
        let mut add = |places: &mut Vec<CodePlace>, accessed: &Accessed| {
            if tears && accessed.tears() {
                torn.insert(places.len() as u32);
            }
            places.push(*accessed.place());
        };
        match often.at {
            At::Places(count) => {
                for nth in 0..count {
                    let number = choose(nth, SwitchPart::Place, Profile::DRAWN);
                    let Some(accessed) = profile.drawn(number) else { break };
                    if !places.contains(accessed.place()) {
                        add(&mut places, accessed);
                    }
                }
            }
            At::Variable => {
                let number = choose(0, SwitchPart::Place, Profile::DRAWN);
                for (at, accessed) in profile.drawn_variable(number).enumerate() {
                    add(&mut places, accessed);
                    for (task, _) in accessed.tasks() {
                        by.entry(*task).or_default().push(at as u32);
                    }
                }
            }
        }
        let nth = if often.when == When::Once { 1 + choose(0, SwitchPart::Pass, FIRST) } else { 0 };
        let (places, torn, by) = (Arc::new(places), Arc::new(torn), Arc::new(by));
        Again { places, torn, often, nth, by, more: MOST, tasks: BTreeMap::new() }
    }

    /// Whether no task gives way any more.
    pub fn is_over(&self) -> bool {
        self.more == 0
    }

    /// Where a task is to stop: which place, and at which address.
    pub fn points(
        &mut self,
        node: &Node,
        (id, tid, mm): (MachineId, Tid, MmId),
        decisions: &Decisions,
    ) -> Vec<(usize, u64)> {
        let name = named(node, tid);
        let mut points = Vec::new();
        for at in self.places_of(name, decisions) {
            if self.arm(name, at, decisions) {
                let addresses = self.places[at as usize].addresses(node, id, tid, mm);
                points.extend(addresses.into_iter().map(|address| (at as usize, address)));
            }
        }
        points
    }

    /// The places at which a task gives way.
    fn places_of(&self, name: TaskName, decisions: &Decisions) -> std::ops::Range<u32> {
        let all = 0..self.places.len() as u32;
        if self.often.at != At::Variable || all.is_empty() {
            return all;
        }
        let (node, life, task) = name;
        // A number that no instruction has names the choice of the instruction itself.
        let site = Site::Often { node, life, task, place: u32::MAX, nth: 0 };
        let known = self.by.get(&name).map_or(&[][..], Vec::as_slice);
        let bound = if known.is_empty() { u64::from(all.end) } else { known.len() as u64 };
        let drawn = decisions.clone().choose(site, bound);
        let at = known.get(drawn as usize).copied().unwrap_or(drawn as u32);
        at..at + 1
    }

    /// Draws when a task gives way at a place next, if it has just begun or given way. False if it does not any more.
    fn arm(&mut self, name: TaskName, at: u32, decisions: &Decisions) -> bool {
        let stile = self.tasks.entry((name, at)).or_default();
        if stile.left > 0 {
            return true;
        }
        let (node, life, task) = name;
        stile.left = match self.often.when {
            When::Once if stile.gave_way > 0 => return false,
            When::Once => self.nth,
            When::Mean(0) => 1,
            When::Mean(mean) => {
                let site = Site::Often { node, life, task, place: at, nth: stile.gave_way };
                1 + decisions.clone().choose(site, 2 * mean)
            }
        };
        true
    }

    /// Passes until a task gives way at a place.
    pub fn left(&self, at: usize, task: TaskName) -> u64 {
        self.tasks.get(&(task, at as u32)).map_or(0, |stile| stile.left)
    }

    /// A task has passed a place so many times.
    pub fn passed(&mut self, at: usize, name: TaskName, passes: u64) -> Passed {
        let Some(stile) = self.tasks.get_mut(&(name, at as u32)) else { return Passed::GoesOn };
        stile.left -= passes.min(stile.left);
        stile.passes += passes;
        if passes == 0 || stile.left > 0 {
            return Passed::GoesOn;
        }
        stile.gave_way += 1;
        self.more -= self.more.min(1);
        let (node, life, task) = name;
        let (place, torn) = (self.places[at].to_string(), self.torn.contains(&(at as u32)));
        Passed::GivesWayAnew(ForcedSwitch { node, life, task, place, nth: stile.passes, torn })
    }
}
