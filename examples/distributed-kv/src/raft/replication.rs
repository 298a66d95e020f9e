//! Replication of the log: entries and snapshots from a leader to its followers, commits, confirmed reads.

use super::{Millis, PendingRead, Raft};
use crate::NodeId;
use crate::log::{Entry, Snapshot};
use crate::message::Message;
use std::sync::Arc;

/// At most this many entries travel in one message.
const MAX_BATCH: usize = 256;

impl Raft {
    pub(super) fn on_append(
        &mut self,
        from: NodeId,
        round: u64,
        prev: (u64, u64),
        commit: u64,
        entries: Vec<Entry>,
    ) {
        let (prev_index, prev_term) = prev;
        if prev_index > self.log.last_index() {
            let retry = self.log.last_index() + 1;
            self.reply_append(from, round, false, retry);
            return;
        }
        // What is before the log's beginning is in a snapshot, hence committed, hence the same everywhere.
        if prev_index >= self.log.base() && self.log.term_at(prev_index) != Some(prev_term) {
            let retry = self.first_of_term_at(prev_index);
            self.reply_append(from, round, false, retry);
            return;
        }
        let last_new = prev_index + entries.len() as u64;
        for (index, entry) in (prev_index + 1..).zip(entries) {
            // "If an existing entry conflicts with a new one (same index but different terms), delete the existing
            // entry and all that follow it": only then, as this message may be older than one already handled.
            if index <= self.log.base() {
                continue;
            }
            if index <= self.log.last_index() {
                if self.log.term_at(index) == Some(entry.term) {
                    continue;
                }
                self.log.truncate_from(index);
            }
            self.append(entry);
        }
        self.commit = self.commit.max(commit.min(last_new));
        self.reply_append(from, round, true, last_new);
    }

    pub(super) fn on_install(&mut self, from: NodeId, round: u64, snapshot: Arc<Snapshot>) {
        let index = snapshot.index;
        // An old one, or one of what has been committed here by way of the log, says nothing new.
        if index > self.commit {
            self.log = std::mem::take(&mut self.log).behind(&snapshot);
            self.commit = index;
            self.snapshot = Some(snapshot);
            self.snapshot_changed = true;
        }
        self.reply_append(from, round, true, index);
    }

    pub(super) fn reply_append(&mut self, to: NodeId, round: u64, success: bool, index: u64) {
        self.messages.push((to, Message::AppendReply { term: self.vote.term, round, success, index }));
    }

    pub(super) fn on_append_reply(
        &mut self,
        now: Millis,
        from: NodeId,
        round: u64,
        success: bool,
        index: u64,
    ) {
        let last = self.log.last_index();
        let Some(peer) = self.progress.get_mut(&from) else { return };
        peer.heard = now;
        // A refusal confirms the leader as well: the follower has answered in this term.
        peer.round = peer.round.max(round);
        let send = if success {
            peer.matched = peer.matched.max(index);
            peer.next = peer.next.max(peer.matched + 1);
            peer.next <= last
        } else {
            peer.next = index.min(last + 1).max(peer.matched + 1);
            // A follower that refuses what it has acknowledged answers an older message, or has lost what it had: then
            // to try again at once would be to try again for ever.
            index > peer.matched
        };
        if send {
            self.send_append(from);
        }
        self.advance_commit();
        self.confirm_reads();
    }

    pub(super) fn broadcast(&mut self, now: Millis) {
        self.heartbeat_due = now + self.timing.heartbeat;
        self.round += 1;
        if let Some(lease) = &mut self.lease {
            lease.on_sent(self.round);
        }
        for peer in self.others.clone() {
            self.send_append(peer);
        }
    }

    fn send_append(&mut self, to: NodeId) {
        let Some(peer) = self.progress.get_mut(&to) else { return };
        let prev_index = peer.next - 1;
        let (term, round) = (self.vote.term, self.round);
        let Some(prev_term) = self.log.term_at(prev_index) else {
            // The entries that this follower needs have been dropped.
            let Some(snapshot) = self.snapshot.clone() else { return };
            peer.next = snapshot.index + 1;
            self.messages.push((to, Message::Install { term, round, snapshot }));
            return;
        };
        let entries: Vec<Entry> = self.log.from(peer.next).iter().take(MAX_BATCH).cloned().collect();
        // Taken to arrive; if it does not, the follower refuses the next message and says where to go on.
        peer.next += entries.len() as u64;
        let commit = self.commit;
        let message = Message::Append { term, round, prev_index, prev_term, commit, entries };
        self.messages.push((to, message));
    }

    /// Commits what a majority has, if it is of this term (figure 8 shows why only then).
    pub(super) fn advance_commit(&mut self) {
        let mut matched: Vec<u64> = self.progress.values().map(|peer| peer.matched).collect();
        matched.push(self.log.last_index());
        matched.sort_unstable_by(|a, b| b.cmp(a));
        let index = matched[self.majority() - 1];
        if index > self.commit && self.log.term_at(index) == Some(self.vote.term) {
            self.commit = index;
        }
    }

    pub(super) fn confirm_reads(&mut self) {
        let mut rounds: Vec<u64> = self.progress.values().map(|peer| peer.round).collect();
        rounds.push(self.round);
        rounds.sort_unstable_by(|a, b| b.cmp(a));
        let confirmed = rounds[self.majority() - 1];
        let length = self.lease_length();
        if let Some(lease) = &mut self.lease {
            lease.on_confirmed(confirmed, length);
        }
        let commit = self.commit;
        let (done, waiting) =
            self.reads.drain(..).partition(|read| read.round <= confirmed && read.index <= commit);
        self.reads = waiting;
        let done: Vec<PendingRead> = done;
        self.confirmed_reads.extend(done.iter().map(|read| read.token));
    }

    /// Where the run of entries of one term begins that `index` belongs to, as far as the log reaches back.
    fn first_of_term_at(&self, index: u64) -> u64 {
        let term = self.log.term_at(index);
        let same = |i: &u64| self.log.term_at(*i) == term;
        (self.log.base() + 1..=index).rev().take_while(same).last().unwrap_or(self.log.base() + 1)
    }
}
