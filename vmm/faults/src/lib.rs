//! The kinds of faults: **one declaration per kind** (`kinds`), from which everything follows that names one: the keys of
//! bloodhound.yaml with their decoders, JSON schema and documentation (`bloodhound-config`), what a seed draws and what is done
//! (`bloodhound-sim`), names in reports and fault coverage (the command).
//!
//! Key types: [`Kind`], [`Declaration`], and [`FaultSpec`] with a [`Setting`] per kind: what a configuration asks for, or what a seed
//! drew from it. The work of a kind is in its room, `bloodhound-sim`'s `faults/<room>.rs`.

#[macro_use]
mod declare;
mod keys;
mod kinds;
mod presets;
mod spec;

use bloodhound_declare::{Key, ValueKind, Word, Words, words};

pub use kinds::Kind;
pub use presets::{Preset, presets_manual};
pub use spec::{FaultSpec, Setting, percent};

/// Where in the section `faults` of bloodhound.yaml the keys of a kind stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What happens to packets and connections.
    Network,
    /// What happens to nodes.
    Process,
    /// What happens to files.
    Disk,
    /// What programs do not get.
    Resources,
    /// What Linux does rarely, but may do.
    Kernel,
    /// What happens to clocks.
    Clock,
}

/// When faults of a kind happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// They are properties of the links for the whole phase of faults.
    Link,
    /// Each node is hit at times of its own.
    ByNode,
    /// They begin at times of the whole network's.
    ByNetwork,
    /// Each machine is hit at times of its own, with all services on it.
    ByMachine,
    /// They are asked for at each operation of a program that they could hit.
    Asked,
    /// Each node has one for the whole phase of faults.
    Standing,
    /// Each group of services is hit at times of its own, all of it at once.
    ByGroup,
}

/// What the swarm profile of a seed does to a kind that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swarm {
    /// Off one time in three; else a quarter, once, twice or four times its rate.
    Strength,
    /// Off one time in two.
    Coin,
    /// As it is asked for.
    Always,
}

words! {
    /// The shape of a network partition.
    #[derive(Hash, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Shape as "PartitionKind" {
        Symmetric = "symmetric": "two groups that cannot reach each other",
        OneWay = "one-way": "packets from one group to the other are lost, the other direction works",
        Isolate = "isolate": "one node is cut off from all others",
        MajorityMinority = "majority-minority": "a majority and a minority that cannot reach each other",
        Bridge = "bridge": "two groups that cannot reach each other, and one node that reaches both",
        Link = "link": "two nodes that cannot reach each other, and all others reach everybody",
    }
}

words! {
    /// What the disks of machines promise over a power failure.
    pub enum Disk as "DiskModel" {
        Ordered = "ordered": "like ext4 as it is mounted by default: names and metadata in their order, a file does not grow before its data is there",
        Strict = "strict": "what POSIX promises: each change that was not synced is there or not, and a name needs the sync of its directory",
    }
}

impl Shape {
    /// The shapes that are drawn where none is named.
    pub const UNASKED: [Shape; 5] =
        [Shape::Symmetric, Shape::OneWay, Shape::Isolate, Shape::MajorityMinority, Shape::Bridge];
}

/// All that is to be said about a kind of faults.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The kind.
    pub kind: Kind,
    /// Its name in reports, profiles and names of choices.
    pub name: &'static str,
    /// Where its keys are.
    pub group: Group,
    /// When its faults happen.
    pub begins: Begins,
    /// What a swarm profile does to it.
    pub swarm: Swarm,
    /// Its keys: at most one that switches it on and says how often (a rate or a probability), one for a time, before it one that says how
    /// much, one for shapes, one for a number.
    pub keys: &'static [Key],
    /// What happens, for docs/faults.md.
    pub does: &'static str,
}

/// The names of all kinds, in the order of the manual.
pub static NAMES: Words = Words { name: "FaultKind", words: &WORDS };

static WORDS: [Word; Kind::DECLARATIONS.len()] = {
    let mut words = [Word::new("", ""); Kind::DECLARATIONS.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = Word::new(Kind::DECLARATIONS[at].name, Kind::DECLARATIONS[at].does);
        at += 1;
    }
    words
};

impl Declaration {
    /// The key that switches the kind on.
    pub fn switch(&self) -> Option<&'static Key> {
        self.keys
            .iter()
            .find(|key| matches!(key.kind, ValueKind::Rate { .. } | ValueKind::Probability { .. }))
    }

    /// Whether one of its keys is a time.
    pub fn has_time(&self) -> bool {
        self.keys.iter().any(|key| matches!(key.kind, ValueKind::Millis | ValueKind::MillisRange))
    }

    /// Whether its faults begin at times, so that a plan has them and reports count them.
    pub fn is_timed(&self) -> bool {
        !matches!(self.begins, Begins::Link | Begins::Asked)
    }

    /// Whether each of its faults has a service as its target.
    pub fn has_target(&self) -> bool {
        matches!(self.begins, Begins::ByNode | Begins::ByMachine | Begins::Standing)
    }

    /// Whether each of its faults has a group of services as its target.
    pub fn has_group(&self) -> bool {
        self.begins == Begins::ByGroup
    }

    /// Whether it is about what links do to packets, so that it may be one of some links alone.
    pub fn is_of_links(&self) -> bool {
        self.begins == Begins::Link && !self.is_of_names()
    }

    /// Whether its faults can be on one volume alone. A quota is one of a service.
    pub fn hits_volumes(&self) -> bool {
        self.group == Group::Disk && self.kind != Kind::DiskQuota
    }

    /// Whether it changes of what services are made, as `faults.upgrades` says.
    pub fn changes_versions(&self) -> bool {
        matches!(self.kind, Kind::Upgrade | Kind::Downgrade)
    }

    /// Whether one of its faults lasts until the heal if its time is 0.
    pub fn lasts_without_time(&self) -> bool {
        matches!(self.kind, Kind::ClockJump | Kind::ClockDrift | Kind::ClockSkew)
    }

    /// Whether it is about questions to the name server, and not about packets on links.
    pub fn is_of_names(&self) -> bool {
        matches!(self.kind, Kind::DnsFail | Kind::DnsDelay)
    }

    /// Whether it is asked for at power failures of machines, and not at operations of programs.
    pub fn is_of_power(&self) -> bool {
        self.kind == Kind::VanishedFile
    }

    /// Whether its faults are asked for at operations of programs.
    pub fn is_asked(&self) -> bool {
        self.begins == Begins::Asked
    }

    /// Whether reports count its faults one by one.
    pub fn is_counted(&self) -> bool {
        self.is_timed() || self.is_asked()
    }

    /// The key that says how much, beside the one that says for how long: the first of two.
    pub fn size(&self) -> Option<&'static Key> {
        let mut ranges = self.keys.iter().filter(|key| {
            matches!(key.kind, ValueKind::Millis | ValueKind::MillisRange | ValueKind::PpmRange)
        });
        let first = ranges.next();
        ranges.next().and(first)
    }
}

impl Kind {
    /// Its declaration.
    pub fn declaration(self) -> &'static Declaration {
        &Kind::DECLARATIONS[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.declaration().name
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::DECLARATIONS
            .iter()
            .find(|declaration| declaration.name == name)
            .map(|declaration| declaration.kind)
    }

    /// The declarations of a group, in the order of the manual.
    pub fn of_group(group: Group) -> impl Iterator<Item = &'static Declaration> {
        Kind::DECLARATIONS.iter().filter(move |declaration| declaration.group == group)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The table of docs/faults.md.
pub fn manual() -> String {
    let mut out = String::from("| fault | keys | what happens |\n|---|---|---|\n");
    for declaration in Kind::DECLARATIONS {
        let keys: Vec<String> = declaration.keys.iter().map(|key| format!("`{}`", key.name)).collect();
        out.push_str(&format!("| {} | {} | {} |\n", declaration.name, keys.join(", "), declaration.does));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_in_order_and_complete() {
        let mut names = std::collections::BTreeSet::new();
        for (at, declaration) in Kind::DECLARATIONS.iter().enumerate() {
            assert_eq!(declaration.kind as usize, at);
            assert_eq!(Kind::named(declaration.name), Some(declaration.kind));
            let keys = declaration.keys.iter().map(|key| key.name);
            assert!(keys.chain([declaration.name]).all(|name| names.insert(name)), "{}", declaration.name);
            let by_chance = !matches!(declaration.begins, Begins::Link | Begins::Standing);
            assert!(!by_chance || declaration.switch().is_some(), "{}", declaration.name);
        }
    }
}
