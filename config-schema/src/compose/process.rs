//! How the processes of a service run, are watched and end; and the decoders of `healthcheck`, `restart` and the like.
//!
//! Key types: [`HealthcheckSetting`], [`Restart`], [`Ulimit`], [`User`].

use crate::decode::Ctx;
use crate::diagnostic::{Code, listed, quoted};
use crate::suggest::nearest;
use crate::tree::{Node, ScalarKind, Value};

use super::load::Scopes;
use super::{environment, keys, service};

/// `user: name[:group]`, each a name or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User name or uid.
    pub user: String,
    /// Group name or gid.
    pub group: Option<String>,
}

/// What a file says about a service's health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthcheckSetting {
    /// The image's, if it has one, with some of its times changed.
    Inherited(HealthOverrides),
    /// None, whatever the image has.
    Disabled,
    /// This one.
    Own(Healthcheck),
}

/// Times of an image's health check that the file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HealthOverrides {
    /// See [`Healthcheck::interval_ns`].
    pub interval_ns: Option<u64>,
    /// See [`Healthcheck::timeout_ns`].
    pub timeout_ns: Option<u64>,
    /// See [`Healthcheck::retries`].
    pub retries: Option<u32>,
    /// See [`Healthcheck::start_period_ns`].
    pub start_period_ns: Option<u64>,
    /// See [`Healthcheck::start_interval_ns`].
    pub start_interval_ns: Option<u64>,
}

/// A health check. Defaults are those of the Dockerfile reference, HEALTHCHECK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healthcheck {
    /// The program that exits with 0 if the service is healthy.
    pub test: HealthTest,
    /// Time between two checks.
    pub interval_ns: u64,
    /// When a check counts as failed.
    pub timeout_ns: u64,
    /// So many failures in a row make the service unhealthy.
    pub retries: u32,
    /// Failures do not count for so long after the start.
    pub start_period_ns: u64,
    /// Time between two checks during the start period.
    pub start_interval_ns: u64,
}

impl Healthcheck {
    /// A check with the times that are written and the defaults for the others; 0 is written for the default.
    pub fn new(test: HealthTest, times: &HealthOverrides) -> Healthcheck {
        const SECOND: u64 = 1_000_000_000;
        let or = |given: Option<u64>, default| given.filter(|ns| *ns != 0).unwrap_or(default);
        Healthcheck {
            test,
            interval_ns: or(times.interval_ns, 30 * SECOND),
            timeout_ns: or(times.timeout_ns, 30 * SECOND),
            retries: times.retries.filter(|n| *n != 0).unwrap_or(3),
            start_period_ns: times.start_period_ns.unwrap_or(0),
            start_interval_ns: or(times.start_interval_ns, 5 * SECOND),
        }
    }
}

/// The program of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthTest {
    /// `CMD`: an argument vector.
    Exec(Vec<String>),
    /// `CMD-SHELL`: a line for the container's shell.
    Shell(String),
}

impl HealthTest {
    /// The argument vector, with the shell that the image names (`/bin/sh -c` if it names none).
    pub fn argv(&self, shell: Option<&[String]>) -> Vec<String> {
        match self {
            HealthTest::Exec(words) => words.clone(),
            HealthTest::Shell(line) => {
                let usual = ["/bin/sh".to_owned(), "-c".to_owned()];
                let mut words = shell.unwrap_or(&usual).to_vec();
                words.push(line.clone());
                words
            }
        }
    }
}

/// What happens when a service's main process ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing.
    No,
    /// It is started again.
    Always,
    /// It is started again if it ended by a signal or with a status other than 0.
    OnFailure {
        /// So many times at most.
        max_retries: Option<u32>,
    },
    /// As `Always`: nothing in the simulation stops a service by hand.
    UnlessStopped,
}

/// A limit of processes, as setrlimit(2) has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ulimit {
    /// The resource without `RLIMIT_`, in lower case: `nofile`.
    pub name: String,
    /// The soft limit; `None`: none (-1).
    pub soft: Option<u64>,
    /// The hard limit; `None`: none (-1).
    pub hard: Option<u64>,
}

/// A command that is run in a container after its start or before its stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The argument vector.
    pub command: Vec<String>,
    /// Whose rights it has; `None`: the service's.
    pub user: Option<User>,
    /// Whether it has all capabilities.
    pub privileged: bool,
    /// The directory in which it starts.
    pub working_dir: Option<String>,
    /// Variables besides the service's, sorted by name.
    pub environment: Vec<(String, String)>,
}

/// `post_start` and `pre_stop`.
pub(super) fn hooks(ctx: &mut Ctx, node: &Node, path: &str, of: &str, scopes: &Scopes) -> Option<Vec<Hook>> {
    let mut out = Vec::new();
    for item in ctx.list(node, path)? {
        let Some(fields) = keys::open(ctx, item, path, of) else { continue };
        let command = fields.require(ctx, "command", service::words);
        if command.as_ref().is_some_and(|words| words.first().is_none_or(String::is_empty)) {
            ctx.error(Code::Malformed, item.span, format!("`{path}` has a command that is empty"));
        }
        let environment = fields.get(ctx, "environment", |c, n, p| environment::arguments(c, n, p, scopes));
        out.push(Hook {
            command: command.unwrap_or_default(),
            user: fields.get(ctx, "user", user),
            privileged: fields.get(ctx, "privileged", Ctx::bool).unwrap_or(false),
            working_dir: fields.get(ctx, "working_dir", Ctx::name),
            environment: environment.unwrap_or_default(),
        });
    }
    Some(out)
}

/// `umask`: a number as YAML has it, or octal digits as a text (umask(2): "only the file permission bits of mask are used").
pub(super) fn umask(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u32> {
    let Value::Scalar(scalar) = &node.value else {
        ctx.wrong_type(node, path, "an octal number such as 0022");
        return None;
    };
    let text = scalar.text.trim();
    let written_octal = text.starts_with('0') || !matches!(scalar.kind, ScalarKind::Number);
    let digits = text.trim_start_matches("0o");
    let mask = if written_octal { u32::from_str_radix(digits, 8).ok() } else { text.parse().ok() };
    let mask = mask.filter(|mask| *mask <= 0o777);
    if mask.is_none() {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(text)))
            .help("write permission bits as an octal number such as 0022");
    }
    mask
}

pub(super) fn healthcheck(ctx: &mut Ctx, node: &Node, path: &str, image: bool) -> Option<HealthcheckSetting> {
    let fields = keys::open(ctx, node, path, "services.*.healthcheck")?;
    let disabled = fields.get(ctx, "disable", Ctx::bool).unwrap_or(false);
    let number =
        |c: &mut Ctx, n: &Node, p: &str| c.integer(n, p, 0, 1_000_000).and_then(|n| u32::try_from(n).ok());
    let times = HealthOverrides {
        interval_ns: fields.get(ctx, "interval", Ctx::duration),
        timeout_ns: fields.get(ctx, "timeout", Ctx::duration),
        retries: fields.get(ctx, "retries", number),
        start_period_ns: fields.get(ctx, "start_period", Ctx::duration),
        start_interval_ns: fields.get(ctx, "start_interval", Ctx::duration),
    };
    if disabled {
        return Some(HealthcheckSetting::Disabled);
    }
    if image && fields.node("test").is_none_or(Node::is_null) {
        return Some(HealthcheckSetting::Inherited(times));
    }
    let test = fields.require(ctx, "test", |c, n, p| health_test(c, n, p, &fields))?;
    Some(match test {
        Some(test) => HealthcheckSetting::Own(Healthcheck::new(test, &times)),
        None => HealthcheckSetting::Disabled,
    })
}

fn health_test(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    fields: &keys::Fields<'_>,
) -> Option<Option<HealthTest>> {
    let Value::Seq(items) = &node.value else {
        return Some(Some(HealthTest::Shell(ctx.name(node, path)?)));
    };
    let words: Vec<String> = items.iter().filter_map(|item| ctx.text(item, path)).collect();
    if words.len() != items.len() {
        return None;
    }
    match words.split_first() {
        Some((first, [])) if first == "NONE" => Some(None),
        Some((first, [line])) if first == "CMD-SHELL" => Some(Some(HealthTest::Shell(line.clone()))),
        Some((first, rest)) if first == "CMD" && !rest.is_empty() => {
            Some(Some(HealthTest::Exec(rest.to_vec())))
        }
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

pub(super) fn user(ctx: &mut Ctx, node: &Node, path: &str) -> Option<User> {
    let text = ctx.text(node, path)?;
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group.to_owned())),
        None => (text.as_str(), None),
    };
    // As an engine has it, `name:` leaves the group to /etc/passwd.
    let group = group.filter(|group| !group.is_empty());
    if user.is_empty() || group.as_ref().is_some_and(|g| g.contains(':')) {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("write user or user:group, as names or numbers");
    }
    Some(User { user: user.to_owned(), group })
}

pub(super) fn restart(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Restart> {
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

/// The resources of setrlimit(2) that an engine knows.
const LIMITS: &[&str] = &[
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];

pub(super) fn ulimits(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Ulimit>> {
    let mut out = Vec::new();
    for entry in ctx.entries(node, path)? {
        let path = format!("{path}.{}", entry.key);
        if !LIMITS.contains(&entry.key.as_str()) {
            ctx.error(Code::UnknownValue, entry.key_span, format!("{} is no limit", quoted(&entry.key)))
                .help(format!("limits: {}", listed(LIMITS, "and")))
                .suggest(nearest(&entry.key, LIMITS));
            continue;
        }
        let (soft, hard) = match &entry.value.value {
            Value::Map(_) => {
                let Some(fields) = keys::open(ctx, &entry.value, &path, "services.*.ulimits.*") else {
                    continue;
                };
                (fields.require(ctx, "soft", limit), fields.require(ctx, "hard", limit))
            }
            _ => {
                let both = limit(ctx, &entry.value, &path);
                (both, both)
            }
        };
        let (Some(soft), Some(hard)) = (soft, hard) else { continue };
        // No limit is above every number.
        if soft.unwrap_or(u64::MAX) > hard.unwrap_or(u64::MAX) {
            ctx.error(
                Code::Conflict,
                entry.key_span,
                format!("the soft limit of `{path}` is above the hard one"),
            )
            .help("setrlimit(2) would refuse it: raise `hard` or lower `soft`");
        }
        out.push(Ulimit { name: entry.key.clone(), soft, hard });
    }
    Some(out)
}

/// A limit; -1 is none.
pub(super) fn limit(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Option<u64>> {
    let text = ctx.text(node, path)?;
    if text == "-1" || text == "unlimited" {
        return Some(None);
    }
    match text.parse() {
        Ok(number) => Some(Some(number)),
        Err(_) => {
            ctx.error(
                Code::WrongType,
                node.span,
                format!("`{path}` must be a whole number, not {}", quoted(&text)),
            )
            .help("write -1 for no limit");
            None
        }
    }
}

/// The names of capabilities(7), without `CAP_`.
const CAPABILITIES: &[&str] = &[
    "ALL",
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// A list of capabilities; engines take them in any case, with and without `CAP_`.
pub(super) fn capabilities(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<String>> {
    let mut out: Vec<String> = Vec::new();
    for item in ctx.list(node, path)? {
        let Some(text) = ctx.name(item, path) else { continue };
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("CAP_").unwrap_or(&upper).to_owned();
        if !CAPABILITIES.contains(&name.as_str()) {
            ctx.error(Code::UnknownValue, item.span, format!("{} is no capability", quoted(&text)))
                .help("write a name of capabilities(7) such as NET_ADMIN, or ALL")
                .suggest(nearest(&name, CAPABILITIES));
        } else if !out.contains(&name) {
            out.push(name);
        }
    }
    Some(out)
}

/// A number of processors, in thousandths; it may be written as a text.
pub(super) fn cpus(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u64> {
    let text = ctx.text(node, path)?;
    match crate::scalar::thousandths(&text) {
        Ok(milli) => Some(milli),
        Err(error) => {
            ctx.error(
                Code::WrongType,
                node.span,
                format!("`{path}` cannot be {}: {}", quoted(&text), error.message),
            );
            None
        }
    }
}

/// Names of signal(7), without `SIG`.
const SIGNALS: &[&str] = &[
    "ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "KILL", "PIPE", "PROF", "PWR",
    "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2",
    "VTALRM", "WINCH", "XCPU", "XFSZ",
];

/// A signal by name, with or without `SIG`, or by number; the name with `SIG`, or the number.
pub(super) fn signal(ctx: &mut Ctx, node: &Node, path: &str) -> Option<String> {
    let text = ctx.text(node, path)?;
    if text.parse::<u32>().is_ok_and(|n| (1..=64).contains(&n)) {
        return Some(text);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if SIGNALS.contains(&name) || name.starts_with("RTMIN") || name.starts_with("RTMAX") {
        return Some(format!("SIG{name}"));
    }
    ctx.error(Code::UnknownValue, node.span, format!("`{path}` cannot be {}", quoted(&text)))
        .help("write a signal of signal(7) such as SIGTERM, or its number")
        .suggest(nearest(name, SIGNALS));
    None
}
