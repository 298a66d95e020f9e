//! Which choice made it fail: what of the failing run, taken out alone, lets it pass ([`singles`]), or the fewest faults that do so together ([`fewest`]).
//!
//! Key types: [`Candidate`] (something that can be taken out), [`Flip`] (one that decides, with futures of both sides). Taking something out leaves all
//! other choices where they were, so the two runs differ in that choice, and in what follows from it. Neighbour: `parting`.

use bloodhound_abi::SimTime;
use bloodhound_bisect::smallest;
use bloodhound_decisions::{Choice, Concern, ForcedSwitch, Log, Made, Override, Site};
use bloodhound_faults::Kind;
use bloodhound_sim::faults::{Effect, FaultId};

use super::future::{self, Later};
use super::runs::{Base, End, Runs};
use super::when::share;
use crate::output;
use crate::session::Failure;
use crate::shrink::case::{self, Edit};

/// More choices of packets and of the scheduler than these are not taken out one by one: a future that passes is compared with the run instead.
const CHOICES: usize = 64;
/// The same of operations.
const OPERATIONS: usize = 32;
/// The concerns whose choices are surprises where they are not plain. A random number is none.
const SURPRISES: [Concern; 3] = [Concern::Network, Concern::Scheduler, Concern::Disk];
/// Futures with and without something, and of how many things that is looked at.
pub const FUTURES: u64 = 8;
const WEIGHED: usize = 6;
/// So many runs are left for what comes then.
const RESERVE: u32 = 60;
/// Their numbers: others than those of the curve.
pub const OTHERS: u64 = 1000;
/// So many thousandths less than the most are as much.
pub const ABOUT: i64 = 250;

/// What can be taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A fault of the plan or of the schedule.
    Fault(FaultId),
    /// A kind that hits packets or operations, as a whole.
    Kind(Kind),
    /// A choice that is not plain.
    Choice(Made),
    /// A task gives way at an instruction.
    Switch(ForcedSwitch),
    /// An operation of a client.
    Operation(Choice),
}

/// Something of the failing run, and what the log says without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub what: What,
    /// When it takes effect.
    pub at: SimTime,
    set: Option<(Choice, Override)>,
    /// Choices of the run up to this one, it included.
    place: Option<usize>,
}

impl Candidate {
    /// The log without it.
    pub fn out_of(&self, mut log: Log) -> Log {
        if let Some((choice, to)) = self.set {
            log.overrides.insert(choice, to);
        }
        if let (What::Switch(switch), Some(switches)) = (&self.what, &mut log.switches) {
            switches.retain(|other| other != switch);
        }
        log
    }

    /// Future `nth` from right after it on.
    fn future(&self, base: &Base, nth: u64) -> Log {
        match self.place {
            Some(place) => future::after(base, place + 1, nth),
            None => future::future(base, self.at.after(1), nth, Later::Stay),
        }
    }

    /// Whether it is an operation: without one nobody may notice what went wrong before.
    pub fn is_operation(&self) -> bool {
        matches!(self.what, What::Operation(_))
    }
}

/// What was taken out alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Singles {
    /// Those that were, and how the run ends without each.
    pub tried: Vec<(Candidate, End)>,
    /// How many choices and operations were not, as they were too many, the log does not name them or the budget was over.
    pub left: usize,
}

impl Singles {
    /// Those without which it passes, in order of time.
    pub fn flips(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.tried.iter().filter(|(_, end)| *end == End::Passes).map(|(candidate, _)| candidate)
    }
}

/// One thing that decides, and how futures end from right after it, with it and without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flip {
    pub candidate: Candidate,
    pub with: Vec<End>,
    pub without: Vec<End>,
}

impl Flip {
    /// How many thousandths more of the futures fail with it, if that is known.
    pub fn weight(&self) -> Option<i64> {
        weight(&self.with, &self.without)
    }

    /// Whether it is this choice.
    pub fn is_of(&self, choice: Choice) -> bool {
        matches!(&self.candidate.what, What::Choice(made) if made.choice == choice)
    }
}

/// How many thousandths more of some futures fail than of others. `None`: of one side none has a verdict.
pub fn weight(with: &[End], without: &[End]) -> Option<i64> {
    let mille = |ends: &[End]| {
        let (failing, tried) = share(ends);
        (failing * 1000).checked_div(tried).map(|mille| mille as i64)
    };
    Some(mille(with)? - mille(without)?)
}

/// Takes out each thing alone.
///
/// # Errors
/// What the host says; interrupted.
pub fn singles(runs: &mut Runs<'_>, base: &Base, most: u32) -> Result<Singles, Failure> {
    let mut candidates = faults(base);
    let mut left = unnamed(base);
    for (mut more, limit) in [(choices(base), CHOICES), (operations(base), OPERATIONS)] {
        if more.len() > limit {
            left += more.len();
            more.clear();
        }
        candidates.extend(more);
    }
    let most = most.min(runs.left()) as usize;
    left += candidates.len().saturating_sub(most);
    candidates.truncate(most);
    let ends = runs.judge(candidates.iter().map(|candidate| candidate.out_of(base.log.clone())))?;
    left += candidates.len() - ends.len();
    let mut tried: Vec<(Candidate, End)> = candidates.into_iter().zip(ends).collect();
    tried.sort_by_key(|(candidate, _)| (candidate.is_operation(), candidate.at));
    let flips = tried.iter().filter(|(_, end)| *end == End::Passes).count();
    output::eprint(&format!(
        "bloodhound: which: without one of {} things it passes, of {} that were left out after {} runs\n",
        flips,
        tried.len(),
        runs.made
    ));
    Ok(Singles { tried, left })
}

/// The faults that began before the violation.
fn faults(base: &Base) -> Vec<Candidate> {
    let outcome = &base.ran.outcome;
    let candidate = |(choice, to): (Choice, Override)| {
        let began = outcome.plan.iter().zip(outcome.effects.iter()).find(|(entry, effect)| {
            entry.id.site("begins") == choice.site && **effect == Effect::Begun && entry.begin <= base.until
        });
        let (what, at) = match (choice.site, began) {
            (Site::Swarm { kind }, _) => {
                let declared = Kind::DECLARATIONS.iter().find(|known| known.name == kind.as_str())?;
                (What::Kind(declared.kind), base.from)
            }
            (_, Some((entry, _))) => (What::Fault(entry.id), entry.begin),
            _ => return None,
        };
        Some(Candidate { what, at, set: Some((choice, to)), place: None })
    };
    let edits = case::faults(&base.ran).into_iter().flatten();
    let sets = edits.filter_map(|edit| match edit {
        Edit::Set(choice, to) => Some((choice, to)),
        _ => None,
    });
    sets.filter_map(candidate).collect()
}

/// The choices that are not plain, of concerns of which all that the log does not name is plain; and its switches.
fn choices(base: &Base) -> Vec<Candidate> {
    let plain: Vec<Concern> = base.log.plain.clone();
    let named = |made: &Made| {
        let planned =
            matches!(made.choice.site, Site::Fault { .. } | Site::Swarm { .. } | Site::Switch { .. });
        !made.plain && plain.contains(&made.choice.site.concern()) && !planned
    };
    let until = base.choices.partition_point(|(at, _)| *at <= base.until);
    let named = base.choices[..until].iter().enumerate().filter(|(_, (_, made))| named(made));
    let choices = named.map(|(place, (at, made))| Candidate {
        what: What::Choice(*made),
        at: *at,
        set: Some((made.choice, Override { bound: made.bound, value: 0 })),
        place: Some(place),
    });
    let switches = base.log.switches.iter().flatten();
    let switches = switches.map(|switch| Candidate {
        what: What::Switch(switch.clone()),
        at: base.from,
        set: None,
        place: None,
    });
    choices.chain(switches).collect()
}

/// How many choices are not plain that are drawn by the seed, as all of their concern. In a finding that was not shrunk they are most of the run, so none is taken out.
fn unnamed(base: &Base) -> usize {
    let until = base.choices.partition_point(|(at, _)| *at <= base.until);
    base.choices[..until].iter().filter(|(_, made)| is_surprise(made, &base.log.plain)).count()
}

/// Whether a choice is not plain, and of a concern of which not all is plain that the log does not name.
fn is_surprise(made: &Made, plain: &[Concern]) -> bool {
    let concern = made.choice.site.concern();
    let is_open = SURPRISES.contains(&concern) && !plain.contains(&concern);
    !made.plain && is_open && !matches!(made.choice.site, Site::Switch { .. })
}

fn operations(base: &Base) -> Vec<Candidate> {
    let sets = case::operations(&base.ran.outcome).into_iter().flat_map(|done| done.out);
    let sets = sets.filter_map(|edit| match edit {
        Edit::Set(choice, to) => Some((choice, to)),
        _ => None,
    });
    sets.map(|(choice, to)| Candidate {
        what: What::Operation(choice),
        at: super::words::operation(&base.ran.outcome, &choice).map_or(base.from, |found| found.invoke),
        set: Some((choice, to)),
        place: None,
    })
    .filter(|candidate| candidate.at <= base.until)
    .collect()
}

/// Looks at the futures of what decides, with it and without it: most first, and of about equal ones the latest.
///
/// # Errors
/// What the host says; interrupted.
pub fn weigh(runs: &mut Runs<'_>, base: &Base, singles: &Singles) -> Result<Vec<Flip>, Failure> {
    let mut flips = Vec::new();
    for candidate in singles.flips().filter(|candidate| !candidate.is_operation()).rev().take(WEIGHED) {
        if !flips.is_empty() && runs.left() < RESERVE + 2 * FUTURES as u32 {
            break;
        }
        let with = || (0..FUTURES).map(|nth| candidate.future(base, OTHERS + nth));
        let ends = runs.judge(with())?;
        let without = runs.judge(with().map(|log| candidate.out_of(log)))?;
        flips.push(Flip { candidate: candidate.clone(), with: ends, without });
    }
    Ok(sorted(flips))
}

/// Those that weigh about as much as the most first, then the lighter ones, then those of which nothing is known. They come in falling order of time, which stays
/// within each of the three.
fn sorted(mut flips: Vec<Flip>) -> Vec<Flip> {
    let most = flips.iter().filter_map(Flip::weight).max().unwrap_or_default();
    flips.sort_by_key(|flip| flip.weight().map_or(2, |weight| u8::from(weight < most - ABOUT)));
    flips
}

/// Where no single fault decides: the fewest faults found without which it passes. `None`: it does not pass without all of them.
///
/// # Errors
/// What the host says; interrupted.
pub fn fewest(
    runs: &mut Runs<'_>,
    base: &Base,
    most: u32,
) -> Result<Option<(Vec<Candidate>, bool)>, Failure> {
    let all = faults(base);
    let without = |part: &[usize]| part.iter().fold(base.log.clone(), |log, place| all[*place].out_of(log));
    let whole: Vec<usize> = (0..all.len()).collect();
    if all.len() < 2 || runs.judge([without(&whole)])? != [End::Passes] {
        return Ok(None);
    }
    let most = most.min(runs.left());
    let kept = smallest(all.len(), most, |parts| {
        let ends = runs.judge(parts.iter().map(|part| without(part)))?;
        Ok::<_, Failure>(ends.iter().map(|end| *end == End::Passes).collect())
    })?;
    Ok(Some((kept.items.iter().map(|place| all[*place].clone()).collect(), kept.minimal)))
}

#[cfg(test)]
mod tests {
    use bloodhound_decisions::Part;

    use super::*;

    #[test]
    fn what_the_seed_draws_beside_the_log_is_no_secret() {
        let policy = Site::Policy { part: bloodhound_decisions::PolicyPart::Order };
        let made = |site, value| Made {
            choice: Choice { part: Part::Run, site },
            bound: 9,
            value,
            plain: value == 0,
            at: 0,
        };
        assert!(is_surprise(&made(policy, 1), &[Concern::Network]));
        assert!(!is_surprise(&made(policy, 0), &[]), "it is plain");
        assert!(!is_surprise(&made(policy, 1), &[Concern::Scheduler]), "the log names what is not plain");
        assert!(!is_surprise(&made(Site::Arrival { worker: 0, nth: 0 }, 1), &[]), "clients do something");
    }

    #[test]
    fn what_nothing_is_known_of_does_not_weigh_less_than_nothing() {
        let flip = |at: u64, with: &[End], without: &[End]| {
            let candidate =
                Candidate { what: What::Kind(Kind::Drop), at: SimTime(at), set: None, place: None };
            Flip { candidate, with: with.to_vec(), without: without.to_vec() }
        };
        let (fails, passes) = ([End::Fails, End::Fails], [End::Passes, End::Passes]);
        let unknown = [End::Unknown("too long".into())];
        assert_eq!(weight(&fails, &passes), Some(1000));
        assert_eq!(weight(&[], &passes), None);
        assert_eq!(weight(&fails, &unknown), None, "no verdict");
        let flips = vec![
            flip(9, &fails, &[]),
            flip(8, &fails, &fails),
            flip(7, &fails, &passes),
            flip(6, &fails, &passes),
        ];
        let times: Vec<u64> = sorted(flips).iter().map(|flip| flip.candidate.at.0).collect();
        assert_eq!(times, [7, 6, 8, 9]);
    }
}
