//! The kinds of faults: **one declaration per kind** (`kinds`), from which everything follows that names one: the keys of
//! bloodhound.yaml with their decoders, JSON schema and documentation (`bloodhound-config`), what a seed draws and what is done
//! (`bloodhound-sim`), names in reports and fault coverage (the command).
//!
//! Key types: [`Kind`], [`Declaration`], and [`FaultSpec`] with a [`Setting`] per kind: what a configuration asks for, or what a seed
//! drew from it. The work of a kind is in its room, `bloodhound-sim`'s `faults/<room>.rs`.

mod kinds;
mod spec;

pub use kinds::Kind;
pub use spec::{FaultSpec, Setting};

/// Where in the section `faults` of bloodhound.yaml the keys of a kind stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// What happens to packets and connections.
    Network,
    /// What happens to nodes.
    Process,
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

/// The shape of a network partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Two groups that cannot reach each other.
    Symmetric,
    /// Packets from one group to the other are lost, the other direction works.
    OneWay,
    /// One node is cut off from all others.
    Isolate,
    /// A majority and a minority that cannot reach each other.
    MajorityMinority,
    /// Two groups that cannot reach each other, and one node that reaches both.
    Bridge,
}

impl Shape {
    /// Who cannot reach whom, for the JSON schema.
    pub fn doc(self) -> &'static str {
        match self {
            Shape::Symmetric => "Two groups that cannot reach each other.",
            Shape::OneWay => "Packets from one group to the other are lost, the other direction works.",
            Shape::Isolate => "One node is cut off from all others.",
            Shape::MajorityMinority => "A majority and a minority that cannot reach each other.",
            Shape::Bridge => "Two groups that cannot reach each other, and one node that reaches both.",
        }
    }
}

/// The shapes with their names in the file.
pub const SHAPES: &[(&str, Shape)] = &[
    ("symmetric", Shape::Symmetric),
    ("one-way", Shape::OneWay),
    ("isolate", Shape::Isolate),
    ("majority-minority", Shape::MajorityMinority),
    ("bridge", Shape::Bridge),
];

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// How often: a decimal from 0 to 1. It switches the kind on, and is 0 if it is not there.
    Rate,
    /// A time in milliseconds, with its default.
    Millis(u64),
    /// The shortest and the longest time in milliseconds, with their default.
    MillisRange(u64, u64),
    /// A list of [`SHAPES`]; by default all.
    Shapes,
}

/// A key of bloodhound.yaml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
    /// What it says, for the JSON schema.
    pub doc: &'static str,
}

/// All that is to be said about a kind of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The kind.
    pub kind: Kind,
    /// Its name in reports, profiles and names of choices.
    pub name: &'static str,
    /// Where its keys are.
    pub section: Section,
    /// When its faults happen.
    pub begins: Begins,
    /// What a swarm profile does to it.
    pub swarm: Swarm,
    /// Its keys.
    pub keys: &'static [Key],
    /// What happens, for docs/faults.md.
    pub does: &'static str,
}

impl Declaration {
    /// The key that switches the kind on.
    pub fn switch(&self) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.value == Value::Rate)
    }

    /// Whether its faults begin at times, so that a plan has them and reports count them.
    pub fn is_timed(&self) -> bool {
        self.begins != Begins::Link
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

    /// The declarations of a section, in the order of the manual.
    pub fn of_section(section: Section) -> impl Iterator<Item = &'static Declaration> {
        Kind::DECLARATIONS.iter().filter(move |declaration| declaration.section == section)
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

/// The rows of a section's keys in docs/configuration.md.
pub fn rows(section: Section) -> String {
    let mut out = String::new();
    for declaration in Kind::of_section(section) {
        for key in declaration.keys {
            let shapes: Vec<String> = SHAPES.iter().map(|(name, _)| format!("`{name}`")).collect();
            let (kind, default) = match (key.value, declaration.begins) {
                (Value::Rate, Begins::Link) => ("rate".to_owned(), "0".to_owned()),
                (Value::Rate, Begins::ByNode) => ("probability, per node".to_owned(), "0".to_owned()),
                (Value::Rate, Begins::ByNetwork) => ("probability".to_owned(), "0".to_owned()),
                (Value::Millis(default), _) => ("milliseconds".to_owned(), default.to_string()),
                (Value::MillisRange(low, high), _) => {
                    ("range of milliseconds".to_owned(), format!("`[{low}, {high}]`"))
                }
                (Value::Shapes, _) => (format!("list of {}", shapes.join(", ")), "all".to_owned()),
            };
            let meaning = key.doc.trim_end_matches('.');
            out.push_str(&format!("| `{}` | {kind} | {default} | {meaning} | yes |\n", key.name));
        }
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
            assert!(!declaration.is_timed() || declaration.switch().is_some(), "{}", declaration.name);
        }
    }
}
