//! Estimates against urns of which it is known what is in them.

use super::*;
use bloodhound_decisions::Dice;

/// An urn: each feature is in a run with its probability, in millionths.
struct Urn {
    chances: Vec<u64>,
}

impl Urn {
    fn draw(&self, dice: &mut Dice) -> BTreeSet<u64> {
        let chances = self.chances.iter().enumerate();
        chances.filter(|(_, chance)| dice.below(MILLION) < **chance).map(|(at, _)| at as u64).collect()
    }

    /// The probability that a run has something that `growth` has not.
    fn truth(&self, growth: &Growth) -> f64 {
        let unseen = self.chances.iter().enumerate().filter(|(at, _)| !growth.has(*at as u64));
        1.0 - unseen.map(|(_, chance)| 1.0 - *chance as f64 / 1e6).product::<f64>()
    }
}

/// Few features that are frequent and many that are rare, as those of services.
fn urns() -> [Urn; 3] {
    let zipf = (1..400).map(|rank| MILLION / rank).collect();
    let even = vec![20_000; 150];
    let two = [vec![900_000; 30], vec![300; 500]].concat();
    [zipf, even, two].map(|chances| Urn { chances })
}

fn estimate(growth: &Growth) -> Estimate {
    match growth.estimate() {
        Told::Estimate(estimate) => estimate,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_bound_holds_as_often_as_it_says() {
    for (number, urn) in urns().iter().enumerate() {
        for runs in [20, 60, 300] {
            let (mut held, mut sum, mut truth_sum) = (0, 0.0, 0.0);
            let campaigns = 200;
            for campaign in 0..campaigns {
                let mut dice = Dice::new(campaign * 1000 + runs + number as u64);
                let mut growth = Growth::default();
                for _ in 0..runs {
                    growth.add(&urn.draw(&mut dice));
                }
                let (found, truth) = (estimate(&growth), urn.truth(&growth));
                held += usize::from(truth <= f64::from(found.next_new_at_most) / 1e6);
                sum += f64::from(found.next_new) / 1e6;
                truth_sum += truth;
                let unseen = urn.chances.len() as u64 - growth.features();
                assert!(found.unseen_at_least <= 4 * unseen + 40, "{number} {runs}: {found:?} of {unseen}");
            }
            assert!(held * 100 >= 95 * campaigns as usize, "urn {number}, {runs} runs: held in {held}");
            let (mean, truth) = (sum / campaigns as f64, truth_sum / campaigns as f64);
            assert!((mean - truth).abs() < 0.04, "urn {number}, {runs} runs: {mean} instead of {truth}");
        }
    }
}

#[test]
fn the_unseen_are_at_least_what_is_told_on_average() {
    for urn in urns() {
        let (mut told, mut there) = (0, 0);
        for campaign in 0..100 {
            let mut dice = Dice::new(campaign);
            let mut growth = Growth::default();
            for _ in 0..80 {
                growth.add(&urn.draw(&mut dice));
            }
            told += estimate(&growth).unseen_at_least;
            there += urn.chances.len() as u64 - growth.features();
        }
        assert!(told <= there + there / 10 + 100, "{told} of {there}");
    }
}

#[test]
fn the_bound_of_counts_is_that_of_poissons_distribution() {
    for events in 0..400u64 {
        let mean = at_most(events) as f64 / 1000.0;
        // Probability of so few events or fewer.
        let (mut term, mut sum) = ((-mean).exp(), 0.0);
        for k in 0..=events {
            sum += term;
            term *= mean / (k + 1) as f64;
        }
        assert!(sum <= 0.05 + 1e-9, "{events}: {sum}");
        assert!(sum > 0.03, "{events}: {sum} is too careful");
    }
}

#[test]
fn nothing_is_told_of_too_few_runs_or_of_nothing() {
    let mut growth = Growth::default();
    assert_eq!(growth.estimate(), Told::TooFewRuns(0));
    for run in 0..19 {
        growth.add(&BTreeSet::from([run]));
    }
    assert_eq!(growth.estimate(), Told::TooFewRuns(19));
    growth.add(&BTreeSet::from([99]));
    let all_new = estimate(&growth);
    assert_eq!((all_new.next_new, all_new.next_new_at_most), (1_000_000, 1_000_000));
    let mut nothing = Growth::default();
    for _ in 0..60 {
        nothing.add(&BTreeSet::new());
    }
    assert_eq!((nothing.estimate(), nothing.plateau()), (Told::NoFeatures, None));
}

#[test]
fn a_plateau_is_fifty_runs_and_a_quarter() {
    let mut growth = Growth::default();
    growth.add(&BTreeSet::from([1]));
    for _ in 0..49 {
        growth.add(&BTreeSet::from([1]));
    }
    assert_eq!(growth.plateau(), None, "49 runs");
    growth.add(&BTreeSet::from([1]));
    assert_eq!(growth.plateau(), Some(Plateau { runs: 50, needed: 50 }));
    let found = estimate(&growth);
    // 3 in the 26 of the second half.
    assert_eq!((found.next_new, found.next_new_at_most, found.unseen_at_least), (0, 115_231, 0));
    for _ in 0..348 {
        growth.add(&BTreeSet::from([1]));
    }
    growth.add(&BTreeSet::from([2]));
    for _ in 0..132 {
        growth.add(&BTreeSet::from([1]));
    }
    assert_eq!(growth.plateau(), None, "132 of 532 runs are less than a quarter");
    growth.add(&BTreeSet::from([1]));
    assert_eq!(growth.plateau(), None, "133 of 533");
    growth.add(&BTreeSet::from([1]));
    assert_eq!(growth.plateau(), Some(Plateau { runs: 134, needed: 134 }));
}

#[test]
fn the_curve_is_short_and_ends_with_all_runs() {
    let mut growth = Growth::default();
    for run in 0..100_000u64 {
        growth.add(&BTreeSet::from([run.isqrt()]));
    }
    let curve = growth.curve();
    assert!(curve.len() < 110, "{}", curve.len());
    assert_eq!((curve[0], *curve.last().expect("a point")), ((1, 1), (100_000, 317)));
    assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    assert_eq!(growth.curve(), curve);
}
