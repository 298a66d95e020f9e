//! `coverage json` of coverage.py.

use serde_json::Value;

use super::Report;

/// Reads the report of `coverage json`.
pub(super) fn coverage_py(bytes: &[u8]) -> Result<Report, String> {
    let root: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let files = root.get("files").and_then(Value::as_object).ok_or("it has no \"files\"")?;
    let mut report = Report::default();
    for (name, about) in files {
        let file = report.file(name);
        for (key, covered) in [("executed_lines", true), ("missing_lines", false)] {
            let lines =
                about.get(key).and_then(Value::as_array).ok_or_else(|| format!("{name}: no {key:?}"))?;
            for line in lines {
                file.line(line.as_u64().ok_or_else(|| format!("{name}: {key:?} has {line}"))?, covered);
            }
        }
        // Since coverage.py 7.5.
        for (function, about) in about.get("functions").and_then(Value::as_object).into_iter().flatten() {
            let line = |key: &str| {
                about.get(key).and_then(Value::as_array).and_then(|lines| lines.first()?.as_u64())
            };
            let (executed, missing) = (line("executed_lines"), line("missing_lines"));
            if let Some(first) = executed.into_iter().chain(missing).min().filter(|_| !function.is_empty()) {
                file.function(first, function, executed.is_some());
            }
        }
    }
    Ok(report)
}
