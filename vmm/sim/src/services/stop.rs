//! What follows the end of a service's command: restarts with Docker's pauses between them, and stops in order, as an engine makes
//! them when a service must restart because another one did (`depends_on` with `restart: true`).
//!
//! Key type: [`Restarts`]. Neighbours: the parent module, [`crate::faults`] (what kills without asking).

use bloodhound_abi::SimTime;
use bloodhound_kernel::ids::Pid;
use bloodhound_net::NodeId;

use super::{Health, Moment, ServiceChange, State};
use crate::machine::Machine;
use crate::notice::Notice;
use crate::queue::Due;
use crate::scenario::RestartPolicy;

/// The first pause before a restart, ns (`defaultTimeout` of Docker's restart manager).
const FIRST_PAUSE: u64 = 100_000_000;
/// The longest one (`maxRestartTimeout`).
const LONGEST_PAUSE: u64 = 60_000_000_000;
/// After running for so long the pauses begin anew.
const SETTLED: u64 = 10_000_000_000;

/// Restarts of a service since it was last started by hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restarts {
    /// How many.
    pub count: u32,
    /// The last pause, ns.
    pause: u64,
}

impl Restarts {
    /// A service that ran for so long has ended: when it starts again, if its policy says so. "An increasing delay (double the
    /// previous delay, starting at 100 milliseconds) is added before each restart [...] up to a maximum of 1 minute. [...] If a
    /// container is successfully restarted (the container is started and runs for at least 10 seconds), the delay is reset to its
    /// default value of 100 ms" (docker run, "Restart policies").
    pub fn next(&mut self, policy: RestartPolicy, failed: bool, ran: u64) -> Option<u64> {
        if ran >= SETTLED {
            self.pause = 0;
        }
        self.pause = if self.pause == 0 { FIRST_PAUSE } else { (self.pause * 2).min(LONGEST_PAUSE) };
        let again = match policy {
            RestartPolicy::No => false,
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure(most) => failed && most.is_none_or(|most| self.count < most),
        };
        self.count += u32::from(again);
        again.then_some(self.pause)
    }
}

impl Machine {
    /// A service was started again by hand, as the end of a crash or an upgrade does it: those that must restart with it are stopped, and start
    /// when what they depend on is there.
    pub(crate) fn restart_dependents(&mut self, id: NodeId) {
        let scenario = self.scenario.clone();
        for spec in &scenario.services {
            let depends = spec.depends_on.iter().any(|on| on.service == id && on.restart);
            if depends && let State::Running(pid) = self.service(spec.node).state {
                self.stop_service(spec.node, pid);
            }
        }
    }

    /// Asks a service to end: first with the commands of its `pre_stop`.
    pub(crate) fn stop_service(&mut self, id: NodeId, pid: Pid) {
        let service = self.service(id);
        (service.state, service.health, service.check) = (State::Stopping(pid), Health::Starting, None);
        self.note(Some(id), Notice::Service(ServiceChange::Stopping));
        self.run_hook(id, Moment::PreStop, 0);
    }

    /// "Sends a SIGTERM [or stop_signal], and after a grace period, SIGKILL" (docker stop).
    pub(super) fn send_stop(&mut self, id: NodeId) {
        let Some(spec) = self.spec(id) else { return };
        let State::Stopping(pid) = self.service(id).state else { return };
        let machine = self.world.room(id).machine;
        self.world.catch_up(machine);
        let info = bloodhound_kernel::signal::user_info(spec.runtime.stop_signal, 0, Pid::NONE, 0);
        self.world.node_mut(machine).send_process(pid, info);
        let now = self.world.now;
        let said = self.service(id).stop_by.take().map(|at| at.max(now));
        let at: SimTime = said.unwrap_or(now.after(spec.runtime.stop_grace));
        self.world.queue.push(at, Due::StopTimeout(id, pid.0));
        self.node_changed(machine);
    }

    /// A service has ended because a fault killed processes of it, and its policy does not start it: it starts again as after a crash.
    pub(super) fn starts_after_fault(&mut self, id: NodeId, until: SimTime) {
        let at = until.max(self.world.now.after(FIRST_PAUSE));
        self.service(id).state = State::Crashed;
        self.world.queue.push(at, Due::Start(id));
    }

    /// Faults are over: services that do nothing about their stop signal are killed now, and not when their grace period is over, for nothing but time would pass.
    pub(crate) fn end_vain_stops(&mut self) {
        let stopping: Vec<(NodeId, Pid)> = self
            .world
            .services
            .iter()
            .filter_map(|(id, service)| match service.state {
                State::Stopping(pid) if service.hook.is_none() => Some((*id, pid)),
                _ => None,
            })
            .collect();
        for (id, pid) in stopping {
            let Some(spec) = self.spec(id) else { continue };
            let machine = self.world.room(id).machine;
            if self.world.nodes[&machine].is_spared(pid, spec.runtime.stop_signal) {
                self.stop_timeout(id, pid.0);
            }
        }
    }

    /// A service that was asked to end has not done so in time.
    pub(crate) fn stop_timeout(&mut self, id: NodeId, pid: u32) {
        if self.service(id).state != State::Stopping(Pid(pid)) {
            return;
        }
        let room = self.world.room(id);
        self.world.catch_up(room.machine);
        self.kill_container(room);
        self.node_changed(room.machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_ten_seconds() {
        let mut restarts = Restarts::default();
        let pauses: Vec<u64> =
            (0..12).filter_map(|_| restarts.next(RestartPolicy::Always, false, SECOND)).collect();
        let ms: Vec<u64> = pauses.iter().map(|ns| ns / 1_000_000).collect();
        assert_eq!(ms, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        assert_eq!(restarts.next(RestartPolicy::Always, true, 10 * SECOND), Some(FIRST_PAUSE));
    }

    #[test]
    fn on_failure_counts_failures_and_no_restarts_nothing() {
        let mut restarts = Restarts::default();
        let policy = RestartPolicy::OnFailure(Some(2));
        assert_eq!(restarts.next(policy, false, 0), None);
        assert!(restarts.next(policy, true, 0).is_some() && restarts.next(policy, true, 0).is_some());
        assert_eq!(restarts.next(policy, true, 100 * SECOND), None);
        assert_eq!(Restarts::default().next(RestartPolicy::No, true, 0), None);
        assert!(Restarts::default().next(RestartPolicy::OnFailure(None), true, 0).is_some());
    }

    #[test]
    fn the_time_that_a_fault_gives_ends_with_the_life_that_it_was_for() {
        let mut service = super::super::Service { stop_by: Some(SimTime(SECOND)), ..Default::default() };
        service.crash();
        assert_eq!((service.state, service.stop_by), (State::Crashed, None));
    }
}
