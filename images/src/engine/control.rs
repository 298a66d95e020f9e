//! The way to an engine that runs containers: which one, which version of its API, and how an answer is told from a failure.
//!
//! Key types: [`Control`] (an engine that answers), [`EngineError`]. The API is Docker's, which Podman's service speaks too ("Docker Engine
//! API", docs.docker.com/reference/api/engine). Neighbours: `containers` and `exec` are what it is asked to do.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{DOCUMENT, Engine, EngineChoice};
use crate::error::shown;
use crate::http::url::{Scheme, Url};
use crate::http::{self, Request, Response, Timeouts, Upload};

/// The oldest version of the API that has all that is asked for here: Docker 20.10, Podman 3.
const OLDEST: Version = Version(1, 40);
/// The newest one whose documentation was read. An engine that has no older one any more is asked in its oldest.
const NEWEST: Version = Version(1, 47);
/// What an engine says of a failure, at most.
const EXPLANATION: u64 = 16 << 10;

/// `1.41`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    fn parse(text: &str) -> Option<Version> {
        let (major, minor) = text.split_once('.')?;
        Some(Version(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Why an engine did not do what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineError {
    /// The status of its answer; without one it gave none that makes sense.
    pub status: Option<u16>,
    /// What was asked, and what came of it.
    pub text: String,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for EngineError {}

impl EngineError {
    pub(super) fn new(text: impl Into<String>) -> EngineError {
        EngineError { status: None, text: text.into() }
    }
}

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name and version: `Podman Engine 4.3.1`.
    pub name: String,
    /// The version of the API in which it is asked.
    pub api: String,
    /// It runs without root's rights, so its networks are not this machine's.
    pub rootless: bool,
    /// It runs in a virtual machine of its own (Docker Desktop), so its networks are not this machine's.
    pub virtual_machine: bool,
}

/// An engine that runs containers, behind its socket.
#[derive(Clone, Debug)]
pub struct Control {
    socket: PathBuf,
    about: About,
    /// How long an operation may take.
    patience: Duration,
}

impl Control {
    /// The first engine of the choice that answers. `patience` is how long each operation may take.
    ///
    /// # Errors
    /// There is none, or none that can be used, with what to do.
    pub fn find(choice: &EngineChoice, patience: Duration) -> Result<Control, EngineError> {
        let engines = choice.engines().map_err(|e| EngineError::new(e.to_string()))?;
        let mut failures = Vec::new();
        for engine in &engines {
            match engine {
                Engine::Socket(path) => match Control::connect(path, patience) {
                    Ok(control) => return Ok(control),
                    Err(error) => failures.push(error.text),
                },
                Engine::Command("docker") => failures.push(
                    "DOCKER_HOST names an engine that is not behind a Unix socket: containers of another machine cannot be \
                     reached by the workload"
                        .to_owned(),
                ),
                Engine::Command(_) => {}
            }
        }
        let mut text = "no engine that runs containers answers".to_owned();
        for failure in &failures {
            text.push_str(&format!("\n  {failure}"));
        }
        text.push_str(
            "\nhelp: start Docker, or `podman system service --time 0 unix:///run/podman/podman.sock`, and name its socket by \
             DOCKER_HOST=unix://PATH if it is not a usual one",
        );
        Err(EngineError::new(text))
    }

    /// The engine behind a socket.
    ///
    /// # Errors
    /// It does not answer, is no engine, or is too old or too new.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Control, EngineError> {
        let about = About {
            name: format!("the engine at {}", socket.display()),
            api: String::new(),
            rootless: false,
            virtual_machine: false,
        };
        let mut control = Control { socket: socket.to_owned(), about, patience };
        let version = control.get("/version", "its version")?;
        let text = |key: &str| version.get(key).and_then(Value::as_str).unwrap_or_default();
        let unknown = || {
            let api = shown(text("ApiVersion").as_bytes());
            EngineError::new(format!(
                "its version: {} speaks a version of the API that is not known: {api}; versions from {OLDEST} on are",
                control.about.name
            ))
        };
        let newest = Version::parse(text("ApiVersion")).ok_or_else(unknown)?;
        let oldest = Version::parse(text("MinAPIVersion")).unwrap_or(OLDEST);
        if newest < OLDEST || newest.0 != NEWEST.0 {
            return Err(unknown());
        }
        let api = newest.min(NEWEST).max(oldest).to_string();
        let component = version.pointer("/Components/0/Name").and_then(Value::as_str);
        let kind = component.map_or("Docker", |name| if name == "Engine" { "Docker" } else { name });
        let name = format!("{kind} {}", text("Version"));
        control.about.api = api;
        let info = control.get("/info", "what it can do")?;
        let options = info.get("SecurityOptions").and_then(Value::as_array).cloned().unwrap_or_default();
        let system = info.get("OperatingSystem").and_then(Value::as_str).unwrap_or_default();
        control.about.rootless =
            options.iter().filter_map(Value::as_str).any(|option| option.contains("rootless"));
        control.about.virtual_machine = system.contains("Docker Desktop");
        control.about.name = name;
        Ok(control)
    }

    /// What the engine says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether it has at least this version of the API, `(1, 45)`.
    pub fn has_api(&self, major: u32, minor: u32) -> bool {
        Version::parse(&self.about.api).is_some_and(|version| version >= Version(major, minor))
    }

    /// A document; `what` names it for messages.
    pub(super) fn get(&self, path: &str, what: &str) -> Result<Value, EngineError> {
        let ask = Ask { document: true, ..Ask::new("GET", path, what) };
        self.document(ask)
    }

    /// Asks for something, and reads the document with which the engine answers; an empty one is null.
    pub(super) fn document(&self, ask: Ask<'_>) -> Result<Value, EngineError> {
        let what = ask.what.to_owned();
        let response = self.ask(ask)?;
        let wrong = |e: &dyn fmt::Display| self.wrong(&what, e);
        let bytes = response.bytes(DOCUMENT).map_err(|e| wrong(&e))?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|e| wrong(&e))
    }

    /// Asks for something that has no answer but that it was done: what else the answer says differs from engine to engine. Something that
    /// is so already (304) is done.
    pub(super) fn act(&self, ask: Ask<'_>) -> Result<(), EngineError> {
        let what = ask.what.to_owned();
        let response = self.ask(ask)?;
        response.bytes(DOCUMENT).map(|_said| ()).map_err(|e| self.wrong(&what, &e))
    }

    fn wrong(&self, what: &str, e: &dyn fmt::Display) -> EngineError {
        EngineError::new(format!("{what}: {} gives no answer that makes sense: {e}", self.about.name))
    }

    /// Asks for something. An answer of status 400 and above is an error with what the engine says.
    pub(super) fn ask(&self, ask: Ask<'_>) -> Result<Response, EngineError> {
        let prefix = if self.about.api.is_empty() { String::new() } else { format!("/v{}", self.about.api) };
        let url = Url {
            scheme: Scheme::Http,
            host: "localhost".to_owned(),
            port: 80,
            path: format!("{prefix}{}", ask.path),
            user: None,
        };
        let headers = match (&ask.upload, ask.body.is_empty()) {
            (Some(_), _) => vec![("Content-Type", "application/x-tar".to_owned())],
            (None, false) => vec![("Content-Type", "application/json".to_owned())],
            (None, true) => Vec::new(),
        };
        let request =
            Request { method: ask.method, url: &url, headers, body: ask.body, document: ask.document };
        let patience = ask.patience.unwrap_or(self.patience);
        let timeouts =
            Timeouts { idle: patience, document: patience, window_bytes: 0, ..Timeouts::default() };
        let response = http::over_unix(&self.socket, &request, ask.upload, &timeouts);
        let response = response.map_err(|e| {
            EngineError::new(format!("{}: {} does not answer: {}", ask.what, self.about.name, e.error))
        })?;
        if response.status < 400 {
            return Ok(response);
        }
        let status = response.status;
        let said = response.bytes(EXPLANATION).unwrap_or_default();
        Err(EngineError {
            status: Some(status),
            text: format!(
                "{}: {} answers with status {status}: {}",
                ask.what,
                self.about.name,
                explanation(&said)
            ),
        })
    }
}

/// What is asked of an engine.
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    /// With its query, without the version.
    pub(super) path: &'a str,
    /// What is asked for, for messages.
    pub(super) what: &'a str,
    pub(super) body: Vec<u8>,
    pub(super) upload: Option<Upload<'a>>,
    /// Whether all of the answer must be there within the patience, and not only its next byte.
    pub(super) document: bool,
    /// Instead of the usual one.
    pub(super) patience: Option<Duration>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(method: &'static str, path: &'a str, what: &'a str) -> Ask<'a> {
        Ask { method, path, what, body: Vec::new(), upload: None, document: true, patience: None }
    }

    pub(super) fn json(self, body: &Value) -> Ask<'a> {
        Ask { body: body.to_string().into_bytes(), ..self }
    }
}

/// What an engine says of a failure: `{"message": "..."}`, or whatever else it is.
pub(super) fn explanation(said: &[u8]) -> String {
    let document: Option<Value> = serde_json::from_slice(said).ok();
    let message = document.as_ref().and_then(|d| d.get("message")).and_then(Value::as_str);
    match message {
        Some(message) if !message.is_empty() => shown(message.as_bytes()).trim_matches('"').to_owned(),
        _ if said.is_empty() => "no explanation".to_owned(),
        _ => shown(said),
    }
}

/// The rest of a stream, at most so many bytes; what is more is read and forgotten.
pub(super) fn bounded(mut stream: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut stream).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
