//! Tests of the swarm profile; what faults do is tested in `tests/scripted.rs`, the plan in `plan.rs`.

use bloodhound_faults::Swarm;

use super::*;

mod frequencies;
mod limits;
mod volumes;

fn asked() -> FaultSpec {
    let mut spec = Kind::DECLARATIONS.iter().fold(FaultSpec::default(), |spec, declaration| {
        spec.with_rate(declaration.kind, 4_000_000).with_time(declaration.kind, (1_000_000, 2_000_000))
    });
    spec.swarm = true;
    spec
}

fn drawn(spec: &FaultSpec, seed: u64) -> FaultSpec {
    swarm(spec, Epoch::default(), &mut Decisions::seeded(seed))
}

#[test]
fn a_kind_is_off_one_time_in_three_and_else_has_one_of_four_strengths() {
    for declaration in Kind::DECLARATIONS {
        let mut counts = BTreeMap::new();
        for seed in 0..1_200 {
            let profile = drawn(&asked(), seed);
            let setting = profile.get(declaration.kind);
            let strength =
                if declaration.swarm == Swarm::Strength { u64::from(setting.rate) } else { setting.time.1 };
            *counts.entry(strength).or_insert(0u64) += 1;
        }
        let expected: &[(u64, u64)] = match declaration.swarm {
            Swarm::Strength => {
                &[(0, 400), (1_000_000, 200), (4_000_000, 200), (8_000_000, 200), (16_000_000, 200)]
            }
            Swarm::Coin => &[(0, 600), (2_000_000, 600)],
            Swarm::Always => &[(2_000_000, 1_200)],
        };
        assert_eq!(counts.len(), expected.len(), "{}: {counts:?}", declaration.name);
        for (strength, count) in expected {
            assert!(
                counts[strength].abs_diff(*count) < 5 * count.isqrt(),
                "{}: {counts:?}",
                declaration.name
            );
        }
    }
}

#[test]
fn a_kind_that_is_not_asked_for_changes_no_other_and_stays_off() {
    for seed in 0..50 {
        let whole = drawn(&asked(), seed);
        for left_out in Kind::DECLARATIONS {
            let mut spec = asked();
            spec.switch_off(left_out.kind);
            let mut expected = whole.clone();
            expected.switch_off(left_out.kind);
            assert_eq!(drawn(&spec, seed), expected, "{}", left_out.name);
        }
    }
}

#[test]
fn without_swarm_a_seed_has_what_is_written() {
    let mut spec = asked();
    spec.swarm = false;
    assert_eq!(drawn(&spec, 3), spec);
}
