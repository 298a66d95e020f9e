//! The compose file: services, networks, volumes, and the order in which services start.
//!
//! Key type: [`Compose`]; [`Compose::load_files`] reads, substitutes, merges, decodes and checks: `load` and `merge`
//! make one tree of all files, which `service` and its neighbours decode. `keys` says of every
//! key of the compose specification what becomes of it.

mod build;
mod container_limits;
mod dotenv;
mod environment;
mod interpolate;
pub(crate) mod keys;
mod load;
mod merge;
mod mounts;
mod network;
mod ports;
mod process;
mod resolve;
mod resources;
mod service;
mod shell;
mod spare;
mod types;

use std::path::{Path, PathBuf};

pub use interpolate::Variables;
pub use mounts::{Mount, MountSource, VolumesFrom};
pub use network::{Network, overlap, overlap6};
pub use process::{
    HealthOverrides, HealthTest, Healthcheck, HealthcheckSetting, Hook, Restart, Ulimit, User,
};
pub use resources::{Content, Resource, ResourceMount, Volume};
pub use types::{
    Attachment, Build, BuildContext, Compose, Condition, Dependency, ExtraHost, Idle, Link, Namespace,
    NetworkMode, Port, PullPolicy, Rootfs, Service,
};

use crate::decode::Ctx;
use crate::diagnostic::{self, Code, Diagnostic, Severity, has_errors, listed, quoted};
use crate::tree::{self, Entry, Source};

use self::load::{Loader, Project};
use self::service::{Extension, Inputs};
use self::spare::Spare;

impl Compose {
    /// Reads a project of one file; see [`Compose::load_files`].
    pub fn load(path: &Path, environment: &Variables) -> (Option<Compose>, Vec<Diagnostic>) {
        Compose::load_files(&[path.to_owned()], environment)
    }

    /// Reads a project: the files in their order, each laid over those before it. `environment` is what `$NAME` stands for; variables of the
    /// file `.env` beside the first file are added where `environment` has none. The environment of this process is never looked
    /// at. The result is `None` exactly if there is an error among the diagnostics.
    pub fn load_files(files: &[PathBuf], environment: &Variables) -> (Option<Compose>, Vec<Diagnostic>) {
        let Some((first, more)) = files.split_first() else {
            let message = "no compose file is named";
            return (None, vec![Diagnostic::about_file(Code::NothingToDo, Severity::Error, "", message)]);
        };
        match Source::read(first) {
            Ok(source) => Compose::decode_with(source, more, environment, false),
            Err(diagnostic) => (None, vec![*diagnostic]),
        }
    }

    /// As [`Compose::load_files`], of a project whose other files are not on this machine: it is no error that they are not there.
    pub fn load_elsewhere(files: &[PathBuf], environment: &Variables) -> (Option<Compose>, Vec<Diagnostic>) {
        let Some((first, more)) = files.split_first() else { return Compose::load_files(files, environment) };
        match Source::read(first) {
            Ok(source) => Compose::decode_with(source, more, environment, true),
            Err(diagnostic) => (None, vec![*diagnostic]),
        }
    }

    /// Decodes a text that has been read already; see [`Compose::load`].
    pub fn decode(source: Source, environment: &Variables) -> (Option<Compose>, Vec<Diagnostic>) {
        Compose::decode_with(source, &[], environment, false)
    }

    fn decode_with(
        source: Source,
        more: &[PathBuf],
        environment: &Variables,
        elsewhere: bool,
    ) -> (Option<Compose>, Vec<Diagnostic>) {
        let mut ctx = Ctx { lenient: true, ..Ctx::new(source) };
        let project = Loader::new(&mut ctx).project(more, environment);
        let compose = project.and_then(|project| top(&mut ctx, &project));
        let mut diagnostics = ctx.diagnostics;
        diagnostics.retain(|diagnostic| !elsewhere || diagnostic.code != Code::MissingFile);
        diagnostic::sort(&mut diagnostics);
        if has_errors(&diagnostics) {
            return (None, diagnostics);
        }
        assert!(compose.is_some(), "a file without errors has a meaning: {diagnostics:?}");
        (compose, diagnostics)
    }
}

fn top(ctx: &mut Ctx, project: &Project) -> Option<Compose> {
    let (node, variables, scopes) = (&project.tree, &project.variables, &project.scopes);
    let mut inputs = Inputs { files: project.inputs.clone(), values: Vec::new() };
    let fields = keys::open(ctx, node, "", "")?;
    service::mistyped(ctx, fields.entries);
    let networks = fields.node("networks").map(|n| network::declared(ctx, n)).unwrap_or_default();
    let volumes = fields.node("volumes").map(|n| resources::volumes(ctx, n)).unwrap_or_default();
    let mut resource = |section| {
        fields.node(section).map(|n| resources::declared(ctx, n, section, scopes)).unwrap_or_default()
    };
    let (secrets, configs) = (resource("secrets"), resource("configs"));
    let volume_names: Vec<String> = volumes.iter().map(|v| v.name.clone()).collect();
    let extension = fields
        .node("x-bloodhound")
        .and_then(|node| service::decode_extension(ctx, node, "x-bloodhound", &Extension::default()));
    let extension = extension.unwrap_or_default();
    let around = service::Around { scopes, volumes: &volume_names, extension: &extension };
    let entries = fields.require(ctx, "services", Ctx::entries)?;
    let (mut services, mut spare) = (Vec::new(), Vec::new());
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        if !service_name(ctx, entry) {
            continue;
        }
        if let Some(left_out) = inactive(ctx, entry, variables) {
            spare.push(Spare::inactive(ctx, entry, around, left_out));
        } else if let Some(service) = service::service(ctx, entry, around, &mut inputs) {
            match service.replicas {
                0 => spare.push(Spare::without_replicas(service)),
                _ => services.push(service),
            }
        }
    }
    if services.is_empty() && !has_errors(&ctx.diagnostics) {
        let span = fields.entry("services").map_or(fields.span, |entry| entry.key_span);
        ctx.error(Code::NothingToDo, span, "there are no services");
    }
    let mut compose = Compose {
        source: ctx.source.clone(),
        more: ctx.more.clone(),
        name: project.name.clone(),
        services,
        start_order: Vec::new(),
        networks,
        volumes,
        secrets,
        configs,
        inputs: inputs.files,
        env_file_values: inputs.values,
        idle: Vec::new(),
        definitions: Vec::new(),
        spare,
    };
    resolve::resolve(ctx, &mut compose);
    compose.idle = std::mem::take(&mut ctx.idle);
    Some(compose)
}

fn service_name(ctx: &mut Ctx, entry: &Entry) -> bool {
    let valid = entry.key.starts_with(|c: char| c.is_ascii_alphanumeric())
        && entry.key.len() <= 63
        && entry.key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !valid {
        let message = format!("{} is not a name for a service", quoted(&entry.key));
        ctx.error(Code::Malformed, entry.key_span, message)
            .help("letters, digits, `-`, `_` and `.`, at most 63 of them");
    }
    valid
}

/// A service runs if it has no profiles, or one of them is named by COMPOSE_PROFILES. What is told of one that does not.
fn inactive(ctx: &mut Ctx, entry: &Entry, variables: &Variables) -> Option<Diagnostic> {
    let tree::Value::Map(fields) = &entry.value.value else { return None };
    let profiles = fields.iter().find(|field| field.key == "profiles")?;
    let path = format!("services.{}.profiles", entry.key);
    let names = network::names(ctx, &profiles.value, &path);
    let chosen = variables.get("COMPOSE_PROFILES").map_or("", String::as_str);
    if names.is_empty() || chosen.split(',').any(|p| p == "*" || names.iter().any(|n| n == p.trim())) {
        return None;
    }
    let message = format!("the service {} is left out: its profile is not active", quoted(&entry.key));
    ctx.warn(Code::NothingToDo, profiles.key_span, message)
        .help(format!("set COMPOSE_PROFILES to {}", listed(&names, "or")));
    ctx.diagnostics.last().cloned()
}
