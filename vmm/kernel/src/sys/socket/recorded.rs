//! Makes the calls that tests/linux/record_unix.py made on a real Linux and compares what they give.

use crate::ctx::Outside;
use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use zerocopy::IntoBytes;

use crate::testing::Bench;

const SLOTS: usize = 8;
const ROOM: usize = 300_000;

struct Player {
    bench: Bench,
    slots: [u64; SLOTS],
    counter: u64,
    /// Reused memory: data, address, control, headers.
    data: u64,
    small: u64,
    null: u64,
    epoll: u64,
    /// Descriptors that the epoll instance watches, by slot; 0 for none.
    watched: [u64; SLOTS],
    domain: u64,
}

/// The port that the recorder calls P0; it uses another one for each seed.
const BASE_PORT: u16 = 10_000;

fn fnv(data: &[u8]) -> String {
    let hash = data.iter().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

fn show(address: &[u8]) -> String {
    match address {
        [2, 0, high, low, a, b, c, d, ..] => {
            let port = u16::from_be_bytes([*high, *low]);
            let port = match port.wrapping_sub(BASE_PORT) {
                n @ 0..4 => format!("P{n}"),
                _ if port == 0 => "0".into(),
                _ => "eph".into(),
            };
            format!("{a}.{b}.{c}.{d}:{port}")
        }
        [] | [_] | [_, _] => "none".into(),
        [_, _, 0, name @ ..] if name.len() == 5 && name.iter().all(|b| b.is_ascii_hexdigit()) => {
            "auto".into()
        }
        [_, _, 0, name @ ..] => format!("@{}", String::from_utf8_lossy(name)),
        [_, _, path @ ..] => String::from_utf8_lossy(path).trim_end_matches('\0').into(),
    }
}

fn address(text: &str) -> Vec<u8> {
    if let Some((ip, port)) = text.split_once(':') {
        let ip: std::net::Ipv4Addr = ip.parse().unwrap();
        let port = port.strip_prefix('P').map_or(0, |n| BASE_PORT + n.parse::<u16>().unwrap());
        return crate::socket::inet_bytes((ip, port).into());
    }
    let mut out = vec![1, 0];
    match text.strip_prefix('@') {
        Some(name) => {
            out.push(0);
            out.extend_from_slice(name.as_bytes());
        }
        None => {
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
    }
    out
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Player {
    fn new(domain: u64) -> Player {
        let mut bench = Bench::new();
        let (data, small) = (bench.room(ROOM), bench.room(4096));
        let null = bench.open("/dev/null", c::O_RDWR).unwrap();
        bench
            .with_path(nr::chdir, "/tmp", &[])
            .or_else(|_| bench.with_path(nr::mkdir, "/tmp", &[0o777]))
            .unwrap();
        bench.with_path(nr::chdir, "/tmp", &[]).unwrap();
        let epoll = bench.call(nr::epoll_create1, &[0]).unwrap();
        Player { bench, slots: [0; SLOTS], counter: 0, data, small, null, epoll, watched: [0; SLOTS], domain }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let b = &mut self.bench;
        crate::ctx::Ctx::new(&mut b.node, b.tid, Outside::new(&mut b.base, &mut b.decisions))
            .write_bytes(at, bytes)
            .unwrap();
    }

    fn get(&mut self, at: u64, len: usize) -> Vec<u8> {
        self.bench.get_as(self.bench.tid, at, len)
    }

    fn fill(&mut self, len: usize) {
        self.counter += 1;
        let bytes: Vec<u8> = (0..len as u64).map(|i| (self.counter * 7 + i) as u8).collect();
        self.put(self.data, &bytes);
    }

    fn with_address(&mut self, call: u64, fd: u64, text: &str) -> Result<u64, Errno> {
        let bytes = address(text);
        self.put(self.small, &bytes);
        self.bench.call(call, &[fd, self.small, bytes.len() as u64])
    }

    fn number(&mut self, call: u64, args: &[u64]) -> Result<String, Errno> {
        Ok(self.bench.call(call, args)?.to_string())
    }

    fn ok(&mut self, call: u64, args: &[u64]) -> Result<String, Errno> {
        self.bench.call(call, args).map(|_| "ok".into())
    }

    /// A call that stores an address.
    fn named(&mut self, call: u64, fd: u64) -> Result<(u64, String), Errno> {
        self.put(self.small, &128u32.to_le_bytes());
        let value = self.bench.call(call, &[fd, self.small + 16, self.small, c::SOCK_NONBLOCK])?;
        let bytes = self.get(self.small, 256);
        Ok((value, show(&bytes[16..16 + word(&bytes, 0) as usize])))
    }

    fn msghdr(&mut self, data: usize, control: usize) -> u64 {
        let (small, data_at) = (self.small, self.data);
        let mut hdr = Vec::new();
        for part in [small + 512, 128, small + 256, 1, small + 1024, control as u64, 0] {
            hdr.extend_from_slice(&part.to_le_bytes());
        }
        self.put(small, &hdr);
        self.put(small + 256, &[data_at.to_le_bytes(), (data as u64).to_le_bytes()].concat());
        small
    }

    fn sendfds(&mut self, fd: u64, len: usize, count: usize) -> Result<String, Errno> {
        self.fill(len);
        let space = 16 + (4 * count).next_multiple_of(8);
        let hdr = self.msghdr(len, space);
        self.put(hdr, &[0; 16]);
        let mut control = (16 + 4 * count as u64).to_le_bytes().to_vec();
        control.extend([1, 0, 0, 0, 1, 0, 0, 0]);
        for _ in 0..count {
            control.extend_from_slice(&(self.null as u32).to_le_bytes());
        }
        control.resize(space, 0);
        self.put(self.small + 1024, &control);
        self.number(nr::sendmsg, &[fd, hdr, c::MSG_NOSIGNAL])
    }

    fn recv(&mut self, fd: u64, len: usize, control: usize, flags: &str) -> Result<String, Errno> {
        let hdr = self.msghdr(len, control);
        let flags = match flags {
            "peek" => c::MSG_PEEK,
            "trunc" => c::MSG_TRUNC,
            _ => 0,
        };
        let n = self.bench.call(nr::recvmsg, &[fd, hdr, flags])? as usize;
        let stored = n.min(len);
        let head = self.get(hdr, 56);
        let name = self.get(self.small + 512, word(&head, 8) as usize);
        let (used, out) = (word(&head, 40) as usize, u64::from(word(&head, 48)));
        let anc = self.get(self.small + 1024, used);
        let data = self.get(self.data, stored);
        let mut shown = String::new();
        for (bit, letter) in [(c::MSG_TRUNC, 'T'), (c::MSG_CTRUNC, 'C')] {
            if out & bit != 0 {
                shown.push(letter);
            }
        }
        let shown = if shown.is_empty() { "-".into() } else { shown };
        // The recorder's recvmsg gives the bytes that were stored, whatever MSG_TRUNC makes of the result.
        let result = if flags == c::MSG_TRUNC { n } else { stored };
        Ok(format!("{} {} {} {} {shown}", result.min(len), fnv(&data), show(&name), self.control(&anc)))
    }

    fn control(&mut self, mut anc: &[u8]) -> String {
        let mut out = Vec::new();
        while anc.len() >= 16 {
            let len = (word(anc, 0) as usize).min(anc.len());
            let body = &anc[16..len];
            if word(anc, 12) == 1 {
                for fd in body.chunks_exact(4) {
                    self.bench.call(nr::close, &[u64::from(word(fd, 0))]).unwrap();
                }
                out.push(format!("fds:{}", body.len() / 4));
            } else if body.len() < 12 {
                out.push(format!("cred:{}", body.len()));
            } else {
                out.push(format!("cred:{}", self.cred(body)));
            }
            anc = anc.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        }
        if out.is_empty() { "-".into() } else { out.join(",") }
    }

    fn cred(&self, body: &[u8]) -> String {
        let who = match word(body, 0) {
            0 => "nobody",
            pid if pid == self.bench.tid.0 => "me",
            _ => "other",
        };
        format!("{who}:{}:{}", word(body, 4), word(body, 8))
    }

    fn option(&mut self, fd: u64, name: u64, len: u64) -> Result<Vec<u8>, Errno> {
        self.put(self.small, &len.to_le_bytes());
        self.bench.call(nr::getsockopt, &[fd, c::SOL_SOCKET, name, self.small + 16, self.small])?;
        Ok(self.get(self.small + 16, len as usize))
    }

    fn set(&mut self, fd: u64, name: u64, value: u32) -> Result<String, Errno> {
        self.put(self.small, &value.to_le_bytes());
        self.ok(nr::setsockopt, &[fd, c::SOL_SOCKET, name, self.small, 4])
    }

    /// Lets packets arrive. On Linux they do before the call ends.
    fn pass(&mut self) {
        let node = &mut self.bench.node;
        while node.net.next_deadline().is_some_and(|at| at <= node.clock) {
            node.on_time();
        }
    }

    /// Watches new sockets; the edges since the last call as the recorder writes them.
    fn edges(&mut self) -> String {
        for slot in 0..SLOTS {
            if self.slots[slot] != self.watched[slot] {
                self.watched[slot] = self.slots[slot];
                if self.slots[slot] != 0 {
                    let event = [0x201f | c::EPOLLET as u32, slot as u32, 0];
                    self.put(self.small, event.as_bytes());
                    let args = [self.epoll, c::EPOLL_CTL_ADD, self.slots[slot], self.small];
                    self.bench.call(nr::epoll_ctl, &args).unwrap();
                }
            }
        }
        let n = self.bench.call(nr::epoll_wait, &[self.epoll, self.small, 32, 0]).unwrap() as usize;
        let events = self.get(self.small, 12 * n);
        let mut seen: Vec<(u32, u32)> = events.chunks_exact(12).map(|e| (word(e, 4), word(e, 0))).collect();
        seen.sort_unstable();
        let seen: Vec<String> = seen.iter().map(|(slot, bits)| format!("{slot}:{bits:x}")).collect();
        if seen.is_empty() { String::new() } else { format!(" | {}", seen.join(",")) }
    }

    fn kind(text: &str) -> u64 {
        c::SOCK_NONBLOCK
            | match text {
                "st" => c::SOCK_STREAM,
                "dg" => c::SOCK_DGRAM,
                _ => c::SOCK_SEQPACKET,
            }
    }

    fn run(&mut self, op: &str, args: &[&str]) -> Result<String, Errno> {
        let num = |i: usize| args[i].parse::<u64>().unwrap();
        if op == "unlink" {
            return self.bench.with_path(nr::unlink, args[0], &[]).map(|_| "ok".into());
        }
        let slot = num(0) as usize;
        let fd = self.slots[slot];
        match op {
            "socket" => {
                self.slots[slot] = self.bench.call(nr::socket, &[self.domain, Self::kind(args[1]), 0])?;
                Ok("ok".into())
            }
            "pair" => {
                self.bench.call(nr::socketpair, &[c::AF_UNIX, Self::kind(args[2]), 0, self.small])?;
                let fds = self.get(self.small, 8);
                (self.slots[slot], self.slots[num(1) as usize]) =
                    (word(&fds, 0).into(), word(&fds, 4).into());
                Ok("ok".into())
            }
            "bind" => self.with_address(nr::bind, fd, args[1]).map(|_| "ok".into()),
            "connect" => self.with_address(nr::connect, fd, args[1]).map(|_| "ok".into()),
            "listen" => self.ok(nr::listen, &[fd, num(1)]),
            "accept" => {
                let (new, name) = self.named(nr::accept4, fd)?;
                self.slots[num(1) as usize] = new;
                Ok(name)
            }
            "send" => {
                self.fill(num(1) as usize);
                self.number(nr::sendto, &[fd, self.data, num(1), c::MSG_NOSIGNAL, 0, 0])
            }
            "sendto" => {
                self.fill(num(2) as usize);
                let bytes = address(args[1]);
                self.put(self.small, &bytes);
                let len = bytes.len() as u64;
                self.number(nr::sendto, &[fd, self.data, num(2), c::MSG_NOSIGNAL, self.small, len])
            }
            "sendfds" => self.sendfds(fd, num(1) as usize, num(2) as usize),
            "recv" if args.len() == 3 => {
                let got = self.recv(fd, num(1) as usize, 0, args[2])?;
                let w: Vec<&str> = got.split(' ').collect();
                let seen = if args[2] == "trunc" { "-" } else { w[1] };
                Ok(format!("{} {seen} {} {}", w[0], w[2], w[4]))
            }
            "reuse" => self.set(fd, c::SO_REUSEADDR, 1),
            "linger0" => {
                self.put(self.small, [1u32, 0].as_bytes());
                self.ok(nr::setsockopt, &[fd, c::SOL_SOCKET, c::SO_LINGER, self.small, 8])
            }
            "recv" => self.recv(fd, num(1) as usize, num(2) as usize, args[3]),
            "shutdown" => self.ok(nr::shutdown, &[fd, num(1)]),
            "close" => {
                (self.slots[slot], self.watched[slot]) = (0, 0);
                self.ok(nr::close, &[fd])
            }
            "poll" => {
                let mut entry = (fd as u32).to_le_bytes().to_vec();
                entry.extend_from_slice(&0x23dfu16.to_le_bytes());
                entry.extend([0, 0]);
                self.put(self.small, &entry);
                self.bench.call(nr::poll, &[self.small, 1, 0])?;
                let out = self.get(self.small, 8);
                Ok(format!("{:x}", u16::from_le_bytes([out[6], out[7]])))
            }
            "name" => Ok(self.named(nr::getsockname, fd)?.1),
            "peer" => Ok(self.named(nr::getpeername, fd)?.1),
            "inq" | "outq" => {
                let cmd = if op == "inq" { c::FIONREAD } else { c::TIOCOUTQ };
                self.bench.call(nr::ioctl, &[fd, cmd, self.small])?;
                let out = self.get(self.small, 4);
                Ok(word(&out, 0).to_string())
            }
            "error" => Ok(word(&self.option(fd, c::SO_ERROR, 4)?, 0).to_string()),
            "sndbuf" => self.set(fd, c::SO_SNDBUF, num(1) as u32),
            "passcred" => self.set(fd, c::SO_PASSCRED, num(1) as u32),
            "peercred" => {
                let cred = self.option(fd, c::SO_PEERCRED, 12)?;
                Ok(self.cred(&cred))
            }
            _ => panic!("what is {op}"),
        }
    }
}

fn replay(text: &str, domain: u64) {
    let mut player = Player::new(domain);
    let mut seed = "";
    for (number, line) in text.lines().enumerate() {
        if let Some(next) = line.strip_prefix("start ") {
            (player, seed) = (Player::new(domain), next);
            continue;
        }
        let (call, want) = line.split_once(" = ").unwrap();
        let mut words = call.split(' ');
        let op = words.next().unwrap();
        let args: Vec<&str> = words.collect();
        let result = player.run(op, &args).unwrap_or_else(|e| e.name().into());
        player.pass();
        let got = result + &player.edges();
        assert_eq!(got, want, "line {}, seed {seed}: {call}", number + 1);
    }
    // Everything was closed: nothing may be left but the process's own files.
    assert_eq!(player.bench.node.unix.iter().count(), 0, "sockets were leaked");
}

/// The trace in the file that the variable names, to try more seeds than are kept in the repository.
fn trace(variable: &str, kept: &str) -> String {
    std::env::var_os(variable).map_or(kept.into(), |path| std::fs::read_to_string(path).unwrap())
}

#[test]
fn unix_sockets_answer_as_linux_did() {
    replay(&trace("BLOODHOUND_UNIX_TRACE", include_str!("../../../tests/linux/unix.txt")), c::AF_UNIX);
}

#[test]
fn inet_sockets_answer_as_linux_did() {
    replay(&trace("BLOODHOUND_INET_TRACE", include_str!("../../../tests/linux/inet.txt")), c::AF_INET);
}
