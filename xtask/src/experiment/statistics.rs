//! How samples of two arms compare: [`median`], [`mann_whitney`], [`a12`].
//!
//! A campaign that has not found its bug within its budget counts as one that needed the whole budget, so that samples have ties at their
//! upper end; both measures take ties into account.

/// The middle of the sample, or the mean of the two in the middle. `None` of nothing.
pub fn median(sample: &[f64]) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// How often a value of `a` is greater than one of `b`, ties counting half: the effect size of Vargha and Delaney (2000). 0.5 is no
/// difference; 0.56, 0.64 and 0.71 are what they call small, medium and large.
pub fn a12(a: &[f64], b: &[f64]) -> f64 {
    u(a, b) / (a.len() * b.len()) as f64
}

/// The statistic U of `a`: pairs in which it is greater, ties counting half.
fn u(a: &[f64], b: &[f64]) -> f64 {
    let pair = |x: f64, y: f64| match x.total_cmp(&y) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    };
    a.iter().map(|x| b.iter().map(|y| pair(*x, *y)).sum::<f64>()).sum()
}

/// The two-sided p-value of the test of Mann and Whitney (1947), by the normal approximation with corrections for ties and for
/// continuity, which is good from about eight values in each sample on. 1 where all values are equal.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let ties: f64 = all
        .chunk_by(|x, y| x == y)
        .map(|tied| {
            let t = tied.len() as f64;
            t * t * t - t
        })
        .sum();
    let count = n + m;
    let variance = n * m / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u(a, b) - n * m / 2.0).abs() - 0.5).max(0.0);
    erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2).min(1.0)
}

/// The complementary error function for x >= 0, by Abramowitz and Stegun (1964), 7.1.26: off by at most 1.5e-7.
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let polynomial = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    polynomial * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-4
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn effects_go_from_never_to_always_greater() {
        assert_eq!(a12(&[1.0, 2.0], &[3.0, 4.0]), 0.0);
        assert_eq!(a12(&[3.0, 4.0], &[1.0, 2.0]), 1.0);
        assert_eq!(a12(&[1.0, 2.0], &[1.0, 2.0]), 0.5);
    }

    /// The figures are those of `scipy.stats.mannwhitneyu(a, b, method="asymptotic")`.
    #[test]
    fn p_values_are_those_of_others() {
        let (a, b): (Vec<f64>, Vec<f64>) =
            ((1..=10).map(f64::from).collect(), (6..=15).map(f64::from).collect());
        assert!(near(mann_whitney(&a, &b), 0.005_075), "{}", mann_whitney(&a, &b));
        assert!(near(mann_whitney(&a, &a), 1.0));
        assert!(near(mann_whitney(&[5.0; 9], &[5.0; 9]), 1.0));
        let (c, d) =
            ([60.0, 60.0, 60.0, 12.0, 33.0, 60.0, 41.0, 60.0], [3.0, 12.0, 8.0, 60.0, 5.0, 9.0, 14.0, 2.0]);
        assert!(near(mann_whitney(&c, &d), 0.008_194), "{}", mann_whitney(&c, &d));
    }
}
