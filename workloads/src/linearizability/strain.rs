//! How hard it was to find a legal order: what tells a history that nearly contradicts itself from one that is far from it.
//!
//! Key types: [`Strain`] of one key, [`Strains`] of all, and [`strain`], which measures them. It is a function of history, model and budget, as the
//! verdict is.

use crate::history::History;
use crate::model::{Effect, Model, ModelError, NIL};

use super::search::Answer;
use super::{Budget, partition, solve};

/// How hard one key was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strain {
    /// Operations on it.
    pub operations: usize,
    /// Operations that have to come before a change of the object which completed earlier than they did: with that change a little earlier, they
    /// would have seen what was no longer there.
    pub overtaken: usize,
    /// Operations of unknown outcome that must have taken effect.
    pub unknown: usize,
    /// Steps of the search beyond one for each operation: what it tried in vain.
    pub in_vain: u64,
}

/// How hard the keys of a history were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strains {
    /// Of each key that has a legal order, those with few operations first.
    pub keys: Vec<Strain>,
    /// Keys for which the budget ended before there was an answer.
    pub exhausted: usize,
}

/// The strain of each key that has a legal order. Each key may use an equal share of the steps, and what those before it have left of theirs.
///
/// # Errors
/// An operation that the model does not have.
pub fn strain(history: &History, model: Model, budget: Budget) -> Result<Strains, ModelError> {
    let mut partitions = partition(history, model)?;
    // Short histories first: they leave most of their share.
    partitions.sort_by_key(|partition| partition.items.len());
    let mut left = budget.steps;
    let mut all = Strains::default();
    for (place, partition) in partitions.iter().enumerate() {
        let items = &partition.items;
        let share = left / (partitions.len() - place) as u64;
        let mut unused = share;
        let answer = solve(NIL, items, &mut unused, budget.memory);
        left -= share - unused;
        let order = match answer {
            Ok(Answer::Legal(order)) => order,
            Ok(Answer::Illegal { .. }) => continue,
            Ok(Answer::OutOfSteps | Answer::Cut | Answer::OutOfMemory) | Err(_) => {
                all.exhausted += 1;
                continue;
            }
        };
        let mut strain = Strain { operations: items.len(), ..Strain::default() };
        strain.in_vain = (share - unused).saturating_sub(items.len() as u64);
        // From the end: the next change of the object after each operation.
        let mut next: Option<usize> = None;
        for index in order.iter().rev() {
            let item = &items[*index as usize];
            let own = item.complete.unwrap_or(usize::MAX);
            strain.overtaken += usize::from(item.required && next.is_some_and(|change| change < own));
            strain.unknown += usize::from(!item.required);
            if item.transition.effect != Effect::Keep {
                next = item.complete;
            }
        }
        all.keys.push(strain);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use bloodhound_abi::SimTime;

    use super::*;
    use crate::history::{Call, Outcome, Value};

    fn of(steps: &[(u64, Call, Option<Outcome>)], completions: &[usize]) -> Vec<Strain> {
        let mut history = History::new();
        let ids: Vec<_> = steps
            .iter()
            .map(|(process, call, _)| history.invoke(*process, Some("k".into()), call.clone(), SimTime(0)))
            .collect();
        for place in completions {
            if let Some(outcome) = &steps[*place].2 {
                history.complete(ids[*place], outcome.clone(), SimTime(1), None);
            }
        }
        strain(&history, Model::Register, Budget::default()).expect("a register has all of it").keys
    }

    #[test]
    fn a_key_that_takes_too_long_is_told_and_costs_the_others_nothing() {
        let mut history = History::new();
        // The key with many operations comes first by its name.
        for (key, writes) in [("a", 1000), ("b", 1)] {
            for n in 0..writes {
                let write = Call::Write(Value::Int(n));
                let id = history.invoke(0, Some(key.into()), write, SimTime(0));
                history.complete(id, Outcome::Ok(Value::Nil), SimTime(1), None);
            }
        }
        let measured = |steps| {
            let budget = Budget { steps, ..Budget::default() };
            strain(&history, Model::Register, budget).expect("a register has all of it")
        };
        let few = measured(200);
        assert_eq!((few.keys.len(), few.keys[0].operations, few.exhausted), (1, 1, 1));
        let enough = measured(100_000);
        assert_eq!((enough.keys.len(), enough.exhausted), (2, 0));
    }

    #[test]
    fn a_read_of_the_old_value_after_a_write_is_done_is_a_near_miss() {
        let value = |text: &str| Value::Text(text.into());
        let write = (0, Call::Write(value("a")), Some(Outcome::Ok(Value::Nil)));
        let read = |found| (1, Call::Read, Some(Outcome::Ok(found)));
        let old = of(&[write.clone(), read(Value::Nil)], &[0, 1]);
        assert_eq!((old[0].overtaken, old[0].unknown, old[0].operations), (1, 0, 2));
        assert_eq!(of(&[write.clone(), read(Value::Nil)], &[1, 0])[0].overtaken, 0);
        assert_eq!(of(&[write, read(value("a"))], &[0, 1])[0].overtaken, 0);
    }

    #[test]
    fn a_write_that_nobody_confirmed_counts_once_it_is_seen() {
        let value = Value::Text("a".into());
        let write = (0, Call::Write(value.clone()), None);
        let seen = of(&[write.clone(), (1, Call::Read, Some(Outcome::Ok(value)))], &[1]);
        assert_eq!(seen[0].unknown, 1);
        assert_eq!(of(&[write, (1, Call::Read, Some(Outcome::Ok(Value::Nil)))], &[1])[0].unknown, 0);
    }
}
