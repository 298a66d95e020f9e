//! `volumes`, `tmpfs` and `volumes_from` of a service.
//!
//! Key types: [`Mount`], [`MountSource`]; key functions: [`volumes`], [`tmpfs`]. Short syntax `[source:]target[:mode]` and long syntax; sources that
//! begin with `.`, `/` or `~` are paths of this machine, other words are named volumes.

use std::path::{Path, PathBuf};

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, quoted};
use crate::scalar;
use crate::tree::{Node, Span, Value};

use super::keys;
use super::load::Scopes;

/// Something mounted into a service's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What is mounted.
    pub source: MountSource,
    /// Where, an absolute path.
    pub target: String,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// With a volume: whether what the image has at the target is left out of an empty volume.
    pub nocopy: bool,
    /// With a volume: the directory of the volume that is mounted, a relative path; `None`: all of it.
    pub subpath: Option<String>,
    /// Where it is written in the file.
    pub at: Span,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A file or directory of this machine; its content is copied on write, this machine's stays as it is.
    Bind(PathBuf),
    /// A named volume, empty at first, shared by all services that name it.
    Volume(String),
    /// A volume of its own, empty at first.
    Anonymous,
    /// A file system in memory that is lost when the node crashes.
    Tmpfs {
        /// Largest size in bytes.
        size: Option<u64>,
        /// Permissions of its root.
        mode: Option<u32>,
        /// User and group of its root.
        owner: (u32, u32),
    },
    /// The files of an image; what is written there is the container's alone.
    Image(Located<String>),
    /// /proc of the machine that runs the container, which is the simulated one.
    Proc,
    /// Its /sys.
    Sys,
}

/// Another service whose mounts a service has as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesFrom {
    /// The other service.
    pub service: Located<String>,
    /// Whether they cannot be written.
    pub read_only: bool,
}

/// What the decoders of mounts need to know.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) scopes: &'a Scopes,
    /// Names of the declared volumes.
    pub(super) declared: &'a [String],
}

pub(super) fn volumes(ctx: &mut Ctx, node: &Node, path: &str, around: Around<'_>) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for item in ctx.list(node, path).unwrap_or_default() {
        let mount = match &item.value {
            Value::Map(_) => long(ctx, item, path, around),
            _ => ctx.name(item, path).and_then(|text| short(ctx, &text, item.span, around)),
        };
        if let Some(mount) = mount {
            add(ctx, &mut mounts, mount, item.span);
        }
    }
    mounts
}

/// `tmpfs`: one path or a list of paths, each with options after a colon.
pub(super) fn tmpfs(ctx: &mut Ctx, node: &Node, path: &str, mounts: &mut Vec<Mount>) {
    let items = match &node.value {
        Value::Seq(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    for item in items {
        let Some(text) = ctx.name(item, path) else { continue };
        let mut read_only = false;
        let (target, options) = text.split_once(':').unwrap_or((&text, ""));
        let mut size = None;
        let mut mode = None;
        let mut owner = (0, 0);
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("size", value)) => size = bytes(ctx, value, item.span, path),
                Some(("mode", value)) => mode = octal(ctx, value, item.span, path),
                Some(("uid", value)) => owner.0 = id(ctx, value, item.span, path).unwrap_or(0),
                Some(("gid", value)) => owner.1 = id(ctx, value, item.span, path).unwrap_or(0),
                None if option == "ro" => read_only = true,
                // The rest of mount(8)'s options changes nothing here: `exec`, `nosuid` and the like.
                _ => {}
            }
        }
        if let Some(target) = target_path(ctx, target, item.span) {
            let source = MountSource::Tmpfs { size, mode, owner };
            add(ctx, mounts, Mount { read_only, ..Mount::new(source, target, item.span) }, item.span);
        }
    }
}

impl Mount {
    fn new(source: MountSource, target: String, at: Span) -> Mount {
        Mount { source, target, read_only: false, nocopy: false, subpath: None, at }
    }
}

/// The number of a user or group.
fn id(ctx: &mut Ctx, text: &str, span: Span, path: &str) -> Option<u32> {
    let id = text.parse().ok();
    if id.is_none() {
        ctx.error(
            Code::Malformed,
            span,
            format!("`{path}` must name users and groups by number, not {}", quoted(text)),
        );
    }
    id
}

/// Permissions as chmod(1) takes them.
pub(super) fn octal(ctx: &mut Ctx, text: &str, span: Span, path: &str) -> Option<u32> {
    let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|m| *m <= 0o7777);
    if mode.is_none() {
        ctx.error(Code::Malformed, span, format!("`{path}` must be an octal number such as 1777"));
    }
    mode
}

/// `volumes_from`: names of services, with `:ro` or `:rw`.
pub(super) fn volumes_from(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<VolumesFrom>> {
    let mut out = Vec::new();
    for item in ctx.list(node, path)? {
        let Some(text) = ctx.name(item, path) else { continue };
        if text.starts_with("container:") {
            ctx.error(Code::ComposeNotSupported, item.span, format!("{} is outside of this file", quoted(&text)))
                .help("name a service of this file: containers that are not part of it do not exist in the simulation");
            continue;
        }
        let (name, mode) = text.split_once(':').unwrap_or((&text, "rw"));
        if !matches!(mode, "ro" | "rw") {
            ctx.error(Code::UnknownValue, item.span, format!("unknown mount option {}", quoted(mode)))
                .help("write `ro` or `rw`");
        }
        out.push(VolumesFrom { service: ctx.located(name.to_owned(), item.span), read_only: mode == "ro" });
    }
    Some(out)
}

fn add(ctx: &mut Ctx, mounts: &mut Vec<Mount>, mount: Mount, span: Span) {
    if mounts.iter().any(|other| other.target == mount.target) {
        let message = format!("two mounts have the target {}", quoted(&mount.target));
        ctx.error(Code::DuplicateName, span, message);
    }
    mounts.push(mount);
}

fn short(ctx: &mut Ctx, text: &str, span: Span, around: Around<'_>) -> Option<Mount> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, mode) = match parts.as_slice() {
        [target] => ("", *target, ""),
        // `/data:ro` would be a source with a relative target: the second word decides.
        [source, target] => (*source, *target, ""),
        [source, target, mode] => (*source, *target, *mode),
        _ => {
            ctx.error(Code::Malformed, span, format!("cannot understand the mount {}", quoted(text)))
                .help("write [source:]target[:ro]");
            return None;
        }
    };
    let mut read_only = false;
    let mut nocopy = false;
    for option in mode.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => read_only = true,
            // Labels, propagation and caching concern the host only.
            "rw" | "z" | "Z" | "cached" | "delegated" | "consistent" | "rprivate" | "private" | "rshared"
            | "shared" | "rslave" | "slave" | "U" => {}
            "nocopy" => nocopy = true,
            _ => {
                let message = format!("unknown mount option {}", quoted(option));
                ctx.error(Code::UnknownValue, span, message).help("write `ro` or `rw`");
            }
        }
    }
    let target = target_path(ctx, target, span)?;
    let source = match source {
        "" if parts.len() == 1 => MountSource::Anonymous,
        "" => {
            ctx.error(Code::Malformed, span, format!("the mount {} has no source", quoted(text)));
            return None;
        }
        path if path.starts_with(['.', '/', '~']) => {
            let create = !(read_only && (like_file(path) || like_file(&target)));
            bind(ctx, path, span, create, around)?
        }
        name => named(ctx, name, span, around)?,
    };
    Some(Mount { read_only, nocopy, ..Mount::new(source, target, span) })
}

fn long(ctx: &mut Ctx, node: &Node, path: &str, around: Around<'_>) -> Option<Mount> {
    #[derive(Clone, Copy)]
    enum Type {
        Bind,
        Volume,
        Tmpfs,
        Image,
    }
    let fields = keys::open(ctx, node, path, "services.*.volumes[]")?;
    let types =
        [("bind", Type::Bind), ("volume", Type::Volume), ("tmpfs", Type::Tmpfs), ("image", Type::Image)];
    let kind = fields.require(ctx, "type", |c, n, p| c.choice(n, p, &types));
    let read_only = fields.get(ctx, "read_only", Ctx::bool).unwrap_or(false);
    let target = fields.require(ctx, "target", |c, n, p| {
        let text = c.name(n, p)?;
        target_path(c, &text, n.span)
    });
    let create = fields.get(ctx, "bind", |c, n, p| {
        keys::open(c, n, p, "services.*.volumes[].bind")?.get(c, "create_host_path", Ctx::bool)
    });
    let (nocopy, subpath) = fields.get(ctx, "volume", volume_options).unwrap_or_default();
    let of_image = fields.get(ctx, "image", |c, n, p| {
        keys::open(c, n, p, "services.*.volumes[].image")?.get(c, "subpath", relative)
    });
    let subpath = subpath.or(of_image);
    let options = fields.get(ctx, "tmpfs", |c, n, p| {
        let fields = keys::open(c, n, p, "services.*.volumes[].tmpfs")?;
        let size = fields.get(c, "size", size);
        let mode = fields.get(c, "mode", |c, n, p| {
            let text = c.text(n, p)?;
            octal(c, &text, n.span, p)
        });
        Some((size, mode))
    });
    let source = match kind? {
        Type::Bind => fields.require(ctx, "source", |c, n, p| {
            let text = c.name(n, p)?;
            let file = like_file(&text) || target.as_deref().is_some_and(like_file);
            bind(c, &text, n.span, create.unwrap_or(!(read_only && file)), around)
        })?,
        Type::Volume => match fields.node("source") {
            None => MountSource::Anonymous,
            Some(node) => {
                let name = ctx.name(node, &fields.path("source"))?;
                named(ctx, &name, node.span, around)?
            }
        },
        Type::Tmpfs => {
            let (size, mode) = options.unwrap_or_default();
            MountSource::Tmpfs { size, mode, owner: (0, 0) }
        }
        Type::Image => fields.require(ctx, "source", |c, n, p| {
            let text = c.name(n, p)?;
            Some(MountSource::Image(c.located(text, n.span)))
        })?,
    };
    Some(Mount { source, target: target?, read_only, nocopy, subpath, at: node.span })
}

/// `volume:` of a mount: `nocopy` and `subpath`.
fn volume_options(ctx: &mut Ctx, node: &Node, path: &str) -> Option<(bool, Option<String>)> {
    let fields = keys::open(ctx, node, path, "services.*.volumes[].volume")?;
    let nocopy = fields.get(ctx, "nocopy", Ctx::bool).unwrap_or(false);
    Some((nocopy, fields.get(ctx, "subpath", relative)))
}

/// A path in a volume or in an image.
fn relative(ctx: &mut Ctx, node: &Node, path: &str) -> Option<String> {
    let text = ctx.name(node, path)?;
    if text.starts_with('/') || text.split('/').any(|part| part == "..") {
        ctx.error(Code::Malformed, node.span, format!("`{path}` must be a relative path below the volume"));
        return None;
    }
    Some(text)
}

fn target_path(ctx: &mut Ctx, text: &str, span: Span) -> Option<String> {
    if !text.starts_with('/') {
        ctx.error(Code::Malformed, span, format!("the target {} must be an absolute path", quoted(text)));
        return None;
    }
    if text.split('/').any(|part| part == "..") || text.contains('\0') {
        ctx.error(Code::Malformed, span, format!("the target {} must not go up", quoted(text)));
        return None;
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Some(format!("/{}", parts.join("/")))
}

/// Whether a path names a file and not a directory, by its looks: a configuration that is not there is a mistake, even though an
/// engine makes a directory for it.
fn like_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default().trim_start_matches('.');
    name.contains('.') && !name.ends_with(".d")
}

/// A bind mount. `None` if it is refused, or if nothing is mounted.
fn bind(ctx: &mut Ctx, text: &str, span: Span, create: bool, around: Around<'_>) -> Option<MountSource> {
    let path = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => match around.scopes.at(span).get("HOME") {
            Some(home) => Path::new(home).join(rest.trim_start_matches('/')),
            None => {
                ctx.error(Code::Malformed, span, "`~` needs the variable `HOME`");
                return None;
            }
        },
        _ => ctx.path(span, text),
    };
    if path.is_absolute()
        && let Some(of_system) = system(ctx, &path, span)
    {
        return of_system;
    }
    if !path.exists() {
        let shown = path.display();
        if create {
            // Compose makes a directory for a mount whose source is not there.
            ctx.warn(Code::MissingFile, span, format!("{shown} does not exist"))
                .help("the service finds an empty directory there");
        } else {
            ctx.error(Code::MissingFile, span, format!("{shown} does not exist"))
                .help("paths are relative to the directory of this file");
        }
    }
    Some(MountSource::Bind(path))
}

/// What belongs to the kernel or the engine of the machine that runs containers. In a simulation that is a simulated machine, and the
/// files of this one would bring its processes, devices and times into a run. `None`: the path is none of these.
fn system(ctx: &mut Ctx, path: &Path, span: Span) -> Option<Option<MountSource>> {
    const ENGINES: &[&str] = &["docker.sock", "podman.sock", "containerd.sock", "crio.sock"];
    let shown = path.display();
    let own = |ctx: &mut Ctx, help: &str| {
        ctx.warn(Code::ComposeKeyNotModelled, span, format!("{shown} is left out")).help(help);
        Some(None)
    };
    if path.file_name().is_some_and(|name| ENGINES.iter().any(|engine| name == *engine)) {
        return own(ctx, "there is no engine in the simulation: the service finds no socket there");
    }
    match path.to_str() {
        Some("/proc") => return Some(Some(MountSource::Proc)),
        Some("/sys") => return Some(Some(MountSource::Sys)),
        // The memory of System V and POSIX objects of all containers of the machine, which are in the simulation or nowhere.
        Some("/dev/shm") => {
            return Some(Some(MountSource::Tmpfs { size: None, mode: Some(0o1777), owner: (0, 0) }));
        }
        Some("/sys/fs/cgroup") => {
            return own(ctx, "a container sees its own control group, at /sys/fs/cgroup");
        }
        Some("/dev/null" | "/dev/zero" | "/dev/full" | "/dev/random" | "/dev/urandom" | "/dev/tty") => {
            return own(ctx, "a container has devices of its own, of which none blocks");
        }
        _ => {}
    }
    let kernel = ["/proc", "/sys", "/dev"].into_iter().find(|tree| path.starts_with(tree))?;
    ctx.error(Code::ComposeNotSupported, span, format!("{shown} cannot be mounted")).help(format!(
        "what lies in {kernel} is of this machine's kernel and changes from run to run: remove the mount, or reset it \
         (`!reset`) in an override file for tests"
    ));
    Some(None)
}

fn named(ctx: &mut Ctx, name: &str, span: Span, around: Around<'_>) -> Option<MountSource> {
    if around.declared.iter().any(|declared| declared == name) {
        return Some(MountSource::Volume(name.to_owned()));
    }
    ctx.error(Code::UnknownResource, span, format!("the volume {} is not declared", quoted(name)))
        .help("declare it under the top-level key `volumes`, or write `./` before a path")
        .suggest(crate::suggest::nearest(name, around.declared));
    None
}

/// A size as a value of its own.
pub(super) fn size(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u64> {
    let text = ctx.text(node, path)?;
    bytes(ctx, &text, node.span, path)
}

/// A number of bytes with an optional unit: `64m`, `1gb`, `4096`.
pub(super) fn bytes(ctx: &mut Ctx, text: &str, span: Span, path: &str) -> Option<u64> {
    let size = scalar::bytes(text);
    if size.is_none() {
        ctx.error(Code::Malformed, span, format!("`{path}` cannot have the size {}", quoted(text)))
            .help("write a size such as 64m or 1g");
    }
    size
}
