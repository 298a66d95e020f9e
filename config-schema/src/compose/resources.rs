//! What services of a compose file share besides networks: volumes, secrets, configurations; and their places in a service.
//!
//! Key types: [`Volume`], [`Resource`], [`ResourceMount`]. Key functions: [`volumes`], [`declared`], [`mounted`].

use std::path::PathBuf;

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, quoted};
use crate::suggest::nearest;
use crate::tree::{Node, Span, Value};

use super::keys;
use super::load::Scopes;
use super::mounts::{self, MountSource};

/// A named volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the file.
    pub name: String,
    /// What `driver_opts` of the driver `local` make of it: a directory of this machine or memory; `None`: an ordinary volume.
    pub backing: Option<MountSource>,
    /// Where it is declared.
    pub at: Span,
}

/// A secret or a configuration: a file's content under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name in the file.
    pub name: String,
    /// Where its content comes from.
    pub content: Content,
    /// Where it is declared.
    pub at: Span,
}

/// Where the content of a secret or configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file of this machine.
    File(PathBuf),
    /// A variable of the environment or a text of the file.
    Text(String),
}

/// A secret or configuration as a file of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceMount {
    /// The resource's name.
    pub source: Located<String>,
    /// Where it is mounted, an absolute path; while building, the id under which it is known.
    pub target: String,
    /// The owner, a number; `None`: root.
    pub uid: Option<u32>,
    /// The group, a number; `None`: root.
    pub gid: Option<u32>,
    /// Permissions; `None`: 0444.
    pub mode: Option<u32>,
}

/// The section `volumes`.
pub(super) fn volumes(ctx: &mut Ctx, node: &Node) -> Vec<Volume> {
    let Some(entries) = ctx.entries(node, "volumes") else { return Vec::new() };
    let mut volumes = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        let path = format!("volumes.{}", entry.key);
        let fields = keys::open(ctx, &entry.value, &path, "volumes.*");
        let node = |key: &str| fields.as_ref().and_then(|fields| fields.node(key));
        if let Some(node) = node("driver")
            && let Some(driver) = ctx.name(node, &format!("{path}.driver"))
            && driver != "local"
        {
            ctx.error(Code::ComposeNotSupported, node.span, format!("the volume driver {} is not available", quoted(&driver)))
                .help("a simulated machine has the driver `local` only: remove the key, or bind a directory of this machine");
        }
        let backing =
            node("driver_opts").and_then(|node| driver_options(ctx, node, &format!("{path}.driver_opts")));
        volumes.push(Volume { name: entry.key.clone(), backing, at: entry.key_span });
    }
    volumes
}

/// `driver_opts` of the driver `local`: the arguments of mount(8).
fn driver_options(ctx: &mut Ctx, node: &Node, path: &str) -> Option<MountSource> {
    let fields = ctx.fields(node, path, &["type", "o", "device"])?;
    let kind = fields.get(ctx, "type", Ctx::text).unwrap_or_default();
    let options = fields.get(ctx, "o", Ctx::text).unwrap_or_default();
    let device = fields.node("device").cloned();
    if options.split(',').any(|o| matches!(o, "bind" | "rbind")) {
        let node = device.as_ref()?;
        let text = ctx.name(node, &fields.path("device"))?;
        let path = ctx.path(node.span, &text);
        if !path.exists() {
            // As an engine has it: a volume's directory is never made.
            ctx.error(Code::MissingFile, node.span, format!("{} does not exist", path.display())).help(
                "make the directory first: an engine does not make it for a volume with the option `bind`",
            );
        }
        return Some(MountSource::Bind(path));
    }
    if kind == "tmpfs" {
        let option = |name: &str| options.split(',').find_map(|o| o.strip_prefix(name)?.strip_prefix('='));
        let size = option("size").and_then(|text| mounts::bytes(ctx, text, node.span, path));
        let mode = option("mode").and_then(|text| mounts::octal(ctx, text, node.span, path));
        return Some(MountSource::Tmpfs { size, mode, owner: (0, 0) });
    }
    ctx.error(Code::ComposeNotSupported, node.span, format!("a volume cannot be of the type {}", quoted(&kind)))
        .help("`{type: none, o: bind, device: DIR}` and `{type: tmpfs}` work; other file systems (nfs, cifs) need a server outside of the simulation");
    None
}

/// The sections `secrets` and `configs`.
pub(super) fn declared(ctx: &mut Ctx, node: &Node, section: &str, scopes: &Scopes) -> Vec<Resource> {
    let Some(entries) = ctx.entries(node, section) else { return Vec::new() };
    let of = if section == "secrets" { "secrets.*" } else { "configs.*" };
    let mut out = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        let path = format!("{section}.{}", entry.key);
        let Some(fields) = keys::open(ctx, &entry.value, &path, of) else { continue };
        let node =
            |key: &str| fields.entries.iter().find(|e| e.key == key && !e.value.is_null()).map(|e| &e.value);
        let content = if let Some(node) = node("file") {
            ctx.name(node, &format!("{path}.file")).map(|text| file(ctx, node, &text))
        } else if let Some(node) = node("environment") {
            ctx.name(node, &format!("{path}.environment")).and_then(|name| {
                let value = scopes.at(node.span).get(&name).cloned();
                if value.is_none() {
                    ctx.error(
                        Code::RequiredVariable,
                        node.span,
                        format!("the variable {} is not set", quoted(&name)),
                    )
                    .help(format!(
                        "`{path}` takes its content from it: set it in the environment or in .env"
                    ));
                }
                value.map(Content::Text)
            })
        } else if let Some(node) = node("content") {
            ctx.text(node, &format!("{path}.content")).map(Content::Text)
        } else if node("external").is_some() || node("driver").is_some() {
            // Refused by the table.
            None
        } else {
            ctx.error(
                Code::MissingKey,
                entry.key_span,
                format!("`{path}` does not say where its content comes from"),
            )
            .help("write one of `file`, `environment` and `content`");
            None
        };
        // One that is refused is declared all the same: who names it is not wrong as well.
        let content = content.unwrap_or(Content::Text(String::new()));
        out.push(Resource { name: entry.key.clone(), content, at: entry.key_span });
    }
    out
}

fn file(ctx: &mut Ctx, node: &Node, text: &str) -> Content {
    let path = ctx.path(node.span, text);
    if !path.is_file() {
        ctx.error(Code::MissingFile, node.span, format!("{} does not exist", path.display()))
            .help("paths are relative to the directory of this file");
    }
    Content::File(path)
}

/// `secrets` and `configs` of a service: names or mappings. `below` is the directory of short names.
pub(super) fn mounted(ctx: &mut Ctx, node: &Node, path: &str, below: &str) -> Option<Vec<ResourceMount>> {
    let mut out: Vec<ResourceMount> = Vec::new();
    for item in ctx.list(node, path)? {
        let Value::Map(_) = &item.value else {
            let Some(name) = ctx.name(item, path) else { continue };
            let target = format!("{below}{name}");
            out.push(ResourceMount {
                source: ctx.located(name, item.span),
                target,
                uid: None,
                gid: None,
                mode: None,
            });
            continue;
        };
        let Some(fields) = keys::open(ctx, item, path, "services.*.secrets[]") else { continue };
        let Some(name) = fields.require(ctx, "source", Ctx::name) else { continue };
        let source = ctx.located(name.clone(), fields.node("source").map_or(item.span, |n| n.span));
        let id = |c: &mut Ctx, n: &Node, p: &str| {
            let text = c.text(n, p)?;
            let id = text.parse().ok();
            if id.is_none() {
                c.error(Code::WrongType, n.span, format!("`{p}` must be a number, not {}", quoted(&text)));
            }
            id
        };
        let target = fields.get(ctx, "target", Ctx::name).unwrap_or(name);
        // A secret's target may be a name, which is taken below /run/secrets; a configuration's is a path.
        let target = if target.starts_with('/') { target } else { format!("{below}{target}") };
        out.push(ResourceMount {
            source,
            target,
            uid: fields.get(ctx, "uid", id),
            gid: fields.get(ctx, "gid", id),
            mode: fields.get(ctx, "mode", |c, n, p| {
                let text = c.text(n, p)?;
                mounts::octal(c, &text, n.span, p)
            }),
        });
    }
    Some(out)
}

/// Every secret or configuration that is mounted is declared.
pub(super) fn all_declared(ctx: &mut Ctx, mounts: &[ResourceMount], declared: &[String], section: &str) {
    for mount in mounts.iter().filter(|mount| !declared.contains(&mount.source.value)) {
        let name = &mount.source.value;
        ctx.error(
            Code::UnknownResource,
            mount.source.span,
            format!("{} is not declared under `{section}`", quoted(name)),
        )
        .help(format!("declare it under the top-level key `{section}`"))
        .suggest(nearest(name, declared));
    }
}
