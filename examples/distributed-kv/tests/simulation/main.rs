//! Runs the pure parts of the service through thousands of steps of bad weather in virtual time: the correct variant
//! must keep its promises on every seed, and each planted bug must show on some.

mod linearizable;
mod world;

use distributed_kv::config::Bug;
use world::{Weather, World};

/// A bit of everything.
const STORM: Weather = Weather {
    delay: 50_000,
    drop: 10_000,
    crash: 2_000,
    restart: (50, 1500),
    partition: 5_000,
    election: (300, 600),
};

/// Restarts in quick succession.
const CRASHES: Weather = Weather { crash: 6_000, restart: (100, 1000), partition: 8_000, ..STORM };

/// Runs one seed: ten seconds of bad weather and two of calm. Returns what went wrong, and how many operations
/// succeeded after the calm began.
fn run(seed: u64, bug: Bug, weather: Weather) -> (Vec<String>, u64) {
    let mut world = World::new(seed, bug, weather, 10_000_000);
    world.run(12_000_000);
    let mut wrong = std::mem::take(&mut world.broken);
    for (key, operations) in &world.history {
        if !linearizable::check(operations) {
            wrong.push(format!("{key} is not linearizable"));
        }
    }
    (wrong, world.succeeded_after_heal)
}

fn is_lost_write_or_stale_read(wrong: &[String]) -> bool {
    wrong.iter().any(|text| text.ends_with("is not linearizable"))
}

#[test]
fn correct_variant_holds() {
    for seed in 0..200 {
        for weather in [STORM, CRASHES] {
            let (wrong, succeeded_after_heal) = run(seed, Bug::None, weather);
            assert!(wrong.is_empty(), "seed {seed}, {weather:?}: {wrong:?}");
            assert!(succeeded_after_heal > 0, "seed {seed}, {weather:?}: no progress after the faults");
        }
    }
}

#[test]
fn stale_read_shows() {
    let found = (0..100).filter(|seed| is_lost_write_or_stale_read(&run(*seed, Bug::StaleRead, STORM).0));
    assert!(found.count() >= 20);
}

#[test]
fn ack_before_commit_shows() {
    let found =
        (0..100).filter(|seed| is_lost_write_or_stale_read(&run(*seed, Bug::AckBeforeCommit, STORM).0));
    assert!(found.count() >= 40);
}

#[test]
fn vote_twice_shows() {
    let runs: Vec<_> = (0..100).map(|seed| run(seed, Bug::VoteTwice, CRASHES).0).collect();
    let two_leaders = runs.iter().filter(|wrong| wrong.iter().any(|text| text.starts_with("term")));
    assert!(two_leaders.count() >= 15);
    assert!(runs.iter().filter(|wrong| is_lost_write_or_stale_read(wrong)).count() >= 5);
}
