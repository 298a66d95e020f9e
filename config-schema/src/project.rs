//! A configuration together with its compose file, and the checks that need both.
//!
//! Key type: [`Project`]. [`Project::load`] is for a run: whatever is missing is an error.
//! [`Project::validate`] looks at the files as far as they are there.

use std::path::{Path, PathBuf};

use crate::compose::{Compose, Variables};
use crate::config::{
    COMPOSE_NAMES, Check, Config, FaultGroup, FaultTargets, Faults, FileChecks, ScheduledFault,
};
use crate::decode::Located;
use crate::diagnostic::{self, Code, Diagnostic, Severity, has_errors, listed, quoted};
use crate::endpoint::Endpoint;
use crate::suggest::nearest;
use crate::tree::Source;
use bloodhound_faults::Kind;

mod upgrades;
mod volumes;

/// The configuration of a stack without a bloodhound.yaml.
pub const DEFAULTS: &str = include_str!("defaults.yaml");

/// Everything that a run is made of.
#[derive(Clone, Debug)]
pub struct Project {
    /// bloodhound.yaml.
    pub config: Config,
    /// The compose file that it names.
    pub compose: Compose,
}

/// What a command line says about the compose files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The files, each laid over those before it. None: those that the configuration names, that COMPOSE_FILE names, or those with a usual
    /// name.
    pub files: Vec<PathBuf>,
    /// Profiles that are active besides those of COMPOSE_PROFILES.
    pub profiles: Vec<String>,
    /// The files that the project names are not on this machine: what they hold is known otherwise.
    pub elsewhere: bool,
    /// The project's name, whatever the environment and the directory say.
    pub name: Option<String>,
    /// A file with a schedule of faults, and its text: only its faults happen.
    pub faults: Option<(PathBuf, String)>,
}

impl Selection {
    /// One file.
    pub fn file(path: impl Into<PathBuf>) -> Selection {
        Selection { files: vec![path.into()], ..Selection::default() }
    }

    /// The environment with the profiles and the project's name among its variables.
    pub fn environment(&self, environment: &Variables) -> Variables {
        let mut environment = environment.clone();
        environment.extend(self.name.iter().map(|name| ("COMPOSE_PROJECT_NAME".to_owned(), name.clone())));
        if !self.profiles.is_empty() {
            let all = environment.entry("COMPOSE_PROFILES".to_owned()).or_default();
            for profile in &self.profiles {
                if !all.is_empty() {
                    all.push(',');
                }
                all.push_str(profile);
            }
        }
        environment
    }
}

impl Project {
    /// Loads a configuration and its compose files for a run. What `compose` names takes the place of the files that the
    /// configuration names; `environment` is what `$NAME` stands for in the compose file.
    /// The result is `None` exactly if there is an error among the diagnostics.
    pub fn load(
        config: &Path,
        compose: &Selection,
        environment: &Variables,
    ) -> (Option<Project>, Vec<Diagnostic>) {
        Project::load_with(config, compose, environment, FileChecks::Strict)
    }

    /// Everything that can be said about the files. A compose file or script that is not there is a warning.
    pub fn validate(config: &Path, compose: &Selection, environment: &Variables) -> Vec<Diagnostic> {
        Project::load_with(config, compose, environment, FileChecks::Lenient).1
    }

    /// As [`Project::validate`], with the project if there is no error and everything is there.
    pub fn check(
        config: &Path,
        compose: &Selection,
        environment: &Variables,
    ) -> (Option<Project>, Vec<Diagnostic>) {
        Project::load_with(config, compose, environment, FileChecks::Lenient)
    }

    fn load_with(
        config: &Path,
        compose: &Selection,
        environment: &Variables,
        files: FileChecks,
    ) -> (Option<Project>, Vec<Diagnostic>) {
        let (config, diagnostics) = Config::load(config, files);
        Project::with(config, diagnostics, compose, environment, files)
    }

    /// A stack whose configuration would be at `config`, but is not there: [`DEFAULTS`] are asked of it.
    pub fn without_config(
        config: &Path,
        compose: &Selection,
        environment: &Variables,
        files: FileChecks,
    ) -> (Option<Project>, Vec<Diagnostic>) {
        let (config, diagnostics) = Config::decode(Source::new(config, DEFAULTS), files);
        Project::with(config, diagnostics, compose, environment, files)
    }

    fn with(
        config: Option<Config>,
        mut diagnostics: Vec<Diagnostic>,
        compose: &Selection,
        environment: &Variables,
        files: FileChecks,
    ) -> (Option<Project>, Vec<Diagnostic>) {
        let Some(config) = config else { return (None, diagnostics) };
        let schedule = compose.faults.clone();
        let paths = match compose_paths(&config, compose, environment, files) {
            Ok(paths) => paths,
            Err(diagnostic) => {
                diagnostics.push(*diagnostic);
                diagnostic::sort(&mut diagnostics);
                return (None, diagnostics);
            }
        };
        let (mut compose, mut about_compose) = match compose.elsewhere {
            true => Compose::load_elsewhere(&paths, &compose.environment(environment)),
            false => Compose::load_files(&paths, &compose.environment(environment)),
        };
        if let Some(compose) = &mut compose {
            compose.define(&config.faults.definitions(), &mut about_compose);
            diagnostics.extend(check_names(&config, compose));
            diagnostic::sort(&mut diagnostics);
        }
        diagnostics.extend(about_compose);
        let mut project = compose.map(|compose| Project { config, compose });
        if let (Some(project), Some((path, text))) = (&mut project, schedule) {
            diagnostics.extend(project.only_schedule(&Source::new(&path, &text)));
        }
        (project.filter(|_| !has_errors(&diagnostics)), diagnostics)
    }
}

/// The compose files to use: the caller's, those named by COMPOSE_FILE or by the configuration, or those with usual names.
fn compose_paths(
    config: &Config,
    given: &Selection,
    environment: &Variables,
    files: FileChecks,
) -> Result<Vec<PathBuf>, Box<Diagnostic>> {
    if !given.files.is_empty() {
        return Ok(given.files.clone());
    }
    let severity = match files {
        FileChecks::Strict => Severity::Error,
        FileChecks::Lenient => Severity::Warning,
    };
    let source = &config.source;
    if let Some(named) = &config.compose {
        if named.value.is_file() {
            return Ok(vec![named.value.clone()]);
        }
        return Err(Box::new(no_file(config, named, severity)));
    }
    let dir = source.dir();
    usual_files(&dir, environment).ok_or_else(|| {
        let message = "no compose file: the key `compose` is missing";
        let mut d = Diagnostic::about_file(Code::MissingKey, severity, &source.name, message);
        d.help(format!("without the key, {} are looked for beside this file", listed(COMPOSE_NAMES, "and")));
        Box::new(d)
    })
}

/// The compose files of a directory where none is named, as an engine finds them: those of COMPOSE_FILE, else the first one with a usual
/// name and the override file beside it.
pub fn usual_files(dir: &Path, environment: &Variables) -> Option<Vec<PathBuf>> {
    if let Some(list) = environment.get("COMPOSE_FILE").filter(|list| !list.is_empty()) {
        let separator =
            environment.get("COMPOSE_PATH_SEPARATOR").filter(|s| !s.is_empty()).map_or(":", |s| s);
        let paths = list.split(separator).filter(|path| !path.is_empty());
        return Some(paths.map(|path| crate::config::resolve(dir, path)).collect());
    }
    let in_dir = |name: &&str| crate::config::resolve(dir, name);
    let found = COMPOSE_NAMES.iter().map(in_dir).find(|path| path.is_file())?;
    let overriding = OVERRIDE_NAMES.iter().map(in_dir).find(|path| path.is_file());
    Some([found].into_iter().chain(overriding).collect())
}

/// The names of override files, in the order in which they are tried.
const OVERRIDE_NAMES: &[&str] = &[
    "compose.override.yaml",
    "compose.override.yml",
    "docker-compose.override.yaml",
    "docker-compose.override.yml",
];

/// Why the compose file that the configuration names is none.
fn no_file(config: &Config, named: &Located<PathBuf>, severity: Severity) -> Diagnostic {
    let (path, place) = (named.value.display(), config.source.place(named.span));
    if !named.value.exists() {
        let message = format!("the compose file {path} does not exist");
        let mut d = Diagnostic::at(Code::MissingFile, severity, place, message);
        d.help("paths are relative to the directory of this file");
        return d;
    }
    // What is there will not become a file by itself: an error also where files may be missing.
    let at = |message| Diagnostic::at(Code::Unreadable, Severity::Error, place, message);
    if !named.value.is_dir() {
        return at(format!("the compose file {path} is not a file"));
    }
    let mut d = at(format!("`compose` names a directory: {path}"));
    let inside = COMPOSE_NAMES.iter().map(|name| named.value.join(name)).find(|path| path.is_file());
    match inside {
        Some(inside) => d.help(format!("name the file in it: {}", inside.display())),
        None => d.help("name the compose file itself"),
    };
    d
}

/// Checks that every service and host that a configuration names is in the compose file.
pub fn check_names(config: &Config, compose: &Compose) -> Vec<Diagnostic> {
    let hosts = compose.host_names();
    let services: Vec<String> = compose.services.iter().map(|s| s.name.clone()).collect();
    let mut names = Names {
        source: &config.source,
        compose,
        faults: &config.faults,
        hosts,
        services,
        groups: Vec::new(),
        diagnostics: Vec::new(),
    };
    for target in config.workload.iter().flat_map(|w| &w.targets) {
        names.host(target);
    }
    for property in &config.properties {
        match &property.check {
            Check::Http { endpoint, .. } => names.host(endpoint),
            Check::Custom { service: Some(service), .. } => names.service(service),
            Check::NoCrash { services: Some(services) } | Check::Healthy { services: Some(services), .. } => {
                services.iter().for_each(|s| names.service(s));
            }
            Check::Linearizability { .. }
            | Check::Custom { .. }
            | Check::NoCrash { .. }
            | Check::Healthy { .. } => {}
        }
    }
    let faults = &config.faults;
    faults.services.iter().flatten().for_each(|service| names.service(service));
    names.groups(&faults.groups);
    names.upgrades();
    names.volumes();
    let named = faults.targets.values().flat_map(FaultTargets::names);
    for name in faults.budget.spare.iter().chain(named) {
        names.service_or_group(name);
    }
    for (kind, targets) in faults.targets.iter().filter(|(kind, _)| kind.declaration().has_group()) {
        targets.services.iter().for_each(|name| names.only_group(*kind, name));
    }
    names.schedule(&faults.schedule);
    names.diagnostics
}

impl Project {
    /// The project with the schedule of a file in the place of all that its configuration says of faults. `None` exactly if there is an
    /// error among the diagnostics.
    pub fn with_schedule(mut self, source: &Source) -> (Option<Project>, Vec<Diagnostic>) {
        let diagnostics = self.only_schedule(source);
        (Some(self).filter(|_| !has_errors(&diagnostics)), diagnostics)
    }

    /// Puts the schedule of a file in the place of all that the configuration says of faults ([`Config::only_schedule`]).
    fn only_schedule(&mut self, source: &Source) -> Vec<Diagnostic> {
        let mut diagnostics = self.config.only_schedule(source);
        let services = self.compose.services.iter().map(|s| s.name.clone()).collect();
        let (compose, faults, hosts) = (&self.compose, &self.config.faults, Vec::new());
        let groups = faults.groups.iter().map(|group| group.name.value.clone()).collect();
        let mut names = Names { source, compose, faults, hosts, services, groups, diagnostics: Vec::new() };
        names.schedule(&faults.schedule);
        diagnostics.append(&mut names.diagnostics);
        diagnostic::sort(&mut diagnostics);
        diagnostics
    }
}

struct Names<'a> {
    /// The file that names them.
    source: &'a Source,
    compose: &'a Compose,
    faults: &'a Faults,
    hosts: Vec<String>,
    services: Vec<String>,
    /// The groups of services.
    groups: Vec<String>,
    diagnostics: Vec<Diagnostic>,
}

impl Names<'_> {
    /// The groups of services: their members are services, and none is called like a service.
    fn groups(&mut self, groups: &[FaultGroup]) {
        for group in groups {
            group.services.iter().for_each(|service| self.service(service));
            let mut instances = self.compose.services.iter().flat_map(|service| service.instances());
            let name = &group.name.value;
            if self.services.contains(name) || instances.any(|instance| instance == *name) {
                let place = self.source.place(group.name.span);
                let message = format!("{} is a service, so no group can be called so", quoted(name));
                let mut d = Diagnostic::at(Code::DuplicateName, Severity::Error, place, message);
                d.help("wherever a service is named, a group may be");
                self.diagnostics.push(d);
            }
            self.groups.push(name.clone());
        }
    }

    fn service_or_group(&mut self, name: &Located<String>) {
        if !self.groups.contains(&name.value) {
            self.service(name);
        }
    }

    /// A kind that hits groups cannot hit a service.
    fn only_group(&mut self, kind: Kind, name: &Located<String>) {
        if self.services.contains(&name.value) {
            let message = format!("{kind} hits groups, and {} is a service", quoted(&name.value));
            let place = self.source.place(name.span);
            let mut d = Diagnostic::at(Code::Malformed, Severity::Error, place, message);
            match self.groups.is_empty() {
                true => d.help("name groups of services: `groups: {rack-a: [kv1, kv2]}`"),
                false => d.help(format!("groups: {}", listed(&self.groups, "and"))),
            };
            self.diagnostics.push(d);
        }
    }

    fn service(&mut self, name: &Located<String>) {
        if !self.services.contains(&name.value) {
            let meant = nearest(&name.value, &self.services).map(str::to_owned);
            self.unknown(name.span, &name.value, meant);
        }
    }

    /// The services of a schedule, which may also be single replicas.
    fn schedule(&mut self, schedule: &[ScheduledFault]) {
        let replicas: Vec<String> = self.compose.services.iter().flat_map(|s| s.instances()).collect();
        for name in schedule.iter().flat_map(ScheduledFault::names) {
            if !replicas.contains(&name.value) {
                self.service_or_group(name);
            }
        }
        for entry in schedule {
            self.can_be_upgraded(entry);
            self.volume_of(entry);
        }
    }

    fn host(&mut self, endpoint: &Located<Endpoint>) {
        let host = &endpoint.value.host;
        if endpoint.value.is_local() {
            let port = endpoint.value.port;
            if self.compose.published(port).is_none() {
                let place = self.source.place(endpoint.span);
                let ports: Vec<String> = self.compose.published_ports().iter().map(u16::to_string).collect();
                let message = format!("no service in {} publishes the port {port}", self.compose.source.name);
                let mut d = Diagnostic::at(Code::UnknownService, Severity::Error, place, message);
                match ports.is_empty() {
                    true => {
                        d.help("name the service itself, such as http://web:80, or publish the port: `ports`")
                    }
                    false => d.help(format!("published: {}", listed(&ports, "and"))),
                };
                self.diagnostics.push(d);
            }
            return;
        }
        if !self.hosts.contains(host) {
            let meant = nearest(host, &self.hosts).map(|known| {
                let fixed = Endpoint { host: known.to_owned(), ..endpoint.value.clone() };
                fixed.to_string()
            });
            self.unknown(endpoint.span, host, meant);
        }
    }

    fn error(&mut self, name: &Located<String>, message: String) -> &mut Diagnostic {
        let place = self.source.place(name.span);
        self.diagnostics.push(Diagnostic::at(Code::Malformed, Severity::Error, place, message));
        self.diagnostics.last_mut().expect("it was pushed")
    }

    fn unknown(&mut self, span: crate::tree::Span, name: &str, meant: Option<String>) {
        let place = self.source.place(span);
        let file = &self.compose.source.name;
        let message = format!("no service {} in {file}", quoted(name));
        let mut d = Diagnostic::at(Code::UnknownService, Severity::Error, place, message);
        d.help(format!("services: {}", listed(&self.services, "and"))).suggest(meant);
        self.diagnostics.push(d);
    }
}
