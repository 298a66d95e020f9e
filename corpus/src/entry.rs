//! [`Entry`]: one run that is worth keeping, and its file.

use std::collections::BTreeSet;

use bloodhound_decisions::Log;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::files::hash;

/// Version of the files of entries.
pub(crate) const FORMAT: u32 = 1;
/// Bytes of the hash that names an entry.
const NAME: usize = 16;

/// What entries belong to. The features and the digest of an entry are those of a run with the same identity; with another one they are out of
/// date, and the log is tried again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Digest of the plan: configuration and compose file without seeds.
    pub plan: String,
    /// What a digest of a run covers.
    pub digest_version: u32,
    /// Version of logs.
    pub log_version: u32,
    /// What features are.
    pub features_version: u32,
}

impl Identity {
    /// In what it differs from another one, in words.
    pub fn difference(&self, other: &Identity) -> String {
        let parts = [
            ("the plan", self.plan != other.plan),
            ("the version of digests", self.digest_version != other.digest_version),
            ("the version of logs", self.log_version != other.log_version),
            ("what features are", self.features_version != other.features_version),
        ];
        let names: Vec<&str> = parts.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
        names.join(", ")
    }
}

/// A run that is worth keeping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it belongs to.
    pub identity: Identity,
    /// The run.
    pub log: Log,
    /// What it reached.
    pub features: BTreeSet<u64>,
    /// Properties that it violated, each with its kind.
    pub violated: BTreeSet<String>,
    /// Digest of the run.
    pub digest: String,
    /// Why it is kept, for people.
    pub why: String,
}

/// An entry as it stands in its file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    format: u32,
    identity: Identity,
    why: String,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    violated: BTreeSet<String>,
    digest: String,
    /// Hexadecimal, for numbers of 64 bits are no numbers to many readers of JSON.
    features: Vec<String>,
    log: Value,
}

/// What an entry's file holds.
#[derive(Debug)]
pub(crate) enum Read {
    /// An entry.
    Entry(Box<Entry>),
    /// One whose log this version cannot read, and why.
    Unusable(String),
    /// Not what was written there, and why.
    Damaged(String),
}

impl Entry {
    /// The file of it: its name and its bytes.
    pub(crate) fn file(&self) -> Result<(String, Vec<u8>), serde_json::Error> {
        let text = EntryText {
            format: FORMAT,
            identity: self.identity.clone(),
            why: self.why.clone(),
            violated: self.violated.clone(),
            digest: self.digest.clone(),
            features: self.features.iter().map(|feature| format!("{feature:016x}")).collect(),
            log: serde_json::to_value(&self.log)?,
        };
        let mut bytes = serde_json::to_vec(&text)?;
        bytes.push(b'\n');
        Ok((name_of(&bytes), bytes))
    }

    /// It as a text, for who keeps it elsewhere.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn to_text(&self) -> Result<String, Error> {
        let file = self.file().map_err(|e| Error::wrong(format!("an entry cannot be written: {e}")))?;
        Ok(String::from_utf8_lossy(&file.1).into_owned())
    }

    /// The entry of such a text.
    ///
    /// # Errors
    /// It is none that this version reads.
    pub fn of_text(text: &str) -> Result<Entry, Error> {
        match read(&name_of(text.as_bytes()), text.as_bytes()) {
            Read::Entry(entry) => Ok(*entry),
            Read::Unusable(why) | Read::Damaged(why) => {
                Err(Error::wrong(format!("an entry cannot be read: {why}")))
            }
        }
    }

    /// What tells its run from others.
    pub(crate) fn key(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.log)
    }
}

/// The name of a file with these bytes.
pub(crate) fn name_of(bytes: &[u8]) -> String {
    format!("{}.json", hash(&[bytes], NAME))
}

/// Whether a file may be one of an entry, by its name.
pub(crate) fn is_name(name: &str) -> bool {
    let digits = name.strip_suffix(".json").unwrap_or_default();
    digits.len() == 2 * NAME && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Reads the file of an entry with this name.
pub(crate) fn read(name: &str, bytes: &[u8]) -> Read {
    if name_of(bytes) != name {
        return Read::Damaged("its content is not what its name says".to_owned());
    }
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Read::Damaged(error.to_string()),
    };
    match value["format"].as_u64() {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => {
            return Read::Unusable(format!("it has format {format}; this version reads {FORMAT}"));
        }
        None => return Read::Damaged("it has no format".to_owned()),
    }
    let text: EntryText = match serde_json::from_value(value) {
        Ok(text) => text,
        Err(error) => return Read::Damaged(error.to_string()),
    };
    let features = text.features.iter().map(|feature| u64::from_str_radix(feature, 16));
    let Ok(features) = features.collect::<Result<_, _>>() else {
        return Read::Damaged("a feature is no hexadecimal number".to_owned());
    };
    let log: Log = match serde_json::from_value(text.log) {
        Ok(log) => log,
        Err(error) => return Read::Unusable(error.to_string()),
    };
    let EntryText { identity, why, violated, digest, .. } = text;
    Read::Entry(Box::new(Entry { identity, log, features, violated, digest, why }))
}
