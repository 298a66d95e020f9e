//! `bloodhound causes`: when a finding became likely to fail, and which choice made it fail.
//!
//! The failing run is that of the finding, or of what `shrink` has left of it. [`when`] draws the rest of it anew from moments along the run and
//! counts what fails; [`which`] takes out one fault or choice at a time, and [`parting`] bisects between the run and a future of it that passes. What is
//! found is run again ([`watch`]), and told with the events of both sides ([`around`], [`words`], [`tell`]). Everything is a function of the finding and of `--runs`; only `--timeout` depends on the machine.

mod around;
mod future;
mod parting;
mod runs;
mod tell;
mod watch;
mod when;
mod which;
mod words;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_bisect::smallest;
use bloodhound_decisions::{Choice as ChoiceName, Concern, Log, Made, Mode};

use crate::finding::{self, Record, Stored};
use crate::group::Group as Target;
use crate::output::{self, Format};
use crate::platform::Chosen;
use crate::run::fail;
use crate::session::{Failure, Session};
use crate::shrink::pool::Pool;
use crate::shrink::starts::Starts;
use crate::shrink::{OfFinding, Ready, case};
use crate::{cli, exit};

use parting::Parting;
use runs::{Base, End, Runs};
use tell::{Decides, Single, Told};
use watch::Watched;
use which::{Flip, Singles, What};

/// Events within so many ns of the jump are told.
const NEAR: u64 = 100 * MILLIS;
/// The names of the files that are written.
const FILES: [&str; 2] = ["causes.json", "causes.md"];

/// Arguments of `causes`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    of: OfFinding,
    /// Most runs that the search may make, besides those that show its result again
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Begin no runs after so much host time (for example 10m), and tell what is known by then
    #[arg(long, value_parser = cli::duration)]
    timeout: Option<u64>,
    /// Where causes.json and causes.md are written (default: the directory of the finding)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// `bloodhound causes`.
pub fn run(args: &Args) -> u8 {
    causes(args).unwrap_or_else(|failure| fail(&failure))
}

fn causes(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let (Stored { record, log, .. }, source) = finding::least(&args.of.again.finding)?;
    let out = args.out.clone().unwrap_or_else(|| finding::directory_of(&args.of.again.finding).to_path_buf());
    if out.exists() && !out.is_dir() {
        let text = format!("{} is no directory\nhelp: give another place with `--out`", out.display());
        return Err(Failure::usage(text));
    }
    let Ready { session, chosen, interrupt, guard, workers } = args.of.ready(&record)?;
    let deadline = args.timeout.map(|ns| started + Duration::from_nanos(ns));
    let pool = Pool::new(session.clone(), chosen, (interrupt, deadline, guard.budget()), &log, workers)?;
    let target = Target::of(&record);
    output::eprint(&format!("bloodhound: causes of seed {}: {target}\n", record.seed));
    let runs = Runs {
        pool: &pool,
        target,
        properties: &session.plan.properties,
        made: 1,
        budget: args.runs,
        late: false,
        starts: Starts::default(),
        near: None,
    };
    let mut search = Search { session: &session, chosen: &chosen, record: &record, runs };
    let told = search.all(log, source).map_err(|failure| guard.explain(failure))?;
    let (text, json) = (tell::text(&told), tell::json(&told));
    let written = serde_json::to_vec_pretty(&json).map_err(std::io::Error::other).and_then(|json| {
        output::write_file(&out.join(FILES[0]), json)?;
        output::write_file(&out.join(FILES[1]), &text)
    });
    written.map_err(|error| Failure::environment(format!("the causes cannot be written: {error}")))?;
    match args.of.format {
        Format::Json => output::print_json(&json),
        Format::Human => {
            let place = out.join(FILES[1]);
            output::print(&format!("{text}\nwritten: {}\n", place.display()));
        }
    }
    Ok(exit::FINDINGS)
}

/// What a search has found out.
struct Known {
    when: when::When,
    singles: Singles,
    /// What decides, most first.
    flips: Vec<Flip>,
    fewest: Option<(Vec<which::Candidate>, bool)>,
    /// Where a passing future parts from it, or why that is not known; `None`: none passes.
    parting: Option<Result<Parting, String>>,
    plainest: Option<End>,
}

/// A search under way.
struct Search<'a> {
    session: &'a Arc<Session>,
    chosen: &'a Chosen,
    record: &'a Record,
    runs: Runs<'a>,
}

/// What decides most, and where a passing run parts from the failing one, among how many choices, if that is something else.
type Shown = (Option<Decides>, Option<(Decides, usize)>);

impl<'a> Search<'a> {
    fn all(&mut self, log: Log, source: &'static str) -> Result<Told<'a>, Failure> {
        let watched = self.finding(&log)?;
        let is_shrunk = !log.plain.is_empty();
        let (base, reduced) = if is_shrunk { (self.base(watched)?, None) } else { self.reduced(watched)? };
        self.runs.near = Some(base.near());
        let known = self.known(&base)?;
        let runs = self.runs.made;
        let failing = self.again(base.log.clone(), &End::Fails, None)?;
        let (cause, parting) = self.shown(&base, &known)?;
        let Known { when, singles, flips, fewest, plainest, parting: found } = known;
        let fewest = fewest.map(|(set, minimal)| {
            let words = set.iter().map(|one| format!("{} {}", one.at, words::candidate(&failing, one)));
            (words.collect(), minimal)
        });
        let early = match self.runs.late {
            true => Some("the time was over"),
            false => (runs >= self.runs.budget).then_some("the budget of runs was used up"),
        };
        let near = when.jump.as_ref().map(|jump| {
            let from = SimTime(jump.before.at.0.saturating_sub(NEAR));
            around::near(&failing.ran.outcome, from, jump.after.at.after(NEAR))
        });
        let violation = self.runs.target.violated(&failing.ran.outcome);
        Ok(Told {
            record: self.record,
            text: violation.map(|violation| violation.text.clone()).unwrap_or_default(),
            violated: base.until,
            source,
            reduced,
            plainest,
            cause,
            untried: singles.left,
            singles: told_singles(&failing, &singles, &flips),
            fewest,
            parting,
            not_parted: found.and_then(Result::err),
            near: near.unwrap_or_default(),
            when,
            runs,
            early,
        })
    }

    /// Everything that is to be found out, within the budget.
    fn known(&mut self, base: &Base) -> Result<Known, Failure> {
        let runs = &mut self.runs;
        let when = when::search(runs, base, runs.left() * 2 / 5)?;
        let singles = which::singles(runs, base, runs.left() / 2)?;
        let flips = which::weigh(runs, base, &singles)?;
        let fewest = match flips.is_empty() {
            true => which::fewest(runs, base, runs.left() / 2)?,
            false => None,
        };
        let parting = match when.latest_passing() {
            Some(passing) => Some(parting::search(runs, base, passing)?),
            None => None,
        };
        let plainest = match when.always() && runs.left() > 0 {
            true => runs.judge([plainest(base)])?.pop(),
            false => None,
        };
        Ok(Known { when, singles, flips, fewest, parting, plainest })
    }

    /// Shows what decides most, and where a passing run parts from the failing one if that is something else.
    fn shown(&mut self, base: &Base, known: &Known) -> Result<Shown, Failure> {
        let first = known.flips.first();
        let cause = first.map(|flip| self.flip(base, flip)).transpose()?;
        let Some(Ok(found)) = &known.parting else { return Ok((cause, None)) };
        let parting = self.parting(found)?;
        let same = first.is_some_and(|flip| flip.is_of(found.failing.choice));
        // What a client asks decides whether anybody notices, which says less of why it is wrong than a fault without which it is not.
        let notices = found.failing.choice.site.concern() == Concern::Workload;
        let more = match (first, which::weight(&found.with, &found.without)) {
            (Some(flip), Some(weight)) => {
                !notices && flip.weight().is_some_and(|first| weight >= first + which::ABOUT)
            }
            (Some(_), None) => false,
            (None, _) => known.fewest.is_none(),
        };
        Ok(match (same, more) {
            (true, _) => (cause, None),
            (false, true) => (Some(parting), None),
            (false, false) => (cause, Some((parting, found.among))),
        })
    }

    /// Runs the finding again, as a replay does.
    fn finding(&self, log: &Log) -> Result<Watched, Failure> {
        let watched = self.watch(log, Mode::Strict, None)?;
        finding::as_recorded(&watched.ran.outcome, self.record, "explain")?;
        Ok(watched)
    }

    fn watch(&self, log: &Log, mode: Mode, wanted: Option<ChoiceName>) -> Result<Watched, Failure> {
        let watched = watch::watch((self.session, self.chosen), log, mode, wanted)?;
        finding::came_to_an_end(&watched.ran.outcome, "the run")?;
        Ok(watched)
    }

    fn base(&self, watched: Watched) -> Result<Base, Failure> {
        let Watched { ran, choices, .. } = watched;
        let digest = ran.outcome.digest.clone();
        Base::new(ran, choices, &self.runs.target).ok_or_else(|| Failure {
            code: exit::NONDETERMINISM,
            text: format!("the run {digest} does not fail when it is run again"),
        })
    }

    /// The finding with the faults that it needs alone, and with a plain network and schedule if it fails so, too. What was done is told in words.
    fn reduced(&mut self, watched: Watched) -> Result<(Base, Option<String>), Failure> {
        let elements = case::faults(&watched.ran);
        let log = (*watched.ran.outcome.decisions).clone();
        let most = self.runs.left() / 3;
        let kept = smallest(elements.len(), most, |parts| {
            self.runs.fails(parts.iter().map(|part| case::without(&log, &elements, part)))
        })?;
        let (ran, end) = self.runs.look(case::without(&log, &elements, &kept.items))?;
        let mut ran = if end == End::Fails { ran } else { watched.ran };
        let mut plain = Vec::new();
        for concern in [Concern::Network, Concern::Scheduler] {
            let explicit = case::explicit(&ran, &[concern]);
            let all: Vec<ChoiceName> =
                case::departing(&ran, &[concern]).into_iter().map(|(choice, _)| choice).collect();
            let switches = match concern {
                Concern::Scheduler => explicit.switches.clone().unwrap_or_default(),
                _ => Vec::new(),
            };
            let out = case::plain_in_blocks(&all, &switches, usize::MAX);
            if self.runs.left() == 0 {
                break;
            }
            let (less, end) = self.runs.look(case::without(&explicit, &out, &[]))?;
            if end == End::Fails {
                ran = less;
                plain.push(concern.name());
            }
        }
        let open = if kept.minimal { "" } else { ", not all tried" };
        let mut words = format!(
            "First faults were left out: {} of {} stay{open}",
            case::faults(&ran).len(),
            elements.len()
        );
        if !plain.is_empty() {
            words.push_str(&format!("; all choices of {} are plain", plain.join(" and ")));
        }
        words.push_str(". `bloodhound shrink` makes it smaller, and the answer clearer.");
        output::eprint(&format!("bloodhound: {words}\n"));
        let watched = self.watch(&case::settled(&ran), Mode::Strict, None)?;
        match watched.ran.outcome.digest == ran.outcome.digest {
            true => Ok((self.base(watched)?, Some(words))),
            false => {
                Err(finding::differs("the run of what is left", &watched.ran.outcome, &ran.outcome.digest))
            }
        }
    }

    /// Runs a log twice, the second time as a replay does: with the same digest, and the end that is said.
    fn again(&mut self, log: Log, wanted: &End, choice: Option<ChoiceName>) -> Result<Watched, Failure> {
        let (ran, end) = self.runs.look(log)?;
        let watched = self.watch(&case::settled(&ran), Mode::Strict, choice)?;
        let outcome = &watched.ran.outcome;
        let second = End::of(outcome, &self.runs.target, self.runs.properties);
        let same = outcome.digest == ran.outcome.digest && outcome.divergences.is_empty();
        match same && end == *wanted && second == *wanted {
            true => Ok(watched),
            false => Err(finding::differs("a run that was made again", outcome, &ran.outcome.digest)),
        }
    }

    /// Shows that something decides.
    fn flip(&mut self, base: &Base, flip: &Flip) -> Result<Decides, Failure> {
        let candidate = &flip.candidate;
        let made = match &candidate.what {
            What::Choice(made) => Some(*made),
            _ => None,
        };
        let wanted = made.map(|made| made.choice);
        let failing = self.again(base.log.clone(), &End::Fails, wanted)?;
        let passing = self.again(candidate.out_of(base.log.clone()), &End::Passes, wanted)?;
        let values = made
            .map(|made| (words::value(&failing, &made), words::value(&passing, &Made { value: 0, ..made })));
        Ok(Decides {
            what: words::candidate(&failing, candidate),
            at: candidate.at,
            site: wanted.map(|choice| choice.to_string()),
            values,
            with: flip.with.clone(),
            without: flip.without.clone(),
            around: around::around(&failing.ran.outcome, &passing.ran.outcome, candidate.at),
            digests: (failing.ran.outcome.digest, passing.ran.outcome.digest),
        })
    }

    /// Shows where a passing run parts from the failing one.
    fn parting(&mut self, parting: &Parting) -> Result<Decides, Failure> {
        let made = parting.failing;
        let failing = self.again(parting.logs.0.clone(), &End::Fails, Some(made.choice))?;
        let passing = self.again(parting.logs.1.clone(), &End::Passes, Some(made.choice))?;
        let value = match parting.passing {
            Some(value) => words::value(&passing, &Made { value, ..made }),
            None => "it is carried out".into(),
        };
        Ok(Decides {
            what: words::choice(&failing, &made),
            at: parting.at,
            site: Some(made.choice.to_string()),
            values: Some((words::value(&failing, &made), value)),
            with: parting.with.clone(),
            without: parting.without.clone(),
            around: around::around(&failing.ran.outcome, &passing.ran.outcome, parting.at),
            digests: (failing.ran.outcome.digest, passing.ran.outcome.digest),
        })
    }
}

fn told_singles(failing: &Watched, singles: &Singles, flips: &[Flip]) -> Vec<Single> {
    let single = |(candidate, end): &(which::Candidate, End)| {
        let flip = flips.iter().find(|flip| flip.candidate == *candidate);
        Single {
            what: words::candidate(failing, candidate),
            at: candidate.at,
            end: end.clone(),
            weight: flip.map(|flip| (flip.with.clone(), flip.without.clone())),
            is_operation: candidate.is_operation(),
        }
    };
    singles.tried.iter().map(single).collect()
}

/// The run without any fault, delay and other order of tasks.
fn plainest(base: &Base) -> Log {
    let mut log = case::without(&base.log, &case::faults(&base.ran), &[]);
    log.plain = vec![Concern::Scheduler, Concern::Network, Concern::Disk, Concern::Faults];
    log.epochs.clear();
    log.switches = Some(Vec::new());
    let plain = log.plain.clone();
    log.overrides.retain(|choice, to| !plain.contains(&choice.site.concern()) || to.value == 0);
    log
}
