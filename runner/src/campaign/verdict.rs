//! From what all seeds gave to the exit code and to the cases of the report.

use std::path::Path;

use super::Args;
use super::totals::Totals;
use crate::junit::{Case, Status, Suite};
use crate::session::{Outcome, Session, Violation};
use crate::{exit, report};

pub fn exit_code(args: &Args, seeds: u64, totals: &Totals, coverage: u32) -> u8 {
    if totals.unsupported.is_some() {
        return exit::UNSUPPORTED;
    }
    if !totals.findings.is_empty() {
        return exit::FINDINGS;
    }
    if totals.interrupted {
        return exit::INTERRUPTED;
    }
    if !totals.undecided.is_empty()
        || totals.seeds < seeds.min(1)
        || (totals.seeds < seeds && !totals.timed_out)
    {
        return exit::INCONCLUSIVE;
    }
    if args.coverage_threshold.is_some_and(|t| coverage < t) {
        return exit::COVERAGE;
    }
    exit::PASS
}

/// Kinds of faults that the configuration asks for and that were injected at least once, in thousandths. (Code coverage
/// of the services is not measured yet.)
pub fn coverage(session: &Session, totals: &Totals) -> u32 {
    let f = &session.scenario.faults;
    let kinds = [("crash", f.crash), ("pause", f.pause), ("partition", f.partition), ("reset", f.reset)];
    let asked: Vec<&str> = kinds.iter().filter(|(_, rate)| *rate > 0).map(|(name, _)| *name).collect();
    if asked.is_empty() {
        return 1000;
    }
    let seen = asked.iter().filter(|name| totals.faults.contains_key(**name)).count();
    (seen * 1000 / asked.len()) as u32
}

pub fn suite(session: &Session, totals: &Totals) -> Suite {
    let config = session.plan.config.display().to_string();
    let mut cases: Vec<Case> = Vec::new();
    for p in &session.plan.properties {
        let failing = totals.findings.iter().find(|(_, v, _)| v.property == p.name);
        let status = match (failing, totals.undecided.get(&p.name), totals.seeds) {
            (Some((outcome, violation, dir)), _, _) => failure_status(outcome, violation, dir),
            (None, Some(why), _) => {
                Status::Error { kind: "undecided".into(), message: "no verdict".into(), text: why.clone() }
            }
            (None, None, 0) => Status::Skipped { reason: "no seed was run".into() },
            _ => Status::Pass,
        };
        cases.push(Case {
            name: p.name.clone(),
            kind: p.kind.into(),
            file: Some(config.clone()),
            line: Some(p.line),
            status,
            facts: Vec::new(),
        });
    }
    // Findings of the machine that belong to no property.
    for (outcome, violation, dir) in &totals.findings {
        if session.plan.properties.iter().any(|p| p.name == violation.property)
            || cases.iter().any(|c| c.name == violation.property)
        {
            continue;
        }
        let status = failure_status(outcome, violation, dir);
        cases.push(Case {
            name: violation.property.clone(),
            kind: violation.kind.clone(),
            file: None,
            line: None,
            status,
            facts: Vec::new(),
        });
    }
    let facts =
        vec![("seeds_run".into(), totals.seeds.to_string()), ("plan".into(), session.plan_digest.clone())];
    Suite { name: config, facts, time: None, cases }
}

fn failure_status(outcome: &Outcome, violation: &Violation, dir: &Path) -> Status {
    let first = violation.text.lines().next().unwrap_or_default().to_string();
    let active: Vec<String> = report::faults(&outcome.log)
        .into_iter()
        .zip(outcome.log.iter().filter(|e| matches!(e.what, bloodhound_sim::world::Notice::Fault(_))))
        .filter(|(_, e)| e.at <= violation.at)
        .map(|(line, _)| line)
        .collect();
    let recent = active[active.len().saturating_sub(12)..].join("\n");
    let text = format!(
        "{}\n\nseed: {}\nvirtual time: {}\nfaults of this seed: {}\nlast faults before it:\n{recent}\n\nreplay: bloodhound replay {}\n",
        violation.text,
        outcome.seed,
        violation.at,
        outcome.profile,
        dir.display()
    );
    Status::Fail { kind: violation.kind.clone(), message: format!("seed {}: {first}", outcome.seed), text }
}
