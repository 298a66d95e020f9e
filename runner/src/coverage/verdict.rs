//! Whether enough of the code was reached ([`judge`]): of all services together, and of single ones.

use bloodhound_coverage::{Count, Coverage, Sums, Totals, Unit, totals, uncovered_functions};
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::campaign::verdict::percent;

/// Functions that a verdict names.
const NAMED: usize = 10;

/// What came of one threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The service; `None`: all together.
    pub service: Option<String>,
    /// What was reached, by unit.
    pub shares: Vec<(Unit, Count)>,
    /// What is wrong with it.
    pub wrong: Option<Wrong>,
}

/// Why a threshold does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Too little was reached.
    TooLow(String),
    /// Something is not measured, so nothing can be said.
    NotMeasured(String),
}

/// What was reached of a service, or of all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The service; `None`: all together.
    pub service: Option<String>,
    /// What was reached, by unit; empty if nothing is measured.
    pub shares: Vec<(Unit, Count)>,
    /// Programs of which nothing is counted.
    pub not_measured: Vec<String>,
    /// What is to be known of the reports of its tools.
    pub notes: Vec<String>,
}

/// What was reached, of all services together and of each.
pub fn summary(coverage: &Coverage) -> Vec<Line> {
    let Totals { all, services } = totals(coverage);
    let line = |service: Option<String>, sums: &Sums| Line {
        shares: sums.units.iter().map(|(unit, count)| (*unit, *count)).collect(),
        not_measured: sums.not_measured.iter().map(|(program, why)| format!("{program}: {why}")).collect(),
        notes: service.as_deref().map_or_else(Vec::new, |service| notes(coverage, service)),
        service,
    };
    let of_services = services.iter().map(|(name, sums)| line(Some(name.clone()), sums));
    std::iter::once(line(None, &all)).chain(of_services).collect()
}

/// What is to be known of the reports of a service's tools.
fn notes(coverage: &Coverage, service: &str) -> Vec<String> {
    let parts = coverage.services.get(service).map(|of| of.parts.iter()).into_iter().flatten();
    // Programs are named by their digests, reports by service and tool.
    let reports = parts.filter(|name| name.starts_with(&format!("{service}: ")));
    let notes = reports
        .filter_map(|name| coverage.parts.get(name))
        .flat_map(|part| part.notes.iter().map(|note| format!("{}: {note}", part.name)));
    notes.collect()
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts: Vec<String> =
            self.shares.iter().map(|(unit, count)| format!("{count} {unit}")).collect();
        if self.shares.is_empty() {
            parts.push("nothing is measured".to_owned());
        }
        if self.service.is_some() {
            parts.extend(self.not_measured.iter().map(|program| format!("not measured: {program}")));
        }
        let of = self.service.as_ref().map_or_else(String::new, |service| format!(" of {service}"));
        write!(f, "coverage{of}: {}", parts.join("; "))?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

/// What is wanted at least, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Of all services together.
    pub all: Option<u32>,
    /// Of single ones, with all their replicas.
    pub services: Vec<(String, u32)>,
}

impl Thresholds {
    /// Those of a configuration, with `all` of all services together.
    pub fn of(settings: &Settings, all: Option<u32>) -> Thresholds {
        let services = settings.config.services.iter().filter(|service| !service.exclude);
        let services =
            services.filter_map(|s| s.threshold.map(|least| (s.service.value.clone(), least))).collect();
        Thresholds { all, services }
    }
}

/// Judges the thresholds.
pub fn judge(thresholds: &Thresholds, coverage: &Coverage) -> Vec<Judged> {
    let Totals { all, services } = totals(coverage);
    let mut judged = Vec::new();
    if let Some(least) = thresholds.all {
        judged.push(one(None, &all, least, coverage));
    }
    for (service, least) in &thresholds.services {
        let mut found = false;
        for (name, sums) in services.iter().filter(|(name, _)| super::is_instance(name, service)) {
            judged.push(one(Some(name), sums, *least, coverage));
            found = true;
        }
        if !found {
            judged.push(one(Some(service), &Sums::default(), *least, coverage));
        }
    }
    judged
}

fn one(service: Option<&str>, sums: &Sums, least: u32, coverage: &Coverage) -> Judged {
    let shares: Vec<(Unit, Count)> = sums.units.iter().map(|(unit, count)| (*unit, *count)).collect();
    let too_low = shares.iter().filter(|(_, count)| !count.reaches(u64::from(least) * 10));
    let too_low: Vec<String> = too_low.map(|(unit, count)| format!("{count} {unit} were reached")).collect();
    let wrong = if !sums.not_measured.is_empty() {
        let programs =
            sums.not_measured.iter().map(|(program, why)| format!("{program} is not measured: {why}"));
        Some(Wrong::NotMeasured(programs.collect::<Vec<_>>().join("\n")))
    } else if shares.is_empty() {
        Some(Wrong::NotMeasured("no program was executed of which anything is counted".to_owned()))
    } else if !too_low.is_empty() {
        let functions = missing(coverage, service);
        Some(Wrong::TooLow(format!(
            "{}, at least {} are wanted{functions}",
            too_low.join(", "),
            percent(least)
        )))
    } else {
        None
    };
    Judged { service: service.map(str::to_owned), shares, wrong }
}

/// Names functions of which nothing was reached.
fn missing(coverage: &Coverage, service: Option<&str>) -> String {
    let mut of = coverage.clone();
    if let Some(parts) = service.and_then(|name| coverage.services.get(name)).map(|service| &service.parts) {
        of.parts.retain(|name, _| parts.contains(name));
    }
    let functions = uncovered_functions(&of);
    if functions.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nnot reached at all:");
    for function in functions.iter().take(NAMED) {
        text.push_str(&match (&*function.path, function.line) {
            ("", _) => format!("\n  {}", function.name),
            (path, 0) => format!("\n  {} ({path})", function.name),
            (path, line) => format!("\n  {} ({path}:{line})", function.name),
        });
    }
    if functions.len() > NAMED {
        text.push_str(&format!("\n  and {} more functions", functions.len() - NAMED));
    }
    text
}
