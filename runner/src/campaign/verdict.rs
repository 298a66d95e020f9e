//! The one rule: from what all seeds gave to the verdict on each property, on the campaign itself, and to the exit code.
//!
//! Key types: [`Judgement`], [`Item`], [`Verdict`]. Terminal, JSON, JUnit and the action show the items; the exit code is the
//! first of the items' codes in the order of [`exit::ORDER`], but that findings which did not come into the store that was named are told as a
//! failure of the environment. So a report has a failure or an error exactly when the exit code
//! is not 0.

use std::collections::{BTreeMap, BTreeSet};

use super::totals::{Found, Totals, Trouble};
use crate::coverage::Wrong;
use crate::exit;
use crate::junit::{Case, Status, Suite};
use crate::regress;
use crate::regress::judge::Verdict as OfCase;
use crate::regress::ledger::Standing;
use crate::shard::Title;

/// Seeds that a text lists.
const LISTED: usize = 8;

/// What came of something that is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every seed that ran judged it to the end, and at least one exercised it.
    Passed,
    /// There are findings.
    Failed,
    /// A regression case fails, in these words.
    Regressed(String),
    /// It fails in a way that is marked as known.
    Known(String),
    /// A regression case does not apply any more and was not found again.
    NotRefound(String),
    /// No telling in some seed, and why.
    Undecided(String),
    /// Some seeds ended before it was judged.
    NotJudged(String),
    /// Nothing that was done could have violated it.
    NotExercised(String),
    /// No seed was run.
    NotRun(String),
    /// Less code than wanted was reached, or fewer kinds of faults were injected.
    TooLow(String),
    /// What went wrong with the campaign.
    Troubled(Vec<Trouble>),
}

impl Verdict {
    /// As JSON and reports name it.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed | Verdict::TooLow(_) | Verdict::Regressed(_) => "failed",
            Verdict::Known(_) => "known",
            Verdict::NotRefound(_) => "not re-found",
            Verdict::Undecided(_) => "undecided",
            Verdict::NotJudged(_) => "not judged",
            Verdict::NotExercised(_) => "not exercised",
            Verdict::NotRun(_) => "not run",
            Verdict::Troubled(_) => "error",
        }
    }

    /// Everything but findings in words; empty if it passed.
    pub fn reason(&self) -> String {
        match self {
            Verdict::Passed | Verdict::Failed => String::new(),
            Verdict::Undecided(why)
            | Verdict::NotJudged(why)
            | Verdict::NotExercised(why)
            | Verdict::NotRun(why)
            | Verdict::Regressed(why)
            | Verdict::Known(why)
            | Verdict::NotRefound(why)
            | Verdict::TooLow(why) => why.clone(),
            Verdict::Troubled(list) => list.iter().map(|t| t.text.as_str()).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The exit codes that it stands for.
    fn codes(&self) -> Vec<u8> {
        match self {
            // What kept seeds from being run is told by the campaign's own item, with its code.
            Verdict::Passed | Verdict::NotRun(_) => Vec::new(),
            // They are listed, and for no more.
            Verdict::Known(_) | Verdict::NotRefound(_) => Vec::new(),
            Verdict::Failed | Verdict::Regressed(_) => vec![exit::FINDINGS],
            Verdict::Undecided(_) | Verdict::NotJudged(_) | Verdict::NotExercised(_) => {
                vec![exit::INCONCLUSIVE]
            }
            Verdict::TooLow(_) => vec![exit::COVERAGE],
            Verdict::Troubled(list) => list.iter().map(|t| t.code).collect(),
        }
    }
}

/// Something that is judged.
#[derive(Clone, Debug)]
pub struct Item {
    /// The property; the kind of a finding of the machine; or something about the campaign itself.
    pub name: String,
    /// safety, liveness, invariant; the kind of a finding of the machine; `campaign`.
    pub kind: String,
    /// The line of a property in bloodhound.yaml.
    pub line: Option<u32>,
    /// What came of it.
    pub verdict: Verdict,
    /// What violated it, by rising seed.
    pub findings: Vec<Found>,
    /// What there is to say although it passed.
    pub note: String,
}

impl Item {
    /// Whether it is about the campaign itself.
    pub fn is_campaign(&self) -> bool {
        self.kind == CAMPAIGN
    }

    /// Whether it is a regression case.
    pub fn is_regression(&self) -> bool {
        self.kind == REGRESSION
    }
}

/// What is said of thresholds where only a part of the seeds is run.
const BY_MERGE: &str = "this is a part of a campaign; `bloodhound merge` judges it over all parts";

/// Kind of the items about the campaign itself.
const CAMPAIGN: &str = "campaign";
/// Kind of the items that are regression cases.
const REGRESSION: &str = "regression";

/// Everything that is judged, and the exit code.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Regression cases, properties in the plan's order, then findings of the machine, then the campaign itself.
    pub items: Vec<Item>,
    /// The exit code.
    pub code: u8,
}

impl Judgement {
    /// Judges.
    pub fn of(properties: &[Title], totals: &Totals) -> Judgement {
        let mut items: Vec<Item> = totals.regressions.iter().map(regression).collect();
        items.extend(properties.iter().enumerate().map(|(index, p)| property(index, p, totals)));
        items.extend(machine(totals));
        items.extend(campaign(totals));
        let codes: Vec<u8> = items.iter().flat_map(|item| item.verdict.codes()).collect();
        let code = match exit::first(&codes) {
            // Findings are told by whoever joins all parts. That these cannot be joined must not be taken for that.
            exit::FINDINGS if totals.is_unshared => exit::ENVIRONMENT,
            code => code,
        };
        Judgement { items, code }
    }

    /// As a JUnit suite.
    pub fn suite(&self, config: &str, facts: Vec<(String, String)>) -> Suite {
        let case = |item: &Item| Case {
            name: item.name.clone(),
            kind: item.kind.clone(),
            file: item.line.map(|_| config.to_owned()),
            line: item.line,
            status: status(item),
            facts: Vec::new(),
        };
        Suite { name: config.to_owned(), facts, time: None, cases: self.items.iter().map(case).collect() }
    }
}

fn property(index: usize, property: &Title, totals: &Totals) -> Item {
    let findings: Vec<Found> = totals.findings_of(Some(index)).cloned().collect();
    let of = &totals.properties[index];
    // What is known to end a run early takes nothing from the seeds that go on.
    let by_known = |seed: &u64| totals.ended_by(*seed).is_some_and(Found::is_known);
    let (ended, open): (Vec<u64>, Vec<u64>) = of.unfinished.iter().partition(|seed| by_known(seed));
    let mut unfinished: BTreeMap<u64, String> =
        open.into_iter().map(|seed| (seed, early(seed, totals))).collect();
    unfinished.extend(totals.unjudged.iter().map(|(seed, why)| (*seed, first_line(&why.text()))));
    let verdict = if findings.iter().any(|found| !found.is_known()) {
        Verdict::Failed
    } else if !of.undecided.is_empty() {
        Verdict::Undecided(some_seeds("no verdict", &of.undecided, totals))
    } else if !unfinished.is_empty() {
        Verdict::NotJudged(some_seeds("not judged", &unfinished, totals))
    } else if !findings.is_empty() {
        Verdict::Known(known(&findings, totals))
    } else if of.held == 0 && !ended.is_empty() {
        let early = ended.iter().map(|seed| (*seed, early(*seed, totals))).collect();
        Verdict::NotJudged(some_seeds("not judged", &early, totals))
    } else if of.held == 0 {
        Verdict::NotRun(format!("no {} was run", totals.noun))
    } else if of.exercised == 0 {
        Verdict::NotExercised(of.why_not_exercised())
    } else {
        Verdict::Passed
    };
    let (name, kind) = (property.name.clone(), property.kind.clone());
    Item { name, kind, line: Some(property.line), verdict, findings, note: String::new() }
}

/// A regression case.
fn regression(case: &regress::judge::Judged) -> Item {
    let text = regress::explained(case);
    let (verdict, note) = match (case.verdict, &case.known) {
        (OfCase::Fails, Some(_)) => (Verdict::Known(text), String::new()),
        (OfCase::Fails | OfCase::FailsOtherwise, _) => (Verdict::Regressed(text), String::new()),
        (OfCase::Passes, _) => (Verdict::Passed, text),
        (OfCase::NotRefound, _) => (Verdict::NotRefound(text), String::new()),
        (OfCase::Open(code), _) => {
            let text = format!("the regression case {} has no verdict: {text}", case.name);
            (Verdict::Troubled(vec![Trouble { code, text }]), String::new())
        }
    };
    let (name, kind) = (case.name.clone(), REGRESSION.to_owned());
    Item { name, kind, line: None, verdict, findings: Vec::new(), note }
}

/// What is said of findings that are all known.
fn known(findings: &[Found], totals: &Totals) -> String {
    let cases: BTreeSet<&str> = findings
        .iter()
        .filter_map(|found| match &found.standing {
            Standing::Known(case) => Some(case.as_str()),
            Standing::New | Standing::Seen => None,
        })
        .collect();
    let runs: BTreeSet<u64> = findings.iter().map(|found| found.number).collect();
    let cases: Vec<&str> = cases.into_iter().collect();
    let (run, noun) = (totals.run(), totals.noun);
    format!("known ({}): violated in {} of {run} {noun}s", cases.join(", "), runs.len())
}

/// Why a run ended that was judged and did not come to its end.
fn early(seed: u64, totals: &Totals) -> String {
    match totals.ended_early(seed) {
        Some((at, kind)) => format!("the run ended at {at} with a {kind}"),
        None => "the run ended early".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// `not judged in 3 of 20 seeds (4, 7, 9): why the first was not`.
fn some_seeds(what: &str, seeds: &BTreeMap<u64, String>, totals: &Totals) -> String {
    let why = seeds.values().next().map(String::as_str).unwrap_or_default();
    if totals.wanted == 1 {
        return why.to_owned();
    }
    format!("{what} in {} of {} {}s ({}): {why}", seeds.len(), totals.run(), totals.noun, list(seeds.keys()))
}

fn list<'a>(seeds: impl ExactSizeIterator<Item = &'a u64>) -> String {
    let more = seeds.len().saturating_sub(LISTED);
    let mut words: Vec<String> = seeds.take(LISTED).map(u64::to_string).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

/// Findings of the machine that belong to no property: an item for each kind.
fn machine(totals: &Totals) -> Vec<Item> {
    let mut kinds: BTreeMap<&str, Vec<Found>> = BTreeMap::new();
    for found in totals.findings_of(None) {
        kinds.entry(&found.violation.kind).or_default().push(found.clone());
    }
    let item = |(kind, findings): (&str, Vec<Found>)| {
        let verdict = match findings.iter().all(Found::is_known) {
            true => Verdict::Known(known(&findings, totals)),
            false => Verdict::Failed,
        };
        let (name, note) = (kind.to_owned(), String::new());
        Item { name, kind: kind.to_owned(), line: None, verdict, findings, note }
    };
    kinds.into_iter().map(item).collect()
}

/// The campaign itself: whether all its seeds were judged, and enough faults injected.
fn campaign(totals: &Totals) -> Vec<Item> {
    let troubles = troubles(totals);
    let verdict = if troubles.is_empty() { Verdict::Passed } else { Verdict::Troubled(troubles) };
    let item = |name: &str, verdict| Item {
        name: name.to_owned(),
        kind: CAMPAIGN.to_owned(),
        line: None,
        verdict,
        findings: Vec::new(),
        note: String::new(),
    };
    let mut items = vec![item("seeds", verdict)];
    if let Some(least) = totals.least_coverage {
        let verdict = match totals.coverage {
            _ if totals.is_part => Verdict::NotRun(BY_MERGE.to_owned()),
            _ if totals.judged == 0 => Verdict::NotRun(format!("no {} was judged", totals.noun)),
            share if share >= least => Verdict::Passed,
            share => Verdict::TooLow(format!(
                "{} of the configured kinds of faults were injected, at least {} are wanted",
                percent(share),
                percent(least)
            )),
        };
        items.push(item("fault-coverage", verdict));
    }
    for judged in &totals.code {
        let name = match &judged.service {
            Some(service) => format!("coverage of {service}"),
            None => "coverage".to_owned(),
        };
        let verdict = match &judged.wrong {
            _ if totals.is_part => Verdict::NotRun(BY_MERGE.to_owned()),
            _ if totals.judged == 0 => Verdict::NotRun(format!("no {} was judged", totals.noun)),
            Some(Wrong::TooLow(why)) => Verdict::TooLow(why.clone()),
            Some(Wrong::NotMeasured(why)) => Verdict::NotJudged(why.clone()),
            None => Verdict::Passed,
        };
        items.push(item(&name, verdict));
    }
    items
}

/// Thousandths as people read them.
pub fn percent(share: u32) -> String {
    format!("{}.{}%", share / 10, share % 10)
}

/// What kept seeds from being judged.
fn troubles(totals: &Totals) -> Vec<Trouble> {
    let mut troubles = totals.troubles.clone();
    // One for each reason, with the seeds that it stopped.
    let mut reasons: Vec<(u8, String, Vec<u64>)> = Vec::new();
    for (seed, why) in &totals.unjudged {
        let (code, text) = (why.code(), why.text());
        match reasons.iter_mut().find(|(c, t, _)| *c == code && *t == text) {
            Some((_, _, seeds)) => seeds.push(*seed),
            None => reasons.push((code, text, vec![*seed])),
        }
    }
    troubles.extend(reasons.into_iter().map(|(code, text, seeds)| {
        let (noun, s) = (totals.noun, if seeds.len() == 1 { "" } else { "s" });
        Trouble { code, text: format!("{noun}{s} {} not judged: {text}", list(seeds.iter())) }
    }));
    for (name, why) in &totals.unjudged_cases {
        troubles.push(Trouble { code: why.code(), text: format!("{name} not judged: {}", why.text()) });
    }
    let begun = totals.run();
    if totals.interrupted {
        let text = format!("interrupted: {begun} of {} {}s were begun", totals.wanted, totals.noun);
        troubles.push(Trouble { code: exit::INTERRUPTED, text });
    }
    // Who stops at the first finding, or for another reason that is told, wants no more seeds.
    let explained =
        begun + totals.judged_cases > 0 && totals.failed_fast || !troubles.is_empty() && !totals.timed_out;
    if totals.judged < totals.least && !explained {
        let time = if totals.timed_out { " when --timeout was over" } else { "" };
        let text = format!(
            "{} of {} {}s were judged{time}, at least {} are wanted",
            totals.judged, totals.wanted, totals.noun, totals.least
        );
        troubles.push(Trouble { code: exit::INCONCLUSIVE, text });
    }
    troubles
}

fn status(item: &Item) -> Status {
    let reason = item.verdict.reason();
    let error = |message: String| Status::Error {
        kind: item.verdict.word().replace(' ', "-"),
        message,
        text: reason.clone(),
    };
    match &item.verdict {
        Verdict::Passed => Status::Pass,
        Verdict::NotRun(why) => Status::Skipped { reason: format!("not run: {why}") },
        Verdict::Known(why) | Verdict::NotRefound(why) => Status::Skipped { reason: first_line(why) },
        Verdict::Regressed(why) => {
            Status::Fail { kind: REGRESSION.into(), message: first_line(why), text: why.clone() }
        }
        Verdict::Failed => item.findings.iter().find(|found| !found.is_known()).map_or_else(
            || error("a finding without its text".to_owned()),
            |found| failure(found, item.findings.len()),
        ),
        Verdict::TooLow(why) => {
            let kind = item.name.split(' ').next().unwrap_or_default().to_owned();
            Status::Fail { kind, message: first_line(why), text: why.clone() }
        }
        Verdict::NotExercised(why) => error(format!("not exercised: {why}")),
        Verdict::Undecided(why) | Verdict::NotJudged(why) => error(first_line(why)),
        Verdict::Troubled(_) => error(first_line(&reason)),
    }
}

fn failure(found: &Found, count: usize) -> Status {
    let first = first_line(&found.violation.text);
    let more = if count > 1 { format!("\nand {} more {}s", count - 1, found.noun()) } else { String::new() };
    let text = format!(
        "{}\n\n{}: {}\nvirtual time: {}\nfaults of this seed: {}\nlast faults before it:\n{}{more}\n\n{}\n",
        found.violation.text,
        found.noun(),
        found.name.strip_prefix(found.noun()).unwrap_or(&found.name).trim_start(),
        found.violation.at,
        found.profile,
        found.faults.join("\n"),
        found.replay(),
    );
    Status::Fail { kind: found.violation.kind.clone(), message: format!("{}: {first}", found.name), text }
}

#[cfg(test)]
mod tests;
