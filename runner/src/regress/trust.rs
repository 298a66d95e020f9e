//! How many seeds without a failure it takes to trust in its fix ([`needed`]).
//!
//! A failure that came in `failing` of `run` seeds may be rarer than that. Its frequency p is taken to be the lower bound of Clopper and Pearson, of which 95 % of such
//! samples have one that is not above the truth; then so many seeds are wanted that, were the failure still there, 95 % of such series would show it: the least n with
//! (1 - p)^n <= 0.05. Only additions, multiplications and divisions are made, which all processors round alike; what is told are whole numbers.

/// Parts of a frequency.
const WHOLE: u64 = 1_000_000_000;
/// What is left to chance, each time.
const CHANCE: f64 = 0.05;
/// More failing seeds than these say little more; sums of so many terms neither vanish nor take long.
const MOST: u64 = 300;
/// So many seeds are never wanted.
const ENDLESS: u64 = 1 << 40;

/// Seeds without the failure after which its fix is trusted, of a failure that came in so many of so many seeds.
pub fn needed(failing: u64, run: u64) -> u64 {
    let rare = lowest(failing, run);
    if rare == 0 {
        return ENDLESS;
    }
    if rare >= WHOLE {
        return 1;
    }
    let stays = (WHOLE - rare) as f64 / WHOLE as f64;
    least(ENDLESS, |n| power(stays, n) <= CHANCE)
}

/// The lower bound of the frequency, in parts of [`WHOLE`].
fn lowest(failing: u64, run: u64) -> u64 {
    if failing == 0 || run == 0 {
        return 0;
    }
    let (mut failing, mut run) = (failing.min(run), run);
    if failing > MOST {
        // As if fewer had been run: the bound is lower then.
        run = u64::try_from((u128::from(run) * u128::from(MOST)).div_ceil(u128::from(failing)))
            .unwrap_or(u64::MAX);
        failing = MOST;
    }
    // The largest frequency with which so many failures, or more, come by chance in at most one of twenty samples.
    least(WHOLE, |ppb| at_least(failing, run, ppb) > CHANCE).saturating_sub(1)
}

/// The least number up to `most` for which something holds that holds for all larger ones.
fn least(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The probability of at least so many failures in so many seeds.
fn at_least(failing: u64, run: u64, ppb: u64) -> f64 {
    let p = ppb as f64 / WHOLE as f64;
    let q = (WHOLE - ppb) as f64 / WHOLE as f64;
    if ppb == 0 {
        return 0.0;
    }
    if ppb == WHOLE {
        return 1.0;
    }
    if failing <= run / 2 {
        // All but those with fewer.
        let mut term = power(q, run);
        let mut fewer = 0.0;
        for n in 0..failing {
            fewer += term;
            term *= (run - n) as f64 / (n + 1) as f64 * (p / q);
        }
        return 1.0 - fewer;
    }
    let (mut term, mut sum) = (power(p, run), 0.0);
    for n in (failing..=run).rev() {
        sum += term;
        term *= n as f64 / (run - n + 1) as f64 * (q / p);
    }
    sum
}

fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_tables() {
        // One failure in 100: 1 - 0.95^(1/100); five: the table of Clopper and Pearson for one side has 0.01991; all of 20: 0.05^(1/20).
        for (failing, run, ppb) in
            [(1, 100, 512_801), (5, 100, 19_907_000), (20, 20, 860_891_000), (1, 1, 50_000_000)]
        {
            let found = lowest(failing, run);
            assert!(found.abs_diff(ppb) <= ppb / 500, "{failing} of {run}: {found}");
        }
        assert_eq!((lowest(0, 10), lowest(1, 0)), (0, 0));
    }

    #[test]
    fn rarer_failures_take_more_seeds() {
        assert_eq!(needed(1, 1), 59);
        assert!(needed(1, 100).abs_diff(5841) < 5, "{}", needed(1, 100));
        assert!(needed(20, 20) <= 2 && needed(5, 100).abs_diff(149) < 3);
        let mut before = 0;
        for run in [10, 20, 50, 100, 1000, 100_000, u64::MAX] {
            let now = needed(3, run);
            assert!(now >= before && now > 0, "{run}: {now}");
            before = now;
        }
        for (failing, run) in [(300, 600), (301, 602), (5000, 10_000), (u64::MAX, u64::MAX), (299, 600)] {
            let now = needed(failing, run);
            assert!((1..20).contains(&now), "{failing} of {run}: {now}");
        }
    }
}
