//! The work of shrinking one finding: from its files to those of the shrunken one ([`Order::carry_out`]).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bloodhound_abi::SimTime;
use bloodhound_decisions::Log;

use super::case;
use super::pool::{Pool, Ran};
use super::search::{Dimension, Search};
use super::story::{self, Told};
use super::times::Window;
use crate::finding::{self, Record, Stored};
use crate::group::Group as Target;
use crate::memory::Budget;
use crate::platform::{self, Chosen};
use crate::session::{Ending, Failure, Outcome, Session, Worker};
use crate::{bug, exit, output};

/// Runs at the same time are of use up to here: a round has no more.
pub const WORKERS: usize = 4;
/// What comes after the search takes about as long as so many runs of the finding and its boot: the run to its end, and two replays.
const AFTER: u32 = 3;

/// How far a search may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most runs.
    pub runs: u32,
    /// When all is to be ready, about.
    pub deadline: Option<Instant>,
    /// Runs at the same time.
    pub workers: usize,
    /// What they may use.
    pub memory: Budget,
}

/// A finding that is to be shrunk.
pub struct Order<'a> {
    pub session: Arc<Session>,
    /// Gives the session of the last runs.
    pub afresh: &'a (dyn Fn() -> Result<Arc<Session>, Failure> + Sync),
    pub chosen: Chosen,
    pub interrupt: Arc<AtomicBool>,
    pub limits: Limits,
    /// The directory of what is left.
    pub out: &'a Path,
    /// The search says on standard error how far it is.
    pub says: bool,
}

/// A finding that was shrunk and written.
#[derive(Clone, Debug, Default)]
pub struct Shrunk {
    /// For people.
    pub story: String,
    /// For machines.
    pub json: serde_json::Value,
    /// Of the run that is left.
    pub digest: String,
}

/// What a search came to.
struct Found {
    /// The run of what is left, to its end.
    ran: Ran,
    runs: u32,
    dimensions: Vec<Dimension>,
    /// When faults may begin.
    windows: Vec<Window>,
    /// It is another run than that of the finding.
    drawn_anew: bool,
    /// Why it ended before all was tried, if so.
    early: Option<&'static str>,
}

impl Order<'_> {
    /// Searches, runs what is left twice as a replay does it, and writes it.
    ///
    /// # Errors
    /// The finding does not fail any more; what the host says; interrupted. Nothing is written then.
    pub fn carry_out(&self, Stored { record, log, .. }: Stored) -> Result<Shrunk, Failure> {
        let target = Target::of(&record);
        if self.says {
            output::eprint(&format!("bloodhound: shrinking seed {}: {target}\n", record.seed));
        }
        let Found { ran, runs, dimensions, windows, drawn_anew, early } =
            self.search(&target, &record, log)?;
        let session = (self.afresh)()?;
        let log = case::settled(&ran);
        let (outcome, second) = self.twice(&session, &log, &target, &ran.outcome)?;
        let violation = target.violated(&outcome).filter(|_| outcome.digest == second.digest);
        let Some(violation) = violation else {
            return Err(finding::differs("the second replay", &second, &outcome.digest));
        };
        let (dimensions, windows, original) = (&dimensions[..], &windows[..], &record);
        let told =
            Told { original, outcome: &outcome, violation, dimensions, windows, runs, drawn_anew, early };
        let text = story::text(&told);
        let platform = self.chosen.record();
        finding::save_shrunk(self.out, &record, &session, (&outcome, violation), platform, &text).map_err(
            |error| Failure::environment(format!("the shrunken finding cannot be written: {error}")),
        )?;
        let json = story::json(&told, self.out);
        Ok(Shrunk { story: text, json, digest: outcome.digest.clone() })
    }

    /// Runs the finding again, and searches.
    fn search(&self, target: &Target, record: &Record, log: Log) -> Result<Found, Failure> {
        let Limits { runs, deadline, workers, memory } = self.limits;
        let workers = workers.clamp(1, WORKERS);
        let pool_on = |chosen| {
            let stops = (self.interrupt.clone(), deadline, memory);
            Pool::new(self.session.clone(), chosen, stops, &log, workers)
        };
        let mut pool = pool_on(self.chosen)?;
        let begun = Instant::now();
        if deadline.is_some_and(|deadline| begun >= deadline) {
            let text = "the time was over before the finding was run again: nothing is written";
            return Err(Failure { code: exit::INCONCLUSIVE, text: text.into() });
        }
        let ran = pool.look(log.clone(), Ending::at(SimTime::MAX))?;
        finding::as_recorded(&ran.outcome, record, "shrink")?;
        let took = begun.elapsed();
        // Where time is limited the search is made on the faster platform, if the run is the same one there. The last runs are made on the chosen one.
        let worth = deadline.is_some_and(|deadline| Instant::now() + took * AFTER < deadline);
        if worth
            && let Some(faster) = platform::faster(&self.chosen)
            && let Ok(there) = pool_on(faster)
            && let Ok(again) = there.look(log.clone(), Ending::at(SimTime::MAX))
            && again.outcome.digest == ran.outcome.digest
        {
            if self.says {
                output::eprint(&format!(
                    "bloodhound: the search is made on {}, which is faster here\n",
                    faster.name
                ));
            }
            pool = there;
        }
        let end = deadline.map(|deadline| ends(deadline, took));
        let original = ran.clone();
        let mut search = Search::new(&pool, target.clone(), (ran, self.says), runs);
        search.time = end.map(|end| (begun, end));
        search.all()?;
        // What was cut short fails to its end as well, for a violation is not taken back. If it did not, the finding itself is what is left.
        let left = search.until_its_end()?;
        let Search { runs: made, late, mut dimensions, mut windows, drawn_anew, .. } = search;
        let open = dimensions.iter().any(|dimension| !dimension.minimal);
        let early = match &left {
            None => {
                Some("what was found does not fail when it is run to its end, so this is the whole finding")
            }
            Some(_) if late => Some("the time was over"),
            // With everything tried there is nothing that a larger budget could do.
            Some(_) if open && made >= runs.saturating_sub(2) => Some("the budget of runs was used up"),
            Some(_) => None,
        };
        if left.is_none() {
            dimensions.iter_mut().for_each(|d| (d.after, d.minimal) = (d.before, false));
            windows.clear();
        }
        let drawn_anew = drawn_anew && left.is_some();
        Ok(Found { ran: left.unwrap_or(original), runs: made, dimensions, windows, drawn_anew, early })
    }

    /// Runs what is left twice as `replay` does, each time from a boot of its own, both at the same time.
    fn twice(
        &self,
        session: &Arc<Session>,
        log: &Log,
        target: &Target,
        searched: &Outcome,
    ) -> Result<(Outcome, Outcome), Failure> {
        let run = || bug::contain(|| self.replay(session, log, target, searched));
        // On threads of their own, for a platform binds its thread to a processor.
        let (one, two) = std::thread::scope(|scope| {
            let (one, two) = (scope.spawn(run), scope.spawn(run));
            (one.join(), two.join())
        });
        let told = |result: std::thread::Result<Result<Result<Outcome, Failure>, String>>| match result {
            Ok(Ok(result)) => result,
            Ok(Err(text)) => Err(Failure { code: exit::BUG, text }),
            Err(_) => Err(Failure { code: exit::BUG, text: "a replay panicked".into() }),
        };
        Ok((told(one)?, told(two)?))
    }

    fn replay(
        &self,
        session: &Arc<Session>,
        log: &Log,
        target: &Target,
        searched: &Outcome,
    ) -> Result<Outcome, Failure> {
        let worker = Worker::unmeasured(session.clone(), &self.chosen, self.interrupt.clone())?;
        finding::fails_again(worker, log, target, ("the replay of what is left", &searched.digest))
    }
}

/// When a search has to end so that what comes after it is ready at the deadline; `took`: boot and run of the finding.
fn ends(deadline: Instant, took: Duration) -> Instant {
    let now = Instant::now();
    let left = deadline.saturating_duration_since(now);
    // At least half of the time is for the search.
    now + left.saturating_sub(took * AFTER).max(left / 2)
}
