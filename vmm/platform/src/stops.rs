//! Where a run of application code ends besides at its traps ([`Stops`]), and runs that end at stop points on platforms which
//! have no faster way than single steps ([`run_by_steps`]).
//!
//! Neighbours: [`Platform::run`] takes them; `bloodhound-sim` chooses the budget.

use std::sync::Arc;

use crate::{Platform, PlatformError, Regs, SpaceId, TaskKey, Trap};

/// How long application code may run without a trap, in ticks of the watchdog (`crate::watchdog`). What it does meanwhile
/// depends on the host's speed, so what follows from a spent budget must not change the simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(pub u32);

impl Budget {
    /// About 20 ms: what code that traps now and then does not use up.
    pub const SHORT: Budget = Budget(2);
}

/// A place in application code at which a run ends when it has come by often enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopPoint {
    /// The address of an instruction.
    pub address: u64,
    /// How often the instruction is still to be reached; the run ends before it is executed the last time. Counted down by
    /// the platform, also in runs that end otherwise.
    pub passes: u64,
    /// So many bytes before the address begin instructions that are executed one behind the other up to it; 0 if none are known.
    pub straight: u8,
}

impl StopPoint {
    /// One of which it is not known what is executed before it.
    #[must_use]
    pub fn new(address: u64, passes: u64) -> StopPoint {
        StopPoint { address, passes, straight: 0 }
    }
}

/// Where a run ends besides at its traps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stops {
    /// [`Trap::BudgetSpent`] after so long.
    pub budget: Budget,
    /// [`Trap::StopPoint`] at any of these, which stand by rising address, no two at the same.
    pub points: Vec<StopPoint>,
    /// The address of a stop point that was counted and whose instruction has not been executed since: a run that begins there
    /// does not count it again. Kept by the platform from one run to the next.
    pub counted: Option<u64>,
    /// A number that the caller gives to this set of addresses, so that it need not be compared with the one of the run before; 0: none.
    pub set: u64,
    /// Ranges of addresses (first one, and one past the last) at which the program has nothing mapped, by rising address. The platform may put pages of
    /// its own there until the program's next trap that is no page fault, to count passes at native speed. Empty: it counts them by traps.
    pub free: Arc<[(u64, u64)]>,
}

impl Default for Stops {
    /// No stop points, a short budget.
    fn default() -> Stops {
        Stops::after(Budget::SHORT)
    }
}

impl Stops {
    /// No stop points.
    #[must_use]
    pub fn after(budget: Budget) -> Stops {
        Stops { budget, points: Vec::new(), counted: None, set: 0, free: Arc::default() }
    }

    /// The next instruction is the one at `rip`: counts a pass. The trap, if it was the last one of a stop point.
    pub fn reached(&mut self, rip: u64) -> Option<Trap> {
        let at = self.points.binary_search_by_key(&rip, |point| point.address).ok()?;
        let point = self.points.get_mut(at).filter(|point| point.passes > 0)?;
        point.passes -= 1;
        (point.passes == 0).then_some(Trap::StopPoint { address: rip })
    }

    /// Whether a pass of the instruction at `rip` has to be counted before it is executed.
    #[must_use]
    pub fn counts(&self, rip: u64) -> bool {
        let at = self.points.binary_search_by_key(&rip, |point| point.address);
        self.counted != Some(rip) && at.is_ok_and(|at| self.points[at].passes > 0)
    }
}

/// Steps after which a run by steps counts as one whose budget is spent.
const STEPS: u32 = 1 << 16;

/// Runs application code by single steps until it traps or comes to a stop point. The instruction that a run begins with does
/// not count as reached: it is where the last run ended.
///
/// # Errors
/// [`PlatformError::Lacks`] if this platform has no single steps; otherwise those of [`Platform::step`].
pub fn run_by_steps<P: Platform + ?Sized>(
    platform: &mut P,
    space: SpaceId,
    task: TaskKey,
    regs: &mut Regs,
    stops: &mut Stops,
) -> Result<Trap, PlatformError> {
    /// The trap flag: a program that steps itself takes each step as a trap of its own.
    const TF: u64 = 1 << 8;
    if !platform.abilities().traps_steps {
        return Err(PlatformError::Lacks("single steps, which stop points need"));
    }
    for _ in 0..STEPS {
        let own = regs.rflags & TF != 0;
        let trap = platform.step(space, task, regs)?;
        if trap != Trap::Step || own {
            return Ok(trap);
        }
        if let Some(stop) = stops.reached(regs.rip) {
            return Ok(stop);
        }
    }
    Ok(Trap::BudgetSpent)
}
