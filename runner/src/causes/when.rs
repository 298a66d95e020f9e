//! When failing became likely: how many futures of the run fail, by the moment from which they are drawn anew ([`search`]).
//!
//! Key types: [`Curve`] (its samples in order of time), [`Jump`] (between which two moments the share of failing futures rises most). Two curves are made: with the faults
//! that were planned, and without those that begin later. Rounds are chosen before they begin: first moments over the whole run and around faults, then more
//! where a curve rises most. That shares rise only is not assumed.

use bloodhound_abi::SimTime;

use super::future::{self, Later};
use super::runs::{Base, End, Runs};
use crate::output;
use crate::session::Failure;

/// Futures of a moment: at first, and at both ends of the jump.
const FEW: u64 = 4;
const MANY: u64 = 12;
/// So many runs are left for the ends of the jump.
const SURE: u32 = 2 * (MANY - FEW) as u32;
/// Moments of the first round, evenly over the run; faults before and after which there is one more each; rounds that refine, each with so many moments.
const COARSE: u64 = 6;
const BETWEEN: u64 = 2;
const FAULTS: usize = 6;
const ROUNDS: usize = 5;
const FINE: u64 = 3;
/// A jump is no shorter than this part of the run.
const SHORTEST: u64 = 2000;
/// A rise by less than this is none, in thousandths.
const LEAST: u64 = 340;

/// The futures of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at: SimTime,
    /// How each of them ends, by its number.
    pub ends: Vec<End>,
}

impl Sample {
    /// How many fail in the same way, of how many of which that is known.
    pub fn share(&self) -> (u64, u64) {
        share(&self.ends)
    }

    /// Those that fail of a thousand.
    pub fn mille(&self) -> u64 {
        let (failing, tried) = self.share();
        (failing * 1000).checked_div(tried).unwrap_or_default()
    }
}

/// How many of some runs fail in the same way, of how many of which that is known.
pub fn share(ends: &[End]) -> (u64, u64) {
    let known = ends.iter().filter(|end| !matches!(end, End::Unknown(_))).count();
    let failing = ends.iter().filter(|end| **end == End::Fails).count();
    (failing as u64, known as u64)
}

/// How the share of failing futures depends on the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    pub later: Later,
    pub samples: Vec<Sample>,
}

impl Curve {
    /// The samples of which anything is known.
    pub fn known(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.share().1 > 0)
    }
}

/// Where a curve rises most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Which curve.
    pub later: Later,
    pub before: Sample,
    pub after: Sample,
}

/// All that is known of when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// With the faults as they were planned, and without later ones; the second one only where there are faults.
    pub curves: Vec<Curve>,
    pub jump: Option<Jump>,
}

impl When {
    /// Whether all futures from the end of the boot on fail, the faults of later left out as well, and at least so many were tried.
    pub fn always(&self) -> bool {
        let first = self.curves.iter().map(|curve| curve.samples.first().map(Sample::share));
        let mut all =
            first.map(|share| share.is_some_and(|(failing, tried)| failing == tried && tried >= FEW));
        !self.curves.is_empty() && all.all(|all| all)
    }

    /// The last moment from which a future passes with the same faults, and its number.
    pub fn latest_passing(&self) -> Option<(SimTime, u64)> {
        let curve = self.curves.iter().find(|curve| curve.later == Later::Stay)?;
        let passing = |sample: &Sample| {
            let nth = sample.ends.iter().position(|end| *end == End::Passes)?;
            Some((sample.at, nth as u64))
        };
        curve.samples.iter().rev().find_map(passing)
    }
}

/// Makes the curves, with at most so many runs.
///
/// # Errors
/// What the host says; interrupted.
pub fn search(runs: &mut Runs<'_>, base: &Base, most: u32) -> Result<When, Failure> {
    let end = runs.made.saturating_add(most);
    let span = base.until.since(base.from).max(1);
    // The last one is the violation itself: whatever made the run fail lies before it.
    let even = |count: u64| (0..=count).map(move |n| base.from.after(1 + span * n / count).min(base.until));
    let begins: Vec<SimTime> = base.faults().map(|planned| planned.begin).collect();
    let around = begins.iter().rev().take(FAULTS).flat_map(|begin| [*begin, begin.after(1)]);
    let mut curves = vec![Curve { later: Later::Stay, samples: Vec::new() }];
    if !begins.is_empty() {
        curves.push(Curve { later: Later::Out, samples: Vec::new() });
    }
    // The one that says more first, should the budget end.
    for curve in curves.iter_mut().rev() {
        let moments: Vec<SimTime> = match curve.later {
            Later::Stay => even(COARSE).collect(),
            // Between two faults there is little to see.
            Later::Out => even(BETWEEN).chain(around.clone()).collect(),
        };
        fill(runs, base, curve, &moments, (FEW, end))?;
    }
    for _ in 0..ROUNDS {
        let Some((at, jump)) = steepest(&curves) else { break };
        let (low, width) = (jump.before.at, jump.after.at.since(jump.before.at));
        if width <= (span / SHORTEST).max(1) {
            break;
        }
        let moments: Vec<SimTime> = (1..=FINE).map(|n| low.after(width * n / (FINE + 1))).collect();
        fill(runs, base, &mut curves[at], &moments, (FEW, end.saturating_sub(SURE)))?;
    }
    // What looks like a jump after a few futures need not be one.
    for _ in 0..2 {
        let Some((at, steep)) = steepest(&curves) else { break };
        fill(runs, base, &mut curves[at], &[steep.before.at, steep.after.at], (MANY, end))?;
    }
    let jump = jump(&curves);
    let tried: u64 =
        curves.iter().flat_map(|curve| &curve.samples).map(|sample| sample.ends.len() as u64).sum();
    output::eprint(&format!("bloodhound: when: {tried} futures after {} runs\n", runs.made));
    Ok(When { curves, jump })
}

/// Brings the samples of moments to so many futures each, while no more runs were made than `end` says.
fn fill(
    runs: &mut Runs<'_>,
    base: &Base,
    curve: &mut Curve,
    moments: &[SimTime],
    (futures, end): (u64, u32),
) -> Result<(), Failure> {
    let mut wanted: Vec<(SimTime, u64)> = Vec::new();
    let mut moments = moments.to_vec();
    moments.sort();
    moments.dedup();
    for at in moments.into_iter().filter(|at| *at <= base.until) {
        let known = curve.samples.iter().find(|sample| sample.at == at).map_or(0, |sample| sample.ends.len());
        wanted.extend((known as u64..futures).map(|nth| (at, nth)));
    }
    // If not all can be run, each moment has some.
    wanted.sort_by_key(|(at, nth)| (*nth, *at));
    wanted.truncate(end.saturating_sub(runs.made) as usize);
    let ends = runs.judge(wanted.iter().map(|(at, nth)| future::future(base, *at, *nth, curve.later)))?;
    for ((at, _), end) in wanted.into_iter().zip(ends) {
        match curve.samples.binary_search_by_key(&at, |sample| sample.at) {
            Ok(place) => curve.samples[place].ends.push(end),
            Err(place) => curve.samples.insert(place, Sample { at, ends: vec![end] }),
        }
    }
    Ok(())
}

/// The two neighbouring moments between which a curve rises most, of all curves; of equal ones the one without later faults, then the last. `None`: there
/// is no rise that is worth the name.
fn steepest(curves: &[Curve]) -> Option<(usize, Jump)> {
    let mut best: Option<(u64, usize, Jump)> = None;
    for (at, curve) in curves.iter().enumerate() {
        let known: Vec<&Sample> = curve.known().collect();
        for two in known.windows(2) {
            let rise = two[1].mille().saturating_sub(two[0].mille());
            if rise >= LEAST && best.as_ref().is_none_or(|(most, ..)| rise >= *most) {
                let (before, after) = (two[0].clone(), two[1].clone());
                best = Some((rise, at, Jump { later: curve.later, before, after }));
            }
        }
    }
    best.map(|(_, at, jump)| (at, jump))
}

/// The jump, if there is one: the narrowest two moments of a curve whose intervals of 95 % have nothing in common, so that it is more than luck; of
/// equally narrow ones the greater rise.
fn jump(curves: &[Curve]) -> Option<Jump> {
    let mut best: Option<((u64, u64), Jump)> = None;
    for curve in curves {
        for (place, before) in curve.samples.iter().enumerate() {
            let rises = |after: &&Sample| interval(before.share()).1 < interval(after.share()).0;
            let Some(after) = curve.samples[place + 1..].iter().find(rises) else { continue };
            let rank = (after.at.since(before.at), 1000 - after.mille().saturating_sub(before.mille()));
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                let (before, after) = (before.clone(), after.clone());
                best = Some((rank, Jump { later: curve.later, before, after }));
            }
        }
    }
    best.map(|(_, jump)| jump)
}

/// Wilson's interval of 95 % for a share, in thousandths. Nothing is known of none.
pub fn interval((failing, tried): (u64, u64)) -> (u64, u64) {
    /// 1.96 squared, in parts of `UNIT`.
    const Z: u128 = 38_416;
    const UNIT: u128 = 10_000;
    let (f, n) = (u128::from(failing), u128::from(tried));
    if n == 0 {
        return (0, 1000);
    }
    let half = (Z * UNIT * f * (n - f) / n + Z * Z / 4).isqrt();
    let (middle, whole) = (f * UNIT + Z / 2, n * UNIT + Z);
    let mille = |value: u128| u64::try_from(value * 1000 / whole).unwrap_or(1000).min(1000);
    (mille(middle.saturating_sub(half)), mille(middle + half))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, failing: usize, passing: usize) -> Sample {
        let ends = [vec![End::Fails; failing], vec![End::Passes; passing]].concat();
        Sample { at: SimTime(at), ends }
    }

    #[test]
    fn intervals_are_those_of_wilson() {
        assert_eq!(interval((0, 0)), (0, 1000));
        // As other implementations have it: 0 of 10 up to 27.8 %, 5 of 10 from 23.7 % to 76.3 %, 10 of 10 from 72.2 %.
        assert_eq!(interval((0, 10)), (0, 277));
        assert_eq!(interval((5, 10)), (236, 763));
        assert_eq!(interval((10, 10)), (722, 1000));
    }

    #[test]
    fn the_steepest_rise_is_found_and_small_ones_are_none() {
        let stay =
            Curve { later: Later::Stay, samples: vec![sample(1, 1, 3), sample(5, 2, 2), sample(9, 1, 3)] };
        assert_eq!(steepest(std::slice::from_ref(&stay)), None);
        let out =
            Curve { later: Later::Out, samples: vec![sample(1, 0, 4), sample(4, 1, 3), sample(5, 4, 0)] };
        let (at, jump) = steepest(&[stay, out]).expect("a jump");
        assert_eq!((at, jump.before.at, jump.after.at), (1, SimTime(4), SimTime(5)));
    }

    #[test]
    fn a_jump_is_more_than_luck_and_the_narrowest() {
        let of = |samples| Curve { later: Later::Stay, samples };
        assert_eq!(jump(&[of(vec![sample(1, 0, 4), sample(2, 2, 2)])]), None, "2 of 4 may be luck");
        assert_eq!(jump(&[of(vec![sample(1, 4, 0), sample(2, 0, 4)])]), None, "it falls");
        let slow = of(vec![sample(1, 0, 9), sample(3, 2, 7), sample(9, 9, 0)]);
        let found = jump(std::slice::from_ref(&slow)).expect("a jump");
        assert_eq!((found.before.at, found.after.at), (SimTime(3), SimTime(9)));
        let quick = of(vec![sample(4, 0, 4), sample(5, 4, 0)]);
        assert_eq!(jump(&[slow, quick]).expect("a jump").after.at, SimTime(5));
    }

    #[test]
    fn what_is_not_known_does_not_count() {
        let mut some = sample(1, 1, 1);
        some.ends.push(End::Unknown("undecided".into()));
        some.ends.push(End::Otherwise("no-crash".into()));
        assert_eq!(some.share(), (1, 3));
        assert_eq!(sample(1, 0, 0).mille(), 0);
    }

    #[test]
    fn always_needs_runs_and_all_of_them() {
        let curve =
            |failing, passing| Curve { later: Later::Stay, samples: vec![sample(1, failing, passing)] };
        let when = |curves| When { curves, jump: None };
        assert!(when(vec![curve(4, 0)]).always());
        for curves in [vec![], vec![curve(3, 0)], vec![curve(4, 1)], vec![curve(4, 0), curve(0, 4)]] {
            assert!(!when(curves).always());
        }
    }

    #[test]
    fn the_latest_passing_future_is_the_nearest() {
        let samples = vec![sample(1, 0, 4), sample(5, 2, 2), sample(9, 4, 0)];
        let when = When { curves: vec![Curve { later: Later::Stay, samples }], jump: None };
        assert_eq!(when.latest_passing(), Some((SimTime(5), 2)));
    }
}
