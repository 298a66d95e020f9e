//! Runs the pure parts of the service through thousands of steps of bad weather in virtual time: the correct variant
//! must keep its promises on every seed, and each planted bug must show on some.

mod disk;
mod linearizable;
mod world;

use disk::Rates;
use distributed_kv::config::Bug;
use world::{Weather, World};

/// A bit of everything.
const STORM: Weather = Weather {
    delay: 50_000,
    drop: 10_000,
    crash: 2_000,
    power: 0,
    clock: 0,
    disk: Rates { short: 0, write_error: 0, sync_error: 0 },
    snapshot_entries: 20,
    keys: 5,
    restart: (50, 1500),
    partition: 5_000,
    election: (300, 600),
};

/// Restarts in quick succession.
const CRASHES: Weather = Weather { crash: 6_000, restart: (100, 1000), partition: 8_000, ..STORM };

/// Restarts and cuts so often that hardly anything is done between them, and slow messages.
const VIOLENT: Weather =
    Weather { crash: 10_000, partition: 20_000, restart: (50, 400), delay: 200_000, ..STORM };

/// Power failures, each of which leaves another part of what was not synced.
const OUTAGES: Weather = Weather {
    crash: 0,
    power: 6_000,
    restart: (100, 1000),
    partition: 8_000,
    snapshot_entries: 1000,
    ..STORM
};

/// Disks that write less than they are asked to.
const SHORT_WRITES: Weather = Weather { disk: Rates { short: 50_000, ..NO_FAULTS }, ..OUTAGES };

/// Wall clocks that are set, and leaders that are cut off.
const CLOCKS: Weather = Weather { clock: 20_000, partition: 8_000, ..STORM };

/// All of it.
const BRUTAL: Weather = Weather {
    crash: 2_000,
    power: 4_000,
    clock: 5_000,
    disk: Rates { short: 20_000, write_error: 3_000, sync_error: 5_000 },
    snapshot_entries: 20,
    ..OUTAGES
};

const NO_FAULTS: Rates = Rates { short: 0, write_error: 0, sync_error: 0 };

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
    for seed in 0..120 {
        for weather in [STORM, CRASHES, OUTAGES, SHORT_WRITES, CLOCKS, BRUTAL] {
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

/// On how many of a hundred seeds a bug makes the service answer wrongly.
fn shows(bug: Bug, weather: Weather) -> usize {
    (0..100).filter(|seed| is_lost_write_or_stale_read(&run(*seed, bug, weather).0)).count()
}

#[test]
fn no_fsync_shows() {
    let found = shows(Bug::NoFsync, OUTAGES);
    assert!(found >= 10, "{found}");
    // What a killed process has written stays in the memory of the machine.
    assert_eq!(shows(Bug::NoFsync, CRASHES), 0);
}

#[test]
fn wall_clock_lease_shows() {
    let found = shows(Bug::WallClockLease, CLOCKS);
    assert!(found >= 5, "{found}");
    assert_eq!(shows(Bug::WallClockLease, STORM), 0, "the lease is right as long as the clock is");
    assert_eq!(shows(Bug::WallClockLease, CRASHES), 0, "the lease is right as long as the clock is");
}

#[test]
fn short_write_shows() {
    let found = shows(Bug::ShortWrite, SHORT_WRITES);
    assert!(found >= 10, "{found}");
    assert_eq!(shows(Bug::ShortWrite, CRASHES), 0, "all writes are whole");
}

#[test]
fn forgets_snapshot_shows() {
    let found = shows(Bug::ForgetsSnapshot, Weather { keys: 20, ..CRASHES });
    assert!(found >= 10, "{found}");
}

#[test]
fn drops_last_record_shows() {
    let found = shows(Bug::DropsLastRecord, CRASHES);
    assert!(found >= 5, "{found}");
}

/// It shows on one seed of some hundreds: this is one.
#[test]
fn vote_with_log_shows() {
    assert!(is_lost_write_or_stale_read(&run(127, Bug::VoteWithLog, VIOLENT).0));
    assert!(!is_lost_write_or_stale_read(&run(127, Bug::None, VIOLENT).0));
}

/// It shows on one seed of more than a thousand: this is one.
#[test]
fn clears_vote_shows() {
    assert!(is_lost_write_or_stale_read(&run(1330, Bug::ClearsVote, CRASHES).0));
}
