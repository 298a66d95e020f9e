//! What links do to packets, and when: by the profile of a seed, to all links or to some; and for a time, between some nodes, where an entry of
//! the schedule asks for it. That comes on top of what the profile does.

use bloodhound_abi::SimTime;
use bloodhound_faults::{Kind, Setting};
use bloodhound_net::NodeId;

use super::{Draw, Fault, Names, Planned, Room, links};
use crate::machine::Machine;
use crate::world::Phase;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The kind.
    pub kind: Kind,
    /// How strong it is.
    pub setting: Setting,
    /// The links from these nodes; none: all.
    pub from: Vec<NodeId>,
    /// To these; none: all.
    pub to: Vec<NodeId>,
}

impl Window {
    fn has(&self, from: NodeId, to: NodeId) -> bool {
        let among = |list: &[NodeId], node| list.is_empty() || list.contains(&node);
        from != to && among(&self.from, from) && among(&self.to, to)
    }
}

impl Room for Window {
    fn draw(_: &mut Draw<'_>) -> Option<Window> {
        None
    }

    fn node(&self) -> Option<NodeId> {
        None
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let names = |ids: &[NodeId]| match ids {
            [] => "all".to_owned(),
            ids => ids.iter().map(|id| name(*id)).collect::<Vec<_>>().join(" "),
        };
        let mut strength = String::new();
        if self.kind.declaration().switch().is_some() {
            strength = format!(" {}", bloodhound_faults::percent(self.setting.rate));
        }
        if self.kind.declaration().has_time() {
            strength.push_str(&format!(" {} us", self.setting.time.1 / 1000));
        }
        if self.setting.number > 0 {
            strength.push_str(&format!(" {} kbit/s", self.setting.number));
        }
        format!("{}{strength} from [{}] to [{}] for {ms} ms", self.kind, names(&self.from), names(&self.to))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        machine.world.faults.windows.insert(entry, self.clone());
        apply_all(machine);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let lasted = machine.world.faults.windows.remove(&entry).is_some();
        if lasted {
            apply_all(machine);
        }
        lasted
    }
}

/// Gives each link that windows are about its configuration, and takes it from all links if there is none.
pub(super) fn apply_all(machine: &mut Machine) {
    let world = &mut machine.world;
    let any = !world.faults.windows.is_empty() || !world.faults.of_links.is_empty();
    if !any && !world.faults.links_differ {
        return;
    }
    world.faults.links_differ = any;
    let nodes = world.fabric.nodes();
    for from in &nodes {
        for to in &nodes {
            let all = world.faults.of_links.iter().chain(world.faults.windows.values());
            let windows: Vec<_> = all.filter(|window| window.has(*from, *to)).collect();
            let mut link = world.fabric.default_link().clone();
            for window in &windows {
                links::apply_one(window.kind, &window.setting, &mut link);
            }
            let own = (!windows.is_empty()).then_some(link);
            world.fabric.set_link(*from, *to, own);
        }
    }
}

impl Machine {
    /// What links do by the schedule from the beginning on begins before anything else happens, as what they do by the profile.
    pub(super) fn begin_windows(&mut self) {
        loop {
            let (next, now) = (self.world.faults.effects.len(), self.world.now);
            let is_window = |entry: &&Planned| entry.begin <= now && matches!(entry.fault, Fault::Window(_));
            if self.world.faults.plan.get(next).filter(is_window).is_none() {
                break;
            }
            self.fault_due(next);
        }
        self.queue_next_fault();
    }

    /// The links become faulty, or good again, and so does what programs ask of their kernels.
    pub(crate) fn set_links(&mut self, faulty: bool) {
        let mut link = self.scenario.link.clone();
        self.world.faults.of_links.clear();
        self.world.faults.by_profile = faulty;
        if let Some(mut profile) = self.world.faults.profile.clone().filter(|_| faulty) {
            let planning = &self.scenario.planning;
            self.world.faults.of_links = planning.windows(&profile);
            planning.links.keys().for_each(|kind| profile.switch_off(*kind));
            links::apply(&profile, &mut link);
        }
        self.world.fabric.set_default_link(link);
        self.set_hazards(faulty);
        self.set_names(faulty);
        apply_all(self);
    }

    /// A quiet period of the links ends or begins, as long as there are faults.
    pub(crate) fn set_links_in_faults(&mut self, faulty: bool) {
        if self.world.phase == Phase::Faults {
            self.set_links(faulty);
        }
    }
}
