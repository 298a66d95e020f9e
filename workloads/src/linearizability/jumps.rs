//! How crashed operations are used: in chains that lead from the state to a value for which a pending operation waits,
//! directly before that operation.
//!
//! Chains are found backwards from the value. The last link sets it; a link that is a write can begin a chain in any
//! state, one that is a cas needs another link to the value that it expects, or the state itself. Two rules keep
//! them few:
//!
//! * A link with a pending live twin is not used: the live one goes first, and the crashed one stays.
//! * Where a crashed or pending write of a value is at hand, no longer chain that begins with a write leads to it:
//!   such a chain can begin in any state, so it could stand wherever that write is needed later.

use std::collections::BTreeSet;

use super::mask::Mask;
use super::search::{Frame, Jump, NONE, Search};
use crate::model::{Effect, Guard};

/// A chain under construction.
struct Chain<'a, M> {
    frame: &'a Frame<M>,
    /// The value to which it leads.
    target: u32,
    /// Crash classes, the last one first.
    links: Vec<u32>,
    /// Values to which crashed operations lead from the state without a write; found when they are asked for.
    reachable: Option<BTreeSet<u32>>,
}

impl<M: Mask> Search<'_, M> {
    /// Finds all uses of crashed operations that make a pending operation possible which is not possible now.
    pub(super) fn find_jumps(&mut self, frame: &Frame<M>, steps: &mut u64) {
        let mut targets: Vec<u32> = Vec::new();
        for &j in self.problem.window(frame.position) {
            let live = &self.problem.live[j as usize];
            if frame.done.has(live) || live.guard.admits(frame.state) {
                continue;
            }
            match live.guard {
                Guard::Is(value) => targets.push(value),
                // Any other value will do.
                _ => targets.extend(self.problem.crashed_into.keys().filter(|value| **value != frame.state)),
            }
        }
        targets.sort_unstable();
        targets.dedup();
        let mut chain = Chain { frame, target: 0, links: Vec::new(), reachable: None };
        for target in targets {
            chain.target = target;
            self.lead_to(target, &mut chain, true, steps);
        }
    }

    /// Extends a chain, which leads from `value` to its target, backwards to the state; to a write as well if
    /// `may_begin` says so.
    fn lead_to(&mut self, value: u32, chain: &mut Chain<'_, M>, may_begin: bool, steps: &mut u64) {
        let problem = self.problem;
        let Some(classes) = problem.crashed_into.get(&value) else { return };
        let may_begin_further = may_begin && !self.has_write(chain.frame, value);
        for &class in classes {
            *steps = steps.saturating_sub(1);
            if *steps == 0
                || !self.available(class, chain.frame.position)
                || self.has_live_twin(chain.frame, class)
            {
                continue;
            }
            chain.links.push(class);
            match problem.crashed[class as usize].guard {
                Guard::Is(before) if before != chain.frame.state => {
                    // A value reached twice would make the part in between useless.
                    let visited = before == chain.target
                        || chain.links.iter().any(|c| problem.crashed[*c as usize].effect == before);
                    if visited || !may_begin_further && !self.is_reachable(before, chain) {
                        // Nothing that leads there is of use.
                    } else if chain.links.len() >= self.limit {
                        self.cut = true;
                    } else {
                        self.lead_to(before, chain, may_begin_further, steps);
                    }
                }
                Guard::Any if !may_begin => {}
                _ => self.push_jumps(chain),
            }
            chain.links.pop();
        }
    }

    /// Whether crashed operations lead from the state to `value` without a write.
    fn is_reachable(&self, value: u32, chain: &mut Chain<'_, M>) -> bool {
        let frame = chain.frame;
        let reachable = chain.reachable.get_or_insert_with(|| {
            let mut reachable = BTreeSet::from([frame.state]);
            let mut growing = true;
            while growing {
                let before = reachable.len();
                for (class, crashed) in (0..).zip(&self.problem.crashed) {
                    if matches!(crashed.guard, Guard::Is(from) if reachable.contains(&from))
                        && self.available(class, frame.position)
                    {
                        reachable.insert(crashed.effect);
                    }
                }
                growing = reachable.len() > before;
            }
            reachable
        });
        reachable.contains(&value)
    }

    /// Whether a write of `value`, crashed or pending, is at hand.
    fn has_write(&self, frame: &Frame<M>, value: u32) -> bool {
        let crashed = self.problem.crashed_into.get(&value).into_iter().flatten().any(|class| {
            self.problem.crashed[*class as usize].guard == Guard::Any
                && self.available(*class, frame.position)
        });
        crashed || self.has_live(frame, Guard::Any, value)
    }

    /// Whether an identical live operation is pending, which then goes first.
    fn has_live_twin(&self, frame: &Frame<M>, class: u32) -> bool {
        let crashed = &self.problem.crashed[class as usize];
        self.has_live(frame, crashed.guard, crashed.effect)
    }

    fn has_live(&self, frame: &Frame<M>, guard: Guard, value: u32) -> bool {
        self.problem.window(frame.position).iter().any(|&j| {
            let live = &self.problem.live[j as usize];
            live.guard == guard && live.effect == Effect::Set(value) && !frame.done.has(live)
        })
    }

    /// Notes the uses of a chain that is complete.
    fn push_jumps(&mut self, chain: &Chain<'_, M>) {
        let problem = self.problem;
        let Chain { frame, target, .. } = *chain;
        let start = self.chains.len() as u32;
        self.chains.extend(chain.links.iter().rev());
        let chain = (start, self.chains.len() as u32);
        let before = self.jumps.len();
        for (i, &j) in problem.window(frame.position).iter().enumerate() {
            let live = &problem.live[j as usize];
            if frame.done.has(live) || live.guard.admits(frame.state) || !live.guard.admits(target) {
                continue;
            }
            if live.effect == Effect::Keep {
                // Readers follow by themselves, and then anything may.
                self.jumps.truncate(before);
                self.jumps.push(Jump { chain, state: target, observer: NONE });
                return;
            }
            let twin = |k: &&u32| {
                let earlier = &problem.live[**k as usize];
                earlier.class == live.class && !frame.done.has(earlier)
            };
            if problem.window(frame.position)[..i].iter().find(twin).is_none() {
                self.jumps.push(Jump { chain, state: target, observer: j });
            }
        }
    }
}
