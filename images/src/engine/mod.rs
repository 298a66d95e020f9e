//! A Docker or Podman engine of this machine: asked over its socket, or by its command where there is no socket. It has what was built or
//! loaded there, and is never needed for a simulation.
//!
//! Key types: [`EngineChoice`], and [`Control`] for who has an engine run containers (`control` how it is reached, `containers` what it is
//! asked to do, `exec` programs in a container, `upload` an image on its way to it).

mod containers;
mod control;
mod exec;
mod upload;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::archive;
use crate::child::Running;
use crate::error::{Error, ErrorKind, shown};
use crate::http::url::{Scheme, Url, quoted};
use crate::http::{self, Request, Response, Timeouts};
use crate::progress::Progress;
use crate::reference::Reference;
use crate::store::{Record, Store};

pub use containers::{Life, Listed, Rubbish};
pub use control::{About, Control, EngineError};
pub use exec::{Command as ExecCommand, Executed};

/// Bytes of an answer that is a document.
const DOCUMENT: u64 = 8 << 20;
/// How long a command that only looks something up may take.
const LOOK_UP: Duration = Duration::from_secs(30);
/// How long a command that writes an image may take.
const EXPORT: Duration = Duration::from_secs(1800);

/// Which engine is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// The first that there is: of `DOCKER_HOST`, Docker's and Podman's sockets, the commands `docker` and `podman`.
    #[default]
    Auto,
    /// None.
    Off,
    /// The one that listens on this socket.
    Socket(PathBuf),
}

/// An engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Socket(PathBuf),
    Command(&'static str),
}

impl EngineChoice {
    /// The engines to ask, in order.
    pub(crate) fn engines(&self) -> Result<Vec<Engine>, Error> {
        match self {
            EngineChoice::Off => Ok(Vec::new()),
            EngineChoice::Socket(path) => Ok(vec![Engine::Socket(path.clone())]),
            EngineChoice::Auto => {
                automatic(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            }
        }
    }
}

fn automatic(variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Engine>, Error> {
    use std::os::unix::fs::FileTypeExt;
    if let Some(host) = variable("DOCKER_HOST") {
        return match host.strip_prefix("unix://") {
            Some(path) => Ok(vec![Engine::Socket(PathBuf::from(path))]),
            // The command knows how to reach it: ssh://, tcp:// with certificates.
            None => Ok(vec![Engine::Command("docker")]),
        };
    }
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let sockets = [
        Some(PathBuf::from("/var/run/docker.sock")),
        runtime.as_ref().map(|dir| dir.join("docker.sock")),
        runtime.as_ref().map(|dir| dir.join("podman/podman.sock")),
        Some(PathBuf::from("/run/podman/podman.sock")),
    ];
    let is_socket = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let mut engines: Vec<Engine> =
        sockets.into_iter().flatten().filter(is_socket).map(Engine::Socket).collect();
    // Without a socket the command `docker` finds nothing either; podman needs none.
    if installed("podman") {
        engines.push(Engine::Command("podman"));
    }
    Ok(engines)
}

/// Whether a program is in PATH.
pub(crate) fn installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

impl Engine {
    /// For messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Engine::Socket(path) => format!("the engine at {}", path.display()),
            Engine::Command(name) => format!("`{name}`"),
        }
    }

    /// The id that the engine has for this name, or `None` if it has no such image.
    pub(crate) fn id(&self, reference: &Reference) -> Result<Option<String>, Error> {
        let id = match self {
            Engine::Socket(path) => {
                let response = get(path, &format!("/images/{}/json", quoted(&reference.to_string())), true)?;
                match response.status {
                    404 => return Ok(None),
                    200 => document(self, response)?.get("Id").and_then(|id| id.as_str()).map(str::to_owned),
                    status => return Err(refused(self, status, response)),
                }
            }
            Engine::Command(name) => {
                let mut command = Command::new(name);
                command.args(["image", "inspect", "--format", "{{.Id}}", &reference.to_string()]);
                let (good, output, _) = finish(command, LOOK_UP)?;
                good.then(|| String::from_utf8_lossy(&output).trim().to_owned())
            }
        };
        Ok(id
            .filter(|id| !id.is_empty())
            .map(|id| if id.contains(':') { id } else { format!("sha256:{id}") }))
    }

    /// Brings an image of the engine into the cache, under `name`.
    pub(crate) fn export(
        &self,
        store: &Store,
        reference: &Reference,
        name: &Reference,
        progress: &dyn Progress,
    ) -> Result<Record, Error> {
        let place = |e: Error| e.at(format!("{} from {}", reference.familiar(), self.name()));
        let records = match self {
            Engine::Socket(path) => {
                let path = get(path, &format!("/images/{}/get", quoted(&reference.to_string())), false)?;
                if path.status != 200 {
                    return Err(refused(self, path.status, path));
                }
                archive::load_stream(store, path.into_body(), name, progress).map_err(place)?
            }
            Engine::Command(program) => {
                let mut command = Command::new(program);
                command.arg("save");
                if *program == "podman" {
                    command.args(["--format", "docker-archive"]);
                }
                command
                    .arg(reference.to_string())
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null());
                let mut running = Running::start(command)?;
                let output = running.child.stdout.take();
                let loaded = archive::load_stream(
                    store,
                    output.into_iter().next().ok_or_else(nothing)?,
                    name,
                    progress,
                );
                running.end(EXPORT)?;
                loaded.map_err(place)?
            }
        };
        records.into_iter().next().ok_or_else(nothing)
    }
}

fn nothing() -> Error {
    Error::new(ErrorKind::Network, "the engine gives nothing")
}

/// Asks an engine for something over its socket.
fn get(socket: &Path, path: &str, document: bool) -> Result<Response, Error> {
    call(socket, "GET", path, Vec::new(), document)
}

/// Makes a call of the engine's API, whose version is the engine's own.
pub(crate) fn call(
    socket: &Path,
    method: &'static str,
    path: &str,
    body: Vec<u8>,
    document: bool,
) -> Result<Response, Error> {
    let url = Url {
        scheme: Scheme::Http,
        host: "localhost".to_owned(),
        port: 80,
        path: path.to_owned(),
        user: None,
    };
    let headers =
        if body.is_empty() { Vec::new() } else { vec![("Content-Type", "application/json".to_owned())] };
    let request = Request { method, url: &url, headers, body, document };
    // An engine may work for long before the first byte of an image comes.
    let timeouts = Timeouts {
        idle: Duration::from_secs(300),
        document: Duration::from_secs(300),
        window_bytes: 0,
        ..Timeouts::default()
    };
    http::over_unix(socket, &request, None, &timeouts).map_err(|e| e.error)
}

fn document(engine: &Engine, response: Response) -> Result<serde_json::Value, Error> {
    let wrong = |e: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Network, format!("{} gives no answer that makes sense: {e}", engine.name()))
    };
    let bytes = response.bytes(DOCUMENT).map_err(|e| wrong(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| wrong(&e))
}

fn refused(engine: &Engine, status: u16, response: Response) -> Error {
    let said = response.bytes(16 << 10).unwrap_or_default();
    let text = format!("{} answers with status {status}: {}", engine.name(), shown(&said));
    Error::new(ErrorKind::Network, text)
}

/// Runs a command to its end: whether it was successful, and what it wrote to its two streams, cut at some length.
pub(crate) fn finish(mut command: Command, patience: Duration) -> Result<(bool, Vec<u8>, Vec<u8>), Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(command)?;
    let drain = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                // What is cut off is read as well: otherwise the program would wait for ever.
                let _read = stream.by_ref().take(DOCUMENT).read_to_end(&mut bytes);
                let _rest = std::io::copy(&mut stream, &mut std::io::sink());
            }
            bytes
        })
    };
    let out = drain(running.child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let err = drain(running.child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let good = running.end(patience)?.success();
    Ok((good, out.join().unwrap_or_default(), err.join().unwrap_or_default()))
}
