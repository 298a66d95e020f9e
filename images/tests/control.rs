//! An engine that runs containers, as far as it fails: a server made here answers in all the ways in which one should not. What an engine does
//! when it works is tested with a real one (`runner/tests/live.rs`).
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bloodhound_images::{Control, EngineChoice, EngineError, ExecCommand};
use common::Scratch;

/// How the server answers.
#[derive(Clone, Copy)]
enum Answer {
    /// With these bytes.
    Bytes(&'static str),
    /// With these bytes, and then nothing, for ever.
    Hang(&'static str),
}

/// What was asked of the server: method and path.
type Asked = Arc<Mutex<Vec<String>>>;

/// A server whose answers a function gives, from method and path of each request.
fn server(scratch: &Scratch, name: &str, answer: fn(&str) -> Answer) -> (PathBuf, Asked) {
    let path = scratch.path(name);
    let listener = UnixListener::bind(&path).expect("a socket");
    let asked = Asked::default();
    let list = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let list = list.clone();
            std::thread::spawn(move || {
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    request.push(byte[0]);
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                let line = text.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
                list.lock().expect("a list").push(line.clone());
                let (bytes, hangs) = match answer(&line) {
                    Answer::Bytes(bytes) => (bytes, false),
                    Answer::Hang(bytes) => (bytes, true),
                };
                // The client may be gone already.
                let _served = stream.write_all(bytes.as_bytes());
                if hangs {
                    // Until the client has had enough.
                    let _gone = stream.read(&mut byte);
                }
            });
        }
    });
    (path, asked)
}

const VERSION: &str = "HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.24\",\"Version\":\"20.10.1\"}";
const NOTHING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/// One that works until it is asked for something.
fn good(line: &str) -> Option<Answer> {
    match line {
        "GET /version" => Some(Answer::Bytes(VERSION)),
        "GET /v1.41/info" => Some(Answer::Bytes(NOTHING)),
        _ => None,
    }
}

fn connect(path: &Path) -> Result<Control, EngineError> {
    Control::connect(path, Duration::from_millis(400))
}

/// What the engine does wrong, its answer, and what is said of it.
type Case = (&'static str, fn(&str) -> Answer, &'static str);

#[test]
fn an_engine_that_is_none_is_refused_in_time() {
    let scratch = Scratch::new("control-none");
    let cases: [Case; 9] = [
        ("empty", |_| Answer::Bytes(""), "does not answer"),
        ("ssh", |_| Answer::Bytes("SSH-2.0-OpenSSH\r\n"), "does not speak HTTP"),
        (
            "500",
            |_| Answer::Bytes("HTTP/1.1 500 X\r\nContent-Length: 22\r\n\r\n{\"message\":\"no space\"}"),
            "status 500: no space",
        ),
        (
            "closes",
            |_| Answer::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"ApiVersion\""),
            "ended in the middle",
        ),
        ("hangs", |_| Answer::Hang(""), "does not answer"),
        ("hangs-later", |_| Answer::Hang("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "takes too long"),
        (
            "text",
            |_| Answer::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
            "no answer that makes sense",
        ),
        (
            "old",
            |_| Answer::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"ApiVersion\":\"1.39\"}"),
            "not known: \"1.39\"",
        ),
        (
            "new",
            |_| Answer::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"ApiVersion\":\"2.0\"}"),
            "not known: \"2.0\"",
        ),
    ];
    for (name, answer, text) in cases {
        let (path, _) = server(&scratch, name, answer);
        let begin = Instant::now();
        let error = connect(&path).expect_err(name);
        assert!(error.text.contains(text), "{name}: {error}");
        assert!(error.text.contains("its version"), "{name}: {error}");
        assert!(begin.elapsed() < Duration::from_secs(60), "{name}");
        // Who looks for an engine is told why this one is none, and what to do.
        let choice = EngineChoice::Socket(path.clone());
        let error = Control::find(&choice, Duration::from_millis(400)).expect_err(name);
        assert!(error.text.contains(text) && error.text.contains("help: start Docker"), "{name}: {error}");
    }
    let missing = connect(&scratch.path("missing")).expect_err("no socket");
    assert!(missing.text.contains("No such file"), "{missing}");
}

#[test]
fn an_engine_that_fails_later_says_what_was_asked() {
    let scratch = Scratch::new("control-later");
    let refuse = |line: &str| {
        good(line).unwrap_or(Answer::Bytes(
            "HTTP/1.1 409 X\r\nContent-Length: 48\r\n\r\n{\"message\":\"container is \\u001b[31mnot running\"}",
        ))
    };
    let (path, _) = server(&scratch, "refuses", refuse);
    let control = connect(&path).expect("an engine");
    assert_eq!((control.about().name.as_str(), control.about().api.as_str()), ("Docker 20.10.1", "1.41"));
    let error = control.kill("web").expect_err("refused");
    assert_eq!(error.status, Some(409));
    assert!(
        error.text.starts_with("killing web: Docker 20.10.1 answers with status 409: container is "),
        "{error}"
    );
    assert!(!error.text.contains('\u{1b}'), "no control characters of somebody else's: {error}");
    let hang = |line: &str| good(line).unwrap_or(Answer::Hang(""));
    let (path, _) = server(&scratch, "hangs", hang);
    let control = connect(&path).expect("an engine");
    for error in [
        control.start("web").expect_err("no answer"),
        control.exec("web", &ExecCommand::default(), Duration::from_millis(200)).expect_err("no answer"),
    ] {
        assert!(error.status.is_none() && error.text.contains("does not answer"), "{error}");
    }
    // It gives a container no id, or says of an image that is broken that all is well.
    let (path, _) = server(&scratch, "nothing", |line| good(line).unwrap_or(Answer::Bytes(NOTHING)));
    let control = connect(&path).expect("an engine");
    let error = control.create_container("web", &serde_json::json!({})).expect_err("no id");
    assert!(error.text.contains("gives it no id"), "{error}");
    let broken = |line: &str| {
        good(line).unwrap_or(Answer::Bytes(
            "HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"stream\":\"\"}\n{\"error\":\"no room\"}",
        ))
    };
    let (path, _) = server(&scratch, "broken", broken);
    let error = connect(&path).expect("an engine").load_empty("x:1").expect_err("broken");
    assert!(error.text.contains("no room"), "{error}");
}

#[test]
fn what_is_gone_is_removed_and_everything_is_tried() {
    let scratch = Scratch::new("control-remove");
    let answer = |line: &str| {
        good(line).unwrap_or_else(|| match line {
            line if line.contains("/containers/json") => Answer::Bytes(
                "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n[{\"Id\":\"a1\",\"Names\":[\"/web\"],\"State\":\"running\"}]  ",
            ),
            line if line.contains("/networks?") => {
                Answer::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n[{\"Name\":\"net\"}]")
            }
            line if line.contains("/volumes?") => {
                Answer::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n{\"Volumes\":[{\"Name\":\"vol\"}]}")
            }
            line if line.starts_with("DELETE") && line.contains("/networks/") => {
                Answer::Bytes("HTTP/1.1 500 X\r\nContent-Length: 18\r\n\r\n{\"message\":\"busy\"}")
            }
            _ => Answer::Bytes("HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}"),
        })
    };
    let (path, asked) = server(&scratch, "engine", answer);
    let rubbish = connect(&path).expect("an engine").remove_all("io.bloodhound.live=1");
    assert_eq!(rubbish.0.len(), 1, "{rubbish:?}");
    assert!(rubbish.0[0].starts_with("removing the network net: "), "{rubbish:?}");
    let asked = asked.lock().expect("a list").clone();
    let deleted: Vec<&String> = asked.iter().filter(|line| line.starts_with("DELETE")).collect();
    let last: Vec<&str> = deleted.iter().rev().take(3).rev().map(|line| line.as_str()).collect();
    assert_eq!(
        last,
        [
            "DELETE /v1.41/containers/a1?force=true&v=true",
            "DELETE /v1.41/networks/net",
            "DELETE /v1.41/volumes/vol"
        ]
    );
    let label = "%7B%22label%22:%5B%22io.bloodhound.live%3D1%22%5D%7D";
    assert!(asked.iter().any(|line| line.ends_with(label)), "{asked:?}");
}
