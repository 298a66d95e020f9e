//! What all seeds of a campaign gave together.
//!
//! Key types: [`Totals`], [`Found`], [`Unjudged`]. Nothing in them depends on the order in which seeds end, except the order of
//! findings, which [`Totals::sort`] sets right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bloodhound_abi::SimTime;
use bloodhound_faults::Kind;
use bloodhound_sim::faults::Planning;
use bloodhound_sim::scenario::FaultSpec;
use serde::{Deserialize, Serialize};

use super::accounts::Accounts;
use super::record::SeedRecord;
use super::small::Alike;
use crate::corpus::Summary;
use crate::group::Group;
use crate::judge::{Exercise, Judged};
use crate::regress::judge::Judged as JudgedCase;
use crate::regress::ledger::Standing;
use crate::regress::seen::{Gone, Seeds};
use crate::session::{Outcome, Violation};
use crate::share::Share;
use crate::{exit, report};

/// Faults before a violation that a report shows.
const RECENT: usize = 12;

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its number in the campaign: the seed, unless it is a run of a search.
    pub number: u64,
    pub seed: u64,
    /// What it is called.
    pub name: String,
    /// The moment of another run from which it went on; of runs of searches only, which are in no results.
    #[serde(skip)]
    pub branched: Option<SimTime>,
    pub violation: Violation,
    /// Digest of the run.
    pub digest: String,
    /// The faults that the seed drew, and the last ones before the violation.
    pub profile: String,
    pub faults: Vec<String>,
    /// Its directory; or why there is none.
    pub kept: Result<PathBuf, String>,
    /// It was found on a real engine, so that nothing shows it again.
    pub live: bool,
    /// Whether it is news.
    pub standing: Standing,
}

impl Found {
    pub fn new(outcome: &Outcome, violation: &Violation, kept: Result<PathBuf, String>) -> Found {
        let mut faults = report::faults_until(outcome, violation.at);
        faults.drain(..faults.len().saturating_sub(RECENT));
        Found {
            number: outcome.number(),
            seed: outcome.seed,
            name: outcome.name(),
            branched: outcome.numbered.and_then(|numbered| numbered.at),
            violation: violation.clone(),
            digest: outcome.digest.clone(),
            profile: outcome.profile.to_string(),
            faults,
            kept,
            live: outcome.platform.is_none(),
            standing: Standing::New,
        }
    }

    /// What its run is called, without its number.
    pub fn noun(&self) -> &str {
        self.name.split(' ').next().unwrap_or("seed")
    }

    /// The failure that it is one of.
    pub fn group(&self) -> Group {
        Group::of_violation(&self.violation)
    }

    /// Whether it is known, so that the gate does not fail by it.
    pub fn is_known(&self) -> bool {
        matches!(self.standing, Standing::Known(_))
    }

    /// The command that shows it again.
    pub fn replay(&self) -> String {
        match &self.kept {
            Ok(dir) if self.live => format!("{}; what was seen: {}", crate::live::NOTE, dir.display()),
            Err(why) if self.live => {
                format!("{}; what was seen could not be written ({why})", crate::live::NOTE)
            }
            Ok(dir) => format!("replay: bloodhound replay {}", crate::bug::quote(&dir.to_string_lossy())),
            Err(why) if self.branched.is_some() => {
                format!("its files could not be written ({why}); the same search finds it again")
            }
            Err(why) => format!(
                "its files could not be written ({why}); to see it again: bloodhound test --first-seed {} --seeds 1",
                self.seed
            ),
        }
    }
}

/// The findings by the failure that they are one of, none of them empty, in the order of the first ones.
pub fn by_group<'a>(findings: impl IntoIterator<Item = &'a Found>) -> Vec<(Group, Vec<&'a Found>)> {
    let mut groups: Vec<(Group, Vec<&Found>)> = Vec::new();
    for found in findings {
        let of = found.group();
        match groups.iter_mut().find(|(group, _)| *group == of) {
            Some((_, list)) => list.push(found),
            None => groups.push((of, vec![found])),
        }
    }
    groups
}

/// Why a seed that was begun has no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unjudged {
    /// A panic of ours, with its report.
    Bug(String),
    /// Something that is not modelled was needed.
    Unsupported(String),
    /// The host failed.
    Host(String),
    /// The user interrupted.
    Interrupted,
    /// It went on for too long after the end of `--timeout`.
    TimedOut,
    /// A task computed for so long that the run was given up.
    Undecided(String),
}

impl Unjudged {
    /// The exit code that it stands for.
    pub fn code(&self) -> u8 {
        match self {
            Unjudged::Bug(_) => exit::BUG,
            Unjudged::Unsupported(_) => exit::UNSUPPORTED,
            Unjudged::Host(_) => exit::ENVIRONMENT,
            Unjudged::Interrupted => exit::INTERRUPTED,
            Unjudged::TimedOut | Unjudged::Undecided(_) => exit::INCONCLUSIVE,
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        match self {
            Unjudged::Bug(text) => format!("a bug of Bloodhound: {text}"),
            Unjudged::Unsupported(text) => format!("unsupported: {text}"),
            Unjudged::Host(text) => text.clone(),
            Unjudged::Interrupted => "interrupted".to_owned(),
            Unjudged::TimedOut => "stopped because --timeout was over and it did not end".to_owned(),
            Unjudged::Undecided(why) => format!("given up: {why}"),
        }
    }
}

/// Something that went wrong with a campaign as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The exit code that it stands for.
    pub code: u8,
    /// For the user.
    pub text: String,
}

/// What all seeds said about one property.
#[derive(Clone, Debug, Default)]
pub struct OfProperty {
    /// Seeds in which it held to the end, and in how many of these something could have violated it.
    pub held: u64,
    pub exercised: u64,
    /// Seeds without a verdict, and why.
    pub undecided: BTreeMap<u64, String>,
    /// Seeds that ended before it was judged.
    pub unfinished: BTreeSet<u64>,
    /// Seeds that judged it to the end, whatever they said.
    pub judged: Seeds,
    /// What was done altogether; the texts are those of the lowest seed.
    exercise: Option<(u64, Exercise)>,
}

impl OfProperty {
    pub fn add(&mut self, seed: u64, judged: &Judged) {
        if matches!(judged, Judged::Held(_) | Judged::Violated(..)) {
            self.judged.add(seed);
        }
        match judged {
            Judged::Held(exercise) => {
                self.held += 1;
                self.exercised += u64::from(exercise.done());
                self.exercise = Some(match self.exercise.take() {
                    None => (seed, exercise.clone()),
                    Some((other, before)) => {
                        let (tried, worked) =
                            (before.tried + exercise.tried, before.worked + exercise.worked);
                        let texts = if seed < other { exercise.clone() } else { before };
                        (seed.min(other), Exercise { tried, worked, ..texts })
                    }
                });
            }
            Judged::Violated(..) => {}
            Judged::Undecided(why) => {
                self.undecided.insert(seed, why.clone());
            }
            Judged::Unfinished => {
                self.unfinished.insert(seed);
            }
        }
    }

    /// Why nothing could have violated it.
    pub fn why_not_exercised(&self) -> String {
        self.exercise.as_ref().map(|(_, e)| e.why_not()).unwrap_or_default()
    }
}

/// What all seeds gave together.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What its runs are called: `seed`, or `run` of a search.
    pub noun: &'static str,
    /// What the search came to, if it was one.
    pub search: Option<crate::explore::Summary>,
    /// Seeds that were asked for, and how many of them must be judged.
    pub wanted: u64,
    pub least: u64,
    /// Thresholds are not judged here, because others run the rest of the seeds.
    pub is_part: bool,
    /// What it found is not in the store, where others look for it.
    pub is_unshared: bool,
    /// Seeds that ran to an end and were judged there.
    pub judged: u64,
    /// Seeds that were begun and were not.
    pub unjudged: BTreeMap<u64, Unjudged>,
    /// Runs beside the seeds that were judged, and those that were not, by their names.
    pub judged_cases: u64,
    pub unjudged_cases: Vec<(String, Unjudged)>,
    /// Those that violated something that is not known: the run, and what.
    pub failed_cases: Vec<(String, String)>,
    /// What became of the corpus, if there is one.
    pub corpus: Option<Summary>,
    /// In the plan's order.
    pub properties: Vec<OfProperty>,
    pub findings: Vec<Found>,
    /// Seeds that came to the end of their run.
    pub whole: Seeds,
    /// What came of the regression cases.
    pub regressions: Vec<JudgedCase>,
    /// Failures of earlier campaigns that this one did not find.
    pub gone: Vec<Gone>,
    /// The same by how they fail, and what is left of one of each group; empty if nobody has asked for that.
    pub groups: Vec<Alike>,
    /// What belongs to no seed.
    pub troubles: Vec<Trouble>,
    /// What ended the campaign before all seeds were begun.
    pub interrupted: bool,
    pub timed_out: bool,
    pub failed_fast: bool,
    /// Share of the configured kinds of faults that were injected and the least that is wanted, in thousandths.
    pub coverage: u32,
    pub least_coverage: Option<u32>,
    /// What came of the thresholds of code coverage, and what was reached: a line for each service.
    pub code: Vec<crate::coverage::Judged>,
    pub code_summary: Vec<crate::coverage::Line>,
    /// The files of its reports.
    pub code_reports: Vec<std::path::PathBuf>,
    pub steps: u64,
    pub virtual_ns: u64,
    pub operations: u64,
    /// How many faults of each kind began.
    pub faults: BTreeMap<Kind, u64>,
    /// What became of all kinds, and which are configured and never happened.
    pub accounts: Accounts,
    pub silent: Vec<Kind>,
    /// The configured kinds.
    pub configured: Vec<Kind>,
    /// How much of the host's time health checks took.
    pub share: Share,
    /// The real engine on which they ran; `None`: the simulation.
    pub live: Option<String>,
    /// What services asked for outside of the stack (who, what), and in how many seeds.
    pub outside: BTreeMap<(String, String), u64>,
}

impl Totals {
    /// Nothing yet, for so many properties.
    pub fn new(properties: usize, wanted: u64, least: u64) -> Totals {
        let properties = vec![OfProperty::default(); properties];
        Totals { noun: "seed", wanted, least, properties, coverage: 1000, ..Totals::default() }
    }

    /// Seeds that were begun.
    pub fn run(&self) -> u64 {
        self.judged + self.unjudged.len() as u64
    }

    /// Runs beside the seeds that were begun.
    pub fn cases(&self) -> u64 {
        self.judged_cases + self.unjudged_cases.len() as u64
    }

    /// Whether a run is not judged for this reason.
    pub fn has_reason(&self, why: &Unjudged) -> bool {
        let cases = self.unjudged_cases.iter().map(|(_, why)| why);
        self.unjudged.values().chain(cases).any(|other| other == why)
    }

    /// Adds what is recorded of a run beside the seeds, if it was judged.
    pub fn add_case(&mut self, record: &SeedRecord, share: Share) {
        if record.unjudged.is_none() {
            self.judged_cases += 1;
            self.share.add(share);
            self.take(record);
        }
    }

    /// Adds a seed that ran; its findings are added by [`Found::new`].
    pub fn add(&mut self, outcome: &Outcome) {
        self.share.add(outcome.share);
        self.add_record(&SeedRecord::of(outcome));
    }

    /// Adds what is recorded of a seed: the one rule, for a campaign and for shards that are joined. Not the findings in it.
    pub fn add_record(&mut self, record: &SeedRecord) {
        match &record.unjudged {
            None => self.judged += 1,
            Some(why) => {
                self.unjudged.insert(record.seed, why.clone());
                if !record.ran() {
                    return;
                }
            }
        }
        self.take(record);
    }

    /// A seed came to the end of its run, with these violations: where none of them ended it, it says something of all failures of the machine.
    pub fn ended(&mut self, number: u64, violations: &[Violation]) {
        if !self.unjudged.contains_key(&number)
            && violations.iter().all(|violation| violation.index.is_some())
        {
            self.whole.add(number);
        }
    }

    /// What a run said and did.
    fn take(&mut self, record: &SeedRecord) {
        for (property, judged) in self.properties.iter_mut().zip(&record.judged) {
            property.add(record.seed, judged);
        }
        // A record may come from a file of another process, where any numbers may stand.
        self.steps = self.steps.saturating_add(record.steps);
        self.virtual_ns = self.virtual_ns.saturating_add(record.virtual_ns);
        self.operations = self.operations.saturating_add(record.operations);
        for asked in &record.outside {
            *self.outside.entry(asked.clone()).or_default() += 1;
        }
        self.accounts.join(&record.accounts);
        for (kind, count) in &record.faults.0 {
            let known = self.faults.entry(*kind).or_default();
            *known = known.saturating_add(*count);
        }
    }

    /// Adds something that went wrong with the campaign as a whole.
    pub fn trouble(&mut self, code: u8, text: impl Into<String>) {
        self.troubles.push(Trouble { code, text: text.into() });
    }

    /// Puts findings in the order of seeds, and of properties in the plan.
    pub fn sort(&mut self) {
        let key = |f: &Found| (f.number, f.violation.index.is_none(), f.violation.index);
        self.findings.sort_by_key(key);
    }

    /// Measures the share of the configured kinds of faults that were injected at least once.
    pub fn measure_faults(&mut self, spec: &FaultSpec, planning: &Planning) {
        self.measure_kinds(Accounts::configured(spec, planning));
    }

    /// The same for kinds that are known to be configured.
    pub fn measure_kinds(&mut self, configured: Vec<Kind>) {
        (self.silent, self.coverage) = self.accounts.measure(&configured);
        self.configured = configured;
    }

    /// The configured kinds that never happened, for people.
    pub fn silent(&self) -> String {
        self.silent.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    }

    /// Findings of a property of the plan; for `None`, of the machine itself.
    pub fn findings_of(&self, index: Option<usize>) -> impl Iterator<Item = &Found> {
        self.findings.iter().filter(move |f| f.violation.index == index)
    }

    /// The groups of findings of a property of the plan, or of the machine itself.
    pub fn groups_of<'a>(&'a self, findings: &[Found]) -> Vec<&'a Alike> {
        let told = |group: &&Alike| findings.iter().any(|found| group.has(found));
        self.groups.iter().filter(told).collect()
    }

    /// When the first finding was, for the texts of seeds that ended early.
    pub fn ended_early(&self, seed: u64) -> Option<(SimTime, &str)> {
        let found = self.ended_by(seed)?;
        Some((found.violation.at, found.violation.kind.as_str()))
    }

    /// The finding of the machine that ended a seed, if one did.
    pub fn ended_by(&self, seed: u64) -> Option<&Found> {
        self.findings.iter().find(|f| f.number == seed && f.violation.index.is_none())
    }
}
