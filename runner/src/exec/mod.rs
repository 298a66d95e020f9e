//! `bloodhound exec`: one program of this machine's file system, deterministically.
//!
//! Key types: [`Single`] (the program and what it sees of the host), [`End`] (how it ended). `verify` runs programs with
//! the same parts. Modules: `view` (what the program sees), `streams` (the host's standard streams), `end`, `observe` (a standing
//! test), `chaos` (a hunt over seeds).

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bloodhound_decisions::Decisions;
use bloodhound_kernel::container::ContainerId;
use bloodhound_kernel::node::MachineId;
use bloodhound_kernel::stdin::Supply;
use bloodhound_net::NodeId;
use bloodhound_platform::Platform;
use bloodhound_sim::machine::TestModes;
use bloodhound_sim::notice::{LogEntry, Notice};
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::services::State;
use bloodhound_sim::strace::Strace;
use bloodhound_sim::world::{Finding, FindingKind, World};
use bloodhound_sim::{Digest, Ended, Machine, timeline};
use bloodhound_vfs::host::HostBase;

use crate::events::EventFile;
use crate::memory::Guard;
use crate::output::eprint;
use crate::platform::{self, Choice, Chosen};
use crate::run::fail;
use crate::session::{Failure, host_failure};
use crate::{breakpoints, host, inputs};

mod chaos;
mod end;
#[cfg(test)]
mod moments;
mod observe;
mod streams;
mod view;

pub use end::End;
use observe::Observing;
use streams::{Input, Outputs, Source};
pub use streams::{Kept, closed_at_start};
pub use view::{Surroundings, scenario};

/// Arguments of `exec`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Seed of every choice: scheduling, randomness, address-space layout [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    chaos: chaos::Options,
    #[command(flatten)]
    platform: Choice,
    /// Print every system call with its result to standard error
    #[arg(long)]
    strace: bool,
    /// Write everything that happens in the run to a file, as JSON lines (docs/events.md)
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    #[command(flatten)]
    breaks: breakpoints::Breaks,
    /// Print platform, digests of the inputs and of the run, steps and virtual time to standard error at the end
    #[arg(long)]
    summary: bool,
    /// Give standard input to the program line by line, as on a terminal; otherwise a read waits until it is filled or the
    /// input ends, so that it does not show how the input arrives
    #[arg(long, short = 'i', conflicts_with = "chaos")]
    interactive: bool,
    #[command(flatten)]
    surroundings: Surroundings,
    /// Standing tests: drop platform state, wake sleepers for nothing, clone the world, every N steps
    #[arg(long, alias = "torment", hide = true, default_value_t = 0)]
    stress: u64,
    /// Standing tests: show each program with an observing point at the beginning of each known block, or of each statement of the
    /// sources below the current directory
    #[arg(long, hide = true, value_enum, value_name = "UNIT", conflicts_with = "chaos")]
    observe: Option<observe::Unit>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Args {
    /// The standing tests that are on.
    fn modes(&self) -> TestModes {
        TestModes { evict_every: self.stress * 7, spurious_every: self.stress, clone_every: self.stress * 3 }
    }
}

/// The node that a single program runs on.
pub const NODE: NodeId = NodeId(1);
/// Its machine.
const MACHINE: MachineId = MachineId(NODE.0);
/// Its container there.
const CONTAINER: ContainerId = ContainerId(0);
/// Host time after which a program that makes no system call is told of on a terminal.
const SILENCE: Duration = Duration::from_secs(5);
/// Hidden paths that are named at most.
const HIDDEN_SHOWN: usize = 10;

/// A program of this machine's file system, ready to be run any number of times.
pub struct Single {
    scenario: Arc<Scenario>,
    /// Host files; clones share what was read, so every run sees the same.
    base: HostBase,
}

impl Single {
    /// Looks up what the program may see of this machine.
    ///
    /// # Errors
    /// The host's; a `--read` of nothing.
    pub fn new(surroundings: &Surroundings, command: &[OsString]) -> Result<Single, Failure> {
        let base = HostBase::new();
        let scenario = Arc::new(view::scenario(surroundings, command, &base)?);
        Ok(Single { scenario, base })
    }

    /// How the program's tasks interleave in runs that begin with [`Machine::begin_schedule`].
    pub fn set_schedule(&mut self, schedule: bloodhound_sim::scheduler::Schedule) {
        Arc::make_mut(&mut self.scenario).schedule = schedule;
    }

    /// A machine with the program about to start.
    ///
    /// # Errors
    /// What the platform or the setup says.
    pub fn machine(&self, chosen: &Chosen, seed: u64) -> Result<Machine, Failure> {
        self.machine_on(chosen.open()?, Decisions::seeded(seed))
    }

    /// The same on a platform that is open, with what is to be patched in code.
    fn machine_on(&self, platform: Box<dyn Platform>, decisions: Decisions) -> Result<Machine, Failure> {
        let mut base = self.base.clone();
        let world = host::world(&self.scenario, &mut base, decisions).map_err(Failure::environment)?;
        let mut machine = Machine::new(world, self.scenario.clone(), platform, Box::new(base));
        machine.set_most_spaces(crate::pids::per_worker());
        Ok(machine)
    }

    /// What the host answered to writes that it did not take, as lines.
    fn refused(&self, world: &World) -> String {
        let refused = |e: &&LogEntry| matches!(e.what, Notice::Refused(_));
        world.log.iter().filter(refused).map(|e| timeline::line(e, &self.scenario) + "\n").collect()
    }

    /// Processes that were killed because there was no memory left, as lines.
    fn out_of_memory(&self, world: &World) -> String {
        let kill = |e: &&LogEntry| matches!(e.what, Notice::OutOfMemory(_) | Notice::LeftOut(_));
        let line =
            |e: &LogEntry| format!("bloodhound: {}\n", timeline::words(e.node, &e.what, &self.scenario));
        world.log.iter().filter(kill).map(line).collect()
    }

    /// Digest of everything that went into a run but its seed: host files, command line, standard input, and what the host
    /// answered to writes.
    fn inputs(&self, input: Digest, world: &World) -> Digest {
        let scenario = format!("{:?}", self.scenario);
        let refused = self.refused(world);
        inputs::digest(&self.base, &[scenario.as_bytes(), input.to_string().as_bytes(), refused.as_bytes()])
    }
}

/// Runs the program; its exit code, or one of ours.
pub fn run(args: &Args) -> u8 {
    if args.chaos.chaos {
        return chaos::run(args).unwrap_or_else(|failure| fail(&failure));
    }
    let started = platform::start(args.platform.wanted);
    started
        .and_then(|(chosen, platform)| run_with(args, &chosen, platform))
        .unwrap_or_else(|failure| fail(&failure))
}

/// `exec` on a platform that is chosen.
///
/// # Errors
/// What the host says.
#[cfg(test)]
pub fn run_on(args: &Args, chosen: &Chosen) -> Result<u8, Failure> {
    run_with(args, chosen, chosen.open()?)
}

fn run_with(args: &Args, chosen: &Chosen, open: Box<dyn Platform>) -> Result<u8, Failure> {
    let single = Single::new(&args.surroundings, &args.command)?;
    let seed = args.seed.unwrap_or(0);
    let mut decisions = Decisions::seeded(seed);
    decisions.listen(args.events.is_some());
    let mut machine = single.machine_on(open, decisions)?;
    let observing = args.observe.map(Observing::new).transpose()?;
    if let Some(observing) = &observing {
        machine.observe(observing.observer());
    }
    if args.strace {
        machine.listen(Box::new(Strace::new(eprint)));
    }
    let file = args.events.as_deref().map(|path| EventFile::create(path, &single.scenario, seed));
    let file = file.transpose()?;
    if let Some(file) = &file {
        machine.listen(file.listener(single.scenario.clone()));
    }
    let breaks = args.breaks.set(&mut machine)?;
    machine.set_modes(args.modes());
    let mut input = Input::standard(args.interactive);
    machine.world.node_mut(MACHINE).container_mut(CONTAINER).stdin.lines = input.lines;
    let mut outputs = Outputs::standard();
    machine.set_output(Box::new(move |chunk| outputs.write(chunk)));
    if std::io::stderr().is_terminal() {
        let mut silence = Silence::default();
        machine
            .set_computing(Box::new(move |_, tid, steps| silence.look(tid.number(), steps, Instant::now())));
    }
    let stop = Arc::<AtomicBool>::default();
    machine.set_interrupt(stop.clone());
    let guard = Guard::start(args.platform.budget(), stop)?;
    let mut end = drive(&mut machine, &mut |wanted| input.supply(wanted))?;
    if let (End::Interrupted, Some(why)) = (&end, guard.reason()) {
        end = End::Undecided(why);
    }
    breaks.map_or(Ok(()), breakpoints::Setting::finish)?;
    let world = &machine.world;
    eprint(&single.out_of_memory(world));
    match &end {
        End::Exited(_) | End::Interrupted => {}
        other => eprint(&format!("bloodhound: {}\n", other.text(world))),
    }
    if end.code() != 0 {
        eprint(&hidden_text(&single.base, "`--read PATH` shows one to the program"));
    }
    if args.summary {
        eprint(&single.refused(world));
        eprint(&format!(
            "platform: {}\ninputs: {}\ndigest: {}\ndigest_version: {}\nsteps: {}\nvirtual_time_ns: {}\n",
            chosen.line(),
            single.inputs(input.digest, world),
            world.digest,
            bloodhound_abi::digest::VERSION,
            world.steps,
            world.now.0
        ));
        if let Some(observing) = &observing {
            eprint(&observing.text());
        }
    }
    file.map_or(Ok(()), |file| file.finish(world))?;
    Ok(end.code())
}

/// Paths that programs asked for in vain although this machine has them, with what to do about it; nothing if there are none.
pub fn hidden_text(base: &HostBase, help: &str) -> String {
    let hidden = base.hidden();
    if hidden.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "bloodhound: the program asked for these, which this machine has but which are hidden from it:\n",
    );
    for path in hidden.iter().take(HIDDEN_SHOWN) {
        text += &format!("  {}\n", String::from_utf8_lossy(path));
    }
    if hidden.len() > HIDDEN_SHOWN {
        text += &format!("  and {} more\n", hidden.len() - HIDDEN_SHOWN);
    }
    text + &format!("help: {help}\n")
}

/// Tells once of a program that computes and computes: nothing seems to happen then.
#[derive(Default)]
struct Silence {
    /// The number of steps, and since when it has not changed.
    since: Option<(u64, Instant)>,
    told: bool,
}

impl Silence {
    fn look(&mut self, task: u32, steps: u64, now: Instant) {
        if self.is_long(steps, now) {
            eprint(&format!(
                "bloodhound: task {task} has been computing for {} s without a system call; virtual time stands still meanwhile\n",
                SILENCE.as_secs()
            ));
        }
    }

    fn is_long(&mut self, steps: u64, now: Instant) -> bool {
        match self.since {
            Some((before, at)) if before == steps => {
                let long = !self.told && now.duration_since(at) >= SILENCE;
                self.told |= long;
                long
            }
            _ => {
                self.since = Some((steps, now));
                false
            }
        }
    }
}

/// Standard input that is kept for a run that has to be made again, in bytes; with more the run is not made again.
const MOST_INPUT: usize = 64 << 20;

/// Standard input as it was supplied, to be supplied again.
#[derive(Default)]
struct Supplied {
    supplied: Vec<Supply>,
    next: usize,
    kept: usize,
}

impl Supplied {
    /// What was supplied at this place before, else what `more` has.
    fn next(&mut self, more: impl FnOnce() -> Supply) -> Supply {
        if let Some(supply) = self.supplied.get(self.next) {
            self.next += 1;
            return supply.clone();
        }
        let supply = more();
        if self.kept <= MOST_INPUT {
            self.kept += supply.bytes.len();
            self.supplied.push(supply.clone());
            self.next += 1;
        }
        supply
    }

    /// The run begins again.
    fn again(&mut self) {
        self.next = 0;
    }
}

/// Runs the program of a [`Single`] until it ended or `done`, which gives `None`. `stdin` gives so many bytes of standard input, as
/// the program reads it.
///
/// # Errors
/// What the host says.
pub fn drive_until(
    machine: &mut Machine,
    stdin: &mut dyn FnMut(usize) -> Supply,
    done: &dyn Fn(&World) -> bool,
) -> Result<Option<End>, Failure> {
    let beginning = machine.snapshot().map_err(host_failure)?;
    drive_from(machine, &beginning, stdin, done)
}

/// Runs the program of a [`Single`] to its end.
///
/// # Errors
/// What the host says.
pub fn drive(machine: &mut Machine, stdin: &mut dyn FnMut(usize) -> Supply) -> Result<End, Failure> {
    match drive_until(machine, stdin, &|_| false)? {
        Some(end) => Ok(end),
        None => unreachable!("nothing else ends it"),
    }
}

/// As [`drive_until`]; `beginning` is the machine's world, whose frames nobody writes in place.
fn drive_from(
    machine: &mut Machine,
    beginning: &World,
    stdin: &mut dyn FnMut(usize) -> Supply,
    done: &dyn Fn(&World) -> bool,
) -> Result<Option<End>, Failure> {
    let deadline = bloodhound_abi::SimTime(machine.scenario().max_time);
    let mut input = Supplied::default();
    machine.set_suspicious(true);
    loop {
        let over = |w: &World| w.now > deadline || matches!(w.services[&NODE].state, State::Ended(_));
        let ended =
            machine.run(|w| over(w) || done(w) || w.nodes[&MACHINE].wants_stdin()).map_err(host_failure)?;
        if let Ended::Suspect(suspicion) = ended {
            machine.try_again(beginning.clone(), suspicion);
            input.again();
            continue;
        }
        if let Some(wanted) = machine.world.nodes[&MACHINE].container(CONTAINER).stdin.wanted {
            let supply = input.next(|| stdin(wanted));
            if input.kept > MOST_INPUT {
                machine.set_suspicious(false);
            }
            machine.world.node_mut(MACHINE).supply_stdin(CONTAINER, supply);
            continue;
        }
        if ended == Ended::Condition && !over(&machine.world) {
            if done(&machine.world) {
                return Ok(None);
            }
            continue;
        }
        if ended == Ended::Condition && !matches!(machine.world.services[&NODE].state, State::Ended(_)) {
            machine.find_endless();
        }
        return Ok(Some(end_of(machine, ended)));
    }
}

/// The simulation stopped it; a `hang` is told with its stack.
fn stopped(machine: &Machine, finding: Finding) -> End {
    End::Fatal(Finding { text: crate::stack::told(&finding, machine), ..finding })
}

fn end_of(machine: &Machine, ended: Ended) -> End {
    let world = &machine.world;
    let service = &world.services[&NODE];
    match (service.state, ended) {
        (State::Ended(status), _) => End::Exited(status),
        (_, Ended::Condition) => match world.findings.iter().find(|f| f.kind == FindingKind::Hang) {
            Some(finding) => stopped(machine, finding.clone()),
            None => End::TimedOut,
        },
        (_, Ended::Quiet) => End::Deadlock(crate::report::waiting(world)),
        (_, Ended::Fatal(finding)) => match service.refused {
            Some(errno) if finding.kind == FindingKind::NotReady => {
                End::NotStarted(errno, machine.scenario().services[0].name.clone())
            }
            _ => stopped(machine, finding),
        },
        (_, Ended::Interrupted) => End::Interrupted,
        (_, Ended::Undecided(why)) => End::Undecided(why),
        (_, Ended::Suspect(_)) => unreachable!("such a run is made again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_is_told_of_once_and_only_if_it_is_long() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::default();
        assert!(!silence.is_long(1, at(0)) && !silence.is_long(1, at(4)));
        assert!(!silence.is_long(2, at(8)), "it made a step meanwhile");
        assert!(!silence.is_long(2, at(12)));
        assert!(silence.is_long(2, at(13)));
        assert!(!silence.is_long(2, at(60)), "once");
        assert!(!silence.is_long(3, at(70)) && !silence.is_long(3, at(90)));
    }
}
