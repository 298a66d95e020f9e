//! What a node learns from its environment.

use crate::NodeId;
use crate::raft::Timing;
use std::path::PathBuf;

/// A bug to plant, from the variable `BUG`. The default is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Bug {
    /// The correct service.
    #[default]
    None,
    /// `stale-read`: a leader answers reads from its own state and never asks whether it still is the leader.
    StaleRead,
    /// `ack-before-commit`: a leader acknowledges a put or a delete once it is in its own log.
    AckBeforeCommit,
    /// `vote-twice`: term and vote are not written to disk, so a restarted node votes again in terms it has voted in.
    VoteTwice,
    /// `no-fsync`: entries are written to the log but never synced, and acknowledged all the same.
    NoFsync,
    /// `wall-clock-lease`: a leader answers reads from its own state while a lease lasts that it measures by the wall
    /// clock.
    WallClockLease,
    /// `short-write`: a write to the log that wrote less than it was given, or failed, is taken for a whole one.
    ShortWrite,
    /// `reuse-after-reset`: the buffer of a client's connection that broke goes to the next one with the answer that
    /// was in it.
    ReuseAfterReset,
    /// `forgets-snapshot`: a restarted node has what its log says, but not what the snapshot before it says.
    ForgetsSnapshot,
    /// `drops-last-record`: a restarted node takes the last record of its log for one that was cut short.
    DropsLastRecord,
    /// `vote-with-log`: a vote for another node is stored only with the entries that come next.
    VoteWithLog,
    /// `clears-vote`: a node that hears a leader forgets whom it has voted for in the leader's term.
    ClearsVote,
}

impl Bug {
    /// All planted bugs, with their names.
    pub const PLANTED: [(&str, Bug); 11] = [
        ("stale-read", Bug::StaleRead),
        ("ack-before-commit", Bug::AckBeforeCommit),
        ("vote-twice", Bug::VoteTwice),
        ("no-fsync", Bug::NoFsync),
        ("wall-clock-lease", Bug::WallClockLease),
        ("short-write", Bug::ShortWrite),
        ("reuse-after-reset", Bug::ReuseAfterReset),
        ("forgets-snapshot", Bug::ForgetsSnapshot),
        ("drops-last-record", Bug::DropsLastRecord),
        ("vote-with-log", Bug::VoteWithLog),
        ("clears-vote", Bug::ClearsVote),
    ];

    fn parse(name: &str) -> Result<Bug, String> {
        if name.is_empty() || name == "none" {
            return Ok(Bug::None);
        }
        let found = Bug::PLANTED.iter().find(|(planted, _)| *planted == name).map(|(_, bug)| *bug);
        let names = Bug::PLANTED.map(|(planted, _)| planted).join(", ");
        found.ok_or_else(|| format!("BUG={name}: expected one of {names}"))
    }
}

/// The set-up of one node.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's own place in `peers`.
    pub id: NodeId,
    /// Name and Raft address (`host:port`) of every node, this one included.
    pub peers: Vec<(String, String)>,
    /// Where clients are served, from `LISTEN`.
    pub listen: String,
    /// Where the other nodes are served, from `PEER_LISTEN`.
    pub peer_listen: String,
    /// The log is compacted after this many entries, from `SNAPSHOT_ENTRIES`.
    pub snapshot_entries: u64,
    /// Term, vote, snapshot and log live here, from `DATA_DIR`.
    pub data_dir: PathBuf,
    /// Heartbeat and election timeouts, from `HEARTBEAT_MS` and `ELECTION_MS` (`lowest-highest`).
    pub timing: Timing,
    /// The planted bug, if any.
    pub bug: Bug,
}

/// The address for clients, when `LISTEN` does not say.
pub const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

impl Config {
    /// Reads the configuration through `var`, which looks up one variable.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Config, String> {
        let need = |name: &str| var(name).ok_or_else(|| format!("{name} is not set"));
        let node_id = need("NODE_ID")?;
        let mut peers = Vec::new();
        for peer in need("PEERS")?.split(',') {
            let (name, address) = peer
                .trim()
                .split_once('=')
                .ok_or_else(|| format!("PEERS: {peer:?} is not of the form name=host:port"))?;
            peers.push((name.to_owned(), address.to_owned()));
        }
        let id = peers
            .iter()
            .position(|(name, _)| *name == node_id)
            .ok_or_else(|| format!("NODE_ID={node_id} is not in PEERS"))?;
        let id = NodeId::try_from(id).map_err(|_| "PEERS: too many nodes".to_owned())?;
        let mut timing = Timing::default();
        if let Some(text) = var("HEARTBEAT_MS") {
            timing.heartbeat = text.parse().map_err(|e| format!("HEARTBEAT_MS={text}: {e}"))?;
        }
        if let Some(text) = var("ELECTION_MS") {
            let parsed = text.split_once('-').and_then(|(lo, hi)| Some((lo.parse().ok()?, hi.parse().ok()?)));
            timing.election = parsed
                .filter(|(lo, hi)| lo < hi)
                .ok_or_else(|| format!("ELECTION_MS={text}: expected lowest-highest, such as 150-300"))?;
        }
        let snapshot_entries = match var("SNAPSHOT_ENTRIES") {
            None => 1000,
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("SNAPSHOT_ENTRIES={text}: expected a number above 0"))?,
        };
        Ok(Config {
            id,
            peers,
            listen: var("LISTEN").unwrap_or_else(|| DEFAULT_LISTEN.to_owned()),
            peer_listen: var("PEER_LISTEN").unwrap_or_else(|| "0.0.0.0:7000".to_owned()),
            data_dir: need("DATA_DIR")?.into(),
            timing,
            snapshot_entries,
            bug: Bug::parse(&var("BUG").unwrap_or_default())?,
        })
    }
}
