//! Code coverage in a job: the shares as a table, and what a pull request's changed lines are covered by.
//!
//! The shares are those of the result. Changed lines are looked up in coverage.json, which `test` has written beside its other reports.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bloodhound_coverage::{Count, command, diff};
use serde_json::Value as Json;

use super::{data, in_workspace, inline, property};

/// Annotations of lines that nothing reached: GitHub shows ten warnings of a step.
const ANNOTATIONS: usize = 10;
/// Files that the summary names.
const FILES: usize = 50;

/// What is known of a pull request's lines.
pub(super) struct Changes {
    covered: diff::Covered,
    root: PathBuf,
}

impl Changes {
    /// Compares the checkout with a revision. `None`: this run has measured nothing.
    ///
    /// # Errors
    /// What git says, or why the coverage cannot be read.
    pub(super) fn read(
        result: &Json,
        out: &Path,
        root: &Path,
        base: &str,
    ) -> Result<Option<Changes>, String> {
        // A file of an earlier run would speak for this one.
        if result["coverage"].as_array().is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        let coverage = command::load(&out.join("coverage").join("coverage.json"))?;
        let covered = diff::covered(&coverage, &diff::of_git(root, base)?);
        Ok(Some(Changes { covered, root: root.to_path_buf() }))
    }

    /// How many of the changed lines with code were reached.
    pub(super) fn count(&self) -> Count {
        self.covered.count
    }

    /// A warning for each stretch of changed lines that no seed reached.
    pub(super) fn annotations(&self) -> String {
        let mut out = String::new();
        let missed = self.covered.missed();
        for (path, first, last) in missed.iter().take(ANNOTATIONS) {
            let file = property(&in_workspace(&self.root.join(path)));
            let message = if first == last {
                "no seed reached this changed line".to_owned()
            } else {
                format!("no seed reached the changed lines {first} to {last}")
            };
            // Writing into a String cannot fail.
            let _ = writeln!(
                out,
                "::warning file={file},line={first},endLine={last},title=Not covered::{}",
                data(&message)
            );
        }
        out
    }

    fn summary(&self) -> String {
        let count = self.covered.count;
        if count.total == 0 {
            return "No changed line has code that counts.\n\n".to_owned();
        }
        let mut out = format!("**Changed lines: {count}**\n\n");
        let all = &self.covered.files;
        out.push_str("| changed file | covered | not covered |\n|---|---|---|\n");
        for (path, lines) in all.iter().take(FILES) {
            let covered = lines.values().filter(|moment| moment.is_some()).count();
            let missed = self.covered.missed().into_iter().filter(|(of, ..)| of == path);
            let missed = missed.map(|(_, a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
            let missed: Vec<String> = missed.collect();
            let _ =
                writeln!(out, "| {} | {covered} of {} | {} |", inline(path), lines.len(), missed.join(", "));
        }
        if all.len() > FILES {
            let _ = writeln!(out, "\nand {} more files", all.len() - FILES);
        }
        out.push('\n');
        out
    }
}

/// The section of the job summary; nothing if no coverage was measured.
pub(super) fn summary(result: &Json, changes: Option<&Changes>) -> String {
    let lines = result["coverage"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows = String::new();
    for line in lines {
        let service = line["service"].as_str().map_or_else(|| "all together".to_owned(), inline);
        let shares = line["units"].as_array().into_iter().flatten().map(|unit| {
            let text = |key: &str| unit[key].as_str().unwrap_or_default().to_owned();
            format!("{} ({} of {} {})", text("percent"), unit["covered"], unit["total"], text("unit"))
        });
        let shares: Vec<String> = shares.map(|share| inline(&share)).collect();
        let share = if shares.is_empty() { "not measured".to_owned() } else { shares.join("<br>") };
        let _ = writeln!(rows, "| {service} | {share} |");
    }
    if rows.is_empty() {
        return String::new();
    }
    let changed = changes.map(Changes::summary).unwrap_or_default();
    format!("### Code coverage\n\n| service | reached |\n|---|---|\n{rows}\n{changed}")
}

/// The share of all services together, for the outputs: of lines, or of whatever is counted.
pub(super) fn share(result: &Json) -> String {
    let all =
        result["coverage"].as_array().and_then(|lines| lines.iter().find(|line| line["service"].is_null()));
    let units = all.and_then(|line| line["units"].as_array()).map(Vec::as_slice).unwrap_or_default();
    let unit = units.iter().find(|unit| unit["unit"] == "lines").or(units.first());
    unit.and_then(|unit| unit["percent"].as_str()).unwrap_or_default().to_owned()
}
