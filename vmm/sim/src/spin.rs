//! Finds tasks that loop without side effects ([`Detector`]), and tells them from tasks that compute.
//!
//! The host's time only raises a suspicion: a run that spends its budget without a trap is followed by a spin probe
//! (`bloodhound_platform::spin`), whose answer depends on the program alone. A task in a loop without side effects is parked by
//! the scheduler until something on its node changes; if nothing is left that could change anything, the run has a `hang`, by
//! deduction. A task that goes on computing is no finding, however long it takes: how far it comes in a time depends on the
//! host. After [`UNDECIDED_AFTER`] budgets the run is given up without a verdict.
//!
//! All of this is on the host's side. What the world knows (who is parked, who was woken to be probed again) is in
//! [`crate::scheduler`].
//!
//! Neighbours: [`crate::step`] runs tasks through this.

use bloodhound_abi::Regs;
use bloodhound_platform::{Budget, Platform, PlatformError, Probe, SpaceId, Spin, Stops, TaskKey, Trap};

/// The largest budget: about two seconds.
const LARGEST: Budget = Budget(200);
/// Budgets that a task spends in a row, without a trap, until its run is given up. The first is 20 ms of host time, each of
/// the next is twice the one before, up to the largest: some five minutes.
const UNDECIDED_AFTER: u32 = 150;

/// What running a task led to.
pub(crate) enum Progress {
    /// A trap.
    Trap(Trap),
    /// The task is in a loop without side effects, at its canonical point. `still`: since the task was woken from this very
    /// loop it did nothing but go round.
    Parked { still: bool },
    /// The task computes. `for_long`: for so long that the run should be given up.
    Computing { for_long: bool },
}

/// The spin detector of a machine.
pub(crate) struct Detector {
    /// What the next run may take. It grows with each budget that is spent, so that a task which computes is not disturbed
    /// often, and shrinks with each trap.
    budget: Budget,
    /// Budgets spent since the last trap of the task.
    spent: u32,
    probe: Probe,
    /// Where the task was parked, if it was woken from there and has not been seen to leave its loop.
    parked_at: Option<Regs>,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector { budget: Budget::SHORT, spent: 0, probe: Probe::default(), parked_at: None }
    }
}

impl Detector {
    /// A task is about to run. `parked_at`: its registers, if it was parked and woken to be probed again.
    pub fn begin(&mut self, parked_at: Option<Regs>) {
        self.spent = 0;
        self.probe = Probe::default();
        self.parked_at = parked_at;
    }

    /// Runs the task until its next trap, or until it is known to loop, or for one budget.
    ///
    /// # Errors
    /// Those of the platform.
    pub fn run(
        &mut self,
        platform: &mut dyn Platform,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
    ) -> Result<Progress, PlatformError> {
        // A task that was parked is probed first: a run would find out no more, and would take until its budget is spent.
        if self.parked_at.is_some()
            && let Some(parked) = self.probe(platform, space, task, regs)?
        {
            return Ok(parked);
        }
        let before = *regs;
        let trap = platform.run(space, task, regs, &mut Stops::after(self.budget))?;
        self.probe.after_run(&before, regs, trap);
        // A page that the platform has not mapped yet ends a probe without an answer, and is the next trap at the same place.
        // Whatever else ends a probe is no part of a loop in which a task was parked.
        let at_once = *regs == before && matches!(trap, Trap::PageFault { .. } | Trap::BudgetSpent);
        self.parked_at = self.parked_at.filter(|_| at_once);
        if trap != Trap::BudgetSpent {
            self.spent = 0;
            // Not at once, so that a program which computes long between its traps is not probed again and again.
            self.budget = Budget((self.budget.0 * 3 / 4).max(Budget::SHORT.0));
            return Ok(Progress::Trap(trap));
        }
        self.spent += 1;
        self.budget = Budget((self.budget.0 * 2).min(LARGEST.0));
        match self.probe(platform, space, task, regs)? {
            Some(parked) => Ok(parked),
            None => Ok(Progress::Computing { for_long: self.spent > UNDECIDED_AFTER }),
        }
    }

    /// Goes on with the probe. `None` if there is no proof that the task loops.
    fn probe(
        &mut self,
        platform: &mut dyn Platform,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
    ) -> Result<Option<Progress>, PlatformError> {
        let spin = self.probe.go_on(platform, space, task, regs)?;
        if spin == Spin::Progressing {
            return Ok(None);
        }
        // Where tasks wait in loops, the next one is to be found soon.
        self.budget = Budget::SHORT;
        let still = spin == Spin::Still && self.parked_at == Some(*regs);
        Ok(Some(Progress::Parked { still }))
    }
}

#[cfg(test)]
mod tests {
    use bloodhound_frames::Frame;
    use bloodhound_platform::{Arg, Mapping, Prot, Reg, Scripted, Step, XState};

    use super::*;

    const BASE: u64 = 0x40_0000;

    #[test]
    fn a_task_that_computes_is_given_up_after_many_budgets_and_a_trap_begins_anew() {
        let (space, task, code) = (SpaceId(1), TaskKey(1), Frame::zeroed());
        let mut platform = Scripted::new();
        // Counts for ever, then from the second step on makes one system call and counts again.
        let count = Step::Add(Reg::Rbx, Arg::Imm(1));
        platform.program(BASE, vec![Step::Jump(2), Step::syscall(39, &[]), count, Step::Jump(2)]);
        let mapping = Mapping { addr: BASE, frame_offset: code.offset(), pages: 1, prot: Prot::RX };
        platform.map(space, &[mapping]);
        platform.load_xstate(space, task, &XState::initial()).expect("no host");
        let mut regs = Regs { rip: BASE, ..Regs::default() };
        let mut detector = Detector::default();
        detector.begin(None);
        let mut budgets = |detector: &mut Detector, regs: &mut Regs| {
            for budget in 1.. {
                match detector.run(&mut platform, space, task, regs).expect("no host") {
                    Progress::Computing { for_long: false } => {}
                    Progress::Computing { for_long: true } => return budget,
                    Progress::Trap(Trap::Syscall) => return 0,
                    _ => panic!("it neither traps nor loops"),
                }
            }
            unreachable!()
        };
        assert_eq!(budgets(&mut detector, &mut regs), UNDECIDED_AFTER + 1);
        assert_eq!(detector.budget, LARGEST);
        regs.rip = Scripted::address(BASE, 1);
        assert_eq!(budgets(&mut detector, &mut regs), 0);
        assert!(detector.budget < LARGEST, "{:?}", detector.budget);
        assert_eq!(budgets(&mut detector, &mut regs), UNDECIDED_AFTER + 1);
    }
}
