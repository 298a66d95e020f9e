//! The answer of a campaign, for people and for machines.

use std::path::Path;
use std::time::Instant;

use super::Args;
use super::totals::Totals;
use crate::platform::Chosen;
use crate::session::{Outcome, Session, Violation};

pub fn human(
    args: &Args,
    session: &Session,
    out: &Path,
    seeds: u64,
    started: Instant,
    totals: &Totals,
    coverage: u32,
) {
    let secs = started.elapsed().as_millis();
    for p in &session.plan.properties {
        let failing: Vec<_> = totals.findings.iter().filter(|(_, v, _)| v.property == p.name).collect();
        let mark = if !failing.is_empty() {
            "FAIL"
        } else if totals.undecided.contains_key(&p.name) {
            "????"
        } else {
            "ok"
        };
        println!("{mark:<5} {} ({})", p.name, p.kind);
        if let Some(why) = totals.undecided.get(&p.name) {
            println!("      no verdict: {why}");
        }
        if let Some((outcome, violation, dir)) = failing.first() {
            finding(outcome, violation, dir);
            if failing.len() > 1 {
                println!("      and {} more seeds", failing.len() - 1);
            }
        }
    }
    for (outcome, violation, dir) in &totals.findings {
        if session.plan.properties.iter().all(|p| p.name != violation.property) {
            println!("FAIL  {} (found by the simulation)", violation.property);
            finding(outcome, violation, dir);
        }
    }
    if let Some(what) = &totals.unsupported {
        println!("unsupported: {what}");
    }
    let faults: Vec<String> = totals.faults.iter().map(|(k, n)| format!("{n} {k}")).collect();
    println!(
        "\n{} of {seeds} seeds, {} findings, {} operations, {} s of virtual time in {}.{:01} s; faults: {}",
        totals.seeds,
        totals.findings.len(),
        totals.operations,
        totals.virtual_ns / 1_000_000_000,
        secs / 1000,
        secs % 1000 / 100,
        if faults.is_empty() { "none".to_string() } else { faults.join(", ") }
    );
    if let Some(threshold) = args.coverage_threshold {
        println!(
            "coverage of the configured fault kinds: {}.{}% (threshold {}.{}%)",
            coverage / 10,
            coverage % 10,
            threshold / 10,
            threshold % 10
        );
    }
    println!("reports: {}", out.join("junit.xml").display());
}

fn finding(outcome: &Outcome, violation: &Violation, dir: &Path) {
    println!("      seed {} at {}", outcome.seed, violation.at);
    for line in violation.text.lines() {
        println!("      {line}");
    }
    println!("      replay: bloodhound replay {}", dir.display());
}

pub fn json(chosen: &Chosen, out: &Path, seeds: u64, totals: &Totals, coverage: u32, code: u8) {
    let findings: Vec<_> = totals
        .findings
        .iter()
        .map(|(o, v, dir)| {
            serde_json::json!({
                "property": v.property, "kind": v.kind, "seed": o.seed, "virtual_time_ns": v.at.0,
                "replay": dir, "digest": o.digest, "text": v.text,
            })
        })
        .collect();
    let result = serde_json::json!({
        "schema": "bloodhound.test/v1",
        "platform": chosen.json(),
        "seeds_run": totals.seeds,
        "seeds_wanted": seeds,
        "findings": findings,
        "undecided": totals.undecided,
        "unsupported": totals.unsupported,
        "interrupted": totals.interrupted,
        "steps": totals.steps,
        "virtual_time_ns": totals.virtual_ns,
        "operations": totals.operations,
        "faults": totals.faults,
        "coverage_per_mille": coverage,
        "junit": out.join("junit.xml"),
        "exit_code": code,
    });
    println!("{result}");
}
