//! Finds tasks that loop without side effects ([`Detector`]), and distinguishes them from tasks that compute.
//!
//! A budget is an amount of host time for which the platform may run a task before it returns with `Trap::BudgetSpent`. When a
//! task spends its budget without any other trap, the detector starts a spin probe (`bloodhound_platform::spin`), which
//! single-steps the task for a limited number of steps and looks for a state that comes again. So host time decides only when a
//! probe is made; the answer of a probe depends on the program alone.
//!
//! If the probe proves that the task loops without side effects, the scheduler parks the task until something on its node
//! changes. If nothing is left in the world that could change anything, so that parked tasks would go round for ever, the run
//! ends with the finding `hang`. A task without such a proof counts as computing. That is never a finding, however long it takes,
//! since how far a task gets in a given host time depends on the host; but after [`UNDECIDED_AFTER`] budgets in a row the run is
//! given up without a verdict.
//!
//! The detector's state belongs to the host and is no part of the simulated world. The part that the world holds (which tasks
//! are parked, and which were woken and are to be probed again) is in [`crate::scheduler`].
//!
//! Neighbours: [`crate::step`] runs tasks through this.

use std::time::Duration;

use bloodhound_abi::Regs;
use bloodhound_platform::{Budget, Platform, PlatformError, Probe, SpaceId, Spin, Stops, TaskKey, Trap};

/// The largest budget: about two seconds of host time.
const LARGEST: Budget = Budget(200);
/// Nanoseconds of a tick, the unit of budgets.
pub(crate) const TICK_NS: u64 = 10_000_000;
/// How many budgets a task may spend in a row, without another trap, until its run is given up. The shortest budget is 20 ms of
/// host time and each further one is twice as large, up to [`LARGEST`], so this takes some five minutes.
const UNDECIDED_AFTER: u32 = 150;

/// Why [`Detector::run`] returned.
pub(crate) enum Progress {
    /// The task trapped (never `Trap::BudgetSpent`).
    Trap(Trap),
    /// The task is in a loop without side effects, and its registers are those of the loop's canonical point (the state at which
    /// a task in this loop is always parked). `still`: the task was parked at this same state before, and since it was woken from
    /// there it has only gone round the loop.
    Parked { still: bool },
    /// The task has spent a budget and is not known to loop. `for_long`: it has spent so many in a row that the run should be
    /// given up. `ticks`: processor time since its last trap, in ticks of the watchdog.
    Computing { for_long: bool, ticks: u32 },
}

/// The spin detector of a machine.
pub(crate) struct Detector {
    /// The budget of the next run. It doubles each time it is spent, so that a task which computes is seldom interrupted by
    /// probes, and shrinks by a quarter with each trap.
    budget: Budget,
    /// Budgets spent since the last trap of the task.
    spent: u32,
    /// The same in ticks.
    ticks: u32,
    /// Processor time when the first of them had been spent, if the platform knows.
    since: Option<Duration>,
    /// The probe of the task, which may be waiting for the answer of a page fault.
    probe: Probe,
    /// The registers with which the task was parked, if it was woken to be probed again and has not left its loop since, as far
    /// as is known.
    parked_at: Option<Regs>,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector {
            budget: Budget::SHORT,
            spent: 0,
            ticks: 0,
            since: None,
            probe: Probe::default(),
            parked_at: None,
        }
    }
}

impl Detector {
    /// A task is about to run. `parked_at`: its registers, if it was parked and woken to be probed again.
    pub fn begin(&mut self, parked_at: Option<Regs>) {
        (self.spent, self.ticks, self.since) = (0, 0, None);
        self.probe = Probe::default();
        self.parked_at = parked_at;
    }

    /// How many instructions the loop has in which the task was parked.
    pub fn cycle(&self) -> usize {
        self.probe.cycle()
    }

    /// The last budgets were spent on what is none of the task's doing: they do not count.
    pub fn forgive(&mut self) {
        self.spent = 0;
    }

    /// Runs the task until its next trap or stop point, or until it is known to loop, or for one budget.
    ///
    /// # Errors
    /// Those of the platform.
    pub fn run(
        &mut self,
        platform: &mut dyn Platform,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Progress, PlatformError> {
        // A task that was parked and woken is probed before it runs. If it still loops, a run could only spend its budget, which
        // takes longer, and would be followed by the same probe.
        if self.parked_at.is_some()
            && let Some(parked) = self.probe(platform, space, task, regs, stops)?
        {
            return Ok(parked);
        }
        let before = *regs;
        stops.budget = self.budget;
        let trap = platform.run(space, task, regs, stops)?;
        self.probe.after_run(&before, regs, trap);
        // A probe ends without an answer when the task needs a page that the platform has not mapped yet. The run after it then
        // traps at once for that page, or spends its budget before the trap, with unchanged registers; the task may still be in
        // the loop in which it was parked. Nothing else that ends a probe without an answer can be part of such a loop, so in
        // all other cases the task has left it.
        let at_once = *regs == before && matches!(trap, Trap::PageFault { .. } | Trap::BudgetSpent);
        self.parked_at = self.parked_at.filter(|_| at_once);
        if trap != Trap::BudgetSpent {
            (self.spent, self.ticks, self.since) = (0, 0, None);
            // Reduced by degrees and not to the shortest budget, so that a program which computes for long between its traps is
            // not probed after each of them.
            self.budget = Budget((self.budget.0 * 3 / 4).max(Budget::SHORT.0));
            return Ok(Progress::Trap(trap));
        }
        self.spent += 1;
        // A loaded host shall raise no suspicion, so it is processor time that counts, where it is known.
        match (platform.processor_time(space), self.since) {
            (Some(now), Some(since)) => {
                let ns = now.saturating_sub(since).as_nanos();
                self.ticks = u32::try_from(ns / u128::from(TICK_NS)).unwrap_or(u32::MAX);
            }
            (Some(now), None) => self.since = Some(now),
            (None, _) => self.ticks = self.ticks.saturating_add(self.budget.0),
        }
        self.budget = Budget((self.budget.0 * 2).min(LARGEST.0));
        match self.probe(platform, space, task, regs, stops)? {
            Some(parked) => Ok(parked),
            None => Ok(Progress::Computing { for_long: self.spent > UNDECIDED_AFTER, ticks: self.ticks }),
        }
    }

    /// Starts the probe of the task, or continues one that a page fault interrupted. `None` if that gives no proof that the task
    /// loops.
    fn probe(
        &mut self,
        platform: &mut dyn Platform,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Option<Progress>, PlatformError> {
        let spin = self.probe.go_on(platform, space, task, regs, stops)?;
        if spin == Spin::Progressing {
            return Ok(None);
        }
        // Where one task waits in a loop others are likely to do so as well: with a short budget they are found soon.
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
                let mut stops = Stops::default();
                match detector.run(&mut platform, space, task, regs, &mut stops).expect("no host") {
                    Progress::Computing { for_long: false, .. } => {}
                    Progress::Computing { for_long: true, .. } => return budget,
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
