//! [`HttpDriver`]: the workers and their schedule.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::{Decisions, Site, WORD, Word};
use bloodhound_net::SocketId;
use bloodhound_persistent::Map;

use super::config::{Arrivals, HttpConfig, Kind, Operation};
use super::exchange::Exchange;
use super::pattern::{Fill, percent_encode, plain};
use super::request::Request;
use super::rules::earlier;
use super::transport::Transport;
use crate::driver::Progress;
use crate::history::{Call, History, OpId, Outcome, Value};

/// Workers of a closed loop start within this time, so that they do not all begin at the same moment.
const STAGGER_NS: u64 = 10 * MILLIS;

/// Pause of a closed loop after an operation that did not succeed: a service that refuses at once must not make a
/// worker spin without time passing.
const BACKOFF_NS: u64 = 10 * MILLIS;

/// Names of an operation's choices.
mod fields {
    use super::Word;

    pub(super) const OPERATION: Word = Word::new("operation");
    pub(super) const KEY: Word = Word::new("key");
    pub(super) const VALUE: Word = Word::new("value");
    pub(super) const EXPECTED: Word = Word::new("expected");
    pub(super) const PATH: Word = Word::new("path");
    pub(super) const BODY: Word = Word::new("body");
    pub(super) const LEFT_OUT: Word = Word::new("left-out");
    pub(super) const ENDS: Word = Word::new("ends");

    /// The n-th header.
    pub(super) fn header(n: usize) -> Word {
        Word::new(&format!("header-{n}"))
    }
}

/// Clients of a service under test; see [`super`].
#[derive(Clone, Debug)]
pub struct HttpDriver {
    config: Arc<HttpConfig>,
    workers: Vec<Worker>,
    history: History,
    /// When new operations started and cease to start.
    span: Option<(SimTime, SimTime)>,
    /// Operations started.
    started: u64,
    /// What the workers know each key to hold: where a cas takes the value that it expects.
    known: Map<String, Value>,
    /// What happened to operations that was not yet taken.
    progress: Vec<Progress>,
}

#[derive(Clone, Debug)]
struct Worker {
    process: u64,
    phase: Phase,
    /// Index of the next target.
    target: usize,
    /// Idle connections by target.
    idle: BTreeMap<usize, SocketId>,
    /// Number of the next arrival among those of all workers (open loop).
    arrival: u64,
    /// Operations begun.
    begun: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The driver has not been started.
    Unstarted,
    /// The next operation starts at this time.
    Waiting(SimTime),
    Busy(Box<Busy>),
    Finished,
}

#[derive(Clone, Debug)]
struct Busy {
    exchange: Exchange,
    /// Its place in the history.
    id: OpId,
    /// Index into the configured operations.
    operation: usize,
    target: usize,
}

impl HttpDriver {
    /// A driver that does nothing until [`HttpDriver::start`].
    pub fn new(config: HttpConfig) -> HttpDriver {
        assert!(config.workers > 0 && !config.targets.is_empty(), "a workload without workers or targets");
        assert!((1..=config.workers).contains(&config.clients), "more client nodes than workers");
        assert!(config.operations.iter().any(|o| o.weight > 0), "a workload without operations");
        let workers = (0..config.workers).map(|w| Worker {
            process: u64::from(w),
            phase: Phase::Unstarted,
            target: w as usize % config.targets.len(),
            idle: BTreeMap::new(),
            arrival: u64::from(w),
            begun: 0,
        });
        let workers = workers.collect();
        HttpDriver {
            config: Arc::new(config),
            workers,
            history: History::new(),
            span: None,
            started: 0,
            known: Map::new(),
            progress: Vec::new(),
        }
    }

    /// Number of client nodes that the driver needs.
    pub fn clients(&self) -> u32 {
        self.config.clients
    }

    /// What has been recorded so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What happened to operations since the last call, in order.
    pub fn take_progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }

    /// Begins the workload.
    pub fn start(&mut self, now: SimTime, decisions: &mut Decisions) {
        assert!(self.span.is_none(), "a workload is started once");
        let said = decisions.said(workload_end(), WORD);
        let duration = said.map_or(self.config.duration_ns, |said| said.min(self.config.duration_ns));
        self.span = Some((now, now.after(duration)));
        for worker in 0..self.workers.len() {
            let at = match self.config.arrivals {
                Arrivals::Closed => now.after(decisions.choose(self.arrival(worker), STAGGER_NS)),
                Arrivals::Open { .. } => self.next_arrival(worker, now, decisions),
            };
            self.workers[worker].phase = Phase::Waiting(at);
        }
    }

    /// No more operations start; those under way go on. Call before the last polls, at each client node.
    pub fn stop(&mut self, now: SimTime) {
        if let Some((_, end)) = &mut self.span {
            *end = now.min(*end);
        }
    }

    /// Whether all operations are over and no more will start.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(|w| matches!(w.phase, Phase::Finished))
    }

    /// When [`HttpDriver::poll`] must be called for client node `client` at the latest, if no packet arrives there.
    pub fn next_wakeup(&self, client: u32) -> Option<SimTime> {
        let (_, end) = self.span?;
        self.workers_of(client).fold(None, |soonest, w| {
            let at = match &self.workers[w].phase {
                // When the end comes first there is still the worker to finish.
                Phase::Waiting(at) => Some((*at).min(end)),
                Phase::Busy(busy) => Some(busy.exchange.deadline()),
                Phase::Unstarted | Phase::Finished => None,
            };
            earlier(soonest, at)
        })
    }

    /// Does what can be done at `now` on client node `client`, whose network is `net`. The caller of a simulated one then takes its
    /// output.
    pub fn poll(&mut self, client: u32, now: SimTime, net: &mut impl Transport, decisions: &mut Decisions) {
        for worker in self.workers_of(client) {
            self.run(worker, now, net, decisions);
        }
    }

    /// The workers on a client node.
    fn workers_of(&self, client: u32) -> impl Iterator<Item = usize> + use<> {
        (client as usize..self.workers.len()).step_by(self.config.clients as usize)
    }

    fn run(&mut self, worker: usize, now: SimTime, net: &mut impl Transport, decisions: &mut Decisions) {
        let Some((_, end)) = self.span else { return };
        loop {
            match &mut self.workers[worker].phase {
                Phase::Unstarted | Phase::Finished => return,
                Phase::Waiting(at) => {
                    let spent = self.config.max_operations.is_some_and(|most| self.started >= most);
                    if spent || now >= end || *at >= end {
                        self.finish(worker, now, net);
                    } else if *at > now {
                        return;
                    } else if !self.leaves_out(worker, now, decisions) {
                        self.begin(worker, now, net, decisions);
                    }
                }
                Phase::Busy(busy) => {
                    let Some((result, socket)) = busy.exchange.poll(net, now) else { return };
                    let Busy { id, operation, target, .. } = **busy;
                    if let Some(socket) = socket {
                        self.workers[worker].idle.insert(target, socket);
                    }
                    let Operation { kind, rules, .. } = &self.config.operations[operation];
                    let (outcome, error) = rules.outcome(*kind, &result);
                    self.learn(id, &outcome);
                    self.go_on(worker, &outcome, now, decisions);
                    self.history.complete(id, outcome, now, error);
                    self.progress.push(Progress::Ended(id));
                }
            }
        }
    }

    /// Ends a worker.
    fn finish(&mut self, worker: usize, now: SimTime, net: &mut impl Transport) {
        let worker = &mut self.workers[worker];
        worker.phase = Phase::Finished;
        for socket in std::mem::take(&mut worker.idle).into_values() {
            net.close(socket, now);
        }
    }

    /// Whether a log leaves out the worker's next operation. The worker then waits for as long as the log says instead, so that those behind it
    /// come when they came, and the numbers and targets that they have are those that they had.
    fn leaves_out(&mut self, worker: usize, now: SimTime, decisions: &mut Decisions) -> bool {
        let (number, nth) = (worker as u32, self.workers[worker].begun);
        let Some(pause @ 1..) = decisions.said(left_out(number, nth), WORD) else { return false };
        self.started += 1;
        let state = &mut self.workers[worker];
        state.begun += 1;
        state.target = (state.target + 1) % self.config.targets.len();
        let at = match self.config.arrivals {
            Arrivals::Open { .. } => self.next_arrival(worker, now, decisions).max(now),
            Arrivals::Closed => now.after(pause),
        };
        self.workers[worker].phase = Phase::Waiting(at);
        true
    }

    /// Starts the worker's next operation.
    fn begin(&mut self, worker: usize, now: SimTime, net: &mut impl Transport, decisions: &mut Decisions) {
        self.started += 1;
        let nth = self.workers[worker].begun;
        self.workers[worker].begun += 1;
        let mut fill = Fill { seq: self.started, worker: worker as u32, nth, ..Fill::default() };
        let index = self.choose(fill.site(fields::OPERATION, 0), decisions);
        let operation = &self.config.operations[index];
        let key = operation.key.fill(&fill, fields::KEY, decisions, plain);
        fill.key = &key;
        let value = operation.value.fill(&fill, fields::VALUE, decisions, plain);
        fill.value = &value;
        let expected = self.expected(operation, &fill, decisions);
        let old = match &expected {
            Value::Text(text) => text.clone(),
            _ => String::new(),
        };
        fill.old = &old;
        let request = build(operation, &fill, &expected, decisions);
        let call = match operation.kind {
            Kind::Put => Call::Write(Value::Text(value.clone())),
            Kind::Get => Call::Read,
            Kind::Delete => Call::Delete,
            Kind::Cas => Call::Cas { expected, new: Value::Text(value.clone()) },
            Kind::Custom => Call::Other(operation.name.clone()),
        };

        let state = &mut self.workers[worker];
        let target_index = state.target;
        state.target = (target_index + 1) % self.config.targets.len();
        let target = &self.config.targets[target_index];
        let bytes = request.to_bytes(target, self.config.keep_alive);
        let deadline = now.after(self.config.timeout_ns);
        let exchange = match usable(&mut state.idle, target_index, net, now) {
            Some(socket) => Exchange::reuse(socket, target.address, &request.method, bytes, deadline),
            None => Exchange::open(net, target.address, &request.method, bytes, deadline),
        };
        let id = self.history.invoke(state.process, Some(key), call, now);
        self.progress.push(Progress::Began(id));
        state.phase = Phase::Busy(Box::new(Busy { exchange, id, operation: index, target: target_index }));
    }

    /// Draws an operation by weight.
    fn choose(&self, site: Site, decisions: &mut Decisions) -> usize {
        let weights = || self.config.operations.iter().map(|o| u64::from(o.weight));
        let mut drawn = decisions.choose(site, weights().sum());
        for (index, weight) in weights().enumerate() {
            if drawn < weight {
                return index;
            }
            drawn -= weight;
        }
        0
    }

    /// The value that a cas expects: mostly what the key was last known to hold, sometimes one that it never held.
    fn expected(&self, operation: &Operation, fill: &Fill<'_>, decisions: &mut Decisions) -> Value {
        if operation.kind != Kind::Cas {
            return Value::Nil;
        }
        let known = self.known.get(fill.key).cloned().unwrap_or_default();
        // A template can only say "no value" in the way of the default one.
        let sayable =
            known != Value::Nil || operation.request.body.is_none() && operation.request.headers.is_empty();
        if sayable && decisions.choose(fill.site(fields::EXPECTED, 0), 8) < 7 {
            known
        } else {
            Value::Text(format!("{}-never", fill.value))
        }
    }

    /// Remembers what an outcome says about its key.
    fn learn(&mut self, id: OpId, outcome: &Outcome) {
        let operation = &self.history.operations()[id.0];
        let (Some(key), Outcome::Ok(answer)) = (&operation.key, outcome) else { return };
        let value = match &operation.call {
            Call::Read => answer.clone(),
            Call::Write(value) | Call::Cas { new: value, .. } => value.clone(),
            Call::Delete => Value::Nil,
            Call::Other(_) => return,
        };
        self.known.insert(key.clone(), value);
    }

    /// After an operation: who the worker is next, and when.
    fn go_on(&mut self, worker: usize, outcome: &Outcome, now: SimTime, decisions: &mut Decisions) {
        if *outcome == Outcome::Unknown {
            self.workers[worker].process += u64::from(self.config.workers);
        }
        let at = match (self.config.arrivals, outcome) {
            (Arrivals::Open { .. }, _) => self.next_arrival(worker, now, decisions).max(now),
            (Arrivals::Closed, Outcome::Ok(_) | Outcome::Mismatch) => now,
            (Arrivals::Closed, Outcome::Fail | Outcome::Unknown) => now.after(BACKOFF_NS),
        };
        self.workers[worker].phase = Phase::Waiting(at);
    }

    /// The worker's next moment in the schedule of an open loop; arrival `n` lies somewhere in the `n`-th interval.
    fn next_arrival(&mut self, worker: usize, now: SimTime, decisions: &mut Decisions) -> SimTime {
        let Arrivals::Open { per_kilosecond } = self.config.arrivals else { return now };
        let (start, _) = self.span.unwrap_or((now, now));
        let arrival = self.workers[worker].arrival;
        self.workers[worker].arrival += u64::from(self.config.workers);
        let rate = u128::from(per_kilosecond.max(1));
        // A thousand seconds are 10^12 ns.
        let moment = |n: u64| u64::try_from(u128::from(n) * 1_000_000_000_000 / rate).unwrap_or(u64::MAX);
        let (from, to) = (moment(arrival), moment(arrival.saturating_add(1)));
        start.after(from).after(decisions.choose(self.arrival(worker), (to - from).max(1)))
    }

    /// The choice of when a worker begins its next operation.
    fn arrival(&self, worker: usize) -> Site {
        Site::Arrival { worker: worker as u32, nth: self.workers[worker].begun }
    }
}

/// What a log may say of a worker's operation, by how many it has begun before: the time for which it waits instead, ns, of [`WORD`]. No seed
/// draws it.
pub fn left_out(worker: u32, nth: u64) -> Site {
    Site::Operation { worker, nth, field: fields::LEFT_OUT, part: 0 }
}

/// A place in the key of an operation, for which a number is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// Whose operation it is.
    pub worker: u32,
    /// How many operations the worker has begun before.
    pub nth: u64,
    part: u32,
}

impl KeyPlace {
    /// The choice for this place in the key of another operation.
    pub fn of(self, worker: u32, nth: u64) -> Site {
        Site::Operation { worker, nth, field: fields::KEY, part: self.part }
    }
}

/// The place that a choice is about, if it is one in the key of an operation.
pub fn key_place(site: &Site) -> Option<KeyPlace> {
    match *site {
        Site::Operation { worker, nth, field, part } if field == fields::KEY => {
            Some(KeyPlace { worker, nth, part })
        }
        _ => None,
    }
}

/// What a log may say of the whole workload: that no operation begins later than so many ns after its beginning, of [`WORD`]. No seed draws it.
pub fn workload_end() -> Site {
    Site::Operation { worker: 0, nth: 0, field: fields::ENDS, part: 0 }
}

/// Takes the idle connection to a target if it is still good: nothing to read, no end, no error.
fn usable(
    idle: &mut BTreeMap<usize, SocketId>,
    target: usize,
    net: &mut impl Transport,
    now: SimTime,
) -> Option<SocketId> {
    let socket = idle.remove(&target)?;
    if net.is_usable(socket) {
        return Some(socket);
    }
    net.close(socket, now);
    None
}

/// The request of an operation, by its template or by default.
fn build(operation: &Operation, fill: &Fill<'_>, expected: &Value, decisions: &mut Decisions) -> Request {
    let template = &operation.request;
    let key = percent_encode(fill.key);
    let (method, path, body) = match operation.kind {
        Kind::Put => ("PUT", format!("/{key}"), Some(fill.value.to_owned())),
        Kind::Get => ("GET", format!("/{key}"), None),
        Kind::Delete => ("DELETE", format!("/{key}"), None),
        Kind::Cas => {
            let old = match expected {
                Value::Text(text) => serde_json::json!(text),
                _ => serde_json::Value::Null,
            };
            let body = serde_json::json!({ "old": old, "new": fill.value });
            ("POST", format!("/{key}/cas"), Some(body.to_string()))
        }
        Kind::Custom => ("GET", "/".to_owned(), None),
    };
    let json = operation.kind == Kind::Cas && template.body.is_none();
    let mut headers: Vec<(String, String)> = Vec::new();
    if json {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    for (at, (name, value)) in template.headers.iter().enumerate() {
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        headers.push((name.clone(), value.fill(fill, fields::header(at), decisions, plain)));
    }
    let body = match &template.body {
        Some(pattern) => Some(pattern.fill(fill, fields::BODY, decisions, plain)),
        None => body,
    };
    Request {
        method: template.method.clone().unwrap_or_else(|| method.to_owned()),
        path: template.path.as_ref().map_or(path, |p| p.fill(fill, fields::PATH, decisions, percent_encode)),
        headers,
        body: body.map(String::into_bytes),
    }
}
