//! Commands that are run in a container after its start and before its stop, as `docker compose` runs them: one after the other, beside
//! the service's command.
//!
//! Key type: [`Hook`]. After its start means: started by hand, as at the beginning and after a crash; a restart by the engine runs none, of
//! which compose knows nothing. Who depends on the service waits for the commands too. Neighbours: the parent module starts services,
//! `stop` stops them.

use bloodhound_kernel::caps;
use bloodhound_kernel::ids::{Pid, Tid};
use bloodhound_kernel::node::ProcessEnd;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::NodeId;

use super::{Health, ServiceChange, State};
use crate::machine::Machine;
use crate::notice::Notice;
use crate::scenario::HookSpec;
use crate::world::{FindingKind, Phase};

/// When a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// `post_start`
    PostStart,
    /// `pre_stop`
    PreStop,
}

impl Moment {
    /// The key of the compose file.
    pub fn key(self) -> &'static str {
        match self {
            Moment::PostStart => "post_start",
            Moment::PreStop => "pre_stop",
        }
    }
}

/// A command that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its process.
    pub pid: Pid,
    /// When it is run.
    pub moment: Moment,
    /// Which of its list, from 0.
    pub nth: usize,
}

impl Machine {
    fn hook_spec(&self, id: NodeId, moment: Moment, nth: usize) -> Option<HookSpec> {
        let spec = self.spec(id)?;
        let list = match moment {
            Moment::PostStart => &spec.hooks.post_start,
            Moment::PreStop => &spec.hooks.pre_stop,
        };
        list.get(nth).cloned()
    }

    /// Runs a command of the list, or goes on after the last one.
    pub(super) fn run_hook(&mut self, id: NodeId, moment: Moment, nth: usize) {
        let Some(spec) = self.hook_spec(id, moment, nth) else {
            match moment {
                Moment::PostStart => self.dependencies_changed(),
                Moment::PreStop => self.send_stop(id),
            }
            return;
        };
        match self.spawn(id, &spec.program) {
            Ok(pid) => {
                let machine = self.world.room(id).machine;
                if spec.privileged {
                    let every = (2u64 << caps::LAST) - 1;
                    let first = self.world.node_mut(machine).task_mut(Tid(pid.0));
                    first.credentials.caps = caps::Caps::of(spec.program.uid, every);
                }
                self.service(id).hook = Some(Hook { pid, moment, nth });
                self.node_changed(machine);
            }
            Err(e) => {
                let path = String::from_utf8_lossy(&spec.program.path).into_owned();
                self.hook_failed(id, moment, nth, &format!("cannot run {path}: {e}"));
            }
        }
    }

    /// A process has ended; whether it was a command of these.
    pub(super) fn hook_ended(&mut self, id: NodeId, end: &ProcessEnd) -> bool {
        let Some(hook) = self.service(id).hook.filter(|hook| hook.pid == end.pid) else { return false };
        self.service(id).hook = None;
        self.world.reach(end.at);
        let (Hook { moment, nth, .. }, status) = (hook, end.status);
        self.note(Some(id), Notice::Service(ServiceChange::Hook { moment, nth, status }));
        match status {
            ExitStatus::Code(0) => self.run_hook(id, moment, nth + 1),
            _ => self.hook_failed(id, moment, nth, &format!("ended with {status}")),
        }
        true
    }

    fn hook_failed(&mut self, id: NodeId, moment: Moment, nth: usize, why: &str) {
        let name = self.spec(id).map(|spec| spec.name.clone()).unwrap_or_default();
        if self.world.phase != Phase::Done {
            let booting = self.world.phase == Phase::Boot && self.world.ready_at.is_none();
            let kind = if booting { FindingKind::NotReady } else { FindingKind::Crash };
            let text = format!("service {name}: command {} of `{}`: {why}", nth + 1, moment.key());
            self.find(kind, Some(id), text);
        }
        let (State::Running(pid) | State::Stopping(pid)) = self.service(id).state else { return };
        match moment {
            Moment::PostStart => {
                let service = self.service(id);
                (service.state, service.health, service.check) =
                    (State::Stopping(pid), Health::Starting, None);
                service.stays = true;
                self.note(Some(id), Notice::Service(ServiceChange::Stopping));
                self.send_stop(id);
            }
            Moment::PreStop => {
                let now = self.world.now;
                let service = self.service(id);
                (service.state, service.ordered) = (State::Running(pid), service.version);
                self.world.queue.push(now, crate::queue::Due::HealthCheck(id));
            }
        }
    }
}
