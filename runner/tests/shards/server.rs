//! A server that speaks S3 (moto), and a proxy before it that fails when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::{Started, quiet};
use crate::common::{leave_out, repository};

/// The server.
pub struct Server {
    pub port: u16,
    _program: Started,
}

/// Where .ci/run installs it, or where PATH has it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = repository().join("target/moto/bin");
    std::iter::once(own)
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join("moto_server"))
        .find(|p| p.is_file())
}

impl Server {
    /// Starts one with the bucket `runs`; `None` where this machine has none, which is said.
    pub fn start(what: &str) -> Option<Server> {
        let Some(program) = program() else {
            leave_out(
                what,
                "moto_server is not installed: python3 -m venv target/moto && target/moto/bin/pip install 'moto[server]'",
            );
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        let program = quiet(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .spawn()
            .expect("moto_server starts");
        let server = Server { port, _program: Started(program) };
        let begun = Instant::now();
        while !server.asked("PUT /runs HTTP/1.1").is_some_and(|answer| answer.contains(" 200 ")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "moto_server does not answer");
            // Nothing tells when it listens, but to ask.
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    fn asked(&self, request: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(
            stream,
            "{request}\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.port
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The variables with which a command finds it at a port.
    pub fn environment(&self, port: u16) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", "someone".into()),
            ("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ALLOW_HTTP", "true".into()),
        ]
    }
}

/// What the proxy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes everything on.
    Passes,
    /// It answers each request with 500.
    Refuses,
    /// It closes connections without an answer.
    Closes,
    /// It answers each request with 403.
    Denies,
}

/// A proxy on a port of its own.
pub struct Proxy {
    pub port: u16,
}

/// What may be in the request with which it begins to fail: the seeds of a shard, before which there were its findings.
pub const RESULTS: &str = "results.jsonl";
const MODES: [Mode; 4] = [Mode::Passes, Mode::Refuses, Mode::Closes, Mode::Denies];

impl Proxy {
    /// Starts one that passes everything to a port, until it fails for good: from a request on that has this text.
    pub fn start(to: u16, fails: Mode, trigger: &'static str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let all = Arc::new(AtomicU8::new(0));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mode = all.clone();
                std::thread::spawn(move || serve(client, to, &mode, (fails, trigger)));
            }
        });
        Proxy { port }
    }
}

fn serve(mut client: TcpStream, to: u16, mode: &AtomicU8, fails: (Mode, &str)) {
    // That one of the two has gone ends the connection.
    let _ignored = match MODES[usize::from(mode.load(Ordering::Relaxed))] {
        Mode::Passes => pass(&mut client, to, mode, fails),
        Mode::Closes => Ok(()),
        Mode::Refuses => {
            answer(&mut client, "500 Internal Server Error", "<Error><Code>InternalError</Code></Error>")
        }
        Mode::Denies => answer(&mut client, "403 Forbidden", "<Error><Code>AccessDenied</Code></Error>"),
    };
    let _ignored = client.shutdown(Shutdown::Both);
}

/// Both directions, until one side or the mode ends it.
fn pass(
    client: &mut TcpStream,
    to: u16,
    mode: &AtomicU8,
    (fails, trigger): (Mode, &str),
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", to))?;
    for stream in [&*client, &server] {
        stream.set_read_timeout(Some(Duration::from_millis(2)))?;
    }
    let mut buffer = vec![0; 64 << 10];
    while mode.load(Ordering::Relaxed) == 0 {
        let passes = |bytes: &[u8]| !bytes.windows(trigger.len()).any(|window| window == trigger.as_bytes());
        if !some(client, &mut server, &mut buffer, &passes)? {
            mode.store(fails as u8, Ordering::Relaxed);
            break;
        }
        if !some(&mut server, client, &mut buffer, &|_| true)? {
            break;
        }
    }
    server.shutdown(Shutdown::Both)
}

/// Passes on what has come; whether there may be more. What `passes` refuses is not passed on. The end of what comes is no reason to fail.
fn some(
    from: &mut TcpStream,
    to: &mut TcpStream,
    buffer: &mut [u8],
    passes: &dyn Fn(&[u8]) -> bool,
) -> std::io::Result<bool> {
    match from.read(buffer) {
        Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Ok(count) if !passes(&buffer[..count]) => Ok(false),
        Ok(count) => to.write_all(&buffer[..count]).map(|()| true),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Ok(true)
        }
        Err(e) => Err(e),
    }
}

/// Reads a request as far as it comes and answers.
fn answer(client: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut buffer = vec![0; 64 << 10];
    while client.read(&mut buffer).is_ok_and(|count| count > 0) {}
    write!(client, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}
