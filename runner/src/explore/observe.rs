//! What a search is told of a run: features, how near it came to a violation, and what in it can be changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_abi::call::Call;
use bloodhound_decisions::{AT_ITS_TIME, Choice, Part, Site, TaskRandom};
use bloodhound_explore::{Planned, Seen, Strategy};
use bloodhound_sim::event::{Event, Listener, Moment};
use bloodhound_sim::faults::KEPT;
use bloodhound_sim::scenario::Scenario;

use super::carry::Carried;
use crate::guidance::{Guide, nearness};
use crate::session::{Outcome, Session};

/// Random numbers of at most so many bytes are choices of a program; longer ones are keys and the like.
const SHORT: u64 = 8;
/// So many random numbers of a run are remembered.
const MOST_DRAWS: usize = 4096;

/// What a run has shown.
pub fn seen(carried: &Carried, session: &Session, eyes: &Eyes) -> Seen {
    let outcome = &carried.outcome;
    let points = carried.moments.iter().map(|moment| moment.0);
    Seen {
        log: carried.log.clone(),
        moments: std::iter::once(carried.ready.0).chain(points).collect(),
        features: eyes.features(),
        nearness: nearness(outcome, &session.plan.properties),
        cost: carried.cost,
        failed: !outcome.violations.is_empty() || outcome.stopped.is_some(),
        faults: Arc::new(faults(outcome)),
        draws: Arc::new(eyes.draws.take()),
    }
}

/// The faults that the run planned, in order of time.
fn faults(outcome: &Outcome) -> Vec<Planned> {
    let planned = outcome.plan.iter().map(|entry| {
        let happens = Choice { part: Part::Run, site: entry.id.site(AT_ITS_TIME) };
        Planned { happens, bound: KEPT, at: entry.begin.0 }
    });
    planned.collect()
}

/// What hears of the runs of a worker.
pub struct Eyes {
    guide: Guide,
    draws: Draws,
}

impl Eyes {
    /// For runs of a scenario by a strategy.
    pub fn new(scenario: &Scenario, strategy: Strategy) -> Eyes {
        Eyes { guide: Guide::new(scenario), draws: Draws::new(strategy) }
    }

    /// Who is to be told what happens in the next run.
    pub fn listener(&self) -> Box<dyn Listener> {
        // What is left of a run that came to no end.
        drop((self.guide.take(), self.draws.take()));
        Box::new(Both { guide: self.guide.listener(), draws: self.draws.listener() })
    }

    fn features(&self) -> Vec<(u64, u64)> {
        self.guide.take().seen.into_iter().map(|(feature, first)| (feature, first.at.0)).collect()
    }
}

struct Both {
    guide: Box<dyn Listener>,
    draws: Option<Box<dyn Listener>>,
}

impl Listener for Both {
    fn hear(&mut self, moment: &Moment, event: &Event<'_>) {
        self.guide.hear(moment, event);
        if let Some(draws) = &mut self.draws {
            draws.hear(moment, event);
        }
    }

    fn wants_choices(&self) -> bool {
        self.draws.is_some()
    }
}

/// The short random numbers that programs ask for in a run, with the times at which they do.
#[derive(Clone)]
struct Draws {
    /// Nobody needs them.
    off: bool,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    /// For each node, the calls of getrandom(2) of whose choices it was not told yet: whether they asked for few bytes. Choices are told after the calls
    /// that made them, in their order.
    calls: BTreeMap<u32, VecDeque<bool>>,
    draws: Vec<(Choice, u64)>,
}

impl Draws {
    /// Those of one run, if the strategy changes any.
    fn new(strategy: Strategy) -> Draws {
        Draws { off: strategy != Strategy::InputTree, heard: Arc::default() }
    }

    /// Who is to be told what happens in the run.
    fn listener(&self) -> Option<Box<dyn Listener>> {
        (!self.off).then(|| Box::new(self.clone()) as Box<dyn Listener>)
    }

    fn take(&self) -> Vec<(Choice, u64)> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner)).draws
    }
}

impl Listener for Draws {
    fn hear(&mut self, moment: &Moment, event: &Event<'_>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.draws.len() >= MOST_DRAWS {
            return;
        }
        match event {
            Event::Call { call: Call::getrandom { len, .. }, result, .. } if (1..=*len).contains(result) => {
                let Some(node) = moment.node else { return };
                heard.calls.entry(node.0).or_default().push_back(*len <= SHORT);
            }
            Event::Choice(made) => {
                let Site::TaskRandom { node, part: TaskRandom::Bytes, .. } = made.choice.site else { return };
                // What comes of no call is read from /dev/urandom.
                let short = heard.calls.get_mut(&node).and_then(VecDeque::pop_front);
                if short == Some(true) {
                    heard.draws.push((made.choice, moment.at.0));
                }
            }
            _ => {}
        }
    }
}
