//! What a run has learnt of the host's files ([`Record`]) as JSON.
//!
//! Paths are percent-encoded, because they may be any bytes.

use std::collections::BTreeMap;

use bloodhound_vfs::host::{Key, Record};
use bloodhound_vfs::{BaseEntry, BaseKind, ContentId, Dev, Name, Timestamp, TreeId};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// What is encoded: all that is not printable text, and the sign itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b' ').add(b'"').add(b'\\');

/// A [`Record`] as it is stored.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stored {
    entries: Vec<Entry>,
    listings: Vec<Listing>,
    contents: Vec<Content>,
    exists: Vec<bool>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    tree: u32,
    path: String,
    /// Nothing under this name if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is: Option<Is>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Is {
    #[serde(flatten)]
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    secs: i64,
    nanos: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Kind {
    File { size: u64 },
    Directory,
    Symlink { target: String },
    Char { major: u32, minor: u32 },
    Block { major: u32, minor: u32 },
    Fifo,
    Socket,
}

#[derive(Debug, Serialize, Deserialize)]
struct Listing {
    tree: u32,
    path: String,
    names: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    tree: u32,
    path: String,
    sha256: String,
}

impl Stored {
    pub(super) fn of(record: &Record) -> Stored {
        Stored {
            entries: record
                .entries
                .iter()
                .map(|((tree, path), entry)| Entry {
                    tree: tree.0,
                    path: text(path),
                    is: entry.as_ref().map(Is::of),
                })
                .collect(),
            listings: record
                .listings
                .iter()
                .map(|((tree, path), names)| Listing {
                    tree: tree.0,
                    path: text(path),
                    names: names.iter().map(|name| text(name)).collect(),
                })
                .collect(),
            contents: record
                .contents
                .iter()
                .map(|((tree, path), sha256)| Content {
                    tree: tree.0,
                    path: text(path),
                    sha256: bloodhound_vfs::host::file_name(sha256),
                })
                .collect(),
            exists: record.exists.clone(),
        }
    }

    /// The record; `None` if a digest is none.
    pub(super) fn record(&self) -> Option<Record> {
        let key = |tree: u32, path: &str| -> Key { (TreeId(tree), bytes(path)) };
        let mut contents = BTreeMap::new();
        for content in &self.contents {
            contents.insert(key(content.tree, &content.path), digest(&content.sha256)?);
        }
        let entries = self.entries.iter().map(|e| (key(e.tree, &e.path), e.is.as_ref().map(Is::entry)));
        let names = |listing: &Listing| listing.names.iter().map(|n| Name::from(bytes(n))).collect();
        Some(Record {
            entries: entries.collect(),
            listings: self.listings.iter().map(|l| (key(l.tree, &l.path), names(l))).collect(),
            contents,
            exists: self.exists.clone(),
        })
    }
}

impl Is {
    fn of(entry: &BaseEntry) -> Is {
        let kind = match &entry.kind {
            BaseKind::Regular { size, .. } => Kind::File { size: *size },
            BaseKind::Directory => Kind::Directory,
            BaseKind::Symlink(target) => Kind::Symlink { target: text(target) },
            BaseKind::CharDevice(dev) => Kind::Char { major: dev.major, minor: dev.minor },
            BaseKind::BlockDevice(dev) => Kind::Block { major: dev.major, minor: dev.minor },
            BaseKind::Fifo => Kind::Fifo,
            BaseKind::Socket => Kind::Socket,
        };
        let Timestamp { secs, nanos } = entry.mtime;
        Is { kind, mode: entry.mode, uid: entry.uid, gid: entry.gid, secs, nanos }
    }

    fn entry(&self) -> BaseEntry {
        let kind = match &self.kind {
            Kind::File { size } => BaseKind::Regular { content: ContentId(0), size: *size },
            Kind::Directory => BaseKind::Directory,
            Kind::Symlink { target } => BaseKind::Symlink(bytes(target).into()),
            Kind::Char { major, minor } => BaseKind::CharDevice(Dev { major: *major, minor: *minor }),
            Kind::Block { major, minor } => BaseKind::BlockDevice(Dev { major: *major, minor: *minor }),
            Kind::Fifo => BaseKind::Fifo,
            Kind::Socket => BaseKind::Socket,
        };
        BaseEntry::new(kind, self.mode, self.uid, self.gid, Timestamp { secs: self.secs, nanos: self.nanos })
    }
}

fn text(bytes: &[u8]) -> String {
    percent_encode(bytes, ENCODED).to_string()
}

fn bytes(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

/// The digest in hexadecimal.
fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_back() {
        let time = Timestamp { secs: -5, nanos: 7 };
        let entry = |kind| Some(BaseEntry::new(kind, 0o4755, 1, 2, time));
        let key = |path: &[u8]| (TreeId(3), path.to_vec());
        let kinds = [
            BaseKind::Regular { content: ContentId(0), size: 12 },
            BaseKind::Directory,
            BaseKind::Symlink(b"../\xff %41".as_slice().into()),
            BaseKind::CharDevice(Dev { major: 1, minor: 3 }),
            BaseKind::BlockDevice(Dev { major: 8, minor: 0 }),
            BaseKind::Fifo,
            BaseKind::Socket,
        ];
        let mut record = Record { exists: vec![true, false], ..Record::default() };
        for (number, kind) in kinds.into_iter().enumerate() {
            record.entries.insert(key(&[b'a', b'%', number as u8]), entry(kind));
        }
        record.entries.insert(key("häßlich \"\\\n".as_bytes()), None);
        record.listings.insert(key(b""), vec![Name::from(b"x\xfe".as_slice()), Name::from(b"%".as_slice())]);
        record.contents.insert(key(b"a"), [0xab; 32]);
        let json = serde_json::to_string(&Stored::of(&record)).expect("JSON");
        let stored: Stored = serde_json::from_str(&json).expect("a record");
        assert_eq!(stored.record(), Some(record));
        let broken = json.replace("abab", "xyab");
        assert_eq!(serde_json::from_str::<Stored>(&broken).ok().and_then(|stored| stored.record()), None);
    }
}
