//! One service of a compose file.
//!
//! Key function: [`service`]. Everything about a service that needs no other service is checked here; what
//! concerns several is in `resolve`.

use std::path::{Path, PathBuf};

use crate::decode::{Ctx, Fields, Located};
use crate::diagnostic::{Code, listed, quoted};
use crate::suggest::nearest;
use crate::tree::{Entry, Node, ScalarKind, Source, Value};

use super::interpolate::Variables;
use super::types::{Condition, Dependency, Healthcheck, Mount, Restart, Rootfs, Service, User};
use super::{dotenv, graded_fields, keys, mounts, network, shell};

/// What the decoders of services need to know.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) base: &'a Path,
    pub(super) variables: &'a Variables,
    pub(super) volumes: &'a [String],
}

/// Finds the fields of one service; a key that is absent or nothing is `None`.
struct Keys<'n> {
    entries: &'n [Entry],
    path: String,
}

impl<'n> Keys<'n> {
    fn node(&self, key: &str) -> Option<&'n Node> {
        assert!(keys::SERVICE.contains(&key), "{key} is modelled");
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|n| !n.is_null())
    }

    fn get<T>(
        &self,
        ctx: &mut Ctx,
        key: &str,
        decode: impl FnOnce(&mut Ctx, &'n Node, &str) -> Option<T>,
    ) -> Option<T> {
        decode(ctx, self.node(key)?, &format!("{}.{key}", self.path))
    }
}

/// Decodes a service; env files that were read are added to `inputs`.
pub(super) fn service(
    ctx: &mut Ctx,
    entry: &Entry,
    around: Around<'_>,
    inputs: &mut Vec<PathBuf>,
) -> Option<Service> {
    let path = format!("services.{}", entry.key);
    let known = (keys::SERVICE, keys::SERVICE_NO_EFFECT, keys::SERVICE_NOT_MODELLED);
    let keys = Keys { entries: graded_fields(ctx, &entry.value, &path, known)?, path };
    not_supported(ctx, &keys);
    let image = keys.get(ctx, "image", Ctx::name);
    let rootfs = rootfs(ctx, entry, &keys, around);
    let entrypoint = keys.get(ctx, "entrypoint", words);
    let command = keys.get(ctx, "command", words);
    let undecodable = keys.node("entrypoint").is_some() && entrypoint.is_none()
        || keys.node("command").is_some() && command.is_none();
    let (entrypoint, command) = (entrypoint.unwrap_or_default(), command.unwrap_or_default());
    if rootfs.is_some() && !undecodable && entrypoint.is_empty() && command.is_empty() {
        let message = format!("the service {} has no `command`", quoted(&entry.key));
        ctx.error(Code::MissingCommand, entry.key_span, message)
            .help("images are not read, so the command has to be written here");
    }
    let environment = environment(ctx, &keys, around, inputs);
    let networks = keys.get(ctx, "networks", network::attachments).unwrap_or_default();
    let around_mounts =
        mounts::Around { base: around.base, variables: around.variables, declared: around.volumes };
    let mut mounts: Vec<Mount> =
        keys.get(ctx, "volumes", |c, n, p| Some(mounts::volumes(c, n, p, around_mounts))).unwrap_or_default();
    keys.get(ctx, "tmpfs", |c, n, p| {
        mounts::tmpfs(c, n, p, &mut mounts);
        Some(())
    });
    let (rootfs, read) = rootfs.unzip();
    Some(Service {
        name: entry.key.clone(),
        at: ctx.source.spot(entry.key_span.start),
        rootfs: rootfs.unwrap_or(Rootfs::Host),
        read: read.unwrap_or_default(),
        image,
        entrypoint,
        command,
        environment,
        networks,
        mounts,
        depends_on: keys.get(ctx, "depends_on", depends_on).unwrap_or_default(),
        healthcheck: keys.get(ctx, "healthcheck", healthcheck).flatten(),
        hostname: keys.get(ctx, "hostname", host_name),
        container_name: keys.get(ctx, "container_name", host_name),
        working_dir: keys.get(ctx, "working_dir", absolute),
        user: keys.get(ctx, "user", user),
        restart: keys.get(ctx, "restart", restart).unwrap_or(Restart::No),
        replicas: replicas(ctx, &keys),
    })
}

/// Keys that would change what the service does and that we cannot do.
fn not_supported(ctx: &mut Ctx, keys: &Keys<'_>) {
    for (key, help) in [
        ("extends", "write the settings out, or share them with a YAML anchor (`&name`, `<<: *name`)"),
        ("volumes_from", "name the volume in both services"),
        ("configs", "mount the file with `volumes`"),
        ("secrets", "mount the file with `volumes`"),
    ] {
        if let Some(entry) = keys.entries.iter().find(|e| e.key == key && !e.value.is_null()) {
            ctx.error(Code::ComposeNotSupported, entry.key_span, format!("`{key}` is not supported"))
                .help(help);
        }
    }
    if let Some(node) = keys.node("network_mode")
        && let Some(mode) = ctx.string(node, &format!("{}.network_mode", keys.path))
        && mode != "bridge"
    {
        let message = format!("the network mode {} is not supported", quoted(&mode));
        ctx.error(Code::ComposeNotSupported, node.span, message)
            .help("every service is a node of its own in the simulated network");
    }
}

/// `x-bloodhound`: where the files come from and what may be read. Without it, images would be needed.
fn rootfs(
    ctx: &mut Ctx,
    service: &Entry,
    keys: &Keys<'_>,
    around: Around<'_>,
) -> Option<(Rootfs, Vec<String>)> {
    let help =
        "x-bloodhound: {rootfs: host} runs it from this machine's files, {rootfs: ./dir} from a directory";
    let Some(node) = keys.node("x-bloodhound") else {
        let mistyped = keys
            .entries
            .iter()
            .find(|e| e.key.starts_with("x-") && nearest(&e.key, &["x-bloodhound"]).is_some());
        if let Some(entry) = mistyped {
            ctx.error(Code::UnknownKey, entry.key_span, format!("unknown extension {}", quoted(&entry.key)))
                .suggest(Some("x-bloodhound"));
            return None;
        }
        let place = |key: &str| keys.entries.iter().find(|e| e.key == key).map(|e| e.key_span);
        let (code, span, message) = if let Some(span) = place("image") {
            (Code::ImageNotSupported, span, "images come later; use x-bloodhound: {rootfs: ...}".to_owned())
        } else if let Some(span) = place("build") {
            (
                Code::BuildNotSupported,
                span,
                "images are not built; use x-bloodhound: {rootfs: ...}".to_owned(),
            )
        } else {
            let message =
                format!("the service {} has no x-bloodhound: {{rootfs: ...}}", quoted(&service.key));
            (Code::MissingKey, service.key_span, message)
        };
        ctx.error(code, span, message).help(help);
        return None;
    };
    let fields = ctx.fields(node, &format!("{}.x-bloodhound", keys.path), keys::EXTENSION)?;
    let read = fields.get(ctx, "read", |c, n, p| {
        let items = c.list(n, p)?;
        Some(items.iter().filter_map(|item| absolute(c, item, p)).collect::<Vec<_>>())
    });
    let rootfs = fields.require(ctx, "rootfs", |c, n, p| {
        let text = c.name(n, p)?;
        if text == "host" {
            return Some(Rootfs::Host);
        }
        let dir = crate::config::resolve(around.base, &text);
        if !dir.is_dir() {
            let message = format!("the directory {} does not exist", dir.display());
            c.error(Code::MissingFile, n.span, message)
                .help("write `host` for this machine's files, or a directory relative to this file")
                .suggest(nearest(&text, &["host"]));
        }
        Some(Rootfs::Dir(dir))
    })?;
    if let (Rootfs::Dir(_), Some(entry)) = (&rootfs, fields.entry("read")) {
        ctx.warn(Code::NothingToDo, entry.key_span, "`read` has no effect: all of the directory is readable");
    }
    Some((rootfs, read.unwrap_or_default()))
}

/// A command: a list of words, or one text that is split as a shell splits it.
fn words(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<String>> {
    if let Value::Seq(items) = &node.value {
        return Some(items.iter().filter_map(|item| ctx.text(item, path)).collect());
    }
    if !matches!(&node.value, Value::Scalar(_)) {
        ctx.wrong_type(node, path, "a string or a list");
        return None;
    }
    let text = ctx.text(node, path)?;
    match shell::split(&text) {
        Ok(words) => Some(words),
        Err(error) => {
            ctx.error(Code::Malformed, node.span, format!("cannot split `{path}` into words: {error}"))
                .help(format!("for a shell's help write: [sh, -c, {text:?}]"));
            None
        }
    }
}

/// The entries of a mapping that could have been a list as well.
fn list_or_mapping<'n>(ctx: &mut Ctx, node: &'n Node, path: &str) -> Option<&'n [Entry]> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        _ => {
            ctx.wrong_type(node, path, "a list or a mapping");
            None
        }
    }
}

fn environment(
    ctx: &mut Ctx,
    keys: &Keys<'_>,
    around: Around<'_>,
    inputs: &mut Vec<PathBuf>,
) -> Vec<(String, String)> {
    let mut out = Variables::new();
    let path = format!("{}.env_file", keys.path);
    if let Some(node) = keys.node("env_file") {
        let items = match &node.value {
            Value::Seq(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        for item in items {
            env_file(ctx, item, &path, around, &mut out, inputs);
        }
    }
    keys.get(ctx, "environment", |c, node, path| {
        if let Value::Seq(items) = &node.value {
            for item in items {
                let Some(text) = c.text(item, path) else { continue };
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (text.as_str(), None),
                };
                variable(c, item, name, value, around, &mut out);
            }
            return Some(());
        }
        for entry in list_or_mapping(c, node, path)? {
            let value = match entry.value.is_null() {
                true => None,
                false => match c.text(&entry.value, &format!("{path}.{}", entry.key)) {
                    Some(value) => Some(value),
                    None => continue,
                },
            };
            let key = Node { value: Value::Seq(Vec::new()), span: entry.key_span };
            variable(c, &key, &entry.key, value, around, &mut out);
        }
        Some(())
    });
    out.into_iter().collect()
}

/// A variable without a value is taken from the environment that the caller has given, if it is there.
fn variable(
    ctx: &mut Ctx,
    node: &Node,
    name: &str,
    value: Option<String>,
    around: Around<'_>,
    out: &mut Variables,
) {
    if name.trim().is_empty() || name.contains(['=', '\0']) {
        ctx.error(Code::Malformed, node.span, format!("{} is not a variable's name", quoted(name)));
        return;
    }
    match value.or_else(|| around.variables.get(name).cloned()) {
        Some(value) => {
            out.insert(name.to_owned(), value);
        }
        None => {
            ctx.warn(Code::UnsetVariable, node.span, format!("the variable {} is not set", quoted(name)))
                .label("left out");
            out.remove(name);
        }
    }
}

fn env_file(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    around: Around<'_>,
    out: &mut Variables,
    inputs: &mut Vec<PathBuf>,
) -> Option<()> {
    let mut required = true;
    let file = match &node.value {
        Value::Map(_) => {
            let fields = ctx.fields(node, path, keys::ENV_FILE)?;
            required = fields.get(ctx, "required", Ctx::bool).unwrap_or(true);
            fields.get(ctx, "format", |c, n, p| c.choice(n, p, &[("raw", ())]));
            fields.require(ctx, "path", Ctx::name)?
        }
        _ => ctx.name(node, path)?,
    };
    let file = crate::config::resolve(around.base, &file);
    if !file.exists() {
        if required {
            let message = format!("the file {} does not exist", file.display());
            ctx.error(Code::MissingFile, node.span, message)
                .help("paths are relative to the directory of this file");
        }
        return None;
    }
    let source = match Source::read(&file) {
        Ok(source) => source,
        Err(diagnostic) => {
            ctx.error(diagnostic.code, node.span, diagnostic.message);
            return None;
        }
    };
    let parsed = dotenv::parse(&source, around.variables);
    ctx.diagnostics.extend(parsed.diagnostics);
    for (name, value) in parsed.variables {
        if let Some(value) = value.or_else(|| around.variables.get(&name).cloned()) {
            out.insert(name, value);
        }
    }
    if !inputs.contains(&file) {
        inputs.push(file);
    }
    Some(())
}

const CONDITIONS: &[(&str, Condition)] = &[
    ("service_started", Condition::Started),
    ("service_healthy", Condition::Healthy),
    ("service_completed_successfully", Condition::CompletedSuccessfully),
];

fn depends_on(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Dependency>> {
    let mut out: Vec<Dependency> = Vec::new();
    if let Value::Seq(items) = &node.value {
        for item in items {
            if let Some(name) = ctx.name(item, path) {
                let service = ctx.located(name, item.span);
                out.push(Dependency { service, condition: Condition::Started, required: true });
            }
        }
        return Some(out);
    }
    for entry in list_or_mapping(ctx, node, path)? {
        let path = format!("{path}.{}", entry.key);
        let Some(fields) = ctx.fields(&entry.value, &path, keys::DEPENDENCY) else { continue };
        let condition = fields.get(ctx, "condition", |c, n, p| c.choice(n, p, CONDITIONS));
        fields.get(ctx, "restart", Ctx::bool);
        let required = fields.get(ctx, "required", Ctx::bool).unwrap_or(true);
        let service: Located<String> = ctx.located(entry.key.clone(), entry.key_span);
        let condition = condition.unwrap_or(Condition::Started);
        out.push(Dependency { service, condition, required });
    }
    Some(out)
}

const SECOND: u64 = 1_000_000_000;

/// `Some(None)` stands for a health check that is switched off.
fn healthcheck(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Option<Healthcheck>> {
    let fields = ctx.fields(node, path, keys::HEALTHCHECK)?;
    let disabled = fields.get(ctx, "disable", Ctx::bool).unwrap_or(false);
    let duration = |ctx: &mut Ctx, key, default| fields.get(ctx, key, Ctx::duration).unwrap_or(default);
    let interval_ns = duration(ctx, "interval", 30 * SECOND);
    let timeout_ns = duration(ctx, "timeout", 30 * SECOND);
    let start_period_ns = duration(ctx, "start_period", 0);
    let start_interval_ns = duration(ctx, "start_interval", 5 * SECOND);
    let retries = fields.get(ctx, "retries", |c, n, p| c.integer(n, p, 1, 1_000_000)).unwrap_or(3);
    if disabled {
        return Some(None);
    }
    let test = fields.require(ctx, "test", |c, n, p| health_test(c, n, p, &fields))?;
    let Some(test) = test else { return Some(None) };
    Some(Some(Healthcheck {
        test,
        // Docker takes 0 for "the default".
        interval_ns: if interval_ns == 0 { 30 * SECOND } else { interval_ns },
        timeout_ns: if timeout_ns == 0 { 30 * SECOND } else { timeout_ns },
        retries: u32::try_from(retries).ok()?,
        start_period_ns,
        start_interval_ns: if start_interval_ns == 0 { 5 * SECOND } else { start_interval_ns },
    }))
}

fn health_test(ctx: &mut Ctx, node: &Node, path: &str, fields: &Fields<'_>) -> Option<Option<Vec<String>>> {
    let shell = |line: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), line];
    let Value::Seq(items) = &node.value else {
        let line = ctx.name(node, path)?;
        return Some(Some(shell(line)));
    };
    let words: Vec<String> = items.iter().filter_map(|item| ctx.text(item, path)).collect();
    if words.len() != items.len() {
        return None;
    }
    match words.split_first() {
        Some((first, [])) if first == "NONE" => Some(None),
        Some((first, [line])) if first == "CMD-SHELL" => Some(Some(shell(line.clone()))),
        Some((first, rest)) if first == "CMD" && !rest.is_empty() => Some(Some(rest.to_vec())),
        first => {
            let span = items.first().map_or(fields.span, |item| item.span);
            let meant = first.and_then(|(word, _)| nearest(word, &["CMD", "CMD-SHELL", "NONE"]));
            ctx.error(Code::Malformed, span, format!("cannot understand `{path}`"))
                .help("write [CMD, program, argument...], [CMD-SHELL, \"command line\"] or [NONE]")
                .suggest(meant.filter(|meant| first.is_some_and(|(word, _)| word != meant)));
            None
        }
    }
}

fn host_name(ctx: &mut Ctx, node: &Node, path: &str) -> Option<String> {
    let text = ctx.name(node, path)?;
    // RFC 1123, section 2.1, and the underscore that container names have.
    let valid = text.len() <= 253
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    if !valid {
        ctx.error(Code::Malformed, node.span, format!("{} is not a host name", quoted(&text)));
    }
    Some(text)
}

fn absolute(ctx: &mut Ctx, node: &Node, path: &str) -> Option<String> {
    let text = ctx.name(node, path)?;
    if !text.starts_with('/') || text.split('/').any(|part| part == "..") {
        let message = format!("`{path}` must be an absolute path, not {}", quoted(&text));
        ctx.error(Code::Malformed, node.span, message);
        return None;
    }
    Some(text)
}

fn user(ctx: &mut Ctx, node: &Node, path: &str) -> Option<User> {
    let text = ctx.text(node, path)?;
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group.to_owned())),
        None => (text.as_str(), None),
    };
    if user.is_empty() || group.as_ref().is_some_and(|g| g.is_empty() || g.contains(':')) {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("write user or user:group, as names or numbers");
    }
    Some(User { user: user.to_owned(), group })
}

fn restart(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Restart> {
    const WORDS: &[&str] = &["no", "always", "on-failure", "on-failure:3", "unless-stopped"];
    // A bare `no` is a string here, but older files quote or misread it.
    if let Value::Scalar(s) = &node.value
        && s.kind == ScalarKind::Bool
        && s.text.eq_ignore_ascii_case("false")
    {
        return Some(Restart::No);
    }
    let text = ctx.string(node, path)?;
    let retries = text.strip_prefix("on-failure:").map(|n| n.parse::<u32>().ok());
    match (text.as_str(), retries) {
        ("no" | "", _) => Some(Restart::No),
        ("always", _) => Some(Restart::Always),
        ("unless-stopped", _) => Some(Restart::UnlessStopped),
        ("on-failure", _) => Some(Restart::OnFailure { max_retries: None }),
        (_, Some(Some(n))) => Some(Restart::OnFailure { max_retries: Some(n) }),
        _ => {
            ctx.error(Code::UnknownValue, node.span, format!("`{path}` cannot be {}", quoted(&text)))
                .help(format!("allowed: {}", listed(WORDS, "and")))
                .suggest(nearest(&text, WORDS));
            None
        }
    }
}

/// `deploy.replicas` or `scale`.
fn replicas(ctx: &mut Ctx, keys: &Keys<'_>) -> u32 {
    let count = |c: &mut Ctx, n: &Node, p: &str| c.integer(n, p, 1, 100).and_then(|n| u32::try_from(n).ok());
    let scale = keys.get(ctx, "scale", count);
    let deploy = keys.get(ctx, "deploy", |c, n, p| {
        let known = (keys::DEPLOY, keys::DEPLOY_NO_EFFECT, keys::DEPLOY_NOT_MODELLED);
        let entries = graded_fields(c, n, p, known)?;
        let node = &entries.iter().find(|entry| entry.key == "replicas")?.value;
        count(c, node, &format!("{p}.replicas"))
    });
    if let (Some(a), Some(b), Some(node)) = (scale, deploy, keys.node("scale"))
        && a != b
    {
        ctx.error(Code::Conflict, node.span, "`scale` and `deploy.replicas` say different things");
    }
    scale.or(deploy).unwrap_or(1)
}
