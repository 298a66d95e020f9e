//! Delta debugging over lists: the smallest part that still fails ([`minimal`]), the last place that still does ([`latest`]).

/// A part of `items` that fails, and that does not when any single item is left out. `fails` is asked for parts, in the order of `items`;
/// for all of them it must hold, which is not asked. (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
/// algorithm ddmin, with complements only: parts of a schedule seldom fail alone.)
///
/// # Errors
/// Those of `fails`.
pub fn minimal<T: Clone, E>(
    items: Vec<T>,
    mut fails: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut left = items;
    let mut pieces = 2;
    while !left.is_empty() {
        pieces = pieces.min(left.len());
        let size = left.len().div_ceil(pieces);
        let mut from = 0;
        let mut smaller = false;
        while from < left.len() {
            let to = (from + size).min(left.len());
            let without: Vec<T> = left[..from].iter().chain(&left[to..]).cloned().collect();
            if fails(&without)? {
                left = without;
                smaller = true;
            } else {
                from = to;
            }
        }
        if smaller {
            // Something that was needed before may not be any more.
            pieces = pieces.saturating_sub(1).max(2);
        } else if size == 1 {
            break;
        } else {
            pieces *= 2;
        }
    }
    Ok(left)
}

/// The last of `places` up to which all fail, from the first on; `None` if the first one does not fail.
///
/// # Errors
/// Those of `fails`.
pub fn latest<T, E>(
    places: impl IntoIterator<Item = T>,
    mut fails: impl FnMut(&T) -> Result<bool, E>,
) -> Result<Option<T>, E> {
    let mut last = None;
    for place in places {
        if !fails(&place)? {
            break;
        }
        last = Some(place);
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn needs(needed: &[u32]) -> impl FnMut(&[u32]) -> Result<bool, Infallible> + use<'_> {
        move |part| {
            assert!(part.is_sorted(), "in their order");
            Ok(needed.iter().all(|item| part.contains(item)))
        }
    }

    #[test]
    fn what_is_needed_is_found() {
        for needed in [&[][..], &[0], &[99], &[3, 50], &[7, 8, 9, 98]] {
            assert_eq!(minimal((0..100).collect(), needs(needed)).as_deref(), Ok(needed));
        }
        assert_eq!(minimal(vec![5], needs(&[5])), Ok(vec![5]));
    }

    #[test]
    fn either_of_two_is_enough() {
        let one = minimal((0..64).collect(), |part: &[u32]| {
            Ok::<bool, Infallible>(part.contains(&3) || part.contains(&60))
        });
        assert_eq!(one.map(|part| part.len()), Ok(1));
    }

    #[test]
    fn few_runs_are_needed() {
        let mut runs = 0;
        let found = minimal((0..1000).collect(), |part: &[u32]| {
            runs += 1;
            Ok::<bool, Infallible>(part.contains(&10) && part.contains(&700))
        });
        assert_eq!(found, Ok(vec![10, 700]));
        assert!(runs < 100, "{runs}");
    }

    #[test]
    fn an_error_ends_the_search() {
        assert_eq!(minimal(vec![1, 2, 3], |_: &[u32]| Err("stopped")), Err("stopped"));
    }

    #[test]
    fn the_last_place_that_fails() {
        let upto = |most| move |place: &u32| Ok::<bool, Infallible>(*place <= most);
        assert_eq!(latest(0..10, upto(6)), Ok(Some(6)));
        assert_eq!(latest(0..10, upto(60)), Ok(Some(9)));
        assert_eq!(latest(5..10, upto(4)), Ok(None));
    }
}
