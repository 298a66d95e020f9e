//! The services of a live run: when each is started, whether it is healthy, and what follows its end. The rules are those of the simulation
//! (`bloodhound_sim::services`), which has them from engines and compose implementations; only the hands are others.
//!
//! Key types: [`Supervised`], [`State`]. The engine's own restart policies and health checks are off, so that no end and no answer is missed.

use std::time::Duration;

use bloodhound_abi::SimTime;
use bloodhound_images::{ExecCommand, Life};
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::NodeId;
use bloodhound_sim::notice::Notice;
use bloodhound_sim::scenario::{Condition, Dependency, ServiceSpec};
use bloodhound_sim::services::{Health, Restarts, ServiceChange};
use bloodhound_sim::world::{Finding, FindingKind};

use super::hands::{Deed, Done, Task};
use super::run::{Due, Event, Run};
use crate::session::Failure;

/// When a service tries again that joins the namespaces of one that does not run, ns.
const JOIN_AGAIN: u64 = 100_000_000;

/// What a service does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Waits for its dependencies.
    #[default]
    Waiting,
    /// The engine is asked to start it; whether it starts because a crash is over.
    Starting { crashed: bool },
    /// Its command runs.
    Running,
    /// It was asked to end, and starts again then.
    Stopping,
    /// Its command ended.
    Ended(i64),
    /// A fault killed it; it will be started again.
    Crashed,
}

/// What is known of a service.
#[derive(Clone, Debug, Default)]
pub struct Supervised {
    pub state: State,
    pub health: Health,
    /// Failed health checks in a row.
    pub failures: u32,
    /// When its command was last started, and how often it was.
    pub started: SimTime,
    pub starts: u32,
    /// The engine's name for its life.
    life: String,
    /// An end of a life that the engine has not yet said to have begun.
    early: Option<Life>,
    restarts: Restarts,
    /// A health check is under way.
    checking: bool,
}

impl Supervised {
    /// It serves, or it was a job that is done.
    fn is_ready(&self) -> bool {
        self.health == Health::Healthy || self.state == State::Ended(0)
    }

    fn describe(&self) -> String {
        match self.state {
            State::Waiting => "waits for its dependencies".into(),
            State::Starting { .. } => "is being started".into(),
            State::Running if self.failures > 0 => format!("running, {} failed health checks", self.failures),
            State::Running => "running".into(),
            State::Stopping => "stopping".into(),
            State::Ended(code) => exit(code, false),
            State::Crashed => "crashed".into(),
        }
    }
}

/// How a command ended. "the exit code is [...] 128 + n if signal n killed it", as engines have it from shells.
fn exit(code: i64, out_of_memory: bool) -> String {
    let signal = u32::try_from(code - 128).ok().filter(|signal| (1..=64).contains(signal));
    let signal = signal.map(bloodhound_kernel::signal::name).map(|name| format!(" ({name})"));
    let memory = if out_of_memory { ", for it had too little memory" } else { "" };
    format!("exit code {code}{}{memory}", signal.unwrap_or_default())
}

/// A program of the scenario as an engine runs it in a container.
pub fn command(program: &Program, user: Option<String>) -> ExecCommand {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ExecCommand {
        argv: program.argv.iter().map(|arg| text(arg)).collect(),
        env: program.envp.iter().map(|variable| text(variable)).collect(),
        cwd: Some(text(&program.cwd)),
        user,
    }
}

impl Run<'_> {
    pub(super) fn service(&mut self, node: NodeId) -> &mut Supervised {
        self.services.entry(node).or_default()
    }

    fn spec(&self, node: NodeId) -> Option<&ServiceSpec> {
        self.scenario.services.iter().find(|spec| spec.node == node)
    }

    /// Asks for the start of all services that wait for nothing.
    pub(super) fn begin_services(&mut self) {
        let free = |spec: &&ServiceSpec| spec.depends_on.is_empty();
        let nodes: Vec<NodeId> = self.scenario.services.iter().filter(free).map(|spec| spec.node).collect();
        for node in nodes {
            self.due(0, Due::Start(node));
        }
    }

    pub(super) fn start_service(&mut self, node: NodeId) {
        let Some(sharing) = self.spec(node).map(|spec| spec.sharing) else { return };
        let state = self.service(node).state;
        if matches!(state, State::Running | State::Stopping | State::Starting { .. }) {
            return;
        }
        // "cannot join PID of a non running container", as engines say.
        let others = [sharing.net, sharing.pids, sharing.ipc];
        if others.into_iter().flatten().any(|other| self.service(other).state != State::Running) {
            self.due(JOIN_AGAIN, Due::Start(node));
            return;
        }
        self.service(node).state = State::Starting { crashed: state == State::Crashed };
        self.hands.ask(Task { node, deed: Deed::Start, entry: None });
    }

    /// Something was done, or was not.
    pub(super) fn done(&mut self, done: Done) -> Result<(), Failure> {
        self.hands.open = self.hands.open.saturating_sub(1);
        let Task { node, deed, entry } = done.task;
        match (deed, done.result) {
            (Deed::Start, Ok(life)) => self.started(node, life),
            (Deed::Stop(_), Ok(_)) => {
                // As `compose restart`: it starts again when what it depends on is there.
                self.service(node).state = State::Waiting;
                self.dependencies_changed();
            }
            (_, Ok(_)) => {}
            // An engine that refuses to begin a fault is no reason to end the run; one that does not answer is.
            (_, Err(error)) if error.status.is_some() && (entry.is_some() || deed == Deed::Kill) => {
                self.refused(entry, deed, &error);
            }
            (_, Err(error)) => return Err(super::stack::failed(&error)),
        }
        if self.healing && self.hands.open == 0 {
            self.healing = false;
            self.recovery_begins();
        }
        Ok(())
    }

    fn started(&mut self, node: NodeId, life: Life) {
        let now = self.clock.now();
        let Some(health) = self.spec(node).map(|spec| spec.health.clone()) else { return };
        let service = self.service(node);
        let crashed = service.state == State::Starting { crashed: true };
        (service.state, service.started, service.health) = (State::Running, now, Health::Starting);
        (service.failures, service.checking) = (0, false);
        service.starts += 1;
        service.life = life.started.clone();
        let (starts, early) = (service.starts, service.early.take());
        self.note(Some(node), Notice::Service(ServiceChange::Started));
        let settle = self.scenario.settle;
        let first = health.map_or(settle, |h| h.pause(Health::Starting, 0).min(settle));
        self.due(first, Due::Health(node, starts));
        self.dependencies_changed();
        if crashed {
            self.restart_dependents(node);
        }
        let early = early.filter(|early| early.started == life.started);
        if let Some(life) = early.or_else(|| (!life.runs()).then_some(life)) {
            self.service_ended(node, life);
        }
    }

    /// A service was started again by hand: those that must restart with it are stopped, and start when what they depend on is there.
    fn restart_dependents(&mut self, node: NodeId) {
        let depends = |spec: &&ServiceSpec| spec.depends_on.iter().any(|on| on.service == node && on.restart);
        let dependents: Vec<(NodeId, u64)> =
            self.scenario.services.iter().filter(depends).map(|s| (s.node, s.runtime.stop_grace)).collect();
        for (node, grace) in dependents {
            let service = self.service(node);
            if service.state == State::Running {
                (service.state, service.health) = (State::Stopping, Health::Starting);
                self.note(Some(node), Notice::Service(ServiceChange::Stopping));
                let deed = Deed::Stop(Duration::from_nanos(grace));
                self.hands.ask(Task { node, deed, entry: None });
            }
        }
    }

    /// The engine says that a command has ended.
    pub(super) fn service_ended(&mut self, node: NodeId, life: Life) {
        let now = self.clock.now();
        let Some((name, policy)) = self.spec(node).map(|spec| (spec.name.clone(), spec.restart)) else {
            return;
        };
        let service = self.service(node);
        if service.state != State::Running || service.life != life.started {
            // Of a life that begins just now, or of one whose end is known.
            service.early = Some(life);
            return;
        }
        let ran = now.since(service.started);
        (service.state, service.health) = (State::Ended(life.exit_code), Health::Starting);
        let failed = life.exit_code != 0;
        let pause = service.restarts.next(policy, failed, ran);
        let status = ExitStatus::Code(u8::try_from(life.exit_code).unwrap_or(u8::MAX));
        self.note(Some(node), Notice::Service(ServiceChange::Ended(status)));
        if failed && !self.over {
            let text = format!("service {name} ended: {}", exit(life.exit_code, life.out_of_memory));
            self.findings.push(Finding { kind: FindingKind::Crash, at: now, node: Some(node), text });
        }
        match pause {
            Some(pause) => self.due(pause, Due::Start(node)),
            None => self.given_up(node),
        }
        self.dependencies_changed();
    }

    fn is_met(&self, on: &Dependency) -> bool {
        let Some(service) = self.services.get(&on.service) else { return false };
        match on.condition {
            Condition::Started => service.starts > 0,
            Condition::Healthy => service.health == Health::Healthy,
            Condition::Completed => service.state == State::Ended(0),
        }
    }

    /// Starts services whose dependencies are met now.
    fn dependencies_changed(&mut self) {
        let waits = |spec: &&ServiceSpec| {
            let waiting = self.services.get(&spec.node).is_none_or(|s| s.state == State::Waiting);
            waiting && !spec.depends_on.is_empty() && spec.depends_on.iter().all(|on| self.is_met(on))
        };
        let nodes: Vec<NodeId> = self.scenario.services.iter().filter(waits).map(|spec| spec.node).collect();
        for node in nodes {
            self.start_service(node);
        }
    }

    /// A service has ended and does not start again: while the stack starts, those that wait for more of it wait in vain.
    fn given_up(&mut self, node: NodeId) {
        if self.ready_at.is_some() {
            return;
        }
        let vain = |spec: &&ServiceSpec| {
            let waiting = self.services.get(&spec.node).is_none_or(|s| s.state == State::Waiting);
            let on = |on: &Dependency| {
                on.service == node && on.condition != Condition::Started && !self.is_met(on)
            };
            waiting && spec.depends_on.iter().any(on)
        };
        let waiting = self.scenario.services.iter().find(vain).map(|spec| spec.name.clone());
        let name = self.spec(node).map(|spec| spec.name.clone()).unwrap_or_default();
        let ended = self.service(node).describe();
        if let Some(waiting) = waiting {
            self.stuck.get_or_insert(format!("service {waiting} waits for {name}, which ended with {ended}"));
        } else if self.service(node).state != State::Ended(0) {
            self.stuck.get_or_insert(format!("service {name} ended with {ended}, and is not started again"));
        }
    }

    /// Whether all services serve or are done.
    pub(super) fn is_ready(&self) -> bool {
        let ready = |spec: &ServiceSpec| self.services.get(&spec.node).is_some_and(Supervised::is_ready);
        self.scenario.services.iter().all(ready)
    }

    /// The services that are not ready, and what they do.
    pub(super) fn unready(&self) -> Vec<(NodeId, String)> {
        let ready = |spec: &&ServiceSpec| !self.services.get(&spec.node).is_some_and(Supervised::is_ready);
        let services = self.scenario.services.iter().filter(ready);
        let what = |node| self.services.get(&node).map_or_else(|| "waits".into(), Supervised::describe);
        services.map(|spec| (spec.node, format!("{} ({})", spec.name, what(spec.node)))).collect()
    }

    /// Time for a health check, or for a service without one to count as ready.
    pub(super) fn check_health(&mut self, node: NodeId, starts: u32) {
        let Some(spec) = self.spec(node).cloned() else { return };
        let paused = self.paused.values().any(|(_, nodes)| nodes.contains(&node));
        let until_ready = self.scenario.health_until_ready;
        let service = self.service(node);
        if service.checking || service.state != State::Running || service.starts != starts {
            return;
        }
        let Some(health) = spec.health else {
            if service.health == Health::Starting {
                service.health = Health::Healthy;
                self.dependencies_changed();
            }
            return;
        };
        if until_ready && service.health == Health::Healthy {
            return;
        }
        if paused {
            // An engine runs nothing in a container that stands still.
            self.due(health.interval, Due::Health(node, starts));
            return;
        }
        service.checking = true;
        let begun = self.clock.now();
        let command = command(&health.program, None);
        let patience = Duration::from_nanos(health.timeout);
        self.exec(node, command, patience, move |result| {
            let passed = result.is_ok_and(|executed| executed.code == 0);
            Event::Health { node, starts, begun, passed }
        });
    }

    /// A health check has its answer.
    pub(super) fn health_checked(&mut self, node: NodeId, starts: u32, begun: SimTime, passed: bool) {
        let Some(health) = self.spec(node).and_then(|spec| spec.health.clone()) else { return };
        let now = self.clock.now();
        let service = self.service(node);
        if service.starts != starts || service.state != State::Running {
            return;
        }
        service.checking = false;
        let before = service.health;
        let age = begun.since(service.started);
        (service.health, service.failures) = health.judge((before, service.failures), passed, age);
        let (after, failures) = (service.health, service.failures);
        let pause = health.pause(after, now.since(service.started));
        self.due(pause, Due::Health(node, starts));
        match after {
            _ if after == before => {}
            Health::Starting => {}
            Health::Healthy => {
                self.note(Some(node), Notice::Service(ServiceChange::Healthy));
                self.dependencies_changed();
            }
            Health::Unhealthy => {
                self.note(Some(node), Notice::Service(ServiceChange::Unhealthy { failures }));
            }
        }
    }

    /// A fault kills a service. What starts it again is as a start by hand, after which restarts are counted anew.
    pub(super) fn crash(&mut self, node: NodeId, entry: Option<usize>) {
        let service = self.service(node);
        (service.state, service.health) = (State::Crashed, Health::Starting);
        service.restarts = Restarts::default();
        self.hands.ask(Task { node, deed: Deed::Kill, entry });
    }
}
