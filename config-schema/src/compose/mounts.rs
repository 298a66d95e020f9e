//! `volumes` and `tmpfs` of a service.
//!
//! Key functions: [`volumes`], [`tmpfs`]. Short syntax `[source:]target[:mode]` and long syntax; sources that
//! begin with `.`, `/` or `~` are paths of this machine, other words are named volumes.

use std::path::Path;

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::scalar;
use crate::tree::{Node, Span, Value};

use super::interpolate::Variables;
use super::keys;
use super::types::{Mount, MountSource};

/// What the decoders of mounts need to know.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) base: &'a Path,
    pub(super) variables: &'a Variables,
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
        let (target, options) = text.split_once(':').unwrap_or((&text, ""));
        let mut size = None;
        let mut mode = None;
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("size", value)) => size = bytes(ctx, value, item.span, path),
                Some(("mode", value)) => mode = u32::from_str_radix(value, 8).ok(),
                _ => {}
            }
        }
        if let Some(target) = target_path(ctx, target, item.span) {
            let at = ctx.source.spot(item.span.start);
            let source = MountSource::Tmpfs { size, mode };
            add(ctx, mounts, Mount { source, target, read_only: false, at }, item.span);
        }
    }
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
    for option in mode.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => read_only = true,
            // Labels, propagation and caching concern the host only.
            "rw" | "z" | "Z" | "cached" | "delegated" | "consistent" | "nocopy" | "rprivate" | "private"
            | "rshared" | "shared" | "rslave" | "slave" => {}
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
        path if path.starts_with(['.', '/', '~']) => bind(ctx, path, span, read_only, around)?,
        name => named(ctx, name, span, around)?,
    };
    Some(Mount { source, target, read_only, at: ctx.source.spot(span.start) })
}

fn long(ctx: &mut Ctx, node: &Node, path: &str, around: Around<'_>) -> Option<Mount> {
    #[derive(Clone, Copy)]
    enum Type {
        Bind,
        Volume,
        Tmpfs,
    }
    let fields = ctx.fields(node, path, keys::MOUNT)?;
    let types = [("bind", Type::Bind), ("volume", Type::Volume), ("tmpfs", Type::Tmpfs)];
    let kind = fields.require(ctx, "type", |c, n, p| c.choice(n, p, &types));
    let read_only = fields.get(ctx, "read_only", Ctx::bool).unwrap_or(false);
    let target = fields.require(ctx, "target", |c, n, p| {
        let text = c.name(n, p)?;
        target_path(c, &text, n.span)
    });
    fields.get(ctx, "bind", |c, n, p| c.fields(n, p, keys::MOUNT_BIND).map(|_| ()));
    fields.get(ctx, "volume", |c, n, p| c.fields(n, p, keys::MOUNT_VOLUME).map(|_| ()));
    let options = fields.get(ctx, "tmpfs", |c, n, p| {
        let fields = c.fields(n, p, keys::MOUNT_TMPFS)?;
        let size = fields.get(c, "size", |c, n, p| {
            let text = c.text(n, p)?;
            bytes(c, &text, n.span, p)
        });
        let mode = fields.get(c, "mode", |c, n, p| {
            let text = c.text(n, p)?;
            let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|m| *m <= 0o7777);
            if mode.is_none() {
                c.error(Code::Malformed, n.span, format!("`{p}` must be an octal number such as 1777"));
            }
            mode
        });
        Some((size, mode))
    });
    let source = match kind? {
        Type::Bind => fields.require(ctx, "source", |c, n, p| {
            let text = c.name(n, p)?;
            bind(c, &text, n.span, read_only, around)
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
            MountSource::Tmpfs { size, mode }
        }
    };
    Some(Mount { source, target: target?, read_only, at: ctx.source.spot(node.span.start) })
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

fn bind(ctx: &mut Ctx, text: &str, span: Span, read_only: bool, around: Around<'_>) -> Option<MountSource> {
    let path = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => match around.variables.get("HOME") {
            Some(home) => Path::new(home).join(rest.trim_start_matches('/')),
            None => {
                ctx.error(Code::Malformed, span, "`~` needs the variable `HOME`");
                return None;
            }
        },
        _ => crate::config::resolve(around.base, text),
    };
    if !path.exists() {
        let shown = path.display();
        if read_only {
            ctx.error(Code::MissingFile, span, format!("{shown} does not exist"))
                .help("paths are relative to the directory of this file");
        } else {
            // Compose makes a directory for a short mount whose source is not there.
            ctx.warn(Code::MissingFile, span, format!("{shown} does not exist"))
                .help("the service finds an empty directory there");
        }
    }
    Some(MountSource::Bind(path))
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

/// A number of bytes with an optional unit: `64m`, `1gb`, `4096`.
fn bytes(ctx: &mut Ctx, text: &str, span: Span, path: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(split);
    let shift = match unit {
        "" | "b" => Some(0),
        "k" | "kb" => Some(10),
        "m" | "mb" => Some(20),
        "g" | "gb" => Some(30),
        _ => None,
    };
    let size = scalar::integer(digits).ok().zip(shift).and_then(|(n, shift)| n.checked_mul(1 << shift));
    if size.is_none() {
        ctx.error(Code::Malformed, span, format!("`{path}` cannot have the size {}", quoted(text)))
            .help("write a size such as 64m or 1g");
    }
    size
}
