//! Supervision of the services, as a container runtime does it: start order, health checks, restarts, and when the
//! stack is ready.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::ProcessEnd;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::NodeId;

use crate::event::Event;
use crate::machine::Machine;
use crate::notice::{Notice, PhaseChange};
use crate::queue::Due;
use crate::scenario::{Condition, RestartPolicy, ServiceSpec};
use crate::world::{FindingKind, Phase, Room, World};

/// Where programs are looked up without a PATH of their own.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Pause before a restart, ns; doubles up to a minute as docker's does.
const RESTART_DELAY: u64 = 100_000_000;

/// What a service does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Waits for its dependencies.
    #[default]
    Waiting,
    /// Its command runs.
    Running(Pid),
    /// Its command ended.
    Ended(ExitStatus),
    /// A fault killed it; it will be started again.
    Crashed,
}

/// Something happened to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceChange {
    /// Its command runs.
    Started,
    /// Its health check has passed.
    Healthy,
    /// A health check has failed.
    Unhealthy {
        /// So many in a row, of those that count.
        failures: u32,
    },
    /// Its command ended.
    Ended(ExitStatus),
}

/// A service's supervision.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// What it does.
    pub state: State,
    /// Its health check has passed (or it ran long enough without one).
    pub healthy: bool,
    /// When its command was last started.
    pub started: SimTime,
    /// How often it was started.
    pub starts: u32,
    /// It starts so much later than it could, ns; see [`crate::scenario::Spread`].
    pub start_offset: u64,
    /// A running health check.
    pub probe: Option<Pid>,
    /// Failed health checks in a row.
    pub failures: u32,
    /// Why its command could not be started.
    pub refused: Option<Errno>,
}

impl Machine {
    pub(crate) fn spec(&self, id: NodeId) -> Option<Arc<ServiceSpec>> {
        self.scenario
            .services
            .iter()
            .chain(&self.scenario.helpers)
            .find(|s| s.node == id)
            .cloned()
            .map(Arc::new)
    }

    fn service(&mut self, id: NodeId) -> &mut Service {
        self.world.services.entry(id).or_default()
    }

    /// Runs a program in a container, looked up in PATH if it is a bare name.
    pub(crate) fn spawn(&mut self, id: NodeId, program: &Program) -> Result<Pid, Errno> {
        let Room { machine, container, .. } = self.world.room(id);
        self.world.catch_up(machine);
        let candidates = candidates(program);
        let mut result = Err(Errno::ENOENT);
        for path in candidates {
            let mut candidate = program.clone();
            candidate.path = path;
            let mut parts = self.parts(machine);
            let (node, mut outside) = parts.split();
            result = node.spawn(container, &candidate, &mut outside);
            if !matches!(result, Err(Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR)) {
                break;
            }
        }
        result
    }

    pub(crate) fn start_service(&mut self, id: NodeId) {
        let Some(spec) = self.spec(id) else { return };
        if matches!(self.world.services.get(&id).map(|s| s.state), Some(State::Running(_))) {
            return;
        }
        let again = self.service(id).starts > 0;
        if again && let Err(e) = self.renew(id, &spec) {
            self.find(
                FindingKind::NotReady,
                Some(id),
                format!("service {} cannot be restarted: {e}", spec.name),
            );
            return;
        }
        match self.spawn(id, &spec.program) {
            Ok(pid) => {
                let now = self.world.now;
                let service = self.service(id);
                (service.state, service.started, service.healthy) = (State::Running(pid), now, false);
                service.starts += 1;
                (service.failures, service.probe) = (0, None);
                self.note(Some(id), Notice::Service(ServiceChange::Started));
                let first = spec
                    .health
                    .as_ref()
                    .map_or(self.scenario.settle, |h| h.interval.min(self.scenario.settle));
                self.world.queue.push(now.after(first), Due::Probe(id));
                self.dependencies_changed();
            }
            Err(e) => {
                self.service(id).refused = Some(e);
                let path = String::from_utf8_lossy(&spec.program.path).into_owned();
                let text = format!("service {}: cannot run {path}: {e}", spec.name);
                self.find(FindingKind::NotReady, Some(id), text);
            }
        }
        self.node_changed(self.world.room(id).machine);
    }

    /// A restarted container has a fresh network stack and IPC namespace, and empty tmpfs mounts (/dev/shm, those of the
    /// compose file), and its command is process 1 again; its files stay, those in /tmp and /run too.
    fn renew(&mut self, id: NodeId, spec: &ServiceSpec) -> Result<(), Errno> {
        // Nothing may take the new processes for those that had their numbers.
        let Room { machine, container, .. } = self.world.room(id);
        let World { nodes, scheduler, queue, .. } = &mut self.world;
        scheduler.forget_dead(&nodes[&machine]);
        queue.remove_if(|e| matches!(e, Due::ProbeTimeout(node, _) if *node == id));
        let life = nodes[&machine].container(container).life + 1;
        let net = crate::setup::stack(spec, life, &mut self.world.decisions);
        let mut parts = self.parts(machine);
        let (node, outside) = parts.split();
        node.renew_container(container, net, outside.base)
    }

    /// Kills all processes of a container.
    pub(crate) fn kill_container(&mut self, room: Room) {
        let mut parts = self.parts(room.machine);
        let (node, mut outside) = parts.split();
        node.kill_container(room.container, &mut outside);
    }

    /// Starts services whose dependencies are met now.
    fn dependencies_changed(&mut self) {
        let now = self.world.now;
        let scenario = self.scenario.clone();
        for spec in scenario.services.iter().filter(|s| !s.depends_on.is_empty()) {
            let service = &self.world.services[&spec.node];
            if service.state != State::Waiting || service.starts > 0 {
                continue;
            }
            let met = |(dep, condition): &(NodeId, Condition)| {
                let s = &self.world.services[dep];
                match condition {
                    Condition::Started => s.starts > 0,
                    Condition::Healthy => s.healthy,
                    Condition::Completed => s.state == State::Ended(ExitStatus::Code(0)),
                }
            };
            if spec.depends_on.iter().all(met) {
                self.world.queue.remove_if(|e| matches!(e, Due::Start(n) if *n == spec.node));
                let at = now.after(service.start_offset);
                self.world.queue.push(at, Due::Start(spec.node));
            }
        }
        self.check_ready();
    }

    fn check_ready(&mut self) {
        if self.world.ready_at.is_some() {
            return;
        }
        if self.world.services.values().all(is_ready) {
            self.world.ready_at = Some(self.world.now);
            self.world.queue.remove_if(|e| matches!(e, Due::BootTimeout));
            self.note(None, Notice::Phase(PhaseChange::Ready));
        }
    }

    pub(crate) fn boot_timeout(&mut self) {
        if self.world.phase != Phase::Boot || self.world.ready_at.is_some() {
            return;
        }
        let names: Vec<String> = self
            .scenario
            .services
            .iter()
            .filter(|s| !is_ready(&self.world.services[&s.node]))
            .map(|s| format!("{} ({})", s.name, self.describe(s.node)))
            .collect();
        let text =
            format!("not ready after {} s: {}", self.scenario.boot_timeout / 1_000_000_000, names.join(", "));
        self.find(FindingKind::NotReady, None, text);
    }

    /// What a service does, in words.
    fn describe(&self, id: NodeId) -> String {
        let service = &self.world.services[&id];
        match service.state {
            State::Waiting => "waits for its dependencies".into(),
            State::Running(_) if service.failures > 0 => {
                format!("running, {} failed health checks", service.failures)
            }
            State::Running(_) => "running".into(),
            State::Ended(status) => status.to_string(),
            State::Crashed => "crashed".into(),
        }
    }

    /// Time for a health check, or for a service without one to count as ready.
    pub(crate) fn probe(&mut self, id: NodeId) {
        let Some(spec) = self.spec(id) else { return };
        let now = self.world.now;
        let service = self.service(id);
        if service.healthy || service.probe.is_some() || !matches!(service.state, State::Running(_)) {
            return;
        }
        let Some(health) = &spec.health else {
            service.healthy = true;
            self.dependencies_changed();
            return;
        };
        match self.spawn(id, &health.program) {
            Ok(pid) => {
                self.service(id).probe = Some(pid);
                self.world.queue.push(now.after(health.timeout), Due::ProbeTimeout(id, pid.0));
            }
            Err(e) => {
                let text = format!("service {}: cannot run its health check: {e}", spec.name);
                self.find(FindingKind::NotReady, Some(id), text);
            }
        }
        self.node_changed(self.world.room(id).machine);
    }

    pub(crate) fn probe_timeout(&mut self, id: NodeId, pid: u32) {
        if self.service(id).probe != Some(Pid(pid)) {
            return;
        }
        let info = bloodhound_kernel::signal::user_info(9, 0, Pid(0), 0);
        let machine = self.world.room(id).machine;
        self.world.catch_up(machine);
        self.world.node_mut(machine).send_process(Pid(pid), info);
        self.probe_result(id, false);
    }

    fn probe_result(&mut self, id: NodeId, passed: bool) {
        let Some(spec) = self.spec(id) else { return };
        let Some(health) = &spec.health else { return };
        let now = self.world.now;
        let service = self.service(id);
        service.probe = None;
        if passed {
            service.healthy = true;
            self.note(Some(id), Notice::Service(ServiceChange::Healthy));
            self.dependencies_changed();
            return;
        }
        if now.since(service.started) > health.start_period {
            service.failures += 1;
        }
        let failures = service.failures;
        self.tell(Some(id), &Event::Service(&ServiceChange::Unhealthy { failures }));
        self.world.queue.push(now.after(health.interval), Due::Probe(id));
    }

    /// A process of a node is gone.
    pub(crate) fn process_ended(&mut self, id: NodeId, end: ProcessEnd) {
        self.recorder().tell(end.at, Some(id), &Event::Process(&end));
        if self.script_ended(id, end.pid, end.status) {
            return;
        }
        let Some(service) = self.world.services.get(&id) else { return };
        if service.probe == Some(end.pid) {
            self.probe_result(id, end.status == ExitStatus::Code(0));
            return;
        }
        if service.state == State::Running(end.pid) {
            self.service_ended(id, end);
            return;
        }
        self.note_signal_death(id, &end);
    }

    /// A helper process that a signal killed, other than by kill(2) of its own service, is worth telling.
    fn note_signal_death(&mut self, id: NodeId, end: &ProcessEnd) {
        if let ExitStatus::Signal { core: true, .. } = end.status
            && self.world.services[&id].state != State::Crashed
        {
            let text = format!(
                "process {} ({}): {}",
                end.pid.number(),
                String::from_utf8_lossy(&end.comm),
                end.status
            );
            self.find(FindingKind::Crash, Some(id), text);
        }
    }

    fn service_ended(&mut self, id: NodeId, end: ProcessEnd) {
        let Some(spec) = self.spec(id) else { return };
        self.world.now = self.world.now.max(end.at);
        let now = self.world.now;
        self.kill_container(self.world.room(id));
        let service = self.service(id);
        let starts = service.starts;
        (service.state, service.healthy, service.probe) = (State::Ended(end.status), false, None);
        self.note(Some(id), Notice::Service(ServiceChange::Ended(end.status)));
        let failed = end.status != ExitStatus::Code(0);
        if failed && self.world.phase != Phase::Done {
            let text = format!("service {} ended: {}", spec.name, end.status);
            self.find(FindingKind::Crash, Some(id), text);
        }
        let again = match spec.restart {
            RestartPolicy::No => false,
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure(limit) => failed && limit.is_none_or(|n| starts <= n),
        };
        if again {
            let delay = (RESTART_DELAY << starts.min(10)).min(60_000_000_000);
            self.world.queue.push(now.after(delay), Due::Start(id));
        }
        self.dependencies_changed();
        self.node_changed(self.world.room(id).machine);
    }
}

/// It serves, or it was a job that is done.
fn is_ready(service: &Service) -> bool {
    service.healthy || service.state == State::Ended(ExitStatus::Code(0))
}

/// Paths to try for a program.
fn candidates(program: &Program) -> Vec<Vec<u8>> {
    if program.path.contains(&b'/') {
        return vec![program.path.clone()];
    }
    let path = program.envp.iter().find_map(|e| e.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH.as_bytes());
    path.split(|b| *b == b':').map(|dir| [dir, b"/", &program.path].concat()).collect()
}
