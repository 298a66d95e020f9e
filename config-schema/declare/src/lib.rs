//! How a key of bloodhound.yaml is declared: once, as data.
//!
//! Key types: [`Section`] (a mapping with its keys), [`Key`] (name, kind, bounds, default, meaning), [`ValueKind`] (which
//! values a key takes), [`Words`] (a fixed set of words, usually made by [`words!`] together with an enum).
//! Neighbours: `bloodhound-config` reads values by these declarations and makes the JSON schema, the messages about
//! unknown keys and the tables of docs/configuration.md from them. Crates that know what a setting means, but not how a
//! file is read, may declare keys too; therefore this crate depends on nothing. `scalar` has the parsers of numbers and
//! times, for values of files and for the texts of defaults and bounds alike.
//!
//! Texts (`doc`) are written as in a table of the manual: Markdown, a small first letter, no full stop.

mod kind;
pub mod scalar;
mod words;

pub use kind::{Shortest, Syntax, ValueKind, Variants};
pub use words::{Choice, Word, Words};

/// A mapping of the file: its keys in the order of the manual.
#[derive(Debug)]
pub struct Section {
    /// Name of its definition in the JSON schema, and of the mark `<!-- name -->` above its table in the manual.
    pub name: &'static str,
    /// What it is about.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    /// Exactly one of these keys must be written; empty: no such rule.
    pub one_of: &'static [&'static str],
}

impl Section {
    /// A section without a rule about which keys exclude each other.
    pub const fn new(name: &'static str, doc: &'static str, keys: &'static [Key]) -> Section {
        Section { name, doc, keys, one_of: &[] }
    }

    /// The declaration of a key.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of the keys.
    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

/// What holds if a key is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// An error.
    Refused,
    /// The same as if this text were written. It is read as a text of the user's is.
    Means(&'static str),
    /// What these words say; the decoder does it.
    Described(&'static str),
    /// Nothing that is worth a word.
    Nothing,
}

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As written in the file.
    pub name: &'static str,
    /// Which values it takes.
    pub kind: ValueKind,
    /// What it means.
    pub doc: &'static str,
    /// What holds without it.
    pub absent: Absent,
    /// Whether it has no effect yet: its value is checked, then reported as not available yet.
    pub later: bool,
}

impl Key {
    /// A key that may be left out.
    pub const fn new(name: &'static str, kind: ValueKind, doc: &'static str) -> Key {
        Key { name, kind, doc, absent: Absent::Nothing, later: false }
    }

    /// A key whose value is a mapping; its meaning is that of the section.
    pub const fn section(name: &'static str, section: &'static Section) -> Key {
        Key::new(name, ValueKind::Section(section), section.doc)
    }

    /// Leaving the key out is an error.
    pub const fn required(self) -> Key {
        Key { absent: Absent::Refused, ..self }
    }

    /// Leaving the key out is the same as writing `text`.
    pub const fn default(self, text: &'static str) -> Key {
        Key { absent: Absent::Means(text), ..self }
    }

    /// What leaving the key out means, in words: no value can be written for it.
    pub const fn otherwise(self, words: &'static str) -> Key {
        Key { absent: Absent::Described(words), ..self }
    }

    /// The key has no effect yet.
    pub const fn later(self) -> Key {
        Key { later: true, ..self }
    }
}
