//! Ranges of seeds that workers take from a store: each takes the next that nobody has, and those of workers that are dead.
//!
//! Key types: [`Deal`] (where a campaign's next seed comes from), [`Claims`]. A claim is an object that only one can create; the
//! number in its name says the how manieth attempt at the range it is. A worker is taken for dead when its beats have not changed for a
//! time, measured by the clock of who looks: no two machines need to have the same time. If it lives after all, its seeds are run
//! twice, which `merge` counts once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bloodhound_store::{Error, Store};
use serde::{Deserialize, Serialize};

use super::share::{Campaign, LAST_BEAT, beat, block_name};
use crate::campaign::seeds::Seeds;
use crate::output;

/// How often a worker that waits for others looks.
const LOOK: Duration = Duration::from_millis(500);
/// How often it looks whether it is to end.
const SHORT: Duration = Duration::from_millis(50);
/// The most attempts at a range: seeds that kill whoever runs them must come to an end.
const ATTEMPTS: u64 = 5;

/// Where the next seed comes from.
#[derive(Debug)]
pub enum Deal {
    /// All are this process's own.
    Own {
        /// They.
        seeds: Seeds,
        /// How many were taken.
        next: AtomicU64,
        /// Another process has ended the campaign.
        stopped: Option<Arc<AtomicBool>>,
    },
    /// They are taken from a store.
    Claims(Arc<Claims>),
}

impl Deal {
    /// The next seed, if there is one. May wait for other workers, until `closed` says that no more is to be begun, and as long as
    /// `may_wait` says that this process has nothing left that others could be waiting for.
    pub fn next(&self, closed: &dyn Fn() -> bool, may_wait: &dyn Fn() -> bool) -> Option<u64> {
        match self {
            Deal::Own { stopped: Some(stopped), .. } if stopped.load(Ordering::Relaxed) => None,
            Deal::Own { seeds, next, .. } => seeds.number(next.fetch_add(1, Ordering::Relaxed)),
            Deal::Claims(claims) => claims.next(closed, may_wait),
        }
    }
}

/// A claim, as it is in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claim {
    worker: String,
    token: String,
}

#[derive(Debug, Default)]
struct State {
    /// The rest of the range that is being run.
    current: std::ops::Range<u64>,
    /// How many seeds were taken.
    taken: u64,
    /// There is nothing left, or the store has failed.
    over: bool,
    looked: Option<Instant>,
    /// Claims that were read, by key: they do not change.
    read: BTreeMap<String, Claim>,
    /// The last beat of each worker, and when it was first seen.
    beats: BTreeMap<String, (Option<Vec<u8>>, Instant)>,
    failure: Option<String>,
}

/// The ranges of a campaign.
#[derive(Debug)]
pub struct Claims {
    store: Arc<Store>,
    /// The campaign.
    pub campaign: Campaign,
    name: String,
    token: String,
    stopped: Arc<AtomicBool>,
    state: Mutex<State>,
}

/// What came of a look for a range.
enum Offer {
    /// It was taken.
    Taken(u64),
    /// Others have all that is left.
    Wait,
    /// All are done, or given up.
    Over,
}

/// Who has a range.
enum Owner {
    /// This worker.
    Own,
    /// Another one, which lives.
    Lives,
    /// One of this name, of which nothing is heard.
    Dead(String),
}

impl Claims {
    /// None is taken yet.
    pub fn new(
        store: Arc<Store>,
        campaign: Campaign,
        name: String,
        token: String,
        stopped: Arc<AtomicBool>,
    ) -> Claims {
        Claims { store, campaign, name, token, stopped, state: Mutex::default() }
    }

    /// How many seeds were taken.
    pub fn taken(&self) -> u64 {
        self.state().taken
    }

    /// Whether a finding of another process has ended the campaign.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// What the store said when no more could be taken, if that was the reason.
    pub fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// All seeds of a range have come to an end, and are in the store.
    ///
    /// # Errors
    /// What the store says.
    pub fn done(&self, block: u64) -> Result<(), Error> {
        self.store.put(&format!("done/{}", block_name(block)), format!("{}\n", self.token).as_bytes())
    }

    fn next(&self, closed: &dyn Fn() -> bool, may_wait: &dyn Fn() -> bool) -> Option<u64> {
        loop {
            if closed() || self.is_stopped() {
                return None;
            }
            let mut state = self.state();
            if let Some(seed) = state.current.next() {
                state.taken += 1;
                return Some(seed);
            }
            if state.over {
                return None;
            }
            if state.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                match self.look(&mut state) {
                    Ok(Offer::Taken(block)) => {
                        let (first, count) = self.campaign.range(block);
                        // The last number there is would not fit behind its range.
                        state.current = first..first.saturating_add(count);
                        continue;
                    }
                    Ok(Offer::Wait) => state.looked = Some(Instant::now()),
                    Ok(Offer::Over) => state.over = true,
                    Err(error) => {
                        state.failure = Some(error.to_string());
                        state.over = true;
                    }
                }
            }
            let waits = !state.over;
            drop(state);
            if waits && !may_wait() {
                return None;
            }
            std::thread::sleep(SHORT);
        }
    }

    fn look(&self, state: &mut State) -> Result<Offer, Error> {
        let number = |key: &str| key.split('/').nth(1)?.strip_prefix("block-")?.parse::<u64>().ok();
        let done: std::collections::BTreeSet<u64> =
            self.store.list("done/")?.iter().filter_map(|key| number(key)).collect();
        // The last attempt at each.
        let mut claimed: BTreeMap<u64, u64> = BTreeMap::new();
        for key in self.store.list("claims/")? {
            let attempt: Option<u64> =
                key.rsplit('/').next().and_then(|name| name.strip_prefix("attempt-")?.parse().ok());
            if let (Some(block), Some(attempt)) = (number(&key), attempt) {
                let last = claimed.entry(block).or_default();
                *last = attempt.max(*last);
            }
        }
        let left = |block: &u64| !done.contains(block);
        for block in (0..self.campaign.blocks()).filter(left).filter(|block| !claimed.contains_key(block)) {
            if self.claim(block, 1)? {
                return Ok(Offer::Taken(block));
            }
        }
        let mut wait = false;
        for (block, attempt) in
            claimed.into_iter().filter(|(block, _)| left(block) && *block < self.campaign.blocks())
        {
            match self.owner(state, block, attempt)? {
                Owner::Own => {}
                Owner::Lives => wait = true,
                Owner::Dead(_) if attempt >= ATTEMPTS => {}
                Owner::Dead(worker) => {
                    if self.claim(block, attempt + 1)? {
                        let (first, count) = self.campaign.range(block);
                        let last = first + (count - 1);
                        output::eprint(&format!(
                            "bloodhound: nothing was heard of worker {worker}: its seeds {first} to {last} are run again\n"
                        ));
                        return Ok(Offer::Taken(block));
                    }
                    wait = true;
                }
            }
        }
        Ok(if wait { Offer::Wait } else { Offer::Over })
    }

    fn claim(&self, block: u64, attempt: u64) -> Result<bool, Error> {
        let claim = Claim { worker: self.name.clone(), token: self.token.clone() };
        let text = serde_json::to_string(&claim).unwrap_or_default();
        self.store.create(&key(block, attempt), text.as_bytes())
    }

    /// Who has a range.
    fn owner(&self, state: &mut State, block: u64, attempt: u64) -> Result<Owner, Error> {
        let key = key(block, attempt);
        let claim = match state.read.get(&key) {
            Some(claim) => claim.clone(),
            None => {
                let bytes = self.store.get(&key)?.unwrap_or_default();
                // A claim that cannot be read has nobody who could be asked.
                let nobody = Claim { worker: "without a name".into(), token: "none".into() };
                let claim: Claim = serde_json::from_slice(&bytes).unwrap_or(nobody);
                state.read.insert(key, claim.clone());
                claim
            }
        };
        if claim.token == self.token {
            return Ok(Owner::Own);
        }
        let now = self.store.get(&beat(&claim.token)).or_else(|error| match claim.token.as_str() {
            "none" => Ok(None),
            _ => Err(error),
        })?;
        let seen = state.beats.entry(claim.token).or_insert_with(|| (now.clone(), Instant::now()));
        if seen.0 != now {
            *seen = (now, Instant::now());
        }
        let dead = seen.0.as_deref() == Some(LAST_BEAT)
            || seen.1.elapsed() >= Duration::from_millis(self.campaign.stale_ms);
        Ok(if dead { Owner::Dead(claim.worker) } else { Owner::Lives })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked in here had taken at most one range, which others take again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of an attempt at a range.
fn key(block: u64, attempt: u64) -> String {
    format!("claims/{}/attempt-{attempt}", block_name(block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Part;
    use crate::shard::tests::manifest;
    use bloodhound_store::Place;

    /// Workers of a campaign of ten seeds over a directory.
    fn workers(name: &str, names: &[&str], stale_ms: u64) -> (std::path::PathBuf, Vec<Claims>) {
        let dir = std::env::temp_dir().join(format!("bloodhound-claims-{}-{name}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&dir);
        let claims = |name: &&str| {
            let store = Arc::new(Store::open(&Place::Directory(dir.clone())).expect("a store"));
            let mut campaign = Campaign::of(&manifest(Part::All), Duration::from_millis(stale_ms));
            campaign.block = 3;
            Claims::new(store, campaign, (*name).to_owned(), format!("token-{name}"), Arc::default())
        };
        let claims = names.iter().map(claims).collect();
        (dir, claims)
    }

    #[test]
    fn each_range_has_one_worker() {
        let (dir, workers) = workers("one", &["a", "b"], 60_000);
        let mut seen = Vec::new();
        // Each takes a range after the other; what both have then is all there is.
        for (worker, count) in [(0, 3), (1, 3), (0, 3), (1, 1)] {
            seen.extend((0..count).filter_map(|_| workers[worker].next(&|| false, &|| true)));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<u64>>());
        (0..4).for_each(|block| workers[0].done(block).expect("written"));
        assert_eq!(
            (workers[0].next(&|| false, &|| true), workers[1].next(&|| false, &|| true)),
            (None, None)
        );
        assert_eq!(workers[0].taken() + workers[1].taken(), 10);
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn ranges_of_the_dead_are_taken_until_they_were_tried_often_enough() {
        let (dir, workers) = workers("dead", &["a", "b"], 1);
        let (dead, other) = (&workers[0], &workers[1]);
        assert_eq!(dead.next(&|| false, &|| true), Some(0));
        let taken: Vec<u64> = std::iter::from_fn(|| other.next(&|| false, &|| true)).collect();
        // Its own ranges are not done, and nobody but itself would do them.
        assert_eq!(taken, (3..10).chain(0..3).collect::<Vec<u64>>());
        // Who ends says so, and is not waited for; nobody tries for ever.
        for attempt in 2..=ATTEMPTS {
            other.store.put(&beat("token-b"), LAST_BEAT).expect("written");
            assert!(other.store.get(&key(0, attempt - 1)).expect("read").is_some(), "{attempt}");
            if attempt > 2 {
                let claim = Claim { worker: "c".into(), token: "token-b".into() };
                let text = serde_json::to_string(&claim).expect("text");
                assert_eq!(other.store.create(&key(0, attempt), text.as_bytes()), Ok(true));
            }
        }
        let late = Claims::new(
            other.store.clone(),
            other.campaign.clone(),
            "d".into(),
            "token-d".into(),
            Arc::default(),
        );
        let taken: Vec<u64> = std::iter::from_fn(|| late.next(&|| false, &|| true)).collect();
        assert_eq!(taken, (3..10).collect::<Vec<u64>>());
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn who_has_something_left_to_run_does_not_wait_for_others() {
        let (dir, workers) = workers("waits", &["a", "b"], 60_000);
        let all: Vec<u64> = std::iter::from_fn(|| workers[0].next(&|| false, &|| false)).collect();
        assert_eq!(all.len(), 10);
        // The ranges of the other are not done, and it lives.
        assert_eq!(workers[1].next(&|| false, &|| false), None);
        assert!(!workers[1].state().over);
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn a_store_that_fails_ends_the_worker_and_is_told() {
        let (dir, workers) = workers("fails", &["a"], 60_000);
        std::fs::remove_dir_all(&dir).expect("no directory");
        std::fs::write(&dir, "no directory any more").expect("a file");
        assert_eq!(workers[0].next(&|| false, &|| true), None);
        let failure = workers[0].failure().expect("it is told");
        assert!(failure.starts_with("cannot ") && failure.contains("help: "), "{failure}");
        std::fs::remove_file(dir).expect("no file");
    }
}
