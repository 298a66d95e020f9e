//! The numbers of a campaign's seeds: which ones it has, and which of them a shard runs.
//!
//! Key type: [`Seeds`]. Shards are dealt the seeds one by one, as cards are: shard i of n has those whose place in the campaign is i - 1 modulo n.

use crate::session::Failure;
use crate::shard::Shard;

/// The seeds of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// Those of the whole campaign.
    pub first: u64,
    pub all: u64,
    /// The shard whose seeds these are, if they are not all.
    pub shard: Option<Shard>,
}

impl Seeds {
    /// # Errors
    /// Usage: there are none, or no such numbers.
    pub fn new(first: u64, count: u64, shard: Option<Shard>) -> Result<Seeds, Failure> {
        let Some(last) = count.checked_sub(1) else {
            return Err(Failure::usage("`--seeds 0` would judge nothing\nhelp: give at least one seed"));
        };
        if first.checked_add(last).is_none() {
            let left = u64::MAX - first;
            return Err(Failure::usage(format!(
                "{count} seeds from {first} on are too many: the last seed is {}, so at most {} are left\nhelp: give \
                 another `--first-seed` or `--seeds`",
                u64::MAX,
                u128::from(left) + 1
            )));
        }
        let seeds = Seeds { first, all: count, shard };
        match (shard, seeds.count()) {
            (Some(shard), 0) => Err(Failure::usage(format!(
                "shard {shard} would judge nothing: there are {count} seeds, and with {} shards the last ones have none\nhelp: \
                 make at most {count} shards, or give more `--seeds`",
                shard.of
            ))),
            _ => Ok(seeds),
        }
    }

    /// How many are to be run.
    pub fn count(&self) -> u64 {
        self.shard.map_or(self.all, |shard| shard.share(self.all))
    }

    /// Whether it is one of the campaign's, whichever shard runs it.
    pub fn of_all(&self, seed: u64) -> bool {
        seed.checked_sub(self.first).is_some_and(|place| place < self.all)
    }

    /// Whether it is one of them.
    pub fn contains(&self, seed: u64) -> bool {
        let own = |shard: Shard| (seed - self.first) % shard.of == shard.index - 1;
        self.of_all(seed) && self.shard.is_none_or(own)
    }

    /// The seed with this number, from 0.
    pub fn number(&self, number: u64) -> Option<u64> {
        let place = self.shard.map_or(Some(number), |shard| shard.place(number))?;
        (place < self.all).then(|| self.first + place)
    }
}

impl std::fmt::Display for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.first + (self.all - 1);
        match (self.shard, self.all) {
            (None, 1) => write!(f, "seed {last}"),
            (None, _) => write!(f, "seeds {} to {last}", self.first),
            (Some(shard), _) => {
                write!(f, "shard {shard}, {} of the seeds {} to {last}", self.count(), self.first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[test]
    fn seeds_are_numbers_that_there_are() {
        let seeds = Seeds::new(u64::MAX, 1, None).expect("the last seed");
        assert_eq!((seeds.number(0), seeds.number(1)), (Some(u64::MAX), None));
        assert_eq!(seeds.to_string(), "seed 18446744073709551615");
        let all = Seeds::new(0, u64::MAX, None).expect("nearly all");
        assert_eq!(all.to_string(), "seeds 0 to 18446744073709551614");
        assert_eq!(Seeds::new(7, 3, None).expect("some").to_string(), "seeds 7 to 9");
        for (first, count) in [(0, 0), (u64::MAX, 2), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let wrong =
                Seeds::new(first, count, None).map(|s| (first, count) == (1, u64::MAX) && s.count() > 0);
            match wrong {
                Ok(fits) => assert!(fits, "{first} {count}"),
                Err(failure) => assert_eq!(failure.code, exit::USAGE),
            }
        }
        assert!(Seeds::new(u64::MAX - 1, 3, None).expect_err("too many").text.contains("at most 2 are left"));
    }

    #[test]
    fn shards_have_each_seed_once() {
        for (all, of) in [(10, 4), (4, 4), (200, 7), (1, 1), (5, 2)] {
            let mut seen = Vec::new();
            for index in 1..=of {
                let seeds = Seeds::new(100, all, Some(Shard { index, of })).expect("a shard with seeds");
                let own: Vec<u64> = (0..).map_while(|number| seeds.number(number)).collect();
                assert_eq!(own.len() as u64, seeds.count(), "{index}/{of} of {all}");
                seen.extend(own);
            }
            seen.sort_unstable();
            assert_eq!(seen, (100..100 + all).collect::<Vec<u64>>(), "{of} shards of {all}");
        }
        let last = Seeds::new(0, u64::MAX, Some(Shard { index: u64::MAX, of: u64::MAX })).expect("one seed");
        assert_eq!((last.number(0), last.number(1)), (Some(u64::MAX - 1), None));
        let none = Seeds::new(0, 3, Some(Shard { index: 4, of: 4 })).expect_err("no seeds");
        assert!(
            none.code == exit::USAGE && none.text.contains("shard 4/4 would judge nothing"),
            "{}",
            none.text
        );
        let named = Seeds::new(0, 10, Some(Shard { index: 2, of: 4 })).expect("a shard").to_string();
        assert_eq!(named, "shard 2/4, 3 of the seeds 0 to 9");
    }
}
