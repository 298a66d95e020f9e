//! Runs regression cases and says what came of each ([`run_all`], [`Judged`]).
//!
//! A case is run by its log first. Where the service, the configuration or Bloodhound has changed since, that a run passes says little of itself: so its faults and its
//! operations are tried in other schedules as well ([`refind`]). No case passes without a run that was judged to its end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_abi::SimTime;
use bloodhound_abi::digest::VERSION as DIGEST_VERSION;
use bloodhound_decisions::{Decisions, Log, Mode, Part};
use bloodhound_sim::World;

use super::case::Case;
use super::refind::{self, Try};
use crate::boots::{self, Boots};
use crate::campaign::watch::{Lane, Watch};
use crate::group::Group;
use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Stopped, Violation, Worker, host_failure};
use crate::{bug, exit, finding, report};

/// Changed files that are named.
const NAMED: usize = 3;
/// Faults before a violation that are shown.
const RECENT: usize = 12;

/// What came of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fails in the same way.
    Fails,
    /// A run of it fails, but in another way, which is not known.
    FailsOtherwise,
    /// It passes, and what its log names was asked for.
    Passes,
    /// It does not apply any more, and was not found again.
    NotRefound,
    /// No telling; what stands for it as an exit code.
    Open(u8),
}

impl Verdict {
    /// As JSON names it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Fails => "fails",
            Verdict::FailsOtherwise => "fails otherwise",
            Verdict::Passes => "passes",
            Verdict::NotRefound => "not re-found",
            Verdict::Open(_) => "not judged",
        }
    }
}

/// A failing run of a case.
#[derive(Clone, Debug)]
pub struct Shown {
    pub seed: u64,
    pub at: SimTime,
    pub text: String,
    pub digest: String,
    pub faults: Vec<String>,
    /// Its finding; or why there is none.
    pub kept: Result<PathBuf, String>,
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Judged {
    pub name: String,
    pub path: PathBuf,
    pub group: Group,
    pub known: Option<String>,
    pub verdict: Verdict,
    /// Why, in words.
    pub says: String,
    /// Runs that were made.
    pub runs: u32,
    /// What has changed since it was found.
    pub changed: Vec<String>,
    /// How it fails.
    pub shown: Option<Shown>,
}

impl Judged {
    /// Whether the gate fails by it.
    pub fn fails_gate(&self) -> bool {
        match self.verdict {
            Verdict::Fails => self.known.is_none(),
            Verdict::FailsOtherwise => true,
            _ => false,
        }
    }
}

/// Writes the finding of a run of a case: by the session that it ran in, with the schedule that took the place of the configured faults.
pub type Keep<'a> =
    dyn Fn(&Session, Option<&str>, &Outcome, &Violation) -> Result<PathBuf, String> + Sync + 'a;

/// Cases that are to be run.
pub struct Order<'a> {
    pub session: &'a Arc<Session>,
    pub chosen: Chosen,
    pub boots: &'a Boots,
    pub cases: &'a [Case],
    /// All that are there: what they know is no news in a run of another one.
    pub all: &'a [Case],
    /// Most runs in which a case is looked for that has changed.
    pub runs: u32,
    pub jobs: usize,
    pub watch: &'a Watch,
    pub keep: &'a Keep<'a>,
    pub say: &'a (dyn Fn(&str) + Sync),
}

/// Runs all cases; what comes of each, in their order, whatever the number of workers.
///
/// # Errors
/// No thread could be started.
pub fn run_all(order: &Order<'_>) -> Result<Vec<Judged>, Failure> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Results { all: order.cases.iter().map(|_| None).collect(), next: 0 });
    let work = || {
        let lane = order.watch.lane();
        let mut runner = Runner { order, lane, worker: None, booted: None, runs: 0, failing: None };
        while let Some((at, case)) = take(order.cases, &next) {
            let judged = runner.contained(case);
            (order.say)(&line(&judged));
            // A worker that panicked has ended the process (`bug::install`), or was contained.
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.put(at, (judged, runner.failing.take()), order.keep);
        }
    };
    let jobs = order.jobs.clamp(1, order.cases.len().max(1));
    std::thread::scope(|scope| {
        let mut started = 0;
        for _ in 0..jobs {
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(_) => started += 1,
                Err(error) if started == 0 => {
                    return Err(Failure::environment(format!("starting a thread: {error}")));
                }
                // Those that are there do the work.
                Err(_) => break,
            }
        }
        Ok(())
    })?;
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let lost = |case: &Case| open(case, exit::BUG, "it was not run".to_owned());
    let all = results.all.into_iter().zip(order.cases);
    Ok(all.map(|(ended, case)| ended.map_or_else(|| lost(case), |(judged, _)| judged)).collect())
}

/// A failing run of a case, whose finding is to be written.
struct Failing {
    session: Arc<Session>,
    /// What took the place of the configured faults.
    schedule: Option<String>,
    outcome: Outcome,
    violation: Violation,
}

/// What came of the cases so far.
struct Results {
    all: Vec<Option<(Judged, Option<Box<Failing>>)>>,
    /// The findings of so many cases are written.
    next: usize,
}

impl Results {
    /// Takes in what came of a case. Findings are written one after another in the order of the cases, so that their names do not depend on which thread was first.
    fn put(&mut self, at: usize, ended: (Judged, Option<Box<Failing>>), keep: &Keep<'_>) {
        self.all[at] = Some(ended);
        while let Some(Some((judged, failing))) = self.all.get_mut(self.next) {
            if let (Some(shown), Some(failing)) = (&mut judged.shown, failing.take()) {
                let Failing { session, schedule, outcome, violation } = &*failing;
                shown.kept = keep(session, schedule.as_deref(), outcome, violation);
            }
            self.next += 1;
        }
    }
}

fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    cases.get(at).map(|case| (at, case))
}

/// What is said when a case was run.
fn line(judged: &Judged) -> String {
    let known = if judged.known.is_some() { " (known)" } else { "" };
    let first = judged.says.lines().next().unwrap_or_default();
    format!("regression {}{known}: {}: {first}", judged.name, judged.verdict.word())
}

fn open(case: &Case, code: u8, says: String) -> Judged {
    Judged {
        name: case.name.clone(),
        path: case.path.clone(),
        group: case.group.clone(),
        known: case.known.clone(),
        verdict: Verdict::Open(code),
        says,
        runs: 0,
        changed: Vec::new(),
        shown: None,
    }
}

/// Runs cases on a thread.
struct Runner<'a> {
    order: &'a Order<'a>,
    lane: Lane,
    /// With its session.
    worker: Option<(Arc<Session>, Worker)>,
    /// By session and seed of the boot.
    booted: Option<(Arc<Session>, u64, Arc<World>)>,
    /// Runs of the case so far.
    runs: u32,
    /// The run in which it fails.
    failing: Option<Box<Failing>>,
}

/// What a run of a case came to, if that is not all there is to say.
enum Step {
    Over(Box<Judged>),
    /// It passes; how many choices were not asked for as the log has them.
    Passed(Vec<String>),
    /// Nothing is known of it.
    Lost(u8, String),
}

/// What the search in other runs came to.
enum Looked {
    Over(Box<Judged>),
    /// So many runs pass; why others could not be judged, if there were any.
    Passed(u32, Option<String>),
}

/// The beginning of a text, in one line.
fn first_lines(text: &str) -> String {
    text.split_whitespace().take(40).collect::<Vec<_>>().join(" ")
}

impl Runner<'_> {
    fn contained(&mut self, case: &Case) -> Judged {
        (self.runs, self.failing) = (0, None);
        if self.order.watch.is_closed() {
            let (code, why) = match self.order.watch.signalled() {
                true => (exit::INTERRUPTED, "interrupted"),
                false => (exit::INCONCLUSIVE, "--timeout was over before it was run"),
            };
            return open(case, code, why.to_owned());
        }
        let judged = match bug::contain(|| self.judge(case)) {
            Ok(Ok(judged)) => judged,
            Ok(Err(failure)) => open(case, failure.code, failure.text),
            Err(text) => open(case, exit::BUG, format!("a bug of Bloodhound: {text}")),
        };
        if matches!(judged.verdict, Verdict::Open(_)) {
            // Whatever state it is in.
            (self.worker, self.booted) = (None, None);
            self.lane.relieved();
        }
        Judged { runs: self.runs, ..judged }
    }

    fn judge(&mut self, case: &Case) -> Result<Judged, Failure> {
        let session = self.order.session.clone();
        let changed = changes(case, &session)?;
        let mut unfit = match &case.log {
            Err(why) => vec![why.clone()],
            Ok(log) => {
                let mut log = log.clone();
                if !changed.is_empty() {
                    // Loops of another program; those of this one are found again.
                    log.counted.clear();
                }
                let outcome = self.run(&session, log, Mode::Strict)?;
                match self.look(case, &session, None, &outcome, &changed) {
                    Step::Over(judged) => return Ok(*judged),
                    Step::Lost(code, why) => return Ok(Judged { changed, ..open(case, code, why) }),
                    Step::Passed(mut unfit) => {
                        if changed.is_empty() {
                            unfit.insert(0, other_run(case, &outcome));
                        }
                        unfit
                    }
                }
            }
        };
        if let Ok(log) = &case.log {
            unfit.extend(refind::unseen(log));
        }
        let (passed, lost) = match self.refind(case, &session, &changed, &unfit)? {
            Looked::Over(judged) => return Ok(*judged),
            Looked::Passed(passed, lost) => (passed, lost),
        };
        let mut since = since(&changed);
        if let Some(why) = lost {
            since.push_str(&format!(" (not all runs could be judged: {why})"));
        }
        let (verdict, says) = match unfit.first() {
            None => {
                let named = case.log.as_ref().map_or(0, |log| log.overrides.len());
                let says = format!(
                    "it passes: all {named} choices that its log names were asked for, and {passed} other runs with its faults pass as well{since}"
                );
                (Verdict::Passes, says)
            }
            Some(first) => {
                let more = match unfit.len() {
                    1 => String::new(),
                    more => format!(" (and {} more)", more - 1),
                };
                let says = format!(
                    "not re-found in {passed} runs with its faults and operations: it may be fixed, or the case may be out of date; it does not apply \
                     exactly any more{since}: {first}{more}"
                );
                (Verdict::NotRefound, says)
            }
        };
        Ok(Judged { verdict, says, changed, ..open(case, 0, String::new()) })
    }

    /// Looks for the failure in other runs.
    fn refind(
        &mut self,
        case: &Case,
        session: &Arc<Session>,
        changed: &[String],
        unfit: &[String],
    ) -> Result<Looked, Failure> {
        let same_plan = case.found.plan == session.plan_digest;
        let tries = refind::tries(case, same_plan, !unfit.is_empty(), self.order.runs);
        let (mut passed, mut unjudged, mut lost) = (0, 0, None);
        let mut written: Option<Result<Arc<Session>, String>> = None;
        for Try { log, scheduled } in tries {
            let schedule = case.schedule.as_deref().ok().filter(|_| scheduled);
            let of_run = match schedule {
                None => session.clone(),
                Some(text) => {
                    let made =
                        written.get_or_insert_with(|| session.with_faults(&case.path, text).map(Arc::new));
                    match made {
                        Ok(made) => made.clone(),
                        Err(why) => {
                            unjudged += 1;
                            lost = Some((
                                exit::INCONCLUSIVE,
                                format!("its faults do not fit the stack any more:\n{why}"),
                            ));
                            continue;
                        }
                    }
                }
            };
            let outcome = self.run(&of_run, log, Mode::Lenient)?;
            match self.look(case, &of_run, schedule, &outcome, changed) {
                Step::Over(judged) => return Ok(Looked::Over(judged)),
                Step::Passed(_) => passed += 1,
                Step::Lost(code, why) if code == exit::INTERRUPTED || self.lane.is_short() => {
                    return Ok(Looked::Over(Box::new(open(case, code, why))));
                }
                Step::Lost(code, why) => {
                    unjudged += 1;
                    lost = Some((code, why));
                }
            }
        }
        match lost {
            // Where little could be looked at there is no verdict.
            Some((code, why)) if unjudged > passed => {
                let of = format!("{unjudged} of {} other runs could not be judged: {why}", unjudged + passed);
                Ok(Looked::Over(Box::new(open(case, code, of))))
            }
            None if passed == 0 => {
                let text = "there is nothing to look for it with: neither its log nor its faults can be used";
                Ok(Looked::Over(Box::new(open(case, exit::INCONCLUSIVE, text.to_owned()))))
            }
            lost => Ok(Looked::Passed(passed, lost.map(|(_, why)| first_lines(&why)))),
        }
    }

    /// What a run says about the case.
    fn look(
        &mut self,
        case: &Case,
        session: &Arc<Session>,
        schedule: Option<&str>,
        outcome: &Outcome,
        changed: &[String],
    ) -> Step {
        let failing = |violation: &Violation| Failing {
            session: session.clone(),
            schedule: schedule.map(str::to_owned),
            outcome: outcome.clone(),
            violation: violation.clone(),
        };
        let over = |verdict, says: String, violation: &Violation| {
            let (shown, changed) = (Some(shown(outcome, violation)), changed.to_vec());
            Step::Over(Box::new(Judged { verdict, says, shown, changed, ..open(case, 0, String::new()) }))
        };
        if let Some(violation) = case.group.violated(outcome) {
            let since = since(changed);
            let says = match self.runs {
                1 if outcome.digest == case.found.digest => {
                    "it fails as recorded: it is the same run".to_owned()
                }
                1 => format!("it fails as recorded: what its log says fails in the same way{since}"),
                runs => format!("it fails: re-found by its faults and operations in run {runs}{since}"),
            };
            self.failing = Some(Box::new(failing(violation)));
            return over(Verdict::Fails, says, violation);
        }
        match &outcome.stopped {
            Some(Stopped::Interrupted) if self.lane.is_short() => {
                return Step::Lost(exit::INCONCLUSIVE, self.order.watch.budget().text());
            }
            Some(Stopped::Interrupted) => return Step::Lost(exit::INTERRUPTED, "interrupted".into()),
            Some(Stopped::Undecided(why)) => {
                return Step::Lost(exit::INCONCLUSIVE, format!("given up: {why}"));
            }
            Some(Stopped::Unsupported(_)) | None => {}
        }
        let is_known = |group: &Group| self.order.all.iter().any(|c| c.known.is_some() && c.group == *group);
        let other = outcome.violations.iter().find(|violation| !is_known(&Group::of_violation(violation)));
        if let Some(violation) = other {
            let says = format!("a run of it fails in another way: {}", Group::of_violation(violation));
            self.failing = Some(Box::new(failing(violation)));
            return over(Verdict::FailsOtherwise, says, violation);
        }
        if let Some(Stopped::Unsupported(what)) = &outcome.stopped {
            return Step::Lost(exit::UNSUPPORTED, format!("unsupported: {what}"));
        }
        if let Some(why) = case.group.unjudged(&session.plan.properties, &outcome.judged) {
            return Step::Lost(exit::INCONCLUSIVE, why);
        }
        Step::Passed(outcome.divergences.iter().map(ToString::to_string).collect())
    }

    /// Runs a log in a session.
    fn run(&mut self, session: &Arc<Session>, log: Log, mode: Mode) -> Result<Outcome, Failure> {
        let of_session = self.worker.take().filter(|(other, _)| Arc::ptr_eq(other, session));
        let mut worker = match of_session {
            Some((_, worker)) => worker,
            // The one before is gone by now: a thread should have one platform.
            None => Worker::new(session.clone(), &self.order.chosen, self.lane.stop())?,
        };
        let booted = self.boot(&mut worker, session, &log)?;
        worker.restore(&booted);
        self.runs += 1;
        let outcome = worker.run_log(log, mode).map_err(host_failure)?;
        self.worker = Some((session.clone(), worker));
        Ok(outcome)
    }

    /// The stack as it is when the run of a log begins.
    fn boot(
        &mut self,
        worker: &mut Worker,
        session: &Arc<Session>,
        log: &Log,
    ) -> Result<Arc<World>, Failure> {
        if log.overrides.keys().any(|choice| choice.part == Part::Boot) {
            let log = Log { counted: Vec::new(), ..log.clone() };
            return worker.boot(Decisions::new(log, Mode::Strict)).map(Arc::new);
        }
        let number = boots::number(log);
        if Arc::ptr_eq(session, self.order.session) && number < self.order.session.plan.boots {
            return self.order.boots.of(worker, number);
        }
        let same = |(of, seed, _): &&(Arc<Session>, u64, Arc<World>)| {
            Arc::ptr_eq(of, session) && *seed == log.boot_seed
        };
        if let Some((_, _, world)) = self.booted.as_ref().filter(same) {
            return Ok(world.clone());
        }
        let world = Arc::new(worker.boot(Decisions::new(Log::new(log.boot_seed, 0), Mode::Strict))?);
        Ok(self.booted.insert((session.clone(), log.boot_seed, world)).2.clone())
    }
}

/// A failing run, before its finding is written.
fn shown(outcome: &Outcome, violation: &Violation) -> Shown {
    let mut faults = report::faults_until(outcome, violation.at);
    faults.drain(..faults.len().saturating_sub(RECENT));
    Shown {
        seed: outcome.seed,
        at: violation.at,
        text: violation.text.clone(),
        digest: outcome.digest.clone(),
        faults,
        kept: Err("it was not written".into()),
    }
}

/// What has changed since a case was found, for people.
fn changes(case: &Case, session: &Session) -> Result<Vec<String>, Failure> {
    let mut changed = Vec::new();
    let (found, version) = (&case.found, env!("CARGO_PKG_VERSION"));
    if found.bloodhound != version {
        changed.push(format!("Bloodhound ({} then, {version} now)", found.bloodhound));
    }
    if found.digest_version != u64::from(DIGEST_VERSION) {
        changed.push("what digests cover".to_owned());
    }
    if found.plan != session.plan_digest {
        // The files are those of another plan, whose trees have other numbers.
        changed.push("the configuration, the compose files or the environment".to_owned());
        return Ok(changed);
    }
    let files = finding::changed(&session.base, &found.digest, &case.inputs).map_err(|failure| Failure {
        text: format!("{}: {}", case.path.display(), failure.text),
        ..failure
    })?;
    if let Some(more) = files.len().checked_sub(NAMED).filter(|more| *more > 0) {
        changed.push(format!("{} and {more} more files", files[..NAMED].join(", ")));
    } else if !files.is_empty() {
        changed.push(files.join(", "));
    }
    Ok(changed)
}

fn since(changed: &[String]) -> String {
    if changed.is_empty() {
        String::new()
    } else {
        format!(" (changed since it was found: {})", changed.join("; "))
    }
}

/// A run that is another one than the recorded one, though no file that is compared has changed.
fn other_run(case: &Case, outcome: &Outcome) -> String {
    format!(
        "its run is another one (digest {} instead of {}, on {}, found on {}), though configuration and contents of files are the same: something else differs that \
         it saw, or the platform does not trap all that it should",
        outcome.digest,
        case.found.digest,
        outcome.platform.map_or("no platform", |platform| platform.name.as_str()),
        case.found.platform
    )
}

#[cfg(test)]
mod tests;
