//! Whose name and password a registry is shown. Files of Docker and podman are looked into, and the programs that they name are asked; docs/images.md
//! tells the order. What is found never appears in a message, only where it was found.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::settings::{Endpoint, Settings};
use crate::child::Running;
use crate::error::{Error, ErrorKind, shown};
use crate::http::base64;
use crate::progress::{Credential, Event, Progress};
use crate::reference::HUB;
use crate::store::read_bounded;

/// Bytes of a file of credentials, and of a helper's answer, at most.
const FILE: u64 = 4 << 20;
/// How long a helper may take.
const HELPER: Duration = Duration::from_secs(30);
/// How Docker's files name the registry of docker.io.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// What a registry is shown.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    name: String,
    password: String,
    /// Is exchanged for a token.
    pub(super) identity_token: Option<String>,
    /// Is a token.
    pub(super) registry_token: Option<String>,
    /// Where they were found, for messages.
    pub(super) source: String,
}

impl Credentials {
    /// The texts that must not be shown; those of basic authentication also as they are sent.
    fn secrets(&self) -> Vec<String> {
        let pair = format!("{}:{}", self.name, self.password);
        let tokens = self.identity_token.iter().chain(&self.registry_token).cloned();
        let password = [self.password.clone(), pair].into_iter().filter(|_| !self.password.is_empty());
        password.chain(tokens).collect()
    }

    /// The header of basic authentication.
    pub(super) fn basic(&self) -> Option<String> {
        let text = format!("{}:{}", self.name, self.password);
        (!self.name.is_empty()).then(|| format!("Basic {}", base64::encode(text.as_bytes())))
    }
}

/// Docker's config.json and podman's auth.json.
#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    auths: BTreeMap<String, Auth>,
    #[serde(rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// The credentials for a server, from the first place that has some. Who listens is told what must not be shown.
pub(super) fn find(
    endpoint: &Endpoint,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Option<Credentials>, Error> {
    let found = look(endpoint, settings, progress)?;
    for secret in found.iter().flat_map(Credentials::secrets) {
        progress.event(Event::Credential(Credential(secret)));
    }
    Ok(found)
}

fn look(
    endpoint: &Endpoint,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Option<Credentials>, Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(path) = &settings.config {
        // What the user names must be right.
        if let Some(found) = in_file(path, endpoint)? {
            return Ok(Some(found));
        }
    }
    for path in places(&variable) {
        match in_file(&path, endpoint) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            // A file or helper that is broken is no reason not to try without.
            Err(e) => progress.event(Event::Note(format!("credentials for {}: {e}", endpoint.registry))),
        }
    }
    let token = (endpoint.registry == "ghcr.io").then(|| variable("GITHUB_TOKEN")).flatten();
    Ok(token.map(|password| Credentials {
        name: variable("GITHUB_ACTOR").unwrap_or_else(|| "token".to_owned()),
        password,
        source: "GITHUB_TOKEN".to_owned(),
        ..Credentials::default()
    }))
}

/// Files of credentials, in the order in which they are looked into.
fn places(variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let under = |name: &str, rest: &str| variable(name).map(|dir| Path::new(&dir).join(rest));
    [
        variable("REGISTRY_AUTH_FILE").map(PathBuf::from),
        under("DOCKER_CONFIG", "config.json").or_else(|| under("HOME", ".docker/config.json")),
        under("XDG_RUNTIME_DIR", "containers/auth.json"),
        under("XDG_CONFIG_HOME", "containers/auth.json")
            .or_else(|| under("HOME", ".config/containers/auth.json")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn in_file(path: &Path, endpoint: &Endpoint) -> Result<Option<Credentials>, Error> {
    let bytes = read_bounded(path, FILE)?;
    // A message of the parser may quote the file, which has passwords in it: only the place is told.
    let file: File = serde_json::from_slice(&bytes).map_err(|e| {
        let text = format!(
            "{} is no file of credentials (line {}, column {})",
            path.display(),
            e.line(),
            e.column()
        );
        Error::new(ErrorKind::Usage, text)
    })?;
    let keys = keys(endpoint);
    let helper = keys.iter().find_map(|key| file.helpers.get(key));
    if let Some(name) = helper {
        return ask(name, &server(endpoint), path);
    }
    let entry = keys.iter().find_map(|key| file.auths.get(key)).map(|auth| auth.credentials(path));
    match entry.transpose()?.flatten() {
        Some(found) => Ok(Some(found)),
        // With a store, `auths` only has names without passwords.
        None => match &file.store {
            Some(name) => ask(name, &server(endpoint), path),
            None => Ok(None),
        },
    }
}

impl Auth {
    fn credentials(&self, path: &Path) -> Result<Option<Credentials>, Error> {
        let mut found = Credentials { source: path.display().to_string(), ..Credentials::default() };
        if let Some(auth) = self.auth.as_deref().filter(|auth| !auth.is_empty()) {
            let text = base64::decode(auth).and_then(|bytes| String::from_utf8(bytes).ok());
            let pair = text.as_deref().and_then(|text| text.split_once(':'));
            let (name, password) = pair.ok_or_else(|| {
                let text = format!("{}: an entry `auth` is not NAME:PASSWORD in base 64", path.display());
                Error::new(ErrorKind::Usage, text)
            })?;
            // Docker has written a NUL behind passwords.
            (found.name, found.password) = (name.to_owned(), password.trim_end_matches('\0').to_owned());
        } else if let Some(name) = &self.username {
            (found.name, found.password) = (name.clone(), self.password.clone().unwrap_or_default());
        }
        found.identity_token = self.identitytoken.clone().filter(|token| !token.is_empty());
        found.registry_token = self.registrytoken.clone().filter(|token| !token.is_empty());
        let some = !found.name.is_empty() || found.identity_token.is_some() || found.registry_token.is_some();
        Ok(some.then_some(found))
    }
}

/// The names under which files may have a registry, the most particular first: podman allows a part of the repository as well.
fn keys(endpoint: &Endpoint) -> Vec<String> {
    let registry = &endpoint.registry;
    let mut keys = Vec::new();
    let mut path = format!("{registry}/{}", endpoint.repository);
    while path.len() > registry.len() {
        keys.push(path.clone());
        let Some((shorter, _)) = path.rsplit_once('/') else { break };
        path = shorter.to_owned();
    }
    let host = |name: &str| {
        ["", "https://", "http://"]
            .iter()
            .flat_map(|scheme| {
                ["", "/", "/v1/", "/v2/"].iter().map(move |rest| format!("{scheme}{name}{rest}"))
            })
            .collect::<Vec<_>>()
    };
    keys.extend(host(registry));
    if registry == HUB {
        keys.push(HUB_KEY.to_owned());
        keys.extend(host("index.docker.io"));
    }
    keys
}

/// The name of a registry that helpers know.
fn server(endpoint: &Endpoint) -> String {
    if endpoint.registry == HUB { HUB_KEY.to_owned() } else { endpoint.registry.clone() }
}

/// Asks a credential helper: `docker-credential-NAME get`, which reads the registry's name and writes JSON.
fn ask(name: &str, server: &str, path: &Path) -> Result<Option<Credentials>, Error> {
    let program = format!("docker-credential-{name}");
    let wrong = |what: String| {
        Error::new(ErrorKind::Denied, format!("the credential helper {program} ({}) {what}", path.display()))
    };
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return Err(wrong(format!("has a name that is none: {}", shown(name.as_bytes()))));
    }
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Running::start(command).map_err(|e| wrong(e.to_string()))?;
    // The helper need not read; what it misses, its answer shows.
    let _sent = running.child.stdin.take().map(|mut input| input.write_all(format!("{server}\n").as_bytes()));
    let output = running.child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.map(|output| output.take(FILE).read_to_end(&mut bytes));
        read.map(|_| bytes)
    });
    let status = running.end(HELPER).map_err(|e| wrong(e.to_string()))?;
    let bytes = reader.join().ok().flatten().unwrap_or_default();
    if !status.success() {
        // "credentials not found in native keychain": the one error that has a fixed text.
        if String::from_utf8_lossy(&bytes).contains("credentials not found") {
            return Ok(None);
        }
        return Err(wrong(format!("fails: {status}")));
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        username: String,
        secret: String,
    }
    let answer: Answer =
        serde_json::from_slice(&bytes).map_err(|_| wrong("gives no credentials".to_owned()))?;
    let source = program.clone();
    Ok(Some(if answer.username == "<token>" {
        Credentials { identity_token: Some(answer.secret), source, ..Credentials::default() }
    } else {
        Credentials { name: answer.username, password: answer.secret, source, ..Credentials::default() }
    }))
}

#[cfg(test)]
mod tests;
