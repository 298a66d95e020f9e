//! The tables of an experiment, as Markdown: time to each bug, comparisons with swarm, and what they come to.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::statistics::{a12, mann_whitney, median};
use super::{Cell, SWARM, UNIFORM};

/// A difference counts from here on: the level of the test, and what Vargha and Delaney call a medium effect.
const LEVEL: f64 = 0.01;
const EFFECT: f64 = 0.64;
/// A bug is hard if independent seeds with all faults need more runs than this, in the median.
const HARD: f64 = 20.0;

/// All tables.
pub fn text(cells: &[Cell], budget: f64) -> String {
    let mut out = String::from(
        "| bug | arm | found | processor time to the bug, s (median) | runs (median) | features (median) | p against swarm | A12 against swarm |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for cell in cells {
        let runs: Vec<f64> = cell.campaigns.iter().map(|campaign| campaign.runs as f64).collect();
        let features: Vec<f64> =
            cell.campaigns.iter().filter_map(|campaign| campaign.features).map(|n| n as f64).collect();
        let (p, effect) = match other(cells, cell, SWARM) {
            Some(swarm) if cell.arm != SWARM => {
                let (a, b) = (cell.seconds(), swarm.seconds());
                (format!("{:.4}", mann_whitney(&a, &b)), format!("{:.2}", a12(&a, &b)))
            }
            _ => ("-".to_owned(), "-".to_owned()),
        };
        // Writing to a String does not fail.
        let _ok = writeln!(
            out,
            "| {} | {} | {} of {} | {} | {} | {} | {p} | {effect} |",
            cell.bug,
            cell.arm,
            cell.found(),
            cell.campaigns.len(),
            time(median(&cell.seconds()), budget),
            number(median(&runs)),
            number(median(&features)),
        );
    }
    let _ok = writeln!(
        out,
        "\nA campaign that has not found its bug counts with its whole budget of {budget} s. A12 is how often the arm needs more time than swarm, ties \
         counting half: below 0.5 it is faster.\n"
    );
    let arms: BTreeSet<&str> = cells.iter().map(|cell| cell.arm.as_str()).collect();
    for arm in arms.iter().filter(|arm| ![UNIFORM, SWARM].contains(arm)) {
        let _ok = writeln!(out, "{}", verdict(cells, arm));
    }
    out
}

fn other<'a>(cells: &'a [Cell], cell: &Cell, arm: &str) -> Option<&'a Cell> {
    cells.iter().find(|other| other.bug == cell.bug && other.arm == arm)
}

fn time(median: Option<f64>, budget: f64) -> String {
    match median {
        Some(seconds) if seconds >= budget => format!("more than {budget}"),
        Some(seconds) => format!("{seconds:.1}"),
        None => "-".to_owned(),
    }
}

fn number(median: Option<f64>) -> String {
    median.map_or_else(|| "-".to_owned(), |n| format!("{n:.0}"))
}

/// What an arm comes to, over all bugs.
fn verdict(cells: &[Cell], arm: &str) -> String {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.arm == arm).collect();
    let is_hard = |cell: &Cell| {
        let uniform = other(cells, cell, UNIFORM)?;
        let runs: Vec<f64> = uniform.campaigns.iter().map(|campaign| campaign.runs as f64).collect();
        let late = uniform.found() * 2 < uniform.campaigns.len();
        (late || median(&runs)? > HARD).then_some(uniform)
    };
    let hard: Vec<(&Cell, &Cell)> =
        own.iter().filter_map(|cell| is_hard(cell).map(|uniform| (*cell, uniform))).collect();
    let halved = hard
        .iter()
        .filter(|(cell, uniform)| {
            median(&cell.seconds()) <= median(&uniform.seconds()).map(|seconds| seconds / 2.0)
        })
        .count();
    let slower: Vec<&str> = own
        .iter()
        .filter(|cell| {
            let Some(swarm) = other(cells, cell, SWARM) else { return false };
            let (a, b) = (cell.seconds(), swarm.seconds());
            mann_whitney(&a, &b) < LEVEL && a12(&a, &b) >= EFFECT
        })
        .map(|cell| cell.bug.as_str())
        .collect();
    let compared = own.iter().filter(|cell| other(cells, cell, SWARM).is_some()).count();
    let slower = match (compared, slower.as_slice()) {
        (0, _) => "it was not compared with swarm".to_owned(),
        (_, []) => format!("it is significantly slower than swarm on none of {compared}"),
        (_, slower) => format!("it is significantly slower than swarm on {}", slower.join(", ")),
    };
    format!(
        "- **{arm}**: of {} bugs for which `{UNIFORM}` needs more than {HARD} runs, it needs at most half of the processor time of `{UNIFORM}` on {halved}; \
         {slower} (p < {LEVEL}, A12 at least {EFFECT}).",
        hard.len()
    )
}

#[cfg(test)]
mod tests {
    use super::super::campaign::Campaign;
    use super::*;

    fn cell(arm: &str, seconds: f64, runs: u64) -> Cell {
        let one = |nth: u64| Campaign {
            found: seconds < 60.0,
            seconds: (seconds + nth as f64).min(60.0),
            runs,
            features: Some(9),
        };
        Cell { bug: "b".into(), arm: arm.into(), campaigns: (0..10).map(one).collect() }
    }

    #[test]
    fn a_fast_arm_is_told_as_fast_and_a_slow_one_as_slow() {
        let fast = text(&[cell("random", 40.0, 100), cell("swarm", 20.0, 50), cell("g", 5.0, 10)], 60.0);
        assert!(
            fast.contains("of 1 bugs")
                && fast.contains("on 1; it is significantly slower than swarm on none of 1"),
            "{fast}"
        );
        let slow = text(&[cell("random", 40.0, 100), cell("swarm", 5.0, 50), cell("g", 60.0, 10)], 60.0);
        assert!(slow.contains("on 0; it is significantly slower than swarm on b"), "{slow}");
        assert!(slow.contains("| more than 60 |"), "{slow}");
    }

    #[test]
    fn easy_bugs_and_missing_arms_say_nothing() {
        let easy = text(&[cell("random", 4.0, 10), cell("g", 1.0, 10)], 60.0);
        assert!(easy.contains("of 0 bugs") && easy.contains("it was not compared with swarm"), "{easy}");
    }
}
