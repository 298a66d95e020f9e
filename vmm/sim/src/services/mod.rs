//! Supervision of the services, as a container engine does it: start order, health checks, restarts, and when the
//! stack is ready.
//!
//! Key types: [`Service`] (what is known of one), [`State`], [`ServiceChange`]. Modules: `health` (checks, for the whole run), `hooks`
//! (commands after a start and before a stop), `stop` (restarts after an end, stops in order).

mod health;
mod hooks;
mod stop;

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::{MachineId, ProcessEnd};
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::NodeId;

use crate::event::Event;
use crate::machine::Machine;
use crate::notice::{Notice, PhaseChange};
use crate::queue::Due;
use crate::scenario::{Condition, Dependency, Init, ServiceSpec};
use crate::world::{FindingKind, Phase, Room, World};

pub use health::{Check, Health};
pub use hooks::{Hook, Moment};
pub use stop::Restarts;

/// Where programs are looked up without a PATH of their own.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// When a service tries again that joins the namespaces of one that does not run, ns.
const JOIN_AGAIN: u64 = 100_000_000;

/// What a service does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Waits for its dependencies.
    #[default]
    Waiting,
    /// Its command runs.
    Running(Pid),
    /// Its command was asked to end, and starts again then.
    Stopping(Pid),
    /// Its command ended.
    Ended(ExitStatus),
    /// A fault killed it; it will be started again.
    Crashed,
}

/// Of which of its definitions the container of a service is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// That with which the run begins.
    #[default]
    First,
    /// That of an upgrade ([`crate::faults::Planning::upgrades`]).
    Next,
}

/// Something happened to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceChange {
    /// Its container was made anew of this version, to be started.
    Remade(Version),
    /// Its command runs.
    Started,
    /// Its health check has passed, as it had not since its start or since it became unhealthy.
    Healthy,
    /// A health check has failed.
    CheckFailed {
        /// So many in a row, of those that count.
        failures: u32,
    },
    /// So many health checks in a row have failed that it is unhealthy now.
    Unhealthy {
        /// How many.
        failures: u32,
    },
    /// It was asked to end.
    Stopping,
    /// A command of `post_start` or `pre_stop` has ended.
    Hook {
        /// Which list.
        moment: Moment,
        /// Which of the list, from 0.
        nth: usize,
        /// How.
        status: ExitStatus,
    },
    /// Its command ended.
    Ended(ExitStatus),
}

/// A service's supervision.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// What it does.
    pub state: State,
    /// What its health checks say.
    pub health: Health,
    /// When its command was last started.
    pub started: SimTime,
    /// How often it was started.
    pub starts: u32,
    /// It starts so much later than it could, ns; see [`crate::scenario::Spread`].
    pub start_offset: u64,
    /// A running health check.
    pub check: Option<Check>,
    /// A running command of `post_start` or `pre_stop`.
    pub hook: Option<Hook>,
    /// It is asked to end and does not start again.
    pub stays: bool,
    /// How many of its lives a signal ended, so that they wrote nothing at their end.
    pub cut_short: u32,
    /// Failed health checks in a row.
    pub failures: u32,
    /// Its restarts.
    pub restarts: Restarts,
    /// Why its command could not be started.
    pub refused: Option<Errno>,
    /// A fault has killed processes in its present life: if it ends for that, it starts again then.
    pub struck: Option<SimTime>,
    /// Until when it has to end when it is asked to, if not as long as it says itself.
    pub stop_by: Option<SimTime>,
    /// Of what its container is made.
    pub version: Version,
    /// Of what it is made when it starts next.
    pub ordered: Version,
}

impl Service {
    /// Its command runs.
    pub fn runs(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// It serves, or it was a job that is done.
    pub fn is_ready(&self) -> bool {
        self.is_up() && (self.health == Health::Healthy || self.state == State::Ended(ExitStatus::Code(0)))
    }

    /// It was started, with the commands of `post_start`.
    fn is_up(&self) -> bool {
        self.starts > 0 && self.hook.is_none_or(|hook| hook.moment != Moment::PostStart)
    }

    /// A fault kills it. What starts it again is as a start by hand, after which restarts are counted anew.
    pub(crate) fn crash(&mut self) {
        self.cut_short += u32::from(self.runs());
        (self.state, self.health, self.check) = (State::Crashed, Health::Starting, None);
        (self.hook, self.stop_by) = (None, None);
        self.restarts = Restarts::default();
    }
}

impl Machine {
    /// Of what a container is made.
    pub(crate) fn spec(&self, id: NodeId) -> Option<Arc<ServiceSpec>> {
        let version = self.world.services.get(&id).map(|service| service.version);
        self.scenario.definition(id, version.unwrap_or_default()).cloned().map(Arc::new)
    }

    fn service(&mut self, id: NodeId) -> &mut Service {
        self.world.services.entry(id).or_default()
    }

    /// Runs a program in a container, looked up in PATH if it is a bare name.
    pub(crate) fn spawn(&mut self, id: NodeId, program: &Program) -> Result<Pid, Errno> {
        self.spawn_as(id, program, Init::None)
    }

    /// The same, as the child of an init.
    fn spawn_as(&mut self, id: NodeId, program: &Program, init: Init) -> Result<Pid, Errno> {
        let Room { machine, container, .. } = self.world.room(id);
        self.world.catch_up(machine);
        let candidates = candidates(program);
        let mut result = Err(Errno::ENOENT);
        for path in candidates {
            let mut candidate = program.clone();
            candidate.path = path;
            let mut parts = self.parts(machine);
            let (node, mut outside) = parts.split();
            result = match init {
                Init::None => node.spawn(container, &candidate, &mut outside),
                Init::Runs => node.spawn_with_init(container, &candidate, &mut outside),
                Init::Sleeps => node.spawn_below_init(container, &candidate, &mut outside),
            };
            if !matches!(result, Err(Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR)) {
                break;
            }
        }
        result
    }

    pub(crate) fn start_service(&mut self, id: NodeId) {
        let ordered = self.service(id).ordered;
        let Some(spec) = self.scenario.definition(id, ordered).cloned().map(Arc::new) else { return };
        if matches!(self.service(id).state, State::Running(_) | State::Stopping(_)) || self.must_wait(&spec) {
            return;
        }
        // After a run all are asked to end ([`Machine::stop_all`]).
        if self.world.phase == Phase::Done && self.service(id).stays {
            return;
        }
        let (crashed, ended) = match self.service(id).state {
            State::Crashed => (true, false),
            State::Ended(_) => (false, true),
            _ => (false, false),
        };
        let again = self.service(id).starts > 0;
        let updated = self.service(id).version != ordered;
        if again && let Err(e) = self.renew(id, &spec) {
            self.find(
                FindingKind::NotReady,
                Some(id),
                format!("service {} cannot be restarted: {e}", spec.name),
            );
            return;
        }
        match self.spawn_as(id, &spec.program, spec.runtime.init) {
            Ok(pid) => {
                let now = self.world.now;
                let service = self.service(id);
                (service.state, service.started, service.health) =
                    (State::Running(pid), now, Health::Starting);
                service.starts += 1;
                (service.failures, service.check, service.hook, service.stays) = (0, None, None, false);
                service.struck = None;
                self.note(Some(id), Notice::Service(ServiceChange::Started));
                let settle = self.scenario.settle;
                let first = spec.health.as_ref().map_or(settle, |h| h.pause(Health::Starting, 0).min(settle));
                // What was left of the checks of an earlier life.
                self.world.queue.remove_if(|due| matches!(due, Due::HealthCheck(of) if *of == id));
                self.world.queue.push(now.after(first), Due::HealthCheck(id));
                match ended {
                    // By the engine, which knows of no such commands.
                    true => self.dependencies_changed(),
                    false => self.run_hook(id, Moment::PostStart, 0),
                }
                // "When set to true Compose restarts this service after it updates the dependency service" (`restart` of `depends_on`).
                if crashed || updated {
                    self.restart_dependents(id);
                }
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

    /// Whether a service joins namespaces of one that does not run: "cannot join PID of a non running container", as engines
    /// say. It tries again until that one runs, and until its machine has power.
    fn must_wait(&mut self, spec: &ServiceSpec) -> bool {
        let sharing = spec.sharing;
        let others = [sharing.net, sharing.pids, sharing.ipc];
        let waits = others.into_iter().flatten().any(|other| !self.service(other).runs());
        if waits || self.world.faults.is_dark(spec.machine()) {
            self.world.queue.push(self.world.now.after(JOIN_AGAIN), Due::Start(spec.node));
            return true;
        }
        false
    }

    /// A restarted container has a fresh network stack and IPC namespace, and empty tmpfs mounts (/dev/shm, those of the
    /// compose file), and its command is process 1 again; its files stay, those in /tmp and /run too, unless it is made of something else now.
    fn renew(&mut self, id: NodeId, spec: &ServiceSpec) -> Result<(), Errno> {
        self.keep_files(id);
        // Nothing may take the new processes for those that had their numbers.
        let Room { machine, container, .. } = self.world.room(id);
        self.forget_dead(machine);
        let World { nodes, queue, .. } = &mut self.world;
        queue.remove_if(|e| matches!(e, Due::HealthTimeout(of, _) | Due::StopTimeout(of, _) if *of == id));
        let life = nodes[&machine].container(container).life + 1;
        let mut net = crate::setup::stack(spec, life, &mut self.world.decisions);
        net.hold_questions(self.world.faults.names.is_some());
        let (scenario, version) = (self.scenario.clone(), self.service(id).ordered);
        let is_other = self.service(id).version != version;
        let mut parts = self.parts(machine);
        let (node, outside) = parts.split();
        if !is_other {
            return node.renew_container(container, net, outside.base);
        }
        crate::setup::remake((node, container), &scenario, (spec, net), outside.base)?;
        self.service(id).version = version;
        self.note(Some(id), Notice::Service(ServiceChange::Remade(version)));
        Ok(())
    }

    /// Nothing may be taken any more for the tasks of a machine that are gone.
    pub(crate) fn forget_dead(&mut self, machine: MachineId) {
        let World { nodes, scheduler, computing, .. } = &mut self.world;
        scheduler.forget_dead(&nodes[&machine]);
        computing.forget_dead(&nodes[&machine]);
        self.forget_held(machine);
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
            if service.state == State::Waiting && spec.depends_on.iter().all(|on| self.is_met(on)) {
                self.world.queue.remove_if(|e| matches!(e, Due::Start(n) if *n == spec.node));
                let at = now.after(service.start_offset);
                self.world.queue.push(at, Due::Start(spec.node));
            }
        }
        self.check_ready();
    }

    fn is_met(&self, on: &Dependency) -> bool {
        let service = &self.world.services[&on.service];
        match on.condition {
            Condition::Started => service.is_up(),
            Condition::Healthy => service.is_up() && service.health == Health::Healthy,
            Condition::Completed => service.state == State::Ended(ExitStatus::Code(0)),
        }
    }

    /// A service has ended and does not start again: while the stack starts, those that wait for more of it wait in vain, and an
    /// engine gives up ("dependency failed to start", "didn't complete successfully").
    fn given_up(&mut self, id: NodeId, status: ExitStatus) {
        if self.world.phase != Phase::Boot || self.world.ready_at.is_some() {
            return;
        }
        let scenario = self.scenario.clone();
        let waits = |spec: &&ServiceSpec| {
            let vain =
                |on: &Dependency| on.service == id && on.condition != Condition::Started && !self.is_met(on);
            self.world.services[&spec.node].state == State::Waiting && spec.depends_on.iter().any(vain)
        };
        let Some(waiting) = scenario.services.iter().find(waits) else { return };
        let name = self.spec(id).map(|spec| spec.name.clone()).unwrap_or_default();
        let text = format!("service {} waits for {name}, which ended with {status}", waiting.name);
        self.find(FindingKind::NotReady, Some(waiting.node), text);
    }

    fn check_ready(&mut self) {
        if self.world.ready_at.is_some() {
            return;
        }
        if self.world.services.values().all(Service::is_ready) {
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
            .filter(|s| !self.world.services[&s.node].is_ready())
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
            State::Running(_) if service.hook.is_some_and(|hook| hook.moment == Moment::PostStart) => {
                "a command of its `post_start` runs".into()
            }
            State::Running(_) => "running".into(),
            State::Stopping(_) => "stopping".into(),
            State::Ended(status) => status.to_string(),
            State::Crashed => "crashed".into(),
        }
    }

    /// A process of a service or script is gone.
    pub(crate) fn process_ended(&mut self, id: NodeId, end: ProcessEnd) {
        self.recorder().tell(end.at, Some(id), &Event::Process(&end));
        if self.script_ended(id, end.pid, end.status) {
            return;
        }
        if !self.world.services.contains_key(&id) || self.hook_ended(id, &end) {
            return;
        }
        let service = &self.world.services[&id];
        if service.check.is_some_and(|check| check.pid == end.pid) {
            self.health_checked(id, end.status == ExitStatus::Code(0));
            return;
        }
        if matches!(service.state, State::Running(pid) | State::Stopping(pid) if pid == end.pid) {
            self.service_ended(id, end);
            return;
        }
        self.note_signal_death(id, &end);
    }

    /// A helper process that ended by a signal which tells of an error is worth telling: kill(2) of its own service uses others.
    fn note_signal_death(&mut self, id: NodeId, end: &ProcessEnd) {
        if end.status.tells_of_error() && self.world.services[&id].state != State::Crashed {
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
        self.world.reach(end.at);
        let now = self.world.now;
        self.kill_container(self.world.room(id));
        let service = self.service(id);
        let stopped = matches!(service.state, State::Stopping(_));
        let stays = service.stays;
        service.hook = None;
        service.cut_short += u32::from(matches!(end.status, ExitStatus::Signal { .. }));
        let ran = now.since(service.started);
        (service.state, service.health, service.check) = (State::Ended(end.status), Health::Starting, None);
        self.note(Some(id), Notice::Service(ServiceChange::Ended(end.status)));
        if stays {
            self.given_up(id, end.status);
        } else if stopped {
            // As `compose restart`: it starts again when what it depends on is there.
            self.service(id).state = State::Waiting;
            if spec.depends_on.is_empty() {
                let at = now.after(self.service(id).start_offset);
                self.world.queue.push(at, Due::Start(id));
            }
        } else {
            let failed = end.status != ExitStatus::Code(0);
            let struck = self.service(id).struck.take();
            // Who loses a process to a fault may give up, but not by an error of its own.
            let excused = struck.is_some() && !end.status.tells_of_error();
            if failed && self.world.phase != Phase::Done && !excused {
                let text = format!("service {} ended: {}", spec.name, end.status);
                self.find(FindingKind::Crash, Some(id), text);
            }
            match self.service(id).restarts.next(spec.restart, failed, ran) {
                Some(pause) => self.world.queue.push(now.after(pause), Due::Start(id)),
                None => match struck {
                    Some(until) => self.starts_after_fault(id, until),
                    None => self.given_up(id, end.status),
                },
            }
        }
        self.dependencies_changed();
        self.node_changed(self.world.room(id).machine);
    }
}

/// Paths to try for a program.
fn candidates(program: &Program) -> Vec<Vec<u8>> {
    if program.path.contains(&b'/') {
        return vec![program.path.clone()];
    }
    let path = program.envp.iter().find_map(|e| e.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH.as_bytes());
    path.split(|b| *b == b':').map(|dir| [dir, b"/", &program.path].concat()).collect()
}
