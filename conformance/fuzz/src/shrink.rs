//! Making a case small that differs: operations are taken away (delta debugging), then arguments are made simpler.

use crate::case::{Case, simpler};
use crate::hunt::{Difference, Lab};
use crate::machine::Machine;

/// The first of these candidates that shows the same difference.
fn first(lab: &Lab, machine: &Machine, key: &str, candidates: &[Case]) -> Option<Difference> {
    for some in candidates.chunks(16) {
        let native = lab.run(&Machine::Native, some);
        let differences = lab.compare(machine, some, &native);
        let found = differences.into_iter().find(|d| d.key == key && lab.confirmed(d));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The smallest case that was found to show a difference with the same key.
pub fn shrink(lab: &Lab, difference: Difference) -> Difference {
    let machine = lab.simulated.iter().find(|m| m.name() == difference.platform);
    let Some(machine) = machine else { return difference };
    let mut best = difference;
    let mut size = best.case.ops.len().div_ceil(2);
    while size > 0 {
        let without = |begin: usize| {
            let mut case = best.case.clone();
            case.ops.drain(begin..(begin + size).min(case.ops.len()));
            case
        };
        // From behind: what comes last has nothing that depends on it.
        let candidates: Vec<Case> = (0..best.case.ops.len()).step_by(size).rev().map(without).collect();
        match first(lab, machine, &best.key, &candidates) {
            Some(smaller) => {
                best = smaller;
                size = size.min(best.case.ops.len());
            }
            None => size /= 2,
        }
    }
    let mut op = 0;
    while op < best.case.ops.len() {
        let with = |text: String| {
            let mut case = best.case.clone();
            case.ops[op] = text;
            case
        };
        let candidates: Vec<Case> = simpler(&best.case.ops[op]).into_iter().map(with).collect();
        match first(lab, machine, &best.key, &candidates) {
            Some(simpler) => best = simpler,
            None => op += 1,
        }
    }
    best
}
