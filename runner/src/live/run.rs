//! One run on a real engine: the stack starts, the workload asks, faults come and go, checks are made, all in real time.
//!
//! Key types: [`Run`] (what is known), [`Event`] (what threads tell it), [`Due`] (what has its time). Only this thread decides; what
//! takes long is done by others: operations of the engine in order (`hands`), clients (`workload`), programs in containers and requests of
//! checks. Neighbours: `supervise` has the services, `checks` the checks, `inject` the faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use bloodhound_images::{Control, EngineError, Life};
use bloodhound_kernel::node::MachineId;
use bloodhound_net::NodeId;
use bloodhound_sim::checks::{CheckKind, CheckState};
use bloodhound_sim::faults::{self, Effect, Planned};
use bloodhound_sim::notice::{LogEntry, Notice, PhaseChange};
use bloodhound_sim::scenario::{FaultSpec, Scenario, ServiceSpec};
use bloodhound_sim::timeline;
use bloodhound_sim::world::Finding;
use bloodhound_workloads::driver::DriverConfig;
use bloodhound_workloads::http::Answer;

use super::hands::{Done, Grip, Hands};
use super::spec;
use super::stack::Stack;
use super::supervise::{State, Supervised};
use super::workload::{Clock, Workload};
use crate::judge::Seen;
use crate::session::{Failure, Outcome, Session, Stopped};
use crate::{exit, report};

/// How often the engine is asked which containers run. It has a stream of events as well, but one that breaks off has lost some; what
/// runs is known from the list.
const WATCH: Duration = Duration::from_millis(250);
/// So many questions without an answer in a row mean that the engine has gone.
const SILENT: u32 = 3;
/// The longest that this thread sleeps: then it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of a service's output that are shown if it does not start.
const LINES: usize = 12;

/// What threads tell.
#[derive(Debug)]
pub enum Event {
    /// An operation of the engine.
    Done(Done),
    /// A container's command has ended.
    Ended(NodeId, Life),
    /// The engine does not answer any more.
    Lost(EngineError),
    /// A health check: in which life of its service, when it began, its answer.
    Health { node: NodeId, starts: u32, begun: SimTime, passed: bool },
    /// An attempt of a check.
    Answer { index: usize, answer: Answer },
    /// The workload is over.
    Workload,
}

/// What is due at a time.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    Start(NodeId),
    /// A health check in this life of a service.
    Health(NodeId, u32),
    Check(usize),
    Fault(usize),
    FaultEnds(usize),
    HealPhase,
    End,
}

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Boot,
    Faults,
    Recovery,
}

/// A run; see the module's text.
pub struct Run<'a> {
    pub(super) session: &'a Session,
    /// With the faults that an engine can do.
    pub(super) scenario: Arc<Scenario>,
    // Before the stack: whoever works with containers ends before they are removed.
    pub(super) hands: Hands,
    pub(super) stack: Stack,
    pub(super) clock: Clock,
    pub(super) sender: Sender<Event>,
    events: Receiver<Event>,
    halt: Arc<AtomicBool>,
    watching: Arc<AtomicBool>,
    queue: BTreeMap<(SimTime, u64), Due>,
    numbered: u64,
    pub(super) services: BTreeMap<NodeId, Supervised>,
    pub(super) checks: Vec<CheckState>,
    pub(super) asking: BTreeSet<usize>,
    pub(super) findings: Vec<Finding>,
    log: Vec<LogEntry>,
    pub(super) plan: Vec<Planned>,
    pub(super) effects: Vec<Effect>,
    /// Machines that stand still, by which entry of the plan, with their containers.
    pub(super) paused: BTreeMap<MachineId, (usize, Vec<NodeId>)>,
    /// By how many partitions containers are cut off, and which entries have cut off whom.
    pub(super) cuts: BTreeMap<NodeId, u32>,
    pub(super) cut_by: BTreeMap<usize, Vec<NodeId>>,
    pub(super) phase: Phase,
    pub(super) ready_at: Option<SimTime>,
    pub(super) healing: bool,
    pub(super) healed_at: Option<SimTime>,
    pub(super) workload_over: bool,
    pub(super) final_checks: bool,
    pub(super) over: bool,
    /// Why the stack will never be ready.
    pub(super) stuck: Option<String>,
    /// What the engine refused was said.
    pub(super) told: BTreeSet<&'static str>,
}

impl<'a> Run<'a> {
    /// A run whose stack is made.
    ///
    /// # Errors
    /// The host has no threads.
    pub fn new(
        session: &'a Session,
        scenario: Arc<Scenario>,
        stack: Stack,
        halt: Arc<AtomicBool>,
    ) -> Result<Run<'a>, Failure> {
        let (sender, events) = mpsc::channel();
        let thread = |e: std::io::Error| Failure::environment(format!("starting a thread: {e}"));
        let grip = |(node, container): (&NodeId, &String)| {
            let placement = session.plan.placements.iter().find(|placement| placement.node == *node);
            let networks = placement.into_iter().flat_map(|placement| &placement.networks);
            let networks =
                networks.map(|at| (stack.names.of(&at.network), spec::end_point(at, &stack.names)));
            (*node, Grip { container: container.clone(), networks: networks.collect() })
        };
        let grips: BTreeMap<NodeId, Grip> = stack.containers.iter().map(grip).collect();
        let hands = Hands::new(stack.control.clone(), grips, sender.clone()).map_err(thread)?;
        let checks = vec![CheckState::default(); scenario.checks.len()];
        let watching = Arc::new(AtomicBool::new(true));
        let run = Run {
            session,
            scenario,
            hands,
            stack,
            clock: Clock::start(),
            sender,
            events,
            halt,
            watching,
            queue: BTreeMap::new(),
            numbered: 0,
            services: BTreeMap::new(),
            checks,
            asking: BTreeSet::new(),
            findings: Vec::new(),
            log: Vec::new(),
            plan: Vec::new(),
            effects: Vec::new(),
            paused: BTreeMap::new(),
            cuts: BTreeMap::new(),
            cut_by: BTreeMap::new(),
            phase: Phase::Boot,
            ready_at: None,
            healing: false,
            healed_at: None,
            workload_over: false,
            final_checks: false,
            over: false,
            stuck: None,
            told: BTreeSet::new(),
        };
        Ok(run)
    }

    /// Starts all services and waits until they are ready.
    ///
    /// # Errors
    /// They do not become ready; the engine fails; a signal.
    pub fn boot(&mut self) -> Result<(), Failure> {
        self.watch();
        for spec in &self.scenario.clone().services {
            self.service(spec.node);
        }
        self.begin_services();
        let limit = self.scenario.boot_timeout;
        while !self.is_ready() {
            if self.halt.load(Ordering::Relaxed) {
                return Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() });
            }
            if let Some(why) = &self.stuck {
                return Err(self.not_ready(why.clone()));
            }
            if self.clock.now().0 > limit {
                return Err(self.not_ready(format!("not ready after {} s", limit / 1_000_000_000)));
            }
            self.step()?;
        }
        self.ready_at = Some(self.clock.now());
        self.note(None, Notice::Phase(PhaseChange::Ready));
        Ok(())
    }

    fn not_ready(&self, why: String) -> Failure {
        let mut text = format!("the services did not become ready: {why}");
        for (node, what) in self.unready() {
            text.push_str(&format!("\n  {what}"));
            let Some(container) = self.stack.containers.get(&node) else { continue };
            let output = self.stack.control.output(container).unwrap_or_default();
            let output = String::from_utf8_lossy(&output);
            let lines: Vec<&str> = output.lines().collect();
            for line in &lines[lines.len().saturating_sub(LINES)..] {
                text.push_str(&format!("\n    {}", report::printable(line)));
            }
        }
        Failure::environment(text)
    }

    /// Runs workload, faults and checks to the end.
    ///
    /// # Errors
    /// The engine fails.
    pub fn run(&mut self, seed: u64) -> Result<Outcome, Failure> {
        let ready = self.ready_at.unwrap_or_default();
        let mut decisions = Decisions::seeded(seed);
        let (profile, plan) = faults::drawn(&self.scenario, ready, &mut decisions);
        self.phase = Phase::Faults;
        self.note(None, Notice::Phase(PhaseChange::Faults(Box::new(profile.clone()))));
        let scenario = self.scenario.clone();
        for (entry, planned) in plan.iter().enumerate() {
            self.at(planned.begin, Due::Fault(entry));
        }
        self.plan = plan;
        self.due(scenario.fault_start + scenario.fault_time, Due::HealPhase);
        self.due(scenario.max_time, Due::End);
        let mut workload = match &scenario.workload {
            None => {
                self.workload_over = true;
                None
            }
            Some(config) => {
                let config = self.reachable(config.clone());
                let started = Workload::start(config, seed, self.clock, self.sender.clone());
                Some(started.map_err(|e| Failure::environment(format!("starting a thread: {e}")))?)
            }
        };
        self.schedule_checks(CheckKind::Invariant);
        let mut interrupted = false;
        while !self.over && !interrupted {
            self.step()?;
            interrupted = self.halt.load(Ordering::Relaxed);
        }
        let now = self.clock.now();
        self.over = true;
        self.note(None, Notice::Phase(PhaseChange::Done));
        let history = workload.as_mut().map(Workload::end).unwrap_or_default();
        Ok(self.outcome(seed, profile, history, now, interrupted, &decisions))
    }

    /// The workload with the addresses of this run.
    fn reachable(&self, config: DriverConfig) -> DriverConfig {
        match config {
            DriverConfig::Http(mut http) => {
                for target in &mut http.targets {
                    target.address = self.stack.reach(self.session, target.address);
                }
                DriverConfig::Http(http)
            }
        }
    }

    fn outcome(
        &mut self,
        seed: u64,
        profile: FaultSpec,
        history: bloodhound_workloads::history::History,
        now: SimTime,
        interrupted: bool,
        decisions: &Decisions,
    ) -> Outcome {
        let ready = self.ready_at.unwrap_or_default();
        let name = |node| timeline::name(&self.scenario, node);
        let record = self.plan.iter().zip(self.effects.iter().copied());
        let faults = report::fault_records(record, &name);
        let mut outcome = Outcome {
            seed,
            numbered: None,
            platform: None,
            digest: String::new(),
            steps: 0,
            virtual_time: now,
            profile,
            anew: Vec::new(),
            scenario: self.scenario.clone(),
            plan: Arc::new(std::mem::take(&mut self.plan)),
            effects: std::mem::take(&mut self.effects),
            hits: Default::default(),
            stopped_packets: None,
            asked: Default::default(),
            met: Vec::new(),
            faults,
            log: std::mem::take(&mut self.log),
            violations: Vec::new(),
            judged: Vec::new(),
            history,
            decisions: decisions.log().clone(),
            divergences: Vec::new(),
            marks: Arc::default(),
            outside: Vec::new(),
            console: Arc::default(),
            stopped: interrupted.then_some(Stopped::Interrupted),
            share: Default::default(),
        };
        let running =
            self.services.iter().filter(|(_, s)| matches!(s.state, State::Running | State::Crashed));
        let told = outcome.log.iter().filter(|e| e.at > ready).filter_map(|e| e.node);
        let ran = running.map(|(node, _)| *node).chain(told).collect();
        let seen = Seen { checks: &self.checks, findings: &self.findings, ready, now, ran };
        outcome.judge(&self.session.plan.properties, &seen, true);
        outcome
    }

    /// What each service has printed.
    pub fn outputs(&self) -> Vec<(String, Vec<u8>)> {
        let of = |spec: &ServiceSpec| {
            let container = self.stack.containers.get(&spec.node)?;
            let output = self.stack.control.output(container);
            Some((spec.name.clone(), output.unwrap_or_else(|error| error.text.into_bytes())))
        };
        self.scenario.services.iter().filter_map(of).collect()
    }

    /// Waits for what comes next, and deals with it.
    fn step(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= now
        {
            let due = entry.remove();
            self.carry_out(due);
        }
        let next = self.queue.first_key_value().map(|((at, _), _)| Duration::from_nanos(at.since(now)));
        match self.events.recv_timeout(next.unwrap_or(LOOK).min(LOOK)) {
            Ok(event) => self.happened(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
        }
    }

    fn happened(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Done(done) => return self.done(done),
            Event::Ended(node, life) => self.service_ended(node, life),
            Event::Lost(error) => return Err(super::stack::failed(&error)),
            Event::Health { node, starts, begun, passed } => self.health_checked(node, starts, begun, passed),
            Event::Answer { index, answer } => self.answered(index, answer),
            Event::Workload => {
                self.workload_over = true;
                self.conclude();
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, due: Due) {
        match due {
            Due::Start(node) => self.start_service(node),
            Due::Health(node, starts) => self.check_health(node, starts),
            Due::Check(index) => self.ask(index),
            Due::Fault(entry) => self.begin_fault(entry),
            Due::FaultEnds(entry) => self.end_fault(entry),
            Due::HealPhase => self.heal(),
            Due::End => self.end_of_time(),
        }
    }

    /// Something is due so much later.
    pub(super) fn due(&mut self, after: u64, due: Due) {
        self.at(self.clock.now().after(after), due);
    }

    fn at(&mut self, at: SimTime, due: Due) {
        self.numbered += 1;
        self.queue.insert((at, self.numbered), due);
    }

    pub(super) fn note(&mut self, node: Option<NodeId>, what: Notice) {
        self.log.push(LogEntry { at: self.clock.now(), node, what });
    }

    /// A thread for something that takes long. Where there is none, it is as if no answer had come.
    pub(super) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        let _ignored = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    }

    /// A thread that asks the engine which containers run, and tells of those that have ended.
    fn watch(&self) {
        let (control, label, events) = (self.stack.control.clone(), self.stack.label(), self.sender.clone());
        let watching = self.watching.clone();
        let nodes: BTreeMap<String, NodeId> =
            self.stack.containers.iter().map(|(node, name)| (name.clone(), *node)).collect();
        self.spawn("watch", move || {
            let (mut told, mut silent) = (BTreeMap::new(), 0);
            while watching.load(Ordering::Relaxed) {
                match ended(&control, &label, &nodes, &mut told) {
                    Ok(ended) => {
                        silent = 0;
                        for (node, life) in ended {
                            if events.send(Event::Ended(node, life)).is_err() {
                                return;
                            }
                        }
                    }
                    Err(error) => {
                        silent += 1;
                        if silent >= SILENT {
                            // The run may be over.
                            let _ignored = events.send(Event::Lost(error));
                            return;
                        }
                    }
                }
                std::thread::sleep(WATCH);
            }
        });
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.watching.store(false, Ordering::Relaxed);
    }
}

/// Containers that have ended and of whose end nobody was told.
fn ended(
    control: &Control,
    label: &str,
    nodes: &BTreeMap<String, NodeId>,
    told: &mut BTreeMap<NodeId, String>,
) -> Result<Vec<(NodeId, Life)>, EngineError> {
    let mut out = Vec::new();
    for one in control.containers(label)? {
        let Some(node) = nodes.get(&one.name).copied() else { continue };
        if !matches!(one.status.as_str(), "exited" | "dead" | "stopped") {
            continue;
        }
        let life = control.life(&one.name)?;
        if !life.runs() && told.get(&node) != Some(&life.started) {
            told.insert(node, life.started.clone());
            out.push((node, life));
        }
    }
    Ok(out)
}
