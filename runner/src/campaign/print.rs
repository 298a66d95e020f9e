//! The answer of a campaign, for people and for machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::small::Alike;
use super::totals::{Found, Totals, by_group};
use super::verdict::{Item, Judgement, Verdict, percent};
use crate::judge::thousands;
use crate::platform::Chosen;
use crate::regress::seen::Gone;
use crate::{exit, live, output, redact, regress};

/// Most lines about what is outside of the stack.
const OUTSIDE: usize = 20;

/// Prints the answer.
///
/// # Errors
/// What the host says of standard output, other than that its reader has gone.
pub fn answer(text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let text = if text.starts_with('{') { redact::json(text) } else { redact::text(text) };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e),
        _ => Ok(()),
    }
}

/// Says something on standard error.
pub fn say(text: &str) {
    output::eprint(&format!("bloodhound: {text}\n"));
}

/// What an item begins with. Each line that is not `ok` says why.
fn mark(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "ok",
        Verdict::Failed | Verdict::TooLow(_) | Verdict::Regressed(_) => "FAIL",
        Verdict::Known(_) => "known",
        Verdict::NotRefound(_) => "note",
        Verdict::Troubled(_) => "ERROR",
        Verdict::NotRun(_) => "-",
        Verdict::Undecided(_) | Verdict::NotJudged(_) | Verdict::NotExercised(_) => "????",
    }
}

/// For people.
pub fn human(judgement: &Judgement, totals: &Totals, junit: &Path, took: Duration) -> String {
    let mut out = String::new();
    if let Some(engine) = &totals.live {
        let _ = writeln!(out, "{} (on {engine})\n", live::NOTE);
    }
    for item in &judgement.items {
        // A campaign that went well is no news.
        if !(item.is_campaign() && item.verdict == Verdict::Passed) {
            describe(&mut out, item, totals);
        }
    }
    let faults: Vec<String> = totals.faults.iter().map(|(k, n)| format!("{n} {k}")).collect();
    let millis = took.as_millis();
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "\n{} of {} {}s, {} findings, {} operations, {} s of {} time in {}.{:01} s; faults: {}",
        totals.judged,
        totals.wanted,
        totals.noun,
        totals.findings.len(),
        thousands(totals.operations),
        totals.virtual_ns / 1_000_000_000,
        if totals.live.is_some() { "real" } else { "virtual" },
        millis / 1000,
        millis % 1000 / 100,
        if faults.is_empty() { "none".to_string() } else { faults.join(", ") }
    );
    if let Some(search) = &totals.search {
        let _ = writeln!(out, "{}", search.text());
    }
    for gone in &totals.gone {
        let _ = writeln!(out, "gone since the last campaign: {}", gone.text());
    }
    for line in totals.accounts.lines() {
        let _ = writeln!(out, "{line}");
    }
    if totals.judged > 0 && !totals.silent.is_empty() {
        let _ = writeln!(out, "configured, but never injected: {}", totals.silent());
    }
    if let Some(share) = totals.share.text() {
        let _ = writeln!(out, "{share}");
    }
    for ((who, what), seeds) in totals.outside.iter().take(OUTSIDE) {
        let _ = writeln!(
            out,
            "outside: {who} asked for {what} (in {seeds} {}s): nothing in its networks has it",
            totals.noun
        );
    }
    if totals.outside.len() > OUTSIDE {
        let _ = writeln!(out, "outside: and {} more, see --format json", totals.outside.len() - OUTSIDE);
    }
    for line in totals.corpus.iter().flat_map(|corpus| corpus.lines()) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(least) = totals.least_coverage {
        let share = percent(totals.coverage);
        let _ = writeln!(out, "fault coverage: {share} (at least {} are wanted)", percent(least));
    }
    for line in &totals.code_summary {
        let _ = writeln!(out, "{line}");
    }
    if judgement.code != exit::PASS {
        let meaning = exit::TABLE.iter().find(|(code, _)| *code == judgement.code).map_or("", |(_, m)| m);
        let _ = writeln!(out, "exit code {}: {meaning}", judgement.code);
    }
    let files = totals.code_reports.iter().map(|path| path.display().to_string());
    let files = std::iter::once(junit.display().to_string()).chain(files).collect::<Vec<_>>();
    let _ = writeln!(out, "reports: {}", files.join(", "));
    out
}

fn describe(out: &mut String, item: &Item, totals: &Totals) {
    let kind = if item.line.is_none() && item.verdict == Verdict::Failed {
        "found by the simulation"
    } else {
        &item.kind
    };
    let _ = writeln!(out, "{:<5} {} ({kind})", mark(&item.verdict), item.name);
    for text in reasons(&item.verdict) {
        let _ = writeln!(out, "      {text}");
    }
    for line in item.note.lines() {
        let _ = writeln!(out, "      {line}");
    }
    for (_, group) in by_group(&item.findings) {
        finding(out, group[0]);
        if group.len() > 1 {
            let _ = writeln!(out, "      and {} more {}s", group.len() - 1, group[0].noun());
        }
        for line in totals.groups.iter().filter(|alike| alike.has(group[0])).flat_map(Alike::lines) {
            let _ = writeln!(out, "      {line}");
        }
    }
}

/// One line for each reason: the rest of long ones was said when it happened.
fn reasons(verdict: &Verdict) -> Vec<String> {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    match verdict {
        Verdict::Passed | Verdict::Failed => Vec::new(),
        Verdict::Troubled(list) => list.iter().map(|t| first(&t.text)).collect(),
        Verdict::NotRun(why) => vec![format!("not run: {}", first(why))],
        Verdict::NotExercised(why) => vec![format!("not exercised: {}", first(why))],
        Verdict::Known(why) => vec![first(why)],
        Verdict::TooLow(why) | Verdict::Regressed(why) | Verdict::NotRefound(why) => {
            why.lines().map(str::to_owned).collect()
        }
        Verdict::Undecided(why) | Verdict::NotJudged(why) => vec![first(why)],
    }
}

fn finding(out: &mut String, found: &Found) {
    let standing = found.standing.text();
    let _ = writeln!(out, "      {} at {}{standing}", found.name, found.violation.at);
    for line in found.violation.text.lines() {
        let _ = writeln!(out, "      {line}");
    }
    let _ = writeln!(out, "      {}", found.replay());
}

/// A failure that is gone.
fn gone(gone: &Gone) -> Json {
    json!({
        "property": gone.group.property, "kind": gone.group.kind, "shape": gone.group.shape,
        "seeds_failed": gone.failing, "seeds_looked": gone.run, "seeds_without": gone.clean,
        "seeds_needed": gone.needed, "seeds_more": gone.more(), "next_seed": gone.next,
    })
}

/// For machines.
pub fn json(judgement: &Judgement, totals: &Totals, junit: &Path, chosen: Option<&Chosen>) -> String {
    let findings: Vec<Json> = totals
        .findings
        .iter()
        .map(|found| {
            let v = &found.violation;
            json!({
                "property": v.property, "kind": v.kind, "seed": found.seed, "run": Some(found.number).filter(|_| totals.search.is_some()),
                "branched_at_ns": found.branched.map(|at| at.0), "virtual_time_ns": v.at.0,
                "replay": found.kept.as_ref().ok().filter(|_| !found.live),
                "digest": Some(&found.digest).filter(|_| !found.live), "text": v.text,
                "status": found.standing.word(),
            })
        })
        .collect();
    let item = |i: &Item| {
        json!({
            "name": i.name, "kind": i.kind, "verdict": i.verdict.word(), "reason": i.verdict.reason(),
            "findings": i.findings.len(),
        })
    };
    let all = || judgement.items.iter().filter(|i| !i.is_regression());
    let items = |campaign| all().filter(move |i| i.is_campaign() == campaign).map(item);
    let undecided = judgement.items.iter().filter(|i| matches!(i.verdict, Verdict::Undecided(_)));
    let undecided: serde_json::Map<String, Json> =
        undecided.map(|i| (i.name.clone(), i.verdict.reason().into())).collect();
    let unjudged = totals.unjudged.iter().map(|(seed, why)| json!({"seed": seed, "reason": why.text()}));
    let unsupported = totals.unjudged.iter().find(|(_, why)| why.code() == exit::UNSUPPORTED);
    let result = json!({
        "schema": "bloodhound.test/v1",
        "platform": chosen.map(Chosen::json),
        "live": totals.live.as_ref().map(|engine| json!({ "engine": engine, "replayable": false })),
        "seeds_wanted": totals.wanted,
        "seeds_run": totals.run(),
        "seeds_judged": totals.judged,
        "seeds_not_judged": unjudged.collect::<Vec<_>>(),
        "properties": items(false).collect::<Vec<_>>(),
        "campaign": items(true).collect::<Vec<_>>(),
        "findings": findings,
        "regressions": totals.regressions.iter().map(regress::json).collect::<Vec<_>>(),
        "gone": totals.gone.iter().map(gone).collect::<Vec<_>>(),
        "groups": totals.groups.iter().map(Alike::json).collect::<Vec<_>>(),
        "undecided": undecided,
        "unsupported": unsupported.map(|(seed, why)| format!("{} {seed}: {}", totals.noun, why.text())),
        "interrupted": totals.interrupted,
        "search": totals.search.as_ref().map(crate::explore::Summary::json),
        "steps": totals.steps,
        "virtual_time_ns": totals.virtual_ns,
        "operations": totals.operations,
        "digest_version": bloodhound_abi::digest::VERSION,
        "faults": totals.faults.iter().map(|(kind, count)| (kind.name(), count)).collect::<BTreeMap<_, _>>(),
        "fault_coverage_per_mille": totals.coverage,
        "fault_accounts": totals.accounts.json(),
        "faults_never_injected": totals.silent.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "coverage": totals.code_summary.iter().map(|line| json!({
            "service": line.service,
            "units": line.shares.iter().map(|(unit, count)| json!({
                "unit": unit.name(), "covered": count.covered, "total": count.total,
                "percent": count.percent(),
            })).collect::<Vec<_>>(),
            "not_measured": line.not_measured, "notes": line.notes,
        })).collect::<Vec<_>>(),
        "outside": totals.outside.iter().map(|((service, what), seeds)| json!({
            "service": service, "what": what, "seeds": seeds,
        })).collect::<Vec<_>>(),
        "corpus": totals.corpus.as_ref().map(|corpus| corpus.json()),
        "junit": junit,
        "exit_code": judgement.code,
    });
    format!("{result}\n")
}
