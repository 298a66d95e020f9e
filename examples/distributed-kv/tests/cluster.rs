//! Three real processes on the loopback interface, killed and restarted.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for any machine; nothing below measures time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clusters of this process so far.
static CLUSTERS: AtomicU16 = AtomicU16::new(0);

struct Cluster {
    directory: PathBuf,
    peers: String,
    http: Vec<String>,
    raft: Vec<String>,
    processes: Vec<Option<Child>>,
}

impl Cluster {
    fn start(name: &str) -> Cluster {
        let directory = std::env::temp_dir().join(format!("distributed-kv-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        // An address of this process' own: a port that was free may be taken by any connection of another process on 127.0.0.1 until a
        // node listens there, and while it is down.
        let pid = std::process::id();
        let host = format!("127.{}.{}.{}", 1 + (pid >> 16) % 254, pid >> 8 & 255, pid & 255);
        let first = 7000 + 6 * CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let addresses: Vec<String> = (first..first + 6).map(|port| format!("{host}:{port}")).collect();
        let (http, raft) = (addresses[..3].to_vec(), addresses[3..].to_vec());
        let peers: Vec<String> = (0..3).map(|i| format!("kv{i}={}", raft[i])).collect();
        let mut cluster =
            Cluster { directory, peers: peers.join(","), http, raft, processes: vec![None, None, None] };
        (0..3).for_each(|i| cluster.run(i));
        cluster
    }

    fn run(&mut self, i: usize) {
        let child = Command::new(env!("CARGO_BIN_EXE_distributed-kv"))
            .env("NODE_ID", format!("kv{i}"))
            .env("PEERS", &self.peers)
            .env("LISTEN", &self.http[i])
            .env("PEER_LISTEN", &self.raft[i])
            .env("DATA_DIR", self.directory.join(i.to_string()))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.processes[i] = Some(child);
    }

    /// SIGKILL.
    fn kill(&mut self, i: usize) {
        let mut child = self.processes[i].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn request(&self, i: usize, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.http[i])?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        let (_, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        Ok((status.ok_or(io::ErrorKind::UnexpectedEof)?, body.to_owned()))
    }

    /// Repeats a request that may be repeated until the answer is one about the key.
    fn insist(&self, i: usize, method: &str, path: &str, body: &str) -> (u16, String) {
        let start = Instant::now();
        loop {
            match self.request(i, method, path, body) {
                Ok((status, body)) if status < 500 => return (status, body),
                other => assert!(start.elapsed() < PATIENCE, "{method} {path} on node {i}: {other:?}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn leader(&self) -> usize {
        let start = Instant::now();
        loop {
            for i in (0..3).filter(|i| self.processes[*i].is_some()) {
                if let Ok((200, body)) = self.request(i, "GET", "/status", "")
                    && body.contains(r#""role":"leader""#)
                    && self.request(i, "GET", "/health", "").is_ok_and(|(status, _)| status == 200)
                {
                    return i;
                }
            }
            assert!(start.elapsed() < PATIENCE, "no leader");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for i in 0..3 {
            if self.processes[i].is_some() {
                self.kill(i);
            }
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn ok(body: &str) -> (u16, String) {
    (200, body.to_owned())
}

fn status(code: u16) -> (u16, String) {
    (code, String::new())
}

#[test]
fn every_node_serves_every_operation() {
    let cluster = Cluster::start("serve");
    for i in 0..3 {
        let path = format!("/key-{i}");
        let cas = format!("{path}/cas");
        assert_eq!(cluster.insist(i, "GET", &path, ""), status(404));
        assert_eq!(cluster.insist(i, "PUT", &path, "one"), ok(""));
        for reader in 0..3 {
            assert_eq!(cluster.insist(reader, "GET", &path, ""), ok("one"));
        }
        assert_eq!(cluster.insist(i, "POST", &cas, r#"{"old": "zero", "new": "two"}"#), status(409));
        assert_eq!(cluster.insist(i, "GET", &path, ""), ok("one"));
        assert_eq!(cluster.insist(i, "POST", &cas, r#"{"old": "one", "new": "two"}"#), ok(""));
        assert_eq!(cluster.insist((i + 1) % 3, "GET", &path, ""), ok("two"));
        assert_eq!(cluster.insist(i, "DELETE", &path, ""), ok(""));
        assert_eq!(cluster.insist((i + 2) % 3, "GET", &path, ""), status(404));
        assert_eq!(cluster.insist(i, "GET", "/a/b", "").0, 404);
        assert_eq!(cluster.insist(i, "PATCH", &path, "").0, 405);
    }
}

#[test]
fn acknowledged_writes_survive_crashes() {
    let mut cluster = Cluster::start("crash");
    for round in 0..3 {
        let leader = cluster.leader();
        assert_eq!(cluster.insist(leader, "PUT", &format!("/before-{round}"), "x"), ok(""));
        cluster.kill(leader);
        let other = (leader + 1) % 3;
        assert_eq!(cluster.insist(other, "GET", &format!("/before-{round}"), ""), ok("x"));
        assert_eq!(cluster.insist(other, "PUT", &format!("/during-{round}"), "y"), ok(""));
        cluster.run(leader);
        assert_eq!(cluster.insist(leader, "GET", &format!("/during-{round}"), ""), ok("y"));
    }
    (0..3).for_each(|i| cluster.kill(i));
    (0..3).for_each(|i| cluster.run(i));
    for round in 0..3 {
        assert_eq!(cluster.insist(round, "GET", &format!("/before-{round}"), ""), ok("x"));
        assert_eq!(cluster.insist(round, "GET", &format!("/during-{round}"), ""), ok("y"));
    }
}

#[test]
fn a_minority_serves_nothing() {
    let mut cluster = Cluster::start("minority");
    let leader = cluster.leader();
    assert_eq!(cluster.insist(leader, "PUT", "/k", "v"), ok(""));
    for i in (0..3).filter(|i| *i != leader) {
        cluster.kill(i);
    }
    // Whatever it believes to be, one node alone must neither answer a read nor accept a write.
    for (method, body) in [("GET", ""), ("PUT", "w"), ("GET", ""), ("DELETE", "")] {
        let (status, _) = cluster.request(leader, method, "/k", body).unwrap();
        assert!(status == 503 || status == 504, "{method}: {status}");
    }
    let start = Instant::now();
    while cluster.request(leader, "GET", "/health", "").unwrap().0 != 503 {
        assert!(start.elapsed() < PATIENCE, "a lonely node still calls itself well");
        thread::sleep(Duration::from_millis(20));
    }
}
