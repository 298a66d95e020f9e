//! Three replicas, their disks, the connections between them and some clients, in one thread and virtual time.

use crate::disk::{MemoryDisk, Rates};
use crate::linearizable::{Action, Operation};
use distributed_kv::NodeId;
use distributed_kv::config::Bug;
use distributed_kv::kv::{Command, Op, Outcome};
use distributed_kv::log::Entry;
use distributed_kv::message::Message;
use distributed_kv::raft::{Raft, Role, Timing};
use distributed_kv::replica::Replica;
use distributed_kv::storage::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Microseconds.
type Micros = u64;

const NODES: usize = 3;
const CLIENTS: usize = 6;
const MS: Micros = 1000;

/// How hard the world is on the service. Probabilities are per million.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Per message: takes up to 100 ms longer.
    pub delay: u64,
    /// Per message: lost once and sent again by TCP, 200 ms later.
    pub drop: u64,
    /// Per 10 ms and node: crashes.
    pub crash: u64,
    /// Per 10 ms and node: its power fails.
    pub power: u64,
    /// Per 10 ms and node: its wall clock is set, by up to ten seconds.
    pub clock: u64,
    /// What the disks do.
    pub disk: Rates,
    /// Entries from one snapshot to the next.
    pub snapshot_entries: u64,
    /// How many keys the clients use.
    pub keys: u64,
    /// Down time after a crash, in ms.
    pub restart: (u64, u64),
    /// Per 10 ms: some links are cut for 0.3 to 3 s.
    pub partition: u64,
    /// Election timeouts, in ms.
    pub election: (u64, u64),
}

/// Numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n` - 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True that often.
    pub fn chance(&mut self, per_million: u64) -> bool {
        self.below(1_000_000) < per_million
    }
}

#[derive(Debug)]
enum Event {
    Weather,
    Timer(usize),
    Restart(usize),
    Heal,
    /// A message on the connection which `caller` made; void if the connection has been replaced.
    Deliver {
        caller: usize,
        callee: usize,
        epoch: u64,
        from: usize,
        message: Message,
    },
    LinkDown {
        caller: usize,
        callee: usize,
        epoch: u64,
    },
    LinkUp {
        caller: usize,
        callee: usize,
    },
    Client(usize),
    ClientTimeout {
        client: usize,
        ticket: u64,
    },
}

#[derive(Default)]
struct Link {
    up: bool,
    epoch: u64,
    /// Bytes arrive in order: not before these times, for requests and replies.
    busy_until: [Micros; 2],
    dying: bool,
}

struct Node {
    replica: Replica,
    storage: Storage<MemoryDisk>,
}

struct Pending {
    ticket: u64,
    node: usize,
    op: Op,
    invoke: Micros,
}

/// The world, with what has been observed in it.
pub struct World {
    now: Micros,
    random: Random,
    weather: Weather,
    bug: Bug,
    events: BTreeMap<(Micros, u64), Event>,
    sequence: u64,
    nodes: Vec<Option<Node>>,
    timers: Vec<Micros>,
    disks: Vec<MemoryDisk>,
    /// The wall clocks, as differences from the monotonic one, in ms.
    walls: Vec<u64>,
    links: BTreeMap<(usize, usize), Link>,
    cut: BTreeSet<(usize, usize)>,
    faults_end: Micros,
    clients: Vec<Option<Pending>>,
    next_ticket: u64,
    next_value: u64,
    /// Finished operations by key.
    pub history: BTreeMap<String, Vec<Operation>>,
    /// Operations that ended well after the faults were over.
    pub succeeded_after_heal: u64,
    leaders: BTreeMap<u64, usize>,
    /// The entries known to be committed, by index.
    applied: BTreeMap<u64, Entry>,
    /// How far each node's committed entries have been compared with those.
    compared: Vec<u64>,
    /// Broken promises of Raft itself.
    pub broken: Vec<String>,
}

impl World {
    /// A fresh cluster.
    pub fn new(seed: u64, bug: Bug, weather: Weather, faults_end: Micros) -> World {
        let mut world = World {
            now: 0,
            random: Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d)),
            weather,
            bug,
            events: BTreeMap::new(),
            sequence: 0,
            nodes: (0..NODES).map(|_| None).collect(),
            timers: vec![Micros::MAX; NODES],
            disks: (0..NODES as u64).map(|node| MemoryDisk::new(Random(seed ^ (node + 1) << 40))).collect(),
            walls: vec![1_000_000; NODES],
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            faults_end,
            clients: (0..CLIENTS).map(|_| None).collect(),
            next_ticket: 0,
            next_value: 0,
            history: BTreeMap::new(),
            succeeded_after_heal: 0,
            leaders: BTreeMap::new(),
            applied: BTreeMap::new(),
            compared: vec![0; NODES],
            broken: Vec::new(),
        };
        for a in 0..NODES {
            for b in (0..NODES).filter(|b| *b != a) {
                world.links.insert((a, b), Link::default());
                world.at(MS, Event::LinkUp { caller: a, callee: b });
            }
            world.start(a);
        }
        for client in 0..CLIENTS {
            world.at(500 * MS + client as u64 * MS, Event::Client(client));
        }
        world.at(10 * MS, Event::Weather);
        world
    }

    /// Runs until the given time.
    pub fn run(&mut self, until: Micros) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > until {
                break;
            }
            self.now = entry.key().0;
            let event = entry.remove();
            self.handle(event);
        }
        for client in 0..CLIENTS {
            if let Some(pending) = self.clients[client].take() {
                self.record(&pending, &Outcome::Unknown);
            }
        }
    }

    fn at(&mut self, after: Micros, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    fn millis(&self) -> u64 {
        self.now / MS
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Weather => self.make_weather(),
            Event::Timer(node) => {
                if self.timers[node] == self.now {
                    self.timers[node] = Micros::MAX;
                    self.step(node, |replica, now| replica.tick(now));
                }
            }
            Event::Restart(node) => self.start(node),
            Event::Heal => self.cut.clear(),
            Event::Deliver { caller, callee, epoch, from, message } => {
                let to = if from == caller { callee } else { caller };
                let link = &self.links[&(caller, callee)];
                if !link.up || link.epoch != epoch || link.dying {
                    return;
                }
                if self.cut.contains(&(from, to)) {
                    return self.kill_link(caller, callee, 400 * MS);
                }
                self.step(to, |replica, now| replica.on_message(now, from as NodeId, message));
            }
            Event::LinkDown { caller, callee, epoch } => {
                let link = self.links.get_mut(&(caller, callee)).unwrap();
                if link.epoch == epoch {
                    link.up = false;
                    self.step(caller, |replica, now| replica.link_down(now, callee as NodeId));
                    self.at(5 * MS, Event::LinkUp { caller, callee });
                }
            }
            Event::LinkUp { caller, callee } => {
                let blocked = self.cut.contains(&(caller, callee)) || self.cut.contains(&(callee, caller));
                if blocked || self.nodes[caller].is_none() || self.nodes[callee].is_none() {
                    return self.at(20 * MS, Event::LinkUp { caller, callee });
                }
                let link = self.links.get_mut(&(caller, callee)).unwrap();
                let epoch = link.epoch + 1;
                *link = Link { up: true, epoch, ..Link::default() };
            }
            Event::Client(client) => self.client_calls(client),
            Event::ClientTimeout { client, ticket } => {
                if self.clients[client].as_ref().is_some_and(|p| p.ticket == ticket) {
                    let pending = self.clients[client].take().unwrap();
                    let outcome = match self.nodes[pending.node].as_mut() {
                        Some(node) => node.replica.abandon(ticket),
                        None => Outcome::Unknown,
                    };
                    self.end(client, pending, &outcome);
                }
            }
        }
    }

    fn make_weather(&mut self) {
        if self.now >= self.faults_end {
            self.cut.clear();
            self.disks.iter().for_each(|disk| disk.set_rates(Rates::default()));
            return;
        }
        for node in 0..NODES {
            if self.random.chance(self.weather.crash) && self.nodes[node].is_some() {
                self.crash(node);
            }
            if self.random.chance(self.weather.power) {
                if self.nodes[node].is_some() {
                    self.crash(node);
                }
                self.disks[node].fail_power();
            }
            if self.random.chance(self.weather.clock) {
                self.walls[node] = self.walls[node] + self.random.below(20_000) - 10_000;
            }
        }
        if self.cut.is_empty() && self.random.chance(self.weather.partition) {
            let alone = self.random.below(3) as usize;
            let other = (alone + 1) % NODES;
            let third = (alone + 2) % NODES;
            match self.random.below(3) {
                0 => self.cut.extend([(alone, other), (other, alone), (alone, third), (third, alone)]),
                1 => self.cut.extend([(alone, other), (other, alone)]),
                _ => self.cut.extend([(alone, other), (alone, third)]),
            }
            let time = 300 + self.random.below(2700);
            self.at(time * MS, Event::Heal);
        }
        self.at(10 * MS, Event::Weather);
    }

    fn start(&mut self, node: usize) {
        if self.now < self.faults_end {
            self.disks[node].set_rates(self.weather.disk);
        }
        let (storage, stored) = match Storage::open(self.disks[node].clone(), self.bug) {
            Ok(opened) => opened,
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    self.broken.push(format!("node {node} refuses its disk: {error}"));
                }
                return self.at(100 * MS, Event::Restart(node));
            }
        };
        let seed = self.random.next();
        let timing = Timing { election: self.weather.election, ..Timing::default() };
        let raft = Raft::new(node as NodeId, NODES, timing, self.bug, seed, stored, self.millis());
        let replica = Replica::new(raft, self.bug, self.weather.snapshot_entries);
        self.nodes[node] = Some(Node { replica, storage });
        self.arm(node);
    }

    fn crash(&mut self, node: usize) {
        self.nodes[node] = None;
        self.compared[node] = 0;
        self.timers[node] = Micros::MAX;
        for other in (0..NODES).filter(|other| *other != node) {
            self.kill_link(other, node, MS);
            self.kill_link(node, other, MS);
        }
        for client in 0..CLIENTS {
            if self.clients[client].as_ref().is_some_and(|p| p.node == node) {
                let pending = self.clients[client].take().unwrap();
                self.end(client, pending, &Outcome::Unknown);
            }
        }
        let (lo, hi) = self.weather.restart;
        let down = lo + self.random.below(hi - lo);
        self.at(down * MS, Event::Restart(node));
    }

    fn kill_link(&mut self, caller: usize, callee: usize, after: Micros) {
        let link = self.links.get_mut(&(caller, callee)).unwrap();
        if link.up && !link.dying {
            link.dying = true;
            let epoch = link.epoch;
            self.at(after, Event::LinkDown { caller, callee, epoch });
        }
    }

    fn arm(&mut self, node: usize) {
        if let Some(Node { replica, .. }) = &self.nodes[node] {
            let due = (replica.raft().next_deadline() * MS).max(self.now);
            if due != self.timers[node] {
                self.timers[node] = due;
                self.at(due - self.now, Event::Timer(node));
            }
        }
    }

    fn step(&mut self, node: usize, act: impl FnOnce(&mut Replica, u64)) {
        let now = self.millis();
        let wall = now + self.walls[node];
        let Some(Node { replica, .. }) = self.nodes[node].as_mut() else { return };
        replica.set_wall_clock(wall);
        act(replica, now);
        loop {
            let Node { replica, storage } = self.nodes[node].as_mut().unwrap();
            let output = replica.take_output();
            if storage.store(&output.raft, replica.raft().log()).is_err() {
                return self.crash(node);
            }
            if output.raft.messages.is_empty() && output.done.is_empty() {
                break;
            }
            for (to, message) in output.raft.messages {
                self.send(node, to as usize, message);
            }
            for (ticket, outcome) in output.done {
                self.answer(ticket, &outcome);
            }
        }
        self.inspect(node);
        self.arm(node);
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let reply = message.is_reply();
        let (caller, callee) = if reply { (to, from) } else { (from, to) };
        let link = self.links.get_mut(&(caller, callee)).unwrap();
        if !link.up || link.dying {
            if !link.dying && !reply {
                self.nodes[from].as_mut().unwrap().replica.not_sent(&message);
            }
            return;
        }
        let mut time = self.now + 200 + self.random.below(1500);
        if self.now < self.faults_end {
            if self.random.chance(self.weather.delay) {
                time += self.random.below(100 * MS);
            }
            if self.random.chance(self.weather.drop) {
                time += 200 * MS;
            }
        }
        let time = time.max(link.busy_until[usize::from(reply)] + 1);
        link.busy_until[usize::from(reply)] = time;
        let epoch = link.epoch;
        self.at(time - self.now, Event::Deliver { caller, callee, epoch, from, message });
    }

    /// Checks Raft's own promises: one leader per term, and the same entries applied everywhere.
    fn inspect(&mut self, node: usize) {
        let raft = self.nodes[node].as_ref().unwrap().replica.raft();
        if raft.role() == Role::Leader {
            let first = *self.leaders.entry(raft.term()).or_insert(node);
            if first != node {
                self.broken.push(format!("term {}: leaders {first} and {node}", raft.term()));
            }
        }
        let committed = raft.commit().min(raft.log().last_index());
        let from = std::mem::replace(&mut self.compared[node], committed).max(raft.log().base());
        for index in from + 1..=committed {
            let Some(entry) = raft.log().get(index) else { return };
            if self.applied.entry(index).or_insert_with(|| entry.clone()) != entry {
                self.broken.push(format!("index {index}: two entries committed"));
                return;
            }
        }
    }

    // ----- clients -----

    fn client_calls(&mut self, client: usize) {
        let node = self.random.below(NODES as u64) as usize;
        let key = format!("key-{}", self.random.below(self.weather.keys));
        self.next_value += 1;
        let value = format!("v{}", self.next_value);
        let op = match self.random.below(10) {
            0..=3 => Op::Get { key },
            4..=7 => Op::Write(Command::Put { key, value }),
            8 => Op::Write(Command::Delete { key }),
            _ => {
                let old = Some(format!("v{}", self.next_value.saturating_sub(self.random.below(8))));
                Op::Write(Command::Cas { key, old, new: Some(value) })
            }
        };
        if self.nodes[node].is_none() {
            return self.at(30 * MS, Event::Client(client));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.clients[client] = Some(Pending { ticket, node, op: op.clone(), invoke: self.now });
        self.at(1000 * MS, Event::ClientTimeout { client, ticket });
        self.step(node, |replica, now| replica.submit(now, ticket, op));
    }

    fn answer(&mut self, ticket: u64, outcome: &Outcome) {
        let found = (0..CLIENTS).find(|c| self.clients[*c].as_ref().is_some_and(|p| p.ticket == ticket));
        if let Some(client) = found {
            let pending = self.clients[client].take().unwrap();
            self.end(client, pending, outcome);
        }
    }

    fn end(&mut self, client: usize, pending: Pending, outcome: &Outcome) {
        self.record(&pending, outcome);
        let pause = 20 + self.random.below(80);
        self.at(pause * MS, Event::Client(client));
    }

    fn record(&mut self, pending: &Pending, outcome: &Outcome) {
        let (key, action) = match (&pending.op, outcome) {
            (_, Outcome::Unavailable) | (Op::Get { .. }, Outcome::Unknown) => return,
            (Op::Get { key }, Outcome::Value(value)) => (key, Action::Read(value.clone())),
            (Op::Write(Command::Put { key, value }), _) => (key, Action::Write(Some(value.clone()))),
            (Op::Write(Command::Delete { key }), _) => (key, Action::Write(None)),
            (Op::Write(Command::Cas { key, old, .. }), Outcome::Mismatch) => {
                (key, Action::NoSwap(old.clone()))
            }
            (Op::Write(Command::Cas { key, old, new }), _) => (key, Action::Swap(old.clone(), new.clone())),
            (op, outcome) => panic!("{op:?} ended with {outcome:?}"),
        };
        let complete = (*outcome != Outcome::Unknown).then_some(self.now);
        if complete.is_some() {
            self.succeeded_after_heal += u64::from(pending.invoke > self.faults_end);
        }
        let operation = Operation { action, invoke: pending.invoke, complete };
        self.history.entry(key.clone()).or_default().push(operation);
    }
}
