//! Leaving something out of a run in which choices are drawn anew: a run that passes without it may pass for want of luck.
//!
//! What is left out moves all that comes behind it: elections are lost by others, packets are dropped that are not the same ones. So each candidate is run with
//! other draws of network and scheduler, and where these are plain by now, of what programs draw themselves. What fails is the run that is made smaller from then on.
//! Neighbours: `search`, which leaves out without that.

use bloodhound_decisions::{Concern, Log};

use super::case::{self, Element};
use super::plain::SURPRISES;
use super::search::{FEW, ROUND, Search};
use crate::session::Failure;

/// Most runs that are spent on other draws at a time, and how many draws are tried for each candidate.
const LUCK: u32 = 80;
const DRAWS: usize = 2;
/// With more operations than these, other draws are tried.
pub(super) const FEW_OPERATIONS: usize = 10;

impl Search<'_> {
    /// Leaves out halves, quarters and so on of the faults with other draws if there are many, and then single ones.
    pub(super) fn lucky_faults(&mut self) -> Result<(), Failure> {
        let (begun, most) = (self.runs, LUCK.min(self.part(4)));
        let count = case::faults(&self.ran).len();
        let mut size = if count > 2 * FEW { count / 2 } else { 1 };
        while size > 0
            && let elements = case::faults(&self.ran)
            && elements.len() > 1
        {
            match self.one_of(&elements, size, begun + most)? {
                true => {
                    self.faults(most)?;
                    size = size.min(case::faults(&self.ran).len() / 2).max(1);
                }
                false => size /= 2,
            }
        }
        Ok(())
    }

    /// Leaves out all operations but those that the violation is about with other draws, where more are left than a reader would like.
    pub(super) fn lucky_concerned(&mut self) -> Result<(), Failure> {
        let elements = case::operations_out(&self.ran);
        let sets = self.of_violation();
        if elements.len() <= FEW_OPERATIONS || sets.is_empty() || self.left() < 2 * ROUND as u32 {
            return Ok(());
        }
        self.one_drawn_anew(&elements, &sets, ROUND).map(drop)
    }

    /// Leaves out halves, quarters and so on of the operations with other draws, where more are left than a reader would like.
    pub(super) fn lucky_operations(&mut self) -> Result<(), Failure> {
        let (begun, most) = (self.runs, LUCK.min(self.part(2)));
        let mut size = case::operations_out(&self.ran).len() / 2;
        while size > 0 {
            let elements = case::operations_out(&self.ran);
            if elements.len() <= FEW_OPERATIONS {
                break;
            }
            match self.one_of(&elements, size, begun + most)? {
                true => {
                    self.operations(most)?;
                    size = size.min(case::operations_out(&self.ran).len() / 2);
                }
                false => size /= 2,
            }
        }
        Ok(())
    }

    /// Leaves out one part of so many elements with other draws, if it fails then. All candidates must fit: none are run if there may not be so many runs.
    fn one_of(&mut self, elements: &[Element], size: usize, until: u32) -> Result<bool, Failure> {
        let parts = elements.len().div_ceil(size);
        if (parts * DRAWS) as u32 > until.saturating_sub(self.runs).min(self.left()) {
            return Ok(false);
        }
        let kept = |part| (0..elements.len()).filter(|at| at / size != part).collect();
        let sets: Vec<Vec<usize>> = (0..parts).map(kept).collect();
        self.one_drawn_anew(elements, &sets, DRAWS)
    }

    /// Leaves out all elements but those of one of these sets, each with so many other draws, the first with which it fails.
    fn one_drawn_anew(
        &mut self,
        elements: &[Element],
        sets: &[Vec<usize>],
        draws: usize,
    ) -> Result<bool, Failure> {
        let log = self.ran.outcome.decisions.clone();
        let anew = self.not_plain();
        let mut others: Vec<Log> = Vec::new();
        for kept in sets {
            let less = case::without(&log, elements, kept);
            for _ in 0..draws {
                self.tries += 1;
                others.push(case::drawn_anew(&self.ran, &less, &anew, self.tries));
            }
        }
        match self.first_of(others)? {
            Some(found) => self.look(found),
            None => Ok(false),
        }
    }

    /// What is drawn anew: network and scheduler, but for what is plain, and if all of it is, what programs draw.
    fn not_plain(&self) -> Vec<Concern> {
        let plain = &self.ran.outcome.decisions.plain;
        let drawn: Vec<Concern> = SURPRISES
            .map(|(_, concern)| concern)
            .into_iter()
            .filter(|concern| !plain.contains(concern))
            .collect();
        if drawn.is_empty() { vec![Concern::GuestRandom] } else { drawn }
    }
}
