//! One node's share of the service, still pure: the log's effects on the map, clients' operations, and forwarding.
//!
//! A client's operation comes in by [`Replica::submit`] with a ticket and ends with that ticket in
//! [`Output::done`], once. What it does in between: the leader proposes writes and confirms reads, any other node
//! forwards to the leader, or parks the operation until it knows one. Nothing is ever sent twice, so an operation
//! whose fate is unknown is not repeated.

use crate::NodeId;
use crate::config::Bug;
use crate::kv::{Map, Op, Outcome};
use crate::log::{Entry, Snapshot};
use crate::message::Message;
use crate::raft::{self, Millis, Raft, Role};
use std::collections::BTreeMap;

/// Names an operation that a client has handed to this node.
pub type Ticket = u64;

/// Whom to tell how an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Client(Ticket),
    /// Another node forwarded it, under this name.
    Peer(NodeId, u64),
}

/// What a step asks for: store first, then send, then answer.
#[derive(Debug, Default)]
pub struct Output {
    /// What to store, and messages to send.
    pub raft: raft::Output,
    /// Operations that have ended.
    pub done: Vec<(Ticket, Outcome)>,
}

/// The state of one node.
#[derive(Clone, Debug)]
pub struct Replica {
    raft: Raft,
    bug: Bug,
    map: Map,
    applied: u64,
    /// The log is compacted when this many entries have been applied since the last snapshot.
    snapshot_entries: u64,
    /// Proposed writes, by index; each with the term it was proposed in.
    proposed: BTreeMap<u64, (u64, Origin)>,
    /// Reads under way, by token.
    reads: BTreeMap<u64, (String, Origin)>,
    next_token: u64,
    /// Operations that the leader has, by ticket.
    forwarded: BTreeMap<Ticket, (NodeId, Op)>,
    /// Operations that wait for a leader.
    parked: BTreeMap<Ticket, Op>,
    messages: Vec<(NodeId, Message)>,
    done: Vec<(Ticket, Outcome)>,
}

impl Replica {
    /// A node that starts with the given consensus state and the map of its snapshot, empty if there is none: the log
    /// adds to it as it is committed again.
    pub fn new(raft: Raft, bug: Bug, snapshot_entries: u64) -> Replica {
        let snapshot = raft.snapshot().filter(|_| bug != Bug::ForgetsSnapshot);
        Replica {
            bug,
            map: snapshot.map(|snapshot| snapshot.map.clone()).unwrap_or_default(),
            applied: raft.snapshot().map_or(0, |snapshot| snapshot.index),
            raft,
            snapshot_entries,
            proposed: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_token: 0,
            forwarded: BTreeMap::new(),
            parked: BTreeMap::new(),
            messages: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The consensus state.
    pub fn raft(&self) -> &Raft {
        &self.raft
    }

    /// See [`Raft::set_wall_clock`].
    pub fn set_wall_clock(&mut self, wall: Millis) {
        self.raft.set_wall_clock(wall);
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Millis) {
        self.raft.tick(now);
        self.after_step(now);
    }

    /// A client's operation. The ticket must be new.
    pub fn submit(&mut self, now: Millis, ticket: Ticket, op: Op) {
        if self.raft.role() == Role::Leader {
            self.lead(now, op, Origin::Client(ticket));
        } else if let Some(leader) = self.raft.leader() {
            self.forward(leader, ticket, op);
        } else {
            self.parked.insert(ticket, op);
        }
        self.after_step(now);
    }

    /// The client waits no longer. Tells what is known about its operation's fate.
    pub fn abandon(&mut self, ticket: Ticket) -> Outcome {
        if self.parked.remove(&ticket).is_some() {
            return Outcome::Unavailable;
        }
        self.forwarded.remove(&ticket);
        Outcome::Unknown
    }

    /// A message from another node.
    pub fn on_message(&mut self, now: Millis, from: NodeId, message: Message) {
        match message {
            Message::Forward { id, op } => {
                if self.raft.role() == Role::Leader {
                    self.lead(now, op, Origin::Peer(from, id));
                } else {
                    // Not passed on: a chain of forwards could go in circles. The client may try again.
                    self.finish(Origin::Peer(from, id), Outcome::Unavailable);
                }
            }
            Message::ForwardReply { id, outcome } => {
                if self.forwarded.remove(&id).is_some() {
                    self.done.push((id, outcome));
                }
            }
            other => self.raft.on_message(now, from, other),
        }
        self.after_step(now);
    }

    /// The connection to `peer` broke, so its answers to forwarded operations will not come.
    pub fn link_down(&mut self, now: Millis, peer: NodeId) {
        let (lost, kept) =
            std::mem::take(&mut self.forwarded).into_iter().partition(|(_, (leader, _))| *leader == peer);
        self.forwarded = kept;
        let lost: BTreeMap<Ticket, (NodeId, Op)> = lost;
        for (ticket, (_, op)) in lost {
            // A read has no effect, so it may be called undone; a write may have reached the leader.
            let outcome = if matches!(op, Op::Get { .. }) { Outcome::Unavailable } else { Outcome::Unknown };
            self.done.push((ticket, outcome));
        }
        self.after_step(now);
    }

    /// A message could not be handed to any connection: no byte of it was sent.
    pub fn not_sent(&mut self, message: &Message) {
        if let Message::Forward { id, .. } = message
            && self.forwarded.remove(id).is_some()
        {
            self.done.push((*id, Outcome::Unavailable));
        }
    }

    /// Takes what the steps since the last call ask for.
    pub fn take_output(&mut self) -> Output {
        let mut raft = self.raft.take_output();
        raft.messages.append(&mut self.messages);
        Output { raft, done: std::mem::take(&mut self.done) }
    }

    // ----- inside -----

    fn lead(&mut self, now: Millis, op: Op, origin: Origin) {
        match op {
            Op::Get { key } => {
                let token = self.next_token;
                self.next_token += 1;
                self.reads.insert(token, (key, origin));
                self.raft.read(now, token);
            }
            Op::Write(command) => {
                let term = self.raft.term();
                let blind = !matches!(command, crate::kv::Command::Cas { .. });
                let entry = Entry { term, command: Some(command) };
                let Some(index) = self.raft.propose(now, entry) else {
                    return self.finish(origin, Outcome::Unavailable);
                };
                if self.bug == Bug::AckBeforeCommit && blind {
                    return self.finish(origin, Outcome::Written);
                }
                // What waited at this index belongs to an entry which has been overwritten.
                if let Some((_, old)) = self.proposed.insert(index, (term, origin)) {
                    self.finish(old, Outcome::Unknown);
                }
            }
        }
    }

    fn forward(&mut self, leader: NodeId, ticket: Ticket, op: Op) {
        self.messages.push((leader, Message::Forward { id: ticket, op: op.clone() }));
        self.forwarded.insert(ticket, (leader, op));
    }

    fn finish(&mut self, origin: Origin, outcome: Outcome) {
        match origin {
            Origin::Client(ticket) => self.done.push((ticket, outcome)),
            Origin::Peer(peer, id) => self.messages.push((peer, Message::ForwardReply { id, outcome })),
        }
    }

    /// Draws the consequences of a step: applies what is committed, answers reads, lets parked operations go.
    fn after_step(&mut self, now: Millis) {
        self.apply_committed();
        let (confirmed, failed) = self.raft.take_reads();
        for token in confirmed {
            if let Some((key, origin)) = self.reads.remove(&token) {
                let value = self.map.get(&key).cloned();
                self.finish(origin, Outcome::Value(value));
            }
        }
        for token in failed {
            if let Some((_, origin)) = self.reads.remove(&token) {
                self.finish(origin, Outcome::Unavailable);
            }
        }
        if self.raft.leader().is_some() && !self.parked.is_empty() {
            for (ticket, op) in std::mem::take(&mut self.parked) {
                self.submit(now, ticket, op);
            }
        }
    }

    fn apply_committed(&mut self) {
        self.apply_snapshot();
        while self.applied < self.raft.commit()
            && let Some(entry) = self.raft.log().get(self.applied + 1)
        {
            self.applied += 1;
            let term = entry.term;
            let outcome = entry.command.as_ref().map(|command| self.map.apply(command));
            if let Some((proposed_in, origin)) = self.proposed.remove(&self.applied) {
                // If another leader's entry took the place, the proposed one is gone for good.
                let ours = proposed_in == term;
                self.finish(origin, outcome.filter(|_| ours).unwrap_or(Outcome::Unavailable));
            }
        }
        let since = self.applied - self.raft.snapshot().map_or(0, |snapshot| snapshot.index);
        if since >= self.snapshot_entries
            && let Some(term) = self.raft.log().term_at(self.applied)
        {
            let snapshot = Snapshot { index: self.applied, term, map: self.map.clone() };
            self.raft.compact(snapshot, self.snapshot_entries / 2);
        }
    }

    /// Goes on from the leader's snapshot if it has sent one that is ahead of what was applied here.
    fn apply_snapshot(&mut self) {
        let Some(snapshot) = self.raft.snapshot().filter(|snapshot| snapshot.index > self.applied) else {
            return;
        };
        self.applied = snapshot.index;
        self.map = snapshot.map.clone();
        // Which entries led to the snapshot is not known any more.
        let later = self.proposed.split_off(&(self.applied + 1));
        for (_, origin) in std::mem::replace(&mut self.proposed, later).into_values() {
            self.finish(origin, Outcome::Unknown);
        }
    }
}
