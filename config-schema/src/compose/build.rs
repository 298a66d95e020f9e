//! `build` of a service.
//!
//! Key function: [`build`].

use crate::decode::Ctx;
use crate::tree::{Node, Span, Value};

use super::load::Scopes;
use super::types::{Build, BuildContext};
use super::{environment, keys, mounts, network, resources, service};

pub(super) fn build(ctx: &mut Ctx, node: &Node, path: &str, scopes: &Scopes) -> Option<Build> {
    if !matches!(node.value, Value::Map(_)) {
        let text = ctx.name(node, path)?;
        return Some(Build { at: node.span, context: context(ctx, node.span, &text), ..Build::default() });
    }
    let fields = keys::open(ctx, node, path, "services.*.build")?;
    let at = fields.entries.first().map_or(node.span, |entry| entry.key_span);
    let list = |ctx: &mut Ctx, key: &str| {
        fields.get(ctx, key, |c, n, p| Some(network::names(c, n, p))).unwrap_or_default()
    };
    let context = match fields.node("context") {
        Some(node) => {
            let text = ctx.name(node, &fields.path("context"))?;
            context(ctx, node.span, &text)
        }
        None => context(ctx, node.span, "."),
    };
    fields.get(ctx, "isolation", service::isolation);
    let extra_hosts = fields.get(ctx, "extra_hosts", network::extra_hosts).unwrap_or_default();
    Some(Build {
        at,
        context,
        dockerfile: fields.get(ctx, "dockerfile", Ctx::name),
        dockerfile_inline: fields.get(ctx, "dockerfile_inline", Ctx::text),
        args: fields.get(ctx, "args", |c, n, p| environment::arguments(c, n, p, scopes)).unwrap_or_default(),
        target: fields.get(ctx, "target", Ctx::name),
        additional_contexts: fields.get(ctx, "additional_contexts", contexts).unwrap_or_default(),
        labels: fields.get(ctx, "labels", environment::pairs).unwrap_or_default(),
        tags: list(ctx, "tags"),
        cache_from: list(ctx, "cache_from"),
        secrets: fields.get(ctx, "secrets", |c, n, p| resources::mounted(c, n, p, "")).unwrap_or_default(),
        ssh: fields.get(ctx, "ssh", ssh).unwrap_or_default(),
        extra_hosts: extra_hosts
            .iter()
            .map(|(name, host)| match host {
                super::types::ExtraHost::Address(ip) => format!("{name}={ip}"),
                super::types::ExtraHost::Gateway => format!("{name}=host-gateway"),
            })
            .collect(),
        network: fields.get(ctx, "network", Ctx::name),
        shm_size: fields.get(ctx, "shm_size", mounts::size),
        no_cache: fields.get(ctx, "no_cache", Ctx::bool).unwrap_or(false),
        pull: fields.get(ctx, "pull", Ctx::bool).unwrap_or(false),
        platforms: list(ctx, "platforms"),
    })
}

/// Where the files of a build are. That a directory is there is checked when the image is built: one that was built before needs none.
fn context(ctx: &Ctx, at: Span, text: &str) -> BuildContext {
    let remote = text.contains("://") || text.starts_with("git@") || text.starts_with("github.com/");
    if remote { BuildContext::Remote(text.to_owned()) } else { BuildContext::Dir(ctx.path(at, text)) }
}

/// `additional_contexts`: paths are relative to the file in which they are written; images, services and addresses have a scheme.
fn contexts(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<(String, String)>> {
    let pairs = environment::pairs(ctx, node, path)?;
    let resolved = |value: String| match value.contains(":") {
        true => value,
        false => ctx.path(node.span, &value).display().to_string(),
    };
    Some(pairs.into_iter().map(|(name, value)| (name, resolved(value))).collect())
}

/// `ssh`: `default`, or ids with a path.
fn ssh(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<String>> {
    if let Value::Scalar(_) = &node.value {
        return Some(network::names(ctx, node, path));
    }
    let pairs = environment::pairs(ctx, node, path)?;
    Some(
        pairs
            .into_iter()
            .map(|(id, path)| if path.is_empty() { id } else { format!("{id}={path}") })
            .collect(),
    )
}
