//! The planted bug `wall-clock-lease`: a leader that a majority has just followed takes it that nobody else can lead
//! for a while, and answers reads from its own state until then. That much would be right, as a node which hears its
//! leader votes for no other before its shortest election timeout is over. The bug is the clock by which the leader
//! measures: the wall clock, which an administrator or a time daemon may set back. Then the lease goes on for as long
//! again, while the others, whose timeouts are monotonic, have elected another leader.

use crate::raft::Millis;
use std::collections::BTreeMap;

/// The lease of a leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    /// The wall clock, as of the current step.
    wall: Millis,
    /// When the broadcasts that no majority has answered yet were sent.
    sent: BTreeMap<u64, Millis>,
    until: Millis,
}

impl Lease {
    pub(crate) fn set_clock(&mut self, wall: Millis) {
        self.wall = wall;
    }

    pub(crate) fn on_sent(&mut self, round: u64) {
        self.sent.insert(round, self.wall);
    }

    /// A majority has answered this broadcast or a later one.
    pub(crate) fn on_confirmed(&mut self, round: u64, length: Millis) {
        let later = self.sent.split_off(&(round + 1));
        if let Some((_, sent)) = std::mem::replace(&mut self.sent, later).pop_last() {
            self.until = self.until.max(sent + length);
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.wall < self.until
    }

    pub(crate) fn end(&mut self) {
        self.sent.clear();
        self.until = 0;
    }
}
