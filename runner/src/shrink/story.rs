//! What is left of a finding, for people: the few faults and operations in order, with their times ([`text`]), and as JSON ([`json`]).

use std::fmt::Write as _;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::{Choice, Concern, Log, Part, Site};
use bloodhound_sim::faults::phase_end;
use bloodhound_sim::notice::{LogEntry, Notice};
use bloodhound_sim::timeline;
use bloodhound_workloads::driver::DriverConfig;
use bloodhound_workloads::http::workload_end;
use bloodhound_workloads::linearizability::describe;

use super::search::Dimension;
use super::times::Window;
use crate::finding::Record;
use crate::report;
use crate::session::{Outcome, Violation};

/// Operations that are listed: the last ones before the violation and those after it.
const OPERATIONS: usize = 40;
/// Choices of packets and of the scheduler that are listed.
const CHOICES: usize = 20;

/// A search that is over.
pub struct Told<'a> {
    pub original: &'a Record,
    pub outcome: &'a Outcome,
    pub violation: &'a Violation,
    pub dimensions: &'a [Dimension],
    pub windows: &'a [Window],
    pub runs: u32,
    /// It is another run than that of the finding, by other draws from the boot on.
    pub drawn_anew: bool,
    /// Why it ended before all was tried, if so.
    pub early: Option<&'static str>,
}

/// The story.
pub fn text(told: &Told<'_>) -> String {
    let Told { original, outcome, violation, dimensions, windows, runs, drawn_anew, early } = told;
    let mut out = format!(
        "{} ({}), seed {}: what is left after {runs} runs\n",
        violation.property, violation.kind, outcome.seed
    );
    for Dimension { name, before, after, minimal } in *dimensions {
        let open = if *minimal { "" } else { ", not all tried" };
        let _ = writeln!(out, "  {name}: {after} of {before}{open}");
    }
    if *drawn_anew {
        let _ = writeln!(out, "  another run that fails in the same way: drawn anew from the boot on");
    }
    if let Some(why) = early {
        let _ = writeln!(out, "  {why}: what is left may be more than is needed");
    }
    let _ =
        writeln!(out, "  violated at {}, originally at {}", violation.at, SimTime(original.virtual_time_ns));
    out.push_str(&ends(outcome));
    let kinds = kinds(outcome);
    if !kinds.is_empty() {
        let _ = writeln!(out, "kinds of faults of packets and operations that stay: {}", kinds.join(", "));
    }
    let _ = writeln!(out, "in order of time:");
    for (_, line) in events(outcome, violation) {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(out, "  {} VIOLATED {} ({})", violation.at, violation.property, violation.kind);
    for line in violation.text.lines() {
        let _ = writeln!(out, "    {}", report::printable(line));
    }
    out.push_str(&times(windows, outcome));
    out.push_str(&choices(&outcome.decisions));
    out
}

/// At which times each of the faults may begin.
fn times(windows: &[Window], outcome: &Outcome) -> String {
    let mut out = String::new();
    for (Window { from, to, open, .. }, what) in described(windows, outcome) {
        let (before, behind) =
            (if open.0 { " or earlier" } else { "" }, if open.1 { " or later" } else { "" });
        let _ = match from == to {
            true => writeln!(out, "  {from}, at no other time that was tried: {what}"),
            false => writeln!(out, "  {from}{before} to {to}{behind}: {what}"),
        };
    }
    if !out.is_empty() {
        out.insert_str(
            0,
            "before its end was cut, it failed as well with one of these faults at another time, as far as was tried:\n",
        );
    }
    out
}

/// The times with what the faults do, in words.
fn described<'a>(windows: &'a [Window], outcome: &'a Outcome) -> impl Iterator<Item = (&'a Window, String)> {
    let name = |node| timeline::name(&outcome.scenario, node);
    windows.iter().filter_map(move |window| {
        let planned = outcome.plan.iter().find(|planned| planned.id == window.id)?;
        Some((window, planned.describe(&name)))
    })
}

/// What the log says of the end of the workload and of the faults.
fn ends(outcome: &Outcome) -> String {
    let said =
        |site| outcome.decisions.overrides.get(&Choice { part: Part::Run, site }).map(|said| said.value);
    let mut out = String::new();
    if let (Some(ends), Some(DriverConfig::Http(config))) = (said(workload_end()), &outcome.scenario.workload)
    {
        let _ = writeln!(
            out,
            "  no operation begins later than {} of {}",
            seconds(ends),
            seconds(config.duration_ns)
        );
    }
    if let Some(ends) = said(phase_end()) {
        let of = seconds(outcome.scenario.fault_time);
        let _ = writeln!(out, "  no fault begins later than {} of {of}", seconds(ends));
    }
    out
}

/// Nanoseconds that are whole milliseconds.
fn seconds(ns: u64) -> String {
    let millis = ns / MILLIS;
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{rest:03}s", millis / 1000),
    }
}

/// The kinds that hit packets and operations, of those that the run still has.
fn kinds(outcome: &Outcome) -> Vec<String> {
    let on = bloodhound_faults::Kind::DECLARATIONS
        .iter()
        .filter(|declaration| !declaration.is_timed() && outcome.has_kind(declaration.kind));
    on.map(|declaration| {
        let hits = outcome.hits.get(&declaration.kind).copied().unwrap_or_default();
        format!("{} ({hits})", declaration.name)
    })
    .collect()
}

/// Faults, lives of services, and operations, up to the violation.
pub fn events(outcome: &Outcome, violation: &Violation) -> Vec<(SimTime, String)> {
    let wanted = |entry: &&LogEntry| {
        let told = matches!(
            entry.what,
            Notice::Fault(_)
                | Notice::FaultEnd(_)
                | Notice::Injected(_)
                | Notice::Target(_)
                | Notice::Name(_)
                | Notice::Survived(_)
                | Notice::Service(_)
                | Notice::OutOfMemory(_)
                | Notice::Phase(_)
        );
        told && entry.at <= violation.at
    };
    let ready = outcome
        .log
        .iter()
        .position(|entry| matches!(entry.what, Notice::Phase(bloodhound_sim::notice::PhaseChange::Ready)));
    let log = outcome.log.iter().skip(ready.unwrap_or(0)).filter(wanted);
    let mut events: Vec<(SimTime, String)> =
        log.map(|entry| (entry.at, timeline::line(entry, &outcome.scenario))).collect();
    let before: Vec<_> =
        outcome.history.operations().iter().filter(|operation| operation.invoke <= violation.at).collect();
    let from = before.len().saturating_sub(OPERATIONS);
    for operation in &before[from..] {
        let key = operation.key.as_ref().map(|key| format!(" {key:?}")).unwrap_or_default();
        let until = operation.complete.map_or("no end".to_owned(), |at| format!("until {at}"));
        let what = report::printable(&describe(operation));
        let line =
            format!("{} client   process {}{key}, {what}, {until}", operation.invoke, operation.process);
        events.push((operation.invoke, line));
    }
    if from > 0 {
        let at = before.get(from).map_or(SimTime::default(), |operation| operation.invoke);
        events.push((at, format!("{at} client   {from} operations before this are not listed")));
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

/// The choices of packets and of the scheduler that are named, and what is still drawn by the seed.
fn choices(log: &Log) -> String {
    let mut out = String::new();
    let named: Vec<String> = log
        .overrides
        .iter()
        .filter(|(choice, _)| choice.part == Part::Run)
        .filter(|(choice, _)| matches!(choice.site.concern(), Concern::Network | Concern::Scheduler))
        .filter(|(choice, _)| !matches!(choice.site, Site::Swarm { .. }))
        .map(|(choice, to)| format!("  {} = {} of {}\n", choice.site, to.value, to.bound))
        .collect();
    if !named.is_empty() {
        let _ = writeln!(out, "choices of packets and of the scheduler that are not plain: {}", named.len());
        out.extend(named.iter().take(CHOICES).map(String::as_str));
        if named.len() > CHOICES {
            let _ = writeln!(out, "  and {} more (decisions.json)", named.len() - CHOICES);
        }
    }
    let drawn: Vec<&str> = [Concern::Network, Concern::Scheduler]
        .iter()
        .filter(|concern| !log.plain.contains(concern))
        .map(|concern| concern.name())
        .collect();
    if !drawn.is_empty() {
        let _ = writeln!(out, "still drawn by the seed: all choices of {}", drawn.join(" and "));
    }
    out
}

/// The same for machines.
pub fn json(told: &Told<'_>, dir: &std::path::Path) -> serde_json::Value {
    let dimensions: Vec<_> = told
        .dimensions
        .iter()
        .map(|d| serde_json::json!({"name": d.name, "before": d.before, "after": d.after, "minimal": d.minimal}))
        .collect();
    let fault_times: Vec<_> = described(told.windows, told.outcome)
        .map(|(Window { from, to, open, .. }, fault)| {
            let (earlier_untried, later_untried) = open;
            serde_json::json!({
                "fault": fault, "from_ns": from.0, "to_ns": to.0,
                "earlier_untried": earlier_untried, "later_untried": later_untried,
            })
        })
        .collect();
    serde_json::json!({
        "schema": "bloodhound.shrink/v1",
        "property": told.violation.property,
        "kind": told.violation.kind,
        "seed": told.outcome.seed,
        "directory": dir,
        "runs": told.runs,
        "drawn_anew": told.drawn_anew,
        "ended_early": told.early,
        "dimensions": dimensions,
        "digest": told.outcome.digest,
        "virtual_time_ns": told.violation.at.0,
        "faults": report::faults(told.outcome),
        "operations": told.outcome.history.operations().len(),
        "fault_times": fault_times,
    })
}
