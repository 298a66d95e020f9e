//! What a run departs from the plainest one by ([`Departure`]), and the fewest of these with which it still fails ([`narrow`]).

use bloodhound_decisions::{Choice, Concern, ForcedSwitch, Log, Made, Override, Part, Site};

use crate::minimal;

/// Something by which a run differs from the plainest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// A choice that is not 0.
    Choice(Choice, Override),
    /// A task gives way at an instruction.
    Switch(ForcedSwitch),
}

/// A run that fails by a few departures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowed {
    /// None of these can be left out.
    pub departures: Vec<Departure>,
    /// Runs that were made to find them.
    pub runs: u32,
}

/// The departures of a run: of the choices that it `made` about `concerns` after its boot those that are not plain, in order, and then the
/// switches of its log that came to pass.
pub fn departures<'a>(
    made: &[Made],
    concerns: &[Concern],
    switched: impl IntoIterator<Item = &'a ForcedSwitch>,
) -> Vec<Departure> {
    let of_concern = |made: &&Made| {
        let Choice { part, site } = made.choice;
        // What became of the choices of switches is the list of them.
        let listed = matches!(site, Site::Switch { .. });
        part == Part::Run && !made.plain && concerns.contains(&site.concern()) && !listed
    };
    let choices = made.iter().filter(of_concern).map(|made| {
        let Made { choice, bound, value, .. } = *made;
        Departure::Choice(choice, Override { bound, value })
    });
    choices.chain(switched.into_iter().cloned().map(Departure::Switch)).collect()
}

/// The run of `base` in which all choices about `concerns` are plain but for these departures.
pub fn log_of(base: &Log, concerns: &[Concern], departures: &[Departure]) -> Log {
    let mut log = Log { plain: concerns.to_vec(), ..base.clone() };
    // Those of `base` that are among the departures come back as such.
    log.overrides.retain(|choice, _| !concerns.contains(&choice.site.concern()));
    let mut switches = Vec::new();
    for departure in departures {
        match departure {
            Departure::Choice(choice, to) => {
                log.overrides.insert(*choice, *to);
            }
            Departure::Switch(switch) => switches.push(switch.clone()),
        }
    }
    log.switches = Some(switches);
    log
}

/// Leaves out departures of a failing run as long as it still fails in its way, which `fails` says of a log (to be followed leniently).
/// `None`: it does not fail with all of them, so something else is part of the cause.
///
/// # Errors
/// Those of `fails`.
pub fn narrow<E>(
    base: &Log,
    concerns: &[Concern],
    departures: Vec<Departure>,
    mut fails: impl FnMut(&Log) -> Result<bool, E>,
) -> Result<Option<Narrowed>, E> {
    let mut runs = 0;
    let mut fails = |part: &[Departure]| {
        runs += 1;
        fails(&log_of(base, concerns, part))
    };
    if !fails(&departures)? {
        return Ok(None);
    }
    // Most runs fail without most of their choices: the switches alone are often enough, or nothing at all is needed.
    let switches: Vec<Departure> =
        departures.iter().filter(|departure| matches!(departure, Departure::Switch(_))).cloned().collect();
    let smaller = [Vec::new(), switches];
    let mut left = departures;
    for part in smaller {
        if part.len() < left.len() && fails(&part)? {
            left = part;
            break;
        }
    }
    let departures = minimal(left, &mut fails)?;
    Ok(Some(Narrowed { departures, runs }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bloodhound_decisions::{Decisions, Lineage, Mode, PolicyPart};

    use super::*;

    fn priority(nth: u64) -> Site {
        Site::Priority { node: 1, life: 0, task: Lineage::root(0), nth }
    }

    /// A run of some choices, which fails if the third and the seventh are not plain.
    fn run(log: &Log) -> (bool, Vec<Made>) {
        let mut decisions = Decisions::new(log.clone(), Mode::Lenient);
        decisions.begin_run(log.seed);
        decisions.listen(true);
        let values: Vec<u64> = (0..40).map(|nth| decisions.choose(priority(nth), 3)).collect();
        decisions.choose(Site::Policy { part: PolicyPart::Longest }, 6);
        (values[3] > 0 && values[7] > 0, decisions.take_made())
    }

    #[test]
    fn a_run_is_narrowed_to_the_choices_that_make_it_fail() {
        let concerns = [Concern::Scheduler];
        let failing = (0..).map(|seed| Log::new(1, seed)).find(|log| run(log).0).expect("some seed fails");
        let all = departures(&run(&failing).1, &concerns, []);
        assert!(all.len() > 10, "{all:?}");
        let narrowed = narrow(&failing, &concerns, all, |log| Ok::<bool, Infallible>(run(log).0));
        let narrowed = narrowed.expect("no error").expect("it fails again");
        let choices: Vec<String> = narrowed
            .departures
            .iter()
            .map(|departure| match departure {
                Departure::Choice(choice, _) => choice.to_string(),
                Departure::Switch(_) => "a switch".to_owned(),
            })
            .collect();
        assert_eq!(choices, [3, 7].map(|nth| format!("run:{}", priority(nth))));
        let log = log_of(&failing, &concerns, &narrowed.departures);
        assert!(run(&log).0);
        assert!(run(&log).1.iter().filter(|made| made.value > 0).count() == 2, "all others are plain");
    }

    #[test]
    fn a_run_that_does_not_fail_again_is_not_narrowed() {
        let narrowed =
            narrow(&Log::new(1, 1), &[Concern::Scheduler], Vec::new(), |_| Ok::<bool, Infallible>(false));
        assert_eq!(narrowed, Ok(None));
    }
}
