//! Raft as a pure state machine: elections, log replication and confirmed reads ("In Search of an Understandable
//! Consensus Algorithm", Ongaro and Ousterhout 2014; reads as in section 6.4 of Ongaro's thesis).
//!
//! [`Raft`] has no clock, sockets or files. Its owner gives it messages and the time (milliseconds of any monotonic
//! clock), takes the [`Output`] of each step, and must write what the output says to disk *before* it sends the
//! messages or answers a client. [`crate::replica`] is that owner's first half, [`crate::node`] the second.

use crate::NodeId;
use crate::config::Bug;
use crate::message::{Entry, Message};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds of a monotonic clock with any origin.
pub type Millis = u64;

/// At most this many entries travel in one message.
const MAX_BATCH: usize = 256;

/// How fast the cluster reacts, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A leader that has nothing to say says so this often.
    pub heartbeat: Millis,
    /// A follower that hears nothing for a time drawn from this range stands for election.
    pub election: (Millis, Millis),
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { heartbeat: 100, election: (300, 600) }
    }
}

impl Timing {
    /// A leader that has not heard of a majority for this long steps down. Only for prompt errors to clients:
    /// safety never depends on time.
    fn quorum_lost(&self) -> Millis {
        3 * self.election.1
    }
}

/// What must survive a restart besides the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The highest term seen.
    pub term: u64,
    /// Who got this node's vote in that term.
    pub voted_for: Option<NodeId>,
}

/// What a node is doing in the current term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// What a leader knows of a follower.
#[derive(Clone, Debug)]
struct Progress {
    /// Index of the next entry to send.
    next: u64,
    /// Its log is known to equal ours up to here.
    matched: u64,
    /// The last broadcast it answered.
    round: u64,
    /// When it last answered anything.
    heard: Millis,
}

/// A read that waits for proof that this node was still the leader after the read arrived.
#[derive(Clone, Debug)]
struct PendingRead {
    token: u64,
    /// A majority must answer this broadcast or a later one.
    round: u64,
    /// The read sees the map with everything up to this index applied.
    index: u64,
}

/// What a step asks of its owner: store first, then send.
#[derive(Debug, Default)]
pub struct Output {
    /// The vote changed and must be stored.
    pub vote: Option<Vote>,
    /// The log changed from this index on and must be stored.
    pub log_from: Option<u64>,
    /// Messages to send.
    pub messages: Vec<(NodeId, Message)>,
}

/// The consensus state of one node.
#[derive(Clone, Debug)]
pub struct Raft {
    id: NodeId,
    others: Vec<NodeId>,
    timing: Timing,
    bug: Bug,
    random: u64,
    vote: Vote,
    /// Entry i of the log is at `log[i - 1]`.
    log: Vec<Entry>,
    role: Role,
    leader: Option<NodeId>,
    /// When the leader was last heard (by a follower).
    leader_heard: Millis,
    commit: u64,
    election_due: Millis,
    heartbeat_due: Millis,
    votes: BTreeSet<NodeId>,
    progress: BTreeMap<NodeId, Progress>,
    round: u64,
    /// Where the leader's own term starts in the log: it knows what is committed once this is.
    opening: u64,
    reads: Vec<PendingRead>,
    vote_changed: bool,
    log_changed_from: Option<u64>,
    messages: Vec<(NodeId, Message)>,
    confirmed_reads: Vec<u64>,
    failed_reads: Vec<u64>,
}

impl Raft {
    /// A node that has just started with what it found on its disk. `seed` randomises its timeouts.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        id: NodeId,
        nodes: usize,
        timing: Timing,
        bug: Bug,
        seed: u64,
        vote: Vote,
        log: Vec<Entry>,
        now: Millis,
    ) -> Raft {
        let mut raft = Raft {
            id,
            others: (0..nodes as NodeId).filter(|n| *n != id).collect(),
            timing,
            bug,
            random: seed,
            vote,
            log,
            role: Role::Follower,
            leader: None,
            leader_heard: 0,
            commit: 0,
            election_due: 0,
            heartbeat_due: 0,
            votes: BTreeSet::new(),
            progress: BTreeMap::new(),
            round: 0,
            opening: 0,
            reads: Vec::new(),
            vote_changed: false,
            log_changed_from: None,
            messages: Vec::new(),
            confirmed_reads: Vec::new(),
            failed_reads: Vec::new(),
        };
        raft.reset_election_timer(now);
        raft
    }

    /// What this node does in the current term.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The current term.
    pub fn term(&self) -> u64 {
        self.vote.term
    }

    /// The leader of the current term, if known.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// The highest index known to be committed.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// The whole log; entry i is at `[i - 1]`.
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// Whether requests are likely to succeed: there is a leader, and it is in touch with a majority.
    pub fn is_healthy(&self, now: Millis) -> bool {
        match self.role {
            Role::Leader => self.commit >= self.opening && self.in_touch_with_majority(now),
            Role::Follower => {
                self.leader.is_some() && now.saturating_sub(self.leader_heard) <= self.timing.election.1
            }
            Role::Candidate => false,
        }
    }

    /// When [`Raft::tick`] has to be called at the latest.
    pub fn next_deadline(&self) -> Millis {
        match self.role {
            Role::Follower => self.election_due,
            Role::Candidate => self.election_due.min(self.heartbeat_due),
            Role::Leader => self.heartbeat_due,
        }
    }

    /// Takes what the steps since the last call ask for.
    pub fn take_output(&mut self) -> Output {
        let vote_changed = std::mem::take(&mut self.vote_changed) && self.bug != Bug::VoteTwice;
        Output {
            vote: vote_changed.then_some(self.vote),
            log_from: self.log_changed_from.take(),
            messages: std::mem::take(&mut self.messages),
        }
    }

    /// Takes the reads that have been decided: those to answer once everything committed is applied, and those which
    /// cannot be answered here any more.
    pub fn take_reads(&mut self) -> (Vec<u64>, Vec<u64>) {
        (std::mem::take(&mut self.confirmed_reads), std::mem::take(&mut self.failed_reads))
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Millis) {
        match self.role {
            Role::Leader => {
                let must_ask = self.bug != Bug::StaleRead;
                if must_ask && !self.in_touch_with_majority(now) {
                    self.become_follower(now);
                } else if now >= self.heartbeat_due {
                    self.broadcast(now);
                }
            }
            Role::Follower | Role::Candidate if now >= self.election_due => self.campaign(now),
            Role::Candidate if now >= self.heartbeat_due => self.ask_for_votes(now),
            Role::Follower | Role::Candidate => {}
        }
    }

    /// Adds an entry; `None` if this node does not lead. The index names the entry together with the current term.
    pub fn propose(&mut self, now: Millis, entry: Entry) -> Option<u64> {
        if self.role != Role::Leader {
            return None;
        }
        debug_assert_eq!(entry.term, self.vote.term);
        self.append(entry);
        self.broadcast(now);
        self.advance_commit();
        Some(self.last_index())
    }

    /// Starts a read; false if this node does not lead. The token comes back by
    /// [`Raft::take_reads`].
    pub fn read(&mut self, now: Millis, token: u64) -> bool {
        if self.role != Role::Leader {
            return false;
        }
        if self.bug == Bug::StaleRead {
            self.confirmed_reads.push(token);
            return true;
        }
        // Only a broadcast sent after the read arrived proves anything about the time of the read. And a new leader
        // does not know what is committed before its own first entry is.
        self.broadcast(now);
        self.reads.push(PendingRead { token, round: self.round, index: self.commit.max(self.opening) });
        self.confirm_reads();
        true
    }

    /// Handles a message from another node (client operations are none of this module's business).
    pub fn on_message(&mut self, now: Millis, from: NodeId, message: Message) {
        match message {
            Message::Vote { term, last_index, last_term } => {
                self.observe_term(now, term);
                self.on_vote(now, from, term, (last_term, last_index));
            }
            Message::VoteReply { term, granted } => {
                self.observe_term(now, term);
                if granted && term == self.vote.term && self.role == Role::Candidate {
                    self.votes.insert(from);
                    self.count_votes(now);
                }
            }
            Message::Append { term, round, prev_index, prev_term, commit, entries } => {
                self.observe_term(now, term);
                if term < self.vote.term {
                    self.reply_append(from, round, false, prev_index);
                    return;
                }
                self.follow(now, from);
                self.on_append(from, round, (prev_index, prev_term), commit, entries);
            }
            Message::AppendReply { term, round, success, index } => {
                self.observe_term(now, term);
                if term == self.vote.term && self.role == Role::Leader {
                    self.on_append_reply(now, from, round, success, index);
                }
            }
            Message::Hello(_) | Message::Forward { .. } | Message::ForwardReply { .. } => {}
        }
    }

    // ----- elections -----

    fn campaign(&mut self, now: Millis) {
        self.set_vote(Vote { term: self.vote.term + 1, voted_for: Some(self.id) });
        self.role = Role::Candidate;
        self.leader = None;
        self.votes = BTreeSet::from([self.id]);
        self.reset_election_timer(now);
        self.ask_for_votes(now);
        self.count_votes(now);
    }

    /// Asks those who have not said yes, again and again: "servers retry RPCs if they do not receive a response in
    /// a timely manner" (section 5.1).
    fn ask_for_votes(&mut self, now: Millis) {
        self.heartbeat_due = now + self.timing.heartbeat;
        let ask = Message::Vote {
            term: self.vote.term,
            last_index: self.last_index(),
            last_term: self.last_term(),
        };
        for peer in self.others.iter().filter(|peer| !self.votes.contains(peer)) {
            self.messages.push((*peer, ask.clone()));
        }
    }

    fn on_vote(&mut self, now: Millis, from: NodeId, term: u64, last: (u64, u64)) {
        let free = self.vote.voted_for.is_none() || self.vote.voted_for == Some(from);
        // Section 5.4.1: a vote only for one whose log is at least as up-to-date, later term first, then length.
        let up_to_date = last >= (self.last_term(), self.last_index());
        let granted = term == self.vote.term && free && up_to_date;
        if granted {
            if self.vote.voted_for.is_none() {
                self.set_vote(Vote { term, voted_for: Some(from) });
            }
            self.reset_election_timer(now);
        }
        self.messages.push((from, Message::VoteReply { term: self.vote.term, granted }));
    }

    fn count_votes(&mut self, now: Millis) {
        if self.votes.len() < self.majority() {
            return;
        }
        self.role = Role::Leader;
        self.leader = Some(self.id);
        let next = self.last_index() + 1;
        let fresh = Progress { next, matched: 0, round: 0, heard: now };
        self.progress = self.others.iter().map(|peer| (*peer, fresh.clone())).collect();
        self.round = 0;
        // Section 5.4.2: entries of earlier terms are committed by way of one of this term, so open it with one.
        self.append(Entry { term: self.vote.term, command: None });
        self.opening = self.last_index();
        self.broadcast(now);
        self.advance_commit();
    }

    /// "If RPC request or response contains term T > currentTerm: set currentTerm = T, convert to follower."
    fn observe_term(&mut self, now: Millis, term: u64) {
        if term > self.vote.term {
            self.set_vote(Vote { term, voted_for: None });
            self.become_follower(now);
        }
    }

    fn become_follower(&mut self, now: Millis) {
        if self.role != Role::Follower {
            // A follower's timer goes on running: a rival who cannot win must not keep it from standing itself.
            self.reset_election_timer(now);
        }
        self.role = Role::Follower;
        self.leader = None;
        self.votes.clear();
        self.progress.clear();
        self.failed_reads.extend(self.reads.drain(..).map(|read| read.token));
    }

    fn follow(&mut self, now: Millis, leader: NodeId) {
        if self.role != Role::Follower {
            self.become_follower(now);
        }
        self.leader = Some(leader);
        self.leader_heard = now;
        self.reset_election_timer(now);
    }

    // ----- replication -----

    fn on_append(&mut self, from: NodeId, round: u64, prev: (u64, u64), commit: u64, entries: Vec<Entry>) {
        let (prev_index, prev_term) = prev;
        if prev_index > self.last_index() {
            let retry = self.last_index() + 1;
            self.reply_append(from, round, false, retry);
            return;
        }
        if self.term_at(prev_index) != prev_term {
            let retry = self.first_of_term_at(prev_index);
            self.reply_append(from, round, false, retry);
            return;
        }
        let last_new = prev_index + entries.len() as u64;
        for (index, entry) in (prev_index + 1..).zip(entries) {
            // "If an existing entry conflicts with a new one (same index but different terms), delete the existing
            // entry and all that follow it": only then, as this message may be older than one already handled.
            if index <= self.last_index() {
                if self.term_at(index) == entry.term {
                    continue;
                }
                self.log.truncate(index as usize - 1);
            }
            self.append(entry);
        }
        self.commit = self.commit.max(commit.min(last_new));
        self.reply_append(from, round, true, last_new);
    }

    fn reply_append(&mut self, to: NodeId, round: u64, success: bool, index: u64) {
        self.messages.push((to, Message::AppendReply { term: self.vote.term, round, success, index }));
    }

    fn on_append_reply(&mut self, now: Millis, from: NodeId, round: u64, success: bool, index: u64) {
        let last = self.last_index();
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
            true
        };
        if send {
            self.send_append(from);
        }
        self.advance_commit();
        self.confirm_reads();
    }

    fn broadcast(&mut self, now: Millis) {
        self.heartbeat_due = now + self.timing.heartbeat;
        self.round += 1;
        for peer in self.others.clone() {
            self.send_append(peer);
        }
    }

    fn send_append(&mut self, to: NodeId) {
        let Some(peer) = self.progress.get_mut(&to) else { return };
        let prev_index = peer.next - 1;
        let first = prev_index as usize;
        let end = self.log.len().min(first + MAX_BATCH);
        let entries = self.log[first..end].to_vec();
        // Taken to arrive; if it does not, the follower refuses the next message and says where to go on.
        peer.next = end as u64 + 1;
        let message = Message::Append {
            term: self.vote.term,
            round: self.round,
            prev_index,
            prev_term: self.term_at(prev_index),
            commit: self.commit,
            entries,
        };
        self.messages.push((to, message));
    }

    /// Commits what a majority has, if it is of this term (figure 8 shows why only then).
    fn advance_commit(&mut self) {
        let mut matched: Vec<u64> = self.progress.values().map(|peer| peer.matched).collect();
        matched.push(self.last_index());
        matched.sort_unstable_by(|a, b| b.cmp(a));
        let index = matched[self.majority() - 1];
        if index > self.commit && self.term_at(index) == self.vote.term {
            self.commit = index;
        }
    }

    fn confirm_reads(&mut self) {
        let mut rounds: Vec<u64> = self.progress.values().map(|peer| peer.round).collect();
        rounds.push(self.round);
        rounds.sort_unstable_by(|a, b| b.cmp(a));
        let confirmed = rounds[self.majority() - 1];
        let commit = self.commit;
        let (done, waiting) =
            self.reads.drain(..).partition(|read| read.round <= confirmed && read.index <= commit);
        self.reads = waiting;
        let done: Vec<PendingRead> = done;
        self.confirmed_reads.extend(done.iter().map(|read| read.token));
    }

    fn in_touch_with_majority(&self, now: Millis) -> bool {
        let patience = self.timing.quorum_lost();
        let heard = self.progress.values().filter(|peer| now.saturating_sub(peer.heard) <= patience).count();
        heard + 1 >= self.majority()
    }

    // ----- the small things -----

    fn majority(&self) -> usize {
        self.others.len().div_ceil(2) + 1
    }

    fn last_index(&self) -> u64 {
        self.log.len() as u64
    }

    fn last_term(&self) -> u64 {
        self.term_at(self.last_index())
    }

    /// The term of the entry at `index`; 0 before the first.
    fn term_at(&self, index: u64) -> u64 {
        if index == 0 { 0 } else { self.log[index as usize - 1].term }
    }

    /// Where the run of entries of one term begins that `index` belongs to.
    fn first_of_term_at(&self, index: u64) -> u64 {
        let term = self.term_at(index);
        (1..=index).rev().take_while(|i| self.term_at(*i) == term).last().unwrap_or(1)
    }

    fn append(&mut self, entry: Entry) {
        self.log.push(entry);
        let index = self.last_index();
        self.log_changed_from = Some(self.log_changed_from.map_or(index, |from| from.min(index)));
    }

    fn set_vote(&mut self, vote: Vote) {
        self.vote = vote;
        self.vote_changed = true;
    }

    fn reset_election_timer(&mut self, now: Millis) {
        let (lowest, highest) = self.timing.election;
        self.election_due = now + lowest + self.next_random() % (highest - lowest);
    }

    /// SplitMix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
