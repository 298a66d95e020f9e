//! `bloodhound verify`: one seed several times, on one platform or on several, compared step by step; of a stack, or of a
//! single program as with `exec`.
//!
//! Key types: [`Subject`] (a stack or a program), [`Run`] (all that one run did), [`Difference`] (the first step that two
//! runs do not share). A digest covers everything before it, so the first step with another digest is the first at which
//! the runs were not the same.

use std::cell::RefCell;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_abi::SimTime;
use bloodhound_abi::digest::{self, Digest};
use bloodhound_decisions::CountedLoop;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::watch::Told;
use bloodhound_net::NodeId;
use bloodhound_sim::event::{Event, Listener, Moment};
use bloodhound_sim::strace::format_result;
use bloodhound_sim::world::{FindingKind, World};
use serde_json::{Value as Json, json};

use crate::branch::check;
use crate::exec::{End, Kept, Single, Surroundings, drive};
use crate::output::{self, Format};
use crate::platform::{self, Chosen, Name, Wanted};
use crate::run::{Source, fail, interrupt};
use crate::session::{Failure, Session, Stopped, Worker, host_failure};
use crate::{boots, exit};

/// Arguments of `verify`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// The seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How often it is run on each platform
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    times: u32,
    /// What runs it; several, such as `ptrace,kvm`, are compared with each other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto", value_name = "LIST")]
    platform: Vec<Wanted>,
    /// Of a stack: go on from so many moments of the run, as it did and with choices drawn anew, and compare each with its log run from the boot
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "command")]
    branches: Option<u64>,
    #[command(flatten)]
    surroundings: Surroundings,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    /// A program and its arguments, run as `exec` does, instead of a stack
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["config", "compose"])]
    command: Vec<OsString>,
}

/// Everything that one run did.
struct Run {
    marks: Vec<Mark>,
    digest: String,
    /// Number of steps, those of the boot included.
    total: u64,
    virtual_time: SimTime,
    /// What a program came to.
    end: Option<String>,
    /// The exit code of `verify` if all runs are equal to this one.
    code: u8,
    /// Loops at which it preempted tasks that only compute. Finding them depends on the host's speed, so the first run gives its own
    /// to the others.
    counted: Vec<CountedLoop>,
}

/// Which run it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    /// From 1, in the order in which they are made.
    number: u32,
    platform: Name,
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "run {} ({})", self.number, self.platform)
    }
}

/// The first place at which two runs differ.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    /// Number of the step; `None` if all steps are equal and only what came after the last one differs.
    step: Option<u64>,
    /// What each of them did there.
    sides: [String; 2],
}

/// What is run over and over on one platform.
trait Subject {
    /// Runs it once more; with the counted loops of the first run, if that was made.
    ///
    /// # Errors
    /// What the host says, services that do not start, an interruption.
    fn run(&mut self, seed: u64, counted: Option<&[CountedLoop]>) -> Result<Run, Failure>;
}

/// `bloodhound verify`.
pub fn verify(args: &Args) -> u8 {
    platforms(args).and_then(|chosen| several(args, &chosen)).unwrap_or_else(|f| fail(&f))
}

/// `verify` on platforms that are chosen.
///
/// # Errors
/// Nondeterminism; what the host says.
pub fn several(args: &Args, chosen: &[Chosen]) -> Result<u8, Failure> {
    if args.command.is_empty() {
        let session =
            Arc::new(Session::load(&args.source.config, &args.source.selection()?, &args.source.images)?);
        let equal = compare(args, chosen, &|chosen| {
            Box::new(Stack { session: session.clone(), chosen, current: None, fresh: true })
        })?;
        let branched = args.branches.map(|count| branched(args, &session, chosen, (count, &equal)));
        Ok(tell(args, chosen, &equal, branched.transpose()?))
    } else {
        let single = Single::new(&args.surroundings, &args.command)?;
        let stdin = RefCell::new(None);
        let equal =
            compare(args, chosen, &|chosen| Box::new(Program { single: &single, chosen, stdin: &stdin }))?;
        Ok(tell(args, chosen, &equal, None))
    }
}

/// Goes on from so many moments of the run on each platform; the run must be `equal`. From how many, and how many branches were other runs.
fn branched(
    args: &Args,
    session: &Arc<Session>,
    chosen: &[Chosen],
    (count, equal): (u64, &Equal),
) -> Result<(u64, u64), Failure> {
    let number = boots::boot_of(args.seed, session.plan.boots);
    let (mut moments, mut others) = (0, 0);
    for chosen in chosen {
        let mut worker = Worker::new(session.clone(), chosen, interrupt())?;
        let booted = Arc::new(boot(&mut worker, number, Some(&equal.run.counted))?);
        let log = worker.log_of(args.seed, session.plan.strategy, booted.decisions.log());
        let checked = check::moments(&mut worker, &booted, log, count)
            .and_then(|checked| checked.require_run(&equal.run.digest))
            .map_err(|failure| not_equal(args, chosen, failure))?;
        moments += checked.moments;
        others += checked.others;
    }
    Ok((moments, others))
}

/// Tells of a branch that is not its log in JSON if that is wanted, and names the platform.
fn not_equal(args: &Args, chosen: &Chosen, failure: Failure) -> Failure {
    if failure.code == exit::NONDETERMINISM && args.format == Format::Json {
        let mut json = header(args, std::slice::from_ref(chosen), false);
        json["difference"] = json!({"branch": failure.text});
        output::print_json(&json);
    }
    Failure { code: failure.code, text: format!("{}: {}", chosen.name, failure.text) }
}

/// The platforms to run on, each once.
fn platforms(args: &Args) -> Result<Vec<Chosen>, Failure> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for (at, wanted) in args.platform.iter().enumerate() {
        if args.platform[..at].contains(wanted) {
            continue;
        }
        let next = platform::choose(*wanted)?;
        if chosen.iter().all(|c| c.name != next.name) {
            chosen.push(next);
        }
    }
    if args.times == 1 && chosen.len() == 1 {
        return Err(Failure::usage(format!(
            "one run on {} has nothing to be compared with\nhelp: `--times 2`, or two platforms: `--platform ptrace,kvm`",
            chosen[0].name
        )));
    }
    Ok(chosen)
}

/// Runs that were equal.
struct Equal {
    /// How many there were.
    number: u32,
    /// The first.
    run: Run,
}

/// Makes all runs and compares each with the first.
fn compare<'a>(
    args: &Args,
    chosen: &[Chosen],
    subject: &dyn Fn(Chosen) -> Box<dyn Subject + 'a>,
) -> Result<Equal, Failure> {
    let mut first: Option<(Which, Run)> = None;
    let mut number = 0;
    for platform in chosen {
        // One at a time: the next platform begins when the last one is gone.
        let mut subject = subject(*platform);
        for _ in 0..args.times {
            number += 1;
            let which = Which { number, platform: platform.name };
            let named = |f: Failure| Failure { code: f.code, text: format!("{which}: {}", f.text) };
            let counted = first.as_ref().map(|(_, run)| run.counted.as_slice());
            let run = subject.run(args.seed, counted).map_err(named)?;
            match &first {
                None => first = Some((which, run)),
                Some((reference, expected)) => {
                    if let Some(difference) = difference(expected, &run) {
                        return Err(differs(args, chosen, &difference, [*reference, which]));
                    }
                }
            }
        }
    }
    // There are at least one platform and one run.
    let (_, run) = first.ok_or_else(|| Failure::usage("there is nothing to compare"))?;
    Ok(Equal { number, run })
}

/// Tells of equal runs, and of what branches off them: from how many moments, and how many other runs. The exit code.
fn tell(args: &Args, chosen: &[Chosen], equal: &Equal, branched: Option<(u64, u64)>) -> u8 {
    let Equal { number, run } = equal;
    match args.format {
        Format::Human => {
            let names: Vec<String> = chosen.iter().map(Chosen::line).collect();
            println!("{number} runs of seed {} are equal\nplatform: {}", args.seed, names.join(", "));
            if let Some(end) = &run.end {
                println!("end: {end}");
            }
            if let Some((moments, others)) = branched {
                println!(
                    "branches: from {moments} moments it goes on as it did; {others} runs that branch off there are as their logs say"
                );
            }
            if !run.counted.is_empty() {
                println!(
                    "counted_loops: {}, which the first run has found and the others were given",
                    run.counted.len()
                );
            }
            println!(
                "digest: {}\ndigest_version: {}\nsteps: {}\nvirtual_time_ns: {}",
                run.digest,
                digest::VERSION,
                run.total,
                run.virtual_time.0
            );
        }
        Format::Json => {
            let mut json = header(args, chosen, true);
            json["digest"] = json!(run.digest);
            json["digest_version"] = json!(digest::VERSION);
            json["steps"] = json!(run.total);
            json["virtual_time_ns"] = json!(run.virtual_time.0);
            json["end"] = json!(run.end);
            json["counted_loops"] = json!(run.counted);
            if let Some((moments, others)) = branched {
                json["branches"] = json!({"moments": moments, "other_runs": others});
            }
            output::print_json(&json);
        }
    }
    run.code
}

/// What JSON says in either case. `times` is per platform.
fn header(args: &Args, chosen: &[Chosen], equal: bool) -> Json {
    json!({
        "schema": "bloodhound.verify/v1",
        "equal": equal,
        "times": args.times,
        "seed": args.seed,
        "platforms": chosen.iter().map(Chosen::json).collect::<Vec<_>>(),
    })
}

/// Tells of a difference in JSON if that is wanted, and makes it the failure of the command.
fn differs(args: &Args, chosen: &[Chosen], difference: &Difference, which: [Which; 2]) -> Failure {
    let Difference { step, sides } = difference;
    if args.format == Format::Json {
        let side = |i: usize| json!({"run": which[i].number, "platform": which[i].platform.as_str(), "did": sides[i]});
        let mut json = header(args, chosen, false);
        json["difference"] = json!({"step": step, "sides": [side(0), side(1)]});
        output::print_json(&json);
    }
    let place = step.map_or_else(|| "after equal steps".to_owned(), |step| format!("step {step}"));
    let mut text = format!("{} differs from {}: {place}", which[1], which[0]);
    for (which, did) in which.iter().zip(sides) {
        text += &format!("\n  {which}: {did}");
    }
    if sides[0] == sides[1] {
        text += "\n  the same event with other data: `bloodhound run --events FILE` writes all of it";
    }
    for lacking in chosen.iter().filter(|c| !platform::missing(&c.abilities).is_empty()) {
        text += &format!("\n  {}: such a difference may be no bug of ours", lacking.line());
    }
    Failure { code: exit::NONDETERMINISM, text }
}

/// The first difference between two runs, with both sides.
fn difference(a: &Run, b: &Run) -> Option<Difference> {
    let digest = |run: &Run, i: usize| run.marks.get(i).map(|m| m.digest);
    let at = (0..a.marks.len().max(b.marks.len())).find(|i| digest(a, *i) != digest(b, *i));
    match at {
        Some(i) => {
            let sides = [a.marks.get(i), b.marks.get(i)];
            let step = sides.iter().flatten().next().map(|m| m.during());
            Some(Difference { step, sides: [a, b].map(|run| describe(&run.marks[i.min(run.marks.len())..])) })
        }
        None if a.digest != b.digest => {
            Some(Difference { step: None, sides: [a, b].map(|r| format!("digest {}", r.digest)) })
        }
        None => None,
    }
}

/// What a run did from here on: of a call that begins, and of the bytes that it copies, how it ends.
fn describe(rest: &[Mark]) -> String {
    let Some(mark) = rest.first() else { return "the run is over".to_owned() };
    let end = |tid| move |m: &&Mark| m.node == mark.node && matches!(m.what, What::Call(t, ..) if t == tid);
    match mark.what {
        What::Trap(tid, nr) => match rest.iter().find(end(tid)) {
            Some(end) => end.text(),
            None => format!("{} begins {}", mark.task(tid), call(nr)),
        },
        What::Moved(tid) => match rest.iter().find(end(tid)) {
            Some(end) => end.text() + ", and the bytes that it copied",
            None => format!("{} copies bytes", mark.task(tid)),
        },
        _ => mark.text(),
    }
}

fn call(nr: u64) -> &'static str {
    bloodhound_abi::table::info(nr).map_or("a call without a name", |i| i.name)
}

/// An event of a run, as much of it as a comparison tells.
#[derive(Clone, Copy)]
struct Mark {
    /// Of the run up to the event.
    digest: Digest,
    /// Steps made by then.
    step: u64,
    node: Option<NodeId>,
    at: SimTime,
    what: What,
}

/// What happened.
#[derive(Clone, Copy)]
enum What {
    /// A task made the call with this number.
    Trap(Tid, u64),
    /// It ended with this result.
    Call(Tid, u64, u64),
    /// A call of it copied bytes.
    Moved(Tid),
    /// Something else, by the name of its kind.
    Other(&'static str),
}

impl Mark {
    fn of(moment: &Moment, event: &Event<'_>) -> Mark {
        let what = match event {
            Event::Trap { tid, call, .. } => What::Trap(*tid, call.nr()),
            Event::Call { tid, call, result, .. } => What::Call(*tid, call.nr(), *result),
            Event::Task { tid, told: Told::Moved(_), .. } => What::Moved(*tid),
            other => What::Other(other.kind()),
        };
        let Moment { at, node, step, digest } = *moment;
        Mark { digest, step, node, at, what }
    }

    fn task(&self, tid: Tid) -> String {
        let node = self.node.map_or_else(String::new, |node| format!("node {} ", node.0));
        format!("{node}task {}", tid.number())
    }

    fn text(&self) -> String {
        let at = self.at;
        match (self.what, self.node) {
            (What::Call(tid, nr, result), _) => {
                format!("{} {} = {} at {at}", self.task(tid), call(nr), format_result(result))
            }
            (What::Trap(tid, _) | What::Moved(tid), _) => format!("{} at {at}", self.task(tid)),
            (What::Other(kind), Some(node)) => format!("node {} {kind} at {at}", node.0),
            (What::Other(kind), None) => format!("{kind} at {at}"),
        }
    }

    /// The step that the event belongs to: those between two steps to the second one.
    fn during(&self) -> u64 {
        self.step + u64::from(!matches!(self.what, What::Call(..)))
    }
}

/// Events as they happen.
#[derive(Clone, Default)]
struct Marks(Arc<Mutex<Vec<Mark>>>);

impl Marks {
    fn listener(&self) -> Box<dyn Listener> {
        let sink = self.clone();
        Box::new(move |moment: &Moment, event: &Event<'_>| {
            sink.0.lock().unwrap_or_else(PoisonError::into_inner).push(Mark::of(moment, event));
        })
    }

    fn take(&self) -> Vec<Mark> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The services of a configuration. Every other run boots anew, the others start from the snapshot of the run before: both
/// must agree.
struct Stack {
    session: Arc<Session>,
    chosen: Chosen,
    current: Option<Booted>,
    fresh: bool,
}

/// A worker whose services are up.
struct Booted {
    /// Number of its boot.
    number: u64,
    worker: Worker,
    snapshot: World,
    marks: Marks,
    /// The events of the boot, which every run begins with.
    boot: Arc<Vec<Mark>>,
}

impl Booted {
    fn new(
        session: Arc<Session>,
        chosen: &Chosen,
        number: u64,
        counted: Option<&[CountedLoop]>,
    ) -> Result<Booted, Failure> {
        let mut worker = Worker::new(session, chosen, interrupt())?;
        let marks = Marks::default();
        worker.listen(marks.listener());
        let snapshot = boot(&mut worker, number, counted)?;
        let boot = Arc::new(marks.take());
        Ok(Booted { number, worker, snapshot, marks, boot })
    }
}

/// A boot, with the counted loops of another run if there was one.
fn boot(worker: &mut Worker, number: u64, counted: Option<&[CountedLoop]>) -> Result<World, Failure> {
    let mut decisions = boots::decisions(number);
    if let Some(counted) = counted {
        decisions.set_counted(counted.to_vec());
        worker.trust_log();
    }
    worker.boot(decisions)
}

impl Subject for Stack {
    fn run(&mut self, seed: u64, counted: Option<&[CountedLoop]>) -> Result<Run, Failure> {
        let fresh = self.fresh;
        self.fresh = !fresh;
        let number = boots::boot_of(seed, self.session.plan.boots);
        let Booted { worker, marks, boot, .. } = match &mut self.current {
            Some(booted) if !fresh && booted.number == number => {
                booted.worker.restore(&booted.snapshot);
                booted
            }
            current => {
                // The one before is dropped first: a thread should have one platform.
                *current = None;
                current.insert(Booted::new(self.session.clone(), &self.chosen, number, counted)?)
            }
        };
        if let Some(counted) = counted {
            worker.give_counted(counted);
        }
        let outcome = worker.run_seed(seed, self.session.plan.strategy).map_err(host_failure)?;
        let code = match &outcome.stopped {
            Some(Stopped::Interrupted) => return Err(interrupted()),
            Some(Stopped::Undecided(why)) => {
                let text = format!("seed {seed} cannot be compared: {why}");
                return Err(Failure { code: exit::INCONCLUSIVE, text });
            }
            Some(Stopped::Unsupported(_)) => exit::UNSUPPORTED,
            None => exit::PASS,
        };
        let end = match outcome.stopped {
            Some(Stopped::Unsupported(what)) => Some(format!("unsupported: {what}")),
            _ => None,
        };
        Ok(Run {
            marks: boot.iter().copied().chain(marks.take()).collect(),
            digest: outcome.digest,
            total: outcome.steps,
            virtual_time: outcome.virtual_time,
            end,
            code,
            counted: outcome.decisions.counted.clone(),
        })
    }
}

/// One program, as with `exec`. Its output is not shown: it is part of the digest.
struct Program<'a> {
    single: &'a Single,
    chosen: Chosen,
    /// Standard input, read as the runs want it.
    stdin: &'a RefCell<Option<Kept>>,
}

impl Subject for Program<'_> {
    fn run(&mut self, seed: u64, counted: Option<&[CountedLoop]>) -> Result<Run, Failure> {
        let mut machine = self.single.machine(&self.chosen, seed)?;
        if let Some(counted) = counted {
            machine.give_counted(counted);
        }
        machine.set_interrupt(interrupt());
        let marks = Marks::default();
        machine.listen(marks.listener());
        let mut at = 0;
        let mut stdin = |wanted| {
            let supply = self.stdin.borrow_mut().get_or_insert_with(Kept::standard).supply(at, wanted);
            at += supply.bytes.len();
            supply
        };
        let end = drive(&mut machine, &mut stdin)?;
        let world = &machine.world;
        let code = match &end {
            End::Interrupted => return Err(interrupted()),
            End::Undecided(why) => {
                let text = format!("the runs cannot be compared: {why}");
                return Err(Failure { code: exit::INCONCLUSIVE, text });
            }
            End::Fatal(f) if f.kind == FindingKind::Unsupported => exit::UNSUPPORTED,
            End::NotStarted(..) => exit::ENVIRONMENT,
            _ => exit::PASS,
        };
        Ok(Run {
            marks: marks.take(),
            digest: world.digest.to_string(),
            total: world.steps,
            virtual_time: world.now,
            end: Some(end.text(world)),
            code,
            counted: world.decisions.log().counted.clone(),
        })
    }
}

fn interrupted() -> Failure {
    Failure { code: exit::INTERRUPTED, text: "interrupted".into() }
}
