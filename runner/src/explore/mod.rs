//! `bloodhound explore`, and `test` with a strategy that is guided: a search that goes on from moments of its runs with other choices.
//!
//! What is run next is decided by [`bloodhound_explore`]; here it is run ([`workers`]), looked at ([`observe`]) and judged, by the campaign that `test` has too
//! ([`crate::campaign`]), with a [`journal`] from which it goes on: a run that goes on from another counts as one run. Results are taken in the order of the runs' numbers, so findings, states
//! and reports are the same for any number of workers; only --timeout and what the host refuses cut a search.

mod carry;
mod given;
mod journal;
mod observe;
mod workers;

use bloodhound_explore::{Prefer, Search, Settings, Strategy};
use serde_json::{Value as Json, json};

use crate::campaign::{self, Common};
use crate::cli;
use crate::session::Session;

pub use journal::{Journal, Step};
pub use workers::{Hunt, run_all};

/// Arguments of `explore`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// How many runs the search makes (default: the configuration's `simulation.seeds`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,
    /// The first of the seeds that it begins, from which all its choices follow as well
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Begin no runs after so much host time (for example 10m); one that then does not end is stopped
    #[arg(long, value_parser = cli::duration)]
    pub timeout: Option<u64>,
    /// Stop at the first finding that is not known
    #[arg(long)]
    pub fail_fast: bool,
    /// Runs at the same time (default: exploration.parallel_workers, at most the number of CPUs); the result does not depend on it
    #[arg(long, short = 'j')]
    pub jobs: Option<usize>,
    /// When the runs are made, shrink one finding of each group within so much host time for all of them (default: 1m; docs/shrinking.md)
    #[arg(long, value_name = "TIME", value_parser = cli::duration, conflicts_with = "no_shrink")]
    pub shrink_budget: Option<u64>,
}

/// How runs are chosen.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SearchArgs {
    /// How the next run is chosen: random, swarm, bfs, dfs, coverage-guided or input-tree (docs/exploration.md; default: the configuration's
    /// `exploration.strategy`; of `explore`, if that is not guided, coverage-guided)
    #[arg(long, value_name = "STRATEGY", value_parser = strategy)]
    pub strategy: Option<Strategy>,
    /// How many times a search goes on from a run that went on from another (default: the configuration's `exploration.max_depth`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_depth: Option<u64>,
    /// Most moments of runs that a search keeps to go on from (default: the configuration's `exploration.max_states`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_states: Option<u64>,
}

fn strategy(text: &str) -> Result<Strategy, String> {
    text.parse()
}

impl SearchArgs {
    /// The strategy of a campaign.
    pub fn strategy_of(&self, session: &Session) -> Strategy {
        self.strategy.unwrap_or(session.plan.strategy)
    }

    /// The settings of a search.
    pub fn settings(&self, session: &Session, first_seed: u64, runs: u64) -> Settings {
        let exploration = &session.project.config.exploration;
        let states = self.max_states.unwrap_or(exploration.max_states);
        Settings {
            strategy: self.strategy_of(session),
            first_seed,
            runs,
            max_depth: u32::try_from(self.max_depth.unwrap_or(exploration.max_depth)).unwrap_or(u32::MAX),
            max_states: usize::try_from(states).unwrap_or(usize::MAX),
            prefer: Prefer {
                rare: exploration.prioritize_coverage,
                near: exploration.prioritize_near_violation,
            },
        }
    }
}

/// `bloodhound explore`.
pub fn run(args: &Args) -> u8 {
    campaign::explore(args)
}

/// What a search came to, for reports.
#[derive(Clone, Debug)]
pub struct Summary {
    strategy: Strategy,
    runs: u64,
    newest: u64,
    seeds: u64,
    /// Runs of the corpus from which it went on.
    given: u64,
    states: usize,
    come_to: u64,
    features: usize,
    /// There is no room for further features: they are not told apart.
    full: bool,
    singletons: usize,
    arms: Vec<(&'static str, u64)>,
}

impl Summary {
    /// Of a search as it is.
    pub fn of(search: &Search) -> Summary {
        let (runs, newest) = search.merged();
        Summary {
            strategy: search.settings().strategy,
            runs,
            newest,
            seeds: search.seeds(),
            given: search.given(),
            states: search.frontier().len(),
            come_to: search.frontier().come_to(),
            features: search.features().len(),
            full: search.features().is_full(),
            singletons: search.features().singletons(),
            arms: search.runs_of_arms().map(|(arm, runs)| (arm.name(), runs)).collect(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let arms: Vec<String> = self.arms.iter().map(|(name, runs)| format!("{runs} {name}")).collect();
        let full = if self.full { ", and no room for more" } else { "" };
        let given = match self.given {
            0 => String::new(),
            runs => format!("; it was given what {runs} entries of the corpus show"),
        };
        format!(
            "search: {}, {} states kept of {}, {} features{full} ({} of them in one run only; the last new one in run {} of {}); runs: {}{given}",
            self.strategy.name(),
            self.states,
            self.come_to,
            self.features,
            self.singletons,
            self.newest,
            self.runs,
            arms.join(", ")
        )
    }

    /// For machines.
    pub fn json(&self) -> Json {
        let arms = self.arms.iter().map(|(name, runs)| ((*name).to_owned(), Json::from(*runs)));
        json!({
            "strategy": self.strategy.name(), "runs": self.runs, "seeds": self.seeds, "given": self.given, "states": self.states,
            "states_come_to": self.come_to, "features": self.features, "features_are_full": self.full, "features_seen_once": self.singletons,
            "last_new_in_run": self.newest, "runs_by_arm": arms.collect::<serde_json::Map<_, _>>(),
        })
    }
}
