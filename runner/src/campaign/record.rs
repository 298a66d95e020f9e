//! What a campaign keeps of each seed, as a line of JSON: enough to judge the campaign again, alone or with the seeds of others.
//!
//! Key type: [`SeedRecord`]. [`super::totals::Totals`] are a function of these records, whether they come from the workers of this process or
//! from the files of shards that [`crate::merge`] joins.

use bloodhound_sim::faults::Effect;
use serde::{Deserialize, Serialize};

use super::accounts::{Accounts, ByKind};
use super::totals::{Found, Unjudged};
use crate::judge::Judged;
use crate::session::{Outcome, Stopped};

/// What came of a seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedRecord {
    /// The seed.
    pub seed: u64,
    /// Digest of its run; empty if there was none.
    pub digest: String,
    /// Why it has no verdict, if it has none.
    pub unjudged: Option<Unjudged>,
    /// What it says about each property, in the plan's order.
    pub judged: Vec<Judged>,
    pub steps: u64,
    pub virtual_ns: u64,
    pub operations: u64,
    /// What services asked for outside of the stack: who, and what.
    pub outside: Vec<(String, String)>,
    /// What became of its faults.
    pub accounts: Accounts,
    /// How many of each kind began.
    pub faults: ByKind<u64>,
    /// What was found. In files the place of a finding is the name of its directory.
    pub findings: Vec<Found>,
}

impl SeedRecord {
    /// Of a run, without its findings.
    pub fn of(outcome: &Outcome) -> SeedRecord {
        let unjudged = outcome.stopped.as_ref().map(|stopped| match stopped {
            Stopped::Interrupted => Unjudged::Interrupted,
            Stopped::Undecided(why) => Unjudged::Undecided(why.clone()),
            Stopped::Unsupported(what) => Unjudged::Unsupported(what.clone()),
        });
        let mut accounts = Accounts::default();
        accounts.add(outcome);
        let mut faults = ByKind::default();
        for (planned, effect) in outcome.plan.iter().zip(&outcome.effects) {
            if *effect == Effect::Begun && planned.id.kind.declaration().is_timed() {
                *faults.0.entry(planned.id.kind).or_default() += 1;
            }
        }
        for (kind, hits) in outcome.hits.iter().filter(|(kind, _)| kind.declaration().is_asked()) {
            *faults.0.entry(*kind).or_default() += hits;
        }
        SeedRecord {
            seed: outcome.number(),
            digest: outcome.digest.clone(),
            unjudged,
            judged: outcome.judged.clone(),
            steps: outcome.steps,
            virtual_ns: outcome.virtual_time.0,
            operations: outcome.history.operations().len() as u64,
            outside: outcome.outside.iter().map(|(who, what, _)| (who.clone(), what.clone())).collect(),
            accounts,
            faults,
            findings: Vec::new(),
        }
    }

    /// Of a seed that did not run to an end of any kind.
    pub fn lost(seed: u64, why: Unjudged) -> SeedRecord {
        SeedRecord {
            seed,
            digest: String::new(),
            unjudged: Some(why),
            judged: Vec::new(),
            steps: 0,
            virtual_ns: 0,
            operations: 0,
            outside: Vec::new(),
            accounts: Accounts::default(),
            faults: ByKind::default(),
            findings: Vec::new(),
        }
    }

    /// Whether its run says something about properties, be it judged or not.
    pub fn ran(&self) -> bool {
        matches!(self.unjudged, None | Some(Unjudged::Unsupported(_)))
    }

    /// Whether another run of the seed may come to a verdict.
    pub fn is_to_be_run_again(&self) -> bool {
        matches!(self.unjudged, Some(Unjudged::Interrupted | Unjudged::TimedOut | Unjudged::Host(_)))
    }

    /// Whether it has a finding that is not known, so that the gate fails by it.
    pub fn has_news(&self) -> bool {
        self.findings.iter().any(|found| !found.is_known())
    }

    /// Whether its run came to an end that any other run of the seed must come to as well.
    pub fn is_final(&self) -> bool {
        self.ran() && !self.digest.is_empty()
    }
}
