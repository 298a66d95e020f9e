//! A rollout: the services of a group are stopped and started one after the other, as an operator or a deployment does it. The next one has its turn a pause
//! after the one before is ready again.
//!
//! Key types: [`Rollout`] (who, and with what pauses), and the kinds that are one: [`RollingRestart`], [`Upgrade`], after which the services are made of their
//! other definitions ([`super::Planning::upgrades`]), [`Downgrade`], the way back. Of several that are about the version of one service the last one counts: what
//! an earlier one had still to do with it is not done.
//!
//! Steps have numbers: an even one is the turn of a service, the odd one behind it looks whether that is ready.

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use super::{Draw, Fault, Names, Room, planning};
use crate::machine::Machine;
use crate::queue::Due;
use crate::services::Version;

/// How often it is looked whether a service is ready, ns.
const LOOK: u64 = 50_000_000;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// The name of the group; empty if it has none.
    pub group: String,
    /// The services in their order.
    pub nodes: Vec<NodeId>,
    /// From when one is ready until the next one is stopped, ns.
    pub pause: u64,
}

/// The kinds, each with what its services are made of when they start again (`None`: of what they are), and its name in words.
macro_rules! kinds_of_rollouts {
    ($($(#[$doc:meta])* $kind:ident: $version:expr, $words:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $kind(pub Rollout);

            impl Room for $kind {
                fn draw(draw: &mut Draw<'_>) -> Option<$kind> {
                    Rollout::draw(draw, $version).map($kind)
                }

                fn node(&self) -> Option<NodeId> {
                    None
                }

                fn hindered(&self, machine: &Machine) -> Option<&'static str> {
                    self.0.hindered(machine, $version)
                }

                fn describe(&self, name: Names<'_>, ms: u64) -> String {
                    self.0.describe($words, name, ms)
                }

                fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
                    self.0.begin(machine, entry, $version);
                }

                fn go_on(&self, machine: &mut Machine, entry: usize, step: u64) {
                    self.0.go_on(machine, entry, (step, $version));
                }

                fn end(&self, _: &mut Machine, _: usize) -> bool {
                    // Stops and starts are told.
                    false
                }
            }
        )*

        impl Fault {
            /// The services that it stops one after the other, if it is a kind that does so.
            pub fn rollout(&self) -> Option<&Rollout> {
                match self {
                    $(Fault::$kind($kind(rollout)) => Some(rollout),)*
                    _ => None,
                }
            }
        }
    };
}

kinds_of_rollouts! {
    /// Services are restarted in turn.
    RollingRestart: None, "rolling restart";
    /// Services are made of their other definitions in turn.
    Upgrade: Some(Version::Next), "upgrade";
    /// Services are made of what they began with in turn.
    Downgrade: Some(Version::First), "downgrade";
}

impl Rollout {
    fn draw(draw: &mut Draw<'_>, version: Option<Version>) -> Option<Rollout> {
        let pause = draw.size();
        let group = draw.group?;
        let nodes = if version.is_some() { &group.upgrades } else { &group.nodes };
        (!nodes.is_empty()).then(|| Rollout { group: group.name.clone(), nodes: nodes.clone(), pause })
    }

    fn hindered(&self, machine: &Machine, version: Option<Version>) -> Option<&'static str> {
        let mut acting = self.nodes.iter().filter(|node| machine.not_acting(**node).is_none()).peekable();
        let changing = self.nodes.iter().any(|node| is_on_its_way(machine, *node, version));
        if acting.peek().is_none() && !changing {
            return Some("none of its services runs");
        }
        let differs = |node: &NodeId| version.is_none_or(|version| machine.ordered(*node) != version);
        if changing || acting.any(differs) {
            return None;
        }
        match version {
            _ if self.nodes.iter().any(differs) => {
                Some("those of its services that run are of this version already")
            }
            Some(Version::Next) => Some("its services are upgraded already"),
            _ => Some("none of its services was upgraded"),
        }
    }

    fn describe(&self, what: &str, name: Names<'_>, ms: u64) -> String {
        let who = planning::in_words(&self.group, &self.nodes, name);
        format!("{what} of {who}, {} ms between, within {ms} ms", self.pause / 1_000_000)
    }

    fn begin(&self, machine: &mut Machine, entry: usize, version: Option<Version>) {
        if let Some(version) = version {
            let rollouts = &mut machine.world.faults.rollouts;
            rollouts.extend(self.nodes.iter().map(|node| (*node, entry)));
            for node in &self.nodes {
                if is_on_its_way(machine, *node, Some(version))
                    && let Some(service) = machine.world.services.get_mut(node)
                {
                    service.ordered = version;
                }
            }
        }
        self.turn(machine, entry, (0, version));
    }

    fn go_on(&self, machine: &mut Machine, entry: usize, (step, version): (u64, Option<Version>)) {
        if machine.is_over(entry) {
            return;
        }
        let place = (step / 2) as usize;
        if step.is_multiple_of(2) {
            self.turn(machine, entry, (place, version));
            return;
        }
        let service = self.nodes.get(place).and_then(|node| machine.world.services.get(node));
        let ready = service.is_some_and(|service| service.is_ready());
        let (after, next) = if ready { (self.pause, step + 1) } else { (LOOK, step) };
        machine.world.queue.push(machine.world.now.after(after), Due::FaultGoesOn(entry, next));
    }

    /// It is the turn of the first service from this place on that runs, and is to be made of something else: those that are down are left alone.
    fn turn(&self, machine: &mut Machine, entry: usize, (place, version): (usize, Option<Version>)) {
        let has_turn = |node: &NodeId| {
            let is_own = || machine.world.faults.rollouts.get(node) == Some(&entry);
            let changes = version.is_none_or(|version| machine.ordered(*node) != version && is_own());
            changes && machine.not_acting(*node).is_none()
        };
        let Some(place) = (place..self.nodes.len()).find(|place| has_turn(&self.nodes[*place])) else {
            return;
        };
        let node = self.nodes[place];
        if let (Some(version), Some(service)) = (version, machine.world.services.get_mut(&node)) {
            service.ordered = version;
        }
        if let Some(pid) = machine.first_process(node) {
            // It does not wait for a service beyond its own time.
            let grace = machine.spec(node).map_or(0, |spec| spec.runtime.stop_grace);
            let (now, left) = (machine.world.now, machine.time_left(entry));
            if let Some(service) = machine.world.services.get_mut(&node) {
                service.stop_by = (1..grace).contains(&left).then(|| now.after(left));
            }
            machine.stop_service(node, pid);
        }
        let looks = Due::FaultGoesOn(entry, 2 * place as u64 + 1);
        machine.world.queue.push(machine.world.now.after(LOOK), looks);
    }
}

/// Whether a service is down, and an earlier rollout would have it start as something that it has not been and is not to be: it has no turn any more, but
/// starts as what a rollout with this version has it be.
fn is_on_its_way(machine: &Machine, node: NodeId, version: Option<Version>) -> bool {
    let service = machine.world.services.get(&node);
    let changes = |version| service.is_some_and(|s| s.ordered != version && s.ordered != s.version);
    version.is_some_and(changes) && machine.not_acting(node).is_some()
}
