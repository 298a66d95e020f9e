//! Engines of this machine: Podman's service, which speaks Docker's API, builds by buildah, and a server made here for an engine's errors.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bloodhound_images::{EngineChoice, Image, ImageSource, Options, PullPolicy, Resolver, Store};
use common::{Scratch, Tar, docker_archive, have, left_out, listing, run};

/// Podman with a storage of the test's own, and its service.
struct Podman {
    options: Vec<String>,
    socket: PathBuf,
    service: Child,
}

impl Podman {
    /// `None` where podman cannot run.
    fn start(scratch: &Scratch, what: &str) -> Option<Podman> {
        if !have(&["podman"], what) {
            return None;
        }
        let path = |name: &str| scratch.path(name).display().to_string();
        let options = [
            ["--root".to_owned(), path("storage")],
            ["--runroot".to_owned(), path("run")],
            ["--storage-driver".to_owned(), "vfs".to_owned()],
        ]
        .concat();
        let socket = scratch.path("podman.sock");
        let mut command = Command::new("podman");
        command.args(&options).args(["system", "service", "--time", "0"]);
        command.arg(format!("unix://{}", socket.display())).stdout(Stdio::null()).stderr(Stdio::null());
        let mut service = command.spawn().expect("podman");
        let begin = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = service.try_wait().expect("podman") {
                left_out(what, &format!("podman's service does not run here: {status}"), true);
                return None;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "podman does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Podman { options, socket, service })
    }

    fn run(&self, args: &[&str]) {
        run(Command::new("podman").args(&self.options).args(args));
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Nothing else is to be done if it has ended by itself.
        let _ended = self.service.kill();
        let _status = self.service.wait();
    }
}

fn resolver(scratch: &Scratch, engine: EngineChoice) -> Resolver {
    let store = Store::open(scratch.path("cache")).expect("a cache");
    Resolver::new(store, Options { engine, ..Options::default() })
}

#[test]
fn an_engine_s_images_are_found_and_kept_up_to_date() {
    let scratch = Scratch::new("engine");
    let Some(podman) = Podman::start(&scratch, "an_engine_s_images_are_found_and_kept_up_to_date") else {
        return;
    };
    let load = |content: &str| {
        let layer = Tar::default().file("file", content.as_bytes()).end();
        let archive = scratch.write("app.tar", &docker_archive(&["localhost/app:1"], &[layer]));
        podman.run(&["load", "--quiet", "--input", archive.to_str().expect("a path")]);
    };
    load("first");
    let resolver = resolver(&scratch, EngineChoice::Socket(podman.socket.clone()));
    let get = |name: &str, policy| resolver.resolve(&ImageSource::Reference(name.to_owned()), policy);
    let file = |image: &Image| listing(image)[1].clone();
    // What is called `app:1` in a compose file is called `localhost/app:1` by podman.
    let first = get("app:1", PullPolicy::Missing).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(file(&first), "/file 644 0:0 file \"first\"");
    assert_eq!(get("app:1", PullPolicy::Never).expect("cached").digest, first.digest);
    // It was built again.
    load("second");
    let second = get("app:1", PullPolicy::Missing).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(file(&second), "/file 644 0:0 file \"second\"");
    let missing = get("localhost/none:1", PullPolicy::Never).expect_err("not there").to_string();
    assert!(missing.contains("neither in the image cache"), "{missing}");
    assert_eq!(resolver.store.verify(), Ok(Vec::new()));
    // Without the engine, what came from it is still there.
    drop(podman);
    assert_eq!(get("app:1", PullPolicy::Missing).expect("cached").digest, second.digest);
}

/// An engine that gives the same answer to everything.
fn engine(scratch: &Scratch, answer: &'static [u8]) -> EngineChoice {
    let path = scratch.path(&format!("engine-{}.sock", answer.as_ptr() as usize));
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            // The client may be gone already.
            let _served = stream.read(&mut request).and_then(|_| stream.write_all(answer));
        }
    });
    EngineChoice::Socket(path)
}

#[test]
fn an_engine_that_does_not_work_is_as_none() {
    let scratch = Scratch::new("broken");
    for answer in [
        &b""[..],
        b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0\r\n",
    ] {
        let resolver = resolver(&scratch, engine(&scratch, answer));
        let source = ImageSource::Reference("app:1".to_owned());
        let error = resolver.resolve(&source, PullPolicy::Never).expect_err("nothing").to_string();
        assert!(error.contains("neither in the image cache"), "{error}");
    }
    // One that says that it has the image, and then gives something else.
    let lies = engine(&scratch, b"HTTP/1.1 200 X\r\nContent-Length: 12\r\n\r\n{\"Id\": \"ab\"}");
    let source = ImageSource::Reference("app:1".to_owned());
    let error =
        resolver(&scratch, lies).resolve(&source, PullPolicy::Never).expect_err("nothing").to_string();
    assert!(error.contains("truncated") && error.contains("the engine at"), "{error}");
    assert_eq!(scratch.store().verify(), Ok(Vec::new()));
}
