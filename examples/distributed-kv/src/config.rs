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
}

impl Bug {
    fn parse(name: &str) -> Result<Bug, String> {
        Ok(match name {
            "" | "none" => Bug::None,
            "stale-read" => Bug::StaleRead,
            "ack-before-commit" => Bug::AckBeforeCommit,
            "vote-twice" => Bug::VoteTwice,
            _ => return Err(format!("BUG={name}: expected stale-read, ack-before-commit or vote-twice")),
        })
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
    /// Term, vote and log live here, from `DATA_DIR`.
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
        Ok(Config {
            id,
            peers,
            listen: var("LISTEN").unwrap_or_else(|| DEFAULT_LISTEN.to_owned()),
            peer_listen: var("PEER_LISTEN").unwrap_or_else(|| "0.0.0.0:7000".to_owned()),
            data_dir: need("DATA_DIR")?.into(),
            timing,
            bug: Bug::parse(&var("BUG").unwrap_or_default())?,
        })
    }
}
