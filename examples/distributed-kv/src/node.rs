//! One running node: the pure [`Replica`] together with its disk, its connections and the clients that wait.
//!
//! All of it is behind one lock. A thread that has something for the node (a message, a request, the time) takes the
//! lock, lets the replica make its step, and carries out what the step asks for before it lets go: first the disk,
//! then the network, then the waiting clients.

use crate::NodeId;
use crate::config::{Bug, Config};
use crate::disk::Directory;
use crate::kv::{Op, Outcome};
use crate::message::Message;
use crate::raft::{self, Millis, Raft, Role};
use crate::replica::{Replica, Ticket};
use crate::storage::Storage;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// How long a client is kept waiting.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2000);
/// A peer that has not answered a request for this long has lost its connection: TCP itself would notice much later,
/// and after a long cut it would wait as long again before it tries.
const ANSWER_TIMEOUT: Millis = 400;

/// A node, shared by its threads.
pub struct Node {
    start: Instant,
    /// The set-up.
    pub config: Config,
    state: Mutex<State>,
    /// Wakes the timer thread when its next deadline has come closer.
    timer: Condvar,
}

/// What `/status` shows.
pub struct Status {
    /// What the node does.
    pub role: Role,
    /// The current term.
    pub term: u64,
    /// The leader's name.
    pub leader: Option<String>,
    /// Index of the last committed entry.
    pub commit: u64,
    /// Index of the last entry of the snapshot, 0 without one.
    pub snapshot: u64,
    /// Index of the last entry of the log.
    pub last_index: u64,
    /// Whether requests are likely to succeed.
    pub healthy: bool,
}

struct State {
    replica: Replica,
    storage: Storage<Directory>,
    links: BTreeMap<NodeId, Link>,
    inbound: BTreeMap<NodeId, Arc<TcpStream>>,
    waiting: BTreeMap<Ticket, Arc<Slot>>,
    next_ticket: Ticket,
    /// When the timer thread will look by itself.
    armed_for: Millis,
}

/// Our own connection to another node.
#[derive(Default)]
struct Link {
    stream: Option<Arc<TcpStream>>,
    /// Since when an answer has been due.
    unanswered_since: Option<Millis>,
}

/// Where a client's thread waits for its outcome.
#[derive(Default)]
struct Slot {
    outcome: Mutex<Option<Outcome>>,
    set: Condvar,
}

impl Node {
    /// Reads the disk and makes a node. Nothing runs yet.
    pub fn open(config: Config) -> io::Result<Node> {
        let disk = Directory::open(config.data_dir.clone())?;
        let (storage, stored) = Storage::open(disk, config.bug)?;
        let random = RandomState::new();
        let seed = random.hash_one("timeouts");
        let nodes = config.peers.len();
        let raft = Raft::new(config.id, nodes, config.timing, config.bug, seed, stored, 0);
        let others = (0..nodes as NodeId).filter(|id| *id != config.id);
        let state = State {
            replica: Replica::new(raft, config.bug, config.snapshot_entries),
            storage,
            links: others.map(|id| (id, Link::default())).collect(),
            inbound: BTreeMap::new(),
            waiting: BTreeMap::new(),
            // Not from 0 in every life: answers to what an earlier life forwarded must not be taken for others.
            next_ticket: random.hash_one("tickets"),
            armed_for: 0,
        };
        Ok(Node { start: Instant::now(), config, state: Mutex::new(state), timer: Condvar::new() })
    }

    /// Runs a client's operation to its end.
    pub fn execute(&self, op: Op) -> Outcome {
        let slot = Arc::new(Slot::default());
        let mut state = self.begin_step();
        let ticket = state.next_ticket;
        state.next_ticket = ticket.wrapping_add(1);
        state.waiting.insert(ticket, slot.clone());
        state.replica.submit(self.now(), ticket, op);
        self.finish_step(state);

        let outcome = slot.outcome.lock().expect("no thread panics with this lock");
        let (mut outcome, _) = slot
            .set
            .wait_timeout_while(outcome, REQUEST_TIMEOUT, |outcome| outcome.is_none())
            .expect("no thread panics with this lock");
        if let Some(outcome) = outcome.take() {
            return outcome;
        }
        drop(outcome);
        let mut state = self.lock();
        state.waiting.remove(&ticket);
        // It may have ended just now.
        let late = slot.outcome.lock().expect("no thread panics with this lock").take();
        late.unwrap_or_else(|| state.replica.abandon(ticket))
    }

    /// The node's view of itself.
    pub fn status(&self) -> Status {
        let now = self.now();
        let state = self.lock();
        let raft = state.replica.raft();
        Status {
            role: raft.role(),
            term: raft.term(),
            leader: raft.leader().map(|id| self.config.peers[usize::from(id)].0.clone()),
            commit: raft.commit(),
            snapshot: raft.snapshot().map_or(0, |snapshot| snapshot.index),
            last_index: raft.log().last_index(),
            healthy: raft.is_healthy(now),
        }
    }

    /// A message has arrived.
    pub fn on_message(&self, from: NodeId, message: Message) {
        let mut state = self.begin_step();
        let now = self.now();
        if message.is_reply()
            && let Some(link) = state.links.get_mut(&from)
        {
            link.unanswered_since = None;
        }
        state.replica.on_message(now, from, message);
        self.finish_step(state);
    }

    /// Our connection to `peer` stands. The stream's writing end is the node's from now on.
    pub fn link_up(&self, peer: NodeId, stream: Arc<TcpStream>) {
        if let Some(link) = self.lock().links.get_mut(&peer) {
            *link = Link { stream: Some(stream), unanswered_since: None };
        }
    }

    /// Our connection to `peer` is gone.
    pub fn link_down(&self, peer: NodeId) {
        let mut state = self.begin_step();
        state.links.insert(peer, Link::default());
        state.replica.link_down(self.now(), peer);
        self.finish_step(state);
    }

    /// `peer` has connected to us; an older connection of its is dead.
    pub fn inbound_up(&self, peer: NodeId, stream: Arc<TcpStream>) {
        if let Some(old) = self.lock().inbound.insert(peer, stream) {
            let _ = old.shutdown(Shutdown::Both);
        }
    }

    /// The connection from `peer` has ended.
    pub fn inbound_down(&self, peer: NodeId, stream: &Arc<TcpStream>) {
        let mut state = self.lock();
        if state.inbound.get(&peer).is_some_and(|current| Arc::ptr_eq(current, stream)) {
            state.inbound.remove(&peer);
        }
    }

    /// Lets time pass, for ever.
    pub fn run_timer(&self) -> ! {
        let mut state = self.lock();
        loop {
            self.tell_wall_clock(&mut state);
            let now = self.now();
            state.drop_dead_links(now);
            if now >= state.replica.raft().next_deadline() {
                state.replica.tick(now);
                state.carry_out(now);
            }
            let due = state.replica.raft().next_deadline();
            state.armed_for = due;
            let pause = Duration::from_millis(due.saturating_sub(self.now()).max(1));
            state = self.timer.wait_timeout(state, pause).expect("no thread panics with this lock").0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with this lock")
    }

    fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }

    fn begin_step(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        self.tell_wall_clock(&mut state);
        state
    }

    fn tell_wall_clock(&self, state: &mut State) {
        if self.config.bug == Bug::WallClockLease {
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            state.replica.set_wall_clock(wall.as_millis() as Millis);
        }
    }

    fn finish_step(&self, mut state: MutexGuard<'_, State>) {
        state.carry_out(self.now());
        let due = state.replica.raft().next_deadline();
        if due < state.armed_for {
            state.armed_for = due;
            drop(state);
            self.timer.notify_one();
        }
    }
}

impl State {
    /// Does what the replica's last step asks for.
    fn carry_out(&mut self, now: Millis) {
        loop {
            let output = self.replica.take_output();
            if let Err(error) = self.store(&output.raft) {
                // Nothing that the step says may leave this node, and the next step cannot be trusted either.
                eprintln!("cannot write to disk: {error}");
                std::process::exit(1);
            }
            if output.raft.messages.is_empty() && output.done.is_empty() {
                return;
            }
            for (to, message) in output.raft.messages {
                self.send(now, to, &message);
            }
            for (ticket, outcome) in output.done {
                if let Some(slot) = self.waiting.remove(&ticket) {
                    *slot.outcome.lock().expect("no thread panics with this lock") = Some(outcome);
                    slot.set.notify_one();
                }
            }
        }
    }

    fn store(&mut self, output: &raft::Output) -> io::Result<()> {
        self.storage.store(output, self.replica.raft().log())
    }

    /// Sends a message if there is a connection for it: Raft copes with lost messages, and nothing else is repeated.
    fn send(&mut self, now: Millis, to: NodeId, message: &Message) {
        if message.is_reply() {
            if let Some(stream) = self.inbound.get(&to) {
                write_or_shut_down(stream, message);
            }
            return;
        }
        let Some(link) = self.links.get_mut(&to) else { return };
        match &link.stream {
            Some(stream) => {
                link.unanswered_since.get_or_insert(now);
                write_or_shut_down(stream, message);
            }
            None => self.replica.not_sent(message),
        }
    }

    /// Shuts down connections on which answers are overdue; their reading threads then notice and connect anew.
    fn drop_dead_links(&mut self, now: Millis) {
        for link in self.links.values_mut() {
            if link.unanswered_since.is_some_and(|since| now.saturating_sub(since) > ANSWER_TIMEOUT)
                && let Some(stream) = link.stream.take()
            {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Writes a whole frame. If that fails half a frame may be out, so the connection is of no more use.
fn write_or_shut_down(mut stream: &TcpStream, message: &Message) {
    if stream.write_all(&message.to_frame()).is_err() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
