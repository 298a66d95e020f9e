//! Going on from any moment of a run with other choices.
//!
//! Key types: [`Point`] (a moment, as a snapshot of the world), [`Wish`] (what is wanted of a run beside its outcome), [`Ran`]. A branch is a point and a log: that of
//! the point with epochs and overrides about what comes later. Its run is that of [`Ran::log`] from the boot on ([`Worker::run_log`]), digest and all; so a point is
//! only a cache, and one that was given up comes back from its log ([`Worker::rebuild`]).
//!
//! Neighbours: [`crate::session`] carries runs out; `bloodhound_decisions` says which logs a run can go on by; `bloodhound_sim`'s epochs draw faults anew.

pub mod check;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Log, Made, Mode, Part, Site};
use bloodhound_frames::FRAME_SIZE;
use bloodhound_sim::event::Listener;
use bloodhound_sim::world::FindingKind;
use bloodhound_sim::{Ended, Machine, MachineError, World};

use crate::exit;
use crate::session::{Ending, Failure, Outcome, Worker, host_failure, is_done};

/// What a point holds besides the pages that its run has touched since the one before, about, in bytes: what the simulation keeps of nodes, tasks, files and connections.
const BESIDES: u64 = 256 << 10;

/// A moment of a run from which others go on. It shares all memory with its neighbours that is the same in both.
#[derive(Debug)]
pub struct Point {
    /// The virtual time.
    pub at: SimTime,
    /// Steps until then, boot included.
    pub steps: u64,
    /// What leads here from the boot on. What it says of later times is what would come.
    pub log: Arc<Log>,
    /// The digest of all until then.
    pub digest: String,
    /// How many choices of the run were kept until then, if somebody hears of them.
    kept: usize,
    /// It is the end of the boot.
    is_ready: bool,
    /// What it holds that the point before it does not.
    held: u64,
    world: Arc<World>,
}

/// What is wanted of a run beside its outcome.
#[derive(Default)]
pub struct Wish<'a> {
    /// Rising virtual times: at the first moment at or after each of them a point is taken. Times that are over where the run begins give none, nor do those that it
    /// does not come to; several at one moment give one.
    pub stops: &'a [SimTime],
    /// The moments of the stops are told, and no point is taken: it would cost the run a part of its memory, which is written to again.
    pub moments_only: bool,
    /// Is told what happens.
    pub listener: Option<Box<dyn Listener>>,
}

/// What a run from a point gave.
#[derive(Debug)]
pub struct Ran {
    /// Its outcome, as of the whole run from the boot on. Its `decisions` are what the run is.
    pub outcome: Outcome,
    /// The moments of the stops that it came to.
    pub moments: Vec<SimTime>,
    /// The points that were taken at them, in order of time.
    pub points: Vec<Arc<Point>>,
}

impl Point {
    /// Whether it is the end of a boot, where faults and workload have not begun and a log may say anything.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// About how many bytes it holds that are given back when it is dropped: the pages that its run has touched since the point before it, and what comes with each world. What
    /// is shared with others is counted at the first of them alone, so the sum over all points is about what they need together.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    fn refused(&self, why: &str) -> Failure {
        Failure { code: exit::BUG, text: format!("no run goes on at {} by this log: {why}", self.at) }
    }

    /// The world that a run by this log begins with.
    fn beginning(&self, mut log: Log) -> Result<World, Failure> {
        let mut world = World::clone(&self.world);
        if self.is_ready() {
            if log.boot_seed != world.decisions.log().boot_seed {
                return Err(self.refused("it is a run from another boot"));
            }
            let of_boot = world.decisions.log().counted.iter().filter(|known| !log.counted.contains(known));
            let counted = of_boot.chain(&log.counted).cloned().collect();
            log.counted = counted;
            log.counted.sort_by_key(|counted| counted.step);
            world.decisions.follow(log, Mode::Lenient);
            return Ok(world);
        }
        if log.switches != self.log.switches {
            return Err(self.refused("its switches of tasks are others"));
        }
        let went_on =
            world.decisions.go_on(log, Mode::Lenient, self.at.0, |choice| self.world.may_come(choice));
        went_on.map_err(|why| self.refused(&why))?;
        Ok(world)
    }
}

/// Where points are taken in a run, and those that were.
struct Stops<'a> {
    wanted: &'a [SimTime],
    /// The log that it follows, as it was given.
    given: Log,
    used_before: i64,
    /// The run ends when this time is over.
    until: SimTime,
    moments_only: bool,
    moments: Vec<SimTime>,
    taken: Vec<Arc<Point>>,
}

impl<'a> Stops<'a> {
    fn new(wanted: &'a [SimTime], given: &Log, moments_only: bool) -> Stops<'a> {
        let (moments, taken) = (Vec::new(), Vec::new());
        let until = SimTime::MAX;
        Stops { wanted, given: given.clone(), used_before: 0, until, moments_only, moments, taken }
    }

    /// Runs until it is over.
    fn run(&mut self, machine: &mut Machine, from: SimTime) -> Result<Ended, MachineError> {
        self.taken.clear();
        self.moments.clear();
        self.used_before = bloodhound_frames::used_by_thread();
        let mut left = self.wanted.iter().copied().skip_while(|stop| *stop <= from).peekable();
        while let Some(stop) = left.next() {
            let ended = machine.run(|world| is_done(world) || world.now >= stop)?;
            if ended != Ended::Condition || is_done(&machine.world) {
                return Ok(ended);
            }
            // The machine looks at its condition first; the run has not come to its end all the same.
            if machine.interrupted() {
                return Ok(Ended::Interrupted);
            }
            let now = machine.world.now;
            self.moments.push(now);
            if !self.moments_only {
                let point = self.take(machine)?;
                self.taken.push(Arc::new(point));
            }
            while left.next_if(|stop| *stop <= now).is_some() {}
        }
        machine.run(|world| is_done(world) || world.now > self.until)
    }

    fn take(&mut self, machine: &mut Machine) -> Result<Point, MachineError> {
        let mut world = machine.snapshot()?;
        let kept = world.decisions.kept();
        world.decisions.listen(false);
        let log = world.decisions.log();
        // Switches that were drawn are drawn again.
        let log = match log.switches == self.given.switches {
            true => log.clone(),
            false => Arc::new(Log { switches: self.given.switches.clone(), ..(**log).clone() }),
        };
        let used = bloodhound_frames::used_by_thread();
        let touched = u64::try_from(used - self.used_before).unwrap_or(0) * FRAME_SIZE as u64;
        self.used_before = used;
        Ok(Point {
            at: world.now,
            steps: world.steps,
            log,
            digest: world.digest.to_string(),
            kept,
            is_ready: false,
            held: touched + BESIDES,
            world: Arc::new(world),
        })
    }
}

/// What a run gave, and the choices of it.
pub type WithChoices = (Outcome, Vec<Made>);

/// Puts choices that were made for the plan of faults in the place of those that the same drawings made before.
fn put_in_place(made: &mut Vec<Made>, drawn: Vec<Made>) {
    let times: BTreeSet<u64> = drawn.iter().map(|made| made.at).collect();
    let of_plan = |made: &Made| {
        times.contains(&made.at)
            && made.choice.part == Part::Run
            && matches!(made.choice.site, Site::Fault { .. } | Site::Swarm { .. })
    };
    let place = made.iter().position(of_plan).unwrap_or(0);
    let behind = made.split_off(place);
    made.extend(drawn);
    made.extend(behind.into_iter().filter(|made| !of_plan(made)));
}

impl Worker {
    /// The end of a boot, from which the run of a seed goes on, before faults and workload begin.
    pub fn ready(&mut self, booted: &Arc<World>, seed: u64) -> Arc<Point> {
        let log = Log { seed, ..(**booted.decisions.log()).clone() };
        Arc::new(Point {
            at: booted.now,
            steps: booted.steps,
            log: Arc::new(log),
            digest: booted.digest.to_string(),
            kept: 0,
            is_ready: true,
            held: BESIDES,
            world: booted.clone(),
        })
    }

    /// Goes on from a point by a log: that of the point, with epochs and overrides that concern later choices only; from the end of a boot by any log of that boot.
    ///
    /// The run is that of [`Ran::log`] from the boot on. An override of a choice that was made before the point is refused where it is known that it was; else
    /// it does nothing here, but would from the boot on.
    ///
    /// # Errors
    /// A log by which no run goes on there; what the host says.
    pub fn go_on(&mut self, from: &Point, log: Log, wish: Wish<'_>) -> Result<Ran, Failure> {
        let others = self.machine.listeners();
        let ran = self.go_on_with(from, log, wish);
        self.machine.leave_listeners(others);
        ran
    }

    fn go_on_with(&mut self, from: &Point, log: Log, wish: Wish<'_>) -> Result<Ran, Failure> {
        let seed = log.seed;
        crate::bug::doing(format!("seed {seed} from {}", from.at));
        let mut stops = Stops::new(wish.stops, &log, wish.moments_only);
        let mut beginning = from.beginning(log)?;
        if let Some(listener) = wish.listener {
            self.machine.listen(listener);
        }
        beginning.decisions.listen(self.machine.tells_choices());
        self.machine.restore(beginning.clone());
        let begins = from.is_ready().then_some(seed);
        if begins.is_some() {
            self.learn_profile().map_err(host_failure)?;
        }
        let run = |machine: &mut Machine| stops.run(machine, from.at);
        let ended = self.carry_out(&beginning, begins, run).map_err(host_failure)?;
        let outcome = self.ended(seed, ended).map_err(host_failure)?;
        Ok(Ran { outcome, moments: stops.moments, points: stops.taken })
    }

    /// Runs what a log says from a booted world, until this virtual time, and takes points at moments of it ([`Wish::stops`]). Returns its choices as well.
    ///
    /// # Errors
    /// What the host says.
    pub fn run_log_with_points(
        &mut self,
        booted: &Arc<World>,
        log: Log,
        (until, wanted): (SimTime, &[SimTime]),
    ) -> Result<(WithChoices, Vec<Arc<Point>>), Failure> {
        let seed = log.seed;
        let ready = self.ready(booted, seed);
        crate::bug::doing(format!("seed {seed}"));
        let mut stops = Stops { until, ..Stops::new(wanted, &log, false) };
        let mut beginning = ready.beginning(log)?;
        beginning.decisions.listen(true);
        self.machine.restore(beginning.clone());
        self.learn_profile().map_err(host_failure)?;
        let run = |machine: &mut Machine| stops.run(machine, ready.at);
        let ended = self.carry_out(&beginning, Some(seed), run).map_err(host_failure)?;
        let outcome = self.ended(seed, ended).map_err(host_failure)?;
        Ok(((outcome, self.take_choices()), stops.taken))
    }

    /// Runs from a point what a log says, until it has come to this end, for a caller that knows that its run is the same until the point, but for entries of the plan of faults
    /// (`faults_differ`), which is looked at here. `made`: the choices of the run of the point. `None`: it is another run, as far as can be seen.
    /// The digest is that of the run from the boot on only if the plan stays as it is: it has a hash of all choices, those for the plan included.
    ///
    /// # Errors
    /// What the host says.
    pub fn run_log_from(
        &mut self,
        from: &Point,
        (log, faults_differ): (Log, bool),
        made: &[Made],
        ending: &Ending,
    ) -> Result<Option<WithChoices>, Failure> {
        let seed = log.seed;
        crate::bug::doing(format!("seed {seed} from {}", from.at));
        let mut beginning = World::clone(&from.world);
        if beginning.decisions.turn_to(log, Mode::Lenient, from.at.0).is_err() {
            return Ok(None);
        }
        let mut until_here = made[..from.kept].to_vec();
        if faults_differ {
            let Ok(drawn) = beginning.plan_again(self.machine.scenario()) else { return Ok(None) };
            put_in_place(&mut until_here, drawn);
        }
        beginning.decisions.listen(true);
        self.machine.restore(beginning.clone());
        let outcome = self.run_until(&beginning, (seed, false), ending).map_err(host_failure)?;
        until_here.extend(self.take_choices());
        Ok(Some((outcome, until_here)))
    }

    /// The point again, from the end of its boot: for one that was given up, of which its log and its time were kept.
    ///
    /// # Errors
    /// What the host says; a run that does not come there.
    pub fn rebuild(&mut self, booted: &Arc<World>, log: &Log, at: SimTime) -> Result<Arc<Point>, Failure> {
        let ready = self.ready(booted, log.seed);
        if ready.at >= at {
            return Ok(ready);
        }
        crate::bug::doing(format!("seed {} until {at}", log.seed));
        let mut stops = Stops::new(&[], log, false);
        let beginning = ready.beginning(log.clone())?;
        self.machine.restore(beginning.clone());
        self.learn_profile().map_err(host_failure)?;
        stops.used_before = bloodhound_frames::used_by_thread();
        let run = |machine: &mut Machine| machine.run(|world| is_done(world) || world.now >= at);
        let ended = self.carry_out(&beginning, Some(log.seed), run).map_err(host_failure)?;
        if ended == Ended::Interrupted || self.machine.interrupted() {
            return Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() });
        }
        if let Ended::Undecided(why) = &ended {
            let text = format!("the run of seed {} does not come to {at} again: {why}", log.seed);
            return Err(Failure { code: exit::INCONCLUSIVE, text });
        }
        let world = &self.machine.world;
        let fatal = world.findings.iter().any(|finding| finding.kind == FindingKind::Unsupported);
        if ended != Ended::Condition || is_done(world) || fatal {
            let text = format!("the run of seed {} does not come to {at} by its log", log.seed);
            return Err(Failure { code: exit::NONDETERMINISM, text });
        }
        stops.take(&mut self.machine).map(Arc::new).map_err(host_failure)
    }
}
