//! The threads of a search, and the main thread, which takes their results in the order of the runs' numbers and orders what comes next.
//!
//! Key types: [`Hunt`] (what a search needs), [`Taker`] (the main thread's side). What goes wrong in one run takes nothing from the others, as in
//! `campaign::workers`, whose collector judges and saves here too. Threads and messages are those of `campaign::crew`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use bloodhound_abi::SimTime;
use bloodhound_decisions::Log;
use bloodhound_explore::{Order, Origin, Search, Seen, Settings};
use bloodhound_sim::faults::fault_chains;

use super::carry::{Points, carry};
use super::given::give;
use super::observe::{Eyes, seen};
use super::{Journal, Summary};
use crate::boots::Boots;
use crate::bug;
use crate::campaign::crew::{self, Ended, LOOK, Message, Takes, stopped};
use crate::campaign::order::Task;
use crate::campaign::totals::Unjudged;
use crate::campaign::watch::{Lane, Watch};
use crate::campaign::workers::{self, Collector};
use crate::platform::Chosen;
use crate::session::{Failure, Numbered, Session, Stopped, Worker};

/// What a search needs.
pub struct Hunt {
    pub session: Arc<Session>,
    pub chosen: Chosen,
    pub boots: Arc<Boots>,
    pub watch: Arc<Watch>,
    pub settings: Settings,
    /// Runs of the corpus from which it goes on as well.
    pub given: Vec<Log>,
}

/// What all workers share.
struct Shared {
    hunt: Hunt,
    /// Snapshots of states.
    points: Points,
    queue: Mutex<VecDeque<Order>>,
    /// Something was put into the queue.
    bell: Condvar,
    /// There will be no more orders.
    over: AtomicBool,
    /// Workers that have begun and not ended.
    alive: AtomicUsize,
    /// What runs have reached is wanted for the corpus.
    keeps: bool,
}

/// A run, and what it has shown.
struct Ran {
    ran: workers::Ran,
    seen: Seen,
}

type Sender = mpsc::Sender<Message<u64, Ran>>;

impl Shared {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Order>> {
        // A worker that panicked has ended the process (`bug::install`).
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, orders: impl IntoIterator<Item = Order>) {
        self.queue().extend(orders);
        self.bell.notify_all();
    }

    /// The next order, waited for; `None`: the worker ends.
    fn take(&self) -> Option<Order> {
        let mut queue = self.queue();
        loop {
            if self.hunt.watch.is_closed() {
                return None;
            }
            if let Some(order) = queue.pop_front() {
                return Some(order);
            }
            if self.over.load(Ordering::Relaxed) {
                return None;
            }
            queue = self.bell.wait_timeout(queue, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// There was no memory for a run: what can be made again is given up. True: this is the last worker, which goes on; the others end, so that fewer
    /// runs are made at once from now on.
    fn relieve(&self, order: &Order, lane: &Lane) -> bool {
        self.points.clear();
        self.hunt.boots.give_up_others(order.seed);
        bloodhound_frames::trim();
        let is_last = self.alive.fetch_sub(1, Ordering::AcqRel) == 1;
        self.alive.fetch_add(usize::from(is_last), Ordering::AcqRel);
        lane.relieved();
        is_last
    }

    /// The life of a worker.
    fn work(&self, sender: &Sender) {
        self.alive.fetch_add(1, Ordering::AcqRel);
        let (mut worker, lane) = (None, self.hunt.watch.lane());
        // The run for which there was no memory although no other was made.
        let mut alone = None;
        let eyes = Eyes::new(&self.hunt.session.scenario, self.hunt.settings.strategy);
        while let Some(order) = self.take() {
            let number = order.number;
            // Nobody to tell: then nobody waits for results either.
            if sender.send(Message::Begun(number)).is_err() {
                break;
            }
            if self.hunt.watch.memory_is_short() {
                self.points.clear();
                self.hunt.boots.give_up_others(order.seed);
            }
            let begun = Instant::now();
            let ran = bug::contain(|| self.run((&mut worker, &eyes), &order, &lane));
            let ended = match ran {
                ran if lane.is_short() && self.hunt.watch.halted().is_none() => {
                    drop((ran, worker.take()));
                    let is_last = self.relieve(&order, &lane);
                    if !is_last || alone != Some(number) {
                        // What was given up just now may have been all that was missing.
                        alone = is_last.then_some(number);
                        self.queue().push_front(order);
                        let _ignored = sender.send(Message::Postponed(number));
                        if is_last {
                            continue;
                        }
                        return;
                    }
                    Ended::TooLarge
                }
                Ok(Ok(ran)) => Ended::Ran(Box::new(ran)),
                Ok(Err(failure)) => {
                    worker = None;
                    Ended::Lost(crew::lost(failure, &self.hunt.watch, &self.hunt.chosen))
                }
                Err(text) => {
                    worker = None;
                    Ended::Lost(Unjudged::Bug(text))
                }
            };
            self.hunt.watch.took(begun.elapsed());
            if sender.send(Message::Ended(number, ended)).is_err() {
                break;
            }
        }
        self.alive.fetch_sub(1, Ordering::AcqRel);
    }

    fn run(
        &self,
        (worker, eyes): (&mut Option<Worker>, &Eyes),
        order: &Order,
        lane: &Lane,
    ) -> Result<Ran, Failure> {
        let new = || Worker::new(self.hunt.session.clone(), &self.hunt.chosen, lane.stop());
        let made = worker.take().map_or_else(new, Ok)?;
        let caches = (&*self.hunt.boots, &self.points);
        let mut carried = carry(worker.insert(made), caches, order, eyes.listener())?;
        let at = match &order.origin {
            Origin::Boot => None,
            Origin::State { at, .. } => Some(SimTime(*at)),
        };
        carried.outcome.numbered = Some(Numbered { number: order.number + 1, at });
        let seen = seen(&carried, &self.hunt.session, eyes);
        let features = self.keeps.then(|| crate::corpus::features(&carried.outcome));
        let ran = workers::Ran { outcome: carried.outcome, features };
        Ok(Ran { ran, seen })
    }
}

/// Makes the runs of a search on so many workers until its budget is used up or something ends it.
///
/// # Errors
/// No thread can be started.
pub fn run_all(hunt: Hunt, jobs: usize, collector: &mut Collector<'_>) -> Result<(), Failure> {
    let chains = fault_chains(&hunt.session.scenario);
    let mut search = Search::new(hunt.settings.clone(), chains);
    let given = give(&hunt, &hunt.given, &mut search);
    if !matches!(given, Ok(true)) {
        // What a process before has made is counted all the same.
        while collector.again()?.is_some() {}
        collector.totals.search = Some(Summary::of(&search));
        return given.map(drop);
    }
    let mut first = VecDeque::from(search.begin());
    let next = again(&mut search, &mut first, collector)?;
    if collector.totals.failed_fast || search.merged().0 >= hunt.settings.runs {
        collector.totals.search = Some(Summary::of(&search));
        return Ok(());
    }
    let shared = Arc::new(Shared {
        hunt,
        points: Points::default(),
        queue: Mutex::new(first),
        bell: Condvar::new(),
        over: AtomicBool::new(false),
        alive: AtomicUsize::new(0),
        keeps: collector.keeping.is_some(),
    });
    let mut taker = Taker { shared: &shared, search, collector, waiting: BTreeMap::new(), next };
    let workers = shared.clone();
    crew::run(jobs, &mut taker, move |sender: &Sender| workers.work(sender))?;
    taker.collector.totals.search = Some(Summary::of(&taker.search));
    if let Some(Err(failure)) = taker.collector.journal().map(Journal::sync) {
        taker.collector.failed(failure);
    }
    // Workers that were left behind end when they can.
    shared.over.store(true, Ordering::Relaxed);
    Ok(())
}

/// Counts the runs that a process before has made, as if they were made now. Returns how many there are; `orders` are those that come next.
fn again(
    search: &mut Search,
    orders: &mut VecDeque<Order>,
    collector: &mut Collector<'_>,
) -> Result<u64, Failure> {
    let mut made = 0;
    while !collector.totals.failed_fast
        && let Some(seen) = collector.again()?
    {
        orders.pop_front();
        orders.extend(search.merge(seen));
        made += 1;
    }
    Ok(made)
}

/// Takes what workers tell, and orders.
struct Taker<'a, 'b> {
    shared: &'a Shared,
    search: Search,
    collector: &'a mut Collector<'b>,
    /// What has ended before a run with a lower number.
    waiting: BTreeMap<u64, Ended<Ran>>,
    /// The number of the run that is taken next.
    next: u64,
}

impl Takes for Taker<'_, '_> {
    type Name = u64;
    type Ran = Ran;

    fn watch(&self) -> &Watch {
        &self.shared.hunt.watch
    }

    fn ended(&mut self, number: u64, ended: Ended<Ran>) {
        self.waiting.insert(number, ended);
        while let Some(ended) = self.waiting.remove(&self.next) {
            if self.collector.totals.failed_fast {
                self.waiting.clear();
                break;
            }
            self.take(self.next, ended);
            self.next += 1;
        }
    }

    fn postponed(&mut self, number: u64) {
        self.collector.waits(&format!("run {}", number + 1));
    }

    fn failed(&mut self, failure: Failure) {
        self.collector.failed(failure);
    }

    fn show(&mut self) {
        let (frontier, features) = (self.search.frontier(), self.search.features());
        let state = format!("{} states, {} features", frontier.len(), features.len());
        self.collector.shows(&state);
    }

    fn over(&mut self, left: BTreeSet<u64>) {
        let why = || Ended::Lost(stopped(&self.shared.hunt.watch));
        self.waiting.extend(left.into_iter().map(|number| (number, why())));
        self.rest();
    }
}

impl Taker<'_, '_> {
    /// What has ended behind a run that never will: the search is cut there, and what was found is found.
    fn rest(&mut self) {
        for (number, ended) in std::mem::take(&mut self.waiting) {
            if !self.collector.totals.failed_fast {
                self.take(number, ended);
            }
        }
        self.collector.progress.end();
    }

    /// Takes the result of a run, and orders the one that may be chosen now.
    fn take(&mut self, number: u64, ended: Ended<Ran>) {
        // Want of memory says nothing of the run: it is no step of the journal, and a process that goes on makes it again.
        let is_answer = !matches!(ended, Ended::TooLarge);
        let (result, seen) = looked_at(ended, &self.shared.hunt.watch);
        let origin = result.as_ref().ok().and_then(|ran| ran.outcome.numbered?.at);
        // What has ended behind a run that never will teaches nothing.
        let in_order = number == self.next;
        let first = self.search.frontier().come_to();
        let mut order = None;
        if in_order {
            order = self.search.merge(seen.clone());
            let has_states = self.search.frontier().come_to() > first;
            if is_answer && let Some(journal) = self.collector.journal() {
                journal.shows(seen.as_ref(), origin.map(|at| at.0), has_states);
            }
        }
        self.count(Task::Run(number + 1), result);
        if !in_order {
            return;
        }
        // A snapshot may have been taken of the state from which it went on.
        if origin.is_some() {
            self.shared.points.fit(&self.search);
        }
        match order {
            Some(order) => self.shared.put([order]),
            None if self.search.merged().0 >= self.shared.hunt.settings.runs => {
                self.shared.over.store(true, Ordering::Relaxed);
                self.shared.bell.notify_all();
            }
            None => {}
        }
    }

    /// Counts what came of a run.
    fn count(&mut self, task: Task, result: Result<workers::Ran, Unjudged>) {
        match result {
            Ok(ran) => self.collector.ran(task, ran),
            Err(why) => {
                // Something unsupported, and want of memory, stop a run alone.
                let alone = matches!(why, Unjudged::Unsupported(_) | Unjudged::Undecided(_));
                self.collector.record_lost(task, why.clone());
                self.collector.lost(task, why);
                if !alone {
                    self.shared.hunt.watch.close();
                }
            }
        }
    }
}

/// What is counted of an order, and what the search learns from it.
fn looked_at(ended: Ended<Ran>, watch: &Watch) -> (Result<workers::Ran, Unjudged>, Option<Seen>) {
    match ended {
        Ended::Ran(ended) => {
            let Ran { ran, seen } = *ended;
            // Nothing is known of how it would have gone on.
            let cut = matches!(ran.outcome.stopped, Some(Stopped::Interrupted | Stopped::Undecided(_)));
            (Ok(ran), (!cut).then_some(seen))
        }
        Ended::Lost(why) => (Err(why), None),
        Ended::TooLarge => (Err(Unjudged::Undecided(watch.budget().text())), None),
    }
}
