//! One service of a compose file.
//!
//! Key function: [`service`]. Everything about a service that needs no other service is checked here; what
//! concerns several is in `resolve`. Neighbours: `environment`, `process`, `build`, `mounts`, `network`, `ports`.

use std::path::PathBuf;

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, listed, quoted};
use crate::suggest::nearest;
use crate::tree::{Entry, Node, Value};

use super::keys::{self, Fields};
use super::load::Scopes;
use super::mounts::{self, Mount};
use super::process::{self, HealthcheckSetting, Restart};
use super::types::{Condition, Dependency, Namespace, NetworkMode, PullPolicy, Rootfs, Service};
use super::{build, container_limits, environment, network, ports, resources, shell};

/// What the decoders of services need to know.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) scopes: &'a Scopes,
    /// Names of the declared volumes.
    pub(super) volumes: &'a [String],
    /// `x-bloodhound` of the top level.
    pub(super) extension: &'a Extension,
}

/// What was read besides the compose files.
#[derive(Default)]
pub(super) struct Inputs {
    pub(super) files: Vec<PathBuf>,
    /// Values of variables that came from an `env_file`.
    pub(super) values: Vec<(String, String)>,
}

/// Decodes a service; env files that were read are added to `inputs`.
pub(super) fn service(
    ctx: &mut Ctx,
    entry: &Entry,
    around: Around<'_>,
    inputs: &mut Inputs,
) -> Option<Service> {
    let path = format!("services.{}", entry.key);
    let fields = keys::open(ctx, &entry.value, &path, "services.*")?;
    let image = fields.get(ctx, "image", |c, n, p| {
        let text = c.name(n, p)?;
        Some(c.located(text, n.span))
    });
    let extension = extension(ctx, &fields, around.extension);
    let rootfs = rootfs(ctx, entry, &fields, &extension);
    let of_image = rootfs == Some(Rootfs::Image);
    let (entrypoint, command) = command(ctx, entry, &fields, rootfs.as_ref());
    let environment = environment::environment(ctx, &fields, around.scopes, inputs);
    let mounts_around = mounts::Around { scopes: around.scopes, declared: around.volumes };
    let mut mounts: Vec<Mount> = fields
        .get(ctx, "volumes", |c, n, p| Some(mounts::volumes(c, n, p, mounts_around)))
        .unwrap_or_default();
    fields.get(ctx, "tmpfs", |c, n, p| {
        mounts::tmpfs(c, n, p, &mut mounts);
        Some(())
    });
    let healthcheck = fields.get(ctx, "healthcheck", |c, n, p| process::healthcheck(c, n, p, of_image));
    let deploy = deploy(ctx, &fields);
    let restart = fields.get(ctx, "restart", process::restart).or(deploy.restart);
    let (network_mode, networks) = networks(ctx, &fields);
    let list = |ctx: &mut Ctx, key: &str| {
        fields.get(ctx, key, |c, n, p| Some(network::names(c, n, p))).unwrap_or_default()
    };
    let mut service = Service {
        keys: fields.entries.iter().map(|entry| (entry.key.clone(), entry.key_span)).collect(),
        rootfs: rootfs.unwrap_or(Rootfs::Host),
        read: extension.read,
        machine: extension.machine,
        image,
        build: fields.get(ctx, "build", |c, n, p| build::build(c, n, p, around.scopes)),
        pull_policy: pull_policy(ctx, &fields),
        platform: fields.get(ctx, "platform", platform),
        entrypoint,
        command,
        environment,
        networks,
        network_mode,
        links: fields.get(ctx, "links", network::links).unwrap_or_default(),
        extra_hosts: fields.get(ctx, "extra_hosts", network::extra_hosts).unwrap_or_default(),
        dns: fields.get(ctx, "dns", network::addresses).unwrap_or_default(),
        dns_search: list(ctx, "dns_search"),
        dns_opt: list(ctx, "dns_opt"),
        ports: fields.get(ctx, "ports", ports::ports).unwrap_or_default(),
        expose: fields.get(ctx, "expose", texts).unwrap_or_default(),
        mounts,
        volumes_from: fields.get(ctx, "volumes_from", mounts::volumes_from).unwrap_or_default(),
        secrets: fields
            .get(ctx, "secrets", |c, n, p| resources::mounted(c, n, p, "/run/secrets/"))
            .unwrap_or_default(),
        configs: fields.get(ctx, "configs", |c, n, p| resources::mounted(c, n, p, "/")).unwrap_or_default(),
        depends_on: fields.get(ctx, "depends_on", depends_on).unwrap_or_default(),
        healthcheck: healthcheck.unwrap_or(HealthcheckSetting::Inherited(Default::default())),
        hostname: fields.get(ctx, "hostname", host_name),
        domainname: fields.get(ctx, "domainname", host_name),
        container_name: fields.get(ctx, "container_name", host_name),
        working_dir: fields.get(ctx, "working_dir", absolute),
        user: fields.get(ctx, "user", process::user),
        group_add: fields.get(ctx, "group_add", texts).unwrap_or_default(),
        restart: restart.unwrap_or(Restart::No),
        restart_delay_ns: deploy.restart_delay_ns,
        restart_window_ns: deploy.restart_window_ns,
        stop_signal: fields.get(ctx, "stop_signal", process::signal),
        stop_grace_period_ns: fields.get(ctx, "stop_grace_period", Ctx::duration),
        pid: fields.get(ctx, "pid", namespace).unwrap_or_default(),
        ipc: fields.get(ctx, "ipc", namespace).unwrap_or_default(),
        labels: fields.get(ctx, "labels", environment::pairs).unwrap_or_default(),
        replicas: replicas(ctx, &fields, deploy.replicas),
        ..Service::new(entry.key.clone(), entry.key_span)
    };
    limits(ctx, &fields, &deploy, &mut service);
    let mut hooks = |key: &str, of: &str| {
        fields.get(ctx, key, |c, n, p| process::hooks(c, n, p, of, around.scopes)).unwrap_or_default()
    };
    service.post_start = hooks("post_start", "services.*.post_start[]");
    service.pre_stop = hooks("pre_stop", "services.*.pre_stop[]");
    fields.get(ctx, "uts", namespace);
    fields.get(ctx, "isolation", isolation);
    Some(service)
}

/// What the container may do, and how much it may have.
fn limits(ctx: &mut Ctx, fields: &Fields<'_>, deploy: &Deploy, service: &mut Service) {
    let bytes = |ctx: &mut Ctx, key: &str| fields.get(ctx, key, mounts::size);
    let privileged = fields.get(ctx, "privileged", Ctx::bool).unwrap_or(false);
    let added = fields.get(ctx, "cap_add", process::capabilities).unwrap_or_default();
    service.cap_add = if privileged { vec!["ALL".to_owned()] } else { added };
    service.cap_drop = fields.get(ctx, "cap_drop", process::capabilities).unwrap_or_default();
    service.security_opt =
        fields.get(ctx, "security_opt", |c, n, p| Some(network::names(c, n, p))).unwrap_or_default();
    service.init = fields.get(ctx, "init", Ctx::bool);
    service.umask = fields.get(ctx, "umask", process::umask);
    service.tty = fields.get(ctx, "tty", Ctx::bool).unwrap_or(false);
    service.stdin_open = fields.get(ctx, "stdin_open", Ctx::bool).unwrap_or(false);
    service.read_only = fields.get(ctx, "read_only", Ctx::bool).unwrap_or(false);
    service.ulimits = fields.get(ctx, "ulimits", process::ulimits).unwrap_or_default();
    service.mem_limit = bytes(ctx, "mem_limit").or(deploy.memory).filter(|n| *n != 0);
    service.disk_size = fields.get(ctx, "storage_opt", container_limits::storage);
    service.oom_score_adj = fields.get(ctx, "oom_score_adj", container_limits::oom_score_adj);
    let cpus = fields.get(ctx, "cpus", |c, n, p| c.thousandths(n, p, 0, u64::MAX));
    service.cpus_milli = cpus.or(deploy.cpus_milli);
    let pids = fields.get(ctx, "pids_limit", process::limit).flatten();
    service.pids_limit = pids.or(deploy.pids).filter(|n| *n != 0);
    service.shm_size = bytes(ctx, "shm_size");
    service.sysctls = fields.get(ctx, "sysctls", environment::pairs).unwrap_or_default();
}

/// `x-bloodhound` of a service or of the top level.
#[derive(Clone, Debug, Default)]
pub(super) struct Extension {
    /// Whether there is one at the service itself.
    own: bool,
    rootfs: Option<Rootfs>,
    read: Vec<String>,
    machine: Option<Located<String>>,
}

/// What `x-bloodhound` says, with `default` for what it leaves out.
pub(super) fn decode_extension(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    default: &Extension,
) -> Option<Extension> {
    let fields = ctx.fields(node, path, keys::EXTENSION)?;
    let read = fields.get(ctx, "read", |c, n, p| {
        let items = c.list(n, p)?;
        Some(items.iter().filter_map(|item| absolute(c, item, p)).collect::<Vec<_>>())
    });
    let rootfs = fields.get(ctx, "rootfs", |c, n, p| {
        let text = c.name(n, p)?;
        match text.as_str() {
            "host" => return Some(Rootfs::Host),
            "image" => return Some(Rootfs::Image),
            _ => {}
        }
        let dir = c.path(n.span, &text);
        if !dir.is_dir() {
            let message = format!("the directory {} does not exist", dir.display());
            c.error(Code::MissingFile, n.span, message)
                .help("write `host` for this machine's files, `image` for the image's, or a directory relative to this file")
                .suggest(nearest(&text, &["host", "image"]));
        }
        Some(Rootfs::Dir(dir))
    });
    if let (Some(Rootfs::Dir(_)), Some(entry)) = (&rootfs, fields.entry("read")) {
        ctx.warn(Code::NothingToDo, entry.key_span, "`read` has no effect: all of the directory is readable");
    }
    let machine = fields.get(ctx, "machine", |c, n, p| {
        let text = c.name(n, p)?;
        Some(c.located(text, n.span))
    });
    Some(Extension {
        own: true,
        rootfs: rootfs.or_else(|| default.rootfs.clone()),
        read: read.unwrap_or_else(|| default.read.clone()),
        machine: machine.or_else(|| default.machine.clone()),
    })
}

/// The service's own `x-bloodhound` over that of the top level.
fn extension(ctx: &mut Ctx, fields: &Fields<'_>, default: &Extension) -> Extension {
    mistyped(ctx, fields.entries);
    match fields.node("x-bloodhound") {
        Some(node) => {
            decode_extension(ctx, node, &format!("{}.x-bloodhound", fields.path), default).unwrap_or_default()
        }
        None => Extension { own: false, ..default.clone() },
    }
}

/// Extensions of others are left alone; one whose name is nearly ours was meant for us.
pub(super) fn mistyped(ctx: &mut Ctx, entries: &[Entry]) {
    let wrong = |e: &&Entry| {
        e.key.starts_with("x-") && e.key != "x-bloodhound" && nearest(&e.key, &["x-bloodhound"]).is_some()
    };
    if let Some(entry) = entries.iter().find(wrong) {
        ctx.error(Code::UnknownKey, entry.key_span, format!("unknown extension {}", quoted(&entry.key)))
            .suggest(Some("x-bloodhound"));
    }
}

/// Where the files come from: what `x-bloodhound` says, else the image.
fn rootfs(ctx: &mut Ctx, service: &Entry, fields: &Fields<'_>, extension: &Extension) -> Option<Rootfs> {
    let help = "name an `image`, or write x-bloodhound: {rootfs: host} to run it from this machine's files and \
                {rootfs: ./dir} from a directory";
    let image = fields.node("image").is_some() || fields.node("build").is_some();
    match &extension.rootfs {
        Some(Rootfs::Image) | None if image => return Some(Rootfs::Image),
        Some(Rootfs::Image) => {
            let message = format!("the service {} has no `image` and no `build`", quoted(&service.key));
            ctx.error(Code::MissingKey, service.key_span, message).help(help);
            return None;
        }
        Some(rootfs) => return Some(rootfs.clone()),
        None => {}
    }
    let node = fields.node("x-bloodhound").filter(|_| extension.own);
    if let Some(entry) = node.and_then(|node| match &node.value {
        Value::Map(entries) => entries.first(),
        _ => None,
    }) {
        let path = format!("{}.x-bloodhound", fields.path);
        ctx.error(Code::MissingKey, entry.key_span, format!("the key `rootfs` is missing in `{path}`"))
            .label("this mapping has no `rootfs`")
            .help(help);
        return None;
    }
    let message =
        format!("the service {} has no `image` and no x-bloodhound: {{rootfs: ...}}", quoted(&service.key));
    ctx.error(Code::MissingKey, service.key_span, message).help(help);
    None
}

type Command = (Option<Vec<String>>, Option<Vec<String>>);

/// `entrypoint` and `command`. Without an image one of them has to be there.
fn command(ctx: &mut Ctx, service: &Entry, fields: &Fields<'_>, rootfs: Option<&Rootfs>) -> Command {
    let entrypoint = fields.get(ctx, "entrypoint", words);
    let command = fields.get(ctx, "command", words);
    let undecodable = fields.node("entrypoint").is_some() && entrypoint.is_none()
        || fields.node("command").is_some() && command.is_none();
    let nothing = entrypoint.iter().chain(&command).all(Vec::is_empty);
    if matches!(rootfs, Some(Rootfs::Host | Rootfs::Dir(_))) && !undecodable && nothing {
        let message = format!("the service {} has no `command`", quoted(&service.key));
        ctx.error(Code::MissingCommand, service.key_span, message)
            .help("without an image the command has to be written here");
    }
    (entrypoint, command)
}

/// A command: a list of words, or one text that is split as a shell splits it.
pub(super) fn words(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<String>> {
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

/// A list of texts and numbers.
fn texts(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<String>> {
    Some(ctx.list(node, path)?.iter().filter_map(|item| ctx.text(item, path)).collect())
}

/// `network_mode` and `networks`, which exclude each other.
fn networks(ctx: &mut Ctx, fields: &Fields<'_>) -> (NetworkMode, Vec<super::types::Attachment>) {
    let mode = fields.get(ctx, "network_mode", network::mode).unwrap_or_default();
    let networks = fields.get(ctx, "networks", network::attachments).unwrap_or_default();
    if let Some(entry) = fields.entry("networks").filter(|_| fields.node("network_mode").is_some()) {
        ctx.error(Code::Conflict, entry.key_span, "`networks` and `network_mode` exclude each other")
            .help("remove one of the two");
    }
    (mode, networks)
}

/// `pid`, `ipc` and `uts`: an own namespace or that of a service.
fn namespace(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Namespace> {
    let text = ctx.name(node, path)?;
    if let Some(name) = text.strip_prefix("service:").filter(|_| !path.ends_with("uts")) {
        return Some(Namespace::Service(ctx.located(name.to_owned(), node.span)));
    }
    if text.starts_with("container:") && !path.ends_with("uts") {
        // Which service has it is known when all are.
        return Some(Namespace::Service(ctx.located(text, node.span)));
    }
    if matches!(&*text, "private" | "shareable") && !path.ends_with("pid") {
        return Some(Namespace::Own);
    }
    let help = if text == "host" {
        "the machine that runs the containers is not simulated: remove the key, or name a service, `service:NAME`"
    } else {
        "write `service:NAME` with a service of this file"
    };
    ctx.error(Code::ComposeNotSupported, node.span, format!("`{path}` cannot be {}", quoted(&text)))
        .help(help);
    None
}

/// `isolation`: Linux has the default one only, as an engine says too.
pub(super) fn isolation(ctx: &mut Ctx, node: &Node, path: &str) -> Option<()> {
    let text = ctx.string(node, path)?;
    if !matches!(&*text, "" | "default") {
        ctx.error(Code::ComposeNotSupported, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("Windows containers are not simulated: remove the key, or write `default`");
    }
    Some(())
}

/// `pull_policy`, and `pull_refresh_after`, its older form.
fn pull_policy(ctx: &mut Ctx, fields: &Fields<'_>) -> PullPolicy {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 24 * 60 * 60;
    const WORDS: &[&str] =
        &["always", "never", "missing", "if_not_present", "build", "daily", "weekly", "every_12h", "refresh"];
    let refresh = fields.get(ctx, "pull_refresh_after", |c, n, p| {
        let text = c.text(n, p)?;
        let seconds = crate::scalar::duration(&text).ok().map(|ns| ns / SECOND).or_else(|| days(&text));
        if seconds.is_none() {
            c.error(Code::BadDuration, n.span, format!("`{p}` cannot be {}", quoted(&text)))
                .help("write 12h or 7d");
        }
        seconds
    });
    let policy = fields.get(ctx, "pull_policy", |c, n, p| {
        let text = c.name(n, p)?;
        Some(match text.as_str() {
            "always" => PullPolicy::Always,
            "never" => PullPolicy::Never,
            "missing" | "if_not_present" => PullPolicy::Missing,
            "build" => PullPolicy::Build,
            "refresh" => PullPolicy::Older(refresh.unwrap_or(DAY)),
            "daily" => PullPolicy::Older(DAY),
            "weekly" => PullPolicy::Older(7 * DAY),
            other => {
                let every = other.strip_prefix("every_");
                let seconds = every.and_then(|text| {
                    crate::scalar::duration(text).ok().map(|ns| ns / SECOND).or_else(|| days(text))
                });
                match seconds {
                    Some(seconds) => PullPolicy::Older(seconds),
                    None => {
                        c.error(Code::UnknownValue, n.span, format!("`{p}` cannot be {}", quoted(&text)))
                            .help(format!("allowed: {}", listed(WORDS, "and")))
                            .suggest(nearest(&text, WORDS));
                        return None;
                    }
                }
            }
        })
    });
    policy.unwrap_or_else(|| refresh.map_or(PullPolicy::Missing, PullPolicy::Older))
}

/// `3d` and `2w`, which durations do not have elsewhere.
fn days(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let days = match unit {
        "d" => 1,
        "w" => 7,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(days * 24 * 60 * 60)
}

/// `platform`: the simulated processor is one of x86-64.
fn platform(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Located<String>> {
    let text = ctx.name(node, path)?;
    if !matches!(text.as_str(), "linux/amd64" | "linux/x86_64" | "linux" | "amd64" | "x86_64")
        && !text.starts_with("linux/amd64/")
    {
        ctx.error(Code::ComposeNotSupported, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("programs run natively on this machine: write linux/amd64, or remove the key if there is such an image");
    }
    Some(ctx.located(text, node.span))
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
                out.push(Dependency {
                    service,
                    condition: Condition::Started,
                    restart: false,
                    required: true,
                });
            }
        }
        return Some(out);
    }
    for entry in environment::list_or_mapping(ctx, node, path)? {
        let path = format!("{path}.{}", entry.key);
        let Some(fields) = keys::open(ctx, &entry.value, &path, "services.*.depends_on.*") else { continue };
        let condition = fields.get(ctx, "condition", |c, n, p| c.choice(n, p, CONDITIONS));
        let restart = fields.get(ctx, "restart", Ctx::bool).unwrap_or(false);
        let required = fields.get(ctx, "required", Ctx::bool).unwrap_or(true);
        let service: Located<String> = ctx.located(entry.key.clone(), entry.key_span);
        let condition = condition.unwrap_or(Condition::Started);
        out.push(Dependency { service, condition, restart, required });
    }
    Some(out)
}

pub(super) fn host_name(ctx: &mut Ctx, node: &Node, path: &str) -> Option<String> {
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

/// What `deploy` says about one container.
#[derive(Default)]
struct Deploy {
    replicas: Option<u32>,
    memory: Option<u64>,
    cpus_milli: Option<u64>,
    pids: Option<u64>,
    restart: Option<Restart>,
    restart_delay_ns: Option<u64>,
    restart_window_ns: Option<u64>,
}

fn count(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u32> {
    ctx.integer(node, path, 0, 100).and_then(|n| u32::try_from(n).ok())
}

fn deploy(ctx: &mut Ctx, fields: &Fields<'_>) -> Deploy {
    let mut out = Deploy::default();
    let Some(node) = fields.node("deploy") else { return out };
    let Some(fields) = keys::open(ctx, node, &fields.path("deploy"), "services.*.deploy") else { return out };
    let words = [("replicated", false), ("global", true)];
    let global = fields.get(ctx, "mode", |c, n, p| {
        if let Value::Scalar(s) = &n.value
            && s.text.ends_with("-job")
        {
            c.error(Code::ComposeNotSupported, n.span, format!("`{p}` cannot be {}", quoted(&s.text)))
                .help("jobs are a thing of Swarm: a service that ends with status 0 is one here as well");
            return None;
        }
        c.choice(n, p, &words)
    });
    out.replicas = fields.get(ctx, "replicas", count);
    if global == Some(true) {
        out.replicas = None;
    }
    fields.get(ctx, "resources", |c, n, p| {
        let fields = keys::open(c, n, p, "services.*.deploy.resources")?;
        fields.get(c, "reservations", |c, n, p| {
            keys::open(c, n, p, "services.*.deploy.resources.reservations").map(drop)
        });
        let limits =
            fields.get(c, "limits", |c, n, p| keys::open(c, n, p, "services.*.deploy.resources.limits"))?;
        out.memory = limits.get(c, "memory", mounts::size);
        out.cpus_milli = limits.get(c, "cpus", process::cpus);
        out.pids = limits.get(c, "pids", process::limit).flatten();
        Some(())
    });
    fields.get(ctx, "restart_policy", |c, n, p| {
        let fields = keys::open(c, n, p, "services.*.deploy.restart_policy")?;
        let attempts = fields.get(c, "max_attempts", |c, n, p| c.integer(n, p, 0, 1_000_000));
        let max_retries = attempts.and_then(|n| u32::try_from(n).ok());
        let words = [
            ("none", Restart::No),
            ("on-failure", Restart::OnFailure { max_retries }),
            ("any", Restart::Always),
        ];
        let condition = fields.get(c, "condition", |c, n, p| c.choice(n, p, &words));
        out.restart = Some(condition.unwrap_or(Restart::Always));
        out.restart_delay_ns = fields.get(c, "delay", Ctx::duration);
        out.restart_window_ns = fields.get(c, "window", Ctx::duration);
        Some(())
    });
    out
}

/// `deploy.replicas` or `scale`. A service of which there is none is left out by the caller.
fn replicas(ctx: &mut Ctx, fields: &Fields<'_>, deploy: Option<u32>) -> u32 {
    let scale = fields.get(ctx, "scale", count);
    if let (Some(a), Some(b), Some(node)) = (scale, deploy, fields.node("scale"))
        && a != b
    {
        ctx.error(Code::Conflict, node.span, "`scale` and `deploy.replicas` say different things");
    }
    scale.or(deploy).unwrap_or(1)
}
