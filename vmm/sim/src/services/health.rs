//! Health checks of services, for the whole run: what Docker's monitor does (`daemon/health.go` of its engine), with the times of
//! the compose file.
//!
//! Key type: [`Health`]. A check is a process in the service's container; its exit code is the answer. Only changes of the status
//! are in the timeline; each failed check is an event. Neighbours: the parent module starts services and waits for health.

use bloodhound_abi::SimTime;
use bloodhound_kernel::ids::Pid;
use bloodhound_net::NodeId;

use super::{ServiceChange, State};
use crate::event::Event;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::queue::Due;
use crate::scenario::HealthSpec;
use crate::world::FindingKind;

/// What is known of a service's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Nothing yet since its start.
    #[default]
    Starting,
    /// Its last check passed, or fewer failed since than make it unhealthy. Without a check: it ran for some time.
    Healthy,
    /// So many checks in a row have failed.
    Unhealthy,
}

/// A running health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its process.
    pub pid: Pid,
    /// When it began.
    pub begun: SimTime,
}

impl HealthSpec {
    /// How long to wait for the next check. "start interval is the time between health checks during the start period"
    /// (Dockerfile reference): until the first check passes.
    pub fn pause(&self, health: Health, age: u64) -> u64 {
        let starting = health == Health::Starting && age < self.start_period;
        if starting { self.start_interval.min(self.interval) } else { self.interval }
    }

    /// What a check makes of a service's health and of its failures in a row. `age` is the service's when the check began.
    pub fn judge(&self, (health, failures): (Health, u32), passed: bool, age: u64) -> (Health, u32) {
        if passed {
            return (Health::Healthy, 0);
        }
        // "Probe failure during that period will not be counted towards the maximum number of retries" (Dockerfile reference): until
        // the first check passes.
        let counts = health != Health::Starting || age >= self.start_period;
        let failures = failures + u32::from(counts);
        let unhealthy = counts && failures >= self.retries;
        (if unhealthy { Health::Unhealthy } else { health }, failures)
    }
}

impl Machine {
    /// Time for a health check, or for a service without one to count as ready.
    pub(crate) fn check_health(&mut self, id: NodeId) {
        let Some(spec) = self.spec(id) else { return };
        let (now, until_ready) = (self.world.now, self.scenario.health_until_ready);
        let service = self.service(id);
        if service.check.is_some() || !matches!(service.state, State::Running(_)) {
            return;
        }
        let Some(health) = &spec.health else {
            if service.health == Health::Starting {
                service.health = Health::Healthy;
                self.dependencies_changed();
            }
            return;
        };
        if until_ready && service.health == Health::Healthy {
            return;
        }
        let machine = self.world.room(id).machine;
        if let Some(until) = self.world.paused.get(&machine).copied() {
            // The engine stands on the same machine.
            self.world.queue.push(until.max(now.after(1)), Due::HealthCheck(id));
            return;
        }
        match self.spawn(id, &health.program) {
            Ok(pid) => {
                self.world.node_mut(machine).process_mut(pid).is_check = true;
                self.service(id).check = Some(Check { pid, begun: now });
                self.world.queue.push(now.after(health.timeout), Due::HealthTimeout(id, pid.0));
            }
            Err(e) => {
                let text = format!("service {}: cannot run its health check: {e}", spec.name);
                self.find(FindingKind::NotReady, Some(id), text);
            }
        }
        self.node_changed(machine);
    }

    /// A health check has run out of time.
    pub(crate) fn health_timeout(&mut self, id: NodeId, pid: u32) {
        let pid = Pid(pid);
        if self.service(id).check.is_none_or(|check| check.pid != pid) {
            return;
        }
        let machine = self.world.room(id).machine;
        if let Some(until) = self.world.paused.get(&machine).copied() {
            let at = until.max(self.world.now.after(1));
            self.world.queue.push(at, Due::HealthTimeout(id, pid.0));
            return;
        }
        let info = bloodhound_kernel::signal::user_info(9, 0, Pid::NONE, 0);
        self.world.catch_up(machine);
        self.world.node_mut(machine).send_process(pid, info);
        self.health_checked(id, false);
    }

    /// A health check has its answer (`handleProbeResult`).
    pub(super) fn health_checked(&mut self, id: NodeId, passed: bool) {
        let Some(spec) = self.spec(id) else { return };
        let Some(health) = &spec.health else { return };
        let now = self.world.now;
        let service = self.service(id);
        let (before, age) = (service.health, now.since(service.started));
        let begun = service.check.take().map_or(now, |check| check.begun);
        let judged = health.judge((before, service.failures), passed, begun.since(service.started));
        (service.health, service.failures) = judged;
        let (after, failures) = (service.health, service.failures);
        self.world.queue.push(now.after(health.pause(after, age)), Due::HealthCheck(id));
        if !passed {
            self.tell(Some(id), &Event::Service(&ServiceChange::CheckFailed { failures }));
        }
        match after {
            _ if after == before => {}
            Health::Starting => {}
            Health::Healthy => {
                self.note(Some(id), Notice::Service(ServiceChange::Healthy));
                self.dependencies_changed();
            }
            Health::Unhealthy => self.note(Some(id), Notice::Service(ServiceChange::Unhealthy { failures })),
        }
    }
}
