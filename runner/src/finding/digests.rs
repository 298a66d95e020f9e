//! The digests of a finding, one after so many steps each ([`Digests`]), and where a replay left them ([`first_difference`]).

use bloodhound_sim::Digest;
use bloodhound_sim::world::MARK;
use serde::{Deserialize, Serialize};

/// digests.json.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// Steps between two of them.
    pub every: u64,
    /// In order.
    pub digests: Vec<String>,
}

/// Where a replay left its record, by the digests of both.
pub fn first_difference(recorded: &Digests, now: &[Digest]) -> Option<String> {
    let (every, now) = (recorded.every.max(1), texts(now));
    if every != MARK {
        return None;
    }
    let both = recorded.digests.len().min(now.len());
    let equal = recorded.digests.iter().zip(&now).take_while(|(a, b)| a == b).count() as u64;
    let (from, to) = (equal * every + 1, (equal + 1) * every);
    if equal < both as u64 {
        return Some(format!("the first difference is between step {from} and step {to}"));
    }
    (recorded.digests.len() != now.len()).then(|| format!("the first difference is after step {}", from - 1))
}

/// Digests as they are written.
pub(super) fn texts(digests: &[Digest]) -> Vec<String> {
    digests.iter().map(Digest::to_string).collect()
}
