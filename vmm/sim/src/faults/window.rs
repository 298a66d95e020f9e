//! What links do to packets for a time: a kind of links' faults that an entry of the schedule asks for, between some nodes. It comes on top of
//! what the profile of the seed does to all links.

use bloodhound_abi::SimTime;
use bloodhound_faults::{Kind, Setting};
use bloodhound_net::NodeId;

use super::{Draw, Names, Room, links};
use crate::machine::Machine;

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
    if world.faults.windows.is_empty() && !world.faults.links_differ {
        return;
    }
    world.faults.links_differ = !world.faults.windows.is_empty();
    let nodes = world.fabric.nodes();
    for from in &nodes {
        for to in &nodes {
            let windows: Vec<_> = world.faults.windows.values().filter(|w| w.has(*from, *to)).collect();
            let mut link = world.fabric.default_link().clone();
            for window in &windows {
                links::apply_one(window.kind, &window.setting, &mut link);
            }
            let own = (!windows.is_empty()).then_some(link);
            world.fabric.set_link(*from, *to, own);
        }
    }
}
