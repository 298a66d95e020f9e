//! Plays the scripts of `tests/linux/`, whose results `record.py` wrote down on a real Linux, on the stack. Every
//! error number, readiness flag, address and state has to be the same.

use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

struct Script {
    stack: Stack,
    now: SimTime,
    sockets: BTreeMap<String, SocketId>,
    ports: BTreeMap<String, u16>,
    /// Sockets in an edge-triggered epoll, and whether a wake came since the last look.
    watched: BTreeMap<SocketId, bool>,
}

type Outcome = Result<String, Errno>;

fn done(result: Result<(), Errno>) -> Outcome {
    result.map(|()| "ok".into())
}

impl Script {
    fn new() -> Script {
        let mut stack = Stack::new(Config { default_route: true, ..Config::default() }, 7);
        stack.add_address(IpAddr::from([10, 0, 0, 1]), 24);
        Script {
            stack,
            now: SimTime(1_000_000_000),
            sockets: BTreeMap::new(),
            ports: BTreeMap::new(),
            watched: BTreeMap::new(),
        }
    }

    fn id(&self, name: &str) -> SocketId {
        self.sockets[name]
    }

    fn add(&mut self, name: &str, id: SocketId) {
        self.ports.remove(name);
        if let Some(old) = self.sockets.insert(name.into(), id) {
            // Python closes what a name no longer holds; a script may have closed it before.
            let _ = self.stack.close(old, self.now);
        }
    }

    fn learn(&mut self, name: &str) {
        let port = self.stack.local_addr(self.id(name)).map_or(0, |addr| addr.port());
        if port != 0 {
            self.ports.insert(name.into(), port);
        }
    }

    fn address(&self, text: &str) -> SocketAddr {
        let (ip, port) = text.rsplit_once(':').expect("ip:port");
        let port = match port.strip_prefix('@') {
            Some(name) => self.ports[name],
            None => port.parse().expect("a port"),
        };
        SocketAddr::new(ip.trim_matches(['[', ']']).parse().expect("an address"), port)
    }

    /// The address with its port as one of the names that it may have been recorded under.
    fn shows(&self, addr: SocketAddr, recorded: &str) -> String {
        let ip = if addr.is_ipv6() { format!("[{}]", addr.ip()) } else { addr.ip().to_string() };
        let recorded_name = recorded.rsplit_once(":@").map(|(_, name)| name);
        let known = self.ports.values().any(|port| *port == addr.port());
        let port = match recorded_name {
            _ if addr.port() == 0 => "0".into(),
            Some(name) if self.ports.get(name) == Some(&addr.port()) => format!("@{name}"),
            _ if known => "@other".into(),
            _ => "*".into(),
        };
        format!("{ip}:{port}")
    }

    fn run(&mut self, line: &str, recorded: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = self.call(words[0], words[1], &words[2..], recorded);
        self.now = self.now.after(10_000);
        self.stack.on_time(self.now);
        for (id, key) in self.stack.take_events() {
            if let Some(woken) = self.watched.get_mut(&id) {
                *woken |= !key.is_empty();
            }
        }
        result.unwrap_or_else(|error| format!("{error:?}"))
    }

    fn call(&mut self, op: &str, name: &str, args: &[&str], recorded: &str) -> Outcome {
        let now = self.now;
        match op {
            "tcp4" | "tcp6" | "udp4" | "udp6" => {
                let v6 = op.ends_with('6');
                let tcp = op.starts_with("tcp");
                let id = if tcp { self.stack.tcp_socket(v6) } else { self.stack.udp_socket(v6) };
                self.add(name, id);
                Ok("ok".into())
            }
            "wait" => {
                let until = now.after(name.parse::<u64>().expect("ms") * 1_000_000);
                while let Some(at) = self.stack.next_deadline().filter(|at| *at <= until) {
                    self.now = at;
                    self.stack.on_time(at);
                }
                self.now = until;
                Ok("ok".into())
            }
            "bind" => {
                let result = self.stack.bind(self.id(name), self.address(args[0]));
                self.learn(name);
                done(result)
            }
            "listen" => {
                let result = self.stack.listen(self.id(name), args[0].parse().expect("backlog"));
                self.learn(name);
                done(result)
            }
            "connect" => {
                let result = self.stack.connect(self.id(name), self.address(args[0]), now);
                self.learn(name);
                done(result)
            }
            "disconnect" => done(self.stack.disconnect(self.id(name), now)),
            "accept" => {
                let (child, peer) = self.stack.accept(self.id(name))?;
                self.add(args[0], child);
                Ok(self.shows(peer, recorded))
            }
            "close" => done(self.stack.close(self.id(name), now)),
            "watch" => {
                // Adding a socket looks at it once, as a wake would.
                self.watched.insert(self.id(name), true);
                Ok("ok".into())
            }
            "edge" => {
                let id = self.id(name);
                let woken = self.watched.insert(id, false).expect("watched");
                Ok(if woken { flags(self.stack.readiness(id)) } else { "none".into() })
            }
            "set" | "get" => self.option(op, name, args),
            _ => self.talk(op, name, args, recorded),
        }
    }

    fn talk(&mut self, op: &str, name: &str, args: &[&str], recorded: &str) -> Outcome {
        let (id, now) = (self.id(name), self.now);
        let number = || args[0].parse::<usize>().expect("a number");
        match op {
            "send" => Ok(self.stack.send(id, &vec![b'x'; number()], false, now)?.to_string()),
            "sendto" => {
                let to = self.address(args[1]);
                let count = self.stack.send_to(id, &vec![b'x'; number()], Some(to), now)?;
                self.learn(name);
                Ok(count.to_string())
            }
            "recv" | "peek" => {
                Ok(self.stack.recv(id, &mut vec![0; number()], op == "peek", now)?.to_string())
            }
            "recvfrom" => {
                let datagram = self.stack.recv_from(id, false)?;
                Ok(format!("{} {}", datagram.data.len(), self.shows(datagram.src, recorded)))
            }
            "shutdown" => {
                let how = match args[0] {
                    "rd" => Shutdown::Read,
                    "wr" => Shutdown::Write,
                    _ => Shutdown::Both,
                };
                done(self.stack.shutdown(id, how, now))
            }
            "poll" => Ok(flags(self.stack.readiness(id))),
            "error" => Ok(self.stack.take_error(id)?.map_or("none".into(), |error| format!("{error:?}"))),
            "state" => Ok(state(self.stack.state(id).expect("a socket"))),
            "sockname" => Ok(self.shows(self.stack.local_addr(id)?, recorded)),
            "peername" => Ok(self.shows(self.stack.peer_addr(id)?, recorded)),
            _ => panic!("unknown call {op}"),
        }
    }

    fn option(&mut self, op: &str, name: &str, args: &[&str]) -> Outcome {
        let (id, now) = (self.id(name), self.now);
        if op == "get" {
            let o = self.stack.options(id)?;
            let value = match args[0] {
                "nodelay" => u32::from(o.nodelay),
                "sndbuf" => o.sndbuf,
                "rcvbuf" => o.rcvbuf,
                "keepidle" => o.keepidle,
                "keepintvl" => o.keepintvl,
                "keepcnt" => o.keepcnt,
                "usertimeout" => o.user_timeout,
                "v6only" => u32::from(o.v6only),
                other => panic!("unknown option {other}"),
            };
            return Ok(value.to_string());
        }
        let value: u32 = args[1].parse().unwrap_or(0);
        let option = match args[0] {
            "linger" => SockOpt::Linger((args[1] != "off").then_some(value)),
            "reuseaddr" => SockOpt::ReuseAddr(value != 0),
            "reuseport" => SockOpt::ReusePort(value != 0),
            "nodelay" => SockOpt::NoDelay(value != 0),
            "v6only" => SockOpt::V6Only(value != 0),
            "sndbuf" => SockOpt::SndBuf(value),
            "rcvbuf" => SockOpt::RcvBuf(value),
            "rcvlowat" => SockOpt::RcvLowat(value),
            "keepidle" => SockOpt::KeepIdle(value),
            "keepcnt" => SockOpt::KeepCnt(value),
            "usertimeout" => SockOpt::UserTimeout(value),
            other => panic!("unknown option {other}"),
        };
        done(self.stack.set_option(id, option, now))
    }
}

fn flags(ready: ReadyFlags) -> String {
    let names = [
        ("IN", ReadyFlags::READ),
        ("OUT", ReadyFlags::WRITE),
        ("ERR", ReadyFlags::ERR),
        ("HUP", ReadyFlags::HUP),
        ("RDHUP", ReadyFlags::RDHUP),
    ];
    let set: Vec<&str> = names.iter().filter(|(_, flag)| ready.contains(*flag)).map(|(n, _)| *n).collect();
    if set.is_empty() { "none".into() } else { set.join("|") }
}

fn state(state: TcpState) -> String {
    let name = match state {
        TcpState::Established => "ESTABLISHED",
        TcpState::SynSent => "SYN_SENT",
        TcpState::SynRecv => "SYN_RECV",
        TcpState::FinWait1 => "FIN_WAIT1",
        TcpState::FinWait2 => "FIN_WAIT2",
        TcpState::TimeWait => "TIME_WAIT",
        TcpState::Close => "CLOSE",
        TcpState::CloseWait => "CLOSE_WAIT",
        TcpState::LastAck => "LAST_ACK",
        TcpState::Listen => "LISTEN",
        TcpState::Closing => "CLOSING",
    };
    name.into()
}

fn play(text: &str) {
    let mut script = Script::new();
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() {
            script = Script::new();
        }
        let Some((call, recorded)) = line.split_once(" -> ") else {
            assert!(line.is_empty() || line.starts_with('#'), "no result in line {}: {line}", number + 1);
            continue;
        };
        let got = script.run(call, recorded);
        if got != recorded {
            wrong.push(format!("line {}: {call}: Linux says {recorded}, we say {got}", number + 1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tcp_sockets_answer_as_linux_does() {
    play(include_str!("linux/tcp.txt"));
}

#[test]
fn names_are_given_as_linux_does() {
    play(include_str!("linux/names.txt"));
}

#[test]
fn edge_triggered_epoll_sees_the_edges_of_linux() {
    play(include_str!("linux/edges.txt"));
}

#[test]
fn udp_sockets_answer_as_linux_does() {
    play(include_str!("linux/udp.txt"));
}
