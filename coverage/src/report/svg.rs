//! The curve of what was covered after each seed, as an SVG within a page.

use std::fmt::Write;

const WIDTH: u64 = 640;
const HEIGHT: u64 = 160;
/// Space for the numbers beside and below the curve.
const LEFT: u64 = 56;
const BOTTOM: u64 = 22;

/// Draws steps of seed and sum, up to `total`, over the seeds from `first` to `last`.
pub(super) fn growth(steps: &[(u64, u64)], (first, last): (u64, u64), total: u64) -> String {
    let span = last.saturating_sub(first).max(1);
    let x = |seed: u64| {
        let within = u128::from(seed.clamp(first, last.max(first)) - first);
        LEFT + u64::try_from(within * u128::from(WIDTH) / u128::from(span)).unwrap_or(0)
    };
    let y = |sum: u64| {
        let height = u128::from(sum.min(total)) * u128::from(HEIGHT) / u128::from(total.max(1));
        HEIGHT - u64::try_from(height).unwrap_or(0) + 8
    };
    // A seed's share shows at once: a step to the right, then up.
    let mut line = String::new();
    let mut before = None;
    for (seed, sum) in steps {
        let (x, y) = (x(*seed), y(*sum));
        match before {
            Some((_, old)) => drop(write!(line, " {x},{old} {x},{y}")),
            None => drop(write!(line, "{x},{y}")),
        }
        before = Some((x, y));
    }
    if let Some((_, y)) = before {
        let _ = write!(line, " {},{y}", LEFT + WIDTH);
    }
    let (width, height) = (LEFT + WIDTH + 8, HEIGHT + 8 + BOTTOM);
    let (floor, right) = (HEIGHT + 8, LEFT + WIDTH);
    let label = HEIGHT + BOTTOM;
    format!(
        "<svg class=\"growth\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"covered after each seed\">\
         <line x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{right}\" y2=\"{floor}\"/><line x1=\"{LEFT}\" y1=\"8\" x2=\"{LEFT}\" y2=\"{floor}\"/>\
         <line class=\"all\" x1=\"{LEFT}\" y1=\"8\" x2=\"{right}\" y2=\"8\"/>\
         <text x=\"{}\" y=\"14\" text-anchor=\"end\">{total}</text><text x=\"{}\" y=\"{floor}\" text-anchor=\"end\">0</text>\
         <text x=\"{LEFT}\" y=\"{label}\">seed {first}</text><text x=\"{right}\" y=\"{label}\" text-anchor=\"end\">seed {last}</text>\
         <polyline points=\"{line}\"/></svg>",
        LEFT - 6,
        LEFT - 6,
    )
}
