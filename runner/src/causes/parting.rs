//! At which choice a passing run parts from the failing one ([`search`]).
//!
//! Between the two lie runs that are the same as the failing one up to one of its choices, and drawn as the passing one after it. Of two of them that follow one
//! another, one that passes and one that fails are found by bisection; they differ in one choice ([`Parting`]). That runs between them do not fail
//! monotonously does no harm: there is such a pair in any case.

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Log, Made, Override};

use super::future;
use super::runs::{Base, End, Runs};
use super::which::{FUTURES, OTHERS};
use crate::output;
use crate::session::Failure;

/// So many parts a round makes of what is left.
const PARTS: usize = 4;

/// The choice at which a passing run parts from the failing one, which both have made otherwise; all choices before are the same, and all behind are drawn
/// by the same seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    pub at: SimTime,
    /// In the failing run, and what the passing one has instead; `None`: it does not come to it.
    pub failing: Made,
    pub passing: Option<u64>,
    /// The failing run and the passing one.
    pub logs: (Log, Log),
    /// Among how many choices it was found.
    pub among: usize,
    /// How futures from right behind it end, with its value and with the other one.
    pub with: Vec<End>,
    pub without: Vec<End>,
}

/// Bisects between the failing run and its future `nth` from `at` on, which passes. Without a result: why.
///
/// # Errors
/// What the host says; interrupted.
pub fn search(
    runs: &mut Runs<'_>,
    base: &Base,
    (at, nth): (SimTime, u64),
) -> Result<Result<Parting, String>, Failure> {
    let first = base.choices.partition_point(|(time, _)| *time < at);
    let last = base.choices.partition_point(|(time, _)| *time <= base.until);
    if first == last {
        return Ok(Err("there is no choice between them".into()));
    }
    let ends = runs.judge([first, last].map(|kept| future::after(base, kept, nth)))?;
    if ends != [End::Passes, End::Fails] {
        let why = if ends.len() < 2 {
            "the budget was over"
        } else {
            "the runs at both ends do not end as they did"
        };
        return Ok(Err(why.into()));
    }
    let (low, high) = bisected(runs, base, (first, last), nth)?;
    if high - low > 1 {
        let time = |place: usize| base.choices[place].0;
        let (from, to) = (time(low), time(high - 1));
        let count = high - low;
        return Ok(Err(format!("{count} choices between {from} and {to} are left, of {}", last - first)));
    }
    let among = last - first;
    output::eprint(&format!("bloodhound: which: one of {among} choices after {} runs\n", runs.made));
    found(runs, base, (low, nth), among)
}

/// Between which of its choices, at most one apart where all goes well, runs pass that keep those before, and fail that keep one more.
fn bisected(
    runs: &mut Runs<'_>,
    base: &Base,
    (mut low, mut high): (usize, usize),
    nth: u64,
) -> Result<(usize, usize), Failure> {
    while high - low > 1 {
        let width = high - low;
        let mut places: Vec<usize> = (1..PARTS).map(|n| low + width * n / PARTS).collect();
        places.retain(|place| *place > low && *place < high);
        places.dedup();
        let ends = runs.judge(places.iter().map(|kept| future::after(base, *kept, nth)))?;
        let before = (low, high);
        for (place, end) in places.into_iter().zip(ends) {
            match end {
                End::Passes => low = place,
                End::Fails => {
                    high = place;
                    break;
                }
                // It lies on neither side.
                End::Otherwise(_) | End::Unknown(_) => {}
            }
        }
        if (low, high) == before {
            break;
        }
    }
    Ok((low, high))
}

/// The choice behind `kept` others, with both runs and their futures.
fn found(
    runs: &mut Runs<'_>,
    base: &Base,
    (kept, nth): (usize, u64),
    among: usize,
) -> Result<Result<Parting, String>, Failure> {
    if runs.left() < 2 {
        return Ok(Err("the budget was over when one choice was left".into()));
    }
    let (passing, (at, failing)) = (future::after(base, kept, nth), base.choices[kept]);
    let (ran, end) = runs.look(passing.clone())?;
    let other = ran.made.iter().find(|made| made.choice == failing.choice).map(|made| made.value);
    // That an operation is left out is said by a log only.
    if end != End::Passes || other.is_none() && !future::is_operation(&failing.choice) {
        return Ok(Err("the passing run does not come to the choice".into()));
    }
    let value = |value| Override { bound: failing.bound, value };
    let mut fails = passing.clone();
    fails.overrides.insert(failing.choice, value(failing.value));
    let (_, end) = runs.look(fails.clone())?;
    if end != End::Fails {
        return Ok(Err("the passing run with this one choice of the failing one does not fail".into()));
    }
    let with = || (0..FUTURES).map(|nth| future::after(base, kept + 1, OTHERS + nth));
    let without = with().map(|mut log| {
        match other {
            Some(other) => log.overrides.insert(failing.choice, value(other)),
            None => log.overrides.remove(&failing.choice),
        };
        log
    });
    let (with, without) = (runs.judge(with())?, runs.judge(without)?);
    Ok(Ok(Parting { at, failing, passing: other, logs: (fails, passing), among, with, without }))
}
