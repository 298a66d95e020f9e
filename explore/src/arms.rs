//! [`Arms`]: the ways of making another run, and how much of them is done: as much as what it has shown is worth what it has cost.
//!
//! Integers alone, so that every machine computes the same. What was long ago counts less: a way that paid at the beginning, when everything was new,
//! need not pay any more.

use bloodhound_decisions::Dice;

/// A way of making another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Arm {
    /// A seed that was not run yet.
    Fresh = 0,
    /// The kinds of faults of a run and their strengths, with everything after its boot drawn anew.
    Profile = 1,
    /// Everything that comes after a state is drawn anew.
    Future = 2,
    /// The faults that come after it.
    Faults = 3,
    /// Turns of tasks, and what happens to packets.
    Timing = 4,
    /// What clients do.
    Operations = 5,
    /// One of the faults that come is left out.
    OneFault = 6,
    /// One random number that a program asks for is another one.
    Input = 7,
    /// One fault more begins soon after something that was seen for the first time, and the others are drawn anew from there on.
    AddFault = 8,
    /// One of the faults that come begins later.
    MoveFault = 9,
}

impl Arm {
    /// How many there are.
    pub const COUNT: usize = 10;
    /// Those that go on from a state by drawing something anew.
    pub(crate) const REDRAWN: [Arm; 8] = [
        Arm::Profile,
        Arm::Future,
        Arm::Faults,
        Arm::Timing,
        Arm::Operations,
        Arm::OneFault,
        Arm::AddFault,
        Arm::MoveFault,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Fresh => "fresh",
            Arm::Profile => "profile",
            Arm::Future => "future",
            Arm::Faults => "faults",
            Arm::Timing => "timing",
            Arm::Operations => "operations",
            Arm::OneFault => "one-fault",
            Arm::Input => "input",
            Arm::AddFault => "add-fault",
            Arm::MoveFault => "move-fault",
        }
    }
}

/// What one arm has brought and cost, both lessened with each run of it.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    worth: u64,
    cost: u64,
}

/// Older runs of an arm count for less by this share of them at each new one.
const FORGET: u64 = 24;
/// Of what is known of nothing, so much is assumed in addition: worth and cost of a run of the average.
const ASSUMED: u64 = 3;

/// A fault is added so many times as often as what it brings alone says.
const ADDED_MORE: u64 = 4;

/// What all arms have brought.
#[derive(Clone, Debug, Default)]
pub struct Arms {
    accounts: [Account; Arm::COUNT],
    all: Account,
    runs: u64,
}

impl Arms {
    /// A run of an arm has cost and brought so much.
    pub fn ran(&mut self, arm: Arm, worth: u64, cost: u64) {
        for account in [&mut self.accounts[arm as usize], &mut self.all] {
            account.worth = account.worth - account.worth / FORGET + worth;
            account.cost = account.cost - account.cost / FORGET + cost.max(1);
        }
        self.runs += 1;
    }

    /// What a run was worth lately, on average.
    pub(crate) fn usual_worth(&self) -> u64 {
        self.all.worth / self.runs.clamp(1, FORGET)
    }

    /// What an arm brings for a thousand times of what a run costs, by what is known of it; at least 1.
    fn rate(&self, arm: Arm) -> u64 {
        let known = self.runs.clamp(1, FORGET);
        let (worth, cost) = (self.all.worth / known * ASSUMED, self.all.cost / known * ASSUMED);
        let account = self.accounts[arm as usize];
        let (worth, cost) = (account.worth + worth, account.cost + cost);
        let usual = u128::from(self.all.cost / known).max(1);
        let rate = u128::from(worth) * 1000 * usual / u128::from(cost.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX / 16).clamp(1, u64::MAX / 16)
    }

    /// The share of seeds that were not run yet, in 64ths, at the so manieth run: at least [`Arms::least_fresh`], at most [`Arms::MOST_FRESH`].
    pub fn fresh(&self, number: u64) -> u64 {
        let fresh = self.rate(Arm::Fresh);
        let best = Arm::REDRAWN.into_iter().map(|arm| self.rate(arm)).max().unwrap_or(1);
        let share = u128::from(fresh) * 64 / (u128::from(fresh) + u128::from(best)).max(1);
        (share as u64).clamp(Arms::least_fresh(number), Arms::MOST_FRESH)
    }

    /// So many of 64 runs are those of seeds that were not run yet, whatever has paid: a search is then never much worse than they alone. What they do not find
    /// for long is rather found by going on from what they have shown.
    pub fn least_fresh(number: u64) -> u64 {
        if number < Arms::EARLY { Arms::LEAST_FRESH } else { Arms::LEAST_FRESH_LATER }
    }

    const EARLY: u64 = 64;
    /// That share in the first runs.
    pub const LEAST_FRESH: u64 = 36;
    const LEAST_FRESH_LATER: u64 = 24;
    /// So many of 64 at most, so that it is noticed when something else pays.
    pub const MOST_FRESH: u64 = 56;

    /// One of some arms, by what they bring; none is ever given up.
    pub(crate) fn choose(&self, among: &[Arm], dice: &mut Dice) -> Option<Arm> {
        let rates: Vec<u64> = among.iter().map(|arm| self.rate(*arm)).collect();
        // A tenth of the best, for those that have brought nothing.
        let least = (rates.iter().max()? / 10).max(1);
        let weigh = |(arm, rate): (&Arm, &u64)| {
            let weight = (*rate).max(least);
            // What it brings is seldom new, but what a fault at just this time does is what no other arm finds out.
            if *arm == Arm::AddFault { weight.saturating_mul(ADDED_MORE) } else { weight }
        };
        let weights: Vec<u64> = among.iter().zip(&rates).map(weigh).collect();
        pick(&weights, dice).map(|place| among[place])
    }
}

/// A place of a list, by weight; `None` if all are 0.
pub(crate) fn pick(weights: &[u64], dice: &mut Dice) -> Option<usize> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if total == 0 {
        return None;
    }
    // More than 2^64 only if states are very many: what is lost then is less than a part in 2^32.
    let shift = 128u32.saturating_sub(total.leading_zeros()).saturating_sub(63);
    let total = weights.iter().map(|weight| weight >> shift).sum::<u64>();
    let mut left = dice.below(total.max(1));
    for (place, weight) in weights.iter().enumerate() {
        let weight = weight >> shift;
        if left < weight {
            return Some(place);
        }
        left -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pays_is_done_more_and_nothing_is_given_up() {
        let mut arms = Arms::default();
        for _ in 0..40 {
            arms.ran(Arm::Fresh, 10, 1000);
            arms.ran(Arm::Faults, 200, 500);
            arms.ran(Arm::Timing, 0, 500);
        }
        assert_eq!(arms.fresh(0), Arms::least_fresh(0));
        assert_eq!(arms.fresh(Arms::EARLY), Arms::least_fresh(Arms::EARLY));
        let mut dice = Dice::new(1);
        let mut chosen = [0u32; Arm::COUNT];
        for _ in 0..2000 {
            chosen[arms.choose(&Arm::REDRAWN, &mut dice).expect("one") as usize] += 1;
        }
        assert!(chosen[Arm::Faults as usize] > 4 * chosen[Arm::Timing as usize], "{chosen:?}");
        assert!(chosen[Arm::Timing as usize] > 20, "{chosen:?}");
        // Later nothing else brings anything.
        for _ in 0..400 {
            arms.ran(Arm::Fresh, 10, 1000);
            Arm::REDRAWN.into_iter().for_each(|arm| arms.ran(arm, 0, 500));
        }
        assert!(arms.fresh(100) > 50, "{}", arms.fresh(100));
    }

    #[test]
    fn places_are_picked_by_weight() {
        let mut dice = Dice::new(7);
        assert_eq!(pick(&[], &mut dice), None);
        assert_eq!(pick(&[0, 0], &mut dice), None);
        let mut counts = [0u32; 3];
        (0..3000).for_each(|_| counts[pick(&[1, 0, 2], &mut dice).expect("one")] += 1);
        assert!((800..1200).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
        assert!(pick(&[u64::MAX, u64::MAX, u64::MAX], &mut dice).is_some());
    }
}
