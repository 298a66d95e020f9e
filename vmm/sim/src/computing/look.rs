//! Looks for the loop that a computing task is in ([`Search`]), from the task's last trap on.
//!
//! The task is run from branch to branch: a stretch of code without branches is decoded up to its end, and there a stop point is put before
//! the task gets to it. So each stop point is at an instruction that the task is sure to come to, or comes to by the other way of a
//! conditional branch, never at data, and all passes since
//! the trap are counted. A branch both of whose ways have been seen, or are watched, says nothing new: it needs no stop any more, unless a loop may go round
//! by it. The first branch to be passed often enough is the loop. All of this is a function of the program alone: neither when the host
//! began to suspect the task nor which pages were mapped makes a difference.
//!
//! Neighbours: [`super`] says when to look, and what follows.

use std::collections::BTreeMap;

use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::mm::PAGE;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_platform::code_points::STRAIGHT;
use bloodhound_platform::decode::{self, Branch, End};
use bloodhound_platform::{Budget, Platform, Regs, SpaceId, StopPoint, Stops, Trap};

use super::{PASSES, RETURNS};
use crate::machine::{Machine, MachineError};
use crate::step::{Ran, key};

/// Passes of a branch that has always gone the same way, after which the task is not stopped there any more to see whether it goes the other way,
/// but where that leads.
const LOOKS: u64 = 16;
/// Passes of a branch whose targets are in memory or a register, after which a quick search takes it that all have been seen.
const ENOUGH: u64 = 128;
/// Branches at which a task is stopped, at most: with more the search is given up.
const MOST_BRANCHES: usize = 8192;
/// Stops of a search, at most.
const MOST_STOPS: u32 = 1 << 19;
/// Budgets that are spent in a row without a stop: the task is then in code in which it cannot be stopped.
const LOST: u32 = 100;
/// A budget of a search.
const BUDGET: Budget = Budget(20);
/// Bytes of code that are decoded at once.
const CODE: usize = 64;
/// How often that is done for one stretch of code, at most.
const PIECES: usize = 256;
/// Stretches of code up to this length are decoded once more, to see what stands right before their branch.
const STRETCH: usize = 256;
/// Sets of stop points of searches have numbers from here on ([`Stops::set`]).
const SETS: u64 = 1 << 63;

/// A branch that the task has come to.
#[derive(Clone, Copy, Debug)]
struct Known {
    branch: Branch,
    /// Passes since the search began.
    passed: u64,
    /// Passes until its stop, as they were asked for last.
    asked: u64,
    /// At so many the search is over.
    most: u64,
    /// Passes until a stop that somebody else wants here.
    others: Option<u64>,
    /// Whether it was seen to go to its target, and to go on behind itself.
    seen: (bool, bool),
    /// So many bytes before it begin instructions that are executed one behind the other up to it.
    straight: u8,
}

impl Known {
    /// Whether all ways that it may go have been seen, as far as that matters.
    fn explored(&self, depth: Depth) -> bool {
        match self.branch {
            Branch::Always { .. } | Branch::Call => self.seen.0,
            Branch::Either { .. } => self.seen == (true, true),
            Branch::Indirect | Branch::IndirectCall | Branch::Return => {
                depth == Depth::Quick && self.passed >= ENOUGH
            }
        }
    }
}

/// How closely a task is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// After some passes of a branch whose targets are in memory or a register it is taken that all have been seen.
    Quick,
    /// Such a branch stops the task each time.
    Thorough,
}

/// A search from a task's last trap on.
#[derive(Debug)]
struct Search {
    depth: Depth,
    /// Passes that make a branch the loop.
    passes: u64,
    known: BTreeMap<u64, Known>,
    stops: u32,
    /// Number of the present set of stop points.
    set: u64,
}

impl Search {
    /// A search for a branch that is passed so often.
    fn new(passes: u64, depth: Depth, set: u64) -> Search {
        Search { passes, depth, known: BTreeMap::new(), stops: 0, set: SETS | set }
    }

    /// Changes of the set of stop points so far.
    fn sets(&self) -> u64 {
        self.set & !SETS
    }

    /// The task is at an address: sees to it that it stops at the next branch.
    fn discover(&mut self, node: &Node, tid: Tid, rip: u64, stops: &mut Stops) {
        let Some((address, branch)) = next_branch(node, tid, rip) else { return };
        if self.known.contains_key(&address) {
            return;
        }
        let most = match branch {
            Branch::Return => self.passes * RETURNS,
            _ if goes_round(address, branch) => self.passes,
            _ => u64::MAX,
        };
        let straight = straight_before(node, tid, rip, address);
        let known = Known { branch, passed: 0, asked: 1, most, others: None, seen: (false, false), straight };
        let others = match stops.points.binary_search_by_key(&address, |point| point.address) {
            Ok(at) => Some(std::mem::replace(&mut stops.points[at].passes, 1)),
            Err(room) => {
                stops.points.insert(room, StopPoint { address, passes: 1, straight });
                self.changed(stops);
                None
            }
        };
        // What is known to be a loop has the passes that it has.
        let most = others.unwrap_or(most);
        self.known.insert(address, Known { others, most, ..known });
    }

    fn changed(&mut self, stops: &mut Stops) {
        self.set += 1;
        stops.set = self.set;
    }

    /// The task has stopped at an address. True if that branch was passed often enough.
    fn stopped(&mut self, address: u64) -> bool {
        self.stops += 1;
        let Some(known) = self.known.get_mut(&address) else { return true };
        known.passed + known.asked >= known.most
    }

    /// What stands before a branch ([`Known::straight`]).
    fn straight(&self, address: u64) -> u8 {
        self.known.get(&address).map_or(0, |known| known.straight)
    }

    /// Whether an address is that of a branch that the task has come to.
    fn knows(&self, address: u64) -> bool {
        self.known.contains_key(&address)
    }

    /// The task has executed a branch, and gone to an address. Where else it may go, if that was not seen for long: the next branch from there on
    /// is to be discovered as well.
    fn went(&mut self, from: u64, to: u64, stops: &mut Stops) -> Option<u64> {
        let known = self.known.get_mut(&from)?;
        match known.branch {
            Branch::Either { to: target, next } => {
                known.seen.0 |= to == target;
                known.seen.1 |= to == next;
            }
            _ => known.seen.0 = true,
        }
        let at = stops.points.binary_search_by_key(&from, |point| point.address).ok()?;
        known.passed += known.asked.saturating_sub(stops.points[at].passes);
        let other = match known.branch {
            Branch::Either { to, next } if known.passed >= LOOKS && !known.explored(self.depth) => {
                let other = if known.seen.0 { next } else { to };
                known.seen = (true, true);
                Some(other)
            }
            _ => None,
        };
        if !known.explored(self.depth) {
            known.asked = 1;
        } else if known.most < u64::MAX {
            known.asked = known.most - known.passed;
        } else {
            stops.points.remove(at);
            self.changed(stops);
            return other;
        }
        stops.points[at].passes = known.asked;
        other
    }

    /// Whether it is to be given up.
    fn is_hopeless(&self) -> bool {
        self.stops >= MOST_STOPS || self.known.len() >= MOST_BRANCHES
    }

    /// The search is over: the stops are again those of others, with the passes that are left.
    fn give_back(&self, stops: &mut Stops) {
        stops.points.retain_mut(|point| {
            let Some(known) = self.known.get(&point.address) else { return true };
            let passed = known.passed + (known.asked - point.passes.min(known.asked));
            point.passes = known.others.unwrap_or(0).saturating_sub(passed);
            known.others.is_some()
        });
        stops.set = 0;
    }
}

/// Whether a branch stands at an address by which a loop may go round.
pub(super) fn is_loops(node: &Node, tid: Tid, at: u64) -> bool {
    match next_branch(node, tid, at) {
        Some((address, branch)) if address == at => goes_round(address, branch),
        _ => false,
    }
}

/// Whether a loop may go round by a branch: a jump to what lies before it, or to where a register or memory says, or a return.
fn goes_round(address: u64, branch: Branch) -> bool {
    match branch {
        Branch::Always { to } | Branch::Either { to, .. } => to <= address,
        Branch::Indirect | Branch::Return => true,
        Branch::Call | Branch::IndirectCall => false,
    }
}

/// How many bytes before a branch instructions begin that are executed one behind the other up to it, as far as that is of interest. The task is
/// at `rip`, and comes to it without another branch.
fn straight_before(node: &Node, tid: Tid, rip: u64, address: u64) -> u8 {
    let mut code = [0; STRETCH];
    let known = usize::try_from(address.wrapping_sub(rip)).ok().filter(|length| *length <= STRETCH);
    let Some(code) = known.map(|length| &mut code[..length]) else { return 0 };
    if node.peek(tid, rip, code).is_err() {
        return 0;
    }
    let start = decode::first_from(code, rip, address.saturating_sub(STRAIGHT).max(rip));
    start.and_then(|start| u8::try_from(address - start).ok()).unwrap_or(0)
}

/// The first branch that a task comes to from an address on, as far as its code is there.
fn next_branch(node: &Node, tid: Tid, rip: u64) -> Option<(u64, Branch)> {
    let mut at = rip;
    for _ in 0..PIECES {
        let mut code = [0; CODE];
        let mut length = CODE;
        if node.peek(tid, at, &mut code).is_err() {
            length = CODE.min((PAGE - at % PAGE) as usize);
            node.peek(tid, at, &mut code[..length]).ok()?;
        }
        match decode::stretch(&code[..length], at) {
            End::Branch(address, branch) => return Some((address, branch)),
            End::Trap => return None,
            // Its page is not there: the task will fault on it.
            End::Bytes(next) if next == at => return None,
            End::Bytes(next) => at = next,
        }
    }
    None
}

impl Machine {
    /// Runs a task that is to be looked at; if it is in no loop, as far as can be seen, it runs on as any other.
    pub(crate) fn run_and_look(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        depth: Depth,
        stops: &mut Stops,
    ) -> Result<Ran, MachineError> {
        let mut search = Search::new(PASSES, depth, self.sets);
        let ran = self.look(id, tid, (mm, space), &mut search, stops)?;
        self.sets = search.sets();
        search.give_back(stops);
        match ran {
            Some(ran) => Ok(ran),
            None => self.run_to_stop(id, tid, (mm, space), stops),
        }
    }

    /// Runs a task and looks for the loop that it is in. `None`: there is no such loop as far as can be seen, and the task is to be run
    /// on.
    fn look(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        search: &mut Search,
        stops: &mut Stops,
    ) -> Result<Option<Ran>, MachineError> {
        let mut lost = 0;
        // Nothing is probed: the passes of all loops are counted.
        self.world.scheduler.take_probe(id, tid);
        while lost < LOST && !search.is_hopeless() {
            if self.interrupted() {
                self.world.node_mut(id).take_clock(tid);
                return Ok(Some(Ran::Interrupted));
            }
            let mut regs = self.world.nodes[&id].task(tid).regs;
            search.discover(&self.world.nodes[&id], tid, regs.rip, stops);
            let trap = self.run_to_next_stop(id, tid, space, search, (stops, &mut regs))?;
            match trap {
                None => self.keep(id, tid, &regs),
                Some(Trap::BudgetSpent) => {
                    self.keep(id, tid, &regs);
                    lost = if self.is_counted(self.moment(), stops) { 0 } else { lost + 1 };
                    self.computes(id, tid, false);
                }
                Some(Trap::StopPoint { address }) => {
                    self.keep(id, tid, &regs);
                    lost = 0;
                    if search.stopped(address) {
                        self.world.node_mut(id).take_clock(tid);
                        let straight = search.straight(address);
                        return Ok(Some(Ran::Preempted(address, straight)));
                    }
                }
                Some(trap) => {
                    if let Some(ran) = self.trap(id, tid, mm, space, trap, &mut regs)? {
                        self.world.node_mut(id).take_clock(tid);
                        return Ok(Some(ran));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Runs a task to its next stop point, or executes the branch that it has stopped at; `None` if it has.
    fn run_to_next_stop(
        &mut self,
        id: MachineId,
        tid: Tid,
        space: SpaceId,
        search: &mut Search,
        (stops, regs): (&mut Stops, &mut Regs),
    ) -> Result<Option<Trap>, MachineError> {
        /// The trap flag: a program that steps itself takes each step as a trap of its own.
        const TF: u64 = 1 << 8;
        let from = regs.rip;
        if stops.counted != Some(from) || !search.knows(from) {
            stops.budget = BUDGET;
            let ran = self.watched().run(space, key(id, tid), regs, stops);
            return Ok(Some(self.host(ran)?));
        }
        let own = regs.rflags & TF != 0;
        let stepped = self.watched().step(space, key(id, tid), regs);
        match self.host(stepped)? {
            Trap::Step if !own => {
                stops.counted = None;
                if let Some(other) = search.went(from, regs.rip, stops) {
                    search.discover(&self.world.nodes[&id], tid, other, stops);
                }
                Ok(None)
            }
            trap => Ok(Some(trap)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(branch: Branch, most: u64) -> Known {
        Known { branch, passed: 0, asked: 1, most, others: None, seen: (false, false), straight: 0 }
    }

    fn search_with(branches: &[(u64, Known)]) -> (Search, Stops) {
        let mut search = Search::new(8, Depth::Quick, 0);
        search.known.extend(branches.iter().copied());
        let point = |(address, known): &(u64, Known)| StopPoint::new(*address, known.asked);
        (search, Stops { points: branches.iter().map(point).collect(), ..Stops::default() })
    }

    fn pass(search: &mut Search, from: u64, to: u64, stops: &mut Stops) {
        stops.reached(from);
        search.went(from, to, stops);
    }

    #[test]
    fn a_branch_whose_ways_are_known_stops_nobody_but_for_the_passes_of_a_loop() {
        let either = Branch::Either { to: 30, next: 12 };
        let back = Branch::Either { to: 5, next: 42 };
        let (mut search, mut stops) = search_with(&[(10, known(either, u64::MAX)), (40, known(back, 8))]);
        for (from, to) in [(10, 30), (10, 12)] {
            assert!(!search.stopped(from) && search.knows(from));
            pass(&mut search, from, to, &mut stops);
        }
        assert_eq!(stops.points, [StopPoint::new(40, 1)]);
        for to in [5, 42] {
            assert!(!search.stopped(40));
            pass(&mut search, 40, to, &mut stops);
        }
        assert_eq!(stops.points, [StopPoint::new(40, 6)], "two of eight were made");
        assert!(search.stopped(40), "and all the others");
    }

    #[test]
    fn stops_of_others_have_their_passes_again() {
        let others = Known { others: Some(100), most: 8, ..known(Branch::Indirect, 8) };
        let (mut search, mut stops) = search_with(&[(10, others), (20, known(Branch::Return, 8))]);
        for to in [70, 80, 90] {
            assert!(!search.stopped(10));
            pass(&mut search, 10, to, &mut stops);
        }
        search.give_back(&mut stops);
        assert_eq!(stops.points, [StopPoint::new(10, 97)]);
    }
}
