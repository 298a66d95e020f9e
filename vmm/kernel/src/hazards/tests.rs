//! How often operations meet faults of each kind that is asked for, and that no kind changes a draw of another one, for all pairs. What
//! programs see of them is tested in `disk` and beside the calls.

use super::*;
use crate::container::ContainerId;
use crate::ctx::Outside;
use crate::testing::Bench;

/// Five of a hundred.
const RATE: u32 = 50_000_000;

fn asked() -> impl Iterator<Item = Kind> {
    Kind::DECLARATIONS.iter().filter(|declaration| declaration.is_asked()).map(|declaration| declaration.kind)
}

/// Which of so many operations, each of which could meet all of these kinds, meet which.
fn hits(kinds: &[Kind], operations: u32) -> Vec<Vec<Kind>> {
    let mut bench = Bench::new();
    let rates: Rates = kinds.iter().map(|kind| (*kind, RATE)).collect();
    bench.node.container_mut(ContainerId(0)).hazards.set(&Arc::new(rates));
    let tid = bench.tid;
    let mut ctx = Ctx::new(&mut bench.node, tid, Outside::new(&mut bench.base, &mut bench.decisions));
    (0..operations).map(|_| asked().filter(|kind| ctx.hazard(*kind)).collect()).collect()
}

#[test]
fn each_kind_is_met_as_often_as_is_asked_for() {
    let all: Vec<Kind> = asked().collect();
    let hits = hits(&all, 20_000);
    for kind in all {
        let count = hits.iter().filter(|hit| hit.contains(&kind)).count();
        // Five standard deviations, each of 31.
        assert!(count.abs_diff(1_000) < 155, "{kind}: {count} instead of 1000");
    }
}

#[test]
fn no_kind_changes_a_draw_of_another_one() {
    const OPERATIONS: u32 = 300;
    let alone: BTreeMap<Kind, Vec<Vec<Kind>>> =
        asked().map(|kind| (kind, hits(&[kind], OPERATIONS))).collect();
    for first in asked() {
        for second in asked().filter(|second| *second != first) {
            let mut both = hits(&[first, second], OPERATIONS);
            both.iter_mut().for_each(|hit| hit.retain(|kind| *kind == second));
            assert_eq!(both, alone[&second], "{first} beside {second}");
        }
    }
}

#[test]
fn nothing_is_drawn_where_no_rate_is_in_force() {
    let mut bench = Bench::new();
    let before = bench.decisions.trail();
    let tid = bench.tid;
    let mut ctx = Ctx::new(&mut bench.node, tid, Outside::new(&mut bench.base, &mut bench.decisions));
    assert!(asked().all(|kind| !ctx.hazard(kind)));
    assert_eq!(bench.decisions.trail(), before);
    assert!(bench.node.container_mut(ContainerId(0)).hazards.asked.is_empty());
}
