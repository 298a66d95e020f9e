//! The replicated state machine: a map from keys to values, and the operations on it.

use std::collections::BTreeMap;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a key.
    Get {
        /// The key.
        key: String,
    },
    /// Changes the map; goes through the log.
    Write(Command),
}

/// A change of the map, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets a key, whatever it was before.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: String,
    },
    /// Removes a key; no error if there is none.
    Delete {
        /// The key.
        key: String,
    },
    /// Sets a key if it has the value `old` (`None`: if it is absent).
    Cas {
        /// The key.
        key: String,
        /// The value it must have.
        old: Option<String>,
        /// The value it gets; `None` removes it.
        new: Option<String>,
    },
}

/// How an operation ended, as far as the answering node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change was made.
    Written,
    /// The value of the key that was read; `None` if it is absent.
    Value(Option<String>),
    /// A compare-and-set found another value; nothing was changed.
    Mismatch,
    /// It has not been done and never will be.
    Unavailable,
    /// It may have been done, or may be done later, or never.
    Unknown,
}

/// The map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    values: BTreeMap<String, String>,
}

impl Map {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&String> {
        self.values.get(key)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.values.iter()
    }

    /// Makes one change. Depends on nothing but the map and the command, so that all replicas agree.
    pub fn apply(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Put { key, value } => {
                self.values.insert(key.clone(), value.clone());
            }
            Command::Delete { key } => {
                self.values.remove(key);
            }
            Command::Cas { key, old, new } => {
                if self.values.get(key) != old.as_ref() {
                    return Outcome::Mismatch;
                }
                match new {
                    Some(value) => self.values.insert(key.clone(), value.clone()),
                    None => self.values.remove(key),
                };
            }
        }
        Outcome::Written
    }
}

impl FromIterator<(String, String)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(values: I) -> Map {
        Map { values: values.into_iter().collect() }
    }
}
