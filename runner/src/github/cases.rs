//! Regression cases and failures that are gone, in the job summary ([`summary`]).

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{Item, REGRESSION, cut, inline, string};

/// What came of the regression cases, and which failures are gone.
pub(super) fn summary(items: &[Item], result: &Json) -> String {
    let mut out = String::new();
    let cases: Vec<&Item> = items.iter().filter(|item| item.kind == REGRESSION).collect();
    if !cases.is_empty() {
        out.push_str("| regression case | verdict | |\n|---|---|---|\n");
    }
    for item in &cases {
        let mark = match &*item.verdict {
            "passed" => "✅ ",
            "failed" => "❌ ",
            "known" => "",
            _ => "⚠️ ",
        };
        let reason = inline(cut(item.reason.lines().next().unwrap_or_default(), 500));
        let _ = writeln!(out, "| {} | {mark}{} | {reason} |", inline(&item.name), inline(&item.verdict));
    }
    if !cases.is_empty() {
        out.push('\n');
    }
    for gone in result["gone"].as_array().into_iter().flatten() {
        let number = |key: &str| gone[key].as_u64().unwrap_or_default();
        let _ = writeln!(
            out,
            "Gone since the last campaign: {} ({}), failed in {} of {} seeds and in none of {} since; 95 % trust in a fix takes {} more.\n",
            inline(&string(gone, "property")),
            inline(cut(&string(gone, "shape"), 500)),
            number("seeds_failed"),
            number("seeds_looked"),
            number("seeds_without"),
            number("seeds_more"),
        );
    }
    out
}
