//! What nodes say to each other, and its form on the wire and on disk.
//!
//! A frame is a little-endian `u32` length and that many bytes of message. Integers are little-endian `u64`,
//! strings a `u32` length and UTF-8. The first frame on a connection is the sender's [`Message::Hello`].

use crate::NodeId;
use crate::kv::{Command, Map, Op, Outcome};
use crate::log::{Entry, Snapshot};
use std::io::{self, Read};
use std::sync::Arc;

/// A frame above this is taken for garbage.
const MAX_FRAME: usize = 16 << 20;

/// A message between two nodes. Requests travel on the sender's own connection, replies return on the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Opens a connection: who calls.
    Hello(NodeId),
    /// A candidate asks for a vote (RequestVote in the Raft paper).
    Vote {
        /// The candidate's term.
        term: u64,
        /// Index of its last entry.
        last_index: u64,
        /// Term of its last entry.
        last_term: u64,
    },
    /// The answer to `Vote`.
    VoteReply {
        /// The voter's term.
        term: u64,
        /// Whether it voted for the asking node.
        granted: bool,
    },
    /// A leader sends entries, or none as a heartbeat (AppendEntries).
    Append {
        /// The leader's term.
        term: u64,
        /// Counts the leader's broadcasts of this term; the reply repeats it, which confirms reads.
        round: u64,
        /// Index of the entry before `entries`.
        prev_index: u64,
        /// Term of that entry.
        prev_term: u64,
        /// The leader's commit index.
        commit: u64,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// A leader sends what it has dropped from its log (InstallSnapshot), whole. Answered by an `AppendReply`.
    Install {
        /// The leader's term.
        term: u64,
        /// As in `Append`.
        round: u64,
        /// The map up to some committed index.
        snapshot: Arc<Snapshot>,
    },
    /// The answer to `Append` and `Install`.
    AppendReply {
        /// The follower's term.
        term: u64,
        /// The round of the request.
        round: u64,
        /// Whether the follower had the entry before the sent ones.
        success: bool,
        /// On success the last index known to match, else the index from which the leader should try again.
        index: u64,
    },
    /// A client's operation, passed on to the leader. The leader never passes it further.
    Forward {
        /// The sender's name for it.
        id: u64,
        /// The operation.
        op: Op,
    },
    /// The answer to `Forward`.
    ForwardReply {
        /// The name from the request.
        id: u64,
        /// How it ended.
        outcome: Outcome,
    },
}

impl Message {
    /// Whether this answers a request, and so returns on the connection of the other side.
    pub fn is_reply(&self) -> bool {
        matches!(self, Message::VoteReply { .. } | Message::AppendReply { .. } | Message::ForwardReply { .. })
    }

    /// The whole frame, for one write.
    pub fn to_frame(&self) -> Vec<u8> {
        let mut out = Writer(vec![0; 4]);
        self.encode(&mut out);
        let len = (out.0.len() - 4) as u32;
        out.0[..4].copy_from_slice(&len.to_le_bytes());
        out.0
    }

    fn encode(&self, out: &mut Writer) {
        match self {
            Message::Hello(id) => {
                out.u8(0);
                out.u8(*id);
            }
            Message::Vote { term, last_index, last_term } => {
                out.u8(1);
                [term, last_index, last_term].into_iter().for_each(|n| out.u64(*n));
            }
            Message::VoteReply { term, granted } => {
                out.u8(2);
                out.u64(*term);
                out.u8(u8::from(*granted));
            }
            Message::Append { term, round, prev_index, prev_term, commit, entries } => {
                out.u8(3);
                [term, round, prev_index, prev_term, commit].into_iter().for_each(|n| out.u64(*n));
                out.u32(entries.len() as u32);
                entries.iter().for_each(|entry| out.entry(entry));
            }
            Message::AppendReply { term, round, success, index } => {
                out.u8(4);
                [term, round, index].into_iter().for_each(|n| out.u64(*n));
                out.u8(u8::from(*success));
            }
            Message::Forward { id, op } => {
                out.u8(5);
                out.u64(*id);
                out.op(op);
            }
            Message::ForwardReply { id, outcome } => {
                out.u8(6);
                out.u64(*id);
                out.outcome(outcome);
            }
            Message::Install { term, round, snapshot } => {
                out.u8(7);
                [term, round].into_iter().for_each(|n| out.u64(*n));
                out.snapshot(snapshot);
            }
        }
    }

    /// Reads the bytes of one message; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            0 => Message::Hello(r.u8()?),
            1 => Message::Vote { term: r.u64()?, last_index: r.u64()?, last_term: r.u64()? },
            2 => Message::VoteReply { term: r.u64()?, granted: r.u8()? != 0 },
            3 => {
                let (term, round, prev_index) = (r.u64()?, r.u64()?, r.u64()?);
                let (prev_term, commit, count) = (r.u64()?, r.u64()?, r.u32()?);
                let entries = (0..count).map(|_| r.entry()).collect::<Option<Vec<_>>>()?;
                Message::Append { term, round, prev_index, prev_term, commit, entries }
            }
            4 => {
                let (term, round, index) = (r.u64()?, r.u64()?, r.u64()?);
                Message::AppendReply { term, round, index, success: r.u8()? != 0 }
            }
            5 => Message::Forward { id: r.u64()?, op: r.op()? },
            6 => Message::ForwardReply { id: r.u64()?, outcome: r.outcome()? },
            7 => Message::Install { term: r.u64()?, round: r.u64()?, snapshot: Arc::new(r.snapshot()?) },
            _ => return None,
        };
        r.0.is_empty().then_some(message)
    }

    /// Reads one frame from a connection. End of file and garbage are errors.
    pub fn read_from(stream: &mut impl Read) -> io::Result<Message> {
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > MAX_FRAME {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
        }
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes)?;
        Message::decode(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a message"))
    }
}

/// Appends values in wire form.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(crate) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    fn str(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn option(&mut self, text: Option<&String>) {
        self.u8(u8::from(text.is_some()));
        if let Some(text) = text {
            self.str(text);
        }
    }

    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.u64(entry.term);
        match &entry.command {
            None => self.u8(0),
            Some(command) => self.command(command),
        }
    }

    pub(crate) fn snapshot(&mut self, snapshot: &Snapshot) {
        self.u64(snapshot.index);
        self.u64(snapshot.term);
        self.u32(snapshot.map.len() as u32);
        for (key, value) in snapshot.map.iter() {
            self.str(key);
            self.str(value);
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Put { key, value } => {
                self.u8(1);
                self.str(key);
                self.str(value);
            }
            Command::Delete { key } => {
                self.u8(2);
                self.str(key);
            }
            Command::Cas { key, old, new } => {
                self.u8(3);
                self.str(key);
                self.option(old.as_ref());
                self.option(new.as_ref());
            }
        }
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Get { key } => {
                self.u8(0);
                self.str(key);
            }
            Op::Write(command) => self.command(command),
        }
    }

    fn outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Written => self.u8(0),
            Outcome::Value(value) => {
                self.u8(1);
                self.option(value.as_ref());
            }
            Outcome::Mismatch => self.u8(2),
            Outcome::Unavailable => self.u8(3),
            Outcome::Unknown => self.u8(4),
        }
    }
}

/// Takes values in wire form; every method is `None` when the bytes end early or make no sense.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[n]| n)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn str(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        String::from_utf8(head.to_vec()).ok()
    }

    fn option(&mut self) -> Option<Option<String>> {
        match self.u8()? {
            0 => Some(None),
            _ => self.str().map(Some),
        }
    }

    pub(crate) fn entry(&mut self) -> Option<Entry> {
        let term = self.u64()?;
        let kind = self.u8()?;
        let command = if kind == 0 { None } else { Some(self.command(kind)?) };
        Some(Entry { term, command })
    }

    pub(crate) fn snapshot(&mut self) -> Option<Snapshot> {
        let (index, term, count) = (self.u64()?, self.u64()?, self.u32()?);
        let values = (0..count).map(|_| Some((self.str()?, self.str()?))).collect::<Option<Map>>()?;
        Some(Snapshot { index, term, map: values })
    }

    fn command(&mut self, kind: u8) -> Option<Command> {
        Some(match kind {
            1 => Command::Put { key: self.str()?, value: self.str()? },
            2 => Command::Delete { key: self.str()? },
            3 => Command::Cas { key: self.str()?, old: self.option()?, new: self.option()? },
            _ => return None,
        })
    }

    fn op(&mut self) -> Option<Op> {
        match self.u8()? {
            0 => Some(Op::Get { key: self.str()? }),
            kind => self.command(kind).map(Op::Write),
        }
    }

    fn outcome(&mut self) -> Option<Outcome> {
        Some(match self.u8()? {
            0 => Outcome::Written,
            1 => Outcome::Value(self.option()?),
            2 => Outcome::Mismatch,
            3 => Outcome::Unavailable,
            4 => Outcome::Unknown,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let cas = Command::Cas { key: "k".into(), old: None, new: Some("ü".into()) };
        let entries = vec![
            Entry { term: 1, command: None },
            Entry { term: 2, command: Some(Command::Put { key: "a".into(), value: String::new() }) },
            Entry { term: 2, command: Some(Command::Delete { key: "a".into() }) },
            Entry { term: 3, command: Some(cas.clone()) },
        ];
        let map: Map =
            [("a", "1"), ("b", "")].map(|(key, value)| (key.into(), value.into())).into_iter().collect();
        let all = [
            Message::Install { term: 1, round: 2, snapshot: Arc::new(Snapshot { index: 3, term: 4, map }) },
            Message::Hello(2),
            Message::Vote { term: 1, last_index: 2, last_term: 3 },
            Message::VoteReply { term: 1, granted: true },
            Message::Append { term: 1, round: 2, prev_index: 3, prev_term: 4, commit: 5, entries },
            Message::AppendReply { term: 1, round: 2, success: false, index: u64::MAX },
            Message::Forward { id: 7, op: Op::Get { key: "k".into() } },
            Message::Forward { id: 7, op: Op::Write(cas) },
            Message::ForwardReply { id: 7, outcome: Outcome::Value(Some("x".into())) },
            Message::ForwardReply { id: 7, outcome: Outcome::Unknown },
        ];
        for message in all {
            let frame = message.to_frame();
            assert_eq!(Message::read_from(&mut &frame[..]).unwrap(), message);
            // A message cut short, or with bytes to spare, is refused.
            let body = &frame[4..];
            assert!((0..body.len()).all(|cut| Message::decode(&body[..cut]).is_none()), "{message:?}");
            assert!(Message::decode(&[body, &[0]].concat()).is_none(), "{message:?}");
        }
    }
}
