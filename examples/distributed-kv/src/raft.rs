//! Raft as a pure state machine: elections, log replication and confirmed reads ("In Search of an Understandable
//! Consensus Algorithm", Ongaro and Ousterhout 2014; reads as in section 6.4 of Ongaro's thesis).
//!
//! [`Raft`] has no clock, sockets or files. Its owner gives it messages and the time (milliseconds of any monotonic
//! clock), takes the [`Output`] of each step, and must write what the output says to disk *before* it sends the
//! messages or answers a client. [`crate::replica`] is that owner's first half, [`crate::node`] the second.

use crate::NodeId;
use crate::config::Bug;
use crate::lease::Lease;
use crate::log::{Entry, Log, Snapshot};
use crate::message::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod replication;

/// Milliseconds of a monotonic clock with any origin.
pub type Millis = u64;

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

/// What a node finds on its disk when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Term and vote.
    pub vote: Vote,
    /// What the log follows; none if nothing has been dropped from it yet.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The log. It may begin before the snapshot ends.
    pub log: Log,
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
    /// A new snapshot must be stored, and then the log anew, as its beginning has changed.
    pub snapshot: Option<Arc<Snapshot>>,
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
    snapshot: Option<Arc<Snapshot>>,
    log: Log,
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
    lease: Option<Lease>,
    vote_changed: bool,
    snapshot_changed: bool,
    log_changed_from: Option<u64>,
    messages: Vec<(NodeId, Message)>,
    confirmed_reads: Vec<u64>,
    failed_reads: Vec<u64>,
}

impl Raft {
    /// A node that has just started with what it found on its disk. `seed` randomises its timeouts.
    pub fn new(
        id: NodeId,
        nodes: usize,
        timing: Timing,
        bug: Bug,
        seed: u64,
        stored: Stored,
        now: Millis,
    ) -> Raft {
        let Stored { vote, snapshot, mut log } = stored;
        let kept = snapshot.as_ref().map_or(log.base(), |snapshot| snapshot.index);
        if bug == Bug::DropsLastRecord && log.last_index() > kept {
            log.truncate_from(log.last_index());
        }
        let mut raft = Raft {
            id,
            others: (0..nodes as NodeId).filter(|n| *n != id).collect(),
            timing,
            bug,
            random: seed,
            vote,
            // A snapshot contains only what was committed.
            commit: snapshot.as_ref().map_or(0, |snapshot| snapshot.index),
            snapshot,
            log,
            role: Role::Follower,
            leader: None,
            leader_heard: now,
            election_due: 0,
            heartbeat_due: 0,
            votes: BTreeSet::new(),
            progress: BTreeMap::new(),
            round: 0,
            opening: 0,
            reads: Vec::new(),
            lease: (bug == Bug::WallClockLease).then(Lease::default),
            vote_changed: false,
            snapshot_changed: false,
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

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The newest snapshot, if there is one.
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.snapshot.as_ref()
    }

    /// Takes a snapshot of committed entries, which may go from the log, but for the last `keep` of them: they are
    /// for followers that are not far behind.
    pub fn compact(&mut self, snapshot: Snapshot, keep: u64) {
        self.log.drop_up_to(snapshot.index.saturating_sub(keep).max(self.log.base()));
        self.snapshot = Some(Arc::new(snapshot));
        self.snapshot_changed = true;
    }

    /// Tells the wall clock, in milliseconds, for a step to come: of use to nothing but a planted bug.
    pub fn set_wall_clock(&mut self, wall: Millis) {
        if let Some(lease) = &mut self.lease {
            lease.set_clock(wall);
        }
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
        let later = self.bug == Bug::VoteWithLog
            && self.log_changed_from.is_none()
            && self.vote.voted_for != Some(self.id);
        let vote_changed = !later && std::mem::take(&mut self.vote_changed) && self.bug != Bug::VoteTwice;
        Output {
            vote: vote_changed.then_some(self.vote),
            snapshot: self.snapshot.clone().filter(|_| std::mem::take(&mut self.snapshot_changed)),
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
        Some(self.log.last_index())
    }

    /// Starts a read; false if this node does not lead. The token comes back by
    /// [`Raft::take_reads`].
    pub fn read(&mut self, now: Millis, token: u64) -> bool {
        if self.role != Role::Leader {
            return false;
        }
        let has_lease = self.commit >= self.opening && self.lease.as_ref().is_some_and(Lease::holds);
        if self.bug == Bug::StaleRead || has_lease {
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
            // Who promises a lease votes for nobody until it must be over (section 6.4.1 of the thesis).
            Message::Vote { .. } if self.lease.is_some() && self.must_keep_leader(now) => {}
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
            Message::Install { term, round, snapshot } => {
                self.observe_term(now, term);
                if term < self.vote.term {
                    self.reply_append(from, round, false, snapshot.index);
                    return;
                }
                self.follow(now, from);
                self.on_install(from, round, snapshot);
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
            last_index: self.log.last_index(),
            last_term: self.log.last_term(),
        };
        for peer in self.others.iter().filter(|peer| !self.votes.contains(peer)) {
            self.messages.push((*peer, ask.clone()));
        }
    }

    fn on_vote(&mut self, now: Millis, from: NodeId, term: u64, last: (u64, u64)) {
        let free = self.vote.voted_for.is_none() || self.vote.voted_for == Some(from);
        // Section 5.4.1: a vote only for one whose log is at least as up-to-date, later term first, then length.
        let up_to_date = last >= (self.log.last_term(), self.log.last_index());
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
        self.end_lease();
        let next = self.log.last_index() + 1;
        let fresh = Progress { next, matched: 0, round: 0, heard: now };
        self.progress = self.others.iter().map(|peer| (*peer, fresh.clone())).collect();
        self.round = 0;
        // Section 5.4.2: entries of earlier terms are committed by way of one of this term, so open it with one.
        self.append(Entry { term: self.vote.term, command: None });
        self.opening = self.log.last_index();
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
        self.end_lease();
        self.failed_reads.extend(self.reads.drain(..).map(|read| read.token));
    }

    fn follow(&mut self, now: Millis, leader: NodeId) {
        if self.role != Role::Follower {
            self.become_follower(now);
        }
        self.leader = Some(leader);
        if self.bug == Bug::ClearsVote && self.vote.voted_for.is_some() {
            self.set_vote(Vote { term: self.vote.term, voted_for: None });
        }
        self.leader_heard = now;
        self.reset_election_timer(now);
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

    /// How long a leader may take it that a majority that follows it elects nobody else.
    fn lease_length(&self) -> Millis {
        self.timing.election.0 * 9 / 10
    }

    /// Whether this follower has heard a leader, or has begun to run, so lately that it may have to keep that leader.
    fn must_keep_leader(&self, now: Millis) -> bool {
        self.role == Role::Follower && now.saturating_sub(self.leader_heard) <= self.timing.election.0
    }

    fn end_lease(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.end();
        }
    }

    fn append(&mut self, entry: Entry) {
        self.log.push(entry);
        let index = self.log.last_index();
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
