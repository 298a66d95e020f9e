//! Images of `build:`: made by Docker, Podman or buildah, whichever is there, and kept in the cache under a digest of all that goes
//! into them, so that an unchanged build is not made again.
//!
//! `context` computes that digest, `ignore` knows which files of the context do not count.

mod context;
mod ignore;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::archive;
use crate::child::Running;
use crate::digest::Digest;
use crate::engine::{Engine, installed};
use crate::error::{Error, ErrorKind};
use crate::progress::Event;
use crate::reference::Reference;
use crate::resolver::{ImageSource, Resolver};
use crate::store::Origin;

/// How long a build may take.
const PATIENCE: Duration = Duration::from_secs(7200);
/// Lines of a failed build's output that are told.
const TOLD: usize = 25;

/// Where a build has its files from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildContext {
    /// A directory of this machine.
    Dir(PathBuf),
    /// An address that the builder understands.
    Remote(String),
}

/// What is to be built: compose's `build:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildSpec {
    /// The files.
    pub context: BuildContext,
    /// The Dockerfile, relative to the context unless absolute; `None`: `Dockerfile`.
    pub dockerfile: Option<String>,
    /// The text of the Dockerfile, instead of a file.
    pub dockerfile_inline: Option<String>,
    /// Build arguments.
    pub args: Vec<(String, String)>,
    /// The stage.
    pub target: Option<String>,
    /// Labels of the image.
    pub labels: Vec<(String, String)>,
    /// Further contexts by name: directories, or what the builder understands.
    pub additional_contexts: Vec<(String, String)>,
    /// Lines of /etc/hosts, `name=address`.
    pub extra_hosts: Vec<String>,
    /// The network while building.
    pub network: Option<String>,
    /// Bytes of /dev/shm.
    pub shm_size: Option<u64>,
    /// Files that the build may read and that are not kept, by name.
    pub secrets: Vec<(String, PathBuf)>,
    /// SSH agents or keys, as written.
    pub ssh: Vec<String>,
    /// Images whose layers may be used.
    pub cache_from: Vec<String>,
    /// Use no layer of an earlier build; then it is built every time.
    pub no_cache: bool,
    /// Fetch the images that it begins with anew; then it is built every time.
    pub pull: bool,
}

impl BuildSpec {
    /// A build of this directory, with nothing special.
    pub fn new(context: impl Into<PathBuf>) -> BuildSpec {
        BuildSpec {
            context: BuildContext::Dir(context.into()),
            dockerfile: None,
            dockerfile_inline: None,
            args: Vec::new(),
            target: None,
            labels: Vec::new(),
            additional_contexts: Vec::new(),
            extra_hosts: Vec::new(),
            network: None,
            shm_size: None,
            secrets: Vec::new(),
            ssh: Vec::new(),
            cache_from: Vec::new(),
            no_cache: false,
            pull: false,
        }
    }

    /// The Dockerfile's path, unless its text is given.
    fn file(&self) -> Option<PathBuf> {
        match (&self.context, &self.dockerfile_inline) {
            (_, Some(_)) => None,
            (BuildContext::Dir(dir), None) => {
                if let Some(name) = &self.dockerfile {
                    return Some(dir.join(name));
                }
                // Podman and buildah prefer the other name.
                let other = dir.join("Containerfile");
                let usual = dir.join("Dockerfile");
                Some(if !usual.exists() && other.exists() { other } else { usual })
            }
            (BuildContext::Remote(_), None) => self.dockerfile.as_ref().map(PathBuf::from),
        }
    }
}

impl Resolver {
    /// Builds an image, or finds it in the cache if nothing of what goes into it has changed. `what` says whose it is, for messages.
    /// The result is resolved like any other name, and needs no network.
    ///
    /// # Errors
    /// Nothing that builds is there, with what to do; the build failed, with the end of its output; the context cannot be read.
    pub fn build(&self, what: &str, spec: &BuildSpec) -> Result<ImageSource, Error> {
        let _shared = self.store.shared()?;
        let digest = context::digest(spec).map_err(|e| e.at(what))?;
        let name = format!("localhost/bloodhound-build:{}", digest.hex());
        let reference = Reference::parse(&name)?;
        let source = ImageSource::Reference(name.clone());
        let again = spec.no_cache || spec.pull || matches!(spec.context, BuildContext::Remote(_));
        let known = self.store.record(&reference.to_string())?.filter(|record| self.store.complete(record));
        if known.is_some() && (!again || self.options.offline) {
            return Ok(source);
        }
        // Two who build the same wait for each other.
        let _mine = self
            .store
            .lock_layer(&digest, &|| self.note(format!("{what}: another process is building it")))?;
        if !again
            && self.store.record(&reference.to_string())?.is_some_and(|record| self.store.complete(&record))
        {
            return Ok(source);
        }
        let builder = Builder::find(&self.options.engine.engines()?).ok_or_else(|| nobody(what))?;
        self.note(format!("{what}: built by {}", builder.program()));
        self.run(&builder, spec, &name, &digest).map_err(|e| e.at(what))?;
        Ok(source)
    }

    fn note(&self, text: String) {
        self.options.progress.event(Event::Note(text));
    }

    fn run(&self, builder: &Builder, spec: &BuildSpec, name: &str, digest: &Digest) -> Result<(), Error> {
        // The text of a Dockerfile becomes a file outside of the context, whose digest it does not change.
        let inline = self.store.dir().join("tmp").join(format!("dockerfile-{}", digest.hex()));
        if let Some(text) = &spec.dockerfile_inline {
            std::fs::write(&inline, text).map_err(|e| Error::io(&inline, &e))?;
        }
        let mut command = builder.command(spec, name, &inline);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let built = self.watch(command);
        if spec.dockerfile_inline.is_some() {
            let _gone = std::fs::remove_file(&inline);
        }
        built?;
        let reference = Reference::parse(name)?;
        let progress = &*self.options.progress;
        match builder {
            Builder::Docker(engine) => drop(engine.export(&self.store, &reference, &reference, progress)?),
            Builder::Podman => {
                drop(Engine::Command("podman").export(&self.store, &reference, &reference, progress)?);
            }
            Builder::Buildah => {
                let path = self.store.dir().join("tmp").join(format!("built-{}", digest.hex()));
                // It refuses to write to a file that is there.
                let _gone = std::fs::remove_file(&path);
                let mut push = Command::new("buildah");
                push.args(["push", "--quiet", name, &format!("docker-archive:{}:{name}", path.display())]);
                push.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let loaded = self.watch(push).and_then(|()| {
                    let file = std::fs::File::open(&path).map_err(|e| Error::io(&path, &e))?;
                    archive::load_stream(&self.store, file, &reference, progress)
                });
                let _gone = std::fs::remove_file(&path);
                loaded?;
            }
        }
        // It is not compared with an engine's image: its name is that of its content.
        let record = self.store.record(&reference.to_string())?;
        let record = record.ok_or_else(|| Error::not_found("the image that was built is gone"))?;
        let origin = Origin::Build;
        self.store.set_record(&crate::store::Record { origin, ..record })
    }

    /// Runs a program, telling each line that it writes.
    fn watch(&self, command: Command) -> Result<(), Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut running = Running::start(command)?;
        let (out, err) = (running.child.stdout.take(), running.child.stderr.take());
        let last = std::sync::Mutex::new(std::collections::VecDeque::new());
        let line = |line: String| {
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if last.len() == TOLD {
                last.pop_front();
            }
            last.push_back(line.clone());
            drop(last);
            self.note(line);
        };
        let good = std::thread::scope(|scope| {
            let each = |stream: Option<Box<dyn std::io::Read + Send>>| {
                for text in stream.into_iter().flat_map(|stream| std::io::BufReader::new(stream).split(b'\n'))
                {
                    // A stream that breaks ends with its program.
                    let Ok(text) = text else { break };
                    line(String::from_utf8_lossy(&text).chars().take(400).collect());
                }
            };
            let out = out.map(|stream| Box::new(stream) as Box<dyn std::io::Read + Send>);
            let err = err.map(|stream| Box::new(stream) as Box<dyn std::io::Read + Send>);
            scope.spawn(move || each(out));
            scope.spawn(move || each(err));
            let ended = running.end(PATIENCE).map(|status| status.success());
            // Ends it if it is stuck, and so the two that read from it.
            drop(running);
            ended
        })?;
        if good {
            return Ok(());
        }
        let last = last.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last: Vec<String> = last.into_iter().map(|line| format!("\n  {line}")).collect();
        Err(Error::new(ErrorKind::Io, format!("`{program}` failed:{}", last.concat())))
    }
}

fn nobody(what: &str) -> Error {
    Error::not_found(format!(
        "{what} is to be built, and there is neither a Docker engine nor podman or buildah here: install one of them, or build the image \
         elsewhere (`docker compose build`), give the service its name by `image:`, and bring it here by \
         `docker save NAME | bloodhound image load -`"
    ))
}

/// What builds.
enum Builder {
    /// The command `docker`, with an engine that it reaches.
    Docker(Engine),
    Podman,
    Buildah,
}

impl Builder {
    /// The first that there is.
    fn find(engines: &[Engine]) -> Option<Builder> {
        let docker = engines.iter().find(|engine| match engine {
            Engine::Socket(path) => !path.ends_with("podman/podman.sock"),
            Engine::Command(name) => *name == "docker",
        });
        if let Some(engine) = docker.filter(|_| installed("docker")) {
            return Some(Builder::Docker(engine.clone()));
        }
        if installed("podman") {
            return Some(Builder::Podman);
        }
        installed("buildah").then_some(Builder::Buildah)
    }

    fn program(&self) -> &'static str {
        match self {
            Builder::Docker(_) => "docker",
            Builder::Podman => "podman",
            Builder::Buildah => "buildah",
        }
    }

    /// The three have the same options.
    fn command(&self, spec: &BuildSpec, name: &str, inline: &std::path::Path) -> Command {
        let mut command = Command::new(self.program());
        command.arg("build").args(["--tag", name, "--platform", "linux/amd64"]);
        if let Builder::Docker(Engine::Socket(path)) = self {
            command.env("DOCKER_HOST", format!("unix://{}", path.display()));
        }
        match spec.file() {
            Some(file) => drop(command.arg("--file").arg(file)),
            None if spec.dockerfile_inline.is_some() => drop(command.arg("--file").arg(inline)),
            None => {}
        }
        let pairs = |option: &'static str, pairs: &[(String, String)]| -> Vec<String> {
            pairs.iter().flat_map(|(key, value)| [option.to_owned(), format!("{key}={value}")]).collect()
        };
        command.args(pairs("--build-arg", &spec.args)).args(pairs("--label", &spec.labels));
        command.args(pairs("--build-context", &spec.additional_contexts));
        for (option, value) in [("--target", &spec.target), ("--network", &spec.network)] {
            command.args(value.iter().flat_map(|value| [option, value.as_str()]));
        }
        for host in &spec.extra_hosts {
            command.arg("--add-host").arg(host.replacen('=', ":", 1));
        }
        for (id, path) in &spec.secrets {
            command.arg("--secret").arg(format!("id={id},src={}", path.display()));
        }
        command.args(spec.ssh.iter().flat_map(|key| ["--ssh", key.as_str()]));
        command.args(spec.cache_from.iter().flat_map(|image| ["--cache-from", image.as_str()]));
        if let Some(bytes) = spec.shm_size {
            command.arg("--shm-size").arg(bytes.to_string());
        }
        if spec.no_cache {
            command.arg("--no-cache");
        }
        if spec.pull {
            command.arg("--pull");
        }
        match &spec.context {
            BuildContext::Dir(dir) => command.arg(dir),
            BuildContext::Remote(address) => command.arg(address),
        };
        command
    }
}
