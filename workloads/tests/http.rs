//! The driver against a small server, both over the simulated network: with loss, crashes, silence and lies.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bloodhound_abi::SimTime;
use bloodhound_abi::time::{MILLIS, SECS};
use bloodhound_decisions::Decisions;
use bloodhound_net::{Config, Delivery, Fabric, LinkConfig, NodeId, SocketId, Stack};
use bloodhound_workloads::history::{Call, Outcome};
use bloodhound_workloads::http::config::RequestTemplate;
use bloodhound_workloads::http::request::Request;
use bloodhound_workloads::http::{
    Answer, Arrivals, Expect, HttpConfig, HttpDriver, Kind, Operation, Part, Pattern, Probe, Rules, Target,
};
use bloodhound_workloads::linearizability::{Budget, Verdict, check};
use bloodhound_workloads::model::Model;

const SERVER: u32 = 100;

/// How the server misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Correct,
    /// Reads answer with the value before the last one.
    Stale,
    /// Requests are read and never answered.
    Silent,
    /// The connection is closed in the middle of each response.
    Cut,
    /// Closes after each response without saying so.
    Rude,
}

/// A key-value server with one map.
#[derive(Clone, Debug)]
struct Server {
    mode: Mode,
    listener: SocketId,
    connections: BTreeMap<SocketId, Vec<u8>>,
    map: BTreeMap<String, String>,
    before: BTreeMap<String, String>,
    accepted: usize,
    served: usize,
}

impl Server {
    fn new(mode: Mode, stack: &mut Stack) -> Server {
        let listener = stack.tcp_socket(false);
        stack.bind(listener, address()).expect("bind");
        stack.listen(listener, 128).expect("listen");
        Server {
            mode,
            listener,
            connections: BTreeMap::new(),
            map: BTreeMap::new(),
            before: BTreeMap::new(),
            accepted: 0,
            served: 0,
        }
    }

    fn run(&mut self, stack: &mut Stack, now: SimTime) {
        while let Ok((socket, _)) = stack.accept(self.listener) {
            self.accepted += 1;
            self.connections.insert(socket, Vec::new());
        }
        for socket in self.connections.keys().copied().collect::<Vec<_>>() {
            let mut buffer = [0; 1024];
            let ended = loop {
                match stack.recv(socket, &mut buffer, false, now) {
                    Ok(0) => break true,
                    Ok(count) => self.connections.entry(socket).or_default().extend(&buffer[..count]),
                    Err(error) => break error != bloodhound_abi::Errno::EAGAIN,
                }
            };
            let done = ended || self.serve(socket, stack, now);
            if done {
                self.connections.remove(&socket);
                stack.close(socket, now).expect("close");
            }
        }
    }

    /// Serves the requests that are complete; true if the connection is to be closed.
    fn serve(&mut self, socket: SocketId, stack: &mut Stack, now: SimTime) -> bool {
        while let Some((method, path, body, close)) = self.request(socket) {
            if self.mode == Mode::Silent {
                continue;
            }
            let (status, text) = self.answer(&method, &path, &body);
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            self.served += 1;
            let bytes = if self.mode == Mode::Cut { &head[..20] } else { &head };
            stack.send(socket, bytes.as_bytes(), false, now).expect("room for a small response");
            if close || self.mode == Mode::Cut || self.mode == Mode::Rude {
                return true;
            }
        }
        false
    }

    fn request(&mut self, socket: SocketId) -> Option<(String, String, String, bool)> {
        let buffer = self.connections.get_mut(&socket)?;
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(head) = request.parse(buffer).expect("a request") else { return None };
        let field = |name: &str| {
            let field = request.headers.iter().find(|f| f.name.eq_ignore_ascii_case(name));
            field.map(|f| String::from_utf8_lossy(f.value).into_owned())
        };
        let length: usize = field("content-length").map_or(0, |l| l.parse().expect("a length"));
        let close = field("connection").as_deref() == Some("close");
        let (method, path) = (request.method?.to_owned(), request.path?.to_owned());
        if buffer.len() < head + length {
            return None;
        }
        let body = String::from_utf8_lossy(&buffer[head..head + length]).into_owned();
        buffer.drain(..head + length);
        Some((method, path, body, close))
    }

    fn answer(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let key = path.trim_start_matches('/').trim_end_matches("/cas").to_owned();
        let set = |server: &mut Server, value: Option<String>| {
            let old = server.map.remove(&key);
            if let Some(value) = value {
                server.map.insert(key.clone(), value);
            }
            match old {
                Some(old) => server.before.insert(key.clone(), old),
                None => server.before.remove(&key),
            }
        };
        match method {
            "PUT" => {
                set(self, Some(body.to_owned()));
                (200, String::new())
            }
            "GET" => {
                let map = if self.mode == Mode::Stale { &self.before } else { &self.map };
                map.get(&key).map_or((404, "nothing".to_owned()), |value| (200, value.clone()))
            }
            "DELETE" => {
                let found = self.map.contains_key(&key);
                set(self, None);
                (if found { 200 } else { 404 }, String::new())
            }
            _ => {
                let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
                if json["old"].as_str() == self.map.get(&key).map(String::as_str) {
                    set(self, json["new"].as_str().map(str::to_owned));
                    (200, String::new())
                } else {
                    (409, String::new())
                }
            }
        }
    }
}

fn address() -> SocketAddr {
    SocketAddr::new(ip(SERVER), 80)
}

fn ip(node: u32) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

/// Clients, a server and the network between.
#[derive(Clone, Debug)]
struct World {
    now: SimTime,
    driver: HttpDriver,
    server: Server,
    stacks: BTreeMap<u32, Stack>,
    fabric: Fabric,
    packets: BTreeMap<(SimTime, u64), Delivery>,
    sent: u64,
    decisions: Decisions,
}

impl World {
    fn new(config: HttpConfig, mode: Mode, link: LinkConfig, seed: u64) -> World {
        let mut fabric = Fabric::new(link);
        let mut stacks = BTreeMap::new();
        for node in (0..config.clients).chain([SERVER]) {
            stacks.insert(node, stack(node, u64::from(node)));
            fabric.add_node(NodeId(node), &[ip(node)]);
        }
        let server = Server::new(mode, stacks.get_mut(&SERVER).expect("the server"));
        let mut decisions = Decisions::seeded(seed);
        let mut driver = HttpDriver::new(config);
        driver.start(SimTime(SECS), &mut decisions);
        World {
            now: SimTime(SECS),
            driver,
            server,
            stacks,
            fabric,
            packets: BTreeMap::new(),
            sent: 0,
            decisions,
        }
    }

    /// One event: the time moves to it, everyone runs, packets leave. False when nothing is left to happen.
    fn step(&mut self) -> bool {
        let timers = self.stacks.values().filter_map(Stack::next_deadline);
        let wakeups = (0..self.driver.clients()).filter_map(|c| self.driver.next_wakeup(c));
        let packet = self.packets.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = timers.chain(wakeups).chain(packet).min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.packets.first_entry().filter(|e| e.key().0 <= self.now) {
            let delivery = entry.remove();
            if let Some(stack) = self.stacks.get_mut(&delivery.to.0) {
                stack.input(delivery.packet, self.now);
            }
        }
        for (node, stack) in &mut self.stacks {
            stack.on_time(self.now);
            if *node == SERVER {
                self.server.run(stack, self.now);
            } else {
                self.driver.poll(*node, self.now, stack, &mut self.decisions);
            }
            stack.take_events();
            for packet in stack.take_output() {
                let routed = self.fabric.route(packet, NodeId(*node), self.now, &mut self.decisions);
                for delivery in routed.deliveries() {
                    self.sent += 1;
                    self.packets.insert((delivery.at, self.sent), delivery);
                }
            }
        }
        true
    }

    fn run(&mut self) {
        while !self.driver.is_finished() {
            assert!(self.step(), "nothing happens, but the workload is not over");
        }
    }

    /// The server's process is replaced by one that knows the same map.
    fn crash(&mut self, seed: u64) {
        let mut stack = stack(SERVER, seed);
        let mut server = Server::new(self.server.mode, &mut stack);
        server.map = std::mem::take(&mut self.server.map);
        (server.accepted, server.served) = (self.server.accepted, self.server.served);
        self.server = server;
        self.stacks.insert(SERVER, stack);
    }

    fn verdict(&self) -> Verdict {
        check(&self.driver.history().modelled(), Model::Kv, Budget::default())
            .expect("operations of the model")
    }

    fn outcomes(&self, call: fn(&Call) -> bool) -> BTreeMap<&'static str, usize> {
        let mut tally = BTreeMap::new();
        for operation in self.driver.history().operations().iter().filter(|o| call(&o.call)) {
            let name = match operation.outcome {
                Outcome::Ok(_) => "ok",
                Outcome::Fail => "fail",
                Outcome::Mismatch => "mismatch",
                Outcome::Unknown => "unknown",
            };
            *tally.entry(name).or_insert(0) += 1;
        }
        tally
    }
}

fn stack(node: u32, seed: u64) -> Stack {
    let mut stack = Stack::new(Config::default(), seed);
    stack.add_address(ip(node), 24);
    stack
}

fn operation(kind: Kind, weight: u32) -> Operation {
    Operation {
        name: format!("{kind:?}"),
        kind,
        weight,
        key: Pattern(vec![Part::Literal("k".to_owned()), Part::Random { min: 1, max: 3 }]),
        value: Pattern(vec![Part::Literal("v".to_owned()), Part::Seq]),
        request: RequestTemplate::default(),
        rules: Rules::default(),
    }
}

fn config() -> HttpConfig {
    HttpConfig {
        targets: vec![Target { host: "kv".to_owned(), address: address(), prefix: String::new() }],
        arrivals: Arrivals::Closed,
        workers: 6,
        clients: 3,
        duration_ns: 3 * SECS,
        max_operations: Some(400),
        timeout_ns: 500 * MILLIS,
        keep_alive: true,
        operations: vec![
            operation(Kind::Put, 40),
            operation(Kind::Get, 40),
            operation(Kind::Delete, 10),
            operation(Kind::Cas, 20),
        ],
    }
}

fn lossy() -> LinkConfig {
    LinkConfig {
        jitter: 3 * MILLIS,
        loss: 50_000_000,
        duplicate: 20_000_000,
        reorder: 20_000_000,
        reorder_delay: 5 * MILLIS,
        ..LinkConfig::default()
    }
}

#[test]
fn a_correct_server_gives_a_linearizable_history() {
    for seed in 0..10 {
        let mut world = World::new(config(), Mode::Correct, LinkConfig::default(), seed);
        world.run();
        assert_eq!(world.driver.history().operations().len(), 400);
        assert!(matches!(world.verdict(), Verdict::Linearizable { .. }), "{}", world.verdict());
        let puts = world.outcomes(|c| matches!(c, Call::Write(_)));
        assert_eq!(puts.keys().collect::<Vec<_>>(), [&"ok"], "{puts:?}");
        let cas = world.outcomes(|c| matches!(c, Call::Cas { .. }));
        assert!(cas["ok"] > 5 && cas["mismatch"] > 1, "{cas:?}");
        // Kept connections: one for each worker.
        assert_eq!((world.server.accepted, world.server.served), (6, 400));
    }
}

#[test]
fn loss_and_crashes_leave_operations_open_but_the_history_right() {
    let mut unknown = 0;
    for seed in 0..20 {
        let mut world = World::new(config(), Mode::Correct, lossy(), seed);
        let mut steps = 0;
        while !world.driver.is_finished() {
            assert!(world.step());
            steps += 1;
            if steps % 300 == 0 {
                world.crash(steps);
            }
        }
        unknown += world.outcomes(|c| matches!(c, Call::Write(_))).get("unknown").copied().unwrap_or(0);
        assert!(matches!(world.verdict(), Verdict::Linearizable { .. }), "seed {seed}: {}", world.verdict());
    }
    assert!(unknown > 10, "{unknown}");
}

#[test]
fn a_server_with_stale_reads_is_found_out() {
    let mut world = World::new(config(), Mode::Stale, LinkConfig::default(), 1);
    world.run();
    let Verdict::Violation(violation) = world.verdict() else { panic!("{}", world.verdict()) };
    assert!(violation.evidence.len() <= 4, "{violation}");
}

#[test]
fn silence_and_cut_responses_are_unknown_for_writes_and_failures_for_reads() {
    for mode in [Mode::Silent, Mode::Cut] {
        let mut world = World::new(config(), mode, LinkConfig::default(), 1);
        world.run();
        let gets = world.outcomes(|c| *c == Call::Read);
        let puts = world.outcomes(|c| matches!(c, Call::Write(_)));
        assert_eq!(gets.keys().collect::<Vec<_>>(), [&"fail"], "{mode:?}");
        assert_eq!(puts.keys().collect::<Vec<_>>(), [&"unknown"], "{mode:?}");
        // After an unknown outcome a worker is another process.
        let mut open = Vec::new();
        for operation in world.driver.history().operations() {
            assert!(!open.contains(&operation.process), "{mode:?}: {operation:?}");
            if operation.outcome == Outcome::Unknown {
                open.push(operation.process);
            }
        }
        assert!(matches!(world.verdict(), Verdict::Linearizable { .. }));
    }
}

#[test]
fn no_server_means_failures_at_once() {
    let mut nowhere = config();
    nowhere.targets[0].address.set_port(81);
    let mut world = World::new(nowhere, Mode::Correct, LinkConfig::default(), 1);
    world.run();
    let all = world.outcomes(|_| true);
    assert_eq!(all.keys().collect::<Vec<_>>(), [&"fail"]);
    let error = world.driver.history().operations()[0].error.clone().unwrap_or_default();
    assert!(error.contains("ECONNREFUSED"), "{error}");
}

#[test]
fn connections_are_closed_when_not_kept_and_replaced_when_the_server_closes() {
    let mut world =
        World::new(HttpConfig { keep_alive: false, ..config() }, Mode::Correct, LinkConfig::default(), 1);
    world.run();
    assert_eq!((world.server.accepted, world.server.served), (400, 400));
    let mut world = World::new(config(), Mode::Rude, LinkConfig::default(), 1);
    world.run();
    // A request that crosses the server's end of the connection is lost; that is for the history to say.
    assert!(world.server.accepted >= world.server.served && world.server.served > 100);
    assert!(matches!(world.verdict(), Verdict::Linearizable { .. }), "{}", world.verdict());
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let arrivals = Arrivals::Open { per_kilosecond: 50_000 };
    let mut world = World::new(
        HttpConfig { arrivals, max_operations: None, duration_ns: 4 * SECS, ..config() },
        Mode::Correct,
        LinkConfig::default(),
        1,
    );
    world.run();
    let count = world.driver.history().operations().len();
    assert_eq!(count, 200, "50 operations a second for 4 seconds");
    // Each starts in its interval of 20 ms.
    let mut starts: Vec<u64> = world.driver.history().operations().iter().map(|o| o.invoke.0).collect();
    starts.sort_unstable();
    for (i, start) in starts.iter().enumerate() {
        let interval = 20 * MILLIS;
        assert!(
            (SECS + i as u64 * interval..=SECS + (i as u64 + 1) * interval).contains(start),
            "{i}: {start}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_clones_have_equal_futures() {
    let run = |mut world: World| {
        world.run();
        (world.driver.history().to_json_lines(), world.decisions.trail())
    };
    let first = run(World::new(config(), Mode::Correct, lossy(), 7));
    assert!(first == run(World::new(config(), Mode::Correct, lossy(), 7)));
    assert!(first != run(World::new(config(), Mode::Correct, lossy(), 8)));
    let mut world = World::new(config(), Mode::Correct, lossy(), 7);
    let mut steps = 0;
    while !world.driver.is_finished() {
        if steps % 100 == 0 {
            assert!(run(world.clone()) == first, "after {steps} steps");
        }
        world.step();
        steps += 1;
    }
}

/// What a worker asks for as its n-th operation does not depend on what the network does to the ones before.
#[test]
fn operations_do_not_depend_on_the_network() {
    let asked = |link: LinkConfig| {
        let mut world = World::new(config(), Mode::Correct, link, 7);
        world.decisions.listen(true);
        world.run();
        let made = world.decisions.take_made().into_iter();
        let of_workload =
            made.filter(|made| made.choice.site.concern() == bloodhound_decisions::Concern::Workload);
        of_workload.map(|made| (made.choice, made.value)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let (calm, lossy) = (asked(LinkConfig::default()), asked(lossy()));
    let both = calm.iter().filter(|(choice, _)| lossy.contains_key(choice));
    let equal = both.clone().filter(|(choice, value)| lossy[choice] == **value);
    assert!(both.clone().count() > 100, "{} choices", both.count());
    assert_eq!(equal.count(), both.count());
}

#[test]
fn templates_and_custom_operations_are_sent_as_written() {
    let mut put = operation(Kind::Put, 1);
    put.request.path = Some(Pattern(vec![Part::Literal("/".to_owned()), Part::Key]));
    put.request.body =
        Some(Pattern(vec![Part::Literal("<".to_owned()), Part::Value, Part::Literal(">".to_owned())]));
    let mut custom = operation(Kind::Custom, 1);
    custom.request.path = Some(Pattern::literal("/k1"));
    custom.name = "look".to_owned();
    let mut world = World::new(
        HttpConfig { operations: vec![put, custom], max_operations: Some(30), ..config() },
        Mode::Correct,
        LinkConfig::default(),
        1,
    );
    world.run();
    assert!(
        world.server.map.values().all(|v| v.starts_with("<v") && v.ends_with('>')),
        "{:?}",
        world.server.map
    );
    let other = |c: &Call| *c == Call::Other("look".to_owned());
    assert!(world.outcomes(other).values().sum::<usize>() > 5);
    assert!(check(world.driver.history(), Model::Kv, Budget::default()).is_err());
    assert!(matches!(world.verdict(), Verdict::Linearizable { .. }));
}

#[test]
fn probes_compare_the_response_with_what_is_expected() {
    let probe = |mode: Mode, expect: Expect| {
        let mut world = World::new(config(), mode, LinkConfig::default(), 1);
        world.server.map.insert("health".to_owned(), "all is well".to_owned());
        let stack = world.stacks.get_mut(&0).expect("a client");
        let target = config().targets[0].clone();
        let deadline = world.now.after(SECS);
        let mut probe = Probe::new(stack, &target, &Request::get("/health"), expect, deadline);
        loop {
            let stack = world.stacks.get_mut(&0).expect("a client");
            if let Some(result) = probe.poll(stack, world.now) {
                return result;
            }
            world.step();
        }
    };
    let expect = |status, text: &str| Expect {
        statuses: vec![(status, status)],
        body_contains: Some(text.to_owned()),
    };
    let wrong = |answer: &Answer, text: &str| matches!(answer, Answer::Wrong(why) if why.contains(text));
    assert_eq!(probe(Mode::Correct, expect(200, "well")), Answer::Right);
    assert!(wrong(&probe(Mode::Correct, expect(204, "well")), "200"));
    assert!(wrong(&probe(Mode::Correct, expect(200, "ill")), "all is well"));
    assert!(matches!(probe(Mode::Silent, expect(200, "")), Answer::Missing(why) if why.contains("in time")));
}
