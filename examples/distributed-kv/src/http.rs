//! The clients' side: HTTP/1.1, one thread per connection.
//!
//! | request | answer |
//! |---|---|
//! | `GET /{key}` | 200 and the value, 404 if there is none |
//! | `PUT /{key}`, the body is the value | 200 |
//! | `DELETE /{key}` | 200, whether there was a value or not |
//! | `POST /{key}/cas`, body `{"old": .., "new": ..}` (strings; `null` is an absent value) | 200, or 409 if the value is not `old` |
//! | `GET /health` | 200 if there is a leader in touch with a majority as far as this node knows, else 503 |
//! | `GET /status` | 200 and a JSON object |
//!
//! 503 means that the request has not been carried out and will not be, 504 that nobody knows.

use crate::buffers::{Buffers, send};
use crate::kv::{Command, Op, Outcome};
use crate::node::Node;
use crate::raft::Role;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const MAX_HEAD: u64 = 16 << 10;
const MAX_BODY: u64 = 1 << 20;
/// An idle connection is kept this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request, read to its end.
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
    keep_alive: bool,
}

/// A response to be.
struct Response {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn text(status: u16, body: impl Into<String>) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    fn encode(&self, out: &mut Vec<u8>, keep_alive: bool) {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            411 => "Length Required",
            413 => "Content Too Large",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            _ => "",
        };
        let Response { status, content_type, body } = self;
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Connection: {connection}\r\n\r\n",
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.as_bytes());
    }
}

/// Accepts clients, for ever.
pub fn accept(node: &Arc<Node>, listener: &TcpListener) {
    let buffers = Arc::new(Buffers::new(node.config.bug));
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                let (node, buffers) = (node.clone(), buffers.clone());
                thread::spawn(move || {
                    let mut out = buffers.take();
                    // An error ends the connection; whose fault it was does not matter to anyone else.
                    let _ = serve(&node, &stream, &mut out);
                    buffers.give_back(out);
                });
            }
            Err(error) => {
                eprintln!("client connection: {error}");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn serve(node: &Node, mut stream: &TcpStream, out: &mut Vec<u8>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    loop {
        let request = match read_request(&mut reader, stream)? {
            Some(Ok(request)) => request,
            Some(Err(refusal)) => {
                refusal.encode(out, false);
                return send(out, &mut stream);
            }
            None => return Ok(()),
        };
        let response = answer(node, &request);
        response.encode(out, request.keep_alive);
        send(out, &mut stream)?;
        if !request.keep_alive {
            return Ok(());
        }
    }
}

/// Reads a request: `None` at the end of the connection, a response if it is not to be had.
fn read_request(
    reader: &mut BufReader<&TcpStream>,
    stream: &TcpStream,
) -> io::Result<Option<Result<Request, Response>>> {
    let refuse = |status, text: &str| Ok(Some(Err(Response::text(status, format!("{text}\n")))));
    let mut head = reader.by_ref().take(MAX_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path), Some(version)) = (words.next(), words.next(), words.next()) else {
        return refuse(400, "not an HTTP request");
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut keep_alive = version == "HTTP/1.1";
    let mut length = 0;
    let mut wants_continue = false;
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return refuse(431, "request head too long or incomplete");
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { return refuse(400, "malformed header") };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => match value.parse() {
                Ok(n) if n <= MAX_BODY => length = n,
                Ok(_) => return refuse(413, "body too long"),
                Err(_) => return refuse(400, "malformed Content-Length"),
            },
            "transfer-encoding" => return refuse(411, "send a Content-Length"),
            "connection" if value.eq_ignore_ascii_case("close") => keep_alive = false,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => keep_alive = true,
            "expect" => wants_continue = value.eq_ignore_ascii_case("100-continue"),
            _ => {}
        }
    }
    if wants_continue {
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body)?;
    Ok(Some(Ok(Request { method, path, body, keep_alive })))
}

fn answer(node: &Node, request: &Request) -> Response {
    let path = request.path.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("GET", "/health") => {
            if node.status().healthy {
                Response::text(200, "ok\n")
            } else {
                Response::text(503, "no leader in reach\n")
            }
        }
        ("GET", "/status") => status(node),
        (method, path) => match operation(method, path, &request.body) {
            Ok(op) => respond(&node.execute(op)),
            Err(response) => response,
        },
    }
}

fn status(node: &Node) -> Response {
    let status = node.status();
    let role = match status.role {
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
    };
    let body = json!({
        "node": node.config.peers[usize::from(node.config.id)].0,
        "role": role,
        "term": status.term,
        "leader": status.leader,
        "commit": status.commit,
        "snapshot": status.snapshot,
        "last_index": status.last_index,
    });
    Response { status: 200, content_type: "application/json", body: format!("{body}\n") }
}

fn operation(method: &str, path: &str, body: &[u8]) -> Result<Op, Response> {
    let rest = path.strip_prefix('/').unwrap_or_default();
    let (name, is_cas) = match rest.strip_suffix("/cas") {
        Some(name) if method == "POST" => (name, true),
        _ => (rest, false),
    };
    if name.is_empty() || name.contains('/') {
        return Err(Response::text(404, "no such path\n"));
    }
    let key = decode(name).ok_or_else(|| Response::text(400, "malformed key\n"))?;
    match method {
        "GET" => Ok(Op::Get { key }),
        "DELETE" => Ok(Op::Write(Command::Delete { key })),
        "PUT" => match String::from_utf8(body.to_vec()) {
            Ok(value) => Ok(Op::Write(Command::Put { key, value })),
            Err(_) => Err(Response::text(400, "the value is not UTF-8\n")),
        },
        "POST" if is_cas => match cas(body) {
            Some((old, new)) => Ok(Op::Write(Command::Cas { key, old, new })),
            None => Err(Response::text(400, "expected {\"old\": .., \"new\": ..}, each a string or null\n")),
        },
        _ => Err(Response::text(405, "GET, PUT, DELETE, or POST to /{key}/cas\n")),
    }
}

/// The body of a compare-and-set.
fn cas(body: &[u8]) -> Option<(Option<String>, Option<String>)> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let field = |name: &str| match value.get(name)? {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.clone())),
        _ => None,
    };
    Some((field("old")?, field("new")?))
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn respond(outcome: &Outcome) -> Response {
    match outcome {
        Outcome::Written => Response::text(200, ""),
        Outcome::Value(Some(value)) => Response::text(200, value.clone()),
        Outcome::Value(None) => Response::text(404, ""),
        Outcome::Mismatch => Response::text(409, ""),
        Outcome::Unavailable => Response::text(503, "not done\n"),
        Outcome::Unknown => Response::text(504, "may have been done or not\n"),
    }
}

/// Asks the node at `address` how it is; for container health checks.
pub fn is_healthy(address: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.split_whitespace().nth(1) == Some("200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_bodies_become_operations() {
        let get = |path| operation("GET", path, b"").ok();
        assert_eq!(get("/a%20b"), Some(Op::Get { key: "a b".into() }));
        assert_eq!(get("/a/b"), None);
        assert_eq!(get("/"), None);
        assert_eq!(get("/%zz"), None);
        assert_eq!(get("/%c3"), None);
        let cas = |body: &str| operation("POST", "/k/cas", body.as_bytes()).ok();
        let expected = Command::Cas { key: "k".into(), old: None, new: Some("x".into()) };
        assert_eq!(cas(r#"{"old": null, "new": "x"}"#), Some(Op::Write(expected)));
        assert_eq!(cas(r#"{"new": "x"}"#), None);
        assert_eq!(cas(r#"{"old": 1, "new": "x"}"#), None);
        assert_eq!(operation("POST", "/k", b"").map_err(|r| r.status).err(), Some(405));
        assert_eq!(operation("PUT", "/k", &[0xff]).map_err(|r| r.status).err(), Some(400));
    }
}
