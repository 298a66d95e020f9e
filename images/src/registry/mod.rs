//! Registries: Docker's HTTP API version 2, which is also the OCI distribution specification.
//!
//! `settings` says which servers are asked for a registry (mirrors first), `credentials` with which name and password, `auth`
//! answers their challenges, `download` brings a blob, and this module the documents of an image and the order of all that.

pub(crate) mod auth;
mod credentials;
mod download;
pub(crate) mod settings;

use std::sync::Mutex;

use crate::digest::Digest;
use crate::error::{Error, ErrorKind, shown};
use crate::http::url::Url;
use crate::http::{Client, Failed, Request, Response};
use crate::image::Documents;
use crate::limits::exceeded;
use crate::manifest::{self, Descriptor, Document, MEDIA_TYPES};
use crate::parallel;
use crate::progress::{Event, Progress};
use crate::reference::Reference;
use crate::store::{Origin, Store};
use auth::Session;
use settings::{Endpoint, Settings};

/// Tries of one request, at most.
const TRIES: u32 = 5;
/// Redirects that are followed, at most.
const REDIRECTS: u32 = 8;
/// Indices that refer to indices, at most.
const DEPTH: u32 = 4;
/// Bytes of an error's text that are read.
const ERROR: u64 = 16 << 10;
/// How long a server may ask to wait.
const RETRY_AFTER: u64 = 30;

/// Brings images from registries.
pub(crate) struct Registries<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) progress: &'a dyn Progress,
}

/// A server that is asked for one repository.
struct Server<'a> {
    client: Client,
    endpoint: Endpoint,
    repository: String,
    progress: &'a dyn Progress,
    session: Mutex<Session>,
}

impl Registries<'_> {
    /// Brings an image into the cache, under its name. Mirrors are asked first, then the registry itself.
    pub(crate) fn pull(&self, reference: &Reference) -> Result<(), Error> {
        let client = self.settings.client()?;
        let endpoints = self.settings.endpoints(reference)?;
        let mut failed: Option<Error> = None;
        for endpoint in endpoints {
            if let Some(error) = failed.take() {
                if endpoint.without_tls && error.kind() != ErrorKind::Network {
                    return Err(error.at(reference.familiar()));
                }
                if !endpoint.without_tls {
                    let text = format!("{}: a mirror cannot give it: {error}", reference.familiar());
                    self.progress.event(Event::Note(text));
                }
            }
            let session = Session::new(credentials::find(&endpoint, self.settings, self.progress)?);
            let server = Server {
                client: client.clone(),
                repository: endpoint.repository.clone(),
                endpoint,
                progress: self.progress,
                session: Mutex::new(session),
            };
            match self.pull_from(&server, reference) {
                Ok(()) => return Ok(()),
                // What the disk or a limit refuses, every other server's would be refused as well.
                Err(e) if matches!(e.kind(), ErrorKind::Io | ErrorKind::Limit) => return Err(e),
                Err(e) => failed = Some(e),
            }
        }
        // The registry itself is last, and its answer counts.
        let last = failed.unwrap_or_else(|| Error::not_found("there is no registry to ask"));
        Err(last.at(reference.familiar()))
    }

    fn pull_from(&self, server: &Server<'_>, reference: &Reference) -> Result<(), Error> {
        let limits = self.store.limits();
        let (mut bytes, first) =
            server.manifest(&reference.tag_or_digest(), reference.digest, limits.manifest)?;
        for _ in 0..DEPTH {
            match manifest::parse(&bytes, limits)? {
                Document::Index(manifests) => {
                    let chosen = manifest::choose(&manifests)?;
                    chosen.document_size(limits)?;
                    let digest = chosen.digest()?;
                    (bytes, _) = server.manifest(&digest.to_string(), Some(digest), limits.manifest)?;
                }
                Document::Manifest(parsed) => {
                    let config = self.document(server, &parsed.config)?;
                    let documents = Documents::new(bytes, parsed, config)?;
                    self.layers(server, &documents)?;
                    let names = [reference.to_string()];
                    self.store.add_image(&documents, &names, &Origin::Registry, Some(first))?;
                    return Ok(());
                }
            }
        }
        Err(Error::damaged(format!("an index refers to an index more than {DEPTH} times")))
    }

    /// A small blob: the configuration.
    fn document(&self, server: &Server<'_>, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let (digest, size) = (descriptor.digest()?, descriptor.document_size(self.store.limits())?);
        if self.store.has_blob(&digest) {
            return self.store.blob(&digest);
        }
        let path = format!("blobs/{digest}");
        let response = server.request("GET", &path, vec![], true)?;
        let bytes = response.bytes(size).map_err(|e| server.network(&e))?;
        let found = Digest::of(&bytes);
        if found != digest {
            let text = format!("blob {digest} came with digest {found} and {} bytes of {size}", bytes.len());
            return Err(Error::damaged(text));
        }
        Ok(bytes)
    }

    fn layers(&self, server: &Server<'_>, documents: &Documents) -> Result<(), Error> {
        let limits = self.store.limits();
        let mut sum: u64 = 0;
        for descriptor in &documents.parsed.layers {
            let size = descriptor.size()?;
            if size > limits.layer {
                let text = format!("layer {} has", descriptor.digest()?);
                return Err(exceeded(&text, limits.layer, "bytes", "BLOODHOUND_IMAGE_MAX_LAYER"));
            }
            sum = sum.saturating_add(size);
        }
        if sum > limits.image {
            return Err(exceeded("the image has", limits.image, "bytes", "BLOODHOUND_IMAGE_MAX_SIZE"));
        }
        let layers: Vec<(&Descriptor, Digest)> =
            documents.parsed.layers.iter().zip(documents.layers.iter().copied()).collect();
        parallel::each(&layers, &|(descriptor, plain): &(&Descriptor, Digest)| {
            let blob = descriptor.digest()?;
            if self.store.has_layer(plain) {
                return Ok(());
            }
            let _mine = self.store.lock_layer(plain, &|| self.progress.event(Event::Waiting { blob }))?;
            if self.store.has_layer(plain) {
                return Ok(());
            }
            let (path, file) = server.download(self.store, &blob, descriptor.size()?)?;
            self.store.add_layer(plain, file)?;
            // It is not needed any more; if it cannot be removed, `prune` does.
            let _gone = std::fs::remove_file(path);
            self.progress.event(Event::Done { blob });
            Ok(())
        })
    }
}

impl Server<'_> {
    /// A manifest or index, and its digest.
    fn manifest(&self, name: &str, expected: Option<Digest>, most: u64) -> Result<(Vec<u8>, Digest), Error> {
        let accept = vec![("Accept", MEDIA_TYPES.join(", "))];
        let response = self.request("GET", &format!("manifests/{name}"), accept, true)?;
        let bytes = response.bytes(most).map_err(|e| self.network(&e))?;
        let digest = Digest::of(&bytes);
        match expected {
            Some(expected) if expected != digest => {
                Err(Error::damaged(format!("manifest {expected} came with digest {digest}")))
            }
            _ => Ok((bytes, digest)),
        }
    }

    /// Sends a request until it is answered: after pauses if the server cannot, with credentials if it wants them, elsewhere if
    /// it says so. What comes back is an answer of success.
    fn request(
        &self,
        method: &'static str,
        path: &str,
        headers: Vec<(&'static str, String)>,
        document: bool,
    ) -> Result<Response, Error> {
        let mut challenged = false;
        let mut tries = 0;
        loop {
            let url = self.url(path)?;
            let sent = self.follow(&Request {
                method,
                url: &url,
                headers: headers.clone(),
                body: Vec::new(),
                document,
            });
            let pause = match sent {
                Ok(response) => match response.status {
                    200..=299 => return Ok(response),
                    401 if !challenged => {
                        challenged = true;
                        let challenges: Vec<String> =
                            response.all("www-authenticate").map(str::to_owned).collect();
                        let mut session = self.session();
                        session.answer(&challenges, &self.client, &self.endpoint, &self.repository)?;
                        continue;
                    }
                    408 | 429 | 500..=599 if tries + 1 < TRIES => {
                        let after = response.header("retry-after").and_then(|text| text.parse().ok());
                        let after = after
                            .map(|seconds: u64| std::time::Duration::from_secs(seconds.min(RETRY_AFTER)));
                        let text = format!("{}: status {}, asked again", url.place(), response.status);
                        self.progress.event(Event::Note(text));
                        after
                    }
                    status => return Err(self.refused(status, path, response)),
                },
                Err(e) if e.tls || e.error.kind() != ErrorKind::Network => return Err(e.error),
                Err(e) if e.transient && tries + 1 < if e.slow { 2 } else { TRIES } => {
                    self.progress.event(Event::Note(format!("{}, asked again", e.error)));
                    None
                }
                Err(e) => return Err(e.error),
            };
            // A hundredth of what is asked for in tests, where the first pause is that short.
            let own = self.client.timeouts.backoff * 2_u32.pow(tries);
            std::thread::sleep(pause.map_or(own, |pause| pause.min(self.client.timeouts.idle)));
            tries += 1;
        }
    }

    /// Sends a request with what credentials there are, and follows redirects. Another server is shown no credentials.
    fn follow(&self, request: &Request<'_>) -> Result<Response, Failed> {
        let permanent = |error: Error| Failed { error, transient: false, slow: false, tls: false };
        let mut url = request.url.clone();
        for _ in 0..REDIRECTS {
            let mut headers = request.headers.clone();
            if url.same_server(request.url)
                && let Some(value) = self.session().header()
            {
                headers.push(("Authorization", value));
            }
            let sent = Request { url: &url, headers, body: request.body.clone(), ..*request };
            let response = self.client.send(&sent, !self.endpoint.insecure)?;
            if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let location = response.header("location").ok_or_else(|| {
                permanent(Error::new(ErrorKind::Network, format!("{}: a redirect to nowhere", url.place())))
            })?;
            let next =
                url.join(location).map_err(|e| permanent(e.at(format!("a redirect of {}", url.place()))))?;
            if url.scheme == crate::http::url::Scheme::Https && next.scheme != url.scheme {
                let text = format!("{}: a redirect to {}, which is not https", url.place(), next.place());
                return Err(permanent(Error::refused(text)));
            }
            url = next;
        }
        let text = format!("{}: more than {REDIRECTS} redirects", request.url.place());
        Err(permanent(Error::new(ErrorKind::Network, text)))
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn url(&self, path: &str) -> Result<Url, Error> {
        Url::parse(&format!("{}/v2/{}/{path}", self.endpoint.base, self.repository))
    }

    fn network(&self, error: &std::io::Error) -> Error {
        Error::new(ErrorKind::Network, format!("{}: {error}", self.endpoint.base))
    }

    /// What an answer that is none of success means.
    fn refused(&self, status: u16, path: &str, response: Response) -> Error {
        let said = response.bytes(ERROR).ok().and_then(|bytes| message(&bytes));
        let said = said.map_or_else(String::new, |said| format!(" ({said})"));
        let (server, repository) = (&self.endpoint.base, &self.repository);
        match status {
            401 | 403 => {
                let with = self.session().who();
                let text = format!(
                    "{server} refuses access to {repository}{said}: status {status}, {with}. If it exists, log in with \
                     `docker login {0}`, `podman login {0}`, or give a file with --registry-config",
                    self.endpoint.registry
                );
                Error::new(ErrorKind::Denied, text)
            }
            404 => Error::not_found(format!(
                "{server} has no {} of {repository}{said}",
                path.replacen('/', " ", 1)
            )),
            416 => Error::new(ErrorKind::Range, format!("{server} cannot continue {path}{said}")),
            429 => Error::new(
                ErrorKind::Network,
                format!("{server} allows no more requests for now{said}: wait, log in, or use a mirror"),
            ),
            _ => Error::new(
                ErrorKind::Network,
                format!("{server}: status {status} for {path} of {repository}{said}"),
            ),
        }
    }
}

/// The text of the first error of a registry's answer.
fn message(bytes: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let error = value.get("errors")?.get(0)?;
    let text = |key: &str| error.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    Some(shown(format!("{} {}", text("code"), text("message")).trim().as_bytes()))
}
