//! The smallest part of a list that still fails, by tests of groups ([`smallest`]): with few runs, some of them at once.
//!
//! A group whose members can all be left out costs one run. One that cannot has something that is needed; it is halved, and what is not known to have
//! something needed goes back to the others, from which groups are formed anew, larger as long as nothing needed is found (Hwang, "A Method for
//! Detecting All Defective Members in a Population by Group Testing", 1972). Groups of a round are tested apart from each other, so they can be run
//! at the same time; what a round says is taken in order, so the result is a function of the list and the answers alone.
//!
//! That none of what is left can be left out (1-minimal) is tested in the end, as answers need not be monotone. Neighbour: `delta`, for cheap runs.

use std::collections::BTreeMap;

/// How many parts a round has at most. A constant: with more workers nothing else is asked.
const WIDTH: usize = 4;
/// The first groups are so many parts of the list.
const FIRST: usize = 4;
/// Longer parts come only once.
const REMEMBERED: usize = 1000;

/// What is left of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The places of what is left, rising. A run of just these has failed, unless nothing could be left out.
    pub items: Vec<usize>,
    /// Runs that were made.
    pub runs: u32,
    /// None of it can be left out. False: the budget or the time was over before that was known.
    pub minimal: bool,
}

/// Answers to the parts of a round, in order: whether each fails. Fewer than were asked for: the time is over.
pub type Round<E> = Result<Vec<bool>, E>;

/// Why a search ends early.
enum Stop<E> {
    Over,
    Error(E),
}

/// A part of the items `0..count` that fails, of which nothing can be left out; all of them are known to fail. `fails` is asked for parts, each the rising
/// places that are kept, at most so many as `budget` says.
///
/// # Errors
/// Those of `fails`.
pub fn smallest<E>(
    count: usize,
    budget: u32,
    fails: impl FnMut(&[Vec<usize>]) -> Round<E>,
) -> Result<Kept, E> {
    let mut search = Search { fails, known: BTreeMap::new(), best: (0..count).collect(), runs: 0, budget };
    let minimal = match search.all() {
        Ok(()) => true,
        Err(Stop::Over) => false,
        Err(Stop::Error(error)) => return Err(error),
    };
    Ok(Kept { items: search.best, runs: search.runs, minimal })
}

struct Search<F> {
    fails: F,
    /// What was asked before.
    known: BTreeMap<Vec<usize>, bool>,
    /// The smallest part that has failed.
    best: Vec<usize>,
    runs: u32,
    budget: u32,
}

/// What is known of the items that are kept.
#[derive(Clone, Debug, Default)]
struct State {
    /// All that are kept; whether a run of just these has failed is another question.
    kept: Vec<usize>,
    /// Of these nothing is known.
    unknown: Vec<usize>,
    /// In each of these is something that is needed.
    needed: Vec<Vec<usize>>,
    /// The size of the next groups of the unknown.
    size: usize,
}

/// A group of a round.
struct Group {
    /// What is left out.
    out: Vec<usize>,
    /// What comes behind it in a group that has something needed; `None`: nothing was known of it.
    rest: Option<Vec<usize>>,
}

impl<E, F: FnMut(&[Vec<usize>]) -> Round<E>> Search<F> {
    fn all(&mut self) -> Result<(), Stop<E>> {
        if self.best.is_empty() || self.ask(&[Vec::new()])? == [true] {
            return Ok(());
        }
        let mut state = State {
            kept: self.best.clone(),
            unknown: self.best.clone(),
            needed: Vec::new(),
            size: self.best.len().div_ceil(FIRST),
        };
        // The state before the last round, and what of it alone has failed: if several groups were left out in that, no run has shown yet that they can
        // be left out together.
        let mut unsure: Option<State> = None;
        while !state.is_done() || unsure.is_some() {
            if state.is_done() {
                self.settle(&mut state, &mut unsure)?;
                continue;
            }
            let before = state.clone();
            let groups = state.groups();
            let parts: Vec<Vec<usize>> =
                groups.iter().map(|group| without(&before.kept, &group.out)).collect();
            let answers = self.ask(&parts)?;
            if !answers.contains(&true) && unsure.is_some() {
                let sure = self.settle(&mut state, &mut unsure)?;
                if !sure {
                    continue;
                }
            }
            let first = answers.iter().position(|failed| *failed);
            let several = answers.iter().filter(|failed| **failed).count() > 1;
            state.learn(groups, &answers);
            unsure = None;
            if several && let Some(first) = first {
                // What has failed for sure: without the first group.
                let kept = parts[first].clone();
                let unknown = kept.clone();
                unsure = Some(State { kept, unknown, needed: Vec::new(), size: before.size.max(1) });
            }
        }
        self.one_by_one()
    }

    /// Finds out whether what is kept fails. If not, the search goes on from what does. Returns whether it fails.
    fn settle(&mut self, state: &mut State, unsure: &mut Option<State>) -> Result<bool, Stop<E>> {
        let Some(sure) = unsure.take() else { return Ok(true) };
        let fails = self.ask(std::slice::from_ref(&state.kept))? == [true];
        if !fails {
            *state = sure;
        }
        Ok(fails)
    }

    /// Leaves out single items as long as one of them can be.
    fn one_by_one(&mut self) -> Result<(), Stop<E>> {
        let mut from = 0;
        while from < self.best.len() {
            let best = self.best.clone();
            let to = (from + WIDTH).min(best.len());
            let parts: Vec<Vec<usize>> = (from..to).map(|at| without(&best, &best[at..=at])).collect();
            // Those before the one that can be left out may no longer be needed without it.
            from = if self.ask(&parts)?.contains(&true) { 0 } else { to };
        }
        Ok(())
    }

    /// Asks for parts that have not been asked for. What fails first of them is the best part if it is smaller.
    fn ask(&mut self, parts: &[Vec<usize>]) -> Result<Vec<bool>, Stop<E>> {
        let mut answers: Vec<Option<bool>> = parts.iter().map(|part| self.known.get(part).copied()).collect();
        let asked: Vec<usize> = (0..parts.len()).filter(|at| answers[*at].is_none()).collect();
        let left = self.budget.saturating_sub(self.runs) as usize;
        let news: Vec<Vec<usize>> = asked.iter().take(left).map(|at| parts[*at].clone()).collect();
        let told = if news.is_empty() { Vec::new() } else { (self.fails)(&news).map_err(Stop::Error)? };
        for ((at, part), failed) in asked.iter().zip(news).zip(told) {
            answers[*at] = Some(failed);
            self.runs += 1;
            if failed && part.len() < self.best.len() {
                self.best.clone_from(&part);
            }
            if part.len() <= REMEMBERED {
                self.known.insert(part, failed);
            }
        }
        answers.into_iter().collect::<Option<Vec<bool>>>().ok_or(Stop::Over)
    }
}

impl State {
    fn is_done(&self) -> bool {
        self.unknown.is_empty() && self.needed.is_empty()
    }

    /// Takes the groups of the next round.
    fn groups(&mut self) -> Vec<Group> {
        let halves = self.needed.drain(..self.needed.len().min(WIDTH));
        let mut groups: Vec<Group> = halves
            .map(|mut group| {
                let rest = group.split_off(group.len() / 2);
                Group { out: group, rest: Some(rest) }
            })
            .collect();
        while groups.len() < WIDTH && !self.unknown.is_empty() {
            let size = self.size.clamp(1, self.unknown.len());
            groups.push(Group { out: self.unknown.drain(..size).collect(), rest: None });
        }
        groups
    }

    /// Takes what a round says of its groups.
    fn learn(&mut self, groups: Vec<Group>, answers: &[bool]) {
        let (mut clear, mut met) = (false, false);
        for (Group { out, rest }, failed) in groups.into_iter().zip(answers) {
            (clear, met) = (clear | (rest.is_none() && *failed), met | (rest.is_none() && !failed));
            if *failed {
                self.kept = without(&self.kept, &out);
                // It was there in the whole group, so it is in the rest.
                self.narrow(rest.unwrap_or_default());
            } else {
                self.narrow(out);
                self.unknown.extend(rest.unwrap_or_default());
            }
        }
        self.unknown.sort_unstable();
        match (clear, met) {
            (true, false) => self.size *= 2,
            (false, true) => self.size = (self.size / 2).max(1),
            _ => {}
        }
    }

    /// A group has something needed: if that is not the one item that it has, it is to be halved.
    fn narrow(&mut self, group: Vec<usize>) {
        if group.len() > 1 {
            self.needed.push(group);
        }
    }
}

/// The rising `items` without those of `out`, which rise as well.
fn without(items: &[usize], out: &[usize]) -> Vec<usize> {
    items.iter().filter(|item| out.binary_search(item).is_err()).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bloodhound_decisions::Dice;

    use super::*;

    /// Different numbers below `count`.
    fn some(dice: &mut Dice, many: usize, count: u64) -> Vec<usize> {
        let mut all = std::collections::BTreeSet::new();
        while all.len() < many {
            all.insert(dice.below(count) as usize);
        }
        all.into_iter().collect()
    }

    fn found(count: usize, budget: u32, mut fails: impl FnMut(&[usize]) -> bool) -> Kept {
        let judge = |parts: &[Vec<usize>]| {
            assert!(!parts.is_empty() && parts.len() <= WIDTH && parts.iter().all(|part| part.is_sorted()));
            Ok::<_, Infallible>(parts.iter().map(|part| fails(part)).collect())
        };
        let Ok(kept) = smallest(count, budget, judge);
        kept
    }

    #[test]
    fn eight_of_two_hundred_are_found_in_a_hundred_runs() {
        let mut dice = Dice::new(1);
        let mut worst = [0; 9];
        for (many, worst) in worst.iter_mut().enumerate() {
            for _ in 0..200 {
                let needed = some(&mut dice, many, 200);
                let kept = found(200, 1000, |part| needed.iter().all(|item| part.contains(item)));
                assert_eq!((&kept.items, kept.minimal), (&needed, true));
                *worst = kept.runs.max(*worst);
            }
            assert!(*worst <= 100, "{many}: {worst}");
        }
        assert_eq!(worst[0], 1, "nothing is needed: that is asked first");
        assert!(worst[1] <= 20 && worst[8] <= 80, "{worst:?}");
    }

    #[test]
    fn items_beside_each_other_and_at_the_ends_are_found() {
        for needed in [vec![0], vec![199], vec![0, 199], (96..104).collect(), vec![0, 1, 198, 199]] {
            let kept = found(200, 100, |part| needed.iter().all(|item| part.contains(item)));
            assert_eq!((kept.items, kept.minimal), (needed, true));
        }
        for count in 0..12 {
            let kept = found(count, 100, |part| part.len() == count);
            assert_eq!(kept.items, (0..count).collect::<Vec<_>>(), "all of {count} are needed");
        }
    }

    /// Answers that are not monotone: what is found fails, and nothing of it can be left out.
    #[test]
    fn what_is_found_fails_and_is_minimal_whatever_the_answers() {
        let mut dice = Dice::new(2);
        for round in 0..300 {
            let (first, second) = (some(&mut dice, 3, 60), some(&mut dice, 2, 60));
            let (salt, noise) = (dice.word(), round % 3 > 0);
            let fails = |part: &[usize]| {
                let has = |needed: &[usize]| needed.iter().all(|item| part.contains(item));
                let mut hash =
                    Dice::new(part.iter().fold(salt, |sum, item| sum.rotate_left(7) ^ *item as u64));
                part.len() == 60 || (has(&first) || has(&second)) && (!noise || hash.below(4) > 0)
            };
            let kept = found(60, 10_000, fails);
            assert!(kept.minimal && fails(&kept.items), "{kept:?}");
            for at in 0..kept.items.len() {
                assert!(!fails(&without(&kept.items, &kept.items[at..=at])), "{kept:?}: {at}");
            }
        }
    }

    #[test]
    fn a_budget_and_the_end_of_the_time_leave_what_has_failed() {
        let needed = [3, 50, 120];
        let fails = |part: &[usize]| needed.iter().all(|item| part.contains(item));
        let (mut before, enough) = (200, found(200, 1000, fails).runs);
        for budget in 0..60 {
            let kept = found(200, budget, fails);
            assert!(kept.runs <= budget && fails(&kept.items) && kept.items.len() <= before, "{kept:?}");
            before = kept.items.len();
            assert_eq!(kept.minimal, budget >= enough, "{budget} of {enough}");
        }
        let mut left = 10;
        let over = smallest(200, 1000, |parts: &[Vec<usize>]| {
            let answers: Vec<bool> = parts.iter().take(left).map(|part| fails(part)).collect();
            left -= answers.len();
            Ok::<_, Infallible>(answers)
        });
        let Ok(over) = over;
        assert_eq!((over.runs, over.minimal), (10, false));
        assert!(fails(&over.items) && over.items.len() < 200);
        assert_eq!(smallest(5, 10, |_: &[Vec<usize>]| Err("stopped")), Err("stopped"));
    }

    #[test]
    fn nothing_is_asked_twice() {
        let mut asked = std::collections::BTreeSet::new();
        found(100, 1000, |part| {
            assert!(asked.insert(part.to_vec()), "{part:?}");
            part.contains(&7) && part.contains(&70) || part.len() > 90
        });
    }
}
