//! Runs a program once per seed, from where its schedule begins to matter ([`Start`]), on one platform ([`Runner`]).

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_decisions::{Decisions, Log, Made, Mode};
use bloodhound_kernel::stdin::Supply;
use bloodhound_sim::profile::{AccessesOf, Profile};
use bloodhound_sim::scheduler::PreemptAt;
use bloodhound_sim::trace::Trace;
use bloodhound_sim::{Machine, World};

use super::super::{End, Kept, MACHINE, Single, drive_from, drive_until};
use super::Outcome;
use crate::interleave;
use crate::platform::Chosen;
use crate::session::{Failure, host_failure};

/// What is kept of a seed's output, in bytes.
const MOST_OUTPUT: usize = 64 << 10;
/// Lines of it that are shown.
const LINES: usize = 12;
/// The seed from which the time before the second task is drawn.
pub const BOOT: u64 = 0;

/// Standard input, which all seeds read from its beginning.
pub type SharedInput = Arc<Mutex<Option<Kept>>>;

/// The program where it has made its second task: until there no schedule makes a difference. All seeds begin here.
#[derive(Debug)]
pub struct Start {
    world: World,
    /// What it has written until there.
    output: Tail,
    /// How much of standard input it has read.
    read: usize,
    /// How it ended, if it did so before.
    pub ended: Option<End>,
    /// What switches at instructions are drawn from, if there are any.
    profile: Option<Arc<Profile>>,
}

/// The end of what a program wrote.
#[derive(Clone, Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 2 * MOST_OUTPUT {
            self.bytes.drain(..self.bytes.len() - MOST_OUTPUT);
            self.cut = true;
        }
    }

    /// The last lines, and whether there were others before them.
    fn lines(&self) -> (String, bool) {
        let text = String::from_utf8_lossy(&self.bytes);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LINES);
        (lines[from..].iter().map(|line| format!("{line}\n")).collect(), self.cut || from > 0)
    }
}

/// A machine on which seeds are run.
pub struct Runner<'a> {
    machine: Machine,
    input: &'a SharedInput,
    output: Arc<Mutex<Tail>>,
    /// Whether the choices of runs are kept.
    keep: bool,
    /// Steps after which a run is given up.
    most_steps: u64,
}

impl<'a> Runner<'a> {
    /// A machine on the calling thread.
    ///
    /// # Errors
    /// What the platform or the setup says.
    pub fn new(
        single: &Single,
        chosen: &Chosen,
        interrupt: Arc<AtomicBool>,
        input: &'a SharedInput,
        most_steps: u64,
    ) -> Result<Runner<'a>, Failure> {
        let decisions = Decisions::new(Log::new(BOOT, BOOT), Mode::Lenient);
        let mut machine = single.machine_on(chosen.open()?, decisions)?;
        machine.set_interrupt(interrupt);
        let output = Arc::<Mutex<Tail>>::default();
        let kept = output.clone();
        machine.set_output(Box::new(move |chunk| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).add(&chunk.bytes);
            Ok(chunk.bytes.len())
        }));
        Ok(Runner { machine, input, output, keep: false, most_steps })
    }

    /// The machine, for listeners.
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Keeps the choices that are made from now on for [`Runner::choices`], or no longer.
    pub fn keep_choices(&mut self, on: bool) {
        self.keep = on;
    }

    /// What the last run was: its log, and the choices that it made while they were kept.
    pub fn choices(&mut self) -> (Log, Vec<Made>) {
        let decisions = &mut self.machine.world.decisions;
        ((**decisions.log()).clone(), decisions.take_made())
    }

    /// Runs what a log says and traces its accesses to memory; those in `wanted` with their stacks.
    ///
    /// # Errors
    /// What the host says.
    pub fn trace(
        &mut self,
        start: &Start,
        log: Log,
        accesses_of: Arc<AccessesOf>,
        wanted: BTreeSet<usize>,
    ) -> Result<Trace, Failure> {
        self.machine.begin_trace(accesses_of, wanted);
        let outcome = self.run_log(start, log);
        let trace = self.machine.end_trace();
        outcome.map(|_| trace)
    }

    /// Runs the program up to its second task. To be called before any seed, on one runner of a hunt.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(&mut self) -> Result<Start, Failure> {
        let mut read = 0;
        let mut supply = supply(self.input, &mut read);
        // Whether a second task is there is looked at after each step.
        self.machine.look_after_each_step(true);
        // Beside that of init, which never runs.
        let second = |world: &World| world.nodes[&MACHINE].tasks.len() > 2;
        let ended = drive_until(&mut self.machine, &mut supply, &second);
        self.machine.look_after_each_step(false);
        let ended = ended?;
        drop(supply);
        let world = self.machine.snapshot().map_err(host_failure)?;
        let mut start = Start { world, output: self.output().clone(), read, ended, profile: None };
        if start.ended.is_none() && self.machine.scenario().schedule.preempt_at == PreemptAt::Code {
            start.profile = Some(self.profile(&start)?);
        }
        Ok(start)
    }

    /// Gathers where the program accesses memory that its tasks share.
    fn profile(&mut self, start: &Start) -> Result<Arc<Profile>, Failure> {
        let (input, most) = (self.input, self.most_steps);
        interleave::profile(&mut self.machine, &start.world, |machine, seed| {
            machine.world.decisions.begin_run(seed);
            machine.begin_schedule();
            let beginning = machine.world.clone();
            let mut read = start.read;
            let mut supply = supply(input, &mut read);
            drive_from(machine, &beginning, &mut supply, &|world| world.steps >= most).map(drop)
        })
    }

    /// Runs a seed.
    ///
    /// # Errors
    /// What the host says.
    pub fn run(&mut self, start: &Start, seed: u64) -> Result<Outcome, Failure> {
        self.run_log(start, Log::new(BOOT, seed))
    }

    /// Runs what a log says.
    ///
    /// # Errors
    /// What the host says.
    pub fn run_log(&mut self, start: &Start, log: Log) -> Result<Outcome, Failure> {
        let seed = log.seed;
        crate::bug::doing(format!("seed {seed}"));
        self.machine.restore(start.world.clone());
        *self.output() = start.output.clone();
        let end = match &start.ended {
            Some(end) => end.clone(),
            None => {
                if let Some(profile) = &start.profile {
                    self.machine.set_profile(profile.clone());
                }
                self.machine.world.decisions.follow(log, Mode::Lenient);
                self.machine.world.decisions.listen(self.keep || self.machine.tells_choices());
                self.machine.begin_schedule();
                let beginning = self.machine.world.clone();
                let (mut read, most) = (start.read, self.most_steps);
                let mut supply = supply(self.input, &mut read);
                let end =
                    drive_from(&mut self.machine, &beginning, &mut supply, &|world| world.steps >= most)?;
                end.unwrap_or_else(|| {
                    End::Undecided(format!("still running after {most} steps (--max-steps)"))
                })
            }
        };
        let tail = self.output().lines();
        Ok(Outcome::new(seed, end, &self.machine.world, tail))
    }

    fn output(&self) -> std::sync::MutexGuard<'_, Tail> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Standard input from a place on.
fn supply<'a>(input: &'a SharedInput, read: &'a mut usize) -> impl FnMut(usize) -> Supply + 'a {
    move |wanted| {
        let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
        let supply = input.get_or_insert_with(Kept::standard).supply(*read, wanted);
        *read += supply.bytes.len();
        supply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_much_output_are_kept() {
        let mut tail = Tail::default();
        tail.add(b"one\ntwo");
        assert_eq!(tail.lines(), ("one\ntwo\n".into(), false));
        for n in 0..100_000 {
            tail.add(format!("{n}\n").as_bytes());
        }
        let (text, cut) = tail.lines();
        assert!(cut && tail.bytes.len() <= 2 * MOST_OUTPUT);
        assert_eq!(text.lines().count(), LINES);
        assert!(text.starts_with("99988\n") && text.ends_with("99999\n"), "{text}");
    }
}
